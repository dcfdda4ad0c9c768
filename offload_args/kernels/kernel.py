"""Kernels with their signatures, and launches of them."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, Protocol, Self, final

import numpy as np

from .. import _core
from .._core import call
from ..arguments import In, InOut, Out
from ..devices import Device, as_device
from ..display import shown
from ..errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    HostPointerError,
    ModuleError,
)
from ..pointers import DevicePtr, _values
from ..regions import _stream_handle
from .debug import OPTION, DebugLauncher, with_record
from .facts import KernelFacts
from .loaded import Loaded, Source
from .partitions import Geometry, check, good_block, needed_grid
from .signature import Formal, formals_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = ["Kernel", "KernelInfo", "Shared", "launch", "offload", "offload_unsafe"]

Sizes = int | tuple[int, ...]
_MOST: Final = 2**32 - 1
_MOST_DEPTH: Final = 16  # of objects in each other


class KernelInfo(NamedTuple):
    """Describe a kernel on one device. Shared memory is in bytes of one block."""

    most_grid: tuple[int, int, int]  #: blocks along x, y, z
    most_block: tuple[int, int, int]  #: threads of a block along x, y, z
    most_threads: int  #: of a block of this kernel
    good_threads: int  #: of a block: as many as fill the device best
    registers: int  #: of a thread; -1: not known
    multiprocessors: int
    cooperative: bool
    clusters: bool
    fixed_shared_bytes: int  #: that the kernel itself declares
    most_shared_bytes: int  #: that a launch may ask for


@final
class Shared:
    """Ask for dynamic shared memory of a block by elements: `Shared[np.float32](256)` or `Shared(256, np.float32)`."""

    __slots__ = ("dtype", "nbytes", "size")

    def __init__(self, size: int, dtype: DTypeLike = np.uint8) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        try:
            self.size = _whole(size)
        except TypeError:
            raise ArgumentTypeError(f"Shared: size needs a whole number of elements, got {shown(size)}") from None
        if self.dtype.itemsize == 0 or self.dtype.hasobject:
            raise ArgumentError(f"Shared: needs elements that devices can hold, got {self.dtype}")
        most = _MOST // self.dtype.itemsize
        if not 0 <= self.size <= most:
            raise ArgumentError(f"Shared: size needs 0 to {most} elements of {self.dtype}, got {shown(size)}")
        self.nbytes = self.size * self.dtype.itemsize

    def __class_getitem__(cls, dtype: DTypeLike) -> _SharedOf:
        return _SharedOf(np.dtype(dtype))

    def __repr__(self) -> str:
        return f"Shared[{self.dtype}]({self.size})"


class _SharedOf(NamedTuple):
    dtype: np.dtype[Any]

    def __call__(self, size: int) -> Shared:
        return Shared(size, self.dtype)


class Kernel(_core.Kernel):
    """Launch a kernel: `vadd[grid, block](da, db, dc, n)` in a region, or `offload(vadd, a, b, c, n)` without one.

    grid and block are numbers, or tuples of up to three, along x, y, z. A third item is the shared memory, in bytes or
    as Shared[dtype](size); a fourth is a stream. Made by Module.kernel.

    A call raises HostPointerError, DTypeError, SizeOverflowError, StalePointerError, WrongDeviceError, DirectionError,
    AliasError and ArgumentError before anything moves.
    """

    __slots__ = ("_formals", "_infos", "_loaded", "_own", "facts")

    facts: KernelFacts | None  #: what the module says of it; None: nothing
    _formals: tuple[Formal, ...]
    _own: tuple[Formal, ...]  #: those that callers pass
    _loaded: Loaded
    _infos: dict[int, KernelInfo]

    def __new__(cls, loaded: Loaded, name: str, signature: Sequence[object]) -> Self:
        facts = loaded.image.kernels.get(name)
        formals = formals_of(name, signature, facts)
        partitions = tuple((i, *one.partition.along()) for i, one in enumerate(formals) if one.partition is not None)
        self = super().__new__(cls, name, tuple(formal.row for formal in formals), partitions)
        self.facts = facts
        self._formals, self._own, self._loaded, self._infos = formals, formals, loaded, {}
        return self

    @classmethod
    def compile(
        cls,
        source: str,
        name: str,
        signature: Sequence[object],
        *,
        options: Sequence[str] = (),
        device: Device | str | None = None,
        debug: bool = False,
    ) -> Kernel:
        """Return a kernel of C++ source: NVRTC compiles it for NVIDIA GPUs, the C++ compiler for host and sim.

        source: its text; `#include <offload_args/kernel.h>` has the macros with which one source suits all devices.
        signature: as for Module.kernel. options: for the compiler. device: the kind to compile for now; None: the
        default one. Others compile at their first launch. Results are kept in a cache (OFFLOAD_ARGS_CACHE=off: none).
        debug: check each access of the kernel's arrays; launches wait, and raise ExtentError for one out of bounds.

        Raises ModuleError with the compiler's log, LibraryError without a compiler, SignatureError.
        """
        for what, given in (("source", source), ("name", name)):
            if not isinstance(given, str):
                raise ArgumentTypeError(f"Kernel.compile: {what} needs a string, got {type(given).__name__}")
            try:
                given.encode()
            except UnicodeEncodeError as error:
                found = f"{given[error.start]!r} at index {error.start}"
                raise ArgumentError(
                    f"Kernel.compile: {what} has {found}, half of a character; decode it anew"
                ) from None
        if isinstance(options, str):
            raise ArgumentTypeError(f"Kernel.compile: options needs a list of strings, got the string {options!r}")
        on = Device.default() if device is None else as_device(device)
        loaded = Source(name, source, options, on)
        if name not in loaded.image.kernels:
            listed = ", ".join(loaded.image.kernels) or "none"
            raise ModuleError(f"Kernel.compile: the source has no kernel {name!r}; it has {listed}")
        made = cls(loaded, name, signature)
        if not debug:
            return made
        with_bounds = Source(name, with_record(source, name, len(signature)), (*options, OPTION), on)
        return DebugKernel(with_bounds, name, signature)

    @property
    def signature(self) -> tuple[str, ...]:
        """The parameters as text: ("In[float32]", "int32")."""
        return tuple(formal.text for formal in self._own)

    def info(self, device: Device | str) -> KernelInfo:
        """Return the kernel's limits on a device; loads its module there."""
        number = as_device(device).number
        if number not in self._infos:
            self._load(number)
        return self._infos[number]

    def __repr__(self) -> str:
        return f"Kernel({self.name}({', '.join(self.signature)}), from {self._loaded.image.name})"

    # -- for the extension: what it does not do itself ----------------------------------------------------------------

    def _load(self, device: int) -> int:
        """Return the handle of the kernel on a device."""
        handle = _core.kernel_get(self._loaded.handle(device), self, tuple(formal.name for formal in self._formals))
        self._infos[device] = KernelInfo._make(_core.kernel_info(handle))
        return handle

    def _configure(self, key: object) -> _core.Launcher:
        """Return the launcher of kernel[key]."""
        if not isinstance(key, tuple) or not 2 <= len(key) <= 4:
            raise ArgumentError(f"{self.name}: needs [grid, block], [grid, block, shared_bytes] or these and a stream")
        shared_bytes = key[2] if len(key) > 2 else 0
        return self._launcher(key[0], key[1], shared_bytes, key[3] if len(key) > 3 else None, False, None)

    def _launcher(
        self,
        grid: object,
        block: object,
        shared_bytes: object,
        stream: object,
        cooperative: bool,
        cluster: object,
        unsafe: bool = False,
    ) -> _core.Launcher:
        return _core.launcher(
            self,
            self._sizes("grid", grid),
            self._sizes("block", block),
            self._shared_bytes(shared_bytes),
            None if stream is None else _stream_handle(stream),
            cooperative,
            (0, 0, 0) if cluster is None else self._sizes("cluster", cluster),
            unsafe,
        )

    def _sizes(self, what: str, given: object) -> tuple[int, int, int]:
        is_vector = isinstance(given, np.ndarray) and given.ndim == 1
        several = is_vector or (isinstance(given, Sequence) and not isinstance(given, (str, bytes)))
        items: Any = given if several else (given,)
        try:
            sizes = [_whole(item) for item in items]
        except TypeError:
            raise ArgumentTypeError(f"{self.name}: {what} needs whole numbers, got {shown(given)}") from None
        if not 1 <= len(sizes) <= 3 or not all(1 <= size <= _MOST for size in sizes):
            raise ArgumentError(f"{self.name}: {what} needs 1 to 3 numbers from 1 to {_MOST}, got {shown(given)}")
        x, y, z = (*sizes, 1, 1)[:3]
        return x, y, z

    def _shared_bytes(self, given: object) -> int:
        try:
            nbytes = given.nbytes if isinstance(given, Shared) else _whole(given)
        except TypeError:
            raise ArgumentTypeError(
                f"{self.name}: shared_bytes needs a number of bytes or Shared[dtype](size), got {shown(given)}"
            ) from None
        if not 0 <= nbytes <= _MOST:
            raise ArgumentError(f"{self.name}: shared_bytes needs 0 to {_MOST} bytes, got {shown(given)}")
        return nbytes

    def _value(self, i: int, given: object) -> bytes:
        """Return the bytes of a value of any type."""
        formal = self._formals[i]
        dtype = formal.dtype
        assert dtype is not None
        what = f"{self.name}: {formal.name}"
        if isinstance(given, (DevicePtr, np.ndarray)):
            raise DTypeError(f"{what} needs one {dtype} by value, got {_kind(given)}")
        return np.array(_filled(what, dtype, given), dtype).tobytes()

    def _pointer(self, i: int, given: object) -> NoReturn:
        """Refuse an argument that is not a pointer to the right elements."""
        formal = self._formals[i]
        what = f"{self.name}: {formal.name} needs a device pointer to {formal.dtype or 'elements'}"
        if isinstance(given, DevicePtr):
            raise DTypeError(f"{what}, got a pointer to {given.dtype}")
        if isinstance(given, np.ndarray):
            raise HostPointerError(f"{what}, got a host array; lend it in a region, or use offload({self.name}, ...)")
        raise HostPointerError(f"{what}, got {_kind(given)}; lend an array in a region")

    def _uncovered(self, launcher: _core.Launcher, arguments: tuple[Any, ...]) -> None:
        """Refuse a grid that leaves elements without an owner."""
        grid, block, _ = launcher._shape
        for formal, given in zip(self._formals, arguments, strict=True):
            if formal.partition is not None:
                check(
                    f"{self.name}: {formal.name}", formal.partition, Geometry(given.shape, given.strides), grid, block
                )

    def _misfit(self, arguments: tuple[object, ...], keywords: dict[str, object] | None = None) -> NoReturn:
        if keywords:
            raise ArgumentTypeError(f"{self.name}: takes no keyword arguments, got {', '.join(keywords)}")
        raise ArgumentTypeError(
            f"{self.name}: needs {len(self._own)} arguments ({', '.join(self.signature)}), got {len(arguments)}"
        )


