/* offload_args: lends host arrays to a device for the duration of calls into the vendors' own libraries.
 *
 * Every function that can fail returns an oa_status; the text is in oa_last_error() of the calling thread. Nothing here
 * aborts or prints. All functions may be called from any thread, with or without Python.
 *
 * Arguments are checked: NULL where something is needed, a number out of range, a handle that is stale or none at all give
 * a status and a text. What can't be checked is trusted: that a host address other than NULL has the memory that is said
 * of it; that a stream, a vendor's handle and pinned memory are what their makers gave; that the fields of an oa_call
 * between oa_begin and its end are as oa_begin left them.
 *
 * A pointer such as `oa_f32 *` is a handle: it names a slot and its generation inside one reserved PROT_NONE range. It
 * traps when dereferenced, and is known as stale after its region. csrc/DESIGN.md has the rules. */
#ifndef OFFLOAD_ARGS_H
#define OFFLOAD_ARGS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* cffi reads the lines between the two marks: plain C, `#define NAME <integer>`, and lists that are made from a .def
 * file, as bindings/declarations.py expands them. */
/* [cffi begin] */
#define OA_VERSION 100 /* 0.1.0 */

/* One opaque type for each dtype; oa_any where the dtype is known only at run time. None has a definition anywhere. */
#define OA_DTYPE(name, type, nbytes, kind, text) typedef struct oa_##type oa_##type;
#include "offload_args/dtypes.def"
#undef OA_DTYPE

enum oa_dtype {
#define OA_DTYPE(name, type, nbytes, kind, text) OA_##name,
#include "offload_args/dtypes.def"
#undef OA_DTYPE
  OA_DTYPE_COUNT
};

enum oa_status {
#define OA_STATUS(name) OA_##name,
#include "offload_args/statuses.def"
#undef OA_STATUS
  OA_STATUS_COUNT
};

enum oa_direction { OA_BY_USE = 0, OA_IN, OA_OUT, OA_INOUT, OA_SCRATCH };

enum oa_array_flags {
  OA_READ_ONLY = 1, /* the host array may not be written */
  OA_BORROWED = 2,  /* data is a device address owned by the caller: nothing is copied */
  OA_RESIDENT = 4,  /* its device memory stays when the region ends, see oa_keep */
  OA_OWNED = 8      /* owner has the memory to itself, and gives it back only after oa_owner_gone */
};

enum oa_outcome {
  OA_COMMIT = 0, /* the body succeeded: written arrays come down */
  OA_DISCARD,    /* it failed: nothing comes down, what it wrote is invalid outside */
  OA_KEEP        /* it failed, on_error="keep": what is valid comes down */
};

typedef struct oa_region oa_region;

/* One array to lend. strides are in bytes and may be negative or zero; data is the address of the element at index 0
 * of every dimension, and need not be aligned, except that of OA_BORROWED. OA_SCRATCH needs dtype, ndim and shape only. */
typedef struct oa_array {
  void *data;
  const int64_t *shape;
  const int64_t *strides;
  const char *name; /* for messages; may be NULL */
  int32_t ndim;
  int32_t dtype;     /* oa_dtype */
  int32_t direction; /* oa_direction */
  int32_t flags;     /* oa_array_flags */
  oa_any *handle;    /* set by oa_region_enter */
  int32_t packed; /* set by oa_region_enter: 1 if the device holds it in C order with no gaps, not with its strides */
  const void *owner; /* what dies with the memory (an address that is never looked into), for residency; may be NULL */
} oa_array;

/* Options of a region; NULL stands for all zero. */
typedef struct oa_region_options {
  void *stream;        /* the caller's own stream (with has_stream); calls go there, copies back don't */
  int has_stream;      /* 1 if stream is given (NULL is a stream too: the legacy default one) */
  void *wait_stream;   /* a stream whose work so far must be done before a borrowed array is used */
  int has_wait_stream; /* 1 if wait_stream is given */
  int64_t tag;         /* what the trace knows the region by; anything */
  int once; /* 1 if each array is used by one call: small ones then need not be copied where the device can use
                          pinned memory of the host as it is */
} oa_region_options;

