"""Level 2: band matrices and packed triangles."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .._names import named
from .._operands import checking, contiguous, misfit, need_option, need_shape
from ..dtypes import ordered
from ..errors import ArgumentError
from ..pointers import DevicePtr
from ._forward import Vector, conjugates, is_read, numbers
from ._plans import planned
from ._routine import Routine, Scalar

if TYPE_CHECKING:
    from collections.abc import Callable


_GBMV = Routine("gbmv", "sgbmv dgbmv cgbmv zgbmv", "ab2 x1 y1", "trans")
_SBMV = Routine("sbmv", "ssbmv dsbmv - -", "ab2 x1 y1", "uplo")
_HBMV = Routine("hbmv", "ssbmv dsbmv chbmv zhbmv", "ab2 x1 y1", "uplo")
_TBMV = Routine("tbmv", "stbmv dtbmv ctbmv ztbmv", "ab2 x1", "uplo trans diag")
_TBSV = Routine("tbsv", "stbsv dtbsv ctbsv ztbsv", "ab2 x1", "uplo trans diag")
_SPMV = Routine("spmv", "sspmv dspmv - -", "ap1 x1 y1", "uplo")
_HPMV = Routine("hpmv", "sspmv dspmv chpmv zhpmv", "ap1 x1 y1", "uplo")
_SPR = Routine("spr", "sspr dspr - -", "x1 ap1", "uplo")
_HPR = Routine("hpr", "sspr dspr chpr zhpr", "x1 ap1", "uplo")
_SPR2 = Routine("spr2", "sspr2 dspr2 - -", "x1 y1 ap1", "uplo")
_HPR2 = Routine("hpr2", "sspr2 dspr2 chpr2 zhpr2", "x1 y1 ap1", "uplo")
_TPMV = Routine("tpmv", "stpmv dtpmv ctpmv ztpmv", "ap1 x1", "uplo trans diag")
_TPSV = Routine("tpsv", "stpsv dtpsv ctpsv ztpsv", "ap1 x1", "uplo trans diag")

# {the vendors' name: the caller's name} for a band and for a packed triangle.
_NAMES: Final = {"A": "ab", "AP": "ap"}

# The arguments of a triangle: its sizes, and then the array.
_Triangle: TypeAlias = "tuple[tuple[int, ...], tuple[Any, ...]]"


def _band_ld(name: str, ab: DevicePtr, ld: int, order: str) -> int:
    """Return ld, the leading dimension of a band; its diagonals are rows in Fortran order, and columns in C order."""
    if not ld:
        known, copy = ("Fortran", "asfortranarray") if order == "F" else ("C", "ascontiguousarray")
        line = "column" if order == "F" else "row"
        raise ArgumentError(
            f"blas.{name}: ab has shape {ab._shape} and strides {ab._strides}, needs {known} order, unit stride within "
            f'a {line}; {ordered("ab", ab, copy)}, with order="{order}"'
        )
    return ld


def _triangle(routine: Routine, A: DevicePtr, n: int, sizes: tuple[int, ...], order: str) -> _Triangle:
    """Return the arguments for a triangle of an (n, n) matrix: a band `ab`, or a packed `ap`; `sizes`: its geometry."""
    need_option(f"blas.{routine.name}", "order", order, ("F", "C"))
    if "ap" in routine.operands:
        contiguous(f"blas.{routine.name}", "ap", A, n * (n + 1) // 2, f"for x of shape ({n},)")
        return (n,), (A,)
    diagonals, columns, ld, _ = sizes
    if order == "C":
        columns, diagonals, _, ld = sizes
    if columns != n or not diagonals:
        needed = (max(diagonals, 1), n)
        raise misfit(
            f"blas.{routine.name}", "ab", A, needed if order == "F" else needed[::-1], f"for x of shape ({n},)"
        )
    return (n, diagonals - 1), (A, _band_ld(routine.name, A, ld, order))


def _call(call: Callable[..., None], *arguments: Any) -> None:
    named(call, _NAMES, *arguments)


@planned(
    _GBMV, "alpha ab:band/m x:n/m@trans beta y:m/n@trans", "m n kl ku/n m ku kl", "trans^", orders=True, names=_NAMES
)
def gbmv(
    alpha: Scalar,
    ab: DevicePtr,
    x: DevicePtr,
    beta: Scalar,
    y: DevicePtr,
    *,
    kl: int,
    ku: int,
    trans: str = "N",
    order: str = "F",
) -> None:
    """Set y to alpha op(A) x + beta y for a band matrix A; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    ab: the band of A, of shape (kl + ku + 1, n) in Fortran order: ab[ku + i - j, j] is A[i, j], and the corners of ab
    that are outside of A are not read.
    x: vector of shape (n,) if trans is "N", else (m,), for A of shape (m, n).
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, y is not read.
    y: vector of shape (m,) if trans is "N", else (n,); written.
    kl, ku: the numbers of diagonals of A below and above the main diagonal.
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.
    order: ab's order. With "C", ab has shape (m, kl + ku + 1), and ab[i, kl + j - i] is A[i, j].

        # A is [[4, 1, 0, 0], [2, 5, 1, 0], [0, 2, 6, 1]]
        ab = np.array([[0.0, 1, 1, 1], [4, 5, 6, 0], [2, 2, 0, 0]], order="F")
        x, y = np.ones(4), np.empty(3)
        with offload_args(ab, x, y) as (d_ab, dx, dy):
            blas.gbmv(1.0, d_ab, dx, 0.0, dy, kl=1, ku=1)
        print(y)  # [5. 8. 9.]

    See also: blas.sbmv, blas.hbmv, blas.tbmv, blas.gemv; cblas.dgbmv, cublas.dgbmv, rocblas.dgbmv; docs/guide/blas.md.
    """
    (call, by_rows, enums), (rows, columns, ld, ld_rows), (_, incx), (_, incy) = _GBMV.read((ab, x, y), trans)
    need_option("blas.gbmv", "order", order, ("F", "C"))
    kl, ku = index(kl), index(ku)
    if kl < 0 or ku < 0:
        raise ArgumentError(f"blas.gbmv: kl and ku need to be at least 0, got {kl} and {ku}")
    diagonals, straight = kl + ku + 1, trans == "N"
    need_shape(
        "blas.gbmv", "ab", ab, (diagonals, columns) if order == "F" else (rows, diagonals), f"for kl={kl} and ku={ku}"
    )
    m, n = (y if straight else x)._shape[0], (x if straight else y)._shape[0]
    if order == "F":
        n = columns
    else:
        m = rows
    reason = f'for ab of shape ({rows}, {columns}) and trans="{trans}"'
    need_shape("blas.gbmv", "x", x, (n if straight else m,), reason)
    need_shape("blas.gbmv", "y", y, (m if straight else n,), reason)
    band = ab, _band_ld("gbmv", ab, ld if order == "F" else ld_rows, order)
    vectors = x, incx, beta, y, incy
    if order == "F" or by_rows:
        _call(call if order == "F" else by_rows, enums.op[0][trans], m, n, kl, ku, alpha, *band, *vectors)
    elif enums.op[1][trans] is not None:  # the memory of ab is the band of A^T
        _call(call, enums.op[1][trans], n, m, ku, kl, alpha, *band, *vectors)
    else:  # conj(y) = conj(alpha) A^T conj(x) + conj(beta) conj(y)
        of_y = Vector("y", y, incy, is_read(beta), writes=True)
        with checking():
            _call(call, enums.op[0]["N"], n, m, ku, kl, alpha, *band, *vectors)
        with conjugates(Vector("x", x, incx), of_y) as (cx, cy), numbers(alpha, beta) as (a, b):
            _call(call, enums.op[0]["N"], n, m, ku, kl, a, *band, *cx, b, *cy)


def _symmetric(
    routine: Routine, alpha: Scalar, A: DevicePtr, x: DevicePtr, beta: Scalar, y: DevicePtr, uplo: str, order: str
) -> None:
    (call, by_rows, enums), stored, (n, incx), (_, incy) = routine.read((A, x, y), uplo)
    need_shape(f"blas.{routine.name}", "y", y, (n,), "as x has")
    sizes, triangle = _triangle(routine, A, n, stored, order)
    if order == "F" or by_rows:
        straight = call if order == "F" else by_rows
        _call(straight, enums.uplo[0][uplo], *sizes, alpha, *triangle, x, incx, beta, y, incy)
    elif not enums.conjugates:
        _call(call, enums.uplo[1][uplo], *sizes, alpha, *triangle, x, incx, beta, y, incy)
    else:  # computes with the columns of conj(A)
        of_y = Vector("y", y, incy, is_read(beta), writes=True)
        with checking():
            _call(call, enums.uplo[1][uplo], *sizes, alpha, *triangle, x, incx, beta, y, incy)
        with conjugates(Vector("x", x, incx), of_y) as (cx, cy), numbers(alpha, beta) as (a, b):
            _call(call, enums.uplo[1][uplo], *sizes, a, *triangle, *cx, b, *cy)


@planned(_SBMV, "alpha ab:band x:n beta y:n", "n k", "uplo^", orders=True, names=_NAMES)
def sbmv(
    alpha: Scalar, ab: DevicePtr, x: DevicePtr, beta: Scalar, y: DevicePtr, *, uplo: str = "U", order: str = "F"
) -> None:
    """Set y to alpha A x + beta y for a real symmetric band matrix A; one triangle is stored.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    ab: one triangle of the band, of shape (k + 1, n) in Fortran order: ab[k + i - j, j] is A[i, j] for the upper
    triangle ("U"), and ab[i - j, j] is A[i, j] for the lower one ("L").
    x: vector of shape (n,).
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, y is not read.
    y: vector of shape (n,), written.
    uplo: the triangle that is stored: "U", the upper one, or "L", the lower one.
    order: ab's order. With "C", ab has shape (n, k + 1), and ab[i, j - i] ("U") or ab[i, k + j - i] ("L") is A[i, j].

        # A is [[2, 1, 0], [1, 2, 1], [0, 1, 2]]
        ab = np.array([[0.0, 1, 1], [2, 2, 2]], order="F")
        x, y = np.ones(3), np.empty(3)
        with offload_args(ab, x, y) as (d_ab, dx, dy):
            blas.sbmv(1.0, d_ab, dx, 0.0, dy)
        print(y)  # [3. 4. 3.]

    See also: blas.hbmv, blas.gbmv, blas.symv; cblas.dsbmv, cublas.dsbmv, rocblas.dsbmv; docs/guide/blas.md.
    """
    _symmetric(_SBMV, alpha, ab, x, beta, y, uplo, order)


@planned(_HBMV, "alpha ab:band x:n beta y:n", "n k", "uplo^", hermitian="columns", orders=True, names=_NAMES)
def hbmv(
    alpha: Scalar, ab: DevicePtr, x: DevicePtr, beta: Scalar, y: DevicePtr, *, uplo: str = "U", order: str = "F"
) -> None:
    """Set y to alpha A x + beta y for a Hermitian band matrix A; one triangle is stored.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    ab: one triangle of the band, of shape (k + 1, n) in Fortran order: ab[k + i - j, j] is A[i, j] for the upper
    triangle ("U"), and ab[i - j, j] is A[i, j] for the lower one ("L").
    x: vector of shape (n,).
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, y is not read.
    y: vector of shape (n,), written.
    uplo: the triangle that is stored: "U", the upper one, or "L", the lower one.
    order: ab's order. With "C", ab has shape (n, k + 1), and ab[i, j - i] ("U") or ab[i, k + j - i] ("L") is A[i, j].

    The function is sbmv for real dtypes.

        # A is [[2, 1j, 0], [-1j, 2, 1j], [0, -1j, 2]]
        ab = np.array([[0, 1j, 1j], [2, 2, 2]], order="F")
        x, y = np.ones(3, complex), np.empty(3, complex)
        with offload_args(ab, x, y) as (d_ab, dx, dy):
            blas.hbmv(1.0, d_ab, dx, 0.0, dy)
        print(y)  # [2.+1.j 2.+0.j 2.-1.j]

    See also: blas.sbmv, blas.gbmv, blas.hemv; cblas.zhbmv, cublas.zhbmv, rocblas.zhbmv; docs/guide/blas.md.
    """
    _symmetric(_HBMV, alpha, ab, x, beta, y, uplo, order)


@planned(_SPMV, "alpha ap:packed x:n beta y:n", "n", "uplo^", orders=True, names=_NAMES)
def spmv(
    alpha: Scalar, ap: DevicePtr, x: DevicePtr, beta: Scalar, y: DevicePtr, *, uplo: str = "U", order: str = "F"
) -> None:
    """Set y to alpha A x + beta y for a real symmetric A; one triangle is packed.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    ap: one triangle of A, packed in shape (n (n + 1) / 2,) without gaps, column after column.
    x: vector of shape (n,).
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, y is not read.
    y: vector of shape (n,), written.
    uplo: the triangle that is stored: "U", the upper one, or "L", the lower one.
    order: the order of the triangle in ap. With "C", ap has its rows, as in A[numpy.triu_indices(n)].

        A, x, y = np.array([[2.0, 1, 3], [1, 5, 4], [3, 4, 7]]), np.ones(3), np.empty(3)
        with offload_args(A[np.triu_indices(3)], x, y) as (d_ap, dx, dy):
            blas.spmv(1.0, d_ap, dx, 0.0, dy, order="C")
        print(y)  # [ 6. 10. 14.]

    See also: blas.hpmv, blas.symv, blas.sbmv; cblas.dspmv, cublas.dspmv, rocblas.dspmv; docs/guide/blas.md.
    """
    _symmetric(_SPMV, alpha, ap, x, beta, y, uplo, order)


@planned(_HPMV, "alpha ap:packed x:n beta y:n", "n", "uplo^", hermitian="columns", orders=True, names=_NAMES)
def hpmv(
    alpha: Scalar, ap: DevicePtr, x: DevicePtr, beta: Scalar, y: DevicePtr, *, uplo: str = "U", order: str = "F"
) -> None:
    """Set y to alpha A x + beta y for a Hermitian A; one triangle is packed.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    ap: one triangle of A, packed in shape (n (n + 1) / 2,) without gaps, column after column.
    x: vector of shape (n,).
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, y is not read.
    y: vector of shape (n,), written.
    uplo: the triangle that is stored: "U", the upper one, or "L", the lower one.
    order: the order of the triangle in ap. With "C", ap has its rows, as in A[numpy.triu_indices(n)].

    The function is spmv for real dtypes.

        ap = np.array([2, 1j, 3])  # A is [[2, 1j], [-1j, 3]]
        x, y = np.ones(2, complex), np.empty(2, complex)
        with offload_args(ap, x, y) as (d_ap, dx, dy):
            blas.hpmv(1.0, d_ap, dx, 0.0, dy)
        print(y)  # [2.+1.j 3.-1.j]

    See also: blas.spmv, blas.hemv, blas.hbmv; cblas.zhpmv, cublas.zhpmv, rocblas.zhpmv; docs/guide/blas.md.
    """
    _symmetric(_HPMV, alpha, ap, x, beta, y, uplo, order)


def _triangular(routine: Routine, A: DevicePtr, x: DevicePtr, uplo: str, trans: str, diag: str, order: str) -> None:
    (call, by_rows, enums), stored, (n, inc) = routine.read((A, x), uplo, trans, diag)
    sizes, triangle = _triangle(routine, A, n, stored, order)
    op, unit = enums.op[1][trans], enums.diag[diag]
    if order == "F" or by_rows:
        straight = call if order == "F" else by_rows
        _call(straight, enums.uplo[0][uplo], enums.op[0][trans], unit, *sizes, *triangle, x, inc)
    elif op is not None:  # the memory of ap has the columns of A^T
        _call(call, enums.uplo[1][uplo], op, unit, *sizes, *triangle, x, inc)
    else:  # A^H is conj(A^T)
        with checking():
            _call(call, enums.uplo[1][uplo], enums.op[0]["N"], unit, *sizes, *triangle, x, inc)
        with conjugates(Vector("x", x, inc, writes=True)) as (cx,):
            _call(call, enums.uplo[1][uplo], enums.op[0]["N"], unit, *sizes, *triangle, *cx)


@planned(_TBMV, "ab:band x:n", "n k", "uplo^ trans^ diag", orders=True, names=_NAMES)
def tbmv(ab: DevicePtr, x: DevicePtr, *, uplo: str = "U", trans: str = "N", diag: str = "N", order: str = "F") -> None:
    """Set x to op(A) x for a triangular band matrix A; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    ab: one triangle of the band, of shape (k + 1, n) in Fortran order: ab[k + i - j, j] is A[i, j] for the upper
    triangle ("U"), and ab[i - j, j] is A[i, j] for the lower one ("L").
    x: vector of shape (n,), read and written.
    uplo: whether A is upper ("U") or lower ("L") triangular.
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.
    diag: with "N", the diagonal of A is read. With "U", it is not read, and its elements count as 1.
    order: ab's order. With "C", ab has shape (n, k + 1), and ab[i, j - i] ("U") or ab[i, k + j - i] ("L") is A[i, j].

        # A is [[2, 1, 0], [0, 2, 1], [0, 0, 2]]
        ab, x = np.array([[0.0, 1, 1], [2, 2, 2]], order="F"), np.ones(3)
        with offload_args(ab, x) as (d_ab, dx):
            blas.tbmv(d_ab, dx)
        print(x)  # [3. 3. 2.]

    See also: blas.tbsv, blas.trmv, blas.tpmv; cblas.dtbmv, cublas.dtbmv, rocblas.dtbmv; docs/guide/blas.md.
    """
    _triangular(_TBMV, ab, x, uplo, trans, diag, order)


@planned(_TBSV, "ab:band x:n", "n k", "uplo^ trans^ diag", orders=True, names=_NAMES)
def tbsv(ab: DevicePtr, x: DevicePtr, *, uplo: str = "U", trans: str = "N", diag: str = "N", order: str = "F") -> None:
    """Solve op(A) z = x for a triangular band matrix A and set x to z.

    ab: one triangle of the band, of shape (k + 1, n) in Fortran order: ab[k + i - j, j] is A[i, j] for the upper
    triangle ("U"), and ab[i - j, j] is A[i, j] for the lower one ("L").
    x: vector of shape (n,), read and written.
    uplo: whether A is upper ("U") or lower ("L") triangular.
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.
    diag: with "N", the diagonal of A is read. With "U", it is not read, and its elements count as 1.
    order: ab's order. With "C", ab has shape (n, k + 1), and ab[i, j - i] ("U") or ab[i, k + j - i] ("L") is A[i, j].

    The function does not check whether A can be inverted.

        # A is [[2, 1, 0], [0, 2, 1], [0, 0, 2]]
        ab, x = np.array([[0.0, 1, 1], [2, 2, 2]], order="F"), np.array([3.0, 3.0, 2.0])
        with offload_args(ab, x) as (d_ab, dx):
            blas.tbsv(d_ab, dx)
        print(x)  # [1. 1. 1.]

    See also: blas.tbmv, blas.trsv, blas.tpsv; cblas.dtbsv, cublas.dtbsv, rocblas.dtbsv; docs/guide/blas.md.
    """
    _triangular(_TBSV, ab, x, uplo, trans, diag, order)


@planned(_TPMV, "ap:packed x:n", "n", "uplo^ trans^ diag", orders=True, names=_NAMES)
def tpmv(ap: DevicePtr, x: DevicePtr, *, uplo: str = "U", trans: str = "N", diag: str = "N", order: str = "F") -> None:
    """Set x to op(A) x for a packed triangular A; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    ap: one triangle of A, packed in shape (n (n + 1) / 2,) without gaps, column after column.
    x: vector of shape (n,), read and written.
    uplo: whether A is upper ("U") or lower ("L") triangular.
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.
    diag: with "N", the diagonal of A is read. With "U", it is not read, and its elements count as 1.
    order: the order of the triangle in ap. With "C", ap has its rows, as in A[numpy.triu_indices(n)].

        ap, x = np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0])  # A is [[1, 2], [0, 3]]
        with offload_args(ap, x) as (d_ap, dx):
            blas.tpmv(d_ap, dx)
        print(x)  # [5. 6.]

    See also: blas.tpsv, blas.trmv, blas.tbmv; cblas.dtpmv, cublas.dtpmv, rocblas.dtpmv; docs/guide/blas.md.
    """
    _triangular(_TPMV, ap, x, uplo, trans, diag, order)


@planned(_TPSV, "ap:packed x:n", "n", "uplo^ trans^ diag", orders=True, names=_NAMES)
def tpsv(ap: DevicePtr, x: DevicePtr, *, uplo: str = "U", trans: str = "N", diag: str = "N", order: str = "F") -> None:
    """Solve op(A) z = x for a packed triangular A and set x to z.

    ap: one triangle of A, packed in shape (n (n + 1) / 2,) without gaps, column after column.
    x: vector of shape (n,), read and written.
    uplo: whether A is upper ("U") or lower ("L") triangular.
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.
    diag: with "N", the diagonal of A is read. With "U", it is not read, and its elements count as 1.
    order: the order of the triangle in ap. With "C", ap has its rows, as in A[numpy.triu_indices(n)].

    The function does not check whether A can be inverted.

        ap, x = np.array([2.0, 1.0, 4.0]), np.array([4.0, 8.0])  # A is [[2, 1], [0, 4]]
        with offload_args(ap, x) as (d_ap, dx):
            blas.tpsv(d_ap, dx)
        print(x)  # [1. 2.]

    See also: blas.tpmv, blas.trsv, blas.tbsv; cblas.dtpsv, cublas.dtpsv, rocblas.dtpsv; docs/guide/blas.md.
    """
    _triangular(_TPSV, ap, x, uplo, trans, diag, order)


def _update(routine: Routine, alpha: Scalar, ap: DevicePtr, uplo: str, order: str, *vectors: DevicePtr) -> None:
    (call, by_rows, enums), *sizes, stored = routine.read((*vectors, ap), uplo)
    n = sizes[0][0]
    need_shape(f"blas.{routine.name}", "y", vectors[-1], (n,), "as x has")
    _triangle(routine, ap, n, stored, order)
    operand_values = [part for v, (_, inc) in zip(vectors, sizes, strict=True) for part in (v, inc)]
    if order == "F" or by_rows:
        _call(call if order == "F" else by_rows, enums.uplo[0][uplo], n, alpha, *operand_values, ap)
    elif not enums.conjugates:
        _call(call, enums.uplo[1][uplo], n, alpha, *operand_values, ap)
    else:  # computes with the columns of conj(A)
        with checking():
            _call(call, enums.uplo[1][uplo], n, alpha, *operand_values, ap)
        of_vectors = (Vector(name, v, inc) for name, v, (_, inc) in zip("xy", vectors, sizes, strict=False))
        with conjugates(*of_vectors) as pairs, numbers(alpha) as (a,):
            alpha = a if len(vectors) == 2 else alpha  # alpha is real for one vector
            _call(call, enums.uplo[1][uplo], n, alpha, *(part for pair in pairs for part in pair), ap)


@planned(_SPR, "alpha x:n ap:packed", "n", "uplo^", orders=True, names=_NAMES)
def spr(alpha: Scalar, x: DevicePtr, ap: DevicePtr, *, uplo: str = "U", order: str = "F") -> None:
    """Add alpha x x^T to the packed upper ("U") or lower ("L") triangle of a real A.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    x: vector of shape (n,).
    ap: one triangle of A, packed in shape (n (n + 1) / 2,) without gaps, column after column; read and
    written.
    uplo: the triangle that is stored: "U", the upper one, or "L", the lower one.
    order: the order of the triangle in ap. With "C", ap has its rows, as in A[numpy.triu_indices(n)].

        x, ap = np.array([1.0, 2.0]), np.zeros(3)
        with offload_args(x, ap) as (dx, d_ap):
            blas.spr(1.0, dx, d_ap)
        print(ap)  # [1. 2. 4.]

    See also: blas.spr2, blas.syr, blas.hpr; cblas.dspr, cublas.dspr, rocblas.dspr; docs/guide/blas.md.
    """
    _update(_SPR, alpha, ap, uplo, order, x)


@planned(_HPR, "alpha x:n ap:packed", "n", "uplo^", hermitian="columns", orders=True, names=_NAMES)
def hpr(alpha: Scalar, x: DevicePtr, ap: DevicePtr, *, uplo: str = "U", order: str = "F") -> None:
    """Add alpha x x^H, alpha real, to the packed upper ("U") or lower ("L") triangle of A.

    alpha: a real number, or a 0-d DevicePtr of the real dtype.
    x: vector of shape (n,).
    ap: one triangle of A, packed in shape (n (n + 1) / 2,) without gaps, column after column; read and
    written.
    uplo: the triangle that is stored: "U", the upper one, or "L", the lower one.
    order: the order of the triangle in ap. With "C", ap has its rows, as in A[numpy.triu_indices(n)].

    The imaginary parts of the diagonal count as 0. The function is spr for real dtypes.

        x, ap = np.array([1, 1 + 1j]), np.zeros(3, complex)
        with offload_args(x, ap) as (dx, d_ap):
            blas.hpr(1.0, dx, d_ap)
        print(ap[1])  # (1-1j)

    See also: blas.hpr2, blas.her, blas.spr; cblas.zhpr, cublas.zhpr, rocblas.zhpr; docs/guide/blas.md.
    """
    _update(_HPR, alpha, ap, uplo, order, x)


@planned(_SPR2, "alpha x:n y:n ap:packed", "n", "uplo^", orders=True, names=_NAMES)
def spr2(alpha: Scalar, x: DevicePtr, y: DevicePtr, ap: DevicePtr, *, uplo: str = "U", order: str = "F") -> None:
    """Add alpha (x y^T + y x^T) to the packed upper ("U") or lower ("L") triangle of a real A.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    x, y: vectors of shape (n,).
    ap: one triangle of A, packed in shape (n (n + 1) / 2,) without gaps, column after column; read and
    written.
    uplo: the triangle that is stored: "U", the upper one, or "L", the lower one.
    order: the order of the triangle in ap. With "C", ap has its rows, as in A[numpy.triu_indices(n)].

        x, y, ap = np.array([1.0, 2.0]), np.array([3.0, 1.0]), np.zeros(3)
        with offload_args(x, y, ap) as (dx, dy, d_ap):
            blas.spr2(1.0, dx, dy, d_ap)
        print(ap)  # [6. 7. 4.]

    See also: blas.spr, blas.syr2, blas.hpr2; cblas.dspr2, cublas.dspr2, rocblas.dspr2; docs/guide/blas.md.
    """
    _update(_SPR2, alpha, ap, uplo, order, x, y)


@planned(_HPR2, "alpha x:n y:n ap:packed", "n", "uplo^", hermitian="columns", orders=True, names=_NAMES)
def hpr2(alpha: Scalar, x: DevicePtr, y: DevicePtr, ap: DevicePtr, *, uplo: str = "U", order: str = "F") -> None:
    """Add alpha x y^H + conj(alpha) y x^H to the packed upper ("U") or lower ("L") triangle of A.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    x, y: vectors of shape (n,).
    ap: one triangle of A, packed in shape (n (n + 1) / 2,) without gaps, column after column; read and
    written.
    uplo: the triangle that is stored: "U", the upper one, or "L", the lower one.
    order: the order of the triangle in ap. With "C", ap has its rows, as in A[numpy.triu_indices(n)].

    The imaginary parts of the diagonal count as 0. The function is spr2 for real dtypes.

        x, y, ap = np.array([1, 2 + 0j]), np.array([1j, 1]), np.zeros(3, complex)
        with offload_args(x, y, ap) as (dx, dy, d_ap):
            blas.hpr2(1.0, dx, dy, d_ap)
        print(ap[1])  # (1+2j)

    See also: blas.hpr, blas.her2, blas.spr2; cblas.zhpr2, cublas.zhpr2, rocblas.zhpr2; docs/guide/blas.md.
    """
    _update(_HPR2, alpha, ap, uplo, order, x, y)
