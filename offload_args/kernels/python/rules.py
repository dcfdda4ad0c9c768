"""What numba learns for kernels: the types of arrays and of the thread, and the functions that rewritten trees call.

Importing this imports numba. An array is its address, two extents, two steps in elements, and the address of a watch
(watch.py), which a kernel that checks its accesses has; others have null. `here` is the thread: its numbers, which a
target's entry fills in.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np
from numba.core import cgutils, errors
from numba.core import types as numba_types
from numba.core.datamodel import models, register_default
from numba.core.imputils import RefType, iternext_impl, lower_builtin, lower_cast
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic
from numba.np.numpy_support import as_dtype, from_dtype

from ..partitions import Partition
from . import elementary

types: Any = numba_types  # a module that checkers of types read in part
I64: Final = ir.IntType(64)
I1: Final = ir.IntType(1)
HERE: Final = (
    *(f"{prefix}_{axis}" for prefix in ("index", "thread", "block", "threads", "blocks") for axis in "xyz"),
    "below", "on_cpu", "watch",
)  # fmt: skip
ARRAY: Final = ("data", "rows", "columns", "down", "across", "watch")


class HereType(types.Type):
    """The thread. is_gpu: neighbours get neighbouring elements."""

    def __init__(self, is_gpu: bool) -> None:
        self.is_gpu = is_gpu
        super().__init__(f"Here({is_gpu})")


class ArrayType(types.Type):
    """An array among the parameters."""

    def __init__(
        self, dtype: np.dtype[Any], number: int, rank: int, partition: Partition | None, checked: bool
    ) -> None:
        self.element = dtype
        self.stored = stored_type(dtype)
        self.value = value_type(dtype)
        self.number, self.rank, self.partition, self.checked = number, rank, partition, checked
        super().__init__(f"Array({dtype}, {number}, {rank}, {partition}, {checked})")


class RunType(types.IterableType):
    """The numbers first, first + step, ..., below end."""

    def __init__(self) -> None:
        super().__init__("Run")

    @property
    def iterator_type(self) -> Any:
        return RUN_ITERATOR


class RunIterator(types.SimpleIteratorType):
    def __init__(self) -> None:
        super().__init__("RunIterator", types.int64)


class OneType(types.IterableType):
    """One number, or none."""

    def __init__(self) -> None:
        super().__init__("One")

    @property
    def iterator_type(self) -> Any:
        return ONE_ITERATOR


class OneIterator(types.SimpleIteratorType):
    def __init__(self) -> None:
        super().__init__("OneIterator", types.int64)


ONE: Final = OneType()
ONE_ITERATOR: Final = OneIterator()
RUN: Final = RunType()
RUN_ITERATOR: Final = RunIterator()


class TokenType(ir.Type):
    """LLVM's type of values that name a place in the code."""

    def _to_string(self) -> str:
        return "token"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenType)

    def __hash__(self) -> int:
        return hash(TokenType)


TOKEN: Final = TokenType()
NO_TOKEN: Final = ir.FormattedConstant(TOKEN, "none")


def is_small_float(dtype: np.dtype[Any]) -> bool:
    """Tell whether elements are computed with as float32, and rounded when they are stored."""
    return dtype.name in ("float16", "bfloat16")


def value_type(dtype: np.dtype[Any]) -> Any:
    """Return the type with which a kernel computes."""
    return types.float32 if is_small_float(dtype) else from_dtype(readable(dtype))


def is_readable(dtype: np.dtype[Any]) -> bool:
    """Tell whether kernels read a field of that dtype."""
    return dtype.names is not None or (dtype.base.kind in "biufc" and dtype.base != np.float16)


