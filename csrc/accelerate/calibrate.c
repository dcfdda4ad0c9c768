/* Measures the rates of a device. */
#include "accelerate/model.h"
#include "accelerate/program_call.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Measures, in seconds, the times to copy an n x n matrix up, to multiply the matrix by itself on the device, and to
 * copy the product down. */
static int product(int device, int dtype, float *A, float *C, int64_t n, double *up, double *work, double *down) {
  const int64_t shape[2] = {n, n}, itemsize = oa_itemsize(dtype), strides[2] = {itemsize, itemsize * n};
  oa_array arrays[2];
  for (int i = 0; i < 2; i++)
    arrays[i] = (oa_array){.data = i ? C : A,
                           .shape = shape,
                           .strides = strides,
                           .name = i ? "C" : "A",
                           .ndim = 2,
                           .dtype = dtype,
                           .direction = i ? OA_OUT : OA_IN};
  oa_region *region;
  OA_TRY(oa_region_enter(device, NULL, arrays, 2, &region));
  uint64_t address;
  double begun = now();
  int status = oa_address(arrays[0].handle, &address);
  if (!status) status = oa_device_synchronize(device);
  *up = now() - begun;
  for (int i = 0; i < 3 && !status; i++) { /* the first product loads kernels */
    begun = now();
    status = oa_hooks.products[dtype == OA_F64](n, arrays[0].handle, arrays[1].handle);
    if (!status) status = oa_device_synchronize(device);
    *work = now() - begun;
  }
  begun = now();
  const int finished = oa_region_finish(region, status ? OA_DISCARD : OA_COMMIT, NULL);
  const int waited = oa_region_wait(region);
  *down = now() - begun;
  return status ? status : finished ? finished : waited;
}

/* In seconds. Once this time has passed, measurements are not repeated, and keep their first values. */
static const double BUDGET = 0.5;

int oa_accelerate_calibrate(int device, oa_accelerate_rates *rates) {
  enum { N = 2048, SMALL = 64, TIMES = 8, REPEATS = 3 };
  if (!rates) return oa_fail(OA_ERROR_ARGUMENT, "oa_accelerate_calibrate: rates must not be NULL");
  oa_device_info info = OA_SIZED(oa_device_info);
  if (oa_device_get_info(device, &info)) return oa_fail_in(OA_ERROR_ARGUMENT, "oa_accelerate_calibrate");
  if (!&oa_hooks || !oa_hooks.products[0] || !oa_hooks.products[1])
    return oa_fail(OA_ERROR_LIBRARY, "oa_accelerate_calibrate: this build has no BLAS");
  oa_model_nominal(rates);
  /* The size is smaller for a device on the CPU, because N would take seconds. */
  int64_t n = info.flags & OA_DEVICE_GPU ? N : N / 8;
  float *A = calloc((size_t)(n * n), sizeof(double)), *C = malloc((size_t)(n * n) * sizeof(double));
  if (!A || !C) {
    free(A);
    free(C);
    return oa_fail(OA_ERROR_MEMORY, "oa_accelerate_calibrate: no host memory");
  }
  /* Fills the matrix with small numbers of either dtype: products of zeros take less time on a GPU. */
  for (int64_t i = 0; i < 2 * n * n; i++) A[i] = 1.0f + (float)(i * 2654435761u % 1024) / 1024;
  double up = 0, down = 0, call = 1;
  /* The first product loads libraries. From one product to the next, the work then grows by a factor of 8. On a slow
   * device, the size stops growing earlier. */
  double work = 0;
  int status = product(device, OA_F64, A, C, n / 8, &up, &work, &down);
  const double started = now();
  for (int64_t size = n / 8; size < n && !status; size *= 2) {
    status = product(device, OA_F64, A, C, size, &up, &work, &down);
    if (now() - started + 100 * work > BUDGET) n = size;
  }
  /* The first copy pins memory, and the machine may be busy during a later one: the shortest times count. */
  double up_least = INFINITY, down_least = INFINITY;
  for (int dtype = 0; dtype < 2 && !status; dtype++) {
    double work_least = INFINITY;
    for (int i = 0; i < REPEATS && !status; i++) {
      if (i && now() - started > BUDGET) break;
      status = product(device, dtype ? OA_F64 : OA_F32, A, C, n, &up, &work, &down);
      if (work < work_least) work_least = work;
      if (dtype && up < up_least) up_least = up;
      if (dtype && down < down_least) down_least = down;
    }
    rates->device[dtype] = rates->device[dtype + 2] = 2.0 * (double)(n * n * n) / work_least;
  }
  for (int i = 0; i < TIMES && !status && (!i || now() - started < BUDGET); i++) {
    double each[3], begun = now();
    status = product(device, OA_F64, A, C, SMALL, &each[0], &each[1], &each[2]);
    const double took = now() - begun - each[1] * 2;
    if (took > 0 && took < call) call = took;
  }
  rates->up = (double)(n * n) * 8 / up_least;
  rates->down = (double)(n * n) * 8 / down_least;
  rates->call = call;
  free(A);
  free(C);
  return status;
}
