"""The source of a kernel in Python, which is read, checked, and rewritten for numba.

A kernel is checked as a tree, before any type is known. It may store only to elements that `mine()` gave it, and may
use only constructs that have a meaning on a device. A refusal names the file, the line, the construct and the remedy.
In the resulting tree, plain loops replace `for i in y.mine()`, and functions of rules.py, whose names begin with
`oa__`, replace the words of words.py.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, get_origin

import numpy as np

from ...arguments import In, InOut, Out, Parameter
from ...display import shown
from ...dtypes import code_of
from ...errors import KernelError, SignatureError
from ..shared_memory import SharedOf
from . import functions, words
from .barriers import check_barriers
from .calls import CALLS
from .definitions import FIRST_SHARED, Array, Function, SharedArray, Written
from .names import tree_of
from .statements import Statements
from .weak import Strengthened, Weakness

__all__ = ["function_of", "read_function", "read_kernel"]

_MOST_SHARED: Final = 48 * 1024  # the bytes that a kernel may declare on every GPU
_SHARED_ALIGNMENT: Final = 16


class _Reader(Statements):
    """Checks and rewrites a function, with the memory of its blocks."""

    def evaluated(self, node: ast.expr) -> Any:
        """Return the value of an expression whose value is the same for each launch."""
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

    def finish(self) -> Written:
        tree = self.original
        statements = self.without_shared(tree.body)
        parameters = set(self.written.parameters) | set(self.written.shared)
        arrays = set(self.arrays) | set(self.written.shared) if self.written.declared else parameters
        self.weak = Weakness(tree, self.locals - parameters, parameters, arrays, self.value_of)
        body = self.block(statements)
        first = ("oa__here",) if self.written.declared or self.written.takes_here else ()
        names = [ast.arg(name) for name in (*first, *self.written.parameters, *self.written.shared)]
        changing = {array.name for array in self.arrays.values() if array.direction is not In}
        check_barriers(body, frozenset(changing | set(self.written.shared)), self.refuse)
        strengthened = Strengthened(self.weak.mixed)
        body = [strengthened.visit(statement) for statement in body] if self.weak.mixed else body
        rewritten = ast.FunctionDef(tree.name, ast.arguments([], names, None, [], [], None, []), body, [], None, None)
        setattr(rewritten, "type_params", [])  # noqa: B010  Python 3.12 needs it, and 3.11 lacks it
        self.written.tree = ast.fix_missing_locations(ast.copy_location(rewritten, tree))
        return self.written


def read_function(function: Callable[..., Any]) -> Written:
    """Rewrite a function that kernels call, and return it. Raises KernelError."""
    tree_of(function)
    reader = _Reader(function)  # type: ignore[arg-type]
    reader.find_aliases()
    without_result = reader.without_result()  # finish() changes the tree, and its errors have better remedies
    written = reader.finish()
    reader.check_result(without_result)
    return written


def function_of(function: Callable[..., Any]) -> Function:
    """Return a function that kernels call. Its source is read when a kernel calls it."""
    return Function(function, read_function)


def _declared(reader: _Reader, names: dict[str, Any]) -> tuple[Any, ...]:
    function, written = reader.function, reader.written
    try:
        annotations = inspect.get_annotations(function, locals={**names, **reader.cells}, eval_str=True)
    except Exception as error:
        reader.refuse(reader.original, "its annotations", f"they can't be evaluated: {error}")
    for name in written.parameters:
        if name not in annotations:
            remedy = f"declare its type: {name}: In[np.float32] is an array, {name}: np.float32 a number"
            reader.refuse(reader.original, f"the parameter {name}", remedy)
        declared: Any = annotations[name]
        if (get_origin(declared) or declared) is np.ndarray:
            reader.refuse(
                reader.original, f"the parameter {name}", "np.ndarray says neither dtype nor direction: declare "
                f"{name}: In[np.float32] if the kernel reads it, or {name}: InOut[np.float32].by(Linear1D()) if it "
                "writes it, with Linear1D of kernels",
            )  # fmt: skip
    return tuple(annotations[name] for name in written.parameters)


def _has_fields(declared: Any) -> bool:
    return isinstance(declared, np.dtype) and declared.names is not None


def _check_fields(reader: _Reader, name: str, dtype: np.dtype[Any]) -> None:
    """Refuse an array of structs if a field is not a number. The signature refuses the types that devices lack."""
    for field, (kind, *_) in (dtype.fields or {}).items():
        if kind.names is not None or kind.subdtype is not None:
            reader.refuse(
                reader.original, f"the parameter {name}", f"the field {field} of its structs is "
                f"{'a struct' if kind.names is not None else f'a table, {kind}'}: make it several fields, or pass it "
                "as an array of its own",
            )  # fmt: skip


def _take_shared(reader: _Reader) -> None:
    """Remove the parameters of type Shared[dtype] from the parameters that a launch passes."""
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


def read_kernel(function: Callable[..., Any], names: dict[str, Any], own: frozenset[str] = frozenset()) -> Written:
    """Rewrite a kernel, and return it.

    names: the names around the kernel, for annotations that are texts. own: the package's own names in a kernel that
    the package itself wrote.

    Raises KernelError and SignatureError, without the frames of this package's reader: the message has the line.
    """
    try:
        return _rewritten(function, names, own)
    except (KernelError, SignatureError) as error:
        raise error.with_traceback(None) from error.__cause__


def _rewritten(function: Callable[..., Any], names: dict[str, Any], own: frozenset[str]) -> Written:
    tree_of(function)
    reader = _Reader(function, own)  # type: ignore[arg-type]
    written = reader.written
    written.declared = _declared(reader, names)
    _take_shared(reader)
    for i, (name, declared) in enumerate(zip(written.parameters, written.declared, strict=True)):
        if isinstance(declared, type) and declared in (In, Out, InOut):
            reader.refuse(reader.original, f"the parameter {name}", f"name the dtype of its elements: "
                          f"{declared.__name__}[np.float32]")  # fmt: skip
        if isinstance(declared, Parameter):
            _check_fields(reader, name, declared.dtype)
            written.arrays[name] = Array(name, i, declared.direction, declared.dtype, declared.partition)
        elif isinstance(declared, (type, np.dtype)):
            reader.structs |= {name: np.dtype(declared)} if _has_fields(declared) else {}
    reader.finish()
    mixed = {id(reader.root_of(array)) for array in written.arrays.values() if len(array.owners) > 1}
    for array in written.arrays.values():
        array.ordered = id(reader.root_of(array)) in mixed
    for array in written.arrays.values():
        if array.direction is not In and array.rank == 0:
            remedy = f"for i in {array.name}.mine(): ..., or declare In"
            reader.refuse(reader.original, f"{array.name} is {array.direction.__name__} and never written", remedy)
    return written


def _add_functions() -> None:
    by_name = {name: function_of(getattr(functions, name)) for name in functions.__all__}
    CALLS.update({math.floor: by_name["floor"], math.ceil: by_name["ceil"], math.trunc: by_name["trunc"]})
    CALLS.update({np.minimum: by_name["minimum"], np.maximum: by_name["maximum"]})
    CALLS.update({np.fmin: by_name["fmin"], np.fmax: by_name["fmax"], np.square: by_name["square"]})


_add_functions()
