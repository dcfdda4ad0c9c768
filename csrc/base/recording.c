#include "base/recording.h"

#include "base/error.h"
#include "base/here.h"
#include "base/lines.h"
#include "base/runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct work {
  struct work *next;
  void (*run)(void *);
  size_t size;
  _Alignas(max_align_t) unsigned char arguments[];
} work;

struct oa_recording {
  atomic_int users;
  pthread_mutex_t mutex; /* guards the fields below it while work is added */
  work *first, **last;
  size_t most;  /* the largest size of any call's arguments */
  bool is_here; /* oa_run_here is among the work */
};

oa_recording *oa_recording_new(void) {
  oa_recording *recording = calloc(1, sizeof *recording);
  if (!recording) return NULL;
  atomic_init(&recording->users, 1);
  pthread_mutex_init(&recording->mutex, NULL);
  recording->last = &recording->first;
  return recording;
}

oa_recording *oa_recording_share(oa_recording *recording) {
  atomic_fetch_add(&recording->users, 1);
  return recording;
}

void oa_recording_drop(oa_recording *recording) {
  if (!recording || atomic_fetch_sub(&recording->users, 1) > 1) return;
  for (work *w = recording->first, *next; w; w = next) {
    next = w->next;
    free(w);
  }
  pthread_mutex_destroy(&recording->mutex);
  free(recording);
}

int oa_recording_add(oa_recording *recording, void (*run)(void *), const void *arguments, size_t size) {
  work *added = size <= PTRDIFF_MAX / 2 ? malloc(sizeof *added + size) : NULL;
  if (!added) return -1;
  added->next = NULL;
  added->run = run;
  added->size = size;
  if (size) memcpy(added->arguments, arguments, size);
  pthread_mutex_lock(&recording->mutex);
  *recording->last = added;
  recording->last = &added->next;
  if (size > recording->most) recording->most = size;
  recording->is_here |= run == oa_run_here;
  pthread_mutex_unlock(&recording->mutex);
  return 0;
}

void oa_run_here(void *here) {
  oa_here *h = here;
  const int failure = h->run(h->arguments);
  h->status =
      !failure ? OA_OK : oa_fail(OA_ERROR_LIBRARY, "%s: its function failed with status %d", h->function, failure);
}

bool oa_recording_is_here(const oa_recording *recording) { return recording->is_here; }

typedef struct copying {
  void *to;
  const void *from;
  size_t to_pitch, from_pitch, width, lines;
} copying;

static void copy(void *arguments) {
  const copying *c = arguments;
  oa_copy_lines(c->to, c->to_pitch, c->from, c->from_pitch, c->width, c->lines);
}

int oa_recording_add_copy(oa_recording *recording, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                          size_t width, size_t lines) {
  const copying arguments = {to, from, to_pitch, from_pitch, width, lines};
  return oa_recording_add(recording, copy, &arguments, sizeof arguments);
}

typedef struct filling {
  void *to;
  size_t pitch, unit, width, lines;
  uint32_t value;
} filling;

static void fill(void *arguments) {
  const filling *f = arguments;
  oa_fill_lines(f->to, f->pitch, f->value, f->unit, f->width, f->lines);
}

int oa_recording_add_fill(oa_recording *recording, void *to, size_t pitch, uint32_t value, size_t unit, size_t width,
                          size_t lines) {
  const filling arguments = {to, pitch, unit, width, lines, value};
  return oa_recording_add(recording, fill, &arguments, sizeof arguments);
}

/* -- the end of the process ---------------------------------------------------------------------------------------- */

/* When the process exits, the vendors' libraries end before threads of the core and of the program do. Functions of
 * libraries that have not begun by then do not run. */
static atomic_bool stopping;
static pthread_rwlock_t running = PTHREAD_RWLOCK_INITIALIZER; /* held for reading while a function runs */

/* Waits for running functions, but at most MOST_SECONDS. */
static void stop_running(void) {
  enum { MOST_SECONDS = 10 };
  struct timespec end;
  if (atomic_load(&oa_forked)) return; /* no function runs in a forked child */
  atomic_store(&stopping, true);
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += MOST_SECONDS;
  if (pthread_rwlock_timedwrlock(&running, &end) == 0) pthread_rwlock_unlock(&running);
}

/* Registers stop_running when this library is loaded, so that it runs after the program's own handlers, which may still
 * leave regions. The priority makes it run after the handler that accelerate/preload.c registers when loaded. */
static __attribute__((constructor(1000))) void stop_at_exit(void) { atexit(stop_running); }

bool oa_run_before_end(void (*run)(void *), void *arguments) {
  pthread_rwlock_rdlock(&running);
  const bool runs = !atomic_load(&stopping);
  if (runs) run(arguments);
  pthread_rwlock_unlock(&running);
  return runs;
}

int oa_recording_run(const oa_recording *recording, bool is_inside) {
  void *arguments = malloc(recording->most ? recording->most : 1);
  if (!arguments) return -1;
  int status = 0;
  for (const work *w = recording->first; w && !status; w = w->next) {
    memcpy(arguments, w->arguments, w->size);
    const bool is_here = w->run == oa_run_here;
    if (is_here || is_inside)
      w->run(arguments);
    else if (!oa_run_before_end(w->run, arguments))
      status = oa_fail(OA_ERROR_BACKEND, "the process ends, and a call of a graph had not begun");
    if (is_here) status = ((const oa_here *)arguments)->status;
  }
  free(arguments);
  return status;
}
