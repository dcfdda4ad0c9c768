/* The C API for programs that lend arrays. Include offload_args.h.
 *
 * Each function that can fail returns an oa_status; oa_last_error() of the calling thread has the text. No function
 * aborts or prints. Any thread may call every function, with or without Python.
 *
 * Arguments are checked: a NULL that is not allowed, a number out of range, a stale handle, and a value that is not a
 * handle give a status and a text. Three things can't be checked and are trusted: a host address other than NULL has
 * the memory that the caller claims; streams and vendors' handles are genuine; the caller leaves the fields of an
 * oa_call alone between oa_begin and its end.
 *
 * A pointer such as `oa_f32 *` is a handle: it names a slot and its generation inside one range of addresses. A handle
 * traps when it is dereferenced, and is known to be stale after its region. csrc/DESIGN.md has the rules.
 *
 * Structs that may grow begin with `size`, which the caller sets to the size of the struct that it was compiled with;
 * OA_SIZED does so. A size smaller than today's belongs to an older version; the fields that it lacks count as 0 or are
 * not filled. OA_ERROR_ARGUMENT refuses a size that no version had. oa_array and oa_trace_event are elements of arrays,
 * so their layout is fixed. */
#ifndef OFFLOAD_ARGS_CORE_H
#define OFFLOAD_ARGS_CORE_H

#include <stddef.h>
#include <stdint.h>

/* Makes a struct that has its size set; other fields are 0 unless they are listed (in C++ no field can be listed):
 *   oa_counters counters = OA_SIZED(oa_counters);
 *   oa_region_enter(device, &OA_SIZED(oa_region_options, .tag = 7), arrays, count, &region); */
#ifdef __cplusplus
template <class T>
inline T oa_sized() {
  T result = T();
  result.size = sizeof result;
  return result;
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

/* cffi reads the lines between the two marks: plain C, `#define NAME <integer>`, and lists from a .def file, which
 * bindings/declarations.py expands. */
/* [cffi begin] */
#define OA_VERSION 300 /* 0.3.0 */

/* One opaque type for each dtype; oa_any is for a dtype that is known only at run time. The types oa_f32 and so on are
 * never defined. */
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
  OA_RESIDENT = 4,  /* the array's device memory stays when the region ends, see oa_keep */
  OA_OWNED = 8,     /* `owner` is the sole owner of the memory and calls oa_owner_gone before freeing it */
  /* the calls read each element many times, so the array is copied to the device even with single_use */
  OA_REUSED = 16,
  /* with OA_RESIDENT: nothing announces the end of the host memory, and only the memory's pages show whether the device
   * still has the bytes. The array stays resident as long as few pages are written */
  OA_TRACKED = 32,
  OA_OF_GRAPH = 64 /* with OA_SCRATCH in oa_scratch: a chain that captures the region's calls keeps the memory */
};

/* The way in which a call (shim.h) uses an operand, or in which a kernel (launch.h) uses a pointer. */
enum oa_access {
  OA_READ = 1,
  OA_OVERWRITE = 2, /* every element of the extent is written, none is read */
  OA_READ_WRITE = 3,
  OA_IN_PLACE = 4, /* a flag to add: the operand may be exactly the memory of another operand with the flag */
  OA_RESHAPED = 8  /* a flag to add: the operand is the previous operand, in its shape after the call */
};

enum oa_outcome {
  OA_COMMIT = 0, /* the body succeeded: written arrays come down */
  OA_DISCARD, /* the body failed: nothing comes down, and the results of the body are invalid for enclosing regions */
  OA_KEEP     /* the body failed, and the caller wants all valid bytes to come down (on_error="keep") */
};

typedef struct oa_region oa_region;
/* An object that a library made for the caller, such as a handle or a descriptor. An object that has ended is known to
 * be stale, and functions refuse it. */
typedef struct oa_object oa_object;

