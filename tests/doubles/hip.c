/* A double of libamdhip64 for machines with no AMD GPU: the devices of the double of CUDA with HIP's names and codes,
 * over memory that traps on the host. If releases differ, the double follows AMD's sources of the release. Variables of
 * the environment:
 *   HIP_DOUBLE_VERSION=5      the release: 5 (5.7), 6 (6.4, the default) or 7
 *   HIP_MEM_POOL_SUPPORT=1    release 5 has pools, too; =0: later releases have no pools
 *   HIP_DOUBLE_MEMORY=0       the device's memory is not reported, as with some Linux kernels
 *   HIP_DOUBLE_FAIL=9         the 9th call fails with hipErrorUnknown; hipDoubleFail does so at run time
 *   HIP_DOUBLE_ORDER=mixed    every second stream runs operations immediately; else all run them late (queues.h)
 *
 * With -DREAL_HEADERS the double is compiled against AMD's headers, so a wrong prototype does not compile. */
#define _GNU_SOURCE
#ifdef REAL_HEADERS
#define __HIP_PLATFORM_AMD__ 1
#define __HIP_DISABLE_CPP_FUNCTIONS__
#include <hip/hip_runtime_api.h>
#else
typedef int hipError_t, hipDevice_t, hipDeviceAttribute_t, hipMemPoolAttr, hipMemcpyKind, hipStreamCaptureStatus;
typedef int hipJitOption, hipFunction_attribute;
typedef void *hipModule_t, *hipFunction_t;
typedef void *hipCtx_t, *hipMemPool_t, *hipStream_t, *hipEvent_t, *hipDeviceptr_t;
typedef struct hipPointerAttribute_t {
  int type, device;
  void *devicePointer, *hostPointer;
  int isManaged;
  unsigned allocationFlags;
} hipPointerAttribute_t;
typedef struct pool_properties hipMemPoolProps;
typedef struct pool_access hipMemAccessDesc;
typedef int hipStreamCaptureMode;
typedef void *hipGraph_t, *hipGraphExec_t, *hipGraphNode_t;
#endif

#include "trapping.h"

#define GPU_NAME "double of an AMD GPU, number %d"
#define DEAD_STREAMS_REPLY
#define SPOILS_CAPTURES 0
#define HAS_QUEUES
#define UNKNOWN_HANDLE 709 /* HIP's code for unknown streams */
#include "cuda.c"

enum { INVALID_HANDLE = 400, NOT_SUPPORTED = 801 };
#include "queues.h"

static int version(void) {
  const char *text = getenv("HIP_DOUBLE_VERSION");
  return text ? atoi(text) : 6;
}

static int has_pools(void) {
  const char *text = getenv("HIP_MEM_POOL_SUPPORT");
  return text ? atoi(text) : version() != 5;
}

/* HIP has a current device in every thread, at first the first device. HIP stores the code of the last failure. Release
 * 5 stores the code of every call, and release 7 does not store "not ready". */
static _Thread_local int last_error;
static hipError_t remember(int code) {
  if ((code && (code != NOT_READY || version() < 7)) || version() == 5) last_error = code;
  return (hipError_t)code;
}

/* Counts the calls, and returns whether this call has to fail. */
static long long calls_made, failing_call;
static pthread_once_t failing_is_read = PTHREAD_ONCE_INIT;
static void read_failing(void) {
  const char *text = getenv("HIP_DOUBLE_FAIL");
  if (text) failing_call = atoll(text);
}
static int has_to_fail(void) {
  pthread_once(&failing_is_read, read_failing);
  const long long number = __atomic_add_fetch(&calls_made, 1, __ATOMIC_SEQ_CST);
  return number == __atomic_load_n(&failing_call, __ATOMIC_SEQ_CST);
}
long long hipDoubleCalls(void);
long long hipDoubleCalls(void) { return __atomic_load_n(&calls_made, __ATOMIC_SEQ_CST); }
/* Makes the k-th call from now fail, or no call if k is 0. Returns the number of calls until now. */
long long hipDoubleFail(long long k);
long long hipDoubleFail(long long k) {
  pthread_once(&failing_is_read, read_failing);
  const long long calls = __atomic_load_n(&calls_made, __ATOMIC_SEQ_CST);
  __atomic_store_n(&failing_call, k ? calls + k : 0, __ATOMIC_SEQ_CST);
  return calls;
}

