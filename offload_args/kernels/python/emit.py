"""Machine code of kernels in Python: numba infers types and lowers a function to LLVM IR; the target's entry calls it.

Importing this module imports numba. The entry makes the arrays and `here`. On GPUs, it gets the thread's numbers from
the hardware. On the CPU, it gets them from loops over threads and blocks, as in kernel.h. A kernel of matrices has two
versions of its code: for rows whose elements are side by side, and for any matrix. On the CPU it has a third version,
for columns whose elements are side by side.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numba
import numpy as np
from numba.core import cgutils, compiler, errors
from numba.core import types as numba_types
from numba.core.registry import cpu_target

from ...errors import KernelError, LibraryError
from ..compilers import Target
from . import functions, rules, value_types
from .definitions import Function, Written
from .linker import link
from .number_rules import CONTRACTED
from .phases import divided
from .thread_loops import LOOPS, inferred, places_for, slots_of
from .value_types import HERE, I1, I64, NO_TOKEN, TOKEN, ArrayType, HereType, all_of, less, number, smaller

__all__ = ["compile_kernel", "versions"]

types: Any = numba_types  # type checkers can read only a part of this module
WORD: Final = ir.IntType(32)
_TRIPLES: Final = {"cuda": "nvptx64-nvidia-cuda", "hip": "amdgcn-amd-amdhsa"}
_REPORT: Final = """
define ptr @oa_report(ptr %watch, i64 %argument, i64 %index, i64 %size) noinline cold {
  %record = load ptr, ptr %watch
  %pair = cmpxchg ptr %record, i32 0, i32 1 monotonic monotonic
  %first = extractvalue { i32, i1 } %pair, 1
  br i1 %first, label %write, label %done
write:
  %number = trunc i64 %argument to i32
  %p1 = getelementptr i8, ptr %record, i64 4
  store i32 %number, ptr %p1
  %from = getelementptr i8, ptr %watch, i64 8
  %p2 = getelementptr i8, ptr %record, i64 12
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %p2, ptr align 4 %from, i64 24, i1 false)
  %p3 = getelementptr i8, ptr %record, i64 40
  store i64 %index, ptr %p3
  %p4 = getelementptr i8, ptr %record, i64 48
  store i64 %size, ptr %p4
  br label %done
done:
  %zeros = getelementptr i8, ptr %record, i64 64
  ret ptr %zeros
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""
_BARRIERS: Final = {
    "cuda": """
define void @oa_barrier() convergent alwaysinline {
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  ret void
}
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32) convergent
""",
    "hip": """
define void @oa_barrier() convergent alwaysinline {
  fence syncscope("workgroup") release
  call void @llvm.amdgcn.s.barrier()
  fence syncscope("workgroup") acquire
  ret void
}
declare void @llvm.amdgcn.s.barrier() convergent
""",
    "": """
define i8 @oa_barrier() alwaysinline {
  %came = call i8 @llvm.coro.suspend(token none, i1 false)
  ret i8 %came
}
declare i8 @llvm.coro.suspend(token, i1)
""",
}
_THREAD: Final = "oa_thread_"  # prefix of functions that run a thread from barrier to barrier on the CPU
_FRAME_ALIGNMENT: Final = 64
_WATCH_BYTES: Final = 32  # the address of the record, the numbers of the block and of the thread


def versions() -> tuple[str, str]:
    """Return the versions of numba and llvmlite."""
    return numba.__version__, llvm.__name__ and __import__("llvmlite").__version__


@cache
def _contexts() -> tuple[Any, Any]:
    """Return numba's contexts, with all rules of kernels."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    typing, target = cpu_target.typing_context, cpu_target.target_context
    typing.refresh()
    target.refresh()
    return typing, target


def _flags() -> Any:
    flags = compiler.Flags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    flags.nrt = False
    return flags


def _python(written: Written, inlined: dict[int, Any]) -> Any:
    """Return the function of a rewritten tree."""
    names: dict[str, Any] = {**rules.RULES, **LOOPS, **(CONTRACTED if written.fma else {}), **written.constants}
    for name, function in written.functions.items():
        names[name] = _inlined(function, inlined, written.fma)
    code = compile(ast.Module([written.tree], []), written.file, "exec")
    exec(code, names)
    return names[written.tree.name]


def _inlined(function: Function, inlined: dict[int, Any], fma: bool) -> Any:
    """Return a function of kernels that numba writes into the code of its callers."""
    if id(function) not in inlined:
        python = _python(replace(function.written, fma=fma), inlined)
        inlined[id(function)] = numba.njit(python, inline="always", error_model="numpy")
    return inlined[id(function)]


def _within(written: Written, file: str, line: int) -> Written | None:
    """Return the kernel, or a user's function that it calls, that contains a line of a file."""
    candidates = [
        candidate
        for candidate in _with_functions(written)
        for name in (candidate.file, os.path.relpath(candidate.file), os.path.abspath(candidate.file))
        if candidate.line <= line and file == name
    ]
    return max(candidates, key=lambda candidate: candidate.line, default=None)


def _with_functions(written: Written) -> Iterator[Written]:
    """Yield a kernel, and the users' functions that it calls."""
    yield written
    for function in written.functions.values():
        if function.written.file != functions.__file__:
            yield from _with_functions(function.written)


