/* Parts: sets of bytes against a table of flags, one a byte. */
#include "base/parts.h"
#include "check.h"

#include <stdlib.h>

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

/* Counts the bytes of the lines that the table has. */
static int64_t count_set(const unsigned char *table, oa_lines lines) {
  int64_t set = 0;
  for (int64_t i = 0; i < lines.count; i++)
    for (int64_t b = 0; b < lines.width; b++) set += table[lines.start + i * lines.pitch + b];
  return set;
}

static void check_set(const oa_parts *parts, const unsigned char *table) {
  int64_t at = 0, bytes = 0, pieces = 0, all = 0;
  for (oa_lines lines; (lines = oa_parts_next(parts, &at)).count; pieces++) {
    CHECK(count_set(table, lines) == oa_lines_bytes(lines));
    bytes += oa_lines_bytes(lines);
  }
  for (int i = 0; i < MOST; i++) all += table[i];
  CHECK(bytes == all);
  CHECK(pieces == oa_parts_pieces(parts));
}

static void test_random_sets(void) {
  for (int s = 0; s < SETS; s++) {
    oa_parts *parts = NULL;
    unsigned char table[MOST] = {0};
    for (int step = 0; step < STEPS; step++) {
      const oa_lines lines = make_lines(), asked = make_lines();
      CHECK(oa_parts_add(&parts, lines));
      for (int64_t i = 0; i < lines.count; i++) memset(table + lines.start + i * lines.pitch, 1, (size_t)lines.width);
      CHECK(oa_parts_contain(parts, lines));
      CHECK(oa_parts_contain(parts, asked) == (count_set(table, asked) == oa_lines_bytes(asked)));
      check_set(parts, table);
    }
    oa_parts_clear(&parts);
    CHECK(!parts);
  }
}

static void test_rows_of_a_matrix_by_columns_become_one_line(void) {
  enum { ROWS = 12, COLUMNS = 7, ITEM = 4 };
  oa_parts *parts = NULL;
  for (int64_t row = ROWS - 1; row >= 0; row--) { /* each row is lines of one element, a column apart */
    CHECK(oa_parts_add(&parts, (oa_lines){row * ITEM, ITEM, ROWS * ITEM, COLUMNS}));
    CHECK(oa_parts_pieces(parts) == 1);
  }
  int64_t at = 0;
  const oa_lines all = oa_parts_next(parts, &at);
  CHECK(all.start == 0 && all.count == 1 && all.width == ROWS * COLUMNS * ITEM);
  oa_parts_clear(&parts);
}

static void test_the_empty_set(void) {
  oa_parts *parts = NULL;
  CHECK(oa_parts_add(&parts, (oa_lines){8, 0, 4, 3}) && !parts);
  CHECK(oa_parts_contain(parts, (oa_lines){8, 4, 4, 0}));
  CHECK(!oa_parts_contain(parts, (oa_lines){8, 4, 4, 1}));
  CHECK(oa_parts_pieces(parts) == 0);
  CHECK(!oa_parts_add(&parts, (oa_lines){0, 1, 2, INT64_MAX / 2}) && !parts);
}

int main(void) {
  test_random_sets();
  test_rows_of_a_matrix_by_columns_become_one_line();
  test_the_empty_set();
  return failures();
}
