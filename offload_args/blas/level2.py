"""Level 2: matrices and vectors."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ._layout import entry, increments
from ._refusals import WRONG, explain, forward, inexpressible, misfit, stored, unaligned
from ._routine import Routine
from .level3 import GEMM, HEMM, HER2K, HERK, SYMM, SYR2K, SYRK, TRMM, TRSM

if TYPE_CHECKING:
    from ._routine import Pointer, Scalar

GemvParts: TypeAlias = "tuple[Any, int | None, dict[str, Any], dict[str, Any]]"


class Parts(dict[tuple[int, int], GemvParts]):
    """Hold the parts of a gemv call: (function, order or None, operations as they are and flipped).

    The overhead of this routine is noticeable; a functools.partial alone would be a tenth of it.
    """

    def __missing__(self, key: tuple[int, int]) -> GemvParts:
        _, call, enums = _GEMV[key]
        function, order = (call.func, call.args[0]) if isinstance(call, partial) else (call, None)
        parts = self[key] = function, order, *enums.op
        return parts


_GEMV = Routine("gemv", "sgemv dgemv cgemv zgemv")
_GEMV_PARTS = Parts()
_GER = Routine("ger", "sger dger cgeru zgeru")
_GERC = Routine("gerc", "sger dger cgerc zgerc")
_SYMV = Routine("symv", "ssymv dsymv csymv zsymv")
_HEMV = Routine("hemv", "ssymv dsymv chemv zhemv")
_SYR = Routine("syr", "ssyr dsyr csyr zsyr")
_HER = Routine("her", "ssyr dsyr cher zher")
_SYR2 = Routine("syr2", "ssyr2 dsyr2 csyr2 zsyr2")
_HER2 = Routine("her2", "ssyr2 dsyr2 cher2 zher2")
_TRMV = Routine("trmv", "strmv dtrmv ctrmv ztrmv")
_TRSV = Routine("trsv", "strsv dtrsv ctrsv ztrsv")


def gemv(alpha: Scalar, A: Pointer, x: Pointer, beta: Scalar, y: Pointer, *, trans: str = "N") -> None:
    """Set y to alpha op(A) x + beta y; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (m, n), x (n,) and y (m,); x (m,) and y (n,) unless trans is "N".
    """
    try:
        key, m, n, ld, ld_rows = A._geometry
        function, order, ops, flipped_ops = _GEMV_PARTS[key]
        key_x, size_x, incx = x._geometry
        key_y, size_y, incy = y._geometry
        if (key_x is not key or key_y is not key) and not A._dtype_code == x._dtype_code == y._dtype_code:
            raise KeyError
        op = ops[trans] if ld else flipped_ops[trans]
    except WRONG:
        explain(_GEMV, {"A": (A, 2), "x": (x, 1), "y": (y, 1)}, trans=trans)
        raise
    if not (size_x == n and size_y == m if trans == "N" else size_x == m and size_y == n):
        inner, outer = (n, m) if trans == "N" else (m, n)
        operand, pointer, size = ("x", x, inner) if size_x != inner else ("y", y, outer)
        raise misfit("gemv", operand, pointer, (size,), f'for A of shape ({m}, {n}) and trans="{trans}"')
    if incx is None or incy is None:
        raise unaligned("gemv", x=x, y=y)
    if not ld:  # in C order; a single row or column can be both, and by columns nothing is refused
        if not ld_rows:
            raise inexpressible("gemv", "", A=A)
        m, n, ld = n, m, ld_rows
    if op is None:  # y^T = x^T (A^T)^H, of matrices of one row
        _, gemm, _ = GEMM[key]
        row_x, row_y = forward("gemv", "x", incx), forward("gemv", "y", incy)
        gemm(ops["N"], ops["C"], 1, m, n, alpha, x, row_x, A, ld, beta, y, row_y)
    elif order is None:
        function(op, m, n, alpha, A, ld, x, incx, beta, y, incy)
    else:
        function(order, op, m, n, alpha, A, ld, x, incx, beta, y, incy)


def _rank_one(routine: Routine, alpha: Scalar, x: Pointer, y: Pointer, A: Pointer) -> None:
    try:
        itemsize, call, enums = routine[A._device, A._dtype_code]
        m, n = A._shape
        (size_x,), (stride_x,) = x._shape, x._strides
        (size_y,), (stride_y,) = y._shape, y._strides
        if A._dtype_code != x._dtype_code or A._dtype_code != y._dtype_code:
            raise KeyError
    except WRONG:
        explain(routine, {"x": (x, 1), "y": (y, 1), "A": (A, 2)})
        raise
    if size_x != m:
        raise misfit(routine.name, "x", x, (m,), f"for A of shape ({m}, {n})")
    if size_y != n:
        raise misfit(routine.name, "y", y, (n,), f"for A of shape ({m}, {n})")
    if (stride_x | stride_y) % itemsize:
        raise unaligned(routine.name, x=x, y=y)
    incx = stride_x // itemsize if m > 1 else 1
    incy = stride_y // itemsize if n > 1 else 1
    ld, ld_rows = stored(A)
    if ld:
        call(m, n, alpha, x, incx, y, incy, A, ld)
    elif not ld_rows:
        raise inexpressible(routine.name, "", A=A)
    elif routine is not _GERC or not enums.conjugates:
        call(n, m, alpha, y, incy, x, incx, A, ld_rows)
    else:  # A^T += alpha (y^T)^H x^T, of matrices of one row
        gemm = GEMM[A._device, A._dtype_code][1]
        row_x, row_y = forward("gerc", "x", incx), forward("gerc", "y", incy)
        gemm(enums.op[0]["C"], enums.op[0]["N"], n, m, 1, alpha, y, row_y, x, row_x, 1.0, A, ld_rows)


def ger(alpha: Scalar, x: Pointer, y: Pointer, A: Pointer) -> None:
    """Add alpha x y^T to A; x has shape (m,), y (n,) and A (m, n)."""
    _rank_one(_GER, alpha, x, y, A)


def gerc(alpha: Scalar, x: Pointer, y: Pointer, A: Pointer) -> None:
    """Add alpha x y^H to A; x has shape (m,), y (n,) and A (m, n)."""
    _rank_one(_GERC, alpha, x, y, A)


def _symmetric_vector(
    routine: Routine, alpha: Scalar, A: Pointer, x: Pointer, beta: Scalar, y: Pointer, uplo: str
) -> None:
    try:
        itemsize, call, enums = routine[A._device, A._dtype_code]
        n, columns = A._shape
        (size_x,), (stride_x,) = x._shape, x._strides
        (size_y,), (stride_y,) = y._shape, y._strides
        if A._dtype_code != x._dtype_code or A._dtype_code != y._dtype_code:
            raise KeyError
        ld, ld_rows = stored(A)
        fill = enums.uplo[not ld][uplo]
    except WRONG:
        explain(routine, {"A": (A, 2), "x": (x, 1), "y": (y, 1)}, uplo=uplo)
        raise
    if columns != n:
        raise misfit(routine.name, "A", A, (n, n), "as a square matrix")
    if size_x != n:
        raise misfit(routine.name, "x", x, (n,), f"for A of shape ({n}, {n})")
    if size_y != n:
        raise misfit(routine.name, "y", y, (n,), f"for A of shape ({n}, {n})")
    if (stride_x | stride_y) % itemsize:
        raise unaligned(routine.name, x=x, y=y)
    incx = stride_x // itemsize if n > 1 else 1
    incy = stride_y // itemsize if n > 1 else 1
    if not ld and not ld_rows:
        raise inexpressible(routine.name, "", A=A)
    if call is not None and (ld or routine is _SYMV or not enums.conjugates):
        call(fill, n, alpha, A, ld or ld_rows, x, incx, beta, y, incy)
    else:  # y^T = x^T A^T, of matrices of one row; A^T is what lies there in C order, and A itself if symmetric
        product = (HEMM if routine is _HEMV else SYMM)[A._device, A._dtype_code][1]
        row_x, row_y = forward(routine.name, "x", incx), forward(routine.name, "y", incy)
        product(enums.side[0]["R"], fill, 1, n, alpha, A, ld or ld_rows, x, row_x, beta, y, row_y)


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
    routine: Routine, matrix_routine: Routine, A: Pointer, x: Pointer, uplo: str, trans: str, diag: str
) -> None:
    try:
        itemsize, call, enums = routine[A._device, A._dtype_code]
        n, columns = A._shape
        (size,), (stride,) = x._shape, x._strides
        if A._dtype_code != x._dtype_code:
            raise KeyError
        ld, ld_rows = stored(A)
        fill, op, unit = enums.uplo[not ld][uplo], enums.op[not ld][trans], enums.diag[diag]
    except WRONG:
        explain(routine, {"A": (A, 2), "x": (x, 1)}, uplo=uplo, trans=trans, diag=diag)
        raise
    if columns != n:
        raise misfit(routine.name, "A", A, (n, n), "as a square matrix")
    if size != n:
        raise misfit(routine.name, "x", x, (n,), f"for A of shape ({n}, {n})")
    if stride % itemsize:
        raise unaligned(routine.name, x=x)
    inc = stride // itemsize if n > 1 else 1
    if not ld and not ld_rows:
        raise inexpressible(routine.name, "", A=A)
    if op is not None:
        call(fill, op, unit, n, A, ld or ld_rows, x, inc)
    else:  # x^T (A^T)^H, of a matrix of one row
        row, right = forward(routine.name, "x", inc), enums.side[0]["R"]
        matrix_routine[A._device, A._dtype_code][1](right, fill, enums.op[0]["C"], unit, 1, n, 1.0, A, ld_rows, x, row)


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


def _triangle_update(routine: Routine, alpha: Scalar, A: Pointer, uplo: str, **vectors: Pointer) -> None:
    """Add alpha x x^T, or alpha (x y^T + y x^T), or what is so for a Hermitian A."""
    call, enums = entry(routine, {**{name: (v, 1) for name, v in vectors.items()}, "A": (A, 2)}, uplo=uplo)
    n, columns = A._shape
    if columns != n:
        raise misfit(routine.name, "A", A, (n, n), "as a square matrix")
    reason = f"for A of shape ({n}, {n})"
    incs = increments(routine.name, reason, **{name: (v, n) for name, v in vectors.items()})
    ld, ld_rows = stored(A)
    if not ld and not ld_rows:
        raise inexpressible(routine.name, "", A=A)
    fill = enums.uplo[not ld][uplo]
    hermitian = enums.conjugates and (routine is _HER or routine is _HER2)
    if call is not None and (ld or not hermitian):
        given = [part for pair in zip(vectors.values(), incs, strict=True) for part in pair]
        call(fill, n, alpha, *given, A, ld or ld_rows)
        return
    # as a product of matrices of one row: A += alpha x x^T, and A^T += alpha conj(x) x^T for a Hermitian A in C order
    rows = [(v, forward(routine.name, name, inc)) for (name, v), inc in zip(vectors.items(), incs, strict=True)]
    given = [part for pair in (reversed(rows) if hermitian and not ld else rows) for part in pair]
    family = (HERK, HER2K) if hermitian else (SYRK, SYR2K)
    product = family[len(vectors) - 1][A._device, A._dtype_code][1]
    product(fill, enums.op[0]["C" if hermitian else "T"], n, 1, alpha, *given, 1.0, A, ld or ld_rows)


def syr(alpha: Scalar, x: Pointer, A: Pointer, *, uplo: str = "U") -> None:
    """Add alpha x x^T to the upper ("U") or lower ("L") triangle of A.

    x has shape (n,) and A (n, n).
    """
    _triangle_update(_SYR, alpha, A, uplo, x=x)


def her(alpha: Scalar, x: Pointer, A: Pointer, *, uplo: str = "U") -> None:
    """Add alpha x x^H, alpha real, to the upper ("U") or lower ("L") triangle of A.

    x has shape (n,) and A (n, n); the diagonal counts as real. For real dtypes it is syr.
    """
    _triangle_update(_HER, alpha, A, uplo, x=x)


def syr2(alpha: Scalar, x: Pointer, y: Pointer, A: Pointer, *, uplo: str = "U") -> None:
    """Add alpha (x y^T + y x^T) to the upper ("U") or lower ("L") triangle of A.

    x and y have shape (n,) and A (n, n).
    """
    _triangle_update(_SYR2, alpha, A, uplo, x=x, y=y)


def her2(alpha: Scalar, x: Pointer, y: Pointer, A: Pointer, *, uplo: str = "U") -> None:
    """Add alpha x y^H + conj(alpha) y x^H to the upper ("U") or lower ("L") triangle of A.

    x and y have shape (n,) and A (n, n); the diagonal counts as real. For real dtypes it is syr2.
    """
    _triangle_update(_HER2, alpha, A, uplo, x=x, y=y)
