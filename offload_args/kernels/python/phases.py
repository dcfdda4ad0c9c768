"""Divides a kernel at its barriers into phases: loops over the threads of a block, which LLVM vectorizes on the CPU.

The input is the rewritten tree of a kernel, and the result is the tree of a function that runs a whole block. Code
whose values do not differ between threads runs once. Other code runs in a loop over the threads for each *piece*, which
ends at a barrier, at code that runs once, and around some loops. A variable that outlives a piece has a *slot*, memory
with a place for each thread; a variable that is computed from the thread's numbers alone is computed again instead.

Each thread does the same operations in the same order as it does alone. The order between threads changes only between
barriers, where no thread may read what another one stores. Kernels with atomic operations whose order matters are not
divided. Neither are kernels with a statement that is not understood here: their threads run as coroutines (emit.py).

If a loop of a piece steps over elements by the number of threads and stores nothing, its order is turned: each of its
steps is a loop over the threads, whose elements are side by side.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np

from ...arguments import In
from .barriers import Reader, is_barrier, uniformity
from .definitions import Written
from .trees import matched

__all__ = ["Divided", "divided"]

_Node = TypeVar("_Node", bound=ast.AST)

_ATOMIC: Final = frozenset({"oa__add", "oa__min", "oa__max"})
_NUMBERS: Final = frozenset({
    "oa__here_index", "oa__here_thread_index", "oa__here_thread", "oa__here_block_index", "oa__here_threads",
    "oa__here_blocks", "oa__here_size", "oa__size", "oa__extent", "oa__binary_add", "oa__binary_sub", "oa__binary_mul",
})  # fmt: skip
_FIRST_ALONG_X: Final = ("oa__here_index(oa__here, 0)", "oa__here_thread_index(oa__here, 0)",
                         "oa__here_thread(oa__here)")  # fmt: skip
_STEPS: Final = tuple(f"oa__here_{name}(oa__here, {axis})" for name in ("size", "threads") for axis in range(3))
_OVER_THREADS: Final = """
for oa__row in oa__rows_of(oa__origin):
    for oa__thread in THREADS:
        BODY
"""
_AHEAD: Final = 8  # the steps of a turned loop that are taken at once, so that slots are read and stored once
_MOST_OPERATIONS: Final = 16  # of such a step; LLVM would not write out longer ones eight times, nor vectorize them
_OPERATIONS: Final = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.Subscript, ast.If, ast.IfExp)
_OVER_ELEMENTS: Final = """
for oa__row in oa__rows_of(oa__origin):
    oa__end, oa__rest = END, FIRST
    SEVERAL
    for oa__base in oa__strided(oa__rest, oa__end, STEP):
        for oa__thread in oa__threads_below(oa__row, oa__base, oa__end):
            INDEX = oa__base + oa__here_thread_index(oa__thread, 0)
            BODY
"""
_SEVERAL_STEPS: Final = f"""
oa__complete = oa__end - {_AHEAD - 1} * STEP - (oa__here_threads(oa__here, 0) - 1)
for oa__base in oa__strided(oa__rest, oa__complete, {_AHEAD} * STEP):
    for oa__thread in oa__threads(oa__row):
        BODY
    oa__rest = oa__base + {_AHEAD} * STEP
"""
_STEPS_OF_THREAD: Final = f"""
for oa__k in range({_AHEAD}):
    INDEX = oa__base + oa__k * STEP + oa__here_thread_index(oa__here, 0)
    BODY
