/* Kernels of the program's own: modules, kernels and launches. Include it beside offload_args.h.
 *   oa_module_load(device, "vadd.ptx", image, nbytes, &module);
 *   oa_kernel_get(module, "vadd", parameters, 4, &kernel);
 *   const void *arguments[] = {da, db, dc, &n};
 *   oa_kernel_launch(kernel, &OA_SIZED(oa_launch, .grid = {blocks, 1, 1}, .block = {256, 1, 1}), arguments, 4);
 * A launch is a call like any other: its pointers are checked, missing bytes go up, streams are ordered, and written
 * arrays come down when the region is left. Modules and kernels are handles, as regions are: a stale one is known. */
#ifndef OFFLOAD_ARGS_LAUNCH_H
#define OFFLOAD_ARGS_LAUNCH_H

#include "offload_args/core.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct oa_module oa_module;
typedef struct oa_kernel oa_kernel;

enum { OA_MOST_PARAMETERS = 256, OA_MOST_PARAMETER_BYTES = 32764 };

/* One parameter of a kernel. */
typedef struct oa_parameter {
  const char *name; /* for messages; copied */
  int32_t access; /* of a pointer: OA_READ, OA_OVERWRITE (every element, and none is read), OA_READ_WRITE; 0: a value */
  int32_t dtype;  /* of a pointer: its oa_dtype; OA_ANY: any */
  int32_t nbytes; /* of a value; of a pointer 8 */
  int32_t offset; /* among the kernel's arguments */
} oa_parameter;

/* Facts about a kernel and its device. */
typedef struct oa_kernel_info {
  size_t size;
  int32_t most_grid[3];  /* blocks along each axis, at most */
  int32_t most_block[3]; /* threads of a block along each axis, at most */
  int32_t most_threads;  /* of a block of this kernel */
  int32_t good_threads;  /* of a block: as many as fill the device best */
  int32_t registers;     /* of a thread; -1: not known */
  int32_t multiprocessors;
  int32_t cooperative;        /* 1: blocks that wait for each other can be launched */
  int32_t clusters;           /* 1: clusters of blocks can be launched */
  int64_t fixed_shared_bytes; /* of a block, that the kernel itself declares */
  int64_t most_shared_bytes;  /* of a block, that a launch may ask for */
} oa_kernel_info;

typedef struct oa_launch {
  size_t size;
  uint32_t grid[3];     /* blocks along x, y, z */
  uint32_t block[3];    /* threads of a block along x, y, z */
  uint32_t cluster[3];  /* blocks of a cluster; 0: no clusters */
  int32_t cooperative;  /* 1: all blocks run at the same time */
  int64_t shared_bytes; /* of a block, beside those that the kernel itself declares */
  void *stream;         /* with has_stream: the caller's own, else the region's */
  int64_t has_stream;
  int64_t is_unsafe; /* 1: pointers may be of other dtypes than the parameters, and may overlap */
} oa_launch;

/* Loads a module (PTX, cubin or fatbin on cuda; a shared object on host and sim) from nbytes of memory, which are not
 * needed afterwards. name: for messages. Fails with OA_ERROR_MODULE if it is none, or if the driver refuses it, with
 * the driver's log in the text. */
int oa_module_load(int device, const char *name, const void *image, size_t nbytes, oa_module **module);
/* Waits for the device, and unloads the module. Its kernels are stale then. If a launch of it was captured into a
 * graph, it stays in memory, as the graph may run at any time. */
int oa_module_unload(oa_module *module);
/* Finds a kernel of the module. parameters: count of them, in the kernel's order. OA_ERROR_SIGNATURE if the module says
 * otherwise of their count, offsets or sizes. The kernel lives as long as its module. */
int oa_kernel_get(oa_module *module, const char *name, const oa_parameter *parameters, int count, oa_kernel **kernel);
int oa_kernel_get_info(oa_kernel *kernel, oa_kernel_info *info);
/* Launches the kernel. arguments: for each parameter the pointer itself, such as an `oa_f32 *`, or the address of the
 * value. Every pointer counts as used whole: all elements that it has. With is_unsafe, pointers still have to be live,
 * on the device, and lent for what the kernel does. */
int oa_kernel_launch(oa_kernel *kernel, const oa_launch *launch, const void *const *arguments, int count);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
