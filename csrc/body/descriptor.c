#include "body/descriptor.h"

#include "call/call.h"
#include "device/memory.h"
#include "device/stream.h"
#include "region/capture.h"
#include "region/slot.h"

#include <math.h>
#include <stdlib.h>

/* -- descriptors -- */

int oa_fail_description(const oa_routine *routine, const char *name, const char *asked, const void *object,
                        int status) {
  char text[128];
  if (!object)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs a descriptor, got none; its array has no size without one",
                   routine->function, name);
  oa_library_status_text(routine->library, status, text, sizeof text);
  return oa_fail(OA_ERROR_LIBRARY, "%s: %s: %s returned %s", routine->function, name, asked, text);
}

int oa_dtype_of_code(const oa_code_dtype *codes, int64_t code) {
  for (; codes->name; codes++)
    if (codes->code == code) return codes->dtype;
  return OA_ANY;
}

const char *oa_name_of_code(const oa_code_dtype *codes, int64_t code) {
  for (; codes->name; codes++)
    if (codes->code == code) return codes->name;
  return "a constant that is not known";
}

/* Finds the lines of the elements: runs without gaps, whose starts have equal distances. If the elements are not such
 * lines, `width` stays 0. */
static void find_lines(oa_description *description, const int *strides) {
  int64_t size[OA_MOST_DIMENSIONS], step[OA_MOST_DIMENSIONS], run[2] = {1, 1}, pitch = 1;
  int count = 0, level = 0;
  for (int i = 0; i < description->rank; i++) { /* sorted by stride */
    if (description->shape[i] == 1) continue;
    if (description->shape[i] == 0 || strides[i] < 1) return;
    int at = count++;
    for (; at > 0 && step[at - 1] > strides[i]; at--) {
      step[at] = step[at - 1];
      size[at] = size[at - 1];
    }
    step[at] = strides[i];
    size[at] = description->shape[i];
  }
  for (int i = 0; i < count; i++) {
    if (step[i] != oa_times(pitch, run[level])) {
      if (level++ || step[i] < run[0]) return;
      pitch = step[i];
    }
    run[level] = oa_times(run[level], size[i]);
  }
  description->width = run[0];
  description->lines = run[1];
  description->pitch = level ? pitch : run[0];
}

int oa_description_set(const oa_routine *routine, const char *name, oa_description *description,
                       const oa_code_dtype *codes, int code, int rank, const int *shape, const int *strides,
                       size_t nbytes) {
  if (rank < 1 || rank > OA_MOST_DIMENSIONS)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s describes nothing yet; set its shape first", routine->function, name);
  *description =
      (oa_description){.dtype = oa_dtype_of_code(codes, code), .rank = rank, .elements = 1, .nbytes = (int64_t)nbytes};
  int64_t last = 0;
  for (int i = 0; i < rank; i++) {
    const int64_t size = shape[i] > 0 ? shape[i] : 0;
    description->shape[i] = size;
    description->elements = oa_times(description->elements, size);
    if (strides && size) last = oa_plus(last, oa_times(size - 1, strides[i] < 0 ? -(int64_t)strides[i] : strides[i]));
  }
  if (strides)
    find_lines(description, strides);
  else
    description->width = description->elements;
  description->span = !description->elements ? 0 : strides ? oa_plus(last, 1) : description->elements;
  if (description->dtype == OA_ANY) return OA_OK;
  const int64_t itemsize = oa_itemsize(description->dtype), whole = (description->nbytes + itemsize - 1) / itemsize;
  if (whole > description->span) { /* the descriptor pads the memory that it describes */
    description->span = whole;
    description->width = 0;
  }
  return OA_OK;
}

int *oa_lengths_start(const oa_routine *routine, int64_t count) {
  int *lengths = count < 0 || count > INT32_MAX ? NULL : calloc((size_t)count + 1, sizeof *lengths);
  if (!lengths) oa_fail(OA_ERROR_MEMORY, "%s: no host memory for %lld lengths", routine->function, (long long)count);
  return lengths;
}

