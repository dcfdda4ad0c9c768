"""Batches whose matrices are in lists of pointers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._core import layout
from .._operands import need_pointer
from ..errors import ArgumentError, ArgumentTypeError, OffloadError
from ..pointers import DevicePtr
from ._plans import planned
from ._refusals import note_exchange
from ._routine import WRONG, Routine, Scalar
from .gemm import arranged
from .level3 import triangular

__all__ = ["gemm_batched", "trsm_batched"]

_GEMM = Routine("gemm_batched", " ".join(f"{t}gemm_batched" for t in "sdcz"), "A2 B2 C2", "trans_a trans_b")
_TRSM = Routine("trsm_batched", " ".join(f"{t}trsm_batched" for t in "sdcz"), "A2 B2", "side uplo trans diag")


def _read(routine: Routine, operands: tuple[Sequence[DevicePtr], ...], *options: str) -> tuple[Any, ...]:
    """Return the operands as lists of one length, the vendor's function, and the geometry of each list's matrices.

    The last operand is written; its length is the number of matrices. A single pointer in another list is used for all
    matrices.
    """
    batch = len(operands[-1]) if isinstance(operands[-1], (list, tuple)) else 0
    for operand, pointers in zip(routine.operands, operands, strict=True):
        if not isinstance(pointers, (list, tuple)):
            raise ArgumentTypeError(
                f"blas.{routine.name}: {operand} needs a list of DevicePtrs, got {type(pointers).__name__}; a pointer "
                f"of three dimensions is for gemm"
            )
        if len(pointers) != batch and (len(pointers) != 1 or pointers is operands[-1]):
            needed = f"needs {batch} pointers, as {routine.operands[-1]} has, or one for all"
            raise ArgumentError(f"blas.{routine.name}: {operand} has {len(pointers)} pointers, {needed}")
    lists = [list(pointers) * batch if len(pointers) == 1 else list(pointers) for pointers in operands]
    if not batch:
        return lists, None
    for operand, pointers in zip(routine.operands, lists, strict=True):
        need_pointer(f"blas.{routine.name}", f"{operand}[0]", pointers[0])
    entry, *geometries = routine.read(tuple(pointers[0] for pointers in lists), *options)
    for operand, pointers, geometry in zip(routine.operands, lists, geometries, strict=True):
        first = pointers[0]
        for i, pointer in enumerate(pointers):
            if pointer is not first and _geometry(routine, first, pointer) != geometry:
                need_pointer(f"blas.{routine.name}", f"{operand}[{i}]", pointer)
                routine.explain((pointer,) * len(lists), *options)
                raise ArgumentError(
                    f"blas.{routine.name}: {operand}[{i}] is {pointer!r}, needs the dtype, shape, order and leading "
                    f"dimension of {operand}[0], {first!r}"
                )
    return lists, entry, *geometries


def _geometry(routine: Routine, first: DevicePtr, pointer: DevicePtr) -> Any:
    """Return the geometry of a matrix with the dtype of `first`; None if `pointer` is not such a matrix."""
    try:
        return layout("22", routine, first, pointer)[2]
    except WRONG:
        return None


@planned(
    _GEMM,
    "alpha ~A:mk/km@trans_a ~B:kn/nk@trans_b beta C:mn",
    "m n k/n m k",
    "trans_a!A trans_b!B",
    turned="alpha B A beta C",
    lists=True,
    names_turned={"A": "B", "B": "A"},
)
def gemm_batched(
    alpha: Scalar,
    A: Sequence[DevicePtr],
    B: Sequence[DevicePtr],
    beta: Scalar,
    C: Sequence[DevicePtr],
    *,
    trans_a: str = "N",
    trans_b: str = "N",
) -> None:
    """Set C[i] to alpha op(A[i]) op(B[i]) + beta C[i] for every i; op(A) is A, A^T or A^H for "N", "T" or "C".

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A, B: lists of as many matrices as C has, or of one matrix, which is used for every i. op(A[i]) has shape (m, k),
    and op(B[i]) has shape (k, n).
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, C is not read.
    C: list of matrices of shape (m, n), written.
    trans_a, trans_b: the choices of op(A) and op(B): "N" for the matrix itself, "T" for its transpose, "C" for its
    conjugate transpose.

    The matrices of one list have one order and leading dimension; the lists' orders may differ, except that a complex
    operand with "C" needs the order of C. The batch is one call of the library.

        A, B, C = np.arange(12.0).reshape(2, 2, 3), np.ones((3, 2)), np.empty((2, 2, 2))
        with offload_args(A, B, C) as (dA, dB, dC):
            blas.gemm_batched(1.0, [dA[0], dA[1]], [dB], 0.0, [dC[0], dC[1]])
        print(C[:, :, 0].tolist())  # [[3.0, 12.0], [21.0, 30.0]]

    See also: blas.gemm, blas.gemm_strided_batched, blas.trsm_batched; cublas.dgemm_batched, rocblas.dgemm_batched;
    docs/guide/blas.md.
    """
    lists, entry, *geometries = _read(_GEMM, (A, B, C), trans_a, trans_b)
    if entry is None:
        return
    operands = zip((A[0], B[0], C[0]), geometries, strict=True)
    transposed, m, n, k, op_a, lda, op_b, ldb, ldc = arranged("gemm_batched", entry.enums, trans_a, trans_b, *operands)
    first, second = (op_a, lists[0], lda), (op_b, lists[1], ldb)
    if transposed:
        m, n, first, second = n, m, second, first
    try:
        entry.call(first[0], second[0], m, n, k, alpha, *first[1:], *second[1:], beta, lists[2], ldc, len(C))
    except OffloadError as error:
        note_exchange(error, C[0])
        raise


@planned(_TRSM, "alpha ~A:mm/nn@side B:mn", "m n/n m", "side^ uplo^A trans!A diag", lists=True)
def trsm_batched(
    alpha: Scalar,
    A: Sequence[DevicePtr],
    B: Sequence[DevicePtr],
    *,
    side: str = "L",
    uplo: str = "U",
    trans: str = "N",
    diag: str = "N",
) -> None:
    """Solve op(A[i]) X = alpha B[i] (side "L") or X op(A[i]) = alpha B[i] ("R") for every i and set B[i] to X.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A: list of as many triangular matrices as B has, or of one matrix, which is used for every i.
    B: list of matrices, read and written.
    side: the place of op(A[i]): "L" left of B[i], "R" right of it.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.
    diag: with "N", the diagonal of A is read. With "U", it is not read, and its elements count as 1.

    The shapes are as in trsm. The matrices of one list have one shape, order and leading dimension. The batch is one
    call of the library. The function does not check whether the matrices can be inverted.

        A, B = np.array([[2.0, 1.0], [9.0, 4.0]]), np.array([[[4.0], [8.0]], [[8.0], [8.0]]])
        with offload_args(A, B) as (dA, dB):
            blas.trsm_batched(1.0, [dA], [dB[0], dB[1]])
        print(B[:, :, 0].tolist())  # [[1.0, 2.0], [3.0, 2.0]]

    See also: blas.trsm, blas.gemm_batched; cublas.dtrsm_batched, rocblas.dtrsm_batched; docs/guide/blas.md.
    """
    options = side, uplo, trans, diag
    (of_A, of_B), entry, *geometries = _read(_TRSM, (A, B), *options)
    if entry is None:
        return
    chosen, m, n, lda, ldb = triangular(entry, _TRSM, A[0], geometries[0], B[0], geometries[1], *options)
    entry.call(*chosen, m, n, alpha, of_A, lda, of_B, ldb, len(B))
