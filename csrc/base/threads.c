#include "base/threads.h"

#include "base/runtime.h"
#include "base/settings.h"

#include <limits.h>
#include <time.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* One call of oa_threads_run, on its caller's stack. `mutex` guards all fields. `mutex` is a leaf: a thread that holds
 * it takes no other lock. */
typedef struct task {
  const void *owner;
  void (*run)(void *);
  void *data;
  int wanted, active; /* threads that the task still needs; threads inside `run`, in addition to the caller */
  pthread_cond_t left;
  struct task *next;
} task;

enum {
  WAKE = 4,         /* the most threads that a thread wakes: waking one costs as much as a small copy */
  EXPECTED = 100000 /* ns of polling: a thread wakes in 20 to 35 us, but the first call begins after 10 us */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t posted = PTHREAD_COND_INITIALIZER;
static task *tasks;
static int started, idle, looking; /* idle: threads that sleep; looking: threads that poll */
static atomic_uint posts;          /* number of tasks so far */
static atomic_int looks;           /* number of calls of look_out so far */
static _Atomic int64_t expected;   /* a task is expected until now() returns this time */
static atomic_int count;           /* the most threads for one owner; 0: not known yet */
static atomic_int most;            /* the most threads that may be started */

/* Returns how many more threads may join the tasks of an owner. The callers of the owner's tasks count as threads. */
static int room_of(const void *owner) {
  int room = oa_threads_count();
  for (const task *t = tasks; t; t = t->next)
    if (t->owner == owner) room -= t->active + 1;
  return room < 0 ? 0 : room;
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void pause_cpu(void) {
#ifdef __SSE2__
  _mm_pause();
#endif
}

/* Wakes at most that many sleeping threads. */
static void wake(int threads) {
  for (int i = 0; i < threads && i < WAKE; i++) pthread_cond_signal(&posted);
}

/* Polls for a task while one is expected. Returns whether a task came. The mutex is free during the polling. */
static bool look_out(void) {
  const unsigned seen = atomic_load(&posts);
  if (now() >= atomic_load(&expected)) return false;
  looking++;
  atomic_fetch_add(&looks, 1);
  pthread_mutex_unlock(&mutex);
  while (atomic_load_explicit(&posts, memory_order_relaxed) == seen && now() < atomic_load(&expected))
    for (int i = 0; i < 16; i++) pause_cpu();
  pthread_mutex_lock(&mutex);
  looking--;
  return atomic_load(&posts) != seen;
}

static void *work(void *unused) {
  (void)unused;
  pthread_mutex_lock(&mutex);
  for (;;) {
    task *t = tasks;
    while (t && !(t->wanted && room_of(t->owner))) t = t->next;
    if (!t && look_out()) continue;
    if (!t) {
      idle++;
      pthread_cond_wait(&posted, &mutex);
      idle--;
      continue;
    }
    t->wanted--;
    t->active++;
    const int sleeping = t->wanted < idle ? t->wanted : idle;
    pthread_mutex_unlock(&mutex);
    wake(sleeping);
    t->run(t->data);
    pthread_mutex_lock(&mutex);
    if (--t->active == 0) pthread_cond_signal(&t->left);
  }
  return NULL;
}

/* Reads the settings. Returns the most threads for one owner, and sets `most`, which does not include the callers'
 * threads. */
static int automatic(void) {
  int helpers;
  const int threads = oa_settings_threads(&helpers);
  atomic_store(&most, helpers);
  return threads;
}

int oa_threads_count(void) {
  int threads = atomic_load_explicit(&count, memory_order_relaxed);
  if (threads) return threads;
  int unknown = 0;
  threads = automatic();
  atomic_compare_exchange_strong(&count, &unknown, threads);
  return atomic_load(&count);
}

int oa_set_threads(int threads) {
  const int status = oa_core_start(__func__);
  if (status) return status;
  if (threads < 0 || threads > 1024)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_set_threads: threads needs 0 (automatic) to 1024, got %d", threads);
  if (threads) atomic_store(&most, INT_MAX);
  atomic_store(&count, threads ? threads : automatic());
  return OA_OK;
}

void oa_threads_run(const void *owner, void (*run)(void *), void *data, int participants) {
  if (participants <= 1) {
    run(data);
    return;
  }
  task t = {.owner = owner, .run = run, .data = data, .wanted = participants - 1, .left = PTHREAD_COND_INITIALIZER};
  pthread_mutex_lock(&mutex);
  t.next = tasks;
  tasks = &t;
  atomic_fetch_add(&posts, 1);
  const int room = room_of(owner), count = t.wanted < room ? t.wanted : room;
  for (int missing = count - idle - looking; missing > 0 && started < atomic_load(&most); missing--) {
    if (oa_start_thread(work, NULL)) break; /* after a failure, fewer threads do the work */
    started++;
  }
  const int woken = count - looking, sleeping = woken < idle ? woken : idle;
  pthread_mutex_unlock(&mutex);
  wake(sleeping);
  run(data);
  pthread_mutex_lock(&mutex);
  task **at = &tasks;
  while (*at != &t) at = &(*at)->next;
  *at = t.next;
  while (t.active) pthread_cond_wait(&t.left, &mutex);
  pthread_mutex_unlock(&mutex);
  pthread_cond_destroy(&t.left);
}

int oa_threads_looks(void) { return atomic_load(&looks); }

void oa_threads_expect(void) {
  atomic_store(&expected, now() + EXPECTED);
  pthread_mutex_lock(&mutex);
  const int sleeping = idle;
  pthread_mutex_unlock(&mutex);
  wake(sleeping);
}
