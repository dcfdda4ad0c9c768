/* Compares parts, which are sets of bytes, with a table that has a flag for each byte. */
#include "check.h"

#include <stdlib.h>
#include <string.h>

/* allocated: in bytes; left: the number of allocations that succeed before an allocation fails; -1: all succeed. */
static int64_t allocated, left = -1;

static void *count_allocation(size_t nbytes) {
  if (left == 0) return NULL;
  left -= left > 0;
  allocated += (int64_t)nbytes;
  return malloc(nbytes);
}

/* Intervals are copied only to newly allocated memory, so its bytes show the number of copied intervals. */
#define malloc count_allocation
#include "base/parts.c" /* NOLINT: compiled here, so that its allocations are counted */
#undef malloc

enum { MOST = 256, STEPS = 60, SETS = 200 };

static uint32_t state = 1;

static int64_t random_below(int64_t limit) {
  state = state * 1664525 + 1013904223;
  return (int64_t)(state >> 8) % limit;
}

/* Makes lines below MOST, some of them touching, some without a byte. */
static oa_lines make_lines(void) {
  oa_lines lines = {.width = random_below(9), .count = random_below(6)};
  lines.pitch = lines.width + random_below(3) * 4;
  lines.start = random_below(MOST - oa_lines_span(lines));
  return lines;
}

/* Returns how many bytes of the lines are in the table. */
static int64_t count_set(const unsigned char *table, oa_lines lines) {
  int64_t set = 0;
  for (int64_t i = 0; i < lines.count; i++)
    for (int64_t b = 0; b < lines.width; b++) set += table[lines.start + i * lines.pitch + b];
  return set;
}

/* Checks the lines of the set, none of which is empty. Returns the number of lines. */
static int64_t check_lines(const oa_parts *parts, const unsigned char *table) {
  oa_parts_place place = {.low = 0};
  int64_t bytes = 0, pieces = 0, all = 0;
  for (oa_lines lines; (lines = oa_parts_next(parts, &place)).count; pieces++) {
    CHECK(count_set(table, lines) == oa_lines_bytes(lines));
    CHECK(lines.width && (lines.count > 1 || lines.pitch == lines.width));
    bytes += oa_lines_bytes(lines);
  }
  CHECK(oa_parts_next(parts, &place).count == 0);
  for (int i = 0; i < MOST; i++) all += table[i];
  CHECK(bytes == all);
  return pieces;
}

/* Checks that the missing bytes of the set are the bytes that the table lacks, in one line and in many lines. */
static void check_missing(oa_parts *parts, const unsigned char *table) {
  enum { WIDTH = 16 };
  const oa_lines ways[] = {{0, MOST, MOST, 1}, {0, WIDTH, WIDTH, MOST / WIDTH}};
  unsigned char lacks[MOST];
  for (int i = 0; i < MOST; i++) lacks[i] = !table[i];
  for (int way = 0; way < 2 && parts; way++) {
    oa_parts *rest = NULL;
    CHECK(oa_parts_missing(parts, ways[way], &rest));
    check_lines(rest, lacks);
    oa_parts_clear(&rest);
  }
}

/* Checks that the missing bytes of any lines are the bytes that the table lacks, and that the set and these bytes
 * together have all bytes of the lines. */
static void check_missing_of_some(oa_parts *parts, const unsigned char *table) {
  const oa_lines lines = make_lines();
  unsigned char lacks[MOST] = {0}, both[MOST];
  memcpy(both, table, MOST);
  for (int64_t i = 0; i < lines.count; i++)
    for (int64_t b = lines.start + i * lines.pitch; b < lines.start + i * lines.pitch + lines.width; b++) {
      lacks[b] = !table[b];
      both[b] = 1;
    }
  oa_parts *rest = NULL, *sum = NULL;
  CHECK(oa_parts_missing(parts, lines, &rest));
  check_lines(rest, lacks);
  CHECK(oa_parts_add_all(&sum, parts) && oa_parts_add_all(&sum, rest));
  check_lines(sum, both);
  if (sum) oa_parts_pieces(sum);
  CHECK(oa_parts_bytes(sum) == count_set(both, (oa_lines){0, MOST, MOST, 1}));
  oa_parts_clear(&rest);
  oa_parts_clear(&sum);
}

/* Checks the lines that have near bytes of the set. Returns the number of lines. */
static int64_t check_near(const oa_parts *parts, const unsigned char *table) {
  const oa_lines bounds = {0, MOST, MOST, 1};
  int64_t from = INT64_MIN, before = 0, number = 0, all = 0, met = 0;
  for (oa_lines lines; (lines = oa_parts_next_near(parts, bounds, &from)).count; number++, before = from) {
    int64_t kept = 0;
    CHECK(lines.start >= 0 && lines.start + oa_lines_span(lines) <= MOST && lines.width <= lines.pitch);
    for (int64_t at = before; at < from; at++) kept += table[at];
    for (int64_t i = 0; i < lines.count; i++)
      for (int64_t b = lines.start + i * lines.pitch; b < lines.start + i * lines.pitch + lines.width; b++)
        met += b >= before && b < from && table[b];
    CHECK(oa_lines_bytes(lines) - kept <= kept / 8);
    all += kept;
  }
  CHECK(met == all && all == count_set(table, bounds));
  return number;
}

