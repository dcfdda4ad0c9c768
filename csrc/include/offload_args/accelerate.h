/* Unmodified programs: BLAS and LAPACK calls from modules of this process go to a device if that is faster.
 *
 * oa_accelerate_start writes hooks into the global offset tables of all modules that import BLAS, and of modules that
 * are loaded later; oa_accelerate_stop takes the hooks out. A hook makes the whole call on the device, or calls the
 * original: no call fails because of the device. Needs glibc on x86-64 or aarch64. */
#ifndef OFFLOAD_ARGS_ACCELERATE_H
#define OFFLOAD_ARGS_ACCELERATE_H

#include "offload_args/core.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The usual `least` and `price`; `accelerate` of Python and OFFLOAD_ARGS_ACCELERATE use them if the margin is not 0. */
#define OA_USUAL_LEAST 1000000
#define OA_USUAL_PRICE 1.0
/* The least order of matrices whose singular values GPUs find by polar factors, and the most in single precision.
 * `lapack.gesvd` of Python reads them, too. Smaller matrices take longer, and in single precision most larger matrices
 * are too close to singular. */
#define OA_LEAST_POLAR 32
#define OA_MOST_POLAR_SINGLE 512

typedef struct oa_accelerate_options {
  size_t size;
  /* a call goes to the device if its predicted time there, multiplied by `margin`, is less than its predicted time on
   * the CPU; 0: every call that can go to the device goes */
  double margin;
  int64_t least; /* multiplications m n k: calls with fewer never go, and cost one comparison */
  /* a sum of 1 << number for the families to be sent; oa_accelerate_family has the numbers; 0: all families */
  uint64_t families;
  int only_count;  /* 1: no call goes to the device; the rows have the times that the device would have saved */
  int sites;       /* 1: oa_accelerate_wait requests the program's line of each call */
  double price;    /* the seconds that refused calls must have lost before a device is requested */
  int planned;     /* an oa_accelerate_planning */
  double patience; /* the most seconds that a call waits until its place is known, if the plan needs the place */
} oa_accelerate_options;

enum oa_accelerate_planning {
  OA_PLAN_NOTHING, /* the model decides */
  OA_PLAN_FIRST,   /* the plan (oa_accelerate_plan) decides, and the model decides calls that are not in the plan */
  OA_PLAN_ALONE    /* only the plan decides, independently of times: the CPU makes calls that are not in the plan */
};

/* The rates of a device and of this machine, for the model. Rates are in bytes or operations per second, and times are
 * in seconds. The elements of an array of four are for float32, float64, complex64 and complex128. */
typedef struct oa_accelerate_rates {
  size_t size;
  double up, down, call;
  double device[4], host[4];
  double host_memory;
} oa_accelerate_rates;

enum oa_accelerate_reason {
  OA_REFUSED_SLOWER,  /* the model predicts that the device is not faster */
  OA_REFUSED_WAITING, /* the device, or its LAPACK, is not open yet */
  OA_REFUSED_OVERLAP, /* the output overlaps an input */
  OA_REFUSED_INVALID, /* an argument is wrong, or the call does nothing */
  OA_REFUSED_CROWD,   /* several threads make calls at the same time */
  OA_REFUSED_BACKOFF, /* the device failed recently, or permanently */
  OA_REFUSED_FAILED,  /* the device failed in this call */
  OA_REFUSED_ASKED,   /* the program's options exclude the function, or only count calls */
  OA_REFUSED_PLAN,    /* the plan refuses the call, or does not have it */
  OA_REFUSED_VARIANT, /* the device's library lacks exactly this variant of the routine */
  OA_REFUSED_ODD,     /* LAPACK: info is not 0, a number is not finite, or a pivot is tiny: the CPU's library decides */
  OA_REFUSED_LENT,    /* a region of the program lends an array that the call writes */
  OA_REFUSED_ODD_BEFORE, /* several similar calls before were OA_REFUSED_ODD */
  OA_REFUSED_COUNT
};

/* All calls of one routine, of similar sizes, from one place of the program. */
typedef struct oa_accelerate_row {
  const char *routine; /* "dgemm" */
  int64_t m, n, k;     /* sizes of the latest call */
  int64_t calls, gone;
  int64_t refused[OA_REFUSED_COUNT];
  int64_t bytes_up, bytes_down; /* bytes of calls that went to the device; bytes_spared were on the device already */
  int64_t bytes_spared;
  double host_seconds;   /* time of calls that the CPU made */
  double device_seconds; /* time of calls that went to the device */
  double predicted_host; /* the model's prediction of the CPU's time for calls that went to the device */
  /* the time that the device would have saved for calls that did not go, as the model predicts it */
  double predicted_savings;
  int32_t site;     /* a number from oa_accelerate_set_site; -1: not known */
  int32_t decision; /* an oa_accelerate_decided, for the plan */
} oa_accelerate_row;

