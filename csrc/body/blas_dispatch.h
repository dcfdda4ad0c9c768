/* The portable BLAS of C, oa_blas_*: this part finds the library of a pointer's device, and checks enums. */
#ifndef OA_BLAS_DISPATCH_H
#define OA_BLAS_DISPATCH_H

#include "library/library.h"
#include "offload_args/shim.h"

/* One enum of the portable BLAS. The values of the enum are `first`, `first` + 1 and so on. `names` lists them for
 * messages. */
typedef struct oa_dispatch_enum {
  int first, count;
  const char *names;
} oa_dispatch_enum;

/* Sets *place to the index of the first library that works on the device of a pointer. The list of libraries ends with
 * NULL. The pointer is the parameter `name` of a public function. */
int oa_dispatch_library(const char *function, const char *name, const void *pointer, const oa_library *const *libraries,
                        int *place);
/* Returns OA_OK if `value` is a value of the enum. If not, sets the error of the parameter `name`. */
int oa_dispatch_check(const char *function, const char *name, const oa_dispatch_enum *entry, int value);

#endif
