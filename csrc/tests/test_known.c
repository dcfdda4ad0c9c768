/* Arrays of unmodified programs that stay on a device (host and sim), also with several threads, while accelerate is
 * started, stopped, and set to its device again. All numbers are small integers, so that each product is exact. */
#define _GNU_SOURCE
#include "accelerate/known.h"
#include "accelerate/program_call.h"
#include "accelerate/record.h"
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
static const oa_hooked routine = {.name = "tests_gemv", .dtype = OA_F64, .number = 1};
static const char *const families[] = {"gemv", NULL};
const oa_hook_table oa_hooks = {.routines = &routine, .count = 1, .families = families};

typedef struct product {
  const double *A, *x;
  double *y;
} product;

BY_RANGE static void multiply(void *data) {
  const product *p = data;
  reads(p, sizeof *p);
  reads(p->A, (int64_t)BYTES);
  reads(p->x, N * sizeof *p->x);
  writes(p->y, N * sizeof *p->y);
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

/* Makes a call as a hook does. Returns whether the call went. */
static bool call_once(const double *A, const double *x, double *y) {
  const oa_program_operand operands[] = {
      {"A", A, N, N, N, OA_IN, 0, 0}, {"x", x, 1, N, 1, OA_IN, 0, 0}, {"y", y, 1, N, 1, OA_OUT, 0, 0}};
  oa_program_call call = {.routine = &routine, .m = N, .n = N, .operations = 2.0 * N * N};
  if (oa_program_try(&call, NULL, make, true, operands, 3)) return true;
  product p = {A, x, y};
  multiply(&p);
  oa_program_by_host(&call);
  return false;
}

/* Returns whether the product is right for the present bytes of the host. */
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
  double *B = matrix_new(2); /* the stay of an unmapped array ends */
  for (int i = 0; i < 400; i++) CHECK(is_true(B, x));
  CHECK(kept() == (oa_pages_work() ? 1 : 0));
  CHECK_OK(oa_accelerate_stop());
  CHECK(kept() == 0);
  munmap(B, BYTES);
}

/* -- several calls with one array -- */

static void see(oa_known *known, const double *A) {
  const oa_array array = {.data = (void *)(uintptr_t)A,
                          .shape = (const int64_t[]){N, N},
                          .strides = (const int64_t[]){sizeof(double), N * sizeof(double)},
                          .name = "A",
                          .ndim = 2,
                          .dtype = OA_F64,
                          .direction = OA_IN};
  oa_known_look(known, &array, 1, device, 1, true);
  oa_known_lock();
  oa_known_see(known);
  oa_known_unlock();
}

/* Returns whether the array of a call that is not cancelled would stay. */
static bool stays(oa_known *known) {
  const bool keep = known->arrays[0].keep;
  oa_known_lock();
  oa_known_cancel(known);
  oa_known_unlock();
  return keep;
}

static void a_call_ends_no_stay_that_another_one_began(void) {
  double *A = matrix_new(3);
  oa_known first, second;
  for (int i = 0; i < 4 && (!i || !first.arrays[0].keep); i++) { /* two calls have to find the array unchanged */
    see(&first, A);
    oa_known_lock();
    oa_known_pay(&first, 1, 0, 0);
    oa_known_unlock();
  }
  CHECK(first.arrays[0].keep && first.arrays[0].began);
  for (int i = 0; i < 3; i++) {
    see(&second, A);
    CHECK(!second.arrays[0].began);
    CHECK(stays(&second));
  }
  see(&second, A);
  oa_known_lock();
  oa_known_end(&second, false, 0); /* a device that fails ends all stays */
  oa_known_unlock();
  see(&second, A);
  CHECK(!second.arrays[0].keep);
  oa_known_lock();
  oa_known_end(&first, true, 0);
  oa_known_clear();
  oa_known_unlock();
  munmap(A, BYTES);
}

enum { PRICE = 10 };

/* Makes calls that would save 1 s each, until the matrix is bought for PRICE. Returns the number of calls. */
static int calls_until_bought(oa_known *known, const double *A) {
  int calls = 0;
  for (bool bought = false; !bought && calls < 2 * PRICE; calls++) {
    see(known, A);
    oa_known_lock();
    bought = oa_known_pay(known, 1, PRICE, 0);
    if (!bought) oa_known_cancel(known);
    oa_known_unlock();
  }
  return calls;
}

static void end_as(oa_known *known, bool well, double saved) {
  oa_known_lock();
  oa_known_end(known, well, saved);
  oa_known_unlock();
}

static void end(oa_known *known, double saved) { end_as(known, true, saved); }

static void forget(double *A) {
  oa_known_lock();
  oa_known_clear();
  oa_known_unlock();
  munmap(A, BYTES);
}

/* The samples of its pages are taken while the price is being paid, and cost no further calls. */
static void a_matrix_is_bought_by_the_call_that_pays_the_rest_of_its_price(void) {
  double *A = matrix_new(4);
  oa_known known;
  CHECK(calls_until_bought(&known, A) == (oa_pages_work() ? PRICE : 2 * PRICE));
  end(&known, 0);
  forget(A);
}

