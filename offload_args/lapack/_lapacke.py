"""LAPACK of the host, by LAPACKE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from .. import _core
from .._names import note_names
from .._operands import REAL_OF
from ..arguments import Scratch
from ..blas._cblas import step_of
from ..dtypes import dtype_of
from ..errors import OffloadError
from ..pointers import DevicePtr
from ..regions import offload_args
from ._vendor import Vendor, find_subset, memory_of_graph, name_on_q

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._stacks import Infos
    from ._vendor import Chosen

__all__ = ["LAPACKE"]

_BLOCK: Final = 64  # the most columns that LAPACK processes together
_TRIANGLES: Final = 65 * _BLOCK  # the elements that ormqr needs in addition to these columns

_LOOPED: Final = 128  # the largest order of matrices for a loop in C; with larger matrices, calls take little time
_TOGETHER: Final = 1 << 22  # the most elements of such a loop; Ctrl-C is handled after each loop
_SPACE: Final = 1 << 20  # the elements of the loops' workspaces; each loop uses the workspaces of the one before


class LAPACKE(Vendor):
    """LAPACKE, whose functions return info, and take workspaces as arrays."""

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
        """Call a function with workspaces after its arguments; a size follows each of the first `sized` workspaces.

        `info` is the place for the info of a captured call, whose graph keeps the workspaces.
        """
        if info is not None:
            spaces = [memory_of_graph((info,), size, dtype) for size, dtype in work]
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
        """Call a function for each matrix of the stacks among its arguments; `work` and `sized` are as in with_work."""
        most = max(1, min(A._shape[0], _TOGETHER // max(1, *A._shape[1:]) ** 2))
        if not work:
            return self._loop(name, A._shape[0], most, arguments, ())
        most = min(most, max(1, _SPACE // sum(size for size, _ in work)))
        with offload_args(*(Scratch((most, size), dtype) for size, dtype in work), device=A.device) as spaces:
            return self._loop(name, A._shape[0], most, arguments, _with_sizes(spaces, work, sized))

    def _loop(self, name: str, count: int, most: int, arguments: Sequence[Any], workspaces: Sequence[Any]) -> Infos:
        """Call a function `count` times, in loops of at most `most` calls."""
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
        C.copy_from(A)  # A is in the same order
        space = n if n <= _BLOCK else n * _BLOCK  # getri uses blocks only for larger matrices
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
        return self.looped(f"{t}gesvd", A, *arguments, work=self._of_gesvd(t, (left, right), m, n, A, s), sized=1)

    def potri_batched(
        self, t: str, uplo: str, n: int, A: DevicePtr, lda: int, place: DevicePtr | None = None
    ) -> Infos | None:
        if n > _LOOPED:
            return None
        return _placed(self.looped(f"{t}potri", A, self.value(self.uplo, uplo), n, A, lda), place)

    def orgqr_batched(self, t: str, m: int, n: int, k: int, A: DevicePtr, lda: int, tau: DevicePtr) -> Infos | None:
        if m > _LOOPED:
            return None
        return self.looped(name_on_q(t, "gqr"), A, m, n, k, A, lda, tau, work=[(n * _BLOCK, A.dtype)])

    def ormqr_batched(
        self, t: str, side: str, trans: str, m: int, n: int, k: int, A: DevicePtr, *rest: Any
    ) -> Infos | None:
        if max(m, n) > _LOOPED:
            return None
        arguments = self.value(self.side, side), self.value(self.op, trans), m, n, k, A, *rest
        return self.looped(name_on_q(t, "mqr"), A, *arguments, work=[self._of_ormqr(side, m, n, A)])

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
        return self.with_work(name_on_q(t, "mqr"), A, arguments, work, info=self.spare_info(A, tau, C))

    def _of_ormqr(self, side: str, m: int, n: int, A: DevicePtr) -> tuple[int, Any]:
        """Return the workspace of ormqr."""
        return (n if side == "L" else m) * _BLOCK + _TRIANGLES, A.dtype

    def orgqr(self, t: str, m: int, n: int, k: int, A: DevicePtr, lda: int, tau: DevicePtr) -> int:
        info = self.spare_info(A, tau)
        return self.with_work(name_on_q(t, "gqr"), A, (m, n, k, A, lda, tau), (n * _BLOCK, A.dtype), info=info)

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
        return self.with_work(f"{t}gesvd", A, arguments, *self._of_gesvd(t, jobs, m, n, A, rest[0]), sized=1)

    def _of_gesvd(
        self, t: str, jobs: tuple[str, str], m: int, n: int, A: DevicePtr, s: DevicePtr
    ) -> list[tuple[int, Any]]:
        """Return the workspaces of gesvd.

        LAPACK first makes a long matrix square, by QR, and then needs blocks of the short side only, unless it makes
        all vectors of the long side.
        """
        less, most = min(m, n), max(m, n)
        is_long = most > 2 * less and jobs[m < n] != "A"
        blocks = max(2 * less * (_BLOCK + 1), most) if is_long else (m + n) * (_BLOCK + 1)
        work = [(less * less + 8 * less + blocks, A.dtype)]
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

        return find_subset(call, jobz, n, A, chosen, w, 2 * n)

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
    """Return infos; with a place on the device, write them to it, and return zeros."""
    if place is None:
        return infos
    place.assign(infos)
    return np.zeros_like(infos)


def _with_sizes(pointers: Sequence[DevicePtr], work: Sequence[tuple[int, Any]], sized: int) -> list[Any]:
    """Return workspaces as arguments: the first `sized` of them are each followed by a size."""
    pairs = zip(pointers, work, strict=True)
    return [part for at, (pointer, (size, _)) in enumerate(pairs) for part in (pointer, size)[: 1 + (at < sized)]]


def _part(argument: Any, first: int, times: int) -> Any:
    """Return some parts of a stack; return a number unchanged."""
    return argument[first : first + times] if isinstance(argument, DevicePtr) else argument
