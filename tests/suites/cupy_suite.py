"""A plugin of pytest that runs CuPy's own tests of cupy.linalg over offload_args.linalg, without CuPy.

    export OFFLOAD_ARGS_DEVICE=sim:0 PYTHONPATH=tests/suites
    python -m pytest -p cupy_suite <a checkout of CuPy>/tests/cupy_tests/linalg_tests

A module with the name cupy stands for CuPy: NumPy's functions, the functions of offload_args.linalg, and the decorators
of cupy.testing that these tests use. NumPy's functions that call others, such as pinv and cond, call the replacements.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import itertools
import os
import sys
import types
import unittest
from typing import Any

import numpy as np
import pytest
from selection import leave_out

from offload_args import Out, lapack, linalg, offload_args

#: {pattern of tests that do not hold for offload_args: the reason}.
OTHER = {
    r"MatrixPower::test_matrix_power_(0|1|2|3|large|of_two)$": "integers and float16 are refused",
    r"LinalgMatmul2D": "integers and float16 are refused",
    r"SymEigenvalue::test_eigh$": "float16 is refused",
    r"test_(3d|4d|5d)_eig$|test_real_to_real|test_mixed_real_complex": "they call a method of CuPy's arrays",
    r"test_matrix_rank$": "it needs results of CuPy's class of arrays",
    r"test_solve_singular_empty$": "NumPy raises LinAlgError for a singular matrix here, and so does linalg",
}
calls = 0


def device() -> str:
    return os.environ["OFFLOAD_ARGS_DEVICE"]


def counted(function: Any) -> Any:
    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        global calls
        calls += 1
        return function(*arguments, **options)

    return call


def eig(a: Any, vectors: bool = True) -> Any:
    """Return eigenvalues and vectors by lapack.geev, with the results of numpy.linalg.eig."""
    a = np.asarray(a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise np.linalg.LinAlgError("square matrices are needed")
    kind = np.result_type(a, np.float32) if a.dtype.kind in "fc" else np.dtype(np.float64)
    wide = np.result_type(kind, np.complex64)
    A = np.array(a.swapaxes(-1, -2), kind, order="C").swapaxes(-1, -2)
    w, V = np.zeros(a.shape[:-1], wide), np.zeros(a.shape, wide).swapaxes(-1, -2)
    with offload_args(A, Out(w), Out(V), device=device()) as (dA, dw, dV):
        lapack.geev(dA, dw, VR=dV)
    if kind.kind == "f" and not w.imag.any():
        w, V = w.real.copy(), V.real.copy()
    return (w, V) if vectors else w


def second_linalg() -> Any:
    """Return a copy of NumPy's module of linear algebra, whose functions call the replacements."""
    spec = importlib.util.find_spec("numpy.linalg._linalg")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in linalg.__all__:
        value = getattr(linalg, name)
        if hasattr(module, name) and not isinstance(value, type):
            setattr(module, name, counted(value))
    module.eig = counted(eig)  # type: ignore[attr-defined]
    module.eigvals = counted(functools.partial(eig, vectors=False))  # type: ignore[attr-defined]
    module.LinAlgError = np.linalg.LinAlgError  # type: ignore[attr-defined]
    return module


# -- cupy.testing ----------------------------------------------------------------------------------------------------


def both(compare: Any, name: str = "xp", accept_error: Any = False, sp_name: str | None = None) -> Any:
    """Call a test with NumPy and with the stand-in, and compare the results.

    sp_name: the name of the parameter that is scipy.sparse, or what stands for cupyx.scipy.sparse.
    """

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def call(*arguments: Any, **options: Any) -> None:
            outcomes: list[Any] = []
            for module, of_scipy in ((np, "scipy.sparse"), (cupy, "cupyx.scipy.sparse")):
                modules = {name: module} | ({sp_name: sys.modules[of_scipy]} if sp_name else {})
                try:
                    outcomes.append(test(*arguments, **options, **modules))
                except Exception as error:
                    if not accept_error:
                        raise
                    outcomes.append(error)
            expected, actual = outcomes
            if isinstance(expected, Exception) or isinstance(actual, Exception):
                assert isinstance(expected, Exception) and isinstance(actual, Exception), outcomes
                return
            several = isinstance(expected, (tuple, list))
            pairs = zip(expected, actual, strict=True) if several else [(expected, actual)]
            for wanted, computed in pairs:
                compare(computed, wanted)

        hide(call, *filter(None, (name, sp_name)))
        return call

    return decorate


def dense(value: Any) -> Any:
    """Return an array of a result, which may be a sparse matrix."""
    return value.toarray() if hasattr(value, "toarray") else np.asarray(value)


