"""`@kernel`: a typed function as a Kernel, compiled for each kind of device at its first launch there."""

from __future__ import annotations

import importlib.metadata
import math
import os
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, Self, overload

import numpy as np

from ... import _core
from ..._operands import need_bool, need_function, need_path
from ..._signatures import telling
from ...arguments import InOut
from ...cache import find, key_of, store
from ...devices import Device
from ...errors import ArgumentError, LibraryError, OffloadWarning, SignatureError, WrongDeviceError
from ..binary import Image, read
from ..compilers import VENDORS, Target, named_target, target_of
from ..dependencies import processor
from ..kernel_type import Kernel, Shape
from ..loaded import Loaded
from ..pickled import pickled
from .definitions import OWN

if TYPE_CHECKING:
    from .definitions import Function, Written

__all__ = ["PythonKernel", "kernel"]

_TRIED: Final = ("0.68",)  # the versions of numba that were tried
_FORMAT: Final = "kernel in Python, 1"
_said: Final[list[str]] = []  # versions about which a warning was given


def _versions() -> tuple[str, str]:
    """Return the versions of numba and llvmlite. Raises LibraryError if they are not installed."""
    try:
        versions = importlib.metadata.version("numba"), importlib.metadata.version("llvmlite")
    except importlib.metadata.PackageNotFoundError:
        raise LibraryError(
            "kernels in Python need numba, which is not installed: pip install 'offload-args[kernels]', or "
            "pip install '.[kernels]' in a checkout"
        ) from None
    if versions[0].rpartition(".")[0] not in _TRIED and versions[0] not in _said:
        _said.append(versions[0])
        warnings.warn(
            f"offload_args: kernels in Python were tried with numba {', '.join(_TRIED)}, not with {versions[0]}",
            OffloadWarning,
            stacklevel=2,
        )
    return versions


@cache
def _own_code() -> str:
    """Return a mark that changes with the code of this package, which compiles kernels."""
    folder = Path(__file__).parent
    return key_of(*(path.read_bytes() for path in sorted(folder.glob("*.py"))))


def _symbol(name: str) -> str:
    """Return the name that a kernel has in its module."""
    return name if re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) else f"kernel_{name.encode().hex()}"


def _is_broadcast(shape: tuple[int, ...], others: tuple[int, ...]) -> bool:
    """Return whether NumPy broadcasts a shape to another one."""
    pairs = zip(reversed(shape), reversed(others), strict=False)
    return len(shape) <= len(others) and all(extent in (1, other) for extent, other in pairs)


def _is_turned(pointer: Any) -> bool:
    """Return whether a matrix has Fortran order, in which the elements of a column are side by side."""
    down, across = pointer.strides[:2]
    return bool(down < across)


class PythonSource(Loaded):
    """A kernel in Python as a module, which is compiled for each kind of device."""

    def __init__(self, written: Written, checked: bool) -> None:
        super().__init__(None)
        self._written, self._checked = written, checked
        self._images: dict[Target, Image] = {}

    @property
    def name(self) -> str:
        return self._written.name

    @property
    def image(self) -> Image:
        return self.compiled(target_of(Device.default()))

    def suits(self, device: Device) -> bool:
        return device._info.backend in VENDORS or bool(device._info.flags & _core.OA_DEVICE_HOST_CALLS)

    def default_device(self) -> Device:
        return Device.default()

    def image_for(self, device: Device) -> Image:
        if not self.suits(device):
            raise WrongDeviceError(f"{self.name}: kernels in Python are not compiled for {device}")
        return self.compiled(target_of(device))

    def compiled(self, target: Target) -> Image:
        """Return the module for a target. If the cache has it, nothing is compiled."""
        image = self._images.get(target)
        if image is None:
            symbol = _symbol(self.name)
            image = read(self.name, self._bytes(target, symbol))
            if symbol != self.name:
                image = replace(image, symbols={self.name: symbol})
            self._images[target] = image
        return image

    def _bytes(self, target: Target, symbol: str) -> bytes:
        written = self._written
        arrays = [
            repr((array.number, str(array.dtype), array.partition, array.rank)) for array in written.arrays.values()
        ]
        declared = [str(parameter) for parameter in written.declared]
        machine = processor() if target.backend not in VENDORS else ""
        key = key_of(
            _FORMAT, *_versions(), sys.version, _own_code(), *target, machine, str(self._checked), symbol,
            written.identity(), *arrays, *declared,
        )  # fmt: skip
        kept = find(key)
        if kept is not None and kept[:64] == key_of(kept[64:]).encode():
            return kept[64:]
        from .emit import compile_kernel  # imports numba

        code = compile_kernel(written, target, self._checked, symbol)
        store(key, key_of(code).encode() + code)
        return code


