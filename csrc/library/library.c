#define _GNU_SOURCE /* dladdr */
#include "library/library.h"

#include "library/find.h"
#include "offload_args/routine.h"
#include "offload_args/testing.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER; /* not held while a loader runs: loaders call the core */
static oa_library_loader loader;

static void make_ready(void) {
  for (int i = 0; oa_libraries[i]; i++) {
    oa_library_state *state = oa_libraries[i]->state;
    const char *backend = oa_libraries[i]->backend;
    state->index = i;
    state->backend = backend ? oa_backend_named(backend) : NULL;
    state->unknown = backend && !state->backend;
    state->waits = backend && oa_libraries[i]->set_stream < 0 && !oa_libraries[i]->takes_stream;
    __atomic_store_n(&state->ready, true, __ATOMIC_RELEASE);
  }
}

void oa_libraries_ready(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_ready);
}

const oa_library *oa_library_named(const char *function, const char *name) {
  oa_libraries_ready();
  for (int i = 0; oa_libraries[i]; i++)
    if (name && strcmp(oa_libraries[i]->name, name) == 0) return oa_libraries[i];
  oa_fail(OA_ERROR_ARGUMENT, "%s: library needs the name of a library of this build, got \"%s\"", function,
          name ? name : "NULL");
  return NULL;
}

int oa_fail_library_device(const oa_library *library, const char *function, const char *name, const oa_device *device) {
  const oa_library_state *state = library->state;
  if (state->unknown)
    return oa_fail(OA_ERROR_DEVICE, "%s: %s is on %s; %s works on %s devices, which this build has no backend for",
                   function, name, device->name, library->title ? library->title : library->name, library->backend);
  const char *needed = state->backend ? state->backend->name : "host";
  return oa_fail(OA_ERROR_DEVICE, "%s: %s is on %s, needs to be on a %s device; open the region with device=\"%s\"",
                 function, name, device->name, needed, needed);
}

static void *look_up(void *loaded, const char *prefix, const char *name, const char *suffix) {
  char symbol[256];
  snprintf(symbol, sizeof symbol, "%s%s%s", prefix, name, suffix);
  return dlsym(loaded, symbol);
}

/* Finds how this build spells its symbols, from the first required symbol that it has in any spelling. Returns that
 * symbol's address. Optional symbols don't count: some builds spell optional symbols differently from the other
 * symbols. */
static void *find_spelling(const oa_library *library, void *loaded, const char **prefix, const char **suffix) {
  static const char *const plain[] = {"", NULL};
  const char *const own[] = {*prefix, NULL};
  const char *const *prefixes = *prefix ? own : library->prefixes ? library->prefixes : plain;
  const char *const *suffixes = library->suffixes ? library->suffixes : plain;
  for (int i = 0; i < library->symbol_count - library->optional_count; i++)
    for (const char *const *p = prefixes; *p; p++)
      for (const char *const *s = suffixes; *s; s++) {
        void *address = look_up(loaded, *p, library->symbols[i], *s);
        if (!address) continue;
        *prefix = *p;
        *suffix = *s;
        return address;
      }
  return NULL;
}

/* Returns whether a build's integers have 64 bits. A build with 32-bit integers reads n as 3, so its search for the
 * largest of n elements finds the third element. A build with 64-bit integers reads a negative n, so its search finds
 * no element and returns 0. */
static bool has_64_bit_integers(void *search) {
  const float x[] = {1, 2, 3};
  const int64_t n = (int64_t)UINT64_C(0xffffffff00000003);
  return search && (int32_t)((size_t (*)(int64_t, const float *, int64_t))search)(n, x, 1) == 0;
}

