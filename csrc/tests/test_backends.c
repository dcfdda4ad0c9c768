/* The backends through their tables: the duties of every backend, then the checks of sim. */
#include "check.h"
#include "device/device.h"
#include "device/memory.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 4096 };

/* Tests request more memory than the host's allocator has. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
const char *__tsan_default_options(void) { return "allocator_may_return_null=1"; }

static oa_device *open_device(const char *name) {
  int number = -1;
  return CHECK_OK(oa_device_open(name, &number)) ? oa_device_of(number) : NULL;
}

static void *new_stream(oa_device *device) {
  void *stream = NULL;
  CHECK_OK(device->backend->stream_create(device, &stream));
  return stream;
}

static uint64_t allocate(oa_device *device, void *stream, size_t nbytes) {
  uint64_t address = 0;
  CHECK_OK(oa_device_allocate(device, stream, nbytes, &address));
  return address;
}

static void up(oa_device *device, void *stream, uint64_t to, const void *from, size_t nbytes) {
  CHECK_OK(device->backend->copy_up(device, stream, to, nbytes, from, nbytes, nbytes, 1));
}

static void down(oa_device *device, void *stream, void *to, uint64_t from, size_t nbytes) {
  CHECK_OK(device->backend->copy_down(device, stream, to, nbytes, from, nbytes, nbytes, 1));
}

static int all(const unsigned char *bytes, int byte, size_t nbytes) {
  for (size_t i = 0; i < nbytes; i++) {
    if (bytes[i] != byte) return 0;
  }
  return 1;
}

/* -- duties of each backend --------------------------------------------------------------------------------------- */

static void bytes_go_up_and_come_down(oa_device *device) {
  const oa_backend *backend = device->backend;
  void *stream = new_stream(device);
  unsigned char bytes[N], back[N];
  for (int i = 0; i < N; i++) bytes[i] = (unsigned char)(i * 7);
  memset(back, 0, N);
  uint64_t address = allocate(device, stream, N);
  up(device, stream, address, bytes, N);
  memset(bytes, 0, N); /* copy_up has read them */
  down(device, stream, back, address, N);
  CHECK_OK(backend->stream_synchronize(device, stream));
  for (int i = 0; i < N; i++) {
    if (!CHECK(back[i] == (unsigned char)(i * 7))) break;
  }
  CHECK_OK(backend->fill(device, stream, address + 100, 200, 3, 1, 200, 1));
  down(device, stream, back, address, N);
  CHECK_OK(oa_device_free(device, stream, address, N));
  CHECK_OK(backend->stream_synchronize(device, stream));
  CHECK(back[99] == (unsigned char)(99 * 7) && all(back + 100, 3, 200) && back[300] == (unsigned char)(300 * 7));
}

/* Copies lines with pitches up and down. The gaps on the host stay unchanged. Large copies are tested, too, because
 * they are staged in another way. */
static void lines_have_pitches(oa_device *device) {
  const oa_backend *backend = device->backend;
  void *stream = new_stream(device);
  const struct {
    size_t width, host_pitch, device_pitch, lines;
  } shapes[] = {{12, 20, 16, 5}, {64, 64, 80, 7}, {4, 8, 4, 1}, {100000, 100004, 100096, 40}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    size_t width = shapes[s].width, host_pitch = shapes[s].host_pitch, pitch = shapes[s].device_pitch;
    size_t lines = shapes[s].lines, nbytes = host_pitch * lines;
    unsigned char *from = malloc(nbytes), *to = malloc(nbytes);
    for (size_t i = 0; i < nbytes; i++) from[i] = (unsigned char)(i % 251);
    memset(to, 0xCC, nbytes);
    uint64_t address = allocate(device, stream, pitch * lines);
    CHECK_OK(backend->copy_up(device, stream, address, pitch, from, host_pitch, width, lines));
    memset(from, 0, nbytes);
    CHECK_OK(backend->copy_down(device, stream, to, host_pitch, address, pitch, width, lines));
    CHECK_OK(oa_device_free(device, stream, address, pitch * lines));
    CHECK_OK(backend->stream_synchronize(device, stream));
    size_t wrong = 0;
    for (size_t i = 0; i < nbytes; i++) wrong += to[i] != (i % host_pitch < width ? i % 251 : 0xCC);
    CHECK(wrong == 0);
    free(from);
    free(to);
  }
}

