/* The C API for programs that lend arrays. Include offload_args.h.
 *
 * Each function that can fail returns an oa_status; the text is in oa_last_error() of the calling thread. No function
 * aborts or prints. Every function may be called from any thread, with or without Python.
 *
 * Arguments are checked: NULL where something is needed, a number out of range, a handle that is stale, or a value that
 * is not a handle, give a status and a text. Four things can't be checked and are trusted: a host address other than
 * NULL has the memory that the caller says it has; streams, vendors' handles and pinned memory are what their makers
 * gave; the fields of an oa_call stay between oa_begin and its end as oa_begin left them.
 *
 * A pointer such as `oa_f32 *` is a handle: it names a slot and its generation inside one reserved PROT_NONE range. It
 * traps when dereferenced, and is known as stale after its region. csrc/DESIGN.md has the rules.
 *
 * Structs that may grow begin with `size`, which the caller sets to the size of the struct it was compiled with:
 * OA_SIZED does so. A smaller size than today's is that of an older version; the fields it lacks count as 0 or are not
 * filled. A size that no version had is refused with OA_ERROR_ARGUMENT. oa_array and oa_trace_event are elements of
 * arrays, so their layout is fixed. */
#ifndef OFFLOAD_ARGS_CORE_H
#define OFFLOAD_ARGS_CORE_H

#include <stddef.h>
#include <stdint.h>

/* Makes a struct that knows its size, all other fields 0 but those given (in C++ none can be given):
 *   oa_counters counters = OA_SIZED(oa_counters);
 *   oa_region_enter(device, &OA_SIZED(oa_region_options, .tag = 7), arrays, count, &region); */
#ifdef __cplusplus
template <class T>
inline T oa_sized() {
  T made = T();
  made.size = sizeof made;
  return made;
}
#define OA_SIZED(type) oa_sized<type>()
#else
#define OA_SIZED(...) OA_SIZED_WITH(__VA_ARGS__, )
#define OA_SIZED_WITH(type, ...) ((type){.size = sizeof(type), __VA_ARGS__})
#endif

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Returns the status of a failed call from the function around it:
 *   OA_TRY(oa_region_finish(region, OA_COMMIT, NULL));
 * OA_TRY_TEXT does so in a function that returns the text of a failure, or NULL. The text is valid until the thread's
 * next failure. */
#define OA_TRY(call)                 \
  do {                               \
    const int oa_tried_ = (call);    \
    if (oa_tried_) return oa_tried_; \
  } while (0)
#define OA_TRY_TEXT(call)               \
  do {                                  \
    if ((call)) return oa_last_error(); \
  } while (0)

/* cffi reads the lines between the two marks: plain C, `#define NAME <integer>`, and lists that are made from a .def
 * file, as bindings/declarations.py expands them. */
/* [cffi begin] */
#define OA_VERSION 200 /* 0.2.0 */

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
  OA_BORROWED = 2,  /* data is a device address that the caller owns: nothing is copied */
  OA_RESIDENT = 4,  /* its device memory stays when the region ends, see oa_keep */
  OA_OWNED = 8,     /* `owner` is the sole owner of the memory and calls oa_owner_gone before freeing it */
  OA_REUSED = 16    /* the calls read each element many times: copy it to the device even with single_use */
};

/* How a call (shim.h) uses an operand, or a kernel (launch.h) a pointer. */
enum oa_access {
  OA_READ = 1,
  OA_OVERWRITE = 2, /* every element of the extent is written, none is read */
  OA_READ_WRITE = 3,
  OA_IN_PLACE = 4, /* added to the above: this operand may be exactly the memory of another with the same mark */
  OA_RESHAPED = 8  /* added to the above: this is the operand before it, in the shape that the call leaves there */
};

enum oa_outcome {
  OA_COMMIT = 0, /* the body succeeded: written arrays come down */
  OA_DISCARD,    /* the body failed: nothing comes down, and what it wrote is invalid outside */
  OA_KEEP        /* the body failed and the caller wants all that is valid to come down (on_error="keep") */
};

typedef struct oa_region oa_region;
/* An object that a library made for the caller, such as a handle or a descriptor. It is known as stale after its end,
 * and its functions refuse it then. */
