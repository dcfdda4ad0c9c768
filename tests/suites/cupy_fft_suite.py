"""A plugin of pytest that runs CuPy's own tests of cupyx.scipy.fft over offload_args.fft, without CuPy.

    export OFFLOAD_ARGS_DEVICE=sim:0 PYTHONPATH=tests/suites
    python -m pytest -p cupy_fft_suite <a checkout of CuPy>/tests/cupyx_tests/scipy_tests/fft_tests/test_fft.py

tests/suites/cupy_suite.py has the module that stands for CuPy. Each test compares the functions of offload_args
with the functions of SciPy, for all its shapes, norms and dtypes; a test of errors needs an error of both.
"""

from __future__ import annotations

import itertools
from typing import Any

import cupy_suite
from selection import leave_out

from offload_args import fft

#: {pattern of tests that do not hold for offload_args: the reason}.
OTHER = {
    r"_plan(_manager)?$": "they pass plans, which are CuPy's own",
    r"_backend$": "they pass a module of CuPy to scipy.fft.set_backend",
}


def product_dict(*lists: Any) -> list[dict[str, Any]]:
    """Return each union of one dictionary of each list."""
    return [{key: value for part in parts for key, value in part.items()} for parts in itertools.product(*lists)]


def _transform(name: str) -> Any:
    function = getattr(fft, name)

    def call(*arguments: Any, **options: Any) -> Any:
        return function(*arguments, **options, device=cupy_suite.device())

    return cupy_suite.counted(call)


cupy, stand_in = cupy_suite.cupy, cupy_suite.stand_in
cupy.testing.product_dict = product_dict
cupy.cuda.runtime.runtimeGetVersion = lambda: 12000
cupy.cuda.device = stand_in("cupy.cuda.device", get_compute_capability=lambda: "90")
cupy.fft = stand_in("cupy.fft")
cupy.fft._fft = stand_in("cupy.fft._fft", _default_fft_func=None, _fftn=None)
scipy = stand_in("cupyx.scipy", __path__=[])
scipy.fft = stand_in("cupyx.scipy.fft", **{name: _transform(name) for name in fft.__all__})


pytest_collection_modifyitems = leave_out(OTHER)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"{cupy_suite.calls} calls of fft")