@final
class DebugKernel(Kernel):
    """Launch a kernel that checks each access, and wait for it. Made by Kernel.compile with debug=True.

    A call raises ExtentError if the kernel reads or writes an element that an array, a slice or shared memory does not
    have; the text names the thread, the argument and the index. No such element is touched.
    """

    __slots__ = ()

    def __new__(cls, loaded: Loaded, name: str, signature: Sequence[object]) -> Self:
        self = super().__new__(cls, loaded, name, (*signature, InOut[np.uint8]))
        self._own = self._formals[:-1]
        return self

    def __getitem__(self, key: Any) -> Any:
        made = super().__getitem__(key)
        return made if isinstance(made, DebugLauncher) else DebugLauncher(self, made)

    def _launcher(self, *shape: Any) -> Any:
        return DebugLauncher(self, super()._launcher(*shape))


def _whole(given: Any) -> int:
    """Return a whole number; raise TypeError for all else, True and False among it."""
    if isinstance(given, (bool, np.bool_)):
        raise TypeError
    return operator.index(given)


def _filled(what: str, dtype: np.dtype[Any], given: Any) -> Any:
    """Return a value as NumPy takes it for a dtype, each number in it checked: NumPy itself would cut 1.5 to 1."""
    if dtype.subdtype is not None:
        return _filled_array(what, *dtype.subdtype, given)
    if dtype.names is None:
        if isinstance(given, np.generic):
            given = given.item()
        if not isinstance(given, (bool, int, float, complex)):
            raise DTypeError(f"{what} needs one {dtype}, got {_kind(given)}")
        return _values(what, given, dtype)
    if isinstance(given, np.void) and given.dtype == dtype:
        return given
    if not isinstance(given, tuple) or len(given) != len(dtype.names):
        got = f"a tuple of {len(given)}" if isinstance(given, tuple) else _kind(given)
        raise DTypeError(f"{what} needs a tuple of {len(dtype.names)} values or a NumPy scalar of {dtype}, got {got}")
    return tuple(_filled(f"{what}.{name}", dtype[name], one) for name, one in zip(dtype.names, given, strict=True))


