/* For the bodies of functions whose arrays have descriptors: the contents of a descriptor, workspaces, lists. */
#ifndef OA_DESCRIPTOR_H
#define OA_DESCRIPTOR_H

#include "body/body.h"

#include <math.h>
#include <stdbool.h>

enum { OA_MOST_DIMENSIONS = 8 };

/* The memory that a descriptor describes. */
typedef struct oa_description {
  int dtype; /* OA_ANY: a dtype that NumPy lacks; then only nbytes is known */
  int rank;  /* 0: the descriptor was not read */
  int64_t shape[OA_MOST_DIMENSIONS];
  int64_t elements; /* number of elements */
  int64_t span;     /* number of elements from the first to the last, gaps included */
  int64_t width;    /* elements of each of the `lines` lines, `pitch` apart; 0: the elements are not lines */
  int64_t lines, pitch;
  int64_t nbytes;
} oa_description;

/* Returns a library function that a body calls for a query; NULL with the error set if the library lacks it. */
static inline void *oa_asked(const oa_routine *routine, int index) {
  void *address = __atomic_load_n(&routine->library->addresses[index], __ATOMIC_ACQUIRE);
  return OA_LIKELY(address != NULL) ? address : oa_library_symbol(routine->library, index);
}

/* Fails for a descriptor that is missing (object NULL), or that the library's function `asked` refused. Returns the
 * status. */
__attribute__((cold)) int oa_fail_description(const oa_routine *routine, const char *name, const char *asked,
                                              const void *object, int status);
/* Fills *description. `strides`: in elements; NULL if there are no gaps. `nbytes`: the size of the memory; 0 if the
 * size is not known. Refuses a descriptor that describes nothing yet. */
int oa_description_set(const oa_routine *routine, const char *name, oa_description *description,
                       const oa_code_dtype *codes, int code, int rank, const int *shape, const int *strides,
                       size_t nbytes);
/* Returns memory for `count` lengths; NULL with the error set. oa_lengths_end returns the sum of the lengths, and frees
 * the memory. */
int *oa_lengths_start(const oa_routine *routine, int64_t count);
int oa_lengths_end(int *lengths, int64_t count);

static inline int64_t oa_dimension(const oa_description *description, int axis) {
  return axis < description->rank ? description->shape[axis] : 1;
}

/* -- earlier answers of the library -- */

enum { OA_MOST_ANSWER = 320 }; /* the most bytes of an answer */

/* Finds the kept result of an earlier query, which has `size` bytes. `key`: the stamps of the objects on which the
 * result depends, then the query's function and arguments. Returns 0 if no result is kept. */
int oa_answer_find(const uint64_t *key, int stamps, int count, void *answer, size_t size);
/* Keeps the result of a query, so that oa_answer_find finds it with the same key. */
void oa_answer_keep(const uint64_t *key, int stamps, int count, const void *answer, size_t size);
/* Returns the stamp of the object that a value refers to. */
static inline uint64_t oa_stamp_of(const oa_value *value) {
  uint64_t stamp;
  memcpy(&stamp, value->bytes + sizeof stamp, sizeof stamp);
  return stamp;
}

/* Return the dtype of a constant, OA_ANY if it has none; and the constant's name. */
int oa_dtype_of_code(const oa_code_dtype *codes, int64_t code);
const char *oa_name_of_code(const oa_code_dtype *codes, int64_t code);

/* -- operands -- */

/* Returns the operand of an array that a descriptor describes. `size`: the name of the array's size in messages. */
oa_operand oa_operand_of_description(const char *name, const void *pointer, int access,
                                     const oa_description *description, const char *size);
/* Returns the extent of `nbytes` bytes at a pointer of any dtype. */
oa_extent oa_extent_of_bytes(const void *pointer, int64_t nbytes, const char *name);
/* If an array and its descriptor have different dtypes, adds the descriptor's name to the failure of the call. Returns
 * the status. */
__attribute__((cold)) int oa_fail_operands(const oa_routine *routine, const oa_call *call, int status);
__attribute__((cold)) int oa_fail_no_array(const oa_routine *routine);

/* -- memory whose size the library computes, after oa_begin -- */

/* A call's workspace: the caller's memory, or memory that the core takes from the device until the call ends. */
typedef struct oa_workspace {
  void *address;
  size_t nbytes;
  bool own;
} oa_workspace;

/* Takes the workspace of a call: the caller's memory `own`, or memory of the device if `own` is NULL. `size`: the bytes
 * of `own`, from an argument called size_name. `needed`: the size that the library's function `asked` has returned,
 * with the status `answer`. Cancels the call if this function fails. */
int oa_workspace_take(oa_call *call, oa_workspace *workspace, void *own, const char *name, int64_t size,
                      const char *size_name, size_t needed, int answer, const char *asked);
/* Ends the call with the vendor's status, and frees the workspace in stream order. */
int oa_workspace_end(oa_call *call, oa_workspace *workspace, int status);
/* Checks that the caller's memory is as large as the library needs. If the memory is too small, cancels the call. */
int oa_room_check(oa_call *call, const char *name, int64_t size, const char *size_name, size_t needed, int answer,
                  const char *asked);

/* -- lists and numbers of the host -- */

/* Checks that a list has at least that many values. */
int oa_check_list(const oa_routine *routine, const char *name, const oa_number_list *list, int64_t needed,
                  const char *needed_name);
/* Checks that a host array has the given number of elements, of the dtype that an enum value stands for. */
int oa_check_elements(const oa_routine *routine, const char *name, const oa_value *value, int64_t count,
                      const char *enum_name, const oa_code_dtype *codes, int64_t code, int writes);
/* Checks that a host array has the given number of bytes. If `enum_name` is NULL, the bytes are of any dtype. With
 * `enum_name`, the bytes are of the dtype for which the enum value `code` stands, and all of them are written. */
int oa_check_bytes(const oa_routine *routine, const char *name, const oa_value *value, int64_t nbytes,
                   const char *enum_name, const oa_code_dtype *codes, int64_t code, int writes);
/* Fails for a number that does not fit a dtype. `by`: the name of the argument that sets the dtype. */
__attribute__((cold)) int oa_fail_number(const oa_routine *routine, const char *name, double number, const char *dtype,
                                         const char *by, int status);
/* Writes a number, with a real and an imaginary part, in the dtype that the argument `by` sets. Refuses a number that
 * does not fit the dtype. */
int oa_weight_for(const oa_routine *routine, const char *name, const double parts[2], int dtype, const char *by,
                  oa_value *to);
/* Converts an address inside an array to the number of bytes from the array's start; NULL to -1. */
void oa_place_inside(oa_value *value, const void *start);

/* Writes a factor such as alpha: as a double if the elements are doubles, otherwise as a float. */
static inline int oa_factor_for(const oa_routine *routine, const char *name, double number, int dtype, const char *by,
                                oa_value *to) {
  if (dtype == OA_F64) {
    to->real = number;
    return OA_OK;
  }
  to->single = (float)number;
  return isinf(to->single) && !isinf(number) ? oa_fail_number(routine, name, number, "float32", by, OA_ERROR_OVERFLOW)
                                             : OA_OK;
}

#endif
