"""Programs and Python code that run in separate processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

SLOWNESS = float(os.environ.get("OFFLOAD_ARGS_TEST_SLOWNESS", "1"))  # of the machine or an emulated device


def python(code: str, *options: str, timeout: float = 900, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter with these options and changes of the environment; its output is text."""
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=timeout * SLOWNESS,
    )


def program_or_skip(name: str, path: str | None = None) -> str:
    """Return the path of a compiler or of a build tool. If this machine lacks it, skip, or fail if
    OFFLOAD_ARGS_REQUIRE names it. path: the folders to search; None stands for those of PATH."""
    return shutil.which(name, path=path) or lacking(name)


def program_of_python_or_skip(name: str) -> str:
    """Return what program_or_skip returns for a program of this Python's environment, or else of PATH."""
    return program_or_skip(name, os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


def lacking(name: str) -> NoReturn:
    """Skip a test because this machine lacks a compiler or a tool; fail if OFFLOAD_ARGS_REQUIRE names it."""
    if name in os.environ.get("OFFLOAD_ARGS_REQUIRE", "").split(","):
        pytest.fail(f"OFFLOAD_ARGS_REQUIRE needs {name}")
    pytest.skip(f"device unavailable: no {name}")


def output_of(*command: object, folder: Path, timeout: float = 900, **environment: str) -> str:
    """Run a program in a folder and return its output; it must succeed."""
    ran = subprocess.run(
        [str(argument) for argument in command],
        cwd=folder,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=timeout * SLOWNESS,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def printed(code: str, *options: str, **environment: str) -> str:
    """Run code as `python` does and return its output; it must succeed and print no error."""
    ran = python(code, *options, **environment)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    return ran.stdout
