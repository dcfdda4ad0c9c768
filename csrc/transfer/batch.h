/* One batch of moves in one direction, as the files of this folder work on it. A section of it is some lines of a move,
 * or a part of one line: a whole move, a chunk, or a part of a chunk. */
#ifndef OA_BATCH_H
#define OA_BATCH_H

#include "device/device.h"
#include "device/staging.h"
#include "transfer/move.h"

/* -- sections -- */

typedef struct oa_section {
  oa_move *move;
  int64_t line, offset; /* the first line; from its start. Irregular: line 0, offset from the packed array's start */
  int64_t width, lines;
} oa_section;

/* All of a move as one section. */
static inline oa_section oa_section_whole(oa_move *move) {
  return (oa_section){move, 0, 0, move->lines.width, move->lines.count};
}
static inline int64_t oa_section_bytes(const oa_section *p) { return p->width * p->lines; }
static inline uint64_t oa_section_address(const oa_section *p) {
  return p->move->address + (uint64_t)(p->line * p->move->lines.pitch + p->offset);
}
/* Returns the section's first byte on the host; regular moves only. */
static inline char *oa_section_host(const oa_section *p) {
  return (char *)p->move->host + p->line * p->move->lines.pitch + p->offset;
}
/* Returns into how many sections of at most `chunk` bytes a move is cut: whole lines, or parts of longer lines. */
int64_t oa_section_count(const oa_move *move, int64_t chunk);
/* Returns the section of that number. */
oa_section oa_section_at(oa_move *move, int64_t chunk, int64_t number);
/* Sets *part to the k-th of so many parts of a section, which lies *at bytes behind its start when packed. Returns
 * false if that part is empty. */
bool oa_section_part(const oa_section *p, int k, int of, oa_section *part, int64_t *at);
/* Copies a section from the host array to packed memory, and back. */
void oa_section_fill(const oa_section *p, void *to);
void oa_section_drain(const oa_section *p, const void *from);
/* Fills and drains pinned memory; past: what is written goes past the caches. */
void oa_section_fill_block(const oa_section *p, void *to, bool past);
void oa_section_drain_block(const oa_section *p, const void *from, bool past);

/* -- batches -- */

struct oa_chunk;

typedef struct oa_batch {
  oa_device *device;
  void *stream;
  oa_move *moves;
  int count;
  bool up;
  oa_held_blocks *held; /* up: the caller's; NULL: each block is returned with an event */
  /* the first failure, under the mutex */
  pthread_mutex_t mutex;
  int status;
  oa_saved_error *error; /* the caller's */
  int under_way;         /* its entry for programs that show progress, or 0 */
  /* chunks.c's own */
  bool past;     /* chunks are written past the caches */
  int split;     /* of a chunk, into parts */
  int64_t bytes; /* of a chunk, at most */
  int64_t chunks;
  _Atomic int64_t next; /* part */
  atomic_bool stop;
  struct oa_chunk *ring;
  atomic_bool issuing; /* copies down: in order */
  _Atomic int64_t issued;
} oa_batch;

/* Copies lines between the device and the host in the batch's direction; pinned: up, the host's lines may be read
 * later. */
static inline int oa_batch_copy(const oa_batch *b, uint64_t address, int64_t pitch, void *host, int64_t host_pitch,
                                int64_t width, int64_t lines, bool pinned) {
  const oa_backend *backend = b->device->backend;
  if (!b->up)
    return backend->copy_down(b->device, b->stream, host, (size_t)host_pitch, address, (size_t)pitch, (size_t)width,
                              (size_t)lines);
  return (pinned ? backend->copy_up_later : backend->copy_up)(b->device, b->stream, address, (size_t)pitch, host,
                                                              (size_t)host_pitch, (size_t)width, (size_t)lines);
}

/* Waits for what was issued on the stream, after a failure whose text stays: nothing touches its memory afterwards. */
void oa_transfer_quiesce(oa_device *device, void *stream);

/* Notes that moves begin (an oa_trace_kind), for programs that show progress. Returns their entry, or 0. */
int oa_batch_under_way(int kind, const oa_device *device, const oa_move *moves, int count);

/* -- ways to travel -- */

/* Packs the small moves into blocks and copies these; sets move->staged where it found a block (packing.c). */
int oa_pack_small(oa_batch *batch);
/* Returns whether a move travels in chunks: it is neither staged nor direct nor in place. */
static inline bool oa_move_is_large(const oa_move *move) { return !move->staged && !move->direct && !move->in_place; }
/* Works off the large moves, `bytes` in all, on several threads where that pays; batch->status says what failed
 * (chunks.c). */
void oa_chunks_work_off(oa_batch *batch, int64_t bytes);
/* Copies a section down again, in the plain way, after a failure with that status; marks the move as torn if that fails
 * too, and as drained if it succeeds. A lost device is not tried again (chunks.c). */
void oa_chunks_retry_plain(oa_batch *batch, const oa_section *section, int status);
/* Notes that a section reached its array. */
static inline void oa_section_drained(const oa_section *p) {
  __atomic_fetch_add(&p->move->drained, oa_section_bytes(p), __ATOMIC_RELAXED);
}

#endif
