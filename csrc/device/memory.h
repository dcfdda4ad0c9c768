/* Device memory: allocated within the device's limit, freed in stream order, small pieces pooled for the next region;
 * and waiting for a device, noted in the trace. Without the core's lock unless a function says otherwise. */
#ifndef OA_MEMORY_H
#define OA_MEMORY_H

#include "device/device.h"

/* Hook that frees cached device memory under memory pressure. Returns the number of bytes freed; NULL if no hook is
 * installed. Called without the core's lock. */
extern int64_t (*_Atomic oa_device_pressure)(oa_device *device, size_t nbytes);

/* Allocates memory, counted. When there is no room, or the limit would be passed, returns idle memory to the driver,
 * then asks oa_device_pressure, and tries again. */
int oa_device_allocate(oa_device *device, void *stream, size_t nbytes, uint64_t *address);
/* Frees memory in stream's order. */
int oa_device_free(oa_device *device, void *stream, uint64_t address, size_t nbytes);
/* Whether pooled memory is all zeros: it may hold anything; in the order of a stream; or already. */
enum oa_zeros { OA_ZEROS_NONE, OA_ZEROS_ORDERED, OA_ZEROS_NOW };
/* Takes memory of exactly that size from the pool, counted as allocated. Returns false if the pool has none. Unless the
 * zeros are OA_ZEROS_ORDERED, by that stream, no stream uses any of it. */
bool oa_device_take(oa_device *device, void *stream, size_t nbytes, uint64_t *address, enum oa_zeros *zeros);
/* Returns memory that nothing uses any more to the pool if it is small, else frees it. Pooled memory counts as free,
 * but for the device's limit. The need is the region's: the next one will have the same. */
enum oa_need { OA_NEEDS_NOTHING, OA_NEEDS_ZEROS, OA_NEEDS_ZEROS_AGAIN }; /* again: it was zeros when it was taken */
int oa_device_pool(oa_device *device, void *stream, uint64_t address, size_t nbytes, enum oa_need need);

/* Waits for a stream; noted in the trace as a wait of that region, for that reason. */
int oa_device_wait_stream(oa_device *device, void *stream, uint64_t region, const char *why);
/* Waits for the whole device; noted likewise. */
int oa_device_wait(oa_device *device, uint64_t region, const char *why);

#endif
