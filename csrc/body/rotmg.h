/* The modified rotation. OpenBLAS's function, like the reference's, never returns for some numbers. */
#ifndef OA_BODY_ROTMG_H
#define OA_BODY_ROTMG_H

#include "offload_args/routine.h"

/* Callers of cblas_srotmg and cblas_drotmg. These cases are computed here: an infinite weight is not scaled, and if
 * rounding alone prevents a rotation, H and all numbers but y1 become 0, as in the reference. */
int oa_call_srotmg(void *symbol, oa_value *values, int ilp64);
int oa_call_drotmg(void *symbol, oa_value *values, int ilp64);

#endif