/* One array to lend. strides are in bytes and may be negative or zero. data is the address of the element at index 0 of
 * every dimension; it need not be aligned unless it is OA_BORROWED. OA_SCRATCH has no data; its strides describe an
 * array without gaps, in C or Fortran order (NULL: C order). */
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
  int32_t packed;    /* set by oa_region_enter: 1 if the device holds the array in C order without gaps */
  const void *owner; /* the address of the object whose end frees the memory, for residency; never read; may be NULL */
} oa_array;

/* Options of a region; NULL means that all are 0. */
typedef struct oa_region_options {
  size_t size;
  void *stream;        /* the caller's own stream (with has_stream): calls go there, copies down do not */
  void *wait_stream;   /* a stream whose work so far has to end before a borrowed array is used */
  int64_t tag;         /* any number; the trace repeats it in the event of the region's entry */
  int has_stream;      /* 1: stream is set (NULL is also a stream: the legacy default stream) */
  int has_wait_stream; /* 1: wait_stream is set */
  /* 1 if one call uses each array: small arrays then need no copy if the device can use pinned host memory directly */
  int single_use;
  /* 1: guards the arrays, as OFFLOAD_ARGS_GUARD=1 does in all regions. While a device has the bytes, whole pages of
   * the arrays can't be written on the host, and while it is newer, they can't be read: such a touch is a fault, which
   * oa_guard_set_report handles */
  int guard;
  const char *place;        /* for oa_guard_report: the line that enters the region; NULL: not known */
  const char *const *names; /* for oa_guard_report: a name for each array; NULL: the array's name in messages */
} oa_region_options;

typedef struct oa_pointer_info {
  size_t size;
  int64_t nbytes; /* bytes from the first byte to the last, gaps included */
  int device;
  int dtype;
  int readable;
  int writable;
  int borrowed;
  int escaped;
  int scratch;  /* 1 if the pointer's array has no host array */
  int valid;    /* 1: the device has the array's bytes; 0: no call needed the bytes yet, or a call failed */
  int written;  /* 1 if a call wrote the array, or memory that the array shares, since the array was lent */
  int captured; /* 1 while a chain captures the calls of the pointer's region */
  /* at most so many bytes of the pointer's array may go up in parts, while the device works for other calls */
  int64_t lacking;
  int in_parts;    /* 1 if a call may overwrite a part of the pointer's array, and nothing goes up for the rest */
  int host_writes; /* 1 if an oa_update lets the host write the array: it goes up for every call that reads it */
  int packed;      /* 1 if the device has the lent array packed: in C order, without gaps */
  int shared;      /* 1 if another region lent the array's bytes to the device before the pointer's region did */
} oa_pointer_info;

/* The layout of a pointer's array on the device. The shape alone does not determine the order: the transpose of a
 * square matrix has the shape of the matrix. */
typedef struct oa_pointer_layout {
  size_t size;
  int dtype;
  int ndim;
  int64_t shape[8];      /* sizes of the first 8 dimensions; `strides` is for the same dimensions */
  int64_t strides[8];    /* in bytes; may be negative or 0 */
  int64_t rows, columns; /* sizes of a matrix; for a vector, the number of elements and 1; otherwise 0 */
  int64_t ld;            /* the leading dimension of a matrix that is stored by columns; otherwise 0 */
  int64_t ld_by_rows;    /* the leading dimension of a matrix that is stored by rows; otherwise 0 */
  /* elements from one element of a vector to the next; 0 if the distance is not a whole number, or if the array is not
   * a vector */
  int64_t inc;
} oa_pointer_layout;

