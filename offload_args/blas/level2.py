"""Level 2: matrices and vectors.

A matrix in C order goes as it is to a library that has row-major order. To others its memory is the transpose: the
operation or triangle is exchanged, or, for what is conjugated then, vectors are passed as matrices of one row to the
routine of level 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import OffloadError
from ._names import named, note_names
from ._refusals import check_shape, forward, inexpressible
from ._routine import Routine, native
from .gemm import GEMM
from .level3 import HEMM, HER2K, HERK, SYMM, SYR2K, SYRK, TRMM, TRSM

if TYPE_CHECKING:
    from ._routine import Pointer, Scalar

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


@native("gemv", _GEMV)
def gemv(alpha: Scalar, A: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, trans: str = "N") -> None:
    """Set y to alpha op(A) x + beta y; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (m, n), x (n,) and y (m,); x (m,) and y (n,) unless trans is "N".
    """
    (call, by_rows, enums), (m, n, ld, ld_rows), (size_x, incx), (size_y, incy) = _GEMV.read((A, x, y), trans)
    if not (size_x == n and size_y == m if trans == "N" else size_x == m and size_y == n):
        reason = f'for A of shape ({m}, {n}) and trans="{trans}"'
        check_shape("gemv", "x", x, (n if trans == "N" else m,), reason)
        check_shape("gemv", "y", y, (m if trans == "N" else n,), reason)
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
        row_x, row_y = forward("gemv", "x", incx), forward("gemv", "y", incy)
        rows = enums.op[0]["N"], enums.op[0]["C"], 1, n, m, alpha, x, row_x, A, ld_rows, beta, y, row_y
        named(GEMM.of(A).call, {"A": "x", "B": "A", "C": "y"}, *rows)


def _rank_one(routine: Routine, alpha: Scalar, x: Pointer, y: Pointer, A: Pointer) -> None:
    entry, (size_x, incx), (size_y, incy), (m, n, ld, ld_rows) = routine.read((x, y, A))
    call, by_rows, enums = entry
    if size_x != m or size_y != n:
        check_shape(routine.name, "x", x, (m,), f"for A of shape ({m}, {n})")
        check_shape(routine.name, "y", y, (n,), f"for A of shape ({m}, {n})")
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
            note_names(error, {"x": "y", "y": "x"})
            raise
    else:  # A^T += alpha (y^T)^H x^T, of matrices of one row
        row_x, row_y = forward("gerc", "x", incx), forward("gerc", "y", incy)
        rows = enums.op[0]["C"], enums.op[0]["N"], n, m, 1, alpha, y, row_y, x, row_x, 1.0, A, ld_rows
        named(GEMM.of(A).call, {"A": "y", "B": "x", "C": "A"}, *rows)


def ger(alpha: Scalar, x: Pointer, y: Pointer, A: Pointer) -> None:
    """Add alpha x y^T to A; x has shape (m,), y (n,) and A (m, n)."""
    _rank_one(_GER, alpha, x, y, A)


def gerc(alpha: Scalar, x: Pointer, y: Pointer, A: Pointer) -> None:
    """Add alpha x y^H to A; x has shape (m,), y (n,) and A (m, n)."""
    _rank_one(_GERC, alpha, x, y, A)


def _symmetric_vector(
    routine: Routine, alpha: Scalar, A: Pointer, x: Pointer, beta: Scalar, y: Pointer, uplo: str
) -> None:
    entry, (n, columns, ld, ld_rows), (size_x, incx), (size_y, incy) = routine.read((A, x, y), uplo)
    call, by_rows, enums = entry
    if not columns == size_x == size_y == n:
        check_shape(routine.name, "A", A, (n, n), "as a square matrix")
        check_shape(routine.name, "x", x, (n,), f"for A of shape ({n}, {n})")
        check_shape(routine.name, "y", y, (n,), f"for A of shape ({n}, {n})")
    if not ld and not ld_rows:
        raise inexpressible(routine.name, "", A=A)
    straight, lead = call if ld else by_rows, ld or ld_rows
    if straight:
        straight(enums.uplo[0][uplo], n, alpha, A, lead, x, incx, beta, y, incy)
    elif call and (routine is _SYMV or not enums.conjugates):
        call(enums.uplo[1][uplo], n, alpha, A, lead, x, incx, beta, y, incy)
    else:  # y^T = x^T A^T, of matrices of one row; A^T is what lies there in C order, and A itself if symmetric
        product = (HEMM if routine is _HEMV else SYMM).of(A).call
        row_x, row_y = forward(routine.name, "x", incx), forward(routine.name, "y", incy)
        rows = enums.side[0]["R"], enums.uplo[not ld][uplo], 1, n, alpha, A, lead, x, row_x, beta, y, row_y
        named(product, {"B": "x", "C": "y"}, *rows)


def symv(alpha: Scalar, A: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, uplo: str = "U") -> None:
    """Set y to alpha A x + beta y for a symmetric A, of which the upper ("U") or lower ("L") triangle is read.

    A has shape (n, n), x and y (n,).
    """
    _symmetric_vector(_SYMV, alpha, A, x, beta, y, uplo)


def hemv(alpha: Scalar, A: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, uplo: str = "U") -> None:
    """Set y to alpha A x + beta y for a Hermitian A, of which the upper ("U") or lower ("L") triangle is read.

    A has shape (n, n), x and y (n,). For real dtypes it is symv.
    """
    _symmetric_vector(_HEMV, alpha, A, x, beta, y, uplo)


def _triangular_vector(
    routine: Routine, of_matrices: Routine, A: Pointer, x: Pointer, uplo: str, trans: str, diag: str
) -> None:
    entry, (n, columns, ld, ld_rows), (size, inc) = routine.read((A, x), uplo, trans, diag)
    call, by_rows, enums = entry
    if not columns == size == n:
        check_shape(routine.name, "A", A, (n, n), "as a square matrix")
        check_shape(routine.name, "x", x, (n,), f"for A of shape ({n}, {n})")
    if not ld and not ld_rows:
        raise inexpressible(routine.name, "", A=A)
    straight, lead, unit = call if ld else by_rows, ld or ld_rows, enums.diag[diag]
    if straight:
        straight(enums.uplo[0][uplo], enums.op[0][trans], unit, n, A, lead, x, inc)
    elif enums.op[1][trans] is not None:
        call(enums.uplo[1][uplo], enums.op[1][trans], unit, n, A, lead, x, inc)
    else:  # x^T (A^T)^H, of a matrix of one row
        row, side, fill, op = forward(routine.name, "x", inc), enums.side[0]["R"], enums.uplo[1][uplo], enums.op[0]["C"]
        named(of_matrices.of(A).call, {"B": "x"}, side, fill, op, unit, 1, n, 1.0, A, lead, x, row)


def trmv(A: Pointer, x: Pointer, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Set x to op(A) x for a triangular A; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (n, n), and its upper ("U") or lower ("L") triangle is read, without the diagonal, which counts as ones,
    if diag is "U". x has shape (n,).
    """
    _triangular_vector(_TRMV, TRMM, A, x, uplo, trans, diag)


