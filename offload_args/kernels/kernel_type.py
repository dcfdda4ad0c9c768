"""Kernels with their signatures."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Self

import numpy as np

from .. import _core
from .._operands import need_path
from .._signatures import telling
from ..arguments import In, InOut, Out
from ..devices import Device, as_device, by_number
from ..display import nearest, no_attribute, plural, shown
from ..dtypes import before_copy, c_strides, converted
from ..errors import (
    ArgumentError,
    ArgumentTypeError,
    CaptureError,
    DTypeError,
    HostPointerError,
    ModuleError,
)
from ..pointers import DevicePtr
from ..regions import _stream_handle
from .compilers import VENDORS, named_target, program_of, target_of
from .debug import OPTION, has_bounds, launch_with_record, record_kernel
from .facts import KernelFacts
from .loaded import Loaded, Source
from .partitions import Geometry, check, default_threads
from .pickled import loaded_again, pickled
from .shared_memory import Shared
from .signature import Formal, formals_of
from .values import filled, kind, whole
from .variables import Variables

__all__ = ["Kernel", "KernelInfo"]

_MOST: Final = 2**32 - 1
_SHAPE_NUMBERS: Final = 4  # how many numbers describe the shape of an array


class KernelInfo(NamedTuple):
    """Describe a kernel on one device. Sizes of shared memory are in bytes for each block."""

    most_grid: tuple[int, int, int]  #: blocks along x, y, z
    most_block: tuple[int, int, int]  #: threads of a block along x, y, z
    most_threads: int  #: the most threads of a block of this kernel
    good_threads: int  #: the number of threads of a block that fills the device best
    registers: int  #: the registers of a thread; -1 if unknown
    multiprocessors: int  #: of the device
    cooperative: bool  #: whether the device has cooperative launches
    clusters: bool  #: whether the device has clusters of blocks
    fixed_shared_bytes: int  #: shared memory that the kernel itself declares
    most_shared_bytes: int  #: the most shared memory that a launch may request


class Shape(NamedTuple):
    """Name an array whose extents and steps are passed to the kernel; a step is in elements."""

    argument: int
    rank: int  #: 2 if it has to be a matrix; otherwise its elements are counted in the order of memory
    like: int = -1  #: the argument that has to have the same shape; -1 if there is none
    ordered: bool = False  #: whether that argument also has to have the same order, C or Fortran


def _compiled_again(
    source: str,
    name: str,
    signature: Sequence[object],
    options: Sequence[str],
    device: Device | str | None,
    target: str | None,
    debug: bool | None,
) -> Kernel:
    return Kernel.compile(source, name, signature, options=options, device=device, target=target, debug=debug)


_INSTEAD: Final = {
    **dict.fromkeys(("num_regs", "numRegs", "get_regs_per_thread", "regs"), "info(device).registers"),
    **dict.fromkeys(("shared_size_bytes", "get_shared_mem_per_block"), "info(device).fixed_shared_bytes"),
    **dict.fromkeys(("max_threads_per_block", "get_max_threads_per_block"), "info(device).most_threads"),
    **dict.fromkeys(("attributes", "limits"), "info(device)"),
    **dict.fromkeys(
        ("code", "source", "ptx", "asm", "cubin", "inspect_asm", "inspect_llvm", "inspect_sass"), "save(file)"
    ),
    **dict.fromkeys(("signatures", "argtypes", "params", "parameters", "args", "in_params", "out_params"), "signature"),
    **dict.fromkeys(
        ("forall", "configure", "prepare", "prepared_call", "grid", "block"),
        "kernel(dx, ...), whose grid follows from the arguments, or kernel[grid, block](dx, ...)",
    ),
}
_SHAPE: Final = ("grid", "block", "shared_bytes", "stream", "cooperative", "cluster")


@telling
class Kernel(_core.Kernel):
    """Launch a kernel: `vadd(da, db, dc, n)` in a region, or `offload(vadd, a, b, c, n)` without one.

    `vadd[grid, block](da, db, dc, n)` sets the grid and block: numbers, or tuples of up to three, along x, y, z. A
    third item is the shared memory, in bytes or as Shared[dtype](size); a fourth item is a stream. A call without
    brackets takes the same values as the keywords of `launch`. Module.kernel and Kernel.compile make kernels.

    A call raises HostPointerError, DTypeError, SizeOverflowError, StalePointerError, WrongDeviceError, DirectionError,
    AliasError, CoverageError and ArgumentError before anything moves.

        source = '''
        #include <offload_args/kernel.h>
        OA_KERNEL(add, oa::In<float> x, oa::InOut<float> y, int n) {
          for (auto element : y.mine(oa::Linear1D(n), here))
            *element += x[element.index()];
        }'''
        add = Kernel.compile(source, "add", [In[np.float32], InOut[np.float32], np.int32])
        x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
        with offload_args(x, y) as (dx, dy):
            add(dx, dy, 3)
            add[1, 32](dx, dy, 3)
        print(y)  # [1. 3. 5.]

    See also: Module, launch, offload; docs/guide/kernels.md.
    """

    __slots__ = (
        "_always_checked",
        "_checked",
        "_compiled",
        "_declared",
        "_formals",
        "_infos",
        "_loaded",
        "_origin",
        "_passed",
        "facts",
    )

    facts: KernelFacts | None  #: the module's facts about the kernel, or None if it has none
    _formals: tuple[Formal, ...]
    _passed: tuple[str, ...]  #: the names of all passed values
    _loaded: Loaded
    _compiled: Loaded  #: the module that was compiled first, which may check accesses
    _infos: dict[int, KernelInfo]
    _checked: tuple[Kernel, Kernel] | None  #: kernels that check each access: one for the CPU, one for GPUs
    _always_checked: bool  #: whether launches on GPUs check accesses, too
    _declared: tuple[object, ...]  #: the signature, as it was passed
    _origin: tuple[Any, ...]  #: the arguments of _compiled_again; () for other kernels

    def __new__(
        cls,
        loaded: Loaded,
        name: str,
        signature: Sequence[object],
        facts: KernelFacts | None,
        shapes: tuple[Shape, ...] = (),
    ) -> Self:
        """Make a kernel. `shapes`: the arrays whose extents and steps the package passes as further arguments."""
        whole = (*signature, *[np.int64] * (_SHAPE_NUMBERS * len(shapes))) if shapes else signature
        formals = formals_of(name, whole, facts)
        partitions = tuple(
            (i, *formal.partition.along()) for i, formal in enumerate(formals) if formal.partition is not None
        )
        self = super().__new__(cls, name, tuple(formal.row for formal in formals), partitions, shapes)
        self.facts = facts
        self._formals, self._infos = formals[: len(signature)], {}
        self._passed = tuple(formal.name for formal in formals)
        self._loaded = self._compiled = loaded
        self._checked, self._always_checked = None, False
        self._declared, self._origin = tuple(signature), ()
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
        target: str | None = None,
        debug: bool | None = None,
    ) -> Kernel:
        """Compile a kernel from C++ source, by NVRTC for NVIDIA GPUs, and by the C++ compiler for host and sim.

        source: the text of the source; `#include <offload_args/kernel.h>` has the macros with which one source runs on
        all devices. name: "vadd", or an instance of a template, such as "scale<float>". signature: as for
        Module.kernel. options: options of the compiler. device: the source is compiled at once for devices of this
        kind; None stands for the default device. For another kind of device, the first launch compiles it. target: in
        place of a device, a processor such as "sm_90" or "gfx90a", which this machine need not have. Results are kept
        in a cache, unless OFFLOAD_ARGS_CACHE is "off".
        debug: with True, each access to the kernel's arrays is checked. Launches then wait, and raise ExtentError for
        an access out of bounds. With None, kernels of OA_KERNEL and OA_BLOCK_KERNEL are checked on host and sim. With
        False, nothing is checked, for full speed, and for graphs.

        Raises ModuleError with the compiler's log, LibraryError if there is no compiler, and SignatureError.

            source = '''
            #include <offload_args/kernel.h>
            OA_KERNEL(twice, oa::InOut<float> x, int n) {
              for (auto element : x.mine(oa::Linear1D(n), here)) *element *= 2;
            }'''
            twice = Kernel.compile(source, "twice", [InOut[np.float32], np.int32])
            x = np.ones(3, np.float32)
            offload(twice, x, 3)
            print(x)  # [2. 2. 2.]

        See also: Kernel.save, Module.load, kernel; docs/guide/kernels.md.
        """
        program = program_of(source, name, options)
        if target is None:
            on = target_of(Device.default() if device is None else as_device(device))
        elif device is None:
            on = named_target(target)
        else:
            raise ArgumentError("Kernel.compile: needs a device or a target, got both")
        plain, checked = Source(program, on), None
        if debug or (debug is None and has_bounds(source, name)):
            text = record_kernel(source, name, len(signature) if isinstance(signature, Sequence) else 0)
            checked = Source(replace(program, options=(*program.options, OPTION)), on, for_gpus=text)
        used = checked if checked is not None and (debug or on.backend not in VENDORS) else plain
        facts = used.image.kernels.get(used.image.symbols.get(name, name))
        if facts is None:
            listed = ", ".join(used.image.kernels) or "none"
            remedy = "" if used.image.kernels else ": a kernel begins with OA_KERNEL(name, ...)"
            raise ModuleError(f"Kernel.compile: the source has no kernel {name!r}; it has {listed}{remedy}")
        if used is checked and facts.parameters is not None:
            facts = replace(facts, parameters=facts.parameters[:-1])
        kernel = cls(plain, name, signature, facts)
        if checked is not None:  # CPUs get the address of the record, and GPUs get the record itself
            with_record = [cls(checked, name, (*signature, last), None) for last in (np.uint64, InOut[np.uint8])]
            kernel._checked, kernel._always_checked = (with_record[0], with_record[1]), bool(debug)
            plain.checked, plain.always_checked = checked, bool(debug)
        kernel._compiled = used
        kernel._origin = (source, name, kernel._declared, tuple(options), device, target, debug)
        return kernel

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the module to a file, from which Module.load reads it: a cubin, an HSACO or a shared object.

        If Kernel.compile made the kernel, the file has the module for the device or target of the compilation. This
        module does not check accesses.

        Raises OSError if the file can't be written.

            source = '''
            #include <offload_args/kernel.h>
            OA_KERNEL(twice, oa::InOut<float> x, int n) {
              for (auto element : x.mine(oa::Linear1D(n), here)) *element *= 2;
            }'''
            twice = Kernel.compile(source, "twice", [InOut[np.float32], np.int32], device="host")
            twice.save("twice.so")
            print(list(Module.load("twice.so").kernels))  # ['twice']

        See also: Kernel.compile, Module.load; docs/guide/kernels.md.
        """
        name, data = need_path("Kernel.save", "path", path), self._loaded.image.data
        with open(name, "wb") as file:
            file.write(data)

    @property
    def module(self) -> Variables:
        """The kernel's module, for the module's variables."""
        return Variables(self._loaded, self)

    @property
    def symbol(self) -> str:
        """The kernel's name in the file that save writes; for an instance of a template, the compiler's name."""
        return self._compiled.image.symbols.get(self.name, self.name)

    @property
    def log(self) -> str:
        """The compiler's warnings for the device or target of Kernel.compile; "" for other kernels."""
        return self._compiled.image.log

    @property
    def signature(self) -> tuple[str, ...]:
        """The parameters as text: ("In[float32]", "int32")."""
        return tuple(formal.text for formal in self._formals)

    def info(self, device: Device | str) -> KernelInfo:
        """Return the kernel's limits on a device, which loads the kernel's module.

            source = '''
            #include <offload_args/kernel.h>
            OA_KERNEL(twice, oa::InOut<float> x, int n) {
              for (auto element : x.mine(oa::Linear1D(n), here)) *element *= 2;
            }'''
            twice = Kernel.compile(source, "twice", [InOut[np.float32], np.int32], device="host")
            print(twice.info("host").fixed_shared_bytes)  # 0

        See also: Kernel.compile, launch; docs/guide/kernels.md.
        """
        number = as_device(device).number
        if number not in self._infos:
            self._load(number)
        return self._infos[number]

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        if self._origin:
            return pickled(_compiled_again, *self._origin)
        return pickled(loaded_again, self._loaded.image.data, self._loaded.name, self.name, *self._declared)

    def _reduced(self, shape: tuple[object, ...], has_stream: bool) -> tuple[Callable[..., Any], tuple[object, ...]]:
        """Return the result of `__reduce__` for self[grid, block, shared_bytes]; `shape` is the tuple of these."""
        if has_stream:
            raise ArgumentTypeError(
                f"{self.name}[grid, block, shared_bytes, stream]: can't be copied or pickled: its stream belongs to "
                f"this process; pickle {self.name}[grid, block, shared_bytes], or the kernel"
            )
        return operator.getitem, (self, shape)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __repr__(self) -> str:
        return f"Kernel({self.name}({', '.join(self.signature)}), from {self._loaded.name})"

    # -- for the extension: cases that it does not handle itself
    # ----------------------------------------------------------------

    def _load(self, device: int) -> tuple[int, bool, tuple[int, int, int], tuple[tuple[int, int], ...]]:
        """Return four facts of a device: the kernel's handle, whether launches are checked, the block, and for each
        partition the preferred number of blocks."""
        on = by_number(device)
        checked = self._checked is not None and (self._always_checked or not on.is_gpu)
        handle = 0
        if checked and self._checked is not None:
            info = self._checked[on.is_gpu].info(on)
        else:
            symbol = self._loaded.symbol(device, self.name)
            handle = _core.kernel_get(self._loaded.handle(device), self, self._passed, symbol)
            info = KernelInfo._make(_core.kernel_info(handle))
        self._infos[device] = info
        partitions = [formal.partition for formal in self._formals if formal.partition is not None]
        block = partitions[0].block(info, not on.is_gpu) if partitions else (default_threads(info), 1, 1)
        return handle, checked, block, tuple(partition.blocks(info, not on.is_gpu) for partition in partitions)

    def _home(self) -> int:
        """Return the number of the device for an offload without an argument `device`."""
        return self._loaded.default_device().number

    def _configure(self, key: object) -> _core.Launcher:
        """Return the launcher of kernel[key]."""
        if not isinstance(key, tuple) or not 2 <= len(key) <= 4:
            raise ArgumentError(f"{self.name}: needs [grid, block], [grid, block, shared_bytes] or these and a stream")
        grid, block = self._sizes("grid", key[0]), self._sizes("block", key[1])
        shared_bytes = key[2] if len(key) > 2 else 0
        return self._launcher(grid, block, shared_bytes, key[3] if len(key) > 3 else None, False, None)

    def _asked(self, function: str, keywords: dict[str, Any]) -> _core.Launcher:
        """Return the launcher of a call with keywords. If its grid or block is zeros, the arguments determine it."""
        for name in keywords:
            if name not in _SHAPE:
                known = _SHAPE if function == "launch" else (*_SHAPE, "device", "on_error")
                remedy = f"a kernel takes its arguments by position: write {function}(kernel, x, block=...)"
                if name == "device":
                    remedy = "it runs on the device of its pointers: write offload(kernel, x, device=...) for arrays"
                raise ArgumentTypeError(
                    f"{function}() got an unexpected keyword argument {name!r}{nearest(name, known)}; {remedy}; the "
                    f"keywords are {', '.join(known)}"
                )
        grid, block = (
            (0, 0, 0) if keywords.get(name) is None else self._sizes(name, keywords[name]) for name in ("grid", "block")
        )
        others = keywords.get("shared_bytes", 0), keywords.get("stream"), bool(keywords.get("cooperative"))
        return self._launcher(grid, block, *others, keywords.get("cluster"))

    if not TYPE_CHECKING:  # static checkers report an unknown attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name in ("launch", "offload", "offload_unsafe"):
                raise AttributeError(
                    f"{type(self).__name__} has no attribute {name!r}: write {name}({self.name}, ...)", name=name
                )
            raise no_attribute(self, name, _INSTEAD)

    def _launcher(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: object,
        stream: object,
        cooperative: bool,
        cluster: object,
    ) -> _core.Launcher:
        return _core.launcher(
            self,
            grid,
            block,
            self._shared_bytes(shared_bytes),
            None if stream is None else _stream_handle(stream),
            cooperative,
            (0, 0, 0) if cluster is None else self._sizes("cluster", cluster),
        )

    def _launch_checked(self, launcher: _core.Launcher, arguments: tuple[Any, ...]) -> None:
        """Launch the kernel that checks each access instead of this kernel."""
        assert self._checked is not None
        on = next(argument.device for argument in arguments if isinstance(argument, DevicePtr))
        try:
            launch_with_record(launcher, self._checked[on.is_gpu], arguments)
        except CaptureError as error:
            if "result goes to the host" not in str(error):
                raise
            raise CaptureError(
                f"{self.name}: each access of this kernel is checked, and the result of that goes to the host; make it "
                "with debug=False to capture it into a graph"
            ) from None

    def _sizes(self, keyword: str, value: object) -> tuple[int, int, int]:
        is_vector = isinstance(value, np.ndarray) and value.ndim == 1
        several = is_vector or (isinstance(value, Sequence) and not isinstance(value, (str, bytes)))
        items: Any = value if several else (value,)
        try:
            sizes = [whole(item) for item in items]
        except TypeError:
            raise ArgumentTypeError(f"{self.name}: {keyword} needs whole numbers, got {shown(value)}") from None
        if not 1 <= len(sizes) <= 3 or not all(1 <= size <= _MOST for size in sizes):
            raise ArgumentError(f"{self.name}: {keyword} needs 1 to 3 numbers from 1 to {_MOST}, got {shown(value)}")
        x, y, z = (*sizes, 1, 1)[:3]
        return x, y, z

    def _shared_bytes(self, value: object) -> int:
        try:
            nbytes = value.nbytes if isinstance(value, Shared) else whole(value)
        except TypeError:
            raise ArgumentTypeError(
                f"{self.name}: shared_bytes needs a number of bytes or Shared[dtype](size), got {shown(value)}"
            ) from None
        if not 0 <= nbytes <= _MOST:
            raise ArgumentError(f"{self.name}: shared_bytes needs 0 to {_MOST} bytes, got {shown(value)}")
        return nbytes

    def _value(self, i: int, value: object) -> bytes:
        """Return the bytes of a value of any type."""
        formal = self._formals[i]
        dtype = formal.dtype
        assert dtype is not None
        subject = f"{self.name}: {formal.name}"
        if isinstance(value, (DevicePtr, np.ndarray)):
            raise DTypeError(
                f"{subject} needs one {dtype} by value, got {kind(value)}; pass a number, or declare an array"
            )
        return np.array(filled(subject, dtype, value), dtype).tobytes()

    def _pointer(self, i: int, argument: object) -> NoReturn:
        """Refuse an argument that is not a pointer to the right elements."""
        formal = self._formals[i]
        need = f"{self.name}: {formal.name} needs a device pointer to {formal.dtype or 'elements'}"
        if formal.struct_bytes and isinstance(argument, DevicePtr):
            nbytes, fields = formal.struct_bytes, ", ".join((formal.dtype and formal.dtype.names) or ())
            raise DTypeError(
                f"{self.name}: {formal.name} needs a device pointer to the bytes of structs ({fields}), np.uint8 "
                f"with a last extent of {nbytes}; got {argument.dtype} of shape {argument.shape}: lend "
                f"x.view((np.uint8, {nbytes}))"
            )
        if isinstance(argument, DevicePtr):
            assert formal.dtype is not None  # a parameter without a dtype takes all pointers
            remedy = converted(formal.own_name or "x", formal.dtype.name, argument)
            raise DTypeError(f"{need}, got a pointer to {argument.dtype}; {remedy}")
        if isinstance(argument, np.ndarray):
            # A program knows a formula's kernel by another name.
            variable, which = ("k", ", where k is this kernel") if self.name == "elementwise" else (self.name, "")
            raise HostPointerError(
                f"{need}, got a host array: use offload({variable}, ...){which}, which lends its arrays, or lend them "
                f"in a region: with offload_args(x, ...) as (dx, ...): {variable}(dx, ...)"
            )
        remedy = "make it an array, np.asarray(x, dtype), and lend that" if isinstance(argument, (list, tuple)) else ""
        raise HostPointerError(f"{need}, got {kind(argument)}; {remedy or 'lend an array in a region'}")

    def _as_bytes(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of an offload with bytes in place of arrays of structs."""
        return tuple(
            self._bytes_of(formal, argument) if formal.struct_bytes else argument
            for formal, argument in zip(self._formals, arguments, strict=True)
        )

    def _bytes_of(self, formal: Formal, argument: Any) -> Any:
        if isinstance(argument, (In, Out, InOut)):
            return type(argument)(self._bytes_of(formal, argument.array))
        if not isinstance(argument, np.ndarray) or argument.dtype.names is None:
            return argument
        if argument.dtype != formal.dtype:
            raise DTypeError(
                f"{self.name}: {formal.name} needs an array of {formal.dtype}, got one of {argument.dtype}: make it "
                "with the dtype that the kernel declares"
            )
        return argument.view(np.ndarray).view((np.uint8, (formal.struct_bytes,)))

    def _strided(self, i: int, pointer: DevicePtr[Any]) -> NoReturn:
        """Refuse a pointer with a layout that a kernel can't take."""
        lent = pointer.strides == c_strides(pointer.shape, pointer.dtype.itemsize)
        got = "an array that was lent with gaps or reversed" if lent else f"strides {pointer.strides}"
        formal = self._formals[i]
        name, writes = formal.own_name or "x", formal.access != _core.OA_READ
        copied = (
            f"copy the array first, {before_copy(name, pointer)}c = np.ascontiguousarray({name}), and lend the copy"
        )
        if writes:
            copied += f"; afterwards copy the results back, {name}[...] = c"
        if not lent:
            back = f" before the call, and {name}.copy_from(dc) after it" if writes else " before the call"
            scratch = f"Scratch({pointer.shape}, np.{pointer.dtype})"
            copied = f"copy the pointer to a {scratch}, dc.copy_from({name}){back}; or {copied}"
        raise ArgumentError(
            f"{self.name}: {formal.name} needs elements in C or Fortran order, with gaps between rows or columns at "
            f"most, because a kernel gets an address and no strides; got {got}, for shape {pointer.shape}: {copied}"
        )

    def _named_in_messages(self, argument: int) -> str:
        """Return the name of an argument by its number; a negative number means shared memory."""
        return "the dynamic shared memory" if argument < 0 else self._formals[argument].name

    def _uncovered(self, launcher: _core.Launcher, arguments: tuple[Any, ...]) -> None:
        """Refuse a grid that leaves elements without an owner."""
        grid, block, _ = launcher._shape
        for formal, argument in zip(self._formals, arguments, strict=True):
            if formal.partition is not None:
                subject, dimensions = f"{self.name}: {formal.name}", formal.dimensions_of(argument)
                geometry = Geometry(argument.shape[:dimensions], argument.strides[:dimensions])
                check(subject, formal.partition, geometry, grid, block)

    def _misfit(self, arguments: tuple[object, ...], keywords: Iterable[str] = ()) -> NoReturn:
        names, count = [formal.own_name for formal in self._formals], len(self._formals)
        options = () if len(arguments) == count else (*_SHAPE, "device", "on_error")
        if wrong := [name for name in keywords if name not in options]:
            raise ArgumentTypeError(
                f"{self.name}: takes no keyword arguments, got {', '.join(wrong)}: pass its arguments by position: "
                f"{', '.join(name or f'argument {i}' for i, name in enumerate(names, 1))}"
            )
        declared = [f"{name}: {text}" if name else text for name, text in zip(names, self.signature, strict=True)]
        raise ArgumentTypeError(
            f"{self.name}: needs {count} {plural('argument', count)} ({', '.join(declared)}), got {len(arguments)} by "
            "position"
        )
