/* The metadata of AMD's code objects: read as it was written, and of damaged files nothing is read outside of them. */
#include "call/hsaco.h"
#include "call/image.h"
#include "check.h"

#include <elf.h>
#include <stdlib.h>

const oa_library *const oa_libraries[] = {NULL};

typedef struct writer {
  unsigned char bytes[4096];
  size_t nbytes;
} writer;

static void put(writer *w, const void *bytes, size_t nbytes) {
  memcpy(w->bytes + w->nbytes, bytes, nbytes);
  w->nbytes += nbytes;
}

/* -- MessagePack -------------------------------------------------------------------------------------------------- */

static void byte(writer *w, int value) { put(w, &(unsigned char){(unsigned char)value}, 1); }

static void text(writer *w, const char *text) {
  const size_t length = strlen(text);
  if (length < 32) {
    byte(w, 0xa0 | (int)length);
  } else {
    byte(w, 0xd9);
    byte(w, (int)length);
  }
  put(w, text, length);
}

static void number(writer *w, unsigned value) {
  if (value < 128) {
    byte(w, (int)value);
  } else {
    byte(w, 0xcd);
    byte(w, (int)value >> 8);
    byte(w, (int)value & 255);
  }
}

static void field(writer *w, const char *key, unsigned value) {
  text(w, key);
  number(w, value);
}

static void argument(writer *w, unsigned offset, unsigned size, const char *kind) {
  byte(w, 0x84);
  field(w, ".offset", offset);
  field(w, ".size", size);
  text(w, ".other");
  put(w, "\xc0", 1);
  text(w, ".value_kind");
  text(w, kind);
}

static void kernel(writer *w, const char *name, int uniform) {
  byte(w, 0x88);
  text(w, ".name");
  text(w, name);
  text(w, ".args");
  byte(w, 0x93);
  argument(w, 0, 8, "global_buffer");
  argument(w, 8, 4, "by_value");
  argument(w, 16, 4, "hidden_block_count_x");
  field(w, ".kernarg_segment_size", 272);
  field(w, ".group_segment_fixed_size", 1000);
  field(w, ".vgpr_count", 12);
  field(w, ".sgpr_count", 20);
  field(w, ".max_flat_workgroup_size", 256);
  field(w, ".uniform_work_group_size", (unsigned)uniform);
}

/* -- files -------------------------------------------------------------------------------------------------------- */

/* Returns an HSACO of two kernels: the header, a note, and a table of one section. */
static writer hsaco(const char *target) {
  writer metadata = {.nbytes = 0}, made = {.nbytes = 0};
  byte(&metadata, 0x82);
  text(&metadata, "amdhsa.target");
  text(&metadata, target);
  text(&metadata, "amdhsa.kernels");
  byte(&metadata, 0x92);
  kernel(&metadata, "vadd", 1);
  kernel(&metadata, "a_kernel_with_a_name_of_more_than_31_bytes", 0);
  const uint32_t note[] = {7, (uint32_t)metadata.nbytes, 32};
  const size_t behind = sizeof(Elf64_Ehdr) + sizeof note + 8 + (metadata.nbytes + 7) / 8 * 8;
  const Elf64_Ehdr header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
                             .e_machine = EM_AMDGPU,
                             .e_shoff = behind,
                             .e_shentsize = sizeof(Elf64_Shdr),
                             .e_shnum = 1};
  const Elf64_Shdr section = {.sh_type = SHT_NOTE, .sh_offset = sizeof header, .sh_size = behind - sizeof header};
  put(&made, &header, sizeof header);
  put(&made, note, sizeof note);
  put(&made, "AMDGPU\0", 8);
  put(&made, metadata.bytes, metadata.nbytes);
  made.nbytes = behind;
  put(&made, &section, sizeof section);
  return made;
}

/* Returns a bundle of that for two processors, behind an entry for the host. */
static writer bundle(void) {
  static const char *const names[] = {"host-x86_64-unknown-linux--", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-",
                                      "hipv4-amdgcn-amd-amdhsa--gfx1100"};
  const writer images[] = {
      {.nbytes = 0}, hsaco("amdgcn-amd-amdhsa--gfx90a:xnack-"), hsaco("amdgcn-amd-amdhsa--gfx1100")};
  writer made = {.nbytes = 0};
  uint64_t at = 512;
  put(&made, "__CLANG_OFFLOAD_BUNDLE__", 24);
  put(&made, &(uint64_t){3}, 8);
  for (int i = 0; i < 3; i++) {
    const uint64_t row[] = {at, images[i].nbytes, strlen(names[i])};
    put(&made, row, sizeof row);
    put(&made, names[i], row[2]);
    memcpy(made.bytes + at, images[i].bytes, images[i].nbytes);
    at += images[i].nbytes;
  }
  made.nbytes = at;
  return made;
}

/* -- tests -------------------------------------------------------------------------------------------------------- */

