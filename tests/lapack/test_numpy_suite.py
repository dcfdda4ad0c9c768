"""NumPy's own tests of numpy.linalg pass with offload_args.linalg, except for the tests that numpy_suite.py lists."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.devices import here, open_or_skip
from helpers.processes import output_of


@pytest.mark.slow
@pytest.mark.parametrize("device", here("host", "sim:0"))
def test_numpys_tests_pass(device: str, tmp_path: Path) -> None:
    suite = Path(np.__file__).parent / "linalg" / "tests" / "test_linalg.py"
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "numpy_suite",
        f"--rootdir={tmp_path}",
    )
    output = output_of(
        *command, suite, folder=tmp_path, timeout=900, OFFLOAD_ARGS_DEVICE=open_or_skip(device), PYTHONPATH=paths
    )
    passed = re.search(r"(\d+) passed", output)
    assert passed and int(passed[1]) > 300, output
