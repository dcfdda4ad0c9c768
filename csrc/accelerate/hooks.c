#define _GNU_SOURCE
#include "accelerate/hooks.h"

#include <dlfcn.h>
#include <string.h>

/* The parts of a name such as "scipy_cblas_dgemm64_". */
typedef struct spelling {
  char base[16]; /* "dgemm" */
  int interface; /* oa_hook_interface */
  int wide;      /* 1: the routine's integers have 64 bits; 0: 32 bits; -1: the name does not show the size */
} spelling;

/* Returns whether a file implements BLAS or LAPACK, or is a GPU library: calls inside such a file are not hooked. */
static bool is_provider(const char *path) {
  static const char *const names[] = {
      "liblapack", "libblas",   "libcblas",     "libopenblas", "libscipy_openblas", "libmkl_",
      "libblis",   "libflame",  "libflexiblas", "libarmpl",    "libatlas",          "libblasfeo",
      "libgsl",    "libcublas", "libcusolver",  "librocblas",  "librocsolver",      "liboffload_args"};
  const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strncmp(file, names[i], strlen(names[i])) == 0) return true;
  return false;
}

/* Returns whether a file is the program itself, or the library of an interpreter that loads modules. */
static bool is_interpreter(const char *path) {
  const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
  return !*path || strncmp(file, "libpython", 9) == 0 || strcmp(file, "libR.so") == 0;
}

static bool cut_end(const char *name, size_t *length, const char *end) {
  const size_t size = strlen(end);
  if (*length <= size || memcmp(name + *length - size, end, size) != 0) return false;
  *length -= size;
  return true;
}

/* Reads the parts of a name. Returns false if the name is not the name of a BLAS routine. */
static bool read_spelling(const char *name, spelling *read) {
  if (strncmp(name, "scipy_", 6) == 0) name += 6;
  read->interface = strncmp(name, "cblas_", 6) == 0 ? OA_BY_VALUE : OA_BY_ADDRESS;
  if (read->interface == OA_BY_VALUE) name += 6;
  if (!strchr("sdcz", *name) || !*name) return false;
  size_t length = strlen(name);
  if (length > 15) return false;
  read->wide = -1;
  if (cut_end(name, &length, "_64_") || cut_end(name, &length, "64_") || cut_end(name, &length, "_64")) read->wide = 1;
  if (read->interface == OA_BY_ADDRESS) cut_end(name, &length, "_");
  memcpy(read->base, name, length);
  read->base[length] = 0;
  return true;
}

const oa_hooked *oa_hook_routine(const char *base) {
  int low = 0, high = &oa_hooks ? oa_hooks.count : 0;
  while (low < high) {
    const int middle = (low + high) / 2, order = strcmp(base, oa_hooks.routines[middle].name);
    if (!order) return &oa_hooks.routines[middle];
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return NULL;
}

/* Returns whether the integers of a library have 64 bits; -1 if it has no isamax. The names in MKL and in some builds
 * of OpenBLAS do not show the size. With n = -2^32 + 2, isamax finds the second element if its n has 32 bits, and no
 * element if its n has 64 bits. */
static int has_wide_integers(void *handle, const char *name) {
  static const float x[2] = {1, 2};
  const int64_t n = -((int64_t)1 << 32) + 2, unit = 1;
  const bool scipys = strncmp(name, "scipy_", 6) == 0;
  union {
    void *address;
    int (*by_address)(const int64_t *, const float *, const int64_t *);
    size_t (*by_value)(int64_t, const float *, int64_t);
  } isamax;
  if ((isamax.address = dlsym(handle, scipys ? "scipy_isamax_" : "isamax_")))
    return isamax.by_address(&n, x, &unit) == 0;
  if ((isamax.address = dlsym(handle, scipys ? "scipy_cblas_isamax" : "cblas_isamax")))
    return (int)isamax.by_value(n, x, 1) != 1;
  return -1;
}

/* -- the interpreter's dlsym -- */

static void *(*_Atomic first_dlsym)(void *, const char *);
static void (*_Atomic when_loaded)(void);

void oa_hooks_set_loaded(void (*loaded)(void)) { atomic_store(&when_loaded, loaded); }

/* Hooks modules when the interpreter calls dlsym: Python looks up a module's PyInit function after dlopen, and before
 * any code of the module runs. */
static void *hook_dlsym(void *handle, const char *name) {
  void (*loaded)(void) = atomic_load(&when_loaded);
  if (loaded) loaded();
  return atomic_load(&first_dlsym)(handle, name);
}

/* -- choosing -- */

static void *take_variant(const oa_hooked *routine, int interface, int wide, void *original) {
  _Atomic(void *) *originals = routine->originals[interface][wide];
  if (!originals) return NULL; /* LAPACK routines have hooks only for Fortran's names */
  for (int i = 0; i < OA_HOOK_VARIANTS; i++) {
    void *symbol = atomic_load(&originals[i]);
    if (!symbol && atomic_compare_exchange_strong(&originals[i], &symbol, original))
      return routine->hooks[interface][wide][i];
    if (symbol == original) return routine->hooks[interface][wide][i];
  }
  return NULL;
}

void *oa_hook_for(const char *path, const char *name, void *original, void *handle) {
  spelling read;
  if (name[0] == 'd' && strcmp(name, "dlsym") == 0) {
    if (!is_interpreter(path)) return NULL;
    union {
      void *address;
      void *(*function)(void *, const char *);
    } is = {original ? original : dlsym(RTLD_DEFAULT, "dlsym")}, hook = {.function = hook_dlsym};
    if (!is.address) return NULL;
    atomic_store(&first_dlsym, is.function);
    return hook.address;
  }
  if (!read_spelling(name, &read)) return NULL;
  const oa_hooked *routine = oa_hook_routine(read.base);
  if (!routine || is_provider(path)) return NULL;
  if (!original && !(original = dlsym(handle, name))) return NULL;
  if (read.wide < 0) read.wide = has_wide_integers(handle, name);
  return read.wide < 0 ? NULL : take_variant(routine, read.interface, read.wide, original);
}
