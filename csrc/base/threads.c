#include "base/threads.h"

#include "base/core.h"
#include "base/settings.h"

/* A call of oa_threads_run, on its caller's stack. All of it is guarded by `mutex`, a leaf. */
typedef struct task {
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
static atomic_int count; /* 0: not known yet */

static void *work(void *unused) {
  (void)unused;
  pthread_mutex_lock(&mutex);
  for (;;) {
    task *t = tasks;
    while (t && !t->wanted) t = t->next;
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

int oa_threads_count(void) {
  int threads = atomic_load_explicit(&count, memory_order_relaxed);
  if (threads) return threads;
  int unknown = 0;
  threads = oa_settings_threads();
  atomic_compare_exchange_strong(&count, &unknown, threads);
  return atomic_load(&count);
}

int oa_set_threads(int threads) {
  const int status = oa_core_start();
  if (status) return status;
  if (threads < 0 || threads > 1024)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_set_threads: threads needs 0 (automatic) to 1024, got %d", threads);
  atomic_store(&count, threads ? threads : oa_settings_threads());
  return OA_OK;
}

void oa_threads_run(void (*run)(void *), void *data, int participants) {
  if (participants <= 1) {
    run(data);
    return;
  }
  task t = {.run = run, .data = data, .wanted = participants - 1, .left = PTHREAD_COND_INITIALIZER};
  pthread_mutex_lock(&mutex);
  const int most = oa_threads_count() - 1;
  for (int missing = t.wanted - idle; missing > 0 && started < most; missing--) {
    if (oa_start_thread(work, NULL)) break; /* fewer threads do the work */
    started++;
  }
  t.next = tasks;
  tasks = &t;
  const int sleeping = t.wanted < idle ? t.wanted : idle;
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
