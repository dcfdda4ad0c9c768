/* Reads the facts of an HSACO. The reader reads the whole file, so it also refuses faults in parts that the check for a
 * device does not read. */
#define _GNU_SOURCE /* memmem */
#include "kernel/hsaco.h"
#include "kernel/image.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail_damaged(const char *name, const oa_hsaco_kernel *kernel) {
  if (!kernel->name.nbytes) return oa_fail(OA_ERROR_MODULE, "%s: the HSACO is damaged: %s", name, kernel->fault);
  return oa_fail(OA_ERROR_MODULE, "%s: the HSACO is damaged: kernel %.*s: %s", name, (int)kernel->name.nbytes,
                 (const char *)kernel->name.at, kernel->fault);
}

static int read_kernel(const char *name, oa_hsaco_kernel *kernel, const oa_hsaco_visitor *visitor) {
  oa_hsaco_parameter parameter;
  if (kernel->fault) return fail_damaged(name, kernel);
  char *text = strndup((const char *)kernel->name.at, kernel->name.nbytes);
  if (!text) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory", name);
  int status = visitor->kernel(visitor->context, text, (int64_t)kernel->shared_bytes, (int64_t)kernel->vector_registers,
                               (int64_t)kernel->most_threads);
  free(text);
  while (!status && oa_hsaco_next_parameter(kernel, &parameter))
    status = visitor->parameter(visitor->context, (int64_t)parameter.offset, (int64_t)parameter.nbytes, parameter.kind);
  return status ? status : kernel->fault ? fail_damaged(name, kernel) : OA_OK;
}

/* Refuses a file that is not an HSACO, or has no readable metadata. */
static int fail_metadata(const char *name, oa_bytes object) {
  Elf64_Ehdr header;
  if (object.nbytes < sizeof header || memcmp(object.at, ELFMAG, SELFMAG) != 0)
    return oa_fail(OA_ERROR_MODULE, "%s: needs an HSACO, got bytes of another format", name);
  memcpy(&header, object.at, sizeof header);
  if (header.e_machine != EM_AMDGPU)
    return oa_fail(OA_ERROR_MODULE, "%s: needs an HSACO, got an ELF file for machine %d", name, header.e_machine);
  return oa_fail(OA_ERROR_MODULE,
                 "%s: the HSACO has no metadata, or is damaged; compile it with code object version 3 or newer", name);
}

static int read_object(const char *name, const void *image, oa_bytes object, const oa_hsaco_visitor *visitor) {
  char target[64];
  oa_hsaco_kernel kernel;
  oa_bytes metadata, list;
  uint64_t left = UINT64_MAX;
  if (!oa_hsaco_version(object) || !oa_hsaco_metadata(object, &metadata)) return fail_metadata(name, object);
  if (!oa_hsaco_is_whole(metadata))
    return oa_fail(OA_ERROR_MODULE, "%s: the HSACO is damaged: its metadata is not one map", name);
  oa_hsaco_targets(object.at, object.nbytes, target, sizeof target);
  int status =
      visitor->object(visitor->context, (size_t)(object.at - (const unsigned char *)image), object.nbytes, target);
  if (status || !oa_hsaco_kernels(metadata, &list)) return status;
  while (!status && oa_hsaco_next(&list, &left, &kernel)) status = read_kernel(name, &kernel, visitor);
  return status ? status : kernel.fault ? fail_damaged(name, &kernel) : OA_OK;
}

/* Reads a bundle. The entries of a bundle may not share bytes, so no more bytes are read than the bundle has. */
static int read_bundle(const char *name, const void *image, size_t nbytes, const oa_hsaco_visitor *visitor) {
  oa_bundle_entry entry;
  size_t rest = nbytes;
  int status = OA_OK, count = 0;
  for (uint64_t i = 0; !status && oa_bundle_read(image, nbytes, i, &entry); i++) {
    if (!entry.image.nbytes || !memmem(entry.name.at, entry.name.nbytes, "amdgcn", strlen("amdgcn"))) continue;
    if (entry.image.nbytes > rest)
      return oa_fail(OA_ERROR_MODULE, "%s: the bundle is damaged: its entries are longer than its %zu bytes", name,
                     nbytes);
    rest -= entry.image.nbytes;
    status = read_object(name, image, entry.image, visitor);
    count++;
  }
  return status || count ? status : oa_fail(OA_ERROR_MODULE, "%s: the bundle has no code for AMD GPUs", name);
}

int oa_hsaco_read(const char *name, const void *image, size_t nbytes, const oa_hsaco_visitor *visitor) {
  if (!name || !image || !visitor) return oa_fail_null("oa_hsaco_read", !name ? "name" : image ? "visitor" : "image");
  if (!visitor->object || !visitor->kernel || !visitor->parameter)
    return oa_fail_null("oa_hsaco_read", !visitor->object  ? "visitor->object"
                                         : visitor->kernel ? "visitor->parameter"
                                                           : "visitor->kernel");
  const oa_bytes object = {image, nbytes};
  if (!oa_is_bundle(image, nbytes) && !oa_hsaco_version(object)) return fail_metadata(name, object);
  const int status = oa_image_check(name, image, nbytes, 0);
  if (status) return status;
  return oa_is_bundle(image, nbytes) ? read_bundle(name, image, nbytes, visitor)
                                     : read_object(name, image, object, visitor);
}