int oa_lengths_end(int *lengths, int64_t count) {
  int64_t sum = 0;
  for (int64_t i = 0; i < count; i++) sum += lengths[i] > 0 ? lengths[i] : 0;
  free(lengths);
  return sum < INT32_MAX ? (int)sum : INT32_MAX;
}

/* -- operands -- */

oa_operand oa_operand_of_description(const char *name, const void *pointer, int access,
                                     const oa_description *description, const char *size) {
  const bool in_lines = description->lines > 1 && description->dtype != OA_ANY;
  const bool has_gaps = description->width != description->span && !in_lines; /* the elements have gaps or overlap */
  if ((access & OA_READ_WRITE) == OA_OVERWRITE && has_gaps) access |= OA_READ;
  const oa_extent extent =
      in_lines
          ? OA_MATRIX(description->width, description->lines, description->pitch, size, "its lines", "their distance")
      : description->dtype == OA_ANY ? oa_extent_of_bytes(pointer, description->nbytes, size)
                                     : OA_EXTENT(OA_EXTENT_VECTOR, 0, description->span, 1, 1, size, "", "");
  return oa_operand_of(name, pointer, access, description->dtype, extent);
}

oa_extent oa_extent_of_bytes(const void *pointer, int64_t nbytes, const char *name) {
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  const int64_t itemsize = oa_pointer_query(pointer, &info) ? 1 : oa_itemsize(info.dtype);
  const int64_t size = nbytes <= 0 || itemsize <= 1 ? nbytes : (nbytes - 1) / itemsize + 1;
  return OA_EXTENT(OA_EXTENT_VECTOR, 0, size, 1, 1, name, "", "");
}

int oa_fail_no_array(const oa_routine *routine) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: needs at least one array, got none", routine->function);
}

int oa_fail_operands(const oa_routine *routine, const oa_call *call, int status) {
  static const char size_of[] = "the size of ";
  if (status != OA_ERROR_TYPE) return status;
  for (int i = 0; i < call->count; i++) {
    const oa_operand *o = &call->operands[i];
    oa_pointer_info info = OA_SIZED(oa_pointer_info);
    const char *size = o->extent.rows_name;
    if (o->dtype == OA_ANY || strncmp(size, size_of, sizeof size_of - 1) != 0) continue;
    if (oa_pointer_query(o->pointer, &info) || info.dtype == o->dtype) continue;
    return oa_fail(status, "%s: %s needs %s, as %s says, got a pointer to %s", routine->function, o->name,
                   oa_dtype_name(o->dtype), size + sizeof size_of - 1, oa_dtype_name(info.dtype));
  }
  return status;
}

/* -- earlier answers of the library --
 *
 * A query of a convolution's workspace size takes cuDNN more time than the launch, and queries of all its descriptors
 * take time, too. The answers depend only on the descriptors, and a descriptor's stamp shows whether it changed: helper
 * functions and functions with outputs renew the stamps. The generator refuses other functions that change a descriptor
 * (unnoticed_change of bindings/descriptors.py). */

/* There are MOST_ANSWERS entries for keys of one object, and as many for keys of several objects. */
enum { MOST_WORDS = 16, MOST_ANSWERS = 256 };
static struct {
  uint64_t key[MOST_WORDS];
  int count;
  size_t size;
  uint64_t used; /* the count of uses at the entry's last use */
  unsigned char answer[OA_MOST_ANSWER];
} answers[2 * MOST_ANSWERS]; /* the lock guards these entries; a key may be in either of two adjacent entries */
static uint64_t uses;

