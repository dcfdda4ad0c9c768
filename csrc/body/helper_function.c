#include "body/helper_function.h"
#include "device/memory.h"
#include "library/handles.h"
#include "region/aborted.h"
#include "region/capture.h"

#include <stdio.h>
#include <stdlib.h>

/* -- devices -- */

static int enter(oa_device *device, oa_before *saved) {
  *saved = (oa_before){.mode = -1};
  const int status = device && device->backend->enter ? device->backend->enter(device, &saved->current) : OA_OK;
  if (!status && device && device->backend->capture_mode) saved->mode = device->backend->capture_mode(OA_RELAXED);
  return status;
}

/* Restores the former state of the thread; keeps the text of an earlier failure, `status`. */
static int leave(oa_device *device, oa_before saved, int status) {
  if (saved.mode >= 0) device->backend->capture_mode(saved.mode);
  if (!device || !device->backend->leave) return status;
  oa_saved_error first;
  if (status) oa_error_save(&first);
  const int left = device->backend->leave(device, saved.current);
  if (status) oa_error_restore(&first);
  return status ? status : left;
}

/* Finds the device of an object that a helper function makes. */
static int find_device(const oa_routine *routine, int64_t number, oa_device **device) {
  const oa_library *library = routine->library;
  const int status = number == (int)number
                         ? oa_device_find((int)number, routine->function, device)
                         : oa_fail(OA_ERROR_ARGUMENT, "%s: device needs the number of an open device, got %lld",
                                   routine->function, (long long)number);
  if (status || oa_library_works_on(library, *device)) return status;
  const char *needed = library->backend ? library->backend : "host";
  return oa_fail(OA_ERROR_DEVICE, "%s: device needs to be a %s device, got %s", routine->function, needed,
                 (*device)->name);
}

static const oa_object_kind *kind_of(const oa_routine *routine, int at) {
  return &routine->library->object_kinds[routine->record[at].count];
}

/* -- one call -- */

/* Returns whether a value may be an object. */
static bool is_object(int role, const oa_value *value) {
  if (role == OA_ROLE_OBJECT_OR_NONE || role == OA_ROLE_HOLDS) return value->pointer != NULL;
  return role == OA_ROLE_OBJECT;
}

/* Notes the role of one value in the call. */
static int note(oa_helper_call *call, oa_value *values, int at) {
  const oa_routine *routine = call->routine;
  const int role = routine->record[at].role;
  const bool is_there = is_object(role, &values[at]);
  if (role == OA_ROLE_HOLDS) {
    /* The index is within bounds, because the generator refuses more than OA_MOST_HELD held objects. */
    const int i = call->hold_count++;
    call->holds[i] = (oa_object_held){.name = routine->record[at].name};
    call->held_at[i] = is_there ? call->use_count : -1;
  }
  if (is_there) {
    if (call->use_count == OA_MOST_OBJECTS)
      return oa_fail(OA_ERROR_ARGUMENT, "%s: has more objects than %d", routine->function, OA_MOST_OBJECTS);
    call->uses[call->use_count++] =
        (oa_object_use){.name = routine->record[at].name, .kind = kind_of(routine, at), .handle = values[at].pointer};
  } else if (role == OA_ROLE_NEW) {
    call->makes = kind_of(routine, at);
    call->makes_at = at;
    memset(&values[at], 0, sizeof values[at]);
    if (call->makes->is_number) values[at].integer = OA_NUMBERED; /* the library writes only the low bytes */
  } else if (role == OA_ROLE_GIVES) {
    memset(&values[at], 0, sizeof values[at]);
  } else if (role == OA_ROLE_DEVICE) {
    return find_device(routine, values[at].integer, &call->device);
  }
  return OA_OK;
}

/* Replaces the core's objects among the values by the vendor's own objects. */
static void unwrap(const oa_helper_call *call, oa_value *values) {
  const oa_object_use *use = call->uses;
  for (int at = 0; at < call->routine->count; at++)
    if (is_object(call->routine->record[at].role, &values[at])) values[at].pointer = (use++)->state->native;
}

