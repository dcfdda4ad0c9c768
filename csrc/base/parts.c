#include "base/parts.h"

#include <stdlib.h>

enum { FINE_COUNT = 1024, FINE_BYTES = 64 }; /* a fine set has more intervals, which are shorter on average */

typedef struct interval {
  int64_t low, high; /* the bytes [low, high) */
} interval;

/* Intervals in ascending order, with gaps between them. */
typedef struct run {
  int64_t count, bytes;
  interval at[];
} run;

/* The set is the union of its runs. An added run is merged with the preceding runs that are less than twice as long, so
 * each interval is copied only O(log n) times. If host memory runs out for a merge, the runs stay separate until a
 * later merge. */
struct oa_parts {
  int count;
  run *runs[OA_PARTS_RUNS];
};

/* Appends an interval that does not start before the run's last interval. */
static void append(run *run, interval next) {
  interval *last = run->count ? &run->at[run->count - 1] : NULL;
  if (!last || next.low > last->high) {
    run->at[run->count++] = next;
    run->bytes += next.high - next.low;
  } else if (next.high > last->high) {
    run->bytes += next.high - last->high;
    last->high = next.high;
  }
}

static interval line_of(oa_lines lines, int64_t i) {
  const int64_t low = lines.start + i * lines.pitch;
  return (interval){low, low + lines.width};
}

/* Returns a run without intervals, with memory for `room` intervals; NULL if host memory runs out. */
static run *new_run(int64_t room) {
  int64_t nbytes;
  if (__builtin_mul_overflow(room, (int64_t)sizeof(interval), &nbytes) ||
      __builtin_add_overflow(nbytes, (int64_t)sizeof(run), &nbytes))
    return NULL;
  run *new = malloc((size_t)nbytes);
  if (new) new->count = new->bytes = 0;
  return new;
}

/* Merges the last two runs into one. Returns false, and changes nothing, if host memory runs out. */
static bool merge_last(oa_parts *parts) {
  run **last = &parts->runs[parts->count - 1];
  run *a = last[-1], *b = last[0], *sum = new_run(a->count + b->count);
  if (!sum) return false;
  for (int64_t i = 0, j = 0; i < a->count || j < b->count;) {
    const bool from_a = j == b->count || (i < a->count && a->at[i].low <= b->at[j].low);
    append(sum, from_a ? a->at[i++] : b->at[j++]);
  }
  run *smaller = realloc(sum, sizeof *sum + (size_t)sum->count * sizeof(interval));
  free(a);
  free(b);
  last[-1] = smaller ? smaller : sum;
  parts->count--;
  return true;
}

bool oa_parts_add(oa_parts **parts, oa_lines lines) {
  if (!lines.count || !lines.width) return true;
  lines = oa_lines_simplest(lines);
  oa_parts *set = *parts;
  if (set && set->count == OA_PARTS_RUNS && !merge_last(set)) return false;
  run *added = new_run(lines.count);
  if (added && !set && (set = malloc(sizeof *set))) set->count = 0;
  if (!added || !set) {
    free(added);
    return false;
  }
  for (int64_t i = 0; i < lines.count; i++) append(added, line_of(lines, i));
  set->runs[set->count++] = added;
  while (set->count > 1 && set->runs[set->count - 2]->count < 2 * set->runs[set->count - 1]->count)
    if (!merge_last(set)) break;
  *parts = set;
  return true;
}

/* Returns the end of the run's contiguous bytes that begin at byte `from`; returns `from` if the run does not have that
 * byte. */
static int64_t reach(const run *run, int64_t from) {
  int64_t low = 0, high = run->count; /* the last interval that does not start after `from` has an index below `high` */
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (run->at[middle].low <= from)
      low = middle + 1;
    else
      high = middle;
  }
  return low && run->at[low - 1].high > from ? run->at[low - 1].high : from;
}

/* Returns whether the interval's bytes are in the set. */
static bool contains(const oa_parts *parts, interval wanted) {
  while (wanted.low < wanted.high) {
    int64_t furthest = wanted.low;
    for (int r = 0; r < parts->count; r++) {
      const int64_t end = reach(parts->runs[r], wanted.low);
      if (end > furthest) furthest = end;
    }
    if (furthest == wanted.low) return false;
    wanted.low = furthest;
  }
  return true;
}

