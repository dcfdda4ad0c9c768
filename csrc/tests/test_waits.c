/* Threads that wait for each other's calls: if they would wait for ever, one wait is refused. No other wait is
 * refused. */
#include "region/caller.h"
#include "two_devices.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

enum { LIMIT = 300, /* seconds; then an alarm ends the process */ MOST = 4, N = 4 };

/* An action of a thread that has a call open on an array. */
enum action { UPDATE, FINISH, BEGIN };

typedef struct actor {
  pthread_t thread;
  pthread_barrier_t *all_are_open;
  int access;      /* the access of the thread's open call */
  oa_array *holds; /* the array that the open call holds */
  oa_array *wants;
  oa_region *region; /* the region of the array that the thread wants */
  enum action action;
  int status;
} actor;

static int begin(oa_call *call, oa_operand *p, const oa_array *array, int access) {
  *p = operand(array->handle, access, N, 1);
  *call = (oa_call){.function = "test.call", .operands = p, .count = 1};
  return oa_begin(call);
}

static int act(const actor *a) {
  oa_call call;
  oa_operand p;
  if (a->action == UPDATE) return oa_update_from(a->wants, -1);
  if (a->action == FINISH) return oa_region_finish(a->region, OA_COMMIT, NULL);
  const int status = begin(&call, &p, a->wants, OA_OVERWRITE);
  if (!status) CHECK_OK(oa_end(&call, 0));
  return status;
}

static void *run(void *data) {
  actor *a = data;
  oa_call call;
  oa_operand p;
  CHECK_OK(begin(&call, &p, a->holds, a->access));
  pthread_barrier_wait(a->all_are_open);
  a->status = act(a);
  if (a->status) CHECK_FAILS(a->status, OA_ERROR_ARGUMENT, "a call of this thread is still open and holds");
  CHECK_OK(oa_end(&call, 0));
  return NULL;
}

/* Runs the actors at the same time. Returns how many actors were refused. */
static int refused(actor *actors, int count) {
  pthread_barrier_t barrier;
  int matches = 0;
  CHECK(pthread_barrier_init(&barrier, NULL, (unsigned)count) == 0);
  for (int i = 0; i < count; i++) {
    actors[i].all_are_open = &barrier;
    CHECK(pthread_create(&actors[i].thread, NULL, run, &actors[i]) == 0);
  }
  for (int i = 0; i < count; i++) {
    CHECK(pthread_join(actors[i].thread, NULL) == 0);
    matches += actors[i].status != OA_OK;
  }
  pthread_barrier_destroy(&barrier);
  return matches;
}

/* Each of `count` threads has a call open on a separate array, and waits for the call of the next thread. */
static void of_threads_in_a_circle_one_is_refused(int count, enum action action, bool mixed) {
  float x[MOST][N] = {{0}};
  const int64_t n = N;
  oa_array arrays[MOST];
  oa_region *regions[MOST];
  actor actors[MOST];
  for (int i = 0; i < count; i++) {
    arrays[i] = vector(x[i], &n, OA_OUT);
    regions[i] = enter(device_a, &arrays[i], 1);
    if (action != BEGIN) CHECK_OK(set(arrays[i].handle, n, (float)i));
  }
  for (int i = 0; i < count; i++) {
    const int next = (i + 1) % count;
    actors[i] = (actor){.access = action == BEGIN ? OA_OVERWRITE : OA_READ,
                        .holds = &arrays[i],
                        .wants = &arrays[next],
                        .region = regions[next],
                        .action = mixed && i % 2 ? UPDATE : action};
  }
  CHECK(refused(actors, count) == 1);
  for (int i = 0; i < count; i++) {
    CHECK_OK(oa_region_finish(regions[i], OA_COMMIT, NULL)); /* does nothing if the region is already finished */
    CHECK_OK(oa_region_wait(regions[i]));
    for (int k = 0; k < N && action != BEGIN; k++) CHECK(x[i][k] == (float)i);
  }
  check_empty();
}

