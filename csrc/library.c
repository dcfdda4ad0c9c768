#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER; /* not held while a loader runs: it calls back here */
static oa_library_loader loader;
static _Thread_local void *used_handles[OA_MAX_LIBRARIES];
static _Thread_local int used_count; /* of them that are set: nothing else to look at when 0 */

/* Handles that no stream has now: their stream was the caller's own. */
typedef struct idle_handle {
  const oa_library *library;
  oa_device *device;
  void *handle;
  struct idle_handle *next;
} idle_handle;
static idle_handle *idle_handles;

static oa_library *library_named(const char *function, const char *name) {
  for (int i = 0; oa_libraries[i]; i++)
    if (name && strcmp(oa_libraries[i]->name, name) == 0) {
      oa_libraries[i]->index = i;
      return oa_libraries[i];
    }
  oa_fail(OA_ERROR_ARGUMENT, "%s: library needs the name of a library of this build, got \"%s\"", function,
          name ? name : "NULL");
  return NULL;
}

static int load(oa_library *library, const char *path, const char *prefix) {
  void *loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!loaded) return oa_fail(OA_ERROR_LIBRARY, "%s: %s", library->name, dlerror());
  char symbol[256];
  snprintf(symbol, sizeof symbol, "%s%s", prefix, library->symbols[0].name);
  if (!dlsym(loaded, symbol)) {
    oa_fail(OA_ERROR_LIBRARY, "%s: %s has no symbol %s: it is another library, or another version of it", library->name,
            path, symbol);
    dlclose(loaded);
    return OA_ERROR_LIBRARY;
  }
  library->path = strdup(path);
  library->prefix = strdup(prefix);
  if (!library->path || !library->prefix) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory", library->name);
  __atomic_store_n(&library->loaded, loaded, __ATOMIC_RELEASE);
  return OA_OK;
}

int oa_library_open(const char *name, const char *path, const char *prefix) {
  int status = oa_core_start();
  if (status) return status;
  oa_library *library = library_named("oa_library_open", name);
  if (!library) return OA_ERROR_ARGUMENT;
  if (!path || path[0] != '/')
    return oa_fail(OA_ERROR_LIBRARY,
                   "%s: \"%s\" is no absolute path; libraries are never loaded from the working directory", name,
                   path ? path : "NULL");
  pthread_mutex_lock(&loading);
  const bool there = library->loaded;
  const bool same = there && strcmp(library->path, path) == 0;
  if (!there) status = load(library, path, prefix ? prefix : "");
  pthread_mutex_unlock(&loading);
  if (there && !same)
    return oa_fail(OA_ERROR_LIBRARY, "%s: %s is loaded already, %s can't be loaded beside it", name, library->path,
                   path);
  return status;
}

const char *oa_library_path(const char *name) {
  oa_library *library = library_named("oa_library_path", name);
  return library && __atomic_load_n(&library->loaded, __ATOMIC_ACQUIRE) ? library->path : "";
}

int oa_library_has_symbol(const char *name, const char *symbol) {
  oa_library *library = library_named("oa_library_has_symbol", name);
  char full[256];
  if (!library || !symbol || !__atomic_load_n(&library->loaded, __ATOMIC_ACQUIRE)) return 0;
  snprintf(full, sizeof full, "%s%s", library->prefix, symbol);
  return dlsym(library->loaded, full) != NULL;
}

void oa_library_set_loader(oa_library_loader function) {
  pthread_mutex_lock(&loading);
  loader = function;
  pthread_mutex_unlock(&loading);
}

static int ensure_loaded(oa_library *library) {
  if (__atomic_load_n(&library->loaded, __ATOMIC_ACQUIRE)) return OA_OK;
  library_named("", library->name); /* sets its index */
  pthread_mutex_lock(&loading);
  const oa_library_loader find = loader;
  pthread_mutex_unlock(&loading);
  if (find) {
    char text[4096] = "";
    const int status = find(library->name, text, sizeof text);
    if (!status && library->loaded) return OA_OK;
    return text[0] ? oa_fail(OA_ERROR_LIBRARY, "%s: %s", library->name, text) : OA_ERROR_LIBRARY;
  }
  char tried[512] = "";
  for (int i = 0; library->sonames && library->sonames[i]; i++) {
    pthread_mutex_lock(&loading);
    const int status = library->loaded ? OA_OK : load(library, library->sonames[i], "");
    pthread_mutex_unlock(&loading);
    if (!status) return OA_OK;
    const size_t used = strlen(tried);
    snprintf(tried + used, sizeof tried - used, "%s%s", used ? ", " : "", library->sonames[i]);
  }
  return oa_fail(OA_ERROR_LIBRARY, "%s: not found; tried %s. Name its file with oa_library_open", library->name, tried);
}