static void be_ready(void) {
  if (!depth) stack[depth++] = &devices[0];
}
/* Returns the code of an expression. A call that has to fail does nothing, unless it frees something. */
#define ANSWER_OF(is_done, expression)             \
  do {                                             \
    int code_ = has_to_fail() ? UNKNOWN : SUCCESS; \
    be_ready();                                    \
    if (!code_ || (is_done)) {                     \
      const int done_ = (expression);              \
      if (!code_) code_ = done_;                   \
    }                                              \
    return remember(code_);                        \
  } while (0)
#define ANSWER(expression) ANSWER_OF(0, expression)
#define ANSWER_AND_DO(expression) ANSWER_OF(1, expression)
enum { UNKNOWN = 999 };

hipError_t hipGetLastError(void) {
  const int code = last_error;
  last_error = 0;
  return (hipError_t)code;
}
static const struct {
  int code;
  const char *name, *text;
} errors[] = {
    {0, "hipSuccess", "no error"},
    {1, "hipErrorInvalidValue", "invalid argument"},
    {2, "hipErrorOutOfMemory", "out of memory"},
    {100, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {101, "hipErrorInvalidDevice", "invalid device ordinal"},
    {200, "hipErrorInvalidImage", "device kernel image is invalid"},
    {201, "hipErrorInvalidContext", "invalid device context"},
    {209, "hipErrorNoBinaryForGpu", "no kernel image is available for execution on the device"},
    {303, "hipErrorSharedObjectInitFailed", "shared object initialization failed"},
    {400, "hipErrorInvalidHandle", "invalid resource handle"},
    {401, "hipErrorIllegalState", "the operation cannot be performed in the present state"},
    {500, "hipErrorNotFound", "named symbol not found"},
    {600, "hipErrorNotReady", "device not ready"},
    {700, "hipErrorIllegalAddress", "an illegal memory access was encountered"},
    {709, "hipErrorContextIsDestroyed", "context is destroyed"},
    {712, "hipErrorHostMemoryAlreadyRegistered", "part or all of the requested memory range is already mapped"},
    {713, "hipErrorHostMemoryNotRegistered", "pointer does not correspond to a registered memory region"},
    {900, "hipErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {901, "hipErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
    {903, "hipErrorStreamCaptureUnmatched", "capture was not initiated in this stream"},
    {908, "hipErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
};
static int error_row(int code) {
  for (int i = 0; i < (int)(sizeof errors / sizeof *errors); i++)
    if (errors[i].code == code) return i;
  return -1;
}
const char *hipGetErrorName(hipError_t code) {
  const int row = error_row((int)code);
  return row < 0 ? "hipErrorUnknown" : errors[row].name;
}
const char *hipGetErrorString(hipError_t code) {
  const int row = error_row((int)code);
  return row < 0 ? "unknown error" : errors[row].text;
}

hipError_t hipInit(unsigned flags) { ANSWER(cuInit(flags)); }
hipError_t hipRuntimeGetVersion(int *number) { return *number = version() * 10000000 + 400000, 0; }
hipError_t hipGetDeviceCount(int *count) { ANSWER(cuDeviceGetCount(count)); }
hipError_t hipDeviceGet(hipDevice_t *device, int ordinal) { ANSWER(cuDeviceGet(device, ordinal)); }
hipError_t hipDeviceGetName(char *name, int size, hipDevice_t device) { ANSWER(cuDeviceGetName(name, size, device)); }
hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device) {
  static const unsigned char numbers[] = {[10] = 95, [23] = 75, [26] = 2,  [27] = 3,  [28] = 4,   [29] = 5, [30] = 6,
                                          [31] = 7,  [61] = 76, [63] = 16, [65] = 88, [66] = 100, [74] = 8, [88] = 115};
  const unsigned known = (unsigned)attribute;
  if (known >= sizeof numbers || !numbers[known]) return remember(INVALID_VALUE);
  const int code = cuDeviceGetAttribute(value, numbers[known], device);
  if (known == 88 && !has_pools()) *value = 0;
  if (known == 74) *value = 65536;
  return remember(code);
}
hipError_t hipDeviceGetPCIBusId(char *name, int size, int device) { ANSWER(cuDeviceGetPCIBusId(name, size, device)); }
hipError_t hipDevicePrimaryCtxRetain(hipCtx_t *context, hipDevice_t device) {
  ANSWER(cuDevicePrimaryCtxRetain((void **)context, device));
}
hipError_t hipGetDevice(int *device) {
  be_ready();
  *device = current()->number;
  return remember(SUCCESS);
}
hipError_t hipSetDevice(int device) {
  be_ready();
  if (device < 0 || device >= DEVICES) return remember(INVALID_DEVICE);
  stack[depth - 1] = &devices[device];
  return remember(SUCCESS);
}

/* -- captures ------------------------------------------------------------------------------------------------------ */

/* Captures under way. If release 7 refuses a call because of a capture, the capture becomes invalid. Earlier releases
 * only refuse the call. */
enum { MOST_CAPTURES = 64 };
static struct {
  struct graph *graph;
  pthread_t thread;
  int mode;
} captures[MOST_CAPTURES];
static _Thread_local int capture_mode; /* the calls that this thread may make during captures of other threads */

static void note_capture(struct graph *graph, int mode) {
  pthread_mutex_lock(&lock);
  int at = 0;
  while (at < MOST_CAPTURES && captures[at].graph) at++;
  if (at == MOST_CAPTURES) abort();
  captures[at].graph = graph;
  captures[at].thread = pthread_self();
  captures[at].mode = mode;
  pthread_mutex_unlock(&lock);
}
static void forget_capture(const struct graph *graph) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST_CAPTURES; i++)
    if (captures[i].graph == graph) captures[i].graph = NULL;
  pthread_mutex_unlock(&lock);
}