typedef struct oa_counters {
  size_t size;
  int64_t copies_up; /* number of moved arrays, or moved parts of arrays */
  int64_t bytes_up;
  int64_t copies_down;
  int64_t bytes_down;
  int64_t allocations;  /* pieces of memory taken, from the driver or from the pool */
  int64_t frees;        /* pieces returned to the driver or to the pool */
  int64_t mappings;     /* live entries of the present table */
  int64_t regions;      /* live regions */
  int64_t calls;        /* vendor calls and launches */
  int64_t memory_used;  /* bytes of device memory in use now */
  int64_t memory_peak;  /* the most bytes in use at any time */
  int64_t pinned_bytes; /* bytes of host memory pinned for the device */
  int64_t copies_peer;  /* number of copies from the memory of another device, which replace copies up from the host */
  int64_t bytes_peer;
  int64_t bytes_former; /* copied within the host before calls wrote arrays that the device uses there */
} oa_counters;

enum oa_residency_mode { OA_RESIDENCY_OFF = 0, OA_RESIDENCY_EXPLICIT, OA_RESIDENCY_AUTO };

/* The resident arrays of a device, and their savings and costs so far. */
typedef struct oa_residency {
  size_t size;
  int mode;     /* oa_residency_mode, of the process */
  int tracking; /* 1 if writes to host pages can be detected; otherwise resident arrays are sent again */
  int64_t kept; /* resident pieces of memory that no region uses now */
  int64_t kept_bytes;
  int64_t returns;       /* how often a resident array was lent again and read */
  int64_t bytes_spared;  /* bytes that were not sent, because the host's bytes were unchanged */
  int64_t bytes_resent;  /* bytes that were sent again, because the host wrote them, or may have written them */
  int64_t pages_armed;   /* host pages watched so far */
  int64_t pages_written; /* watched pages that were written; each such write costs a microsecond or two */
  int64_t dropped;       /* pieces evicted under memory pressure */
  int64_t promoted;      /* arrays that automatic residency made resident */
  int64_t demoted;       /* arrays that automatic residency gave up, because the host wrote the arrays */
} oa_residency;

enum oa_device_flags {
  OA_DEVICE_GPU = 1,        /* a GPU; programs that choose no device use the first GPU */
  OA_DEVICE_HOST_CALLS = 2, /* the libraries for the device run on the CPU */
  OA_DEVICE_SIMULATED = 4   /* for tests only; never chosen by default */
};

/* The values of OFFLOAD_ARGS_COHERENT: the devices to which arrays are lent without copies. */
enum oa_coherence {
  OA_COHERENT_NEVER = 0,
  OA_COHERENT_AUTO,  /* devices that read host memory by the host's page tables */
  OA_COHERENT_ALWAYS /* all devices that can read host memory */
};

/* One kind of device in this build. */
typedef struct oa_backend_info {
  size_t size;
  char name[16];   /* "cuda": the devices are "cuda:0", "cuda:1" and so on; "host" is one device without a number */
  int flags;       /* oa_device_flags */
  int dlpack_type; /* DLPack's DLDeviceType of the devices' memory; 0: the memory can't be exported */
} oa_backend_info;

typedef struct oa_device_info {
  size_t size;
  char name[32];    /* "cuda:0" */
  char backend[16]; /* "cuda" */
  char model[128];  /* "NVIDIA H200" */
  /* memory_total and memory_free are 0 if the driver does not report them, as HIP on some Linux kernels */
  int64_t memory_total;
  int64_t memory_free;
  int index; /* number of the device within the backend */
  int flags; /* oa_device_flags */
  int driver_version;
  int compute_major;
  int compute_minor;
  int dlpack_type; /* DLPack's DLDeviceType of the device's memory; 0: the memory can't be exported */
  int reads_host;  /* 1 if it can read host memory that is not pinned, 2 if it does so by the host's page tables */
  int coherent;    /* 1 if arrays are lent to it without copies (OFFLOAD_ARGS_COHERENT) */
} oa_device_info;

/* -- errors -------------------------------------------------------------------------------------------------------- */
const char *oa_last_error(void);   /* returns the text of this thread's last failure; never NULL */
const char *oa_last_warning(void); /* returns the text of this thread's last warning; never NULL */
/* Returns a warning about the process, for example that pinned memory is not available. The function returns a warning
 * once, and otherwise NULL. Programs should call this function after each region; it takes almost no time. */
