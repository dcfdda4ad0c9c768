/* One call: oa_begin checks all operands, then moves the missing bytes; the caller makes the vendor's call; oa_end
 * marks the written operands. */
#include "offload_args/chain.h"

#include "base/here.h"
#include "base/trace.h"
#include "call/arrival.h"
#include "call/call.h"
#include "call/extent.h"
#include "call/group.h"
#include "call/object.h"
#include "device/memory.h"
#include "library/handles.h"
#include "region/caller.h"
#include "region/capture.h"
#include "region/guard.h"
#include "region/update.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Finds the region's record of the caller's stream, or makes it. */
static int foreign_stream(oa_region_state *region, void *native, oa_stream **stream) {
  oa_stream *s = region->foreign;
  while (s && s->native != native) s = s->next;
  if (!s) {
    const int status = oa_stream_foreign(region->device, native, &s);
    if (status) return status;
    s->next = region->foreign;
    region->foreign = s;
  }
  *stream = s;
  return OA_OK;
}

/* Ends the call's hold of one operand. The holds end in the order of the operands. */
static inline void unhold_one(const oa_call *call, const oa_operand *o) {
  oa_caller_unhold(call->caller, o->slot);
  oa_slot_unhold(o->slot, o->touched & OA_FOR_WRITING);
}

/* Ends the call's hold of its operands. */
static void unhold(oa_call *call) {
  oa_capture *capture = oa_capture_of(call->region, call->stream);
  if (capture) capture->open--;
  for (int i = 0; i < call->count; i++) {
    const oa_operand *o = &call->operands[i];
    unhold_one(call, o);
  }
  oa_announce_change();
}

/* Puts a caller's handle into that pointer mode. call->saved_mode becomes the handle's former mode, or -1 if the mode
 * does not change. */
static int use_mode(oa_call *call, int pointer_mode) {
  const oa_library *library = call->library;
  int mode = -1;
  if (library->set_pointer_mode < 0) return OA_OK;
  if (library->get_pointer_mode >= 0) {
    const int status = oa_library_get_mode(library, call->handle, &mode);
    if (status || mode == pointer_mode) return status;
  }
  const int status = oa_library_set_mode(library, call->handle, pointer_mode);
  if (!status) call->saved_mode = mode;
  return status;
}

/* A value of call->saved_mode: the call has a handle of its stream for itself. */
enum { OWNS_HANDLE = -2 };

/* Takes a handle of the stream that no other call may use meanwhile. */
static __attribute__((noinline)) int take_own_handle(oa_call *call, oa_stream *stream, void **handles, bool captured) {
  const oa_library *library = call->library;
  if (OA_LIKELY(handles != NULL))
    call->handle =
        __atomic_exchange_n(&handles[oa_library_handle_place(library, call->device_scalars)], NULL, __ATOMIC_ACQUIRE);
  int status = OA_OK;
  if (OA_UNLIKELY(call->handle == NULL))
    status = oa_library_take_handle(library, stream, call->device_scalars, captured, &call->handle);
  if (!status) call->saved_mode = OWNS_HANDLE;
  return status;
}

/* Takes a handle of the stream with the pointer mode of the call. */
static inline int take_handle(oa_call *call, oa_stream *stream, bool captured) {
  const oa_library *library = call->library;
  void **handles = __atomic_load_n(&stream->handles, __ATOMIC_ACQUIRE);
  if (!library->shares_handles) return take_own_handle(call, stream, handles, captured);
  if (OA_LIKELY(handles != NULL))
    call->handle = __atomic_load_n(&handles[oa_library_handle_place(library, call->device_scalars)], __ATOMIC_ACQUIRE);
  if (OA_LIKELY(call->handle != NULL)) return OA_OK;
  return oa_library_take_handle(library, stream, call->device_scalars, captured, &call->handle);
}

/* Returns the handle of the stream, or restores the pointer mode of the caller's handle and returns that. */
static __attribute__((noinline)) int release_handle(oa_call *call) {
  int status = OA_OK;
  if (call->saved_mode == OWNS_HANDLE)
    oa_library_return_handle(call->library, call->stream, call->device_scalars, call->handle);
  else if (call->saved_mode >= 0)
    status = oa_library_set_mode(call->library, call->handle, call->saved_mode);
  oa_object_return_handle(call);
  return status;
}

/* Returns whether the vendor's function takes no stream: then the stream is waited for before and after each call. */
static inline bool has_no_stream(const oa_call *call) {
  return call->library->state->waits || call->special & OA_ON_DEFAULT_STREAM;
}

/* Returns "reason; remedy" if the call can't be captured into a graph, wherever its arrays are; otherwise NULL. */
static inline const char *why_uncaptured(const oa_call *call, bool own) {
  const bool keeps = own && call->special & OA_KEEPS_VALUES;
  if (OA_UNLIKELY(call->uncaptured != NULL) && !keeps) return call->uncaptured;
  if (!call->library) return NULL;
  if (OA_UNLIKELY(has_no_stream(call) || call->special & OA_ON_HOST_MEMORY))
    return "the function would have to be waited for; make the call outside of the capture";
  return keeps ? NULL : call->library->uncaptured;
}

