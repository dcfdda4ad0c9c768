/* AMD GPUs through libamdhip64 of HIP 5, 6 and 7, loaded at run time; the prototypes are our own (hip.def). */
#include "device/backend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *gpu_address;

struct pointer_attributes {
  int type; /* its values changed with HIP 6 */
  int device;
  void *on_device, *on_host;
  int is_managed;
  unsigned flags;
};

enum { /* the driver's constants that are used here alone */
       ATTRIBUTE_COOPERATIVE = 10,
       ATTRIBUTE_BLOCK_X = 26, /* and y, z behind it */
       ATTRIBUTE_GRID_X = 29,  /* likewise */
       ATTRIBUTE_MULTIPROCESSORS = 63,
       ATTRIBUTE_SHARED_PER_BLOCK = 74,
       ATTRIBUTE_COMPUTE_MAJOR = 23,
       ATTRIBUTE_COMPUTE_MINOR = 61,
       ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 65,
       ATTRIBUTE_MEMORY_POOLS = 88,
       NO_DEVICE = 100,
       INVALID_DEVICE = 101,
       KIND_UP = 1, /* of a copy */
       KIND_DOWN = 2,
       KIND_DEVICE = 3, /* either end may be pinned memory as well */
       HOST_5 = 0,      /* types of memory, by HIP's major version */
       PLAIN_6 = 0,
       HOST_6 = 1,
       ARCHITECTURE_5 = 396, /* where it stands in the properties of a device */
       ARCHITECTURE_6 = 1160
};

#define DRIVER_DEF "hip.def"
#define DRIVER_LIBRARY "libamdhip64"
#define OLDEST "HIP 5.2"
#define VENDOR "AMD"
#define NEEDS_POOLS 0
#define KEEPS_IMAGES 1
#define STAGES_LINES 0
#include "gpu.inc"

/* -- loading ------------------------------------------------------------------------------------------------------ */

/* Functions that return no code, or are not in every release; NULL if missing. */
static const char *(*error_name)(int code), *(*error_text)(int code);
static int (*properties_5)(void *properties, int number), (*properties_6)(void *properties, int number);

static const char *code_name(int code) {
  const char *name = error_name ? error_name(code) : NULL;
  return name ? name : "unknown error";
}

static const char *code_text(int code) {
  const char *text = error_text ? error_text(code) : NULL;
  return text ? text : "no description";
}

static const char *advice(int code) {
  if (code != NO_DEVICE && code != INVALID_DEVICE) return "";
  return "; HIP is installed, but there is no AMD GPU that this process may see and use (/dev/kfd, the group render, "
         "HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES?)";
}

/* Returns HIP's major version. */
static int major_version(void) { return driver_version / 10000000; }

/* Looks for one that the process has loaded; then in ROCM_PATH, in /opt/rocm and where the system looks. */
static void *find_driver(void) {
  static const char *const sonames[] = {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
  enum { SONAMES = sizeof sonames / sizeof *sonames };
  const char *rocm = getenv("ROCM_PATH");
  const char *const folders[] = {rocm && rocm[0] == '/' ? rocm : NULL, "/opt/rocm", ""};
  void *library = NULL;
  for (int i = 0; i < SONAMES && !library; i++) library = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
    for (int i = 0; i < SONAMES && folders[f] && !library; i++) {
      char path[4096];
      const int length = snprintf(path, sizeof path, *folders[f] ? "%s/lib/%s" : "%s%s", folders[f], sonames[i]);
      if (length < 0 || (size_t)length >= sizeof path) continue;
      library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
      if (library) break;
      const char *why = dlerror(); /* the first fault of a library that is there: perhaps it needs one that is not */
      const bool is_absent = !why || (strncmp(why, path, (size_t)length) == 0 && strstr(why, "No such file"));
      if (!is_absent && !*driver_missing)
        snprintf(driver_missing, sizeof driver_missing, "%s could not be loaded: %s", sonames[i], why);
    }
  }
  return library;
}

