"""Level 2: band matrices and packed triangles."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .._portable import contiguous
from ..errors import ArgumentError, OffloadError
from ._names import note_names
from ._refusals import check_shape, misfit
from ._routine import Routine

if TYPE_CHECKING:
    from ._routine import Pointer, Scalar

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

# The vendors' names of ab and ap.
_NAMES: Final = {"A": "ab", "AP": "ap"}

# The arguments of a triangle: its sizes, and then itself.
_Triangle: TypeAlias = "tuple[tuple[int, ...], tuple[Any, ...]]"


def _band_ld(name: str, ab: Pointer, ld: int) -> int:
    """Return ld, of a band in Fortran order, one diagonal a row."""
    if not ld:
        raise ArgumentError(
            f"blas.{name}: ab has shape {ab._shape} and strides {ab._strides}, needs Fortran order, unit stride within "
            f'a column; lend a copy in it: numpy.asfortranarray(ab), order="F"'
        )
    return ld


def _triangle(routine: Routine, A: Pointer, n: int, sizes: tuple[int, ...]) -> _Triangle:
    """Return the arguments of a triangle of an (n, n) matrix, a band `ab` or packed `ap`; sizes: its geometry."""
    if "ap" in routine.operands:
        contiguous(f"blas.{routine.name}", "ap", A, n * (n + 1) // 2, f"for x of shape ({n},)")
        return (n,), (A,)
    rows, columns, ld, _ = sizes
    if columns != n or not rows:
        raise misfit(routine.name, "ab", A, (max(rows, 1), n), f"for x of shape ({n},)")
    return (n, rows - 1), (A, _band_ld(routine.name, A, ld))


def gbmv(
    alpha: Scalar, ab: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, kl: int, ku: int, trans: str = "N"
) -> None:
    """Set y to alpha op(A) x + beta y for a band matrix A; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (m, n), kl diagonals below the main one and ku above. ab has shape (kl + ku + 1, n), Fortran order, and
    ab[ku + i - j, j] is A[i, j]; the corners outside of A are not read. x has shape (n,) and y (m,); x (m,) and y (n,)
    unless trans is "N". Rows in C order, rows[i, kl + j - i] being A[i, j], are A^T: pass rows.T with kl and ku
    exchanged and the other trans.
    """
    (call, _, enums), (rows, n, ld, _), (_, incx), (_, incy) = _GBMV.read((ab, x, y), trans)
    kl, ku = index(kl), index(ku)
    if kl < 0 or ku < 0:
        raise ArgumentError(f"blas.gbmv: kl and ku need to be at least 0, got {kl} and {ku}")
    check_shape("gbmv", "ab", ab, (kl + ku + 1, n), f"for kl={kl} and ku={ku}")
    m = (y if trans == "N" else x)._shape[0]
    reason = f'for ab of shape ({rows}, {n}) and trans="{trans}"'
    check_shape("gbmv", "x", x, (n if trans == "N" else m,), reason)
    check_shape("gbmv", "y", y, (m if trans == "N" else n,), reason)
    band = ab, _band_ld("gbmv", ab, ld)
    try:
        call(enums.op[0][trans], m, n, kl, ku, alpha, *band, x, incx, beta, y, incy)
    except OffloadError as error:
        note_names(error, _NAMES)
        raise


def _symmetric(routine: Routine, alpha: Scalar, A: Pointer, x: Pointer, beta: Scalar, y: Pointer, uplo: str) -> None:
    (call, _, enums), stored, (n, incx), (_, incy) = routine.read((A, x, y), uplo)
    check_shape(routine.name, "y", y, (n,), "as x has")
    sizes, triangle = _triangle(routine, A, n, stored)
    try:
        call(enums.uplo[0][uplo], *sizes, alpha, *triangle, x, incx, beta, y, incy)
    except OffloadError as error:
        note_names(error, _NAMES)
        raise


def sbmv(alpha: Scalar, ab: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, uplo: str = "U") -> None:
    """Set y to alpha A x + beta y for a real symmetric band matrix A, of which one triangle is stored.

    A has shape (n, n) and k diagonals on either side of the main one; x and y have shape (n,). ab has shape (k + 1, n)
    and Fortran order: ab[k + i - j, j] is A[i, j] for the upper triangle ("U"), ab[i - j, j] for the lower ("L").
    """
    _symmetric(_SBMV, alpha, ab, x, beta, y, uplo)


def hbmv(alpha: Scalar, ab: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, uplo: str = "U") -> None:
    """Set y to alpha A x + beta y for a Hermitian band matrix A, of which one triangle is stored.

    A has shape (n, n) and k diagonals on either side of the main one; x and y have shape (n,). ab has shape (k + 1, n)
    and Fortran order: ab[k + i - j, j] is A[i, j] for the upper triangle ("U"), ab[i - j, j] for the lower ("L"). For
    real dtypes it is sbmv.
    """
    _symmetric(_HBMV, alpha, ab, x, beta, y, uplo)


def spmv(alpha: Scalar, ap: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, uplo: str = "U") -> None:
    """Set y to alpha A x + beta y for a real symmetric A, of which one triangle is packed.

    A has shape (n, n), x and y (n,). ap has shape (n (n + 1) / 2,): the columns of the upper ("U") or lower ("L")
    triangle. The rows of one triangle, A[numpy.triu_indices(n)], are the columns of the other: pass the other uplo.
    """
    _symmetric(_SPMV, alpha, ap, x, beta, y, uplo)


def hpmv(alpha: Scalar, ap: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, uplo: str = "U") -> None:
    """Set y to alpha A x + beta y for a Hermitian A, of which one triangle is packed.

    A has shape (n, n), x and y (n,). ap has shape (n (n + 1) / 2,): the columns of the upper ("U") or lower ("L")
    triangle. For real dtypes it is spmv.
    """
    _symmetric(_HPMV, alpha, ap, x, beta, y, uplo)


def _triangular(routine: Routine, A: Pointer, x: Pointer, uplo: str, trans: str, diag: str) -> None:
    (call, _, enums), stored, (n, inc) = routine.read((A, x), uplo, trans, diag)
    sizes, triangle = _triangle(routine, A, n, stored)
    try:
        call(enums.uplo[0][uplo], enums.op[0][trans], enums.diag[diag], *sizes, *triangle, x, inc)
    except OffloadError as error:
        note_names(error, _NAMES)
        raise


def tbmv(ab: Pointer, x: Pointer, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Set x to op(A) x for a triangular band matrix A; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (n, n) and k diagonals beside the main one, which counts as ones if diag is "U"; x has shape (n,). ab
    has shape (k + 1, n) and Fortran order: ab[k + i - j, j] is A[i, j] for an upper A (uplo "U"), ab[i - j, j] for a
    lower one ("L").
    """
    _triangular(_TBMV, ab, x, uplo, trans, diag)


