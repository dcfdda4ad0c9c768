/* Chains: captured calls of a region. A replay is one call, whose operands are all the arrays that the captured calls
 * use. */
#include "offload_args/chain.h"

#include "base/number.h"
#include "base/sized.h"
#include "call/call.h"
#include "device/device.h"
#include "device/memory.h"
#include "device/staging.h"
#include "region/aborted.h"
#include "region/caller.h"
#include "region/capture.h"
#include "region/slot.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct chain {
  oa_slot *slot;
  oa_region *region;
  oa_device *device;
  /* the chain owns the stream of the capture, so no other call uses the memory of the stream's handles */
  oa_capture capture;
  bool capturing;
  bool released; /* the chain has no handle any more, and the last user frees the chain */
  bool ending;   /* a thread destroys the graph without the lock; it frees the chain if it was released meanwhile */
  int users;     /* number of threads that replay the chain, or end its capture */
  void *graph;   /* the backend's graph; NULL before the capture has ended */
  bool is_ready; /* the graph can be launched */
  int64_t replays;
  oa_stream *last; /* the stream of the last replay; NULL: no replay yet, or the last replay went to a foreign stream */
  uint64_t ticket; /* ticket of the last replay */
  bool was_foreign; /* a replay went to a foreign stream */
  void *event;      /* follows the last replay if an object of the calls may be aborted; NULL: no such replay yet */
} chain;

/* Takes the lock and returns the chain of a handle. If the handle has no chain, returns NULL with *status and the text
 * set, and the lock free. */
static chain *enter(const char *function, const oa_chain *handle, int *status) {
  if ((*status = oa_core_start(function))) return NULL;
  oa_lock();
  const oa_slot *slot = oa_slot_of(handle, OA_SLOT_CHAIN, status);
  if (slot) return slot->state;
  oa_unlock();
  if (*status == OA_ERROR_STALE)
    oa_fail(*status, "%s: the chain was released", function);
  else
    oa_fail(*status, "%s: chain needs a chain from oa_chain_begin, got the address %p", function, (const void *)handle);
  return NULL;
}

/* Returns the chain's region, or NULL if the region has ended. Called with the lock. */
static oa_region_state *region_of(const chain *c) {
  int status;
  const oa_slot *slot = oa_slot_of(c->region, OA_SLOT_REGION, &status);
  return slot && slot->region->phase == OA_OPEN ? slot->region : NULL;
}

/* -- capturing ----------------------------------------------------------------------------------------------------- */

/* Begins to capture the chain's stream. Called with the lock. */
static int begin_capture(chain *c) {
  oa_stream *stream = c->capture.stream;
  int status = oa_stream_make_known(stream); /* has to come before the capture begins, because it may record an event */
  if (status) return status;
  status = c->device->backend->graph_begin(c->device, &stream->native);
  if (status) oa_stream_make_unknown(stream);
  c->capturing = !status;
  return status;
}

/* Ends the capture of the region's calls. Called with the lock, which it frees and takes again. */
static int end_capture(chain *c) {
  oa_region_state *region = region_of(c); /* not NULL, because a region is not left while its calls are captured */
  oa_stream *stream = c->capture.stream;
  if (region) region->capture = NULL;
  c->capturing = false;
  oa_capture_end(&c->capture);
  oa_stream_make_unknown(stream);
  c->users++; /* no thread frees or aborts the chain before it has its graph */
  oa_unlock();
  const int status = c->device->backend->graph_end(c->device, &stream->native, &c->graph);
  oa_lock();
  c->users--;
  c->capture.is_whole = true;
  oa_announce_change();
  return status;
}

/* Destroys the graph after its last replay, and ends the holds of the objects of its calls. Called with the lock, which
 * it frees and takes again. */
static int end_graph(chain *c) {
  oa_device *device = c->device;
  int status = OA_OK;
  c->ending = true;
  if (c->capturing) status = end_capture(c);
  const bool waits = c->last && c->last->waited < c->ticket;
  void *event = c->event;
  c->event = NULL;
  /* This is false if the region was left, because leaving has waited for the caller's streams. */
  const bool quiesces = c->was_foreign && region_of(c);
  void *native = waits ? c->last->native : NULL;
  oa_unlock();
  /* Later operations of the stream may wait for much longer than the replay. */
  const int waited = !waits  ? OA_OK
                     : event ? device->backend->event_synchronize(device, event)
                             : device->backend->stream_synchronize(device, native);
  if (waited || quiesces) oa_device_quiesce(device);
  if (event) device->backend->event_destroy(device, event);
  if (c->graph && !atomic_load(&device->lost)) {
    const int destroyed = device->backend->graph_destroy(device, c->graph);
    if (!status) status = destroyed;
  }
  c->graph = NULL;
  oa_capture_let_go(&c->capture);
  oa_lock();
  c->ending = false;
  oa_announce_change();
  return status;
}

