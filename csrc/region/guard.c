#include "region/guard.h"

#include "base/settings.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The states of a zone's pages: usable; some can't be written, or touched at all; a thread makes them usable; a thread
 * is about to close them. */
enum { OPEN, ARMED, OPENING, ARMING };

/* The array and the place at which it was lent, for messages. */
typedef struct {
  unsigned long thread; /* thread of the region that lent the array first */
  char array[24], device[32], place[128];
} lent;

/* Some pages of a guarded array. The handler of faults reads low, high and state at any moment, so the memory of a zone
 * is never freed. The handler reads the other fields while the state is OPENING; the core writes these fields while the
 * state is OPEN. */
typedef struct zone {
  _Atomic uintptr_t low, high; /* 0: the zone is free */
  atomic_int state;
  bool cut;          /* an update made some of the pages usable; the core's lock guards this field */
  atomic_bool newer; /* the device has newer bytes: armed pages can't be read */
  lent lent;
  struct zone *next;    /* in the list of all zones */
  struct zone *sibling; /* next zone of the same mapping, or in the list of free zones */
} zone;

/* The zones of a mapping. */
struct oa_guard {
  zone *zones;
  unsigned long thread;
  char place[128];
  struct {
    char name[24]; /* "": the name in the view */
    bool writable; /* the host could write the pages before */
  } views[];
};

/* The most guarded lines of an array: each guarded line cuts a memory mapping of the process in three. */
enum { MOST_LINES = 4096 };

static _Atomic(zone *) zones;
static zone *idle;
static atomic_ulong changes;    /* number of changes of protection so far */
static struct sigaction before; /* the handler before ours, which gets the faults that are not ours */
static _Atomic(oa_guard_report) reporter;
static uintptr_t page;

/* The handler's notes, with entries by thread. A thread-local variable can't be used: its first use might allocate
 * memory. */
static struct {
  atomic_ulong thread, address, when;
} missed[64];                   /* a thread's last fault outside all zones, and the value of `changes` then */
static atomic_ulong passing_on; /* the thread that passes a fault on */

/* -- the handler: no lock, no allocation --------------------------------------------------------------------------- */

/* Returns the zone that has the address and is not open, or NULL. */
static zone *closed_at(uintptr_t address) {
  for (zone *s = atomic_load(&zones); s; s = s->next)
    if (atomic_load(&s->low) <= address && address < atomic_load(&s->high) && atomic_load(&s->state) != OPEN) return s;
  return NULL;
}

static int protect(const zone *s, int rights) {
  const uintptr_t low = atomic_load(&s->low);
  return mprotect((void *)low, atomic_load(&s->high) - low, rights);
}

/* Marks an armed zone as OPENING, which freezes its fields, or waits until another thread has changed its pages.
 * Returns whether the zone was armed. */
static bool begin_opening(zone *s) {
  int state = ARMED;
  if (atomic_compare_exchange_strong(&s->state, &state, OPENING)) return true;
  while (atomic_load(&s->state) == OPENING || atomic_load(&s->state) == ARMING) sched_yield();
  return false;
}

static void finish_opening(zone *s) {
  protect(s, PROT_READ | PROT_WRITE);
  atomic_fetch_add(&changes, 1);
  atomic_store(&s->state, OPEN);
}

/* Makes the pages usable. Called with the core's lock, so that no other thread closes the pages again. */
static void open_pages(zone *s) {
  while (atomic_load(&s->state) != OPEN)
    if (begin_opening(s)) finish_opening(s);
}

/* Closes the pages, to writes only unless `newer`. A late handler of an earlier fault must not open them meanwhile. */
static void close_pages(zone *s, bool newer) {
  int state = atomic_load(&s->state);
  do {
    if (state == ARMED && !s->cut && atomic_load(&s->newer) == newer) return;
    if (state == OPENING) {
      sched_yield();
      state = atomic_load(&s->state);
    }
  } while (state == OPENING || !atomic_compare_exchange_strong(&s->state, &state, ARMING));
  s->cut = false;
  const bool closed = protect(s, newer ? PROT_NONE : PROT_READ) == 0;
  if (!closed) {
    protect(s, PROT_READ | PROT_WRITE);
    atomic_fetch_add(&changes, 1);
  }
  atomic_store(&s->newer, newer);
  atomic_store(&s->state, closed ? ARMED : OPEN);
}

