/* The handles that calls take: an open call has a handle for itself, unless the library's handles are shared. */
#include "check.h"
#include "library/handles.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MOST = 64, THREADS = 4, TURNS = 2000, FAILS = 4 };
typedef struct handle {
  atomic_int users;
  void *stream;
  int mode;
} handle;
static handle handles[MOST];
static atomic_int created, overlaps;
static int binding;

static int create(void **created_handle) {
  *created_handle = &handles[created++];
  return OA_OK;
}
static int set_stream(void *of, void *stream) {
  if (!binding) ((handle *)of)->stream = stream;
  return binding;
}
static int get_stream(void *of, void **stream) {
  *stream = ((handle *)of)->stream;
  return OA_OK;
}
static int set_mode(void *of, int mode) {
  ((handle *)of)->mode = mode;
  return OA_OK;
}
static int get_mode(void *of, int *mode) {
  *mode = ((handle *)of)->mode;
  return OA_OK;
}

static void *addresses[][5] = {
    {(void *)create, (void *)set_stream, (void *)get_stream, (void *)set_mode, (void *)get_mode},
    {(void *)create, (void *)set_stream, (void *)get_stream, (void *)set_mode, (void *)get_mode}};
static const char *const symbols[] = {"create", "set_stream", "get_stream", "set_mode", "get_mode"};
static oa_library_state states[2];
#define LIBRARY(number, called, shared) \
  {.name = called,                      \
   .backend = tested_backend,           \
   .symbols = symbols,                  \
   .addresses = addresses[number],      \
   .state = &states[number],            \
   .symbol_count = 5,                   \
   .create = 0,                         \
   .destroy = -1,                       \
   .set_stream = 1,                     \
   .get_stream = 2,                     \
   .set_pointer_mode = 3,               \
   .get_pointer_mode = 4,               \
   .host_mode = 0,                      \
   .device_mode = 1,                    \
   .shares_handles = shared}
static const oa_library exclusive = LIBRARY(0, "exclusive", 0), shared = LIBRARY(1, "shared", 1);
const oa_library *const oa_libraries[] = {&exclusive, &shared, NULL};

static float values[4] = {1, 2, 3, 4};
static const int64_t shape = 4, stride = sizeof(float);
static oa_array array = {
    .data = values, .shape = &shape, .strides = &stride, .ndim = 1, .dtype = OA_F32, .direction = OA_IN};

/* A call with its operand. */
typedef struct reading {
  oa_operand operand;
  oa_call call;
} reading;

static int begin(reading *r, const oa_library *library, int on_device) {
  *r = (reading){
      .operand = {.name = "x", .pointer = array.handle, .access = OA_READ, .dtype = OA_F32, .extent = OA_ELEMENTS(4)},
      .call = {.function = "test.read", .library = library, .count = 1, .device_scalars = on_device}};
  r->call.operands = &r->operand;
  return oa_begin(&r->call);
}

static int mode_of(const reading *r) { return ((const handle *)r->call.handle)->mode; }

static void test_open_calls(void) {
  reading a, b, c;
  CHECK_OK(begin(&a, &exclusive, 0));
  CHECK_OK(begin(&b, &exclusive, 0));
  CHECK_OK(begin(&c, &exclusive, 1));
  void *const first = a.call.handle, *const second = b.call.handle;
  CHECK(first && first != second && c.call.handle != first && c.call.handle != second);
  CHECK(mode_of(&a) == 0 && mode_of(&b) == 0 && mode_of(&c) == 1);
  CHECK(handles[0].stream == handles[1].stream && handles[0].stream == handles[2].stream);
  CHECK_OK(oa_end(&a.call, 0));
  CHECK_OK(oa_end(&b.call, 0));
  CHECK_OK(oa_end(&c.call, 0));
  CHECK_OK(begin(&a, &exclusive, 0)); /* the handles are used again, in their modes */
  CHECK_OK(begin(&b, &exclusive, 0));
  CHECK_OK(begin(&c, &exclusive, 1));
  CHECK(created == 3 && mode_of(&a) == 0 && mode_of(&b) == 0 && mode_of(&c) == 1);
  CHECK_FAILS(oa_end(&a.call, 7), OA_ERROR_LIBRARY, "status (7)"); /* a failed call returns its handle, too */
  CHECK_OK(oa_end(&b.call, 0));
  CHECK_OK(oa_end(&c.call, 0));
  CHECK_OK(begin(&a, &exclusive, 0));
  CHECK_OK(begin(&b, &exclusive, 0));
  CHECK(created == 3);
  CHECK_OK(oa_end(&b.call, 0));
  CHECK_OK(oa_end(&a.call, 0));
}

