"""Portable BLAS on device pointers: it works out shapes, orders and dtypes, and calls the device's own library.

Operands are DevicePtrs, in the order of BLAS's own arguments. Sizes, leading dimensions, increments and operations come
from shapes and strides. C order, Fortran order and parts of either are accepted, and nothing is repacked: a matrix in C
order is passed to the column-major library as its transpose. A layout that no call of the library can express raises an
ArgumentError that names the remedy. The functions of the device's own BLAS run; `_blas_vendors.py` has one adapter per
library.

A band matrix is LAPACK's and SciPy's `ab`, one diagonal a row: ab[ku + i - j, j] is A[i, j]. It lies in Fortran order;
no call takes C order, in which a line is a whole diagonal. A packed triangle is `ap`, a contiguous vector of its
columns one behind the other. docs/blas.md lists the layouts that each function takes.

Vectors have one dimension (a row or column of a matrix is one) and a stride of either sign. The operands of a call have
one dtype (float32, float64, complex64 or complex128) and lie on one device. `alpha` and `beta` are numbers or 0-d
DevicePtrs of that dtype; with a host zero for `beta` the output is not read. As in BLAS, a routine with nothing to sum
over leaves a vector as it is, and scales a matrix by `beta`.

Every function raises HostPointerError for an operand that is not a DevicePtr; DTypeError for a dtype that the routine
does not take, or for several in one call; ArgumentError, a ValueError, for dimensions, shapes, strides and options that
do not fit; and the errors of the vendor's function (StalePointerError, WrongDeviceError, DirectionError, AliasError and
others).

Source: the reference BLAS, https://netlib.org/blas/.
"""

from __future__ import annotations

from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

from ._blas_vendors import Enums, vendor_of
from .dtypes import DTYPE_NAMES
from .errors import ArgumentError, DTypeError, HostPointerError
from .pointers import DevicePtr

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    Pointer: TypeAlias = DevicePtr[Any]
    Scalar: TypeAlias = complex | np.number[Any] | DevicePtr[Any]

__all__ = [
    "asum",
    "axpy",
    "copy",
    "dot",
    "dotc",
    "dotu",
    "gbmv",
    "gemm",
    "gemv",
    "ger",
    "gerc",
    "hbmv",
    "hemm",
    "hemv",
    "her",
    "her2",
    "her2k",
    "herk",
    "hpmv",
    "hpr",
    "hpr2",
    "iamax",
    "iamin",
    "nrm2",
    "rot",
    "rotg",
    "rotm",
    "rotmg",
    "sbmv",
    "scal",
    "spmv",
    "spr",
    "spr2",
    "swap",
    "symm",
    "symv",
    "syr",
    "syr2",
    "syr2k",
    "syrk",
    "tbmv",
    "tbsv",
    "tpmv",
    "tpsv",
    "trmm",
    "trmv",
    "trsm",
    "trsv",
]

# The dtypes of BLAS, by oa_dtype.
_DTYPES: Final = {DTYPE_NAMES.index(name): name for name in ("float32", "float64", "complex64", "complex128")}
_ITEMSIZES: Final = dict(zip(_DTYPES, (4, 8, 8, 16), strict=True))

# The exceptions of wrong operands and options, which _explain replaces: no DevicePtr, a dtype, an option, dimensions.
_WRONG: Final = (AttributeError, KeyError, TypeError, ValueError)

_OPTIONS: Final = {
    "trans": ("N", "T", "C"),
    "trans_a": ("N", "T", "C"),
    "trans_b": ("N", "T", "C"),
    "uplo": ("U", "L"),
    "side": ("L", "R"),
    "diag": ("N", "U"),
}


def _is_complex(code: int) -> bool:
    return _DTYPES.get(code, "").startswith("complex")


# The parts of a call: (itemsize, the vendor's function in column-major order, enums).
_Entry: TypeAlias = "tuple[int, Any, Enums]"
# name: (operand, its number of dimensions, 0 for one element)
_Operands: TypeAlias = "dict[str, tuple[Pointer, int]]"


class _Routine(dict[tuple[int, int], _Entry]):
    """The vendors' functions of one routine, by device number and dtype; filled at first use."""

    def __init__(self, name: str, functions: str, *, ordered: bool = True) -> None:
        super().__init__()
        self.name = name
        # of float32, float64, complex64, complex128; "-" where there is none
        self.functions = dict(zip(_DTYPES, functions.split(), strict=True))
        self.ordered = ordered  # the function has matrices: some libraries take their order first

    def __missing__(self, key: tuple[int, int]) -> _Entry:
        device, code = key
        if self.functions.get(code, "-") == "-":
            raise KeyError(code)  # _explain says which dtypes there are
        vendor = vendor_of(device)
        call = vendor.function(self.name, self.functions[code], ordered=self.ordered)
        entry = self[key] = _ITEMSIZES[code], call, vendor.enums(conjugates=_is_complex(code))
        return entry


_GemvParts: TypeAlias = "tuple[Any, int | None, dict[str, Any], dict[str, Any]]"


class _Parts(dict[tuple[int, int], _GemvParts]):
    """Hold the parts of a gemv call: (function, order or None, operations as they are and flipped).

    The overhead of this routine is noticeable; a functools.partial alone would be a tenth of it.
    """

    def __missing__(self, key: tuple[int, int]) -> _GemvParts:
        _, call, enums = _GEMV[key]
        function, order = (call.func, call.args[0]) if isinstance(call, partial) else (call, None)
        parts = self[key] = function, order, *enums.op
        return parts


