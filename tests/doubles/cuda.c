/* A double of libcuda.so.1 for machines with no GPU: two devices over host memory. Copies, fills and events are done
 * before a call returns, so it shows that calls are right, not that they are ordered.
 *
 * It is strict: memory, streams and events belong to the device that made them, every call that needs a context needs
 * the right one, and a copy outside the memory that was allocated is an error, as is freeing it twice. The prototypes
 * are those of csrc/backends/cuda.def, so that a wrong one does not compile. */
#define _GNU_SOURCE
#include "../../csrc/include/offload_args/kernel.h"

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The double of HIP has these otherwise. */
#ifndef GPU_NAME
#define GPU_NAME "double of a GPU, number %d"
#define UNKNOWN_HANDLE 400
#define SPOILS_CAPTURES 1                 /* what is refused while a stream is captured makes that capture invalid */
#define HERE(address) ((void *)(address)) /* where the double may use memory of a device */
#define THERE(address) (address)
static void hip_double_begin(void) {} /* around kernels */
static void hip_double_end(void) {}
static char *take_memory(size_t nbytes) { return aligned_alloc(256, (nbytes + 255) / 256 * 256); }
static void give_memory(char *memory, size_t nbytes) {
  (void)nbytes;
  free(memory);
}
#endif

typedef void *gpu_context, *gpu_pool, *gpu_stream, *gpu_event, *gpu_module, *gpu_function;
typedef unsigned long long gpu_address;

struct pool_properties {
  int allocation_type, handle_types;
  int location_type, location_id;
  void *security;
  size_t maximum;
  unsigned short usage;
  unsigned char reserved[54];
};

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

struct pool_access {
  int location_type, location_id, flags;
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
  gpu_stream stream;
  struct launch_attribute *attributes;
  unsigned attribute_count;
};

#define DRIVER(name, symbol, ...) int symbol(__VA_ARGS__);
#define OPTIONAL DRIVER
#include "../../csrc/backends/cuda.def"
#undef OPTIONAL
#undef DRIVER
/* Functions that tests call as a program of its own would. */
int cuDevicePrimaryCtxRelease_v2(int device);
int cuStreamDestroy_v2(gpu_stream stream);
int cuMemHostRegister_v2(void *memory, size_t nbytes, unsigned flags);
int cuMemHostUnregister(void *memory);
struct graph;
int cuStreamBeginCapture_v2(gpu_stream stream, int mode);
int cuStreamEndCapture(gpu_stream stream, struct graph **graph);
int cuGraphInstantiateWithFlags(struct graph **executable, struct graph *graph, unsigned long long flags);
int cuGraphLaunch(struct graph *executable, gpu_stream stream);
int cuGraphExecDestroy(struct graph *executable);
int cuGraphDestroy(struct graph *graph);

enum { DEVICES = 2, SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };
enum { HOST = 1, DEVICE = 2, UNIFIED = 4 };
enum { POISON = 0xc5 };

static const size_t capacity = (size_t)4 << 30;

struct device {
  int number;
  size_t used;
  int is_reset;
};
static struct device devices[DEVICES] = {{0, 0, 0}, {1, 0, 0}};

/* A live object: memory of a device, pinned memory, a stream or an event. */
struct object {
  struct object *next;
  char *memory;
  size_t nbytes;
  int device;     /* -1: pinned */
  int registered; /* the program's own memory, pinned for a while */
  int is_memory;  /* of the device, from take_memory */
};
static struct object *objects;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum { DEPTH = 16 };
static _Thread_local struct device *stack[DEPTH];
static _Thread_local int depth;

static struct device *current(void) { return depth && !stack[depth - 1]->is_reset ? stack[depth - 1] : NULL; }

static void *make_object(size_t nbytes, int device, int is_memory) {
  struct object *one = malloc(sizeof *one);
  char *memory = NULL;
  if (one) memory = is_memory ? take_memory(nbytes) : aligned_alloc(256, (nbytes + 255) / 256 * 256);
  if (!memory) {
    free(one);
    return NULL;
  }
  memset(HERE(memory), POISON, nbytes);
  pthread_mutex_lock(&lock);
  *one = (struct object){objects, memory, nbytes, device, 0, is_memory};
  objects = one;
  pthread_mutex_unlock(&lock);
  return memory;
}
static void *make(size_t nbytes, int device) { return make_object(nbytes, device, 0); }

/* Frees an object. Returns its bytes, or -1 if there is none that begins there. */
static int64_t drop(void *memory, int device) {
  int64_t nbytes = -1;
  pthread_mutex_lock(&lock);
  for (struct object **link = &objects; *link; link = &(*link)->next) {
    struct object *one = *link;
    if (one->memory != memory || one->device != device || one->registered) continue;
    nbytes = (int64_t)one->nbytes;
    memset(HERE(one->memory), POISON, one->nbytes);
    *link = one->next;
    if (one->is_memory)
      give_memory(one->memory, one->nbytes);
    else
      free(one->memory);
    free(one);
    break;
  }
  pthread_mutex_unlock(&lock);
  return nbytes;
}

