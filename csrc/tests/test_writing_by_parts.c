/* An array that calls write by parts, on host and sim, also as every backend call fails in turn. */
#include "one_device.h"

#include <string.h>

const oa_library *const oa_libraries[] = {NULL};

enum { N = 8 };
static int64_t length = N;
static const int64_t half = N / 2, item = sizeof(float);

/* Returns a view of four elements of a pointer. */
static oa_any *half_of(const oa_any *pointer, int64_t first) {
  oa_any *view = NULL;
  CHECK_OK(oa_pointer_view(pointer, first * item, 1, &half, &item, &view));
  return view;
}

static void a_part_comes_down_and_the_rest_stays(void) {
  float x[N] = {1, 1, 1, 1, 1, 1, 1, 1}, y[N] = {-1, -1, -1, -1, -1, -1, -1, -1};
  oa_array arrays[] = {vector(x, &length, OA_IN), vector(y, &length, OA_OUT)};
  oa_array first = vector(y, (int64_t *)&half, OA_BY_USE);
  int warnings = 0;
  uint64_t address;
  oa_region *region;
  const int64_t before = counters().bytes_down;
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  oa_any *dx = arrays[0].handle, *dy = arrays[1].handle, *last = half_of(dy, half);
  CHECK_OK(axpy(3, dx, 1, dy, 2, 2, 1)); /* elements 0 and 2 */
  CHECK_FAILS(axpy(3, dx, 1, dy, 1, 2, 0), OA_ERROR_DIRECTION, "y would be read before it is written");
  CHECK_FAILS(axpy(3, dy, 1, last, 1, 4, 1), OA_ERROR_DIRECTION, "x would be read before it is written");
  CHECK_FAILS(oa_address(dy, &address), OA_ERROR_DIRECTION, "calls wrote only a part of it");
  CHECK_FAILS(oa_update_from(&arrays[1], -1), OA_ERROR_DIRECTION, "calls wrote only a part of it");
  CHECK_OK(axpy(2, dy, 2, dy, 2, 0, 0)); /* a call without elements */
  CHECK_OK(axpy(1, dx, 1, dy, 2, 2, 0));
  CHECK(y[0] == -1);
  CHECK_OK(axpy(5, dx, 1, dy, 1, 4, 1));
  CHECK_OK(oa_update_from(&first, -1));
  CHECK(y[0] == 5 && y[3] == 5 && y[4] == -1);
  CHECK_OK(axpy(7, dx, 1, dy, 1, 1, 1));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, &warnings));
  CHECK_OK(oa_region_wait(region));
  CHECK(warnings == 1 && strstr(oa_last_warning(), "only a part was written"));
  CHECK(y[0] == 7 && y[1] == 5 && y[3] == 5 && y[4] == -1 && y[N - 1] == -1);
  CHECK(counters().bytes_down - before <= 2 * 4 * item);
  check_empty();
}

/* With OA_BY_USE, nothing goes up until a call needs unwritten bytes. */
static void an_array_by_use_goes_up_in_part(void) {
  float x[N] = {1, 1, 1, 1, 1, 1, 1, 1}, y[N] = {-1, -1, -1, -1, -1, -1, -1, -1};
  oa_array arrays[] = {vector(x, &length, OA_IN), vector(y, &length, OA_BY_USE)};
  oa_region *region;
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  oa_any *dx = arrays[0].handle, *dy = arrays[1].handle;
  CHECK_OK(axpy(3, dx, 1, dy, 1, 2, 1));
  CHECK_OK(axpy(4, dx, 1, half_of(dy, half), 1, 1, 1));
  CHECK_OK(axpy(2, dx, 1, dy, 1, 2, 0));
  int64_t before = counters().bytes_up;
  CHECK_OK(oa_update_from(&arrays[1], -1));
  CHECK(y[0] == 5 && y[1] == 5 && y[2] == -1 && y[4] == 4 && y[5] == -1);
  CHECK(counters().bytes_up == before);
  y[0] = 6, y[2] = -2; /* as between oa_update_begin and its end */
  CHECK_OK(oa_update_to(&arrays[1], -1));
  CHECK(counters().bytes_up - before == 3 * item);
  before = counters().bytes_up;
  CHECK_OK(axpy(1, dx, 1, dy, 1, N, 0));
  CHECK(counters().bytes_up - before == (N - 3) * item);
  leave(region);
  CHECK(y[0] == 7 && y[1] == 6 && y[2] == -1 && y[3] == 0 && y[4] == 5 && y[N - 1] == 0);
  check_empty();
}

