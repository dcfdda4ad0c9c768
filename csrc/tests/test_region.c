/* Regions and mappings through the public header, on host and sim: moves, sharing and refusals. */
#include "one_device.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const oa_library *const oa_libraries[] = {NULL};

static void moves_only_what_is_used(void) {
  float x[100], y[100], unused[100];
  int64_t n = 100;
  for (int i = 0; i < 100; i++) x[i] = (float)i, y[i] = NAN, unused[i] = 5;
  oa_array arrays[] = {vector(x, &n, OA_BY_USE), vector(y, &n, OA_BY_USE), vector(unused, &n, OA_BY_USE)};
  oa_region *region;
  const oa_counters before = counters();
  CHECK_OK(oa_region_enter(device, NULL, arrays, 3, &region));
  CHECK(counters().copies_up == before.copies_up);
  CHECK_OK(axpy(2, arrays[0].handle, 1, arrays[1].handle, 1, n, 1));
  CHECK_OK(axpy(1, arrays[0].handle, 1, arrays[1].handle, 1, n, 0));
  leave(region);
  const oa_counters after = counters();
  CHECK(after.copies_up - before.copies_up == 1 && after.bytes_up - before.bytes_up == 400);
  CHECK(after.copies_down - before.copies_down == 1 && after.bytes_down - before.bytes_down == 400);
  for (int i = 0; i < 100; i++) CHECK(y[i] == 3 * x[i]);
  check_empty();
}

/* Promise T37. */
static void a_pointer_is_dead_after_its_region(void) {
  float x[4] = {1, 2, 3, 4}, y[4] = {0};
  int64_t n = 4;
  oa_array arrays[] = {vector(x, &n, OA_IN), vector(y, &n, OA_INOUT)};
  oa_region *region;
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  leave(region);
  CHECK(axpy(1, arrays[0].handle, 1, arrays[1].handle, 1, 4, 0) == OA_ERROR_STALE);
  CHECK(strstr(oa_last_error(), "test.axpy: x"));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL)); /* a second exit does nothing */
  CHECK_OK(oa_region_wait(region));
  CHECK(axpy(1, (oa_any *)x, 1, (oa_any *)y, 1, 4, 0) == OA_ERROR_NOT_HANDLE);
  CHECK(axpy(1, NULL, 1, NULL, 1, 4, 0) == OA_ERROR_NOT_HANDLE);
  check_empty();
}

static void misuse_is_refused_before_anything_moves(void) {
  float x[4] = {1, 2, 3, 4}, y[4] = {9, 9, 9, 9}, z[4] = {7, 7, 7, 7};
  int64_t n = 4;
  oa_array arrays[] = {vector(x, &n, OA_IN), vector(y, &n, OA_INOUT), vector(z, &n, OA_OUT)};
  oa_region *region;
  oa_any *dx, *dy, *dz;
  const oa_counters before = counters();
  CHECK_OK(oa_region_enter(device, NULL, arrays, 3, &region));
  dx = arrays[0].handle, dy = arrays[1].handle, dz = arrays[2].handle;
  CHECK(axpy(1, dx, 1, dy, 1, 5, 0) == OA_ERROR_EXTENT);
  CHECK(strstr(oa_last_error(), "test.axpy: x needs 5 elements (n=5, incx=1), has 4"));
  CHECK(axpy(1, dx, 2, dy, 1, 3, 0) == OA_ERROR_EXTENT);
  CHECK(axpy(1, dx, 0, dy, 1, 3, 0) == OA_ERROR_ARGUMENT);
  CHECK(axpy(1, dx, 1, dy, 1, -1, 0) == OA_ERROR_ARGUMENT);
  CHECK(axpy(1, dx, INT64_MAX, dy, 1, INT64_MAX, 0) == OA_ERROR_OVERFLOW);
  CHECK(axpy(1, dy, 1, dx, 1, 4, 0) == OA_ERROR_DIRECTION);
  CHECK(axpy(1, dz, 1, dy, 1, 4, 0) == OA_ERROR_DIRECTION); /* an Out that is not written yet */
  CHECK(axpy(1, dx, 1, dz, 1, 4, 0) == OA_ERROR_DIRECTION);
  CHECK(axpy(1, dy, 1, dy, 1, 4, 0) == OA_ERROR_ALIAS);
  CHECK(counters().copies_up == before.copies_up);
  CHECK_OK(axpy(1, dx, 1, dz, 1, 3, 1));                    /* the call does not write the last element of z */
  CHECK(axpy(1, dz, 1, dy, 1, 4, 0) == OA_ERROR_DIRECTION); /* the last element is not written yet */
  CHECK_OK(axpy(1, dx, 1, dz, 1, 4, 1));
  leave(region);
  CHECK(z[3] == 4 && y[0] == 9);
  check_empty();
}

