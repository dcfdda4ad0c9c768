"""Joins the apis of a library's current, older and newer versions, and records their differences."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass
class Older:
    """The differences of a library's versions before `before` from later versions."""

    version: str  # the version of the header that was read
    before: str
    instead: dict[str, str] = field(default_factory=dict)  # {symbol: the name of the same function in older versions}
    only: tuple[str, ...] = ()  # the symbols that later versions lack


class ApiError(ValueError):
    """The faults of an api file, each on a separate line, with the line of the file."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


def _is_function(value: Any) -> bool:
    """Return whether a value has the form {"returns": type, "parameters": [[name, type], ...]}."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("returns"), str)
        and isinstance(value.get("parameters"), list)
        and all(
            isinstance(entry, list) and len(entry) == 2 and all(isinstance(text, str) for text in entry)
            for entry in value["parameters"]
        )
    )


def _is_enum(value: Any) -> bool:
    return isinstance(value, dict) and all(type(member) is int for member in value.values())


def _faults(file: str, text: str, api: Any) -> list[str]:
    """Return the faults of the structure of an api file, each with its line."""
    if not isinstance(api, dict):
        return [f"{file}: needs an object with header, version, functions and enums (line 1)"]
    wrong = [(key, "is missing, or no text") for key in ("header", "version") if not isinstance(api.get(key), str)]
    entries = [(key, api.get(key)) for key in ("functions", "enums")]
    wrong += [(key, "is missing, or no object") for key, table in entries if not isinstance(table, dict)]
    for (key, table), is_right, needed in zip(
        entries,
        (_is_function, _is_enum),
        ("an object with the text returns and the list parameters, of names and types", "an object of integers"),
        strict=True,
    ):
        items = table.items() if isinstance(table, dict) else ()
        wrong += [(name, f"of {key} is not {needed}") for name, value in items if not is_right(value)]
    lines = text.splitlines()
    faults = []
    for name, fault in wrong:
        line = next((number for number, line in enumerate(lines, 1) if f"{json.dumps(name)}:" in line), 1)
        faults.append(f"{file}: {name} {fault} (line {line})")
    return faults


def _read(path: Path) -> dict[str, Any]:
    """Read an api file; raise ApiError for any other file."""
    try:
        text = path.read_text()
        api: dict[str, Any] = json.loads(text)
    except FileNotFoundError:
        raise ApiError([f"{path.name}: there is no api/{path.name}; run python -m bindings extract"]) from None
    except json.JSONDecodeError as error:
        raise ApiError([f"{path.name}: {error.msg} (line {error.lineno})"]) from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise ApiError([f"{path.name}: {error} (line 1)"]) from None
    faults = _faults(path.name, text, api)
    if faults:
        raise ApiError(faults)
    return api


def read_api(name: str, roles: dict[str, Any], folder: Path = HERE) -> dict[str, Any]:
    """Read api/<name>.json, and join it with the file of [older]. A function that only one of these files has is
    marked as older or newer.

    The file of [newer] has only the additions of later versions. Raises ApiError with all faults of structure.
    """
    api = _read(folder / "api" / f"{name}.json")
    if "newer" in roles:
        newer = _read(folder / "api" / f"{roles['newer']['api']}.json")
        known = sorted(newer["functions"].keys() & api["functions"].keys())
        if known:
            raise ApiError([f"{name}.toml: [newer]: {function} is in api/{name}.json already" for function in known])
        enums = {key: {**api["enums"].get(key, {}), **values} for key, values in newer["enums"].items()}
        api |= {"functions": api["functions"] | newer["functions"], "enums": {**api["enums"], **enums}}
    if "older" not in roles:
        return api
    older = _read(folder / "api" / f"{roles['older']['api']}.json")
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
    """Return the reason why a function can't be called through an older version of the library, or ""."""
    older = api.get("older", {"functions": {}})
    here = api["functions"][symbol]
    there = older["functions"].get(instead or symbol)
    if instead and there is None:
        return f"version {older.get('version')} has no {instead}"
    if there is not None and _types(there) != _types(here):
        return f"{instead or symbol} of version {older['version']} takes other types; name another one under `older`"
    return ""
