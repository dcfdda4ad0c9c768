/* Routines: the vendors' functions as rows of data, for callers that choose a function at run time. */
#ifndef OFFLOAD_ARGS_ROUTINE_H
#define OFFLOAD_ARGS_ROUTINE_H

#include "offload_args/shim.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* One argument. The role of the argument in the record determines the member that holds the argument. */
typedef union oa_value {
  int64_t integer; /* an enum or a size; an index as the result of a call */
  /* a device pointer (oa_f32 *, ...); an oa_pointer_list or oa_number_list; host numbers of a parameter with a count */
  const void *pointer;
  float single;          /* a number, in the form of its dtype: f32, */
  double real;           /* f64, */
  float single_parts[2]; /* c64: real and imaginary part, */
  double parts[2];       /* c128 */
  uint16_t half;         /* f16 and bf16 */
  int32_t index;         /* i32; smaller integers are in the first bytes */
  struct {
    const void *address;
    const oa_array *array; /* NULL: the core trusts the caller to pass enough memory */
  } host;                  /* a host array */
  unsigned char bytes[16];
} __attribute__((aligned(16))) oa_value;

/* A list of numbers on the host, one for each group. */
typedef struct oa_number_list {
  const void *at;  /* integers of enums and sizes, or numbers of the dtype */
  int64_t count;   /* -1: the number that the call needs */
  size_t itemsize; /* bytes of an element */
} oa_number_list;

typedef struct oa_routine oa_routine;

/* A constant of a vendor's enum that stands for a dtype, such as CUDA_R_16F. */
typedef struct oa_code_dtype {
  int code, dtype; /* dtype: an oa_dtype; OA_ANY: NumPy has no such dtype */
  const char *name;
} oa_code_dtype;

/* How an enum among the values determines the dtype of one value. */
typedef struct oa_typed {
  unsigned char place, from; /* the indices of the value and of the enum; equal: the value is the enum */
  unsigned char complex_as;  /* 1 + the index of an array: the value is complex if the array is; 0: none */
  /* the allowed values of an enum, ended by an entry whose name is NULL; NULL if the value is no enum */
  const oa_code_dtype *codes;
} oa_typed;

/* The roles of values: OA_ROLE_ENUM and so on. */
enum {
#define OA_ROLE(name, text, kind) OA_ROLE_##name,
#include "offload_args/roles.def"
#undef OA_ROLE
  OA_ROLE_COUNT
};

/* One value of a routine's record. The routine's `dtypes` has its dtype. */
typedef struct oa_role {
  unsigned char role;
  /* for numbers: their count, 1 or more; for an object: the index of its kind in the library; for a list that is an
   * output: the index of the value with its length */
  unsigned char count;
  const char *name; /* name of the parameter */
  /* NULL, or: the name of the `type` that determines its dtype; the class of an object; "none": NULL is allowed; the
   * format of a struct, as in Python; of an output: "text" or "stream" */
  const char *more;
} oa_role;

/* One function of one library, from the library's roles file. Read-only data. */
struct oa_routine {
  const char *function;  /* "cublas.sgemv": the names of the library and the routine */
  const oa_role *record; /* an array of `count`, in the order of its values */
  const char *doc; /* the text for PyMethodDef.ml_doc: "sgemv(trans, m, ..., *, handle=None)\n--\n\nMultiplies ..." */
  const oa_library *library;
  /* Checks the values, moves the missing bytes and calls the vendor's function. Returns an oa_status. values: one for
   * each role of the record; their contents are undefined afterwards, except for result, update and output. device: 1
   * if every scalar, result, update and output is a device pointer (only if has_device_form), 0 if each is a number. A
   * number that the routine returns is in the number's value afterwards. */
  int (*run)(const oa_routine *routine, oa_value *values, int device);
  /* The members from here on are for the body, which several routines may share. call makes the vendor's call from
   * values whose pointers are addresses, and returns the vendor's status, or 0; NULL for libraries of GPUs. */
  int (*call)(void *symbol, oa_value *values, int ilp64);
  /* dtype of each value; OA_ANY for enums, for sizes, and for values whose dtype `typed` determines */
  const char *dtypes;
  const oa_typed *typed; /* an array of typed_count, enums first; each entry follows the entries on which it depends */
  /* indices of the library's symbols: for 32-bit sizes, for 64-bit sizes, and for the size of the workspace; -1: there
   * is none */
  int16_t symbols[3];
  unsigned char count; /* number of values */
  unsigned char has_device_form;
  unsigned char typed_count;
};

/* The routines of a library, sorted by name. */
int oa_library_routines(const char *library, const oa_routine **routines, int *count);
/* Lists the kinds of objects that a library makes. */
int oa_library_object_kinds(const char *library, const oa_object_kind **kinds, int *count);
/* Returns the routine of a library with this name, the part of `function` after the dot; NULL with the error set if
 * there is none. */
const oa_routine *oa_routine_find(const char *library, const char *name);
/* Makes `times` calls of a routine as one call of the core: the arrays of all repetitions are checked, moved and
 * ordered once. The routine's library has to run on the CPU. strides: for each array, in the record's order, the
 * elements from one repetition to the next; 0 repeats the array. With a negative stride, the pointer is to the array of
 * the last repetition. lists (may be NULL): for each array NULL, or its `times` pointers, which replace one pointer and
 * a stride. Sizes and numbers are the same each time. names: a letter for each array, which messages use; or "". The
 * routine's record must have no result, update, output or list. If a routine returns a number (OA_ROLE_VALUE), the
 * pointer of that value is NULL, or to `times` values: each receives the number of its repetition. */
int oa_routine_repeat(const oa_routine *routine, oa_value *values, int device, int64_t times, const int64_t *strides,
                      const void *const *const *lists, const char *names);

/* Fills `dtypes` with the dtype of each of the routine's `count` values. Reads only the enums among the values. Returns
 * an oa_status. */
int oa_routine_dtypes(const oa_routine *routine, const oa_value *values, unsigned char *dtypes);
/* Converts a double to a number of the dtype, rounded to nearest, ties to even; a number that is too large becomes
 * infinity. */
uint16_t oa_f16_from(double number);
uint16_t oa_bf16_from(double number);
double oa_f16_to(uint16_t number);
double oa_bf16_to(uint16_t number);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