/* Frees a chain that has no handle any more. Called with the lock, which it frees and takes again. */
static int destroy(chain *c) {
  const int status = end_graph(c);
  oa_unlock();
  oa_capture_free(&c->capture);
  oa_lock();
  oa_stream_return(c->capture.stream);
  free(c);
  return status;
}

/* Frees a released chain that no thread uses any more. Called with the lock, which it frees and takes again. */
static int destroy_unused(chain *c) { return c->released && !c->users && !c->ending ? destroy(c) : OA_OK; }

static chain *chain_of(const oa_capture *capture) { return (chain *)((uintptr_t)capture - offsetof(chain, capture)); }

/* Returns whether a replay may still run. Never waits. Called with the lock. */
static bool runs(const chain *c) {
  oa_saved_error saved;
  int done = 1;
  if (!c->event || c->was_foreign) return oa_object_runs(c->device, &c->capture.aborted);
  if (atomic_load(&c->device->lost)) return false;
  oa_error_save(&saved);
  if (c->device->backend->event_done(c->device, c->event, &done)) done = 1;
  oa_error_restore(&saved);
  return !done;
}

/* Ends the graph of a chain after an object of its calls was aborted, unless the chain is in use. */
static bool end_after_abort(oa_capture *capture) {
  chain *c = chain_of(capture);
  if (c->ending || c->users || runs(c)) return false;
  oa_saved_error saved;
  end_graph(c);
  oa_error_save(&saved);
  destroy_unused(c);
  oa_error_restore(&saved);
  return true;
}

/* Waits until the captured calls of other threads have ended. Fails if this thread has a call open. Fails and frees the
 * chain if it was released meanwhile. Called with the lock, which it frees and takes again. */
static int wait_for_calls(const char *function, chain *c) {
  if (!c->capturing || !c->capture.open) return OA_OK;
  if (oa_caller_of_thread && oa_caller_of_thread->count)
    return oa_fail(OA_ERROR_CAPTURE, "%s: a call of this thread has not ended; end it first", function);
  c->users++;
  while (c->capturing && c->capture.open) oa_wait_change();
  c->users--;
  if (!c->released) return OA_OK;
  destroy_unused(c);
  return oa_fail(OA_ERROR_STALE, "%s: the chain was released meanwhile", function);
}

int oa_chain_begin(oa_region *handle, oa_chain **result) {
  const char *const function = "oa_chain_begin";
  int status;
  if (!result) return oa_fail_null(function, "chain");
  if ((status = oa_core_start(__func__))) return status;
  chain *c = calloc(1, sizeof *c);
  if (!c) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for a chain", function);
  c->region = handle;
  c->capture.end = end_after_abort;
  oa_lock();
  oa_region_state *region = region_of(c);
  int capturing = 0;
  if (!region) {
    const int kind = oa_slot_of(handle, OA_SLOT_REGION, &status) ? OA_ERROR_STALE : status;
    status = oa_fail(kind, "%s: region needs to be an open region", function);
  } else if (!(status = oa_device_usable(region->device)) && !region->device->backend->graph_begin) {
    status = oa_fail(OA_ERROR_VERSION, "%s: %s has no graphs", function, region->device->name);
  } else if (!status) {
    status = oa_stream_capturing(region->calls, false, &capturing);
  }
  if (!status && (capturing || region->capture))
    status = oa_fail(OA_ERROR_CAPTURE, "%s: the region's calls are being captured already; end that capture first",
                     function);
  c->device = region ? region->device : NULL;
  c->slot = status ? NULL : oa_slot_take(NULL, OA_SLOT_CHAIN);
  if (!status) status = c->slot ? oa_stream_take_for_capture(c->device, &c->capture.stream) : OA_ERROR_MEMORY;
  if (!status && !(status = begin_capture(c))) {
    c->slot->state = c;
    region->capture = &c->capture;
    *result = oa_slot_handle(c->slot);
    oa_unlock();
    return OA_OK;
  }
  if (c->capture.stream) oa_stream_return(c->capture.stream);
  if (c->slot) oa_slot_free(c->slot);
  oa_unlock();
  free(c);
  return status;
}