/* Puts the vendor's own part of an object in a value. Adds the object's state if the library reports numbers of the
 * object, otherwise its note or its stamp. */
static void put_object(oa_value *value, const oa_object_state *state) {
  const uint64_t note = state && state->note.dtype ? OA_NOTED | (uint64_t)(uintptr_t)&state->note : 0;
  const bool tells = state && state->kind->told_count;
  const uint64_t stamp = !state ? 1 : tells ? (uint64_t)(uintptr_t)state : note ? note : oa_object_stamp(state);
  value->pointer = state ? state->native : NULL;
  memcpy(value->bytes + sizeof(uint64_t), &stamp, sizeof stamp);
}

int oa_with_objects(const oa_routine *routine, oa_value *values, int device, const oa_object_place *places, int count,
                    int (*body)(const oa_routine *, oa_value *, int)) {
  oa_object_use uses[OA_MOST_OBJECTS];
  int used = 0, status = oa_core_start(routine->function);
  for (const oa_object_place *place = places; place < places + count; place++)
    if (values[place->at].pointer || !place->optional)
      uses[used++] = (oa_object_use){.name = place->name,
                                     .kind = &routine->library->object_kinds[place->kind],
                                     .handle = values[place->at].pointer};
  if (!status) status = oa_objects_take(routine->function, routine->library, uses, used);
  if (status) return status;
  const oa_object_use *use = uses;
  for (const oa_object_place *place = places; place < places + count; place++)
    if (values[place->at].pointer || !place->optional)
      put_object(&values[place->at], (use++)->state);
    else
      put_object(&values[place->at], NULL);
  status = body(routine, values, device);
  if (count && places->changes) oa_objects_renew(uses, used);
  oa_objects_return(uses, used);
  return status;
}

oa_note oa_note_of(int dtype, const oa_number_list *shape, int64_t rank) {
  oa_note note = {.dtype = dtype};
  for (; note.rank < OA_MOST_NOTED && note.rank < rank; note.rank++)
    note.shape[note.rank] = ((const int *)shape->at)[note.rank];
  return note;
}

/* Returns the note of an object among the values; NULL with the error set if there is none. */
static const oa_note *noted(const oa_routine *routine, const char *name, const oa_value *object) {
  uint64_t note;
  memcpy(&note, object->bytes + sizeof(uint64_t), sizeof note);
  if (note & OA_NOTED) return (const oa_note *)(uintptr_t)(note & ~OA_NOTED);
  oa_fail(OA_ERROR_ARGUMENT, "%s: %s says no dtype yet; set it first", routine->function, name);
  return NULL;
}

int oa_noted_dtype(const oa_routine *routine, const char *name, const oa_value *object, unsigned char *dtype) {
  const oa_note *note = noted(routine, name, object);
  if (note) *dtype = (unsigned char)note->dtype;
  return note ? OA_OK : OA_ERROR_ARGUMENT;
}

int oa_noted_description(const oa_routine *routine, const char *name, const oa_value *object,
                         oa_description *description) {
  const oa_note *note = noted(routine, name, object);
  if (!note) return OA_ERROR_ARGUMENT;
  *description = (oa_description){.dtype = note->dtype, .rank = note->rank};
  for (int i = 0; i < note->rank; i++) {
    description->shape[i] = note->shape[i];
    if (note->shape[i] < 1)
      return oa_fail(OA_ERROR_ARGUMENT, "%s: %s was set to the size %lld; set sizes of at least 1", routine->function,
                     name, (long long)note->shape[i]);
  }
  return OA_OK;
}

/* Takes a stream for a new handle. */
static int take_stream(oa_helper_call *call) {
  if (!call->makes || !call->makes->is_handle || call->routine->library->set_stream < 0) return OA_OK;
  oa_lock();
  int status = oa_stream_take(call->device, &call->stream);
  if (!status) status = oa_stream_make_known(call->stream); /* the library reports the stream to programs */
  oa_unlock();
  return status;
}