_AXPY = _Routine("axpy", "saxpy daxpy caxpy zaxpy", ordered=False)
_SCAL = _Routine("scal", "sscal dscal cscal zscal", ordered=False)
_SCAL_REAL = _Routine("scal", "sscal dscal csscal zdscal", ordered=False)
_COPY = _Routine("copy", "scopy dcopy ccopy zcopy", ordered=False)
_SWAP = _Routine("swap", "sswap dswap cswap zswap", ordered=False)
_DOT = _Routine("dot", "sdot ddot - -", ordered=False)
_DOTU = _Routine("dotu", "sdot ddot cdotu zdotu", ordered=False)
_DOTC = _Routine("dotc", "sdot ddot cdotc zdotc", ordered=False)
_NRM2 = _Routine("nrm2", "snrm2 dnrm2 scnrm2 dznrm2", ordered=False)
_ASUM = _Routine("asum", "sasum dasum scasum dzasum", ordered=False)
_IAMAX = _Routine("iamax", "isamax idamax icamax izamax", ordered=False)
_IAMIN = _Routine("iamin", "isamin idamin icamin izamin", ordered=False)
_ROT = _Routine("rot", "srot drot csrot zdrot", ordered=False)
_ROTG = _Routine("rotg", "srotg drotg crotg zrotg", ordered=False)
_ROTM = _Routine("rotm", "srotm drotm - -", ordered=False)
_ROTMG = _Routine("rotmg", "srotmg drotmg - -", ordered=False)
_GEMV = _Routine("gemv", "sgemv dgemv cgemv zgemv")
_GEMV_PARTS = _Parts()
_GER = _Routine("ger", "sger dger cgeru zgeru")
_GERC = _Routine("gerc", "sger dger cgerc zgerc")
_SYMV = _Routine("symv", "ssymv dsymv csymv zsymv")
_HEMV = _Routine("hemv", "ssymv dsymv chemv zhemv")
_SYR = _Routine("syr", "ssyr dsyr csyr zsyr")
_HER = _Routine("her", "ssyr dsyr cher zher")
_SYR2 = _Routine("syr2", "ssyr2 dsyr2 csyr2 zsyr2")
_HER2 = _Routine("her2", "ssyr2 dsyr2 cher2 zher2")
_GBMV = _Routine("gbmv", "sgbmv dgbmv cgbmv zgbmv")
_SBMV = _Routine("sbmv", "ssbmv dsbmv - -")
_HBMV = _Routine("hbmv", "ssbmv dsbmv chbmv zhbmv")
_TBMV = _Routine("tbmv", "stbmv dtbmv ctbmv ztbmv")
_TBSV = _Routine("tbsv", "stbsv dtbsv ctbsv ztbsv")
_SPMV = _Routine("spmv", "sspmv dspmv - -")
_HPMV = _Routine("hpmv", "sspmv dspmv chpmv zhpmv")
_SPR = _Routine("spr", "sspr dspr - -")
_HPR = _Routine("hpr", "sspr dspr chpr zhpr")
_SPR2 = _Routine("spr2", "sspr2 dspr2 - -")
_HPR2 = _Routine("hpr2", "sspr2 dspr2 chpr2 zhpr2")
_TPMV = _Routine("tpmv", "stpmv dtpmv ctpmv ztpmv")
_TPSV = _Routine("tpsv", "stpsv dtpsv ctpsv ztpsv")
_TRMV = _Routine("trmv", "strmv dtrmv ctrmv ztrmv")
_TRSV = _Routine("trsv", "strsv dtrsv ctrsv ztrsv")
_GEMM = _Routine("gemm", "sgemm dgemm cgemm zgemm")
_SYMM = _Routine("symm", "ssymm dsymm csymm zsymm")
_HEMM = _Routine("hemm", "ssymm dsymm chemm zhemm")
_SYRK = _Routine("syrk", "ssyrk dsyrk csyrk zsyrk")
_HERK = _Routine("herk", "ssyrk dsyrk cherk zherk")
_SYR2K = _Routine("syr2k", "ssyr2k dsyr2k csyr2k zsyr2k")
_HER2K = _Routine("her2k", "ssyr2k dsyr2k cher2k zher2k")
_TRMM = _Routine("trmm", "strmm dtrmm ctrmm ztrmm")
_TRSM = _Routine("trsm", "strsm dtrsm ctrsm ztrsm")

# The routines that take the complex dtypes instead of one that takes real ones.
_COMPLEX_FORMS: Final = {
    "dot": "dotu and dotc take",
    "sbmv": "hbmv takes",
    "spmv": "hpmv takes",
    "spr": "hpr takes",
    "spr2": "hpr2 takes",
}


# -- what does not fit ------------------------------------------------------------------------------------------------
def _fits(pointer: Pointer, ndim: int) -> bool:
    """Return whether a pointer has so many dimensions, or for 0 of them one element."""
    return len(pointer._shape) == ndim or (not ndim and set(pointer._shape) == {1})


def _explain(routine: _Routine, operands: _Operands, **options: str) -> None:
    """Raise the error of the first argument that the routine can't take; return if there is none."""
    name = f"blas.{routine.name}"
    for option, value in options.items():
        if value not in _OPTIONS[option]:
            allowed = " or ".join(f'"{known}"' for known in _OPTIONS[option])
            raise ArgumentError(f"{name}: {option} must be {allowed}, got {value!r}") from None
    takes = [_DTYPES[code] for code, function in routine.functions.items() if function != "-"]
    first = ""
    for operand, (pointer, ndim) in operands.items():
        if not isinstance(pointer, DevicePtr):
            got = f"{type(pointer).__module__}.{type(pointer).__qualname__}".removeprefix("builtins.")
            raise HostPointerError(
                f"{name}: {operand} needs a DevicePtr, got {got}; "
                f"lend it first: with offload_args({operand}) as (d{operand},)"
            ) from None
        if routine.functions.get(pointer._dtype_code, "-") == "-":
            other = _COMPLEX_FORMS.get(routine.name) if _is_complex(pointer._dtype_code) else None
            hint = f"; {other} complex operands" if other else ""
            raise DTypeError(f"{name}: {operand} needs {' or '.join(takes)}, got {pointer.dtype}{hint}") from None
        first = first or operand
        if pointer._dtype_code != operands[first][0]._dtype_code:
            raise DTypeError(
                f"{name}: {operand} is {pointer.dtype}, needs {first}'s {operands[first][0].dtype}; "
                f"cast one of them on the host"
            ) from None
        if not _fits(pointer, ndim):
            if not ndim:
                raise ArgumentError(
                    f"{name}: {operand} has shape {pointer._shape}, needs one element; pass a part, such as "
                    f"{operand}[{', '.join(['0:1'] * len(pointer._shape))}]"
                ) from None
            remedy = f"; pass a row or column, such as {operand}[0]" if ndim == 1 else f"; pass {operand}[:, None]"
            if len(pointer._shape) > 2:
                remedy = f"; pass a part of it, such as {operand}[{'0, ' * (len(pointer._shape) - ndim - 1)}0]"
            raise ArgumentError(
                f"{name}: {operand} has shape {pointer._shape}, needs {ndim} dimension{'s' * (ndim > 1)}{remedy}"
            ) from None


