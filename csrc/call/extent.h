/* Extents: the elements that a call touches behind one pointer, as bytes. */
#ifndef OA_EXTENT_H
#define OA_EXTENT_H

#include "base/lines.h"
#include "offload_args/shim.h"

/* The bytes that an operand touches. `lines` has its elements. Of a triangle or band it is the rectangle that holds
 * them as stored; of a batch that is not lines it is the one line that holds it. */
typedef struct oa_touched {
  const oa_extent *extent;
  oa_lines lines;
  int64_t itemsize;
} oa_touched;

/* Returns the bytes from the start to the last one that is touched. */
int64_t oa_touched_span(const oa_touched *touched);
/* Returns whether every byte that is touched is a byte of outer. */
bool oa_touched_within(const oa_touched *touched, oa_lines outer);
/* Returns whether no byte is touched by both, exactly. Most pairs take constant time, others time in the lines of the
 * one that has fewer. */
bool oa_touched_disjoint(const oa_touched *a, const oa_touched *b);
/* Sets the text for an operand that is not well formed, and returns OA_ERROR_ARGUMENT. */
int oa_fail_operand(const oa_call *call, const oa_operand *operand);
/* Writes the sizes to text, as in "m=64, n=64, lda=64". Returns text. */
const char *oa_extent_text(const oa_extent *extent, char *text, size_t size);

/* Faults of an operand's sizes: each function sets the text and returns the status. */
__attribute__((cold)) int oa_extent_negative(const oa_call *call, const oa_operand *o, const char *name, int64_t value);
__attribute__((cold)) int oa_extent_overflow(const oa_call *call, const oa_operand *o);
__attribute__((cold)) int oa_extent_narrow(const oa_call *call, const oa_operand *o, int64_t stored);
__attribute__((cold)) int oa_extent_still(const oa_call *call, const oa_operand *o);

static inline int oa_extent_vector(const oa_call *call, const oa_operand *o, int64_t itemsize, oa_lines *lines) {
  const oa_extent *e = &o->extent;
  int64_t span;
  if (e->ld == 1 || e->ld == -1) {
    if (__builtin_mul_overflow(e->rows, itemsize, &lines->width)) return oa_extent_overflow(call, o);
    lines->pitch = lines->width;
    lines->count = e->rows > 0;
    return OA_OK;
  }
  const int64_t step = e->ld < 0 && e->ld != INT64_MIN ? -e->ld : e->ld;
  lines->width = lines->pitch = itemsize;
  lines->count = e->rows;
  if (__builtin_expect(step == 0, 0)) {
    lines->count = e->rows > 0;
    return e->part & OA_REPEATS ? OA_OK : oa_extent_still(call, o);
  }
  if (step < 0 || __builtin_mul_overflow(step, itemsize, &lines->pitch) ||
      __builtin_mul_overflow(lines->pitch, e->rows, &span))
    return oa_extent_overflow(call, o);
  return OA_OK;
}

static inline int oa_extent_packed(const oa_call *call, const oa_operand *o, int64_t itemsize, oa_lines *lines) {
  const oa_extent *e = &o->extent;
  int64_t size;
  if (e->rows == INT64_MAX || __builtin_mul_overflow(e->rows, e->rows + 1, &size) ||
      __builtin_mul_overflow(size / 2, itemsize, &size))
    return oa_extent_overflow(call, o);
  lines->width = lines->pitch = size;
  lines->count = e->rows > ((e->part & OA_UNIT) != 0);
  return OA_OK;
}

/* Sets lines, those of one matrix, to the lines of the whole batch, or to one line that holds it if it is not lines. */
int oa_extent_batch(const oa_call *call, const oa_operand *o, int64_t itemsize, oa_lines *lines);
/* Whether the lines hold nothing but elements of the batch. */
bool oa_extent_fills(const oa_extent *extent, oa_lines lines, int64_t itemsize);

static inline int oa_extent_of_one(const oa_call *call, const oa_operand *o, int64_t itemsize, oa_lines *lines) {
  const oa_extent *e = &o->extent;
  int64_t span, stored = e->rows; /* rows as stored */
  if (__builtin_expect(e->rows < 0, 0)) return oa_extent_negative(call, o, e->rows_name, e->rows);
  if (e->kind == OA_EXTENT_VECTOR) return oa_extent_vector(call, o, itemsize, lines);
  if (e->kind == OA_EXTENT_PACKED) return oa_extent_packed(call, o, itemsize, lines);
  if (__builtin_expect((unsigned)e->kind > OA_EXTENT_PACKED, 0)) return oa_fail_operand(call, o);
  if (__builtin_expect(e->columns < 0, 0)) return oa_extent_negative(call, o, e->columns_name, e->columns);
  if (e->kind == OA_EXTENT_BAND &&
      (__builtin_add_overflow(e->below, e->above, &stored) || __builtin_add_overflow(stored, 1, &stored)))
    return oa_extent_overflow(call, o);
  if (__builtin_expect(e->ld < (stored > 1 ? stored : 1), 0)) return oa_extent_narrow(call, o, stored);
  if (__builtin_mul_overflow(e->ld, itemsize, &lines->pitch) || __builtin_mul_overflow(lines->pitch, e->columns, &span))
    return oa_extent_overflow(call, o);
  lines->width = stored * itemsize;
  lines->count = e->rows ? e->columns : 0;
  if ((e->part & OA_UNIT) && (e->rows == 1 || stored == 1))
    lines->count = 0; /* nothing but the diagonal, which is not touched */
  if (lines->pitch == lines->width) {
    lines->width = lines->pitch = lines->width * lines->count;
    lines->count = lines->count > 0;
  }
  return OA_OK;
}

/* Sets the lines of what the operand touches, but for their start; 0 lines if nothing. */
static inline int oa_extent_lines(const oa_call *call, const oa_operand *o, int64_t itemsize, oa_lines *lines) {
  const int status = oa_extent_of_one(call, o, itemsize, lines);
  if (__builtin_expect(!(o->extent.part & OA_BATCHED), 1) || status) return status;
  return oa_extent_batch(call, o, itemsize, lines);
}

#endif