static void all_parts_are_the_whole(void) {
  float x[N] = {1, 1, 1, 1, 1, 1, 1, 1}, y[N] = {0};
  oa_array arrays[] = {vector(x, &length, OA_IN), vector(y, &length, OA_OUT)};
  uint64_t address;
  int warnings = 0;
  oa_region *region;
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  oa_any *dx = arrays[0].handle, *dy = arrays[1].handle, *odd = NULL;
  const int64_t two = 2 * item;
  CHECK_OK(oa_pointer_view(dy, item, 1, &half, &two, &odd));
  CHECK_OK(axpy(3, dx, 1, odd, 2, 4, 1));
  CHECK_OK(axpy(2, dx, 1, dy, 2, 4, 1));
  CHECK_OK(axpy(1, dx, 1, dy, 1, N, 0));
  CHECK_OK(oa_address(dy, &address));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, &warnings));
  CHECK_OK(oa_region_wait(region));
  CHECK(!warnings);
  for (int i = 0; i < N; i++) CHECK(y[i] == (i % 2 ? 4 : 3));
  check_empty();
}

static void an_undefined_array_is_written_whole(void) {
  float x[N] = {1, 1, 1, 1, 1, 1, 1, 1}, y[N] = {-1, -1, -1, -1, -1, -1, -1, -1};
  oa_array arrays[] = {vector(x, &length, OA_IN), vector(y, &length, OA_OUT)};
  oa_region *region;
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  oa_any *dx = arrays[0].handle, *dy = arrays[1].handle;
  CHECK_OK(axpy(3, dx, 1, dy, 1, 4, 1));
  CHECK_FAILS(oa_pointer_invalidate(dy), OA_ERROR_DIRECTION, "calls wrote only a part");
  CHECK_OK(oa_pointer_invalidate(half_of(dy, 0)));
  CHECK_FAILS(axpy(3, dx, 1, dy, 1, 2, 1), OA_ERROR_INVALID, "overwrite it whole");
  CHECK_OK(axpy(4, dx, 1, dy, 1, N, 1));
  CHECK_OK(axpy(5, dx, 1, dy, 1, 2, 1));
  leave(region);
  CHECK(y[0] == 5 && y[1] == 5 && y[2] == 4 && y[N - 1] == 4);
  check_empty();
}

/* The k-th backend call fails: each part is as it was, or as it was written. */
static void no_failure_mixes_bytes(int direction) {
  for (int k = 1; k < 40; k++) {
    float x[N] = {1, 1, 1, 1, 1, 1, 1, 1}, y[N] = {-1, -1, -1, -1, -1, -1, -1, -1};
    oa_array arrays[] = {vector(x, &length, OA_IN), vector(y, &length, direction)};
    oa_region *region;
    CHECK_OK(oa_sim_configure(device, 0, k, 0));
    if (oa_region_enter(device, NULL, arrays, 2, &region)) continue;
    axpy(3, arrays[0].handle, 1, arrays[1].handle, 1, 3, 1);
    axpy(4, arrays[0].handle, 1, arrays[1].handle, 2, 1, 1);
    oa_region_finish(region, OA_COMMIT, NULL);
    oa_region_wait(region);
    CHECK_OK(oa_sim_configure(device, 0, 0, 0));
    CHECK(y[0] == -1 || y[0] == 3 || y[0] == 4);
    CHECK(y[1] == y[2] && (y[1] == -1 || y[1] == 3));
    for (int i = 3; i < N; i++) CHECK(y[i] == -1);
    CHECK(counters().mappings == 0 && counters().regions == 0);
  }
  CHECK_OK(oa_sim_configure(device, 0, 0, 0));
}

int main(void) {
  const char *const names[] = {"host", "sim:0", "sim:1"};
  for (int i = 0; i < 3; i++) {
    CHECK_OK(oa_device_open(names[i], &device));
    if (i == 2) CHECK_OK(oa_sim_configure(device, 0, 0, 200));
    a_part_comes_down_and_the_rest_stays();
    all_parts_are_the_whole();
    an_undefined_array_is_written_whole();
    an_array_by_use_goes_up_in_part();
    for (int direction = 0; i == 1 && direction < 2; direction++)
      no_failure_mixes_bytes(direction ? OA_OUT : OA_BY_USE);
  }
  return failures();
}
