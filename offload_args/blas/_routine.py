"""A routine of BLAS: its operands and options, the vendors' functions for it, and what it says of wrong operands."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias

from .._core import layout, product, reused
from .._portable import need_option, need_pointer
from ..dtypes import DTYPE_NAMES
from ..errors import ArgumentError, DTypeError
from ..pointers import DevicePtr
from ._vendors import Entry, vendor_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    Pointer: TypeAlias = DevicePtr[Any]
    Scalar: TypeAlias = complex | np.number[Any] | DevicePtr[Any]
    # Shared by pointers of one device and dtype: its number, the dtype's code, and entries of routines.
    Kind: TypeAlias = dict[Any, Any]

__all__ = ["DTYPES", "WRONG", "Routine", "is_complex", "level3", "native"]

P = ParamSpec("P")

# The dtypes of BLAS, by oa_dtype.
DTYPES: Final = {DTYPE_NAMES.index(name): name for name in ("float32", "float64", "complex64", "complex128")}

# The exceptions of wrong operands and options, which explain() replaces: no DevicePtr, a dtype, an option, dimensions.
WRONG: Final = (AttributeError, KeyError, TypeError, ValueError)

_OPTIONS: Final = {
    "trans": ("N", "T", "C"),
    "trans_a": ("N", "T", "C"),
    "trans_b": ("N", "T", "C"),
    "uplo": ("U", "L"),
    "side": ("L", "R"),
    "diag": ("N", "U"),
}

# The routines that take the complex dtypes instead of one that takes real ones.
_COMPLEX_FORMS: Final = {
    "dot": "dotu and dotc take",
    "sbmv": "hbmv takes",
    "spmv": "hpmv takes",
    "spr": "hpr takes",
    "spr2": "hpr2 takes",
}


def is_complex(code: int) -> bool:
    return DTYPES.get(code, "").startswith("complex")


def level3(function: Callable[P, None]) -> Callable[P, None]:
    """Note that a function reads each element of its matrices but the last many times, for `offload_args.call`."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    reused[function] = sum(1 << names.index(name) for name in names[:-1] if name in ("A", "B"))
    return function


