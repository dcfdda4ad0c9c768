"""A routine of BLAS: its operands and options, the vendors' functions for it, and its errors for wrong operands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias

import numpy as np

from .._core import layout, reused
from .._operands import LETTERS, is_complex, need_dimensions, need_dtype, need_option, need_pointer
from ..dtypes import DTYPE_NAMES, converted, ordered
from ..errors import ArgumentError, DTypeError
from ..pointers import DevicePtr
from ._refusals import joined
from ._vendors import Entry, vendor_of

if TYPE_CHECKING:
    from collections.abc import Callable

    # A dict for all pointers of one device and dtype. It has the device's number, the dtype's code, and routines'
    # entries.
    Kind: TypeAlias = dict[Any, Any]

__all__ = ["WRONG", "Routine", "Scalar", "level3"]

P = ParamSpec("P")

#: A number, or a 0-d DevicePtr of the operands' dtype.
Scalar: TypeAlias = complex | np.number[Any] | DevicePtr

# explain() replaces these exceptions. Their causes are an operand that is no DevicePtr, a wrong dtype, a wrong option,
# or wrong dimensions.
WRONG: Final = (AttributeError, KeyError, TypeError, ValueError)

_DOUBLE: Final = DTYPE_NAMES.index("float64")
_OPTIONS: Final = {
    "trans": ("N", "T", "C"),
    "trans_a": ("N", "T", "C"),
    "trans_b": ("N", "T", "C"),
    "uplo": ("U", "L"),
    "side": ("L", "R"),
    "diag": ("N", "U"),
}

# {a routine that takes only real dtypes: the routines that take complex dtypes}.
_COMPLEX_FORMS: Final = {
    "dot": "dotu and dotc take",
    "sbmv": "hbmv takes",
    "spmv": "hpmv takes",
    "spr": "hpr takes",
    "spr2": "hpr2 takes",
}


def level3(function: Callable[P, None]) -> Callable[P, None]:
    """Tell `offload_args.call` that a function reads the elements of each matrix but the last many times."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    reused[function] = sum(1 << names.index(name) for name in names[:-1] if name in ("A", "B"))
    return function