/* Returns the index of a key; -1: some object may change unnoticed. */
static int place_of(const uint64_t *key, int stamps, int count) {
  uint64_t hash = 14695981039346656037u;
  if (count > MOST_WORDS) return -1;
  for (int i = 0; i < count; i++) {
    if (i < stamps && !key[i]) return -1;
    hash = (hash ^ key[i]) * 1099511628211u;
  }
  /* Objects that are used together were usually made together. The stamps of such objects are near each other, and get
   * different indices. */
  return count == 1 ? (int)(key[0] % MOST_ANSWERS) : MOST_ANSWERS + (int)((hash ^ hash >> 32) % MOST_ANSWERS);
}

/* Returns the index of a key's answer; -1: there is none. Called with the lock. */
static int find_answer(int place, const uint64_t *key, int count, size_t size) {
  for (int turn = 0; turn < 2; turn++, place ^= 1)
    if (answers[place].count == count && answers[place].size == size &&
        memcmp(answers[place].key, key, (size_t)count * sizeof *key) == 0) {
      answers[place].used = ++uses;
      return place;
    }
  return -1;
}

int oa_answer_find(const uint64_t *key, int stamps, int count, void *answer, size_t size) {
  const int place = place_of(key, stamps, count);
  if (place < 0) return 0;
  oa_lock();
  const int known = find_answer(place, key, count, size);
  if (known >= 0) memcpy(answer, answers[known].answer, size);
  oa_unlock();
  return known >= 0;
}

void oa_answer_keep(const uint64_t *key, int stamps, int count, const void *answer, size_t size) {
  const int place = place_of(key, stamps, count);
  if (place < 0 || size > OA_MOST_ANSWER) return;
  oa_lock();
  int at = find_answer(place, key, count, size);
  /* The new answer replaces the entry that was unused longer. */
  if (at < 0) at = answers[place].used <= answers[place ^ 1].used ? place : place ^ 1;
  memcpy(answers[at].key, key, (size_t)count * sizeof *key);
  memcpy(answers[at].answer, answer, size);
  answers[at].count = count;
  answers[at].size = size;
  answers[at].used = ++uses;
  oa_unlock();
}

/* -- memory whose size the library computes -- */

int oa_room_check(oa_call *call, const char *name, int64_t size, const char *size_name, size_t needed, int answer,
                  const char *asked) {
  char text[128];
  if (answer != call->library->success) {
    oa_library_status_text(call->library, answer, text, sizeof text);
    return oa_call_fail(call, oa_fail(OA_ERROR_LIBRARY, "%s: %s returned %s", call->function, asked, text));
  }
  if (size >= 0 && (size_t)size >= needed) return OA_OK;
  return oa_call_fail(call, oa_fail(OA_ERROR_EXTENT, "%s: %s needs %lld bytes, as %s says; %s is %lld", call->function,
                                    name, (long long)needed, asked, size_name, (long long)size));
}

int oa_workspace_take(oa_call *call, oa_workspace *workspace, void *own, const char *name, int64_t size,
                      const char *size_name, size_t needed, int answer, const char *asked) {
  *workspace = (oa_workspace){.address = own, .nbytes = (size_t)size};
  int status = oa_room_check(call, name, own ? size : INT64_MAX, size_name, needed, answer, asked);
  if (status || own) return status;
  *workspace = (oa_workspace){.nbytes = needed};
  if (!needed) return OA_OK;
  oa_capture *capture = OA_UNLIKELY(call->open == OA_CALL_CAPTURED) ? oa_capture_of(call->region, call->stream) : NULL;
  if (call->open == OA_CALL_CAPTURED && !capture)
    return oa_call_fail(call,
                        oa_fail(OA_ERROR_CAPTURE,
                                "%s: the stream is capturing a graph, and %s of %lld bytes would have to be allocated; "
                                "pass it",
                                call->function, name, (long long)needed));
  uint64_t address;
  if (OA_UNLIKELY(capture != NULL)) /* takes memory that lives until the graph is destroyed */
    status = oa_capture_share(capture, call->region, needed, &address);
  else
    status = oa_device_allocate(call->device, ((const oa_stream *)call->stream)->native, needed, &address);
  if (status)
    return oa_call_fail(call, oa_fail_in(status, "%s: %s of %lld bytes", call->function, name, (long long)needed));
  workspace->address = (void *)(uintptr_t)address;
  workspace->own = !capture;
  return OA_OK;
}