typedef struct oa_object oa_object;

/* One array to lend. strides are in bytes and may be negative or zero; data is the address of the element at index 0
 * of every dimension, and need not be aligned unless it is OA_BORROWED. OA_SCRATCH needs dtype, ndim and shape only. */
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
  int32_t packed;    /* set by oa_region_enter: 1 if the device holds the array in C order with no gaps */
  const void *owner; /* address of the object whose end frees the memory, for residency; never read; may be NULL */
} oa_array;

/* Options of a region; NULL stands for all zero. */
typedef struct oa_region_options {
  size_t size;
  void *stream;        /* the caller's own stream (with has_stream); calls go there, copies back don't */
  void *wait_stream;   /* a stream whose work so far must be done before a borrowed array is used */
  int64_t tag;         /* any number; the trace repeats it in the event of the region's begin */
  int has_stream;      /* 1 if stream is given (NULL is a stream too: the legacy default one) */
  int has_wait_stream; /* 1 if wait_stream is given */
  int single_use; /* 1 if each array is used by one call: small ones then need not be copied where the device can use
               pinned memory of the host as it is */
  int reserved;   /* 0 */
} oa_region_options;

typedef struct oa_pointer_info {
  size_t size;
  int64_t nbytes; /* from the first byte to the last, gaps included */
  int device;
  int dtype;
  int readable;
  int writable;
  int borrowed;
  int escaped;
  int scratch; /* 1 if no host array stands behind it */
  int valid;   /* 1 if the device has its bytes; 0: no call needed them yet, or a failed call left them undefined */
  int written; /* 1 if a call wrote it, or memory it shares, since it was lent */
  int reserved;
} oa_pointer_info;

typedef struct oa_counters {
  size_t size;
  int64_t copies_up; /* one for each array, or part of an array, that was moved */
  int64_t bytes_up;
  int64_t copies_down;
  int64_t bytes_down;
  int64_t allocations;  /* pieces of memory taken, from the driver or from the pool */
  int64_t frees;        /* pieces returned to either */
  int64_t mappings;     /* live entries of the present table */
  int64_t regions;      /* live regions */
  int64_t calls;        /* vendor calls and launches made */
  int64_t memory_used;  /* bytes of device memory in use now */
  int64_t memory_peak;  /* the most bytes in use at any time */
  int64_t pinned_bytes; /* bytes of host memory pinned for the device */
  int64_t copies_peer;  /* from the memory of another device, instead of up from the host */
  int64_t bytes_peer;
} oa_counters;

enum oa_residency_mode { OA_RESIDENCY_OFF = 0, OA_RESIDENCY_EXPLICIT, OA_RESIDENCY_AUTO };

/* The resident arrays of a device, and how much they saved and cost so far. */
typedef struct oa_residency {
  size_t size;
  int mode;     /* oa_residency_mode, of the process */
  int tracking; /* 1 if writes to host pages can be known here; else resident arrays are sent again */
  int64_t kept; /* resident pieces of memory that are in no region now */
  int64_t kept_bytes;
  int64_t returns;       /* how often a resident array was lent again and read */
  int64_t bytes_spared;  /* bytes not sent, because the host's were unchanged */
  int64_t bytes_resent;  /* bytes sent again, because they were written or might have been */
  int64_t pages_armed;   /* host pages watched so far */
  int64_t pages_written; /* watched pages that were then written: each such write costs a microsecond or two */
  int64_t dropped;       /* pieces evicted under memory pressure */
  int64_t promoted;      /* arrays that automatic residency made resident */
  int64_t demoted;       /* arrays that automatic residency gave up, because they were written */
} oa_residency;

enum oa_device_flags {
  OA_DEVICE_GPU = 1,        /* a GPU; programs without a choice of their own use the first one */
  OA_DEVICE_HOST_CALLS = 2, /* its libraries run on the CPU */
  OA_DEVICE_SIMULATED = 4   /* for tests only; never chosen by default */
};

/* One kind of device of this build. */
typedef struct oa_backend_info {
  size_t size;
  char name[16];   /* "cuda": the devices are "cuda:0", "cuda:1" and so on; "host" has one device and no numbers */
  int flags;       /* oa_device_flags */
  int dlpack_type; /* DLPack's DLDeviceType of its memory; 0: it can't be exported */
} oa_backend_info;

