"""Stacks: functions of matrices are called for each matrix of operands with more dimensions."""

from __future__ import annotations

import functools
import inspect
import math
import re
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from .._advice import is_of_signature, signature_error
from .._core import query
from .._names import rename
from .._operands import INT32, need_dtype, need_pointer, need_uncaptured
from ..errors import ArgumentError, ExtentError, OffloadError
from ..pointers import DevicePtr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


__all__ = [
    "Infos",
    "StackError",
    "copy_of_stack",
    "diagonal",
    "flat",
    "for_each",
    "in_a_stack",
    "make_identity",
    "stacked",
    "turned",
]

#: LAPACK's info of each matrix of a stack.
Infos: TypeAlias = NDArray[np.int32]

F = TypeVar("F", bound="Callable[..., None]")
_NAMED: Final = 4  # the most matrices that an error names
_COPIED: Final = re.compile(r"(\w+) = np\.asfortranarray\(\1\)")
_in_a_stack: ContextVar[bool] = ContextVar("in_a_stack", default=False)


class StackError(np.linalg.LinAlgError):
    """Some matrices of a stack failed; the results of the other matrices are the same as without a stack.

    `info` has the shape of the stack. It has 0 for a matrix that did not fail, -1 for a matrix with NaN or infinity,
    and LAPACK's info for other failures. A failing matrix and its results have undefined contents.
    """

    info: NDArray[np.int32]

    def __init__(self, text: str, info: NDArray[np.int32]) -> None:
        super().__init__(text)
        self.info = info

    def __reduce__(self) -> tuple[type[StackError], tuple[str, NDArray[np.int32]], dict[str, Any]]:
        return type(self), (str(self), self.info), self.__dict__  # which has the notes


def in_a_stack() -> bool:
    """Return whether the call is for one matrix of a stack, so that its failure does not affect the other matrices."""
    return _in_a_stack.get()


def copy_of_stack(operand: str) -> str:
    """Return the code that copies a stack so that each of its matrices is in Fortran order."""
    return f"{operand} = np.ascontiguousarray({operand}.swapaxes(-1, -2)).swapaxes(-1, -2)"


def flat(pointer: DevicePtr, inner: int = 2) -> DevicePtr | None:
    """Return a stack whose parts have `inner` dimensions, with one dimension for all parts; None if no stride fits."""
    at = len(pointer._shape) - inner
    outer, shape, strides = pointer._shape[:at], pointer._shape[at:], pointer._strides[at:]
    count, step = 1, 0
    for extent, stride in zip(reversed(outer), reversed(pointer._strides[:at]), strict=True):
        if extent == 1:
            continue
        if count > 1 and stride != count * step:
            return None
        if count == 1:
            step = stride
        count *= extent
    if 0 in outer:
        return None
    return pointer._view(0, (count, *shape), (step or math.prod(shape) * pointer.dtype.itemsize, *strides))


def _lie_apart(pointer: DevicePtr) -> bool:
    """Return whether no element of a part is in memory between the elements of the next part.

    The libraries' functions of stacks are not called for other stacks, such as blocks side by side in one matrix.
    """
    (count, *shape), (step, *strides) = pointer._shape, pointer._strides
    reach = sum((extent - 1) * abs(stride) for extent, stride in zip(shape, strides, strict=True))
    return count == 1 or 0 in shape or abs(step) > reach


def turned(pointer: DevicePtr) -> DevicePtr:
    """Return a stack of the transposes, in the same memory."""
    (*outer, m, n), (*steps, down, across) = pointer._shape, pointer._strides
    return pointer._view(0, (*outer, n, m), (*steps, across, down))


def diagonal(pointer: DevicePtr) -> DevicePtr:
    """Return the diagonal of a matrix, or the diagonals of a stack, as vectors."""
    (*outer, m, n), (*steps, down, across) = pointer._shape, pointer._strides
    return pointer._view(0, (*outer, min(m, n)), (*steps, down + across))


def make_identity(matrix: DevicePtr) -> None:
    """Set a matrix to the identity."""
    matrix.fill(0)
    diagonal(matrix).fill(1)


@contextmanager
def _inside() -> Iterator[None]:
    token = _in_a_stack.set(True)
    try:
        yield
    finally:
        _in_a_stack.reset(token)


#: A function that makes one call of the library for a whole stack. It takes the operands, each with one dimension for
#: the stack, and the options. It returns info of each matrix, and a text for failures, in which {info} stands for the
#: info. If the library has no such call, the function does nothing and returns None.
Whole: TypeAlias = "Callable[..., tuple[Infos, str] | None]"


