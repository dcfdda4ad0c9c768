"""How portable LAPACK calls each vendor's library: one adapter a library.

Matrices are in column-major order. Each function returns LAPACK's info; a negative one is a fault of this
package. Workspaces are taken here where the library does not take them itself.
"""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from .. import _core
from .._adapters import Adapter, adapter_of
from ..arguments import Out, Scratch
from ..blas._names import note_names
from ..blas.gemm import gemm
from ..devices import by_number
from ..errors import LibraryError, OffloadError
from ..pointers import DevicePtr
from ..regions import offload_args
from ._stacks import Infos, turned

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["Vendor", "vendor_of"]

_BLOCK: Final = 64  # columns that LAPACK works on at once, at most
_TRIANGLES: Final = 65 * _BLOCK  # what ormqr needs beside them

# The largest order of matrices whose stack is one call of cuSOLVER or cuBLAS. Their batched functions take larger ones,
# but are made for matrices that are done faster than called: of larger ones, a single one fills the GPU.
_BATCHED: Final = 512
_BATCHED_JACOBI: Final = 32  # likewise: gesvdjBatched takes no larger ones, and syevjBatched is made for such
_MOST_ELEMENTS: Final = 2**31 - 1  # of a stack, which the Jacobi functions count in 32 bits


class Vendor(Adapter):
    """One library."""

    module: ClassVar[str]  # in offload_args
    op: ClassVar[dict[str, str]]  # the names of the constants for "N", "T", "C"
    uplo: ClassVar[dict[str, str]]
    side: ClassVar[dict[str, str]]
    jobz: ClassVar[dict[str, str]]
    names: ClassVar[dict[str, str]]  # of its operands, and those that the caller knows
    needs_tall: ClassVar[bool] = False  # gesvd takes no matrix of more columns than rows

    def __init__(self) -> None:
        self.functions: Any = importlib.import_module(f"..{self.module}", __package__)

    def value(self, names: dict[str, str], key: str) -> int:
        """Return the value of one of the library's constants."""
        return getattr(self.functions, names[key])  # type: ignore[no-any-return]

    def call(self, name: str, A: DevicePtr, *arguments: Any) -> int:
        """Call a function whose info comes back."""
        try:
            return self.run(name, A, *arguments)
        except OffloadError as error:
            note_names(error, self.names)
            raise

    def run(self, name: str, A: DevicePtr, *arguments: Any) -> int:
        raise NotImplementedError

    # Stacks of matrices, whose first dimension counts them. They return None if the library has no function for such a
    # stack, and then nothing is done; otherwise info of each matrix.

    def potrf_batched(self, t: str, uplo: str, n: int, A: DevicePtr, lda: int) -> Infos | None:
        return None

    def getrf_batched(self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> Infos | None:
        return None

    def getrs_batched(self, t: str, trans: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any) -> Infos | None:
        """rest: ipiv, B, ldb."""
        return None

    def getri_batched(self, t: str, n: int, A: DevicePtr, lda: int, *rest: Any) -> Infos | None:
        """rest: ipiv, and C, ldc, which become the inverses."""
        return None

    def geqrf_batched(self, t: str, m: int, n: int, A: DevicePtr, lda: int, tau: DevicePtr) -> Infos | None:
        return None

    def syevd_batched(self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, w: DevicePtr) -> Infos | None:
        return None

    def gesvd_batched(
        self, t: str, A: DevicePtr, lda: int, s: DevicePtr, U: DevicePtr | None, VT: DevicePtr | None
    ) -> Infos | None:
        """U and VT: stacks of as many vectors as are wanted, in A's order."""
        return None

    def solves_stacks(self, n: int) -> bool:
        """Return whether stacks of systems of that order are solved as a whole, by functions of stacks here and of
        blas."""
        return False

    def diagonalizes_stacks(self, m: int, n: int) -> bool:
        """Return whether syevd_batched and gesvd_batched take matrices of that shape."""
        return False

    # One matrix.

    def potrf(self, t: str, uplo: str, n: int, A: DevicePtr, lda: int) -> int:
        return self.call(f"{t}potrf", A, self.value(self.uplo, uplo), n, A, lda)

    def getrf(self, t: str, m: int, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> int:
        return self.call(f"{t}getrf", A, m, n, A, lda, ipiv)

    def getrs(self, t: str, trans: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        """rest: ipiv, B, ldb."""
        return self.call(f"{t}getrs", A, self.value(self.op, trans), n, nrhs, A, lda, *rest)

    def potri(self, t: str, uplo: str, n: int, A: DevicePtr, lda: int) -> int:
        return self.call(f"{t}potri", A, self.value(self.uplo, uplo), n, A, lda)

    def getri(self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> int:
        raise NotImplementedError

    def geqrf(self, t: str, m: int, n: int, A: DevicePtr, lda: int, tau: DevicePtr) -> int:
        raise NotImplementedError

    def ormqr(self, t: str, side: str, trans: str, m: int, n: int, k: int, A: DevicePtr, *rest: Any) -> int:
        """rest: lda, tau, C, ldc."""
        raise NotImplementedError

    def orgqr(self, t: str, m: int, n: int, k: int, A: DevicePtr, lda: int, tau: DevicePtr) -> int:
        raise NotImplementedError

    def syevd(self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, w: DevicePtr) -> int:
        raise NotImplementedError

    def gesvd(self, t: str, jobs: tuple[str, str], m: int, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        """rest: s, U, ldu, VT, ldvt."""
        raise NotImplementedError


def _q(t: str, name: str) -> str:
    """Return a function's name: it works on Q, which is orthogonal for real dtypes and unitary for complex ones."""
    return f"{t}{'or' if t in 'sd' else 'un'}{name}"


class _LAPACKE(Vendor):
    """LAPACKE: its functions return info, and take workspaces as arrays."""

    module = "lapacke"
    backend = None
    op: ClassVar = {"N": "NO_TRANS", "T": "TRANS", "C": "CONJ_TRANS"}
    uplo: ClassVar = {"U": "UPPER", "L": "LOWER"}
    side: ClassVar = {"L": "LEFT", "R": "RIGHT"}
    jobz: ClassVar = {"N": "JOB_N", "V": "JOB_V", "A": "JOB_A", "S": "JOB_S"}
    names: ClassVar = {"a": "A", "b": "B", "c": "C", "u": "U", "vt": "VT"}

    def run(self, name: str, A: DevicePtr, *arguments: Any) -> int:
        info: int = getattr(self.functions, name)(self.functions.COL_MAJOR, *arguments)
        return info

    def with_work(
        self, name: str, A: DevicePtr, arguments: Sequence[Any], *work: tuple[int, Any], sized: int = 3
    ) -> int:
        """Call a function with workspaces after its arguments; sized: so many of them are followed by their size."""
        scratches = [Scratch((size,), dtype) for size, dtype in work]
        with offload_args(*scratches, device=A.device) as pointers:
            pairs = zip(pointers, work, strict=True)
            workspaces = [
                part for at, (pointer, (size, _)) in enumerate(pairs) for part in (pointer, size)[: 1 + (at < sized)]
            ]
            return self.call(name, A, *arguments, *workspaces)

    def getri(self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> int:
        return self.with_work(f"{t}getri", A, (n, A, lda, ipiv), (n * _BLOCK, A.dtype))

    def geqrf(self, t: str, m: int, n: int, A: DevicePtr, lda: int, tau: DevicePtr) -> int:
        return self.with_work(f"{t}geqrf", A, (m, n, A, lda, tau), (n * _BLOCK, A.dtype))

    def ormqr(self, t: str, side: str, trans: str, m: int, n: int, k: int, A: DevicePtr, *rest: Any) -> int:
        arguments = self.value(self.side, side), self.value(self.op, trans), m, n, k, A, *rest
        return self.with_work(_q(t, "mqr"), A, arguments, ((n if side == "L" else m) * _BLOCK + _TRIANGLES, A.dtype))

    def orgqr(self, t: str, m: int, n: int, k: int, A: DevicePtr, lda: int, tau: DevicePtr) -> int:
        return self.with_work(_q(t, "gqr"), A, (m, n, k, A, lda, tau), (n * _BLOCK, A.dtype))

    def syevd(self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, w: DevicePtr) -> int:
        arguments = self.value(self.jobz, jobz), self.value(self.uplo, uplo), n, A, lda, w
        blocks, vectors = n * (_BLOCK + 2), jobz == "V"
        integers = (3 + 5 * n if vectors else 1, np.int32)
        if t in "sd":
            return self.with_work(
                f"{t}syevd", A, arguments, (1 + blocks + (6 * n + 2 * n * n if vectors else 2 * n), A.dtype), integers
            )
        reals = (1 + 5 * n + 2 * n * n if vectors else n, w.dtype)
        work = (1 + blocks + (n * n if vectors else 0), A.dtype)
        return self.with_work(f"{t}heevd", A, arguments, work, reals, integers)

    def gesvd(self, t: str, jobs: tuple[str, str], m: int, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        arguments = *(self.value(self.jobz, job) for job in jobs), m, n, A, lda, *rest
        less = min(m, n)
        work = [(less * less + 8 * less + (m + n) * (_BLOCK + 1), A.dtype)]
        if t in "cz":
            work.append((5 * less, rest[0].dtype))
        return self.with_work(f"{t}gesvd", A, arguments, *work, sized=1)


_INFO: Final = object()  # stands for the array of info


def _follow(A: DevicePtr, lda: int, columns: int) -> bool:
    """Return whether the matrices of a stack follow each other as the Jacobi functions need it."""
    step = lda * columns
    return A._strides[0] == step * A.dtype.itemsize and step * A._shape[0] <= _MOST_ELEMENTS


class _CuSOLVER(Vendor):
    """cuSOLVER: its functions write info to the device, and take no workspace here. cuBLAS has LU and QR of stacks."""

    module = "cusolver"
    backend = "cuda"
    op: ClassVar = {"N": "CUBLAS_OP_N", "T": "CUBLAS_OP_T", "C": "CUBLAS_OP_C"}
    uplo: ClassVar = {"U": "CUBLAS_FILL_MODE_UPPER", "L": "CUBLAS_FILL_MODE_LOWER"}
    side: ClassVar = {"L": "CUBLAS_SIDE_LEFT", "R": "CUBLAS_SIDE_RIGHT"}
    jobz: ClassVar = {"N": "EIG_MODE_NOVECTOR", "V": "EIG_MODE_VECTOR"}
    jobs: ClassVar = {"N": "JOB_N", "A": "JOB_A", "S": "JOB_S"}
    names: ClassVar = {"W": "w", "S": "s", "TAU": "tau"}
    needs_tall = True

    def run(self, name: str, A: DevicePtr, *arguments: Any) -> int:
        # Work of other packages may be on a stream that this call does not wait for: they have the address.
        if any(isinstance(argument, DevicePtr) and _core.query(argument).escaped for argument in arguments):
            _core.device_synchronize(A._device)
        info = np.empty(1, np.int32)
        with offload_args(Out(info), device=A.device) as (dinfo,):
            getattr(self.functions, name)(*arguments, dinfo)
        return int(info[0])

    # -- stacks ----------------------------------------------------------------------------------------------

    def batched(self, library: Any, name: str, A: DevicePtr, *arguments: Any) -> Infos:
        """Call a batched function, where _INFO among the arguments stands for the array of info."""
        if any(isinstance(argument, DevicePtr) and _core.query(argument).escaped for argument in arguments):
            _core.device_synchronize(A._device)  # as in run
        infos = np.zeros(A._shape[0], np.int32)
        function = getattr(library, name)
        try:
            if not any(argument is _INFO for argument in arguments):  # it has nothing to say of a matrix
                function(*arguments)
                return infos
            with offload_args(Out(infos), device=A.device) as (dinfos,):
                function(*(dinfos if argument is _INFO else argument for argument in arguments))
        except OffloadError as error:
            note_names(error, self.names)
            raise
        return infos

    @cached_property
    def cublas(self) -> Any:
        return importlib.import_module("..cublas", __package__)

    def solves_stacks(self, n: int) -> bool:
        return n <= _BATCHED

    def diagonalizes_stacks(self, m: int, n: int) -> bool:
        return max(m, n) <= _BATCHED_JACOBI

    def potrf_batched(self, t: str, uplo: str, n: int, A: DevicePtr, lda: int) -> Infos | None:
        if n > _BATCHED:
            return None
        chosen = self.value(self.uplo, uplo)
        return self.batched(self.functions, f"{t}potrf_batched", A, chosen, n, A, lda, _INFO, A._shape[0])

    def getrf_batched(self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> Infos | None:
        if n > _BATCHED:
            return None
        return self.batched(self.cublas, f"{t}getrf_batched", A, n, A, lda, ipiv, _INFO, A._shape[0])

    def getrs_batched(self, t: str, trans: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any) -> Infos | None:
        if n > _BATCHED:
            return None
        chosen = getattr(self.cublas, f"OP_{trans}")
        return self.batched(self.cublas, f"{t}getrs_batched", A, chosen, n, nrhs, A, lda, *rest, A._shape[0])

    def getri_batched(self, t: str, n: int, A: DevicePtr, lda: int, *rest: Any) -> Infos | None:
        if n > _BATCHED:
            return None
        return self.batched(self.cublas, f"{t}getri_batched", A, n, A, lda, *rest, _INFO, A._shape[0])

    def geqrf_batched(self, t: str, m: int, n: int, A: DevicePtr, lda: int, tau: DevicePtr) -> Infos | None:
        if max(m, n) > _BATCHED:
            return None
        return self.batched(self.cublas, f"{t}geqrf_batched", A, m, n, A, lda, tau, A._shape[0])

    def syevd_batched(self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, w: DevicePtr) -> Infos | None:
        if not self.diagonalizes_stacks(n, n) or not _follow(A, lda, n):
            return None
        chosen = self.value(self.jobz, jobz), self.value(self.uplo, uplo)
        name = f"{t}{'sy' if t in 'sd' else 'he'}evj_batched"
        with self.functions.create_syevj_info() as settings:
            return self.batched(self.functions, name, A, *chosen, n, A, lda, w, _INFO, settings, A._shape[0])

    def gesvd_batched(
        self, t: str, A: DevicePtr, lda: int, s: DevicePtr, U: DevicePtr | None, VT: DevicePtr | None
    ) -> Infos | None:
        count, m, n = A._shape
        if not self.diagonalizes_stacks(m, n) or not _follow(A, lda, n):
            return None
        made = Scratch((count, m, m), A.dtype), Scratch((count, n, n), A.dtype), Scratch((n, n), A.dtype)
        with (
            offload_args(*made, device=A.device) as (u, v, identity),  # u and v have their vectors as rows
            self.functions.create_gesvdj_info() as settings,
        ):
            name, job = f"{t}gesvdj_batched", self.value(self.jobz, "V")
            arguments = job, m, n, A, lda, s, u, m, v, n, _INFO, settings, count
            infos = self.batched(self.functions, name, A, *arguments)
            if U is not None:
                U.copy_from(turned(u[:, : U._shape[2]]))
            if VT is not None:  # V^H, exactly: the function makes V, and conjugates nothing
                identity.fill(0)
                identity._view(0, (n,), (sum(identity._strides),)).fill(1)
                gemm(1.0, turned(v[:, : VT._shape[1]]), identity, 0.0, VT, trans_a="C")
        return infos

    # -- one matrix ------------------------------------------------------------------------------------------

    def getri(self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> int:
        with offload_args(Scratch((n, n), A.dtype), device=A.device) as (made,):  # symmetric, so in either order
            made.fill(0)
            made._view(0, (n,), (sum(made._strides),)).fill(1)
            info = self.getrs(t, "N", n, n, A, lda, ipiv, made, n)
            A.copy_from(made if A._strides[1] == A.dtype.itemsize else made.T)
        return info

    def geqrf(self, t: str, m: int, n: int, A: DevicePtr, lda: int, tau: DevicePtr) -> int:
        return self.call(f"{t}geqrf", A, m, n, A, lda, tau)

    def ormqr(self, t: str, side: str, trans: str, m: int, n: int, k: int, A: DevicePtr, *rest: Any) -> int:
        chosen = self.value(self.side, side), self.value(self.op, trans)
        return self.call(_q(t, "mqr"), A, *chosen, m, n, k, A, *rest)

    def orgqr(self, t: str, m: int, n: int, k: int, A: DevicePtr, lda: int, tau: DevicePtr) -> int:
        return self.call(_q(t, "gqr"), A, m, n, k, A, lda, tau)

    def syevd(self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, w: DevicePtr) -> int:
        chosen = self.value(self.jobz, jobz), self.value(self.uplo, uplo)
        return self.call(f"{t}{'sy' if t in 'sd' else 'he'}evd", A, *chosen, n, A, lda, w)

    def gesvd(self, t: str, jobs: tuple[str, str], m: int, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        return self.call(f"{t}gesvd", A, *(self.value(self.jobs, job) for job in jobs), m, n, A, lda, *rest)


_VENDORS: Final[tuple[type[Vendor], ...]] = (_CuSOLVER, _LAPACKE)


def vendor_of(name: str, pointer: DevicePtr) -> Vendor:
    """Return the adapter of the library that runs on the pointer's device.

    Raises LibraryError if there is none.
    """
    adapter = adapter_of(_VENDORS, pointer._device)
    if adapter is not None:
        return adapter
    info = by_number(pointer._device)._info
    later = "rocSOLVER comes later" if info.backend == "hip" else "no library of this build has it"
    raise LibraryError(f'{name}: there is no LAPACK on {info.name}: {later}; open the region with device="host"')
