/* Arrays as a caller describes them: checked, with their layout. */
#ifndef OA_ARRAY_H
#define OA_ARRAY_H

#include "base/lines.h"

/* One array that the caller describes: on its way into a region, or to be updated. */
typedef struct oa_lent_array {
  oa_array *array;
  oa_layout layout;
  uintptr_t low, high; /* of its bytes on the host */
  bool packed;
  bool writes, out;
  struct oa_mapping *mapping; /* set by entering, with the part and the lines */
  int view;
  oa_lines lines; /* in the mapping */
  char name[24];
} oa_lent_array;

/* Checks the array at that position of the arguments and fills the rest but for its place. Without the lock. */
int oa_lent_array_check(oa_lent_array *lent_array, int position);
/* The name of an oa_direction, for messages. */
const char *oa_direction_name(int direction);
/* Returns the bytes of a host array in [*low, *high), and as lines from the lowest of them (none if it would be packed).
 * Without the lock. */
int oa_array_bytes(const char *function, const oa_array *array, uintptr_t *low, uintptr_t *high, oa_lines *lines);

#endif
