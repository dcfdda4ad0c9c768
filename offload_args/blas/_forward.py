"""Copies of vectors on the device, to be used as matrices of one row, and conjugates of vectors."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._names import named
from .._operands import checking
from ..arguments import Scratch
from ..pointers import DevicePtr
from ..regions import offload_args
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
    """Return whether an output is read; if beta is the number 0, it is not read."""
    return isinstance(beta, DevicePtr) or bool(beta != 0)


@contextmanager
def forwards(*vectors: Vector, check: Callable[[], None] | None = None) -> Iterator[list[tuple[DevicePtr, int]]]:
    """Yield, for each vector, a pointer and a positive increment, of the vector itself or of a copy in the same order.

    `check` makes a call that is only checked, before anything is copied. After the block, written copies are copied
    back to their vectors.
    """
    if check is not None and any(vector.inc < 1 for vector in vectors):
        with checking():
            check()
    with ExitStack() as regions:
        rows_made: list[tuple[DevicePtr, int]] = []
        for vector in vectors:
            x, inc = vector.pointer, vector.inc
            if inc < 1:
                x = regions.enter_context(offload_args(Scratch(x._shape, x.dtype), device=x.device))[0]
                inc = 1
                if vector.reads:
                    _copy(vector, vector.pointer, vector.inc, x, 1)
            rows_made.append((x, inc))
        yield rows_made
        for vector, (x, inc) in zip(vectors, rows_made, strict=True):
            if vector.writes and x is not vector.pointer:
                _copy(vector, x, inc, vector.pointer, vector.inc)


def _copy(vector: Vector, *arguments: Any) -> None:
    named(
        COPY.of(vector.pointer).call, {"x": vector.operand, "y": vector.operand}, vector.pointer._shape[0], *arguments
    )


@contextmanager
def conjugates(*vectors: Vector) -> Iterator[list[tuple[DevicePtr, int]]]:
    """Yield, for each vector, a pointer to its conjugate in the same order, and the increment 1.

    After the block, the conjugates of written vectors are copied back to them.
    """
    with forwards(*vectors) as rows, ExitStack() as regions:
        rows_made: list[DevicePtr] = []
        for vector, (x, inc) in zip(vectors, rows, strict=True):
            copy = regions.enter_context(offload_args(Scratch(x._shape, x.dtype), device=x.device))[0]
            if vector.reads:
                _conjugate(vector, x, inc, copy, 1)
            rows_made.append(copy)
        yield [(copy, 1) for copy in rows_made]
        for vector, (x, inc), copy in zip(vectors, rows, rows_made, strict=True):
            if vector.writes:
                _conjugate(vector, copy, 1, x, inc)


@contextmanager
def numbers(*scalars: Scalar) -> Iterator[list[Scalar]]:
    """Yield the conjugates of scalars; if a scalar is on the device, its conjugate is in new memory of the device."""
    with ExitStack() as vectors:
        yield [
            vectors.enter_context(conjugates(Vector("a scalar", scalar.reshape(1), 1)))[0][0]
            if isinstance(scalar, DevicePtr)
            else np.conj(scalar)
            for scalar in scalars
        ]


def _conjugate(vector: Vector, x: DevicePtr, incx: int, y: DevicePtr, incy: int) -> None:
    """Set y to conj(x) by geam, which takes x as a one-row matrix, transposes it with conjugation, and adds nothing."""
    call, _, enums = GEAM.of(x)
    n, conj, plain = x._shape[0], enums.op[0]["C"], enums.op[0]["N"]
    if not n:
        return
    if incy == 1:  # a row becomes a column
        sizes, lda, ldc = (n, 1), incx, n
    else:
        sizes, lda, ldc = (1, n), n, incy
    ldb = sizes[0]
    names = {"A": vector.operand, "B": vector.operand, "C": vector.operand}
    b = x if incx == 1 else y  # not read, as beta is 0
    named(call, names, conj, plain, *sizes, 1.0, x, lda, 0.0, b, ldb, y, ldc)
