/* Every public function with arguments that are NULL, zero, negative, out of range, stale or garbage: a status and a
 * text that names the function, never a crash. `test_arguments oa_stage` tests that function only. The table below has
 * every function of the header: tests/c_api/test_arguments.py compares the two. */
#include "check.h"
#include "library/library.h"
#include "offload_args/graph.h"
#include "offload_args/launch.h"
#include "offload_args/routine.h"

#include <limits.h>
#include <stdlib.h>

static int make_handle(void **handle) { return *handle = handle, 0; }
static int bind_handle(void *handle, void *stream) { return !handle || !stream; }

static const char *const symbols[] = {"create", "bind"}, *const no_symbols[] = {"answer"};
static void *addresses[] = {(void *)make_handle, (void *)bind_handle}, *no_addresses[1];
static oa_library_state states[2];
static const oa_library handled = {.name = "handled",
                                   .symbols = symbols,
                                   .addresses = addresses,
                                   .state = &states[0],
                                   .symbol_count = 2,
                                   .create = 0,
                                   .destroy = -1,
                                   .set_stream = 1,
                                   .get_stream = -1,
                                   .set_pointer_mode = -1,
                                   .get_pointer_mode = -1};
static const oa_library plain = {.name = "plain",
                                 .symbols = no_symbols,
                                 .addresses = no_addresses,
                                 .state = &states[1],
                                 .symbol_count = 1,
                                 .create = -1,
                                 .destroy = -1,
                                 .set_stream = -1,
                                 .get_stream = -1,
                                 .set_pointer_mode = -1,
                                 .get_pointer_mode = -1};
const oa_library *const oa_libraries[] = {&handled, &plain, NULL};

/* The arguments of the functions below: an open region with one matrix, and the pointer of a region that has ended. */
static const char *function; /* under test */
static int device, is_sim;
static float host[3][4];
static const int64_t shape[] = {3, 4}, strides[] = {16, 4}, negative[] = {3, -4}, huge[] = {INT64_MAX, 4};
static oa_array array;
static oa_any *live, *stale;
static oa_region *region, *ended;

enum { WRONG = 9 };
static const void *wrong[WRONG]; /* none of these is a device pointer */
static const int wrong_devices[] = {-1, -2, 99, 255, 256, INT32_MAX, INT32_MIN};
static const int wrong_dtypes[] = {-1, OA_DTYPE_COUNT, INT32_MAX, INT32_MIN};
enum { WRONG_DEVICES = sizeof wrong_devices / sizeof *wrong_devices };
enum { WRONG_DTYPES = sizeof wrong_dtypes / sizeof *wrong_dtypes };

/* Checks that the call fails with that status, and with a text of its own that has the function's name. */
#define REFUSES(status, call) (oa_fail_null("none", "yet"), CHECK_FAILS(call, status, function))
#define REFUSES_POINTER(call) (oa_fail_null("none", "yet"), refuses_pointer((call), __FILE__, __LINE__, #call))

/* Checks that the call fails while the struct claims a size that no version had. */
#define REFUSES_SIZES(sized, call)                                                                  \
  do {                                                                                              \
    const size_t sizes_[] = {0, 1, sizeof(size_t), sizeof(sized) - 1, sizeof(sized) + 1, SIZE_MAX}; \
    for (size_t i_ = 0; i_ < sizeof sizes_ / sizeof *sizes_; i_++) {                                \
      (sized).size = sizes_[i_];                                                                    \
      REFUSES(OA_ERROR_ARGUMENT, call);                                                             \
    }                                                                                               \
    (sized).size = sizeof(sized);                                                                   \
  } while (0)

static int refuses_pointer(int status, const char *file, int line, const char *what) {
  return check_fails(status, status == OA_ERROR_STALE ? status : OA_ERROR_NOT_HANDLE, function, file, line, what);
}

static oa_array lent(void) {
  return (oa_array){.data = host, .shape = shape, .strides = strides, .name = "a", .ndim = 2, .dtype = OA_F32};
}

static void open_region(oa_any **pointer, oa_region **opened) {
  array = lent();
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, opened));
  *pointer = array.handle;
}

static void close_region(oa_region *opened) {
  CHECK_OK(oa_region_finish(opened, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(opened));
}

static void set_up(void) {
  open_region(&stale, &ended);
  close_region(ended);
  open_region(&live, &region);
  const void *some[WRONG] = {NULL,  (void *)1,        (void *)-1,       host,
                             stale, (char *)live + 1, (char *)live - 1, (char *)live + ((uintptr_t)1 << 30),
                             region};
  memcpy(wrong, some, sizeof wrong);
}

/* -- texts and numbers: they can't fail -- */

static void texts(void) {
  CHECK(oa_last_error() && oa_last_warning() && oa_version() == OA_VERSION);
  oa_take_warning();
  for (int i = 0; i < WRONG_DTYPES; i++) {
    CHECK(oa_itemsize(wrong_dtypes[i]) == 0);
    CHECK(strcmp(oa_dtype_name(wrong_dtypes[i]), "no dtype") == 0 || wrong_dtypes[i] == OA_ANY);
    CHECK(strcmp(oa_status_name(wrong_dtypes[i]), "unknown status") == 0 || wrong_dtypes[i] == OA_DTYPE_COUNT);
  }
  CHECK(oa_fail_enum(NULL, NULL, INT64_MIN, NULL) == OA_ERROR_ARGUMENT);
  CHECK(oa_fail_too_large(NULL, NULL, INT64_MIN) == OA_ERROR_OVERFLOW);
  CHECK(oa_fail_null(NULL, NULL) == OA_ERROR_ARGUMENT);
}

static void versions(void) {
  static const int wrong_versions[] = {
      0, -1, 1, INT_MIN, INT_MAX, OA_VERSION + 100, OA_VERSION - 100, OA_VERSION + 10000};
  for (size_t i = 0; i < sizeof wrong_versions / sizeof *wrong_versions; i++)
    REFUSES(OA_ERROR_VERSION, oa_check_version(wrong_versions[i]));
  CHECK_OK(oa_check_version(OA_VERSION));
  CHECK_OK(oa_check_version(OA_VERSION / 100 * 100 + 99)); /* another patch */
}

/* -- devices -- */

static void device_open(void) {
  static const char *const names[] = {"",       ":",   "host:", "host:1", "sim:", "sim:-1", "sim:99999999999",
                                      "sim:0 ", "\xff"};
  int number;
  REFUSES(OA_ERROR_ARGUMENT, oa_device_open(NULL, &number));
  REFUSES(OA_ERROR_ARGUMENT, oa_device_open("host", NULL));
  for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
    const int status = oa_device_open(names[i], &number);
    CHECK(status == OA_ERROR_ARGUMENT || status == OA_ERROR_UNAVAILABLE);
    CHECK(strstr(oa_last_error(), function));
  }
}

