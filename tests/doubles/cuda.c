/* A double of libcuda.so.1 for machines with no GPU: two devices over host memory. Copies, fills and events are
 * complete before a call returns. So tests with this double check that calls are right, but not that they are ordered.
 *
 * The double is strict. Memory, streams and events belong to the device that made them. Every call that needs a context
 * needs the right context. A copy outside of allocated memory is an error, and freeing memory twice is an error. The
 * prototypes come from csrc/backends/cuda.def, so a wrong prototype does not compile. */
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
#include <time.h>
#include <unistd.h>

/* The double of HIP defines these names differently. */
#ifndef GPU_NAME
#define GPU_NAME "double of a GPU, number %d"
#define UNKNOWN_HANDLE 400
#define SPOILS_CAPTURES 1                 /* a call that a capture forbids makes the capture invalid */
#define HERE(address) ((void *)(address)) /* the address at which the double may use device memory */
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
typedef struct graph *gpu_graph;
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

struct node_parameters {
  int kind, reserved[3];
  union {
    char bytes[232];
    struct {
      gpu_function function;
      unsigned grid[3], block[3], shared_bytes;
      void **arguments, **extra;
      void *kernel;
      gpu_context context;
    } kernel;
    struct {
      gpu_graph graph;
      int ownership;
    } child;
    struct {
      unsigned long long handle;
      int kind;
      unsigned count;
      void *const *graphs;
      gpu_context context;
    } conditional;
  };
  long long reserved_last;
};

#define DRIVER(name, symbol, ...) int symbol(__VA_ARGS__);
#define OPTIONAL DRIVER
#include "../../csrc/backends/cuda.def"
#undef OPTIONAL
#undef DRIVER
/* Functions that tests call in place of another program. */
int cuDevicePrimaryCtxRelease_v2(int device);
int cuStreamDestroy_v2(gpu_stream stream);
int cuMemHostRegister_v2(void *memory, size_t nbytes, unsigned flags);
int cuMemHostUnregister(void *memory);

enum { DEVICES = 2, SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };
enum { NOT_READY = 600, ILLEGAL_ADDRESS = 700 };
enum { HOST = 1, DEVICE = 2, UNIFIED = 4 };
enum { POISON = 0xc5 };

static const size_t capacity = (size_t)4 << 30;

struct device {
  int number;
  size_t used;
  int is_reset;
  int is_lost; /* a kernel has failed: each call with a stream or an event of the device fails from now on */
};
static struct device devices[DEVICES] = {{.number = 0}, {.number = 1}};

/* A live object: memory of a device, pinned memory, a stream or an event. */
struct object {
  struct object *next;
  char *memory;
  size_t nbytes;
  int device;     /* -1: pinned */
  int registered; /* memory of the program, pinned until it is unregistered */
  int is_memory;  /* of the device, from take_memory */
  int is_freed;   /* freed in the order of a stream, which has not freed it yet */
};
static struct object *objects;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

enum { DEPTH = 16 };
static _Thread_local struct device *stack[DEPTH];
static _Thread_local int depth;
static _Thread_local int at_work; /* this thread runs a queue's operations (double of HIP) */

static struct device *current(void) { return depth && !stack[depth - 1]->is_reset ? stack[depth - 1] : NULL; }

static void *make_object(size_t nbytes, int device, int is_memory) {
  struct object *object = malloc(sizeof *object);
  char *memory = NULL;
  if (object) memory = is_memory ? take_memory(nbytes) : aligned_alloc(256, (nbytes + 255) / 256 * 256);
  if (!memory) {
    free(object);
    return NULL;
  }
  memset(HERE(memory), POISON, nbytes);
  pthread_mutex_lock(&lock);
  *object = (struct object){objects, memory, nbytes, device, 0, is_memory, 0};
  objects = object;
  pthread_mutex_unlock(&lock);
  return memory;
}
static void *make(size_t nbytes, int device) { return make_object(nbytes, device, 0); }

