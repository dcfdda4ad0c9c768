"""A user's predicate of a fault: an expression or a file of Python that judges the result of a replay."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._syntax import parse, parse_expression
from ..errors import ArgumentError

__all__ = ["Check"]


class Check:
    """Return whether a fault shows in the arrays and the results of a replay.

    Its text is a Python expression of `arrays`, `results` and `np`, or the name of a file that defines
    `shows(arrays, results)`. `arrays` has the arrays by name, with their contents after the last region that lent them.
    `results` has the results of all calls, in order.

    Raises ArgumentError for a text that is neither an expression nor the name of such a file.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            if text.endswith(".py"):
                with open(text, encoding="utf-8") as file:
                    self.source = file.read()
                tree = parse(self.source)
            else:
                self.source = f"def shows(arrays, results):\n    return {text}\n"
                parse_expression(text)
                tree = parse(self.source)
            names: dict[str, Any] = {"np": np, "__name__": "shows"}
            exec(compile(tree, text if text.endswith(".py") else "<predicate>", "exec"), names)
        except (SyntaxError, ValueError) as error:
            raise ArgumentError(
                f"replay: --shrink needs differs, fails, an expression of arrays and results, or a file of Python; "
                f"{text} can't be read: {error}"
            ) from error
        self._shows = names.get("shows")
        if not callable(self._shows):
            raise ArgumentError(f"replay: {text} needs a function shows(arrays, results)")
        self.has_results = any(isinstance(node, ast.Name) and node.id == "results" for node in ast.walk(tree))

    def __call__(self, arrays: dict[str, NDArray[Any]], results: list[Any]) -> bool:
        """Return whether the fault shows. Raises ArgumentError if the predicate raises an exception."""
        assert self._shows is not None
        try:
            return bool(self._shows(arrays, results))
        except Exception as error:
            names = ", ".join(arrays) or "none"
            raise ArgumentError(
                f"replay: {self.text} raises {type(error).__name__}: {error}; arrays: {names}; {len(results)} results"
            ) from error
