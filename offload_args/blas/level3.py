"""Level 3: matrices."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from .._names import named
from .._operands import misfit, need_pointer, need_shape
from ..errors import ArgumentError
from ..pointers import DevicePtr
from ._plans import planned
from ._refusals import inexpressible, need_panels
from ._routine import Routine, Scalar, level3
from .gemm import GEMM, gemm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..devices import Device
    from ._vendors import Entry

__all__ = ["HEMM", "HER2K", "HERK", "SYMM", "SYR2K", "SYRK", "TRMM", "TRSM"]
__all__ += ["hemm", "her2k", "herk", "symm", "syr2k", "syrk", "triangular", "trmm", "trsm", "trsm_stack"]

SYMM = Routine("symm", "ssymm dsymm csymm zsymm", "A2 B2 C2", "side uplo")
HEMM = Routine("hemm", "ssymm dsymm chemm zhemm", "A2 B2 C2", "side uplo")
SYRK = Routine("syrk", "ssyrk dsyrk csyrk zsyrk", "A2 C2", "uplo trans")
HERK = Routine("herk", "ssyrk dsyrk cherk zherk", "A2 C2", "uplo trans")
SYR2K = Routine("syr2k", "ssyr2k dsyr2k csyr2k zsyr2k", "A2 B2 C2", "uplo trans")
HER2K = Routine("her2k", "ssyr2k dsyr2k cher2k zher2k", "A2 B2 C2", "uplo trans")
TRMM = Routine("trmm", "strmm dtrmm ctrmm ztrmm", "A2 B2", "side uplo trans diag")
TRSM = Routine("trsm", "strsm dtrsm ctrsm ztrsm", "A2 B2", "side uplo trans diag")
_TRSM_OF_STACKS = Routine("trsm", " ".join(f"{t}trsm_batched" for t in "sdcz"), "A2 B2", "side uplo trans diag")


def _symmetric_matrix(
    routine: Routine, alpha: Scalar, A: Any, B: Any, beta: Scalar, C: Any, side: str, uplo: str
) -> None:
    entry, (rows, columns, *a), (rows_b, columns_b, *b), (m, n, *c) = routine.read((A, B, C), side, uplo)
    call, _, enums = entry
    order = m if side == "L" else n
    if not (rows == columns == order and rows_b == m and columns_b == n):
        need_shape(f"blas.{routine.name}", "A", A, (order, order), f'for C of shape ({m}, {n}) and side="{side}"')
        need_shape(f"blas.{routine.name}", "B", B, (m, n), "as C has")
    conjugates = routine is HEMM and enums.conjugates  # then an A whose order is not C's is read as conj(A)
    for t in (0, 1):
        at, ldb, ldc = t if a[t] else 1 - t, b[t], c[t]
        if a[at] and ldb and ldc and not (conjugates and at != t):
            if t:
                m, n = n, m
            call(enums.side[t][side], enums.uplo[at][uplo], m, n, alpha, A, a[at], B, ldb, beta, C, ldc)
            return
    rule = "A and B and C need the same order" if conjugates else "B and C need the same order"
    raise inexpressible(routine.name, rule, "ABC" if conjugates else "BC", A=A, B=B, C=C)


@planned(SYMM, "alpha ~A:mm/nn@side B:mn beta C:mn", "m n/n m", "side^ uplo^A")
@level3
def symm(
    alpha: Scalar,
    A: DevicePtr | NDArray[Any],
    B: DevicePtr | NDArray[Any],
    beta: Scalar,
    C: DevicePtr | NDArray[Any],
    *,
    side: str = "L",
    uplo: str = "U",
    panels: bool = True,
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Set C to alpha A B + beta C (side "L") or alpha B A + beta C ("R") for a symmetric A.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A: matrix of shape (m, m) for side "L", (n, n) for "R"; one triangle of it is read.
    B: matrix of shape (m, n).
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, C is not read.
    C: matrix of shape (m, n), written.
    side: the place of A: "L" left of B, "R" right of it.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.
    panels: whether a large call may be several calls of the library, on panels of B and C, as in gemm.
    devices: None: the operands are pointers. Otherwise they are NumPy arrays, and these devices compute C by tiles, as
    in gemm.

    B and C have the same order; the order of A may differ.

        A, B, C = np.array([[2.0, 1.0], [9.0, 3.0]]), np.ones((2, 3)), np.empty((2, 3))
        with offload_args(A, B, C) as (dA, dB, dC):
            blas.symm(1.0, dA, dB, 0.0, dC)  # the 9 is not read
        print(C[:, 0])  # [3. 4.]

    See also: blas.hemm, blas.symv, blas.gemm; cblas.dsymm, cublas.dsymm, rocblas.dsymm; docs/guide/blas.md.
    """
    need_panels("symm", panels, devices)
    if devices is not None:
        from .streamed import stream  # it imports threads, which few programs need

        stream(symm, gemm, alpha, beta, devices, A, B, C, side=side, uplo=uplo)
        return
    _symmetric_matrix(SYMM, alpha, A, B, beta, C, side, uplo)


