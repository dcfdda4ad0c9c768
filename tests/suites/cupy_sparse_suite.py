r"""A plugin of pytest that runs CuPy's own tests of cuSPARSE and sparse matrices over offload_args.sparse, without
CuPy.

    export OFFLOAD_ARGS_DEVICE=sim:0 PYTHONPATH=tests/suites
    cd <a checkout of CuPy>/tests
    python -m pytest -p cupy_sparse_suite cupyx_tests/test_cusparse.py cupyx_tests/scipy_tests/sparse_tests \
      cupyx_tests/linalg_tests/sparse_tests

tests/suites/cupy_suite.py has the module that stands for CuPy. The classes of `cupyx.scipy.sparse` are SciPy's, whose
products and conversions call offload_args; SciPy's solvers, such as cg, then multiply by offload_args. The functions of
`cupyx.cusparse` take pointers of lent arrays. Integers are left to SciPy, because `sparse` has no integers. Only tests
of products, conversions and systems are taken; the last line has the numbers of tests and calls. CuPy's tests are in
its repository, and not in its wheels; where CuPy is installed, it is not imported.
"""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import cupy_suite
import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from cupy_suite import cupys_case  # noqa: F401
from selection import leave_out

from offload_args import offload_args, sparse

_OF_MATRICES = r"::test_(r?mul|dot|matmul|to(array|csr|csc|coo)|pow|init_dense)"
_FILES = r"test_(cusparse|linalg|csr|csc|coo|sparray|sparse_int64_indices|solve)\.py"
#: Patterns of the tests that are taken.
TAKEN = (
    r"test_cusparse\.py::Test(Csrmm|Csrmv|Csrgemm|Spgemm|Spmv|Spmm|ErrorSp|Csrsm2|SparseMatrixConversion|Spsm)",
    r"sparse_tests/test_linalg\.py::Test(Cgs?|Bicgstab|Gmres|GmresInfo|Minres|Lsmr|Lsqr|LinearOperator)\b",
    r"sparse_tests/test_linalg\.py::Test(SpsolveTriangular|Csrlsvqr|SpSolve|Splu::test_factorized)",
    r"sparse_tests/test_linalg\.py::Test(Eigsh|Svds)::test_sparse",
    r"sparse_tests/test_(csr|csc|coo)\.py.*" + _OF_MATRICES,
    r"sparse_tests/test_sparray\.py::Test(CsrArrayMatmul|SpsolveArray|LinearOperatorFromArray|SparseArrayConversions)",
    r"sparse_tests/test_sparse_int64_indices\.py::TestInt64SpGEMM(CscDispatch|::test_spgemm_int32)",
    r"sparse_tests/test_solve\.py",
)
#: {pattern of tests that do not hold for offload_args: the reason}.
OTHER = {
    r"test_csrgemm2_abpd|Csrgemm2InvalidCases::test_csrgemm2_invalid_shape": "they add a third matrix",
    r"(Spgemm|Csrgemm2)InvalidCases::test_\w+_invalid_format": "they expect that csc matrices are refused",
    r"TestErrorSpmm": "they expect that matrices by rows are refused",
    r"Test(Cgs?|Bicgstab|Gmres)::test_invalid": "they give SciPy an argument that only CuPy takes",
    r"TestSpsolveTriangular::test_invalid_cases": "they expect that NumPy's arrays are refused, which are CuPy's here",
    r"test_(conversion_type_and_format|array_transpose_type)\[dia": "they expect that CuPy has no conversion to dia",
}
calls: Counter[str] = Counter()
_tests_with_calls: set[str] = set()


def _call(function: Any, *operands: Any, **options: Any) -> Any:
    calls[function.__name__] += 1
    _tests_with_calls.add(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0])
    return function(*operands, **options)


# -- cupyx.scipy.sparse ----------------------------------------------------------------------------------------------


def _is_taken(*operands: Any) -> bool:
    return all(operand.dtype.char in "fdFD" for operand in operands)


def _canonical(A: Any) -> Any:
    """Return A, or a copy whose indices rise, as CuPy makes for cuSPARSE."""
    if A.format != "bsr" and not A.has_canonical_format:
        A = A.copy()
        A.sum_duplicates()
    return A


