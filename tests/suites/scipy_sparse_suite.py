"""A plugin of pytest that computes SciPy's products and systems by offload_args.sparse, for SciPy's own tests.

    export OFFLOAD_ARGS_DEVICE=sim:0 PYTHONPATH=tests/suites
    python -m pytest -p scipy_sparse_suite --pyargs scipy.sparse.linalg._isolve.tests

tests/sparse/test_scipy_suite.py runs it. SciPy's solvers, such as cg, then multiply by the replacements. The plugin
replaces the products of csr, csc, bsr and coo matrices, `spsolve` and `spsolve_triangular`. It leaves to SciPy the
operands that `sparse` refuses: integers, other dtypes, and indices that do not rise; and products with bsr, whose
results are bsr in SciPy. Its last line has the numbers of calls.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import Counter
from typing import Any

import numpy as np
import scipy.sparse
from scipy.sparse import _bsr, _compressed, _coo
from scipy.sparse.linalg import _dsolve
from selection import leave_out

from offload_args import sparse
from offload_args.sparse._checks import arrays_of, check_indices

#: {pattern of tests that do not hold for offload_args: the reason is in the comment}.
OTHER = (
    # The result of a singular system is an exception, and SciPy's is a warning and NaN.
    r"TestLinsolve::test_singular",
    r"TestSplu::test_singular_matrix",
)
_VALUES = "fdFD"
_calls: Counter[str] = Counter()
_within = threading.local()  # SciPy computes for host and sim, too


def _takes(*operands: Any) -> bool:
    """Return whether sparse takes these operands."""
    for operand in operands:
        if operand.dtype.char not in _VALUES:
            return False
        if scipy.sparse.issparse(operand):
            try:
                check_indices("", operand, arrays_of("", operand))
            except (TypeError, ValueError):
                return False
    return True


def _replaced(original: Any, name: str, ours: Any) -> Any:
    @functools.wraps(original)
    def call(*operands: Any, **options: Any) -> Any:
        if getattr(_within, "call", False):
            return original(*operands, **options)
        result = NotImplemented
        _within.call = True
        try:
            result = ours(*operands, **options)
        finally:
            _within.call = False
        _calls[f"{name} by {'SciPy' if result is NotImplemented else 'offload_args'}"] += 1
        return original(*operands, **options) if result is NotImplemented else result

    return call


def _times_dense(A: Any, x: Any) -> Any:
    if not isinstance(x, np.ndarray) or not _takes(A, x):
        return NotImplemented
    return sparse.matmul(A, x, device=_device())


def _times_sparse(A: Any, x: Any) -> Any:
    if not (scipy.sparse.issparse(x) and len(A.shape) == len(x.shape) == 2):
        return NotImplemented
    x = x if x.format in ("csr", "csc", "coo", "bsr") else x.tocsr()
    if "bsr" in (A.format, x.format) or not _takes(A, x):
        return NotImplemented
    result = sparse.matmul(A, x, device=_device())
    return A._csc_container(result) if result.format == "csc" else A._csr_container(result)


def _solution(A: Any, b: Any, *args: Any, **options: Any) -> Any:
    if args or options.get("use_umfpack") or not scipy.sparse.issparse(A) or scipy.sparse.issparse(b):
        return NotImplemented
    b = np.asarray(b)
    square = len(A.shape) == 2 and A.shape[0] == A.shape[1]
    if not square or b.shape[:1] != A.shape[:1] or not _takes(A, b):
        return NotImplemented
    flat = b.ravel() if b.ndim == 2 and b.shape[1] == 1 else b
    return sparse.spsolve(A, flat, device=_device())


def _triangle(A: Any, b: Any, lower: bool = True, unit_diagonal: bool = False, **options: Any) -> Any:
    if not scipy.sparse.issparse(A) or len(A.shape) != 2 or A.shape[0] != A.shape[1]:
        return NotImplemented
    b = np.asarray(b)
    if b.shape[:1] != A.shape[:1] or not _takes(A, b):
        return NotImplemented
    other = scipy.sparse.triu(A, 1) if lower else scipy.sparse.tril(A, -1)
    if other.nnz:
        return NotImplemented  # SciPy refuses elements in the other triangle
    return sparse.spsolve_triangular(A, b, lower, unit_diagonal=unit_diagonal, device=_device())


def _device() -> str:
    return os.environ["OFFLOAD_ARGS_DEVICE"]


def pytest_configure() -> None:
    for cls in (_compressed._cs_matrix, _bsr._bsr_base, _coo._coo_base):
        for method, ours in (
            ("_matmul_vector", _times_dense),
            ("_matmul_multivector", _times_dense),
            ("_matmul_sparse", _times_sparse),
        ):
            if method in vars(cls):
                setattr(cls, method, _replaced(vars(cls)[method], "matmul", ours))
    for name, ours in (("spsolve", _solution), ("spsolve_triangular", _triangle)):
        replacement = _replaced(getattr(_dsolve.linsolve, name), name, ours)
        for module in (_dsolve, _dsolve.linsolve, scipy.sparse.linalg):
            setattr(module, name, replacement)


pytest_collection_modifyitems = leave_out(OTHER)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(", ".join(f"{count} {name}" for name, count in sorted(_calls.items())))
