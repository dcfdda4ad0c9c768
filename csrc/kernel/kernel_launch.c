/* Launches: calls of a program's own kernels. */
#include "base/sized.h"
#include "base/trace.h"
#include "call/call.h"
#include "device/device.h"
#include "device/stream.h"
#include "kernel/module.h"
#include "kernel/shared_object.h"
#include "region/capture.h"
#include "region/region.h"
#include "region/slot.h"

#include <stdio.h>
#include <stdlib.h>

/* -- the shape ---------------------------------------------------------------------------------------------------- */

static int check_axes(const oa_kernel_state *kernel, const char *name, const uint32_t *sizes, const int32_t *most) {
  for (int axis = 0; axis < 3; axis++)
    if (OA_UNLIKELY(sizes[axis] < 1 || sizes[axis] > (uint32_t)most[axis]))
      return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs 1 to %d along %c on %s, got %u", kernel->name, name, most[axis],
                     "xyz"[axis], kernel->module->device->name, sizes[axis]);
  return OA_OK;
}

static int check_cluster(const oa_kernel_state *kernel, const oa_launch *launch) {
  const oa_device *device = kernel->module->device;
  const uint32_t *cluster = launch->cluster;
  if (launch->cooperative && !kernel->info.cooperative)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s has no cooperative launches", kernel->name, device->name);
  if (!(cluster[0] | cluster[1] | cluster[2])) return OA_OK;
  if (!kernel->info.clusters)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s has no clusters of blocks", kernel->name, device->name);
  for (int axis = 0; axis < 3; axis++)
    if (!cluster[axis] || launch->grid[axis] % cluster[axis])
      return oa_fail(OA_ERROR_ARGUMENT, "%s: cluster needs to divide the grid along %c, %u blocks; got %u",
                     kernel->name, "xyz"[axis], launch->grid[axis], cluster[axis]);
  return OA_OK;
}

/* Refuses a grid with 2^32 threads or more along an axis: HIP would run another grid than the requested one. */
static int check_threads(const oa_kernel_state *kernel, const oa_launch *launch) {
  for (int axis = 0; axis < 3; axis++)
    if ((uint64_t)launch->grid[axis] * launch->block[axis] > UINT32_MAX)
      return oa_fail(OA_ERROR_ARGUMENT, "%s: grid needs fewer than 2^32 threads along %c on %s, got %u blocks of %u",
                     kernel->name, "xyz"[axis], kernel->module->device->name, launch->grid[axis], launch->block[axis]);
  return OA_OK;
}

static int check_shape(const oa_kernel_state *kernel, const oa_launch *launch) {
  const oa_kernel_info *info = &kernel->info;
  int status = check_axes(kernel, "grid", launch->grid, info->most_grid);
  if (status || (status = check_axes(kernel, "block", launch->block, info->most_block))) return status;
  const uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
  if (OA_UNLIKELY(threads > (uint64_t)info->most_threads))
    return oa_fail(OA_ERROR_ARGUMENT, "%s: block needs at most %d threads on %s, got %llu", kernel->name,
                   info->most_threads, kernel->module->device->name, (unsigned long long)threads);
  if (OA_UNLIKELY(launch->shared_bytes < 0 || launch->shared_bytes > info->most_shared_bytes))
    return oa_fail(OA_ERROR_ARGUMENT, "%s: shared_bytes needs 0 to %lld on %s, got %lld", kernel->name,
                   (long long)info->most_shared_bytes, kernel->module->device->name, (long long)launch->shared_bytes);
  if (kernel->module->device->backend->flags & OA_COUNTS_THREADS && (status = check_threads(kernel, launch)))
    return status;
  return check_cluster(kernel, launch);
}

/* -- launching ---------------------------------------------------------------------------------------------------- */

/* Refuses switches of a launch that are neither 0 nor 1. */
static int check_switches(const oa_kernel_state *kernel, const oa_launch *launch) {
  const struct {
    const char *name;
    int64_t value;
  } fields[] = {{"cooperative", launch->cooperative},
                {"has_stream", launch->has_stream},
                {"is_unsafe", launch->is_unsafe},
                {"waits", launch->waits}};
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (fields[i].value < 0 || fields[i].value > 1)
      return oa_fail(OA_ERROR_ARGUMENT, "%s: launch->%s needs 0 or 1, got %lld; make the launch with OA_SIZED",
                     kernel->name, fields[i].name, (long long)fields[i].value);
  return OA_OK;
}