typedef struct oa_pointer_info {
  int device;
  int dtype;
  int readable;
  int writable;
  int borrowed;
  int escaped;
  int64_t nbytes; /* from the first byte to the last, gaps included */
  int scratch;    /* no host array stands behind it */
  int valid; /* the device has its bytes; 0: they were not needed there yet, or a call that failed left them undefined */
  int written; /* somebody wrote it, or what shares its bytes, since it was lent */
} oa_pointer_info;

typedef struct oa_counters {
  int64_t copies_up; /* one for each array or part of one that was moved */
  int64_t bytes_up;
  int64_t copies_down;
  int64_t bytes_down;
  int64_t allocations; /* pieces of memory taken, of the driver or of what was kept for another time */
  int64_t frees;       /* and given back to either */
  int64_t mappings;    /* live entries of the present table */
  int64_t regions;     /* live regions */
  int64_t calls;       /* vendor calls made */
  int64_t memory_used; /* bytes of the device in use now, and the most there ever were */
  int64_t memory_peak;
  int64_t pinned_bytes; /* of host memory pinned for the device */
} oa_counters;

enum oa_residency_mode { OA_RESIDENCY_OFF = 0, OA_RESIDENCY_EXPLICIT, OA_RESIDENCY_AUTO };

/* What stays on a device between regions, and what that has saved and cost so far. */
typedef struct oa_residency {
  int mode;     /* oa_residency_mode, of the process */
  int tracking; /* 1 if writes to host pages can be known here; else what stays is sent again */
  int64_t kept; /* pieces of memory that stay, and are in no region now */
  int64_t kept_bytes;
  int64_t returns;      /* how often one was lent again and read */
  int64_t bytes_spared; /* not sent, because the host's were unchanged */
  int64_t bytes_resent; /* sent again, because they were written or might have been */
  int64_t pages_armed;  /* by what stays or may soon */
  int64_t
      pages_written; /* armed pages that were then written: each such write costs the program a microsecond or two */
  int64_t dropped;   /* pieces given up for want of device memory */
  int64_t promoted;  /* arrays that automatic residency began to keep */
  int64_t demoted;   /* and gave up, because they were written */
} oa_residency;

typedef struct oa_device_info {
  char name[32];    /* "cuda:0" */
  char backend[16]; /* "cuda" */
  char model[128];  /* "NVIDIA H200" */
  int index;        /* within its backend */
  int host_calls;   /* 1 if its libraries run on the CPU (host, sim) */
  int64_t memory_total;
  int64_t memory_free;
  int driver_version;
  int compute_major;
  int compute_minor;
} oa_device_info;

/* -- errors ------------------------------------------------------------------------------------------------------- */
const char *oa_last_error(void);   /* text of this thread's last failure; never NULL */
const char *oa_last_warning(void); /* text of this thread's last warning; never NULL */
/* A warning that concerns the process (pinned memory can't be had): its text the first time it is asked for, then NULL.
 * Costs next to nothing; to be asked after a region. */
const char *oa_take_warning(void);
const char *oa_status_name(int status);
int oa_version(void);
int64_t oa_itemsize(int dtype);       /* in bytes; 0 of OA_ANY and of a number that is no oa_dtype */
const char *oa_dtype_name(int dtype); /* "float32"; "no dtype" of a number that is no oa_dtype */

/* -- devices ------------------------------------------------------------------------------------------------------ */
int oa_device_open(const char *name, int *device); /* "host", "cuda:0", "sim:3"; a number valid for this process */
int oa_device_count(const char *backend, int *count);
int oa_device_get_info(int device, oa_device_info *info);
int oa_device_get_counters(int device, oa_counters *counters);
int oa_device_synchronize(int device);
/* Waits for the device, and gives idle memory back to the driver: its own, and the pinned blocks of past copies. */
int oa_device_trim(int device);
/* Host memory from which and to which the device's copies go directly (host, sim: plain memory). Bounded by
 * OFFLOAD_ARGS_PINNED_LIMIT, or half of the machine's memory. */
int oa_pinned_allocate(int device, size_t nbytes, void **memory);
int oa_pinned_release(int device, void *memory, size_t nbytes);
/* Threads for copies, the caller's own included: 0 for as many as OFFLOAD_ARGS_THREADS says, or one less than the CPUs
 * this process may use and at most 12. */
