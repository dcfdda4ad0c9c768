#include "device/memory.h"

#include "base/trace.h"
#include "base/under_way.h"
#include "device/staging.h"
#include "device/stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t (*_Atomic oa_device_pressure)(oa_device *device, size_t nbytes);

/* -- the pool: small pieces of free memory, so that a region that comes again asks the driver for nothing ---------- */

enum { SPARES = 16, SPARE_MOST = 1 << 20 /* bytes */, SHEETS = 8 };

typedef struct spare {
  uint64_t address;
  size_t nbytes;
  enum oa_zeros zeros;
  void *cleared; /* the stream in whose order it is all zeros, of OA_ZEROS_ORDERED; else NULL */
} spare;

/* An allocation. One piece of a sheet at a time is in use or in the pool; those behind it are zeros. */
typedef struct sheet {
  uint64_t address;
  size_t nbytes; /* 0: there is none */
} sheet;

struct oa_spares {
  pthread_mutex_t mutex; /* a leaf */
  int count;
  spare at[SPARES]; /* the oldest first */
  sheet sheets[SHEETS];
};

/* Returns the device's pool, made at first use; NULL if there is no host memory for it (no text is set). */
static struct oa_spares *spares_of(oa_device *device) {
  struct oa_spares *spares = atomic_load_explicit(&device->spares, memory_order_acquire), *made;
  if (__builtin_expect(spares != NULL, 1)) return spares;
  if (!(made = calloc(1, sizeof *made))) return NULL;
  pthread_mutex_init(&made->mutex, NULL);
  if (atomic_compare_exchange_strong(&device->spares, &spares, made)) return made;
  pthread_mutex_destroy(&made->mutex); /* another thread was faster */
  free(made);
  return spares;
}

/* Takes piece i out of the pool, under its mutex. */
static spare take_spare(oa_device *device, struct oa_spares *spares, int i) {
  const spare taken = spares->at[i];
  spares->count--;
  memmove(&spares->at[i], &spares->at[i + 1], (size_t)(spares->count - i) * sizeof taken);
  atomic_fetch_sub(&device->spare_bytes, (int64_t)taken.nbytes);
  return taken;
}

/* Returns the sheet that has the address, or one without bytes; gone: it is a sheet no longer. */
static sheet find_sheet(oa_device *device, uint64_t address, bool gone) {
  struct oa_spares *spares = atomic_load_explicit(&device->spares, memory_order_acquire);
  sheet found = {0};
  if (!spares) return found;
  pthread_mutex_lock(&spares->mutex);
  for (int i = 0; i < SHEETS && !found.nbytes; i++) {
    if (address - spares->sheets[i].address >= spares->sheets[i].nbytes) continue;
    found = spares->sheets[i];
    if (gone) spares->sheets[i].nbytes = 0;
  }
  pthread_mutex_unlock(&spares->mutex);
  return found;
}

/* Frees a piece of memory, and with it the sheet that it is of. */
static int free_piece(oa_device *device, void *stream, uint64_t address, size_t nbytes) {
  const sheet whole = find_sheet(device, address, true);
  if (!whole.nbytes) return device->backend->free(device, stream, address, nbytes);
  atomic_fetch_sub(&device->spare_bytes, (int64_t)(whole.nbytes - nbytes));
  return device->backend->free(device, stream, whole.address, whole.nbytes);
}

static int free_spare(oa_device *device, void *stream, spare piece) {
  return free_piece(device, piece.cleared ? piece.cleared : stream, piece.address, piece.nbytes);
}

/* Frees all pieces of the pool. Returns the first failure. */
static int free_spares(oa_device *device, void *stream) {
  struct oa_spares *spares = atomic_load_explicit(&device->spares, memory_order_acquire);
  int status = OA_OK;
  while (spares) {
    pthread_mutex_lock(&spares->mutex);
    const bool any = spares->count > 0;
    const spare piece = any ? take_spare(device, spares, 0) : (spare){0};
    pthread_mutex_unlock(&spares->mutex);
    if (!any) break;
    const int freed = free_spare(device, stream, piece);
    if (!status) status = freed;
  }
  return status;
}

/* -- counting ------------------------------------------------------------------------------------------------------ */

static void note_peak(oa_device *device) {
  const int64_t used = atomic_load(&device->counts.memory_used);
  int64_t peak = atomic_load_explicit(&device->counts.memory_peak, memory_order_relaxed);
  while (used > peak && !atomic_compare_exchange_weak(&device->counts.memory_peak, &peak, used)) continue;
}

