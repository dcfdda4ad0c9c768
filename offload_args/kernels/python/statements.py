"""Statements in the source of a kernel, which are checked; loops over `mine()` are rewritten as plain loops."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Sequence

from ..._syntax import parse_expression
from ...arguments import In, Out
from . import words
from .definitions import Array, SharedArray
from .expressions import REMEDIES_OF_SYNTAX, Expressions

__all__ = ["Statements"]


class Statements(Expressions):
    """Checks and rewrites statements."""

    ends: tuple[ast.stmt, ...] = ()  # of a function of kernels: the last statements of its paths

    def without_result(self) -> ast.stmt | None:
        """Return the statement by which a function may end without a value, or None."""
        self.ends = tuple(_ends_of(self.original.body))
        returns = (node for node in ast.walk(self.original) if isinstance(node, ast.Return))
        empty = next((node for node in returns if node.value is None), None)
        return empty or next((node for node in self.ends if not _returns(node)), None)

    def check_result(self, node: ast.stmt | None) -> None:
        """Refuse a function of kernels that may end without a value, by the given statement."""
        if isinstance(node, ast.Return):
            self.refuse(node, "return", "a function of kernels returns a value: write it here")
        if node is not None:
            construct = f"{self.written.name} may end without a value"
            self.refuse(node, construct, "a function of kernels returns a value: end it with return")

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        statements = [rewritten for statement in body for rewritten in self.statement(statement)]
        return statements or [ast.Pass(lineno=body[0].lineno, col_offset=0)]

    def statement(self, node: ast.stmt) -> Iterator[ast.stmt]:
        match node:
            case ast.Pass():
                return
            case ast.Expr(value=ast.Constant()):
                return
            case ast.Expr(value=ast.Call() as called) if self.value_of(called.func) is words.barrier:
                yield self.barrier(node, called)
                return
            case ast.Expr():
                if not isinstance(node.value, ast.Call):
                    self.refuse(node, ast.unparse(node), "a value that nothing uses: assign it")
                node.value = self.expression(node.value)
            case ast.Assign(targets=[ast.Subscript() as target]) if self.structs_in(target) and not self.is_field(
                target
            ):
                for copied in self.copied_fields(node, target):
                    yield from self.statement(copied)
                return
            case ast.Assign():
                for stored in node.targets:
                    self.check_stored(node, stored)
                node.value = self.joined(node.targets[0], node.value)
                node.targets = [self.target(target) for target in node.targets]
            case ast.AnnAssign():
                if node.value is None or not isinstance(node.target, ast.Name):
                    self.refuse(node, ast.unparse(node), "assign a value")
                value = self.joined(node.target, node.value)
                self.target(node.target)
                assignment = ast.Assign([node.target], value)
                yield ast.copy_location(assignment, node)
                return
            case ast.AugAssign():
                yield from self.augmented(node)
                return
            case ast.If() | ast.While():
                if isinstance(node, ast.While) and node.orelse:
                    self.refuse(node, "else of a loop", "set a variable in the loop, and test it")
                node.test = self.expression(node.test)
                if isinstance(node, ast.While):
                    self.loops.append("plain")
                node.body = self.block(node.body)
                node.orelse = self.block(node.orelse) if node.orelse else []
                if isinstance(node, ast.While):
                    self.loops.pop()
            case ast.For():
                yield from self.loop(node)
                return
            case ast.Break() | ast.Continue():
                if isinstance(node, ast.Break) and self.loops and self.loops[-1] == "mine":
                    self.refuse(node, "break in a loop over mine()", "elements would be left without a value: use if")
            case ast.Return():
                if "mine" in self.loops:
                    self.refuse(node, "return in a loop over mine()", "elements would be left without a value: use "
                                "continue, or if")  # fmt: skip
                if self.written.declared and node.value is not None:
                    self.refuse(node, ast.unparse(node), "a kernel returns nothing: it writes to arrays that are Out")
                if node.value is not None:
                    is_joined = self.weak.has_mixed_results and self.weak.of(node.value)
                    value = self.expression(node.value)
                    node.value = self.weakened(value) if is_joined else value
            case ast.Assert():
                yield self.asserted(node)
                return
            case _:
                remedy = REMEDIES_OF_SYNTAX.get(type(node), "kernels do not have it")
                self.refuse(node, f"{ast.unparse(node).splitlines()[0]:.60}", remedy)
        yield node

    def asserted(self, node: ast.Assert) -> ast.stmt:
        test, line = self.expression(node.test), ast.Constant(node.lineno)
        is_function = not self.written.declared
        statement: ast.stmt
        if is_function and node in self.ends and _never_holds(node):
            statement = ast.Raise(ast.Name("AssertionError", ast.Load()))  # so that this path needs no result
        else:
            self.written.takes_here = True
            here = ast.Name("oa__here", ast.Load())
            statement = ast.Expr(self.call(node, "oa__assert", here, test, line, ast.Constant(int(is_function))))
        return ast.fix_missing_locations(ast.copy_location(statement, node))

    def is_field(self, node: ast.Subscript) -> bool:
        return isinstance(self.unnamed(node), ast.Attribute)

    def copied_fields(self, node: ast.Assign, target: ast.Subscript) -> Iterator[ast.stmt]:
        """Yield an assignment for each field, in place of an assignment of the whole struct."""
        array, value = self.structs_in(target), node.value
        assert array is not None
        source = self.structs_in(value)
        dtype = source.dtype if source is not None else self.struct_of(value)
        if dtype != array.dtype:
            first = f"{ast.unparse(target)}.{(array.dtype.names or ('x',))[0]}"
            remedy = f"it is a struct: assign its fields, as {first}, or a struct of the same dtype"
            self.refuse(node, f"{ast.unparse(target)} is assigned", remedy)
        for name in array.dtype.names or ():
            to: ast.expr = ast.Attribute(copy.deepcopy(target), name, ast.Store())
            copied = ast.Assign([to], ast.Attribute(copy.deepcopy(value), name, ast.Load()))
            yield ast.fix_missing_locations(ast.copy_location(copied, node))

    def check_stored(self, node: ast.Assign, target: ast.expr) -> None:
        """Refuse a whole number that is assigned to an element of an array whose dtype does not have it."""
        name = target.value.id if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) else ""
        array = self.array_named(name)
        if array is not None:
            self.check_fits(node, node.value, array.dtype)

    def target(self, node: ast.expr) -> ast.expr:
        """Check the target of an assignment, and rewrite its indices."""
        field = self.unnamed(node)
        if isinstance(field, ast.Attribute) and (structs := self.structs_in(field.value)) is not None:
            element = field.value
            assert isinstance(element, ast.Subscript)
            self.check_owned(element, structs, "assigned")
            return self.field_of_element(field, element, structs)
        if isinstance(node, ast.Tuple):
            node.elts = [self.target(element) for element in node.elts]
        elif isinstance(node, ast.Subscript):
            array = self.array_named(node.value.id) if isinstance(node.value, ast.Name) else None
            if array is None:
                remedy = "a function of kernels returns values, and only a kernel stores"
                if self.written.declared:
                    remedy = "only elements of arrays that are Out or InOut are assigned: make a new tuple"
                self.refuse(node, f"{ast.unparse(node)} is assigned", remedy)
            if isinstance(array, SharedArray):
                self.note_rank(node, array.name, self.rank_of(node.slice))
                node.slice = self.expression(node.slice)
            else:
                self.check_owned(node, array, "assigned")
        elif isinstance(node, ast.Name):
            if self.array_named(node.id) is not None:
                self.refuse(node, f"{node.id} is assigned", "it is an array: assign its elements, or use another name")
            if any(node.id in key for key in self.owned):
                self.refuse(node, f"{node.id} is assigned in its loop over mine()", "it says which element is this "
                            "thread's: use another name")  # fmt: skip
        else:
            self.refuse(node, f"{ast.unparse(node)} is assigned", "assign variables and elements of arrays")
        return node

    def augmented(self, node: ast.AugAssign) -> Iterator[ast.stmt]:
        if isinstance(node.op, ast.MatMult):
            self.refuse(node, "@=", REMEDIES_OF_SYNTAX[ast.MatMult])
        target = node.target
        array = self.arrays.get(getattr(target.value, "id", "")) if isinstance(target, ast.Subscript) else None
        if array is not None and array.direction is Out:
            self.refuse(node, f"{ast.unparse(target)} is read", f"{array.name} is Out: declare InOut")
        value = parse_expression(ast.unparse(target))  # a copy of the target, whose value is read
        stored = self.target(target)
        for child in ast.walk(value):
            ast.copy_location(child, target)
        combined = ast.copy_location(ast.BinOp(value, node.op, node.value), node)
        yield ast.copy_location(ast.Assign([stored], self.joined(target, combined)), node)

    def loop(self, node: ast.For) -> Iterator[ast.stmt]:
        if node.orelse:
            self.refuse(node, "else of a loop", "set a variable in the loop, and test it")
        called = node.iter
        if (
            isinstance(called, ast.Call)
            and isinstance(called.func, ast.Attribute)
            and called.func.attr == "mine"
            and isinstance(called.func.value, ast.Name)
            and called.func.value.id in self.arrays
        ):
            yield self.over_mine(node, called, self.arrays[called.func.value.id])
            return
        if isinstance(called, ast.Name) and called.id in self.arrays:
            self.refuse(node, f"for {ast.unparse(node.target)} in {called.id}", self.how_to_iterate(node, called.id))
        node.target = self.target(node.target)
        self.is_iterated = True
        node.iter = self.expression(node.iter)
        self.is_iterated = False
        self.loops.append("plain")
        node.body = self.block(node.body)
        self.loops.pop()
        yield node

    def how_to_iterate(self, node: ast.For, name: str) -> str:
        """Return the remedy for a loop over an array."""
        every = f"for all elements, write for i in range({name}.size)"
        written = [array for array in self.arrays.values() if array.direction is not In]
        owner = next((array for array in written if array.partition is not None), written[0] if written else None)
        if owner is None:
            return every
        mine = f"for the numbers of this thread's elements, write for {ast.unparse(node.target)} in {owner.name}.mine()"
        if owner.partition is None:
            mine += f", and declare {owner.name} with a partition, such as Out[np.float32].by(Linear1D())"
        return f"{mine}; {every}"

    def over_mine(self, node: ast.For, called: ast.Call, array: Array) -> ast.stmt:
        if called.args or called.keywords:
            self.refuse(node, ast.unparse(called), f"the partition stands in the signature: {array.name}.mine()")
        if array.partition is None:
            remedy = "declare it with a partition, such as Out[np.float32].by(Linear1D())"
            self.refuse(node, ast.unparse(called), f"{array.name} has no partition: {remedy}")
        target = node.target
        items = target.elts if isinstance(target, ast.Tuple) else [target]
        names = tuple(item.id for item in items if isinstance(item, ast.Name))
        most = 1 if array.by_elements else 2
        if len(names) != len(items) or len(names) not in (1, most) or len(set(names)) != len(names):
            self.refuse(node, f"for {ast.unparse(target)} in {array.name}.mine()", f"{array.partition} gives "
                        f"{'one number: for i in' if most == 1 else 'a row and a column: for i, j in'} "
                        f"{array.name}.mine()")  # fmt: skip
        for name in names:
            self.target(ast.copy_location(ast.Name(name, ast.Store()), node))
        array.rank = most
        self.owned[names] = array
        self.loops.append("mine")
        body = self.block(node.body)
        self.loops.pop()
        del self.owned[names]
        base = ast.Name(array.name, ast.Load())
        if most == 1:
            loop = ast.For(target, self.call(node, "oa__run", self.here(node), base), body, [])
            return ast.fix_missing_locations(ast.copy_location(loop, node))
        self.fresh += 1
        row, column = f"oa__row_{self.fresh}", f"oa__column_{self.fresh}"
        places = (ast.Name(row, ast.Load()), ast.Name(column, ast.Load()))
        element = ast.Assign([target], self.call(node, "oa__element", base, *places))
        columns = self.call(node, "oa__columns", self.here(node), base)
        inner = ast.For(ast.Name(column, ast.Store()), columns, [element, *body], [])
        rows = self.call(node, "oa__rows", self.here(node), base)
        outer = ast.For(ast.Name(row, ast.Store()), rows, [inner], [])
        for statement in (outer, inner, element):
            ast.copy_location(statement, node)
        return ast.fix_missing_locations(outer)

    def barrier(self, node: ast.stmt, called: ast.Call) -> ast.stmt:
        if called.args or called.keywords:
            self.refuse(node, ast.unparse(called), "barrier() takes no arguments")
        if not self.written.declared:
            self.refuse(node, "barrier()", "only a kernel has barriers: write it there, before or after the call")
        self.written.has_barriers = True
        statement = ast.Expr(self.call(node, "oa__barrier", self.here(called)))
        return ast.fix_missing_locations(ast.copy_location(statement, node))


def _ends_of(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the last statement of each path through statements."""
    match body[-1]:
        case ast.If(body=then, orelse=otherwise) if otherwise:
            yield from _ends_of(then)
            yield from _ends_of(otherwise)
        case _:
            yield body[-1]


def _returns(node: ast.stmt) -> bool:
    """Return whether the last statement of a path returns a value, or is not passed."""
    match node:
        case ast.Return():
            return True
        case ast.While(test=ast.Constant(value=value), body=repeated) if value:
            return not any(map(_may_break, repeated))
    return _never_holds(node)


def _never_holds(node: ast.stmt) -> bool:
    """Return whether a statement is `assert False`, or an assert of another constant that is false."""
    return isinstance(node, ast.Assert) and isinstance(node.test, ast.Constant) and not node.test.value


def _may_break(node: ast.AST) -> bool:
    """Return whether a statement may end the loop around it."""
    if isinstance(node, ast.Break):
        return True
    parts = node.orelse if isinstance(node, (ast.For, ast.While)) else ast.iter_child_nodes(node)
    return any(map(_may_break, parts))
