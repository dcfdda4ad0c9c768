/* Compares the pieces of strided arrays with the elements of the arrays, one by one. */
#include "base/lines.h"
#include "check.h"

#include <stdlib.h>

enum { ITEMSIZE = 4, MOST = 1 << 16, AXES = 4 };

static uint32_t state = 1;

static int64_t random_below(int64_t limit) {
  state = state * 1664525 + 1013904223;
  return (int64_t)(state >> 8) % limit;
}

/* Makes random strides, some of them negative, with which no two indices share a byte. Returns the offset of index 0
 * from the lowest byte. *span: the bytes from the lowest to the highest. */
static int64_t make_strides(int ndim, const int64_t *shape, int64_t *strides, int64_t *span) {
  int order[AXES];
  int64_t step = ITEMSIZE, first = 0;
  for (int i = 0; i < ndim; i++) {
    const int at = (int)random_below(i + 1);
    order[i] = order[at];
    order[at] = i;
  }
  *span = ITEMSIZE;
  for (int i = 0; i < ndim; i++) {
    const int64_t size = shape[order[i]];
    if (random_below(3) == 0) step += ITEMSIZE * random_below(3);
    const bool back = random_below(4) == 0;
    strides[order[i]] = back ? -step : step;
    if (back) first += (size - 1) * step;
    *span += (size - 1) * step;
    step *= size;
  }
  return first;
}

/* The bytes of element i in C order, from the lowest byte of the array. */
static int64_t place_of(int64_t i, int ndim, const int64_t *shape, const int64_t *strides, int64_t first) {
  int64_t at = first;
  for (int k = ndim - 1; k >= 0; i /= shape[k--]) at += i % shape[k] * strides[k];
  return at;
}

/* Checks that every element is in exactly one piece. With a second array, each element is beside the element with the
 * same index in the second array. */
static void pieces_have_each_element_once(bool two) {
  static int64_t partner[MOST];
  int64_t shape[AXES], strides[AXES], others[AXES], size = 1, span, other_span;
  const int ndim = (int)random_below(AXES + 1);
  for (int i = 0; i < ndim; i++) size *= shape[i] = 1 + random_below(5);
  const int64_t first = make_strides(ndim, shape, strides, &span);
  const int64_t other_first = make_strides(ndim, shape, others, &other_span);
  if (!CHECK(span <= MOST)) return;
  memset(partner, -1, (size_t)span * sizeof *partner);
  oa_pieces pieces;
  oa_lines a, b;
  int64_t elements = 0, count = 0;
  oa_pieces_start(&pieces, ndim, shape, strides, two ? others : NULL, ITEMSIZE);
  while (oa_pieces_next(&pieces, &a, &b)) {
    count++;
    for (int64_t line = 0; line < a.count; line++)
      for (int64_t byte = 0; byte < a.width; byte += ITEMSIZE, elements++) {
        const int64_t at = a.start + line * a.pitch + byte;
        if (CHECK(at >= 0 && at < span && partner[at] < 0)) partner[at] = b.start + line * b.pitch + byte;
      }
  }
  CHECK(elements == size && count == pieces.pieces);
  for (int64_t i = 0; i < size; i++) {
    const int64_t at = place_of(i, ndim, shape, strides, first);
    CHECK(partner[at] == (two ? place_of(i, ndim, shape, others, other_first) : at));
  }
}

static void a_matrix_is_one_piece(void) {
  const int64_t shape[] = {5, 3}, strides[] = {40, 4}, columns[] = {4, 40};
  oa_pieces pieces;
  oa_pieces_start(&pieces, 2, shape, strides, NULL, ITEMSIZE);
  CHECK(pieces.pieces == 1 && pieces.width == 12 && pieces.count == 5 && pieces.pitch[0] == 40);
  oa_pieces_start(&pieces, 2, shape, strides, columns, ITEMSIZE); /* no line is contiguous on both sides */
  CHECK(pieces.pieces == 3 && pieces.width == 4 && pieces.count == 5);
}

int main(void) {
  a_matrix_is_one_piece();
  for (int i = 0; i < 20000; i++) pieces_have_each_element_once(i % 2);
  return failures();
}
