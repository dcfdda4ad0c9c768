"""The part of a command line that names a script, for commands that run scripts."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

__all__ = ["add_script", "script_of"]


def add_script(parser: argparse.ArgumentParser) -> None:
    """Declare -m, the script and its own arguments."""
    parser.add_argument("-m", dest="module", action="store_true", help="script is a module's name")
    parser.add_argument("script", help="the script, or with -m a module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own")


def script_of(script: str, arguments: list[str], is_module: bool) -> Callable[[], object] | None:
    """Set the variables that Python sets for a script, and return a function that runs the script. Return None if there
    is no such file."""
    import runpy

    sys.argv = [script, *arguments]
    if is_module:
        sys.path.insert(0, os.getcwd())
    elif os.path.exists(script):
        sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    else:
        return None

    def run_script() -> object:
        if is_module:
            return runpy.run_module(script, run_name="__main__", alter_sys=True)
        return runpy.run_path(script, run_name="__main__")

    return run_script
