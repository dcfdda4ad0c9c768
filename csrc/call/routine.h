/* For the bodies of routines, which bindings/emit generates: checks, symbols, and calls that are made later. */
#ifndef OA_CALL_ROUTINE_H
#define OA_CALL_ROUTINE_H

#include "base/number.h"
#include "library/library.h"
#include "offload_args/routine.h"

#include <string.h>

enum { OA_MOST_VALUES = 36, OA_MOST_SLOTS = 44, OA_MOST_REPEATED = 8 };

/* Returns the vendor's function for 32-bit (wide 0) or 64-bit sizes, or the one that tells the workspace (2); NULL if
 * there is none. Returns NULL with the error
 * set if the library can't be loaded or lacks it. */
static inline void *oa_routine_symbol(const oa_routine *routine, int wide) {
  const int index = routine->symbols[wide];
  if (__builtin_expect(index < 0, 0)) return NULL;
  void *address = __atomic_load_n(&routine->library->addresses[index], __ATOMIC_ACQUIRE);
  return __builtin_expect(address != NULL, 1) ? address : oa_library_symbol(routine->library, index);
}

/* Returns whether the loaded library's integers have 64 bits. */
static inline int oa_routine_is_ilp64(const oa_routine *routine) { return routine->library->state->ilp64; }

/* Returns the failure of a call whose function is not there, or takes no size as large as one of the values (wide): but
 * first that of its operands, if they are wrong. */
__attribute__((cold)) int oa_fail_symbol(const oa_routine *routine, const oa_value *values, int wide, int device);
__attribute__((cold)) int oa_fail_negative(const oa_routine *routine, const char *name, int64_t value);
/* Fails for sizes of which a comparison does not hold. names: theirs, with a space between; sizes: as many. */
__attribute__((cold)) int oa_fail_requirement(const oa_routine *routine, const char *comparison, const char *names,
                                              const int64_t *sizes);

/* A token of a record: its kind, name and the field behind that, as pieces of the record. */
typedef struct oa_token {
  const char *kind, *name, *more;
  int kind_length, name_length, more_length;
} oa_token;

/* Reads the token that starts at text; returns where the next one starts, NULL after the last. */
const char *oa_token_read(const char *text, oa_token *read);
static inline int oa_token_is(const oa_token *read, const char *kind) {
  const size_t length = strlen(kind);
  return (int)length == read->kind_length && memcmp(read->kind, kind, length) == 0;
}

/* Checks a host array: its dtype is that of the device array `pointer`, it is writeable if the call writes it, and it
 * has all elements of the extent. */
int oa_check_host(const oa_routine *routine, const char *name, const oa_value *value, const oa_extent *extent,
                  const void *pointer, int writes);
/* Checks that a size is that of an element of a device array. */
int oa_check_itemsize(const oa_routine *routine, const char *name, int64_t itemsize, const char *array,
                      const void *pointer);

static inline int oa_is_wide(int64_t value) { return value != (int32_t)value; }

/* Returns the leading dimension for the vendor. It has no meaning for one column, and may be less than its rows. */
static inline int64_t oa_leading(int64_t ld, int64_t rows, int64_t columns) {
  return columns <= 1 && ld > 0 && ld < rows ? rows : ld;
}

/* Returns the unit of a function's strides between matrices of complex numbers: 1: an element; 2: a real number, as in
 * some versions of OpenBLAS; 0 with the error set: neither. A first call of it, on a few numbers, tells. tried: what
 * that one passes, a letter a value: "e" an enum as it is in values, "1" and "2" these integers, "n" the number 1, "r"
 * an array that is read, "w" the one that is written. */
int oa_stride_unit(const oa_routine *routine, void *symbol, const oa_value *values, const char *tried);

/* Returns the sum of sizes that were checked to be 0 or more; one that does not fit is too large for any array. */
static inline int64_t oa_plus(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* Returns the product of sizes of which the same holds. */
static inline int64_t oa_times(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* Returns the difference of sizes of which the same holds; one below 0 is 0: nothing is left. */
static inline int64_t oa_minus(int64_t a, int64_t b) { return a > b ? a - b : 0; }

/* Returns the quotient of two sizes, rounded down; 0 by a divisor below 1. */
static inline int64_t oa_over(int64_t a, int64_t b) { return b > 0 ? a / b : 0; }

/* Returns what that division leaves. */
static inline int64_t oa_modulo(int64_t a, int64_t b) { return b > 0 ? a % b : 0; }

/* Returns the lesser of two sizes. */
static inline int64_t oa_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Returns whether a scalar is zero. One on the device is known if it was a number of the host's. */
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

/* Makes 64 bits of the index of 32 that a vendor's function left in the value. */
static inline void oa_widen(oa_value *value) {
  int32_t index;
  memcpy(&index, value->bytes, sizeof index);
  value->integer = index;
}

/* A call that is made on the CPU in a stream's order. It is copied byte by byte, so no field points into it. */
typedef struct oa_late {
  const oa_routine *routine;
  void *symbol;
  int device, ilp64;
  int returned; /* 1 + the place of the value that the function returns; its .pointer says where it goes; or 0 */
  int count;    /* of values: the routine's, and room for numbers that have a count */
  const char *
      loads; /* of numbers on the device: 1 + place, slot, count each. They are read from .pointer of the place first */
  int has_status;     /* the vendor's function returns one; the call is waited for */
  int *vendor_status; /* where it goes */
  int repeated;       /* 0, or so many arrays of a call that is made several times, which move on: */
  int64_t times;
  struct {
    int place;         /* of the value: */
    int64_t step;      /* by so many bytes, */
    void *const *list; /* or through a list of addresses; or NULL */
  } moves[OA_MOST_REPEATED];
  oa_value values[OA_MOST_SLOTS];
} oa_late;

/* Starts a late call with a copy of the values. */
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
  const oa_routine *routine; /* the row itself: the call may run later */
  int64_t times;
  const int64_t *strides;
  oa_pointer_list lists[OA_MOST_REPEATED]; /* of the arrays that are in lists; their `at` is NULL for others */
  char names[OA_MOST_REPEATED][2];         /* of the arrays; "" of those that keep theirs */
} oa_repeat;

/* Begins the call with every array's extent `times` times. */
__attribute__((cold)) int oa_repeat_begin(oa_call *call);
/* Begins a late call: oa_begin, with the arrays of all times if it is one of oa_routine_repeat. */
static inline int oa_late_begin(oa_call *call) {
  return __builtin_expect(call->library->repeat != NULL, 0) ? oa_repeat_begin(call) : oa_begin(call);
}

/* Hands the call to oa_submit. */
int oa_late_submit(oa_late *late, oa_call *call);
/* Makes a call that touches no device; returns OA_OK, or the vendor's failure. */
int oa_late_now(oa_late *late);

#endif
