"""Sparse matrices on GPUs, by the generic functions of cuSPARSE and hipSPARSE.

Their descriptors contain addresses, so each call makes new descriptors.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np

from .. import _core, libraries
from .._adapters import Adapter
from ..blas.extensions import geam
from ..blas.level1 import scal
from ..errors import LibraryError
from ..linalg._call import new
from . import _results
from ._cudss import CuDSS
from .matrix import flat

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..pointers import DevicePtr
    from .matrix import LentMatrix

__all__ = ["CuSparse", "HipSparse", "OnGPU"]

_OPS: Final = {"N": 0, "T": 1, "C": 2}
_INDICES: Final = {"int32": 2, "int64": 3}
_VALUES: Final = {"float32": 0, "float64": 1, "complex64": 4, "complex128": 5}
_BY_COLUMNS: Final = 1
_BY_ROWS: Final = 2
_DEFAULT: Final = 0  # the default algorithm of each function
_FILL_MODE: Final = 0  # the numbers of two attributes of a matrix
_DIAG_TYPE: Final = 1


class _Dense(NamedTuple):
    """A vector, or a matrix with unit stride in one dimension."""

    pointer: DevicePtr
    line: int  # the number of elements of a line, which follow each other
    lines: int
    step: int  # the number of elements from the start of one line to the start of the next
    order: int  # 0 for a vector


class OnGPU(Adapter):
    """A library of a vendor with the generic functions of cuSPARSE."""

    library: ClassVar[str]
    title: ClassVar[str]  # the library's name in messages
    block_operations: ClassVar[str]  # the operations on bsr matrices in products with vectors and matrices
    vector_algorithms: ClassVar[dict[str, int]] = {}  # {format: the algorithm of SpMV, if it is not the default one}
    solved_order: ClassVar[int] = 0  # the order of matrices that SpSM takes; 0 stands for both orders
    most_columns: ClassVar[int | None] = None  # of one call of SpMM
    adds_products: ClassVar[bool] = False  # whether SpGEMM_copy adds 0 times the old values, which may be NaN

    def __init__(self) -> None:
        libraries.load(self.library)
        self._raw: Any = importlib.import_module(f"..{self.library}", __package__).raw
        self._ffi = self._raw.ffi
        self._functions: dict[str, Any] = {}

    # -- the functions that offload_args.sparse calls --

    def multiply(
        self, function: str, A: LentMatrix, x: DevicePtr, y: DevicePtr, alpha: complex, beta: complex, trans: str
    ) -> None:
        """Set y to alpha op(A) x + beta y."""
        if not y.size:
            return
        if not (A.nnz and x.size):  # the libraries refuse arrays without elements
            self._scale(y, beta)
            return
        if A.format == "bsr" and trans not in self.block_operations:
            kind = "transposes of bsr" if self.block_operations else "bsr matrices"
            raise LibraryError(f"{function}: {self.title} multiplies no {kind}; lend A.tocsr()")
        if len(y._shape) > 1 and self.most_columns and y._shape[1] > self.most_columns:
            if beta == 0:
                y.fill(0)  # the first write to an Out has to write all elements, and each call writes only some
            for start in range(0, y._shape[1], self.most_columns):
                part = slice(start, start + self.most_columns)
                self.multiply(function, A, x[:, part], y[:, part], alpha, beta, trans)
            return
        trans = _plain(trans, A.dtype)
        written = self._dense(y, reads=beta != 0)
        read = self._dense(x, order=written.order)
        factors = [self._number(value, A.dtype) for value in (alpha, beta)]
        name = "SpMV" if not written.order else "SpMM"
        ops = (_OPS[trans],) if name == "SpMV" else (_OPS[trans], _OPS["N"])
        algorithm = self.vector_algorithms.get(A.format, _DEFAULT) if name == "SpMV" else _DEFAULT

        def parameters(descriptors: _Descriptors) -> tuple[Any, ...]:
            type_ = _VALUES[A.dtype.name]
            dense = descriptors.dense(read, 0), factors[1], descriptors.dense(written, 1)
            return (descriptors.handle, *ops, factors[0], descriptors.sparse, *dense, type_, algorithm)

        def ask(descriptors: _Descriptors) -> int:
            return self._call(f"{name}_bufferSize", *parameters(descriptors), descriptors.size)

        def work(descriptors: _Descriptors) -> int:
            return self._call(name, *parameters(descriptors), descriptors.buffer)

        key = (name, trans, A.dtype, x.shape, written.order)
        access = _core.OA_OVERWRITE if beta == 0 else _core.OA_READ_WRITE
        self._run(function, A, ("x", read), ("out", written), access, key, ask, work)
        if written.pointer is not y:
            y.copy_from(written.pointer)

    def solve_triangular(
        self, function: str, A: LentMatrix, b: DevicePtr, x: DevicePtr, lower: bool, unit_diagonal: bool, trans: str
    ) -> None:
        """Solve op(A) x = b for one triangle of A. The diagonal is not checked; a zero on it gives infinities."""
        if A.format == "bsr":
            raise LibraryError(f"{function}: {self.title} solves no triangles of bsr; lend A.tocsr()")
        if A.format == "csc" and _plain(trans, A.dtype) == "C":
            _by_conjugates(b, x, lambda b, x: self.solve_triangular(function, A, b, x, lower, unit_diagonal, "T"))
            return
        if A.format == "csc":
            A, trans, lower = A.T, "T" if trans == "N" else "N", not lower
        if not A.nnz:
            if not unit_diagonal:
                raise np.linalg.LinAlgError(f"{function}: A is singular: no element of it is stored")
            x.copy_from(b)
            return
        trans = _plain(trans, A.dtype)
        written = self._dense(x, reads=False, order=self.solved_order)
        read = self._dense(b, order=written.order)
        scale = self._number(1, A.dtype)

        def steps(descriptors: _Descriptors, solves: bool) -> int:
            for attribute, value in ((_FILL_MODE, not lower), (_DIAG_TYPE, unit_diagonal)):
                setting = self._ffi.new("int *", int(value))
                self._check("SpMatSetAttribute", descriptors.sparse, attribute, setting, 4)
            by_vectors = not written.order or self._solves_vectors_only(descriptors.handle)
            name = "SpSV" if by_vectors else "SpSM"
            ops = (_OPS[trans],) if by_vectors else (_OPS[trans], _OPS["N"])
            plan = descriptors.new(f"{self.library}{name}Descr_t", f"{name}_createDescr", f"{name}_destroyDescr")
            status = 0
            for line in range(written.lines if by_vectors else 1):
                dense = (descriptors.dense(operand, i, line, by_vectors) for i, operand in enumerate((read, written)))
                type_ = _VALUES[A.dtype.name]
                parameters = descriptors.handle, *ops, scale, descriptors.sparse, *dense, type_, _DEFAULT, plan
                if line == 0:  # the analysis of A serves each vector
                    status = self._call(f"{name}_bufferSize", *parameters, descriptors.size)
                    if solves:
                        status = status or self._call(f"{name}_analysis", *parameters, descriptors.buffer)
                if status or not solves:
                    break
                status = self._solve(name, parameters, descriptors.buffer)
            return status

        key = ("solve", trans, A.dtype, b.shape, lower, unit_diagonal)
        ask, work = (lambda descriptors: steps(descriptors, False)), (lambda descriptors: steps(descriptors, True))
        self._run(function, A, ("b", read), ("out", written), _core.OA_OVERWRITE, key, ask, work)
        if written.pointer is not x:
            x.copy_from(written.pointer)

    def solve(self, function: str, A: LentMatrix, b: DevicePtr, x: DevicePtr, trans: str) -> None:
        """Solve op(A) x = b, if a library can factor A."""
        raise LibraryError(
            f"{function}: {self.title} factors no matrices; call sparse.spsolve_triangular for a triangle, iterate "
            f"with sparse.matmul, or lend A to the host"
        )

    def multiply_sparse(self, function: str, A: LentMatrix, B: LentMatrix, alpha: complex) -> _results.Arrays:
        """Return alpha A B."""
        return _results.product(self, function, A, B, alpha)

    def index_of_products(self, index: np.dtype[Any], largest: int) -> np.dtype[Any]:
        """Return int32 for products of arrays, because the libraries take no others, if all indices fit.

        `largest`: the largest of the matrices' dimensions and numbers of elements.
        """
        return np.dtype(np.int32) if largest <= np.iinfo(np.int32).max else index

    def convert(self, function: str, A: LentMatrix, form: str) -> _results.Arrays | DevicePtr:
        """Return A in another format, or a pointer to a dense matrix."""
        return _results.converted(self, function, A, form)

    def from_dense(self, function: str, x: DevicePtr) -> _results.Arrays:
        """Return a dense matrix as a csr matrix."""
        return _results.from_dense(self, function, x)

    def by_columns(self, pointer: DevicePtr, reads: bool = True) -> _Dense:
        """Return an array by columns, or a copy."""
        return self._dense(pointer, reads, _BY_COLUMNS if len(pointer._shape) > 1 else 0)

    # -- the differences of the libraries --

    def order(self, handle: Any, order: int) -> int:
        """Return the library's number for the order of a matrix."""
        return order

    def _solves_vectors_only(self, handle: Any) -> bool:
        """Return whether the library's SpSM can't be used, so that SpSV solves a line at a time."""
        return False

    def _solve(self, name: str, parameters: tuple[Any, ...], buffer: Any) -> int:
        """Call SpSV_solve or SpSM_solve."""
        return self._call(f"{name}_solve", *parameters)

    def _type(self, name: str) -> Any:
        """Return the C type of a function."""
        return self._raw.function_type(f"{self.library}{name}")

    # -- calls --

    def _run(
        self,
        function: str,
        A: LentMatrix,
        read: tuple[str, _Dense],
        written: tuple[str, _Dense],
        access: int,
        key: tuple[Any, ...],
        ask: Callable[[_Descriptors], int],
        work: Callable[[_Descriptors], int],
    ) -> None:
        """Make a call. The first call of a kind queries the size of its workspace; the matrix keeps the workspace."""
        names = ("data", "row", "col") if A.format == "coo" else ("data", "indices", "indptr")
        arrays = zip(names, A.arrays, strict=True)
        operands: list[tuple[str, DevicePtr, int, int, int, int]]
        operands = [flat(f"A.{name}", pointer) for name, pointer in arrays]
        operands.append((read[0], read[1].pointer, _core.OA_READ, *read[1][1:4]))
        kept = A._kept
        key = (A.format, *key)  # a transpose, in the other format, has the same `kept`
        if key not in kept:
            size = self._ffi.new("size_t *")

            def asked(handle: int, *addresses: int) -> int:
                with _Descriptors(
                    self, A, handle, (*addresses, addresses[-1]), size, 0
                ) as descriptors:  # the result is not read
                    return ask(descriptors)

            _core.library_call(function, self.library, tuple(operands), asked)
            kept[key] = new(A.data, (max(int(size[0]), 1),), np.dtype(np.uint8))
        buffer = kept[key]
        operands.append((written[0], written[1].pointer, access, *written[1][1:4]))
        operands.append(("its workspace", buffer, _core.OA_OVERWRITE, buffer._shape[0], 1, buffer._shape[0]))

        def called(handle: int, *addresses: int) -> int:
            size = self._ffi.new("size_t *")
            with _Descriptors(self, A, handle, addresses[:-1], size, addresses[-1]) as descriptors:
                return work(descriptors)

        _core.library_call(function, self.library, tuple(operands), called)

    def function(self, name: str) -> Any:
        """Return a function of the library."""
        function = self._functions.get(name)
        if function is None:
            symbol = f"{self.library}{name}"
            function = self._ffi.cast(self._type(name), _core.library_address(self.library, symbol))
            self._functions[name] = function
        return function

    def _call(self, name: str, *arguments: Any) -> int:
        status: int = self.function(name)(*arguments)
        return status

    def _check(self, name: str, *arguments: Any) -> None:
        status = self._call(name, *arguments)
        if status:
            raise LibraryError(f"sparse: {self.library}{name} returned the status {status}")

    def _scale(self, y: DevicePtr, beta: complex) -> None:
        """Set y to beta y."""
        if beta == 0:
            y.fill(0)
        elif beta != 1:
            copy = new(y, y._shape, y.dtype)
            copy.copy_from(y)
            scal(beta, copy.reshape(-1))
            y.copy_from(copy)

    def _number(self, value: complex, dtype: np.dtype[Any]) -> Any:
        """Return a number of a dtype in memory of the host."""
        return self._ffi.from_buffer(np.array([value if dtype.kind == "c" else complex(value).real], dtype))

    def _dense(self, pointer: DevicePtr, reads: bool = True, order: int = 0) -> _Dense:
        """Return an array, or a copy in C order if the library does not take its form.

        `order`: the order of a matrix.
        """
        itemsize = pointer.dtype.itemsize
        shape, strides = pointer._shape, pointer._strides
        if len(shape) == 1:
            if shape[0] < 2 or strides[0] == itemsize:
                return _Dense(pointer, shape[0], 1, max(shape[0], 1), 0)
        else:
            (rows, columns), (down, across) = shape, strides
            by_rows = (columns < 2 or across == itemsize) and down % itemsize == 0
            if order != _BY_COLUMNS and by_rows and (rows < 2 or down >= columns * itemsize > 0):
                step = max(down // itemsize if rows > 1 else columns, columns, 1)
                return _Dense(pointer, columns, rows, step, _BY_ROWS)
            by_columns = (rows < 2 or down == itemsize) and across % itemsize == 0
            if order != _BY_ROWS and by_columns and (columns < 2 or across >= rows * itemsize > 0):
                step = max(across // itemsize if columns > 1 else rows, rows, 1)
                return _Dense(pointer, rows, columns, step, _BY_COLUMNS)
        copy = new(pointer, shape, pointer.dtype, "F" if order == _BY_COLUMNS else "C")
        if reads:
            copy.copy_from(pointer)
        return self._dense(copy, order=order)


class _Descriptors:
    """The descriptors of one call, until its end."""

    def __init__(
        self, library: OnGPU, A: LentMatrix, handle: int, addresses: tuple[int, ...], size: Any, buffer: int
    ) -> None:
        ffi = library._ffi
        self._library = library
        self._ffi = ffi
        self._matrix = A
        self._owned: list[tuple[str, Any]] = []
        self._addresses = addresses
        self.handle = ffi.cast(f"{library.library}Handle_t", handle)
        self.size = size
        self.buffer = ffi.cast("void *", buffer)

    def __enter__(self) -> _Descriptors:
        self.sparse = self._sparse()
        return self

    def __exit__(self, *raised: object) -> None:
        for destroy, descriptor in reversed(self._owned):
            self._library._call(destroy, descriptor)

    def new(self, kind: str, create: str, destroy: str, *arguments: Any) -> Any:
        """Return a descriptor, which ends with the call."""
        place = self._ffi.new(f"{kind} *")
        self._library._check(create, place, *arguments)
        self._owned.append((destroy, place[0]))
        return place[0]

    def _sparse(self) -> Any:
        A = self._matrix
        data, first, second = (self._ffi.cast("void *", address) for address in self._addresses[:3])
        index, value = _INDICES[A.index_dtype.name], _VALUES[A.dtype.name]
        kind, (m, n) = f"{self._library.library}SpMatDescr_t", A.shape
        if A.format == "coo":
            return self.new(kind, "CreateCoo", "DestroySpMat", m, n, A.nnz, first, second, data, index, 0, value)
        if A.format == "bsr":
            r, c = A.blocksize
            counts = m // r, n // c, A.data._shape[0], r, c
            arrays = second, first, data, index, index, 0, value, _BY_ROWS
            return self.new(kind, "CreateBsr", "DestroySpMat", *counts, *arrays)
        create = "CreateCsr" if A.format == "csr" else "CreateCsc"
        compressed = second, first, data, index, index, 0, value
        return self.new(kind, create, "DestroySpMat", m, n, A.nnz, *compressed)

    def dense(self, operand: _Dense, place: int, line: int = 0, as_vector: bool = False) -> Any:
        """Return the descriptor of the operand that is read (place 0), or of the result (place 1).

        as_vector: whether only this line of a matrix is described, as a vector.
        """
        address, value = self._addresses[3 + place], _VALUES[operand.pointer.dtype.name]
        kind = f"{self._library.library}Dn{{}}Descr_t"
        if as_vector or not operand.order:
            address += line * operand.step * operand.pointer.dtype.itemsize
            arrays: tuple[Any, ...] = operand.line, self._ffi.cast("void *", address), value
            return self.new(kind.format("Vec"), "CreateDnVec", "DestroyDnVec", *arrays)
        rows, columns = operand.pointer._shape
        order = self._library.order(self.handle, operand.order)
        arrays = rows, columns, operand.step, self._ffi.cast("void *", address), value, order
        return self.new(kind.format("Mat"), "CreateDnMat", "DestroyDnMat", *arrays)


class CuSparse(OnGPU):
    """cuSPARSE, the library of NVIDIA GPUs."""

    backend: ClassVar[str | None] = "cuda"
    library: ClassVar[str] = "cusparse"
    title: ClassVar[str] = "cuSPARSE"
    block_operations: ClassVar[str] = "N"
    most_columns: ClassVar[int | None] = 16 * 65535  # cuSPARSE before 12.7.20 launches a block for each 16 columns

    def __init__(self) -> None:
        super().__init__()
        self._solver: CuDSS | None = None  # loaded at its first use, because it is a library of its own

    def solve(self, function: str, A: LentMatrix, b: DevicePtr, x: DevicePtr, trans: str) -> None:
        """Solve op(A) x = b by cuDSS, because cuSPARSE has no factorization."""
        if self._solver is None:
            self._solver = CuDSS(function)
        solver = self._solver
        if A.format == "coo":
            A = _results.csr_of(self, function, A)
        if A.format == "csc" and _plain(trans, A.dtype) == "C":
            _by_conjugates(b, x, lambda b, x: solver.solve(function, A, b, x, "T", self))
            return
        solver.solve(function, A, b, x, trans, self)


class HipSparse(OnGPU):
    """hipSPARSE, a library of AMD GPUs.

    hipSPARSE 2 (ROCm 5) has another number for the order by rows. Its SpSV_solve takes the buffer. Its SpSM copies
    in the null stream, which does not wait for the stream of the call, so it is not called.
    """

    backend: ClassVar[str | None] = "hip"
    library: ClassVar[str] = "hipsparse"
    title: ClassVar[str] = "hipSPARSE"
    block_operations: ClassVar[str] = ""
    # CSR_ALG2 needs no analysis. The analysis of the default algorithm would be lost with the descriptor.
    vector_algorithms: ClassVar[dict[str, int]] = {"csr": 3, "csc": 3}
    adds_products: ClassVar[bool] = True
    solved_order: ClassVar[int] = _BY_COLUMNS  # before hipSPARSE 3.1.1, SpSM takes each matrix to be by columns

    def __init__(self) -> None:
        super().__init__()
        self._major = 0

    def order(self, handle: Any, order: int) -> int:
        return 0 if order == _BY_ROWS and self._version(handle) < 3 else order

    def _solves_vectors_only(self, handle: Any) -> bool:
        return self._version(handle) < 3

    def _solve(self, name: str, parameters: tuple[Any, ...], buffer: Any) -> int:
        takes_buffer = name == "SpSM" or self._version(parameters[0]) < 3
        return self._call(f"{name}_solve", *parameters, *((buffer,) if takes_buffer else ()))

    def _type(self, name: str) -> Any:
        if name != "SpSV_solve":  # hipsparse.raw lacks it, because its arguments depend on the version
            return super()._type(name)
        types = "void *, int, void *, void *, void *, void *, int, int, void *" + ", void *" * (self._major < 3)
        return self._ffi.typeof(f"int(*)({types})")

    def _version(self, handle: Any) -> int:
        """Return the major version of the library, which only a handle can be asked for."""
        if not self._major:
            number = self._ffi.new("int *")
            self._check("GetVersion", handle, number)
            self._major = number[0] // 100_000
        return self._major


def _by_conjugates(b: DevicePtr, x: DevicePtr, solve: Callable[[DevicePtr, DevicePtr], None]) -> None:
    """Solve A^H x = b by `solve`, which solves A^T y = c: x is the conjugate of y if c is the conjugate of b."""
    y = new(x, x._shape, x.dtype)
    solve(_conjugates(b), y)
    x.copy_from(_conjugates(y))


def _conjugates(x: DevicePtr) -> DevicePtr:
    """Return the conjugates of the elements of x, in C order, in new memory."""
    copy, result = new(x, x._shape, x.dtype), new(x, x._shape, x.dtype)
    copy.copy_from(x)
    row = copy.reshape((1, -1))
    geam(1.0, row, 0.0, row, result.reshape((-1, 1)), trans_a="C", trans_b="C")
    return result


def _plain(trans: str, dtype: np.dtype[Any]) -> str:
    """Return the operation for elements of a dtype, because real elements need no conjugation."""
    return "T" if trans == "C" and dtype.kind != "c" else trans
