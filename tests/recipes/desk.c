/* A library with a descriptor, a size that is a size_t, and the stream as an argument. */
#include <stddef.h>
#include <stdlib.h>

enum { FINE = 0, BAD_SHAPE = 1, NO_STREAM = 2, OUTSIDE = 3 };
typedef struct shape {
  int rows, columns;
} *desk_shape_t;
static int live;

int desk_create_shape(desk_shape_t *shape) {
  live++;
  return (*shape = calloc(1, sizeof **shape)) ? FINE : BAD_SHAPE;
}
int desk_destroy_shape(desk_shape_t shape) {
  live--;
  free(shape);
  return FINE;
}
int desk_set_shape(desk_shape_t shape, int rows, int columns) {
  if (rows < 0 || columns < 0) return BAD_SHAPE;
  shape->rows = rows, shape->columns = columns;
  return FINE;
}
int desk_get_shape(desk_shape_t shape, int *rows, int *columns) {
  *rows = shape->rows, *columns = shape->columns;
  return FINE;
}
size_t desk_elements(desk_shape_t shape) { return (size_t)shape->rows * (size_t)shape->columns; }
const char *desk_motto(int line) { return line ? NULL : "one thing at a time"; }
int desk_live(void) { return live; }

/* Scales a matrix of the descriptor's shape, and marks one of its elements. */
int desk_mark_matrix(desk_shape_t shape, int row, int column, double mark, float by, float *A, size_t size,
                     void *stream) {
  if (!stream) return NO_STREAM;
  if (size != desk_elements(shape) || row >= shape->rows || column >= shape->columns) return OUTSIDE;
  for (size_t i = 0; i < size; i++) A[i] *= by;
  A[row + column * shape->rows] = (float)mark;
  return FINE;
}
