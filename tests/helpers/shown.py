"""The pages of the reference on Python: the names that they show, and the objects with these names."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import offload_args

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
DIRECTIVE = re.compile(r"^\.\. auto(\w+):: (offload_args[\w.]*)((?:\n   .*)*)", re.MULTILINE)
_MEMBERS = re.compile(r":members:(.*(?:\n {6}.*)*)")


class Entry(NamedTuple):
    """A directive of a page: its kind, name and object; `members` has the named members, [] for all, or None."""

    page: str
    kind: str
    name: str
    thing: Any
    members: list[str] | None


def object_named(name: str) -> Any:
    """Return the object of a full name."""
    module, rest = offload_args, name.split(".")[1:]
    thing: Any = module
    for part in rest:
        thing = getattr(thing, part, None) or importlib.import_module(f"{thing.__name__}.{part}")
    return thing


def entries() -> Iterator[Entry]:
    """Yield the directives of all pages."""
    for page in sorted((REFERENCE / "python").glob("*.md")):
        for kind, name, options in DIRECTIVE.findall(page.read_text()):
            members = _MEMBERS.search(options)
            names = members[1].replace(",", " ").split() if members else None
            yield Entry(page.name, kind, name, object_named(name), names)


def shown() -> Iterator[tuple[str, Any]]:
    """Yield the functions, classes and methods that the pages show, by their names within the package.

    Classes of fields, protocols and exceptions are left out. Methods for Python's operators are left out, except for
    calls and subscripts that a page names.
    """
    for entry in entries():
        name = entry.name.removeprefix("offload_args.")
        if entry.kind == "module" and entry.members is not None:
            yield from _of_class_or_function(
                {f"{name}.{key}": getattr(entry.thing, key) for key in entry.thing.__all__}
            )
        elif entry.kind in ("class", "function"):
            yield from _of_class_or_function({name: entry.thing})
            keys = entry.members if entry.members else vars(entry.thing) if entry.members == [] else ()
            operators = {"__call__", "__getitem__"} & {*(entry.members or ())}
            for key in keys:
                method = inspect.getattr_static(entry.thing, key, None)
                function = method.__func__ if isinstance(method, (classmethod, staticmethod)) else method
                if callable(function) and (not key.startswith("_") or key in operators):
                    yield f"{name}.{key}", function


def _of_class_or_function(things: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, thing in things.items():
        is_class = isinstance(thing, type)
        described = is_class and (issubclass(thing, (tuple, BaseException)) or getattr(thing, "_is_protocol", False))
        if callable(thing) and not described:
            yield name, thing
