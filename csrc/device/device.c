#include "device/device.h"

#include "base/runtime.h"
#include "base/settings.h"
#include "base/sized.h"
#include "offload_args/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OA_BACKEND(name) extern const oa_backend oa_backend_##name;
#include "device/backends.def"
#undef OA_BACKEND

static const oa_backend *const backends[] = {
#define OA_BACKEND(name) &oa_backend_##name,
#include "device/backends.def"
#undef OA_BACKEND
};
enum { BACKEND_COUNT = sizeof backends / sizeof backends[0] };

/* Devices are opened once and never closed, and a number is valid for the life of the process. Entries are only added
 * (under `opening`), so reading needs no lock. */
enum { MAX_DEVICES = 256 };
static _Atomic(oa_device *) devices[MAX_DEVICES];
static atomic_int device_count;
/* Held while a driver is loaded or a device is opened. Loading a driver can take a second, so this mutex is not the
 * core's lock. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* -- the driver's library ------------------------------------------------------------------------------------------ */

static _Atomic(oa_library_loader) finder;
static atomic_int was_asked;     /* 1: driver_places has the finder's output */
static char driver_places[4096]; /* `opening` guards this text */

void oa_driver_set_finder(oa_library_loader function) { atomic_store(&finder, function); }

const char *oa_driver_places(void) { return driver_places; }

/* Takes `opening`. If the backend needs the finder, calls the finder before the lock is taken, because the finder may
 * run any Python code. */
static int lock_opening(const oa_backend *backend) {
  char places[sizeof driver_places] = "";
  const oa_library_loader find = backend->flags & OA_ASKS_FINDER ? atomic_load(&finder) : NULL;
  const bool asks = find && !atomic_load(&was_asked);
  const int status = asks ? find(backend->name, places, sizeof places) : OA_OK;
  if (status) return oa_fail(status, "looking for the driver of %s: %s", backend->name, places);
  pthread_mutex_lock(&opening);
  if (asks && !atomic_exchange(&was_asked, 1)) memcpy(driver_places, places, sizeof places);
  return OA_OK;
}

/* -- devices that can't be used ------------------------------------------------------------------------------------ */

int oa_device_usable(oa_device *device) {
  int status = oa_check_forked(device->name);
  if (status) return status;
  if (OA_UNLIKELY(atomic_load_explicit(&device->lost, memory_order_acquire) == OA_LOST)) {
    return oa_fail(OA_ERROR_LOST, "%s is lost: %s", device->name, device->lost_reason);
  }
  return OA_OK;
}

bool oa_device_quiesce(oa_device *device) {
  enum { TRIES = 2 }; /* the first wait may report earlier work that failed */
  oa_saved_error first;
  int status = OA_ERROR_BACKEND;
  oa_error_save(&first);
  for (int i = 0; i < TRIES && status && status != OA_ERROR_LOST; i++) status = device->backend->synchronize(device);
  oa_error_restore(&first);
  /* a lost device does nothing any more, unless the core has given it up */
  return !status || (status == OA_ERROR_LOST && !atomic_load(&device->stuck));
}

void oa_device_give_up(oa_device *device, const char *reason) {
  oa_saved_error saved;
  oa_error_save(&saved);
  oa_device_lost(device, reason);
  atomic_store(&device->stuck, true);
  oa_error_restore(&saved);
}