int oa_chain_end(oa_chain *handle) {
  const char *const function = "oa_chain_end";
  int status;
  chain *c = enter(function, handle, &status);
  if (!c) return status;
  if (!(status = wait_for_calls(function, c)) && !c->capturing)
    status = oa_fail(OA_ERROR_ARGUMENT, "%s: the capture has ended already", function);
  if (status) {
    oa_unlock();
    return status;
  }
  status = end_capture(c);
  const bool was_released = c->released;
  if (was_released)
    status = oa_fail(OA_ERROR_STALE, "%s: the chain was released meanwhile", function);
  else if (!status && c->capture.failed)
    status = oa_fail(OA_ERROR_CAPTURE, "%s: a captured call had failed; capture the calls again", function);
  if (status) {
    oa_saved_error saved;
    oa_error_save(&saved);
    if (!was_released) oa_slot_free(c->slot);
    c->released = true;
    destroy_unused(c);
    oa_error_restore(&saved);
  }
  oa_unlock();
  return status;
}

/* -- replaying ----------------------------------------------------------------------------------------------------- */

static int fail_aborted(const char *function, const chain *c) {
  return oa_fail(OA_ERROR_STALE, "%s: %s of the captured calls was aborted; make another, and capture the calls again",
                 function, atomic_load(&c->capture.aborted));
}

static int fail_stale(const char *function) {
  return oa_fail(OA_ERROR_STALE,
                 "%s: the region of an array that the captured calls use has ended; capture the calls again", function);
}

/* Makes an operand of each group. Returns OA_OK, or OA_ERROR_STALE. Called with the lock. */
static int declare(const char *function, const chain *c, oa_operand *operands) {
  int status;
  for (int i = 0; i < c->capture.root_count; i++)
    if (!oa_slot_of(c->capture.roots[i].root, OA_SLOT_POINTER, &status)) return fail_stale(function);
  for (int i = 0; i < c->capture.count; i++) {
    const oa_captured *g = &c->capture.groups[i];
    const oa_slot *slot = oa_slot_of(g->root, OA_SLOT_POINTER, &status);
    if (!slot || !slot->mapping || slot->mapping->address != g->address) return fail_stale(function);
    operands[i] = (oa_operand){.name = slot->mapping->views[slot->view].name,
                               .pointer = g->root,
                               .access = !g->writes ? OA_READ
                                         : g->reads ? OA_READ_WRITE
                                                    : OA_OVERWRITE,
                               .dtype = OA_ANY,
                               .extent = {.kind = OA_EXTENT_ALL}};
  }
  return OA_OK;
}

/* Marks the regions' own pointers through which the calls write, as oa_end marks the operands' pointers. Called with
 * the lock. */
static void mark_writers(const chain *c) {
  for (int i = 0; i < c->capture.root_count; i++) {
    int status;
    oa_slot *slot = c->capture.roots[i].writes ? oa_slot_of(c->capture.roots[i].root, OA_SLOT_POINTER, &status) : NULL;
    if (slot) slot->wrote = true;
  }
}

/* A loop of a chain on the device: oa_chain_loop's arguments, and results. */
typedef struct device_loop {
  oa_graph_until until;
  oa_block *block; /* the block that receives the outcome */
  bool ran;
  int64_t count;
  int ended;
} device_loop;

/* Runs the calls in a loop on the device, and waits for the loop. Sets loop->ran; if the device has no loop for these
 * calls, does nothing. The call must have begun. */
static int run_loop(const oa_call *call, void *graph, device_loop *loop) {
  enum { COUNT_BYTES = 8 };
  oa_device *device = call->device;
  const oa_stream *stream = call->stream;
  const oa_region_state *region = call->region;
  void *native = NULL;
  int status = oa_device_allocate(device, stream->native, COUNT_BYTES, &loop->until.count);
  if (status) return status == OA_ERROR_MEMORY ? OA_OK : status;
  status = device->backend->graph_loop(device, graph, &loop->until, &native);
  loop->ran = native;
  if (native) {
    status = device->backend->fill(device, stream->native, loop->until.count, COUNT_BYTES, 0, 4, COUNT_BYTES, 1);
    if (!status) status = device->backend->graph_launch(device, stream->native, native);
    const int waited = oa_device_wait_stream(device, stream->native, region->serial, call->function);
    if (!status) status = waited;
    if (!status) {
      loop->count = (int64_t)loop->until.outcome[0];
      loop->ended = (int)loop->until.outcome[1];
    }
  }
  oa_saved_error saved;
  oa_error_save(&saved);
  if (native && !atomic_load(&device->lost)) {
    const int destroyed = device->backend->graph_destroy(device, native);
    if (!status) status = destroyed;
  }
  const int freed = oa_device_free(device, stream->native, loop->until.count, COUNT_BYTES);
  if (!status)
    status = freed;
  else
    oa_error_restore(&saved);
  return status;
}

