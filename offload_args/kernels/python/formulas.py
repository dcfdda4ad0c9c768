"""Kernels of one line: `elementwise` makes a kernel of a formula for each element."""

from __future__ import annotations

import ast
import builtins
import copy
import linecache
import math
import sys
from collections.abc import Mapping, Set
from keyword import iskeyword
from typing import Any, Final

import numpy as np

from ..._signatures import telling
from ..._syntax import parse, parse_expression
from ...arguments import InOut, Out, Parameter
from ...display import shown
from ...dtypes import spelled
from ...errors import KernelError, SignatureError
from ...pointers import DevicePtr
from ..partitions import Linear1D
from .calls import CALLS
from .decorated import PythonKernel
from .definitions import OWN

__all__ = ["elementwise", "made_of"]

_BY_PAIRS: Final = ("Linear2D", "Rows", "RowBlocks", "Tiles")


def known_names() -> dict[str, Any]:
    """Return the names that formulas can use without an import: math, np, and the functions of kernels."""
    of_math = {function.__name__: function for function in CALLS if getattr(function, "__module__", "") == "math"}
    of_numpy = {function.__name__: function for function in CALLS if isinstance(function, np.ufunc)}
    return {**of_math, **of_numpy, "math": math, "np": np, "pi": math.pi}


def made_of(source: str, file: str, names: Mapping[str, Any]) -> Any:
    """Return the function that a source defines. `inspect` finds the source, and errors name the file."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    place = dict(names)
    tree = parse(source, file)
    exec(compile(tree, file, "exec"), place)
    name = tree.body[0].name  # type: ignore[attr-defined]
    function = place.pop(name)
    if name in names:  # a formula may use another object of this name
        place[name] = names[name]
    return function


class OwnNames(ast.NodeTransformer):
    """Makes the names of a text the package's own, and writes a formula's value in the place of VALUE."""

    def __init__(self, value: ast.expr | None = None) -> None:
        self.value = value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.value) if node.id == "VALUE" and self.value else ast.Name(OWN + node.id, node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(OWN + node.arg)


def own_names(expression: str) -> str:
    """Return an expression with names of the package's own."""
    return ast.unparse(OwnNames().visit(parse_expression(expression)))


class Subscripted(ast.NodeTransformer):
    """Writes x[i] for each array x of a formula."""

    def __init__(self, function: str, arrays: Mapping[str, str]) -> None:
        self.function = function
        self.arrays = arrays  #: {array: its index}
        self.stored: set[str] = set()
        self.used: set[str] = set()

    def visit_Name(self, node: ast.Name) -> ast.expr:
        self.used.add(node.id)
        if isinstance(node.ctx, ast.Store):
            self.stored.add(node.id)
        if node.id not in self.arrays:
            return node
        index = parse_expression(self.arrays[node.id])
        return ast.copy_location(ast.Subscript(node, index, node.ctx), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in self.arrays:
            raise KernelError(
                f"{self.function}: {ast.unparse(node)}: a formula has {node.value.id} without a subscript, for each "
                "element in turn; for other elements write a kernel, by @kernel"
            )
        self.generic_visit(node)
        return node


def parsed(function: str, formula: str) -> ast.Module:
    if not isinstance(formula, str):
        raise SignatureError(
            f"{function}: formula needs a string, such as {'y = exp(x)' if function == 'elementwise' else 'x * y'!r}, "
            f"got {shown(formula)}"
        )
    try:
        tree = parse("\n".join(part.strip() for part in formula.strip().split(";")))
    except SyntaxError as error:
        raise KernelError(f"{function}: {formula!r}: {error.msg}: write statements such as 'y = a * x + y'") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id.startswith("oa__"):
            remedy = "names that begin with oa__ are the package's own: use another"
            raise KernelError(f"{function}: {formula!r}: the name {node.id}: {remedy}")
    return tree


def renamed(used: Set[str], parameters: Mapping[str, Any], scope: Mapping[str, Any]) -> str:
    """Return the remedy for a parameter that a formula lacks. `used`: the formula's other names."""
    unknown = sorted(used - {*known_names(), *vars(builtins), *scope})
    if not unknown:
        return "leave it out"
    return f"the formula has {unknown[0]}, and the parameters are {', '.join(parameters)}: rename one of them"


def _is_read_first(tree: ast.Module, key: str) -> bool:
    """Return whether a formula reads an array's element before it assigns it, or as it does so."""
    for statement in tree.body:
        names = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == key]
        if any(isinstance(node.ctx, ast.Load) for node in names) or (names and isinstance(statement, ast.AugAssign)):
            return True
        if names:
            return False
    return False


def _declared(tree: ast.Module, key: str, parameters: Mapping[str, Any]) -> str:
    """Return the declaration of an array that a formula assigns, such as "y=InOut[np.float32]"."""
    kinds = [parameters[key]] if key in parameters else list(parameters.values())
    dtypes = []
    for kind in kinds:
        try:
            dtypes.append(np.dtype(kind.dtype if isinstance(kind, Parameter) else kind))
        except (AttributeError, TypeError):
            continue
    dtype = spelled(dtypes[0].name) if dtypes else "np.float32"
    return f"{key}={'InOut' if _is_read_first(tree, key) else 'Out'}[{dtype}]"


