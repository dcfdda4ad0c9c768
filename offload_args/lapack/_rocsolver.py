"""LAPACK of HIP devices, by rocSOLVER."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from .._names import note_names
from ..arguments import Out, Scratch
from ..blas._cblas import step_of
from ..errors import LibraryError, OffloadError
from ..regions import offload_args
from ._vendor import MOST_BATCHED, Vendor, find_subset, wait_for_others

if TYPE_CHECKING:
    from ..pointers import DevicePtr
    from ._stacks import Infos
    from ._vendor import Chosen

__all__ = ["RocSOLVER"]

_NO_INFO: Final = ("getrs", "laswp", "geqrf", "ormqr", "unmqr", "orgqr", "ungqr")


class RocSOLVER(Vendor):
    """rocSOLVER, whose functions write info to the device, or have no info; rocBLAS's handle has the workspaces."""

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
        wait_for_others(A, arguments)
        getattr(self.functions, name)(*arguments, info)
        return 0

    def several(self, name: str, A: DevicePtr, *arguments: Any, count: int, place: DevicePtr | None = None) -> Infos:
        """Call a function of one matrix or of `count` matrices; an argument for info is before the count."""
        wait_for_others(A, arguments)
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
        return n <= MOST_BATCHED

    def diagonalizes_stacks(self, m: int, n: int) -> bool:
        return max(m, n) <= MOST_BATCHED

    def batched(self, name: str, A: DevicePtr, *arguments: Any, place: DevicePtr | None = None) -> Infos:
        try:
            return self.several(f"{name}_strided_batched", A, *arguments, count=A._shape[0], place=place)
        except OffloadError as error:
            note_names(error, self.names)
            raise

    def potrf_batched(
        self, t: str, uplo: str, n: int, A: DevicePtr, lda: int, place: DevicePtr | None = None
    ) -> Infos | None:
        if n > MOST_BATCHED:
            return None
        return self.batched(f"{t}potrf", A, self.value(self.uplo, uplo), n, A, lda, step_of(A), place=place)

    def getrf_batched(
        self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr, place: DevicePtr | None = None
    ) -> Infos | None:
        if n > MOST_BATCHED:
            return None
        return self.batched(f"{t}getrf", A, n, n, A, lda, step_of(A), ipiv, step_of(ipiv), place=place)

    def getrs_batched(self, t: str, trans: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any) -> Infos | None:
        if n > MOST_BATCHED:
            return None
        ipiv, B, ldb = rest
        chosen = self.value(self.op, trans)
        return self.batched(
            f"{t}getrs", A, chosen, n, nrhs, A, lda, step_of(A), ipiv, step_of(ipiv), B, ldb, step_of(B)
        )

    def getri_batched(self, t: str, n: int, A: DevicePtr, lda: int, *rest: Any) -> Infos | None:
        if n > MOST_BATCHED:
            return None
        ipiv, C, ldc = rest
        C.copy_from(A)  # A is in the same order
        return self.batched(f"{t}getri", C, n, C, ldc, step_of(C), ipiv, step_of(ipiv))

    def geqrf_batched(self, t: str, m: int, n: int, A: DevicePtr, lda: int, tau: DevicePtr) -> Infos | None:
        if max(m, n) > MOST_BATCHED:
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

        return find_subset(call, jobz, n, A, chosen, w, n)

    def need_geev(self, name: str, left: bool) -> None:
        raise LibraryError(f"{name}: rocSOLVER finds no eigenvalues of general matrices; find them on the host")