def _misfit(name: str, operand: str, pointer: Pointer, needed: tuple[int, ...], reason: str) -> ArgumentError:
    return ArgumentError(f"blas.{name}: {operand} has shape {pointer._shape}, needs {needed} {reason}")


def _unaligned(name: str, **operands: Pointer) -> ArgumentError:
    odd = {operand: p for operand, p in operands.items() if any(s % p.dtype.itemsize for s in p._strides)}
    operand, pointer = next(iter(odd.items()))
    return ArgumentError(
        f"blas.{name}: {operand} has strides {pointer._strides}, needs multiples of {pointer.dtype.itemsize} bytes; "
        f"copy it on the host: numpy.ascontiguousarray({operand})"
    )


def _inexpressible(name: str, rule: str, **operands: Pointer) -> ArgumentError:
    """The error for operands of which one has no order, or else whose orders do not fit together: `rule` says how."""
    for operand, pointer in operands.items():
        if not any(_stored(pointer)):
            return ArgumentError(
                f"blas.{name}: {operand} has shape {pointer._shape} and strides {pointer._strides}, needs unit stride "
                f"in one dimension and rows or columns that do not overlap; copy it on the host: "
                f"numpy.ascontiguousarray({operand})"
            )
    orders = ", ".join(f"{operand} {'F' if _stored(pointer)[0] else 'C'}" for operand, pointer in operands.items())
    return ArgumentError(f'blas.{name}: {rule}, got {orders}; lend one in the other order: order="F" or order="C"')


def _forward(name: str, operand: str, inc: int) -> int:
    """Return a vector's increment as the leading dimension of a matrix of one row."""
    if inc < 1:
        if name in ("symv", "syr", "syr2"):
            reason = f"for a complex A on this device; copy it on the host: numpy.ascontiguousarray({operand})"
        else:
            reason = 'for a complex A in C order; lend A in Fortran order: numpy.asfortranarray(A), order="F"'
        raise ArgumentError(f"blas.{name}: {operand} has a stride of {inc} elements, needs a positive one {reason}")
    return inc


def _stored(A: Pointer) -> tuple[int, int]:
    """Return the leading dimensions of A stored by columns and by rows; 0 where it is not. A vector can be both."""
    _, _, _, by_columns, by_rows = A._geometry
    return by_columns, by_rows


def _entry(routine: _Routine, operands: _Operands, **options: str) -> tuple[Any, Enums]:
    """Return the vendor's function and its enums for operands of one dtype and the right dimensions, and options."""
    try:
        first = next(iter(operands.values()))[0]
        code = first._dtype_code
        _, call, enums = routine[first._device, code]
        if any(pointer._dtype_code != code or not _fits(pointer, ndim) for pointer, ndim in operands.values()):
            raise KeyError
        if any(value not in _OPTIONS[option] for option, value in options.items()):
            raise KeyError
    except _WRONG:
        _explain(routine, operands, **options)
        raise
    return call, enums


def _increments(name: str, reason: str, **vectors: tuple[Pointer, int]) -> list[int]:
    """Return the increments of vectors; each must have the size beside it, for that reason."""
    for operand, (pointer, size) in vectors.items():
        if pointer._shape != (size,):
            raise _misfit(name, operand, pointer, (size,), reason)
    found = [pointer._geometry[2] for pointer, _ in vectors.values()]
    if None in found:
        raise _unaligned(name, **{operand: pointer for operand, (pointer, _) in vectors.items()})
    return found


def _contiguous(name: str, operand: str, pointer: Pointer, size: int, reason: str) -> None:
    """Raise ArgumentError for a vector of another size, or with gaps, for which no function has an increment."""
    if pointer._shape != (size,):
        raise _misfit(name, operand, pointer, (size,), reason)
    if size > 1 and pointer._strides[0] != pointer.dtype.itemsize:
        raise ArgumentError(
            f"blas.{name}: {operand} has strides {pointer._strides}, needs ({pointer.dtype.itemsize},), its elements "
            f"one behind the other; copy it on the host: numpy.ascontiguousarray({operand})"
        )


# -- level 1 ----------------------------------------------------------------------------------------------------------
def _one(routine: _Routine, x: Pointer) -> tuple[Any, Enums, int, int]:
    """Return the vendor's function, its enums, and size and increment of x."""
    try:
        key, n, inc = x._geometry
        _, call, enums = routine[key]
    except _WRONG:
        _explain(routine, {"x": (x, 1)})
        raise
    if inc is None:
        raise _unaligned(routine.name, x=x)
    return call, enums, n, inc