/* Fills one line and several lines with units of each size. The gaps stay unchanged. */
static void lines_are_filled(oa_device *device) {
  const oa_backend *backend = device->backend;
  void *stream = new_stream(device);
  const uint32_t value = 0x04030201;
  const struct {
    size_t unit, width, pitch, lines;
  } shapes[] = {{1, 100, 100, 1}, {1, 3, 7, 50}, {2, 6, 10, 60}, {4, 4, 12, 300}, {4, 16, 16, 20}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    const size_t unit = shapes[s].unit, width = shapes[s].width, pitch = shapes[s].pitch, lines = shapes[s].lines;
    unsigned char back[N];
    memset(back, 0xCC, N);
    uint64_t address = allocate(device, stream, N);
    up(device, stream, address, back, N);
    CHECK_OK(backend->fill(device, stream, address + 8, pitch, value, unit, width, lines));
    down(device, stream, back, address, N);
    CHECK_OK(oa_device_free(device, stream, address, N));
    CHECK_OK(backend->stream_synchronize(device, stream));
    size_t wrong = 0;
    for (size_t i = 0; i < N; i++) {
      const size_t at = i - 8, column = at % pitch;
      const bool inside = i >= 8 && at / pitch < lines && column < width;
      wrong += back[i] != (inside ? column % unit + 1 : 0xCC);
    }
    CHECK(wrong == 0);
  }
}

/* Copies lines with different pitches within the device. */
static void lines_are_copied_on_the_device(oa_device *device) {
  const oa_backend *backend = device->backend;
  void *stream = new_stream(device);
  const struct {
    size_t width, from_pitch, to_pitch, lines;
  } shapes[] = {{1000, 1000, 1000, 1}, {12, 20, 16, 50}, {8, 8, 24, 100}, {4, 36, 4, 100}};
  for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
    const size_t width = shapes[s].width, from_pitch = shapes[s].from_pitch, to_pitch = shapes[s].to_pitch;
    unsigned char bytes[N], back[N];
    for (size_t i = 0; i < N; i++) bytes[i] = (unsigned char)(i % 199);
    memset(back, 0xCC, N);
    uint64_t from = allocate(device, stream, N), to = allocate(device, stream, N);
    up(device, stream, from, bytes, N);
    up(device, stream, to, back, N);
    CHECK_OK(backend->copy(device, stream, to, to_pitch, from, from_pitch, width, shapes[s].lines));
    down(device, stream, back, to, N);
    CHECK_OK(oa_device_free(device, stream, from, N));
    CHECK_OK(oa_device_free(device, stream, to, N));
    CHECK_OK(backend->stream_synchronize(device, stream));
    size_t wrong = 0;
    for (size_t i = 0; i < N; i++) {
      const size_t line = i / to_pitch, column = i % to_pitch;
      wrong += back[i] != (line < shapes[s].lines && column < width ? (line * from_pitch + column) % 199 : 0xCC);
    }
    CHECK(wrong == 0);
  }
}

/* Makes a chain of copies over several streams. Each copy waits for the event of the copy before it. */
static void events_order_streams(oa_device *device) {
  enum { STREAMS = 3, ROUNDS = 50 };
  const oa_backend *backend = device->backend;
  void *streams[STREAMS], *event;
  for (int i = 0; i < STREAMS; i++) streams[i] = new_stream(device);
  CHECK_OK(backend->event_create(device, &event));
  CHECK_OK(backend->stream_wait(device, streams[1], event)); /* the event was never recorded, so there is no wait */
  uint64_t address = allocate(device, streams[0], N);
  unsigned char bytes[N], back[N];
  for (int round = 0; round < ROUNDS; round++) {
    void *stream = streams[round % STREAMS], *next = streams[(round + 1) % STREAMS];
    memset(bytes, round, N);
    up(device, stream, address, bytes, N);
    CHECK_OK(backend->event_record(device, event, stream));
    CHECK_OK(backend->stream_wait(device, next, event));
    down(device, next, back, address, N);
    CHECK_OK(backend->stream_synchronize(device, next));
    if (!CHECK(all(back, round, N))) break;
  }
  CHECK_OK(backend->event_destroy(device, event));
  CHECK_OK(backend->synchronize(device));
  CHECK_OK(oa_device_free(device, streams[0], address, N));
}

