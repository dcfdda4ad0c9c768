"""NumPy's own tests of numpy.linalg pass with offload_args.linalg, except for the tests that numpy_suite.py lists."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from helpers.devices import here
from helpers.plugins import output_with


@pytest.mark.parametrize(
    "device",
    [
        pytest.param(device, marks=pytest.mark.exhaustive if device == "host" else pytest.mark.slow)
        for device in here("host", "sim:0")
    ],
)
def test_numpys_tests_pass(device: str, tmp_path: Path) -> None:
    suite = Path(np.__file__).parent / "linalg" / "tests" / "test_linalg.py"
    output = output_with("numpy_suite", device, suite, folder=tmp_path)
    passed = re.search(r"(\d+) passed", output)
    assert passed and int(passed[1]) > 300, output
