/* Kernels of devices whose calls run on the CPU: functions of shared objects, as offload_args/kernel.h has them. */
#ifndef OA_SHARED_OBJECT_H
#define OA_SHARED_OBJECT_H

#include "base/error.h"
#include "offload_args/kernel.h"
#include "offload_args/launch.h"

/* Loads a shared object from memory. */
int oa_shared_object_load(const char *name, const void *image, size_t nbytes, void **object);
void oa_shared_object_unload(void *object);
/* Finds a kernel. *table: its parameters, their number first; NULL: the object has none. */
int oa_shared_object_function(void *object, const char *name, oa_kernel_function **function, const unsigned **table);
/* Fills info for such a kernel, but for its size. */
void oa_shared_object_info(oa_kernel_info *info);

/* A launch that runs later; it is copied byte by byte, so no field points into it. */
typedef struct oa_shared_object_launch {
  oa_kernel_function *function;
  unsigned grid[3], block[3];
  long long shared_bytes;
  long long written;                   /* bytes of the largest array that it writes */
  int count;                           /* of arguments */
  int32_t offsets[OA_MOST_PARAMETERS]; /* of each argument's value in bytes */
  _Alignas(16) unsigned char bytes[];
} oa_shared_object_launch;
/* Runs an oa_shared_object_launch, on this and on other threads. */
void oa_shared_object_run(void *launch);

#endif
