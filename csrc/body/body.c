#include "body/body.h"

#include <stdbool.h>
#include <stdio.h>

int oa_fail_negative(const oa_routine *routine, const char *name, int64_t value) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs to be at least 0, got %lld", routine->function, name,
                 (long long)value);
}

int oa_fail_requirement(const oa_routine *routine, const char *comparison, const char *names, const int64_t *sizes) {
  char list[256] = "";
  for (size_t used = 0; *names && used < sizeof list;) {
    const int length = (int)strcspn(names, " ");
    const char *before = !used ? "" : names[length] ? ", " : " and ";
    used +=
        (size_t)snprintf(list + used, sizeof list - used, "%s%.*s = %lld", before, length, names, (long long)*sizes++);
    names += length + (names[length] == ' ');
  }
  return oa_fail(OA_ERROR_ARGUMENT, "%s: needs %s, got %s", routine->function, comparison, list);
}

/* Returns the index of the first size in a list that does not fit 32 bits, and sets *value to it; -1: all fit. */
static int64_t first_wide(const oa_number_list *list, int64_t *value) {
  for (int64_t g = 0; list->itemsize == sizeof *value && g < list->count; g++) {
    memcpy(value, (const char *)list->at + (size_t)g * sizeof *value, sizeof *value);
    if (oa_is_wide(*value)) return g;
  }
  return -1;
}

/* Fails for an enum value that stands for no dtype. `code`: the entry of the value, if the vendor's header has the
 * value. */
static __attribute__((cold)) int fail_type(const oa_routine *routine, int place, int64_t value,
                                           const oa_code_dtype *codes, const oa_code_dtype *code) {
  char allowed[640] = "", unsupported[96] = "";
  const char *comma = "";
  if (code->name) snprintf(unsupported, sizeof unsupported, " (%s, which NumPy has no dtype for)", code->name);
  for (size_t used = 0; codes->name && used < sizeof allowed; codes++) {
    if (codes->dtype == OA_ANY) continue;
    used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s (%d)", comma, codes->name, codes->code);
    comma = ", ";
  }
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs one of %s; got %lld%s", routine->function,
                 routine->record[place].name, allowed, (long long)value, unsupported);
}

static int complex_of(int dtype) { return dtype == OA_F32 ? OA_C64 : dtype == OA_F64 ? OA_C128 : dtype; }

int oa_routine_dtypes(const oa_routine *routine, const oa_value *values, unsigned char *dtypes) {
  if (!routine || !values || !dtypes)
    return oa_fail_null("oa_routine_dtypes", routine ? values ? "dtypes" : "values" : "routine");
  memcpy(dtypes, routine->dtypes, routine->count);
  for (const oa_typed *t = routine->typed; t < routine->typed + routine->typed_count; t++) {
    int dtype = dtypes[t->from];
    if (t->codes) {
      const int64_t value = values[t->from].integer;
      const oa_code_dtype *code = t->codes;
      while (code->name && code->code != value) code++;
      if (!code->name || code->dtype == OA_ANY) return fail_type(routine, t->from, value, t->codes, code);
      dtype = code->dtype;
    } else if (t->complex_as) {
      const int other = dtypes[t->complex_as - 1];
      if (other == OA_C64 || other == OA_C128) dtype = complex_of(dtype);
    }
    dtypes[t->place] = (unsigned char)dtype;
  }
  return OA_OK;
}

/* Fails for the first size that does not fit the vendor's int. */
static int fail_too_large(const oa_routine *routine, const oa_value *values) {
  char name[64] = "a size";
  int64_t value = INT64_MAX;
  for (int i = 0; i < routine->count; i++) {
    const oa_role *role = &routine->record[i];
    int64_t wide;
    const int64_t place = role->role == OA_ROLE_SIZE_LIST ? first_wide(values[i].pointer, &wide) : -1;
    if (place >= 0) {
      snprintf(name, sizeof name, "%s[%lld]", role->name, (long long)place);
      value = wide;
      break;
    }
    if (role->role != OA_ROLE_SIZE || !oa_is_wide(values[i].integer)) continue;
    snprintf(name, sizeof name, "%s", role->name);
    value = values[i].integer;
    break;
  }
  return oa_fail_too_large(routine->function, name, value);
}

/* Returns OA_OK if the library works on the device of an operand, otherwise the failure. */
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
static const void *first_of(int role, const oa_value *value) {
  if (oa_is_array(role)) return value->pointer;
  if (!oa_is_pointer_list(role)) return NULL;
  const oa_pointer_list *list = value->pointer;
  return list->at && list->count ? list->at[0] : list->first;
}

/* Sets *name to the name of the first device array, or of the first number if only numbers are on the device. Returns
 * the pointer of that array or number; NULL if nothing is on the device. */
