"""The source of the traced program: the names of a region's arrays, and the loops around it.

If the source is unavailable or cannot be parsed, functions return empty results; they never raise.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
from functools import lru_cache
from types import CodeType
from typing import NamedTuple

from .._syntax import parse

__all__ = ["Loop", "Place", "loops_around", "names_as_written"]

_DIRECTIONS = ("In", "Out", "InOut", "Scratch")
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOOPS = (ast.For, ast.AsyncFor)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Place(NamedTuple):
    """Name a line of a function."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{shown(self.file)}:{self.line}"


class Loop(NamedTuple):
    """Describe a loop around a place."""

    line: int  #: its first line
    bound: frozenset[str]  #: the names to which each iteration assigns


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # the directory was removed
        return os.sep


_HERE = _working_directory()  # the folder at the start, because the program may change it


def _cell(file: str) -> str:
    """Return the name of a notebook's cell, which IPython compiles as a file; "" for any other file."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    named = name_of(file) if name_of is not None else None
    return named[1] if named else ""


@lru_cache(maxsize=256)
def shown(file: str) -> str:
    """Return a file's name for people: a relative path if the file is in the working directory, or In[2] for a cell."""
    cell = _cell(file)
    if cell:
        return cell
    if not os.path.isabs(file):
        return file
    relative = os.path.relpath(file, _HERE)
    return file if relative.startswith(os.pardir) else relative


@lru_cache(maxsize=256)
def _tree(file: str) -> ast.Module | None:
    try:
        return parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return None


def _callee(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _lent(call: ast.expr | None) -> tuple[str, ...] | None:
    """Return the source text of a region's arguments; None if the call makes no region, or has a `*` argument."""
    if isinstance(call, ast.Call) and _callee(call) == "enter_context" and len(call.args) == 1:  # by an ExitStack
        call = call.args[0]
    if not isinstance(call, ast.Call) or _callee(call) != "offload_args":
        return None
    if any(isinstance(arg, ast.Starred) for arg in call.args):
        return None
    names = []
    for argument in call.args:
        if isinstance(argument, ast.Call) and argument.args:
            name = _callee(argument)
            if name == "Scratch":
                names.append("scratch")
                continue
            if name in _DIRECTIONS:
                argument = argument.args[0]
        names.append(ast.unparse(argument))
    return tuple(names)


@lru_cache(maxsize=1024)
def names_as_written(code: CodeType, instruction: int) -> tuple[str, ...] | None:
    """Return the source text of the arguments of a region, from the instruction (an offset in bytes) that enters it."""
    tree = _tree(code.co_filename)
    positions = list(code.co_positions())
    if tree is None or not 0 <= instruction // 2 < len(positions):
        return None
    line, last, column, end = positions[instruction // 2]
    for node in ast.walk(tree):
        if getattr(node, "lineno", None) != line or getattr(node, "col_offset", None) != column:
            continue
        # Python 3.11 gives this instruction the position of the statement, and later versions give it the
        # position of the expression.
        if isinstance(node, (ast.With, ast.AsyncWith)) and len(node.items) == 1:
            return _lent(node.items[0].context_expr)
        if isinstance(node, ast.Call) and (node.end_lineno, node.end_col_offset) == (last, end):
            return _lent(node)
    return None


def _spans(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0)


def _bound(loop: ast.AST) -> frozenset[str]:
    """Return the names to which each iteration of a loop assigns, without the variables of loops inside it."""
    own = (loop, *getattr(loop, "generators", ()))
    inside = [node_ for node_ in ast.walk(loop) if isinstance(node_, (*_LOOPS, ast.comprehension)) and node_ not in own]
    passing = {node for node_ in inside for node in ast.walk(node_.target)}
    return frozenset(
        node.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in passing
    )


@lru_cache(maxsize=1024)
def loops_around(file: str, line: int, function: str) -> tuple[Loop, ...]:
    """Return the loops of a function whose bodies contain a line of the function, the innermost first."""
    tree = _tree(file)
    loops: list[Loop] = []

    def descend(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if not _spans(child, line):
                # A node without a position, such as a comprehension's `for`, may contain nodes that have a position.
                if not hasattr(child, "lineno"):
                    descend(child)
                continue
            if isinstance(child, ast.Lambda) and function != "<lambda>":
                continue  # this is a lambda on the same line
            if isinstance(child, _FUNCTIONS):
                loops.clear()  # the loop runs the definition, not the body
            elif isinstance(child, _LOOPS):
                if child.body[0].lineno <= line:
                    loops.append(Loop(child.lineno, _bound(child)))
            elif isinstance(child, (ast.While, *_COMPREHENSIONS)):
                loops.append(Loop(child.lineno, _bound(child)))
            descend(child)

    if tree is not None:
        descend(tree)
    return tuple(reversed(loops))
