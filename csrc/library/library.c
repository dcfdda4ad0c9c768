#define _GNU_SOURCE /* dladdr */
#include "library/library.h"

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

/* Gives each library its number, once: threads read it without a lock. */
static void number_libraries(void) {
  for (int i = 0; oa_libraries[i]; i++) oa_libraries[i]->index = i;
}

static oa_library *library_named(const char *function, const char *name) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, number_libraries);
  for (int i = 0; oa_libraries[i]; i++)
    if (name && strcmp(oa_libraries[i]->name, name) == 0) return oa_libraries[i];
  oa_fail(OA_ERROR_ARGUMENT, "%s: library needs the name of a library of this build, got \"%s\"", function,
          name ? name : "NULL");
  return NULL;
}

static void *look_up(void *loaded, const char *prefix, const char *name, const char *suffix) {
  char symbol[256];
  snprintf(symbol, sizeof symbol, "%s%s%s", prefix, name, suffix);
  return dlsym(loaded, symbol);
}

/* Finds how this build spells its symbols: by the first of them. */
static bool find_spelling(const oa_library *library, void *loaded, const char **prefix, const char **suffix) {
  static const char *const plain[] = {"", NULL};
  const char *const given[] = {*prefix, NULL};
  for (const char *const *p = *prefix ? given : library->prefixes ? library->prefixes : plain; *p; p++)
    for (const char *const *s = library->suffixes ? library->suffixes : plain; *s; s++)
      if (look_up(loaded, *p, library->symbols[0].name, *s)) {
        *prefix = *p;
        *suffix = *s;
        return true;
      }
  return false;
}

/* Says whether a build's integers have 64 bits. Its search for the largest of n elements sees three of them if it reads
 * 32 bits of this n. It sees none, for n is negative, if it reads all, and answers 0. */
static bool has_64_bit_integers(void *search) {
  const float x[] = {1, 2, 3};
  const int64_t n = (int64_t)UINT64_C(0xffffffff00000003);
  return search && (int32_t)((size_t (*)(int64_t, const float *, int64_t))search)(n, x, 1) == 0;
}

/* Takes what is loaded, from then on the library's own; else closes it. whole: every symbol has to be there. */
static int take(oa_library *library, void *loaded, const char *path, const char *prefix, bool whole) {
  const char *suffix = "", *missing = NULL;
  if (!find_spelling(library, loaded, &prefix, &suffix)) missing = library->symbols[0].name;
  for (int i = 0; whole && !missing && i < library->symbol_count; i++)
    if (!look_up(loaded, prefix, library->symbols[i].name, suffix)) missing = library->symbols[i].name;
  if (missing) {
    oa_fail(OA_ERROR_LIBRARY, "%s: %s has no symbol %s%s%s: it is another library, or another version of it",
            library->name, path, prefix ? prefix : "", missing, suffix);
    dlclose(loaded);
    return OA_ERROR_LIBRARY;
  }
  char *own_path = strdup(path), *own_prefix = strdup(prefix);
  if (!own_path || !own_prefix) {
    free(own_path);
    free(own_prefix);
    dlclose(loaded);
    return oa_fail(OA_ERROR_MEMORY, "%s: no host memory", library->name);
  }
  library->path = own_path;
  library->prefix = own_prefix;
  library->suffix = suffix;
  library->ilp64 = library->probe && has_64_bit_integers(look_up(loaded, prefix, library->probe, suffix));
  __atomic_store_n(&library->loaded, loaded, __ATOMIC_RELEASE);
  return OA_OK;
}

/* For a library that is loaded already: the same file is fine. */
static int loaded_before(const oa_library *library, const char *path) {
  if (strcmp(library->path, path) == 0) return OA_OK;
  return oa_fail(OA_ERROR_LIBRARY, "%s: %s is loaded already, %s can't be loaded beside it", library->name,
                 library->path, path);
}

static int load(oa_library *library, const char *path, const char *prefix) {
  if (library->loaded) return loaded_before(library, path);
  void *loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!loaded) return oa_fail(OA_ERROR_LIBRARY, "%s: %s", library->name, dlerror());
  return take(library, loaded, path, prefix, false);
}

/* The file that has the library's first symbol among what module is linked with; to be freed, NULL if there is none. */
static char *file_behind(const oa_library *library, void *module) {
  const char *prefix = NULL, *suffix;
  Dl_info info;
  if (!find_spelling(library, module, &prefix, &suffix)) return NULL;
  if (!dladdr(look_up(module, prefix, library->symbols[0].name, suffix), &info)) return NULL;
  return realpath(info.dli_fname, NULL);
}