/* Frees an object. Returns its number of bytes, or -1 if no object begins at the address. */
static int64_t drop(void *memory, int device) {
  int64_t nbytes = -1;
  pthread_mutex_lock(&lock);
  for (struct object **link = &objects; *link; link = &(*link)->next) {
    struct object *object = *link;
    if (object->memory != memory || object->device != device || object->registered) continue;
    nbytes = (int64_t)object->nbytes;
    memset(HERE(object->memory), POISON, object->nbytes);
    *link = object->next;
    if (object->is_memory)
      give_memory(object->memory, object->nbytes);
    else
      free(object->memory);
    free(object);
    break;
  }
  pthread_mutex_unlock(&lock);
  return nbytes;
}

/* Returns the device of the object that has all these bytes; -1 for pinned memory, -2 if there is no such object. */
static int owner_of(const void *memory, size_t nbytes) {
  int owner = -2;
  memory = THERE(memory);
  pthread_mutex_lock(&lock);
  for (struct object *object = objects; object && owner == -2; object = object->next)
    if ((!object->is_freed || at_work) && (uintptr_t)memory >= (uintptr_t)object->memory &&
        (uintptr_t)memory + nbytes <= (uintptr_t)object->memory + (object->nbytes ? object->nbytes : 1))
      owner = object->device;
  pthread_mutex_unlock(&lock);
  return owner;
}

/* How the devices read host memory that is not pinned: not at all, over the bus (1), or by its page tables (2). */
static int reads_host(void) {
  const char *text = getenv("GPU_DOUBLE_READS_HOST");
  return text ? atoi(text) : 0;
}

/* Returns whether no device can use the memory. */
static int is_out_of_reach(const void *memory, size_t nbytes) {
  return !reads_host() && owner_of(memory, nbytes) == -2;
}

/* Returns SUCCESS if an object belongs to the current device. NULL is the default stream, which every context has. */
static int belongs(const void *object) {
  struct device *device = current();
  if (!device) return INVALID_CONTEXT;
  if (__atomic_load_n(&device->is_lost, __ATOMIC_SEQ_CST)) return ILLEGAL_ADDRESS;
  if (!object) return SUCCESS;
  return owner_of(object, 1) == device->number ? SUCCESS : UNKNOWN_HANDLE;
}

/* Ends the process if the stream was destroyed, as NVIDIA's driver does. AMD's driver returns an error instead. */
static void need_stream(const void *stream) {
#ifndef DEAD_STREAMS_REPLY
  if (stream && owner_of(stream, 1) == -2) abort();
#else
  (void)stream;
#endif
}

/* Loses a device, as the wrong access of a kernel does. */
void gpu_double_lose(int device);
void gpu_double_lose(int device) { __atomic_store_n(&devices[device].is_lost, 1, __ATOMIC_SEQ_CST); }

static int on_device(gpu_address address, size_t nbytes) {
  struct device *device = current();
  if (!device) return INVALID_CONTEXT;
  const int owner = owner_of((void *)(uintptr_t)address, nbytes);
  return owner == device->number || owner == -1 ? SUCCESS : INVALID_VALUE; /* every device may use pinned memory */
}

#include "captures.h"

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
  if (attribute == 88 || attribute == 100) *value = reads_host() >= (attribute == 100 ? 2 : 1);
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
int cuCtxSetCurrent(gpu_context context) { /* replaces the innermost context; NULL removes it */
  if (!depth && context) return cuCtxPushCurrent_v2(context);
  if (depth && context) stack[depth - 1] = context;
  if (depth && !context) depth--;
  return SUCCESS;
}
/* While any stream of the context is captured, this call is refused on every thread and in every mode, and makes the
 * capture invalid. */
int cuCtxSynchronize(void) {
  const int code = belongs(NULL);
  if (code) return code;
  while (!belongs(NULL) && __atomic_load_n(&late[current()->number], __ATOMIC_SEQ_CST)) pause_briefly();
  return SPOILS_CAPTURES && spoil(current()->number, NULL) ? UNSUPPORTED : SUCCESS;
}

/* -- memory -------------------------------------------------------------------------------------------------------- */
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  if (!current()) return INVALID_CONTEXT;
  if (gpu_double_unsafe()) return UNSUPPORTED;
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
int cuMemPoolTrimTo(gpu_pool pool, size_t keep) { return pool && !keep ? gpu_double_unsafe() : INVALID_VALUE; }
/* Refuses allocations during a capture. A driver would add nodes for them, and the memory would exist only while the
 * graph runs. */
