/* A double of libamdhip64 for machines with no AMD GPU: the devices of the double of CUDA, by HIP's names and with its
 * codes. HIP_DOUBLE_VERSION says which release's: 5, 6 (the default) or 7. HIP_DOUBLE_NO_POOLS=1: without pools.
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
#endif

#define GPU_NAME "double of an AMD GPU, number %d"
#include "cuda.c"

static int version(void) {
  const char *text = getenv("HIP_DOUBLE_VERSION");
  return text ? atoi(text) : 6;
}

static int has_pools(void) { return !getenv("HIP_DOUBLE_NO_POOLS"); }

/* HIP has a current device in every thread, the first one at the start, and remembers the last failure. */
static _Thread_local int last_error;
static hipError_t remember(int code) {
  if (code) last_error = code;
  return (hipError_t)code;
}
static void be_ready(void) {
  if (!depth) stack[depth++] = &devices[0];
}
#define ANSWER(expression) return be_ready(), remember(expression)

hipError_t hipGetLastError(void) {
  const int code = last_error;
  last_error = 0;
  return (hipError_t)code;
}
const char *hipGetErrorName(hipError_t code) {
  return code == 2 ? "hipErrorOutOfMemory" : code == 1 ? "hipErrorInvalidValue" : "hipError";
}
const char *hipGetErrorString(hipError_t code) { return code == 2 ? "out of memory" : "a double's error"; }

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
  return *device = current()->number, 0;
}
hipError_t hipSetDevice(int device) {
  be_ready();
  if (device < 0 || device >= DEVICES) return remember(INVALID_DEVICE);
  stack[depth - 1] = &devices[device];
  return 0;
}
hipError_t hipDeviceSynchronize(void) { ANSWER(cuCtxSynchronize()); }

/* -- memory -------------------------------------------------------------------------------------------------------- */
hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total_bytes) { ANSWER(cuMemGetInfo_v2(free_bytes, total_bytes)); }
hipError_t hipMemPoolCreate(hipMemPool_t *pool, const hipMemPoolProps *properties) {
  ANSWER(cuMemPoolCreate((void **)pool, (const struct pool_properties *)properties));
}
hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void *value) {
  ANSWER(cuMemPoolSetAttribute(pool, attribute, value));
}
hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void *value) {
  ANSWER(cuMemPoolGetAttribute(pool, attribute, value));
}
hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t keep) { ANSWER(cuMemPoolTrimTo(pool, keep)); }
hipError_t hipMallocFromPoolAsync(void **address, size_t nbytes, hipMemPool_t pool, hipStream_t stream) {
  gpu_address made = 0;
  be_ready();
  int code = cuMemAllocFromPoolAsync(&made, nbytes, pool, stream);
  *address = (void *)(uintptr_t)made;
  if (code == OUT_OF_MEMORY && version() == 5) code = SUCCESS; /* as HIP 5.7 has it, with no address */
  return remember(code);
}
hipError_t hipFreeAsync(void *address, hipStream_t stream) { ANSWER(cuMemFreeAsync((uintptr_t)address, stream)); }
hipError_t hipMalloc(void **address, size_t nbytes) {
  gpu_address made = 0;
  be_ready();
  const int code = cuMemAllocFromPoolAsync(&made, nbytes, current(), NULL);
  *address = (void *)(uintptr_t)made;
  return remember(code);
}
hipError_t hipFree(void *address) { ANSWER(cuMemFreeAsync((uintptr_t)address, NULL)); }
hipError_t hipHostMalloc(void **memory, size_t nbytes, unsigned flags) {
  ANSWER(cuMemHostAlloc(memory, nbytes, flags));
}
hipError_t hipHostFree(void *memory) { ANSWER(cuMemFreeHost(memory)); }
hipError_t hipHostRegister(void *memory, size_t nbytes, unsigned flags) {
  ANSWER(cuMemHostRegister_v2(memory, nbytes, flags));
}
hipError_t hipHostUnregister(void *memory) { ANSWER(cuMemHostUnregister(memory)); }
/* HIP 5 takes no plain memory, and counts kinds from 0. */
hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *memory) {
  const int owner = owner_of(memory, 1), first = version() == 5 ? 0 : 1;
  be_ready();
  memset(attributes, 0, sizeof *attributes);
  if (owner == -2) return remember(version() == 5 ? INVALID_VALUE : SUCCESS);
  attributes->type = owner == -1 ? first : first + 1;
  attributes->device = owner < 0 ? 0 : owner;
  return 0;
}

/* -- copies and fills ---------------------------------------------------------------------------------------------- */
hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, void *from, size_t nbytes, hipStream_t stream) {
  ANSWER(cuMemcpyHtoDAsync_v2((uintptr_t)to, from, nbytes, stream));
}
hipError_t hipMemcpyDtoHAsync(void *to, hipDeviceptr_t from, size_t nbytes, hipStream_t stream) {
  ANSWER(cuMemcpyDtoHAsync_v2(to, (uintptr_t)from, nbytes, stream));
}
hipError_t hipMemcpyAsync(void *to, const void *from, size_t nbytes, hipMemcpyKind kind, hipStream_t stream) {
  ANSWER(kind == 3 ? cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, nbytes, stream) : INVALID_VALUE);
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
hipError_t hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t lines,
                            hipMemcpyKind kind, hipStream_t stream) {
  if (kind < 1 || kind > 3) return remember(INVALID_VALUE);
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
  ANSWER(cuMemcpy2DAsync_v2(&copy, stream));
}
hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value, size_t count, hipStream_t stream) {
  ANSWER(cuMemsetD8Async((uintptr_t)to, value, count, stream));
}
hipError_t hipMemsetD16Async(hipDeviceptr_t to, unsigned short value, size_t count, hipStream_t stream) {
  ANSWER(cuMemsetD16Async((uintptr_t)to, value, count, stream));
}
hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t count, hipStream_t stream) {
  ANSWER(cuMemsetD32Async((uintptr_t)to, (unsigned)value, count, stream));
}
hipError_t hipMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t lines, hipStream_t stream) {
  ANSWER(cuMemsetD2D8Async((uintptr_t)to, pitch, (unsigned char)value, width, lines, stream));
}

/* -- streams and events -------------------------------------------------------------------------------------------- */
hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags) {
  ANSWER(cuStreamCreate((void **)stream, flags));
}
hipError_t hipStreamDestroy(hipStream_t stream) { ANSWER(cuStreamDestroy_v2(stream)); }
hipError_t hipStreamSynchronize(hipStream_t stream) { ANSWER(cuStreamSynchronize(stream)); }
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned flags) {
  ANSWER(cuStreamWaitEvent(stream, event, flags));
}
hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus *status) {
  ANSWER(cuStreamIsCapturing(stream, (int *)status));
}
hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned flags) { ANSWER(cuEventCreate((void **)event, flags)); }
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) { ANSWER(cuEventRecord(event, stream)); }
hipError_t hipEventDestroy(hipEvent_t event) { ANSWER(cuEventDestroy_v2(event)); }
hipError_t hipEventQuery(hipEvent_t event) { ANSWER(cuEventQuery(event)); }
hipError_t hipEventSynchronize(hipEvent_t event) { ANSWER(cuEventSynchronize(event)); }

#include "hip_modules.c"