static void write_text(const char *text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

/* Reports a touch to the program. Returns whether the program goes on. */
static bool report(const lent *s, uintptr_t address, bool newer) {
  const oa_guard_report function = atomic_load(&reporter);
  const oa_guard_touch touch = {sizeof touch, s->array, s->place, s->device, (void *)address, s->thread, newer};
  if (function && function(&touch)) return true;
  const char *const text[] = {newer ? "offload_args: the host reads or writes " : "offload_args: the host writes ",
                              s->array,
                              ", which is lent to ",
                              s->device,
                              s->place[0] ? " at " : "",
                              s->place,
                              newer ? " and newer there: read it after the region, or after oa_update_from\n"
                                    : ", and the device keeps its old bytes: write it after the region, or between "
                                      "oa_update_begin and oa_update_end\n"};
  for (size_t i = 0; i < sizeof text / sizeof *text; i++) write_text(text[i]);
  return false;
}

/* Handles a signal as if this handler did not exist. */
static void pass_on(int number, siginfo_t *info, void *context) {
  const unsigned long self = (unsigned long)pthread_self();
  const bool again = atomic_load(&passing_on) == self; /* the other handler has passed the fault back to this one */
  if (!again && (before.sa_flags & SA_SIGINFO || (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN))) {
    atomic_store(&passing_on, self);
    if (before.sa_flags & SA_SIGINFO)
      before.sa_sigaction(number, info, context);
    else
      before.sa_handler(number);
    atomic_store(&passing_on, 0);
    return;
  }
  signal(number, SIG_DFL); /* a fault occurs again after the return; a sent signal is raised again here */
  if (info->si_code <= 0) raise(number);
}

/* Returns whether another thread may have made the page usable since this thread touched it: the access is then
 * repeated. */
static bool may_be_over(uintptr_t address) {
  const unsigned long now = atomic_load(&changes), self = (unsigned long)pthread_self();
  const size_t i = (self >> 12) % (sizeof missed / sizeof *missed);
  if (!now) return false; /* no page was ever armed */
  if (missed[i].thread == self && missed[i].address == address && missed[i].when == now) return false;
  missed[i].thread = self;
  missed[i].address = address;
  missed[i].when = now;
  return true;
}

static void on_fault(int number, siginfo_t *info, void *context) {
  const int error = errno;
  const uintptr_t address = (uintptr_t)info->si_addr;
  zone *s = info->si_code == SEGV_ACCERR ? closed_at(address) : NULL;
  if (s) {
    if (!begin_opening(s)) {
      errno = error;
      return;
    }
    const uintptr_t low = atomic_load(&s->low), size = atomic_load(&s->high) - low;
    if (address - low >= size) { /* another array has got the zone meanwhile */
      atomic_store(&s->state, ARMED);
      errno = error;
      return;
    }
    const lent lent = s->lent; /* once the pages are open, the region may end and another array use the zone */
    const bool newer = atomic_load(&s->newer);
    finish_opening(s);
    if (report(&lent, address, newer)) {
      errno = error;
      return;
    }
    /* The pages are closed again, so that the program ends at the touch. */
    mprotect((void *)low, size, newer ? PROT_NONE : PROT_READ);
    pass_on(number, info, context);
    return;
  }
  if (info->si_code == SEGV_ACCERR && may_be_over(address)) {
    errno = error;
    return;
  }
  pass_on(number, info, context);
}

/* -- arming -------------------------------------------------------------------------------------------------------- */

static void in_child(void) {
  for (zone *s = atomic_load(&zones); s; s = s->next)
    if (atomic_exchange(&s->state, OPEN) != OPEN) protect(s, PROT_READ | PROT_WRITE);
}

static void start(void) {
  page = (uintptr_t)sysconf(_SC_PAGESIZE);
  pthread_atfork(NULL, NULL, in_child);
}

/* Makes this file's handler the first handler of faults again, if other code has set a handler meanwhile. */
static bool take_faults(void) {
  struct sigaction now, handler = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  if (sigaction(SIGSEGV, NULL, &now)) return false;
  if (now.sa_flags & SA_SIGINFO && now.sa_sigaction == on_fault) return true;
  before = now;
  sigemptyset(&handler.sa_mask);
  return sigaction(SIGSEGV, &handler, NULL) == 0;
}

int oa_guard_begin(oa_mapping *mapping, int view, const char *name, const char *place, bool is_read_only) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, start);
  if (mapping->kind != OA_MAPS_HOST || mapping->special & OA_IS_COHERENT) return OA_OK;
  oa_guard *guard = mapping->guard;
  if (!guard) {
    guard = calloc(1, sizeof *guard + (size_t)mapping->view_count * sizeof guard->views[0]);
    if (!guard) return oa_fail(OA_ERROR_MEMORY, "oa_region_enter: no host memory to guard an array");
    guard->thread = (unsigned long)pthread_self();
    snprintf(guard->place, sizeof guard->place, "%s", place ? place : "");
    mapping->guard = guard;
  }
  char *const own = guard->views[view].name;
  if (name && !own[0]) snprintf(own, sizeof guard->views[view].name, "%s", name);
  guard->views[view].writable |= !is_read_only;
  return OA_OK;
}

static zone *zone_from(oa_guard *guard, uintptr_t low) {
  for (zone *s = guard->zones; s; s = s->sibling)
    if (atomic_load(&s->low) == low) return s;
  return NULL;
}

