"""Sparse matrices that cuSPARSE or hipSPARSE makes on a device: products of two matrices, and conversions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Protocol

import numpy as np

from .. import _core
from ..errors import LibraryError
from ..linalg._call import new
from .matrix import flat

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..pointers import DevicePtr
    from .matrix import LentMatrix

__all__ = ["Arrays", "converted", "csr_of", "from_dense", "product"]

_INT32: Final = np.dtype(np.int32)
_INDICES: Final = {"int32": 2, "int64": 3}
_VALUES: Final = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
_DEFAULT: Final = 0  # the default algorithm of each function
_NUMERIC: Final = 1  # the values are converted, too
_CSR_TO_CSC: Final = 1  # the default algorithm of Csr2cscEx2


class Library(Protocol):
    """cuSPARSE or hipSPARSE, as `sparse` calls it."""

    library: ClassVar[str]
    title: ClassVar[str]
    adds_products: ClassVar[bool]
    _ffi: Any

    def _call(self, name: str, *arguments: Any) -> int: ...
    def _check(self, name: str, *arguments: Any) -> None: ...
    def order(self, handle: Any, order: int) -> int: ...
    def _number(self, value: complex, dtype: np.dtype[Any]) -> Any: ...
    def _dense(self, pointer: DevicePtr, reads: bool = True, order: int = 0) -> Any: ...


class Arrays(NamedTuple):
    """A new sparse matrix: its format, its shape and the pointers to its arrays."""

    format: str
    shape: tuple[int, int]
    pointers: tuple[DevicePtr, DevicePtr, DevicePtr]


class _Descriptors:
    """The descriptors of the calls that make one matrix, until the last of these calls."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._owned: list[tuple[str, Any]] = []

    def __enter__(self) -> _Descriptors:
        return self

    def __exit__(self, *raised: object) -> None:
        for destroy, descriptor in reversed(self._owned):
            self._library._call(destroy, descriptor)

    def new(self, kind: str, create: str, destroy: str, *arguments: Any) -> Any:
        """Return a descriptor."""
        place = self._library._ffi.new(f"{self._library.library}{kind}Descr_t *")
        self._library._check(create, place, *arguments)
        self._owned.append((destroy, place[0]))
        return place[0]

    def sparse(self, A: LentMatrix, addresses: tuple[int, ...]) -> Any:
        """Return the descriptor of a csr, csc or coo matrix with arrays at these addresses."""
        data, first, second = (self._library._ffi.cast("void *", address) for address in addresses)
        index, value = _INDICES[A.index_dtype.name], _VALUES[A.dtype.name]
        if A.format == "coo":
            arrays: tuple[Any, ...] = first, second, data, index, 0, value
        else:
            arrays = second, first, data, index, index, 0, value
        return self.new("SpMat", f"Create{A.format.capitalize()}", "DestroySpMat", *A.shape, A.nnz, *arrays)

    def empty(self, shape: tuple[int, int], dtype: np.dtype[Any], indptr: int) -> Any:
        """Return the descriptor of a csr matrix whose elements are not known yet."""
        null, offsets = self._library._ffi.NULL, self._library._ffi.cast("void *", indptr)
        types = 2, 2, 0, _VALUES[dtype.name]
        return self.new("SpMat", "CreateCsr", "DestroySpMat", *shape, 0, offsets, null, null, *types)

    def dense(self, handle: int, operand: Any, address: int) -> Any:
        """Return the descriptor of a dense matrix."""
        pointer = self._library._ffi.cast("void *", address)
        order = self._library.order(_handle(self._library, handle), operand.order)
        layout = operand.step, pointer, _VALUES[operand.pointer.dtype.name], order
        return self.new("DnMat", "CreateDnMat", "DestroyDnMat", *operand.pointer._shape, *layout)


def product(library: Library, function: str, A: LentMatrix, B: LentMatrix, alpha: complex) -> Arrays:
    """Return alpha A B, which is csc if A is csc, and otherwise csr."""
    _refuse_blocks(library, function, A)
    _refuse_blocks(library, function, B, "x")
    if A.format == "csc":
        if B.format != "csc":
            _need_narrow(library, function, A)
            B = type(B)(*_sparse(library, function, B, "csc"))
        transpose = product(library, function, B.T, A.T, alpha)
        return Arrays("csc", (A.shape[0], B.shape[1]), transpose.pointers)
    left, right = (csr_of(library, function, matrix) for matrix in (A, B))
    shape = A.shape[0], B.shape[1]
    if not (A.nnz and B.nnz):
        return _empty("csr", shape, A.data)
    with _Descriptors(library) as descriptors:
        return _multiply(library, function, left, right, alpha, descriptors)