def _with_weak_number(written: Written, line: int) -> Written | None:
    """Return the kernel, or the user's function that it calls, that joins a weak number of this line by its value."""
    for candidate in _with_functions(written):
        for node in ast.walk(candidate.tree):
            match node:
                case ast.Call(func=ast.Name("oa__weak"), args=[_, ast.Constant(value)]) if value == line:
                    return candidate
    return None


def _said(error: errors.NumbaError, written: Written) -> KernelError:
    """Return numba's error as a KernelError in the words of this package."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error.args[0] if error.args else error))
    source, line = written, None
    places = re.findall(r'File "([^"]*)", line (\d+)', text)
    if place := getattr(error, "loc", None):
        places.insert(0, (place.filename, place.line))
    for file, row in places:
        within = _within(written, file, int(row))
        source, line = (within, int(row)) if within else (source, line)
    if number := re.search(r"oa__line (\d+)", text):
        source, line = _with_weak_number(written, int(number[1])) or source, int(number[1])
    head = next((row.strip() for row in text.splitlines() if row.strip() and "Failed in" not in row), "")
    if undefined := re.search(
        r"No implementation of function .*?\((.*?)\) found for signature:\s*>>> (.*)", text, re.S
    ):
        head = re.sub(
            r"oa__binary_(\w+)\((.*), Literal\[int\]\(\d\)\)", r"\1(\2)", undefined[2].splitlines()[0].strip()
        )
        head = f"there is no {head}".replace("oa__", "")
        if re.search(r"xor\(.*(float|double|complex)", head):
            head += ": ^ is the exclusive or of integers; write a power as x ** 2"
    if "Invalid use of getiter" in head:
        head = "a loop over a tuple of several types: give its items one type, as by np.float32(...)"
    if refused := re.search(r"oa__: (.*)", text):
        head = refused[1].strip()
    if undefined_name := re.search(r"Variable '(\w+)(?:\.\d+)?' is not defined", text):
        head = f"{undefined_name[1]} is read before a value is assigned to it: assign one before"
    if unified := re.search(r"Cannot unify (.*?) and (.*?) for '(\w+)", text):
        first, other = (re.sub(r"Literal\[int\]\(\S*\)", "int64", text) for text in (unified[1], unified[2]))
        head = f"{unified[3].split('.')[0]} is {first} and {other}: give it one type, as by np.float32(...)"
    real = re.search(r"Cannot cast (?P<value>complex\w+) to (?P<real>\w+)", text) or re.search(
        r"setitem\(Array\((?P<real>\w+), .*, (?P<value>complex\w+)\)", head
    )
    if real:
        head = f"{real['value']} does not become {real['real']}: take .real, .imag or abs(...) of it"
    head = re.sub(r"Array\((\w+), (?:[^()]|\([^()]*\))*\)", r"array of \1", head)
    return KernelError(f"{source.file}:{line or source.line}: {source.name}: {head or text.strip()[:300]}")


def _types_of(written: Written, is_gpu: bool, checked: bool) -> tuple[Any, ...]:
    kinds: list[Any] = [HereType(is_gpu)]
    for name, declared in zip(written.parameters, written.declared, strict=True):
        array = written.arrays.get(name)
        if array is not None:
            kinds.append(ArrayType(array.dtype, array.number, array.rank, array.partition, checked))
        else:
            kinds.append(value_types.value_type(np.dtype(declared)))
    kinds += [ArrayType(shared.dtype, shared.number, shared.rank, None, checked) for shared in written.shared.values()]
    return tuple(kinds)


def _lower_in_phases(written: Written, kinds: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]] | None:
    """Return numba's result for a function that runs a whole block on the CPU, and the types of its slots.

    Return None if the kernel is not divided.
    """
    phases = divided(written) if written.by_phases else None
    if phases is None:
        return None
    typing, target = _contexts()
    try:
        slots: tuple[Any, ...] | None = ()
        if phases.slots:
            known = inferred(typing, target, _python(replace(written, tree=phases.typed), {}), kinds, _flags())
            slots = slots_of(phases, known)
        if slots is None:
            return None
        function = _python(replace(written, tree=phases.tree), {})
        return compiler.compile_extra(typing, target, function, (*kinds, *slots), types.void, _flags(), {}), slots
    except (errors.NumbaError, KeyError):  # the kernel's own error follows, if it has one
        return None


def _lower(written: Written, kinds: tuple[Any, ...], in_phases: bool) -> tuple[Any, Any, str, tuple[Any, ...] | None]:
    """Return the function's description, the target context, the function's LLVM IR, and the types of slots.

    The types of slots are None if the function runs one thread.
    """
    typing, target = _contexts()
    done, slots = (_lower_in_phases(written, kinds) if in_phases else None) or (None, None)
    try:
        if done is None:
            done = compiler.compile_extra(typing, target, _python(written, {}), kinds, types.void, _flags(), {})
    except errors.NumbaError as error:
        raise _said(error, written) from None
    except KeyError as error:  # from a function of kernels; its source is read before types are known
        location = f"{written.file}:{written.line}: {written.name}"
        raise KernelError(f"{location}: a function reads a field {error}, which its struct does not have") from None
    library = done.library
    module = library._final_module.clone()
    for other in library._linking_libraries:
        module.link_in(other._get_module_for_linking(), preserve=True)
    return done.fndesc, target, str(module), slots


@contextmanager
def _loop(builder: Any, start: Any, end: Any) -> Iterator[Any]:
    """Loop over start..end - 1."""
    place = cgutils.alloca_once(builder, I64)
    builder.store(start, place)
    head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    now = builder.load(place)
    builder.cbranch(builder.icmp_signed("<", now, end), body, after)
    builder.position_at_end(body)
    yield now
    builder.store(builder.add(now, number(1), flags=["nsw"]), place)
    builder.branch(head)
    builder.position_at_end(after)


@dataclass
class _Entry:
    """Writes the entry of a kernel for one target."""

    written: Written
    kinds: tuple[Any, ...]
    fndesc: Any
    context: Any
    checked: bool
    symbol: str
    slots: tuple[Any, ...] | None = None  # of a function that runs a whole block

    def __post_init__(self) -> None:
        self.module = ir.Module("entry")
        self.module.triple = llvm.get_process_triple()
        self.module.data_layout = str(self.context.target_data)
        self.arrays = list(self.written.arrays.values())
        self.passed = self.kinds[1 : 1 + len(self.written.declared)]
        self.places: list[Any] = []  # of the slots

    @property
    def steps(self) -> list[str]:
        """The cases of a matrix's steps: adjacent elements in a row, adjacent elements in a column, or any steps."""
        if not any(array.rank == 2 for array in self.arrays):
            return ["any"]
        return ["across", "any"] if self.kinds[0].is_gpu else ["across", "down", "any"]

    def value(self, kind: Any, declared: Any, place: Any) -> Any:
        """Return the value at an address."""
        builder, dtype = self.builder, np.dtype(declared)
        if value_types.is_small_float(dtype):
            stored = ArrayType(dtype, 0, 1, None, False)
            return rules.load(self.context, builder, stored, builder.bitcast(place, ir.IntType(16).as_pointer()))
        model = self.context.data_model_manager[kind]
        if isinstance(kind, types.Record):
            return builder.bitcast(place, model.get_value_type())
        return model.load_from_data_pointer(builder, builder.bitcast(place, model.get_data_type().as_pointer()))

    def call(self, here: dict[str, Any], operands: Sequence[Any], shapes: Sequence[Any], step: str) -> Any:
        """Call the function; return its status.

        operands: the address of each array's first element, and the values.
        """
        builder, context = self.builder, self.context
        proxy = cgutils.create_struct_proxy(self.kinds[0])(context, builder)
        for name in HERE:
            setattr(proxy, name, here[name])
        arguments = [proxy._getvalue()]
        for i, kind in enumerate(self.passed):
            if not isinstance(kind, ArrayType):
                arguments.append(operands[i])
                continue
            array = cgutils.create_struct_proxy(kind)(context, builder)
            array.data = builder.bitcast(operands[i], context.get_value_type(types.CPointer(kind.stored)))
            at = 4 * next(k for k, candidate in enumerate(self.arrays) if candidate.number == i)
            array.rows, array.columns, array.down, array.across = shapes[at : at + 4]
            if kind.rank == 2 and step == "across":
                array.across = number(1)
            if kind.rank == 2 and step == "down":
                array.down = number(1)
            array.watch = here["watch"]
            arguments.append(array._getvalue())
        arguments += [*self.shared_arrays(here), *self.places]
        function = context.declare_function(self.module, self.fndesc)
        kinds = (*self.kinds, *(self.slots or ()))
        status = context.call_conv.call_function(builder, function, types.void, kinds, arguments)[0].code
        if self.checked:
            ended = builder.icmp_signed(">", status, ir.Constant(status.type, 0))
            waits = builder.icmp_unsigned("==", status, ir.Constant(status.type, rules.WAITS))
            with builder.if_then(builder.and_(ended, builder.not_(waits)), likely=False):
                rules.report(builder, here["watch"], rules.ENDED, number(0), number(0))
        return status

    def shared_arrays(self, here: dict[str, Any]) -> list[Any]:
        """Return the block's arrays, which are in the kernel's memory or the launch's: here["own"], here["shared"]."""
        builder, arrays = self.builder, []
        shared = self.written.shared.values()
        for declared, kind in zip(shared, self.kinds[1 + len(self.passed) :], strict=True):
            array = cgutils.create_struct_proxy(kind)(self.context, builder)
            if declared.shape is None:
                data = here["shared"]
                shape = (builder.udiv(here["shared_bytes"], number(declared.dtype.itemsize)), number(1))
            else:
                data = builder.gep(here["own"], [number(declared.offset)])
                shape = number(declared.shape[0]), number(declared.shape[1] if declared.rank == 2 else 1)
            array.data = builder.bitcast(data, self.context.get_value_type(types.CPointer(kind.stored)))
            array.rows, array.columns = shape
            array.down, array.across = array.columns, number(1)
            array.watch = here["watch"]
            arrays.append(array._getvalue())
        return arrays

    def by_steps(self, shapes: Sequence[Any], run: Callable[[str], object]) -> None:
        """Write the code for each case of the steps, and the code that selects a case."""
        builder = self.builder
        after = builder.append_basic_block("after")
        for step in self.steps:
            if step == "any":
                run(step)
                builder.branch(after)
                continue
            known, unknown = builder.append_basic_block(step), builder.append_basic_block("other")
            at = 3 if step == "across" else 2
            ones = [
                builder.icmp_unsigned("==", shapes[4 * k + at], number(1))
                for k, array in enumerate(self.arrays)
                if array.rank == 2
            ]
            builder.cbranch(all_of(builder, *ones), known, unknown)
            builder.position_at_end(known)
            run(step)
            builder.branch(after)
            builder.position_at_end(unknown)
        builder.position_at_end(after)

    def watch(self, record: Any) -> Any:
        """Return memory for a thread's watch, with the record's address in it; null if no access is checked."""
        if not self.checked:
            return ir.Constant(cgutils.voidptr_t, None)
        place = cgutils.alloca_once(self.builder, ir.ArrayType(I64, _WATCH_BYTES // 8))
        self.builder.store(record, self.builder.bitcast(place, record.type.as_pointer()))
        return self.builder.bitcast(place, cgutils.voidptr_t)

    def note_thread(self, here: dict[str, Any]) -> None:
        if self.checked:
            builder = self.builder
            words = builder.bitcast(here["watch"], WORD.as_pointer())
            for k, unit in enumerate(("block", "thread")):
                for j, axis in enumerate("xyz"):
                    at = builder.gep(words, [number(2 + 3 * k + j)])
                    builder.store(builder.trunc(here[f"{unit}_{axis}"], WORD), at)

    # -- the CPU -------------------------------------------------------------------------------------------------------

    def on_cpu(self) -> None:
        function = ir.Function(
            self.module, ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t]), f"oa_kernel_{self.symbol}"
        )
        self.builder = builder = ir.IRBuilder(function.append_basic_block())
        call = function.args[0]

        def at(nbytes: int, kind: Any) -> Any:
            return builder.load(builder.bitcast(builder.gep(call, [number(nbytes)]), kind.as_pointer()))

        blocks = [builder.zext(at(4 * axis, WORD), I64) for axis in range(3)]
        threads = [builder.zext(at(12 + 4 * axis, WORD), I64) for axis in range(3)]
        first, last = at(24, I64), at(32, I64)
        places = at(40, cgutils.voidptr_t.as_pointer())
        memory, memory_bytes = at(48, cgutils.voidptr_t), at(56, I64)
        entries: list[int] = []

        def argument(nbytes: int, is_pointer: bool = False) -> Any:
            entries.append(nbytes | (0x80000000 if is_pointer else 0))
            return builder.load(builder.gep(places, [number(len(entries) - 1)]))

        def pointer() -> Any:
            return builder.load(builder.bitcast(argument(8, True), cgutils.voidptr_t.as_pointer()))

        operands: list[Any] = []
        for kind, declared in zip(self.passed, self.written.declared, strict=True):
            if isinstance(kind, ArrayType):
                operands.append(pointer())
            else:
                operands.append(self.value(kind, declared, argument(np.dtype(declared).itemsize)))
        record = None
        if self.checked:
            record = builder.load(builder.bitcast(argument(8), cgutils.voidptr_t.as_pointer()))
        shapes = [builder.load(builder.bitcast(argument(8), I64.as_pointer())) for _ in range(4 * len(self.arrays))]
        here = {f"blocks_{axis}": blocks[i] for i, axis in enumerate("xyz")}
        here |= {f"threads_{axis}": threads[i] for i, axis in enumerate("xyz")}
        here |= {"on_cpu": ir.Constant(I1, 1), "shared": memory, "shared_bytes": memory_bytes}
        if self.written.has_barriers or self.written.shared:
            # alloca_once would set each byte separately, and LLVM needs half a minute for this code at 16 KiB.
            place = builder.alloca(ir.ArrayType(ir.IntType(8), max(self.written.shared_bytes, 1)))
            place.align = _FRAME_ALIGNMENT
            here["own"] = builder.bitcast(place, cgutils.voidptr_t)
            if self.slots is not None:
                self.places = places_for(builder, self.context, self.slots)
                self.by_steps(shapes, lambda step: self.whole_blocks(here, first, last, operands, shapes, step))
            else:
                self.by_steps(
                    shapes, lambda step: self.block_by_block(here, first, last, operands, shapes, step, record)
                )
        else:
            here["watch"] = self.watch(record)
            self.by_steps(shapes, lambda step: self.over_blocks(here, first, last, operands, shapes, step))
        builder.ret_void()
        table = ir.Constant(ir.ArrayType(WORD, len(entries) + 1), [len(entries), *entries])
        variable = ir.GlobalVariable(self.module, table.type, f"oa_parameters_{self.symbol}")
        variable.initializer, variable.global_constant = table, True

    def bound(self, shapes: Sequence[Any], end: Any) -> Any:
        """Return the number of threads along x that own an element in every array that is divided along x."""
        builder = self.builder
        least = None
        for k, array in enumerate(self.arrays):
            kind = type(array.partition).__name__
            if kind == "Linear1D":
                extent = shapes[4 * k]
            elif kind == "Linear2D":
                turned = less(builder, shapes[4 * k + 2], shapes[4 * k + 3])
                extent = builder.select(turned, shapes[4 * k], shapes[4 * k + 1])
            else:
                continue
            least = extent if least is None else smaller(builder, least, extent)
        return number(0) if least is None else smaller(builder, least, end)

    def over_blocks(
        self, here: dict[str, Any], first: Any, last: Any, operands: Sequence[Any], shapes: Sequence[Any], step: str
    ) -> None:
        builder = self.builder
        here = dict(here)
        place = cgutils.alloca_once(builder, I64)
        builder.store(first, place)
        head, body, after = (builder.append_basic_block(name) for name in ("blocks", "row", "done"))
        builder.branch(head)
        builder.position_at_end(head)
        now = builder.load(place)
        builder.cbranch(less(builder, now, last), body, after)
        builder.position_at_end(body)
        along, threads = here["blocks_x"], [here[f"threads_{axis}"] for axis in "xyz"]
        block_x, row = builder.urem(now, along), builder.udiv(now, along)
        here["block_y"], here["block_z"] = builder.urem(row, here["blocks_y"]), builder.udiv(row, here["blocks_y"])
        count = smaller(builder, builder.sub(last, now), builder.sub(along, block_x))
        begin = builder.mul(block_x, threads[0])
        end = builder.add(begin, builder.mul(count, threads[0]))
        split = self.bound(shapes, end)
        with _loop(builder, number(0), threads[2]) as z, _loop(builder, number(0), threads[1]) as y:
            here["thread_y"], here["thread_z"] = y, z
            here["index_y"] = builder.add(builder.mul(here["block_y"], threads[1]), y)
            here["index_z"] = builder.add(builder.mul(here["block_z"], threads[2]), z)
            start = begin
            for below in (1, 0):
                if below and not any(type(array.partition).__name__.startswith("Linear") for array in self.arrays):
                    continue
                stop = split if below else end
                with _loop(builder, start, stop) as x:
                    here["below"] = ir.Constant(I1, below)
                    here["index_x"] = x
                    here["block_x"] = builder.udiv(x, threads[0])
                    here["thread_x"] = builder.urem(x, threads[0])
                    self.note_thread(here)
                    self.call(here, operands, shapes, step)
                start = builder.select(less(builder, start, stop), stop, start)
        builder.store(builder.add(now, count), place)
        builder.branch(head)
        builder.position_at_end(after)

    def whole_blocks(
        self, here: dict[str, Any], first: Any, last: Any, operands: Sequence[Any], shapes: Sequence[Any], step: str
    ) -> None:
        """Run blocks one after the other, each by one call of a divided kernel."""
        builder, here = self.builder, dict(here)
        here |= {"below": ir.Constant(I1, 0), "watch": self.watch(None)}
        with _loop(builder, first, last) as now:
            row = builder.udiv(now, here["blocks_x"])
            block = [builder.urem(now, here["blocks_x"]), builder.urem(row, here["blocks_y"]),
                     builder.udiv(row, here["blocks_y"])]  # fmt: skip
            for axis, number_of_block in zip("xyz", block, strict=True):
                here[f"block_{axis}"], here[f"thread_{axis}"] = number_of_block, number(0)
                here[f"index_{axis}"] = builder.mul(number_of_block, here[f"threads_{axis}"], flags=["nuw", "nsw"])
            self.call(here, operands, shapes, step)

    def block_by_block(
        self, here: dict[str, Any], first: Any, last: Any, operands: Sequence[Any], shapes: Sequence[Any], step: str,
        record: Any,
    ) -> None:  # fmt: skip
        """Run blocks one after the other; the threads of a block run in turn from barrier to barrier.

        A thread is a coroutine of LLVM, and a separate frame keeps its values between barriers.
        """
        builder = self.builder
        threads = [here[f"threads_{axis}"] for axis in "xyz"]
        count = builder.mul(builder.mul(*threads[:2]), threads[2])
        names, values = list(here), list(here.values())
        numbers = [f"{unit}_{axis}" for axis in "xyz" for unit in ("block", "thread", "index")]
        more = [*operands, *shapes, *([record] if record is not None else [])]
        kinds = [
            cgutils.voidptr_t,
            *(value.type for value in values),
            *[I64] * len(numbers),
            *(value.type for value in more),
        ]
        thread = ir.Function(self.module, ir.FunctionType(cgutils.voidptr_t, kinds), f"{_THREAD}{step}")
        thread.linkage = "internal"
        self.thread(thread, [*names, *numbers], len(operands), len(shapes), step)
        nothing = [ir.Constant(kind, ir.Undefined) for kind in kinds[1:]]
        frame_bytes = builder.ptrtoint(builder.call(thread, [ir.Constant(kinds[0], None), *nothing]), I64)
        bits = number(-_FRAME_ALIGNMENT)
        nbytes = builder.and_(builder.add(frame_bytes, number(_FRAME_ALIGNMENT - 1)), bits)
        memory = builder.call(
            self.function("malloc", cgutils.voidptr_t, I64),
            [builder.add(builder.mul(nbytes, count), number(_FRAME_ALIGNMENT))],
        )
        past = builder.add(builder.ptrtoint(memory, I64), number(_FRAME_ALIGNMENT - 1))
        frames = builder.inttoptr(builder.and_(past, bits), cgutils.voidptr_t)
        with _loop(builder, first, last) as now:
            row = builder.udiv(now, here["blocks_x"])
            block = [builder.urem(now, here["blocks_x"]), builder.urem(row, here["blocks_y"]),
                     builder.udiv(row, here["blocks_y"])]  # fmt: skip
            place = cgutils.alloca_once(builder, cgutils.voidptr_t)
            builder.store(frames, place)
            with _loop(builder, number(0), threads[2]) as z, _loop(builder, number(0), threads[1]) as y:
                with _loop(builder, number(0), threads[0]) as x:
                    frame = builder.load(place)
                    along = [
                        index
                        for axis, own in enumerate((x, y, z))
                        for index in (block[axis], own, builder.add(builder.mul(block[axis], threads[axis]), own))
                    ]
                    builder.call(thread, [frame, *values, *along, *more])
                    builder.store(builder.gep(frame, [nbytes]), place)
            self.until_done(frames, nbytes, count)
        builder.call(self.function("free", ir.VoidType(), cgutils.voidptr_t), [memory])

    def until_done(self, frames: Any, nbytes: Any, count: Any) -> None:
        """Run the threads of a block, each to its next barrier, until all are done."""
        builder = self.builder
        again, after = builder.append_basic_block("again"), builder.append_basic_block("done")
        waits = cgutils.alloca_once(builder, I1)
        builder.branch(again)
        builder.position_at_end(again)
        builder.store(ir.Constant(I1, 0), waits)
        with _loop(builder, number(0), count) as i:
            frame = builder.gep(frames, [builder.mul(i, nbytes)])
            done = builder.call(self.function("llvm.coro.done", I1, cgutils.voidptr_t), [frame])
            with builder.if_then(builder.not_(done)):
                builder.call(self.function("llvm.coro.resume", ir.VoidType(), cgutils.voidptr_t), [frame])
                builder.store(ir.Constant(I1, 1), waits)
        builder.cbranch(builder.load(waits), again, after)
        builder.position_at_end(after)

    def function(self, name: str, result: Any, *kinds: Any) -> Any:
        return cgutils.get_or_insert_function(self.module, ir.FunctionType(result, kinds), name)

    def thread(self, thread: Any, names: Sequence[str], operands: int, shapes: int, step: str) -> None:
        """Write the function that begins a thread in a frame. It returns the size of a frame if no frame is passed."""
        before = self.builder
        frame, *arguments = thread.args
        here = dict(zip(names, arguments, strict=False))
        rest = arguments[len(names) :]
        self.builder = builder = ir.IRBuilder(thread.append_basic_block())
        pointer = cgutils.voidptr_t
        null = ir.Constant(pointer, None)
        with builder.if_then(builder.icmp_unsigned("==", frame, null), likely=False):
            builder.ret(builder.inttoptr(builder.call(self.function("llvm.coro.size.i64", I64), []), pointer))
        kinds = (WORD, pointer, pointer, pointer)
        identity = builder.call(
            self.function("llvm.coro.id", TOKEN, *kinds), [ir.Constant(WORD, _FRAME_ALIGNMENT), null, null, null]
        )
        handle = builder.call(self.function("llvm.coro.begin", pointer, TOKEN, pointer), [identity, frame])
        here["below"] = ir.Constant(I1, 0)
        here["watch"] = self.watch(rest[-1])
        self.note_thread(here)
        status = self.call(here, rest[:operands], rest[operands : operands + shapes], step)
        with builder.if_then(builder.icmp_unsigned("!=", status, ir.Constant(WORD, rules.WAITS))):
            suspend = self.function("llvm.coro.suspend", ir.IntType(8), TOKEN, I1)
            builder.call(suspend, [NO_TOKEN, ir.Constant(I1, 1)])
        end = self.function("llvm.coro.end", ir.VoidType(), pointer, I1, TOKEN)
        builder.call(end, [null, ir.Constant(I1, 0), NO_TOKEN])
        builder.ret(handle)
        self.builder = before

    # -- GPUs ----------------------------------------------------------------------------------------------------------

    def on_gpu(self, backend: str) -> None:
        elements = ir.IntType(8).as_pointer(1)
        parameters: list[Any] = []
        for kind, declared in zip(self.passed, self.written.declared, strict=True):
            dtype = np.dtype(declared) if not isinstance(kind, ArrayType) else None
            if dtype is None:
                parameters.append(elements)
            elif isinstance(kind, types.Record):
                unit = max(dtype.alignment, 1)
                parameters.append(ir.ArrayType(ir.IntType(8 * unit), dtype.itemsize // unit))
            elif value_types.is_small_float(dtype) or dtype.kind == "c":  # with C's size and alignment
                parameters.append(ir.IntType(8 * dtype.itemsize))
            else:
                parameters.append(self.context.data_model_manager[kind].get_data_type())
        if self.checked:
            parameters.append(elements)
        parameters += [I64] * (4 * len(self.arrays))
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), parameters), self.symbol)
        function.calling_convention = "ptx_kernel" if backend == "cuda" else "amdgpu_kernel"
        self.builder = builder = ir.IRBuilder(function.append_basic_block())
        operands: list[Any] = []
        arguments = iter(function.args)
        for kind, declared in zip(self.passed, self.written.declared, strict=True):
            argument = next(arguments)
            if isinstance(kind, ArrayType):
                operands.append(builder.addrspacecast(argument, cgutils.voidptr_t))
            else:
                place = cgutils.alloca_once(builder, argument.type)
                builder.store(argument, place)
                operands.append(self.value(kind, declared, place))
        record = builder.addrspacecast(next(arguments), cgutils.voidptr_t) if self.checked else None
        shapes = list(arguments)
        here = self.on_nvidia() if backend == "cuda" else self.on_amd()
        for axis in "xyz":
            index = builder.mul(here[f"block_{axis}"], here[f"threads_{axis}"], flags=["nuw", "nsw"])
            here[f"index_{axis}"] = builder.add(index, here[f"thread_{axis}"], flags=["nuw", "nsw"])
        here |= {"on_cpu": ir.Constant(I1, 0), "below": ir.Constant(I1, 0)}
        self.add_shared(here, backend)
        here["watch"] = self.watch(record)
        self.note_thread(here)
        self.by_steps(shapes, lambda step: self.call(here, operands, shapes, step))
        builder.ret_void()

    def add_shared(self, here: dict[str, Any], backend: str) -> None:
        """Add the memory of the block: the kernel's own arrays, and the bytes that the launch requested."""
        builder, written = self.builder, self.written
        if written.shared_bytes:
            kind = ir.ArrayType(ir.IntType(8), written.shared_bytes)
            own = ir.GlobalVariable(self.module, kind, "oa_own_memory", 3)
            own.initializer, own.linkage, own.align = ir.Constant(kind, ir.Undefined), "internal", 16
            here["own"] = builder.addrspacecast(own, cgutils.voidptr_t)
        if any(array.shape is None for array in written.shared.values()):
            shared = ir.GlobalVariable(self.module, ir.ArrayType(ir.IntType(8), 0), "oa_shared_memory", 3)
            shared.linkage, shared.align = "external", 16
            here["shared"] = builder.addrspacecast(shared, cgutils.voidptr_t)
            if backend == "cuda":
                size = builder.asm(ir.FunctionType(WORD, []), "mov.u32 $0, %dynamic_smem_size;", "=r", [], False)
            else:  # the packet has only the total size of shared memory
                packet = self.function("llvm.amdgcn.dispatch.ptr", ir.IntType(8).as_pointer(4))
                whole = builder.gep(builder.call(packet, []), [number(28)])
                fixed = builder.call(self.function("llvm.amdgcn.groupstaticsize", WORD), [])
                size = builder.sub(builder.load(builder.bitcast(whole, WORD.as_pointer(4)), align=4), fixed)
            here["shared_bytes"] = builder.zext(size, I64)

    def on_nvidia(self) -> dict[str, Any]:
        names = {"thread": "tid", "block": "ctaid", "threads": "ntid", "blocks": "nctaid"}
        return {f"{name}_{axis}": self.read(f"llvm.nvvm.read.ptx.sreg.{register}.{axis}")
                for name, register in names.items() for axis in "xyz"}  # fmt: skip

    def read(self, name: str) -> Any:
        function = cgutils.get_or_insert_function(self.module, ir.FunctionType(WORD, []), name)
        return self.builder.zext(self.builder.call(function, []), I64)

    def on_amd(self) -> dict[str, Any]:
        builder = self.builder
        names = {"thread": "workitem", "block": "workgroup"}
        here = {f"{name}_{axis}": self.read(f"llvm.amdgcn.{register}.id.{axis}")
                for name, register in names.items() for axis in "xyz"}  # fmt: skip
        constant = ir.IntType(8).as_pointer(4)  # a pointer to the packet of the launch
        packet = builder.call(
            cgutils.get_or_insert_function(self.module, ir.FunctionType(constant, []), "llvm.amdgcn.dispatch.ptr"), []
        )
        for i, axis in enumerate("xyz"):
            threads = builder.bitcast(builder.gep(packet, [number(4 + 2 * i)]), ir.IntType(16).as_pointer(4))
            here[f"threads_{axis}"] = builder.zext(builder.load(threads, align=2), I64)
            size = builder.bitcast(builder.gep(packet, [number(12 + 4 * i)]), WORD.as_pointer(4))
            whole = builder.load(size, align=4)
            here[f"blocks_{axis}"] = builder.zext(
                builder.udiv(whole, builder.trunc(here[f"threads_{axis}"], WORD)), I64
            )
        return here