static void return_stream(oa_stream *stream) {
  if (!stream) return;
  oa_lock();
  oa_stream_return(stream);
  oa_unlock();
}

int oa_helper_begin(oa_helper_call *call, const oa_routine *routine, oa_value *values) {
  int status = oa_core_start(routine->function);
  *call = (oa_helper_call){.routine = routine};
  if (!status) status = oa_slots_start();
  for (int at = 0; !status && at < routine->count; at++) status = note(call, values, at);
  if (!status && call->use_count)
    status = oa_objects_take(routine->function, routine->library, call->uses, call->use_count);
  if (status) return status;
  for (int i = 0; i < call->use_count && !call->device; i++) call->device = call->uses[i].state->device;
  unwrap(call, values);
  if (!(status = take_stream(call)) && !(status = enter(call->device, &call->saved))) return OA_OK;
  return_stream(call->stream);
  oa_objects_return(call->uses, call->use_count);
  return status;
}

int oa_helper_fail(oa_helper_call *call, int status) {
  leave(call->device, call->saved, status);
  return_stream(call->stream);
  oa_objects_return(call->uses, call->use_count);
  return status;
}

/* -- memory that objects keep -- */

static void free_memory(oa_object_memory *memory) {
  while (memory) {
    oa_object_memory *next = memory->next;
    if (memory->keep) {
      oa_saved_error saved;
      oa_error_save(&saved);
      oa_export_release(memory->keep); /* waits for the device */
      oa_error_restore(&saved);
    }
    free(memory);
    memory = next;
  }
}

/* Makes the object keep the call's memory in place of the former memory of that name. Returns the memory to free: the
 * former memory, or the call's memory after a failure. */
static oa_object_memory *change_memory(oa_helper_call *call, bool succeeded) {
  if (!call->forgets) return NULL;
  if (!succeeded) return call->memory;
  oa_object_memory **link = &call->uses[0].state->memory, *old;
  while (*link && strcmp((*link)->name, call->forgets) != 0) link = &(*link)->next;
  old = *link;
  if (old) {
    *link = old->next;
    old->next = NULL;
  }
  if (call->memory) {
    call->memory->next = call->uses[0].state->memory;
    call->uses[0].state->memory = call->memory;
  }
  return old;
}

/* If a handle is among the objects, waits for the library's work on the memory, which may be on the handle's stream. */
static int wait_for_memory(const oa_helper_call *call) {
  for (int i = 1; i < call->use_count; i++) {
    const oa_object_state *state = call->uses[i].state;
    if (state->kind->is_handle) return oa_device_wait(call->device, 0, call->routine->function);
  }
  return OA_OK;
}

/* Checks, before the library's function is called, that wait_for_memory can wait. */
static int check_captures(const oa_helper_call *call) {
  const oa_device *device = call->device;
  const oa_library *library = call->routine->library;
  for (int i = 1; i < call->use_count; i++) {
    const oa_object_state *state = call->uses[i].state;
    void *native;
    int capturing;
    if (!state->kind->is_handle || library->get_stream < 0) continue;
    int status = oa_library_handle_stream(library, state->native, &native);
    if (!status) status = device->backend->stream_capturing(call->device, native, &capturing);
    if (!status && capturing)
      status = oa_fail(OA_ERROR_CAPTURE,
                       "%s: the stream of %s is capturing a graph, and would have to be waited for; make the call "
                       "outside of the capture",
                       call->routine->function, call->uses[i].name);
    if (status) return status;
  }
  oa_lock();
  const int status = oa_streams_check(device, call->routine->function, false);
  oa_unlock();
  return status;
}