def native(
    kind: str, *routines: Routine | None, note: Callable[..., None] | None = None
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Have C make the usual calls of a function, and the function itself all others.

    kind: "gemm" or "gemv", as its arguments are. routines: the library's, one a form. note: gets a failure of the
    library's function and the operand that it writes.
    """

    def made_of(function: Callable[P, None]) -> Callable[P, None]:
        name, code = function.__name__, function.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given, options = names[: code.co_argcount], names[code.co_argcount :]
        signature = ", ".join([*given, "*", *(f"{one}={(function.__kwdefaults__ or {})[one]!r}" for one in options)])
        text = f"{name}({signature})\n--\n\n{function.__doc__ or ''}"
        made = product(kind, function, name, text, function.__module__, _choose, note, routines)
        if function in reused:
            reused[made] = reused.pop(function)
        return made  # type: ignore[no-any-return]

    return made_of


def _choose(routine: Routine, pointer: Pointer) -> tuple[Any, ...] | None:
    """Return a vendor's function for native(), with its argument for either order, and operations by N, T and C.

    The operations are those of a matrix as it is, and of one stored as its transpose; -1 is none of either.
    """
    try:
        call, by_rows, enums = routine.of(pointer)
    except KeyError:  # of a dtype that native() leaves
        return None
    orders = -1, -1
    if isinstance(call, partial):
        orders, call = (*call.args, *by_rows.args), call.func
    ops = (tuple(-1 if one[letter] is None else one[letter] for letter in "NTC") for one in enums.op)
    return call, orders, *ops


class Routine:
    """One routine: how it takes its operands, and the vendor's function for each device and dtype.

    functions: those of float32, float64, complex64 and complex128, "-" where there is none; or by oa_dtype. operands:
    their names, each with its number of dimensions, 0 for one element: "A2 x1 y1". options: their names.
    """

    def __init__(self, name: str, functions: str | dict[int, str], operands: str, options: str = "") -> None:
        self.name = name
        self.functions = dict(zip(DTYPES, functions.split(), strict=True)) if isinstance(functions, str) else functions
        self.operands = [one[:-1] for one in operands.split()]
        self.dimensions = "".join(one[-1] for one in operands.split())
        self.options = {option: _OPTIONS[option] for option in options.split()}

    def entry(self, kind: Kind) -> Entry:
        """Find the vendor's function, which kind keeps for layout(); KeyError if there is none for the dtype."""
        function = self.functions.get(kind["dtype"], "-")
        if function == "-":
            raise KeyError(kind["dtype"])
        vendor = vendor_of(kind["device"])
        found = kind[self] = vendor.entry(self.name, function, conjugates=is_complex(kind["dtype"]))
        return found

    def of(self, pointer: Pointer) -> Entry:
        """Return the vendor's function for a pointer of 1 to 3 dimensions, which another routine took."""
        return layout(str(len(pointer._shape)), self, pointer)[0]  # type: ignore[no-any-return]

    def read(self, operands: tuple[Pointer, ...], *options: str) -> tuple[Any, ...]:
        """Return the vendor's function and the geometry of each operand; raise what is wrong with them."""
        try:
            found = layout(self.dimensions, self, *operands)
            for value, known in zip(options, self.options.values(), strict=True):
                if value not in known:
                    raise KeyError(value)
        except WRONG:
            self.explain(operands, *options)
            raise
        return found

    def explain(self, operands: tuple[Pointer, ...], *options: str) -> None:
        """Raise the error of the first argument that the routine can't take; return if there is none."""
        name = f"blas.{self.name}"
        for (option, known), value in zip(self.options.items(), options, strict=True):
            need_option(name, option, value, known)
        for operand, ndim, pointer in zip(self.operands, self.dimensions, operands, strict=True):
            need_pointer(name, operand, pointer)
            wrong = self._dtype_fault(operand, pointer, operands[0]) or ""
            if wrong:
                raise DTypeError(f"{name}: {wrong}") from None
            wrong = _shape_fault(operand, pointer, int(ndim))
            if wrong:
                raise ArgumentError(f"{name}: {wrong}") from None

    def _dtype_fault(self, operand: str, pointer: Pointer, first: Pointer) -> str:
        if self.functions.get(pointer._dtype_code, "-") == "-":
            takes = " or ".join(DTYPE_NAMES[code] for code, function in self.functions.items() if function != "-")
            other = _COMPLEX_FORMS.get(self.name) if is_complex(pointer._dtype_code) else None
            return f"{operand} needs {takes}, got {pointer.dtype}{f'; {other} complex operands' if other else ''}"
        if pointer._dtype_code != first._dtype_code:
            needed = f"needs {self.operands[0]}'s {first.dtype}; cast one of them on the host"
            return f"{operand} is {pointer.dtype}, {needed}"
        return ""


def _shape_fault(operand: str, pointer: Pointer, ndim: int) -> str:
    """Return why a pointer does not have `ndim` dimensions, 0: one element, or is a vector without an increment."""
    shape, itemsize = pointer._shape, pointer.dtype.itemsize
    if not ndim:
        part = f"pass a part, such as {operand}[{', '.join(['0:1'] * len(shape))}]"
        return "" if set(shape) <= {1} else f"{operand} has shape {shape}, needs one element; {part}"
    if len(shape) != ndim:
        remedy = f"pass {operand}[{'None' if ndim == 3 else ':, None'}]"
        if len(shape) > ndim:
            part = "a row or column" if len(shape) == 2 else "a part of it"
            remedy = f"pass {part}, such as {operand}[{', '.join('0' * (len(shape) - ndim))}]"
        return f"{operand} has shape {shape}, needs {ndim} dimension{'s' * (ndim > 1)}; {remedy}"
    if ndim == 1 and pointer._strides[0] % itemsize:
        return (
            f"{operand} has strides {pointer._strides}, needs multiples of {itemsize} bytes; copy it on the host: "
            f"numpy.ascontiguousarray({operand})"
        )
    return ""