int oa_set_threads(int threads);

/* Sets the properties of a sim device. capacity in bytes (0: no limit); fail_after: the k-th backend call from now
 * fails with a made-up driver error (0: none; -k: it and all later ones, the device being lost); delay_us: each operation of its streams takes so much longer. */
int oa_sim_configure(int device, int64_t capacity, int64_t fail_after, int64_t delay_us);
int64_t oa_sim_backend_calls(int device); /* backend calls made so far */

/* -- regions ------------------------------------------------------------------------------------------------------ */
int oa_region_enter(int device, const oa_region_options *options, oa_array *arrays, int count, oa_region **region);
/* Kills the region's pointers and enqueues what must come down. *warnings (may be NULL) is the number of arrays lent as
 * Out that nothing wrote, or with OA_DISCARD of those whose results are lost; oa_last_warning() names them. A region that
 * already ended is left alone: OA_OK.
 * What a region wrote is the outer region's where it is nested: in an older one of the same thread that is still open and
 * lends the array. Else it is committed by leaving well, and comes down with the array's last region, whatever that does. */
int oa_region_finish(oa_region *region, int outcome, int *warnings);
/* Waits for every user of the region's mappings, completes the copies down and releases what nobody else holds. */
int oa_region_wait(oa_region *region);
int oa_region_synchronize(oa_region *region); /* waits for the region's work so far; nothing moves */
/* The stream to which the region's calls go, until it ends: the backend's own (a CUstream), for work to be ordered with. */
int oa_region_stream(oa_region *region, void **stream);

/* -- pointers ----------------------------------------------------------------------------------------------------- */
/* A part of what pointer has, with bounds of its own; strides and offset in bytes. Ends with oa_pointer_release or with
 * its region. */
int oa_pointer_view(const oa_any *pointer, int64_t offset, int ndim, const int64_t *shape, const int64_t *strides,
                    oa_any **view);
int oa_pointer_release(
    oa_any *view); /* a region's own pointer is refused; within a call it is put off to the call's end */
int oa_pointer_query(const oa_any *pointer, oa_pointer_info *info); /* OA_ERROR_STALE once it is dead */
/* The true device address. Brings the data up if it may be read, and marks the mapping escaped: its users are unknown,
 * so an array that pointer may write always comes down, and may be on no other device; and leaving waits for the whole
 * device. */
int oa_address(const oa_any *pointer, uint64_t *address);
/* oa_address that keeps the memory alive beyond the region, until oa_export_release of *keep (NULL: it has no bytes). */
int oa_export(const oa_any *pointer, uint64_t *address, void **keep);
int oa_export_release(void *keep);
/* Writes host values to the device, and nothing else: as many as shape says, from values in C order, to the elements that
 * shape and strides (bytes) name from the pointer's lowest byte on. */
int oa_pointer_assign(oa_any *pointer, const void *values, int ndim, const int64_t *shape, const int64_t *strides);
/* Writes one element's value to every element of an array on the device; nothing of it travels. */
int oa_pointer_fill(oa_any *pointer, const void *value, int ndim, const int64_t *shape, const int64_t *strides);
/* Copies an array on the device to another one there, of the same dtype and shape and with no element in common. */
int oa_pointer_copy(oa_any *pointer, const int64_t *strides, const oa_any *source, const int64_t *source_strides,
                    int ndim, const int64_t *shape);
/* Reads an array as it is on the device now to values, in C order, and waits for that. What the device does not have yet
 * is read from the host. Nothing is marked, and what is to come down still does. */
int oa_pointer_read(const oa_any *pointer, void *values, int ndim, const int64_t *shape, const int64_t *strides);
/* A device copy of one host scalar in pointer's region, for calls whose other scalars are on the device. */
int oa_stage(const oa_any *pointer, const void *value, int dtype, oa_any **staged);

/* OpenMP's `target update`: from brings what devices wrote of the array to the host (it is then safe there whatever
 * happens later); to sends the host's bytes to every device that has a copy of some of them. Both refuse before anything
 * moves (OA_ERROR_PRESENT) if no device has the array whole, or if one has some of it in a form in which exactly the
 * array's bytes can't be named. check refuses what `to` would, and moves nothing. device -1: wherever the array is
 * present. */
