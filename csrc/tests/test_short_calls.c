/* Short calls of unmodified programs: most of them pass a hook at once, and all of them are counted. */
#include "accelerate/program_call.h"
#include "check.h"

#include <pthread.h>
#include <stdlib.h>

const oa_library *const oa_libraries[] = {NULL};

enum { LEAST_SIZE = 40, SIZES = 200, THREADS = 4, STEPS = 5000, ROWS = 4096, SAMPLED = 17 };

static const oa_hooked routine = {.name = "tests_gemv", .dtype = OA_F64, .number = 1};
static const char *const families[] = {"gemv", NULL};
const oa_hook_table oa_hooks = {.routines = &routine, .count = 1, .families = families};
static double numbers[(LEAST_SIZE + SIZES) * (LEAST_SIZE + SIZES)];

/* Makes a call as a hook does. Returns whether the call passed at once. */
static bool form_passes(int64_t n, int form) {
  const oa_program_operand operands[] = {{"A", numbers, n, n, n, OA_IN, 0, 0},
                                         {"x", numbers, 1, n, 1, OA_IN, 0, 0},
                                         {"y", numbers + n, 1, n, 1, OA_OUT, 0, 0}};
  oa_program_call call = {.routine = &routine, .m = n, .n = n, .form = form, .operations = 2.0 * (double)(n * n)};
  CHECK(!oa_program_try_lapack(&call, false, NULL, NULL, -1, operands, 3));
  oa_program_by_host(&call);
  return !call.noted;
}

static bool passes(int64_t n) { return form_passes(n, 0); }

/* A call on a device is predicted to take 150 us, and the margin makes each call short whose time is known. */
static void start(bool sites) {
  CHECK_OK(oa_accelerate_start(&OA_SIZED(oa_accelerate_options, .margin = 1e6, .price = 1e9, .sites = sites)));
  CHECK_OK(oa_accelerate_clear());
}

static int64_t calls_at(int site) {
  static oa_accelerate_row rows[ROWS];
  int count;
  int64_t small, calls = 0, refused = 0;
  CHECK_OK(oa_accelerate_read(rows, ROWS, &count, &small));
  for (int i = 0; i < count; i++) {
    if (rows[i].site != site) continue;
    calls += rows[i].calls;
    for (int reason = 0; reason < OA_REFUSED_COUNT; reason++) refused += rows[i].refused[reason];
  }
  CHECK(refused == calls);
  return calls;
}

static void most_calls_pass_after_the_first_two(void) {
  int passed = 0;
  start(false);
  for (int i = 0; i < 2 + 10 * SAMPLED; i++) passed += passes(LEAST_SIZE);
  CHECK(passed == 10 * (SAMPLED - 1));
  CHECK(calls_at(OA_SITE_NONE) == 2 + 10 * SAMPLED);
  CHECK(!passes(LEAST_SIZE)); /* a report counts the calls so far */
  for (int i = 0; i < 5; i++) CHECK(passes(LEAST_SIZE));
  CHECK_OK(oa_accelerate_use(-1, NULL));
  CHECK(!passes(LEAST_SIZE)); /* another device may be faster */
  CHECK(passes(LEAST_SIZE));
  CHECK(calls_at(OA_SITE_NONE) == 10 + 10 * SAMPLED);
  CHECK_OK(oa_accelerate_stop());
}

/* No time of a call is added to the copies, and the margin is 1. */
static bool passes_with_copies(double bytes_per_second) {
  oa_accelerate_rates rates = OA_SIZED(oa_accelerate_rates);
  bool passed = false;
  CHECK_OK(oa_accelerate_start(&OA_SIZED(oa_accelerate_options, .margin = 1, .price = 1e9)));
  CHECK_OK(oa_accelerate_nominal(&rates));
  rates.call = 0;
  rates.up = rates.down = bytes_per_second;
  CHECK_OK(oa_accelerate_use(-1, &rates));
  for (int i = 0; i < 5; i++) passed = passes(LEAST_SIZE);
  CHECK_OK(oa_accelerate_stop());
  return passed;
}

/* Small arrays are copied for each call. */
static void calls_pass_if_copies_of_small_arrays_take_longer_than_the_cpu(void) {
  CHECK(passes_with_copies(1));
  CHECK(!passes_with_copies(1e15));
}

static void calls_of_many_sizes_are_counted(void) {
  start(false);
  for (int i = 0; i < 40; i++)
    for (int size = 0; size < SIZES; size++) passes(LEAST_SIZE + (size * 7 + i) % SIZES);
  CHECK(calls_at(OA_SITE_NONE) == 40 * SIZES);
  CHECK_OK(oa_accelerate_stop());
}

static void calls_of_another_form_have_times_of_their_own(void) {
  start(false);
  for (int form = 0; form < 2; form++) {
    for (int i = 0; i < 3; i++) CHECK(!form_passes(8, form));
    CHECK(form_passes(8, form));
  }
  CHECK_OK(oa_accelerate_stop());
}

/* -- places -- */

static int line; /* of the call under way */

static int find(void) { return line; }

static void the_lines_of_a_loop_get_their_shares(void) {
  CHECK_OK(oa_accelerate_set_finder(find));
  start(true);
  for (int i = 0; i < 2 * STEPS; i++) {
    line = 5 + i % 2;
    passes(LEAST_SIZE);
  }
  CHECK(calls_at(5) + calls_at(6) == 2 * STEPS);
  CHECK(llabs(calls_at(5) - STEPS) <= STEPS / 50);
  CHECK_OK(oa_accelerate_stop());
  CHECK_OK(oa_accelerate_set_finder(NULL));
}

/* -- threads -- */

static atomic_bool ending;

static void *work(void *data) {
  for (int i = 0; i < STEPS; i++) passes(LEAST_SIZE + i % 3);
  return data;
}

static void *read_reports(void *data) {
  int64_t before = 0;
  while (!atomic_load(&ending)) {
    const int64_t calls = calls_at(OA_SITE_NONE);
    CHECK(calls >= before);
    before = calls;
  }
  return data;
}

static void calls_of_threads_are_counted(void) {
  pthread_t threads[THREADS], reader;
  start(false);
  pthread_create(&reader, NULL, read_reports, NULL);
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  atomic_store(&ending, true);
  pthread_join(reader, NULL);
  CHECK(calls_at(OA_SITE_NONE) == THREADS * STEPS);
  CHECK_OK(oa_accelerate_stop());
}

int main(void) {
  most_calls_pass_after_the_first_two();
  calls_pass_if_copies_of_small_arrays_take_longer_than_the_cpu();
  calls_of_many_sizes_are_counted();
  calls_of_another_form_have_times_of_their_own();
  the_lines_of_a_loop_get_their_shares();
  calls_of_threads_are_counted();
  return failures();
}