# -- targets -----------------------------------------------------------------------------------------------------------


def _machine(target: Target, name: str) -> Any:
    """Return LLVM's description of a processor."""
    _contexts()
    if target.backend not in _TRIPLES:
        features = llvm.get_host_cpu_features().flatten()
        return llvm.Target.from_default_triple().create_target_machine(
            llvm.get_host_cpu_name(), features, 3, reloc="pic", codemodel="small"
        )
    processor, _, rest = target.processor.partition(":")
    if not processor:
        raise LibraryError(f"{name}: the driver does not tell which AMD GPU this is: name it, as target='gfx90a'")
    features = ""
    if target.backend == "cuda":
        features = "+ptx78" if int(re.sub(r"\D", "", processor)) <= 90 else "+ptx87"
    for feature in filter(None, rest.split(":")):
        features += f"{',' if features else ''}{feature[-1]}{feature[:-1]}"
    return llvm.Target.from_triple(_TRIPLES[target.backend]).create_target_machine(processor, features, 3, reloc="pic")


def _for_target(text: str, target: Target, machine: Any) -> str:
    """Return LLVM IR with the triple, the layout and the address spaces of a target."""
    triple = _TRIPLES.get(target.backend)
    if triple is None:
        return text
    text = re.sub(r"^target (datalayout|triple) = .*\n", "", text, flags=re.M)
    text = f'target datalayout = "{machine.target_data}"\ntarget triple = "{triple}"\n{text}'
    if target.backend == "hip":
        text = re.sub(
            r"^( *)(%\S+|%\".*?\") = alloca (.*)$",
            lambda m: f"{m[1]}{_with(m[2], '.own')} = alloca {m[3]}, addrspace(5)\n"
            f"{m[1]}{m[2]} = addrspacecast ptr addrspace(5) {_with(m[2], '.own')} to ptr",
            text, flags=re.M,
        )  # fmt: skip
        text = re.sub(
            r"^(define amdgpu_kernel [^{]*?)((?: #\d+)?) \{$",
            r'\1\2 "uniform-work-group-size"="true" {',
            text,
            flags=re.M,
        )  # HIP takes a kernel of code object 5 only with this attribute
        text = re.sub(r"^!llvm\.module\.flags = .*\n", "", text, flags=re.M)  # the compiling machine's flags
        text += '\n!llvm.module.flags = !{!99999}\n!99999 = !{i32 1, !"amdhsa_code_object_version", i32 500}\n'
    return text


