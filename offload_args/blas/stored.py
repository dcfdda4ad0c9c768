"""Level 2: band matrices and packed triangles."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import ArgumentError
from ._layout import contiguous, entry, increments
from ._refusals import misfit, stored
from ._routine import Routine

if TYPE_CHECKING:
    from ._routine import Pointer, Scalar

_GBMV = Routine("gbmv", "sgbmv dgbmv cgbmv zgbmv")
_SBMV = Routine("sbmv", "ssbmv dsbmv - -")
_HBMV = Routine("hbmv", "ssbmv dsbmv chbmv zhbmv")
_TBMV = Routine("tbmv", "stbmv dtbmv ctbmv ztbmv")
_TBSV = Routine("tbsv", "stbsv dtbsv ctbsv ztbsv")
_SPMV = Routine("spmv", "sspmv dspmv - -")
_HPMV = Routine("hpmv", "sspmv dspmv chpmv zhpmv")
_SPR = Routine("spr", "sspr dspr - -")
_HPR = Routine("hpr", "sspr dspr chpr zhpr")
_SPR2 = Routine("spr2", "sspr2 dspr2 - -")
_HPR2 = Routine("hpr2", "sspr2 dspr2 chpr2 zhpr2")
_TPMV = Routine("tpmv", "stpmv dtpmv ctpmv ztpmv")
_TPSV = Routine("tpsv", "stpsv dtpsv ctpsv ztpsv")


def _band_ld(name: str, ab: Pointer) -> int:
    """Return the leading dimension of a band, one diagonal a row, in Fortran order."""
    ld, _ = stored(ab)
    if not ld:
        raise ArgumentError(
            f"blas.{name}: ab has shape {ab._shape} and strides {ab._strides}, needs Fortran order, unit stride within "
            f'a column; lend a copy in it: numpy.asfortranarray(ab), order="F"'
        )
    return ld


# The arguments of a triangle: its sizes, and then itself.
_Triangle: TypeAlias = "tuple[tuple[int, ...], tuple[Any, ...]]"


def _band(name: str, ab: Pointer, n: int) -> _Triangle:
    rows, columns = ab._shape
    if columns != n or not rows:
        raise misfit(name, "ab", ab, (max(rows, 1), n), f"for x of shape ({n},)")
    return (n, rows - 1), (ab, _band_ld(name, ab))


def _packed(name: str, ap: Pointer, n: int) -> _Triangle:
    contiguous(name, "ap", ap, n * (n + 1) // 2, f"for x of shape ({n},)")
    return (n,), (ap,)


def gbmv(
    alpha: Scalar, ab: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, kl: int, ku: int, trans: str = "N"
) -> None:
    """Set y to alpha op(A) x + beta y for a band matrix A; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (m, n), kl diagonals below the main one and ku above. ab has shape (kl + ku + 1, n), Fortran order, and
    ab[ku + i - j, j] is A[i, j]; the corners outside of A are not read. x has shape (n,) and y (m,); x (m,) and y (n,)
    unless trans is "N". Rows in C order, rows[i, kl + j - i] being A[i, j], are A^T: pass rows.T with kl and ku
    exchanged and the other trans.
    """
    call, enums = entry(_GBMV, {"ab": (ab, 2), "x": (x, 1), "y": (y, 1)}, trans=trans)
    kl, ku = index(kl), index(ku)
    rows, n = ab._shape
    if kl < 0 or ku < 0:
        raise ArgumentError(f"blas.gbmv: kl and ku need to be at least 0, got {kl} and {ku}")
    if kl + ku + 1 != rows:
        raise misfit("gbmv", "ab", ab, (kl + ku + 1, n), f"for kl={kl} and ku={ku}")
    m = (y if trans == "N" else x)._shape[0]
    reason = f'for ab of shape ({rows}, {n}) and trans="{trans}"'
    incx, incy = increments("gbmv", reason, x=(x, n if trans == "N" else m), y=(y, m if trans == "N" else n))
    ld = _band_ld("gbmv", ab)
    call(enums.op[0][trans], m, n, kl, ku, alpha, ab, ld, x, incx, beta, y, incy)


def _stored_symmetric(
    routine: Routine, alpha: Scalar, x: Pointer, beta: Scalar, y: Pointer, uplo: str, **stored: Pointer
) -> None:
    """Multiply a symmetric or Hermitian matrix, a band `ab` or packed `ap`, by x."""
    ((operand, A),) = stored.items()
    arguments, ndim = (_band, 2) if operand == "ab" else (_packed, 1)
    call, enums = entry(routine, {operand: (A, ndim), "x": (x, 1), "y": (y, 1)}, uplo=uplo)
    n = x._shape[0]
    incx, incy = increments(routine.name, "as x has", x=(x, n), y=(y, n))
    sizes, triangle = arguments(routine.name, A, n)
    call(enums.uplo[0][uplo], *sizes, alpha, *triangle, x, incx, beta, y, incy)


def sbmv(alpha: Scalar, ab: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, uplo: str = "U") -> None:
    """Set y to alpha A x + beta y for a real symmetric band matrix A, of which one triangle is stored.

    A has shape (n, n) and k diagonals on either side of the main one; x and y have shape (n,). ab has shape (k + 1, n)
    and Fortran order: ab[k + i - j, j] is A[i, j] for the upper triangle ("U"), ab[i - j, j] for the lower ("L").
    """
    _stored_symmetric(_SBMV, alpha, x, beta, y, uplo, ab=ab)


def hbmv(alpha: Scalar, ab: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, uplo: str = "U") -> None:
    """Set y to alpha A x + beta y for a Hermitian band matrix A, of which one triangle is stored.

    A has shape (n, n) and k diagonals on either side of the main one; x and y have shape (n,). ab has shape (k + 1, n)
    and Fortran order: ab[k + i - j, j] is A[i, j] for the upper triangle ("U"), ab[i - j, j] for the lower ("L"). For
    real dtypes it is sbmv.
    """
    _stored_symmetric(_HBMV, alpha, x, beta, y, uplo, ab=ab)


def spmv(alpha: Scalar, ap: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, uplo: str = "U") -> None:
    """Set y to alpha A x + beta y for a real symmetric A, of which one triangle is packed.

    A has shape (n, n), x and y (n,). ap has shape (n (n + 1) / 2,): the columns of the upper ("U") or lower ("L")
    triangle. The rows of one triangle, A[numpy.triu_indices(n)], are the columns of the other: pass the other uplo.
    """
    _stored_symmetric(_SPMV, alpha, x, beta, y, uplo, ap=ap)


def hpmv(alpha: Scalar, ap: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, uplo: str = "U") -> None:
    """Set y to alpha A x + beta y for a Hermitian A, of which one triangle is packed.

    A has shape (n, n), x and y (n,). ap has shape (n (n + 1) / 2,): the columns of the upper ("U") or lower ("L")
    triangle. For real dtypes it is spmv.
    """
    _stored_symmetric(_HPMV, alpha, x, beta, y, uplo, ap=ap)


def _stored_triangular(routine: Routine, x: Pointer, uplo: str, trans: str, diag: str, **stored: Pointer) -> None:
    """Multiply by x, or solve for x, a triangular matrix, a band `ab` or packed `ap`."""
    ((operand, A),) = stored.items()
    arguments, ndim = (_band, 2) if operand == "ab" else (_packed, 1)
    call, enums = entry(routine, {operand: (A, ndim), "x": (x, 1)}, uplo=uplo, trans=trans, diag=diag)
    n = x._shape[0]
    (inc,) = increments(routine.name, "", x=(x, n))
    sizes, triangle = arguments(routine.name, A, n)
    call(enums.uplo[0][uplo], enums.op[0][trans], enums.diag[diag], *sizes, *triangle, x, inc)


def tbmv(ab: Pointer, x: Pointer, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Set x to op(A) x for a triangular band matrix A; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (n, n) and k diagonals beside the main one, which counts as ones if diag is "U"; x has shape (n,). ab
    has shape (k + 1, n) and Fortran order: ab[k + i - j, j] is A[i, j] for an upper A (uplo "U"), ab[i - j, j] for a
    lower one ("L").
    """
    _stored_triangular(_TBMV, x, uplo, trans, diag, ab=ab)


