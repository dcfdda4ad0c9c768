"""Level 2: matrices and vectors.

A library with row-major order takes a matrix in C order directly. For other libraries, its memory has the transpose, so
the operation or triangle is exchanged. If a conjugation prevents this exchange, vectors are passed as matrices of one
row to a routine of level 3.
"""

from __future__ import annotations

from typing import Any

from .._names import named, note_names
from .._operands import need_shape
from ..errors import OffloadError
from ..pointers import DevicePtr
from ._forward import Vector, forwards, is_read
from ._plans import planned
from ._refusals import inexpressible
from ._routine import Routine, Scalar
from .gemm import GEMM
from .level3 import HEMM, HER2K, HERK, SYMM, SYR2K, SYRK, TRMM, TRSM

_GEMV = Routine("gemv", "sgemv dgemv cgemv zgemv", "A2 x1 y1", "trans")
_GER = Routine("ger", "sger dger cgeru zgeru", "x1 y1 A2")
_GERC = Routine("gerc", "sger dger cgerc zgerc", "x1 y1 A2")
_SYMV = Routine("symv", "ssymv dsymv csymv zsymv", "A2 x1 y1", "uplo")
_HEMV = Routine("hemv", "ssymv dsymv chemv zhemv", "A2 x1 y1", "uplo")
_SYR = Routine("syr", "ssyr dsyr csyr zsyr", "x1 A2", "uplo")
_HER = Routine("her", "ssyr dsyr cher zher", "x1 A2", "uplo")
_SYR2 = Routine("syr2", "ssyr2 dsyr2 csyr2 zsyr2", "x1 y1 A2", "uplo")
_HER2 = Routine("her2", "ssyr2 dsyr2 cher2 zher2", "x1 y1 A2", "uplo")
_TRMV = Routine("trmv", "strmv dtrmv ctrmv ztrmv", "A2 x1", "uplo trans diag")
_TRSV = Routine("trsv", "strsv dtrsv ctrsv ztrsv", "A2 x1", "uplo trans diag")

# {the vendor's name of an operand of ger: the caller's name}, in a call for the transpose.
_EXCHANGED = {"x": "y", "y": "x"}


@planned(_GEMV, "alpha A:mn x:n/m@trans beta y:m/n@trans", "m n/n m", "trans^", orders=True)
def gemv(alpha: Scalar, A: DevicePtr, x: DevicePtr, beta: Scalar, y: DevicePtr, *, trans: str = "N") -> None:
    """Set y to alpha op(A) x + beta y; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A: matrix of shape (m, n).
    x: vector of shape (n,) if trans is "N", else (m,).
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, y is not read.
    y: vector of shape (m,) if trans is "N", else (n,); written.
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.

        A, x, y = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.ones(3), np.empty(2)
        with offload_args(A, x, y) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)
        print(y)  # [ 6. 15.]

    See also: blas.gemm, blas.symv, blas.gbmv; cblas.dgemv, cublas.dgemv, rocblas.dgemv; docs/guide/blas.md.
    """
    (call, by_rows, enums), (m, n, ld, ld_rows), (size_x, incx), (size_y, incy) = _GEMV.read((A, x, y), trans)
    if not (size_x == n and size_y == m if trans == "N" else size_x == m and size_y == n):
        reason = f'for A of shape ({m}, {n}) and trans="{trans}"'
        need_shape("blas.gemv", "x", x, (n if trans == "N" else m,), reason)
        need_shape("blas.gemv", "y", y, (m if trans == "N" else n,), reason)
    op, flipped = enums.op[0][trans], enums.op[1][trans]
    if ld:
        call(op, m, n, alpha, A, ld, x, incx, beta, y, incy)
    elif not ld_rows:
        raise inexpressible("gemv", "", A=A)
    elif by_rows:
        by_rows(op, m, n, alpha, A, ld_rows, x, incx, beta, y, incy)
    elif flipped is not None:
        call(flipped, n, m, alpha, A, ld_rows, x, incx, beta, y, incy)
    else:  # y^T = x^T (A^T)^H, of matrices of one row

        def check() -> None:
            call(enums.op[0]["N"], n, m, alpha, A, ld_rows, x, incx, beta, y, incy)

        written = Vector("y", y, incy, is_read(beta), writes=True)
        with forwards(Vector("x", x, incx), written, check=check) as (of_x, of_y):
            rows = enums.op[0]["N"], enums.op[0]["C"], 1, n, m, alpha, *of_x, A, ld_rows, beta, *of_y
            named(GEMM.of(A).call, {"A": "x", "B": "A", "C": "y"}, *rows)


