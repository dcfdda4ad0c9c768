#include "offload_args/routine.h"

#include "library/library.h"

#include <string.h>

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
