#define _GNU_SOURCE /* memfd_create, dladdr1 */
#include "kernel/shared_object.h"
#include "base/threads.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A loaded object. The file descriptor stays open while the object is loaded: the loader identifies objects by their
 * paths, so no other object may get this path. */
struct object {
  void *library;
  int descriptor;
};

static bool write_all(int descriptor, const char *bytes, size_t nbytes) {
  while (nbytes) {
    const ssize_t written = write(descriptor, bytes, nbytes < INT_MAX ? nbytes : INT_MAX);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes += written;
    nbytes -= (size_t)written;
  }
  return true;
}

int oa_shared_object_load(const char *name, const void *image, size_t nbytes, void **object) {
  char path[64];
  struct object *loaded = malloc(sizeof *loaded);
  if (!loaded) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory", name);
  loaded->descriptor = memfd_create("offload_args module", MFD_CLOEXEC);
  if (loaded->descriptor < 0 || !write_all(loaded->descriptor, image, nbytes)) {
    const int error = errno;
    if (loaded->descriptor >= 0) close(loaded->descriptor);
    free(loaded);
    return oa_fail(OA_ERROR_BACKEND, "%s: no file in memory for it: %s", name, strerror(error));
  }
  snprintf(path, sizeof path, "/proc/self/fd/%d", loaded->descriptor);
  loaded->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!loaded->library) {
    const char *why = dlerror();
    close(loaded->descriptor);
    free(loaded);
    return oa_fail(OA_ERROR_MODULE, "%s: the loader refuses it: %s", name, why ? why : "no reason given");
  }
  *object = loaded;
  return OA_OK;
}

void oa_shared_object_unload(void *object) {
  struct object *o = object;
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", o->descriptor);
  dlclose(o->library);
  /* Not NULL if another object, or the program, holds the library. */
  void *still = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (still)
    dlclose(still);
  else
    close(o->descriptor);
  free(o);
}

int oa_shared_object_function(void *object, const char *name, oa_kernel_function **function, const unsigned **table) {
  const struct object *o = object;
  char symbol[512];
  if (snprintf(symbol, sizeof symbol, "oa_kernel_%s", name) < (int)sizeof symbol)
    *(void **)function = dlsym(o->library, symbol);
  else
    *function = NULL;
  if (!*function)
    return oa_fail(OA_ERROR_MODULE, "%s: the module has no kernel of that name: it exports no oa_kernel_%s", name,
                   name);
  snprintf(symbol, sizeof symbol, "oa_parameters_%s", name);
  *table = dlsym(o->library, symbol);
  return OA_OK;
}

int oa_shared_object_variable(void *object, const char *name, uint64_t *address, size_t *nbytes) {
  const struct object *o = object;
  void *symbol = dlsym(o->library, name), *entry = NULL;
  Dl_info info;
  if (!symbol || !dladdr1(symbol, &info, &entry, RTLD_DL_SYMENT) || !entry || info.dli_saddr != symbol ||
      ELF64_ST_TYPE(((const Elf64_Sym *)entry)->st_info) != STT_OBJECT)
    return oa_fail(OA_ERROR_MODULE, "%s: the module has no variable of that name", name);
  *address = (uint64_t)(uintptr_t)symbol;
  *nbytes = ((const Elf64_Sym *)entry)->st_size;
  return OA_OK;
}

/* In bytes. Shared memory is on the stack of a thread; the limit is as on GPUs. */
enum { MOST_SHARED = 232448, SHARED_ALIGNMENT = 64 };

/* The limits are as on present GPUs, so that a launch that is valid here is valid there. */
void oa_shared_object_info(oa_kernel_info *info) {
  for (int axis = 0; axis < 3; axis++) {
    info->most_grid[axis] = axis == 0 ? INT_MAX : 65535; /* with these limits, the number of all blocks fits 63 bits */
    info->most_block[axis] = axis == 2 ? 64 : 1024;
  }
  info->most_threads = 1024;
  info->good_threads = 256;
  info->registers = -1;
  info->multiprocessors = oa_threads_count();
  info->most_shared_bytes = MOST_SHARED;
}

/* -- running ------------------------------------------------------------------------------------------------------ */

/* A grid whose blocks the threads take in turn. */
struct grid {
  const oa_shared_object_launch *launch;
  void *arguments[OA_MOST_PARAMETERS];
  long long blocks, at_once;
  atomic_llong next;
};

/* One thread of the CPU runs a grid with few threads and few bytes to write: waking other threads would take longer. */
enum { FEW_THREADS = 1 << 14, FEW_BYTES = 1 << 16 };

static void run_blocks(void *data) {
  struct grid *grid = data;
  const oa_shared_object_launch *launch = grid->launch;
  oa_kernel_call call = {.arguments = grid->arguments, .shared_bytes = launch->shared_bytes};
  memcpy(call.grid, launch->grid, sizeof call.grid);
  memcpy(call.block, launch->block, sizeof call.block);
  unsigned char shared[launch->shared_bytes + SHARED_ALIGNMENT]; /* at most MOST_SHARED bytes */
  call.shared = shared + (SHARED_ALIGNMENT - (uintptr_t)shared % SHARED_ALIGNMENT) % SHARED_ALIGNMENT;
  for (;;) {
    call.first = atomic_fetch_add(&grid->next, grid->at_once);
    if (call.first >= grid->blocks) break;
    call.last = grid->blocks - call.first < grid->at_once ? grid->blocks : call.first + grid->at_once;
    launch->function(&call);
  }
}

void oa_shared_object_run(void *data) {
  oa_shared_object_launch *launch = data;
  struct grid grid = {.launch = launch};
  for (int i = 0; i < launch->count; i++) grid.arguments[i] = launch->bytes + launch->offsets[i];
  grid.blocks = (long long)launch->grid[0] * launch->grid[1] * launch->grid[2];
  const long long threads = (long long)launch->block[0] * launch->block[1] * launch->block[2];
  const bool alone = grid.blocks == 1 || (grid.blocks <= FEW_THREADS / threads && launch->written <= FEW_BYTES);
  const int participants = alone ? 1 : oa_threads_count();
  grid.at_once = participants == 1 ? grid.blocks : grid.blocks / (4 * participants);
  if (grid.at_once < 1) grid.at_once = 1;
  oa_threads_run(NULL, run_blocks, &grid, participants);
}
