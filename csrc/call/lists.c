/* Calls with lists of device pointers, for vendors' batched functions. Each pointer becomes a separate operand, which
 * oa_begin checks and moves like any other. After oa_begin, the addresses go to the device as arrays. */
#include "call/call.h"
#include "call/extent.h"
#include "device/memory.h"
#include "library/library.h"
#include "region/capture.h"
#include "region/slot.h"
#include "transfer/transfer_trace.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_listed(const oa_operand *o) { return o->extent.part & OA_LISTED; }

/* Returns whether the operand continues the list of the operand before it. */
static bool goes_on(const oa_call *call, int i) {
  const oa_operand *o = &call->operands[i];
  return i > 0 && is_listed(o) && is_listed(&o[-1]) && o[-1].pointer == o->pointer;
}

/* -- counting -- */

static int fail_count(const oa_call *call, const oa_operand *o, int parts, int64_t needed) {
  const oa_pointer_list *list = o->pointer;
  const char *remedy = list->at ? "pass as many pointers" : "pass a pointer whose first axis has as many";
  if (parts > 1)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs %lld arrays (the sum of %s), got %lld; %s", call->function, o->name,
                   (long long)needed, o->extent.batch_name, (long long)list->count, remedy);
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs %lld arrays (%s=%lld), got %lld; %s", call->function, o->name,
                 (long long)needed, o->extent.batch_name, (long long)o->extent.batch, (long long)list->count, remedy);
}

/* Checks the list of operand i against the counts of all operands that share it. Sets *needed to the sum of these
 * counts. */
static int check_list(const oa_call *call, int i, int64_t *needed) {
  const oa_operand *o = &call->operands[i];
  const oa_pointer_list *list = o->pointer;
  int parts = 0;
  *needed = 0;
  if (!list) return oa_fail_null(call->function, o->name);
  do {
    const oa_extent *e = &o[parts].extent;
    if (e->batch < 0) return oa_extent_negative(call, &o[parts], e->batch_name, e->batch);
    if (__builtin_add_overflow(*needed, e->batch, needed) || *needed > INT64_MAX / 16)
      return oa_extent_overflow(call, &o[parts]);
    parts++;
  } while (i + parts < call->count && goes_on(call, i + parts));
  if (list->count >= 0 && list->count != *needed) return fail_count(call, o, parts, *needed);
  if (!list->at && !list->first && *needed) return oa_fail_null(call->function, o->name);
  if (list->first && parts > 1)
    return oa_fail(OA_ERROR_ARGUMENT,
                   "%s: %s needs a list of pointers, one an array, because its groups differ; got one pointer to all",
                   call->function, o->name);
  return OA_OK;
}

/* Counts the operands, one for each array, and the addresses in arrays. */
static int count_all(const oa_call *call, int64_t *operands, int64_t *addresses) {
  int64_t needed;
  int status;
  *operands = *addresses = 0;
  if (call->count < 1)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: a call needs at least 1 operand, got %d", call->function, call->count);
  for (int i = 0; i < call->count; i++) {
    const oa_operand *o = &call->operands[i];
    if (!o->name) return oa_fail_operand(call, o);
    if (!is_listed(o)) {
      *operands += o->pointer || !(o->extent.part & OA_OPTIONAL);
      continue;
    }
    if (goes_on(call, i)) continue;
    if ((status = check_list(call, i, &needed))) return status;
    *operands += ((const oa_pointer_list *)o->pointer)->first ? 1 : needed;
    *addresses += needed;
  }
  if (*operands <= INT_MAX) return OA_OK;
  return oa_fail(OA_ERROR_OVERFLOW, "%s: a call takes at most %d arrays, got %lld", call->function, INT_MAX,
                 (long long)*operands);
}

/* -- one operand per array -- */

/* Fills `to` with an operand for each array of the caller's operands. If `names` is not NULL, fills it with their
 * names. */
