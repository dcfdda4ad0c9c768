"""Checks barriers, which all threads of a block must reach, or none. A barrier that only some threads may reach is
refused.

The check reads the rewritten tree. A value depends on the thread if it comes from the thread's numbers, from an array
that the kernel writes, or from a variable that is assigned in code that only some threads reach. The check ignores the
order of statements: if a variable depends on the thread at one place, it counts as dependent at all places.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Final, NoReturn, Protocol

from .trees import matched

__all__ = ["Reader", "check_barriers", "is_barrier", "uniformity"]

_OF_THREAD: Final = frozenset({
    "oa__here_index", "oa__here_thread_index", "oa__here_thread", "oa__run", "oa__rows", "oa__columns", "oa__add",
    "oa__min", "oa__max",
})  # fmt: skip
_OF_BLOCK: Final = frozenset({"oa__size", "oa__extent", "oa__box"})


class Refuse(Protocol):
    """Raise KernelError with a line."""

    def __call__(self, node: ast.AST, construct: str, remedy: str) -> NoReturn: ...


def is_barrier(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "oa__barrier"


class Reader:
    """Finds the variables that depend on the thread."""

    def __init__(self, written: frozenset[str], refuse: Refuse | None) -> None:
        self.written, self.refuse = written, refuse
        self.of_thread: set[str] = set()  # the variables that depend on the thread
        self.refuses = False  # True once these variables are known

    def differs(self, node: ast.AST) -> bool:
        """Return whether the value of an expression may differ between the threads of a block."""
        if isinstance(node, ast.Name):
            return node.id in self.of_thread or node.id in self.written
        called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        if called in _OF_THREAD or called in _OF_BLOCK:
            return called in _OF_THREAD
        return any(map(self.differs, ast.iter_child_nodes(node)))

    def assign(self, target: ast.expr, of_thread: bool) -> None:
        if of_thread:
            self.of_thread |= {node.id for node in ast.walk(target)
                               if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}  # fmt: skip

    def block(self, body: Sequence[ast.stmt], cause: ast.stmt | None) -> dict[type[ast.stmt], ast.stmt]:
        """Read statements. `cause` is the statement because of which only some threads reach them, or None.

        Return the kinds of statements by which only some threads leave, each with its cause.
        """
        leaving: dict[type[ast.stmt], ast.stmt] = {}
        for statement in body:
            left = self.statement(statement, cause)
            leaving = {**left, **leaving}
            cause = cause or next(iter(left.values()), None)
        return leaving

    def statement(self, node: ast.stmt, cause: ast.stmt | None) -> dict[type[ast.stmt], ast.stmt]:
        match node:
            case ast.Expr(value=ast.Call()) if is_barrier(node.value):
                if cause is not None and self.refuses and self.refuse is not None:
                    self.refuse(
                        node, f"barrier() that the threads of a block need not all reach, by line {cause.lineno}",
                        "a barrier waits for every thread of the block: move it out of conditions and loops that "
                        "differ between threads",
                    )  # fmt: skip
            case ast.Assign():
                for pattern in node.targets:
                    for target, value in matched(pattern, node.value):
                        self.assign(target, cause is not None or self.differs(value))
            case ast.If():
                inner = cause or (node if self.differs(node.test) else None)
                return {**self.block(node.orelse, inner), **self.block(node.body, inner)}
            case ast.While() | ast.For():
                return self.loop(node, cause)
            case ast.Return() | ast.Break() | ast.Continue():
                return {type(node): cause} if cause is not None else {}
        return {}

    def loop(self, node: ast.While | ast.For, cause: ast.stmt | None) -> dict[type[ast.stmt], ast.stmt]:
        inner = cause or (node if self.differs(node.iter if isinstance(node, ast.For) else node.test) else None)
        if isinstance(node, ast.For):
            self.assign(node.target, inner is not None)
        refuses, self.refuses = self.refuses, False
        left = self.block(node.body, inner)  # threads that leave a loop also miss its barriers in later iterations
        self.refuses = refuses
        for kind in (ast.Return, ast.Break):
            inner = inner or left.get(kind)
        left = self.block(node.body, inner)
        return {ast.Return: left[ast.Return]} if ast.Return in left else {}


def uniformity(body: Sequence[ast.stmt], written: frozenset[str], refuse: Refuse | None = None) -> Reader:
    """Return a reader that knows the variables of a rewritten kernel that depend on the thread."""
    reader = Reader(written, refuse)
    known = -1
    while known != len(reader.of_thread):
        known = len(reader.of_thread)
        reader.block(body, None)
    return reader


def check_barriers(body: Sequence[ast.stmt], written: frozenset[str], refuse: Refuse) -> None:
    """Refuse a barrier that some threads of a block may miss.

    body: the statements of a rewritten kernel. written: the names of arrays whose elements change. refuse: raises the
    error.
    """
    if not any(is_barrier(node) for statement in body for node in ast.walk(statement)):
        return
    reader = uniformity(body, written, refuse)
    reader.refuses = True
    reader.block(body, None)
