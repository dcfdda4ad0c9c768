"""Functions whose source a test writes, with lines that inspect and errors find."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from typing import Any


def function_of(source: str, file: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function that a source defines. file: such as <wave>, a name that no other source has."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    made = dict(names)
    exec(compile(source, file, "exec"), made)
    function: Callable[..., Any] = [one for one in made.values() if getattr(one, "__code__", None)][-1]
    return function
