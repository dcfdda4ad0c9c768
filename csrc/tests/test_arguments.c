/* Wrong arguments of devices, regions, pointers and arrays that are present. wrong_arguments.h describes these
 * tests. */
#include "library/library.h"
#include "wrong_arguments.h"

const oa_library *const oa_libraries[] = {NULL};

/* -- texts and numbers: they can't fail -- */

static void texts(void) {
  CHECK(oa_last_error() && oa_last_warning() && oa_version() == OA_VERSION && oa_in_use());
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
  CHECK(oa_in_use());
  CHECK_OK(oa_check_version(OA_VERSION / 100 * 100 + 99)); /* another patch version */
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

static void sim_order(void) {
  for (int i = 0; i < WRONG_DEVICES; i++) REFUSES(OA_ERROR_ARGUMENT, oa_sim_order(wrong_devices[i], 0));
  if (!is_sim) REFUSES(OA_ERROR_ARGUMENT, oa_sim_order(device, 0));
}

static void sim_backend_calls(void) {
  for (int i = 0; i < WRONG_DEVICES; i++) CHECK(oa_sim_backend_calls(wrong_devices[i]) == -1);
  if (!is_sim) CHECK(oa_sim_backend_calls(device) == -1);
}

/* -- regions -- */

static void region_enter(void) {
  oa_region_options options = OA_SIZED(oa_region_options);
  oa_region *entered;
  oa_array a = lent();
  for (int i = 0; i < WRONG_DEVICES; i++)
    REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(wrong_devices[i], NULL, &a, 1, &entered));
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, NULL, 1, &entered));
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, -1, &entered));
  REFUSES_SIZES(options, oa_region_enter(device, &options, &a, 1, &entered));
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, INT32_MIN, &entered));
  for (int i = 0; i < WRONG_DTYPES; i++) {
    a.dtype = wrong_dtypes[i];
    REFUSES(OA_ERROR_TYPE, oa_region_enter(device, NULL, &a, 1, &entered));
    a = lent();
    a.direction = wrong_dtypes[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &entered));
    a = lent();
    a.ndim = wrong_dtypes[i] == OA_DTYPE_COUNT ? 1000 : wrong_dtypes[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &entered));
    a = lent();
  }
  for (int i = 0; i < 3; i++) { /* arrays with gaps, reversed arrays, and arrays with all elements at one place */
    static const int64_t wrong_strides[][2] = {{4, 400}, {-4, -4}, {0, 0}};
    a.direction = OA_SCRATCH, a.strides = wrong_strides[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &entered));
    a = lent();
  }
  a.dtype = OA_ANY;
  REFUSES(OA_ERROR_TYPE, oa_region_enter(device, NULL, &a, 1, &entered));
  a = lent(), a.flags = 64;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &entered));
  a = lent(), a.flags = -1;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &entered));
  a = lent(), a.shape = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &entered));
  a.direction = OA_SCRATCH;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &entered));
  a = lent(), a.strides = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &entered));
  a = lent(), a.data = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &entered));
  a = lent(), a.shape = negative;
  REFUSES(OA_ERROR_ARGUMENT, oa_region_enter(device, NULL, &a, 1, &entered));
  a = lent(), a.shape = huge;
  REFUSES(OA_ERROR_OVERFLOW, oa_region_enter(device, NULL, &a, 1, &entered));
  a = (oa_array){0};
  REFUSES(OA_ERROR_TYPE, oa_region_enter(device, NULL, &a, 1, &entered));
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
  CHECK_OK(oa_pointer_view(live, 4, 0, NULL, NULL, &view)); /* one element has 0 dimensions */
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

static void pointer_layout(void) {
  oa_pointer_layout layout = OA_SIZED(oa_pointer_layout);
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_pointer_get_layout(wrong[i], &layout));
  REFUSES(OA_ERROR_ARGUMENT, oa_pointer_get_layout(live, NULL));
  REFUSES_SIZES(layout, oa_pointer_get_layout(live, &layout));
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
  REFUSES(OA_ERROR_STALE, oa_export_release(keep)); /* releasing a second time is refused */
}

/* Passes wrong pointers and wrong arrays to a function that takes a pointer and a host array. */
#define REFUSES_ARRAYS(of)                                                                            \
  do {                                                                                                \
    for (int i = 0; i < WRONG; i++) REFUSES_POINTER(of((oa_any *)wrong[i], host, 2, shape, strides)); \
    REFUSES(OA_ERROR_ARGUMENT, of(live, NULL, 2, shape, strides));                                    \
    REFUSES(OA_ERROR_ARGUMENT, of(live, host, 2, NULL, strides));                                     \
    REFUSES(OA_ERROR_ARGUMENT, of(live, host, 2, shape, NULL));                                       \
    REFUSES(OA_ERROR_ARGUMENT, of(live, host, -1, shape, strides));                                   \
    REFUSES(OA_ERROR_ARGUMENT, of(live, host, INT32_MAX, shape, strides));                            \
    REFUSES(OA_ERROR_ARGUMENT, of(live, host, 2, negative, strides));                                 \
    REFUSES(OA_ERROR_OVERFLOW, of(live, host, 2, huge, strides));                                     \
  } while (0)

static void pointer_assign(void) { REFUSES_ARRAYS(oa_pointer_assign); }

static void pointer_fill(void) { REFUSES_ARRAYS(oa_pointer_fill); }

static void pointer_read(void) { REFUSES_ARRAYS(oa_pointer_read); }

static void pointer_assign_strided(void) {
  REFUSES_ARRAYS(oa_pointer_assign_strided);
  REFUSES(OA_ERROR_EXTENT, oa_pointer_assign_strided(live, host, 1, shape, strides));
}