/* Returns the code for a call that captures forbid this thread. forbids_all: captures forbid the call in every mode of
 * the thread. */
static int unsafe(int forbids_all) {
  int code = SUCCESS;
  if (capture_mode == RELAXED && !forbids_all) return SUCCESS;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MOST_CAPTURES; i++) {
    if (!captures[i].graph) continue;
    const int is_own = captures[i].mode == OF_THIS_THREAD && pthread_equal(captures[i].thread, pthread_self());
    const int is_of_all = captures[i].mode == OF_ALL_THREADS && capture_mode == OF_ALL_THREADS;
    if (!forbids_all && !is_own && !is_of_all) continue;
    if (version() >= 7) captures[i].graph->is_invalid = 1;
    code = UNSUPPORTED;
  }
  pthread_mutex_unlock(&lock);
  return code;
}
/* The same for doubles of libraries, whose calls allocate. */
int hip_double_unsafe(void);
int hip_double_unsafe(void) { return unsafe(0); }

/* Returns the code for a wait for a stream, or for an event of this stream. Before release 7, while any stream is
 * captured for all threads, a thread of any mode can wait only for the null stream. */
static int waits(const void *stream) {
  if (!stream) return SUCCESS;
  struct graph *graph = capture_of(stream);
  if (graph && version() >= 7) graph->is_invalid = 1;
  if (graph) return UNSUPPORTED;
  if (version() >= 7) return unsafe(0);
  return captures_here || __atomic_load_n(&captures_of_all, __ATOMIC_SEQ_CST) ? UNSUPPORTED : SUCCESS;
}

