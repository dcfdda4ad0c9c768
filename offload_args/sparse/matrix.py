"""A sparse matrix that is lent, and the block of its region."""

from __future__ import annotations

import importlib
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar

import numpy as np

from .. import _core
from .._instead import SOLVERS
from .._signatures import telling
from ..arguments import In
from ..display import nearest
from ..errors import ArgumentError, HostAccessError, HostAttributeError, LibraryError, OffloadError
from ..pointers import DevicePtr
from ..regions import offload_args
from ._checks import arrays_of, check_indices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..devices import Device

__all__ = ["LentMatrix", "flat", "lent"]

M = TypeVar("M", bound="LentMatrix")

_TRANSPOSED: Final = {"csr": "csc", "csc": "csr"}
# {an attribute of SciPy's matrices: the remedy}
_INSTEAD: Final = {
    **dict.fromkeys(("toarray", "todense", "A"), "to_host().toarray() makes a NumPy array"),
    **dict.fromkeys(("tocsr", "tocsc", "tocoo", "asformat"), "use sparse.convert(A, format)"),
    **dict.fromkeys(("dot", "matmul"), "use sparse.matmul(A, x), or A @ x"),
    **dict.fromkeys(("indices", "indptr", "row", "col"), "use arrays, which has data and both arrays of indices"),
    "transpose": "use T",
    "copy": "to_host() makes a matrix of SciPy, which sparse.lend lends",
    "astype": "convert the matrix before it is lent: A = A.astype(dtype)",
    **{name: f"to_host().{name} has it" for name in ("sum", "mean", "max", "min", "diagonal", "multiply", "conj", "H")},
}
_ARGUMENT: Final = re.compile(r"offload_args: argument ([123])\b")


@telling
class LentMatrix:
    """A sparse matrix that is lent: its format, and the pointers to its arrays."""

    __slots__ = ("_ends", "_kept", "_pointers", "format", "shape")
    __array_ufunc__: Final = None  # so that NumPy's arrays leave operators to this class

    format: str  #: "csr", "csc", "coo" or "bsr"
    shape: tuple[int, int]  #: rows and columns

    def __init__(self, format: str, shape: tuple[int, int], pointers: tuple[DevicePtr[Any], ...]) -> None:
        self.format = format
        self.shape = shape
        self._pointers = pointers
        self._kept: dict[Any, Any] = {}  # data of the adapter: a structure on the host, workspaces or factors
        self._ends: list[Callable[[], None]] | None = None  # the adapter's calls at the end of the block that lends it

    @property
    def data(self) -> DevicePtr[Any]:
        """The pointer to the values, which calls and kernels may change; blocks for "bsr"."""
        return self._pointers[0]

    @property
    def arrays(self) -> tuple[DevicePtr[Any], DevicePtr[Any], DevicePtr[Any]]:
        """The pointers to data, indices and indptr, or, for "coo", to data, row and col.

        The arrays of indices can only be read.
        """
        data, first, second = self._pointers
        return data, first, second

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        return self._pointers[0].dtype

    @property
    def index_dtype(self) -> np.dtype[Any]:
        """The dtype of the indices: int32 or int64."""
        return self._pointers[1].dtype

    @property
    def nnz(self) -> int:
        """The number of values that are stored, including stored zeros."""
        return self._pointers[0].size

    @property
    def blocksize(self) -> tuple[int, int]:
        """The rows and columns of a block; (1, 1) unless the format is "bsr"."""
        return (*self._pointers[0]._shape[1:], 1, 1)[:2]  # type: ignore[return-value]

    @property
    def device(self) -> Device:
        """The device that has the arrays."""
        return self._pointers[0].device

    @property
    def live(self) -> bool:
        """Whether the block that lends the matrix is open."""
        return self._pointers[0].live

    @property
    def T(self) -> Self:
        """The transpose, in the same memory. The transpose of a "csr" matrix is a "csc" matrix, and the reverse.

        Raises ArgumentError for "coo" and "bsr", because libraries need their values by rows, so that the values would
        have to move.
        """
        if self.format not in _TRANSPOSED:
            raise ArgumentError(
                f'sparse.Matrix.T: "{self.format}" has no transpose without a copy; pass trans="T" to matmul'
            )
        transpose = type(self)(_TRANSPOSED[self.format], self.shape[::-1], self._pointers)
        transpose._kept, transpose._ends = self._kept, self._ends
        return transpose

    def to_host(self) -> Any:
        """Return the present elements as an array of scipy.sparse in this format; waits for the calls before.

        Raises LibraryError without SciPy.
        """
        try:
            sparse = importlib.import_module("scipy.sparse")
        except ImportError:
            raise LibraryError("sparse.Matrix.to_host: SciPy is not installed: pip install scipy") from None
        data, first, second = (pointer.to_host() for pointer in self._pointers)
        if self.format == "coo":
            return sparse.coo_array((data, (first, second)), shape=self.shape)
        return getattr(sparse, f"{self.format}_array")((data, first, second), shape=self.shape)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(f"sparse.Matrix has no attribute {name!r}", name=name)
        if name == "matvec":
            raise HostAccessError(f"sparse.Matrix: {SOLVERS}")
        if name in _INSTEAD:
            raise HostAttributeError(f"sparse.Matrix.{name}: matrices on a device don't have it; {_INSTEAD[name]}")
        public = [known for known in dir(type(self)) if not known.startswith("_")]
        raise AttributeError(f"sparse.Matrix has no attribute {name!r}{nearest(name, public)}", name=name)

    def __offload__(self) -> tuple[DevicePtr[Any], ...]:
        """Return the pointers that a kernel takes for the matrix."""
        return self._pointers

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        raise HostAccessError(
            "sparse.Matrix: its elements are on a device; call to_host(), or use SciPy's arrays later"
        )

    def __array_function__(self, function: Callable[..., object], *rest: object) -> NoReturn:
        raise HostAccessError(
            f"sparse.Matrix: np.{function.__name__} runs on the host; to_host() makes an array of SciPy, for SciPy's "
            "functions and its own methods"
        )

    __hash__ = object.__hash__

    def __reduce__(self) -> NoReturn:
        raise HostAccessError(
            "sparse.Matrix: a matrix on a device can't be copied or pickled: copy or pickle SciPy's matrix, and lend "
            "the copy"
        )

    def __repr__(self) -> str:
        state = f"on {self.device}" if self.live else "of a block that has ended"
        rows, columns = self.shape
        return f"<sparse.Matrix {self.format} {rows} x {columns}, {self.nnz} values of {self.dtype}, {state}>"


