"""Weak numbers, which take the type of the value with which they are combined, as Python's numbers do in NumPy 2.

A number is weak if it is a literal in the kernel, or an outer object that is an int, a float or a complex of Python.
Indices, sizes, the numbers of `here`, the results of int, float and math.floor, and results computed from weak numbers
are weak, too. A variable is weak if all values that are assigned to it are weak.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any, Final

from . import words
from .trees import matched

__all__ = ["Strengthened", "Weakness"]

_KEEP: Final = frozenset({abs, min, max})
_OF_PYTHON: Final = frozenset({int, float, complex, len, math.floor, math.ceil, math.trunc})


class Weakness:
    """Determines which expressions of a function are weak.

    value_of: returns the object for which an outer name stands. variables: the names that the function assigns.
    parameters: the names of parameters, which are never weak. arrays: the parameters that have a size.
    """

    def __init__(
        self,
        tree: ast.FunctionDef,
        variables: set[str],
        parameters: set[str],
        arrays: set[str],
        value_of: Callable[[ast.expr], Any],
    ) -> None:
        self.value_of, self.arrays = value_of, arrays
        self.variables = variables | parameters
        self.weak = variables - parameters
        self.mixed: set[str] = set()  #: variables to which both weak numbers and other values are assigned
        assigned = self.assignments(tree)
        known = -1
        while known != len(self.weak):
            known = len(self.weak)
            self.weak -= {name for name, value in assigned if not (value is None or self.of(value))}
        weakly = {name for name, value in assigned if value is None or self.of(value)}
        self.mixed = weakly & {name for name, value in assigned if not (value is None or self.of(value))}

    def assignments(self, tree: ast.FunctionDef) -> list[tuple[str, ast.expr | None]]:
        """Return the variables with the values assigned to them; None stands for the whole numbers of a loop."""
        assigned: list[tuple[str, ast.expr | None]] = []
        pairs: list[tuple[ast.expr, ast.expr]]
        for node in ast.walk(tree):
            match node:
                case ast.Assign():
                    pairs = [pair for target in node.targets for pair in matched(target, node.value)]
                case ast.AugAssign(target=ast.Name() as name):
                    pairs = [(name, ast.BinOp(ast.Name(name.id, ast.Load()), node.op, node.value))]
                case ast.AnnAssign() if node.value is not None:
                    pairs = [(node.target, node.value)]
                case ast.For(iter=ast.Tuple() as items):
                    pairs = [(node.target, item) for item in items.elts]
                case ast.For():
                    assigned += [(child.id, None) for child in ast.walk(node.target) if isinstance(child, ast.Name)]
                    continue
                case _:
                    continue
            for target, value in pairs:
                is_box = isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "box"
                is_shape = isinstance(value, ast.Attribute) and value.attr == "shape"
                for child in ast.walk(target):
                    if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
                        assigned.append((child.id, None if is_box or is_shape else value))
        return assigned

    def of(self, node: ast.expr) -> bool:
        """Return whether an expression is weak."""
        match node:
            case ast.Constant():
                return type(node.value) in (int, float, complex)
            case ast.Name() if node.id in self.variables:
                return node.id in self.weak
            case ast.Name():
                return type(self.value_of(node)) in (int, float, complex)
            case ast.BinOp():
                return self.of(node.left) and self.of(node.right)
            case ast.UnaryOp():
                return not isinstance(node.op, ast.Not) and self.of(node.operand)
            case ast.IfExp():
                return self.of(node.body) and self.of(node.orelse)
            case ast.Call():
                called = self.value_of(node.func)
                try:
                    if called in words.WORDS or called in _OF_PYTHON:
                        return True
                    return called in _KEEP and all(map(self.of, node.args))
                except TypeError:  # the value is not hashable
                    return False
            case ast.Attribute():
                is_size = node.attr == "size" and getattr(node.value, "id", "") in self.arrays
                return is_size or type(self.value_of(node)) in (int, float, complex)
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                return True
            case ast.Subscript(value=ast.Name() as base, slice=index) if base.id not in self.variables:
                values = self.value_of(base)
                if isinstance(values, tuple) and isinstance(index, ast.Constant) and isinstance(index.value, int):
                    values = values[index.value : index.value + 1]
                return isinstance(values, tuple) and all(type(item) in (int, float, complex) for item in values)
        return False


class Strengthened(ast.NodeTransformer):
    """Makes variables strong where they are read, in a rewritten tree.

    A variable may hold a weak number until another value is assigned to it. It stays weak as an operand of the
    functions that take weak numbers, as a branch of a conditional expression, and where it is assigned.
    """

    def __init__(self, mixed: set[str]) -> None:
        self.mixed = mixed

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.mixed or not isinstance(node.ctx, ast.Load):
            return node
        call = ast.Call(ast.Name("oa__strong", ast.Load()), [node], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        takes_weak = isinstance(node.func, ast.Name) and node.func.id.startswith("oa__binary_")
        node.args = [self.kept(argument) if takes_weak else self.visit(argument) for argument in node.args]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        node.test, node.body, node.orelse = self.visit(node.test), self.kept(node.body), self.kept(node.orelse)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        node.targets = [self.visit(target) for target in node.targets]
        node.value = self.kept(node.value)
        return node

    def kept(self, node: ast.expr) -> ast.expr:
        """Return an expression in which the variable that is all of it, or an item of a tuple, stays as it is."""
        if isinstance(node, ast.Tuple):
            node.elts = [self.kept(item) for item in node.elts]
            return node
        kept: ast.expr = node if isinstance(node, ast.Name) else self.visit(node)
        return kept
