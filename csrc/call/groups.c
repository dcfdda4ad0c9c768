#include "call/groups.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static int is_integers(const oa_token *read) { return oa_token_is(read, "enum*") || oa_token_is(read, "size*"); }

static int check_list(const oa_routine *routine, const oa_token *read, const oa_number_list *list, int64_t count,
                      const char *count_name) {
  char name[64];
  snprintf(name, sizeof name, "%.*s", read->name_length, read->name);
  if (!list || (!list->at && count)) return oa_fail_null(routine->function, name);
  if (list->count < 0 || list->count == count) return OA_OK;
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs %lld values (%s=%lld), got %lld; pass one for each group",
                 routine->function, name, (long long)count, count_name, (long long)count, (long long)list->count);
}

/* Copies the integers of a list. Returns whether one of them does not fit 32 bits. */
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
  int lists = 0;
  oa_token read;
  const char *next = routine->record;
  if (count < 0) return oa_fail_negative(routine, count_name, count);
  if (count > INT_MAX / OA_MOST_VALUES)
    return oa_fail(OA_ERROR_OVERFLOW, "%s: %s is %lld, and a call takes at most %d groups", routine->function,
                   count_name, (long long)count, INT_MAX / OA_MOST_VALUES);
  for (int i = 0; i < routine->count; i++) {
    next = oa_token_read(next, &read);
    if (!is_integers(&read) && !oa_token_is(&read, "scalar*")) continue;
    const int status = check_list(routine, &read, values[i].pointer, count, count_name);
    if (status) return status;
    lists += is_integers(&read);
  }
  const size_t room = (size_t)count * ((size_t)operands * sizeof(oa_operand) + (size_t)lists * sizeof(int64_t));
  groups->operands = malloc(room ? room : 1);
  if (!groups->operands)
    return oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %lld groups", routine->function, (long long)count);
  int64_t *integers = (int64_t *)(groups->operands + (size_t)operands * (size_t)count);
  next = routine->record;
  for (int i = 0; i < routine->count; i++) {
    next = oa_token_read(next, &read);
    if (!is_integers(&read)) continue;
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
  for (int64_t g = 0; itemsize == sizeof(int) && g < groups->count; g++) { /* to the front: each was read before */
    const int narrow = (int)groups->at[at][g];
    memcpy(to + (size_t)g * sizeof narrow, &narrow, sizeof narrow);
  }
  return to;
}
