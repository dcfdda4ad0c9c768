/* The whole contract of a backend: one documented table of functions, the device as its backend sees it, and the few
 * functions of the core that a backend calls.
 *
 * A new backend is csrc/backends/<name>.c, which includes this header, base/error.h and its own .def and nothing else
 * of the core, and one line in backends.def.
 *
 * A backend reports failure as an oa_status with the text set through oa_fail(); it knows nothing of regions or of the
 * present table. Every function may be called from any thread at once. Addresses are device addresses; on `host` and
 * `sim` they are addresses of this process. A stream runs its operations in order; operations of different streams are
 * ordered by events only. */
#ifndef OA_BACKEND_H
#define OA_BACKEND_H

#include "base/core.h"
#include "base/error.h"
#include "base/lines.h"
#include "base/nodes.h" /* oa_node_of_pci, which a backend may call */
#include "offload_args/launch.h"

typedef struct oa_device oa_device;

/* Flags beside the oa_device_flags, which users see. */
enum oa_backend_flags {
  OA_DEVICE_FLAGS = 0xff,      /* mask of the oa_device_flags */
  OA_SYNCHRONOUS = 1 << 8,     /* every operation is complete when it returns: streams and events may be NULL */
  OA_PINNED_IN_PLACE = 1 << 9, /* memory from `pin` is device memory too, at the same address */
  OA_SINGLE = 1 << 10,         /* there is one device, and its name has no number */
  OA_COUNTS_THREADS = 1 << 11  /* the driver counts a grid's threads along an axis, not its blocks, in 32 bits */
};

typedef struct oa_backend {
  const char *name;
  unsigned flags;  /* oa_device_flags and oa_backend_flags; OA_DEVICE_HOST_CALLS asks for `submit` */
  int dlpack_type; /* DLPack's DLDeviceType of its memory; 0: it can't be exported */
  /* Sets the number of devices of this machine; 0 with the reason as the error text when there is no driver. Loads the
   * driver. `sim` has a fixed number. */
  int (*count)(int *count);
  /* Fills device->state and device->model for device->index. Called once a device, under a lock. */
  int (*open)(oa_device *device);
  int (*memory)(oa_device *device, int64_t *free_bytes, int64_t *total_bytes);
  /* OA_ERROR_MEMORY when there is no room; usable on stream at once, on others after an event. nbytes > 0. */
  int (*allocate)(oa_device *device, void *stream, size_t nbytes, uint64_t *address);
  /* In stream order. The address is gone whatever this returns. */
  int (*free)(oa_device *device, void *stream, uint64_t address, size_t nbytes);
  /* The core put the memory into its own pool, or took it from there again; nothing uses it meanwhile. NULL: the memory
   * may hold anything. */
  void (*pool)(oa_device *device, uint64_t address, size_t nbytes);
  void (*take)(oa_device *device, uint64_t address, size_t nbytes);
  int (*trim)(oa_device *device); /* waits for frees under way, then returns idle memory to the driver */
  /* Copy `lines` lines of `width` bytes; pitches are the distances between their starts. up: the host lines were read
   * when this returns. down: the host lines are written at any time from this call on until the stream is
   * synchronized. */
  int (*copy_up)(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from, size_t from_pitch,
                 size_t width, size_t lines);
  int (*copy_down)(oa_device *device, void *stream, void *to, size_t to_pitch, uint64_t from, size_t from_pitch,
                   size_t width, size_t lines);
  /* Copies up from memory that is pinned: the lines are read at any time until the stream has come that far. */
  int (*copy_up_later)(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from,
                       size_t from_pitch, size_t width, size_t lines);
  /* Allocates host memory that copies reach at the speed of the bus; OA_ERROR_MEMORY when there is none. */
  int (*pin)(oa_device *device, size_t nbytes, void **memory);
  int (*unpin)(oa_device *device, void *memory, size_t nbytes);
  /* Returns whether those bytes of the host are pinned, by any code of the process. */
  bool (*pinned)(oa_device *device, const void *memory, size_t nbytes);
  /* Copies from device memory to device memory, in stream order; the two must not overlap. */
  int (*copy)(oa_device *device, void *stream, uint64_t to, size_t to_pitch, uint64_t from, size_t from_pitch,
              size_t width, size_t lines);
  /* Copies from memory of another device of this backend, in the order of `stream`, which is this device's. The caller
   * has waited for the writers of `from`. NULL: no device of this backend has memory of its own. */
  int (*copy_peer)(oa_device *device, void *stream, uint64_t to, size_t to_pitch, oa_device *source, uint64_t from,
                   size_t from_pitch, size_t width, size_t lines);
  int64_t peer_least; /* bytes: fewer go up from the host, in less time */
  /* Writes the low `unit` bytes of value (1, 2 or 4) over and over; unit divides the address, the pitch and the
   * width. */
  int (*fill)(oa_device *device, void *stream, uint64_t to, size_t pitch, uint32_t value, size_t unit, size_t width,
              size_t lines);
  int (*stream_create)(oa_device *device, void **stream);
  /* Reports asynchronous failures. After it, nothing of this stream touches host memory any more, even if it fails. */
  int (*stream_synchronize)(oa_device *device, void *stream);
  int (*stream_wait)(oa_device *device, void *stream, void *event);
  /* *capturing = 1 if the caller's stream is being captured into a graph. */
  int (*stream_capturing)(oa_device *device, void *stream, int *capturing);
  int (*event_create)(oa_device *device, void **event);
  int (*event_record)(oa_device *device, void *event, void *stream);
  int (*event_destroy)(oa_device *device, void *event);
  int (*event_done)(oa_device *device, void *event, int *done);
  int (*event_synchronize)(oa_device *device, void *event);
  int (*synchronize)(oa_device *device); /* the whole device, work of other code in this process too */
  /* Makes the device current for a vendor's call on this thread, and restores what was. NULL if there is no such
   * thing. */
  int (*enter)(oa_device *device, void **saved);
  int (*leave)(oa_device *device, void *saved);
  /* Runs run(copy of arguments) on the CPU in stream order. OA_DEVICE_HOST_CALLS backends only. */
  int (*submit)(oa_device *device, void *stream, void (*run)(void *), const void *arguments, size_t size);
  /* Kernels. NULL: the device has none, or is OA_DEVICE_HOST_CALLS, where the core itself runs functions of shared
   * objects through `submit`. The image was checked as far as the core knows its format. OA_ERROR_MODULE if the driver
   * refuses it; name is for the text. */
  int (*module_load)(oa_device *device, const char *name, const void *image, size_t nbytes, void **module);
  int (*module_unload)(oa_device *device, void *module);
  /* Makes a function, and fills info but for its size; the function is freed by function_free. */
  int (*function_make)(oa_device *device, void *module, const char *name, void **function, oa_kernel_info *info);
  void (*function_free)(oa_device *device, void *function);
  /* Finds a parameter by its number: *nbytes is 0 behind the last one, and SIZE_MAX if the driver can't tell. */
  int (*function_parameter)(oa_device *device, void *function, int number, size_t *offset, size_t *nbytes);
  /* arguments: the address of each argument's value. */
  int (*launch)(oa_device *device, void *stream, void *function, const oa_launch *launch, void **arguments);
} oa_backend;