static void device_count(void) {
  int count;
  REFUSES(OA_ERROR_ARGUMENT, oa_device_count(NULL, &count));
  REFUSES(OA_ERROR_ARGUMENT, oa_device_count("host", NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_device_count("", &count));
}

static void device_figures(void) {
  oa_device_info info = OA_SIZED(oa_device_info);
  oa_counters counters = OA_SIZED(oa_counters);
  for (int i = 0; i < WRONG_DEVICES; i++) {
    const int number = wrong_devices[i];
    function = "oa_device_get_info";
    REFUSES(OA_ERROR_ARGUMENT, oa_device_get_info(number, &info));
    function = "oa_device_get_counters";
    REFUSES(OA_ERROR_ARGUMENT, oa_device_get_counters(number, &counters));
    function = "oa_device_synchronize";
    REFUSES(OA_ERROR_ARGUMENT, oa_device_synchronize(number));
    function = "oa_device_trim";
    REFUSES(OA_ERROR_ARGUMENT, oa_device_trim(number));
  }
  function = "oa_device_get_info";
  REFUSES(OA_ERROR_ARGUMENT, oa_device_get_info(device, NULL));
  REFUSES_SIZES(info, oa_device_get_info(device, &info));
  function = "oa_device_get_counters";
  REFUSES(OA_ERROR_ARGUMENT, oa_device_get_counters(device, NULL));
  REFUSES_SIZES(counters, oa_device_get_counters(device, &counters));
}

static void backend_info(void) {
  oa_backend_info info = OA_SIZED(oa_backend_info);
  REFUSES(OA_ERROR_ARGUMENT, oa_backend_get_info(0, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_backend_get_info(-1, &info));
  REFUSES(OA_ERROR_ARGUMENT, oa_backend_get_info(INT_MAX, &info));
  REFUSES_SIZES(info, oa_backend_get_info(0, &info));
}

static void pinned_allocate(void) {
  void *memory;
  REFUSES(OA_ERROR_ARGUMENT, oa_pinned_allocate(device, 1, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_pinned_allocate(device, 0, &memory));
  REFUSES(OA_ERROR_MEMORY, oa_pinned_allocate(device, SIZE_MAX, &memory));
  for (int i = 0; i < WRONG_DEVICES; i++) REFUSES(OA_ERROR_ARGUMENT, oa_pinned_allocate(wrong_devices[i], 1, &memory));
}

static void pinned_release(void) {
  CHECK_OK(oa_pinned_free(device, NULL, 1));
  for (int i = 0; i < WRONG_DEVICES; i++) REFUSES(OA_ERROR_ARGUMENT, oa_pinned_free(wrong_devices[i], host, 1));
}

static void set_threads(void) {
  REFUSES(OA_ERROR_ARGUMENT, oa_set_threads(-1));
  REFUSES(OA_ERROR_ARGUMENT, oa_set_threads(INT32_MAX));
}

static void sim_configure(void) {
  for (int i = 0; i < WRONG_DEVICES; i++) REFUSES(OA_ERROR_ARGUMENT, oa_sim_configure(wrong_devices[i], 0, 0, 0));
  if (!is_sim) REFUSES(OA_ERROR_ARGUMENT, oa_sim_configure(device, 0, 0, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_sim_configure(device, -1, 0, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_sim_configure(device, 0, 0, -1));
  REFUSES(OA_ERROR_ARGUMENT, oa_sim_configure(device, 0, INT64_MAX, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_sim_configure(device, 0, INT64_MIN, 0));
}

static void sim_backend_calls(void) {
  for (int i = 0; i < WRONG_DEVICES; i++) CHECK(oa_sim_backend_calls(wrong_devices[i]) == -1);
  if (!is_sim) CHECK(oa_sim_backend_calls(device) == -1);
}

/* -- regions -- */

static void region_enter(void) {
  oa_region_options options = OA_SIZED(oa_region_options);
  oa_region *made;
  oa_array a = lent();
  for (int i = 0; i < WRONG_DEVICES; i++)
    REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(wrong_devices[i], NULL, &a, 1, &made));
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, NULL, 1, &made));
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, -1, &made));
  REFUSES_SIZES(options, oa_region_enter(device, &options, &a, 1, &made));
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, INT32_MIN, &made));
  for (int i = 0; i < WRONG_DTYPES; i++) {
    a.dtype = wrong_dtypes[i];
    REFUSES(OA_ERROR_TYPE, oa_region_enter(device, NULL, &a, 1, &made));
    a = lent();
    a.direction = wrong_dtypes[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &made));
    a = lent();
    a.ndim = wrong_dtypes[i] == OA_DTYPE_COUNT ? 1000 : wrong_dtypes[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &made));
    a = lent();
  }
  a.dtype = OA_ANY;
  REFUSES(OA_ERROR_TYPE, oa_region_enter(device, NULL, &a, 1, &made));
  a = lent(), a.flags = 32;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &made));
  a = lent(), a.flags = -1;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &made));
  a = lent(), a.shape = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &made));
  a.direction = OA_SCRATCH;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &made));
  a = lent(), a.strides = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &made));
  a = lent(), a.data = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &made));
  a = lent(), a.shape = negative;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &made));
  a = lent(), a.shape = huge;
  REFUSES(OA_ERROR_OVERFLOW, oa_region_enter(device, NULL, &a, 1, &made));
  a = (oa_array){0};
  REFUSES(OA_ERROR_TYPE, oa_region_enter(device, NULL, &a, 1, &made));
}