typedef struct oa_device_info {
  size_t size;
  char name[32];        /* "cuda:0" */
  char backend[16];     /* "cuda" */
  char model[128];      /* "NVIDIA H200" */
  int64_t memory_total; /* both 0: the driver does not say, as HIP on some kernels */
  int64_t memory_free;
  int index; /* within its backend */
  int flags; /* oa_device_flags */
  int driver_version;
  int compute_major;
  int compute_minor;
  int dlpack_type; /* DLPack's DLDeviceType of its memory; 0: it can't be exported */
} oa_device_info;

/* -- errors -------------------------------------------------------------------------------------------------------- */
const char *oa_last_error(void);   /* text of this thread's last failure; never NULL */
const char *oa_last_warning(void); /* text of this thread's last warning; never NULL */
/* Returns a warning that concerns the process (pinned memory can't be had) the first time it is asked for, then NULL.
 * The call costs next to nothing; ask after each region. */
const char *oa_take_warning(void);
const char *oa_status_name(int status); /* "OA_ERROR_TYPE" */
int oa_version(void);                   /* OA_VERSION of the library: 10000 * major + 100 * minor + patch */
/* Returns OA_OK if a program that was compiled with a header of this version, OA_VERSION, may use the library: before
 * 1.0 both need the same minor version, from 1.0 on the same major one and a library that is not older. Otherwise
 * OA_ERROR_VERSION. */
int oa_check_version(int compiled);
int64_t oa_itemsize(int dtype);       /* in bytes; 0 of OA_ANY and of a number that is not an oa_dtype */
const char *oa_dtype_name(int dtype); /* "float32"; "no dtype" of a number that is not an oa_dtype */

/* -- devices ------------------------------------------------------------------------------------------------------- */
/* Describes a backend of this build. number counts from 0, the backend to be preferred first; OA_ERROR_ARGUMENT beyond
 * the last. Loads no driver, and may be called before and after a fork. */
int oa_backend_get_info(int number, oa_backend_info *info);
int oa_device_open(const char *name, int *device); /* "host", "cuda:0", "sim:3"; a number valid for this process */
/* Counts the devices of a backend. Where there are none, oa_last_error() says why. */
int oa_device_count(const char *backend, int *count);
int oa_device_get_info(int device, oa_device_info *info);
int oa_device_get_counters(int device, oa_counters *counters);
int oa_device_synchronize(int device);
/* Waits for the device, and returns idle memory to the driver: the device's own, and the pinned blocks of past
 * copies. */
int oa_device_trim(int device);
/* Allocates host memory that the device's copies reach directly (on host and sim plain memory). Bounded by
 * OFFLOAD_ARGS_PINNED_LIMIT, or by half of the machine's memory. */
int oa_pinned_allocate(int device, size_t nbytes, void **memory);
int oa_pinned_free(int device, void *memory, size_t nbytes);
/* Sets how many threads make the copies of one device, the caller's own included; devices that copy at the same moment
 * have as many each. 0: as many as OFFLOAD_ARGS_THREADS says, or one less than the CPUs that this process may use, at
 * most 12, and for all devices together no more than CPUs. */
int oa_set_threads(int threads);

/* -- regions ------------------------------------------------------------------------------------------------------- */
int oa_region_enter(int device, const oa_region_options *options, oa_array *arrays, int count, oa_region **region);
/* Ends the region's pointers and enqueues the copies down. Waits for calls on its arrays that other threads have begun;
 * OA_ERROR_ARGUMENT, and nothing has changed, if this thread has begun one and not ended it. *warnings (may be NULL) is
 * the number of arrays lent as Out that nothing wrote, or with OA_DISCARD of those whose results are lost;
 * oa_last_warning() names them. A region that already ended is left alone: OA_OK.
 * A nested region hands its writes to the region it is nested in: an older region of the same thread that is still open
 * and lends the array. Without one, leaving well commits the writes, and the array's last region brings them down,
 * whatever its own outcome. */
