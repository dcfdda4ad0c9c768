#include "body/groups.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static int check_list(const oa_routine *routine, const char *name, const oa_number_list *list, int64_t count,
                      const char *count_name) {
  if (!list || (!list->at && count)) return oa_fail_null(routine->function, name);
  if (list->count < 0 || list->count == count) return OA_OK;
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs %lld values (%s=%lld), got %lld; pass one for each group",
                 routine->function, name, (long long)count, count_name, (long long)count, (long long)list->count);
}

/* Copies the integers of a list. Returns whether one of the integers does not fit 32 bits. */
static int read_integers(const oa_number_list *list, int64_t count, int64_t *to) {
  int wide = 0;
  for (int64_t g = 0; g < count; g++) {
    int narrow;
    if (list->itemsize == sizeof narrow) {
      memcpy(&narrow, (const char *)list->at + (size_t)g * sizeof narrow, sizeof narrow);
      to[g] = narrow;
    } else {
      memcpy(&to[g], (const char *)list->at + (size_t)g * sizeof *to, sizeof *to);
    }
    wide |= oa_is_wide(to[g]);
  }
  return wide;
}

int oa_groups_start(oa_groups *groups, const oa_routine *routine, const oa_value *values, int64_t count,
                    const char *count_name, int operands) {
  *groups = (oa_groups){.count = count};
  const oa_role *const record = routine->record;
  int lists = 0;
  if (count < 0) return oa_fail_negative(routine, count_name, count);
  if (count > INT_MAX / OA_MOST_VALUES)
    return oa_fail(OA_ERROR_OVERFLOW, "%s: %s is %lld, and a call takes at most %d groups", routine->function,
                   count_name, (long long)count, INT_MAX / OA_MOST_VALUES);
  for (int i = 0; i < routine->count; i++) {
    if (!oa_is_number_list(record[i].role)) continue;
    const int status = check_list(routine, record[i].name, values[i].pointer, count, count_name);
    if (status) return status;
    lists += oa_is_integer_list(record[i].role);
  }
  const size_t room = (size_t)count * ((size_t)operands * sizeof(oa_operand) + (size_t)lists * sizeof(int64_t));
  groups->operands = malloc(room ? room : 1);
  if (!groups->operands)
    return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %lld groups", routine->function, (long long)count);
  int64_t *integers = (int64_t *)(groups->operands + (size_t)operands * (size_t)count);
  for (int i = 0; i < routine->count; i++) {
    if (!oa_is_integer_list(record[i].role)) continue;
    groups->at[i] = integers;
    groups->wide |= read_integers(values[i].pointer, count, integers);
    integers += count;
  }
  return OA_OK;
}

void oa_groups_free(oa_groups *groups) { free(groups->operands); }

const char *oa_groups_name(oa_groups *groups, const char *name, int64_t g) {
  snprintf(groups->name, sizeof groups->name, "%s[%lld]", name, (long long)g);
  return groups->name;
}

void *oa_groups_integers(oa_groups *groups, int at, size_t itemsize) {
  char *to = (char *)groups->at[at];
  /* the narrow numbers go to the front of the list, whose wide numbers at these places were read before */
  for (int64_t g = 0; itemsize == sizeof(int) && g < groups->count; g++) {
    const int narrow = (int)groups->at[at][g];
    memcpy(to + (size_t)g * sizeof narrow, &narrow, sizeof narrow);
  }
  return to;
}

/* -- on the CPU: called in a stream's order ------------------------------------------------------------------------ */

/* A call of a routine with groups, to be made later. This struct is copied byte by byte, so the value of a list is the
 * list's offset from the start of the struct. */
typedef struct late_groups {
  const oa_routine *routine;
  void *symbol;
  int ilp64;
  oa_value values[];
} late_groups;

static void run(void *data) {
  late_groups *late = data;
  for (int i = 0; i < late->routine->count; i++)
    if (oa_is_number_list(late->routine->record[i].role))
      late->values[i].pointer = (char *)data + late->values[i].integer;
  late->routine->call(late->symbol, late->values, late->ilp64);
}

/* Returns how many bytes an element of a list has when it is passed to the vendor's function. */
static size_t passed_bytes(const oa_routine *routine, int value) {
  const int role = routine->record[value].role;
  if (role == OA_ROLE_SCALAR_LIST) return (size_t)oa_itemsize(routine->dtypes[value]);
  return role == OA_ROLE_SIZE_LIST && oa_routine_is_ilp64(routine) ? sizeof(int64_t) : sizeof(int);
}

int oa_groups_submit(oa_groups *groups, const oa_routine *routine, void *symbol, const oa_value *values,
                     oa_call *call) {
  enum { ALIGNED = 16 }; /* bytes; the widest elements are complex numbers of 16 bytes */
  const size_t count = (size_t)groups->count;
  const size_t start = offsetof(late_groups, values) + routine->count * sizeof *values;
  const size_t most = start + routine->count * (count * ALIGNED + ALIGNED);
  late_groups *late = malloc(most);
  if (!late) {
    oa_end(call, -1);
    return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %lld groups", routine->function, (long long)groups->count);
  }
  late->routine = routine;
  late->symbol = symbol;
  late->ilp64 = oa_routine_is_ilp64(routine);
  memcpy(late->values, values, routine->count * sizeof *values);
  size_t used = start;
  int operand = 0;
  for (int i = 0; i < routine->count; i++) {
    const int role = routine->record[i].role;
    if (oa_is_pointer_list(role)) late->values[i].pointer = groups->operands[(size_t)operand++ * count].address;
    if (!oa_is_number_list(role)) continue;
    const size_t itemsize = passed_bytes(routine, i);
    used = (used + ALIGNED - 1) / ALIGNED * ALIGNED;
    const void *from = oa_is_integer_list(role) ? oa_groups_integers(groups, i, itemsize)
                                                : ((const oa_number_list *)values[i].pointer)->at;
    memcpy((char *)late + used, from, count * itemsize);
    late->values[i].integer = (int64_t)used;
    used += count * itemsize;
  }
  const int status = oa_submit(call, run, late, used);
  free(late);
  return status;
}