/* Adds lines and queries the set. In every second set some allocations fail: the lines are then added or not, and no
 * byte is lost. */
static void test_random_sets(void) {
  const oa_lines all = {0, MOST, MOST, 1};
  int refused = 0;
  for (int s = 0; s < SETS; s++) {
    oa_parts *parts = NULL;
    unsigned char table[MOST] = {0};
    for (int step = 0; step < STEPS; step++) {
      const oa_lines lines = make_lines(), asked = make_lines();
      left = s % 2 ? random_below(4) : -1;
      const bool added = oa_parts_add(&parts, lines);
      CHECK(added || s % 2);
      refused += !added;
      for (int64_t i = 0; added && i < lines.count; i++)
        memset(table + lines.start + i * lines.pitch, 1, (size_t)lines.width);
      CHECK(oa_parts_contain(parts, lines) == (count_set(table, lines) == oa_lines_bytes(lines)));
      CHECK(oa_parts_contain(parts, asked) == (count_set(table, asked) == oa_lines_bytes(asked)));
      const int64_t pieces = check_lines(parts, table);
      if (random_below(8) == 0) CHECK(oa_parts_pieces(parts) == pieces && check_lines(parts, table) == pieces);
      left = -1;
      if (random_below(8) == 0) check_near(parts, table);
      if (random_below(8) == 0) check_missing(parts, table);
      if (random_below(4) == 0) check_missing_of_some(parts, table);
      if (random_below(4) == 0) CHECK(oa_parts_are_all(parts, all) == (count_set(table, all) == MOST));
    }
    oa_parts_clear(&parts);
    CHECK(!parts);
  }
  left = -1;
  CHECK(refused > 0);
}

static void test_rows_of_a_matrix_by_columns_become_one_line(void) {
  enum { ROWS = 12, COLUMNS = 7, ITEM = 4 };
  oa_parts *parts = NULL;
  for (int64_t row = ROWS - 1; row >= 0; row--) { /* each row is lines of one element, a column apart */
    CHECK(oa_parts_add(&parts, (oa_lines){row * ITEM, ITEM, ROWS * ITEM, COLUMNS}));
    CHECK(oa_parts_pieces(parts) == 1);
  }
  oa_parts_place place = {.low = 0};
  const oa_lines all = oa_parts_next(parts, &place);
  CHECK(all.start == 0 && all.count == 1 && all.width == ROWS * COLUMNS * ITEM);
  oa_parts_clear(&parts);
}

/* Adds every second row of a matrix by columns, then the other rows, both in bit-reversed order. Returns the number of
 * intervals that memory is allocated for. */
static int64_t add_rows(int64_t rows, int64_t columns) {
  const oa_lines all = {0, rows * columns * 4, rows * columns * 4, 1};
  oa_parts *parts = NULL;
  allocated = 0;
  for (int64_t odd = 0; odd < 2; odd++)
    for (int64_t i = 0; i < rows / 2; i++) {
      int64_t row = 0;
      for (int64_t bit = 1; bit < rows / 2; bit *= 2) row = 2 * row + (i / bit) % 2;
      CHECK(!oa_parts_are_all(parts, all));
      CHECK(oa_parts_add(&parts, (oa_lines){(2 * row + odd) * 4, 4, rows * 4, columns}));
    }
  CHECK(oa_parts_are_all(parts, all) && oa_parts_pieces(parts) == 1);
  oa_parts_clear(&parts);
  return allocated / (int64_t)sizeof(interval);
}

static void test_many_intervals_are_copied_a_few_times_each(void) {
  CHECK(add_rows(64, 50) <= 64 * 50 * 8);
  CHECK(add_rows(1024, 50) <= 1024 * 50 * 12);
}

static void test_sets_without_memory_to_merge_grow_until_they_are_full(void) {
  const oa_lines last = {8 * OA_PARTS_RUNS, 4, 4, 1};
  oa_parts *parts = NULL;
  for (int64_t i = 0; i < OA_PARTS_RUNS; i++) {
    left = parts ? 1 : 2; /* number of allocations: for the added run, and at first also for the set */
    CHECK(oa_parts_add(&parts, (oa_lines){8 * i, 4, 4, 1}));
  }
  CHECK(parts->count == OA_PARTS_RUNS);
  for (int64_t merges = 0; merges < 2; merges++) { /* the number of allocations that succeed */
    left = merges;
    CHECK(!oa_parts_add(&parts, last) && !oa_parts_contain(parts, last));
    CHECK(oa_parts_contain(parts, (oa_lines){0, 4, 8, OA_PARTS_RUNS}));
    left = 0;
    CHECK(oa_parts_pieces(parts) == 1 && parts->count == OA_PARTS_RUNS - merges);
  }
  left = -1;
  CHECK(oa_parts_add(&parts, last) && oa_parts_contain(parts, (oa_lines){0, 4, 8, OA_PARTS_RUNS + 1}));
  CHECK(oa_parts_pieces(parts) == 1 && parts->count == 1);
  oa_parts_clear(&parts);
}

