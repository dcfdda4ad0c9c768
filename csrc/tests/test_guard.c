/* Guarded arrays: a touch by the host is reported, once for each time that the device became newer. */
#include "one_device.h"
#include "region/mapping.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

enum { N = 1 << 16 };
static float *x;
static volatile sig_atomic_t touches; /* counted while a signal is handled */
static char text[256];

static int report(const oa_guard_touch *touch) {
  touches++;
  snprintf(text, sizeof text, "%s at %s on %s, newer %d", touch->array, touch->place, touch->device, touch->newer);
  return 1;
}

static sem_t reported, lent_again;

/* Writes the text after the region has ended, and another array was lent. */
static int report_late(const oa_guard_touch *touch) {
  sem_post(&reported);
  sem_wait(&lent_again);
  return report(touch);
}

static void before(int number) {
  (void)number;
  _exit(7);
}

static oa_region *lend_as(const char *name, oa_array *array) {
  static const int64_t n = N;
  const char *const names[] = {name};
  const oa_region_options options = OA_SIZED(oa_region_options, .guard = 1, .place = "here", .names = names);
  oa_region *region = NULL;
  *array = vector(x, (int64_t *)&n, OA_BY_USE);
  CHECK_OK(oa_region_enter(device, &options, array, 1, &region));
  return region;
}

static oa_region *lend(oa_array *array) { return lend_as("x", array); }

static int fill(oa_any *pointer, float value) {
  const int64_t n = N, stride = sizeof value;
  return oa_pointer_fill(pointer, &value, 1, &n, &stride);
}

static void a_touch_is_reported_once_and_the_program_goes_on(void) {
  oa_array array;
  oa_region *region = lend(&array);
  volatile float *host = x;
  CHECK(host[N / 2] == 1 && touches == 0);
  CHECK_OK(fill(array.handle, 3));
  CHECK(host[N / 2] == 1 && touches == 1 && strncmp(text, "x at here on ", 13) == 0);
  CHECK(host[N / 3] == 1 && touches == 1);
  CHECK_OK(fill(array.handle, 4));
  host[N / 2] = 9; /* the copy down overwrites this number */
  CHECK(touches == 2);
  CHECK_OK(fill(array.handle, 5));
  CHECK_OK(oa_update_from(&array, -1));
  CHECK(host[N / 2] == 5 && touches == 2);
  CHECK_OK(fill(array.handle, 6));
  leave(region);
  CHECK(host[N / 2] == 6 && touches == 2);
  check_empty();
}

static void do_nothing(void *unused) { (void)unused; }

static int read_on_the_device(const oa_any *pointer) {
  oa_operand operand = {.name = "x", .pointer = pointer, .access = OA_READ, .dtype = OA_F32, .extent = OA_ELEMENTS(N)};
  oa_call call = {.function = "test.read", .operands = &operand, .count = 1};
  const int status = oa_begin(&call);
  return status ? status : oa_submit(&call, do_nothing, NULL, 0);
}

static void a_write_is_reported_while_the_device_only_reads(void) {
  oa_array array;
  oa_region *region = lend(&array);
  volatile float *host = x;
  const int before = touches;
  host[N / 2] = 8; /* the device has no bytes yet */
  CHECK_OK(read_on_the_device(array.handle));
  CHECK(host[N / 2] == 8 && touches == before);
  host[N / 2] = 9;
  CHECK(touches == before + 1 && strstr(text, "newer 0"));
  host[N / 2] = 8;
  CHECK(touches == before + 1);
  leave(region);
  check_empty();
}

static void *read_some(void *values) { return ((volatile float *)values)[N / 2] == 1 ? NULL : values; }

static bool read_on_a_thread(void) {
  pthread_t thread;
  void *other = NULL;
  return !pthread_create(&thread, NULL, read_some, x) && !pthread_join(thread, &other) && !other;
}

static void a_report_names_the_array_that_was_touched_when_its_region_has_ended(void) {
  oa_array array;
  oa_region *region = lend(&array);
  pthread_t thread;
  void *other = x;
  CHECK_OK(fill(array.handle, 1));
  CHECK_OK(oa_guard_set_report(report_late));
  CHECK(!sem_init(&reported, 0, 0) && !sem_init(&lent_again, 0, 0));
  CHECK(!pthread_create(&thread, NULL, read_some, x));
  sem_wait(&reported);
  leave(region);
  region = lend_as("y", &array);
  CHECK_OK(fill(array.handle, 1));
  sem_post(&lent_again); /* the thread then reads y, which is reported, too */
  sem_wait(&reported);
  CHECK(strncmp(text, "x at here on ", 13) == 0);
  sem_post(&lent_again);
  CHECK(!pthread_join(thread, &other) && !other && strncmp(text, "y at here on ", 13) == 0);
  CHECK_OK(oa_guard_set_report(report));
  leave(region);
  check_empty();
}

static atomic_int is_updated;
static void *update(void *array) {
  CHECK_OK(oa_update_from(array, -1));
  atomic_store(&is_updated, 1);
  return NULL;
}

static void an_array_is_lent_again_while_an_update_brings_it_down(void) {
  oa_array first, second, same;
  oa_region *region = lend(&first);
  const int before = touches;
  pthread_t thread;
  CHECK_OK(fill(first.handle, 7));
  same = first;
  CHECK_OK(oa_sim_configure(device, 0, 0, 20000)); /* each copy takes 20 ms */
  CHECK(!pthread_create(&thread, NULL, update, &same));
  for (bool moves = false; !moves && !atomic_load(&is_updated); usleep(100)) {
    oa_lock();
    for (const oa_mapping *m = oa_mappings; m; m = m->next) moves |= m->moving;
    oa_unlock();
  }
  oa_region *inner = lend(&second);
  CHECK(!pthread_join(thread, NULL));
  CHECK_OK(oa_sim_configure(device, 0, 0, 0));
  CHECK(touches == before && x[N / 2] == 7);
  leave(inner);
  leave(region);
  for (int i = 0; i < N; i++) x[i] = 1;
  check_empty();
}

/* Touches a guarded array in a child process. Returns the child's exit status, or its signal as a negative number. */
static int end_by_a_touch(bool handled, bool on_a_thread) {
  const pid_t child = fork();
  if (child == 0) {
    if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
    if (oa_device_open("sim", &device)) _exit(2);
    signal(SIGSEGV, handled ? before : SIG_DFL); /* replaces a sanitizer's own handler */
    oa_array array;
    lend(&array);
    if (fill(array.handle, 3)) _exit(3);
    _exit((on_a_thread ? read_on_a_thread() : x[N / 2] == 1) ? 4 : 5);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

int main(void) {
  x = malloc(N * sizeof *x);
  for (int i = 0; i < N; i++) x[i] = 1;
  for (int on_a_thread = 0; on_a_thread < 2; on_a_thread++) { /* first: a child can't use an open device */
    CHECK(end_by_a_touch(false, on_a_thread) == -SIGSEGV);
    CHECK(end_by_a_touch(true, on_a_thread) == 7);
  }
  CHECK_OK(oa_device_open("sim", &device));
  CHECK_OK(oa_guard_set_report(report));
  a_touch_is_reported_once_and_the_program_goes_on();
  a_write_is_reported_while_the_device_only_reads();
  a_report_names_the_array_that_was_touched_when_its_region_has_ended();
  an_array_is_lent_again_while_an_update_brings_it_down();
  free(x);
  return failures();
}
