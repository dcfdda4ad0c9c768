/* Groups of calls. A library issues the calls of a group together, at the group's end. Until then, each call is open,
 * and holds its operands. Each thread has a separate group, as in NCCL. */
#ifndef OA_GROUP_H
#define OA_GROUP_H

#include "call/object.h"
#include "call/operand.h"
#include "region/caller.h"

enum { OA_MOST_GROUPED = 2 }; /* operands of a call in a group */

/* One call of a group. */
typedef struct oa_grouped {
  oa_call call;
  oa_object_state *object; /* an object that the call uses; it is not destroyed before the group ends */
  oa_operand operands[OA_MOST_GROUPED];
  uintptr_t starts[OA_MOST_GROUPED], ends[OA_MOST_GROUPED]; /* start and end of each operand's touched bytes */
  struct oa_grouped *next;
} oa_grouped;

typedef struct oa_group_of_calls {
  const oa_library *library; /* the library that has the group */
  int depth;                 /* 0: the thread has no group */
  uint64_t since;            /* the serial of the youngest region when the group began */
  oa_grouped *first, *last;
} oa_group_of_calls;

extern _Thread_local oa_group_of_calls oa_group_of_thread;

/* Begins the thread's group of a library. */
void oa_group_open(const oa_library *library);
/* Adds an open call to the thread's group. The end of the group ends the call. Returns NULL with the text set if host
 * memory runs out. */
oa_grouped *oa_group_add(const oa_call *call);
/* Ends the thread's group, and returns its calls in the order in which they began. */
oa_grouped *oa_group_close(void);
/* Checks a call of a thread that has a group. The call may not use bytes that a call of the group writes, or write
 * bytes that a call of the group reads, because the call would run before the calls of the group. The region of a call
 * of the group may not end before the group. Called with the lock. */
__attribute__((cold)) int oa_group_check(const oa_call *call, const oa_reach *reaches, const oa_region_state *region);

#endif
