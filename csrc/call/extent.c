#include "call/extent.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void text_of_one(const oa_extent *e, char *text, size_t size) {
  const long long rows = e->rows, columns = e->columns, ld = e->ld;
  bool with_ld = columns > 1; /* ld has no meaning for one column, and may have any value */
  switch (e->kind) {
    case OA_EXTENT_VECTOR:
      snprintf(text, size, "%s=%lld", e->rows_name, rows);
      with_ld = e->ld_name && e->ld_name[0];
      break;
    case OA_EXTENT_PACKED:
      snprintf(text, size, "%s=%lld", e->rows_name, rows);
      with_ld = false;
      break;
    case OA_EXTENT_TRIANGLE:
      snprintf(text, size, "%s=%lld", e->rows_name, rows);
      with_ld = rows > 1;
      break;
    case OA_EXTENT_BAND: /* the sum may overflow 63 bits */
      snprintf(text, size, "%s=%lld, %llu diagonals", e->columns_name, columns,
               (unsigned long long)e->below + (unsigned long long)e->above + 1);
      break;
    default:
      snprintf(text, size, "%s=%lld, %s=%lld", e->rows_name, rows, e->columns_name, columns);
  }
  const size_t used = strlen(text);
  if (with_ld) snprintf(text + used, size - used, ", %s=%lld", e->ld_name, ld);
}

const char *oa_extent_text(const oa_extent *e, char *text, size_t size) {
  text_of_one(e, text, size);
  const size_t used = strlen(text);
  if (e->part & OA_BATCHED)
    snprintf(text + used, size - used, ", %s=%lld, %s=%lld", e->stride_name, (long long)e->stride, e->batch_name,
             (long long)e->batch);
  return text;
}

/* -- faults in sizes -- */

__attribute__((cold, noinline)) int oa_fail_operand(const oa_call *call, const oa_operand *o) {
  return oa_fail(
      OA_ERROR_ARGUMENT,
      "%s: operand %d (%s) needs a name, a sum of oa_access, an oa_dtype and an oa_extent_kind; got access %d, "
      "dtype %d, kind %d",
      call->function, (int)(o - call->operands) + 1, o->name ? o->name : "NULL", o->access, o->dtype, o->extent.kind);
}

int oa_extent_negative(const oa_call *call, const oa_operand *o, const char *name, int64_t value) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs to be at least 0, got %lld (the size of %s)", call->function, name,
                 (long long)value, o->name);
}

int oa_extent_overflow(const oa_call *call, const oa_operand *o) {
  char text[256];
  return oa_fail(OA_ERROR_OVERFLOW, "%s: the bytes that %s needs (%s) do not fit 64 bits", call->function, o->name,
                 oa_extent_text(&o->extent, text, sizeof text));
}

int oa_extent_narrow(const oa_call *call, const oa_operand *o, int64_t stored) {
  return oa_fail(OA_ERROR_EXTENT, "%s: %s needs at least %lld (the rows of %s as stored), got %lld", call->function,
                 o->extent.ld_name, (long long)(stored > 1 ? stored : 1), o->name, (long long)o->extent.ld);
}

int oa_extent_still(const oa_call *call, const oa_operand *o) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs an increment other than 0, got 0 (for %s)", call->function,
                 o->extent.ld_name, o->name);
}

/* -- runs: the touched bytes, a line or column at a time, in the order of memory -- */

typedef struct run {
  int64_t from, to; /* byte offsets from the same place as the lines */
} run;

/* Returns whether the extent touches only some bytes of its lines. */
static bool is_partial(const oa_extent *e) {
  return e->kind == OA_EXTENT_TRIANGLE || e->kind == OA_EXTENT_BAND ||
         (e->kind == OA_EXTENT_PACKED && (e->part & OA_UNIT)) || (e->part & OA_BATCHED);
}

/* Returns the number of runs of one vector, matrix, triangle or band. */
static int64_t runs_of_one(const oa_extent *e) {
  if (e->kind == OA_EXTENT_VECTOR) return e->ld == 1 || e->ld == -1 || e->ld == 0 ? e->rows > 0 : e->rows;
  /* later columns have no element of the band */
  if (e->kind == OA_EXTENT_BAND && e->columns - e->above > e->rows) return e->rows + e->above;
  return e->columns;
}

