"""Products of general matrices, for a pair or a batch; the result may have a wider dtype."""

from __future__ import annotations

from functools import cache
from itertools import product as pairs
from typing import TYPE_CHECKING, Any, Final, overload

from .._operands import LETTERS, is_complex, misfit
from ..dtypes import DTYPE_NAMES, converted, ordered
from ..errors import ArgumentError, DTypeError, OffloadError
from ..pointers import DevicePtr
from ._plans import planned
from ._refusals import conjugated_operands, for_stacks, inexpressible, joined, need_panels, no_narrow, note_exchange
from ._routine import Routine, Scalar, level3
from ._vendors import vendor_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..devices import Device
    from ._vendors import Enums

__all__ = ["GEMM", "arranged", "gemm", "gemm_strided_batched"]

GEMM = Routine("gemm", "sgemm dgemm cgemm zgemm", "A2 B2 C2", "trans_a trans_b")
_FUNCTIONS = " ".join(f"{t}gemm_strided_batched" for t in "sdcz")
# {(name, dimensions of A, dimensions of B): routine}. A matrix of 2 dimensions is used for the whole batch.
_STRIDED = {
    (name, a, b): Routine(name, _FUNCTIONS, f"A{a} B{b} C3", "trans_a trans_b")
    for name, a, b in pairs(("gemm", "gemm_strided_batched"), (2, 3), (2, 3))
}


# If C is in C order, its transpose B^T A^T is computed.
_ARGUMENTS: Final = "alpha ~A:mk/km@trans_a ~B:kn/nk@trans_b beta C:mn"
_SIZES: Final = "m n k/n m k"
_OPTIONS: Final = "trans_a!A trans_b!B"
_TURNED: Final = "alpha B A beta C"
_NAMES_TURNED: Final = {"A": "B", "B": "A"}


def arranged(
    name: str, enums: Enums, trans_a: str, trans_b: str, *operands: tuple[DevicePtr, Sequence[int]]
) -> tuple[Any, ...]:
    """Return (transposed, m, n, k, op of A, ld of A, op of B, ld of B, ld of C) of a product, in column-major order.

    operands: A, B and C, each with its geometry. If C is in C order, the whole product is transposed: the library then
    reads a matrix in C order as the transpose that it needs. If the order of an operand is not C's, its operation is
    exchanged.
    """
    (A, (rows_a, columns_a, *a)), (B, (rows_b, columns_b, *b)), (C, (m, n, *c)) = operands
    m_a, k = (rows_a, columns_a) if trans_a == "N" else (columns_a, rows_a)
    k_b, n_b = (rows_b, columns_b) if trans_b == "N" else (columns_b, rows_b)
    options = f'trans_a="{trans_a}" and trans_b="{trans_b}"'
    remedy = for_stacks(A, B, C, trans_a, trans_b) if k_b != k or (m_a, n_b) != (m, n) else ""
    if k_b == k and (m_a != m or n_b != n):
        reason = f"for A of shape {A._shape}, B of shape {B._shape}, {options}{remedy}"
        raise misfit(f"blas.{name}", "C", C, (*C._shape[:-2], m_a, n_b), reason)
    if m_a != m:
        needed = (m, k) if trans_a == "N" else (k, m)
        reason = f'for C of shape {C._shape} and trans_a="{trans_a}"{remedy}'
        raise misfit(f"blas.{name}", "A", A, (*A._shape[:-2], *needed), reason)
    if k_b != k:
        needed = (k, n) if trans_b == "N" else (n, k)
        reason = f"for C of shape {C._shape}, A of shape {A._shape}, {options}{remedy}"
        raise misfit(f"blas.{name}", "B", B, (*B._shape[:-2], *needed), reason)
    for t in (0, 1):
        op_a, lda = (enums.op[0][trans_a], a[t]) if a[t] else (enums.op[1][trans_a], a[1 - t])
        op_b, ldb = (enums.op[0][trans_b], b[t]) if b[t] else (enums.op[1][trans_b], b[1 - t])
        if c[t] and lda and ldb and op_a is not None and op_b is not None:
            return t, m, n, k, op_a, lda, op_b, ldb, c[t]
    conjugated = conjugated_operands(enums, A=trans_a, B=trans_b)
    raise inexpressible(name, "a conjugate transposed operand needs the order of C", f"{conjugated}C", A=A, B=B, C=C)