/* Gets the vendor's handle on the right stream, in the right pointer mode, after the checks. `beside`: streams of the
 * device may be under capture, but the call is not captured. `captured`: the call is captured; `capture`: by the core.
 * Called without the lock. */
static inline __attribute__((always_inline)) int prepare_library(oa_call *call, oa_device *device, oa_stream *stream,
                                                                 void *used, bool beside, bool captured,
                                                                 oa_capture *capture) {
  const oa_library *library = call->library;
  int status = OA_OK;
  if (device->backend->enter && (status = device->backend->enter(device, &call->saved))) return status;
  call->saved_mode = call->capture_mode = -1;
  call->native_stream = stream->native;
  /* Within a call, a library may load kernels, allocate and wait, independently of captures of other streams. A
   * call that a program captures is not relaxed: work that its graph would lack has to fail. The core's own captures
   * forbid nothing. */
  if (OA_UNLIKELY(beside || capture || why_uncaptured(call, false) != NULL) && device->backend->capture_mode)
    call->capture_mode = device->backend->capture_mode(OA_RELAXED);
  call->handle = NULL;
  if ((library->create >= 0 || library->needs_handle) && !(call->special & OA_WITHOUT_HANDLE)) {
    if (used) {
      call->handle = used;
      status = use_mode(call, call->device_scalars ? library->device_mode : library->host_mode);
    } else {
      status = take_handle(call, stream, captured);
      if (OA_UNLIKELY(capture != NULL) && !status)
        status = oa_capture_equip(capture, call->region, library, call->handle);
    }
  }
  if (!status && has_no_stream(call)) status = device->backend->stream_synchronize(device, stream->native);
  if (status) {
    oa_saved_error saved;
    oa_error_save(&saved);
    if (call->saved_mode == OWNS_HANDLE) release_handle(call);
    if (call->capture_mode >= 0) device->backend->capture_mode(call->capture_mode);
    if (device->backend->leave) device->backend->leave(device, call->saved);
    oa_error_restore(&saved);
  }
  return status;
}

/* -- beginning -- */

/* Returns the name of the first host operand that no earlier call wrote, and which this call writes; NULL if there is
 * none. The operand's bytes would come down even if the graph never ran. */
static const char *name_first_written(const oa_call *call) {
  for (int i = 0; i < call->count; i++) {
    const oa_slot *slot = call->operands[i].slot;
    if (call->operands[i].touched && !slot->group->valid && slot->mapping->kind == OA_MAPS_HOST)
      return call->operands[i].name;
  }
  return NULL;
}

/* Checks a call to a stream that a program captures: the graph may run it at any time, any number of times, until the
 * regions of its arrays are left. */
static __attribute__((cold, noinline)) int check_captured(const oa_call *call, bool arriving, bool own) {
  const char *why = why_uncaptured(call, own);
  const char *first = name_first_written(call);
  if (!why && own && call->blocking)
    why = "its result goes to the host; give the result a place on the device, or make the call outside of the capture";
  if (why) return oa_fail(OA_ERROR_CAPTURE, "%s: the stream is capturing a graph, and %s", call->function, why);
  if (own) return OA_OK; /* missing bytes come up outside of the capture; a replay marks written bytes */
  if (arriving)
    return oa_fail(OA_ERROR_CAPTURE,
                   "%s: the stream is capturing a graph and an operand would have to be copied up; use it once before "
                   "the capture begins",
                   call->function);
  if (first)
    return oa_fail(OA_ERROR_CAPTURE,
                   "%s: the stream is capturing a graph, and nothing has written %s on the device yet; use it once "
                   "before the capture begins",
                   call->function, first);
  return OA_OK;
}

/* Looks for captures that concern the call. Sets *capturing to 1 if the call's stream is being captured. */
static __attribute__((noinline)) int look_for_captures(const oa_call *call, const oa_region_state *region,
                                                       bool arriving, oa_stream *stream, int *capturing) {
  if (call->special & OA_BESIDE_CAPTURE) return OA_OK;
  int status = oa_stream_capturing(stream, true, capturing);
  if (!status && *capturing) status = check_captured(call, arriving, oa_capture_of(region, stream) != NULL);
  if (!status && call->library && call->library->state->waits)
    status = oa_streams_check(stream->device, call->function, false);
  for (int i = 0; i < call->count && !status; i++) {
    const oa_operand *o = &call->operands[i];
    if (o->touched) status = oa_capture_check(call->function, o->name, ((const oa_slot *)o->slot)->mapping, stream);
  }
  return status;
}

/* Lets the call hold its operands, from the last operand to the first. Returns whether no other stream used them; then
 * the call's stream need not be ordered. */