void *oa_library_symbol(oa_library *library, int index) {
  oa_symbol *symbol = &library->symbols[index];
  void *address = __atomic_load_n(&symbol->address, __ATOMIC_ACQUIRE);
  if (address) return address;
  if (oa_core_start() || ensure_loaded(library)) return NULL;
  char full[256];
  snprintf(full, sizeof full, "%s%s", library->prefix, symbol->name);
  address = dlsym(library->loaded, full);
  if (!address)
    oa_fail(OA_ERROR_LIBRARY, "%s: %s has no %s; a newer version of the library is needed", library->name,
            library->path, full);
  __atomic_store_n(&symbol->address, address, __ATOMIC_RELEASE);
  return address;
}

void oa_library_status_text(const oa_library *library, int status, char *text, size_t size) {
  const oa_code_name *code = library->code_names;
  while (code && code->name && code->code != status) code++;
  snprintf(text, size, "%s (%d)", code && code->name ? code->name : "status", status);
}

static int vendor(oa_library *library, const char *what, int status) {
  char text[128];
  if (!status) return OA_OK;
  oa_library_status_text(library, status, text, sizeof text);
  return oa_fail(OA_ERROR_LIBRARY, "%s: %s failed: %s", library->name, what, text);
}

int oa_library_handle(oa_library *library, oa_stream *stream, void **handle) {
  *handle = NULL;
  if (library->create < 0) return OA_OK;
  const int index = library->index;
  oa_lock();
  void *mine = stream->handles[index];
  for (idle_handle **link = &idle_handles; !mine && *link; link = &(*link)->next) {
    idle_handle *idle = *link;
    if (idle->library != library || idle->device != stream->device) continue;
    mine = idle->handle;
    *link = idle->next;
    free(idle);
    break;
  }
  const bool bound = mine && stream->handles[index] == mine;
  oa_unlock();
  if (bound) {
    *handle = mine;
    return OA_OK;
  }
  int (*create)(void **) = (int (*)(void **))oa_library_symbol(library, library->create);
  int (*set_stream)(void *, void *) = (int (*)(void *, void *))oa_library_symbol(library, library->set_stream);
  if (!create || !set_stream) return OA_ERROR_LIBRARY;
  int status = mine ? OA_OK : vendor(library, library->symbols[library->create].name, create(&mine));
  if (!status) status = vendor(library, library->symbols[library->set_stream].name, set_stream(mine, stream->native));
  if (status) return status;
  oa_lock();
  /* Two threads on one stream may both have made one: the second's goes unused until another stream wants it. */
  void *spare = stream->handles[index] ? mine : NULL;
  if (!spare) {
    stream->handles[index] = mine;
    stream->modes[index] = -1;
  } else {
    idle_handle *idle = malloc(sizeof *idle);
    if (idle) {
      *idle = (idle_handle){library, stream->device, spare, idle_handles};
      idle_handles = idle;
    }
  }
  *handle = stream->handles[index];
  oa_unlock();
  return OA_OK;
}

void oa_library_give_back(oa_stream *stream) {
  for (int i = 0; i < OA_MAX_LIBRARIES; i++) {
    if (!stream->handles[i]) continue;
    idle_handle *idle = malloc(sizeof *idle);
    if (!idle) continue;
    *idle = (idle_handle){oa_libraries[i], stream->device, stream->handles[i], idle_handles};
    idle_handles = idle;
    stream->handles[i] = NULL;
  }
}

int oa_use_handle(const char *name, void *handle) {
  oa_library *library = library_named("oa_use_handle", name);
  if (!library) return OA_ERROR_ARGUMENT;
  if (library->create < 0 && handle)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: this library has no handles; leave handle out", name);
  used_count += (handle != NULL) - (used_handles[library->index] != NULL);
  used_handles[library->index] = handle;
  return OA_OK;
}

void *oa_library_used_handle(const oa_library *library) { return used_count ? used_handles[library->index] : NULL; }

int oa_library_handle_stream(oa_library *library, void *handle, void **native) {
  int (*get)(void *, void **) = (int (*)(void *, void **))oa_library_symbol(library, library->get_stream);
  if (!get) return OA_ERROR_LIBRARY;
  return vendor(library, library->symbols[library->get_stream].name, get(handle, native));
}

int oa_library_get_mode(oa_library *library, void *handle, int *mode) {
  int (*get)(void *, int *) = (int (*)(void *, int *))oa_library_symbol(library, library->get_pointer_mode);
  if (!get) return OA_ERROR_LIBRARY;
  return vendor(library, library->symbols[library->get_pointer_mode].name, get(handle, mode));
}

int oa_library_set_mode(oa_library *library, void *handle, int mode) {
  int (*set)(void *, int) = (int (*)(void *, int))oa_library_symbol(library, library->set_pointer_mode);
  if (!set) return OA_ERROR_LIBRARY;
  return vendor(library, library->symbols[library->set_pointer_mode].name, set(handle, mode));
}

int oa_fail_enum(const char *function, const char *name, int64_t value, const char *allowed) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs one of %s, got %lld", function, name, allowed, (long long)value);
}

int oa_fail_too_large(const char *function, const char *name, int64_t value) {
  return oa_fail(OA_ERROR_OVERFLOW, "%s: %s is %lld, and this library takes at most 2147483647 here; split the call",
                 function, name, (long long)value);
}

int oa_fail_null(const char *function, const char *name) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs a host address, got NULL", function, name);
}