static void *open_driver(void) {
  void *library = find_driver();
  if (!library) {
    if (!*driver_missing)
      snprintf(driver_missing, sizeof driver_missing,
               "libamdhip64.so not found: no ROCm (looked in ROCM_PATH, "
               "/opt/rocm and where the system looks)");
    return NULL;
  }
  *driver_missing = 0;
  *(void **)&error_name = dlsym(library, "hipGetErrorName");
  *(void **)&error_text = dlsym(library, "hipGetErrorString");
  *(void **)&properties_5 = dlsym(library, "hipGetDeviceProperties");
  *(void **)&properties_6 = dlsym(library, "hipGetDevicePropertiesR0600");
  return library;
}

/* Sets the model to the name and the target that code has to suit: "AMD Instinct MI210 (gfx90a:sramecc+:xnack-)". */
static int describe(oa_device *device, int number) {
  enum { MOST = 16384 };
  int code = driver.device_name(device->model, sizeof device->model, number);
  if (code) return failed(device, code, names.device_name, 0, 0);
  char *properties = calloc(1, MOST);
  if (!properties) return oa_fail(OA_ERROR_MEMORY, "%s: out of host memory", device->name);
  const char *architecture = properties + (properties_6 ? ARCHITECTURE_6 : ARCHITECTURE_5);
  code = properties_6   ? properties_6(properties, device->index)
         : properties_5 ? properties_5(properties, device->index)
                        : 1;
  const size_t length = strlen(device->model);
  if (code == SUCCESS && strncmp(architecture, "gfx", 3) == 0)
    snprintf(device->model + length, sizeof device->model - length, "%s(%.63s)", length ? " " : "", architecture);
  free(properties);
  return OA_OK;
}

/* -- the current device ------------------------------------------------------------------------------------------- */

/* *saved is 1 + the device that was current. */
static int gpu_enter(oa_device *device, void **saved) {
  int current = -1;
  *saved = NULL;
  int code = driver.current_device(&current);
  if (code) return failed(device, code, names.current_device, 0, 0);
  if (__builtin_expect(current == device->index, 1)) return OA_OK;
  code = driver.set_device(device->index);
  if (code) return failed(device, code, names.set_device, 0, 0);
  *saved = (void *)(intptr_t)(current + 1);
  return OA_OK;
}

static int gpu_leave(oa_device *device, void *saved) {
  if (!saved) return OA_OK;
  const int code = driver.set_device((int)(intptr_t)saved - 1);
  return code ? failed(device, code, names.set_device, 0, 0) : OA_OK;
}

/* The program may look for failures of its own calls: it finds none of the calls here. */
static void forget_error(void) { driver.last_error(); }

/* A reset ends all streams. HIP has no other sign of it, and says that the context is destroyed of any stream that it
 * does not know, such as one that the program has destroyed. */
static bool was_reset(oa_device *device, int code) {
  enum { INVALID_VALUE = 1, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, CONTEXT_IS_DESTROYED = 709 };
  struct gpu *gpu = device->state;
  const gpu_stream own = gpu ? atomic_load(&gpu->first_stream) : NULL;
  if (code == INVALID_CONTEXT) return true;
  if (!own || (code != INVALID_VALUE && code != INVALID_HANDLE && code != CONTEXT_IS_DESTROYED)) return false;
  int capturing;
  return driver.stream_capturing(own, &capturing) != SUCCESS;
}

/* -- captures ----------------------------------------------------------------------------------------------------- */

/* While a program captures any stream for all threads, HIP refuses to wait for streams and events that it does not
 * capture, and to allocate and free memory: with this code. */
enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_RELAXED = 2 };

/* Asks whether an event has happened until it has. */
static int poll_event(gpu_event event) {
  int code;
  while ((code = driver.event_query(event)) == NOT_READY) usleep(50);
  forget_error();
  return code;
}