def _rank_one(routine: Routine, alpha: Scalar, x: DevicePtr, y: DevicePtr, A: DevicePtr) -> None:
    entry, (size_x, incx), (size_y, incy), (m, n, ld, ld_rows) = routine.read((x, y, A))
    call, by_rows, enums = entry
    if size_x != m or size_y != n:
        need_shape(f"blas.{routine.name}", "x", x, (m,), f"for A of shape ({m}, {n})")
        need_shape(f"blas.{routine.name}", "y", y, (n,), f"for A of shape ({m}, {n})")
    if ld:
        call(m, n, alpha, x, incx, y, incy, A, ld)
    elif not ld_rows:
        raise inexpressible(routine.name, "", A=A)
    elif by_rows:
        by_rows(m, n, alpha, x, incx, y, incy, A, ld_rows)
    elif routine is not _GERC or not enums.conjugates:
        try:
            call(n, m, alpha, y, incy, x, incx, A, ld_rows)
        except OffloadError as error:
            note_names(error, _EXCHANGED)
            raise
    else:  # A^T += alpha (y^T)^H x^T, of matrices of one row

        def check() -> None:
            named(call, _EXCHANGED, n, m, alpha, y, incy, x, incx, A, ld_rows)

        with forwards(Vector("x", x, incx), Vector("y", y, incy), check=check) as (of_x, of_y):
            rows = enums.op[0]["C"], enums.op[0]["N"], n, m, 1, alpha, *of_y, *of_x, 1.0, A, ld_rows
            named(GEMM.of(A).call, {"A": "y", "B": "x", "C": "A"}, *rows)


@planned(_GER, "alpha x:m y:n A:mn", "m n/n m", turned="alpha y x A", names_turned=_EXCHANGED, orders=True)
def ger(alpha: Scalar, x: DevicePtr, y: DevicePtr, A: DevicePtr) -> None:
    """Add alpha x y^T to A.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    x: vector of shape (m,).
    y: vector of shape (n,).
    A: matrix of shape (m, n), read and written.

        x, y, A = np.array([1.0, 2.0]), np.array([1.0, 2.0, 3.0]), np.zeros((2, 3))
        with offload_args(x, y, A) as (dx, dy, dA):
            blas.ger(1.0, dx, dy, dA)
        print(A.tolist())  # [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]

    See also: blas.gerc, blas.syr, blas.gemm; cblas.dger, cublas.dger, rocblas.dger; docs/guide/blas.md.
    """
    _rank_one(_GER, alpha, x, y, A)


@planned(
    _GERC,
    "alpha x:m y:n A:mn",
    "m n/n m",
    turned="alpha y x A",
    names_turned=_EXCHANGED,
    hermitian="columns",
    orders=True,
)
def gerc(alpha: Scalar, x: DevicePtr, y: DevicePtr, A: DevicePtr) -> None:
    """Add alpha x y^H to A.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    x: vector of shape (m,).
    y: vector of shape (n,).
    A: matrix of shape (m, n), read and written.

        x, y, A = np.array([1 + 1j, 2, 1]), np.array([1j, 1]), np.zeros((3, 2), complex)
        with offload_args(x, y, A) as (dx, dy, dA):
            blas.gerc(1.0, dx, dy, dA)
        print(A[0])  # [1.-1.j 1.+1.j]

    See also: blas.ger, blas.her, blas.gemm; cblas.zgerc, cublas.zgerc, rocblas.zgerc; docs/guide/blas.md.
    """
    _rank_one(_GERC, alpha, x, y, A)


