#include "kernel/image.h"
#include "kernel/hsaco.h"

#include <elf.h>
#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
enum { MACHINE = EM_X86_64 };
#elif defined(__aarch64__)
enum { MACHINE = EM_AARCH64 };
#else
enum { MACHINE = EM_NONE };
#endif
enum { FATBIN_MAGIC = (int)0xba55ed50, COMPRESSED_BUNDLE = 0x424f4343 }; /* "CCOB" */

static bool is_inside(uint64_t offset, uint64_t size, size_t nbytes) {
  return offset <= nbytes && size <= nbytes - offset;
}

static int check_elf(const char *name, const unsigned char *image, size_t nbytes, int shared) {
  Elf64_Ehdr header;
  if (nbytes < sizeof header) return oa_fail(OA_ERROR_MODULE, "%s: the ELF file is cut short", name);
  memcpy(&header, image, sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    return oa_fail(OA_ERROR_MODULE, "%s: needs an ELF file of 64 bits, little-endian", name);
  if (shared && (header.e_type != ET_DYN || header.e_machine != MACHINE))
    return oa_fail(OA_ERROR_MODULE,
                   "%s: needs a shared object for this machine's processor; compile it with cc -shared -fPIC", name);
  bool whole = (!header.e_shnum || header.e_shentsize == sizeof(Elf64_Shdr)) &&
               (!header.e_phnum || header.e_phentsize == sizeof(Elf64_Phdr)) &&
               is_inside(header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr), nbytes) &&
               is_inside(header.e_phoff, (uint64_t)header.e_phnum * sizeof(Elf64_Phdr), nbytes);
  for (int i = 0; i < header.e_shnum && whole; i++) {
    Elf64_Shdr section;
    memcpy(&section, image + header.e_shoff + (size_t)i * sizeof section, sizeof section);
    whole = is_inside(section.sh_offset, section.sh_type == SHT_NOBITS ? 0 : section.sh_size, nbytes);
  }
  for (int i = 0; i < header.e_phnum && whole; i++) {
    Elf64_Phdr segment;
    memcpy(&segment, image + header.e_phoff + (size_t)i * sizeof segment, sizeof segment);
    whole = is_inside(segment.p_offset, segment.p_filesz, nbytes);
  }
  if (whole) return OA_OK;
  return oa_fail(OA_ERROR_MODULE, "%s: the ELF file is damaged: a part of it is beyond its %zu bytes", name, nbytes);
}

static int check_fatbin(const char *name, const unsigned char *image, size_t nbytes) {
  uint16_t header_bytes;
  uint64_t rest;
  if (nbytes < 16) return oa_fail(OA_ERROR_MODULE, "%s: the fatbin is cut short", name);
  memcpy(&header_bytes, image + 6, sizeof header_bytes);
  memcpy(&rest, image + 8, sizeof rest);
  if (header_bytes >= 16 && is_inside(header_bytes, rest, nbytes)) return OA_OK;
  return oa_fail(OA_ERROR_MODULE, "%s: the fatbin is cut short: it has %zu bytes, its header says %llu", name, nbytes,
                 (unsigned long long)rest + header_bytes);
}

/* A bundle of HSACOs, each of which is an ELF file. */
static int check_bundle(const char *name, const void *image, size_t nbytes) {
  oa_bundle_entry entry;
  uint64_t count = 0;
  for (; oa_bundle_read(image, nbytes, count, &entry); count++) {
    if (entry.image.nbytes < SELFMAG || memcmp(entry.image.at, ELFMAG, SELFMAG) != 0) continue;
    const int status = check_elf(name, entry.image.at, entry.image.nbytes, 0);
    if (status) return status;
  }
  if (count && count == oa_bundle_count(image, nbytes)) return OA_OK;
  return oa_fail(OA_ERROR_MODULE, "%s: the bundle is damaged: a part of it is beyond its %zu bytes", name, nbytes);
}

int oa_image_check(const char *name, const void *image, size_t nbytes, int shared) {
  uint32_t magic = 0;
  if (nbytes >= sizeof magic) memcpy(&magic, image, sizeof magic);
  if (nbytes >= SELFMAG && memcmp(image, ELFMAG, SELFMAG) == 0) return check_elf(name, image, nbytes, shared);
  if (shared)
    return oa_fail(OA_ERROR_MODULE, "%s: kernels of this device come from a shared object, which this is not", name);
  if (magic == COMPRESSED_BUNDLE)
    return oa_fail(OA_ERROR_MODULE, "%s: the bundle is compressed; build it with --no-offload-compress", name);
  if (magic == (uint32_t)FATBIN_MAGIC) return check_fatbin(name, image, nbytes);
  if (oa_is_bundle(image, nbytes)) return check_bundle(name, image, nbytes);
  const void *end = nbytes ? memchr(image, 0, nbytes) : NULL;
  const size_t text = end ? (size_t)((const char *)end - (const char *)image) : nbytes;
  if (text && (text == nbytes || text == nbytes - 1)) return OA_OK;
  return oa_fail(OA_ERROR_MODULE, "%s: needs PTX, a cubin, a fatbin, an HSACO or a bundle of them, got %s", name,
                 nbytes ? "bytes of another format" : "no bytes");
}
