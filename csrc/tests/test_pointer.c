/* Pointers: slices, addresses that were given away, assigned values, device scalars. */
#include "device/backend.h"
#include "two_devices.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

/* -- assigning -- */

/* Promise T55. */
static void a_smaller_assignment_leaves_the_rest(void) {
  for (int direction = OA_BY_USE; direction <= OA_OUT; direction += OA_OUT - OA_BY_USE) {
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const float values[] = {9, 9, 9};
    const int64_t n = 8, three = 3;
    oa_array lent = vector(x, &n, direction);
    oa_region *region = enter(device_a, &lent, 1);
    CHECK_OK(oa_pointer_assign(lent.handle, values, 1, &three, &item));
    leave(region, OA_COMMIT);
    for (int i = 0; i < n; i++) CHECK(x[i] == (i < 3 ? 9 : (float)(i + 1)));
    check_empty();
  }
}

enum { ROWS = 6, LD = 9, COLUMNS = 7 };
static const int64_t matrix_shape[] = {ROWS, COLUMNS}, matrix_strides[] = {LD * 4, 4};

static oa_any *view(oa_any *pointer, int64_t offset, const int64_t *shape, const int64_t *strides) {
  oa_any *made_pointer = NULL;
  CHECK_OK(oa_pointer_view(pointer, offset, 2, shape, strides, &made_pointer));
  return made_pointer;
}

/* Promise T55. */
static void an_irregular_slice_of_a_matrix_with_gaps_is_assigned(void) {
  float x[ROWS * LD], values[3 * 4];
  const int64_t shape[] = {3, 4}, strides[] = {2 * LD * 4, 8};
  for (int i = 0; i < ROWS * LD; i++) x[i] = (float)i;
  for (int i = 0; i < 12; i++) values[i] = (float)(100 + i);
  oa_array lent = {.data = x, .shape = matrix_shape, .strides = matrix_strides, .ndim = 2, .dtype = OA_F32};
  oa_region *region = enter(device_a, &lent, 1);
  oa_any *slice = view(lent.handle, 0, shape, strides);
  CHECK_OK(oa_pointer_assign(slice, values, 2, shape, strides));
  leave(region, OA_COMMIT);
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < LD; c++) {
      const bool assigned = r % 2 == 0 && c % 2 == 0 && c < COLUMNS;
      CHECK(x[r * LD + c] == (assigned ? values[r / 2 * 4 + c / 2] : (float)(r * LD + c)));
    }
  check_empty();
}

struct assigning {
  oa_any *pointer;
  const int64_t *shape, *strides;
  float value;
};
static void *run_assign(void *data) {
  const struct assigning *a = data;
  float values[12];
  for (int i = 0; i < 12; i++) values[i] = a->value;
  for (int i = 0; i < 20; i++) CHECK_OK(oa_pointer_assign(a->pointer, values, 2, a->shape, a->strides));
  return NULL;
}

/* Promise T55. */
static void threads_assign_to_disjoint_irregular_slices(void) {
  float x[ROWS * LD];
  const int64_t shape[] = {3, 3}, strides[] = {2 * LD * 4, 8};
  for (int i = 0; i < ROWS * LD; i++) x[i] = -1;
  oa_array lent = {.data = x, .shape = matrix_shape, .strides = matrix_strides, .ndim = 2, .dtype = OA_F32};
  oa_region *region = enter(device_a, &lent, 1);
  configure(device_a, 0, 100);
  struct assigning a[4];
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) {
    a[i] = (struct assigning){view(lent.handle, (i / 2 * LD + i % 2) * 4, shape, strides), shape, strides, (float)i};
    CHECK(pthread_create(&threads[i], NULL, run_assign, &a[i]) == 0);
  }
  for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  leave(region, OA_COMMIT);
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < LD; c++) CHECK(x[r * LD + c] == (c < 6 ? (float)(r % 2 * 2 + c % 2) : -1));
  check_empty();
}

/* -- slices and device scalars -- */

/* Promise T57. */
static void a_regions_own_pointer_is_not_destroyed_before_it(void) {
  float x[4] = {1, 1, 1, 1}, z[4] = {2, 2, 2, 2};
  const int64_t n = 4;
  oa_array outer = vector(x, &n, OA_BY_USE), inner = outer, more = vector(z, &n, OA_BY_USE);
  oa_region *a = enter(device_a, &outer, 1), *b = enter(device_a, &inner, 1);
  oa_any *slice;
  CHECK_OK(oa_pointer_view(inner.handle, 0, 1, &n, &item, &slice));
  CHECK_FAILS(oa_pointer_release(inner.handle), OA_ERROR_ARGUMENT, "oa_pointer_release");
  oa_region *c = enter(device_a, &more, 1); /* would take the slot of a destroyed pointer */
  CHECK_OK(add(slice, n, 5));
  leave(b, OA_DISCARD);
  CHECK_FAILS(oa_region_finish(a, OA_COMMIT, NULL) ? OA_ERROR_INVALID : oa_region_wait(a), OA_ERROR_INVALID,
              "undefined");
  leave(c, OA_COMMIT);
  CHECK(x[0] == 1 && z[0] == 2);
  check_empty();
}

