/* One batch of moves in one direction, for the files of this folder. A section is some lines of a move, or a part of
 * one line. A whole move, a chunk and a part of a chunk are sections. */
#ifndef OA_BATCH_H
#define OA_BATCH_H

#include "device/device.h"
#include "device/staging.h"
#include "transfer/move.h"

/* -- sections -- */

typedef struct oa_section {
  oa_move *move;
  /* the first line, and an offset in it; irregular moves: `line` is 0, and `offset` is in the packed array */
  int64_t line, offset;
  int64_t width, lines;
} oa_section;

/* Returns all of a move as one section. */
static inline oa_section oa_section_whole(oa_move *move) {
  return (oa_section){move, 0, 0, move->lines.width, move->lines.count};
}
static inline int64_t oa_section_bytes(const oa_section *p) { return p->width * p->lines; }
static inline uint64_t oa_section_address(const oa_section *p) {
  return p->move->address + (uint64_t)(p->line * p->move->lines.pitch + p->offset);
}
/* Returns the section's first byte on the host; for regular moves only. */
static inline char *oa_section_host(const oa_section *p) {
  return (char *)p->move->host + p->line * p->move->lines.pitch + p->offset;
}
/* Returns the number of sections, of at most `chunk` bytes each, that a move is cut into: whole lines, or parts of
 * longer lines. */
int64_t oa_section_count(const oa_move *move, int64_t chunk);
/* Returns the section of that number. */
oa_section oa_section_at(oa_move *move, int64_t chunk, int64_t number);
/* Sets *part to the k-th of `of` parts of a section, and *at to its offset in the packed section. Returns false if that
 * part is empty. */
bool oa_section_part(const oa_section *p, int k, int of, oa_section *part, int64_t *at);
/* Copy a section from the host array to packed memory, and back. */
void oa_section_fill(const oa_section *p, void *to);
void oa_section_drain(const oa_section *p, const void *from);
/* Fill and drain pinned memory; past: the stores bypass the caches. */
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
  oa_held_blocks *held; /* for copies up: the caller's list of blocks; NULL: each block is returned with an event */
  /* the first failure, under the mutex */
  pthread_mutex_t mutex;
  int status;
  oa_saved_error *error; /* owned by the caller */
  int under_way;         /* the batch's entry for programs that show progress, or 0 */
  /* owned by chunks.c */
  bool past;     /* stores to chunks bypass the caches */
  int split;     /* the number of parts of a chunk */
  int64_t bytes; /* the most bytes of a chunk */
  int64_t chunks;
  _Atomic int64_t next; /* the number of the next part */
  atomic_bool stop;
  struct oa_chunk *ring;
  atomic_bool issuing; /* a thread is issuing copies down, which have to be issued in order */
  _Atomic int64_t issued;
} oa_batch;

/* Copies lines between the device and the host in the batch's direction. pinned: a copy up may read the host's lines
 * after this function has returned. */
static inline int oa_batch_copy(const oa_batch *b, uint64_t address, int64_t pitch, void *host, int64_t host_pitch,
                                int64_t width, int64_t lines, bool pinned) {
  const oa_backend *backend = b->device->backend;
  if (!b->up)
    return backend->copy_down(b->device, b->stream, host, (size_t)host_pitch, address, (size_t)pitch, (size_t)width,
                              (size_t)lines);
  return (pinned ? backend->copy_up_later : backend->copy_up)(b->device, b->stream, address, (size_t)pitch, host,
                                                              (size_t)host_pitch, (size_t)width, (size_t)lines);
}

/* Waits for the operations that were issued on the stream, and keeps the text of the last failure. If the result is
 * true, these operations touch no memory any more. */
bool oa_transfer_quiesce(oa_device *device, void *stream);

/* Notes that moves begin, for programs that show progress. kind: an oa_trace_kind. Returns the entry of the moves, or
 * 0. */
int oa_batch_under_way(int kind, const oa_device *device, const oa_move *moves, int count);

/* -- ways to travel -- */

/* Packs the small moves into blocks and copies the blocks; sets move->staged if it took a block (packing.c). */
int oa_pack_small(oa_batch *batch);
/* Returns whether a move travels in chunks: it is not staged, direct or in place. */
static inline bool oa_move_is_large(const oa_move *move) { return !move->staged && !move->direct && !move->in_place; }
/* Finds the next bytes that reach the host, in a line of a section, at offset *at or later. Sets *at to the start, and
 * *end to the end of these bytes. Returns false if no further bytes reach the host. */
bool oa_section_kept(const oa_section *p, int64_t line, int64_t *at, int64_t *end);
/* Notes that a section reached its array. */
static inline void oa_section_drained(const oa_section *p) {
  __atomic_fetch_add(&p->move->drained, oa_section_bytes(p), __ATOMIC_RELAXED);
}

#endif
