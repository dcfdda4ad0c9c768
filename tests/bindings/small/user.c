/* Calls the three libraries of vendor.c through the generated functions: `user path-of-the-library`. */
#include "../../../csrc/tests/check.h"
#include "offload_args_held.h"
#include "offload_args_lanes.h"
#include "offload_args_tiny.h"

const char *as_tested(const char *text) { return text; } /* check.h calls it */

enum { N = 4 };
static const int64_t shape = N, of_floats = sizeof(float), of_doubles = sizeof(double);

static oa_array lent(void *data, int dtype) {
  const int64_t *stride = dtype == OA_F32 ? &of_floats : &of_doubles;
  return (oa_array){.data = data, .shape = &shape, .strides = stride, .ndim = 1, .dtype = dtype};
}

/* The library of the CPU, on any device whose calls run on the CPU. */
static void tiny(int device) {
  float f[N] = {1, 2, 3, 4};
  double x[N] = {2, 4, 6, 8}, y[N] = {1, 2, 3, 4}, quotient[N] = {0}, sum = 0, place[N] = {0};
  oa_array arrays[] = {lent(f, OA_F32), lent(x, OA_F64), lent(y, OA_F64), lent(quotient, OA_F64), lent(place, OA_F64)};
  oa_region *region;
  CHECK_OK(oa_region_enter(device, NULL, arrays, 5, &region));
  oa_f32 *df = (oa_f32 *)arrays[0].handle;
  const oa_f64 *dx = (oa_f64 *)arrays[1].handle, *dy = (oa_f64 *)arrays[2].handle;
  oa_f64 *dq = (oa_f64 *)arrays[3].handle, *dplace = (oa_f64 *)arrays[4].handle;
  CHECK_OK(oa_tiny_shift(N, 0.5f, df));
  CHECK_FAILS(oa_tiny_shift(N + 1, 0.5f, df), OA_ERROR_EXTENT, "tiny.shift: x needs 5 elements (n=5), has 4");
  CHECK_FAILS(oa_tiny_shift(INT64_C(1) << 40, 0.5f, df), OA_ERROR_OVERFLOW, "tiny.shift: n is 1099511627776");
  CHECK_FAILS(oa_tiny_wipe(N, df), OA_ERROR_VERSION,
              "is not called: its version is Tiny 3.1 of the test, and versions before 3.1.1 crash in it");
  CHECK_OK(oa_tiny_sum(N, dx, &sum));
  CHECK(sum == 20);
  CHECK_FAILS(oa_tiny_sum(N, dx, NULL), OA_ERROR_ARGUMENT, "tiny.sum: result needs a host address");
  CHECK_OK(oa_tiny_sum_device(N, dx, dplace));
  CHECK_OK(oa_tiny_divide(N, dx, dy, dq));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
  CHECK(f[0] == 1.5f && f[N - 1] == 4.5f && quotient[0] == 2 && quotient[N - 1] == 2 && place[0] == 20);

  y[2] = 0;
  CHECK_OK(oa_region_enter(device, NULL, arrays, 4, &region));
  CHECK_FAILS(oa_tiny_divide(N, (oa_f64 *)arrays[1].handle, (oa_f64 *)arrays[2].handle, (oa_f64 *)arrays[3].handle),
              OA_ERROR_LIBRARY, "tiny.divide: the library returned TINY_ZERO (7)");
  CHECK_OK(oa_region_finish(region, OA_DISCARD, NULL));
  CHECK_OK(oa_region_wait(region));
}