/* Release 7 refuses this call while any stream is captured, and makes the captures invalid. */
hipError_t hipDeviceSynchronize(void) {
  const int code = version() >= 7 ? unsafe(1) : SUCCESS;
  ANSWER(code ? code : current() ? wait_device(current()->number) : INVALID_CONTEXT);
}

/* Ends all streams, events, pools and memory of the current device. */
static int pool_is_gone[DEVICES];
static int reset(void) {
  wait_device(current()->number);
  pthread_mutex_lock(&queue_lock);
  for (struct queue *queue = queues; queue; queue = queue->next) queue->is_gone |= queue->device == current()->number;
  pthread_mutex_unlock(&queue_lock);
  for (int dropped = 1; dropped;) {
    void *memory = NULL;
    pthread_mutex_lock(&lock);
    for (struct object *object = objects; object && !memory; object = object->next)
      if (object->device == current()->number) memory = object->memory;
    pthread_mutex_unlock(&lock);
    dropped = memory && drop(memory, current()->number) >= 0;
  }
  current()->used = 0;
  pool_is_gone[current()->number] = 1;
  return SUCCESS;
}
hipError_t hipDeviceReset(void);
hipError_t hipDeviceReset(void) { ANSWER(reset()); }

/* -- arguments that HIP ignores, or checks closely ----------------------------------------------------------------- */
static int is_live(const void *stream) { return !stream || owner_of(stream, 1) >= 0; }

/* Before release 6, HIP does not check the stream of a copy or a fill; release 7 checks no stream of a call. Using a
 * stream that was destroyed is then a fault. */
static void use_freed_stream(void) {
  fprintf(stderr, "the double was given a stream that is gone: HIP %d would use its freed memory\n", version());
  abort();
}
static void check_copy_stream(const void *stream) {
  if (!is_live(stream) && version() != 6) use_freed_stream();
}
static void check_stream(const void *stream) {
  if (!is_live(stream) && version() > 6) use_freed_stream();
}

/* HIP looks up the memory in which a copy begins, and this memory must contain all bytes of the copy. So a copy is
 * refused if only the first bytes of the program's memory are registered. */
static int check_whole(const void *memory, size_t nbytes) {
  return owner_of(memory, 1) != -2 && owner_of(memory, nbytes) == -2 ? INVALID_VALUE : SUCCESS;
}

static int check_copy(const void *to, const void *from, size_t nbytes, const void *stream) {
  check_copy_stream(stream);
  if (!to || !from) return INVALID_VALUE;
  const int code = check_whole(to, nbytes);
  return code ? code : check_whole(from, nbytes);
}

/* -- memory -------------------------------------------------------------------------------------------------------- */
hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  const char *text = getenv("HIP_DOUBLE_MEMORY");
  ANSWER(text && !atoi(text) ? INVALID_VALUE : cuMemGetInfo_v2(free_bytes, total_bytes));
}
/* Ends the process if a pool belongs to a device that was reset. HIP does not check this, and may end the process. */
static void check_pool(const hipMemPool_t pool) {
  if (!pool || !pool_is_gone[((const struct device *)pool)->number]) return;
  fprintf(stderr, "the double was given a pool of memory that is gone: HIP would use freed memory\n");
  abort();
}
hipError_t hipMemPoolCreate(hipMemPool_t *pool, const hipMemPoolProps *properties) {
  const int code = version() >= 7 ? unsafe(0) : SUCCESS;
  ANSWER(code ? code : cuMemPoolCreate((void **)pool, (const struct pool_properties *)properties));
}
hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void *value) {
  check_pool(pool);
  ANSWER(cuMemPoolSetAttribute(pool, attribute, value));
}
hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void *value) {
  check_pool(pool);
  ANSWER(cuMemPoolGetAttribute(pool, attribute, value));
}
hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t keep) {
  check_pool(pool);
  ANSWER(cuMemPoolTrimTo(pool, keep));
}
/* Allocates memory, for hipMalloc without a pool. With a pool, HIP 5.7 returns success and no address if memory is
 * short. */