static void memory_is_counted_and_too_much_is_refused(oa_device *device) {
  void *stream = new_stream(device);
  oa_counters before = OA_SIZED(oa_counters), after = OA_SIZED(oa_counters);
  CHECK_OK(oa_device_get_counters(device->number, &before));
  uint64_t address = allocate(device, stream, N);
  CHECK_OK(oa_device_free(device, stream, address, N));
  CHECK_FAILS(oa_device_allocate(device, stream, (size_t)1 << 60, &address), OA_ERROR_MEMORY,
              "1073741824.00 GiB requested");
  CHECK_OK(oa_device_get_counters(device->number, &after));
  CHECK(after.allocations == before.allocations + 1 && after.frees == before.frees + 1);
  CHECK_OK(device->backend->stream_synchronize(device, stream));
  oa_device_info info = OA_SIZED(oa_device_info);
  CHECK_OK(oa_device_get_info(device->number, &info));
  CHECK(strcmp(info.name, device->name) == 0 && info.memory_total >= info.memory_free && info.memory_free > 0);
  CHECK(info.model[0] != '\0' && strcmp(info.backend, device->backend->name) == 0);
  int capturing = -1;
  CHECK_OK(device->backend->stream_capturing(device, stream, &capturing));
  CHECK(capturing == 0);
  CHECK_OK(oa_device_synchronize(device->number));
}

static void each_backend(const char *name) {
  oa_device *device = open_device(name);
  if (!device) return;
  bytes_go_up_and_come_down(device);
  lines_have_pitches(device);
  lines_are_filled(device);
  lines_are_copied_on_the_device(device);
  events_order_streams(device);
  memory_is_counted_and_too_much_is_refused(device);
}

/* -- names -------------------------------------------------------------------------------------------------------- */

static void names(void) {
  int first = -1, second = -1, count = -1;
  CHECK_OK(oa_device_open("sim", &first));
  CHECK_OK(oa_device_open("sim:0", &second));
  CHECK(first == second);
  CHECK_OK(oa_device_open("host:0", &first));
  CHECK(strcmp(oa_device_of(first)->name, "host") == 0);
  CHECK_FAILS(oa_device_open("sim:8", &first), OA_ERROR_UNAVAILABLE, "there are 8 of sim");
  CHECK_FAILS(oa_device_open("host:1", &first), OA_ERROR_UNAVAILABLE, "there is 1 of host, numbered from 0");
  CHECK_FAILS(oa_device_open("tpu:0", &first), OA_ERROR_UNAVAILABLE, "\"tpu:0\"");
  CHECK_FAILS(oa_device_open("", &first), OA_ERROR_UNAVAILABLE, "use one of cuda, hip, host, sim");
  CHECK_FAILS(oa_device_open("cuda:x", &first), OA_ERROR_ARGUMENT, "\"cuda:x\"");
  CHECK_FAILS(oa_device_open("cuda:-1", &first), OA_ERROR_ARGUMENT, "\"cuda:-1\"");
  CHECK_FAILS(oa_device_open("cuda:", &first), OA_ERROR_ARGUMENT, "\"cuda:\"");
  CHECK_FAILS(oa_device_open("sim:1 ", &first), OA_ERROR_ARGUMENT, "\"sim:1 \"");
  CHECK_FAILS(oa_device_open("sim:99999999999999999999", &first), OA_ERROR_ARGUMENT, "needs a number");
  CHECK_FAILS(oa_device_open(NULL, &first), OA_ERROR_ARGUMENT, "name is NULL");
  CHECK_FAILS(oa_device_open("host", NULL), OA_ERROR_ARGUMENT, "device is NULL");
  CHECK_OK(oa_device_count("sim", &count));
  CHECK(count == 8);
  CHECK_FAILS(oa_device_count("tpu", &count), OA_ERROR_ARGUMENT, "no backend \"tpu\"");
  CHECK(oa_device_of(-1) == NULL && oa_device_of(1 << 20) == NULL);
  CHECK_FAILS(oa_device_synchronize(77), OA_ERROR_ARGUMENT, "number 77");
  CHECK(strcmp(oa_status_name(OA_ERROR_TORN), "OA_ERROR_TORN") == 0 && oa_itemsize(OA_C128) == 16);
}

