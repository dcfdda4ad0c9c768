#include "accelerate/lapack_call.h"

int64_t oa_lapack_integer(const oa_lapack_arguments *a, const void *array, int64_t at) {
  return a->wide ? ((const int64_t *)array)[at] : ((const int32_t *)array)[at];
}

void oa_lapack_set_integer(const oa_lapack_arguments *a, void *array, int64_t at, int64_t value) {
  if (a->wide)
    ((int64_t *)array)[at] = value;
  else
    ((int32_t *)array)[at] = (int32_t)value;
}
