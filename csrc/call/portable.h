/* For the portable BLAS of C, oa_blas_*: which library a pointer's device has, and that library's enums. */
#ifndef OA_PORTABLE_H
#define OA_PORTABLE_H

#include "library/library.h"
#include "offload_args/shim.h"

/* One enum of the portable BLAS: its values are first, first + 1 and so on, which the names describe. */
typedef struct oa_portable_enum {
  int first, count;
  const char *names;
} oa_portable_enum;

/* Sets *place to the first of the libraries, NULL-terminated, that works on the device of a pointer, which is the
 * parameter `name` of a public function. */
int oa_portable_place(const char *function, const char *name, const void *pointer, const oa_library *const *libraries,
                      int *place);
/* Returns OA_OK if value is one of the enum's; else sets the error of the parameter `name`. */
int oa_portable_check(const char *function, const char *name, const oa_portable_enum *one, int value);

#endif