def _multiply(
    library: Library, function: str, A: LentMatrix, B: LentMatrix, alpha: complex, descriptors: _Descriptors
) -> Arrays:
    ffi, call = library._ffi, library._call
    shape = A.shape[0], B.shape[1]
    reads = [flat(f"A.{name}", pointer) for name, pointer in zip(("data", "indices", "indptr"), A.arrays, strict=True)]
    reads += [flat(f"x.{name}", pointer) for name, pointer in zip(("data", "indices", "indptr"), B.arrays, strict=True)]
    sizes = ffi.new("size_t[2]")
    factors = [library._number(value, A.dtype) for value in (alpha, 0)]
    parameters: tuple[Any, ...] = ()
    result: Any = None

    def step(work: Callable[..., int], *written: DevicePtr) -> None:
        outputs = [flat("its result", pointer, _core.OA_OVERWRITE) for pointer in written]
        _core.library_call(function, library.library, (*reads, *outputs), work)

    def ask_first(handle: int, *addresses: int) -> int:
        nonlocal parameters, result
        matrices = descriptors.sparse(A, addresses[:3]), descriptors.sparse(B, addresses[3:6])
        result = descriptors.empty(shape, A.dtype, addresses[6])
        plan = descriptors.new("SpGEMM", "SpGEMM_createDescr", "SpGEMM_destroyDescr")
        parameters = 0, 0, factors[0], *matrices, factors[1], result, _VALUES[A.dtype.name], _DEFAULT, plan
        return call("SpGEMM_workEstimation", _handle(library, handle), *parameters, sizes, ffi.NULL)

    def ask_second(handle: int, *addresses: int) -> int:
        own, buffer = _handle(library, handle), ffi.cast("void *", addresses[7])
        return call("SpGEMM_workEstimation", own, *parameters, sizes, buffer) or call(
            "SpGEMM_compute", own, *parameters, sizes + 1, ffi.NULL
        )

    def compute(handle: int, *addresses: int) -> int:
        buffer = ffi.cast("void *", addresses[8])
        return call("SpGEMM_compute", _handle(library, handle), *parameters, sizes + 1, buffer)

    def copy(handle: int, *addresses: int) -> int:
        offsets, data, indices = (ffi.cast("void *", addresses[i]) for i in (6, 9, 10))
        return call("CsrSetPointers", result, offsets, indices, data) or call(
            "SpGEMM_copy", _handle(library, handle), *parameters
        )

    indptr = new(A.data, (shape[0] + 1,), _INT32)
    step(ask_first, indptr)
    reads.append(flat("its result", indptr, _core.OA_READ_WRITE))
    first = _workspace(A.data, sizes[0])
    step(ask_second, first)
    second = _workspace(A.data, sizes[1])
    reads.append(flat("its workspace", first, _core.OA_READ_WRITE))
    step(compute, second)
    count = _count(library, result)
    if not count:
        return _empty("csr", shape, A.data)
    reads.append(flat("its workspace", second, _core.OA_READ_WRITE))
    data, indices, _ = _arrays(A.data, count, 0)
    if library.adds_products:
        data.fill(0)
    step(copy, data, indices)
    # The libraries do not promise that the indices of a row rise; two transpositions sort them.
    by_columns = _transpose(library, function, (data, indices, indptr), shape)
    return Arrays("csr", shape, _transpose(library, function, by_columns, shape[::-1]))


def converted(library: Library, function: str, A: LentMatrix, form: str) -> Arrays | DevicePtr:
    """Return A in another format, or a pointer to a dense matrix. Arrays that are the same in both are shared."""
    if form != "dense":
        return _sparse(library, function, A, form)
    _refuse_blocks(library, function, A)
    return _to_dense(library, function, A)


def _refuse_blocks(library: Library, function: str, A: LentMatrix, name: str = "A") -> None:
    if A.format == "bsr":
        raise LibraryError(f"{function}: {library.title} converts no bsr matrices; lend {name}.tocsr()")


def _sparse(library: Library, function: str, A: LentMatrix, form: str) -> Arrays:
    """Return A as csr, csc or coo."""
    _refuse_blocks(library, function, A)
    if form == A.format:
        return Arrays(A.format, A.shape, A.arrays)
    if form == "csr":
        return _to_csr(library, function, A)
    if A.format == "csr" and form == "csc":
        _need_narrow(library, function, A)
        return Arrays("csc", A.shape, _transpose(library, function, A.arrays, A.shape))
    if A.format == "csr":
        return _to_coo(library, function, A)
    return _sparse(library, function, csr_of(library, function, A), form)