static void pointer_read_strided(void) {
  REFUSES_ARRAYS(oa_pointer_read_strided);
  REFUSES(OA_ERROR_ALIAS, oa_pointer_read_strided(live, host, 2, shape, (int64_t[]){0, 0}));
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
  const float alpha = 1;
  oa_any *staged;
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_stage(wrong[i], &alpha, OA_F32, &staged));
  for (int i = 0; i < WRONG_DTYPES; i++) REFUSES(OA_ERROR_TYPE, oa_stage(live, &alpha, wrong_dtypes[i], &staged));
  REFUSES(OA_ERROR_TYPE, oa_stage(live, &alpha, OA_ANY, &staged));
  REFUSES(OA_ERROR_ARGUMENT, oa_stage(live, NULL, OA_F32, &staged));
  REFUSES(OA_ERROR_ARGUMENT, oa_stage(live, &alpha, OA_F32, NULL));
}

static void scratch(void) {
  static const int64_t four[1] = {4};
  const oa_any *const operands[1] = {live};
  oa_array array = {.shape = four, .ndim = 1, .dtype = OA_F32, .direction = OA_SCRATCH};
  for (int i = 0; i < WRONG; i++) {
    const oa_any *const none[1] = {wrong[i]};
    REFUSES_POINTER(oa_scratch(none, 1, &array));
  }
  REFUSES(OA_ERROR_ARGUMENT, oa_scratch(NULL, 1, &array));
  REFUSES(OA_ERROR_ARGUMENT, oa_scratch(operands, 0, &array));
  REFUSES(OA_ERROR_ARGUMENT, oa_scratch(operands, 1, NULL));
  array.direction = OA_BY_USE;
  REFUSES(OA_ERROR_ARGUMENT, oa_scratch(operands, 1, &array));
}

/* -- arrays that are present or resident -- */

/* Passes arrays that every function has to refuse. */
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

static int bring_newest(const oa_array *a, int on) {
  (void)on;
  return oa_update_newest(a);
}

static void updates(void) {
  oa_array elsewhere = lent();
  float other[3][4];
  elsewhere.data = other;
  function = "update";
  wrong_arrays(oa_update_from);
  wrong_arrays(bring_newest);
  wrong_arrays(oa_update_to);
  wrong_arrays(oa_update_check);
  wrong_arrays(begin_and_end);
  CHECK(oa_update_begin(&array, device, NULL) == OA_ERROR_ARGUMENT);
  oa_update_end(NULL);
  REFUSES(OA_ERROR_PRESENT, oa_update_from(&elsewhere, device));
  CHECK_OK(oa_update_newest(&elsewhere));
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

static void only_check(void) {
  CHECK(oa_only_check(-7) == 0); /* any number other than 0 switches the mode on */
  CHECK(oa_only_checks());
  CHECK(oa_only_check(0) == 0 && oa_only_check(0) == 0 && !oa_only_checks());
}

static void nested_checks(void) {
  const int64_t outer = oa_checks_begin();
  CHECK(oa_only_checks());
  const int64_t inner = oa_checks_begin();
  CHECK(oa_checks_end(inner) == 0 && oa_only_checks());
  CHECK(oa_checks_end(outer) == 0 && !oa_only_checks());
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

static void part_cost_configure(void) { REFUSES(OA_ERROR_ARGUMENT, oa_part_cost_configure(-2)); }

static void coherent_configure(void) {
  REFUSES(OA_ERROR_ARGUMENT, oa_coherent_configure(-2));
  REFUSES(OA_ERROR_ARGUMENT, oa_coherent_configure(OA_COHERENT_ALWAYS + 1));
}

/* -- all of them -- */

static const struct wrong_test tests[] = {
    {"oa_last_error", texts},
    {"oa_last_warning", texts},
    {"oa_take_warning", texts},
    {"oa_status_name", texts},
    {"oa_version", texts},
    {"oa_check_version", versions},
    {"oa_in_use", texts},
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
    {"oa_sim_order", sim_order},
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
    {"oa_pointer_get_layout", pointer_layout},
    {"oa_address", address_of},
    {"oa_export", export},
    {"oa_export_release", export_release},
    {"oa_pointer_assign", pointer_assign},
    {"oa_pointer_fill", pointer_fill},
    {"oa_pointer_copy", pointer_copy},
    {"oa_pointer_read", pointer_read},
    {"oa_pointer_assign_strided", pointer_assign_strided},
    {"oa_pointer_read_strided", pointer_read_strided},
    {"oa_stage", stage},
    {"oa_scratch", scratch},
    {"oa_update_from", updates},
    {"oa_update_newest", updates},
    {"oa_update_to", updates},
    {"oa_update_check", updates},
    {"oa_update_begin", updates},
    {"oa_update_end", updates},
    {"oa_only_check", only_check},
    {"oa_only_checks", only_check},
    {"oa_checks_begin", nested_checks},
    {"oa_checks_end", nested_checks},
    {"oa_is_present", is_present},
    {"oa_is_host_zero", is_host_zero},
    {"oa_keep", keep_and_release},
    {"oa_release", keep_and_release},
    {"oa_owner_gone", owners},
    {"oa_owner_kept", owners},
    {"oa_residency_query", residency_query},
    {"oa_residency_current", residency_configure},
    {"oa_residency_configure", residency_configure},
    {"oa_coherent_configure", coherent_configure},
    {"oa_part_cost_configure", part_cost_configure},
    {"oa_fail_enum", texts},
    {"oa_fail_too_large", texts},
    {"oa_fail_null", texts},
};

int main(int count, char **arguments) { return run_tests(tests, sizeof tests / sizeof *tests, count, arguments); }