/* Counts nbytes as used. Returns false if the limit does not allow it. */
static bool reserve(oa_device *device, size_t nbytes) {
  int64_t used = atomic_load(&device->counts.memory_used);
  do {
    if (nbytes > INT64_MAX || used > device->memory_limit - device->spare_bytes - (int64_t)nbytes) return false;
  } while (!atomic_compare_exchange_weak(&device->counts.memory_used, &used, used + (int64_t)nbytes));
  return true;
}

static void note_allocate(const oa_device *device, int64_t begun, size_t nbytes, int status) {
  if (begun) oa_trace_note(OA_TRACE_ALLOCATE, begun, device->number, 0, 0, "allocate", NULL, (int64_t)nbytes, status);
}

static void note_release(const oa_device *device, int64_t begun, size_t nbytes, int status) {
  if (begun) oa_trace_note(OA_TRACE_RELEASE, begun, device->number, 0, 0, "release", NULL, (int64_t)nbytes, status);
}

/* -- sheets: zeros for many regions, made at once ------------------------------------------------------------------ */

/* A fill takes as long as a small copy, and makes the next wait longer. So memory that has to be zeros again and again
 * comes from a sheet: each region takes the next piece, and all are filled again after the last. */
enum { SHEET_PIECES = 32, SHEET_MOST = 4 << 20, PIECE_MOST = 256 << 10, PIECE_ALIGNMENT = 256, GAP = 64 };

/* Returns how far apart the pieces of a sheet are: zeros stay between them. */
static size_t stride_of(size_t nbytes) { return (nbytes + GAP + PIECE_ALIGNMENT - 1) & -(size_t)PIECE_ALIGNMENT; }

/* Returns the place of one more sheet, or NULL. Under the mutex. */
static sheet *place_for_sheet(struct oa_spares *spares) {
  for (int i = 0; i < SHEETS; i++)
    if (!spares->sheets[i].nbytes) return &spares->sheets[i];
  return NULL;
}

/* Puts a sheet in the place of a piece, which is freed. Returns false, with nothing done, if there is no room for
 * one. */
static bool make_sheet(oa_device *device, struct oa_spares *spares, void *stream, const spare *piece, sheet *made) {
  const oa_backend *backend = device->backend;
  const size_t stride = stride_of(piece->nbytes), most = SHEET_MOST / stride;
  sheet one = {.nbytes = stride * (most < SHEET_PIECES ? most : SHEET_PIECES)}, *place;
  const int64_t more = (int64_t)(one.nbytes - piece->nbytes);
  pthread_mutex_lock(&spares->mutex);
  place = place_for_sheet(spares);
  pthread_mutex_unlock(&spares->mutex);
  if (!place || piece->nbytes > PIECE_MOST || !reserve(device, (size_t)more)) return false;
  const bool allocated = !backend->allocate(device, stream, one.nbytes, &one.address);
  pthread_mutex_lock(&spares->mutex);
  place = allocated ? place_for_sheet(spares) : NULL; /* another thread may have taken the last one meanwhile */
  if (place) {
    *made = *place = one;
    atomic_fetch_add(&device->spare_bytes, more);
  }
  pthread_mutex_unlock(&spares->mutex);
  atomic_fetch_sub(&device->counts.memory_used, more);
  if (place)
    backend->free(device, stream, piece->address, piece->nbytes);
  else if (allocated)
    backend->free(device, stream, one.address, one.nbytes);
  return place != NULL;
}

/* Makes zeros of a piece that nothing uses: takes the next one of its sheet, or fills all of them. again: it was zeros
 * before, so that a sheet is worth it. Returns false if the device can't fill it. */
static bool make_zeros(oa_device *device, struct oa_spares *spares, void *stream, spare *piece, bool again) {
  const oa_backend *backend = device->backend;
  const size_t stride = stride_of(piece->nbytes);
  sheet whole = find_sheet(device, piece->address, false);
  if (whole.nbytes && piece->address + 2 * stride <= whole.address + whole.nbytes) {
    piece->address += stride;
    piece->zeros = OA_ZEROS_NOW;
    return true;
  }
  const bool made = again && !whole.nbytes && make_sheet(device, spares, stream, piece, &whole);
  if (!whole.nbytes) whole = (sheet){piece->address, piece->nbytes};
  const uint64_t end = whole.address + whole.nbytes;
  for (uint64_t at = whole.address; backend->take && !made && at < end; at += stride)
    backend->take(device, at, piece->nbytes);
  *piece = (spare){whole.address, piece->nbytes, OA_ZEROS_ORDERED, stream};
  return !backend->fill(device, stream, whole.address, whole.nbytes, 0, 1, whole.nbytes, 1);
}

/* -- allocating and freeing ---------------------------------------------------------------------------------------- */