static int allocate_of(void **address, size_t nbytes, hipMemPool_t pool, hipStream_t stream) {
  gpu_address allocated = 0;
  check_stream(stream);
  if (!is_live(stream)) return INVALID_VALUE;
  const gpu_pool from = pool ? (gpu_pool)pool : (gpu_pool)current();
  int code = cuMemAllocFromPoolAsync(&allocated, nbytes, from, stream);
  if (code == OUT_OF_MEMORY && !wait_device(current()->number)) /* some memory may be freed now */
    code = cuMemAllocFromPoolAsync(&allocated, nbytes, from, stream);
  *address = (void *)(uintptr_t)allocated;
  return code == OUT_OF_MEMORY && pool && version() == 5 ? SUCCESS : code;
}
hipError_t hipMallocFromPoolAsync(void **address, size_t nbytes, hipMemPool_t pool, hipStream_t stream) {
  ANSWER(allocate_of(address, nbytes, pool, stream));
}
hipError_t hipFreeAsync(void *address, hipStream_t stream) {
  check_stream(stream);
  ANSWER_AND_DO(is_live(stream) ? cuMemFreeAsync((uintptr_t)address, stream) : INVALID_VALUE);
}
/* While a stream is captured for all threads, the following calls are refused on every thread, for all devices. Freeing
 * first waits for all devices. */
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode) {
  const int wanted = (int)*mode;
  if (wanted < OF_ALL_THREADS || wanted > RELAXED) return remember(INVALID_VALUE);
  *(int *)mode = capture_mode;
  capture_mode = wanted;
  return remember(SUCCESS);
}
#define UNLESS_CAPTURING(expression)    \
  ({                                    \
    const int refused_ = unsafe(0);     \
    refused_ ? refused_ : (expression); \
  })
static int free_now(void *address) {
  wait_device(-1);
  const int code = cuMemFreeAsync((uintptr_t)address, NULL);
  return code ? code : wait_stream(NULL);
}
static int free_pinned(void *memory) {
  wait_device(-1);
  return cuMemFreeHost(memory);
}
static int unregister(void *memory) {
  wait_device(-1);
  return cuMemHostUnregister(memory);
}
hipError_t hipMalloc(void **address, size_t nbytes) {
  ANSWER(UNLESS_CAPTURING(allocate_of(address, nbytes, NULL, NULL)));
}
hipError_t hipFree(void *address) { ANSWER_AND_DO(UNLESS_CAPTURING(free_now(address))); }
hipError_t hipHostMalloc(void **memory, size_t nbytes, unsigned flags) {
  ANSWER(UNLESS_CAPTURING(cuMemHostAlloc(memory, nbytes, flags)));
}
hipError_t hipHostFree(void *memory) { ANSWER_AND_DO(UNLESS_CAPTURING(free_pinned(memory))); }
hipError_t hipHostRegister(void *memory, size_t nbytes, unsigned flags) {
  ANSWER(UNLESS_CAPTURING(cuMemHostRegister_v2(memory, nbytes, flags)));
}
hipError_t hipHostUnregister(void *memory) { ANSWER(UNLESS_CAPTURING(unregister(memory))); }
/* Finds the allocation that has an address. */
static int range_of(void **start, size_t *nbytes, const void *memory) {
  int code = INVALID_VALUE;
  pthread_mutex_lock(&lock);
  for (const struct object *object = objects; object && code; object = object->next)
    if (object->is_memory && !object->is_freed &&
        (size_t)((uintptr_t)memory - (uintptr_t)object->memory) < object->nbytes) {
      *start = object->memory;
      *nbytes = object->nbytes;
      code = SUCCESS;
    }
  pthread_mutex_unlock(&lock);
  return code;
}
hipError_t hipMemGetAddressRange(hipDeviceptr_t *start, size_t *nbytes, hipDeviceptr_t memory) {
  ANSWER(range_of((void **)start, nbytes, memory));
}
/* HIP 5 takes no plain memory, and counts kinds from 0. */
hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *memory) {
  const int owner = owner_of(memory, 1), first = version() == 5 ? 0 : 1;
  be_ready();
  memset(attributes, 0, sizeof *attributes);
  if (owner == -2) return remember(version() == 5 ? INVALID_VALUE : SUCCESS);
  attributes->type = owner == -1 ? first : first + 1;
  attributes->device = owner < 0 ? 0 : owner;
  return remember(SUCCESS);
}

