/* How a call into a vendor's library, or into a program's own kernel, declares the memory that it touches:
 *   oa_operand operands[] = {
 *       {.name = "x", .pointer = x, .access = OA_READ, .dtype = OA_F32, .extent = OA_ELEMENTS(n)}};
 *   oa_call call = {.function = "mine.sum", .operands = operands, .count = 1};
 *   int status = oa_begin(&call);
 *   if (status) return status;
 *   return oa_end(&call, sum(operands[0].address, n, call.stream));
 * Generated shims do so for every function of a vendor. The generated shims are compiled with the core. A program that
 * uses this header must be compiled again for each new minor version. */
#ifndef OFFLOAD_ARGS_SHIM_H
#define OFFLOAD_ARGS_SHIM_H

#include "offload_args/core.h"

/* Tell the compiler which way a branch usually goes. */
#define OA_LIKELY(condition) __builtin_expect(!!(condition), 1)
#define OA_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The elements that a call touches through one pointer: bounds, overlap and directions concern only these elements. The
 * macros below build an extent; oa_begin checks it. Matrices are stored by columns: describe a matrix that is stored by
 * rows as its transpose. The names are the call's own parameters, for messages. */
enum oa_extent_kind {
  OA_EXTENT_VECTOR,   /* `rows` elements, ld apart (ld: the increment, may be negative) */
  OA_EXTENT_MATRIX,   /* `columns` columns of `rows` elements, ld apart */
  OA_EXTENT_TRIANGLE, /* one triangle of a square matrix, its diagonal included */
  OA_EXTENT_BAND,     /* the elements (i, j) of a matrix with -above <= i - j <= below: above + i - j down column j */
  OA_EXTENT_PACKED    /* the columns of a triangle one after the other: rows * (rows + 1) / 2 elements */
};
enum oa_extent_part {
  OA_UPPER = 1,     /* the upper triangle, or triangular band; otherwise the lower */
  OA_UNIT = 2,      /* the triangle without its diagonal */
  OA_REPEATS = 4,   /* a vector whose ld may be 0; with ld 0, all elements of the vector are one element in memory */
  OA_BATCHED = 8,   /* `batch` extents of this shape, whose starts are `stride` elements apart */
  OA_LISTED = 16,   /* `batch` extents of this shape, each with its own pointer: for oa_begin_lists */
  OA_OPTIONAL = 32, /* the pointer may be NULL, which means that the call has no such operand: for oa_begin_lists */
  /* the library may read the operand, but its values have no effect, so it may overlap written operands */
  OA_UNUSED = 64,
  /* with OA_IN_PLACE: the operand may be a part of another operand in place, from element `stride` on */
  OA_INSIDE = 128
};

typedef struct oa_extent {
  int64_t rows, columns, ld;
  const char *rows_name, *columns_name, *ld_name;
  int kind, part;        /* an oa_extent_kind; a sum of oa_extent_part */
  int64_t below, above;  /* diagonals of a band below and above the main diagonal */
  int64_t batch, stride; /* with OA_BATCHED; `stride` with OA_INSIDE, too */
  const char *batch_name, *stride_name;
} oa_extent;

#ifdef __cplusplus
#define OA_NEW_EXTENT oa_extent
#else
#define OA_NEW_EXTENT (oa_extent)
#endif
#define OA_EXTENT(kind, part, rows, columns, ld, rows_name, columns_name, ld_name)                                  \
  (OA_NEW_EXTENT{(rows), (columns), (ld), (rows_name), (columns_name), (ld_name), (kind), (part), 0, 0, 0, 0, NULL, \
                 NULL})