/* Checks that the pointer is on the device, is writable, and has that many bytes without gaps. */
static int check_memory(const oa_helper_call *call, const char *name, const oa_any *pointer, int64_t size) {
  const char *function = call->routine->function;
  int status;
  const oa_slot *slot = oa_slot_enter(function, name, pointer, &status);
  if (!slot) return status;
  const oa_device *device = slot->region->device;
  const int64_t itemsize = call->dtype == OA_ANY ? 1 : oa_itemsize(call->dtype);
  const int64_t has = slot->irregular || slot->inside.count > 1 ? slot->inside.width : slot->nbytes;
  const bool writes = slot->writes;
  const int dtype = slot->dtype;
  oa_unlock();
  if (device != call->device)
    return oa_fail(OA_ERROR_DEVICE, "%s: %s is on %s, and %s is of %s", function, name, device->name,
                   call->uses[0].name, call->device->name);
  if (call->dtype != OA_ANY && dtype != call->dtype)
    return oa_fail(OA_ERROR_TYPE, "%s: %s needs %s, got a pointer to %s", function, name, oa_dtype_name(call->dtype),
                   oa_dtype_name(dtype));
  if (!writes)
    return oa_fail(OA_ERROR_DIRECTION, "%s: %s needs to be writable; lend it as InOut or Scratch", function, name);
  if (size > INT64_MAX / itemsize || has < size * itemsize)
    return oa_fail(OA_ERROR_EXTENT, "%s: %s needs %lld bytes without gaps, has %lld", function, name,
                   (long long)(size > INT64_MAX / itemsize ? INT64_MAX : size * itemsize), (long long)has);
  return OA_OK;
}

/* Takes a share of the pointer's memory. */
static int share_memory(oa_helper_call *call, oa_value *value, const char *name, int64_t size) {
  const oa_any *pointer = value->pointer;
  uint64_t address;
  int status = check_memory(call, name, pointer, size);
  if (status || (status = check_captures(call))) return status;
  oa_object_memory *memory = malloc(sizeof *memory);
  if (!memory) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %s", call->routine->function, name);
  *memory = (oa_object_memory){.name = name};
  if ((status = oa_export(pointer, &address, &memory->keep))) {
    free_memory(memory);
    return oa_fail_in(status, "%s: %s", call->routine->function, name);
  }
  call->memory = memory;
  value->pointer = (const void *)(uintptr_t)address;
  return OA_OK;
}

int oa_helper_keep(oa_helper_call *call, oa_value *values, int at, const char *name, int64_t size) {
  int status = OA_OK;
  call->dtype = call->routine->dtypes[at];
  if (values[at].pointer) {
    status = share_memory(call, &values[at], name, size);
  } else if (call->dtype == OA_ANY && size > 0) {
    status = oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs a DevicePtr of %lld bytes, got None", call->routine->function,
                     name, (long long)size);
  }
  if (!status) call->forgets = name;
  return status ? oa_helper_fail(call, status) : OA_OK;
}

/* Makes the first object hold other objects. Sets `ended` to the objects that only the first object held until now, and
 * that are to be destroyed. Returns the number of these objects. */
static int hold(const oa_helper_call *call, oa_object_state **ended) {
  int count = 0;
  oa_lock();
  for (int i = 0; i < call->hold_count; i++) {
    oa_object_held other = call->holds[i];
    if (call->held_at[i] >= 0) other.object = call->uses[call->held_at[i]].state;
    oa_object_state *old = oa_object_hold(call->uses[0].state, &other);
    if (old) ended[count++] = old;
  }
  oa_unlock();
  return count;
}

static int destroy(const char *function, oa_object_state *state);

/* Makes an object from the result of the vendor's function. */
static int make(oa_helper_call *call, oa_value *values) {
  const oa_object_state fields = {.library = call->routine->library,
                                  .kind = call->makes,
                                  .native = (void *)values[call->makes_at].pointer,
                                  .device = call->device,
                                  .stream = call->stream,
                                  .note = call->note};
  oa_object *object = NULL;
  if (!fields.native) return OA_OK; /* the library made no object */
  const int status = oa_object_make(call->routine->function, &fields, &object);
  values[call->makes_at].pointer = object;
  return status;
}