static const void *first_operand(const oa_routine *routine, const oa_value *values, int device, const char **name) {
  const void *number = NULL;
  for (int i = 0; i < routine->count; i++) {
    const int role = routine->record[i].role;
    const void *pointer = first_of(role, &values[i]);
    const bool is_plain = role == OA_ROLE_SIZE || role == OA_ROLE_ENUM || role == OA_ROLE_TYPE;
    const bool is_list = oa_is_pointer_list(role) || oa_is_number_list(role);
    const bool is_number = device && !number && !is_list && !is_plain;
    if (pointer || is_number) *name = routine->record[i].name;
    if (pointer) return pointer;
    if (is_number) number = values[i].pointer;
  }
  return number;
}

int oa_fail_symbol(const oa_routine *routine, const oa_value *values, int wide, int device) {
  /* The header has a function for 64-bit sizes, and the loaded version may have it. */
  const int has_wide = routine->symbols[1] >= 0;
  if (wide && oa_routine_symbol(routine, 0) && (!has_wide || oa_routine_symbol(routine, 1)))
    return fail_too_large(routine, values);
  oa_saved_error saved;
  oa_error_save(&saved);
  const char *name;
  const void *first = first_operand(routine, values, device, &name);
  if (first) {
    const int status = check_place(routine, name, first);
    if (status) return status;
  }
  oa_error_restore(&saved);
  return oa_library_state_of(routine->library)->loaded ? OA_ERROR_VERSION : OA_ERROR_LIBRARY;
}

/* Returns the real part of a complex number of an array. The imaginary part is 0. */
static double real_at(const void *array, int dtype, int at) {
  return dtype == OA_C128 ? ((const double *)array)[2 * at] : (double)((const float *)array)[2 * at];
}

/* Calls a function for two products of 1 by 1 matrices, with strides of 2. Returns the unit of the strides, which shows
 * in the elements that the function has used; 0 with the error set. */
static int try_strides(const oa_routine *routine, void *symbol, const oa_value *values, const char *tried, int dtype) {
  static const double reals[] = {1, 0, 2, 0, 3, 0, 4, 0};
  static const float singles[] = {1, 0, 2, 0, 3, 0, 4, 0};
  const int is_double = dtype == OA_C128;
  double sums[8] = {0};
  oa_value passed[OA_MOST_VALUES] = {{0}};
  for (int i = 0; i < routine->count; i++) switch (tried[i]) {
      case 'e':
        passed[i] = values[i];
        break;
      case 'n':
        memcpy(&passed[i], is_double ? (const void *)reals : singles, oa_itemsize(dtype));
        break;
      case 'r':
        passed[i].pointer = is_double ? (const void *)reals : singles;
        break;
      case 'w':
        passed[i].pointer = sums;
        break;
      default:
        passed[i].integer = tried[i] - '0';
    }
  routine->call(symbol, passed, oa_routine_is_ilp64(routine));
  const double second = real_at(sums, dtype, 1), third = real_at(sums, dtype, 2);
  if (real_at(sums, dtype, 0) == 1 && second == 4 && third == 0) return 2;
  if (real_at(sums, dtype, 0) == 1 && second == 0 && third == 9) return 1;
  oa_fail(OA_ERROR_VERSION,
          "%s is not called: with strides of 2, the loaded version takes neither every second element nor, as some do, "
          "every one; load another version",
          routine->function);
  return 0;
}

int oa_stride_unit(const oa_routine *routine, void *symbol, const oa_value *values, const char *tried) {
  static void *known[2][3]; /* for each precision and unit, a function with that unit */
  const int dtype = routine->dtypes[strchr(tried, 'w') - tried], is_double = dtype == OA_C128;
  for (int unit = 1; unit <= 2; unit++)
    if (__atomic_load_n(&known[is_double][unit], __ATOMIC_RELAXED) == symbol) return unit;
  const int unit = try_strides(routine, symbol, values, tried, dtype);
  if (unit) __atomic_store_n(&known[is_double][unit], symbol, __ATOMIC_RELAXED);
  return unit;
}

