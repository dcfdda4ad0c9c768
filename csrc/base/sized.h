/* Public structs that may grow. Each begins with its size as the user's compiler computed it.
 *
 * A new field goes to the end of its struct. When a struct grows for the first time, its former size is entered here as
 * the size of the first version. No version ends in padding, because a new field in that padding would not change the
 * size. */
#ifndef OA_SIZED_H
#define OA_SIZED_H

#include "base/error.h"
#include "offload_args/chain.h"
#include "offload_args/launch.h"

#include <string.h>

enum { /* sizes of the first versions */
       OA_FIRST_BACKEND_INFO = sizeof(oa_backend_info),
       OA_FIRST_CHAIN_INFO = sizeof(oa_chain_info),
       OA_FIRST_CHAIN_USE = sizeof(oa_chain_use),
       OA_FIRST_COUNTERS = sizeof(oa_counters),
       OA_FIRST_DEVICE_INFO = sizeof(oa_device_info),
       OA_FIRST_OBJECT_INFO = sizeof(oa_object_info),
       OA_FIRST_KERNEL_INFO = sizeof(oa_kernel_info),
       OA_FIRST_LAUNCH = offsetof(oa_launch, is_unsafe),
       OA_FIRST_POINTER_INFO = offsetof(oa_pointer_info, lacking),
       OA_FIRST_POINTER_LAYOUT = sizeof(oa_pointer_layout),
       OA_FIRST_REGION_OPTIONS = offsetof(oa_region_options, place),
       OA_FIRST_RESIDENCY = sizeof(oa_residency)
};

#define OA_ENDS_WITH(type, last)                                                   \
  _Static_assert(sizeof(type) == offsetof(type, last) + sizeof(((type *)0)->last), \
                 #type " ends in padding, or " #last " is not its last field any more")
OA_ENDS_WITH(oa_backend_info, dlpack_type);
OA_ENDS_WITH(oa_chain_info, nbytes);
OA_ENDS_WITH(oa_chain_use, pointer);
OA_ENDS_WITH(oa_counters, bytes_former);
OA_ENDS_WITH(oa_device_info, coherent);
OA_ENDS_WITH(oa_object_info, reserved);
OA_ENDS_WITH(oa_kernel_info, most_shared_bytes);
OA_ENDS_WITH(oa_launch, waits);
OA_ENDS_WITH(oa_pointer_info, shared);
OA_ENDS_WITH(oa_pointer_layout, inc);
OA_ENDS_WITH(oa_region_options, names);
OA_ENDS_WITH(oa_residency, demoted);

/* Refuses NULL, and a size that no version of the struct had. Such a size is above today's size, below the size of the
 * first version, or a size that no struct with a size_t can have. */
static inline int oa_sized_check(const char *function, const char *name, const void *source, size_t first,
                                 size_t known) {
  if (!source) return oa_fail(OA_ERROR_ARGUMENT, "%s: %s is NULL", function, name);
  const size_t size = *(const size_t *)source;
  if (OA_LIKELY(size >= first && size <= known && size % sizeof size == 0)) return OA_OK;
  return oa_fail(OA_ERROR_ARGUMENT,
                 "%s: %s->size needs to be the size of its struct (at most %zu here), got %zu; make it with OA_SIZED%s",
                 function, name, known, size,
                 size > known ? ", and run the program with the version of offload_args that it was compiled for" : "");
}

/* Copies the caller's struct into today's struct, and sets the fields that the caller's struct lacks to 0. If the
 * caller passed NULL, all fields become 0. */
static inline int oa_sized_read(const char *function, const char *name, const void *source, void *struct_, size_t first,
                                size_t known) {
  if (!source) {
    memset(struct_, 0, known);
    return OA_OK;
  }
  const int status = oa_sized_check(function, name, source, first, known);
  if (status) return status;
  const size_t size = *(const size_t *)source;
  if (OA_LIKELY(size == known)) {
    memcpy(struct_, source, known);
  } else {
    memset(struct_, 0, known);
    memcpy(struct_, source, size);
  }
  return OA_OK;
}

/* Copies today's struct to the caller's struct, up to the end of the caller's struct. oa_sized_check has accepted the
 * size of the caller's struct. */
static inline void oa_sized_write(void *target, const void *struct_) {
  const size_t size = *(size_t *)target;
  memcpy((char *)target + sizeof size, (const char *)struct_ + sizeof size, size - sizeof size);
}

#endif
