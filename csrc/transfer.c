#include "transfer.h"

#include <stdlib.h>

static int staging(oa_device *device, oa_move *move) {
  move->staging = malloc((size_t)move->lines.width);
  if (move->staging) return OA_OK;
  return oa_fail(OA_ERROR_MEMORY, "%s: no host memory to pack %lld bytes", device->name, (long long)move->lines.width);
}

int oa_transfer_up(oa_device *device, void *stream, oa_move *moves, int count) {
  int status = OA_OK;
  for (int i = 0; i < count && !status; i++) {
    oa_move *move = &moves[i];
    const oa_lines lines = move->lines;
    const void *from = move->host;
    if (move->irregular) {
      const oa_shape *s = move->irregular;
      if ((status = staging(device, move))) break;
      oa_gather(move->staging, move->host, s->ndim, s->shape, s->strides, s->itemsize);
      from = move->staging;
    }
    status = device->backend->copy_up(device, stream, move->address, (size_t)lines.pitch, from, (size_t)lines.pitch,
                                      (size_t)lines.width, (size_t)lines.count);
    free(move->staging);
    move->staging = NULL;
    if (status) break;
    device->counts.copies_up++;
    device->counts.bytes_up += oa_lines_bytes(lines);
  }
  return status;
}

int oa_transfer_down(oa_device *device, void *stream, oa_move *moves, int count) {
  int status = OA_OK;
  for (int i = 0; i < count && !status; i++) { /* before the first byte comes down: what can fail without harm */
    if (moves[i].irregular) status = staging(device, &moves[i]);
  }
  for (int i = 0; i < count && !status; i++) {
    oa_move *move = &moves[i];
    const oa_lines lines = move->lines;
    void *to = move->irregular ? move->staging : move->host;
    status = device->backend->copy_down(device, stream, to, (size_t)lines.pitch, move->address, (size_t)lines.pitch,
                                        (size_t)lines.width, (size_t)lines.count);
    if (status) break;
    device->counts.copies_down++;
    device->counts.bytes_down += oa_lines_bytes(lines);
  }
  return status;
}

void oa_transfer_settle(oa_move *moves, int count) {
  for (int i = 0; i < count; i++) {
    const oa_shape *s = moves[i].irregular;
    if (s) oa_scatter(moves[i].host, moves[i].staging, s->ndim, s->shape, s->strides, s->itemsize);
  }
  oa_transfer_abandon(moves, count);
}

void oa_transfer_abandon(oa_move *moves, int count) {
  for (int i = 0; i < count; i++) {
    free(moves[i].staging);
    moves[i].staging = NULL;
  }
}
