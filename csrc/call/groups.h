/* For the bodies of routines whose arguments are lists with a value for each group. */
#ifndef OA_CALL_GROUPS_H
#define OA_CALL_GROUPS_H

#include "call/routine.h"

/* The groups of one call. */
typedef struct oa_groups {
  int64_t count;
  int wide;                    /* some size of some group does not fit 32 bits */
  oa_operand *operands;        /* operand k of group g is number k * count + g: so each parameter's are in a row */
  int64_t *at[OA_MOST_VALUES]; /* by value: an own list of the integers of each group; NULL of what is none */
  char name[64];
} oa_groups;

/* Checks that every list of the routine's record has `count` values, and reads those of integers. oa_groups_free must
 * follow if it succeeds. operands: how many there are of each group. */
int oa_groups_start(oa_groups *groups, const oa_routine *routine, const oa_value *values, int64_t count,
                    const char *count_name, int operands);
void oa_groups_free(oa_groups *groups);
/* Returns "name[g]", valid until the next call for these groups. */
const char *oa_groups_name(oa_groups *groups, const char *name, int64_t g);
/* Makes the integers of value `at` those of the vendor's function, of so many bytes, and returns them. Once a value. */
void *oa_groups_integers(oa_groups *groups, int at, size_t itemsize);

/* Hands a call of a library that runs on the CPU to oa_submit, with a copy of the lists and of the values. */
int oa_groups_submit(oa_groups *groups, const oa_routine *routine, void *symbol, const oa_value *values, oa_call *call);

/* Returns whether the number of group g is zero; list: the value that has the numbers of all groups. */
static inline int oa_groups_is_zero(const oa_value *list, int dtype, int64_t g) {
  const size_t itemsize = (size_t)oa_itemsize(dtype);
  oa_value one;
  memcpy(one.bytes, (const char *)((const oa_number_list *)list->pointer)->at + (size_t)g * itemsize, itemsize);
  return oa_is_zero(&one, dtype, 0);
}

#endif