static void region_finish(void) {
  const oa_any *none[] = {NULL, (oa_any *)1, (oa_any *)-1, (oa_any *)host, live};
  for (int i = 0; i < 5; i++) REFUSES(OA_ERROR_NOT_HANDLE, oa_region_finish((oa_region *)none[i], OA_COMMIT, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_region_finish(region, -1, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_region_finish(region, OA_KEEP + 1, NULL));
  CHECK_OK(oa_region_finish(ended, OA_COMMIT, NULL));
}

static void region_wait(void) {
  const oa_any *none[] = {NULL, (oa_any *)1, (oa_any *)-1, (oa_any *)host, live};
  for (int i = 0; i < 5; i++) REFUSES(OA_ERROR_NOT_HANDLE, oa_region_wait((oa_region *)none[i]));
  REFUSES(OA_ERROR_ARGUMENT, oa_region_wait(region));
  CHECK_OK(oa_region_wait(ended));
}

static void region_synchronize(void) {
  const oa_any *none[] = {NULL, (oa_any *)1, (oa_any *)-1, (oa_any *)host, live};
  for (int i = 0; i < 5; i++) REFUSES(OA_ERROR_NOT_HANDLE, oa_region_synchronize((oa_region *)none[i]));
  REFUSES(OA_ERROR_STALE, oa_region_synchronize(ended));
}

static void region_stream(void) {
  void *stream;
  const oa_any *none[] = {NULL, (oa_any *)1, (oa_any *)-1, (oa_any *)host, live};
  for (int i = 0; i < 5; i++) REFUSES(OA_ERROR_NOT_HANDLE, oa_region_stream((oa_region *)none[i], &stream));
  REFUSES(OA_ERROR_STALE, oa_region_stream(ended, &stream));
  REFUSES(OA_ERROR_ARGUMENT, oa_region_stream(region, NULL));
}

/* -- pointers -- */

static void pointer_view(void) {
  oa_any *view;
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_pointer_view(wrong[i], 0, 2, shape, strides, &view));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_view(live, 0, 2, shape, strides, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_view(live, 0, 2, NULL, strides, &view));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_view(live, 0, 2, shape, NULL, &view));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_view(live, 0, -1, shape, strides, &view));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_view(live, 0, INT32_MAX, shape, strides, &view));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_view(live, 0, 2, negative, strides, &view));
  REFUSES(OA_ERROR_OVERFLOW, oa_pointer_view(live, 0, 2, huge, strides, &view));
  REFUSES(OA_ERROR_OVERFLOW, oa_pointer_view(live, INT64_MAX, 2, shape, strides, &view));
  REFUSES(OA_ERROR_EXTENT, oa_pointer_view(live, -1, 0, NULL, NULL, &view));
  CHECK_OK(oa_pointer_view(live, 4, 0, NULL, NULL, &view)); /* one element has no shape */
  CHECK_OK(oa_pointer_release(view));
}

static void pointer_release(void) {
  const void *none[] = {NULL, (void *)1, (void *)-1, host, region};
  for (int i = 0; i < 5; i++) REFUSES(OA_ERROR_NOT_HANDLE, oa_pointer_release((oa_any *)none[i]));
  CHECK_OK(oa_pointer_release(stale));
}

static void pointer_invalidate(void) {
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_pointer_invalidate((oa_any *)wrong[i]));
}

static void pointer_query(void) {
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_pointer_query(wrong[i], &info));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_query(live, NULL));
  REFUSES_SIZES(info, oa_pointer_query(live, &info));
}

static void address_of(void) {
  uint64_t address;
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_address(wrong[i], &address));
  REFUSES(OA_ERROR_ARGUMENT, oa_address(live, NULL));
}

static void export(void) {
  uint64_t address;
  void *keep;
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_export(wrong[i], &address, &keep));
  REFUSES(OA_ERROR_ARGUMENT, oa_export(live, NULL, &keep));
  REFUSES(OA_ERROR_ARGUMENT, oa_export(live, &address, NULL));
}

static void export_release(void) {
  uint64_t address;
  void *keep;
  const void *none[] = {(void *)1, (void *)-1, host, live, region};
  CHECK_OK(oa_export_release(NULL));
  for (int i = 0; i < 5; i++) REFUSES(OA_ERROR_NOT_HANDLE, oa_export_release((void *)none[i]));
  CHECK_OK(oa_export(live, &address, &keep));
  CHECK_FAILS(oa_pointer_release(keep), OA_ERROR_NOT_HANDLE, "oa_pointer_release");
  CHECK_OK(oa_export_release(keep));
  REFUSES(OA_ERROR_STALE, oa_export_release(keep)); /* twice */
}