static inline bool hold(oa_call *call, oa_caller *caller, const oa_stream *stream) {
  bool alone = true;
  oa_slot **held = oa_caller_hold(caller, call->count);
  call->caller = caller;
  for (const oa_operand *o = call->operands + call->count; o-- > call->operands;) {
    oa_slot *slot = *held++ = o->slot;
    if (OA_UNLIKELY(!o->touched)) {
      oa_slot_hold(slot, NULL);
      continue;
    }
    oa_slot_hold_bytes(slot, o->touched & OA_FOR_WRITING ? caller : NULL);
    const oa_uses *uses = &slot->mapping->uses;
    if (OA_UNLIKELY(uses->count != 1 || uses->first.stream != stream)) alone = false;
  }
  return alone;
}

/* Makes the stream run after the uses that the operands have to wait for. */
static int order(const oa_call *call, const oa_reach *reaches, oa_stream *stream) {
  int status = OA_OK;
  for (int i = 0; i < call->count && !status; i++) {
    const oa_slot *slot = call->operands[i].slot;
    if (!reaches[i].lines.count) continue;
    status = oa_uses_order(&slot->mapping->uses, stream, oa_writes(call->operands[i].access));
  }
  return status;
}

/* Waits for the uses of the operands on other streams, because the stream is being captured, and a graph can't wait for
 * anything outside itself. Frees the lock and takes it again. */
static __attribute__((cold, noinline)) int wait_for_uses(const oa_call *call, const oa_reach *reaches,
                                                         const oa_stream *stream) {
  int status = OA_OK;
  for (int i = 0; i < call->count && !status; i++) {
    const oa_slot *slot = call->operands[i].slot;
    if (!reaches[i].lines.count) continue;
    for (int u = 0; u < slot->mapping->uses.count && !status; u++)
      status = oa_use_wait(&slot->mapping->uses, u, stream);
  }
  return status;
}

/* Brings up the missing groups of the held operands, and orders the stream after their users. */
static int order_and_bring_up(const oa_call *call, const oa_reach *reaches, oa_region_state *region, oa_stream *stream,
                              int arriving, bool capturing) {
  int status = OA_OK;
  if (OA_UNLIKELY(arriving)) status = oa_arrivals_bring_up(call, region, stream, reaches, arriving);
  if (status || region->device->backend->flags & OA_SYNCHRONOUS) return status;
  return OA_UNLIKELY(capturing) ? wait_for_uses(call, reaches, stream) : order(call, reaches, stream);
}

/* The caller's own handle and stream for one call. */
typedef struct own {
  void *handle; /* the handle for the library; NULL: the core's handle of the stream */
  bool has_stream;
  void *stream;
} own;

/* Chooses the call's stream: the region's, the caller's, or a capture's. *capturing: the stream is being captured into
 * a graph. */
static inline int choose_stream(const oa_call *call, oa_region_state *region, const own *own, bool arriving,
                                oa_stream **stream, int *capturing) {
  int status;
  *stream = region->calls;
  *capturing = 0;
  if (OA_UNLIKELY(own && own->has_stream) && (status = foreign_stream(region, own->stream, stream))) return status;
  if (OA_LIKELY(!region->device->known_streams)) return OA_OK;
  if (region->capture && *stream == region->calls && !(call->special & OA_BESIDE_CAPTURE))
    *stream = region->capture->stream;
  return look_for_captures(call, region, arriving, *stream, capturing);
}

/* Brings up the bytes that a captured call needs, outside of the capture, like a call that ends without any work. Frees
 * the lock and takes it again. Looks up the operands again. */
static __attribute__((cold, noinline)) int bring_up_beside(const oa_call *call, oa_reach *reaches,
                                                           oa_region_state **region) {
  oa_operand *operands = malloc((size_t)call->count * sizeof *operands);
  if (!operands) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %d operands", call->function, call->count);
  memcpy(operands, call->operands, (size_t)call->count * sizeof *operands);
  oa_call bring = oa_call_of(call->function, NULL, operands, call->count);
  bring.special = OA_MAY_OVERLAP | OA_BESIDE_CAPTURE;
  int status = oa_begin_locked(&bring), arriving = 0;
  if (!status) oa_call_cancel(&bring);
  free(operands);
  oa_lock();
  if (!status) status = oa_operands_find(call, reaches, region, &arriving);
  if (!status && arriving)
    status = oa_fail(OA_ERROR_CAPTURE,
                     "%s: an update lets the host write one of the arrays, and a graph would never see these writes; "
                     "end the update before the capture",
                     call->function);
  return status;
}

/* Notes that a call which was to be captured has not begun. `capture` may be NULL. */
static inline void leave_capture(oa_capture *capture) {
  if (OA_LIKELY(!capture)) return;
  capture->open--;
  oa_announce_change();
}