/* A call that fails at once takes less time than the CPU, but the CPU has to make it afterwards. */
static void a_call_that_fails_saves_no_time(void) {
  double *A = matrix_new(6);
  oa_known known;
  if (!oa_pages_work()) return;
  CHECK(calls_until_bought(&known, A) == PRICE);
  end_as(&known, false, PRICE);
  CHECK(calls_until_bought(&known, A) > PRICE + 1);
  end(&known, 2 * PRICE);
  see(&known, A); /* finds the matrix changed */
  CHECK(calls_until_bought(&known, A) <= 4);
  end_as(&known, false, PRICE);
  CHECK(calls_until_bought(&known, A) > PRICE + 1);
  end(&known, 0);
  forget(A);
}

/* The device of this test never gets the matrix, so that each look after a call finds it changed. */
static void a_changed_matrix_is_bought_sooner_if_it_had_saved_time(void) {
  double *A = matrix_new(5);
  oa_known known;
  if (!oa_pages_work()) return;
  CHECK(calls_until_bought(&known, A) == PRICE);
  end(&known, -1);
  CHECK(calls_until_bought(&known, A) > PRICE + 1);
  end(&known, PRICE + 1);
  CHECK(calls_until_bought(&known, A) == 4); /* the first finds the change, and the others the unchanged pages */
  end(&known, PRICE / 2);
  CHECK(calls_until_bought(&known, A) == PRICE / 2 + 1);
  end_as(&known, false, PRICE); /* a call that fails saves no time */
  CHECK(calls_until_bought(&known, A) > PRICE + 1);
  end(&known, 0);
  forget(A);
}

/* -- places -- */

static atomic_bool tells; /* whether the other thread reports the places of calls */

static int find_later(void) { return OA_SITE_LATER; }

static void *answer(void *data) {
  oa_accelerate_asked asked = OA_SIZED(oa_accelerate_asked);
  for (int event = OA_EVENT_NONE; event != OA_EVENT_STOPPED;) {
    CHECK_OK(oa_accelerate_wait(&asked, &event));
    if (event == OA_EVENT_SITE && atomic_load(&tells)) CHECK_OK(oa_accelerate_set_site(asked.serial, 7));
  }
  return data;
}

static void begin_and_end(oa_program_call *call, int planned, double patience) {
  oa_record_lock();
  oa_record_begin(call, true, planned, patience);
  oa_record_end(call, false, 0);
  oa_record_unlock();
}

static void a_call_waits_for_its_place_only_where_a_plan_goes_by_it(void) {
  static const double LONG = 1e6;
  oa_program_call call = {.routine = &routine, .m = 40, .n = 40}, other = {.routine = &routine, .m = 40, .n = 9};
  pthread_t thread;
  CHECK_OK(oa_accelerate_start(&OA_SIZED(oa_accelerate_options, .margin = 0, .price = 1)));
  CHECK_OK(oa_accelerate_set_finder(find_later));
  atomic_store(&tells, false);
  pthread_create(&thread, NULL, answer, NULL);
  begin_and_end(&call, OA_PLAN_ALONE, LONG); /* there is no plan */
  CHECK(call.site == OA_SITE_NONE);
  const oa_accelerate_row plan[] = {
      {.routine = routine.name, .m = 40, .n = 40, .site = 7, .decision = OA_DECIDED_GOES},
      {.routine = routine.name, .m = 40, .n = 9, .site = 7, .decision = OA_DECIDED_STAYS}};
  CHECK_OK(oa_accelerate_plan(plan, 2));
  begin_and_end(&other, OA_PLAN_ALONE, LONG); /* the plan never lets this call go */
  begin_and_end(&call, OA_PLAN_NOTHING, LONG);
  CHECK(other.site == OA_SITE_NONE && call.site == OA_SITE_NONE);
  begin_and_end(&call, OA_PLAN_ALONE, 0.01); /* no thread reports the place */
  CHECK(call.site == OA_SITE_NONE);
  atomic_store(&tells, true);
  begin_and_end(&call, OA_PLAN_ALONE, LONG);
  CHECK(call.site == 7);
  begin_and_end(&other, OA_PLAN_FIRST, LONG); /* the model decides, but the place of the call is needed */
  CHECK(other.site == 7);
  CHECK_OK(oa_accelerate_plan(NULL, 0));
  CHECK_OK(oa_accelerate_stop());
  pthread_join(thread, NULL);
  CHECK_OK(oa_accelerate_set_finder(NULL));
  CHECK_OK(oa_accelerate_clear());
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
      own = matrix_new(seed + i); /* often at the same address */
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
    if (oa_pages_work()) a_call_ends_no_stay_that_another_one_began();
    a_matrix_is_bought_by_the_call_that_pays_the_rest_of_its_price();
    a_call_that_fails_saves_no_time();
    a_changed_matrix_is_bought_sooner_if_it_had_saved_time();
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
  a_call_waits_for_its_place_only_where_a_plan_goes_by_it();
  return failures();
}