static void pointer_assign(void) {
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_pointer_assign((oa_any *)wrong[i], host, 2, shape, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_assign(live, NULL, 2, shape, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_assign(live, host, 2, NULL, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_assign(live, host, 2, shape, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_assign(live, host, -1, shape, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_assign(live, host, INT32_MAX, shape, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_assign(live, host, 2, negative, strides));
  REFUSES(OA_ERROR_OVERFLOW, oa_pointer_assign(live, host, 2, huge, strides));
}

static void pointer_fill(void) {
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_pointer_fill((oa_any *)wrong[i], host, 2, shape, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_fill(live, NULL, 2, shape, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_fill(live, host, 2, NULL, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_fill(live, host, 2, shape, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_fill(live, host, -1, shape, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_fill(live, host, INT32_MAX, shape, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_fill(live, host, 2, negative, strides));
  REFUSES(OA_ERROR_OVERFLOW, oa_pointer_fill(live, host, 2, huge, strides));
}

static void pointer_read(void) {
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_pointer_read((oa_any *)wrong[i], host, 2, shape, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_read(live, NULL, 2, shape, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_read(live, host, 2, NULL, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_read(live, host, 2, shape, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_read(live, host, -1, shape, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_read(live, host, INT32_MAX, shape, strides));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_read(live, host, 2, negative, strides));
  REFUSES(OA_ERROR_OVERFLOW, oa_pointer_read(live, host, 2, huge, strides));
}

static void pointer_copy(void) {
  for (int i = 0; i < WRONG; i++) {
    REFUSES_POINTER(oa_pointer_copy((oa_any *)wrong[i], strides, live, strides, 2, shape));
    REFUSES_POINTER(oa_pointer_copy(live, strides, wrong[i], strides, 2, shape));
  }
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_copy(live, NULL, live, strides, 2, shape));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_copy(live, strides, live, NULL, 2, shape));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_copy(live, strides, live, strides, 2, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_copy(live, strides, live, strides, -1, shape));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_copy(live, strides, live, strides, 2, negative));
  REFUSES(OA_ERROR_OVERFLOW, oa_pointer_copy(live, strides, live, strides, 2, huge));
  REFUSES(OA_ERROR_ALIAS, oa_pointer_copy(live, strides, live, strides, 2, shape));
}

static void stage(void) {
  const float one = 1;
  oa_any *staged;
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_stage(wrong[i], &one, OA_F32, &staged));
  for (int i = 0; i < WRONG_DTYPES; i++) REFUSES(OA_ERROR_TYPE, oa_stage(live, &one, wrong_dtypes[i], &staged));
  REFUSES(OA_ERROR_TYPE, oa_stage(live, &one, OA_ANY, &staged));
  REFUSES(OA_ERROR_ARGUMENT, oa_stage(live, NULL, OA_F32, &staged));
  REFUSES(OA_ERROR_ARGUMENT, oa_stage(live, &one, OA_F32, NULL));
}

/* -- arrays that are present or resident -- */

/* Arrays that every function refuses. */
static void wrong_arrays(int (*ask)(const oa_array *, int)) {
  oa_array a = lent();
  REFUSES(OA_ERROR_ARGUMENT, ask(NULL, device));
  for (int i = 0; i < WRONG_DTYPES; i++) {
    a.dtype = wrong_dtypes[i];
    REFUSES(OA_ERROR_TYPE, ask(&a, device));
    a = lent(), a.direction = wrong_dtypes[i];
    REFUSES(OA_ERROR_ARGUMENT, ask(&a, device));
    a = lent();
  }
  a.ndim = -1;
  REFUSES(OA_ERROR_ARGUMENT, ask(&a, device));
  a = lent(), a.flags = 1 << 20;
  REFUSES(OA_ERROR_ARGUMENT, ask(&a, device));
  a = lent(), a.shape = NULL;
  REFUSES(OA_ERROR_ARGUMENT, ask(&a, device));
  a = lent(), a.strides = NULL;
  REFUSES(OA_ERROR_ARGUMENT, ask(&a, device));
  a = lent(), a.data = NULL;
  REFUSES(OA_ERROR_ARGUMENT, ask(&a, device));
  a = lent(), a.shape = negative;
  REFUSES(OA_ERROR_ARGUMENT, ask(&a, device));
  a = lent(), a.shape = huge;
  REFUSES(OA_ERROR_OVERFLOW, ask(&a, device));
}

static int begin_and_end(const oa_array *a, int on) {
  oa_writing *writing;
  const int status = oa_update_begin(a, on, &writing);
  oa_update_end(writing);
  return status;
}

static void updates(void) {
  oa_array elsewhere = lent();
  float other[3][4];
  elsewhere.data = other;
  function = "update";
  wrong_arrays(oa_update_from);
  wrong_arrays(oa_update_to);
  wrong_arrays(oa_update_check);
  wrong_arrays(begin_and_end);
  CHECK(oa_update_begin(&array, device, NULL) == OA_ERROR_ARGUMENT);
  oa_update_end(NULL);
  REFUSES(OA_ERROR_PRESENT, oa_update_from(&elsewhere, device));
  REFUSES(OA_ERROR_PRESENT, oa_update_to(&elsewhere, device));
  REFUSES(OA_ERROR_PRESENT, oa_update_from(&array, 99));
  REFUSES(OA_ERROR_PRESENT, oa_update_to(&array, INT32_MAX));
}

static void is_present(void) {
  CHECK(oa_is_present(host, 48, device) == 1);
  CHECK(!oa_is_present(NULL, 48, device) && !oa_is_present(host, 0, device) && !oa_is_present(host, -1, device));
  CHECK(!oa_is_present(host, INT64_MAX, device) && !oa_is_present((void *)-1, 48, device));
  CHECK(!oa_is_present(host, 48, 99));
}

static void is_host_zero(void) {
  CHECK(!oa_is_host_zero(NULL) && !oa_is_host_zero(host) && !oa_is_host_zero((void *)-1));
  CHECK(!oa_is_host_zero(live) && !oa_is_host_zero(stale));
}

static void keep_and_release(void) {
  oa_array a = lent();
  function = "oa_keep";
  wrong_arrays(oa_keep);
  for (int i = 0; i < WRONG_DEVICES; i++) REFUSES(OA_ERROR_ARGUMENT, oa_keep(&a, wrong_devices[i]));
  function = "oa_release";
  wrong_arrays(oa_release);
  REFUSES(OA_ERROR_ARGUMENT, oa_release(&a, 99));
}

static void owners(void) {
  CHECK_OK(oa_owner_gone(NULL));
  CHECK_OK(oa_owner_gone((void *)-1));
  CHECK(!oa_owner_kept(NULL) && !oa_owner_kept((void *)-1));
}

static void residency_query(void) {
  oa_residency residency = OA_SIZED(oa_residency);
  for (int i = 0; i < WRONG_DEVICES; i++) REFUSES(OA_ERROR_ARGUMENT, oa_residency_query(wrong_devices[i], &residency));
  REFUSES(OA_ERROR_ARGUMENT, oa_residency_query(device, NULL));
  REFUSES_SIZES(residency, oa_residency_query(device, &residency));
}

static void residency_configure(void) {
  function = "oa_residency_configure";
  REFUSES(OA_ERROR_ARGUMENT, oa_residency_configure(-2, 1));
  REFUSES(OA_ERROR_ARGUMENT, oa_residency_configure(OA_RESIDENCY_AUTO + 1, 1));
  CHECK(oa_residency_current() >= 0);
}

/* -- libraries -- */

static void libraries(void) {
  const char *const names[] = {NULL, "", "no such library"};
  char text[8];
  void *address = NULL;
  for (int i = 0; i < 3; i++) {
    function = "oa_library_open";
    REFUSES(OA_ERROR_ARGUMENT, oa_library_open(names[i], "/nothing", ""));
    function = "oa_library_double";
    REFUSES(OA_ERROR_ARGUMENT, oa_library_double(names[i], "/nothing", "sim"));
    REFUSES(OA_ERROR_ARGUMENT, oa_library_double("plain", "/nothing", names[i]));
    function = "oa_library_share";
    REFUSES(OA_ERROR_ARGUMENT, oa_library_share(names[i], NULL));
    function = "oa_use_handle";
    REFUSES(OA_ERROR_ARGUMENT, oa_use_handle(names[i], host));
    function = "oa_library_address";
    REFUSES(OA_ERROR_ARGUMENT, oa_library_address(names[i], "answer", &address));
    CHECK(oa_library_integer_bits(names[i]) == 0);
    function = "oa_library_version";
    REFUSES(OA_ERROR_ARGUMENT, oa_library_version(names[i], text, sizeof text));
    CHECK(strcmp(oa_library_path(names[i]), "") == 0);
    CHECK(!oa_library_has_symbol(names[i], "answer"));
  }
  REFUSES(OA_ERROR_ARGUMENT, oa_library_version("plain", NULL, sizeof text));
  REFUSES(OA_ERROR_ARGUMENT, oa_library_version("plain", text, 0));
  REFUSES(OA_ERROR_LIBRARY, oa_library_version("plain", text, sizeof text));
  function = "oa_library_address";
  REFUSES(OA_ERROR_ARGUMENT, oa_library_address("plain", NULL, &address));
  REFUSES(OA_ERROR_ARGUMENT, oa_library_address("plain", "answer", NULL));
  function = "plain";
  REFUSES(OA_ERROR_LIBRARY, oa_library_address("plain", "answer", &address));
  CHECK(oa_library_integer_bits("plain") == 0);
  CHECK(!oa_library_has_symbol("plain", NULL));
  REFUSES(OA_ERROR_LIBRARY, oa_library_open("plain", NULL, NULL));
  REFUSES(OA_ERROR_LIBRARY, oa_library_open("plain", "", NULL));
  REFUSES(OA_ERROR_LIBRARY, oa_library_open("plain", "/nothing", NULL));
  REFUSES(OA_ERROR_LIBRARY, oa_library_share("plain", NULL));
  REFUSES(OA_ERROR_LIBRARY, oa_library_share("plain", ""));
  REFUSES(OA_ERROR_LIBRARY, oa_library_share("plain", "/nothing"));
  REFUSES(OA_ERROR_ARGUMENT, oa_use_handle("plain", host));
  oa_library_set_loader(NULL);
}

static void objects(void) {
  const oa_object_kind *kinds = NULL;
  oa_object_info info = OA_SIZED(oa_object_info);
  int count = -1;
  function = "oa_object_query";
  REFUSES(OA_ERROR_ARGUMENT, oa_object_query(NULL, NULL));
  for (int i = 0; i < WRONG; i++) {
    oa_fail_null("none", "yet");
    const int status = oa_object_query(wrong[i], &info);
    CHECK(status == OA_ERROR_NOT_HANDLE || status == OA_ERROR_STALE);
    CHECK(strstr(oa_last_error(), function));
    if (wrong[i]) CHECK(oa_object_destroy((oa_object *)wrong[i]) == (status == OA_ERROR_STALE ? OA_OK : status));
  }
  function = "oa_object_destroy";
  REFUSES(OA_ERROR_NOT_HANDLE, oa_object_destroy((oa_object *)host));
  function = "oa_object_query";
  REFUSES(OA_ERROR_NOT_HANDLE, oa_object_query((const oa_object *)live, &info));
  REFUSES(OA_ERROR_STALE, oa_object_query((const oa_object *)stale, &info));
  info.size = 3;
  REFUSES(OA_ERROR_ARGUMENT, oa_object_query((const oa_object *)live, &info));
  function = "oa_object_names";
  REFUSES(OA_ERROR_NOT_HANDLE, oa_object_names((const oa_object *)host, NULL, NULL, NULL));
  REFUSES(OA_ERROR_NOT_HANDLE, oa_object_names((const oa_object *)live, NULL, NULL, &count));
  REFUSES(OA_ERROR_STALE, oa_object_names((const oa_object *)stale, NULL, NULL, &count));
  CHECK_OK(oa_object_destroy(NULL));
  CHECK_OK(oa_object_destroy((oa_object *)stale));
  function = "oa_library_object_kinds";
  REFUSES(OA_ERROR_ARGUMENT, oa_library_object_kinds("no such library", &kinds, &count));
  REFUSES(OA_ERROR_ARGUMENT, oa_library_object_kinds("plain", NULL, &count));
  REFUSES(OA_ERROR_ARGUMENT, oa_library_object_kinds("plain", &kinds, NULL));
  CHECK_OK(oa_library_object_kinds("plain", &kinds, &count));
  CHECK(!kinds && count == 0);
}

static void library_symbol(void) {
  const int indices[] = {-1, 1, INT32_MAX, INT32_MIN};
  oa_fail_null("none", "yet");
  CHECK(!oa_library_symbol(NULL, 0) && strstr(oa_last_error(), function));
  for (int i = 0; i < 4; i++) {
    oa_fail_null("none", "yet");
    CHECK(!oa_library_symbol(&plain, indices[i]) && strstr(oa_last_error(), function));
  }
  CHECK(!oa_library_symbol(&plain, 0) && strstr(oa_last_error(), "plain"));
}

static void routines(void) {
  const oa_routine *found;
  int count;
  REFUSES(OA_ERROR_ARGUMENT, oa_library_routines("no such library", &found, &count));
  REFUSES(OA_ERROR_ARGUMENT, oa_library_routines("plain", NULL, &count));
  REFUSES(OA_ERROR_ARGUMENT, oa_library_routines("plain", &found, NULL));
  CHECK_OK(oa_library_routines("plain", &found, &count));
  CHECK(!found && !count);
}

static void routine_dtypes(void) {
  static const oa_code_dtype codes[] = {{2, OA_F16, "HALF"}, {7, OA_ANY, "ODD"}, {0, OA_ANY, NULL}};
  static const oa_typed typed[] = {{1, 1, 0, codes}, {0, 1, 0, NULL}};
  static const oa_routine routine = {.function = "plain.f",
                                     .record = "in:A:Atype type:Atype",
                                     .dtypes = "\0\0",
                                     .typed = typed,
                                     .count = 2,
                                     .typed_count = 2};
  oa_value values[2] = {{.pointer = NULL}, {.integer = 2}};
  unsigned char dtypes[2];
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_dtypes(NULL, values, dtypes));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_dtypes(&routine, NULL, dtypes));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_dtypes(&routine, values, NULL));
  CHECK_OK(oa_routine_dtypes(&routine, values, dtypes));
  CHECK(dtypes[0] == OA_F16 && dtypes[1] == OA_F16);
  values[1].integer = 7;
  const char *odd = "plain.f: Atype needs one of HALF (2); got 7 (ODD, which NumPy has no dtype for)";
  CHECK_FAILS(oa_routine_dtypes(&routine, values, dtypes), OA_ERROR_ARGUMENT, odd);
  values[1].integer = INT64_C(1) << 32 | 2;
  CHECK_FAILS(oa_routine_dtypes(&routine, values, dtypes), OA_ERROR_ARGUMENT, "needs one of HALF (2); got 4294967298");
}

static void routine_find(void) {
  const char *const given[][2] = {{NULL, "gemv"}, {"no such library", "gemv"}, {"plain", NULL}, {"plain", "gemv"}};
  for (int i = 0; i < 4; i++) {
    oa_fail_null("none", "yet");
    CHECK(!oa_routine_find(given[i][0], given[i][1]) && strstr(oa_last_error(), function));
  }
}

static int never_called(void *symbol, oa_value *values, int ilp64) {
  (void)symbol;
  (void)values;
  return ilp64;
}

static void routine_repeat(void) {
  const oa_routine of_gpu = {.function = "plain.copy", .record = "in:x:f32 out:y:f32", .library = &plain};
  oa_routine dot = of_gpu, copy = of_gpu;
  oa_value values[3] = {0};
  const int64_t strides[2] = {1, 1};
  dot.record = "in:x:f32 in:y:f32 result:result:f32";
  dot.call = copy.call = never_called;
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_repeat(NULL, values, 0, 1, strides, NULL, ""));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_repeat(&copy, NULL, 0, 1, strides, NULL, ""));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_repeat(&copy, values, 0, 1, NULL, NULL, ""));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_repeat(&copy, values, 0, 1, strides, NULL, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_repeat(&of_gpu, values, 0, 1, strides, NULL, ""));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_repeat(&dot, values, 0, 1, strides, NULL, ""));
  CHECK_FAILS(oa_routine_repeat(&copy, values, 0, -1, strides, NULL, ""), OA_ERROR_ARGUMENT,
              "times needs to be at least 0");
}

static void graphs(void) {
  const oa_graph_names none = {0}, names = {"create", "bind", "create", "bind", "create", 0, 0, 0, 0, 0, 0};
  const oa_graph_tensor tensor = {"x", 1, OA_F64, OA_READ, 1, 1, 1, 1, 0, 0};
  const void *pointers[] = {live};
  const oa_object *garbage = (const oa_object *)live;
  function = "oa_graph_run";
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(NULL, "handled", &names, garbage, &tensor, 1, pointers, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, NULL, &names, garbage, &tensor, 1, pointers, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, "none", &names, garbage, &tensor, 1, pointers, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, "handled", NULL, garbage, &tensor, 1, pointers, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, "handled", &names, garbage, NULL, 1, pointers, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, "handled", &names, garbage, &tensor, 1, NULL, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, "handled", &names, garbage, &tensor, 0, pointers, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, "handled", &names, garbage, &tensor, 33, pointers, 0));
  REFUSES(OA_ERROR_LIBRARY, oa_graph_run(function, "handled", &none, garbage, &tensor, 1, pointers, 0));
  REFUSES(OA_ERROR_NOT_HANDLE, oa_graph_run(function, "handled", &names, NULL, &tensor, 1, pointers, 0));
  REFUSES(OA_ERROR_STALE, oa_graph_run(function, "handled", &names, (const oa_object *)stale, &tensor, 1, pointers, 0));
}

/* -- the trace -- */

static void trace(void) {
  oa_trace_event event;
  int count = 0;
  function = "oa_trace_set";
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_set(-1));
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_set(8));
  CHECK_OK(oa_trace_set(OA_TRACE_ON));
  CHECK_OK(oa_region_synchronize(region));
  close_region(region);
  open_region(&live, &region);
  CHECK_OK(oa_trace_set(0));
  function = "oa_trace_read";
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_read(&event, 1, NULL, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_read(NULL, 1, &count, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_read(&event, -1, &count, NULL));
  CHECK_OK(oa_trace_read(NULL, 0, &count, NULL));
  CHECK(count == 0);
  oa_under_way under_way;
  function = "oa_trace_under_way";
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_under_way(&under_way, 1, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_under_way(NULL, 1, &count));
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_under_way(&under_way, -1, &count));
  CHECK_OK(oa_trace_under_way(NULL, 0, &count));
  do CHECK_OK(oa_trace_read(&event, 1, &count, NULL));
  while (count);
}

