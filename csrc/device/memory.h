/* Device memory: allocated within the device's limit, freed in stream order, with a pool of small pieces for the next
 * region. This file also has the waits for a device, which the trace notes. Callers don't hold the core's lock unless a
 * function's comment says otherwise. */
#ifndef OA_MEMORY_H
#define OA_MEMORY_H

#include "device/device.h"

/* Hook that frees cached device memory under memory pressure; NULL if none is installed. Returns the number of bytes
 * freed. Called without the core's lock. */
extern int64_t (*_Atomic oa_device_pressure)(oa_device *device, size_t nbytes);

/* Allocates memory and counts it. If there is no room, or if the limit would be exceeded, the function returns idle
 * memory to the driver, calls oa_device_pressure, and tries again. */
int oa_device_allocate(oa_device *device, void *stream, size_t nbytes, uint64_t *address);
/* Frees memory in the order of stream. */
int oa_device_free(oa_device *device, void *stream, uint64_t address, size_t nbytes);
/* The zeros of pooled memory. NONE: the contents are not known. ORDERED: the memory is all zeros once a stream has
 * cleared it. NOW: the memory is all zeros. */
enum oa_zeros { OA_ZEROS_NONE, OA_ZEROS_ORDERED, OA_ZEROS_NOW };
/* Takes memory of exactly that size from the pool, and counts it as allocated. Returns false if the pool has none. No
 * stream uses the memory, except the stream that clears it if the zeros are OA_ZEROS_ORDERED. */
bool oa_device_take(oa_device *device, void *stream, size_t nbytes, uint64_t *address, enum oa_zeros *zeros);
/* Returns unused memory to the pool if it is small, otherwise frees it. Pooled memory counts as free, but is within the
 * device's limit. `need`: the region's use of the memory. OA_NEEDS_ZEROS_AGAIN: the region needed zeros, and got memory
 * that was zeros already. The pool assumes that the next allocation of this size needs the same. */
enum oa_need { OA_NEEDS_NOTHING, OA_NEEDS_ZEROS, OA_NEEDS_ZEROS_AGAIN };
int oa_device_pool(oa_device *device, void *stream, uint64_t address, size_t nbytes, enum oa_need need);

/* Waits for a stream; the trace notes a wait of that region, for that reason. */
int oa_device_wait_stream(oa_device *device, void *stream, uint64_t region, const char *why);
/* Waits for the whole device; the trace notes a wait of that region, for that reason. */
int oa_device_wait(oa_device *device, uint64_t region, const char *why);

#endif