enum oa_accelerate_decided { OA_DECIDED_NOTHING, OA_DECIDED_GOES, OA_DECIDED_STAYS };

enum oa_accelerate_no_site {
  OA_SITE_NONE = -1, /* the call has no known place */
  OA_SITE_LATER = -2 /* another thread can find the place: oa_accelerate_wait requests it */
};

enum oa_accelerate_event { OA_EVENT_NONE, OA_EVENT_STOPPED, OA_EVENT_DEVICE, OA_EVENT_SITE, OA_EVENT_LAPACK };

/* A call under way, for oa_accelerate_wait. The thread number is the system's, as pthread_self() returns it. */
typedef struct oa_accelerate_asked {
  size_t size;
  uint64_t thread, serial;
} oa_accelerate_asked;

/* Writes the hooks with these options. If the hooks are written already, only changes the options. Returns
 * OA_ERROR_LIBRARY if tables can't be written. */
int oa_accelerate_start(const oa_accelerate_options *options);
/* Takes all hooks out. A call under way goes on where it began, on the device or on the CPU. Returns OA_OK if there are
 * no hooks. */
int oa_accelerate_stop(void);
/* Hooks modules that were loaded since the last scan. Modules that Python imports are hooked without this call. */
int oa_accelerate_rescan(void);
/* Counts the slots that hold a hook now, and the modules that have these slots. */
int oa_accelerate_query(int *slots, int *modules);
/* Sends calls to that device from now on; -1: to no device. The caller should have loaded the device's libraries. If
 * rates is NULL, nominal rates are used. */
int oa_accelerate_use(int device, const oa_accelerate_rates *rates);
/* Opens the device's LAPACK by a small call. If that works, LAPACK calls go there from then on. */
int oa_accelerate_use_lapack(int device);
/* Measures the rates of a device with some copies and products, which take a fraction of a second. */
int oa_accelerate_calibrate(int device, oa_accelerate_rates *rates);
/* Fills in the rates that are assumed before rates are measured. */
int oa_accelerate_nominal(oa_accelerate_rates *rates);
/* Waits for work that a thread of the program itself has to do: OA_EVENT_DEVICE (open a device, once), OA_EVENT_LAPACK
 * (open its LAPACK, too), OA_EVENT_SITE (find the place of the call `asked`), or OA_EVENT_STOPPED after
 * oa_accelerate_stop. */
int oa_accelerate_wait(oa_accelerate_asked *asked, int *event);
/* Sets the place of a call under way. Does nothing if the call has ended. */
int oa_accelerate_set_site(uint64_t serial, int site);
/* Sets the function that returns the place of the calling thread's call, or an oa_accelerate_no_site. The function must
 * not wait for another thread: the program may hold a lock around the call, and the other thread may wait for that
 * lock. */
int oa_accelerate_set_finder(int (*finder)(void));
/* Fills up to capacity rows, and counts all rows. *small is the number of calls with fewer than `least`
 * multiplications; concurrent calls of several threads may be missing from this number. */
int oa_accelerate_read(oa_accelerate_row *rows, int capacity, int *count, int64_t *small);
/* Sets the plan, which replaces the former plan. The plan has the routine, m, n, k, site and decision of each row.
 * Calls of that routine and site whose sizes have the same powers of two follow the decision, if the options require
 * it. */
int oa_accelerate_plan(const oa_accelerate_row *rows, int count);
/* Copies the text of the latest failure of a call on the device, cut to capacity - 1 characters; "": no call failed. */
int oa_accelerate_read_failure(char *text, size_t capacity);
/* Empties the rows. */
int oa_accelerate_clear(void);
/* Returns the name of family `number`, such as "gemm"; NULL beyond the last number. */
const char *oa_accelerate_family(int number);
/* Returns the text of an oa_accelerate_reason for reports, such as "not faster"; NULL for other numbers. */
const char *oa_accelerate_reason_text(int reason);

/* A loop of a generalized universal function of NumPy, as PyUFunc_ReplaceLoopBySignature takes it. */
typedef void (*oa_loop_function)(char **arguments, const intptr_t *sizes, const intptr_t *steps, void *data);
typedef struct oa_accelerate_loop {
  const char *function;  /* such as "cholesky_lo", or "matmul" */
  const char *signature; /* of the function in NumPy, without spaces, such as "(m,m)->(m,m)" */
  char types[8];         /* of all operands, by NumPy's letters, such as "dd" */
  oa_loop_function hook;
  oa_loop_function original; /* the caller sets it with __ATOMIC_RELEASE; until then, a call of the hook waits */
} oa_accelerate_loop;
/* Returns loop `number`, which the caller may put in place of NumPy's; NULL beyond the last number. */
oa_accelerate_loop *oa_accelerate_loop_at(int number);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