/* Records the chain's event after a replay. Called without the lock. */
static int mark_replay(chain *c, const oa_stream *stream) {
  const oa_backend *backend = c->device->backend;
  oa_lock();
  void *event = c->event, *spare = NULL;
  oa_unlock();
  if (!event) OA_TRY(backend->event_create(c->device, &spare));
  oa_lock(); /* another thread may have replayed the chain meanwhile */
  if (!c->event) {
    c->event = spare;
    spare = NULL;
  }
  event = c->event;
  oa_unlock();
  if (spare) backend->event_destroy(c->device, spare);
  const int status = backend->event_record(c->device, event, stream->native);
  if (!status) return OA_OK;
  oa_lock(); /* the stream is waited for instead; another thread may still use the event, so it is not destroyed */
  if (c->event == event) c->event = NULL;
  oa_unlock();
  return status;
}

/* Replays a chain that this thread uses, or runs its loop on the device. Called with the lock, which is free when it
 * returns. */
static int replay(const char *function, chain *c, device_loop *loop) {
  const int count = c->capture.count;
  oa_operand *operands = count ? calloc((size_t)count, sizeof *operands) : NULL;
  int status = OA_OK;
  if (!count) { /* the chain's calls touch no element */
    oa_unlock();
    return OA_OK;
  }
  if (!operands) status = oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %d operands", function, count);
  if (!status) status = declare(function, c, operands);
  if (status) {
    oa_unlock();
    free(operands);
    return status;
  }
  oa_call call = oa_call_of(function, NULL, operands, count);
  call.special = OA_MAY_OVERLAP | OA_REPLAYS;
  call.uncaptured = "a chain is replayed by a launch of its own; replay it outside of the capture";
  if (!(status = oa_begin_locked(&call))) {
    oa_stream *stream = call.stream;
    /* Read before the call ends, because the stream may be freed afterwards. */
    const bool is_foreign = stream->number < 0;
    status =
        loop ? run_loop(&call, c->graph, loop) : c->device->backend->graph_launch(c->device, stream->native, c->graph);
    if (!status && c->capture.objects && atomic_load(&c->device->abortable)) status = mark_replay(c, stream);
    const bool did_nothing = loop && !loop->ran;
    oa_saved_error saved;
    oa_error_save(&saved);
    const int ended = did_nothing ? (oa_call_cancel(&call), OA_OK) : oa_end_of(&call, status, &c->capture.aborted);
    if (OA_UNLIKELY(atomic_load(&c->capture.aborted) != NULL))
      status = fail_aborted(function, c);
    else if (status)
      oa_error_restore(&saved);
    else
      status = ended;
    if (!did_nothing) {
      oa_lock();
      mark_writers(c);
      c->was_foreign |= is_foreign;
      if (!is_foreign) {
        c->last = stream;
        c->ticket = stream->ticket;
      }
      c->replays += loop ? loop->count : 1;
      oa_unlock();
    }
  }
  free(operands);
  return status;
}

/* Takes the lock, and begins to use a chain that can be replayed. Returns NULL with the lock free if there is none. */
static chain *use(const char *function, const oa_chain *handle, int *status) {
  chain *c = enter(function, handle, status);
  if (!c) return NULL;
  if (!region_of(c))
    *status =
        oa_fail(OA_ERROR_STALE, "%s: the chain's region has ended; capture the calls in an open region", function);
  else if (atomic_load(&c->capture.aborted))
    *status = fail_aborted(function, c);
  else if (!c->capture.is_whole)
    *status = oa_fail(OA_ERROR_CAPTURE, "%s: the chain is still being captured; end the capture first", function);
  if (*status) {
    oa_unlock();
    return NULL;
  }
  c->users++;
  return c;
}