@overload
def gemm(
    alpha: Scalar,
    A: DevicePtr,
    B: DevicePtr,
    beta: Scalar,
    C: DevicePtr,
    *,
    trans_a: str = "N",
    trans_b: str = "N",
    panels: bool = True,
) -> None: ...
@overload
def gemm(
    alpha: complex,
    A: NDArray[Any],
    B: NDArray[Any],
    beta: complex,
    C: NDArray[Any],
    *,
    trans_a: str = "N",
    trans_b: str = "N",
    devices: Sequence[Device | str],
) -> None: ...
@planned(
    GEMM,
    _ARGUMENTS,
    _SIZES,
    _OPTIONS,
    strided=_STRIDED["gemm", 3, 3],
    turned=_TURNED,
    names_turned=_NAMES_TURNED,
)
@level3
def gemm(
    alpha: Scalar,
    A: DevicePtr | NDArray[Any],
    B: DevicePtr | NDArray[Any],
    beta: Scalar,
    C: DevicePtr | NDArray[Any],
    *,
    trans_a: str = "N",
    trans_b: str = "N",
    panels: bool = True,
    devices: Sequence[Device | str] | None = None,
) -> None:
    """Set C to alpha op(A) op(B) + beta C; op(A) is A, A^T or A^H for trans_a "N", "T" or "C", and op(B) likewise.

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A: matrix; op(A) has shape (m, k).
    B: matrix; op(B) has shape (k, n).
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, C is not read.
    C: matrix of shape (m, n), written. With three dimensions, gemm computes a batch, as gemm_strided_batched does.
    trans_a, trans_b: the choices of op(A) and op(B): "N" for the matrix itself, "T" for its transpose, "C" for its
    conjugate transpose.
    panels: whether a large product of pointers may be several calls of the library, on panels of C, while the device
    lacks the matrix that has the same panels: A if C is in C order, otherwise B. The next panel then goes up during the
    call for the panel before it. The last bits may differ from the result of one call, which False ensures.
    devices: with None, A, B and C are pointers. With a list of devices, A, B and C are NumPy arrays, and alpha and beta
    are numbers. These devices compute the product by parts of C, while other parts are copied. No device needs memory
    for all of A, B and C. Each part is a product of the library, so the last bits may differ from the result of one
    call. If a part fails, a note on the error names the finished parts.

    Orders may be mixed, except that a pointer to a complex matrix with "C" needs the order of C.

    On GPUs, A and B may also be of float16 or bfloat16, if C has the same dtype or float32, or of int8, if C has int32.
    Products are summed in float32 or int32, and alpha and beta are numbers of the dtype of the sums.

        A, B, C = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.ones((3, 4)), np.empty((2, 4))
        with offload_args(A, B, C) as (dA, dB, dC):
            blas.gemm(1.0, dA, dB, 0.0, dC)
        print(C[:, 0])  # [ 6. 15.]
        blas.gemm(2.0, A, B, 0.0, C, devices=["host"])
        print(C[:, 0])  # [12. 30.]

    See also: blas.gemv, blas.gemm_strided_batched, blas.gemm_batched, blas.syrk, blas.symm; cblas.dgemm, cublas.dgemm,
    rocblas.dgemm; docs/guide/blas.md.
    """
    need_panels("gemm", panels, devices)
    if devices is not None:
        from .streamed import multiply  # imports threads, which few programs need

        multiply(gemm, alpha, A, B, beta, C, trans_a, trans_b, devices)
        return
    pointer: Any = C
    try:
        _multiply("gemm", alpha, A, B, beta, pointer, trans_a, trans_b)
    except OffloadError as error:
        note_exchange(error, pointer)
        raise


@planned(
    None,
    _ARGUMENTS,
    _SIZES,
    _OPTIONS,
    strided=_STRIDED["gemm_strided_batched", 3, 3],
    turned=_TURNED,
    names_turned=_NAMES_TURNED,
)
@level3
def gemm_strided_batched(
    alpha: Scalar, A: DevicePtr, B: DevicePtr, beta: Scalar, C: DevicePtr, *, trans_a: str = "N", trans_b: str = "N"
) -> None:
    """Set C[i] to alpha op(A[i]) op(B[i]) + beta C[i] for every i; op(A) is A, A^T or A^H for "N", "T" or "C".

    alpha: a number, or a 0-d DevicePtr of the operands' dtype.
    A: op(A) has shape (batch, m, k); as in numpy.matmul, an A of shape (1, ...) or (m, k) is used for every i.
    B: op(B) has shape (batch, k, n); a B of shape (1, ...) or of two dimensions is used for every i, too.
    beta: a number or a 0-d DevicePtr, like alpha. If it is the number 0, C is not read.
    C: shape (batch, m, n), written.
    trans_a, trans_b: the choices of op(A) and op(B): "N" for the matrix itself, "T" for its transpose, "C" for its
    conjugate transpose.

    Each matrix of an operand has the same order; orders may be mixed, except that a complex operand with "C" needs the
    order of C. The dtypes are as in gemm. The batch is one call of the library.

        A, B, C = np.arange(12.0).reshape(2, 2, 3), np.ones((3, 2)), np.empty((2, 2, 2))
        with offload_args(A, B, C) as (dA, dB, dC):
            blas.gemm_strided_batched(1.0, dA, dB, 0.0, dC)
        print(C[:, :, 0].tolist())  # [[3.0, 12.0], [21.0, 30.0]]

    See also: blas.gemm, blas.gemm_batched; cublas.dgemm_strided_batched, rocblas.dgemm_strided_batched;
    docs/guide/blas.md.
    """
    try:
        _multiply("gemm_strided_batched", alpha, A, B, beta, C, trans_a, trans_b)
    except OffloadError as error:
        note_exchange(error, C)
        raise


