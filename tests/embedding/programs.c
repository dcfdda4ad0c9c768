/* programs DEVICE CASE: programs without Python, one for each case. Each program prints "right" if its results are
 * right. */
#include <offload_args.h>
#include <offload_args/launch.h>
#include <offload_args/testing.h>
#include <offload_args_blas.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 1 << 16, UNAVAILABLE = 77 };

static int device;
static double x[N], y[N];

/* Ends the program with the text of a call that failed. */
static void must(int status) {
  if (!status) return;
  fprintf(stderr, "%s: %s\n", oa_status_name(status), oa_last_error());
  exit(1);
}

static oa_array lent(double *data, const int64_t *shape) {
  static const int64_t stride = sizeof(double);
  return (oa_array){.data = data, .shape = shape, .strides = &stride, .ndim = 1, .dtype = OA_F64};
}

static const int64_t whole = N;

static oa_region *enter(oa_array *array, double *data, const oa_region_options *options) {
  oa_region *region;
  *array = lent(data, &whole);
  must(oa_region_enter(device, options, array, 1, &region));
  return region;
}

static int leave(oa_region *region, int outcome) {
  OA_TRY(oa_region_finish(region, outcome, NULL));
  return oa_region_wait(region);
}

static int scale(const oa_array *array, double by) { return oa_blas_dscal(N, by, (oa_f64 *)array->handle, 1); }

static void fill(double *data, double value) {
  for (int i = 0; i < N; i++) data[i] = value + i;
}

static int is(const double *data, double value, double factor) {
  for (int i = 0; i < N; i++)
    if (data[i] != factor * (value + i)) return 0;
  return 1;
}

static int said(int right) { return puts(right ? "right" : "wrong"), 0; }

/* -- a region is left on another thread than it was entered on -- */

static void *use_and_leave(void *argument) {
  oa_array *array = argument;
  must(scale(array, 3));
  return NULL;
}

static void *leave_there(void *region) {
  must(leave(region, OA_COMMIT));
  return NULL;
}

static int thread(void) {
  oa_array array;
  pthread_t user, leaver;
  fill(x, 1);
  oa_region *region = enter(&array, x, NULL);
  pthread_create(&user, NULL, use_and_leave, &array);
  pthread_join(user, NULL);
  pthread_create(&leaver, NULL, leave_there, region);
  pthread_join(leaver, NULL);
  return said(is(x, 1, 3));
}

/* -- the process is forked after the library was used -- */

static int forked(void) {
  oa_array array;
  int state = 0;
  fill(x, 1);
  oa_region *region = enter(&array, x, NULL);
  must(scale(&array, 2));
  const pid_t child = fork();
  if (child == 0) {
    const int refused = scale(&array, 2) == OA_ERROR_FORKED && strstr(oa_last_error(), "forked") &&
                        oa_region_finish(region, OA_COMMIT, NULL) == OA_ERROR_FORKED;
    exit(refused ? 5 : 6);
  }
  waitpid(child, &state, 0);
  must(leave(region, OA_COMMIT));
  return said(WIFEXITED(state) && WEXITSTATUS(state) == 5 && is(x, 1, 2));
}

/* -- the program ends with open regions, and while threads call -- */

static void *call_forever(void *argument) {
  double *own = malloc(N * sizeof *own);
  (void)argument;
  for (;;) {
    oa_array array;
    fill(own, 0);
    oa_region *region = enter(&array, own, NULL);
    scale(&array, 2);
    leave(region, OA_COMMIT);
  }
  return own;
}

static int ends(void) {
  oa_array array;
  fill(x, 1);
  enter(&array, x, NULL);
  must(scale(&array, 2));
  puts("right");
  return 7;
}

static oa_region *left_at_exit;
static void leave_at_exit(void) {
  if (leave(left_at_exit, OA_COMMIT) || !is(x, 1, 2)) _exit(8);
}

/* The program's exit handler leaves the region. */
static int ends_with_handler(void) {
  oa_array array;
  fill(x, 1);
  left_at_exit = enter(&array, x, NULL);
  must(scale(&array, 2));
  atexit(leave_at_exit);
  puts("right");
  return 7;
}

/* The process ends before the sim device's worker calls the library. */
static int ends_late(void) {
  oa_array array;
  fill(x, 1);
  enter(&array, x, NULL);
  must(scale(&array, 2)); /* loads the library */
  must(oa_sim_configure(device, 0, 0, 50000));
  must(scale(&array, 2));
  puts(dlopen(getenv("SLOW_END"), RTLD_NOW) ? "right" : "wrong"); /* ends after earlier libraries */
  return 7;
}

static int ends_busy(void) {
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, call_forever, NULL);
  usleep(50000);
  puts("right");
  fflush(stdout);
  _exit(7);
}

/* -- memory that one region returns is taken by another, on other streams -- */

