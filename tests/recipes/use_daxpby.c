/* Calls the routine daxpby on arrays that are lent to the device "host", with the CBLAS at the path of the argument.
 * test_recipes.py links it with a core that has the routine. */
#include "offload_args.h"
#include "offload_args_cblas.h"

#include <stdio.h>

static int failed(const char *text) {
  fprintf(stderr, "%s: %s\n", text, oa_last_error());
  return 1;
}

int main(int count, char **arguments) {
  double x[3] = {1, 2, 3}, y[3] = {10, 20, 30};
  const int64_t three = 3, apart = sizeof(double);
  oa_array arrays[] = {
      {.data = x, .shape = &three, .strides = &apart, .ndim = 1, .dtype = OA_F64, .name = "x"},
      {.data = y, .shape = &three, .strides = &apart, .ndim = 1, .dtype = OA_F64, .name = "y"},
  };
  int device;
  oa_region *region;
  if (count != 2 || oa_library_open("cblas", arguments[1], NULL)) return failed("library");
  if (oa_device_open("host", &device)) return failed("open");
  if (oa_region_enter(device, NULL, arrays, 2, &region)) return failed("enter");
  const oa_f64 *dx = (const oa_f64 *)arrays[0].handle;
  oa_f64 *dy = (oa_f64 *)arrays[1].handle;
  if (oa_cblas_daxpby(3, 2.0, dx, 1, 0.5, dy, 1)) return failed("call");
  if (oa_cblas_daxpby(4, 2.0, dx, 1, 0.5, dy, 1) != OA_ERROR_EXTENT) return failed("no extent is checked");
  if (oa_region_finish(region, OA_COMMIT, NULL) || oa_region_wait(region)) return failed("leave");
  printf("%g %g %g\n", y[0], y[1], y[2]);
  return 0;
}
