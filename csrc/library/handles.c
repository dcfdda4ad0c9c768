#include "library/handles.h"

#include <stdio.h>
#include <stdlib.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int library_count;
static pthread_key_t key; /* the key's destructor frees a thread's used_handles when the thread ends */
static bool has_key;
/* used_handles[index of the library]; made at the thread's first oa_use_handle. */
static _Thread_local void **used_handles;
atomic_bool oa_library_has_used;
static _Thread_local int used_count; /* number of set handles; 0: no look-up is needed */

/* A handle that no stream uses now, because its stream belonged to the caller and is gone. */
typedef struct idle_handle {
  const oa_library *library;
  oa_device *device;
  void *handle;
  struct idle_handle *next;
} idle_handle;
static idle_handle *idle_handles;

static void start(void) {
  while (oa_libraries[library_count]) library_count++;
  has_key = pthread_key_create(&key, free) == 0;
}

/* Returns OA_OK if `status` is the library's success. For another status, sets the error of the library's function. */
static int vendor(const oa_library *library, const char *action, int status) {
  char text[128];
  if (status == library->success) return OA_OK;
  oa_library_status_text(library, status, text, sizeof text);
  return oa_fail(OA_ERROR_LIBRARY, "%s: %s failed: %s", library->name, action, text);
}

/* Takes an unused handle of the device; NULL if there is none. Called with the lock. */
static void *take_idle(const oa_library *library, const oa_device *device) {
  for (idle_handle **link = &idle_handles; *link; link = &(*link)->next) {
    idle_handle *idle = *link;
    if (idle->library != library || idle->device != device) continue;
    void *handle = idle->handle;
    *link = idle->next;
    free(idle);
    return handle;
  }
  return NULL;
}

/* Keeps a handle for the next stream of the device that needs one. The handle is lost if host memory runs out. Called
 * with the lock. */
static void keep_idle(const oa_library *library, oa_device *device, void *handle) {
  idle_handle *idle = malloc(sizeof *idle);
  if (!idle) return;
  *idle = (idle_handle){library, device, handle, idle_handles};
  idle_handles = idle;
}

/* Gives the stream its table of handles. Called with the lock. */
static int make_table(oa_stream *stream) {
  pthread_once(&once, start);
  void **table = calloc((size_t)library_count * 2, sizeof *table);
  if (!table) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for the handles of a stream", stream->device->name);
  __atomic_store_n(&stream->handles, table, __ATOMIC_RELEASE);
  return OA_OK;
}

int oa_library_set_stream(const oa_library *library, void *handle, void *native) {
  int (*set)(void *, void *) = (int (*)(void *, void *))oa_library_symbol(library, library->set_stream);
  if (!set) return OA_ERROR_LIBRARY;
  return vendor(library, library->symbols[library->set_stream], set(handle, native));
}

/* Makes a handle if there is none yet, binds it to the stream, and sets its pointer mode. */
static int bind(const oa_library *library, const oa_stream *stream, int on_device, void **handle) {
  int (*create)(void **) = (int (*)(void **))oa_library_symbol(library, library->create);
  if (!create) return OA_ERROR_LIBRARY;
  int status = *handle ? OA_OK : vendor(library, library->symbols[library->create], create(handle));
  if (status) *handle = NULL; /* the failed function may have left any value in *handle */
  if (!status && library->set_stream >= 0) status = oa_library_set_stream(library, *handle, stream->native);
  if (status || library->set_pointer_mode < 0) return status;
  return oa_library_set_mode(library, *handle, on_device ? library->device_mode : library->host_mode);
}

