"""Functions of numbers that rewritten trees call: operators with NumPy's result types, powers, elementary functions.

Importing this module imports numba. Each function gets flags for its weak arguments, which take the other argument's
type.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any, Final

import llvmlite.ir as ir
from numba.core import errors
from numba.core.typing.templates import signature
from numba.extending import intrinsic

from . import elementary
from .value_types import WeakType, combined, lacks, range_error, types, weak_type


@intrinsic(prefer_literal=True)
def oa__weak(typing: Any, value: Any, line: Any) -> Any:
    """Return a number that takes the type of the value with which it is joined.

    line: the line of a whole number that not all types of integers have, or 0.
    """
    if not isinstance(line, types.IntegerLiteral):  # numba also tries types without values
        return None
    native = types.unliteral(value)
    literal = value.literal_value if isinstance(value, types.IntegerLiteral) else 0
    kind = weak_type(native, literal, literal, line.literal_value)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.cast(builder, args[0], sig.args[0], native)

    return kind(value, line), make


@intrinsic(prefer_literal=True)
def oa__strong(typing: Any, value: Any) -> Any:
    """Return a value as it is; a weak number becomes an int64, a float64 or a complex128."""
    native = getattr(value, "native", value)
    return native(value), lambda context, builder, sig, args: context.cast(builder, args[0], sig.args[0], native)


def native_of(operand: Any) -> Any:
    """Return the type of a value, also of a literal or a weak number."""
    return types.unliteral(getattr(operand, "native", operand))


def shown(operand: Any) -> str:
    """Return a value's type for messages, or the value of a literal."""
    return str(operand.literal_value if isinstance(operand, types.IntegerLiteral) else native_of(operand))


def check_range(construct: str, value: Any, other: Any) -> None:
    """Refuse a weak literal that is not in the range in which it is combined with another integer."""
    strong = native_of(other)
    literals = [value.literal_value] if isinstance(value, types.IntegerLiteral) else []
    if isinstance(value, WeakType) and not isinstance(other, WeakType):
        literals = [value.least, value.most]
    for literal in literals if isinstance(strong, types.Integer) else []:
        if lacks(strong, literal):
            raise range_error(f"{construct}: ", literal, strong)


def check_ranges(construct: str, a: Any, b: Any, weak: Any) -> None:
    """Refuse a weak literal among two operands that is not in the range in which they are combined."""
    flags = weak.literal_value if isinstance(weak, types.IntegerLiteral) else 0
    if flags == 1 or isinstance(a, WeakType):
        check_range(construct, a, b)
    if flags == 2 or isinstance(b, WeakType):
        check_range(construct, b, a)


def both(a: Any, b: Any, weak: Any) -> tuple[Any, Any]:
    """Return numba's types of two numbers (None for other values), and the type that combines them.

    weak: 1 if only a is weak, 2 if only b is weak, 3 if both are weak.
    """
    natives = [native_of(operand) for operand in (a, b)]
    if not all(isinstance(native, (types.Number, types.Boolean)) for native in natives):
        return None, None
    if not isinstance(weak, types.IntegerLiteral):  # numba also tries types without values
        return None, None
    weakly = [isinstance(operand, WeakType) or bool(weak.literal_value & 1 << i) for i, operand in enumerate((a, b))]
    return natives, combined(natives[0], weakly[0], natives[1], weakly[1])


@intrinsic(prefer_literal=True)
def oa__like(typing: Any, value: Any, other: Any, whole: Any) -> Any:
    """Return a weak number in the type that combines it with another value.

    whole: 1 if integers are combined as integers, 0 if each becomes a float64.
    """
    if not isinstance(whole, types.IntegerLiteral):  # numba also tries types without values
        return None
    natives = [native_of(operand) for operand in (value, other)]
    are_numbers = all(isinstance(native, (types.Number, types.Boolean)) for native in natives)
    kind = combined(natives[0], True, natives[1], isinstance(other, WeakType)) if are_numbers else None
    kind = kind or natives[0]
    if isinstance(kind, types.Integer):
        if whole.literal_value:
            check_range(f"{shown(value)} and {shown(other)}", value, other)
        else:
            kind = natives[0]
    signed = kind(value, other, whole)
    return signed, lambda context, builder, sig, args: context.cast(builder, args[0], sig.args[0], kind)


