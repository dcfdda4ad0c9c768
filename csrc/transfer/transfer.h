/* Copies between host arrays and a device, in batches. All that a region moves at one moment comes as one call, so that
 * this folder alone decides how it travels. Callers hold the mappings, and not the core's lock.
 *
 * There are three ways. Small arrays are packed into one pinned block, neighbours on the device as one copy. Large
 * arrays travel in chunks through pinned blocks, which the core's threads fill and drain. Memory that is pinned already
 * is copied directly. A section travels the backend's own way if no pinned memory is left. Synchronous backends copy
 * directly, on several threads if that pays. */
#ifndef OA_TRANSFER_H
#define OA_TRANSFER_H

#include "device/device.h"
#include "device/staging.h"
#include "transfer/move.h"

/* Copies up of at least this size take a separate stream, so that they overlap with the region's calls. */
enum { OA_OVERLAP_BYTES = 1 << 20 };

/* Copies the moves up. The host bytes were read when it returns. The order of moves may be changed. */
int oa_transfer_up(oa_device *device, void *stream, oa_move *moves, int count);
/* Does as oa_transfer_up, but leaves the blocks of small arrays in *held (empty at first) as long as it has room. The
 * caller returns them. */
int oa_transfer_up_holding(oa_device *device, void *stream, oa_move *moves, int count, oa_held_blocks *held);
/* Starts the copies down: no byte reaches an array yet. If it succeeds, settle or cancel must follow, once the stream
 * was synchronized. The order of moves may be changed. */
int oa_transfer_down(oa_device *device, void *stream, oa_move *moves, int count);
/* Brings the bytes into the arrays and waits for that. Fails if the device does: each array is then old or new, or the
 * status is OA_ERROR_TORN and the text lists the old, new and torn ones. */
int oa_transfer_settle(oa_device *device, void *stream, oa_move *moves, int count);
/* Returns the blocks of copies down, and leaves the arrays unchanged. waited: the stream was waited for already;
 * otherwise this function waits for the device. */
void oa_transfer_cancel(oa_device *device, oa_move *moves, int count, bool waited);

#endif