int oa_library_handle(const oa_library *library, oa_stream *stream, int on_device, void **handle) {
  *handle = NULL;
  oa_library_state_of(library); /* sets the library's number */
  oa_lock();
  int status = stream->handles ? OA_OK : make_table(stream);
  void **own = status ? NULL : &stream->handles[oa_library_handle_place(library, on_device)];
  void *bound = NULL;
  if (own && !*own) bound = take_idle(library, stream->device);
  oa_unlock();
  if (status) return status;
  if ((*handle = __atomic_load_n(own, __ATOMIC_ACQUIRE))) return OA_OK;
  /* Making a handle allocates memory, which a capture of this or another stream would forbid. */
  const oa_backend *backend = stream->device->backend;
  const int mode = backend->capture_mode ? backend->capture_mode(OA_RELAXED) : -1;
  status = bind(library, stream, on_device, &bound);
  if (mode >= 0) backend->capture_mode(mode);
  oa_lock();
  if (status) {
    if (bound) keep_idle(library, stream->device, bound);
    oa_unlock();
    return status;
  }
  /* Two threads on one stream may both have made a handle: the second handle stays unused until another stream needs a
   * handle. */
  if (*own)
    keep_idle(library, stream->device, bound);
  else
    __atomic_store_n(own, bound, __ATOMIC_RELEASE);
  *handle = *own;
  oa_unlock();
  return OA_OK;
}

void oa_library_return_handles(oa_stream *stream) {
  for (int i = 0; stream->handles && i < 2 * library_count; i++)
    if (stream->handles[i]) keep_idle(oa_libraries[i / 2], stream->device, stream->handles[i]);
  free(stream->handles);
  stream->handles = NULL;
}

int oa_use_handle(const char *name, void *handle) {
  const oa_library *library = oa_library_named("oa_use_handle", name);
  if (!library) return OA_ERROR_ARGUMENT;
  if (library->create < 0 && !library->needs_handle && handle)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: this library has no handles; leave handle out", name);
  if (!used_handles && !handle) return OA_OK;
  pthread_once(&once, start);
  if (!used_handles) {
    used_handles = calloc((size_t)library_count, sizeof *used_handles);
    if (!used_handles || !has_key || pthread_setspecific(key, used_handles)) {
      free(used_handles);
      used_handles = NULL;
      return oa_fail(OA_ERROR_MEMORY, "%s: no host memory to note the handle", name);
    }
  }
  atomic_store_explicit(&oa_library_has_used, true, memory_order_relaxed);
  void **used = &used_handles[library->state->index];
  used_count += (handle != NULL) - (*used != NULL);
  *used = handle;
  return OA_OK;
}

void *oa_library_find_used(const oa_library *library) {
  return used_count ? used_handles[oa_library_state_of(library)->index] : NULL;
}

int oa_library_handle_stream(const oa_library *library, void *handle, void **native) {
  int (*get)(void *, void **) = (int (*)(void *, void **))oa_library_symbol(library, library->get_stream);
  if (!get) return OA_ERROR_LIBRARY;
  return vendor(library, library->symbols[library->get_stream], get(handle, native));
}

int oa_library_set_workspace(const oa_library *library, void *handle, const oa_stream *stream, uint64_t address) {
  int (*set)(void *, void *, size_t) =
      (int (*)(void *, void *, size_t))oa_library_symbol(library, library->set_workspace);
  if (!set) return OA_ERROR_LIBRARY;
  const size_t nbytes = address ? (size_t)library->workspace_bytes : 0;
  const int status =
      vendor(library, library->symbols[library->set_workspace], set(handle, (void *)(uintptr_t)address, nbytes));
  if (status || address) return status;
  return oa_library_set_stream(library, handle, stream->native); /* restores cuBLAS's own memory after a size of 0 */
}

int oa_library_get_mode(const oa_library *library, void *handle, int *mode) {
  int (*get)(void *, int *) = (int (*)(void *, int *))oa_library_symbol(library, library->get_pointer_mode);
  if (!get) return OA_ERROR_LIBRARY;
  return vendor(library, library->symbols[library->get_pointer_mode], get(handle, mode));
}

int oa_library_set_mode(const oa_library *library, void *handle, int mode) {
  int (*set)(void *, int) = (int (*)(void *, int))oa_library_symbol(library, library->set_pointer_mode);
  if (!set) return OA_ERROR_LIBRARY;
  return vendor(library, library->symbols[library->set_pointer_mode], set(handle, mode));
}
