"""Finds the line of a roles file that has a fault."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

_FAULT = re.compile(r"\w+\.toml: (?:\[(?P<table>[\w.]+)\])?(?P<rest>.*)")
_TABLE = re.compile(r"\[+([\w.\"{}-]+)\]+")


def _key(line: str) -> str:
    """Return the key that a line of TOML sets, or ""."""
    match = re.match(r'\s*("[^"]+"|[\w.-]+)\s*=', line)
    return match[1].strip('"') if match else ""


def _keys(table: str, text: str) -> tuple[int, dict[str, int]]:
    """Return a table's first line, or 0, and the lines of its keys. The table "" has the file's keys and tables."""
    inside, start = not table, 0
    keys: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = _TABLE.match(line)
        if match:
            inside = match[1] == table or match[1].startswith(f"{table}.")
            start = start or (number if inside else 0)
            if not table:
                keys.setdefault(match[1].partition(".")[0].casefold(), number)
        elif inside:
            keys.setdefault(_key(line).casefold(), number)
    return start, keys


def line_of(fault: str, text: str) -> int:
    """Return the line of the key that a fault names, or else the line of the key's table, or 0."""
    match = _FAULT.match(fault)
    if not match:
        return 0
    table, rest = match["table"] or "", match["rest"]
    start, keys = _keys(table, text)
    if table and not start:  # an inline table is a key of the outer table
        table, _, key = table.rpartition(".")
        return _keys(table, text)[1].get(key.casefold(), 0) if table else 0
    subject = rest.strip().partition(":")[0].casefold()
    if subject in keys:
        return keys[subject]
    words = [word.casefold() for word in re.findall(r"\w+", rest if table else subject.partition(" ")[0])]
    named = [keys[word] for word in words if word in keys]
    named += [number for key, number in keys.items() if "{" in key for word in words if _fits(key, word)]
    return next(iter(named), start)


def _fits(template: str, name: str) -> bool:
    """Return whether a name fits a template of names, such as "{t}gemv"."""
    return re.fullmatch(re.sub(r"\\{\w*\\}", r"\\w*", re.escape(template)), name) is not None


@cache
def extended_by(text: str) -> tuple[str, ...]:
    """Return the roles files whose families a roles file extends; none if the text is no roles file."""
    try:
        extends = tomllib.loads(text).get("extends")
    except tomllib.TOMLDecodeError:
        return ()
    names = extends if isinstance(extends, list) else []
    return tuple(name for name in names if isinstance(name, str) and name.isidentifier())


def located(fault: str, folder: Path) -> str:
    """Return a fault with its line, if the line is known, in the library's roles file or in a file that it extends."""
    path = folder / "roles" / fault.partition(":")[0]
    text = path.read_text()
    texts = {"": text}
    for extended in (path.with_name(f"{name}.toml") for name in extended_by(text)):
        texts |= {f" of {extended.name}": extended.read_text()} if extended.exists() else {}
    numbers = {of: number for of, text in texts.items() if (number := line_of(fault, text))}
    return f"{fault} (line {' or '.join(f'{number}{of}' for of, number in numbers.items())})" if numbers else fault
