/* NVIDIA GPUs through libcuda.so.1, which is loaded at run time. The prototypes are our own (cuda.def). */
#include "device/backend.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long gpu_address;

struct copy_parameters {
  size_t from_x, from_y;
  int from_type;
  const void *from_host;
  gpu_address from_device;
  void *from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  int to_type;
  void *to_host;
  gpu_address to_device;
  void *to_array;
  size_t to_pitch;
  size_t width, lines;
};

struct peer_copy {
  size_t from_x, from_y, from_z, from_level;
  int from_type;
  const void *from_host;
  gpu_address from_device;
  void *from_array, *from_context;
  size_t from_pitch, from_height;
  size_t to_x, to_y, to_z, to_level;
  int to_type;
  void *to_host;
  gpu_address to_device;
  void *to_array, *to_context;
  size_t to_pitch, to_height;
  size_t width, lines, depth;
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
  void *stream;
  struct launch_attribute *attributes;
  unsigned attribute_count;
};

enum {                        /* constants of the driver that only this file uses */
       ATTRIBUTE_BLOCK_X = 2, /* y and z follow */
       ATTRIBUTE_GRID_X = 5,  /* y and z follow */
       ATTRIBUTE_SHARED_PER_BLOCK = 8,
       ATTRIBUTE_MULTIPROCESSORS = 16,
       ATTRIBUTE_COOPERATIVE = 95,
       ATTRIBUTE_SHARED_PER_BLOCK_OPTIN = 97,
       ATTRIBUTE_CLUSTERS = 120,
       LAUNCH_COOPERATIVE = 2,
       LAUNCH_CLUSTER = 4,
       ATTRIBUTE_COMPUTE_MAJOR = 75,
       ATTRIBUTE_COMPUTE_MINOR = 76,
       ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 88,
       ATTRIBUTE_MEMORY_POOLS = 115,
       POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
       ON_HOST = 1,
       ON_DEVICE = 2,
       ANYWHERE = 4 /* the address tells the kind of memory */
};

#define DRIVER_DEF "cuda.def"
#define DRIVER_LIBRARY "libcuda.so.1"
#define OLDEST "a driver of CUDA 11.3"
#define VENDOR "NVIDIA"
#define NEEDS_POOLS 1
#define KEEPS_IMAGES 0
#define STAGES_LINES 1
#define ENTERS_RELAXED 0
#include "gpu.inc"

/* -- loading ------------------------------------------------------------------------------------------------------ */

static const char *code_name(int code) {
  const char *name = NULL;
  return driver.error_name(code, &name) == SUCCESS && name ? name : "unknown error";
}