int oa_helper_end(oa_helper_call *call, oa_value *values, int vendor_status) {
  const oa_library *library = call->routine->library;
  int status = OA_OK;
  if (vendor_status != library->success) {
    char text[OA_STATUS_TEXT];
    oa_library_status_text(library, vendor_status, text, sizeof text);
    status = oa_fail(OA_ERROR_LIBRARY, "%s: the library returned %s", call->routine->function, text);
  }
  if (!status && call->makes) status = make(call, values);
  if (!status && call->note.dtype && call->use_count) call->uses[0].state->note = call->note;
  oa_object_state *ended[OA_MOST_HELD];
  const int ended_count = status ? 0 : hold(call, ended);
  if (!status && call->memory) status = wait_for_memory(call);
  oa_object_memory *unused = change_memory(call, !status);
  status = leave(call->device, call->saved, status);
  if (status) return_stream(call->stream);
  oa_objects_renew(call->uses, call->use_count);
  oa_objects_return(call->uses, call->use_count);
  free_memory(unused);
  for (int i = 0; i < ended_count; i++) {
    const int failed = destroy(call->routine->function, ended[i]);
    if (!status) status = failed;
  }
  return status;
}

/* -- the end of objects -- */

/* Makes an object hold nothing any more; destroys the objects that only it held. */
static int hold_nothing(const char *function, oa_object_state *state) {
  int status = OA_OK;
  for (int i = 0; i < OA_MOST_HELD; i++) {
    if (!state->held[i].object) continue;
    const oa_object_held none = {.name = state->held[i].name};
    oa_lock();
    oa_object_state *ended = oa_object_hold(state, &none);
    oa_unlock();
    const int failed = ended ? destroy(function, ended) : OA_OK;
    if (!status) status = failed;
  }
  return status;
}

/* Destroys a stale object without calls and holders, then the objects that only it held. */
static int destroy(const char *function, oa_object_state *state) {
  oa_device *device = state->device;
  oa_before saved;
  int status = enter(device, &saved);
  if (!status) { /* after a failure the device is lost, and the library's part of the object with it */
    if (state->native && !state->stays) /* an object without a native part was aborted */
      status = oa_object_destroy_native(function, state->library, state->kind, state->native);
    if (state->stream) {
      const int waited = device->backend->stream_synchronize(device, state->stream->native);
      if (!status) status = waited;
    }
    status = leave(device, saved, status);
  }
  const int failed = hold_nothing(function, state);
  free_memory(state->memory);
  return_stream(state->stream);
  free(state);
  return status ? status : failed;
}

/* Checks that no capture forbids the end of a handle, because libraries then wait for the whole device. */
static int check_end_of_handle(const oa_object *object) {
  int status, ignored;
  oa_lock();
  const oa_slot *slot = oa_slot_of(object, OA_SLOT_OBJECT, &ignored);
  const oa_object_state *state = slot ? slot->object : NULL;
  status = state && state->kind->is_handle ? oa_streams_check(state->device, "the end of a handle", false) : OA_OK;
  oa_unlock();
  return status;
}

int oa_object_destroy(oa_object *object) {
  oa_object_state *state;
  if (!object || atomic_load(&oa_forked)) return OA_OK;
  const int refused = check_end_of_handle(object);
  if (refused) return refused;
  const int status = oa_object_end("oa_object_destroy", object, &state);
  return state ? destroy("oa_object_destroy", state) : status;
}

int oa_helper_destroy(const oa_routine *routine, oa_value *values, int device) {
  oa_object_state *state;
  oa_helper_call call = {.routine = routine};
  (void)device;
  const oa_object_use use = {.name = routine->record[0].name, .kind = kind_of(routine, 0), .handle = values[0].pointer};
  call.uses[call.use_count++] = use;
  int status = oa_core_start(routine->function);
  if (status || (status = oa_objects_take(routine->function, routine->library, call.uses, 1))) return status;
  /* The checks are over, so the uses end here; another thread may end the object before this thread does. */
  oa_objects_return(call.uses, 1);
  if ((status = check_end_of_handle(use.handle))) return oa_fail_in(status, "%s", routine->function);
  status = oa_object_end(routine->function, use.handle, &state);
  return state ? destroy(routine->function, state) : status;
}