int oa_region_finish(oa_region *region, int outcome, int *warnings);
/* Waits for every user of the region's mappings, completes the copies down and frees what no other region holds. */
int oa_region_wait(oa_region *region);
int oa_region_synchronize(oa_region *region); /* waits for the region's work so far; nothing moves */
/* Returns the stream to which the region's calls go until it ends: the backend's own (a CUstream), for ordering
 * work. */
int oa_region_stream(oa_region *region, void **stream);

/* -- pointers ------------------------------------------------------------------------------------------------------ */
/* Makes a pointer to a part of pointer's memory, with bounds of its own; strides and offset in bytes. It ends with
 * oa_pointer_release or with its region. */
int oa_pointer_view(const oa_any *pointer, int64_t offset, int ndim, const int64_t *shape, const int64_t *strides,
                    oa_any **view);
/* Ends a view; within a call at the call's end. A region's own pointer is refused. */
int oa_pointer_release(oa_any *view);
int oa_pointer_query(const oa_any *pointer, oa_pointer_info *info); /* OA_ERROR_STALE once it is dead */
/* Returns the true device address. Brings the data up if it may be read, and marks the mapping escaped: its users are
 * unknown, so an array that pointer may write always comes down, and may be on no other device; and leaving waits for
 * the whole device. */
int oa_address(const oa_any *pointer, uint64_t *address);
/* Does what oa_address does, and keeps the memory alive beyond the region until oa_export_release(*keep). *keep is NULL
 * if the pointer has no bytes. */
int oa_export(const oa_any *pointer, uint64_t *address, void **keep);
int oa_export_release(void *keep);
/* Writes host values, in C order, to the elements that shape and strides (bytes) name from the pointer's lowest byte
 * on. Other elements stay as they are. */
int oa_pointer_assign(oa_any *pointer, const void *values, int ndim, const int64_t *shape, const int64_t *strides);
/* Marks the array of a pointer that a call wrote as undefined, as the call of a library does that fails: it never comes
 * down, and leaving the region says so. For code that learns from a result that the call made nothing of use. */
int oa_pointer_invalidate(oa_any *pointer);
/* Writes the value of one element to every element of an array on the device; no array data is copied. */
int oa_pointer_fill(oa_any *pointer, const void *value, int ndim, const int64_t *shape, const int64_t *strides);
/* Copies an array on the device to another array there, of the same dtype and shape and with no element in common. */
int oa_pointer_copy(oa_any *pointer, const int64_t *strides, const oa_any *source, const int64_t *source_strides,
                    int ndim, const int64_t *shape);
/* Reads an array as it is on the device now to values, in C order, and waits for that. Bytes that the device does not
 * have yet are read from the host. Nothing is marked, and pending copies down still happen. */
int oa_pointer_read(const oa_any *pointer, void *values, int ndim, const int64_t *shape, const int64_t *strides);
/* Makes a device copy of one host scalar in pointer's region, for calls whose other scalars are on the device. */
int oa_stage(const oa_any *pointer, const void *value, int dtype, oa_any **staged);

/* OpenMP's `target update`. oa_update_from brings to the host the elements of the array that devices wrote; they are
 * then safe there whatever happens later. oa_update_to sends the host's bytes to every device that has a copy of some
 * of them. Both refuse before anything moves (OA_ERROR_PRESENT) if no device has the array whole, or if one has some of
 * it in a form in which exactly the array's bytes can't be named. oa_update_check refuses what oa_update_to would, and
 * moves nothing. oa_update_begin refuses the same; else the host may write the array until oa_update_end of *writing,
 * and devices take the array's bytes from the host alone. device -1: wherever the array is present. */
int oa_update_from(const oa_array *array, int device);
int oa_update_to(const oa_array *array, int device);
int oa_update_check(const oa_array *array, int device);
typedef struct oa_writing oa_writing;
int oa_update_begin(const oa_array *array, int device, oa_writing **writing);
void oa_update_end(oa_writing *writing);                         /* NULL is permitted */
int oa_is_present(const void *data, int64_t nbytes, int device); /* 1 or 0 */

