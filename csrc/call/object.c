#include "call/object.h"

#include "base/sized.h"
#include "library/handles.h"
#include "region/aborted.h"
#include "region/caller.h"
#include "region/capture.h"

#include <stdlib.h>
#include <string.h>

/* Returns the kind of the library's own handle; NULL if the library has none. */
static const oa_object_kind *handle_kind(const oa_library *library) {
  for (int i = 0; i < library->object_kind_count; i++)
    if (library->object_kinds[i].is_handle) return &library->object_kinds[i];
  return NULL;
}

static int fail_object(const char *function, const oa_library *library, const oa_object_use *use, int status) {
  const char *title = library->name, *kind = use->kind ? use->kind->name : "handle";
  if (status == OA_ERROR_STALE) return oa_fail(status, "%s: %s was destroyed; make another one", function, use->name);
  return oa_fail(status, "%s: %s needs an object that %s made, a %s, got the address %p", function, use->name, title,
                 kind, use->handle);
}

/* Returns whether the object is a handle of another library that this library takes. */
static bool is_taken_handle(const oa_library *library, const oa_object_use *use) {
  const oa_object_state *state = use->state;
  return library->handles_of && !use->kind && state->kind->is_handle &&
         strcmp(state->library->name, library->handles_of) == 0;
}

/* Finds the object of one use. Called with the lock. */
static int find(const char *function, const oa_library *library, oa_object_use *use) {
  int status;
  const oa_slot *slot = oa_slot_of(use->handle, OA_SLOT_OBJECT, &status);
  if (!slot) return fail_object(function, library, use, status);
  const oa_object_state *state = use->state = slot->object;
  if (state->library == library && (!use->kind || state->kind == use->kind)) return OA_OK;
  if (is_taken_handle(library, use)) return OA_OK;
  return oa_fail(OA_ERROR_TYPE, "%s: %s needs a %s.%s, got a %s.%s", function, use->name,
                 library->handles_of && !use->kind ? library->handles_of : library->name,
                 use->kind ? use->kind->name : "Handle", state->library->name, state->kind->name);
}

static int fail_devices(const char *function, const oa_object_use *a, const oa_object_use *b) {
  return oa_fail(OA_ERROR_DEVICE, "%s: %s is of %s, and %s is of %s; make both for one device", function, b->name,
                 b->state->device->name, a->name, a->state->device->name);
}

/* Finds all objects. *busy: the first object that another call uses, or NULL. Called with the lock. */
static int find_all(const char *function, const oa_library *library, oa_object_use *uses, int count,
                    const oa_object_use **busy) {
  const oa_object_use *placed = NULL; /* the first object that has a device */
  *busy = NULL;
  for (int i = 0; i < count; i++) {
    const int status = find(function, library, &uses[i]);
    if (status) return status;
    const oa_object_state *state = uses[i].state;
    if (state->busy && !*busy) *busy = &uses[i];
    if (!state->device) continue;
    if (!placed) placed = &uses[i];
    if (state->device != placed->state->device) return fail_devices(function, placed, &uses[i]);
  }
  return OA_OK;
}

static int fail_own(const char *function, const oa_object_use *use) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s is in use by a call of this thread; end that first", function, use->name);
}

/* Returns whether a call of the other thread uses the object. */
static bool taking_needs(const oa_wait *wait, const oa_caller *other) {
  int ignored;
  const oa_slot *slot = oa_slot_of(wait->subject, OA_SLOT_OBJECT, &ignored);
  return slot && slot->object->busy && pthread_equal(slot->object->user, other->thread);
}

int oa_objects_take(const char *function, const oa_library *library, oa_object_use *uses, int count) {
  const oa_object_use *busy;
  int status;
  oa_lock();
  while (!(status = find_all(function, library, uses, count, &busy)) && busy) {
    const oa_wait wait = {function, taking_needs, busy->handle};
    if (pthread_equal(busy->state->user, pthread_self())) status = fail_own(function, busy);
    if (status || (status = oa_wait_for(&wait))) break;
  }
  for (int i = 0; i < count && !status; i++) {
    uses[i].state->busy = true;
    uses[i].state->user = pthread_self();
  }
  oa_unlock();
  return status;
}

void oa_objects_return(const oa_object_use *uses, int count) {
  if (!count) return;
  oa_lock();
  for (int i = 0; i < count; i++) uses[i].state->busy = false;
  oa_announce_change();
  oa_unlock();
}

