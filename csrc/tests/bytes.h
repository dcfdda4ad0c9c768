/* Regions of bytes on one device, and calls on them, for the tests of transfers and of memory. */
#ifndef OA_BYTES_H
#define OA_BYTES_H

#include "check.h"
#include "device/device.h"

static oa_device *device;
static int number;

static inline void *new_stream(void) {
  void *stream = NULL;
  CHECK_OK(device->backend->stream_create(device, &stream));
  return stream;
}

static inline oa_array bytes_of(unsigned char *data, const int64_t *n, int direction) {
  static const int64_t strides[1] = {1};
  return (oa_array){.data = data, .shape = n, .strides = strides, .ndim = 1, .dtype = OA_U8, .direction = direction};
}

struct added {
  unsigned char *bytes;
  int64_t n;
  unsigned char by;
};

BY_RANGE static inline void add_run(void *data) {
  const struct added *p = data;
  reads(p, sizeof *p);
  reads(p->bytes, p->n);
  writes(p->bytes, p->n);
  for (int64_t i = 0; i < p->n; i++) p->bytes[i] = (unsigned char)(p->bytes[i] + p->by);
}

/* bytes += by */
static inline int add(oa_any *bytes, int64_t n, int by) {
  oa_operand operand = {
      .name = "bytes", .pointer = bytes, .access = OA_READ_WRITE, .dtype = OA_U8, .extent = OA_ELEMENTS(n)};
  oa_call call = {.function = "test.add", .operands = &operand, .count = 1};
  const int status = oa_begin(&call);
  if (status) return status;
  struct added p = {operand.address, n, (unsigned char)by};
  return oa_submit(&call, add_run, &p, sizeof p);
}

static inline oa_region *lend(oa_array *array, unsigned char *data, int direction, int once) {
  static const int64_t n = 64;
  const oa_region_options options = OA_SIZED(oa_region_options, .single_use = once);
  oa_region *region = NULL;
  *array = bytes_of(data, &n, direction);
  CHECK_OK(oa_region_enter(number, &options, array, 1, &region));
  return region;
}

static inline void leave(oa_region *region, int outcome) {
  CHECK_OK(oa_region_finish(region, outcome, NULL));
  CHECK_OK(oa_region_wait(region));
}

static inline void open_device(const char *name) {
  CHECK_OK(oa_device_open(name, &number));
  device = oa_device_of(number);
}

#endif
