"""A cache of compiled kernels: a folder of this user's only, files named by what they were made from.

OFFLOAD_ARGS_CACHE names another folder; "off" turns it off. A folder that others can write is not used, nor are files
in it. Files are written beside their place and moved there, so that a reader sees all of a file or none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile

__all__ = ["find", "key_of", "store"]


def _folder() -> str | None:
    """Return the cache's folder, made if needed; None if there is none that is safe."""
    path = os.environ.get("OFFLOAD_ARGS_CACHE", "")
    if path == "off":
        return None
    if not path:
        home = os.environ.get("XDG_CACHE_HOME", "")
        home = home if os.path.isabs(home) else os.path.expanduser("~/.cache")
        path = os.path.join(home, "offload_args", "kernels")
    if not os.path.isabs(path):
        return None
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path if _is_ours(os.lstat(path)) else None
    except OSError:
        return None


def _is_ours(status: os.stat_result) -> bool:
    """Tell whether only this user can write it, and it is not a link."""
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid == os.geteuid() and not shared and not stat.S_ISLNK(status.st_mode)


def key_of(*parts: str | bytes) -> str:
    """Return the name of what is made from these parts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogatepass") if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def find(key: str) -> bytes | None:
    """Return the file of that name; None if there is none."""
    folder = _folder()
    if folder is None:
        return None
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not wait for its writer
    try:
        descriptor = os.open(os.path.join(folder, key), flags)
    except OSError:
        return None
    status = os.fstat(descriptor)
    if not (stat.S_ISREG(status.st_mode) and _is_ours(status)):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as file:
        return file.read()


def store(key: str, data: bytes) -> None:
    """Keep a file. Without a folder, or room in it, nothing is kept."""
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
