"""One call of linalg or fft: its operands, which are arrays or pointers, and its results, of the same kind."""

from __future__ import annotations

import re
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np

from .. import _core
from .._names import rename
from .._operands import LETTERS, is_no_array, need_dense, need_dtype, of_sparse
from ..arguments import In, Out
from ..devices import Device, as_device
from ..display import described, shown, with_article
from ..dtypes import as_array, c_strides, code_of, copied, to_numbers
from ..errors import (
    ArgumentError,
    CaptureError,
    DTypeError,
    ForkedError,
    HostPointerError,
    OffloadError,
    StalePointerError,
    WrongDeviceError,
)
from ..pointers import DevicePtr
from ..regions import offload_args

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

__all__ = ["Call", "Operand", "Result", "Spec", "new"]

#: An operand: an array, an object that numpy.asarray converts, or a pointer of an open region.
Operand: TypeAlias = Any
#: A result: arrays for arrays, pointers for pointers.
Result: TypeAlias = Any

_TYPES: Final = tuple(np.dtype(name) for name in ("float32", "float64", "complex64", "complex128"))

# The start of an error about memory or a region, with an argument's number, and the text for an argument in the middle
# of an error.
_OF_REGION: Final = re.compile(r"^(?:DevicePtr|offload_args): (?:argument (\d+))?")
_OWN_ARGUMENT: Final = re.compile(r"argument \d+ of the region at [^,]*linalg[/\\]_call\.py:\d+")


