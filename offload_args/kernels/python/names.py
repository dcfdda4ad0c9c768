"""The names in the source of a kernel: variables, outer objects, arrays, and aliases of parameters."""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import textwrap
from collections.abc import Callable, Hashable, Iterator
from types import FunctionType
from typing import Any, Final, NoReturn

import numpy as np

from ..._syntax import parse
from ...arguments import InOut, Out, Parameter
from ...display import nearest, shown
from ...dtypes import spelled
from ...errors import KernelError, SignatureError
from . import words
from .calls import CALLS, OF_REAL_NUMBERS, REMEDIES
from .definitions import OWN, Array, Written
from .trees import matched
from .weak import Weakness

__all__ = ["MISSING", "Names", "tree_of"]

MISSING: Final = object()


def tree_of(function: Callable[..., Any]) -> tuple[ast.FunctionDef, str, int]:
    """Return the tree of a function, with the line numbers of its file."""
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
    tree = parse(textwrap.dedent("".join(lines))).body[0]
    ast.increment_lineno(tree, first - 1)
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError(f"{file}:{first}: {function.__name__}: a kernel is a function that def begins")
    return tree, file, tree.lineno


class Names:
    """A function whose source is read: its variables, its outer names, and its aliases of parameters."""

    def __init__(self, function: FunctionType, own: frozenset[str] = frozenset()) -> None:
        """Read a function. `own`: the names in it that are the package's own."""
        tree, file, line = tree_of(function)
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
        for name in sorted(self.locals - own):
            if name.startswith("oa__"):
                self.refuse(tree, f"the name {name}", "names that begin with oa__ are the package's own: use another")
        self.loops: list[str] = []  # the kinds of the surrounding loops, "mine" or "plain"
        self.owned: dict[tuple[str, ...], Array] = {}  # {variables of a loop over mine(): the array}
        self.fresh = 0
        self.weak: Weakness
        self.aliases: dict[str, set[str]] = {}  # of a function of kernels: {variable: the parameters that it may be}
        self.structs: dict[str, np.dtype[Any]] = {}  # of a kernel: {parameter that is a struct: its dtype}

    @property
    def arrays(self) -> dict[str, Array]:
        return self.written.arrays

    def array_named(self, name: str) -> Array | None:
        return self.arrays.get(name) or self.written.shared.get(name)

    def refuse(self, node: ast.AST, construct: str, remedy: str) -> NoReturn:
        line = getattr(node, "lineno", self.written.line)
        raise KernelError(f"{self.written.file}:{line}: {self.written.name}: {construct}: {remedy}".replace(OWN, ""))

    def value_of(self, node: ast.expr) -> Any:
        """Return the object for which a name stands, as object_of does; for an IntEnum's member, NumPy's integer."""
        value = self.object_of(node)
        is_member = isinstance(value, int) and type(value) not in (int, bool)
        return np.asarray(int(value))[()] if is_member else value

    def object_of(self, node: ast.expr) -> Any:
        """Return the object for which a name, or a name with attributes, stands; MISSING for a variable."""
        if isinstance(node, ast.Name):
            if node.id in self.locals:
                return MISSING
            for place in (self.written.constants, self.cells, self.function.__globals__, vars(builtins)):
                if node.id in place:
                    return place[node.id]
            self.refuse(node, f"the name {node.id}", self._of_unknown(node.id))
        if isinstance(node, ast.Attribute):
            base = self.object_of(node.value) if isinstance(node.value, (ast.Name, ast.Attribute)) else MISSING
            if base is MISSING:
                return MISSING
            if base is words.here:
                base = words.Here
            try:
                return getattr(base, node.attr)
            except AttributeError:
                name = getattr(base, "__name__", shown(base))
                remedy = f"; write math.{node.attr}" if hasattr(math, node.attr) else nearest(node.attr, dir(base))
                self.refuse(node, ast.unparse(node), f"{name} has no {node.attr}{remedy}")
        return MISSING

    def _of_unknown(self, name: str) -> str:
        for title, function in ((f"math.{name}", getattr(math, name, None)), (f"np.{name}", getattr(np, name, None))):
            if isinstance(function, Hashable) and (function in CALLS or function in OF_REAL_NUMBERS):
                return f"nothing has it: write {title}"
            if isinstance(function, Hashable) and function in REMEDIES:
                return f"kernels do not have this function: {REMEDIES[function]}"
        near = nearest(name, [*self.written.constants, *self.cells, *self.function.__globals__, *self.locals])
        is_called = any(
            isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name
            for call in ast.walk(self.original)
        )
        how = "define it before the kernel"
        if is_called:
            how = f"before the kernel, define a function {name} that begins with @kernel.function"
        elif self.written.file.startswith("<elementwise"):  # its function has the parameters as annotations
            declared = self.function.__annotations__.values()
            kind = spelled(next(parameter.dtype for parameter in declared if isinstance(parameter, Parameter)).name)
            how = f"add a parameter, {name}=In[{kind}] for an array or {name}={kind} for a number, or define it before"
        elif self.written.file.startswith("<reduce"):
            how = f"add a parameter, such as {name}=np.float64, or define it before"
        elif name in ("cuda", "threadIdx", "blockIdx", "blockDim", "gridDim", "get_global_id"):
            written = [array for array in self.written.arrays.values() if array.direction in (Out, InOut)]
            owner = next((array.name for array in written), "y")
            how = f"for i in {owner}.mine() gives this thread's elements, and here.index() the thread's number"
            return f"nothing has it: {how}; from offload_args.kernels import here"
        return f"nothing has it: {how}{near}"

    def constant(self, node: ast.expr, value: Any) -> ast.expr:
        """Return the name of a constant with this value, which is fixed from now on."""
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
        """Note the number of subscripts of an array, or of a parameter of a function."""
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
        """Return the parameters for which a name may stand: the name itself, or the parameters assigned to it."""
        return ({name} & set(self.written.parameters)) | self.aliases.get(name, set())

    def find_aliases(self) -> None:
        """Find the variables of a function to which a parameter is assigned, because the parameter may be an array."""
        pairs = [
            (target.id, value)
            for node in ast.walk(self.original)
            if isinstance(node, ast.Assign)
            for pattern in node.targets
            for target, value in matched(pattern, node.value)
            if isinstance(target, ast.Name)
        ]
        for _ in pairs:  # each pass follows another name of a chain of assignments
            for target, value in pairs:
                for name in _names_in(value):
                    self.aliases.setdefault(target, set()).update(self.parameters_of(name))


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _names_in(value: ast.expr) -> Iterator[str]:
    """Yield the variables that an expression may return unchanged."""
    if isinstance(value, ast.Name):
        yield value.id
    elif isinstance(value, ast.IfExp):
        yield from _names_in(value.body)
        yield from _names_in(value.orelse)
