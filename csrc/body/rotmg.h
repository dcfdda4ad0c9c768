/* The modified rotation, whose function in OpenBLAS, as in the reference BLAS, never returns for some numbers. */
#ifndef OA_BODY_ROTMG_H
#define OA_BODY_ROTMG_H

#include "offload_args/routine.h"

/* Callers of cblas_srotmg and cblas_drotmg. Where that would not end, the numbers are made here: a weight that is
 * infinite is not scaled, and where rounding alone makes no rotation, H and all but y1 are 0, as in the reference. */
int oa_call_srotmg(void *symbol, oa_value *values, int ilp64);
int oa_call_drotmg(void *symbol, oa_value *values, int ilp64);

#endif
