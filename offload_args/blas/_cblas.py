"""Makes functions that CBLAS lacks: each calls an existing function for all lines or matrices of its operands.

Matrices are in column-major order. Every function checks all arguments before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .._core import repeat
from .._names import named
from ..errors import AliasError
from ..pointers import DevicePtr

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["dgmm", "geam", "gemm_batched", "gemm_strided_batched", "step_of", "trsm_batched"]


def gemm_strided_batched(cblas: Any, letter: str) -> Callable[..., None]:
    """Make cuBLAS's gemm_strided_batched from gemm."""
    gemm, order = getattr(cblas, f"{letter}gemm"), cblas.ColMajor

    def call(*arguments: Any) -> None:
        *before, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, batch = arguments
        repeat(gemm, batch, (stride_a, stride_b, stride_c), "", order, *before, A, lda, B, ldb, beta, C, ldc)

    return call


def gemm_batched(cblas: Any, letter: str) -> Callable[..., None]:
    """Make cuBLAS's gemm_batched from gemm; operands are lists of pointers."""
    gemm, order = getattr(cblas, f"{letter}gemm"), cblas.ColMajor

    def call(*arguments: Any) -> None:
        *before, A, lda, B, ldb, beta, C, ldc, batch = arguments
        repeat(gemm, batch, (A, B, C), "", order, *before, A[0], lda, B[0], ldb, beta, C[0], ldc)

    return call


def trsm_batched(cblas: Any, letter: str) -> Callable[..., None]:
    """Make cuBLAS's trsm_batched from trsm; operands are lists of pointers, or stacks."""
    trsm, order = getattr(cblas, f"{letter}trsm"), cblas.ColMajor

    def call(*arguments: Any) -> None:
        *before, A, lda, B, ldb, batch = arguments
        if isinstance(A, DevicePtr):
            repeat(trsm, batch, (step_of(A), step_of(B)), "", order, *before, A, lda, B, ldb)
        else:
            repeat(trsm, batch, (A, B), "", order, *before, A[0], lda, B[0], ldb)

    return call


def step_of(stack: DevicePtr) -> int:
    """Return the distance between the matrices of a stack, in elements."""
    return stack._strides[0] // stack.dtype.itemsize


class _Columns(NamedTuple):
    """The columns of a matrix, or one vector that is repeated, in the form that repeat() takes."""

    name: str
    first: Any  # the pointer of the first column
    inc: int
    step: int  # elements to the next column


class _InPlace:
    """Find out whether an operand is C itself, before a sum or product writes C."""

    def __init__(self, cblas: Any, letter: str) -> None:
        self.plain = cblas.ColMajor, cblas.NoTrans
        self.gbmv, self.copy = getattr(cblas, f"{letter}gbmv"), getattr(cblas, f"{letter}copy")

    def scale(self, m: int, n: int, columns: _Columns, beta: float, C: _Columns) -> None:
        """Set C to beta C, for beta 0 or 1. Raise AliasError if `columns`, which is not read, overlaps C."""
        rest = m, m, 0, 0, 0.0, columns.first, abs(columns.inc), columns.first, columns.inc, beta, C.first, C.inc
        repeat(self.gbmv, n, (columns.step, columns.step, C.step), columns.name * 2 + C.name, *self.plain, *rest)

    def overlaps(self, m: int, n: int, columns: _Columns, C: _Columns) -> bool:
        """Return whether an operand overlaps C; nothing changes."""
        try:
            self.scale(m, n, columns, 1.0, C)
        except AliasError:
            return True
        return False

    def is_whole(self, m: int, n: int, columns: _Columns, C: _Columns) -> bool:
        """Return whether an operand that overlaps C has C's element at each index; nothing changes."""
        try:
            repeat(
                self.copy,
                n,
                (columns.step, C.step),
                columns.name + C.name,
                m,
                columns.first,
                columns.inc,
                C.first,
                C.inc,
            )
        except AliasError:
            return False
        return True


