#include "call/service.h"

#include <stdlib.h>

/* -- devices -- */

static int enter(oa_device *device, void **saved) {
  return device && device->backend->enter ? device->backend->enter(device, saved) : OA_OK;
}

/* Makes current what was before; keeps the text of an earlier failure, `status`. */
static int leave(oa_device *device, void *saved, int status) {
  if (!device || !device->backend->leave) return status;
  oa_saved_error first;
  if (status) oa_error_save(&first);
  const int left = device->backend->leave(device, saved);
  if (status) oa_error_restore(&first);
  return status ? status : left;
}

/* Finds the device for which a service makes an object. */
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

static const oa_object_kind *kind_named(const oa_library *library, const oa_token *read) {
  for (int i = 0; i < library->object_kind_count; i++) {
    const char *name = library->object_kinds[i].name;
    if (strlen(name) == (size_t)read->more_length && !memcmp(name, read->more, (size_t)read->more_length))
      return &library->object_kinds[i];
  }
  return NULL;
}

/* -- one call -- */

/* Returns whether a value is an object: it may be none. */
static bool is_object(const oa_token *read, const oa_value *value) {
  if (oa_token_is(read, "object?") || oa_token_is(read, "holds")) return value->pointer != NULL;
  return oa_token_is(read, "object");
}

/* Notes what a value is to the service. */
static int note(oa_service *service, const oa_token *read, oa_value *values, int at) {
  const oa_routine *routine = service->routine;
  const bool is_there = is_object(read, &values[at]);
  if (oa_token_is(read, "holds")) {
    const int i = service->hold_count++; /* the generator refuses more than OA_MOST_HELD */
    service->holds[i] = (oa_object_held){.name = read->name, .name_length = read->name_length};
    service->held_at[i] = is_there ? service->use_count : -1;
  }
  if (is_there) {
    if (service->use_count == OA_MOST_OBJECTS)
      return oa_fail(OA_ERROR_ARGUMENT, "%s: has more objects than %d", routine->function, OA_MOST_OBJECTS);
    service->uses[service->use_count++] = (oa_object_use){.name = read->name,
                                                          .name_length = read->name_length,
                                                          .kind = kind_named(routine->library, read),
                                                          .handle = values[at].pointer};
  } else if (oa_token_is(read, "new")) {
    service->makes = kind_named(routine->library, read);
    service->makes_at = at;
    memset(&values[at], 0, sizeof values[at]);
  } else if (oa_token_is(read, "gives")) {
    memset(&values[at], 0, sizeof values[at]);
  } else if (oa_token_is(read, "device")) {
    return find_device(routine, values[at].integer, &service->device);
  }
  return OA_OK;
}

/* Puts the memory that the object keeps in the place of what the vendor gave, its address. */
static void give_kept(const oa_service *service, oa_value *values) {
  oa_token read;
  const char *next = service->routine->record;
  for (int at = 0; (next = oa_token_read(next, &read)); at++) {
    if (!oa_token_is(&read, "gives") || read.more_length != 4 || memcmp(read.more, "kept", 4)) continue;
    const oa_object_memory *memory = service->use_count ? service->uses[0].state->memory : NULL;
    while (memory && (strlen(memory->name) != (size_t)read.name_length ||
                      memcmp(memory->name, read.name, (size_t)read.name_length)))
      memory = memory->next;
    values[at].pointer = memory ? memory->pointer : NULL;
  }
}

/* Puts the vendor's own objects in the places of the core's. */
static void unwrap(const oa_service *service, oa_value *values) {
  oa_token read;
  const char *next = service->routine->record;
  const oa_object_use *use = service->uses;
  for (int at = 0; (next = oa_token_read(next, &read)); at++)
    if (is_object(&read, &values[at])) values[at].pointer = (use++)->state->native;
}

