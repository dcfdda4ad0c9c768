#include "device/device.h"

#include "base/settings.h"
#include "base/sized.h"
#include "base/trace.h"
#include "device/staging.h"
#include "device/stream.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every backend, one a line: those with GPUs first. The other line of a backend is in CMakeLists.txt. */
static const oa_backend *const backends[] = {
    &oa_backend_cuda,
    &oa_backend_host,
    &oa_backend_sim,
};
enum { BACKEND_COUNT = sizeof backends / sizeof backends[0] };

/* Devices are opened once and never closed, and a number is valid for the life of the process: entries are only added
 * (under `opening`), so that reading needs no lock. */
enum { MAX_DEVICES = 256 };
static _Atomic(oa_device *) devices[MAX_DEVICES];
static atomic_int device_count;
/* Held while a driver is loaded or a device opened, which can take a second; so not oa_mutex. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

pthread_mutex_t oa_mutex = PTHREAD_MUTEX_INITIALIZER;
atomic_int oa_forked;

void oa_lock(void) { pthread_mutex_lock(&oa_mutex); }
void oa_unlock(void) { pthread_mutex_unlock(&oa_mutex); }

/* -- starting, forking -------------------------------------------------------------------------------------------- */

/* Runs in the child, where only the forking thread lives on: locks may be held by threads that are gone. */
static void in_child(void) { atomic_store(&oa_forked, 1); }

static void start(void) { pthread_atfork(NULL, NULL, in_child); }

static int check_forked(void) {
  if (__builtin_expect(atomic_load_explicit(&oa_forked, memory_order_relaxed), 0)) {
    return oa_fail(OA_ERROR_FORKED,
                   "this process was forked after offload_args was used; start workers with the spawn method");
  }
  return OA_OK;
}

int oa_core_start(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  int status = check_forked();
  if (status == OA_OK) pthread_once(&once, start);
  return status;
}

int oa_device_usable(oa_device *device) {
  int status = check_forked();
  if (status) return status;
  if (__builtin_expect(atomic_load_explicit(&device->lost, memory_order_acquire) == OA_LOST, 0)) {
    return oa_fail(OA_ERROR_LOST, "%s is lost: %s", device->name, device->lost_reason);
  }
  return OA_OK;
}

int oa_device_lost(oa_device *device, const char *reason) {
  int alive = 0;
  if (atomic_compare_exchange_strong(&device->lost, &alive, OA_LOSING)) {
    size_t length = strnlen(reason, sizeof device->lost_reason - 1);
    memcpy(device->lost_reason, reason, length);
    device->lost_reason[length] = '\0';
    atomic_store_explicit(&device->lost, OA_LOST, memory_order_release);
  }
  return oa_fail(OA_ERROR_LOST, "%s is lost: %s", device->name, reason);
}

/* -- names -------------------------------------------------------------------------------------------------------- */

static const oa_backend *backend_named(const char *name, size_t length) {
  for (int i = 0; i < BACKEND_COUNT; i++) {
    if (strlen(backends[i]->name) == length && memcmp(backends[i]->name, name, length) == 0) return backends[i];
  }
  return NULL;
}

const oa_backend *oa_backend_named(const char *name) { return backend_named(name, strlen(name)); }

/* Their names, for messages. */
static const char *backend_names(char *text, size_t size) {
  size_t length = 0;
  for (int i = 0; i < BACKEND_COUNT; i++) {
    length += (size_t)snprintf(text + length, size - length, "%s%s", i ? ", " : "", backends[i]->name);
  }
  return text;
}

/* "cuda:12" -> backend and index; without ":12" the index is 0. */
static int parse_name(const char *name, const oa_backend **backend, int *index) {
  size_t length = strcspn(name, ":");
  *backend = backend_named(name, length);
  *index = 0;
  if (!*backend) {
    char names[64];
    return oa_fail(OA_ERROR_UNAVAILABLE,
                   "oa_device_open: no device \"%s\": the kinds are %s, and the form is \"cuda:0\"", name,
                   backend_names(names, sizeof names));
  }
  if (name[length] == '\0') return OA_OK;
  const char *digits = name + length + 1;
  size_t count = strspn(digits, "0123456789");
  if (count == 0 || count > 6 || digits[count] != '\0' || (count > 1 && digits[0] == '0')) {
    return oa_fail(OA_ERROR_ARGUMENT,
                   "oa_device_open: \"%s\" is no name of a device: \"%s:\" needs a number of at most 6 digits, such as "
                   "\"%s:0\"",
                   name, (*backend)->name, (*backend)->name);
  }
  *index = atoi(digits);
  return OA_OK;
}

