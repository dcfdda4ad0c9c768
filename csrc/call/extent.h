/* Extents: the elements that a call touches through one pointer, as bytes. */
#ifndef OA_EXTENT_H
#define OA_EXTENT_H

#include "base/lines.h"
#include "offload_args/shim.h"

/* The bytes that an operand touches. `lines` contains its elements. For a triangle or band, `lines` is the stored
 * rectangle that contains the elements. For a batch that is not lines, `lines` is one line that contains the batch. */
typedef struct oa_touched {
  const oa_extent *extent;
  oa_lines lines;
  int64_t itemsize;
} oa_touched;

/* Returns whether the extent is one triangle, which may be a part of its group. */
static inline bool oa_extent_is_triangle(const oa_extent *e) {
  return e->kind == OA_EXTENT_TRIANGLE && !(e->part & OA_BATCHED);
}
/* Returns the bytes from the start to the last touched byte. */
int64_t oa_touched_span(const oa_touched *touched);
/* Returns whether `outer` has every touched byte. */
bool oa_touched_within(const oa_touched *touched, oa_lines outer);
/* Returns whether no byte is touched by both operands. The result is exact. For most pairs the time is constant. For
 * other pairs the time is proportional to the number of lines of the operand with fewer lines. */
bool oa_touched_disjoint(const oa_touched *a, const oa_touched *b);
/* The touched bytes in runs, in the order of memory: lines, or columns of a triangle or band, as one line each. A run
 * may be empty. A batch whose arrays overlap is a single run. */
int64_t oa_touched_runs(const oa_touched *touched);
oa_lines oa_touched_run(const oa_touched *touched, int64_t j);
/* Sets the text for a malformed operand, and returns OA_ERROR_ARGUMENT. */
int oa_fail_operand(const oa_call *call, const oa_operand *operand);
/* Writes the sizes to `text`, as in "m=64, n=64, lda=64". Returns `text`. */
const char *oa_extent_text(const oa_extent *extent, char *text, size_t size);

/* Faults in an operand's sizes: each function sets the text and returns the status. */
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
  if (OA_UNLIKELY(step == 0)) {
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

/* Turns the lines of one matrix into the lines of the whole batch, or into one line that contains the batch if the
 * batch is not lines. */
int oa_extent_batch(const oa_call *call, const oa_operand *o, int64_t itemsize, oa_lines *lines);
/* Returns whether every byte of the lines belongs to an element of the batch. */
bool oa_extent_fills(const oa_extent *extent, oa_lines lines, int64_t itemsize);

static inline __attribute__((always_inline)) int oa_extent_of_one(const oa_call *call, const oa_operand *o,
                                                                  int64_t itemsize, oa_lines *lines) {
  const oa_extent *e = &o->extent;
  int64_t span, stored = e->rows; /* the stored rows */
  if (OA_UNLIKELY(e->rows < 0)) return oa_extent_negative(call, o, e->rows_name, e->rows);
  if (e->kind == OA_EXTENT_VECTOR) return oa_extent_vector(call, o, itemsize, lines);
  if (e->kind == OA_EXTENT_PACKED) return oa_extent_packed(call, o, itemsize, lines);
  if (OA_UNLIKELY((unsigned)e->kind > OA_EXTENT_PACKED)) return oa_fail_operand(call, o);
  if (OA_UNLIKELY(e->columns < 0)) return oa_extent_negative(call, o, e->columns_name, e->columns);
  if (e->kind == OA_EXTENT_BAND &&
      (__builtin_add_overflow(e->below, e->above, &stored) || __builtin_add_overflow(stored, 1, &stored)))
    return oa_extent_overflow(call, o);
  if (OA_UNLIKELY(e->ld < (stored > 1 ? stored : 1))) return oa_extent_narrow(call, o, stored);
  if (__builtin_mul_overflow(e->ld, itemsize, &lines->pitch) || __builtin_mul_overflow(lines->pitch, e->columns, &span))
    return oa_extent_overflow(call, o);
  lines->width = stored * itemsize;
  lines->count = e->rows ? e->columns : 0;
  if ((e->part & OA_UNIT) && (e->rows == 1 || stored == 1))
    lines->count = 0; /* the triangle has only its diagonal, which is not touched */
  if (lines->pitch == lines->width) {
    lines->width = lines->pitch = lines->width * lines->count;
    lines->count = lines->count > 0;
  }
  return OA_OK;
}

/* Sets the operand's lines, except for their start; 0 lines if the call touches nothing. */
static inline __attribute__((always_inline)) int oa_extent_lines(const oa_call *call, const oa_operand *o,
                                                                 int64_t itemsize, oa_lines *lines) {
  const int status = oa_extent_of_one(call, o, itemsize, lines);
  if (OA_LIKELY(!(o->extent.part & OA_BATCHED)) || status) return status;
  return oa_extent_batch(call, o, itemsize, lines);
}

#endif