/* Returns the device of the object that has all these bytes, -1 for pinned memory, -2 if there is none. */
static int owner_of(const void *memory, size_t nbytes) {
  int found = -2;
  memory = THERE(memory);
  pthread_mutex_lock(&lock);
  for (struct object *one = objects; one && found == -2; one = one->next)
    if ((uintptr_t)memory >= (uintptr_t)one->memory &&
        (uintptr_t)memory + nbytes <= (uintptr_t)one->memory + (one->nbytes ? one->nbytes : 1))
      found = one->device;
  pthread_mutex_unlock(&lock);
  return found;
}

/* NULL is the default stream, which every context has. */
static int belongs(const void *object) {
  struct device *device = current();
  if (!device) return INVALID_CONTEXT;
  if (!object) return SUCCESS;
  return owner_of(object, 1) == device->number ? SUCCESS : UNKNOWN_HANDLE;
}

static int on_device(gpu_address address, size_t nbytes) {
  struct device *device = current();
  if (!device) return INVALID_CONTEXT;
  const int owner = owner_of((void *)(uintptr_t)address, nbytes);
  return owner == device->number || owner == -1 ? SUCCESS : INVALID_VALUE; /* pinned memory has an address there, too */
}

/* -- captured graphs: an operation in a stream that is captured is noted, and done when the graph is launched ------ */
enum { ILLEGAL_STATE = 401, UNSUPPORTED = 900, INVALIDATED = 901, UNMATCHED = 903, WRONG_THREAD = 908 };
enum { OF_ALL_THREADS = 0, OF_THIS_THREAD = 1, RELAXED = 2 };

typedef int operation(const void *arguments, gpu_stream stream);
struct node {
  struct node *next;
  operation *run;
  _Alignas(16) char arguments[];
};
/* Never freed: one that was destroyed, or whose capture is under way, has no nodes to run. */
struct graph {
  struct node *first, *last;
  const void *origin; /* the stream whose capture began */
  pthread_t thread;
  int mode, is_invalid, is_complete;
};
static struct graph *last_begun;
static int captures_of_all;
static _Thread_local int captures_here;

/* Returns the place of the graph that captures a stream, or that an event was recorded in. */
static struct graph **capture_in(const void *object) { return (struct graph **)(uintptr_t)object; }
static struct graph *capture_of(const void *stream) {
  struct graph *graph = stream && owner_of(stream, 1) >= 0 ? *capture_in(stream) : NULL;
  return graph && !graph->is_complete ? graph : NULL;
}

/* Notes an operation if the stream is captured. Returns whether it did. */
int gpu_double_captures(const void *stream, operation *run, const void *arguments, size_t nbytes);
int gpu_double_captures(const void *stream, operation *run, const void *arguments, size_t nbytes) {
  struct graph *graph = capture_of(stream);
  if (!graph) return 0;
  struct node *node = calloc(1, sizeof *node + nbytes);
  if (!node) abort();
  node->run = run;
  memcpy(node->arguments, arguments, nbytes);
  *(graph->last ? &graph->last->next : &graph->first) = node;
  graph->last = node;
  return 1;
}

int cuStreamBeginCapture_v2(gpu_stream stream, int mode) {
  const int code = belongs(stream);
  if (code || !stream) return code ? code : UNSUPPORTED;
  if (mode < OF_ALL_THREADS || mode > RELAXED) return INVALID_VALUE;
  if (capture_of(stream)) return ILLEGAL_STATE;
  struct graph *graph = calloc(1, sizeof *graph);
  if (!graph) return OUT_OF_MEMORY;
  *graph = (struct graph){.origin = stream, .thread = pthread_self(), .mode = mode};
  *capture_in(stream) = last_begun = graph;
  if (mode == OF_ALL_THREADS) __atomic_add_fetch(&captures_of_all, 1, __ATOMIC_SEQ_CST);
  if (mode == OF_THIS_THREAD) captures_here++;
  return SUCCESS;
}

int cuStreamEndCapture(gpu_stream stream, struct graph **made) {
  struct graph *graph = capture_of(stream);
  const int code = belongs(stream);
  *made = NULL;
  if (code || !graph) return code ? code : ILLEGAL_STATE;
  if (graph->origin != stream) return UNMATCHED;
  if (graph->mode != RELAXED && !pthread_equal(graph->thread, pthread_self())) return WRONG_THREAD;
  if (graph->mode == OF_ALL_THREADS) __atomic_sub_fetch(&captures_of_all, 1, __ATOMIC_SEQ_CST);
  if (graph->mode == OF_THIS_THREAD) captures_here--;
  graph->is_complete = 1;
  *capture_in(stream) = NULL;
  if (graph->is_invalid) return INVALIDATED;
  *made = graph;
  return SUCCESS;
}

int cuGraphInstantiateWithFlags(struct graph **executable, struct graph *graph, unsigned long long flags) {
  if (!graph || flags) return INVALID_VALUE;
  struct graph *made = calloc(1, sizeof *made);
  if (!made) return OUT_OF_MEMORY;
  *made = *graph; /* it has the nodes that the graph has now */
  return *executable = made, SUCCESS;
}
int cuGraphLaunch(struct graph *executable, gpu_stream stream) {
  int code = belongs(stream);
  if (!code && (!executable || !executable->is_complete)) code = INVALID_VALUE;
  for (const struct node *node = code ? NULL : executable->first; node && !code; node = node->next)
    code = node->run(node->arguments, stream);
  return code;
}
static int destroy_graph(struct graph *graph) {
  if (!graph || !graph->is_complete) return INVALID_VALUE;
  graph->is_complete = 0;
  return SUCCESS;
}
int cuGraphExecDestroy(struct graph *executable) { return destroy_graph(executable); }
int cuGraphDestroy(struct graph *graph) { return destroy_graph(graph); }