/* Calls the library's version function; leaves text unchanged if that fails. size: the bytes of text. */
static void ask_version(int kind, void *function, char *text, size_t size) {
  int parts[3] = {0};
  switch (kind) {
    case OA_VERSION_TEXT: {
      const char *answer = ((const char *(*)(void))function)();
      if (answer) snprintf(text, size, "%s", answer);
      break;
    }
    case OA_VERSION_BUFFER:
      if (((int (*)(char *, size_t))function)(text, size)) text[0] = '\0';
      break;
    case OA_VERSION_NUMBER:
      if (!((int (*)(int *))function)(parts)) snprintf(text, size, "%d", parts[0]);
      break;
    case OA_VERSION_PARTS:
      for (int part = 0; part < 3; part++)
        if (((int (*)(int, int *))function)(part, &parts[part])) return;
      snprintf(text, size, "%d.%d.%d", parts[0], parts[1], parts[2]);
      break;
  }
}

/* Reads the next number of a version; 0 at its end. */
static long next_number(const char **version) {
  if (!isdigit((unsigned char)**version)) return 0;
  char *end;
  const long number = strtol(*version, &end, 10);
  *version = *end == '.' ? end + 1 : end;
  return number;
}

/* Returns whether a version, such as "4.1.2" or "OpenBLAS 0.3.31 DYNAMIC_ARCH", is older than another version. A
 * version without a number is not older. */
static bool is_before(const char *version, const char *other) {
  version += strcspn(version, "0123456789");
  if (!*version) return false;
  while (isdigit((unsigned char)*version) || isdigit((unsigned char)*other)) {
    const long number = next_number(&version), limit = next_number(&other);
    if (number != limit) return number < limit;
  }
  return false;
}

/* Writes the version of a loaded library; "" if the library does not report one. */
static void read_version(const oa_library *library, void *loaded, const char *prefix, const char *suffix, char *text,
                         size_t size) {
  text[0] = '\0';
  if (!library->version) return;
  void *function = look_up(loaded, prefix, library->version, suffix);
  if (!function) function = look_up(loaded, prefix, library->version, "");
  if (function) ask_version(library->version_kind, function, text, size);
}

/* Takes over the handle of a loaded library. If this fails, closes the handle. whole: all symbols except optional
 * symbols must exist. */
static int take(const oa_library *library, void *loaded, const char *path, const char *prefix, bool whole) {
  oa_library_state *state = library->state;
  const char *suffix = "", *missing = NULL;
  if (!find_spelling(library, loaded, &prefix, &suffix)) missing = library->symbols[0];
  for (int i = 0; whole && !missing && i < library->symbol_count - library->optional_count; i++)
    if (!look_up(loaded, prefix, library->symbols[i], suffix)) missing = library->symbols[i];
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
  state->path = own_path;
  state->prefix = own_prefix;
  state->suffix = suffix;
  state->ilp64 = library->probe && has_64_bit_integers(look_up(loaded, prefix, library->probe, suffix));
  __atomic_store_n(&state->loaded, loaded, __ATOMIC_RELEASE);
  return OA_OK;
}

/* Succeeds if the library is already loaded from the same file, otherwise fails. */
static int loaded_before(const oa_library *library, const char *path) {
  const char *own_path = library->state->path;
  if (strcmp(own_path, path) == 0) return OA_OK;
  return oa_fail(OA_ERROR_LIBRARY, "%s: %s is loaded already, %s can't be loaded beside it", library->name, own_path,
                 path);
}

static int load(const oa_library *library, const char *path, const char *prefix) {
  if (library->state->loaded) return loaded_before(library, path);
  void *loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!loaded) return oa_fail(OA_ERROR_LIBRARY, "%s: %s", library->name, dlerror());
  return take(library, loaded, path, prefix, false);
}

/* Returns the file that has the library's first symbol, among the libraries that `module` is linked with; NULL if there
 * is none. The caller frees the text. */
static char *file_of_module(const oa_library *library, void *module) {
  const char *prefix = NULL, *suffix;
  Dl_info info;
  const void *function = find_spelling(library, module, &prefix, &suffix);
  if (!function || !dladdr(function, &info)) return NULL;
  return realpath(info.dli_fname, NULL);
}

