#include "kernel/hsaco.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

static bool is_inside(uint64_t offset, uint64_t size, size_t nbytes) {
  return offset <= nbytes && size <= nbytes - offset;
}

static bool is_text(oa_bytes bytes, const char *text) {
  return bytes.nbytes == strlen(text) && memcmp(bytes.at, text, bytes.nbytes) == 0;
}

static bool begins(oa_bytes bytes, const char *text) {
  return bytes.nbytes >= strlen(text) && memcmp(bytes.at, text, strlen(text)) == 0;
}

/* -- MessagePack -------------------------------------------------------------------------------------------------- */

enum kind { NUMBER, TEXT, LIST, MAP, OTHER };

struct item {
  enum kind kind;
  uint64_t number; /* the value of a number; the number of items of a list or a map */
  oa_bytes text;
};

static uint64_t big_endian(const unsigned char *at, size_t nbytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < nbytes; i++) value = value << 8 | at[i];
  return value;
}

/* The bytes that follow the first byte of an item, if the first byte is 0xc0 to 0xdf: bytes of a number, or of a length
 * and `more` bytes. */
static const struct {
  unsigned char kind, width, more;
} rules[32] = {
    [0x00] = {OTHER, 0, 0},  [0x01] = {OTHER, 0, 0},  [0x02] = {NUMBER, 0, 0}, [0x03] = {NUMBER, 0, 0},
    [0x04] = {TEXT, 1, 0},   [0x05] = {TEXT, 2, 0},   [0x06] = {TEXT, 4, 0},   [0x07] = {TEXT, 1, 1},
    [0x08] = {TEXT, 2, 1},   [0x09] = {TEXT, 4, 1},   [0x0a] = {OTHER, 0, 4},  [0x0b] = {OTHER, 0, 8},
    [0x0c] = {NUMBER, 1, 0}, [0x0d] = {NUMBER, 2, 0}, [0x0e] = {NUMBER, 4, 0}, [0x0f] = {NUMBER, 8, 0},
    [0x10] = {NUMBER, 1, 0}, [0x11] = {NUMBER, 2, 0}, [0x12] = {NUMBER, 4, 0}, [0x13] = {NUMBER, 8, 0},
    [0x14] = {OTHER, 0, 2},  [0x15] = {OTHER, 0, 3},  [0x16] = {OTHER, 0, 5},  [0x17] = {OTHER, 0, 9},
    [0x18] = {OTHER, 0, 17}, [0x19] = {TEXT, 1, 0},   [0x1a] = {TEXT, 2, 0},   [0x1b] = {TEXT, 4, 0},
    [0x1c] = {LIST, 2, 0},   [0x1d] = {LIST, 4, 0},   [0x1e] = {MAP, 2, 0},    [0x1f] = {MAP, 4, 0},
};

static bool take(oa_bytes *from, uint64_t nbytes) {
  if (nbytes > from->nbytes) return false;
  from->at += nbytes;
  from->nbytes -= nbytes;
  return true;
}

/* Reads an item and moves past it; for a list or a map it reads only the header. */
static bool next(oa_bytes *from, struct item *item) {
  if (!from->nbytes) return false;
  const unsigned char first = *from->at;
  if (first == 0xc1) return false; /* no item has this first byte */
  take(from, 1);
  *item = (struct item){OTHER, 0, {NULL, 0}};
  if (first < 0x80 || first >= 0xe0) {
    item->kind = NUMBER;
    /* A negative number is not valid in this metadata, and becomes UINT64_MAX. */
    item->number = first < 0x80 ? first : UINT64_MAX;
    return true;
  }
  uint64_t text_bytes = first & 31;
  if (first < 0xa0) {
    item->kind = first < 0x90 ? MAP : LIST;
    item->number = first & 15;
    return true;
  }
  if (first < 0xc0) {
    item->kind = TEXT;
  } else {
    const unsigned char *at = from->at;
    const size_t width = rules[first - 0xc0].width;
    if (!take(from, width)) return false;
    item->kind = (enum kind)rules[first - 0xc0].kind;
    item->number = first == 0xc3 ? 1 : big_endian(at, width);
    if (first >= 0xd0 && first <= 0xd3 && *at >= 0x80) item->number = UINT64_MAX; /* negative */
    text_bytes = rules[first - 0xc0].more + (item->kind == TEXT ? item->number : 0);
  }
  item->text = (oa_bytes){from->at, text_bytes};
  return take(from, text_bytes);
}

