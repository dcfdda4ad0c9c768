"""Stacks of matrices on a device: their parts, copies from one order to the other, and factors.

A matrix is a DevicePtr of two dimensions; a stack has more dimensions. The functions return LAPACK's info for each
matrix.
"""

from __future__ import annotations

import math
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from .._core import geometry, query
from .._operands import INT32, LETTERS, Matrix, unordered
from ..blas.extensions import geam
from ..blas.gemm import gemm
from ..dtypes import dtype_of
from ..lapack._checks import is_finite
from ..lapack._stacks import Infos, flat, make_identity
from ..lapack._vendors import vendor_of
from ..pointers import DevicePtr
from ._call import new

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


__all__ = [
    "arrange",
    "clear_triangles",
    "factor",
    "invert_factored",
    "letter",
    "matrices",
    "multiply",
    "refuse_first",
    "set_identity",
    "solve_factored",
    "spread",
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


def _parts(pointer: DevicePtr, inner: int, batch: tuple[int, ...] | None) -> Iterator[DevicePtr]:
    """Make the parts of a stack, each of `inner` dimensions, for every index of the batch of a broadcast stack.

    Parts are made one after the other, because a region has fewer handles than a large stack has matrices.
    """
    outer = pointer._shape[: len(pointer._shape) - inner]
    shape, strides = pointer._shape[len(outer) :], pointer._strides[len(outer) :]
    if batch is None:
        batch = outer
    if not batch and not outer:
        yield pointer
    elif 0 in shape:
        yield from repeat(pointer._view(0, shape, strides), math.prod(batch))
    else:
        ahead = [0] * (len(batch) - len(outer))
        steps = [0 if extent == 1 else step for extent, step in zip(outer, pointer._strides, strict=False)]
        for offset in _offsets(batch, ahead + steps):
            yield pointer._view(offset, shape, strides)


def matrices(pointer: DevicePtr, batch: tuple[int, ...] | None = None) -> Iterator[DevicePtr]:
    """Make the matrices of a stack, for each index of a batch to which the stack is broadcast."""
    return _parts(pointer, 2, batch)


def vectors(pointer: DevicePtr, batch: tuple[int, ...] | None = None) -> Iterator[DevicePtr]:
    """Make the vectors of a stack of vectors, for each index of a batch to which the stack is broadcast."""
    return _parts(pointer, 1, batch)


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
    to, origin = Matrix(*geometry(next(matrices(target)))), Matrix(*geometry(next(matrices(source))))
    if (to.ld_f and origin.ld_f) or (to.ld_c and origin.ld_c):
        target.copy_from(source)
        return
    if _transpose(target, source):
        return
    for part, from_part in zip(matrices(target), matrices(source), strict=True):
        geam(1.0, from_part, 0.0, from_part, part)


def _transpose(target: DevicePtr, source: DevicePtr) -> bool:
    """Copy a stack to the other order as a product with the identity, by one call. Return False if this is impossible.

    Numbers that are not finite make it impossible, because they would spread in the product.
    """
    to, origin, rows = flat(target), flat(source), target._shape[-2]
    if to is None or origin is None or len(target._shape) == 2:
        return False
    if query(source).captured or not vendor_of("linalg", target).solves_stacks(rows) or not is_finite(origin):
        return False
    identity = new(target, (rows, rows), target.dtype)
    set_identity(identity)
    gemm(1.0, identity, origin, 0.0, to)
    return True


def set_identity(pointer: DevicePtr) -> None:
    """Set each matrix of a stack to the identity."""
    if 0 in pointer._shape:
        return
    whole = flat(pointer)
    first = pointer if whole is None else whole[0]
    make_identity(first)
    if whole is not None:
        _repeat_first(whole)


def _clear_matrix(pointer: DevicePtr, keep: str) -> None:
    """Set all elements of one matrix to zero outside of one triangle, as clear_triangles does."""
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
    lower = square if keep == "U" else square.T  # the triangle of `lower` below the diagonal is cleared
    for i in range(1, k):
        lower[i, :i].fill(0)


def clear_triangles(pointer: DevicePtr, keep: str) -> None:
    """Set all elements of a stack's matrices to zero outside of one triangle, "U" or "L"."""
    m, n = pointer._shape[-2:]
    whole = flat(pointer) if len(pointer._shape) > 2 else None
    if whole is None or whole._shape[0] < n:
        for part in matrices(pointer):
            _clear_matrix(part, keep)
        return
    count, (step, down, across), itemsize = whole._shape[0], whole._strides, pointer.dtype.itemsize
    by_rows = across == itemsize
    lines, length, apart = (m, n, down) if by_rows else (n, m, across)
    for i in range(lines):  # one call clears the same part of a line of every matrix
        start, stop = (0, min(i, length)) if (keep == "U") == by_rows else (i + 1, length)
        if start < stop:
            whole._view(i * apart + start * itemsize, (count, stop - start), (step, itemsize)).fill(0)


def refuse_first(name: str, operand: str, batch: tuple[int, ...], infos: Infos, reason: str, remedy: str = "") -> None:
    """Raise a LinAlgError that names the matrices whose info is not 0. `reason` may contain {info}, which stands for
    the first such info."""
    wrong = np.flatnonzero(infos).tolist()
    if not wrong:
        return
    if not batch:
        raise np.linalg.LinAlgError(f"{name}: {operand} {reason.format(info=infos[wrong[0]])}{remedy}")
    names = [f"{operand}[{', '.join(map(str, np.unravel_index(i, batch)))}]" for i in wrong[:4]]
    more = f", and {len(wrong) - 4} more" if len(wrong) > 4 else ""
    raise np.linalg.LinAlgError(
        f"{name}: {names[0]} {reason.format(info=infos[wrong[0]])}"
        + (f"; so it is with {', '.join(names[1:])}{more}" if len(wrong) > 1 else "")
        + remedy
    )


def spread(target: DevicePtr, source: DevicePtr) -> None:
    """Copy a vector to each vector of a stack without gaps."""
    whole = flat(target, 1)
    assert whole is not None
    whole[0].copy_from(source)
    _repeat_first(whole)


def _repeat_first(whole: DevicePtr) -> None:
    """Copy the first part of a stack to all other parts. Each copy doubles the number of written parts."""
    done, count = 1, whole._shape[0]
    while done < count:
        more = min(done, count - done)
        whole[done : done + more].copy_from(whole[:more])
        done += more


def factor(name: str, A: DevicePtr, place: DevicePtr | None = None) -> tuple[DevicePtr, Infos]:
    """Factor each matrix of a square stack with pivots, in place. Return the pivots, and info for each matrix.

    For a matrix in C order, the factors are the factors of its transpose. `place` is memory of int32, one for each
    matrix. If it is passed and one call factors the stack, the function does not wait: the device writes info to
    `place`, and the function returns zeros. Other infos are returned, and `place` is set to zeros.
    """
    vendor, facts, t = vendor_of(name, A), stored(name, "a", A), letter(A)
    n = facts.rows
    pivots = new(A, (*A._shape[:-2], n), dtype_of(INT32))
    if not n:
        return pivots, np.zeros(math.prod(A._shape[:-2]), np.int32)
    ld = facts.ld_f or facts.ld_c
    if len(A._shape) > 2 and (whole := flat(A)) is not None and (of_whole := flat(pivots, 1)) is not None:
        infos = vendor.getrf_batched(t, n, whole, ld, of_whole, place)
        if infos is not None:
            return pivots, infos
    if place is not None:
        place.fill(0)
    pairs = zip(matrices(A), vectors(pivots), strict=True)
    return pivots, np.array([vendor.getrf(t, n, n, part, ld, of_part) for part, of_part in pairs], np.int32)


def solve_factored(name: str, trans: str, factors: DevicePtr, pivots: DevicePtr, right: DevicePtr) -> None:
    """Solve op(F) X = B for each pair of factors and right sides, in place.

    F is the memory of the factors, read by columns. X is the memory of the right sides, read by columns. `trans`
    selects op(F). The right sides are matrices, or as many vectors as the stack has. A single F may be used for all
    right sides.
    """
    vendor, t, n = vendor_of(name, factors), letter(factors), factors._shape[-1]
    facts = stored(name, "a", factors)
    if 0 in right._shape or not n:
        return
    ld, batch = facts.ld_f or facts.ld_c, right._shape[: len(right._shape) - 2]
    b = stored(name, "b", right)
    columns, ldb = right._shape[-1], b.ld_f or b.ld_c
    if batch and batch == factors._shape[:-2]:
        F, ipiv, B = flat(factors), flat(pivots, 1), flat(right)
        if F is None or ipiv is None or B is None:
            done = None
        else:
            done = vendor.getrs_batched(t, trans, n, columns, F, ld, ipiv, B, ldb)
        if done is not None:
            return
    for F, ipiv, B in zip(matrices(factors, batch), vectors(pivots, batch), matrices(right), strict=True):
        vendor.getrs(t, trans, n, columns, F, ld, ipiv, B, ldb)


def invert_factored(name: str, factors: DevicePtr, pivots: DevicePtr, x: DevicePtr) -> bool:
    """Set x to the inverses of a stack of factored matrices in x's order, if the library has one call for this."""
    vendor, facts, stored_x = vendor_of(name, factors), stored(name, "a", factors), stored(name, "a", x)
    F, ipiv, X = flat(factors), flat(pivots, 1), flat(x)
    if len(x._shape) == 2 or 0 in x._shape or F is None or ipiv is None or X is None:
        return False
    ld, ldx = facts.ld_f or facts.ld_c, stored_x.ld_f or stored_x.ld_c
    return vendor.getri_batched(letter(x), facts.rows, F, ld, ipiv, X, ldx) is not None


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