/* Puts the vendor's own part of an object, and its note or its stamp, in a value. */
static void put_object(oa_value *value, const oa_object_state *state) {
  const uint64_t note = state && state->note.dtype ? OA_NOTED | (uint64_t)(uintptr_t)&state->note : 0;
  const uint64_t stamp = !state ? 1 : note ? note : oa_object_stamp(state);
  value->pointer = state ? state->native : NULL;
  memcpy(value->bytes + sizeof(uint64_t), &stamp, sizeof stamp);
}

int oa_with_objects(const oa_routine *routine, oa_value *values, int device, const oa_object_place *places, int count,
                    int (*body)(const oa_routine *, oa_value *, int)) {
  oa_object_use uses[OA_MOST_OBJECTS];
  int used = 0, status = oa_core_start();
  for (const oa_object_place *one = places; one < places + count; one++)
    if (values[one->at].pointer || !one->optional)
      uses[used++] = (oa_object_use){.name = one->name,
                                     .name_length = one->name_length,
                                     .kind = &routine->library->object_kinds[one->kind],
                                     .handle = values[one->at].pointer};
  if (!status) status = oa_objects_take(routine->function, routine->library, uses, used);
  if (status) return status;
  const oa_object_use *use = uses;
  for (const oa_object_place *one = places; one < places + count; one++)
    if (values[one->at].pointer || !one->optional)
      put_object(&values[one->at], (use++)->state);
    else
      put_object(&values[one->at], NULL);
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

int oa_noted_says(const oa_routine *routine, const char *name, const oa_value *object, oa_described *says) {
  const oa_note *note = noted(routine, name, object);
  if (!note) return OA_ERROR_ARGUMENT;
  *says = (oa_described){.dtype = note->dtype, .rank = note->rank};
  for (int i = 0; i < note->rank; i++) {
    says->shape[i] = note->shape[i];
    if (note->shape[i] < 1)
      return oa_fail(OA_ERROR_ARGUMENT, "%s: %s was set to the size %d; set sizes of at least 1", routine->function,
                     name, note->shape[i]);
  }
  return OA_OK;
}

/* Takes a stream for a new handle. */
static int take_stream(oa_service *service) {
  if (!service->makes || !service->makes->is_handle || service->routine->library->set_stream < 0) return OA_OK;
  oa_lock();
  const int status = oa_stream_take(service->device, &service->stream);
  oa_unlock();
  return status;
}

static void return_stream(oa_stream *stream) {
  if (!stream) return;
  oa_lock();
  oa_stream_return(stream);
  oa_unlock();
}

int oa_service_begin(oa_service *service, const oa_routine *routine, oa_value *values) {
  oa_token read;
  const char *next = routine->record;
  int status = oa_core_start();
  *service = (oa_service){.routine = routine};
  if (!status) status = oa_slots_start();
  for (int at = 0; !status && (next = oa_token_read(next, &read)); at++) status = note(service, &read, values, at);
  if (!status && service->use_count)
    status = oa_objects_take(routine->function, routine->library, service->uses, service->use_count);
  if (status) return status;
  for (int i = 0; i < service->use_count && !service->device; i++) service->device = service->uses[i].state->device;
  unwrap(service, values);
  if (!(status = take_stream(service)) && !(status = enter(service->device, &service->saved))) return OA_OK;
  return_stream(service->stream);
  oa_objects_return(service->uses, service->use_count);
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

/* Has the object keep the service's memory in the place of what it had by that name. Returns what is not used. */
static oa_object_memory *change_memory(oa_service *service, bool succeeded) {
  if (!service->forgets) return NULL;
  if (!succeeded) return service->memory;
  oa_object_memory **link = &service->uses[0].state->memory, *old;
  while (*link && strcmp((*link)->name, service->forgets) != 0) link = &(*link)->next;
  old = *link;
  if (old) {
    *link = old->next;
    old->next = NULL;
  }
  if (service->memory) {
    service->memory->next = service->uses[0].state->memory;
    service->uses[0].state->memory = service->memory;
  }
  return old;
}

/* Waits for what the library began on the memory on the stream of a handle among the objects. */
static int wait_for_memory(const oa_service *service) {
  const oa_device *device = service->device;
  for (int i = 1; i < service->use_count; i++) {
    const oa_object_state *state = service->uses[i].state;
    if (state->kind->is_handle) return device->backend->synchronize(service->device);
  }
  return OA_OK;
}

/* Checks that the pointer is of the device, writable, and has that many bytes without gaps. */
static int check_memory(const oa_service *service, const char *name, const oa_any *pointer, int64_t size) {
  const char *function = service->routine->function;
  int status;
  const oa_slot *slot = oa_slot_enter(function, name, pointer, &status);
  if (!slot) return status;
  const oa_device *device = slot->region->device;
  const int64_t itemsize = service->dtype == OA_ANY ? 1 : oa_itemsize(service->dtype);
  const int64_t has = slot->irregular || slot->inside.count > 1 ? slot->inside.width : slot->nbytes;
  const bool writes = slot->writes;
  const int dtype = slot->dtype;
  oa_unlock();
  if (device != service->device)
    return oa_fail(OA_ERROR_DEVICE, "%s: %s is on %s, and %.*s is of %s", function, name, device->name,
                   service->uses[0].name_length, service->uses[0].name, service->device->name);
  if (service->dtype != OA_ANY && dtype != service->dtype)
    return oa_fail(OA_ERROR_TYPE, "%s: %s needs %s, got a pointer to %s", function, name, oa_dtype_name(service->dtype),
                   oa_dtype_name(dtype));
  if (!writes)
    return oa_fail(OA_ERROR_DIRECTION, "%s: %s needs to be writable; lend it as InOut or Scratch", function, name);
  if (size > INT64_MAX / itemsize || has < size * itemsize)
    return oa_fail(OA_ERROR_EXTENT, "%s: %s needs %lld bytes without gaps, has %lld", function, name,
                   (long long)(size > INT64_MAX / itemsize ? INT64_MAX : size * itemsize), (long long)has);
  return OA_OK;
}

/* Takes a share of the pointer's memory. */
static int share_memory(oa_service *service, oa_value *value, const char *name, int64_t size) {
  const oa_any *pointer = value->pointer;
  uint64_t address;
  int status = check_memory(service, name, pointer, size);
  if (status) return status;
  oa_object_memory *memory = malloc(sizeof *memory);
  if (!memory) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %s", service->routine->function, name);
  *memory = (oa_object_memory){.name = name, .pointer = pointer};
  if ((status = oa_export(pointer, &address, &memory->keep))) {
    free_memory(memory);
    return oa_fail_in(status, "%s: %s", service->routine->function, name);
  }
  service->memory = memory;
  value->pointer = (const void *)(uintptr_t)address;
  return OA_OK;
}

int oa_service_keep(oa_service *service, oa_value *values, int at, const char *name, int64_t size) {
  int status = OA_OK;
  service->dtype = service->routine->dtypes[at];
  if (values[at].pointer) {
    status = share_memory(service, &values[at], name, size);
  } else if (service->dtype == OA_ANY && size > 0) {
    status = oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs a DevicePtr of %lld bytes, got None", service->routine->function,
                     name, (long long)size);
  }
  if (!status) service->forgets = name;
  if (!status) return OA_OK;
  leave(service->device, service->saved, status);
  oa_objects_return(service->uses, service->use_count);
  return status;
}

/* Has the first object hold others. *ended: those that only it held, and that are to be destroyed. */
static int hold(const oa_service *service, oa_object_state **ended) {
  int count = 0;
  oa_lock();
  for (int i = 0; i < service->hold_count; i++) {
    oa_object_held other = service->holds[i];
    if (service->held_at[i] >= 0) other.object = service->uses[service->held_at[i]].state;
    oa_object_state *old = oa_object_hold(service->uses[0].state, &other);
    if (old) ended[count++] = old;
  }
  oa_unlock();
  return count;
}

static int destroy(const char *function, oa_object_state *state);

/* Makes the object of what the vendor's function made. */
static int make(oa_service *service, oa_value *values) {
  const oa_object_state made = {.library = service->routine->library,
                                .kind = service->makes,
                                .native = (void *)values[service->makes_at].pointer,
                                .device = service->device,
                                .stream = service->stream};
  oa_object *object = NULL;
  const int status = oa_object_make(service->routine->function, &made, &object);
  values[service->makes_at].pointer = object;
  return status;
}

int oa_service_end(oa_service *service, oa_value *values, int vendor_status) {
  const oa_library *library = service->routine->library;
  int status = OA_OK;
  if (vendor_status != library->success) {
    char text[128];
    oa_library_status_text(library, vendor_status, text, sizeof text);
    status = oa_fail(OA_ERROR_LIBRARY, "%s: the library returned %s", service->routine->function, text);
  }
  if (!status && service->makes) status = make(service, values);
  if (!status) give_kept(service, values);
  if (!status && service->note.dtype) service->uses[0].state->note = service->note;
  oa_object_state *ended[OA_MOST_HELD];
  const int ended_count = status ? 0 : hold(service, ended);
  if (!status && service->memory) status = wait_for_memory(service);
  oa_object_memory *unused = change_memory(service, !status);
  status = leave(service->device, service->saved, status);
  if (status) return_stream(service->stream);
  oa_objects_renew(service->uses, service->use_count);
  oa_objects_return(service->uses, service->use_count);
  free_memory(unused);
  for (int i = 0; i < ended_count; i++) {
    const int failed = destroy(service->routine->function, ended[i]);
    if (!status) status = failed;
  }
  return status;
}

/* -- the end of objects -- */

/* Has an object hold nothing any more; destroys what only it held. */
static int hold_nothing(const char *function, oa_object_state *state) {
  int status = OA_OK;
  for (int i = 0; i < OA_MOST_HELD; i++) {
    if (!state->held[i].object) continue;
    const oa_object_held none = {.name = state->held[i].name, .name_length = state->held[i].name_length};
    oa_lock();
    oa_object_state *ended = oa_object_hold(state, &none);
    oa_unlock();
    const int failed = ended ? destroy(function, ended) : OA_OK;
    if (!status) status = failed;
  }
  return status;
}

/* Destroys an object that has no calls and no holders and is stale, then those that only it held. */
static int destroy(const char *function, oa_object_state *state) {
  oa_device *device = state->device;
  void *saved = NULL;
  int status = enter(device, &saved);
  if (!status) { /* else the device is lost, and the library's part with it */
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

int oa_object_destroy(oa_object *object) {
  oa_object_state *state;
  if (!object || atomic_load(&oa_forked)) return OA_OK;
  const int status = oa_object_end("oa_object_destroy", object, &state);
  return state ? destroy("oa_object_destroy", state) : status;
}

int oa_service_destroy(const oa_routine *routine, oa_value *values, int device) {
  oa_object_state *state;
  oa_service service = {.routine = routine};
  oa_token read;
  (void)device;
  oa_token_read(routine->record, &read);
  const oa_object_use use = {.name = read.name,
                             .name_length = read.name_length,
                             .kind = kind_named(routine->library, &read),
                             .handle = values[0].pointer};
  service.uses[service.use_count++] = use;
  int status = oa_core_start();
  if (status || (status = oa_objects_take(routine->function, routine->library, service.uses, 1))) return status;
  oa_objects_return(service.uses, 1); /* it is an object of the right kind; another thread may still be faster */
  status = oa_object_end(routine->function, use.handle, &state);
  return state ? destroy(routine->function, state) : status;
}
