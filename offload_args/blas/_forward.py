"""Copies of vectors on the device: for matrices of one row, and conjugates."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._operands import checking
from ..arguments import Scratch
from ..pointers import DevicePtr
from ..regions import offload_args
from ._names import named
from ._routine import Routine, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


__all__ = ["COPY", "Vector", "conjugates", "forwards", "is_read", "numbers"]

COPY = Routine("copy", "scopy dcopy ccopy zcopy", "x1 y1")
GEAM = Routine("geam", "sgeam dgeam cgeam zgeam", "A2 B2 C2", "trans_a trans_b")


class Vector(NamedTuple):
    """A vector, and its use by a call."""

    operand: str
    pointer: DevicePtr
    inc: int
    reads: bool = True
    writes: bool = False


def is_read(beta: Scalar) -> bool:
    """Return whether an output is read: not if beta is the number 0."""
    return isinstance(beta, DevicePtr) or bool(beta != 0)


@contextmanager
def forwards(*vectors: Vector, check: Callable[[], None] | None = None) -> Iterator[list[tuple[DevicePtr, int]]]:
    """Yield a pointer and a positive increment for each vector: its own, or a copy's with the same order.

    check: makes a call that is only checked, before anything is copied. After the block copies that were written
    go back to their vectors.
    """
    if check is not None and any(one.inc < 1 for one in vectors):
        with checking():
            check()
    with ExitStack() as regions:
        given: list[tuple[DevicePtr, int]] = []
        for one in vectors:
            x, inc = one.pointer, one.inc
            if inc < 1:
                x = regions.enter_context(offload_args(Scratch(x._shape, x.dtype), device=x.device))[0]
                inc = 1
                if one.reads:
                    _copy(one, one.pointer, one.inc, x, 1)
            given.append((x, inc))
        yield given
        for one, (x, inc) in zip(vectors, given, strict=True):
            if one.writes and x is not one.pointer:
                _copy(one, x, inc, one.pointer, one.inc)


def _copy(one: Vector, *arguments: Any) -> None:
    named(COPY.of(one.pointer).call, {"x": one.operand, "y": one.operand}, one.pointer._shape[0], *arguments)


@contextmanager
def conjugates(*vectors: Vector) -> Iterator[list[tuple[DevicePtr, int]]]:
    """Yield a pointer to the conjugate of each vector, with the same order, and its increment, which is 1.

    After the block the conjugates of written vectors go back to them.
    """
    with forwards(*vectors) as rows, ExitStack() as regions:
        given: list[DevicePtr] = []
        for one, (x, inc) in zip(vectors, rows, strict=True):
            made = regions.enter_context(offload_args(Scratch(x._shape, x.dtype), device=x.device))[0]
            if one.reads:
                _conjugate(one, x, inc, made, 1)
            given.append(made)
        yield [(made, 1) for made in given]
        for one, (x, inc), made in zip(vectors, rows, given, strict=True):
            if one.writes:
                _conjugate(one, made, 1, x, inc)


@contextmanager
def numbers(*scalars: Scalar) -> Iterator[list[Scalar]]:
    """Yield the conjugates of scalars, those on the device in new memory there."""
    with ExitStack() as vectors:
        yield [
            vectors.enter_context(conjugates(Vector("a scalar", one.reshape(1), 1)))[0][0]
            if isinstance(one, DevicePtr)
            else np.conj(one)
            for one in scalars
        ]


def _conjugate(one: Vector, x: DevicePtr, incx: int, y: DevicePtr, incy: int) -> None:
    """Set y to conj(x): as the sum of a matrix of one row, conjugated and transposed twice, and of nothing."""
    call, _, enums = GEAM.of(x)
    n, conj, plain = x._shape[0], enums.op[0]["C"], enums.op[0]["N"]
    if not n:
        return
    if incy == 1:  # of a row a column is made
        sizes, lda, ldc = (n, 1), incx, n
    else:
        sizes, lda, ldc = (1, n), n, incy
    ldb = sizes[0]
    names = {"A": one.operand, "B": one.operand, "C": one.operand}
    b = x if incx == 1 else y  # which a beta of 0 leaves alone
    named(call, names, conj, plain, *sizes, 1.0, x, lda, 0.0, b, ldb, y, ldc)
