#include "region/region.h"

#include <stdlib.h>
#include <string.h>

static oa_region_state *youngest; /* the youngest of all regions; each region refers to the next older region */
static uint64_t last_serial;

oa_region_state *oa_region_new(oa_device *device) {
  oa_region_state *region = malloc(sizeof *region); /* calloc does not reuse memory that this thread has just freed */
  if (!region) {
    oa_fail(OA_ERROR_MEMORY, "oa_region_enter: no host memory for a region");
    return NULL;
  }
  *region = (oa_region_state){
      .device = device, .mappings = region->few, .mapping_capacity = (int)(sizeof region->few / sizeof *region->few)};
  return region;
}

void oa_region_list(oa_region_state *region) {
  region->device->counts.regions++;
  region->serial = ++last_serial;
  region->thread = pthread_self();
  region->older = youngest;
  if (youngest) youngest->younger = region;
  youngest = region;
}

oa_region_state *oa_region_youngest(void) { return youngest; }

void oa_region_free(oa_region_state *region) {
  region->device->counts.regions--;
  if (region->older) region->older->younger = region->younger;
  *(region->younger ? &region->younger->older : &youngest) = region->older;
  if (region->mappings != region->few) free(region->mappings);
  free(region->moves);
  free(region->error);
  free(region);
}

int oa_region_attach(oa_region_state *region, oa_mapping *mapping) {
  if (region->mapping_count == region->mapping_capacity) {
    const int capacity = 2 * region->mapping_capacity;
    oa_mapping **more = malloc((size_t)capacity * sizeof(*more));
    if (!more) return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for a region", region->device->name);
    memcpy(more, region->mappings, (size_t)region->mapping_count * sizeof(*more));
    if (region->mappings != region->few) free(region->mappings);
    region->mappings = more;
    region->mapping_capacity = capacity;
  }
  region->mappings[region->mapping_count++] = mapping;
  return OA_OK;
}

void oa_region_detach(oa_region_state *region, const oa_mapping *mapping) {
  for (int i = 0; i < region->mapping_count; i++)
    if (region->mappings[i] == mapping) region->mappings[i] = region->mappings[--region->mapping_count];
}
