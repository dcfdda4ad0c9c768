"""Level 1: vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from .._core import layout
from .._names import named
from .._operands import contiguous, is_complex, misfit
from ..errors import ArgumentError
from ..pointers import DevicePtr
from ._forward import COPY
from ._plans import planned
from ._routine import WRONG, Routine, Scalar

if TYPE_CHECKING:
    from collections.abc import Sequence


_AXPY = Routine("axpy", "saxpy daxpy caxpy zaxpy", "x1 y1")
_SCAL = Routine("scal", "sscal dscal cscal zscal", "x1")
_SCAL_REAL = Routine("scal", "sscal dscal csscal zdscal", "x1")
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

# The vendors' names of rotmg's operands.
_NAMES = {"b1": "x1", "b2": "y1", "P": "param"}


def _two(routine: Routine, x: DevicePtr, y: DevicePtr) -> tuple[Any, int, int, int]:
    """Return the vendor's function, the size of x and y, and their increments."""
    try:
        (call, _, _), (n, incx), (size, incy) = layout("11", routine, x, y)
    except WRONG:
        routine.explain((x, y))
        raise
    if size != n:
        raise misfit(f"blas.{routine.name}", "y", y, (n,), "as x has")
    return call, n, incx, incy


@planned(_AXPY, "alpha x:n y:n", "n")
def axpy(alpha: Scalar, x: DevicePtr, y: DevicePtr) -> None:
    """Add alpha x to y.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    x: vector of shape (n,).
    y: vector of shape (n,), read and written.

        x, y = np.array([1.0, 2.0, 3.0]), np.ones(3)
        with offload_args(x, y) as (dx, dy):
            blas.axpy(2.0, dx, dy)
        print(y)  # [3. 5. 7.]

    See also: blas.scal, blas.copy, blas.geam; cblas.daxpy, cublas.daxpy, rocblas.daxpy; docs/guide/blas.md.
    """
    call, n, incx, incy = _two(_AXPY, x, y)
    call(n, alpha, x, incx, y, incy)


@planned(_SCAL, "alpha:same x:n", "n", absolute=True)
def scal(alpha: Scalar, x: DevicePtr) -> None:
    """Multiply x by alpha.

    alpha: a number, or a 0-d DevicePtr of x's dtype or of the real dtype of its precision.
    x: vector of shape (n,), read and written.

        x = np.array([1.0, 2.0, 3.0])
        with offload_args(x) as (dx,):
            blas.scal(2.0, dx)
        print(x)  # [2. 4. 6.]

    See also: blas.axpy, blas.dgmm; cblas.dscal, cublas.dscal, rocblas.dscal; docs/guide/blas.md.
    """
    is_real = isinstance(alpha, DevicePtr) and not is_complex(alpha._dtype_code)
    (call, _, _), (n, inc) = (_SCAL_REAL if is_real else _SCAL).read((x,))
    call(n, alpha, x, abs(inc))  # the order does not matter, and BLAS does nothing for a negative increment


@planned(COPY, "x:n y:n", "n")
def copy(x: DevicePtr, y: DevicePtr) -> None:
    """Copy x to y.

    x: vector of shape (n,).
    y: vector of shape (n,), written.

        x, y = np.array([1.0, 2.0, 3.0]), np.empty(3)
        with offload_args(x, y) as (dx, dy):
            blas.copy(dx, dy)
        print(y)  # [1. 2. 3.]

    See also: blas.swap, blas.axpy, blas.geam; cblas.dcopy, cublas.dcopy, rocblas.dcopy; docs/guide/blas.md.
    """
    call, n, incx, incy = _two(COPY, x, y)
    call(n, x, incx, y, incy)


@planned(_SWAP, "x:n y:n", "n")
def swap(x: DevicePtr, y: DevicePtr) -> None:
    """Exchange the values of x and y.

    x, y: vectors of shape (n,), read and written.

        x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
        with offload_args(x, y) as (dx, dy):
            blas.swap(dx, dy)
        print(x, y)  # [3. 4.] [1. 2.]

    See also: blas.copy, blas.rot; cblas.dswap, cublas.dswap, rocblas.dswap; docs/guide/blas.md.
    """
    call, n, incx, incy = _two(_SWAP, x, y)
    call(n, x, incx, y, incy)


