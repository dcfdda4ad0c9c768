/* Libraries with handles that lack some of the functions that cuBLAS has for handles. */
#include "check.h"
#include "library/library.h"

#include <string.h>

static int created, bound, modes_set, asked_before_the_table, mode = 1, answer = 3, binding = 3;
static void *stream_of_caller;

static int ask(void) {
  asked_before_the_table++;
  return 3;
}
static int make_handle(void **handle) {
  created++;
  *handle = &created;
  return 3;
}
static int bind_handle(void *handle, void *stream) {
  bound += handle == &created && stream;
  return binding;
}
static int stream_of(void *handle, void **stream) {
  (void)handle;
  *stream = stream_of_caller;
  return 3;
}
static int set_mode(void *handle, int wanted) {
  (void)handle;
  modes_set++;
  mode = wanted;
  return 3;
}

/* The index -1 would read memory before a library's addresses. */
static void *addresses[] = {(void *)ask, (void *)make_handle, (void *)bind_handle, (void *)stream_of, (void *)set_mode};
static const char *const symbols[] = {"create", "bind", "stream", "mode"};
static oa_library_state states[9];
#define LIBRARY(number, called, create_it, bind_it, stream, mode_set) \
  {.name = called,                                                    \
   .backend = tested_backend,                                         \
   .symbols = symbols,                                                \
   .addresses = addresses + 1,                                        \
   .state = &states[number],                                          \
   .symbol_count = 4,                                                 \
   .success = 3,                                                      \
   .create = create_it,                                               \
   .destroy = -1,                                                     \
   .set_stream = bind_it,                                             \
   .get_stream = stream,                                              \
   .set_pointer_mode = mode_set,                                      \
   .get_pointer_mode = -1,                                            \
   .host_mode = 0,                                                    \
   .device_mode = 1}
static const oa_library plain = LIBRARY(0, "plain", 0, 1, 2, -1), settable = LIBRARY(1, "settable", 0, 1, 2, 3),
                        streamless = LIBRARY(2, "streamless", 0, 1, -1, -1),
                        unbound = LIBRARY(3, "unbound", 0, -1, -1, -1), bare = LIBRARY(4, "bare", -1, -1, -1, -1);
static const oa_library elsewhere = {
    .name = "elsewhere", .backend = "quantum", .state = &states[5], .create = -1, .set_stream = -1};
/* More libraries than any build has had so far. */
static const oa_library more[] = {{.name = "sixth", .state = &states[6], .create = -1},
                                  {.name = "seventh", .state = &states[7], .create = -1},
                                  {.name = "eighth", .state = &states[8], .create = -1}};
const oa_library *const oa_libraries[] = {&more[0], &more[1], &more[2],  &elsewhere,  &bare,
                                          &unbound, &plain,   &settable, &streamless, NULL};

static int call_it(const oa_library *library, const oa_any *x) {
  oa_operand operand = {.name = "x", .pointer = x, .access = OA_READ, .dtype = OA_F32, .extent = OA_ELEMENTS(4)};
  oa_call call = {.function = "test.read", .library = library, .operands = &operand, .count = 1};
  const int status = oa_begin(&call);
  return status ? status : oa_end(&call, answer);
}

int main(void) {
  float values[4] = {1, 2, 3, 4};
  const int64_t shape = 4, stride = sizeof(float);
  int device;
  oa_region *region;
  oa_array array = {
      .data = values, .shape = &shape, .strides = &stride, .ndim = 1, .dtype = OA_F32, .direction = OA_IN};
  CHECK_OK(oa_device_open("sim:0", &device));
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, &region));
  oa_device *sim = oa_device_of(device);
  CHECK_OK(sim->backend->stream_create(sim, &stream_of_caller));

  binding = 4; /* a handle that could not be bound is used once it can be bound */
  CHECK_FAILS(call_it(&plain, array.handle), OA_ERROR_LIBRARY, "plain: bind failed: status (4)");
  binding = 3;
  CHECK_OK(call_it(&plain, array.handle));
  CHECK(created == 1 && bound == 2 && modes_set == 0);
  CHECK_OK(oa_use_handle("plain", &mode));
  CHECK_OK(call_it(&plain, array.handle));
  CHECK(created == 1 && modes_set == 0);

  CHECK_OK(call_it(&settable, array.handle));
  CHECK(modes_set == 1 && mode == 0);
  mode = 1;
  CHECK_OK(oa_use_handle("settable", &mode));
  CHECK_OK(call_it(&settable, array.handle));
  CHECK(modes_set == 2 && mode == 0); /* the library does not report the mode, so each call sets it */

  CHECK_OK(call_it(&streamless, array.handle));
  CHECK_OK(oa_use_handle("streamless", &mode));
  CHECK_FAILS(call_it(&streamless, array.handle), OA_ERROR_ARGUMENT, "the stream of an address is not known");

  /* libraries without a function for the stream, and without handles: the core waits for the call */
  created = bound = 0;
  CHECK_OK(call_it(&unbound, array.handle));
  CHECK(created == 1 && bound == 0);
  CHECK_OK(call_it(&bare, array.handle));
  CHECK(created == 1 && bound == 0);
  CHECK_FAILS(oa_use_handle("bare", &mode), OA_ERROR_ARGUMENT, "bare: this library has no handles");
  CHECK_FAILS(call_it(&elsewhere, array.handle), OA_ERROR_DEVICE,
              "x is on sim:0; elsewhere works on quantum devices, which this build has no backend for");

  answer = 0; /* success is 3 here */
  CHECK_FAILS(call_it(&bare, array.handle), OA_ERROR_LIBRARY, "test.read: the library returned status (0)");

  CHECK(asked_before_the_table == 0);
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
  return failures();
}