def _with(name: str, end: str) -> str:
    return f'{name[:-1]}{end}"' if name.endswith('"') else f"{name}{end}"


def _optimized(text: str, machine: Any, exported: Sequence[str], is_amd: bool) -> Any:
    module = llvm.parse_assembly(text)
    for variable in module.global_variables:
        if variable.name not in exported and not variable.is_declaration:
            variable.linkage = "internal"
    for function in module.functions:
        if function.name not in exported and not function.is_declaration:
            function.linkage = "internal"
            if function.name.startswith(_THREAD):
                function.add_function_attribute("presplitcoroutine")
            elif function.name != "oa_report":
                function.add_function_attribute("alwaysinline")
    options = llvm.create_pipeline_tuning_options(3)
    options.loop_vectorization = options.slp_vectorization = not is_amd
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


# CUDA 13.0's ptxas computes abs.s16 and neg.s16 of -32768 as 32768 where a 64-bit number is made from them.
_OF_16_BITS: Final = re.compile(r"\b(abs|neg)\.s16\s+(%\w+), (%\w+);")
_IN_32_BITS: Final = r"{ .reg .b32 %wide; cvt.s32.s16 %wide, \3; \1.s32 %wide, %wide; cvt.u16.u32 \2, %wide; }"
_ZERO: Final = r"-?0\.0+e\+00"
_COMPARED_WITH_ZERO: Final = re.compile(rf"^ *(%\S+) = fcmp o([gl])t (float|double) (%\S+), {_ZERO}", re.M)
_OR_ZERO: Final = re.compile(rf"^( *)(%\S+) = select i1 (%\S+), (float|double) (%\S+), \4 ({_ZERO})", re.M)
_NATIVE: Final = re.compile(r"llvm\.(?!(exp|log|sin|cos|tan|pow|sincos)\b)")


