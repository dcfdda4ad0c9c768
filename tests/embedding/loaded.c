/* loaded LIBRARY DEVICE open|left: a program that loads the library as a plugin does. Each round loads, uses and
 * unloads the library, with the last region open or left. Prints "right" if the results are right. */
#include <offload_args.h>

#include <dlfcn.h>
#include <stdio.h>

enum { N = 1 << 16, ROUNDS = 20 };
static double x[N];

#define FIND(name) __typeof__(name) *const name##_ = (__typeof__(name) *)dlsym(library, #name)

static int once(void *library, const char *name, int leaves) {
  static const int64_t shape = N, stride = sizeof(double);
  const double three = 3;
  oa_array array = {.data = x, .shape = &shape, .strides = &stride, .ndim = 1, .dtype = OA_F64};
  oa_region *region;
  int device;
  FIND(oa_device_open);
  FIND(oa_region_enter);
  FIND(oa_pointer_fill);
  FIND(oa_region_finish);
  FIND(oa_region_wait);
  FIND(oa_last_error);
  x[N - 1] = 0;
  if (oa_device_open_(name, &device) || oa_region_enter_(device, NULL, &array, 1, &region) ||
      oa_pointer_fill_(array.handle, &three, 1, &shape, &stride) ||
      (leaves && (oa_region_finish_(region, OA_COMMIT, NULL) || oa_region_wait_(region))))
    return fprintf(stderr, "%s\n", oa_last_error_());
  return leaves && x[N - 1] != 3;
}

int main(int count, char **arguments) {
  if (count != 4) return 2;
  for (int i = 0; i < ROUNDS; i++) {
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    if (once(library, arguments[2], arguments[3][0] == 'l' || i < ROUNDS - 1) || dlclose(library)) return 1;
  }
  return puts("right"), 0;
}