static void what_was_written_is_read(void) {
  const writer made = hsaco("amdgcn-amd-amdhsa--gfx90a:xnack-");
  char processors[64];
  oa_bytes object, metadata;
  oa_hsaco_kernel found;
  uint64_t offset, nbytes;
  CHECK_OK(oa_image_check("made", made.bytes, made.nbytes, 0));
  CHECK(oa_hsaco_find(made.bytes, made.nbytes, "gfx1100", &object) && object.nbytes == made.nbytes);
  CHECK(oa_hsaco_metadata(object, &metadata));
  CHECK(!oa_hsaco_find_kernel(metadata, "vad", &found) && !oa_hsaco_find_kernel(metadata, "", &found));
  CHECK(oa_hsaco_find_kernel(metadata, "a_kernel_with_a_name_of_more_than_31_bytes", &found) && !found.uniform_blocks);
  CHECK(oa_hsaco_find_kernel(metadata, "vadd", &found) && found.uniform_blocks);
  CHECK(found.argument_bytes == 272 && found.shared_bytes == 1000 && found.most_threads == 256);
  CHECK(found.vector_registers == 12 && found.scalar_registers == 20);
  CHECK(oa_hsaco_parameter(&found, 0, &offset, &nbytes) && offset == 0 && nbytes == 8);
  CHECK(oa_hsaco_parameter(&found, 1, &offset, &nbytes) && offset == 8 && nbytes == 4);
  CHECK(oa_hsaco_parameter(&found, 2, &offset, &nbytes) && nbytes == 0); /* the hidden one does not count */
  oa_hsaco_targets(made.bytes, made.nbytes, processors, sizeof processors);
  CHECK(strcmp(processors, "gfx90a:xnack-") == 0);
  CHECK(oa_hsaco_version((oa_bytes){made.bytes, made.nbytes}) == 2 && !oa_hsaco_version((oa_bytes){made.bytes, 30}));
}

static void a_bundle_has_an_entry_for_each_processor(void) {
  const writer made = bundle();
  char processors[64];
  oa_bytes first, second, none;
  CHECK_OK(oa_image_check("made", made.bytes, made.nbytes, 0));
  CHECK(oa_hsaco_find(made.bytes, made.nbytes, "gfx90a:sramecc+:xnack-", &first));
  CHECK(!oa_hsaco_find(made.bytes, made.nbytes, "gfx90a:sramecc+:xnack+", &none));
  CHECK(!oa_hsaco_find(made.bytes, made.nbytes, "gfx90a", &none));
  CHECK(oa_hsaco_find(made.bytes, made.nbytes, "gfx1100", &second) && second.at > first.at);
  CHECK(!oa_hsaco_find(made.bytes, made.nbytes, "gfx90", &none) && !oa_hsaco_find(made.bytes, made.nbytes, "", &none));
  CHECK(oa_hsaco_metadata(first, &none) && oa_hsaco_metadata(second, &none));
  oa_hsaco_targets(made.bytes, made.nbytes, processors, sizeof processors);
  CHECK(strcmp(processors, "gfx90a:xnack-, gfx1100") == 0);
  CHECK_FAILS(oa_image_check("made", made.bytes, made.nbytes - 1, 0), OA_ERROR_MODULE, "damaged");
}

static int suits(const char *code, const char *device) {
  return oa_hsaco_suits((oa_bytes){(const unsigned char *)code, strlen(code)}, device);
}

static void code_suits_a_device_if_its_features_are_the_devices(void) {
  const char *const device = "gfx90a:sramecc+:xnack-";
  CHECK(suits("gfx90a", device) && suits("gfx90a:xnack-", device) && suits(device, device));
  CHECK(suits("gfx90a:xnack-:sramecc+", device));
  CHECK(!suits("gfx90a:xnack+", device) && !suits("gfx90a:sramecc-:xnack-", device) && !suits("gfx90", device));
  CHECK(!suits("", device) && !suits("gfx90a", "") && !suits(":", ":") && !suits("gfx1100:xnack-", "gfx1100"));
  CHECK_FAILS(oa_image_check("made", "CCOB\2\0\1", 8, 0), OA_ERROR_MODULE, "is compressed; build it with");
}

/* Reads all that there is; the sanitizers say if it reads too much. */
static int read_all(const unsigned char *bytes, size_t nbytes) {
  char processors[32];
  oa_bytes object, metadata, list;
  oa_hsaco_kernel found;
  uint64_t left = UINT64_MAX, offset, size = 1;
  int count = 0;
  oa_image_check("damaged", bytes, nbytes, 0);
  oa_hsaco_targets(bytes, nbytes, processors, sizeof processors);
  if (!oa_hsaco_find(bytes, nbytes, "gfx90a:xnack-", &object) || !oa_hsaco_metadata(object, &metadata)) return 0;
  oa_hsaco_find_kernel(metadata, "vadd", &found);
  if (!oa_hsaco_kernels(metadata, &list)) return 0;
  while (oa_hsaco_next(&list, &left, &found))
    for (int i = 0; i < 9 && oa_hsaco_parameter(&found, i, &offset, &size) && size; i++) count++;
  return count;
}

static void damaged_files_are_read_within_their_bytes(void) {
  enum { TIMES = 60000 };
  const writer images[] = {hsaco("amdgcn-amd-amdhsa--gfx90a"), bundle()};
  static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0x8f, 0x9f, 0xc4, 0xdd, 0xdf, 0xff};
  int whole = 0;
  srand(12);
  for (int i = 0; i < TIMES; i++) {
    const writer *image = &images[i % 2];
    const size_t nbytes = i % 5 ? image->nbytes : (size_t)rand() % image->nbytes;
    unsigned char *bytes = malloc(nbytes + !nbytes); /* of its own size, so that a sanitizer knows its end */
    if (!CHECK(bytes)) return;
    memcpy(bytes, image->bytes, nbytes);
    for (int k = rand() % 4; k >= 0 && nbytes; k--) {
      const size_t at = (size_t)rand() % nbytes, most = nbytes - at, length = (size_t)(1 << rand() % 4);
      memset(bytes + at, rand() % 2 ? values[(size_t)rand() % sizeof values] : rand(), length < most ? length : most);
    }
    whole += read_all(bytes, nbytes) > 0;
    free(bytes);
  }
  CHECK(whole > TIMES / 20 && whole < TIMES);
}

int main(void) {
  what_was_written_is_read();
  a_bundle_has_an_entry_for_each_processor();
  code_suits_a_device_if_its_features_are_the_devices();
  damaged_files_are_read_within_their_bytes();
  return failures();
}
