"""A cache of compiled kernels and rates, in a folder of this user; the name of a file is a hash of its inputs.

OFFLOAD_ARGS_CACHE selects another folder; "off" turns the cache off. A folder or file that other users can write is not
used. A file is written under another name in the same folder and then renamed, so that no reader gets an incomplete
file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import warnings
from typing import Final

from .errors import PerformanceWarning

__all__ = ["find", "key_of", "store"]

_VARIABLE: Final = "OFFLOAD_ARGS_CACHE"
_said: Final[set[tuple[str, str]]] = set()  # pairs of an unused folder and the reason, about which a warning was given


def _folder() -> str | None:
    """Return the cache's folder, and make it if needed. Without a safe folder, warn once and return None."""
    value = path = os.environ.get(_VARIABLE, "")
    if path == "off":
        return None
    if not path:
        home = os.environ.get("XDG_CACHE_HOME", "")
        home = home if os.path.isabs(home) else os.path.expanduser("~/.cache")
        path = os.path.join(home, "offload_args", "kernels")
    fault = "the path is not absolute"
    if os.path.isabs(path):
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
            fault = _fault(os.lstat(path))
        except OSError as error:
            fault = f"it can't be made: {error.strerror}" if value else "it can't be made"
    if not fault:
        return path
    if (value or fault != "it can't be made") and (path, fault) not in _said:
        _said.add((path, fault))
        warnings.warn(
            f"offload_args: nothing is kept in {path}: {fault}; set {_VARIABLE} to the absolute path of "
            "a folder that only you can write, or to off",
            PerformanceWarning,
            stacklevel=2,
        )
    return None


def _fault(status: os.stat_result) -> str:
    """Return the reason why a folder or file is not used; "" if only this user can write it, and it is not a link."""
    if stat.S_ISLNK(status.st_mode):
        return "it is a link"
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    return "others can write it" if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


def key_of(*parts: str | bytes) -> str:
    """Return the name of a file whose inputs are these parts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def find(key: str) -> bytes | None:
    """Return the contents of a file; None if there is no such file."""
    folder = _folder()
    if folder is None:
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe must not wait
    try:
        descriptor = os.open(os.path.join(folder, key), flags)
    except OSError:
        return None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or _fault(status):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as file:
        return file.read()


def store(key: str, data: bytes) -> None:
    """Store a file; store nothing if there is no folder, or no room in it."""
    folder = _folder()
    if folder is None:
        return
    try:
        descriptor, path = tempfile.mkstemp(dir=folder)  # mode 0600
    except OSError:
        return
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(path, os.path.join(folder, key))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