static void test_the_empty_set(void) {
  oa_parts *parts = NULL;
  CHECK(oa_parts_add(&parts, (oa_lines){8, 0, 4, 3}) && !parts);
  CHECK(oa_parts_contain(parts, (oa_lines){8, 4, 4, 0}));
  CHECK(!oa_parts_contain(parts, (oa_lines){8, 4, 4, 1}));
  CHECK(oa_parts_pieces(parts) == 0);
  CHECK(oa_parts_are_all(parts, (oa_lines){8, 4, 4, 0}) && !oa_parts_are_all(parts, (oa_lines){8, 4, 4, 1}));
  CHECK(!oa_parts_add(&parts, (oa_lines){0, 1, 2, INT64_MAX / 2}) && !parts);
}

static void test_what_is_missing_of_lines_with_gaps(void) {
  const oa_lines all = {8, 16, 24, 3};
  oa_parts *parts = NULL, *rest = NULL;
  CHECK(oa_parts_add(&parts, (oa_lines){8, 4, 24, 2}) && oa_parts_add(&parts, (oa_lines){20, 4, 4, 1}));
  left = 1;
  CHECK(!oa_parts_missing(parts, all, &rest) && !rest);
  left = -1;
  CHECK(oa_parts_missing(parts, all, &rest));
  const oa_lines expected[] = {{12, 8, 8, 1}, {36, 12, 12, 1}, {56, 16, 16, 1}};
  oa_parts_place place = {.low = 0};
  for (int i = 0; i < 3; i++) {
    const oa_lines lines = oa_parts_next(rest, &place);
    CHECK(lines.start == expected[i].start && lines.width == expected[i].width && lines.count == 1);
  }
  CHECK(oa_parts_next(rest, &place).count == 0);
  oa_parts_clear(&rest);
  oa_parts_clear(&parts);
}

/* The lines of a triangle are rectangles, each with one column less than the rectangle before it. */
static void test_near_columns_of_a_triangle_are_few_lines(void) {
  enum { N = 2000, ITEM = 4 };
  const oa_lines all = {0, N * ITEM * (int64_t)N, N * ITEM * (int64_t)N, 1};
  for (int upper = 0; upper < 2; upper++) {
    oa_parts *parts = NULL;
    int64_t number = 0, kept = 0, sent = 0, from = INT64_MIN;
    for (int64_t j = 0; j < N; j++) {
      const int64_t width = (upper ? j + 1 : N - j) * ITEM;
      CHECK(oa_parts_add(&parts, (oa_lines){(j * N + (upper ? 0 : j)) * ITEM, width, width, 1}));
      kept += width;
    }
    for (oa_lines lines; (lines = oa_parts_next_near(parts, all, &from)).count; number++) {
      CHECK(lines.start >= 0 && lines.start + oa_lines_span(lines) <= all.width);
      sent += oa_lines_bytes(lines);
    }
    CHECK(number < 50 && sent >= kept && sent - kept <= kept / 8);
    oa_parts_clear(&parts);
  }
}

static void test_many_short_lines_are_fine(void) {
  oa_parts *parts = NULL;
  CHECK(!oa_parts_are_fine(NULL, (oa_lines){0, 4, 8, 1024}) && oa_parts_are_fine(NULL, (oa_lines){0, 4, 8, 1025}));
  CHECK(!oa_parts_are_fine(NULL, (oa_lines){0, 64, 128, 4000}) && !oa_parts_are_fine(NULL, (oa_lines){0, 4, 4, 4000}));
  CHECK(oa_parts_add(&parts, (oa_lines){0, 4, 8, 1000}));
  CHECK(!oa_parts_are_fine(parts, (oa_lines){4, 4, 8, 24}) && oa_parts_are_fine(parts, (oa_lines){4, 4, 8, 25}));
  CHECK(!oa_parts_are_fine(parts, (oa_lines){8000, 1 << 20, 1 << 20, 1}));
  oa_parts_clear(&parts);
}

int main(void) {
  test_random_sets();
  test_what_is_missing_of_lines_with_gaps();
  test_near_columns_of_a_triangle_are_few_lines();
  test_many_short_lines_are_fine();
  test_rows_of_a_matrix_by_columns_become_one_line();
  test_many_intervals_are_copied_a_few_times_each();
  test_sets_without_memory_to_merge_grow_until_they_are_full();
  test_the_empty_set();
  return failures();
}