/* -- calls -- */

static oa_operand operand(const void *pointer) {
  return (oa_operand){.name = "a", .pointer = pointer, .access = OA_READ, .dtype = OA_F32, .extent = OA_ELEMENTS(12)};
}

static void begin(void) {
  oa_operand o = operand(live);
  oa_call call = {.function = function, .operands = &o, .count = 1};
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(NULL));
  call.operands = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  call.operands = &o;
  const int counts[] = {0, -1, INT32_MIN};
  for (int i = 0; i < 3; i++) {
    call.count = counts[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  }
  call.count = 1;
  call.function = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  call.function = function;
  for (int i = 0; i < WRONG; i++) {
    o.pointer = wrong[i];
    REFUSES_POINTER(oa_begin(&call));
  }
  for (int i = 0; i < WRONG_DTYPES; i++) {
    o = operand(live), o.dtype = wrong_dtypes[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
    o = operand(live), o.access = wrong_dtypes[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
    o = operand(live), o.extent.kind = wrong_dtypes[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  }
  o = operand(live), o.access = 0;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  o = operand(live), o.name = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  for (int kind = OA_EXTENT_VECTOR; kind <= OA_EXTENT_PACKED; kind++) { /* the names are for messages only */
    o = operand(live), o.extent = (oa_extent){.kind = kind, .rows = 13, .columns = 13, .ld = 13};
    REFUSES(OA_ERROR_EXTENT, oa_begin(&call));
    o.extent.rows = -1;
    REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
    o.extent = (oa_extent){.kind = kind, .rows = INT64_MAX, .columns = INT64_MAX, .ld = INT64_MAX};
    REFUSES(OA_ERROR_OVERFLOW, oa_begin(&call));
  }
  o = (oa_operand){0};
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  call = (oa_call){0};
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
}

static void begin_lists(void) {
  const void *at[] = {live};
  oa_pointer_list list = {.at = at, .count = 1};
  oa_operand o = operand(live);
  oa_call call = {.function = function, .operands = &o, .count = 1};
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(NULL));
  call.operands = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
  call.operands = &o;
  const int counts[] = {0, -1, INT32_MIN};
  for (int i = 0; i < 3; i++) {
    call.count = counts[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
  }
  call.count = 1;
  call.function = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
  call.function = function;
  o.extent = oa_listed(o.extent, 1, "count");
  o.pointer = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
  o.pointer = &list;
  for (int i = 0; i < WRONG; i++) {
    at[0] = wrong[i];
    REFUSES_POINTER(oa_begin_lists(&call));
    list = (oa_pointer_list){.first = wrong[i], .count = 1};
    if (wrong[i]) REFUSES_POINTER(oa_begin_lists(&call));
    list = (oa_pointer_list){.at = at, .count = 1};
  }
  at[0] = live;
  const int64_t batches[] = {0, 2, -1, INT64_MIN, INT64_MAX};
  for (int i = 0; i < 5; i++) {
    o.extent.batch = batches[i];
    REFUSES(i < 4 ? OA_ERROR_ARGUMENT : OA_ERROR_OVERFLOW, oa_begin_lists(&call));
  }
  list = (oa_pointer_list){.first = live, .stride = INT64_MIN, .count = -1};
  o.extent.batch = 3;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
  list.stride = INT64_MAX;
  REFUSES(OA_ERROR_OVERFLOW, oa_begin_lists(&call));
  o.name = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
  call = (oa_call){0};
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
}

static void end(void) {
  oa_operand o = operand(live);
  oa_call call = {.function = function, .operands = &o, .count = 1};
  REFUSES(OA_ERROR_ARGUMENT, oa_end(NULL, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_end(&call, 0)); /* never begun */
  CHECK_OK(oa_begin(&call));
  CHECK_OK(oa_end(&call, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_end(&call, 0)); /* it has ended */
  call = (oa_call){0};
  CHECK(oa_end(&call, 0) == OA_ERROR_ARGUMENT);
}

static void nothing(void *arguments) { (void)arguments; }

static void submit(void) {
  char argument = 0;
  oa_operand o = operand(live);
  oa_call call = {.function = function, .operands = &o, .count = 1};
  REFUSES(OA_ERROR_ARGUMENT, oa_submit(NULL, nothing, &argument, 1));
  REFUSES(OA_ERROR_ARGUMENT, oa_submit(&call, nothing, &argument, 1)); /* never begun */
  CHECK_OK(oa_begin(&call));
  REFUSES(OA_ERROR_ARGUMENT, oa_submit(&call, NULL, &argument, 1));
  REFUSES(OA_ERROR_ARGUMENT,
          oa_submit(&call, nothing, &argument, 1)); /* a refusal ends the call, so that leaving does not hang */
  CHECK_OK(oa_begin(&call));
  REFUSES(OA_ERROR_ARGUMENT, oa_submit(&call, nothing, NULL, 1));
  CHECK_OK(oa_begin(&call));
  REFUSES(OA_ERROR_ARGUMENT, oa_submit(&call, nothing, &argument, SIZE_MAX));
  CHECK_OK(oa_begin(&call));
  CHECK_OK(oa_submit(&call, nothing, NULL, 0));
}

/* -- modules and kernels -- */

static oa_module *module_of(const char *path) {
  static unsigned char image[1 << 20];
  oa_module *module = NULL;
  FILE *file = fopen(path, "rb");
  const size_t nbytes = CHECK(file) ? fread(image, 1, sizeof image, file) : 0;
  if (file) fclose(file);
  CHECK_OK(oa_module_load(device, "sample", image, nbytes, &module));
  return module;
}

static const oa_parameter parameters[] = {{"x", OA_READ_WRITE, OA_F32, 8, 0}, {"a", 0, OA_F32, 4, 8}};

static oa_kernel *kernel_of(oa_module *module) {
  oa_kernel *kernel = NULL;
  CHECK_OK(oa_kernel_get(module, "scale", parameters, 2, &kernel));
  return kernel;
}

static void modules(void) {
  oa_module *module;
  const char text[] = "no module";
  for (size_t i = 0; i < WRONG_DEVICES; i++)
    REFUSES(OA_ERROR_ARGUMENT, oa_module_load(wrong_devices[i], "m", text, sizeof text, &module));
  REFUSES(OA_ERROR_ARGUMENT, oa_module_load(device, NULL, text, sizeof text, &module));
  REFUSES(OA_ERROR_ARGUMENT, oa_module_load(device, "m", NULL, sizeof text, &module));
  REFUSES(OA_ERROR_ARGUMENT, oa_module_load(device, "m", text, sizeof text, NULL));
  CHECK_FAILS(oa_module_load(device, "m", text, sizeof text, &module), OA_ERROR_MODULE, "m: ");
  CHECK_FAILS(oa_module_load(device, "m", text, 0, &module), OA_ERROR_MODULE, "m: ");
}

static void module_unload(void) {
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_module_unload((oa_module *)wrong[i]));
  oa_module *module = module_of(sample_kernels(device));
  oa_kernel *kernel = kernel_of(module);
  REFUSES(OA_ERROR_NOT_HANDLE, oa_module_unload((oa_module *)kernel));
  CHECK_OK(oa_module_unload(module));
  REFUSES(OA_ERROR_STALE, oa_module_unload(module));
}

static void kernel_get(void) {
  oa_module *module = module_of(sample_kernels(device));
  oa_kernel *kernel;
  const oa_parameter wrongs[] = {
      {NULL, OA_READ, OA_F32, 8, 0}, {"x", 8, OA_F32, 8, 0},   {"x", OA_READ, -1, 8, 0}, {"x", OA_READ, 99, 8, 0},
      {"x", OA_READ, 1, 4, 0},       {"x", 0, 0, 0, 0},        {"x", 0, 0, -1, 0},       {"x", 0, 0, 4, -1},
      {"x", 0, 0, INT32_MAX, 0},     {"x", 0, 0, 4, INT32_MAX}};
  for (int i = 0; i < WRONG; i++)
    REFUSES_POINTER(oa_kernel_get((oa_module *)wrong[i], "scale", parameters, 2, &kernel));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, NULL, parameters, 2, &kernel));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, "scale", NULL, 2, &kernel));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, "scale", parameters, 2, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, "scale", parameters, 0, &kernel));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, "scale", parameters, -1, &kernel));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, "scale", parameters, INT32_MAX, &kernel));
  for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++)
    REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, "scale", &wrongs[i], 1, &kernel));
  CHECK_FAILS(oa_kernel_get(module, "no such", parameters, 2, &kernel), OA_ERROR_MODULE, "no such: ");
  CHECK_FAILS(oa_kernel_get(module, "scale", parameters, 1, &kernel), OA_ERROR_SIGNATURE, "scale: ");
  CHECK_FAILS(oa_kernel_get(module, "scale", parameters + 1, 1, &kernel), OA_ERROR_SIGNATURE, "scale: ");
  CHECK_OK(oa_module_unload(module));
  REFUSES(OA_ERROR_STALE, oa_kernel_get(module, "scale", parameters, 2, &kernel));
}