/* Makes the call late->times times. Before each repetition, moves the arrays on. */
static __attribute__((noinline)) int call_times(oa_late *late) {
  int status = 0;
  for (int64_t time = 0; time < late->times; time++) {
    for (int i = 0; i < late->repeated; i++) {
      oa_value *value = &late->values[late->moves[i].place];
      if (late->moves[i].list)
        value->pointer = late->moves[i].list[time];
      else if (time)
        value->pointer = (const char *)value->pointer + late->moves[i].step;
    }
    status = late->routine->call(late->symbol, late->values, late->ilp64);
    if (late->results) late->results[time] = late->values[late->returned - 1];
  }
  return status;
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
  const int status =
      OA_LIKELY(!late->repeated) ? routine->call(late->symbol, late->values, late->ilp64) : call_times(late);
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

/* -- calls that are made several times ----------------------------------------------------------------------------- */

/* Returns the extent that covers all calls. Vectors that are side by side, such as diagonals of bands, are the rows of
 * a matrix. */
static oa_extent repeated(oa_extent extent, int64_t times, int64_t stride) {
  const bool is_diagonal = extent.kind == OA_EXTENT_BAND && !extent.below && !extent.above;
  const int64_t n = is_diagonal && extent.columns < extent.rows ? extent.columns : extent.rows,
                inc = extent.ld < 0 ? -extent.ld : extent.ld;
  if ((is_diagonal || extent.kind == OA_EXTENT_VECTOR) && stride == 1 && times <= inc)
    return OA_MATRIX(times, n, inc, "times", "n", extent.ld_name);
  return oa_strided(extent, times, stride, "times", "stride");
}

int oa_repeat_begin(oa_call *call) {
  const oa_repeat *repeat = call->library->repeat;
  const oa_role *const record = repeat->routine->record;
  bool lists = false;
  oa_operand *o = call->operands;
  for (int i = 0, at = 0; at < repeat->routine->count; at++) {
    if (!oa_is_array(record[at].role)) continue;
    const int64_t stride = repeat->strides[i];
    do {
      if (repeat->lists[i].at) {
        o->extent = oa_listed(o->extent, repeat->times, "times");
        o->pointer = &repeat->lists[i];
        lists = true;
      } else {
        o->extent = repeated(o->extent, repeat->times, stride < 0 && stride != INT64_MIN ? -stride : stride);
      }
      if (*repeat->names[i]) o->name = repeat->names[i];
    } while (++o < call->operands + call->count && (o->access & OA_RESHAPED));
    i++;
  }
  return lists ? oa_begin_lists(call) : oa_begin(call);
}

/* Fills the call's moves from the strides. A pointer with a negative stride starts at the last of its arrays. */
static void repeat(oa_late *late, const oa_repeat *repeat) {
  late->routine = repeat->routine;
  late->times = repeat->times;
  late->results = repeat->results;
  for (int at = 0; at < late->routine->count; at++) {
    if (!oa_is_array(late->routine->record[at].role)) continue;
    const int64_t step = repeat->strides[late->repeated] * oa_itemsize(late->routine->dtypes[at]);
    const bool listed = repeat->lists[late->repeated].at;
    if (!listed && step < 0 && late->times > 0)
      late->values[at].pointer = (const char *)late->values[at].pointer - step * (late->times - 1);
    late->moves[late->repeated].place = at;
    late->moves[late->repeated].list = listed ? late->values[at].pointer : NULL;
    late->moves[late->repeated++].step = step;
  }
}

int oa_routine_repeat(const oa_routine *routine, oa_value *values, int device, int64_t times, const int64_t *strides,
                      const void *const *const *lists, const char *names) {
  int arrays = 0, others = 0;
  if (!routine || !values || !strides || !names)
    return oa_fail_null("oa_routine_repeat", !routine   ? "routine"
                                             : !values  ? "values"
                                             : !strides ? "strides"
                                                        : "names");
  for (int i = 0; i < routine->count; i++) {
    const int role = routine->record[i].role;
    arrays += oa_is_array(role);
    others += role == OA_ROLE_RESULT || role == OA_ROLE_UPDATE || role == OA_ROLE_OUTPUT || oa_is_pointer_list(role) ||
              oa_is_number_list(role);
  }
  if (!routine->call || others || !arrays || arrays > OA_MOST_REPEATED)
    return oa_fail(OA_ERROR_ARGUMENT,
                   "oa_routine_repeat: %s can't be repeated: that is for routines of the CPU with "
                   "arrays, and without lists and results",
                   routine->function);
  if (times < 0) return oa_fail_negative(routine, "times", times);
  oa_repeat repeat = {.routine = routine, .times = times, .strides = strides};
  for (int i = 0; i < routine->count; i++)
    if (routine->record[i].role == OA_ROLE_VALUE) repeat.results = (oa_value *)values[i].pointer;
  for (int i = 0; i < arrays && *names; i++) repeat.names[i][0] = *names++;
  for (int i = 0; i < arrays && lists; i++) repeat.lists[i] = (oa_pointer_list){.at = lists[i], .count = times};
  oa_library library = *routine->library;
  oa_routine repeated = *routine;
  library.repeat = &repeat;
  repeated.library = &library;
  return repeated.run(&repeated, values, device);
}

/* -- making the call ----------------------------------------------------------------------------------------------- */

int oa_late_submit(oa_late *late, oa_call *call) {
  if (OA_UNLIKELY(call->library->repeat != NULL)) repeat(late, call->library->repeat);
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
