"""Regions: arrays lent to a device for the duration of a block or of one call."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Protocol, final, overload

import numpy as np

from . import _core, errors
from ._core import call
from ._signatures import telling
from .arguments import In, InOut, Out, Scratch, is_array, refuse, resolve
from .devices import Device, as_device, by_number, default_number
from .display import answering, html_table, shown, size_text, text_table
from .errors import (
    ArgumentError,
    ArgumentTypeError,
    DiscardedWarning,
    HostAttributeError,
    NestedRegionWarning,
    OffloadError,
    RegionError,
    remedies,
)
from .memory import empty
from .pointers import DevicePtr
from .tracing import trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, TracebackType

    from numpy.typing import NDArray
    from typing_extensions import TypeVar

    from .graphs import Capture

    class _OnDevice(Protocol):
        @property
        def __cuda_array_interface__(self) -> Any: ...

    # NumPy's arrays have this method, too. So only the last overload takes objects with this method, and returns
    # pointers of any dtype.
    class _ByDLPack(Protocol):
        def __dlpack__(self) -> Any: ...

    _Lendable = In | Out | InOut | Scratch | _OnDevice
    _Pointers_co = TypeVar(
        "_Pointers_co", bound=tuple[DevicePtr[Any], ...], default=tuple[DevicePtr[Any], ...], covariant=True
    )
    _A = TypeVar("_A", bound=np.generic, default=Any)
    _B = TypeVar("_B", bound=np.generic, default=Any)
    _C = TypeVar("_C", bound=np.generic, default=Any)
    _D = TypeVar("_D", bound=np.generic, default=Any)
    _E = TypeVar("_E", bound=np.generic, default=Any)
    _F = TypeVar("_F", bound=np.generic, default=Any)

#: The codes of functions that enter regions for their callers. Such a region's line is a line of the caller.
ENTERING_CODES: Final = [
    contextlib.ExitStack.enter_context.__code__,
    contextlib._GeneratorContextManager.__enter__.__code__,
]
_OF_POINTERS: Final = "dtype shape size nbytes device address ld fill assign copy_from to_host live strides".split()
_INSTEAD: Final = {
    **{name: f"{name} of a pointer, as in dx.{name}" for name in _OF_POINTERS},
    **dict.fromkeys(("pointers", "arrays", "array", "args"), "the names after `as`: with offload_args(x) as (dx,)"),
    **dict.fromkeys(("get", "copy_to_host", "numpy", "cpu", "read"), "to_host() of a pointer, as in dx.to_host()"),
    **dict.fromkeys(("exit", "leave", "end", "stop", "free", "release", "finish"), "close()"),
    **dict.fromkeys(("sync", "synchronize", "wait"), "close() or the end of the block, or to_host(): they wait"),
    **dict.fromkeys(("enter", "begin", "start"), "open()"),
    **dict.fromkeys(("graph", "begin_capture", "capture_begin"), "capture()"),
    **dict.fromkeys(("counters", "memory", "stats"), "device of a pointer, as in dx.device.counters"),
    **dict.fromkeys(("abort", "cancel", "rollback"), "discard()"),
}

__all__ = ["Stream", "call", "offload_args", "open_regions", "update"]


@telling
def update(array: NDArray[Any], *, device: Device | str | None = None) -> Update:
    """Bring an array's bytes from the device to the host now, as OpenMP's `target update from` does.

    array: the array that was lent, or a part of it. device: the source, if several devices have the array. The host
    keeps these bytes, even if the region discards its results later. The result is a context manager for writing the
    array. At the end of the block `with update(x): x[0] = 1`, the array is sent to every device that has some of it,
    even if the block raises an exception. From the block's beginning on, the host's bytes count as newer than the bytes
    of all devices.

    Raises PresentError if no device (or not the named one) has the whole array, or if a device wrote bytes of it
    through another lent array and no copy can address these bytes alone, such as bytes of a packed array with further
    elements. Nothing moves then. Raises InvalidDataError if a failed call left the array undefined.

        x = np.ones(3)
        with offload_args(x) as (dx,):
            blas.scal(2.0, dx)
            with update(x):         # x is [2, 2, 2] on the host now
                x[0] = 10.0         # and goes up again
            blas.scal(2.0, dx)
        print(x)  # [20.  4.  4.]

    See also: DevicePtr.to_host, DevicePtr.assign; docs/guide/contents.md.
    """
    if not isinstance(array, np.ndarray):
        remedy = "; to_host() reads a pointer, and assign(values) writes one" if isinstance(array, DevicePtr) else ""
        if isinstance(array, (list, tuple)) and any(isinstance(part, np.ndarray) for part in array):
            remedy = "; update one array after the other: for x in arrays: update(x)"
        raise ArgumentTypeError(
            f"update: array needs the NumPy array that was lent, got {type(array).__name__}{remedy}"
        )
    number = -1 if device is None else as_device(device).number
    _core.update_from(array, number)
    return Update(array, number)


class Update:
    """Permit the host to write an array within a block, and send the array to the device at the end.

    See also: update, DevicePtr.assign; docs/guide/contents.md.
    """

    __slots__ = ("_array", "_device", "_opened", "_writings")

    def __init__(self, array: NDArray[Any], device: int) -> None:
        self._array = array
        self._device = device
        self._opened: list[NDArray[Any]] = []
        self._writings: list[object] = []

    def __enter__(self) -> NDArray[Any]:
        writing = _core.update_begin(self._array, self._device)  # raises an error for an array that can't be sent
        chain: list[NDArray[Any]] = []
        array: object = self._array
        while isinstance(array, np.ndarray):
            chain.append(array)
            array = array.base
        if _core.is_lent(self._array):
            # A view can become writeable only after its base.
            for view in reversed(chain):
                if not view.flags.writeable:
                    view.setflags(write=True)
                    self._opened.append(view)
        self._writings.append(writing)
        return self._array

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._writings:
            raise RegionError("update: this block is not entered; use it as `with update(x):`")
        try:
            _core.update_to(self._array, self._device)
        except OffloadError as failure:
            if error is None:
                raise
            error.add_note(f"{failure} (as this block of `update` ended)")
        finally:
            self._writings.pop()  # this ends the update
            while self._opened:
                _core.lock_if_lent(self._opened.pop())  # the region may have been left in the meantime


@telling
def open_regions() -> list[offload_args]:
    """Return the open regions of all threads, such as regions that a notebook's cells left open. The oldest is first.

    The repr of a region shows its device, and the line or cell that entered it. `open_regions()[0].close()` leaves the
    oldest region, and `open_regions()[0].discard()` leaves it and discards its results.

        region = offload_args(np.ones(3))
        (dx,) = region.open()
        print(len(open_regions()))  # 1
        open_regions()[0].discard()
        print(dx.live)  # False

    See also: offload_args; docs/guide/notebooks.md.
    """
    return _core.open_regions()


@answering(_INSTEAD)
class offload_args(_core.Region["_Pointers_co"]):
    """Lend arrays to a device for the duration of a block.

        A, x, y = np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones(2), np.empty(2)
        with offload_args(A, x, y) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)
        print(y)  # [3. 7.]

    arrays: NumPy arrays; objects that share host memory through DLPack, or GPU memory through
    `__cuda_array_interface__`; such an array in In, Out or InOut; or Scratch. A plain array goes up when it is first
    read, and comes down if it was written. `as` binds a tuple with one DevicePtr per argument, even for a single
    argument. During the block, the host can't write the arrays. A read-only array is never written. There is one
    exception, because NumPy does not distinguish a view that was made read-only from a view of an array that is lent
    already. Inside a region that lends the same memory, a read-only view may be written, unless the outer region lends
    the view, too. Lend such a view as In.
    device: a Device or its name. None stands for the device of the first borrowed argument; if there is none, for the
    first GPU; without a GPU, for the host.
    stream: an object with `__cuda_stream__`, on whose stream the calls run; None stands for one of the package's
    streams.
    on_error: if the block raises an exception, "discard" leaves the host arrays unchanged, and "keep" copies valid
    results down.
    resident: whether the arrays become resident, as by Device.keep: their device memory is kept at the end of the
    block. When such an array is lent again, only the pages that the host has written since then are sent.
    guard: whether the arrays are guarded. If the host writes whole pages of a guarded array while the device has its
    bytes, or reads them while the device is newer, a GuardError is raised, at the next call or iteration of a loop.
    OFFLOAD_ARGS_GUARD=1 guards the arrays of all regions.

    Without a block, for example in the cells of a notebook, open() enters the region and returns the tuple, and close()
    leaves the region. discard() leaves it, too, and discards the results, as a block that raises an exception does.

    Entering raises ArgumentTypeError, DTypeError, DirectionError, PresentError, DeviceMemoryError and other exceptions
    of `errors`; nothing is lent then.

    See also: In, Out, InOut, Scratch, call; docs/guide/regions.md.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # the pointers of up to six arrays have the arrays' dtypes

        @overload
        def __init__(
            self: offload_args[tuple[DevicePtr[_A]]],
            a: NDArray[_A] | _Lendable,
            /,
            *,
            device: Device | str | None = None,
            stream: object = None,
            on_error: Literal["discard", "keep"] = "discard",
            resident: bool = False,
        ) -> None: ...
        @overload
        def __init__(
            self: offload_args[tuple[DevicePtr[_A], DevicePtr[_B]]],
            a: NDArray[_A] | _Lendable,
            b: NDArray[_B] | _Lendable,
            /,
            *,
            device: Device | str | None = None,
            stream: object = None,
            on_error: Literal["discard", "keep"] = "discard",
            resident: bool = False,
        ) -> None: ...
        @overload
        def __init__(
            self: offload_args[tuple[DevicePtr[_A], DevicePtr[_B], DevicePtr[_C]]],
            a: NDArray[_A] | _Lendable,
            b: NDArray[_B] | _Lendable,
            c: NDArray[_C] | _Lendable,
            /,
            *,
            device: Device | str | None = None,
            stream: object = None,
            on_error: Literal["discard", "keep"] = "discard",
            resident: bool = False,
        ) -> None: ...
        @overload
        def __init__(
            self: offload_args[tuple[DevicePtr[_A], DevicePtr[_B], DevicePtr[_C], DevicePtr[_D]]],
            a: NDArray[_A] | _Lendable,
            b: NDArray[_B] | _Lendable,
            c: NDArray[_C] | _Lendable,
            d: NDArray[_D] | _Lendable,
            /,
            *,
            device: Device | str | None = None,
            stream: object = None,
            on_error: Literal["discard", "keep"] = "discard",
            resident: bool = False,
        ) -> None: ...
        @overload
        def __init__(
            self: offload_args[tuple[DevicePtr[_A], DevicePtr[_B], DevicePtr[_C], DevicePtr[_D], DevicePtr[_E]]],
            a: NDArray[_A] | _Lendable,
            b: NDArray[_B] | _Lendable,
            c: NDArray[_C] | _Lendable,
            d: NDArray[_D] | _Lendable,
            e: NDArray[_E] | _Lendable,
            /,
            *,
            device: Device | str | None = None,
            stream: object = None,
            on_error: Literal["discard", "keep"] = "discard",
            resident: bool = False,
        ) -> None: ...
        @overload
        def __init__(
            self: offload_args[
                tuple[DevicePtr[_A], DevicePtr[_B], DevicePtr[_C], DevicePtr[_D], DevicePtr[_E], DevicePtr[_F]]
            ],
            a: NDArray[_A] | _Lendable,
            b: NDArray[_B] | _Lendable,
            c: NDArray[_C] | _Lendable,
            d: NDArray[_D] | _Lendable,
            e: NDArray[_E] | _Lendable,
            f: NDArray[_F] | _Lendable,
            /,
            *,
            device: Device | str | None = None,
            stream: object = None,
            on_error: Literal["discard", "keep"] = "discard",
            resident: bool = False,
        ) -> None: ...
        @overload
        def __init__(
            self: offload_args[tuple[()]],
            /,
            *,
            device: Device | str | None = None,
            stream: object = None,
            on_error: Literal["discard", "keep"] = "discard",
            resident: bool = False,
        ) -> None: ...
        @overload
        def __init__(
            self,
            a: Any,
            b: Any,
            c: Any,
            d: Any,
            e: Any,
            f: Any,
            g: Any,
            /,
            *arrays: Any,
            device: Device | str | None = None,
            stream: object = None,
            on_error: Literal["discard", "keep"] = "discard",
            resident: bool = False,
        ) -> None: ...
        @overload
        def __init__(
            self,
            *arrays: _ByDLPack | _Lendable,
            device: Device | str | None = None,
            stream: object = None,
            on_error: Literal["discard", "keep"] = "discard",
            resident: bool = False,
        ) -> None: ...
        def __init__(self, *arrays: Any, **options: Any) -> None: ...

    call = staticmethod(call)
    trace = staticmethod(trace)
    empty = staticmethod(empty)
    open_regions = staticmethod(open_regions)
    update = staticmethod(update)

    @property
    def stream(self) -> Stream:
        """The stream of the region's calls on a GPU.

        Work of other packages on this stream runs in order with the calls.

        Raises RegionError unless the region is open, and HostAttributeError on a device that is not a GPU.
        """
        self._calls_to()
        device = self._open_on()
        if device is not None and not device.is_gpu:
            raise HostAttributeError(
                f"offload_args.stream: the region is on {device}; only GPUs have streams that other packages know"
            )
        return Stream(self)

    @telling
    def capture(self, /, **names: Any) -> Capture:
        """Capture the calls of the region within a block, instead of running them: `with region.capture(x=dx) as g:`.

        names: pointers and numbers. `g.replay(x=new)` may replace the contents of a pointer x. The graph stores a
        number, such as alpha=1.0, on the device: `g["alpha"]` is the 0-d pointer to pass to calls, and
        `g.replay(alpha=2.0)` sets the number. A float becomes a float64; for another dtype, pass a NumPy scalar. When a
        call is captured, it is checked, and the arrays that it reads go up. The captured calls run at each
        `g.replay()`, in order with the calls before and after the replay.

        A call raises CaptureError if it would have to wait for a result on the host, or for memory that exists only
        while a function runs; the capture then continues. Raises RegionError if the region is not open.

            A, x, y = 2.0 * np.eye(2), np.ones(2), np.empty(2)
            region = offload_args(A, x, y)
            with region as (dA, dx, dy):
                with region.capture(x=dx, alpha=1.0) as g:
                    blas.gemv(g["alpha"], dA, dx, 0.0, dy)
                g.replay(x=np.array([1.0, 3.0]))
                print(dy.to_host())  # [2. 6.]
                g.replay(alpha=10.0)
            print(y)  # [20. 60.]

        See also: Graph, offload_args.loop; docs/guide/graphs.md.
        """
        from .graphs import Capture

        return Capture(self, names)

    @telling
    def loop(self, body: Callable[[], object], *, until: DevicePtr[Any], at_most: int) -> int:
        """Repeat calls until one of them has set a number on the device, and return the number of repetitions.

        body: a function without arguments that makes the calls. The function runs once, and its calls are captured, as
        in `capture`. If it uses only pointers, kernels, functions, numbers and texts, a later loop of the region with
        the same values runs the captured calls without a new capture. If it uses values that can change, such as a list
        or an array, the calls are captured again.
        until: a pointer to one element, which the calls write; the loop ends when the element is not 0. The element is
        tested after each step, so the calls run at least once, and never after the element was set. at_most: the
        greatest number of steps. On CUDA with a driver of 12.3 or later, the device itself tests the element if a step
        has at most 8 calls; then no step waits for the host.

        Raises CaptureError at a call in the body that can't be captured, ArgumentTypeError if `until` points to more
        than one element, RegionError if the region is not open, and the errors of `Graph.replay`.

            x, left = np.ones(2), np.array([8.0])
            region = offload_args(x, left)
            with region as (dx, dleft):
                steps = region.loop(lambda: blas.scal(2.0, dx), until=dleft, at_most=10)
            print(steps, x)  # 1 [2. 2.]

        See also: offload_args.capture, Graph; docs/guide/graphs.md.
        """
        from .graphs import loop

        return loop(self, body, until, at_most)

    def __iter__(self) -> NoReturn:
        raise ArgumentTypeError(
            "offload_args: a region gives its pointers when it is entered: with region as (dx, ...), or "
            "dx, ... = region.open()"
        )

    def __getitem__(self, key: object) -> NoReturn:
        self.__iter__()

    def _open_on(self) -> Device | None:
        """Return the device of the region; None if the region is not open."""
        pointers = self._pointers()
        if pointers is None:
            return None
        number = pointers[0]._device if pointers else self._device
        return by_number(number if number >= 0 else default_number())

    def _title(self) -> str:
        device = self._open_on()
        if device is not None:
            outer = self._around()
            inside = "outermost" if outer is None else f"inner: inside the region of {_place(outer._place())}"
            return f"offload_args on {device}, open since {_place(self._place())}, {inside}"
        return f"offload_args{f' on {by_number(self._device)}' if self._device >= 0 else ''}, not open"

    def _rows(self) -> list[tuple[str, ...]]:
        arguments = self._arguments
        pointers: tuple[DevicePtr[Any] | None, ...] = self._pointers() or (None,) * len(arguments)
        return [
            (str(position), *_described(argument), pointer._state() if pointer is not None else "")
            for position, (argument, pointer) in enumerate(zip(arguments, pointers, strict=False), 1)
        ]

    def __reduce__(self) -> NoReturn:
        raise errors.ArgumentTypeError(
            "offload_args: a region can't be copied or pickled; pass its arrays, and lend them where they are used"
        )

    def __repr__(self) -> str:
        """Describe each argument: its dtype, shape, size, direction and state."""
        try:
            return "\n".join([self._title(), *text_table(self._rows())])
        except Exception:  # an argument's own code may raise any exception, and a repr must not
            return object.__repr__(self)

    def _repr_html_(self) -> str | None:
        try:
            return html_table(self._title(), ("", "dtype", "shape", "size", "direction", "state"), self._rows())
        except Exception:
            return None


