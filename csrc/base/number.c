#include "base/number.h"

#include "offload_args/routine.h"

#include <math.h>
#include <string.h>

/* -- 16-bit floats: a sign, an exponent, and a fraction of `digits` bits -- */

typedef struct format {
  int digits, least; /* least: the exponent of the smallest normal number */
} format;
static const format f16 = {10, -14}, bf16 = {7, -126};

static uint16_t pack(double number, format f) {
  const uint16_t sign = signbit(number) ? 0x8000 : 0, infinity = (uint16_t)(0x8000 - (1 << f.digits));
  if (isnan(number)) return sign | infinity | (uint16_t)(1 << (f.digits - 1));
  if (isinf(number)) return sign | infinity;
  int exponent;
  frexp(number, &exponent); /* |number| is in [2^(exponent - 1), 2^exponent) */
  const int normal = exponent - 1 > f.least ? exponent - 1 : f.least;
  /* The number in units of its last place, rounded by rint. The scaling is exact, because it is by powers of 2. */
  const double units = rint(ldexp(fabs(number), f.digits - normal));
  /* A subnormal has the exponent field 0 and no leading bit. If rounding up carries into the exponent field, the sum is
   * the next larger number, as it should be. */
  const double bits = units + (units != 0 ? (double)(normal - f.least) * (double)(1 << f.digits) : 0);
  return sign | (bits < infinity ? (uint16_t)bits : infinity);
}

static double unpack(uint16_t number, format f) {
  const int fraction = number & ((1 << f.digits) - 1), field = (number & 0x7fff) >> f.digits;
  const int most = (0x7fff >> f.digits);
  double value;
  if (field == most)
    value = fraction ? (double)NAN : (double)INFINITY;
  else if (field)
    value = ldexp((double)(fraction + (1 << f.digits)), field - 1 + f.least - f.digits);
  else
    value = ldexp((double)fraction, f.least - f.digits);
  return number & 0x8000 ? -value : value;
}

uint16_t oa_f16_from(double number) { return pack(number, f16); }
uint16_t oa_bf16_from(double number) { return pack(number, bf16); }
double oa_f16_to(uint16_t number) { return unpack(number, f16); }
double oa_bf16_to(uint16_t number) { return unpack(number, bf16); }

bool oa_number_is_zero(const void *number, int dtype) {
  oa_value value = {.parts = {0, 0}};
  memcpy(&value, number, (size_t)oa_itemsize(dtype));
  switch (dtype) {
    case OA_F32:
    case OA_C64:
      return value.single_parts[0] == 0 && value.single_parts[1] == 0;
    case OA_F64:
    case OA_C128:
      return value.parts[0] == 0 && value.parts[1] == 0;
    case OA_F16:
    case OA_BF16:
      return !(value.half & 0x7fff);
    case OA_F8E4M3:
    case OA_F8E5M2:
      return !(value.bytes[0] & 0x7f);
    default:
      return dtype != OA_ANY && value.integer == 0;
  }
}
