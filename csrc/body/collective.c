#include "body/collective.h"
#include "call/call.h"
#include "call/group.h"
#include "region/capture.h"

#include <stdlib.h>

/* -- communicators -- */

static oa_object_state *state_of(const oa_value *object) {
  oa_object_state *state;
  memcpy(&state, object->bytes + sizeof(uint64_t), sizeof state);
  return state;
}

/* Reads the numbers of an object from the library. */
static __attribute__((cold, noinline)) const int *ask(const oa_routine *routine, const char *name,
                                                      oa_object_state *state) {
  const oa_library *library = routine->library;
  for (int i = 0; i < state->kind->told_count; i++) {
    int (*tell)(const void *, int *) = (int (*)(const void *, int *))oa_library_symbol(library, state->kind->tells[i]);
    if (!tell) return NULL;
    const int status = tell(state->native, &state->told[i]);
    if (status == library->success) continue;
    char text[OA_STATUS_TEXT];
    oa_library_status_text(library, status, text, sizeof text);
    oa_fail(OA_ERROR_LIBRARY, "%s: %s: %s returned %s", routine->function, name,
            library->symbols[state->kind->tells[i]], text);
    return NULL;
  }
  state->has_told = true;
  return state->told;
}

const int *oa_told(const oa_routine *routine, const char *name, const oa_value *object) {
  oa_object_state *state = state_of(object);
  return OA_LIKELY(state->has_told) ? state->told : ask(routine, name, state);
}

const void *oa_device_of_object(const oa_value *object) { return state_of(object)->device; }

/* -- groups -- */

static __attribute__((cold)) int fail_other_group(const char *function) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: a group of %s is open in this thread; end that first", function,
                 oa_group_of_thread.library->name);
}

/* Adds the call to the group, which then ends the call. */
static __attribute__((noinline)) int add(oa_call *call, oa_object_state *object) {
  const int status = oa_call_release(call);
  oa_grouped *grouped = oa_group_add(call);
  if (!grouped) return OA_ERROR_MEMORY;
  oa_lock();
  object->holders++;
  oa_unlock();
  grouped->object = object;
  return status;
}

/* Makes the graph that captures the call keep its communicator; otherwise the graph fails. */
static __attribute__((cold, noinline)) void keep(const oa_call *call, oa_object_state *object) {
  oa_capture *capture = oa_capture_of(call->region, call->stream);
  if (!oa_object_keep(call, object)) return;
  oa_lock();
  capture->failed = true;
  oa_unlock();
}

int oa_end_in_group(oa_call *call, const oa_value *object, int vendor_status) {
  if (OA_UNLIKELY(call->open == OA_CALL_CAPTURED) && vendor_status == call->library->success)
    keep(call, state_of(object));
  if (OA_LIKELY(!oa_group_of_thread.depth)) return oa_end_of(call, vendor_status, &state_of(object)->aborted);
  if (vendor_status == call->library->success && call->library == oa_group_of_thread.library)
    return add(call, state_of(object));
  return oa_end(call, vendor_status);
}

int oa_group_begins(oa_helper_call *call, oa_value *values, int vendor_status) {
  oa_group_of_calls *group = &oa_group_of_thread;
  const oa_library *library = call->routine->library;
  if (vendor_status == library->success && !group->depth)
    oa_group_open(library);
  else if (vendor_status == library->success && group->library == library)
    group->depth++;
  return oa_helper_end(call, values, vendor_status);
}

/* Ends the calls of a group with the status that the library returned at the end of the group. */
static int end_all(oa_grouped *grouped, int vendor_status, const char *function) {
  int status = OA_OK;
  while (grouped) {
    oa_grouped *next = grouped->next;
    const int ended = oa_end_of(&grouped->call, vendor_status, &grouped->object->aborted);
    if (!status) status = ended;
    const int destroyed = oa_object_let_go(function, grouped->object);
    if (!status) status = destroyed;
    free(grouped);
    grouped = next;
  }
  return status;
}

int oa_group_ends(oa_helper_call *call, oa_value *values, int vendor_status) {
  oa_group_of_calls *group = &oa_group_of_thread;
  const oa_library *library = call->routine->library;
  int status = OA_OK;
  if (group->library == library && group->depth && !--group->depth)
    status = end_all(oa_group_close(), vendor_status, call->routine->function);
  const int ended = oa_helper_end(call, values, vendor_status);
  return ended ? ended : status;
}

int oa_refuse_in_group(const oa_routine *routine) {
  if (OA_LIKELY(!oa_group_of_thread.depth)) return OA_OK;
  return fail_other_group(routine->function);
}