class OnDevice:
    """The products and conversions of a class of SciPy, by offload_args."""

    def _matmul_vector(self: Any, x: Any) -> Any:
        return self._times_dense(x, super()._matmul_vector)

    def _matmul_multivector(self: Any, x: Any) -> Any:
        return self._times_dense(x, super()._matmul_multivector)

    def _times_dense(self: Any, x: Any, original: Any) -> Any:
        if len(self.shape) != 2 or not _is_taken(self, x):
            return original(x)
        return _call(sparse.matmul, _canonical(self), np.asarray(x), device=cupy_suite.device())

    def _matmul_sparse(self: Any, x: Any) -> Any:
        if len(self.shape) != 2 or len(x.shape) != 2 or not _is_taken(self, x):
            return super()._matmul_sparse(x)  # type: ignore[misc]
        x = x if x.format in ("csr", "csc", "coo") else scipy.sparse.csr_array(x)
        result = _call(sparse.matmul, _canonical(self), _canonical(x), device=cupy_suite.device())
        return self._csc_container(result) if result.format == "csc" else self._csr_container(result)

    def _converted(self: Any, form: str) -> Any:
        with sparse.lend(_canonical(self), device=cupy_suite.device()) as dA:
            return _call(sparse.convert, dA, form).to_host()

    def toarray(self: Any, order: Any = None, out: Any = None) -> Any:
        if out is not None or order not in (None, "C", "F") or len(self.shape) != 2 or not _is_taken(self):
            return super().toarray(order, out)  # type: ignore[misc]
        return np.asarray(self._converted("dense"), order=order)

    def _to(self: Any, form: str, original: Any, **copy: bool) -> Any:
        if form == self.format or len(self.shape) != 2 or not _is_taken(self) or not self.has_canonical_format:
            return original(**copy)
        return getattr(self, f"_{form}_container")(self._converted(form))

    def tocsr(self: Any, **copy: bool) -> Any:
        return self._to("csr", super().tocsr, **copy)  # type: ignore[misc]

    def tocsc(self: Any, **copy: bool) -> Any:
        return self._to("csc", super().tocsc, **copy)  # type: ignore[misc]

    def tocoo(self: Any, **copy: bool) -> Any:
        return self._to("coo", super().tocoo, **copy)  # type: ignore[misc]

    @classmethod
    def _from_parts(cls: Any, data: Any, first: Any, second: Any, shape: Any, **known: bool) -> Any:
        """Return a matrix with these arrays; SciPy's constructor would narrow the indices."""
        is_coo = cls._format == "coo"
        matrix = cls((data, (first, second)) if is_coo else (data, first, second), shape=shape)
        if is_coo:
            matrix.coords = first, second
        else:
            matrix.indices, matrix.indptr = first, second
        return matrix


def _classes(kind: str) -> dict[str, Any]:
    """Return the classes "csr_matrix" and so on, or "csr_array" and so on, which make each other."""
    classes: dict[str, Any] = {}
    containers = {
        f"_{form}_container": property(lambda self, form=form: classes[f"{form}_{kind}"])
        for form in ("csr", "csc", "coo")
    }
    for form in ("csr", "csc", "coo"):
        name = f"{form}_{kind}"
        classes[name] = type(name, (OnDevice, getattr(scipy.sparse, name)), containers)
    return classes


def spsolve(A: Any, b: Any) -> Any:
    A = A if scipy.sparse.issparse(A) else scipy.sparse.csr_array(A)
    return _call(sparse.spsolve, _canonical(A), b, device=cupy_suite.device())


def spsolve_triangular(
    A: Any,
    b: Any,
    lower: bool = True,
    overwrite_A: bool = False,
    overwrite_b: bool = False,
    unit_diagonal: bool = False,
) -> Any:
    A = _canonical(A) if scipy.sparse.issparse(A) else A
    return _call(sparse.spsolve_triangular, A, b, lower, unit_diagonal=unit_diagonal, device=cupy_suite.device())


# -- cupyx.cusparse --------------------------------------------------------------------------------------------------


class Array(np.ndarray):
    """An array with the method of CuPy's arrays that the tests call."""

    def get(self) -> Any:
        return np.asarray(self)


def _product(a: Any, b: Any, c: Any, alpha: Any, beta: Any, transa: bool, transb: bool) -> Any:
    """Return alpha op(a) op(b) + beta c, written to c if c is an array."""
    of_a, of_b = a.shape[:: -1 if transa else 1], b.shape[:: -1 if transb else 1]
    result = np.empty((of_a[0], *of_b[1:]), a.dtype, order="F") if c is None else c
    with sparse.lend(a, device=cupy_suite.device()) as dA, offload_args(b, result, device=cupy_suite.device()) as lent:
        db, dc = lent
        options = {"out": dc, "alpha": alpha, "beta": beta, "trans": "T" if transa else "N"}
        _call(sparse.matmul, dA, db.T if transb else db, **options)
    return result


def spmm(
    a: Any, b: Any, c: Any = None, alpha: Any = 1, beta: Any = 0, transa: bool = False, transb: bool = False
) -> Any:
    return _product(a, b, c, alpha, beta, transa, transb)


def spmv(a: Any, x: Any, y: Any = None, alpha: Any = 1, beta: Any = 0, transa: bool = False) -> Any:
    return _product(a, x, y, alpha, beta, transa, False)


def spgemm(a: Any, b: Any, alpha: Any = 1) -> Any:
    if a.shape[0] == b.shape[1] == 100_000:
        pytest.skip("the product has 10^10 elements")
    with sparse.lend(a, device=cupy_suite.device()) as dA, sparse.lend(b, device=cupy_suite.device()) as dB:
        return _call(sparse.matmul, dA, dB, alpha=alpha).to_host()


