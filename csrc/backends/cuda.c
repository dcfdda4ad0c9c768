/* NVIDIA GPUs through libcuda.so.1, loaded at run time; the prototypes are our own (cuda.def).
 *
 * Each device's primary context is retained one time and never released, and the caller's current context is current
 * again after every call. Memory comes from a stream-ordered pool of our own, which keeps freed memory. Streams don't
 * synchronize with the legacy default one. Nothing is destroyed at exit, when the driver may be gone. */
#include "device/backend.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *cu_context, *cu_pool, *cu_stream, *cu_event, *cu_module, *cu_function;
typedef unsigned long long cu_address;

struct pool_properties {
  int allocation_type, handle_types;
  int location_type, location_id;
  void *security;
  size_t maximum;
  unsigned short usage;
  unsigned char reserved[54];
};

struct copy_2d {
  size_t from_x, from_y;
  int from_type;
  const void *from_host;
  cu_address from_device;
  void *from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  int to_type;
  void *to_host;
  cu_address to_device;
  void *to_array;
  size_t to_pitch;
  size_t width, lines;
};

struct launch_attribute {
  int kind, padding;
  union {
    char bytes[64];
    int cooperative;
    unsigned cluster[3];
  };
};

struct launch_config {
  unsigned grid[3], block[3], shared_bytes;
  cu_stream stream;
  struct launch_attribute *attributes;
  unsigned attribute_count;
};

enum { /* the driver's constants that are used here */
       SUCCESS = 0,
       OUT_OF_MEMORY = 2,
       NOT_FOUND = 500,
       DEVICE_ATTRIBUTE_BLOCK_X = 2, /* and y, z behind it */
       DEVICE_ATTRIBUTE_GRID_X = 5,  /* likewise */
       DEVICE_ATTRIBUTE_SHARED_PER_BLOCK = 8,
       DEVICE_ATTRIBUTE_MULTIPROCESSORS = 16,
       DEVICE_ATTRIBUTE_COOPERATIVE = 95,
       DEVICE_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN = 97,
       DEVICE_ATTRIBUTE_CLUSTERS = 120,
       FUNCTION_MOST_THREADS = 0,
       FUNCTION_SHARED = 1,
       FUNCTION_REGISTERS = 4,
       FUNCTION_MOST_DYNAMIC_SHARED = 8,
       LAUNCH_COOPERATIVE = 2,
       LAUNCH_CLUSTER = 4,
       JIT_ERROR_LOG = 5,
       JIT_ERROR_LOG_BYTES = 6,
       DEVICE_ATTRIBUTE_COMPUTE_MAJOR = 75,
       DEVICE_ATTRIBUTE_COMPUTE_MINOR = 76,
       DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
       DEVICE_ATTRIBUTE_MEMORY_POOLS = 115,
       POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
       MEMORY_HOST = 1,
       MEMORY_DEVICE = 2,
       MEMORY_UNIFIED = 4, /* whichever the address says */
       ALLOCATION_PINNED = 1,
       LOCATION_DEVICE = 1,
       POOL_RELEASE_THRESHOLD = 4,
       POOL_RESERVED = 5,
       POOL_USED = 7,
       STREAM_NON_BLOCKING = 1,
       EVENT_DISABLE_TIMING = 2,
       HOST_PORTABLE = 1, /* pinned memory of all contexts */
       NOT_READY = 600,
       MAXIMUM_PITCH = 0x7fffffff /* of a 2-D copy */
};

static struct {
#define REQUIRED(symbol, ...) int (*symbol)(__VA_ARGS__);
#define OPTIONAL REQUIRED
#include "cuda.def"
#undef OPTIONAL
#undef REQUIRED
} driver;

struct cuda {
  cu_context context;
  cu_pool pool;
  int reads_pageable; /* the device reads host memory by itself, so no copy up is known to be staged first */
};

/* -- loading ------------------------------------------------------------------------------------------------------ */

static int driver_devices, driver_version;
static char driver_missing[512]; /* the reason why there are no devices, or empty */

static const char *code_name(int code) {
  const char *name = NULL;
  return driver.cuGetErrorName(code, &name) == SUCCESS && name ? name : "unknown error";
}

static const char *code_text(int code) {
  const char *text = NULL;
  return driver.cuGetErrorString(code, &text) == SUCCESS && text ? text : "no description";
}