def _remedy(formula: str, tree: ast.Module, parameters: Mapping[str, Any]) -> str:
    """Return the remedy for a formula none of whose parameters is an array that is written."""
    stored = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    if stored:
        target = next((key for key in stored if key in parameters), stored[0])
        return _declared(tree, target, parameters)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | parameters.keys()
    result = next(name for name in ("z", "result", "oa_result") if name not in used)
    return f"write {f'{result} = {formula.strip()}'!r}, and declare {_declared(tree, result, parameters)}"


@telling
def elementwise(formula: str, /, *, name: str = "elementwise", **parameters: Any) -> PythonKernel:
    """Make a kernel of a formula for each element.

    formula: statements of a kernel in Python, such as "y = a * x + y", divided by ";". An array's name stands for its
    element, and a value's name stands for the value. Other names are variables of the thread, or numbers and functions
    from the scope of the call. `i` is the element's number. Functions of math and NumPy need no prefix, as in exp(x).
    name: the kernel's name, for errors and profilers.
    parameters: the type of each argument, in order: In[dtype], Out[dtype], InOut[dtype], or a value's NumPy type. All
        arrays have the same shape. They may be matrices if these have the same order and no gaps. With
        Out[dtype].by(Linear2D()), or another partition of rows and columns, they may be any matrices, and `i, j` are
        row and column.

        axpy = kernels.elementwise("y = a * x + y", a=np.float32, x=In[np.float32], y=InOut[np.float32])
        x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
        offload(axpy, 2.0, x, y)
        print(y)  # [1. 3. 5.]

    Raises KernelError for a formula that no kernel can have, and SignatureError for parameters that do not fit the
    formula.

    See also: kernel, kernels.reduce, offload, launch; docs/guide/python-kernels.md.
    """
    from .source import read_kernel

    frame = sys._getframe(2)  # 1 is the frame of `telling`
    written = {
        key: parameter if parameter.partition is not None else parameter.by(Linear1D())
        for key, parameter in parameters.items()
        if isinstance(parameter, Parameter) and parameter.direction in (Out, InOut)
    }
    if not isinstance(name, str) or not name.isidentifier() or iskeyword(name):
        remedy = "" if isinstance(name, str) else ": an array or a number of the formula needs another name"
        raise SignatureError(f"elementwise: name needs a name as in Python, such as 'axpy', got {shown(name)}{remedy}")
    for key, parameter in parameters.items():
        is_array = isinstance(parameter, (np.ndarray, np.generic, DevicePtr))
        is_value = parameter is None or isinstance(parameter, (str, bytes, int, float, complex, list, tuple, dict))
        if is_array or (is_value and not isinstance(parameter, Parameter)):
            got = f"{shown(parameter)}, which is for offload" if is_array else shown(parameter)
            raise SignatureError(
                f"elementwise: {key} needs a type, such as In[np.float64] or Out[np.float64] for an array, np.float64 "
                f"for a number; got {got}"
            )
    if not written:
        tree = parsed("elementwise", formula)
        remedy = _remedy(formula, tree, parameters)
        raise SignatureError(f"elementwise: {formula!r} needs an array that it writes: {remedy}")
    owner = next(iter(written))
    by_pairs = type(written[owner].partition).__name__ in _BY_PAIRS
    index = "i, j" if by_pairs else "i"
    arrays = {key: index for key, parameter in parameters.items() if isinstance(parameter, Parameter)}
    for key in parameters:
        if key in ("i", "j"):
            raise SignatureError(f"elementwise: the parameter {key}: it is an index of the element: use another name")
    tree = parsed("elementwise", formula)
    reader = Subscripted("elementwise", arrays)
    body = [ast.unparse(ast.fix_missing_locations(reader.visit(statement))) for statement in tree.body]
    for key in parameters:
        if key not in reader.used:
            others = reader.used - reader.stored - {*parameters, *index.split(", ")}
            remedy = renamed(others, parameters, {**frame.f_globals, **frame.f_locals})
            if key in written and len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
                remedy = f"write {f'{key} = {formula}'!r}"
            raise SignatureError(f"elementwise: {formula!r} does not use the parameter {key}: {remedy}")
    for key in sorted(reader.stored & parameters.keys()):
        if key not in written:
            raise SignatureError(f"elementwise: {formula!r} assigns {key}: declare {_declared(tree, key, parameters)}")
    lines = [f"def {name}({', '.join(parameters)}):", f"    for {index} in {owner}.mine():"]
    lines += [f"        {line}" for statement in body for line in statement.splitlines()]
    names = {**known_names(), **frame.f_globals, **frame.f_locals}
    function = made_of("\n".join([*lines, ""]), f"<elementwise {formula!r}>", names)
    function.__annotations__ = {**parameters, **written}
    rewritten = read_kernel(function, {})
    number = rewritten.arrays[owner].number
    for array in rewritten.arrays.values():
        if array.number != number and array.like < 0:
            array.like = number
    return PythonKernel._of(rewritten, False)  # without checks, because all indices are in bounds