/* -- residency ----------------------------------------------------------------------------------------------------- */
/* Makes the array resident: its device memory stays when its regions end, until oa_release, oa_owner_gone or memory
 * pressure. When the array is lent again and read, only pages written since are sent, where that can be known
 * (OA_OWNED, private anonymous memory, and a kernel that can watch pages), else all of it. Arrays of less than 128 KiB,
 * packed arrays and arrays that are lent together with overlapping ones don't stay: they are sent each time. A region
 * that lends with OA_RESIDENT does the same. Nothing moves now. */
int oa_keep(const oa_array *array, int device);
/* Undoes oa_keep; device -1: everywhere. Memory that a region uses goes with the region. Not resident: OA_OK. */
int oa_release(const oa_array *array, int device);
/* Ends the residency of an owner's arrays, everywhere. Call it before the owner's memory is freed. */
int oa_owner_gone(const void *owner);
/* Returns 1 the first time memory of `owner` becomes resident, else 0. The caller must then arrange for
 * oa_owner_gone(owner). */
int oa_owner_kept(const void *owner);
int oa_residency_query(int device, oa_residency *residency);
int oa_residency_current(void); /* oa_residency_mode; -1 if OFFLOAD_ARGS_RESIDENCY names none */

/* -- vendor libraries ---------------------------------------------------------------------------------------------- */
/* Loads library ("cublas", "cblas") from an absolute path. prefix: of its symbols; NULL: one that known builds have. A
 * CBLAS may have the suffix "64_" or "_64", too; a test call finds out whether its integers have 64 bits (ILP64). */
int oa_library_open(const char *library, const char *path, const char *prefix);
/* Takes the library that a loaded module (an absolute path; NULL: the program) is linked with, so that both have one
 * pool of threads. Loads nothing. OA_ERROR_LIBRARY if a function is missing there that is not optional. */
int oa_library_share(const char *library, const char *module);
const char *oa_library_path(const char *library); /* "" until it is loaded */
/* Finds a library that is needed and not loaded yet: calls oa_library_open and returns its status, or writes the reason
 * to text and returns OA_ERROR_LIBRARY. */
typedef int (*oa_library_loader)(const char *library, char *text, size_t size);
/* Sets the loader. Without one (NULL), as in programs without Python, a library is looked for in this order:
 * 1. the absolute path in the environment variable OFFLOAD_ARGS_<NAME>, such as OFFLOAD_ARGS_CBLAS; if it is set,
 *    nothing else is tried;
 * 2. if this library is inside a Python package: the packages beside it (scipy-openblas32, NVIDIA's wheels);
 * 3. the folders that its vendor installs into ($ROCM_PATH/lib, /opt/rocm/lib);
 * 4. its usual names ("libopenblas.so.0", "libcublas.so.13"), as dlopen finds them. */
void oa_library_set_loader(oa_library_loader loader);
int oa_library_has_symbol(const char *library, const char *symbol);
/* Finds a function of a library by the name in its manual, and loads the library if needed. Nothing checks the calls of
 * that function. */
int oa_library_address(const char *library, const char *symbol, void **address);
int oa_library_integer_bits(const char *library); /* 32, or 64 in an ILP64 build; 0 until it is loaded */
/* Writes the version of a loaded library, as the library spells it, to text, cut to size; "" if it has none. */
int oa_library_version(const char *library, char *text, size_t size);
/* Makes the calling thread's next calls of library use this handle and its stream (NULL: the pool's again). Its pointer
 * mode is as before after each call. handle: the vendor's own, or an oa_object that the library's create gave. */
int oa_use_handle(const char *library, void *handle);
/* Describes an object; OA_ERROR_STALE once it is destroyed. */
typedef struct oa_object_info {
  size_t size;
  const char *library; /* "cublas" */
  const char *name;    /* of its kind: "Handle" */
  void *native;        /* the vendor's own */
  int device;          /* the number of its device; -1: it belongs to none */
  int reserved;        /* 0 */
} oa_object_info;
int oa_object_query(const oa_object *object, oa_object_info *info);
/* The same without the vendor's own part, which code outside may change once it has it. NULL: not asked for. */
int oa_object_names(const oa_object *object, const char **library, const char **name, int *device);
/* Waits for the calls that use the object, and destroys it; NULL is fine, and so is one that is destroyed already. */
int oa_object_destroy(oa_object *object);