static uint64_t last_stamp = 1; /* the lock guards this number; 1 stands for no object */

void oa_objects_renew(const oa_object_use *uses, int count) {
  oa_lock();
  for (int i = 0; i < count; i++) uses[i].state->stamp = ++last_stamp;
  oa_unlock();
}

uint64_t oa_object_stamp(const oa_object_state *state) {
  for (int i = 0; i < OA_MOST_HELD; i++)
    if (state->held[i].object) return 0; /* a held object may change */
  return atomic_load(&state->escaped) ? 0 : state->stamp;
}

/* -- the handle of a call -- */

int oa_object_take_handle(oa_call *call, void **handle) {
  if ((uintptr_t)*handle - oa_slots.base >= oa_slots.size) return OA_OK;
  oa_object_use use = {"handle", handle_kind(call->library), *handle, NULL};
  const int status = oa_objects_take(call->function, call->library, &use, 1);
  if (status) return status;
  call->object = use.state;
  *handle = use.state->native;
  return OA_OK;
}

int oa_object_handle_stream(const oa_call *call, void *handle, void **stream) {
  const oa_library *library = call->library;
  const oa_object_state *state = call->object;
  if (library->get_stream >= 0) return oa_library_handle_stream(library, handle, stream);
  if (!state || !state->stream)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: handle needs an object that %s made: the stream of an address is not known",
                   call->function, library->name);
  *stream = state->stream->native;
  return OA_OK;
}

int oa_object_fail_none(const oa_call *call) {
  const oa_object_kind *kind = handle_kind(call->library);
  return oa_fail(OA_ERROR_ARGUMENT, "%s: handle needs a %s.%s, got none; make one and pass it to each call",
                 call->function, call->library->name, kind ? kind->name : "Handle");
}

void oa_object_return_handle(oa_call *call) {
  if (!call->object) return;
  const oa_object_use use = {.state = call->object};
  call->object = NULL;
  oa_objects_return(&use, 1);
}

int oa_object_check_device(const oa_call *call, const oa_device *device) {
  const oa_object_state *state = call->object;
  if (!state || !state->device || state->device == device) return OA_OK;
  return oa_fail(OA_ERROR_DEVICE, "%s: handle is of %s, and %s is on %s; make one for that device", call->function,
                 state->device->name, call->operands[0].name, device->name);
}

/* -- making and destroying -- */

int oa_object_destroy_native(const char *function, const oa_library *library, const oa_object_kind *kind,
                             void *native) {
  char text[128];
  int (*destroy)(void *) = (int (*)(void *))oa_library_symbol(library, kind->destroy);
  if (!destroy) return OA_ERROR_LIBRARY;
  const int status = destroy(native);
  if (status == library->success) return OA_OK;
  oa_library_status_text(library, status, text, sizeof text);
  return oa_fail(OA_ERROR_LIBRARY, "%s: the library returned %s", function, text);
}

int oa_object_make(const char *function, const oa_object_state *fields, oa_object **object) {
  oa_object_state *state = malloc(sizeof *state);
  int status = state ? OA_OK : oa_fail(OA_ERROR_MEMORY, "%s: no host memory for an object", function);
  if (!status && fields->stream)
    status = oa_library_set_stream(fields->library, fields->native, fields->stream->native);
  if (!status) {
    *state = *fields;
    oa_lock();
    oa_slot *slot = oa_slot_take(NULL, OA_SLOT_OBJECT);
    if (slot) {
      state->stamp = ++last_stamp;
      slot->object = state;
      *object = state->handle = oa_slot_handle(slot);
    }
    oa_unlock();
    if (slot) return OA_OK;
    status = OA_ERROR_MEMORY;
  }
  oa_saved_error first;
  oa_error_save(&first);
  oa_object_destroy_native(function, fields->library, fields->kind, fields->native);
  oa_error_restore(&first);
  free(state);
  return status;
}

int oa_fail_held(const char *function, const char *name) {
  return oa_fail(OA_ERROR_CAPTURE,
                 "%s: a graph has calls of %s, and the library would wait for the end of the graph; end the graph "
                 "first, such as by leaving its region",
                 function, name);
}

