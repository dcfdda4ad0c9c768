/* Callers: the threads that make calls. A caller knows what its open calls hold, and what it waits for, so that threads
 * which would wait for each other for ever are found. All of this is read and written under the core's lock. */
#ifndef OA_CALLER_H
#define OA_CALLER_H

#include "region/slot.h"

/* One wait of a thread, in the memory of that thread. */
typedef struct oa_wait {
  const char *function; /* the public function that waits */
  /* Returns whether the other thread, or this one, has to do something first: to end a call, or a wait of its own. It
   * looks everything up, as what the wait was begun for may be gone. */
  bool (*needs)(const struct oa_wait *wait, const oa_caller *other);
  const void *what;
} oa_wait;

struct oa_caller {
  pthread_t thread;
  oa_slot **held; /* by its open calls, an entry for each operand; the latest last */
  int count, capacity;
  bool is_gone;        /* the thread has ended; its open calls may end on another one */
  const oa_wait *wait; /* NULL: it waits for no other thread */
  oa_caller *next;     /* in the list of all */
  bool is_reached;     /* of the search for circles */
  oa_caller *then;
};

extern _Thread_local oa_caller *oa_caller_of_thread; /* NULL until the thread's first call */
/* Makes the thread's caller. Returns NULL with the text set if there is no host memory. */
oa_caller *oa_caller_make(void);
/* Makes room for more entries in `held`. */
int oa_caller_grow(oa_caller *caller, int more);
/* Removes the latest entry of the slot, which is not the last. */
void oa_caller_remove(oa_caller *caller, const oa_slot *slot);

/* Returns the caller of this thread with room for so many more operands; NULL with the text set. */
static inline oa_caller *oa_caller_with_room(int more) {
  oa_caller *caller = oa_caller_of_thread;
  if (__builtin_expect(!caller, 0) && !(caller = oa_caller_make())) return NULL;
  if (__builtin_expect(caller->count > caller->capacity - more, 0) && oa_caller_grow(caller, more)) return NULL;
  return caller;
}
/* Returns so many new entries, for which there is room: the slots that an open call of the caller holds. */
static inline oa_slot **oa_caller_hold(oa_caller *caller, int more) {
  oa_slot **held = caller->held + caller->count;
  caller->count += more;
  return held;
}
/* Ends that. */
static inline void oa_caller_unhold(oa_caller *caller, const oa_slot *slot) {
  if (__builtin_expect(caller->held[caller->count - 1] == slot, 1))
    caller->count--;
  else
    oa_caller_remove(caller, slot);
}
/* Returns whether an open call of the caller holds a slot of the mapping. */
bool oa_caller_holds(const oa_caller *caller, const oa_mapping *mapping);

/* Waits for a change, as oa_wait_change. Returns OA_ERROR_ARGUMENT with the text, and does not wait, if threads would
 * wait in a circle: one of them for a call that this thread has open. */
int oa_wait_for(const oa_wait *wait);
/* The same where the function can't fail: a thread that can is woken, to break the circle. */
void oa_wait_for_always(const oa_wait *wait);
/* For waits until a mapping no longer moves: it is `what`, and it lives. */
bool oa_wait_needs_mover(const oa_wait *wait, const oa_caller *other);

#endif
