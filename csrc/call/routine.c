#include "call/routine.h"

#include <stdbool.h>
#include <stdio.h>

const char *oa_token_read(const char *text, oa_token *read) {
  if (!text || !*text) return NULL;
  read->kind = text;
  read->kind_length = (int)strcspn(text, ":");
  read->name = text + read->kind_length + 1;
  read->name_length = (int)strcspn(read->name, ": ");
  read->more = read->name + read->name_length + (read->name[read->name_length] == ':');
  read->more_length = (int)strcspn(read->more, ": ");
  const char *end = read->name + strcspn(read->name, " ");
  return *end ? end + 1 : end;
}

int oa_token_is(const oa_token *read, const char *kind) {
  return (int)strlen(kind) == read->kind_length && memcmp(read->kind, kind, (size_t)read->kind_length) == 0;
}

int oa_fail_negative(const oa_routine *routine, const char *name, int64_t value) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs to be at least 0, got %lld", routine->function, name,
                 (long long)value);
}

/* Returns the place of the first of a list of sizes that does not fit 32 bits, and sets *value to it; -1: all do. */
static int64_t first_wide(const oa_number_list *list, int64_t *value) {
  for (int64_t g = 0; list->itemsize == sizeof *value && g < list->count; g++) {
    memcpy(value, (const char *)list->at + (size_t)g * sizeof *value, sizeof *value);
    if (oa_is_wide(*value)) return g;
  }
  return -1;
}

/* Names the first size that does not fit the vendor's int. */
static int fail_too_large(const oa_routine *routine, const oa_value *values) {
  char name[64] = "a size";
  int64_t value = INT64_MAX;
  oa_token read;
  const char *next = routine->record;
  for (int i = 0; (next = oa_token_read(next, &read)); i++) {
    int64_t one;
    const int64_t place = oa_token_is(&read, "size*") ? first_wide(values[i].pointer, &one) : -1;
    if (place >= 0) {
      snprintf(name, sizeof name, "%.*s[%lld]", read.name_length, read.name, (long long)place);
      value = one;
      break;
    }
    if (!oa_token_is(&read, "size") || !oa_is_wide(values[i].integer)) continue;
    snprintf(name, sizeof name, "%.*s", read.name_length, read.name);
    value = values[i].integer;
    break;
  }
  return oa_fail_too_large(routine->function, name, value);
}

/* Returns what is wrong with where an operand is, or OA_OK. */
static int check_place(const oa_routine *routine, const char *name, const void *pointer) {
  const oa_library *library = routine->library;
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  int status = oa_pointer_query(pointer, &info);
  const oa_device *device = status ? NULL : oa_device_of(info.device);
  if (!device) return oa_fail_in(status ? status : OA_ERROR_DEVICE, "%s: %s", routine->function, name);
  if (oa_library_works_on(library, device)) return OA_OK;
  return oa_fail_library_device(library, routine->function, name, device);
}

/* Returns the pointer of an argument's first array, or NULL. */
static const void *first_of(const oa_token *read, const oa_value *value) {
  if (oa_token_is(read, "in") || oa_token_is(read, "inout") || oa_token_is(read, "out")) return value->pointer;
  if (!oa_token_is(read, "in*") && !oa_token_is(read, "inout*") && !oa_token_is(read, "out*")) return NULL;
  const oa_pointer_list *list = value->pointer;
  return list->at && list->count ? list->at[0] : list->first;
}

/* Sets *found to the token of the first device array, or, if there is none and numbers are on the device, to that of
 * the first number. Returns its pointer, NULL if there is neither. */
static const void *first_operand(const oa_routine *routine, const oa_value *values, int device, oa_token *found) {
  const void *number = NULL;
  oa_token read;
  const char *next = routine->record;
  for (int i = 0; (next = oa_token_read(next, &read)); i++) {
    const void *pointer = first_of(&read, &values[i]);
    const bool is_number = device && !number && read.kind[read.kind_length - 1] != '*' && !oa_token_is(&read, "size") &&
                           !oa_token_is(&read, "enum");
    if (pointer || is_number) *found = read;
    if (pointer) return pointer;
    if (is_number) number = values[i].pointer;
  }
  return number;
}

int oa_fail_symbol(const oa_routine *routine, const oa_value *values, int wide, int device) {
  const int has_wide = routine->symbols[1] >= 0; /* if the loaded version does */
  if (wide && oa_routine_symbol(routine, 0) && (!has_wide || oa_routine_symbol(routine, 1)))
    return fail_too_large(routine, values);
  oa_saved_error saved;
  oa_error_save(&saved);
  oa_token read;
  const void *first = first_operand(routine, values, device, &read);
  if (first) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", read.name_length, read.name);
    const int status = check_place(routine, name, first);
    if (status) return status;
  }
  oa_error_restore(&saved);
  return oa_library_state_of(routine->library)->loaded ? OA_ERROR_VERSION : OA_ERROR_LIBRARY;
}

static void run(void *data) {
  oa_late *late = data;
  const oa_routine *routine = late->routine;
  if (late->device) {
    for (const char *load = late->loads; *load; load += 3) {
      const int place = load[0] - 1, slot = load[1];
      const size_t bytes = (size_t)load[2] * (size_t)oa_itemsize(routine->dtypes[place]);
      memcpy(&late->values[slot], late->values[place].pointer, bytes);
    }
  }
  oa_value *own = late->returned ? &late->values[late->returned - 1] : NULL;
  void *result = own ? (void *)own->pointer : NULL;
  const int status = routine->call(late->symbol, late->values, late->ilp64);
  if (late->has_status) *late->vendor_status = status;
  if (!own) return;
  const int dtype = routine->dtypes[late->returned - 1];
  if (!late->device)
    *(oa_value *)result = *own;
  else if (dtype == OA_I32)
    *(int32_t *)result = (int32_t)own->integer;
  else
    memcpy(result, own, (size_t)oa_itemsize(dtype));
}

int oa_late_submit(oa_late *late, oa_call *call) {
  late->vendor_status = &call->vendor_status;
  return oa_submit(call, run, late, offsetof(oa_late, values) + (size_t)late->count * sizeof *late->values);
}

int oa_late_now(oa_late *late) {
  int status = late->routine->library->success;
  late->vendor_status = &status;
  run(late);
  if (status == late->routine->library->success) return OA_OK;
  char text[128];
  oa_library_status_text(late->routine->library, status, text, sizeof text);
  return oa_fail(OA_ERROR_LIBRARY, "%s: the library returned %s", late->routine->function, text);
}
