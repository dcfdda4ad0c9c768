#include "base/parts.h"

#include <stdlib.h>

typedef struct interval {
  int64_t low, high; /* from low to before high */
} interval;

struct oa_parts {
  int64_t count;
  interval at[];
};

/* Appends an interval that starts no earlier than the last one. */
static void append(oa_parts *parts, interval next) {
  interval *last = parts->count ? &parts->at[parts->count - 1] : NULL;
  if (!last || next.low > last->high)
    parts->at[parts->count++] = next;
  else if (next.high > last->high)
    last->high = next.high;
}

static interval line_of(oa_lines lines, int64_t i) {
  const int64_t low = lines.start + i * lines.pitch;
  return (interval){low, low + lines.width};
}

bool oa_parts_add(oa_parts **parts, oa_lines lines) {
  if (!lines.count || !lines.width) return true;
  lines = oa_lines_simplest(lines);
  const oa_parts *old = *parts;
  const int64_t old_count = old ? old->count : 0;
  int64_t total, nbytes;
  if (__builtin_add_overflow(old_count, lines.count, &total) ||
      __builtin_mul_overflow(total, (int64_t)sizeof(interval), &nbytes))
    return false;
  oa_parts *sum = malloc(sizeof *sum + (size_t)nbytes);
  if (!sum) return false;
  sum->count = 0;
  for (int64_t i = 0, j = 0; i < old_count || j < lines.count;) {
    const bool from_old = j == lines.count || (i < old_count && old->at[i].low <= line_of(lines, j).low);
    append(sum, from_old ? old->at[i++] : line_of(lines, j++));
  }
  oa_parts *smaller = realloc(sum, sizeof *sum + (size_t)sum->count * sizeof(interval));
  free(*parts);
  *parts = smaller ? smaller : sum;
  return true;
}

/* Returns whether the interval's bytes are in the set. */
static bool contains(const oa_parts *parts, interval wanted) {
  int64_t low = 0, high = parts->count; /* the last interval that starts no later is before `high` */
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (parts->at[middle].low <= wanted.low)
      low = middle + 1;
    else
      high = middle;
  }
  return low && parts->at[low - 1].high >= wanted.high;
}

bool oa_parts_contain(const oa_parts *parts, oa_lines lines) {
  if (!lines.count || !lines.width) return true;
  if (!parts) return false;
  lines = oa_lines_simplest(lines);
  for (int64_t i = 0; i < lines.count; i++)
    if (!contains(parts, line_of(lines, i))) return false;
  return true;
}

oa_lines oa_parts_next(const oa_parts *parts, int64_t *at) {
  if (!parts || *at >= parts->count) return (oa_lines){.count = 0};
  const interval *first = &parts->at[(*at)++];
  oa_lines lines = {first->low, first->high - first->low, first->high - first->low, 1};
  for (; *at < parts->count; (*at)++, lines.count++) {
    const interval *next = &parts->at[*at];
    if (next->high - next->low != lines.width) break;
    if (lines.count == 1) lines.pitch = next->low - first->low;
    if (next->low - next[-1].low != lines.pitch) break;
  }
  return lines;
}

int64_t oa_parts_pieces(const oa_parts *parts) {
  int64_t pieces = 0, at = 0;
  while (oa_parts_next(parts, &at).count) pieces++;
  return pieces;
}

void oa_parts_clear(oa_parts **parts) {
  free(*parts);
  *parts = NULL;
}
