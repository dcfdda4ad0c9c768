"""One call of sparse: a matrix and a dense operand, which are both on the host, or both on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .. import _core
from ..devices import Device, as_device
from ..display import shown
from ..dtypes import as_array, copied, to_numbers
from ..errors import AliasError, ArgumentError, ArgumentTypeError, DTypeError, HostPointerError
from ..linalg._call import Call, Spec
from ..pointers import DevicePtr
from ._checks import arrays_of, cast, check_indices, is_sparse
from ._library import kernels_of
from .matrix import LentMatrix, lent

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from ..linalg._call import Result
    from ._library import Kernels
    from ._vendors import OnGPU

    #: Writes the result of a call. It takes the kernels, the matrix, the operand and the result.
    Work: TypeAlias = Callable[[Kernels | OnGPU, LentMatrix, DevicePtr[Any], DevicePtr[Any]], None]

__all__ = ["factor", "need_number", "need_operand", "run"]

_TYPES: Final = tuple(np.dtype(name) for name in ("float32", "float64", "complex64", "complex128"))
_BASE: Final = 1 << 40  # an address for places, which NumPy takes if it is not 0


def run(
    function: str,
    A: Any,
    operand: tuple[str, Any],
    shape_of: Callable[[tuple[int, int], tuple[int, ...]], tuple[int, ...]],
    work: Work,
    out: DevicePtr[Any] | None,
    check: bool,
    device: Device | str | None,
    on_host: bool = False,
) -> Result:
    """Return the result of a call: a pointer if A is a LentMatrix, else an array.

    operand: the operand's name and value. shape_of: returns the shape of the result for the shapes of A and the
    operand, or raises an error. on_host: whether the host computes with arrays, unless `device` is another device.
    """
    name, value = operand
    if is_sparse(value) or isinstance(value, LentMatrix):
        raise ArgumentTypeError(
            f"{function}: {name} is a sparse matrix, and needs to be dense; pass {name}.toarray(), or call SciPy"
        )
    if isinstance(A, LentMatrix):
        return _of_pointers(function, A, name, value, shape_of, work, out, device)
    if isinstance(value, DevicePtr) or out is not None:
        pointer = name if isinstance(value, DevicePtr) else "out"
        if out is not None and not isinstance(out, DevicePtr):
            raise HostPointerError(
                f"{function}: out needs a DevicePtr, and A a sparse.Matrix, got {type(out).__name__} and "
                f"{type(A).__name__}; leave out `out`, as the result of arrays is a new array"
            )
        raise HostPointerError(
            f"{function}: A needs a sparse.Matrix as {pointer} is a pointer, got {type(A).__name__}; lend it first: "
            f"with sparse.lend(A) as dA"
        )
    arrays = arrays_of(function, A)
    dtype = arrays["data"].dtype
    array = as_array(f"{function}: {name}", value)
    if array.dtype.kind not in "biu" and array.dtype.newbyteorder("=") not in _TYPES:
        raise DTypeError(
            f"{function}: {name} needs float32, float64, complex64 or complex128, got {array.dtype}; "
            f"{to_numbers(name, array.dtype)}"
        )
    shape = shape_of(A.shape, array.shape)
    dtype = np.result_type(dtype, np.float64 if array.dtype.kind in "biu" else array.dtype.newbyteorder("="))
    chosen = Device.default() if device is None and not on_host else as_device(device or "host")
    kernels = kernels_of(function, chosen.number)
    if check:  # before SciPy converts A
        check_indices(function, A, arrays)
    with lent(function, cast(function, A, dtype), False, LentMatrix, device=chosen) as matrix:
        call = Call(function, chosen, **{name: copied(array, dtype)})
        (y,), _ = call.run(lambda dx, dy: work(kernels, matrix, dx, dy), Spec(shape, dtype), whole=True)
    return y


def _of_pointers(
    function: str,
    A: LentMatrix,
    name: str,
    value: Any,
    shape_of: Callable[[tuple[int, int], tuple[int, ...]], tuple[int, ...]],
    work: Work,
    out: DevicePtr[Any] | None,
    device: Device | str | None,
) -> Result:
    operands = {"A": A.data, name: value} | ({} if out is None else {"out": out})
    call = Call(function, device, None, **operands)
    kernels = kernels_of(function, A.data._device)
    shape = shape_of(A.shape, call.shapes[name])
    if out is None:
        (y,), _ = call.run(lambda _, dx, dy: work(kernels, A, dx, dy), Spec(shape, call.dtype), whole=True)
        return y
    if out._shape != shape:
        raise ArgumentError(f"{function}: out has shape {out._shape}, needs {shape}")
    _refuse_overlap(function, A, name, value, out)
    with call.named():
        work(kernels, A, value, out)
    return out


def _refuse_overlap(function: str, A: LentMatrix, name: str, value: DevicePtr[Any], out: DevicePtr[Any]) -> None:
    """Raise AliasError if the result and an operand have a byte in common on the device.

    The call of a library finds no overlap of an operand that is copied, and SciPy's kernels find none.
    """
    written = _Place(out)
    for operand, read in ((name, value), ("A.data", A.data)):
        place = _Place(read)
        is_shared = np.shares_memory(place, written) if place.root == written.root else _core.overlaps(out, read)
        if is_shared:
            raise AliasError(f"{function}: out is written and overlaps {operand}; give it memory of its own")


class _Place:
    """The place of a pointer in its array, as NumPy compares places. No element is read."""

    def __init__(self, pointer: DevicePtr[Any]) -> None:
        self.root, offset = _core.origin(pointer)
        self.__array_interface__ = {
            "version": 3,
            "shape": pointer._shape,
            "strides": pointer._strides,
            "typestr": f"|V{pointer.dtype.itemsize}",
            "data": (_BASE + offset, True),
        }


def need_operand(function: str, name: str, shape: tuple[int, ...], rows: int, matrix: tuple[int, int]) -> None:
    """Raise ArgumentError unless an operand is a vector of `rows` elements, or a matrix of `rows` rows."""
    if len(shape) not in (1, 2) or shape[0] != rows:
        raise ArgumentError(
            f"{function}: {name} has shape {shape}, needs ({rows},) or ({rows}, any) for op(A) of shape {matrix}"
        )


def need_number(function: str, name: str, value: Any) -> complex:
    """Return a factor; raise ArgumentTypeError, or ArgumentError for a large integer, if the value is not a number."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, complex, np.number)):
        raise ArgumentTypeError(f"{function}: {name} needs a number, got {shown(value)}")
    try:
        return complex(value)
    except OverflowError:
        raise ArgumentError(f"{function}: {name} needs a number that float64 can have, got {shown(value)}") from None


def factor(function: str, name: str, value: complex, dtype: np.dtype[Any]) -> complex:
    """Return a factor of elements of a dtype; raise DTypeError for a complex factor of real elements."""
    if dtype.kind == "c":
        return value
    if value.imag != 0:
        raise DTypeError(f"{function}: {name} needs a real number for {dtype}, got {value}")
    return value.real
