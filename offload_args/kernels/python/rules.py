"""The functions that rewritten trees call for elements, the thread and atomic steps, as rules for numba.

RULES has all of them.

Importing this module imports numba.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import llvmlite.ir as ir
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic

from . import number_rules, partition_rules
from .value_types import ARRAY, I64, ArrayType, array_of, here_of, number, thread_in_block, types

# -- elements ----------------------------------------------------------------------------------------------------------


def index_of(array: Any, index: Any) -> Any:
    """Return the type of an index if the array takes the index, else None."""
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


ASSERTION, ENDED = -3, -4  #: they stand in a record in place of an argument's number, as in debug.py


def report(builder: Any, watch: Any, argument: int, index: Any, size: Any) -> Any:
    """Note the first fault of a launch; return the address of spare memory."""
    kind = ir.FunctionType(cgutils.voidptr_t, [cgutils.voidptr_t, I64, I64, I64])
    function = cgutils.get_or_insert_function(builder.module, kind, "oa_report")
    return builder.call(function, [watch, number(argument), index, size])


def place_of(context: Any, builder: Any, kind: ArrayType, array: Any, index: Any, checks: bool) -> Any:
    """Return the address of an element, or of spare memory if the index is checked and out of bounds."""
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
    if kind.pitch:
        address = builder.gep(builder.bitcast(array.data, cgutils.voidptr_t), [builder.mul(offset, number(kind.pitch))])
        place = builder.bitcast(address, array.data.type)
    else:
        place = builder.gep(array.data, [offset])
    if not (checks and kind.checked):
        return place
    instead = cgutils.alloca_once_value(builder, place)
    with builder.if_then(builder.not_(inside), likely=False):
        other = report(builder, array.watch, kind.number, position, size)
        builder.store(builder.bitcast(other, place.type), instead)
    return builder.load(instead)


def load(context: Any, builder: Any, kind: ArrayType, place: Any) -> Any:
    """Return the value of an element in the type in which kernels compute."""
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
    elif kind.element.name == "bfloat16":  # round to the nearest value, and halfway cases to even
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
def oa__field(typing: Any, array: Any, at: Any) -> Any:
    """Return one field of an array of structs as an array. `at` is the field's number."""
    if not isinstance(array, ArrayType) or array.element.names is None or array.element.fields is None:
        return None
    dtype, offset, *_ = array.element.fields[array.element.names[at.literal_value]]
    place = array.number, array.rank, array.partition, array.checked
    kind = ArrayType(dtype, *place, pitch=array.element.itemsize)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        structs, fields = (
            array_of(context, builder, array, args[0]),
            cgutils.create_struct_proxy(kind)(context, builder),
        )
        first = builder.gep(builder.bitcast(structs.data, cgutils.voidptr_t), [number(offset)])
        fields.data = builder.bitcast(first, fields.data.type)
        for name in ARRAY[1:]:
            setattr(fields, name, getattr(structs, name))
        return fields._getvalue()

    return kind(array, at), make


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


@intrinsic(prefer_literal=True)
def oa__here_thread(typing: Any, here: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return thread_in_block(builder, here_of(context, builder, sig, args))

    return types.int64(here), make


@intrinsic(prefer_literal=True)
def oa__assert(typing: Any, here: Any, test: Any, line: Any, is_function: Any) -> Any:
    """Report a test that does not hold. is_function: 1 if the line is in a function of kernels, else 0."""

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        thread = here_of(context, builder, sig, args)
        failed = builder.and_(
            builder.not_(context.cast(builder, args[1], sig.args[1], types.boolean)),
            builder.icmp_unsigned("!=", thread.watch, ir.Constant(thread.watch.type, None)),
        )
        with builder.if_then(failed, likely=False):
            report(builder, thread.watch, ASSERTION, number(line.literal_value), number(is_function.literal_value))
        return context.get_dummy_value()

    return types.none(here, test, line, is_function), make


WAITS: Final = 77  #: the function's return value on the CPU when its thread reaches a barrier


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


RULES: Final = {
    name: value
    for place in (vars(number_rules), vars(partition_rules), globals())
    for name, value in list(place.items())
    if name.startswith("oa__")
}