const char *oa_take_warning(void);
const char *oa_status_name(int status); /* "OA_ERROR_TYPE" */
int oa_version(void);                   /* OA_VERSION of the library: 10000 * major + 100 * minor + patch */
/* Returns OA_OK if a program that was compiled with a header of this version, OA_VERSION, may use the library. Before
 * 1.0 both need the same minor version; from 1.0 on, the same major version and a library that is not older. Otherwise
 * returns OA_ERROR_VERSION. Also returns OA_ERROR_VERSION if another copy of the library, from another file, is in use
 * in this process, because the two copies would lend the same arrays independently of each other. */
int oa_check_version(int compiled);
int oa_in_use(void);                  /* 1 once the process has used this copy of the library */
int64_t oa_itemsize(int dtype);       /* in bytes; 0 for OA_ANY and for a number that is not an oa_dtype */
const char *oa_dtype_name(int dtype); /* "float32"; "no dtype" for a number that is not an oa_dtype */

/* -- devices ------------------------------------------------------------------------------------------------------- */
/* Describes a backend of this build. number: from 0, the preferred backend first. Returns OA_ERROR_ARGUMENT if no
 * backend has the number. Loads no driver, and may be called before and after a fork. */
int oa_backend_get_info(int number, oa_backend_info *info);
int oa_device_open(const char *name, int *device); /* "host", "cuda:0", "sim:3"; a number valid for this process */
/* Counts the devices of a backend. If *count becomes 0, oa_last_error() has the reason. */
int oa_device_count(const char *backend, int *count);
int oa_device_get_info(int device, oa_device_info *info);
int oa_device_get_counters(int device, oa_counters *counters);
int oa_device_synchronize(int device);
/* Waits for the device, and returns idle memory to the driver: memory of the device, and pinned blocks of past
 * copies. */
int oa_device_trim(int device);
/* A touch of a guarded array by the host. */
typedef struct oa_guard_touch {
  size_t size;
  const char *array, *place, *device; /* texts; `place` is "" if the place is not known */
  const void *address;                /* the address that was read or written */
  uint64_t thread;                    /* the thread that lent the array first, as a pthread_t */
  int newer; /* 1: the device has newer bytes; 0: the device has the array's bytes, and the host wrote others */
} oa_guard_touch;
/* The core calls this function in a signal handler, on the thread that touched the array. Before this call, the core
 * makes the array's pages usable. The function returns 1 if the program shall go on. If it returns 0, the array's name
 * is printed on stderr, and the fault goes to the earlier handler. */
typedef int (*oa_guard_report)(const oa_guard_touch *touch);
/* Sets the process's function for reports; NULL counts as a function that returns 0. */
int oa_guard_set_report(oa_guard_report report);
/* Returns 1 if OFFLOAD_ARGS_GUARD guards the arrays of all regions, otherwise 0. */
int oa_guard_is_default(void);
/* Allocates host memory that the device's copies reach directly (plain memory on host and sim).
 * OFFLOAD_ARGS_PINNED_LIMIT, or half of the machine's memory, is the limit. */
int oa_pinned_allocate(int device, size_t nbytes, void **memory);
/* Frees memory from oa_pinned_allocate; NULL: OA_OK. */
int oa_pinned_free(int device, void *memory, size_t nbytes);
/* Sets the number of threads for the copies of one device, the calling thread included. If several devices copy at the
 * same moment, each device has this number of threads. 0: the value of OFFLOAD_ARGS_THREADS. If the variable is not
 * set, the number is one less than the CPUs that this process may use, but at most 12, and all devices together have no
 * more threads than there are CPUs. */
int oa_set_threads(int threads);