static const char *advice(int code) {
  switch (code) {
    case 34:
      return "; the libcuda.so.1 that was found is a stub for linking, not a driver";
    case 100:
      return "; there is a driver but no GPU that this process may see (CUDA_VISIBLE_DEVICES?)";
    case 802:
      return "; the fabric manager of this machine is not ready";
    case 803:
    case 804:
      return "; the kernel's driver and libcuda.so.1 do not fit each other";
    default:
      return "";
  }
}

static bool load_symbols(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    if (!why || strstr(why, "No such file")) {
      snprintf(driver_missing, sizeof driver_missing, "libcuda.so.1 not found: no NVIDIA driver");
    } else {
      snprintf(driver_missing, sizeof driver_missing, "libcuda.so.1 could not be loaded: %s", why);
    }
    return false;
  }
#define REQUIRED(symbol, ...)                                                                                      \
  *(void **)&driver.symbol = dlsym(library, #symbol);                                                              \
  if (!driver.symbol) {                                                                                            \
    snprintf(driver_missing, sizeof driver_missing, "libcuda.so.1 lacks %s: needs a driver of CUDA 11.3 or newer", \
             #symbol);                                                                                             \
    return false;                                                                                                  \
  }
#define OPTIONAL(symbol, ...) *(void **)&driver.symbol = dlsym(library, #symbol);
#include "cuda.def"
#undef OPTIONAL
#undef REQUIRED
  return true;
}

static void load(void) {
  if (!load_symbols()) return;
  const char *what = "cuInit";
  int code = driver.cuInit(0);
  if (code == SUCCESS) {
    what = "cuDriverGetVersion";
    code = driver.cuDriverGetVersion(&driver_version);
  }
  if (code == SUCCESS) {
    what = "cuDeviceGetCount";
    code = driver.cuDeviceGetCount(&driver_devices);
  }
  if (code) {
    driver_devices = 0;
    snprintf(driver_missing, sizeof driver_missing, "%s failed: %s (%d): %s%s", what, code_name(code), code,
             code_text(code), advice(code));
  } else if (driver_devices == 0) {
    snprintf(driver_missing, sizeof driver_missing, "the NVIDIA driver sees no GPU");
  }
}

static int cuda_count(int *count) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, load);
  *count = driver_devices;
  if (driver_devices == 0) oa_fail(OA_OK, "%s", driver_missing);
  return OA_OK;
}

/* -- failures ----------------------------------------------------------------------------------------------------- */

/* Returns the reason to report for a code after which a context does nothing any more; NULL for other codes. */
static const char *end_of_device(int code) {
  switch (code) {
    case 4: /* deinitialized */
      return "the driver is shutting down";
    case 201: /* invalid context */
    case 709: /* context is destroyed */
      return "other code reset the device or destroyed its primary context";
    case 214: /* memory error */
    case 220: /* NVLink error */
    case 226: /* contained error */
    case 700: /* illegal address */
    case 702: /* a kernel ran too long */
    case 710: /* assert */
    case 714: /* stack */
    case 715: /* illegal instruction */
    case 716: /* misaligned address */
    case 717: /* address space */
    case 718: /* program counter */
    case 719: /* launch failed */
    case 721: /* tensor memory */
      return "this may stem from earlier asynchronous work";
    default:
      return NULL;
  }
}

/* Sets the error text of a driver's code and returns the status; the format describes the call. */
__attribute__((format(printf, 3, 4))) static int backend_error(oa_device *device, int code, const char *format, ...) {
  char what[128];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  const char *end = end_of_device(code);
  if (end) {
    char reason[sizeof device->lost_reason];
    snprintf(reason, sizeof reason, "%s failed: %s (%d): %s; %s", what, code_name(code), code, code_text(code), end);
    return oa_device_lost(device, reason);
  }
  return oa_fail(code == OUT_OF_MEMORY ? OA_ERROR_MEMORY : OA_ERROR_BACKEND, "%s: %s failed: %s (%d): %s", device->name,
                 what, code_name(code), code, code_text(code));
}

/* -- contexts ----------------------------------------------------------------------------------------------------- */

/* Sets *saved to the device if its context was pushed and is to be popped, or NULL if it was current already. */
static int cuda_enter(oa_device *device, void **saved) {
  struct cuda *cuda = device->state;
  cu_context current = NULL;
  *saved = NULL;
  if (__builtin_expect(driver.cuCtxGetCurrent(&current) == SUCCESS && current == cuda->context, 1)) return OA_OK;
  int code = driver.cuCtxPushCurrent_v2(cuda->context);
  if (code) return backend_error(device, code, "cuCtxPushCurrent");
  *saved = device;
  return OA_OK;
}

