"""Weak numbers, which take the type of the value with which they are combined, as Python's numbers do in NumPy 2.

A number is weak if it is a literal in the kernel, or an outer object that is an int, a float or a complex of Python.
Indices, sizes, the numbers of `here`, the results of int, float and math.floor, and results computed from weak numbers
are weak, too. A variable is weak if all values that are assigned to it are weak. Each item of a tuple is weak or not.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, Final

from . import words

__all__ = ["Strengthened", "Weakness"]

Form = bool | tuple["Form", ...]  # whether a value is weak; for a tuple, the forms of its items

_KEEP: Final = frozenset({abs, min, max})
_OF_PYTHON: Final = frozenset({int, float, complex, len, math.floor, math.ceil, math.trunc})
_DEEPEST: Final = 8  # of tuples in tuples: deeper ones are not weak


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
        self.value_of, self.arrays, self.parameters = value_of, arrays, parameters
        self.variables = variables | parameters
        self.forms: dict[str, Form] = {name: name not in parameters for name in self.variables}
        self.mixed: set[str] = set()  #: variables to which both weak numbers and other values are assigned
        assigned = self.assignments(tree)
        known: dict[str, Form] | None = None
        while known != self.forms:
            known = dict(self.forms)
            for name, value in assigned:
                self.forms[name] = _both(self.forms[name], value is None or self.form(value))
        results = [self.form(node.value) for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value]
        self.has_mixed_results = True in results and False in results  #: whether some of the returned numbers are weak
        forms = [(name, value is None or self.form(value)) for name, value in assigned]
        self.mixed = {name for name, form in forms if form is True} & {name for name, form in forms if form is False}

    def assignments(self, tree: ast.FunctionDef) -> list[tuple[str, ast.expr | None]]:
        """Return the variables with the values assigned to them; None stands for the whole numbers of a loop."""
        assigned: list[tuple[str, ast.expr | None]] = []
        for node in ast.walk(tree):
            match node:
                case ast.Assign():
                    for target in node.targets:
                        assigned += _pairs(target, node.value)
                case ast.AugAssign(target=ast.Name() as name):
                    assigned.append((name.id, ast.BinOp(ast.Name(name.id, ast.Load()), node.op, node.value)))
                case ast.AnnAssign() if node.value is not None:
                    assigned += _pairs(node.target, node.value)
                case ast.For(iter=ast.Tuple() as items):
                    for item in items.elts:
                        assigned += _pairs(node.target, item)
                case ast.For(iter=ast.Call() as call) if self.is_of_numbers(call):
                    assigned += _pairs(node.target, None)
                case ast.For():
                    any_item = ast.Subscript(node.iter, ast.Name("oa__any", ast.Load()), ast.Load())
                    assigned += _pairs(node.target, any_item)
        return assigned

    def is_of_numbers(self, call: ast.Call) -> bool:
        """Return whether a loop iterates over the numbers of a range, or over indices."""
        is_method = isinstance(call.func, ast.Attribute) and call.func.attr == "mine"
        return is_method or (isinstance(call.func, ast.Name) and call.func.id == "range")

    def of(self, node: ast.expr) -> bool:
        """Return whether an expression is weak."""
        return self.form(node) is True

    def form(self, node: ast.expr) -> Form:
        """Return whether an expression is weak; for a tuple, the forms of its items."""
        match node:
            case ast.Constant():
                return type(node.value) in (int, float, complex)
            case ast.Name() if node.id in self.variables:
                return self.forms[node.id]
            case ast.Name():
                return _form_of(self.value_of(node))
            case ast.Tuple():
                return _shallow(tuple(map(self.form, node.elts)))
            case ast.BinOp():
                return self.of(node.left) and self.of(node.right)
            case ast.UnaryOp():
                return not isinstance(node.op, ast.Not) and self.of(node.operand)
            case ast.BoolOp():
                return all(map(self.of, node.values))
            case ast.IfExp():
                return _both(self.form(node.body), self.form(node.orelse))
            case ast.Call(func=ast.Attribute(attr="box")):
                return True
            case ast.Call():
                called = self.value_of(node.func)
                try:
                    if called in words.WORDS or called in _OF_PYTHON:
                        return True
                    return called in _KEEP and all(map(self.of, node.args))
                except TypeError:  # the value is not hashable
                    return False
            case ast.Attribute(attr="shape", value=ast.Name() as base) if base.id in self.arrays | self.forms.keys():
                return base.id in self.arrays or base.id not in self.parameters
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                return True
            case ast.Attribute():
                is_size = node.attr == "size" and getattr(node.value, "id", "") in self.arrays
                return is_size or _form_of(self.value_of(node))
            case ast.Subscript():
                return self.item(self.form(node.value), node.slice)
        return False

    def item(self, form: Form, index: ast.expr) -> Form:
        """Return the form of an item of a value."""
        if not isinstance(form, tuple):
            return form
        number = index.operand if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub) else index
        if isinstance(number, ast.Constant) and type(number.value) is int:
            at = number.value if number is index else -number.value
            return form[at] if -len(form) <= at < len(form) else False
        return reduce(_both, form) if form else False


def _pairs(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the variables of a target with the values assigned to them."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple):
        for i, item in enumerate(target.elts):
            if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
                yield from _pairs(item, value.elts[i])
            else:
                yield from _pairs(item, value and ast.Subscript(value, ast.Constant(i), ast.Load()))


def _both(a: Form, b: Form) -> Form:
    """Return the form of a variable to which values of two forms are assigned."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(map(_both, a, b)) if len(a) == len(b) else False
    return False if a is False or b is False else b if a is True else a


def _shallow(form: tuple[Form, ...], depth: int = _DEEPEST) -> Form:
    """Return the form of a tuple, but False if the tuple is too deep."""
    items = tuple(_shallow(item, depth - 1) if isinstance(item, tuple) else item for item in form)
    return items if depth else False


def _form_of(value: object) -> Form:
    """Return the form of a value from outside the function."""
    if isinstance(value, tuple):
        return _shallow(tuple(map(_form_of, value)))
    return type(value) in (int, float, complex)


class Strengthened(ast.NodeTransformer):
    """Makes variables strong where they are read, in a rewritten tree.

    A variable may hold a weak number until another value is assigned to it. It stays weak as an operand of the
    functions that take weak numbers, as a branch of a conditional expression, and where it is assigned to a variable.
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
        is_of_variables = all(isinstance(target, (ast.Name, ast.Tuple)) for target in node.targets)
        node.targets = [self.visit(target) for target in node.targets]
        node.value = self.kept(node.value) if is_of_variables else self.visit(node.value)
        return node

    def kept(self, node: ast.expr) -> ast.expr:
        """Return an expression in which the variable that is all of it, or an item of a tuple, stays as it is."""
        if isinstance(node, ast.Tuple):
            node.elts = [self.kept(item) for item in node.elts]
            return node
        kept: ast.expr = node if isinstance(node, ast.Name) else self.visit(node)
        return kept
