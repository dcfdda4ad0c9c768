// The plain C side of compare.py, without this package: stream-ordered allocations, cudaMemcpyAsync from and to the
// memory as it is, and cuBLAS. Each function does its work `count` times and returns the seconds until all work is
// complete; a negative number is a failure, which plain_error() describes.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cusolverDn.h>
#include <stdio.h>
#include <time.h>

static cudaStream_t stream;
static cublasHandle_t handle;
static char failure[200];

static double now() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#define MUST(call)                                                        \
  do {                                                                    \
    const int status = (int)(call);                                       \
    if (status) {                                                         \
      snprintf(failure, sizeof failure, "%d from %.150s", status, #call); \
      return -1;                                                          \
    }                                                                     \
  } while (0)

static int take(float **p, size_t count) { return (int)cudaMallocAsync((void **)p, count * sizeof(float), stream); }

static int up(float *to, const float *from, size_t count) {
  return (int)cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyHostToDevice, stream);
}

static int down(float *to, const float *from, size_t count) {
  return (int)cudaMemcpyAsync(to, from, count * sizeof(float), cudaMemcpyDeviceToHost, stream);
}

static int drop(float *p) { return (int)cudaFreeAsync(p, stream); }

extern "C" {

const char *plain_error(void) { return failure; }

double plain_open(void) {
  cudaMemPool_t pool;
  unsigned long long keep = ~0ull;
  MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
  MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  MUST(cublasCreate(&handle));
  MUST(cublasSetStream(handle, stream));
  return 0;
}

// y = A x, in C order.
double plain_sgemv(const float *A, const float *x, float *y, long n, int count) {
  const float one = 1, zero = 0;
  const double start = now();
  for (int i = 0; i < count; i++) {
    float *dA, *dx, *dy;
    MUST(take(&dA, n * n));
    MUST(take(&dx, n));
    MUST(take(&dy, n));
    MUST(up(dA, A, n * n));
    MUST(up(dx, x, n));
    MUST(cublasSgemv(handle, CUBLAS_OP_T, n, n, &one, dA, n, dx, 1, &zero, dy, 1));
    MUST(down(y, dy, n));
    MUST(drop(dA));
    MUST(drop(dx));
    MUST(drop(dy));
    MUST(cudaStreamSynchronize(stream));
  }
  return now() - start;
}

// C = A B, in C order: C^T = B^T A^T.
double plain_sgemm(const float *A, const float *B, float *C, long n, int count) {
  const float one = 1, zero = 0;
  const double start = now();
  for (int i = 0; i < count; i++) {
    float *dA, *dB, *dC;
    MUST(take(&dA, n * n));
    MUST(take(&dB, n * n));
    MUST(take(&dC, n * n));
    MUST(up(dA, A, n * n));
    MUST(up(dB, B, n * n));
    MUST(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, dB, n, dA, n, &zero, dC, n));
    MUST(down(C, dC, n * n));
    MUST(drop(dA));
    MUST(drop(dB));
    MUST(drop(dC));
    MUST(cudaStreamSynchronize(stream));
  }
  return now() - start;
}

static cublasStatus_t products(const float *A, const float *B, float *C, long n, int batch) {
  const float one = 1, zero = 0;
  return cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, B, n, n * n, A, n, n * n, &zero, C,
                                   n, n * n, batch);
}

// C[i] = A[i] B[i] for a batch of them, in C order.
double plain_batch(const float *A, const float *B, float *C, long n, int batch, int count) {
  const double start = now();
  for (int i = 0; i < count; i++) {
    float *dA, *dB, *dC;
    MUST(take(&dA, n * n * batch));
    MUST(take(&dB, n * n * batch));
    MUST(take(&dC, n * n * batch));
    MUST(up(dA, A, n * n * batch));
    MUST(up(dB, B, n * n * batch));
    MUST(products(dA, dB, dC, n, batch));
    MUST(down(C, dC, n * n * batch));
    MUST(drop(dA));
    MUST(drop(dB));
    MUST(drop(dC));
    MUST(cudaStreamSynchronize(stream));
  }
  return now() - start;
}