static int cuda_leave(oa_device *device, void *saved) {
  if (!saved) return OA_OK;
  cu_context popped;
  int code = driver.cuCtxPopCurrent_v2(&popped);
  return code ? backend_error(device, code, "cuCtxPopCurrent") : OA_OK;
}

/* Leaves the context and returns the first failure. */
static int leave_context(oa_device *device, void *saved, int status) {
  if (status == OA_OK || !saved) return status ? status : cuda_leave(device, saved);
  oa_saved_error first;
  oa_error_save(&first);
  cuda_leave(device, saved);
  oa_error_restore(&first);
  return status;
}

/* Makes a call of the driver with the device's context current, and returns from the function. */
#define CALL(device, expression, ...)                               \
  do {                                                              \
    void *saved_;                                                   \
    int status_ = cuda_enter(device, &saved_);                      \
    if (status_) return status_;                                    \
    int code_ = (expression);                                       \
    if (code_) status_ = backend_error(device, code_, __VA_ARGS__); \
    return leave_context(device, saved_, status_);                  \
  } while (0)

/* -- the table ---------------------------------------------------------------------------------------------------- */

static int make_pool(oa_device *device) {
  struct cuda *cuda = device->state;
  struct pool_properties properties = {
      .allocation_type = ALLOCATION_PINNED, .location_type = LOCATION_DEVICE, .location_id = device->index};
  int code = driver.cuMemPoolCreate(&cuda->pool, &properties);
  if (code) return backend_error(device, code, "cuMemPoolCreate");
  uint64_t keep_all = UINT64_MAX;
  code = driver.cuMemPoolSetAttribute(cuda->pool, POOL_RELEASE_THRESHOLD, &keep_all);
  return code ? backend_error(device, code, "cuMemPoolSetAttribute") : OA_OK;
}

static int cuda_open(oa_device *device) {
  int number = 0, pools = 0;
  int code = driver.cuDeviceGet(&number, device->index);
  if (code) return backend_error(device, code, "cuDeviceGet");
  code = driver.cuDeviceGetName(device->model, sizeof device->model, number);
  if (code) return backend_error(device, code, "cuDeviceGetName");
  struct cuda *cuda = calloc(1, sizeof *cuda);
  if (!cuda) return oa_fail(OA_ERROR_MEMORY, "%s: out of host memory", device->name);
  const struct {
    int attribute, *value;
  } attributes[] = {{DEVICE_ATTRIBUTE_COMPUTE_MAJOR, &device->compute_major},
                    {DEVICE_ATTRIBUTE_COMPUTE_MINOR, &device->compute_minor},
                    {DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, &cuda->reads_pageable},
                    {DEVICE_ATTRIBUTE_MEMORY_POOLS, &pools}};
  device->state = cuda;
  device->driver_version = driver_version;
  int status = OA_OK;
  for (size_t i = 0; i < sizeof attributes / sizeof attributes[0] && status == OA_OK; i++) {
    code = driver.cuDeviceGetAttribute(attributes[i].value, attributes[i].attribute, number);
    if (code) status = backend_error(device, code, "cuDeviceGetAttribute");
  }
  if (status == OA_OK && !pools) {
    status = oa_fail(OA_ERROR_UNAVAILABLE, "%s (%s) has no stream-ordered memory pools, which are needed", device->name,
                     device->model);
  }
  if (status == OA_OK) {
    code = driver.cuDevicePrimaryCtxRetain(&cuda->context, number);
    if (code) status = backend_error(device, code, "cuDevicePrimaryCtxRetain");
  }
  if (status == OA_OK) {
    void *saved;
    status = cuda_enter(device, &saved);
    if (status == OA_OK) status = leave_context(device, saved, make_pool(device));
  }
  if (status) free(cuda);
  return status;
}

/* Counts idle memory of the pool as free, too. */
static int cuda_memory(oa_device *device, int64_t *free_bytes, int64_t *total_bytes) {
  struct cuda *cuda = device->state;
  size_t free_now = 0, total = 0;
  uint64_t reserved = 0, used = 0;
  void *saved;
  int status = cuda_enter(device, &saved);
  if (status) return status;
  int code = driver.cuMemGetInfo_v2(&free_now, &total);
  if (code == SUCCESS) code = driver.cuMemPoolGetAttribute(cuda->pool, POOL_RESERVED, &reserved);
  if (code == SUCCESS) code = driver.cuMemPoolGetAttribute(cuda->pool, POOL_USED, &used);
  if (code) status = backend_error(device, code, "cuMemGetInfo");
  *free_bytes = (int64_t)(free_now + (reserved - used));
  *total_bytes = (int64_t)total;
  return leave_context(device, saved, status);
}