def geam(cblas: Any, letter: str) -> Callable[..., None]:
    """Make cuBLAS's geam from axpy, or from OpenBLAS's axpyc if an operand is conjugated."""
    axpy, gbmv, scal = (getattr(cblas, f"{letter}{name}") for name in ("axpy", "gbmv", "scal"))
    plain, known = cblas.NoTrans, _InPlace(cblas, letter)
    adding = {plain: axpy, cblas.Trans: axpy, cblas.ConjTrans: getattr(cblas, f"{letter}axpyc", axpy)}

    def add(m: int, n: int, op: int, factor: Any, columns: _Columns, C: _Columns) -> None:
        if isinstance(factor, DevicePtr) or factor:
            repeat(
                adding[op],
                n,
                (columns.step, C.step),
                columns.name + C.name,
                m,
                factor,
                columns.first,
                columns.inc,
                C.first,
                1,
            )

    def in_place(m: int, n: int, C: _Columns, *sides: tuple[int, Any, _Columns]) -> bool:
        """Compute the sum in place if each operand that overlaps C is C itself; otherwise return False.

        `sides` has the operation, factor and columns of A, and then the operation, factor and columns of B.
        """
        inside = [side for side in sides if known.overlaps(m, n, side[2], C)]
        if not all(op == plain and known.is_whole(m, n, side, C) for op, _, side in inside):
            return False
        if len(inside) == 2:
            values = [side.to_host().item() if isinstance(side, DevicePtr) else side for _, side, _ in sides]
            repeat(scal, n, (C.step,), C.name, m, sum(values), C.first, 1)
            return True
        ((_, factor, _),), (outside,) = inside, [side for side in sides if side is not inside[0]]
        if isinstance(factor, DevicePtr) or factor:
            repeat(scal, n, (C.step,), C.name, m, factor, C.first, 1)
        else:  # beta is 0, so NaN in C has no effect
            known.scale(m, n, outside[2], 0.0, C)
        add(m, n, *outside, C)
        return True

    def call(op_a: int, op_b: int, m: int, n: int, *rest: Any) -> None:
        alpha, A, lda, beta, B, ldb, C, ldc = rest
        of_a = _Columns("A", A, 1, lda) if op_a == plain else _Columns("A", A, lda, 1)
        of_b = _Columns("B", B, 1, ldb) if op_b == plain else _Columns("B", B, ldb, 1)
        of_c = _Columns("C", C, 1, ldc)
        # These calls for 0 elements only check that the functions exist, and that alpha and beta are numbers of the
        # dtype.
        named(adding[op_a], {"x": "A", "y": "C"}, 0, alpha, A, 1, C, 1)
        named(adding[op_b], {"x": "B", "y": "C", "alpha": "beta"}, 0, beta, B, 1, C, 1)
        # C = 0 diag(B) A + 0 C sets C to zero: A and B are checked, but not read.
        zero = (cblas.ColMajor, plain, m, m, 0, 0, 0.0, B, of_b.inc, A, of_a.inc, 0.0, C, 1)
        try:
            repeat(gbmv, n, (of_b.step, of_a.step, ldc), "BAC", *zero)
        except AliasError:
            if in_place(m, n, of_c, (op_a, alpha, of_a), (op_b, beta, of_b)):
                return
            raise
        add(m, n, op_a, alpha, of_a, of_c)
        add(m, n, op_b, beta, of_b, of_c)

    return call


def dgmm(cblas: Any, letter: str) -> Callable[..., None]:
    """Make cuBLAS's dgmm from gbmv, whose band is the diagonal, or from gemv, whose matrix is one column.

    If A is C, dgmm is made from tbmv, which multiplies a vector by a triangular band in place.
    """
    gbmv, gemv, tbmv = (getattr(cblas, f"{letter}{name}") for name in ("gbmv", "gemv", "tbmv"))
    first, known = (cblas.ColMajor, cblas.NoTrans), _InPlace(cblas, letter)
    triangle = cblas.ColMajor, cblas.Upper, cblas.NoTrans, cblas.NonUnit

    def call(side: int, m: int, n: int, A: Any, lda: int, x: Any, incx: int, C: Any, ldc: int) -> None:
        inc = -1 if incx < 0 else 1  # backwards, if x is backwards
        try:
            if side == cblas.Left:
                repeat(gbmv, n, (0, lda, ldc), "xAC", *first, m, m, 0, 0, 1.0, x, abs(incx), A, inc, 0.0, C, inc)
            else:
                repeat(gemv, n, (lda, incx, ldc), "AxC", *first, m, 1, 1.0, A, max(m, 1), x, 1, 0.0, C, 1)
        except AliasError:
            columns = _Columns("A", A, 1, lda), _Columns("C", C, 1, ldc)
            if not (known.overlaps(m, n, *columns) and known.is_whole(m, n, *columns)):
                raise
            if side == cblas.Left:
                repeat(tbmv, n, (0, ldc), "xC", *triangle, m, 0, x, abs(incx), C, inc)
            else:
                repeat(tbmv, m, (0, 1), "xC", *triangle, n, 0, x, abs(incx), C, inc * ldc)

    return call