/* Promise T57. */
static void a_slice_destroyed_within_a_call_lives_until_the_call_ends(void) {
  float x[4] = {1, 1, 1, 1}, z[4] = {2, 2, 2, 2};
  const int64_t n = 4;
  oa_array lent = vector(x, &n, OA_BY_USE), more = vector(z, &n, OA_BY_USE);
  oa_region *a = enter(device_a, &lent, 1), *b = enter(device_a, &more, 1);
  oa_any *slice, *next;
  CHECK_OK(oa_pointer_view(lent.handle, 0, 1, &n, &item, &slice));
  oa_operand p = operand(slice, OA_READ_WRITE, n, 1);
  oa_call call = {.function = "test.writes", .operands = &p, .count = 1};
  CHECK_OK(oa_begin(&call));
  CHECK_OK(oa_pointer_release(slice));
  CHECK_OK(oa_pointer_release(slice)); /* a second release does nothing */
  CHECK(add(slice, n, 1) == OA_ERROR_STALE);
  CHECK_OK(oa_pointer_view(more.handle, 0, 1, &n, &item, &next));
  struct change c = {p.address, n, 1, 1, 5};
  CHECK_OK(oa_submit(&call, run_change, &c, sizeof c));
  leave(b, OA_COMMIT);
  leave(a, OA_COMMIT);
  CHECK(x[0] == 6 && z[0] == 2);
  check_empty();
}

/* Promise T57. */
static void a_device_scalar_lives_as_long_as_its_slices(void) {
  float x[4] = {1, 1, 1, 1}, value = 3, element = -1;
  const int64_t n = 4;
  oa_array lent = vector(x, &n, OA_BY_USE);
  oa_region *region = enter(device_a, &lent, 1);
  oa_any *staged = NULL, *slice = NULL;
  CHECK_OK(oa_stage(lent.handle, &value, OA_F32, &staged));
  CHECK_OK(oa_pointer_view(staged, 0, 0, NULL, NULL, &slice));
  CHECK_OK(oa_pointer_release(slice));
  CHECK_OK(peek(staged, &element));
  CHECK(element == 3);
  CHECK_OK(oa_pointer_view(staged, 0, 0, NULL, NULL, &slice));
  CHECK_OK(oa_pointer_release(staged));
  CHECK_OK(peek(slice, &element));
  CHECK(element == 3);
  CHECK_OK(oa_pointer_release(slice));
  CHECK_OK(oa_stage(lent.handle, &value, OA_F32, &staged));
  value = 4;
  CHECK_OK(oa_pointer_assign(staged, &value, 0, NULL, NULL));
  CHECK_OK(peek(staged, &element));
  CHECK(element == 4);
  leave(region, OA_COMMIT);
  check_empty();
}

/* -- addresses -- */

/* Promise T61. */
static void an_address_says_nothing_of_an_unwritten_out_beside_it(void) {
  enum { LD = 8 };
  float x[4 * LD], element = -1;
  const int64_t shape[] = {4, 4}, strides[] = {LD * 4, 4};
  for (int i = 0; i < 4 * LD; i++) x[i] = (float)i;
  oa_array panels[] = {
      {.data = x, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32},
      {.data = x + 4, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32, .direction = OA_OUT},
      {.data = x + 4, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32, .direction = OA_IN}};
  uint64_t address;
  oa_region *region = enter(device_a, panels, 3);
  CHECK_OK(oa_address(panels[0].handle, &address));
  CHECK_OK(peek(panels[2].handle, &element)); /* the element's bytes came up for panels[2], which is lent In */
  CHECK_FAILS(peek(panels[1].handle, &element), OA_ERROR_DIRECTION, "would be read before it is written");
  leave(region, OA_COMMIT);
  check_empty();
}

/* Promise T61. */
static void an_address_that_could_not_be_taken_leaves_the_array_unwritten(void) {
  for (int k = 1; k < 8; k++) {
    float y[6] = {7, 7, 7, 7, 7, 7};
    const int64_t n = 6;
    uint64_t address;
    int warnings = 0;
    oa_array out = vector(y, &n, OA_OUT);
    oa_region *region = enter(device_a, &out, 1);
    configure(device_a, k, 0);
    const int status = oa_address(out.handle, &address);
    configure(device_a, 0, 0);
    CHECK_OK(oa_region_finish(region, OA_COMMIT, &warnings));
    CHECK_OK(oa_region_wait(region));
    CHECK(warnings == (status ? 1 : 0));
    CHECK(y[0] == (status ? 7 : 0) && y[5] == y[0]);
    check_empty();
    if (!status) break;
  }
}