static void expand(const oa_call *call, oa_operand *to, char *names, size_t name_size) {
  int64_t at = 0; /* index in the list */
  for (int i = 0; i < call->count; i++) {
    const oa_operand *o = &call->operands[i];
    const oa_pointer_list *list = o->pointer;
    if (!is_listed(o)) {
      if (!o->pointer && (o->extent.part & OA_OPTIONAL)) continue;
      *to = *o;
      to++->extent.part &= ~OA_OPTIONAL;
      continue;
    }
    if (!goes_on(call, i)) at = 0;
    if (list->first) {
      *to = *o;
      to->pointer = list->first;
      to->extent.part ^= OA_LISTED | OA_BATCHED;
      to->extent.stride = list->stride;
      to++->extent.stride_name = "stride";
      continue;
    }
    for (int64_t k = 0; k < o->extent.batch; k++, at++, to++) {
      *to = *o;
      to->pointer = list->at[at];
      to->extent.part &= ~OA_LISTED;
      to->extent.batch = at; /* only operands with the same index in their lists may share memory */
      if (!names) continue;
      snprintf(names, name_size, "%s[%lld]", o->name, (long long)at);
      to->name = names;
      names += name_size;
    }
  }
}

/* Begins the call again with names such as "A[17]", after its arguments were found to be wrong. */
static __attribute__((cold, noinline)) int begin_with_names(oa_call *call, const oa_call *original, oa_lists *lists,
                                                            int status) {
  enum { NAME = 64 };
  oa_saved_error saved;
  oa_error_save(&saved);
  lists->names = malloc((size_t)call->count * NAME);
  if (!lists->names) {
    oa_error_restore(&saved);
    return status;
  }
  expand(original, lists->operands, lists->names, NAME);
  return oa_begin(call);
}

/* Returns whether oa_begin failed because of an argument. */
static bool is_of_an_argument(int status) { return status && status != OA_ERROR_MEMORY && status != OA_ERROR_LOST; }

/* -- the addresses -- */

/* Writes the address of every array; the addresses of a list are contiguous. */
static void write_addresses(const oa_call *original, const oa_operand *expanded, void **to) {
  for (int i = 0; i < original->count; i++) {
    const oa_operand *o = &original->operands[i];
    const oa_pointer_list *list = o->pointer;
    if (!is_listed(o)) {
      expanded += o->pointer || !(o->extent.part & OA_OPTIONAL);
    } else if (list->first) {
      const int64_t itemsize = oa_itemsize(((const oa_slot *)expanded->slot)->dtype);
      const int64_t step = expanded->touched ? list->stride * itemsize : 0; /* 0: the call touches nothing */
      const uintptr_t first = (uintptr_t)expanded->address;                 /* otherwise NULL */
      for (int64_t k = 0; k < o->extent.batch; k++) *to++ = (void *)(first + (uintptr_t)(k * step));
      expanded++;
    } else {
      for (int64_t k = 0; k < o->extent.batch; k++) *to++ = expanded++->address;
    }
  }
}

/* Sets the addresses of the caller's operands. `arrays`: the place of the arrays of addresses; NULL if there are
 * none. */
static void hand_out(const oa_call *original, const oa_operand *expanded, void **arrays) {
  for (int i = 0; i < original->count; i++) {
    oa_operand *o = &original->operands[i];
    if (!is_listed(o)) {
      const bool absent = !o->pointer && (o->extent.part & OA_OPTIONAL);
      o->address = absent ? NULL : expanded++->address;
      continue;
    }
    o->address = arrays;
    if (arrays) arrays += o->extent.batch;
    expanded += ((const oa_pointer_list *)o->pointer)->first ? 1 : o->extent.batch;
  }
}

/* Copies the addresses up, in the order of a stream. */
static int copy_up(const oa_call *call, const oa_lists *lists, void *stream, uint64_t address) {
  oa_device *device = call->device;
  const int64_t nbytes = (int64_t)lists->nbytes;
  oa_move move = {
      .host = lists->addresses,
      .address = address,
      .lines = {0, nbytes, nbytes, 1},
      .name = "the addresses of its arrays",
      .trace = {.why = "addresses for", .region = ((const oa_region_state *)call->region)->serial, .is_copy = true}};
  const int64_t begun = oa_trace_begin_up(&move, 1);
  const int status = oa_transfer_up(device, stream, &move, 1);
  if (begun) oa_trace_copies(OA_TRACE_UP, begun, device, &move, 1, call->function, status);
  return status;
}

/* Copies the addresses up before the call, in its stream. Waits for the copy if the library takes no stream. */
static int send(const oa_call *call, oa_lists *lists) {
  oa_device *device = call->device;
  void *stream = ((const oa_stream *)call->stream)->native;
  /* The call frees this memory when it ends. */
  int status = oa_device_allocate(device, stream, lists->nbytes, &lists->address);
  if (!status) status = copy_up(call, lists, stream, lists->address);
  /* A library without streams needs the addresses when it is called. oa_begin has waited for all other work that the
   * library needs. */
  if (!status && call->library && call->library->state->waits)
    status = device->backend->stream_synchronize(device, stream);
  return status;
}