/* -- sim ---------------------------------------------------------------------------------------------------------- */

static void sim_poisons_fresh_memory(oa_device *sim) {
  void *stream = new_stream(sim);
  uint64_t address = allocate(sim, stream, N);
  float values[N / sizeof(float)];
  down(sim, stream, values, address, N);
  CHECK_OK(oa_device_free(sim, stream, address, N));
  CHECK_OK(sim->backend->stream_synchronize(sim, stream));
  CHECK(values[0] != values[0] && values[N / sizeof(float) - 1] != values[N / sizeof(float) - 1]);
}

static void sim_has_a_capacity(oa_device *sim) {
  void *stream = new_stream(sim);
  int64_t free_bytes, total_bytes;
  CHECK_OK(sim->backend->synchronize(sim));
  CHECK_OK(oa_sim_configure(sim->number, 3 * N, 0, 0));
  uint64_t first = allocate(sim, stream, 2 * N), second = 0;
  CHECK_FAILS(oa_device_allocate(sim, stream, 2 * N, &second), OA_ERROR_MEMORY,
              "8192 bytes requested, 4096 bytes free of 12288 bytes, 8192 bytes used");
  CHECK_OK(sim->backend->memory(sim, &free_bytes, &total_bytes));
  CHECK(free_bytes == N && total_bytes == 3 * N);
  /* The free is still under way when more memory is requested. Trimming waits for the free. */
  CHECK_OK(oa_sim_configure(sim->number, 3 * N, 0, 2000));
  CHECK_OK(oa_device_free(sim, stream, first, 2 * N));
  second = allocate(sim, stream, 3 * N);
  CHECK_OK(oa_device_free(sim, stream, second, 3 * N));
  CHECK_OK(oa_sim_configure(sim->number, 0, 0, 0));
  CHECK_OK(sim->backend->synchronize(sim));
  CHECK_OK(sim->backend->memory(sim, &free_bytes, &total_bytes));
  CHECK(free_bytes == total_bytes);
}

static void sim_can_forget_the_order_of_its_streams(oa_device *sim) {
  const oa_backend *backend = sim->backend;
  void *first = new_stream(sim), *second = new_stream(sim), *event;
  uint64_t addresses[2] = {allocate(sim, first, N), allocate(sim, second, N)};
  CHECK_OK(backend->event_create(sim, &event));
  CHECK_OK(backend->synchronize(sim));
  for (int ordered = 0; ordered < 2; ordered++) {
    int done;
    CHECK_OK(oa_sim_order(sim->number, ordered));
    CHECK_OK(oa_sim_configure(sim->number, 0, 0, 50000));
    for (int i = 0; i < 4; i++) CHECK_OK(backend->fill(sim, first, addresses[0], N, 1, 1, N, 1));
    CHECK_OK(backend->event_record(sim, event, first));
    CHECK_OK(backend->stream_wait(sim, second, event));
    CHECK_OK(backend->fill(sim, second, addresses[1], N, 1, 1, N, 1));
    CHECK_OK(backend->stream_synchronize(sim, second));
    CHECK_OK(backend->event_done(sim, event, &done));
    CHECK(done == ordered);
    CHECK_OK(backend->synchronize(sim));
    CHECK_OK(oa_sim_configure(sim->number, 0, 0, 0));
  }
  CHECK_FAILS(oa_sim_order(-2, 0), OA_ERROR_ARGUMENT, "oa_sim_order");
  CHECK_OK(backend->event_destroy(sim, event));
  CHECK_OK(oa_device_free(sim, first, addresses[0], N));
  CHECK_OK(oa_device_free(sim, second, addresses[1], N));
  CHECK_OK(backend->synchronize(sim));
}

