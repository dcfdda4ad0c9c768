#include "device/memory.h"

#include "base/present.h"
#include "base/trace.h"
#include "base/under_way.h"
#include "device/staging.h"
#include "device/stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t (*_Atomic oa_device_pressure)(oa_device *device, size_t nbytes);

/* -- the pool: small pieces of free memory, so that a region that is entered again needs no call of the driver -- */

enum { SPARES = 16, SPARE_MOST = 1 << 20 /* bytes */, SHEETS = 8 };

typedef struct spare {
  uint64_t address;
  size_t nbytes;
  enum oa_zeros zeros;
  void *cleared; /* OA_ZEROS_ORDERED: the stream that clears the memory; otherwise NULL */
} spare;

/* A sheet is an allocation that is used piece by piece. At most one piece is in use or in the pool. The pieces after
 * this piece are zeros. */
typedef struct sheet {
  uint64_t address;
  size_t nbytes; /* 0: this place has no sheet */
} sheet;

struct oa_spares {
  pthread_mutex_t mutex; /* a leaf */
  int count;
  spare at[SPARES]; /* the oldest first */
  sheet sheets[SHEETS];
};

/* Returns the device's pool, made at first use; NULL if host memory runs out (no text is set). */
static struct oa_spares *spares_of(oa_device *device) {
  struct oa_spares *spares = atomic_load_explicit(&device->spares, memory_order_acquire), *pool;
  if (OA_LIKELY(spares != NULL)) return spares;
  if (!(pool = calloc(1, sizeof *pool))) return NULL;
  pthread_mutex_init(&pool->mutex, NULL);
  if (atomic_compare_exchange_strong(&device->spares, &spares, pool)) return pool;
  pthread_mutex_destroy(&pool->mutex); /* another thread was faster and has made the pool */
  free(pool);
  return spares;
}

/* Takes piece i out of the pool. Called with the pool's mutex. */
static spare take_spare(oa_device *device, struct oa_spares *spares, int i) {
  const spare block = spares->at[i];
  spares->count--;
  memmove(&spares->at[i], &spares->at[i + 1], (size_t)(spares->count - i) * sizeof block);
  atomic_fetch_sub(&device->spare_bytes, (int64_t)block.nbytes);
  return block;
}

/* Returns the sheet that has the address, or a sheet of 0 bytes. If `gone` is true, also removes the sheet from the
 * list. */
static sheet find_sheet(oa_device *device, uint64_t address, bool gone) {
  struct oa_spares *spares = atomic_load_explicit(&device->spares, memory_order_acquire);
  sheet result = {0};
  if (!spares) return result;
  pthread_mutex_lock(&spares->mutex);
  for (int i = 0; i < SHEETS && !result.nbytes; i++) {
    if (address - spares->sheets[i].address >= spares->sheets[i].nbytes) continue;
    result = spares->sheets[i];
    if (gone) spares->sheets[i].nbytes = 0;
  }
  pthread_mutex_unlock(&spares->mutex);
  return result;
}

/* Frees a piece of memory, and with it the sheet that it belongs to. */
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

/* -- sheets: zeros for many regions, filled in one operation ------------------------------------------------------- */

/* A fill takes as long as a small copy, and prolongs the next wait. So memory that must be zeros for each region comes
 * from a sheet: each region takes the next piece, and after the last piece the whole sheet is filled again. */
enum { SHEET_PIECES = 32, SHEET_MOST = 4 << 20, PIECE_MOST = 256 << 10, PIECE_ALIGNMENT = 256, GAP = 64 };

/* Returns the distance between the pieces of a sheet; the gaps stay zeros. */
static size_t stride_of(size_t nbytes) { return (nbytes + GAP + PIECE_ALIGNMENT - 1) & -(size_t)PIECE_ALIGNMENT; }

/* Returns a free place for a sheet, or NULL. Called with the mutex. */
static sheet *place_for_sheet(struct oa_spares *spares) {
  for (int i = 0; i < SHEETS; i++)
    if (!spares->sheets[i].nbytes) return &spares->sheets[i];
  return NULL;
}

/* Replaces a piece by a sheet, and frees the piece. Returns false, and changes nothing, if there is no room for a
 * sheet. */