/* -- the driver and its devices ------------------------------------------------------------------------------------ */
int cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }
int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cuGetErrorName(int code, const char **name) {
  return *name = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR", 0;
}
int cuGetErrorString(int code, const char **text) {
  return *text = code == 2 ? "out of memory" : "a double's error", 0;
}
int cuDeviceGetCount(int *count) { return *count = DEVICES, SUCCESS; }
int cuDeviceGet(int *device, int ordinal) {
  return *device = ordinal, ordinal >= 0 && ordinal < DEVICES ? SUCCESS : INVALID_DEVICE;
}
int cuDeviceGetName(char *name, int size, int device) {
  snprintf(name, (size_t)size, GPU_NAME, device);
  return SUCCESS;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  static const int values[121] = {
      [2] = 1024, [3] = 1024, [4] = 64, [5] = 0x7fffffff, [6] = 65535,   [7] = 65535, [8] = 49152, [16] = 132,
      [75] = 9,   [76] = 0,   [88] = 0, [95] = 1,         [97] = 232448, [115] = 1,   [120] = 1,
  };
  *value = attribute > 0 && attribute <= 120 ? values[attribute] : 0;
  return device >= 0 && device < DEVICES ? SUCCESS : INVALID_DEVICE;
}

int cuDeviceGetPCIBusId(char *name, int size, int device) {
  if (device < 0 || device >= DEVICES) return INVALID_DEVICE;
  snprintf(name, (size_t)size, "0000:00:%02X.0", device);
  return SUCCESS;
}