def _filled_array(what: str, dtype: np.dtype[Any], shape: tuple[int, ...], given: Any) -> Any:
    """Return the values of an array in a struct as nested lists."""
    if not shape:
        return _filled(what, dtype, given)
    is_list = isinstance(given, (tuple, list)) or (isinstance(given, np.ndarray) and given.ndim > 0)
    if not is_list or len(given) != shape[0]:
        got = f"{len(given)}" if is_list else _kind(given)
        raise DTypeError(f"{what} needs a tuple or list of {shape[0]} values, got {got}")
    return [_filled_array(f"{what}[{i}]", dtype, shape[1:], one) for i, one in enumerate(given)]


def _kind(given: object) -> str:
    if isinstance(given, DevicePtr):
        return f"a pointer to {given.dtype}"
    if isinstance(given, np.ndarray):
        return f"an array of {given.dtype}"
    return (
        f"{type(given).__name__} {shown(given):.60}" if isinstance(given, (int, float, str)) else type(given).__name__
    )


def _geometry(argument: Any) -> Geometry | None:
    """Return the shape of an array or pointer; None of anything else."""
    if isinstance(argument, (In, Out, InOut)):
        argument = argument.array
    shape = getattr(argument, "shape", None)
    if not isinstance(shape, tuple):
        return None
    strides = getattr(argument, "strides", None)
    if strides is None:  # of a Scratch, or of another package
        strides = getattr(argument, "__cuda_array_interface__", {}).get("strides")
    return Geometry(shape, strides)


