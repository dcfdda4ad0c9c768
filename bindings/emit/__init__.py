"""Writes the files that the build compiles and installs, one module a kind of output.

tables (records and libraries), bodies, grouped, descriptors and helper_functions: the code that calls the vendors.
wrappers and blas_dispatch: the typed C functions and their headers. hooks: the functions that stand in for BLAS in
unmodified programs. extensions: the files that extensions of Python need. fortran: its module. python_modules, stubs,
raw and docs: the Python side. report: the list of bound functions. words: the words of roles files.
"""

from __future__ import annotations

from pathlib import Path

from ..library import Library, RolesError
from .blas_dispatch import portable_file, portable_header
from .docs import Role, record
from .extensions import names_header, pxd_files
from .fortran import fortran_module
from .helper_functions import body_of
from .hooks import hooks_file
from .python_modules import python_module, python_table
from .raw import raw_faults, raw_file
from .report import report
from .stubs import python_stub
from .tables import constants_header, libraries_file, library_file
from .words import words
from .wrappers import header, wrappers_file

__all__ = ["Role", "emit", "faults", "raw_faults", "record", "report", "words", "write_if_changed"]


def faults(library: Library) -> list[str]:
    """Return why some of a library's functions can't be written, a line a function."""
    faults = []
    for function in library.functions:
        try:
            body = body_of(library, function)
            body.text("body")
            if body.is_late:
                body.caller()
        except (KeyError, ValueError) as error:
            name = error.args[0] if isinstance(error.args[0], str) else "its workspace"
            text = f"{name}: the label is not for such a function" if isinstance(error, KeyError) else error
            faults.append(f"{library.name}.toml: [family.{function.family}] {function.symbol}: {text}")
    return faults


def emit(libraries: list[Library], out: Path) -> None:
    """Write everything the build needs under `out`; raises RolesError for a record that can't be written."""
    wrong = [fault for library in libraries for fault in faults(library)]
    if wrong:
        raise RolesError(wrong)
    for folder in ("libraries", "include"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    texts = {"libraries/libraries.c": libraries_file(libraries), "_table.py": python_table(libraries)}
    texts |= {"libraries/blas_api.c": portable_file(libraries)}
    texts |= {"include/offload_args_blas.h": portable_header(libraries)}
    texts |= {"libraries/hooks.c": hooks_file(libraries)}
    texts |= {"include/offload_args.f90": fortran_module(libraries)}
    texts |= {"include/offload_args_names.h": names_header(), **pxd_files(libraries)}
    for library in libraries:
        texts |= {
            f"libraries/{library.name}.c": library_file(library),
            f"libraries/{library.name}_api.c": wrappers_file(library),
            f"include/offload_args_{library.name}.h": header(library),
            f"{library.name}.py": python_module(library),
            f"{library.name}.pyi": python_stub(library),
        }
    texts |= {f"_{library.name}_raw.py": raw_file(library) for library in libraries}
    by_hand = [library for library in libraries if any(function.written for function in library.functions)]
    texts |= {f"libraries/{library.name}_constants.h": constants_header(library) for library in by_hand}
    for name, text in texts.items():
        write_if_changed(out / name, text)


def write_if_changed(path: Path, text: str) -> None:
    """Write a file unless it has this text: the build compiles again what is newer than its objects."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