/* Both threads have a call open on the pointer for which both wait. */
static void of_two_threads_that_hold_one_pointer_each_is_refused(enum action action) {
  float x[N] = {0};
  const int64_t n = N;
  oa_array array = vector(x, &n, OA_BY_USE);
  oa_region *region = enter(device_a, &array, 1);
  CHECK_OK(set(array.handle, n, 2));
  actor actors[2];
  for (int i = 0; i < 2; i++)
    actors[i] = (actor){.access = OA_READ, .holds = &array, .wants = &array, .region = region, .action = action};
  CHECK(refused(actors, 2) == 2);
  leave(region, OA_COMMIT);
  CHECK(x[3] == 2);
  check_empty();
}

struct update {
  oa_array array;
  int status;
  const char *text;
};
static void *run_update(void *data) {
  struct update *update = data;
  update->status = oa_update_to(&update->array, -1);
  if (update->text) CHECK_FAILS(update->status, OA_ERROR_ARGUMENT, update->text);
  return NULL;
}

static pthread_t start_update(struct update *update) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run_update, update) == 0);
  for (bool begun = false; !begun; usleep(100)) {
    oa_lock();
    for (const oa_mapping *m = oa_mappings; m; m = m->next) begun |= m->seizer != NULL;
    oa_unlock();
  }
  return thread;
}

/* An update takes the array on both devices. This thread has a call open on one device, and leaves the region on the
 * other. */
static void an_update_of_two_devices_is_waited_for_by_no_thread_that_it_waits_for(bool was_finished) {
  float x[N] = {1, 1, 1, 1}, element = -1;
  const int64_t n = N;
  oa_array here = vector(x, &n, OA_IN), there = here;
  struct update update = {.array = here, .text = was_finished ? "a call open" : NULL};
  oa_region *left = enter(device_a, &here, 1), *region = enter(device_b, &there, 1);
  CHECK_OK(peek(here.handle, &element));
  CHECK_OK(peek(there.handle, &element));
  oa_call call;
  oa_operand p;
  CHECK_OK(begin(&call, &p, &there, OA_READ));
  if (was_finished) CHECK_OK(oa_region_finish(left, OA_COMMIT, NULL));
  const pthread_t thread = start_update(&update);
  if (!was_finished)
    CHECK_FAILS(oa_region_finish(left, OA_COMMIT, NULL), OA_ERROR_ARGUMENT,
                "holds argument 1, which another thread waits for; end it first");
  else
    CHECK_OK(oa_region_wait(left)); /* leaving can't be refused any more, so the update is refused */
  CHECK_OK(oa_end(&call, 0));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(!update.status == !was_finished);
  if (!was_finished) leave(left, OA_COMMIT);
  leave(region, OA_COMMIT);
  check_empty();
}

static void *run_finish(void *region) {
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  return NULL;
}

static void a_thread_waits_for_no_region_whose_end_waits_for_its_call(void) {
  float x[N] = {0};
  const int64_t n = N;
  oa_array array = vector(x, &n, OA_BY_USE);
  oa_region *region = enter(device_a, &array, 1);
  oa_call call;
  oa_operand p;
  CHECK_OK(set(array.handle, n, 2));
  CHECK_OK(begin(&call, &p, &array, OA_READ));
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run_finish, region) == 0);
  for (bool waits = false; !waits; usleep(100)) {
    void *stream;
    waits = oa_region_stream(region, &stream) == OA_ERROR_STALE;
  }
  CHECK_FAILS(oa_region_wait(region), OA_ERROR_ARGUMENT, "oa_region_wait: a call of this thread is still open");
  CHECK_OK(oa_end(&call, 0));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(oa_region_wait(region));
  CHECK(x[0] == 2);
  check_empty();
}

static void of_threads_that_wait_for_each_other_one_is_refused(void) {
  alarm(LIMIT);
  for (int count = 2; count <= MOST; count++) {
    of_threads_in_a_circle_one_is_refused(count, UPDATE, false);
    of_threads_in_a_circle_one_is_refused(count, FINISH, false);
    of_threads_in_a_circle_one_is_refused(count, FINISH, true);
    of_threads_in_a_circle_one_is_refused(count, BEGIN, false);
    of_threads_in_a_circle_one_is_refused(count, BEGIN, true);
  }
  of_two_threads_that_hold_one_pointer_each_is_refused(UPDATE);
  of_two_threads_that_hold_one_pointer_each_is_refused(FINISH);
  an_update_of_two_devices_is_waited_for_by_no_thread_that_it_waits_for(false);
  an_update_of_two_devices_is_waited_for_by_no_thread_that_it_waits_for(true);
  a_thread_waits_for_no_region_whose_end_waits_for_its_call();
  alarm(0);
}