static void overlapping_views_share_one_buffer(void) {
  float a[10];
  int64_t six = 6;
  for (int i = 0; i < 10; i++) a[i] = 1;
  oa_array arrays[] = {vector(a, &six, OA_BY_USE), vector(a + 4, &six, OA_BY_USE), vector(a, &six, OA_BY_USE)};
  oa_region *region;
  const oa_counters before = counters();
  CHECK_OK(oa_region_enter(device, NULL, arrays, 3, &region));
  CHECK(counters().mappings == before.mappings + 1);
  CHECK(axpy(1, arrays[0].handle, 1, arrays[1].handle, 1, 6, 0) == OA_ERROR_ALIAS);
  oa_any *tail;
  const int64_t two = 2, step = 4;
  CHECK_OK(oa_pointer_view(arrays[1].handle, 8, 1, &two, &step, &tail)); /* a[6:8] */
  CHECK_OK(axpy(2, arrays[0].handle, 1, tail, 1, 2, 0));
  CHECK(axpy(2, arrays[0].handle, 1, tail, 1, 3, 0) == OA_ERROR_EXTENT);
  CHECK_OK(oa_pointer_release(tail));
  CHECK(axpy(2, arrays[0].handle, 1, tail, 1, 2, 0) == OA_ERROR_STALE);
  leave(region);
  for (int i = 0; i < 10; i++) CHECK(a[i] == (i == 6 || i == 7 ? 3 : 1));
  check_empty();
}

static void disjoint_panels_of_one_matrix_are_not_aliases(void) {
  enum { ROWS = 5, LD = 7 };
  float a[ROWS * LD];
  const int64_t left[] = {ROWS, 3}, right[] = {ROWS, 4}, strides[] = {LD * 4, 4};
  for (int i = 0; i < ROWS * LD; i++) a[i] = (float)i;
  oa_array arrays[] = {
      {.data = a, .shape = left, .strides = strides, .ndim = 2, .dtype = OA_F32},
      {.data = a + 3, .shape = right, .strides = strides, .ndim = 2, .dtype = OA_F32, .direction = OA_INOUT}};
  oa_region *region;
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  CHECK_OK(axpy(1, arrays[0].handle, LD, arrays[1].handle, LD, ROWS, 0)); /* column 3 += column 0 */
  /* 4 elements in a row are not inside the panel. */
  CHECK(axpy(1, arrays[0].handle, 1, arrays[1].handle, LD, 4, 0) == OA_ERROR_EXTENT);
  leave(region);
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < LD; c++) CHECK(a[r * LD + c] == (float)(r * LD + c) + (c == 3 ? (float)(r * LD) : 0));
  check_empty();
}

static void gaps_of_strided_arrays_are_never_written(void) {
  float a[12], ones[4] = {1, 1, 1, 1};
  const int64_t shape = 4, stride = -12;
  int64_t n = 4;
  for (int i = 0; i < 12; i++) a[i] = (float)i;
  oa_array arrays[] = {{.data = a + 11, .shape = &shape, .strides = &stride, .ndim = 1, .dtype = OA_F32},
                       vector(ones, &n, OA_IN)};
  oa_region *region;
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  CHECK(arrays[0].packed == 1);
  CHECK_OK(axpy(1, arrays[1].handle, 1, arrays[0].handle, 1, 4, 0));
  leave(region);
  for (int i = 0; i < 12; i++) CHECK(a[i] == (float)i + (i % 3 == 2 ? 1 : 0));
  check_empty();
}

static void the_hosts_memory_may_lie_anywhere_and_the_devices_is_aligned(void) {
  char memory[9 * 8 + 1];
  float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  int64_t n = 8;
  const int64_t close = 4, apart = 9, bytes = sizeof memory;
  const int64_t size = 1;
  for (int packed = 0; packed < 2; packed++) {
    const int64_t *stride = packed ? &apart : &close;
    memset(memory, 0, sizeof memory);
    oa_array arrays[] = {{.data = memory + 1, .shape = &n, .strides = stride, .ndim = 1, .dtype = OA_F32},
                         vector(ones, &n, OA_IN)};
    oa_region *region;
    CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
    CHECK(arrays[0].packed == packed);
    CHECK_OK(axpy(2, arrays[1].handle, 1, arrays[0].handle, 1, 8, 0));
    leave(region);
    for (int64_t i = 0; i < n; i++) {
      float value;
      memcpy(&value, memory + 1 + i * *stride, sizeof value);
      CHECK(value == 2);
    }
    CHECK(memory[0] == 0 && (!packed || memory[5] == 0)); /* memory[0] and memory[5] are in gaps */
    oa_array beside[] = {{.data = memory, .shape = &bytes, .strides = &size, .ndim = 1, .dtype = OA_U8}, arrays[0]};
    CHECK(oa_region_enter(device, NULL, beside, 2, &region) == OA_ERROR_PRESENT);
  }
  check_empty();
}