@telling
class PythonKernel(Kernel):
    """Launch a kernel that @kernel made from a function. Unlike other kernels, it also gets the shapes of its arrays.

        def fill(y: Out[np.float32].by(kernels.Linear1D())):
            for i in y.mine():
                y[i] = i

        filling = kernel(fill)
        print(isinstance(filling, kernels.PythonKernel), filling.signature)  # True ('Out[float32].by(Linear1D())',)

    A call raises the errors of Kernel. It also raises KernelError, with the file, the line and the remedy, for a kernel
    that can't be compiled, ArgumentError for an array whose shape the kernel does not take, and LibraryError without
    numba.

    See also: Kernel, kernel; docs/guide/python-kernels.md.
    """

    __slots__ = ("_shapes", "_source", "_written")

    _written: Written
    _source: PythonSource
    _shapes: tuple[Shape, ...]

    @classmethod
    def _of(cls, written: Written, debug: bool | None) -> Self:
        shapes = tuple(Shape(array.number, array.rank, array.like, array.ordered) for array in written.arrays.values())
        plain, checked = PythonSource(written, False), PythonSource(written, True)
        instance = cls._named(plain, written, written.declared, shapes)
        if debug is not False:  # CPUs get the address of the record, and GPUs get the record itself
            with_record = [
                cls._named(checked, written, (*written.declared, last), shapes) for last in (np.uint64, InOut[np.uint8])
            ]
            instance._checked, instance._always_checked = (with_record[0], with_record[1]), bool(debug)
        return instance

    @classmethod
    def _named(
        cls, source: PythonSource, written: Written, signature: tuple[Any, ...], shapes: tuple[Shape, ...]
    ) -> Self:
        try:
            instance = cls(source, written.name, signature, None, shapes)
        except SignatureError as error:
            raise SignatureError(f"{written.file}:{written.line}: {error}") from None
        named = zip(instance._formals, written.parameters, strict=False)
        names = [f"{formal.name} ({parameter.removeprefix(OWN)})" for formal, parameter in named]
        instance._formals = tuple(
            replace(formal, name=name) for formal, name in zip(instance._formals, [*names, "the record"], strict=False)
        )
        instance._written, instance._source, instance._shapes = written, source, shapes
        return instance

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        debug = False if self._checked is None else self._always_checked or None
        return pickled(PythonKernel._of, self._written, debug)

    def save(self, path: str | os.PathLike[str], *, target: str | None = None) -> None:
        """Write the module to a file, from which Module.load reads it: PTX, an HSACO or a shared object.

        target: a processor such as "sm_90" or "gfx90a", which this machine need not have; None stands for the processor
        of the default device. The file's kernel takes four further arguments of int64 for each array: two extents, and
        the steps along these extents in elements.

        Raises KernelError, LibraryError without numba, and OSError if the file can't be written.

            @kernel
            def fill(y: Out[np.float32].by(kernels.Linear1D())):
                for i in y.mine():
                    y[i] = i

            fill.save("fill.ptx", target="sm_90")
            print(os.path.exists("fill.ptx"))  # True

        See also: Module.load, Kernel.save; docs/guide/python-kernels.md.
        """
        file = need_path("PythonKernel.save", "path", path)
        on = target_of(Device.default()) if target is None else named_target(target)
        data = self._source.compiled(on).data
        with open(file, "wb") as out:
            out.write(data)

    def _named_in_messages(self, argument: int) -> str:
        for array in self._written.shared.values():
            if array.number == argument:
                return f"the shared array {array.name}"
        return super()._named_in_messages(argument)

    def _shape_of(self, argument: int, pointer: Any) -> tuple[int, ...]:
        return tuple(pointer.shape[: self._formals[argument].dimensions_of(pointer)])

    def _unshaped(self, arguments: tuple[Any, ...]) -> NoReturn:
        """Refuse arrays whose shapes the kernel does not take."""
        counted: list[tuple[str, Any]] = []
        for argument, rank, like, ordered in self._shapes:
            name, array = self._formals[argument].name, arguments[argument]
            subject = f"{self.name}: {name}"
            parameter = self._written.parameters[argument]
            shape = self._shape_of(argument, array)
            if rank == 2 and len(shape) != 2:
                raise ArgumentError(
                    f"{subject} needs a matrix, as the kernel uses {parameter}[i, j]; got shape {shape}: lend it "
                    "as x.reshape(rows, columns)"
                )
            if like >= 0 and shape != (others := self._shape_of(like, arguments[like])):
                other, own = self._formals[like].name, self._formals[argument].own_name or "x"
                remedy = "sizes must agree: lend arrays of one shape"
                if math.prod(shape) == math.prod(others):
                    remedy = f"nothing is reshaped: lend {own}.reshape({others})"
                elif _is_broadcast(shape, others):
                    remedy = f"nothing is broadcast: lend np.broadcast_to({own}, {others}).copy()"
                gives = "" if self._written.file.startswith("<elementwise ") else ", whose mine() gives its indices"
                raise ArgumentError(f"{subject} needs the shape of {other}{gives}: {others}; got {shape}: {remedy}")
            if like >= 0 and ordered and rank == 2 and _is_turned(array) != _is_turned(arguments[like]):
                raise ArgumentError(
                    f"{subject} needs the order of {self._formals[like].name}, C or Fortran, as the kernel stores to "
                    "one of them by the indices of both: pass arrays of the same order"
                )
            if rank != 2 and len(shape) != 1:
                counted.append((name, array))
        listed = ", ".join(f"{name} of shape {item.shape} and strides {item.strides}" for name, item in counted)
        raise ArgumentError(
            f"{self.name}: the kernel counts elements in the order of memory, which has to be one order without gaps "
            f"for all its arrays; got {listed}: pass contiguous arrays of the same order"
        )


