/* This file is linked with every test. With OFFLOAD_ARGS_TEST_GPU=hip, the devices sim:0 and sim:1 of the test are
 * hip:0 and hip:1, and their driver is the double that scripts/doubles builds. The test's calls run on the CPU, in the
 * order of the double's streams. During a call, the double makes the memory of its devices reachable. Delays of
 * operations have no effect, because the double does all work as late as it may. The linker puts these functions in
 * place of the core's (--wrap). */
#include "check.h"
#include "device/device.h"
#include "device/stream.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

int __real_oa_device_open(const char *name, int *device);
int __wrap_oa_device_open(const char *name, int *device);
int __real_oa_submit(oa_call *call, void (*run)(void *), void *arguments, size_t size);
int __wrap_oa_submit(oa_call *call, void (*run)(void *), void *arguments, size_t size);
int __real_oa_sim_configure(int number, int64_t capacity, int64_t fail_after, int64_t delay_us);
int __wrap_oa_sim_configure(int number, int64_t capacity, int64_t fail_after, int64_t delay_us);
int64_t __real_oa_sim_backend_calls(int number);
int64_t __wrap_oa_sim_backend_calls(int number);

static const char *backend(void) { return getenv("OFFLOAD_ARGS_TEST_GPU"); }

char tested_backend[16] = "sim";
static __attribute__((constructor)) void find_backend(void) {
  if (backend()) snprintf(tested_backend, sizeof tested_backend, "%s", backend());
}

const char *as_tested(const char *text) {
  static _Thread_local char changed[1024];
  size_t length = 0;
  for (; backend() && *text && length < sizeof changed - sizeof tested_backend; text++) {
    const bool is_name = !strncmp(text, "sim:", 4) || !strncmp(text, "sim device", 10);
    length += (size_t)snprintf(changed + length, sizeof changed - length, "%.*s", is_name ? 16 : 1,
                               is_name ? tested_backend : text);
    if (is_name) text += 2;
  }
  changed[length] = 0;
  return backend() ? changed : text;
}

static void *function_of_double(const char *name) {
  void *driver = dlopen("libamdhip64.so", RTLD_NOW);
  void *function = driver ? dlsym(driver, name) : NULL;
  if (function) return function;
  fprintf(stderr, "OFFLOAD_ARGS_TEST_GPU: the double of %s has no %s\n", backend(), name);
  exit(1);
}

/* Returns whether the driver of the device is a double. */
static bool is_double(const oa_device *device) {
  return backend() && device && !strcmp(device->backend->name, backend());
}

const char *sample_kernels(int device) {
  const char *packed = getenv("OFFLOAD_ARGS_TEST_KERNELS");
  return packed && is_double(oa_device_of(device)) ? packed : SAMPLE_KERNELS;
}

void *reachable(uint64_t address) {
  void *memory = (void *)(uintptr_t)address;
  return backend() ? ((void *(*)(const void *))function_of_double("hip_double_here"))(memory) : memory;
}

int __wrap_oa_device_open(const char *name, int *device) {
  char other[32];
  if (!backend() || !name || strncmp(name, "sim:", 4) != 0) return __real_oa_device_open(name, device);
  snprintf(other, sizeof other, "%s%s", backend(), name + 3);
  return __real_oa_device_open(other, device);
}

/* A call in a stream of the double. */
typedef struct submitted {
  void (*run)(void *);
  _Alignas(16) unsigned char arguments[];
} submitted;

static int run_submitted(const void *data, void *stream) {
  const submitted *s = data;
  (void)stream;
  ((void (*)(void))function_of_double("hip_double_begin"))();
  s->run((void *)(uintptr_t)s->arguments);
  ((void (*)(void))function_of_double("hip_double_end"))();
  return 0;
}

/* Puts a call into its stream, and waits for it if it is blocking. Returns the double's code. */
static int put(const oa_call *call, void (*run)(void *), const void *arguments, size_t size) {
  void *stream = ((const oa_stream *)call->stream)->native;
  submitted *s = malloc(sizeof *s + size);
  if (!s) return 1;
  s->run = run;
  if (size) memcpy(s->arguments, arguments, size);
  const int is_put = ((int (*)(const void *, int (*)(const void *, void *), const void *, size_t))function_of_double(
      "amd_gpu_double_captures"))(stream, run_submitted, s, sizeof *s + size);
  free(s);
  return !is_put || (call->blocking && ((int (*)(const void *))function_of_double("hip_double_wait"))(stream));
}

int __wrap_oa_submit(oa_call *call, void (*run)(void *), void *arguments, size_t size) {
  if (!call || !call->open || !run || !is_double(call->device)) return __real_oa_submit(call, run, arguments, size);
  oa_device *device = call->device;
  void *saved;
  int status = device->backend->enter(device, &saved);
  if (!status) {
    const int code = put(call, run, arguments, size);
    status = device->backend->leave(device, saved);
    if (!status && code) status = oa_fail(OA_ERROR_BACKEND, "%s: the double took no call", device->name);
  }
  if (!status) return oa_end(call, call->vendor_status);
  oa_saved_error failure;
  oa_error_save(&failure);
  oa_end(call, -1);
  oa_error_restore(&failure);
  return status;
}

int __wrap_oa_sim_configure(int number, int64_t capacity, int64_t fail_after, int64_t delay_us) {
  if (!is_double(oa_device_of(number))) return __real_oa_sim_configure(number, capacity, fail_after, delay_us);
  ((long long (*)(long long))function_of_double("hipDoubleFail"))(fail_after);
  return OA_OK;
}

int64_t __wrap_oa_sim_backend_calls(int number) {
  if (!is_double(oa_device_of(number))) return __real_oa_sim_backend_calls(number);
  return ((long long (*)(void))function_of_double("hipDoubleCalls"))();
}
