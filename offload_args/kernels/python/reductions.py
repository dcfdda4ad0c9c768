"""Reductions of arrays, or of their rows or columns, by kernels that are made for each reduction.

Each thread of a launch reduces up to 64 elements of a line to one value. Further launches reduce these values until one
is left. The extents alone determine the order of the operations, so all devices compute the same bits. Neighbouring
threads read neighbouring elements: a thread's elements are `step` apart, and up to 32 threads divide a run of the line.
"""

from __future__ import annotations

import ast
import itertools
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ... import _core
from ..._core import launch
from ..._signatures import telling
from ..._syntax import parse, parse_expression
from ...arguments import In, InOut, Out, Parameter, Scratch
from ...devices import Device
from ...display import answering, described, plural, shown
from ...dtypes import as_array, code_of, converted, of_parameter, spelled
from ...errors import ArgumentError, CaptureError, DTypeError, HostPointerError, SignatureError
from ...pointers import DevicePtr
from ...regions import offload_args
from ..partitions import Linear1D
from ..pickled import pickled
from .calls import whole
from .decorated import PythonKernel
from .definitions import OWN
from .formulas import OwnNames, Subscripted, known_names, made_of, own_names, parsed, renamed

__all__ = ["Reduction", "reduce"]

_EACH: Final = 64  # elements that one thread reduces
_STEP: Final = 32
_FORMS: Final = {  # {operation: (the function that combines two values, the initial value)}
    "sum": ("{0} + {1}", "0"),
    "prod": ("{0} * {1}", "1"),
    "min": ("minimum({0}, {1})", ""),
    "max": ("maximum({0}, {1})", ""),
}
_PLACES: Final = {"argmin": "<", "argmax": ">"}


