/* Kernels on devices whose calls run on the CPU: functions of shared objects, in the form of offload_args/kernel.h. */
#ifndef OA_SHARED_OBJECT_H
#define OA_SHARED_OBJECT_H

#include "base/error.h"
#include "offload_args/kernel.h"
#include "offload_args/launch.h"

/* Loads a shared object from memory. */
int oa_shared_object_load(const char *name, const void *image, size_t nbytes, void **object);
void oa_shared_object_unload(void *object);
/* Finds a kernel. *table: the number of the kernel's parameters, then the parameters; NULL: the object has no table for
 * the kernel. */
int oa_shared_object_function(void *object, const char *name, oa_kernel_function **function, const unsigned **table);
/* Finds a variable that the object exports. */
int oa_shared_object_variable(void *object, const char *name, uint64_t *address, size_t *nbytes);
/* Fills *info for a kernel of a shared object, except for info->size. */
void oa_shared_object_info(oa_kernel_info *info);

/* A launch that runs later. This struct is copied byte by byte, so no field points into the struct. */
typedef struct oa_shared_object_launch {
  oa_kernel_function *function;
  unsigned grid[3], block[3];
  long long shared_bytes;
  long long written;                   /* bytes of the largest array that the launch writes */
  int count;                           /* number of arguments */
  int32_t offsets[OA_MOST_PARAMETERS]; /* the byte offset of each argument's value */
  _Alignas(16) unsigned char bytes[];
} oa_shared_object_launch;
/* Runs an oa_shared_object_launch, on this thread and on other threads. */
void oa_shared_object_run(void *launch);

#endif