/* -- contexts ------------------------------------------------------------------------------------------------------ */
int cuDevicePrimaryCtxRetain(gpu_context *context, int device) { return *context = &devices[device], SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { return device >= 0 && device < DEVICES ? SUCCESS : INVALID_DEVICE; }
int cuDevicePrimaryCtxReset_v2(int device) { return devices[device].is_reset = 1, SUCCESS; }
int cuCtxGetApiVersion(gpu_context context, unsigned *version) {
  return *version = 3020, ((struct device *)context)->is_reset ? INVALID_CONTEXT : SUCCESS;
}
int cuCtxGetCurrent(gpu_context *context) { return *context = current(), SUCCESS; }
int cuCtxPushCurrent_v2(gpu_context context) {
  if (!context || depth == DEPTH) return INVALID_VALUE;
  stack[depth++] = context;
  return SUCCESS;
}
int cuCtxPopCurrent_v2(gpu_context *context) {
  if (!depth) return INVALID_CONTEXT;
  *context = stack[--depth];
  return SUCCESS;
}
int cuCtxSetCurrent(gpu_context context) { /* in place of the innermost one; NULL: none instead of it */
  if (!depth && context) return cuCtxPushCurrent_v2(context);
  if (depth && context) stack[depth - 1] = context;
  if (depth && !context) depth--;
  return SUCCESS;
}
int cuCtxSynchronize(void) { return current() ? SUCCESS : INVALID_CONTEXT; }

/* -- memory -------------------------------------------------------------------------------------------------------- */
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  if (!current()) return INVALID_CONTEXT;
  if (SPOILS_CAPTURES && (captures_here || __atomic_load_n(&captures_of_all, __ATOMIC_SEQ_CST))) {
    last_begun->is_invalid = 1;
    return UNSUPPORTED;
  }
  *total_bytes = capacity;
  *free_bytes = capacity - current()->used;
  return SUCCESS;
}
int cuMemPoolCreate(gpu_pool *pool, const struct pool_properties *properties) {
  return *pool = &devices[properties->location_id], SUCCESS;
}
int cuMemPoolSetAttribute(gpu_pool pool, int attribute, void *value) { return pool && attribute == 4 && value ? 0 : 1; }
int cuMemPoolGetAttribute(gpu_pool pool, int attribute, void *value) {
  const struct device *device = pool;
  *(uint64_t *)value = device->used;
  return attribute == 5 || attribute == 7 ? SUCCESS : INVALID_VALUE;
}
int cuMemPoolTrimTo(gpu_pool pool, size_t keep) { return pool && !keep ? SUCCESS : INVALID_VALUE; }
int cuMemAllocFromPoolAsync(gpu_address *address, size_t nbytes, gpu_pool pool, gpu_stream stream) {
  struct device *device = pool;
  const int code = belongs(stream);
  if (code) return code;
  if (device != current() || !nbytes) return INVALID_VALUE;
  if (nbytes > capacity - device->used) return OUT_OF_MEMORY;
  void *memory = make_object(nbytes, device->number, 1);
  if (!memory) return OUT_OF_MEMORY;
  __atomic_fetch_add(&device->used, nbytes, __ATOMIC_RELAXED);
  *address = (uintptr_t)memory;
  return SUCCESS;
}
int cuMemFreeAsync(gpu_address address, gpu_stream stream) {
  const int code = belongs(stream);
  if (code) return code;
  const int64_t nbytes = drop((void *)(uintptr_t)address, current()->number);
  if (nbytes < 0) return INVALID_VALUE;
  __atomic_fetch_sub(&current()->used, (size_t)nbytes, __ATOMIC_RELAXED);
  return SUCCESS;
}
int cuMemHostAlloc(void **memory, size_t nbytes, unsigned flags) {
  if (!current() || flags != 1) return current() ? INVALID_VALUE : INVALID_CONTEXT;
  *memory = make(nbytes, -1);
  return *memory ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemFreeHost(void *memory) { return drop(memory, -1) < 0 ? INVALID_VALUE : SUCCESS; }
int cuMemHostRegister_v2(void *memory, size_t nbytes, unsigned flags) {
  if (!current() || flags != 1) return current() ? INVALID_VALUE : INVALID_CONTEXT;
  if (owner_of(memory, nbytes) != -2) return 712; /* already registered */
  struct object *one = malloc(sizeof *one);
  if (!one) return OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  *one = (struct object){objects, memory, nbytes, -1, 1, 0};
  objects = one;
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}
int cuMemHostUnregister(void *memory) {
  struct object *found = NULL;
  pthread_mutex_lock(&lock);
  for (struct object **link = &objects; *link && !found; link = &(*link)->next)
    if ((*link)->memory == memory && (*link)->registered) {
      found = *link;
      *link = found->next;
      break;
    }
  pthread_mutex_unlock(&lock);
  free(found);
  return found ? SUCCESS : 713; /* not registered */
}
int cuPointerGetAttributes(unsigned count, int *attributes, void **values, gpu_address address) {
  if (count != 1 || *attributes != 2) return INVALID_VALUE;
  const int owner = owner_of((void *)(uintptr_t)address, 1);
  *(int *)*values = owner == -2 ? 0 : owner == -1 ? HOST : DEVICE;
  return SUCCESS;
}

/* -- copies and fills ---------------------------------------------------------------------------------------------- */
struct copy {
  gpu_address device, other;
  void *host;
  size_t nbytes;
};
static int copy_up_later(const void *arguments, gpu_stream stream) {
  const struct copy *c = arguments;
  return cuMemcpyHtoDAsync_v2(c->device, c->host, c->nbytes, stream);
}
static int copy_down_later(const void *arguments, gpu_stream stream) {
  const struct copy *c = arguments;
  return cuMemcpyDtoHAsync_v2(c->host, c->device, c->nbytes, stream);
}
static int copy_later(const void *arguments, gpu_stream stream) {
  const struct copy *c = arguments;
  return cuMemcpyAsync(c->device, c->other, c->nbytes, stream);
}
static int copy_lines_later(const void *arguments, gpu_stream stream) { return cuMemcpy2DAsync_v2(arguments, stream); }

int cuMemcpyHtoDAsync_v2(gpu_address to, const void *from, size_t nbytes, gpu_stream stream) {
  int code = belongs(stream);
  const struct copy copy = {.device = to, .host = (void *)(uintptr_t)from, .nbytes = nbytes};
  if (!code) code = on_device(to, nbytes);
  if (!code && gpu_double_captures(stream, copy_up_later, &copy, sizeof copy)) return SUCCESS;
  if (!code && owner_of(from, nbytes) >= 0) code = INVALID_VALUE;
  if (!code) memcpy(HERE((void *)(uintptr_t)to), from, nbytes);
  return code;
}
int cuMemcpyDtoHAsync_v2(void *to, gpu_address from, size_t nbytes, gpu_stream stream) {
  int code = belongs(stream);
  const struct copy copy = {.device = from, .host = to, .nbytes = nbytes};
  if (!code) code = on_device(from, nbytes);
  if (!code && gpu_double_captures(stream, copy_down_later, &copy, sizeof copy)) return SUCCESS;
  if (!code && owner_of(to, nbytes) >= 0) code = INVALID_VALUE;
  if (!code) memcpy(to, HERE((void *)(uintptr_t)from), nbytes);
  return code;
}
int cuMemcpyAsync(gpu_address to, gpu_address from, size_t nbytes, gpu_stream stream) {
  const int code = belongs(stream);
  if (code) return code;
  const struct copy copy = {.device = to, .other = from, .nbytes = nbytes};
  if (owner_of((void *)(uintptr_t)to, nbytes) == -2 || owner_of((void *)(uintptr_t)from, nbytes) == -2)
    return INVALID_VALUE;
  if (gpu_double_captures(stream, copy_later, &copy, sizeof copy)) return SUCCESS;
  memmove(HERE((void *)(uintptr_t)to), HERE((void *)(uintptr_t)from), nbytes);
  return SUCCESS;
}
/* The destination's context has to be current, as its stream has. */
static int copy_between(gpu_address to, const struct device *to_device, gpu_address from,
                        const struct device *from_device, size_t nbytes, gpu_stream stream) {
  const int code = belongs(stream);
  if (code) return code;
  if (to_device != current() || from_device == to_device || !from_device) return INVALID_VALUE;
  if (owner_of((void *)(uintptr_t)to, nbytes) != to_device->number) return INVALID_VALUE;
  if (owner_of((void *)(uintptr_t)from, nbytes) != from_device->number) return INVALID_VALUE;
  memcpy(HERE((void *)(uintptr_t)to), HERE((void *)(uintptr_t)from), nbytes);
  return SUCCESS;
}
int cuMemcpyPeerAsync(gpu_address to, gpu_context to_context, gpu_address from, gpu_context from_context, size_t nbytes,
                      gpu_stream stream) {
  return copy_between(to, to_context, from, from_context, nbytes, stream);
}
int cuMemcpy3DPeerAsync(const struct peer_copy *c, gpu_stream stream) {
  int code = c->depth == 1 && c->width <= c->to_pitch && c->width <= c->from_pitch && c->from_type == DEVICE &&
                     c->to_type == DEVICE
                 ? SUCCESS
                 : INVALID_VALUE;
  for (size_t i = 0; i < c->lines && !code; i++)
    code = copy_between(c->to_device + i * c->to_pitch, c->to_context, c->from_device + i * c->from_pitch,
                        c->from_context, c->width, stream);
  return code;
}
int cuDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = device != peer;
  return device >= 0 && device < DEVICES && peer >= 0 && peer < DEVICES ? SUCCESS : INVALID_DEVICE;
}
int cuMemPoolSetAccess(gpu_pool pool, const struct pool_access *access, size_t count) {
  const struct device *device = pool;
  return count == 1 && access->location_type == 1 && access->flags == 3 && access->location_id != device->number
             ? SUCCESS
             : INVALID_VALUE;
}
int cuMemcpy2DAsync_v2(const struct copy_parameters *c, gpu_stream stream) {
  int code = belongs(stream);
  if (c->width > c->to_pitch || c->width > c->from_pitch) return INVALID_VALUE;
  if (gpu_double_captures(stream, copy_lines_later, c, sizeof *c)) return code;
  for (size_t i = 0; i < c->lines && !code; i++) {
    char *to = c->to_type == HOST ? (char *)c->to_host : (char *)(uintptr_t)c->to_device;
    const char *from = c->from_type == HOST ? (const char *)c->from_host : (const char *)(uintptr_t)c->from_device;
    to += i * c->to_pitch;
    from += i * c->from_pitch;
    if (c->to_type == DEVICE) code = on_device((uintptr_t)to, c->width);
    if (c->from_type == DEVICE && !code) code = on_device((uintptr_t)from, c->width);
    if ((c->to_type == UNIFIED && owner_of(to, c->width) == -2) ||
        (c->from_type == UNIFIED && owner_of(from, c->width) == -2))
      code = INVALID_VALUE;
    if (!code) memcpy(HERE(to), HERE(from), c->width);
  }
  return code;
}