bool oa_parts_contain(const oa_parts *parts, oa_lines lines) {
  if (!lines.count || !lines.width) return true;
  if (!parts) return false;
  lines = oa_lines_simplest(lines);
  for (int64_t i = 0; i < lines.count; i++)
    if (!contains(parts, line_of(lines, i))) return false;
  return true;
}

/* Merges all runs into one, if there is host memory for it. */
static void merge_all(oa_parts *parts) {
  while (parts->count > 1 && merge_last(parts)) continue;
}

int64_t oa_parts_bytes(const oa_parts *parts) {
  int64_t bytes = 0;
  for (int r = 0; parts && r < parts->count; r++) bytes += parts->runs[r]->bytes;
  return bytes;
}

bool oa_parts_are_all(oa_parts *parts, oa_lines all) {
  if (oa_parts_bytes(parts) < oa_lines_bytes(all)) return false;
  if (parts) merge_all(parts);
  return oa_parts_contain(parts, all);
}

int64_t oa_parts_intervals(const oa_parts *parts) {
  int64_t count = 0;
  for (int r = 0; parts && r < parts->count; r++) count += parts->runs[r]->count;
  return count;
}

bool oa_parts_are_fine(const oa_parts *parts, oa_lines more) {
  more = oa_lines_simplest(more);
  const int64_t count = more.count + oa_parts_intervals(parts);
  const int64_t bytes = oa_lines_bytes(more) + oa_parts_bytes(parts);
  return count > FINE_COUNT && bytes / count < FINE_BYTES;
}

/* Sets *next to the next interval of the union of the runs, and advances the place. Returns false after the last
 * interval. */
static bool next_interval(const oa_parts *parts, oa_parts_place *place, interval *next) {
  const interval *first = NULL;
  for (int r = 0; r < parts->count; r++) {
    const run *run = parts->runs[r];
    const int64_t i = place->at[r];
    if (i < run->count && (!first || run->at[i].low < first->low)) first = &run->at[i];
  }
  if (!first) return false;
  *next = *first;
  for (bool grows = true; grows;) {
    grows = false;
    for (int r = 0; r < parts->count; r++) {
      const run *run = parts->runs[r];
      for (int64_t *i = &place->at[r]; *i < run->count && run->at[*i].low <= next->high; grows = true, ++*i)
        if (run->at[*i].high > next->high) next->high = run->at[*i].high;
    }
  }
  return true;
}

/* Advances the place to the first interval of each run that ends after byte `from`. The time is proportional to the
 * logarithm of the number of intervals that it passes. */
static void seek(const oa_parts *parts, oa_parts_place *place, int64_t from) {
  for (int r = 0; r < parts->count; r++) {
    const run *run = parts->runs[r];
    int64_t first = place->at[r], step = 1;
    while (first + step <= run->count && run->at[first + step - 1].high <= from) {
      first += step;
      step *= 2;
    }
    for (; step; step /= 2)
      if (first + step <= run->count && run->at[first + step - 1].high <= from) first += step;
    place->at[r] = first;
  }
}

bool oa_parts_missing(const oa_parts *parts, oa_lines lines, oa_parts **rest) {
  oa_parts_place place = {.low = 0};
  interval next = {INT64_MIN, INT64_MIN};
  lines = oa_lines_simplest(lines);
  const int64_t room = lines.count + oa_parts_intervals(parts);
  oa_parts *set = malloc(sizeof *set);
  run *left = new_run(room);
  if (!set || !left) {
    free(set);
    free(left);
    return false;
  }
  bool more = parts;
  for (int64_t i = 0; i < lines.count; i++) {
    interval line = line_of(lines, i);
    if (more && next.high <= line.low) {
      seek(parts, &place, line.low);
      more = next_interval(parts, &place, &next);
    }
    while (more && line.low < line.high && next.low < line.high) {
      if (next.low > line.low) append(left, (interval){line.low, next.low});
      if (next.high > line.low) line.low = next.high;
      if (next.high <= line.high) more = next_interval(parts, &place, &next);
    }
    if (line.low < line.high) append(left, line);
  }
  *set = (oa_parts){.count = 1, .runs = {left}};
  *rest = set;
  return true;
}

