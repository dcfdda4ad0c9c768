"""A plugin of pytest that computes SciPy's transforms by offload_args.fft, for SciPy's own tests.

    export OFFLOAD_ARGS_DEVICE=sim:0 PYTHONPATH=tests/suites
    python -m pytest -p scipy_fft_suite --pyargs scipy.fft.tests.test_basic

tests/fft/test_scipy_suite.py runs it. SciPy's modules, such as scipy.fftpack and scipy.signal, then compute by the
replacements, too. SciPy's own functions do the rest: cosine and sine transforms. If
offload_args refuses a call, SciPy has to raise an error of the same kind, and the test gets SciPy's error; otherwise
the test gets the error of offload_args. The last line has the numbers of calls.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import Counter
from typing import Any

from scipy.fft import _basic_backend
from selection import leave_out

from offload_args import fft
from offload_args.errors import OffloadError

try:
    from scipy.fft import _duccfft as engine
except ImportError:  # before SciPy 1.18
    from scipy.fft import _pocketfft as engine

#: {pattern of tests that do not hold for offload_args: the reason}. docs/guide/fft.md states the same.
OTHER = {
    r"longdouble": "longdouble is refused",
    r"LongDouble(FFT::test_(def|n_arg)|IFFT::test_(def|djbfft|random|size))": "longdouble is refused",
    r"TestRFFTLongDouble::test_definition": "longdouble is refused",
    r"test_multiprocess|test_mixed_threads_processes": "SciPy computes in the new processes of these tests",
}
_calls: Counter[str] = Counter()
_tests_with_calls: set[str] = set()
_within = threading.local()  # SciPy computes for host and sim, too


def _replaced(name: str, original: Any) -> Any:
    function = getattr(fft, name)

    @functools.wraps(original, assigned=("__doc__",), updated=())
    def call(x: Any, *arguments: Any, plan: Any = None, **options: Any) -> Any:
        if getattr(_within, "call", False) or plan is not None:
            return original(x, *arguments, plan=plan, **options)
        _within.call = True
        device = os.environ["OFFLOAD_ARGS_DEVICE"]
        try:
            result = function(x, *arguments, **options, device=device)
        except OffloadError as error:
            try:
                original(x, *arguments, **options)
            except Exception as expected:
                if isinstance(error, type(expected)):
                    raise expected from error
            raise
        finally:
            _within.call = False
        _calls[name] += 1
        _tests_with_calls.add(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0])
        return result

    call.__name__ = name  # SciPy's functions are partial objects, which have their names by assignment
    return call


def pytest_configure() -> None:
    for name in fft.__all__:
        modules = (_basic_backend,) if name.endswith("2") else (engine, engine.basic)
        replacement = _replaced(name, getattr(modules[0], name))
        for module in modules:
            setattr(module, name, replacement)


pytest_collection_modifyitems = leave_out(OTHER)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    listed = ", ".join(f"{name} {count}" for name, count in sorted(_calls.items()))
    terminalreporter.write_line(f"{len(_tests_with_calls)} tests made {_calls.total()} calls of fft: {listed}")
