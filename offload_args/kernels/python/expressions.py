"""Expressions in the source of a kernel, which are checked, and rewritten as calls of the functions of rules.py.

An operation gets flags for its weak operands. A weak operand is a number of Python, which takes the type of the other
operand.
"""

from __future__ import annotations

import ast
import copy
import numbers
import operator
from collections.abc import Callable, Hashable
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import numpy as np

from ...arguments import In, InOut, Out
from ...display import plural, shown
from . import words
from .calls import CALLS, OF_REAL_NUMBERS, OF_TWO, REMEDIES
from .definitions import Array, Function, SharedArray
from .names import MISSING, Names

__all__ = ["REMEDIES_OF_SYNTAX", "Expressions"]

_LEFT, _RIGHT, _BOTH = 1, 2, 3  # which of two expressions are weak
_OPERATIONS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne", ast.Pow: "pow",
    ast.LShift: "lshift", ast.RShift: "rshift", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
}  # fmt: skip
_UNARY: Final[dict[type[ast.AST], str]] = {ast.USub: "oa__neg", ast.UAdd: "oa__pos", ast.Invert: "oa__invert"}
_OF_WHOLE: Final[dict[type[ast.AST], Callable[..., int]]] = {  # Python computes these operations of literals
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.Pow: operator.pow, ast.USub: operator.neg,
    ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
_MOST_BITS: Final = 1024  # of a literal's parts
_BUILTINS: Final[dict[Hashable, str]] = {
    function: function.__name__ for function in (range, len, min, max, int, float, bool, complex)
}
_BY_BLOCKS: Final = frozenset({"RowBlocks", "Tiles"})
_ATOMICS: Final = {words.atomic_add: "oa__add", words.atomic_min: "oa__min", words.atomic_max: "oa__max"}
_ALWAYS_COMBINED: Final = (ast.Div, ast.FloorDiv, ast.LShift, ast.RShift)  # numba's versions differ from NumPy's
_EXPRESSIONS: Final = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Tuple, ast.operator, ast.unaryop, ast.boolop,
    ast.cmpop, ast.expr_context,
)  # fmt: skip
REMEDIES_OF_SYNTAX: Final[dict[type[ast.AST], str]] = {
    ast.List: "a list has no fixed size: use a tuple, or variables",
    ast.Dict: "there are no dictionaries: use a tuple, or variables",
    ast.Set: "there are no sets: use a tuple, or variables",
    ast.ListComp: "write the loop",
    ast.SetComp: "write the loop",
    ast.DictComp: "write the loop",
    ast.GeneratorExp: "write the loop",
    ast.Lambda: "write a function, and begin it with @kernel.function",
    ast.FunctionDef: "move it out of the kernel, and begin it with @kernel.function",
    ast.ClassDef: "there are no objects in kernels",
    ast.Try: "there are no exceptions in kernels: test the value with if",
    ast.Raise: "there are no exceptions in kernels: use assert, which debug=True checks",
    ast.With: "there are no contexts in kernels",
    ast.JoinedStr: "there are no strings in kernels",
    ast.Import: "import it at the top of the file",
    ast.ImportFrom: "import it at the top of the file",
    ast.Global: "pass the value as an argument",
    ast.Nonlocal: "pass the value as an argument",
    ast.Delete: "leave it out",
    ast.Await: "there are no coroutines in kernels",
    ast.Yield: "a kernel writes its results to arrays",
    ast.YieldFrom: "a kernel writes its results to arrays",
    ast.NamedExpr: "assign in a line of its own",
    ast.Starred: "name the items",
    ast.Match: "use if and elif",
    ast.MatMult: "write the loop of sums",
}


