"""How portable LAPACK calls each vendor's library: one adapter a library.

Matrices are in column-major order. Each function returns LAPACK's info; a negative one is a fault of this
package. Workspaces are taken here where the library does not take them itself.
"""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np

from .. import _core
from .._adapters import Adapter, adapter_of
from .._operands import REAL_OF
from ..arguments import Out, Scratch
from ..blas._cblas import step_of
from ..blas._names import note_names
from ..blas.gemm import gemm
from ..devices import by_number
from ..dtypes import code_of, dtype_of
from ..errors import LibraryError, OffloadError
from ..pointers import DevicePtr
from ..regions import offload_args
from ._stacks import Infos, make_identity, turned

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


__all__ = ["VENDORS", "Vendor", "vendor_of"]

_BLOCK: Final = 64  # columns that LAPACK works on at once, at most
_TRIANGLES: Final = 65 * _BLOCK  # what ormqr needs beside them

# The largest order of matrices whose stack is one call of cuSOLVER or cuBLAS. Their batched functions take larger ones,
# but are made for matrices that are done faster than called: of larger ones, a single one fills the GPU.
_BATCHED: Final = 512
_BATCHED_JACOBI: Final = 32  # likewise: gesvdjBatched takes no larger ones, and syevjBatched is made for such
_MOST_ELEMENTS: Final = 2**31 - 1  # of a stack, which the Jacobi functions count in 32 bits
_LOOPED: Final = 128  # likewise of loops in C on the CPU: larger matrices take longer than their calls
_TOGETHER: Final = 1 << 22  # elements of one such loop: Ctrl-C is heard between two, and each is waited for
_SPACE: Final = 1 << 20  # elements of their workspaces, which the next loop has again


