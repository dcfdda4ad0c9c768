#include "base/runtime.h"

#include "base/version.h"

#include <signal.h>

atomic_int oa_forked;
atomic_bool oa_core_runs;

pthread_mutex_t oa_mutex = PTHREAD_MUTEX_INITIALIZER;
int oa_waiting;
static pthread_cond_t changed; /* made by `start` */

/* Runs in a forked child. Only the forking thread exists there, and a lock that another thread held can never be
 * freed. */
static void in_child(void) {
  atomic_store(&oa_forked, 1);
  atomic_store(&oa_core_runs, false);
}

static int start_status;
static oa_saved_error start_error;

static void start(void) {
  if ((start_status = oa_start_alone())) {
    oa_error_save(&start_error);
    return;
  }
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_atfork(NULL, NULL, in_child);
  atomic_store(&oa_core_runs, true);
}

int oa_check_forked(const char *function) {
  if (OA_LIKELY(!atomic_load_explicit(&oa_forked, memory_order_relaxed))) return OA_OK;
  return oa_fail(
      OA_ERROR_FORKED,
      "%s: this process was forked after offload_args was used, and can't use devices; start workers with the "
      "spawn method, or before the first use",
      function);
}

int oa_core_start_slowly(const char *function) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  const int status = oa_check_forked(function);
  if (status) return status;
  pthread_once(&once, start);
  if (start_status) oa_error_restore(&start_error);
  return start_status;
}

void oa_wait_change(void) {
  oa_waiting++;
  pthread_cond_wait(&changed, &oa_mutex);
  oa_waiting--;
}

bool oa_wait_change_until(const struct timespec *until) {
  oa_waiting++;
  const int error = pthread_cond_timedwait(&changed, &oa_mutex, until);
  oa_waiting--;
  return !error;
}

struct timespec oa_time_in(int milliseconds) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  at.tv_sec += milliseconds / 1000;
  at.tv_nsec += milliseconds % 1000 * 1000000L;
  if (at.tv_nsec >= 1000000000) {
    at.tv_sec++;
    at.tv_nsec -= 1000000000;
  }
  return at;
}

void oa_wake_waiting(void) { pthread_cond_broadcast(&changed); }

int oa_start_thread(void *(*run)(void *), void *argument) {
  /* The new thread blocks all signals but its own faults, so that signals such as Ctrl-C reach the program's own
   * threads. */
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
  pthread_attr_t detached; /* an idle thread never keeps the process from ending */
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, &detached, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&detached);
  return error;
}
