"""Writes the files that the build compiles and installs, one module a kind of output.

tables (descriptors and rows), bodies, grouped and services: what calls the vendors. wrappers and portable: the typed C
functions and their headers. extensions: what extensions of Python need beside them. python_modules, stubs, raw and
docs: the Python side. report: what is bound.
"""

from __future__ import annotations

from pathlib import Path

from ..roles import Library, RolesError
from .docs import record
from .extensions import names_header, pxd_files
from .portable import portable_file, portable_header
from .python_modules import python_module, python_table
from .raw import raw_faults, raw_file
from .report import report
from .services import body_of
from .stubs import python_stub
from .tables import libraries_file, library_file
from .wrappers import header, wrappers_file

__all__ = ["emit", "faults", "raw_faults", "record", "report"]


def faults(library: Library) -> list[str]:
    """Returns why some of a library's functions can't be written, a line a function."""
    found = []
    for function in library.functions:
        try:
            body = body_of(library, function)
            body.text("body")
            if body.is_late:
                body.caller()
        except (KeyError, ValueError) as error:
            name = error.args[0] if isinstance(error.args[0], str) else "its workspace"
            text = f"{name}: the label is not for such a function" if isinstance(error, KeyError) else error
            found.append(f"{library.name}.toml: [family.{function.family}] {function.symbol}: {text}")
    return found


def emit(libraries: list[Library], out: Path) -> None:
    """Writes everything the build needs under `out`; raises RolesError for what can't be written."""
    wrong = [fault for library in libraries for fault in faults(library)]
    if wrong:
        raise RolesError(wrong)
    for folder in ("libraries", "include"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    texts = {"libraries/libraries.c": libraries_file(libraries), "_table.py": python_table(libraries)}
    texts |= {"libraries/blas_api.c": portable_file(libraries)}
    texts |= {"include/offload_args_blas.h": portable_header(libraries)}
    texts |= {"include/offload_args_names.h": names_header(), **pxd_files(libraries)}
    for one in libraries:
        texts |= {
            f"libraries/{one.name}.c": library_file(one),
            f"libraries/{one.name}_api.c": wrappers_file(one),
            f"include/offload_args_{one.name}.h": header(one),
            f"{one.name}.py": python_module(one),
            f"{one.name}.pyi": python_stub(one),
        }
    for name, text in texts.items():
        (out / name).write_text(text)
    for one in libraries:
        raw_file(one, out / f"_{one.name}_raw.py")
