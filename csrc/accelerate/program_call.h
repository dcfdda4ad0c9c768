/* A BLAS call of the program, as the generated hooks pass it. Matrices are stored by columns. */
#ifndef OA_PROGRAM_CALL_H
#define OA_PROGRAM_CALL_H

#include "offload_args/accelerate.h"

#include <stdatomic.h>
#include <stdbool.h>

enum { OA_HOOK_VARIANTS = 4 }; /* the most originals of one name, each with its own hook: NumPy's, SciPy's, MKL's ... */
/* OA_BY_VALUE: functions of CBLAS; OA_BY_ADDRESS: functions with Fortran's names. */
enum oa_hook_interface { OA_BY_VALUE, OA_BY_ADDRESS, OA_HOOK_INTERFACES };
enum { OA_HOOK_WIDTHS = 2 }; /* integers of 32 and of 64 bits */

/* One routine, and the hooks for it. */
typedef struct oa_hooked {
  const char *name;                                       /* "dgemm" */
  int family;                                             /* the family's index in oa_hooks.families */
  int dtype;                                              /* oa_dtype */
  int number;                                             /* the routine's index in oa_hooks.routines */
  void *const *hooks[OA_HOOK_INTERFACES][OA_HOOK_WIDTHS]; /* each list has OA_HOOK_VARIANTS hooks */
  _Atomic(void *) *originals[OA_HOOK_INTERFACES][OA_HOOK_WIDTHS];
} oa_hooked;

/* All hooks of this build. */
typedef struct oa_hook_table {
  const oa_hooked *routines; /* sorted by name */
  int count;
  const char *const *families;                         /* sorted, and ended by NULL */
  int (*products[2])(int64_t n, oa_any *A, oa_any *C); /* C = A A, n x n, of float32 and float64; NULL: none */
} oa_hook_table;
/* Generated. A core that is built without the generated files has no such table. */
extern const oa_hook_table oa_hooks __attribute__((weak));

typedef struct oa_program_operand {
  const char *name;
  const void *data;
  int64_t rows, columns, ld;
  int direction; /* OA_IN, OA_OUT or OA_INOUT; OA_SCRATCH: the array goes up, and the call destroys it */
  int dtype;     /* 0: the routine's dtype */
  int64_t read;  /* how many columns the call reads, beginning with the first; 0: all */
} oa_program_operand;

/* One call, as a hook stores it. */
typedef struct oa_program_call {
  const oa_hooked *routine;
  int64_t m, n, k;
  int form;                                /* 1: eigenvalues or singular values without vectors; 0: any other call */
  double operations, bytes_up, bytes_down; /* operations: multiplications and additions */
  double bytes_spared;                     /* bytes that are on the device, and would go up otherwise */
  double steps;                            /* additional seconds on the device, for steps that wait for each other */
  double host_share, device_share; /* shares of the rates of products that the CPU and the device reach in this call */
  double predicted_host, predicted_device; /* seconds */
  int64_t begun;                           /* ns */
  uint64_t serial;
  int reason;     /* oa_accelerate_reason of a call that does not go */
  int site;       /* the call's place in the program, if the place is known when the call begins; otherwise -1 */
  bool is_listed; /* the call is listed as under way, because its place is asked for */
  bool noted;     /* the end of the call has to be noted */
  bool is_lapack;
  bool is_short; /* the CPU makes such calls in less time than a device that has their large arrays already */
  bool is_odd;   /* the time of this call does not predict the time of other calls */
} oa_program_call;

/* Makes the call on the device, with pointers for the operands. Returns an oa_status. */
typedef int (*oa_program_make)(const void *arguments, oa_any *const *pointers);
/* Lends the operands to a device, with the oa_array_flags in `flags` added, makes the call, and brings its results
 * down. Returns an oa_status, or OA_CALL_ODD if nothing came down, because the CPU's library has to report a fault. */
typedef int (*oa_program_lend)(void *arguments, const oa_program_operand *operands, const int *flags, int count,
                               int device);
enum { OA_CALL_ODD = -1 };

#pragma GCC visibility push(hidden) /* each call reads both variables directly, not through a global offset table */
extern _Atomic int64_t oa_program_least; /* the original makes calls with fewer multiplications */
extern _Atomic int64_t oa_program_small; /* the number of calls with fewer multiplications than oa_program_least */
#pragma GCC visibility pop

/* Returns whether a call is too small to be considered. Sizes may have any value. */
static inline bool oa_program_is_small(int64_t a, int64_t b, int64_t c) {
  int64_t ab, abc;
  if (__builtin_mul_overflow(a, b, &ab) || __builtin_mul_overflow(ab, c, &abc)) return false;
  if (abc >= atomic_load_explicit(&oa_program_least, memory_order_relaxed)) return false;
  /* this is not one locked instruction, because the time of each call matters more than a lost count */
  const int64_t count = atomic_load_explicit(&oa_program_small, memory_order_relaxed);
  atomic_store_explicit(&oa_program_small, count + 1, memory_order_relaxed);
  return true;
}

/* Convert the letters of Fortran's arguments to CBLAS's constants; 0: none. */
static inline int oa_letter_operation(const char *at) {
  const int letter = *at & ~32;
  return letter == 'N' ? 111 : letter == 'T' ? 112 : letter == 'C' ? 113 : 0;
}
static inline int oa_letter_fill(const char *at) {
  const int letter = *at & ~32;
  return letter == 'U' ? 121 : letter == 'L' ? 122 : 0;
}
static inline int oa_letter_diagonal(const char *at) {
  const int letter = *at & ~32;
  return letter == 'N' ? 131 : letter == 'U' ? 132 : 0;
}
static inline int oa_letter_side(const char *at) {
  const int letter = *at & ~32;
  return letter == 'L' ? 141 : letter == 'R' ? 142 : 0;
}

/* Leaves the region of a call with this status. Results come down if the status is OA_OK. Returns OA_OK once the
 * results are in the program's arrays, even if something fails after that, because the CPU can't make the call again
 * then. */
int oa_program_leave(oa_region *region, int status);

/* Makes the call on the device and returns true. Otherwise, returns false and changes nothing. The hook then calls the
 * original, and oa_program_by_host after it. `valid`: the enums of the call are right. Floating-point flags and errno
 * are preserved. */
bool oa_program_try(oa_program_call *call, const void *arguments, oa_program_make make, bool valid,
                    const oa_program_operand *operands, int count);
/* Makes a call of several steps on the device, as oa_program_try makes a call of BLAS. `call` already has its steps and
 * shares. `is_lapack`: steps are of LAPACK. `refused`: the reason why the call can't go, or -1. */
bool oa_program_try_lapack(oa_program_call *call, bool is_lapack, void *arguments, oa_program_lend lend, int refused,
                           const oa_program_operand *operands, int count);
/* Returns whether an open device has the steps of lapack_library.h that are of BLAS. */
bool oa_program_has_steps(void);
/* Notes that the original has made the call. */
void oa_program_by_host(oa_program_call *call);

#endif