static int cuda_allocate(oa_device *device, void *stream, size_t nbytes, uint64_t *address) {
  struct cuda *cuda = device->state;
  cu_address allocated = 0;
  void *saved;
  int status = cuda_enter(device, &saved);
  if (status) return status;
  int code = driver.cuMemAllocFromPoolAsync(&allocated, nbytes, cuda->pool, stream);
  if (code) status = backend_error(device, code, "cuMemAllocFromPoolAsync of %zu bytes", nbytes);
  *address = allocated;
  return leave_context(device, saved, status);
}

static int cuda_free(oa_device *device, void *stream, uint64_t address, size_t nbytes) {
  CALL(device, driver.cuMemFreeAsync(address, stream), "cuMemFreeAsync of %zu bytes", nbytes);
}

static int cuda_trim(oa_device *device) {
  struct cuda *cuda = device->state;
  void *saved;
  int status = cuda_enter(device, &saved);
  if (status) return status;
  int code = driver.cuCtxSynchronize();
  if (code) {
    status = backend_error(device, code, "cuCtxSynchronize");
  } else {
    code = driver.cuMemPoolTrimTo(cuda->pool, 0);
    if (code) status = backend_error(device, code, "cuMemPoolTrimTo");
  }
  return leave_context(device, saved, status);
}

/* Copies lines as `template` says; line by line where a pitch is too large for a 2-D copy. */
static int copy_lines(oa_device *device, cu_stream stream, struct copy_2d *template) {
  if (template->from_pitch <= MAXIMUM_PITCH && template->to_pitch <= MAXIMUM_PITCH) {
    int code = driver.cuMemcpy2DAsync_v2(template, stream);
    return code ? backend_error(device, code, "cuMemcpy2DAsync of %zu lines of %zu bytes", template->lines,
                                template->width)
                : OA_OK;
  }
  for (size_t i = 0; i < template->lines; i++) {
    int code =
        template->to_type == MEMORY_DEVICE
            ? driver.cuMemcpyHtoDAsync_v2(template->to_device + i * template->to_pitch,
                                          (const char *)template->from_host + i * template->from_pitch, template->width,
                                          stream)
            : driver.cuMemcpyDtoHAsync_v2((char *)template->to_host + i * template->to_pitch,
                                          template->from_device + i * template->from_pitch, template->width, stream);
    if (code) return backend_error(device, code, "copy of line %zu, %zu bytes,", i, template->width);
  }
  return OA_OK;
}

static bool contiguous(size_t to_pitch, size_t from_pitch, size_t width, size_t lines) {
  return lines == 1 || (to_pitch == width && from_pitch == width);
}

/* Returns whether the driver knows that memory (pinned, managed) and so reads it after the call. Pageable memory is
 * staged before the call returns. */
static bool read_later(const struct cuda *cuda, const void *memory) {
  int type = 0, attribute = POINTER_ATTRIBUTE_MEMORY_TYPE;
  void *values[] = {&type};
  return cuda->reads_pageable || driver.cuPointerGetAttributes(1, &attribute, values, (uintptr_t)memory) != SUCCESS ||
         type != 0;
}

static int send(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from, size_t from_pitch,
                size_t width, size_t lines, bool later) {
  struct cuda *cuda = device->state;
  if (width == 0 || lines == 0) return OA_OK;
  void *saved;
  int status = cuda_enter(device, &saved);
  if (status) return status;
  if (contiguous(to_pitch, from_pitch, width, lines)) {
    int code = driver.cuMemcpyHtoDAsync_v2(to, from, width * lines, stream);
    if (code) status = backend_error(device, code, "cuMemcpyHtoDAsync of %zu bytes", width * lines);
  } else {
    status = copy_lines(device, stream,
                        &(struct copy_2d){.from_type = MEMORY_HOST,
                                          .from_host = from,
                                          .from_pitch = from_pitch,
                                          .to_type = MEMORY_DEVICE,
                                          .to_device = to,
                                          .to_pitch = to_pitch,
                                          .width = width,
                                          .lines = lines});
  }
  if (status == OA_OK && !later && read_later(cuda, from)) {
    int code = driver.cuStreamSynchronize(stream);
    if (code) status = backend_error(device, code, "cuStreamSynchronize");
  }
  return leave_context(device, saved, status);
}

