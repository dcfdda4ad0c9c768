/* Copies and sgemv with transfers, beside the CUDA runtime's own: median times in microseconds.
 *
 *   transfer copies        one array up and down, by size: the engine, plain cudaMemcpy, and pinned memory
 *   transfer sgemv         y = A x with all three arrays moved, by n: this library and plain C
 *   transfer ways SIZE...  one size by each way of the engine: packed, in chunks of several sizes, on several threads
 *   transfer in-place      sgemv and sgemm on operands copied to the device, and in pinned memory of the host, by n
 *
 * Built against the core's objects, since it reaches for the engine beneath the regions:
 *   cmake -B build/c -DOA_TESTS=ON -DOA_PYTHON=OFF && cmake --build build/c --target core_archive
 *   gcc -O2 -Icsrc -Icsrc/include -Ibuild/c/generated/include benchmarks/transfer.c build/c/libcore_archive.a \
 *     -lcudart -lcublas -lpthread -ldl -lm */
#include "transfer/transfer.h"
#include "base/threads.h"
#include "device/memory.h"
#include "device/staging.h"
#include "device/stream.h"
#include "offload_args_cublas.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_RUNS = 400 };

static oa_device *device;
static int number;
static void *stream;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void must(int status, const char *operation) {
  if (!status) return;
  fprintf(stderr, "%s: %d: %s\n", operation, status, oa_last_error());
  exit(1);
}
#define MUST(call) must((call), #call)

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Returns the median time of runs: as many as take 0.3 s, and at least 5. */
static double median(void (*run)(void *), void *data) {
  static double times[MOST_RUNS];
  int runs = 0;
  for (int i = 0; i < 3; i++) run(data);
  const double start = now();
  while (runs < MOST_RUNS && (runs < 5 || now() - start < 3e5)) {
    const double before = now();
    run(data);
    times[runs++] = now() - before;
  }
  qsort(times, (size_t)runs, sizeof *times, by_value);
  return times[runs / 2];
}

/* -- copies ------------------------------------------------------------------------------------------------------- */

struct copy {
  char *host;
  uint64_t address;
  int64_t nbytes;
  cudaStream_t plain;
};

static oa_move move_of(const struct copy *c) {
  return (oa_move){.host = c->host, .address = c->address, .lines = {0, c->nbytes, c->nbytes, 1}};
}

static void up(void *data) {
  oa_move move = move_of(data);
  MUST(oa_transfer_up(device, stream, &move, 1));
  MUST(device->backend->stream_synchronize(device, stream));
}

static void down(void *data) {
  oa_move move = move_of(data);
  MUST(oa_transfer_down(device, stream, &move, 1));
  MUST(device->backend->stream_synchronize(device, stream));
  MUST(oa_transfer_settle(device, stream, &move, 1));
}

static void plain_up(void *data) {
  const struct copy *c = data;
  MUST((int)cudaMemcpyAsync((void *)c->address, c->host, (size_t)c->nbytes, cudaMemcpyHostToDevice, c->plain));
  MUST((int)cudaStreamSynchronize(c->plain));
}

static void plain_down(void *data) {
  const struct copy *c = data;
  MUST((int)cudaMemcpyAsync(c->host, (void *)c->address, (size_t)c->nbytes, cudaMemcpyDeviceToHost, c->plain));
  MUST((int)cudaStreamSynchronize(c->plain));
}

static void copies(int64_t most) {
  char *host = malloc((size_t)most);
  void *pinned;
  uint64_t address;
  cudaStream_t plain;
  memset(host, 1, (size_t)most);
  MUST((int)cudaStreamCreateWithFlags(&plain, cudaStreamNonBlocking));
  MUST(oa_device_allocate(device, stream, (size_t)most, &address));
  MUST(oa_pinned_allocate(number, (size_t)most, &pinned));
  memset(pinned, 1, (size_t)most);
  printf("copies: bytes, us up (here, plain, pinned), us down (same); GB/s up and down here, pinned\n");
  for (int64_t n = 64; n <= most; n *= n < (1 << 14) ? 16 : 2) {
    struct copy c = {host, address, n, plain}, p = {pinned, address, n, plain};
    double t[6];
    t[0] = median(up, &c), t[1] = median(plain_up, &c), t[2] = median(plain_up, &p);
    t[3] = median(down, &c), t[4] = median(plain_down, &c), t[5] = median(plain_down, &p);
    const double g = (double)n * 1e-3;
    printf("%10lld | %9.1f %9.1f %9.1f | %9.1f %9.1f %9.1f | %5.1f %5.1f  %5.1f %5.1f\n", (long long)n, t[0], t[1],
           t[2], t[3], t[4], t[5], g / t[0], g / t[3], g / t[2], g / t[5]);
  }
  fflush(stdout);
}