/* Batches are checked up to their last element. */
static void batches(int device) {
  enum { MOST = 22 };
  static const int64_t length = MOST;
  double a[MOST], c[MOST];
  double sum = 0;
  for (int i = 0; i < MOST; i++) a[i] = 1, c[i] = -1;
  oa_array arrays[] = {lent(a, OA_F64), lent(c, OA_F64)};
  arrays[0].shape = arrays[1].shape = &length;
  oa_region *region;
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  const oa_f64 *A = (oa_f64 *)arrays[0].handle;
  oa_f64 *C = (oa_f64 *)arrays[1].handle;
  CHECK_FAILS(oa_tiny_scale_batch(2, 2, 3, A, 2, 19, C, 4, 2), OA_ERROR_EXTENT,
              "A needs 23 elements (m=2, n=2, ld=2, stride_a=19, count=2), has 22");
  CHECK_FAILS(oa_tiny_scale_batch(2, 2, 3, A, 2, 0, C, 4, 6), OA_ERROR_EXTENT, "C needs 24 elements");
  CHECK_FAILS(oa_tiny_scale_batch(2, 2, 3, A, 2, 4, C, 3, 3), OA_ERROR_ALIAS,
              "C is written, and each of its 3 parts takes 4 elements, but stride_c is 3");
  CHECK_FAILS(oa_tiny_scale_batch(2, 2, 3, A, 2, -4, C, 4, 2), OA_ERROR_ARGUMENT, "stride_a needs to be at least 0");
  CHECK_FAILS(oa_tiny_scale_batch(2, 2, 3, C, 2, 4, C, 9, 3), OA_ERROR_ALIAS, "C is written and overlaps A");
  CHECK_FAILS(oa_tiny_scale_batch(2, 2, 3, A, 2, 4, C, 4, -1), OA_ERROR_ARGUMENT, "count needs to be at least 0");
  CHECK_OK(oa_tiny_scale_batch(2, 2, 3, A, 2, 9, C, 9, 3)); /* to the last element */
  CHECK_OK(oa_tiny_scale_batch(1, 2, 5, A, 2, 0, C, 9, 3)); /* all with the same, and gaps between columns */
  CHECK_OK(oa_tiny_scale_batch(1, 1, 7, A, 1, 1, C, INT64_MAX / 8, 1)); /* the stride of one matrix has no meaning */
  CHECK_OK(oa_tiny_scale_batch(2, 2, 7, A, 2, 9, C, 9, 0));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
  for (int i = 0; i < MOST; i++) {
    const int at = i % 9;
    CHECK(c[i] == (i == 0 ? 7 : at == 0 || at == 2 ? 5 : at < 4 ? 3 : -1));
  }
  /* If a batch fills an array, or its lines, the array does not go up. An Out of a batch with other gaps is refused. */
  arrays[1].direction = OA_OUT;
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  CHECK_FAILS(oa_tiny_scale_batch(1, 2, 2, (oa_f64 *)arrays[0].handle, 2, 3, (oa_f64 *)arrays[1].handle, 3, 7),
              OA_ERROR_DIRECTION, "this call does not write every element");
  CHECK_OK(oa_tiny_scale_batch(1, 1, 4, (oa_f64 *)arrays[0].handle, 1, 3, (oa_f64 *)arrays[1].handle, 3, 7));
  CHECK_FAILS(oa_tiny_sum(2, (oa_f64 *)arrays[1].handle, &sum), OA_ERROR_DIRECTION, "read before it is written");
  CHECK_OK(oa_tiny_scale_batch(2, 1, 2, (oa_f64 *)arrays[0].handle, 2, 2, (oa_f64 *)arrays[1].handle, 2, 11));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
  for (int i = 0; i < MOST; i++) CHECK(c[i] == 2);
}

/* The libraries of a GPU. The device sim takes the place of a GPU. */
static void lanes_and_held(int device) {
  float f[N] = {1, 2, 3, 4};
  oa_array array = lent(f, OA_F32);
  oa_region *region;
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, &region));
  oa_f32 *df = (oa_f32 *)array.handle;
  CHECK_OK(oa_held_scale(N, 2, df));
  CHECK_OK(oa_lanes_negate(N, df));
  CHECK_OK(oa_held_scale(N, 3, df));
  CHECK_FAILS(oa_lanes_negate(-1, df), OA_ERROR_ARGUMENT,
              "lanes.negate: n needs to be at least 0, got -1 (the size of x)");
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
  CHECK(f[0] == -6 && f[N - 1] == -24);
}

int main(int count, char **arguments) {
  static const char *const names[] = {"tiny", "lanes", "held"};
  char version[32];
  int host, sim;
  if (count < 2) return 2;
  for (int i = 0; i < 3; i++) CHECK_OK(oa_library_open(names[i], arguments[1], NULL));
  CHECK_OK(oa_library_version("tiny", version, sizeof version));
  CHECK(strcmp(version, "Tiny 3.1 of the test") == 0);
  CHECK_OK(oa_device_open("host", &host));
  CHECK_OK(oa_device_open("sim:0", &sim));
  tiny(host);
  tiny(sim);
  batches(host);
  batches(sim);
  lanes_and_held(sim);

  float f[N] = {1, 2, 3, 4};
  oa_array array = lent(f, OA_F32);
  oa_region *region;
  CHECK_OK(oa_region_enter(host, NULL, &array, 1, &region));
  CHECK_FAILS(oa_lanes_negate(N, (oa_f32 *)array.handle), OA_ERROR_DEVICE, "x is on host, needs to be on a sim device");
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
  return failures();
}
