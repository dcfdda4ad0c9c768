"""The C API: its functions and the C tests of them, csrc/tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.promise("T51")
def test_the_c_tests_give_wrong_arguments_to_every_public_function() -> None:
    header = "".join(path.read_text() for path in sorted((ROOT / "csrc" / "include").rglob("*.h")))
    tests = (ROOT / "csrc" / "tests" / "test_arguments.c").read_text()
    declared = re.findall(r"^(?:const \w+ \*|int |int64_t |void \*?)(oa_\w+)\(", header, re.MULTILINE)
    tested = re.findall(r'^    \{"(oa_\w+)", ', tests, re.MULTILINE)
    assert len(declared) > 50
    assert sorted(tested) == sorted(declared)