def _combine(operation: Any, contracted: bool = False) -> Any:
    """Return the rule of an operation. `contracted`: whether a product and a sum may become one operation."""

    def rule(typing: Any, a: Any, b: Any, weak: Any) -> Any:
        natives, kind = both(a, b, weak)
        if natives is None and isinstance(weak, types.IntegerLiteral) and operation in _COMPARISONS:  # of tuples
            natives = [a, b]
        if natives is None:
            return None
        if operation not in _COMPARISONS:
            check_ranges(f"{operation.__name__.rstrip('_')}({shown(a)}, {shown(b)})", a, b, weak)
        elif kind == types.uint64:  # -1 is less than each uint64
            kind = None
        if kind is None and operation not in _COMPARISONS:
            kind = computed_in(operation, *natives)
        chosen = typing.resolve_function_type(operation, (kind, kind) if kind is not None else tuple(natives), {})

        def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            values = [context.cast(builder, value, source, target)
                      for value, source, target in zip(args, sig.args, chosen.args, strict=False)]  # fmt: skip
            if operation is operator.truediv and isinstance(chosen.return_type, types.Complex):
                return complex_quotient(context, builder, chosen.return_type, *values)
            if isinstance(chosen.return_type, types.Integer) and operation in _WRAPPING:  # numba's may not wrap
                whole = [context.cast(builder, value, target, chosen.return_type)
                         for value, target in zip(values, chosen.args, strict=False)]  # fmt: skip
                return getattr(builder, operation.__name__)(*whole)
            if operation in _COMPARISONS and is_of_both_signs(natives):
                wide = [context.cast(builder, value, source, types.int64 if native.signed else types.uint64)
                        for value, source, native in zip(args, sig.args, natives, strict=False)]  # fmt: skip
                return compared(builder, operation, wide, natives[0].signed)
            if operation in _SHIFTS:
                return shifted(context, builder, operation, chosen, *values)
            value = context.get_function(operation, chosen)(builder, values)
            if contracted and getattr(value, "opname", "") in _CONTRACTED:
                value.flags.append("contract")
            if operation is operator.floordiv and getattr(chosen.return_type, "signed", False):
                by_minus_one = builder.icmp_signed("==", values[1], ir.Constant(values[1].type, -1))
                value = builder.select(by_minus_one, builder.neg(values[0]), value)  # also for the least integer
            return value

        return None if chosen is None else (chosen.return_type(a, b, weak), make)

    rule.__name__ = f"oa__binary_{operation.__name__.rstrip('_')}"
    return intrinsic(prefer_literal=True)(rule)


def is_of_both_signs(kinds: Any) -> bool:
    """Return whether two types are a uint64 and a signed integer, which numba compares as float64."""
    return types.uint64 in kinds and any(isinstance(kind, types.Integer) and kind.signed for kind in kinds)


def is_small_unsigned(kind: Any) -> bool:
    """Return whether a type is an unsigned integer of at most 32 bits."""
    return isinstance(kind, types.Integer) and not kind.signed and kind.bitwidth <= 32


def computed_in(operation: Any, a: Any, b: Any) -> Any:
    """Return the type in which an operation of unsigned integers is computed; None stands for numba's own type.

    numba has a uint64 for unsigned integers, in which 3 - 5 is 1.8e19. Here all but a uint64 are an int64, which has
    each difference of numbers of at most 32 bits. Only the product of two uint32 may need the 64th bit.
    """
    if operation in _SHIFTS:
        return types.int64 if is_small_unsigned(a) and b != types.uint64 else None
    if not is_small_unsigned(a) or not is_small_unsigned(b):
        return None
    return types.uint64 if operation is operator.mul and a == b == types.uint32 else types.int64