def tbsv(ab: Pointer, x: Pointer, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Solve op(A) z = x for a triangular band matrix A and set x to z; operands and options are tbmv's.

    Nothing checks that A can be inverted.
    """
    _stored_triangular(_TBSV, x, uplo, trans, diag, ab=ab)


def tpmv(ap: Pointer, x: Pointer, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Set x to op(A) x for a packed triangular A; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (n, n), and its diagonal counts as ones if diag is "U"; x has shape (n,). ap has shape
    (n (n + 1) / 2,): the columns of the upper ("U") or lower ("L") triangle. The rows of a triangle are the columns of
    A^T: pass the other uplo and the other trans.
    """
    _stored_triangular(_TPMV, x, uplo, trans, diag, ap=ap)


def tpsv(ap: Pointer, x: Pointer, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Solve op(A) z = x for a packed triangular A and set x to z; operands and options are tpmv's.

    Nothing checks that A can be inverted.
    """
    _stored_triangular(_TPSV, x, uplo, trans, diag, ap=ap)


def _packed_update(routine: Routine, alpha: Scalar, ap: Pointer, uplo: str, **vectors: Pointer) -> None:
    call, enums = entry(routine, {**{name: (v, 1) for name, v in vectors.items()}, "ap": (ap, 1)}, uplo=uplo)
    n = vectors["x"]._shape[0]
    incs = increments(routine.name, "as x has", **{name: (v, n) for name, v in vectors.items()})
    _packed(routine.name, ap, n)
    given = [part for pair in zip(vectors.values(), incs, strict=True) for part in pair]
    call(enums.uplo[0][uplo], n, alpha, *given, ap)


def spr(alpha: Scalar, x: Pointer, ap: Pointer, *, uplo: str = "U") -> None:
    """Add alpha x x^T to the packed upper ("U") or lower ("L") triangle of a real A.

    x has shape (n,) and ap (n (n + 1) / 2,): the columns of the triangle.
    """
    _packed_update(_SPR, alpha, ap, uplo, x=x)


def hpr(alpha: Scalar, x: Pointer, ap: Pointer, *, uplo: str = "U") -> None:
    """Add alpha x x^H, alpha real, to the packed upper ("U") or lower ("L") triangle of A.

    x has shape (n,) and ap (n (n + 1) / 2,): the columns of the triangle. The diagonal counts as real. For real dtypes
    it is spr.
    """
    _packed_update(_HPR, alpha, ap, uplo, x=x)


def spr2(alpha: Scalar, x: Pointer, y: Pointer, ap: Pointer, *, uplo: str = "U") -> None:
    """Add alpha (x y^T + y x^T) to the packed upper ("U") or lower ("L") triangle of a real A.

    x and y have shape (n,) and ap (n (n + 1) / 2,): the columns of the triangle.
    """
    _packed_update(_SPR2, alpha, ap, uplo, x=x, y=y)


def hpr2(alpha: Scalar, x: Pointer, y: Pointer, ap: Pointer, *, uplo: str = "U") -> None:
    """Add alpha x y^H + conj(alpha) y x^H to the packed upper ("U") or lower ("L") triangle of A.

    x and y have shape (n,) and ap (n (n + 1) / 2,): the columns of the triangle. The diagonal counts as real. For real
    dtypes it is spr2.
    """
    _packed_update(_HPR2, alpha, ap, uplo, x=x, y=y)