def readable(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a struct with the fields that kernels read, at their places."""
    if dtype.names is None or dtype.fields is None:
        return dtype
    fields = {name: place for name, place in dtype.fields.items() if is_readable(place[0])}
    return np.dtype({
        "names": list(fields), "formats": [readable(place[0]) for place in fields.values()],
        "offsets": [place[1] for place in fields.values()], "itemsize": dtype.itemsize, "aligned": True,
    })  # fmt: skip


def stored_type(dtype: np.dtype[Any]) -> Any:
    return types.uint16 if is_small_float(dtype) else from_dtype(dtype)


@register_default(HereType)
class HereModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        named = {"below": types.boolean, "on_cpu": types.boolean, "watch": types.voidptr}
        super().__init__(manager, kind, [(name, named.get(name, types.int64)) for name in HERE])


@register_default(ArrayType)
class ArrayModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        named = {"data": types.CPointer(kind.stored), "watch": types.voidptr}
        super().__init__(manager, kind, [(name, named.get(name, types.int64)) for name in ARRAY])


@register_default(RunType)
class RunModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [(name, types.int64) for name in ("first", "end", "step")])


@register_default(RunIterator)
class RunIteratorModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        place = types.EphemeralPointer(types.int64)
        super().__init__(manager, kind, [("place", place), ("end", types.int64), ("step", types.int64)])


@register_default(OneType)
class OneModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("at", types.int64), ("mine", types.boolean)])


@register_default(OneIterator)
class OneIteratorModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("left", types.EphemeralPointer(types.boolean)), ("at", types.int64)])


class WeakType(types.Type):
    """A number that takes the type of the value that it is joined with, in a variable or by if and else."""

    def __init__(self, native: Any) -> None:
        self.native = native
        super().__init__(f"Weak({native})")

    def unify(self, typing: Any, other: Any) -> Any:
        if isinstance(other, WeakType):
            return WEAK.get(typing.unify_pairs(self.native, other.native))
        if isinstance(other, types.Boolean) or (isinstance(other, types.Integer) and other.bitwidth < 64):
            return self.native
        if isinstance(other, types.Number):
            return combined(self.native, True, types.unliteral(other), False) or types.unliteral(other)
        return None


WEAK: Final = {native: WeakType(native) for native in (types.int64, types.float64, types.complex128)}


@register_default(WeakType)
class WeakModel(models.ProxyModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind)
        self._proxied_model = manager[kind.native]


@lower_cast(WeakType, types.Any)
def _(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    return context.cast(builder, value, source.native, getattr(target, "native", target))


@intrinsic(prefer_literal=True)
def oa__weak(typing: Any, value: Any) -> Any:
    """Return a number that takes the type of the value that it is joined with."""
    native = types.unliteral(value)
    kind = WEAK.get(native, native)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return context.cast(builder, args[0], sig.args[0], native)

    return kind(value), make


def combined(a: Any, a_is_weak: bool, b: Any, b_is_weak: bool) -> Any:
    """Return the type in which NumPy 2 combines two numbers; None: numba's own.

    Whole numbers among themselves are numba's: it computes in 64 bits. One that is weak becomes a uint64 with another.
    """
    exact = (types.Integer, types.Boolean)
    if a_is_weak and b_is_weak:
        return None
    if isinstance(a, exact) and isinstance(b, exact):
        is_unsigned = (b if a_is_weak else a) == types.uint64 and (a_is_weak or b_is_weak)
        return types.uint64 if is_unsigned else None
    if not a_is_weak and not b_is_weak:
        return from_dtype(np.result_type(as_dtype(a), as_dtype(b)))
    weak, strong = (a, b) if a_is_weak else (b, a)
    if isinstance(weak, types.Complex) and not isinstance(strong, types.Complex):
        return types.complex64 if strong == types.float32 else types.complex128
    return weak if isinstance(strong, exact) else strong


def both(a: Any, b: Any, weak: Any) -> tuple[Any, Any]:
    """Return numba's types of two numbers, None if they are none, and the type in which they are combined.

    weak: 1 if a is, 2 if b is, 3 if both are.
    """
    natives = [types.unliteral(getattr(operand, "native", operand)) for operand in (a, b)]
    if not all(isinstance(native, (types.Number, types.Boolean)) for native in natives):
        return None, None
    if not isinstance(weak, types.IntegerLiteral):  # numba tries types without values, too
        return None, None
    weakly = [isinstance(operand, WeakType) or bool(weak.literal_value & 1 << i) for i, operand in enumerate((a, b))]
    return natives, combined(natives[0], weakly[0], natives[1], weakly[1])


def _combine(operation: Any) -> Any:
    def rule(typing: Any, a: Any, b: Any, weak: Any) -> Any:
        natives, kind = both(a, b, weak)
        if natives is None:
            return None
        if kind == types.uint64 and operation in _COMPARISONS:  # -1 is less than each of them
            kind = None
        chosen = typing.resolve_function_type(operation, (kind, kind) if kind is not None else tuple(natives), {})

        def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            values = [context.cast(builder, value, source, target)
                      for value, source, target in zip(args, sig.args, chosen.args, strict=False)]  # fmt: skip
            if operation is operator.truediv and isinstance(chosen.return_type, types.Complex):
                return complex_quotient(context, builder, chosen.return_type, *values)
            if operation in (operator.lshift, operator.rshift):
                return shifted(context, builder, operation, chosen, *values)
            value = context.get_function(operation, chosen)(builder, values)
            if operation is operator.floordiv and getattr(chosen.return_type, "signed", False):
                by_minus_one = builder.icmp_signed("==", values[1], ir.Constant(values[1].type, -1))
                value = builder.select(by_minus_one, builder.neg(values[0]), value)  # of the least one, too
            return value

        return None if chosen is None else (chosen.return_type(a, b, weak), make)

    rule.__name__ = f"oa__binary_{operation.__name__}"
    return intrinsic(prefer_literal=True)(rule)


def complex_quotient(context: Any, builder: Any, kind: Any, a: Any, b: Any) -> Any:
    """Return a / b as NumPy divides complex numbers: by the part of b that is larger."""
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
    """Return a shifted number; by its width and more, as by less than 0, nothing of it is left, as in NumPy.

    It is shifted twice, by halves: a choice of 0 for large counts becomes an instruction of NVIDIA's that clamps the
    low 32 bits of the count.
    """
    width = ir.Constant(count.type, count.type.width)
    count = builder.select(builder.icmp_unsigned("<=", count, width), count, width)
    half = builder.lshr(count, ir.Constant(count.type, 1))
    function = context.get_function(operation, chosen)
    return function(builder, (function(builder, (value, half)), builder.sub(count, half)))


_COMPARISONS: Final = (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne)
oa__binary_add, oa__binary_sub, oa__binary_mul, oa__binary_truediv, oa__binary_floordiv, oa__binary_mod = map(
    _combine, (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod)
)
oa__binary_lt, oa__binary_le, oa__binary_gt, oa__binary_ge, oa__binary_eq, oa__binary_ne = map(_combine, _COMPARISONS)
oa__binary_lshift, oa__binary_rshift = map(_combine, (operator.lshift, operator.rshift))


def _choose(name: str, operation: Any) -> Any:
    def rule(typing: Any, a: Any, b: Any, weak: Any) -> Any:
        """Return b if the operation tells so of b and a, else a, as Python's min and max do."""
        natives, kind = both(a, b, weak)
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


@intrinsic
def oa__floating(typing: Any, value: Any) -> Any:
    """Return a number that is not an integer. Refuse integers, as NumPy does."""
    native = types.unliteral(getattr(value, "native", value))
    if isinstance(native, (types.Integer, types.Boolean)):
        raise errors.TypingError(f"oa__: {native} to a negative power: write 1 / x, or np.float64(x) ** -1")
    return native(value), lambda context, builder, sig, args: context.cast(builder, args[0], sig.args[0], native)


@intrinsic
def oa__whole(typing: Any, value: Any) -> Any:
    """Return an integer or a bool. Refuse others, which a conversion would cut off."""
    native = types.unliteral(getattr(value, "native", value))
    if not isinstance(native, (types.Integer, types.Boolean)):
        raise errors.TypingError(
            f"oa__: the formula's value is {native}, and the arrays are integers: pass dtype=np.{native} to reduce, or "
            "a dtype of integers to cut it off"
        )
    return native(value), lambda context, builder, sig, args: context.cast(builder, args[0], sig.args[0], native)


def number(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


@lower_builtin("getiter", RunType)
def _(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    run = cgutils.create_struct_proxy(RUN)(context, builder, args[0])
    iterator = cgutils.create_struct_proxy(RUN_ITERATOR)(context, builder)
    place = cgutils.alloca_once(builder, I64)
    builder.store(run.first, place)
    iterator.place, iterator.end, iterator.step = place, run.end, run.step
    return iterator._getvalue()


@lower_builtin("iternext", RunIterator)
@iternext_impl(RefType.UNTRACKED)
def _(context: Any, builder: Any, sig: Any, args: Any, result: Any) -> None:
    run = cgutils.create_struct_proxy(RUN_ITERATOR)(context, builder, args[0])
    now = builder.load(run.place)
    more = builder.icmp_signed("<", now, run.end)
    result.set_valid(more)
    with builder.if_then(more):
        result.yield_(now)
        builder.store(builder.add(now, run.step, flags=["nsw"]), run.place)


@lower_builtin("getiter", OneType)
def _(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    single = cgutils.create_struct_proxy(ONE)(context, builder, args[0])
    iterator = cgutils.create_struct_proxy(ONE_ITERATOR)(context, builder)
    left = cgutils.alloca_once(builder, I1)
    builder.store(single.mine, left)
    iterator.left, iterator.at = builder.bitcast(left, iterator.left.type), single.at
    return iterator._getvalue()


@lower_builtin("iternext", OneIterator)
@iternext_impl(RefType.UNTRACKED)
def _(context: Any, builder: Any, sig: Any, args: Any, result: Any) -> None:
    iterator = cgutils.create_struct_proxy(ONE_ITERATOR)(context, builder, args[0])
    left = builder.bitcast(iterator.left, I1.as_pointer())
    mine = builder.load(left)
    result.set_valid(mine)
    result.yield_(iterator.at)
    builder.store(ir.Constant(I1, 0), left)


# -- elements ----------------------------------------------------------------------------------------------------------


def index_of(array: Any, index: Any) -> Any:
    """Return the type of an index that an array takes; None: it does not."""
    if isinstance(index, types.Integer):
        return types.int64
    if isinstance(index, types.BaseTuple) and len(index) == 2 and all(isinstance(x, types.Integer) for x in index):
        return types.UniTuple(types.int64, 2)
    return None


@infer_global(operator.getitem)
class GetElement(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        if len(args) == 2 and isinstance(args[0], ArrayType):
            index = index_of(*args)
            if index is not None:
                return signature(args[0].value, args[0], index)
        return None


@infer_global(operator.setitem)
class SetElement(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        if len(args) == 3 and isinstance(args[0], ArrayType):
            index = index_of(args[0], args[1])
            value, element = args[2], args[0].value
            fits = isinstance(value, (types.Number, types.Boolean)) and (
                not isinstance(value, types.Complex) or isinstance(element, types.Complex)
            )
            if index is not None and fits:
                return signature(types.none, args[0], index, element)
        return None


def place_of(context: Any, builder: Any, kind: ArrayType, array: Any, index: Any, checks: bool) -> Any:
    """Return the address of an element; of other memory if the index is out of bounds, and checks."""
    if isinstance(index.type, ir.ArrayType):
        row, column = builder.extract_value(index, 0), builder.extract_value(index, 1)
        offset = builder.add(builder.mul(row, array.down), builder.mul(column, array.across))
        inside = builder.and_(
            builder.icmp_unsigned("<", row, array.rows), builder.icmp_unsigned("<", column, array.columns)
        )
        position = builder.add(builder.mul(row, array.columns), column)
        size = builder.mul(array.rows, array.columns)
    else:
        offset = position = index
        size = array.rows
        inside = builder.icmp_unsigned("<", index, size)
    place = builder.gep(array.data, [offset])
    if not (checks and kind.checked):
        return place
    instead = cgutils.alloca_once_value(builder, place)
    with builder.if_then(builder.not_(inside), likely=False):
        kind_of = ir.FunctionType(cgutils.voidptr_t, [cgutils.voidptr_t, I64, I64, I64])
        report = cgutils.get_or_insert_function(builder.module, kind_of, "oa_report")
        other = builder.call(report, [array.watch, number(kind.number), position, size])
        builder.store(builder.bitcast(other, place.type), instead)
    return builder.load(instead)


def load(context: Any, builder: Any, kind: ArrayType, place: Any) -> Any:
    """Return the value of an element as kernels compute with it."""
    raw = builder.load(place)
    if kind.element.name == "float16":
        return builder.fpext(builder.bitcast(raw, ir.HalfType()), ir.FloatType())
    if kind.element.name == "bfloat16":
        bits = builder.shl(builder.zext(raw, ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(bits, ir.FloatType())
    return context.data_model_manager[kind.stored].from_data(builder, raw)


def store(context: Any, builder: Any, kind: ArrayType, value: Any, place: Any) -> None:
    if kind.element.name == "float16":
        value = builder.bitcast(builder.fptrunc(value, ir.HalfType()), ir.IntType(16))
    elif kind.element.name == "bfloat16":  # to the nearest, to even between two
        word = ir.IntType(32)
        bits = builder.bitcast(value, word)
        last = builder.and_(builder.lshr(bits, ir.Constant(word, 16)), ir.Constant(word, 1))
        rounded = builder.add(bits, builder.add(last, ir.Constant(word, 0x7FFF)))
        quiet = builder.or_(bits, ir.Constant(word, 0x400000))
        rounded = builder.select(builder.fcmp_unordered("uno", value, value), quiet, rounded)
        value = builder.trunc(builder.lshr(rounded, ir.Constant(word, 16)), ir.IntType(16))
    else:
        value = context.data_model_manager[kind.stored].as_data(builder, value)
    builder.store(value, place)


def array_of(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return cgutils.create_struct_proxy(kind)(context, builder, value)


@lower_builtin(operator.getitem, ArrayType, types.Any)
def _(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kind = sig.args[0]
    array = array_of(context, builder, kind, args[0])
    return load(context, builder, kind, place_of(context, builder, kind, array, args[1], kind.partition is None))


@lower_builtin(operator.setitem, ArrayType, types.Any, types.Any)
def _(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kind = sig.args[0]
    array = array_of(context, builder, kind, args[0])
    store(context, builder, kind, args[2], place_of(context, builder, kind, array, args[1], kind.partition is None))
    return context.get_dummy_value()


@intrinsic(prefer_literal=True)
def oa__size(typing: Any, array: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        proxy = array_of(context, builder, sig.args[0], args[0])
        return builder.mul(proxy.rows, proxy.columns) if sig.args[0].rank == 2 else proxy.rows

    return (types.int64(array), make) if isinstance(array, ArrayType) else None


@intrinsic(prefer_literal=True)
def oa__extent(typing: Any, array: Any, axis: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        proxy = array_of(context, builder, sig.args[0], args[0])
        return proxy.rows if axis.literal_value == 0 else proxy.columns

    known = isinstance(array, ArrayType) and isinstance(axis, types.IntegerLiteral)
    return (types.int64(array, axis), make) if known else None


@infer_global(len)
class Length(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        return signature(types.int64, args[0]) if isinstance(args[0], ArrayType) else None


@lower_builtin(len, ArrayType)
def _(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    proxy = array_of(context, builder, sig.args[0], args[0])
    return builder.mul(proxy.rows, proxy.columns) if sig.args[0].rank == 2 else proxy.rows


# -- the thread --------------------------------------------------------------------------------------------------------


def here_of(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return cgutils.create_struct_proxy(sig.args[0])(context, builder, args[0])


def _by_axis(prefix: str) -> Any:
    @intrinsic(prefer_literal=True)
    def rule(typing: Any, here: Any, axis: Any) -> Any:
        def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return getattr(here_of(context, builder, sig, args), f"{prefix}_{'xyz'[axis.literal_value]}")

        return types.int64(here, axis), make

    return rule


oa__here_index = _by_axis("index")
oa__here_thread_index = _by_axis("thread")
oa__here_block_index = _by_axis("block")
oa__here_threads = _by_axis("threads")
oa__here_blocks = _by_axis("blocks")


@intrinsic(prefer_literal=True)
def oa__here_size(typing: Any, here: Any, axis: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        thread, along = here_of(context, builder, sig, args), "xyz"[axis.literal_value]
        return builder.mul(getattr(thread, f"blocks_{along}"), getattr(thread, f"threads_{along}"))

    return types.int64(here, axis), make


def thread_in_block(builder: Any, here: Any) -> Any:
    rows = builder.add(builder.mul(here.thread_z, here.threads_y), here.thread_y)
    return builder.add(builder.mul(rows, here.threads_x), here.thread_x)


@intrinsic(prefer_literal=True)
def oa__here_thread(typing: Any, here: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return thread_in_block(builder, here_of(context, builder, sig, args))

    return types.int64(here), make


@intrinsic(prefer_literal=True)
def oa__assert(typing: Any, here: Any, test: Any, line: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        thread = here_of(context, builder, sig, args)
        failed = builder.and_(
            builder.not_(context.cast(builder, args[1], sig.args[1], types.boolean)),
            builder.icmp_unsigned("!=", thread.watch, ir.Constant(thread.watch.type, None)),
        )
        with builder.if_then(failed, likely=False):
            kind_of = ir.FunctionType(cgutils.voidptr_t, [cgutils.voidptr_t, I64, I64, I64])
            report = cgutils.get_or_insert_function(builder.module, kind_of, "oa_report")
            builder.call(report, [thread.watch, number(-3), number(line.literal_value), number(0)])
        return context.get_dummy_value()

    return types.none(here, test, line), make


WAITS: Final = 77  #: what the function returns, on the CPU, where its thread has come to a barrier


@intrinsic(prefer_literal=True)
def oa__barrier(typing: Any, here: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        is_gpu = sig.args[0].is_gpu
        kind = ir.FunctionType(ir.VoidType() if is_gpu else ir.IntType(8), [])
        wait = cgutils.get_or_insert_function(builder.module, kind, "oa_barrier")
        wait.attributes.add("convergent")
        came = builder.call(wait, [])
        if not is_gpu:
            with builder.if_then(builder.icmp_unsigned("!=", came, ir.Constant(came.type, 0)), likely=False):
                builder.ret(ir.Constant(ir.IntType(32), WAITS))
        return context.get_dummy_value()

    return types.none(here), make


# -- partitions: as kernel_partitions.h has them -----------------------------------------------------------------------


def on_x(builder: Any, here: Any) -> Any:
    """Tell whether the thread is the first one along y and z."""
    return builder.icmp_unsigned("==", builder.or_(here.index_y, here.index_z), number(0))


def all_of(builder: Any, *conditions: Any) -> Any:
    result = conditions[0]
    for condition in conditions[1:]:
        result = builder.and_(result, condition)
    return result


def less(builder: Any, a: Any, b: Any) -> Any:
    return builder.icmp_signed("<", a, b)


def smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(less(builder, a, b), a, b)


def run_of(context: Any, builder: Any, first: Any, end: Any, step: Any) -> Any:
    run = cgutils.create_struct_proxy(RUN)(context, builder)
    run.first, run.end, run.step = first, end, step
    return run._getvalue()


def one_of(context: Any, builder: Any, at: Any, mine: Any) -> Any:
    """Return one number, or none."""
    single = cgutils.create_struct_proxy(ONE)(context, builder)
    single.at, single.mine = at, mine
    return single._getvalue()


def before(builder: Any, here: Any, end: Any) -> Any:
    """Tell whether the thread's number along x is less; on the CPU the loop over threads may know it."""
    return builder.or_(here.below, less(builder, here.index_x, end))


def share(context: Any, builder: Any, is_gpu: bool, first: Any, end: Any, thread: Any, threads: Any) -> Any:
    """Return the thread's share of first..end - 1: every threads-th number on a GPU, a part of its own on the CPU."""
    if is_gpu:
        return run_of(context, builder, builder.add(first, thread), end, threads)
    size = builder.select(less(builder, first, end), builder.sub(end, first), number(0))
    each, more = builder.sdiv(size, threads), builder.srem(size, threads)
    begin = builder.add(builder.mul(thread, each), smaller(builder, thread, more))
    last = builder.add(begin, builder.add(each, builder.zext(less(builder, thread, more), I64)))
    alone = builder.icmp_unsigned("==", threads, number(1))
    begin, last = (
        builder.select(alone, number(0), begin),
        builder.select(alone, size, last),
    )
    return run_of(context, builder, builder.add(first, begin), builder.add(first, last), number(1))


@intrinsic(prefer_literal=True)
def oa__run(typing: Any, here: Any, array: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        thread, y = here_of(context, builder, sig, args), array_of(context, builder, sig.args[1], args[1])
        match type(sig.args[1].partition).__name__:
            case "Linear1D":
                mine = all_of(builder, before(builder, thread, y.rows), on_x(builder, thread))
                return one_of(context, builder, thread.index_x, mine)
            case "GridStride1D":
                end = builder.select(on_x(builder, thread), y.rows, number(0))
                threads = builder.mul(thread.blocks_x, thread.threads_x)
                return share(context, builder, sig.args[0].is_gpu, number(0), end, thread.index_x, threads)
        at = thread.block_x
        others = builder.or_(thread_in_block(builder, thread), builder.or_(thread.block_y, thread.block_z))
        first = builder.icmp_unsigned("==", others, number(0))
        return one_of(context, builder, at, all_of(builder, less(builder, at, y.rows), first))

    kind = ONE if type(array.partition).__name__ in ("Linear1D", "PerBlock") else RUN
    return kind(here, array), make


def lines_of(builder: Any, y: Any) -> tuple[Any, Any, Any]:
    """Return the numbers of lines in memory and of elements in each, and whether the matrix has Fortran order."""
    turned = less(builder, y.down, y.across)
    return builder.select(turned, y.columns, y.rows), builder.select(turned, y.rows, y.columns), turned


def box_of(builder: Any, here: Any, y: Any, partition: Any) -> tuple[Any, Any, Any, Any]:
    """Return the first row and column of a block's part, and how many there are."""
    rows, columns, _ = lines_of(builder, y)
    if type(partition).__name__ == "RowBlocks":
        row = builder.mul(number(partition.height), here.block_x)
        first = builder.icmp_unsigned("==", builder.or_(here.block_y, here.block_z), number(0))
        mine = all_of(builder, less(builder, row, rows), first)
        height = smaller(builder, number(partition.height), builder.sub(rows, row))
        return row, number(0), builder.select(mine, height, number(0)), columns
    row = builder.mul(number(partition.height), here.block_y)
    column = builder.mul(number(partition.width), here.block_x)
    first = builder.icmp_unsigned("==", here.block_z, number(0))
    mine = all_of(builder, less(builder, row, rows), less(builder, column, columns), first)
    height = smaller(builder, number(partition.height), builder.sub(rows, row))
    width = smaller(builder, number(partition.width), builder.sub(columns, column))
    return row, column, builder.select(mine, height, number(0)), builder.select(mine, width, number(0))


@intrinsic(prefer_literal=True)
def oa__box(typing: Any, here: Any, array: Any) -> Any:
    """Return the first row and column of the block's part of a matrix, and how many rows and columns it has."""
    four = types.UniTuple(types.int64, 4)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        thread, y = here_of(context, builder, sig, args), array_of(context, builder, sig.args[1], args[1])
        row, column, height, width = box_of(builder, thread, y, sig.args[1].partition)
        _, _, turned = lines_of(builder, y)
        pairs = ((row, column), (column, row), (height, width), (width, height))
        return context.make_tuple(builder, four, [builder.select(turned, b, a) for a, b in pairs])

    return four(here, array), make


@intrinsic(prefer_literal=True)
def oa__rows(typing: Any, here: Any, array: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        thread, y = here_of(context, builder, sig, args), array_of(context, builder, sig.args[1], args[1])
        rows, _, _ = lines_of(builder, y)
        partition = sig.args[1].partition
        match type(partition).__name__:
            case "Linear2D":
                first = builder.icmp_unsigned("==", thread.index_z, number(0))
                return one_of(
                    context, builder, thread.index_y, all_of(builder, less(builder, thread.index_y, rows), first)
                )
            case "Rows":
                mine = all_of(builder, less(builder, thread.index_x, rows), on_x(builder, thread))
                return one_of(context, builder, thread.index_x, mine)
        row, _, height, _ = box_of(builder, thread, y, partition)
        mine = builder.icmp_unsigned("==", thread.thread_z, number(0))
        end = builder.select(mine, builder.add(row, height), row)
        return share(context, builder, sig.args[0].is_gpu, row, end, thread.thread_y, thread.threads_y)

    kind = ONE if type(array.partition).__name__ in ("Linear2D", "Rows") else RUN
    return kind(here, array), make


@intrinsic(prefer_literal=True)
def oa__columns(typing: Any, here: Any, array: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        thread, y = here_of(context, builder, sig, args), array_of(context, builder, sig.args[1], args[1])
        _, columns, _ = lines_of(builder, y)
        partition = sig.args[1].partition
        match type(partition).__name__:
            case "Linear2D":
                return one_of(context, builder, thread.index_x, before(builder, thread, columns))
            case "Rows":
                return run_of(context, builder, number(0), columns, number(1))
        _, column, _, width = box_of(builder, thread, y, partition)
        end = builder.add(column, width)
        return share(context, builder, sig.args[0].is_gpu, column, end, thread.thread_x, thread.threads_x)

    kind = ONE if type(array.partition).__name__ in ("Linear2D",) else RUN
    return kind(here, array), make


@intrinsic(prefer_literal=True)
def oa__element(typing: Any, array: Any, row: Any, column: Any) -> Any:
    """Return the row and the column of an element by those that it has in memory."""
    pair = types.UniTuple(types.int64, 2)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _, _, turned = lines_of(builder, array_of(context, builder, sig.args[0], args[0]))
        row, column = args[1:]
        pair_of = (builder.select(turned, column, row), builder.select(turned, row, column))
        return context.make_tuple(builder, pair, pair_of)

    return pair(array, types.int64, types.int64), make


# -- atomic steps ------------------------------------------------------------------------------------------------------


def _atomic(step: str) -> Any:
    @intrinsic(prefer_literal=True)
    def rule(typing: Any, array: Any, index: Any, value: Any) -> Any:
        def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kind = sig.args[0]
            proxy = array_of(context, builder, kind, args[0])
            place = place_of(context, builder, kind, proxy, args[1], True)
            dtype = kind.element
            if dtype.kind == "f":
                names = {"add": "fadd", "min": "fmin", "max": "fmax"}
            elif dtype.kind == "u":
                names = {"add": "add", "min": "umin", "max": "umax"}
            else:
                names = {"add": "add", "min": "min", "max": "max"}
            return builder.atomic_rmw(names[step], place, args[2], "monotonic")

        kind = index_of(array, index)
        fits = isinstance(value, (types.Number, types.Boolean)) and not isinstance(value, types.Complex)
        return (array.value(array, kind, array.value), make) if kind is not None and fits else None

    return rule


oa__add, oa__min, oa__max = map(_atomic, ("add", "min", "max"))


# -- functions that every target has itself ----------------------------------------------------------------------------


def _rule(name: str, count: int, result: Any) -> Any:
    """Return a rule of a number or of two, which errors call by its name."""
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

    return _rule(name, count, result)


oa__sqrt, oa__fabs, oa__floor, oa__ceil, oa__trunc, oa__rint = map(
    _of_target, ("sqrt", "fabs", "floor", "ceil", "trunc", "rint")
)
oa__copysign = _of_target("copysign", 2)


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
    if natives is not None and kind is None:
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


RULES: Final = {name: value for name, value in list(globals().items()) if name.startswith("oa__")}
