/* The metadata of AMD's code objects: the read facts equal the written facts, and no read goes outside of a damaged
 * file. */
#define _GNU_SOURCE /* memmem */
#include "check.h"
#include "kernel/hsaco.h"
#include "kernel/image.h"

#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
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
  byte(w, 0x94);
  argument(w, 0, 8, "global_buffer");
  argument(w, 8, 4, "by_value");
  argument(w, 16, 4, "hidden_block_count_x");
  argument(w, 24, 8, "hidden_global_offset_x");
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
  writer metadata = {.nbytes = 0}, file = {.nbytes = 0};
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
  put(&file, &header, sizeof header);
  put(&file, note, sizeof note);
  put(&file, "AMDGPU\0", 8);
  put(&file, metadata.bytes, metadata.nbytes);
  file.nbytes = behind;
  put(&file, &section, sizeof section);
  return file;
}

/* Returns a bundle: an entry for the host, and then an HSACO for each of two processors. */
static writer bundle(void) {
  static const char *const names[] = {"host-x86_64-unknown-linux--", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-",
                                      "hipv4-amdgcn-amd-amdhsa--gfx1100"};
  const writer images[] = {
      {.nbytes = 0}, hsaco("amdgcn-amd-amdhsa--gfx90a:xnack-"), hsaco("amdgcn-amd-amdhsa--gfx1100")};
  writer file = {.nbytes = 0};
  uint64_t at = 512;
  put(&file, "__CLANG_OFFLOAD_BUNDLE__", 24);
  put(&file, &(uint64_t){3}, 8);
  for (int i = 0; i < 3; i++) {
    const uint64_t row[] = {at, images[i].nbytes, strlen(names[i])};
    put(&file, row, sizeof row);
    put(&file, names[i], row[2]);
    memcpy(file.bytes + at, images[i].bytes, images[i].nbytes);
    at += images[i].nbytes;
  }
  file.nbytes = at;
  return file;
}

/* -- tests -------------------------------------------------------------------------------------------------------- */

static void what_was_written_is_read(void) {
  const writer file = hsaco("amdgcn-amd-amdhsa--gfx90a:xnack-");
  char processors[64];
  oa_bytes object, metadata;
  oa_hsaco_kernel facts;
  oa_hsaco_parameter parameter;
  CHECK_OK(oa_image_check("made", file.bytes, file.nbytes, 0));
  CHECK(oa_hsaco_find(file.bytes, file.nbytes, "gfx1100", &object) && object.nbytes == file.nbytes);
  CHECK(oa_hsaco_metadata(object, &metadata));
  CHECK(!oa_hsaco_find_kernel(metadata, "vad", &facts) && !oa_hsaco_find_kernel(metadata, "", &facts));
  CHECK(oa_hsaco_find_kernel(metadata, "a_kernel_with_a_name_of_more_than_31_bytes", &facts) && !facts.uniform_blocks);
  CHECK(oa_hsaco_find_kernel(metadata, "vadd", &facts) && facts.uniform_blocks);
  CHECK(facts.argument_bytes == 272 && facts.shared_bytes == 1000 && facts.most_threads == 256);
  CHECK(facts.vector_registers == 12 && facts.scalar_registers == 20);
  CHECK(oa_hsaco_find_parameter(&facts, 0, &parameter) && parameter.offset == 0 && parameter.nbytes == 8);
  CHECK(parameter.kind == OA_STATED_POINTER);
  CHECK(oa_hsaco_find_parameter(&facts, 1, &parameter) && parameter.offset == 8 && parameter.nbytes == 4);
  CHECK(parameter.kind == OA_STATED_VALUE);
  CHECK(oa_hsaco_find_parameter(&facts, 2, &parameter) && parameter.nbytes == 0); /* hidden parameters do not count */
  oa_hsaco_targets(file.bytes, file.nbytes, processors, sizeof processors);
  CHECK(strcmp(processors, "gfx90a:xnack-") == 0);
  CHECK(oa_hsaco_version((oa_bytes){file.bytes, file.nbytes}) == 2 && !oa_hsaco_version((oa_bytes){file.bytes, 30}));
}