static void *many_regions(void *argument) {
  double *own = malloc(N * sizeof *own);
  long wrong = 0;
  for (int i = 0; i < 100; i++) {
    oa_array array;
    fill(own, i);
    oa_region *region = enter(&array, own, NULL);
    for (int k = 0; k < 3; k++) must(scale(&array, 2));
    must(leave(region, OA_COMMIT));
    wrong += !is(own, i, 8);
  }
  *(long *)argument = wrong;
  free(own);
  return NULL;
}

static int reuse(void) {
  pthread_t threads[3];
  long wrong[3] = {1, 1, 1};
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, many_regions, &wrong[i]);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  return said(wrong[0] + wrong[1] + wrong[2] == 0);
}

/* -- a driver that the program uses, too -- */

static const char *device_name;

static int is_hip(void) { return strncmp(device_name, "hip", 3) == 0; }
static int is_gpu(void) { return is_hip() || strncmp(device_name, "cuda", 4) == 0; }
static int own_index(void) { return device_name[strlen(device_name) - 1] - '0'; }

/* Returns a function of the device's driver. cuda and hip: the function's name in each driver. */
static void *driver_function(const char *cuda, const char *hip) {
  static const char *const files[] = {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
  void *driver = is_hip() ? NULL : dlopen("libcuda.so.1", RTLD_NOW);
  for (int i = 0; is_hip() && !driver && i < 4; i++) driver = dlopen(files[i], RTLD_NOW);
  void *symbol = driver ? dlsym(driver, is_hip() ? hip : cuda) : NULL;
  if (!symbol) exit(UNAVAILABLE);
  return symbol;
}

/* Makes a GPU current for the program's calls. With -1, no GPU is current, or HIP's first GPU. */
static void make_current(int index) {
  void *context = NULL;
  if (!is_gpu()) return;
  if (is_hip()) {
    int (*set_device)(int) = (int (*)(int))driver_function(NULL, "hipSetDevice");
    if (set_device(index < 0 ? 0 : index)) exit(1);
    return;
  }
  int (*retain)(void **, int) = (int (*)(void **, int))driver_function("cuDevicePrimaryCtxRetain", NULL);
  int (*set_current)(void *) = (int (*)(void *))driver_function("cuCtxSetCurrent", NULL);
  if ((index >= 0 && retain(&context, index)) || set_current(context)) exit(1);
}

/* Returns a value that identifies the current device or context. */
static uintptr_t current(void) {
  void *context = NULL;
  int index = 0;
  if (!is_gpu()) return 0;
  if (is_hip() ? ((int (*)(int *))driver_function(NULL, "hipGetDevice"))(&index)
               : ((int (*)(void **))driver_function("cuCtxGetCurrent", NULL))(&context))
    exit(1);
  return (uintptr_t)context + (uintptr_t)index;
}

/* The caller destroys its stream before the region is left. */
static int stream(void) {
  int (*create)(void **, unsigned) =
      (int (*)(void **, unsigned))driver_function("cuStreamCreate", "hipStreamCreateWithFlags");
  int (*destroy)(void *) = (int (*)(void *))driver_function("cuStreamDestroy_v2", "hipStreamDestroy");
  oa_array array, outer;
  void *own;
  fill(x, 1);
  oa_region *around = enter(&outer, x, NULL);
  make_current(own_index());
  if (create(&own, 1)) return 1;
  oa_region *region = enter(&array, x, &OA_SIZED(oa_region_options, .stream = own, .has_stream = 1));
  for (int i = 0; i < 5; i++) must(scale(&array, 2));
  if (destroy(own)) return 1;
  must(leave(region, OA_COMMIT));
  must(scale(&outer, 2));
  must(leave(around, OA_COMMIT));
  return said(is(x, 1, 64));
}

/* The program resets the device, between regions and inside of one. */
static int reset_device(int inside) {
  int (*reset)(int) = (int (*)(int))driver_function("cuDevicePrimaryCtxReset_v2", "hipDeviceReset");
  oa_array array;
  oa_region *region = NULL;
  fill(x, 1);
  region = enter(&array, x, NULL);
  must(scale(&array, 2));
  must(leave(region, OA_COMMIT));
  if (inside) {
    region = enter(&array, x, NULL);
    must(scale(&array, 2));
  }
  make_current(own_index());
  if (reset(own_index())) return 1; /* HIP's function takes no argument */
  if (!inside) {
    array = lent(x, &whole);
    oa_region_enter(device, NULL, &array, 1, &region);
  }
  const int scaled = region ? scale(&array, 2) : OA_ERROR_LOST, left = region ? leave(region, OA_COMMIT) : OA_OK;
  array = lent(y, &whole);
  const int later = oa_region_enter(device, NULL, &array, 1, &region);
  printf("call: %s; left: %s; later: %s; %s\n", oa_status_name(scaled), oa_status_name(left), oa_status_name(later),
         oa_last_error());
  return said(later == OA_ERROR_LOST && strstr(oa_last_error(), "reset") && is(x, 1, 2));
}

static int reset_between(void) { return reset_device(0); }
static int reset_inside(void) { return reset_device(1); }

/* Two devices work at the same time, whichever device is current. Each array is on the right device, and the current
 * device does not change. */
static int two_devices(void) {
  const int first = device;
  int second;
  char name[16];
  snprintf(name, sizeof name, "%s", device_name);
  name[strlen(name) - 1] = own_index() ? '0' : '1';
  if (oa_device_open(name, &second)) return fprintf(stderr, "%s\n", oa_last_error()), UNAVAILABLE;
  int wrong = 0;
  for (int index = -1; index < 2; index++) {
    oa_array mine, its, shared[2] = {lent(x, &whole), lent(x, &whole)};
    oa_region *readers[2];
    double sums[2];
    fill(x, index);
    fill(y, index);
    make_current(index);
    const uintptr_t before = current();
    device = first;
    oa_region *region_a = enter(&mine, x, NULL);
    device = second;
    oa_region *region_b = enter(&its, y, NULL);
    wrong += current() != before;
    must(scale(&mine, 2));
    must(scale(&its, 3));
    wrong += current() != before;
    must(leave(region_a, OA_COMMIT));
    must(leave(region_b, OA_COMMIT));
    wrong += current() != before || !is(x, index, 2) || !is(y, index, 3);
    for (int i = 0; i < 2; i++) { /* the second device may take the bytes from the first device */
      shared[i].direction = OA_IN;
      must(oa_region_enter(i ? second : first, NULL, &shared[i], 1, &readers[i]));
      must(oa_blas_dasum(N, (oa_f64 *)shared[i].handle, 1, &sums[i]));
    }
    for (int i = 0; i < 2; i++) must(leave(readers[i], OA_COMMIT));
    wrong += current() != before || sums[0] != sums[1];
  }
  return said(wrong == 0);
}

/* -- a fault on the device -- */

/* A kernel writes to an address outside of its arrays. */
static int stray(void) {
  static const char ptx[] =
      ".version 6.4\n.target sm_50\n.address_size 64\n.visible .entry stray(.param .u64 x)\n{\n  .reg .b32 %r<2>;\n"
      "  .reg .b64 %d<2>;\n  mov.u64 %d1, 0;\n  mov.u32 %r1, 1;\n  st.global.u32 [%d1], %r1;\n  ret;\n}\n";
  static const oa_parameter parameters[] = {{.name = "x", .access = OA_READ_WRITE, .dtype = OA_F64, .nbytes = 8}};
  oa_array array;
  oa_module *module;
  oa_kernel *kernel;
  fill(x, 1);
  must(oa_module_load(device, "stray.ptx", ptx, sizeof ptx, &module));
  must(oa_kernel_get(module, "stray", parameters, 1, &kernel));
  oa_region *region = enter(&array, x, NULL);
  const void *arguments[] = {array.handle};
  const oa_launch launch = OA_SIZED(oa_launch, .grid = {1, 1, 1}, .block = {1, 1, 1});
  const int launched = oa_kernel_launch(kernel, &launch, arguments, 1);
  const int left = leave(region, OA_COMMIT);
  printf("launched: %s; left: %s; %s\n", oa_status_name(launched), oa_status_name(left), oa_last_error());
  oa_array again = lent(y, &whole);
  const int later = oa_region_enter(device, NULL, &again, 1, &region);
  printf("later: %s; %s\n", oa_status_name(later), oa_last_error());
  must(oa_device_open("host", &device));
  fill(y, 1);
  region = enter(&array, y, NULL);
  must(scale(&array, 2));
  must(leave(region, OA_COMMIT));
  return said((launched || left) && later == OA_ERROR_LOST && is(x, 1, 1) && is(y, 1, 2));
}

int main(int count, char **arguments) {
  static const struct {
    const char *name;
    int (*run)(void);
  } cases[] = {{"thread", thread},
               {"forked", forked},
               {"ends", ends},
               {"ends_late", ends_late},
               {"ends_with_handler", ends_with_handler},
               {"ends_busy", ends_busy},
               {"reuse", reuse},
               {"stream", stream},
               {"stray", stray},
               {"reset_between", reset_between},
               {"reset_inside", reset_inside},
               {"two_devices", two_devices}};
  if (count != 3) return 2;
  device_name = arguments[1];
  if (oa_device_open(arguments[1], &device)) return fprintf(stderr, "%s\n", oa_last_error()), UNAVAILABLE;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (strcmp(cases[i].name, arguments[2]) == 0) return cases[i].run();
  return 2;
}