"""


class NotUnderstoodError(Exception):
    """A kernel has a statement that is not divided."""


@dataclass
class Divided:
    """A divided kernel.

    typed: the kernel's tree with a call oa__probe(k, variable) at each place where the function reads a slot.
    tree: the function. It has further parameters, one for each slot.
    slots: {variable: the numbers k of its probes}.
    """

    typed: ast.FunctionDef
    tree: ast.FunctionDef
    slots: dict[str, list[int]]


@dataclass
class _Live:
    """The variables that are live at the ends of loops."""

    after: frozenset[str] = frozenset()  # at a break
    again: frozenset[str] = frozenset()  # at a continue


@dataclass
class _Divider:
    written: Written
    body: list[ast.stmt]
    uniform: Reader
    once: set[str] = field(default_factory=set)  # variables of code that runs once
    stored: frozenset[str] = frozenset()  # all variables
    own: frozenset[str] = frozenset()  # variables of threads
    again: dict[str, ast.expr] = field(default_factory=dict)  # those that are computed again, with their values
    probes: dict[int, list[ast.stmt]] = field(default_factory=dict)  # {id of a statement: the probes before it}
    slots: dict[str, list[int]] = field(default_factory=dict)
    count: int = 0

    def divide(self) -> Divided:
        self.check_atomic_order()
        self.stored = frozenset(_stored(self.body))
        self.once = set(self.stored - self.uniform.of_thread)
        known = -1
        while known != len(self.once):
            known = len(self.once)
            self.find_own(self.body)
        self.own = self.stored - self.once
        self.find_again()
        code, live = self.block(self.body, frozenset(), _Live())
        if live:
            raise NotUnderstoodError
        tree = self.written.tree
        typed = ast.FunctionDef(tree.name, tree.args, self.probed(self.body), [], None, None)
        names = [*tree.args.args, *(ast.arg(_slot(name)) for name in self.slots)]
        arguments = ast.arguments([], names, None, [], [], None, [])
        first = ast.parse("oa__origin = oa__first(oa__here)").body
        function = ast.FunctionDef(tree.name, arguments, first + code, [], None, None)
        for result in (typed, function):
            setattr(result, "type_params", [])  # noqa: B010  Python 3.12 needs it, and 3.11 lacks it
            ast.fix_missing_locations(ast.copy_location(result, tree))
        return Divided(typed, function, self.slots)

    # -- kinds of code -------------------------------------------------------------------------------------------------

    def check_atomic_order(self) -> None:
        """Refuse atomic operations whose order matters: of floating-point numbers, and those whose result is used."""
        arrays = {**self.written.arrays, **self.written.shared}
        without_order = set()
        for node in _walk(self.body):
            match node:
                case ast.Expr(value=ast.Call(args=[ast.Name(name), *_]) as call) if name in arrays:
                    if np.dtype(arrays[name].dtype).kind in "iu":
                        without_order.add(id(call))
        if any(_called(node) in _ATOMIC and id(node) not in without_order for node in _walk(self.body)):
            raise NotUnderstoodError

    def runs_once(self, node: ast.stmt) -> bool:
        """Return whether a statement only assigns variables of code that runs once, by values of such code."""
        match node:
            case ast.Pass() | ast.Break() | ast.Continue() | ast.Return():
                return True
            case ast.Assign():
                return all(map(self.is_target, node.targets)) and self.is_same(node.value)
            case ast.If() | ast.While():
                return self.is_same(node.test) and all(map(self.runs_once, [*node.body, *node.orelse]))
            case ast.For():
                return self.is_target(node.target) and self.is_same(node.iter) and all(map(self.runs_once, node.body))
        return False

    def is_target(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Tuple):
            return all(map(self.is_target, node.elts))
        return isinstance(node, ast.Name) and node.id in self.once

    def is_same(self, node: ast.expr) -> bool:
        """Return whether an expression has one value for the block, and reads no variables of threads."""
        read = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
        return not self.uniform.differs(node) and not read & (self.stored - self.once)

    def is_control(self, node: ast.stmt) -> bool:
        """Return whether a statement has a barrier, or leaves a loop around it or the kernel."""
        if isinstance(node, (ast.If, ast.While, ast.For)):
            return any(map(is_barrier, ast.walk(node))) or _leaves(node)
        return isinstance(node, (ast.Break, ast.Continue, ast.Return))

    def find_own(self, body: Sequence[ast.stmt]) -> None:
        """Remove the variables that threads assign from the variables of code that runs once."""
        for node in body:
            if self.runs_once(node):
                continue
            if self.is_control(node):
                if isinstance(node, ast.For):
                    if not self.is_same(node.iter) or not self.is_target(node.target):
                        raise NotUnderstoodError
                elif not isinstance(node, (ast.If, ast.While)) or not self.is_same(node.test):
                    raise NotUnderstoodError
                self.find_own(node.body)
                self.find_own(node.orelse)
            elif not _is_barrier_statement(node):
                self.once -= _stored([node])

    def find_again(self) -> None:
        """Find the variables whose only value depends on the thread's numbers alone."""
        assigned: dict[str, list[ast.expr | None]] = {}
        for node in _walk(self.body):
            match node:
                case ast.Assign():
                    for target in node.targets:
                        for name in _names_of(target):
                            value = node.value if isinstance(target, ast.Name) and len(node.targets) == 1 else None
                            assigned.setdefault(name, []).append(value)
                case ast.For():
                    for name in _names_of(node.target):
                        assigned.setdefault(name, []).append(None)
        known = -1
        while known != len(self.again):
            known = len(self.again)
            for name, values in assigned.items():
                value = values[0] if len(values) == 1 and name not in self.written.parameters else None
                if name in self.own and name not in self.again and value is not None and self.is_number(value):
                    self.again[name] = value

    def is_computed_again(self, node: ast.stmt) -> bool:
        """Return whether a statement only assigns variables that are computed again where they are used."""
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        return isinstance(target, ast.Name) and target.id in self.again

    def is_number(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant():
                return type(node.value) is int
            case ast.Name():
                return node.id in self.again or node.id not in self.stored
            case ast.Call():
                return _called(node) in _NUMBERS and all(map(self.is_number, node.args))
            case ast.BinOp():
                sums = isinstance(node.op, (ast.Add, ast.Sub, ast.Mult))
                return sums and self.is_number(node.left) and self.is_number(node.right)
        return False

    # -- code in place of code -----------------------------------------------------------------------------------------

    def block(
        self, body: Sequence[ast.stmt], live: frozenset[str], ends: _Live
    ) -> tuple[list[ast.stmt], frozenset[str]]:
        """Return the code of statements, and the variables of threads that are live before them."""
        code: list[ast.stmt] = []
        for part in reversed(list(self.parts(body))):
            if isinstance(part, list):
                result, live = self.pieces(part, live)
            else:
                result, live = self.control(part, live, ends)
            code = result + code
        return code or [ast.Pass()], live

    def parts(self, body: Sequence[ast.stmt]) -> Iterator[ast.stmt | list[ast.stmt]]:
        """Yield statements that run once or are control, and the statements of threads between them as lists."""
        piece: list[ast.stmt] = []
        for node in body:
            if _is_barrier_statement(node) or self.runs_once(node) or self.is_control(node):
                if piece:
                    yield piece
                piece = []
                if not _is_barrier_statement(node):
                    yield node
            else:
                piece.append(node)
        if piece:
            yield piece

    def control(self, node: ast.stmt, live: frozenset[str], ends: _Live) -> tuple[list[ast.stmt], frozenset[str]]:
        match node:
            case ast.Break():
                return [node], ends.after
            case ast.Continue():
                return [node], ends.again
            case ast.Return():
                return [node], frozenset()
        if self.runs_once(node) and not _leaves(node):
            return [copy.deepcopy(node)], live
        if isinstance(node, ast.If):
            then, live_then = self.block(node.body, live, ends)
            otherwise, live_otherwise = self.block(node.orelse, live, ends)
            result: ast.stmt = ast.If(node.test, then, otherwise if node.orelse else [])
            return [ast.copy_location(result, node)], live_then | live_otherwise
        assert isinstance(node, (ast.While, ast.For))
        head = live
        while True:
            kept = copy.deepcopy(self.probes), copy.deepcopy(self.slots), self.count
            inner, live_inner = self.block(node.body, head, _Live(live, head))
            if live_inner <= head:
                break
            head |= live_inner
            self.probes, self.slots, self.count = kept
        if isinstance(node, ast.While):
            result = ast.While(node.test, inner, [])
        else:
            result = ast.For(node.target, node.iter, inner, [])
        return [ast.copy_location(result, node)], head

    def pieces(self, body: list[ast.stmt], live: frozenset[str]) -> tuple[list[ast.stmt], frozenset[str]]:
        """Return the loops over threads of one list of statements."""
        groups: list[list[ast.stmt]] = [[]]
        for node in body:
            if self.is_turned(node):
                groups += [[node], []]
            else:
                groups[-1].append(node)
        code: list[ast.stmt] = []
        for group in reversed(groups):
            if all(map(self.is_computed_again, group)):
                live -= _stored(group)
                continue
            loop = group[0]
            if isinstance(loop, ast.For) and self.is_turned(loop) and not live & set(_names_of(loop.target)):
                result, live = self.turned(loop, live)
            else:
                result, live = self.piece(group, live)
            code = result + code
        return code, live

    def piece(self, body: list[ast.stmt], live: frozenset[str]) -> tuple[list[ast.stmt], frozenset[str]]:
        before = self.live(body, live, _Live())
        threads = _expression("oa__threads(oa__row)")
        limit = self.limit(body[0]) if len(body) == 1 else None
        if limit and isinstance(body[0], ast.If):
            first, most = limit
            threads = _expression("oa__threads_below(oa__row)")
            threads.args += [_renamed(first, "oa__row"), most]
            body = body[0].body
        inner = self.with_slots(body, self.live(body, live, _Live()), live)
        return _filled(_OVER_THREADS, {"BODY": inner}, THREADS=threads), before

    def limit(self, node: ast.stmt) -> tuple[ast.expr, ast.expr] | None:
        """Return the thread's number and its limit if a statement has the form `if number < limit:`."""
        if not isinstance(node, ast.If) or node.orelse:
            return None
        match node.test:
            case ast.Compare(left=left, ops=[ast.Lt()], comparators=[right]):
                pass
            case ast.Call(func=ast.Name("oa__binary_lt"), args=[left, right, *_]):
                pass
            case _:
                return None
        if ast.unparse(self.number_of(left)) in _FIRST_ALONG_X and self.is_same(right):
            return self.number_of(left), right
        return None

    def number_of(self, node: ast.expr) -> ast.expr:
        """Return the value of a variable that is computed again, or the expression itself."""
        while isinstance(node, ast.Name) and node.id in self.again:
            node = self.again[node.id]
        return node

    def is_turned(self, node: ast.stmt) -> bool:
        """Return whether a loop over elements, by the number of threads, stores nothing but variables."""
        if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name) or node.target.id not in self.own:
            return False
        bounds = self.bounds(node)
        if bounds is None or not all(map(_only_computes, node.body)) or node.target.id in _stored(node.body):
            return False
        first, end, step = bounds
        return ast.unparse(first) in _FIRST_ALONG_X and self.is_same(end) and ast.unparse(step) in _STEPS

    def bounds(self, node: ast.For) -> list[ast.expr] | None:
        """Return the first number of a loop over a range, its end, and its step."""
        match node.iter:
            case ast.Call(func=ast.Name("range"), args=[_, _, _] as numbers):
                bare = [number.args[0] if isinstance(number, ast.Call) and _called(number) == "oa__count" else number
                        for number in numbers]  # fmt: skip
                return [self.number_of(number) for number in bare]
        return None

    def turned(self, node: ast.For, live: frozenset[str]) -> tuple[list[ast.stmt], frozenset[str]]:
        bounds = self.bounds(node)
        assert bounds is not None and isinstance(node.target, ast.Name)
        index = frozenset({node.target.id})
        head = live
        while (inside := self.live(node.body, head, _Live()) - index) - head:
            head |= inside
        first, end, step = bounds
        parts = {"INDEX": node.target, "END": end, "STEP": step, "FIRST": _renamed(first, "oa__row")}
        code, several = self.with_slots(node.body, inside, head), []
        if sum(isinstance(part, _OPERATIONS) for part in _walk(node.body)) <= _MOST_OPERATIONS:
            steps = _filled(_STEPS_OF_THREAD, {"BODY": node.body}, **parts)
            thread = self.with_slots(steps, inside, head, node.body[0])
            several = _filled(_SEVERAL_STEPS, {"BODY": thread}, **parts)
        return _filled(_OVER_ELEMENTS, {"BODY": code, "SEVERAL": several}, **parts), head

    def with_slots(
        self, body: list[ast.stmt], before: frozenset[str], after: frozenset[str], at: ast.stmt | None = None
    ) -> list[ast.stmt]:
        """Return the code of a thread, which reads the slots of variables first, and stores others last.

        at: the kernel's own first statement, if that of `body` is another one.
        """
        used = {node.id for node in _walk(body) if isinstance(node, ast.Name)}
        needed = set(before & used)
        for name in reversed(self.again):  # a value reads only variables before it
            if name in needed:
                needed |= {node.id for node in ast.walk(self.again[name]) if isinstance(node, ast.Name)}
        code: list[ast.stmt] = []
        for name in [name for name in self.again if name in needed]:  # in an order in which each value is known
            value = _renamed(self.again[name], "oa__thread")
            code.append(ast.Assign([ast.Name(name, ast.Store())], value))
        for name in sorted(needed & self.own - self.again.keys()):
            k, self.count = self.count, self.count + 1
            places = self.slots.setdefault(name, [])
            code += ast.parse(f"{name} = oa__take({_slot(name)}, oa__thread, {len(places)})").body
            places.append(k)
            self.probes.setdefault(id(at or body[0]), []).append(ast.parse(f"oa__probe({k}, {name})").body[0])
        code += [_renamed(node, "oa__thread") for node in body]
        for name in sorted(after & _stored(body) - self.again.keys()):
            self.slots.setdefault(name, [])
            code += ast.parse(f"oa__put({_slot(name)}, oa__thread, {name})").body
        return code

    def probed(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        code: list[ast.stmt] = []
        for node in body:
            code += self.probes.get(id(node), [])
            if isinstance(node, (ast.If, ast.While, ast.For)):
                kept = copy.copy(node)
                kept.body, kept.orelse = self.probed(node.body), self.probed(node.orelse)
                node = kept
            code.append(node)
        return code

    # -- live variables ------------------------------------------------------------------------------------------------

    def live(self, body: Sequence[ast.stmt], after: frozenset[str], ends: _Live) -> frozenset[str]:
        """Return the variables of threads that are live before statements."""
        for node in reversed(body):
            after = self.live_before(node, after, ends)
        return after

    def live_before(self, node: ast.stmt, after: frozenset[str], ends: _Live) -> frozenset[str]:
        match node:
            case ast.Assign():
                named = {name for target in node.targets for name in _names_of(target)}
                return (after - named) | self.read(node)
            case ast.Expr() | ast.Pass():
                return after | self.read(node)
            case ast.Break():
                return ends.after
            case ast.Continue():
                return ends.again
            case ast.If():
                both = self.live(node.body, after, ends) | self.live(node.orelse, after, ends)
                return both | self.read(node.test)
            case ast.While() | ast.For():
                start = node.test if isinstance(node, ast.While) else node.iter
                named = set() if isinstance(node, ast.While) else set(_names_of(node.target))
                head = after | (self.read(start) if isinstance(node, ast.While) else frozenset())
                while (inside := self.live(node.body, head, _Live(after, head)) - named) - head:
                    head |= inside
                return head | self.read(start)
        raise NotUnderstoodError

    def read(self, node: ast.AST) -> frozenset[str]:
        return frozenset(
            name.id
            for name in ast.walk(node)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load) and name.id in self.own
        )