struct fill {
  gpu_address address;
  size_t pitch, unit, width, height;
  char value[4];
};
static operation fill_later;
static int fill(gpu_address address, size_t pitch, const void *value, size_t unit, size_t width, size_t height,
                gpu_stream stream) {
  int code = belongs(stream);
  struct fill later = {address, pitch, unit, width, height, ""};
  memcpy(later.value, value, unit);
  if (gpu_double_captures(stream, fill_later, &later, sizeof later)) return code;
  for (size_t i = 0; i < height && !code; i++) {
    char *line = (char *)(uintptr_t)(address + i * pitch);
    const int owner = owner_of(line, width * unit);
    code = address % unit || owner == -2 || (owner >= 0 && owner != current()->number) ? INVALID_VALUE : SUCCESS;
    for (size_t j = 0; j < width && !code; j++) memcpy((char *)HERE(line) + j * unit, value, unit);
  }
  return code;
}
static int fill_later(const void *arguments, gpu_stream stream) {
  const struct fill *f = arguments;
  return fill(f->address, f->pitch, f->value, f->unit, f->width, f->height, stream);
}
int cuMemsetD8Async(gpu_address a, unsigned char v, size_t n, gpu_stream s) { return fill(a, 0, &v, 1, n, 1, s); }
int cuMemsetD16Async(gpu_address a, unsigned short v, size_t n, gpu_stream s) { return fill(a, 0, &v, 2, n, 1, s); }
int cuMemsetD32Async(gpu_address a, unsigned v, size_t n, gpu_stream s) { return fill(a, 0, &v, 4, n, 1, s); }
int cuMemsetD2D8Async(gpu_address a, size_t pitch, unsigned char v, size_t width, size_t height, gpu_stream s) {
  return fill(a, pitch, &v, 1, width, height, s);
}
int cuMemsetD2D16Async(gpu_address a, size_t pitch, unsigned short v, size_t width, size_t height, gpu_stream s) {
  return fill(a, pitch, &v, 2, width, height, s);
}
int cuMemsetD2D32Async(gpu_address a, size_t pitch, unsigned v, size_t width, size_t height, gpu_stream s) {
  return fill(a, pitch, &v, 4, width, height, s);
}