int oa_update_from(const oa_array *array, int device);
int oa_update_to(const oa_array *array, int device);
int oa_update_check(const oa_array *array, int device);
int oa_is_present(const void *data, int64_t nbytes, int device); /* 1 or 0 */

/* -- residency ---------------------------------------------------------------------------------------------------- */
/* From now on the device memory of this array stays when its regions end, until oa_release, oa_owner_gone or want of
 * memory. When the array is lent again and read, only pages written since are sent, where that can be known (OA_OWNED,
 * private anonymous memory, and a kernel that lets pages be watched), else all of it. Arrays of less than
 * 128 KiB, and those that are packed or lent together with others they overlap, don't stay: they are sent each time. A
 * region that lends with OA_RESIDENT does the same. Nothing moves now. */
int oa_keep(const oa_array *array, int device);
/* Undoes oa_keep; device -1: everywhere. Memory in use by a region goes with that. Not kept: OA_OK. */
int oa_release(const oa_array *array, int device);
/* To be called before the memory of an owner is given back: drops what stays of it, everywhere. */
int oa_owner_gone(const void *owner);
/* 1 once for each owner of which something newly stays: see to it that oa_owner_gone is called. */
int oa_owner_kept(const void *owner);
int oa_residency_query(int device, oa_residency *residency);
int oa_residency_current(void); /* oa_residency_mode; -1 if OFFLOAD_ARGS_RESIDENCY is none */
/* For tests: sets the mode, instead of the environment's OFFLOAD_ARGS_RESIDENCY (-1: that again), and whether pages may
 * be watched; and gives up what stays on all devices. */
int oa_residency_configure(int mode, int tracking);

/* -- vendor libraries --------------------------------------------------------------------------------------------- */
/* Loads library ("cublas", "cblas") from an absolute path. prefix: of its symbols; NULL: one of those that known builds
 * have. A CBLAS may have the suffix "64_" or "_64", too; whether its integers have 64 bits (ILP64) is tried out. */
int oa_library_open(const char *library, const char *path, const char *prefix);
/* Takes the library that a loaded module (an absolute path; NULL: the program) is linked with, so that both have one
 * pool of threads. Loads nothing. OA_ERROR_LIBRARY if a function is missing there. */
int oa_library_share(const char *library, const char *module);
const char *oa_library_path(const char *library); /* "" until it is loaded */
/* Who finds a library that is needed and not loaded yet: it calls oa_library_open and returns its status, or writes why
 * not to text and returns OA_ERROR_LIBRARY. Without one (NULL), the library's usual names are tried. */
typedef int (*oa_library_loader)(const char *library, char *text, size_t size);
void oa_library_set_loader(oa_library_loader loader);
int oa_library_has_symbol(const char *library, const char *symbol);
/* The calling thread's next calls of library use this handle and its stream (NULL: the pool's again). Its pointer mode
 * is as before after each call. */
int oa_use_handle(const char *library, void *handle);

/* -- the trace ---------------------------------------------------------------------------------------------------- */
enum oa_trace_flags {
  OA_TRACE_ON = 1,
  OA_TRACE_CHECKSUMS = 2 /* of what is copied: reads it once more */
};

enum oa_trace_kind {
  OA_TRACE_NONE,
#define OA_TRACE_KIND(name, text) OA_TRACE_##name,
#include "offload_args/trace_kinds.def"
#undef OA_TRACE_KIND
  OA_TRACE_KIND_COUNT
};

/* Something that is over. Times are ns of CLOCK_MONOTONIC on the host: of a call, of issuing it where the device works
 * on by itself; of a copy, until its host bytes were read (up) or are in the array (down). */
typedef struct oa_trace_event {
  int64_t begun, ended;
  int64_t nbytes;
  int64_t tag;       /* OA_TRACE_ENTER: of the region's options */
  uint64_t region;   /* a number no other region has; of a copy: the region that lent the array first; 0: none */
  uint64_t address;  /* of a copy: the host's; 0 where that is not the array's own (assign) */
  uint64_t checksum; /* of a copy: of its bytes; 0: not taken */
  int32_t kind;      /* oa_trace_kind */
  int32_t device;
  int32_t thread; /* the system's number */
  int32_t status; /* oa_status; of a vendor's call: the vendor's */
  int32_t batch;  /* of a copy: how many went together; they share the batch's time in proportion to their bytes */
  int32_t packed; /* of a copy: 1 if it was gathered or scattered on the host */
  char name[48];  /* the array's, or the function's */
  char why[64];   /* of a copy or wait: "first read by cublas.sgemv" */
} oa_trace_event;

