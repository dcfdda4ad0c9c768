/* The whole contract of a backend: one documented table of functions, the struct of a device, and the few functions of
 * the core that a backend may call.
 *
 * A new backend is csrc/backends/<name>.c and one line in backends.def. The new file includes this header, base/error.h
 * and its own .def, and no other file of the core.
 *
 * A backend reports a failure as an oa_status and sets the text with oa_fail(). A backend uses neither regions nor the
 * present table. Any thread may call any function at any time. Addresses are device addresses; on `host` and `sim` they
 * are addresses of this process. A stream runs its operations in order; only events order operations of different
 * streams. */
#ifndef OA_BACKEND_H
#define OA_BACKEND_H

#include "base/error.h"
#include "base/lines.h"
#include "base/nodes.h"     /* oa_node_of_pci, which a backend may call */
#include "base/recording.h" /* for backends whose calls the CPU makes */
#include "base/runtime.h"
#include "offload_args/launch.h"

typedef struct oa_device oa_device;

/* Flags in addition to the oa_device_flags, which are public. */
enum oa_backend_flags {
  OA_DEVICE_FLAGS = 0xff,      /* mask of the oa_device_flags */
  OA_SYNCHRONOUS = 1 << 8,     /* every operation is complete when it returns; streams and events may be NULL */
  OA_PINNED_IN_PLACE = 1 << 9, /* memory from `pin` is also device memory, at the same address */
  OA_SINGLE = 1 << 10,         /* the backend has one device, and its name has no number */
  OA_ASKS_FINDER = 1 << 12,    /* `count` reads oa_driver_places */
  OA_COUNTS_THREADS = 1 << 11  /* the driver's limit of 32 bits for an axis of the grid counts threads, not blocks */
};

/* How a device reads host memory that no driver has pinned. */
enum oa_host_reading {
  OA_READS_NOTHING, /* not at all */
  OA_READS_PAGES,   /* the driver moves or maps its pages, over the bus */
  OA_READS_HOST     /* by the host's own page tables: the device is coherent with the host */
};

enum { OA_RELAXED = 2 }; /* a mode of oa_backend.capture_mode */

/* The end of a graph's loop: a number that the graph's calls write is not 0, or the graph ran at_most times. */
typedef struct oa_graph_until {
  uint64_t address;  /* address of the number, a multiple of word_bytes */
  int words;         /* words of the number: 2 if it is complex */
  int word_bytes;    /* 1, 2, 4 or 8 */
  uint64_t bits;     /* bits of a word: the number is 0 if none of these bits is set in any of its words */
  int64_t at_most;   /* 1 or more */
  uint64_t count;    /* the address of 8 bytes of the device, which are 0 when the loop is launched */
  uint64_t *outcome; /* pinned: [0] becomes the number of runs; [1] becomes 1 if the number is not 0, else 0 */
} oa_graph_until;