/* -- regions ------------------------------------------------------------------------------------------------------- */
/* Lends `count` arrays to a device, and sets *region and the handle of each array. Allocates the device's memory.
 * Nothing moves before a call needs an array. Only this function reads the structs and their shapes. The arrays' memory
 * must stay in place, and the host must not write it, until oa_region_wait has returned. After a failure, nothing is
 * lent. */
int oa_region_enter(int device, const oa_region_options *options, oa_array *arrays, int count, oa_region **region);
/* Ends the region's pointers and enqueues the copies down. Waits for calls on its arrays that other threads have begun.
 * Changes nothing and returns OA_ERROR_ARGUMENT if this thread has begun a call and not ended it. Changes nothing and
 * returns OA_ERROR_CAPTURE if leaving would have to wait for a stream or a device that is being captured into a graph.
 * *warnings (may be NULL) is the number of arrays lent as Out that no call wrote, or that calls wrote only in part.
 * With OA_DISCARD, *warnings is the number of arrays whose results are lost. oa_last_warning() names these arrays.
 * Returns OA_OK for a region that already ended. A nested region passes its writes to its enclosing region: an older
 * region of the same thread that is still open and lends the array. Without an enclosing region, leaving without
 * failure commits the writes. The array's last region brings committed writes down, even if that last region fails. */
int oa_region_finish(oa_region *region, int outcome, int *warnings);
/* Waits for every user of the region's mappings, completes the copies down, and frees the memory that no other region
 * holds. */
int oa_region_wait(oa_region *region);
int oa_region_synchronize(oa_region *region); /* waits for the region's work so far; moves no data */
/* Returns the stream of the region's calls, to order other work with them: the backend's own stream, such as a
 * CUstream. The stream is valid until the region ends. */
int oa_region_stream(oa_region *region, void **stream);

/* -- pointers ------------------------------------------------------------------------------------------------------ */
/* Makes a pointer to a part of the memory of `pointer`, with separate bounds; strides and offset are in bytes. The new
 * pointer ends with oa_pointer_release or with its region. */
int oa_pointer_view(const oa_any *pointer, int64_t offset, int ndim, const int64_t *shape, const int64_t *strides,
                    oa_any **view);
/* Ends a view. If a call is using the view, the view ends with the call. Refuses a region's own pointer. */
int oa_pointer_release(oa_any *view);
int oa_pointer_query(const oa_any *pointer, oa_pointer_info *info); /* OA_ERROR_STALE once the pointer has ended */
/* Describes the shape, the strides and the leading dimension of the pointer's array; OA_ERROR_STALE once the pointer
 * has ended. */
int oa_pointer_get_layout(const oa_any *pointer, oa_pointer_layout *layout);
/* Returns the true device address. Brings the data up if it may be read, and marks the mapping as escaped: its users
 * are unknown. So an array that `pointer` may write always comes down. It may not be on any other device, and leaving
 * waits for the whole device. */
int oa_address(const oa_any *pointer, uint64_t *address);
/* Returns the true address, as oa_address does, and keeps the memory alive after its region until
 * oa_export_release(*keep). *keep is NULL if the pointer has no bytes. */
int oa_export(const oa_any *pointer, uint64_t *address, void **keep);
int oa_export_release(void *keep);
/* Writes host values, in C order, to the elements that shape and strides (in bytes) select, counted from the pointer's
 * lowest byte. Other elements stay unchanged. */
int oa_pointer_assign(oa_any *pointer, const void *values, int ndim, const int64_t *shape, const int64_t *strides);
/* Marks the array of a pointer that a call wrote as undefined, as the failure of a library's call does: the array never
 * comes down, and leaving the region reports this. Code calls this when a result shows that the call computed nothing
 * useful.
 * */
int oa_pointer_invalidate(oa_any *pointer);
/* Writes the value of one element to every element of an array on the device; no array data is copied. */
int oa_pointer_fill(oa_any *pointer, const void *value, int ndim, const int64_t *shape, const int64_t *strides);
/* Copies an array on the device to another array there, of the same dtype and shape, which must share no element with
 * it. */