/* Ends a use of a chain. The last user frees the chain if it was released. */
static void end_use(chain *c) {
  oa_lock();
  if (--c->users == 0 && atomic_load(&c->capture.aborted)) oa_announce_change();
  if (c->users == 0 && c->released) {
    oa_saved_error saved;
    oa_error_save(&saved);
    destroy_unused(c);
    oa_error_restore(&saved);
  }
  oa_unlock();
}

int oa_chain_replay(oa_chain *handle) {
  const char *const function = "oa_chain_replay";
  int status;
  chain *c = use(function, handle, &status);
  if (!c) return status;
  if (!c->is_ready && c->device->backend->graph_prepare) {
    oa_unlock();
    status = c->device->backend->graph_prepare(c->device, c->graph);
    oa_lock();
  }
  c->is_ready |= !status;
  if (status)
    oa_unlock();
  else
    status = replay(function, c, NULL);
  end_use(c);
  return status;
}

/* Sets the bits that a loop tests: all bits of a number's parts, except the signs of floats. In a zero, these bits are
 * all 0. */
static void set_words(oa_graph_until *until, int dtype) {
  const bool is_complex = dtype == OA_C64 || dtype == OA_C128;
  const bool is_float = is_complex || dtype == OA_F8E4M3 || dtype == OA_F8E5M2 || dtype == OA_F16 || dtype == OA_BF16 ||
                        dtype == OA_F32 || dtype == OA_F64;
  until->words = is_complex ? 2 : 1;
  until->word_bytes = (int)oa_itemsize(dtype) / until->words;
  until->bits = UINT64_MAX >> (is_float ? 65 - 8 * until->word_bytes : 0);
}

/* Returns whether the calls write the group of an element. Called with the lock. */
static bool writes_group_of(const chain *c, const oa_slot *slot) {
  const oa_mapping *mapping = slot->mapping;
  for (const oa_captured *g = c->capture.groups; g < c->capture.groups + c->capture.count; g++)
    if (g->writes && g->mapping == mapping && g->serial == mapping->serial && &mapping->groups[g->group] == slot->group)
      return true;
  return false;
}

/* If the calls do not write the element `until`, checks that a test of the element will not fail: otherwise the calls
 * would run once before that failure. Called with the lock. */
static int check_until(const char *function, const chain *c, const oa_any *until) {
  int status, arriving;
  const oa_slot *slot = oa_slot_of(until, OA_SLOT_POINTER, &status);
  if (!slot || writes_group_of(c, slot)) return OA_OK;
  oa_operand operand = {.name = "until", .pointer = until, .access = OA_READ, .dtype = OA_ANY};
  operand.extent.kind = OA_EXTENT_ALL;
  const oa_call call = oa_call_of(function, NULL, &operand, 1);
  oa_reach reach;
  oa_region_state *region;
  return oa_operands_find(&call, &reach, &region, &arriving);
}

/* Returns whether a loop on the device can test the element, which the calls have to write. Sets the place of the
 * element in *until. Called with the lock. */
static bool sees(const chain *c, const oa_slot *slot, oa_graph_until *until) {
  if (!writes_group_of(c, slot)) return false;
  set_words(until, slot->dtype);
  until->address = slot->mapping->address + (uint64_t)slot->offset;
  return slot->reads && until->address % (uint64_t)until->word_bytes == 0;
}

/* Runs the loop on the device, if the device can run it. */
static int loop_there(const char *function, const oa_chain *handle, const oa_any *until, int64_t at_most,
                      device_loop *loop) {
  /* Chains with more calls loop on the host: in a device's loop each node takes 1 us longer, and a test by the host
   * takes 14 us. */
  enum { MOST_CALLS = 8 };
  int status;
  chain *c = use(function, handle, &status);
  if (!c) return status;
  if (at_most > 0 && (status = check_until(function, c, until))) {
    oa_unlock();
    end_use(c);
    return status;
  }
  const oa_slot *slot = oa_slot_of(until, OA_SLOT_POINTER, &status);
  bool can = c->device->backend->graph_loop && c->capture.call_count <= MOST_CALLS && at_most > 0 && slot &&
             sees(c, slot, &loop->until);
  status = OA_OK;
  if (can) {
    loop->until.at_most = at_most;
    oa_unlock();
    loop->block = oa_block_take(c->device, OA_BLOCK_SMALL, OA_BLOCK_NOW);
    oa_lock();
    can = loop->block;
  }
  if (can) {
    loop->until.outcome = loop->block->memory;
    status = replay(function, c, loop);
    oa_block_return(c->device, loop->block);
  } else {
    oa_unlock();
  }
  end_use(c);
  return status;
}