/* -- the trace ----------------------------------------------------------------------------------------------------- */
enum oa_trace_flags {
  OA_TRACE_ON = 1,
  OA_TRACE_CHECKSUMS = 2, /* checksums of the copied bytes; each byte is read a second time */
  OA_TRACE_UNDER_WAY = 4  /* oa_trace_under_way finds copies and waits; alone it records no events */
};

enum oa_trace_kind {
  OA_TRACE_NONE,
#define OA_TRACE_KIND(name, text) OA_TRACE_##name,
#include "offload_args/trace_kinds.def"
#undef OA_TRACE_KIND
  OA_TRACE_KIND_COUNT
};

/* Something that is over. Times are ns of CLOCK_MONOTONIC on the host. A call's time is that of issuing it where the
 * device works on by itself. A copy's time lasts until its host bytes were read (up) or are in the array (down). */
typedef struct oa_trace_event {
  int64_t begun, ended;
  int64_t nbytes;
  int64_t tag;       /* OA_TRACE_ENTER: the tag of the region's options */
  uint64_t region;   /* a number that no other region has; of a copy: the region that lent the array first; 0: none */
  uint64_t address;  /* of a copy: the host's; 0 where that is not the array's own (assign) */
  uint64_t checksum; /* of a copy: of its bytes; 0: not taken */
  int32_t kind;      /* oa_trace_kind */
  int32_t device;
  int32_t thread; /* the system's number */
  int32_t status; /* oa_status; of a vendor's call: the vendor's */
  int32_t batch;  /* of a copy: how many went together; they share the batch's time in proportion to their bytes. Of a
                   * launch: the multiprocessors of its device */
  int32_t packed; /* of a copy: 1 if it was gathered or scattered on the host */
  char name[48];  /* the array's, or the function's */
  char why[64];   /* of a copy or wait: "first read by cublas.sgemv"; of a launch: "grid 9x1x1 block 64x2x1 shared 0" */
} oa_trace_event;

/* A batch of copies, or a wait, that is not over yet. */
typedef struct oa_under_way {
  int64_t begun;        /* ns of CLOCK_MONOTONIC */
  int64_t nbytes, done; /* of the copies, and how many of them were made so far; small and pinned arrays count late */
  int32_t kind;         /* OA_TRACE_UP, OA_TRACE_DOWN, OA_TRACE_PEER or OA_TRACE_WAIT */
  int32_t device;
  char name[64]; /* "A", or "A and 2 more"; of a wait: why */
} oa_under_way;

/* Turns the trace on with a sum of oa_trace_flags, and off with 0. While events are recorded, oa_region_finish waits
 * for the calls before it copies down, so that a copy's time is its own. */
int oa_trace_set(int flags);
/* Takes up to capacity events, oldest first; *lost (may be NULL) is how many the queue had no room for so far. The
 * queue holds 32,768. */
int oa_trace_read(oa_trace_event *events, int capacity, int *count, int64_t *lost);
/* Lists up to capacity copies and waits that are under way, in no order; those that began before OA_TRACE_UNDER_WAY was
 * turned on are not among them. At most 64 are known at a time. */
int oa_trace_under_way(oa_under_way *list, int capacity, int *count);
/* [cffi end] */

#ifndef __cplusplus
/* Make the oa_array of n elements in a row, and of a matrix stored by columns, which begin ld elements apart. Their
 * shape and strides live until the end of the block around them.
 *   oa_array arrays[] = {OA_LEND_MATRIX(A, OA_F64, m, n, lda), OA_LEND_VECTOR(x, OA_F64, n)}; */
#define OA_LEND_VECTOR(address, type, n)                       \
  ((oa_array){.data = (address),                               \
              .shape = (const int64_t[]){(n)},                 \
              .strides = (const int64_t[]){sizeof *(address)}, \
              .ndim = 1,                                       \
              .dtype = (type)})
#define OA_LEND_MATRIX(address, type, m, n, ld)                                                   \
  ((oa_array){.data = (address),                                                                  \
              .shape = (const int64_t[]){(m), (n)},                                               \
              .strides = (const int64_t[]){sizeof *(address), (int64_t)sizeof *(address) * (ld)}, \
              .ndim = 2,                                                                          \
              .dtype = (type)})
#endif

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
