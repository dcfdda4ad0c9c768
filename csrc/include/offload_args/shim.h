/* How a call into a vendor's library, or into a kernel of the program's own, declares what it touches:
 *   oa_operand operands[] = {
 *       {.name = "x", .pointer = x, .access = OA_READ, .dtype = OA_F32, .extent = OA_ELEMENTS(n)}};
 *   oa_call call = {.function = "mine.sum", .operands = operands, .count = 1};
 *   int status = oa_begin(&call);
 *   if (status) return status;
 *   return oa_end(&call, sum(operands[0].address, n, call.stream));
 * Generated shims do so for every function of a vendor. They are compiled with the core. A program that uses this
 * header must be compiled again for each new minor version. */
#ifndef OFFLOAD_ARGS_SHIM_H
#define OFFLOAD_ARGS_SHIM_H

#include "offload_args/core.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* The elements that a call touches behind one pointer: bounds, overlap and directions speak of these and no others.
 * Built by the macros below; checked by oa_begin. Matrices are as stored, by columns: describe a matrix stored by rows
 * as its transpose. The names are those of the call's own parameters, for messages. */
enum oa_extent_kind {
  OA_EXTENT_VECTOR,   /* rows elements, ld apart (ld: the increment, may be negative) */
  OA_EXTENT_MATRIX,   /* columns columns of rows elements, ld apart */
  OA_EXTENT_TRIANGLE, /* one triangle of a square matrix, its diagonal included */
  OA_EXTENT_BAND,     /* the elements (i, j) of a matrix with -above <= i - j <= below: above + i - j down column j */
  OA_EXTENT_PACKED    /* the columns of a triangle one after the other: rows * (rows + 1) / 2 elements */
};
enum oa_extent_part {
  OA_UPPER = 1,    /* of triangles and triangular bands: the upper one; else the lower */
  OA_UNIT = 2,     /* of the same: all but the diagonal */
  OA_REPEATS = 4,  /* of vectors: ld may be 0, and all are one element */
  OA_BATCHED = 8,  /* there are `batch` of them, `stride` elements from the start of one to that of the next */
  OA_LISTED = 16,  /* there are `batch` of them, each behind a pointer of its own: for oa_begin_lists */
  OA_OPTIONAL = 32 /* the pointer may be NULL, and then there is no such operand: for oa_begin_lists */
};

