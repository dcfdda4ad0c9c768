#include "accelerate/record.h"

#include "accelerate/hooks.h"
#include "base/error.h"
#include "base/sized.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

enum { ROWS = 4096, UNDER_WAY = 64, KINDS = 4096 };
/* The first ASKED short calls of one kind ask for their places, and then one call in SAMPLED. SAMPLED is a prime
 * number, so that the lines of a loop ask in turns. */
enum { ASKED = 64, SAMPLED = 17, PASSING = 64 };

/* The latest short call of a kind that asked for its place. */
typedef struct latest {
  unsigned kind;
  int site, asked, left; /* left: how many further calls count for the same place */
} latest;

/* Calls of one routine, form and sizes that the CPU makes at once. */
typedef struct passing {
  _Alignas(64) _Atomic uint64_t key; /* identifies the routine, its form and the sizes; 0: none */
  atomic_int left;                   /* the number of calls that still pass; 0 or less: none */
  int passes;                        /* the number of calls that `left` began with */
  int row, reason;                   /* the calls count for this row, as refused for this reason */
  double seconds;                    /* measured in the latest call that took the long way */
} passing;

typedef struct under_way {
  uint64_t serial, thread; /* serial is 0 in a free entry */
  int site;
  bool asked, answered;
} under_way;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER; /* oa_accelerate_wait waits for this condition */
static pthread_cond_t progress;                           /* calls that wait for their place wait for this condition */
static pthread_once_t condition_once = PTHREAD_ONCE_INIT;
static atomic_bool child;
static oa_accelerate_row rows[ROWS];
static int row_count;
static int places[2 * ROWS]; /* a hash table: numbers of rows, from 1 */
static under_way calls[UNDER_WAY];
static uint64_t serials;
static int open_waits;
static bool device_asked, device_told, lapack_told;
static int lapack_asked = -1;
static uint64_t planned_kinds[KINDS / 64]; /* a bit for each kind of calls that the plan sometimes lets go */
static latest places_of_short_calls[KINDS];
static passing passing_calls[PASSING];
static bool wants_sites; /* the last option of oa_record_begin */
static _Atomic(int (*)(void)) finder;

void oa_record_lock(void) { pthread_mutex_lock(&mutex); }
void oa_record_unlock(void) { pthread_mutex_unlock(&mutex); }
static void note_child(void) { atomic_store(&child, true); }
void oa_record_watch_forks(void) {
  static atomic_bool done;
  if (!atomic_exchange(&done, true)) pthread_atfork(NULL, NULL, note_child);
}
bool oa_record_is_child(void) { return atomic_load_explicit(&child, memory_order_relaxed); }

/* -- kinds of calls: the routine, and the powers of two of the sizes -- */

static int class_of(int64_t size) { return size > 1 ? 63 - __builtin_clzll((unsigned long long)size) : 0; }

static unsigned kind_of(const oa_program_call *call) {
  const unsigned classes = (unsigned)(class_of(call->m) * 4096 + class_of(call->n) * 64 + class_of(call->k));
  return (unsigned)call->routine->number * 31 * 2654435761u + classes * 40503u;
}

/* Returns whether the call's place is needed before the call is made. If the plan decides alone, the place is needed
 * only for the kinds of calls that the plan sometimes lets go. */
static bool needs_site(const oa_program_call *call, int planned) {
  const unsigned kind = kind_of(call) % KINDS;
  return planned == OA_PLAN_FIRST || (planned == OA_PLAN_ALONE && planned_kinds[kind / 64] >> kind % 64 & 1);
}

/* -- places of short calls -- */

/* Sets the place of a call that does not ask for it. */
static bool takes_latest(oa_program_call *call) {
  latest *of = &places_of_short_calls[kind_of(call) % KINDS];
  if (!of->left || of->kind != kind_of(call)) return false;
  of->left--;
  call->site = of->site;
  return true;
}