static void kernel_info(void) {
  oa_module *module = module_of(sample_kernels(device));
  oa_kernel *kernel = kernel_of(module);
  oa_kernel_info info = OA_SIZED(oa_kernel_info);
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_kernel_get_info((oa_kernel *)wrong[i], &info));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get_info(kernel, NULL));
  REFUSES_SIZES(info, oa_kernel_get_info(kernel, &info));
  CHECK_OK(oa_kernel_get_info(kernel, &info));
  CHECK(info.most_threads >= info.good_threads && info.good_threads > 0);
  CHECK_OK(oa_module_unload(module));
  REFUSES(OA_ERROR_STALE, oa_kernel_get_info(kernel, &info));
}

static void kernel_launch(void) {
  oa_module *module = module_of(sample_kernels(device));
  oa_kernel *kernel = kernel_of(module);
  const float a = 2;
  const void *arguments[] = {live, &a};
  oa_launch launch = OA_SIZED(oa_launch, .grid = {1, 1, 1}, .block = {12, 1, 1});
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_kernel_launch((oa_kernel *)wrong[i], &launch, arguments, 2));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, NULL, arguments, 2));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &launch, NULL, 2));
  REFUSES_SIZES(launch, oa_kernel_launch(kernel, &launch, arguments, 2));
  function = "scale"; /* from here on texts begin with the kernel's name */
  const int wrong_counts[] = {-1, 0, 1, 3, INT32_MAX};
  for (size_t i = 0; i < sizeof wrong_counts / sizeof *wrong_counts; i++)
    REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &launch, arguments, wrong_counts[i]));
  for (int i = 0; i < WRONG; i++) {
    arguments[0] = wrong[i];
    REFUSES_POINTER(oa_kernel_launch(kernel, &launch, arguments, 2));
  }
  arguments[0] = live;
  arguments[1] = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &launch, arguments, 2));
  arguments[1] = &a;
  for (int axis = 0; axis < 3; axis++)
    for (int which = 0; which < 2; which++) {
      oa_launch other = launch;
      (which ? other.grid : other.block)[axis] = 0;
      REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &other, arguments, 2));
      (which ? other.grid : other.block)[axis] = UINT32_MAX;
      REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &other, arguments, 2));
    }
  const int64_t wrong_bytes[] = {-1, INT64_MIN, INT64_MAX, 1 << 24};
  for (size_t i = 0; i < sizeof wrong_bytes / sizeof *wrong_bytes; i++) {
    oa_launch other = launch;
    other.shared_bytes = wrong_bytes[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &other, arguments, 2));
  }
  oa_launch other = launch;
  other.cooperative = 1;
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &other, arguments, 2));
  other.cooperative = 0;
  other.cluster[1] = 1;
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &other, arguments, 2));
  CHECK_OK(oa_kernel_launch(kernel, &launch, arguments, 2));
  CHECK_OK(oa_module_unload(module));
  function = "oa_kernel_launch";
  REFUSES(OA_ERROR_STALE, oa_kernel_launch(kernel, &launch, arguments, 2));
}

