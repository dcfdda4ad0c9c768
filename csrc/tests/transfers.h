/* Arrays of every kind, and their way up to a device and down again, for the tests of the transfer engine. */
#ifndef OA_TESTS_TRANSFERS_H
#define OA_TESTS_TRANSFERS_H

#include "bytes.h"
#include "device/memory.h"
#include "transfer/transfer.h"

#include <stdlib.h>

/* -- arrays of every kind ------------------------------------------------------------------------------------------ */

enum { GUARD = 0x5c };

/* A host array inside a buffer. All other bytes of the buffer must stay unchanged. */
struct array {
  unsigned char *buffer;
  size_t nbytes; /* size of the buffer */
  oa_move move;
  oa_shape shape;
  int64_t extents[2], strides[2];
  size_t device_bytes;
  uint64_t address;
};

static struct array array_of(oa_lines lines, bool irregular, const char *name) {
  struct array a = {.nbytes = (size_t)oa_lines_span(lines) + 64};
  a.device_bytes = (size_t)(irregular ? oa_lines_bytes(lines) : oa_lines_span(lines));
  a.move = (oa_move){.lines = lines, .name = name};
  if (irregular) { /* lines of elements of 4 bytes that the device holds without gaps */
    a.shape = (oa_shape){.ndim = 2, .itemsize = 4};
    a.extents[0] = lines.count;
    a.extents[1] = lines.width / 4;
    a.strides[0] = lines.pitch;
    a.strides[1] = 4;
    const int64_t bytes = oa_lines_bytes(lines);
    a.move.lines = (oa_lines){0, bytes, bytes, 1};
  }
  a.buffer = malloc(a.nbytes);
  return a;
}

/* Returns the array's move. The struct may have been copied since array_of, so its pointers are set here. */
static oa_move move_of(struct array *a, uint64_t address) {
  oa_move move = a->move;
  if (a->shape.ndim) {
    a->shape.shape = a->extents;
    a->shape.strides = a->strides;
    move.irregular = &a->shape;
  }
  move.host = a->buffer + 32;
  move.address = address;
  return move;
}

/* Returns the bytes of the buffer if the array has the values of that seed. They are valid until the next call. */
BY_RANGE static const unsigned char *bytes_with(const struct array *a, int seed) {
  static unsigned char *bytes;
  static size_t room;
  if (room < a->nbytes) bytes = realloc(bytes, room = a->nbytes);
  const oa_lines *l = &a->move.lines;
  const size_t count = (size_t)(a->shape.ndim ? a->extents[0] : l->count);
  const size_t width = (size_t)(a->shape.ndim ? a->extents[1] * 4 : l->width);
  const size_t pitch = (size_t)(a->shape.ndim ? a->strides[0] : l->pitch);
  writes(bytes, (int64_t)a->nbytes);
  for (size_t i = 0; i < a->nbytes; i++) bytes[i] = GUARD;
  for (size_t line = 0; line < count; line++)
    for (size_t i = line * pitch; i < line * pitch + width; i++)
      bytes[32 + i] = (unsigned char)(i * 7 + (i >> 8) * 3 + (size_t)seed * 31 + 1);
  return bytes;
}

static void set(struct array *a, int seed) { memcpy(a->buffer, bytes_with(a, seed), a->nbytes); }

/* Returns 1 if all bytes of the array have the values of that seed, and no other byte of the buffer was written. */
static int holds(const struct array *a, int seed) { return !memcmp(a->buffer, bytes_with(a, seed), a->nbytes); }

/* -- round trips -------------------------------------------------------------------------------------------------- */

static void up_and_down(void *stream, struct array *arrays, int count) {
  oa_move moves[16];
  for (int i = 0; i < count; i++) {
    CHECK_OK(oa_device_allocate(device, stream, arrays[i].device_bytes, &arrays[i].address));
    set(&arrays[i], 1 + i);
    moves[i] = move_of(&arrays[i], arrays[i].address);
  }
  CHECK_OK(oa_transfer_up(device, stream, moves, count));
  for (int i = 0; i < count; i++) set(&arrays[i], 100 + i); /* oa_transfer_up has read the arrays */
  for (int i = 0; i < count; i++) moves[i] = move_of(&arrays[i], arrays[i].address);
  CHECK_OK(oa_transfer_down(device, stream, moves, count));
  CHECK_OK(device->backend->stream_synchronize(device, stream));
  for (int i = 0; i < count; i++) CHECK(holds(&arrays[i], 100 + i)); /* nothing arrives before oa_transfer_settle */
  CHECK_OK(oa_transfer_settle(device, stream, moves, count));
  for (int i = 0; i < count; i++) CHECK(holds(&arrays[i], 1 + i));
  for (int i = 0; i < count; i++) CHECK_OK(oa_device_free(device, stream, arrays[i].address, arrays[i].device_bytes));
}

static void every_size_around_the_seams(void *stream) {
  const int64_t seams[] = {1, 64, 512, 4096, 8192, 3 * 4096, 64 << 10, 256 << 10};
  for (size_t s = 0; s < sizeof seams / sizeof seams[0]; s++)
    for (int64_t off = -1; off <= 1; off++) {
      const int64_t n = seams[s] + off;
      if (n < 1) continue;
      struct array a = array_of((oa_lines){0, n, n, 1}, false, "a");
      up_and_down(stream, &a, 1);
      free(a.buffer);
    }
}

static void lines_and_packed_arrays(void *stream) {
  const oa_lines cases[] = {{0, 4, 8, 3},       {0, 12, 16, 5},     {0, 4, 4096, 40},
                            {0, 100, 128, 700}, {0, 4096, 5000, 9}, {0, 4100, 4104, 11},
                            {0, 9000, 9004, 7}, {0, 4, 12, 9000},   {0, 20000, 30000, 3}};
  for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
    for (int irregular = 0; irregular < 2; irregular++) {
      struct array a = array_of(cases[c], irregular, "a");
      up_and_down(stream, &a, 1);
      free(a.buffer);
    }
}

static void batches_of_everything(void *stream) {
  struct array a[] = {array_of((oa_lines){0, 10, 10, 1}, false, "ten"),
                      array_of((oa_lines){0, 70000, 70000, 1}, false, "large"),
                      array_of((oa_lines){0, 16, 24, 10}, false, "lines"),
                      array_of((oa_lines){0, 12, 20, 10}, true, "packed"),
                      array_of((oa_lines){0, 8000, 8004, 30}, false, "large lines"),
                      array_of((oa_lines){0, 400, 404, 300}, true, "large packed"),
                      array_of((oa_lines){0, 1, 1, 1}, false, "one")};
  const int count = (int)(sizeof a / sizeof a[0]);
  for (int from = 0; from < count; from++) up_and_down(stream, a + from, count - from);
  for (int i = 0; i < count; i++) free(a[i].buffer);
}

/* -- sizes at which one way to copy replaces another --------------------------------------------------------------- */

static void tune(int64_t small, int64_t chunk) {
  oa_tuning.past_least = chunk;
  oa_tuning.past_most = 8 * chunk; /* so that only some transfers bypass the caches */
  oa_tuning.small = small;
  oa_tuning.alone_most = chunk / 2;
  oa_tuning.chunk_least = oa_tuning.chunk_most = chunk;
  oa_tuning.part_least = 1024;
  oa_tuning.split_least = chunk;
}

#endif