@final
class Stream:
    """Give other packages the stream of an open region, by the protocol `__cuda_stream__`.

        x = np.ones(3, np.float32)
        region = offload_args(x, device="cuda:0")
        with region as (dx,), torch.cuda.stream(torch.cuda.ExternalStream(region.stream.handle)):
            torch.from_dlpack(dx).exp_()  # in order with the region's calls

    See also: offload_args, DevicePtr; docs/guide/streams.md.
    """

    __slots__ = ("_region",)

    def __init__(self, region: offload_args) -> None:
        self._region = region

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version, 0, and the handle, a cudaStream_t.

        Raises RegionError once the region has ended.
        """
        return 0, self._region._calls_to()

    @property
    def handle(self) -> int:
        """The handle alone, for code that lacks the protocol: torch.cuda.ExternalStream(region.stream.handle)."""
        return self._region._calls_to()

    def __repr__(self) -> str:
        device = self._region._open_on()
        return f"Stream({'ended' if device is None else device})"


def _place(entered: tuple[CodeType, int] | None) -> str:
    """Return the line that entered a region as text, such as prog.py:12, or In[3]:1 for a notebook's cell."""
    if entered is None:
        return "C code"
    from .tracing.source import shown  # this import loads a parser

    return f"{shown(entered[0].co_filename)}:{entered[1]}"