/* Returns the elements [from, to) of run j of one array of a batch, counted from the array's first element in
 * memory. */
static run elements_of_one(const oa_extent *e, int64_t j) {
  const bool upper = e->part & OA_UPPER;
  const int64_t unit = (e->part & OA_UNIT) != 0;
  int64_t at, from, to;
  if (e->kind == OA_EXTENT_VECTOR) {
    at = j * (e->ld < 0 ? -e->ld : e->ld);
    from = 0;
    to = e->ld == 1 || e->ld == -1 ? e->rows : 1;
  } else if (e->kind == OA_EXTENT_MATRIX) {
    at = j * e->ld;
    from = 0;
    to = e->rows;
  } else if (e->kind == OA_EXTENT_BAND) { /* element (i, j) is at index above + i - j of column j */
    const int64_t left = e->rows - j;
    at = j * e->ld;
    from = (e->above > j ? e->above - j : 0) + (upper ? 0 : unit);
    to = e->above + (left > e->below ? e->below + 1 : left) - (upper ? unit : 0);
  } else if (e->kind == OA_EXTENT_TRIANGLE) {
    at = j * e->ld;
    from = upper ? 0 : j + unit;
    to = upper ? j + 1 - unit : e->rows;
  } else {
    at = upper ? j * (j + 1) / 2 : j * e->rows - j * (j - 1) / 2;
    from = upper ? 0 : unit;
    to = upper ? j + 1 - unit : e->rows - j;
  }
  return (run){at + from, at + (to > from ? to : from)};
}

/* Returns the bytes from the start of one array to its last touched byte. */
static int64_t span_of_one(const oa_extent *e, int64_t itemsize) {
  int64_t j = runs_of_one(e) - 1;
  while (j > 0 && elements_of_one(e, j).from == elements_of_one(e, j).to)
    j--; /* at most once, because a unit triangle has one empty column */
  return j < 0 ? 0 : elements_of_one(e, j).to * itemsize;
}

static int fail_within(const oa_call *call, const oa_operand *o, int64_t span) {
  const oa_extent *e = &o->extent;
  return oa_fail(
      OA_ERROR_ALIAS,
      "%s: %s is written, and each of its %lld parts takes %lld elements, but %s is %lld; give each memory of "
      "its own",
      call->function, o->name, (long long)e->batch, (long long)span, e->stride_name, (long long)e->stride);
}

int oa_extent_batch(const oa_call *call, const oa_operand *o, int64_t itemsize, oa_lines *lines) {
  const oa_extent *e = &o->extent;
  if (e->batch < 0) return oa_extent_negative(call, o, e->batch_name, e->batch);
  if (e->batch == 0) lines->count = 0;
  if (!lines->count || !lines->width || e->batch == 1) return OA_OK;
  if (e->stride < 0)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs to be at least 0, got %lld (the stride from one %s to the next)",
                   call->function, e->stride_name, (long long)e->stride, o->name);
  const bool is_lines = e->kind <= OA_EXTENT_MATRIX;
  const int64_t span = is_lines ? oa_lines_span(*lines) : span_of_one(e, itemsize);
  int64_t step, total;
  if (__builtin_mul_overflow(e->stride, itemsize, &step) || __builtin_mul_overflow(step, e->batch - 1, &total) ||
      __builtin_add_overflow(total, span, &total))
    return oa_extent_overflow(call, o);
  if (step < span && (o->access & OA_OVERWRITE)) return fail_within(call, o, span / itemsize);
  if (step == 0) return OA_OK; /* all arrays are the same */
  if (is_lines && step > span) {
    if (lines->count > 1 && step == lines->pitch * lines->count) {
      lines->count *= e->batch;
      return OA_OK;
    }
    if (lines->count == 1) {
      lines->pitch = step;
      lines->count = e->batch;
      return OA_OK;
    }
  }
  lines->width = lines->pitch = total;
  lines->count = 1;
  return OA_OK;
}

