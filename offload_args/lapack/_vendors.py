"""How portable LAPACK calls each vendor's library: one adapter a library.

Matrices are in column-major order. Each function returns LAPACK's info; a negative one is a fault of this
package. Workspaces are taken here where the library does not take them itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from .. import _core
from .._adapters import Adapter, adapter_of
from ..arguments import Out, Scratch
from ..blas._names import note_names
from ..devices import by_number
from ..errors import LibraryError, OffloadError
from ..pointers import DevicePtr
from ..regions import offload_args

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["vendor_of"]

_BLOCK: Final = 64  # columns that LAPACK works on at once, at most
_TRIANGLES: Final = 65 * _BLOCK  # what ormqr needs beside them


class _Vendor(Adapter):
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

    def potrf(self, t: str, uplo: str, n: int, A: DevicePtr, lda: int) -> int:
        return self.call(f"{t}potrf", A, self.value(self.uplo, uplo), n, A, lda)

    def getrf(self, t: str, m: int, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> int:
        return self.call(f"{t}getrf", A, m, n, A, lda, ipiv)

    def getrs(self, t: str, trans: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        """rest: ipiv, B, ldb."""
        return self.call(f"{t}getrs", A, self.value(self.op, trans), n, nrhs, A, lda, *rest)

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


class _LAPACKE(_Vendor):
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


class _CuSOLVER(_Vendor):
    """cuSOLVER: its functions write info to the device, and take no workspace here."""

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


_VENDORS: Final[tuple[type[_Vendor], ...]] = (_CuSOLVER, _LAPACKE)


def vendor_of(name: str, pointer: DevicePtr) -> _Vendor:
    """Return the adapter of the library that runs on the pointer's device.

    Raises LibraryError if there is none.
    """
    adapter = adapter_of(_VENDORS, pointer._device)
    if adapter is not None:
        return adapter
    info = by_number(pointer._device)._info
    later = "rocSOLVER comes later" if info.backend == "hip" else "no library of this build has it"
    raise LibraryError(f'{name}: there is no LAPACK on {info.name}: {later}; open the region with device="host"')
