/* Calls of the core's own, such as copying contents: they begin and end as all calls do (offload_args/shim.h). */
#ifndef OA_CALL_H
#define OA_CALL_H

#include "offload_args/shim.h"

#include <stdbool.h>

/* The extent kind of such operands: all elements of the pointer. */
enum { OA_EXTENT_ALL = 100 };
/* Added to the access of an operand whose address is taken, so that the call itself reads nothing. oa_begin makes the
 * access an overwrite where the caller has to fill the group with zeros. */
enum { OA_ADDRESS_ONLY = 1 << 16 };
/* oa_call.open: the call has begun; it has begun, and its stream has nothing to note at its end. */
enum { OA_CALL_OPEN = 1, OA_CALL_UNNOTED };

/* The state of a call with lists of pointers, until it ends. */
typedef struct oa_lists {
  oa_operand *given; /* the caller's operands, which the call has again at its end */
  int given_count;
  char *names;      /* of the operands, for messages; or NULL */
  void **addresses; /* one for each pointer; on the host they are used here */
  uint64_t address; /* on the device; 0: there is no memory to free */
  size_t nbytes;
  oa_operand operands[]; /* one an array */
} oa_lists;

/* Begins a call without a library as oa_begin does. Called with the core's lock, which is free when it returns. */
int oa_begin_locked(oa_call *call);
/* Ends a call after oa_begin, and marks nothing as written or used. */
void oa_call_cancel(oa_call *call);
/* Cancels a call that failed; keeps the text of the failure. Returns the status. */
int oa_call_fail(oa_call *call, int status);
/* Returns whether an oa_access writes. */
static inline bool oa_writes(int access) { return access & OA_OVERWRITE; }

#endif