/* -- copies and fills ---------------------------------------------------------------------------------------------- */
/* Plain memory of the host is read, or written, before the call returns. Pinned memory has poison until the stream was
 * waited for, and then has the copied bytes. */
static int is_plain(const void *memory) { return owner_of(memory, 1) == -2; }
static void poison(void *to, size_t nbytes, const void *stream) {
  if (owner_of(to, nbytes) == -1 && !capture_of(stream)) memset(to, POISON, nbytes);
}

struct staged {
  gpu_address to;
  void *bytes;
  size_t nbytes;
};
static int copy_staged(const void *arguments, gpu_stream stream) {
  const struct staged *s = arguments;
  const int code = cuMemcpyHtoDAsync_v2(s->to, s->bytes, s->nbytes, stream);
  free(s->bytes);
  return code;
}
static int copy_up(gpu_address to, void *from, size_t nbytes, gpu_stream stream) {
  if (!is_plain(from) || capture_of(stream)) return cuMemcpyHtoDAsync_v2(to, from, nbytes, stream);
  int code = belongs(stream);
  if (!code) code = on_device(to, nbytes);
  if (code) return code;
  const struct staged staged = {to, malloc(nbytes + 1), nbytes};
  if (!staged.bytes) return OUT_OF_MEMORY;
  memcpy(staged.bytes, from, nbytes);
  later(stream, copy_staged, &staged, sizeof staged);
  return SUCCESS;
}
static int copy_down(void *to, gpu_address from, size_t nbytes, gpu_stream stream) {
  const int must_wait = is_plain(to) && !capture_of(stream);
  if (!on_device(from, nbytes)) poison(to, nbytes, stream);
  const int code = cuMemcpyDtoHAsync_v2(to, from, nbytes, stream);
  return code || !must_wait ? code : wait_stream(stream);
}
hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, void *from, size_t nbytes, hipStream_t stream) {
  const int refused = check_copy(to, from, nbytes, stream);
  ANSWER(refused ? refused : copy_up((uintptr_t)to, from, nbytes, stream));
}
hipError_t hipMemcpyDtoHAsync(void *to, hipDeviceptr_t from, size_t nbytes, hipStream_t stream) {
  const int refused = check_copy(to, from, nbytes, stream);
  ANSWER(refused ? refused : copy_down(to, (uintptr_t)from, nbytes, stream));
}
/* Copies in the null stream, and waits for the copy. With kind 4, HIP determines the kind. Release 7 makes captures
 * invalid, because it can't wait during them. */
static int copy_now(void *to, const void *from, size_t nbytes) {
  const int code = version() >= 7 ? unsafe(1) : wait_stream(NULL);
  if (!code) memmove(HERE(to), HERE((void *)(uintptr_t)from), nbytes);
  return code;
}
hipError_t hipMemcpy(void *to, const void *from, size_t nbytes, hipMemcpyKind kind);
hipError_t hipMemcpy(void *to, const void *from, size_t nbytes, hipMemcpyKind kind) {
  (void)kind;
  ANSWER(copy_now(to, from, nbytes));
}
hipError_t hipMemcpyAsync(void *to, const void *from, size_t nbytes, hipMemcpyKind kind, hipStream_t stream) {
  const int refused = check_copy(to, from, nbytes, stream);
  ANSWER(refused ? refused : kind == 3 ? cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, nbytes, stream) : INVALID_VALUE);
}
hipError_t hipMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t nbytes,
                              hipStream_t stream) {
  check_stream(stream);
  ANSWER(to_device >= 0 && to_device < DEVICES && from_device >= 0 && from_device < DEVICES
             ? cuMemcpyPeerAsync((uintptr_t)to, &devices[to_device], (uintptr_t)from, &devices[from_device], nbytes,
                                 stream)
             : INVALID_DEVICE);
}
hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer) { ANSWER(cuDeviceCanAccessPeer(can, device, peer)); }
hipError_t hipMemPoolSetAccess(hipMemPool_t pool, const hipMemAccessDesc *access, size_t count) {
  ANSWER(cuMemPoolSetAccess(pool, (const struct pool_access *)access, count));
}
/* Plain memory is also read or written later, because HIP pins it. With the default kind, HIP 5.7 adds the offset of a
 * pinned address twice, so this double refuses the kind. */
