"""NumPy's and SciPy's own tests have the same outcomes when every possible call goes to a device.

helpers/suites.py runs whole suites in the same way.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from helpers import suites

CORE = f"numpy.{'_core' if hasattr(np, '_core') else 'core'}.tests"
SCIPY = tuple(f"scipy.linalg.tests.test_{name}" for name in ("basic", "decomp", "decomp_cholesky", "lapack", "blas"))
# The tests that are left out make hundreds of thousands of calls of one size, or take 10 s and gigabytes.
NUMPY_CHOSEN = "(test_linalg and not generalized) or test_einsum or ((dot or matmul or inner or matrix) and not huge)"
SCIPY_CHOSEN = "not (gesdd_nofegfault or orth_memory_efficiency)"
# {name: (arguments of pytest, the least number of tests that have to pass, and of calls that have to go)}
PARTS = {
    "numpy": (("numpy.linalg", f"{CORE}.test_einsum", f"{CORE}.test_multiarray", "-k", NUMPY_CHOSEN), 700, 10_000),
    "scipy": ((*SCIPY, "-k", SCIPY_CHOSEN), 4000, 5000),
}
# Tests that may have another outcome on a device, and the reasons.
MAY_DIFFER = {
    "TestLeastSquaresSolvers::test_gels": "it compares gels, which stays on the CPU, with the bits of geqrf",
    "::test_overwrite": "newer versions of SciPy assert that an array that may be overwritten was overwritten",
}


@cache
def without_acceleration(folder: Path, words: tuple[str, ...]) -> suites.Run:
    return suites.run(folder, words, None)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_a_suite_has_the_same_outcomes(
    device: str, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, (words, passed, sent) = tmp_path_factory.getbasetemp(), PARTS[name]
    plain, gone = without_acceleration(folder, words), suites.run(folder, words, device)
    differ = suites.differences(plain, gone)
    assert not [line for line in differ if not any(test in line for test in MAY_DIFFER)], gone.text[-4000:]
    assert plain.count("passed") >= passed
    assert gone.gone >= sent
