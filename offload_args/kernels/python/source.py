"""The source of a kernel in Python: read, checked, and rewritten for numba.

A kernel is checked as a tree, before any type is known: that it stores to elements that `mine()` gave it and to no
others, and that it uses nothing that has no meaning on a device. A refusal names the file, the line, the construct and
the remedy. The tree that results has plain loops in place of `for i in y.mine()`, and functions of rules.py, whose
names begin with `oa__`, in place of the words of words.py.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import math
import numbers
import operator
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Final, NoReturn

import numpy as np

from ...arguments import In, InOut, Out, Parameter
from ...display import shown
from ...dtypes import code_of
from ...errors import KernelError, SignatureError
from ..partitions import Partition
from ..shared_memory import SharedOf
from . import functions, words
from .barriers import check_barriers
from .calls import CALLS, REMEDIES
from .trees import matched
from .weak import Weakness

__all__ = ["FIRST_SHARED", "Array", "Function", "SharedArray", "Written", "read_function", "read_kernel"]

_MISSING: Final = object()
_LEFT, _RIGHT, _BOTH = 1, 2, 3  # of two expressions those that are weak
_MOST_SHARED: Final = 48 * 1024  # bytes that a kernel may declare on any GPU
_SHARED_ALIGNMENT: Final = 16
FIRST_SHARED: Final = -16  #: in place of the number of an argument, for the first shared array; then -17
_OPERATIONS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "truediv", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne", ast.Pow: "pow",
    ast.LShift: "lshift", ast.RShift: "rshift",
}  # fmt: skip
_BUILTINS: Final = frozenset({range, len, min, max, int, float, bool, complex})
_BY_ELEMENTS: Final = frozenset({"Linear1D", "GridStride1D", "PerBlock"})
_BY_BLOCKS: Final = frozenset({"RowBlocks", "Tiles"})
_ATOMICS: Final = {words.atomic_add: "oa__add", words.atomic_min: "oa__min", words.atomic_max: "oa__max"}
_ALWAYS_COMBINED: Final = (ast.Div, ast.FloorDiv, ast.LShift, ast.RShift)  # numba's own differ from NumPy's
_EXPRESSIONS: Final = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Tuple, ast.operator, ast.unaryop, ast.boolop,
    ast.cmpop, ast.expr_context,
)  # fmt: skip
_REMEDIES: Final[dict[type[ast.AST], str]] = {
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


class Function:
    """A function that kernels call, by @kernel.function. It computes values; it stores nothing."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", "function")
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self._written: Written | None = None
        self.is_read = False  #: while its source is read; a function that is met meanwhile calls itself

    @property
    def written(self) -> Written:
        if self._written is None:
            self.is_read = True
            try:
                self._written = read_function(self.function)
            finally:
                self.is_read = False
        return self._written

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Compute it in Python, as any function."""
        return self.function(*arguments, **keywords)

    def __repr__(self) -> str:
        return f"<{self.__name__} of kernels>"


@dataclass
class Array:
    """An array among the parameters of a kernel."""

    name: str
    number: int  #: of the parameter, from 0
    direction: type[Any]
    dtype: np.dtype[Any]
    partition: Partition | None
    rank: int = 0  #: by how many numbers the kernel subscripts it; 0: it does not
    like: int = -1  #: the parameter whose elements' places this one's elements have; -1: none
    ordered: bool = False  #: and whose order it has, too: indices of several loops over mine() meet in one array
    owners: set[str] = field(default_factory=set)  #: arrays whose mine() gave its indices

    @property
    def by_elements(self) -> bool:
        return type(self.partition).__name__ in _BY_ELEMENTS


@dataclass
class SharedArray(Array):
    """An array of a block."""

    shape: tuple[int, ...] | None = None  #: None: the launch says how many elements
    offset: int = 0  #: in bytes, in the memory that the kernel declares


@dataclass
class Written:
    """A kernel or a function of kernels, as it is rewritten."""

    name: str
    file: str
    line: int
    tree: ast.FunctionDef
    parameters: tuple[str, ...]
    declared: tuple[Any, ...] = ()  #: of a kernel: the type of each parameter
    arrays: dict[str, Array] = field(default_factory=dict)  #: of a kernel
    shared: dict[str, SharedArray] = field(default_factory=dict)  #: of a kernel's blocks
    shared_bytes: int = 0  #: that the kernel itself declares
    has_barriers: bool = False
    constants: dict[str, Any] = field(default_factory=dict)  #: values that the tree names
    functions: dict[str, Function] = field(default_factory=dict)  #: functions that the tree names
    ranks: dict[str, int] = field(default_factory=dict)  #: of a function's parameters, where it subscripts them

    def identity(self) -> str:
        """Return a text that differs where the code would: the tree, its constants and the functions that it calls."""
        values = [f"{name}={type(value).__name__}:{value!r}" for name, value in sorted(self.constants.items())]
        called = [f"{name}={function.written.identity()}" for name, function in sorted(self.functions.items())]
        shared = [f"{array.name}: {array.dtype} {array.shape} {array.offset}" for array in self.shared.values()]
        return "\n".join([ast.dump(self.tree), *values, *called, *shared])


def _tree_of(function: Callable[..., Any]) -> tuple[ast.FunctionDef, str, int]:
    """Return the tree of a function, with its file's line numbers."""
    if not isinstance(function, FunctionType):
        raise SignatureError(f"kernel: needs a function, got {shown(function)}")
    file = function.__code__.co_filename
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise KernelError(
            f"{file}:{function.__code__.co_firstlineno}: {function.__name__}: its source can't be read: write kernels "
            "in a file or in a notebook"
        ) from None
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    ast.increment_lineno(tree, first - 1)
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError(f"{file}:{first}: {function.__name__}: a kernel is a function that def begins")
    return tree, file, tree.lineno