typedef struct oa_backend {
  const char *name;
  unsigned flags;  /* oa_device_flags and oa_backend_flags; OA_DEVICE_HOST_CALLS needs `submit` */
  int dlpack_type; /* DLPack's DLDeviceType of the device's memory; 0: the memory can't be exported */
  /* Sets the number of devices of this machine. The number is 0 without a driver, and the error text has the reason.
   * Loads the driver. `sim` has a fixed number. */
  int (*count)(int *count);
  /* Fills device->state and device->model for device->index. The core calls `open` once per device, under a lock. */
  int (*open)(oa_device *device);
  int (*memory)(oa_device *device, int64_t *free_bytes, int64_t *total_bytes);
  /* Allocates memory that is immediately usable on stream, and on other streams after an event. Returns OA_ERROR_MEMORY
   * if there is no room. nbytes > 0. */
  int (*allocate)(oa_device *device, void *stream, size_t nbytes, uint64_t *address);
  /* Frees memory in stream order. The address is invalid afterwards, even after a failure. */
  int (*free)(oa_device *device, void *stream, uint64_t address, size_t nbytes);
  /* The core calls `pool` when it puts memory into its pool, and `take` when it takes memory out. No operation uses
   * pooled memory. The two entries are NULL if the backend needs neither call. */
  void (*pool)(oa_device *device, uint64_t address, size_t nbytes);
  void (*take)(oa_device *device, uint64_t address, size_t nbytes);
  /* The core calls `fresh` before it lends pinned memory in place of allocated memory. NULL: nothing is to be done. */
  void (*fresh)(oa_device *device, uint64_t address, size_t nbytes);
  int (*trim)(oa_device *device); /* waits for pending frees, then returns idle memory to the driver */
  /* Copy `lines` lines of `width` bytes; a pitch is the distance between the starts of lines. copy_up returns after the
   * host lines were read. copy_down may write the host lines at any time until the stream is synchronized. */
  int (*copy_up)(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from, size_t from_pitch,
                 size_t width, size_t lines);
  int (*copy_down)(oa_device *device, void *stream, void *to, size_t to_pitch, uint64_t from, size_t from_pitch,
                   size_t width, size_t lines);
  /* Copies up from pinned memory. The host lines may be read at any time until the stream has finished the copy. */
  int (*copy_up_later)(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from,
                       size_t from_pitch, size_t width, size_t lines);
  /* Allocates pinned host memory, from and to which copies run at the speed of the bus. Returns OA_ERROR_MEMORY if no
   * pinned memory can be allocated. */
  int (*pin)(oa_device *device, size_t nbytes, void **memory);
  int (*unpin)(oa_device *device, void *memory, size_t nbytes);
  /* Returns whether those bytes of the host are pinned, by any code of the process. */
  bool (*pinned)(oa_device *device, const void *memory, size_t nbytes);
  /* Copies from device memory to device memory, in stream order; source and destination must not overlap. */
  int (*copy)(oa_device *device, void *stream, uint64_t to, size_t to_pitch, uint64_t from, size_t from_pitch,
              size_t width, size_t lines);
  /* Copies from memory of another device of this backend, in the order of `stream`, which is this device's. The caller
   * has waited for the writers of `from`. The entry is NULL if no device of this backend has separate memory. */
  int (*copy_peer)(oa_device *device, void *stream, uint64_t to, size_t to_pitch, oa_device *source, uint64_t from,
                   size_t from_pitch, size_t width, size_t lines);
  int64_t peer_least; /* smaller copies go up from the host, which takes less time */
  /* Fills memory with the low `unit` bytes of value (1, 2 or 4), repeated; unit divides the address, the pitch and the
   * width. */
  int (*fill)(oa_device *device, void *stream, uint64_t to, size_t pitch, uint32_t value, size_t unit, size_t width,
              size_t lines);
  int (*stream_create)(oa_device *device, void **stream);
  /* Waits for the stream and reports asynchronous failures. When stream_synchronize has returned, even with a failure,
   * no operation of this stream touches host memory. */
  int (*stream_synchronize)(oa_device *device, void *stream);
  /* Sets *done to 1 if all operations of the stream are over. Never waits. NULL on OA_SYNCHRONOUS backends. */
  int (*stream_done)(oa_device *device, void *stream, int *done);
  int (*stream_wait)(oa_device *device, void *stream, void *event);
  /* Notes that programs may capture this stream, which the backend created, from now on. Events that are recorded in
   * the stream from now on may be queried during a capture. The entry is NULL if every event may be queried during a
   * capture. */
  void (*stream_expose)(oa_device *device, void *stream);
  /* Sets *capturing to 1 if the caller's stream is being captured into a graph. */
  int (*stream_capturing)(oa_device *device, void *stream, int *capturing);
  /* Sets this thread's capture mode and returns the former mode. The mode determines which captures of the process
   * forbid the thread unrelated calls, such as allocations and waits. With OA_RELAXED, a call is forbidden only while
   * its own stream or event is captured. The argument -1 leaves the mode unchanged. The function returns -1 if the
   * backend has no modes. The entry is NULL if the backend has no captures. */
  int (*capture_mode)(int mode);
  /* Graphs. The entries are NULL if the backend has no graphs. After graph_begin, the stream records its work and does
   * not run it. A backend whose streams are NULL sets *stream to a stand-in, and graph_end sets *stream back to
   * NULL. */
  int (*graph_begin)(oa_device *device, void **stream);
  /* Ends the recording, also if the call fails. After a failure, *graph is NULL. */
  int (*graph_end)(oa_device *device, void **stream, void **graph);
  /* Makes a graph ready to be launched. Several threads may call graph_prepare at the same time, and repeatedly. The
   * entry is NULL if graph_end makes the graph ready. */
  int (*graph_prepare)(oa_device *device, void *graph);
  int (*graph_launch)(oa_device *device, void *stream, void *graph);
  int (*graph_destroy)(oa_device *device, void *graph); /* no launch of the graph is under way */
  /* Makes a graph, ready to be launched, that runs another graph in a loop. *loop becomes NULL if the driver has no
   * loops, or refuses this graph. The entry is NULL if the backend has no loops. */
  int (*graph_loop)(oa_device *device, void *graph, const oa_graph_until *until, void **loop);
  int (*event_create)(oa_device *device, void **event);
  int (*event_record)(oa_device *device, void *event, void *stream);
  int (*event_destroy)(oa_device *device, void *event);
  int (*event_done)(oa_device *device, void *event, int *done);
  int (*event_synchronize)(oa_device *device, void *event);
  int (*synchronize)(oa_device *device); /* waits for the whole device, including work of other code in this process */
  /* `enter` makes the device current on this thread for a vendor's call. `leave` restores the former state. The two
   * entries are NULL if the backend needs neither call. */
  int (*enter)(oa_device *device, void **saved);
  int (*leave)(oa_device *device, void *saved);
  /* Calls `run` with a copy of the arguments, on the CPU, in stream order. For OA_DEVICE_HOST_CALLS backends only. */
  int (*submit)(oa_device *device, void *stream, void (*run)(void *), const void *arguments, size_t size);
  /* Kernels. The entries are NULL if the backend has no kernels. The entries are also NULL for OA_DEVICE_HOST_CALLS
   * backends, for which the core itself runs functions of shared objects through `submit`. The core has checked the
   * image as far as it can read the image's format. Returns OA_ERROR_MODULE if the driver refuses the image. `name` is
   * for the error text. */
  int (*module_load)(oa_device *device, const char *name, const void *image, size_t nbytes, void **module);
  int (*module_unload)(oa_device *device, void *module);
  /* Finds a variable of the module; returns OA_ERROR_MODULE if the module has no variable of that name. On
   * OA_DEVICE_HOST_CALLS backends the core has found the variable already, and this call makes its memory belong to the
   * device; NULL if the backend does not need this. */
  int (*module_variable)(oa_device *device, void *module, const char *name, uint64_t *address, size_t *nbytes);
  /* Makes a function and fills info except for its size. function_free frees the function. */
  int (*function_make)(oa_device *device, void *module, const char *name, void **function, oa_kernel_info *info);
  void (*function_free)(oa_device *device, void *function);
  /* Finds a parameter by its number. *nbytes is 0 after the last parameter, and SIZE_MAX if the driver does not report
   * the size. */
  int (*function_parameter)(oa_device *device, void *function, int number, size_t *offset, size_t *nbytes);
  /* arguments: the addresses of the arguments' values. */
  int (*launch)(oa_device *device, void *stream, void *function, const oa_launch *launch, void **arguments);
} oa_backend;