/* Begins a call for begin_locked and oa_begin. `reaches` has room for each operand. */
static inline __attribute__((always_inline)) int begin(oa_call *call, oa_reach *reaches, const own *own) {
  oa_region_state *region;
  oa_stream *stream;
  int arriving, capturing = 0;
  int status = oa_operands_find(call, reaches, &region, &arriving);
  if (OA_UNLIKELY(own && own->handle) && !status) status = oa_object_check_device(call, region->device);
  if (!status) status = choose_stream(call, region, own, arriving, &stream, &capturing);
  oa_capture *capture = !status && OA_UNLIKELY(capturing) ? oa_capture_of(region, stream) : NULL;
  if (capture) capture->open++; /* the capture does not end before the call has ended */
  if (OA_UNLIKELY(capturing && arriving) && !status) {
    status = bring_up_beside(call, reaches, &region);
    arriving = 0;
  }
  oa_caller *caller = status ? NULL : oa_caller_with_room(call->count);
  if (!caller) {
    leave_capture(capture);
    oa_unlock();
    return status ? status : oa_fail_in(OA_ERROR_MEMORY, "%s", call->function);
  }
  if (OA_UNLIKELY(caller->grouped)) status = oa_group_check(call, reaches, region);
  if (OA_UNLIKELY(caller->only_checks || status)) {
    caller->checked += !status;
    leave_capture(capture);
    oa_unlock();
    if (status) return status;
    return oa_fail(OA_ERROR_ARGUMENT, "%s: checked, and not made", call->function);
  }
  const bool alone = hold(call, caller, stream);
  if (OA_UNLIKELY(arriving || !alone)) status = order_and_bring_up(call, reaches, region, stream, arriving, capturing);
  call->device = region->device;
  call->stream = stream;
  call->region = region;
  call->vendor_status = call->library ? call->library->success : 0;
  const bool beside = region->device->known_streams && !capturing;
  oa_unlock();
  if (!status && call->library)
    status = prepare_library(call, call->device, stream, own ? own->handle : NULL, beside, capturing, capture);
  if (status) {
    oa_lock();
    unhold(call);
    oa_unlock();
    return status;
  }
  call->open = capturing ? OA_CALL_CAPTURED : OA_CALL_OPEN;
  return OA_OK;
}

/* Begins a call. `own` is NULL if the caller has no handle and no stream of its own. Called with the lock, which is
 * free when it returns. */
static __attribute__((noinline)) int begin_locked(oa_call *call, const own *own) {
  oa_reach few[OA_FEW_OPERANDS], *reaches = few;
  if (OA_UNLIKELY(call->count < 1)) {
    oa_unlock();
    return oa_fail(OA_ERROR_ARGUMENT, "%s: a call needs at least 1 operand, got %d", call->function, call->count);
  }
  if (OA_UNLIKELY(call->count > OA_FEW_OPERANDS) && !(reaches = malloc((size_t)call->count * sizeof *reaches))) {
    oa_unlock();
    return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %d operands", call->function, call->count);
  }
  const int status = begin(call, reaches, own);
  if (OA_UNLIKELY(reaches != few)) free(reaches);
  return status;
}

/* Takes the caller's own handle for this call: *handle becomes the vendor's handle. *stream becomes the stream of that
 * handle, if the handle has a stream. */
static __attribute__((noinline)) int use_handle(oa_call *call, void **handle, void **stream) {
  int status = oa_object_take_handle(call, handle);
  if (!status && !call->library->takes_stream) status = oa_object_handle_stream(call, *handle, stream);
  if (status) oa_object_return_handle(call);
  return status;
}

/* Begins a call with the handle that this thread set. */
static __attribute__((noinline)) int begin_with_handle(oa_call *call, void *handle) {
  own own = {.has_stream = !call->library->takes_stream};
  int status = use_handle(call, &handle, &own.stream);
  if (status) return status;
  own.handle = handle;
  oa_lock();
  status = begin_locked(call, &own);
  if (status) oa_object_return_handle(call);
  return status;
}

static inline void reset(oa_call *call) {
  call->open = 0;
  call->lists = NULL;
  call->object = NULL;
  call->begun = oa_trace_begin();
}

int oa_call_fail_open(const char *function, const oa_call *call) {
  const bool known = call->open == OA_CALL_OPEN || call->open == OA_CALL_UNNOTED;
  return oa_fail(OA_ERROR_ARGUMENT,
                 known ? "%s: the call has begun already; end it by oa_end or oa_submit first"
                       : "%s: the call's `open` needs to be 0 before it begins; make it by oa_call_of or {0}",
                 function);
}

int oa_begin(oa_call *call) {
  int status;
  if (!call) return oa_fail_null("oa_begin", "call");
  if (OA_UNLIKELY(call->open)) return oa_call_fail_open("oa_begin", call);
  reset(call);
  if (!call->function || !call->operands) return oa_fail_null("oa_begin", call->function ? "operands" : "function");
  if ((status = oa_core_start(call->function))) return status;
  const oa_library *library = call->library;
  if (!library) {
    oa_lock();
    return oa_begin_locked(call);
  }
  void *handle = oa_library_used_handle(library);
  if (OA_UNLIKELY(handle != NULL)) return begin_with_handle(call, handle);
  if (OA_UNLIKELY(library->needs_handle)) return oa_object_fail_none(call);
  oa_reach reaches[OA_FEW_OPERANDS];
  oa_lock();
  /* the usual call; the compiler makes a copy of `begin` for it */
  return OA_LIKELY((unsigned)call->count - 1 < OA_FEW_OPERANDS) ? begin(call, reaches, NULL) : begin_locked(call, NULL);
}

