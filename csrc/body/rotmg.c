#include "body/rotmg.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#define REAL double
#define MOST DBL_MAX
#define MEMBER real
#define CALLER oa_call_drotmg
#define ROTATION rotation
#define ROTATE rotate
#define SCALE scale
#include "body/rotmg.inc"
#undef REAL
#undef MOST
#undef MEMBER
#undef CALLER
#undef ROTATION
#undef ROTATE
#undef SCALE

#define REAL float
#define MOST FLT_MAX
#define MEMBER single
#define CALLER oa_call_srotmg
#define ROTATION single_rotation
#define ROTATE rotate_single
#define SCALE scale_single
#include "body/rotmg.inc"
