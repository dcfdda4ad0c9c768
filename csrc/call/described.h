/* For the bodies of functions whose arrays descriptors describe: what a descriptor says, workspaces, lists. */
#ifndef OA_DESCRIBED_H
#define OA_DESCRIBED_H

#include "call/routine.h"

#include <math.h>
#include <stdbool.h>

enum { OA_MOST_DIMENSIONS = 8 };

/* The memory that a descriptor describes. */
typedef struct oa_described {
  int dtype; /* OA_ANY: one that NumPy does not have; then only nbytes is known */
  int rank;  /* 0: it was not asked */
  int64_t shape[OA_MOST_DIMENSIONS];
  int64_t elements; /* that there are */
  int64_t span;     /* elements from the first to the last one, gaps included */
  int64_t width;    /* elements of a line; 0: they do not lie in lines, `lines` of them, `pitch` apart */
  int64_t lines, pitch;
  int64_t nbytes;
} oa_described;

/* Returns a function of the library that a body asks; NULL with the error set if it has none. */
static inline void *oa_asked(const oa_routine *routine, int index) {
  void *address = __atomic_load_n(&routine->library->addresses[index], __ATOMIC_ACQUIRE);
  return __builtin_expect(address != NULL, 1) ? address : oa_library_symbol(routine->library, index);
}

/* Fails for a descriptor that is missing (object NULL), or that the library's function `asked` refused. */
__attribute__((cold)) int oa_fail_described(const oa_routine *routine, const char *name, const char *asked,
                                            const void *object, int status);
/* Fills what a descriptor says. strides: in elements; NULL: there are no gaps. nbytes: 0 if it is not known. Refuses a
 * descriptor that describes nothing yet. */
int oa_described_set(const oa_routine *routine, const char *name, oa_described *says, const oa_code_dtype *codes,
                     int code, int rank, const int *shape, const int *strides, size_t nbytes);
/* Memory for `count` lengths; NULL with the error set. The end returns their sum, and frees it. */
int *oa_lengths_start(const oa_routine *routine, int64_t count);
int oa_lengths_end(int *lengths, int64_t count);

static inline int64_t oa_dimension(const oa_described *says, int axis) {
  return axis < says->rank ? says->shape[axis] : 1;
}

/* -- what the library said before -- */

enum { OA_MOST_SAID = 320 }; /* bytes of an answer */

/* Finds what the library said before to the same question, of `size` bytes. key: the stamps of the objects that it
 * depends on, so many, then the rest, such as its function and arguments. Returns 0 if it is not known. */
int oa_said_find(const uint64_t *key, int stamps, int count, void *said, size_t size);
/* Remembers that. */
void oa_said_keep(const uint64_t *key, int stamps, int count, const void *said, size_t size);
/* Returns the stamp of an object among the values. */
static inline uint64_t oa_stamp_of(const oa_value *value) {
  uint64_t stamp;
  memcpy(&stamp, value->bytes + sizeof stamp, sizeof stamp);
  return stamp;
}

/* Return the dtype that a constant stands for, OA_ANY if for none; and the constant's name. */
int oa_dtype_of_code(const oa_code_dtype *codes, int64_t code);
const char *oa_name_of_code(const oa_code_dtype *codes, int64_t code);

/* -- operands -- */

/* The operand of an array that a descriptor describes. size: names its size in messages. */
oa_operand oa_operand_described(const char *name, const void *pointer, int access, const oa_described *says,
                                const char *size);
/* The extent of so many bytes behind a pointer of any dtype. */
oa_extent oa_extent_of_bytes(const void *pointer, int64_t nbytes, const char *name);
/* The extent of all that a pointer has. */
oa_extent oa_extent_of_all(void);
/* Adds to the failure of a call that an array has another dtype than its descriptor. Returns the status. */
__attribute__((cold)) int oa_fail_operands(const oa_routine *routine, const oa_call *call, int status);
__attribute__((cold)) int oa_fail_no_array(const oa_routine *routine);

/* -- memory whose size the library says, after oa_begin -- */

/* A call's workspace: the caller's, or memory of the device until the end of the call. */
typedef struct oa_workspace {
  void *address;
  size_t nbytes;
  bool own;
} oa_workspace;

/* Takes the workspace of a call: that of the caller (`given`, of `size` bytes, an argument called size_name), or if it
 * is NULL memory of the device. needed, answer: what the library said, and with which status; asked: how it was asked.
 * Cancels the call if it fails. */
int oa_workspace_take(oa_call *call, oa_workspace *workspace, void *given, const char *name, int64_t size,
                      const char *size_name, size_t needed, int answer, const char *asked);
/* Ends the call with the vendor's status, and frees the workspace in stream order. */
int oa_workspace_end(oa_call *call, oa_workspace *workspace, int status);
/* Checks that the caller's memory has what the library says. Cancels the call if it fails. */
int oa_room_check(oa_call *call, const char *name, int64_t size, const char *size_name, size_t needed, int answer,
                  const char *asked);

/* -- lists and numbers of the host -- */

/* Checks that a list has at least so many values. */
int oa_check_list(const oa_routine *routine, const char *name, const oa_number_list *list, int64_t needed,
                  const char *needed_name);
/* Returns the sum of a list of integers of 32 bits, each below 0 as 0; INT64_MAX of one whose length is not known. */
int64_t oa_list_sum(const oa_number_list *list);
/* Checks that an array of the host has so many elements of the dtype that an enum says. */
int oa_check_elements(const oa_routine *routine, const char *name, const oa_value *value, int64_t count,
                      const char *enum_name, const oa_code_dtype *codes, int64_t code, int writes);
/* Checks that an array of the host has so many bytes; enum_name: of the dtype that an enum says, and written all of its
 * size; NULL: of any dtype. */
int oa_check_bytes(const oa_routine *routine, const char *name, const oa_value *value, int64_t nbytes,
                   const char *enum_name, const oa_code_dtype *codes, int64_t code, int writes);
/* Fails for a number that a dtype does not hold. by: the name of the argument that says the dtype. */
__attribute__((cold)) int oa_fail_number(const oa_routine *routine, const char *name, double number, const char *dtype,
                                         const char *by, int status);
/* Writes a number in a dtype, which an argument says. Refuses one that the dtype does not hold. */
int oa_number_for(const oa_routine *routine, const char *name, double number, int dtype, const char *by, oa_value *to);
/* Does so in the dtype that a constant stands for. */
int oa_number_as(const oa_routine *routine, const char *name, double number, const char *by, const oa_code_dtype *codes,
                 int64_t code, oa_value *to);
/* Does so with a number that has a real and an imaginary part. */
int oa_weight_for(const oa_routine *routine, const char *name, const double parts[2], int dtype, const char *by,
                  oa_value *to);
/* Makes a double of a number that lies in the value in the dtype that an enum says. */
void oa_number_from(oa_value *value, const oa_code_dtype *codes, int code);
/* Makes a number of an address inside an array: the bytes from its start; -1: there is none. */
void oa_place_inside(oa_value *value, const void *start);

/* Writes a factor such as alpha: a double if the elements are doubles, else a float. */
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