#define OA_VECTOR(n, inc, n_name, inc_name) OA_EXTENT(OA_EXTENT_VECTOR, 0, n, 1, inc, n_name, "", inc_name)
#define OA_REPEATABLE(n, inc, n_name, inc_name) OA_EXTENT(OA_EXTENT_VECTOR, OA_REPEATS, n, 1, inc, n_name, "", inc_name)
#define OA_MATRIX(m, n, ld, m_name, n_name, ld_name) OA_EXTENT(OA_EXTENT_MATRIX, 0, m, n, ld, m_name, n_name, ld_name)
#define OA_TRIANGLE(part, n, ld, n_name, ld_name) OA_EXTENT(OA_EXTENT_TRIANGLE, part, n, n, ld, n_name, n_name, ld_name)
#define OA_BAND(m, n, below, above, ld, m_name, n_name, ld_name) \
  (OA_NEW_EXTENT{(m), (n), (ld), (m_name), (n_name), (ld_name), OA_EXTENT_BAND, 0, (below), (above), 0, 0, NULL, NULL})
/* One triangle of a square band matrix, with k diagonals beside the main one. */
#define OA_BAND_TRIANGLE(part, n, k, ld, n_name, ld_name)                                                              \
  (OA_NEW_EXTENT{(n), (n), (ld), (n_name), (n_name), (ld_name), OA_EXTENT_BAND, (part), ((part) & OA_UPPER) ? 0 : (k), \
                 ((part) & OA_UPPER) ? (k) : 0, 0, 0, NULL, NULL})
#define OA_PACKED(part, n, n_name) OA_EXTENT(OA_EXTENT_PACKED, part, n, n, 1, n_name, n_name, "")
#define OA_ELEMENTS(n) OA_EXTENT(OA_EXTENT_VECTOR, 0, n, 1, 1, "size", "", "")

/* Returns the extent of a batch: `batch` arrays with the extent `extent`, whose starts are `stride` elements apart.
 * Written arrays must not overlap. */
static inline oa_extent oa_strided(oa_extent extent, int64_t batch, int64_t stride, const char *batch_name,
                                   const char *stride_name) {
  extent.part |= OA_BATCHED;
  extent.batch = batch;
  extent.stride = stride;
  extent.batch_name = batch_name;
  extent.stride_name = stride_name;
  return extent;
}

/* Returns the extent of a batch: `batch` arrays with the extent `extent`, whose pointers are in an oa_pointer_list. */
static inline oa_extent oa_listed(oa_extent extent, int64_t batch, const char *batch_name) {
  extent.part |= OA_LISTED;
  extent.batch = batch;
  extent.batch_name = batch_name;
  return extent;
}

/* Returns the extent of an operand that may be a part of another operand, and then begins `elements` elements after the
 * start of the other operand. */
static inline oa_extent oa_inside(oa_extent extent, int64_t elements) {
  extent.part |= OA_INSIDE;
  extent.stride = elements;
  return extent;
}

/* Returns the extent of an operand that may be absent. */
static inline oa_extent oa_optional(oa_extent extent) {
  extent.part |= OA_OPTIONAL;
  return extent;
}

/* Returns the extent of an operand that may be absent if test is not 0. */
static inline oa_extent oa_optional_if(int test, oa_extent extent) { return test ? oa_optional(extent) : extent; }

typedef struct oa_operand {
  const char *name; /* name of the parameter */
  const void *pointer;
  int access; /* oa_access */
  int dtype;  /* oa_dtype; OA_ANY: not checked */
  oa_extent extent;
  /* set by oa_begin */
  void *address;
  void *slot;
  int touched; /* 0: the call touches no element; other values are for oa_end */
} oa_operand;

/* Returns an operand. The members are stored one by one, because compilers clear a large literal by an instruction that
 * takes longer than all of these stores. Members that oa_begin sets are left unset. */
static inline oa_operand oa_operand_of(const char *name, const void *pointer, int access, int dtype, oa_extent extent) {
  oa_operand o;
  o.name = name;
  o.pointer = pointer;
  o.access = access;
  o.dtype = dtype;
  o.extent = extent;
  return o;
}

