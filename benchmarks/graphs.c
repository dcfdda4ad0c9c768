/* Hand-written graphs of chains of cuBLAS calls, with which graphs.py compares the package's graphs. Driver and cuBLAS
 * are dlopen'ed and have prototypes of our own here, so that no header of CUDA is needed. Chain 0 is the small calls,
 * chain 1 the power iteration. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum { NON_BLOCKING = 1, RELAXED = 2, SMALL = 64, SMALL_CALLS = 200, LARGE = 1024, STEPS = 100 };

static int (*begin)(void *, int), (*end)(void *, void **), (*instantiate)(void **, void *, unsigned long long);
static int (*launch)(void *, void *), (*synchronize)(void *);
static int (*gemv)(void *, int, int, int, const double *, const void *, int, const void *, int, const double *, void *,
                   int);
static int (*axpy)(void *, int, const double *, const void *, int, void *, int);
static int (*scal)(void *, int, const double *, void *, int);
static int (*copy)(void *, int, const void *, int, void *, int);
static void *stream, *handle, *A, *x, *y;

/* Opens the first GPU, and loads cuBLAS from that file. Returns 0, or 1. */
int hand_open(const char *cublas) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *blas = dlopen(cublas, RTLD_NOW | RTLD_LOCAL);
  void *context;
  if (!driver || !blas) return 1;
  int (*init)(unsigned), (*retain)(void **, int), (*set)(void *), (*stream_create)(void **, unsigned);
  int (*allocate)(void **, size_t), (*fill)(void *, unsigned char, size_t);
  int (*create)(void **), (*set_stream)(void *, void *);
  *(void **)&init = dlsym(driver, "cuInit");
  *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
  *(void **)&set = dlsym(driver, "cuCtxSetCurrent");
  *(void **)&stream_create = dlsym(driver, "cuStreamCreate");
  *(void **)&allocate = dlsym(driver, "cuMemAlloc_v2");
  *(void **)&fill = dlsym(driver, "cuMemsetD8_v2");
  *(void **)&begin = dlsym(driver, "cuStreamBeginCapture_v2");
  *(void **)&end = dlsym(driver, "cuStreamEndCapture");
  *(void **)&instantiate = dlsym(driver, "cuGraphInstantiateWithFlags");
  *(void **)&launch = dlsym(driver, "cuGraphLaunch");
  *(void **)&synchronize = dlsym(driver, "cuStreamSynchronize");
  *(void **)&create = dlsym(blas, "cublasCreate_v2");
  *(void **)&set_stream = dlsym(blas, "cublasSetStream_v2");
  *(void **)&gemv = dlsym(blas, "cublasDgemv_v2");
  *(void **)&axpy = dlsym(blas, "cublasDaxpy_v2");
  *(void **)&scal = dlsym(blas, "cublasDscal_v2");
  *(void **)&copy = dlsym(blas, "cublasDcopy_v2");
  if (!init || !retain || !set || !stream_create || !allocate || !fill || !begin || !end || !instantiate || !launch ||
      !synchronize || !create || !set_stream || !gemv || !axpy || !scal || !copy)
    return 1;
  if (init(0) || retain(&context, 0) || set(context) || stream_create(&stream, NON_BLOCKING) || create(&handle) ||
      set_stream(handle, stream))
    return 1;
  return allocate(&A, sizeof(double) * LARGE * LARGE) || allocate(&x, sizeof(double) * LARGE) ||
         allocate(&y, sizeof(double) * LARGE) || fill(A, 0, sizeof(double) * LARGE * LARGE) ||
         fill(x, 0, sizeof(double) * LARGE) || fill(y, 0, sizeof(double) * LARGE);
}

/* Makes the calls of a chain. */
static int chain(int number) {
  enum { TRANSPOSED = 1 };
  const double zero = 0, half = 0.5, small = 0.01, more = 1.5;
  int failed = 0;
  for (int i = 0; number == 0 && i < SMALL_CALLS; i++)
    failed |= i % 3 == 0   ? gemv(handle, TRANSPOSED, SMALL, SMALL, &small, A, SMALL, x, 1, &zero, y, 1)
              : i % 3 == 1 ? axpy(handle, SMALL, &half, x, 1, y, 1)
                           : scal(handle, SMALL, &half, y, 1);
  for (int i = 0; number == 1 && i < STEPS; i++)
    failed |= gemv(handle, TRANSPOSED, LARGE, LARGE, &small, A, LARGE, x, 1, &zero, y, 1) ||
              copy(handle, LARGE, y, 1, x, 1) || scal(handle, LARGE, &more, x, 1);
  return failed;
}

/* Captures a chain. Returns the graph that can be launched, or NULL. */
void *hand_capture(int number) {
  void *graph, *instance;
  if (begin(stream, RELAXED)) return NULL;
  const int failed = chain(number);
  if (end(stream, &graph) || failed || instantiate(&instance, graph, 0)) return NULL;
  return instance;
}

/* Returns the seconds of the graph, from its launch until it is done. If `graph` is NULL, returns the seconds of the
 * single calls. */
double hand_seconds(void *graph, int number) {
  struct timespec begun, ended;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  if (graph ? launch(graph, stream) : chain(number)) return -1;
  if (synchronize(stream)) return -1;
  clock_gettime(CLOCK_MONOTONIC, &ended);
  return (double)(ended.tv_sec - begun.tv_sec) + 1e-9 * (double)(ended.tv_nsec - begun.tv_nsec);
}
