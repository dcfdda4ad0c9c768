"""Runs the generator: `extract` reads vendor headers, `emit` writes the files that the build compiles.

`report` writes report.md; `--check` verifies the roles files, and that report.md is current.

    python -m bindings extract --library cublas --header .../cublas_v2.h -I .../include [-I the compiler's]
    python -m bindings report
    python -m bindings emit --out DIR
    python -m bindings --check

Extracting needs libclang.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import emit, roles
from .lines import located


def _extract(library: str, header: Path, include: list[Path], is_older: bool) -> None:
    from . import headers  # needs libclang; the build does not have it

    known = roles.read_roles(library)
    api = headers.extract(header, include, known["header"])
    name = known["older"]["api"] if is_older else library
    (roles.HERE / "api" / f"{name}.json").write_text(headers.to_json(api))


def check(folder: Path = roles.HERE) -> list[str]:
    """Returns what is wrong with the api files, the roles files and report.md; nothing if all is well."""
    try:
        libraries = roles.load(folder)
    except roles.RolesError as error:
        return error.faults
    faults: list[str] = []
    for library in libraries:
        faults += [located(fault, folder) for fault in emit.faults(library) or emit.raw_faults(library)]
    path = folder / "report.md"
    if not faults and (not path.exists() or path.read_text() != emit.report(libraries)):
        faults.append("report.md is not current; run python -m bindings report")
    return faults


def main(arguments: list[str] | None = None) -> int:
    """Does what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bindings", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="verify every role and that report.md is current")
    commands = parser.add_subparsers(dest="command")
    extracting = commands.add_parser("extract", help="read a vendor header into api/<library>.json")
    extracting.add_argument("--library", required=True)
    extracting.add_argument("--header", required=True, type=Path)
    extracting.add_argument("-I", dest="include", action="append", type=Path, default=[])
    extracting.add_argument("--older", action="store_true", help="the header of the library's [older] version")
    emitting = commands.add_parser("emit", help="write the C and Python that the build needs")
    emitting.add_argument("--out", required=True, type=Path)
    commands.add_parser("report", help="write report.md")
    given = parser.parse_args(arguments)
    if given.check:
        faults = check()
        print("\n".join(faults) if faults else "bindings: every role holds, report.md is current")
        return 1 if faults else 0
    try:
        if given.command == "extract":
            _extract(given.library, given.header, given.include, given.older)
        elif given.command == "emit":
            emit.emit(roles.load(), given.out)
        elif given.command == "report":
            (roles.HERE / "report.md").write_text(emit.report(roles.load()))
        else:
            parser.print_help()
            return 2
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
