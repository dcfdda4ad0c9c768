/* Bare calls of sgemv, with which call_cost.py compares the package's calls. This file is compiled into a cffi module
 * on the spot. The vendors' libraries are dlopen'ed and have prototypes of our own here, so that no vendor header is
 * needed. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* [cffi begin] */
typedef struct bare_f32 bare_f32;
int bare_open_cblas(const char *path, const char *symbol);
int bare_open_cublas(const char *path); /* device 0, a stream and a handle of its own */
int bare_current(int on);               /* its context is current on this thread, or none is */
int bare_synchronize(void);             /* its stream */
int bare_cblas_sgemv(int order, int trans, int m, int n, float alpha, const bare_f32 *A, int lda, const bare_f32 *x,
                     int incx, float beta, bare_f32 *y, int incy);
int bare_cublas_sgemv(int trans, int m, int n, float alpha, const bare_f32 *A, int lda, const bare_f32 *x, int incx,
                      float beta, bare_f32 *y, int incy);
/* Return the seconds of `count` calls in a loop with m = n = lda, until they are done. */
double bare_cblas_loop(long count, int n, const bare_f32 *A, const bare_f32 *x, bare_f32 *y);
double bare_cublas_loop(long count, int n, const bare_f32 *A, const bare_f32 *x, bare_f32 *y);
/* [cffi end] */

enum { COLUMN_MAJOR = 102, NO_TRANS = 111, OP_N = 0, NON_BLOCKING = 1 };

/* The sizes have 64 bits. A function whose integers have 32 bits reads the low half of each size. */
static void (*cblas_sgemv)(int, int, int64_t, int64_t, float, const void *, int64_t, const void *, int64_t, float,
                           void *, int64_t);
static int (*cublas_sgemv)(void *, int, int, int, const float *, const void *, int, const void *, int, const float *,
                           void *, int);
static int (*set_current)(void *);
static int (*stream_synchronize)(void *);
static void *context, *stream, *handle;

int bare_open_cblas(const char *path, const char *symbol) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library) *(void **)&cblas_sgemv = dlsym(library, symbol);
  return cblas_sgemv == NULL;
}

int bare_open_cublas(const char *path) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!driver || !library) return 1;
  int (*init)(unsigned), (*retain)(void **, int), (*stream_create)(void **, unsigned);
  int (*create)(void **), (*set_stream)(void *, void *);
  *(void **)&init = dlsym(driver, "cuInit");
  *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
  *(void **)&set_current = dlsym(driver, "cuCtxSetCurrent");
  *(void **)&stream_create = dlsym(driver, "cuStreamCreate");
  *(void **)&stream_synchronize = dlsym(driver, "cuStreamSynchronize");
  *(void **)&create = dlsym(library, "cublasCreate_v2");
  *(void **)&set_stream = dlsym(library, "cublasSetStream_v2");
  *(void **)&cublas_sgemv = dlsym(library, "cublasSgemv_v2");
  if (!init || !retain || !set_current || !stream_create || !stream_synchronize || !create || !set_stream ||
      !cublas_sgemv)
    return 1;
  return init(0) || retain(&context, 0) || set_current(context) || stream_create(&stream, NON_BLOCKING) ||
         create(&handle) || set_stream(handle, stream);
}

int bare_current(int on) { return set_current(on ? context : NULL); }

int bare_synchronize(void) { return stream_synchronize(stream); }

int bare_cblas_sgemv(int order, int trans, int m, int n, float alpha, const bare_f32 *A, int lda, const bare_f32 *x,
                     int incx, float beta, bare_f32 *y, int incy) {
  cblas_sgemv(order, trans, m, n, alpha, A, lda, x, incx, beta, y, incy);
  return 0;
}

int bare_cublas_sgemv(int trans, int m, int n, float alpha, const bare_f32 *A, int lda, const bare_f32 *x, int incx,
                      float beta, bare_f32 *y, int incy) {
  return cublas_sgemv(handle, trans, m, n, &alpha, A, lda, x, incx, &beta, y, incy);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bare_cblas_loop(long count, int n, const bare_f32 *A, const bare_f32 *x, bare_f32 *y) {
  const double start = now();
  for (long i = 0; i < count; i++) cblas_sgemv(COLUMN_MAJOR, NO_TRANS, n, n, 1, A, n, x, 1, 0, y, 1);
  return now() - start;
}

double bare_cublas_loop(long count, int n, const bare_f32 *A, const bare_f32 *x, bare_f32 *y) {
  const float one = 1, zero = 0;
  const double start = now();
  for (long i = 0; i < count; i++) cublas_sgemv(handle, OP_N, n, n, &one, A, n, x, 1, &zero, y, 1);
  stream_synchronize(stream);
  return now() - start;
}