def hide(call: Any, *names: str) -> None:
    """Remove parameters from a test's signature, which pytest reads."""
    signature = inspect.signature(call)
    kept = [parameter for parameter in signature.parameters.values() if parameter.name not in names]
    call.__signature__ = signature.replace(parameters=kept)


def numpy_cupy_allclose(
    rtol: Any = 1e-7,
    atol: Any = 0,
    err_msg: str = "",
    verbose: bool = True,
    name: str = "xp",
    type_check: bool = True,
    accept_error: Any = False,
    sp_name: str | None = None,
    **others: Any,
) -> Any:
    def tolerance(value: Any, dtype: Any) -> float:
        if not isinstance(value, dict):
            return float(value)
        return float(
            next(
                (each for key, each in value.items() if key != "default" and np.dtype(key) == dtype),
                value.get("default", 1e-7),
            )
        )

    def compare(actual: Any, expected: Any) -> None:
        assert getattr(actual, "format", None) == getattr(expected, "format", None)  # of sparse matrices
        actual, expected = dense(actual), dense(expected)
        assert actual.shape == expected.shape
        if type_check:
            assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
        kind = expected.dtype
        np.testing.assert_allclose(
            actual,
            expected,
            rtol=max(tolerance(rtol, kind), 1e-6 if kind.char in "fF" else 0),
            atol=max(tolerance(atol, kind), 1e-6 if kind.char in "fF" else 1e-12),
        )

    return both(compare, name, accept_error, sp_name)


def numpy_cupy_array_equal(
    err_msg: str = "", verbose: bool = True, name: str = "xp", sp_name: str | None = None, **others: Any
) -> Any:
    def compare(actual: Any, expected: Any) -> None:
        np.testing.assert_array_equal(dense(actual), dense(expected))

    return both(compare, name, others.get("accept_error", False), sp_name)


def for_dtypes(dtypes: Any, name: str = "dtype") -> Any:
    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def call(*arguments: Any, **options: Any) -> None:
            for dtype in dtypes:
                test(*arguments, **options, **{name: np.dtype(dtype).type})

        hide(call, name)
        return call

    return decorate


INTEGERS, FLOATS, COMPLEX = "bhilqBHILQ", "fd", "FD"


def for_all_dtypes(
    name: str = "dtype", no_float16: bool = False, no_bool: bool = False, no_complex: bool = False
) -> Any:
    return for_dtypes(chosen(no_float16, no_bool, no_complex), name)


def chosen(no_float16: bool = False, no_bool: bool = False, no_complex: bool = False) -> str:
    return ("" if no_complex else COMPLEX) + FLOATS + ("" if no_float16 else "e") + INTEGERS + ("" if no_bool else "?")


def for_all_dtypes_combination(names: Any = ("dtype",), full: Any = None, **others: Any) -> Any:
    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def call(*arguments: Any, **options: Any) -> None:
            dtypes = [np.dtype(char).type for char in chosen(**others)]
            for pair in itertools.product(dtypes, repeat=len(names)):
                test(*arguments, **options, **dict(zip(names, pair, strict=True)))

        hide(call, *names)
        return call

    return decorate


def parameterize(*cases: dict[str, Any], **others: Any) -> Any:
    """Run each test of a class for each case, whose values are attributes."""

    def each(test: Any) -> Any:
        @functools.wraps(test)
        def call(self: Any, *arguments: Any, **options: Any) -> None:
            for case in cases:
                for key, value in case.items():
                    setattr(self, key, value)
                for before in ("setUp", "setup_method"):
                    getattr(self, before, lambda: None)()
                try:
                    test(self, *arguments, **options)
                except pytest.skip.Exception:
                    continue
                finally:
                    for after in ("tearDown", "teardown_method"):
                        getattr(self, after, lambda: None)()

        return call

    def decorate(of: Any) -> Any:
        for name, test in list(vars(of).items()):
            if name.startswith("test"):
                setattr(of, name, each(test))
        before = {name: getattr(of, name) for name in ("setUp", "setup_method") if name in vars(of)}
        for name in before:  # unittest calls it before the case is known
            setattr(of, name, lambda self, own=before[name]: own(self) if hasattr(self, next(iter(cases[0]))) else None)
        return of

    return decorate


def parameterize_apart(*cases: dict[str, Any], **others: Any) -> Any:
    """Run each test of a class for each case, whose values are attributes, as a test of its own."""

    def decorate(of: Any) -> Any:
        if issubclass(of, unittest.TestCase):
            return parameterize(*cases)(of)
        ids = ["-".join(f"{key}={getattr(value, '__name__', value)}" for key, value in case.items()) for case in cases]
        return pytest.mark.parametrize("cupys_case", cases, ids=ids, indirect=True)(of)

    return decorate


