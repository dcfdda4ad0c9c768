/* The core's own calls, such as copying contents: they begin and end as all calls do (offload_args/shim.h). */
#ifndef OA_CALL_H
#define OA_CALL_H

#include "call/operand.h"

/* Values of oa_call.open. OPEN: the call has begun. UNNOTED: the stream notes nothing when the call ends, because an
 * address was taken. CAPTURED: the stream notes nothing, because a graph captured the call. RELEASED: the library no
 * longer needs the device to be current. */
enum { OA_CALL_OPEN = 1, OA_CALL_UNNOTED, OA_CALL_CAPTURED, OA_CALL_RELEASED, OA_CALL_CAPTURED_RELEASED };

/* The state of a call with lists of pointers, until it ends. */
typedef struct oa_lists {
  oa_operand *caller_operands; /* the caller's operands, which the call gets back at its end */
  int caller_count;
  char *names; /* names of the operands, for messages; NULL if there are none */
  /* one address for each pointer; on a synchronous device the library reads this array itself, on other devices a
   * copy */
  void **addresses;
  uint64_t address; /* address of the copy of `addresses` on the device; 0: there is no copy to free */
  size_t nbytes;
  oa_operand operands[]; /* one operand for each array */
} oa_lists;

/* Fails to begin a call whose `open` is not 0. Returns the status. */
__attribute__((cold)) int oa_call_fail_open(const char *function, const oa_call *call);
/* Begins a call without a library, as oa_begin does. Called with the core's lock, which is free when it returns. */
int oa_begin_locked(oa_call *call);
/* Ends the library's part of a call: its device is no longer current. The call stays open until oa_end. */
int oa_call_release(oa_call *call);
/* Ends a call of an object that may be aborted. If the object was aborted, the call fails, and its results are
 * undefined. Otherwise the call's operation is noted as one of the object. object: NULL for other calls. */
int oa_end_of(oa_call *call, int vendor_status, const oa_abortable *object);
/* Ends a call after oa_begin, and marks nothing as written or used. */
void oa_call_cancel(oa_call *call);
/* Cancels a failed call; keeps the text of the failure. Returns the status. */
int oa_call_fail(oa_call *call, int status);

/* Returns whether a call that has begun writes no element of any operand. */
static inline bool oa_call_writes_nothing(const oa_call *call) {
  for (const oa_operand *o = call->operands, *end = o + call->count; o < end; o++)
    if (o->touched && oa_writes(o->access)) return false;
  return true;
}

#endif