static bool make_sheet(oa_device *device, struct oa_spares *spares, void *stream, const spare *piece, sheet *whole) {
  const oa_backend *backend = device->backend;
  const size_t stride = stride_of(piece->nbytes), most = SHEET_MOST / stride;
  sheet fresh = {.nbytes = stride * (most < SHEET_PIECES ? most : SHEET_PIECES)}, *place;
  const int64_t more = (int64_t)(fresh.nbytes - piece->nbytes);
  pthread_mutex_lock(&spares->mutex);
  place = place_for_sheet(spares);
  pthread_mutex_unlock(&spares->mutex);
  if (!place || piece->nbytes > PIECE_MOST || !reserve(device, (size_t)more)) return false;
  const bool allocated = !backend->allocate(device, stream, fresh.nbytes, &fresh.address);
  pthread_mutex_lock(&spares->mutex);
  /* No place is left if another thread has taken the last place meanwhile. */
  place = allocated ? place_for_sheet(spares) : NULL;
  if (place) {
    *whole = *place = fresh;
    atomic_fetch_add(&device->spare_bytes, more);
  }
  pthread_mutex_unlock(&spares->mutex);
  atomic_fetch_sub(&device->counts.memory_used, more);
  if (place)
    backend->free(device, stream, piece->address, piece->nbytes);
  else if (allocated)
    backend->free(device, stream, fresh.address, fresh.nbytes);
  return place != NULL;
}

/* Turns an unused piece into zeros: takes the next piece of its sheet, or fills the whole sheet. `again`: the piece had
 * to be zeros before, too, so a sheet is worth its memory. Returns false if the device can't fill the memory. */