hipError_t hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t lines,
                            hipMemcpyKind kind, hipStream_t stream) {
  const size_t behind = lines ? lines - 1 : 0;
  if (kind < 1 || kind > 3) return remember(INVALID_VALUE);
  if (check_whole(to, behind * to_pitch + width) || check_whole(from, behind * from_pitch + width))
    return remember(INVALID_VALUE);
  const int other = kind == 3 ? UNIFIED : DEVICE; /* pinned memory is accepted */
  const struct copy_parameters copy = {.from_type = kind == 1 ? HOST : other,
                                       .from_host = from,
                                       .from_device = (uintptr_t)from,
                                       .from_pitch = from_pitch,
                                       .to_type = kind == 2 ? HOST : other,
                                       .to_host = to,
                                       .to_device = (uintptr_t)to,
                                       .to_pitch = to_pitch,
                                       .width = width,
                                       .lines = lines};
  check_stream(stream);
  for (size_t i = 0; i < lines; i++) poison((char *)to + i * to_pitch, width, stream);
  ANSWER(cuMemcpy2DAsync_v2(&copy, stream));
}
hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value, size_t count, hipStream_t stream) {
  check_copy_stream(stream);
  ANSWER(cuMemsetD8Async((uintptr_t)to, value, count, stream));
}
hipError_t hipMemsetD16Async(hipDeviceptr_t to, unsigned short value, size_t count, hipStream_t stream) {
  check_copy_stream(stream);
  ANSWER(cuMemsetD16Async((uintptr_t)to, value, count, stream));
}
hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t count, hipStream_t stream) {
  check_copy_stream(stream);
  ANSWER(cuMemsetD32Async((uintptr_t)to, (unsigned)value, count, stream));
}
hipError_t hipMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t lines, hipStream_t stream) {
  check_copy_stream(stream);
  ANSWER(cuMemsetD2D8Async((uintptr_t)to, pitch, (unsigned char)value, width, lines, stream));
}

/* -- streams and events -------------------------------------------------------------------------------------------- */
static int create_stream(void **stream, unsigned flags) {
  const int code = flags > 1 ? INVALID_VALUE : cuStreamCreate(stream, 1);
  if (code) return code;
  pthread_mutex_lock(&queue_lock);
  make_queue(*stream, current()->number, flags == 0);
  pthread_mutex_unlock(&queue_lock);
  return SUCCESS;
}
static int destroy_stream(void *stream) {
  if (belongs(stream) || !stream) return INVALID_HANDLE;
  wait_stream(stream);
  end_queue(stream, current()->number);
  return cuStreamDestroy_v2(stream);
}
static int synchronize_stream(const void *stream) {
  const int code = belongs(stream), refused = code ? code : waits(stream);
  return refused ? refused : wait_stream(stream);
}
static int let_wait(void *stream, void *event, unsigned flags) {
  const int code = cuStreamWaitEvent(stream, event, flags);
  if (!code && !capture_of(stream)) wait_in_stream(stream, event);
  return code;
}
static int record_event(void *event, void *stream) {
  const int code = cuEventRecord(event, stream);
  if (!code && !capture_of(stream)) note_record(event, stream);
  return code;
}
/* Waits for an event or queries it. Release 7 checks the stream in which the event was recorded, even if the stream was
 * destroyed. Earlier releases refuse only the wait, and not the query. */