def compared(builder: Any, operation: Any, values: Any, first_is_signed: bool) -> Any:
    """Return the comparison of an int64 and a uint64; the first or the second number is signed."""
    sign = {operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.le: "<=", operator.gt: ">"}
    signed = values[0 if first_is_signed else 1]
    negative = builder.icmp_signed("<", signed, ir.Constant(signed.type, 0))
    below = operation(-1, 0) if first_is_signed else operation(0, -1)
    bits = builder.icmp_unsigned(sign.get(operation, ">="), *values)
    return builder.select(negative, ir.Constant(bits.type, int(below)), bits)


def complex_quotient(context: Any, builder: Any, kind: Any, a: Any, b: Any) -> Any:
    """Return a / b by NumPy's method for complex numbers, which divides by the larger part of b."""
    above, below = (context.make_complex(builder, kind, value) for value in (a, b))
    element = above.real.type
    sizes = [builder.call(builder.module.declare_intrinsic("llvm.fabs", [element]), [part])
             for part in (below.real, below.imag)]  # fmt: skip
    by_real = builder.fcmp_ordered(">=", *sizes)
    larger = builder.select(by_real, below.real, below.imag)
    other = builder.select(by_real, below.imag, below.real)
    first = builder.select(by_real, above.real, above.imag)
    second = builder.select(by_real, above.imag, above.real)
    ratio = builder.fdiv(other, larger)
    scale = builder.fdiv(ir.Constant(element, 1.0), builder.fadd(larger, builder.fmul(other, ratio)))
    real = builder.fadd(first, builder.fmul(second, ratio))
    product = builder.fmul(first, ratio)
    imag = builder.select(by_real, builder.fsub(second, product), builder.fsub(product, second))
    zero = ir.Constant(element, 0.0)
    by_zero = builder.and_(*(builder.fcmp_ordered("==", size, zero) for size in sizes))
    quotient = context.make_complex(builder, kind)
    quotient.real = builder.select(by_zero, builder.fdiv(above.real, sizes[0]), builder.fmul(real, scale))
    quotient.imag = builder.select(by_zero, builder.fdiv(above.imag, sizes[0]), builder.fmul(imag, scale))
    return quotient._getvalue()


def shifted(context: Any, builder: Any, operation: Any, chosen: Any, value: Any, count: Any) -> Any:
    """Return a shifted number.

    As in NumPy, a shift by less than 0, or by at least the number's width, removes all of its bits.

    The number is shifted twice, by half of the count each time. A single shift with a choice of 0 for large counts
    would be compiled to an instruction of NVIDIA GPUs that reads only the low 32 bits of the count.
    """
    width = ir.Constant(count.type, count.type.width)
    count = builder.select(builder.icmp_unsigned("<=", count, width), count, width)
    half = builder.lshr(count, ir.Constant(count.type, 1))
    function = context.get_function(operation, chosen)
    return function(builder, (function(builder, (value, half)), builder.sub(count, half)))


_SHIFTS: Final = (operator.lshift, operator.rshift)
_WRAPPING: Final = (operator.add, operator.sub, operator.mul)
_CONTRACTED: Final = ("fadd", "fsub", "fmul")
_COMPARISONS: Final = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
oa__binary_add, oa__binary_sub, oa__binary_mul, oa__binary_truediv, oa__binary_floordiv, oa__binary_mod = map(
    _combine, (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod)
)
CONTRACTED: Final = {  #: rules in place of others, for kernels with fma=True
    f"oa__binary_{operation.__name__}": _combine(operation, True)
    for operation in (operator.add, operator.sub, operator.mul)
}
oa__binary_lt, oa__binary_le, oa__binary_gt, oa__binary_ge, oa__binary_eq, oa__binary_ne = map(_combine, _COMPARISONS)
oa__binary_lshift, oa__binary_rshift = map(_combine, _SHIFTS)
oa__binary_and, oa__binary_or, oa__binary_xor = map(_combine, (operator.and_, operator.or_, operator.xor))


