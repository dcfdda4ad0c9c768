/* One call of a host kernel: a part of kernel.h, which includes it. */
#ifndef OFFLOAD_ARGS_KERNEL_CALL_H
#define OFFLOAD_ARGS_KERNEL_CALL_H

/* The part of a launch that one call of the function runs. */
typedef struct oa_kernel_call {
  unsigned grid[3], block[3]; /* blocks of the grid, and threads of a block, along x, y, z */
  long long first, last;      /* the blocks to run */
  void *const *arguments;     /* the address of each argument's value */
  /* shared_bytes of memory, which the blocks use in turn; its contents are undefined at first */
  void *shared;
  long long shared_bytes;
} oa_kernel_call;

/* The type of a host kernel's function, which runs the blocks of a call. */
typedef void oa_kernel_function(const oa_kernel_call *call);

#endif
