"""Reads api/<library>.json and roles/<library>.toml into libraries. bindings/README.md explains the words."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import schema, shared
from .joins import Joined
from .library import Function, Library, RolesError
from .lines import extended_by, located
from .older import ApiError, read_api

HERE = Path(__file__).parent
__all__ = ["HERE", "Function", "Library", "RolesError", "join", "load", "names", "read", "read_api", "read_roles"]


def _file(name: str, folder: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((folder / "roles" / f"{name}.toml").read_text())
    except tomllib.TOMLDecodeError as error:
        raise RolesError([f"{name}.toml: {error}"]) from None
    except FileNotFoundError:
        raise RolesError([f"{name}.toml: there is no such file in {folder / 'roles'}"]) from None


def read_roles(name: str, folder: Path = HERE) -> dict[str, Any]:
    """Read roles/<name>.toml, with the families that it shares; raise RolesError if their structure is wrong."""
    roles = _file(name, folder)
    wrong = schema.faults(name, roles)
    for other in roles.get("extends", []) if not wrong else []:
        if (folder / "roles" / f"{other}.toml").exists():
            wrong += schema.faults(other, _file(other, folder))
        else:
            wrong.append(f"{name}.toml: extends: there is no roles/{other}.toml")
    if not wrong:
        roles = shared.extended(roles, folder)
        wrong = schema.incomplete(name, roles)
    if wrong:
        raise RolesError(wrong)
    return roles


def names(folder: Path = HERE) -> list[str]:
    """Return the names of the libraries: the files in roles, except files that other files extend."""
    paths = sorted((folder / "roles").glob("*.toml"))
    extended = {name for path in paths for name in extended_by(path.read_text())}
    return [path.stem for path in paths if path.stem not in extended]


def join(name: str, api: dict[str, Any], roles: dict[str, Any]) -> Library:
    """Join an api and its roles; raise RolesError with all faults."""
    return Joined(name, api, roles).library()


def read(name: str, folder: Path = HERE) -> Library:
    """Read one library; raises RolesError or ApiError with every fault found."""
    source = folder / "api" / f"{name}.json"
    if not source.exists():
        raise ApiError([f"{name}.toml: there is no api/{source.name}; run python -m bindings extract"])
    labels = read_roles(name, folder)
    return join(name, read_api(name, labels, folder), labels)


def load(folder: Path = HERE, read: Callable[[str, Path], Library] = read) -> list[Library]:
    """Read every library that has both an api file and a roles file; raise RolesError with all faults."""
    libraries: list[Library] = []
    faults: list[str] = []
    for name in names(folder):
        try:
            libraries.append(read(name, folder))
        except RolesError as error:
            faults += [located(fault, folder) for fault in error.faults]
        except ApiError as error:
            faults += error.faults
    if faults:
        raise RolesError(faults)
    return libraries
