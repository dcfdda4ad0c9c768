/* A move: the planned copy of one array. */
#ifndef OA_MOVE_H
#define OA_MOVE_H

#include "base/parts.h"

struct oa_block;

/* Shape and host strides of an array that the device holds in C order. */
typedef struct oa_shape {
  int ndim;
  int64_t itemsize;
  int64_t *shape, *strides;
} oa_shape;

/* only the trace reads these members */
typedef struct oa_move_trace {
  const char *why;
  uint64_t region, checksum;
  bool is_copy; /* `host` is a copy of the array's bytes, not the array's own memory */
} oa_move_trace;

/* The bytes of a copy down that reach the host: the part of a set in [low, high). `start`, `low` and `high` are offsets
 * in the set. */
typedef struct oa_kept {
  const oa_parts *parts; /* NULL: all bytes of the lines reach the host */
  int64_t start;         /* offset of the first line */
  int64_t low, high;
} oa_kept;

typedef struct oa_move {
  void *host;       /* regular: the lowest byte; otherwise the element at index 0 */
  uint64_t address; /* address of the first line */
  oa_lines lines;   /* regular: the lines on both sides (start is not used); otherwise one line on the device */
  const oa_shape *irregular; /* the shape of a host array that is not lines; otherwise NULL */
  oa_kept kept;              /* regular moves only */
  const char *name;          /* for messages; NULL: the array has no name */
  const void *allocation;    /* the allocation around address: a driver's copy must not cross into another allocation */
  int64_t padding;           /* number of unused bytes after the only line that may be copied, too */
  bool coherent;             /* address is the host's own memory: nothing is copied */
  bool in_place;             /* address is pinned memory that the device uses directly; no call uses it at the moment */
  /* owned by transfer/ */
  struct oa_block *block; /* the block is returned once all moves that are staged in it are drained */
  const char *staged;     /* the place of the move's bytes in a block */
  int64_t first;          /* the number of the move's first chunk in the batch */
  int64_t drained;        /* bytes that reached the array; atomic */
  bool direct, torn;
  oa_move_trace trace;
} oa_move;

/* The sizes, in bytes, at which one way to copy replaces another. The process has one set of sizes; tests change it. On
 * the way up, stores bypass the caches from past_least bytes on (for chunks, only up to past_most bytes). On the way
 * down, stores bypass the caches for copies of more than past_most bytes. */
extern struct oa_tuning {
  int64_t small;      /* arrays up to this size are packed */
  int64_t alone_most; /* one thread copies a batch of fewer bytes, because waking other threads would take longer */
  int64_t chunk_least, chunk_most; /* bytes of a chunk: multiples of 16, at most OA_LARGE_BYTES */
  int64_t part_least;              /* a thread fills or drains at least so many bytes of a chunk */
  int64_t past_least, past_most;   /* limits for stores that bypass the caches */
  int64_t past_threads;            /* the number of threads that fill chunks if the stores bypass the caches */
  int64_t split_least;             /* from this size on, backends that copy by themselves use several threads */
} oa_tuning;

#endif
