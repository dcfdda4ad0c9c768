"""Reads the lists of the core's public headers, which are in .def files."""

from __future__ import annotations

import re
from pathlib import Path

INCLUDE = Path(__file__).parents[1] / "csrc" / "include"
HEADERS = INCLUDE / "offload_args"


def entries(name: str) -> list[tuple[str, ...]]:
    """Return the arguments of each entry of a .def file, as in `entries("dtypes")`; texts have no quotes."""
    rows = re.findall(r"^OA_\w+\(([^)]*)\)", (HEADERS / f"{name}.def").read_text(), re.MULTILINE)
    return [tuple(value.strip().strip("\"'") for value in entry.split(",")) for entry in rows]