#: LAPACK's range, "A", "I" or "V", its bounds vl and vu, and its places il and iu.
Chosen: TypeAlias = tuple[str, float, float, int, int]


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

    def call(self, name: str, A: DevicePtr, *arguments: Any, info: DevicePtr | None = None) -> int:
        """Call a function whose info comes back, or goes to a place on the device: then return 0 at once."""
        try:
            return self.run(name, A, *arguments, info=info)
        except OffloadError as error:
            note_names(error, self.names)
            raise

    def run(self, name: str, A: DevicePtr, *arguments: Any, info: DevicePtr | None) -> int:
        raise NotImplementedError

    def spare_info(self, *operands: DevicePtr) -> DevicePtr | None:
        """Return a place for the info of a captured call, which is always 0; None: the call is not captured."""
        if not any(_core.query(operand).captured for operand in operands):
            return None
        return _memory_of_graph(operands, 1, np.int32)

    # Stacks of matrices, whose first dimension counts them. They return None if the library has no function for such a
    # stack, and then nothing is done; otherwise info of each matrix: zeros, if it goes to a place on the device.

    def potrf_batched(
        self, t: str, uplo: str, n: int, A: DevicePtr, lda: int, place: DevicePtr | None = None
    ) -> Infos | None:
        return None

    def getrf_batched(
        self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr, place: DevicePtr | None = None
    ) -> Infos | None:
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

    def potri_batched(
        self, t: str, uplo: str, n: int, A: DevicePtr, lda: int, place: DevicePtr | None = None
    ) -> Infos | None:
        return None

    def orgqr_batched(self, t: str, m: int, n: int, k: int, A: DevicePtr, lda: int, tau: DevicePtr) -> Infos | None:
        return None

    def ormqr_batched(
        self, t: str, side: str, trans: str, m: int, n: int, k: int, A: DevicePtr, *rest: Any
    ) -> Infos | None:
        """rest: lda, tau, C, ldc."""
        return None

    def sytrf_batched(
        self, t: str, hermitian: bool, uplo: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr
    ) -> Infos | None:
        return None

    def sytrs_batched(
        self, t: str, hermitian: bool, uplo: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any
    ) -> Infos | None:
        """rest: ipiv, B, ldb."""
        return None

    def geev_batched(
        self, t: str, n: int, A: DevicePtr, lda: int, w: DevicePtr, VL: DevicePtr | None, VR: DevicePtr | None
    ) -> Infos | None:
        """w: for a real A, n real parts and n imaginary ones of each matrix, as in geev."""
        return None

    def solves_stacks(self, n: int) -> bool:
        """Return whether stacks of systems of that order are solved as a whole, by functions of stacks here and of
        blas."""
        return False

    def diagonalizes_stacks(self, m: int, n: int) -> bool:
        """Return whether syevd_batched and gesvd_batched take matrices of that shape."""
        return False

    def loops_over(self, m: int, n: int) -> bool:
        """Return whether ormqr_batched takes a C of that shape, and geev_batched such an A."""
        return False

    # One matrix.

    def potrf(self, t: str, uplo: str, n: int, A: DevicePtr, lda: int, info: DevicePtr | None = None) -> int:
        return self.call(f"{t}potrf", A, self.value(self.uplo, uplo), n, A, lda, info=info)

    def getrf(
        self, t: str, m: int, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr, info: DevicePtr | None = None
    ) -> int:
        return self.call(f"{t}getrf", A, m, n, A, lda, ipiv, info=info)

    def getrs(self, t: str, trans: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        """rest: ipiv, B, ldb."""
        ipiv, B, _ = rest
        info = self.spare_info(A, ipiv, B)
        return self.call(f"{t}getrs", A, self.value(self.op, trans), n, nrhs, A, lda, *rest, info=info)

    def potri(self, t: str, uplo: str, n: int, A: DevicePtr, lda: int, info: DevicePtr | None = None) -> int:
        return self.call(f"{t}potri", A, self.value(self.uplo, uplo), n, A, lda, info=info)

    def getri(self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> int:
        raise NotImplementedError

    def geqrf(self, t: str, m: int, n: int, A: DevicePtr, lda: int, tau: DevicePtr) -> int:
        return self.call(f"{t}geqrf", A, m, n, A, lda, tau, info=self.spare_info(A, tau))

    def ormqr(self, t: str, side: str, trans: str, m: int, n: int, k: int, A: DevicePtr, *rest: Any) -> int:
        """rest: lda, tau, C, ldc."""
        _, tau, C, _ = rest
        chosen = self.value(self.side, side), self.value(self.op, trans)
        return self.call(_q(t, "mqr"), A, *chosen, m, n, k, A, *rest, info=self.spare_info(A, tau, C))

    def orgqr(self, t: str, m: int, n: int, k: int, A: DevicePtr, lda: int, tau: DevicePtr) -> int:
        return self.call(_q(t, "gqr"), A, m, n, k, A, lda, tau, info=self.spare_info(A, tau))

    def syevd(self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, w: DevicePtr) -> int:
        raise NotImplementedError

    def gesvd(self, t: str, jobs: tuple[str, str], m: int, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        """rest: s, U, ldu, VT, ldvt."""
        raise NotImplementedError

    def sytrf(self, t: str, hermitian: bool, uplo: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> int:
        return self.call(f"{t}sytrf", A, self.value(self.uplo, uplo), n, A, lda, ipiv)

    def sytrs(self, t: str, hermitian: bool, uplo: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        """rest: ipiv, B, ldb."""
        raise NotImplementedError

    def sygvd(self, t: str, itype: int, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        """rest: B, ldb, w."""
        raise NotImplementedError

    def syevdx(
        self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, chosen: Chosen, w: DevicePtr
    ) -> tuple[int, int]:
        """Return also how many eigenvalues there are. The vectors are in A."""
        raise NotImplementedError

    def need_indefinite(self, name: str, hermitian: bool, solves: bool) -> None:
        """Raise LibraryError if the library lacks sytrf, or sytrs if `solves`, of a complex Hermitian matrix or not."""

    def need_geev(self, name: str, left: bool) -> None:
        """Raise LibraryError if the library has no geev, or has none with left vectors."""

    def geev(
        self, t: str, n: int, A: DevicePtr, lda: int, w: DevicePtr, VL: DevicePtr | None, VR: DevicePtr | None
    ) -> int:
        """w: for a real A, n real parts, and then n imaginary ones; vectors of pairs likewise, as LAPACK has them."""
        raise NotImplementedError


def _memory_of_graph(beside: Sequence[DevicePtr], size: int, dtype: Any) -> DevicePtr:
    """Take memory in the region of some pointers, whose calls are captured: the graph keeps it."""
    kind = np.dtype(dtype)
    pointer: DevicePtr = _core.scratch(tuple(beside), code_of(kind), (size,), (kind.itemsize,), True)
    return pointer


def _q(t: str, name: str) -> str:
    """Return a function's name: it works on Q, which is orthogonal for real dtypes and unitary for complex ones."""
    return f"{t}{'or' if t in 'sd' else 'un'}{name}"


def _wait_for_others(A: DevicePtr, arguments: Sequence[Any]) -> None:
    """Wait for the device if other packages have the address of an argument.

    Their work may be on a stream that a call does not wait for.
    """
    if any(isinstance(argument, DevicePtr) and _core.query(argument).escaped for argument in arguments):
        _core.device_synchronize(A._device)


class _LAPACKE(Vendor):
    """LAPACKE: its functions return info, and take workspaces as arrays."""

    module = "lapacke"
    backend = None
    op: ClassVar = {"N": "NO_TRANS", "T": "TRANS", "C": "CONJ_TRANS"}
    uplo: ClassVar = {"U": "UPPER", "L": "LOWER"}
    side: ClassVar = {"L": "LEFT", "R": "RIGHT"}
    jobz: ClassVar = {"N": "JOB_N", "V": "JOB_V", "A": "JOB_A", "S": "JOB_S"}
    names: ClassVar = {"a": "A", "b": "B", "c": "C", "u": "U", "vt": "VT"}

    def run(self, name: str, A: DevicePtr, *arguments: Any, info: DevicePtr | None) -> int:
        function = getattr(self.functions, name)
        if info is not None:
            function(self.functions.COL_MAJOR, *arguments, result=info)
            return 0
        returned: int = function(self.functions.COL_MAJOR, *arguments)
        return returned

    def with_work(
        self,
        name: str,
        A: DevicePtr,
        arguments: Sequence[Any],
        *work: tuple[int, Any],
        sized: int = 3,
        info: DevicePtr | None = None,
    ) -> int:
        """Call a function with workspaces after its arguments; sized: how many of them are followed by their size.

        info: of a captured call; the graph keeps the workspaces.
        """
        if info is not None:
            spaces = [_memory_of_graph((info,), size, dtype) for size, dtype in work]
            return self.call(name, A, *arguments, *_with_sizes(spaces, work, sized), info=info)
        scratches = [Scratch((size,), dtype) for size, dtype in work]
        with offload_args(*scratches, device=A.device) as pointers:
            return self.call(name, A, *arguments, *_with_sizes(pointers, work, sized))

    # -- stacks: loops in C ----------------------------------------------------------------------------------

    def solves_stacks(self, n: int) -> bool:
        return n <= _LOOPED

    def diagonalizes_stacks(self, m: int, n: int) -> bool:
        return max(m, n) <= _LOOPED

    def loops_over(self, m: int, n: int) -> bool:
        return max(m, n) <= _LOOPED

    def looped(
        self, name: str, A: DevicePtr, *arguments: Any, work: Sequence[tuple[int, Any]] = (), sized: int = 3
    ) -> Infos:
        """Call a function for each matrix of the stacks among its arguments; work, sized: as with_work has them."""
        most = max(1, min(A._shape[0], _TOGETHER // max(1, *A._shape[1:]) ** 2))
        if not work:
            return self._loop(name, A._shape[0], most, arguments, ())
        most = min(most, max(1, _SPACE // sum(size for size, _ in work)))
        with offload_args(*(Scratch((most, size), dtype) for size, dtype in work), device=A.device) as spaces:
            return self._loop(name, A._shape[0], most, arguments, _with_sizes(spaces, work, sized))

    def _loop(self, name: str, count: int, most: int, arguments: Sequence[Any], workspaces: Sequence[Any]) -> Infos:
        """Call a function `count` times, at most `most` of them together."""
        infos, function = np.empty(count, np.int32), getattr(self.functions, name)
        steps = tuple(step_of(part) for part in (*arguments, *workspaces) if isinstance(part, DevicePtr))
        for first in range(0, count, most):
            times = min(most, count - first)
            parts = [_part(argument, first, times) for argument in arguments]
            spaces = [_part(argument, 0, times) for argument in workspaces]
            try:
                done = _core.repeat(function, times, steps, "", self.functions.COL_MAJOR, *parts, *spaces)
            except OffloadError as error:
                note_names(error, self.names)
                raise
            infos[first : first + times] = done
        return infos

    def potrf_batched(
        self, t: str, uplo: str, n: int, A: DevicePtr, lda: int, place: DevicePtr | None = None
    ) -> Infos | None:
        if n > _LOOPED:
            return None
        return _placed(self.looped(f"{t}potrf", A, self.value(self.uplo, uplo), n, A, lda), place)

    def getrf_batched(
        self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr, place: DevicePtr | None = None
    ) -> Infos | None:
        if n > _LOOPED:
            return None
        return _placed(self.looped(f"{t}getrf", A, n, n, A, lda, ipiv), place)

    def getrs_batched(self, t: str, trans: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any) -> Infos | None:
        if n > _LOOPED:
            return None
        return self.looped(f"{t}getrs", A, self.value(self.op, trans), n, nrhs, A, lda, *rest)

    def getri_batched(self, t: str, n: int, A: DevicePtr, lda: int, *rest: Any) -> Infos | None:
        if n > _LOOPED:
            return None
        ipiv, C, ldc = rest
        C.copy_from(A)  # which is in the same order
        space = n if n <= _BLOCK else n * _BLOCK  # it works on blocks of larger ones only
        return self.looped(f"{t}getri", C, n, C, ldc, ipiv, work=[(space, A.dtype)])

    def geqrf_batched(self, t: str, m: int, n: int, A: DevicePtr, lda: int, tau: DevicePtr) -> Infos | None:
        if max(m, n) > _LOOPED:
            return None
        return self.looped(f"{t}geqrf", A, m, n, A, lda, tau, work=[(n * _BLOCK, A.dtype)])

    def syevd_batched(self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, w: DevicePtr) -> Infos | None:
        arguments = self.value(self.jobz, jobz), self.value(self.uplo, uplo), n, A, lda, w
        name, work = self._syevd(t, jobz, n, A, w)
        return self.looped(name, A, *arguments, work=work)

    def gesvd_batched(
        self, t: str, A: DevicePtr, lda: int, s: DevicePtr, U: DevicePtr | None, VT: DevicePtr | None
    ) -> Infos | None:
        _, m, n = A._shape
        left = "N" if U is None else "A" if U._shape[2] == m else "S"
        right = "N" if VT is None else "A" if VT._shape[1] == n else "S"
        sides: list[Any] = []
        for V in (U, VT):
            sides += (A, max(m, n)) if V is None else (V, max(V._strides[2] // V.dtype.itemsize, V._shape[1]))
        arguments = *(self.value(self.jobz, job) for job in (left, right)), m, n, A, lda, s, *sides
        return self.looped(f"{t}gesvd", A, *arguments, work=self._of_gesvd(t, m, n, A, s), sized=1)

    def potri_batched(
        self, t: str, uplo: str, n: int, A: DevicePtr, lda: int, place: DevicePtr | None = None
    ) -> Infos | None:
        if n > _LOOPED:
            return None
        return _placed(self.looped(f"{t}potri", A, self.value(self.uplo, uplo), n, A, lda), place)

    def orgqr_batched(self, t: str, m: int, n: int, k: int, A: DevicePtr, lda: int, tau: DevicePtr) -> Infos | None:
        if m > _LOOPED:
            return None
        return self.looped(_q(t, "gqr"), A, m, n, k, A, lda, tau, work=[(n * _BLOCK, A.dtype)])

    def ormqr_batched(
        self, t: str, side: str, trans: str, m: int, n: int, k: int, A: DevicePtr, *rest: Any
    ) -> Infos | None:
        if max(m, n) > _LOOPED:
            return None
        arguments = self.value(self.side, side), self.value(self.op, trans), m, n, k, A, *rest
        return self.looped(_q(t, "mqr"), A, *arguments, work=[self._of_ormqr(side, m, n, A)])

    def sytrf_batched(
        self, t: str, hermitian: bool, uplo: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr
    ) -> Infos | None:
        if n > _LOOPED:
            return None
        arguments = self.value(self.uplo, uplo), n, A, lda, ipiv
        return self.looped(f"{t}{'he' if hermitian else 'sy'}trf", A, *arguments, work=[(n * _BLOCK, A.dtype)])

    def sytrs_batched(
        self, t: str, hermitian: bool, uplo: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any
    ) -> Infos | None:
        if n > _LOOPED:
            return None
        name = f"{t}{'he' if hermitian else 'sy'}trs"
        return self.looped(name, A, self.value(self.uplo, uplo), n, nrhs, A, lda, *rest)

    def geev_batched(
        self, t: str, n: int, A: DevicePtr, lda: int, w: DevicePtr, VL: DevicePtr | None, VR: DevicePtr | None
    ) -> Infos | None:
        if n > _LOOPED:
            return None
        values = (w[:, :n], w[:, n:]) if t in "sd" else (w,)
        arguments, work = self._geev(t, n, A, lda, values, (VL, VR))
        return self.looped(f"{t}geev", A, *arguments, work=work, sized=1)

    # -- one matrix ------------------------------------------------------------------------------------------

    def getri(self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> int:
        return self.with_work(f"{t}getri", A, (n, A, lda, ipiv), (n * _BLOCK, A.dtype))

    def geqrf(self, t: str, m: int, n: int, A: DevicePtr, lda: int, tau: DevicePtr) -> int:
        info = self.spare_info(A, tau)
        return self.with_work(f"{t}geqrf", A, (m, n, A, lda, tau), (n * _BLOCK, A.dtype), info=info)

    def ormqr(self, t: str, side: str, trans: str, m: int, n: int, k: int, A: DevicePtr, *rest: Any) -> int:
        _, tau, C, _ = rest
        arguments = self.value(self.side, side), self.value(self.op, trans), m, n, k, A, *rest
        work = self._of_ormqr(side, m, n, A)
        return self.with_work(_q(t, "mqr"), A, arguments, work, info=self.spare_info(A, tau, C))

    def _of_ormqr(self, side: str, m: int, n: int, A: DevicePtr) -> tuple[int, Any]:
        """Return the workspace of ormqr."""
        return (n if side == "L" else m) * _BLOCK + _TRIANGLES, A.dtype

    def orgqr(self, t: str, m: int, n: int, k: int, A: DevicePtr, lda: int, tau: DevicePtr) -> int:
        info = self.spare_info(A, tau)
        return self.with_work(_q(t, "gqr"), A, (m, n, k, A, lda, tau), (n * _BLOCK, A.dtype), info=info)

    def syevd(self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, w: DevicePtr) -> int:
        arguments = self.value(self.jobz, jobz), self.value(self.uplo, uplo), n, A, lda, w
        name, work = self._syevd(t, jobz, n, A, w)
        return self.with_work(name, A, arguments, *work)

    def _syevd(self, t: str, jobz: str, n: int, A: DevicePtr, w: DevicePtr) -> tuple[str, list[tuple[int, Any]]]:
        """Return the name of syevd for a dtype, and its workspaces."""
        blocks, vectors = n * (_BLOCK + 2), jobz == "V"
        integers = (3 + 5 * n if vectors else 1, np.int32)
        if t in "sd":
            return f"{t}syevd", [(1 + blocks + (6 * n + 2 * n * n if vectors else 2 * n), A.dtype), integers]
        reals = (1 + 5 * n + 2 * n * n if vectors else n, w.dtype)
        return f"{t}heevd", [(1 + blocks + (n * n if vectors else 0), A.dtype), reals, integers]

    def gesvd(self, t: str, jobs: tuple[str, str], m: int, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        arguments = *(self.value(self.jobz, job) for job in jobs), m, n, A, lda, *rest
        return self.with_work(f"{t}gesvd", A, arguments, *self._of_gesvd(t, m, n, A, rest[0]), sized=1)

    def _of_gesvd(self, t: str, m: int, n: int, A: DevicePtr, s: DevicePtr) -> list[tuple[int, Any]]:
        """Return the workspaces of gesvd."""
        less = min(m, n)
        work = [(less * less + 8 * less + (m + n) * (_BLOCK + 1), A.dtype)]
        return [*work, (5 * less, s.dtype)] if t in "cz" else work

    def sytrf(self, t: str, hermitian: bool, uplo: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> int:
        name, arguments = f"{t}{'he' if hermitian else 'sy'}trf", (self.value(self.uplo, uplo), n, A, lda, ipiv)
        return self.with_work(name, A, arguments, (n * _BLOCK, A.dtype))

    def sytrs(self, t: str, hermitian: bool, uplo: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        name = f"{t}{'he' if hermitian else 'sy'}trs"
        return self.call(name, A, self.value(self.uplo, uplo), n, nrhs, A, lda, *rest)

    def sygvd(self, t: str, itype: int, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        chosen = getattr(self.functions, f"ITYPE_{itype}"), self.value(self.jobz, jobz), self.value(self.uplo, uplo)
        arguments, blocks, vectors = (*chosen, n, A, lda, *rest), n * (_BLOCK + 2), jobz == "V"
        integers = (3 + 5 * n if vectors else 1, np.int32)
        if t in "sd":
            work = (1 + blocks + (6 * n + 2 * n * n if vectors else 2 * n), A.dtype)
            return self.with_work(f"{t}sygvd", A, arguments, work, integers)
        reals = (1 + 5 * n + 2 * n * n if vectors else n, rest[-1].dtype)
        return self.with_work(
            f"{t}hegvd", A, arguments, (1 + blocks + (n * n if vectors else 0), A.dtype), reals, integers
        )

    def syevdx(
        self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, chosen: Chosen, w: DevicePtr
    ) -> tuple[int, int]:
        which, *bounds = chosen
        chars = self.value(self.jobz, jobz), getattr(self.functions, f"RANGE_{which}"), self.value(self.uplo, uplo)
        work, integers = ((_BLOCK + 26) * n, A.dtype), (10 * n, np.int32)

        def call(*outputs: DevicePtr | int) -> int:
            arguments = *chars, n, A, lda, *bounds, 0.0, *outputs
            if t in "sd":
                return self.with_work(f"{t}syevr", A, arguments, work, integers)
            return self.with_work(f"{t}heevr", A, arguments, work, (24 * n, w.dtype), integers)

        return _subset(call, jobz, n, A, chosen, w, 2 * n)

    def geev(
        self, t: str, n: int, A: DevicePtr, lda: int, w: DevicePtr, VL: DevicePtr | None, VR: DevicePtr | None
    ) -> int:
        values = (w[:n], w[n:]) if t in "sd" else (w,)
        arguments, work = self._geev(t, n, A, lda, values, (VL, VR))
        return self.with_work(f"{t}geev", A, arguments, *work, sized=1)

    def _geev(
        self, t: str, n: int, A: DevicePtr, lda: int, values: Sequence[DevicePtr], vectors: Sequence[DevicePtr | None]
    ) -> tuple[list[Any], list[tuple[int, Any]]]:
        """Return the arguments of geev, and its workspaces."""
        arguments: list[Any] = [self.value(self.jobz, "N" if V is None else "V") for V in vectors]
        arguments += (n, A, lda, *values)
        for V in vectors:
            arguments += (A, n) if V is None else (V, V._strides[-1] // V.dtype.itemsize)
        work = [((_BLOCK + 4) * n, A.dtype)]
        return arguments, work if t in "sd" else [*work, (2 * n, dtype_of(REAL_OF[t]))]


def _placed(infos: Infos, place: DevicePtr | None) -> Infos:
    """Return infos; or put them in a place on the device, and return zeros."""
    if place is None:
        return infos
    place.assign(infos)
    return np.zeros_like(infos)


def _with_sizes(pointers: Sequence[DevicePtr], work: Sequence[tuple[int, Any]], sized: int) -> list[Any]:
    """Return workspaces as arguments: so many of them are followed by their size."""
    pairs = zip(pointers, work, strict=True)
    return [part for at, (pointer, (size, _)) in enumerate(pairs) for part in (pointer, size)[: 1 + (at < sized)]]


def _subset(
    call: Callable[..., int], jobz: str, n: int, A: DevicePtr, chosen: Chosen, w: DevicePtr, integers: int
) -> tuple[int, int]:
    """Call a function that finds some eigenvalues, and move their vectors to A. Return its info, and their number.

    call: takes the places of their number, values and vectors, the leading dimension of these, and so many integers.
    """
    which, _, _, il, iu = chosen
    most = iu - il + 1 if which == "I" else n
    vectors = Scratch((n, most), A.dtype, order="F") if jobz == "V" else Scratch((1, 1), A.dtype)
    scratches = Scratch((1,), np.int32), vectors, Scratch((integers,), np.int32)
    with offload_args(*scratches, device=A.device) as (count, z, more):
        info = call(count, w, z, n, more)
        known = 0 if info else int(count.to_host()[0])
        if known and jobz == "V":
            A[:, :known].copy_from(z[:, :known])
    return info, known


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

    def run(self, name: str, A: DevicePtr, *arguments: Any, info: DevicePtr | None) -> int:
        _wait_for_others(A, arguments)
        if info is not None:
            getattr(self.functions, name)(*arguments, info)
            return 0
        returned = np.empty(1, np.int32)
        with offload_args(Out(returned), device=A.device) as (there,):
            getattr(self.functions, name)(*arguments, there)
        return int(returned[0])

    # -- stacks ----------------------------------------------------------------------------------------------

    def batched(self, library: Any, name: str, A: DevicePtr, *arguments: Any, place: DevicePtr | None = None) -> Infos:
        """Call a batched function, where _INFO among the arguments stands for the array of info, or its place."""
        _wait_for_others(A, arguments)
        infos = np.zeros(A._shape[0], np.int32)
        function = getattr(library, name)
        try:
            if place is not None:
                arguments = tuple(place if argument is _INFO else argument for argument in arguments)
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

    def potrf_batched(
        self, t: str, uplo: str, n: int, A: DevicePtr, lda: int, place: DevicePtr | None = None
    ) -> Infos | None:
        if n > _BATCHED:
            return None
        arguments = self.value(self.uplo, uplo), n, A, lda, _INFO, A._shape[0]
        return self.batched(self.functions, f"{t}potrf_batched", A, *arguments, place=place)

    def getrf_batched(
        self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr, place: DevicePtr | None = None
    ) -> Infos | None:
        if n > _BATCHED:
            return None
        return self.batched(self.cublas, f"{t}getrf_batched", A, n, A, lda, ipiv, _INFO, A._shape[0], place=place)

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
        scratch = Scratch((count, m, m), A.dtype), Scratch((count, n, n), A.dtype), Scratch((n, n), A.dtype)
        with (
            offload_args(*scratch, device=A.device) as (u, v, identity),  # u and v have their vectors as rows
            self.functions.create_gesvdj_info() as settings,
        ):
            name, job = f"{t}gesvdj_batched", self.value(self.jobz, "V")
            arguments = job, m, n, A, lda, s, u, m, v, n, _INFO, settings, count
            infos = self.batched(self.functions, name, A, *arguments)
            if U is not None:
                U.copy_from(turned(u[:, : U._shape[2]]))
            if VT is not None:  # V^H, exactly: the function makes V, and conjugates nothing
                make_identity(identity)
                gemm(1.0, turned(v[:, : VT._shape[1]]), identity, 0.0, VT, trans_a="C")
        return infos

    # -- one matrix ------------------------------------------------------------------------------------------

    def getri(self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> int:
        with offload_args(Scratch((n, n), A.dtype), device=A.device) as (inverse,):  # symmetric, so in either order
            make_identity(inverse)
            info = self.getrs(t, "N", n, n, A, lda, ipiv, inverse, n)
            A.copy_from(inverse if A._strides[1] == A.dtype.itemsize else inverse.T)
        return info

    def syevd(self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, w: DevicePtr) -> int:
        chosen = self.value(self.jobz, jobz), self.value(self.uplo, uplo)
        return self.call(f"{t}{'sy' if t in 'sd' else 'he'}evd", A, *chosen, n, A, lda, w)

    def gesvd(self, t: str, jobs: tuple[str, str], m: int, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        return self.call(f"{t}gesvd", A, *(self.value(self.jobs, job) for job in jobs), m, n, A, lda, *rest)

    def need_indefinite(self, name: str, hermitian: bool, solves: bool) -> None:
        if hermitian:  # raises LibraryVersionError before 12.4
            _core.library_address("cusolver", "cusolverDnXhetrs" if solves else "cusolverDnXhetrf")

    def sytrf(self, t: str, hermitian: bool, uplo: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> int:
        if not hermitian:
            return super().sytrf(t, hermitian, uplo, n, A, lda, ipiv)
        wide = Scratch((n,), np.int64)
        with offload_args(wide, device=A.device) as (pivots,), self.functions.create_params() as params:
            info = self.call("xhetrf", A, params, self.value(self.uplo, uplo), n, A.dtype, A, lda, pivots, A.dtype)
            ipiv.assign(pivots.to_host().astype(np.int32))
        return info

    def sytrs(self, t: str, hermitian: bool, uplo: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        ipiv, B, ldb = rest
        chosen = self.value(self.uplo, uplo)
        with offload_args(Scratch((n,), np.int64), device=A.device) as (pivots,):
            pivots.assign(ipiv.to_host().astype(np.int64))
            pivots.to_host()  # cuSOLVER 12.0 reads them at once, and not in the order of its stream
            arguments = chosen, n, nrhs, A.dtype, A, lda, pivots, A.dtype, B, ldb
            if not hermitian:
                return self.call("xsytrs", A, *arguments)
            with self.functions.create_params() as params:
                return self.call("xhetrs", A, params, *arguments)

    def sygvd(self, t: str, itype: int, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        which = getattr(self.functions, f"EIG_TYPE_{itype}")
        chosen = which, self.value(self.jobz, jobz), self.value(self.uplo, uplo)
        return self.call(f"{t}{'sy' if t in 'sd' else 'he'}gvd", A, *chosen, n, A, lda, *rest)

    def syevdx(
        self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, chosen: Chosen, w: DevicePtr
    ) -> tuple[int, int]:
        which, vl, vu, il, iu = chosen
        named = getattr(self.functions, {"A": "EIG_RANGE_ALL", "I": "EIG_RANGE_I", "V": "EIG_RANGE_V"}[which])
        info = np.empty(1, np.int32)
        with offload_args(Out(info), device=A.device) as (dinfo,), self.functions.create_params() as params:
            jobs = self.value(self.jobz, jobz), named, self.value(self.uplo, uplo)
            bounds = vl, vu, il, iu
            count = self.functions.xsyevdx(params, *jobs, n, A.dtype, A, lda, *bounds, w.dtype, w, A.dtype, dinfo)
        return int(info[0]), int(count)

    def need_geev(self, name: str, left: bool) -> None:
        if left:
            raise LibraryError(
                f"{name}: VL: cuSOLVER finds no left eigenvectors: leave VL out, and find the right ones of A^H: they "
                "are the left ones of A"
            )

    def geev(
        self, t: str, n: int, A: DevicePtr, lda: int, w: DevicePtr, VL: DevicePtr | None, VR: DevicePtr | None
    ) -> int:
        jobs = self.value(self.jobz, "N"), self.value(self.jobz, "N" if VR is None else "V")
        right = (None, n) if VR is None else (VR, VR._strides[1] // VR.dtype.itemsize)
        kind = A.dtype
        with self.functions.create_params() as params:
            arguments = params, *jobs, n, kind, A, lda, kind, w, kind, None, n, kind, *right, kind
            return self.call("xgeev", A, *arguments)


_NO_INFO: Final = ("getrs", "geqrf", "ormqr", "unmqr", "orgqr", "ungqr")


class _RocSOLVER(Vendor):
    """rocSOLVER: its functions write info to the device, or give none; rocBLAS's handle has the workspaces."""

    module = "rocsolver"
    backend = "hip"
    op: ClassVar = {"N": "operation_none", "T": "operation_transpose", "C": "operation_conjugate_transpose"}
    uplo: ClassVar = {"U": "fill_upper", "L": "fill_lower"}
    side: ClassVar = {"L": "side_left", "R": "side_right"}
    jobz: ClassVar = {"N": "evect_none", "V": "evect_original"}
    jobs: ClassVar = {"N": "svect_none", "A": "svect_all", "S": "svect_singular"}
    names: ClassVar = {"D": "w", "W": "w", "S": "s", "V": "VT", "ipiv": "tau"}

    def run(self, name: str, A: DevicePtr, *arguments: Any, info: DevicePtr | None) -> int:
        if info is None or name[1:] in _NO_INFO:
            infos = self.several(name, A, *arguments, count=1)
            return int(infos[0])
        _wait_for_others(A, arguments)
        getattr(self.functions, name)(*arguments, info)
        return 0

    def several(self, name: str, A: DevicePtr, *arguments: Any, count: int, place: DevicePtr | None = None) -> Infos:
        """Call a function of one matrix or of `count`, whose info is before the count, if it gives one."""
        _wait_for_others(A, arguments)
        infos, function = np.zeros(count, np.int32), getattr(self.functions, name)
        last = (count,) if name.endswith("batched") else ()
        if name[1:].partition("_")[0] in _NO_INFO:
            function(*arguments, *last)
            return infos
        if place is not None:
            function(*arguments, place, *last)
            return infos
        with offload_args(Out(infos), device=A.device) as (dinfos,):
            function(*arguments, dinfos, *last)
        return infos

    # -- stacks ----------------------------------------------------------------------------------------------

    def solves_stacks(self, n: int) -> bool:
        return n <= _BATCHED

    def diagonalizes_stacks(self, m: int, n: int) -> bool:
        return max(m, n) <= _BATCHED

    def batched(self, name: str, A: DevicePtr, *arguments: Any, place: DevicePtr | None = None) -> Infos:
        try:
            return self.several(f"{name}_strided_batched", A, *arguments, count=A._shape[0], place=place)
        except OffloadError as error:
            note_names(error, self.names)
            raise

    def potrf_batched(
        self, t: str, uplo: str, n: int, A: DevicePtr, lda: int, place: DevicePtr | None = None
    ) -> Infos | None:
        if n > _BATCHED:
            return None
        return self.batched(f"{t}potrf", A, self.value(self.uplo, uplo), n, A, lda, step_of(A), place=place)

    def getrf_batched(
        self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr, place: DevicePtr | None = None
    ) -> Infos | None:
        if n > _BATCHED:
            return None
        return self.batched(f"{t}getrf", A, n, n, A, lda, step_of(A), ipiv, step_of(ipiv), place=place)

    def getrs_batched(self, t: str, trans: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any) -> Infos | None:
        if n > _BATCHED:
            return None
        ipiv, B, ldb = rest
        chosen = self.value(self.op, trans)
        return self.batched(
            f"{t}getrs", A, chosen, n, nrhs, A, lda, step_of(A), ipiv, step_of(ipiv), B, ldb, step_of(B)
        )

    def getri_batched(self, t: str, n: int, A: DevicePtr, lda: int, *rest: Any) -> Infos | None:
        if n > _BATCHED:
            return None
        ipiv, C, ldc = rest
        C.copy_from(A)  # which is in the same order
        return self.batched(f"{t}getri", C, n, C, ldc, step_of(C), ipiv, step_of(ipiv))

    def geqrf_batched(self, t: str, m: int, n: int, A: DevicePtr, lda: int, tau: DevicePtr) -> Infos | None:
        if max(m, n) > _BATCHED:
            return None
        return self.batched(f"{t}geqrf", A, m, n, A, lda, step_of(A), tau, step_of(tau))

    def syevd_batched(self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, w: DevicePtr) -> Infos | None:
        chosen = self.value(self.jobz, jobz), self.value(self.uplo, uplo)
        name = f"{t}{'sy' if t in 'sd' else 'he'}evd"
        with offload_args(Scratch(w._shape, w.dtype), device=A.device) as (diagonals,):
            return self.batched(name, A, *chosen, n, A, lda, step_of(A), w, step_of(w), diagonals, n)

    def gesvd_batched(
        self, t: str, A: DevicePtr, lda: int, s: DevicePtr, U: DevicePtr | None, VT: DevicePtr | None
    ) -> Infos | None:
        (_, m, n), k = A._shape, min(A._shape[1:])
        left = "N" if U is None else "A" if U._shape[2] == m else "S"
        right = "N" if VT is None else "A" if VT._shape[1] == n else "S"
        sides: list[Any] = []
        for V in (U, VT):
            sides += (
                (A, max(m, n), 0) if V is None else (V, max(V._strides[2] // V.dtype.itemsize, V._shape[1]), step_of(V))
            )
        with offload_args(Scratch(s._shape, s.dtype), device=A.device) as (unfound,):
            arguments = *(self.value(self.jobs, job) for job in (left, right)), m, n, A, lda, step_of(A), s, step_of(s)
            return self.batched(f"{t}gesvd", A, *arguments, *sides, unfound, k, self.functions.outofplace)

    # -- one matrix ------------------------------------------------------------------------------------------

    def getri(self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> int:
        return self.call(f"{t}getri", A, n, A, lda, ipiv)

    def syevd(self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, w: DevicePtr) -> int:
        chosen = self.value(self.jobz, jobz), self.value(self.uplo, uplo)
        with offload_args(Scratch((n,), w.dtype), device=A.device) as (diagonal,):
            return self.call(f"{t}{'sy' if t in 'sd' else 'he'}evd", A, *chosen, n, A, lda, w, diagonal)

    def gesvd(self, t: str, jobs: tuple[str, str], m: int, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        s = rest[0]
        with offload_args(Scratch(s._shape, s.dtype), device=A.device) as (unfound,):
            arguments = *(self.value(self.jobs, job) for job in jobs), m, n, A, lda, *rest
            return self.call(f"{t}gesvd", A, *arguments, unfound, self.functions.outofplace)

    def need_indefinite(self, name: str, hermitian: bool, solves: bool) -> None:
        if solves:
            raise LibraryError(f"{name}: rocSOLVER has none; use getrf and getrs, or the host")
        if hermitian:
            raise LibraryError(f"{name}: rocSOLVER has none for complex dtypes; use getrf, or the host")

    def sygvd(self, t: str, itype: int, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        which = getattr(self.functions, ("eform_ax", "eform_abx", "eform_bax")[itype - 1])
        chosen, w = (which, self.value(self.jobz, jobz), self.value(self.uplo, uplo)), rest[-1]
        with offload_args(Scratch((n,), w.dtype), device=A.device) as (diagonal,):
            return self.call(f"{t}{'sy' if t in 'sd' else 'he'}gvd", A, *chosen, n, A, lda, *rest, diagonal)

    def syevdx(
        self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, chosen: Chosen, w: DevicePtr
    ) -> tuple[int, int]:
        which, *bounds = chosen
        named = getattr(self.functions, {"A": "erange_all", "I": "erange_index", "V": "erange_value"}[which])
        jobs = self.value(self.jobz, jobz), named, self.value(self.uplo, uplo)
        name = f"{t}{'sy' if t in 'sd' else 'he'}evx"

        def call(*outputs: DevicePtr | int) -> int:
            return self.call(name, A, *jobs, n, A, lda, *bounds, 0.0, *outputs)

        return _subset(call, jobz, n, A, chosen, w, n)

    def need_geev(self, name: str, left: bool) -> None:
        raise LibraryError(f"{name}: rocSOLVER finds no eigenvalues of general matrices; find them on the host")


def _part(argument: Any, first: int, times: int) -> Any:
    """Return some parts of a stack; return a number unchanged."""
    return argument[first : first + times] if isinstance(argument, DevicePtr) else argument


VENDORS: Final[tuple[type[Vendor], ...]] = (_CuSOLVER, _RocSOLVER, _LAPACKE)


def vendor_of(name: str, pointer: DevicePtr) -> Vendor:
    """Return the adapter of the library that runs on the pointer's device.

    Raises LibraryError if there is none.
    """
    adapter = adapter_of(VENDORS, pointer._device)
    if adapter is not None:
        return adapter
    info = by_number(pointer._device)._info
    raise LibraryError(
        f"{name}: there is no LAPACK on {info.name}: no library of this build has it; open the region with "
        'device="host"'
    )
