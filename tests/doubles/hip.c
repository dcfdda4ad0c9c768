/* A double of libamdhip64 for machines with no AMD GPU: the devices of the double of CUDA, by HIP's names and with its
 * codes, over memory that traps on the host. Where releases differ it does as AMD's sources do. The environment says:
 *   HIP_DOUBLE_VERSION=5      the release: 5 (5.7), 6 (6.4, the default) or 7
 *   HIP_MEM_POOL_SUPPORT=1    pools in release 5, where they are off; =0: none in later ones, where they are on
 *   HIP_DOUBLE_MEMORY=0       nothing is said of the device's memory, as where the kernel does not tell it
 *   HIP_DOUBLE_FAIL=9         the 9th call fails with hipErrorUnknown; hipDoubleFail does so at run time
 *
 * With -DREAL_HEADERS it is compiled against AMD's headers, so that a wrong prototype does not compile. */
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
#define SPOILS_CAPTURES 0
#define UNKNOWN_HANDLE 709 /* what HIP says of streams that it does not know */
#include "cuda.c"

static int version(void) {
  const char *text = getenv("HIP_DOUBLE_VERSION");
  return text ? atoi(text) : 6;
}

static int has_pools(void) {
  const char *text = getenv("HIP_MEM_POOL_SUPPORT");
  return text ? atoi(text) : version() != 5;
}

/* HIP has a current device in every thread, the first one at the start, and remembers the last failure; release 5 what
 * the last call returned. */
static _Thread_local int last_error;
static hipError_t remember(int code) {
  if (code || version() == 5) last_error = code;
  return (hipError_t)code;
}

/* Counts the calls, and says whether this one has to fail. */
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
/* Makes the k-th call from now fail, none if k is 0; returns how many were made so far. */
long long hipDoubleFail(long long k);
long long hipDoubleFail(long long k) {
  pthread_once(&failing_is_read, read_failing);
  const long long made = __atomic_load_n(&calls_made, __ATOMIC_SEQ_CST);
  __atomic_store_n(&failing_call, k ? made + k : 0, __ATOMIC_SEQ_CST);
  return made;
}

/* A copy of lines up from plain memory is read when it returns, and again at the next call: HIP pins that memory
 * and reads it later. */
static struct copy_parameters late_copy;
static pthread_mutex_t late_lock = PTHREAD_MUTEX_INITIALIZER;
static void read_late(void) {
  pthread_mutex_lock(&late_lock);
  const struct copy_parameters *c = &late_copy;
  for (size_t i = 0; i < c->lines; i++)
    memcpy((char *)HERE((void *)(uintptr_t)c->to_device) + i * c->to_pitch,
           (const char *)c->from_host + i * c->from_pitch, c->width);
  late_copy.lines = 0;
  pthread_mutex_unlock(&late_lock);
}

static void be_ready(void) {
  if (!depth) stack[depth++] = &devices[0];
  if (late_copy.lines) read_late();
}
/* Returns the code of an expression. A call that has to fail does nothing; what frees is done nevertheless. */
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
  static const unsigned char numbers[] = {[10] = 95, [23] = 75, [26] = 2,  [27] = 3,  [28] = 4, [29] = 5,  [30] = 6,
                                          [31] = 7,  [61] = 76, [63] = 16, [65] = 88, [74] = 8, [88] = 115};
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
hipError_t hipDeviceSynchronize(void) { ANSWER(cuCtxSynchronize()); }

/* Ends all streams, events, pools and memory of the current device. */
static int pool_is_gone[DEVICES];
static int reset(void) {
  for (int found = 1; found;) {
    void *memory = NULL;
    pthread_mutex_lock(&lock);
    for (struct object *one = objects; one && !memory; one = one->next)
      if (one->device == current()->number) memory = one->memory;
    pthread_mutex_unlock(&lock);
    found = memory && drop(memory, current()->number) >= 0;
  }
  current()->used = 0;
  pool_is_gone[current()->number] = 1;
  return SUCCESS;
}
hipError_t hipDeviceReset(void);
hipError_t hipDeviceReset(void) { ANSWER(reset()); }

/* -- what HIP does not look at, or looks at closely ---------------------------------------------------------------- */
static int is_live(const void *stream) { return !stream || owner_of(stream, 1) >= 0; }

/* HIP before 6 uses the stream of a copy or a fill without a look: one that is gone is a fault. */
static int check_stream(const void *stream) {
  if (is_live(stream) || version() > 5) return SUCCESS;
  fprintf(stderr, "the double was given a stream that is gone: HIP 5 would use its freed memory\n");
  abort();
}

/* HIP asks for the memory in which a copy begins, and that has to have all of its bytes: so a copy of the program's own
 * memory, of which the first bytes alone are registered, is refused. */
static int check_whole(const void *memory, size_t nbytes) {
  return owner_of(memory, 1) != -2 && owner_of(memory, nbytes) == -2 ? INVALID_VALUE : SUCCESS;
}