static const char *code_text(int code) {
  const char *text = NULL;
  return driver.error_text(code, &text) == SUCCESS && text ? text : "no description";
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

static void *open_driver(void) {
  void *library = dlopen(DRIVER_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  const char *why = library ? NULL : dlerror();
  if (!library && (!why || strstr(why, "No such file")))
    snprintf(driver_missing, sizeof driver_missing, DRIVER_LIBRARY " not found: no NVIDIA driver");
  else if (!library)
    snprintf(driver_missing, sizeof driver_missing, DRIVER_LIBRARY " could not be loaded: %s", why);
  return library;
}

static int describe(oa_device *device, int number) {
  const int code = driver.device_name(device->model, sizeof device->model, number);
  return code ? failed(device, code, names.device_name, 0, 0) : OA_OK;
}

/* -- contexts ----------------------------------------------------------------------------------------------------- */

/* Pushes the context; *saved is the device if it has to be popped. Refuses a context that other code reset, because a
 * library's function would end the process. Asking for its version takes 9 ns. */
static int gpu_enter(oa_device *device, void **saved) {
  struct gpu *gpu = device->state;
  gpu_context current = NULL;
  unsigned version;
  *saved = NULL;
  const int gone = driver.context_version(gpu->context, &version);
  if (OA_UNLIKELY(gone)) return failed(device, gone, names.context_version, 0, 0);
  if (OA_LIKELY(driver.context_current(&current) == SUCCESS && current == gpu->context)) return OA_OK;
  const int code = driver.context_push(gpu->context);
  if (code) return failed(device, code, names.context_push, 0, 0);
  *saved = device;
  return OA_OK;
}

static int gpu_leave(oa_device *device, void *saved) {
  if (!saved) return OA_OK;
  gpu_context popped;
  const int code = driver.context_pop(&popped);
  return code ? failed(device, code, names.context_pop, 0, 0) : OA_OK;
}

static void forget_error(void) {} /* the driver's interface keeps no such record */
static void forget_not_ready(void) {}

static bool was_reset(oa_device *device, int code) {
  enum { INVALID_CONTEXT = 201, CONTEXT_IS_DESTROYED = 709 };
  (void)device;
  return code == INVALID_CONTEXT || code == CONTEXT_IS_DESTROYED;
}

/* -- memory ------------------------------------------------------------------------------------------------------- */

static int allocate_memory(gpu_pool pool, gpu_address *address, size_t nbytes, gpu_stream stream,
                           const char **function) {
  *function = names.allocate;
  return driver.allocate(address, nbytes, pool, stream);
}

static int free_memory(gpu_pool pool, gpu_address address, gpu_stream stream, const char **function) {
  (void)pool;
  *function = names.free;
  return driver.free(address, stream);
}

static enum memory_kind memory_kind(const void *memory) {
  int type = 0, attribute = POINTER_ATTRIBUTE_MEMORY_TYPE;
  void *values[] = {&type};
  if (driver.pointer_attributes(1, &attribute, values, (uintptr_t)memory) != SUCCESS) return MEMORY_OTHER;
  return type == 0 ? MEMORY_PLAIN : type == ON_HOST ? MEMORY_PINNED : MEMORY_OTHER;
}

static int make_extra(oa_device *device) {
  (void)device;
  return OA_OK;
}

static int note_stream(oa_device *device, gpu_stream stream) {
  (void)device;
  (void)stream;
  return OA_OK;
}

static int check_stream(gpu_stream stream, const char **function) {
  (void)stream;
  (void)function;
  return SUCCESS;
}

static int instantiate(gpu_graph *instance, gpu_graph graph) { return driver.graph_instantiate(instance, graph, 0); }

static int record_event(oa_device *device, gpu_event event, gpu_stream stream) {
  (void)device;
  return driver.event_record(event, stream);
}

static int wait_for_frees(oa_device *device) {
  (void)device;
  return driver.synchronize();
}

static int copy_any(uint64_t to, uint64_t from, size_t nbytes, gpu_stream stream) {
  return driver.copy(to, from, nbytes, stream);
}

static int copy_2d(enum copy_kind kind, uint64_t to, size_t to_pitch, uint64_t from, size_t from_pitch, size_t width,
                   size_t lines, gpu_stream stream) {
  const int other = kind == COPY_ANY ? ANYWHERE : ON_DEVICE;
  const struct copy_parameters copy = {.from_type = kind == COPY_UP ? ON_HOST : other,
                                       .from_host = (const void *)(uintptr_t)from,
                                       .from_device = from,
                                       .from_pitch = from_pitch,
                                       .to_type = kind == COPY_DOWN ? ON_HOST : other,
                                       .to_host = (void *)(uintptr_t)to,
                                       .to_device = to,
                                       .to_pitch = to_pitch,
                                       .width = width,
                                       .lines = lines};
  return driver.copy_2d(&copy, stream);
}

static int pin_memory(void **memory, size_t nbytes) { return driver.pin(memory, nbytes, HOST_PORTABLE); }

static int unpin_memory(void *memory) { return driver.unpin(memory); }

static int wait_for_stream(gpu_stream stream) { return driver.stream_synchronize(stream); }

static int wait_for_event(gpu_event event) { return driver.event_synchronize(event); }

static gpu_context context_of(const oa_device *device) { return ((const struct gpu *)device->state)->context; }

static int copy_peer_1d(const oa_device *device, uint64_t to, const oa_device *source, uint64_t from, size_t nbytes,
                        gpu_stream stream) {
  return driver.copy_peer(to, context_of(device), from, context_of(source), nbytes, stream);
}

static int copy_peer_2d(const oa_device *device, uint64_t to, size_t to_pitch, const oa_device *source, uint64_t from,
                        size_t from_pitch, size_t width, size_t lines, gpu_stream stream) {
  if (!driver.copy_peer_3d) return NOT_FOUND;
  const struct peer_copy copy = {.from_type = ON_DEVICE,
                                 .from_device = from,
                                 .from_context = context_of(source),
                                 .from_pitch = from_pitch,
                                 .from_height = lines,
                                 .to_type = ON_DEVICE,
                                 .to_device = to,
                                 .to_context = context_of(device),
                                 .to_pitch = to_pitch,
                                 .to_height = lines,
                                 .width = width,
                                 .lines = lines,
                                 .depth = 1};
  return driver.copy_peer_3d(&copy, stream);
}

static int fill_2d(uint64_t to, size_t pitch, uint32_t value, size_t unit, size_t width, size_t lines,
                   gpu_stream stream) {
  switch (unit) {
    case 1:
      return driver.fill_2d_8(to, pitch, (unsigned char)value, width, lines, stream);
    case 2:
      return driver.fill_2d_16(to, pitch, (unsigned short)value, width / 2, lines, stream);
    default:
      return driver.fill_2d_32(to, pitch, value, width / 4, lines, stream);
  }
}

/* -- kernels ------------------------------------------------------------------------------------------------------ */

static int good_block(gpu_function function, int most_threads, int *threads) {
  int grid = 0;
  (void)most_threads; /* the driver knows it */
  return driver.occupancy(&grid, threads, function, NULL, 0, 0);
}

static int read_more_info(int number, oa_kernel_info *info, int *shared_bytes) {
  int optin_bytes = 0;
  const int code = driver.device_attribute(&optin_bytes, ATTRIBUTE_SHARED_PER_BLOCK_OPTIN, number);
  if (optin_bytes > *shared_bytes) *shared_bytes = optin_bytes;
  if (!driver.launch_ex || driver.device_attribute(&info->clusters, ATTRIBUTE_CLUSTERS, number))
    info->clusters = 0; /* the driver is older */
  if (!driver.launch_ex) info->cooperative = 0;
  return code;
}

static int permit_shared(gpu_function function, int nbytes) {
  return driver.function_set(function, FUNCTION_MOST_DYNAMIC_SHARED, nbytes);
}

/* The driver has no status for the end of the list: a number after the last one is an invalid value. */
static void read_parameter(gpu_function function, size_t number, size_t *offset, size_t *nbytes) {
  *nbytes = SIZE_MAX;
  if (driver.parameter_info && driver.parameter_info(function, number, offset, nbytes)) *nbytes = 0;
}

static __attribute__((noinline)) int launch_with_attributes(gpu_function function, const oa_launch *l,
                                                            gpu_stream stream, void **arguments) {
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
  return driver.launch_ex(&config, function, arguments, NULL);
}

const oa_backend oa_backend_cuda = {
    .name = "cuda",
    .flags = OA_DEVICE_GPU | OA_PINNED_IN_PLACE,
    .dlpack_type = 2, /* kDLCUDA */
    GPU_ENTRIES,
};