static int wait_for_event(gpu_event event) {
  const int code = driver.event_synchronize(event);
  return __builtin_expect(code == CAPTURE_UNSUPPORTED, 0) ? poll_event(event) : code;
}

static __attribute__((cold, noinline)) int wait_beside_captures(gpu_stream stream) {
  gpu_event event;
  int capturing = 0, code = driver.stream_capturing(stream, &capturing);
  if (code || capturing) return code ? code : CAPTURE_UNSUPPORTED;
  if ((code = driver.event_create(&event, EVENT_DISABLE_TIMING))) return code;
  code = driver.event_record(event, stream);
  if (!code) code = poll_event(event);
  driver.event_destroy(event);
  return code;
}

static int wait_for_stream(gpu_stream stream) {
  const int code = driver.stream_synchronize(stream);
  return __builtin_expect(code == CAPTURE_UNSUPPORTED, 0) ? wait_beside_captures(stream) : code;
}

/* Returns the code of a call; makes it again after that code, with this thread permitted to do what no capture of
 * another one need know of. */
#define BESIDE_CAPTURES(call)                                                                \
  ({                                                                                         \
    int code_ = (call), mode_ = CAPTURE_RELAXED;                                             \
    if (__builtin_expect(code_ == CAPTURE_UNSUPPORTED, 0) && driver.exchange_capture_mode && \
        !driver.exchange_capture_mode(&mode_)) {                                             \
      code_ = (call);                                                                        \
      driver.exchange_capture_mode(&mode_);                                                  \
    }                                                                                        \
    code_;                                                                                   \
  })

static int pin_memory(void **memory, size_t nbytes) {
  return BESIDE_CAPTURES(driver.pin(memory, nbytes, HOST_PORTABLE));
}

static int unpin_memory(void *memory) { return BESIDE_CAPTURES(driver.unpin(memory)); }

/* -- memory ------------------------------------------------------------------------------------------------------- */

static int allocate_memory(gpu_pool pool, gpu_address *address, size_t nbytes, gpu_stream stream,
                           const char **function) {
  *function = pool ? names.allocate : names.allocate_now;
  return pool ? driver.allocate(address, nbytes, pool, stream) : BESIDE_CAPTURES(driver.allocate_now(address, nbytes));
}

/* Without a pool, hipFree waits for the whole device first. */
static int free_memory(gpu_pool pool, gpu_address address, gpu_stream stream, const char **function) {
  *function = pool ? names.free : names.free_now;
  return pool ? driver.free(address, stream) : BESIDE_CAPTURES(driver.free_now(address));
}

static enum memory_kind memory_kind(const void *memory) {
  struct pointer_attributes attributes = {0};
  if (driver.pointer_attributes(&attributes, memory) != SUCCESS) { /* HIP 5's answer to plain memory */
    forget_error();
    return MEMORY_PLAIN;
  }
  if (attributes.is_managed) return MEMORY_OTHER;
  if (major_version() < 6) return attributes.type == HOST_5 ? MEMORY_PINNED : MEMORY_OTHER;
  return attributes.type == PLAIN_6 ? MEMORY_PLAIN : attributes.type == HOST_6 ? MEMORY_PINNED : MEMORY_OTHER;
}

/* Before HIP 6.3, a copy or a fill with a stream of a device that other code has reset uses freed memory. */
static int check_stream(gpu_stream stream) {
  int capturing;
  return stream ? driver.stream_capturing(stream, &capturing) : SUCCESS;
}

/* Copies between memory that HIP knows. Its default kind, by which HIP finds out, does harm: memory that HIP does not
 * know, such as that of a device that was reset, is then copied by the host; and HIP 5.7 adds the offset of a pinned
 * address twice in 2-D copies. */
static int copy_any(uint64_t to, uint64_t from, size_t nbytes, gpu_stream stream) {
  return driver.copy((gpu_address)to, (gpu_address)from, nbytes, KIND_DEVICE, stream);
}