static int allocates_in(gpu_stream stream) {
  const int code = takes_work(stream);
  return code || at_work || !capture_of(stream) ? code : gpu_double_waits(stream);
}
int cuMemAllocFromPoolAsync(gpu_address *address, size_t nbytes, gpu_pool pool, gpu_stream stream) {
  struct device *device = pool;
  const int code = allocates_in(stream);
  if (code) return code;
  if (device != current() || !nbytes) return INVALID_VALUE;
  if (nbytes > capacity - device->used) return OUT_OF_MEMORY;
  void *memory = make_object(nbytes, device->number, 1);
  if (!memory) return OUT_OF_MEMORY;
  __atomic_fetch_add(&device->used, nbytes, __ATOMIC_RELAXED);
  *address = (uintptr_t)memory;
  return SUCCESS;
}
static int free_later(const void *arguments, gpu_stream stream) {
  return cuMemFreeAsync(*(const gpu_address *)arguments, stream);
}
/* Marks memory as freed. Returns whether memory begins at the address. */
static int mark_freed(gpu_address address) {
  int is_marked = 0;
  pthread_mutex_lock(&lock);
  for (struct object *object = objects; object && !is_marked; object = object->next)
    if (object->memory == (char *)(uintptr_t)address && object->device == current()->number && !object->is_freed)
      is_marked = object->is_freed = 1;
  pthread_mutex_unlock(&lock);
  return is_marked;
}
int cuMemFreeAsync(gpu_address address, gpu_stream stream) {
  const int code = allocates_in(stream);
  if (code) return code;
  if (!at_work && !mark_freed(address)) return INVALID_VALUE;
  if (later(stream, free_later, &address, sizeof address)) return SUCCESS;
  const int64_t nbytes = drop((void *)(uintptr_t)address, current()->number);
  if (nbytes < 0) return INVALID_VALUE;
  __atomic_fetch_sub(&current()->used, (size_t)nbytes, __ATOMIC_RELAXED);
  return SUCCESS;
}
int cuMemHostAlloc(void **memory, size_t nbytes, unsigned flags) {
  if (!current() || flags != 1) return current() ? INVALID_VALUE : INVALID_CONTEXT;
  if (gpu_double_unsafe()) return UNSUPPORTED;
  *memory = make(nbytes, -1);
  return *memory ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemFreeHost(void *memory) {
  if (gpu_double_unsafe()) return UNSUPPORTED;
  return drop(memory, -1) < 0 ? INVALID_VALUE : SUCCESS;
}
int cuMemHostRegister_v2(void *memory, size_t nbytes, unsigned flags) {
  if (!current() || flags != 1) return current() ? INVALID_VALUE : INVALID_CONTEXT;
  if (owner_of(memory, nbytes) != -2) return 712; /* already registered */
  struct object *object = malloc(sizeof *object);
  if (!object) return OUT_OF_MEMORY;
  pthread_mutex_lock(&lock);
  *object = (struct object){objects, memory, nbytes, -1, 1, 0, 0};
  objects = object;
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}
int cuMemHostUnregister(void *memory) {
  struct object *pinned = NULL;
  pthread_mutex_lock(&lock);
  for (struct object **link = &objects; *link && !pinned; link = &(*link)->next)
    if ((*link)->memory == memory && (*link)->registered) {
      pinned = *link;
      *link = pinned->next;
      break;
    }
  pthread_mutex_unlock(&lock);
  free(pinned);
  return pinned ? SUCCESS : 713; /* not registered */
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
  int code = takes_work(stream);
  const struct copy copy = {.device = to, .host = (void *)(uintptr_t)from, .nbytes = nbytes};
  if (!code) code = on_device(to, nbytes);
  if (!code && gpu_double_captures(stream, copy_up_later, &copy, sizeof copy)) return SUCCESS;
  if (!code && owner_of(from, nbytes) >= 0) code = INVALID_VALUE;
  if (!code) memcpy(HERE((void *)(uintptr_t)to), from, nbytes);
  return code;
}
int cuMemcpyDtoHAsync_v2(void *to, gpu_address from, size_t nbytes, gpu_stream stream) {
  int code = takes_work(stream);
  const struct copy copy = {.device = from, .host = to, .nbytes = nbytes};
  if (!code) code = on_device(from, nbytes);
  if (!code && gpu_double_captures(stream, copy_down_later, &copy, sizeof copy)) return SUCCESS;
  if (!code && owner_of(to, nbytes) >= 0) code = INVALID_VALUE;
  if (!code) memcpy(to, HERE((void *)(uintptr_t)from), nbytes);
  return code;
}
int cuMemcpyAsync(gpu_address to, gpu_address from, size_t nbytes, gpu_stream stream) {
  const int code = takes_work(stream);
  if (code) return code;
  const struct copy copy = {.device = to, .other = from, .nbytes = nbytes};
  if (is_out_of_reach((void *)(uintptr_t)to, nbytes) || is_out_of_reach((void *)(uintptr_t)from, nbytes))
    return INVALID_VALUE;
  if (gpu_double_captures(stream, copy_later, &copy, sizeof copy)) return SUCCESS;
  memmove(HERE((void *)(uintptr_t)to), HERE((void *)(uintptr_t)from), nbytes);
  return SUCCESS;
}
struct between {
  gpu_address to, from;
  const struct device *to_device, *from_device;
  size_t nbytes;
};
static operation copy_between_later;
/* The context of the destination and of the stream has to be current. */
static int copy_between(gpu_address to, const struct device *to_device, gpu_address from,
                        const struct device *from_device, size_t nbytes, gpu_stream stream) {
  const int code = takes_work(stream);
  if (code) return code;
  if (to_device != current() || from_device == to_device || !from_device) return INVALID_VALUE;
  if (owner_of((void *)(uintptr_t)to, nbytes) != to_device->number) return INVALID_VALUE;
  if (owner_of((void *)(uintptr_t)from, nbytes) != from_device->number) return INVALID_VALUE;
  const struct between b = {to, from, to_device, from_device, nbytes};
  if (later(stream, copy_between_later, &b, sizeof b)) return SUCCESS;
  memcpy(HERE((void *)(uintptr_t)to), HERE((void *)(uintptr_t)from), nbytes);
  return SUCCESS;
}
static int copy_between_later(const void *arguments, gpu_stream stream) {
  const struct between *b = arguments;
  return copy_between(b->to, b->to_device, b->from, b->from_device, b->nbytes, stream);
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
  int code = takes_work(stream);
  if (c->width > c->to_pitch || c->width > c->from_pitch) return INVALID_VALUE;
  if (!code && gpu_double_captures(stream, copy_lines_later, c, sizeof *c)) return SUCCESS;
  for (size_t i = 0; i < c->lines && !code; i++) {
    char *to = c->to_type == HOST ? (char *)c->to_host : (char *)(uintptr_t)c->to_device;
    const char *from = c->from_type == HOST ? (const char *)c->from_host : (const char *)(uintptr_t)c->from_device;
    to += i * c->to_pitch;
    from += i * c->from_pitch;
    if (c->to_type == DEVICE) code = on_device((uintptr_t)to, c->width);
    if (c->from_type == DEVICE && !code) code = on_device((uintptr_t)from, c->width);
    if ((c->to_type == UNIFIED && is_out_of_reach(to, c->width)) ||
        (c->from_type == UNIFIED && is_out_of_reach(from, c->width)))
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
  int code = takes_work(stream);
  struct fill f = {address, pitch, unit, width, height, ""};
  memcpy(f.value, value, unit);
  if (!code && gpu_double_captures(stream, fill_later, &f, sizeof f)) return SUCCESS;
  for (size_t i = 0; i < height && !code; i++) {
    char *line = (char *)(uintptr_t)(address + i * pitch);
    const int owner = owner_of(line, width * unit);
    code = address % unit || is_out_of_reach(line, width * unit) || (owner >= 0 && owner != current()->number)
               ? INVALID_VALUE
               : SUCCESS;
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
  if (!current() || flags > 1) return current() ? INVALID_VALUE : INVALID_CONTEXT;
  *stream = make(sizeof(struct handle), current()->number);
  if (*stream) *handle_of(*stream) = (struct handle){.other = flags ? NULL : *stream};
  return *stream ? SUCCESS : OUT_OF_MEMORY;
}
int cuStreamDestroy_v2(gpu_stream stream) {
  if (capture_of(stream)) capture_of(stream)->is_invalid = 1;
  return current() && drop(stream, current()->number) == sizeof(struct handle) ? SUCCESS : 400;
}
int cuStreamSynchronize(gpu_stream stream) {
  const int code = belongs(stream);
  if (!code) await(stream);
  return code ? code : gpu_double_waits(stream);
}
int cuStreamQuery(gpu_stream stream) {
  const int code = belongs(stream);
  const struct handle *h = handle_of(stream);
  if (!code && h && !(has_ended(h, h->begun) && has_ended(h->behind, h->behind_to))) return NOT_READY;
  return code ? code : gpu_double_waits(stream);
}
/* Returns whether the operations before the event have ended. */
static int is_over(gpu_event event) {
  const struct handle *h = handle_of(event);
  return has_ended(h->other, h->begun) && has_ended(h->behind, h->behind_to);
}
/* A stream that waits for an event of a capture joins this capture. A captured stream can't wait for an event outside
 * of its capture. */
int cuStreamWaitEvent(gpu_stream stream, gpu_event event, unsigned flags) {
  int code = accepts(stream);
  if (code || flags || owner_of(event, 1) < 0) return code ? code : INVALID_VALUE;
  wait_for_room(stream, 0);
  struct graph *its = handle_of(event)->graph, *own = capture_of(stream);
  if (its && its->is_complete) return CAPTURED_EVENT;
  if (its && its->is_invalid) return INVALIDATED;
  if (stream && !its && !is_over(event)) {
    const struct handle *h = handle_of(event);
    const int is_direct = !has_ended(h->other, h->begun);
    handle_of(stream)->behind = is_direct ? h->other : h->behind;
    handle_of(stream)->behind_to = is_direct ? h->begun : h->behind_to;
  }
  if (its == own) {
    for (int i = 0; its && i < MOST_FORKS; i++)
      if (its->forks[i] == handle_of(event)->other) its->forks[i] = NULL;
    if (its) note_fork(its, stream);
    return SUCCESS;
  }
  if (own) own->is_invalid = 1;
  if (its && own) its->is_invalid = 1;
  if (own) return its ? MERGED : ISOLATED;
  if (!stream) return IMPLICIT;
  handle_of(stream)->graph = its;
  note_fork(its, stream);
  return SUCCESS;
}
int cuStreamIsCapturing(gpu_stream stream, int *status) {
  need_stream(stream);
  const struct graph *graph = capture_of(stream);
  *status = graph ? 1 + graph->is_invalid : 0;
  return belongs(stream);
}
int cuEventCreate(gpu_event *event, unsigned flags) {
  if (!current() || flags != 2) return current() ? INVALID_VALUE : INVALID_CONTEXT;
  *event = make(sizeof(struct handle), current()->number);
  if (*event) *handle_of(*event) = (struct handle){.graph = NULL};
  return *event ? SUCCESS : OUT_OF_MEMORY;
}
int cuEventRecord(gpu_event event, gpu_stream stream) {
  int code = accepts(stream);
  if (!code) code = belongs(event);
  if (code) return code;
  wait_for_room(stream, 0);
  if (stream) *handle_of(event) = *handle_of(stream);
  handle_of(event)->graph = capture_of(stream);
  handle_of(event)->other = stream;
  return code;
}
int cuEventDestroy_v2(gpu_event event) {
  return current() && drop(event, current()->number) == sizeof(struct handle) ? SUCCESS : 400;
}
/* Queries an event. Querying an event of a capture makes the capture invalid. */
static int ask_event(gpu_event event) {
  const int code = belongs(event);
  if (code) return code;
  if (handle_of(event)->graph) {
    if (capture_of(event)) capture_of(event)->is_invalid = 1;
    return CAPTURED_EVENT;
  }
  return gpu_double_unsafe();
}
int cuEventQuery(gpu_event event) {
  const int code = ask_event(event);
  return code ? code : is_over(event) ? SUCCESS : NOT_READY;
}
int cuEventSynchronize(gpu_event event) {
  int code;
  while (!(code = ask_event(event)) && !is_over(event)) pause_briefly();
  return code;
}

#include "kernels.h"

/* -- graphs that are made of nodes: a loop of a graph and a kernel, as csrc/backends/cuda.c makes it --------------- */
/* CUDA_DOUBLE_LOOPS=0: the driver refuses loops. */
enum { KERNEL_NODE = 0, CHILD_NODE = 4, CONDITIONAL_NODE = 13, WHILE = 1, NOT_SUPPORTED_HERE = 801 };

int cuGraphCreate(struct graph **graph, unsigned flags) {
  if (flags) return INVALID_VALUE;
  struct graph *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return OUT_OF_MEMORY;
  fresh->is_complete = 1;
  return *graph = fresh, SUCCESS;
}

int cuGraphConditionalHandleCreate(unsigned long long *handle, struct graph *graph, gpu_context context, unsigned value,
                                   unsigned flags) {
  const char *loops = getenv("CUDA_DOUBLE_LOOPS");
  if (loops && strcmp(loops, "0") == 0) return NOT_SUPPORTED_HERE;
  if (!graph || graph->is_destroyed || graph->is_body || context != current() || flags != 1) return INVALID_VALUE;
  struct condition *fresh = calloc(1, sizeof *fresh);
  if (!fresh) return OUT_OF_MEMORY;
  *fresh = (struct condition){.initial = value, .graph = graph};
  return *handle = (uintptr_t)fresh, SUCCESS;
}

struct loop {
  struct condition *condition;
  struct graph *body;
};
static int run_loop(const void *arguments, gpu_stream stream) {
  const struct loop *loop = arguments;
  int code = SUCCESS;
  loop->condition->value = loop->condition->initial;
  looping = loop->condition;
  while (!code && loop->condition->value) code = run_nodes(loop->body, stream);
  looping = NULL;
  return code;
}

/* Adds a node. It has to come after all nodes of the graph. */
int cuGraphAddNode_v2(void **added, struct graph *graph, void *const *after, const void *edges, size_t count,
                      struct node_parameters *p) {
  if (!graph || graph->is_destroyed || edges || p->reserved_last) return INVALID_VALUE;
  if (count != (graph->first != NULL) || (count && after[0] != graph->last)) return INVALID_VALUE;
  if (p->kind == CONDITIONAL_NODE) {
    struct condition *condition = (struct condition *)(uintptr_t)p->conditional.handle;
    struct graph **bodies = calloc(1, sizeof *bodies);
    if (condition->graph != graph || condition->is_used || p->conditional.kind != WHILE || p->conditional.count != 1 ||
        p->conditional.context != current())
      return INVALID_VALUE;
    if (!bodies || cuGraphCreate(bodies, 0)) return OUT_OF_MEMORY;
    condition->is_used = bodies[0]->is_body = 1;
    p->conditional.graphs = (void *const *)bodies; /* they belong to the graph and are never freed */
    const struct loop loop = {condition, bodies[0]};
    add_node(graph, run_loop, &loop, sizeof loop);
  } else if (p->kind == CHILD_NODE) { /* copied: the child may change or end */
    if (!p->child.graph || p->child.graph->is_destroyed || p->child.ownership) return INVALID_VALUE;
    if (p->child.graph->allocates) return NOT_SUPPORTED_HERE;
    for (const struct node *node = p->child.graph->first; node; node = node->next)
      add_node(graph, node->run, node->arguments, node->nbytes);
  } else {
    const struct function *f = p->kernel.function;
    if (p->kind != KERNEL_NODE || p->kernel.extra || is_loaded(f) || p->kernel.context != current())
      return INVALID_VALUE;
    struct launch l = {.f = f, .shared_bytes = p->kernel.shared_bytes};
    memcpy(l.grid, p->kernel.grid, sizeof l.grid);
    memcpy(l.block, p->kernel.block, sizeof l.block);
    for (int i = 0; i < f->count; i++) memcpy(l.values + f->offsets[i], p->kernel.arguments[i], f->sizes[i]);
    add_node(graph, launch_later, &l, sizeof l);
  }
  return *added = graph->last, SUCCESS;
}