def tbsv(ab: Pointer, x: Pointer, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Solve op(A) z = x for a triangular band matrix A and set x to z; operands and options are tbmv's.

    Nothing checks that A can be inverted.
    """
    _triangular(_TBSV, ab, x, uplo, trans, diag)


def tpmv(ap: Pointer, x: Pointer, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Set x to op(A) x for a packed triangular A; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (n, n), and its diagonal counts as ones if diag is "U"; x has shape (n,). ap has shape
    (n (n + 1) / 2,): the columns of the upper ("U") or lower ("L") triangle. The rows of a triangle are the columns of
    A^T: pass the other uplo and the other trans.
    """
    _triangular(_TPMV, ap, x, uplo, trans, diag)


def tpsv(ap: Pointer, x: Pointer, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Solve op(A) z = x for a packed triangular A and set x to z; operands and options are tpmv's.

    Nothing checks that A can be inverted.
    """
    _triangular(_TPSV, ap, x, uplo, trans, diag)


def _update(routine: Routine, alpha: Scalar, ap: Pointer, uplo: str, *vectors: Pointer) -> None:
    (call, _, enums), *sizes, stored = routine.read((*vectors, ap), uplo)
    n = sizes[0][0]
    check_shape(routine.name, "y", vectors[-1], (n,), "as x has")
    _triangle(routine, ap, n, stored)
    given = [part for v, (_, inc) in zip(vectors, sizes, strict=True) for part in (v, inc)]
    try:
        call(enums.uplo[0][uplo], n, alpha, *given, ap)
    except OffloadError as error:
        note_names(error, _NAMES)
        raise


def spr(alpha: Scalar, x: Pointer, ap: Pointer, *, uplo: str = "U") -> None:
    """Add alpha x x^T to the packed upper ("U") or lower ("L") triangle of a real A.

    x has shape (n,) and ap (n (n + 1) / 2,): the columns of the triangle.
    """
    _update(_SPR, alpha, ap, uplo, x)


def hpr(alpha: Scalar, x: Pointer, ap: Pointer, *, uplo: str = "U") -> None:
    """Add alpha x x^H, alpha real, to the packed upper ("U") or lower ("L") triangle of A.

    x has shape (n,) and ap (n (n + 1) / 2,): the columns of the triangle. The diagonal counts as real. For real dtypes
    it is spr.
    """
    _update(_HPR, alpha, ap, uplo, x)


def spr2(alpha: Scalar, x: Pointer, y: Pointer, ap: Pointer, *, uplo: str = "U") -> None:
    """Add alpha (x y^T + y x^T) to the packed upper ("U") or lower ("L") triangle of a real A.

    x and y have shape (n,) and ap (n (n + 1) / 2,): the columns of the triangle.
    """
    _update(_SPR2, alpha, ap, uplo, x, y)


def hpr2(alpha: Scalar, x: Pointer, y: Pointer, ap: Pointer, *, uplo: str = "U") -> None:
    """Add alpha x y^H + conj(alpha) y x^H to the packed upper ("U") or lower ("L") triangle of A.

    x and y have shape (n,) and ap (n (n + 1) / 2,): the columns of the triangle. The diagonal counts as real. For real
    dtypes it is spr2.
    """
    _update(_HPR2, alpha, ap, uplo, x, y)
