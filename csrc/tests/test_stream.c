/* Streams of the caller's own, and memory that is freed while streams are busy, on sim. */
#include "device/stream.h"
#include "library/library.h"
#include "one_device.h"

#include <string.h>

/* A library whose handles are counted; each has its pointer mode. */
enum { MOST_HANDLES = 8 };
static int handles_made, modes[MOST_HANDLES];
static int is_handle(const void *handle) {
  return (const int *)handle >= modes && (const int *)handle < modes + handles_made;
}
static int make_handle(void **handle) {
  if (handles_made == MOST_HANDLES) return 1;
  modes[handles_made] = -1;
  *handle = &modes[handles_made++];
  return 0;
}
static int bind_handle(void *handle, void *stream) { return is_handle(handle) && stream ? 0 : 1; }
static int set_mode(void *handle, int mode) {
  if (!is_handle(handle) || mode < 0) return 1;
  *(int *)handle = mode;
  return 0;
}

static const char *const symbols[] = {"create", "bind", "mode"};
static void *addresses[] = {(void *)make_handle, (void *)bind_handle, (void *)set_mode};
static oa_library_state state;
static const oa_library counted = {.name = "counted",
                                   .backend = tested_backend,
                                   .symbols = symbols,
                                   .addresses = addresses,
                                   .state = &state,
                                   .symbol_count = 3,
                                   .create = 0,
                                   .destroy = -1,
                                   .set_stream = 1,
                                   .get_stream = -1,
                                   .set_pointer_mode = 2,
                                   .get_pointer_mode = -1,
                                   .host_mode = 3,
                                   .device_mode = 4};
const oa_library *const oa_libraries[] = {&counted, NULL};

/* The operand x of a call that reads a lent vector. */
static oa_operand reading(const oa_array *array) {
  return (oa_operand){.name = "x",
                      .pointer = array->handle,
                      .access = OA_READ,
                      .dtype = OA_F32,
                      .extent = OA_VECTOR(array->shape[0], 1, "n", "incx")};
}

/* A handle that was made for a caller's stream is used again when its region has ended: handles are expensive. */
static void handles_of_callers_streams_are_used_again(void) {
  float x[4] = {1, 2, 3, 4};
  int64_t n = 4;
  oa_device *sim = oa_device_of(device);
  oa_region_options options = OA_SIZED(oa_region_options, .has_stream = 1);
  CHECK_OK(sim->backend->stream_create(sim, &options.stream));
  handles_made = 0;
  for (int i = 0; i < 3; i++) {
    oa_array array = vector(x, &n, OA_IN);
    oa_region *region;
    CHECK_OK(oa_region_enter(device, &options, &array, 1, &region));
    oa_operand operand = reading(&array);
    oa_call call = {.function = "counted.read", .library = &counted, .operands = &operand, .count = 1};
    CHECK_OK(oa_begin(&call));
    CHECK(call.handle == &modes[0]);
    CHECK_OK(oa_end(&call, 0));
    leave(region);
  }
  CHECK(handles_made == 1);
  check_empty();
}

/* A handle's pointer mode never changes while another thread calls with it: calls on one stream have one handle for
 * scalars on the host and another for scalars on the device. */
static void calls_with_scalars_on_host_and_device_overlap(void) {
  float x[4] = {1, 2, 3, 4};
  int64_t n = 4;
  oa_array array = vector(x, &n, OA_IN);
  oa_region *region;
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, &region));
  oa_operand operands[2];
  oa_call calls[2];
  for (int i = 0; i < 2; i++) {
    operands[i] = reading(&array);
    calls[i] = (oa_call){
        .function = "counted.read", .library = &counted, .operands = &operands[i], .count = 1, .device_scalars = i};
    CHECK_OK(oa_begin(&calls[i]));
  }
  CHECK(*(int *)calls[0].handle == counted.host_mode);
  CHECK(*(int *)calls[1].handle == counted.device_mode);
  for (int i = 0; i < 2; i++) CHECK_OK(oa_end(&calls[i], 0));
  leave(region);
  check_empty();
}