def _kernel(
    function: Callable[..., Any] | None = None, /, *, debug: bool | None = None, fma: bool = False
) -> PythonKernel | Callable[[Callable[..., Any]], PythonKernel]:
    """Make a kernel of a typed function: it is compiled at its first launch on each kind of device.

    Parameters are declared by annotations. An array is `In[dtype]`, `Out[dtype].by(partition)` or
    `InOut[dtype].by(partition)`; a value has a NumPy type. A thread gets its elements from `y.mine()`.

    function: the typed function; with None, a decorator is returned.
    debug: whether each access to an In, and each assert, is checked; launches then wait, and raise ExtentError or
    AssertionError. With None, they are checked on host and sim; with True, on GPUs, too; with False, nowhere, for full
    speed.
    fma: whether a product and a sum may become one operation, a fused multiply-add, which rounds once. This is faster,
    but devices may then compute different last bits.

        @kernel(debug=True)
        def axpy(a: np.float32, x: In[np.float32], y: InOut[np.float32].by(kernels.Linear1D())):
            for i in y.mine():
                y[i] += a * x[i]

        x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
        offload(axpy, 2.0, x, y)
        print(y)  # [1. 3. 5.]

    Raises SignatureError or KernelError with the file, the line and the remedy.

    See also: launch, offload, Kernel; docs/guide/python-kernels.md.
    """
    from .source import read_kernel

    if debug is not None:
        need_bool("kernel", "debug", debug)
    need_bool("kernel", "fma", fma)
    names = dict(sys._getframe(2).f_locals)  # 1 is the frame of `telling`

    def read(function: Callable[..., Any]) -> PythonKernel:
        return PythonKernel._of(replace(read_kernel(function, names), fma=bool(fma)), debug)

    return read if function is None else read(function)


def _function(function: Callable[..., Any], /) -> Function:
    """Make a function that kernels call. It computes values from its arguments, and does not store to arrays."""
    from .source import function_of

    need_function("kernel.function", "function", function)
    return function_of(function)


if TYPE_CHECKING:

    class _Decorator(Protocol):  # shows type checkers that `kernel` has the attribute `function`
        @overload
        def __call__(self, function: Callable[..., Any], /) -> PythonKernel: ...
        @overload
        def __call__(
            self, /, *, debug: bool | None = None, fma: bool = False
        ) -> Callable[[Callable[..., Any]], PythonKernel]: ...
        def function(self, function: Callable[..., Any], /) -> Function: ...

    kernel: _Decorator
else:
    _kernel.__name__ = _kernel.__qualname__ = "kernel"
    _function.__name__, _function.__qualname__ = "function", "kernel.function"
    kernel = telling(_kernel)
    kernel.function = telling(_function)
