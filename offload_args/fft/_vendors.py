"""Transforms on GPUs by cuFFT and hipFFT: the plan of each layout, and the passes of a transform."""

from __future__ import annotations

import importlib
import math
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from .. import _core, blas
from ..devices import by_number
from ..errors import CaptureError
from ._library import FROM_REAL, TO_REAL, Transforms, is_contiguous, new, scale_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..pointers import DevicePtr

__all__ = ["CuFFT", "HipFFT"]

_MOST_PLANS: Final = 64
_MOST_RANK: Final = 3
# {dtypes of input and output: (the constant of the transform's type, the function that executes the transform)}.
_TYPES: Final = {
    ("F", "F"): ("C2C", "exec_c2c"),
    ("D", "D"): ("Z2Z", "exec_z2z"),
    ("f", "F"): ("R2C", "exec_r2c"),
    ("d", "D"): ("D2Z", "exec_d2z"),
    ("F", "f"): ("C2R", "exec_c2r"),
    ("D", "d"): ("Z2D", "exec_z2d"),
}


class _Layout(NamedTuple):
    """A plan's layout."""

    device: int
    type: str
    lengths: tuple[int, ...]
    input: tuple[tuple[int, ...], int, int]  # dimensions, stride and distance
    output: tuple[tuple[int, ...], int, int]
    batch: int


class _Pass(NamedTuple):
    """The executions of a plan that together transform along some axes."""

    execute: str  # the name of the function that executes the plan
    layout: _Layout
    calls: int
    steps: tuple[int, int]  # elements of the input and of the output from one call to the next


class _One(NamedTuple):
    """One execution that transforms an operand without gaps; it is repeated for later operands of the same layout."""

    execute: Callable[..., None]
    plan: Any
    direction: tuple[Any, ...]
    scale: float
    code: int  # the code of the result's dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    input: tuple[tuple[int], tuple[int]]  # the shape and the strides of all elements in a line
    output: tuple[tuple[int], tuple[int]]

    def run(self, x: DevicePtr) -> DevicePtr:
        """Return the transform of x."""
        y: DevicePtr = _core.scratch((x,), self.code, self.shape, self.strides, True)
        line = _core.view(y, 0, *self.output)
        self.execute(self.plan, _core.view(x, 0, *self.input), line, *self.direction)
        if self.scale != 1:
            blas.scal(self.scale, line)
        return y