def _choose(name: str, operation: Any) -> Any:
    def rule(typing: Any, a: Any, b: Any, weak: Any) -> Any:
        """Return b if the comparison holds for b and a, else a, as in Python's min and max."""
        natives, kind = both(a, b, weak)
        check_ranges(f"{name.removeprefix('oa__binary_')}({shown(a)}, {shown(b)})", a, b, weak)
        kind = kind or (natives and typing.unify_types(*natives))
        chosen = kind and typing.resolve_function_type(operation, (kind, kind), {})

        def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            first, second = (context.cast(builder, args[i], sig.args[i], kind) for i in (0, 1))
            values = [context.cast(builder, value, kind, target)
                      for value, target in zip((second, first), chosen.args, strict=True)]  # fmt: skip
            return builder.select(context.get_function(operation, chosen)(builder, values), second, first)

        return (kind(a, b, weak), make) if chosen else None

    rule.__name__ = name
    return intrinsic(prefer_literal=True)(rule)


oa__binary_min, oa__binary_max = _choose("oa__binary_min", operator.lt), _choose("oa__binary_max", operator.gt)


def _unary(operation: Any) -> Any:
    def rule(typing: Any, value: Any) -> Any:
        """Return -x, +x or ~x, which has the type of x if x is an integer, as in NumPy."""
        native = native_of(value)
        is_whole = isinstance(native, types.Integer)
        chosen: Any = None if is_whole else typing.resolve_function_type(operation, (native,), {})
        result = native if is_whole else chosen and chosen.return_type

        def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            raw = context.cast(builder, args[0], sig.args[0], native)
            if is_whole:  # numba's is an int64 that is computed in the width of x
                return {operator.neg: builder.neg, operator.invert: builder.not_}.get(operation, lambda x: x)(raw)
            raw = context.cast(builder, raw, native, chosen.args[0])
            return context.get_function(operation, chosen)(builder, [raw])

        return (result(value), make) if result else None

    rule.__name__ = f"oa__{operation.__name__.rstrip('_')}"
    return intrinsic(prefer_literal=True)(rule)


oa__neg, oa__pos, oa__invert = map(_unary, (operator.neg, operator.pos, operator.invert))


@intrinsic(prefer_literal=True)
def oa__products(typing: Any, value: Any, exponent: Any) -> Any:
    """Return a power by a whole number from 0 to 16, as products. Integers have 64 bits, as in other operations."""
    native = native_of(value)
    if not isinstance(native, (types.Number, types.Boolean)) or not isinstance(exponent, types.IntegerLiteral):
        return None
    is_whole = isinstance(native, (types.Integer, types.Boolean))
    kind = native if not is_whole else types.uint64 if native in (types.uint32, types.uint64) else types.int64
    product = typing.resolve_function_type(operator.mul, (kind, kind), {})

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        def multiply(builder: Any, pair: tuple[Any, Any]) -> Any:
            if is_whole:  # numba's may not wrap
                return builder.mul(*pair)
            return context.get_function(operator.mul, product)(builder, pair)

        square = context.cast(builder, args[0], sig.args[0], kind)
        power, rest = None, exponent.literal_value
        while rest:
            if rest & 1:
                power = square if power is None else multiply(builder, (power, square))
            rest >>= 1
            square = multiply(builder, (square, square)) if rest else square
        return context.get_constant_generic(builder, kind, 1) if power is None else power

    return kind(value, exponent), make