def trsv(A: Pointer, x: Pointer, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Solve op(A) z = x for a triangular A and set x to z; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (n, n), and its upper ("U") or lower ("L") triangle is read, without the diagonal, which counts as ones,
    if diag is "U". x has shape (n,). Nothing checks that A can be inverted.
    """
    _triangular_vector(_TRSV, TRSM, A, x, uplo, trans, diag)


def _triangle_update(routine: Routine, alpha: Scalar, A: Pointer, uplo: str, *vectors: Pointer) -> None:
    """Add alpha x x^T, or alpha (x y^T + y x^T), or what is so for a Hermitian A."""
    entry, *sizes, (n, columns, ld, ld_rows) = routine.read((*vectors, A), uplo)
    call, by_rows, enums = entry
    if columns != n:
        check_shape(routine.name, "A", A, (n, n), "as a square matrix")
    for operand, vector, (size, _) in zip("xy", vectors, sizes, strict=False):
        if size != n:
            check_shape(routine.name, operand, vector, (n,), f"for A of shape ({n}, {n})")
    if not ld and not ld_rows:
        raise inexpressible(routine.name, "", A=A)
    given: list[Any] = [part for v, (_, inc) in zip(vectors, sizes, strict=True) for part in (v, inc)]
    hermitian = enums.conjugates and (routine is _HER or routine is _HER2)
    straight, lead = call if ld else by_rows, ld or ld_rows
    if straight:
        straight(enums.uplo[0][uplo], n, alpha, *given, A, lead)
    elif call and not hermitian:
        call(enums.uplo[1][uplo], n, alpha, *given, A, lead)
    else:  # as a product of matrices of one row: A += alpha x x^T, and A^T += alpha conj(x) x^T for a Hermitian A
        for operand, (_, inc) in zip("xy", sizes, strict=False):
            forward(routine.name, operand, inc)
        names = {"A": "x", "B": "y", "C": "A"}
        if hermitian and len(vectors) == 2:
            given = given[2:] + given[:2]
            names |= {"A": "y", "B": "x"}
        family = (HERK, HER2K) if hermitian else (SYRK, SYR2K)
        product = family[len(vectors) - 1].of(A).call
        op = enums.op[0]["C" if hermitian else "T"]
        named(product, names, enums.uplo[not ld][uplo], op, n, 1, alpha, *given, 1.0, A, lead)


def syr(alpha: Scalar, x: Pointer, A: Pointer, *, uplo: str = "U") -> None:
    """Add alpha x x^T to the upper ("U") or lower ("L") triangle of A.

    x has shape (n,) and A (n, n).
    """
    _triangle_update(_SYR, alpha, A, uplo, x)


def her(alpha: Scalar, x: Pointer, A: Pointer, *, uplo: str = "U") -> None:
    """Add alpha x x^H, alpha real, to the upper ("U") or lower ("L") triangle of A.

    x has shape (n,) and A (n, n); the diagonal counts as real. For real dtypes it is syr.
    """
    _triangle_update(_HER, alpha, A, uplo, x)


def syr2(alpha: Scalar, x: Pointer, y: Pointer, A: Pointer, *, uplo: str = "U") -> None:
    """Add alpha (x y^T + y x^T) to the upper ("U") or lower ("L") triangle of A.

    x and y have shape (n,) and A (n, n).
    """
    _triangle_update(_SYR2, alpha, A, uplo, x, y)


def her2(alpha: Scalar, x: Pointer, y: Pointer, A: Pointer, *, uplo: str = "U") -> None:
    """Add alpha x y^H + conj(alpha) y x^H to the upper ("U") or lower ("L") triangle of A.

    x and y have shape (n,) and A (n, n); the diagonal counts as real. For real dtypes it is syr2.
    """
    _triangle_update(_HER2, alpha, A, uplo, x, y)