/* Moves after an item and its contents. The loop ends, because each item has at least one byte. */
static bool skip(oa_bytes *from) {
  uint64_t left = 1;
  struct item item;
  for (; left; left--) {
    if (!next(from, &item)) return false;
    if (item.kind != LIST && item.kind != MAP) continue;
    if (item.number > from->nbytes) return false;
    left += item.kind == MAP ? 2 * item.number : item.number;
  }
  return true;
}

/* Finds a key of the map with which the bytes start. *value then starts with the key's value. */
static bool find(oa_bytes map, const char *key, oa_bytes *value) {
  struct item item;
  if (!next(&map, &item) || item.kind != MAP) return false;
  for (uint64_t left = item.number; left; left--) {
    struct item name;
    oa_bytes rest = map;
    if (!next(&rest, &name)) return false;
    if (name.kind == TEXT && is_text(name.text, key)) {
      *value = rest;
      return true;
    }
    if (!skip(&map) || !skip(&map)) return false;
  }
  return false;
}

static bool find_item(oa_bytes map, const char *key, enum kind kind, struct item *item) {
  oa_bytes value;
  return find(map, key, &value) && next(&value, item) && item->kind == kind;
}

/* Returns a number of a map; 0 if there is none. */
static uint64_t number_of(oa_bytes map, const char *key) {
  struct item item;
  return find_item(map, key, NUMBER, &item) ? item.number : 0;
}

/* Returns a number of a map that has to exist, at most 2 GiB. */
static uint64_t need_number(oa_bytes map, const char *key, const char *text, const char **fault) {
  enum { MOST = 1 << 30 };
  struct item item;
  if (find_item(map, key, NUMBER, &item) && item.number <= 2 * (uint64_t)MOST) return item.number;
  *fault = text;
  return 0;
}

/* -- files -------------------------------------------------------------------------------------------------------- */

static const char bundle_magic[] = "__CLANG_OFFLOAD_BUNDLE__";
enum { MAGIC_BYTES = sizeof bundle_magic - 1, ENTRY_BYTES = 24, MOST_ENTRIES = 4096, METADATA_NOTE = 32 };

bool oa_is_bundle(const void *image, size_t nbytes) {
  return nbytes >= MAGIC_BYTES && memcmp(image, bundle_magic, MAGIC_BYTES) == 0;
}

uint64_t oa_bundle_count(const void *image, size_t nbytes) {
  uint64_t count = 0;
  if (oa_is_bundle(image, nbytes) && nbytes >= MAGIC_BYTES + sizeof count)
    memcpy(&count, (const char *)image + MAGIC_BYTES, sizeof count);
  return count;
}

bool oa_bundle_read(const void *image, size_t nbytes, uint64_t number, oa_bundle_entry *entry) {
  const unsigned char *const bytes = image;
  const uint64_t count = oa_bundle_count(image, nbytes);
  uint64_t row[3] = {0}, at = MAGIC_BYTES + sizeof count; /* offset, size, and the bytes of the name, which follows */
  if (number >= count || count > MOST_ENTRIES) return false;
  for (uint64_t i = 0; i <= number; i++) {
    at += row[2];
    if (!is_inside(at, ENTRY_BYTES, nbytes)) return false;
    memcpy(row, bytes + at, sizeof row);
    at += ENTRY_BYTES;
    if (!is_inside(at, row[2], nbytes)) return false;
  }
  if (!is_inside(row[0], row[1], nbytes)) return false;
  *entry = (oa_bundle_entry){{bytes + at, row[2]}, {bytes + row[0], row[1]}};
  return true;
}

/* Returns the target in an entry's name: "gfx90a:xnack+" of "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+". */
static oa_bytes target_of(oa_bytes name) {
  for (size_t i = 0; i + 1 < name.nbytes; i++)
    if (name.at[i] == '-' && name.at[i + 1] == '-') return (oa_bytes){name.at + i + 2, name.nbytes - i - 2};
  return (oa_bytes){name.at, 0};
}

/* Returns the text before the next colon, and moves after the colon. */
static oa_bytes next_word(oa_bytes *text) {
  const unsigned char *const colon = text->nbytes ? memchr(text->at, ':', text->nbytes) : NULL;
  const oa_bytes word = {text->at, colon ? (size_t)(colon - text->at) : text->nbytes};
  take(text, word.nbytes + (colon != NULL));
  return word;
}