static void the_address_of_an_out_keeps_what_an_overlapping_argument_brought_up(void) {
  for (int used = 0; used < 2; used++) {
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, element = -1;
    const int64_t n = 8, part = 4;
    uint64_t address;
    oa_array arrays[] = {vector(x, &part, OA_OUT), vector(x, &n, OA_INOUT)};
    oa_region *region = enter(device_a, arrays, 2);
    if (used) CHECK_OK(peek(arrays[1].handle, &element));
    CHECK_OK(oa_address(arrays[0].handle, &address));
    CHECK_OK(peek(arrays[1].handle, &element));
    CHECK(element == 1);
    leave(region, OA_COMMIT);
    for (int i = 0; i < n; i++) CHECK(x[i] == (float)(i + 1));
    check_empty();
  }
}

static void an_out_inside_a_larger_array_is_written_by_what_fills_it(void) {
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  const int64_t n = 8, part = 4;
  oa_array arrays[] = {vector(x, &part, OA_OUT), vector(x, &n, OA_INOUT)};
  oa_region *region = enter(device_a, arrays, 2);
  CHECK_OK(set(arrays[0].handle, part, 9));
  leave(region, OA_COMMIT);
  for (int i = 0; i < n; i++) CHECK(x[i] == (i < 4 ? 9 : (float)(i + 1)));
  check_empty();
}

static void write_at(uint64_t address, float value) { *(float *)reachable(address) = value; }

static void an_address_that_was_given_away_writes_its_own_array_only(void) {
  float x[6] = {1, 1, 1, 1, 1, 1}, element = 0;
  const int64_t shape[] = {3, 1}, strides[] = {8, 4};
  oa_array even = {.data = x, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32}, odd = even;
  odd.data = x + 1;
  oa_array both[] = {even, odd};
  uint64_t address = 0;
  oa_region *region = enter(device_a, both, 2);
  CHECK_OK(peek(both[1].handle, &element));
  CHECK_OK(oa_address(both[0].handle, &address));
  write_at(address, 7);
  x[1] = 9; /* the host's own bytes: the device wrote nothing of this array */
  leave(region, OA_COMMIT);
  CHECK(x[0] == 7 && x[1] == 9);
  check_empty();
}

static void an_update_brings_down_what_was_written_by_address_in_a_part(void) {
  float x[6] = {1, 1, 1, 1, 1, 1};
  const int64_t n = 6, two = 2;
  oa_array both[] = {vector(x, &n, OA_IN), vector(x + 2, &two, OA_INOUT)}, part = vector(x + 2, &two, OA_BY_USE);
  uint64_t address = 0;
  oa_region *region = enter(device_a, both, 2);
  CHECK_OK(oa_address(both[1].handle, &address));
  write_at(address, 7);
  CHECK_OK(oa_update_from(&part, -1));
  CHECK(x[2] == 7);
  leave(region, OA_COMMIT);
  CHECK(x[2] == 7);
  check_empty();
}

static void an_array_whose_address_may_be_written_is_on_no_other_device(void) {
  float x[4] = {1, 1, 1, 1};
  const int64_t n = 4;
  uint64_t address = 0;
  oa_array lent = vector(x, &n, OA_BY_USE), again = lent, read[] = {vector(x, &n, OA_IN)}, same[] = {read[0]};
  oa_region *a = enter(device_a, &lent, 1), *b = enter(device_b, &again, 1), *refused = NULL;
  CHECK_FAILS(oa_address(lent.handle, &address), OA_ERROR_DIRECTION, "is present on");
  leave(b, OA_COMMIT);
  CHECK_OK(oa_address(lent.handle, &address));
  write_at(address, 7);
  CHECK_FAILS(oa_region_enter(device_b, NULL, read, 1, &refused), OA_ERROR_DIRECTION, "is present on another device");
  leave(a, OA_COMMIT);
  CHECK(x[0] == 7);
  a = enter(device_a, read, 1),
  b = enter(device_b, same, 1); /* neither array may be written, so both addresses can be taken */
  CHECK_OK(oa_address(read[0].handle, &address));
  CHECK_OK(oa_address(same[0].handle, &address));
  leave(a, OA_COMMIT);
  leave(b, OA_COMMIT);
  check_empty();
}

/* -- layouts -- */

static oa_pointer_layout layout_of(const oa_any *pointer) {
  oa_pointer_layout layout = OA_SIZED(oa_pointer_layout);
  CHECK_OK(oa_pointer_get_layout(pointer, &layout));
  return layout;
}

static oa_any *view_of(const oa_any *pointer, int64_t offset, int ndim, const int64_t *shape, const int64_t *strides) {
  oa_any *view = NULL;
  CHECK_OK(oa_pointer_view(pointer, offset, ndim, shape, strides, &view));
  return view;
}

