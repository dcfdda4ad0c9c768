/* handler LIBRARY: a program whose exit handler, registered before the library was loaded, leaves a region. The sim
 * device has not begun its call by then, and does not run the call. So leaving fails, and the array stays unchanged.
 * Prints "right". */
#include <offload_args.h>
#include <offload_args/testing.h>
#include <offload_args_blas.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N = 1000 };
static double x[N];
static void *library;
static oa_region *region;

#define FIND(name) __typeof__(name) *const name##_ = (__typeof__(name) *)dlsym(library, #name)

static void leave(void) {
  FIND(oa_region_finish);
  FIND(oa_region_wait);
  const int status = oa_region_finish_(region, OA_COMMIT, NULL);
  const int failed = status ? status : oa_region_wait_(region);
  puts(failed && x[0] == 1 ? "right" : "wrong");
  fflush(stdout);
  _exit(7);
}

int main(int count, char **arguments) {
  static const int64_t shape = N, stride = sizeof(double);
  oa_array array = {.data = x, .shape = &shape, .strides = &stride, .ndim = 1, .dtype = OA_F64};
  int device;
  if (count != 2) return 2;
  atexit(leave);
  library = dlopen(arguments[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  FIND(oa_device_open);
  FIND(oa_sim_configure);
  FIND(oa_region_enter);
  FIND(oa_blas_dscal);
  x[0] = 1;
  if (oa_device_open_("sim:0", &device) || oa_region_enter_(device, NULL, &array, 1, &region) ||
      oa_sim_configure_(device, 0, 0, 50000) || oa_blas_dscal_(N, 2, (oa_f64 *)array.handle, 1))
    _exit(1);
  return 7;
}
