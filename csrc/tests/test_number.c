/* 16-bit floats: each 16-bit float is converted to double and back without a change. A number between two such floats
 * is rounded to the nearer float, and a number in the middle to the even float. Numbers of a dtype that an argument
 * sets: a number that does not fit the dtype is refused. */
#include "base/number.h"
#include "body/descriptor.h"
#include "check.h"
#include "offload_args/routine.h"

#include <math.h>
#include <string.h>

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
    const double value = f->to((uint16_t)(sign | bits));
    const double next = bits + 1 < f->infinity ? f->to((uint16_t)(sign | (bits + 1))) : sign ? -beyond(f) : beyond(f);
    const double middle = value + (next - value) / 2;
    CHECK(f->from(value) == (sign | bits));
    CHECK(f->from(middle) == (sign | (bits + (bits & 1))));
    CHECK(f->from(nextafter(middle, value)) == (sign | bits));
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
  static const unsigned char nothing[16], half[] = {0, 0x80}, eighth[] = {0x80}, unit[16] = {1};
  for (int dtype = OA_ANY + 1; dtype < OA_DTYPE_COUNT; dtype++) {
    CHECK(oa_number_is_zero(nothing, dtype));
    CHECK(!oa_number_is_zero(unit, dtype));
  }
  const float minus[2] = {-0.0f, 0.0f};
  const double wide[2] = {0.0, -0.0};
  CHECK(oa_number_is_zero(minus, OA_F32) && oa_number_is_zero(minus, OA_C64) && oa_number_is_zero(wide, OA_C128));
  CHECK(oa_number_is_zero(half, OA_F16) && oa_number_is_zero(half, OA_BF16) && !oa_number_is_zero(half, OA_I16));
  CHECK(oa_number_is_zero(eighth, OA_F8E4M3) && !oa_number_is_zero(eighth, OA_I8));
}

static void written_as(int dtype, double number, int expected) {
  static const oa_routine routine = {.function = "scale"};
  oa_value value;
  const int status = oa_weight_for(&routine, "by", (const double[]){number, 0}, dtype, "y", &value);
  CHECK(status == expected);
  CHECK(!status || strstr(oa_last_error(), "scale: by needs a number of "));
  if (status || dtype < OA_BOOL || dtype > OA_U64) return;
  CHECK(dtype == OA_U64 ? (double)(uint64_t)value.integer == number : (double)value.integer == number);
}

static void integers(void) {
  static const struct {
    int dtype;
    double least, most;
  } ranges[] = {{OA_BOOL, 0, 1},           {OA_I8, -128, 127},
                {OA_U8, 0, 255},           {OA_I16, -32768, 32767},
                {OA_U16, 0, 65535},        {OA_I32, INT32_MIN, INT32_MAX},
                {OA_U32, 0, UINT32_MAX},   {OA_I64, -0x1p63, 0x1p63 - 1024},
                {OA_U64, 0, 0x1p64 - 2048}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    const int dtype = ranges[i].dtype;
    const double step = dtype == OA_I64 ? 1024 : dtype == OA_U64 ? 2048 : 1;
    const double below = dtype == OA_I64 ? -0x1p63 - 2048 : ranges[i].least - 1;
    written_as(dtype, ranges[i].least, OA_OK);
    written_as(dtype, ranges[i].most, OA_OK);
    written_as(dtype, below, OA_ERROR_OVERFLOW);
    written_as(dtype, ranges[i].most + step, OA_ERROR_OVERFLOW);
    written_as(dtype, (double)INFINITY, OA_ERROR_OVERFLOW);
    written_as(dtype, 0.5, OA_ERROR_TYPE);
    written_as(dtype, (double)NAN, OA_ERROR_TYPE);
  }
}

static void floats(void) {
  static const double largest[] = {[OA_F16] = 65504, [OA_BF16] = 0x1.fep127, [OA_F32] = 0x1.fffffep127};
  for (int dtype = OA_F16; dtype <= OA_F32; dtype++) {
    written_as(dtype, largest[dtype], OA_OK);
    written_as(dtype, -2 * largest[dtype], OA_ERROR_OVERFLOW);
    written_as(dtype, -(double)INFINITY, OA_OK);
    written_as(dtype, (double)NAN, OA_OK);
    written_as(dtype, 1e-300, OA_OK);
  }
  written_as(OA_F64, 1e300, OA_OK);
  written_as(OA_F8E4M3, 1, OA_ERROR_TYPE);
  written_as(OA_ANY, 1, OA_ERROR_TYPE);
}

static void with_two_parts(void) {
  static const oa_routine routine = {.function = "scale"};
  const double both[] = {1, -2}, real[] = {3, 0}, large[] = {0, 1e300};
  oa_value value;
  CHECK(!oa_weight_for(&routine, "by", both, OA_C64, "y", &value) && value.single_parts[1] == -2);
  CHECK(!oa_weight_for(&routine, "by", both, OA_C128, "y", &value) && value.parts[0] == 1 && value.parts[1] == -2);
  CHECK(oa_weight_for(&routine, "by", both, OA_F64, "y", &value) == OA_ERROR_TYPE);
  CHECK(!oa_weight_for(&routine, "by", real, OA_I32, "y", &value) && value.integer == 3);
  CHECK(oa_weight_for(&routine, "by", large, OA_C64, "y", &value) == OA_ERROR_OVERFLOW);
  CHECK(!oa_weight_for(&routine, "by", large, OA_C128, "y", &value) && value.parts[1] == 1e300);
}

int main(void) {
  for (int i = 0; i < 2; i++) {
    every_one(&formats[i], 0);
    every_one(&formats[i], 0x8000);
    not_finite(&formats[i]);
  }
  known_values();
  zeros();
  integers();
  floats();
  with_two_parts();
  return failures();
}
