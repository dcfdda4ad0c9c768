/* Devices, and the whole contract of a backend: one documented table of functions.
 *
 * A backend reports failure as an oa_status with the text set through oa_fail(); it knows nothing of regions or of the
 * present table. Every function may be called from any thread at once. Addresses are device addresses; on `host` and
 * `sim` they are addresses of this process. A stream runs its operations in order; operations of different streams are
 * ordered by events only. */
#ifndef OA_DEVICE_H
#define OA_DEVICE_H

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct oa_device oa_device;

enum oa_lost { OA_LOSING = 1, OA_LOST = 2 }; /* the reason is being written; it can be read */

enum oa_backend_flags {
  OA_DEVICE_FLAGS = 0xff,     /* the oa_device_flags that users see; OA_DEVICE_HOST_CALLS: calls run through `submit` */
  OA_SYNCHRONOUS = 1 << 8,    /* every operation is complete when it returns: streams and events may be NULL */
  OA_PINNED_IN_PLACE = 2 << 8 /* memory from `pin` is device memory too, at the same address */
};

typedef struct oa_backend {
  const char *name;
  unsigned flags;  /* oa_device_flags and oa_backend_flags */
  int dlpack_type; /* DLPack's DLDeviceType of its memory; 0: it can't be exported */
  /* The number of devices of this machine; 0 with the reason as the error text when there is no driver. Loads the
   * driver. `sim` answers with a fixed maximum. */
  int (*count)(int *count);
  /* Fills device->state and device->model for device->index. Called once a device, under a lock. */
  int (*open)(oa_device *device);
  int (*memory)(oa_device *device, int64_t *free_bytes, int64_t *total_bytes);
  /* OA_ERROR_MEMORY when there is no room; usable on stream at once, on others after an event. nbytes > 0. */
  int (*allocate)(oa_device *device, void *stream, size_t nbytes, uint64_t *address);
  /* In stream order. The address is gone whatever this returns. */
  int (*release)(oa_device *device, void *stream, uint64_t address, size_t nbytes);
  /* The memory is kept by the core for another time, and is taken again; nobody uses it meanwhile. NULL: it may hold what it
   * likes. */
  void (*keep)(oa_device *device, uint64_t address, size_t nbytes);
  void (*renew)(oa_device *device, uint64_t address, size_t nbytes);
  int (*trim)(oa_device *device); /* waits for releases under way, then gives idle memory back to the driver */
  /* lines lines of width bytes; pitches are the distances between their starts. up: the host lines were read when this
   * returns. down: the host lines are written at any time from this call on until the stream is synchronized. */
  int (*copy_up)(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from, size_t from_pitch,
                 size_t width, size_t lines);
  int (*copy_down)(oa_device *device, void *stream, void *to, size_t to_pitch, uint64_t from, size_t from_pitch,
                   size_t width, size_t lines);
  /* copy_up from memory of pin, or that is pinned: the lines are read at any time until the stream has come that far. */
  int (*copy_up_later)(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from,
                       size_t from_pitch, size_t width, size_t lines);
  /* Host memory that copies reach at the speed of the bus; OA_ERROR_MEMORY when it can't be had. */
  int (*pin)(oa_device *device, size_t nbytes, void **memory);
  int (*unpin)(oa_device *device, void *memory, size_t nbytes);
  /* Whether those bytes of the host are pinned, by whomever. */
  bool (*pinned)(oa_device *device, const void *memory, size_t nbytes);
  /* From device memory to device memory, in stream order; the two must not overlap. */
  int (*copy)(oa_device *device, void *stream, uint64_t to, size_t to_pitch, uint64_t from, size_t from_pitch,
              size_t width, size_t lines);
  /* Writes the low `unit` bytes of value (1, 2 or 4) over and over; unit divides the address, the pitch and the width. */
  int (*fill)(oa_device *device, void *stream, uint64_t to, size_t pitch, uint32_t value, size_t unit, size_t width,
              size_t lines);
  int (*stream_create)(oa_device *device, void **stream);
  /* Reports asynchronous failures. Whatever it returns, nothing of this stream touches host memory any more. */
  int (*stream_synchronize)(oa_device *device, void *stream);
  int (*stream_wait)(oa_device *device, void *stream, void *event);
  /* *capturing = 1 if the caller's stream is being captured into a graph. */
  int (*stream_capturing)(oa_device *device, void *stream, int *capturing);
  int (*event_create)(oa_device *device, void **event);
  int (*event_record)(oa_device *device, void *event, void *stream);
  int (*event_destroy)(oa_device *device, void *event);
  int (*event_done)(oa_device *device, void *event, int *done);
  int (*event_synchronize)(oa_device *device, void *event);
  int (*synchronize)(oa_device *device); /* the whole device, other people's work too */
  /* Makes the device current for a vendor's call on this thread, and restores what was. NULL if there is no such thing. */
  int (*enter)(oa_device *device, void **saved);
  int (*leave)(oa_device *device, void *saved);
  /* Runs run(copy of arguments) on the CPU in stream order. OA_DEVICE_HOST_CALLS backends only. */
  int (*submit)(oa_device *device, void *stream, void (*run)(void *), const void *arguments, size_t size);
} oa_backend;

