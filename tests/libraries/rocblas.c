/* A double of rocBLAS, of few functions: before version 4 trmm works in place, and has no 64-bit forms beside it. Build
 * with -DVERSION="4.4.1" or -DVERSION="2.47.0" -DBEFORE_4. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct handle {
  void *stream;
  int mode;
} *handle_t;

int rocblas_create_handle(handle_t *handle) { return (*handle = calloc(1, sizeof **handle)) ? 0 : 5; }
int rocblas_destroy_handle(handle_t handle) {
  free(handle);
  return 0;
}
int rocblas_set_stream(handle_t handle, void *stream) {
  handle->stream = stream;
  return 0;
}
int rocblas_get_stream(handle_t handle, void **stream) {
  *stream = handle->stream;
  return 0;
}
int rocblas_set_pointer_mode(handle_t handle, int mode) {
  handle->mode = mode;
  return 0;
}
int rocblas_get_pointer_mode(handle_t handle, int *mode) {
  *mode = handle->mode;
  return 0;
}
int rocblas_get_version_string(char *text, size_t size) {
  snprintf(text, size, "%s.abcdef01", VERSION);
  return 0;
}

/* degraded: rocBLAS has no memory to work in. queried: a query of the needed memory is under way. */
static int degraded, queried;
int rocblas_start_device_memory_size_query(handle_t handle) {
  queried = handle != NULL;
  return 0;
}
int rocblas_stop_device_memory_size_query(handle_t handle, size_t *size) {
  *size = handle && queried ? 640 : 0;
  queried = 0;
  return 0;
}
int rocblas_set_device_memory_size(handle_t handle, size_t size) {
  degraded = handle && size == 1;
  return 0;
}

/* Memory for the caller's own functions: any number of sizes, each rounded up to 64 bytes. */
struct taken {
  size_t count, offsets[16];
  char *memory;
};
static struct taken *newest;
int rocblas_device_malloc_alloc(handle_t handle, struct taken **taken, size_t count, ...) {
  if (!handle || count > 16) return 11;
  va_list sizes;
  va_start(sizes, count);
  size_t total = 0;
  struct taken *created = newest = calloc(1, sizeof *created);
  for (created->count = 0; created->count < count; created->count++) {
    created->offsets[created->count] = total;
    total += (va_arg(sizes, size_t) + 63) / 64 * 64;
  }
  va_end(sizes);
  created->memory = calloc(1, total + 1);
  *taken = created;
  return 0;
}
_Bool rocblas_device_malloc_success(struct taken *taken) { return taken->memory != NULL; }
int rocblas_device_malloc_get(struct taken *taken, size_t index, void **memory) {
  if (index >= taken->count) return 7;
  *memory = taken->memory + taken->offsets[index];
  return 0;
}
int rocblas_device_malloc_free(struct taken *taken) {
  free(taken->memory);
  free(taken);
  return 0;
}
int rocblas_set_optimal_device_memory_size_impl(handle_t handle, size_t count, ...) {
  va_list sizes;
  va_start(sizes, count);
  size_t last = 0;
  for (size_t i = 0; i < count; i++) last = va_arg(sizes, size_t);
  va_end(sizes);
  return handle && last == 3 ? 0 : 11;
}

int rocblas_sgemv(handle_t handle, int trans, int m, int n, const float *alpha, const float *A, int lda, const float *x,
                  int incx, const float *beta, float *y, int incy) {
  if (trans != 111) return 11;
  if (queried) return 9 + (n == 0);
  for (int i = 0; i < m; i++) {
    float sum = 0;
    for (int j = 0; j < n; j++) sum += A[i + j * lda] * x[j * incx];
    y[i * incy] = *alpha * sum + (*beta == 0 ? 0 : *beta * y[i * incy]);
  }
  if (degraded) return 7;
  return handle->mode;
}
int rocblas_sdot_strided_batched(handle_t handle, int n, const float *x, int incx, int64_t stridex, const float *y,
                                 int incy, int64_t stridey, int count, float *result) {
  if (handle->mode != 1) return 3;
  for (int i = 0; i < count; i++) {
    result[i] = 0;
    for (int j = 0; j < n; j++) result[i] += x[i * stridex + j * incx] * y[i * stridey + j * incy];
  }
  return 0;
}
int rocblas_isamax_strided_batched(handle_t handle, int n, const float *x, int incx, int64_t stridex, int count,
                                   int32_t *result) {
  if (handle->mode != 1) return 3;
  for (int i = 0; i < count; i++) {
    result[i] = 1;
    for (int j = 1; j < n; j++)
      if (x[i * stridex + j * incx] > x[i * stridex + (result[i] - 1) * incx]) result[i] = j + 1;
  }
  return 0;
}

/* B = alpha A B, A a lower triangle, on the left; any other arguments are refused. */
static int multiply(const float *alpha, const float *A, int lda, const float *B, int ldb, float *C, int ldc, int m,
                    int n) {
  for (int j = 0; j < n; j++)
    for (int i = m - 1; i >= 0; i--) {
      float sum = 0;
      for (int k = 0; k <= i; k++) sum += A[i + k * lda] * B[k + j * ldb];
      C[i + j * ldc] = *alpha * sum;
    }
  return 0;
}
#ifdef BEFORE_4
#define TRMM rocblas_strmm_outofplace
int rocblas_strmm(handle_t handle, int side, int uplo, int trans, int diag, int m, int n, const float *alpha,
                  const float *A, int lda, float *B, int ldb) {
  abort(); /* called with the arguments of version 4, it would read and write anywhere */
  return handle && side && uplo && trans && diag && m && n && alpha && A && lda && B && ldb;
}
#else
#define TRMM rocblas_strmm
int rocblas_sscal_64(handle_t handle, int64_t n, const float *alpha, float *x, int64_t incx) {
  return handle && n > INT32_MAX && *alpha == 0 && x && incx == 0 ? 0 : 4;
}
#endif
int TRMM(handle_t handle, int side, int uplo, int trans, int diag, int m, int n, const float *alpha, const float *A,
         int lda, const float *B, int ldb, float *C, int ldc) {
  if (!handle || side != 141 || uplo != 122 || trans != 111 || diag != 131) return 11;
  return multiply(alpha, A, lda, B, ldb, C, ldc, m, n);
}
int rocblas_sscal(handle_t handle, int n, const float *alpha, float *x, int incx) {
  for (int i = 0; i < n; i++) x[i * incx] *= *alpha;
  return handle->mode;
}