def _symmetric_vector(
    routine: Routine, alpha: Scalar, A: DevicePtr, x: DevicePtr, beta: Scalar, y: DevicePtr, uplo: str
) -> None:
    entry, (n, columns, ld, ld_rows), (size_x, incx), (size_y, incy) = routine.read((A, x, y), uplo)
    call, by_rows, enums = entry
    if not columns == size_x == size_y == n:
        need_shape(f"blas.{routine.name}", "A", A, (n, n), "as a square matrix")
        need_shape(f"blas.{routine.name}", "x", x, (n,), f"for A of shape ({n}, {n})")
        need_shape(f"blas.{routine.name}", "y", y, (n,), f"for A of shape ({n}, {n})")
    if not ld and not ld_rows:
        raise inexpressible(routine.name, "", A=A)
    straight, lead = call if ld else by_rows, ld or ld_rows
    if straight:
        straight(enums.uplo[0][uplo], n, alpha, A, lead, x, incx, beta, y, incy)
    elif call and (routine is _SYMV or not enums.conjugates):
        call(enums.uplo[1][uplo], n, alpha, A, lead, x, incx, beta, y, incy)
    else:  # y^T = x^T A^T, of matrices of one row; the memory of A in C order is A^T, and A itself if symmetric
        product = (HEMM if routine is _HEMV else SYMM).of(A).call

        def check() -> None:
            _HEMV.of(A).call(enums.uplo[not ld][uplo], n, alpha, A, lead, x, incx, beta, y, incy)

        written = Vector("y", y, incy, is_read(beta), writes=True)
        with forwards(Vector("x", x, incx), written, check=check) as (of_x, of_y):
            rows = enums.side[0]["R"], enums.uplo[not ld][uplo], 1, n, alpha, A, lead, *of_x, beta, *of_y
            named(product, {"B": "x", "C": "y"}, *rows)


@planned(_SYMV, "alpha A:nn x:n beta y:n", "n", "uplo^", orders=True)
def symv(alpha: Scalar, A: DevicePtr, x: DevicePtr, beta: Scalar, y: DevicePtr, *, uplo: str = "U") -> None:
    """Set y to alpha A x + beta y for a symmetric A; one triangle is read.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A: matrix of shape (n, n).
    x: vector of shape (n,).
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, y is not read.
    y: vector of shape (n,), written.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.

        A, x, y = np.array([[2.0, 1.0], [9.0, 3.0]]), np.array([1.0, 2.0]), np.empty(2)
        with offload_args(A, x, y) as (dA, dx, dy):
            blas.symv(1.0, dA, dx, 0.0, dy)  # the 9 is not read
        print(y)  # [4. 7.]

    See also: blas.hemv, blas.symm, blas.spmv, blas.sbmv; cblas.dsymv, cublas.dsymv, rocblas.dsymv; docs/guide/blas.md.
    """
    _symmetric_vector(_SYMV, alpha, A, x, beta, y, uplo)


@planned(_HEMV, "alpha A:nn x:n beta y:n", "n", "uplo^", hermitian="columns", orders=True)
def hemv(alpha: Scalar, A: DevicePtr, x: DevicePtr, beta: Scalar, y: DevicePtr, *, uplo: str = "U") -> None:
    """Set y to alpha A x + beta y for a Hermitian A; one triangle is read.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A: matrix of shape (n, n).
    x: vector of shape (n,).
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, y is not read.
    y: vector of shape (n,), written.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.

    The function is symv for real dtypes.

        A, x, y = np.array([[2, 1j], [-1j, 3]]), np.ones(2, complex), np.empty(2, complex)
        with offload_args(A, x, y) as (dA, dx, dy):
            blas.hemv(1.0, dA, dx, 0.0, dy)
        print(y)  # [2.+1.j 3.-1.j]

    See also: blas.symv, blas.hemm, blas.hpmv, blas.hbmv; cblas.zhemv, cublas.zhemv, rocblas.zhemv; docs/guide/blas.md.
    """
    _symmetric_vector(_HEMV, alpha, A, x, beta, y, uplo)


def _triangular_vector(
    routine: Routine, of_matrices: Routine, A: DevicePtr, x: DevicePtr, uplo: str, trans: str, diag: str
) -> None:
    entry, (n, columns, ld, ld_rows), (size, inc) = routine.read((A, x), uplo, trans, diag)
    call, by_rows, enums = entry
    if not columns == size == n:
        need_shape(f"blas.{routine.name}", "A", A, (n, n), "as a square matrix")
        need_shape(f"blas.{routine.name}", "x", x, (n,), f"for A of shape ({n}, {n})")
    if not ld and not ld_rows:
        raise inexpressible(routine.name, "", A=A)
    straight, lead, unit = call if ld else by_rows, ld or ld_rows, enums.diag[diag]
    if straight:
        straight(enums.uplo[0][uplo], enums.op[0][trans], unit, n, A, lead, x, inc)
    elif enums.op[1][trans] is not None:
        call(enums.uplo[1][uplo], enums.op[1][trans], unit, n, A, lead, x, inc)
    else:  # x^T (A^T)^H, of a matrix of one row
        side, fill, op = enums.side[0]["R"], enums.uplo[1][uplo], enums.op[0]["C"]

        def check() -> None:
            call(enums.uplo[1][uplo], enums.op[0]["N"], unit, n, A, lead, x, inc)

        with forwards(Vector("x", x, inc, writes=True), check=check) as (row,):
            named(of_matrices.of(A).call, {"B": "x"}, side, fill, op, unit, 1, n, 1.0, A, lead, *row)


