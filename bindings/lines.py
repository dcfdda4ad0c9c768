"""Finds the line of a roles file that a fault is about."""

from __future__ import annotations

import re
from pathlib import Path

_FAULT = re.compile(r"\w+\.toml: \[(?P<table>[\w.]+)\](?P<rest>.*)")
_TABLE = re.compile(r"\[+([\w.\"{}-]+)\]+")


def _key(line: str) -> str:
    """Returns the key that a line of TOML sets, or ""."""
    found = re.match(r'\s*("[^"]+"|[\w.-]+)\s*=', line)
    return found[1].strip('"') if found else ""


def line_of(fault: str, text: str) -> int:
    """Returns the line of the key that a fault names, else that of its table, or 0."""
    found = _FAULT.match(fault)
    if not found:
        return 0
    inside, start = False, 0
    keys: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        table = _TABLE.match(line)
        if table:
            inside = table[1] == found["table"] or table[1].startswith(found["table"] + ".")
            start = start or (number if inside else 0)
        elif inside:
            keys.setdefault(_key(line).casefold(), number)
    named = (keys[word.casefold()] for word in re.findall(r"\w+", found["rest"]) if word.casefold() in keys)
    return next(named, start)


def located(fault: str, folder: Path) -> str:
    """Returns a fault with its line, if that is known: in the library's roles file, or in one that it extends."""
    path = folder / "roles" / fault.partition(":")[0]
    text = path.read_text()
    shared = re.search(r"^extends = \[(.*)\]", text, re.MULTILINE)
    texts = {"": text}
    for name in re.findall(r"\w+", shared[1] if shared else ""):
        texts[f" of {name}.toml"] = path.with_name(f"{name}.toml").read_text()
    found = {of: number for of, one in texts.items() if (number := line_of(fault, one))}
    return f"{fault} (line {' or '.join(f'{number}{of}' for of, number in found.items())})" if found else fault