def _slot(name: str) -> str:
    return f"oa__slot_{name}"


def _walk(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in body:
        yield from ast.walk(node)


def _called(node: ast.AST) -> str:
    return str(getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""


def _is_barrier_statement(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and is_barrier(node.value)


def _names_of(target: ast.expr) -> Iterator[str]:
    """Yield the variables that a target assigns."""
    for node in ast.walk(target):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _stored(body: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in _walk(body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _leaves(node: ast.stmt, in_loop: bool = False) -> bool:
    """Return whether a statement may leave a loop around it, or the kernel."""
    match node:
        case ast.Return():
            return True
        case ast.Break() | ast.Continue():
            return not in_loop
        case ast.If():
            return any(_leaves(inner, in_loop) for inner in [*node.body, *node.orelse])
        case ast.While() | ast.For():
            return any(_leaves(inner, True) for inner in node.body)
    return False


def _only_computes(node: ast.stmt) -> bool:
    """Return whether a statement only assigns variables, without loops."""
    match node:
        case ast.Pass():
            return True
        case ast.Assign():
            places = [place for target in node.targets for place in ast.walk(target)]
            return all(isinstance(place, (ast.Name, ast.Tuple, ast.expr_context)) for place in places)
        case ast.If():
            return all(map(_only_computes, [*node.body, *node.orelse]))
    return False


def _expression(text: str) -> ast.Call:
    value = ast.parse(text, mode="eval").body
    assert isinstance(value, ast.Call)
    return value


def _renamed(node: _Node, name: str) -> _Node:
    """Return a copy of code, for a thread or for the first thread of a row."""
    result = copy.deepcopy(node)
    for part in ast.walk(result):
        if isinstance(part, ast.Name) and part.id == "oa__here":
            part.id = name
    return result


class _Filler(ast.NodeTransformer):
    def __init__(self, blocks: dict[str, list[ast.stmt]], parts: dict[str, ast.expr]) -> None:
        self.blocks, self.parts = blocks, parts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.parts.get(node.id, node))

    def visit_Expr(self, node: ast.Expr) -> Any:
        return self.blocks.get(getattr(node.value, "id", ""), node)


def _filled(text: str, blocks: dict[str, list[ast.stmt]], **parts: ast.expr) -> list[ast.stmt]:
    """Return the code of a template with blocks of code, and with expressions, in place of words."""
    code: list[ast.stmt] = _Filler(blocks, parts).visit(ast.parse(text)).body
    return code


class _Apart(ast.NodeTransformer):
    """Divides assignments of several variables, `a, b = x, y`, where no value reads one of the variables."""

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Tuple):
            return node
        pairs = list(matched(node.targets[0], node.value))
        named = [target.id for target, _ in pairs if isinstance(target, ast.Name)]
        read = {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
        if len(pairs) == 1 or len(set(named)) != len(pairs) or read & set(named):
            return node
        if any(_called(part) in _ATOMIC for part in ast.walk(node.value)):
            return node
        return [ast.copy_location(ast.Assign([target], value), node) for target, value in pairs]


def divided(written: Written) -> Divided | None:
    """Return a kernel divided at its barriers, or None if it stays as it is."""
    if not written.has_barriers:
        return None
    body = [copy.deepcopy(node) for node in written.tree.body]
    module = _Apart().visit(ast.Module(body, []))
    changing = {array.name for array in written.arrays.values() if array.direction is not In} | set(written.shared)
    try:
        return _Divider(written, module.body, uniformity(module.body, frozenset(changing))).divide()
    except NotUnderstoodError:
        return None