def _with_signs_of_zeros(module: Any) -> Any:
    """Return a module for a GPU in which x < 0.0 ? x : 0.0 compares as x >= 0.0 ? 0.0 : x, and > likewise.

    LLVM would take the first form for a minimum, which is -0.0 for x = -0.0.
    """
    text = str(module)
    compared = {match[1]: match.group(2, 4) for match in _COMPARED_WITH_ZERO.finditer(text)}

    def turned(match: re.Match[str]) -> str:
        indent, name, condition, kind, x, zero = match.groups()
        sign, number = compared.get(condition, ("", ""))
        if number != x:
            return match[0]
        other = _with(name, ".zero")
        return (f"{indent}{other} = fcmp u{'g' if sign == 'l' else 'l'}e {kind} {x}, {zero}\n"
                f"{indent}{name} = select i1 {other}, {kind} {zero}, {kind} {x}")  # fmt: skip

    changed = _OR_ZERO.sub(turned, text)
    return module if changed == text else llvm.parse_assembly(changed)


def _check_calls(module: Any, written: Written, is_gpu: bool) -> None:
    """Refuse a kernel that needs a function which the target lacks.

    Earlier checks find most such functions with their lines.
    """
    location = f"{written.file}:{written.line}: {written.name}"
    if is_gpu and "= frem " in str(module):
        raise KernelError(
            f"{location}: % and // of floating-point numbers: GPUs have no exact ones; use np.floor(x / y)"
        )
    if any(function.name == "numba_cpow" for function in module.functions):
        raise KernelError(f"{location}: a power of a complex number: kernels have z ** 2 alone; write z * z * z")
    for function in module.functions:
        is_of_c = not is_gpu and re.fullmatch(r"[a-z]+\d*f?|__\w+", function.name)
        if function.is_declaration and not _NATIVE.match(function.name) and not is_of_c:
            raise KernelError(f"{location}: it needs {function.name}, which kernels do not have")


