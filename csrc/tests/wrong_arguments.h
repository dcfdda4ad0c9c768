/* Calls public functions with arguments that are NULL, zero, negative, out of range, stale or garbage. Each call has to
 * return a status and set a text that names the function, and must not crash. The files test_arguments*.c have every
 * function of the header, each in a table: tests/c_api/test_arguments.py compares them. `test_arguments oa_stage` tests
 * that function only. */
#ifndef OA_WRONG_ARGUMENTS_H
#define OA_WRONG_ARGUMENTS_H

#include "check.h"

#include <limits.h>

/* The arguments of the functions below: an open region with one matrix, and the pointer of a region that has ended. */
static const char *function; /* the function under test */
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

/* Checks that the call fails with that status, and sets a new text that has the function's name. */
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

static inline int refuses_pointer(int status, const char *file, int line, const char *text) {
  return check_fails(status, status == OA_ERROR_STALE ? status : OA_ERROR_NOT_HANDLE, function, file, line, text);
}

static inline oa_array lent(void) {
  return (oa_array){.data = host, .shape = shape, .strides = strides, .name = "a", .ndim = 2, .dtype = OA_F32};
}

static inline void open_region(oa_any **pointer, oa_region **opened) {
  array = lent();
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, opened));
  *pointer = array.handle;
}

static inline void close_region(oa_region *opened) {
  CHECK_OK(oa_region_finish(opened, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(opened));
}

static inline void set_up(void) {
  open_region(&stale, &ended);
  close_region(ended);
  open_region(&live, &region);
  const void *some[WRONG] = {NULL,  (void *)1,        (void *)-1,       host,
                             stale, (char *)live + 1, (char *)live - 1, (char *)live + ((uintptr_t)1 << 30),
                             region};
  memcpy(wrong, some, sizeof wrong);
}

/* -- running them -- */

struct wrong_test {
  const char *name; /* name of the function */
  void (*test)(void);
};

/* Runs the tests on every device, or only the tests of the functions that the program's arguments name. Returns main's
 * status. */
static inline int run_tests(const struct wrong_test *tests, size_t length, int count, char **arguments) {
  static const char *const names[] = {"host", "sim:0"};
  int run = 0;
  for (is_sim = 0; is_sim < 2; is_sim++) {
    CHECK_OK(oa_device_open(names[is_sim], &device));
    set_up();
    for (size_t i = 0; i < length; i++) {
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

#endif