@pytest.fixture(autouse=True)
def cupys_case(request: pytest.FixtureRequest) -> None:
    for key, value in getattr(request, "param", {}).items():
        setattr(request.instance, key, value)


def product(options: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]


def shaped_arange(shape: Any, xp: Any = np, dtype: Any = np.float32, order: str = "C") -> Any:
    dtype = np.dtype(dtype)
    values = np.arange(1, int(np.prod(shape)) + 1)
    if dtype == np.dtype(bool):
        values = values % 2 == 0
    elif dtype.kind == "c":
        values = values + values * 1j
    return np.array(values.astype(dtype).reshape(shape), order=order)  # type: ignore[call-overload]


def shaped_reverse_arange(shape: Any, xp: Any = np, dtype: Any = np.float32) -> Any:
    return shaped_arange(shape, xp, dtype).reshape(-1)[::-1].reshape(shape).copy()


def shaped_random(
    shape: Any, xp: Any = np, dtype: Any = np.float32, scale: float = 10, seed: int = 0, order: str = "C"
) -> Any:
    random, dtype = np.random.RandomState(seed), np.dtype(dtype)
    if dtype == np.dtype(bool):
        return random.randint(2, size=shape).astype(bool)
    values = random.rand(*shape) + 1j * random.rand(*shape) if dtype.kind == "c" else random.rand(*shape)
    return np.array((values * scale).astype(dtype), order=order)  # type: ignore[call-overload]


def retry(times: int) -> Any:
    """Repeat a test of random matrices, which may be singular."""

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def call(*arguments: Any, **options: Any) -> None:
            for left in reversed(range(times)):
                try:
                    test(*arguments, **options)
                    return
                except (AssertionError, np.linalg.LinAlgError):
                    if not left:
                        raise

        return call

    return decorate


def unchanged(*arguments: Any, **options: Any) -> Any:
    return lambda test: test


def stand_in(name: str, **values: Any) -> Any:
    module = types.ModuleType(name)
    module.__dict__.update(values)
    sys.modules[name] = module
    return module


class Cupy(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


cupy: Any = Cupy("cupy")
sys.modules["cupy"] = cupy
cupy.linalg = second_linalg()
sys.modules["cupy.linalg"] = cupy.linalg
cupy.linalg._util = stand_in(
    "cupy.linalg._util",
    stacked_identity=lambda batch, n, dtype: np.broadcast_to(np.eye(n, dtype=dtype), (*batch, n, n)),
)
condition = stand_in("cupy.testing._condition", repeat=unchanged, retry=retry)
tools = (numpy_cupy_allclose, numpy_cupy_array_equal, for_dtypes, for_all_dtypes, for_all_dtypes_combination)
cupy.testing = stand_in(
    "cupy.testing",
    **{function.__name__: function for function in (*tools, parameterize, product, shaped_arange)},
    shaped_reverse_arange=shaped_reverse_arange,
    shaped_random=shaped_random,
    fix_random=unchanged,
    with_requires=unchanged,
    _condition=condition,
    assert_allclose=lambda a, b, **o: np.testing.assert_allclose(a, b, **({"rtol": 1e-6, "atol": 1e-5} | o)),
    assert_array_equal=np.testing.assert_array_equal,
    assert_array_almost_equal=np.testing.assert_array_almost_equal,
    numpy_cupy_equal=numpy_cupy_array_equal,
    generate_seed=lambda: 3,
    for_float_dtypes=lambda name="dtype", no_float16=False: for_dtypes(FLOATS + ("" if no_float16 else "e"), name),
    for_complex_dtypes=lambda name="dtype": for_dtypes(COMPLEX, name),
)
cupy.cuda = stand_in(
    "cupy.cuda",
    runtime=stand_in("cupy.cuda.runtime", is_hip=False),
    driver=stand_in("cupy.cuda.driver", get_build_version=lambda: 12000),
)
cupy.asnumpy = np.asarray
cupy.cublas = stand_in("cupy.cublas", get_batched_gesv_limit=lambda: 0, set_batched_gesv_limit=lambda limit: None)
solver = stand_in("cupyx.cusolver", check_availability=lambda name: True)
stand_in("cupyx", cusolver=solver, errstate=lambda **options: contextlib.nullcontext(), __path__=[])


def pytest_runtest_setup() -> None:
    np.random.seed(0)


pytest_collection_modifyitems = leave_out(OTHER)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"{calls} calls of linalg and lapack")
