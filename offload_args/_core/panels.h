/* Products whose second matrix goes up in panels, while the device multiplies earlier panels. */
#ifndef OFFLOAD_ARGS_CORE_PANELS_H
#define OFFLOAD_ARGS_CORE_PANELS_H

#include "function.h"

#pragma GCC visibility push(hidden)

/* A product of fewer elements is one call. Tests change this number. */
enum { PANELS_ELEMENTS = 1 << 20 };
extern atomic_llong panels_elements;

/* Makes a call of a gemm in panels if the device lacks its matrix B, and B's columns are contiguous columns of op(B).
 * op_none: the library's constant for a matrix that is not transposed. Returns 0 if one call is better, or if the call
 * is wrong; -1 with an exception; 1 if the call was made. */
int panels_multiply(const Function *function, const oa_value *values, int64_t op_none);

#pragma GCC visibility pop

#endif