static void note_latest(const oa_program_call *call, int site) {
  latest *of = &places_of_short_calls[kind_of(call) % KINDS];
  if (of->kind != kind_of(call)) *of = (latest){.kind = kind_of(call)};
  of->site = site;
  of->asked += of->asked < ASKED;
  if (of->asked == ASKED) of->left = SAMPLED - 1;
}

/* -- short calls that pass -- */

static uint64_t key_of(const oa_program_call *call) {
  const int64_t sizes[] = {call->m, call->n, call->k};
  uint64_t key = (uint64_t)(uintptr_t)call->routine ^ (uint64_t)call->form << 63;
  for (int i = 0; i < 3; i++) {
    key = (key ^ (uint64_t)sizes[i]) * 0x9e3779b97f4a7c15u;
    key ^= key >> 29;
  }
  return key | 1;
}

bool oa_record_passes(const oa_program_call *call) {
  const uint64_t key = key_of(call);
  passing *of = &passing_calls[key / 2 % PASSING];
  return atomic_load_explicit(&of->key, memory_order_relaxed) == key &&
         atomic_load_explicit(&of->left, memory_order_relaxed) > 0 &&
         atomic_fetch_sub_explicit(&of->left, 1, memory_order_relaxed) > 0;
}

/* Adds the calls that passed to their row. No more calls pass. */
static void settle(passing *of) {
  const int left = atomic_exchange(&of->left, 0), passed = of->passes - (left > 0 ? left : 0);
  of->passes = 0;
  rows[of->row].calls += passed;
  rows[of->row].refused[of->reason] += passed;
  rows[of->row].host_seconds += passed * of->seconds;
}

void oa_record_end_passing(void) {
  for (int i = 0; i < PASSING; i++) settle(&passing_calls[i]);
}

/* Lets the next calls of the routine and sizes of a short call pass, unless their places are still to be asked for. */
static void let_pass(const oa_program_call *call, const oa_accelerate_row *row, double seconds) {
  latest *place = &places_of_short_calls[kind_of(call) % KINDS];
  if (wants_sites && (row->site == OA_SITE_NONE || place->kind != kind_of(call) || place->asked < ASKED)) return;
  if (wants_sites) place->left = 0;
  const uint64_t key = key_of(call);
  passing *of = &passing_calls[key / 2 % PASSING];
  settle(of);
  of->passes = SAMPLED - 1;
  of->row = (int)(row - rows);
  of->reason = call->reason;
  of->seconds = seconds;
  atomic_store(&of->key, key);
  atomic_store(&of->left, of->passes);
}

/* -- calls under way -- */

static void make_condition(void) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&progress, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

static under_way *entry_of(uint64_t serial) {
  for (int i = 0; i < UNDER_WAY; i++)
    if (calls[i].serial == serial) return &calls[i];
  return NULL;
}

static struct timespec after(double seconds) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  const int64_t ns = t.tv_nsec + (int64_t)(seconds * 1e9);
  t.tv_sec += ns / 1000000000;
  t.tv_nsec = ns % 1000000000;
  return t;
}

/* Waits until another thread's call ends or gets its place. Returns false after the time `until`, or if no interval is
 * open (oa_record_open). */
static bool may_wait(const struct timespec *until) {
  return open_waits && !pthread_cond_timedwait(&progress, &mutex, until);
}

void oa_record_begin(oa_program_call *call, bool wants_site, int planned, double patience) {
  call->serial = ++serials;
  call->site = OA_SITE_NONE;
  call->is_listed = false;
  wants_sites = wants_site;
  if (!wants_site || (call->is_short && takes_latest(call))) return;
  int (*find)(void) = atomic_load(&finder);
  int site = OA_SITE_LATER;
  if (find) { /* the lock is free here, because the finder may run the program's signal handlers */
    oa_record_unlock();
    site = find();
    oa_record_lock();
  }
  const bool later = site == OA_SITE_LATER;
  if (!later) call->site = site;
  /* The thread that reports places may never report the place of this call, because that thread may wait for a lock
   * that the program holds around this call. */
  const bool waits = later && patience > 0 && needs_site(call, planned);
  const struct timespec until = waits ? after(patience) : (struct timespec){0};
  under_way *entry = entry_of(0);
  while (!entry && waits && may_wait(&until)) entry = entry_of(0);
  if (!entry) return;
  call->is_listed = true;
  *entry = (under_way){call->serial, (uint64_t)pthread_self(), call->site, !later, !later};
  if (later) pthread_cond_broadcast(&changed);
  while (waits && !entry->answered && may_wait(&until)) continue;
  call->site = entry->site;
}

