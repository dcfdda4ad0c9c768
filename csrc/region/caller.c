#include "region/caller.h"

#include <stdlib.h>

_Thread_local oa_caller *oa_caller_of_thread;

static oa_caller *callers; /* a list for all threads; entries of ended threads are used again */

/* -- threads -- */

static void end(void *caller) {
  if (atomic_load(&oa_forked)) return; /* in a forked child, the lock may be taken for ever */
  /* Other destructors of the thread may still make calls, for which the thread gets a new caller. */
  oa_caller_of_thread = NULL;
  oa_lock();
  ((oa_caller *)caller)->is_gone = true;
  oa_unlock();
}

static pthread_key_t key;
static int no_key;
static void make_key(void) { no_key = pthread_key_create(&key, end); }

oa_caller *oa_caller_make(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_key);
  oa_caller *caller = callers;
  while (caller && !(caller->is_gone && !caller->count)) caller = caller->next;
  if (!caller) {
    if (!(caller = calloc(1, sizeof *caller))) {
      oa_fail(OA_ERROR_MEMORY, "no host memory for a thread that makes calls");
      return NULL;
    }
    caller->next = callers;
    callers = caller;
  }
  caller->thread = pthread_self();
  caller->is_gone = false;
  /* Without a key, `end` never runs, so no other thread gets the entry. */
  if (!no_key) pthread_setspecific(key, caller);
  return oa_caller_of_thread = caller;
}

int oa_caller_grow(oa_caller *caller, int more) {
  const int capacity = 2 * caller->capacity + more + 16;
  oa_slot **held = realloc(caller->held, (size_t)capacity * sizeof(*held));
  if (!held) return oa_fail(OA_ERROR_MEMORY, "no host memory for a call of %d operands", more);
  caller->held = held;
  caller->capacity = capacity;
  return OA_OK;
}

void oa_caller_remove(oa_caller *caller, const oa_slot *slot) {
  int i = caller->count - 1;
  while (caller->held[i] != slot) i--;
  for (caller->count--; i < caller->count; i++) caller->held[i] = caller->held[i + 1];
}

bool oa_caller_holds(const oa_caller *caller, const oa_mapping *mapping) {
  for (int i = 0; i < caller->count; i++)
    if (caller->held[i]->mapping == mapping) return true;
  return false;
}

/* -- waiting -- */

bool oa_wait_needs_mover(const oa_wait *wait, const oa_caller *other) {
  return oa_mapping_is_seized_by(wait->subject, other);
}

const oa_slot *oa_wait_slot(const oa_wait *wait) {
  int ignored;
  return oa_slot_of(wait->subject, OA_SLOT_POINTER, &ignored);
}

/* Returns the thread through which the caller waits for itself: the last thread in a circle of waits that begins with
 * the caller. NULL: there is no circle. */
static const oa_caller *find_circle(oa_caller *caller) {
  for (oa_caller *c = callers; c; c = c->next) c->is_reached = false;
  caller->then = NULL;
  for (oa_caller *last = caller; last;) {
    oa_caller *at = last;
    last = at->then;
    if (!at->wait) continue;
    if (at->wait->needs(at->wait, caller)) return at;
    for (oa_caller *c = callers; c; c = c->next) {
      if (c == caller || c->is_reached || !at->wait->needs(at->wait, c)) continue;
      c->is_reached = true;
      c->then = last;
      last = c;
    }
  }
  return NULL;
}

/* Returns a slot that open calls of the caller hold and the other thread waits for; NULL if the other thread waits for
 * something else. */
static const oa_slot *find_held(const oa_caller *caller, const oa_caller *other) {
  oa_caller single = *caller;
  single.count = 1;
  for (int i = 0; i < caller->count; i++) {
    single.held = &caller->held[i];
    if (other->wait->needs(other->wait, &single)) return caller->held[i];
  }
  return NULL;
}

static int fail_circle(const oa_caller *caller, const oa_caller *other) {
  const char *const function = caller->wait->function;
  const oa_slot *slot = find_held(caller, other);
  if (!caller->count)
    return oa_fail(OA_ERROR_ARGUMENT,
                   "%s: it would wait for a thread that has a call open, and that thread waits for this one; end calls "
                   "before functions that wait for other threads",
                   function);
  const char *name = !slot           ? "what another thread waits for"
                     : slot->mapping ? slot->mapping->views[slot->view].name
                                     : "an empty array";
  return oa_fail(OA_ERROR_ARGUMENT,
                 "%s: a call of this thread is still open and holds %s%s; end it first (oa_end or oa_submit)", function,
                 name, other != caller && slot ? ", which another thread waits for" : "");
}

int oa_wait_for(const oa_wait *wait) {
  oa_caller *caller = oa_caller_with_room(0);
  if (!caller) return OA_ERROR_MEMORY;
  caller->wait = wait;
  const oa_caller *other = find_circle(caller);
  const int status = other ? fail_circle(caller, other) : OA_OK;
  if (!status) oa_wait_change();
  caller->wait = NULL;
  return status;
}

void oa_wait_for_always(const oa_wait *wait) {
  oa_caller *caller = oa_caller_with_room(0);
  if (caller) {
    caller->wait = wait;
    if (find_circle(caller)) oa_announce_change();
  }
  oa_wait_change();
  if (caller) caller->wait = NULL;
}
