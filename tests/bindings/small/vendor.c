/* Three small vendor libraries in one file, each without some features of a library. */
#include <stdint.h>

/* tiny runs on the CPU. It has no handle and no stream, takes numbers by value, and succeeds with 5. */
enum { TINY_FINE = 5, TINY_ZERO = 7 };
const char *tiny_version(void) { return "Tiny 3.1 of the test"; }
void tiny_wipe(int n, float *x) { /* as in the versions that crash */
  (void)n, (void)x;
  __builtin_trap();
}
void tiny_shift(int n, float by, float *x) {
  for (int i = 0; i < n; i++) x[i] += by;
}
int tiny_divide(int n, const double *x, const double *y, double *quotient) {
  for (int i = 0; i < n; i++) {
    if (y[i] == 0) return TINY_ZERO;
    quotient[i] = x[i] / y[i];
  }
  return TINY_FINE;
}
double tiny_sum(int n, const double *x) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += x[i];
  return sum;
}
/* Sets C_i = a A_i for `count` matrices. The columns of all matrices are `ld` elements apart. */
void tiny_scale_batch(int m, int n, double a, const double *A, int ld, int64_t stride_a, double *C, int64_t stride_c,
                      int count) {
  for (int b = 0; b < count; b++)
    for (int j = 0; j < n; j++)
      for (int i = 0; i < m; i++) C[b * stride_c + j * ld + i] = a * A[b * stride_a + j * ld + i];
}

/* lanes has no handle. Its functions take the stream. */
int lanes_negate(int64_t n, float *x, void *stream) {
  if (!stream) return 3;
  for (int64_t i = 0; i < n; i++) x[i] = -x[i];
  return 0;
}

/* held has a handle, for which no stream can be set and which has no pointer mode. */
static int handles;
int held_create(void **handle) {
  *handle = &handles;
  return ++handles > 1; /* one is enough */
}
int held_scale(void *handle, int n, const float *by, float *x) {
  if (handle != &handles) return 4;
  for (int i = 0; i < n; i++) x[i] *= *by;
  return 0;
}
