/* Libraries that have handles and not all of what cuBLAS has for them. */
#include "check.h"
#include "device/device.h"

#include <string.h>

static int made, bound, modes_set, asked_before_the_table, mode = 1;
static void *stream_of_caller;

static int ask(void) {
  asked_before_the_table++;
  return 0;
}
static int make_handle(void **handle) {
  made++;
  *handle = &made;
  return 0;
}
static int bind_handle(void *handle, void *stream) {
  bound += handle == &made && stream;
  return 0;
}
static int stream_of(void *handle, void **stream) {
  (void)handle;
  *stream = stream_of_caller;
  return 0;
}
static int set_mode(void *handle, int wanted) {
  (void)handle;
  modes_set++;
  mode = wanted;
  return 0;
}

/* The index -1 would read what lies before a library's symbols. */
static oa_symbol symbols[] = {{"before", (void *)ask},
                              {"create", (void *)make_handle},
                              {"bind", (void *)bind_handle},
                              {"stream", (void *)stream_of},
                              {"mode", (void *)set_mode}};
#define LIBRARY(called, last, stream, mode_set) \
  {.name = called,                              \
   .backend = "sim",                            \
   .symbols = symbols + 1,                      \
   .symbol_count = last,                        \
   .create = 0,                                 \
   .destroy = -1,                               \
   .set_stream = 1,                             \
   .get_stream = stream,                        \
   .set_pointer_mode = mode_set,                \
   .get_pointer_mode = -1,                      \
   .host_mode = 0,                              \
   .device_mode = 1}
static oa_library plain = LIBRARY("plain", 3, 2, -1), settable = LIBRARY("settable", 4, 2, 3),
                  streamless = LIBRARY("streamless", 2, -1, -1);
oa_library *const oa_libraries[] = {&plain, &settable, &streamless, NULL};

static int call_it(oa_library *library, const oa_any *x) {
  oa_operand operand = {.name = "x", .pointer = x, .access = OA_READ, .dtype = OA_F32, .extent = OA_ELEMENTS(4)};
  oa_call call = {.function = "test.read", .library = library, .operands = &operand, .count = 1};
  const int status = oa_begin(&call);
  return status ? status : oa_end(&call, 0);
}

int main(void) {
  float values[4] = {1, 2, 3, 4};
  const int64_t shape = 4, stride = sizeof(float);
  int device;
  oa_region *region;
  oa_array array = {
      .data = values, .shape = &shape, .strides = &stride, .ndim = 1, .dtype = OA_F32, .direction = OA_IN};
  /* loading a library gives it its index, and so does this */
  CHECK_OK(oa_use_handle("plain", NULL));
  CHECK_OK(oa_use_handle("settable", NULL));
  CHECK_OK(oa_use_handle("streamless", NULL));
  CHECK_OK(oa_device_open("sim:0", &device));
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, &region));
  oa_device *sim = oa_device_of(device);
  CHECK_OK(sim->backend->stream_create(sim, &stream_of_caller));

  CHECK_OK(call_it(&plain, array.handle));
  CHECK(made == 1 && bound == 1 && modes_set == 0);
  CHECK_OK(oa_use_handle("plain", &mode));
  CHECK_OK(call_it(&plain, array.handle));
  CHECK(made == 1 && modes_set == 0);

  CHECK_OK(call_it(&settable, array.handle));
  CHECK(modes_set == 1 && mode == 0);
  mode = 1;
  CHECK_OK(oa_use_handle("settable", &mode));
  CHECK_OK(call_it(&settable, array.handle));
  CHECK(modes_set == 2 && mode == 0); /* it does not say its mode: the wanted one is set each time */

  CHECK_OK(call_it(&streamless, array.handle));
  CHECK_OK(oa_use_handle("streamless", &mode));
  CHECK_FAILS(call_it(&streamless, array.handle), OA_ERROR_LIBRARY, "streamless has no function for");

  CHECK(asked_before_the_table == 0);
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
  return failures();
}
