#define _GNU_SOURCE /* dladdr */
#include "library/find.h"

#include "base/error.h"

#include <ctype.h>
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const oa_library *library;
  oa_library_attempt attempt;
  char tried[1024]; /* all tried places, cut to the size of this buffer */
} search;

static void note(search *here, const char *place) {
  const size_t used = strlen(here->tried);
  snprintf(here->tried + used, sizeof here->tried - used, "%s%s", used ? ", " : "", place);
}

/* Returns the major version in a file's name, as in "librocblas.so.5.0.70000"; -1: it has none. */
static long major_of(const char *path) {
  const char *file = strrchr(path, '/'), *so = strstr(file ? file : path, ".so.");
  return so && isdigit((unsigned char)so[4]) ? strtol(so + 4, NULL, 10) : -1;
}

/* Returns whether the file is a GPU's library of a major version that this build does not know: its functions may take
 * other arguments. */
static bool is_of_unknown_version(const oa_library *library, const char *path) {
  char file[PATH_MAX];
  bool any = false;
  const long major = library->backend && realpath(path, file) ? major_of(file) : -1;
  for (const char *const *name = library->sonames; major >= 0 && name && *name; name++) {
    if (major_of(*name) == major) return false;
    any |= major_of(*name) >= 0;
  }
  return any;
}

static bool found_at(search *here, const char *path) {
  if (is_of_unknown_version(here->library, path)) {
    note(here, path);
    note(here, "of a version that this build does not know");
    return false;
  }
  if (here->attempt(here->library, path) == OA_OK) return true;
  note(here, path);
  return false;
}

/* Tries the files that match a pattern. */
static bool found_among(search *here, const char *pattern) {
  glob_t files = {0};
  bool success = false;
  if (glob(pattern, 0, NULL, &files) == 0) {
    for (size_t i = 0; i < files.gl_pathc && !success; i++) success = found_at(here, files.gl_pathv[i]);
  } else {
    note(here, pattern);
  }
  globfree(&files);
  return success;
}

/* Tries the packages beside offload_args, in the folder that has the package. */
static bool found_beside(search *here) {
  const char *const *pattern = here->library->beside;
  Dl_info info;
  char folder[PATH_MAX], path[2 * PATH_MAX];
  if (!pattern || !dladdr((const void *)oa_library_search, &info) || !realpath(info.dli_fname, folder)) return false;
  for (int i = 0; i < 2; i++) { /* removes the file's name, and in the second round the folder's name, offload_args */
    char *slash = strrchr(folder, '/');
    if (!slash) return false;
    *slash = '\0';
    if (i == 0 && !(strlen(folder) > 13 && strcmp(folder + strlen(folder) - 13, "/offload_args") == 0)) return false;
  }
  for (; *pattern; pattern++) {
    snprintf(path, sizeof path, "%s/%s", folder, *pattern);
    if (found_among(here, path)) return true;
  }
  return false;
}

/* Tries the folders into which the library's vendor installs; a folder may begin with an environment variable, as in
 * $ROCM_PATH/lib. */
static bool found_in_folders(search *here) {
  char path[PATH_MAX], variable[64];
  for (const char *const *folder = here->library->folders; folder && *folder; folder++) {
    const char *root = "", *rest = *folder;
    if (*rest == '$') {
      const size_t length = strcspn(rest + 1, "/");
      snprintf(variable, sizeof variable, "%.*s", (int)length, rest + 1);
      root = getenv(variable);
      rest += 1 + length;
    }
    if (!root || (*root ? *root : *rest) != '/') continue;
    for (const char *const *name = here->library->sonames; name && *name; name++) {
      snprintf(path, sizeof path, "%s%s/%s", root, rest, *name);
      if (found_among(here, path)) return true;
    }
  }
  return false;
}

int oa_library_search(const oa_library *library, oa_library_attempt attempt) {
  search here = {.library = library, .attempt = attempt};
  char variable[64];
  snprintf(variable, sizeof variable, "OFFLOAD_ARGS_%s", library->name);
  for (char *c = variable; *c; c++) *c = (char)toupper((unsigned char)*c);
  const char *path = getenv(variable);
  if (path && *path) {
    if (*path != '/')
      return oa_fail(OA_ERROR_LIBRARY, "%s: %s needs an absolute path, got \"%s\"", library->name, variable, path);
    if (attempt(library, path) == OA_OK) return OA_OK;
    snprintf(here.tried, sizeof here.tried, "%s", oa_last_error());
    return oa_fail(OA_ERROR_LIBRARY, "%s (the path comes from the environment variable %s)", here.tried, variable);
  }
  if (found_beside(&here) || found_in_folders(&here)) return OA_OK;
  for (const char *const *name = library->sonames; name && *name; name++)
    if (found_at(&here, *name)) return OA_OK;
  return oa_fail(OA_ERROR_LIBRARY,
                 "%s: not found; tried %s. Set %s to its absolute path, or name it with oa_library_open", library->name,
                 here.tried[0] ? here.tried : "nothing, as this build knows no name of it", variable);
}
