/* Public structs that may grow: each begins with the size that its user was compiled with.
 *
 * A new field goes to the end of its struct. When a struct grows for the first time, its size until then is written
 * down here as the first version's. No version ends in padding, as a field that filled it would not change the size. */
#ifndef OA_SIZED_H
#define OA_SIZED_H

#include "base/error.h"
#include "offload_args/launch.h"

#include <string.h>

enum { /* sizes of the first versions */
       OA_FIRST_BACKEND_INFO = sizeof(oa_backend_info),
       OA_FIRST_COUNTERS = sizeof(oa_counters),
       OA_FIRST_DEVICE_INFO = sizeof(oa_device_info),
       OA_FIRST_OBJECT_INFO = sizeof(oa_object_info),
       OA_FIRST_KERNEL_INFO = sizeof(oa_kernel_info),
       OA_FIRST_LAUNCH = offsetof(oa_launch, is_unsafe),
       OA_FIRST_POINTER_INFO = sizeof(oa_pointer_info),
       OA_FIRST_REGION_OPTIONS = sizeof(oa_region_options),
       OA_FIRST_RESIDENCY = sizeof(oa_residency)
};

#define OA_ENDS_WITH(type, last)                                                   \
  _Static_assert(sizeof(type) == offsetof(type, last) + sizeof(((type *)0)->last), \
                 #type " ends in padding, or " #last " is not its last field any more")
OA_ENDS_WITH(oa_backend_info, dlpack_type);
OA_ENDS_WITH(oa_counters, bytes_peer);
OA_ENDS_WITH(oa_device_info, dlpack_type);
OA_ENDS_WITH(oa_object_info, reserved);
OA_ENDS_WITH(oa_kernel_info, most_shared_bytes);
OA_ENDS_WITH(oa_launch, is_unsafe);
OA_ENDS_WITH(oa_pointer_info, reserved);
OA_ENDS_WITH(oa_region_options, reserved);
OA_ENDS_WITH(oa_residency, demoted);

/* Refuses NULL, and a size that no version of the struct had: beyond the known one, less than the first, or none that a
 * struct with a size_t has. */
static inline int oa_sized_check(const char *function, const char *name, const void *given, size_t first,
                                 size_t known) {
  if (!given) return oa_fail(OA_ERROR_ARGUMENT, "%s: %s is NULL", function, name);
  const size_t size = *(const size_t *)given;
  if (__builtin_expect(size >= first && size <= known && size % sizeof size == 0, 1)) return OA_OK;
  return oa_fail(OA_ERROR_ARGUMENT,
                 "%s: %s->size needs to be the size of its struct (at most %zu here), got %zu; make it with OA_SIZED%s",
                 function, name, known, size,
                 size > known ? ", and run the program with the version of offload_args that it was compiled for" : "");
}

/* Copies what a caller gave into today's struct, whose other fields become 0; all of them if it gave NULL. */
static inline int oa_sized_read(const char *function, const char *name, const void *given, void *struct_, size_t first,
                                size_t known) {
  if (!given) {
    memset(struct_, 0, known);
    return OA_OK;
  }
  const int status = oa_sized_check(function, name, given, first, known);
  if (status) return status;
  const size_t size = *(const size_t *)given;
  if (__builtin_expect(size == known, 1)) {
    memcpy(struct_, given, known);
  } else {
    memset(struct_, 0, known);
    memcpy(struct_, given, size);
  }
  return OA_OK;
}

/* Copies today's struct to the caller's, which oa_sized_check let pass: as much as it has room for. */
static inline void oa_sized_write(void *given, const void *struct_) {
  const size_t size = *(size_t *)given;
  memcpy((char *)given + sizeof size, (const char *)struct_ + sizeof size, size - sizeof size);
}

#endif
