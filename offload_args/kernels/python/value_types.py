"""The types of values in kernels, defined for numba: the thread, arrays, the numbers of loops, weak numbers.

Importing this module imports numba. An array consists of its address, two extents, two steps in elements, and the
address of a watch, which is null in a kernel without checks of its accesses. `here` consists of the numbers of the
thread, which a target's entry fills in.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import llvmlite.ir as ir
import numpy as np
from numba.core import cgutils, errors
from numba.core import types as numba_types
from numba.core.datamodel import models, register_default
from numba.core.imputils import RefType, iternext_impl, lower_builtin, lower_cast
from numba.np.numpy_support import as_dtype, from_dtype

from ..partitions import Partition

types: Any = numba_types  # type checkers can read only a part of this module
I64: Final = ir.IntType(64)
I1: Final = ir.IntType(1)
HERE: Final = (
    *(f"{prefix}_{axis}" for prefix in ("index", "thread", "block", "threads", "blocks") for axis in "xyz"),
    "below", "on_cpu", "watch",
)  # fmt: skip
ARRAY: Final = ("data", "rows", "columns", "down", "across", "watch")


class HereType(types.Type):
    """The thread. With `is_gpu`, neighbouring threads get neighbouring elements."""

    def __init__(self, is_gpu: bool) -> None:
        self.is_gpu = is_gpu
        super().__init__(f"Here({is_gpu})")


class ThreadType(HereType):
    """A thread of a block on the CPU: the place of the first thread's HERE, and the thread's numbers in the block."""

    def __init__(self) -> None:
        super().__init__(False)
        self.name = "Thread"


THREAD: Final = ThreadType()


class ArrayType(types.Type):
    """An array among the parameters, or one field of its structs. `pitch` is the number of bytes from a field to the
    same field of the next struct, or 0 if this is not a field."""

    def __init__(
        self, dtype: np.dtype[Any], number: int, rank: int, partition: Partition | None, checked: bool, pitch: int = 0
    ) -> None:
        self.element = dtype
        self.stored = stored_type(dtype)
        self.value = types.void if dtype.names is not None else value_type(dtype)  # a struct has only fields
        self.number, self.rank, self.partition, self.checked = number, rank, partition, checked
        self.pitch = pitch
        super().__init__(f"Array({dtype}, {number}, {rank}, {partition}, {checked}, {pitch})")


class RunType(types.IterableType):
    """The numbers first, first + step, and so on, below end."""

    def __init__(self) -> None:
        super().__init__("Run")

    @property
    def iterator_type(self) -> Any:
        return RUN_ITERATOR


class RunIterator(types.SimpleIteratorType):
    def __init__(self) -> None:
        super().__init__("RunIterator", types.int64)


class OneType(types.IterableType):
    """An iterable of one number, or of none."""

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
    """LLVM's type of tokens, which stand for places in the code."""

    def _to_string(self) -> str:
        return "token"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenType)

    def __hash__(self) -> int:
        return hash(TokenType)


TOKEN: Final = TokenType()
NO_TOKEN: Final = ir.FormattedConstant(TOKEN, "none")


def is_small_float(dtype: np.dtype[Any]) -> bool:
    """Return whether kernels compute with these elements in float32, and round them when they are stored."""
    return dtype.name in ("float16", "bfloat16")


def value_type(dtype: np.dtype[Any]) -> Any:
    """Return the type in which a kernel computes with elements of a dtype."""
    return types.float32 if is_small_float(dtype) else from_dtype(readable(dtype))


def is_readable(dtype: np.dtype[Any]) -> bool:
    """Return whether kernels read a field of this dtype."""
    return dtype.names is not None or (dtype.base.kind in "biufc" and dtype.base != np.float16)


