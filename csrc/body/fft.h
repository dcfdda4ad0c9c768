/* Plans of Fourier transforms: the layouts that a plan notes when it is made, and its executions.
 *
 * Neither cuFFT nor hipFFT reports which elements a plan touches, so the core notes them in the plan. Both have the
 * same transform types, and the same rules of layouts. */
#ifndef OA_BODY_FFT_H
#define OA_BODY_FFT_H

#include "body/helper_function.h"

/* Works out, from the arguments of a function that makes or sets a plan, which elements its executions touch; notes
 * them in the call. Refuses sizes that no transform has, and ends the call then. */
int oa_fft_note(oa_helper_call *call, const oa_value *values);
/* The body of the functions that execute a plan. asks: the functions that set a plan's stream, get the size of its work
 * area, and set that; codes: unused. */
int oa_fft_execute(const oa_routine *routine, oa_value *values, const int *asks, const oa_code_dtype *codes);

#endif