static int cuda_copy_up(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from,
                        size_t from_pitch, size_t width, size_t lines) {
  return send(device, stream, to, to_pitch, from, from_pitch, width, lines, false);
}

static int cuda_copy_up_later(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from,
                              size_t from_pitch, size_t width, size_t lines) {
  return send(device, stream, to, to_pitch, from, from_pitch, width, lines, true);
}

/* Pins portable memory: all contexts of this process copy from it fast. */
static int cuda_pin(oa_device *device, size_t nbytes, void **memory) {
  CALL(device, driver.cuMemHostAlloc(memory, nbytes, HOST_PORTABLE), "cuMemHostAlloc of %zu bytes", nbytes);
}

static int cuda_unpin(oa_device *device, void *memory, size_t nbytes) {
  CALL(device, driver.cuMemFreeHost(memory), "cuMemFreeHost of %zu bytes", nbytes);
}

/* Asks for the first byte and the last: a registered range may end inside an array. */
static bool cuda_pinned(oa_device *device, const void *memory, size_t nbytes) {
  (void)device;
  const uintptr_t first = (uintptr_t)memory, bytes[] = {first + nbytes - 1, first};
  for (int i = 0; i < 2; i++) {
    int type = 0, attribute = POINTER_ATTRIBUTE_MEMORY_TYPE;
    void *values[] = {&type};
    if (driver.cuPointerGetAttributes(1, &attribute, values, bytes[i]) != SUCCESS || type != MEMORY_HOST) return false;
  }
  return true;
}

static int cuda_copy_down(oa_device *device, void *stream, void *to, size_t to_pitch, uint64_t from, size_t from_pitch,
                          size_t width, size_t lines) {
  if (width == 0 || lines == 0) return OA_OK;
  void *saved;
  int status = cuda_enter(device, &saved);
  if (status) return status;
  if (contiguous(to_pitch, from_pitch, width, lines)) {
    int code = driver.cuMemcpyDtoHAsync_v2(to, from, width * lines, stream);
    if (code) status = backend_error(device, code, "cuMemcpyDtoHAsync of %zu bytes", width * lines);
  } else {
    status = copy_lines(device, stream,
                        &(struct copy_2d){.from_type = MEMORY_DEVICE,
                                          .from_device = from,
                                          .from_pitch = from_pitch,
                                          .to_type = MEMORY_HOST,
                                          .to_host = to,
                                          .to_pitch = to_pitch,
                                          .width = width,
                                          .lines = lines});
  }
  return leave_context(device, saved, status);
}

/* Copies with addresses that may be pinned memory of the host, used in place: the driver finds out. */
static int cuda_copy(oa_device *device, void *stream, uint64_t to, size_t to_pitch, uint64_t from, size_t from_pitch,
                     size_t width, size_t lines) {
  if (width == 0 || lines == 0) return OA_OK;
  if (contiguous(to_pitch, from_pitch, width, lines))
    CALL(device, driver.cuMemcpyAsync(to, from, width * lines, stream), "cuMemcpyAsync of %zu bytes", width * lines);
  void *saved;
  int status = cuda_enter(device, &saved);
  if (status) return status;
  if (to_pitch <= MAXIMUM_PITCH && from_pitch <= MAXIMUM_PITCH) {
    status = copy_lines(device, stream,
                        &(struct copy_2d){.from_type = MEMORY_UNIFIED,
                                          .from_device = from,
                                          .from_pitch = from_pitch,
                                          .to_type = MEMORY_UNIFIED,
                                          .to_device = to,
                                          .to_pitch = to_pitch,
                                          .width = width,
                                          .lines = lines});
  } else {
    for (size_t i = 0; i < lines && status == OA_OK; i++) {
      int code = driver.cuMemcpyAsync(to + i * to_pitch, from + i * from_pitch, width, stream);
      if (code) status = backend_error(device, code, "copy of line %zu, %zu bytes,", i, width);
    }
  }
  return leave_context(device, saved, status);
}

/* Fills one line; returns the driver's code. */
static int fill_line(uint64_t to, uint32_t value, size_t unit, size_t width, void *stream) {
  switch (unit) {
    case 1:
      return driver.cuMemsetD8Async(to, (unsigned char)value, width, stream);
    case 2:
      return driver.cuMemsetD16Async(to, (unsigned short)value, width / 2, stream);
    default:
      return driver.cuMemsetD32Async(to, value, width / 4, stream);
  }
}