def readable(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a struct with only the fields that kernels read, at their places."""
    if dtype.names is None or dtype.fields is None:
        return dtype
    fields = {name: place for name, place in dtype.fields.items() if is_readable(place[0])}
    return np.dtype({
        "names": list(fields), "formats": [readable(place[0]) for place in fields.values()],
        "offsets": [place[1] for place in fields.values()], "itemsize": dtype.itemsize, "aligned": True,
    })  # fmt: skip


def stored_type(dtype: np.dtype[Any]) -> Any:
    if dtype.names is not None:
        return types.UniTuple(types.uint8, dtype.itemsize)
    return types.uint16 if is_small_float(dtype) else from_dtype(dtype)


@register_default(HereType)
class HereModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        named = {"below": types.boolean, "on_cpu": types.boolean, "watch": types.voidptr}
        super().__init__(manager, kind, [(name, named.get(name, types.int64)) for name in HERE])


@register_default(ThreadType)
class ThreadModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("block", types.voidptr), *((axis, types.int64) for axis in "xyz")])


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
    """A number that takes the type of the value with which a variable or conditional expression joins it.

    least, most: the least and the greatest of the whole numbers that are written there, or 0.
    line: the line of one of these numbers, or 0.
    """

    def __init__(self, native: Any, least: int, most: int, line: int) -> None:
        self.native, self.least, self.most, self.line = native, least, most, line
        super().__init__(f"Weak({native}, {least}, {most}, {line})")

    def unify(self, typing: Any, other: Any) -> Any:
        if isinstance(other, WeakType):
            native = typing.unify_pairs(self.native, other.native)
            line = self.line or other.line
            return weak_type(native, min(self.least, other.least), max(self.most, other.most), line)
        if isinstance(other, types.Integer) and self.native in types.integer_domain:
            for literal in (self.least, self.most):
                check_joined(literal, types.unliteral(other), self.line)
        if isinstance(other, types.Boolean) or (isinstance(other, types.Integer) and other.bitwidth < 64):
            return self.native
        if isinstance(other, types.Number):
            return combined(self.native, True, types.unliteral(other), False) or types.unliteral(other)
        return None


@cache
def weak_type(native: Any, least: int = 0, most: int = 0, line: int = 0) -> Any:
    """Return the type of a weak number, or the type itself if such numbers are not weak."""
    is_weak = native in (types.int64, types.uint64, types.float64, types.complex128)
    return WeakType(native, min(least, 0), most if most >= 2**63 else 0, line) if is_weak else native


def lacks(kind: Any, literal: int) -> bool:
    """Return whether a whole number is not in the range in which it is combined with a type of integers."""
    return bool(literal < 0 if kind == types.uint64 else literal >= 2**63)


def range_error(construct: str, literal: int, kind: Any, line: int = 0) -> errors.TypingError:
    """Return the error of a whole number that is not in the range of a type. line: the number's line, or 0.

    numba gives the error the line at which the number is joined. For the result of a function of kernels, this is the
    line of the call.
    """
    place = f"\noa__line {line}" if line else ""
    lacking, remedy = ("a uint64", "int64") if kind == types.uint64 else ("an int64", "uint64")
    return errors.TypingError(
        f"oa__: {construct}{literal} is not {lacking}: convert the other number, as np.{remedy}(x){place}"
    )


def check_joined(literal: int, kind: Any, line: int) -> None:
    """Refuse a whole number that a variable or conditional expression joins with a type that does not have it."""
    if lacks(kind, literal):
        raise range_error("", literal, kind, line)


@register_default(WeakType)
class WeakModel(models.ProxyModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind)
        self._proxied_model = manager[kind.native]


@lower_cast(WeakType, types.Any)
def _(context: Any, builder: Any, source: Any, target: Any, value: Any) -> Any:
    return context.cast(builder, value, source.native, getattr(target, "native", target))


def combined(a: Any, a_is_weak: bool, b: Any, b_is_weak: bool) -> Any:
    """Return the type in which NumPy 2 combines two numbers; None stands for numba's own type.

    Two whole numbers have numba's type, or that of `computed_in`. But a weak number that is combined with a uint64
    becomes a uint64. So does a bool, which becomes an int64 if it is combined with a smaller unsigned number.
    """
    exact = (types.Integer, types.Boolean)
    if a_is_weak and b_is_weak:
        return None
    if isinstance(a, exact) and isinstance(b, exact):
        if a_is_weak or b_is_weak:
            return types.uint64 if (b if a_is_weak else a) == types.uint64 else None
        kinds = {(isinstance(kind, types.Boolean), getattr(kind, "signed", False)) for kind in (a, b)}
        if kinds != {(True, False), (False, False)}:
            return None
        return types.uint64 if types.uint64 in (a, b) else types.int64
    if not a_is_weak and not b_is_weak:
        return from_dtype(np.result_type(as_dtype(a), as_dtype(b)))
    weak, strong = (a, b) if a_is_weak else (b, a)
    if isinstance(weak, types.Complex) and not isinstance(strong, types.Complex):
        return types.complex64 if strong == types.float32 else types.complex128
    return weak if isinstance(strong, exact) else strong


# -- values in LLVM's code ---------------------------------------------------------------------------------------------


def number(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def array_of(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return cgutils.create_struct_proxy(kind)(context, builder, value)


class ThreadOfBlock:
    """A thread with the attributes HERE. Each use of an attribute loads and computes it."""

    def __init__(self, context: Any, builder: Any, value: Any) -> None:
        self.builder, self.thread = builder, cgutils.create_struct_proxy(THREAD)(context, builder, value)
        kind = context.get_value_type(_BLOCK)
        self.block = builder.bitcast(self.thread.block, kind.as_pointer())

    def __getattr__(self, name: str) -> Any:
        builder, (unit, _, axis) = self.builder, name.partition("_")
        if unit == "thread":
            return getattr(self.thread, axis)
        of_first = builder.load(cgutils.gep_inbounds(builder, self.block, 0, HERE.index(name)))
        if unit == "index":
            return builder.add(of_first, getattr(self.thread, axis), flags=["nuw", "nsw"])
        return of_first


_BLOCK: Final = HereType(False)


def here_of(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    if sig.args[0] == THREAD:
        return ThreadOfBlock(context, builder, args[0])
    return cgutils.create_struct_proxy(sig.args[0])(context, builder, args[0])


def thread_in_block(builder: Any, here: Any) -> Any:
    rows = builder.add(builder.mul(here.thread_z, here.threads_y), here.thread_y)
    return builder.add(builder.mul(rows, here.threads_x), here.thread_x)


def all_of(builder: Any, *conditions: Any) -> Any:
    result = conditions[0]
    for condition in conditions[1:]:
        result = builder.and_(result, condition)
    return result


def less(builder: Any, a: Any, b: Any) -> Any:
    return builder.icmp_signed("<", a, b)


def smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(less(builder, a, b), a, b)


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
