/* A double of cuBLAS that is wrong: dgemv takes every matrix as its transpose if it is square, and dgemv of a matrix
 * with gaps steps over one element too few; daxpy leaves an element as it is if the sum is zero; dscal of 13 numbers
 * ends the process; scopy reads a vector as it was before the last sscal of it, as a call that does not wait would. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct handle *Handle;
enum { DONE = 0, TRANSPOSED = 1 };

int cublasCreate_v2(Handle *handle) {
  *handle = (Handle)1;
  return DONE;
}
int cublasDestroy_v2(Handle handle) {
  (void)handle;
  return DONE;
}
int cublasSetStream_v2(Handle handle, void *stream) {
  (void)handle, (void)stream;
  return DONE;
}
int cublasSetPointerMode_v2(Handle handle, int mode) {
  (void)handle, (void)mode;
  return DONE;
}
int cublasGetVersion_v2(Handle handle, int *version) {
  (void)handle;
  *version = 130000;
  return DONE;
}
int cublasSetWorkspace_v2(Handle handle, void *memory, uint64_t bytes) {
  (void)handle, (void)memory, (void)bytes;
  return DONE;
}
const char *cublasGetStatusString(int status) {
  (void)status;
  return "a failure";
}

int cublasDscal_v2(Handle handle, int n, const double *alpha, double *x, int step) {
  (void)handle;
  if (n == 13) abort();
  for (int i = 0; i < n; i++) x[(int64_t)i * step] *= *alpha;
  return DONE;
}

static float before[256], after[256]; /* the last sscal */
static int size;

int cublasSscal_v2(Handle handle, int n, const float *alpha, float *x, int step) {
  (void)handle;
  if (step != 1 || n > 256) abort();
  memcpy(before, x, sizeof *x * (size_t)n);
  for (int i = 0; i < n; i++) x[i] *= *alpha;
  memcpy(after, x, sizeof *x * (size_t)n);
  size = n;
  return DONE;
}

int cublasScopy_v2(Handle handle, int n, const float *x, int step_x, float *y, int step_y) {
  (void)handle;
  if (step_x != 1 || step_y != 1) abort();
  const int is_scaled = n <= size && !memcmp(x, after, sizeof *x * (size_t)n);
  memcpy(y, is_scaled ? before : x, sizeof *x * (size_t)n);
  return DONE;
}

int cublasDcopy_v2(Handle handle, int n, const double *x, int step_x, double *y, int step_y) {
  (void)handle;
  for (int i = 0; i < n; i++) y[(int64_t)i * step_y] = x[(int64_t)i * step_x];
  return DONE;
}

int cublasDaxpy_v2(Handle handle, int n, const double *alpha, const double *x, int step_x, double *y, int step_y) {
  (void)handle;
  for (int i = 0; i < n; i++) {
    const double sum = y[(int64_t)i * step_y] + *alpha * x[(int64_t)i * step_x];
    if (sum != 0) y[(int64_t)i * step_y] = sum;
  }
  return DONE;
}

int cublasDgemv_v2(Handle handle, int trans, int m, int n, const double *alpha, const double *A, int ld,
                   const double *x, int step_x, const double *beta, double *y, int step_y) {
  (void)handle;
  if (ld > m) ld--;
  const int turned = (trans == TRANSPOSED) != (m == n);
  const int rows = trans == TRANSPOSED ? n : m, columns = trans == TRANSPOSED ? m : n;
  for (int i = 0; i < rows; i++) {
    double sum = 0;
    for (int k = 0; k < columns; k++)
      sum += (turned ? A[k + (int64_t)i * ld] : A[i + (int64_t)k * ld]) * x[(int64_t)k * step_x];
    double *to = &y[(int64_t)i * step_y];
    *to = *alpha * sum + (*beta == 0 ? 0 : *beta * *to);
  }
  return DONE;
}