bool oa_hsaco_suits(oa_bytes code, const char *device) {
  const oa_bytes all = {(const unsigned char *)device, strlen(device)};
  oa_bytes rest = all;
  const oa_bytes processor = next_word(&rest), own = next_word(&code);
  if (!own.nbytes || own.nbytes != processor.nbytes || memcmp(own.at, processor.at, own.nbytes) != 0) return false;
  while (code.nbytes) {
    const oa_bytes feature = next_word(&code);
    bool has_feature = false;
    for (oa_bytes left = rest; left.nbytes && !has_feature;) {
      const oa_bytes word = next_word(&left);
      has_feature = word.nbytes == feature.nbytes && memcmp(word.at, feature.at, word.nbytes) == 0;
    }
    if (!has_feature) return false;
  }
  return true;
}

int oa_hsaco_version(oa_bytes object) {
  Elf64_Ehdr header;
  if (object.nbytes < sizeof header) return 0;
  memcpy(&header, object.at, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != EM_AMDGPU) return 0;
  return header.e_ident[EI_ABIVERSION] + 2;
}

bool oa_hsaco_find(const void *image, size_t nbytes, const char *target, oa_bytes *object) {
  oa_bundle_entry entry;
  *object = (oa_bytes){image, nbytes};
  if (!oa_is_bundle(image, nbytes)) return true;
  for (uint64_t i = 0; oa_bundle_read(image, nbytes, i, &entry); i++) {
    if (!entry.image.nbytes || !oa_hsaco_suits(target_of(entry.name), target)) continue;
    *object = entry.image;
    return true;
  }
  return false;
}

/* Finds the metadata among the notes of a section. */
static bool find_note(oa_bytes notes, oa_bytes *metadata) {
  uint32_t head[3]; /* the sizes of the owner's name and of the note, then the note's type */
  while (notes.nbytes >= sizeof head) {
    memcpy(head, notes.at, sizeof head);
    take(&notes, sizeof head);
    const oa_bytes owner = {notes.at, head[0]};
    if (!take(&notes, ((uint64_t)head[0] + 3) / 4 * 4) || head[1] > notes.nbytes) return false;
    *metadata = (oa_bytes){notes.at, head[1]};
    if (head[2] == METADATA_NOTE && begins(owner, "AMDGPU")) return true;
    const uint64_t padded = ((uint64_t)head[1] + 3) / 4 * 4;
    take(&notes, padded < notes.nbytes ? padded : notes.nbytes);
  }
  return false;
}

bool oa_hsaco_metadata(oa_bytes object, oa_bytes *metadata) {
  Elf64_Ehdr header;
  Elf64_Shdr section;
  if (object.nbytes < sizeof header) return false;
  memcpy(&header, object.at, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_machine != EM_AMDGPU ||
      header.e_shentsize != sizeof section ||
      !is_inside(header.e_shoff, (uint64_t)header.e_shnum * sizeof section, object.nbytes))
    return false;
  for (int i = 0; i < header.e_shnum; i++) {
    memcpy(&section, object.at + header.e_shoff + (size_t)i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOTE || !is_inside(section.sh_offset, section.sh_size, object.nbytes)) continue;
    if (find_note((oa_bytes){object.at + section.sh_offset, section.sh_size}, metadata)) return true;
  }
  return false;
}

static void append(char *text, size_t size, oa_bytes name) {
  const size_t length = strlen(text);
  if (name.nbytes && name.nbytes < 64)
    snprintf(text + length, size - length, "%s%.*s", length ? ", " : "", (int)name.nbytes, (const char *)name.at);
}

void oa_hsaco_targets(const void *image, size_t nbytes, char *text, size_t size) {
  oa_bundle_entry entry;
  oa_bytes metadata;
  struct item target;
  *text = 0;
  for (uint64_t i = 0; oa_bundle_read(image, nbytes, i, &entry); i++)
    if (entry.image.nbytes) append(text, size, target_of(entry.name));
  if (oa_hsaco_metadata((oa_bytes){image, nbytes}, &metadata) && find_item(metadata, "amdhsa.target", TEXT, &target))
    append(text, size, target_of(target.text));
}

/* -- kernels ------------------------------------------------------------------------------------------------------ */

