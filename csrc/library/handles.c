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

/* A handle that no call uses now, and that no table has. */
typedef struct idle_handle {
  const oa_library *library;
  oa_device *device;
  void *handle;
  const oa_stream *stream; /* the stream that it is bound to; NULL: a foreign stream, which is gone */
  int on_device;           /* its pointer mode, if it is bound to a stream */
  /* Calls with the handle may still run on the stream that is gone. They are over after this operation of `after`. */
  oa_stream *after;
  uint64_t ticket;
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

/* Returns whether calls with the handle may still run on a stream that is gone. Shared handles have other memory for
 * each stream. */
static bool may_run(const idle_handle *idle) {
  return !idle->library->shares_handles && idle->after && idle->ticket > idle->after->waited;
}

/* Takes an idle handle of the stream, or else of no stream; a captured stream takes none whose former calls may still
 * run, because it can't wait for them. Returns a handle of NULL if there is none. Called with the lock. */
static idle_handle take_idle(const oa_library *library, const oa_stream *stream, int on_device, bool captured) {
  idle_handle **chosen = NULL;
  for (idle_handle **link = &idle_handles; *link; link = &(*link)->next) {
    const idle_handle *idle = *link;
    if (idle->library != library || idle->device != stream->device) continue;
    const bool is_own = idle->stream == stream && idle->on_device == on_device;
    if (is_own || (!idle->stream && !(captured && may_run(idle)))) chosen = link;
    if (is_own) break;
  }
  if (!chosen) return (idle_handle){.handle = NULL};
  idle_handle *taken = *chosen;
  const idle_handle copy = *taken;
  *chosen = taken->next;
  free(taken);
  return copy;
}

/* Keeps a handle for the next call that needs one. The handle is lost if host memory runs out. Called with the lock. */
static void keep_idle(const idle_handle *handle) {
  idle_handle *idle = malloc(sizeof *idle);
  if (!idle) return;
  *idle = *handle;
  idle->next = idle_handles;
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

/* Makes a handle if *handle is NULL, binds it to the stream, and sets its pointer mode. */
static int bind(const oa_library *library, const oa_stream *stream, int on_device, void **handle) {
  int (*create)(void **) = (int (*)(void **))oa_library_symbol(library, library->create);
  if (!create) return OA_ERROR_LIBRARY;
  int status = *handle ? OA_OK : vendor(library, library->symbols[library->create], create(handle));
  if (status) *handle = NULL; /* the failed function may have left any value in *handle */
  if (!status && library->set_stream >= 0) status = oa_library_set_stream(library, *handle, stream->native);
  if (status || library->set_pointer_mode < 0) return status;
  return oa_library_set_mode(library, *handle, on_device ? library->device_mode : library->host_mode);
}

int oa_library_take_handle(const oa_library *library, oa_stream *stream, int on_device, bool captured, void **handle) {
  *handle = NULL;
  oa_library_state_of(library); /* sets the library's number */
  oa_lock();
  int status = stream->handles ? OA_OK : make_table(stream);
  void **own = status ? NULL : &stream->handles[oa_library_handle_place(library, on_device)];
  if (own && library->shares_handles) *handle = *own;
  idle_handle idle = {.handle = NULL};
  if (own && !*handle) idle = take_idle(library, stream, on_device, captured);
  const bool is_bound = idle.handle && idle.stream;
  if (idle.handle && may_run(&idle)) status = oa_stream_after(stream, idle.after, idle.ticket);
  if (status && idle.handle) keep_idle(&idle);
  oa_unlock();
  if (status || *handle) return status;
  if (is_bound) {
    *handle = idle.handle;
    return OA_OK;
  }
  /* Making a handle allocates memory, which a capture of this or another stream would forbid. */
  const oa_backend *backend = stream->device->backend;
  const int mode = backend->capture_mode ? backend->capture_mode(OA_RELAXED) : -1;
  *handle = idle.handle;
  status = bind(library, stream, on_device, handle);
  if (mode >= 0) backend->capture_mode(mode);
  if (!status && !library->shares_handles) return OA_OK;
  oa_lock();
  const idle_handle unused = {.library = library, .device = stream->device, .handle = *handle};
  if (status) {
    if (unused.handle) keep_idle(&unused);
  } else if (*own) { /* two threads on one stream have both made a handle: another stream will need the second one */
    keep_idle(&unused);
    *handle = *own;
  } else {
    __atomic_store_n(own, *handle, __ATOMIC_RELEASE);
  }
  oa_unlock();
  return status;
}

void oa_library_return_handle(const oa_library *library, oa_stream *stream, int on_device, void *handle) {
  void *none = NULL;
  void **own = &stream->handles[oa_library_handle_place(library, on_device)];
  if (__atomic_compare_exchange_n(own, &none, handle, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return;
  const idle_handle idle = {library, stream->device, handle, .stream = stream, .on_device = on_device};
  oa_lock();
  keep_idle(&idle);
  oa_unlock();
}

void oa_library_release_handles(oa_stream *stream, oa_stream *after) {
  for (int i = 0; stream->handles && i < 2 * library_count; i++) {
    const idle_handle idle = {oa_libraries[i / 2], stream->device, stream->handles[i], .after = after,
                              .ticket = after->ticket};
    if (idle.handle) keep_idle(&idle);
  }
  for (idle_handle *idle = idle_handles; idle; idle = idle->next) {
    if (idle->stream != stream) continue;
    idle->stream = NULL;
    idle->after = after;
    idle->ticket = after->ticket;
  }
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