def _largest(text: str) -> str:
    """Return the end of a message about a full device: the largest arrays in its memory. `text` names the device."""
    device = text.partition(": out of device memory")[0].rpartition(" ")[2]
    arrays: dict[int, tuple[int, str]] = {}  # the key is the lent object, which an inner region may share
    for region in open_regions():
        for position, (argument, pointer) in enumerate(
            zip(region._arguments, region._pointers() or (), strict=False), 1
        ):
            if pointer.device.name == device and not {"dead", "borrowed"} & {*pointer._state().split(", ")}:
                lent = getattr(argument, "array", argument)
                place = f"in argument {position} of the region at {_place(region._place())}"
                arrays[id(lent)] = pointer.nbytes, place
    largest = sorted(arrays.values(), key=lambda entry: -entry[0])[:3]
    return "; the largest there: " * bool(largest) + ", ".join(f"{size_text(n)} {name}" for n, name in largest)


def _of_full(text: str) -> str:
    """Return a message about a full device with the ways out."""
    from ._parts import in_parts  # only errors need it

    return in_parts(text) + _largest(text)


remedies[_core.OA_ERROR_MEMORY] = _of_full


def _warn_inside(outer: offload_args, position: int) -> None:
    """Warn that open() entered a region inside an open region; both lend memory of the argument at `position`."""
    warnings.warn(
        f"offload_args: argument {position} is lent already by the region that open() entered at "
        f"{_place(outer._place())}, and that was never left: this region is inside that one, and results come down "
        "only when that one is left, too. Call close() on that one first, or discard() if its results don't matter; "
        "if no variable has it any more, offload_args.open_regions() does",
        NestedRegionWarning,
        stacklevel=2,
    )


