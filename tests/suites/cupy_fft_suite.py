"""A plugin of pytest that runs CuPy's own tests of cupyx.scipy.fft and cupy.fft over offload_args.fft, without CuPy.

    export OFFLOAD_ARGS_DEVICE=sim:0 PYTHONPATH=tests/suites
    cd <a checkout of CuPy>/tests
    python -m pytest -p cupy_fft_suite cupyx_tests/scipy_tests/fft_tests/test_fft.py cupy_tests/fft_tests/test_fft.py

tests/suites/cupy_suite.py has the module that stands for CuPy. Each test compares the functions of offload_args
with the functions of SciPy or NumPy, for all its shapes, norms and dtypes; a test of errors needs an error of both.
"""

from __future__ import annotations

import functools
import itertools
import types
import warnings
from typing import Any

import cupy_suite
import numpy as np
from cupy_suite import cupys_case  # noqa: F401
from selection import leave_out

from offload_args import fft

#: {pattern of tests that do not hold for offload_args: the reason}.
OTHER = {
    r"_plan(_manager)?\b": "they pass plans, which are CuPy's own",
    r"MultiGpu|PlanCtx|DefaultPlanType|nContiguity|FftAllocate|Threading": "they use CuPy's plans and settings",
    r"axes=\(\)": "NumPy returns its operand, and fft a copy",
    r"EmptyAxes": "NumPy raises IndexError for no axes, and SciPy and fft raise ValueError",
    r"TestFftfreq|TestFftshift": "these functions compute no transform",
    r"_backend\b": "they pass a module of CuPy to scipy.fft.set_backend",
}


def product_dict(*lists: Any) -> list[dict[str, Any]]:
    """Return each union of one dictionary of each list."""
    return [{key: value for part in parts for key, value in part.items()} for parts in itertools.product(*lists)]


def _transform(name: str) -> Any:
    function = getattr(fft, name)

    def call(*arguments: Any, **options: Any) -> Any:
        return function(*arguments, **options, device=cupy_suite.device())

    return cupy_suite.counted(call)


def _of_numpy(name: str) -> Any:
    """Return a function that leaves float16 to NumPy, whose results are float16, and SciPy's and fft's float32."""

    def call(x: Any, *arguments: Any, **options: Any) -> Any:
        function = getattr(np.fft, name) if x.dtype == np.float16 else functions[name]
        return function(x, *arguments, **options)

    return call


def for_orders(orders: str, name: str = "order") -> Any:
    """Run a test for each order of memory."""

    def decorate(test: Any) -> Any:
        @_hidden(test, name)
        def call(*arguments: Any, **options: Any) -> None:
            for order in orders:
                test(*arguments, **options, **{name: order})

        return call

    return decorate


def _hidden(test: Any, *names: str) -> Any:
    """Return a decorator of a function that gives these parameters to a test."""

    def decorate(function: Any) -> Any:
        function = functools.wraps(test)(function)
        cupy_suite.hide(function, *names)
        return function

    return decorate


class _Config(types.ModuleType):
    """CuPy's settings. Reading and writing this one is deprecated; the tests expect the warning."""

    @property
    def enable_nd_planning(self) -> bool:
        warnings.warn("enable_nd_planning", DeprecationWarning, stacklevel=2)
        return True

    @enable_nd_planning.setter
    def enable_nd_planning(self, value: bool) -> None:
        warnings.warn("enable_nd_planning", DeprecationWarning, stacklevel=2)


cupy, stand_in = cupy_suite.cupy, cupy_suite.stand_in
cupy.testing.product_dict = product_dict
cupy.testing.multi_gpu, cupy.testing.slow = cupy_suite.unchanged, cupy_suite.unchanged()
cupy.testing.for_orders = for_orders
cupy.testing.parameterize = cupy_suite.parameterize_apart
cupy.cuda.runtime.runtimeGetVersion = lambda: 12000
cupy.cuda.device = stand_in("cupy.cuda.device", get_compute_capability=lambda: "90")
functions = {name: _transform(name) for name in fft.__all__}
of_numpy = {name: _of_numpy(name) for name in ("hfft", "irfft", "irfft2", "irfftn")}
cupy.fft = stand_in("cupy.fft", **functions | of_numpy, config=_Config("cupy.fft.config"))
cupy.fft._fft = stand_in("cupy.fft._fft", _default_fft_func=None, _fft=None, _fftn=None, _size_last_transform_axis=None)
cupy.testing._loops = stand_in("cupy.testing._loops", _wraps_partial=_hidden)
scipy = stand_in("cupyx.scipy", __path__=[])
scipy.fft = stand_in("cupyx.scipy.fft", **functions)


pytest_collection_modifyitems = leave_out(OTHER)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"{cupy_suite.calls} calls of fft")
