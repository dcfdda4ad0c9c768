#include "base/threads.h"

#include "base/core.h"
#include "base/settings.h"

#include <limits.h>

/* A call of oa_threads_run, on its caller's stack. All of it is guarded by `mutex`, a leaf. */
typedef struct task {
  const void *owner;
  void (*run)(void *);
  void *data;
  int wanted, active; /* threads still asked for, and inside run, besides the caller */
  pthread_cond_t left;
  struct task *next;
} task;

/* Each thread that starts work wakes at most this many others: waking one costs as much as a small copy. */
enum { WAKE = 4 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t posted = PTHREAD_COND_INITIALIZER;
static task *tasks;
static int started, idle;
static atomic_int count; /* of an owner; 0: not known yet */
static atomic_int most;  /* that may be started */

/* Returns how many more threads may join the tasks of an owner, the callers of which count, too. */
static int room_of(const void *owner) {
  int room = oa_threads_count();
  for (const task *t = tasks; t; t = t->next)
    if (t->owner == owner) room -= t->active + 1;
  return room < 0 ? 0 : room;
}

static void *work(void *unused) {
  (void)unused;
  pthread_mutex_lock(&mutex);
  for (;;) {
    task *t = tasks;
    while (t && !(t->wanted && room_of(t->owner))) t = t->next;
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
    for (int i = 0; i < sleeping && i < WAKE; i++) pthread_cond_signal(&posted);
    t->run(t->data);
    pthread_mutex_lock(&mutex);
    if (--t->active == 0) pthread_cond_signal(&t->left);
  }
  return NULL;
}

/* Reads the settings: how many threads an owner has, and all owners together beside the callers. */
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
  const int status = oa_core_start();
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
  const int room = room_of(owner), wanted = t.wanted < room ? t.wanted : room;
  for (int missing = wanted - idle; missing > 0 && started < atomic_load(&most); missing--) {
    if (oa_start_thread(work, NULL)) break; /* fewer threads do the work */
    started++;
  }
  const int sleeping = wanted < idle ? wanted : idle;
  pthread_mutex_unlock(&mutex);
  for (int i = 0; i < sleeping && i < WAKE; i++) pthread_cond_signal(&posted);
  run(data);
  pthread_mutex_lock(&mutex);
  task **at = &tasks;
  while (*at != &t) at = &(*at)->next;
  *at = t.next;
  while (t.active) pthread_cond_wait(&t.left, &mutex);
  pthread_mutex_unlock(&mutex);
  pthread_cond_destroy(&t.left);
}