/* Declares the pointers as the call's operands. Returns OA_OK, or the failure of an argument that is NULL. */
static int declare(const oa_kernel_state *kernel, const void *const *arguments, bool is_unsafe, oa_operand *operands) {
  /* One memset for all operands takes less time than stores to each large operand. */
  memset(operands, 0, (size_t)kernel->pointers * sizeof *operands);
  for (int i = 0; i < kernel->count; i++) {
    const oa_parameter *p = &kernel->parameters[i];
    if (p->access) {
      operands->name = p->name;
      operands->pointer = arguments[i];
      operands->access = p->access;
      operands->dtype = is_unsafe ? OA_ANY : p->dtype;
      operands->extent.kind = OA_EXTENT_ALL;
      operands++;
    } else if (!arguments[i]) {
      return oa_fail_null(kernel->name, p->name);
    }
  }
  return OA_OK;
}

/* Adds the module's variables to the operands, except variables that are arguments. Returns the operands. Called with
 * the lock. */
static int declare_variables(const oa_kernel_state *kernel, oa_operand *operands) {
  const oa_module_state *module = kernel->module;
  int count = kernel->pointers, status;
  for (int i = 0; i < module->variable_count; i++) {
    const oa_slot *slot = oa_slot_of(module->variables[i], OA_SLOT_POINTER, &status);
    bool is_new = slot != NULL;
    for (int j = 0; j < kernel->pointers && is_new; j++) {
      const oa_slot *other = oa_slot_of(operands[j].pointer, OA_SLOT_POINTER, &status);
      is_new = !other || other->mapping != slot->mapping;
    }
    if (is_new)
      operands[count++] = (oa_operand){.name = "a variable of the module",
                                       .pointer = module->variables[i],
                                       .access = OA_READ_WRITE,
                                       .dtype = OA_ANY,
                                       .extent.kind = OA_EXTENT_ALL};
  }
  return count;
}

/* Writes the value of each argument at the offset at which the kernel expects it. */
static void pack(const oa_kernel_state *kernel, const void *const *arguments, const oa_operand *operands,
                 unsigned char *bytes) {
  for (int i = 0; i < kernel->count; i++) {
    const oa_parameter *p = &kernel->parameters[i];
    if (p->access)
      memcpy(bytes + p->offset, &operands++->address, sizeof operands->address);
    else
      memcpy(bytes + p->offset, arguments[i], (size_t)p->nbytes);
  }
}

/* Makes the CPU run the kernel, in stream order, and ends the call. */
static int run_on_host(const oa_kernel_state *kernel, const oa_launch *shape, const void *const *arguments,
                       oa_call *call, oa_shared_object_launch *launch) {
  launch->function = *(oa_kernel_function *const *)&kernel->function;
  memcpy(launch->grid, shape->grid, sizeof launch->grid);
  memcpy(launch->block, shape->block, sizeof launch->block);
  launch->shared_bytes = shape->shared_bytes;
  launch->written = 0;
  for (int i = 0; i < call->count; i++) {
    const oa_slot *slot = call->operands[i].slot;
    if (slot && call->operands[i].access & OA_OVERWRITE && slot->nbytes > launch->written)
      launch->written = slot->nbytes;
  }
  launch->count = kernel->count;
  for (int i = 0; i < kernel->count; i++) launch->offsets[i] = kernel->parameters[i].offset;
  pack(kernel, arguments, call->operands, launch->bytes);
  return oa_submit(call, oa_shared_object_run, launch, sizeof *launch + kernel->nbytes);
}

/* Passes the kernel to the driver, and ends the call. beside: streams of the device may be captured, and the call is
 * not captured, or is captured only by the core. The driver is then allowed to load the kernel, or to wait to make room
 * for it. */
static int run_on_device(const oa_kernel_state *kernel, const oa_launch *shape, const void *const *arguments,
                         oa_call *call, unsigned char *bytes, bool beside) {
  void *places[OA_MOST_PARAMETERS];
  oa_device *device = call->device;
  pack(kernel, arguments, call->operands, bytes);
  for (int i = 0; i < kernel->count; i++) places[i] = bytes + kernel->parameters[i].offset;
  const int mode = OA_UNLIKELY(beside) ? device->backend->capture_mode(OA_RELAXED) : -1;
  const int status =
      device->backend->launch(device, ((const oa_stream *)call->stream)->native, kernel->function, shape, places);
  if (OA_UNLIKELY(mode >= 0)) device->backend->capture_mode(mode);
  if (OA_LIKELY(status == OA_OK)) return oa_end(call, 0);
  oa_saved_error saved;
  oa_error_save(&saved);
  oa_end(call, -1);
  oa_error_restore(&saved);
  return oa_fail_in(status, "%s", kernel->name);
}