int oa_pointer_copy(oa_any *pointer, const int64_t *strides, const oa_any *source, const int64_t *source_strides,
                    int ndim, const int64_t *shape);
/* Reads an array's present elements on the device into `values`, in C order, and waits for the copy. Bytes that the
 * device does not have yet are read from the host. Nothing is marked, and pending copies down still happen. */
int oa_pointer_read(const oa_any *pointer, void *values, int ndim, const int64_t *shape, const int64_t *strides);
/* Copy between all elements of a pointer, which have no gaps, and a host array of this shape with any strides (in
 * bytes). The host array's elements in C order are the pointer's elements. The copies are made in the way that whole
 * arrays are copied. `values` is the address of the element at index 0. */
int oa_pointer_assign_strided(oa_any *pointer, const void *values, int ndim, const int64_t *shape,
                              const int64_t *strides);
int oa_pointer_read_strided(const oa_any *pointer, void *values, int ndim, const int64_t *shape,
                            const int64_t *strides);
/* Makes a device copy of one host scalar in the region of `pointer`, for calls whose other scalars are on the
 * device. */
int oa_stage(const oa_any *pointer, const void *value, int dtype, oa_any **staged);
/* Takes device memory while a region is open: in the youngest region of the operands, which are pointers on one device.
 * array: as in oa_region_enter, with the direction OA_SCRATCH. Sets array->handle. The memory ends with
 * oa_pointer_release of the handle and of all its views, or with the region. Returns OA_ERROR_CAPTURE if the region's
 * calls are being captured, unless a chain captures them and the flags have OA_OF_GRAPH. Memory for a chain lives until
 * the chain has ended, too. */
int oa_scratch(const oa_any *const *operands, int count, oa_array *array);

/* Update arrays while they are lent, as OpenMP's `target update` does. oa_update_from brings the elements that devices
 * wrote to the host; on the host, these elements are safe whatever happens later. oa_update_to sends the host's bytes
 * to every device that has a copy of some of them. oa_update_from and oa_update_to refuse before anything moves
 * (OA_ERROR_PRESENT) if the device lacks some of the array, or if a device wrote bytes of it through another lent array
 * and no copy can address these bytes alone. Such an array is packed and has further elements, or its lines have
 * another pitch. oa_update_check refuses the same arrays as oa_update_to, and moves nothing. oa_update_begin refuses
 * the same arrays. After oa_update_begin has succeeded, the host's bytes count as the newest, and calls that read them
 * bring them up. Until oa_update_to, calls read the device's bytes of a lent array if a device wrote other bytes of it,
 * which `array` lacks, or if its address was given away. The host may write the array until oa_update_end of *writing.
 * oa_update_to belongs after the last write and before oa_update_end. device: the device that provides the bytes; it
 * has to have the whole array; -1: any device. oa_update_newest is oa_update_from for any array, also for an array
 * that no device has, or has only in part: call it before the host reads memory that a region may lend. */
int oa_update_from(const oa_array *array, int device);
int oa_update_newest(const oa_array *array);
int oa_update_to(const oa_array *array, int device);
int oa_update_check(const oa_array *array, int device);
typedef struct oa_writing oa_writing;
int oa_update_begin(const oa_array *array, int device, oa_writing **writing);
/* Ends the time in which the host may write the array. Returns OA_ERROR_STALE if the writing has already ended, and
 * OA_OK for NULL. */
int oa_update_end(oa_writing *writing);
int oa_is_present(const void *data, int64_t nbytes, int device); /* 1 or 0 */