/* Makes the calls that can fail. The test makes each of them fail in turn: each failure is reported once, and nothing
 * stays allocated. */
static int some_work(oa_device *sim, void *stream) {
  const oa_backend *backend = sim->backend;
  unsigned char bytes[N] = {0};
  uint64_t address;
  void *event;
  int status = oa_device_allocate(sim, stream, N, &address), released, destroyed;
  if (status) return status;
  status = backend->event_create(sim, &event);
  if (!status) {
    status = backend->copy_up(sim, stream, address, N, bytes, N, N, 1);
    if (!status) status = backend->fill(sim, stream, address, N, 1, 1, N, 1);
    if (!status) status = backend->event_record(sim, event, stream);
    if (!status) status = backend->stream_wait(sim, stream, event);
    if (!status) status = backend->copy_down(sim, stream, bytes, N, address, N, N, 1);
    destroyed = backend->event_destroy(sim, event);
    if (!status) status = destroyed;
  }
  released = oa_device_free(sim, stream, address, N);
  if (!status) status = released;
  int waited = backend->stream_synchronize(sim, stream);
  if (!status) status = waited;
  if (waited) CHECK_OK(backend->stream_synchronize(sim, stream)); /* the stream still uses the bytes */
  if (!status) CHECK(all(bytes, 1, N));
  return status;
}

static void sim_fails_the_call_asked_for(oa_device *sim) {
  void *stream = new_stream(sim);
  int64_t calls = oa_sim_backend_calls(sim->number);
  CHECK_OK(some_work(sim, stream));
  calls = oa_sim_backend_calls(sim->number) - calls;
  CHECK(calls == 10);
  for (int64_t k = 1; k <= calls; k++) {
    char expected[64];
    snprintf(expected, sizeof expected, "failed: SIM_ERROR_INJECTED (call %d)", (int)k);
    CHECK_OK(oa_sim_configure(sim->number, 0, k, 0));
    CHECK_FAILS(some_work(sim, stream), OA_ERROR_BACKEND, expected);
    CHECK_OK(some_work(sim, stream)); /* the failure occurs only once */
    int64_t free_bytes, total_bytes;
    CHECK_OK(sim->backend->memory(sim, &free_bytes, &total_bytes));
    CHECK(free_bytes == total_bytes);
  }
  CHECK_OK(oa_sim_configure(sim->number, 0, 1, 0));
  uint64_t address;
  CHECK_FAILS(oa_device_allocate(sim, stream, 4096, &address), OA_ERROR_BACKEND,
              "sim:1: allocate of 4096 bytes failed: SIM_ERROR_INJECTED (call 1)");
  CHECK_FAILS(oa_sim_configure(sim->number, -1, 0, 0), OA_ERROR_ARGUMENT, "capacity -1");
}

static void sim_finds_late_writes(oa_device *sim) {
  void *stream = new_stream(sim);
  uint64_t address = allocate(sim, stream, N);
  CHECK_OK(oa_device_free(sim, stream, address, N));
  CHECK_OK(sim->backend->stream_synchronize(sim, stream));
  ((unsigned char *)(uintptr_t)address)[17] = 1;
  CHECK_OK(sim->backend->stream_synchronize(sim, stream)); /* the block is still in quarantine */
  CHECK_OK(sim->backend->trim(sim));
  CHECK_FAILS(sim->backend->stream_synchronize(sim, stream), OA_ERROR_BACKEND,
              "SIM_ERROR_WRITE_AFTER_RELEASE: byte 17");
  CHECK_OK(sim->backend->stream_synchronize(sim, stream)); /* the fault was reported once, and is not reported again */
  /* Quarantine is bounded: enough other releases push a block out. */
  address = allocate(sim, stream, N);
  CHECK_OK(oa_device_free(sim, stream, address, N));
  CHECK_OK(sim->backend->stream_synchronize(sim, stream));
  ((unsigned char *)(uintptr_t)address)[N - 1] = 1;
  for (int i = 0; i < 300; i++) CHECK_OK(oa_device_free(sim, stream, allocate(sim, stream, N), N));
  CHECK_FAILS(sim->backend->synchronize(sim), OA_ERROR_BACKEND, "SIM_ERROR_WRITE_AFTER_RELEASE: byte 4095");
}

