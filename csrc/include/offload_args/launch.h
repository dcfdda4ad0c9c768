/* A program's own kernels: modules, kernels and launches. Include this header beside offload_args.h.
 *   oa_module_load(device, "vadd.ptx", image, nbytes, &module);
 *   oa_kernel_get(module, "vadd", parameters, 4, &kernel);
 *   const void *arguments[] = {da, db, dc, &n};
 *   oa_kernel_launch(kernel, &OA_SIZED(oa_launch, .grid = {blocks, 1, 1}, .block = {256, 1, 1}), arguments, 4);
 * A launch is a call like any other: its pointers are checked, missing bytes go up, streams are ordered, and written
 * arrays come down when the region is left. Modules and kernels are handles, as regions are: the core refuses a stale
 * handle. */
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
  const char *name; /* for messages; the core copies the name */
  /* of a pointer: OA_READ, OA_OVERWRITE (writes every element, and reads none), OA_READ_WRITE; 0: a value */
  int32_t access;
  int32_t dtype;  /* oa_dtype of a pointer; OA_ANY: any dtype */
  int32_t nbytes; /* bytes of a value; 8 for a pointer */
  int32_t offset; /* byte offset among the kernel's arguments */
} oa_parameter;

/* Facts about a kernel and its device. */
typedef struct oa_kernel_info {
  size_t size;
  int32_t most_grid[3];  /* the most blocks along each axis */
  int32_t most_block[3]; /* the most threads of a block along each axis */
  int32_t most_threads;  /* the most threads of a block of this kernel */
  int32_t good_threads;  /* number of threads of a block that fill the device best */
  int32_t registers;     /* registers of a thread; -1: not known */
  int32_t multiprocessors;
  int32_t cooperative;        /* 1: a launch may have blocks that wait for each other */
  int32_t clusters;           /* 1: a launch may have clusters of blocks */
  int64_t fixed_shared_bytes; /* bytes of a block that the kernel itself declares */
  int64_t most_shared_bytes;  /* the most bytes of a block that a launch may request */
} oa_kernel_info;

typedef struct oa_launch {
  size_t size;
  uint32_t grid[3];     /* blocks along x, y, z */
  uint32_t block[3];    /* threads of a block along x, y, z */
  uint32_t cluster[3];  /* blocks of a cluster; 0: no clusters */
  int32_t cooperative;  /* 1: all blocks run at the same time */
  int64_t shared_bytes; /* a block's bytes, without the bytes that the kernel itself declares */
  void *stream;         /* with has_stream: the caller's own stream; otherwise the call goes to the region's stream */
  int64_t has_stream;
  int64_t is_unsafe; /* 1: pointers may have other dtypes than the parameters, and may overlap */
  int64_t waits;     /* 1: the launch returns after the kernel has run, if kernels of the device run on the CPU */
} oa_launch;

/* Loads a module (PTX, cubin or fatbin on cuda; a shared object on host and sim) from nbytes of memory, which are not
 * needed afterwards. name: for messages. Returns OA_ERROR_MODULE if the image is not a module, or if the driver refuses
 * it; the text then has the driver's log. */
int oa_module_load(int device, const char *name, const void *image, size_t nbytes, oa_module **module);
/* Waits for the device, and unloads the module. The module's kernels are stale afterwards. If a graph captured a launch
 * of one of its kernels, the module stays in memory, because the graph may run at any time. */
int oa_module_unload(oa_module *module);
/* Finds a variable of the module (extern "C"; __device__ or __constant__ on GPUs). *address is the variable's true
 * address on the device, valid until the module is unloaded. To get a pointer, lend this address with OA_BORROWED.
 * OA_ERROR_MODULE: the module has no variable of that name. */
int oa_module_find_variable(oa_module *module, const char *name, uint64_t *address, size_t *nbytes);
/* While the pointer lives, every later launch of the module's kernels counts as reading and writing the pointer's
 * array. So launches wait for other uses of the array, and other uses wait for launches. */
int oa_module_use_variable(oa_module *module, const oa_any *pointer);
/* Finds a kernel of the module. parameters: an array of `count`, in the kernel's order. Returns OA_ERROR_SIGNATURE if
 * the module states another count, offset or size. The kernel lives as long as its module. */
int oa_kernel_get(oa_module *module, const char *name, const oa_parameter *parameters, int count, oa_kernel **kernel);
int oa_kernel_get_info(oa_kernel *kernel, oa_kernel_info *info);
/* Launches the kernel. arguments: for each parameter the pointer itself, such as an `oa_f32 *`, or the address of the
 * value. All elements of every pointer count as used. With is_unsafe, pointers still have to be live, on the device,
 * and lent for the kernel's access. */
int oa_kernel_launch(oa_kernel *kernel, const oa_launch *launch, const void *const *arguments, int count);

/* -- HSACO, read without a device ---------------------------------------------------------------------------------- */

/* The kind of a kernel's parameter, as its module states it. */
enum { OA_STATED_VALUE, OA_STATED_POINTER, OA_NOT_STATED };

/* Receives the facts of an HSACO: an object before its kernels, a kernel before its parameters. Texts are valid until
 * the function returns. If a function returns a number other than 0, oa_hsaco_read ends and returns that number. */
typedef struct oa_hsaco_visitor {
  void *context; /* the first argument of each function */
  /* Receives a code object: nbytes from image + at, for a target such as "gfx90a:xnack-" ("": not stated). */
  int (*object)(void *context, size_t at, size_t nbytes, const char *target);
  /* Receives a kernel: its shared bytes of a block, registers of a thread, and most threads of a block. */
  int (*kernel)(void *context, const char *name, int64_t shared_bytes, int64_t registers, int64_t most_threads);
  /* Receives a parameter, by its offset among the arguments. kind: OA_STATED_VALUE, OA_STATED_POINTER,
   * OA_NOT_STATED. */
  int (*parameter)(void *context, int64_t offset, int64_t nbytes, int kind);
} oa_hsaco_visitor;

/* Reads the facts of the kernels in an HSACO, or in each HSACO of a bundle. name: for messages. Returns OA_ERROR_MODULE
 * if the image is not an HSACO, or is damaged: all of the metadata is read, and each kernel has to state all of these
 * facts. */
int oa_hsaco_read(const char *name, const void *image, size_t nbytes, const oa_hsaco_visitor *visitor);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
