/* Contents of pointers, on host and sim: assigned, filled, copied and read. */
#include "one_device.h"

#include <string.h>

const oa_library *const oa_libraries[] = {NULL};

static void update_assign_and_stage(void) {
  float x[4] = {1, 2, 3, 4}, y[4] = {0};
  const float fresh[2] = {10, 20}, two = 2;
  int64_t n = 4;
  const int64_t half = 2, step = 4;
  oa_region *region;
  oa_any *view, *staged;
  oa_array arrays[] = {vector(x, &n, OA_BY_USE), vector(y, &n, OA_BY_USE)};
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  CHECK_OK(axpy(1, arrays[0].handle, 1, arrays[1].handle, 1, 4, 0));
  CHECK(y[0] == 0);
  CHECK_OK(oa_update_from(&arrays[1], -1));
  CHECK(y[0] == 1 && y[3] == 4);
  x[0] = 100; /* the host writes x, and then sends it */
  CHECK_OK(oa_update_to(&arrays[0], -1));
  CHECK_OK(axpy(1, arrays[0].handle, 1, arrays[1].handle, 1, 4, 0));
  CHECK_OK(oa_pointer_view(arrays[1].handle, 8, 1, &half, &step, &view));
  CHECK_OK(oa_pointer_assign(view, fresh, 1, &half, &step));
  CHECK_OK(oa_stage(arrays[0].handle, &two, OA_F32, &staged));
  CHECK_OK(axpy(1, staged, 1, arrays[1].handle, 1, 1, 0));
  CHECK_OK(oa_pointer_release(staged));
  leave(region);
  CHECK(y[0] == 103 && y[1] == 4 && y[2] == 10 && y[3] == 20);
  CHECK(x[0] == 100);
  check_empty();
}

/* A host array of any strides, also backwards and with gaps, goes to a pointer without gaps, and comes back. */
static void host_arrays_of_any_strides_are_assigned_and_read(void) {
  enum { ROWS = 300, COLUMNS = 400 };
  static float big[2 * ROWS][3 * COLUMNS], back[2 * ROWS][3 * COLUMNS], x[ROWS * COLUMNS];
  for (int i = 0; i < 2 * ROWS; i++)
    for (int j = 0; j < 3 * COLUMNS; j++) big[i][j] = (float)(i * 3 * COLUMNS + j), back[i][j] = -1;
  const int64_t shape[] = {ROWS, COLUMNS}, fewer[] = {ROWS, COLUMNS - 1}, size = ROWS * COLUMNS;
  const int64_t row = sizeof big[0], strides[][2] = {{row, 4}, {2 * row, 12}, {-2 * row, 12}, {row, -8}};
  const int64_t turned[] = {4, row}, repeated[] = {0, 4};
  oa_array array = vector(x, &size, OA_BY_USE);
  oa_region *region;
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, &region));
  for (int k = 0; k < 4; k++) {
    const int first = strides[k][0] < 0 ? 2 * ROWS - 1 : 0, left = strides[k][1] < 0 ? 2 * COLUMNS : 0;
    float *from = &big[first][left], *to = &back[first][left];
    CHECK_OK(oa_pointer_assign_strided(array.handle, from, 2, shape, strides[k]));
    CHECK_OK(oa_pointer_read_strided(array.handle, to, 2, shape, strides[k]));
    for (int i = 0; i < ROWS; i++)
      for (int j = 0; j < COLUMNS; j++) {
        const int64_t at = (i * strides[k][0] + j * strides[k][1]) / 4;
        CHECK(to[at] == from[at]);
      }
  }
  CHECK_OK(oa_pointer_assign_strided(array.handle, big, 2, shape, repeated)); /* each row is the first one */
  CHECK_FAILS(oa_pointer_read_strided(array.handle, back, 2, shape, repeated), OA_ERROR_ALIAS, "the same element");
  CHECK_FAILS(oa_pointer_assign_strided(array.handle, big, 2, fewer, turned), OA_ERROR_EXTENT, "values have");
  leave(region);
  for (int i = 0; i < ROWS * COLUMNS; i++) CHECK(x[i] == (float)(i % COLUMNS));
  check_empty();
}

