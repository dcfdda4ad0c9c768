"""SciPy's own tests of products, systems and solvers pass with offload_args.sparse, except for the tests that
scipy_sparse_suite.py lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import scipy

from helpers.devices import here
from helpers.plugins import output_with

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
    file = Path(scipy.__file__).parent / "sparse" / "linalg" / suite
    output = output_with("scipy_sparse_suite", device, "-m", "", "-k", chosen, file, folder=tmp_path)
    passed = re.search(r"(\d+) passed", output)
    assert passed and int(passed[1]) >= least, output
    assert sum(map(int, re.findall(r"(\d+) \w+ by offload_args", output))) >= calls, output
