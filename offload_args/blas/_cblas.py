"""Makes functions that CBLAS lacks of those that it has, each repeated over the lines of matrices as one call.

Matrices lie in column-major order. Every function checks all that its callers pass before anything is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core import repeat
from ..pointers import DevicePtr
from ._names import named

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["dgmm", "geam", "gemm_batched", "gemm_strided_batched", "trsm_batched"]


def gemm_strided_batched(cblas: Any, letter: str) -> Callable[..., None]:
    """Make cuBLAS's gemm_strided_batched of gemm."""
    gemm, order = getattr(cblas, f"{letter}gemm"), cblas.ColMajor

    def call(*arguments: Any) -> None:
        *before, A, lda, stride_a, B, ldb, stride_b, beta, C, ldc, stride_c, batch = arguments
        repeat(gemm, batch, (stride_a, stride_b, stride_c), "", order, *before, A, lda, B, ldb, beta, C, ldc)

    return call


def gemm_batched(cblas: Any, letter: str) -> Callable[..., None]:
    """Make cuBLAS's gemm_batched of gemm; operands are lists of pointers."""
    gemm, order = getattr(cblas, f"{letter}gemm"), cblas.ColMajor

    def call(*arguments: Any) -> None:
        *before, A, lda, B, ldb, beta, C, ldc, batch = arguments
        repeat(gemm, batch, (A, B, C), "", order, *before, A[0], lda, B[0], ldb, beta, C[0], ldc)

    return call


def trsm_batched(cblas: Any, letter: str) -> Callable[..., None]:
    """Make cuBLAS's trsm_batched of trsm; operands are lists of pointers."""
    trsm, order = getattr(cblas, f"{letter}trsm"), cblas.ColMajor

    def call(*arguments: Any) -> None:
        *before, A, lda, B, ldb, batch = arguments
        repeat(trsm, batch, (A, B), "", order, *before, A[0], lda, B[0], ldb)

    return call


def geam(cblas: Any, letter: str) -> Callable[..., None]:
    """Make cuBLAS's geam of axpy, and of OpenBLAS's axpyc where it conjugates."""
    axpy, gbmv, plain = getattr(cblas, f"{letter}axpy"), getattr(cblas, f"{letter}gbmv"), cblas.NoTrans
    adding = {plain: axpy, cblas.Trans: axpy, cblas.ConjTrans: getattr(cblas, f"{letter}axpyc", axpy)}

    def call(op_a: int, op_b: int, m: int, n: int, *rest: Any) -> None:
        alpha, A, lda, beta, B, ldb, C, ldc = rest
        add_a, add_b = adding[op_a], adding[op_b]
        # Of a column of op(A): how far its elements are apart, and how far it is from the next.
        inc_a, step_a = (1, lda) if op_a == plain else (lda, 1)
        inc_b, step_b = (1, ldb) if op_b == plain else (ldb, 1)
        # no sum: is there such a function, and is alpha a number of its dtype?
        named(add_a, {"x": "A", "y": "C"}, 0, alpha, A, 1, C, 1)
        named(add_b, {"x": "B", "y": "C", "alpha": "beta"}, 0, beta, B, 1, C, 1)
        # C = 0 diag(B) A + 0 C makes C zero: A and B are checked and not read.
        zero = (cblas.ColMajor, plain, m, m, 0, 0, 0.0, B, inc_b, A, inc_a, 0.0, C, 1)
        repeat(gbmv, n, (step_b, step_a, ldc), "BAC", *zero)
        if isinstance(alpha, DevicePtr) or alpha:
            repeat(add_a, n, (step_a, ldc), "AC", m, alpha, A, inc_a, C, 1)
        if isinstance(beta, DevicePtr) or beta:
            repeat(add_b, n, (step_b, ldc), "BC", m, beta, B, inc_b, C, 1)

    return call


def dgmm(cblas: Any, letter: str) -> Callable[..., None]:
    """Make cuBLAS's dgmm of gbmv, whose band is the diagonal, or of gemv, whose matrix is one column."""
    gbmv, gemv, first = (
        getattr(cblas, f"{letter}gbmv"),
        getattr(cblas, f"{letter}gemv"),
        (cblas.ColMajor, cblas.NoTrans),
    )

    def call(side: int, m: int, n: int, A: Any, lda: int, x: Any, incx: int, C: Any, ldc: int) -> None:
        if side == cblas.Left:
            inc = -1 if incx < 0 else 1  # backwards, as x
            repeat(gbmv, n, (0, lda, ldc), "xAC", *first, m, m, 0, 0, 1.0, x, abs(incx), A, inc, 0.0, C, inc)
        else:
            repeat(gemv, n, (lda, incx, ldc), "AxC", *first, m, 1, 1.0, A, max(m, 1), x, 1, 0.0, C, 1)

    return call
