/* Callers: the threads that make calls. A caller has the slots that its open calls hold, and its wait, so that the core
 * detects deadlocks before they happen. The core's lock guards all data of this header. */
#ifndef OA_CALLER_H
#define OA_CALLER_H

#include "region/slot.h"

/* A wait of one thread, in the memory of that thread. */
typedef struct oa_wait {
  const char *function; /* the public function that waits */
  /* Returns whether the wait ends only after the thread of `other`, which may be the waiting thread itself, ends a call
   * or a wait. `needs` looks up all states again, because the reason for the wait may be gone. */
  bool (*needs)(const struct oa_wait *wait, const oa_caller *other);
  const void *subject;
} oa_wait;

struct oa_caller {
  pthread_t thread;
  oa_slot **held; /* slots that the caller's open calls hold: an entry for each operand, the latest entry last */
  int count, capacity;
  bool only_checks;    /* the caller's calls end right after their checks */
  bool grouped;        /* the caller has calls in a group */
  int checked;         /* the number of checked calls */
  bool is_gone;        /* the thread ended; another thread may end its open calls */
  const oa_wait *wait; /* NULL: the caller waits for no other thread */
  oa_caller *next;     /* in the list of all callers */
  bool is_reached;     /* the search for circles uses this field */
  oa_caller *then;
};

extern _Thread_local oa_caller *oa_caller_of_thread; /* NULL until the thread's first call */
/* Makes the thread's caller. Returns NULL with the text set if host memory runs out. */
oa_caller *oa_caller_make(void);
/* Makes room for more entries in `held`. */
int oa_caller_grow(oa_caller *caller, int more);
/* Removes the slot's latest entry from `held`. oa_caller_unhold calls this function if that entry is not the last of
 * the list. */
void oa_caller_remove(oa_caller *caller, const oa_slot *slot);

/* Returns the caller of this thread with room for so many more operands; NULL with the text set if there is no
 * memory. */
static inline oa_caller *oa_caller_with_room(int more) {
  oa_caller *caller = oa_caller_of_thread;
  if (OA_UNLIKELY(!caller) && !(caller = oa_caller_make())) return NULL;
  if (OA_UNLIKELY(caller->count > caller->capacity - more) && oa_caller_grow(caller, more)) return NULL;
  return caller;
}
/* Returns new entries for the slots that an open call of the caller holds. The caller has room for these entries
 * already. */
static inline oa_slot **oa_caller_hold(oa_caller *caller, int more) {
  oa_slot **held = caller->held + caller->count;
  caller->count += more;
  return held;
}
/* Removes the entry of a slot that a call no longer holds. */
static inline void oa_caller_unhold(oa_caller *caller, const oa_slot *slot) {
  if (OA_LIKELY(caller->held[caller->count - 1] == slot))
    caller->count--;
  else
    oa_caller_remove(caller, slot);
}
/* Returns whether an open call of the caller holds a slot of the mapping. */
bool oa_caller_holds(const oa_caller *caller, const oa_mapping *mapping);

/* Waits for a change, as oa_wait_change does. Returns OA_ERROR_ARGUMENT with the text, and does not wait, if the wait
 * would be a deadlock in which a thread waits for a call that this thread has open. */
int oa_wait_for(const oa_wait *wait);
/* Waits for a change, for a function that can't fail. In a deadlock, the function wakes the other threads, so that a
 * wait that can fail does so, which ends the deadlock. */
void oa_wait_for_always(const oa_wait *wait);
/* Returns the slot of a wait whose subject is a pointer's handle; NULL if the pointer has ended. */
const oa_slot *oa_wait_slot(const oa_wait *wait);
/* The function `needs` of a wait until a mapping no longer moves. wait->subject is the mapping, which must still
 * exist. */
bool oa_wait_needs_mover(const oa_wait *wait, const oa_caller *other);

#endif
