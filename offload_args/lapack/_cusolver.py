"""LAPACK of CUDA devices, by cuSOLVER, and by cuBLAS for stacks."""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from .. import _core
from .._names import note_names
from ..arguments import Out, Scratch
from ..blas.gemm import gemm
from ..errors import DeviceMemoryError, LibraryError, OffloadError
from ..regions import offload_args
from ._stacks import make_identity, turned
from ._vendor import MOST_BATCHED, Vendor, wait_for_others

if TYPE_CHECKING:
    from ..pointers import DevicePtr
    from ._stacks import Infos
    from ._vendor import Chosen

__all__ = ["CuSOLVER"]

# The largest order of matrices for the Jacobi functions of stacks: gesvdjBatched takes no larger matrices, and
# syevjBatched is made for small ones.
_MOST_JACOBI: Final = 32
_MOST_ELEMENTS: Final = 2**31 - 1  # the most elements of a stack; the Jacobi functions count them in 32 bits
_INFO: Final = object()  # an argument that stands for the array of info


class CuSOLVER(Vendor):
    """cuSOLVER, whose functions write info to the device; cuBLAS has LU and QR of stacks."""

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
        wait_for_others(A, arguments)
        if info is not None:
            getattr(self.functions, name)(*arguments, info)
            return 0
        returned = np.empty(1, np.int32)
        with offload_args(Out(returned), device=A.device) as (there,):
            getattr(self.functions, name)(*arguments, there)
        return int(returned[0])

    # -- stacks ----------------------------------------------------------------------------------------------

    def batched(self, library: Any, name: str, A: DevicePtr, *arguments: Any, place: DevicePtr | None = None) -> Infos:
        """Call a batched function.

        The argument _INFO stands for `place`, or, without a place, for a new array of info.
        """
        wait_for_others(A, arguments)
        infos = np.zeros(A._shape[0], np.int32)
        function = getattr(library, name)
        try:
            if place is not None:
                arguments = tuple(place if argument is _INFO else argument for argument in arguments)
            if not any(argument is _INFO for argument in arguments):  # the function has no argument for info
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
        return n <= MOST_BATCHED

    def diagonalizes_stacks(self, m: int, n: int) -> bool:
        return max(m, n) <= _MOST_JACOBI

    def potrf_batched(
        self, t: str, uplo: str, n: int, A: DevicePtr, lda: int, place: DevicePtr | None = None
    ) -> Infos | None:
        if n > MOST_BATCHED:
            return None
        arguments = self.value(self.uplo, uplo), n, A, lda, _INFO, A._shape[0]
        return self.batched(self.functions, f"{t}potrf_batched", A, *arguments, place=place)

    def getrf_batched(
        self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr, place: DevicePtr | None = None
    ) -> Infos | None:
        if n > MOST_BATCHED:
            return None
        return self.batched(self.cublas, f"{t}getrf_batched", A, n, A, lda, ipiv, _INFO, A._shape[0], place=place)

    def getrs_batched(self, t: str, trans: str, n: int, nrhs: int, A: DevicePtr, lda: int, *rest: Any) -> Infos | None:
        if n > MOST_BATCHED:
            return None
        chosen = getattr(self.cublas, f"OP_{trans}")
        return self.batched(self.cublas, f"{t}getrs_batched", A, chosen, n, nrhs, A, lda, *rest, A._shape[0])

    def getri_batched(self, t: str, n: int, A: DevicePtr, lda: int, *rest: Any) -> Infos | None:
        if n > MOST_BATCHED:
            return None
        return self.batched(self.cublas, f"{t}getri_batched", A, n, A, lda, *rest, _INFO, A._shape[0])

    def geqrf_batched(self, t: str, m: int, n: int, A: DevicePtr, lda: int, tau: DevicePtr) -> Infos | None:
        if max(m, n) > MOST_BATCHED:
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
            offload_args(*scratch, device=A.device) as (u, v, identity),  # the rows of u and v are the vectors
            self.functions.create_gesvdj_info() as settings,
        ):
            name, job = f"{t}gesvdj_batched", self.value(self.jobz, "V")
            arguments = job, m, n, A, lda, s, u, m, v, n, _INFO, settings, count
            infos = self.batched(self.functions, name, A, *arguments)
            if U is not None:
                U.copy_from(turned(u[:, : U._shape[2]]))
            if VT is not None:  # the function writes V; a product with the identity makes V^H of it without rounding
                make_identity(identity)
                gemm(1.0, turned(v[:, : VT._shape[1]]), identity, 0.0, VT, trans_a="C")
        return infos

    # -- one matrix ------------------------------------------------------------------------------------------

    def laswp(self, t: str, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        wait_for_others(A, rest)
        getattr(self.functions, f"{t}laswp")(n, A, lda, *rest)  # it has no info
        return 0

    def getri(self, t: str, n: int, A: DevicePtr, lda: int, ipiv: DevicePtr) -> int:
        with offload_args(Scratch((n, n), A.dtype), device=A.device) as (inverse,):  # the identity is symmetric
            make_identity(inverse)
            info = self.getrs(t, "N", n, n, A, lda, ipiv, inverse, n)
            A.copy_from(inverse if A._strides[1] == A.dtype.itemsize else inverse.T)
        return info

    def syevd(self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, w: DevicePtr) -> int:
        chosen = self.value(self.jobz, jobz), self.value(self.uplo, uplo)
        return self.call(f"{t}{'sy' if t in 'sd' else 'he'}evd", A, *chosen, n, A, lda, w)

    def gesvd(self, t: str, jobs: tuple[str, str], m: int, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        is_written = _core.query(A).writable  # gesvd refuses other matrices, and gesvdp would not
        if is_written and self.is_for_polar_factors(t, jobs, m, n) and self.gesvdp(t, jobs, m, n, A, lda, *rest):
            return 0
        return self.call(f"{t}gesvd", A, *(self.value(self.jobs, job) for job in jobs), m, n, A, lda, *rest)

    def is_for_polar_factors(self, t: str, jobs: tuple[str, str], m: int, n: int) -> bool:
        """Return whether gesvdp has these jobs, for m >= n, and is the faster function."""
        has_jobs = jobs == ("N", "N") or ("N" not in jobs and (jobs[0] == "S" or m == n))
        return has_jobs and _core.OA_LEAST_POLAR <= n <= (_core.OA_MOST_POLAR_SINGLE if t in "sc" else n)

    def gesvdp(
        self, t: str, jobs: tuple[str, str], m: int, n: int, A: DevicePtr, lda: int, s: DevicePtr, *rest: Any
    ) -> bool:
        """Find singular values by polar factors, and return whether the results belong to A, which is kept.

        If A is nearly singular, the function decomposes another matrix, and says how far it is from A.
        """
        U, ldu, VT, ldvt = rest
        wait_for_others(A, (s, U, VT))
        info, plain, conjugated = np.empty(1, np.int32), self.cublas.OP_N, self.cublas.OP_C
        geam, has_vectors = getattr(self.cublas, f"{t}geam"), jobs[0] != "N"
        scratch = [Scratch((n, m), A.dtype), Scratch((n, n), A.dtype), Scratch((1 if has_vectors else n, m), A.dtype)]
        try:
            with (
                offload_args(*scratch, Out(info), device=A.device) as (copy, V, unused, dinfo),
                self.functions.create_params() as params,
            ):
                geam(plain, plain, m, n, 1.0, A, lda, 0.0, A, lda, copy, m)
                modes = self.value(self.jobz, "V" if has_vectors else "N"), self.functions.ECONOMY
                vectors = (A.dtype, U, ldu) if has_vectors else (A.dtype, unused, m)
                matrices = A.dtype, copy, m, s.dtype, s, *vectors, A.dtype, V, n
                distance = self.functions.xgesvdp(params, *modes, m, n, *matrices, A.dtype, dinfo)
                if has_vectors and distance == 0:
                    geam(conjugated, conjugated, n, n, 1.0, V, n, 0.0, V, n, VT, ldvt)
        except DeviceMemoryError:
            return False
        return distance == 0 and not info[0]

    def need_indefinite(self, name: str, hermitian: bool, solves: bool) -> None:
        if hermitian:  # raises LibraryVersionError for versions before 12.4
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
            pivots.to_host()  # a wait, because cuSOLVER 12.0 reads the pivots immediately, not in stream order
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


def _follow(A: DevicePtr, lda: int, columns: int) -> bool:
    """Return whether the distance between the matrices of a stack is the one that the Jacobi functions need."""
    step = lda * columns
    return A._strides[0] == step * A.dtype.itemsize and step * A._shape[0] <= _MOST_ELEMENTS
