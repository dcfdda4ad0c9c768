#include "transfer/transfer_trace.h"

#include "base/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds bytes to a checksum, in four lanes, so that it runs at the speed of memory. The checksum shows whether two sets
 * of bytes are equal. The checksum does not protect against adversaries. */
static uint64_t mix(uint64_t sum, const unsigned char *bytes, size_t size) {
  const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);
  uint64_t lanes[4] = {sum, sum ^ odd, sum + odd, ~sum}, words[4];
  for (; size >= sizeof words; bytes += sizeof words, size -= sizeof words) {
    memcpy(words, bytes, sizeof words);
    for (int i = 0; i < 4; i++) { /* a product moves no bit down, so the high bits are added to the low bits */
      lanes[i] = (lanes[i] ^ words[i]) * odd;
      lanes[i] ^= lanes[i] >> 32;
    }
  }
  if (size) {
    memset(words, 0, sizeof words);
    memcpy(words, bytes, size);
    for (int i = 0; i < 4; i++) lanes[i] = (lanes[i] ^ words[i]) * odd;
  }
  sum = 0;
  for (int i = 0; i < 4; i++) sum = (sum ^ lanes[i] ^ (lanes[i] >> 29)) * odd;
  return sum;
}

static uint64_t checksum(const oa_move *move) {
  const oa_lines lines = move->lines;
  const char *bytes = move->host;
  uint64_t sum = (uint64_t)oa_lines_bytes(lines);
  if (move->irregular) {
    const oa_shape *s = move->irregular;
    void *packed = malloc((size_t)lines.width);
    if (!packed) return 0; /* without host memory, the checksum is 0: not known */
    oa_gather(packed, move->host, s->ndim, s->shape, s->strides, s->itemsize, 0, lines.width / s->itemsize);
    sum = mix(sum, packed, (size_t)lines.width);
    free(packed);
  } else {
    for (int64_t i = 0; i < lines.count; i++, bytes += lines.pitch)
      sum = mix(sum, (const unsigned char *)bytes, (size_t)lines.width);
  }
  return sum ? sum : 1;
}

static void take_checksums(oa_move *moves, int count) {
  if (!(atomic_load_explicit(&oa_tracing, memory_order_relaxed) & OA_TRACE_CHECKSUMS)) return;
  for (int i = 0; i < count; i++) moves[i].trace.checksum = checksum(&moves[i]);
}

int64_t oa_trace_begin_up(oa_move *moves, int count) {
  if (!oa_trace_begin()) return 0;
  take_checksums(moves, count);
  return oa_trace_now();
}

/* Returns the bytes that travel. */
static int64_t bytes_of(const oa_move *move) { return move->coherent ? 0 : oa_lines_bytes(move->lines); }

void oa_trace_copies(int kind, int64_t begun, const oa_device *device, oa_move *moves, int count, const char *function,
                     int status) {
  const int64_t ended = oa_trace_now();
  int64_t total = 0, done = 0;
  char why[sizeof((oa_trace_event *)0)->why];
  if (kind == OA_TRACE_DOWN && !status) take_checksums(moves, count);
  for (int i = 0; i < count; i++) total += bytes_of(&moves[i]);
  oa_trace_event event = {.kind = kind, .device = device->number, .status = status, .batch = count, .ended = begun};
  for (int i = 0; i < count; i++) {
    const oa_move *move = &moves[i];
    event.nbytes = bytes_of(move);
    done += event.nbytes;
    event.begun = event.ended;
    event.ended = begun + (total ? (int64_t)((double)(ended - begun) * ((double)done / (double)total)) : 0);
    event.region = move->trace.region;
    event.checksum = move->trace.checksum;
    event.address = move->trace.is_copy ? 0 : (uint64_t)(uintptr_t)move->host;
    event.packed = move->irregular != NULL;
    snprintf(why, sizeof why, "%s%s%s%s", move->coherent ? "coherent, " : "", move->trace.why ? move->trace.why : "",
             function ? " " : "", function ? function : "");
    oa_trace_push(&event, move->name, why);
  }
}
