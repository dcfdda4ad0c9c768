"""Stacks of matrices on a device: their parts, copies from one order to the other, and factors.

A matrix is a DevicePtr of two dimensions, and a stack one of more. The functions return LAPACK's info for each matrix.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .._core import geometry
from .._operands import INT32, LETTERS, Matrix, unordered
from ..blas.extensions import geam
from ..blas.gemm import gemm
from ..dtypes import dtype_of
from ..lapack._vendors import vendor_of
from ..pointers import DevicePtr
from ._call import new

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


__all__ = [
    "arrange",
    "clear_triangle",
    "diagonal",
    "factor",
    "flat",
    "letter",
    "matrices",
    "multiply",
    "refuse_first",
    "set_identity",
    "solve_factored",
    "stored",
    "vectors",
]


def letter(pointer: DevicePtr) -> str:
    """Return the letter of a pointer's dtype in LAPACK."""
    return LETTERS[pointer._dtype_code]


def _offsets(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    offsets = [0]
    for extent, step in zip(shape, strides, strict=True):
        offsets = [offset + i * step for offset in offsets for i in range(extent)]
    return offsets


def _parts(pointer: DevicePtr, inner: int, batch: tuple[int, ...] | None) -> list[DevicePtr]:
    """Return the parts of a stack, each of `inner` dimensions, for every index of a batch to which it is broadcast."""
    outer = pointer._shape[: len(pointer._shape) - inner]
    shape, strides = pointer._shape[len(outer) :], pointer._strides[len(outer) :]
    if batch is None:
        batch = outer
    if not batch and not outer:
        return [pointer]
    if 0 in shape:
        return [pointer._view(0, shape, strides)] * math.prod(batch)
    ahead = len(batch) - len(outer)
    steps = [0] * ahead + [0 if extent == 1 else step for extent, step in zip(outer, pointer._strides, strict=False)]
    views: dict[int, DevicePtr] = {}
    return [
        views[offset] if offset in views else views.setdefault(offset, pointer._view(offset, shape, strides))
        for offset in _offsets(batch, steps)
    ]


def matrices(pointer: DevicePtr, batch: tuple[int, ...] | None = None) -> list[DevicePtr]:
    """Return the matrices of a stack, for each index of a batch to which it is broadcast."""
    return _parts(pointer, 2, batch)


def vectors(pointer: DevicePtr, batch: tuple[int, ...] | None = None) -> list[DevicePtr]:
    """Return the vectors of a stack of vectors, likewise."""
    return _parts(pointer, 1, batch)


def flat(pointer: DevicePtr) -> DevicePtr | None:
    """Return a stack with one dimension for all its matrices; None if no stride describes them."""
    *outer, m, n = pointer._shape
    *steps, down, across = pointer._strides
    count, step = 1, 0
    for extent, stride in zip(reversed(outer), reversed(steps), strict=True):
        if extent == 1:
            continue
        if count > 1 and stride != count * step:
            return None
        if count == 1:
            step = stride
        count *= extent
    if 0 in outer:
        return None
    return pointer._view(0, (count, m, n), (step or m * n * pointer.dtype.itemsize, down, across))


def stored(name: str, operand: str, pointer: DevicePtr) -> Matrix:
    """Return the geometry of a stack's matrices; raise ArgumentError if they have neither order."""
    first = pointer
    if len(pointer._shape) > 2:
        if 0 in pointer._shape:
            rows, columns = pointer._shape[-2:]
            return Matrix(rows, columns, max(rows, 1), max(columns, 1))
        first = pointer._view(0, pointer._shape[-2:], pointer._strides[-2:])
    facts = Matrix(*geometry(first))
    if not (facts.ld_f or facts.ld_c):
        raise unordered(name, operand, pointer, "ascontiguousarray")
    return facts


def arrange(target: DevicePtr, source: DevicePtr) -> None:
    """Copy a stack into another one, whose matrices may be in the other order."""
    if 0 in target._shape:
        return
    if target._strides[-2:] == source._strides[-2:] or 1 in target._shape[-2:]:
        target.copy_from(source)
        return
    to, origin = Matrix(*geometry(matrices(target)[0])), Matrix(*geometry(matrices(source)[0]))
    if (to.ld_f and origin.ld_f) or (to.ld_c and origin.ld_c):
        target.copy_from(source)
        return
    for part, from_part in zip(matrices(target), matrices(source), strict=True):
        geam(1.0, from_part, 0.0, from_part, part)


def diagonal(pointer: DevicePtr) -> DevicePtr:
    """Return the diagonals of a stack of matrices, as vectors."""
    *outer, m, n = pointer._shape
    *steps, down, across = pointer._strides
    return pointer._view(0, (*outer, min(m, n)), (*steps, down + across))


def set_identity(pointer: DevicePtr) -> None:
    """Set each matrix of a stack to the identity."""
    if 0 not in pointer._shape:
        pointer.fill(0)
        diagonal(pointer).fill(1)


def clear_triangle(pointer: DevicePtr, keep: str) -> None:
    """Set all elements of a matrix to zero but those of one triangle, "U" or "L"."""
    m, n = pointer._shape
    k = min(m, n)
    if keep == "U" and m > k:
        pointer[k:].fill(0)
    if keep == "L" and n > k:
        pointer[:, k:].fill(0)
    if k < 2:
        return
    square = pointer[:k, :k]
    facts = Matrix(*geometry(square))
    if square.device._info.backend == "cuda":
        from .. import cublas

        by_columns = "U" if (keep == "U") == bool(facts.ld_f) else "L"
        fill = cublas.FILL_MODE_UPPER if by_columns == "U" else cublas.FILL_MODE_LOWER
        packed, t, ld = new(square, (k * (k + 1) // 2,), square.dtype), letter(square), facts.ld_f or facts.ld_c
        getattr(cublas, f"{t}trttp")(fill, k, square, ld, packed)
        square.fill(0)
        getattr(cublas, f"{t}tpttr")(fill, k, packed, square, ld)
        return
    lower = square if keep == "U" else square.T  # the triangle below the diagonal is cleared
    for i in range(1, k):
        lower[i, :i].fill(0)


def refuse_first(name: str, operand: str, batch: tuple[int, ...], infos: Sequence[int], reason: str) -> None:
    """Raise LinAlgError, which names the matrices whose info is not 0. reason: may have {info}, that of the first."""
    wrong = [i for i, info in enumerate(infos) if info]
    if not wrong:
        return
    if not batch:
        raise np.linalg.LinAlgError(f"{name}: {operand} {reason.format(info=infos[wrong[0]])}")
    names = [f"{operand}[{', '.join(map(str, np.unravel_index(i, batch)))}]" for i in wrong[:4]]
    more = f", and {len(wrong) - 4} more" if len(wrong) > 4 else ""
    raise np.linalg.LinAlgError(
        f"{name}: {names[0]} {reason.format(info=infos[wrong[0]])}"
        + (f"; so it is with {', '.join(names[1:])}{more}" if len(wrong) > 1 else "")
    )


def factor(name: str, A: DevicePtr) -> tuple[DevicePtr, list[int]]:
    """Factor each matrix of a square stack with pivots, in place. Return the pivots, and info for each matrix.

    Of a matrix in C order the factors are those of its transpose.
    """
    vendor, facts, t = vendor_of(name, A), stored(name, "a", A), letter(A)
    n = facts.rows
    pivots = new(A, (*A._shape[:-2], n), dtype_of(INT32))
    if not n:
        return pivots, [0] * len(matrices(A))
    ld = facts.ld_f or facts.ld_c
    pairs = zip(matrices(A), vectors(pivots), strict=True)
    return pivots, [vendor.getrf(t, n, n, part, ld, of_part) for part, of_part in pairs]


def solve_factored(
    name: str, trans: str, factors: Iterable[DevicePtr], pivots: Iterable[DevicePtr], right: Iterable[DevicePtr]
) -> None:
    """Solve op(F) X = B for each pair of factors and right sides, in place.

    F is what the factors' memory has by columns, and X what that of the right sides has. trans: op(F).
    """
    for F, ipiv, B in zip(factors, pivots, right, strict=True):
        ld, rows = Matrix(*geometry(F)), F._shape[0]
        if len(B._shape) == 1:
            B = B[:, None]
        b = Matrix(*geometry(B))
        if rows and b.columns:
            vendor_of(name, F).getrs(
                letter(F), trans, rows, b.columns, F, ld.ld_f or ld.ld_c, ipiv, B, b.ld_f or b.ld_c
            )


def multiply(alpha: complex, A: DevicePtr, B: DevicePtr, beta: complex, C: DevicePtr) -> None:
    """Set C to alpha A B + beta C for stacks, which are broadcast to the batch of C."""
    if 0 in C._shape:
        return
    if len(C._shape) == 2:
        gemm(alpha, A, B, beta, C)
        return
    batch = C._shape[:-2]
    whole = flat(C)
    sides = [
        side if len(side._shape) == 2 else flat(side) if side._shape[:-2] in (batch, (1,) * len(batch)) else None
        for side in (A, B)
    ]
    if whole is not None and sides[0] is not None and sides[1] is not None:
        gemm(alpha, sides[0], sides[1], beta, whole)
        return
    for part_a, part_b, part in zip(matrices(A, batch), matrices(B, batch), matrices(C), strict=True):
        gemm(alpha, part_a, part_b, beta, part)