static void note(const oa_kernel_state *kernel, const oa_launch *launch, int64_t begun, uint64_t region, int status) {
  char shape[64];
  snprintf(shape, sizeof shape, "grid %ux%ux%u block %ux%ux%u shared %lld", launch->grid[0], launch->grid[1],
           launch->grid[2], launch->block[0], launch->block[1], launch->block[2], (long long)launch->shared_bytes);
  oa_trace_event event = {.begun = begun,
                          .ended = oa_trace_now(),
                          .region = region,
                          .kind = OA_TRACE_LAUNCH,
                          .device = kernel->module->device->number,
                          .status = status,
                          .batch = kernel->info.multiprocessors};
  oa_trace_push(&event, kernel->name, shape);
}

/* Launches a kernel. room: memory for the arguments. *captured: whether a graph captured the launch. Called with the
 * lock, which is free when it returns. */
static int launch_in(const oa_kernel_state *kernel, const oa_launch *launch, const void *const *arguments,
                     oa_operand *operands, void *room, bool *captured) {
  oa_device *device = kernel->module->device;
  oa_call call = {.function = kernel->name,
                  .operands = operands,
                  .count = declare_variables(kernel, operands),
                  .has_own_stream = launch->has_stream != 0,
                  .own_stream = launch->stream,
                  .special = launch->is_unsafe ? OA_MAY_OVERLAP : 0,
                  .blocking = launch->waits != 0,
                  .only = device};
  const bool any_known = device->known_streams != NULL;
  int status = oa_begin_locked(&call);
  if (status) return status;
  *captured = call.open == OA_CALL_CAPTURED;
  const bool is_own = *captured && oa_capture_of(call.region, call.stream);
  const int64_t begun = call.begun;
  const uint64_t region = OA_UNLIKELY(begun != 0) ? ((const oa_region_state *)call.region)->serial : 0;
  call.begun = 0; /* with 0, oa_end notes nothing in the trace: this function notes the launch */
  status = device->backend->flags & OA_DEVICE_HOST_CALLS
               ? run_on_host(kernel, launch, arguments, &call, room)
               : run_on_device(kernel, launch, arguments, &call, room, any_known && (!*captured || is_own));
  if (OA_UNLIKELY(begun != 0)) note(kernel, launch, begun, region, status);
  return status;
}

int oa_kernel_launch(oa_kernel *kernel, const oa_launch *launch, const void *const *arguments, int count) {
  const char *const function = "oa_kernel_launch";
  enum { FEW = 16, FEW_BYTES = 256 };
  oa_launch shape;
  oa_operand few[FEW], *operands = few;
  _Alignas(16) unsigned char bytes[sizeof(oa_shared_object_launch) + FEW_BYTES];
  void *room = bytes;
  bool captured = false;
  if (!launch || !arguments) return oa_fail_null(function, launch ? "arguments" : "launch");
  int status = oa_sized_read(function, "launch", launch, &shape, OA_FIRST_LAUNCH, sizeof shape);
  if (status || (status = oa_core_start(function))) return status;
  oa_lock();
  oa_kernel_state *state = oa_kernel_hold(function, kernel, &status);
  if (!state) {
    oa_unlock();
    return status;
  }
  if (count != state->count)
    status = oa_fail(OA_ERROR_ARGUMENT, "%s: needs %d argument%s, got %d", state->name, state->count,
                     state->count == 1 ? "" : "s", count);
  if (!status) status = check_switches(state, &shape);
  if (!status) status = check_shape(state, &shape);
  const int most = state->pointers + state->module->variable_count;
  if (!status && (most > FEW || state->nbytes > FEW_BYTES)) {
    const size_t before = ((size_t)most * sizeof *operands + 15) / 16 * 16;
    operands = malloc(before + sizeof(oa_shared_object_launch) + state->nbytes);
    room = operands ? (unsigned char *)operands + before : NULL;
    if (!operands) status = oa_fail(OA_ERROR_MEMORY, "%s: no host memory for its arguments", state->name);
  }
  if (!status) status = declare(state, arguments, shape.is_unsafe != 0, operands);
  if (status)
    oa_unlock();
  else
    status = launch_in(state, &shape, arguments, operands, room, &captured);
  if (operands != few) free(operands);
  oa_kernel_unhold(state, captured);
  return status;
}
