/* Results for the host: the vendor's function leaves them in device memory, and they are fetched in stream order.
 * Some versions of a library would fetch a result before the stream has computed it. */
#ifndef OA_RESULT_H
#define OA_RESULT_H

#include "library/library.h"
#include "offload_args/routine.h"

/* A pending result in device memory; `address` is 0 if the caller gave the result a place on the device. */
typedef struct oa_result {
  oa_value *wanted;
  uint64_t address;
} oa_result;

/* Sets *place to the address at which the vendor's function has to write the result of an open call, whose
 * device_scalars is 1. A failure cancels the call. */
int oa_result_place(oa_result *result, oa_call *call, oa_value *wanted, void **place);
/* Fetches the result of a call, unless the library reported a failure, and waits for the stream. Call it before
 * oa_end. */
int oa_result_fetch(const oa_result *result, const oa_call *call, int vendor_status);

#endif
