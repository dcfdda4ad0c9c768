/* Lent arrays: arrays from callers, checked and with their layout. */
#ifndef OA_ARRAY_H
#define OA_ARRAY_H

#include "transfer/move.h"

/* One array from a caller, to be lent or updated. */
typedef struct oa_lent_array {
  oa_array *array;
  oa_layout layout;
  uintptr_t low, high; /* the array's bytes on the host */
  bool packed;
  bool writes, out;
  bool elsewhere;             /* some of the array's bytes are present on another device */
  struct oa_mapping *mapping; /* the array's place, set on entry: the mapping, the view and the lines in the mapping */
  int view;
  oa_lines lines;
  char name[24];
} oa_lent_array;

/* Checks lent_array->array, which is at that position of the arguments, and fills all other members except its place.
 * Called without the lock. */
int oa_lent_array_check(oa_lent_array *lent_array, int position);
/* Returns the lines of the array's bytes on the host, from its lowest byte on. If the bytes are not lines, returns one
 * line from the lowest byte to the highest. */
oa_lines oa_lent_array_lines(const oa_lent_array *lent_array);
/* Returns a copy of the shape and strides of a checked array, which is one allocation; NULL with the text set. */
oa_shape *oa_shape_of(const oa_array *array);
/* Returns the name of an oa_direction, for messages. */
const char *oa_direction_name(int direction);
/* Finds the bytes of a host array: the interval [*low, *high), and *lines, counted from the lowest byte. *lines has 0
 * lines if the array would be packed. Called without the lock. */
int oa_array_bytes(const char *function, const oa_array *array, uintptr_t *low, uintptr_t *high, oa_lines *lines);

#endif