struct oa_counts { /* oa_counters, atomically */
  _Atomic int64_t copies_up, bytes_up, copies_down, bytes_down, allocations, frees, mappings, regions, calls;
  _Atomic int64_t memory_used, memory_peak, pinned_bytes, copies_peer, bytes_peer;
};

struct oa_device {
  const oa_backend *backend;
  int index;  /* within its backend */
  int number; /* what the public functions take */
  char name[32];
  /* set by the backend's `open` */
  char model[128];
  int driver_version, compute_major, compute_minor;
  int node;    /* of the machine's memory that is near it (NUMA); -1: not known, as before `open` */
  void *state; /* the backend's own */
  /* The rest is the core's; a backend leaves it alone. */
  atomic_int lost; /* oa_lost, set by oa_device_lost once the device can't be used any more */
  char lost_reason[512];
  struct oa_counts counts;
  oa_residency residency;       /* owned by residency.c, under the core's lock; its size, mode, tracking are not used */
  _Atomic int64_t memory_limit; /* bytes in use at once; INT64_MAX: no limit was set */
  _Atomic int64_t spare_bytes;  /* in its pool of spare memory */
  _Atomic(struct oa_spares *) spares;   /* owned by memory.c, made at first use */
  _Atomic(struct oa_staging *) staging; /* owned by staging.c, made at first use */
  /* pools of streams, owned by stream.c */
  struct oa_stream *idle_streams;
  struct oa_stream *streams;
  int stream_count;
};

/* -- what a backend may call, besides base/ -- */

/* Marks the device as lost and sets the error text. The first cause is recorded; later calls fail at once with it.
 * Returns OA_ERROR_LOST. */
int oa_device_lost(oa_device *device, const char *reason);
/* Sets *device to the device of that number. Returns OA_OK, or a failure with the text set if no device has it, the
 * device is lost, or the process was forked; function is the public one that asks. */
int oa_device_find(int number, const char *function, oa_device **device);
/* Reads again how much of the device's memory the environment allows, after its size changed. */
int oa_device_read_limit(oa_device *device);

#endif