/* The device pointers of one parameter: a list, or one pointer to memory that has all of the arrays. */
typedef struct oa_pointer_list {
  const void *const *at; /* `count` pointers; NULL: `first` and `stride` describe the arrays */
  const void *first;     /* the pointer to all arrays */
  int64_t stride;        /* number of elements from the start of one array to the start of the next */
  int64_t count;         /* -1: the number that the call needs */
} oa_pointer_list;

typedef struct oa_library oa_library;

/* How a call's vendor function differs from a function that takes a handle. */
enum oa_call_special {
  OA_WITHOUT_HANDLE = 1,
  /* the function takes no stream: the core waits for the call's stream before the call, and for the default stream
   * after it */
  OA_ON_DEFAULT_STREAM = 2,
  OA_ON_HOST_MEMORY = 4, /* the function reads or writes host memory, so the core waits for the call */
  OA_MAY_OVERLAP = 8,    /* written operands may overlap other operands; the caller intends this */
  OA_ENDS_UNWRITTEN = 16 /* the caller of oa_begin ends the call if it writes no element of any operand */
};

typedef struct oa_call {
  const char *function; /* "cublas.sgemv" */
  const oa_library *library;
  oa_operand *operands;
  int count;
  int device_scalars; /* 1: the scalars are on the device (pointer mode) */
  int blocking;       /* 1: the call's result goes to host memory; oa_submit waits for it */
  int special;        /* a sum of oa_call_special */
  const void *only;   /* the device that the operands need to be on; NULL: any */
  /* Calls without a library: */
  int has_own_stream; /* 1: the call goes to own_stream; otherwise to the region's stream */
  void *own_stream;   /* a stream of the caller */
  /* "reason; remedy" if the call can't be captured into a graph; NULL: a graph can have the call */
  const char *uncaptured;
  /* set by oa_begin */
  void *handle; /* the vendor's handle, bound to the call's stream; NULL for libraries without handles */
  void *device, *stream, *region;
  void *native_stream; /* the backend's stream of the call, for libraries that take it as an argument */
  void *saved;         /* the former state of the thread */
  int saved_mode;
  int capture_mode;       /* the thread's capture mode before the call; -1: the mode did not change */
  int open;               /* 0 before the call begins; then owned by the core, until the call has ended */
  int vendor_status;      /* success at first; run of oa_submit may write the vendor's status here if blocking is 1 */
  int64_t begun;          /* time at which the call began, for the trace; 0: the trace is off */
  void *object;           /* the caller's own handle, if it is an oa_object */
  struct oa_lists *lists; /* set by oa_begin_lists, until the call ends; otherwise NULL */
  void *caller;           /* the thread that began the call */
} oa_call;

/* Returns a call for oa_begin, which is not open. The members are stored one by one, as in oa_operand_of. */
static inline oa_call oa_call_of(const char *function, const oa_library *library, oa_operand *operands, int count) {
  oa_call call;
  call.function = function;
  call.library = library;
  call.operands = operands;
  call.count = count;
  call.device_scalars = call.blocking = call.special = call.has_own_stream = 0;
  call.own_stream = NULL;
  call.only = NULL;
  call.uncaptured = NULL;
  call.open = 0;
  return call;
}

/* Checks every operand (live, right device, in bounds, allowed, not overlapping a written operand), orders the stream
 * after the work that the operands wait for, and brings up the missing bytes as one batch. If it returns OA_OK, exactly
 * one oa_end or oa_submit must follow. If oa_begin fails, nothing is moved or marked. A call waits for calls on other
 * threads that are the first to write one of its arrays. Leaving a region or updating an array waits for its calls. In
 * a thread that has not ended its own call, leaving and updating return OA_ERROR_ARGUMENT and change nothing. A
 * function also returns OA_ERROR_ARGUMENT if its wait would be a deadlock: a circle of threads, each of which waits for
 * a call that the next thread has open. */
