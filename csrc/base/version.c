/* The library's version, and other copies of the library in the process: two copies would lend the same array
 * independently of each other, and results would be lost. */
#define _GNU_SOURCE /* dladdr, dl_iterate_phdr */
#include "base/version.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int oa_version(void) { return OA_VERSION; }

/* -- copies -- */

static atomic_bool in_use;

int oa_in_use(void) { return atomic_load(&in_use); }

enum { MOST_FILES = 16 };
/* The loaded files that may be copies of the library, or may be linked with one. */
typedef struct files {
  char *names[MOST_FILES];
  int count;
} files;

static int note_file(struct dl_phdr_info *info, size_t size, void *data) {
  files *list = data;
  (void)size;
  if (!info->dlpi_name || !strstr(info->dlpi_name, "offload_args") || list->count == MOST_FILES) return 0;
  list->names[list->count] = strdup(info->dlpi_name);
  list->count += list->names[list->count] != NULL;
  return 0;
}

/* Returns whether the file has, or is linked with, another copy of the library that is in use. Sets *info to the place
 * of that copy. A copy that does not export oa_in_use counts as in use. */
static bool is_used_copy(const char *name, Dl_info *info) {
  void *file = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
  if (!file) return false;
  Dl_info own;
  const void *lends = dlsym(file, "oa_region_enter");
  int (*asked)(void) = (int (*)(void))dlsym(file, "oa_in_use");
  const bool other = lends && dladdr(lends, info) && dladdr(&in_use, &own) && info->dli_fbase != own.dli_fbase;
  const bool used = other && (!asked || asked());
  dlclose(file);
  return used;
}

static int check_alone(void) {
  files loaded = {.count = 0};
  int status = OA_OK;
  dl_iterate_phdr(note_file, &loaded); /* the callback must not open files */
  for (int i = 0; i < loaded.count; i++) {
    Dl_info its, own = {.dli_fname = "this one"};
    if (!status && is_used_copy(loaded.names[i], &its)) {
      dladdr(&in_use, &own);
      status = oa_fail(OA_ERROR_VERSION,
                       "two copies of offload_args are in this process, and would lend the same array without knowing "
                       "of each other: %s is in use, and %s can't be used beside it; link or load the same file",
                       its.dli_fname, own.dli_fname);
    }
    free(loaded.names[i]);
  }
  return status;
}

int oa_start_alone(void) {
  atomic_store(&in_use, true); /* first, so that two copies that start at the same time find each other */
  const int status = check_alone();
  if (status) atomic_store(&in_use, false);
  return status;
}

int oa_check_version(int compiled) {
  const int major = compiled / 10000, minor = compiled / 100;
  const int same = major ? major == OA_VERSION / 10000 && minor <= OA_VERSION / 100 : minor == OA_VERSION / 100;
  if (compiled > 0 && same) return atomic_load(&in_use) ? OA_OK : check_alone();
  return oa_fail(
      OA_ERROR_VERSION,
      "oa_check_version: the library is version %d.%d.%d, the program was compiled with the header of version "
      "%d.%d.%d; compile it again, or install that version",
      OA_VERSION / 10000, OA_VERSION / 100 % 100, OA_VERSION % 100, major, minor % 100, compiled % 100);
}
