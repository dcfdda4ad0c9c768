"""The base class of the adapters by which portable LAPACK calls the vendors' libraries.

Matrices are in column-major order. Each function returns LAPACK's info; a negative info shows an error in this package.
An adapter takes workspaces if its library does not take them itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np

from .. import _core
from .._adapters import Adapter
from .._names import note_names
from ..arguments import Scratch
from ..dtypes import code_of
from ..errors import OffloadError
from ..pointers import DevicePtr
from ..regions import offload_args

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ._stacks import Infos

__all__ = ["MOST_BATCHED", "Chosen", "Vendor", "find_subset", "memory_of_graph", "name_on_q", "wait_for_others"]

# The largest order of matrices whose stack is passed to one call of cuSOLVER, cuBLAS or rocSOLVER. Batched functions
# also take larger matrices, but a single larger matrix already fills the GPU.
MOST_BATCHED: Final = 512

#: The choice of eigenvalues in LAPACK: range ("A", "I" or "V"), the bounds vl and vu, and the places il and iu.
Chosen: TypeAlias = tuple[str, float, float, int, int]


class Vendor(Adapter):
    """One library."""

    module: ClassVar[str]  # the library's name in offload_args
    op: ClassVar[dict[str, str]]  # the names of the constants for "N", "T" and "C"
    uplo: ClassVar[dict[str, str]]
    side: ClassVar[dict[str, str]]
    jobz: ClassVar[dict[str, str]]
    names: ClassVar[dict[str, str]]  # {the library's name of an operand: the caller's name}
    needs_tall: ClassVar[bool] = False  # whether gesvd takes no matrix of more columns than rows

    def __init__(self) -> None:
        self.functions: Any = importlib.import_module(f"..{self.module}", __package__)

    def value(self, names: dict[str, str], key: str) -> int:
        """Return the value of one of the library's constants."""
        return getattr(self.functions, names[key])  # type: ignore[no-any-return]

    def call(self, name: str, A: DevicePtr, *arguments: Any, info: DevicePtr | None = None) -> int:
        """Call a function and return its info, or write info to a place on the device and return 0 immediately."""
        try:
            return self.run(name, A, *arguments, info=info)
        except OffloadError as error:
            note_names(error, self.names)
            raise

    def run(self, name: str, A: DevicePtr, *arguments: Any, info: DevicePtr | None) -> int:
        raise NotImplementedError

    def spare_info(self, *operands: DevicePtr) -> DevicePtr | None:
        """Return, for a captured call, a place for its info, which will be 0; None if the call is not captured."""
        if not any(_core.query(operand).captured for operand in operands):
            return None
        return memory_of_graph(operands, 1, np.int32)

    # The next functions take stacks, whose first dimension counts the matrices. If the library has no function for such
    # a stack, they do nothing and return None. Otherwise they return info of each matrix, or zeros if info is written
    # to a place on the device.

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
        """rest: ipiv, C, ldc; C becomes the inverses."""
        return None

    def geqrf_batched(self, t: str, m: int, n: int, A: DevicePtr, lda: int, tau: DevicePtr) -> Infos | None:
        return None

    def syevd_batched(self, t: str, jobz: str, uplo: str, n: int, A: DevicePtr, lda: int, w: DevicePtr) -> Infos | None:
        return None

    def gesvd_batched(
        self, t: str, A: DevicePtr, lda: int, s: DevicePtr, U: DevicePtr | None, VT: DevicePtr | None
    ) -> Infos | None:
        """U and VT are stacks of as many vectors as are requested, in A's order."""
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
        """For a real A, w has n real parts and then n imaginary parts for each matrix, as in geev."""
        return None

    def solves_stacks(self, n: int) -> bool:
        """Return whether stacks of systems of this order are solved as a whole, by this class's and by blas's functions
        of stacks."""
        return False

    def diagonalizes_stacks(self, m: int, n: int) -> bool:
        """Return whether syevd_batched and gesvd_batched take matrices of this shape."""
        return False

    def loops_over(self, m: int, n: int) -> bool:
        """Return whether ormqr_batched takes a C of this shape, and geev_batched takes an A of this shape."""
        return False

    # The next functions take one matrix.

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

    def laswp(self, t: str, n: int, A: DevicePtr, lda: int, *rest: Any) -> int:
        """Exchange rows k1 to k2 of A, which has lda rows. rest: k1, k2, ipiv, incx."""
        return self.call(f"{t}laswp", A, n, A, lda, *rest)

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
        return self.call(name_on_q(t, "mqr"), A, *chosen, m, n, k, A, *rest, info=self.spare_info(A, tau, C))

    def orgqr(self, t: str, m: int, n: int, k: int, A: DevicePtr, lda: int, tau: DevicePtr) -> int:
        return self.call(name_on_q(t, "gqr"), A, m, n, k, A, lda, tau, info=self.spare_info(A, tau))

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
        """Return info and the number of eigenvalues. The vectors are written to A."""
        raise NotImplementedError

    def need_indefinite(self, name: str, hermitian: bool, solves: bool) -> None:
        """Raise LibraryError if the library lacks sytrf, or sytrs if `solves`, for Hermitian or symmetric matrices."""

    def need_geev(self, name: str, left: bool) -> None:
        """Raise LibraryError if the library has no geev, or, with `left`, no geev with left vectors."""

    def geev(
        self, t: str, n: int, A: DevicePtr, lda: int, w: DevicePtr, VL: DevicePtr | None, VR: DevicePtr | None
    ) -> int:
        """For a real A, w has n real parts, then n imaginary parts.

        A conjugate pair of vectors is a real and an imaginary part.
        """
        raise NotImplementedError


def memory_of_graph(beside: Sequence[DevicePtr], size: int, dtype: Any) -> DevicePtr:
    """Take memory in the region of `beside`, whose calls are captured; the graph keeps the memory."""
    kind = np.dtype(dtype)
    pointer: DevicePtr = _core.scratch(tuple(beside), code_of(kind), (size,), (kind.itemsize,), True)
    return pointer


def name_on_q(t: str, name: str) -> str:
    """Return the name of a function for Q: "or" (orthogonal) for real dtypes, "un" (unitary) for complex ones."""
    return f"{t}{'or' if t in 'sd' else 'un'}{name}"


def wait_for_others(A: DevicePtr, arguments: Sequence[Any]) -> None:
    """Wait for the device if other packages have the address of an argument.

    The work of these packages may be on a stream for which a call does not wait.
    """
    if any(isinstance(argument, DevicePtr) and _core.query(argument).escaped for argument in arguments):
        _core.device_synchronize(A._device)


def find_subset(
    call: Callable[..., int], jobz: str, n: int, A: DevicePtr, chosen: Chosen, w: DevicePtr, integers: int
) -> tuple[int, int]:
    """Call a function that finds some eigenvalues, and copy the eigenvectors to A.

    Return info and the number of eigenvalues.

    call: takes pointers for the number of eigenvalues, the values and the vectors, the leading dimension of the
    vectors, and a workspace of `integers` integers.
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
