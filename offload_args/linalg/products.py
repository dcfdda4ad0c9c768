"""Products and powers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .._operands import need_whole
from .._signatures import telling
from ..blas import gemm
from ..errors import ArgumentError, DeviceMemoryError, OffloadError
from ._call import Call, Operand, Result, Spec, new
from ._stacks import arrange, multiply, set_identity, stored
from .systems import inverse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..devices import Device
    from ..pointers import DevicePtr

__all__ = ["matmul", "matrix_power"]

# Parts are faster than one region if operands and result have at least _LARGE bytes, and each extent is at least
# _LEAST.
_LARGE: Final = 64 << 20
_LEAST: Final = 512


@telling
def matmul(x1: Operand, x2: Operand, /, *, device: Device | str | None = None) -> Result:
    """Return the matrix product of two arrays, as numpy.matmul does.

    x1, x2: matrices, vectors, or stacks of matrices (..., m, k) and (..., k, n), which are broadcast. Their dtypes are
    float32, float64, complex64 or complex128: BLAS has no functions that multiply integers exactly.
    device: as for solve.

        print(linalg.matmul(np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones(2)))  # [3. 7.]

    Raises ArgumentError, a ValueError, for shapes that do not fit, and DTypeError for integers. Source: numpy.matmul.

    See also: linalg.matrix_power, blas.gemm, blas.gemv; docs/guide/linalg.md.
    """
    call = Call("linalg.matmul", device, None, x1=x1, x2=x2)
    call.need_inexact()
    first, second = call.shapes["x1"], call.shapes["x2"]
    if not first or not second:
        raise ArgumentError(
            f"linalg.matmul: x1 of shape {first} and x2 of shape {second} need one dimension at least; multiply by a "
            f"number instead"
        )
    left = first if len(first) > 1 else (1, *first)
    right = second if len(second) > 1 else (*second, 1)
    if left[-1] != right[-2]:
        raise ArgumentError(
            f"linalg.matmul: x1 of shape {first} has {left[-1]} columns, and x2 of shape {second} has {right[-2]} rows"
        )
    batch = call.broadcast(left[:-2], right[:-2])
    rows = (left[-2],) if len(first) > 1 else ()
    columns = (right[-1],) if len(second) > 1 else ()
    if len(first) == len(second) == 2 and _pays_by_parts(call):
        product = _by_parts(call)
    else:
        try:
            (product,), _ = call.run(_product, Spec((*batch, *rows, *columns), call.dtype))
        except DeviceMemoryError:
            if call.on_device or not len(first) == len(second) == 2:
                raise
            product = _by_parts(call)
    of_class = "x2" if type(x2) is not np.ndarray and isinstance(x2, np.ndarray) else "x1"
    return call.wrapped(of_class, product) if product.shape else call.scalar(product)


def _pays_by_parts(call: Call) -> bool:
    """Return whether a product of two matrices is large, and arrays are copied to its device."""
    (m, k), (_, n) = call.shapes.values()
    size = (m * k + k * n + m * n) * call.dtype.itemsize
    return not call.on_device and size >= _LARGE and min(m, n, k) >= _LEAST and call.device.backend != "host"


def _by_parts(call: Call) -> NDArray[Any]:
    """Return the product of two matrices, whose parts are copied while other parts are computed."""
    a, b = call.arrays()
    product = np.empty((a.shape[0], b.shape[1]), call.dtype)
    try:
        gemm(1.0, a, b, 0.0, product, devices=[call.device])
    except OffloadError as error:
        error.args = (str(error).replace("blas.gemm", call.name, 1),)
        raise
    return product


def _product(a: DevicePtr, b: DevicePtr, c: DevicePtr) -> None:
    """Set c to a b; a vector a counts as a row, and a vector b as a column."""
    size = a.dtype.itemsize
    if len(a._shape) == 1 and len(b._shape) == 1:
        c = c._view(0, (1, 1), (size, size))
    elif len(a._shape) == 1:
        c = c._view(0, (*c._shape[:-1], 1, c._shape[-1]), (*c._strides[:-1], c._shape[-1] * size, size))
    elif len(b._shape) == 1:
        c = c._view(0, (*c._shape, 1), (*c._strides, size))
    if len(a._shape) == 1:
        a = a._view(0, (1, *a._shape), (max(a._shape[0], 1) * abs(a._strides[0]), *a._strides))
    if len(b._shape) == 1:
        b = b._view(0, (*b._shape, 1), (*b._strides, size))
    for operand, pointer in (("x1", a), ("x2", b)):
        stored("linalg.matmul", operand, pointer)
    if a._shape[-1]:
        multiply(1.0, a, b, 0.0, c)
    else:  # there is nothing to sum
        c.fill(0)


@telling
def matrix_power(a: Operand, n: int, *, device: Device | str | None = None) -> Result:
    """Return a power of a square matrix, or of each matrix of a stack, as numpy.linalg.matrix_power does.

    a: matrix of shape (m, m), or a stack (..., m, m), of float32, float64, complex64 or complex128.
    n: a whole number; 0 gives the identity, and a negative number gives a power of the inverse.
    device: as for solve.

        print(linalg.matrix_power(np.array([[1.0, 1.0], [1.0, 0.0]]), 10).tolist())  # [[89.0, 55.0], [55.0, 34.0]]

    Raises numpy.linalg.LinAlgError if a is not square, or if a is singular and n is negative. Raises DTypeError for
    integers. Source: numpy.linalg.matrix_power.

    See also: linalg.matmul, linalg.inv; docs/guide/linalg.md.
    """
    call = Call("linalg.matrix_power", device, None, a=a)
    shape = call.need_square()
    power = need_whole("linalg.matrix_power", "n", n)
    if power >= 0:  # for a negative power, integers are inverted as float64, as in NumPy
        call.need_inexact()
    else:
        call.need_uncaptured("lapack.gesv with info=")

    def work(a: DevicePtr, x: DevicePtr) -> None:
        stored("linalg.matrix_power", "a", a)
        if 0 not in x._shape:
            _power(a, x, power)

    (x,), _ = call.run(work, Spec(shape, call.dtype))
    return call.wrapped("a", x)


def _power(a: DevicePtr, x: DevicePtr, power: int) -> None:
    """Set x to a power of a, by repeated squaring of a."""
    if not power:
        set_identity(x)
        return
    square = new(a, a._shape, a.dtype, of_graph=True)
    if power < 0:
        inverse("linalg.matrix_power", a, square)
    else:
        arrange(square, a)
    rest, result = abs(power), None
    while rest:
        if rest % 2:
            result = square if result is None else _times(result, square)
        rest //= 2
        if rest:
            square = _times(square, square)
    assert result is not None
    x.copy_from(result)


def _times(a: DevicePtr, b: DevicePtr) -> DevicePtr:
    product = new(a, a._shape, a.dtype, of_graph=True)
    multiply(1.0, a, b, 0.0, product)
    return product
