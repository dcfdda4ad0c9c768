"""The function that the readers of kernels' trees share."""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["matched"]


def matched(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each target of an assignment with its value."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for element, element_value in zip(target.elts, value.elts, strict=True):
            yield from matched(element, element_value)
    else:
        yield target, value
