/* Programs without Python, one a case: programs DEVICE CASE. Each prints "right" if its results are. */
#include <offload_args.h>
#include <offload_args/launch.h>
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

static void *use_and_leave(void *given) {
  oa_array *array = given;
  must(scale(array, 3));
  return NULL;
}

static void *leave_there(void *region) {
  must(leave(region, OA_COMMIT));
  return NULL;
}

static int thread(void) {
  oa_array array;
  pthread_t one, other;
  fill(x, 1);
  oa_region *region = enter(&array, x, NULL);
  pthread_create(&one, NULL, use_and_leave, &array);
  pthread_join(one, NULL);
  pthread_create(&other, NULL, leave_there, region);
  pthread_join(other, NULL);
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

static void *call_forever(void *given) {
  double *own = malloc(N * sizeof *own);
  (void)given;
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

static int ends_busy(void) {
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, call_forever, NULL);
  usleep(50000);
  puts("right");
  fflush(stdout);
  _exit(7);
}

/* -- memory that one region returns is taken by another, on other streams -- */

static void *many_regions(void *given) {
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
  *(long *)given = wrong;
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

/* -- cases of CUDA -- */

static void *driver_function(const char *name) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  void *found = driver ? dlsym(driver, name) : NULL;
  if (!found) exit(UNAVAILABLE);
  return found;
}

/* The caller destroys its stream before the region is left. */
static int stream(void) {
  int (*retain)(void **, int) = (int (*)(void **, int))driver_function("cuDevicePrimaryCtxRetain");
  int (*set_current)(void *) = (int (*)(void *))driver_function("cuCtxSetCurrent");
  int (*create)(void **, unsigned) = (int (*)(void **, unsigned))driver_function("cuStreamCreate");
  int (*destroy)(void *) = (int (*)(void *))driver_function("cuStreamDestroy_v2");
  oa_array array, outer;
  void *context, *own;
  fill(x, 1);
  oa_region *around = enter(&outer, x, NULL);
  if (retain(&context, 0) || set_current(context) || create(&own, 1)) return 1;
  oa_region *region = enter(&array, x, &OA_SIZED(oa_region_options, .stream = own, .has_stream = 1));
  for (int i = 0; i < 5; i++) must(scale(&array, 2));
  if (destroy(own)) return 1;
  must(leave(region, OA_COMMIT));
  must(scale(&outer, 2));
  must(leave(around, OA_COMMIT));
  return said(is(x, 1, 64));
}

/* A kernel writes where it may not. */
static int stray(void) {
  static const char ptx[] =
      ".version 6.4\n.target sm_50\n.address_size 64\n.visible .entry stray(.param .u64 x)\n{\n  .reg .b32 %r<2>;\n"
      "  .reg .b64 %d<2>;\n  mov.u64 %d1, 0;\n  mov.u32 %r1, 1;\n  st.global.u32 [%d1], %r1;\n  ret;\n}\n";
  static const oa_parameter parameters[] = {{.name = "x", .access = 3, .dtype = OA_F64, .nbytes = 8}};
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
  } cases[] = {{"thread", thread}, {"forked", forked}, {"ends", ends},  {"ends_busy", ends_busy},
               {"reuse", reuse},   {"stream", stream}, {"stray", stray}};
  if (count != 3) return 2;
  if (oa_device_open(arguments[1], &device)) return fprintf(stderr, "%s\n", oa_last_error()), UNAVAILABLE;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (strcmp(cases[i].name, arguments[2]) == 0) return cases[i].run();
  return 2;
}