@intrinsic
def oa__real(typing: Any, value: Any, target: Any) -> Any:
    """Return a number unchanged. Refuse complex numbers: they have no order, and are no numbers of a real target."""
    native = types.unliteral(getattr(value, "native", value))
    if not isinstance(native, (types.Integer, types.Float, types.Boolean)):
        to = "" if target is types.none else getattr(target, "instance_type", target)
        fault = f"{native} does not become {to}" if to else f"a function of real numbers gets {native}"
        remedy = "take .real, .imag or abs(...) of it" if isinstance(native, types.Complex) else "pass a number"
        raise errors.TypingError(f"oa__: {fault}: {remedy}")
    return native(value, target), lambda context, builder, sig, args: context.cast(
        builder, args[0], sig.args[0], native
    )


@intrinsic
def oa__floating(typing: Any, value: Any) -> Any:
    """Return a number unchanged if it is not an integer. Refuse integers, as NumPy does."""
    native = types.unliteral(getattr(value, "native", value))
    if isinstance(native, (types.Integer, types.Boolean)):
        raise errors.TypingError(f"oa__: {native} to a negative power: write 1 / x, or np.float64(x) ** -1")
    return native(value), lambda context, builder, sig, args: context.cast(builder, args[0], sig.args[0], native)


@intrinsic(prefer_literal=True)
def oa__count(typing: Any, value: Any) -> Any:
    """Return a number of a range unchanged. Refuse numbers that are not whole, as Python does."""
    native = native_of(value)
    if not isinstance(native, (types.Integer, types.Boolean)):
        raise errors.TypingError(f"oa__: a range of {native}: its numbers are whole: write int(...)")
    return native(value), lambda context, builder, sig, args: context.cast(builder, args[0], sig.args[0], native)


@intrinsic(prefer_literal=True)
def oa__wide(typing: Any, value: Any) -> Any:
    """Return an unsigned integer of at most 32 bits as an int64, and another value unchanged; numba's is a uint64."""
    kind = types.int64 if is_small_unsigned(native_of(value)) else value
    return kind(value), lambda context, builder, sig, args: context.cast(builder, args[0], sig.args[0], kind)


@intrinsic
def oa__whole(typing: Any, value: Any) -> Any:
    """Return an integer or a bool unchanged.

    Refuse other numbers, because a conversion would cut off their fractions.
    """
    native = types.unliteral(getattr(value, "native", value))
    if not isinstance(native, (types.Integer, types.Boolean)):
        raise errors.TypingError(
            f"oa__: the formula's value is {native}, and the arrays are integers: pass dtype=np.{native} to reduce, or "
            "a dtype of integers to cut it off"
        )
    return native(value), lambda context, builder, sig, args: context.cast(builder, args[0], sig.args[0], native)


# -- functions that every target has itself ----------------------------------------------------------------------------


def _rule(name: str, count: int, result: Any) -> Any:
    """Return a rule for one number or two. Errors contain the rule's name."""
    rule = (lambda typing, a, b: result(a, b)) if count == 2 else (lambda typing, a: result(a))
    rule.__name__ = name
    return intrinsic(rule)


def _of_target(name: str, count: int = 1) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = args[0].type
        function = builder.module.declare_intrinsic(f"llvm.{name}", [kind], ir.FunctionType(kind, [kind] * count))
        return builder.call(function, args)

    def result(*arguments: Any) -> Any:
        if not all(isinstance(argument, (types.Float, types.Integer, types.Boolean)) for argument in arguments):
            return None
        kind = types.float32 if all(argument == types.float32 for argument in arguments) else types.float64
        return signature(kind, *[kind] * count), make

    return result


def _rounded(name: str) -> Any:
    of_floats = _of_target(name)

    def result(value: Any) -> Any:
        if isinstance(value, (types.Integer, types.Boolean)):
            return signature(value, value), lambda context, builder, sig, args: args[0]
        return of_floats(value)

    return result


oa__sqrt, oa__fabs, oa__rint = (_rule(name, 1, _of_target(name)) for name in ("sqrt", "fabs", "rint"))
oa__floor, oa__ceil, oa__trunc = (_rule(name, 1, _rounded(name)) for name in ("floor", "ceil", "trunc"))
oa__copysign = _rule("copysign", 2, _of_target("copysign", 2))