def stacked(
    *operands: str, writes: tuple[str, ...] = (), whole: Whole | None = None, captured: bool = False
) -> Callable[[F], F]:
    """Let a function of a matrix A also take a stack (..., m, n), as a whole or by one call for each matrix.

    operands: the function's operands after A; for a stack, they have the dimensions of the stack before their own.
    writes: the operands that the function overwrites. Such an operand is set to 0 first, so that it may be lent as Out.
    captured: whether a chain can capture the function. A function with the parameter `info` can be captured only with a
    place for info, which has one number for each matrix of a stack.
    """

    def decorate(function: F) -> F:
        has_info = "info" in inspect.signature(function).parameters

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> None:
            A = arguments[0] if arguments else options.get("A")
            if not isinstance(A, DevicePtr) or len(A._shape) < 3 or options.get("devices") is not None:
                try:
                    function(*arguments, **options)
                except TypeError as error:
                    if not is_of_signature(error):
                        raise
                    raise signature_error(function, error) from None
                return
            name, info = f"lapack.{function.__name__}", options.pop("info", None)
            pointers = dict(zip(("A", *operands), arguments, strict=False))
            pointers |= {name: options.pop(name) for name in ("A", *operands) if name in options}
            del pointers["A"]
            known = [A, *(pointer for pointer in pointers.values() if isinstance(pointer, DevicePtr))]
            if has_info:
                _need_infos(name, info, A, known)
            elif writes and not captured:
                need_uncaptured(name, *known)
            for_each(name, function, A, pointers, writes, options, whole, info)

        return cast("F", call)

    return decorate


def for_each(
    name: str,
    function: Callable[..., None],
    A: DevicePtr,
    pointers: dict[str, DevicePtr | None],
    writes: tuple[str, ...],
    options: dict[str, Any],
    whole: Whole | None = None,
    place: DevicePtr | None = None,
) -> None:
    """Call a function for each matrix of a stack; the arguments are as in `stacked`.

    `place` is the place for info, or None.
    """
    batch = A._shape[:-2]
    for operand, pointer in pointers.items():
        if pointer is None:
            continue
        need_pointer(name, operand, pointer)
        if pointer._shape[: len(batch)] != batch or len(pointer._shape) == len(batch):
            raise ArgumentError(
                f"{name}: {operand} has shape {pointer._shape}, needs ({', '.join(map(str, batch))}, ...) for the "
                f"stack A of shape {A._shape}"
            )
    is_captured = any(query(pointer).captured for pointer in (A, *pointers.values()) if pointer is not None)
    for operand in writes:
        written = pointers.get(operand)
        if written is not None and 0 not in written._shape and not (is_captured and query(written).valid):
            written.fill(0)  # each call writes only a part, which is refused for an unwritten Out
    infos_at = None if place is None or 0 in batch else flat(place, 0)
    if infos_at is not None:
        options = {**options, "info": infos_at}
    if whole is not None and 0 not in batch and not is_captured:
        flats = {key: None if p is None else flat(p, len(p._shape) - len(batch)) for key, p in pointers.items()}
        of_A = flat(A)
        parts_of = [of_A, *(flats[key] for key, p in pointers.items() if p is not None)]
        are_apart = all(pointer is not None and _lie_apart(pointer) for pointer in parts_of)
        if are_apart and of_A is not None and (done := whole(of_A, **flats, **options)) is not None:
            infos, reason = done
            if infos.any():
                _refuse(name, infos.reshape(batch), reason.format(info=infos[np.flatnonzero(infos)[0]]))
            return
    info, first = np.zeros(batch, np.int32), ""
    for i, index in enumerate(np.ndindex(*batch)):
        if infos_at is not None:
            options["info"] = infos_at[i : i + 1]
        parts = {operand: None if pointer is None else pointer[index] for operand, pointer in pointers.items()}
        try:
            with _inside():
                function(A[index], **parts, **options)
        except OffloadError as error:  # the caller has the whole stack, which it can copy
            rename(error, _COPIED, lambda copied: copy_of_stack(copied[1]))
            raise
        except np.linalg.LinAlgError as error:
            info[index] = getattr(error, "info", -1)
            first = first or str(error).partition(": ")[2]
    if first:
        _refuse(name, info, first)


def _need_infos(name: str, info: Any, A: DevicePtr, operands: list[DevicePtr]) -> None:
    """Check the place for a stack's info. Raise CaptureError if it is None and the calls are captured."""
    batch = A._shape[:-2]
    if info is None:
        need_uncaptured(name, *operands, instead=f"pass info=, a DevicePtr of int32 and shape {batch}")
        return
    need_pointer(name, "info", info)
    need_dtype(name, "info", info, (INT32,), ", as LAPACK's info is")
    if info._shape != batch or (0 not in batch and flat(info, 0) is None):
        raise ExtentError(
            f"{name}: info has shape {info._shape} and strides {info._strides}, needs shape {batch} for the stack A of "
            f"shape {A._shape}, and numbers at one distance"
        )


def _refuse(name: str, info: NDArray[np.int32], reason: str) -> None:
    failed = [tuple(map(int, index)) for index in np.argwhere(info)]
    names = [f"A[{', '.join(map(str, index))}]" for index in failed]
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    count = math.prod(info.shape)
    raise StackError(
        f"{name}: of {count} matrices {len(names)} failed: {listed}; {names[0]}: {reason}; the others are done: `info` "
        f"of this error has LAPACK's for each",
        info,
    )
