/* The module of the C tests: kernels of host and sim. */
#include "offload_args/kernel.h"

#include <string.h>

/* Multiplies one element in each thread. */
OA_HOST_KERNEL(scale, OA_POINTER, OA_VALUE(float)) {
  float *x = OA_ARGUMENT(call, 0, float *);
  const float a = OA_ARGUMENT(call, 1, float);
  OA_FOR_THREADS(call, i) x[i] *= a;
}

/* Writes the number of each block, its size and the shared bytes: values[block] = {block, threads, bytes}. Uses all of
 * the shared memory. */
OA_HOST_KERNEL(blocks, OA_POINTER) {
  long long *values = OA_ARGUMENT(call, 0, long long *);
  unsigned char *shared = call->shared;
  for (long long block = call->first; block < call->last; block++) {
    for (long long i = 0; i < call->shared_bytes; i++) shared[i] = (unsigned char)block;
    values[3 * block] = block;
    values[3 * block + 1] = (long long)call->block[0] * call->block[1] * call->block[2];
    values[3 * block + 2] = 0;
    for (long long i = 0; i < call->shared_bytes; i++) values[3 * block + 2] += shared[i] == (unsigned char)block;
  }
}

/* Touches no memory, whatever its grid is. */
OA_HOST_KERNEL(nothing, OA_POINTER, OA_VALUE(double)) { (void)call; }

/* Writes a version to a text and trusts the size of the text, as some libraries do. */
__attribute__((visibility("default"))) int sample_version(char *text, size_t size) {
  memset(text, 0, size);
  memcpy(text, "7.4", size < sizeof "7.4" ? size : sizeof "7.4");
  return 0;
}