class OnGPU(Transforms):
    """Transforms by a library whose plans have layouts. A plan is used for all later transforms of its layout."""

    library: ClassVar[str]
    backward: ClassVar[str]  # the library's constant for inverse transforms
    is_hipfft: ClassVar[bool] = False

    def __init__(self) -> None:
        self._module: Any = importlib.import_module(f"{__package__.rpartition('.')[0]}.{self.library}")
        self._plans: OrderedDict[_Layout, Any] = OrderedDict()  # the most recently used plan is last
        self._lock = Lock()
        self._host: Transforms | None = None  # made at its first use

    def run(
        self, name: str, x: DevicePtr, y: DevicePtr, lengths: Sequence[int], axes: Sequence[int], norm: str
    ) -> None:
        if y.size == 0:
            return
        inverse = name.startswith("i")
        # A transform along an axis of length 1 changes nothing, and a vendor's library may refuse it.
        longer = [axis for axis, length in zip(axes, lengths, strict=True) if length > 1]
        converts = x.dtype.kind != ("f" if name in FROM_REAL else "c")  # the GPU's libraries do not convert
        if name in FROM_REAL + TO_REAL:
            if converts or lengths[-1] == 1:
                self._on_host(name, x, y, lengths, axes, norm)
                return
            halves = [*lengths[:-1], lengths[-1] // 2 + 1]
        if name in FROM_REAL:
            self._from_real(_fitted(x, lengths, axes, fresh=self.is_hipfft), y, longer)  # hipFFT may overwrite x
            if name.startswith("ihfft"):
                _conjugate(y, y)
        elif name in TO_REAL:
            copy = _fitted(x, halves, axes, fresh=True)
            if name.startswith("hfft"):
                _conjugate(copy, copy)
            self._to_real(copy, y, longer)
        elif not converts:
            self._complex(x, y, longer, inverse)
        elif longer:
            self._whole_from_real(_fitted(x, lengths, axes, fresh=self.is_hipfft), y, longer, inverse)
        else:
            self._on_host(name, x, y, lengths, axes, norm)
            return
        scale = scale_of(inverse, math.prod(lengths), norm)
        if scale != 1:
            blas.scal(scale, y.reshape(-1))

    def again(
        self, name: str, x: DevicePtr, y: DevicePtr, lengths: Sequence[int], axes: Sequence[int], norm: str
    ) -> Callable[[DevicePtr], DevicePtr] | None:
        # Three kinds of input are copied: the input of a real transform of hipFFT, which overwrites it, the input of a
        # transform from halves, and real numbers at an address that cuFFT does not take.
        is_complex = x.dtype == y.dtype and x._shape == y._shape and name not in FROM_REAL + TO_REAL
        halves = name.startswith("rfft") and x.dtype.kind == "f" and not self.is_hipfft
        longer = [axis for axis, length in zip(axes, lengths, strict=True) if length > 1]
        if not (is_complex or (halves and lengths[-1] > 1)) or not y.size or not longer or not is_contiguous(x):
            return None
        if halves and not (_fits(x, lengths, axes) and _are_last(x._shape, longer)):
            return None
        passes = [tuple(longer)] if halves else _passes(y._shape, longer)
        executions = self._pass_of(x, y, passes[0])
        if len(passes) > 1 or executions.calls > 1:
            return None
        inverse = name.startswith("i")
        direction = (getattr(self._module, self.backward if inverse else "FORWARD"),) if is_complex else ()
        scale = scale_of(inverse, math.prod(lengths), norm)
        lines = [((pointer.size,), (pointer.dtype.itemsize,)) for pointer in (x, y)]
        execute = getattr(self._module, executions.execute)
        return _One(
            execute, self._plan(executions.layout), direction, scale, y._dtype_code, y._shape, y._strides, *lines
        ).run

    def _on_host(
        self, name: str, x: DevicePtr, y: DevicePtr, lengths: Sequence[int], axes: Sequence[int], norm: str
    ) -> None:
        """Transform on the host in two rare cases: complex transforms of a real x, and lines of one real number."""
        if _core.query(x).captured:
            raise CaptureError(
                f"fft.{name}: the region is being captured, and the host converts between real and complex numbers for "
                f"this call; make it outside of the capture"
            )
        if self._host is None:
            self._host = Transforms()
        y.assign(self._host.compute(name, x.to_host(), lengths, axes, norm, y.dtype))

    # -- transforms --------------------------------------------------------------------------------------------

    def _complex(self, x: DevicePtr, y: DevicePtr, axes: Sequence[int], inverse: bool) -> None:
        """Transform complex numbers."""
        source = x
        if x._shape != y._shape or not is_contiguous(x) or not axes:
            _fit(x, y)
            source = y
        for pass_ in _passes(y._shape, axes):
            self._pass(source, y, pass_, inverse)
            source = y

    def _from_real(self, x: DevicePtr, y: DevicePtr, axes: Sequence[int]) -> None:
        """Transform real numbers to the first half along the last of the axes."""
        if _are_last(x._shape, axes):
            self._pass(x, y, tuple(axes))
            return
        self._pass(x, y, (axes[-1],))
        for pass_ in _passes(y._shape, axes[:-1]):
            self._pass(y, y, pass_)

    def _to_real(self, x: DevicePtr, y: DevicePtr, axes: Sequence[int]) -> None:
        """Transform the first half along the last of the axes to real numbers. `x` is a copy, which is overwritten."""
        if _are_last(y._shape, axes) and not self.is_hipfft:
            self._pass(x, y, tuple(axes), inverse=True)
            return
        for pass_ in _passes(x._shape, axes[:-1]):
            self._pass(x, x, pass_, inverse=True)
        if self.is_hipfft:
            _make_ends_real(x, axes[-1], y._shape[axes[-1]])
        self._pass(x, y, (axes[-1],), inverse=True)

    def _whole_from_real(self, x: DevicePtr, y: DevicePtr, axes: Sequence[int], inverse: bool) -> None:
        """Transform real numbers to the whole result, whose second half along an axis is the first half's conjugate."""
        axis = axes[-1]
        n = x._shape[axis]
        half = new(y, (*x._shape[:axis], n // 2 + 1, *x._shape[axis + 1 :]), y.dtype)
        self._pass(x, half, (axis,))
        conjugates = new(y, half._shape, y.dtype)
        _conjugate(half, conjugates)
        if inverse:
            half, conjugates = conjugates, half
        y.fill(0)  # the first write to an Out has to write all elements, and each copy writes only some
        before = (slice(None),) * axis
        y[(*before, slice(n // 2 + 1))].copy_from(half)
        if n > 2:
            rest = slice((n - 1) // 2, 0, -1)
            y[(*before, slice(n // 2 + 1, None))].copy_from(conjugates[(*before, rest)])
        for pass_ in _passes(y._shape, axes[:-1]):
            self._pass(y, y, pass_, inverse)

    # -- passes ------------------------------------------------------------------------------------------------

    def _pass(self, x: DevicePtr, y: DevicePtr, axes: tuple[int, ...], inverse: bool = False) -> None:
        """Transform along neighbouring axes. Several axes have to be the last axes of the arrays.

        x and y are in C order; x may be y.
        """
        function, layout, calls, steps = self._pass_of(x, y, axes)
        if calls > 1 and x is not y and x.dtype == y.dtype:
            y.copy_from(x)  # the first write to an Out has to write all elements, and each call writes only some
            x = y
        elif calls > 1 and x is not y:
            y.fill(0)
        plan = self._plan(layout)
        direction: tuple[Any, ...] = ()
        if x.dtype == y.dtype:
            direction = (getattr(self._module, self.backward if inverse else "FORWARD"),)
        execute = getattr(self._module, function)
        flat_x, flat_y = x.reshape(-1), y.reshape(-1)
        shifted = block = None  # cuFFT takes real numbers only at addresses that are aligned for complex numbers
        for call in range(calls):
            at, to = (call * step for step in steps)
            if x.dtype.kind == "f" and at % 2:
                if shifted is None:
                    shifted = new(x, (x.size - 1,), x.dtype)
                    shifted.copy_from(flat_x.offset(1))
                part = shifted.offset(at - 1)
            else:
                part = flat_x.offset(at) if at else flat_x
            if y.dtype.kind == "f" and to % 2:
                if block is None:
                    block = new(y, (steps[1],), y.dtype)
                execute(plan, part, block)
                flat_y[to : to + steps[1]].copy_from(block)
            else:
                execute(plan, part, part if x is y else flat_y.offset(to) if to else flat_y, *direction)

    def _pass_of(self, x: DevicePtr, y: DevicePtr, axes: tuple[int, ...]) -> _Pass:
        """Return the executions of a pass."""
        lengths = tuple(max(x._shape[axis], y._shape[axis]) for axis in axes)  # the real operand is longer
        type_, function = _TYPES[x.dtype.char, y.dtype.char]
        outer = math.prod(x._shape[: axes[0]])
        inner = math.prod(x._shape[axes[-1] + 1 :])
        sizes = [math.prod(pointer._shape[axes[0] : axes[-1] + 1]) * inner for pointer in (x, y)]
        embeds = [tuple(pointer._shape[axis] for axis in axes) for pointer in (x, y)]
        # The batch is either all elements of the axes before these, or all elements of the axes after these. The
        # remaining axes have one call for each of their elements. A block of a real result has no gaps, so that one
        # copy suffices.
        by_outer = inner <= outer and y.dtype.kind == "c"
        calls, batch = (inner, outer) if by_outer else (outer, inner)
        distances = sizes if by_outer else [1, 1]
        steps = (1, 1) if by_outer else (sizes[0], sizes[1])
        layout = _Layout(
            x._device, type_, lengths, (embeds[0], inner, distances[0]), (embeds[1], inner, distances[1]), batch
        )
        return _Pass(function, layout, calls, steps)

    def _plan(self, layout: _Layout) -> Any:
        """Return the plan of a layout, without a work area, because the device has the work areas."""
        with self._lock:
            plan = self._plans.get(layout)
            if plan is not None:
                self._plans.move_to_end(layout)
                return plan
        plan = self._module.create(device=by_number(layout.device))
        self._module.set_auto_allocation(plan, 0)
        type_ = getattr(self._module, layout.type)
        sizes = (*layout.input, *layout.output)
        self._module.make_plan_many64(plan, len(layout.lengths), layout.lengths, *sizes, type_, layout.batch)
        with self._lock:
            self._plans[layout] = plan
            if len(self._plans) > _MOST_PLANS:
                self._plans.popitem(last=False)  # a call that uses the plan has a reference to it
        return plan


class CuFFT(OnGPU):
    """Transforms by cuFFT."""

    backend = "cuda"
    library = "cufft"
    backward = "INVERSE"


class HipFFT(OnGPU):
    """Transforms by hipFFT."""

    backend = "hip"
    library = "hipfft"
    backward = "BACKWARD"
    is_hipfft = True


def _are_last(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """Return whether axes are the last axes of a shape, in order, and no more axes than a plan can have."""
    return len(axes) <= _MOST_RANK and list(axes) == list(range(len(shape) - len(axes), len(shape)))


def _passes(shape: Sequence[int], axes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the passes of a transform along axes in any order. A pass over the last axes has up to three axes."""
    rest = sorted(axes)
    count = 0
    while count < min(len(rest), _MOST_RANK) and rest[-1 - count] == len(shape) - 1 - count:
        count += 1
    together = [tuple(rest[len(rest) - count :])] if count else []
    return together + [(axis,) for axis in reversed(rest[: len(rest) - count])]


def _fit(x: DevicePtr, y: DevicePtr) -> None:
    """Copy x to y; along each axis, x is cut, or zeros are added."""
    common = tuple(slice(min(a, b)) for a, b in zip(x._shape, y._shape, strict=True))
    if any(a < b for a, b in zip(x._shape, y._shape, strict=True)):
        y.fill(0)
    if common:
        x, y = x[common], y[common]
    y.copy_from(x)


def _fits(x: DevicePtr, lengths: Sequence[int], axes: Sequence[int]) -> bool:
    """Return whether x has these lengths along axes, is in C order, and has an address that cuFFT takes."""
    # cuFFT takes real numbers only at addresses that are aligned for complex numbers.
    is_odd = x.dtype.kind == "f" and _core.origin(x)[1] % (2 * x.dtype.itemsize) != 0
    return not is_odd and [x._shape[axis] for axis in axes] == list(lengths) and is_contiguous(x)


def _fitted(x: DevicePtr, lengths: Sequence[int], axes: Sequence[int], fresh: bool = False) -> DevicePtr:
    """Return x with these lengths along axes, in C order. With `fresh`, always return a copy."""
    if not fresh and _fits(x, lengths, axes):
        return x
    shape = list(x._shape)
    for axis, length in zip(axes, lengths, strict=True):
        shape[axis] = length
    fitted = new(x, tuple(shape), x.dtype)
    _fit(x, fitted)
    return fitted


def _make_ends_real(x: DevicePtr, axis: int, n: int) -> None:
    """Set the imaginary parts that are 0 in a transform of n real numbers to 0. NumPy and cuFFT read them as 0."""
    for place in {0, n // 2} if n % 2 == 0 else {0}:
        part = x[(*(slice(None),) * axis, slice(place, place + 1))]
        values, real = (new(x, (part.size,), x.dtype) for _ in range(2))
        values.reshape(part._shape).copy_from(part)
        blas.geam(0.5, values.reshape((1, -1)), 0.5, values.reshape((-1, 1)), real.reshape((1, -1)), trans_b="C")
        part.copy_from(real.reshape(part._shape))


def _conjugate(x: DevicePtr, y: DevicePtr) -> None:
    """Write the conjugates of x, in C order, to y, which may be x."""
    source = x
    if x is y:
        source = new(x, x._shape, x.dtype)
        source.copy_from(x)
    row, column = source.reshape((1, -1)), y.reshape((-1, 1))
    blas.geam(1.0, row, 0.0, row, column, trans_a="C", trans_b="C")