def _refuse_operator(name: str, remedy: str) -> None:
    def refusing(self: LentMatrix, *others: object) -> NoReturn:
        raise HostAccessError(f"sparse.Matrix: {name} is not an operator of matrices on a device; {remedy}")

    refusing.__name__ = name
    refusing.__qualname__ = f"LentMatrix.{name}"
    setattr(LentMatrix, name, refusing)


# The methods are set here, so that static checkers do not find them, and report every use.
for _name in ("__mul__", "__rmul__"):
    _refuse_operator(_name, "A @ x is the product, and blas.scal(number, A.data) a multiple")
_refuse_operator("__rmatmul__", "write A.T @ x.T, which is the transpose of x @ A")
for _name in "add radd sub rsub truediv pow neg abs".split():
    _refuse_operator(f"__{_name}__", "to_host() makes an array of SciPy, which has it")
for _name in "rtruediv floordiv rfloordiv mod rmod divmod rdivmod rpow pos".split():
    _refuse_operator(f"__{_name}__", "to_host().toarray() makes a NumPy array, which has it")
for _name in "lt le gt ge".split():
    _refuse_operator(f"__{_name}__", "compare to_host(), an array of SciPy")
for _name in ("__eq__", "__ne__"):
    _refuse_operator(_name, "compare to_host(), or use `is` to tell whether it is the same matrix")
for _name in "getitem iter contains len float int complex index bool".split():
    _refuse_operator(f"__{_name}__", "to_host() makes an array of SciPy; its tocsr()[i, j] is an element")
for _name in ("__setitem__", "__delitem__"):
    _refuse_operator(_name, "change A.data by calls or within `with update(A.data):`, or lend another matrix")


@contextmanager
def lent(
    function: str, A: Any, check: bool, cls: type[M], index: np.dtype[Any] | None = None, **options: Any
) -> Iterator[M]:
    """Lend a sparse matrix as a `cls`; messages name the function, and `options` are the options of the region.

    index: the dtype to which the indices are converted.
    """
    arrays = arrays_of(function, A)
    if check:
        check_indices(function, A, arrays)
    data, first, second = arrays.values()
    if index is not None:
        first, second = (array.astype(index, copy=False) for array in (first, second))
    entered = False
    try:
        with offload_args(data, In(first), In(second), **options) as pointers:
            entered = True
            matrix = cls(A.format, (int(A.shape[0]), int(A.shape[1])), pointers)
            ends = matrix._ends = []
            try:
                yield matrix
            finally:
                while ends:
                    ends.pop()()
    except OffloadError as error:
        if not entered:  # an error inside the block already names the function that raised it
            names = list(arrays)
            text = _ARGUMENT.sub(lambda match: f"{function}: A.{names[int(match[1]) - 1]}", str(error))
            error.args = (text,)
        raise


def flat(
    name: str, pointer: DevicePtr[Any], access: int = _core.OA_READ
) -> tuple[str, DevicePtr[Any], int, int, int, int]:
    """Return the operand of a library's call for one of a matrix's arrays, whose elements follow each other."""
    if not pointer.size:
        return name, pointer, access, 0, 1, 1
    step = pointer.dtype.itemsize
    for extent, stride in zip(reversed(pointer._shape), reversed(pointer._strides), strict=True):
        if extent > 1 and stride != step:
            raise ArgumentError("sparse: the arrays of A need to be contiguous; lend A.copy()")
        step *= extent
    return name, pointer, access, pointer.size, 1, pointer.size
