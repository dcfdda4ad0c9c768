/* The modified rotation. OpenBLAS's function, like the reference's, never returns for some numbers. */
#ifndef OA_BODY_ROTMG_H
#define OA_BODY_ROTMG_H

#include "offload_args/routine.h"

/* Callers of cblas_srotmg and cblas_drotmg. In two cases a caller computes the result itself. It does not scale an
 * infinite weight. If only rounding prevents a rotation, it sets H and all numbers except y1 to 0, as the reference
 * does. */
int oa_call_srotmg(void *symbol, oa_value *values, int ilp64);
int oa_call_drotmg(void *symbol, oa_value *values, int ilp64);

#endif
