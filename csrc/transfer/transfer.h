/* Copies between host arrays and a device, in batches. A region passes all moves of one moment in one call, so that
 * this folder alone decides how the bytes travel. Callers hold the mappings, and not the core's lock.
 *
 * Bytes travel in three ways. Small arrays are packed into one pinned block, neighbours on the device as one copy.
 * Large arrays travel in chunks through pinned blocks, which the core's threads fill and drain. Memory that is already
 * pinned is copied directly. If no memory can be pinned, the backend copies a section without a block. Synchronous
 * backends copy directly, on several threads if that pays. Coherent moves are left out: their
 * bytes are where they have to be. */
#ifndef OA_TRANSFER_H
#define OA_TRANSFER_H

#include "device/device.h"
#include "device/staging.h"
#include "transfer/move.h"

/* Copies up of at least this size take a separate stream, so that they overlap with the region's calls. */
enum { OA_OVERLAP_BYTES = 1 << 20 };

/* Copies the moves up. The host bytes may change after this function has returned. The function may change the order of
 * the moves. */
int oa_transfer_up(oa_device *device, void *stream, oa_move *moves, int count);
/* Copies the moves up, as oa_transfer_up does, but leaves the blocks of small arrays in *held (empty at first) while
 * *held has room. The caller returns these blocks. */
int oa_transfer_up_holding(oa_device *device, void *stream, oa_move *moves, int count, oa_held_blocks *held);
/* Starts the copies down. No byte reaches an array yet. After a success, the caller has to synchronize the stream, and
 * then to call oa_transfer_settle or oa_transfer_cancel. The function may change the order of the moves. */
int oa_transfer_down(oa_device *device, void *stream, oa_move *moves, int count);
/* Brings the bytes into the arrays, and returns after they have arrived. If the device fails, each array is either old
 * or new, or the status is OA_ERROR_TORN and the text lists the old, new and torn arrays. */
int oa_transfer_settle(oa_device *device, void *stream, oa_move *moves, int count);
/* Returns the blocks of copies down, and leaves the arrays unchanged. waited: the stream was waited for already;
 * otherwise this function waits for the device. */
void oa_transfer_cancel(oa_device *device, oa_move *moves, int count, bool waited);

#endif