/* Copies the addresses of a captured call to memory that its graph keeps. The arrays' memory does not move while the
 * graph can be replayed. Sets *address. */
static int keep(const oa_call *call, const oa_lists *lists, uint64_t *address) {
  const oa_region_state *region = call->region;
  const oa_device *device = call->device;
  void *stream = region->stream->native; /* the captured stream would copy at each replay */
  int status = oa_capture_take(oa_capture_of(region, call->stream), region, lists->nbytes, address);
  if (!status) status = copy_up(call, lists, stream, *address);
  return status ? status : device->backend->stream_synchronize(call->device, stream);
}

static bool has_lists(const oa_call *call) {
  for (int i = 0; i < call->count; i++)
    if (is_listed(&call->operands[i])) return true;
  return false;
}

/* Makes the arrays of addresses, after oa_begin. */
static int make_addresses(const oa_call *call, const oa_call *original, oa_lists *lists, int64_t count) {
  const oa_device *device = call->device;
  if (!has_lists(original) || (call->special & OA_ENDS_UNWRITTEN && oa_call_writes_nothing(call))) {
    hand_out(original, lists->operands, NULL);
    return OA_OK;
  }
  lists->nbytes = (size_t)(count ? count : 1) * sizeof *lists->addresses;
  lists->addresses = calloc(1, lists->nbytes);
  if (!lists->addresses)
    return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %lld addresses", call->function, (long long)count);
  write_addresses(original, lists->operands, lists->addresses);
  const bool captured = call->open == OA_CALL_CAPTURED;
  uint64_t address = (uint64_t)(uintptr_t)lists->addresses;
  int status = OA_OK;
  if (captured)
    status = keep(call, lists, &address);
  else if (!(device->backend->flags & OA_SYNCHRONOUS) && !(status = send(call, lists)))
    address = lists->address;
  if (status) return oa_fail_in(status, "%s: bringing up the addresses of its arrays", call->function);
  hand_out(original, lists->operands, (void **)(uintptr_t)address);
  return OA_OK;
}

/* -- beginning -- */

/* Notes that a program's graph can't have the call, and that a graph of the core can, unless the library forbids it. */
static void note_captures(oa_call *call) {
  const oa_library *library = call->library;
  if (call->uncaptured) return;
  call->uncaptured =
      "the addresses of its arrays would have to be copied up; use a strided function, or make the "
      "call outside of the capture";
  if (!library ||
      (!library->uncaptured && !library->state->waits && !(call->special & (OA_ON_DEFAULT_STREAM | OA_ON_HOST_MEMORY))))
    call->special |= OA_KEEPS_VALUES;
}

/* Frees the memory of the call, which gets the caller's operands back. */
static int give_up(oa_call *call, const oa_call *original, oa_lists *lists, int status) {
  call->operands = original->operands;
  call->count = original->count;
  free(lists->names);
  free(lists);
  return status;
}

int oa_begin_lists(oa_call *call) {
  int64_t count, addresses;
  int status;
  if (!call) return oa_fail_null("oa_begin_lists", "call");
  if (call->open) return oa_call_fail_open("oa_begin_lists", call);
  if (!call->function || !call->operands)
    return oa_fail_null("oa_begin_lists", call->function ? "operands" : "function");
  if ((status = count_all(call, &count, &addresses)) || !count) return status;
  oa_lists *lists = malloc(sizeof *lists + (size_t)count * sizeof *lists->operands);
  if (!lists) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %lld operands", call->function, (long long)count);
  const oa_call original = *call;
  if (has_lists(&original)) note_captures(call);
  *lists = (oa_lists){.caller_operands = call->operands, .caller_count = call->count};
  expand(&original, lists->operands, NULL, 0);
  call->operands = lists->operands;
  call->count = (int)count;
  status = oa_begin(call);
  if (is_of_an_argument(status)) status = begin_with_names(call, &original, lists, status);
  if (status) return give_up(call, &original, lists, status);
  status = make_addresses(call, &original, lists, addresses);
  call->lists = lists;
  if (!status && call->library && call->library->state->waits) {
    const oa_device *device = call->device;
    status = device->backend->stream_synchronize(call->device, ((const oa_stream *)call->stream)->native);
  }
  return status ? oa_call_fail(call, status) : OA_OK;
}
