"""Checks the expressions of roles: depending on its place, each has to be a size, a test or a leading dimension."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache

from .helper_functions import HostArray, Integer, Object
from .labelled import Extent
from .parameters import Array, EnumValue, HostList, Number, Parameter, Size

# Extents whose first argument is a test; the last argument may be a test, too.
_TRIANGLES = ("triangle", "band_triangle", "packed")
_WITH_LD = ("matrix", "triangle", "band", "band_triangle")
MOST = 2**63 - 1
# Examples of the forms of expressions. m and n are sizes, trans is an enum, and OP_N is a constant.
EXPRESSIONS = {
    "n": "a size, an enum or a constant",
    "1": "a whole number",
    "m + n": "also `m - n`, `m * n`",
    "m // n": "a division that rounds down; also `m % n`. If the divisor is less than 1, the result is 0",
    "min(m, n)": "the smaller one",
    "m if trans == OP_N else n": "`m` or `n`, by a test",
    "trans == OP_N": "a test; also `trans != OP_N`, `trans in (OP_N, OP_T)`",
    "m >= n": "in `requires` only; also `==`, `<=`",
    "xDesc[1]": "the size of a dimension that a descriptor describes",
    "comm.ranks": "a number in `tells` of `[object.comm]`",
}


@cache
def names_in(expression: ast.expr) -> frozenset[str]:
    """Return every name of an expression. Functions share expressions, so the result is cached."""
    nodes = list(ast.walk(expression))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return frozenset(node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called)


class Names:
    """The names that the expressions of one function may contain."""

    def __init__(self, parameters: Iterable[Parameter], constants: Iterable[str], of_groups: bool = False) -> None:
        """Take the parameters of a function.

        `of_groups`: whether the names of lists stand for the values of one group.
        """
        lists = [parameter for parameter in parameters if isinstance(parameter, HostList)] if of_groups else []
        self.sizes: dict[str, Size | HostList] = {
            parameter.name: parameter for parameter in parameters if isinstance(parameter, Size)
        }
        self.integers = {parameter.name for parameter in parameters if isinstance(parameter, Integer)}
        self.sizes |= {list_.name: list_ for list_ in lists if list_.label in ("size", "ld")}
        self.numbers = {
            parameter.name
            for parameter in parameters
            if isinstance(parameter, Number) and parameter.is_read_only and parameter.count == 1
        }
        self.numbers |= {list_.name for list_ in lists if list_.label == "scalar"}
        self.tested = {parameter.name for parameter in parameters if isinstance(parameter, (EnumValue, Size))} | set(
            constants
        )
        self.tested |= {list_.name for list_ in lists if list_.label != "scalar"}
        self.known = {parameter.name for parameter in parameters} | set(constants)
        self.objects = {parameter.name: parameter for parameter in parameters if isinstance(parameter, Object)}

    def unknown(self, expression: ast.expr) -> Iterator[str]:
        """Yield a fault for each unknown name."""
        for name in sorted(names_in(expression) - self.known):
            yield f"{name} is neither a parameter nor a constant"

    def size(self, expression: ast.expr) -> Iterator[str]:
        """Yield the reasons why an expression is not a size."""
        match expression:
            case ast.Name(id=name):
                if name not in self.sizes and name not in self.integers:
                    yield f"{name} is not a size"
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int())):
                if name not in self.objects:
                    yield f"{name} is not a descriptor"
            case ast.Attribute(value=ast.Name(id=name), attr=told):
                yield from self.told(name, told)
            case ast.Constant(value=int(value)) if not isinstance(value, bool) and value <= MOST:
                pass
            case ast.BinOp(op=ast.FloorDiv() | ast.Mod(), right=ast.Constant(value=0)):
                yield f"{ast.unparse(expression)!r} divides by zero"
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() | ast.Mod(), right=right):
                yield from self.size(left)
                yield from self.size(right)
            case ast.Call(func=ast.Name(id="min"), args=[left, right], keywords=[]):
                yield from self.size(left)
                yield from self.size(right)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                yield from self.test(test)
                yield from self.size(body)
                yield from self.size(orelse)
            case _:
                yield f"{ast.unparse(expression)!r} is not an expression that C can be written for"

    def told(self, name: str, told: str) -> Iterator[str]:
        """Yield the reason why an object does not report the number `told`."""
        kind = self.objects[name].object_kind if name in self.objects else None
        if kind is None or told not in dict(kind.tells):
            yield f"{name}.{told} is no number that an object tells"

    def test(self, expression: ast.expr) -> Iterator[str]:
        """Yield the reasons why an expression is not a test."""
        match expression:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
                compared = [left, right]
            case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.Tuple(elts=some)]) if some:
                compared = [left, *some]
            case _:
                yield f"{ast.unparse(expression)!r} is not an expression that is a test, such as a == b or a in (b, c)"
                return
        for side in compared:
            match side:
                case ast.Name(id=name) if name in self.tested:
                    pass
                case ast.Attribute(value=ast.Name(id=name), attr=told):
                    yield from self.told(name, told)
                case ast.Constant(value=int(value)) if not isinstance(value, bool) and value <= MOST:
                    pass
                case _:
                    yield f"{ast.unparse(side)!r} is not an enum, a size, a constant or a number to compare with"

    def requirement(self, expression: ast.expr) -> Iterator[str]:
        """Yield the reasons why an expression is not a comparison of sizes."""
        unknown = list(self.unknown(expression))
        yield from unknown
        match expression:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.LtE() | ast.GtE()], comparators=[right]) if not unknown:
                yield from self.size(left)
                yield from self.size(right)
                if not names_in(expression) & self.sizes.keys():
                    yield f"{ast.unparse(expression)!r} has no size"
            case _ if not unknown:
                yield f"{ast.unparse(expression)!r} is not an expression that compares sizes, such as m >= n"

    def overwrites(self, expression: ast.expr) -> Iterator[str]:
        """Yield the reasons why an expression is not a condition for overwriting."""
        match expression:
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[ast.Constant(value=0)]) if (
                name in self.numbers
            ):
                return
        yield from self.test(expression)

    def extent(self, extent: Extent) -> Iterator[str]:
        """Yield the faults of an extent's arguments."""
        arguments = list(extent.arguments)
        if extent.kind == "described":
            if not isinstance(arguments[0], ast.Name) or arguments[0].id not in self.objects:
                yield f"{ast.unparse(arguments[0])!r} is not a descriptor"
            return
        if extent.kind in _TRIANGLES:
            yield from self.test(arguments.pop(0))
            if extent.leaves_out_the_diagonal:
                yield from self.test(arguments.pop())
        if extent.kind in _WITH_LD:
            ld = arguments.pop()
            if not isinstance(ld, ast.Name) or ld.id not in self.sizes or self.sizes[ld.id].label != "ld":
                yield f"{ast.unparse(ld)!r} is not a leading dimension: a {extent.kind} ends in one that is labelled ld"
        for expression in [*arguments, *(extent.batch or ()), *([extent.pointers] if extent.pointers else [])]:
            yield from self.size(expression)

    def array(self, array: Array) -> Iterator[str]:
        """Yield the faults of an array's label."""
        unknown = [fault for expression in array.expressions for fault in self.unknown(expression)]
        yield from dict.fromkeys(unknown)
        if unknown:
            return
        for extent in array.extents:
            yield from self.extent(extent)
        if array.overwrites:
            yield from self.overwrites(array.overwrites)
        if array.in_place_at:
            yield from self.size(array.in_place_at)


def faults(parameters: list[Parameter], constants: Iterable[str]) -> list[str]:
    """Return the faults of the labels of a function's arrays; each fault begins with the name of its parameter."""
    plain = Names(parameters, constants)
    arrays = {parameter.name: parameter for parameter in parameters if isinstance(parameter, Array)}
    faults = []
    for host in parameters:
        if isinstance(host, HostArray):
            faults += [
                f"{host.name}: {fault}" for expression in host.expressions for fault in plain.unknown(expression)
            ]
            faults += [f"{host.name}: {fault}" for fault in plain.extent(host.extent)]
    for array in arrays.values():
        names = Names(parameters, constants, of_groups=True) if array.extent.groups else plain
        faults += [f"{array.name}: {fault}" for fault in names.array(array)]
        for name in array.in_place:
            other = arrays.get(name)
            if other is None or other is array:
                faults.append(f"{array.name}: may be {name}, which is not another array")
            elif array.name not in other.in_place:
                faults.append(f'{array.name}: may be {name}, and that does not say "may be {array.name}"')
    return faults