static void sim_has_red_zones(oa_device *sim) {
  void *stream = new_stream(sim);
  const int at[] = {-1, 100, 163};
  const char *texts[] = {"SIM_ERROR_OUT_OF_BOUNDS: byte -1 of the 100", "byte 100 of the 100", "byte 163 of the 100"};
  for (int i = 0; i < 3; i++) {
    uint64_t address = allocate(sim, stream, 100);
    CHECK_OK(sim->backend->stream_synchronize(sim, stream));
    ((unsigned char *)(uintptr_t)address)[at[i]] = 1;
    CHECK_OK(oa_device_free(sim, stream, address, 100));
    CHECK_FAILS(sim->backend->stream_synchronize(sim, stream), OA_ERROR_BACKEND, texts[i]);
  }
}

static void sim_checks_addresses(oa_device *sim) {
  const oa_backend *backend = sim->backend;
  void *stream = new_stream(sim), *event;
  unsigned char bytes[2 * N] = {0};
  uint64_t address = allocate(sim, stream, N);
  CHECK_FAILS(backend->copy_up(sim, stream, address, N, bytes, N, N + 1, 1), OA_ERROR_BACKEND,
              "SIM_ERROR_ILLEGAL_ADDRESS");
  CHECK_FAILS(backend->copy_up(sim, stream, address + 1, N, bytes, N, N, 1), OA_ERROR_BACKEND,
              "SIM_ERROR_ILLEGAL_ADDRESS");
  CHECK_FAILS(backend->copy_down(sim, stream, bytes, N, address - 1, N, 4, 1), OA_ERROR_BACKEND, "ILLEGAL_ADDRESS");
  CHECK_FAILS(backend->copy_down(sim, stream, bytes, N, address, N - 1, 2, 2), OA_ERROR_BACKEND, "ILLEGAL_ADDRESS");
  CHECK_OK(backend->copy_down(sim, stream, bytes, N, address, N - 2, 2, 2));
  CHECK_FAILS(backend->fill(sim, stream, (uintptr_t)bytes, N, 0, 1, N, 1), OA_ERROR_BACKEND,
              "SIM_ERROR_ILLEGAL_ADDRESS");
  CHECK_FAILS(backend->copy_up(sim, stream, address, 1, bytes, 2, 2, 2), OA_ERROR_BACKEND, "SIM_ERROR_INVALID_PITCH");
  CHECK_FAILS(backend->free(sim, stream, address, N - 1), OA_ERROR_BACKEND, "SIM_ERROR_INVALID_VALUE");
  CHECK_OK(backend->free(sim, stream, address, N));
  CHECK_FAILS(backend->free(sim, stream, address, N), OA_ERROR_BACKEND, "SIM_ERROR_INVALID_VALUE");
  CHECK_FAILS(backend->fill(sim, stream, address, 1, 0, 1, 1, 1), OA_ERROR_BACKEND, "SIM_ERROR_ILLEGAL_ADDRESS");
  CHECK_FAILS(backend->copy(sim, stream, address, 1, address, 1, 1, 1), OA_ERROR_BACKEND, "SIM_ERROR_ILLEGAL_ADDRESS");
  CHECK_FAILS(backend->fill(sim, stream, address, 3, 0, 4, 4, 2), OA_ERROR_BACKEND, "SIM_ERROR_INVALID_VALUE");
  CHECK_OK(backend->event_create(sim, &event));
  CHECK_FAILS(backend->event_record(sim, event, bytes), OA_ERROR_BACKEND, "SIM_ERROR_INVALID_HANDLE");
  CHECK_FAILS(backend->stream_synchronize(sim, NULL), OA_ERROR_BACKEND, "SIM_ERROR_INVALID_HANDLE");
  CHECK_OK(backend->event_destroy(sim, event));
  CHECK_OK(backend->synchronize(sim));
}