/* Returns a zone for whole pages of a view; NULL if there is no memory for it. */
static zone *zone_new(oa_mapping *mapping, int view, uintptr_t low, uintptr_t high) {
  const char *name = mapping->guard->views[view].name;
  zone *s = idle;
  if (s) {
    idle = s->sibling;
  } else {
    if (!(s = calloc(1, sizeof *s))) return NULL;
    s->next = atomic_load(&zones);
    atomic_store(&zones, s);
  }
  s->lent.thread = mapping->guard->thread;
  memcpy(s->lent.array, name[0] ? name : mapping->views[view].name, sizeof s->lent.array);
  snprintf(s->lent.device, sizeof s->lent.device, "%s", mapping->device->name);
  memcpy(s->lent.place, mapping->guard->place, sizeof s->lent.place);
  s->sibling = mapping->guard->zones;
  mapping->guard->zones = s;
  atomic_store(&s->high, high);
  atomic_store(&s->low, low);
  return s;
}

/* Arms the whole pages of [low, high), all of whose bytes belong to a view. */
static void arm_pages(oa_mapping *mapping, int view, uintptr_t low, uintptr_t high, bool newer) {
  low = (low + page - 1) / page * page;
  high = high / page * page;
  if (low >= high) return;
  zone *s = zone_from(mapping->guard, low);
  if (s && atomic_load(&s->high) != high) return; /* a zone of another view begins at this page; one zone is enough */
  if (!s && !(s = zone_new(mapping, view, low, high))) return;
  close_pages(s, newer);
}

void oa_guard_arm(oa_mapping *mapping, const oa_group *group, bool newer) {
  if (!take_faults()) return;
  for (int i = 0; i < mapping->view_count; i++) {
    const oa_view *view = &mapping->views[i];
    if (&mapping->groups[view->group] != group || (group->cover >= 0 && group->cover != i)) continue;
    if (!newer && !mapping->guard->views[i].writable) continue;
    oa_lines lines;
    if (!oa_view_lines_on_host(mapping, view, &lines)) continue;
    lines = oa_lines_simplest(lines);
    for (int64_t line = 0; line < lines.count && line < MOST_LINES && lines.width >= (int64_t)page; line++) {
      const uintptr_t low = mapping->at.low + (uintptr_t)(lines.start + line * lines.pitch);
      arm_pages(mapping, i, low, low + (uintptr_t)lines.width, newer);
    }
  }
}

void oa_guard_arm_equal(oa_mapping *mapping) {
  for (int i = 0; mapping->guard && i < mapping->group_count; i++) {
    const oa_group *group = &mapping->groups[i];
    if (group->valid && !group->dirty && !group->invalid) oa_guard_arm(mapping, group, false);
  }
}

void oa_guard_lift(oa_mapping *mapping, uintptr_t low, uintptr_t high) {
  for (zone *s = mapping->guard ? mapping->guard->zones : NULL; s; s = s->sibling) {
    uintptr_t from = atomic_load(&s->low), to = atomic_load(&s->high);
    while (atomic_load(&s->state) == OPENING) sched_yield();
    if (atomic_load(&s->state) != ARMED || low >= to || from >= high) continue;
    if (from < low) from = low / page * page;
    if (high < to) to = (high + page - 1) / page * page;
    /* If the kernel can't split the memory mapping, all pages of the zone are opened. */
    if (mprotect((void *)from, to - from, PROT_READ | PROT_WRITE)) open_pages(s);
    s->cut = true;
    atomic_fetch_add(&changes, 1);
  }
}

/* Closes the pages again that other devices' zones have in [low, high), unless an update has made them usable. */
static void close_others(uintptr_t low, uintptr_t high) {
  for (zone *s = atomic_load(&zones); s; s = s->next) {
    const bool overlaps = atomic_load(&s->low) < high && low < atomic_load(&s->high);
    if (!overlaps || atomic_load(&s->state) != ARMED || s->cut) continue;
    s->cut = true;
    close_pages(s, atomic_load(&s->newer));
  }
}

void oa_guard_end(oa_mapping *mapping) {
  oa_guard *guard = mapping->guard;
  if (!guard) return;
  mapping->guard = NULL;
  while (guard->zones) {
    zone *s = guard->zones;
    guard->zones = s->sibling;
    open_pages(s);
    const uintptr_t low = atomic_load(&s->low), high = atomic_load(&s->high);
    atomic_store(&s->low, 0);
    atomic_store(&s->high, 0);
    s->sibling = idle;
    idle = s;
    if (mapping->special & OA_IS_ELSEWHERE) close_others(low, high);
  }
  free(guard);
}

bool oa_guard_everywhere(void) { return oa_settings_guard(); }

/* -- public -------------------------------------------------------------------------------------------------------- */

int oa_guard_is_default(void) { return oa_settings_guard(); }

int oa_guard_set_report(oa_guard_report function) {
  atomic_store(&reporter, function);
  return OA_OK;
}