int oa_device_read_limit(oa_device *device) {
  int64_t free_bytes, total_bytes, limit;
  int status = oa_settings_memory_limit(0, &limit);
  if (!status && limit != INT64_MAX) { /* else there is no need to ask the backend */
    if ((status = device->backend->memory(device, &free_bytes, &total_bytes))) return status;
    status = oa_settings_memory_limit(total_bytes, &limit);
  }
  if (!status) device->memory_limit = limit;
  return status;
}

static int spares_new(oa_device *device);

/* Under `opening`. */
static int open_device(const char *name, const oa_backend *backend, int index, oa_device **opened) {
  int available;
  int status = backend->count(&available);
  if (status) return oa_fail_in(status, "oa_device_open(\"%s\")", name);
  if (available == 0) return oa_fail_in(OA_ERROR_UNAVAILABLE, "oa_device_open: no device \"%s\"", name);
  if (index >= available) {
    return oa_fail(OA_ERROR_UNAVAILABLE, "oa_device_open: no device \"%s\": there %s %d of %s, numbered from 0", name,
                   available == 1 ? "is" : "are", available, backend->name);
  }
  int number = atomic_load(&device_count);
  if (number == MAX_DEVICES) {
    return oa_fail(OA_ERROR_UNAVAILABLE, "oa_device_open(\"%s\"): %d devices are open, no more can be", name, number);
  }
  oa_device *device = calloc(1, sizeof *device);
  if (!device) return oa_fail(OA_ERROR_MEMORY, "oa_device_open(\"%s\"): out of host memory", name);
  device->backend = backend;
  device->index = index;
  device->number = number;
  /* There is one host only. */
  snprintf(device->name, sizeof device->name, backend == &oa_backend_host ? "%s" : "%s:%d", backend->name, index);
  status = oa_staging_new(device);
  if (!status) status = spares_new(device);
  if (!status) status = backend->open(device);
  if (!status) status = oa_device_read_limit(device);
  if (status) {
    free(device->staging);
    free(device->spares);
    free(device);
    return oa_fail_in(status, "oa_device_open(\"%s\")", name);
  }
  atomic_store(&devices[number], device);
  atomic_store(&device_count, number + 1);
  *opened = device;
  return OA_OK;
}

int oa_device_open(const char *name, int *number) {
  int status = oa_core_start();
  if (status) return status;
  if (!name || !number) return oa_fail(OA_ERROR_ARGUMENT, "oa_device_open: %s is NULL", name ? "device" : "name");
  const oa_backend *backend;
  int index;
  status = parse_name(name, &backend, &index);
  if (!status && (status = oa_settings_check())) status = oa_fail_in(status, "oa_device_open(\"%s\")", name);
  if (status) return status;
  oa_device *device = NULL;
  pthread_mutex_lock(&opening);
  int count = atomic_load(&device_count);
  for (int i = 0; i < count && !device; i++) {
    oa_device *other = atomic_load(&devices[i]);
    if (other->backend == backend && other->index == index) device = other;
  }
  if (!device) status = open_device(name, backend, index, &device);
  pthread_mutex_unlock(&opening);
  if (status == OA_OK) *number = device->number;
  return status;
}

int oa_backend_get_info(int number, oa_backend_info *info) {
  oa_backend_info now;
  int status = oa_core_start();
  if (!status) status = oa_sized_check("oa_backend_get_info", "info", info, OA_FIRST_BACKEND_INFO, sizeof now);
  if (status) return status;
  if (number < 0 || number >= BACKEND_COUNT)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_backend_get_info: number needs to be from 0 to %d, got %d", BACKEND_COUNT - 1,
                   number);
  const oa_backend *backend = backends[number];
  now = (oa_backend_info){.flags = (int)(backend->flags & OA_DEVICE_FLAGS), .dlpack_type = backend->dlpack_type};
  snprintf(now.name, sizeof now.name, "%s", backend->name);
  oa_sized_write(info, &now);
  return OA_OK;
}

int oa_device_count(const char *name, int *count) {
  int status = oa_core_start();
  if (status) return status;
  if (!name || !count) return oa_fail(OA_ERROR_ARGUMENT, "oa_device_count: %s is NULL", name ? "count" : "backend");
  const oa_backend *backend = backend_named(name, strlen(name));
  if (!backend) {
    char names[64];
    return oa_fail(OA_ERROR_ARGUMENT, "oa_device_count: no backend \"%s\": there are %s", name,
                   backend_names(names, sizeof names));
  }
  pthread_mutex_lock(&opening);
  status = backend->count(count);
  pthread_mutex_unlock(&opening);
  return status ? oa_fail_in(status, "oa_device_count") : OA_OK;
}

