"""SciPy's own tests of linear algebra pass with the functions of lapack, except for those in scipy_suite.py."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from helpers.devices import here, open_or_skip
from helpers.processes import output_of

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
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    command = f"-m pytest -q -W ignore -p no:cacheprovider -p no:xdist -p scipy_suite --rootdir={tmp_path} --pyargs"
    output = output_of(
        sys.executable,
        *command.split(),
        f"scipy.linalg.tests.{module}",
        folder=tmp_path,
        timeout=1800,
        OFFLOAD_ARGS_DEVICE=open_or_skip(device),
        PYTHONPATH=paths,
    )
    passed, calls = re.search(r"(\d+) passed", output), re.search(r"made (\d+) calls of lapack", output)
    assert passed and int(passed[1]) >= MODULES[module], output
    assert calls and int(calls[1]) > 0, output
