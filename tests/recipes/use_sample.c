/* Lends two arrays to the device "sample", writes on it, and prints the arrays after the region. test_recipes.py
 * links it with a core that has the backend of sample.c. */
#include "offload_args.h"
#include "offload_args/shim.h"

#include <stdio.h>

__typeof__(oa_libraries[0]) oa_libraries[] = {NULL}; /* this program has no vendor library */

static int failed(const char *text) {
  fprintf(stderr, "%s: %s\n", text, oa_last_error());
  return 1;
}

int main(void) {
  float x[4] = {1, 2, 3, 4}, y[4] = {0, 0, 0, 0};
  const float five = 5;
  const int64_t four = 4, two = 2, apart = sizeof(float);
  oa_array arrays[] = {
      {.data = x, .shape = &four, .strides = &apart, .ndim = 1, .dtype = OA_F32, .direction = OA_IN, .name = "x"},
      {.data = y, .shape = &four, .strides = &apart, .ndim = 1, .dtype = OA_F32, .direction = OA_OUT, .name = "y"},
  };
  int device;
  oa_region *region;
  if (oa_device_open("sample:0", &device)) return failed("open");
  if (oa_region_enter(device, NULL, arrays, 2, &region)) return failed("enter");
  if (oa_pointer_copy(arrays[1].handle, &apart, arrays[0].handle, &apart, 1, &four)) return failed("copy");
  if (oa_pointer_fill(arrays[1].handle, &five, 1, &two, &apart)) return failed("fill");
  if (oa_region_finish(region, OA_COMMIT, NULL) || oa_region_wait(region)) return failed("leave");
  printf("%g %g %g %g\n", y[0], y[1], y[2], y[3]);
  return 0;
}