/* -- many threads at random -- */

enum { THREADS = 6, ARRAYS = 5, ROUNDS = 200 };

static struct {
  float x[ARRAYS][N];
  oa_array arrays[ARRAYS];
  bool in_order; /* a thread that has a call open waits for later arrays only: there are no circles */
} many;

static void *run_rounds(void *seed) {
  unsigned state = (unsigned)(uintptr_t)seed;
  int refusals = 0;
  for (int i = 0; i < ROUNDS; i++) {
    int held = rand_r(&state) % ARRAYS, wanted = rand_r(&state) % ARRAYS;
    if (many.in_order && held >= wanted) held = wanted = -1;
    oa_call call;
    oa_operand p;
    if (held < 0) continue;
    int status = begin(&call, &p, &many.arrays[held], rand_r(&state) % 2 ? OA_READ : OA_READ_WRITE);
    if (status) continue;
    const actor a = {.wants = &many.arrays[wanted], .action = rand_r(&state) % 2 ? UPDATE : BEGIN};
    if ((status = act(&a))) {
      CHECK_FAILS(status, OA_ERROR_ARGUMENT, "a call of this thread is still open");
      refusals++;
    }
    CHECK_OK(oa_end(&call, 0));
  }
  return (void *)(uintptr_t)refusals;
}

static void threads_that_wait_at_random_all_come_to_an_end(bool in_order) {
  const int64_t n = N;
  oa_region *regions[ARRAYS];
  pthread_t threads[THREADS];
  many.in_order = in_order;
  alarm(3 * LIMIT);
  for (int i = 0; i < ARRAYS; i++) {
    many.arrays[i] = vector(many.x[i], &n, OA_BY_USE);
    regions[i] = enter(device_a, &many.arrays[i], 1);
    CHECK_OK(set(many.arrays[i].handle, n, 1));
  }
  for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, run_rounds, (void *)(i + 1)) == 0);
  int refusals = 0;
  for (int i = 0; i < THREADS; i++) {
    void *of_one;
    CHECK(pthread_join(threads[i], &of_one) == 0);
    refusals += (int)(uintptr_t)of_one;
  }
  CHECK(in_order ? refusals == 0 : refusals > 0);
  for (int i = 0; i < ARRAYS; i++) leave(regions[i], OA_COMMIT);
  alarm(0);
  check_empty();
}

/* -- threads that come and go -- */

static void *run_one_call(void *array) {
  oa_call call;
  oa_operand p;
  CHECK_OK(begin(&call, &p, array, OA_READ));
  CHECK_OK(oa_end(&call, 0));
  return oa_caller_of_thread;
}

static void *run_begin(void *data) {
  void **arguments = data;
  CHECK_OK(begin(arguments[0], arguments[1], arguments[2], OA_READ));
  return NULL;
}

static void threads_that_have_ended_leave_nothing_behind_but_their_open_calls(void) {
  float x[N] = {0};
  const int64_t n = N;
  oa_array array = vector(x, &n, OA_BY_USE);
  oa_region *region = enter(device_a, &array, 1);
  void *first = NULL, *caller;
  pthread_t thread;
  for (int i = 0; i < 8; i++) {
    CHECK(!pthread_create(&thread, NULL, run_one_call, &array) && !pthread_join(thread, &caller));
    if (!i) first = caller;
    CHECK(caller == first);
  }
  oa_call call;
  oa_operand p;
  void *arguments[] = {&call, &p, &array};
  CHECK(!pthread_create(&thread, NULL, run_begin, arguments) && !pthread_join(thread, NULL));
  CHECK(!pthread_create(&thread, NULL, run_one_call, &array) && !pthread_join(thread, &caller));
  CHECK(caller != first);
  CHECK_OK(oa_end(&call, 0)); /* on another thread than the thread that began it */
  leave(region, OA_COMMIT);
  check_empty();
}

int main(void) {
  for (int i = 0; open_pair(i); i++) {
    of_threads_that_wait_for_each_other_one_is_refused();
    threads_that_wait_at_random_all_come_to_an_end(false);
    threads_that_wait_at_random_all_come_to_an_end(true);
    threads_that_have_ended_leave_nothing_behind_but_their_open_calls();
  }
  return failures();
}