/* -- memory that stays for another time: small pieces, so that a region that comes again asks the driver for nothing ---- */

enum { SPARES = 16, SPARE_MOST = 1 << 20 /* bytes of one */ };

struct oa_spares {
  pthread_mutex_t mutex; /* a leaf */
  _Atomic int64_t bytes;
  int count;
  struct spare {
    uint64_t address;
    size_t nbytes;
    void *cleared; /* the stream in whose order it is all zeros; NULL: it holds anything */
  } at[SPARES];    /* the oldest first */
};

static int spares_new(oa_device *device) {
  device->spares = calloc(1, sizeof *device->spares);
  if (!device->spares) return oa_fail(OA_ERROR_MEMORY, "%s: out of host memory", device->name);
  pthread_mutex_init(&device->spares->mutex, NULL);
  return OA_OK;
}

static int64_t spare_bytes(const oa_device *device) {
  return atomic_load_explicit(&device->spares->bytes, memory_order_relaxed);
}

/* Under the mutex. */
static struct spare take_spare(struct oa_spares *spares, int i) {
  const struct spare spare = spares->at[i];
  spares->count--;
  memmove(&spares->at[i], &spares->at[i + 1], (size_t)(spares->count - i) * sizeof spare);
  atomic_fetch_sub(&spares->bytes, (int64_t)spare.nbytes);
  return spare;
}

static int drop_spare(oa_device *device, void *stream, struct spare spare) {
  return device->backend->release(device, spare.cleared ? spare.cleared : stream, spare.address, spare.nbytes);
}

/* Gives them all back to the driver. */
static int drop_spares(oa_device *device, void *stream) {
  struct oa_spares *spares = device->spares;
  int status = OA_OK;
  for (;;) {
    pthread_mutex_lock(&spares->mutex);
    const bool any = spares->count > 0;
    const struct spare spare = any ? take_spare(spares, 0) : (struct spare){0};
    pthread_mutex_unlock(&spares->mutex);
    if (!any) return status;
    const int released = drop_spare(device, stream, spare);
    if (!status) status = released;
  }
}

/* -- what public functions ask of a device ------------------------------------------------------------------------ */

oa_device *oa_device_of(int number) {
  oa_device *device =
      (unsigned)number < MAX_DEVICES ? atomic_load_explicit(&devices[number], memory_order_acquire) : NULL;
  if (__builtin_expect(!device, 0)) {
    oa_fail(OA_ERROR_ARGUMENT, "no device is open under the number %d: oa_device_open gives numbers", number);
  }
  return device;
}

/* The device, if it is there and can be used. */
static int find(int number, const char *function, oa_device **device) {
  int status = check_forked();
  if (status) return status;
  *device = oa_device_of(number);
  if (!*device) return oa_fail_in(OA_ERROR_ARGUMENT, "%s", function);
  status = oa_device_usable(*device);
  return status ? oa_fail_in(status, "%s", function) : OA_OK;
}

int oa_device_get_info(int number, oa_device_info *info) {
  oa_device *device;
  int status = find(number, "oa_device_get_info", &device);
  if (status) return status;
  oa_device_info now;
  if ((status = oa_sized_check("oa_device_get_info", "info", info, OA_FIRST_DEVICE_INFO, sizeof now))) return status;
  now = (oa_device_info){
      .index = device->index,
      .flags = (int)(device->backend->flags & OA_DEVICE_FLAGS),
      .dlpack_type = device->backend->dlpack_type,
      .driver_version = device->driver_version,
      .compute_major = device->compute_major,
      .compute_minor = device->compute_minor,
  };
  snprintf(now.name, sizeof now.name, "%s", device->name);
  snprintf(now.backend, sizeof now.backend, "%s", device->backend->name);
  snprintf(now.model, sizeof now.model, "%s", device->model);
  status = device->backend->memory(device, &now.memory_free, &now.memory_total);
  now.memory_free += spare_bytes(device);
  if (!status) oa_sized_write(info, &now);
  return status;
}

int oa_device_get_counters(int number, oa_counters *counters) {
  int status = check_forked();
  if (status) return status;
  oa_device *device = oa_device_of(number);
  if (!device) return oa_fail_in(OA_ERROR_ARGUMENT, "oa_device_get_counters");
  oa_counters now;
  status = oa_sized_check("oa_device_get_counters", "counters", counters, OA_FIRST_COUNTERS, sizeof now);
  if (status) return status;
  struct oa_counts *counts = &device->counts;
  now = (oa_counters){
      .copies_up = counts->copies_up,
      .bytes_up = counts->bytes_up,
      .copies_down = counts->copies_down,
      .bytes_down = counts->bytes_down,
      .allocations = counts->allocations,
      .frees = counts->frees,
      .mappings = counts->mappings,
      .regions = counts->regions,
      .calls = counts->calls,
      .memory_used = counts->memory_used,
      .memory_peak = counts->memory_peak,
      .pinned_bytes = counts->pinned_bytes,
  };
  oa_sized_write(counters, &now);
  return OA_OK;
}

