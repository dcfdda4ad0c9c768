"""Products of general matrices: one pair or a batch, of one dtype or with a wider result."""

from __future__ import annotations

from functools import cache
from itertools import product as pairs
from typing import TYPE_CHECKING, Any, Final

from ..dtypes import DTYPE_NAMES
from ..errors import ArgumentError, OffloadError
from ..pointers import DevicePtr
from ._refusals import inexpressible, misfit, note_exchange
from ._routine import Routine, level3, native

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._routine import Pointer, Scalar
    from ._vendors import Enums

__all__ = ["GEMM", "arranged", "gemm", "gemm_strided_batched"]

GEMM = Routine("gemm", "sgemm dgemm cgemm zgemm", "A2 B2 C2", "trans_a trans_b")
_FUNCTIONS = " ".join(f"{t}gemm_strided_batched" for t in "sdcz")
# By name, and the numbers of dimensions of A and B: one of 2 dimensions serves for all of a batch.
_STRIDED = {
    (name, a, b): Routine(name, _FUNCTIONS, f"A{a} B{b} C3", "trans_a trans_b")
    for name, a, b in pairs(("gemm", "gemm_strided_batched"), (2, 3), (2, 3))
}


def _forms(name: str) -> list[Routine]:
    """Return the routines of batches by the dimensions of A and B, for native()."""
    return [_STRIDED[name, a, b] for a, b in pairs((2, 3), (2, 3))]


def arranged(
    name: str, enums: Enums, trans_a: str, trans_b: str, *operands: tuple[Pointer, Sequence[int]]
) -> tuple[Any, ...]:
    """Return (transposed, m, n, k, op of A, ld of A, op of B, ld of B, ld of C) of a product, in column-major order.

    operands: A, B and C, each with its geometry. The product is computed as it is written, or transposed as a whole for
    a C in C order: then, for the library, what lies in C order is the transpose that is wanted. An operand in the other
    order than C has its operation flipped.
    """
    (A, (rows_a, columns_a, *a)), (B, (rows_b, columns_b, *b)), (C, (m, n, *c)) = operands
    m_a, k = (rows_a, columns_a) if trans_a == "N" else (columns_a, rows_a)
    k_b, n_b = (rows_b, columns_b) if trans_b == "N" else (columns_b, rows_b)
    if m_a != m:
        needed = (m, k) if trans_a == "N" else (k, m)
        reason = f'for C of shape {C._shape} and trans_a="{trans_a}"'
        raise misfit(name, "A", A, (*A._shape[:-2], *needed), reason)
    if k_b != k or n_b != n:
        needed = (k, n) if trans_b == "N" else (n, k)
        reason = f'for C of shape {C._shape}, A of shape {A._shape}, trans_a="{trans_a}" and trans_b="{trans_b}"'
        raise misfit(name, "B", B, (*B._shape[:-2], *needed), reason)
    for t in (0, 1):
        op_a, lda = (enums.op[0][trans_a], a[t]) if a[t] else (enums.op[1][trans_a], a[1 - t])
        op_b, ldb = (enums.op[0][trans_b], b[t]) if b[t] else (enums.op[1][trans_b], b[1 - t])
        if c[t] and lda and ldb and op_a is not None and op_b is not None:
            return t, m, n, k, op_a, lda, op_b, ldb, c[t]
    raise inexpressible(name, "a conjugate transposed operand needs the order of C", A=A, B=B, C=C)


@native("gemm", GEMM, *_forms("gemm"), note=note_exchange)
@level3
def gemm(
    alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, trans_a: str = "N", trans_b: str = "N"
) -> None:
    """Set C to alpha op(A) op(B) + beta C; op(A) is A, A^T or A^H for trans_a "N", "T" or "C", and so for B.

    C has shape (m, n), op(A) (m, k) and op(B) (k, n). Orders may be mixed, except that a complex matrix with "C" needs
    the order of C. With a C of three dimensions it is gemm_strided_batched.

    On GPUs A and B may be of float16 or bfloat16, with a C of the same dtype or of float32, or of int8 with a C of
    int32. Products are summed in float32 or int32, and alpha and beta are numbers of that dtype.
    """
    try:
        _multiply("gemm", alpha, A, B, beta, C, trans_a, trans_b)
    except OffloadError as error:
        note_exchange(error, C)
        raise


@native("gemm", None, *_forms("gemm_strided_batched"), note=note_exchange)
@level3
def gemm_strided_batched(
    alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, *, trans_a: str = "N", trans_b: str = "N"
) -> None:
    """Set C[i] to alpha op(A[i]) op(B[i]) + beta C[i] for every i; op(A) is A, A^T or A^H for "N", "T" or "C".

    C has shape (batch, m, n), op(A) (batch, m, k) and op(B) (batch, k, n); as in numpy.matmul an A or B of shape
    (1, ...), or of two dimensions, serves for all. Each matrix of an operand has the same order; orders may be mixed,
    except that a complex operand with "C" needs the order of C. Dtypes are gemm's. It is one call of the library.
    """
    try:
        _multiply("gemm_strided_batched", alpha, A, B, beta, C, trans_a, trans_b)
    except OffloadError as error:
        note_exchange(error, C)
        raise


