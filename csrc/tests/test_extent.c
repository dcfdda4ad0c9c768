/* Extents: bounds, containment and overlap agree with sets of elements that are made one by one from the definition. */
#include "call/extent.h"
#include "check.h"

#include <stdlib.h>
#include <string.h>

enum { MEMORY = 400, CASES = 300000 };

static uint32_t state = 12345;
static int64_t below(int64_t n) { /* 0 to n - 1 */
  state = state * 1664525u + 1013904223u;
  return (int64_t)(state >> 8) % n;
}

typedef struct sample {
  oa_extent extent;
  int64_t start;
  char touched[MEMORY];
  int64_t end; /* the end of the last touched element */
} sample;

static void touch(sample *s, int64_t at) {
  CHECK(at >= 0 && s->start + at < MEMORY);
  s->touched[s->start + at] = 1;
  if (at + 1 > s->end) s->end = at + 1;
}

static void touch_vector(sample *s) {
  static const int64_t increments[] = {1, -1, 2, -2, 3, 5, -7, 0};
  const int64_t n = below(9), inc = increments[below(8)], step = inc < 0 ? -inc : inc;
  s->extent = OA_REPEATABLE(n, inc, "n", "inc");
  for (int64_t i = 0; i < n; i++) touch(s, i * step);
}

static void touch_matrix(sample *s) {
  const int64_t m = below(7), n = below(7), ld = m + below(4) + (m == 0);
  s->extent = OA_MATRIX(m, n, ld, "m", "n", "ld");
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < m; i++) touch(s, j * ld + i);
}

static void touch_triangle(sample *s, int part) {
  const int64_t n = below(8), ld = n + below(4) + (n == 0);
  s->extent = OA_TRIANGLE(part, n, ld, "n", "ld");
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++)
      if (((part & OA_UPPER) ? i <= j : i >= j) && !((part & OA_UNIT) && i == j)) touch(s, j * ld + i);
}

static void touch_packed(sample *s, int part) {
  const int64_t n = below(8);
  int64_t at = 0;
  s->extent = OA_PACKED(part, n, "n");
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++)
      if ((part & OA_UPPER) ? i <= j : i >= j) {
        if (!((part & OA_UNIT) && i == j)) touch(s, at);
        at++;
      }
}

static void touch_band(sample *s) {
  const int64_t m = below(8), n = below(8), kl = below(4), ku = below(4), ld = kl + ku + 1 + below(3);
  s->extent = OA_BAND(m, n, kl, ku, ld, "m", "n", "ld");
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < m; i++)
      if (i - j <= kl && j - i <= ku) touch(s, j * ld + ku + i - j);
}

static void touch_band_triangle(sample *s, int part) {
  const int64_t n = below(8), k = below(5), ld = k + 1 + below(3);
  s->extent = OA_BAND_TRIANGLE(part, n, k, ld, "n", "ld");
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++) {
      if (((part & OA_UPPER) ? i > j || j - i > k : i < j || i - j > k) || ((part & OA_UNIT) && i == j)) continue;
      touch(s, j * ld + ((part & OA_UPPER) ? k + i - j : i - j));
    }
}

/* Repeats the touched elements as a batch. Each part begins after the end of the part before it; in half of the cases,
 * directly after it. */
static void repeat(sample *s) {
  const int64_t length = s->end, batch = below(4), stride = length + (below(2) ? below(6) : 0);
  static char first[MEMORY];
  memcpy(first, s->touched, sizeof first);
  if (s->start + stride * (batch > 1 ? batch - 1 : 0) + length >= MEMORY) return;
  s->extent = oa_strided(s->extent, batch, stride, "batch", "stride");
  memset(s->touched, 0, sizeof s->touched);
  s->end = 0;
  for (int64_t b = 0; b < batch; b++)
    for (int64_t i = 0; i < length; i++)
      if (first[s->start + i]) touch(s, b * stride + i);
}

static oa_touched make(sample *s, int64_t itemsize) {
  static const oa_call call = {.function = "test"};
  memset(s, 0, sizeof *s);
  s->start = below(40);
  const int part = (int)below(4), kind = (int)below(6); /* OA_UPPER, OA_UNIT */
  if (kind == 0) touch_vector(s);
  if (kind == 1) touch_matrix(s);
  if (kind == 2) touch_triangle(s, part);
  if (kind == 3) touch_packed(s, part);
  if (kind == 4) touch_band(s);
  if (kind == 5) touch_band_triangle(s, part);
  if (below(3) == 0) repeat(s);
  const oa_operand operand = {.name = "A", .extent = s->extent};
  oa_touched t = {&s->extent, {0}, itemsize};
  CHECK_OK(oa_extent_lines(&call, &operand, itemsize, &t.lines));
  if (!t.lines.width) t.lines.count = 0;
  t.lines.start = s->start * itemsize;
  return t;
}

static void bounds_and_overlap_are_those_of_the_elements(void) {
  static sample a, b;
  int disjoint = 0;
  for (int c = 0; c < CASES; c++) {
    const int64_t itemsize = 4 << below(3);
    const oa_touched x = make(&a, itemsize), y = make(&b, itemsize);
    bool meet = false;
    for (int i = 0; i < MEMORY; i++) meet |= a.touched[i] && b.touched[i];
    if (!CHECK((x.lines.count == 0) == (a.end == 0)) || !CHECK(oa_touched_span(&x) == a.end * itemsize)) return;
    if (!CHECK(oa_touched_disjoint(&x, &y) == !meet) || !CHECK(oa_touched_disjoint(&y, &x) == !meet)) return;
    disjoint += !meet && a.end && b.end;
  }
  CHECK(disjoint > CASES / 10 && disjoint < CASES * 9 / 10);
}

