/* Compares lines and layouts with sets of bytes that are made byte by byte from the definition. */
#include "base/lines.h"
#include "check.h"

#include <stdlib.h>
#include <string.h>

enum { MEMORY = 2048, LINES = 300000, LAYOUTS = 100000 };

static uint32_t state = 2463534242u;
static int64_t below(int64_t n) { /* 0 to n - 1 */
  state = state * 1664525u + 1013904223u;
  return (int64_t)(state >> 8) % n;
}

/* Up to 7 lines of up to 9 bytes. */
static oa_lines some_lines(void) {
  const int64_t width = below(10), pitch = width + below(8);
  return (oa_lines){below(60), width, pitch, below(8)};
}

static void mark(char *bytes, oa_lines lines) {
  for (int64_t i = 0; i < lines.count; i++)
    for (int64_t j = 0; j < lines.width; j++) bytes[lines.start + i * lines.pitch + j] = 1;
}

static void overlap_of_lines_is_that_of_their_bytes(void) {
  int64_t disjoint = 0, unknown = 0, contained = 0;
  for (int c = 0; c < LINES; c++) {
    const oa_lines a = some_lines(), b = some_lines();
    char in_a[256] = {0}, in_b[256] = {0}, in_simplest[256] = {0};
    mark(in_a, a);
    mark(in_b, b);
    mark(in_simplest, oa_lines_simplest(a));
    bool meet = false, within = true;
    for (int i = 0; i < 256; i++) {
      meet |= in_a[i] && in_b[i];
      within &= in_a[i] || !in_b[i];
    }
    if (!CHECK(memcmp(in_a, in_simplest, sizeof in_a) == 0)) return;
    if (!CHECK(oa_lines_contain(a, b) == within)) return;
    contained += within && oa_lines_bytes(b);
    const bool answer = oa_lines_disjoint(a, b);
    if (!CHECK(answer == oa_lines_disjoint(b, a)) || !CHECK(!answer || !meet)) return;
    /* oa_lines_disjoint is exact if one side is a single line, or if both sides have the same pitch. */
    const oa_lines x = oa_lines_simplest(a), y = oa_lines_simplest(b);
    if ((x.count < 2 || y.count < 2 || x.pitch == y.pitch) && !CHECK(answer == !meet)) return;
    disjoint += answer;
    unknown += !answer && !meet;
  }
  CHECK(disjoint > LINES / 5 && contained > LINES / 100 && unknown < LINES / 10);
}

typedef struct array {
  int ndim;
  int64_t shape[4], strides[4], itemsize;
} array;

/* Returns an array with up to 4 dimensions of up to 5 elements. The strides are often the strides of a slice, and
 * sometimes arbitrary. */
static array some_array(void) {
  array a = {.ndim = (int)below(5), .itemsize = INT64_C(1) << below(5)};
  const bool anything = below(4) == 0;
  int64_t stride = a.itemsize;
  int order[4] = {0, 1, 2, 3};
  for (int i = 3; i > 0; i--) {
    const int other = (int)below(i + 1), moved = order[i];
    order[i] = order[other];
    order[other] = moved;
  }
  for (int i = 0; i < 4; i++) {
    const int axis = order[i];
    if (axis >= a.ndim) continue;
    a.shape[axis] = below(12) ? 1 + below(4) : 0;
    a.strides[axis] = (anything ? below(40) : stride * (below(3) ? 1 : 1 + below(2))) * (below(3) ? 1 : -1);
    stride = llabs(a.strides[axis]) * (a.shape[axis] + !below(4));
    if (stride > 300) stride = a.itemsize;
  }
  return a;
}

/* Calls `visit` with the place of each element, from index 0 on, in C order. */
static int64_t each_element(const array *a, void (*visit)(void *data, int64_t number, int64_t place), void *data) {
  int64_t index[4] = {0}, number = 0;
  for (int i = 0; i < a->ndim; i++)
    if (a->shape[i] == 0) return 0;
  for (;;) {
    int64_t place = 0;
    for (int i = 0; i < a->ndim; i++) place += index[i] * a->strides[i];
    if (visit) visit(data, number, place);
    number++;
    int axis = a->ndim - 1;
    while (axis >= 0 && ++index[axis] == a->shape[axis]) index[axis--] = 0;
    if (axis < 0) return number;
  }
}

typedef struct touched {
  int64_t itemsize, low, high;
  unsigned char times[2 * MEMORY]; /* index 0 of the array is in the middle */
  int64_t places[1024];
} touched;

static void touch(void *data, int64_t number, int64_t place) {
  touched *t = data;
  if (place < t->low) t->low = place;
  if (place + t->itemsize > t->high) t->high = place + t->itemsize;
  for (int64_t i = 0; i < t->itemsize; i++) t->times[MEMORY + place + i]++;
  t->places[number] = place;
}