typedef struct oa_extent {
  int64_t rows, columns, ld;
  const char *rows_name, *columns_name, *ld_name;
  int kind, part;        /* oa_extent_kind, and of oa_extent_part what holds */
  int64_t below, above;  /* diagonals of a band, beside the main one */
  int64_t batch, stride; /* with OA_BATCHED */
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
/* One triangle of a square band matrix, of k diagonals beside the main one. */
#define OA_BAND_TRIANGLE(part, n, k, ld, n_name, ld_name)                                                              \
  (OA_NEW_EXTENT{(n), (n), (ld), (n_name), (n_name), (ld_name), OA_EXTENT_BAND, (part), ((part) & OA_UPPER) ? 0 : (k), \
                 ((part) & OA_UPPER) ? (k) : 0, 0, 0, NULL, NULL})
#define OA_PACKED(part, n, n_name) OA_EXTENT(OA_EXTENT_PACKED, part, n, n, 1, n_name, n_name, "")
#define OA_ELEMENTS(n) OA_EXTENT(OA_EXTENT_VECTOR, 0, n, 1, 1, "size", "", "")

/* Returns the extent of `batch` of these, `stride` elements from the start of one to that of the next. Those that are
 * written may not lie within each other. */
static inline oa_extent oa_strided(oa_extent one, int64_t batch, int64_t stride, const char *batch_name,
                                   const char *stride_name) {
  one.part |= OA_BATCHED;
  one.batch = batch;
  one.stride = stride;
  one.batch_name = batch_name;
  one.stride_name = stride_name;
  return one;
}

/* Returns the extent of `batch` of these, whose pointers are in an oa_pointer_list. */
static inline oa_extent oa_listed(oa_extent one, int64_t batch, const char *batch_name) {
  one.part |= OA_LISTED;
  one.batch = batch;
  one.batch_name = batch_name;
  return one;
}

/* Returns the extent of an operand that may be absent. */
static inline oa_extent oa_optional(oa_extent one) {
  one.part |= OA_OPTIONAL;
  return one;
}

/* The same, where a test holds. */
static inline oa_extent oa_optional_if(int test, oa_extent one) { return test ? oa_optional(one) : one; }

typedef struct oa_operand {
  const char *name; /* the parameter's */
  const void *pointer;
  int access; /* oa_access */
  int dtype;  /* oa_dtype; OA_ANY: not checked */
  oa_extent extent;
  /* set by oa_begin */
  void *address;
  void *slot;
  int touched; /* 0: the call touches no element of it; else for oa_end */
} oa_operand;

/* Returns an operand. Member by member: compilers clear a large literal by an instruction that takes longer than all of
 * these stores. Members that oa_begin sets are left unset. */
static inline oa_operand oa_operand_of(const char *name, const void *pointer, int access, int dtype, oa_extent extent) {
  oa_operand o;
  o.name = name;
  o.pointer = pointer;
  o.access = access;
  o.dtype = dtype;
  o.extent = extent;
  return o;
}

/* The device pointers of one parameter: as a list, or as one pointer to memory that has all of the arrays. */
typedef struct oa_pointer_list {
  const void *const *at; /* `count` of them; or NULL, and then: */
  const void *first;     /* the pointer to all, */
  int64_t stride;        /* and the elements from the start of one array to that of the next */
  int64_t count;         /* -1: as many as the call says */
} oa_pointer_list;

typedef struct oa_library oa_library;

/* How the vendor's function of a call differs from one that has a handle. */
enum oa_call_special {
  OA_WITHOUT_HANDLE = 1,
  OA_ON_DEFAULT_STREAM = 2, /* it knows no stream: the call's stream is waited for before it, and the device after it */
  OA_ON_HOST_MEMORY = 4,    /* it reads or writes memory of the host: it is waited for */
  OA_MAY_OVERLAP = 8        /* written operands may overlap others, as the caller wants it */
};

typedef struct oa_call {
  const char *function; /* "cublas.sgemv" */
  const oa_library *library;
  oa_operand *operands;
  int count;
  int device_scalars; /* 1: the scalars are on the device (pointer mode) */
  int blocking;       /* 1: the call's result goes to host memory; oa_submit waits for it */
  int special;        /* a sum of oa_call_special */
  /* Of calls without a library: */
  int has_own_stream; /* 1: the call goes to own_stream, else to the region's */
  void *own_stream;   /* a stream of the caller's */
  const void *only;   /* the device that the operands need to be on; NULL: any */
  /* set by oa_begin */
  void *handle; /* the vendor's handle, bound to the right stream; NULL for libraries that have none */
  void *device, *stream, *region;
  void *native_stream; /* the backend's stream that the call goes to, for libraries that take it as an argument */
  void *saved;         /* what was current before */
  int saved_mode;
  int open;
  int vendor_status;      /* success at first; run of oa_submit may write the vendor's here if blocking is 1 */
  int64_t begun;          /* of the trace; 0: it is off */
  void *object;           /* the caller's own handle, if the core made it */
  struct oa_lists *lists; /* of oa_begin_lists, until the call ends; else NULL */
  void *caller;           /* the thread that began it */
} oa_call;

/* Returns a call that oa_begin takes, in the same way. It is not open. */
static inline oa_call oa_call_of(const char *function, const oa_library *library, oa_operand *operands, int count) {
  oa_call call;
  call.function = function;
  call.library = library;
  call.operands = operands;
  call.count = count;
  call.device_scalars = call.blocking = call.special = call.has_own_stream = 0;
  call.own_stream = NULL;
  call.only = NULL;
  call.open = 0;
  return call;
}

/* Checks every operand (live, right device, in bounds, allowed, not overlapping a written one), orders the stream after
 * what they wait for, and brings up the missing bytes as one batch. Nothing is moved and nothing marked unless it
 * returns OA_OK; then exactly one oa_end or oa_submit must follow. A call waits for calls on other threads that are the
 * first to write one of its arrays. To leave a region and to update an array wait for its calls: OA_ERROR_ARGUMENT in a
 * thread that has not ended its own call, and nothing has changed. So is whatever would close a circle of threads, each
 * of which waits for a call that the next one has open. */
int oa_begin(oa_call *call);
/* Begins a call some of whose operands are OA_LISTED. The pointer of each of those is an oa_pointer_list, and every
 * array of it is checked and moved as an operand of its own; messages call it "A[17]". Operands in a row that have the
 * same list are parts of it, one behind the other. Sets the address of a listed operand to that of an array of
 * addresses on the device, which went up in the order of the call's stream, and which is freed in that order when the
 * call ends. A call all of whose lists are empty, with no other operand, touches no device: then call->open is 0 after
 * OA_OK, and nothing may follow. */
int oa_begin_lists(oa_call *call);
/* Marks what was written. status is the vendor's (0: success); otherwise written operands count as invalid and
 * OA_ERROR_LIBRARY is returned. */
int oa_end(oa_call *call, int status);
/* Ends a call of a library that runs on the CPU: calls run(arguments) in stream order (size bytes of arguments are
 * copied if it runs later), then does what oa_end does. */
int oa_submit(oa_call *call, void (*run)(void *), void *arguments, size_t size);
/* Returns 1 if oa_stage made the pointer of a host zero and nothing was written to it since; else 0, of any pointer. */
int oa_is_host_zero(const void *pointer);

/* One vendor library, as its roles file has it. Read-only data, generated; see bindings/. */
typedef struct oa_code_name {
  int code;
  const char *name;
} oa_code_name;
enum oa_version_kind {
  OA_VERSION_NONE = 0, /* the library does not say its version */
  OA_VERSION_TEXT,     /* const char *f(void) */
  OA_VERSION_BUFFER,   /* int f(char *text, size_t size) */
  OA_VERSION_PARTS,    /* int f(int part, int *value): parts 0, 1 and 2 are major, minor and patch */
  OA_VERSION_NUMBER    /* int f(int *version) */
};
/* A symbol that versions of a library before oa_library.older_before have otherwise than later ones. */
typedef struct oa_older {
  int symbol;          /* its index */
  const char *instead; /* the name that the same function has in those versions; NULL: later versions lack it */
} oa_older;
/* A symbol that is not called in versions of a library before this one. */
typedef struct oa_since {
  int symbol; /* its index */
  const char *version, *why;
} oa_since;
struct oa_routine;
/* A kind of object that a library makes and the caller owns. */
typedef struct oa_object_kind {
  const char *name; /* "Handle" */
  int destroy;      /* the index of its symbol: int destroy(void *) */
  int is_handle;    /* 1: it is the library's handle: it belongs to a device, and has a stream */
} oa_object_kind;
struct oa_library {
  const char *name;               /* "cublas" */
  const char *title;              /* "cuBLAS" */
  const char *backend;            /* "cuda"; NULL: any device whose libraries run on the CPU */
  const char *const *sonames;     /* tried in order by C programs that never call oa_library_open; NULL-terminated */
  const char *const *prefixes;    /* of its symbols in builds that are known, "" too; NULL-terminated; NULL: "" only */
  const char *const *suffixes;    /* likewise */
  const char *probe;              /* size_t probe(n, const float *x, incx): the index of the largest element; or NULL */
  const char *version;            /* the symbol that says the version, spelled as the others are; or NULL */
  const char *const *symbols;     /* symbol_count of them */
  const oa_code_name *code_names; /* of its status codes; {0, NULL}-terminated; or NULL */
  const struct oa_routine *routines; /* routine_count of them, sorted by name; or NULL */
  int version_kind;                  /* oa_version_kind */
  int symbol_count, routine_count;
  int optional_count; /* of the symbols, the last ones: a library without them is whole */
  int success;        /* the status of a call that succeeded */
  /* Other statuses, which are not failures, ended by success, or NULL: of calls that did their work nevertheless, and
   * of calls that were only asked for what they need, and wrote nothing. */
  const int *also_done, *only_asked;
  /* Indices into symbols, or -1 where it has no such function: int create(void **), int destroy(void *),
   * int set_stream(void *, void *), int get_stream(void *, void **), int set_pointer_mode(void *, int),
   * int get_pointer_mode(void *, int *). create -1: the core makes no handles. */
  int create, destroy, set_stream, get_stream, set_pointer_mode, get_pointer_mode;
  int needs_handle; /* 1: each call needs a handle of the caller's own; 0 and create -1: the library has no handles */
  int host_mode, device_mode; /* the values of its pointer mode */
  /* 1: its functions take the stream as an argument, oa_call.native_stream. A library of a GPU that has neither this
   * nor set_stream is waited for before and after each call. */
  int takes_stream;
  const char *header_version;               /* of the header that the table was made from; or NULL */
  const char *older_version, *older_before; /* of an older header, and the first version without it; or NULL */
  const oa_older *older;                    /* older_count of them */
  int older_count;
  const oa_since *since; /* since_count of them */
  int since_count;
  const oa_object_kind *object_kinds; /* object_kind_count of them; or NULL */
  int object_kind_count;
  void **addresses;               /* room for symbol_count addresses: NULL until first use; read and set atomically */
  struct oa_library_state *state; /* owned by the core; zero at first */
  const struct oa_repeat *repeat; /* in the copy that oa_routine_repeat makes; else NULL */
  /* Where it may be beside its sonames, see oa_library_set_loader; NULL-terminated, or NULL: */
  const char *const *beside;  /* patterns of files in other packages of a Python, from the folder of packages */
  const char *const *folders; /* that its vendor installs into; one may begin with a variable, as in $ROCM_PATH/lib */
};
/* Every library of this build, NULL-terminated. Generated. */
extern const oa_library *const oa_libraries[];
/* Returns the address of library->symbols[index]; loads the library on first use. NULL with the text set if it has
 * none. */
void *oa_library_symbol(const oa_library *library, int index);

/* Failures that shims find themselves: each sets the text and returns the status. */
int oa_fail_enum(const char *function, const char *name, int64_t value, const char *allowed);
int oa_fail_too_large(const char *function, const char *name, int64_t value); /* no _64 form: OA_ERROR_OVERFLOW */
int oa_fail_null(const char *function, const char *name);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
