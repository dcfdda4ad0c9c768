"""The part of a command line that names a script, for commands that run scripts."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

__all__ = ["add_own_arguments", "add_script", "script_of", "tell_misplaced"]


def add_script(parser: argparse.ArgumentParser) -> None:
    """Declare -m, the script and its own arguments."""
    parser.add_argument("-m", dest="module", action="store_true", help="script is a module's name")
    parser.add_argument("script", help="the script, or with -m a module")
    add_own_arguments(parser)
    parser.epilog = "Options of this command go before the script. All that follows the script goes to the script."


def add_own_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the script's own arguments, which may be left out."""
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own").required = False


def tell_misplaced(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Write a line to stderr if the script's arguments look like options of the command.

    They do if they begin with an option, all their options are options of the command, and the script's text has none
    of them.
    """
    names = [text.partition("=")[0] for text in options.arguments if text.startswith("-")]
    known = parser._option_string_actions.keys() - {"-h", "--help", "-m"}
    if not names or not options.arguments[0].startswith("-") or not known.issuperset(names):
        return
    if not options.module:
        try:
            with open(options.script, errors="replace") as file:
                text = file.read()
        except OSError:
            return
        if any(name in text for name in names):
            return
    verb = "goes" if len(names) == 1 else "go"
    print(
        f"{options.command}: {', '.join(names)} {verb} to the script; options of offload_args go before it: "
        f"{parser.prog} {' '.join(options.arguments)} {'-m ' * options.module}{options.script}",
        file=sys.stderr,
    )


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