int oa_only_check(int on) {
  int status = oa_core_start(__func__);
  oa_caller *caller = status ? NULL : oa_caller_with_room(0);
  if (!caller) return 0;
  const int checked = caller->checked;
  caller->only_checks = on != 0;
  caller->checked = 0;
  return checked;
}

int64_t oa_checks_begin(void) {
  const oa_caller *caller = oa_caller_of_thread;
  const int64_t outer = caller ? (int64_t)caller->checked * 2 + caller->only_checks : 0;
  oa_only_check(1);
  return outer;
}

int oa_checks_end(int64_t outer) {
  const int checked = oa_only_check((int)(outer & 1));
  if (outer) oa_caller_of_thread->checked = (int)(outer / 2);
  return checked;
}

int oa_only_checks(void) {
  const oa_caller *caller = oa_caller_of_thread;
  return caller && caller->only_checks;
}

int oa_begin_locked(oa_call *call) {
  const own own = {.has_stream = true, .stream = call->own_stream};
  reset(call);
  return begin_locked(call, call->has_own_stream ? &own : NULL);
}

/* -- ending -- */

/* Waits until the work of a call is complete. */
static __attribute__((noinline)) int wait_for_end(const oa_call *call) {
  oa_device *device = call->device;
  void *stream = call->special & OA_ON_DEFAULT_STREAM ? NULL : call->native_stream;
  const int status = call->library->state->waits ? oa_device_wait(device, 0, call->function)
                                                 : device->backend->stream_synchronize(device, stream);
  if (status) oa_device_quiesce(device); /* the function may write to the caller's memory until it has ended */
  return status;
}

/* Undoes prepare_library: the device is no longer current, the stream has its handle again, and the caller's handle has
 * its former pointer mode. */
static inline int release_library(oa_call *call) {
  const oa_device *device = call->device;
  int status = OA_OK;
  if (!call->library) return OA_OK;
  if (OA_UNLIKELY(has_no_stream(call) || call->special & OA_ON_HOST_MEMORY)) status = wait_for_end(call);
  if (OA_UNLIKELY(call->saved_mode != -1 || call->object)) {
    const int released = release_handle(call);
    if (!status) status = released;
  }
  if (OA_UNLIKELY(call->capture_mode >= 0)) device->backend->capture_mode(call->capture_mode);
  if (device->backend->leave) {
    const int left = device->backend->leave(call->device, call->saved);
    if (OA_UNLIKELY(left) && !status) status = left;
  }
  return status;
}

int oa_call_release(oa_call *call) {
  const int status = release_library(call);
  call->open = call->open == OA_CALL_CAPTURED ? OA_CALL_CAPTURED_RELEASED : OA_CALL_RELEASED;
  return status;
}

/* Frees the addresses of a call with lists, after the stream's work on them. */
static __attribute__((noinline)) int free_addresses(const oa_call *call) {
  const oa_lists *lists = call->lists;
  if (!lists->address) return OA_OK;
  return oa_device_free(call->device, ((const oa_stream *)call->stream)->native, lists->address, lists->nbytes);
}

/* Frees the memory of a call with lists, and gives the call the caller's operands again. */
static __attribute__((cold, noinline)) void forget_lists(oa_call *call) {
  oa_lists *lists = call->lists;
  call->operands = lists->caller_operands;
  call->count = lists->caller_count;
  call->lists = NULL;
  free(lists->addresses);
  free(lists->names);
  free(lists);
}

void oa_call_cancel(oa_call *call) {
  call->open = 0;
  if (call->lists) free_addresses(call);
  release_library(call);
  oa_lock();
  unhold(call);
  oa_unlock();
  if (call->lists) forget_lists(call);
}

int oa_call_fail(oa_call *call, int status) {
  oa_saved_error saved;
  oa_error_save(&saved);
  oa_call_cancel(call);
  oa_error_restore(&saved);
  return status;
}

/* Notes the stream's last operation as a use of the mapping. */
static inline int note_use(oa_mapping *mapping, oa_stream *stream, bool writes) {
  oa_use *use = &mapping->uses.first;
  if (mapping->uses.count != 1 || use->stream != stream) return oa_uses_add(&mapping->uses, stream, writes);
  *(writes ? &use->written : &use->read) = stream->ticket;
  return OA_OK;
}

/* Guards the array that a call writes, unless the host may write it in an update. */
static __attribute__((cold, noinline)) void guard(const oa_slot *slot) {
  const oa_present *at = &slot->mapping->at;
  if (!oa_host_writes(at->low, at->high)) oa_guard_arm(slot->mapping, slot->group, true);
}

/* Marks an operand of a captured call as escaped: the graph may run at any time, so leaving waits for the device. */
static void escape_to_graph(const oa_slot *slot, bool writes) {
  slot->mapping->escaped = true;
  slot->mapping->waited = false;
  slot->group->escaped |= writes;
  if (writes && slot->mapping->guard) guard(slot);
}