class Expressions(Names):
    """Checks and rewrites expressions."""

    def expression(self, node: ast.expr) -> ast.expr:
        literal = self.literal(node)
        if literal is not None:
            self.check_literal(node, literal)
        if literal is not None and isinstance(node, (ast.BinOp, ast.UnaryOp)):
            return ast.copy_location(ast.Constant(literal), node)
        if isinstance(node, ast.Constant):
            if node.value is not None and not isinstance(node.value, (bool, int, float, complex)):
                self.refuse(node, repr(node.value), "there are numbers in kernels, and no strings")
            return node
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.name(node)
        if isinstance(node, ast.Subscript):
            return self.subscript(node)
        if isinstance(node, ast.Call):
            return self.called(node)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.MatMult):
                self.refuse(node, "@", REMEDIES_OF_SYNTAX[ast.MatMult])
            weak = self.weakness(node.left, node.right)
            left, right = self.expression(node.left), self.expression(node.right)
            if isinstance(node.op, ast.Pow):
                return self.powered(node, left, right, weak)
            if type(node.op) in _OPERATIONS and (weak != _BOTH or isinstance(node.op, _ALWAYS_COMBINED)):
                return self.combined(node, type(node.op), left, right, weak)
            return ast.copy_location(ast.BinOp(left, node.op, right), node)
        if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY and not isinstance(node.operand, ast.Constant):
            return self.call(node, _UNARY[type(node.op)], self.expression(node.operand))
        if isinstance(node, ast.Compare):
            return self.compared(node)
        if isinstance(node, ast.BoolOp):
            return self.first_of(node)
        if isinstance(node, ast.IfExp):
            weak = self.weakness(node.body, node.orelse)
            body, other = self.expression(node.body), self.expression(node.orelse)
            if weak in (_LEFT, _RIGHT):
                body, other = (self.weakened(branch) if weak == flag else branch
                               for branch, flag in ((body, _LEFT), (other, _RIGHT)))  # fmt: skip
            choice = ast.copy_location(ast.IfExp(self.expression(node.test), body, other), node)
            return self.call(node, "oa__strong", choice) if weak in (_LEFT, _RIGHT) else choice
        if isinstance(node, _EXPRESSIONS):
            for name, value in ast.iter_fields(node):
                if isinstance(value, ast.expr):
                    setattr(node, name, self.expression(value))
                elif isinstance(value, list):
                    setattr(node, name, [self.expression(x) if isinstance(x, ast.expr) else x for x in value])
            return node
        self.refuse(node, f"{ast.unparse(node):.60}", REMEDIES_OF_SYNTAX.get(type(node), "kernels do not have it"))

    def literal(self, node: ast.expr) -> int | None:
        """Return the value of a whole number that is written here, or outside; None for others."""
        match node:
            case ast.Constant():
                value = node.value
            case ast.UnaryOp():
                operand = self.literal(node.operand)
                value = None if operand is None or isinstance(node.op, ast.Not) else _OF_WHOLE[type(node.op)](operand)
            case ast.BinOp():
                left, right = self.literal(node.left), self.literal(node.right)
                if left is None or right is None or type(node.op) not in _OF_WHOLE:
                    return None
                if isinstance(node.op, (ast.Pow, ast.LShift, ast.RShift)) and not 0 <= right <= _MOST_BITS:
                    return None
                if isinstance(node.op, (ast.FloorDiv, ast.Mod)) and right == 0:
                    return None
                if max(left.bit_length(), right.bit_length()) > _MOST_BITS:
                    return None
                value = _OF_WHOLE[type(node.op)](left, right)
            case ast.Name() | ast.Attribute():
                value = self.value_of(node)
            case _:
                return None
        return value if type(value) is int else None

    def check_literal(self, node: ast.expr, value: int) -> None:
        if not -(2**63) <= value < 2**64:
            remedy = "write 2.0 ** 70 for 2 ** 70, or float(...) of it outside of the kernel"
            self.refuse(node, f"{ast.unparse(node):.60}", f"an integer of a kernel has 64 bits: {remedy}")

    def check_fits(self, node: ast.AST, value: ast.expr, dtype: np.dtype[Any]) -> None:
        """Refuse a whole number that is converted to a dtype of integers whose range does not have it."""
        literal = self.literal(value) if dtype.kind in "iu" else None
        if literal is not None and not np.iinfo(dtype).min <= literal <= np.iinfo(dtype).max:
            numbers_of = f"{dtype} has the numbers from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}"
            self.refuse(node, ast.unparse(node), f"{numbers_of}; % 2**{dtype.itemsize * 8} wraps a number")

    def weakness(self, left: ast.expr, right: ast.expr) -> int:
        """Return which of two expressions are weak. Both are in the user's form."""
        return (_LEFT if self.weak.of(left) else 0) | (_RIGHT if self.weak.of(right) else 0)

    def combined(self, node: ast.AST, operation: type[ast.AST], left: ast.expr, right: ast.expr, weak: int) -> ast.expr:
        return self.call(node, f"oa__binary_{_OPERATIONS[operation]}", left, right, ast.Constant(weak))

    def powered(self, node: ast.BinOp, base: ast.expr, exponent: ast.expr, weak: int) -> ast.expr:
        """Return a power as a number of Python, as products if the exponent is small, or as a call of a function."""
        if isinstance(base, ast.Constant) and isinstance(exponent, ast.Constant) and weak == _BOTH:
            try:
                value = base.value**exponent.value  # type: ignore[operator]
            except ArithmeticError as error:
                self.refuse(node, ast.unparse(node), f"it can't be evaluated: {error}")
            if isinstance(value, (float, complex)):
                return ast.copy_location(ast.Constant(value), node)
        if not _is_small_power(node.right):
            if weak != _BOTH:
                return self.combined(node, ast.Pow, base, exponent, weak)
            return self.call(node, self.function_name(CALLS[operator.pow]), base, exponent)
        if isinstance(exponent, ast.Constant) and isinstance(exponent.value, int) and exponent.value < 0:
            count = ast.copy_location(ast.Constant(-exponent.value), node)
            power = self.call(node, "oa__products", self.call(node, "oa__floating", base), count)
            flags = _BOTH if weak & _LEFT else _LEFT
            return self.combined(node, ast.Div, ast.copy_location(ast.Constant(1), node), power, flags)
        if isinstance(exponent, ast.Constant) and exponent.value == 2:
            return self.call(node, self.function_name(CALLS[np.square]), base)
        return self.call(node, "oa__products", base, exponent)

    def items_of(self, node: ast.expr) -> list[ast.expr] | None:
        """Return the items of a tuple that is written here or in a variable, or of an outer tuple of numbers.

        Return None for other values.
        """
        if isinstance(node, ast.Tuple):
            return node.elts
        is_item = isinstance(node, ast.Subscript) and isinstance(node.slice, (ast.Constant, ast.Name))
        base = getattr(node, "value", node) if is_item else node
        form = self.weak.form(node) if isinstance(base, ast.Name) and base.id in self.locals else None
        if isinstance(form, tuple):
            return [ast.Subscript(copy.deepcopy(node), ast.Constant(i), ast.Load()) for i in range(len(form))]
        value = self.value_of(node) if isinstance(node, ast.Name) and node.id not in self.locals else None
        if not isinstance(value, tuple) or not _is_tuple_of_numbers(value):
            return None
        return [ast.Subscript(node, ast.Constant(i), ast.Load()) for i in range(len(value))]

    def contained(self, node: ast.Compare) -> ast.expr | None:
        """Return `x in (a, b)` as `x == a or x == b`, so that each comparison has its own type; None for others."""
        items = self.items_of(node.comparators[0]) if isinstance(node.ops[0], (ast.In, ast.NotIn)) else None
        called = [self.value_of(child.func) for child in ast.walk(node.left) if isinstance(child, ast.Call)]
        if items is None or len(node.ops) > 1 or any(value is atomic for value in called for atomic in _ATOMICS):
            return None
        is_not = isinstance(node.ops[0], ast.NotIn)
        operation: ast.cmpop = ast.NotEq() if is_not else ast.Eq()
        tests: list[ast.expr] = [ast.Compare(copy.deepcopy(node.left), [operation], [item]) for item in items]
        if len(tests) < 2:
            tests.append(ast.Constant(is_not))
        test: ast.expr = ast.BoolOp(ast.And() if is_not else ast.Or(), tests) if items else ast.Constant(is_not)
        for child in ast.walk(test):
            ast.copy_location(child, node)
        return self.expression(test)

    def compared(self, node: ast.Compare) -> ast.expr:
        """Return comparisons, each in the right type. In a chain, each comparison computes both of its operands."""
        contained = self.contained(node)
        if contained is not None:
            return contained
        items = [node.left, *node.comparators]
        weak = [self.weakness(*items[i : i + 2]) for i in range(len(node.ops))]
        read = [self.expression(item) for item in items]
        is_chain = len(node.ops) > 1
        steps = any(getattr(child, "id", "") in _ATOMICS.values() for item in read for child in ast.walk(item))
        mixed = any(isinstance(item, ast.Name) and item.id in self.weak.mixed for item in items)
        if not (mixed or any(flag != _BOTH for flag in weak)) or (is_chain and steps):
            return ast.copy_location(ast.Compare(read[0], node.ops, read[1:]), node)
        comparisons: list[ast.expr] = []
        for i, operation in enumerate(node.ops):
            left, right = copy.deepcopy(read[i]), copy.deepcopy(read[i + 1])
            if (mixed or weak[i] != _BOTH) and type(operation) in _OPERATIONS:
                comparisons.append(self.combined(node, type(operation), left, right, weak[i]))
            else:
                comparisons.append(ast.copy_location(ast.Compare(left, [operation], [right]), node))
        return comparisons[0] if not is_chain else ast.copy_location(ast.BoolOp(ast.And(), comparisons), node)

    def first_of(self, node: ast.BoolOp) -> ast.expr:
        """Return `a and b` or `a or b`, whose value is one of its operands; a weak one takes the others' type."""
        weak, values = [self.weak.of(value) for value in node.values], [self.expression(value) for value in node.values]
        if all(weak) or not any(weak):
            return ast.copy_location(ast.BoolOp(node.op, values), node)
        result = self.weakened(values[-1]) if weak[-1] else values[-1]
        for value, is_weak in zip(values[-2::-1], weak[-2::-1], strict=True):
            if not is_weak:
                result = ast.copy_location(ast.BoolOp(node.op, [value, result]), node)
                continue
            own = self.weakened(copy.deepcopy(value))
            branches = (result, own) if isinstance(node.op, ast.And) else (own, result)
            test = self.call(node, "oa__strong", value)  # numba removes a branch whose test is a literal
            result = ast.copy_location(ast.IfExp(test, *branches), node)
        return self.call(node, "oa__strong", result)

    def joined(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """Return a value that takes the type of its variable's other values. `value` is in the user's form."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            items = [self.joined(*pair) for pair in zip(target.elts, value.elts, strict=True)]
            return ast.copy_location(ast.Tuple(items, ast.Load()), value)
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Name) and value.id in self.locals:
            read_items = self.items_of(value) or []
            if len(read_items) == len(target.elts):
                spread = ast.fix_missing_locations(ast.copy_location(ast.Tuple(read_items, ast.Load()), value))
                return self.joined(target, spread)
        is_joined = isinstance(target, ast.Name) and target.id in self.weak.mixed and self.weak.of(value)
        read = self.expression(value)
        return self.weakened(read) if is_joined else read

    def weakened(self, node: ast.expr) -> ast.expr:
        """Return a number that takes the type of the value with which it is joined. It is rewritten already."""
        if isinstance(node, ast.IfExp):
            return ast.copy_location(ast.IfExp(node.test, self.weakened(node.body), self.weakened(node.orelse)), node)
        literal = self.literal(node) or 0
        return self.call(node, "oa__weak", node, ast.Constant(0 if 0 <= literal < 2**63 else node.lineno))

    def name(self, node: ast.Name | ast.Attribute) -> ast.expr:
        if isinstance(node, ast.Name) and self.array_named(node.id) is not None:
            self.refuse(
                node, f"{node.id} without a subscript", f"use its elements, {node.id}.size or {node.id}.shape; only a "
                "function of kernels takes an array, one that is In; for a sum or maximum, write the loop, or use "
                "kernels.reduce"
            )  # fmt: skip
        value = self.value_of(node)
        if value is MISSING:
            if isinstance(node, ast.Attribute):
                return self.attribute(node)
            return node
        if value is None or isinstance(value, (bool, numbers.Number, np.generic)) or _is_tuple_of_numbers(value):
            return self.constant(node, value)
        if isinstance(value, np.ndarray):
            self.refuse(node, f"the array {ast.unparse(node)}", "pass it as an argument that is In")
        text = ast.unparse(node)
        if isinstance(value, (FunctionType, np.ufunc, BuiltinFunctionType)):
            self.refuse(node, text, f"it is a function: call it, as in {text}(...)")
        self.refuse(
            node,
            f"{text}, {shown(value):.60}",
            "a kernel reads numbers and tuples of numbers from outside",
        )

    def unnamed(self, node: ast.expr) -> ast.expr:
        """Return an expression with attributes in place of subscripts that are names of fields."""
        match node:
            case ast.Subscript(value=base, slice=ast.Constant(value=str() as name)):
                return ast.copy_location(ast.Attribute(self.unnamed(base), name, node.ctx), node)
        return node

    def struct_of(self, node: ast.expr) -> np.dtype[Any] | None:
        """Return the dtype of an expression that is a struct among the kernel's parameters, or a struct in one."""
        if isinstance(node, ast.Name):
            return self.structs.get(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        outer = self.struct_of(node.value)
        return outer[node.attr] if outer is not None and node.attr in (outer.names or ()) else None

    def field(self, node: ast.Attribute, struct: np.dtype[Any]) -> ast.expr:
        """Return a field of a struct. Refuse a field that the struct lacks, or that kernels do not read."""
        construct, names = ast.unparse(node), struct.names or ()
        if node.attr not in names:
            self.refuse(node, construct, f"the struct has no field {node.attr}: it has {', '.join(names)}")
        dtype = struct[node.attr]
        if dtype.names is None and (dtype.base.kind == "V" or dtype.base == np.float16):
            self.refuse(node, construct, f"kernels read no {dtype.base} in a struct: make the field a float32")
        return node

    def structs_in(self, node: ast.expr) -> Array | None:
        """Return the array of structs of which an expression is an element."""
        name = node.value.id if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) else ""
        array = self.array_named(name)
        return array if array is not None and array.dtype.names is not None else None

    def field_of_element(self, node: ast.Attribute, element: ast.expr, array: Array) -> ast.Subscript:
        """Return a field of an element as an element of the array of this field. `element` is rewritten already."""
        names = array.dtype.names or ()
        if node.attr not in names:
            self.refuse(node, ast.unparse(node), f"the struct has no field {node.attr}: it has {', '.join(names)}")
        assert isinstance(element, ast.Subscript)
        fields = self.call(node, "oa__field", element.value, ast.Constant(names.index(node.attr)))
        return ast.copy_location(ast.Subscript(fields, element.slice, node.ctx), node)

    def attribute(self, node: ast.Attribute) -> ast.expr:
        base = node.value
        array = self.structs_in(base)
        if array is not None and isinstance(base, ast.Subscript):
            return self.field_of_element(node, self.element(base, array), array)
        struct = self.struct_of(base)
        if struct is not None and struct.names is not None:
            if isinstance(base, ast.Attribute):
                self.attribute(base)
            return self.field(node, struct)
        if isinstance(base, ast.Name) and (self.array_named(base.id) is not None or self.parameters_of(base.id)):
            if node.attr == "size":
                return self.call(node, "oa__size", base)
            if node.attr == "shape":
                self.note_rank(node, base.id, 2)
                items: list[ast.expr] = [self.extent(node, base, 0), self.extent(node, base, 1)]
                return ast.copy_location(ast.Tuple(items, ast.Load()), node)
            if self.array_named(base.id) is not None:
                remedy = (
                    "an array has size, shape and, if it is written, mine() and box(); for a sum or maximum, write the "
                    "loop, or use kernels.reduce"
                )
                if node.attr in (self.arrays[base.id].dtype.names or () if base.id in self.arrays else ()):
                    remedy = f"write {base.id}[i].{node.attr}"
                if node.attr == "mine" and base.id in self.arrays:
                    remedy = f"write it as a loop: for i in {base.id}.mine()"
                self.refuse(node, f"{base.id}.{node.attr}", remedy)
        node.value = self.expression(base)
        return node

    def extent(self, node: ast.AST, array: ast.Name, axis: int) -> ast.expr:
        return self.call(node, "oa__extent", array, ast.Constant(axis))

    def subscript(self, node: ast.Subscript) -> ast.expr:
        base, index = node.value, node.slice
        field = self.unnamed(node)
        if isinstance(field, ast.Attribute):
            return self.attribute(field)
        array_of_shape = base.value if isinstance(base, ast.Attribute) and base.attr == "shape" else None
        if isinstance(array_of_shape, ast.Name) and (
            self.parameters_of(array_of_shape.id) or array_of_shape.id in self.written.shared
        ):
            axis = ast.unparse(index)
            if axis not in ("0", "1"):
                self.refuse(node, ast.unparse(node), "an array has shape[0], and a matrix shape[1], too")
            self.note_rank(node, array_of_shape.id, 2 if axis == "1" else 0)
            return self.extent(node, array_of_shape, int(axis))
        if any(isinstance(child, ast.Slice) for child in ast.walk(index)):
            self.refuse(node, ast.unparse(node), "there are no slices in kernels: write the loop over the elements")
        if not isinstance(base, ast.Name):
            return ast.copy_location(ast.Subscript(self.expression(base), self.expression(index), node.ctx), node)
        array = self.array_named(base.id)
        if array is None:
            if self.parameters_of(base.id):
                self.note_rank(node, base.id, len(index.elts) if isinstance(index, ast.Tuple) else 1)
            value = base if base.id in self.locals else self.name(base)
            return ast.copy_location(ast.Subscript(value, self.expression(index), node.ctx), node)
        if array.dtype.names is not None:
            construct = f"{ast.unparse(node)}, a struct"
            self.refuse(node, construct, f"read its fields, as {ast.unparse(node)}.{array.dtype.names[0]}")
        return self.element(node, array)

    def element(self, node: ast.Subscript, array: Array) -> ast.expr:
        base, index = node.value, node.slice
        self.check_index(node)
        if array.direction is Out:
            self.refuse(node, f"{ast.unparse(node)} is read", f"{array.name} is Out: keep the value in a variable, or "
                        "declare InOut")  # fmt: skip
        if array.direction is InOut and not isinstance(array, SharedArray):
            self.check_owned(node, array, "read")
        else:
            self.note_rank(node, array.name, self.rank_of(index))
        return ast.copy_location(ast.Subscript(base, self.expression(index), node.ctx), node)

    def check_index(self, node: ast.Subscript) -> None:
        """Refuse an index that is written as a negative number."""
        for axis, item in enumerate(node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]):
            literal = self.literal(item)
            if literal is not None and literal < 0:
                array = ast.unparse(node.value)
                remedy = f"{array}[{array}.size - 1] is the last one of a line"
                if isinstance(node.slice, ast.Tuple):
                    remedy = f"{array}.shape[{axis}] - 1 is the last index of axis {axis}"
                self.refuse(node, ast.unparse(node), f"elements are counted from 0: {remedy}")

    def rank_of(self, index: ast.expr) -> int:
        if isinstance(index, ast.Tuple):
            return len(index.elts)
        owner = self.owned.get((index.id,)) if isinstance(index, ast.Name) else None
        return 2 if owner is not None and not owner.by_elements else 1

    def check_owned(self, node: ast.Subscript, array: Array, verb: str) -> None:
        """Refuse an element of a written array whose indices are not from a loop over mine()."""
        construct = f"{ast.unparse(node)} is {verb}"
        if array.direction is In:
            self.refuse(node, construct, f"{array.name} is In: declare Out or InOut with a partition")
        if array.partition is None:
            self.refuse(
                node, construct, f"declare {array.name} with the partition that divides it, such as .by(Linear1D()), "
                "or use atomic_add, atomic_min, atomic_max"
            )  # fmt: skip
        index = node.slice
        items = index.elts if isinstance(index, ast.Tuple) else [index]
        key = tuple(item.id if isinstance(item, ast.Name) else "" for item in items)
        owner = self.owned.get(key)
        if owner is None:
            target = "i" if array.by_elements else "i, j"
            remedy = f"for {target} in {array.name}.mine(): {array.name}[{target}] = ..."
            if verb == "read":
                remedy += "; to read others, pass the array as In, too, and write to another one"
            self.refuse(node, f"{construct}, and this thread need not own that element", remedy)
        array.owners.add(owner.name)
        if owner is not array:
            if owner.partition != array.partition:
                self.refuse(
                    node, f"{construct} by an index of {owner.name}.mine()",
                    f"{array.name} is divided by {array.partition}, {owner.name} by {owner.partition}: "
                    f"loop over {array.name}.mine(), or declare the same partition",
                )  # fmt: skip
            root, other = self.root_of(array), self.root_of(owner)
            if root is not other:
                root.like = other.number
        array.rank = 1 if array.by_elements else 2

    def root_of(self, array: Array) -> Array:
        """Return the array that the given array must agree with in shape; if there is none, the given array."""
        by_number = {other.number: other for other in self.arrays.values()}
        while array.like >= 0:
            array = by_number[array.like]
        return array

    def function_name(self, function: Function | str) -> str:
        """Return the name of a function in the tree."""
        if isinstance(function, str):
            return function
        for name, known in self.written.functions.items():
            if known is function:
                return name
        name = f"oa__function_{len(self.written.functions)}"
        self.written.functions[name] = function
        return name

    def called(self, node: ast.Call) -> ast.expr:
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            self.refuse(node, ast.unparse(node), "pass the arguments one by one, without names and *")
        function = self.value_of(node.func)
        if function is MISSING and isinstance(node.func, ast.Attribute) and node.func.attr == "box":
            return self.box(node, node.func.value)
        if function is MISSING:
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                self.attribute(node.func)  # may raise an error with a better remedy
            self.refuse(node, ast.unparse(node), "a kernel calls functions of math and NumPy, and those that "
                        "@kernel.function begins")  # fmt: skip
        if function is len and len(node.args) == 1 and self.array_named(getattr(node.args[0], "id", "")) is not None:
            return self.call(node, "oa__size", node.args[0])
        if not isinstance(function, Hashable):
            self.refuse(node, ast.unparse(node), f"{shown(function):.60} is not a function")
        if function in _ATOMICS:
            return self.atomic(node, function)
        if function is words.barrier:
            self.refuse(node, ast.unparse(node), "barrier() is a statement of its own, and has no value")
        if function is words.shared:
            self.refuse(node, ast.unparse(node), "write name = shared(shape, dtype) in the kernel, outside of "
                        "conditions and loops")  # fmt: skip
        if isinstance(function, Function):
            return self.of_kernels(node, function)
        if function in (min, max) and len(node.args) > 1:
            return self.least(node, function.__name__)
        weak = self.weakness(*node.args) if len(node.args) == 2 else 0
        arguments = [self.expression(argument) for argument in node.args]
        if function in words.WORDS:
            return self.word(node, words.WORDS[function], arguments)
        if function in _BUILTINS:
            if function is range:
                arguments = self.of_range(node, arguments)
            if function is int:
                arguments = [self.call(argument, "oa__wide", argument) for argument in arguments]
            name = _BUILTINS[function]
            if name in self.locals:
                self.refuse(node, ast.unparse(node), f"{name} is a variable here: use another name for it")
            called = ast.copy_location(ast.Name(name, ast.Load()), node.func)
            return ast.copy_location(ast.Call(called, arguments, []), node)
        if function in CALLS:
            self.check_count(node, CALLS[function])
            if weak in (_LEFT, _RIGHT):
                at, other = (0, 1) if weak == _LEFT else (1, 0)
                whole = not isinstance(CALLS[function], str)
                arguments[at] = self.like(arguments[at], arguments[other], whole)
            if function in OF_REAL_NUMBERS:
                arguments = [self.call(node, "oa__real", argument, ast.Constant(None)) for argument in arguments]
            return self.call(node, self.function_name(CALLS[function]), *arguments)
        if isinstance(function, type) and issubclass(function, np.generic):
            if np.dtype(function).kind not in "biufc" or np.dtype(function).itemsize > 16 or function is np.float16:
                self.refuse(
                    node, ast.unparse(node), "kernels compute with integers, float32, float64 and complex numbers"
                )
            if len(node.args) != 1:
                self.refuse(node, ast.unparse(node), f"{ast.unparse(node.func)} takes one number")
            self.check_fits(node, node.args[0], np.dtype(function))
            if np.dtype(function).kind != "c" and not isinstance(arguments[0], ast.Constant):
                arguments = [self.call(node, "oa__real", arguments[0], self.constant(node.func, function))]
            conversion = ast.Call(self.constant(node.func, function), arguments, [])
            return ast.copy_location(conversion, node)
        name = getattr(function, "__name__", shown(function))
        missing = REMEDIES.get(function) if callable(function) else None
        module = getattr(function, "__module__", "") or ""
        if isinstance(function, np.ufunc) or module in ("math", "cmath", "numpy"):
            remedy = missing or 'the page "Kernels in Python" lists those that they have'
            self.refuse(node, ast.unparse(node.func), f"kernels do not have this function: {remedy}")
        remedy = missing or f"begin {name} with @kernel.function, or write its code here"
        self.refuse(node, f"{ast.unparse(node.func)} of {module or 'Python'}", remedy)

    def check_count(self, node: ast.Call, function: Function | str) -> None:
        """Refuse a call with another number of arguments than the function takes in kernels."""
        count = 1 + (function in OF_TWO) if isinstance(function, str) else len(function.written.parameters)
        if len(node.args) != count:
            taken = "one argument" if count == 1 else "two arguments"
            self.refuse(node, ast.unparse(node), f"{ast.unparse(node.func)} takes {taken} in kernels")

    def of_range(self, node: ast.Call, arguments: list[ast.expr]) -> list[ast.expr]:
        """Return the arguments of a range, which have to be whole numbers. They are rewritten already."""
        construct = ast.unparse(node)
        if not self.is_iterated:
            self.refuse(node, construct, "use it in a for loop: for i in range(n)")
        if not 1 <= len(arguments) <= 3:
            self.refuse(node, construct, "a range has one to three numbers: its start, its end and its step")
        if len(arguments) == 3 and self.literal(node.args[2]) == 0:
            self.refuse(node, construct, "the step of a range is not 0")
        return [argument if isinstance(argument, ast.Constant) and type(argument.value) is int
                else self.call(argument, "oa__count", argument) for argument in arguments]  # fmt: skip

    def like(self, number: ast.expr, other: ast.expr, whole: bool) -> ast.expr:
        """Return a weak number in the type that combines it with another argument. Both are rewritten already.

        whole: whether the function combines integers as integers, and not as float64.
        """
        if any(getattr(child, "id", "") in _ATOMICS.values() for child in ast.walk(other)):
            return number  # the other argument would be computed twice
        return self.call(number, "oa__like", number, copy.deepcopy(other), ast.Constant(int(whole)))

    def least(self, node: ast.Call, name: str) -> ast.expr:
        """Return min or max of several values, as nested calls for two values, each in the right type."""
        if name in self.locals:
            self.refuse(node, ast.unparse(node), f"{name} is a variable here: use another name for it")
        weak = [self.weak.of(item) for item in node.args]
        value, is_weak = self.expression(node.args[0]), weak[0]
        for item, other in zip(node.args[1:], weak[1:], strict=True):
            flags = ast.Constant((_LEFT if is_weak else 0) | (_RIGHT if other else 0))
            value = self.call(node, f"oa__binary_{name}", value, self.expression(item), flags)
            is_weak = is_weak and other
        return value

    is_iterated = False  # whether a for loop iterates over the expression

    def of_kernels(self, node: ast.Call, function: Function) -> ast.expr:
        if function.is_read:
            self.refuse(node, f"{function.__name__} calls itself", "write a loop")
        written = function.written
        if len(node.args) != (taken := len(written.parameters)):
            self.refuse(node, ast.unparse(node), f"{written.name} takes {taken} {plural('argument', taken)}")
        arguments: list[ast.expr] = []
        for parameter, argument in zip(written.parameters, node.args, strict=True):
            array = self.array_named(argument.id) if isinstance(argument, ast.Name) else None
            if isinstance(argument, ast.Name) and array is not None:
                if array.dtype.names is not None:
                    self.refuse(node, f"{argument.id} is passed to {written.name}", "it is an array of structs: pass "
                                "the fields of an element")  # fmt: skip
                if array.direction is not In and not isinstance(array, SharedArray):
                    self.refuse(node, f"{argument.id} is passed to {written.name}", "only arrays that are In are "
                                "passed to functions: pass the element")  # fmt: skip
                self.note_rank(node, argument.id, written.ranks.get(parameter, 0))
                arguments.append(argument)
            else:
                if isinstance(argument, ast.Name) and self.parameters_of(argument.id):
                    self.note_rank(node, argument.id, written.ranks.get(parameter, 0))
                arguments.append(self.expression(argument))
        if written.takes_here:
            self.written.takes_here = True
            arguments.insert(0, ast.Name("oa__here", ast.Load()))
        call = self.call(node, self.function_name(function), *arguments)
        return self.call(node, "oa__strong", call)  # numba may remove all paths but one that returns a weak number

    def box(self, node: ast.Call, base: ast.expr) -> ast.expr:
        array = self.arrays.get(getattr(base, "id", ""))
        if array is None or type(array.partition).__name__ not in _BY_BLOCKS or node.args:
            self.refuse(node, ast.unparse(node), "box() is of arrays that RowBlocks or Tiles divide: the block's row, "
                        "column, rows and columns")  # fmt: skip
        array.rank = 2
        return self.call(node, "oa__box", self.here(node), base)

    def word(self, node: ast.Call, name: str, arguments: list[ast.expr]) -> ast.expr:
        if name == "here_thread":
            if arguments:
                self.refuse(node, ast.unparse(node), "here.thread() takes no axis")
            return self.call(node, "oa__here_thread", self.here(node))
        axis = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else 0
        if len(node.args) > 1 or axis not in (0, 1, 2) or (node.args and not isinstance(node.args[0], ast.Constant)):
            self.refuse(node, ast.unparse(node), "the axis is 0, 1 or 2, as a number")
        return self.call(node, f"oa__{name}", self.here(node), ast.Constant(axis))

    def atomic(self, node: ast.Call, function: Any) -> ast.expr:
        construct = ast.unparse(node)
        base = node.args[0] if len(node.args) == 3 else None
        array = self.array_named(base.id) if isinstance(base, ast.Name) else None
        if not isinstance(base, ast.Name) or array is None:
            self.refuse(
                node, construct, f"write {function.__name__}(array, i, value), with an array among the parameters"
            )
        if array.direction is not InOut or array.partition is not None:
            self.refuse(node, construct, f"{array.name} has to be InOut[{array.dtype}], with no partition: any thread "
                        "changes its elements")  # fmt: skip
        if array.dtype.kind not in "iuf" or array.dtype.itemsize < 4:
            self.refuse(node, construct, f"{array.name} has elements of {array.dtype}; there are steps for integers "
                        "and floating-point numbers of 4 and 8 bytes")  # fmt: skip
        self.note_rank(node, array.name, self.rank_of(node.args[1]))
        return self.call(node, _ATOMICS[function], base, self.expression(node.args[1]), self.expression(node.args[2]))


def _is_tuple_of_numbers(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, (numbers.Number, np.generic)) for item in value)


def _is_small_power(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value <= 16