/* Returns the place of a call, or OA_SITE_NONE. */
static int end_under_way(const oa_program_call *call) {
  under_way *entry = call->is_listed ? entry_of(call->serial) : NULL;
  if (!entry) return call->site;
  entry->serial = 0;
  pthread_cond_broadcast(&progress);
  if (call->is_short && entry->site != OA_SITE_NONE) note_latest(call, entry->site);
  return entry->site;
}

int oa_accelerate_set_site(uint64_t serial, int site) {
  if (oa_record_is_child() || !serial) return OA_OK;
  oa_record_lock();
  under_way *entry = entry_of(serial);
  if (entry) {
    entry->site = site;
    entry->answered = true;
    pthread_cond_broadcast(&progress);
  }
  oa_record_unlock();
  return OA_OK;
}

int oa_accelerate_set_finder(int (*function)(void)) {
  atomic_store(&finder, function);
  return OA_OK;
}

/* -- events -- */

void oa_record_ask_device(void) {
  if (device_asked) return;
  device_asked = true;
  pthread_cond_broadcast(&changed);
}

void oa_record_ask_lapack(int device) {
  if (lapack_asked == device) return;
  lapack_asked = device;
  lapack_told = false;
  pthread_cond_broadcast(&changed);
}

void oa_record_open(void) {
  pthread_once(&condition_once, make_condition);
  open_waits = 1;
  device_asked = device_told = lapack_told = false;
  lapack_asked = -1;
}

void oa_record_close(void) {
  open_waits = 0;
  pthread_cond_broadcast(&changed);
  pthread_cond_broadcast(&progress);
}

int oa_accelerate_wait(oa_accelerate_asked *asked, int *event) {
  if (!asked || !event || asked->size != sizeof *asked)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_accelerate_wait: asked and event must not be NULL, and asked->size %zu",
                   sizeof *asked);
  *event = OA_EVENT_NONE;
  oa_record_lock();
  while (*event == OA_EVENT_NONE) {
    if (!open_waits) {
      *event = OA_EVENT_STOPPED;
    } else if (device_asked && !device_told) {
      device_told = true;
      *event = OA_EVENT_DEVICE;
    } else if (lapack_asked >= 0 && !lapack_told) {
      lapack_told = true;
      *event = OA_EVENT_LAPACK;
    }
    for (int i = 0; i < UNDER_WAY && *event == OA_EVENT_NONE; i++) {
      if (!calls[i].serial || calls[i].asked) continue;
      calls[i].asked = true;
      asked->thread = calls[i].thread;
      asked->serial = calls[i].serial;
      *event = OA_EVENT_SITE;
    }
    if (*event == OA_EVENT_NONE) pthread_cond_wait(&changed, &mutex);
  }
  oa_record_unlock();
  return OA_OK;
}

/* -- rows -- */

static bool is_alike(const oa_accelerate_row *row, const oa_program_call *call, int site) {
  return row->routine == call->routine->name && row->site == site && class_of(row->m) == class_of(call->m) &&
         class_of(row->n) == class_of(call->n) && class_of(row->k) == class_of(call->k);
}

/* Returns the row of a call. If no row is left, returns the last row, which all further calls share. */
static oa_accelerate_row *row_of(const oa_program_call *call, int site) {
  unsigned at = kind_of(call) + (unsigned)(site + 1) * 2654435761u;
  for (at %= 2 * ROWS; places[at]; at = (at + 1) % (2 * ROWS))
    if (is_alike(&rows[places[at] - 1], call, site)) return &rows[places[at] - 1];
  if (row_count == ROWS) return &rows[ROWS - 1];
  places[at] = ++row_count;
  rows[row_count - 1] =
      (oa_accelerate_row){.routine = call->routine->name, .m = call->m, .n = call->n, .k = call->k, .site = site};
  return &rows[row_count - 1];
}

