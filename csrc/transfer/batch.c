#include "transfer/batch.h"

#include "base/under_way.h"
#include "device/staging.h"

#include <stdio.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* The default sizes. benchmarks/transfer.c found these sizes on an H200 with PCIe 5. */
struct oa_tuning oa_tuning = {.small = OA_SMALL_BYTES,
                              .alone_most = 1 << 20,
                              .chunk_least = OA_SMALL_BYTES,
                              .chunk_most = OA_LARGE_BYTES,
                              .part_least = 64 << 10,
                              .split_least = 1 << 20,
                              .past_least = 32 << 10,
                              .past_most = 64 << 20,
                              .past_threads = 6};

bool oa_transfer_quiesce(oa_device *device, void *stream) {
  oa_saved_error first;
  oa_error_save(&first);
  const int status = device->backend->stream_synchronize(device, stream);
  oa_error_restore(&first);
  return !status || oa_device_quiesce(device);
}

static int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t oa_section_count(const oa_move *move, int64_t chunk) {
  const oa_lines *l = &move->lines;
  if (l->width > chunk) return l->count * ((l->width + chunk - 1) / chunk);
  const int64_t each = chunk / l->width;
  return (l->count + each - 1) / each;
}

oa_section oa_section_at(oa_move *move, int64_t chunk, int64_t number) {
  const oa_lines *l = &move->lines;
  if (l->width > chunk) {
    const int64_t parts = (l->width + chunk - 1) / chunk, offset = number % parts * chunk;
    return (oa_section){move, number / parts, offset, least(l->width - offset, chunk), 1};
  }
  const int64_t each = chunk / l->width, line = number * each;
  return (oa_section){move, line, 0, l->width, least(l->count - line, each)};
}

bool oa_section_part(const oa_section *p, int k, int of, oa_section *part, int64_t *at) {
  enum { GRAIN = 512 }; /* bytes; a multiple of every itemsize */
  *part = *p;
  if (p->lines == 1) {
    const int64_t each = round_up((p->width + of - 1) / of, GRAIN);
    *at = k * each;
    part->offset += *at;
    part->width = least(p->width - *at, each);
    return part->width > 0;
  }
  const int64_t each = (p->lines + of - 1) / of;
  *at = k * each * p->width;
  part->line += k * each;
  part->lines = least(p->lines - k * each, each);
  return part->lines > 0;
}

/* Copies bytes, and keeps the written bytes out of the caches. On the way up, the device reads the written chunk next.
 * If the bytes were in this CPU core's cache, the device would have to fetch them from there, and this core would have
 * to fetch the cache lines again when it writes the next chunk. On the way down, plain stores to an array larger than
 * the caches would first read the array from memory, and would push the blocks out of the caches. */
static void copy_past(char *to, const char *from, size_t nbytes) {
#ifdef __SSE2__
  size_t head = -(uintptr_t)to & 63;
  if (head > nbytes) head = nbytes;
  memcpy(to, from, head);
  to += head, from += head, nbytes -= head;
  for (; nbytes >= 64; nbytes -= 64, to += 64, from += 64) {
    const __m128i *in = (const __m128i *)from;
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
                  d = _mm_loadu_si128(in + 3);
    __m128i *out = (__m128i *)to;
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();
#endif
  memcpy(to, from, nbytes);
}

void oa_section_fill(const oa_section *p, void *to) {
  const oa_shape *s = p->move->irregular;
  if (s)
    oa_gather(to, p->move->host, s->ndim, s->shape, s->strides, s->itemsize, p->offset / s->itemsize,
              p->width / s->itemsize);
  else
    oa_copy_lines(to, (size_t)p->width, oa_section_host(p), (size_t)p->move->lines.pitch, (size_t)p->width,
                  (size_t)p->lines);
}

void oa_section_fill_block(const oa_section *p, void *to, bool past) {
  if (past && p->lines == 1 && !p->move->irregular)
    copy_past(to, oa_section_host(p), (size_t)p->width);
  else
    oa_section_fill(p, to);
}

bool oa_section_kept(const oa_section *p, int64_t line, int64_t *at, int64_t *end) {
  const oa_kept *kept = &p->move->kept;
  const int64_t start = kept->start + (p->line + line) * p->move->lines.pitch + p->offset;
  const int64_t first = start + *at, last = least(start + p->width, kept->high);
  int64_t low, high;
  if (!oa_parts_after(kept->parts, first > kept->low ? first : kept->low, &low, &high) || low >= last) return false;
  *at = low - start;
  *end = least(high, last) - start;
  return true;
}

/* Copies the bytes of a section that reach the host, line by line. */
static void drain_kept(const oa_section *p, const char *from) {
  for (int64_t line = 0; line < p->lines; line++)
    for (int64_t at = 0, end; oa_section_kept(p, line, &at, &end); at = end)
      memcpy(oa_section_host(p) + line * p->move->lines.pitch + at, from + line * p->width + at, (size_t)(end - at));
}

void oa_section_drain(const oa_section *p, const void *from) {
  const oa_shape *s = p->move->irregular;
  if (p->move->kept.parts) {
    drain_kept(p, from);
    return;
  }
  if (s)
    oa_scatter(p->move->host, from, s->ndim, s->shape, s->strides, s->itemsize, p->offset / s->itemsize,
               p->width / s->itemsize);
  else
    oa_copy_lines(oa_section_host(p), (size_t)p->move->lines.pitch, from, (size_t)p->width, (size_t)p->width,
                  (size_t)p->lines);
}

void oa_section_drain_block(const oa_section *p, const void *from, bool past) {
  if (past && p->lines == 1 && !p->move->irregular && !p->move->kept.parts)
    copy_past(oa_section_host(p), from, (size_t)p->width);
  else
    oa_section_drain(p, from);
}

/* -- progress -- */

static __attribute__((cold, noinline)) int begin_under_way(int kind, const oa_device *device, const oa_move *moves,
                                                           int count) {
  const oa_move *largest = NULL;
  int64_t nbytes = 0;
  char name[sizeof((oa_under_way *)0)->name];
  for (int i = 0; i < count; i++) {
    nbytes += oa_lines_bytes(moves[i].lines);
    if (!largest || oa_lines_bytes(moves[i].lines) > oa_lines_bytes(largest->lines)) largest = &moves[i];
  }
  if (!largest) return 0;
  const char *text = largest->name ? largest->name : "an array";
  if (count == 1) return oa_under_way_begin(kind, device->number, nbytes, text);
  snprintf(name, sizeof name, "%.40s and %d more", text, count - 1);
  return oa_under_way_begin(kind, device->number, nbytes, name);
}

int oa_batch_under_way(int kind, const oa_device *device, const oa_move *moves, int count) {
  return oa_under_way_wanted() ? begin_under_way(kind, device, moves, count) : 0;
}