static bool fits(const spare *piece, const void *stream, size_t nbytes) {
  return piece->nbytes == nbytes && (!piece->cleared || piece->cleared == stream);
}

bool oa_device_take(oa_device *device, void *stream, size_t nbytes, uint64_t *address, enum oa_zeros *zeros) {
  const int64_t begun = oa_trace_begin();
  if (!atomic_load_explicit(&device->spare_bytes, memory_order_relaxed)) return false;
  struct oa_spares *spares = spares_of(device);
  pthread_mutex_lock(&spares->mutex);
  int i = spares->count;
  while (--i >= 0 && !fits(&spares->at[i], stream, nbytes)) continue;
  if (i >= 0) {
    atomic_fetch_add(&device->counts.memory_used, (int64_t)nbytes);
    const spare piece = take_spare(device, spares, i);
    *address = piece.address;
    *zeros = piece.zeros;
  }
  pthread_mutex_unlock(&spares->mutex);
  if (i < 0) return false;
  note_peak(device);
  atomic_fetch_add_explicit(&device->counts.allocations, 1, memory_order_relaxed);
  if (device->backend->take && !*zeros) device->backend->take(device, *address, nbytes);
  note_allocate(device, begun, nbytes, OA_OK);
  return true;
}

/* Returns whether memory of that size goes to the pool. */
static bool is_pooled(const oa_device *device, size_t nbytes) {
  return nbytes <= SPARE_MOST && !(device->backend->flags & OA_SYNCHRONOUS) && !device->lost;
}

int oa_device_pool(oa_device *device, void *stream, uint64_t address, size_t nbytes, enum oa_need need) {
  struct oa_spares *spares = is_pooled(device, nbytes) ? spares_of(device) : NULL;
  if (!spares) return oa_device_free(device, stream, address, nbytes);
  const int64_t begun = oa_trace_begin();
  spare piece = {.address = address, .nbytes = nbytes}, oldest = {0};
  if (device->backend->pool) device->backend->pool(device, address, nbytes);
  if (need && !make_zeros(device, spares, stream, &piece, need == OA_NEEDS_ZEROS_AGAIN))
    return oa_device_free(device, stream, piece.address, nbytes);
  pthread_mutex_lock(&spares->mutex);
  if (spares->count == SPARES) oldest = take_spare(device, spares, 0);
  spares->at[spares->count++] = piece;
  atomic_fetch_add(&device->spare_bytes, (int64_t)nbytes);
  atomic_fetch_sub(&device->counts.memory_used, (int64_t)nbytes);
  pthread_mutex_unlock(&spares->mutex);
  atomic_fetch_add_explicit(&device->counts.frees, 1, memory_order_relaxed);
  const int status = oldest.nbytes ? free_spare(device, stream, oldest) : OA_OK;
  note_release(device, begun, nbytes, status);
  return status;
}

static int try_allocate(oa_device *device, void *stream, size_t nbytes, uint64_t *address) {
  if (!reserve(device, nbytes)) return OA_ERROR_MEMORY;
  const int status = device->backend->allocate(device, stream, nbytes, address);
  if (status) {
    atomic_fetch_sub(&device->counts.memory_used, (int64_t)nbytes);
    return status;
  }
  note_peak(device);
  return OA_OK;
}

/* Returns idle memory to the driver and tries again, for as long as oa_device_pressure frees some more. */
static int allocate_under_pressure(oa_device *device, void *stream, size_t nbytes, uint64_t *address) {
  for (;;) {
    int status = free_spares(device, stream);
    if (!status) status = device->backend->trim(device);
    if (!status) status = try_allocate(device, stream, nbytes, address);
    int64_t (*pressure)(oa_device *, size_t) = atomic_load(&oa_device_pressure);
    if (status != OA_ERROR_MEMORY || !pressure || pressure(device, nbytes) <= 0) return status;
  }
}

static __attribute__((cold, noinline)) int fail_memory(oa_device *device, size_t nbytes) {
  char limit[96] = "";
  int64_t free_bytes, total_bytes;
  if (device->memory_limit != INT64_MAX)
    snprintf(limit, sizeof limit, ", limit %" PRId64 " (OFFLOAD_ARGS_MEMORY_LIMIT)", device->memory_limit);
  const int64_t used = atomic_load(&device->counts.memory_used);
  if (device->backend->memory(device, &free_bytes, &total_bytes))
    return oa_fail(OA_ERROR_MEMORY, "%s: out of device memory: %zu bytes requested, %" PRId64 " used%s", device->name,
                   nbytes, used, limit);
  return oa_fail(OA_ERROR_MEMORY,
                 "%s: out of device memory: %zu bytes requested, %" PRId64 " free of %" PRId64 ", %" PRId64 " used%s",
                 device->name, nbytes, free_bytes, total_bytes, used, limit);
}