def _size_of(argument: Any) -> int:
    """Return the elements of an array or pointer; 0 of anything else."""
    geometry = _geometry(argument)
    return 0 if geometry is None else math.prod(geometry.shape)


def _shape(
    kernel: Kernel, arguments: Sequence[object], device: Device, grid: Sizes | None, block: Sizes | None
) -> tuple[Sizes, Sizes]:
    """Return grid and block. Those that are None follow from the partitions of the signature; without any, they have a
    thread for each element of the largest array written."""
    if grid is not None and block is not None:
        return grid, block
    if len(arguments) != len(kernel._own):
        kernel._misfit(tuple(arguments))
    pairs = list(zip(kernel._own, arguments, strict=True))
    divided = [
        (f"{kernel.name}: {one.name}", one.partition, geometry)
        for one, given in pairs
        if one.partition is not None and (geometry := _geometry(given)) is not None
    ]
    limits, on_cpu = kernel.info(device), not device.is_gpu
    if block is None:
        block = good_block([one[1] for one in divided], limits, on_cpu) if divided else limits.good_threads
    if grid is None and divided:
        grid = needed_grid(divided, kernel._sizes("block", block), limits, on_cpu)
    elif grid is None:
        written = [_size_of(given) for formal, given in pairs if formal.access & _core.OA_OVERWRITE]
        size = max(written or [_size_of(given) for formal, given in pairs if formal.access])
        grid = max(1, -(-size // math.prod(kernel._sizes("block", block))))
    return grid, block


def launch(
    kernel: Kernel | Undeclared,
    /,
    *arguments: Any,
    grid: Sizes | None = None,
    block: Sizes | None = None,
    shared_bytes: int | Shared = 0,
    stream: object = None,
    cooperative: bool = False,
    cluster: Sizes | None = None,
) -> None:
    """Launch a kernel in an open region.

    arguments: a DevicePtr for each pointer, a number (a tuple for a struct) for each value; an object with
    `__offload__()` stands for all that this returns, a tuple of such arguments. grid: blocks along x, y, z;
    None: as many as give each element of the largest array that the kernel writes a thread. block: threads of a block;
    None: as many as fill the device best. shared_bytes: dynamic shared memory of a block, in bytes or as
    Shared[dtype](size). stream: an object with `__cuda_stream__`; None: the region's. cooperative: all blocks run at
    the same time. cluster: the blocks of a cluster.

    Raises the errors of Kernel.
    """
    arguments = _parts(arguments)
    kernel = _declared("launch", kernel, arguments)
    if grid is None or block is None:
        pointer = next((one for one in arguments if isinstance(one, DevicePtr)), None)
        if pointer is None:
            raise HostPointerError(f"{kernel.name}: needs a device pointer; lend an array in a region, or use offload")
        grid, block = _shape(kernel, arguments, pointer.device, grid, block)
    kernel._launcher(grid, block, shared_bytes, stream, cooperative, cluster)(*arguments)


def offload(
    kernel: Kernel | Undeclared,
    /,
    *arguments: Any,
    grid: Sizes | None = None,
    block: Sizes | None = None,
    shared_bytes: int | Shared = 0,
    stream: object = None,
    device: Device | str | None = None,
    on_error: Literal["discard", "keep"] = "discard",
    cooperative: bool = False,
    cluster: Sizes | None = None,
) -> None:
    """Lend every array among the arguments, launch the kernel, and bring back what it wrote.

    The arguments are those of launch, with arrays in place of pointers, or In, Out, InOut, Scratch of them. device: a
    Device or its name; None: the default one if it can run the module, else the first that can. stream and on_error are
    the region's.

    Raises the errors of a region and of Kernel.
    """
    shape = shared_bytes, cooperative, cluster
    _offload("offload", kernel, arguments, grid, block, shape, {"stream": stream, "on_error": on_error}, device)


def offload_unsafe(
    kernel: Kernel | Undeclared,
    /,
    *arguments: Any,
    grid: Sizes | None = None,
    block: Sizes | None = None,
    shared_bytes: int | Shared = 0,
    stream: object = None,
    device: Device | str | None = None,
    on_error: Literal["discard", "keep"] = "discard",
    cooperative: bool = False,
    cluster: Sizes | None = None,
) -> None:
    """Do as offload, and leave out the checks of the arguments against the kernel's signature and each other.

    Pointers may be of other dtypes than the signature says, written arrays may overlap, and a grid may leave elements
    of a partition without an owner, for kernels that mean this. The number of arguments, the types of values, whether
    pointers are live, on the device and lent for what the kernel does, and the limits of the device are checked. No
    array is read on the host.

    Raises the other errors of offload.
    """
    shape = shared_bytes, cooperative, cluster
    options = {"stream": stream, "on_error": on_error}
    _offload("offload_unsafe", kernel, arguments, grid, block, shape, options, device, unsafe=True)


def _offload(
    function: str,
    kernel: Kernel | Undeclared,
    arguments: Sequence[Any],
    grid: Sizes | None,
    block: Sizes | None,
    shape: tuple[int | Shared, bool, Sizes | None],
    options: dict[str, Any],
    device: Device | str | None,
    *,
    unsafe: bool = False,
) -> None:
    arguments = _parts(arguments)
    kernel = _declared(function, kernel, arguments)
    pointer = next((one for one in arguments if isinstance(one, DevicePtr)), None)
    if device is None:
        on = pointer.device if pointer is not None else kernel._loaded.default_device()
    else:
        on = as_device(device)
    grid, block = _shape(kernel, arguments, on, grid, block)
    shared_bytes, cooperative, cluster = shape
    launcher = kernel._launcher(grid, block, shared_bytes, None, cooperative, cluster, unsafe)
    call(launcher, *arguments, device=on, **options)


class Undeclared(Protocol):
    """A kernel whose signature is that of the arguments of a call."""

    def for_arguments(self, arguments: Sequence[object]) -> Kernel: ...


def _declared(function: str, kernel: Kernel | Undeclared, arguments: Sequence[object]) -> Kernel:
    if isinstance(kernel, Kernel):
        return kernel
    if hasattr(kernel, "for_arguments"):
        return kernel.for_arguments(arguments)
    raise ArgumentTypeError(f"{function}: kernel needs a Kernel, got {type(kernel).__name__}; Module.kernel makes one")


def _parts(arguments: Sequence[object], depth: int = 0) -> tuple[Any, ...]:
    """Return the arguments with what `__offload__` returns in place of each object that has it."""
    found: list[object] = []
    for one in arguments:
        travels = getattr(type(one), "__offload__", None)
        if travels is None:
            found.append(one)
            continue
        parts = travels(one)
        if not isinstance(parts, (tuple, list)):
            raise ArgumentTypeError(
                f"{type(one).__name__}.__offload__ needs to return a tuple of arrays and numbers, got "
                f"{type(parts).__name__}"
            )
        if depth == _MOST_DEPTH:
            raise ArgumentError(f"{type(one).__name__}.__offload__ returns objects that have it, {depth} deep")
        found += _parts(parts, depth + 1)
    return tuple(found)