/* -- residency ----------------------------------------------------------------------------------------------------- */
/* Makes the array resident: its device memory stays when its regions end, until oa_release, oa_owner_gone or memory
 * pressure. If the array is lent again and a call reads it, only the pages that the host wrote in between are sent.
 * Sending only written pages needs OA_OWNED, private anonymous memory, and a kernel that can watch pages; otherwise the
 * whole array is sent. Arrays of less than 128 KiB, packed arrays, and arrays that are lent together with overlapping
 * arrays don't stay: they are sent each time. The flag OA_RESIDENT of a lent array has the same effect. oa_keep itself
 * moves nothing. */
int oa_keep(const oa_array *array, int device);
/* Undoes oa_keep; device -1: on all devices. Memory that a region uses is freed with the region. Returns OA_OK if the
 * array is not resident. */
int oa_release(const oa_array *array, int device);
/* Ends the residency of an owner's arrays on all devices. Must be called before the owner's memory is freed. */
int oa_owner_gone(const void *owner);
/* Returns 1 the first time that memory of `owner` becomes resident, otherwise 0. After a 1, the caller must make sure
 * that oa_owner_gone(owner) is called. */
int oa_owner_kept(const void *owner);
int oa_residency_query(int device, oa_residency *residency);
int oa_residency_current(void); /* oa_residency_mode; -1 if the value of OFFLOAD_ARGS_RESIDENCY is not a mode */

/* -- vendor libraries ---------------------------------------------------------------------------------------------- */
/* Loads library ("cublas", "cblas") from an absolute path. prefix: the prefix of its symbols; NULL: any prefix that
 * known builds have. A CBLAS may also have the suffix "64_" or "_64"; a test call finds out whether its integers have
 * 64 bits (ILP64). */
int oa_library_open(const char *library, const char *path, const char *prefix);
/* Takes the library that a loaded module (an absolute path; NULL: the program) is linked with, so that the module and
 * the core share one pool of threads. Loads nothing. Returns OA_ERROR_LIBRARY if the library lacks a required
 * function. */
int oa_library_share(const char *library, const char *module);
const char *oa_library_path(const char *library); /* "" until the library is loaded */
/* Finds a library that is needed and not loaded yet: calls oa_library_open and returns its status, or writes the reason
 * to text and returns OA_ERROR_LIBRARY. */
typedef int (*oa_library_loader)(const char *library, char *text, size_t size);
/* Sets the loader. Without a loader (NULL), as in programs without Python, a library is looked for in this order: 1.
 * the absolute path in the environment variable OFFLOAD_ARGS_<NAME>, such as OFFLOAD_ARGS_CBLAS; if it is set, no other
 * place is tried; 2. if this library is inside a Python package: the packages beside it (scipy-openblas32, NVIDIA's
 * wheels); 3. the folders into which its vendor installs ($ROCM_PATH/lib, /opt/rocm/lib); 4. its usual names
 * ("libopenblas.so.0", "libcublas.so.13"), as dlopen finds them. */
void oa_library_set_loader(oa_library_loader loader);
/* Sets a function that is called once, with "hip", before HIP's runtime is looked for. The function writes a line for
 * each place: the absolute path of a file to try, or the reason why a place has no file. If the finder fails, the
 * function that needed the driver fails, too. NULL: the runtime is looked for in _rocm_sdk_core beside this library's
 * Python package, in ROCM_PATH, in /opt and in the system's folders. */
void oa_driver_set_finder(oa_library_loader finder);
int oa_library_has_symbol(const char *library, const char *symbol);
/* Finds a function of a library by its name in the manual, and loads the library if needed. Calls through this address
 * are not checked. */
int oa_library_address(const char *library, const char *symbol, void **address);
int oa_library_integer_bits(const char *library); /* 32, or 64 in an ILP64 build; 0 until the library is loaded */
/* Writes the version of a loaded library, as the library spells it, to text, cut to size; "" if it reports none. */
int oa_library_version(const char *library, char *text, size_t size);
/* Makes the calling thread's next calls of library use this handle and its stream; NULL: a handle of the pool again.
 * Each call restores the handle's pointer mode when it ends. handle: the vendor's own handle, or an oa_object from the
 * library's create function. */