static void a_bundle_has_an_entry_for_each_processor(void) {
  const writer file = bundle();
  char processors[64];
  oa_bytes first, second, none;
  CHECK_OK(oa_image_check("made", file.bytes, file.nbytes, 0));
  CHECK(oa_hsaco_find(file.bytes, file.nbytes, "gfx90a:sramecc+:xnack-", &first));
  CHECK(!oa_hsaco_find(file.bytes, file.nbytes, "gfx90a:sramecc+:xnack+", &none));
  CHECK(!oa_hsaco_find(file.bytes, file.nbytes, "gfx90a", &none));
  CHECK(oa_hsaco_find(file.bytes, file.nbytes, "gfx1100", &second) && second.at > first.at);
  CHECK(!oa_hsaco_find(file.bytes, file.nbytes, "gfx90", &none) && !oa_hsaco_find(file.bytes, file.nbytes, "", &none));
  CHECK(oa_hsaco_metadata(first, &none) && oa_hsaco_metadata(second, &none));
  oa_hsaco_targets(file.bytes, file.nbytes, processors, sizeof processors);
  CHECK(strcmp(processors, "gfx90a:xnack-, gfx1100") == 0);
  CHECK_FAILS(oa_image_check("made", file.bytes, file.nbytes - 1, 0), OA_ERROR_MODULE, "damaged");
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

/* The facts that a visitor received, as one text. */
typedef struct {
  char text[400];
  int stops_at; /* the kernel that ends the reading */
} visits;

static int note(visits *record, const char *format, ...) {
  const size_t length = strlen(record->text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(record->text + length, sizeof record->text - length, format, arguments);
  va_end(arguments);
  return 0;
}

static int note_object(void *context, size_t at, size_t nbytes, const char *target) {
  return note(context, "%s:%s ", target, at + nbytes ? "" : " nothing");
}

static int note_kernel(void *context, const char *name, int64_t shared_bytes, int64_t registers, int64_t most_threads) {
  visits *record = context;
  note(record, "%s %d %d %d ", name, (int)shared_bytes, (int)registers, (int)most_threads);
  return record->stops_at && --record->stops_at == 0 ? 99 : 0;
}

static int note_parameter(void *context, int64_t offset, int64_t nbytes, int kind) {
  static const char *const kinds[] = {"value", "pointer", "either"};
  return note(context, "%d+%d %s ", (int)offset, (int)nbytes, kinds[kind]);
}

static int visit(const void *image, size_t nbytes, visits *record) {
  *record->text = 0;
  return oa_hsaco_read("made", image, nbytes, &(oa_hsaco_visitor){record, note_object, note_kernel, note_parameter});
}

#define TWO_KERNELS                         \
  "vadd 1000 12 256 0+8 pointer 8+4 value " \
  "a_kernel_with_a_name_of_more_than_31_bytes 1000 12 256 0+8 pointer 8+4 value "

static void a_program_receives_what_each_object_states(void) {
  const writer file = hsaco("amdgcn-amd-amdhsa--gfx90a:xnack-"), both = bundle();
  visits record = {"", 0};
  CHECK_OK(visit(file.bytes, file.nbytes, &record));
  CHECK(strcmp(record.text, "gfx90a:xnack-: " TWO_KERNELS) == 0);
  CHECK_OK(visit(both.bytes, both.nbytes, &record));
  CHECK(strcmp(record.text, "gfx90a:xnack-: " TWO_KERNELS "gfx1100: " TWO_KERNELS) == 0);
  record.stops_at = 2;
  CHECK(visit(both.bytes, both.nbytes, &record) == 99 && !strstr(record.text, "gfx1100"));
  CHECK_FAILS(oa_hsaco_read("made", file.bytes, file.nbytes, NULL), OA_ERROR_ARGUMENT, "visitor");
  CHECK_FAILS(visit("\x7f"
                    "ELF",
                    4, &record),
              OA_ERROR_MODULE, "made: needs an HSACO");
}

/* Changes the bytes after a text, which occurs once in the file. */
static writer changed(writer file, const char *text, const char *bytes, size_t nbytes) {
  unsigned char *at = memmem(file.bytes, file.nbytes, text, strlen(text));
  if (CHECK(at)) memcpy(at + strlen(text), bytes, nbytes);
  return file;
}

static void an_hsaco_that_lacks_a_fact_is_refused(void) {
  const writer good = hsaco("amdgcn-amd-amdhsa--gfx90a");
  static const struct {
    const char *text, *bytes;
    size_t nbytes;
    const char *words;
  } cases[] = {
      {".vgpr_count", "\xff", 1, "kernel vadd: its .vgpr_count is not a number up to 2147483648"},
      {".vgpr_count", "\xc0", 1, "kernel vadd: its .vgpr_count is not a number"},
      {".size", "\x00", 1, "kernel vadd: its arguments do not fit each other"},
      {".size", "\x09", 1, "kernel vadd: its arguments do not fit each other"},
      {".offset", "\xc3", 1, "kernel vadd: its arguments do not fit each other"},
      {".value_kin", "g", 1, "kernel vadd: one of its arguments has no kind"},
      {".args", "\x82", 1, "kernel vadd: its .args are not a list"},
      {".args", "\x95", 1, "its metadata is not one map"},
      {".name", "\xa0", 1, "its metadata is not one map"},
      {".name\xa4va", "\0", 1, "a kernel has no name"},
      {"amdhsa.kernels", "\x93", 1, "its metadata is not one map"},
      {"amdhsa.kernels", "\x81", 1, "amdhsa.kernels is not a list"},
      {"AMDGPU", "\0\0\xc1", 3, "its metadata is not one map"},
      {"AMDGP", "P", 1, "has no metadata, or is damaged; compile it"},
  };
  visits record = {"", 0};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const writer file = changed(good, cases[i].text, cases[i].bytes, cases[i].nbytes);
    CHECK_FAILS(visit(file.bytes, file.nbytes, &record), OA_ERROR_MODULE, cases[i].words);
  }
}

static void entries_of_a_bundle_that_share_bytes_are_refused(void) {
  writer file = bundle();
  uint64_t rows[3] = {0};
  visits record = {"", 0};
  const size_t first = 24 + 8 + 24 + strlen("host-x86_64-unknown-linux--");
  const size_t second = first + 24 + strlen("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-");
  memcpy(rows, file.bytes + first, sizeof rows);
  rows[1] = file.nbytes - rows[0]; /* the first entry has the bytes of both entries */
  memcpy(file.bytes + first, rows, 2 * sizeof *rows);
  memcpy(file.bytes + second, rows, 2 * sizeof *rows);
  CHECK_FAILS(visit(file.bytes, file.nbytes, &record), OA_ERROR_MODULE, "its entries are longer than its");
  file = bundle();
  memset(file.bytes + first + 8, 0, 8);
  memset(file.bytes + second + 8, 0, 8);
  CHECK_FAILS(visit(file.bytes, file.nbytes, &record), OA_ERROR_MODULE, "the bundle has no code for AMD GPUs");
}

/* Reads all facts. The sanitizers report a read outside of the bytes. */
static int read_all(const unsigned char *bytes, size_t nbytes) {
  char processors[32];
  oa_bytes object, metadata, list;
  oa_hsaco_kernel facts;
  oa_hsaco_parameter parameter;
  visits record = {"", 0};
  uint64_t left = UINT64_MAX;
  int count = 0;
  visit(bytes, nbytes, &record);
  oa_image_check("damaged", bytes, nbytes, 0);
  oa_hsaco_targets(bytes, nbytes, processors, sizeof processors);
  if (!oa_hsaco_find(bytes, nbytes, "gfx90a:xnack-", &object) || !oa_hsaco_metadata(object, &metadata)) return 0;
  oa_hsaco_find_kernel(metadata, "vadd", &facts);
  if (!oa_hsaco_kernels(metadata, &list)) return 0;
  while (oa_hsaco_next(&list, &left, &facts))
    for (int i = 0; i < 9 && oa_hsaco_find_parameter(&facts, i, &parameter) && parameter.nbytes; i++) count++;
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
    unsigned char *bytes = malloc(nbytes + !nbytes); /* a sanitizer finds reads after its end */
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
  a_program_receives_what_each_object_states();
  an_hsaco_that_lacks_a_fact_is_refused();
  entries_of_a_bundle_that_share_bytes_are_refused();
  damaged_files_are_read_within_their_bytes();
  return failures();
}
