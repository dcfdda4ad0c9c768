/* Uses the library of desk.c by the typed functions: `use_desk path-of-the-library`. */
#include "offload_args_desk.h"

#include <stdio.h>
#include <string.h>

#define EXPECT(test)                                                           \
  do {                                                                         \
    if (!(test)) return printf("line %d: %s\n", __LINE__, oa_last_error()), 1; \
  } while (0)

int main(int count, char **arguments) {
  float A[6] = {0, 1, 2, 3, 4, 5};
  const int64_t size = 6, stride = sizeof *A;
  oa_array array = {.data = A, .shape = &size, .strides = &stride, .ndim = 1, .dtype = OA_F32};
  oa_object *shape;
  oa_region *region;
  uint64_t elements;
  const char *text;
  int device, rows, columns;
  if (count != 2 || oa_library_open("desk", arguments[1], NULL) || oa_device_open("sim:0", &device)) return 2;
  EXPECT(!oa_desk_create_shape(&shape) && !oa_desk_set_shape(shape, 2, 3));
  EXPECT(!oa_desk_get_shape(shape, &rows, &columns) && rows == 2 && columns == 3);
  EXPECT(!oa_desk_elements(shape, &elements) && elements == 6);
  EXPECT(!oa_desk_motto(0, &text) && strcmp(text, "one thing at a time") == 0);
  EXPECT(oa_desk_set_shape(shape, -1, 3) == OA_ERROR_LIBRARY && strstr(oa_last_error(), "DESK_BAD_SHAPE (1)"));
  EXPECT(oa_desk_get_shape(shape, NULL, &columns) == OA_ERROR_ARGUMENT);
  EXPECT(!oa_region_enter(device, NULL, &array, 1, &region));
  oa_f32 *dA = (oa_f32 *)array.handle;
  uint64_t address;
  EXPECT(!oa_address((oa_any *)dA, &address)); /* A is up: the library uses no stream */
  EXPECT(!oa_desk_mark_matrix(shape, 1, 2, 0.5, 2, dA, 6));
  EXPECT(oa_desk_mark_matrix(shape, 1, 2, 0.5, 2, dA, 7) == OA_ERROR_EXTENT);
  EXPECT(!oa_desk_destroy_shape(shape));
  EXPECT(oa_desk_destroy_shape(shape) == OA_ERROR_STALE);
  EXPECT(oa_desk_mark_matrix(shape, 1, 2, 0.5, 2, dA, 6) == OA_ERROR_STALE);
  EXPECT(!oa_region_finish(region, OA_COMMIT, NULL) && !oa_region_wait(region));
  printf("%g %g %g\n", (double)A[1], (double)A[4], (double)A[5]);
  return 0;
}