def _two(routine: _Routine, x: Pointer, y: Pointer) -> tuple[Any, int, int, int]:
    """Return the vendor's function, the size of x and y, and their increments."""
    try:
        key, n, incx = x._geometry
        key_y, size, incy = y._geometry
        _, call, _ = routine[key]
        if key_y is not key and x._dtype_code != y._dtype_code:
            raise KeyError
    except _WRONG:
        _explain(routine, {"x": (x, 1), "y": (y, 1)})
        raise
    if size != n:
        raise _misfit(routine.name, "y", y, (n,), "as x has")
    if incx is None or incy is None:
        raise _unaligned(routine.name, x=x, y=y)
    return call, n, incx, incy


def axpy(alpha: Scalar, x: Pointer, y: Pointer) -> None:
    """Add alpha x to y; both of shape (n,)."""
    call, n, incx, incy = _two(_AXPY, x, y)
    call(n, alpha, x, incx, y, incy)


def scal(alpha: Scalar, x: Pointer) -> None:
    """Multiply x, of shape (n,), by alpha; a DevicePtr for alpha has x's dtype, or the real one of its precision."""
    is_real = isinstance(alpha, DevicePtr) and not _is_complex(alpha._dtype_code)
    call, _, n, inc = _one(_SCAL_REAL if is_real else _SCAL, x)
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
    call, _, n, inc = _one(_NRM2, x)
    return call(n, x, abs(inc), result=result)  # type: ignore[no-any-return]


@overload
def asum(x: Pointer, *, result: None = None) -> float: ...
@overload
def asum(x: Pointer, *, result: Pointer) -> None: ...
def asum(x: Pointer, *, result: Pointer | None = None) -> float | None:
    """Return the sum of abs(x.real) + abs(x.imag), of shape (n,); or write it to `result`, a real 0-d DevicePtr."""
    call, _, n, inc = _one(_ASUM, x)
    return call(n, x, abs(inc), result=result)  # type: ignore[no-any-return]


def _extreme(routine: _Routine, x: Pointer) -> int:
    call, enums, n, inc = _one(routine, x)
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
    call, _ = _entry(_ROTG, {"a": (a, 0), "b": (b, 0), "s": (s, 0)})
    call(a, b, c, s)


def rotm(x: Pointer, y: Pointer, param: Sequence[float] | Pointer) -> None:
    """Multiply H by the rows x and y, of shape (n,) and real; H is made from `param` as in the reference BLAS.

    param: flag, h11, h21, h12, h22, as five numbers or as a contiguous DevicePtr of shape (5,); rotmg makes it.
    """
    call, n, incx, incy = _two(_ROTM, x, y)
    if isinstance(param, DevicePtr):
        _contiguous("rotm", "param", param, 5, "for a flag and H")
    call(n, x, incx, y, incy, param)


def rotmg(d1: Pointer, d2: Pointer, x1: Pointer, y1: Pointer, param: Pointer) -> None:
    """Write the modified rotation H that makes (sqrt(d1) x1, sqrt(d2) y1) to (r, 0), for real dtypes, to `param`.

    d1, d2 and x1 are read and updated, y1 is read; all are DevicePtrs of one element. param is a contiguous DevicePtr
    of shape (5,). An element of H that the flag implies may be left as it was: see the reference BLAS.
    """
    operands = {"d1": (d1, 0), "d2": (d2, 0), "x1": (x1, 0), "y1": (y1, 0), "param": (param, 1)}
    call, _ = _entry(_ROTMG, operands)
    _contiguous("rotmg", "param", param, 5, "for a flag and H")
    call(d1, d2, x1, y1, param)


# -- level 2 ----------------------------------------------------------------------------------------------------------
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
    except _WRONG:
        _explain(_GEMV, {"A": (A, 2), "x": (x, 1), "y": (y, 1)}, trans=trans)
        raise
    if not (size_x == n and size_y == m if trans == "N" else size_x == m and size_y == n):
        inner, outer = (n, m) if trans == "N" else (m, n)
        operand, pointer, size = ("x", x, inner) if size_x != inner else ("y", y, outer)
        raise _misfit("gemv", operand, pointer, (size,), f'for A of shape ({m}, {n}) and trans="{trans}"')
    if incx is None or incy is None:
        raise _unaligned("gemv", x=x, y=y)
    if not ld:  # in C order; a single row or column can be both, and by columns nothing is refused
        if not ld_rows:
            raise _inexpressible("gemv", "", A=A)
        m, n, ld = n, m, ld_rows
    if op is None:  # y^T = x^T (A^T)^H, of matrices of one row
        _, gemm, _ = _GEMM[key]
        row_x, row_y = _forward("gemv", "x", incx), _forward("gemv", "y", incy)
        gemm(ops["N"], ops["C"], 1, m, n, alpha, x, row_x, A, ld, beta, y, row_y)
    elif order is None:
        function(op, m, n, alpha, A, ld, x, incx, beta, y, incy)
    else:
        function(order, op, m, n, alpha, A, ld, x, incx, beta, y, incy)


def _rank_one(routine: _Routine, alpha: Scalar, x: Pointer, y: Pointer, A: Pointer) -> None:
    try:
        itemsize, call, enums = routine[A._device, A._dtype_code]
        m, n = A._shape
        (size_x,), (stride_x,) = x._shape, x._strides
        (size_y,), (stride_y,) = y._shape, y._strides
        if A._dtype_code != x._dtype_code or A._dtype_code != y._dtype_code:
            raise KeyError
    except _WRONG:
        _explain(routine, {"x": (x, 1), "y": (y, 1), "A": (A, 2)})
        raise
    if size_x != m:
        raise _misfit(routine.name, "x", x, (m,), f"for A of shape ({m}, {n})")
    if size_y != n:
        raise _misfit(routine.name, "y", y, (n,), f"for A of shape ({m}, {n})")
    if (stride_x | stride_y) % itemsize:
        raise _unaligned(routine.name, x=x, y=y)
    incx = stride_x // itemsize if m > 1 else 1
    incy = stride_y // itemsize if n > 1 else 1
    ld, ld_rows = _stored(A)
    if ld:
        call(m, n, alpha, x, incx, y, incy, A, ld)
    elif not ld_rows:
        raise _inexpressible(routine.name, "", A=A)
    elif routine is not _GERC or not enums.conjugates:
        call(n, m, alpha, y, incy, x, incx, A, ld_rows)
    else:  # A^T += alpha (y^T)^H x^T, of matrices of one row
        gemm = _GEMM[A._device, A._dtype_code][1]
        row_x, row_y = _forward("gerc", "x", incx), _forward("gerc", "y", incy)
        gemm(enums.op[0]["C"], enums.op[0]["N"], n, m, 1, alpha, y, row_y, x, row_x, 1.0, A, ld_rows)