/* Begins to note a captured call. Returns the capture of the core's own graph; NULL if the graph is a program's. */
static __attribute__((cold, noinline)) oa_capture *begin_noting(const oa_call *call, oa_stream *stream, bool failed) {
  oa_capture *capture = oa_capture_of(call->region, stream);
  if (capture) {
    oa_capture_note_call(capture, call->function);
    capture->open--;
    capture->failed |= failed;
  } else {
    stream->captured = true;
  }
  return capture;
}

/* Notes the part of a group that the call wrote. */
static __attribute__((cold, noinline)) int mark_part(const oa_call *call, const oa_operand *o, const oa_slot *slot) {
  oa_lines lines;
  int status = OA_OK;
  oa_operand_lines(call, o, &lines);
  if (!oa_extent_is_triangle(&o->extent)) return oa_group_note_part(slot->mapping, slot->group, lines);
  const oa_touched touched = {&o->extent, lines, slot->itemsize};
  const int64_t runs = oa_touched_runs(&touched);
  for (int64_t j = 0; j < runs && !status; j++)
    status = oa_group_note_part(slot->mapping, slot->group, oa_touched_run(&touched, j));
  return status;
}

/* Marks an operand that the call wrote. `failed`: the bytes of the operand are undefined. */
static inline int mark_written(const oa_call *call, const oa_operand *o, const oa_slot *slot, bool failed) {
  oa_group *group = slot->group;
  oa_slot_root(slot)->wrote = true;
  group->written = group->dirty = true;
  if (OA_UNLIKELY(slot->mapping->guard != NULL)) guard(slot);
  if (OA_UNLIKELY(failed)) {
    group->invalid = true;
  } else if (o->touched & OA_OVERWRITTEN) { /* a write of only a part leaves an invalid group invalid */
    group->valid = true;
    group->invalid = false;
    if (OA_UNLIKELY(group->parts != NULL || group->present != NULL)) oa_group_forget_parts(group);
  } else if (OA_UNLIKELY(o->touched & OA_PART_WRITTEN)) {
    return mark_part(call, o, slot);
  }
  return OA_OK;
}

/* The rare ends of a call: every end except success without a capture. */
enum rare_end {
  FAILED = 1,
  ONLY_ASKED = 2, /* the function wrote nothing, and did not fail */
  CAPTURED = 4    /* a graph captured the call, or the call's address was taken: in both cases the memory escapes */
};

/* Marks an operand of a call that has a rare end. Other calls use mark_written. `capture`: the capture of the core's
 * own graph; NULL if the graph is a program's, or if there is none. */
static __attribute__((cold, noinline)) int mark_rare(const oa_call *call, const oa_operand *o, int rare,
                                                     oa_capture *capture) {
  oa_slot *slot = o->slot;
  const bool writes = oa_writes(o->access);
  if (capture) {
    oa_capture_note(capture, slot, o->touched & OA_OVERWRITTEN, (o->access & OA_READ_WRITE) != OA_OVERWRITE, writes);
    return OA_OK;
  }
  if (rare & CAPTURED) escape_to_graph(slot, writes);
  return writes && !(rare & ONLY_ASKED) ? mark_written(call, o, slot, rare & FAILED) : OA_OK;
}

static __attribute__((cold)) bool is_among(const oa_library *library, const int *statuses, int status) {
  for (; statuses && *statuses != library->success; statuses++)
    if (*statuses == status) return true;
  return false;
}

/* Returns the rare end of a call whose function returned another status than success. `library` is NULL if the call has
 * none. */
static __attribute__((cold, noinline)) int rare_end_of(const oa_library *library, int status) {
  if (!library) return FAILED;
  if (is_among(library, library->only_asked, status)) return ONLY_ASKED;
  return is_among(library, library->also_done, status) ? 0 : FAILED;
}

/* Fails for a call that the library reports as failed. */
static __attribute__((cold, noinline)) int fail_in_library(const oa_call *call, int vendor_status) {
  char text[OA_STATUS_TEXT];
  oa_library_status_text(call->library, vendor_status, text, sizeof text);
  return oa_fail(OA_ERROR_LIBRARY, "%s: the library returned %s; the contents of its output arrays are undefined",
                 call->function, text);
}

/* Fails for a call that was not begun. The call may have no name. */
static __attribute__((cold, noinline)) int fail_not_begun(const char *ending, const oa_call *call) {
  const char *function = call->function;
  return oa_fail(OA_ERROR_ARGUMENT, "%s%s%s without an oa_begin that succeeded", function ? function : "",
                 function ? ": " : "", ending);
}

/* Waits for a released call, which its group has issued, if the vendor's function takes no stream. */
static __attribute__((cold, noinline)) int wait_for_group(const oa_call *call) {
  return call->library && has_no_stream(call) ? wait_for_end(call) : OA_OK;
}

/* Marks the operands, ends their holds, and frees the lock. `notes`: the stream's last operation is a use of each
 * operand. Returns `status`, or else the first failure. */
