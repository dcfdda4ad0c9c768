"""NumPy's and SciPy's own tests of linear algebra pass as before when every possible call goes to a device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# test_overwrite of newer SciPy asserts that an array that may be overwritten was overwritten. LAPACK destroys A in
# gesdd and gelsd, and a device does not change it.
DECOMPOSITIONS = "(TestEigh or TestQR or TestSVD or TestCholesky or TestOverwrite) and not test_overwrite"
BASIC = "(Solve or Inv or LstSq or Lstsq or Pinv) and not (TestLstsq and test_overwrite)"
# {name: (the tests, the expression that selects some of them, the least number that has to pass)}.
SUITES = {
    "numpy": ("numpy.linalg", "TestSolve or TestInv or TestCholesky or TestEigh or TestQR or TestSVD or TestLstsq", 40),
    "scipy-basic": ("scipy.linalg.tests.test_basic", BASIC, 500),
    "scipy-decomp": ("scipy.linalg.tests.test_decomp", DECOMPOSITIONS, 200),
    "scipy-cholesky": ("scipy.linalg.tests.test_decomp_cholesky", "", 20),
}


def outcome(folder: Path, name: str, *before: str) -> tuple[dict[str, int], str]:
    """Return the numbers of tests that passed, failed and so on, and the whole output."""
    tests, chosen, _ = SUITES[name]
    words = [sys.executable, *before, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    ended = subprocess.run(
        [*words, "--pyargs", tests, "-k", chosen],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )
    text = ended.stdout + ended.stderr
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error|errors|skipped)", text)}
    return counts, text


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "scipy-cholesky" else pytest.mark.exhaustive)
        for name in SUITES
    ],
)
def test_a_suite_has_the_same_results(device: str, tmp_path: Path, name: str) -> None:
    plain, _ = outcome(tmp_path, name)
    gone, text = outcome(tmp_path, name, "-m", "offload_args", "run", "--device", device, "--margin", "0", "--report")
    assert gone == plain, text[-4000:]
    assert plain["passed"] >= SUITES[name][2]
    sent = re.search(r"calls of BLAS and LAPACK, (\d+) went", text)
    assert sent and int(sent[1]) > 100
