"""SciPy's own tests of transforms and of signals pass with the functions of fft, except for the tests that
scipy_fft_suite.py lists."""

from __future__ import annotations

import re
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest

from helpers.devices import here
from helpers.plugins import output_with

ENGINE = "_duccfft" if find_spec("scipy.fft._duccfft") else "_pocketfft"  # since SciPy 1.18; before
#: {SciPy's tests: the least numbers of tests that pass and of calls of offload_args}.
MODULES = {
    "scipy.fft.tests.test_basic": (140, 2500),
    f"scipy.fft.{ENGINE}.tests.test_basic": (340, 11000),
    "scipy.fft.tests.test_multithreading": (50, 50),
    "scipy.fft.tests.test_fftlog": (40, 150),
    "scipy.fft.tests.test_backend": (40, 50),
    "scipy.fftpack.tests.test_basic": (290, 11000),
    "scipy.fftpack.tests.test_pseudo_diffs": (25, 600),
    "scipy.signal.tests.test_czt": (160, 2000),
    "scipy.signal.tests.test_spectral": (130, 15000),
    "scipy.signal.tests.test_signaltools": (12000, 60000),
}

# CI's runs.
SLOW = [("scipy.fft.tests.test_basic", "sim:0"), (f"scipy.fft.{ENGINE}.tests.test_basic", "host")]


@pytest.mark.parametrize(
    ("module", "device"),
    [
        pytest.param(*case, marks=pytest.mark.slow if case in SLOW else pytest.mark.exhaustive, id="-".join(case))
        for case in product(MODULES, here("host", "sim:0"))
    ],
)
def test_scipys_tests_pass(module: str, device: str, tmp_path: Path) -> None:
    output = output_with("scipy_fft_suite", device, "--pyargs", module, folder=tmp_path)
    least, least_calls = MODULES[module]
    passed, calls = re.search(r"(\d+) passed", output), re.search(r"made (\d+) calls of fft", output)
    assert passed and int(passed[1]) >= least, output
    assert calls and int(calls[1]) >= least_calls, output