def compile_kernel(written: Written, target: Target, checked: bool, symbol: str) -> bytes:
    """Return the module of a kernel: PTX, an HSACO or a shared object. Raises KernelError and LibraryError."""
    is_gpu = target.backend in _TRIPLES
    kinds = _types_of(written, is_gpu, checked)
    in_phases = not is_gpu and not checked  # a check reports the first fault, in the order of threads
    fndesc, context, inner, slots = _lower(written, kinds, in_phases)
    entry = _Entry(written, kinds, fndesc, context, checked, symbol, slots)
    if is_gpu:
        entry.on_gpu(target.backend)
        exported = [symbol]
    else:
        entry.on_cpu()
        exported = [f"oa_kernel_{symbol}", f"oa_parameters_{symbol}"]
    module = llvm.parse_assembly(inner)
    module.link_in(llvm.parse_assembly(str(entry.module)))
    if checked:
        module.link_in(llvm.parse_assembly(_REPORT))
    if written.has_barriers and slots is None:
        module.link_in(llvm.parse_assembly(_BARRIERS[target.backend if is_gpu else ""]))
    machine = _machine(target, written.name)
    text = _for_target(str(module), target, machine)
    optimized = _optimized(text, machine, exported, target.backend == "hip")
    _check_calls(optimized, written, is_gpu)
    if is_gpu:
        optimized = _with_signs_of_zeros(optimized)
    if target.backend == "cuda":
        return bytes(_OF_16_BITS.sub(_IN_32_BITS, machine.emit_assembly(optimized)), "ascii")
    return link(written.name, machine.emit_object(optimized))