/* Sums of oa_trace_flags; 0 ends it. While it is on, oa_region_finish waits for the calls before it copies down, so that
 * a copy's time is its own. */
int oa_trace_set(int flags);
/* Takes up to capacity events, oldest first; *lost (may be NULL): how many the queue had no room for so far. It holds
 * 32,768. */
int oa_trace_read(oa_trace_event *events, int capacity, int *count, int64_t *lost);
/* [cffi end] */

/* -- for shims: how a call declares what it touches -------------------------------------------------------------- */
/* What a call touches behind one pointer, in elements: bounds, overlap and directions speak of these and no others.
 * Built by the functions below; checked by oa_begin. Matrices are as stored, by columns: of one by rows, say its transpose.
 * The names are those of the call's own parameters, for messages. */
enum oa_extent_kind {
  OA_EXTENT_VECTOR,   /* rows elements, ld apart (ld: the increment, may be negative) */
  OA_EXTENT_MATRIX,   /* columns columns of rows elements, ld apart */
  OA_EXTENT_TRIANGLE, /* one triangle of a square matrix, its diagonal included */
  OA_EXTENT_BAND,     /* the elements (i, j) of a matrix with -above <= i - j <= below: above + i - j down column j */
  OA_EXTENT_PACKED    /* the columns of a triangle one after the other: rows * (rows + 1) / 2 elements */
};
enum oa_extent_part {
  OA_UPPER = 1,  /* of triangles and triangular bands: the upper one; else the lower */
  OA_UNIT = 2,   /* of the same: all but the diagonal */
  OA_REPEATS = 4 /* of vectors: ld may be 0, and all are one element */
};

typedef struct oa_extent {
  int64_t rows, columns, ld;
  const char *rows_name, *columns_name, *ld_name;
  int kind, part;       /* oa_extent_kind, and of oa_extent_part what holds */
  int64_t below, above; /* diagonals of a band, beside the main one */
} oa_extent;

#define OA_EXTENT(kind, part, rows, columns, ld, rows_name, columns_name, ld_name) \
  ((oa_extent){(rows), (columns), (ld), (rows_name), (columns_name), (ld_name), (kind), (part), 0, 0})
#define OA_VECTOR(n, inc, n_name, inc_name) OA_EXTENT(OA_EXTENT_VECTOR, 0, n, 1, inc, n_name, "", inc_name)
#define OA_REPEATABLE(n, inc, n_name, inc_name) OA_EXTENT(OA_EXTENT_VECTOR, OA_REPEATS, n, 1, inc, n_name, "", inc_name)
#define OA_MATRIX(m, n, ld, m_name, n_name, ld_name) OA_EXTENT(OA_EXTENT_MATRIX, 0, m, n, ld, m_name, n_name, ld_name)
#define OA_TRIANGLE(part, n, ld, n_name, ld_name) OA_EXTENT(OA_EXTENT_TRIANGLE, part, n, n, ld, n_name, n_name, ld_name)
#define OA_BAND(m, n, below, above, ld, m_name, n_name, ld_name) \
  ((oa_extent){(m), (n), (ld), (m_name), (n_name), (ld_name), OA_EXTENT_BAND, 0, (below), (above)})
/* One triangle of a square band matrix, of k diagonals beside the main one. */
#define OA_BAND_TRIANGLE(part, n, k, ld, n_name, ld_name)                                                            \
  ((oa_extent){(n), (n), (ld), (n_name), (n_name), (ld_name), OA_EXTENT_BAND, (part), ((part) & OA_UPPER) ? 0 : (k), \
               ((part) & OA_UPPER) ? (k) : 0})
#define OA_PACKED(part, n, n_name) OA_EXTENT(OA_EXTENT_PACKED, part, n, n, 1, n_name, n_name, "")
#define OA_ELEMENTS(n) OA_EXTENT(OA_EXTENT_VECTOR, 0, n, 1, 1, "size", "", "")