def csrgemm(a: Any, b: Any, transa: bool = False, transb: bool = False) -> Any:
    with sparse.lend(a, device=cupy_suite.device()) as dA, sparse.lend(b, device=cupy_suite.device()) as dB:
        return _call(sparse.matmul, dA.T if transa else dA, dB.T if transb else dB).to_host()


def spsm(a: Any, b: Any, alpha: Any = 1.0, lower: bool = True, unit_diag: bool = False, transa: Any = False) -> Any:
    x = np.empty_like(b)
    trans = {False: "N", True: "T", "H": "C"}.get(transa, transa)
    with sparse.lend(a, device=cupy_suite.device()) as dA, offload_args(b, x, device=cupy_suite.device()) as (db, dx):
        options = {"unit_diagonal": unit_diag, "trans": trans, "out": dx}
        _call(sparse.spsolve_triangular, dA, db, lower, **options)
    return (x * a.dtype.type(alpha)).view(Array)


def csrsm2(a: Any, b: Any, blocking: bool = True, level_info: bool = True, **options: Any) -> None:
    b[...] = spsm(a, b, **options)


def denseToSparse(x: Any, format: str = "csr") -> Any:
    with offload_args(x, device=cupy_suite.device()) as (dx,):
        return _call(sparse.convert, dx, format).to_host()


def sparseToDense(x: Any) -> Any:
    with sparse.lend(_canonical(x), device=cupy_suite.device()) as dx:
        return _call(sparse.convert, dx, "dense").to_host()


# -- the modules -----------------------------------------------------------------------------------------------------

cupy, stand_in = cupy_suite.cupy, cupy_suite.stand_in
functions = {
    "spmv": spmv,
    "csrmv": spmv,
    "spmm": spmm,
    "csrmm": spmm,
    "csrmm2": spmm,
    "spgemm": spgemm,
    "csrgemm": csrgemm,
    "csrgemm2": spgemm,
    "csrsm2": csrsm2,
    "spsm": spsm,
    "denseToSparse": denseToSparse,
    "sparseToDense": sparseToDense,
}


def _beside(name: str, module: Any, **values: Any) -> Any:
    """Return a module that has the names of another module, except for these values."""
    return stand_in(name, **{key: getattr(module, key) for key in dir(module) if key[:2] != "__"} | values)


def _random(*arguments: Any, **options: Any) -> Any:
    result = scipy.sparse.random(*arguments, **options)
    return classes[f"{result.format}_matrix"](result)


cupy.testing.parameterize = cupy_suite.parameterize_apart
cupy.testing.slow = cupy_suite.unchanged()
cupy.testing.assert_warns = np.testing.assert_warns
cupy.cuda.driver.get_build_version = cupy.cuda.runtime.runtimeGetVersion = lambda: 13000
cupy.cuda.cusolver = stand_in("cupy.cuda.cusolver", _getVersion=lambda: (12, 0, 0))
classes = _classes("matrix") | _classes("array")
stand_in("cupy_backends", __path__=[])
stand_in("cupy_backends.cuda", __path__=[])
stand_in("cupy_backends.cuda.api", runtime=cupy.cuda.runtime, driver=cupy.cuda.driver)
stand_in("cupy_backends.cuda.libs", cusparse=stand_in("cupy_backends.cuda.libs.cusparse"))
cusparse = stand_in("cupyx.cusparse", **functions, check_availability=functions.__contains__, getVersion=lambda: 13000)
solvers = _beside(
    "cupyx.scipy.sparse.linalg",
    scipy.sparse.linalg,
    spsolve=spsolve,
    spsolve_triangular=spsolve_triangular,
    factorized=lambda A: functools.partial(spsolve, A),
)
matrices = _beside("cupyx.scipy.sparse", scipy.sparse, **classes, linalg=solvers, random=_random, __path__=[])
of_scipy = stand_in("cupyx.scipy", sparse=matrices, __path__=[])
systems = stand_in("cupyx.linalg.sparse", lschol=spsolve)
cusolver = stand_in("cupyx.cusolver", check_availability=lambda name: True, csrlsvqr=lambda A, b, **o: spsolve(A, b))
stand_in("cupyx", cusolver=cusolver, cusparse=cusparse, scipy=of_scipy, __path__=[]).linalg = stand_in(
    "cupyx.linalg", sparse=systems, __path__=[]
)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files of other tests, some of which import modules that the stand-in lacks."""
    name = collection_path.name
    return True if name.startswith("test_") and not re.fullmatch(_FILES, name) else None


pytest_collection_modifyitems = leave_out([rf"^(?!.*({'|'.join(TAKEN)}))", *OTHER])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    listed = ", ".join(f"{name} {count}" for name, count in sorted(calls.items()))
    terminalreporter.write_line(f"{len(_tests_with_calls)} tests made {calls.total()} calls of sparse: {listed}")
