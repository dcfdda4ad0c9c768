"""The results of BLAS, written out plainly on dense arrays, for tests, without a BLAS library.

Functions work in the dtype of their arrays, so pass `wide` arrays. Each function is a polynomial in its operands with
positive coefficients. So the same function of absolute values is the magnitude to which rounding errors are compared.
Only those elements of matrices that the routine may read are used; fill the others with NaN. A check of y = A x is:

    A, x = np.ones((3, 4), np.float32), np.ones(4, np.float32)
    y = blas_under_test(A, x)  # float32
    expected = gemv(1, wide(A), wide(x), 0, wide(np.zeros(3)))  # in long double
    magnitude = gemv(1, abs(wide(A)), abs(wide(x)), 0, wide(np.zeros(3)))
    assert_close(y, expected, terms=4, magnitude=magnitude, dtype=np.float32, case="gemv")

which allows an error of some units in the last place of `magnitude` for each of the 4 terms of a sum.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

WIDE = {"F": np.clongdouble, "D": np.clongdouble, "G": np.clongdouble}


def wide(a: Any) -> Array:
    """Return a copy in the widest real or complex dtype."""
    a = np.asarray(a)
    return a.astype(WIDE.get(a.dtype.char, np.longdouble))


def op(A: Array, trans: str) -> Array:
    return {"N": A, "T": A.T, "C": A.conj().T, "R": A.conj()}[trans]


def conj(A: Array, wanted: bool) -> Array:
    return A.conj() if wanted else A


def triangle(A: Array, uplo: str, diag: str = "N") -> Array:
    """Return the triangular matrix that is stored in one triangle of A, with ones on its diagonal if diag is "U"."""
    rows, columns = np.indices(A.shape)
    kept = (columns >= rows) if uplo == "U" else (columns <= rows)
    T = np.where(kept, A, A.dtype.type(0))
    if diag == "U":
        np.fill_diagonal(T, 1)
    return T


def symmetric(A: Array, uplo: str, hermitian: bool = False) -> Array:
    """Return the symmetric or Hermitian matrix that is stored in one triangle of A; Hermitian diagonals are real."""
    T = triangle(A, uplo)
    diagonal = np.diag(np.diag(T))
    off = T - diagonal
    return off + (off.conj().T + diagonal.real if hermitian else off.T + diagonal)


# -- how matrices are stored ------------------------------------------------------------------------------------------
def in_triangle(n: int, uplo: str) -> NDArray[np.bool_]:
    rows, columns = np.indices((n, n))
    kept: NDArray[np.bool_] = (columns >= rows) if uplo == "U" else (columns <= rows)
    return kept


def packed(A: Array, uplo: str, order: str = "F") -> Array:
    """Return one triangle of A as a vector, column by column ("F") or row by row ("C")."""
    n = len(A)
    lines = [A[:, j] for j in range(n)] if order == "F" else [A[i] for i in range(n)]
    # lines of the upper triangle by columns, and of the lower by rows, begin at 0; others begin at the diagonal
    begins = (uplo == "U") == (order == "F")
    return np.concatenate([line[: i + 1] if begins else line[i:] for i, line in enumerate(lines)] or [A.ravel()])


def banded(A: Array, kl: int, ku: int, order: str, gap: complex) -> Array:
    """Return the band of A, with kl diagonals below and ku above: each is a row ("F") or a column ("C", as in CBLAS).

    Every byte outside of A is `gap`. BLAS can read the memory of both arrays, in their order.
    """
    m, n = A.shape
    if order == "C":
        return banded(A.T, ku, kl, "F", gap).T
    B = np.full((kl + ku + 1, n), gap, A.dtype)
    for j in range(n):
        for i in range(max(0, j - ku), min(m, j + kl + 1)):
            B[ku + i - j, j] = A[i, j]
    return B


def band_of(A: Array, kl: int, ku: int) -> Array:
    """Return A with zeros outside of its band."""
    rows, columns = np.indices(A.shape)
    return np.where((columns - rows <= ku) & (rows - columns <= kl), A, A.dtype.type(0))


# -- level 1 ----------------------------------------------------------------------------------------------------------
def axpy(alpha: Any, x: Array, y: Array) -> Array:
    return alpha * x + y


def dot(x: Array, y: Array, conjugated: bool = False) -> Any:
    return (conj(x, conjugated) * y).sum()


def asum(x: Array) -> Any:
    return np.abs(x.real).sum() + (np.abs(x.imag).sum() if np.iscomplexobj(x) else 0)


def nrm2(x: Array) -> Any:
    return np.sqrt((np.abs(x) ** 2).sum())


def size1(x: Array) -> Array:
    """Return the values that amax and amin compare."""
    return np.abs(x.real) + np.abs(x.imag)


def rot(x: Array, y: Array, c: Any, s: Any, minus: int = -1) -> tuple[Array, Array]:
    return c * x + s * y, c * y + minus * np.conj(s) * x


def rotm_matrix(param: Array) -> Array:
    """Return the matrix H for which param stands."""
    flag, h11, h21, h12, h22 = param
    H = {-2: [[1, 0], [0, 1]], -1: [[h11, h12], [h21, h22]], 0: [[1, h12], [h21, 1]], 1: [[h11, 1], [-1, h22]]}
    return np.array(H[int(flag)], dtype=param.dtype)


# -- levels 2 and 3: alpha and beta as numbers of the wide dtype; with beta 0, C is not read ---------------------------
def plus(product: Array, beta: Any, C: Array) -> Array:
    return product if beta == 0 else product + beta * C


def gemm(alpha: Any, A: Array, B: Array, beta: Any, C: Array, trans_a: str = "N", trans_b: str = "N") -> Array:
    return plus(alpha * (op(A, trans_a) @ op(B, trans_b)), beta, C)


def gemv(alpha: Any, A: Array, x: Array, beta: Any, y: Array, trans: str = "N") -> Array:
    return plus(alpha * (op(A, trans) @ x), beta, y)


def ger(alpha: Any, x: Array, y: Array, A: Array, conjugated: bool = False) -> Array:
    return A + alpha * np.outer(x, conj(y, conjugated))


def syr2(alpha: Any, x: Array, y: Array, A: Array, hermitian: bool = False) -> Array:
    other = np.conj(alpha) if hermitian else alpha
    return A + alpha * np.outer(x, conj(y, hermitian)) + other * np.outer(y, conj(x, hermitian))


def symm(alpha: Any, S: Array, B: Array, beta: Any, C: Array, side: str = "L") -> Array:
    return plus(alpha * (S @ B if side == "L" else B @ S), beta, C)


def syrk(alpha: Any, A: Array, beta: Any, C: Array, trans: str = "N", hermitian: bool = False) -> Array:
    other = "C" if hermitian else "T"
    return plus(alpha * (A @ op(A, other) if trans == "N" else op(A, other) @ A), beta, C)


def syrkx(alpha: Any, A: Array, B: Array, beta: Any, C: Array, trans: str = "N", hermitian: bool = False) -> Array:
    other = "C" if hermitian else "T"
    return plus(alpha * (A @ op(B, other) if trans == "N" else op(A, other) @ B), beta, C)


def syr2k(alpha: Any, A: Array, B: Array, beta: Any, C: Array, trans: str = "N", hermitian: bool = False) -> Array:
    second = np.conj(alpha) if hermitian else alpha
    zero = np.zeros_like(C)
    product = syrkx(alpha, A, B, 0, zero, trans, hermitian) + syrkx(second, B, A, 0, zero, trans, hermitian)
    return plus(product, beta, C)


def trmm(alpha: Any, T: Array, B: Array, side: str = "L", trans: str = "N") -> Array:
    return alpha * (op(T, trans) @ B if side == "L" else B @ op(T, trans))


def finfo(dtype: Any) -> Any:
    """Return the limits of a dtype, even of one that NumPy lacks."""
    return ml_dtypes.finfo(dtype) if np.dtype(dtype).kind == "V" else np.finfo(dtype)


# -- how far off a result may be ---------------------------------------------------------------------------------------
def tolerance(dtype: Any, terms: int, magnitude: Any) -> Any:
    """Return the error bound of sums of `terms` products of total absolute value `magnitude`, computed in dtype.

    It is (terms + 4) eps for real dtypes in any order (Higham, Accuracy and Stability, section 3.1), four times as much
    for complex dtypes, and at least the smallest number, for underflow.
    """
    info = finfo(dtype)
    factor = 4 if np.dtype(dtype).kind == "c" else 1
    return factor * (terms + 4) * float(info.eps) * np.abs(magnitude) + float(info.tiny)


def assert_close(got: Any, expected: Any, terms: int, magnitude: Any, dtype: Any, case: str = "") -> None:
    """Fail unless every element of `got` is within `tolerance` of `expected`."""
    assert_within(got, expected, tolerance(dtype, terms, magnitude), case)


def assert_within(got: Any, expected: Any, allowed: Any, case: str = "") -> None:
    """Fail unless every element of `got` is off by at most `allowed`."""
    off = np.abs(wide(got) - expected)
    good = off <= allowed  # NaN is not good
    if not np.all(good):
        worst = np.max(np.where(good, 0, np.nan_to_num(off / allowed, nan=np.inf)))
        count = np.sum(~np.asarray(good))
        raise AssertionError(f"{case}: {count} of {np.size(good)} elements are off, one by {worst:.3g} times the bound")