/* Fills several lines; returns the driver's code. */
static int fill_lines(uint64_t to, size_t pitch, uint32_t value, size_t unit, size_t width, size_t lines,
                      void *stream) {
  switch (unit) {
    case 1:
      return driver.cuMemsetD2D8Async(to, pitch, (unsigned char)value, width, lines, stream);
    case 2:
      return driver.cuMemsetD2D16Async(to, pitch, (unsigned short)value, width / 2, lines, stream);
    default:
      return driver.cuMemsetD2D32Async(to, pitch, value, width / 4, lines, stream);
  }
}

static int cuda_fill(oa_device *device, void *stream, uint64_t to, size_t pitch, uint32_t value, size_t unit,
                     size_t width, size_t lines) {
  if (width == 0 || lines == 0) return OA_OK;
  if (contiguous(pitch, pitch, width, lines)) {
    width *= lines;
    lines = 1;
  }
  void *saved;
  int code = SUCCESS, status = cuda_enter(device, &saved);
  if (status) return status;
  if (lines > 1 && pitch <= MAXIMUM_PITCH)
    code = fill_lines(to, pitch, value, unit, width, lines, stream);
  else
    for (size_t i = 0; i < lines && code == SUCCESS; i++) code = fill_line(to + i * pitch, value, unit, width, stream);
  if (code) status = backend_error(device, code, "cuMemset of %zu lines of %zu bytes", lines, width);
  return leave_context(device, saved, status);
}

static int cuda_stream_create(oa_device *device, void **stream) {
  CALL(device, driver.cuStreamCreate(stream, STREAM_NON_BLOCKING), "cuStreamCreate");
}

static int cuda_stream_synchronize(oa_device *device, void *stream) {
  CALL(device, driver.cuStreamSynchronize(stream), "cuStreamSynchronize");
}

