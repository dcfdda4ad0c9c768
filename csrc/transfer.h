/* Copies between host arrays and a device, in batches: what a region has to move at one moment comes as one call, so that
 * how it travels is decided here alone. Called without the core's lock; the memory is pinned by the caller. */
#ifndef OA_TRANSFER_H
#define OA_TRANSFER_H

#include "device.h"
#include "lines.h"

/* Shape and host strides of an array that the device holds in C order. */
typedef struct oa_shape {
  int ndim;
  int64_t itemsize;
  int64_t *shape, *strides;
} oa_shape;

typedef struct oa_move {
  void *host;                /* regular: the lowest byte; else the element at index 0 */
  uint64_t address;          /* of the first line on the device */
  oa_lines lines;            /* regular: on both sides (start is not used); else one line on the device */
  const oa_shape *irregular; /* how the host has it, if not as lines; NULL otherwise */
  void *staging;             /* transfer's own */
} oa_move;

/* The host bytes were read when it returns. */
int oa_transfer_up(oa_device *device, void *stream, oa_move *moves, int count);
/* Issues the copies down. Once the stream was synchronized, settle finishes them; abandon drops what is still in
 * staging, leaving those host arrays alone. */
int oa_transfer_down(oa_device *device, void *stream, oa_move *moves, int count);
void oa_transfer_settle(oa_move *moves, int count);
void oa_transfer_abandon(oa_move *moves, int count);

#endif
