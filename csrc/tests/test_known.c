/* Arrays of unmodified programs that stay on a device, host and sim, with several threads, while accelerate is started,
 * stopped and given its device again. All numbers are small integers, so that each product is exact. */
#define _GNU_SOURCE
#include "accelerate/program_call.h"
#include "check.h"
#include "region/pages.h"
#include "region/residency.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

enum { N = 160, THREADS = 4, STEPS = 24 };
static const size_t BYTES = (size_t)N * N * sizeof(double);

static int device;
static const oa_hooked routine = {.name = "dgemv", .dtype = OA_F64, .number = 1};

typedef struct product {
  const double *A, *x;
  double *y;
} product;

static void multiply(void *data) {
  const product *p = data;
  for (int i = 0; i < N; i++) p->y[i] = 0;
  for (int j = 0; j < N; j++)
    for (int i = 0; i < N; i++) p->y[i] += p->A[(size_t)j * N + (size_t)i] * p->x[j];
}

static int make(const void *arguments, oa_any *const *pointers) {
  (void)arguments;
  const int64_t square = (int64_t)N * N;
  oa_operand operands[] = {
      {.name = "A", .pointer = pointers[0], .access = OA_READ, .dtype = OA_F64, .extent = OA_ELEMENTS(square)},
      {.name = "x", .pointer = pointers[1], .access = OA_READ, .dtype = OA_F64, .extent = OA_ELEMENTS(N)},
      {.name = "y", .pointer = pointers[2], .access = OA_OVERWRITE, .dtype = OA_F64, .extent = OA_ELEMENTS(N)}};
  oa_call call = {.function = "test.gemv", .operands = operands, .count = 3};
  const int status = oa_begin(&call);
  if (status) return status;
  product p = {operands[0].address, operands[1].address, operands[2].address};
  return oa_submit(&call, multiply, &p, sizeof p);
}

/* As a hook makes a call. Returns whether it went. */
static bool call_once(const double *A, const double *x, double *y) {
  const oa_program_operand operands[] = {{"A", A, N, N, N, OA_IN}, {"x", x, 1, N, 1, OA_IN}, {"y", y, 1, N, 1, OA_OUT}};
  oa_program_call call = {.routine = &routine, .m = N, .n = N, .operations = 2.0 * N * N};
  if (oa_program_try(&call, NULL, make, true, operands, 3)) return true;
  product p = {A, x, y};
  multiply(&p);
  oa_program_by_host(&call);
  return false;
}

/* The product has the bytes that the host has now. */
static bool is_true(const double *A, const double *x) {
  double result[N], right[N];
  product p = {A, x, right};
  multiply(&p);
  call_once(A, x, result);
  return memcmp(result, right, sizeof right) == 0;
}

static double *matrix_new(int seed) {
  double *A = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < N * N; i++) A[i] = (i * 7 + seed) % 11 - 5;
  return A;
}

static void start(void) {
  CHECK_OK(oa_accelerate_start(&OA_SIZED(oa_accelerate_options, .margin = 0, .price = 1)));
  CHECK_OK(oa_accelerate_use(device, NULL));
}

static int64_t bytes_up(void) {
  oa_counters c = OA_SIZED(oa_counters);
  CHECK_OK(oa_device_get_counters(device, &c));
  return c.bytes_up;
}

static int64_t kept(void) {
  oa_residency r = OA_SIZED(oa_residency);
  CHECK_OK(oa_residency_query(device, &r));
  return r.kept;
}

static void an_unchanged_matrix_stays_until_the_end(void) {
  double *A = matrix_new(1), x[N];
  for (int i = 0; i < N; i++) x[i] = i % 5;
  start();
  for (int i = 0; i < 4; i++) CHECK(is_true(A, x));
  const int64_t before = bytes_up();
  CHECK(is_true(A, x));
  CHECK(bytes_up() - before == (oa_pages_work() ? (int64_t)sizeof x : (int64_t)(BYTES + sizeof x)));
  A[N * 9] = 3;
  CHECK(is_true(A, x));
  munmap(A, BYTES);
  CHECK(mmap(A, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == A);
  for (int i = 0; i < 4; i++) CHECK(is_true(A, x));
  munmap(A, BYTES);
  double *B = matrix_new(2); /* what was unmapped is found, and goes */
  for (int i = 0; i < 400; i++) CHECK(is_true(B, x));
  CHECK(kept() == (oa_pages_work() ? 1 : 0));
  CHECK_OK(oa_accelerate_stop());
  CHECK(kept() == 0);
  munmap(B, BYTES);
}

/* -- threads -- */

static double *shared;
static atomic_bool ending;

static void *work(void *data) {
  const int seed = *(const int *)data;
  double x[N];
  for (int i = 0; i < N; i++) x[i] = (i + seed) % 5;
  double *own = matrix_new(seed);
  for (int i = 0; i < STEPS; i++) {
    CHECK(is_true(shared, x));
    CHECK(is_true(own, x));
    if (i % 6 == 5) own[i * 31] = i % 3;
    if (i % 12 == 11) {
      munmap(own, BYTES);
      own = matrix_new(seed + i); /* often where it was */
    }
  }
  munmap(own, BYTES);
  return NULL;
}

static void *disturb(void *data) {
  for (int i = 0; !atomic_load(&ending); i++) {
    if (i % 3) {
      CHECK_OK(oa_accelerate_use(device, NULL));
    } else {
      CHECK_OK(oa_accelerate_stop());
      start();
    }
    usleep(2000);
  }
  return data;
}

static void threads_share_arrays(bool disturbed) {
  pthread_t threads[THREADS], other;
  int seeds[THREADS];
  shared = matrix_new(0);
  start();
  atomic_store(&ending, false);
  if (disturbed) pthread_create(&other, NULL, disturb, NULL);
  for (int i = 0; i < THREADS; i++) {
    seeds[i] = i + 1;
    pthread_create(&threads[i], NULL, work, &seeds[i]);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  atomic_store(&ending, true);
  if (disturbed) pthread_join(other, NULL);
  CHECK_OK(oa_accelerate_stop());
  CHECK(kept() == 0);
  munmap(shared, BYTES);
}

static void on_device(const char *name) {
  CHECK_OK(oa_device_open(name, &device));
  for (int tracking = 0; tracking <= oa_pages_work(); tracking++) {
    CHECK_OK(oa_residency_configure(OA_RESIDENCY_EXPLICIT, tracking));
    an_unchanged_matrix_stays_until_the_end();
    threads_share_arrays(false);
    threads_share_arrays(true);
    oa_pages_allow(1);
  }
  CHECK_OK(oa_residency_configure(OA_RESIDENCY_EXPLICIT, 1));
}

int main(void) {
  if (!oa_pages_work()) fprintf(stderr, "the kernel lets no pages be watched here\n");
  if (!on_doubles()) on_device("host");
  on_device("sim:0");
  return failures();
}