def _test(name: str, holds: Any) -> Any:
    """Return a rule for a test of a number: whether it is NaN, infinite or finite."""

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = sig.args[0]
        if not isinstance(kind, (types.Float, types.Complex)):
            return ir.Constant(ir.IntType(1), int(name == "isfinite"))
        whole = context.make_complex(builder, kind, args[0]) if isinstance(kind, types.Complex) else None
        parts = [args[0]] if whole is None else [whole.real, whole.imag]
        sizes = [builder.call(builder.module.declare_intrinsic("llvm.fabs", [part.type]), [part]) for part in parts]
        tests = [holds(builder, size, ir.Constant(size.type, float("inf"))) for size in sizes]
        return reduce(builder.and_ if name == "isfinite" else builder.or_, tests)

    def result(value: Any) -> Any:
        return (types.boolean(value), make) if isinstance(value, (types.Number, types.Boolean)) else None

    return _rule(name, 1, result)


oa__isnan = _test("isnan", lambda builder, size, end: builder.fcmp_unordered("uno", size, size))
oa__isinf = _test("isinf", lambda builder, size, end: builder.fcmp_ordered("==", size, end))
oa__isfinite = _test("isfinite", lambda builder, size, end: builder.fcmp_ordered("<", size, end))


# -- elementary functions ----------------------------------------------------------------------------------------------


_POWER_OF_INTEGERS: Final = (
    "oa__: a power of integers: use a whole number of at most 16 as the exponent, 1 << n for a power of 2, or "
    "np.float64(x) ** n"
)


def _elementary(name: str, count: int, takes_integers: bool = True) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.call(elementary.function_of(builder.module, name, args[0].type), args)

    def result(*arguments: Any) -> Any:
        if not all(isinstance(argument, (types.Float, types.Integer, types.Boolean)) for argument in arguments):
            return None
        if not takes_integers and not any(isinstance(argument, types.Float) for argument in arguments):
            raise errors.TypingError(_POWER_OF_INTEGERS)
        kind = types.float32 if all(argument == types.float32 for argument in arguments) else types.float64
        return signature(kind, *[kind] * count), make

    return _rule(name, count, result)


for _name, (_, _count) in elementary.ELEMENTARY.items():
    globals()[_name] = _elementary(_name, _count)
oa__power = _elementary("oa__pow", 2, takes_integers=False)


@intrinsic(prefer_literal=True)
def oa__binary_pow(typing: Any, a: Any, b: Any, weak: Any) -> Any:
    natives, kind = both(a, b, weak)
    if natives is not None and (kind is None or isinstance(kind, types.Integer)):
        raise errors.TypingError(_POWER_OF_INTEGERS)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        values = [context.cast(builder, args[i], sig.args[i], kind) for i in (0, 1)]
        return builder.call(elementary.function_of(builder.module, "oa__pow", values[0].type), values)

    return (kind(a, b, weak), make) if isinstance(kind, types.Float) else None


@intrinsic
def oa__abs(typing: Any, value: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind, raw = sig.args[0], args[0]
        if isinstance(kind, types.Complex):
            number = context.make_complex(builder, kind, raw)
            parts = [number.real, number.imag]
            return builder.call(elementary.function_of(builder.module, "oa__hypot", parts[0].type), parts)
        if isinstance(kind, types.Float):
            return builder.call(builder.module.declare_intrinsic("llvm.fabs", [raw.type]), args)
        if not getattr(kind, "signed", False):
            return raw
        return builder.select(builder.icmp_signed("<", raw, ir.Constant(raw.type, 0)), builder.neg(raw), raw)

    if isinstance(value, types.Complex):
        return value.underlying_float(value), make
    return (value(value), make) if isinstance(value, (types.Number, types.Boolean)) else None
