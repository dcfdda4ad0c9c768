"""SciPy's own tests of products, systems and solvers pass with offload_args.sparse, except for the tests that
scipy_sparse_suite.py lists."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import scipy

from helpers.devices import here, open_or_skip
from helpers.processes import output_of

#: {SciPy's tests: the tests to take, and the least numbers of tests that pass and of calls of offload_args}.
SUITES = {
    "_isolve/tests/test_iterative.py": ("cg and poisson1d and not F", 25, 1000),
    "_dsolve/tests/test_linsolve.py": ("TestLinsolve or (TestSpsolveTriangular and not 1000)", 150, 100),
    "../tests/test_base.py": (
        "(matvec or matmat or matmul or test_dot or small_multiplication) and (CSR or CSC or COO)",
        80,
        100,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("device", here("sim:0"))
def test_scipys_tests_pass(device: str, suite: str, tmp_path: Path) -> None:
    chosen, least, calls = SUITES[suite]
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    options = (
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "scipy_sparse_suite",
        f"--rootdir={tmp_path}",
        "-m",
        "",
        "-k",
        chosen,
    )
    file = Path(scipy.__file__).parent / "sparse" / "linalg" / suite
    environment = {"OFFLOAD_ARGS_DEVICE": open_or_skip(device), "PYTHONPATH": paths}
    output = output_of(sys.executable, "-m", "pytest", *options, file, folder=tmp_path, timeout=900, **environment)
    passed = re.search(r"(\d+) passed", output)
    assert passed and int(passed[1]) >= least, output
    assert sum(map(int, re.findall(r"(\d+) \w+ by offload_args", output))) >= calls, output
