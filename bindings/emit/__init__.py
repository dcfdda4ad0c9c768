"""Writes the files that the build compiles and installs, one module a kind of output.

tables (records and libraries), bodies, grouped, descriptors and helper_functions: the code that calls the vendors.
wrappers and blas_dispatch: the typed C functions and their headers. hooks: the functions that stand in for BLAS in
unmodified programs. extensions: the files that extensions of Python need. fortran: its module. python_modules, stubs,
raw and docs: the Python side. report: the list of bound functions. words: the words of roles files.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
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


# The files that library_texts writes for each library. Only a library with bodies by hand has the last one.
FILES = (
    "libraries/{}.c",
    "libraries/{}_api.c",
    "include/offload_args_{}.h",
    "{}.py",
    "{}.pyi",
    "_{}_raw.py",
    "libraries/{}_constants.h",
)


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
    """Write everything the build needs under `out`; raises RolesError for a record that can't be written.

    The files of a library are kept if the same generator wrote them from the same library. The file
    `libraries/<library>.key` has a digest of the generator, the library and its files. `libraries` have to be as `load`
    returns them, because their use may change the digest.
    """
    generator = generator_digest()
    origins = {library.name: hashlib.sha256(generator + pickle.dumps(library)).digest() for library in libraries}
    changed = [library for library in libraries if not is_current(library.name, origins[library.name], out)]
    wrong = [fault for library in changed for fault in faults(library)]
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
    for library in changed:
        texts |= library_texts(library)
    for name, text in texts.items():
        write_if_changed(out / name, text)
    for library in changed:
        write_if_changed(key_file(library.name, out), key_of(library.name, origins[library.name], out))


def library_texts(library: Library) -> dict[str, str]:
    """Return the files that follow from one library alone, by name."""
    writers = [library_file, wrappers_file, header, python_module, python_stub, raw_file]
    if any(function.written for function in library.functions):
        writers.append(constants_header)
    return {name.format(library.name): write(library) for name, write in zip(FILES, writers, strict=False)}


def generator_digest() -> bytes:
    """Return a digest of the code that writes the files: this package, the modules that it uses, and Python."""
    import cffi  # the build's own dependency

    digest = hashlib.sha256(f"{sys.version} {cffi.__version__}".encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.digest()


def key_file(library: str, out: Path) -> Path:
    """Return the file that identifies the state from which the library's files were written."""
    return out / "libraries" / f"{library}.key"


def key_of(library: str, origin: bytes, out: Path) -> str:
    """Return the digest of the inputs of a library's files, and of the files that exist."""
    digest = hashlib.sha256(origin)
    for name in FILES:
        path = out / name.format(library)
        digest.update(path.read_bytes() if path.exists() else b"none")
    return digest.hexdigest()


def is_current(library: str, origin: bytes, out: Path) -> bool:
    """Return whether all files of a library are as they were written from this origin."""
    path = key_file(library, out)
    return path.exists() and path.read_text() == key_of(library, origin, out)


def write_if_changed(path: Path, text: str) -> None:
    """Write a file unless it has this text, because the build compiles files that are newer than their objects."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
