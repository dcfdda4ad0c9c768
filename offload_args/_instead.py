"""Remedies for NumPy's functions, methods and operators on pointers: functions that do the same on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from .dtypes import spelled

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SOLVERS", "instead_of", "instead_of_attribute", "is_known"]

_PRODUCT: Final = "blas.gemv for a matrix and a vector, blas.gemm for matrices, blas.dot for vectors"
_SCALED: Final = "blas.scal for a number, blas.dgmm for a diagonal matrix"
# {NumPy's function or Python's operator: the remedy, which names a function for the device}.
_ON_DEVICE: Final = {
    **dict.fromkeys("matmul dot inner vecdot matvec vecmat tensordot einsum".split(), _PRODUCT),
    **dict.fromkeys("add sub subtract".split(), "blas.axpy for vectors, blas.geam for matrices"),
    **dict.fromkeys("mul multiply truediv true_divide divide".split(), _SCALED),
    **dict.fromkeys("neg negative".split(), "blas.scal"),
    "vdot": "blas.dotc or blas.dot",
    "outer": "blas.ger",
    "norm": "blas.nrm2, of dA.reshape(-1) for a matrix",
    **{
        name: f"linalg.{name}"
        for name in "solve inv cholesky lstsq qr svd eigh eigvalsh det slogdet matrix_power".split()
    },
    **{name: f"fft.{name}" for name in "fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2".split()},
    **{name: f"fft.{name}" for name in "fftn ifftn rfftn irfftn".split()},
    **dict.fromkeys(
        "zeros_like empty_like ones_like full_like".split(),
        "Scratch(x.shape, x.dtype) among the region's arguments, and fill(value)",
    ),
    "copy": "copy_from(dx) of a Scratch",
    "copyto": "dx.copy_from(dy), dx.assign(values) or dx.fill(value)",
    **{name: f"dx.{name}" for name in ("shape", "ndim", "size")},
    **dict.fromkeys("reshape ravel squeeze expand_dims atleast_1d atleast_2d".split(), "dx.reshape(...)"),
    **dict.fromkeys("transpose swapaxes matrix_transpose".split(), "dA.T"),
    **dict.fromkeys(
        "concatenate stack vstack hstack append".split(), "copy_from into slices of a Scratch, such as dw[:n]"
    ),
}
# {function: its value for one element of each operand, in a formula of kernels.elementwise}.
_FORMULAS: Final = {
    **dict.fromkeys(["add"], "{0} + {1}"),
    **dict.fromkeys(["sub", "subtract"], "{0} - {1}"),
    **dict.fromkeys(["mul", "multiply"], "{0} * {1}"),
    **dict.fromkeys(["truediv", "true_divide", "divide"], "{0} / {1}"),
    **dict.fromkeys(["pow", "power", "float_power"], "{0} ** {1}"),
    **{name: f"{name}({{0}}, {{1}})" for name in "maximum minimum fmax fmin hypot arctan2 copysign".split()},
    **{
        name: f"{name}({{0}})"
        for name in (
            "sqrt fabs abs floor ceil trunc rint exp exp2 expm1 log log1p log2 log10 sin cos tan sinh cosh tanh cbrt "
            "arcsin arccos arctan"
        ).split()
    },
    "absolute": "abs({0})",
    **dict.fromkeys(["neg", "negative"], "-{0}"),
    "square": "{0} * {0}",
    "reciprocal": "1 / {0}",
    "round": "rint({0})",
    "clip": "minimum(maximum({0}, 0.0), 1.0)",
}
_REDUCTIONS: Final = {
    **{name: name for name in "sum prod min max argmin argmax".split()},
    "amin": "min",
    "amax": "max",
    "nansum": "sum",
    "mean": "sum",
    "average": "sum",
}
_DIVIDED: Final = {
    "mean": ", and divide by dx.size",
    "average": ", and divide by dx.size",
}
# {name of a method or of an operator: NumPy's function}.
_SPELLED: Final = {"sub": "subtract", "mul": "multiply", "truediv": "true_divide", "pow": "power", "neg": "negative"}
_OTHER: Final = "kernels.elementwise or kernels.reduce, which make kernels of formulas"
# Functions that no kernel of a formula replaces.
_ON_HOST: Final = frozenset(
    "sort argsort partition unique median percentile quantile cumsum cumprod diff searchsorted allclose array_equal "
    "isclose std var save savetxt savez array2string array_repr array_str isin interp histogram bincount "
    "trace diag diagonal".split()
)

#: The remedy for pointers and matrices that are passed to SciPy's solvers.
SOLVERS: Final = (
    "the solvers of scipy.sparse.linalg run on the host; blas.gemv or sparse.matmul in a loop computes on the device, "
    "linalg.solve and sparse.spsolve solve there; or use to_host()"
)
_TRANSPOSED: Final = 'for the matrices of a stack, blas.gemm takes trans_a="T" and trans_b="T"'
_FETCHED: Final = "use to_host(), a NumPy array of the present values, or the array that was lent, after its region"
# The remedies for names of ndarray's attributes, except names for which to_host() is the remedy.
_ATTRIBUTES: Final = {
    "copy": "copy_from(dx) of a Scratch copies on the device, to_host() makes a NumPy array",
    "tolist": "to_host().tolist() has the numbers that are there now",
    "item": "to_host().item() has the number that is there now",
    "astype": 'convert the array before it is lent, x = x.astype(dtype), or use kernels.elementwise("y = x", ...)',
    "view": "lend x.view(dtype): nothing is reinterpreted on a device",
    "flatten": "reshape(-1) points to the same elements, to_host().flatten() copies them to the host",
    "ravel": "reshape(-1) points to the same elements, to_host().ravel() copies them to the host",
    "flat": "reshape(-1) points to the same elements",
    "squeeze": "use reshape, or an index of 0 for an axis",
    "transpose": f"use T; {_TRANSPOSED}",
    "swapaxes": f"use T; {_TRANSPOSED}",
    "mT": _TRANSPOSED,
    "dot": "use blas.dot, blas.gemv or blas.gemm",
    "resize": "use reshape, or lend an array of that size",
    "put": "use assign on a slice",
    "setfield": "use assign on a slice",
    "itemsize": "use dtype.itemsize",
    "data": "use address, for code outside",
    "ctypes": "use address, for code outside",
    # Names that arrays and tensors of other packages have.
    **dict.fromkeys("get cpu numpy asnumpy to_numpy copy_to_host".split(), _FETCHED),
    **dict.fromkeys("to cuda".split(), "lend the array to that device: offload_args(x, device=...)"),
    **dict.fromkeys("ptr data_ptr".split(), "use address, for code outside"),
    "set": "use assign on a slice, or on all of it",
    "clone": "copy_from(dx) of a Scratch copies on the device, to_host() makes a NumPy array",
    "detach": "it is not needed: the package keeps no gradients",
    **dict.fromkeys("block_until_ready synchronize sync wait".split(), "leave the region, or use to_host(): both wait"),
    **dict.fromkeys("stream queue".split(), "use region.stream of the region that lends the array"),
    **dict.fromkeys("free release delete close unmap".split(), "the region frees the memory when it ends"),
    **dict.fromkeys(
        "gpudata device_ptr device_pointer device_ctypes_pointer handle raw_ptr pointer".split(),
        "use address, for code outside",
    ),
    **dict.fromkeys("get_async host".split(), _FETCHED),
    **dict.fromkeys("set_async copy_to_device".split(), "use assign for values of the host, copy_from for a pointer"),
    "copy_": "use copy_from for a pointer, assign for values of the host",
    "fill_": "use fill",
    "zero_": "use fill(0)",
    "element_size": "use dtype.itemsize",
    **dict.fromkeys("numel nelement length".split(), "use size"),
    **dict.fromkeys("unsqueeze view_as reshape_as".split(), "use reshape"),
    **dict.fromkeys("permute t".split(), f"use T; {_TRANSPOSED}"),
    **dict.fromkeys("H mH".split(), f'use trans="C" of the functions of blas, or T for a real matrix; {_TRANSPOSED}'),
    **dict.fromkeys("is_contiguous contiguous".split(), "strides and ld describe the layout"),
    **dict.fromkeys("is_cuda is_gpu".split(), "use device.is_gpu"),
    **dict.fromkeys("alive valid is_valid closed".split(), "use live"),
    **dict.fromkeys("grad requires_grad backward".split(), "the package keeps no gradients"),
    **dict.fromkeys(
        "float double half".split(),
        'convert the array before it is lent, x = x.astype(dtype), or use kernels.elementwise("y = x", ...)',
    ),
    "itemset": "use assign on a slice",
    **dict.fromkeys("mm mv bmm".split(), "use blas.gemm, or blas.gemv for a vector"),
}


def _reduction(name: str, dtype: str) -> str:
    operation, kind = _REDUCTIONS[name], spelled(dtype)
    call = (
        f'kernels.reduce("{operation}", x={kind})(dx, dresult){_DIVIDED.get(name, "")}, '
        f'kernels.reduce("{operation}", axis=0, x={kind}) for each column of a matrix, axis=1 for each row'
    )
    return f"{call}, blas.asum for absolute values" if name in ("sum", "nansum") else call


def _number(value: object) -> str | None:
    """Return a number as it stands in a formula; None for other objects, and for numbers with many digits."""
    if isinstance(value, float):
        return repr(float(value))
    return repr(int(value)) if isinstance(value, int) and value.bit_length() < 64 else None


def _formula(name: str, dtype: str, operands: Sequence[object]) -> str:
    """Return the call of a kernel of a formula. Numbers among the operands are numbers of the formula."""
    formula, kind = _FORMULAS[name], spelled(dtype)
    count = 1 + ("{1}" in formula)
    numbers = [_number(value) for value in operands[:count]]
    numbers += [None] * (count - len(numbers))
    if all(number is not None for number in numbers):  # the operand is an array among them
        numbers = [None] * count
    arrays = [name for name, number in zip("xy", numbers, strict=False) if number is None]
    if len(arrays) == 1:
        arrays = ["x"]
    result = "z" if len(arrays) == 2 else "y"
    names = iter(arrays)
    value = formula.format(*(next(names) if number is None else number for number in numbers))
    declared = ", ".join([*(f"{array}=In[{kind}]" for array in arrays), f"{result}=Out[{kind}]"])
    passed = ", ".join(f"d{array}" for array in [*arrays, result])
    return f'kernels.elementwise("{result} = {value}", {declared})({passed})'


def _with_vector(name: str, dtype: str, ranks: Sequence[int]) -> str:
    """Return the remedy for a matrix and a vector, which NumPy repeats for each row."""
    kind = spelled(dtype)
    value = _FORMULAS[name].format(*("A[i, j]" if rank == 2 else "v[j]" for rank in ranks))
    kernel = (
        f"a @kernel with B: Out[{kind}].by(Linear2D()), A: In[{kind}], v: In[{kind}], and "
        f"for i, j in B.mine(): B[i, j] = {value}"
    )
    if name in ("add", "sub", "subtract") and ranks[0] == 2:
        sign = "1.0" if name == "add" else "-1.0"
        return f"blas.ger({sign}, dones, dv, dA) in place, where dones has a one for each row; or {kernel}"
    return kernel


def of_ufunc(name: str) -> str | None:
    """Return the call of kernels.elementwise that makes a kernel of a universal function; None if no formula has it."""
    return _formula(name, "float64", ()).rpartition("(")[0] if name in _FORMULAS else None


def instead_of(name: str, dtype: str, operands: Sequence[object] = ()) -> str:
    """Return the remedy for a function of NumPy, or an operator, that needs the values on the host.

    dtype: the name of the pointer's dtype. operands: of the operator, in their order.
    """
    ranks = [len(shape) for operand in operands if (shape := getattr(operand, "shape", None)) is not None]
    if ranks in ([2, 1], [1, 2]) and name in _FORMULAS:  # formulas need arrays of the same shape
        return f"use {_with_vector(name, dtype, ranks)}, or to_host()"
    ways = [_ON_DEVICE[name]] if name in _ON_DEVICE else []
    if name in _REDUCTIONS:
        ways.append(_reduction(name, dtype))
    if name in _FORMULAS:
        ways.append(_formula(name, dtype, operands))
    if not ways and name not in _ON_HOST:
        ways = [_OTHER]
    return f"use {', or '.join([*ways, 'to_host()'])}"


def _on_host(name: str) -> str:
    """Return the call of NumPy that a name of an array's method stands for, with the values of a pointer."""
    if hasattr(np.ndarray, name):
        return f"to_host().{name}(...)"
    name = _SPELLED.get(name, name)
    modules = {"np": np, "np.linalg": np.linalg, "np.fft": np.fft}
    at = next((at for at, module in modules.items() if callable(getattr(module, name, None))), "")
    return f"{at}.{name}(dx.to_host(), ...)" if at else "to_host()"


def is_known(name: str) -> bool:
    """Return whether arrays of NumPy or of another package have an attribute."""
    return hasattr(np.ndarray, name) or any(name in table for table in (_ATTRIBUTES, _ON_DEVICE, _FORMULAS))


def instead_of_attribute(name: str, dtype: str) -> str:
    """Return the remedy for an attribute that arrays have and pointers lack."""
    if name in _ATTRIBUTES:
        return _ATTRIBUTES[name]
    if name in _REDUCTIONS or name in _FORMULAS or name in _ON_DEVICE:
        return f"{instead_of(name, dtype).removesuffix('to_host()')}{_on_host(name)}"
    return f"to_host().{name} has it, in a NumPy array of the present values"