@dataclass(frozen=True)
class _Pass:
    """One launch, which reduces each of `lines` lines from `extent` elements to `parts`."""

    lines: int
    extent: int

    @property
    def step(self) -> int:
        return max(1, min(_STEP, -(-self.extent // _EACH)))

    @property
    def parts(self) -> int:
        whole, rest = divmod(self.extent, self.step * _EACH)
        return max(1, whole * self.step + min(self.step, rest))


def _passes(lines: int, extent: int) -> list[_Pass]:
    passes = [_Pass(lines, extent)]
    while passes[-1].parts > 1:
        passes.append(_Pass(lines, passes[-1].parts))
    return passes


def _result_type(operation: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that NumPy's function returns."""
    if operation in _PLACES:
        return np.dtype(np.int64)
    if operation in ("sum", "prod") and dtype.kind in "biu":
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    return dtype


def _computed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which a kernel computes."""
    return np.dtype(np.float32) if dtype.name in ("float16", "bfloat16") else dtype


@answering(
    {
        **dict.fromkeys(("signature", "args", "arguments"), "parameters"),
        **dict.fromkeys(("launch", "offload", "run"), "the reduction itself: total(x), or total(dx, dresult)"),
    }
)
@telling
class Reduction:
    """Reduce lent arrays or NumPy arrays; `reduce` makes a Reduction.

        total = kernels.reduce("sum", x=np.float32)
        print(isinstance(total, kernels.Reduction), total(np.arange(5, dtype=np.float32)))  # True 10.0

    See also: kernels.reduce, kernels.elementwise; docs/guide/python-kernels.md.
    """

    def __init__(
        self, operation: str, formula: str, axis: int | None, parameters: dict[str, np.dtype[Any]],
        dtype: np.dtype[Any], is_promoted: bool, names: dict[str, Any],
    ) -> None:  # fmt: skip
        """Prepare a reduction to the formula's dtype.

        `is_promoted`: whether the arrays' dtypes determined this dtype.
        """
        self.operation, self.formula, self.axis = operation, formula, axis
        self.parameters, self._names = parameters, names
        self._declared, self._is_promoted = dtype, is_promoted
        self._value = _computed(dtype)
        self.dtype = _result_type(operation, dtype)  #: the dtype of the result
        if operation in ("sum", "prod"):
            self._value = _computed(self.dtype)
        places = [np.dtype(np.int64)] if operation in _PLACES else []
        self._between = [self._value, *places]  # memory that a launch leaves for the next one
        self._kernels: dict[tuple[bool, bool], PythonKernel] = {}

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        kernels = {key: self._kernel(*key) for key in itertools.product((False, True), repeat=2)}
        facts = self.operation, self.formula, self.axis, self.parameters, self._declared, self._is_promoted
        return pickled(_reduction_again, kernels, *facts, {})

    def __repr__(self) -> str:
        axis = "" if self.axis is None else f" along axis {self.axis}"
        return f"<{self.operation} of {self.formula}{axis}, to {self.dtype}>"

    # -- kernels -------------------------------------------------------------------------------------------------------

    def _kernel(self, is_first: bool, is_last: bool) -> PythonKernel:
        kernel = self._kernels.get((is_first, is_last))
        if kernel is None:
            kernel = self._kernels[is_first, is_last] = self._new_kernel(is_first, is_last)
        return kernel

    def _new_kernel(self, is_first: bool, is_last: bool) -> PythonKernel:
        """Return the kernel of a pass. It reads arrays or values of another pass, and writes values or the result."""
        from .source import read_kernel

        tree, names, annotations = self._template(is_first, is_last)
        source = f"{ast.unparse(tree)}\n"
        scope = {**known_names(), **self._names, **names}
        function = made_of(source, f"<reduce {self.operation!r}, {self.formula!r}>", scope)
        function.__annotations__ = annotations
        written = read_kernel(function, {}, frozenset(_names_in(tree)))
        return PythonKernel._of(written, False)  # without checks, because all indices are in bounds

    def _template(self, is_first: bool, is_last: bool) -> tuple[ast.FunctionDef, dict[str, Any], dict[str, Any]]:
        """Return the tree of a pass, the objects that its own names stand for, and its annotations.

        The texts of this class have short names, such as k. In the tree they are the package's own names, which no
        formula can have, so that k in a formula is the caller's k.
        """
        is_place = self.operation in _PLACES
        index = {None: "k", 0: "k, line", 1: "line, k"}[self.axis]
        arrays: dict[str, Any] = {}
        declared: dict[str, Any] = {}
        if is_first:
            formula = parsed("reduce", self.formula).body[0]
            value = Subscripted("reduce", dict.fromkeys(self.parameters, own_names(index))).visit(formula).value
            if self._declared.kind in "biu":
                value = _called("declared", _called("whole", value) if self._is_promoted else value)
            arrays = {name: In[dtype] for name, dtype in self.parameters.items()}
        else:
            index = "k * lines + line" if self.axis == 0 else "line * extent + k"
            value = parse_expression(own_names(f"values[{index}]"))
            declared = {"values": In[self._value], **({"earlier": In[np.int64]} if is_place else {})}
        outputs = {"places": Out[np.int64].by(Linear1D())} if is_place else {}
        if not (is_place and is_last):
            outputs = {"out": Out[self.dtype if is_last else self._value].by(Linear1D()), **outputs}
        declared |= outputs | dict.fromkeys(("lines", "extent", "parts", "step"), np.int64)
        indices = "part, line = i // lines, i % lines" if self.axis == 0 else "line, part = i // parts, i % parts"
        lines = [
            f"for i in {next(iter(outputs))}.mine():", f"    {indices}", f"    run = part // step * (step * {_EACH})",
            f"    k, end = run + part % step, run + step * {_EACH}", "    end = end if end < extent else extent",
        ]  # fmt: skip
        lines += self._places(is_last, "k" if is_first else f"earlier[{index}]") if is_place else self._values()
        body = "\n".join(f"    {line}" for line in lines)
        head = f"def reduce_{self.operation}({', '.join(declared)}):"
        tree: Any = OwnNames(_called("type", value)).visit(parse(f"{head}\n{body}\n")).body[0]
        tree.args.args[:0] = [ast.arg(name) for name in arrays]
        names = {
            "type": self._value.type, "declared": self._declared.type, "whole": whole,
            "minimum": np.minimum, "maximum": np.maximum,
        }  # fmt: skip
        annotations = arrays | {own_names(name): kind for name, kind in declared.items()}
        return ast.fix_missing_locations(tree), {own_names(name): value for name, value in names.items()}, annotations

    def _values(self) -> list[str]:
        form, before = _FORMS[self.operation]
        start = [f"    {name} = type({before})" if before else f"    {name} = VALUE" for name in "abcd"]
        four = ["    while k + 3 * step < end:"]
        for name in "abcd":
            four += [f"        {name} = {form.format(name, 'VALUE')}", "        k += step"]
        rest = ["    while k < end:", f"        a = {form.format('a', 'VALUE')}", "        k += step"]
        combined = form.format(form.format("a", "b"), form.format("c", "d"))
        return [*start, *four, *rest, f"    out[i] = {combined}"]

    def _places(self, is_last: bool, place: str) -> list[str]:
        sign = _PLACES[self.operation]
        lines = [
            f"    best, at = VALUE, {place}", "    while k < end:",
            f"        v, p = VALUE, {place}",
            f"        more = v {sign} best or (v != v and best == best)",
            "        same = v == best or (v != v and best != best)",
            "        if more or (same and p < at):", "            best, at = v, p",
            "        k += step", "    places[i] = at",
        ]  # fmt: skip
        return lines if is_last else [*lines, "    out[i] = best"]

    # -- launches ------------------------------------------------------------------------------------------------------

    def _shape(self, arrays: Sequence[Any]) -> tuple[int, int]:
        """Return the number of lines and their extent. Raises ArgumentError or DTypeError for other arrays."""
        name, first = next(iter(self.parameters)), arrays[0]
        extents = self._extents(first.shape)
        for other, array in zip(self.parameters, arrays, strict=True):
            subject = f"{self.operation}: {other}"
            if array.dtype != self.parameters[other]:
                wanted = self.parameters[other]
                raise DTypeError(f"{subject} needs dtype {wanted}, got {array.dtype}; {converted(other, wanted.name)}")
            if array.shape != first.shape:
                raise ArgumentError(f"{subject} needs the shape of {name}, {first.shape}, got {array.shape}")
            if self.axis is None and isinstance(array, DevicePtr) and not _is_in_c_order(array):
                by_axis = "reduce along an axis first, or " if len(array.shape) == 2 else ""
                raise ArgumentError(
                    f"{subject} needs elements in C order without gaps, got shape {array.shape} and strides "
                    f"{array.strides}: {by_axis}copy it: lend Scratch({array.shape}, np.{array.dtype}) as dc, and "
                    f"dc.copy_from({other}); NumPy arrays may have any order"
                )
        return extents

    def _extents(self, shape: Sequence[int]) -> tuple[int, int]:
        """Return the number of lines and their extent.

        Raises ArgumentError for a shape that the reduction does not take.
        """
        subject, shape = f"{self.operation}: {next(iter(self.parameters))}", tuple(shape)
        if self.axis is not None and len(shape) != 2:
            remedy = (
                "leave axis out" if len(shape) < 2 else "reshape it to a matrix, such as x.reshape(-1, x.shape[-1])"
            )
            raise ArgumentError(f"{subject} needs a matrix for axis={self.axis}, got shape {shape}: {remedy}")
        lines, extent = (1, math.prod(shape)) if self.axis is None else (shape[1 - self.axis], shape[self.axis])
        if not extent and self.operation not in ("sum", "prod"):
            raise ArgumentError(f"{subject} has no elements along the axis: {shape}")
        return lines, extent

    def scratch(self, shape: Sequence[int]) -> tuple[Scratch, ...]:
        """Return the device memory that a reduction of arrays of a shape needs between its launches.

        A capture takes no memory, so lend this memory before: `offload_args(x, out, *total.scratch(x.shape))`. The
        result has one Scratch, or two for "argmin" and "argmax". It has none for small arrays, which one launch
        reduces.

        Raises ArgumentError for a shape that the reduction does not take.
        """
        lines, extent = self._extents(shape)
        size = sum(pass_.parts * lines for pass_ in _passes(lines, extent)[:-1])
        return tuple(Scratch(size, dtype) for dtype in self._between if size)

    def __call__(
        self, *arguments: Any, device: Device | str | None = None, scratch: Sequence[DevicePtr[Any]] | None = None
    ) -> Any:
        """Reduce the arrays, and write the result to the array after them.

        arguments: the arrays, in the order of the parameters, and then the result, which has one element, or one for
        each row (axis=1) or column (axis=0). All are DevicePtrs of an open region, or all are NumPy arrays. With NumPy
        arrays, the result may be left out.
        NumPy arrays have any order and strides; without an axis, those that are not in C order without gaps are copied
        on the device.
        device: as for offload_args, if the arguments are NumPy arrays.
        scratch: pointers to the memory that `scratch(shape)` describes; the call then takes no other memory.

        Returns None, or, if the result was left out, the result as a NumPy array or number. Raises ArgumentError,
        DTypeError, and, if the call needs memory in a capture, CaptureError.

            total = kernels.reduce("sum", axis=0, A=np.float64)
            A, sums = np.ones((3, 2)), np.empty(2)
            print(total(A))  # [3. 3.]
            with offload_args(A, sums) as (dA, dsums):
                total(dA, dsums)
            print(sums)  # [3. 3.]

        See also: kernels.reduce, offload_args.capture; docs/guide/python-kernels.md.
        """
        count = len(self.parameters)
        operands, result = arguments[:count], arguments[count:]
        are_lent = any(isinstance(argument, DevicePtr) for argument in arguments)
        if len(operands) < count or len(result) > 1 or (are_lent and not result):
            needed = f"{', '.join(self.parameters)} and the result"
            remedy = "; with pointers, the result is one, too; NumPy arrays need none" if are_lent else ""
            raise ArgumentError(
                f"{self.operation}: needs {count + 1} arguments, {needed}; got {len(arguments)}{remedy}"
            )
        if are_lent:
            for name, argument in zip((*self.parameters, "out"), arguments, strict=True):
                if not isinstance(argument, DevicePtr):
                    operand_names = ", ".join(self.parameters)
                    lent_names = ", ".join(f"d{parameter}" for parameter in (*self.parameters, "out"))
                    raise HostPointerError(
                        f"{self.operation}: {name} needs a device pointer, as other arguments are, got "
                        f"{shown(argument)}: lend it, too: with offload_args({operand_names}, out) as ({lent_names}): "
                        f"total({lent_names}); or pass NumPy arrays alone: out = total({operand_names})"
                    )
            self._reduce(operands, result[0], scratch)
            return None
        if scratch is not None:
            raise ArgumentError(f"{self.operation}: scratch is for lent arrays; NumPy arrays need none: leave it out")
        named = zip(self.parameters, operands, strict=True)
        arrays = [as_array(f"{self.operation}: {name}", array) for name, array in named]
        lines, _ = self._shape(arrays)
        output = result[0] if result else np.empty(() if self.axis is None else lines, self.dtype)
        if not isinstance(output, np.ndarray):
            raise ArgumentError(f"{self.operation}: the result needs a NumPy array, got {shown(output)}")
        elements = output.reshape(-1) if output.flags.forc else np.empty(output.size, output.dtype)
        with offload_args(*map(In, arrays), Out(elements), device=device) as pointers:
            pairs = zip(arrays, pointers[:-1], strict=True)
            lent = [pointer if self._takes(array) else _copied(pointer) for array, pointer in pairs]
            self._reduce(lent, pointers[-1], None)
        if not np.may_share_memory(elements, output):  # they are a copy
            output[...] = elements.reshape(output.shape)
        return None if result else output[()]

    def _takes(self, array: np.ndarray) -> bool:
        """Return whether the kernels take an array in its order: in C order, or a matrix with gaps between lines."""
        if self.axis is None or not array.size:
            return _is_in_c_order(array)
        inner, outer = sorted((0, 1), key=lambda axis: array.strides[axis])
        width = array.strides[inner] * array.shape[inner]
        return array.strides[inner] == array.itemsize and array.strides[outer] >= width

    def _reduce(self, arrays: Sequence[Any], result: Any, scratch: Any) -> None:
        lines, extent = self._shape(arrays)
        needed = 1 if self.axis is None else lines
        if result.size != needed or result.dtype != self.dtype:
            kind = ArgumentError if result.size != needed else DTypeError
            raise kind(
                f"{self.operation}: the result needs {needed} {plural('element', needed)} of {self.dtype}, got "
                f"{result.size} of {result.dtype}; make it first: result = np.empty({needed}, "
                f"{spelled(self.dtype.name)})"
            )
        if not lines:
            return
        passes = _passes(lines, extent)
        memory = self._memory(scratch, sum(pass_.parts * lines for pass_ in passes[:-1]), (*arrays, result))
        inputs, begin = list(arrays), 0
        for pass_ in passes[:-1]:
            end = begin + pass_.parts * lines
            outputs = [pointer[begin:end] for pointer in memory]
            self._launch(pass_, pass_ is passes[0], False, inputs, outputs)
            inputs, begin = outputs, end
        result = result if len(result.shape) == 1 else result.reshape(-1)
        self._launch(passes[-1], len(passes) == 1, True, inputs, [result])

    def _memory(self, scratch: Any, size: int, operands: Sequence[Any]) -> Sequence[Any]:
        """Return pointers to `size` elements of each kind of value that a launch leaves for the next one."""
        if not size:
            return ()
        if scratch is None:
            pointers = tuple(operand for operand in operands if isinstance(operand, DevicePtr))
            try:
                return [_core.scratch(pointers, code_of(dtype), (size,), (dtype.itemsize,)) for dtype in self._between]
            except CaptureError:
                raise CaptureError(
                    f"{self.operation}: a captured reduction of shape {operands[0].shape} takes no memory: lend "
                    f"*reduction.scratch({operands[0].shape}) with the arrays, and pass its pointers as scratch="
                ) from None
        pointers = (scratch,) if isinstance(scratch, DevicePtr) else tuple(scratch)
        if len(pointers) != len(self._between) or not all(
            isinstance(pointer, DevicePtr) and pointer.ndim == 1 and pointer.size >= size and pointer.dtype == dtype
            for pointer, dtype in zip(pointers, self._between, strict=True)
        ):
            listed = " and ".join(f"{size} elements of {dtype}" for dtype in self._between)
            raise ArgumentError(
                f"{self.operation}: scratch needs {listed}, as reduction.scratch({operands[0].shape}) asks for; got "
                f"{', '.join(map(repr, pointers)) or 'nothing'}"
            )
        return pointers

    def _launch(
        self, pass_: _Pass, is_first: bool, is_last: bool, arrays: Sequence[Any], outputs: Sequence[Any]
    ) -> None:
        numbers = (pass_.lines, pass_.extent, pass_.parts, pass_.step)
        launch(self._kernel(is_first, is_last), *arrays, *outputs, *numbers)


# {NumPy's keyword that reduce lacks: the remedy}.
_KEYWORDS_OF_NUMPY: Final = {
    "keepdims": "reshape the result, such as result.reshape(-1, 1) for axis=1",
    "initial": "combine it with the result, such as result + initial for a sum",
    "where": "write the condition in the formula, such as 'x if x > 0 else 0.0'",
    "out": "pass the result to the reduction, after its arrays: total(x, out)",
}


def _called(function: str, value: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(own_names(function), ast.Load()), [value], [])


def _names_in(tree: ast.AST) -> set[str]:
    """Return the package's own names in a tree."""
    names = {getattr(node, "id", getattr(node, "arg", "")) for node in ast.walk(tree)}
    return {name for name in names if name.startswith(OWN)}


def _dtype(name: str, kind: Any) -> np.dtype[Any]:
    """Return the dtype of a parameter. Raise SignatureError for an array, or for a direction."""
    array = kind.array if isinstance(kind, (In, Out, InOut)) else kind
    if isinstance(array, (Parameter, np.ndarray, DevicePtr)):
        got = kind if isinstance(kind, Parameter) else described(kind)
        raise SignatureError(
            f"reduce: {name} needs a dtype, got {got}: write {name}={spelled(array.dtype.name)}, and pass the array to "
            f"the reduction"
        )
    return of_parameter(f"reduce: {name}", kind)


def _is_in_c_order(array: Any) -> bool:
    step = array.dtype.itemsize
    if 0 in array.shape:
        return True
    for extent, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


def _copied(pointer: DevicePtr[Any]) -> DevicePtr[Any]:
    """Return a pointer to a copy on the device, in C order without gaps."""
    shape = tuple(pointer.shape)
    strides = tuple(math.prod(shape[at + 1 :]) * pointer.dtype.itemsize for at in range(len(shape)))
    copied: DevicePtr[Any] = _core.scratch((pointer,), code_of(pointer.dtype), shape, strides)
    copied.copy_from(pointer)
    return copied


def _reduction_again(kernels: dict[tuple[bool, bool], PythonKernel], *facts: Any) -> Reduction:
    """Return a reduction that came by pickle: its kernels have the values of the formula's other names."""
    reduction = Reduction(*facts)
    reduction._kernels = kernels
    return reduction


@telling
def reduce(
    operation: str, formula: str = "", /, *, axis: int | None = None, dtype: Any = None, **parameters: Any
) -> Reduction:
    """Make a reduction of arrays: "sum", "prod", "min", "max", "argmin" or "argmax".

    operation: one of these names. As in NumPy, a NaN is both the least and the greatest value, and the first of several
    equal elements is selected.
    formula: the value to reduce, such as "x * y" for a dot product; a name stands for an element of the array of this
    name, or for a number or function from the scope of the call. By default, the array itself is reduced.
    axis: None to reduce all elements, in C order; 0 or -2 to reduce each column of a matrix; 1 or -1 to reduce each
    row.
    dtype: the dtype of the formula's value. By default, it is NumPy's promotion of the arrays' dtypes, to which the
    value is converted, so that "x * x" of int8 wraps, as in NumPy. If the promotion is an integer dtype, a formula with
    another value, such as "x / 2", raises KernelError.
    parameters: the dtype of each array, by its name in the formula.

    Sums of integers are int64 or uint64. All devices compute the same bits, because the shape determines the order of
    the steps.

        dot = kernels.reduce("sum", "x * y", x=np.float32, y=np.float32)
        x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
        print(dot(x, y))  # 6.0
        most, result = kernels.reduce("max", axis=1, A=np.float64), np.empty(2)
        with offload_args(np.array([[1.0, 5.0], [4.0, 3.0]]), result) as (dA, dresult):
            most(dA, dresult)
        print(result)  # [5. 4.]

    Raises SignatureError, and KernelError for a formula that is no expression of kernels.

    See also: kernels.elementwise, kernels.Reduction, kernel; docs/guide/python-kernels.md.
    """
    known = (*_FORMS, *_PLACES)
    if not isinstance(operation, str) or operation not in known:
        name = getattr(operation, "__name__", operation if isinstance(operation, str) else "")
        if name in ("mean", "average"):
            remedy = "; for a mean, divide the sum by x.size"
        elif name in ("std", "var"):
            remedy = "; for a variance, divide the sum of '(x - mean) * (x - mean)' by x.size; mean is a parameter"
        else:
            remedy = f"; write {name!r}" if name in known else ""
            call = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", name)
            if call and call[1] in known:
                remedy = f"; write kernels.reduce({call[1]!r}, ...)"
                if call[2]:
                    remedy = f"; the formula is an argument of its own: kernels.reduce({call[1]!r}, {call[2]!r}, ...)"
        raise SignatureError(f"reduce: operation needs one of {', '.join(known)}; got {shown(operation)}{remedy}")
    if axis not in (None, 0, 1, -1, -2):
        remedy = ", which reduces all elements of an array of any shape"
        raise SignatureError(f"reduce: axis needs 0 or 1 of a matrix (-2 or -1), or None{remedy}; got {shown(axis)}")
    axis = None if axis is None else int(axis) % 2
    if not parameters:
        raise SignatureError("reduce: needs the dtype of each array: x=np.float32")
    for name in [name for name in parameters if name in _KEYWORDS_OF_NUMPY]:
        if not re.search(rf"\b{name}\b", formula or (name if len(parameters) == 1 else "")):
            raise SignatureError(f"reduce: {name} is no keyword of reduce: {_KEYWORDS_OF_NUMPY[name]}")
    if not formula and len(parameters) > 1:
        raise SignatureError(f"reduce: {operation} of several arrays needs a formula, such as 'x * y'")
    formula = formula or next(iter(parameters))
    tree = parsed("reduce", formula)
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        raise SignatureError(f"reduce: {formula!r} needs to be one expression, such as 'x * y'")
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    frame = sys._getframe(2)  # 1 is the frame of `telling`
    scope = {**frame.f_globals, **frame.f_locals}
    written = tree.body[0].value
    if (
        isinstance(written, ast.Call)
        and isinstance(written.func, ast.Name)
        and written.func.id in {*known} - {"min", "max"}
    ):
        inner = "".join(f"{ast.unparse(argument)!r}, " for argument in written.args)
        if written.func.id not in scope:
            raise SignatureError(
                f"reduce: {formula!r} has the operation in it, which is an argument of its own: write "
                f"kernels.reduce({written.func.id!r}, {inner}...)"
            )
    types = {name: _dtype(name, kind) for name, kind in parameters.items()}
    for name in types:
        if name not in used:
            remedy = renamed(used - parameters.keys(), parameters, scope)
            raise SignatureError(f"reduce: {formula!r} does not use the parameter {name}: {remedy}")
    value = of_parameter("reduce: dtype", dtype) if dtype is not None else np.result_type(*types.values())
    if value.kind == "c" and operation not in ("sum", "prod"):
        remedy = "" if dtype is not None else "; pass dtype=np.float64 if the formula's value is real"
        raise SignatureError(f"reduce: {operation} of {value}: complex numbers have no order{remedy}")
    return Reduction(operation, formula, axis, types, value, dtype is None, scope)