class Spec(NamedTuple):
    """A result: its shape, its dtype, and the order of its matrices, "C" or "F"."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: str = "C"


def _strides(spec: Spec) -> tuple[int, ...]:
    """Return the strides in bytes of an array with this shape and order, whose matrices have no gaps between."""
    shape = spec.shape
    if spec.order == "C" or len(shape) < 2:
        return c_strides(shape, spec.dtype.itemsize)
    *outer, down, across = c_strides((*shape[:-2], shape[-1], shape[-2]), spec.dtype.itemsize)
    return (*outer, across, down)


def new(
    like: DevicePtr, shape: tuple[int, ...], dtype: np.dtype[Any], order: str = "C", of_graph: bool = False
) -> DevicePtr:
    """Take memory in the region of a pointer `like`. The memory is freed with the last pointer to it.

    With `of_graph`, memory is also taken while the region is captured. If a call of the graph has this memory as an
    operand, the graph keeps it, too.
    """
    pointer: DevicePtr = _core.scratch((like,), code_of(dtype), shape, _strides(Spec(shape, dtype, order)), of_graph)
    return pointer


def _empty(spec: Spec) -> NDArray[Any]:
    if spec.order == "C" or len(spec.shape) < 2:
        return np.empty(spec.shape, spec.dtype)
    return np.empty((*spec.shape[:-2], spec.shape[-1], spec.shape[-2]), spec.dtype).swapaxes(-1, -2)


class Call:
    """One call of a function. `name` is the function's name in messages, such as "linalg.solve"."""

    takes_float16: ClassVar[bool] = False  # whether arrays of float16 are converted to float32

    def __init__(
        self, name: str, device: Device | str | None, instead: str | None = "", /, **operands: Operand
    ) -> None:
        """Read the operands.

        `instead` names the calls that a graph can have instead; None if a graph can have this call.
        """
        self.name = name
        self._module = name.partition(".")[0]
        self.on_device = any(isinstance(value, DevicePtr) for value in operands.values())
        self._device = device
        self._wraps: dict[str, Callable[[Any], Any]] = {}
        self._given = operands
        self.shapes: dict[str, tuple[int, ...]] = {}
        if self.on_device:
            self._check_pointers()
            if instead is not None:
                self.need_uncaptured(instead)
            self._arrays: list[Any] = list(operands.values())
        else:
            self._arrays = [self._array_of(operand, value) for operand, value in operands.items()]
        for operand, array in zip(operands, self._arrays, strict=True):
            self.shapes[operand] = tuple(array.shape)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the computation.

        Reading it raises DTypeError for arrays that can't be converted to such a dtype.
        """
        return self._arrays[0].dtype if self.on_device else self._common_dtype()

    @property
    def real(self) -> np.dtype[Any]:
        """The dtype of absolute values."""
        return np.dtype(self.dtype.char.lower() if self.dtype.kind == "c" else self.dtype)

    @property
    def device(self) -> Device:
        """The device that computes with arrays."""
        return Device.default() if self._device is None else as_device(self._device)

    # -- operands --------------------------------------------------------------------------------------------

    def _check_pointers(self) -> None:
        first: tuple[str, DevicePtr] | None = None
        pointer_named = next(key for key, value in self._given.items() if isinstance(value, DevicePtr))
        for operand, value in self._given.items():
            if not isinstance(value, DevicePtr):
                remedy = "pass the pointer of an array" if is_no_array(value) else "lend it too, or pass arrays only"
                raise HostPointerError(
                    f"{self.name}: {operand} needs a DevicePtr as {pointer_named} is one, got {described(value)}; "
                    f"{of_sparse(value) or remedy}"
                )
            if first is None:
                need_dtype(self.name, operand, value, LETTERS)
                first = operand, value
            else:
                need_dtype(self.name, operand, value, (first[1]._dtype_code,), f" as {first[0]} has")
            if not value.live:
                try:
                    _core.query(value)  # a forked child has another reason
                except ForkedError as error:
                    rename(error, "^DevicePtr", self.name)
                    raise
                except OffloadError:
                    pass
                raise StalePointerError(f"{self.name}: {operand} belongs to a region that has ended; call it inside")
            if first[1]._device != value._device:
                raise WrongDeviceError(
                    f"{self.name}: {operand} is on {value.device}, and {first[0]} is on {first[1].device}; all "
                    f"pointers of a call must be on one device: lend its arrays in one region"
                )
            if self._device is not None and as_device(self._device).number != value._device:
                raise WrongDeviceError(
                    f"{self.name}: {operand} is on {value.device}, got device={shown(str(self._device))}; leave device "
                    f"out for pointers"
                )

    def need_uncaptured(self, instead: str) -> None:
        """Raise CaptureError if a pointer's region is being captured.

        `instead` names the calls that a capture can have.
        """
        if self.on_device and any(_core.query(pointer).captured for pointer in self._given.values()):
            raise CaptureError(
                f"{self.name}: the region is being captured, and the host takes part in this function: "
                f"{f'call {instead} on memory that is lent before, or ' if instead else ''}call it outside of the "
                f"capture"
            )

    def _array_of(self, operand: str, value: Any) -> NDArray[Any]:
        need_dense(self.name, operand, value)
        array = as_array(f"{self.name}: {operand}", value)
        self._wraps[operand] = getattr(value, "__array_wrap__", array.__array_wrap__)
        return array

    def _common_dtype(self) -> np.dtype[Any]:
        """Return the dtype of the computation by NumPy's rules, in which integers count as float64.

        With `takes_float16`, float16 counts as float32.
        """
        double = is_complex = False
        for operand, array in zip(self._given, self._arrays, strict=True):
            dtype = array.dtype.newbyteorder("=")
            if dtype.kind in "biu":
                double = True
            elif dtype == np.float16 and self.takes_float16:
                pass
            elif dtype in _TYPES:
                double |= dtype.char in "dD"
                is_complex |= dtype.kind == "c"
            else:
                raise DTypeError(
                    f"{self.name}: array type {array.dtype} of {operand} is unsupported in {self._module}; "
                    f"{to_numbers(operand, array.dtype)}"
                )
        return _TYPES[double + 2 * is_complex]

    def arrays(self) -> list[NDArray[Any]]:
        """Return the operands, which are arrays, in the dtype of the computation."""
        return [copied(array, self.dtype) for array in self._arrays]

    def need_inexact(self) -> None:
        """Raise DTypeError for integers: no BLAS library multiplies integers."""
        for operand, array in zip(self._given, self._arrays, strict=True):
            if array.dtype.kind in "biu":
                raise DTypeError(
                    f"{self.name}: {operand} needs float32, float64, complex64 or complex128, got {array.dtype}; pass "
                    f"{operand}.astype(np.float64), or use NumPy's function, whose products of integers are exact"
                )

    def need_stack(self, operand: str = "a") -> tuple[int, ...]:
        """Return the shape of an operand; raise LinAlgError unless it is a matrix or a stack of matrices."""
        shape = self.shapes[operand]
        if len(shape) < 2:
            raise np.linalg.LinAlgError(
                f"{self.name}: {operand} is a {len(shape)}-dimensional array, and needs at least two dimensions"
            )
        return shape

    def need_matrix(self, operand: str) -> tuple[int, ...]:
        """Return the shape of an operand; raise LinAlgError unless it is one matrix."""
        shape = self.shapes[operand]
        if len(shape) != 2:
            raise np.linalg.LinAlgError(
                f"{self.name}: {operand} is {with_article(f'{len(shape)}-dimensional array')}, and needs two "
                "dimensions; call it for each matrix"
            )
        return shape

    def need_square(self, operand: str = "a") -> tuple[int, ...]:
        """Return the shape of an operand; raise LinAlgError unless its matrices are square."""
        shape = self.need_stack(operand)
        if shape[-1] != shape[-2]:
            remedy = "; linalg.lstsq takes other shapes" if self.name in ("linalg.solve", "linalg.inv") else ""
            raise np.linalg.LinAlgError(f"{self.name}: {operand} has shape {shape}, and needs square matrices{remedy}")
        return shape

    def order_of(self, operand: str) -> str:
        """Return the order of an operand's matrices: "F" if they have only Fortran order, otherwise "C"."""
        array = self._arrays[list(self._given).index(operand)]
        if array.ndim < 2 or array.shape[-1] == 1:
            return "C"
        itemsize = array.dtype.itemsize
        down, across = array.strides[-2:]
        return "F" if down == itemsize and (across != itemsize or array.shape[-2] > 1) else "C"

    def broadcast(self, *batches: tuple[int, ...]) -> tuple[int, ...]:
        """Return the common shape of stacks; raise ArgumentError, a ValueError, if there is none."""
        try:
            return np.broadcast_shapes(*batches)
        except ValueError:
            shapes = " and ".join(f"{operand} of shape {shape}" for operand, shape in self.shapes.items())
            raise ArgumentError(f"{self.name}: {shapes} can't be broadcast together") from None

    # -- the computation -------------------------------------------------------------------------------------

    @contextmanager
    def named(self) -> Iterator[None]:
        """Add the names of the function and its operands to each error about memory or the region in a block."""
        try:
            yield
        except OffloadError as error:
            if _OF_REGION.match(str(error)):
                rename(error, _OF_REGION, self._name_of_argument)
                rename(error, _OWN_ARGUMENT, f"an operand or result of {self._module}")
            raise

    def _name_of_argument(self, match: re.Match[str]) -> str:
        if match[1] is None:
            return f"{self.name}: "
        operands, position = list(self._given), int(match[1])
        name = operands[position - 1] if position <= len(operands) else f"result {position - len(operands)}"
        return f"{self.name}: {name}"

    def run(self, work: Callable[..., Any], *specs: Spec, whole: bool = False) -> tuple[list[Any], Any]:
        """Call `work` with pointers to the operands and to the results. Return the results, and the value of `work`.

        `whole`: whether the first write of `work` to a result writes all of the result.
        """
        with self.named():
            return self._run(work, specs, whole)

    def _run(self, work: Callable[..., Any], specs: tuple[Spec, ...], whole: bool) -> tuple[list[Any], Any]:
        if self.on_device:
            outputs = [
                _core.scratch(tuple(self._arrays), code_of(spec.dtype), spec.shape, _strides(spec), True)
                for spec in specs
            ]
            return outputs, work(*self._arrays, *outputs)
        results = [_empty(spec) for spec in specs]
        lent = [In(_ready(array, self.dtype)) for array in self._arrays]
        region = offload_args(*lent, *map(Out, results), device=self._device)
        with region as pointers:
            try:
                for pointer in () if whole else pointers[len(lent) :]:
                    if len(pointer._shape) > 1 and pointer.size:  # an Out's first write can't be a list of matrices
                        pointer.fill(0)
                value = work(*pointers)
            except BaseException:
                region.discard()  # no warning about lost results is needed, because the caller has no result
                raise
        return results, value

    def wrapped(self, operand: str, result: Any) -> Any:
        """Return a result in the class of an operand, such as numpy.matrix; return a pointer unchanged."""
        return result if self.on_device else self._wraps[operand](result)

    def scalar(self, result: Any) -> Any:
        """Return a result without dimensions as NumPy's scalar."""
        return result if self.on_device else result[()]


def _ready(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array of the dtype whose matrices are in C or Fortran order, and whose stack has no gaps.

    An array that already has this form is returned unchanged.
    """
    array = copied(array, dtype)
    if array.ndim == 0:
        return array
    if array.size == 0:
        return copied(array, dtype, "C")
    if array.ndim == 1:
        return array if array.strides[0] == array.itemsize else copied(array, dtype, "C")
    if array.ndim == 2:
        (m, n), (down, across), itemsize = array.shape, array.strides, array.itemsize
        by_rows = across == itemsize and down >= n * itemsize and down % itemsize == 0
        by_columns = down == itemsize and across >= m * itemsize and across % itemsize == 0
        return array if by_rows or by_columns else copied(array, dtype, "C")
    contiguous = array.flags.c_contiguous or array.swapaxes(-1, -2).flags.c_contiguous
    return array if contiguous else copied(array, dtype, "C")