def _guarding(region: offload_args) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the line that enters a region, and the names of its arguments in that line."""
    from .tracing.collect import short_name, site_of

    site = site_of(region, sys._getframe(1))
    return str(site.places[0] if site.places else "C code").encode(), tuple(short_name(name) for name in site.names)


def _warn_collected(entered: tuple[CodeType, int] | None) -> None:
    """Warn about a region that was garbage-collected while it was open."""
    warnings.warn(
        f"offload_args: the region that {_place(entered)} entered was never left; its results are lost: use `with`, "
        "or close()",
        DiscardedWarning,
        stacklevel=2,
    )


def _described(argument: Any) -> tuple[str, str, str, str]:
    """Return dtype, shape, size and direction of an argument as text."""
    direction = "by use"
    if isinstance(argument, (In, Out, InOut)):
        direction, argument = type(argument).__name__, argument.array
    elif isinstance(argument, Scratch):
        direction = "Scratch"
    dtype, shape = getattr(argument, "dtype", None), getattr(argument, "shape", None)
    if dtype is None or shape is None:
        return type(argument).__name__, "", "", direction
    itemsize = getattr(dtype, "itemsize", 0)
    size = size_text(math.prod(shape) * itemsize) if itemsize else ""
    return str(dtype), str(tuple(shape)), size, direction


def _read_options(device: Device | str | None, stream: object, on_error: str) -> tuple[int, int | None, bool]:
    """Return the device number or -1, the stream handle or None, and whether on_error is "keep"."""
    if not isinstance(on_error, str) or on_error not in ("discard", "keep"):
        raise ArgumentError(f'offload_args: on_error needs "discard" or "keep", got {shown(on_error)}')
    number = -1 if device is None else as_device(device).number
    return number, None if stream is None else _stream_handle(stream), on_error == "keep"


def _stream_handle(stream: object) -> int:
    from .streams import stream_handle  # few regions use a stream of the caller

    return stream_handle("offload_args: stream", stream)


def _load(library: str) -> str:
    """Load a vendor library by libraries.find_and_open(), when the core first needs it."""
    from .libraries import find_and_open

    return find_and_open(library)


def _find_driver(backend: str) -> str:
    """Return the places of a driver by libraries.driver_places(), when the core first needs the driver."""
    from .libraries import driver_places

    return driver_places(backend)


_core.setup(
    pointer=DevicePtr,
    declared=(In, Out, InOut, Scratch),
    errors=errors,
    resolve=resolve,
    refuse=refuse,
    is_array=is_array,
    load=_load,
    find_driver=_find_driver,
    default_device=default_number,
    region=offload_args,
    device=Device,
    read_options=_read_options,
    inside=_warn_inside,
    collected=_warn_collected,
    guarding=_guarding,
    entering_codes=ENTERING_CODES,
)
os.register_at_fork(after_in_child=_core.after_fork)
atexit.register(_core.at_exit)