int oa_begin(oa_call *call);
/* Makes oa_begin only check the calls of this thread, until oa_only_check(0). In this mode, oa_begin fails with
 * OA_ERROR_ARGUMENT after all checks, and moves nothing. Returns the number of calls that were checked since the mode
 * was switched on. */
int oa_only_check(int on);
/* Switch the mode on for a part of a function that may be called in this mode, and restore it with its number of calls.
 * outer: what oa_checks_begin returned. oa_checks_end returns the number of calls that were checked in between. */
int64_t oa_checks_begin(void);
int oa_checks_end(int64_t outer);
int oa_only_checks(void); /* 1 while oa_begin only checks the calls of this thread */
/* Begins a call with OA_LISTED operands. The pointer of such an operand is an oa_pointer_list, and each of its arrays
 * is checked and moved as a separate operand; messages call it "A[17]". Consecutive operands with the same list are its
 * parts, in order. The address of a listed operand becomes the address of an array of addresses on the device. The
 * array is sent in the order of the call's stream, and freed in that order when the call ends. A call whose lists are
 * all empty, and that has no other operand, touches no device. If so, call->open is 0 after OA_OK, and no oa_end or
 * oa_submit may follow. */
int oa_begin_lists(oa_call *call);
/* Marks the written operands. status is the vendor's (0: success); after a failure, the operands are marked as invalid,
 * and oa_end returns OA_ERROR_LIBRARY. */
int oa_end(oa_call *call, int status);
/* Ends a call of a library that runs on the CPU, as oa_end does, after it has called or enqueued run(arguments) in
 * stream order. If `run` is called later, it receives a copy of `size` bytes of the arguments. */
int oa_submit(oa_call *call, void (*run)(void *), void *arguments, size_t size);
/* Returns 1 if oa_stage made the pointer from a host zero and no call wrote to it since; 0 for any other pointer. */
int oa_is_host_zero(const void *pointer);