/* Reads the element after all calls that use it, and sets *ended to 1 if the element is not 0. */
static int look(const oa_any *until, int dtype, int *ended) {
  unsigned char value[16] = {0};
  const int status = oa_pointer_read(until, value, 0, NULL, NULL);
  *ended = !status && !oa_number_is_zero(value, dtype);
  return status;
}

int oa_chain_loop(oa_chain *handle, const oa_any *until, int64_t at_most, int64_t *count, int *ended) {
  const char *const function = "oa_chain_loop";
  if (!count || !ended) return oa_fail_null(function, count ? "ended" : "count");
  *count = 0;
  *ended = 0;
  int status;
  if (!enter(function, handle, &status)) return status;
  oa_unlock();
  const oa_slot *slot = oa_slot_enter(function, "until", until, &status);
  if (!slot) return status;
  const int dtype = slot->dtype;
  const int64_t nbytes = slot->nbytes;
  oa_unlock();
  if (nbytes != oa_itemsize(dtype))
    return oa_fail(OA_ERROR_EXTENT, "%s: until needs one element, of %lld bytes, got %lld bytes", function,
                   (long long)oa_itemsize(dtype), (long long)nbytes);
  device_loop loop = {.ran = false};
  status = loop_there(function, handle, until, at_most, &loop);
  if (loop.ran || status) {
    *count = loop.count;
    *ended = loop.ended;
    return status;
  }
  while (!status && !*ended && *count < at_most)
    if (!(status = oa_chain_replay(handle))) {
      ++*count;
      status = look(until, dtype, ended);
    }
  return status;
}

/* -- the rest ------------------------------------------------------------------------------------------------------ */

int oa_chain_get_info(const oa_chain *handle, oa_chain_info *info) {
  const char *const function = "oa_chain_get_info";
  int status;
  if ((status = oa_sized_check(function, "info", info, OA_FIRST_CHAIN_INFO, sizeof *info))) return status;
  const chain *c = enter(function, handle, &status);
  if (!c) return status;
  const oa_chain_info now = {.size = sizeof now,
                             .calls = c->capture.call_count,
                             .arrays = c->capture.count,
                             .replays = c->replays,
                             .region = c->region,
                             .nbytes = c->capture.nbytes};
  oa_unlock();
  oa_sized_write(info, &now);
  return OA_OK;
}

int oa_chain_get_use(const oa_chain *handle, int call, int use, oa_chain_use *info) {
  const char *const function = "oa_chain_get_use";
  int status;
  if ((status = oa_sized_check(function, "info", info, OA_FIRST_CHAIN_USE, sizeof *info))) return status;
  const chain *c = enter(function, handle, &status);
  if (!c) return status;
  oa_chain_use now = {.size = sizeof now, .array = -1};
  const int calls = c->capture.call_count;
  if (!c->capture.is_whole)
    status = oa_fail(OA_ERROR_CAPTURE, "%s: the chain is still being captured; end the capture first", function);
  else if (call < 0 || call >= calls || use < 0)
    status = oa_fail(OA_ERROR_ARGUMENT, "%s: needs a call from 0 to %d and a use of 0 or more, got %d and %d", function,
                     calls - 1, call, use);
  if (!status) {
    const oa_captured_call *of = &c->capture.calls[call];
    snprintf(now.function, sizeof now.function, "%s", of->function);
    now.uses = of->uses;
    if (use < of->uses) {
      const oa_captured_use *u = &c->capture.uses[of->first + use];
      const oa_captured *g = &c->capture.groups[u->group];
      int stale;
      const oa_slot *slot = oa_slot_of(g->root, OA_SLOT_POINTER, &stale);
      now.array = u->group;
      now.reads = u->reads;
      now.writes = u->writes;
      now.pointer = g->owns ? g->noted : g->root;
      if (slot && slot->mapping) snprintf(now.name, sizeof now.name, "%s", slot->mapping->views[slot->view].name);
    }
  }
  oa_unlock();
  if (!status) oa_sized_write(info, &now);
  return status;
}

int oa_chain_release(oa_chain *handle) {
  int status = OA_OK;
  if (!handle) return OA_OK;
  chain *c = enter("oa_chain_release", handle, &status);
  if (!c) return status;
  if (!(status = wait_for_calls("oa_chain_release", c))) {
    oa_slot_free(c->slot);
    c->released = true;
    status = destroy_unused(c);
  }
  oa_unlock();
  return status;
}
