"""Writes the files that the build compiles and installs; each module writes one kind of output.

tables (records and libraries), bodies, grouped, descriptors and helper_functions: the code that calls the vendors.
wrappers and blas_dispatch: the typed C functions and their headers. hooks: the functions that replace BLAS in
unmodified programs. extensions: the files that extensions of Python need. fortran: the module of Fortran.
python_modules, stubs, raw and docs: the Python side. report: the list of bound functions. words: the words of roles
files.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..library import Library, RolesError
from . import kept
from .blas_dispatch import portable_file, portable_header
from .bodies import Bodies
from .docs import Role, record
from .extensions import core_pxd, library_pxd, names_header, portable_pxd
from .fortran import fortran_module
from .helper_functions import body_of
from .hooks import hooks_file
from .python_modules import python_module, python_table
from .raw import raw_faults, raw_file
from .report import report
from .stubs import python_stub
from .tables import bodies_files, constants_header, libraries_file, library_file
from .words import words
from .wrappers import header, wrappers_file

__all__ = ["Kept", "Role", "emit", "faults", "raw_faults", "record", "report", "words", "write_if_changed"]

Kept = kept.Kept

# The files of each library beside its bodies. Only a library with hand-written bodies has the last file.
FILES = (
    "libraries/{}.c",
    "libraries/{}_api.c",
    "include/offload_args_{}.h",
    "{}.py",
    "{}.pyi",
    "{}.pxd",
    "_{}_raw.py",
    "libraries/{}_constants.h",
)
# The files that shared_texts writes, from all libraries.
SHARED = (
    "libraries/libraries.c",
    "libraries/blas_api.c",
    "libraries/hooks.c",
    "include/offload_args_blas.h",
    "include/offload_args_names.h",
    "include/offload_args.f90",
    "_table.py",
    "__init__.pxd",
    "blas.pxd",
)


def faults(library: Library) -> list[str]:
    """Return the reasons why some of a library's functions can't be written, a line for each function."""
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


def emit(
    libraries: list[Library],
    out: Path,
    origins: Mapping[str, bytes] | None = None,
    parts: Mapping[str, int] | None = None,
) -> None:
    """Write everything the build needs under `out`; raises RolesError for a record that can't be written.

    The files of a library are left as they are if the same generator wrote them from the same library. The file
    `libraries/<library>.key` has a digest of the generator, the library and its files, and `shared.key` has the digest
    of the files that depend on several libraries. `origins` has each library's digest, as Kept has it. Without it,
    `libraries` have to be as `load` returns them, because their use may change the digest. `parts` has the number of
    files for a library's bodies, if that is not 1.
    """
    origins = origins or {library.name: kept.origin(pickle.dumps(library)) for library in libraries}
    files = {library.name: files_of(library.name, (parts or {}).get(library.name, 1)) for library in libraries}
    current = [name for name, of_library in files.items() if is_current(name, origins[name], of_library, out)]
    changed = [library for library in libraries if library.name not in current]
    texts: dict[str, dict[str, str]] = {}
    wrong: list[str] = []
    for library in changed:
        try:
            texts[library.name] = library_texts(library, files[library.name], out)
        except (KeyError, ValueError):
            wrong += faults(library)
            if not wrong:
                raise
    if wrong:
        raise RolesError(wrong)
    for folder in ("libraries", "include"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    for name, of_library in texts.items():
        write(name, origins[name], of_library, files[name], out)
    shared = [kept.headers_digest(), *(origins[library.name] for library in libraries)]
    origin = hashlib.sha256(b"".join(shared)).digest()
    if not is_current("shared", origin, SHARED, out):
        write("shared", origin, shared_texts(libraries), SHARED, out)


def files_of(library: str, parts: int) -> list[str]:
    """Return the names of the files that library_texts writes; not every library has constants."""
    bodies = [f"libraries/{library}_bodies_{number}.c" for number in range(1, parts + 1)]
    return [*(name.format(library) for name in FILES), *bodies]


def library_texts(library: Library, files: Sequence[str], out: Path) -> dict[str, str]:
    """Return the files that follow from one library alone, by name. `files`: all names, as files_of has them."""
    bodies = Bodies(library, body_of)
    by_hand = any(function.written for function in library.functions)
    texts = [
        library_file(library, bodies),
        wrappers_file(library),
        header(library),
        python_module(library),
        python_stub(library),
        library_pxd(library),
        raw_file(library, out),
        constants_header(library) if by_hand else "",
        *bodies_files(library, bodies, len(files) - len(FILES)),
    ]
    return {name: text for name, text in zip(files, texts, strict=True) if text}


def shared_texts(libraries: list[Library]) -> dict[str, str]:
    """Return {name: text} of the files that depend on several libraries, or on the core's headers."""
    texts = (
        libraries_file(libraries),
        portable_file(libraries),
        hooks_file(libraries),
        portable_header(libraries),
        names_header(),
        fortran_module(libraries),
        python_table(libraries),
        core_pxd(),
        portable_pxd(libraries),
    )
    return dict(zip(SHARED, texts, strict=True))


def key_file(key: str, out: Path) -> Path:
    """Return the path of the file that identifies the inputs of a library's files, or of the shared files."""
    return out / "libraries" / f"{key}.key"


def key_of(origin: bytes, files: Iterable[str], out: Path) -> str:
    """Return the digest of the inputs of files, and of the files that exist."""
    digest = hashlib.sha256(origin)
    for name in files:
        path = out / name
        digest.update(path.read_bytes() if path.exists() else b"none")
    return digest.hexdigest()


def is_current(key: str, origin: bytes, files: Iterable[str], out: Path) -> bool:
    """Return whether all files are as they were written from this origin."""
    path = key_file(key, out)
    return path.exists() and path.read_text() == key_of(origin, files, out)


def write(key: str, origin: bytes, texts: Mapping[str, str], files: Iterable[str], out: Path) -> None:
    """Write the files whose text differs, then the digest of their origin and of all files."""
    for name, text in texts.items():
        write_if_changed(out / name, text)
    write_if_changed(key_file(key, out), key_of(origin, files, out))


def write_if_changed(path: Path, text: str) -> None:
    """Write a file unless it has this text, because the build compiles files that are newer than their objects."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