static void what_lies_within_lines_is_found_element_by_element(void) {
  static sample a;
  int within = 0;
  for (int c = 0; c < CASES; c++) {
    const oa_touched x = make(&a, 8);
    const int64_t width = 1 + below(9), pitch = width + below(5), count = 1 + below(30), start = below(30);
    bool inside = true;
    for (int i = 0; i < MEMORY; i++) {
      const int64_t at = i - start;
      if (a.touched[i] && (at < 0 || at / pitch >= count || at % pitch >= width)) inside = false;
    }
    if (!CHECK(oa_touched_within(&x, (oa_lines){start * 8, width * 8, pitch * 8, count}) == inside)) return;
    within += inside && a.end;
  }
  CHECK(within > CASES / 20);
}

static void large_operands_are_compared_at_once(void) {
  const int64_t n = INT64_C(1) << 40;
  const oa_extent vector = OA_VECTOR(n, 2, "n", "inc"), fourth = OA_VECTOR(n / 2, 4, "n", "inc");
  const oa_extent seventh = OA_VECTOR(n / 4, 7, "n", "inc"), square = OA_MATRIX(n / 4, 4, n, "m", "n", "ld");
  const oa_touched x = {&vector, {0, 8, 16, n}, 8}, y = {&fourth, {8, 8, 32, n / 2}, 8},
                   z = {&seventh, {8, 8, 56, n / 4}, 8};
  const oa_touched A = {&square, {16, 2 * n, 8 * n, 4}, 8};
  CHECK(oa_touched_disjoint(&x, &y) && oa_touched_disjoint(&y, &x));
  CHECK(!oa_touched_disjoint(&x, &z) && !oa_touched_disjoint(&z, &y));
  CHECK(!oa_touched_disjoint(&x, &A) && !oa_touched_disjoint(&A, &x));
}

static int lines_of(oa_extent extent, int access, oa_lines *lines) {
  static const oa_call call = {.function = "test"};
  const oa_operand operand = {.name = "C", .access = access, .extent = extent};
  *lines = (oa_lines){0};
  return oa_extent_lines(&call, &operand, 8, lines);
}

static void batches_are_lines_where_they_can_be(void) {
  const oa_extent matrix = OA_MATRIX(3, 4, 5, "m", "n", "ldc"), full = OA_MATRIX(3, 4, 3, "m", "n", "ldc");
  oa_lines lines;
  /* batches without gaps, with gaps of the leading dimension, with gaps between the matrices, and with both */
  CHECK_OK(lines_of(oa_strided(full, 6, 12, "batch", "stride"), OA_READ, &lines));
  CHECK(lines.count == 1 && lines.width == 6 * 12 * 8);
  CHECK_OK(lines_of(oa_strided(matrix, 6, 20, "batch", "stride"), OA_READ, &lines));
  CHECK(lines.count == 24 && lines.width == 24 && lines.pitch == 40);
  CHECK_OK(lines_of(oa_strided(full, 6, 15, "batch", "stride"), OA_READ, &lines));
  CHECK(lines.count == 6 && lines.width == 96 && lines.pitch == 120);
  const oa_extent loose = oa_strided(matrix, 6, 30, "batch", "stride");
  CHECK_OK(lines_of(loose, OA_READ, &lines));
  CHECK(lines.count == 1 && lines.width == (5 * 30 + 18) * 8);
  CHECK(!oa_extent_fills(&loose, lines, 8));
  /* matrices that are the same or overlap: a call may only read them */
  CHECK_OK(lines_of(oa_strided(full, 6, 0, "batch", "stride"), OA_READ, &lines));
  CHECK(lines.count == 1 && lines.width == 96);
  CHECK_OK(lines_of(oa_strided(full, 6, 5, "batch", "stride"), OA_READ, &lines));
  CHECK(lines.count == 1 && lines.width == (5 * 5 + 12) * 8);
  CHECK_FAILS(lines_of(oa_strided(full, 6, 11, "batch", "stride"), OA_READ_WRITE, &lines), OA_ERROR_ALIAS,
              "C is written, and each of its 6 parts takes 12 elements, but stride is 11");
  /* batches without matrices, and wrong numbers */
  CHECK_OK(lines_of(oa_strided(full, 0, 0, "batch", "stride"), OA_OVERWRITE, &lines));
  CHECK(lines.count == 0);
  CHECK_FAILS(lines_of(oa_strided(full, -1, 12, "batch", "stride"), OA_READ, &lines), OA_ERROR_ARGUMENT,
              "batch needs to be at least 0, got -1");
  CHECK_FAILS(lines_of(oa_strided(full, 2, -12, "batch", "stride"), OA_READ, &lines), OA_ERROR_ARGUMENT,
              "stride needs to be at least 0, got -12");
  CHECK_FAILS(lines_of(oa_strided(full, INT64_MAX, 12, "batch", "stride"), OA_READ, &lines), OA_ERROR_OVERFLOW,
              "(m=3, n=4, ldc=3, stride=12, batch=");
}

int main(void) {
  batches_are_lines_where_they_can_be();
  bounds_and_overlap_are_those_of_the_elements();
  what_lies_within_lines_is_found_element_by_element();
  large_operands_are_compared_at_once();
  return failures();
}