struct oa_counts { /* oa_counters, but atomic */
  _Atomic int64_t copies_up, bytes_up, copies_down, bytes_down, allocations, frees, mappings, regions, calls;
  _Atomic int64_t memory_used, memory_peak, pinned_bytes, copies_peer, bytes_peer, bytes_former;
};

struct oa_device {
  const oa_backend *backend;
  int index;  /* number of the device within the backend */
  int number; /* the number that public functions take */
  char name[32];
  /* set by the backend's `open` */
  char model[128];
  int driver_version, compute_major, compute_minor;
  int reads_host; /* an enum oa_host_reading */
  int node;       /* NUMA node near the device; -1: not known, as before `open` */
  void *state;    /* owned by the backend */
  /* set by the core */
  atomic_bool coherent;  /* regions lend host memory to the device without copies */
  atomic_bool abortable; /* calls of communicators were made or captured, so operations may wait until they are aborted.
                            All waits of the backend then end once the device is stuck */
  atomic_bool stuck; /* operations never end, and the device is lost: `enter` and all waits fail with OA_ERROR_LOST */
  /* The core owns the fields from here on; a backend does not use them. */
  atomic_int lost; /* an enum oa_lost; oa_device_lost sets it once the device can't be used any more */
  char lost_reason[512];
  struct oa_counts counts;
  oa_residency residency;       /* owned by residency.c, under the core's lock; its size, mode, tracking are not used */
  _Atomic int64_t memory_limit; /* the most bytes in use at a time; INT64_MAX: no limit is set */
  _Atomic int64_t spare_bytes;  /* bytes in the device's pool of spare memory */
  _Atomic(struct oa_spares *) spares;   /* owned by memory.c, made at first use */
  _Atomic(struct oa_staging *) staging; /* owned by staging.c, made at first use */
  /* pools of streams, owned by stream.c */
  struct oa_stream *idle_streams, *idle_capture_streams;
  struct oa_stream *streams;
  struct oa_stream *known_streams; /* streams that other code also has, and may capture */
  int stream_count;
  bool spoiled; /* under the lock: an abort has made results undefined (region/aborted.c); `abortable` is true, too */
};

/* -- functions that a backend may call, in addition to base/ -- */

/* Marks the device as lost and sets the error text. The reason of the first call stays, and every later use of the
 * device fails with it. Returns OA_ERROR_LOST. */
int oa_device_lost(oa_device *device, const char *reason);
/* Returns the output of the finder (oa_driver_set_finder), or "" if it was not called. For `count` only. */
const char *oa_driver_places(void);
/* Sets *device to the device of that number. Fails, with the text set, if no device has the number, the device is lost,
 * or the process was forked. function: the calling public function. */
int oa_device_find(int number, const char *function, oa_device **device);
/* Reads the environment's limit on the device's memory again, after the size of that memory changed. */
int oa_device_read_limit(oa_device *device);

#endif