/* -- all of them -- */

static const struct {
  const char *name;
  void (*test)(void);
} tests[] = {
    {"oa_last_error", texts},
    {"oa_last_warning", texts},
    {"oa_take_warning", texts},
    {"oa_status_name", texts},
    {"oa_version", texts},
    {"oa_check_version", versions},
    {"oa_itemsize", texts},
    {"oa_dtype_name", texts},
    {"oa_device_open", device_open},
    {"oa_device_count", device_count},
    {"oa_backend_get_info", backend_info},
    {"oa_device_get_info", device_figures},
    {"oa_device_get_counters", device_figures},
    {"oa_device_synchronize", device_figures},
    {"oa_device_trim", device_figures},
    {"oa_pinned_allocate", pinned_allocate},
    {"oa_pinned_free", pinned_release},
    {"oa_set_threads", set_threads},
    {"oa_sim_configure", sim_configure},
    {"oa_sim_backend_calls", sim_backend_calls},
    {"oa_region_enter", region_enter},
    {"oa_region_finish", region_finish},
    {"oa_region_wait", region_wait},
    {"oa_region_synchronize", region_synchronize},
    {"oa_region_stream", region_stream},
    {"oa_pointer_view", pointer_view},
    {"oa_pointer_release", pointer_release},
    {"oa_pointer_invalidate", pointer_invalidate},
    {"oa_pointer_query", pointer_query},
    {"oa_address", address_of},
    {"oa_export", export},
    {"oa_export_release", export_release},
    {"oa_pointer_assign", pointer_assign},
    {"oa_pointer_fill", pointer_fill},
    {"oa_pointer_copy", pointer_copy},
    {"oa_pointer_read", pointer_read},
    {"oa_stage", stage},
    {"oa_update_from", updates},
    {"oa_update_to", updates},
    {"oa_update_check", updates},
    {"oa_update_begin", updates},
    {"oa_update_end", updates},
    {"oa_is_present", is_present},
    {"oa_is_host_zero", is_host_zero},
    {"oa_keep", keep_and_release},
    {"oa_release", keep_and_release},
    {"oa_owner_gone", owners},
    {"oa_owner_kept", owners},
    {"oa_residency_query", residency_query},
    {"oa_residency_current", residency_configure},
    {"oa_residency_configure", residency_configure},
    {"oa_library_open", libraries},
    {"oa_library_double", libraries},
    {"oa_library_share", libraries},
    {"oa_library_path", libraries},
    {"oa_library_set_loader", libraries},
    {"oa_library_has_symbol", libraries},
    {"oa_library_address", libraries},
    {"oa_library_integer_bits", libraries},
    {"oa_library_version", libraries},
    {"oa_library_object_kinds", objects},
    {"oa_library_routines", routines},
    {"oa_routine_dtypes", routine_dtypes},
    {"oa_routine_find", routine_find},
    {"oa_routine_repeat", routine_repeat},
    {"oa_graph_run", graphs},
    {"oa_use_handle", libraries},
    {"oa_object_query", objects},
    {"oa_object_names", objects},
    {"oa_object_destroy", objects},
    {"oa_trace_set", trace},
    {"oa_trace_read", trace},
    {"oa_trace_under_way", trace},
    {"oa_begin", begin},
    {"oa_begin_lists", begin_lists},
    {"oa_end", end},
    {"oa_submit", submit},
    {"oa_library_symbol", library_symbol},
    {"oa_module_load", modules},
    {"oa_module_unload", module_unload},
    {"oa_kernel_get", kernel_get},
    {"oa_kernel_get_info", kernel_info},
    {"oa_kernel_launch", kernel_launch},
    {"oa_fail_enum", texts},
    {"oa_fail_too_large", texts},
    {"oa_fail_null", texts},
};
enum { TESTS = sizeof tests / sizeof *tests };

int main(int count, char **arguments) {
  static const char *const names[] = {"host", "sim:0"};
  int run = 0;
  for (is_sim = 0; is_sim < 2; is_sim++) {
    CHECK_OK(oa_device_open(names[is_sim], &device));
    set_up();
    for (int i = 0; i < TESTS; i++) {
      if (count > 1 && strcmp(tests[i].name, arguments[1]) != 0) continue;
      function = tests[i].name;
      tests[i].test();
      run++;
    }
    close_region(region);
    oa_counters left = OA_SIZED(oa_counters);
    CHECK_OK(oa_device_get_counters(device, &left));
    CHECK(left.regions == 0 && left.mappings == 0 && left.allocations == left.frees);
  }
  CHECK(run > 0);
  return failures();
}