static inline __attribute__((always_inline)) int mark_all(oa_call *call, bool notes, int rare, oa_capture *capture,
                                                          int status) {
  for (const oa_operand *o = call->operands, *end = o + call->count; o < end; o++) {
    oa_slot *slot = o->slot;
    if (OA_UNLIKELY(!o->touched)) {
      unhold_one(call, o);
      continue;
    }
    const bool writes = oa_writes(o->access);
    if (notes && note_use(slot->mapping, call->stream, writes)) {
      status = OA_ERROR_MEMORY;
      oa_device_quiesce(call->device); /* after the wait, the use is over */
    }
    const int marked = rare ? mark_rare(call, o, rare, capture) : writes ? mark_written(call, o, slot, false) : OA_OK;
    if (OA_UNLIKELY(marked) && !status) status = marked;
    oa_caller_unhold(call->caller, slot);
    oa_slot_unhold_bytes(slot, o->touched & OA_FOR_WRITING);
  }
  oa_announce_change();
  oa_unlock();
  return status;
}

/* Fails if an abort has made an operand undefined that the call read. Called with the lock. */
static int check_spoiled(const oa_call *call) {
  for (const oa_operand *o = call->operands, *end = o + call->count; o < end; o++) {
    const oa_slot *slot = o->slot;
    if (!o->touched || (o->access & OA_READ_WRITE) == OA_OVERWRITE || o->touched & OA_OVERWRITTEN) continue;
    if (slot->mapping->spoiled && slot->group->invalid)
      return oa_fail(
          OA_ERROR_INVALID,
          "%s: a communicator was aborted before its calls that write %s had ended; the results are undefined",
          call->function, o->name);
  }
  return OA_OK;
}

/* Fails if the call's object was aborted; otherwise notes the call's operation. Called with the lock. */
static int note_object(const oa_call *call, const oa_abortable *object, bool notes) {
  if (!atomic_load(object)) {
    if (notes) oa_stream_note_object(call->stream, object);
    oa_device *device = call->device;
    if (call->library) device->abortable = true; /* the object is a communicator, and not a chain */
    return OA_OK;
  }
  return oa_fail(OA_ERROR_STALE, "%s: %s was aborted meanwhile; the contents of the call's output arrays are undefined",
                 call->function, atomic_load(object));
}

/* Ends a call that failed, is captured or traced, has lists or an object that may be aborted, or whose address was
 * taken, or whose device has communicators. The lock is taken. `advanced`: the failure to note the end of the call in
 * the stream, or 0. `status`: an earlier failure, or 0. */
static __attribute__((cold, noinline)) int end_rarely(oa_call *call, int vendor_status, int open, int advanced,
                                                      int status, const oa_abortable *object) {
  const oa_library *const library = call->library;
  const oa_device *device = call->device;
  const bool is_captured = open == OA_CALL_CAPTURED || open == OA_CALL_CAPTURED_RELEASED;
  int rare = vendor_status == (library ? library->success : 0) ? 0 : rare_end_of(library, vendor_status);
  const bool failed = rare & FAILED;
  if (open == OA_CALL_UNNOTED || is_captured) rare |= CAPTURED;
  const bool notes = !(device->backend->flags & OA_SYNCHRONOUS) && !(rare & CAPTURED);
  const uint64_t serial = call->begun ? ((const oa_region_state *)call->region)->serial : 0;
  oa_capture *capture = is_captured ? begin_noting(call, call->stream, failed) : NULL; /* of the core's own graph */
  if (notes && !advanced) advanced = oa_stream_advance_apart(call->stream);
  if (advanced) {
    rare |= FAILED; /* the call has run, but an error is reported: as after all errors, its results are undefined */
    if (!status) status = advanced;
  }
  if (!(rare & FAILED) && !is_captured) {
    int undefined = object ? note_object(call, object, notes) : OA_OK;
    if (!undefined && device->spoiled) undefined = check_spoiled(call);
    if (undefined) rare |= FAILED;
    if (!status) status = undefined;
  }
  status = mark_all(call, notes, rare, capture, status);
  if (call->lists) forget_lists(call);
  if (serial)
    oa_trace_note(call->library ? OA_TRACE_CALL : OA_TRACE_ACCESS, call->begun, device->number, serial, 0,
                  call->function, NULL, 0, vendor_status);
  return failed && library ? fail_in_library(call, vendor_status) : status;
}

int oa_end(oa_call *call, int vendor_status) {
  if (!call) return oa_fail_null("oa_end", "call");
  return oa_end_of(call, vendor_status, NULL);
}