def ger(alpha: Scalar, x: Pointer, y: Pointer, A: Pointer) -> None:
    """Add alpha x y^T to A; x has shape (m,), y (n,) and A (m, n)."""
    _rank_one(_GER, alpha, x, y, A)


def gerc(alpha: Scalar, x: Pointer, y: Pointer, A: Pointer) -> None:
    """Add alpha x y^H to A; x has shape (m,), y (n,) and A (m, n)."""
    _rank_one(_GERC, alpha, x, y, A)


def _symmetric_vector(
    routine: _Routine, alpha: Scalar, A: Pointer, x: Pointer, beta: Scalar, y: Pointer, uplo: str
) -> None:
    try:
        itemsize, call, enums = routine[A._device, A._dtype_code]
        n, columns = A._shape
        (size_x,), (stride_x,) = x._shape, x._strides
        (size_y,), (stride_y,) = y._shape, y._strides
        if A._dtype_code != x._dtype_code or A._dtype_code != y._dtype_code:
            raise KeyError
        ld, ld_rows = _stored(A)
        fill = enums.uplo[not ld][uplo]
    except _WRONG:
        _explain(routine, {"A": (A, 2), "x": (x, 1), "y": (y, 1)}, uplo=uplo)
        raise
    if columns != n:
        raise _misfit(routine.name, "A", A, (n, n), "as a square matrix")
    if size_x != n:
        raise _misfit(routine.name, "x", x, (n,), f"for A of shape ({n}, {n})")
    if size_y != n:
        raise _misfit(routine.name, "y", y, (n,), f"for A of shape ({n}, {n})")
    if (stride_x | stride_y) % itemsize:
        raise _unaligned(routine.name, x=x, y=y)
    incx = stride_x // itemsize if n > 1 else 1
    incy = stride_y // itemsize if n > 1 else 1
    if not ld and not ld_rows:
        raise _inexpressible(routine.name, "", A=A)
    if call is not None and (ld or routine is _SYMV or not enums.conjugates):
        call(fill, n, alpha, A, ld or ld_rows, x, incx, beta, y, incy)
    else:  # y^T = x^T A^T, of matrices of one row; A^T is what lies there in C order, and A itself if symmetric
        product = (_HEMM if routine is _HEMV else _SYMM)[A._device, A._dtype_code][1]
        row_x, row_y = _forward(routine.name, "x", incx), _forward(routine.name, "y", incy)
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
    routine: _Routine, matrix_routine: _Routine, A: Pointer, x: Pointer, uplo: str, trans: str, diag: str
) -> None:
    try:
        itemsize, call, enums = routine[A._device, A._dtype_code]
        n, columns = A._shape
        (size,), (stride,) = x._shape, x._strides
        if A._dtype_code != x._dtype_code:
            raise KeyError
        ld, ld_rows = _stored(A)
        fill, op, unit = enums.uplo[not ld][uplo], enums.op[not ld][trans], enums.diag[diag]
    except _WRONG:
        _explain(routine, {"A": (A, 2), "x": (x, 1)}, uplo=uplo, trans=trans, diag=diag)
        raise
    if columns != n:
        raise _misfit(routine.name, "A", A, (n, n), "as a square matrix")
    if size != n:
        raise _misfit(routine.name, "x", x, (n,), f"for A of shape ({n}, {n})")
    if stride % itemsize:
        raise _unaligned(routine.name, x=x)
    inc = stride // itemsize if n > 1 else 1
    if not ld and not ld_rows:
        raise _inexpressible(routine.name, "", A=A)
    if op is not None:
        call(fill, op, unit, n, A, ld or ld_rows, x, inc)
    else:  # x^T (A^T)^H, of a matrix of one row
        row, right = _forward(routine.name, "x", inc), enums.side[0]["R"]
        matrix_routine[A._device, A._dtype_code][1](right, fill, enums.op[0]["C"], unit, 1, n, 1.0, A, ld_rows, x, row)