static int share(const oa_library *library, const char *module) {
  const char *name = module ? module : "the program";
  void *loaded = dlopen(module, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (!loaded) return oa_fail(OA_ERROR_LIBRARY, "%s: %s is not loaded in this process", library->name, name);
  char *file = file_of_module(library, loaded);
  const char *path = file ? file : name;
  int status;
  if (library->state->loaded) {
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
  int status = oa_core_start(function);
  if (status) return status;
  const oa_library *library = oa_library_named(function, name);
  if (!library) return OA_ERROR_ARGUMENT;
  if (path ? path[0] != '/' : !shared)
    return oa_fail(OA_ERROR_LIBRARY,
                   "%s: \"%s\" is not an absolute path; libraries are never loaded from the working directory", name,
                   path ? path : "NULL");
  pthread_mutex_lock(&loading);
  status = shared ? share(library, path) : load(library, path, prefix);
  pthread_mutex_unlock(&loading);
  return status;
}

int oa_library_double(const char *name, const char *path, const char *backend_name) {
  const oa_library *library = oa_library_named("oa_library_double", name);
  if (!library) return OA_ERROR_ARGUMENT;
  const oa_backend *backend = backend_name ? oa_backend_named(backend_name) : NULL;
  if (!backend)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_library_double: backend needs the name of one of this build, got \"%s\"",
                   backend_name ? backend_name : "NULL");
  oa_library_state *state = library->state;
  if (__atomic_load_n(&state->loaded, __ATOMIC_ACQUIRE))
    return oa_fail(OA_ERROR_LIBRARY, "oa_library_double: %s is loaded already, from %s; name its double before", name,
                   state->path);
  state->backend = backend;
  state->unknown = false;
  /* On a GPU, a double gets the GPU's stream, as the real library does. On other devices the core waits for each call
   * of the double. */
  state->waits |= !(backend->flags & OA_DEVICE_GPU);
  return oa_library_open(name, path, NULL);
}

int oa_library_open(const char *name, const char *path, const char *prefix) {
  return acquire("oa_library_open", name, path, prefix, false);
}

int oa_library_share(const char *name, const char *module) {
  return acquire("oa_library_share", name, module, NULL, true);
}

/* Returns the state of a loaded library; NULL if the library is not loaded. */
static const oa_library_state *loaded_state(const oa_library *library) {
  return library && __atomic_load_n(&library->state->loaded, __ATOMIC_ACQUIRE) ? library->state : NULL;
}

const char *oa_library_path(const char *name) {
  const oa_library_state *state = loaded_state(oa_library_named("oa_library_path", name));
  return state ? state->path : "";
}

int oa_library_has_symbol(const char *name, const char *symbol) {
  const oa_library_state *state = loaded_state(oa_library_named("oa_library_has_symbol", name));
  return symbol && state && look_up(state->loaded, state->prefix, symbol, state->suffix) != NULL;
}

int oa_library_version(const char *name, char *text, size_t size) {
  const oa_library *library = oa_library_named("oa_library_version", name);
  if (!library) return OA_ERROR_ARGUMENT;
  if (!text || !size) return oa_fail_null("oa_library_version", "text");
  text[0] = '\0';
  const oa_library_state *state = loaded_state(library);
  if (!state)
    return oa_fail(OA_ERROR_LIBRARY, "oa_library_version: %s is not loaded; make a call, or oa_library_open it", name);
  char version[1024]; /* the caller's size may be anything, and libraries trust the size that they get */
  read_version(library, state->loaded, state->prefix, state->suffix, version, sizeof version);
  const size_t length = strnlen(version, sizeof version - 1);
  const size_t room = size - 1 < length ? size - 1 : length;
  memcpy(text, version, room);
  text[room] = '\0';
  return OA_OK;
}

/* Returns the older header's entry of a symbol; NULL if the older header agrees with the newer header. */
static const oa_older *older_of(const oa_library *library, int index) {
  for (int i = 0; i < library->older_count; i++)
    if (library->older[i].symbol == index) return &library->older[i];
  return NULL;
}

/* Sets the error of a loaded library that lacks a function; known: a version that has it. */
static int fail_missing(const oa_library *library, const char *symbol, const char *known) {
  const oa_library_state *state = library->state;
  char version[256] = "";
  oa_library_version(library->name, version, sizeof version);
  if (!version[0] || !known)
    return oa_fail(OA_ERROR_VERSION, "%s: %s has no %s%s%s; another version of the library is needed", library->name,
                   state->path, state->prefix, symbol, state->suffix);
  return oa_fail(OA_ERROR_VERSION, "%s: %s has no %s%s%s: its version is %s; version %s has it", library->name,
                 state->path, state->prefix, symbol, state->suffix, version, known);
}

/* Returns the first version that has a symbol, if the symbol is newer than the library's other symbols; otherwise
 * NULL. */
static const char *since_of(const oa_library *library, int index) {
  for (int i = 0; i < library->since_count; i++)
    if (library->since[i].symbol == index) return library->since[i].version;
  return NULL;
}

/* Returns whether a symbol of the loaded version must not be called; then the error is set. */
static bool is_refused(const oa_library *library, int index) {
  const oa_library_state *state = library->state;
  char version[64] = "";
  for (int i = 0; i < library->since_count; i++) {
    const oa_since *since = &library->since[i];
    if (since->symbol != index || oa_library_version(library->name, version, sizeof version)) continue;
    if (!is_before(version, since->version)) continue;
    oa_fail(OA_ERROR_VERSION, "%s: %s%s%s of %s is not called: its version is %s, and %s; load a later one",
            library->name, state->prefix, library->symbols[index], state->suffix, state->path, version, since->why);
    return true;
  }
  return false;
}

void oa_library_set_loader(oa_library_loader function) {
  pthread_mutex_lock(&loading);
  loader = function;
  pthread_mutex_unlock(&loading);
}

/* Loads a library unless another thread did so meanwhile. */
static int load_once(const oa_library *library, const char *path) {
  pthread_mutex_lock(&loading);
  const int status = library->state->loaded ? OA_OK : load(library, path, NULL);
  pthread_mutex_unlock(&loading);
  return status;
}

static int ensure_loaded(const oa_library *library) {
  if (loaded_state(library)) return OA_OK;
  oa_libraries_ready();
  pthread_mutex_lock(&loading);
  const oa_library_loader find = loader;
  pthread_mutex_unlock(&loading);
  if (find) {
    char text[4096] = "";
    const int status = find(library->name, text, sizeof text);
    if (!status && loaded_state(library)) return OA_OK;
    return text[0] ? oa_fail(OA_ERROR_LIBRARY, "%s: %s", library->name, text) : OA_ERROR_LIBRARY;
  }
  return oa_library_search(library, load_once);
}

int oa_library_address(const char *name, const char *symbol, void **address) {
  const oa_library *library = oa_library_named("oa_library_address", name);
  if (!library) return OA_ERROR_ARGUMENT;
  if (!symbol || !address) return oa_fail_null("oa_library_address", symbol ? "address" : "symbol");
  int status = oa_core_start(__func__);
  if (!status) status = ensure_loaded(library);
  if (status) return status;
  const oa_library_state *state = library->state;
  *address = look_up(state->loaded, state->prefix, symbol, state->suffix);
  return *address ? OA_OK : fail_missing(library, symbol, NULL);
}

int oa_library_integer_bits(const char *name) {
  const oa_library_state *state = loaded_state(oa_library_named("oa_library_integer_bits", name));
  return !state ? 0 : state->ilp64 ? 64 : 32;
}

void *oa_library_symbol(const oa_library *library, int index) {
  if (library && index < 0) {
    oa_fail(OA_ERROR_LIBRARY, "oa_library_symbol: %s has no function for that, such as a handle's stream or mode",
            library->name);
    return NULL;
  }
  if (!library || index >= library->symbol_count) {
    oa_fail(OA_ERROR_ARGUMENT, "oa_library_symbol: library has no symbol of the index %d, or is NULL", index);
    return NULL;
  }
  void *address = __atomic_load_n(&library->addresses[index], __ATOMIC_ACQUIRE);
  if (address) return address;
  if (oa_core_start(__func__) || ensure_loaded(library)) return NULL;
  const oa_library_state *state = library->state;
  const oa_older *older = older_of(library, index);
  const char *symbol = library->symbols[index];
  char version[64] = "";
  if (older && older->instead && !oa_library_version(library->name, version, sizeof version) &&
      is_before(version, library->older_before))
    symbol = older->instead;
  address = look_up(state->loaded, state->prefix, symbol, state->suffix);
  if (address && is_refused(library, index)) return NULL;
  const char *since = since_of(library, index);
  if (!address)
    fail_missing(library, symbol,
                 since                      ? since
                 : older && !older->instead ? library->older_version
                                            : library->header_version);
  __atomic_store_n(&library->addresses[index], address, __ATOMIC_RELEASE);
  return address;
}

/* -- status codes and routines -- */

/* Appends the first line of the library's message about its last failure. */
static __attribute__((cold)) void add_message(const oa_library *library, char *text, size_t size) {
  const char *(*tell)(void *) = (const char *(*)(void *))oa_library_symbol(library, library->last_error - 1);
  const char *message = tell ? tell(NULL) : NULL;
  const int length = message ? (int)strcspn(message, "\n") : 0;
  if (length) snprintf(text, size, ": %.*s", length, message);
}

void oa_library_status_text(const oa_library *library, int status, char *text, size_t size) {
  const oa_code_name *code = library->code_names;
  while (code && code->name && code->code != status) code++;
  const int length = snprintf(text, size, "%s (%d)", code && code->name ? code->name : "status", status);
  if (OA_UNLIKELY(library->last_error) && length > 0 && (size_t)length < size)
    add_message(library, text + length, size - (size_t)length);
}

int oa_library_routines(const char *name, const oa_routine **routines, int *count) {
  const oa_library *library = oa_library_named("oa_library_routines", name);
  if (!library) return OA_ERROR_ARGUMENT;
  if (!routines || !count) return oa_fail_null("oa_library_routines", routines ? "count" : "routines");
  *routines = library->routines;
  *count = library->routine_count;
  return OA_OK;
}

int oa_library_object_kinds(const char *name, const oa_object_kind **kinds, int *count) {
  const oa_library *library = oa_library_named("oa_library_object_kinds", name);
  if (!library) return OA_ERROR_ARGUMENT;
  if (!kinds || !count) return oa_fail_null("oa_library_object_kinds", kinds ? "count" : "kinds");
  *kinds = library->object_kinds;
  *count = library->object_kind_count;
  return OA_OK;
}

const oa_routine *oa_routine_find(const char *library_name, const char *name) {
  const oa_library *library = oa_library_named("oa_routine_find", library_name);
  if (!library) return NULL;
  if (!name) {
    oa_fail_null("oa_routine_find", "name");
    return NULL;
  }
  const size_t prefix = strlen(library->name) + 1;
  int low = 0, high = library->routine_count;
  while (low < high) {
    const int middle = low + (high - low) / 2;
    const int order = strcmp(library->routines[middle].function + prefix, name);
    if (!order) return &library->routines[middle];
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  oa_fail(OA_ERROR_ARGUMENT, "oa_routine_find: %s has no routine \"%s\" in this build", library->name, name);
  return NULL;
}
