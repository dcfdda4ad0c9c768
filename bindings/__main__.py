"""Runs the generator: `extract` reads vendor headers, `emit` writes the files that the build compiles.

`report` writes report.md and words.md; `--check` checks the roles files, and that report.md and words.md are current.

    python -m bindings extract --library cublas --header .../cublas_v2.h -I .../include [-I the compiler's]
    python -m bindings report
    python -m bindings emit --out DIR
    python -m bindings --check

`extract` needs libclang.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tomllib
from pathlib import Path

from . import emit, roles
from .lines import located


def _no_libclang() -> str:
    """Return the remedy for a Python without libclang, with the version that pyproject.toml requires."""
    project = tomllib.loads((roles.HERE.parent / "pyproject.toml").read_text())["project"]
    needed = next(
        requirement for requirement in project["optional-dependencies"]["dev"] if requirement.startswith("libclang")
    )
    remedy = f"run make .venv/dev and use .venv/bin/python, or install {needed}"
    return f"extract: {sys.executable} has no libclang; {remedy}"


def _extract(library: str, header: Path, include: list[Path], is_older: bool) -> None:
    try:
        from . import headers  # imported here, because the build has no libclang
    except ModuleNotFoundError as error:
        if error.name != "clang":
            raise
        raise ValueError(_no_libclang()) from None
    if not header.is_file():
        raise ValueError(f"extract: --header {header}: there is no such file")
    known = roles.read_roles(library)
    table = "older" if is_older else "header"
    if table not in known or "header" not in known:
        raise ValueError(f"{library}.toml: there is no [{table}], which extract needs; bindings/words.md explains it")
    api = headers.extract(header, include, known["header"])
    name = known["older"]["api"] if is_older else library
    (roles.HERE / "api" / f"{name}.json").write_text(headers.to_json(api))


def check(folder: Path = roles.HERE) -> list[str]:
    """Return the faults of the api files, the roles files and report.md."""
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
    path = folder / "words.md"
    if folder == roles.HERE and (not path.exists() or path.read_text() != emit.words()):
        faults.append("words.md is not current; run python -m bindings report")
    return faults


def _part(text: str) -> tuple[str, int]:
    """Read LIBRARY=NUMBER."""
    library, _, number = text.partition("=")
    return library, int(number)


def _summary(faults: list[str]) -> str:
    """Return the last line of --check: the result, and the files that were checked."""
    if faults:
        return f"bindings: {len(faults)} fault{'s' * (len(faults) > 1)}"
    libraries = roles.load()
    functions = sum(len(library.functions) for library in libraries)
    return (
        f"bindings: no fault. Checked: the labels of {functions} functions of {len(libraries)} libraries against their "
        "headers' names and types, and that report.md and words.md are current"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
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
    emitting.add_argument(
        "--parts", action="append", type=_part, default=[], help="LIBRARY=NUMBER: the files for the library's bodies"
    )
    commands.add_parser("report", help="write report.md and words.md")
    args = parser.parse_args(arguments)
    gc.disable()  # the process is short, and libraries are many small objects
    if args.check:
        faults = check()
        print("\n".join([*faults, _summary(faults)]))
        return 1 if faults else 0
    try:
        if args.command == "extract":
            _extract(args.library, args.header, args.include, args.older)
        elif args.command == "emit":
            kept = emit.Kept(args.out)
            emit.emit(roles.load(read=kept.read), args.out, kept.origins, dict(args.parts))
        elif args.command == "report":
            (roles.HERE / "words.md").write_text(emit.words())
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