int oa_device_synchronize(int number) {
  oa_device *device;
  int status = find(number, "oa_device_synchronize", &device);
  return status ? status : oa_trace_synchronize_device(device, 0, "oa_device_synchronize");
}

int oa_device_trim(int number) {
  oa_device *device;
  oa_stream *stream;
  int status = find(number, "oa_device_trim", &device);
  if (status) return status;
  oa_lock();
  if (!(status = oa_stream_borrow(device, &stream))) {
    status = drop_spares(device, stream->native);
    oa_stream_give_back(stream);
  }
  oa_unlock();
  const int unpinned = oa_staging_trim(device);
  if (!status) status = unpinned;
  const int trimmed = device->backend->trim(device);
  return status ? status : trimmed;
}

/* -- memory ------------------------------------------------------------------------------------------------------- */

int64_t (*_Atomic oa_device_pressure)(oa_device *device, size_t nbytes);

static void note_peak(oa_device *device) {
  const int64_t used = atomic_load(&device->counts.memory_used);
  int64_t peak = atomic_load_explicit(&device->counts.memory_peak, memory_order_relaxed);
  while (used > peak && !atomic_compare_exchange_weak(&device->counts.memory_peak, &peak, used)) continue;
}

/* Counts nbytes as used, if the limit allows. */
static bool reserve(oa_device *device, size_t nbytes) {
  int64_t used = atomic_load(&device->counts.memory_used);
  do {
    if (nbytes > INT64_MAX || used > device->memory_limit - spare_bytes(device) - (int64_t)nbytes) return false;
  } while (!atomic_compare_exchange_weak(&device->counts.memory_used, &used, used + (int64_t)nbytes));
  return true;
}

static int allocate(oa_device *device, void *stream, size_t nbytes, uint64_t *address) {
  if (!reserve(device, nbytes)) return OA_ERROR_MEMORY;
  const int status = device->backend->allocate(device, stream, nbytes, address);
  if (status) {
    atomic_fetch_sub(&device->counts.memory_used, (int64_t)nbytes);
    return status;
  }
  note_peak(device);
  return OA_OK;
}

static bool fits(const struct spare *spare, const void *stream, size_t nbytes) {
  return spare->nbytes == nbytes && (!spare->cleared || spare->cleared == stream);
}

bool oa_device_reuse(oa_device *device, void *stream, size_t nbytes, uint64_t *address, bool *cleared) {
  struct oa_spares *spares = device->spares;
  const int64_t begun = oa_trace_begin();
  if (!spare_bytes(device)) return false;
  pthread_mutex_lock(&spares->mutex);
  int i = spares->count;
  while (--i >= 0 && !fits(&spares->at[i], stream, nbytes)) continue;
  if (i >= 0) {
    atomic_fetch_add(&device->counts.memory_used, (int64_t)nbytes);
    const struct spare spare = take_spare(spares, i);
    *address = spare.address;
    *cleared = spare.cleared != NULL;
  }
  pthread_mutex_unlock(&spares->mutex);
  if (i < 0) return false;
  note_peak(device);
  atomic_fetch_add_explicit(&device->counts.allocations, 1, memory_order_relaxed);
  if (device->backend->renew && !*cleared) device->backend->renew(device, *address, nbytes);
  if (begun) oa_trace_note(OA_TRACE_ALLOCATE, begun, device, 0, 0, "allocate", NULL, (int64_t)nbytes, OA_OK);
  return true;
}

int oa_device_keep(oa_device *device, void *stream, uint64_t address, size_t nbytes, bool clear) {
  struct oa_spares *spares = device->spares;
  if (nbytes > SPARE_MOST || device->backend->flags & OA_SYNCHRONOUS || device->lost ||
      (clear && device->backend->fill(device, stream, address, nbytes, 0, 1, nbytes, 1)))
    return oa_device_release(device, stream, address, nbytes);
  const int64_t begun = oa_trace_begin();
  struct spare oldest = {0};
  if (device->backend->keep && !clear) device->backend->keep(device, address, nbytes);
  pthread_mutex_lock(&spares->mutex);
  if (spares->count == SPARES) oldest = take_spare(spares, 0);
  spares->at[spares->count++] = (struct spare){address, nbytes, clear ? stream : NULL};
  atomic_fetch_add(&spares->bytes, (int64_t)nbytes);
  atomic_fetch_sub(&device->counts.memory_used, (int64_t)nbytes);
  pthread_mutex_unlock(&spares->mutex);
  atomic_fetch_add_explicit(&device->counts.frees, 1, memory_order_relaxed);
  const int status = oldest.nbytes ? drop_spare(device, stream, oldest) : OA_OK;
  if (begun) oa_trace_note(OA_TRACE_RELEASE, begun, device, 0, 0, "release", NULL, (int64_t)nbytes, status);
  return status;
}

