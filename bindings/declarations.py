"""Reads the core's public headers: the declarations that cffi takes, and the entries of their .def files."""

from __future__ import annotations

import re
from pathlib import Path

INCLUDE = Path(__file__).parents[1] / "csrc" / "include"
HEADERS = INCLUDE / "offload_args"
# An #include of a .def file between the definition of its macro and the end of that.
_LIST = re.compile(
    r'^#define (?P<macro>\w+)\((?P<names>[^)]*)\) (?P<body>.*)\n#include "(?P<file>[^"]+\.def)"\n#undef (?P=macro)\n',
    re.MULTILINE,
)


def entries(name: str) -> list[tuple[str, ...]]:
    """Returns the arguments of each entry of a .def file, texts without their quotes: `entries("dtypes")`."""
    found = re.findall(r"^OA_\w+\(([^)]*)\)", (HEADERS / f"{name}.def").read_text(), re.MULTILINE)
    return [tuple(one.strip().strip("\"'") for one in entry.split(",")) for entry in found]


def _expanded(match: re.Match[str]) -> str:
    """Returns what the C preprocessor makes of one list."""
    lines = []
    names = [one.strip() for one in match["names"].split(",")]
    for entry in entries(Path(match["file"]).stem):
        line = match["body"]
        for name, value in zip(names, entry, strict=True):
            line = re.sub(rf"##{name}\b", value, line)
        lines.append(line + "\n")
    return "".join(lines)


def core_declarations() -> str:
    """Returns the lines of core.h and testing.h between their two marks, with the lists of .def files written out."""
    texts = [(HEADERS / name).read_text() for name in ("core.h", "testing.h")]
    marked = [text.split("/* [cffi begin] */")[1].split("/* [cffi end] */")[0] for text in texts]
    return _LIST.sub(_expanded, "".join(marked))