// Multiplies arrays that stay on the device: one call each time. The copies are not timed.
double plain_resident_batch(const float *A, const float *B, float *C, long n, int batch, int count) {
  float *dA, *dB, *dC;
  MUST(take(&dA, n * n * batch));
  MUST(take(&dB, n * n * batch));
  MUST(take(&dC, n * n * batch));
  MUST(up(dA, A, n * n * batch));
  MUST(up(dB, B, n * n * batch));
  MUST(products(dA, dB, dC, n, batch));
  MUST(cudaStreamSynchronize(stream));
  const double start = now();
  for (int i = 0; i < count; i++) MUST(products(dA, dB, dC, n, batch));
  MUST(cudaStreamSynchronize(stream));
  const double took = now() - start;
  MUST(down(C, dC, n * n * batch));
  MUST(drop(dA));
  MUST(drop(dB));
  MUST(drop(dC));
  MUST(cudaStreamSynchronize(stream));
  return took;
}

static cublasStatus_t half_product(const void *A, const void *B, void *C, long n) {
  const float one = 1, zero = 0;
  return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, B, CUDA_R_16F, n, A, CUDA_R_16F, n, &zero, C,
                      CUDA_R_16F, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

// C = A B in half precision, in C order, of arrays that stay on the device. The copies are not timed.
double plain_resident_half(const void *A, const void *B, void *C, long n, int count) {
  const size_t bytes = 2 * (size_t)n * n;
  void *dA, *dB, *dC;
  MUST(cudaMallocAsync(&dA, bytes, stream));
  MUST(cudaMallocAsync(&dB, bytes, stream));
  MUST(cudaMallocAsync(&dC, bytes, stream));
  MUST(cudaMemcpyAsync(dA, A, bytes, cudaMemcpyHostToDevice, stream));
  MUST(cudaMemcpyAsync(dB, B, bytes, cudaMemcpyHostToDevice, stream));
  MUST(half_product(dA, dB, dC, n));
  MUST(cudaStreamSynchronize(stream));
  const double start = now();
  for (int i = 0; i < count; i++) MUST(half_product(dA, dB, dC, n));
  MUST(cudaStreamSynchronize(stream));
  const double took = now() - start;
  MUST(cudaMemcpyAsync(C, dC, bytes, cudaMemcpyDeviceToHost, stream));
  MUST(cudaFreeAsync(dA, stream));
  MUST(cudaFreeAsync(dB, stream));
  MUST(cudaFreeAsync(dC, stream));
  MUST(cudaStreamSynchronize(stream));
  return took;
}

// x = A x / |A x|, `steps` times from the same start; the result goes to y.
double plain_power(const float *A, const float *x, float *y, long n, int steps, int count) {
  const float one = 1, zero = 0;
  const double start = now();
  for (int i = 0; i < count; i++) {
    float *dA, *from, *to;
    MUST(take(&dA, n * n));
    MUST(take(&from, n));
    MUST(take(&to, n));
    MUST(up(dA, A, n * n));
    MUST(up(from, x, n));
    for (int step = 0; step < steps; step++) {
      float norm;
      MUST(cublasSgemv(handle, CUBLAS_OP_T, n, n, &one, dA, n, from, 1, &zero, to, 1));
      MUST(cublasSnrm2(handle, n, to, 1, &norm));
      norm = 1 / norm;
      MUST(cublasSscal(handle, n, &norm, to, 1));
      float *swap = from;
      from = to;
      to = swap;
    }
    MUST(down(y, from, n));
    MUST(drop(dA));
    MUST(drop(from));
    MUST(drop(to));
    MUST(cudaStreamSynchronize(stream));
  }
  return now() - start;
}

// A x = b, in C order: the columns of the factored matrix are A's rows, so its transpose is solved.
double plain_solve(const float *A, const float *b, float *x, long n, int count) {
  static cusolverDnHandle_t solver;
  if (!solver) {
    MUST(cusolverDnCreate(&solver));
    MUST(cusolverDnSetStream(solver, stream));
  }
  const double start = now();
  for (int i = 0; i < count; i++) {
    float *dA, *dx, *work;
    int *pivots, *info, size, singular;
    MUST(take(&dA, n * n));
    MUST(take(&dx, n));
    MUST(take((float **)&pivots, n));
    MUST(take((float **)&info, 1));
    MUST(cusolverDnSgetrf_bufferSize(solver, n, n, dA, n, &size));
    MUST(take(&work, size));
    MUST(up(dA, A, n * n));
    MUST(up(dx, b, n));
    MUST(cusolverDnSgetrf(solver, n, n, dA, n, work, pivots, info));
    MUST(cusolverDnSgetrs(solver, CUBLAS_OP_T, n, 1, dA, n, pivots, dx, n, info));
    MUST(down(x, dx, n));
    MUST(cudaMemcpyAsync(&singular, info, sizeof singular, cudaMemcpyDeviceToHost, stream));
    MUST(drop(dA));
    MUST(drop(dx));
    MUST(drop(work));
    MUST(drop((float *)pivots));
    MUST(drop((float *)info));
    MUST(cudaStreamSynchronize(stream));
    MUST(singular);
  }
  return now() - start;
}

// c = a + b + c of small arrays: three go up, one comes down.
double plain_region(const float *a, const float *b, float *c, long n, int count) {
  const float one = 1;
  const double start = now();
  for (int i = 0; i < count; i++) {
    float *da, *db, *dc;
    MUST(take(&da, n));
    MUST(take(&db, n));
    MUST(take(&dc, n));
    MUST(up(da, a, n));
    MUST(up(db, b, n));
    MUST(up(dc, c, n));
    MUST(cublasSaxpy(handle, n, &one, da, 1, dc, 1));
    MUST(cublasSaxpy(handle, n, &one, db, 1, dc, 1));
    MUST(down(c, dc, n));
    MUST(drop(da));
    MUST(drop(db));
    MUST(drop(dc));
    MUST(cudaStreamSynchronize(stream));
  }
  return now() - start;
}

// Returns pinned memory to copy from and to, or NULL if it can't be allocated.
void *plain_pinned(size_t bytes) {
  void *memory = NULL;
  return cudaMallocHost(&memory, bytes) == cudaSuccess ? memory : NULL;
}

// Copies one array up or down. The GPU's memory is allocated already.
double plain_copy(void *host, size_t bytes, int is_down, int count) {
  void *there;
  MUST(cudaMallocAsync(&there, bytes, stream));
  MUST(cudaMemsetAsync(there, 0, bytes, stream));
  MUST(cudaStreamSynchronize(stream));
  const double start = now();
  for (int i = 0; i < count; i++) {
    if (is_down)
      MUST(cudaMemcpyAsync(host, there, bytes, cudaMemcpyDeviceToHost, stream));
    else
      MUST(cudaMemcpyAsync(there, host, bytes, cudaMemcpyHostToDevice, stream));
    MUST(cudaStreamSynchronize(stream));
  }
  const double took = now() - start;
  MUST(cudaFreeAsync(there, stream));
  return took;
}

// Makes the same copies by cudaMemcpy, which waits for each copy.
double plain_memcpy(void *host, size_t bytes, int is_down, int count) {
  void *there;
  MUST(cudaMallocAsync(&there, bytes, stream));
  MUST(cudaMemsetAsync(there, 0, bytes, stream));
  MUST(cudaStreamSynchronize(stream));
  const double start = now();
  for (int i = 0; i < count; i++)
    if (is_down)
      MUST(cudaMemcpy(host, there, bytes, cudaMemcpyDeviceToHost));
    else
      MUST(cudaMemcpy(there, host, bytes, cudaMemcpyHostToDevice));
  const double took = now() - start;
  MUST(cudaFreeAsync(there, stream));
  return took;
}

// Copies one array up or down. The GPU's memory is allocated and freed each time.
double plain_lent(void *host, size_t bytes, int is_down, int count) {
  const double start = now();
  for (int i = 0; i < count; i++) {
    void *there;
    MUST(cudaMallocAsync(&there, bytes, stream));
    if (is_down)
      MUST(cudaMemcpyAsync(host, there, bytes, cudaMemcpyDeviceToHost, stream));
    else
      MUST(cudaMemcpyAsync(there, host, bytes, cudaMemcpyHostToDevice, stream));
    MUST(cudaFreeAsync(there, stream));
    MUST(cudaStreamSynchronize(stream));
  }
  return now() - start;
}
}
