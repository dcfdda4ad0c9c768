/* Stands in for libcuda.so.1: memory is malloc's, a copy is memcpy, every call is complete when it returns, and is
 * counted. region_cost.py loads it, so that regions cost the package's own share alone. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 17 };

long no_driver_calls[CALLS];
const char *const no_driver_names[CALLS] = {
    "cuCtxGetCurrent",        "cuCtxPushCurrent",    "cuCtxPopCurrent",   "cuCtxSynchronize", "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",         "cuMemcpyHtoDAsync",   "cuMemcpyDtoHAsync", "cuMemcpyAsync",    "cuMemsetAsync",
    "cuStreamCreate",         "cuStreamSynchronize", "cuStreamWaitEvent", "cuEventRecord",    "cuEventQuery",
    "cuPointerGetAttributes", "cuLaunchKernel"};

static _Thread_local void *current;
static int context;

static int count(int call) {
  no_driver_calls[call]++;
  return 0;
}

int cuInit(unsigned flags) { return (int)flags; }

int cuDriverGetVersion(int *version) {
  *version = 13000;
  return 0;
}

int cuGetErrorName(int code, const char **name) {
  *name = "none";
  return code - code;
}

int cuGetErrorString(int code, const char **text) { return cuGetErrorName(code, text); }

int cuDeviceGetCount(int *devices) {
  *devices = 1;
  return 0;
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDeviceGetName(char *name, int size, int device) {
  snprintf(name, (size_t)size, "no device %d", device);
  return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  /* The major version, pools, and limits of blocks and grids. */
  *value = attribute == 75 || attribute == 115 ? 1 : attribute >= 2 && attribute <= 8 ? 1024 : attribute == 16;
  return device;
}

int cuDevicePrimaryCtxRetain(void **result, int device) {
  *result = &context;
  return device;
}

int cuCtxGetCurrent(void **result) {
  *result = current;
  return count(0);
}

int cuCtxPushCurrent_v2(void *pushed) {
  current = pushed;
  return count(1);
}

int cuCtxPopCurrent_v2(void **popped) {
  *popped = current;
  current = NULL;
  return count(2);
}

int cuCtxSynchronize(void) { return count(3); }
int cuCtxGetApiVersion(void *context, unsigned *version) { return *version = 3020, context == NULL; }

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  *free_bytes = *total_bytes = (size_t)1 << 34;
  return 0;
}

int cuMemPoolCreate(void **pool, const void *properties) {
  *pool = &context;
  return properties == NULL;
}

int cuMemPoolSetAttribute(void *pool, int attribute, const void *value) {
  return pool == NULL || attribute < 0 || value == NULL;
}

int cuMemPoolGetAttribute(void *pool, int attribute, void *value) {
  memset(value, 0, sizeof(uint64_t));
  return pool == NULL || attribute < 0;
}

int cuMemPoolTrimTo(void *pool, size_t keep) { return pool == NULL && keep; }

int cuMemAllocFromPoolAsync(uint64_t *address, size_t nbytes, void *pool, void *stream) {
  *address = (uint64_t)(uintptr_t)aligned_alloc(512, (nbytes + 511) / 512 * 512);
  return pool == NULL || stream == NULL || *address == 0 ? 2 : count(4);
}

int cuMemFreeAsync(uint64_t address, void *stream) {
  free((void *)(uintptr_t)address);
  return stream == NULL ? 1 : count(5);
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t nbytes, void *stream) {
  memcpy((void *)(uintptr_t)to, from, nbytes);
  return stream == NULL ? 1 : count(6);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t nbytes, void *stream) {
  memcpy(to, (const void *)(uintptr_t)from, nbytes);
  return stream == NULL ? 1 : count(7);
}

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t nbytes, void *stream) {
  memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, nbytes);
  return stream == NULL ? 1 : count(8);
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t nbytes, void *stream) {
  memset((void *)(uintptr_t)to, value, nbytes);
  return stream == NULL ? 1 : count(9);
}

int cuStreamCreate(void **stream, unsigned flags) {
  *stream = malloc(1 + flags);
  return count(10);
}

int cuStreamSynchronize(void *stream) { return stream == NULL ? 1 : count(11); }
int cuStreamQuery(void *stream) { return stream == NULL; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
  return stream == NULL || event == NULL || flags ? 1 : count(12);
}

int cuStreamIsCapturing(void *stream, int *capturing) {
  *capturing = 0;
  return stream == NULL;
}

int cuEventCreate(void **event, unsigned flags) {
  *event = malloc(1 + flags);
  return 0;
}

int cuEventRecord(void *event, void *stream) { return event == NULL || stream == NULL ? 1 : count(13); }

int cuEventDestroy_v2(void *event) {
  free(event);
  return 0;
}

int cuEventQuery(void *event) { return event == NULL ? 1 : count(14); }
int cuEventSynchronize(void *event) { return event == NULL; }

int cuPointerGetAttributes(unsigned attributes, const int *which, void **values, uint64_t address) {
  memset(values[0], 0, sizeof(int)); /* memory that no driver knows */
  return attributes == 0 || which == NULL || address == 0 ? 1 : count(15);
}

int cuMemHostAlloc(void **memory, size_t nbytes, unsigned flags) {
  *memory = aligned_alloc(4096, (nbytes + 4095) / 4096 * 4096);
  return *memory == NULL || flags > 7;
}

int cuMemFreeHost(void *memory) {
  free(memory);
  return 0;
}

/* Regions of one thread don't call these. */
#define NEVER(name) \
  int name(void) { return 801; }
NEVER(cuMemcpy2DAsync_v2)
NEVER(cuModuleGetGlobal_v2)
NEVER(cuMemsetD16Async)
NEVER(cuMemsetD32Async)
NEVER(cuMemsetD2D8Async)
NEVER(cuMemsetD2D16Async)
NEVER(cuMemsetD2D32Async)

/* Kernels do nothing. */
int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
  *module = &context;
  return image == NULL || count > 2 || options == NULL || values == NULL;
}

int cuModuleUnload(void *module) { return module == NULL; }

int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = &context;
  return module == NULL || name == NULL;
}

int cuFuncGetAttribute(int *value, int attribute, void *function) {
  *value = attribute == 0 ? 1024 /* threads of a block */ : 0;
  return function == NULL;
}

int cuFuncSetAttribute(void *function, int attribute, int value) {
  return function == NULL || attribute < 0 || value < 0;
}

int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, void *function, size_t (*shared)(int), size_t nbytes,
                                     int most) {
  *grid = 1;
  *block = 1024;
  return function == NULL || shared != NULL || nbytes != 0 || most != 0;
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,
                   void **extra) {
  const int is_wrong = function == NULL || stream == NULL || arguments == NULL || extra != NULL;
  return is_wrong || !grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z || shared_bytes ? 1 : count(16);
}