static bool make_zeros(oa_device *device, struct oa_spares *spares, void *stream, spare *piece, bool again) {
  const oa_backend *backend = device->backend;
  const size_t stride = stride_of(piece->nbytes);
  sheet whole = find_sheet(device, piece->address, false);
  if (whole.nbytes && piece->address + 2 * stride <= whole.address + whole.nbytes) {
    piece->address += stride;
    piece->zeros = OA_ZEROS_NOW;
    return true;
  }
  const bool renewed = again && !whole.nbytes && make_sheet(device, spares, stream, piece, &whole);
  if (!whole.nbytes) whole = (sheet){piece->address, piece->nbytes};
  const uint64_t end = whole.address + whole.nbytes;
  for (uint64_t at = whole.address; backend->take && !renewed && at < end; at += stride)
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

/* Fails if a program captures one of the device's streams: then the device can't be waited for. */
static int check_captures(const oa_device *device, const char *why) {
  oa_lock();
  const int status = oa_streams_check(device, why, false);
  oa_unlock();
  return status;
}

/* Returns idle memory to the driver and tries to allocate, until an allocation succeeds or oa_device_pressure frees
 * nothing more. */
static int allocate_under_pressure(oa_device *device, void *stream, size_t nbytes, uint64_t *address) {
  for (;;) {
    int status = free_spares(device, stream);
    if (!status && !check_captures(device, "memory")) status = device->backend->trim(device);
    if (!status) status = try_allocate(device, stream, nbytes, address);
    int64_t (*pressure)(oa_device *, size_t) = atomic_load(&oa_device_pressure);
    if (status != OA_ERROR_MEMORY || !pressure || pressure(device, nbytes) <= 0) return status;
  }
}

/* Writes a number of bytes for people to read. Returns the text. */
static const char *text_of(int64_t nbytes, char text[32]) {
  if (nbytes >= 1 << 30)
    snprintf(text, 32, "%.2f GiB", (double)nbytes / (1 << 30));
  else if (nbytes >= 1 << 20)
    snprintf(text, 32, "%.2f MiB", (double)nbytes / (1 << 20));
  else
    snprintf(text, 32, "%" PRId64 " bytes", nbytes);
  return text;
}

static __attribute__((cold, noinline)) int fail_memory(oa_device *device, size_t nbytes) {
  char limit[96] = "", available[80] = "", texts[5][32];
  int64_t free_bytes, total_bytes;
  const bool limited = device->memory_limit != INT64_MAX;
  if (limited)
    snprintf(limit, sizeof limit, ", limit %s (OFFLOAD_ARGS_MEMORY_LIMIT)", text_of(device->memory_limit, texts[0]));
  if (!device->backend->memory(device, &free_bytes, &total_bytes)) {
    const int64_t most = device->memory_limit, used = atomic_load(&device->counts.memory_used);
    if (total_bytes > most) total_bytes = most;
    if (free_bytes > most - used) free_bytes = most > used ? most - used : 0;
    snprintf(available, sizeof available, "%s free of %s, ", text_of(free_bytes, texts[1]),
             text_of(total_bytes, texts[2]));
  }
  return oa_fail(OA_ERROR_MEMORY,
                 "%s: out of device memory: %s requested, %s%s used by open regions and their arrays%s; lend parts of "
                 "the arrays, or leave regions that hold others (idle resident arrays were evicted already)%s",
                 device->name, text_of((int64_t)nbytes, texts[3]), available,
                 text_of(atomic_load(&device->counts.memory_used), texts[4]), limit,
                 limited ? ", or raise the limit" : "");
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
  const int refused = check_captures(device, why);
  if (refused) return refused;
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
  int status = oa_device_find(number, "oa_device_synchronize", &device);
  if (status) return status;
  oa_lock();
  status = oa_streams_check(device, "oa_device_synchronize", true);
  oa_unlock();
  return status ? status : oa_device_wait(device, 0, "oa_device_synchronize");
}

int oa_device_trim(int number) {
  oa_device *device;
  oa_stream *stream;
  int status = oa_device_find(number, "oa_device_trim", &device);
  if (status) return status;
  oa_lock();
  status = oa_streams_check(device, "oa_device_trim", true);
  if (!status && !(status = oa_stream_take(device, &stream))) {
    status = free_spares(device, stream->native);
    oa_stream_return(stream);
  }
  oa_unlock();
  if (status == OA_ERROR_CAPTURE) return status;
  const int unpinned = oa_staging_trim(device);
  if (!status) status = unpinned;
  const int trimmed = device->backend->trim(device);
  return status ? status : trimmed;
}

/* Memory from oa_pinned_allocate. The core's lock guards the data. */
typedef struct pinned {
  oa_present at; /* the first field: the table's element is converted to this struct */
  const oa_device *device;
} pinned;
static oa_present_table pinned_memory;

typedef struct pinned_search {
  pinned wanted, *match;
} pinned_search;

static int note_pinned(oa_present *element, void *data) {
  pinned_search *search = data;
  pinned *entry = (pinned *)element;
  const pinned *wanted = &search->wanted;
  if (entry->at.low != wanted->at.low || entry->at.high != wanted->at.high || entry->device != wanted->device) return 0;
  search->match = entry;
  return 1;
}

/* Pins memory. If the limit or the driver refuses, frees idle blocks and tries again. */
static int pin(oa_device *device, size_t nbytes, void **memory) {
  int status = oa_staging_pin(device, nbytes, memory);
  if (status == OA_ERROR_MEMORY && !(status = oa_staging_trim(device))) status = oa_staging_pin(device, nbytes, memory);
  for (int other = 0; status == OA_ERROR_MEMORY; other++) { /* blocks of all devices count */
    oa_saved_error first;
    oa_error_save(&first);
    oa_device *its = oa_device_of(other);
    if (its && its != device && !oa_staging_trim(its)) status = oa_staging_pin(device, nbytes, memory);
    if (status == OA_ERROR_MEMORY) oa_error_restore(&first);
    if (!its) break;
  }
  return status;
}

int oa_pinned_allocate(int number, size_t nbytes, void **memory) {
  oa_device *device;
  int status = oa_device_find(number, "oa_pinned_allocate", &device);
  if (status) return status;
  if (!nbytes || !memory)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_pinned_allocate: %s", memory ? "nbytes is 0" : "memory is NULL");
  pinned *entry = malloc(sizeof *entry);
  if (!entry) return oa_fail(OA_ERROR_MEMORY, "oa_pinned_allocate: no host memory");
  if ((status = pin(device, nbytes, memory))) {
    free(entry);
    return oa_fail_in(status, "oa_pinned_allocate");
  }
  *entry = (pinned){.at = {.low = (uintptr_t)*memory, .high = (uintptr_t)*memory + nbytes}, .device = device};
  oa_lock();
  oa_present_insert(&pinned_memory, &entry->at);
  oa_unlock();
  return OA_OK;
}

int oa_pinned_free(int number, void *memory, size_t nbytes) {
  if (!memory || atomic_load(&oa_forked)) return OA_OK;
  oa_device *device = oa_device_of(number);
  if (!device) return oa_fail_in(OA_ERROR_ARGUMENT, "oa_pinned_free");
  const uintptr_t low = (uintptr_t)memory;
  pinned_search search = {.wanted = {.at = {.low = low, .high = low + nbytes}, .device = device}};
  oa_lock();
  oa_present_visit(&pinned_memory, low, low + 1, note_pinned, &search);
  if (search.match) oa_present_remove(&pinned_memory, &search.match->at);
  oa_unlock();
  if (!search.match)
    return oa_fail(OA_ERROR_ARGUMENT,
                   "oa_pinned_free: %s has no %zu bytes at %p that oa_pinned_allocate gave and that are not freed yet",
                   device->name, nbytes, memory);
  free(search.match);
  return oa_staging_unpin(device, memory, nbytes);
}
