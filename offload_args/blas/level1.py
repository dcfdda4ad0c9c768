"""Level 1: vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from .._core import layout
from .._portable import contiguous
from ..errors import ArgumentError
from ..pointers import DevicePtr
from ._names import named
from ._refusals import misfit
from ._routine import WRONG, Routine, is_complex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._routine import Pointer, Scalar

_AXPY = Routine("axpy", "saxpy daxpy caxpy zaxpy", "x1 y1")
_SCAL = Routine("scal", "sscal dscal cscal zscal", "x1")
_SCAL_REAL = Routine("scal", "sscal dscal csscal zdscal", "x1")
_COPY = Routine("copy", "scopy dcopy ccopy zcopy", "x1 y1")
_SWAP = Routine("swap", "sswap dswap cswap zswap", "x1 y1")
_DOT = Routine("dot", "sdot ddot - -", "x1 y1")
_DOTU = Routine("dotu", "sdot ddot cdotu zdotu", "x1 y1")
_DOTC = Routine("dotc", "sdot ddot cdotc zdotc", "x1 y1")
_NRM2 = Routine("nrm2", "snrm2 dnrm2 scnrm2 dznrm2", "x1")
_ASUM = Routine("asum", "sasum dasum scasum dzasum", "x1")
_IAMAX = Routine("iamax", "isamax idamax icamax izamax", "x1")
_IAMIN = Routine("iamin", "isamin idamin icamin izamin", "x1")
_ROT = Routine("rot", "srot drot csrot zdrot", "x1 y1")
_ROTG = Routine("rotg", "srotg drotg crotg zrotg", "a0 b0 s0")
_ROTM = Routine("rotm", "srotm drotm - -", "x1 y1")
_ROTMG = Routine("rotmg", "srotmg drotmg - -", "d10 d20 x10 y10 param1")


def _two(routine: Routine, x: Pointer, y: Pointer) -> tuple[Any, int, int, int]:
    """Return the vendor's function, the size of x and y, and their increments."""
    try:
        (call, _, _), (n, incx), (size, incy) = layout("11", routine, x, y)
    except WRONG:
        routine.explain((x, y))
        raise
    if size != n:
        raise misfit(routine.name, "y", y, (n,), "as x has")
    return call, n, incx, incy


def axpy(alpha: Scalar, x: Pointer, y: Pointer) -> None:
    """Add alpha x to y; both of shape (n,)."""
    call, n, incx, incy = _two(_AXPY, x, y)
    call(n, alpha, x, incx, y, incy)


def scal(alpha: Scalar, x: Pointer) -> None:
    """Multiply x, of shape (n,), by alpha; a DevicePtr for alpha has x's dtype, or the real one of its precision."""
    is_real = isinstance(alpha, DevicePtr) and not is_complex(alpha._dtype_code)
    (call, _, _), (n, inc) = (_SCAL_REAL if is_real else _SCAL).read((x,))
    call(n, alpha, x, abs(inc))  # BLAS does nothing for a negative increment; the order does not matter here


def copy(x: Pointer, y: Pointer) -> None:
    """Copy x to y; both of shape (n,)."""
    call, n, incx, incy = _two(_COPY, x, y)
    call(n, x, incx, y, incy)


def swap(x: Pointer, y: Pointer) -> None:
    """Exchange the values of x and y; both of shape (n,)."""
    call, n, incx, incy = _two(_SWAP, x, y)
    call(n, x, incx, y, incy)


@overload
def dot(x: Pointer, y: Pointer, *, result: None = None) -> float: ...
@overload
def dot(x: Pointer, y: Pointer, *, result: Pointer) -> None: ...
def dot(x: Pointer, y: Pointer, *, result: Pointer | None = None) -> float | None:
    """Return the sum of x y, both of shape (n,) and real; or write it to `result`, a 0-d DevicePtr, and return None."""
    call, n, incx, incy = _two(_DOT, x, y)
    return call(n, x, incx, y, incy, result=result)  # type: ignore[no-any-return]


@overload
def dotu(x: Pointer, y: Pointer, *, result: None = None) -> complex: ...
@overload
def dotu(x: Pointer, y: Pointer, *, result: Pointer) -> None: ...
def dotu(x: Pointer, y: Pointer, *, result: Pointer | None = None) -> complex | None:
    """Return the sum of x y, both of shape (n,); or write it to `result`, a 0-d DevicePtr, and return None."""
    call, n, incx, incy = _two(_DOTU, x, y)
    return call(n, x, incx, y, incy, result=result)  # type: ignore[no-any-return]