/* An operation may run after its call has returned, and streams don't wait for each other by themselves. */
static void set_flag(void *argument) { atomic_store(*(atomic_int **)argument, 1); }

static void await_flag(void *argument) {
  while (!atomic_load(*(atomic_int **)argument)) usleep(100);
}

static void sim_is_asynchronous(oa_device *sim) {
  const oa_backend *backend = sim->backend;
  void *first = new_stream(sim), *second = new_stream(sim), *event;
  atomic_int go = 0, done = 0;
  atomic_int *go_pointer = &go, *done_pointer = &done;
  unsigned char bytes[N], back[N];
  memset(bytes, 5, N);
  memset(back, 9, N);
  uint64_t address = allocate(sim, first, N);
  CHECK_OK(backend->event_create(sim, &event));
  CHECK_OK(backend->submit(sim, first, await_flag, &go_pointer, sizeof go_pointer));
  up(sim, first, address, bytes, N);
  down(sim, first, back, address, N);
  memset(bytes, 6, N);
  CHECK_OK(backend->event_record(sim, event, first));
  CHECK(all(back, 9, N));
  /* The second stream does not wait for the first stream before it waits for the first stream's event. */
  CHECK_OK(backend->submit(sim, second, set_flag, &done_pointer, sizeof done_pointer));
  CHECK_OK(backend->stream_synchronize(sim, second));
  CHECK(atomic_load(&done) == 1);
  atomic_store(&done, 0);
  CHECK_OK(backend->stream_wait(sim, second, event));
  /* The stream waits for the record that existed at the call of stream_wait, even if the event is recorded again and
   * destroyed. */
  CHECK_OK(backend->event_record(sim, event, second));
  CHECK_OK(backend->event_destroy(sim, event));
  CHECK_OK(backend->submit(sim, second, set_flag, &done_pointer, sizeof done_pointer));
  usleep(20000);
  CHECK(atomic_load(&done) == 0);
  atomic_store(&go, 1);
  CHECK_OK(backend->stream_synchronize(sim, second));
  CHECK(atomic_load(&done) == 1 && all(back, 5, N));
  CHECK_OK(oa_device_free(sim, second, address, N));
  CHECK_OK(backend->synchronize(sim));
}

static void *many_calls(void *argument) {
  oa_device *sim = argument;
  void *stream = new_stream(sim);
  for (int i = 0; i < 100; i++) CHECK_OK(some_work(sim, stream));
  return NULL;
}

static void sim_serves_many_threads(oa_device *sim) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, many_calls, sim);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  CHECK_OK(sim->backend->synchronize(sim));
}

/* -- cuda --------------------------------------------------------------------------------------------------------- */

/* Promise T19. A call leaves the current context unchanged: no context, the backend's context, or another context. */
static void cuda_leaves_the_current_context_alone(oa_device *cuda) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  int (*get)(void **), (*set)(void *), (*create)(void **, unsigned, int), (*destroy)(void *);
  *(void **)&get = dlsym(library, "cuCtxGetCurrent");
  *(void **)&set = dlsym(library, "cuCtxSetCurrent");
  *(void **)&create = dlsym(library, "cuCtxCreate_v2");
  *(void **)&destroy = dlsym(library, "cuCtxDestroy_v2");
  void *contexts[3] = {NULL}, *current = NULL, *saved = NULL;
  CHECK_OK(cuda->backend->enter(cuda, &saved));
  CHECK(get(&contexts[1]) == 0 && contexts[1] != NULL);
  CHECK_OK(cuda->backend->leave(cuda, saved));
  CHECK(create(&contexts[2], 0, 0) == 0);
  for (int i = 0; i < 3; i++) {
    CHECK(set(contexts[i]) == 0);
    bytes_go_up_and_come_down(cuda);
    memory_is_counted_and_too_much_is_refused(cuda);
    CHECK(get(&current) == 0 && current == contexts[i]);
  }
  CHECK(destroy(contexts[2]) == 0 && set(NULL) == 0);
}