int oa_object_seize(const char *function, const oa_library *library, oa_object_use *use, void **native,
                    bool *has_graphs) {
  *has_graphs = false;
  oa_lock();
  int status = find(function, library, use);
  if (!status && use->state->graphs) status = oa_captures_abort(function, use->name, use->state, has_graphs);
  if (!status) {
    int ignored;
    atomic_store(&use->state->aborted, use->name);
    oa_object_spoils(use->state->device, &use->state->aborted);
    *native = use->state->native;
    use->state->native = NULL;
    use->state->ended = true;
    use->state->holders++;
    oa_slot_free(oa_slot_of(use->handle, OA_SLOT_OBJECT, &ignored));
  }
  oa_unlock();
  return status;
}

bool oa_object_drop_seized(oa_object_state *state, bool hurries) {
  oa_patience patience = {.is_short = false};
  bool in_time = true;
  oa_lock();
  while (state->busy && in_time) in_time = oa_device_wait_change(state->device, &patience, hurries);
  const bool last = in_time && !--state->holders; /* after a wait in vain, the state stays for ever */
  oa_unlock();
  return last;
}

int oa_object_end(const char *function, const void *object, oa_object_state **state) {
  int status = OA_OK;
  *state = NULL;
  oa_lock();
  oa_slot *slot;
  while ((slot = oa_slot_of(object, OA_SLOT_OBJECT, &status)) && slot->object->busy) {
    if (pthread_equal(slot->object->user, pthread_self())) {
      oa_unlock();
      return oa_fail(OA_ERROR_ARGUMENT, "%s: the object is in use by a call of this thread; end that first", function);
    }
    const oa_wait wait = {function, taking_needs, object};
    if ((status = oa_wait_for(&wait))) {
      oa_unlock();
      return status;
    }
  }
  if (slot) {
    if (slot->object->holders)
      slot->object->ended = true;
    else
      *state = slot->object;
    oa_slot_free(slot);
  }
  oa_unlock();
  if (slot || status == OA_ERROR_STALE) return OA_OK;
  return oa_fail(status, "%s: object needs an object that a library made, got the address %p", function, object);
}

static int fail_query(const char *function, const oa_object *object, int status) {
  return status == OA_ERROR_STALE
             ? oa_fail(status, "%s: object was destroyed; make another one", function)
             : oa_fail(status, "%s: object needs an object that a library made, got the address %p", function,
                       (void *)object);
}

oa_object_state *oa_object_hold(oa_object_state *state, const oa_object_held *other) {
  oa_object_held *place = NULL;
  for (int i = 0; i < OA_MOST_HELD; i++) {
    oa_object_held *entry = &state->held[i];
    const bool same = entry->name && strcmp(entry->name, other->name) == 0;
    if (same || (!entry->name && !place)) place = entry;
    if (same) break;
  }
  if (!place) return NULL; /* the generator refuses functions that hold more */
  oa_object_state *old = place->object;
  *place = *other;
  if (other->object) other->object->holders++;
  return old && !--old->holders && old->ended ? old : NULL;
}

int oa_object_names(const oa_object *object, const char **library, const char **name, int *device) {
  const char *const function = "oa_object_names";
  int status = oa_core_start(function);
  if (status) return status;
  oa_lock();
  const oa_slot *slot = oa_slot_of(object, OA_SLOT_OBJECT, &status);
  const oa_object_state *state = slot ? slot->object : NULL;
  if (state && library) *library = state->library->name;
  if (state && name) *name = state->kind->name;
  if (state && device) *device = state->device ? state->device->number : -1;
  oa_unlock();
  return state ? OA_OK : fail_query(function, object, status);
}

/* Returns the library's own object: an address, or a number. */
static void *number_or_address(const oa_object_state *state) {
  const uint64_t number = (uint64_t)(uintptr_t)state->native;
  return state->kind->is_number ? (void *)(uintptr_t)(uint32_t)number : state->native;
}

int oa_object_query(const oa_object *object, oa_object_info *info) {
  const char *const function = "oa_object_query";
  oa_object_info now = {0};
  int status = oa_sized_check(function, "info", info, OA_FIRST_OBJECT_INFO, sizeof now);
  if (status || (status = oa_core_start(function))) return status;
  oa_lock();
  const oa_slot *slot = oa_slot_of(object, OA_SLOT_OBJECT, &status);
  oa_object_state *state = slot ? slot->object : NULL;
  if (state) {
    atomic_store(&state->escaped, true);
    now = (oa_object_info){.library = state->library->name,
                           .name = state->kind->name,
                           .native = number_or_address(state),
                           .device = state->device ? state->device->number : -1};
  }
  oa_unlock();
  if (state) oa_sized_write(info, &now);
  return state ? OA_OK : fail_query(function, object, status);
}
