#include "call/extent.h"
#include "base/error.h"

#include <stdio.h>

const char *oa_extent_text(const oa_extent *e, char *text, size_t size) {
  const long long rows = e->rows, columns = e->columns, ld = e->ld;
  switch (e->kind) {
    case OA_EXTENT_VECTOR:
      if (!e->ld_name || !e->ld_name[0])
        snprintf(text, size, "%s=%lld", e->rows_name, rows);
      else
        snprintf(text, size, "%s=%lld, %s=%lld", e->rows_name, rows, e->ld_name, ld);
      break;
    case OA_EXTENT_PACKED:
      snprintf(text, size, "%s=%lld", e->rows_name, rows);
      break;
    case OA_EXTENT_TRIANGLE:
      snprintf(text, size, "%s=%lld, %s=%lld", e->rows_name, rows, e->ld_name, ld);
      break;
    case OA_EXTENT_BAND:
      snprintf(text, size, "%s=%lld, %lld diagonals, %s=%lld", e->columns_name, columns,
               (long long)(e->below + e->above + 1), e->ld_name, ld);
      break;
    default:
      snprintf(text, size, "%s=%lld, %s=%lld, %s=%lld", e->rows_name, rows, e->columns_name, columns, e->ld_name, ld);
  }
  return text;
}

/* -- faults of the sizes -- */

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
  int64_t from, to; /* bytes, counted as the lines are */
} run;

static bool is_partial(const oa_extent *e) {
  return e->kind == OA_EXTENT_TRIANGLE || e->kind == OA_EXTENT_BAND ||
         (e->kind == OA_EXTENT_PACKED && (e->part & OA_UNIT));
}

static int64_t run_count(const oa_touched *t) {
  const oa_extent *e = t->extent;
  if (!is_partial(e) || !t->lines.count) return t->lines.count;
  if (e->kind == OA_EXTENT_BAND && e->columns - e->above > e->rows) return e->rows + e->above; /* the rest is outside */
  return e->columns;
}

/* Returns the elements [from, to) of column j of a triangle or band, counted from the first in its memory. */
static run elements_of(const oa_extent *e, int64_t j) {
  const bool upper = e->part & OA_UPPER;
  const int64_t unit = (e->part & OA_UNIT) != 0;
  int64_t at, from, to;
  if (e->kind == OA_EXTENT_BAND) { /* element (i, j) is above + i - j down column j */
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

static run run_at(const oa_touched *t, int64_t j) {
  if (!is_partial(t->extent)) {
    const int64_t from = t->lines.start + j * t->lines.pitch;
    return (run){from, from + t->lines.width};
  }
  const run r = elements_of(t->extent, j);
  return (run){t->lines.start + r.from * t->itemsize, t->lines.start + r.to * t->itemsize};
}

/* Returns the first run behind run j that may end beyond byte `to`. */
static int64_t run_behind(const oa_touched *t, int64_t j, int64_t to) {
  const oa_extent *e = t->extent;
  if (e->kind == OA_EXTENT_PACKED) return j + 1;
  const int64_t pitch = is_partial(e) ? e->ld * t->itemsize : t->lines.pitch;
  const int64_t first = (to - t->lines.start) / pitch; /* each line ends before the next begins */
  return first > j ? first : j + 1;
}

int64_t oa_touched_span(const oa_touched *t) {
  if (!is_partial(t->extent) || !t->lines.count) return oa_lines_span(t->lines);
  int64_t j = run_count(t) - 1;
  while (j > 0 && run_at(t, j).from == run_at(t, j).to)
    j--; /* once at most: a unit triangle has nothing in one column */
  return run_at(t, j).to - t->lines.start;
}

bool oa_touched_within(const oa_touched *t, oa_lines outer) {
  if (oa_lines_contain(outer, t->lines)) return true;
  if (!is_partial(t->extent) || t->lines.start + oa_touched_span(t) > outer.start + oa_lines_span(outer)) return false;
  const int64_t count = run_count(t);
  for (int64_t j = 0; j < count; j++) {
    const run r = run_at(t, j);
    if (!oa_lines_contain(outer, (oa_lines){r.from, r.to - r.from, r.to - r.from, 1})) return false;
  }
  return true;
}

bool oa_touched_disjoint(const oa_touched *a, const oa_touched *b) {
  if (oa_lines_disjoint(a->lines, b->lines)) return true;
  const int64_t count_a = run_count(a), count_b = run_count(b);
  int64_t i = 0, j = 0;
  while (i < count_a && j < count_b) {
    const run r = run_at(a, i), s = run_at(b, j);
    if (r.to <= s.from || r.from == r.to)
      i = r.from == r.to ? i + 1 : run_behind(a, i, s.from);
    else if (s.to <= r.from || s.from == s.to)
      j = s.from == s.to ? j + 1 : run_behind(b, j, r.from);
    else
      return false;
  }
  return true;
}
