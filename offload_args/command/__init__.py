"""The command line, `python -m offload_args`, with a module for each command.

A command imports the modules that do its work only when it runs. parser() returns the parser of all commands, for the
reference of the commands.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn, Protocol

from .. import __version__
from ..display import nearest
from ..errors import OffloadError
from . import config, demo, info, plan, record, replay, run, selftest, trace
from .script import tell_misplaced

__all__ = ["main", "parser"]

PROGRAM = "python -m offload_args"


class Command(Protocol):
    """The interface of a command's module in this package."""

    HELP: str  #: one line for the list of commands
    DESCRIPTION: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""

    def run(self, options: argparse.Namespace) -> int:
        """Run the command and return the exit status."""


COMMANDS: dict[str, Command] = {
    "info": info,
    "demo": demo,
    "plan": plan,
    "run": run,
    "trace": trace,
    "record": record,
    "replay": replay,
    "selftest": selftest,
    "config": config,
}


WITH_SCRIPTS = ("plan", "record", "run", "trace")  #: commands that run scripts
# {a command's name in other programs: the command here}.
OTHER_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("profile", "prof", "nsys", "stats"), "trace"),
    **dict.fromkeys(("devices", "list", "list-devices", "doctor", "env", "status", "show"), "info"),
    **dict.fromkeys(("test", "check", "verify"), "selftest"),
    **dict.fromkeys(("bench", "benchmark", "estimate"), "plan"),
    **dict.fromkeys(("accelerate", "exec", "python"), "run"),
}


class _Parser(argparse.ArgumentParser):
    """The parser of all commands, whose error for a misspelt command or option names similar ones."""

    by_command: Mapping[str, argparse.ArgumentParser]

    def error(self, message: str) -> NoReturn:
        misspelt = re.match(r"argument COMMAND: invalid choice: '(.*?)' ", message)
        name = misspelt[1] if misspelt else ""
        remedy = f"; write {PROGRAM} --{name}" if name in ("help", "version") else nearest(name, COMMANDS)
        if name in OTHER_NAMES:
            remedy = f"; did you mean {OTHER_NAMES[name]}?"
        elif name.endswith(".py") or os.path.isfile(name):
            remedy = (
                f"; did you mean {PROGRAM} run {name}, which accelerates a NumPy program, or trace {name}, which lists "
                "the copies of a program with regions?"
            )
        super().error(message + remedy)

    def refuse(self, command: str, arguments: Sequence[str]) -> NoReturn:
        """Report arguments that a command lacks, with the usage of this command."""
        parser = self.by_command[command]
        known = [text for action in parser._actions for text in action.option_strings if text not in ("-h", "--help")]
        listed = f"; its options are {', '.join(known)}" if known else "; it takes none"
        remedy = nearest(arguments[0].partition("=")[0], known) if arguments[0].startswith("-") else ""
        parser.error(f"unrecognized arguments: {' '.join(arguments)}{remedy or listed}")


def parser() -> _Parser:
    """Return the parser of all commands."""
    argument_parser = _Parser(
        prog=PROGRAM,
        description="Lend NumPy arrays to a device for the duration of calls into the vendors' own libraries.",
        epilog=f"'{PROGRAM} COMMAND --help' has the options of one command. Begin with info, then demo.",
    )
    argument_parser.add_argument("--version", action="version", version=f"offload_args {__version__}")
    commands = argument_parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", parser_class=argparse.ArgumentParser
    )
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(name, help=command.HELP, description=command.DESCRIPTION)
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    argument_parser.by_command = commands.choices
    return argument_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status; without a command, print the help."""
    root = parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell requests completions
        try:
            import argcomplete
        except ImportError:
            return 1
        argcomplete.autocomplete(root)
    options, unknown = root.parse_known_args(arguments)
    if unknown and options.command is not None:
        root.refuse(options.command, unknown)
    if unknown:
        root.error(f"unrecognized arguments: {' '.join(unknown)}")
    status = 0
    try:
        if options.command is None:
            root.print_help()
        else:
            if options.command in WITH_SCRIPTS and not options.script.isdigit():
                tell_misplaced(root.by_command[options.command], options)
            status = options.run(options)
        sys.stdout.flush()
    except OffloadError as error:
        text = str(error).removeprefix(f"{options.command}: ")
        print(f"{PROGRAM} {options.command}: {text}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if options.command in WITH_SCRIPTS:  # the user interrupted the script
            raise
        print(f"{PROGRAM} {options.command}: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        if options.command in WITH_SCRIPTS or error.filename is not None:  # an error of the script, or of a file
            raise
        return _lost_output(options.command, error)
    return status


def _lost_output(name: str, error: OSError) -> int:
    """Report that the standard output can't be written, and return the exit status. A pipe that its reader closed is
    not reported."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # at exit, Python writes the remaining text
    if isinstance(error, BrokenPipeError):
        return 0
    print(f"{PROGRAM} {name}: the standard output can't be written: {error.strerror}", file=sys.stderr)
    return 2
