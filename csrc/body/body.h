/* Functions for the bodies of routines, which bindings/emit generates: checks, symbols and later calls. */
#ifndef OA_BODY_H
#define OA_BODY_H

#include "base/number.h"
#include "call/call.h"
#include "library/library.h"
#include "offload_args/routine.h"

#include <string.h>

/* The values of oa_call.uncaptured that bodies use. */
#define OA_RESULT_ON_HOST \
  "its result goes to the host; give the result a place on the device, or make the call outside of the capture"
#define OA_NEEDS_WORKSPACE "the function needs memory of its own while it runs; make the call outside of the capture"

enum { OA_MOST_VALUES = 36, OA_MOST_SLOTS = 44, OA_MOST_REPEATED = 8 };

/* Returns the vendor's function for 32-bit sizes (`wide` is 0) or 64-bit sizes (1), or the function that returns the
 * workspace's size (2); NULL if the routine has no such function. Returns NULL with the error set if the library can't
 * be loaded or lacks the function. */
static inline void *oa_routine_symbol(const oa_routine *routine, int wide) {
  const int index = routine->symbols[wide];
  if (OA_UNLIKELY(index < 0)) return NULL;
  void *address = __atomic_load_n(&routine->library->addresses[index], __ATOMIC_ACQUIRE);
  return OA_LIKELY(address != NULL) ? address : oa_library_symbol(routine->library, index);
}

/* Returns whether the loaded library's integers have 64 bits. */
static inline int oa_routine_is_ilp64(const oa_routine *routine) { return routine->library->state->ilp64; }

/* Fails for a call whose function is missing, or, with `wide`, for a call whose function can't take a size as large as
 * one of the values. For a missing function, a failure of the operands is reported first. Returns the status. */
__attribute__((cold)) int oa_fail_symbol(const oa_routine *routine, const oa_value *values, int wide, int device);
__attribute__((cold)) int oa_fail_negative(const oa_routine *routine, const char *name, int64_t value);
/* Fails because a comparison of sizes does not hold. `names`: the names of the sizes, separated by a space. `sizes`:
 * the values of the sizes. */
__attribute__((cold)) int oa_fail_requirement(const oa_routine *routine, const char *comparison, const char *names,
                                              const int64_t *sizes);

static inline bool oa_is_array(int role) { return role == OA_ROLE_IN || role == OA_ROLE_OUT || role == OA_ROLE_INOUT; }
/* Returns whether the value is an oa_pointer_list. */
static inline bool oa_is_pointer_list(int role) {
  return role == OA_ROLE_IN_LIST || role == OA_ROLE_OUT_LIST || role == OA_ROLE_INOUT_LIST;
}
static inline bool oa_is_integer_list(int role) { return role == OA_ROLE_ENUM_LIST || role == OA_ROLE_SIZE_LIST; }
/* Returns whether the value is an oa_number_list. */
static inline bool oa_is_number_list(int role) { return oa_is_integer_list(role) || role == OA_ROLE_SCALAR_LIST; }

/* Checks a host array: it has the dtype of the device array `pointer`, it is writable if the call writes it, and it
 * has all elements of the extent. */
int oa_check_host(const oa_routine *routine, const char *name, const oa_value *value, const oa_extent *extent,
                  const void *pointer, int writes);
/* Checks that a size equals the itemsize of a device array. */
int oa_check_itemsize(const oa_routine *routine, const char *name, int64_t itemsize, const char *array,
                      const void *pointer);

/* Returns whether a value needs more than 32 bits. The compiler joins several such checks into one comparison. */
static inline int oa_is_wide(int64_t value) { return ((uint64_t)value + UINT64_C(0x80000000)) >> 32 != 0; }

/* Returns the leading dimension to pass to the vendor. If there is one column, `ld` has no meaning, and may be smaller
 * than the number of rows. */
static inline int64_t oa_leading(int64_t ld, int64_t rows, int64_t columns) {
  return columns <= 1 && ld > 0 && ld < rows ? rows : ld;
}

/* Returns the unit of a function's strides between complex matrices: 1 for an element; 2 for a real number, as in some
 * versions of OpenBLAS; 0, with the error set, if the unit is neither. A test call on a few numbers shows the unit.
 * `tried` describes the arguments of the test call, with a letter for each value: "e" an enum, taken from `values`, "1"
 * and "2" these integers, "n" the number 1, "r" an array that is read, "w" the array that is written. */
int oa_stride_unit(const oa_routine *routine, void *symbol, const oa_value *values, const char *tried);

/* Returns the sum of sizes that were checked to be 0 or more. A sum that overflows becomes a size that is too large for
 * any array. */