oa_lines oa_parts_next(const oa_parts *parts, oa_parts_place *place) {
  interval first = {place->low, place->high}, next;
  if (!parts || (first.low == first.high && !next_interval(parts, place, &first))) return (oa_lines){.count = 0};
  oa_lines lines = {first.low, first.high - first.low, first.high - first.low, 1};
  place->low = place->high = 0;
  for (; next_interval(parts, place, &next); lines.count++) {
    const int64_t pitch = lines.count == 1 ? next.low - first.low : lines.pitch;
    if (next.high - next.low != lines.width || next.low != lines.start + lines.count * pitch) {
      place->low = next.low;
      place->high = next.high;
      break;
    }
    lines.pitch = pitch;
  }
  return lines;
}

bool oa_parts_after(const oa_parts *parts, int64_t from, int64_t *low, int64_t *high) {
  bool any = false;
  for (int r = 0; parts && r < parts->count; r++) {
    const run *run = parts->runs[r];
    int64_t first = 0,
            /* The index of the first interval that ends after `from` is below `end`, if there is one. */
        end = run->count;
    while (first < end) {
      const int64_t middle = first + (end - first) / 2;
      if (run->at[middle].high > from)
        end = middle;
      else
        first = middle + 1;
    }
    if (first == run->count || (any && run->at[first].low >= *low)) continue;
    *low = run->at[first].low > from ? run->at[first].low : from;
    *high = run->at[first].high;
    any = true;
  }
  return any;
}

/* Returns lines that contain the set's bytes from `from` to *end. The lines have the pitch `pitch`; if `pitch` is 0,
 * the result is one line. Sets *end. */
static oa_lines near(const oa_parts *parts, oa_lines bounds, int64_t from, int64_t pitch, int64_t *end) {
  oa_lines lines = {.count = 0};
  interval next;
  int64_t kept = 0, high = 0; /* high: the end of the first line */
  for (int64_t count = 1; oa_parts_after(parts, from, &next.low, &next.high); count++, from = next.high) {
    const int64_t shift = (count - 1) * pitch;
    const int64_t low = lines.count && lines.start < next.low - shift ? lines.start : next.low - shift;
    if (count == 1 || next.high - shift > high) high = next.high - shift;
    const oa_lines grown = {low, high - low, pitch ? pitch : high - low, pitch ? count : 1};
    kept += next.high - next.low;
    if (lines.count && (grown.width > grown.pitch || oa_lines_bytes(grown) - kept > kept / 8 || low < bounds.start ||
                        low + oa_lines_span(grown) > bounds.start + oa_lines_span(bounds)))
      break;
    lines = grown;
    *end = next.high;
  }
  if (lines.count == 1) lines.pitch = lines.width;
  return lines;
}

oa_lines oa_parts_next_near(const oa_parts *parts, oa_lines bounds, int64_t *from) {
  interval first, second;
  if (!oa_parts_after(parts, *from, &first.low, &first.high)) return (oa_lines){.count = 0};
  const bool two = oa_parts_after(parts, first.high, &second.low, &second.high);
  const int64_t pitches[] = {0, two ? second.low - first.low : 0, two ? second.high - first.high : 0};
  oa_lines best = {.count = 0};
  int64_t furthest = *from;
  for (int i = 0; i < 3; i++) {
    int64_t end = *from;
    if (i && !pitches[i]) continue;
    const oa_lines lines = near(parts, bounds, *from, pitches[i], &end);
    if (end <= furthest) continue;
    best = lines;
    furthest = end;
  }
  *from = furthest;
  return best;
}

bool oa_parts_add_all(oa_parts **parts, const oa_parts *more) {
  oa_parts_place place = {.low = 0};
  oa_lines lines;
  while ((lines = oa_parts_next(more, &place)).count)
    if (!oa_parts_add(parts, lines)) return false;
  return true;
}

int64_t oa_parts_pieces(oa_parts *parts) {
  int64_t pieces = 0;
  oa_parts_place place = {.low = 0};
  if (parts) merge_all(parts);
  while (oa_parts_next(parts, &place).count) pieces++;
  return pieces;
}

void oa_parts_free(oa_parts *parts) {
  for (int r = 0; r < parts->count; r++) free(parts->runs[r]);
  free(parts);
}
