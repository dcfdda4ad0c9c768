/* 16-bit floats: every one of them comes back, and what lies between two of them goes to the nearer, or to the even. */
#include "base/number.h"
#include "check.h"
#include "offload_args/routine.h"

#include <math.h>

typedef struct format {
  uint16_t (*from)(double);
  double (*to)(uint16_t);
  uint16_t infinity;
} format;
static const format formats[] = {{oa_f16_from, oa_f16_to, 0x7c00}, {oa_bf16_from, oa_bf16_to, 0x7f80}};

/* The next number would be 2^16, or 2^128, if there were more exponents. */
static double beyond(const format *f) {
  const uint16_t largest = f->infinity - 1;
  return 2 * f->to(largest) - f->to(largest - 1);
}

static void every_one(const format *f, uint16_t sign) {
  for (int bits = 0; bits < f->infinity; bits++) {
    const double here = f->to((uint16_t)(sign | bits));
    const double next = bits + 1 < f->infinity ? f->to((uint16_t)(sign | (bits + 1))) : sign ? -beyond(f) : beyond(f);
    const double middle = here + (next - here) / 2;
    CHECK(f->from(here) == (sign | bits));
    CHECK(f->from(middle) == (sign | (bits + (bits & 1))));
    CHECK(f->from(nextafter(middle, here)) == (sign | bits));
    CHECK(f->from(nextafter(middle, next)) == (sign | (bits + 1)));
  }
}

static void known_values(void) {
  CHECK(oa_f16_to(0x3c00) == 1 && oa_f16_to(0xc000) == -2 && oa_f16_to(0x7bff) == 65504);
  CHECK(oa_f16_to(0x0001) == ldexp(1, -24) && oa_f16_to(0x0400) == ldexp(1, -14) &&
        oa_f16_to(0x3555) == 0.333251953125);
  CHECK(oa_bf16_to(0x3f80) == 1 && oa_bf16_to(0xc000) == -2 && oa_bf16_to(0x4049) == 3.140625);
  CHECK(oa_bf16_to(0x0001) == ldexp(1, -133) && oa_bf16_to(0x7f7f) == (2 - ldexp(1, -7)) * ldexp(1, 127));
}

static void not_finite(const format *f) {
  CHECK(f->from((double)INFINITY) == f->infinity && f->from(-(double)INFINITY) == (0x8000 | f->infinity));
  CHECK(f->from(1e308) == f->infinity && f->from(-1e308) == (0x8000 | f->infinity));
  CHECK(f->to(f->infinity) == (double)INFINITY && f->to(0x8000 | f->infinity) == -(double)INFINITY);
  CHECK(isnan(f->to(f->from((double)NAN))) && isnan(f->to(f->infinity + 1)));
  CHECK(f->from(5e-324) == 0 && f->from(-5e-324) == 0x8000);
}

static void zeros(void) {
  static const unsigned char nothing[16], half[] = {0, 0x80}, eighth[] = {0x80}, one[16] = {1};
  for (int dtype = OA_ANY + 1; dtype < OA_DTYPE_COUNT; dtype++) {
    CHECK(oa_number_is_zero(nothing, dtype));
    CHECK(!oa_number_is_zero(one, dtype));
  }
  const float minus[2] = {-0.0f, 0.0f};
  const double wide[2] = {0.0, -0.0};
  CHECK(oa_number_is_zero(minus, OA_F32) && oa_number_is_zero(minus, OA_C64) && oa_number_is_zero(wide, OA_C128));
  CHECK(oa_number_is_zero(half, OA_F16) && oa_number_is_zero(half, OA_BF16) && !oa_number_is_zero(half, OA_I16));
  CHECK(oa_number_is_zero(eighth, OA_F8E4M3) && !oa_number_is_zero(eighth, OA_I8));
}

int main(void) {
  for (int i = 0; i < 2; i++) {
    every_one(&formats[i], 0);
    every_one(&formats[i], 0x8000);
    not_finite(&formats[i]);
  }
  known_values();
  zeros();
  return failures();
}