static int cuda_stream_wait(oa_device *device, void *stream, void *event) {
  CALL(device, driver.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
}

/* Counts an invalidated capture, too: its stream takes no work either. */
static int cuda_stream_capturing(oa_device *device, void *stream, int *capturing) {
  void *saved;
  int status = cuda_enter(device, &saved);
  if (status) return status;
  int state = 0;
  int code = driver.cuStreamIsCapturing(stream, &state);
  if (code) status = backend_error(device, code, "cuStreamIsCapturing");
  *capturing = state != 0;
  return leave_context(device, saved, status);
}

static int cuda_event_create(oa_device *device, void **event) {
  CALL(device, driver.cuEventCreate(event, EVENT_DISABLE_TIMING), "cuEventCreate");
}

static int cuda_event_record(oa_device *device, void *event, void *stream) {
  CALL(device, driver.cuEventRecord(event, stream), "cuEventRecord");
}

static int cuda_event_destroy(oa_device *device, void *event) {
  CALL(device, driver.cuEventDestroy_v2(event), "cuEventDestroy");
}

static int cuda_event_done(oa_device *device, void *event, int *finished) {
  void *saved;
  int status = cuda_enter(device, &saved);
  if (status) return status;
  const int code = driver.cuEventQuery(event);
  *finished = code == SUCCESS;
  if (code && code != NOT_READY) status = backend_error(device, code, "cuEventQuery");
  return leave_context(device, saved, status);
}

static int cuda_event_synchronize(oa_device *device, void *event) {
  CALL(device, driver.cuEventSynchronize(event), "cuEventSynchronize");
}

static int cuda_synchronize(oa_device *device) { CALL(device, driver.cuCtxSynchronize(), "cuCtxSynchronize"); }

/* -- kernels ------------------------------------------------------------------------------------------------------ */

/* A kernel. */
struct function {
  cu_function native;
  int most_shared_bytes;
  atomic_int shared_bytes; /* what launches may ask for so far; more needs an opt-in */
};

/* Loads a copy of the image that ends with zeros: the driver is not told its size. */
static int cuda_module_load(oa_device *device, const char *name, const void *image, size_t nbytes, void **module) {
  enum { LOG = 8192, ZEROS = 64 };
  char *copy = nbytes < PTRDIFF_MAX - LOG - ZEROS ? calloc(1, nbytes + ZEROS + LOG) : NULL;
  if (!copy) return oa_fail(OA_ERROR_MEMORY, "%s: out of host memory", device->name);
  char *log = copy + nbytes + ZEROS;
  int options[] = {JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES};
  void *values[] = {log, (void *)(uintptr_t)(LOG - 1)}, *saved; /* the size is the value itself */
  memcpy(copy, image, nbytes);
  int status = cuda_enter(device, &saved);
  if (status == OA_OK) {
    const int code = driver.cuModuleLoadDataEx(module, copy, 2, options, values);
    if (code && (end_of_device(code) || code == OUT_OF_MEMORY))
      status = backend_error(device, code, "cuModuleLoadDataEx of %zu bytes", nbytes);
    else if (code)
      status = oa_fail(OA_ERROR_MODULE, "%s: the driver of %s refuses it: %s (%d): %s%s%s", name, device->name,
                       code_name(code), code, code_text(code), log[0] ? "; its log: " : "", log);
    status = leave_context(device, saved, status);
  }
  free(copy);
  return status;
}

static int cuda_module_unload(oa_device *device, void *module) {
  CALL(device, driver.cuModuleUnload(module), "cuModuleUnload");
}

/* Fills info, with the context current. Returns the driver's code. */
static int read_info(const oa_device *device, cu_function function, oa_kernel_info *info) {
  int shared_bytes = 0, optin_bytes = 0, own_bytes = 0, grid = 0, number = 0;
  int code = driver.cuDeviceGet(&number, device->index);
  const struct {
    int attribute, *value;
  } of_device[] =
      {{DEVICE_ATTRIBUTE_GRID_X, &info->most_grid[0]},       {DEVICE_ATTRIBUTE_GRID_X + 1, &info->most_grid[1]},
       {DEVICE_ATTRIBUTE_GRID_X + 2, &info->most_grid[2]},   {DEVICE_ATTRIBUTE_BLOCK_X, &info->most_block[0]},
       {DEVICE_ATTRIBUTE_BLOCK_X + 1, &info->most_block[1]}, {DEVICE_ATTRIBUTE_BLOCK_X + 2, &info->most_block[2]},
       {DEVICE_ATTRIBUTE_SHARED_PER_BLOCK, &shared_bytes},   {DEVICE_ATTRIBUTE_MULTIPROCESSORS, &info->multiprocessors},
       {DEVICE_ATTRIBUTE_COOPERATIVE, &info->cooperative},   {DEVICE_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN, &optin_bytes}},
    of_function[] = {{FUNCTION_MOST_THREADS, &info->most_threads},
                     {FUNCTION_SHARED, &own_bytes},
                     {FUNCTION_REGISTERS, &info->registers}};
  for (size_t i = 0; i < sizeof of_device / sizeof *of_device && !code; i++)
    code = driver.cuDeviceGetAttribute(of_device[i].value, of_device[i].attribute, number);
  for (size_t i = 0; i < sizeof of_function / sizeof *of_function && !code; i++)
    code = driver.cuFuncGetAttribute(of_function[i].value, of_function[i].attribute, function);
  if (!code) code = driver.cuOccupancyMaxPotentialBlockSize(&grid, &info->good_threads, function, NULL, 0, 0);
  if (code) return code;
  if (!driver.cuLaunchKernelEx || driver.cuDeviceGetAttribute(&info->clusters, DEVICE_ATTRIBUTE_CLUSTERS, number))
    info->clusters = 0; /* the driver is older */
  if (!driver.cuLaunchKernelEx) info->cooperative = 0;
  if (optin_bytes < shared_bytes) optin_bytes = shared_bytes;
  info->fixed_shared_bytes = own_bytes;
  info->most_shared_bytes = optin_bytes > own_bytes ? optin_bytes - own_bytes : 0;
  return SUCCESS;
}

static int cuda_function_make(oa_device *device, void *module, const char *name, void **function,
                              oa_kernel_info *info) {
  struct function *made = calloc(1, sizeof *made);
  void *saved;
  if (!made) return oa_fail(OA_ERROR_MEMORY, "%s: out of host memory", device->name);
  int status = cuda_enter(device, &saved), shared_bytes = 0;
  if (status == OA_OK) {
    int code = driver.cuModuleGetFunction(&made->native, module, name);
    if (code == NOT_FOUND) {
      status = oa_fail(OA_ERROR_MODULE, "%s: the module has no kernel of that name", name);
    } else {
      if (!code) code = driver.cuFuncGetAttribute(&shared_bytes, FUNCTION_MOST_DYNAMIC_SHARED, made->native);
      if (!code) code = read_info(device, made->native, info);
      if (code) status = backend_error(device, code, "finding kernel %.64s", name);
    }
    status = leave_context(device, saved, status);
  }
  if (status) {
    free(made);
    return status;
  }
  made->most_shared_bytes = (int)info->most_shared_bytes;
  atomic_init(&made->shared_bytes, shared_bytes);
  *function = made;
  return OA_OK;
}

static void cuda_function_free(oa_device *device, void *function) {
  (void)device;
  free(function);
}

/* The driver has no name for the end of the list: a number behind the last one is an invalid value to it. */
static int cuda_function_parameter(oa_device *device, void *function, int number, size_t *offset, size_t *nbytes) {
  const struct function *f = function;
  void *saved;
  *nbytes = SIZE_MAX;
  if (!driver.cuFuncGetParamInfo) return OA_OK;
  const int status = cuda_enter(device, &saved);
  if (status) return status;
  if (driver.cuFuncGetParamInfo(f->native, (size_t)number, offset, nbytes)) *nbytes = 0;
  return leave_context(device, saved, OA_OK);
}

/* Permits launches with all the dynamic shared memory that there is. With the context current; returns the driver's
 * code. */
static __attribute__((cold, noinline)) int opt_in(struct function *function) {
  const int code =
      driver.cuFuncSetAttribute(function->native, FUNCTION_MOST_DYNAMIC_SHARED, function->most_shared_bytes);
  if (!code) atomic_store(&function->shared_bytes, function->most_shared_bytes);
  return code;
}

static __attribute__((noinline)) int launch_with_attributes(cu_function function, const oa_launch *l, cu_stream stream,
                                                            void **arguments) {
  struct launch_attribute attributes[2];
  struct launch_config config = {.shared_bytes = (unsigned)l->shared_bytes, .stream = stream, .attributes = attributes};
  memcpy(config.grid, l->grid, sizeof config.grid);
  memcpy(config.block, l->block, sizeof config.block);
  memset(attributes, 0, sizeof attributes);
  if (l->cooperative) {
    attributes[config.attribute_count].kind = LAUNCH_COOPERATIVE;
    attributes[config.attribute_count++].cooperative = 1;
  }
  if (l->cluster[0]) {
    attributes[config.attribute_count].kind = LAUNCH_CLUSTER;
    memcpy(attributes[config.attribute_count++].cluster, l->cluster, sizeof l->cluster);
  }
  return driver.cuLaunchKernelEx(&config, function, arguments, NULL);
}

static int cuda_launch(oa_device *device, void *stream, void *function, const oa_launch *l, void **arguments) {
  struct function *f = function;
  void *saved;
  int status = cuda_enter(device, &saved);
  if (status) return status;
  const int shared_bytes = (int)l->shared_bytes;
  int code = SUCCESS;
  if (__builtin_expect(shared_bytes > atomic_load_explicit(&f->shared_bytes, memory_order_relaxed), 0))
    code = opt_in(f);
  if (__builtin_expect(l->cooperative || l->cluster[0], 0) && !code)
    code = launch_with_attributes(f->native, l, stream, arguments);
  else if (!code)
    code = driver.cuLaunchKernel(f->native, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2],
                                 (unsigned)shared_bytes, stream, arguments, NULL);
  if (__builtin_expect(code, 0))
    status = backend_error(device, code, "cuLaunchKernel(grid %ux%ux%u, block %ux%ux%u)", l->grid[0], l->grid[1],
                           l->grid[2], l->block[0], l->block[1], l->block[2]);
  return leave_context(device, saved, status);
}

const oa_backend oa_backend_cuda = {
    .name = "cuda",
    .flags = OA_DEVICE_GPU | OA_PINNED_IN_PLACE,
    .dlpack_type = 2, /* kDLCUDA */
    .count = cuda_count,
    .open = cuda_open,
    .memory = cuda_memory,
    .allocate = cuda_allocate,
    .free = cuda_free,
    .trim = cuda_trim,
    .copy_up = cuda_copy_up,
    .copy_down = cuda_copy_down,
    .copy_up_later = cuda_copy_up_later,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .pinned = cuda_pinned,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .stream_create = cuda_stream_create,
    .stream_synchronize = cuda_stream_synchronize,
    .stream_wait = cuda_stream_wait,
    .stream_capturing = cuda_stream_capturing,
    .event_create = cuda_event_create,
    .event_record = cuda_event_record,
    .event_destroy = cuda_event_destroy,
    .event_done = cuda_event_done,
    .event_synchronize = cuda_event_synchronize,
    .synchronize = cuda_synchronize,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .module_load = cuda_module_load,
    .module_unload = cuda_module_unload,
    .function_make = cuda_function_make,
    .function_free = cuda_function_free,
    .function_parameter = cuda_function_parameter,
    .launch = cuda_launch,
};
