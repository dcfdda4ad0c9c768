/* Calls on one device, for tests: a vector times a number is added to another vector. */
#ifndef OA_ONE_DEVICE_H
#define OA_ONE_DEVICE_H

#include "check.h"

static int device;

/* y[i] = a * x[i] + y[i], or y[i] = a * x[i] if `overwrite` is 1; strides are in elements. */
struct axpy {
  int64_t n, incx, incy;
  float a;
  const float *x;
  float *y;
  int overwrite;
};

static inline void run_axpy(void *data) {
  struct axpy *p = data;
  for (int64_t i = 0; i < p->n; i++)
    p->y[i * p->incy] = p->a * p->x[i * p->incx] + (p->overwrite ? 0 : p->y[i * p->incy]);
}

static inline int axpy(float a, const oa_any *x, int64_t incx, oa_any *y, int64_t incy, int64_t n, int overwrite) {
  oa_operand operands[] = {
      {.name = "x", .pointer = x, .access = OA_READ, .dtype = OA_F32, .extent = OA_VECTOR(n, incx, "n", "incx")},
      {.name = "y",
       .pointer = y,
       .access = overwrite ? OA_OVERWRITE : OA_READ_WRITE,
       .dtype = OA_F32,
       .extent = OA_VECTOR(n, incy, "n", "incy")}};
  oa_call call = {.function = "test.axpy", .operands = operands, .count = 2};
  const int status = oa_begin(&call);
  if (status) return status;
  struct axpy p = {n, incx, incy, a, operands[0].address, operands[1].address, overwrite};
  return oa_submit(&call, run_axpy, &p, sizeof p);
}

static inline oa_array vector(float *data, const int64_t *n, int direction) {
  static const int64_t strides[1] = {sizeof(float)};
  return (oa_array){.data = data, .shape = n, .strides = strides, .ndim = 1, .dtype = OA_F32, .direction = direction};
}

static inline oa_counters counters(void) {
  oa_counters c = OA_SIZED(oa_counters);
  CHECK_OK(oa_device_get_counters(device, &c));
  return c;
}

static inline void leave(oa_region *region) {
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
}

static inline void check_empty(void) {
  const oa_counters c = counters();
  CHECK(c.mappings == 0);
  CHECK(c.regions == 0);
  CHECK(c.allocations == c.frees);
}

#endif
