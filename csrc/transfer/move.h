/* A move: one array's copy, as it was planned. */
#ifndef OA_MOVE_H
#define OA_MOVE_H

#include "base/lines.h"

struct oa_block;

/* Shape and host strides of an array that the device holds in C order. */
typedef struct oa_shape {
  int ndim;
  int64_t itemsize;
  int64_t *shape, *strides;
} oa_shape;

/* The trace's own: nothing else reads it. */
typedef struct oa_move_trace {
  const char *why;
  uint64_t region, checksum;
  bool is_copy; /* the host's bytes are not the array's own memory, but a copy */
} oa_move_trace;

typedef struct oa_move {
  void *host;                /* regular: the lowest byte; else the element at index 0 */
  uint64_t address;          /* of the first line on the device */
  oa_lines lines;            /* regular: on both sides (start is not used); else one line on the device */
  const oa_shape *irregular; /* how the host has the array, if not as lines; NULL otherwise */
  const char *name;          /* for messages; NULL: the array has no name */
  const void *allocation;    /* identifies the allocation around address: a driver's copy must not cross into another */
  int64_t padding;           /* bytes behind the only line that hold nothing, so that they may travel too */
  bool in_place; /* address is pinned memory, which the device uses as it is; no call uses it at the moment */
  /* owned by transfer/ */
  struct oa_block *block; /* returned once all that is staged in it is drained */
  const char *staged;     /* where its bytes lie in a block */
  int64_t first;          /* its first chunk's number in the batch */
  int64_t drained;        /* bytes that reached the array; atomically */
  bool direct, torn;
  oa_move_trace trace;
} oa_move;

/* Where the ways to travel meet, in bytes. One set for the process; tests change it. */
extern struct oa_tuning {
  int64_t small;                   /* arrays up to this size are packed */
  int64_t alone_most;              /* a batch of fewer bytes has one thread: waking others takes longer */
  int64_t chunk_least, chunk_most; /* of a large array; multiples of 16, at most OA_LARGE_BYTES */
  int64_t part_least;              /* of a chunk, that a thread fills or drains */
  int64_t past_least, past_most;   /* of what is packed, of a batch in chunks: goes up past the caches; more, down */
  int64_t past_threads;            /* that fill chunks past the caches */
  int64_t split_least;             /* from here on backends that copy by themselves use several threads */
} oa_tuning;

#endif