static void nested_regions_share(void) {
  float x[8], y[8] = {0};
  int64_t n = 8, four = 4, nine = 9;
  for (int i = 0; i < 8; i++) x[i] = (float)i;
  oa_array outer[] = {vector(x, &n, OA_IN), vector(y, &n, OA_BY_USE)};
  oa_region *outside, *inside;
  const oa_counters before = counters();
  CHECK_OK(oa_region_enter(device, NULL, outer, 2, &outside));
  for (int i = 0; i < 3; i++) {
    oa_array inner[] = {vector(x + 2, &four, OA_BY_USE), vector(y, &n, OA_BY_USE)};
    CHECK_OK(oa_region_enter(device, NULL, inner, 2, &inside));
    CHECK_OK(axpy(1, inner[0].handle, 1, inner[1].handle, 1, 4, 0));
    CHECK(axpy(1, inner[1].handle, 1, inner[0].handle, 1, 4, 0) ==
          OA_ERROR_DIRECTION); /* the outer region lends this array as In */
    leave(inside);
    CHECK(y[1] == 0); /* y comes down only when the outermost region is left */
  }
  oa_array wide = vector(x, &nine, OA_BY_USE), written = vector(x, &n, OA_INOUT);
  CHECK(oa_region_enter(device, NULL, &wide, 1, &inside) == OA_ERROR_PRESENT);
  CHECK(oa_region_enter(device, NULL, &written, 1, &inside) == OA_ERROR_DIRECTION);
  leave(outside);
  CHECK(y[1] == 9 && y[3] == 15 && y[4] == 0);
  CHECK(counters().copies_up - before.copies_up == 2 && counters().copies_down - before.copies_down == 1);
  check_empty();
}

/* Promise T02. */
static void a_failed_body_changes_nothing(void) {
  float x[4] = {1, 1, 1, 1}, y[4] = {2, 2, 2, 2};
  int64_t n = 4;
  oa_region *outside, *inside;
  oa_array arrays[] = {vector(x, &n, OA_IN), vector(y, &n, OA_INOUT)}, again = vector(y, &n, OA_BY_USE);
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &outside));
  CHECK_OK(oa_region_enter(device, NULL, &again, 1, &inside));
  CHECK_OK(axpy(1, arrays[0].handle, 1, again.handle, 1, 4, 0));
  CHECK_OK(oa_region_finish(inside, OA_DISCARD, NULL));
  CHECK_OK(oa_region_wait(inside));
  CHECK_OK(axpy(1, arrays[1].handle, 1, arrays[1].handle, 1, 0, 0)); /* a call without elements */
  CHECK(axpy(1, arrays[0].handle, 1, arrays[1].handle, 1, 4, 0) == OA_ERROR_INVALID);
  CHECK_OK(oa_region_finish(outside, OA_COMMIT, NULL));
  CHECK(oa_region_wait(outside) == OA_ERROR_INVALID);
  CHECK(strstr(oa_last_error(), "argument 2"));
  CHECK(y[0] == 2 && y[3] == 2);
  check_empty();
}

static void an_out_that_no_call_wrote_is_left_alone(void) {
  float y[4] = {2, 2, 2, 2};
  int64_t n = 4;
  int warnings = 0;
  oa_region *region;
  oa_array array = vector(y, &n, OA_OUT);
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, &region));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, &warnings));
  CHECK(warnings == 1 && strstr(oa_last_warning(), "argument 1"));
  CHECK_OK(oa_region_wait(region));
  CHECK(y[0] == 2);
  check_empty();
}

static void *many_regions(void *data) {
  const float *shared = data;
  float own[64];
  int64_t n = 64;
  for (int i = 0; i < 64; i++) own[i] = 0;
  for (int i = 0; i < 300; i++) {
    oa_array arrays[] = {vector((float *)shared, &n, OA_IN), vector(own, &n, OA_BY_USE)};
    oa_region *region;
    CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
    CHECK_OK(axpy(1, arrays[0].handle, 1, arrays[1].handle, 1, 64, 0));
    leave(region);
  }
  for (int i = 0; i < 64; i++) CHECK(own[i] == 300 * shared[i]);
  return NULL;
}

/* Promise T17. */
static void threads_share_an_array(void) {
  float shared[64];
  pthread_t threads[8];
  for (int i = 0; i < 64; i++) shared[i] = (float)i;
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, many_regions, shared);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  check_empty();
}

