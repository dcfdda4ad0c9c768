"""The dtypes that devices can hold, by the core's numbers (oa_dtype)."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from . import _core
from .display import shown
from .errors import ArgumentError, ArgumentTypeError, OffloadError, SignatureError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "C_NAMES",
    "DTYPE_NAMES",
    "as_array",
    "as_dtype",
    "before_copy",
    "c_strides",
    "code_of",
    "converted",
    "copied",
    "dtype_of",
    "newest",
    "of_parameter",
    "ordered",
    "refuse_masked",
    "spelled",
    "to_numbers",
]

DTYPE_NAMES: Final = tuple(name for name, _, _, _ in _core.DTYPES)  #: NumPy's names, such as "float32"
C_NAMES: Final = tuple(name for _, name, _, _ in _core.DTYPES)  #: the names in C types, such as "f32" in oa_f32

# Dtypes that NumPy itself lacks are added at their first use.
_DTYPES: Final[dict[int, np.dtype[Any]]] = {
    code: np.dtype(name) for code, (name, _, _, kind) in enumerate(_core.DTYPES) if kind
}


def dtype_of(code: int) -> np.dtype[Any]:
    """Return the NumPy dtype of an oa_dtype."""
    dtype = _DTYPES.get(code)
    if dtype is None:
        import ml_dtypes  # an array has its dtype, so it is installed

        dtype = _DTYPES[code] = np.dtype(getattr(ml_dtypes, DTYPE_NAMES[code]))
    return dtype


def code_of(dtype: np.dtype[Any]) -> int:
    """Return the oa_dtype of a NumPy dtype, or -1 if devices can't hold it."""
    if dtype.isnative and dtype.name in DTYPE_NAMES:
        return DTYPE_NAMES.index(dtype.name)
    return -1


def spelled(name: str) -> str:
    """Return a dtype's name in a program: "np.float32", or "ml_dtypes.bfloat16" if NumPy lacks it."""
    if name == "bool":
        return "np.bool_"  # NumPy 1.26 has no np.bool
    return f"np.{name}" if hasattr(np, name) else f"ml_dtypes.{name}"


def as_dtype(function: str, dtype: Any, shape: Any) -> np.dtype[Any]:
    """Return NumPy's dtype; raise ArgumentTypeError for other objects, such as the second extent of a shape."""
    try:
        result: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        extents = isinstance(dtype, int) and isinstance(shape, int)
        remedy = f"; extents stand in a tuple: {function}(({shape}, {dtype}))" if extents else ", such as np.float32"
        raise ArgumentTypeError(f"{function}: dtype needs a dtype of NumPy, got {dtype!r}{remedy}") from None
    return result


def of_parameter(subject: str, kind: Any) -> np.dtype[Any]:
    """Return the dtype of a kernel's parameter; raise SignatureError for other objects."""
    try:
        result: np.dtype[Any] = np.dtype(kind)
    except TypeError:
        raise SignatureError(f"{subject} needs a dtype of NumPy, such as np.float32, got {shown(kind)}") from None
    return result


def converted(operand: str, name: str, pointer: Any = None) -> str:
    """Return the remedy for an operand of another dtype. The array keeps its name, so a result reaches the caller.

    pointer: the operand, if a region lends it.
    """
    state = _state(pointer)
    if state and state.scratch:
        return f"request Scratch({pointer._shape}, {spelled(name)})"
    return f"convert it first: {before_copy(operand, pointer)}{operand} = {operand}.astype({spelled(name)})"


def to_numbers(operand: str, dtype: np.dtype[Any]) -> str:
    """Return the remedy for values of a dtype that BLAS does not have."""
    if dtype.kind not in "biufcO":
        return "pass an array of numbers"
    return f"convert it first: {operand}.astype({'np.complex128' if dtype.kind == 'c' else 'np.float64'})"


def ordered(operand: str, pointer: Any, copy: str = "ascontiguousarray") -> str:
    """Return the remedy for an operand of another order; `copy` is the NumPy function that makes an ordered copy."""
    state = _state(pointer)
    if state and state.scratch:
        order = ', order="F"' if copy == "asfortranarray" else ""
        return f"copy it to a pointer d of Scratch({pointer._shape}, dtype{order}), d.copy_from({operand}), and pass d"
    return f"copy it first: {before_copy(operand, pointer)}{operand} = np.{copy}({operand})"


def before_copy(operand: str, pointer: object) -> str:
    """Return the code to run before an operand's array is copied: "update(x); " if calls wrote it, otherwise ""."""
    state = _state(pointer)
    return f"update({operand}); " if state and state.written and state.valid else ""


def _state(pointer: object) -> _core.PointerInfo | None:
    """Return the facts of a pointer; None for other objects, and after the end of its region."""
    try:
        return _core.query(pointer) if isinstance(pointer, _core.Pointer) else None
    except OffloadError:
        return None


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides in bytes of a C-order array with no gaps."""
    strides: list[int] = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def as_array(subject: str, argument: Any) -> NDArray[Any]:
    """Return an argument as an array; raise ArgumentError for lists that are no array.

    subject: the names of the function and of the argument, for errors.
    """
    refuse_masked(subject, argument)
    try:
        if not isinstance(argument, np.ndarray):
            newest(argument, subject.partition(": ")[0])
        array = np.asarray(argument)
    except ValueError as error:
        raise ArgumentError(f"{subject} needs an array, or lists that NumPy can convert to an array: {error}") from None
    if array.ndim == 0 and array.dtype.kind in "OSU" and not isinstance(argument, np.ndarray):
        raise ArgumentTypeError(f"{subject} needs an array, got {shown(argument)}")
    return array


def newest(argument: Any, function: str = "update") -> None:
    """Bring the newest bytes of an array, or of the arrays in a list, to the host, which is about to read them.

    Does nothing for memory that no region lends, or that no call has written.

    function: the name of the function that reads, for errors.

    Raises the errors of `update`, except for memory that is lent in part, or not at all.
    """
    if isinstance(argument, np.ndarray):
        dtype = argument.dtype
        try:
            _core.update_newest(
                argument if dtype.isnative or dtype.hasobject else argument.view(dtype.newbyteorder("="))
            )
        except OffloadError as error:
            error.args = (re.sub("^update", function, str(error)),)
            raise
    elif isinstance(argument, (list, tuple)):
        for part in argument:
            if isinstance(part, (np.ndarray, list, tuple)):
                newest(part, function)


def copied(
    array: NDArray[Any], dtype: np.dtype[Any], order: Literal["C", "K"] = "K", always: bool = False
) -> NDArray[Any]:
    """Return the newest elements of an array as a plain array of the dtype, in C order or in their own order.

    Unless `always`, an array that already is one is returned unchanged, and its bytes on the host may be old.
    """
    plain = np.asarray(array)
    if not always and plain.dtype == dtype and (order == "K" or plain.flags.c_contiguous):
        return plain
    newest(plain)
    return np.array(plain, dtype, order=order)


def refuse_masked(subject: str, argument: object) -> None:
    """Raise ArgumentTypeError for a masked array, without importing numpy.ma."""
    # While another thread imports the module, the class may be missing; then no object of this class exists yet.
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    if masked is not None and isinstance(argument, masked):
        raise ArgumentTypeError(
            f"{subject} is a masked array, whose mask would be lost: pass x.data or x.filled(value)"
        )