@overload
def dot(x: DevicePtr, y: DevicePtr, *, result: None = None) -> float: ...
@overload
def dot(x: DevicePtr, y: DevicePtr, *, result: DevicePtr) -> None: ...
@planned(_DOT, "x:n y:n", "n")
def dot(x: DevicePtr, y: DevicePtr, *, result: DevicePtr | None = None) -> float | None:
    """Return the sum of x y, for real dtypes.

    x, y: vectors of shape (n,).
    result: a 0-d DevicePtr of the operands' dtype, to which the sum is written. With None, the sum is returned.

        x, y = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
        with offload_args(x, y) as (dx, dy):
            print(blas.dot(dx, dy))  # 32.0

    See also: blas.dotu, blas.dotc, blas.nrm2, blas.gemv; cblas.ddot, cublas.ddot, rocblas.ddot; docs/guide/blas.md.
    """
    call, n, incx, incy = _two(_DOT, x, y)
    return call(n, x, incx, y, incy, result=result)  # type: ignore[no-any-return]


@overload
def dotu(x: DevicePtr, y: DevicePtr, *, result: None = None) -> complex: ...
@overload
def dotu(x: DevicePtr, y: DevicePtr, *, result: DevicePtr) -> None: ...
@planned(_DOTU, "x:n y:n", "n")
def dotu(x: DevicePtr, y: DevicePtr, *, result: DevicePtr | None = None) -> complex | None:
    """Return the sum of x y; no operand is conjugated.

    x, y: vectors of shape (n,).
    result: a 0-d DevicePtr of the operands' dtype, to which the sum is written. With None, the sum is returned.

        x, y = np.array([1 + 2j, 3]), np.array([2j, 1])
        with offload_args(x, y) as (dx, dy):
            print(blas.dotu(dx, dy))  # (-1+2j)

    See also: blas.dotc, blas.dot; cblas.zdotu, cublas.zdotu, rocblas.zdotu; docs/guide/blas.md.
    """
    call, n, incx, incy = _two(_DOTU, x, y)
    return call(n, x, incx, y, incy, result=result)  # type: ignore[no-any-return]


@overload
def dotc(x: DevicePtr, y: DevicePtr, *, result: None = None) -> complex: ...
@overload
def dotc(x: DevicePtr, y: DevicePtr, *, result: DevicePtr) -> None: ...
@planned(_DOTC, "x:n y:n", "n")
def dotc(x: DevicePtr, y: DevicePtr, *, result: DevicePtr | None = None) -> complex | None:
    """Return the sum of conj(x) y.

    x, y: vectors of shape (n,).
    result: a 0-d DevicePtr of the operands' dtype, to which the sum is written. With None, the sum is returned.

        x, y = np.array([1 + 2j, 3]), np.array([2j, 1])
        with offload_args(x, y) as (dx, dy):
            print(blas.dotc(dx, dy))  # (7+2j)

    See also: blas.dotu, blas.dot; cblas.zdotc, cublas.zdotc, rocblas.zdotc; docs/guide/blas.md.
    """
    call, n, incx, incy = _two(_DOTC, x, y)
    return call(n, x, incx, y, incy, result=result)  # type: ignore[no-any-return]


