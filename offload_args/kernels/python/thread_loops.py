"""The functions that divided kernels call, as rules for numba: loops over the threads of a block, and slots.

phases.py divides kernels. A slot has a place for the variable of each thread of a block. Its type has the types that
numba infers for the variable at the places where the slot is read.

Importing this module imports numba.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import llvmlite.ir as ir
from numba.core import cgutils, compiler, typed_passes
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.datamodel import models, register_default
from numba.core.imputils import RefType, iternext_impl, lower_builtin
from numba.extending import intrinsic

from .phases import Divided
from .value_types import (
    I64,
    RUN,
    THREAD,
    HereType,
    ThreadOfBlock,
    less,
    number,
    smaller,
    thread_in_block,
    types,
)

__all__ = ["LOOPS", "MOST_THREADS", "SlotType", "inferred", "places_for", "slots_of"]

MOST_THREADS: Final = 1024  #: of a block on the CPU
_MOST_BYTES: Final = 96 * 1024  # of all slots, which are on the stack of a thread of the CPU


class SlotType(types.Type):
    """The slot of a variable.

    read: the type of the variable at each place where the slot is read. joined: the types of the values that numba
    joins to this type.
    """

    def __init__(self, stored: Any, read: tuple[Any, ...], joined: frozenset[Any]) -> None:
        self.stored, self.read, self.joined = stored, read, joined
        super().__init__(f"Slot({stored}, {read}, {sorted(map(str, joined))})")


@register_default(SlotType)
class SlotModel(models.PointerModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, types.CPointer(kind.stored))


class ThreadsType(types.IterableType):
    """The threads of one row of a block, or the first thread of each row."""

    def __init__(self, along: str) -> None:
        self.along = along
        super().__init__(f"Threads({along})")

    @property
    def iterator_type(self) -> Any:
        return _ITERATORS[self.along]


class ThreadsIterator(types.SimpleIteratorType):
    def __init__(self, along: str) -> None:
        self.along = along
        super().__init__(f"ThreadsIterator({along})", THREAD)


_ITERATORS: Final = {along: ThreadsIterator(along) for along in ("x", "yz")}
_THREADS: Final = ThreadsType("x")
_ROWS: Final = ThreadsType("yz")


@register_default(ThreadsType)
class ThreadsModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("first", THREAD), ("count", types.int64)])


@register_default(ThreadsIterator)
class ThreadsIteratorModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        place = types.EphemeralPointer(types.int64)
        super().__init__(manager, kind, [("first", THREAD), ("count", types.int64), ("place", place)])


@lower_builtin("getiter", ThreadsType)
def _(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    threads = cgutils.create_struct_proxy(sig.args[0])(context, builder, args[0])
    iterator = cgutils.create_struct_proxy(sig.return_type)(context, builder)
    place = cgutils.alloca_once(builder, I64)
    builder.store(number(0), place)
    iterator.first, iterator.count, iterator.place = threads.first, threads.count, place
    return iterator._getvalue()


@lower_builtin("iternext", ThreadsIterator)
@iternext_impl(RefType.UNTRACKED)
def _(context: Any, builder: Any, sig: Any, args: Any, result: Any) -> None:
    iterator = cgutils.create_struct_proxy(sig.args[0])(context, builder, args[0])
    now = builder.load(iterator.place)
    more = less(builder, now, iterator.count)
    result.set_valid(more)
    with builder.if_then(more):
        thread = cgutils.create_struct_proxy(THREAD)(context, builder, iterator.first)
        if sig.args[0].along == "x":
            thread.x = now
        else:
            rows = ThreadOfBlock(context, builder, iterator.first).threads_y
            thread.y, thread.z = builder.urem(now, rows), builder.udiv(now, rows)
        result.yield_(thread._getvalue())
        builder.store(builder.add(now, number(1), flags=["nuw", "nsw"]), iterator.place)


def _native(kind: Any) -> Any:
    return types.unliteral(getattr(kind, "native", kind))


def _at(context: Any, builder: Any, args: Any) -> Any:
    """Return the place of a thread in a slot."""
    return builder.gep(args[0], [thread_in_block(builder, ThreadOfBlock(context, builder, args[1]))])


@intrinsic(prefer_literal=True)
def oa__take(typing: Any, slot: Any, thread: Any, k: Any) -> Any:
    """Return a thread's value of a variable, in the variable's type at the k-th place."""

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        raw = builder.load(_at(context, builder, args))
        return context.data_model_manager[slot.stored].from_data(builder, raw)  # a weak number has its native bits

    known = isinstance(slot, SlotType) and isinstance(k, types.IntegerLiteral) and thread == THREAD
    return (slot.read[k.literal_value](slot, thread, k), make) if known else None


@intrinsic
def oa__put(typing: Any, slot: Any, thread: Any, value: Any) -> Any:
    """Store a thread's value of a variable."""

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = context.data_model_manager[slot.stored].as_data(builder, args[2])
        builder.store(data, _at(context, builder, args))
        return context.get_dummy_value()

    known = isinstance(slot, SlotType) and _native(value) in slot.joined and thread == THREAD
    return (types.none(slot, thread, slot.stored), make) if known else None


@intrinsic(prefer_literal=True)
def oa__probe(typing: Any, k: Any, value: Any) -> Any:
    """Have the type of a variable inferred, without any code."""
    return types.none(k, value), lambda context, builder, sig, args: context.get_dummy_value()


def _signed(*kinds: Any) -> bool:
    return all(isinstance(kind, types.Integer) and kind.signed for kind in map(_native, kinds))


