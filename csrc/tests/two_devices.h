/* Calls on two devices, for tests: arrays of floats that are changed and read. If two threads would race, the tests
 * make the same steps in a fixed order, and a delay of sim keeps copies under way. */
#ifndef OA_TWO_DEVICES_H
#define OA_TWO_DEVICES_H

#include "check.h"

#include <stdbool.h>

enum { SLOW = 20000 };               /* microseconds of one operation of a slow device */
static int device_a, device_b, host; /* devices */

/* Opens the host and pair i of devices, which are synchronous or not. Returns false if i is past the last pair. */
static inline bool open_pair(int i) {
  static const char *const pairs[][2] = {{"host", "sim:1"}, {"sim:0", "sim:1"}, {"sim:0", "host"}};
  if (i == sizeof pairs / sizeof *pairs) return false;
  CHECK_OK(oa_device_open("host", &host));
  CHECK_OK(oa_device_open(pairs[i][0], &device_a));
  CHECK_OK(oa_device_open(pairs[i][1], &device_b));
  return true;
}

/* A call of a library that runs on the CPU: p[i] = scale * p[i] + add, for n floats `step` apart. */
struct change {
  float *p;
  int64_t n, step;
  float scale, add;
};

static inline void run_change(void *data) {
  const struct change *c = data;
  for (int64_t i = 0; i < c->n; i++) c->p[i * c->step] = (c->scale != 0 ? c->scale * c->p[i * c->step] : 0) + c->add;
}

static inline oa_operand operand(const void *pointer, int access, int64_t n, int64_t step) {
  return (oa_operand){
      .name = "p", .pointer = pointer, .access = access, .dtype = OA_F32, .extent = OA_VECTOR(n, step, "n", "inc")};
}

static inline int change(oa_any *pointer, int64_t n, int64_t step, float scale, float add) {
  oa_operand p = operand(pointer, scale != 0 ? OA_READ_WRITE : OA_OVERWRITE, n, step);
  oa_call call = {.function = "test.change", .operands = &p, .count = 1};
  const int status = oa_begin(&call);
  if (status) return status;
  struct change c = {p.address, n, step, scale, add};
  return oa_submit(&call, run_change, &c, sizeof c);
}

static inline int add(oa_any *pointer, int64_t n, float value) { return change(pointer, n, 1, 1, value); }
static inline int set(oa_any *pointer, int64_t n, float value) { return change(pointer, n, 1, 0, value); }

struct peek {
  const float *p;
  float *element;
};
static inline void run_peek(void *data) {
  const struct peek *k = data;
  *k->element = *k->p;
}

/* Reads the first element on the device. */
static inline int peek(const oa_any *pointer, float *element) {
  oa_operand p = operand(pointer, OA_READ, 1, 1);
  oa_call call = {.function = "test.peek", .operands = &p, .count = 1, .blocking = 1};
  const int status = oa_begin(&call);
  if (status) return status;
  struct peek k = {p.address, element};
  return oa_submit(&call, run_peek, &k, sizeof k);
}

static const int64_t item = sizeof(float);
static inline oa_array vector(float *data, const int64_t *n, int direction) {
  return (oa_array){.data = data, .shape = n, .strides = &item, .ndim = 1, .dtype = OA_F32, .direction = direction};
}

static inline oa_region *enter(int device, oa_array *arrays, int count) {
  oa_region *region = NULL;
  CHECK_OK(oa_region_enter(device, NULL, arrays, count, &region));
  return region;
}

static inline void leave(oa_region *region, int outcome) {
  CHECK_OK(oa_region_finish(region, outcome, NULL));
  CHECK_OK(oa_region_wait(region));
}

static inline void configure(int device, int64_t fail_after, int64_t delay) {
  if (device != host) CHECK_OK(oa_sim_configure(device, 0, fail_after, delay));
}

static inline void check_empty(void) {
  const int devices[] = {device_a, device_b};
  for (int i = 0; i < 2; i++) {
    oa_counters c = OA_SIZED(oa_counters);
    configure(devices[i], 0, 0);
    CHECK_OK(oa_device_get_counters(devices[i], &c));
    CHECK(c.mappings == 0);
    CHECK(c.regions == 0);
    CHECK(c.allocations == c.frees);
  }
}

#endif