bool oa_extent_fills(const oa_extent *e, oa_lines lines, int64_t itemsize) {
  int64_t bytes;
  return e->kind <= OA_EXTENT_MATRIX && !__builtin_mul_overflow(e->rows, e->columns, &bytes) &&
         !__builtin_mul_overflow(bytes, e->batch, &bytes) && !__builtin_mul_overflow(bytes, itemsize, &bytes) &&
         bytes == oa_lines_bytes(lines);
}

/* Returns whether the batch's matrices follow each other without overlap. If they overlap, their runs are not in the
 * order of memory. */
static bool is_apart(const oa_touched *t) {
  return t->extent->batch <= 1 || t->extent->stride * t->itemsize >= span_of_one(t->extent, t->itemsize);
}

int64_t oa_touched_runs(const oa_touched *t) {
  const oa_extent *e = t->extent;
  if (!is_partial(e) || !t->lines.count) return t->lines.count;
  if (!(e->part & OA_BATCHED)) return runs_of_one(e);
  if (e->stride == 0) return runs_of_one(e);
  return is_apart(t) ? runs_of_one(e) * e->batch : 1;
}

static run run_at(const oa_touched *t, int64_t j) {
  const oa_extent *e = t->extent;
  if (!is_partial(e)) {
    const int64_t from = t->lines.start + j * t->lines.pitch;
    return (run){from, from + t->lines.width};
  }
  int64_t shift = 0;
  if ((e->part & OA_BATCHED) && e->stride != 0) {
    if (!is_apart(t)) return (run){t->lines.start, t->lines.start + oa_lines_span(t->lines)};
    const int64_t runs = runs_of_one(e);
    shift = j / runs * e->stride;
    j %= runs;
  }
  const run r = elements_of_one(e, j);
  return (run){t->lines.start + (shift + r.from) * t->itemsize, t->lines.start + (shift + r.to) * t->itemsize};
}

oa_lines oa_touched_run(const oa_touched *t, int64_t j) {
  const run r = run_at(t, j);
  return (oa_lines){r.from, r.to - r.from, r.to - r.from, 1};
}

/* Returns the first run after run j that may end after byte `to`. */
static int64_t run_after(const oa_touched *t, int64_t j, int64_t to) {
  const oa_extent *e = t->extent;
  if (e->kind == OA_EXTENT_PACKED || (e->part & OA_BATCHED)) return j + 1;
  const int64_t pitch = is_partial(e) ? e->ld * t->itemsize : t->lines.pitch;
  const int64_t first = (to - t->lines.start) / pitch; /* each line ends before the next one starts */
  return first > j ? first : j + 1;
}

int64_t oa_touched_span(const oa_touched *t) {
  if (!is_partial(t->extent) || !t->lines.count) return oa_lines_span(t->lines);
  int64_t j = oa_touched_runs(t) - 1;
  while (j > 0 && run_at(t, j).from == run_at(t, j).to) j--; /* at most once: a unit triangle has one empty column */
  return run_at(t, j).to - t->lines.start;
}

bool oa_touched_within(const oa_touched *t, oa_lines outer) {
  if (oa_lines_contain(outer, t->lines)) return true;
  if (!is_partial(t->extent) || t->lines.start + oa_touched_span(t) > outer.start + oa_lines_span(outer)) return false;
  const int64_t count = oa_touched_runs(t);
  for (int64_t j = 0; j < count; j++)
    if (!oa_lines_contain(outer, oa_touched_run(t, j))) return false;
  return true;
}

bool oa_touched_disjoint(const oa_touched *a, const oa_touched *b) {
  if (oa_lines_disjoint(a->lines, b->lines)) return true;
  const int64_t count_a = oa_touched_runs(a), count_b = oa_touched_runs(b);
  int64_t i = 0, j = 0;
  while (i < count_a && j < count_b) {
    const run r = run_at(a, i), s = run_at(b, j);
    if (r.from == r.to) /* the place of an empty run has no meaning */
      i++;
    else if (s.from == s.to)
      j++;
    else if (r.to <= s.from)
      i = run_after(a, i, s.from);
    else if (s.to <= r.from)
      j = run_after(b, j, r.from);
    else
      return false;
  }
  return true;
}