static int copy_2d(enum copy_kind kind, uint64_t to, size_t to_pitch, uint64_t from, size_t from_pitch, size_t width,
                   size_t lines, gpu_stream stream) {
  static const int kinds[] = {[COPY_UP] = KIND_UP, [COPY_DOWN] = KIND_DOWN, [COPY_ANY] = KIND_DEVICE};
  return driver.copy_2d((void *)to, to_pitch, (const void *)from, from_pitch, width, lines, kinds[kind], stream);
}

static int copy_peer_1d(const oa_device *device, uint64_t to, const oa_device *source, uint64_t from, size_t nbytes,
                        gpu_stream stream) {
  return driver.copy_peer((void *)to, device->index, (const void *)from, source->index, nbytes, stream);
}

/* HIP's copy of rectangles needs access to the other device's memory, and may fault without it. Many short copies take
 * longer than the host's one. */
static int copy_peer_2d(const oa_device *device, uint64_t to, size_t to_pitch, const oa_device *source, uint64_t from,
                        size_t from_pitch, size_t width, size_t lines, gpu_stream stream) {
  enum { SHORT = 64 << 10, NOT_SUPPORTED = 801 };
  if (width < SHORT) return NOT_SUPPORTED;
  int code = SUCCESS;
  for (size_t i = 0; i < lines && code == SUCCESS; i++)
    code = copy_peer_1d(device, to + i * to_pitch, source, from + i * from_pitch, width, stream);
  return code;
}

/* HIP fills rectangles with bytes alone. */
static int fill_2d(uint64_t to, size_t pitch, uint32_t value, size_t unit, size_t width, size_t lines,
                   gpu_stream stream) {
  const uint32_t byte = value & 0xff, mask = unit == 4 ? UINT32_MAX : (1u << (8 * unit)) - 1;
  if ((value & mask) == (byte * 0x01010101u & mask))
    return driver.fill_2d_8((void *)to, pitch, (int)byte, width, lines, stream);
  int code = SUCCESS;
  for (size_t i = 0; i < lines && code == SUCCESS; i++) code = fill_line(to + i * pitch, value, unit, width, stream);
  return code;
}

/* -- kernels ------------------------------------------------------------------------------------------------------ */

/* HIP rounds the limit up to whole waves. */
static int good_block(gpu_function function, int most_threads, int *threads) {
  int grid = 0;
  const int code = driver.occupancy(&grid, threads, function, 0, most_threads);
  if (*threads > most_threads || *threads < 1) *threads = most_threads;
  return code;
}

/* All of a block's shared memory may be asked for, and there are no clusters. */
static int read_more_info(int number, oa_kernel_info *info, int *shared_bytes) {
  (void)number;
  (void)shared_bytes;
  info->clusters = 0;
  if (!driver.launch_cooperative) info->cooperative = 0; /* before HIP 5.3 */
  return SUCCESS;
}

static int permit_shared(gpu_function function, int nbytes) {
  (void)function;
  (void)nbytes;
  return SUCCESS;
}

static int launch_with_attributes(gpu_function function, const oa_launch *l, gpu_stream stream, void **arguments) {
  return driver.launch_cooperative(function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2],
                                   (unsigned)l->shared_bytes, stream, arguments);
}

/* HIP does not tell. The binary's own metadata does. */
static void read_parameter(gpu_function function, size_t number, size_t *offset, size_t *nbytes) {
  (void)function;
  (void)number;
  *offset = 0;
  *nbytes = SIZE_MAX;
}

const oa_backend oa_backend_hip = {
    .name = "hip",
    .flags = OA_DEVICE_GPU | OA_PINNED_IN_PLACE | OA_COUNTS_THREADS,
    .dlpack_type = 10, /* kDLROCM */
    GPU_ENTRIES,
};