int oa_device_allocate(oa_device *device, void *stream, size_t nbytes, uint64_t *address) {
  const int64_t begun = oa_trace_begin();
  int status = try_allocate(device, stream, nbytes, address);
  if (status == OA_ERROR_MEMORY) status = allocate_under_pressure(device, stream, nbytes, address);
  if (!status) atomic_fetch_add_explicit(&device->counts.allocations, 1, memory_order_relaxed);
  if (status == OA_ERROR_MEMORY) fail_memory(device, nbytes);
  note_allocate(device, begun, nbytes, status);
  return status;
}

int oa_device_free(oa_device *device, void *stream, uint64_t address, size_t nbytes) {
  atomic_fetch_add_explicit(&device->counts.frees, 1, memory_order_relaxed);
  atomic_fetch_sub(&device->counts.memory_used, (int64_t)nbytes);
  const int64_t begun = oa_trace_begin();
  const int status = free_piece(device, stream, address, nbytes);
  note_release(device, begun, nbytes, status);
  return status;
}

/* -- waiting ------------------------------------------------------------------------------------------------------- */

static int begin_wait(const oa_device *device, const char *why) {
  return oa_under_way_wanted() ? oa_under_way_begin(OA_TRACE_WAIT, device->number, 0, why) : 0;
}

static void note_wait(const oa_device *device, int64_t begun, uint64_t region, const char *why, int status) {
  if (begun) oa_trace_note(OA_TRACE_WAIT, begun, device->number, region, 0, "wait", why, 0, status);
}

int oa_device_wait_stream(oa_device *device, void *stream, uint64_t region, const char *why) {
  const int64_t begun = oa_trace_begin();
  const int under_way = begin_wait(device, why);
  const int status = device->backend->stream_synchronize(device, stream);
  oa_under_way_end(under_way);
  note_wait(device, begun, region, why, status);
  return status;
}

int oa_device_wait(oa_device *device, uint64_t region, const char *why) {
  const int64_t begun = oa_trace_begin();
  const int under_way = begin_wait(device, why);
  const int status = device->backend->synchronize(device);
  oa_under_way_end(under_way);
  note_wait(device, begun, region, why, status);
  return status;
}

/* -- public -------------------------------------------------------------------------------------------------------- */

int oa_device_synchronize(int number) {
  oa_device *device;
  const int status = oa_device_find(number, "oa_device_synchronize", &device);
  return status ? status : oa_device_wait(device, 0, "oa_device_synchronize");
}

int oa_device_trim(int number) {
  oa_device *device;
  oa_stream *stream;
  int status = oa_device_find(number, "oa_device_trim", &device);
  if (status) return status;
  oa_lock();
  if (!(status = oa_stream_take(device, &stream))) {
    status = free_spares(device, stream->native);
    oa_stream_return(stream);
  }
  oa_unlock();
  const int unpinned = oa_staging_trim(device);
  if (!status) status = unpinned;
  const int trimmed = device->backend->trim(device);
  return status ? status : trimmed;
}

int oa_pinned_allocate(int number, size_t nbytes, void **memory) {
  oa_device *device;
  int status = oa_device_find(number, "oa_pinned_allocate", &device);
  if (status) return status;
  if (!nbytes || !memory)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_pinned_allocate: %s", memory ? "nbytes is 0" : "memory is NULL");
  status = oa_staging_pin(device, nbytes, memory);
  if (status == OA_ERROR_MEMORY && !(status = oa_staging_trim(device))) status = oa_staging_pin(device, nbytes, memory);
  for (int other = 0; status == OA_ERROR_MEMORY; other++) { /* the limit is the process's, and so are all idle blocks */
    oa_saved_error first;
    oa_error_save(&first);
    oa_device *its = oa_device_of(other);
    if (its && its != device && !oa_staging_trim(its)) status = oa_staging_pin(device, nbytes, memory);
    if (status == OA_ERROR_MEMORY) oa_error_restore(&first);
    if (!its) break;
  }
  return status ? oa_fail_in(status, "oa_pinned_allocate") : OA_OK;
}

int oa_pinned_free(int number, void *memory, size_t nbytes) {
  if (!memory || atomic_load(&oa_forked)) return OA_OK;
  oa_device *device = oa_device_of(number);
  if (!device) return oa_fail_in(OA_ERROR_ARGUMENT, "oa_pinned_free");
  return oa_staging_unpin(device, memory, nbytes);
}
