#include "base/lines.h"

#include <string.h>

oa_lines oa_lines_simplest(oa_lines a) {
  if (a.width == 0 || a.count == 0) return (oa_lines){a.start, 0, 0, 0};
  if (a.count == 1) return (oa_lines){a.start, a.width, a.width, 1};
  if (a.pitch == a.width) return (oa_lines){a.start, a.width * a.count, a.width * a.count, 1};
  return a;
}

bool oa_lines_contain(oa_lines outer, oa_lines inner) {
  outer = oa_lines_simplest(outer);
  inner = oa_lines_simplest(inner);
  if (inner.count == 0) return true;
  const int64_t first = inner.start - outer.start;
  if (first < 0 || first + oa_lines_span(inner) > oa_lines_span(outer)) return false;
  if (outer.count == 1) return true;
  if (inner.count == 1 || inner.pitch % outer.pitch == 0) return first % outer.pitch + inner.width <= outer.width;
  for (int64_t i = 0; i < inner.count; i++)
    if ((first + i * inner.pitch) % outer.pitch + inner.width > outer.width) return false;
  return true;
}

static int64_t common_divisor(int64_t a, int64_t b) {
  while (b) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

bool oa_lines_disjoint(oa_lines a, oa_lines b) {
  a = oa_lines_simplest(a);
  b = oa_lines_simplest(b);
  if (a.count == 0 || b.count == 0) return true;
  if (a.start + oa_lines_span(a) <= b.start || b.start + oa_lines_span(b) <= a.start) return true;
  if (a.count == 1 && b.count == 1) return false;
  /* The lines are compared modulo a common divisor of both pitches. A single line takes the pitch of the other lines.
   * The result is false if a line is longer than this common pitch. */
  const int64_t pitch = a.count == 1 ? b.pitch : b.count == 1 ? a.pitch : common_divisor(a.pitch, b.pitch);
  if (a.width > pitch || b.width > pitch) return false;
  const int64_t gap = ((b.start - a.start) % pitch + pitch) % pitch; /* from a start of `a` to the next start of `b` */
  return gap >= a.width && gap + b.width <= pitch;
}

typedef struct axis {
  int64_t size, stride;
} axis;

/* Inserts an axis; the axes stay in the order of their strides. */
static void insert_axis(axis *axes, int count, axis next) {
  int at = count;
  for (; at > 0 && axes[at - 1].stride > next.stride; at--) axes[at] = axes[at - 1];
  axes[at] = next;
}

/* Adds an axis to the lines: the axis either makes a single line longer, without a gap, or repeats the lines. Returns
 * false if neither is possible. */
static bool grow_lines(oa_lines *lines, axis next) {
  if (lines->count == 1 && next.stride == lines->width) {
    lines->width *= next.size;
  } else if (lines->count == 1) {
    lines->pitch = next.stride;
    lines->count = next.size;
  } else if (next.stride == lines->pitch * lines->count) {
    lines->count *= next.size;
  } else {
    return false;
  }
  return true;
}

int oa_layout_of(int ndim, const int64_t *shape, const int64_t *strides, int64_t itemsize, oa_layout *layout) {
  axis axes[OA_MAX_DIMENSIONS];
  int count = 0;
  int64_t reach = 0; /* bytes from the lowest element to the highest */
  if (ndim < 0 || ndim > OA_MAX_DIMENSIONS) return OA_ERROR_ARGUMENT;
  *layout = (oa_layout){.size = 1};
  bool empty = false;
  for (int i = 0; i < ndim; i++) {
    if (shape[i] < 0) return OA_ERROR_ARGUMENT;
    empty |= shape[i] == 0;
  }
  if (empty) {
    layout->size = 0;
    layout->regular = true;
    return OA_OK;
  }
  for (int i = 0; i < ndim; i++) {
    int64_t extent, stride = strides[i];
    if (__builtin_mul_overflow(layout->size, shape[i], &layout->size)) return OA_ERROR_OVERFLOW;
    if (shape[i] == 1) continue;
    if (stride == INT64_MIN) return OA_ERROR_OVERFLOW;
    const bool back = stride < 0;
    if (back) stride = -stride;
    if (__builtin_mul_overflow(shape[i] - 1, stride, &extent) || __builtin_add_overflow(reach, extent, &reach))
      return OA_ERROR_OVERFLOW;
    if (back) {
      layout->reversed = true;
      layout->low -= extent; /* this can't overflow, because `extent` is at most `reach` */
    }
    insert_axis(axes, count++, (axis){shape[i], stride});
  }
  int64_t bytes;
  if (__builtin_mul_overflow(layout->size, itemsize, &bytes) || __builtin_add_overflow(reach, itemsize, &layout->span))
    return OA_ERROR_OVERFLOW;
  oa_lines lines = {layout->low, itemsize, itemsize, 1};
  int64_t inner = itemsize; /* bytes spanned by the axes so far */
  bool regular = true;
  for (int i = 0; i < count; i++) {
    layout->overlapping |= axes[i].stride < inner;
    regular &= axes[i].stride % itemsize == 0; /* devices can't read an element that is not aligned */
    regular &= grow_lines(&lines, axes[i]);
    inner += axes[i].stride * (axes[i].size - 1);
  }
  layout->regular = regular && !layout->overlapping;
  layout->lines = oa_lines_simplest(lines);
  return OA_OK;
}

/* Adds an axis. The axes are sorted by their steps on the first side. Makes the new axis's step on that side
 * positive. */
static void add_axis(oa_pieces *p, struct oa_axis next) {
  for (int k = 0; k < 2; k++) {
    const int64_t reach = (next.size - 1) * next.step[k];
    if (reach < 0) p->at[k] -= reach; /* the lowest element is the last element, not the first */
    if (next.step[0] < 0) p->at[k] += reach;
  }
  if (next.step[0] < 0) next = (struct oa_axis){next.size, {-next.step[0], -next.step[1]}, 0};
  int at = p->axes++;
  for (; at > 0 && p->axis[at - 1].step[0] > next.step[0]; at--) p->axis[at] = p->axis[at - 1];
  p->axis[at] = next;
}

/* Merges neighbouring axes that can be one axis on both sides. */
static void merge_axes(oa_pieces *p) {
  int merged = 0;
  for (int i = 0; i < p->axes; i++) {
    const struct oa_axis *next = &p->axis[i];
    struct oa_axis *last = &p->axis[merged - 1];
    if (merged && next->step[0] == last->step[0] * last->size && next->step[1] == last->step[1] * last->size)
      last->size *= next->size;
    else
      p->axis[merged++] = *next;
  }
  p->axes = merged;
}

static void remove_axis(oa_pieces *p, int at) {
  memmove(&p->axis[at], &p->axis[at + 1], (size_t)(--p->axes - at) * sizeof *p->axis);
}

void oa_pieces_start(oa_pieces *p, int ndim, const int64_t *shape, const int64_t *strides, const int64_t *other,
                     int64_t itemsize) {
  *p = (oa_pieces){.width = itemsize, .count = 1, .pieces = 1};
  for (int i = 0; i < ndim; i++) {
    const struct oa_axis next = {shape[i], {strides[i], other ? other[i] : strides[i]}, 0};
    if (next.size > 1 && (next.step[0] || next.step[1])) add_axis(p, next); /* other axes add no elements */
  }
  merge_axes(p);
  if (p->axes && p->axis[0].step[0] == itemsize && p->axis[0].step[1] == itemsize) {
    p->width *= p->axis[0].size;
    remove_axis(p, 0);
  }
  p->pitch[0] = p->pitch[1] = p->width;
  int best = -1;
  for (int i = 0; i < p->axes && (other || best < 0); i++)
    if (p->axis[i].step[0] >= p->width && p->axis[i].step[1] >= p->width &&
        (best < 0 || p->axis[i].size > p->axis[best].size))
      best = i;
  if (best >= 0) {
    p->count = p->axis[best].size;
    memcpy(p->pitch, p->axis[best].step, sizeof p->pitch);
    remove_axis(p, best);
  }
  for (int i = 0; i < p->axes; i++) p->pieces *= p->axis[i].size;
  p->left = p->pieces;
}

bool oa_pieces_next(oa_pieces *p, oa_lines *lines, oa_lines *other) {
  if (p->left == 0) return false;
  p->left--;
  *lines = (oa_lines){p->at[0], p->width, p->pitch[0], p->count};
  if (other) *other = (oa_lines){p->at[1], p->width, p->pitch[1], p->count};
  for (int i = 0; i < p->axes; i++) {
    struct oa_axis *axis = &p->axis[i];
    /* Moves one step along this axis, or back to its beginning. */
    const int64_t times = ++axis->index == axis->size ? 1 - axis->size : 1;
    for (int k = 0; k < 2; k++) p->at[k] += times * axis->step[k];
    if (times == 1) break;
    axis->index = 0;
  }
  return true;
}

/* Copies `count` elements, which are `step` bytes apart in the array and contiguous in packed memory. The compiler
 * turns a memcpy of a constant size into a plain move. */
static void run_of(char *packed, char *element, int64_t step, int64_t itemsize, int64_t count, bool gather) {
#define RUN(size)                                                                                           \
  case size:                                                                                                \
    if (gather)                                                                                             \
      for (int64_t j = 0; j < count; j++, packed += (size), element += step) memcpy(packed, element, size); \
    else                                                                                                    \
      for (int64_t j = 0; j < count; j++, packed += (size), element += step) memcpy(element, packed, size); \
    break
  if (step == itemsize) {
    if (gather)
      memcpy(packed, element, (size_t)(count * itemsize));
    else
      memcpy(element, packed, (size_t)(count * itemsize));
    return;
  }
  switch (itemsize) { /* oa_itemsize returns no other size */
    RUN(1);
    RUN(2);
    RUN(4);
    RUN(8);
    RUN(16);
  }
#undef RUN
}

/* Copies the elements [first, first + count) in C order. Each call of run_of copies elements along the last axis. */
static void walk(char *packed, char *data, int ndim, const int64_t *shape, const int64_t *strides, int64_t itemsize,
                 int64_t first, int64_t count, bool gather) {
  int64_t index[OA_MAX_DIMENSIONS] = {0};
  const int64_t inner = ndim ? shape[ndim - 1] : 1, step = ndim ? strides[ndim - 1] : itemsize;
  if (count == 0) return;
  int64_t skipped = first % inner;
  first /= inner;
  for (int i = ndim - 2; i >= 0; i--) {
    index[i] = first % shape[i];
    first /= shape[i];
  }
  for (;;) {
    char *element = data + skipped * step;
    for (int i = 0; i < ndim - 1; i++) element += index[i] * strides[i];
    const int64_t run = count < inner - skipped ? count : inner - skipped;
    run_of(packed, element, step, itemsize, run, gather);
    packed += run * itemsize;
    skipped = 0;
    if ((count -= run) == 0) return;
    int axis = ndim - 2;
    while (++index[axis] == shape[axis]) index[axis--] = 0; /* elements are left, so some axis is not at its end */
  }
}

void oa_gather(void *packed, const void *data, int ndim, const int64_t *shape, const int64_t *strides, int64_t itemsize,
               int64_t first, int64_t count) {
  walk(packed, (char *)data, ndim, shape, strides, itemsize, first, count, true);
}

void oa_scatter(void *data, const void *packed, int ndim, const int64_t *shape, const int64_t *strides,
                int64_t itemsize, int64_t first, int64_t count) {
  walk((char *)packed, data, ndim, shape, strides, itemsize, first, count, false);
}

void oa_copy_lines(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t lines) {
  if (width == to_pitch && width == from_pitch) {
    width *= lines;
    lines = lines != 0;
  }
  for (size_t i = 0; i < lines; i++) {
    memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
  }
}

void oa_fill_lines(void *to, size_t pitch, uint32_t value, size_t unit, size_t width, size_t lines) {
  const uint16_t half = (uint16_t)value;
  for (size_t i = 0; i < lines; i++) {
    char *line = (char *)to + i * pitch;
    if (unit == 1)
      memset(line, (int)(value & 0xff), width);
    else if (unit == 2)
      for (size_t at = 0; at < width; at += 2) memcpy(line + at, &half, 2);
    else
      for (size_t at = 0; at < width; at += 4) memcpy(line + at, &value, 4);
  }
}