static int check_copy(const void *to, const void *from, size_t nbytes, const void *stream) {
  check_stream(stream);
  if (!to || !from) return INVALID_VALUE;
  const int code = check_whole(to, nbytes);
  return code ? code : check_whole(from, nbytes);
}

/* -- memory -------------------------------------------------------------------------------------------------------- */
hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  const char *text = getenv("HIP_DOUBLE_MEMORY");
  ANSWER(text && !atoi(text) ? INVALID_VALUE : cuMemGetInfo_v2(free_bytes, total_bytes));
}
/* Ends the process as a pool of a device that was reset may do in HIP, which does not look. */
static void check_pool(const hipMemPool_t pool) {
  if (!pool || !pool_is_gone[((const struct device *)pool)->number]) return;
  fprintf(stderr, "the double was given a pool of memory that is gone: HIP would use freed memory\n");
  abort();
}
hipError_t hipMemPoolCreate(hipMemPool_t *pool, const hipMemPoolProps *properties) {
  ANSWER(cuMemPoolCreate((void **)pool, (const struct pool_properties *)properties));
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
/* Without a pool for hipMalloc. From one, HIP 5.7 returns success and no address when memory is short. */
static int allocate_of(void **address, size_t nbytes, hipMemPool_t pool, hipStream_t stream) {
  gpu_address made = 0;
  if (!is_live(stream)) return INVALID_VALUE;
  const int code = cuMemAllocFromPoolAsync(&made, nbytes, pool ? (gpu_pool)pool : (gpu_pool)current(), stream);
  *address = (void *)(uintptr_t)made;
  return code == OUT_OF_MEMORY && pool && version() == 5 ? SUCCESS : code;
}
hipError_t hipMallocFromPoolAsync(void **address, size_t nbytes, hipMemPool_t pool, hipStream_t stream) {
  ANSWER(allocate_of(address, nbytes, pool, stream));
}
hipError_t hipFreeAsync(void *address, hipStream_t stream) {
  ANSWER_AND_DO(is_live(stream) ? cuMemFreeAsync((uintptr_t)address, stream) : INVALID_VALUE);
}
/* While a stream is captured for all threads, these are refused on every thread, whatever they are for. */
static _Thread_local int capture_mode; /* of what this thread may do */
static int is_capturing_anywhere(void) {
  if (capture_mode == RELAXED) return 0;
  return captures_here || (capture_mode == OF_ALL_THREADS && __atomic_load_n(&captures_of_all, __ATOMIC_SEQ_CST));
}
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode) {
  const int wanted = (int)*mode;
  if (wanted < OF_ALL_THREADS || wanted > RELAXED) return remember(INVALID_VALUE);
  *(int *)mode = capture_mode;
  capture_mode = wanted;
  return remember(SUCCESS);
}
#define UNLESS_CAPTURING(expression) (is_capturing_anywhere() ? UNSUPPORTED : (expression))
hipError_t hipMalloc(void **address, size_t nbytes) {
  ANSWER(UNLESS_CAPTURING(allocate_of(address, nbytes, NULL, NULL)));
}
hipError_t hipFree(void *address) { ANSWER_AND_DO(UNLESS_CAPTURING(cuMemFreeAsync((uintptr_t)address, NULL))); }
hipError_t hipHostMalloc(void **memory, size_t nbytes, unsigned flags) {
  ANSWER(UNLESS_CAPTURING(cuMemHostAlloc(memory, nbytes, flags)));
}
hipError_t hipHostFree(void *memory) { ANSWER_AND_DO(UNLESS_CAPTURING(cuMemFreeHost(memory))); }
hipError_t hipHostRegister(void *memory, size_t nbytes, unsigned flags) {
  ANSWER(UNLESS_CAPTURING(cuMemHostRegister_v2(memory, nbytes, flags)));
}
hipError_t hipHostUnregister(void *memory) { ANSWER(UNLESS_CAPTURING(cuMemHostUnregister(memory))); }
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
hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, void *from, size_t nbytes, hipStream_t stream) {
  const int refused = check_copy(to, from, nbytes, stream);
  ANSWER(refused ? refused : cuMemcpyHtoDAsync_v2((uintptr_t)to, from, nbytes, stream));
}
hipError_t hipMemcpyDtoHAsync(void *to, hipDeviceptr_t from, size_t nbytes, hipStream_t stream) {
  const int refused = check_copy(to, from, nbytes, stream);
  ANSWER(refused ? refused : cuMemcpyDtoHAsync_v2(to, (uintptr_t)from, nbytes, stream));
}
hipError_t hipMemcpyAsync(void *to, const void *from, size_t nbytes, hipMemcpyKind kind, hipStream_t stream) {
  const int refused = check_copy(to, from, nbytes, stream);
  ANSWER(refused ? refused : kind == 3 ? cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, nbytes, stream) : INVALID_VALUE);
}
hipError_t hipMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t nbytes,
                              hipStream_t stream) {
  ANSWER(to_device >= 0 && to_device < DEVICES && from_device >= 0 && from_device < DEVICES
             ? cuMemcpyPeerAsync((uintptr_t)to, &devices[to_device], (uintptr_t)from, &devices[from_device], nbytes,
                                 stream)
             : INVALID_DEVICE);
}
hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer) { ANSWER(cuDeviceCanAccessPeer(can, device, peer)); }
hipError_t hipMemPoolSetAccess(hipMemPool_t pool, const hipMemAccessDesc *access, size_t count) {
  ANSWER(cuMemPoolSetAccess(pool, (const struct pool_access *)access, count));
}
static int copy_lines(const struct copy_parameters *copy, int is_late, hipStream_t stream) {
  const int code = cuMemcpy2DAsync_v2(copy, stream);
  if (!code && is_late) {
    pthread_mutex_lock(&late_lock);
    late_copy = *copy;
    pthread_mutex_unlock(&late_lock);
  }
  return code;
}
/* Of the default kind, HIP 5.7 adds the offset of a pinned address twice: it is refused here. */
hipError_t hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t lines,
                            hipMemcpyKind kind, hipStream_t stream) {
  const size_t behind = lines ? lines - 1 : 0;
  if (kind < 1 || kind > 3) return remember(INVALID_VALUE);
  if (check_whole(to, behind * to_pitch + width) || check_whole(from, behind * from_pitch + width))
    return remember(INVALID_VALUE);
  const int other = kind == 3 ? UNIFIED : DEVICE; /* pinned memory will do */
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
  ANSWER(copy_lines(&copy, kind == 1 && owner_of(from, 1) == -2, stream));
}
hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value, size_t count, hipStream_t stream) {
  check_stream(stream);
  ANSWER(cuMemsetD8Async((uintptr_t)to, value, count, stream));
}
hipError_t hipMemsetD16Async(hipDeviceptr_t to, unsigned short value, size_t count, hipStream_t stream) {
  check_stream(stream);
  ANSWER(cuMemsetD16Async((uintptr_t)to, value, count, stream));
}
hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t count, hipStream_t stream) {
  check_stream(stream);
  ANSWER(cuMemsetD32Async((uintptr_t)to, (unsigned)value, count, stream));
}
hipError_t hipMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t lines, hipStream_t stream) {
  check_stream(stream);
  ANSWER(cuMemsetD2D8Async((uintptr_t)to, pitch, (unsigned char)value, width, lines, stream));
}