bool oa_hsaco_is_whole(oa_bytes metadata) {
  struct item item;
  oa_bytes rest = metadata;
  return next(&metadata, &item) && item.kind == MAP && skip(&rest) && !rest.nbytes;
}

bool oa_hsaco_kernels(oa_bytes metadata, oa_bytes *list) { return find(metadata, "amdhsa.kernels", list); }

#define NEED(map, key, fault) need_number(map, key, "its " key " is not a number up to 2147483648", fault)

bool oa_hsaco_next(oa_bytes *list, uint64_t *left, oa_hsaco_kernel *kernel) {
  struct item item;
  *kernel = (oa_hsaco_kernel){.wave = 64};
  if (*left == UINT64_MAX) {
    const bool is_list = next(list, &item) && item.kind == LIST;
    *left = is_list ? item.number : 0;
    if (!is_list) kernel->fault = "amdhsa.kernels is not a list";
  }
  if (!*left) return false;
  const oa_bytes map = *list;
  if (!skip(list) || !find_item(map, ".name", TEXT, &item) || !item.text.nbytes ||
      memchr(item.text.at, 0, item.text.nbytes)) {
    kernel->fault = "a kernel has no name";
    return false;
  }
  --*left;
  kernel->name = item.text;
  kernel->argument_bytes = NEED(map, ".kernarg_segment_size", &kernel->fault);
  kernel->shared_bytes = NEED(map, ".group_segment_fixed_size", &kernel->fault);
  kernel->vector_registers = NEED(map, ".vgpr_count", &kernel->fault);
  kernel->most_threads = NEED(map, ".max_flat_workgroup_size", &kernel->fault);
  kernel->scalar_registers = number_of(map, ".sgpr_count");
  kernel->uniform_blocks = number_of(map, ".uniform_work_group_size") == 1;
  if (find_item(map, ".wavefront_size", NUMBER, &item)) kernel->wave = item.number;
  if (!find(map, ".args", &kernel->arguments)) return true;
  if (!next(&kernel->arguments, &item) || item.kind != LIST)
    kernel->fault = "its .args are not a list";
  else
    kernel->arguments_left = item.number;
  return true;
}

bool oa_hsaco_find_kernel(oa_bytes metadata, const char *name, oa_hsaco_kernel *kernel) {
  oa_bytes list;
  uint64_t left = UINT64_MAX;
  if (!oa_hsaco_kernels(metadata, &list)) return false;
  while (oa_hsaco_next(&list, &left, kernel))
    if (is_text(kernel->name, name)) return true;
  return false;
}

bool oa_hsaco_next_parameter(oa_hsaco_kernel *kernel, oa_hsaco_parameter *parameter) {
  *parameter = (oa_hsaco_parameter){.nbytes = 0};
  for (struct item kind; kernel->arguments_left; kernel->arguments_left--) {
    const oa_bytes map = kernel->arguments;
    if (!skip(&kernel->arguments) || !find_item(map, ".value_kind", TEXT, &kind)) {
      kernel->fault = "one of its arguments has no kind";
      return false;
    }
    if (begins(kind.text, "hidden_")) continue; /* the caller passes no values for the compiler's own parameters */
    const uint64_t offset = NEED(map, ".offset", &kernel->fault), nbytes = NEED(map, ".size", &kernel->fault);
    if (offset < kernel->arguments_end || !nbytes || !is_inside(offset, nbytes, kernel->argument_bytes))
      kernel->fault = "its arguments do not fit each other";
    if (kernel->fault) return false;
    kernel->arguments_left--;
    kernel->arguments_end = offset + nbytes;
    *parameter = (oa_hsaco_parameter){offset, nbytes, OA_NOT_STATED};
    if (is_text(kind.text, "global_buffer") || is_text(kind.text, "dynamic_shared_pointer"))
      parameter->kind = OA_STATED_POINTER;
    else if (nbytes != sizeof(uint64_t)) /* plain C compilers state a pointer as a value of 8 bytes */
      parameter->kind = OA_STATED_VALUE;
    return true;
  }
  return false;
}

bool oa_hsaco_find_parameter(const oa_hsaco_kernel *kernel, int number, oa_hsaco_parameter *parameter) {
  oa_hsaco_kernel rest = *kernel;
  rest.fault = NULL;
  while (oa_hsaco_next_parameter(&rest, parameter))
    if (number-- == 0) return true;
  return !rest.fault;
}