/* -- streams and events -------------------------------------------------------------------------------------------- */
int cuStreamCreate(gpu_stream *stream, unsigned flags) {
  if (!current() || flags != 1) return current() ? INVALID_VALUE : INVALID_CONTEXT;
  *stream = make(8, current()->number);
  if (*stream) *capture_in(*stream) = NULL;
  return *stream ? SUCCESS : OUT_OF_MEMORY;
}
int cuStreamDestroy_v2(gpu_stream stream) { return current() && drop(stream, current()->number) == 8 ? SUCCESS : 400; }
/* To wait for a stream spoils its capture, and those for all threads. */
int cuStreamSynchronize(gpu_stream stream) {
  struct graph *graph = capture_of(stream);
  if (SPOILS_CAPTURES && __atomic_load_n(&captures_of_all, __ATOMIC_SEQ_CST)) graph = last_begun;
  if (!graph) return belongs(stream);
  graph->is_invalid = 1;
  return UNSUPPORTED;
}
/* A stream that waits for an event of a capture takes part in it from then on. */
int cuStreamWaitEvent(gpu_stream stream, gpu_event event, unsigned flags) {
  const int code = belongs(stream);
  if (code || flags || owner_of(event, 1) < 0) return code ? code : INVALID_VALUE;
  if (capture_of(event) && stream) *capture_in(stream) = *capture_in(event);
  return SUCCESS;
}
int cuStreamIsCapturing(gpu_stream stream, int *status) {
  const struct graph *graph = capture_of(stream);
  *status = graph ? 1 + graph->is_invalid : 0;
  return belongs(stream);
}
int cuEventCreate(gpu_event *event, unsigned flags) {
  if (!current() || flags != 2) return current() ? INVALID_VALUE : INVALID_CONTEXT;
  *event = make(8, current()->number);
  if (*event) *capture_in(*event) = NULL;
  return *event ? SUCCESS : OUT_OF_MEMORY;
}
int cuEventRecord(gpu_event event, gpu_stream stream) {
  int code = belongs(stream);
  if (!code) code = belongs(event);
  if (!code) *capture_in(event) = capture_of(stream);
  return code;
}
int cuEventDestroy_v2(gpu_event event) { return current() && drop(event, current()->number) == 8 ? SUCCESS : 400; }
static int ask_event(gpu_event event) {
  const int code = belongs(event);
  return code ? code : capture_of(event) ? 907 : SUCCESS;
}
int cuEventQuery(gpu_event event) { return ask_event(event); }
int cuEventSynchronize(gpu_event event) { return ask_event(event); }

/* -- kernels ------------------------------------------------------------------------------------------------------- */
/* A module is a copy of its PTX text, or a shared object that the double of NVRTC made. PTX is not compiled: kernels of
 * tests/kernels are here in C, by their names. A kernel of another name does nothing. */
enum { INVALID_IMAGE = 200, INVALID_PTX = 218, UNSUPPORTED_PTX = 222, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700 };
enum { MOST_PARAMETERS = 64, NEWEST_TARGET = 90, NEWEST_VERSION = 9 };

struct function {
  struct function *next;
  const char *module;
  char name[64];
  int count, most_shared;
  size_t offsets[MOST_PARAMETERS], sizes[MOST_PARAMETERS];
  oa_kernel_function *run; /* of a shared object */
};
static struct function *functions; /* never freed */

struct object_module {
  char magic[SELFMAG]; /* ELF's: text begins otherwise */
  void *library;       /* never closed */
};

static int refuse_image(int code, const char *why, unsigned count, const int *options, void **values) {
  for (unsigned i = 0; i < count; i++)
    if (options[i] == 5 && i + 1 < count && options[i + 1] == 6)
      snprintf(values[i], (size_t)(uintptr_t)values[i + 1], "ptxas fatal   : %s", why);
  return code;
}

/* Loads a shared object, from a file in memory that stays open. */
static int load_object(gpu_module *module, const Elf64_Ehdr *header) {
  const size_t nbytes = header->e_shoff + header->e_shnum * sizeof(Elf64_Shdr);
  char path[64];
  const int file = memfd_create("module", 0);
  if (header->e_type != ET_DYN || write(file, header, nbytes) != (ssize_t)nbytes) return INVALID_IMAGE;
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  struct object_module *made = make(sizeof *made, current()->number);
  memcpy(made->magic, ELFMAG, SELFMAG);
  made->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  *module = made;
  return made->library ? SUCCESS : INVALID_IMAGE;
}

int cuModuleLoadDataEx(gpu_module *module, const void *image, unsigned count, int *options, void **values) {
  const char *text = image;
  if (!current()) return INVALID_CONTEXT;
  if (memcmp(image, ELFMAG, SELFMAG) == 0) return load_object(module, image);
  if (!strstr(text, ".version"))
    return refuse_image(INVALID_IMAGE, "this double reads PTX only", count, options, values);
  const char *target = strstr(text, ".target sm_");
  if (!target) return refuse_image(INVALID_PTX, "Missing .target directive", count, options, values);
  if (atoi(target + 11) > NEWEST_TARGET)
    return refuse_image(UNSUPPORTED_PTX, "SM version is newer than the device", count, options, values);
  if (atoi(strstr(text, ".version") + 8) > NEWEST_VERSION)
    return refuse_image(UNSUPPORTED_PTX, "Unsupported .version", count, options, values);
  char *copy = make(strlen(text) + 1, current()->number);
  if (!copy) return OUT_OF_MEMORY;
  strcpy(copy, text);
  *module = copy;
  return SUCCESS;
}

