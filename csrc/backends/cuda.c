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

struct node_parameters {
  int kind, reserved[3];
  union {
    char bytes[232];
    struct {
      void *function;
      unsigned grid[3], block[3], shared_bytes;
      void **arguments, **extra;
      void *kernel, *context;
    } kernel;
    struct {
      void *graph;
      int ownership;
    } child;
    struct {
      unsigned long long handle;
      int kind;
      unsigned count;
      void *const *graphs; /* the driver sets this list */
      void *context;
    } conditional;
  };
  long long reserved_last;
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
       ATTRIBUTE_HOST_PAGE_TABLES = 100,
       ATTRIBUTE_MEMORY_POOLS = 115,
       POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
       ON_HOST = 1,
       ON_DEVICE = 2,
       ANYWHERE = 4, /* the driver derives the kind of memory from the address */
       NODE_KERNEL = 0,
       NODE_CHILD = 4,
       NODE_CONDITIONAL = 13,
       CONDITION_WHILE = 1,
       CONDITION_ASSIGN_DEFAULT = 1
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

/* Pushes the context, and sets *saved to the device if the context has to be popped. Refuses a context that other code
 * has reset, because a library's function in such a context would end the process. The check, a query of the context's
 * version, takes 9 ns. */
static int gpu_enter(oa_device *device, void **saved) {
  struct gpu *gpu = device->state;
  gpu_context current = NULL;
  unsigned version;
  *saved = NULL;
  if (OA_UNLIKELY(atomic_load_explicit(&device->stuck, memory_order_relaxed))) return fail_stuck(device);
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

static void forget_error(void) {} /* the driver has no record of the last failure */
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

struct extra {
  gpu_function until; /* the kernel that ends loops of graphs, made at first need */
};

static int make_extra(oa_device *device) {
  struct gpu *gpu = device->state;
  gpu->extra = calloc(1, sizeof *gpu->extra);
  return gpu->extra ? OA_OK : oa_fail(OA_ERROR_MEMORY, "%s: out of host memory", device->name);
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
  (void)most_threads; /* the driver uses the kernel's own limit */
  return driver.occupancy(&grid, threads, function, NULL, 0, 0);
}

static int read_more_info(int number, oa_kernel_info *info, int *shared_bytes) {
  int optin_bytes = 0;
  const int code = driver.device_attribute(&optin_bytes, ATTRIBUTE_SHARED_PER_BLOCK_OPTIN, number);
  if (optin_bytes > *shared_bytes) *shared_bytes = optin_bytes;
  if (!driver.launch_ex || driver.device_attribute(&info->clusters, ATTRIBUTE_CLUSTERS, number))
    info->clusters = 0; /* the driver is too old for launches with clusters */
  if (!driver.launch_ex) info->cooperative = 0;
  return code;
}

static int permit_shared(gpu_function function, int nbytes) {
  return driver.function_set(function, FUNCTION_MOST_DYNAMIC_SHARED, nbytes);
}

/* The driver has no separate status for the end of the list of parameters. If `number` is after the last parameter, the
 * driver reports an invalid value. */
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

/* -- loops of graphs ---------------------------------------------------------------------------------------------- */

/* The source of the kernel that ends each step of a loop. The driver provides the function that this kernel calls. */
static const char until_ptx[] =
    ".version 6.0\n"
    ".target sm_60\n"
    ".address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
    ".visible .entry offload_args_until(.param .u64 number, .param .u32 words, .param .u32 word_bytes,\n"
    " .param .u64 bits, .param .u64 at_most, .param .u64 count, .param .u64 outcome, .param .u64 handle)\n"
    "{\n"
    "  .reg .pred %of_1, %of_2, %of_4, %of_8, %more, %ended, %spent, %stops;\n"
    "  .reg .b32 %left, %bytes, %goes_on;\n"
    "  .reg .b64 %at, %step, %bits, %word, %any, %most, %count, %steps, %outcome, %flag, %handle;\n"
    "  ld.param.u64 %count, [count];\n"
    "  ld.global.u64 %steps, [%count];\n"
    "  ld.param.u64 %at, [number];\n"
    "  ld.param.u32 %left, [words];\n"
    "  ld.param.u32 %bytes, [word_bytes];\n"
    "  ld.param.u64 %bits, [bits];\n"
    "  ld.param.u64 %most, [at_most];\n"
    "  ld.param.u64 %outcome, [outcome];\n"
    "  ld.param.u64 %handle, [handle];\n"
    "  setp.eq.u32 %of_1, %bytes, 1;\n"
    "  setp.eq.u32 %of_2, %bytes, 2;\n"
    "  setp.eq.u32 %of_4, %bytes, 4;\n"
    "  setp.eq.u32 %of_8, %bytes, 8;\n"
    "  cvt.u64.u32 %step, %bytes;\n"
    "  mov.u64 %any, 0;\n"
    "NEXT:\n"
    "  @%of_1 ld.global.u8 %word, [%at];\n"
    "  @%of_2 ld.global.u16 %word, [%at];\n"
    "  @%of_4 ld.global.u32 %word, [%at];\n"
    "  @%of_8 ld.global.u64 %word, [%at];\n"
    "  and.b64 %word, %word, %bits;\n"
    "  or.b64 %any, %any, %word;\n"
    "  add.u64 %at, %at, %step;\n"
    "  sub.u32 %left, %left, 1;\n"
    "  setp.ne.u32 %more, %left, 0;\n"
    "  @%more bra NEXT;\n"
    "  add.u64 %steps, %steps, 1;\n"
    "  st.global.u64 [%count], %steps;\n"
    "  setp.ne.u64 %ended, %any, 0;\n"
    "  setp.ge.u64 %spent, %steps, %most;\n"
    "  or.pred %stops, %ended, %spent;\n"
    "  selp.u64 %flag, 1, 0, %ended;\n"
    "  @%stops st.global.u64 [%outcome], %steps;\n"
    "  @%stops st.global.u64 [%outcome+8], %flag;\n"
    "  selp.u32 %goes_on, 0, 1, %stops;\n"
    "  {\n"
    "    .param .b64 to_handle;\n"
    "    .param .b32 to_value;\n"
    "    st.param.b64 [to_handle], %handle;\n"
    "    st.param.b32 [to_value], %goes_on;\n"
    "    call.uni cudaGraphSetConditional, (to_handle, to_value);\n"
    "  }\n"
    "  ret;\n"
    "}\n";

/* Returns the kernel of until_ptx, which is loaded at first need; NULL if the driver refuses it. Called with the
 * context current. */
static gpu_function until_kernel(struct extra *extra) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  gpu_module module = NULL;
  if (!extra->until && !driver.module_load(&module, until_ptx, 0, NULL, NULL) &&
      driver.module_function(&extra->until, module, "offload_args_until")) {
    extra->until = NULL;
    driver.module_unload(module);
  }
  gpu_function until = extra->until;
  pthread_mutex_unlock(&mutex);
  return until;
}

/* Fills the empty graph `outer` with a loop. Each step runs the body and then the kernel, which decides whether another
 * step follows. Called with the context current. Returns the driver's code. */
static int fill_loop(gpu_graph outer, gpu_graph body, gpu_context context, gpu_function kernel,
                     const oa_graph_until *until) {
  unsigned long long handle;
  uint64_t address = until->address, bits = until->bits, at_most = (uint64_t)until->at_most, count = until->count,
           outcome = (uintptr_t)until->outcome;
  unsigned words = (unsigned)until->words, word_bytes = (unsigned)until->word_bytes;
  void *arguments[] = {&address, &words, &word_bytes, &bits, &at_most, &count, &outcome, &handle}, *node, *steps;
  int code = driver.conditional_create(&handle, outer, context, 1, CONDITION_ASSIGN_DEFAULT);
  struct node_parameters loop = {
      .kind = NODE_CONDITIONAL,
      .conditional = {.handle = handle, .kind = CONDITION_WHILE, .count = 1, .context = context}};
  if (!code) code = driver.node_add(&node, outer, NULL, NULL, 0, &loop);
  struct node_parameters child = {.kind = NODE_CHILD, .child = {.graph = body}};
  if (!code) code = driver.node_add(&steps, loop.conditional.graphs[0], NULL, NULL, 0, &child);
  struct node_parameters last = {
      .kind = NODE_KERNEL,
      .kernel = {
          .function = kernel, .grid = {1, 1, 1}, .block = {1, 1, 1}, .arguments = arguments, .context = context}};
  if (!code) code = driver.node_add(&node, loop.conditional.graphs[0], &steps, NULL, 1, &last);
  return code;
}

/* Leaves *loop NULL if the driver has no loops, or refuses a node of the graph in a loop, such as an allocation by a
 * library. */
static int gpu_graph_loop(oa_device *device, void *graph, const oa_graph_until *until, void **loop) {
  const struct gpu *gpu = device->state;
  const struct graph *body = graph;
  void *saved;
  *loop = NULL;
  if (!driver.graph_create || !driver.conditional_create || !driver.node_add) return OA_OK;
  struct graph *fresh = calloc(1, sizeof *fresh);
  const int status = fresh ? gpu_enter(device, &saved) : OA_OK;
  if (status || !fresh) {
    free(fresh);
    return status;
  }
  const int mode = exchange_mode(RELAXED_MODE);
  const gpu_function kernel = until_kernel(gpu->extra);
  gpu_graph outer = NULL, instance = NULL;
  int code = kernel ? driver.graph_create(&outer, 0) : NOT_FOUND;
  if (!code) code = fill_loop(outer, body->captured, gpu->context, kernel, until);
  if (!code) code = instantiate(&instance, outer);
  if (outer) driver.graph_destroy(outer);
  exchange_mode(mode);
  if (code) {
    free(fresh);
  } else {
    atomic_init(&fresh->instance, instance);
    *loop = fresh;
  }
  return leave_context(device, saved, OA_OK);
}

const oa_backend oa_backend_cuda = {
    .name = "cuda",
    .flags = OA_DEVICE_GPU | OA_PINNED_IN_PLACE,
    .dlpack_type = 2, /* kDLCUDA */
    GPU_ENTRIES,
    .graph_loop = gpu_graph_loop,
};
