"""Python code run in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys


def python(code: str, *options: str, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter with these options and changes of the environment; its output is text."""
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def printed(code: str, *options: str, **environment: str) -> str:
    """Run code as `python` does and return its output; it must succeed and print no error."""
    ran = python(code, *options, **environment)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    return ran.stdout