@overload
def dotc(x: Pointer, y: Pointer, *, result: None = None) -> complex: ...
@overload
def dotc(x: Pointer, y: Pointer, *, result: Pointer) -> None: ...
def dotc(x: Pointer, y: Pointer, *, result: Pointer | None = None) -> complex | None:
    """Return the sum of conj(x) y, both of shape (n,); or write it to `result`, a 0-d DevicePtr, and return None."""
    call, n, incx, incy = _two(_DOTC, x, y)
    return call(n, x, incx, y, incy, result=result)  # type: ignore[no-any-return]


@overload
def nrm2(x: Pointer, *, result: None = None) -> float: ...
@overload
def nrm2(x: Pointer, *, result: Pointer) -> None: ...
def nrm2(x: Pointer, *, result: Pointer | None = None) -> float | None:
    """Return the Euclidean norm of x, of shape (n,); or write it to `result`, a real 0-d DevicePtr, and return None."""
    (call, _, _), (n, inc) = _NRM2.read((x,))
    return call(n, x, abs(inc), result=result)  # type: ignore[no-any-return]


@overload
def asum(x: Pointer, *, result: None = None) -> float: ...
@overload
def asum(x: Pointer, *, result: Pointer) -> None: ...
def asum(x: Pointer, *, result: Pointer | None = None) -> float | None:
    """Return the sum of abs(x.real) + abs(x.imag), of shape (n,); or write it to `result`, a real 0-d DevicePtr."""
    (call, _, _), (n, inc) = _ASUM.read((x,))
    return call(n, x, abs(inc), result=result)  # type: ignore[no-any-return]


def _extreme(routine: Routine, x: Pointer) -> int:
    (call, _, enums), (n, inc) = routine.read((x,))
    if not n:
        raise ArgumentError(f"blas.{routine.name}: x has shape (0,), needs at least one element")
    if inc < 1:
        raise ArgumentError(
            f"blas.{routine.name}: x has a stride of {inc} elements, needs a positive one; pass x[::-1]"
        )
    return call(n, x, inc) - enums.base  # type: ignore[no-any-return]


def iamax(x: Pointer) -> int:
    """Return the index, from 0 as in NumPy on every device, of the first greatest abs(x.real) + abs(x.imag).

    x has shape (n,), n at least 1, and a positive stride. There is no `result=`: vendors count from 0 or from 1.
    """
    return _extreme(_IAMAX, x)


def iamin(x: Pointer) -> int:
    """Return the index, from 0 as in NumPy on every device, of the first smallest abs(x.real) + abs(x.imag).

    x has shape (n,), n at least 1, and a positive stride. There is no `result=`: vendors count from 0 or from 1.
    """
    return _extreme(_IAMIN, x)


def rot(x: Pointer, y: Pointer, c: Scalar, s: Scalar) -> None:
    """Rotate the plane of x and y: x, y become c x + s y, c y - s x; both of shape (n,), c and s real."""
    call, n, incx, incy = _two(_ROT, x, y)
    call(n, x, incx, y, incy, c, s)


def rotg(a: Pointer, b: Pointer, c: Pointer, s: Pointer) -> None:
    """Write the rotation that makes (a, b) to (r, 0): c a + s b becomes r, c b - conj(s) a becomes 0.

    All are DevicePtrs of one element. c is real and s has the dtype of a and b; both are only written. a becomes r, and
    for real dtypes b becomes z, from which c and s can be computed again. `rot` takes a c and s that are real.
    """
    entry, *_ = _ROTG.read((a, b, s))
    entry.call(a, b, c, s)


def rotm(x: Pointer, y: Pointer, param: Sequence[float] | Pointer) -> None:
    """Multiply H by the rows x and y, of shape (n,) and real; H is made from `param` as in the reference BLAS.

    param: flag, h11, h21, h12, h22, as five numbers or as a contiguous DevicePtr of shape (5,); rotmg makes it.
    """
    call, n, incx, incy = _two(_ROTM, x, y)
    if isinstance(param, DevicePtr):
        contiguous("blas.rotm", "param", param, 5, "for a flag and H")
    call(n, x, incx, y, incy, param)


def rotmg(d1: Pointer, d2: Pointer, x1: Pointer, y1: Pointer, param: Pointer) -> None:
    """Write the modified rotation H that makes (sqrt(d1) x1, sqrt(d2) y1) to (r, 0), for real dtypes, to `param`.

    d1, d2 and x1 are read and updated, y1 is read; all are DevicePtrs of one element. param is a contiguous DevicePtr
    of shape (5,). An element of H that the flag implies may be left as it was: see the reference BLAS.
    """
    entry, *_ = _ROTMG.read((d1, d2, x1, y1, param))
    contiguous("blas.rotmg", "param", param, 5, "for a flag and H")
    named(entry.call, {"b1": "x1", "b2": "y1", "P": "param"}, d1, d2, x1, y1, param)