/* Gathers a part of the elements in C order, and scatters it again. */
static bool gathered_elements_are_those_of_c_order(const array *a, const touched *t, int64_t size) {
  static unsigned char memory[2 * MEMORY], back[2 * MEMORY], packed[1024 * 16];
  const int64_t first = below(size + 1), count = below(size - first + 1);
  for (int i = 0; i < 2 * MEMORY; i++) memory[i] = (unsigned char)below(256);
  memset(back, 0, sizeof back);
  oa_gather(packed, memory + MEMORY, a->ndim, a->shape, a->strides, a->itemsize, first, count);
  for (int64_t i = 0; i < count; i++)
    if (!CHECK(!memcmp(packed + i * a->itemsize, memory + MEMORY + t->places[first + i], (size_t)a->itemsize)))
      return false;
  oa_scatter(back + MEMORY, packed, a->ndim, a->shape, a->strides, a->itemsize, first, count);
  for (int64_t i = 0; i < count; i++) {
    const int64_t place = MEMORY + t->places[first + i];
    if (!CHECK(!memcmp(back + place, memory + place, (size_t)a->itemsize))) return false;
    for (int64_t j = 0; j < a->itemsize; j++) memory[place + j] = 0;
  }
  for (int i = 0; i < 2 * MEMORY; i++) /* no other byte was written */
    if (!CHECK(!back[i] || !memory[i])) return false;
  return true;
}

static void layouts_are_those_of_the_elements(void) {
  static touched t;
  int64_t regular = 0, overlapping = 0;
  for (int c = 0; c < LAYOUTS; c++) {
    const array a = some_array();
    memset(&t, 0, sizeof t);
    t.itemsize = a.itemsize;
    const int64_t size = each_element(&a, touch, &t);
    oa_layout layout;
    if (!CHECK_OK(oa_layout_of(a.ndim, a.shape, a.strides, a.itemsize, &layout))) return;
    if (!CHECK(layout.size == size) || !CHECK(layout.low == t.low) || !CHECK(layout.span == t.high - t.low)) return;
    bool twice = false, reversed = false;
    for (int i = 0; i < 2 * MEMORY; i++) twice |= t.times[i] > 1;
    for (int i = 0; i < a.ndim; i++) reversed |= size && a.strides[i] < 0 && a.shape[i] > 1;
    if (!CHECK(layout.reversed == reversed) || !CHECK(layout.overlapping || !twice)) return;
    if (layout.regular && size) {
      static char in_lines[2 * MEMORY];
      memset(in_lines, 0, sizeof in_lines);
      mark(in_lines + MEMORY, layout.lines);
      for (int i = 0; i < 2 * MEMORY; i++)
        if (!CHECK(in_lines[i] == (t.times[i] > 0))) return;
      for (int64_t i = 0; i < size; i++)
        if (!CHECK((t.places[i] - layout.low) % a.itemsize == 0)) return;
    }
    if (!twice && size && !gathered_elements_are_those_of_c_order(&a, &t, size)) return;
    regular += layout.regular && size;
    overlapping += layout.overlapping;
  }
  CHECK(regular > LAYOUTS / 5 && overlapping > LAYOUTS / 20 && overlapping < LAYOUTS / 2);
}

/* The sizes and strides are near the limits of 64 bits. A layout is refused exactly if a number of it does not fit. */
static void huge_layouts_are_right_or_refused(void) {
  int64_t fits = 0, refused = 0;
  for (int c = 0; c < LAYOUTS; c++) {
    const int ndim = 1 + (int)below(3);
    const int64_t itemsize = INT64_C(1) << below(5);
    int64_t shape[3], strides[3];
    __int128 size = 1, low = 0, reach = 0;
    for (int i = 0; i < ndim; i++) {
      const int64_t large = (INT64_C(1) << below(63)) + below(5) - 2;
      shape[i] = below(3) ? 1 + below(5) : large < 1 ? 1 : large;
      strides[i] = below(3) ? (INT64_C(1) << below(63)) + below(5) - 2 : below(2) ? below(100) : INT64_MAX - below(3);
      if (below(2)) strides[i] = -strides[i];
      if (below(50) == 0) strides[i] = INT64_MIN;
      size *= shape[i];
      const __int128 extent = (__int128)(shape[i] - 1) * strides[i];
      reach += extent < 0 ? -extent : extent;
      if (extent < 0) low += extent;
      if (size > INT64_MAX || reach > INT64_MAX) size = reach = (__int128)INT64_MAX + 1; /* stays too large */
    }
    const bool fit = size * itemsize <= INT64_MAX && reach + itemsize <= INT64_MAX;
    oa_layout layout;
    const int status = oa_layout_of(ndim, shape, strides, itemsize, &layout);
    if (!CHECK(status == (fit ? OA_OK : OA_ERROR_OVERFLOW))) return;
    if (fit && (!CHECK(layout.size == size) || !CHECK(layout.low == low) || !CHECK(layout.span == reach + itemsize)))
      return;
    fits += fit;
    refused += !fit;
  }
  CHECK(fits > LAYOUTS / 10 && refused > LAYOUTS / 10);
}

int main(void) {
  overlap_of_lines_is_that_of_their_bytes();
  layouts_are_those_of_the_elements();
  huge_layouts_are_right_or_refused();
  return failures();
}
