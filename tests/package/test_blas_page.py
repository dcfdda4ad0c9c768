"""The examples of docs/guide/blas.md run as they stand there; tests/blas/test_layout_table.py checks its table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from package.test_guide import code_of, promised

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "blas.md").read_text()


def test_the_pages_examples_print_what_they_say() -> None:
    code = code_of(PAGE)
    assert len(promised(code)) == 3
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OFFLOAD_ARGS_")}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        env=clean,
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == promised(code)
