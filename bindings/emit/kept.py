"""Keeps libraries in the build folder, so that a build reads only the libraries whose files have changed.

`libraries/<library>.kept` has a library as it was read, and `<library>.signatures` has the library's text for cffi.
Each of these files begins with a digest of its contents, its source and the generator. A damaged file, or a file from
another source, is made again. `python -m bindings --check` and `report` use no such file.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from .. import roles
from ..declarations import HEADERS
from ..families import BODIES, CALLERS
from ..library import Library
from ..lines import extended_by
from .extensions import EXPORTS

_DIGEST_BYTES = 32


def _digest(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def _digest_of_files(paths: Iterable[Path]) -> bytes:
    """Return a digest of files and of their names; a file may be missing."""
    listed = sorted(paths)
    return _digest(*(path.name.encode() + _digest(path.read_bytes() if path.exists() else b"") for path in listed))


@cache
def generator_digest() -> bytes:
    """Return a digest of the code that reads and writes: this package, the modules and C lists that it uses, Python."""
    import cffi  # the build's own dependency

    sources = [*Path(__file__).parents[1].rglob("*.py"), *HEADERS.glob("*.def"), *BODIES, CALLERS]
    return _digest(f"{sys.version} {cffi.__version__}".encode(), _digest_of_files(sources))


def headers_digest() -> bytes:
    """Return a digest of the core's headers for users, which some files are made from, and of the generator."""
    return _digest(generator_digest(), _digest_of_files([*HEADERS.iterdir(), EXPORTS]))


def origin(pickled: bytes) -> bytes:
    """Return the digest of the generator and a pickled library, which determine all files of the library."""
    return _digest(generator_digest(), pickled)


def kept_bytes(path: Path, source: bytes, make: Callable[[], bytes]) -> bytes:
    """Return the bytes that `path` keeps for the generator and a source; make and keep them if they are missing."""
    kept = path.read_bytes() if path.exists() else b""
    content = kept[_DIGEST_BYTES:]
    if kept[:_DIGEST_BYTES] != _digest(generator_digest(), source, content):
        content = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}.part")
        partial.write_bytes(_digest(generator_digest(), source, content) + content)
        os.replace(partial, path)
    return content


class Kept:
    """The libraries of one build folder; `origins` has the digest of each library that was read."""

    def __init__(self, out: Path) -> None:
        self.folder = out / "libraries"
        self.origins: dict[str, bytes] = {}
        self._apis: dict[Path, bytes] = {}

    def read(self, name: str, folder: Path = roles.HERE) -> Library:
        """Return a library as roles.read does, from the build folder if its files have not changed."""
        pickled = kept_bytes(
            self.folder / f"{name}.kept", self._source(name, folder), lambda: pickle.dumps(roles.read(name, folder))
        )
        self.origins[name] = origin(pickled)
        library: Library = pickle.loads(pickled)
        return library

    def _source(self, name: str, folder: Path) -> bytes:
        """Return a digest of all files that roles.read may read; a roles file may name several api files."""
        path = folder / "roles" / f"{name}.toml"
        shared = [path.with_name(f"{extended}.toml") for extended in extended_by(path.read_text())]
        if folder not in self._apis:
            self._apis[folder] = _digest_of_files((folder / "api").glob("*.json"))
        return _digest(_digest_of_files([path, *shared]), self._apis[folder])