/* The device itself reads pinned memory, and may do so later, so copy_up has to wait for the read. */
static void cuda_has_read_pinned_memory(oa_device *cuda) {
  enum { LARGE = 64 << 20 };
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  int (*pinned)(void **, size_t), (*unpin)(void *);
  *(void **)&pinned = dlsym(library, "cuMemAllocHost_v2");
  *(void **)&unpin = dlsym(library, "cuMemFreeHost");
  void *stream = new_stream(cuda), *saved, *bytes = NULL;
  CHECK_OK(cuda->backend->enter(cuda, &saved));
  if (CHECK(pinned(&bytes, LARGE) == 0)) {
    uint64_t address = allocate(cuda, stream, LARGE);
    memset(bytes, 7, LARGE);
    up(cuda, stream, address, bytes, LARGE);
    memset(bytes, 8, LARGE);
    down(cuda, stream, bytes, address, LARGE);
    CHECK_OK(oa_device_free(cuda, stream, address, LARGE));
    CHECK_OK(cuda->backend->stream_synchronize(cuda, stream));
    CHECK(all(bytes, 7, LARGE));
    CHECK(unpin(bytes) == 0);
  }
  CHECK_OK(cuda->backend->leave(cuda, saved));
}

/* -- losing a device, forking ------------------------------------------------------------------------------------- */

static void a_lost_device_tells_its_first_cause(void) {
  oa_device *sim = open_device("sim:7");
  if (!sim) return;
  CHECK_OK(oa_device_usable(sim));
  CHECK_FAILS(oa_device_lost(sim, "the first cause"), OA_ERROR_LOST, "sim:7 is lost: the first cause");
  CHECK_FAILS(oa_device_lost(sim, "another"), OA_ERROR_LOST, "another");
  CHECK_FAILS(oa_device_usable(sim), OA_ERROR_LOST, "sim:7 is lost: the first cause");
  CHECK_FAILS(oa_device_synchronize(sim->number), OA_ERROR_LOST, "the first cause");
}

static void a_forked_child_is_told(oa_device *sim) {
  pid_t child = fork();
  if (child == 0) {
    atomic_store(&check_failures, 0);
    int number;
    oa_counters counters = OA_SIZED(oa_counters);
    CHECK_FAILS(oa_device_open("host", &number), OA_ERROR_FORKED, "oa_device_open: this process was forked");
    CHECK_FAILS(oa_device_synchronize(sim->number), OA_ERROR_FORKED, "spawn method");
    CHECK_FAILS(oa_device_get_counters(sim->number, &counters), OA_ERROR_FORKED, "spawn method");
    CHECK_FAILS(oa_sim_configure(sim->number, 0, 0, 0), OA_ERROR_FORKED, "spawn method");
    CHECK_FAILS(oa_device_usable(sim), OA_ERROR_FORKED, "spawn method");
    _exit(failures());
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK_OK(oa_device_synchronize(sim->number));
}

int main(void) {
  each_backend("host");
  each_backend("sim:0");
  int cuda_devices = 0;
  CHECK_OK(oa_device_count("cuda", &cuda_devices));
  if (cuda_devices) {
    each_backend("cuda:0");
    oa_device *cuda = open_device("cuda:0");
    if (cuda) {
      cuda_leaves_the_current_context_alone(cuda);
      cuda_has_read_pinned_memory(cuda);
    }
  } else {
    printf("cuda: %s\n", oa_last_error());
    int number;
    CHECK_FAILS(oa_device_open("cuda", &number), OA_ERROR_UNAVAILABLE, "no device \"cuda\"");
  }
  int hip_devices = 0;
  if (oa_device_count("hip", &hip_devices) == OA_OK && hip_devices) each_backend("hip:0");
  names();
  oa_device *sim = open_device("sim:1");
  if (sim) {
    sim_poisons_fresh_memory(sim);
    sim_has_a_capacity(sim);
    sim_can_forget_the_order_of_its_streams(sim);
    sim_fails_the_call_asked_for(sim);
    sim_finds_late_writes(sim);
    sim_has_red_zones(sim);
    sim_checks_addresses(sim);
    sim_is_asynchronous(sim);
    sim_serves_many_threads(sim);
    a_lost_device_tells_its_first_cause();
    a_forked_child_is_told(sim);
  }
  return failures();
}