@overload
def nrm2(x: DevicePtr, *, result: None = None) -> float: ...
@overload
def nrm2(x: DevicePtr, *, result: DevicePtr) -> None: ...
@planned(_NRM2, "x:n", "n", absolute=True)
def nrm2(x: DevicePtr, *, result: DevicePtr | None = None) -> float | None:
    """Return the Euclidean norm of x.

    x: vector of shape (n,).
    result: a 0-d DevicePtr of the real dtype, to which the number is written. With None, the number is returned.

        x = np.array([3.0, -4.0])
        with offload_args(x) as (dx,):
            print(round(blas.nrm2(dx), 6))  # 5.0

    See also: blas.asum, blas.iamax, blas.dot; cblas.dnrm2, cublas.dnrm2, rocblas.dnrm2; docs/guide/blas.md.
    """
    (call, _, _), (n, inc) = _NRM2.read((x,))
    return call(n, x, abs(inc), result=result)  # type: ignore[no-any-return]


@overload
def asum(x: DevicePtr, *, result: None = None) -> float: ...
@overload
def asum(x: DevicePtr, *, result: DevicePtr) -> None: ...
@planned(_ASUM, "x:n", "n", absolute=True)
def asum(x: DevicePtr, *, result: DevicePtr | None = None) -> float | None:
    """Return the sum of abs(x.real) + abs(x.imag).

    x: vector of shape (n,).
    result: a 0-d DevicePtr of the real dtype, to which the number is written. With None, the number is returned.

        x = np.array([3.0, -4.0])
        with offload_args(x) as (dx,):
            print(blas.asum(dx))  # 7.0

    See also: blas.nrm2, blas.iamax; cblas.dasum, cublas.dasum, rocblas.dasum; docs/guide/blas.md.
    """
    (call, _, _), (n, inc) = _ASUM.read((x,))
    return call(n, x, abs(inc), result=result)  # type: ignore[no-any-return]


def _extreme(routine: Routine, x: DevicePtr) -> int:
    (call, _, enums), (n, inc) = routine.read((x,))
    if not n:
        raise ArgumentError(f"blas.{routine.name}: x has shape (0,), needs at least one element")
    if inc < 1:
        raise ArgumentError(
            f"blas.{routine.name}: x has a stride of {inc} elements, needs a positive one; pass x[::-1]"
        )
    return call(n, x, inc) - enums.base  # type: ignore[no-any-return]


@planned(_IAMAX, "x:n", "n")
def iamax(x: DevicePtr) -> int:
    """Return the index of the first greatest abs(x.real) + abs(x.imag), counted from 0 on every device, as in NumPy.

    x: vector of shape (n,), n at least 1, with a positive stride.

    There is no `result=`, because the index that a vendor's library writes counts from 0 or from 1, depending on the
    vendor.

        x = np.array([1.0, -5.0, 3.0])
        with offload_args(x) as (dx,):
            print(blas.iamax(dx))  # 1

    See also: blas.iamin, blas.asum, blas.nrm2; cblas.idamax, cublas.idamax, rocblas.idamax; docs/guide/blas.md.
    """
    return _extreme(_IAMAX, x)


@planned(_IAMIN, "x:n", "n")
def iamin(x: DevicePtr) -> int:
    """Return the index of the first smallest abs(x.real) + abs(x.imag), counted from 0 on every device, as in NumPy.

    x: vector of shape (n,), n at least 1, with a positive stride.

    There is no `result=`, because the index that a vendor's library writes counts from 0 or from 1, depending on the
    vendor.

        x = np.array([1.0, -5.0, 3.0])
        with offload_args(x) as (dx,):
            print(blas.iamin(dx))  # 0

    See also: blas.iamax, blas.asum, blas.nrm2; cblas.idamin, cublas.idamin, rocblas.idamin; docs/guide/blas.md.
    """
    return _extreme(_IAMIN, x)


@planned(_ROT, "x:n y:n c s", "n")
def rot(x: DevicePtr, y: DevicePtr, c: Scalar, s: Scalar) -> None:
    """Rotate the plane of x and y: x becomes c x + s y, and y becomes c y - s x.

    x, y: vectors of shape (n,), read and written.
    c, s: real numbers, or 0-d DevicePtrs of the real dtype.

        x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
        with offload_args(x, y) as (dx, dy):
            blas.rot(dx, dy, 0.0, 1.0)
        print(x, y)  # [3. 4.] [-1. -2.]

    See also: blas.rotg, blas.rotm; cblas.drot, cublas.drot, rocblas.drot; docs/guide/blas.md.
    """
    call, n, incx, incy = _two(_ROT, x, y)
    call(n, x, incx, y, incy, c, s)