class _Reader:
    """Checks and rewrites one function."""

    def __init__(self, function: FunctionType) -> None:
        tree, file, line = _tree_of(function)
        self.function, self.original = function, tree
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
        self.cells = {name: cell.cell_contents for name, cell in cells.items() if _is_filled(cell)}
        signature = tree.args
        names = tuple(parameter.arg for parameter in signature.args)
        self.written = Written(function.__name__, file, line, tree, names)
        if signature.vararg or signature.kwarg or signature.kwonlyargs or signature.posonlyargs or signature.defaults:
            self.refuse(tree, "its parameters", "give it plain ones, without defaults, * and **")
        self.locals = set(names) | {
            node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        for name in sorted(self.locals):
            if name.startswith("oa__"):
                self.refuse(tree, f"the name {name}", "names that begin with oa__ are the package's own: use another")
        self.loops: list[str] = []  # "mine" or "plain"
        self.owned: dict[tuple[str, ...], Array] = {}  # by the variables of loops over mine()
        self.fresh = 0
        self.weak: Weakness
        self.aliases: dict[str, set[str]] = {}  # of a function: the parameters that a variable may be
        self.structs: dict[str, np.dtype[Any]] = {}  # of a kernel: the parameters that are structs

    @property
    def arrays(self) -> dict[str, Array]:
        return self.written.arrays

    def array_named(self, name: str) -> Array | None:
        return self.arrays.get(name) or self.written.shared.get(name)

    def refuse(self, node: ast.AST, construct: str, remedy: str) -> NoReturn:
        line = getattr(node, "lineno", self.written.line)
        raise KernelError(f"{self.written.file}:{line}: {self.written.name}: {construct}: {remedy}")

    # -- names ---------------------------------------------------------------------------------------------------------

    def value_of(self, node: ast.expr) -> Any:
        """Return the object that a name, or a name with attributes, stands for; _MISSING: a variable."""
        if isinstance(node, ast.Name):
            if node.id in self.locals:
                return _MISSING
            for place in (self.cells, self.function.__globals__, vars(builtins)):
                if node.id in place:
                    return place[node.id]
            self.refuse(node, f"the name {node.id}", "nothing has it: define it before the kernel")
        if isinstance(node, ast.Attribute):
            base = self.value_of(node.value) if isinstance(node.value, (ast.Name, ast.Attribute)) else _MISSING
            if base is _MISSING:
                return _MISSING
            if base is words.here:
                base = words.Here
            try:
                return getattr(base, node.attr)
            except AttributeError:
                self.refuse(node, ast.unparse(node), f"{shown(base)} has no {node.attr}")
        return _MISSING

    def constant(self, node: ast.expr, value: Any) -> ast.expr:
        """Return a name for a value that is fixed from now on."""
        name = f"oa__value_{len(self.written.constants)}"
        known = [key for key, other in self.written.constants.items() if other is value]
        self.written.constants.setdefault(known[0] if known else name, value)
        return ast.copy_location(ast.Name(known[0] if known else name, ast.Load()), node)

    def call(self, node: ast.AST, function: str, *arguments: ast.expr) -> ast.Call:
        call = ast.Call(ast.Name(function, ast.Load()), list(arguments), [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def here(self, node: ast.AST) -> ast.expr:
        if not self.written.declared:
            self.refuse(node, ast.unparse(node), "only a kernel knows its thread: pass the number as an argument")
        return ast.copy_location(ast.Name("oa__here", ast.Load()), node)

    def note_rank(self, node: ast.AST, name: str, rank: int) -> None:
        """Note by how many numbers an array, or a parameter of a function, is subscripted."""
        array = self.array_named(name)
        for parameter in self.parameters_of(name) if array is None else (name,):
            known = array.rank if array is not None else self.written.ranks.get(parameter, 0)
            if known and rank and known != rank:
                self.refuse(
                    node,
                    f"{name} is subscripted by one number and by two",
                    f"a matrix needs {name}[i, j] everywhere; {name}[i] counts its elements in the order of memory",
                )
            if array is not None:
                array.rank = max(known, rank)
            else:
                self.written.ranks[parameter] = max(known, rank)

    def parameters_of(self, name: str) -> set[str]:
        """Return the parameters that a name may stand for: itself, or those that are assigned to it."""
        return ({name} & set(self.written.parameters)) | self.aliases.get(name, set())

    def find_aliases(self) -> None:
        """Find the variables of a function that a parameter is assigned to: it may be an array."""
        pairs = [
            (target.id, value)
            for node in ast.walk(self.original)
            if isinstance(node, ast.Assign)
            for pattern in node.targets
            for target, value in matched(pattern, node.value)
            if isinstance(target, ast.Name)
        ]
        for _ in pairs:  # one more name of a chain each time
            for target, value in pairs:
                for name in _names_in(value):
                    self.aliases.setdefault(target, set()).update(self.parameters_of(name))

    # -- expressions ---------------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> ast.expr:
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
                self.refuse(node, "@", _REMEDIES[ast.MatMult])
            weak = self.weakness(node.left, node.right)
            left, right = self.expression(node.left), self.expression(node.right)
            if isinstance(node.op, ast.Pow):
                return self.powered(node, left, right, weak)
            if type(node.op) in _OPERATIONS and (weak != _BOTH or isinstance(node.op, _ALWAYS_COMBINED)):
                return self.combined(node, type(node.op), left, right, weak)
            return ast.copy_location(ast.BinOp(left, node.op, right), node)
        if isinstance(node, ast.Compare):
            return self.compared(node)
        if isinstance(node, ast.IfExp):
            weak = self.weakness(node.body, node.orelse)
            body, other = self.expression(node.body), self.expression(node.orelse)
            if weak in (_LEFT, _RIGHT):
                body, other = (self.call(branch, "oa__weak", branch) if weak == flag else branch
                               for branch, flag in ((body, _LEFT), (other, _RIGHT)))  # fmt: skip
            return ast.copy_location(ast.IfExp(self.expression(node.test), body, other), node)
        if isinstance(node, _EXPRESSIONS):
            for name, value in ast.iter_fields(node):
                if isinstance(value, ast.expr):
                    setattr(node, name, self.expression(value))
                elif isinstance(value, list):
                    setattr(node, name, [self.expression(x) if isinstance(x, ast.expr) else x for x in value])
            return node
        self.refuse(node, f"{ast.unparse(node):.60}", _REMEDIES.get(type(node), "kernels do not have it"))

    def weakness(self, left: ast.expr, right: ast.expr) -> int:
        """Return which of two expressions are weak. They are as the user wrote them."""
        return (_LEFT if self.weak.of(left) else 0) | (_RIGHT if self.weak.of(right) else 0)

    def combined(self, node: ast.AST, operation: type[ast.AST], left: ast.expr, right: ast.expr, weak: int) -> ast.expr:
        return self.call(node, f"oa__binary_{_OPERATIONS[operation]}", left, right, ast.Constant(weak))

    def powered(self, node: ast.BinOp, base: ast.expr, exponent: ast.expr, weak: int) -> ast.expr:
        """Return a power: a number of Python, products of a small whole power, or a function's value."""
        if isinstance(base, ast.Constant) and isinstance(exponent, ast.Constant) and weak == _BOTH:
            try:
                value = base.value**exponent.value  # type: ignore[operator]
            except ArithmeticError as error:
                self.refuse(node, ast.unparse(node), f"it can't be evaluated: {error}")
            if not isinstance(value, int) or -(2**63) <= value < 2**64:
                return ast.copy_location(ast.Constant(value), node)
        if not _is_small_power(node.right):
            if weak != _BOTH:
                return self.combined(node, ast.Pow, base, exponent, weak)
            return self.call(node, self.function_name(CALLS[operator.pow]), base, exponent)
        if isinstance(exponent, ast.UnaryOp):
            count = exponent.operand
            power = ast.copy_location(ast.BinOp(self.call(node, "oa__floating", base), ast.Pow(), count), node)
            flags = _BOTH if weak & _LEFT else _LEFT
            return self.combined(node, ast.Div, ast.copy_location(ast.Constant(1), node), power, flags)
        if isinstance(exponent, ast.Constant) and exponent.value == 2:
            return self.call(node, self.function_name(CALLS[np.square]), base)
        return ast.copy_location(ast.BinOp(base, node.op, exponent), node)

    def compared(self, node: ast.Compare) -> ast.expr:
        """Return comparisons, each of the right type; in a chain a value is computed for each of its neighbours."""
        items = [node.left, *node.comparators]
        weak = [self.weakness(*items[i : i + 2]) for i in range(len(node.ops))]
        read = [self.expression(item) for item in items]
        is_chain = len(node.ops) > 1
        steps = any(getattr(child, "id", "") in _ATOMICS.values() for item in read for child in ast.walk(item))
        if not any(flag in (_LEFT, _RIGHT) for flag in weak) or (is_chain and steps):
            return ast.copy_location(ast.Compare(read[0], node.ops, read[1:]), node)
        comparisons: list[ast.expr] = []
        for i, operation in enumerate(node.ops):
            left, right = copy.deepcopy(read[i]), copy.deepcopy(read[i + 1])
            if weak[i] in (_LEFT, _RIGHT) and type(operation) in _OPERATIONS:
                comparisons.append(self.combined(node, type(operation), left, right, weak[i]))
            else:
                comparisons.append(ast.copy_location(ast.Compare(left, [operation], [right]), node))
        return comparisons[0] if not is_chain else ast.copy_location(ast.BoolOp(ast.And(), comparisons), node)

    def joined(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """Return a value that takes the type of the others that its variable gets. It is as the user wrote it."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            items = [self.joined(*pair) for pair in zip(target.elts, value.elts, strict=True)]
            return ast.copy_location(ast.Tuple(items, ast.Load()), value)
        is_joined = isinstance(target, ast.Name) and target.id in self.weak.mixed and self.weak.of(value)
        read = self.expression(value)
        return self.call(value, "oa__weak", read) if is_joined else read

    def name(self, node: ast.Name | ast.Attribute) -> ast.expr:
        if isinstance(node, ast.Name) and self.array_named(node.id) is not None:
            self.refuse(
                node, f"{node.id} without a subscript", f"use its elements, {node.id}.size or {node.id}.shape; only a "
                "function of kernels takes an array, one that is In"
            )  # fmt: skip
        value = self.value_of(node)
        if value is _MISSING:
            if isinstance(node, ast.Attribute):
                return self.attribute(node)
            return node
        if value is None or isinstance(value, (bool, numbers.Number, np.generic)) or _is_tuple_of_numbers(value):
            return self.constant(node, value)
        if isinstance(value, np.ndarray):
            self.refuse(node, f"the array {ast.unparse(node)}", "pass it as an argument that is In")
        self.refuse(
            node,
            f"{ast.unparse(node)}, {shown(value):.60}",
            "a kernel reads numbers and tuples of numbers from outside",
        )

    def unnamed(self, node: ast.expr) -> ast.expr:
        """Return an expression with attributes in place of fields by their names."""
        match node:
            case ast.Subscript(value=base, slice=ast.Constant(value=str() as name)):
                return ast.copy_location(ast.Attribute(self.unnamed(base), name, ast.Load()), node)
        return node

    def struct_of(self, node: ast.expr) -> np.dtype[Any] | None:
        """Return the dtype of an expression that is a struct of the kernel's parameters, or its field."""
        if isinstance(node, ast.Name):
            return self.structs.get(node.id)
        if not isinstance(node, ast.Attribute):
            return None
        outer = self.struct_of(node.value)
        return outer[node.attr] if outer is not None and node.attr in (outer.names or ()) else None

    def field(self, node: ast.Attribute, struct: np.dtype[Any]) -> ast.expr:
        """Return a field of a struct. Refuse one that it does not have, or that kernels do not read."""
        construct, names = ast.unparse(node), struct.names or ()
        if node.attr not in names:
            self.refuse(node, construct, f"the struct has no field {node.attr}: it has {', '.join(names)}")
        dtype = struct[node.attr]
        if dtype.names is None and (dtype.base.kind == "V" or dtype.base == np.float16):
            self.refuse(node, construct, f"kernels read no {dtype.base} in a struct: make the field a float32")
        return node

    def attribute(self, node: ast.Attribute) -> ast.expr:
        base = node.value
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
                remedy = "an array has size, shape and, if it is written, mine() and box()"
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
        if array.direction is Out:
            self.refuse(node, f"{ast.unparse(node)} is read", f"{array.name} is Out: keep the value in a variable, or "
                        "declare InOut")  # fmt: skip
        if array.direction is InOut and not isinstance(array, SharedArray):
            self.check_owned(node, array, "read")
        else:
            self.note_rank(node, array.name, self.rank_of(index))
        return ast.copy_location(ast.Subscript(base, self.expression(index), node.ctx), node)

    def rank_of(self, index: ast.expr) -> int:
        if isinstance(index, ast.Tuple):
            return len(index.elts)
        owner = self.owned.get((index.id,)) if isinstance(index, ast.Name) else None
        return 2 if owner is not None and not owner.by_elements else 1

    def check_owned(self, node: ast.Subscript, array: Array, verb: str) -> None:
        """Refuse an element of a written array that a loop over mine() did not give."""
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
        """Return the array whose shape an array has to have: itself, or one that has to have no other's."""
        by_number = {other.number: other for other in self.arrays.values()}
        while array.like >= 0:
            array = by_number[array.like]
        return array

    def function_name(self, function: Function | str) -> str:
        """Return the name that the tree has for a function."""
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
        if function is _MISSING and isinstance(node.func, ast.Attribute) and node.func.attr == "box":
            return self.box(node, node.func.value)
        if function is _MISSING:
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                self.attribute(node.func)  # may refuse with a better remedy
            self.refuse(node, ast.unparse(node), "a kernel calls functions of math and NumPy, and those that "
                        "@kernel.function begins")  # fmt: skip
        if function is len and len(node.args) == 1 and self.array_named(getattr(node.args[0], "id", "")) is not None:
            return self.call(node, "oa__size", node.args[0])
        try:
            known = function in _ATOMICS
        except TypeError:
            known = False
        if known:
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
        arguments = [self.expression(argument) for argument in node.args]
        try:
            if function in words.WORDS:
                return self.word(node, words.WORDS[function], arguments)
            if function in _BUILTINS:
                if function is range and not self.is_iterated:
                    self.refuse(node, ast.unparse(node), "use it in a for loop: for i in range(n)")
                name = function.__name__
                if name in self.locals:
                    self.refuse(node, ast.unparse(node), f"{name} is a variable here: use another name for it")
                called = ast.copy_location(ast.Name(name, ast.Load()), node.func)
                return ast.copy_location(ast.Call(called, arguments, []), node)
            if function in CALLS:
                return self.call(node, self.function_name(CALLS[function]), *arguments)
        except TypeError:
            pass  # not hashable
        if isinstance(function, type) and issubclass(function, np.generic):
            if np.dtype(function).kind not in "biufc" or np.dtype(function).itemsize > 16 or function is np.float16:
                self.refuse(
                    node, ast.unparse(node), "kernels compute with integers, float32, float64 and complex numbers"
                )
            conversion = ast.Call(self.constant(node.func, function), arguments, [])
            return ast.copy_location(conversion, node)
        name = getattr(function, "__name__", shown(function))
        missing = REMEDIES.get(function) if callable(function) else None
        module = getattr(function, "__module__", "") or ""
        if isinstance(function, np.ufunc) or module in ("math", "cmath", "numpy"):
            remedy = missing or "docs/guide/python-kernels.md lists those that they have"
            self.refuse(node, ast.unparse(node.func), f"kernels do not have this function: {remedy}")
        remedy = missing or f"begin {name} with @kernel.function, or write its code here"
        self.refuse(node, f"{ast.unparse(node.func)} of {module or 'Python'}", remedy)

    def least(self, node: ast.Call, name: str) -> ast.expr:
        """Return min or max of several, one after the other, each pair of the right type."""
        if name in self.locals:
            self.refuse(node, ast.unparse(node), f"{name} is a variable here: use another name for it")
        weak = [self.weak.of(item) for item in node.args]
        value, is_weak = self.expression(node.args[0]), weak[0]
        for item, other in zip(node.args[1:], weak[1:], strict=True):
            flags = ast.Constant((_LEFT if is_weak else 0) | (_RIGHT if other else 0))
            value = self.call(node, f"oa__binary_{name}", value, self.expression(item), flags)
            is_weak = is_weak and other
        return value

    is_iterated = False  # the expression that is read is that of a for loop

    def of_kernels(self, node: ast.Call, function: Function) -> ast.expr:
        if function.is_read:
            self.refuse(node, f"{function.__name__} calls itself", "write a loop")
        written = function.written
        if len(node.args) != len(written.parameters):
            self.refuse(node, ast.unparse(node), f"{written.name} takes {len(written.parameters)} arguments")
        arguments: list[ast.expr] = []
        for parameter, argument in zip(written.parameters, node.args, strict=True):
            array = self.array_named(argument.id) if isinstance(argument, ast.Name) else None
            if isinstance(argument, ast.Name) and array is not None:
                if array.direction is not In and not isinstance(array, SharedArray):
                    self.refuse(node, f"{argument.id} is passed to {written.name}", "only arrays that are In are "
                                "passed to functions: pass the element")  # fmt: skip
                self.note_rank(node, argument.id, written.ranks.get(parameter, 0))
                arguments.append(argument)
            else:
                if isinstance(argument, ast.Name) and self.parameters_of(argument.id):
                    self.note_rank(node, argument.id, written.ranks.get(parameter, 0))
                arguments.append(self.expression(argument))
        return self.call(node, self.function_name(function), *arguments)

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

    # -- statements ----------------------------------------------------------------------------------------------------

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
            case ast.Assign():
                node.value = self.joined(node.targets[0], node.value)
                for target in node.targets:
                    self.target(target)
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
                node.value = self.expression(node.value) if node.value is not None else None
            case ast.Assert():
                made_test = self.expression(node.test)
                line = ast.Constant(node.lineno)
                if self.written.declared:
                    call = self.call(node, "oa__assert", self.here(node), made_test, line)
                    yield ast.fix_missing_locations(ast.copy_location(ast.Expr(call), node))
                return
            case _:
                remedy = _REMEDIES.get(type(node), "kernels do not have it")
                self.refuse(node, f"{ast.unparse(node).splitlines()[0]:.60}", remedy)
        yield node

    def target(self, node: ast.expr) -> None:
        """Check the target of an assignment, and rewrite its indices."""
        if isinstance(node, ast.Tuple):
            for element in node.elts:
                self.target(element)
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

    def augmented(self, node: ast.AugAssign) -> Iterator[ast.stmt]:
        if isinstance(node.op, ast.MatMult):
            self.refuse(node, "@=", _REMEDIES[ast.MatMult])
        target = node.target
        array = self.arrays.get(getattr(target.value, "id", "")) if isinstance(target, ast.Subscript) else None
        if array is not None and array.direction is Out:
            self.refuse(node, f"{ast.unparse(target)} is read", f"{array.name} is Out: declare InOut")
        value: ast.expr = ast.parse(ast.unparse(target), mode="eval").body  # the same, to be read
        self.target(target)
        for child in ast.walk(value):
            ast.copy_location(child, target)
        combined = ast.copy_location(ast.BinOp(value, node.op, node.value), node)
        yield ast.copy_location(ast.Assign([target], self.joined(target, combined)), node)

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
        self.target(node.target)
        self.is_iterated = True
        node.iter = self.expression(node.iter)
        self.is_iterated = False
        self.loops.append("plain")
        node.body = self.block(node.body)
        self.loops.pop()
        yield node

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

    # -- memory of blocks ----------------------------------------------------------------------------------------------

    def evaluated(self, node: ast.expr) -> Any:
        """Return the value of an expression that is the same for each launch."""
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and child.id in self.locals:
                self.refuse(node, ast.unparse(node), "the memory of a block has one size, known when the kernel is "
                            "made: use numbers, or a parameter of type Shared[dtype]")  # fmt: skip
        try:
            return eval(compile(ast.Expression(node), self.written.file, "eval"), self.function.__globals__, self.cells)
        except Exception as error:
            self.refuse(node, ast.unparse(node), f"it can't be evaluated: {error}")

    def declare_shared(self, node: ast.Assign, name: ast.expr, called: ast.Call) -> None:
        construct = ast.unparse(node)
        arguments = [*called.args, *(keyword.value for keyword in called.keywords if keyword.arg in ("shape", "dtype"))]
        if len(arguments) != 2 or len(called.args) + len(called.keywords) != 2 or not isinstance(name, ast.Name):
            self.refuse(node, construct, "write name = shared(shape, dtype)")
        if not self.written.declared:
            self.refuse(node, construct, "only a kernel declares shared memory: pass the array as an argument")
        if [keyword.arg for keyword in called.keywords] == ["dtype", "shape"]:
            arguments.reverse()
        shape = self.evaluated(arguments[0])
        sizes = shape if isinstance(shape, tuple) else (shape,)
        if not all(isinstance(size, (int, np.integer)) and size > 0 for size in sizes) or len(sizes) not in (1, 2):
            self.refuse(node, construct, f"the shape has one or two numbers, 1 or more; got {shown(shape)}")
        if sum(getattr(child, "id", "") == name.id and isinstance(getattr(child, "ctx", None), ast.Store)
               for child in ast.walk(self.original)) > 1:  # fmt: skip
            self.refuse(node, f"{name.id} is assigned twice", "a shared array is one all through the kernel")
        dtype = self.evaluated(arguments[1])
        try:
            dtype = np.dtype(dtype)
        except TypeError:
            self.refuse(node, construct, f"needs the dtype of its elements, got {shown(dtype)}")
        self.check_dtype(node, construct, dtype)
        offset = -(-self.written.shared_bytes // _SHARED_ALIGNMENT) * _SHARED_ALIGNMENT
        self.written.shared_bytes = offset + math.prod(map(int, sizes)) * dtype.itemsize
        if self.written.shared_bytes > _MOST_SHARED:
            self.refuse(node, construct, f"the shared arrays of a kernel have {self.written.shared_bytes} bytes, and "
                        f"may have {_MOST_SHARED}: for more, declare a parameter of type Shared[dtype]")  # fmt: skip
        self.add_shared(name.id, dtype, tuple(map(int, sizes)), offset)

    def check_dtype(self, node: ast.AST, construct: str, dtype: np.dtype[Any]) -> None:
        if dtype.names is not None or code_of(dtype) < 0:
            self.refuse(node, construct, f"there are no elements of {dtype} in kernels")

    def add_shared(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...] | None, offset: int = 0) -> None:
        number = FIRST_SHARED - len(self.written.shared)
        rank = 1 if shape is None else len(shape)
        self.written.shared[name] = SharedArray(name, number, InOut, dtype, None, rank, shape=shape, offset=offset)

    def without_shared(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return statements without the declarations of shared arrays, which become parameters."""
        rest: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                called = node.value
                if len(node.targets) == 1 and self.value_of(called.func) is words.shared:
                    self.declare_shared(node, node.targets[0], called)
                    continue
            rest.append(node)
        return rest or [ast.Pass(lineno=body[0].lineno, col_offset=0)]

    def finish(self, *first: str) -> Written:
        tree = self.original
        statements = self.without_shared(tree.body)
        parameters = set(self.written.parameters) | set(self.written.shared)
        arrays = set(self.arrays) | set(self.written.shared) if self.written.declared else parameters
        self.weak = Weakness(tree, self.locals - parameters, parameters, arrays, self.value_of)
        names = [ast.arg(name) for name in (*first, *self.written.parameters, *self.written.shared)]
        body = self.block(statements)
        changing = {array.name for array in self.arrays.values() if array.direction is not In}
        check_barriers(body, frozenset(changing | set(self.written.shared)), self.refuse)
        rewritten = ast.FunctionDef(tree.name, ast.arguments([], names, None, [], [], None, []), body, [], None, None)
        setattr(rewritten, "type_params", [])  # noqa: B010  Python 3.12 has to have it, and 3.11 does not know it
        self.written.tree = ast.fix_missing_locations(ast.copy_location(rewritten, tree))
        return self.written


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _names_in(value: ast.expr) -> Iterator[str]:
    """Give the variables whose value an expression may be as it is."""
    if isinstance(value, ast.Name):
        yield value.id
    elif isinstance(value, ast.IfExp):
        yield from _names_in(value.body)
        yield from _names_in(value.orelse)


def _is_tuple_of_numbers(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, (numbers.Number, np.generic)) for item in value)


def _is_small_power(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value <= 16


def read_function(function: Callable[..., Any]) -> Written:
    """Return a function of kernels as it is rewritten. Raises KernelError."""
    _tree_of(function)
    reader = _Reader(function)  # type: ignore[arg-type]
    reader.find_aliases()
    return reader.finish()


def _declared(reader: _Reader, names: dict[str, Any]) -> tuple[Any, ...]:
    function, written = reader.function, reader.written
    try:
        annotations = inspect.get_annotations(function, locals={**names, **reader.cells}, eval_str=True)
    except Exception as error:
        reader.refuse(reader.original, "its annotations", f"they can't be evaluated: {error}")
    for name in written.parameters:
        if name not in annotations:
            reader.refuse(reader.original, f"the parameter {name}", f"declare its type, as in {name}: In[np.float32]")
    return tuple(annotations[name] for name in written.parameters)


def _has_fields(declared: Any) -> bool:
    return isinstance(declared, np.dtype) and declared.names is not None


def _take_shared(reader: _Reader) -> None:
    """Take the parameters of type Shared[dtype] out of those that a launch passes."""
    written = reader.written
    pairs = list(zip(written.parameters, written.declared, strict=True))
    for name, declared in pairs:
        if isinstance(declared, SharedOf):
            if written.shared:
                reader.refuse(reader.original, f"the parameter {name}", "a launch has one size of shared memory: "
                              "declare one parameter of type Shared[dtype]")  # fmt: skip
            reader.check_dtype(reader.original, f"the parameter {name}", declared.dtype)
            reader.add_shared(name, declared.dtype, None)
    rest = [pair for pair in pairs if pair[0] not in written.shared]
    written.parameters, written.declared = tuple(name for name, _ in rest), tuple(declared for _, declared in rest)


def read_kernel(function: Callable[..., Any], names: dict[str, Any]) -> Written:
    """Return a kernel as it is rewritten. names: those around it, for annotations that are texts.

    Raises KernelError and SignatureError.
    """
    _tree_of(function)
    reader = _Reader(function)  # type: ignore[arg-type]
    written = reader.written
    written.declared = _declared(reader, names)
    _take_shared(reader)
    for i, (name, declared) in enumerate(zip(written.parameters, written.declared, strict=True)):
        if isinstance(declared, type) and declared in (In, Out, InOut):
            reader.refuse(reader.original, f"the parameter {name}", f"name the dtype of its elements: "
                          f"{declared.__name__}[np.float32]")  # fmt: skip
        if isinstance(declared, Parameter):
            if declared.dtype.names is not None:
                reader.refuse(reader.original, f"the parameter {name}", "its elements are structs: pass an array for "
                              "each field, as np.ascontiguousarray(x['field'])")  # fmt: skip
            written.arrays[name] = Array(name, i, declared.direction, declared.dtype, declared.partition)
        elif isinstance(declared, (type, np.dtype)):
            reader.structs |= {name: np.dtype(declared)} if _has_fields(declared) else {}
    reader.finish("oa__here")
    mixed = {id(reader.root_of(array)) for array in written.arrays.values() if len(array.owners) > 1}
    for array in written.arrays.values():
        array.ordered = id(reader.root_of(array)) in mixed
    for array in written.arrays.values():
        if array.direction is not In and array.rank == 0:
            remedy = f"for i in {array.name}.mine(): ..., or declare In"
            reader.refuse(reader.original, f"{array.name} is {array.direction.__name__} and never written", remedy)
    return written


def _add_functions() -> None:
    by_name = {name: Function(getattr(functions, name)) for name in functions.__all__}
    CALLS.update({math.floor: by_name["floor"], math.ceil: by_name["ceil"], math.trunc: by_name["trunc"]})
    for name in ("isnan", "isinf", "isfinite"):
        CALLS[getattr(math, name)] = CALLS[getattr(np, name)] = by_name[name]
    CALLS.update({np.minimum: by_name["minimum"], np.maximum: by_name["maximum"]})
    CALLS.update({np.fmin: by_name["fmin"], np.fmax: by_name["fmax"], np.square: by_name["square"]})


_add_functions()