def from_dense(library: Library, function: str, x: DevicePtr) -> Arrays:
    """Return the elements of a dense matrix that are not 0, as a csr matrix with indices of 32 bits."""
    shape = x._shape[0], x._shape[1]
    if not x.size:
        return _empty("csr", shape, x)
    ffi, call, operand = library._ffi, library._call, library._dense(x)
    indptr = new(x, (shape[0] + 1,), _INT32)
    read = "x", operand.pointer, _core.OA_READ, *operand[1:4]
    size = ffi.new("size_t *")
    parameters: tuple[Any, ...] = ()
    result: Any = None

    with _Descriptors(library) as descriptors:

        def ask(handle: int, *addresses: int) -> int:
            nonlocal parameters, result
            result = descriptors.empty(shape, x.dtype, addresses[1])
            parameters = descriptors.dense(handle, operand, addresses[0]), result, _DEFAULT
            return call("DenseToSparse_bufferSize", _handle(library, handle), *parameters, size)

        def analyse(handle: int, *addresses: int) -> int:
            buffer = ffi.cast("void *", addresses[2])
            return call("DenseToSparse_analysis", _handle(library, handle), *parameters, buffer)

        def convert(handle: int, *addresses: int) -> int:
            buffer, data, indices = (ffi.cast("void *", address) for address in addresses[2:])
            status = call("CsrSetPointers", result, ffi.cast("void *", addresses[1]), indices, data)
            return status or call("DenseToSparse_convert", _handle(library, handle), *parameters, buffer)

        written = [flat("its result", indptr, _core.OA_OVERWRITE)]
        _core.library_call(function, library.library, (read, *written), ask)
        written.append(flat("its workspace", _workspace(x, size[0]), _core.OA_OVERWRITE))
        _core.library_call(function, library.library, (read, *written), analyse)
        count = _count(library, result)
        if not count:
            return _empty("csr", shape, x)
        data, indices, _ = _arrays(x, count, 0)
        written = [flat(name, pointer, _core.OA_READ_WRITE) for name, pointer, *_ in written]
        written += [flat("its result", pointer, _core.OA_OVERWRITE) for pointer in (data, indices)]
        _core.library_call(function, library.library, (read, *written), convert)
    return Arrays("csr", shape, (data, indices, indptr))


def csr_of(library: Library, function: str, A: LentMatrix) -> LentMatrix:
    """Return A, or a csr matrix with its elements; raise LibraryError for indices of 64 bits."""
    _refuse_blocks(library, function, A)
    _need_narrow(library, function, A)
    return A if A.format == "csr" else type(A)(*_to_csr(library, function, A))


def _need_narrow(library: Library, function: str, A: LentMatrix) -> None:
    if A.index_dtype != _INT32:
        raise LibraryError(
            f"{function}: {library.title} does this for indices of 32 bits only; lend A with indices of int32"
        )


def _to_csr(library: Library, function: str, A: LentMatrix) -> Arrays:
    _need_narrow(library, function, A)
    if A.format == "csc":
        return Arrays("csr", A.shape, _transpose(library, function, A.arrays, A.shape[::-1]))
    indptr = new(A.data, (A.shape[0] + 1,), _INT32)
    data, row, col = A.arrays

    def work(handle: int, rows: int, offsets: int) -> int:
        pointers = (library._ffi.cast("int *", address) for address in (rows, offsets))
        source, target = pointers
        return library._call("Xcoo2csr", _handle(library, handle), source, A.nnz, A.shape[0], target, 0)

    if A.nnz:
        _core.library_call(
            function, library.library, (flat("A.row", row), flat("its result", indptr, _core.OA_OVERWRITE)), work
        )
    else:
        indptr.fill(0)
    return Arrays("csr", A.shape, (data, col, indptr))


def _to_coo(library: Library, function: str, A: LentMatrix) -> Arrays:
    _need_narrow(library, function, A)
    data, indices, indptr = A.arrays
    row = new(A.data, (A.nnz,), _INT32)

    def work(handle: int, offsets: int, rows: int) -> int:
        source, target = (library._ffi.cast("int *", address) for address in (offsets, rows))
        return library._call("Xcsr2coo", _handle(library, handle), source, A.nnz, A.shape[0], target, 0)

    if A.nnz:
        _core.library_call(
            function, library.library, (flat("A.indptr", indptr), flat("its result", row, _core.OA_OVERWRITE)), work
        )
    return Arrays("coo", A.shape, (data, row, indices))