int oa_workspace_end(oa_call *call, oa_workspace *workspace, int status) {
  oa_device *device = call->device;
  void *stream = ((const oa_stream *)call->stream)->native;
  if (!workspace->own) return oa_end(call, status);
  const int freed = oa_device_free(device, stream, (uint64_t)(uintptr_t)workspace->address, workspace->nbytes);
  const int ended = oa_end(call, status);
  return ended ? ended : freed;
}

/* -- lists and numbers of the host -- */

int oa_check_list(const oa_routine *routine, const char *name, const oa_number_list *list, int64_t needed,
                  const char *needed_name) {
  if (!list || !list->at) return needed > 0 ? oa_fail_null(routine->function, name) : OA_OK;
  if (needed < 0)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs to be at least 0, got %lld", routine->function, needed_name,
                   (long long)needed);
  if (list->count < 0 || list->count >= needed) return OA_OK;
  return oa_fail(OA_ERROR_EXTENT, "%s: %s needs %lld values (%s), got %lld", routine->function, name, (long long)needed,
                 needed_name, (long long)list->count);
}

int oa_check_elements(const oa_routine *routine, const char *name, const oa_value *value, int64_t count,
                      const char *enum_name, const oa_code_dtype *codes, int64_t code, int writes) {
  const oa_array *array = value->host.array;
  const int dtype = oa_dtype_of_code(codes, code);
  if (!array) return value->host.address || !count ? OA_OK : oa_fail_null(routine->function, name);
  if (array->dtype != dtype)
    return oa_fail(OA_ERROR_TYPE, "%s: %s needs an array of %s, as %s (%s) says, got %s", routine->function, name,
                   dtype == OA_ANY ? "another dtype" : oa_dtype_name(dtype), enum_name, oa_name_of_code(codes, code),
                   oa_dtype_name(array->dtype));
  if (writes && array->flags & OA_READ_ONLY)
    return oa_fail(OA_ERROR_DIRECTION,
                   "%s: %s needs to be writable, and is read-only, or lent to a device; pass one that is neither",
                   routine->function, name);
  int64_t size = 1, step = oa_itemsize(dtype);
  for (int i = array->ndim - 1; i >= 0; i--) {
    if (array->shape[i] > 1 && array->strides[i] != step)
      return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs an array in C order; pass a copy", routine->function, name);
    size = oa_times(size, array->shape[i]);
    step = oa_times(step, array->shape[i]);
  }
  if (count >= 0 && size >= count) return OA_OK;
  return oa_fail(OA_ERROR_EXTENT, "%s: %s needs %lld element%s, has %lld", routine->function, name, (long long)count,
                 count == 1 ? "" : "s", (long long)size);
}

int oa_check_bytes(const oa_routine *routine, const char *name, const oa_value *value, int64_t nbytes,
                   const char *enum_name, const oa_code_dtype *codes, int64_t code, int writes) {
  const oa_array *array = value->host.array;
  const int dtype = enum_name ? oa_dtype_of_code(codes, code) : OA_U8;
  const int64_t itemsize = dtype == OA_ANY ? 1 : oa_itemsize(dtype);
  if (nbytes < 0)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs 0 bytes or more, got %lld", routine->function, name,
                   (long long)nbytes);
  if (enum_name && dtype == OA_ANY)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s has no value %lld", routine->function, enum_name, (long long)code);
  if (enum_name && (writes ? nbytes % itemsize != 0 : nbytes != itemsize))
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s (%s) is %s, of %lld bytes, got %lld", routine->function, enum_name,
                   oa_name_of_code(codes, code), oa_dtype_name(dtype), (long long)itemsize, (long long)nbytes);
  if (!array) return value->host.address || !nbytes ? OA_OK : oa_fail_null(routine->function, name);
  oa_value bytes = *value; /* checked like an array whose elements have nbytes bytes in all */
  const oa_code_dtype any[] = {{0, array->dtype, "any"}, {0, OA_ANY, NULL}};
  const int64_t size = enum_name ? itemsize : oa_itemsize(array->dtype) > 0 ? oa_itemsize(array->dtype) : 1;
  return oa_check_elements(routine, name, &bytes, (nbytes + size - 1) / size, enum_name ? enum_name : "it",
                           enum_name ? codes : any, enum_name ? code : 0, writes);
}

