/* Functions for the bodies of routines whose arguments are lists with a value for each group. */
#ifndef OA_GROUPS_H
#define OA_GROUPS_H

#include "body/body.h"

/* The groups of one call. */
typedef struct oa_groups {
  int64_t count;
  int wide; /* some size of some group does not fit 32 bits */
  /* operand k of group g has the index k * count + g, so the operands of one parameter are contiguous */
  oa_operand *operands;
  int64_t *at[OA_MOST_VALUES]; /* at[v]: value v of every group; NULL if v is not a list */
  char name[64];
} oa_groups;

/* Checks that every list of the routine's record has `count` values, and reads the lists of integers. After a success,
 * oa_groups_free must follow. `operands`: the number of operands of each group. */
int oa_groups_start(oa_groups *groups, const oa_routine *routine, const oa_value *values, int64_t count,
                    const char *count_name, int operands);
void oa_groups_free(oa_groups *groups);
/* Returns "name[g]". The text is valid until the next call of this function for these groups. */
const char *oa_groups_name(oa_groups *groups, const char *name, int64_t g);
/* Converts the integers of value `at` to the vendor's type of itemsize bytes, and returns them. Call this function once
 * for each value. */
void *oa_groups_integers(oa_groups *groups, int at, size_t itemsize);

/* Passes a call of a library that runs on the CPU to oa_submit, with a copy of the lists and of the values. */
int oa_groups_submit(oa_groups *groups, const oa_routine *routine, void *symbol, const oa_value *values, oa_call *call);

/* Returns whether the number of group g is zero. `list`: the value with the numbers of all groups. */
static inline int oa_groups_is_zero(const oa_value *list, int dtype, int64_t g) {
  const size_t itemsize = (size_t)oa_itemsize(dtype);
  oa_value value;
  memcpy(value.bytes, (const char *)((const oa_number_list *)list->pointer)->at + (size_t)g * itemsize, itemsize);
  return oa_is_zero(&value, dtype, 0);
}

#endif
