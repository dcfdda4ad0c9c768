/* The way of one call, as the core's own calls use it; the functions of every call are in the public header. */
#ifndef OA_CALL_H
#define OA_CALL_H

#include "offload_args/shim.h"

#include <stdbool.h>

/* The kind of extent of operands of the core's own calls: all that the pointer has. */
enum { OA_EXTENT_ALL = 100 };
/* Added to the access of such an operand: its address is taken, and nothing of it read by the call itself. oa_begin makes it an
 * overwrite where the caller has to fill the group with zeros. */
enum { OA_ADDRESS_ONLY = 1 << 16 };
/* oa_call.open: of a call that has begun; of one of which its stream has nothing to note. */
enum { OA_CALL_OPEN = 1, OA_CALL_UNNOTED };

/* Ends a call that oa_begin let pass, and marks nothing. */
void oa_call_cancel(oa_call *call);
static inline bool oa_writes(int access) { return access & OA_OVERWRITE; }

#endif