int cuModuleUnload(gpu_module module) {
  if (!current()) return INVALID_CONTEXT;
  return drop(module, current()->number) < 0 ? 400 : SUCCESS;
}

/* Reads the parameters between the brackets behind the kernel's name. */
static void read_parameters(struct function *f, const char *text) {
  const char *end = text + strcspn(text, ")");
  size_t at = 0;
  while ((text = strstr(text, ".param")) && text < end && f->count < MOST_PARAMETERS) {
    int bits = 0, elements = 1, align = 0;
    const char *comma = text + strcspn(text, ",)"), *bracket = memchr(text, '[', (size_t)(comma - text));
    const char *type = text + 6 + strspn(text + 6, " ") + 1;
    if (strncmp(type, "align", 5) == 0) {
      align = atoi(type + 5);
      type = strchr(type, '.') + 1;
    }
    bits = atoi(type + strcspn(type, "0123456789"));
    if (bracket) elements = atoi(bracket + 1);
    const size_t size = (size_t)(bits / 8 * elements), unit = align ? (size_t)align : size;
    at = (at + unit - 1) / unit * unit;
    f->offsets[f->count] = at;
    f->sizes[f->count++] = size;
    at += size;
    text = comma;
  }
}

/* Reads those of a shared object, by the table beside the kernel. Returns 0 if it has no such kernel. */
static int read_object(struct function *f, const struct object_module *module) {
  char symbol[96];
  size_t at = 0;
  snprintf(symbol, sizeof symbol, "oa_kernel_%s", f->name);
  *(void **)&f->run = dlsym(module->library, symbol);
  snprintf(symbol, sizeof symbol, "oa_parameters_%s", f->name);
  const unsigned *table = dlsym(module->library, symbol);
  if (!f->run || !table) return 0;
  f->count = (int)table[0];
  for (int i = 0; i < f->count; i++) {
    const size_t size = table[i + 1] & ~OA_IS_POINTER, unit = size & -size; /* as far as a struct's size tells */
    at = (at + unit - 1) / unit * unit;
    f->offsets[i] = at;
    f->sizes[i] = size;
    at += size;
  }
  return 1;
}

int cuModuleGetFunction(gpu_function *function, gpu_module module, const char *name) {
  const char *at = module;
  const size_t length = strlen(name);
  const int code = belongs(module);
  if (code) return code;
  const int is_object = memcmp(module, ELFMAG, SELFMAG) == 0;
  while (!is_object && (at = strstr(at, ".entry "))) {
    at += 7;
    if (strncmp(at, name, length) == 0 && strcspn(at, "( \n") == length) break;
  }
  if (!at) return NOT_FOUND;
  struct function *made = calloc(1, sizeof *made);
  if (!made) return OUT_OF_MEMORY;
  made->module = module;
  made->most_shared = 49152;
  snprintf(made->name, sizeof made->name, "%s", name);
  if (!is_object) {
    read_parameters(made, at);
  } else if (!read_object(made, module)) {
    free(made);
    return NOT_FOUND;
  }
  pthread_mutex_lock(&lock);
  made->next = functions;
  functions = made;
  pthread_mutex_unlock(&lock);
  *function = made;
  return SUCCESS;
}

/* Returns the code for a function whose module is not loaded in the current context. */
static int is_loaded(const struct function *f) { return f ? belongs(f->module) : INVALID_VALUE; }

int cuFuncGetAttribute(int *value, int attribute, gpu_function function) {
  const struct function *f = function;
  *value = attribute == 0 ? 1024 : attribute == 4 ? 16 : attribute == 8 ? f->most_shared : 0;
  return is_loaded(f);
}
int cuFuncSetAttribute(gpu_function function, int attribute, int value) {
  struct function *f = function;
  if (attribute != 8 || value > 232448) return INVALID_VALUE;
  f->most_shared = value;
  return is_loaded(f);
}
int cuFuncGetParamInfo(gpu_function function, size_t number, size_t *offset, size_t *nbytes) {
  const struct function *f = function;
  if (number >= (size_t)f->count) return INVALID_VALUE;
  *offset = f->offsets[number];
  *nbytes = f->sizes[number];
  return is_loaded(f);
}
int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, gpu_function function, size_t (*shared_of_block)(int),
                                     size_t shared, int most_block) {
  if (shared_of_block || shared || most_block) return INVALID_VALUE;
  *grid = 264;
  *block = 768;
  return is_loaded(function);
}

static int out_of_reach(const void *memory, size_t nbytes) { return nbytes && on_device((uintptr_t)memory, nbytes); }