/* Other streams wait for the last operation that a stream has noted. The ends of failed and of traced calls are noted
 * like the usual end. */
static void every_end_of_a_call_is_noted_in_its_stream(void) {
  float x[4] = {1, 2, 3, 4};
  int64_t n = 4;
  oa_array array = vector(x, &n, OA_IN);
  oa_region *region;
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, &region));
  for (int traced = 0; traced < 2; traced++) {
    CHECK_OK(oa_trace_set(traced ? OA_TRACE_ON : 0));
    for (int vendor_status = 0; vendor_status < 2; vendor_status++) {
      oa_operand operand = reading(&array);
      oa_call call = {.function = "counted.read", .library = &counted, .operands = &operand, .count = 1};
      CHECK_OK(oa_begin(&call));
      const oa_stream *stream = call.stream;
      const uint64_t before = stream->ticket;
      if (vendor_status)
        CHECK_FAILS(oa_end(&call, vendor_status), OA_ERROR_LIBRARY, "counted.read");
      else
        CHECK_OK(oa_end(&call, vendor_status));
      CHECK(stream->ticket == before + 1);
    }
  }
  CHECK_OK(oa_trace_set(0));
  leave(region);
  check_empty();
}

/* Promise T08. Each device scalar is freed before the call that reads it has run, and later scalars take its memory. */
static void memory_freed_behind_a_busy_stream_is_whole_for_its_next_user(void) {
  enum { REGIONS = 3, ROUNDS = 20 };
  float sums[REGIONS] = {0};
  int64_t n = 1;
  oa_device *sim = oa_device_of(device);
  /* The first region's calls run on another stream than the stream that frees its memory. */
  oa_region_options options = OA_SIZED(oa_region_options, .has_stream = 1);
  oa_region *regions[REGIONS];
  oa_array arrays[REGIONS];
  CHECK_OK(sim->backend->stream_create(sim, &options.stream));
  for (int i = 0; i < REGIONS; i++) {
    arrays[i] = vector(&sums[i], &n, OA_INOUT);
    CHECK_OK(oa_region_enter(device, i ? NULL : &options, &arrays[i], 1, &regions[i]));
  }
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < REGIONS; i++) {
      const float factor = (float)(round * REGIONS + i + 1);
      oa_any *staged;
      CHECK_OK(oa_stage(arrays[i].handle, &factor, OA_F32, &staged));
      CHECK_OK(axpy(1, staged, 1, arrays[i].handle, 1, 1, 0));
      CHECK_OK(oa_pointer_release(staged));
    }
  for (int i = 0; i < REGIONS; i++) leave(regions[i]);
  for (int i = 0; i < REGIONS; i++) CHECK(sums[i] == (float)(ROUNDS * (i + 1) + REGIONS * ROUNDS * (ROUNDS - 1) / 2));
  check_empty();
}

/* A backend that finds uses of the stream `gone`. */
static const oa_backend *real;
static void *gone;

static int watched_record(oa_device *sim, void *event, void *stream) {
  CHECK(stream != gone);
  return real->event_record(sim, event, stream);
}
static int watched_wait(oa_device *sim, void *stream, void *event) {
  CHECK(stream != gone);
  return real->stream_wait(sim, stream, event);
}
static int watched_synchronize(oa_device *sim, void *stream) {
  CHECK(stream != gone);
  return real->stream_synchronize(sim, stream);
}
static int watched_free(oa_device *sim, void *stream, uint64_t address, size_t nbytes) {
  CHECK(stream != gone);
  return real->free(sim, stream, address, nbytes);
}
static int watched_copy_down(oa_device *sim, void *stream, void *to, size_t to_pitch, uint64_t from, size_t from_pitch,
                             size_t width, size_t lines) {
  CHECK(stream != gone);
  return real->copy_down(sim, stream, to, to_pitch, from, from_pitch, width, lines);
}

