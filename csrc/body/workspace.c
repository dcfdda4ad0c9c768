#include "body/workspace.h"
#include "base/error.h"
#include "call/call.h"
#include "device/memory.h"
#include "region/capture.h"

#include <stdlib.h>

/* Allocates the part of the memory that is on the device. For a captured call, the graph keeps this memory until the
 * graph is destroyed. */
static int allocate(oa_workspaces *w, const oa_call *call, uint64_t *address) {
  w->is_kept |= call->open == OA_CALL_CAPTURED;
  if (!w->is_kept) return oa_device_allocate(call->device, call->native_stream, w->device_bytes, address);
  return oa_capture_share(oa_capture_of(call->region, call->stream), call->region, w->device_bytes, address);
}

static int take(oa_workspaces *w, const oa_call *call, size_t host_bytes) {
  uint64_t address = 0;
  if (host_bytes && !(w->host = malloc(host_bytes)))
    return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for its workspace of %zu bytes", call->function, host_bytes);
  if (w->host && call->open == OA_CALL_CAPTURED) { /* the graph may read this memory at each replay */
    bool is_new;
    const int held = oa_capture_hold(oa_capture_of(call->region, call->stream), w->host, free, &is_new);
    if (held) return held;
    w->is_kept = true;
  }
  const int status = w->device_bytes ? allocate(w, call, &address) : OA_OK;
  w->device = (void *)(uintptr_t)address;
  return status ? oa_fail_in(status, "%s: its workspace of %zu bytes", call->function, w->device_bytes) : OA_OK;
}

int oa_workspaces_take(oa_workspaces *w, oa_call *call, size_t device_bytes, size_t host_bytes) {
  *w = (oa_workspaces){.device_bytes = device_bytes};
  const int status = device_bytes || host_bytes ? take(w, call, host_bytes) : OA_OK;
  if (!status) return OA_OK;
  if (!w->is_kept) free(w->host);
  return oa_call_fail(call, status);
}

int oa_workspaces_end(oa_workspaces *w, oa_call *call, int vendor_status) {
  oa_device *device = call->device;
  int status = OA_OK;
  bool over = true;
  if (w->host && !w->is_kept && (status = device->backend->stream_synchronize(device, call->native_stream)))
    over = oa_device_quiesce(device);
  if (over && !w->is_kept) free(w->host);
  if (w->device && !w->is_kept) {
    const int freed = oa_device_free(device, call->native_stream, (uint64_t)(uintptr_t)w->device, w->device_bytes);
    if (!status) status = freed;
  }
  const int ended = oa_end(call, vendor_status);
  return ended ? ended : status;
}
