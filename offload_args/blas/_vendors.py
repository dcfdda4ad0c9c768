"""The adapters by which portable BLAS calls the vendors' libraries, one for each library."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from .. import _core
from .._adapters import Adapter, adapter_of
from ..devices import by_number
from ..dtypes import converted
from ..errors import DTypeError, LibraryError
from . import _cblas, _rocblas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Entry", "Enums", "InNewPlace", "vendor_of"]


class Enums(NamedTuple):
    """The values of a vendor's enums; a pair has the values for a matrix, and for a matrix stored as its transpose."""

    op: tuple[dict[str, Any], dict[str, Any]]  # None: conjugated but not transposed, which no BLAS has
    uplo: tuple[dict[str, int], dict[str, int]]
    side: tuple[dict[str, int], dict[str, int]]
    diag: dict[str, int]
    conjugates: bool  # the dtype is complex
    base: int  # the index of the first element in iamax


class Entry(NamedTuple):
    """A library's functions for a routine and a dtype."""

    call: Any  # for column-major order, with the reference's arguments; None if it does not exist
    by_rows: Any  # the same for row-major order; None if the library has only one order
    enums: Enums


class InNewPlace:
    """A trmm with a separate operand for its result; it is called like the reference's trmm, which writes B."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> None:
        self.function(*arguments, *arguments[-2:])


class _Vendor(Adapter):
    """One library."""

    module: ClassVar[str]  # the library's name in offload_args
    base: ClassVar[int]
    op: ClassVar[Sequence[str]]  # the names of the constants for "N", "T" and "C"
    uplo: ClassVar[Sequence[str]]  # the same for "U" and "L"
    side: ClassVar[Sequence[str]]  # the same for "L" and "R"
    diag: ClassVar[Sequence[str]]  # the same for "N" and "U"
    without_narrow: ClassVar[str] = ""  # the library's name in messages, if it has no products of narrow dtypes

    def __init__(self) -> None:
        self.functions: Any = importlib.import_module(f"..{self.module}", __package__)

    def entry(self, routine: str, name: str, *, conjugates: bool) -> Entry:
        """Return the function of that name for a routine; `conjugates`: whether the dtype is complex."""
        function = getattr(self.functions, name, None)
        return Entry(function, None, self.enums(conjugates=conjugates))

    def enums(self, *, conjugates: bool) -> Enums:

        def values(names: Sequence[str], letters: str) -> dict[str, int]:
            return {letter: getattr(self.functions, name) for letter, name in zip(letters, names, strict=True)}

        op, uplo, side = values(self.op, "NTC"), values(self.uplo, "UL"), values(self.side, "LR")
        flipped: dict[str, Any] = {"N": op["T"], "T": op["N"], "C": None if conjugates else op["N"]}
        return Enums(
            op=(op, flipped),
            uplo=(uplo, {"U": uplo["L"], "L": uplo["U"]}),
            side=(side, {"L": side["R"], "R": side["L"]}),
            diag=values(self.diag, "NU"),
            conjugates=conjugates,
            base=self.base,
        )


class _CBLAS(_Vendor):
    """CBLAS, whose functions have an argument for the order of matrices; missing functions are made from others."""

    module = "cblas"
    backend = None
    base = 0
    op = ("NoTrans", "Trans", "ConjTrans")
    uplo = ("Upper", "Lower")
    side = ("Left", "Right")
    diag = ("NonUnit", "Unit")
    without_narrow = "CBLAS"

    def entry(self, routine: str, name: str, *, conjugates: bool) -> Entry:
        if " " in name:
            raise _no_narrow(routine, self.without_narrow, name)
        if name[1:] in _cblas.__all__:
            function = getattr(_cblas, name[1:])(self.functions, name[0])
            return Entry(function, None, self.enums(conjugates=conjugates))
        callee, _, enums = super().entry(routine, name, conjugates=conjugates)
        if not any(row[:2] == ("enum", "order") for row in _core.record(self.module, name)):
            return Entry(callee, None, enums)
        return Entry(partial(callee, self.functions.ColMajor), partial(callee, self.functions.RowMajor), enums)


class _CuBLAS(_Vendor):
    """cuBLAS, whose trmm has a separate operand for its result."""

    module = "cublas"
    backend = "cuda"
    base = 1
    op = ("OP_N", "OP_T", "OP_C")
    uplo = ("FILL_MODE_UPPER", "FILL_MODE_LOWER")
    side = ("SIDE_LEFT", "SIDE_RIGHT")
    diag = ("DIAG_NON_UNIT", "DIAG_UNIT")

    def entry(self, routine: str, name: str, *, conjugates: bool) -> Entry:
        name, *types = name.split()
        function, _, enums = super().entry(routine, name, conjugates=conjugates)
        if types:
            function = self._of_types(function, *types)
        return Entry(InNewPlace(function) if routine == "trmm" else function, None, enums)

    def _of_types(self, gemm_ex: Callable[..., None], a: str, c: str, sums: str) -> Callable[..., None]:
        """Return gemm_ex, or its strided form, with the arguments of gemm, for fixed dtypes of A and B, and of C."""
        types = {"float16": "16F", "bfloat16": "16BF", "float32": "32F", "int8": "8I", "int32": "32I"}
        type_a, type_c = (getattr(self.functions, f"CUDA_R_{types[value]}") for value in (a, c))
        last = getattr(self.functions, f"COMPUTE_{sums}"), self.functions.GEMM_DEFAULT

        def call(*arguments: Any) -> None:
            values = list(arguments)
            B, C = (9, 13) if len(values) > 13 else (8, 11)  # the positions of B and C, with strides or without
            for place, type_ in ((C, type_c), (B, type_a), (6, type_a)):
                values.insert(place + 1, type_)
            gemm_ex(*values, *last)

        return call


class _RocBLAS(_CuBLAS):
    """rocBLAS, whose functions are like cuBLAS's, but whose constants have other names."""

    module = "rocblas"
    backend = "hip"
    op = ("operation_none", "operation_transpose", "operation_conjugate_transpose")
    uplo = ("fill_upper", "fill_lower")
    side = ("side_left", "side_right")
    diag = ("diagonal_non_unit", "diagonal_unit")
    without_narrow = "rocBLAS here"

    def entry(self, routine: str, name: str, *, conjugates: bool) -> Entry:
        if " " in name:
            raise _no_narrow(routine, self.without_narrow, name)
        entry = super().entry(routine, name, conjugates=conjugates)
        return entry._replace(call=_rocblas.rotmg(entry.call)) if routine == "rotmg" else entry


_VENDORS: Final[tuple[type[_Vendor], ...]] = (_CuBLAS, _RocBLAS, _CBLAS)


def _no_narrow(routine: str, library: str, name: str) -> DTypeError:
    """Return the error for dtypes whose product a library lacks; `name` has the function and the dtypes."""
    narrow = name.split()[1]
    return DTypeError(
        f"blas.{routine}: A needs float32 or a wider dtype, for {library} has no product of {narrow} matrices; "
        f"{converted('A', 'float32')}, and likewise the others"
    )


def vendor_of(function: str, device: int) -> _Vendor:
    """Return the adapter of the library that runs on the device with this number, for a function of blas.

    Raises LibraryError if no adapter calls a library of the device.
    """
    vendor = adapter_of(function, _VENDORS, device)
    if vendor is None:
        raise LibraryError(f"blas: no library of this build runs on {by_number(device)}")
    return vendor