/* Writes a number in a dtype, followed by zeros. Returns OA_OK; OA_ERROR_OVERFLOW if the number is too large;
 * OA_ERROR_TYPE if an integer is needed, or if the dtype has no numbers on the host. */
static int write_number(int dtype, double number, oa_value *to) {
  bool is_infinite = false;
  *to = (oa_value){0};
  switch (dtype) {
    case OA_F64:
      to->real = number;
      break;
    case OA_F32:
      to->single = (float)number;
      is_infinite = isinf(to->single);
      break;
    case OA_F16:
      to->half = oa_f16_from(number);
      is_infinite = (to->half & 0x7fff) == 0x7c00;
      break;
    case OA_BF16:
      to->half = oa_bf16_from(number);
      is_infinite = (to->half & 0x7fff) == 0x7f80;
      break;
    default: {
      if (dtype < OA_BOOL || dtype > OA_U64 || number != rint(number)) return OA_ERROR_TYPE;
      const bool is_signed = dtype >= OA_I8 && dtype <= OA_I64;
      const int bits = dtype == OA_BOOL ? 1 : 8 * (int)oa_itemsize(dtype);
      if (number < (is_signed ? -ldexp(1, bits - 1) : 0) || number >= ldexp(1, bits - is_signed))
        return OA_ERROR_OVERFLOW;
      to->integer = number < 0 ? (int64_t)number : (int64_t)(uint64_t)number;
    }
  }
  return is_infinite && !isinf(number) ? OA_ERROR_OVERFLOW : OA_OK;
}

int oa_fail_number(const oa_routine *routine, const char *name, double number, const char *dtype, const char *by,
                   int status) {
  return oa_fail(status, "%s: %s needs a number of %s, as %s says, got %.15g%s", routine->function, name, dtype, by,
                 number, status == OA_ERROR_OVERFLOW ? "; it holds none as large" : "");
}

int oa_weight_for(const oa_routine *routine, const char *name, const double parts[2], int dtype, const char *by,
                  oa_value *to) {
  const int part = dtype == OA_C64 ? OA_F32 : dtype == OA_C128 ? OA_F64 : dtype;
  oa_value imaginary;
  int status = write_number(part, parts[0], to);
  if (!status) status = write_number(part, parts[1], &imaginary);
  if (!status && part == dtype && parts[1] != 0) status = OA_ERROR_TYPE;
  if (status && parts[1] == 0) return oa_fail_number(routine, name, parts[0], oa_dtype_name(dtype), by, status);
  if (status)
    return oa_fail(status, "%s: %s needs a number of %s, as %s says, got %.15g%+.15gj", routine->function, name,
                   oa_dtype_name(dtype), by, parts[0], parts[1]);
  if (dtype == OA_C64) to->single_parts[1] = imaginary.single;
  if (dtype == OA_C128) to->parts[1] = imaginary.real;
  return OA_OK;
}

void oa_place_inside(oa_value *value, const void *start) {
  value->integer = value->pointer ? (int64_t)((uintptr_t)value->pointer - (uintptr_t)start) : -1;
}