class Routine:
    """One routine: the form of its operands, and the vendor's function for each device and dtype.

    functions: the vendor's names for float32, float64, complex64 and complex128 ("-" if there is none), or a dict by
    oa_dtype. operands: their names, each with its number of dimensions: "A2 x1 y1"; 0 stands for one element. options:
    the names of the options.
    """

    def __init__(self, name: str, functions: str | dict[int, str], operands: str, options: str = "") -> None:
        self.name = name
        self.functions = dict(zip(LETTERS, functions.split(), strict=True)) if isinstance(functions, str) else functions
        self.operands = [operand[:-1] for operand in operands.split()]
        self.dimensions = "".join(operand[-1] for operand in operands.split())
        self.options = {option: _OPTIONS[option] for option in options.split()}

    def entry(self, kind: Kind) -> Entry:
        """Find the vendor's function, and store it in `kind` for layout(); raise KeyError if none takes the dtype."""
        function = self.functions.get(kind["dtype"], "-")
        if function == "-":
            raise KeyError(kind["dtype"])
        vendor = vendor_of(f"blas.{self.name}", kind["device"])
        entry = kind[self] = vendor.entry(self.name, function, conjugates=is_complex(kind["dtype"]))
        return entry

    def of(self, pointer: DevicePtr) -> Entry:
        """Return the vendor's function for a pointer of 1 to 3 dimensions that another routine accepted."""
        return layout(str(len(pointer._shape)), self, pointer)[0]  # type: ignore[no-any-return]

    def read(self, operands: tuple[DevicePtr, ...], *options: str) -> tuple[Any, ...]:
        """Return the vendor's function and the geometry of each operand; raise an error for wrong operands."""
        try:
            layout_read = layout(self.dimensions, self, *operands)
            for value, known in zip(options, self.options.values(), strict=True):
                if value not in known:
                    raise KeyError(value)
        except WRONG:
            self.explain(operands, *options)
            raise
        return layout_read

    def explain(self, operands: tuple[DevicePtr, ...], *options: str) -> None:
        """Raise the error of the first wrong argument; return if all arguments are right."""
        name = f"blas.{self.name}"
        for (option, known), value in zip(self.options.items(), options, strict=True):
            need_option(name, option, value, known)
        for operand, ndim, pointer in zip(self.operands, self.dimensions, operands, strict=True):
            need_pointer(name, operand, pointer)
            self._need_dtype(name, operand, pointer, operands)
            if ndim == "0":
                _need_one_element(name, operand, pointer)
            else:
                need_dimensions(name, operand, pointer, int(ndim), self._remedy(operand, pointer, int(ndim), operands))
            if ndim == "1":
                _need_increment(name, operand, pointer)

    def _remedy(self, operand: str, pointer: DevicePtr, ndim: int, operands: tuple[DevicePtr, ...]) -> str:
        """Return the remedy for an operand of another number of dimensions; it names the function for such operands."""
        shape = pointer._shape
        if self.name == "gemv" and [len(getattr(p, "_shape", ())) for p in operands[:2]] == [1, 2]:
            return "A and x are exchanged: write blas.gemv(alpha, A, x, beta, y)"
        if self.name == "gemv" and operand == "A" and len(shape) == 3:
            return "blas.gemm takes stacks: blas.gemm(alpha, A, x[..., None], beta, y[..., None])"
        if self.name == "gemv" and len(shape) == 2 and 1 not in shape:
            return "blas.gemm multiplies matrices: blas.gemm(alpha, A, x, beta, y)"
        if self.name.startswith("gemm") and len(shape) > 3 and isinstance(pointer, DevicePtr):
            count, (rows, columns) = math.prod(shape[:-2]), shape[-2:]
            return f"pass {operand}.reshape({count}, {rows}, {columns}), a batch of matrices, or use linalg.matmul"
        if self.name == "gemm" and len(shape) == 1 and "3" not in self.dimensions:
            return f"blas.gemv multiplies a matrix and a vector; or pass {operand}[:, None]"
        if set(self.dimensions) == {"1"} and len(shape) > 1 and not (len(shape) == 2 and 1 in shape):
            return _as_vector(operand, pointer)
        return _remedy(operand, pointer, ndim)

    def _need_dtype(self, name: str, operand: str, pointer: DevicePtr, operands: tuple[DevicePtr, ...]) -> None:
        first, codes = operands[0], [code for code, function in self.functions.items() if function != "-"]
        other = _COMPLEX_FORMS.get(self.name) if is_complex(pointer._dtype_code) else None
        remedy = f"; {other} complex operands" if other else ""
        if pointer._dtype_code not in codes and not is_complex(pointer._dtype_code):
            remedy = self._one_dtype(codes, operands)[1]
        need_dtype(name, operand, pointer, codes, remedy=remedy)
        if pointer._dtype_code != first._dtype_code:
            wanted, remedy = self._one_dtype(codes, operands)
            other = operand if pointer.dtype == wanted else "the others"
            text = f"{self.operands[0]} is {first.dtype}, needs {wanted} as {other}"
            if first.dtype == wanted:
                text = f"{operand} is {pointer.dtype}, needs {self.operands[0]}'s {wanted}"
            raise DTypeError(f"{name}: {text}{remedy}") from None

    def _one_dtype(self, codes: list[int], operands: tuple[DevicePtr, ...]) -> tuple[np.dtype[Any] | None, str]:
        """Return the dtype that most operands have, and the remedy that converts the others.

        Of two dtypes that as many operands have, it is the first operand's. No complex operand becomes real.
        """
        pairs = zip(self.operands, operands, strict=True)
        named = {key: pointer for key, pointer in pairs if isinstance(pointer, DevicePtr)}
        taken = [pointer.dtype for pointer in named.values() if pointer._dtype_code in codes]
        if not taken and (_DOUBLE not in codes or any(is_complex(pointer._dtype_code) for pointer in named.values())):
            return None, ""
        wanted = max(taken, key=taken.count) if taken else np.dtype(np.float64)
        if wanted.kind != "c" and any(dtype.kind == "c" for dtype in taken):
            wanted = np.result_type(*taken)
        remedies = [converted(key, wanted.name, pointer) for key, pointer in named.items() if pointer.dtype != wanted]
        return wanted, f"; {joined('convert', remedies)}"


def _need_one_element(name: str, operand: str, pointer: DevicePtr) -> None:
    shape = pointer._shape
    if set(shape) - {1}:
        part = f"pass a part, such as {operand}[{', '.join(['0:1'] * len(shape))}]"
        raise ArgumentError(f"{name}: {operand} has shape {shape}, needs one element; {part}") from None


def _need_increment(name: str, operand: str, pointer: DevicePtr) -> None:
    itemsize = pointer.dtype.itemsize
    if pointer._strides[0] % itemsize:
        raise ArgumentError(
            f"{name}: {operand} has strides {pointer._strides}, needs multiples of {itemsize} bytes; "
            f"{ordered(operand, pointer)}"
        ) from None


def _as_vector(operand: str, pointer: DevicePtr) -> str:
    """Return the remedy for a matrix in place of a vector."""
    for part in ("", ".T"):
        try:
            (pointer.T if part else pointer).reshape(-1)
        except ArgumentError:
            continue
        return f"pass {operand}{part}.reshape(-1), the vector of all its elements"
    return f"pass a row, such as {operand}[0]; for {operand}.reshape(-1), {ordered(operand, pointer)}"


def _remedy(operand: str, pointer: DevicePtr, ndim: int) -> str:
    """Return the remedy for an array of another number of dimensions."""
    shape = pointer._shape
    if not shape:
        return f"pass {operand}.reshape({', '.join('1' * ndim)})"
    if len(shape) == 2 and ndim == 1 and 1 in shape:
        of_one, part = ("column", "[:, 0]") if shape[1] == 1 else ("row", "[0]")
        return f"pass {operand}{part}, the vector of its one {of_one}"
    if len(shape) > ndim:
        part = "a row or column" if len(shape) == 2 else "a part of it"
        return f"pass {part}, such as {operand}[{', '.join('0' * (len(shape) - ndim))}]"
    return f"pass {operand}[{'None' if ndim == 3 else ':, None'}]"