static bool is_later(const struct timespec *a, const struct timespec *b) {
  return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

bool oa_device_wait_change(const oa_device *device, oa_patience *patience, bool hurries) {
  enum { LOOK = 5 }; /* milliseconds: nobody announces that a device is lost, or that its operations have ended */
  const bool is_short = hurries || (device && atomic_load(&device->lost) == OA_LOST);
  if (!patience->end.tv_sec || is_short > patience->is_short)
    *patience = (oa_patience){oa_time_in(is_short ? OA_SHORT_PATIENCE : OA_LONG_PATIENCE), is_short};
  const struct timespec look = oa_time_in(LOOK);
  const bool is_last = is_later(&look, &patience->end);
  return oa_wait_change_until(is_last ? &patience->end : &look) || !is_last;
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

/* Writes the names of all backends to text, for messages. Returns text. */
static const char *backend_names(char *text, size_t size) {
  size_t length = 0;
  for (int i = 0; i < BACKEND_COUNT; i++) {
    length += (size_t)snprintf(text + length, size - length, "%s%s", i ? ", " : "", backends[i]->name);
  }
  return text;
}

const oa_backend *oa_backend_named(const char *name) { return backend_named(name, strlen(name)); }

/* Reads "cuda:12" as a backend and an index; without ":12" the index is 0. */
static int parse_name(const char *name, const oa_backend **backend, int *index) {
  size_t length = strcspn(name, ":");
  *backend = backend_named(name, length);
  *index = 0;
  if (!*backend) {
    char names[64];
    return oa_fail(OA_ERROR_UNAVAILABLE,
                   "oa_device_open: unknown device \"%s\": use one of %s, optionally with an index, as in \"%s:0\"",
                   name, backend_names(names, sizeof names), backends[0]->name);
  }
  if (name[length] == '\0') return OA_OK;
  const char *digits = name + length + 1;
  size_t count = strspn(digits, "0123456789");
  if (count == 0 || count > 6 || digits[count] != '\0' || (count > 1 && digits[0] == '0')) {
    return oa_fail(
        OA_ERROR_ARGUMENT,
        "oa_device_open: \"%s\" is not the name of a device: \"%s:\" needs a number of at most 6 digits, such as "
        "\"%s:0\"",
        name, (*backend)->name, (*backend)->name);
  }
  *index = atoi(digits);
  return OA_OK;
}

int oa_device_read_limit(oa_device *device) {
  int64_t free_bytes, total_bytes, limit;
  int status = oa_settings_memory_limit(0, &limit);
  if (!status && limit != INT64_MAX) { /* without a limit, the backend need not be called */
    if ((status = device->backend->memory(device, &free_bytes, &total_bytes))) return status;
    status = oa_settings_memory_limit(total_bytes, &limit);
  }
  if (!status) device->memory_limit = limit;
  return status;
}

/* The oa_coherence that a test chose in place of the environment's; -1: none. */
static atomic_int chosen_coherence = -1;

/* Decides whether regions lend host memory to the device without copies. */
static void decide_coherence(oa_device *device) {
  const int chosen = atomic_load(&chosen_coherence), coherence = chosen < 0 ? oa_settings_coherence() : chosen;
  device->coherent = coherence == OA_COHERENT_ALWAYS
                         ? device->reads_host >= OA_READS_PAGES
                         : coherence == OA_COHERENT_AUTO && device->reads_host == OA_READS_HOST;
}

int oa_coherent_configure(int coherence) {
  int status = oa_core_start(__func__);
  if (status) return status;
  if (coherence < -1 || coherence > OA_COHERENT_ALWAYS)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_coherent_configure: %d is not an oa_coherence, and not -1", coherence);
  pthread_mutex_lock(&opening);
  atomic_store(&chosen_coherence, coherence);
  for (int i = 0; i < atomic_load(&device_count); i++) decide_coherence(atomic_load(&devices[i]));
  pthread_mutex_unlock(&opening);
  return OA_OK;
}

/* Opens device `index` of the backend. Called with `opening`. */
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
  device->node = -1;
  snprintf(device->name, sizeof device->name, backend->flags & OA_SINGLE ? "%s" : "%s:%d", backend->name, index);
  status = backend->open(device);
  decide_coherence(device);
  if (!status) status = oa_device_read_limit(device);
  if (status) {
    free(device);
    return oa_fail_in(status, "oa_device_open(\"%s\")", name);
  }
  atomic_store(&devices[number], device);
  atomic_store(&device_count, number + 1);
  *opened = device;
  return OA_OK;
}

int oa_device_open(const char *name, int *number) {
  int status = oa_core_start(__func__);
  if (status) return status;
  if (!name || !number) return oa_fail(OA_ERROR_ARGUMENT, "oa_device_open: %s is NULL", name ? "device" : "name");
  const oa_backend *backend;
  int index;
  status = parse_name(name, &backend, &index);
  if (!status && (status = oa_settings_check())) status = oa_fail_in(status, "oa_device_open(\"%s\")", name);
  if (status) return status;
  oa_device *device = NULL;
  if ((status = lock_opening(backend))) return oa_fail_in(status, "oa_device_open(\"%s\")", name);
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

/* Does not start the core, so that programs may fork after the call. */
int oa_backend_get_info(int number, oa_backend_info *info) {
  oa_backend_info now;
  int status = oa_sized_check("oa_backend_get_info", "info", info, OA_FIRST_BACKEND_INFO, sizeof now);
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
  int status = oa_core_start(__func__);
  if (status) return status;
  if (!name || !count) return oa_fail(OA_ERROR_ARGUMENT, "oa_device_count: %s is NULL", name ? "count" : "backend");
  const oa_backend *backend = backend_named(name, strlen(name));
  if (!backend) {
    char names[64];
    return oa_fail(OA_ERROR_ARGUMENT, "oa_device_count: no backend \"%s\": there are %s", name,
                   backend_names(names, sizeof names));
  }
  if ((status = lock_opening(backend))) return oa_fail_in(status, "oa_device_count");
  status = backend->count(count);
  pthread_mutex_unlock(&opening);
  return status ? oa_fail_in(status, "oa_device_count") : OA_OK;
}

/* -- public functions that describe a device ---------------------------------------------------------------------- */

oa_device *oa_device_of(int number) {
  oa_device *device =
      (unsigned)number < MAX_DEVICES ? atomic_load_explicit(&devices[number], memory_order_acquire) : NULL;
  if (OA_UNLIKELY(!device)) {
    oa_fail(OA_ERROR_ARGUMENT, "no device is open under the number %d: oa_device_open gives numbers", number);
  }
  return device;
}

int oa_device_find(int number, const char *function, oa_device **device) {
  int status = oa_check_forked(function);
  if (status) return status;
  *device = oa_device_of(number);
  if (!*device) return oa_fail_in(OA_ERROR_ARGUMENT, "%s", function);
  status = oa_device_usable(*device);
  return status ? oa_fail_in(status, "%s", function) : OA_OK;
}

int oa_device_get_info(int number, oa_device_info *info) {
  oa_device *device;
  int status = oa_device_find(number, "oa_device_get_info", &device);
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
      .reads_host = device->reads_host,
      .coherent = device->coherent,
  };
  snprintf(now.name, sizeof now.name, "%s", device->name);
  snprintf(now.backend, sizeof now.backend, "%s", device->backend->name);
  snprintf(now.model, sizeof now.model, "%s", device->model);
  status = device->backend->memory(device, &now.memory_free, &now.memory_total);
  if (status == OA_ERROR_BACKEND) { /* memory_free and memory_total stay 0; the other fields are known */
    now.memory_free = now.memory_total = 0;
    status = OA_OK;
  } else {
    const int64_t limit = device->memory_limit, used = atomic_load(&device->counts.memory_used);
    now.memory_free += device->spare_bytes;
    if (now.memory_free > limit - used) now.memory_free = limit > used ? limit - used : 0;
  }
  if (!status) oa_sized_write(info, &now);
  return status;
}

int oa_device_get_counters(int number, oa_counters *counters) {
  int status = oa_check_forked("oa_device_get_counters");
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
      .copies_peer = counts->copies_peer,
      .bytes_peer = counts->bytes_peer,
      .bytes_former = counts->bytes_former,
  };
  oa_sized_write(counters, &now);
  return OA_OK;
}
