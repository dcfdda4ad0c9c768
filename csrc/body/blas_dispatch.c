#include "body/blas_dispatch.h"

#include "region/slot.h"

int oa_dispatch_library(const char *function, const char *name, const void *pointer, const oa_library *const *libraries,
                        int *place) {
  int status;
  const oa_slot *slot = oa_slot_enter(function, name, pointer, &status);
  if (!slot) return status;
  const oa_device *device = slot->region->device;
  oa_unlock();
  for (*place = 0; libraries[*place]; ++*place)
    if (oa_library_works_on(libraries[*place], device)) return OA_OK;
  return oa_fail(OA_ERROR_DEVICE, "%s: %s is on %s, and this build has no BLAS for it", function, name, device->name);
}

int oa_dispatch_check(const char *function, const char *name, const oa_dispatch_enum *entry, int value) {
  if (value >= entry->first && value < entry->first + entry->count) return OA_OK;
  return oa_fail_enum(function, name, value, entry->names);
}