def _transpose(
    library: Library, function: str, arrays: tuple[DevicePtr, ...], shape: tuple[int, int]
) -> tuple[DevicePtr, DevicePtr, DevicePtr]:
    """Return the arrays of a csc matrix for the arrays of a csr matrix of this shape. The new indices rise."""
    ffi, (data, *_), (m, n) = library._ffi, arrays, shape
    written = _arrays(data, data.size, n + 1)
    if not data.size:
        written[2].fill(0)
        return written
    operands = [flat(f"A.{name}", p) for name, p in zip(("data", "indices", "indptr"), arrays, strict=True)]
    operands += [flat("its result", pointer, _core.OA_OVERWRITE) for pointer in written]
    size = ffi.new("size_t *")

    def call(name: str, handle: int, addresses: tuple[int, ...], last: Any) -> int:
        data_, indices, indptr, *to = addresses
        read = ffi.cast("void *", data_), ffi.cast("int *", indptr), ffi.cast("int *", indices)
        write = ffi.cast("void *", to[0]), ffi.cast("int *", to[2]), ffi.cast("int *", to[1])
        kinds = _VALUES[data.dtype.name], _NUMERIC, 0, _CSR_TO_CSC
        return library._call(name, _handle(library, handle), m, n, data.size, *read, *write, *kinds, last)

    def ask(handle: int, *addresses: int) -> int:
        return call("Csr2cscEx2_bufferSize", handle, addresses, size)

    def convert(handle: int, *addresses: int) -> int:
        return call("Csr2cscEx2", handle, addresses[:6], ffi.cast("void *", addresses[6]))

    _core.library_call(function, library.library, tuple(operands), ask)
    operands.append(flat("its workspace", _workspace(data, size[0]), _core.OA_OVERWRITE))
    _core.library_call(function, library.library, tuple(operands), convert)
    return written


def _to_dense(library: Library, function: str, A: LentMatrix) -> DevicePtr:
    result = new(A.data, A.shape, A.dtype)
    if not A.nnz:
        if result.size:
            result.fill(0)
        return result
    ffi, operand = library._ffi, library._dense(result, reads=False)
    names = ("data", "row", "col") if A.format == "coo" else ("data", "indices", "indptr")
    operands = [flat(f"A.{name}", pointer) for name, pointer in zip(names, A.arrays, strict=True)]
    operands.append(flat("its result", result, _core.OA_OVERWRITE))
    size = ffi.new("size_t *")

    def run(name: str, handle: int, addresses: tuple[int, ...], last: Any) -> int:
        with _Descriptors(library) as descriptors:
            matrices = descriptors.sparse(A, addresses[:3]), descriptors.dense(handle, operand, addresses[3])
            return library._call(name, _handle(library, handle), *matrices, _DEFAULT, last)

    def ask(handle: int, *addresses: int) -> int:
        return run("SparseToDense_bufferSize", handle, addresses, size)

    def convert(handle: int, *addresses: int) -> int:
        return run("SparseToDense", handle, addresses, ffi.cast("void *", addresses[4]))

    _core.library_call(function, library.library, tuple(operands), ask)
    operands.append(flat("its workspace", _workspace(A.data, size[0]), _core.OA_OVERWRITE))
    _core.library_call(function, library.library, tuple(operands), convert)
    return result


def _handle(library: Library, handle: int) -> Any:
    return library._ffi.cast(f"{library.library}Handle_t", handle)


def _count(library: Library, matrix: Any) -> int:
    """Return the number of elements that a function has counted for a matrix."""
    sizes = library._ffi.new("int64_t[3]")
    library._check("SpMatGetSize", matrix, sizes, sizes + 1, sizes + 2)
    return int(sizes[2])


def _workspace(like: DevicePtr, nbytes: int) -> DevicePtr:
    return new(like, (max(int(nbytes), 1),), np.dtype(np.uint8))


def _arrays(like: DevicePtr, count: int, offsets: int) -> tuple[DevicePtr, DevicePtr, DevicePtr]:
    """Return new memory for the values, the indices and the offsets of a matrix with values as `like` has."""
    return new(like, (count,), like.dtype), new(like, (count,), _INT32), new(like, (offsets,), _INT32)


def _empty(form: str, shape: tuple[int, int], like: DevicePtr) -> Arrays:
    arrays = _arrays(like, 0, shape[0] + 1)
    arrays[2].fill(0)
    return Arrays(form, shape, arrays)
