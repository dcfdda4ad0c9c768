"""Functions whose source a test writes; `inspect` and errors find the lines of the source."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from typing import Any


def function_of(source: str, file: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function that a source defines. `file` is a name that no other source has, such as <wave>."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace = dict(names)
    exec(compile(source, file, "exec"), namespace)
    function: Callable[..., Any] = [value for value in namespace.values() if getattr(value, "__code__", None)][-1]
    return function
