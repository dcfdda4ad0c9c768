/* Plans of Fourier transforms: the layouts that a plan notes when it is made, and its executions.
 *
 * Neither cuFFT nor hipFFT reports which elements a plan touches, so the core notes them in the plan. Both libraries
 * have the same transform types, and the same rules of layouts. */
#ifndef OA_BODY_FFT_H
#define OA_BODY_FFT_H

#include "body/helper_function.h"

/* Finds the elements that the executions of a plan touch, from the arguments of the function that makes or sets the
 * plan. Notes these elements in the call. If no transform has such sizes, fails and ends the call. */
int oa_fft_note(oa_helper_call *call, const oa_value *values);
/* The body of the functions that execute a plan. `asks`: the functions that set a plan's stream, get the size of its
 * work area, and set the work area. `codes` is not used. */
int oa_fft_execute(const oa_routine *routine, oa_value *values, const int *asks, const oa_code_dtype *codes);

#endif