/* Promise T09. */
static void a_callers_stream_that_is_gone_is_left_alone(void) {
  float x[4] = {1, 2, 3, 4}, y[4] = {0}, z[4] = {0};
  int64_t n = 4;
  oa_device *sim = oa_device_of(device);
  real = sim->backend;
  oa_backend watched = *real;
  watched.event_record = watched_record;
  watched.stream_wait = watched_wait;
  watched.stream_synchronize = watched_synchronize;
  watched.free = watched_free;
  watched.copy_down = watched_copy_down;
  sim->backend = &watched;
  for (int nested = 0; nested < 2; nested++) { /* with and without another region that uses the results of the stream */
    oa_region *outer = NULL, *region;
    oa_array kept[] = {vector(y, &n, OA_INOUT), vector(z, &n, OA_INOUT)};
    oa_array lent[] = {vector(x, &n, OA_IN), vector(y, &n, OA_INOUT)};
    oa_region_options options = OA_SIZED(oa_region_options, .has_stream = 1);
    CHECK_OK(real->stream_create(sim, &options.stream));
    if (nested) CHECK_OK(oa_region_enter(device, NULL, kept, 2, &outer));
    CHECK_OK(oa_region_enter(device, &options, lent, 2, &region));
    for (int i = 0; i < 10; i++) CHECK_OK(axpy(1, lent[0].handle, 1, lent[1].handle, 1, 4, 0));
    gone = options.stream;
    if (nested) CHECK_OK(axpy(1, kept[0].handle, 1, kept[1].handle, 1, 4, 0));
    CHECK_OK(oa_update_from(&lent[1], -1));
    CHECK(y[0] == (nested ? 20 : 10));
    leave(region);
    if (nested) CHECK_OK(axpy(1, kept[0].handle, 1, kept[1].handle, 1, 4, 0));
    if (nested) leave(outer);
    CHECK(y[3] == (nested ? 80 : 40) && z[3] == (nested ? 160 : 0));
    gone = NULL;
  }
  sim->backend = real;
  check_empty();
}

/* Makes the thread's former device current, and reports that it could not. */
static int fail_to_leave(oa_device *sim, void *saved) {
  if (real->leave) CHECK_OK(real->leave(sim, saved));
  return oa_fail(OA_ERROR_BACKEND, "no former device");
}

/* A call of a library has at least one operand. A failure after the library's function is the call's status. */
static void a_library_call_fails_before_and_after_its_function(void) {
  float x[4] = {1, 2, 3, 4};
  int64_t n = 4;
  oa_array array = vector(x, &n, OA_IN);
  oa_region *region;
  oa_device *sim = oa_device_of(device);
  real = sim->backend;
  oa_backend failing = *real;
  failing.leave = fail_to_leave;
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, &region));
  oa_operand operand = reading(&array);
  oa_call call = {.function = "counted.read", .library = &counted, .operands = &operand, .count = 0};
  CHECK_FAILS(oa_begin(&call), OA_ERROR_ARGUMENT, "at least 1 operand, got 0");
  call.count = 1;
  CHECK_OK(oa_begin(&call));
  sim->backend = &failing;
  CHECK_FAILS(oa_end(&call, 0), OA_ERROR_BACKEND, "no former device");
  sim->backend = real;
  leave(region);
  check_empty();
}

int main(void) {
  const char *const names[] = {"host", "sim:0", "sim:1"};
  for (int i = on_doubles(); i < 3; i++) {
    CHECK_OK(oa_device_open(names[i], &device));
    if (i == 2) CHECK_OK(oa_sim_configure(device, 0, 0, 200));
    if (i == 1) handles_of_callers_streams_are_used_again();
    if (i == 1) calls_with_scalars_on_host_and_device_overlap();
    if (i == 1) every_end_of_a_call_is_noted_in_its_stream();
    if (i == 1) a_library_call_fails_before_and_after_its_function();
    if (i > 0) memory_freed_behind_a_busy_stream_is_whole_for_its_next_user();
    if (i > 0) a_callers_stream_that_is_gone_is_left_alone();
  }
  return failures();
}
