"""Every routine of rocBLAS that has a case is compared with sums in wider precision.

Routines for several operands run the case of the routine for one operand. Each call becomes a batch of two: the
operands of the call, and a copy of them before or after.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any

import numpy as np
import pytest

from helpers.devices import HIP
from helpers.vendor import SHARES, Many, Operand, Routine, Vendor, bound, run, vector
from offload_args import In, _core, libraries, offload_args, rocblas
from offload_args.errors import LibraryVersionError
from vendor import batched, level1, level2, level3

CASES = {**level1.CASES, **level2.CASES, **level3.CASES, **batched.CASES}
ONE = [name for name in bound(rocblas) if name in CASES]
FORMS = ("_strided_batched", "_batched")


def parts(name: str) -> tuple[str, str]:
    """Split the name of a routine into the name of the routine for one operand and the form."""
    form = next((form_ for form_ in FORMS if form_ in name), "")
    return name.replace(form, "") if form else name, form


TWO = [name for name in bound(rocblas) if name not in CASES and parts(name)[0] in CASES]


def twin(operand: Operand) -> Operand:
    """Copy an operand and its base; the lent array of the copy is a part of the new base."""
    built = copy.copy(operand)
    built.base = operand.base.copy(order="K")
    lent, offset = operand.lent, operand.lent.ctypes.data - operand.base.ctypes.data
    built.lent = np.ndarray(lent.shape, lent.dtype, built.base.ravel(order="K"), offset, lent.strides)
    return built


class Pair(Many):
    """An operand and its copy, one after the other in one array, for a strided routine."""

    def __init__(self, operands: list[Operand]) -> None:
        super().__init__(operands)
        first = operands[0]
        self.flat = np.concatenate([operand.base.ravel(order="K") for operand in operands])
        self.stride = first.base.size
        passed = first.lent if first.part is None else first.lent[first.part]
        self.start = (passed.ctypes.data - first.base.ctypes.data) // first.base.itemsize

    @property
    def all_lent(self) -> list[Any]:
        return [self.flat]

    def of(self, *pointers: Any) -> Any:
        return pointers[0][self.start :]

    def take_back(self) -> None:
        """Copy the results of the call to the operands."""
        for operand, left in zip(self.operands, np.split(self.flat, 2), strict=True):
            operand.base.ravel(order="K")[:] = left  # a view, because it has no gaps


class BatchOfTwo(Routine):
    """A routine for several operands that replaces the routine for one operand."""

    calls = 0

    def __init__(self, vendor: Vendor, name: str, letter: str, share: float) -> None:
        super().__init__(vendor, name, letter, share)
        self.record = _core.record("rocblas", name)
        self.name = parts(name)[0]

    def pair(self, arguments: Any, as_list: bool) -> Many:
        operand = arguments if isinstance(arguments, Operand) else vector(np.array(arguments, self.dtype))
        both = [operand, twin(operand)][:: 1 if self.calls % 2 else -1]
        return Many(both) if as_list else Pair(both)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.calls += 1
        rest, built, passed = iter(arguments), {}, []
        results = None
        stride = 0
        for kind, label, dtype, *_ in self.record:
            if label == "results":
                results = vector(np.zeros(2, _dtype(dtype)))
                passed.append(results)
            elif label == "batch_count":
                passed.append(2)
            elif kind == "size" and label.startswith("stride"):
                passed.append(stride)
            elif kind.rstrip("*") in ("in", "out", "inout"):
                values = next(rest)
                pair = built.setdefault(id(values), self.pair(values, kind.endswith("*")))
                stride = getattr(pair, "stride", 0)
                passed.append(pair)
            else:
                passed.append(next(rest))
        run(self.function, self.vendor.device, *passed)
        return self.finish(built, results, keywords.get("result"))

    def finish(self, built: dict[int, Many], results: Operand | None, result: Operand | None) -> Any:
        """Check that both operands of each pair are equal; return the result of the routine for one operand."""
        for pair in built.values():
            if isinstance(pair, Pair):
                pair.take_back()
            first, second = (operand.base for operand in pair.operands)
            close = 1e-3 if first.dtype.char in "fF" else 1e-9
            np.testing.assert_allclose(first, second, rtol=close, atol=close, err_msg=self.name)
        if results is None:
            return None
        left, other = results.now()
        case = f"{self.name}: {left} and {other} of the same vectors"
        if np.issubdtype(results.base.dtype, np.integer):
            assert left == other, case
        else:  # the order of a sum may depend on the vector's address
            close = 64 * np.finfo(results.base.dtype).eps
            np.testing.assert_allclose(left, other, rtol=close, atol=close, err_msg=case)
        if result is None:
            return left
        result.base[()] = left
        return None


def _dtype(name: str) -> Any:
    return {"f32": "f4", "f64": "f8", "c64": "c8", "c128": "c16", "i32": "i4", "i64": "i8"}[name]


def is_there(name: str) -> bool:
    """Return whether the loaded version has a routine; gemmt was added in version 4."""
    version = libraries.load("rocblas").version
    return "gemmt" not in name or not version or int(version.split(".")[0]) >= 4


def run_case(routine: Routine, case: Any) -> None:
    if is_there(routine.name):
        case(routine)
        return
    with pytest.raises(LibraryVersionError, match="its version is 2.* has it"):
        case(routine)


@pytest.mark.parametrize("device", [HIP], indirect=True)
@pytest.mark.parametrize("name", ONE)
@SHARES
def test_a_routine_agrees_with_higher_precision(device: str, name: str, share: float) -> None:
    letter, case = CASES[name]
    run_case(Routine(Vendor(device), name, letter, share), case)


@pytest.mark.parametrize("device", [HIP], indirect=True)
@pytest.mark.parametrize("name", TWO)
@SHARES
def test_a_routine_of_several_operands_agrees_with_higher_precision(device: str, name: str, share: float) -> None:
    letter, case = CASES[parts(name)[0]]
    run_case(BatchOfTwo(Vendor(device), name, letter, share), case)


def test_most_routines_have_a_case() -> None:
    assert len(ONE) > 190 and len(TWO) > 320


@pytest.mark.parametrize("device", [HIP], indirect=True)
@pytest.mark.parametrize("transa", "NT")
@pytest.mark.parametrize("transb", "NT")
def test_products_of_halves_are_those_of_numpy(device: str, transa: str, transb: str) -> None:
    m, n, k, ops = 5, 3, 4, {"N": rocblas.operation_none, "T": rocblas.operation_transpose}
    random = np.random.default_rng(7)
    A, B = (random.integers(-4, 5, (2, *shape)).astype("f2") for shape in ((m, k), (k, n)))  # so sums are exact
    C = random.integers(-4, 5, (2, m, n)).astype("f2")
    stored = [X if trans == "T" else X.swapaxes(1, 2) for X, trans in ((A, transa), (B, transb), (C, "N"))]
    a, b, c = (np.ascontiguousarray(X) for X in stored)  # stored by columns, one matrix after the other
    lda, ldb = a.shape[2], b.shape[2]
    with offload_args(In(a), In(b), c, device=device) as (da, db, dc):
        ta, tb = ops[transa], ops[transb]
        rocblas.hgemm(ta, tb, m, n, k, 2.0, da[0], lda, db[0], ldb, 0.5, dc[0], m)
        np.testing.assert_array_equal(dc[0].to_host().T, 2 * A[0] @ B[0] + C[0] / 2)
        rocblas.hgemm_strided_batched(ta, tb, m, n, k, 1.0, da, lda, m * k, db, ldb, k * n, 0.0, dc, m, m * n, 2)
        rocblas.hgemm_batched(ta, tb, m, n, k, 1.0, [da[1]], lda, [db[1]], ldb, 1.0, [dc[1]], m, 1)
    np.testing.assert_array_equal(c[0].T, A[0] @ B[0])
    np.testing.assert_array_equal(c[1].T, 2 * A[1] @ B[1])


# -- functions whose dtypes are arguments ------------------------------------------------------------------------------

# (dtype of the numbers, dtype of the computation).
EX_DTYPES = [("f2", "f4"), ("bfloat16", "f4"), ("f4", "f4"), ("f8", "f8"), ("c8", "c8"), ("c16", "c16")]
EX_PRODUCTS = [*((a, a, wide) for a, wide in EX_DTYPES), ("f2", "f2", "f2"), ("f2", "f4", "f4"), ("i1", "i4", "i4")]
EX_PRODUCTS += [("bfloat16", "f4", "f4")]
EX_FORMS = ["", "_batched", "_strided_batched"]


def whole(dtype: str, *shape: int) -> Any:
    """Return small integers, whose sums are exact in every dtype."""
    random = np.random.default_rng(sum(shape))
    values = random.integers(-4, 5, shape)
    return (values + 1j * random.integers(-4, 5, shape) if dtype[0] == "c" else values).astype(dtype)


def call_ex(name: str, form: str, arrays: dict[str, Any], **others: Any) -> None:
    """Call a form of a routine with arrays that have an axis of operands."""
    function = getattr(rocblas, f"{name}{form}_ex")
    for label in inspect.signature(function).parameters:
        kind, _, array = label.lower().partition("_")
        if label in arrays:
            array_ = arrays[label]
            others[label] = [array_[i] for i in range(array_.shape[0])] if form == "_batched" else array_
            if f"{label.lower()}_type" in inspect.signature(function).parameters:
                others[f"{label.lower()}_type"] = array_.dtype
        elif kind == "stride":
            others[label] = next(
                array_.size // array_.shape[0] for key, array_ in arrays.items() if key.lower() == array
            )
        elif label == "batch_count":
            others[label] = next(iter(arrays.values())).shape[0]
    function(**others)


@pytest.mark.parametrize("device", [HIP], indirect=True)
@pytest.mark.parametrize("form", EX_FORMS)
@pytest.mark.parametrize("dtypes", EX_PRODUCTS, ids="-".join)
@pytest.mark.parametrize("transa", "NC")
def test_gemm_ex_is_numpys_product_in_the_dtypes_that_arguments_say(
    device: str, form: str, dtypes: tuple[str, str, str], transa: str
) -> None:
    m, n, k, count = 5, 3, 4, 2 if form else 1
    a, b, c = (whole(of, count, *shape) for of, shape in zip(dtypes, ((m, k), (k, n), (m, n)), strict=False))
    b, c = b.astype(dtypes[0]), c.astype(dtypes[1])
    by_columns = [a.conj() if transa == "C" else a.swapaxes(1, 2), b.swapaxes(1, 2), c.swapaxes(1, 2)]
    A, B, C = (np.ascontiguousarray(by_column) for by_column in by_columns)
    D = np.zeros_like(C)
    with offload_args(In(A), In(B), In(C), D, device=device) as arguments:
        ta = rocblas.operation_none if transa == "N" else rocblas.operation_conjugate_transpose
        arrays = dict(zip("ABCD", arguments, strict=True))
        sizes = {"m": m, "n": n, "k": k, "lda": A.shape[2], "ldb": k, "ldc": m, "ldd": m}
        plain = {"algo": rocblas.gemm_algo_standard, "solution_index": 0, "flags": 0, "compute_type": dtypes[2]}
        call_ex("gemm", form, arrays, transa=ta, transb=rocblas.operation_none, alpha=2, beta=3, **sizes, **plain)
    wide = complex if dtypes[0][0] == "c" else np.int64
    np.testing.assert_array_equal(D.swapaxes(1, 2), 2 * a.astype(wide) @ b.astype(wide) + 3 * c.astype(wide))


# Routine, and dtypes of the operand, the result and the computation. rocBLAS has these routines since 5.2 and 5.3. Lent
# arrays of bfloat16 need ml_dtypes.
RANK_K = [("syrk_ex", *dtypes) for dtypes in (("f2", "f2", "f4"), ("f2", "f4", "f4"), ("bfloat16", "f4", "f4"))]
RANK_K += [("herk_ex", "c8", "c8", "c16"), ("herk_ex", "c8", "c16", "c16")]


def has_rocblas(since: tuple[int, int]) -> bool:
    major, minor, *_ = libraries.load("rocblas").version.split(".")
    return (int(major), int(minor)) >= since


@pytest.mark.parametrize("device", [HIP], indirect=True)
@pytest.mark.parametrize("of", RANK_K, ids="-".join)
@pytest.mark.parametrize("uplo", ["upper", "lower"])
@pytest.mark.parametrize("op", ["none", "other"])
@pytest.mark.parametrize("scalars", ["host", "device"])
def test_rank_k_updates_are_numpys_in_the_dtypes_that_arguments_say_or_a_version_lacks_them(
    device: str, of: tuple[str, str, str, str], uplo: str, op: str, scalars: str
) -> None:
    name, of_a, of_c, wide = of
    n, k, is_hermitian = 5, 3, name == "herk_ex"
    a, c = whole(of_a, n, k), whole(of_c, n, n)
    A = np.ascontiguousarray(a if op == "other" else a.T)  # by columns, it is k x n or n x k
    C = np.zeros((n, n + 2), of_c)  # by columns, ldc of n + 2
    C[:, :n] = c.T
    if op == "other" and is_hermitian:
        A = A.conj()
    ops = {"none": rocblas.operation_none, "other": rocblas.operation_transpose}
    if is_hermitian:
        ops["other"] = rocblas.operation_conjugate_transpose
    fill = rocblas.fill_upper if uplo == "upper" else rocblas.fill_lower
    factors = np.array([2, -3], np.zeros(1, wide).real.dtype)  # real, even for complex updates
    before = C.copy()
    with offload_args(In(A), C, In(factors), device=device) as (da, dc, df):
        alpha, beta = (2, -3) if scalars == "host" else (df[0:1], df[1:2])
        update = getattr(rocblas, name)
        compute = rocblas.datatype_f64_c if is_hermitian else np.dtype(wide)
        arguments = (fill, ops[op], n, k, alpha, da, A.dtype, A.shape[1], beta, dc, C.dtype, n + 2, compute)
        if has_rocblas((5, 3) if is_hermitian else (5, 2)):
            update(*arguments)
        else:
            words = f"has no rocblas_{name}: its version is .*; version 5.{3 if is_hermitian else 2} has it"
            with pytest.raises(LibraryVersionError, match=words):
                update(*arguments)
    if not has_rocblas((5, 3) if is_hermitian else (5, 2)):
        np.testing.assert_array_equal(C, before)
        return
    exact = a.astype(complex if is_hermitian else np.float64)
    full = 2 * exact @ (exact.conj().T if is_hermitian else exact.T) - 3 * c.astype(exact.dtype)
    if is_hermitian:
        np.fill_diagonal(full, full.diagonal().real)
    triangle = np.triu(np.ones((n, n), bool)) if uplo == "upper" else np.tril(np.ones((n, n), bool))
    np.testing.assert_array_equal(C[:, :n].T, np.where(triangle, full, c))
    np.testing.assert_array_equal(C[:, n:], 0)


@pytest.mark.parametrize("device", [HIP], indirect=True)
@pytest.mark.parametrize("form", EX_FORMS)
@pytest.mark.parametrize("dtypes", EX_DTYPES, ids="-".join)
def test_level_1_ex_is_numpys_in_the_dtypes_that_arguments_say(device: str, form: str, dtypes: tuple[str, str]) -> None:
    of, wide = dtypes
    n, count, real = 6, 2 if form else 1, np.zeros(1, of).real.dtype
    X, Y = whole(of, count, 2 * n), whole(of, count, n)
    x, y = X[:, ::2].copy(), Y.copy()
    dots, conjugated, norms = np.zeros((2, count), of), np.zeros(count, of), np.zeros(count, real)
    common = {"n": n, "incx": 2, "execution_type": wide}
    with offload_args(X, Y, dots, conjugated, norms, device=device) as (dX, dY, d_dots, d_conjugated, d_norms):
        vector, both = {"x": dX}, {"x": dX, "y": dY}
        result = "results" if form else "result"
        results = {"result_type": of, "incy": 1, **common}
        call_ex("dot", form, both, **{result: d_dots[0]}, **results)
        call_ex("dotc", form, both, **{result: d_conjugated}, **results)
        norm = wide if wide == "f4" else real
        call_ex("nrm2", form, vector, **{result: d_norms}, **common | {"result_type": real, "execution_type": norm})
        call_ex("axpy", form, both, alpha=2, alpha_type=of, incy=1, **common)
        call_ex("scal", form, vector, alpha=3, alpha_type=of, **common)
        call_ex("rot", form, both, c=2, s=1, cs_type=of, incy=1, **common)
    np.testing.assert_array_equal(dots[0], (x * y).sum(axis=1))
    np.testing.assert_array_equal(conjugated, (x.conj() * y).sum(axis=1))
    np.testing.assert_allclose(norms, np.sqrt((abs(x.astype("c16")) ** 2).sum(axis=1)), rtol=5e-3)
    x, y = 3 * x, 2 * x + y
    np.testing.assert_array_equal(X[:, ::2], 2 * x + y)
    np.testing.assert_array_equal(Y, 2 * y - x)


@pytest.mark.parametrize("device", [HIP], indirect=True)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("transa", "transb"), ["NN", "TN", "NT"])
def test_geam_ex_takes_the_least_of_sums_or_the_sum_of_the_lesser(
    device: str, dtype: str, transa: str, transb: str
) -> None:
    m, n, k, ops = 5, 4, 3, {"N": rocblas.operation_none, "T": rocblas.operation_transpose}
    A, B, C = whole(dtype, m, k), whole(dtype, k, n), whole(dtype, m, n)
    sums = 2 * (A[:, :, None] + B[None])
    lesser = np.minimum(2 * A[:, :, None], 2 * B[None])
    expected = {
        rocblas.geam_ex_operation_min_plus: np.minimum(sums.min(axis=1), 3 * C),
        rocblas.geam_ex_operation_plus_min: 3 * C + lesser.sum(axis=1),
    }
    a, b = (np.asfortranarray(X if op == "N" else X.T) for X, op in ((A, transa), (B, transb)))
    c, d = np.asfortranarray(C), np.zeros((m, n), dtype, "F")
    for operation, right in expected.items():
        with offload_args(In(a), In(b), In(c), d, device=device) as (da, db, dc, dd):
            types = {"a_type": dtype, "b_type": dtype, "c_type": dtype, "d_type": dtype, "compute_type": dtype}
            matrices = {"A": da, "lda": len(a), "B": db, "ldb": len(b), "C": dc, "ldc": m, "D": dd, "ldd": m}
            sizes = {"transa": ops[transa], "transb": ops[transb], "m": m, "n": n, "k": k, "alpha": 2, "beta": 3}
            rocblas.geam_ex(**sizes, **matrices, **types, geam_ex_op=operation)
        np.testing.assert_array_equal(d, right)


@pytest.mark.parametrize("device", [HIP], indirect=True)
@pytest.mark.parametrize("form", EX_FORMS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("case", ["left upper N", "left lower C", "right upper T", "right lower N unit"])
def test_trsm_ex_solves_what_numpy_solves(device: str, form: str, dtype: str, case: str) -> None:
    side, uplo, trans, *unit = case.split()
    m, n, count = 5, 3, 2 if form else 1
    order = m if side == "left" else n
    T = whole(dtype, count, order, order) + 20 * np.eye(order, dtype=dtype)
    T = np.triu(T) if uplo == "upper" else np.tril(T)
    if unit:
        T[:, range(order), range(order)] = 1
    op = {"N": T, "T": T.swapaxes(1, 2), "C": T.conj().swapaxes(1, 2)}[trans]
    X = whole(dtype, count, m, n)
    product = (op @ X if side == "left" else X @ op) / 2
    a, b = np.ascontiguousarray(T.swapaxes(1, 2)), np.ascontiguousarray(product.swapaxes(1, 2)).astype(dtype)
    inverses = np.zeros((count, 128 * order), dtype)
    with offload_args(In(a), b, In(inverses), device=device) as (da, db, di):
        options = {
            "side": getattr(rocblas, f"side_{side}"),
            "uplo": getattr(rocblas, f"fill_{uplo}"),
            "trans": {
                "N": rocblas.operation_none,
                "T": rocblas.operation_transpose,
                "C": rocblas.operation_conjugate_transpose,
            }[trans],
            "diag": rocblas.diagonal_unit if unit else rocblas.diagonal_non_unit,
        }
        sizes = {"m": m, "n": n, "alpha": 2, "lda": order, "ldb": m, "invA_size": 128 * order}
        call_ex("trsm", form, {"A": da, "B": db, "invA": di}, compute_type=dtype, **options, **sizes)
    np.testing.assert_allclose(b.swapaxes(1, 2), X, atol=1e-5)
