#include "body/result.h"

#include "call/call.h"
#include "device/memory.h"
#include "region/region.h"

int oa_result_place(oa_result *result, oa_call *call, oa_value *wanted, void **place) {
  *result = (oa_result){.wanted = wanted};
  enum oa_zeros zeros;
  int status = OA_OK;
  if (!oa_device_take(call->device, call->native_stream, sizeof *wanted, &result->address, &zeros))
    status = oa_device_allocate(call->device, call->native_stream, sizeof *wanted, &result->address);
  *place = (void *)(uintptr_t)result->address;
  return status ? oa_call_fail(call, oa_fail_in(status, "%s: memory for its result", call->function)) : OA_OK;
}

int oa_result_fetch(const oa_result *result, const oa_call *call, int vendor_status) {
  oa_device *device = call->device;
  void *stream = call->native_stream;
  const uint64_t address = result->address;
  enum { NBYTES = sizeof *result->wanted };
  if (!address) return OA_OK;
  int status = OA_OK;
  if (vendor_status == call->library->success)
    status = device->backend->copy_down(device, stream, result->wanted, NBYTES, address, NBYTES, NBYTES, 1);
  const int waited =
      oa_device_wait_stream(device, stream, ((const oa_region_state *)call->region)->serial, call->function);
  if (!status) status = waited;
  const int freed = waited ? oa_device_free(device, stream, address, NBYTES)
                           : oa_device_pool(device, stream, address, NBYTES, OA_NEEDS_NOTHING);
  return status ? status : freed;
}