def trmv(A: Pointer, x: Pointer, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Set x to op(A) x for a triangular A; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (n, n), and its upper ("U") or lower ("L") triangle is read, without the diagonal, which counts as ones,
    if diag is "U". x has shape (n,).
    """
    _triangular_vector(_TRMV, _TRMM, A, x, uplo, trans, diag)


def trsv(A: Pointer, x: Pointer, *, uplo: str = "U", trans: str = "N", diag: str = "N") -> None:
    """Solve op(A) z = x for a triangular A and set x to z; op(A) is A, A^T or A^H for trans "N", "T" or "C".

    A has shape (n, n), and its upper ("U") or lower ("L") triangle is read, without the diagonal, which counts as ones,
    if diag is "U". x has shape (n,). Nothing checks that A can be inverted.
    """
    _triangular_vector(_TRSV, _TRSM, A, x, uplo, trans, diag)


def _triangle_update(routine: _Routine, alpha: Scalar, A: Pointer, uplo: str, **vectors: Pointer) -> None:
    """Add alpha x x^T, or alpha (x y^T + y x^T), or what is so for a Hermitian A."""
    call, enums = _entry(routine, {**{name: (v, 1) for name, v in vectors.items()}, "A": (A, 2)}, uplo=uplo)
    n, columns = A._shape
    if columns != n:
        raise _misfit(routine.name, "A", A, (n, n), "as a square matrix")
    reason = f"for A of shape ({n}, {n})"
    incs = _increments(routine.name, reason, **{name: (v, n) for name, v in vectors.items()})
    ld, ld_rows = _stored(A)
    if not ld and not ld_rows:
        raise _inexpressible(routine.name, "", A=A)
    fill = enums.uplo[not ld][uplo]
    hermitian = enums.conjugates and (routine is _HER or routine is _HER2)
    if call is not None and (ld or not hermitian):
        given = [part for pair in zip(vectors.values(), incs, strict=True) for part in pair]
        call(fill, n, alpha, *given, A, ld or ld_rows)
        return
    # as a product of matrices of one row: A += alpha x x^T, and A^T += alpha conj(x) x^T for a Hermitian A in C order
    rows = [(v, _forward(routine.name, name, inc)) for (name, v), inc in zip(vectors.items(), incs, strict=True)]
    given = [part for pair in (reversed(rows) if hermitian and not ld else rows) for part in pair]
    family = (_HERK, _HER2K) if hermitian else (_SYRK, _SYR2K)
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


# -- level 2, bands and packed triangles ------------------------------------------------------------------------------
def _band_ld(name: str, ab: Pointer) -> int:
    """Return the leading dimension of a band, one diagonal a row, in Fortran order."""
    ld, _ = _stored(ab)
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
        raise _misfit(name, "ab", ab, (max(rows, 1), n), f"for x of shape ({n},)")
    return (n, rows - 1), (ab, _band_ld(name, ab))


def _packed(name: str, ap: Pointer, n: int) -> _Triangle:
    _contiguous(name, "ap", ap, n * (n + 1) // 2, f"for x of shape ({n},)")
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
    call, enums = _entry(_GBMV, {"ab": (ab, 2), "x": (x, 1), "y": (y, 1)}, trans=trans)
    kl, ku = index(kl), index(ku)
    rows, n = ab._shape
    if kl < 0 or ku < 0:
        raise ArgumentError(f"blas.gbmv: kl and ku need to be at least 0, got {kl} and {ku}")
    if kl + ku + 1 != rows:
        raise _misfit("gbmv", "ab", ab, (kl + ku + 1, n), f"for kl={kl} and ku={ku}")
    m = (y if trans == "N" else x)._shape[0]
    reason = f'for ab of shape ({rows}, {n}) and trans="{trans}"'
    incx, incy = _increments("gbmv", reason, x=(x, n if trans == "N" else m), y=(y, m if trans == "N" else n))
    ld = _band_ld("gbmv", ab)
    call(enums.op[0][trans], m, n, kl, ku, alpha, ab, ld, x, incx, beta, y, incy)


def _stored_symmetric(
    routine: _Routine, alpha: Scalar, x: Pointer, beta: Scalar, y: Pointer, uplo: str, **stored: Pointer
) -> None:
    """Multiply a symmetric or Hermitian matrix, a band `ab` or packed `ap`, by x."""
    ((operand, A),) = stored.items()
    arguments, ndim = (_band, 2) if operand == "ab" else (_packed, 1)
    call, enums = _entry(routine, {operand: (A, ndim), "x": (x, 1), "y": (y, 1)}, uplo=uplo)
    n = x._shape[0]
    incx, incy = _increments(routine.name, "as x has", x=(x, n), y=(y, n))
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


def _stored_triangular(routine: _Routine, x: Pointer, uplo: str, trans: str, diag: str, **stored: Pointer) -> None:
    """Multiply by x, or solve for x, a triangular matrix, a band `ab` or packed `ap`."""
    ((operand, A),) = stored.items()
    arguments, ndim = (_band, 2) if operand == "ab" else (_packed, 1)
    call, enums = _entry(routine, {operand: (A, ndim), "x": (x, 1)}, uplo=uplo, trans=trans, diag=diag)
    n = x._shape[0]
    (inc,) = _increments(routine.name, "", x=(x, n))
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


def _packed_update(routine: _Routine, alpha: Scalar, ap: Pointer, uplo: str, **vectors: Pointer) -> None:
    call, enums = _entry(routine, {**{name: (v, 1) for name, v in vectors.items()}, "ap": (ap, 1)}, uplo=uplo)
    n = vectors["x"]._shape[0]
    incs = _increments(routine.name, "as x has", **{name: (v, n) for name, v in vectors.items()})
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


# -- level 3 ----------------------------------------------------------------------------------------------------------
# Each is computed as it is written, or transposed as a whole (t = 1) for an output in C order: what lies in C order is
# then, for the library, the transpose that is wanted.
def gemm(
    alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, trans_a: str = "N", trans_b: str = "N"
) -> None:
    """Set C to alpha op(A) op(B) + beta C; op(A) is A, A^T or A^H for trans_a "N", "T" or "C", and so for B.

    C has shape (m, n), op(A) (m, k) and op(B) (k, n). Orders may be mixed, except that a complex matrix with "C" needs
    the order of C.
    """
    try:
        _, call, enums = _GEMM[C._device, C._dtype_code]
        m, n = C._shape
        rows_a, k = A._shape if trans_a == "N" else A._shape[::-1]
        rows_b, columns_b = B._shape if trans_b == "N" else B._shape[::-1]
        if C._dtype_code != A._dtype_code or C._dtype_code != B._dtype_code:
            raise KeyError
        ops_a = enums.op[0][trans_a], enums.op[1][trans_a]
        ops_b = enums.op[0][trans_b], enums.op[1][trans_b]
        stored_a, stored_b, stored_c = _stored(A), _stored(B), _stored(C)
    except _WRONG:
        _explain(_GEMM, {"A": (A, 2), "B": (B, 2), "C": (C, 2)}, trans_a=trans_a, trans_b=trans_b)
        raise
    if rows_a != m:
        needed = (m, k) if trans_a == "N" else (k, m)
        raise _misfit("gemm", "A", A, needed, f'for C of shape ({m}, {n}) and trans_a="{trans_a}"')
    if rows_b != k or columns_b != n:
        needed = (k, n) if trans_b == "N" else (n, k)
        reason = f'for C of shape ({m}, {n}), A of shape {A._shape}, trans_a="{trans_a}" and trans_b="{trans_b}"'
        raise _misfit("gemm", "B", B, needed, reason)
    for t in (0, 1):
        ldc = stored_c[t]
        # in the order of the output if it is stored so, with its operation as it is; else in the other, flipped
        op_a, lda = (ops_a[0], stored_a[t]) if stored_a[t] else (ops_a[1], stored_a[1 - t])
        op_b, ldb = (ops_b[0], stored_b[t]) if stored_b[t] else (ops_b[1], stored_b[1 - t])
        if ldc and lda and ldb and op_a is not None and op_b is not None:
            if t:
                call(op_b, op_a, n, m, k, alpha, B, ldb, A, lda, beta, C, ldc)
            else:
                call(op_a, op_b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc)
            return
    raise _inexpressible("gemm", "a conjugate transposed operand needs the order of C", A=A, B=B, C=C)


def _symmetric_matrix(
    routine: _Routine, alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, side: str, uplo: str
) -> None:
    try:
        _, call, enums = routine[C._device, C._dtype_code]
        m, n = C._shape
        rows, columns = A._shape
        if C._dtype_code != A._dtype_code or C._dtype_code != B._dtype_code:
            raise KeyError
        sides = enums.side[0][side], enums.side[1][side]
        fills = enums.uplo[0][uplo], enums.uplo[1][uplo]
        stored_a, stored_b, stored_c = _stored(A), _stored(B), _stored(C)
    except _WRONG:
        _explain(routine, {"A": (A, 2), "B": (B, 2), "C": (C, 2)}, side=side, uplo=uplo)
        raise
    order = m if side == "L" else n
    if rows != order or columns != order:
        raise _misfit(routine.name, "A", A, (order, order), f'for C of shape ({m}, {n}) and side="{side}"')
    if B._shape != C._shape:
        raise _misfit(routine.name, "B", B, (m, n), "as C has")
    conjugates = routine is _HEMM and enums.conjugates  # then A in another order than C's is conj(A), not A
    for t in (0, 1):
        ldb, ldc = stored_b[t], stored_c[t]
        a = t if stored_a[t] else 1 - t
        lda = stored_a[a]
        if lda and ldb and ldc and not (conjugates and a != t):
            if t:
                m, n = n, m
            call(sides[t], fills[a], m, n, alpha, A, lda, B, ldb, beta, C, ldc)
            return
    rule = "A and B and C need the same order" if conjugates else "B and C need the same order"
    raise _inexpressible(routine.name, rule, A=A, B=B, C=C)


def symm(alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, side: str = "L", uplo: str = "U") -> None:
    """Set C to alpha A B + beta C (side "L") or alpha B A + beta C ("R") for a symmetric A.

    B and C have shape (m, n) and one order; A has shape (m, m) for "L" or (n, n) for "R", in any order, and its upper
    ("U") or lower ("L") triangle is read.
    """
    _symmetric_matrix(_SYMM, alpha, A, B, beta, C, side, uplo)


def hemm(alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, side: str = "L", uplo: str = "U") -> None:
    """Set C to alpha A B + beta C (side "L") or alpha B A + beta C ("R") for a Hermitian A.

    B and C have shape (m, n); A has shape (m, m) for "L" or (n, n) for "R", and its upper ("U") or lower ("L")
    triangle is read. All have one order. For real dtypes it is symm.
    """
    _symmetric_matrix(_HEMM, alpha, A, B, beta, C, side, uplo)


def _rank_k(
    routine: _Routine, alpha: Scalar, A: Pointer, B: Pointer | None, beta: Scalar, C: Pointer, uplo: str, trans: str
) -> None:
    operands = {"A": A, "C": C} if B is None else {"A": A, "B": B, "C": C}
    try:
        _, call, enums = routine[C._device, C._dtype_code]
        n, columns = C._shape
        rows_a, k = A._shape if trans == "N" else A._shape[::-1]
        if any(operand._dtype_code != C._dtype_code for operand in operands.values()):
            raise KeyError
        fills = enums.uplo[0][uplo], enums.uplo[1][uplo]
        ops = enums.op[0][trans], enums.op[1][trans]
        stored_a, stored_c = _stored(A), _stored(C)
        stored_b = stored_a if B is None else _stored(B)
    except _WRONG:
        _explain(routine, {name: (operand, 2) for name, operand in operands.items()}, uplo=uplo, trans=trans)
        raise
    hermitian = enums.conjugates and (routine is _HERK or routine is _HER2K)
    if enums.conjugates and trans == ("T" if hermitian else "C"):
        meant, other = ("C", "syrk and syr2k have") if hermitian else ("T", "herk and her2k have")
        raise ArgumentError(
            f'blas.{routine.name}: trans must be "N" or "{meant}" for {C.dtype}, got "{trans}"; {other} "{trans}"'
        )
    if columns != n:
        raise _misfit(routine.name, "C", C, (n, n), "as a square matrix")
    if rows_a != n:
        needed = (n, k) if trans == "N" else (k, n)
        raise _misfit(routine.name, "A", A, needed, f'for C of shape ({n}, {n}) and trans="{trans}"')
    if B is not None and B._shape != A._shape:
        raise _misfit(routine.name, "B", B, A._shape, "as A has")
    for t in (0, 1):
        lda, ldb = stored_a[t], stored_b[t]
        c = t if stored_c[t] else 1 - t
        ldc = stored_c[c]
        if not (lda and ldb and ldc) or (hermitian and c != t):
            continue
        op = ops[t]
        if hermitian and t:  # of what is computed, conj(C), the operands are A^T and B^T
            op = enums.op[0]["C" if trans == "N" else "N"]
            A, lda, B, ldb = (A, lda, B, ldb) if B is None else (B, ldb, A, lda)
        if B is None:
            call(fills[c], op, n, k, alpha, A, lda, beta, C, ldc)
        else:
            call(fills[c], op, n, k, alpha, A, lda, B, ldb, beta, C, ldc)
        return
    rule = f"{' and '.join(operands if hermitian else 'AB')} need the same order"
    raise _inexpressible(routine.name, rule, **operands)


def syrk(alpha: Scalar, A: Pointer, beta: Scalar, C: Pointer, *, uplo: str = "U", trans: str = "N") -> None:
    """Set a triangle of C to alpha A A^T + beta C (trans "N") or alpha A^T A + beta C ("T").

    C has shape (n, n), and its upper ("U") or lower ("L") triangle is read and written; A has shape (n, k), or (k, n)
    for "T", in any order. For real dtypes "C" is "T".
    """
    _rank_k(_SYRK, alpha, A, None, beta, C, uplo, trans)


def herk(alpha: Scalar, A: Pointer, beta: Scalar, C: Pointer, *, uplo: str = "U", trans: str = "N") -> None:
    """Set a triangle of C to alpha A A^H + beta C (trans "N") or alpha A^H A + beta C ("C"), alpha and beta real.

    C has shape (n, n), and its upper ("U") or lower ("L") triangle is read and written; A has shape (n, k), or (k, n)
    for "C", and C's order. For real dtypes it is syrk.
    """
    _rank_k(_HERK, alpha, A, None, beta, C, uplo, trans)


def syr2k(
    alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, uplo: str = "U", trans: str = "N"
) -> None:
    """Set a triangle of C to alpha (A B^T + B A^T) + beta C (trans "N") or alpha (A^T B + B^T A) + beta C ("T").

    C has shape (n, n), and its upper ("U") or lower ("L") triangle is read and written; A and B have shape (n, k), or
    (k, n) for "T", and one order. For real dtypes "C" is "T".
    """
    _rank_k(_SYR2K, alpha, A, B, beta, C, uplo, trans)


def her2k(
    alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, uplo: str = "U", trans: str = "N"
) -> None:
    """Set a triangle of C to alpha A B^H + conj(alpha) B A^H + beta C, or alpha A^H B + conj(alpha) B^H A + beta C.

    The first is trans "N", the second "C". C has shape (n, n), and its upper ("U") or lower ("L") triangle is read and
    written; A and B have shape (n, k), or (k, n) for "C"; all have one order. beta is real. For real dtypes it is
    syr2k.
    """
    _rank_k(_HER2K, alpha, A, B, beta, C, uplo, trans)


def _triangular_matrix(
    routine: _Routine, alpha: Scalar, A: Pointer, B: Pointer, side: str, uplo: str, trans: str, diag: str
) -> None:
    try:
        _, call, enums = routine[B._device, B._dtype_code]
        m, n = B._shape
        rows, columns = A._shape
        if A._dtype_code != B._dtype_code:
            raise KeyError
        sides = enums.side[0][side], enums.side[1][side]
        fills = enums.uplo[0][uplo], enums.uplo[1][uplo]
        ops = enums.op[0][trans], enums.op[1][trans]
        unit = enums.diag[diag]
        stored_a, stored_b = _stored(A), _stored(B)
    except _WRONG:
        _explain(routine, {"A": (A, 2), "B": (B, 2)}, side=side, uplo=uplo, trans=trans, diag=diag)
        raise
    order = m if side == "L" else n
    if rows != order or columns != order:
        raise _misfit(routine.name, "A", A, (order, order), f'for B of shape ({m}, {n}) and side="{side}"')
    for t in (0, 1):
        ldb = stored_b[t]
        a = t if stored_a[t] else 1 - t
        lda, op = stored_a[a], ops[a != t]
        if lda and ldb and op is not None:
            if t:
                m, n = n, m
            call(sides[t], fills[a], op, unit, m, n, alpha, A, lda, B, ldb)
            return
    raise _inexpressible(routine.name, 'a complex A with trans="C" needs the order of B', A=A, B=B)


def trmm(
    alpha: Scalar,
    A: Pointer,
    B: Pointer,
    *,
    side: str = "L",
    uplo: str = "U",
    trans: str = "N",
    diag: str = "N",
) -> None:
    """Set B to alpha op(A) B (side "L") or alpha B op(A) ("R") for a triangular A.

    op(A) is A, A^T or A^H for trans "N", "T" or "C". B has shape (m, n); A has shape (m, m) for "L" or (n, n) for "R",
    and its upper ("U") or lower ("L") triangle is read, without the diagonal, which counts as ones, if diag is "U".
    Orders may be mixed, except that a complex A with "C" needs the order of B.
    """
    _triangular_matrix(_TRMM, alpha, A, B, side, uplo, trans, diag)


def trsm(
    alpha: Scalar,
    A: Pointer,
    B: Pointer,
    *,
    side: str = "L",
    uplo: str = "U",
    trans: str = "N",
    diag: str = "N",
) -> None:
    """Solve op(A) X = alpha B (side "L") or X op(A) = alpha B ("R") for a triangular A and set B to X.

    op(A) is A, A^T or A^H for trans "N", "T" or "C". B has shape (m, n); A has shape (m, m) for "L" or (n, n) for "R",
    and its upper ("U") or lower ("L") triangle is read, without the diagonal, which counts as ones, if diag is "U".
    Orders may be mixed, except that a complex A with "C" needs the order of B. Nothing checks that A can be inverted.
    """
    _triangular_matrix(_TRSM, alpha, A, B, side, uplo, trans, diag)