static int await_event(void *event, int only_asks) {
  int code = cuEventQuery(event);
  if (code) return code;
  pthread_mutex_lock(&queue_lock);
  const struct record *record = *record_of(event);
  const struct queue *queue = record ? record->queue : NULL;
  const void *stream = queue ? queue->stream : NULL;
  if (queue && queue->is_gone && stream && version() > 6) use_freed_stream();
  pthread_mutex_unlock(&queue_lock);
  if (version() > 6)
    code = waits(stream);
  else if (!only_asks)
    code = waits(event);
  return code ? code : wait_event(event, only_asks);
}
hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags) {
  ANSWER(create_stream((void **)stream, flags));
}
hipError_t hipStreamDestroy(hipStream_t stream) {
  check_stream(stream);
  ANSWER(destroy_stream(stream));
}
/* Since release 7, HIP also returns a code for a stream that was destroyed. */
hipError_t hipStreamGetId(hipStream_t stream, unsigned long long *number);
hipError_t hipStreamGetId(hipStream_t stream, unsigned long long *number) {
  *number = (uintptr_t)stream;
  ANSWER(version() < 7 ? NOT_SUPPORTED : is_live(stream) ? SUCCESS : INVALID_HANDLE);
}
hipError_t hipStreamSynchronize(hipStream_t stream) {
  check_stream(stream);
  ANSWER(synchronize_stream(stream));
}
hipError_t hipStreamQuery(hipStream_t stream) { /* the stream does its work now */
  check_stream(stream);
  ANSWER(synchronize_stream(stream));
}
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
  check_stream(stream);
  ANSWER(let_wait(stream, event, flags));
}
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status) {
  check_stream(stream);
  ANSWER(cuStreamIsCapturing(stream, (int *)status));
}
hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags) { ANSWER(cuEventCreate((void **)event, flags)); }
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
  check_stream(stream);
  ANSWER(record_event(event, stream));
}
hipError_t hipEventDestroy(hipEvent_t event) {
  forget_record(event);
  ANSWER_AND_DO(cuEventDestroy_v2(event));
}
hipError_t hipEventQuery(hipEvent_t event) { ANSWER(await_event(event, 1)); }
hipError_t hipEventSynchronize(hipEvent_t event) { ANSWER(await_event(event, 0)); }

/* -- captured graphs ----------------------------------------------------------------------------------------------- */
static int begin_capture(void *stream, int mode) {
  const int code = cuStreamBeginCapture_v2(stream, mode);
  if (!code) note_capture(capture_of(stream), mode);
  return code;
}
static int end_capture(void *stream, struct graph **graph) {
  struct graph *captured = capture_of(stream);
  const int code = stream ? cuStreamEndCapture(stream, graph) : ILLEGAL_STATE;
  if (captured && captured->is_complete) forget_capture(captured);
  return code;
}
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
  ANSWER(begin_capture(stream, (int)mode));
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph) {
  check_stream(stream);
  ANSWER(end_capture(stream, (struct graph **)graph));
}
hipError_t hipGraphInstantiate(hipGraphExec_t *executable, hipGraph_t graph, hipGraphNode_t *node, char *log,
                               size_t nbytes);
hipError_t hipGraphInstantiate(hipGraphExec_t *executable, hipGraph_t graph, hipGraphNode_t *node, char *log,
                               size_t nbytes) {
  ANSWER(node || log || nbytes ? INVALID_VALUE
                               : cuGraphInstantiateWithFlags((struct graph **)executable, (void *)graph, 0));
}
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream);
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
  check_stream(stream);
  ANSWER(cuGraphLaunch((void *)executable, stream));
}
hipError_t hipGraphExecDestroy(hipGraphExec_t executable);
hipError_t hipGraphExecDestroy(hipGraphExec_t executable) { ANSWER(destroy_graph((void *)executable)); }
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipGraphDestroy(hipGraph_t graph) { ANSWER(destroy_graph((void *)graph)); }

#include "hip_modules.c"