/* Runs the kernels of tests/kernels/programs.py for all threads of a grid along x. Returns a code. */
static int run_known(const char *name, int64_t threads, void **p) {
  if (strcmp(name, "vadd") == 0) {
    const int n = *(int *)p[3];
    const float *a = *(float **)p[0], *b = *(float **)p[1];
    float *c = *(float **)p[2];
    const size_t nbytes = (size_t)(n < threads ? n : threads) * sizeof *c;
    if (out_of_reach(a, nbytes) || out_of_reach(b, nbytes) || out_of_reach(c, nbytes)) return ILLEGAL_ADDRESS;
    for (int64_t i = 0; i < threads && i < n; i++) c[i] = a[i] + b[i];
  } else if (strcmp(name, "relu") == 0) {
    float *x = *(float **)p[0];
    const int n = *(int *)p[1];
    if (out_of_reach(x, (size_t)n * sizeof *x)) return ILLEGAL_ADDRESS;
    for (int64_t i = 0; i < threads && i < n; i++) x[i] = x[i] > 0 ? x[i] : 0;
  } else if (strcmp(name, "line") == 0) { /* y = slope * x + start */
    const struct {
      float slope;
      double start;
    } *line = p[1];
    double *y = *(double **)p[0];
    const int64_t n = *(int64_t *)p[2];
    if (out_of_reach(y, (size_t)n * sizeof *y)) return ILLEGAL_ADDRESS;
    for (int64_t i = 0; i < threads && i < n; i++) y[i] = (double)line->slope * (double)i + line->start;
  } else if (strcmp(name, "multiply") == 0) { /* a sparse matrix by a vector */
    const double *values = *(double **)p[0], *x = *(double **)p[4];
    const int *columns = *(int **)p[1], *starts = *(int **)p[2], rows = *(int *)p[3];
    double *y = *(double **)p[5];
    if (out_of_reach(starts, (size_t)(rows + 1) * sizeof *starts) || out_of_reach(y, (size_t)rows * sizeof *y) ||
        out_of_reach(values, (size_t)starts[rows] * sizeof *values) ||
        out_of_reach(columns, (size_t)starts[rows] * sizeof *columns))
      return ILLEGAL_ADDRESS;
    for (int64_t row = 0; row < threads && row < rows; row++) {
      y[row] = 0;
      for (int k = starts[row]; k < starts[row + 1]; k++) y[row] += values[k] * x[columns[k]];
    }
  } else if (strcmp(name, "stray") == 0) { /* writes to address 0 */
    return ILLEGAL_ADDRESS;
  }
  return SUCCESS;
}

/* Runs a kernel that was compiled for this machine, else the known one of that name. */
static int run_kernel(oa_kernel_function *run, const char *name, const unsigned grid[3], const unsigned block[3],
                      unsigned shared_bytes, void **arguments) {
  int code = SUCCESS;
  oa_kernel_call call = {.arguments = arguments, .shared_bytes = shared_bytes, .shared = calloc(1, shared_bytes + 1)};
  memcpy(call.grid, grid, sizeof call.grid);
  memcpy(call.block, block, sizeof call.block);
  call.last = (long long)grid[0] * grid[1] * grid[2];
  hip_double_begin();
  if (run)
    run(&call);
  else
    code = run_known(name, (int64_t)grid[0] * block[0], arguments);
  hip_double_end();
  free(call.shared);
  return code;
}

struct launch {
  const struct function *f;
  unsigned grid[3], block[3], shared_bytes;
  _Alignas(16) char values[1024];
};
static operation launch_later;
static int is_launched_later(const struct function *f, const unsigned grid[3], const unsigned block[3],
                             unsigned shared_bytes, gpu_stream stream, void **arguments) {
  struct launch l = {.f = f, .shared_bytes = shared_bytes};
  memcpy(l.grid, grid, sizeof l.grid);
  memcpy(l.block, block, sizeof l.block);
  for (int i = 0; i < f->count && f->offsets[i] + f->sizes[i] <= sizeof l.values; i++)
    memcpy(l.values + f->offsets[i], arguments[i], f->sizes[i]);
  return gpu_double_captures(stream, launch_later, &l, sizeof l);
}

static int launch(const struct function *f, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                  gpu_stream stream, void **arguments) {
  int code = belongs(stream);
  if (!code) code = is_loaded(f);
  if (code) return code;
  const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
  if (!grid[0] || !grid[1] || !grid[2] || !threads || threads > 1024 || grid[1] > 65535 || grid[2] > 65535 ||
      shared_bytes > (unsigned)f->most_shared)
    return INVALID_VALUE;
  if (is_launched_later(f, grid, block, shared_bytes, stream, arguments)) return SUCCESS;
  return run_kernel(f->run, f->name, grid, block, shared_bytes, arguments);
}

static int launch_later(const void *arguments, gpu_stream stream) {
  const struct launch *l = arguments;
  void *places[MOST_PARAMETERS];
  for (int i = 0; i < l->f->count; i++) places[i] = (char *)(uintptr_t)l->values + l->f->offsets[i];
  return launch(l->f, l->grid, l->block, l->shared_bytes, stream, places);
}

int cuLaunchKernel(gpu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, gpu_stream stream, void **arguments,
                   void **extra) {
  const unsigned grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
  return extra ? INVALID_VALUE : launch(function, grid, block, shared_bytes, stream, arguments);
}
int cuLaunchKernelEx(const struct launch_config *config, gpu_function function, void **arguments, void **extra) {
  if (extra || !config->attribute_count) return INVALID_VALUE;
  return launch(function, config->grid, config->block, config->shared_bytes, config->stream, arguments);
}
