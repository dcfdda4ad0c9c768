/* Kernels in C for `host` and `sim` devices: a shared object that exports a function a kernel, and a table of its
 * parameters.
 *
 *   #include <offload_args/kernel.h>
 *
 *   OA_HOST_KERNEL(scale, OA_POINTER, OA_VALUE(float), OA_VALUE(int)) {
 *     float *x = OA_ARGUMENT(call, 0, float *);
 *     const float a = OA_ARGUMENT(call, 1, float);
 *     const int n = OA_ARGUMENT(call, 2, int);
 *     OA_FOR_THREADS(call, i) if (i < n) x[i] *= a;
 *   }
 *
 * The function runs some blocks of the grid, first to last - 1, numbered along x, then y, then z. Other threads of the
 * program run others at the same time, so blocks may share nothing that they write. */
#ifndef OFFLOAD_ARGS_KERNEL_H
#define OFFLOAD_ARGS_KERNEL_H

typedef struct oa_kernel_call {
  unsigned grid[3], block[3]; /* blocks of the grid, and threads of a block, along x, y, z */
  long long first, last;      /* the blocks to run */
  void *const *arguments;     /* the address of each argument's value */
  void *shared;               /* shared_bytes of memory, for one block after the other; undefined at first */
  long long shared_bytes;
} oa_kernel_call;

typedef void oa_kernel_function(const oa_kernel_call *call);

#ifdef __cplusplus
#define OA_KERNEL_C extern "C"
#else
#define OA_KERNEL_C
#endif
#define OA_KERNEL_EXPORT OA_KERNEL_C __attribute__((visibility("default")))

/* Entries of a table of parameters: the bytes of each, with this bit for a pointer. */
#define OA_IS_POINTER 0x80000000u
#define OA_POINTER (8u | OA_IS_POINTER)
#define OA_VALUE(type) ((unsigned)sizeof(type))

/* Begins a kernel; the arguments after the name are its table of parameters. */
#define OA_HOST_KERNEL(name, ...)                                                                                  \
  OA_KERNEL_C void oa_kernel_##name(const oa_kernel_call *call) __attribute__((visibility("default")));            \
  OA_KERNEL_C const unsigned oa_parameters_##name[] __attribute__((visibility("default")));                        \
  OA_KERNEL_C const unsigned oa_parameters_##name[] = {sizeof((const unsigned[]){__VA_ARGS__}) / sizeof(unsigned), \
                                                       __VA_ARGS__};                                               \
  OA_KERNEL_C void oa_kernel_##name(const oa_kernel_call *call)

#define OA_ARGUMENT(call, number, type) (*(type const *)(call)->arguments[number])

/* Runs what follows for each thread of these blocks, of a grid along x only: i is the thread's number in the grid. */
#define OA_FOR_THREADS(call, i) \
  for (long long i = (call)->first * (long long)(call)->block[0]; i < (call)->last * (long long)(call)->block[0]; i++)

#endif
