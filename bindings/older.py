"""Joins the api of a library with that of an older version of it, and says how the two differ."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass
class Older:
    """How versions of a library before `before` differ from later ones."""

    version: str  # of the header that was read
    before: str
    instead: dict[str, str] = field(default_factory=dict)  # symbol: the name of the same function there
    only: frozenset[str] = frozenset()  # the symbols that later versions lack


def read_api(name: str, roles: dict[str, Any], folder: Path = HERE) -> dict[str, Any]:
    """Reads api/<name>.json; with [older], joined with that file: what only one of the two has, and its `older`."""
    api: dict[str, Any] = json.loads((folder / "api" / f"{name}.json").read_text())
    if "older" not in roles:
        return api
    older = json.loads((folder / "api" / f"{roles['older']['api']}.json").read_text())
    only = sorted(older["functions"].keys() - api["functions"].keys())
    enums = {key: {**older["enums"].get(key, {}), **values} for key, values in api["enums"].items()}
    return {
        **api,
        "functions": api["functions"] | {key: older["functions"][key] for key in only},
        "enums": {**older["enums"], **enums},
        "older": {"version": older["version"], "functions": older["functions"], "only": only},
    }


def _types(function: dict[str, Any]) -> list[str]:
    return [function["returns"], *(c_type for _, c_type in function["parameters"])]


def fault(api: dict[str, Any], symbol: str, instead: str) -> str:
    """Returns what is wrong with calling a function through an older version of the library, or ""."""
    older = api.get("older", {"functions": {}})
    here = api["functions"][symbol]
    there = older["functions"].get(instead or symbol)
    if instead and there is None:
        return f"version {older.get('version')} has no {instead}"
    if there is not None and _types(there) != _types(here):
        return f"{instead or symbol} of version {older['version']} takes other types; name another one under `older`"
    return ""