def _multiply(
    name: str, alpha: Scalar, A: Pointer, B: Pointer, beta: Scalar, C: Pointer, trans_a: str, trans_b: str
) -> None:
    """Compute a product of any dtypes; raise what is wrong with its operands."""
    entry, a, b, c = _read(name, A, B, C, trans_a, trans_b)
    enums = entry.enums
    found = arranged(name, enums, trans_a, trans_b, (A, a[:4]), (B, b[:4]), (C, c[:4]))
    transposed, m, n, k, op_a, lda, op_b, ldb, ldc = found
    if len(c) == 4:  # one product
        if transposed:
            entry.call(op_b, op_a, n, m, k, alpha, B, ldb, A, lda, beta, C, ldc)
        else:
            entry.call(op_a, op_b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc)
        return
    batch = c[4]
    next_a, next_b = _stride(name, "A", A, batch, *a[4:]), _stride(name, "B", B, batch, *b[4:])
    next_c = _stride(name, "C", C, batch, *c[4:])
    if transposed:
        entry.call(op_b, op_a, n, m, k, alpha, B, ldb, next_b, A, lda, next_a, beta, C, ldc, next_c, batch)
    else:
        entry.call(op_a, op_b, m, n, k, alpha, A, lda, next_a, B, ldb, next_b, beta, C, ldc, next_c, batch)


def _read(name: str, A: Pointer, B: Pointer, C: Pointer, trans_a: str, trans_b: str) -> tuple[Any, ...]:
    """Do as Routine.read for operands of any dtypes."""
    if _is_narrow(A):
        return _read_narrow(name, A, B, C, trans_a, trans_b)
    of_a, of_b, of_c = (3 if len(getattr(operand, "_shape", ())) == 3 else 2 for operand in (A, B, C))
    if name == "gemm" and (of_a, of_b, of_c) == (2, 2, 2):
        return GEMM.read((A, B, C), trans_a, trans_b)
    return _STRIDED[name, of_a, of_b].read((A, B, C), trans_a, trans_b)


def _stride(name: str, operand: str, pointer: Pointer, batch: int, count: int = 1, stride: int = 0) -> int:
    """Return how far the matrices of an operand are apart; 0 of one for all."""
    if count not in (1, batch):
        reason = f"for a C of {batch} matrices, or one for all"
        raise misfit(name, operand, pointer, (batch, *pointer._shape[1:]), reason)
    if stride is None or stride < 0:
        raise ArgumentError(
            f"blas.{name}: {operand} has strides {pointer._strides}, needs its matrices one behind the other; copy it "
            f"on the host: numpy.ascontiguousarray({operand})"
        )
    return stride


# -- narrow dtypes -----------------------------------------------------------------------------------------------------
# The dtypes of C for products of a dtype, and that in which they are summed.
_NARROW: Final = {
    "float16": (("float16", "float32"), "32F"),
    "bfloat16": (("bfloat16", "float32"), "32F"),
    "int8": (("int32",), "32I"),
}


def _is_narrow(A: Pointer) -> bool:
    return isinstance(A, DevicePtr) and DTYPE_NAMES[A._dtype_code] in _NARROW


@cache
def _narrow(name: str, operands: str, a: str, results: tuple[str, ...], taken: tuple[str, ...]) -> Routine:
    """Return the routine that reads operands of the dtypes `taken` of a product of a's dtype, with C one of results."""
    strided = "_strided_batched" if "3" in operands or name != "gemm" else ""
    functions = {DTYPE_NAMES.index(one): f"gemm{strided}_ex {a} {results[0]} {_NARROW[a][1]}" for one in taken}
    return Routine(name, functions, operands, "trans_a trans_b" if "A" in operands else "")


def _read_narrow(name: str, A: Pointer, B: Pointer, C: Pointer, *options: str) -> tuple[Any, ...]:
    """Do as Routine.read for narrow A and B."""
    of_a, of_b = (3 if len(getattr(operand, "_shape", ())) == 3 else 2 for operand in (A, B))
    of_c = 3 if name != "gemm" or 3 in (of_a, of_b, len(getattr(C, "_shape", ()))) else 2
    a = DTYPE_NAMES[A._dtype_code]
    results, _ = _NARROW[a]
    _, c = _narrow(name, f"C{of_c}", a, results, results).read((C,))
    chosen = (DTYPE_NAMES[C._dtype_code],)
    entry, geometry_a, geometry_b = _narrow(name, f"A{of_a} B{of_b}", a, chosen, (a,)).read((A, B), *options)
    return entry, geometry_a, geometry_b, c
