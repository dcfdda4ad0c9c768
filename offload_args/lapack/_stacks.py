"""Stacks: functions of matrices, called for each matrix of operands with more dimensions."""

from __future__ import annotations

import functools
import math
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import numpy as np

from .._operands import need_pointer
from ..errors import ArgumentError
from ..pointers import DevicePtr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

__all__ = ["StackError", "in_a_stack", "stacked"]

F = TypeVar("F", bound="Callable[..., None]")
_NAMED: Final = 4  # matrices that an error names
_in_a_stack: ContextVar[bool] = ContextVar("in_a_stack", default=False)


class StackError(np.linalg.LinAlgError):
    """Some matrices of a stack failed; the others are as if they had been alone.

    `info` has the shape of the stack: 0 for a matrix that did not fail, else LAPACK's info of it, or -1 for NaN and
    infinity. What a failing matrix and its results hold is undefined.
    """

    info: NDArray[np.int32]

    def __init__(self, text: str, info: NDArray[np.int32]) -> None:
        super().__init__(text)
        self.info = info


def in_a_stack() -> bool:
    """Return whether the call is that of one matrix of a stack, whose failure says nothing of the others."""
    return _in_a_stack.get()


@contextmanager
def _inside() -> Iterator[None]:
    token = _in_a_stack.set(True)
    try:
        yield
    finally:
        _in_a_stack.reset(token)


def stacked(*operands: str, writes: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Have a function of a matrix A take a stack (..., m, n), and call it for each matrix of that.

    operands: the function's operands after A, which then have the dimensions of the stack before their own. writes:
    those that it overwrites; they may be lent as Out, as a whole.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> None:
            A = arguments[0] if arguments else options.get("A")
            if not isinstance(A, DevicePtr) or len(A._shape) < 3:
                function(*arguments, **options)
                return
            pointers = dict(zip(("A", *operands), arguments, strict=False))
            pointers |= {name: options.pop(name) for name in ("A", *operands) if name in options}
            del pointers["A"]
            _run(f"lapack.{function.__name__}", function, A, pointers, writes, options)

        return cast("F", call)

    return decorate


def _run(
    name: str,
    function: Callable[..., None],
    A: DevicePtr,
    pointers: dict[str, DevicePtr | None],
    writes: tuple[str, ...],
    options: dict[str, Any],
) -> None:
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
    for operand in writes:
        written = pointers.get(operand)
        if written is not None and 0 not in written._shape:
            written.fill(0)  # each call writes a part, which an Out does not take
    info, first = np.zeros(batch, np.int32), ""
    for index in np.ndindex(*batch):
        parts = {operand: None if pointer is None else pointer[index] for operand, pointer in pointers.items()}
        try:
            with _inside():
                function(A[index], *parts.values(), **options)
        except np.linalg.LinAlgError as error:
            info[index] = getattr(error, "info", -1)
            first = first or str(error).partition(": ")[2]
    if first:
        _refuse(name, info, first)


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