/* A 3 x 4 matrix in the first columns of a 3 x 6 matrix. */
static void contents_are_filled_copied_and_read(void) {
  float A[18], B[18], back[12];
  const float value = 2.5F;
  const int64_t shape[] = {3, 4}, strides[] = {24, 4}, turned[] = {4, 3}, turned_strides[] = {4, 24};
  const int64_t part[] = {2, 2}, part_strides[] = {24, 8};
  for (int i = 0; i < 18; i++) A[i] = (float)i, B[i] = -1;
  oa_array arrays[2];
  for (int i = 0; i < 2; i++)
    arrays[i] = (oa_array){
        .data = i ? B : A, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32, .direction = i ? OA_OUT : 0};
  oa_region *region;
  void *stream;
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  CHECK_OK(oa_region_stream(region, &stream));
  CHECK_OK(oa_pointer_query(arrays[0].handle, &info));
  CHECK(!info.valid && !info.written && !info.scratch);
  const oa_counters before = counters();
  CHECK_OK(oa_pointer_read(arrays[0].handle, back, 2, turned, turned_strides));
  CHECK(back[0] == 0 && back[1] == 6 && back[2] == 12 && back[3] == 1 && back[11] == 15);
  CHECK(counters().copies_up == before.copies_up && counters().copies_down == before.copies_down);
  CHECK_FAILS(oa_pointer_read(arrays[1].handle, back, 2, shape, strides), OA_ERROR_DIRECTION,
              "read before it is written");
  CHECK_FAILS(oa_pointer_fill(arrays[1].handle, &value, 2, part, part_strides), OA_ERROR_DIRECTION, "Out");
  CHECK_OK(oa_pointer_copy(arrays[1].handle, strides, arrays[0].handle, strides, 2, shape));
  CHECK_OK(oa_pointer_fill(arrays[1].handle, &value, 2, part, part_strides)); /* other elements stay unchanged */
  CHECK_OK(oa_pointer_read(arrays[1].handle, back, 2, shape, strides));
  CHECK(back[0] == value && back[1] == 1 && back[2] == value && back[4] == value && back[8] == 12);
  CHECK_OK(oa_pointer_query(arrays[1].handle, &info));
  CHECK(info.valid && info.written && !info.scratch);
  CHECK_FAILS(oa_pointer_copy(arrays[0].handle, strides, arrays[0].handle, strides, 2, shape), OA_ERROR_ALIAS,
              "source");
  leave(region);
  for (int i = 0; i < 18; i++) CHECK(B[i] == (i % 6 > 3 ? -1 : i < 12 && i % 6 % 2 == 0 ? value : (float)i));
  CHECK_FAILS(oa_region_stream(region, &stream), OA_ERROR_STALE, "has ended");
  CHECK_FAILS(oa_pointer_fill(arrays[0].handle, &value, 2, shape, strides), OA_ERROR_STALE, "has ended");
  check_empty();
}

static void wrong_contents_are_refused(void) {
  float A[18] = {0}, back[18];
  const float value = 1;
  const int64_t shape[] = {3, 4}, strides[] = {24, 4}, larger[] = {3, 5}, flat[] = {15}, step[] = {4}, zero[] = {0, 4};
  const int64_t negative[] = {-1, 4};
  oa_array array = {.data = A, .shape = shape, .strides = strides, .ndim = 2, .dtype = OA_F32};
  oa_region *region;
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, &region));
  oa_any *p = array.handle;
  CHECK_FAILS(oa_pointer_fill(NULL, &value, 2, shape, strides), OA_ERROR_NOT_HANDLE, "lend the array");
  CHECK_FAILS(oa_pointer_fill((oa_any *)A, &value, 2, shape, strides), OA_ERROR_NOT_HANDLE, "lend the array");
  CHECK_FAILS(oa_pointer_fill(p, NULL, 2, shape, strides), OA_ERROR_ARGUMENT, "got NULL");
  CHECK_FAILS(oa_pointer_fill(p, &value, 2, NULL, strides), OA_ERROR_ARGUMENT, "got NULL");
  CHECK_FAILS(oa_pointer_fill(p, &value, 2, shape, NULL), OA_ERROR_ARGUMENT, "got NULL");
  CHECK_FAILS(oa_pointer_fill(p, &value, 2, negative, strides), OA_ERROR_ARGUMENT, "do not describe an array");
  CHECK_FAILS(oa_pointer_fill(p, &value, -1, shape, strides), OA_ERROR_ARGUMENT, "do not describe an array");
  CHECK_FAILS(oa_pointer_fill(p, &value, 2, larger, strides), OA_ERROR_EXTENT, "68 bytes, the pointer has 64");
  CHECK_FAILS(oa_pointer_fill(p, &value, 1, flat, step), OA_ERROR_EXTENT, "between the lines");
  CHECK_FAILS(oa_pointer_fill(p, &value, 2, shape, zero), OA_ERROR_ALIAS, "same element");
  CHECK_FAILS(oa_pointer_read(p, NULL, 2, shape, strides), OA_ERROR_ARGUMENT, "got NULL");
  CHECK_FAILS(oa_pointer_read(NULL, back, 2, shape, strides), OA_ERROR_NOT_HANDLE, "lend the array");
  CHECK_FAILS(oa_pointer_copy(p, strides, NULL, strides, 2, shape), OA_ERROR_NOT_HANDLE, "source");
  CHECK_FAILS(oa_pointer_copy(NULL, strides, p, strides, 2, shape), OA_ERROR_NOT_HANDLE, "pointer");
  CHECK_FAILS(oa_pointer_copy(p, strides, p, NULL, 2, shape), OA_ERROR_ARGUMENT, "got NULL");
  CHECK_FAILS(oa_region_stream(region, NULL), OA_ERROR_ARGUMENT, "got NULL");
  void *stream;
  CHECK_FAILS(oa_region_stream(NULL, &stream), OA_ERROR_NOT_HANDLE, "oa_region_enter");
  leave(region);
  check_empty();
}

int main(void) {
  const char *const names[] = {"host", "sim:0", "sim:1"};
  for (int i = 0; i < 3; i++) {
    CHECK_OK(oa_device_open(names[i], &device));
    if (i == 2) CHECK_OK(oa_sim_configure(device, 0, 0, 200));
    update_assign_and_stage();
    contents_are_filled_copied_and_read();
    host_arrays_of_any_strides_are_assigned_and_read();
    wrong_contents_are_refused();
  }
  return failures();
}
