"""Trees of Python source, made by one thread at a time.

Python 3.11 and 3.12 count the depth of the trees of all threads in one number. `ast.parse` raises SystemError if
another thread makes a tree meanwhile.
"""

from __future__ import annotations

import ast
import threading
from typing import Final

__all__ = ["parse", "parse_expression"]

_parsing: Final = threading.Lock()


def parse(source: str, file: str = "<unknown>") -> ast.Module:
    """Return the tree of a file's source. Raises SyntaxError, ValueError and RecursionError, as `ast.parse` does."""
    with _parsing:
        return ast.parse(source, file)


def parse_expression(source: str) -> ast.expr:
    """Return the tree of an expression. Raises SyntaxError, ValueError and RecursionError, as `ast.parse` does."""
    with _parsing:
        return ast.parse(source, mode="eval").body