static void a_number_that_no_device_has_is_refused(void) {
  float x[4];
  int64_t n = 4;
  oa_array array = vector(x, &n, OA_IN);
  oa_region *region;
  oa_residency figures = OA_SIZED(oa_residency);
  CHECK_FAILS(oa_region_enter(99, NULL, &array, 1, &region), OA_ERROR_ARGUMENT, "oa_region_enter: no device");
  CHECK_FAILS(oa_keep(&array, 99), OA_ERROR_ARGUMENT, "oa_keep: no device");
  CHECK_FAILS(oa_release(&array, 99), OA_ERROR_ARGUMENT, "oa_release: no device");
  CHECK_FAILS(oa_residency_query(99, &figures), OA_ERROR_ARGUMENT, "oa_residency_query: no device");
}

/* Promise T01. */
static void every_failing_backend_call_is_survived(void) {
  bool any = false;
  for (int k = 1; k < 200; k++) {
    float x[6] = {1, 1, 1, 1, 1, 1}, y[6] = {2, 2, 2, 2, 2, 2};
    int64_t n = 6;
    oa_array arrays[] = {vector(x, &n, OA_IN), vector(y, &n, OA_INOUT)};
    oa_region *region = NULL;
    int status;
    CHECK_OK(oa_sim_configure(device, 0, k, 0));
    const int64_t calls = oa_sim_backend_calls(device);
    status = oa_region_enter(device, NULL, arrays, 2, &region);
    if (!status) {
      status = axpy(1, arrays[0].handle, 1, arrays[1].handle, 1, 6, 0);
      const int finished = oa_region_finish(region, status ? OA_DISCARD : OA_COMMIT, NULL);
      if (!status) status = finished;
      const int waited = oa_region_wait(region);
      if (!status) status = waited;
    }
    const bool reached = oa_sim_backend_calls(device) - calls >= k;
    CHECK_OK(oa_sim_configure(device, 0, 0, 0));
    any |= status != OA_OK;
    CHECK(reached || status == OA_OK); /* after some failures there is a fallback */
    CHECK(y[0] == y[5] && (y[0] == 3 || (status && y[0] == 2)));
    check_empty();
    if (!reached) {
      CHECK(any);
      return;
    }
  }
  CHECK(!"the number of backend calls is not bounded");
}

/* Promise T01. An event follows each call on a stream that the program has. */
static void a_call_whose_end_can_not_be_recorded_leaves_its_result_undefined(void) {
  bool any = false;
  for (int k = 1; k < 6; k++) {
    float x[6] = {1, 1, 1, 1, 1, 1}, y[6] = {2, 2, 2, 2, 2, 2};
    int64_t n = 6;
    oa_array arrays[] = {vector(x, &n, OA_IN), vector(y, &n, OA_INOUT)};
    oa_region *region = NULL;
    void *stream;
    CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
    CHECK_OK(oa_region_stream(region, &stream));
    CHECK_OK(axpy(1, arrays[0].handle, 1, arrays[1].handle, 1, 6, 0));
    CHECK_OK(oa_sim_configure(device, 0, k, 0));
    const int status = axpy(1, arrays[0].handle, 1, arrays[1].handle, 1, 6, 0);
    CHECK_OK(oa_sim_configure(device, 0, 0, 0));
    const int finished = oa_region_finish(region, OA_COMMIT, NULL);
    const int waited = finished ? OA_OK : oa_region_wait(region);
    if (finished) oa_region_finish(region, OA_DISCARD, NULL);
    if (finished) oa_region_wait(region);
    any |= status != OA_OK;
    const float expected = finished || waited ? 2 : status ? 3 : 4; /* 3: the failing call was not begun */
    CHECK(y[0] == expected);
    check_empty();
  }
  CHECK(any);
}

int main(void) {
  const char *const names[] = {"host", "sim:0", "sim:1"};
  for (int i = 0; i < 3; i++) {
    CHECK_OK(oa_device_open(names[i], &device));
    if (i == 2) CHECK_OK(oa_sim_configure(device, 0, 0, 200));
    moves_only_what_is_used();
    a_pointer_is_dead_after_its_region();
    misuse_is_refused_before_anything_moves();
    overlapping_views_share_one_buffer();
    disjoint_panels_of_one_matrix_are_not_aliases();
    gaps_of_strided_arrays_are_never_written();
    the_hosts_memory_may_lie_anywhere_and_the_devices_is_aligned();
    nested_regions_share();
    a_failed_body_changes_nothing();
    an_out_that_no_call_wrote_is_left_alone();
    if (i < 2) threads_share_an_array();
    a_number_that_no_device_has_is_refused();
    if (i == 1) every_failing_backend_call_is_survived();
    if (i == 1) a_call_whose_end_can_not_be_recorded_leaves_its_result_undefined();
  }
  return failures();
}