static void ways(int64_t n) {
  struct copy c = {malloc((size_t)n), 0, n, NULL};
  memset(c.host, 1, (size_t)n);
  MUST(oa_device_allocate(device, stream, (size_t)n, &c.address));
  const struct oa_tuning usual = oa_tuning;
  printf("ways: %lld bytes, us up/down:", (long long)n);
  oa_tuning.small = n;
  if (n <= OA_SMALL_BYTES) printf(" packed %.1f/%.1f;", median(up, &c), median(down, &c));
  oa_tuning.small = 0;
  const int threads[] = {1, 4, 8, 12};
  for (int64_t chunk = n / 8 < OA_SMALL_BYTES ? OA_SMALL_BYTES : n / 8; chunk <= OA_LARGE_BYTES && chunk <= n;
       chunk *= 2)
    for (int past = 0; past < 2; past++) {
      oa_tuning.chunk_least = oa_tuning.chunk_most = chunk;
      oa_tuning.past_least = 0;
      oa_tuning.past_most = past ? INT64_MAX : -1;
      printf("\n  chunks of %4lld KiB%s:", (long long)(chunk >> 10), past ? ", past the caches" : "");
      for (int t = 0; t < 4; t++) {
        MUST(oa_set_threads(threads[t]));
        printf("  T%d %.1f/%.1f", threads[t], median(up, &c), median(down, &c));
      }
    }
  printf("\n");
  fflush(stdout);
  oa_tuning = usual;
  MUST(oa_set_threads(0));
  MUST(oa_device_free(device, stream, c.address, (size_t)n));
  free(c.host);
}

/* -- sgemv -------------------------------------------------------------------------------------------------------- */

struct product {
  int64_t n;
  float *A, *x, *y;
  cublasHandle_t handle;
  cudaStream_t plain;
};

static void sgemv_here(void *data) {
  const struct product *p = data;
  const int64_t n = p->n, shape[] = {n, n}, strides[] = {4 * n, 4}, step = 4;
  oa_array arrays[] = {
      {.data = p->A, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32, .direction = OA_IN},
      {.data = p->x, .shape = &n, .strides = &step, .ndim = 1, .dtype = OA_F32, .direction = OA_IN},
      {.data = p->y, .shape = &n, .strides = &step, .ndim = 1, .dtype = OA_F32, .direction = OA_OUT}};
  oa_region *region;
  MUST(oa_region_enter(number, NULL, arrays, 3, &region));
  MUST(oa_cublas_sgemv(CUBLAS_OP_T, n, n, 1.0f, (oa_f32 *)arrays[0].handle, n, (oa_f32 *)arrays[1].handle, 1, 0.0f,
                       (oa_f32 *)arrays[2].handle, 1));
  MUST(oa_region_finish(region, OA_COMMIT, NULL));
  MUST(oa_region_wait(region));
}

static void sgemv_plain(void *data) {
  const struct product *p = data;
  const size_t n = (size_t)p->n, matrix = n * n * sizeof(float), vector = n * sizeof(float);
  const float unit = 1, zero = 0;
  float *dA, *dx, *dy;
  MUST((int)cudaMallocAsync((void **)&dA, matrix, p->plain));
  MUST((int)cudaMallocAsync((void **)&dx, vector, p->plain));
  MUST((int)cudaMallocAsync((void **)&dy, vector, p->plain));
  MUST((int)cudaMemcpyAsync(dA, p->A, matrix, cudaMemcpyHostToDevice, p->plain));
  MUST((int)cudaMemcpyAsync(dx, p->x, vector, cudaMemcpyHostToDevice, p->plain));
  MUST((int)cublasSgemv(p->handle, CUBLAS_OP_T, (int)n, (int)n, &unit, dA, (int)n, dx, 1, &zero, dy, 1));
  MUST((int)cudaMemcpyAsync(p->y, dy, vector, cudaMemcpyDeviceToHost, p->plain));
  MUST((int)cudaFreeAsync(dA, p->plain));
  MUST((int)cudaFreeAsync(dx, p->plain));
  MUST((int)cudaFreeAsync(dy, p->plain));
  MUST((int)cudaStreamSynchronize(p->plain));
}