static int share(oa_library *library, const char *module) {
  const char *name = module ? module : "the program";
  void *loaded = dlopen(module, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (!loaded) return oa_fail(OA_ERROR_LIBRARY, "%s: %s is not loaded in this process", library->name, name);
  char *file = file_behind(library, loaded);
  const char *path = file ? file : name;
  int status;
  if (library->loaded) {
    dlclose(loaded);
    status = loaded_before(library, path);
  } else {
    status = take(library, loaded, path, NULL, true);
  }
  free(file);
  return status;
}

/* Loads or shares a library, one thread at a time. */
static int acquire(const char *function, const char *name, const char *path, const char *prefix, bool shared) {
  int status = oa_core_start();
  if (status) return status;
  oa_library *library = library_named(function, name);
  if (!library) return OA_ERROR_ARGUMENT;
  if (path ? path[0] != '/' : !shared)
    return oa_fail(OA_ERROR_LIBRARY,
                   "%s: \"%s\" is no absolute path; libraries are never loaded from the working directory", name,
                   path ? path : "NULL");
  pthread_mutex_lock(&loading);
  status = shared ? share(library, path) : load(library, path, prefix);
  pthread_mutex_unlock(&loading);
  return status;
}

int oa_library_open(const char *name, const char *path, const char *prefix) {
  return acquire("oa_library_open", name, path, prefix, false);
}

int oa_library_share(const char *name, const char *module) {
  return acquire("oa_library_share", name, module, NULL, true);
}

const char *oa_library_path(const char *name) {
  oa_library *library = library_named("oa_library_path", name);
  return library && __atomic_load_n(&library->loaded, __ATOMIC_ACQUIRE) ? library->path : "";
}

int oa_library_has_symbol(const char *name, const char *symbol) {
  oa_library *library = library_named("oa_library_has_symbol", name);
  if (!library || !symbol || !__atomic_load_n(&library->loaded, __ATOMIC_ACQUIRE)) return 0;
  return look_up(library->loaded, library->prefix, symbol, library->suffix) != NULL;
}

void oa_library_set_loader(oa_library_loader function) {
  pthread_mutex_lock(&loading);
  loader = function;
  pthread_mutex_unlock(&loading);
}

static int ensure_loaded(oa_library *library) {
  if (__atomic_load_n(&library->loaded, __ATOMIC_ACQUIRE)) return OA_OK;
  library_named("", library->name); /* numbers all */
  pthread_mutex_lock(&loading);
  const oa_library_loader find = loader;
  pthread_mutex_unlock(&loading);
  if (find) {
    char text[4096] = "";
    const int status = find(library->name, text, sizeof text);
    if (!status && __atomic_load_n(&library->loaded, __ATOMIC_ACQUIRE)) return OA_OK;
    return text[0] ? oa_fail(OA_ERROR_LIBRARY, "%s: %s", library->name, text) : OA_ERROR_LIBRARY;
  }
  char tried[512] = "";
  for (int i = 0; library->sonames && library->sonames[i]; i++) {
    pthread_mutex_lock(&loading);
    const int status = library->loaded ? OA_OK : load(library, library->sonames[i], NULL);
    pthread_mutex_unlock(&loading);
    if (!status) return OA_OK;
    const size_t used = strlen(tried);
    snprintf(tried + used, sizeof tried - used, "%s%s", used ? ", " : "", library->sonames[i]);
  }
  return oa_fail(
      OA_ERROR_LIBRARY,
      "%s: not found; tried %s. Name its file, and the prefix of its symbols if it has one, with oa_library_open",
      library->name, tried);
}

void *oa_library_symbol(oa_library *library, int index) {
  if (library && index < 0) {
    oa_fail(OA_ERROR_LIBRARY, "oa_library_symbol: %s has no function for that, such as a handle's stream or mode",
            library->name);
    return NULL;
  }
  if (!library || index >= library->symbol_count) {
    oa_fail(OA_ERROR_ARGUMENT, "oa_library_symbol: library has no symbol of the index %d, or is NULL", index);
    return NULL;
  }
  oa_symbol *symbol = &library->symbols[index];
  void *address = __atomic_load_n(&symbol->address, __ATOMIC_ACQUIRE);
  if (address) return address;
  if (oa_core_start() || ensure_loaded(library)) return NULL;
  address = look_up(library->loaded, library->prefix, symbol->name, library->suffix);
  if (!address)
    oa_fail(OA_ERROR_LIBRARY, "%s: %s has no %s%s%s; a newer version of the library is needed", library->name,
            library->path, library->prefix, symbol->name, library->suffix);
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
