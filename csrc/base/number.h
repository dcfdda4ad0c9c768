/* Numbers of dtypes that C has no type for. offload_args/routine.h declares the conversions. */
#ifndef OA_NUMBER_H
#define OA_NUMBER_H

#include <stdbool.h>

/* Returns whether a number of the dtype is zero, of either sign. */
bool oa_number_is_zero(const void *number, int dtype);

#endif