void oa_record_end(const oa_program_call *call, bool gone, double seconds) {
  oa_accelerate_row *row = row_of(call, end_under_way(call));
  row->m = call->m;
  row->n = call->n;
  row->k = call->k;
  row->calls++;
  if (gone) {
    row->gone++;
    row->bytes_up += (int64_t)call->bytes_up;
    row->bytes_down += (int64_t)call->bytes_down;
    row->bytes_spared += (int64_t)call->bytes_spared;
    row->device_seconds += seconds;
    row->predicted_host += call->predicted_host;
    return;
  }
  row->refused[call->reason]++;
  row->host_seconds += seconds;
  /* The time that is predicted for a short call is less than the device would take. */
  const bool was_predicted = !call->is_short && call->reason != OA_REFUSED_INVALID &&
                             call->reason != OA_REFUSED_OVERLAP && call->reason != OA_REFUSED_LENT &&
                             call->reason != OA_REFUSED_ODD_BEFORE && !call->is_odd;
  if (was_predicted && seconds > call->predicted_device) row->predicted_savings += seconds - call->predicted_device;
  if (call->is_short) let_pass(call, row, seconds);
}

/* -- the plan -- */

/* Returns OA_DECIDED_NOTHING for a call that shares the last row because no row was left. */
int oa_record_decision(const oa_program_call *call) {
  const oa_accelerate_row *row = row_of(call, call->site);
  return is_alike(row, call, call->site) ? row->decision : OA_DECIDED_NOTHING;
}

int oa_accelerate_plan(const oa_accelerate_row *plan, int count) {
  if (count < 0 || (count && !plan)) return oa_fail(OA_ERROR_ARGUMENT, "oa_accelerate_plan: rows must not be NULL");
  if (oa_record_is_child()) return OA_OK;
  oa_record_lock();
  for (int i = 0; i < row_count; i++) rows[i].decision = OA_DECIDED_NOTHING;
  memset(planned_kinds, 0, sizeof planned_kinds);
  for (int i = 0; i < count; i++) {
    const oa_hooked *routine = oa_hook_routine(plan[i].routine);
    if (!routine) continue; /* the row has a routine of another version of this library */
    const oa_program_call call = {.routine = routine, .m = plan[i].m, .n = plan[i].n, .k = plan[i].k};
    oa_accelerate_row *row = row_of(&call, plan[i].site);
    if (!is_alike(row, &call, plan[i].site)) continue;
    row->decision = plan[i].decision;
    const unsigned kind = kind_of(&call) % KINDS;
    if (row->decision == OA_DECIDED_GOES) planned_kinds[kind / 64] |= (uint64_t)1 << kind % 64;
  }
  oa_record_unlock();
  return OA_OK;
}

int oa_accelerate_read(oa_accelerate_row *to, int capacity, int *count, int64_t *small) {
  if (!count || !small || (capacity > 0 && !to))
    return oa_fail(OA_ERROR_ARGUMENT, "oa_accelerate_read: rows, count and small must not be NULL");
  *count = 0;
  *small = atomic_load(&oa_program_small);
  if (oa_record_is_child()) return OA_OK;
  oa_record_lock();
  oa_record_end_passing();
  *count = row_count;
  if (capacity > 0) memcpy(to, rows, sizeof *rows * (size_t)(capacity < row_count ? capacity : row_count));
  oa_record_unlock();
  return OA_OK;
}

int oa_accelerate_clear(void) {
  if (oa_record_is_child()) return OA_OK;
  oa_record_lock();
  oa_record_end_passing();
  row_count = 0;
  memset(places, 0, sizeof places);
  memset(places_of_short_calls, 0, sizeof places_of_short_calls);
  atomic_store(&oa_program_small, 0);
  oa_record_unlock();
  return OA_OK;
}