static inline int64_t oa_plus(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* Returns the product of sizes that were checked to be 0 or more. A product that overflows becomes INT64_MAX. */
static inline int64_t oa_times(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* Returns the difference of two sizes; 0 if it would be negative. */
static inline int64_t oa_minus(int64_t a, int64_t b) { return a > b ? a - b : 0; }

/* Returns the quotient of two sizes, rounded down; 0 if the divisor is below 1. */
static inline int64_t oa_over(int64_t a, int64_t b) { return b > 0 ? a / b : 0; }

/* Returns the remainder of the division in oa_over; 0 if the divisor is below 1. */
static inline int64_t oa_modulo(int64_t a, int64_t b) { return b > 0 ? a % b : 0; }

/* Returns the lesser of two sizes. */
static inline int64_t oa_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Returns whether a scalar is zero. The value of a scalar on the device is known if the core copied it from a number of
 * the host. */
static inline int oa_is_zero(const oa_value *value, int dtype, int device) {
  if (device) return oa_is_host_zero(value->pointer);
  switch (dtype) {
    case OA_F32:
      return value->single == 0;
    case OA_F64:
      return value->real == 0;
    case OA_C64:
      return value->single_parts[0] == 0 && value->single_parts[1] == 0;
    case OA_C128:
      return value->parts[0] == 0 && value->parts[1] == 0;
    default:
      return oa_number_is_zero(value, dtype);
  }
}

/* Widens the 32-bit index that a vendor's function left in the value to 64 bits. */
static inline void oa_widen(oa_value *value) {
  int32_t index;
  memcpy(&index, value->bytes, sizeof index);
  value->integer = index;
}

/* A call that is made on the CPU in a stream's order. An oa_late is copied byte by byte, so no field points into the
 * struct. */
typedef struct oa_late {
  const oa_routine *routine;
  void *symbol;
  int device, ilp64;
  int returned; /* 1 + the index of the value for the function's result, whose destination is in .pointer; or 0 */
  int count;    /* number of values: the routine's values, and slots for numbers with a count */
  const char *
      /* the numbers that are on the device. Each number has three bytes: 1 + the index of the value, the slot, and the
       * count. Each number is read before the call, from .pointer of the value */
      loads;
  int has_status;     /* 1: the vendor's function returns a status, and the core waits for the call */
  int *vendor_status; /* the destination of the status */
  int repeated;       /* 0, or the number of arrays that move from one call to the next */
  int64_t times;
  oa_value *results; /* NULL, or the destinations of the numbers that the calls return */
  struct {
    int place;         /* index of the value, */
    int64_t step;      /* the array's step in bytes, */
    void *const *list; /* or, instead of a step, the array's list of addresses; NULL: there is no list */
  } moves[OA_MOST_REPEATED];
  oa_value values[OA_MOST_SLOTS];
} oa_late;

/* Initializes a late call with a copy of the values. */
static inline void oa_late_start(oa_late *late, const oa_routine *routine, void *symbol, const oa_value *values,
                                 int device) {
  late->routine = routine;
  late->symbol = symbol;
  late->device = device;
  late->ilp64 = oa_routine_is_ilp64(routine);
  late->returned = 0;
  late->count = routine->count;
  late->loads = "";
  late->has_status = 0;
  late->repeated = 0;
  memcpy(late->values, values, routine->count * sizeof *values);
}

/* A request of oa_routine_repeat. */
typedef struct oa_repeat {
  const oa_routine *routine; /* points to the routine's data, not to a copy, because the call may run later */
  int64_t times;
  const int64_t *strides;
  oa_value *results;                       /* NULL, or memory for the number that each call returns */
  oa_pointer_list lists[OA_MOST_REPEATED]; /* the lists of arrays that are in lists; `at` is NULL for other arrays */
  char names[OA_MOST_REPEATED][2];         /* the arrays' names in messages; "" for an array that keeps its name */
} oa_repeat;

/* Begins the call with the extent of every array repeated `times` times. */
__attribute__((cold)) int oa_repeat_begin(oa_call *call);
/* Begins a late call, as oa_begin does. A call of oa_routine_repeat begins with the arrays of all repetitions. */
static inline int oa_late_begin(oa_call *call) {
  return OA_UNLIKELY(call->library->repeat != NULL) ? oa_repeat_begin(call) : oa_begin(call);
}

/* Passes the call to oa_submit. */
int oa_late_submit(oa_late *late, oa_call *call);
/* Makes a call that touches no device. Returns OA_OK, or the vendor's failure. */
int oa_late_now(oa_late *late);

#endif