int oa_device_allocate(oa_device *device, void *stream, size_t nbytes, uint64_t *address) {
  const oa_backend *backend = device->backend;
  const int64_t begun = oa_trace_begin();
  int status = allocate(device, stream, nbytes, address);
  for (bool again = true; status == OA_ERROR_MEMORY && again;) { /* who holds memory without need gives it back here */
    status = drop_spares(device, stream);
    if (status == OA_OK) status = backend->trim(device);
    if (status == OA_OK) status = allocate(device, stream, nbytes, address);
    int64_t (*pressure)(oa_device *, size_t) = atomic_load(&oa_device_pressure);
    again = status == OA_ERROR_MEMORY && pressure && pressure(device, nbytes) > 0;
  }
  if (status == OA_OK) {
    atomic_fetch_add_explicit(&device->counts.allocations, 1, memory_order_relaxed);
  } else if (status == OA_ERROR_MEMORY) {
    char limit[96] = "";
    int64_t free_bytes, total_bytes;
    if (device->memory_limit != INT64_MAX)
      snprintf(limit, sizeof limit, ", limit %" PRId64 " (OFFLOAD_ARGS_MEMORY_LIMIT)", device->memory_limit);
    const int64_t used = atomic_load(&device->counts.memory_used);
    if (backend->memory(device, &free_bytes, &total_bytes) == OA_OK) {
      oa_fail(status,
              "%s: out of device memory: %zu bytes requested, %" PRId64 " free of %" PRId64 ", %" PRId64 " used%s",
              device->name, nbytes, free_bytes, total_bytes, used, limit);
    } else {
      oa_fail(status, "%s: out of device memory: %zu bytes requested, %" PRId64 " used%s", device->name, nbytes, used,
              limit);
    }
  }
  if (begun) oa_trace_note(OA_TRACE_ALLOCATE, begun, device, 0, 0, "allocate", NULL, (int64_t)nbytes, status);
  return status;
}

int oa_device_release(oa_device *device, void *stream, uint64_t address, size_t nbytes) {
  atomic_fetch_add_explicit(&device->counts.frees, 1, memory_order_relaxed);
  atomic_fetch_sub(&device->counts.memory_used, (int64_t)nbytes);
  const int64_t begun = oa_trace_begin();
  const int status = device->backend->release(device, stream, address, nbytes);
  if (begun) oa_trace_note(OA_TRACE_RELEASE, begun, device, 0, 0, "release", NULL, (int64_t)nbytes, status);
  return status;
}

void oa_copy_lines(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t lines) {
  if (width == to_pitch && width == from_pitch) {
    width *= lines;
    lines = lines != 0;
  }
  for (size_t i = 0; i < lines; i++) {
    memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
  }
}

void oa_fill_lines(void *to, size_t pitch, uint32_t value, size_t unit, size_t width, size_t lines) {
  const uint16_t half = (uint16_t)value;
  for (size_t i = 0; i < lines; i++) {
    char *line = (char *)to + i * pitch;
    if (unit == 1)
      memset(line, (int)(value & 0xff), width);
    else if (unit == 2)
      for (size_t at = 0; at < width; at += 2) memcpy(line + at, &half, 2);
    else
      for (size_t at = 0; at < width; at += 4) memcpy(line + at, &value, 4);
  }
}

/* -- threads ------------------------------------------------------------------------------------------------------ */

int oa_start_thread(void *(*run)(void *), void *argument) {
  /* Signals such as Ctrl-C are for the program's own threads; faults stay with the thread that makes them. */
  sigset_t blocked, before;
  sigfillset(&blocked);
  sigdelset(&blocked, SIGSEGV);
  sigdelset(&blocked, SIGBUS);
  sigdelset(&blocked, SIGFPE);
  sigdelset(&blocked, SIGILL);
  /* Detached: an idle thread never keeps the process from ending. */
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  pthread_t thread;
  const int error = pthread_create(&thread, &detached, run, argument);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&detached);
  return error;
}