static void a_pointer_tells_how_its_array_lies(void) {
  enum { M = 3, N = 5, LD = 7 };
  float memory[N * LD] = {0}, spaced[4 * M * 2] = {0};
  const int64_t shape[] = {M, N}, by_rows[] = {4 * LD, 4}, by_columns[] = {4, 4 * M}, square[] = {M, M},
                flipped[] = {4, 4 * LD};
  const int64_t odd[] = {4, M}, spread[] = {4 * 2 * M, 8}, vector_strides[] = {4 * LD}, uneven[] = {6};
  const int64_t many[] = {1, 3, 1, 2, 2}, many_strides[] = {0, 4 * LD, 0, 8, -4};
  oa_array lent[] = {{.data = memory, .shape = shape, .strides = by_rows, .ndim = 2, .dtype = OA_F32},
                     {.data = spaced, .shape = odd, .strides = spread, .ndim = 2, .dtype = OA_F32},
                     {.shape = shape, .ndim = 2, .dtype = OA_F32, .direction = OA_SCRATCH},
                     {.shape = shape, .strides = by_columns, .ndim = 2, .dtype = OA_F32, .direction = OA_SCRATCH}};
  oa_region *region = enter(device_a, lent, 4);
  oa_pointer_layout l = layout_of(lent[0].handle);
  CHECK(l.dtype == OA_F32 && l.ndim == 2 && l.shape[0] == M && l.shape[1] == N && l.strides[0] == 4 * LD);
  CHECK(l.strides[1] == 4 && l.rows == M && l.columns == N && l.ld == 0 && l.ld_by_rows == LD && l.inc == 0);
  CHECK(l.shape[2] == 0 && l.shape[7] == 0);
  oa_any *transposed = view_of(lent[0].handle, 0, 2, square, flipped); /* a square: only the layout shows the order */
  l = layout_of(transposed);
  CHECK(l.rows == M && l.columns == M && l.ld == LD && l.ld_by_rows == 0);
  l = layout_of(view_of(transposed, 0, 1, shape, vector_strides));
  CHECK(l.ndim == 1 && l.rows == M && l.columns == 1 && l.inc == LD && l.ld == 0);
  l = layout_of(view_of(transposed, 0, 1, shape, uneven));
  CHECK(l.ndim == 1 && l.rows == M && l.inc == 0 && l.strides[0] == 6);
  l = layout_of(view_of(lent[0].handle, 4, 5, many, many_strides));
  CHECK(l.ndim == 5 && l.shape[1] == 3 && l.strides[1] == 4 * LD && l.strides[4] == -4 && l.rows == 0 && l.ld == 0);
  l = layout_of(lent[1].handle);
  if (lent[1].packed) /* the device has the array in C order with no gaps */
    CHECK(l.strides[0] == 4 * M && l.strides[1] == 4 && l.ld_by_rows == M);
  else
    CHECK(l.strides[0] == spread[0] && l.strides[1] == 8 && l.ld_by_rows == 0 && l.ld == 0);
  l = layout_of(lent[2].handle);
  CHECK(l.strides[0] == 4 * N && l.strides[1] == 4 && l.ld_by_rows == N);
  l = layout_of(lent[3].handle);
  CHECK(l.strides[0] == 4 && l.strides[1] == 4 * M && l.ld == M && l.ld_by_rows == 0);
  leave(region, OA_COMMIT);
  oa_pointer_layout stale = OA_SIZED(oa_pointer_layout);
  CHECK_FAILS(oa_pointer_get_layout(transposed, &stale), OA_ERROR_STALE, "oa_pointer_get_layout: ");
  check_empty();
}

int main(void) {
  for (int i = 0; open_pair(i); i++) {
    an_address_says_nothing_of_an_unwritten_out_beside_it();
    if (i) an_address_that_could_not_be_taken_leaves_the_array_unwritten();
    the_address_of_an_out_keeps_what_an_overlapping_argument_brought_up();
    an_out_inside_a_larger_array_is_written_by_what_fills_it();
    a_pointer_tells_how_its_array_lies();
    a_smaller_assignment_leaves_the_rest();
    an_irregular_slice_of_a_matrix_with_gaps_is_assigned();
    threads_assign_to_disjoint_irregular_slices();
    a_regions_own_pointer_is_not_destroyed_before_it();
    if (i) a_slice_destroyed_within_a_call_lives_until_the_call_ends();
    an_address_that_was_given_away_writes_its_own_array_only();
    an_update_brings_down_what_was_written_by_address_in_a_part();
    an_array_whose_address_may_be_written_is_on_no_other_device();
    if (i) a_device_scalar_lives_as_long_as_its_slices();
  }
  return failures();
}