enum oa_access {
  OA_READ = 1,
  OA_OVERWRITE = 2, /* every element of the extent is written, none is read */
  OA_READ_WRITE = 3,
  OA_IN_PLACE = 4 /* added to the above: this operand may be exactly another that says so too */
};

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

typedef struct oa_library oa_library;

typedef struct oa_call {
  const char *function; /* "cublas.sgemv" */
  oa_library *library;
  oa_operand *operands;
  int count;
  int device_scalars; /* 1: the scalars are on the device (pointer mode) */
  int blocking;       /* 1: the call's result goes to host memory; oa_submit waits for it */
  /* set by oa_begin */
  void *handle; /* the vendor's handle, bound to the right stream; NULL for libraries that have none */
  void *device, *stream, *region;
  void *saved; /* what was current before */
  int saved_mode;
  int open;
  int64_t begun; /* of the trace; 0: it is off */
} oa_call;

/* Checks every operand (live, right device, in bounds, allowed, not overlapping a written one), orders the stream after
 * what they wait for, moves what is missing as one batch. Nothing moved and nothing marked unless it returns OA_OK; then
 * exactly one oa_end or oa_submit must follow. A call waits for calls on other threads that are the
 * first to write one of its arrays: end a call before you begin another on the same arrays elsewhere. */
int oa_begin(oa_call *call);
/* Marks what was written. status is the vendor's (0: success); otherwise written operands count as invalid and
 * OA_ERROR_LIBRARY is returned. */
int oa_end(oa_call *call, int status);
/* For libraries that run on the CPU: runs run(arguments) in stream order (size bytes of arguments are copied if it runs
 * later), then does what oa_end does. */
int oa_submit(oa_call *call, void (*run)(void *), void *arguments, size_t size);
/* 1 if oa_stage made the pointer of a host zero and nothing was written to it since; else 0, of any pointer. */
int oa_is_host_zero(const void *pointer);

/* One vendor library: the symbols its shims use, and how its handles are made. Generated; see bindings/. */
typedef struct oa_symbol {
  const char *name;
  void *address; /* NULL until first use; read and set atomically */
} oa_symbol;
typedef struct oa_code_name {
  int code;
  const char *name;
} oa_code_name;
struct oa_library {
  const char *name;               /* "cublas" */
  const char *backend;            /* "cuda"; NULL: any device whose libraries run on the CPU */
  const char *const *sonames;     /* tried in order by C programs that never call oa_library_open; NULL-terminated */
  const char *const *prefixes;    /* of its symbols in builds that are known, "" too; NULL-terminated */
  const char *const *suffixes;    /* likewise */
  const char *probe;              /* size_t probe(n, const float *x, incx): the index of the largest element; or NULL */
  oa_symbol *symbols;             /* symbol_count of them */
  const oa_code_name *code_names; /* of its status codes; {0, NULL}-terminated */
  int symbol_count;
  /* indices into symbols, or -1 where it has no such function: int create(void **), int destroy(void *),
     int set_stream(void *, void *), int get_stream(void *, void **), int set_pointer_mode(void *, int),
     int get_pointer_mode(void *, int *) */
  int create, destroy, set_stream, get_stream, set_pointer_mode, get_pointer_mode;
  int host_mode, device_mode; /* the values of its pointer mode */
  /* state, owned by library.c */
  int index;
  void *loaded;
  char *path;
  char *prefix;
  const char *suffix;
  int ilp64; /* its integers have 64 bits; others have 32 */
};
/* Every library of this build, NULL-terminated. Generated. */
extern oa_library *const oa_libraries[];
/* The address of library->symbols[index]; loads the library on first use; NULL with OA_ERROR_LIBRARY's text set. */
void *oa_library_symbol(oa_library *library, int index);

/* Failures that shims find themselves; each sets the text and returns the status. */
int oa_fail_enum(const char *function, const char *name, int64_t value, const char *allowed);
int oa_fail_too_large(const char *function, const char *name, int64_t value); /* no _64 form: OA_ERROR_OVERFLOW */
int oa_fail_null(const char *function, const char *name);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