@intrinsic
def oa__strided(typing: Any, first: Any, end: Any, step: Any) -> Any:
    """Return the numbers first, first + step, and so on, below end."""

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        run = cgutils.create_struct_proxy(RUN)(context, builder)
        run.first, run.end, run.step = args
        return run._getvalue()

    return (RUN(*[types.int64] * 3), make) if _signed(first, end, step) else None


@intrinsic
def oa__rows_of(typing: Any, first: Any) -> Any:
    """Return the rows of threads of a block, each as its first thread. `first` is the first thread of the block."""

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        rows = cgutils.create_struct_proxy(_ROWS)(context, builder)
        rows.first, thread = args[0], ThreadOfBlock(context, builder, args[0])
        rows.count = builder.mul(thread.threads_y, thread.threads_z)
        return rows._getvalue()

    return (_ROWS(THREAD), make) if first == THREAD else None


@intrinsic
def oa__first(typing: Any, here: Any) -> Any:
    """Return the first thread of a block, from the block's `here`."""

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        thread = cgutils.create_struct_proxy(THREAD)(context, builder)
        with builder.goto_entry_block():
            place = builder.alloca(args[0].type)
        builder.store(args[0], place)
        thread.block = builder.bitcast(place, cgutils.voidptr_t)
        thread.x = thread.y = thread.z = number(0)
        return thread._getvalue()

    return (THREAD(here), make) if isinstance(here, HereType) else None


@intrinsic
def oa__threads(typing: Any, row: Any) -> Any:
    """Return the threads of a row."""

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        threads = cgutils.create_struct_proxy(_THREADS)(context, builder)
        threads.first, threads.count = args[0], ThreadOfBlock(context, builder, args[0]).threads_x
        return threads._getvalue()

    return (_THREADS(THREAD), make) if row == THREAD else None


@intrinsic
def oa__threads_below(typing: Any, row: Any, first: Any, end: Any) -> Any:
    """Return the first threads of a row, as many as there are numbers first, first + 1, and so on, below end."""

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        row, first, end = args
        count = builder.sub(builder.select(less(builder, first, end), end, first), first)
        threads = cgutils.create_struct_proxy(_THREADS)(context, builder)
        threads.first, all_threads = row, ThreadOfBlock(context, builder, row).threads_x
        threads.count = smaller(builder, all_threads, count)
        return threads._getvalue()

    return (_THREADS(THREAD, types.int64, types.int64), make) if row == THREAD and _signed(first, end) else None


LOOPS: Final = {name: value for name, value in list(globals().items()) if name.startswith("oa__")}


# -- types of variables ------------------------------------------------------------------------------------------------


@dataclass
class Types:
    """The types that numba infers.

    probes: {k: the variable's type at probe k}. variables: {variable: its types, without weakness}.
    """

    probes: dict[int, Any]
    variables: dict[str, frozenset[Any]]


@register_pass(mutates_CFG=False, analysis_only=True)
class _Probes(AnalysisPass):
    """Makes the inferred types the result of the compilation."""

    _name = "offload_args_probes"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        probes: dict[int, Any] = {}
        for call, sig in state.calltypes.items():
            of = state.typemap.get(call.func.name) if getattr(call, "op", "") == "call" else None
            if getattr(of, "typing_key", None) is oa__probe:
                probes[sig.args[0].literal_value] = sig.args[1]
        variables: dict[str, frozenset[Any]] = {}
        for version, kind in state.typemap.items():  # a variable x has the versions x, x.1, and so on
            name = version.partition(".")[0]
            variables[name] = variables.get(name, frozenset()) | {_native(kind)}
        state.cr = Types(probes, variables)
        return False


class _Inference(compiler.CompilerBase):
    """Infers types, and compiles nothing."""

    def define_pipelines(self) -> list[Any]:
        manager = compiler.DefaultPassBuilder.define_untyped_pipeline(self.state)
        manager.add_pass(typed_passes.NopythonTypeInference, "inferring types")
        manager.add_pass(_Probes, "reading probes")
        manager.finalize()
        return [manager]


def inferred(typing: Any, target: Any, function: Any, kinds: tuple[Any, ...], flags: Any) -> Types:
    """Return the types that numba infers for a tree with probes. Raises numba's errors."""
    result: Types = compiler.compile_extra(typing, target, function, kinds, types.void, flags, {}, None, _Inference)
    return result


def slots_of(divided: Divided, known: Types) -> tuple[Any, ...] | None:
    """Return the types of a kernel's slots.

    Return None if a variable is not a number, if it has different types where its slot is read, if more than one type
    is joined to that type, or if the slots need too much memory.
    """
    slots: list[Any] = []
    for name, numbers in divided.slots.items():
        read = tuple(known.probes.get(k) for k in numbers)
        stored, joined = {_native(kind) for kind in read}, known.variables.get(name, frozenset())
        if len(stored) != 1 or len(joined) > 2 or not stored <= joined:
            return None
        kind = stored.pop()
        if not isinstance(kind, (types.Number, types.Boolean)):
            return None
        slots.append(SlotType(kind, tuple(map(types.unliteral, read)), joined))
    nbytes = sum(MOST_THREADS * getattr(slot.stored, "bitwidth", 8) // 8 for slot in slots)
    return tuple(slots) if nbytes <= _MOST_BYTES else None


def places_for(builder: Any, context: Any, slots: tuple[Any, ...]) -> list[Any]:
    """Return memory for slots on the stack."""
    places: list[Any] = []
    for slot in slots:
        kind = context.get_data_type(slot.stored)
        with builder.goto_entry_block():  # alloca_once would set each place separately
            place = builder.alloca(ir.ArrayType(kind, MOST_THREADS))
        place.align = 64
        places.append(builder.bitcast(place, kind.as_pointer()))
    return places
