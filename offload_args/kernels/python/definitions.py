"""The records of kernels in Python and of their functions: the rewritten tree, its arrays and its constants."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import numpy as np

from ...errors import KernelError
from ..partitions import Partition

__all__ = ["FIRST_SHARED", "OWN", "Array", "Function", "SharedArray", "Written"]

FIRST_SHARED: Final = -16  #: the first shared array has this number in place of an argument's number, the next one -17
OWN: Final = "oa__own_"  #: the prefix of names of kernels that the package writes; no formula can have such names
_reading: Final = threading.RLock()  # one thread at a time reads functions
_BY_ELEMENTS: Final = frozenset({"Linear1D", "GridStride1D", "PerBlock"})


class Function:
    """A function that kernels call, by @kernel.function. It computes values, and does not store to arrays."""

    def __init__(self, function: Callable[..., Any], read: Callable[[Callable[..., Any]], Written]) -> None:
        self.function, self._read = function, read
        self.__name__ = getattr(function, "__name__", "function")
        self.__doc__ = function.__doc__
        self.__wrapped__ = function
        self._written: Written | None = None
        self._reader = 0  # the thread that reads its source

    @property
    def is_read(self) -> bool:
        """Whether this thread reads its source; a call of it in this time is a recursion."""
        return self._reader == threading.get_ident()

    @property
    def written(self) -> Written:
        with _reading:
            if self._written is None:
                self._reader = threading.get_ident()
                try:
                    self._written = self._read(self.function)
                finally:
                    self._reader = 0
            return self._written

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the function in Python."""
        return self.function(*arguments, **keywords)

    def __repr__(self) -> str:
        return f"<{self.__name__} of kernels>"

    def __reduce__(self) -> tuple[Callable[..., Function], tuple[Written, str | None]]:
        return _function_again, (self.written, self.__doc__)

    def __copy__(self) -> Function:
        return self

    def __deepcopy__(self, memo: object) -> Function:
        return self


def _function_again(written: Written, doc: str | None) -> Function:
    """Return a function that came by pickle: kernels can call it, and Python can't, because only its tree came."""

    def function(*_: Any) -> NoReturn:
        raise KernelError(
            f"{written.file}:{written.line}: {written.name}: the function came by pickle, for kernels only: import its "
            "module, to call it in Python"
        )

    function.__name__, function.__doc__ = written.name, doc
    return Function(function, lambda _: written)


@dataclass
class Array:
    """An array among the parameters of a kernel."""

    name: str
    number: int  #: the parameter's number, from 0
    direction: type[Any]
    dtype: np.dtype[Any]
    partition: Partition | None
    rank: int = 0  #: the number of subscripts that the kernel uses; 0 if it uses none
    like: int = -1  #: the parameter whose shape this array has to have; -1 if there is none
    #: whether it also needs that parameter's order, because one array is indexed by several arrays' mine()
    ordered: bool = False
    owners: set[str] = field(default_factory=set)  #: the arrays whose mine() gave this array's indices

    @property
    def by_elements(self) -> bool:
        return type(self.partition).__name__ in _BY_ELEMENTS


@dataclass
class SharedArray(Array):
    """An array in the shared memory of a block."""

    shape: tuple[int, ...] | None = None  #: None if the launch determines the number of elements
    offset: int = 0  #: bytes from the start of the memory that the kernel declares


@dataclass
class Written:
    """A kernel, or a function that kernels call, with its rewritten tree."""

    name: str
    file: str
    line: int
    tree: ast.FunctionDef
    parameters: tuple[str, ...]
    declared: tuple[Any, ...] = ()  #: the type of each parameter of a kernel
    arrays: dict[str, Array] = field(default_factory=dict)  #: the arrays of a kernel, by parameter
    shared: dict[str, SharedArray] = field(default_factory=dict)  #: the shared arrays of a kernel's blocks
    shared_bytes: int = 0  #: the bytes that the kernel itself declares
    has_barriers: bool = False
    by_phases: bool = True  #: whether a CPU may run the kernel in phases, as phases.py does
    fma: bool = False  #: whether a product and a sum may become one operation, which rounds once
    takes_here: bool = False  #: whether a function gets its thread, for asserts
    constants: dict[str, Any] = field(default_factory=dict)  #: values to which the tree refers
    functions: dict[str, Function] = field(default_factory=dict)  #: functions to which the tree refers
    ranks: dict[str, int] = field(default_factory=dict)  #: {parameter of a function: the number of its subscripts}

    def identity(self) -> str:
        """Return a text that identifies the code: the tree, its constants and the functions that it calls."""
        values = [f"{name}={type(value).__name__}:{value!r}" for name, value in sorted(self.constants.items())]
        called = [f"{name}={function.written.identity()}" for name, function in sorted(self.functions.items())]
        shared = [f"{array.name}: {array.dtype} {array.shape} {array.offset}" for array in self.shared.values()]
        return "\n".join([ast.dump(self.tree), str(self.by_phases), str(self.fma), *values, *called, *shared])