static void test_shared_handles(void) {
  reading a, b;
  const int before = created;
  CHECK_OK(begin(&a, &shared, 0));
  CHECK_OK(begin(&b, &shared, 0));
  CHECK(a.call.handle == b.call.handle && created == before + 1);
  CHECK_OK(oa_end(&a.call, 0));
  CHECK_OK(oa_end(&b.call, 0));
}

/* A handle that the caller set is the caller's to share. */
static void test_handle_of_the_caller(void) {
  static handle own;
  reading a, b;
  const int before = created;
  own.stream = handles[0].stream;
  own.mode = 1;
  CHECK_OK(oa_use_handle("exclusive", &own));
  CHECK_OK(begin(&a, &exclusive, 0));
  CHECK_OK(begin(&b, &exclusive, 0));
  CHECK(a.call.handle == &own && b.call.handle == &own && own.mode == 0);
  CHECK_OK(oa_end(&b.call, 0));
  CHECK_OK(oa_end(&a.call, 0));
  CHECK(own.mode == 1 && created == before);
  CHECK_OK(oa_use_handle("exclusive", NULL));
  CHECK_OK(begin(&a, &exclusive, 0));
  CHECK(a.call.handle != &own);
  CHECK_OK(oa_end(&a.call, 0));
}

static void *read_often(void *unused) {
  for (int turn = 0; turn < TURNS; turn++) {
    reading r;
    CHECK_OK(begin(&r, &exclusive, 0));
    handle *own = r.call.handle;
    if (own->users++) overlaps++;
    own->users--;
    CHECK_OK(oa_end(&r.call, 0));
  }
  return unused;
}

/* Promise T17. */
static void threads_have_handles_of_their_own(void) {
  pthread_t threads[THREADS];
  const int before = created;
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, read_often, NULL) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  CHECK(overlaps == 0);
  CHECK(created <= before + THREADS);
}

/* The handles of a caller's stream pass to the next stream when its region is left. */
static void test_streams_of_callers(oa_device *of, int device) {
  const int before = created;
  for (int turn = 0; turn < 3; turn++) {
    oa_region *region;
    reading a, b;
    void *stream;
    CHECK_OK(of->backend->stream_create(of, &stream));
    const oa_region_options options = OA_SIZED(oa_region_options, .stream = stream, .has_stream = 1);
    CHECK_OK(oa_region_enter(device, &options, &array, 1, &region));
    binding = FAILS; /* a handle that could not be bound is used once it can be bound */
    CHECK_FAILS(begin(&a, &exclusive, 0), OA_ERROR_LIBRARY, "exclusive: set_stream failed: status (4)");
    binding = 0;
    CHECK_OK(begin(&a, &exclusive, 0));
    CHECK_OK(begin(&b, &exclusive, 0));
    CHECK(a.call.handle != b.call.handle);
    CHECK(((handle *)a.call.handle)->stream == stream && ((handle *)b.call.handle)->stream == stream);
    CHECK_OK(oa_end(&a.call, 0));
    CHECK_OK(oa_end(&b.call, 0));
    CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
    CHECK_OK(oa_region_wait(region));
  }
  CHECK(created == before + 2);
}

/* A captured stream can't wait for a handle's former calls, but takes the handle once they are over. */
static void test_captured_streams(oa_device *of, int device) {
  const int before = created;
  for (int turn = 0; turn < 8; turn++) {
    oa_region *region;
    reading a;
    void *stream, *captured;
    CHECK_OK(of->backend->stream_create(of, &stream));
    const oa_region_options options = OA_SIZED(oa_region_options, .stream = stream, .has_stream = 1);
    CHECK_OK(oa_region_enter(device, &options, &array, 1, &region));
    CHECK_OK(begin(&a, &exclusive, 0));
    CHECK_OK(oa_library_take_handle(&exclusive, a.call.stream, 1, true, &captured));
    CHECK(captured && captured != a.call.handle);
    oa_library_return_handle(&exclusive, a.call.stream, 1, captured);
    CHECK_OK(oa_end(&a.call, 0));
    CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
    CHECK_OK(oa_region_wait(region));
  }
  CHECK(created <= before + 4);
}

int main(void) {
  int device;
  oa_region *region;
  CHECK_OK(oa_device_open("sim:0", &device));
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, &region));
  test_open_calls();
  test_shared_handles();
  test_handle_of_the_caller();
  threads_have_handles_of_their_own();
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
  test_streams_of_callers(oa_device_of(device), device);
  test_captured_streams(oa_device_of(device), device);
  return failures();
}