@planned(_TRMV, "A:nn x:n", "n", "uplo^ trans^ diag", orders=True)
def trmv(A: DevicePtr, x: DevicePtr, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Set x to op(A) x for a triangular A; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A: triangular matrix of shape (n, n); its other triangle is not read.
    x: vector of shape (n,), read and written.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.
    diag: with "N", the diagonal of A is read. With "U", it is not read, and its elements count as 1.

        A, x = np.array([[1.0, 2.0], [9.0, 3.0]]), np.array([1.0, 2.0])
        with offload_args(A, x) as (dA, dx):
            blas.trmv(dA, dx)  # the 9 is not read
        print(x)  # [5. 6.]

    See also: blas.trsv, blas.trmm, blas.tpmv, blas.tbmv; cblas.dtrmv, cublas.dtrmv, rocblas.dtrmv; docs/guide/blas.md.
    """
    _triangular_vector(_TRMV, TRMM, A, x, uplo, trans, diag)


@planned(_TRSV, "A:nn x:n", "n", "uplo^ trans^ diag", orders=True)
def trsv(A: DevicePtr, x: DevicePtr, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Solve op(A) z = x for a triangular A and set x to z; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A: triangular matrix of shape (n, n); its other triangle is not read.
    x: vector of shape (n,), read and written.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.
    diag: with "N", the diagonal of A is read. With "U", it is not read, and its elements count as 1.

    The function does not check whether A can be inverted; lapack.trtrs does.

        A, x = np.array([[2.0, 1.0], [9.0, 4.0]]), np.array([4.0, 8.0])
        with offload_args(A, x) as (dA, dx):
            blas.trsv(dA, dx)  # the 9 is not read
        print(x)  # [1. 2.]

    See also: blas.trmv, blas.trsm, blas.tpsv, blas.tbsv; cblas.dtrsv, cublas.dtrsv, rocblas.dtrsv; docs/guide/blas.md.
    """
    _triangular_vector(_TRSV, TRSM, A, x, uplo, trans, diag)


def _triangle_update(routine: Routine, alpha: Scalar, A: DevicePtr, uplo: str, *vectors: DevicePtr) -> None:
    """Add alpha x x^T or alpha (x y^T + y x^T), or the Hermitian counterpart of one of these sums."""
    entry, *sizes, (n, columns, ld, ld_rows) = routine.read((*vectors, A), uplo)
    call, by_rows, enums = entry
    if columns != n:
        need_shape(f"blas.{routine.name}", "A", A, (n, n), "as a square matrix")
    for operand, vector, (size, _) in zip("xy", vectors, sizes, strict=False):
        if size != n:
            need_shape(f"blas.{routine.name}", operand, vector, (n,), f"for A of shape ({n}, {n})")
    if not ld and not ld_rows:
        raise inexpressible(routine.name, "", A=A)
    vectors_and_steps: list[Any] = [part for v, (_, inc) in zip(vectors, sizes, strict=True) for part in (v, inc)]
    hermitian = enums.conjugates and (routine is _HER or routine is _HER2)
    straight, lead = call if ld else by_rows, ld or ld_rows
    if straight:
        straight(enums.uplo[0][uplo], n, alpha, *vectors_and_steps, A, lead)
    elif call and not hermitian:
        call(enums.uplo[1][uplo], n, alpha, *vectors_and_steps, A, lead)
    else:  # as a product of matrices of one row: A += alpha x x^T, and A^T += alpha conj(x) x^T for a Hermitian A
        names = {"A": "x", "B": "y", "C": "A"}
        family = (HERK, HER2K) if hermitian else (SYRK, SYR2K)
        product = family[len(vectors) - 1].of(A).call
        op = enums.op[0]["C" if hermitian else "T"]

        def check() -> None:  # alpha of her is real
            factor = alpha if hermitian or len(vectors) == 2 else 1.0
            (_HER, _HER2)[len(vectors) - 1].of(A).call(enums.uplo[not ld][uplo], n, factor, *vectors_and_steps, A, lead)

        rows = (Vector(operand, v, inc) for operand, v, (_, inc) in zip("xy", vectors, sizes, strict=False))
        with forwards(*rows, check=check) as pairs:
            if hermitian and len(vectors) == 2:
                pairs.reverse()
                names |= {"A": "y", "B": "x"}
            parts = [part for pair in pairs for part in pair]
            named(product, names, enums.uplo[not ld][uplo], op, n, 1, alpha, *parts, 1.0, A, lead)


@planned(_SYR, "alpha x:n A:nn", "n", "uplo^", orders=True)
def syr(alpha: Scalar, x: DevicePtr, A: DevicePtr, *, uplo: str = "U") -> None:
    """Add alpha x x^T to the upper ("U") or lower ("L") triangle of A.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    x: vector of shape (n,).
    A: matrix of shape (n, n); one triangle is read and written.
    uplo: the triangle of A that is read and written: "U", the upper one, or "L", the lower one.

        x, A = np.array([1.0, 2.0]), np.zeros((2, 2))
        with offload_args(x, A) as (dx, dA):
            blas.syr(1.0, dx, dA)
        print(A.tolist())  # [[1.0, 2.0], [0.0, 4.0]]

    See also: blas.syr2, blas.syrk, blas.spr, blas.her; cblas.dsyr, cublas.dsyr, rocblas.dsyr; docs/guide/blas.md.
    """
    _triangle_update(_SYR, alpha, A, uplo, x)


@planned(_HER, "alpha x:n A:nn", "n", "uplo^", hermitian="columns", orders=True)
def her(alpha: Scalar, x: DevicePtr, A: DevicePtr, *, uplo: str = "U") -> None:
    """Add alpha x x^H, alpha real, to the upper ("U") or lower ("L") triangle of A.

    alpha: a real number, or a 0-d DevicePtr of the real dtype.
    x: vector of shape (n,).
    A: matrix of shape (n, n); one triangle is read and written.
    uplo: the triangle of A that is read and written: "U", the upper one, or "L", the lower one.

    The imaginary parts of the diagonal count as 0. The function is syr for real dtypes.

        x, A = np.array([1, 1 + 1j]), np.zeros((2, 2), complex)
        with offload_args(x, A) as (dx, dA):
            blas.her(1.0, dx, dA)
        print(A[0, 1], A[1, 1].real)  # (1-1j) 2.0

    See also: blas.her2, blas.herk, blas.hpr, blas.syr; cblas.zher, cublas.zher, rocblas.zher; docs/guide/blas.md.
    """
    _triangle_update(_HER, alpha, A, uplo, x)


@planned(_SYR2, "alpha x:n y:n A:nn", "n", "uplo^", orders=True)
def syr2(alpha: Scalar, x: DevicePtr, y: DevicePtr, A: DevicePtr, *, uplo: str = "U") -> None:
    """Add alpha (x y^T + y x^T) to the upper ("U") or lower ("L") triangle of A.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    x, y: vectors of shape (n,).
    A: matrix of shape (n, n); one triangle is read and written.
    uplo: the triangle of A that is read and written: "U", the upper one, or "L", the lower one.

        x, y, A = np.array([1.0, 2.0]), np.array([3.0, 1.0]), np.zeros((2, 2))
        with offload_args(x, y, A) as (dx, dy, dA):
            blas.syr2(1.0, dx, dy, dA)
        print(A.tolist())  # [[6.0, 7.0], [0.0, 4.0]]

    See also: blas.syr, blas.syr2k, blas.spr2, blas.her2; cblas.dsyr2, cublas.dsyr2, rocblas.dsyr2; docs/guide/blas.md.
    """
    _triangle_update(_SYR2, alpha, A, uplo, x, y)


@planned(_HER2, "alpha x:n y:n A:nn", "n", "uplo^", hermitian="columns", orders=True)
def her2(alpha: Scalar, x: DevicePtr, y: DevicePtr, A: DevicePtr, *, uplo: str = "U") -> None:
    """Add alpha x y^H + conj(alpha) y x^H to the upper ("U") or lower ("L") triangle of A.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    x, y: vectors of shape (n,).
    A: matrix of shape (n, n); one triangle is read and written.
    uplo: the triangle of A that is read and written: "U", the upper one, or "L", the lower one.

    The imaginary parts of the diagonal count as 0. The function is syr2 for real dtypes.

        x, y, A = np.array([1, 2 + 0j]), np.array([1j, 1]), np.zeros((2, 2), complex)
        with offload_args(x, y, A) as (dx, dy, dA):
            blas.her2(1.0, dx, dy, dA)
        print(A[0, 1])  # (1+2j)

    See also: blas.her, blas.her2k, blas.hpr2, blas.syr2; cblas.zher2, cublas.zher2, rocblas.zher2; docs/guide/blas.md.
    """
    _triangle_update(_HER2, alpha, A, uplo, x, y)
