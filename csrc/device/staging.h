/* The pinned blocks of a device, through which host bytes pass, and the limit on pinned memory. */
#ifndef OA_STAGING_H
#define OA_STAGING_H

#include "device/device.h"

enum {
  OA_BLOCK_SMALL, /* for arrays that are packed together; the caller may hold the block for any time */
  OA_BLOCK_LARGE, /* for a chunk; the caller returns the block soon */
  OA_BLOCK_KINDS
};
enum { OA_SMALL_BYTES = 256 << 10, OA_LARGE_BYTES = 4 << 20 };

typedef struct oa_block {
  void *memory;
  size_t nbytes;
  void *event, *stream; /* `event` was recorded in `stream` */
  int kind;
  bool busy; /* the device may use the block until the event has happened */
  struct oa_block *next;
} oa_block;

/* The behaviour of oa_block_take if no block is idle: it waits for a block of another thread (WAIT), or returns NULL
 * (NOW). */
enum oa_block_wait { OA_BLOCK_NOW, OA_BLOCK_WAIT };

/* Pins new host memory. Returns OA_ERROR_MEMORY if that would exceed the process's limit. */
int oa_staging_pin(oa_device *device, size_t nbytes, void **memory);
int oa_staging_unpin(oa_device *device, void *memory, size_t nbytes);
/* Unpins the blocks that no copy uses. */
int oa_staging_trim(oa_device *device);
/* Announces `bytes` of chunked transfers and returns the number of pinned blocks that they may use. The number grows
 * with the traffic, because pinning one block takes as long as copying several MiB. */
int oa_staging_expect(oa_device *device, int64_t bytes);
/* Takes a block, which then belongs to the caller alone. Returns NULL, with the text unchanged, if no memory can be
 * pinned, or if no block is idle and `wait` is OA_BLOCK_NOW. The first call that can pin no memory sets the warning of
 * the process. */
oa_block *oa_block_take(oa_device *device, int kind, enum oa_block_wait wait);
/* Returns a block to the pool. */
void oa_block_return(oa_device *device, oa_block *block);
/* Removes a block whose copies may never end. The memory of the block stays pinned. */
void oa_block_lose(oa_device *device, oa_block *block);
/* Returns a block to the pool while copies on stream are under way; waits for these copies if no event can mark
 * them. */
int oa_block_return_after(oa_device *device, oa_block *block, void *stream);
/* Blocks that are returned once their stream was waited for, so that they need no event. If few bytes were sent from
 * the first held block, it has an event nevertheless: a query of this event before a copy down makes that copy arrive
 * sooner (benchmarks/transfer.md). */
enum { OA_HELD_BLOCKS = 2, OA_HELD_MARKED_MOST = 64 << 10 };
typedef struct oa_held_blocks {
  oa_block *at[OA_HELD_BLOCKS];
  int count;
} oa_held_blocks;
/* Adds a block with copies of so many bytes under way on stream. Returns false if *held has no room, or too many of the
 * device's blocks are held. */
bool oa_block_hold(oa_device *device, oa_held_blocks *held, oa_block *block, int64_t bytes, void *stream);
/* Checks whether the copies from the first held block are over. The result is not used: the check makes later copies
 * down arrive sooner. */
void oa_held_blocks_look(oa_device *device, const oa_held_blocks *held);
/* Returns all held blocks to the pool; waited: their copies on stream are over. Keeps the text of the last failure. */
void oa_held_blocks_return(oa_device *device, oa_held_blocks *held, void *stream, bool waited);
/* Marks the copies on stream that use the block, so that oa_block_await waits for them. */
int oa_block_mark(oa_device *device, oa_block *block, void *stream);
int oa_block_await(oa_device *device, oa_block *block);
/* Records again the events of the pool's blocks whose last copies went to the stream. A block that another thread has
 * taken at that moment keeps its event. */
int oa_blocks_mark_again(oa_device *device, void *stream);

#endif