/* -- streams and events -------------------------------------------------------------------------------------------- */
hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags) {
  ANSWER(cuStreamCreate((void **)stream, flags));
}
hipError_t hipStreamDestroy(hipStream_t stream) { ANSWER(cuStreamDestroy_v2(stream)); }
/* No stream but the default one, and no event, is waited for while any stream is captured for all threads. */
hipError_t hipStreamSynchronize(hipStream_t stream) {
  const int is_refused = captures_here || __atomic_load_n(&captures_of_all, __ATOMIC_SEQ_CST);
  ANSWER(stream && !belongs(stream) && (is_refused || capture_of(stream)) ? UNSUPPORTED : belongs(stream));
}
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
  ANSWER(cuStreamWaitEvent(stream, event, flags));
}
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status) {
  ANSWER(cuStreamIsCapturing(stream, (int *)status));
}
hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags) { ANSWER(cuEventCreate((void **)event, flags)); }
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) { ANSWER(cuEventRecord(event, stream)); }
hipError_t hipEventDestroy(hipEvent_t event) { ANSWER_AND_DO(cuEventDestroy_v2(event)); }
hipError_t hipEventQuery(hipEvent_t event) { ANSWER(cuEventQuery(event)); }
hipError_t hipEventSynchronize(hipEvent_t event) {
  const int is_refused = captures_here || __atomic_load_n(&captures_of_all, __ATOMIC_SEQ_CST);
  ANSWER(is_refused ? UNSUPPORTED : cuEventSynchronize(event));
}

/* -- captured graphs ----------------------------------------------------------------------------------------------- */
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode);
hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
  ANSWER(cuStreamBeginCapture_v2(stream, (int)mode));
}
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph);
hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t *graph) {
  ANSWER(stream ? cuStreamEndCapture(stream, (struct graph **)graph) : ILLEGAL_STATE);
}
hipError_t hipGraphInstantiate(hipGraphExec_t *made, hipGraph_t graph, hipGraphNode_t *node, char *log, size_t nbytes);
hipError_t hipGraphInstantiate(hipGraphExec_t *made, hipGraph_t graph, hipGraphNode_t *node, char *log, size_t nbytes) {
  ANSWER(node || log || nbytes ? INVALID_VALUE : cuGraphInstantiateWithFlags((struct graph **)made, (void *)graph, 0));
}
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream);
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
  ANSWER(cuGraphLaunch((void *)executable, stream));
}
hipError_t hipGraphExecDestroy(hipGraphExec_t executable);
hipError_t hipGraphExecDestroy(hipGraphExec_t executable) { ANSWER(destroy_graph((void *)executable)); }
hipError_t hipGraphDestroy(hipGraph_t graph);
hipError_t hipGraphDestroy(hipGraph_t graph) { ANSWER(destroy_graph((void *)graph)); }

#include "hip_modules.c"
