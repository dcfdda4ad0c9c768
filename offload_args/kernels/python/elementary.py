"""The elementary functions of kernels: the same code, and the same bits, on the CPU, NVIDIA and AMD.

Each function of this module gets symbols for its arguments, and each operation on a symbol writes one instruction of
LLVM IR. All of these operations, also `fma`, round to the nearest number, as IEEE 754 defines them. So each target
computes the same number; only a NaN may have other bits. The only branch is in sin, cos and tan of float64: for
arguments above 2^40, they read a table of the bits of 2 / pi. All other functions, including sin, cos and tan of
float32, have no branch, so that loops over elements become vector instructions.

A float32 result is computed in float64, with shorter polynomials and without low parts, and rounded once at the end. In
float64, a number is represented as the sum of a high and a low part if a single float64 has too few bits.
docs/guide/kernels.md states the errors, and tests/kernels/test_python_math.py measures them. scripts/fit_polynomials.py
fits the polynomials.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import llvmlite.ir as ir

from .polynomials import CONSTANTS, POLYNOMIALS, TWO_OVER_PI_BITS

__all__ = ["ELEMENTARY", "function_of"]

_F32, _F64, _I1, _I64, _I128 = ir.FloatType(), ir.DoubleType(), ir.IntType(1), ir.IntType(64), ir.IntType(128)
_ROUND: Final = 1.5 * 2**52  # x + _ROUND - _ROUND is the nearest integer; x + _ROUND has it in the low bits
_ROUND_BITS: Final = 0x4338000000000000
_ONE: Final = 0x3FF0000000000000
_SQRT_HALF: Final = 0x3FE6A09E667F3BCD
_MANTISSA: Final = (1 << 52) - 1
_LARGE_ANGLE: Final = 2.0**40
_LN2, _PI, _HALF_PI = CONSTANTS["LN2"], CONSTANTS["PI"], CONSTANTS["HALF_PI"]
_LOG2_E, _LOG10_E, _LOG10_2 = CONSTANTS["LOG2_E"], CONSTANTS["LOG10_E"], CONSTANTS["LOG10_2"]


class Symbol:
    """A number that the code computes: float64, int64 or a truth value. `raw` is None for an omitted low part."""

    __slots__ = ("code", "raw")

    def __init__(self, code: Code, raw: Any) -> None:
        self.code, self.raw = code, raw

    def _with(self, other: Any, of_reals: str, of_integers: str) -> Symbol:
        builder, other = self.code.builder, self.code.symbol(other, like=self)
        step = of_reals if self.raw.type == _F64 else of_integers
        return Symbol(self.code, getattr(builder, step)(self.raw, other.raw))

    def _compared(self, sign: str, other: Any) -> Symbol:
        builder, other = self.code.builder, self.code.symbol(other, like=self)
        if self.raw.type == _F64:
            compare = builder.fcmp_unordered if sign == "!=" else builder.fcmp_ordered
            return Symbol(self.code, compare(sign, self.raw, other.raw))
        return Symbol(self.code, builder.icmp_signed(sign, self.raw, other.raw))

    def __add__(self, other: Any) -> Symbol:
        if self.raw is None or _is_left_out(other):
            return other if self.raw is None else self
        return self._with(other, "fadd", "add")

    __radd__ = __add__

    def __sub__(self, other: Any) -> Symbol:
        if self.raw is None or _is_left_out(other):
            return -other if self.raw is None else self
        return self._with(other, "fsub", "sub")

    def __rsub__(self, other: Any) -> Symbol:
        return self.code.symbol(other) if self.raw is None else self.code.symbol(other, like=self) - self

    def __mul__(self, other: Any) -> Symbol:
        if self.raw is None or _is_left_out(other):
            return self.code.nothing
        return self._with(other, "fmul", "mul")

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Symbol:
        return self if self.raw is None else self._with(other, "fdiv", "udiv")

    def __rtruediv__(self, other: Any) -> Symbol:
        return self.code.symbol(other, like=self) / self

    def __neg__(self) -> Symbol:
        return self if self.raw is None else Symbol(self.code, self.code.builder.fneg(self.raw))

    def __and__(self, other: Any) -> Symbol:
        return self._with(other, "", "and_")

    def __or__(self, other: Any) -> Symbol:
        return self._with(other, "", "or_")

    def __invert__(self) -> Symbol:
        return Symbol(self.code, self.code.builder.not_(self.raw))

    def __lshift__(self, count: Any) -> Symbol:
        return self._with(count, "", "shl")

    def __rshift__(self, count: Any) -> Symbol:
        return self._with(count, "", "lshr")

    def __lt__(self, other: Any) -> Symbol:
        return self._compared("<", other)

    def __gt__(self, other: Any) -> Symbol:
        return self._compared(">", other)

    def __le__(self, other: Any) -> Symbol:
        return self._compared("<=", other)

    def __ge__(self, other: Any) -> Symbol:
        return self._compared(">=", other)

    def equals(self, other: Any) -> Symbol:
        return self._compared("==", other)

    def differs(self, other: Any) -> Symbol:
        return self._compared("!=", other)

    def __abs__(self) -> Symbol:
        return self.code.native("fabs", self)


def _is_left_out(value: Any) -> bool:
    return isinstance(value, Symbol) and value.raw is None


@dataclass
class Code:
    """The code of one function. With `short`, it is for float32, and computes in float64 without low parts."""

    builder: Any
    short: bool

    @property
    def nothing(self) -> Symbol:
        return Symbol(self, None)

    def symbol(self, value: Any, like: Symbol | None = None) -> Symbol:
        if isinstance(value, Symbol):
            return value
        return Symbol(self, ir.Constant(_F64 if like is None else like.raw.type, value))

    def native(self, name: str, *operands: Any) -> Symbol:
        """Call a function for which every target has an instruction, or code that rounds correctly."""
        raw = [self.symbol(operand).raw for operand in operands]
        kind = ir.FunctionType(_F64, [_F64] * len(raw))
        return Symbol(self, self.builder.call(self.builder.module.declare_intrinsic(f"llvm.{name}", [_F64], kind), raw))

    def fma(self, a: Any, b: Any, c: Any) -> Symbol:
        """Return a * b + c, rounded once."""
        if any(map(_is_left_out, (a, b))):
            return self.symbol(c)
        if _is_left_out(c):
            c = -0.0
        return self.native("fma", a, b, c)

    def where(self, test: Symbol, yes: Any, no: Any) -> Symbol:
        if _is_left_out(yes) and _is_left_out(no):
            return self.nothing
        like = next((choice for choice in (yes, no) if isinstance(choice, Symbol) and choice.raw is not None), None)
        chosen = [0.0 if _is_left_out(choice) else choice for choice in (yes, no)]
        return Symbol(self, self.builder.select(test.raw, *(self.symbol(choice, like).raw for choice in chosen)))

    def bits(self, x: Symbol) -> Symbol:
        return Symbol(self, self.builder.bitcast(x.raw, _I64))

    def real(self, bits: Symbol) -> Symbol:
        """Return the floating-point number that has these bits."""
        return Symbol(self, self.builder.bitcast(bits.raw, _F64))

    def rounded(self, x: Symbol) -> tuple[Symbol, Symbol]:
        """Return the nearest integer, of at most 51 bits, as a floating-point number and as an integer."""
        shifted = x + _ROUND
        return shifted - _ROUND, self.bits(shifted) - _ROUND_BITS

    def small(self, integer: Symbol) -> Symbol:
        """Return a small integer as a floating-point number."""
        return self.real(integer + _ROUND_BITS) - _ROUND

    def power_of_2(self, exponent: Symbol) -> Symbol:
        return self.real((exponent + 1023) << 52)

    def polynomial(self, name: str, x: Symbol) -> Symbol:
        coefficients = POLYNOMIALS[name][self.short]
        total = self.symbol(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self.fma(total, x, coefficient)
        return total

    def at_most(self, x: Symbol, most: float) -> Symbol:
        return self.where(x > most, most, x)

    def between(self, x: Symbol, least: float, most: float) -> Symbol:
        return self.at_most(self.where(x < least, least, x), most)

    def sign_of(self, magnitude: Symbol, x: Any) -> Symbol:
        return self.native("copysign", magnitude, x)

    def is_nan(self, x: Symbol) -> Symbol:
        return x.differs(x)

    # -- sums of a high and a low part ---------------------------------------------------------------------------------

    def sum(self, a: Any, b: Any) -> tuple[Symbol, Symbol]:
        """Return a + b and its error."""
        a, b = self.symbol(a), self.symbol(b)
        total = a + b
        if self.short:
            return total, self.nothing
        back = total - a
        return total, (a - (total - back)) + (b - back)

    def ordered_sum(self, a: Any, b: Symbol) -> tuple[Symbol, Symbol]:
        """Return a + b and its error. a is 0, or |a| >= |b|."""
        a = self.symbol(a)
        total = a + b
        return total, self.nothing if self.short or b.raw is None else b - (total - a)

    def product(self, a: Any, b: Any) -> tuple[Symbol, Symbol]:
        """Return a * b and its error."""
        a = self.symbol(a)
        total = a * b
        return total, self.nothing if self.short else self.fma(a, b, -total)

    def quotient(self, a: Symbol, a_low: Symbol, b: Symbol, b_low: Symbol) -> tuple[Symbol, Symbol]:
        """Return (a + a_low) / (b + b_low) in two parts."""
        if self.short:
            return a / b, self.nothing
        inverse = 1.0 / b
        high = a * inverse
        left = self.fma(-high, b, a)
        return high, (left + (a_low - high * b_low)) * inverse

    def root(self, square: Symbol, low: Symbol) -> tuple[Symbol, Symbol]:
        """Return, in two parts, the square root of a non-negative number."""
        high = self.native("sqrt", square)
        if self.short:
            return high, self.nothing
        left = (self.fma(-high, high, square) + low) / (high + high)
        return high, self.where(high > 0.0, left, 0.0)


# -- exponentials ------------------------------------------------------------------------------------------------------


def _exponential(c: Code, x: Symbol, low: Symbol | None = None, half: bool = False) -> Symbol:
    """Return e^(x + low), or half of this number."""
    most = 200.0 if c.short else 800.0
    x = c.between(x, -most, most)
    n, i = c.rounded(x * _LOG2_E[0])
    r = c.fma(n, -_LN2[0], x) + c.fma(n, -_LN2[1], c.symbol(0.0) if low is None else low)
    return _scaled(c, r, i, half)


def _scaled(c: Code, r: Symbol, i: Symbol, half: bool = False) -> Symbol:
    """Return e^r 2^i."""
    value = c.fma(r * r, c.polynomial("EXP", r), r) + 1.0
    if c.short:
        return value * c.power_of_2(i - int(half))
    first = ((i + 2048) >> 1) - 1024
    return value * c.power_of_2(first) * c.power_of_2(i - first - int(half))


def exp(c: Code, x: Symbol) -> Symbol:
    return _exponential(c, x)


def exp2(c: Code, x: Symbol) -> Symbol:
    most = 300.0 if c.short else 1200.0
    x = c.between(x, -most, most)
    n, i = c.rounded(x)
    return _scaled(c, (x - n) * (_LN2[0] + _LN2[1]), i)


def _less_one(c: Code, x: Symbol) -> tuple[Symbol, Symbol]:
    """Return e^x - 1 in two parts, for -60 <= x <= 60."""
    n, i = c.rounded(x * _LOG2_E[0])
    most, correction = c.fma(n, -_LN2[0], x), n * _LN2[1]
    r = most - correction
    low = c.nothing if c.short else (most - r) - correction
    rest = c.fma(r * r, c.polynomial("EXP", r), c.fma(low, r, low))
    power = c.power_of_2(i)
    high, error = c.sum(power - 1.0, power * r)
    return c.ordered_sum(high, c.fma(power, rest, error))


def expm1(c: Code, x: Symbol) -> Symbol:
    high, low = _less_one(c, c.between(x, -60.0, 60.0))
    value = c.where(x > 50.0, _exponential(c, x), high + low)
    return c.where(x.equals(0.0), x, value)


def tanh(c: Code, x: Symbol) -> Symbol:
    high, low = _less_one(c, c.at_most(abs(x), 22.0) * 2.0)
    below, rest = c.sum(2.0, high)
    high, low = c.quotient(high, low, below, rest + low)
    return c.sign_of(high + low, x)


def sinh(c: Code, x: Symbol) -> Symbol:
    a = abs(x)
    square = a * a
    half = _exponential(c, a, half=True)
    near = c.fma(a * square, c.polynomial("SINH", square), a)
    return c.sign_of(c.where(a < 1.0, near, half - 0.25 / half), x)


def cosh(c: Code, x: Symbol) -> Symbol:
    half = _exponential(c, abs(x), half=True)
    return half + 0.25 / half


# -- logarithms --------------------------------------------------------------------------------------------------------


def _split(c: Code, x: Symbol) -> tuple[Symbol, Symbol]:
    """Return e and f of x = 2^e (1 + f), with 1 + f from sqrt(1/2) to sqrt(2). x > 0."""
    more = c.symbol(0.0)
    if not c.short:  # float64 represents the subnormal numbers of float32 as normal numbers
        tiny = x < 2.0**-1022
        x, more = c.where(tiny, x * 2.0**54, x), c.where(tiny, -54.0, 0.0)
    bits = c.bits(x) + (_ONE - _SQRT_HALF)
    exponent = c.small((bits >> 52) - 1023) + more
    return exponent, c.real((bits & _MANTISSA) + _SQRT_HALF) - 1.0


def _tail(c: Code, f: Symbol) -> tuple[Symbol, Symbol]:
    """Return half of f^2, and log(1 + f) - f + half of f^2."""
    s = f / (f + 2.0)
    square, half = s * s, f * f * 0.5
    return half, s * c.fma(square, c.polynomial("LOG", square), half)


def _of_positive(c: Code, x: Symbol, value: Symbol) -> Symbol:
    """Return `value` if x is positive and finite, otherwise the logarithm of x: NaN or infinity."""
    at_end = c.where(x.equals(0.0), -math.inf, c.where(x.equals(math.inf), math.inf, math.nan))
    return c.where((x > 0.0) & (x < math.inf), value, at_end)


def log(c: Code, x: Symbol) -> Symbol:
    e, f = _split(c, x)
    half, rest = _tail(c, f)
    return _of_positive(c, x, e * _LN2[0] - ((half - c.fma(e, _LN2[1], rest)) - f))


def log1p(c: Code, x: Symbol) -> Symbol:
    total, low = c.sum(1.0, x)
    e, f = _split(c, total)
    half, rest = _tail(c, f)
    if c.short:  # restore the digits of x that rounding of 1 + x lost
        low = x - (total - 1.0)
    rest = rest + low / total
    value = _of_positive(c, total, e * _LN2[0] - ((half - c.fma(e, _LN2[1], rest)) - f))
    return c.where(x.equals(0.0), x, value)


def _to_base(c: Code, x: Symbol, factor: tuple[float, ...], of_2: tuple[float, ...]) -> Symbol:
    e, f = _split(c, x)
    half, rest = _tail(c, f)
    high, low = c.ordered_sum(f, -half)
    high, low = c.ordered_sum(high, low + rest)
    scaled, error = c.product(high, factor[0])
    error = error + c.fma(high, factor[1], low * factor[0])
    total, lost = c.ordered_sum(e * of_2[0], scaled)
    return _of_positive(c, x, total + c.fma(e, of_2[1], lost + error))


def log2(c: Code, x: Symbol) -> Symbol:
    return _to_base(c, x, _LOG2_E, (1.0, 0.0))


def log10(c: Code, x: Symbol) -> Symbol:
    return _to_base(c, x, _LOG10_E, _LOG10_2)


def _long_log(c: Code, x: Symbol) -> tuple[Symbol, Symbol]:
    """Return log(x) in two parts, exact to 65 bits."""
    e, f = _split(c, x)
    below, rest = c.ordered_sum(2.0, f)
    s, s_low = c.quotient(f, c.nothing, below, rest)
    square, square_low = c.product(s, s)
    square_low = c.fma(s + s, s_low, square_low)
    third, third_low = c.ordered_sum(CONSTANTS["THIRD"][0], square * c.polynomial("POW", square))
    third_low = third_low + CONSTANTS["THIRD"][1]
    w, w_low = c.product(square, third)
    w_low = w_low + c.fma(square, third_low, square_low * third)
    s, s_low = s + s, s_low + s_low
    u, u_low = c.product(s, w)
    u_low = u_low + c.fma(s, w_low, s_low * w)
    high, low = c.ordered_sum(s, u)
    low = low + (u_low + s_low)
    total, lost = c.sum(e * _LN2[0], high)
    return c.ordered_sum(total, lost + c.fma(e, _LN2[1], low))


def power(c: Code, x: Symbol, y: Symbol) -> Symbol:
    base = abs(x)
    if c.short:
        value = _exponential(c, y * log(c, base))
    else:
        high, low = _long_log(c, base)
        product, error = c.product(y, high)
        value = _exponential(c, product, c.where(abs(product) < 800.0, c.fma(y, low, error), 0.0))
    half = y * 0.5
    whole = c.native("rint", y).equals(y)
    odd = whole & c.native("rint", half).differs(half)
    value = c.where(x < 0.0, c.where(whole, c.where(odd, -value, value), math.nan), value)
    at_end = c.where(base.equals(0.0), c.where(y < 0.0, math.inf, 0.0), c.where(y < 0.0, 0.0, math.inf))
    at_end = c.where(odd, c.sign_of(at_end, x), at_end)
    value = c.where(base.equals(0.0) | base.equals(math.inf), at_end, value)
    value = c.where(base.equals(1.0) & abs(y).equals(math.inf), 1.0, value)
    value = c.where(c.is_nan(x) | c.is_nan(y), math.nan, value)
    return c.where(y.equals(0.0) | x.equals(1.0), 1.0, value)


# -- circular functions ------------------------------------------------------------------------------------------------


def _word(c: Code, number: Symbol, bits: Symbol) -> Symbol:
    """Return 64 bits of 2 / pi, from bit `bits` of word `number` on."""
    module = c.builder.module
    kind = ir.ArrayType(_I64, len(TWO_OVER_PI_BITS) + 3)
    table = module.globals.get("oa_two_over_pi")
    if table is None:
        table = ir.GlobalVariable(module, kind, "oa_two_over_pi", addrspace=1)
        table.initializer, table.global_constant = ir.Constant(kind, [0, *TWO_OVER_PI_BITS, 0, 0]), True
        table.linkage = "internal"

    def at(index: Symbol) -> Symbol:
        return Symbol(c, c.builder.load(c.builder.gep(table, [ir.Constant(_I64, 0), index.raw])))

    return (at(number) << bits) | ((at(number + 1) >> 1) >> (c.symbol(63, bits) - bits))


def _far(c: Code, x: Symbol) -> tuple[Symbol, Symbol, Symbol]:
    """Return the quadrant and the angle in two parts, for |x| above 2^40, from 192 bits of x 2 / pi."""
    builder, bits = c.builder, c.bits(x)
    mantissa = (bits & _MANTISSA) | (1 << 52)
    # x = mantissa 2^shift. Bits of 2 / pi above 2^(2 - shift) give whole turns.
    start = ((bits >> 52) & 2047) - (1075 + 2) + 64
    number, offset = start >> 6, start & 63
    wide = [builder.zext(_word(c, number + k, offset).raw, _I128) for k in range(3)]
    long, zero = builder.zext(mantissa.raw, _I128), ir.Constant(_I128, 64)
    total = builder.shl(builder.mul(long, wide[0]), zero)
    total = builder.add(total, builder.mul(long, wide[1]))
    total = builder.add(total, builder.lshr(builder.mul(long, wide[2]), zero))
    turned = builder.add(total, ir.Constant(_I128, 1 << 125))
    quadrant = builder.trunc(builder.lshr(turned, ir.Constant(_I128, 126)), _I64)
    part = builder.sub(total, builder.shl(builder.zext(quadrant, _I128), ir.Constant(_I128, 126)))
    top, end = builder.trunc(builder.lshr(part, zero), _I64), builder.trunc(part, _I64)
    high = builder.sitofp(top, _F64)
    left = builder.sitofp(builder.sub(top, builder.fptosi(high, _I64)), _F64)
    low = Symbol(c, builder.uitofp(end, _F64)) * 2.0**-126 + Symbol(c, left) * 2.0**-62
    turns, low = c.ordered_sum(Symbol(c, high) * 2.0**-62, low)
    angle, error = c.product(turns, _HALF_PI[0])
    error = error + c.fma(turns, _HALF_PI[1], low * _HALF_PI[0])
    negative = bits >> 63
    sign = c.where(negative.equals(1), -1.0, 1.0)
    angle, error = c.ordered_sum(angle, error)
    quarter = c.where(negative.equals(1), c.symbol(0, negative) - Symbol(c, quadrant), Symbol(c, quadrant))
    return quarter, angle * sign, error * sign


def _far_short(c: Code, x: Symbol) -> tuple[Symbol, Symbol, Symbol]:
    """Return the quadrant and the angle of a float32 beyond 2^40, by operations that vector units have.

    2 / pi is cut into numbers of 29 bits, whose products with x are exact. Products that are whole turns are left out.
    """
    magnitude, bits = abs(x), 0
    for word in TWO_OVER_PI_BITS:
        bits = bits << 64 | word
    length = 64 * len(TWO_OVER_PI_BITS)
    cut = [math.ldexp(bits >> length - 29 * k & (1 << 29) - 1, -29 * k) for k in range(1, 8)]
    products = []
    for k in range(4):
        factor = c.symbol(cut[k])
        for skipped, least in enumerate((2.0**54, 2.0**83, 2.0**112), 1):
            factor = c.where(magnitude >= least, cut[k + skipped], factor)
        products.append(x * factor)
    first, second, third, fourth = products
    first = first - c.native("rint", first * 0.25) * 4.0
    n, quadrant = c.rounded(first + second + third)
    first = first - n  # this is exact
    total = first + second
    back = total - first
    low = (first - (total - back)) + (second - back)
    part = total + third
    back = part - total
    low = low + (total - (part - back)) + (third - back) + fourth
    return quadrant, (part + low) * _HALF_PI[0], c.nothing


def _reduced(c: Code, x: Symbol) -> tuple[Symbol, Symbol, Symbol]:
    """Return n and r, in two parts, of x = n pi / 2 + r. |r| is at most a bit above pi / 4."""
    n, i = c.rounded(x * CONSTANTS["TWO_OVER_PI"][0])
    most = c.fma(n, -_HALF_PI[0], x)  # this is exact
    if c.short:
        r, low = c.fma(n, -_HALF_PI[1], most), c.nothing
    else:
        correction, error = c.product(n, _HALF_PI[1])
        r, low = c.sum(most, -correction)
        r, low = c.ordered_sum(r, c.fma(n, -_HALF_PI[2], low - error))
    builder = c.builder
    before = builder.block
    with builder.if_then((abs(x) > _LARGE_ANGLE).raw, likely=False):
        other = _far_short(c, x) if c.short else _far(c, c.where(abs(x) < math.inf, x, _LARGE_ANGLE))
        inside = builder.block
    chosen = []
    for near, far in zip((i, r, low), other, strict=True):
        if near.raw is None:
            chosen.append(near)
            continue
        phi = builder.phi(near.raw.type)
        phi.add_incoming(near.raw, before)
        phi.add_incoming(far.raw, inside)
        chosen.append(Symbol(c, phi))
    i, r, low = chosen
    return i, c.where(abs(x) < math.inf, r, math.nan), low


def _both(c: Code, r: Symbol, low: Symbol) -> tuple[tuple[Symbol, Symbol], tuple[Symbol, Symbol]]:
    """Return sine and cosine of r, each in two parts."""
    square = r * r
    half = square * 0.5
    most = 1.0 - half
    sine = (r * square) * c.polynomial("SIN", square) + (low - low * half)
    lost = c.nothing if c.short else (1.0 - most) - half
    cosine = (square * square) * c.polynomial("COS", square) - r * low + lost
    return (r, sine), (most, cosine)


def _of_quadrant(c: Code, x: Symbol, turn: int) -> Symbol:
    i, r, low = _reduced(c, x)
    (sine, sine_low), (cosine, cosine_low) = _both(c, r, low)
    i = i + turn
    value = c.where((i & 1).equals(1), cosine + cosine_low, sine + sine_low)
    return c.where((i & 2).equals(2), -value, value)


def sin(c: Code, x: Symbol) -> Symbol:
    return c.where(x.equals(0.0), x, _of_quadrant(c, x, 0))


def cos(c: Code, x: Symbol) -> Symbol:
    return _of_quadrant(c, x, 1)


def tan(c: Code, x: Symbol) -> Symbol:
    i, r, low = _reduced(c, x)
    sine, cosine = (c.ordered_sum(*parts) for parts in _both(c, r, low))
    odd = (i & 1).equals(1)
    above, above_low = (c.where(odd, -a, b) for a, b in zip(cosine, sine, strict=True))
    below, below_low = (c.where(odd, a, b) for a, b in zip(sine, cosine, strict=True))
    high, low = c.quotient(above, above_low, below, below_low)
    return c.where(x.equals(0.0), x, high + low)


def _angle(c: Code, y: Symbol, y_low: Symbol, x: Symbol, x_low: Symbol) -> tuple[Symbol, Symbol]:
    """Return the angle of (x, y) in two parts. x and y are not negative, and not both 0."""
    steep = y > x
    up, up_low = c.where(steep, x, y), c.where(steep, x_low, y_low)
    along, along_low = c.where(steep, y, x), c.where(steep, y_low, x_low)
    middle = up > along * 0.41421356237309503  # if true, compute the angle minus pi / 4
    less, less_low = c.sum(up, -along)
    more, more_low = c.sum(along, up)
    less_low, more_low = less_low + (up_low - along_low), more_low + (up_low + along_low)
    q, low = c.quotient(
        c.where(middle, less, up), c.where(middle, less_low, up_low),
        c.where(middle, more, along), c.where(middle, more_low, along_low),
    )  # fmt: skip
    q, low = c.ordered_sum(q, low)
    square = q * q
    rest = c.fma(q * square, c.polynomial("ATAN", square), low - low * square)
    start = c.where(middle, _HALF_PI[0] / 2, c.where(steep, _HALF_PI[0], 0.0))
    start_low = c.where(middle, _HALF_PI[1] / 2, c.where(steep, _HALF_PI[1], 0.0))
    high, error = c.ordered_sum(start, c.where(steep, -q, q))
    return c.ordered_sum(high, error + (start_low + c.where(steep, -rest, rest)))


def _turned(c: Code, test: Symbol, high: Symbol, low: Symbol) -> Symbol:
    """Return pi minus an angle if the test holds, else the angle."""
    other, error = c.ordered_sum(_PI[0], -high)
    return c.where(test, other + (error + (_PI[1] - low)), high + low)


def atan(c: Code, x: Symbol) -> Symbol:
    high, low = _angle(c, c.at_most(abs(x), 1e300), c.nothing, c.symbol(1.0), c.nothing)
    return c.sign_of(high + low, x)


def atan2(c: Code, y: Symbol, x: Symbol) -> Symbol:
    up, along = abs(y), abs(x)
    far = up.equals(math.inf) | along.equals(math.inf)
    up = c.where(far, c.where(up.equals(math.inf), 1.0, 0.0), up)
    along = c.where(far, c.where(along.equals(math.inf), 1.0, 0.0), along)
    along = c.where(up.equals(0.0) & along.equals(0.0), 1.0, along)
    most = c.where(up > along, up, along)
    scale = c.where(most > 2.0**1000, 2.0**-100, c.where(most < 2.0**-900, 2.0**200, 1.0))
    high, low = _angle(c, up * scale, c.nothing, along * scale, c.nothing)
    value = _turned(c, (c.bits(x) >> 63).equals(1), high, low)
    return c.where(c.is_nan(x) | c.is_nan(y), math.nan, c.sign_of(value, y))


def _beside(c: Code, x: Symbol) -> tuple[Symbol, Symbol]:
    """Return the square root of 1 - x^2 in two parts, for |x| <= 1."""
    square, error = c.product(x, x)
    left, lost = c.ordered_sum(1.0, -square)
    return c.root(c.where(left > 0.0, left, 0.0), lost - error)


def asin(c: Code, x: Symbol) -> Symbol:
    a = abs(x)
    high, low = _angle(c, a, c.nothing, *_beside(c, a))
    return c.where(a <= 1.0, c.sign_of(high + low, x), math.nan)


def acos(c: Code, x: Symbol) -> Symbol:
    a = abs(x)
    high, low = _angle(c, *_beside(c, a), a, c.nothing)
    return c.where(a <= 1.0, _turned(c, x < 0.0, high, low), math.nan)


# -- others ------------------------------------------------------------------------------------------------------------


def hypot(c: Code, x: Symbol, y: Symbol) -> Symbol:
    a, b = abs(x), abs(y)
    most, least = c.where(a < b, b, a), c.where(a < b, a, b)
    scale = back = c.symbol(1.0)
    if not c.short:
        scale = c.where(most > 2.0**500, 2.0**-600, c.where(most < 2.0**-400, 2.0**600, 1.0))
        back = c.where(most > 2.0**500, 2.0**600, c.where(most < 2.0**-400, 2.0**-600, 1.0))
    first, first_low = c.product(most * scale, most * scale)
    second, second_low = c.product(least * scale, least * scale)
    total, low = c.ordered_sum(first, second)
    high, low = c.root(total, low + (first_low + second_low))
    value = c.where(a.equals(math.inf) | b.equals(math.inf), math.inf, (high + low) * back)
    value = c.where(c.is_nan(x) | c.is_nan(y), math.nan, value)
    return c.where(a.equals(math.inf) | b.equals(math.inf), math.inf, value)


def cbrt(c: Code, x: Symbol) -> Symbol:
    a = abs(x)
    tiny, large = a < 2.0**-1022, a > 2.0**1000
    a = a * c.where(tiny, 2.0**54, c.where(large, 2.0**-54, 1.0))
    t = c.real(c.bits(a) / 3 + int((1023 * 2 / 3 - 0.0331) * 2**52))
    for _ in range(3):
        cube = t * t * t
        t = t * ((cube + 2.0 * a) / (2.0 * cube + a))
    if not c.short:
        square, low = c.product(t, t)
        t = t - (c.fma(t, square, -a) + t * low) / (3.0 * square)
    value = c.sign_of(t * c.where(tiny, 2.0**-18, c.where(large, 2.0**18, 1.0)), x)
    return c.where(x.equals(0.0) | ~(abs(x) < math.inf), x, value)


def _erfc_far(c: Code, a: Symbol) -> Symbol:
    """Return erfc(a), for a >= 1/2."""
    a = c.at_most(a, 28.0)
    inverse = 1.0 / (a + 2.0)
    square, low = c.product(a, a)
    return _exponential(c, -square, -low) * (c.polynomial("ERFC", (a - 2.0) * inverse) * inverse)


def erf(c: Code, x: Symbol) -> Symbol:
    a = abs(x)
    near = c.fma(a, c.polynomial("ERF", a * a), a)
    return c.sign_of(c.where(a < 1.0, near, 1.0 - _erfc_far(c, a)), x)


def erfc(c: Code, x: Symbol) -> Symbol:
    a = abs(x)
    near = 1.0 - c.fma(x, c.polynomial("ERF", a * a), x)
    far = _erfc_far(c, a)
    return c.where(a < 0.5, near, c.where(x < 0.0, 2.0 - far, far))


#: {the function's name in rules.py: (the function, the number of its arguments)}.
ELEMENTARY: Final[dict[str, tuple[Callable[..., Symbol], int]]] = {
    **{f"oa__{recipe.__name__}": (recipe, 1) for recipe in (
        exp, exp2, expm1, log, log1p, log2, log10, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, cbrt, erf, erfc,
    )},
    "oa__pow": (power, 2), "oa__atan2": (atan2, 2), "oa__hypot": (hypot, 2),
}  # fmt: skip


def function_of(module: Any, name: str, kind: Any) -> Any:
    """Return a function of a module, for the LLVM type `kind`, which is float32 or float64."""
    recipe, count = ELEMENTARY[name]
    symbol = f"oa_{name.removeprefix('oa__')}_{'f32' if kind == _F32 else 'f64'}"
    if symbol in module.globals:
        return module.globals[symbol]
    function = ir.Function(module, ir.FunctionType(kind, [kind] * count), symbol)
    function.linkage = "linkonce_odr"
    function.attributes.add("alwaysinline")
    builder = ir.IRBuilder(function.append_basic_block())
    short = kind == _F32
    code = Code(builder, short)
    arguments = [Symbol(code, builder.fpext(argument, _F64) if short else argument) for argument in function.args]
    value = recipe(code, *arguments).raw
    builder.ret(builder.fptrunc(value, _F32) if short else value)
    return function