/* A call of a library's function that aborts an object, which a thread of its own makes. */
typedef struct abortion {
  const oa_routine *routine;
  int (*abort)(void *);
  void *native;
  oa_device *device;
  int status;
  oa_saved_error error;
  bool is_over; /* under the lock */
  bool is_left; /* under the lock: no thread waits for the call, whose thread frees this struct */
} abortion;

static int abort_native(const abortion *a) {
  oa_before saved;
  int status = enter(a->device, &saved);
  if (status) return status;
  const oa_library *library = a->routine->library;
  const int answer = a->abort(a->native);
  if (answer != library->success) {
    char text[OA_STATUS_TEXT];
    oa_library_status_text(library, answer, text, sizeof text);
    status = oa_fail(OA_ERROR_LIBRARY, "%s: the library returned %s", a->routine->function, text);
  }
  return leave(a->device, saved, status);
}

static void *abort_in_thread(void *argument) {
  abortion *a = argument;
  a->status = abort_native(a);
  if (a->status) oa_error_save(&a->error);
  oa_lock();
  a->is_over = true;
  const bool is_left = a->is_left;
  oa_announce_change();
  oa_unlock();
  if (is_left) free(a);
  return NULL;
}

/* Waits for the call, and destroys the graphs of the object, so that the call ends. If the call fails, also waits for
 * the operations that it should have ended. Returns false if it waits in vain. Called with the lock. */
static bool wait_for_abort(const abortion *a, const oa_object_state *state) {
  oa_patience patience = {.is_short = false};
  for (;;) {
    const bool has_ended = oa_captures_end(state), failed = a->is_over && a->status;
    if (has_ended && a->is_over && !(failed && oa_object_runs(a->device, &state->aborted))) return true;
    if (oa_device_wait_change(a->device, &patience, failed)) continue;
    if (!a->is_over || a->status || !a->device || atomic_load(&a->device->lost)) return false;
    /* The library has ended the object's calls, and the rest of a replay may take longer. */
    patience = (oa_patience){.is_short = false};
  }
}

static bool is_of_object(const void *state, const oa_abortable *aborted) {
  return aborted == &((const oa_object_state *)state)->aborted || oa_captures_have(state, aborted);
}

/* Gives up the device if operations of the object still run although the library was called. While the library has
 * not returned, they may only wait for operations of another object. Called with the lock, which it frees and takes
 * again. */
static bool give_up(const abortion *a, const oa_object_state *state) {
  char reason[256];
  if (!oa_object_runs(a->device, &state->aborted) && !oa_captures_run(state)) return false;
  if (!a->is_over && oa_others_run(a->device, is_of_object, state)) return false;
  snprintf(reason, sizeof reason, "%s did not end the calls of %s, which still run on the device",
           a->routine->library->symbols[a->routine->symbols[0]], a->routine->record[0].name);
  oa_device_give_up(a->device, reason);
  oa_announce_change();
  oa_captures_end(state);
  return true;
}

/* Waits for the thread that aborts an object, and destroys the object's graphs: the library's function stops the
 * calls, also those in graphs, and then waits until the graphs have been destroyed. The graphs of a lost device are
 * not destroyed, so this thread does not wait for the library then. If the library fails to stop the calls, the
 * device is lost. */