int oa_end_of(oa_call *call, int vendor_status, const oa_abortable *object) {
  if (!call->open) return fail_not_begun("oa_end", call);
  oa_device *device = call->device;
  const oa_library *const library = call->library;
  const int open = call->open;
  const bool is_usual = open == OA_CALL_OPEN && vendor_status == (library ? library->success : 0) && !call->lists &&
                        !call->begun && !object;
  int advanced = OA_OK;
  call->open = 0;
  int status = OA_UNLIKELY(open >= OA_CALL_RELEASED) ? wait_for_group(call) : release_library(call);
  if (OA_UNLIKELY(call->lists != NULL)) {
    const int freed = free_addresses(call);
    if (!status) status = freed;
  }
  oa_lock();
  if (call->library || call->only) /* a library's function or a kernel. The only writers of this count hold the lock */
    atomic_store_explicit(&device->counts.calls, device->counts.calls + 1, memory_order_relaxed);
  if (OA_LIKELY(is_usual &&
                !atomic_load_explicit(
                    &device->abortable,
                    memory_order_relaxed))) { /* the compiler makes a copy of mark_all without the rare cases */
    const bool notes = !(device->backend->flags & OA_SYNCHRONOUS);
    if (notes) advanced = oa_stream_advance(call->stream);
    if (OA_LIKELY(!advanced)) return mark_all(call, notes, 0, NULL, status);
  }
  return end_rarely(call, vendor_status, open, advanced, status, object);
}

int oa_submit(oa_call *call, void (*run)(void *), void *arguments, size_t size) {
  if (!call) return oa_fail_null("oa_submit", "call");
  if (!call->open) return fail_not_begun("oa_submit", call);
  oa_device *device = call->device;
  if (!run || (size && !arguments) || size > PTRDIFF_MAX / 2 || !device->backend->submit) {
    oa_end(call, -1);
    return oa_fail(OA_ERROR_ARGUMENT,
                   "%s: oa_submit needs a function to run, its arguments, and a device that runs it, %s",
                   call->function, device->name);
  }
  if (device->backend->flags & OA_SYNCHRONOUS && call->open != OA_CALL_CAPTURED) {
    run(arguments);
    return oa_end(call, call->vendor_status);
  }
  void *native = ((oa_stream *)call->stream)->native;
  int status = device->backend->submit(device, native, run, arguments, size);
  if (!status && call->blocking) {
    if ((status =
             oa_device_wait_stream(device, native, ((const oa_region_state *)call->region)->serial, call->function)))
      oa_device_quiesce(device); /* the function may write to the caller's memory */
  }
  if (!status) return oa_end(call, call->vendor_status);
  oa_saved_error saved;
  oa_error_save(&saved);
  oa_end(call, -1);
  oa_error_restore(&saved);
  return oa_fail_in(status, "%s", call->function);
}

/* Adds a function to the graph that captures the call. *held becomes true if the graph keeps the object. */
static int record_here(const oa_call *call, oa_here *here, size_t size, void *object, void (*let_go)(void *object),
                       bool *held) {
  oa_device *device = call->device;
  const oa_stream *stream = call->stream;
  oa_capture *capture = oa_capture_of(call->region, stream);
  int status = OA_OK;
  if (!capture)
    return oa_fail(OA_ERROR_CAPTURE, "%s: the stream is being captured by another region; call it after that capture",
                   call->function);
  if (let_go) status = oa_capture_hold(capture, object, let_go, held);
  return status ? status : device->backend->submit(device, stream->native, oa_run_here, here, sizeof *here + size);
}

/* Calls a function after the earlier work of the call's stream. */
static int run_here(const oa_call *call, oa_here *here) {
  oa_device *device = call->device;
  int status = OA_OK;
  if (!(device->backend->flags & OA_SYNCHRONOUS))
    status = oa_device_wait_stream(device, ((const oa_stream *)call->stream)->native,
                                   ((const oa_region_state *)call->region)->serial, call->function);
  if (status) return status;
  oa_run_here(here);
  return here->status;
}

int oa_submit_here(oa_call *call, int (*run)(void *), void *arguments, size_t size, void *object,
                   void (*let_go)(void *object)) {
  const char *const function = "oa_submit_here";
  bool held = false;
  int status, ended = OA_OK;
  if (!call) {
    status = oa_fail_null(function, "call");
  } else if (!call->open) {
    status = fail_not_begun(function, call);
  } else {
    const oa_device *device = call->device;
    const bool is_wrong = !run || (size && !arguments) || size > PTRDIFF_MAX / 2 || !device->backend->submit;
    oa_here *here = is_wrong ? NULL : malloc(sizeof *here + size);
    if (here) {
      *here = (oa_here){.run = run};
      snprintf(here->function, sizeof here->function, "%s", call->function);
      if (size) memcpy(here->arguments, arguments, size);
    }
    if (is_wrong)
      status =
          oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs a function to run, its arguments, and a device that runs it, %s",
                  call->function, function, device->name);
    else if (!here)
      status = oa_fail(OA_ERROR_MEMORY, "%s: no host memory for the call", call->function);
    else if (call->open == OA_CALL_CAPTURED)
      status = record_here(call, here, size, object, let_go, &held);
    else
      status = run_here(call, here);
    free(here);
    oa_saved_error saved;
    if (status) oa_error_save(&saved);
    ended = oa_end(call, status ? -1 : 0);
    if (status) oa_error_restore(&saved);
  }
  if (let_go && !held) let_go(object);
  return status ? status : ended;
}