static void sgemv(void) {
  const int64_t sizes[] = {2, 64, 256, 1024, 4096, 16384};
  cudaMemPool_t pool;
  uint64_t keep = UINT64_MAX;
  cudaStream_t plain;
  cublasHandle_t handle;
  MUST((int)cudaDeviceGetDefaultMemPool(&pool, 0));
  MUST((int)cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  MUST((int)cudaStreamCreateWithFlags(&plain, cudaStreamNonBlocking));
  MUST((int)cublasCreate(&handle));
  MUST((int)cublasSetStream(handle, plain));
  printf("sgemv with transfers: n, us here, us plain C, ratio, GB/s here\n");
  float unit[3] = {1, 1, 1};
  struct product warm = {1, unit, unit + 1, unit + 2, handle, plain};
  for (const double until = now() + 5e5; now() < until;) {
    sgemv_here(&warm);
    sgemv_plain(&warm);
  }
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    const int64_t n = sizes[s];
    struct product p = {n, malloc((size_t)(n * n) * 4), malloc((size_t)n * 4), malloc((size_t)n * 4), handle, plain};
    for (int64_t i = 0; i < n * n; i++) p.A[i] = (float)(i % 7);
    for (int64_t i = 0; i < n; i++) p.x[i] = (float)(i % 3);
    const double here = median(sgemv_here, &p), check = p.y[n - 1];
    memset(p.y, 0, (size_t)n * 4);
    const double there = median(sgemv_plain, &p);
    if (p.y[n - 1] != check) printf("results differ: %g %g\n", check, p.y[n - 1]);
    printf("%7lld %11.1f %11.1f  %.2f  %.1f\n", (long long)n, here, there, here / there, (double)(n * n) * 4e-3 / here);
    fflush(stdout);
    free(p.A);
    free(p.x);
    free(p.y);
  }
}

/* -- in place ----------------------------------------------------------------------------------------------------- */

struct small {
  int n, up, down;      /* bytes that go up, and down, which lie after them */
  float *host, *pinned; /* all operands, in the order A, x, y or A, B, C */
  float *there;         /* NULL: the pinned memory is used as it is */
  cublasHandle_t handle;
  cudaStream_t stream;
  int product; /* sgemm */
};

static void by_hand(void *data) {
  const struct small *s = data;
  const float unit = 1, zero = 0;
  const int n = s->n;
  float *A = s->there ? s->there : s->pinned, *x = A + n * n, *y = A + s->up / 4;
  memcpy(s->pinned, s->host, (size_t)s->up);
  if (s->there) MUST((int)cudaMemcpyAsync(s->there, s->pinned, (size_t)s->up, cudaMemcpyHostToDevice, s->stream));
  if (s->product)
    MUST((int)cublasSgemm(s->handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &unit, A, n, x, n, &zero, y, n));
  else
    MUST((int)cublasSgemv(s->handle, CUBLAS_OP_T, n, n, &unit, A, n, x, 1, &zero, y, 1));
  if (s->there)
    MUST((int)cudaMemcpyAsync(s->pinned + s->up / 4, y, (size_t)s->down, cudaMemcpyDeviceToHost, s->stream));
  MUST((int)cudaStreamSynchronize(s->stream));
  memcpy(s->host + s->up / 4, s->pinned + s->up / 4, (size_t)s->down);
}

static void in_place(void) {
  enum { MOST = 512 };
  const size_t bytes = 3 * MOST * MOST * sizeof(float);
  struct small s = {.host = malloc(bytes)};
  float *there;
  MUST((int)cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking));
  MUST((int)cublasCreate(&s.handle));
  MUST((int)cublasSetStream(s.handle, s.stream));
  MUST((int)cudaMallocHost((void **)&s.pinned, bytes));
  MUST((int)cudaMalloc((void **)&there, bytes));
  printf("n: sgemv us copied, in place; sgemm us copied, in place\n");
  for (s.n = 2; s.n <= MOST; s.n *= 2) {
    double t[4];
    for (s.product = 0; s.product < 2; s.product++) {
      const int matrix = s.n * s.n * 4, vector = s.product ? matrix : s.n * 4;
      s.up = matrix + vector;
      s.down = vector;
      for (int i = 0; i < s.up / 4; i++) s.host[i] = (float)(i % 5);
      s.there = there;
      t[2 * s.product] = median(by_hand, &s);
      float *copied = malloc((size_t)s.down);
      memcpy(copied, s.host + s.up / 4, (size_t)s.down);
      memset(s.pinned, 0xff, bytes);
      s.there = NULL;
      t[2 * s.product + 1] = median(by_hand, &s);
      if (memcmp(copied, s.host + s.up / 4, (size_t)s.down)) printf("results differ\n");
      free(copied);
    }
    printf("%5d | %7.1f %7.1f | %7.1f %7.1f\n", s.n, t[0], t[1], t[2], t[3]);
  }
  fflush(stdout);
}

int main(int argc, char **argv) {
  MUST(oa_device_open("cuda:0", &number));
  device = oa_device_of(number);
  MUST(device->backend->stream_create(device, &stream));
  const double start = now();
  printf("%d threads\n", oa_threads_count());
  if (argc > 1 && strcmp(argv[1], "copies") == 0) copies((int64_t)1 << 30);
  if (argc > 1 && strcmp(argv[1], "sgemv") == 0) sgemv();
  if (argc > 1 && strcmp(argv[1], "in-place") == 0) in_place();
  for (int i = 2; i < argc && strcmp(argv[1], "ways") == 0; i++) ways(atoll(argv[i]));
  printf("(%.1f s)\n", (now() - start) * 1e-6);
  return 0;
}
