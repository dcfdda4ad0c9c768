/* Routines: the vendors' functions as rows of data, for callers that choose a function at run time. */
#ifndef OFFLOAD_ARGS_ROUTINE_H
#define OFFLOAD_ARGS_ROUTINE_H

#include "offload_args/shim.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* One argument. Its parameter's kind in the record says which member holds it. */
typedef union oa_value {
  int64_t integer;       /* an enum or a size; an index as the result of a call */
  const void *pointer;   /* a device pointer (oa_f32 *, ...); an oa_pointer_list or oa_number_list; host numbers of a
                            parameter with a count */
  float single;          /* a number as its dtype lies in memory: f32, */
  double real;           /* f64, */
  float single_parts[2]; /* c64: real and imaginary part, */
  double parts[2];       /* c128 */
  uint16_t half;         /* f16 and bf16 */
  int32_t index;         /* i32; of smaller integers, the first bytes */
  struct {
    const void *address;
    const oa_array *array; /* NULL: trusted to have what the call needs */
  } host;                  /* a host array */
  unsigned char bytes[16];
} __attribute__((aligned(16))) oa_value;

/* A list of numbers on the host, one a group. */
typedef struct oa_number_list {
  const void *at;  /* integers of enums and sizes, or numbers of the dtype */
  int64_t count;   /* -1: as many as the call says */
  size_t itemsize; /* bytes of one */
} oa_number_list;

typedef struct oa_routine oa_routine;

/* A constant of a vendor's enum that stands for a dtype, such as CUDA_R_16F. */
typedef struct oa_code_dtype {
  int code, dtype; /* dtype: an oa_dtype; OA_ANY of a constant that NumPy has no dtype for */
  const char *name;
} oa_code_dtype;

/* How the dtype of one value follows from an enum among the values. */
typedef struct oa_typed {
  unsigned char place, from;  /* of the value, and of that enum; the same: the value is the enum */
  unsigned char complex_as;   /* 1 + the place of an array: the dtype is complex if the array's is; or 0 */
  const oa_code_dtype *codes; /* of an enum: what it may be, up to one whose name is NULL; else NULL */
} oa_typed;

/* One function of one library, as the library's roles file has it. Read-only data. */
struct oa_routine {
  const char *function; /* "cublas.sgemv": the library's name, a dot, the routine's */
  /* Its parameters, tokens `kind:name[:dtype[:count]]` with a space between, in the order of its values. Kinds: enum,
   * type (an enum that stands for a dtype), size; in, out, inout (device arrays; as in "in?" NULL is allowed, as in
   * "in*" it is an oa_pointer_list of them); scalar (with a count: as many numbers); enum*, size* and scalar* (an
   * oa_number_list); result (the last; value: one that is always on the host); update and output (scalars that are read
   * and written, or written). In place of a dtype may stand the name of a `type`: that argument says it. */
  const char *record;
  const char *doc; /* a PyMethodDef's: "sgemv(trans, m, ..., *, handle=None)\n--\n\nMultiplies ..." */
  const oa_library *library;
  /* Checks, moves and calls; returns an oa_status. values: one for each parameter of the record; their contents are
   * undefined afterwards, but for result, update and output. device: 1 if every scalar, result, update and output is a
   * device pointer (only where has_device_form), 0 if each is a number. Numbers come back in their values. */
  int (*run)(const oa_routine *routine, oa_value *values, int device);
  /* The rest is for the body, which several routines share. call makes the vendor's call from values whose pointers
   * are addresses, and returns the vendor's status, or 0; NULL for libraries of GPUs. */
  int (*call)(void *symbol, oa_value *values, int ilp64);
  const char *dtypes;    /* of each value; OA_ANY of enums, of sizes, and where `typed` says it */
  const oa_typed *typed; /* typed_count of them, enums first; each comes after those that it follows from */
  int16_t symbols[3];    /* the library's symbols: for 32-bit sizes, for 64-bit ones, and the one that tells how much
                            workspace it needs; -1: there is none */
  unsigned char count;   /* of values */
  unsigned char has_device_form;
  unsigned char typed_count;
};

/* The routines of a library, sorted by name. */
int oa_library_routines(const char *library, const oa_routine **routines, int *count);
/* The kinds of objects that a library makes. */
int oa_library_object_kinds(const char *library, const oa_object_kind **kinds, int *count);
/* One of them, by the name after the dot; NULL with the error set if there is none. */
const oa_routine *oa_routine_find(const char *library, const char *name);
/* Makes the call of a routine of a library that runs on the CPU `times` times, as one call: it is checked, moved and
 * ordered at once, with the arrays of all. strides: for each array, in the record's order, the elements from that of
 * one time to that of the next; 0 repeats it, and below 0 the pointer is to the last. lists, unless NULL: for each
 * array the `times` pointers that it is in turn, instead of one pointer and a stride; or NULL. The sizes and numbers
 * are the same each time. names: a letter for each array, which messages call it by; or "". For routines whose record
 * has no result, update, output or list. */
int oa_routine_repeat(const oa_routine *routine, oa_value *values, int device, int64_t times, const int64_t *strides,
                      const void *const *const *lists, const char *names);

/* Fills the dtype of each value: count of them. Only the enums among the values are read. Returns an oa_status. */
int oa_routine_dtypes(const oa_routine *routine, const oa_value *values, unsigned char *dtypes);
/* Makes a number of the dtype from a double, rounded to nearest, ties to even; too large a one becomes infinity. */
uint16_t oa_f16_from(double number);
uint16_t oa_bf16_from(double number);
double oa_f16_to(uint16_t number);
double oa_bf16_to(uint16_t number);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