extern const oa_backend oa_backend_cuda, oa_backend_host, oa_backend_sim;
/* Returns the backend of that name; NULL if this build has none. */
const oa_backend *oa_backend_named(const char *name);

struct oa_counts { /* oa_counters, atomically */
  _Atomic int64_t copies_up, bytes_up, copies_down, bytes_down, allocations, frees, mappings, regions, calls;
  _Atomic int64_t memory_used, memory_peak, pinned_bytes;
};

struct oa_device {
  const oa_backend *backend;
  int index;  /* within its backend */
  int number; /* what the public functions take */
  char name[32];
  char model[128];
  int driver_version, compute_major, compute_minor;
  void *state; /* the backend's own */
  struct oa_counts counts;
  oa_residency residency; /* residency.c's, under the core's lock */
  atomic_int lost;        /* oa_lost, set by the backend (oa_device_lost) once the device can't be used any more */
  char lost_reason[512];
  _Atomic int64_t memory_limit; /* bytes in use at once; INT64_MAX: none was set */
  struct oa_staging *staging;   /* owned by staging.c */
  struct oa_spares *spares;     /* owned by device.c */
  /* pools of streams, owned by stream.c */
  struct oa_stream *idle_streams;
  struct oa_stream *streams;
  int stream_count;
};

/* The device of that number, or NULL with the text set. */
oa_device *oa_device_of(int number);
/* Who can give device memory back when there is no room for nbytes; answers how much it was. NULL: nobody. */
extern int64_t (*_Atomic oa_device_pressure)(oa_device *device, size_t nbytes);
/* Memory of that size that was given back by oa_device_keep, counted as allocated. False: there is none. *cleared: it is
 * all zeros in stream's order; else nothing of it is under way on any stream. */
bool oa_device_reuse(oa_device *device, void *stream, size_t nbytes, uint64_t *address, bool *cleared);
/* Like oa_device_release, of memory that nobody uses any more, which stays for another time if it is not much. What
 * stays counts as free, but for the limit of the device's memory. clear: it is filled with zeros, for whoever has that
 * stream next. */
int oa_device_keep(oa_device *device, void *stream, uint64_t address, size_t nbytes, bool clear);
/* The address of a tracked allocation, counted. When there is no room, or the limit would be passed, idle memory is given
 * back, then what oa_device_pressure can spare, and it is tried again. Without the core's lock. */
int oa_device_allocate(oa_device *device, void *stream, size_t nbytes, uint64_t *address);
int oa_device_release(oa_device *device, void *stream, uint64_t address, size_t nbytes);
/* memcpy of lines; one where they are contiguous. For backends whose memory is this process's. */
void oa_copy_lines(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t lines);
/* What `fill` does, likewise. */
void oa_fill_lines(void *to, size_t pitch, uint32_t value, size_t unit, size_t width, size_t lines);
/* Records the first cause; later calls fail at once with it. Returns OA_ERROR_LOST. */
int oa_device_lost(oa_device *device, const char *reason);
/* 0, or OA_ERROR_FORKED / OA_ERROR_LOST with the text set. */
int oa_device_usable(oa_device *device);
/* Reads what the environment allows of its memory. */
int oa_device_read_limit(oa_device *device);

/* Starts a detached thread that takes no signals but its own faults: 0, or pthread_create's error. */
int oa_start_thread(void *(*run)(void *), void *argument);

/* The one lock of the core: regions, mappings, slots, pools. Held for bookkeeping only, never while a device is waited
 * for, a copy made or vendor code run. */
void oa_lock(void);
void oa_unlock(void);
extern pthread_mutex_t oa_mutex;
extern atomic_int oa_forked; /* 1 in a child forked after first use */
int oa_core_start(void);     /* idempotent; OA_ERROR_FORKED in a forked child */

#endif