@planned(HEMM, "alpha ~A:mm/nn@side B:mn beta C:mn", "m n/n m", "side^ uplo^A", hermitian="one order")
@level3
def hemm(
    alpha: Scalar,
    A: DevicePtr | NDArray[Any],
    B: DevicePtr | NDArray[Any],
    beta: Scalar,
    C: DevicePtr | NDArray[Any],
    *,
    side: str = "L",
    uplo: str = "U",
    panels: bool = True,
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Set C to alpha A B + beta C (side "L") or alpha B A + beta C ("R") for a Hermitian A.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A: matrix of shape (m, m) for side "L", (n, n) for "R"; one triangle of it is read.
    B: matrix of shape (m, n).
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, C is not read.
    C: matrix of shape (m, n), written.
    side: the place of A: "L" left of B, "R" right of it.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.
    panels: whether a large call may be several calls of the library, on panels of B and C, as in gemm.
    devices: None: the operands are pointers. Otherwise they are NumPy arrays, and these devices compute C by tiles, as
    in gemm.

    All matrices have the same order. The function is symm for real dtypes.

        A, B, C = np.array([[2, 1j], [-1j, 3]]), np.ones((2, 3), complex), np.empty((2, 3), complex)
        with offload_args(A, B, C) as (dA, dB, dC):
            blas.hemm(1.0, dA, dB, 0.0, dC)
        print(C[:, 0])  # [2.+1.j 3.-1.j]

    See also: blas.symm, blas.hemv, blas.gemm; cblas.zhemm, cublas.zhemm, rocblas.zhemm; docs/guide/blas.md.
    """
    need_panels("hemm", panels, devices)
    if devices is not None:
        from .streamed import stream  # it imports threads, which few programs need

        stream(hemm, gemm, alpha, beta, devices, A, B, C, side=side, uplo=uplo)
        return
    _symmetric_matrix(HEMM, alpha, A, B, beta, C, side, uplo)


def _rank_k(
    routine: Routine, alpha: Scalar, operands: tuple[Any, ...], beta: Scalar, C: Any, uplo: str, trans: str
) -> None:
    """Update a triangle of C by A, or by A and B."""
    entry, *sizes, (n, columns, *c) = routine.read((*operands, C), uplo, trans)
    call, _, enums = entry
    hermitian = enums.conjugates and (routine is HERK or routine is HER2K)
    if enums.conjugates and trans == ("T" if hermitian else "C"):
        valid, other = ("C", "syrk and syr2k have") if hermitian else ("T", "herk and her2k have")
        raise ArgumentError(
            f'blas.{routine.name}: trans must be "N" or "{valid}" for {C.dtype}, got "{trans}"; {other} "{trans}"'
        )
    n_a, k = sizes[0][:2] if trans == "N" else sizes[0][1::-1]
    if columns != n or n_a != n or sizes[-1][:2] != sizes[0][:2]:
        need_shape(f"blas.{routine.name}", "C", C, (n, n), "as a square matrix")
        needed = (n, k) if trans == "N" else (k, n)
        need_shape(f"blas.{routine.name}", "A", operands[0], needed, f'for C of shape ({n}, {n}) and trans="{trans}"')
        need_shape(f"blas.{routine.name}", "B", operands[-1], needed, "as A has")
    for t in (0, 1):
        leads, at = [size[2 + t] for size in sizes], t if c[t] else 1 - t
        if not (all(leads) and c[at]) or (hermitian and at != t):
            continue
        operands_and_leads = list(zip(operands, leads, strict=True))
        op = enums.op[t][trans]
        if hermitian and t:  # conj(C) is computed from A^T and B^T
            op, operands_and_leads = enums.op[0]["C" if trans == "N" else "N"], operands_and_leads[::-1]
            call = call if len(operands_and_leads) == 1 else partial(named, call, {"A": "B", "B": "A"})
        call(
            enums.uplo[at][uplo],
            op,
            n,
            k,
            alpha,
            *(part for pair in operands_and_leads for part in pair),
            beta,
            C,
            c[at],
        )
        return
    read = dict(zip("AB", operands, strict=False))
    together = f"{''.join(read)}C" if hermitian else "AB"
    rule = f"{' and '.join(together)} need the same order"
    raise inexpressible(routine.name, rule, together if hermitian else "BA", **read, C=C)


@planned(SYRK, "alpha A:nk/kn@trans beta ~C:nn", "n k", "uplo^C trans^", product=GEMM)
@level3
def syrk(
    alpha: Scalar,
    A: DevicePtr | NDArray[Any],
    beta: Scalar,
    C: DevicePtr | NDArray[Any],
    *,
    uplo: str = "U",
    trans: str = "N",
    panels: bool = True,
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Set a triangle of C to alpha A A^T + beta C (trans "N") or alpha A^T A + beta C ("T").

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A: matrix of shape (n, k) for trans "N", (k, n) for "T".
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, C is not read.
    C: matrix of shape (n, n); one triangle is written.
    uplo: the triangle of C that is read and written: "U", the upper one, or "L", the lower one.
    trans: "N" or "T", as in the first sentence; for real dtypes, "C" means the same as "T".
    panels: whether a large call may be several calls of the library, on panels of A, as in gemm.
    devices: None: the operands are pointers. Otherwise they are NumPy arrays, and these devices compute C by tiles, as
    in gemm.

    A and C may have different orders.

        A, C = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.zeros((2, 2))
        with offload_args(A, C) as (dA, dC):
            blas.syrk(1.0, dA, 0.0, dC)
        print(C.tolist())  # [[14.0, 32.0], [0.0, 77.0]]

    See also: blas.syr2k, blas.herk, blas.syr, blas.gemm; cblas.dsyrk, cublas.dsyrk, rocblas.dsyrk; docs/guide/blas.md.
    """
    need_panels("syrk", panels, devices)
    if devices is not None:
        from .streamed import stream  # it imports threads, which few programs need

        stream(syrk, gemm, alpha, beta, devices, A, C, uplo=uplo, trans=trans)
        return
    _rank_k(SYRK, alpha, (A,), beta, C, uplo, trans)


@planned(HERK, "alpha A:nk/kn@trans beta ~C:nn", "n k", "uplo^C trans^", hermitian="one order", product=GEMM)
@level3
def herk(
    alpha: Scalar,
    A: DevicePtr | NDArray[Any],
    beta: Scalar,
    C: DevicePtr | NDArray[Any],
    *,
    uplo: str = "U",
    trans: str = "N",
    panels: bool = True,
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Set a triangle of C to alpha A A^H + beta C (trans "N") or alpha A^H A + beta C ("C"), alpha and beta real.

    alpha: a real number, or a 0-d DevicePtr of the real dtype.
    A: matrix of shape (n, k) for trans "N", (k, n) for "C".
    beta: a real number, or a 0-d DevicePtr of the real dtype. If it is the number 0, C is not read.
    C: matrix of shape (n, n); one triangle is written.
    uplo: the triangle of C that is read and written: "U", the upper one, or "L", the lower one.
    trans: "N" or "C", as in the first sentence.
    panels: whether a large call may be several calls of the library, on panels of A, as in gemm.
    devices: None: the operands are pointers. Otherwise they are NumPy arrays, and these devices compute C by tiles, as
    in gemm.

    A and C have the same order. The function is syrk for real dtypes.

        A, C = np.array([[1 + 1j, 2, 1], [1, 1j, 1]]), np.zeros((2, 2), complex)
        with offload_args(A, C) as (dA, dC):
            blas.herk(1.0, dA, 0.0, dC)
        print(C[0, 1], C[1, 1].real)  # (2-1j) 3.0

    See also: blas.her2k, blas.syrk, blas.her, blas.gemm; cblas.zherk, cublas.zherk, rocblas.zherk; docs/guide/blas.md.
    """
    need_panels("herk", panels, devices)
    if devices is not None:
        from .streamed import stream  # it imports threads, which few programs need

        stream(herk, gemm, alpha, beta, devices, A, C, uplo=uplo, trans=trans)
        return
    _rank_k(HERK, alpha, (A,), beta, C, uplo, trans)


@planned(SYR2K, "alpha A:nk/kn@trans B:nk/kn@trans beta ~C:nn", "n k", "uplo^C trans^", product=GEMM)
@level3
def syr2k(
    alpha: Scalar,
    A: DevicePtr | NDArray[Any],
    B: DevicePtr | NDArray[Any],
    beta: Scalar,
    C: DevicePtr | NDArray[Any],
    *,
    uplo: str = "U",
    trans: str = "N",
    panels: bool = True,
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Set a triangle of C to alpha (A B^T + B A^T) + beta C (trans "N") or alpha (A^T B + B^T A) + beta C ("T").

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A, B: matrices of shape (n, k) for trans "N", (k, n) for "T".
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, C is not read.
    C: matrix of shape (n, n); one triangle is written.
    uplo: the triangle of C that is read and written: "U", the upper one, or "L", the lower one.
    trans: "N" or "T", as in the first sentence; for real dtypes, "C" means the same as "T".
    panels: whether a large call may be several calls of the library, on panels of A and B, as in gemm.
    devices: None: the operands are pointers. Otherwise they are NumPy arrays, and these devices compute C by tiles, as
    in gemm.

    A and B have the same order; the order of C may differ.

        A, B, C = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.ones((2, 3)), np.zeros((2, 2))
        with offload_args(A, B, C) as (dA, dB, dC):
            blas.syr2k(1.0, dA, dB, 0.0, dC)
        print(C.tolist())  # [[12.0, 21.0], [0.0, 30.0]]

    See also: blas.syrk, blas.her2k, blas.syr2, blas.gemm; cblas.dsyr2k, cublas.dsyr2k, rocblas.dsyr2k;
    docs/guide/blas.md.
    """
    need_panels("syr2k", panels, devices)
    if devices is not None:
        from .streamed import stream  # it imports threads, which few programs need

        stream(syr2k, gemm, alpha, beta, devices, A, B, C, uplo=uplo, trans=trans)
        return
    _rank_k(SYR2K, alpha, (A, B), beta, C, uplo, trans)


@planned(
    HER2K,
    "alpha A:nk/kn@trans B:nk/kn@trans beta ~C:nn",
    "n k",
    "uplo^C trans^",
    turned="alpha B A beta C",
    hermitian="one order",
    names_turned={"A": "B", "B": "A"},
    product=GEMM,
)
@level3
def her2k(
    alpha: Scalar,
    A: DevicePtr | NDArray[Any],
    B: DevicePtr | NDArray[Any],
    beta: Scalar,
    C: DevicePtr | NDArray[Any],
    *,
    uplo: str = "U",
    trans: str = "N",
    panels: bool = True,
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Set a triangle of C to alpha A B^H + conj(alpha) B A^H + beta C, or alpha A^H B + conj(alpha) B^H A + beta C.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A, B: matrices of shape (n, k) for trans "N", (k, n) for "C".
    beta: a real number, or a 0-d DevicePtr of the real dtype. If it is the number 0, C is not read.
    C: matrix of shape (n, n); one triangle is written.
    uplo: the triangle of C that is read and written: "U", the upper one, or "L", the lower one.
    trans: "N" or "C", as in the first sentence.
    panels: whether a large call may be several calls of the library, on panels of A and B, as in gemm.
    devices: None: the operands are pointers. Otherwise they are NumPy arrays, and these devices compute C by tiles, as
    in gemm.

    The first sum is for trans "N", the second for "C". All matrices have one order. The function is syr2k for real
    dtypes.

        A, B, C = np.array([[1, 1], [2, 0j]]), np.array([[1j, 1], [1, 1]]), np.zeros((2, 2), complex)
        with offload_args(A, B, C) as (dA, dB, dC):
            blas.her2k(1.0, dA, dB, 0.0, dC)
        print(C[0, 1])  # (2+2j)

    See also: blas.herk, blas.syr2k, blas.her2, blas.gemm; cblas.zher2k, cublas.zher2k, rocblas.zher2k;
    docs/guide/blas.md.
    """
    need_panels("her2k", panels, devices)
    if devices is not None:
        from .streamed import stream  # it imports threads, which few programs need

        stream(her2k, gemm, alpha, beta, devices, A, B, C, uplo=uplo, trans=trans)
        return
    _rank_k(HER2K, alpha, (A, B), beta, C, uplo, trans)


def triangular(
    entry: Entry, routine: Routine, A: DevicePtr, a: Sequence[int], B: DevicePtr, b: Sequence[int], *options: str
) -> tuple[list[Any], int, int, int, int]:
    """Return arguments of trmm or trsm: a list of side, triangle, operation, diagonal; then m, n, ld of A, ld of B."""
    side, uplo, trans, diag = options
    (rows, columns, *leads_a), (m, n, *leads_b), enums = a, b, entry.enums
    order = m if side == "L" else n
    if not rows == columns == order:
        need_shape(f"blas.{routine.name}", "A", A, (order, order), f'for B of shape ({m}, {n}) and side="{side}"')
    for t in (0, 1):
        at, ldb = t if leads_a[t] else 1 - t, leads_b[t]
        op = enums.op[at != t][trans]
        if leads_a[at] and ldb and op is not None:
            if t:
                m, n = n, m
            return [enums.side[t][side], enums.uplo[at][uplo], op, enums.diag[diag]], m, n, leads_a[at], ldb
    raise inexpressible(routine.name, 'a complex A with trans="C" needs the order of B', "AB", A=A, B=B)


def _triangular_matrix(routine: Routine, alpha: Scalar, A: Any, B: Any, *options: str) -> None:
    entry, a, b = routine.read((A, B), *options)
    chosen, m, n, lda, ldb = triangular(entry, routine, A, a, B, b, *options)
    entry.call(*chosen, m, n, alpha, A, lda, B, ldb)


@planned(TRMM, "alpha ~A:mm/nn@side B:mn", "m n/n m", "side^ uplo^A trans!A diag")
@level3
def trmm(
    alpha: Scalar,
    A: DevicePtr | NDArray[Any],
    B: DevicePtr | NDArray[Any],
    *,
    side: str = "L",
    uplo: str = "U",
    trans: str = "N",
    diag: str = "N",
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Set B to alpha op(A) B (side "L") or alpha B op(A) ("R") for a triangular A.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A: triangular matrix of shape (m, m) for side "L", (n, n) for "R"; its other triangle is not read.
    B: matrix of shape (m, n), read and written.
    side: the place of op(A): "L" left of B, "R" right of it.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.
    diag: with "N", the diagonal of A is read. With "U", it is not read, and its elements count as 1.
    devices: None: the operands are pointers. Otherwise they are NumPy arrays, and these devices compute B by tiles, as
    in gemm.

    Orders may be mixed, except that a complex A with "C" needs the order of B.

        A, B = np.array([[1.0, 2.0], [9.0, 4.0]]), np.ones((2, 3))
        with offload_args(A, B) as (dA, dB):
            blas.trmm(1.0, dA, dB)  # the 9 is not read
        print(B.tolist())  # [[3.0, 3.0, 3.0], [4.0, 4.0, 4.0]]

    See also: blas.trsm, blas.trmv, blas.gemm; cblas.dtrmm, cublas.dtrmm, rocblas.dtrmm; docs/guide/blas.md.
    """
    if devices is not None:
        from .streamed import stream  # it imports threads, which few programs need

        stream(trmm, gemm, alpha, None, devices, A, B, side=side, uplo=uplo, trans=trans, diag=diag)
        return
    _triangular_matrix(TRMM, alpha, A, B, side, uplo, trans, diag)


@planned(TRSM, "alpha ~A:mm/nn@side B:mn", "m n/n m", "side^ uplo^A trans!A diag")
@level3
def trsm(
    alpha: Scalar,
    A: DevicePtr | NDArray[Any],
    B: DevicePtr | NDArray[Any],
    *,
    side: str = "L",
    uplo: str = "U",
    trans: str = "N",
    diag: str = "N",
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Solve op(A) X = alpha B (side "L") or X op(A) = alpha B ("R") for a triangular A and set B to X.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A: triangular matrix of shape (m, m) for side "L", (n, n) for "R"; its other triangle is not read.
    B: matrix of shape (m, n), read and written. B may be a stack of shape (batch, m, n); then A is a stack of as many
    matrices, or one matrix, which is used for all of B.
    side: the place of op(A): "L" left of B, "R" right of it.
    uplo: the triangle of A that is read: "U", the upper one, or "L", the lower one.
    trans: the choice of op(A): "N" for A, "T" for A^T, "C" for A^H.
    diag: with "N", the diagonal of A is read. With "U", it is not read, and its elements count as 1.
    devices: None: the operands are pointers. Otherwise they are NumPy arrays, and these devices compute B by tiles, as
    in gemm.

    Orders may be mixed, except that a complex A with "C" needs the order of B. The function does not check whether A
    can be inverted; lapack.trtrs does. A stack is solved by one call of the library, as in trsm_batched.

        A, B = np.array([[2.0, 1.0], [9.0, 4.0]]), np.array([[4.0, 8.0, 2.0], [8.0, 8.0, 0.0]])
        with offload_args(A, B) as (dA, dB):
            blas.trsm(1.0, dA, dB)  # the 9 is not read
        print(B.tolist())  # [[1.0, 3.0, 1.0], [2.0, 2.0, 0.0]]

    See also: blas.trmm, blas.trsv, blas.trsm_batched; cblas.dtrsm, cublas.dtrsm, rocblas.dtrsm; docs/guide/blas.md.
    """
    if devices is not None:
        from .streamed import stream  # it imports threads, which few programs need

        stream(trsm, gemm, alpha, None, devices, A, B, side=side, uplo=uplo, trans=trans, diag=diag)
        return
    if isinstance(B, DevicePtr) and len(B._shape) == 3:
        trsm_stack(alpha, A, B, side, uplo, trans, diag)
    else:
        _triangular_matrix(TRSM, alpha, A, B, side, uplo, trans, diag)


def trsm_stack(alpha: Scalar, A: Any, B: DevicePtr, *options: str) -> None:
    """Do the work of trsm for a stack B, with a stack A or one A for all of B; `options`: side, uplo, trans, diag."""
    need_pointer("blas.trsm", "A", A)
    count = B._shape[0]
    is_stack = len(A._shape) == 3
    if is_stack and A._shape[0] != count:
        raise misfit("blas.trsm", "A", A, (count, *A._shape[1:]), f"for B of shape {B._shape}")
    if not count:
        return
    first, right = A[0] if is_stack else A, B[0]
    entry, a, b = _TRSM_OF_STACKS.read((first, right), *options)
    chosen, m, n, lda, ldb = triangular(entry, _TRSM_OF_STACKS, first, a, right, b, *options)
    of_A, of_B = (A, B) if is_stack else ([A] * count, [B[i] for i in range(count)])
    entry.call(*chosen, m, n, alpha, of_A, lda, of_B, ldb, count)
