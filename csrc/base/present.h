/* The present table: an interval tree over host addresses. The table is pure data: its functions use no device and no
 * lock, and allocate nothing.
 *
 * An element is embedded in the object for which it stands. Intervals are half open and not empty. The table may have
 * equal and overlapping intervals (of different devices). The tree is a treap ordered by low, augmented with the
 * highest end of each subtree. */
#ifndef OA_PRESENT_H
#define OA_PRESENT_H

#include <stdint.h>

typedef struct oa_present {
  uintptr_t low, high; /* set by the owner before it inserts the element */
  /* owned by the tree */
  struct oa_present *left, *right;
  uintptr_t highest;
  uint32_t priority;
} oa_present;

typedef struct oa_present_table {
  oa_present *root;
  uint32_t seed;
} oa_present_table;

void oa_present_insert(oa_present_table *table, oa_present *element);
void oa_present_remove(oa_present_table *table, oa_present *element);
/* Calls visit for each element that overlaps [low, high), lowest first, until a call returns a number other than 0.
 * Returns that number, or 0. */
int oa_present_visit(const oa_present_table *table, uintptr_t low, uintptr_t high,
                     int (*visit)(oa_present *element, void *data), void *data);

#endif