int oa_use_handle(const char *library, void *handle);
/* Describes an object; OA_ERROR_STALE once the object is destroyed. */
typedef struct oa_object_info {
  size_t size;
  const char *library; /* "cublas" */
  const char *name;    /* name of the object's kind: "Handle" */
  void *native;        /* the vendor's own object */
  int device;          /* the number of the object's device; -1: the object belongs to no device */
  int reserved;        /* 0 */
} oa_object_info;
int oa_object_query(const oa_object *object, oa_object_info *info);
/* Describes an object, but does not return the vendor's own object, which code outside could change. A result whose
 * pointer is NULL is not written. */
int oa_object_names(const oa_object *object, const char **library, const char **name, int *device);
/* Waits for the calls that use the object, and destroys it. Returns OA_OK for NULL, and for an object that was
 * destroyed before. */
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

/* An event that is over. Times are ns of CLOCK_MONOTONIC on the host. If the device runs asynchronously, a call's time
 * is the time to issue it. A copy up ends when the host bytes have been read; a copy down ends when the bytes are in
 * the array. */
typedef struct oa_trace_event {
  int64_t begun, ended;
  int64_t nbytes;
  int64_t tag; /* OA_TRACE_ENTER: the tag in the region's options */
  /* the unique number of the region; for a copy, of the region that lent the array first; 0: no region */
  uint64_t region;
  uint64_t address;  /* of a copy: the host address; 0 if the address is not in the array (oa_pointer_assign) */
  uint64_t checksum; /* checksum of a copy's bytes; 0: not computed */
  int32_t kind;      /* oa_trace_kind */
  int32_t device;
  int32_t thread; /* the system's number of the thread */
  int32_t status; /* an oa_status; for a vendor's call, the vendor's status */
  /* for a copy: the number of copies that went together, and share the batch's time in proportion to their bytes. For a
   * launch: the multiprocessors of its device */
  int32_t batch;
  int32_t packed; /* 1 for a copy that was gathered or scattered on the host */
  char name[48];  /* name of the array or the function */
  char why[64];   /* of a copy or wait: "first read by cublas.sgemv"; of a launch: "grid 9x1x1 block 64x2x1 shared 0" */
} oa_trace_event;

/* A batch of copies, or a wait, that is not over yet. */
typedef struct oa_under_way {
  int64_t begun;        /* ns of CLOCK_MONOTONIC */
  int64_t nbytes, done; /* bytes of all copies, and bytes copied so far; `done` counts small and pinned arrays late */
  int32_t kind;         /* OA_TRACE_UP, OA_TRACE_DOWN, OA_TRACE_PEER or OA_TRACE_WAIT */
  int32_t device;
  char name[64]; /* "A", or "A and 2 more"; for a wait, the reason */
} oa_under_way;

/* Turns the trace on with a sum of oa_trace_flags, and off with 0. While events are recorded, oa_region_finish waits
 * for the calls before it copies down, so that a copy's time includes no other work. */
int oa_trace_set(int flags);
/* Takes up to capacity events, oldest first. *lost (may be NULL): the number of events so far that found the queue
 * full. The queue holds 32,768. */
int oa_trace_read(oa_trace_event *events, int capacity, int *count, int64_t *lost);
/* Lists up to capacity copies and waits that are under way, in no order. Copies and waits that began before
 * OA_TRACE_UNDER_WAY was turned on are not listed. The core lists at most 64 at a time. */
int oa_trace_under_way(oa_under_way *list, int capacity, int *count);
/* [cffi end] */
/* -- arrays to lend, in C ------------------------------------------------------------------------------------------ */
#ifndef __cplusplus
/* Make the oa_array of a vector of n elements, and of a matrix whose columns start ld elements apart. Shape and strides
 * live until the end of the block around them.
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
