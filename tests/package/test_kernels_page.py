"""The examples of docs/guide/kernels.md run as they stand there, in a folder with the module that the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from package.test_guide import code_of, promised

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "kernels.md").read_text()


def test_the_pages_examples_print_what_they_say(tmp_path: Path) -> None:
    (source,) = re.findall(r"```c\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "vadd.c").write_text(source)
    command = re.search(r"cc -O2 .*?vadd\.so", source)
    assert command is not None
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(command[0], shell=True, cwd=tmp_path, check=True, env=os.environ | {"PATH": path})
    code = code_of(PAGE)
    assert len(promised(code)) >= 4
    (tmp_path / "example.py").write_text(code)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OFFLOAD_ARGS_")}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "example.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=clean | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == promised(code)