/* One vendor library, from its roles file. Read-only data, generated; see bindings/. */
typedef struct oa_code_name {
  int code;
  const char *name;
} oa_code_name;
enum oa_version_kind {
  OA_VERSION_NONE = 0, /* the library does not report its version */
  OA_VERSION_TEXT,     /* const char *f(void) */
  OA_VERSION_BUFFER,   /* int f(char *text, size_t size) */
  OA_VERSION_PARTS,    /* int f(int part, int *value): parts 0, 1 and 2 are major, minor and patch */
  OA_VERSION_NUMBER    /* int f(int *version) */
};
/* A symbol that differs in versions of a library before oa_library.older_before. */
typedef struct oa_older {
  int symbol;          /* index of the symbol */
  const char *instead; /* the name of the same function in those versions; NULL: later versions lack it */
} oa_older;
/* A symbol that is not called in versions of a library before `version`. */
typedef struct oa_since {
  int symbol; /* index of the symbol */
  const char *version, *why;
} oa_since;
struct oa_routine;
enum { OA_MOST_TOLD = 2 };
/* A kind of object that a library makes and the caller owns. */
typedef struct oa_object_kind {
  const char *name; /* "Handle" */
  int destroy;      /* the index of the symbol int destroy(void *) */
  int is_handle;    /* 1: the object is the library's handle, which belongs to a device and has a stream */
  int is_number;    /* 1: the vendor's type is int, and every int is an object, also 0 */
  /* The indices of the functions that return numbers of an object, which never change: int tell(void *, int *) */
  int told_count, tells[OA_MOST_TOLD];
} oa_object_kind;
struct oa_library {
  const char *name;           /* "cublas" */
  const char *title;          /* "cuBLAS" */
  const char *backend;        /* "cuda"; NULL: any device whose libraries run on the CPU */
  const char *const *sonames; /* tried in order by C programs that never call oa_library_open; NULL-terminated */
  /* prefixes of the symbols in known builds, including ""; NULL-terminated; NULL: only "" */
  const char *const *prefixes;
  const char *const *suffixes; /* suffixes of the symbols, listed as the prefixes are */
  /* size_t probe(n, const float *x, incx): returns the index of the largest element; or NULL */
  const char *probe;
  const char *version;               /* the symbol that reports the version, without a prefix and suffix; or NULL */
  const char *const *symbols;        /* symbol_count symbols */
  const oa_code_name *code_names;    /* names of the status codes; {0, NULL}-terminated; or NULL */
  const struct oa_routine *routines; /* routine_count routines, sorted by name; or NULL */
  int version_kind;                  /* oa_version_kind */
  int symbol_count, routine_count;
  int optional_count; /* number of symbols, at the end of the list, that a library may lack */
  int success;        /* the status of a call that succeeded */
  /* Lists of statuses that are not failures. A list ends with the status `success`; NULL: an empty list. also_done:
   * statuses of calls that did their work nevertheless. only_asked: statuses of calls that only queried their needs and
   * wrote nothing. */
  const int *also_done, *only_asked;
  /* Indices into symbols, or -1 if the library has no such function: int create(void **), int destroy(void *), int
   * set_stream(void *, void *), int get_stream(void *, void **), int set_pointer_mode(void *, int), int
   * get_pointer_mode(void *, int *). create -1: the core makes no handles. */
  int create, destroy, set_stream, get_stream, set_pointer_mode, get_pointer_mode;
  int needs_handle;   /* 1: each call needs a handle of the caller; 0 and create -1: the library has no handles */
  int shares_handles; /* 1: several threads may use a handle at once; 0: a handle serves one open call at a time */
  int host_mode, device_mode; /* the values of the library's pointer mode */
  /* 1: the library's functions take the stream as an argument, oa_call.native_stream. If a GPU library has neither such
   * an argument nor set_stream, the core waits before and after each call. */
  int takes_stream;
  int last_error; /* 1 + the index of const char *last_error(void *); 0: the library has no such function */
  /* "reason; remedy" if no call of the library can be captured into a graph; NULL: calls can be captured */
  const char *uncaptured;
  const char *header_version; /* the version of the header that the table was made from; or NULL */
  const char *older_version,
      *older_before;     /* the version of an older header, and the first version for which it is wrong; or NULL */
  const oa_older *older; /* older_count entries */
  int older_count;
  const oa_since *since; /* since_count entries */
  int since_count;
  const oa_object_kind *object_kinds; /* object_kind_count entries; or NULL */
  int object_kind_count;
  void **addresses;               /* room for symbol_count addresses: NULL until first use; atomic */
  struct oa_library_state *state; /* owned by the core; zero at first */
  const struct oa_repeat *repeat; /* set in the copy that oa_routine_repeat makes; otherwise NULL */
  /* Places in addition to `sonames`, see oa_library_set_loader; NULL-terminated, or NULL: */
  const char *const *beside;  /* patterns of files in other packages of a Python, from the folder of packages */
  const char *const *folders; /* the vendor's folders; a folder may begin with a variable, as in $ROCM_PATH/lib */
  /* set_workspace: the index of int set_workspace(void *, void *, size_t), which sets the workspace of a handle.
   * workspace_bytes: the size of this workspace in a graph; 0: the library has no such function. */
  int set_workspace;
  int64_t workspace_bytes;
  const char *handles_of; /* the name of another library, whose handles this library takes; or NULL */
};
/* Every library of this build, NULL-terminated. Generated. */
extern const oa_library *const oa_libraries[];
/* Returns the address of library->symbols[index]; loads the library on first use. NULL with the text set if there is
 * none. */
void *oa_library_symbol(const oa_library *library, int index);

/* Failures that shims themselves detect: each function sets the text and returns the status. */
int oa_fail_enum(const char *function, const char *name, int64_t value, const char *allowed);
int oa_fail_too_large(const char *function, const char *name, int64_t value); /* no _64 form: OA_ERROR_OVERFLOW */
int oa_fail_null(const char *function, const char *name);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
