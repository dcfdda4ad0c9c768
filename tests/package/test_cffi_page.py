"""The examples of docs/guide/cffi.md run as they stand there, in a folder with the library that the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from package.test_guide import code_of, promised

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "cffi.md").read_text()


def test_the_pages_examples_print_what_they_say(tmp_path: Path) -> None:
    (source,) = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "mine.c").write_text(source)
    command = re.search(r"cc -shared .*?mine\.c", source)
    assert command is not None
    subprocess.run(command[0].split(), cwd=tmp_path, check=True)
    code = code_of(PAGE)
    assert len(promised(code)) >= 6
    (tmp_path / "example.py").write_text(code)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OFFLOAD_ARGS_")}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "example.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=clean,
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == promised(code)
