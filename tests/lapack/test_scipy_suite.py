"""SciPy's own tests of linear algebra pass with the functions of lapack, except for the tests that
scipy_lapack_suite.py lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.devices import here
from helpers.plugins import output_with

#: {module of scipy.linalg.tests: the least number of its tests that has to pass}.
MODULES = {
    "test_decomp_cholesky": 60,
    "test_decomp_ldl": 10,
    "test_decomp_lu": 80,
    "test_solvers": 500,
    "test_decomp": 500,
    "test_lapack": 2300,
    "test_basic": 2200,
}


@pytest.mark.parametrize("device", here("host", "sim:0"))
@pytest.mark.parametrize(
    "module",
    [
        pytest.param(module, marks=pytest.mark.slow if module == "test_decomp_cholesky" else pytest.mark.exhaustive)
        for module in MODULES
    ],
)
def test_scipys_tests_pass(module: str, device: str, tmp_path: Path) -> None:
    tests = f"scipy.linalg.tests.{module}"
    output = output_with("scipy_lapack_suite", device, "--pyargs", tests, folder=tmp_path)
    passed, calls = re.search(r"(\d+) passed", output), re.search(r"made (\d+) calls of lapack", output)
    assert passed and int(passed[1]) >= MODULES[module], output
    assert calls and int(calls[1]) > 0, output