@planned(_ROTG, "a:1 b:1 c:any s:1", "")
def rotg(a: DevicePtr, b: DevicePtr, c: DevicePtr, s: DevicePtr) -> None:
    """Write the rotation that turns (a, b) into (r, 0): c a + s b is r, and c b - conj(s) a is 0.

    a: DevicePtr of one element; becomes r.
    b: DevicePtr of one element of a's dtype. For real dtypes it becomes z; c and s can be computed from z again.
    c: DevicePtr of one element of the real dtype; is only written.
    s: DevicePtr of one element of a's dtype; is only written.

    `rot` takes c and s only if both are real.

        a, b, c, s = np.array([3.0]), np.array([4.0]), np.empty(1), np.empty(1)
        with offload_args(a, b, c, s) as (da, db, dc, ds):
            blas.rotg(da, db, dc, ds)
        print(a.round(6), c.round(6), s.round(6))  # [5.] [0.6] [0.8]

    See also: blas.rot, blas.rotmg; cblas.drotg, cublas.drotg, rocblas.drotg; docs/guide/blas.md.
    """
    entry, *_ = _ROTG.read((a, b, s))
    entry.call(a, b, c, s)


@planned(_ROTM, "x:n y:n param:5?", "n")
def rotm(x: DevicePtr, y: DevicePtr, param: Sequence[float] | DevicePtr) -> None:
    """Set the rows x and y to the product of the matrix H and the matrix of these two rows, for real dtypes.

    x, y: vectors of shape (n,), read and written.
    param: flag, h11, h21, h12, h22, as five numbers or as a contiguous DevicePtr of shape (5,); rotmg makes it. H is
    made from param as in the reference BLAS.

        x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
        with offload_args(x, y) as (dx, dy):
            blas.rotm(dx, dy, (-1.0, 1.0, 0.0, 2.0, 1.0))  # H is [[1, 2], [0, 1]]
        print(x, y)  # [ 7. 10.] [3. 4.]

    See also: blas.rotmg, blas.rot; cblas.drotm, cublas.drotm, rocblas.drotm; docs/guide/blas.md.
    """
    call, n, incx, incy = _two(_ROTM, x, y)
    if isinstance(param, DevicePtr):
        contiguous("blas.rotm", "param", param, 5, "for a flag and H")
    call(n, x, incx, y, incy, param)


@planned(_ROTMG, "d1:1 d2:1 x1:1 y1:1 param:5", "", names=_NAMES)
def rotmg(d1: DevicePtr, d2: DevicePtr, x1: DevicePtr, y1: DevicePtr, param: DevicePtr) -> None:
    """Write to `param` the modified rotation H that turns (sqrt(d1) x1, sqrt(d2) y1) into (r, 0), for real dtypes.

    d1, d2, x1: DevicePtrs of one element, read and updated.
    y1: DevicePtr of one element.
    param: contiguous DevicePtr of shape (5,), written: flag, h11, h21, h12, h22. If the flag implies an element of H,
    this element may stay unchanged; see the reference BLAS.

        d1, d2, x1, y1, param = np.ones(1), np.ones(1), np.array([4.0]), np.array([2.0]), np.zeros(5)
        with offload_args(d1, d2, x1, y1, param) as pointers:
            blas.rotmg(*pointers)
        print(x1.round(6), param[2:4].round(6))  # [5.] [-0.5  0.5]

    See also: blas.rotm, blas.rotg; cblas.drotmg, cublas.drotmg, rocblas.drotmg; docs/guide/blas.md.
    """
    entry, *_ = _ROTMG.read((d1, d2, x1, y1, param))
    contiguous("blas.rotmg", "param", param, 5, "for a flag and H")
    named(entry.call, _NAMES, d1, d2, x1, y1, param)