static int finish_abort(abortion *a, const oa_object_state *state) {
  const char *const function = a->routine->function, *const symbol =
                                                         a->routine->library->symbols[a->routine->symbols[0]];
  const char *const name = a->routine->record[0].name;
  const oa_device *const device = a->device; /* the library's thread may free `a` once the lock is free */
  oa_lock();
  const bool gives_up = !wait_for_abort(a, state) && give_up(a, state);
  const bool is_left = a->is_left = !a->is_over;
  oa_unlock();
  if (is_left && !gives_up && device && atomic_load(&device->lost))
    return oa_fail(OA_ERROR_LOST, "%s: %s is lost, and %s did not return; %s stays in use until the process ends: %s",
                   function, device->name, symbol, name, device->lost_reason);
  int status = is_left ? oa_fail(OA_ERROR_LIBRARY,
                                 "%s: %s did not return within %d s; %s stays in use until the "
                                 "process ends",
                                 function, symbol, OA_LONG_PATIENCE / 1000, name)
                       : a->status;
  if (!is_left) {
    if (status) oa_error_restore(&a->error);
    free(a);
  }
  if (!gives_up) return status;
  oa_saved_error first;
  oa_error_save(&first);
  return oa_fail(OA_ERROR_LIBRARY, "%.1500s; calls of %s still run, so %s is lost", first.text, name, device->name);
}

int oa_helper_abort(const oa_routine *routine, oa_value *values, int device) {
  oa_object_use use = {.name = routine->record[0].name, .kind = kind_of(routine, 0), .handle = values[0].pointer};
  bool has_graphs;
  (void)device;
  int (*abort)(void *) = (int (*)(void *))oa_routine_symbol(routine, 0);
  if (!abort) return OA_ERROR_LIBRARY;
  int status = oa_core_start(routine->function);
  abortion *a = status ? NULL : malloc(sizeof *a);
  if (!a) return status ? status : oa_fail(OA_ERROR_MEMORY, "%s: no host memory", routine->function);
  *a = (abortion){.routine = routine, .abort = abort};
  if ((status = oa_object_seize(routine->function, routine->library, &use, &a->native, &has_graphs))) {
    free(a);
    return status;
  }
  oa_object_state *state = use.state;
  a->device = state->device;
  if (!oa_start_thread(abort_in_thread, a)) {
    status = finish_abort(a, state);
  } else if (has_graphs) {
    status = oa_fail(OA_ERROR_MEMORY, "%s: no thread could be started to abort %s; its memory stays in use",
                     routine->function, use.name);
    free(a);
  } else {
    abort_in_thread(a);
    status = finish_abort(a, state);
  }
  oa_saved_error first;
  oa_error_save(&first);
  const int failed = oa_object_drop_seized(state, status != OA_OK) ? destroy(routine->function, state) : OA_OK;
  if (status) oa_error_restore(&first);
  return status ? status : failed;
}

int oa_object_let_go(const char *function, oa_object_state *state) {
  oa_lock();
  const bool last = !--state->holders && state->ended;
  oa_unlock();
  return last ? destroy(function, state) : OA_OK;
}

/* -- graphs -- */

/* Ends a graph's hold of an object. */
static void let_go_of_graph(void *object) {
  oa_object_state *state = object;
  oa_lock();
  state->graphs--;
  state->stays |= state->device && atomic_load(&state->device->lost); /* the device's graphs were not destroyed */
  oa_unlock();
  oa_object_let_go("oa_chain_release", state);
}

int oa_object_keep(const oa_call *call, oa_object_state *state) {
  bool is_new;
  const int status = oa_capture_hold(oa_capture_of(call->region, call->stream), state, let_go_of_graph, &is_new);
  if (status || !is_new) return status;
  oa_lock();
  state->holders++;
  state->graphs++;
  if (state->device) state->device->abortable = true;
  const bool ended = state->ended;
  oa_unlock();
  return ended ? oa_fail(OA_ERROR_STALE, "%s: another thread ended the object meanwhile", call->function) : OA_OK;
}

int oa_helper_refuse_graphs(oa_helper_call *call) {
  oa_lock();
  const int graphs = call->uses[0].state->graphs;
  oa_unlock();
  if (!graphs) return OA_OK;
  return oa_helper_fail(call, oa_fail_held(call->routine->function, call->uses[0].name));
}