def _multiply(name: str, alpha: Scalar, A: Any, B: Any, beta: Scalar, C: Any, trans_a: str, trans_b: str) -> None:
    """Compute a product of pointers of any dtypes; raise an error for wrong operands."""
    entry, a, b, c = _read(name, A, B, C, trans_a, trans_b)
    enums = entry.enums
    arrangement = arranged(name, enums, trans_a, trans_b, (A, a[:4]), (B, b[:4]), (C, c[:4]))
    transposed, m, n, k, op_a, lda, op_b, ldb, ldc = arrangement
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


def _read(name: str, A: DevicePtr, B: DevicePtr, C: DevicePtr, trans_a: str, trans_b: str) -> tuple[Any, ...]:
    """Return the values of Routine.read for operands of any dtypes."""
    if _is_narrow(A):
        try:
            return _read_narrow(name, A, B, C, trans_a, trans_b)
        except DTypeError as error:
            raise _refused_narrow(name, error, A, B, C) from None
    of_a, of_b, of_c = (3 if len(getattr(operand, "_shape", ())) == 3 else 2 for operand in (A, B, C))
    if name == "gemm" and (of_a, of_b, of_c) == (2, 2, 2):
        return GEMM.read((A, B, C), trans_a, trans_b)
    return _STRIDED[name, of_a, of_b].read((A, B, C), trans_a, trans_b)


def _stride(name: str, operand: str, pointer: DevicePtr, batch: int, count: int = 1, stride: int = 0) -> int:
    """Return the distance between the matrices of an operand; 0 if one matrix is used for all products."""
    if count not in (1, batch):
        reason = f"for a C of {batch} matrices, or one for all"
        raise misfit(f"blas.{name}", operand, pointer, (batch, *pointer._shape[1:]), reason)
    if stride is None or stride < 0:
        raise ArgumentError(
            f"blas.{name}: {operand} has strides {pointer._strides}, needs its matrices one after the other; "
            f"{ordered(operand, pointer)}"
        )
    return stride


# -- narrow dtypes -----------------------------------------------------------------------------------------------------
# {dtype of A and B: (the possible dtypes of C, the dtype of the sums)}.
_NARROW: Final = {
    "float16": (("float16", "float32"), "32F"),
    "bfloat16": (("bfloat16", "float32"), "32F"),
    "int8": (("int32",), "32I"),
}


def _is_narrow(A: DevicePtr) -> bool:
    return isinstance(A, DevicePtr) and DTYPE_NAMES[A._dtype_code] in _NARROW


def _refused_narrow(name: str, error: DTypeError, *operands: DevicePtr) -> DTypeError:
    """Return the error for a narrow A, or a clearer error if the device's library has no product of its dtype."""
    if not all(isinstance(pointer, DevicePtr) for pointer in operands):
        return error
    library = vendor_of(f"blas.{name}", operands[0]._device).without_narrow
    (a, b, c), named = [pointer.dtype.name for pointer in operands], dict(zip("ABC", operands, strict=True))
    # One conversion to narrow dtypes is enough, unless most operands are wide. No complex operand becomes real.
    fit = b == a or (b != c and c in _NARROW[a][0])
    fit = fit and not any(is_complex(pointer._dtype_code) for pointer in operands)
    if library or (not fit and any(pointer._dtype_code in LETTERS for pointer in operands[1:])):
        return no_narrow(name, library, **named)
    if fit:
        return error
    if c in _NARROW.get(b, ((),))[0]:
        return DTypeError(f"blas.{name}: A needs {b}, as B has, got {a}; {converted('A', b, operands[0])}")
    remedies = [converted("B", a, operands[1]), converted("C", _NARROW[a][0][0], operands[2])]
    return DTypeError(f"blas.{name}: B needs {a}, as A has, got {b}; {joined('convert', remedies)}")


@cache
def _narrow(name: str, operands: str, a: str, results: tuple[str, ...], taken: tuple[str, ...]) -> Routine:
    """Return the routine for products of dtype `a` whose C has the first dtype of `results`, for operands `taken`."""
    strided = "_strided_batched" if "3" in operands or name != "gemm" else ""
    functions = {DTYPE_NAMES.index(dtype): f"gemm{strided}_ex {a} {results[0]} {_NARROW[a][1]}" for dtype in taken}
    return Routine(name, functions, operands, "trans_a trans_b" if "A" in operands else "")


def _read_narrow(name: str, A: DevicePtr, B: DevicePtr, C: DevicePtr, *options: str) -> tuple[Any, ...]:
    """Return the values of Routine.read for narrow A and B."""
    of_a, of_b = (3 if len(getattr(operand, "_shape", ())) == 3 else 2 for operand in (A, B))
    of_c = 3 if name != "gemm" or 3 in (of_a, of_b, len(getattr(C, "_shape", ()))) else 2
    a = DTYPE_NAMES[A._dtype_code]
    results, _ = _NARROW[a]
    _, c = _narrow(name, f"C{of_c}", a, results, results).read((C,))
    chosen = (DTYPE_NAMES[C._dtype_code],)
    entry, geometry_a, geometry_b = _narrow(name, f"A{of_a} B{of_b}", a, chosen, (a,)).read((A, B), *options)
    return entry, geometry_a, geometry_b, c
