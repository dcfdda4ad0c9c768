"""The arguments of regions: arrays, alone or in In, Out and InOut, and Scratch."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, NoReturn, final

import numpy as np

from . import _core
from ._signatures import telling
from .devices import Device, by_number, check_shape, gpu_backend, is_name
from .display import answering, shown, with_article
from .dtypes import as_dtype, c_strides, code_of, converted, of_parameter, refuse_masked
from .errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    OffloadError,
    SizeOverflowError,
    StalePointerError,
    WrongDeviceError,
)
from .pointers import DevicePtr

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

__all__ = ["In", "InOut", "Out", "Scratch"]

_MAX_SIZE: Final = 2**63 - 1
_MAX_ADDRESS: Final = 2**64 - 1
_DLPACK_HOST: Final = (1, 3)  # DLPack's device types of plain and of pinned host memory


class _Direction(type):
    """Make In[np.float32] a parameter of a kernel's signature."""

    def __getitem__(cls, dtype: DTypeLike) -> Parameter:
        return Parameter(cls, of_parameter(f"{cls.__name__}[dtype]: dtype", dtype))


@answering({name: f"array.{name}" for name in ("shape", "dtype", "size", "nbytes", "ndim", "T")})
@telling
class _Declared(metaclass=_Direction):
    """Set the direction in which an array is lent."""

    __slots__ = ("array",)

    def __init__(self, array: Any, *wrong: Any) -> None:
        if wrong:
            name = type(self).__name__
            raise ArgumentTypeError(f"{name}: needs one array, got {1 + len(wrong)}: write {name}(x), {name}(y)")
        self.array = array

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.array!r})"


class DeviceMemory(NamedTuple):
    """Existing memory of a device, such as a variable of a module."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    address: int
    device: int  #: the device's number


class Parameter(NamedTuple):
    """A pointer parameter of a kernel: a direction and the dtype of its elements."""

    direction: type[Any]  #: In, Out or InOut
    dtype: np.dtype[Any]
    partition: Any = None  #: a partition of offload_args.kernels; None if it is not declared

    def by(self, partition: object) -> Parameter:
        """Return the parameter with a partition of its array among threads, as in Out[np.float32].by(Tiles(16, 16)).

        Each launch then checks that every element has an owner, and `launch` and `offload` take grid and block from the
        partition.

            from offload_args.kernels import Linear1D
            print(Out[np.float32].by(Linear1D()))  # Out[float32].by(Linear1D())

        See also: kernels.Linear1D, kernels.Tiles, kernel; docs/guide/kernels.md.
        """
        return self._replace(partition=partition)

    def __call__(self, *arguments: object, **keywords: object) -> NoReturn:
        raise ArgumentTypeError(
            f"{self!r} is the parameter of a kernel, and lends no array: write {self.direction.__name__}(x)"
        )

    def __repr__(self) -> str:
        by = "" if self.partition is None else f".by({self.partition!r})"
        return f"{self.direction.__name__}[{self.dtype}]{by}"


@final
class In(_Declared):
    """Lend an array for reading only: it is never copied back, and writing it raises DirectionError.

        x, y = np.array([1.0, 2.0]), np.ones(2)
        with offload_args(In(x), y) as (dx, dy):
            blas.axpy(10.0, dx, dy)
        print(y)  # [11. 21.]

    In a kernel's signature, In[np.float32] is an array that the kernel reads.

    See also: Out, InOut, Scratch, offload_args; docs/guide/regions.md.
    """

    __slots__ = ()


@final
class Out(_Declared):
    """Lend an array for writing only: it is never copied up, and reading it before a write raises DirectionError.

        x, y = np.array([1.0, 2.0]), np.empty(2)
        with offload_args(x, Out(y)) as (dx, dy):
            blas.copy(dx, dy)
        print(y)  # [1. 2.]

    In a kernel's signature, Out[np.float32] is an array of which the kernel writes every element: the elements that it
    leaves out come down undefined, without a warning.

    See also: In, InOut, Scratch, offload_args; docs/guide/regions.md.
    """

    __slots__ = ()


@final
class InOut(_Declared):
    """Lend an array for reading and writing.

        x = np.array([1.0, 2.0])
        with offload_args(InOut(x)) as (dx,):
            blas.scal(10.0, dx)
        print(x)  # [10. 20.]

    In a kernel's signature, InOut[np.float32] is an array that the kernel reads and writes.

    See also: In, Out, Scratch, offload_args; docs/guide/regions.md.
    """

    __slots__ = ()


@answering(
    {
        **dict.fromkeys(("ndim", "size", "nbytes", "T", "fill", "to_host"), "the pointer of the region, which has it"),
    }
)
@telling
@final
class Scratch:
    """Request device memory of a shape and dtype, without a host array.

    shape, dtype, order: as numpy.empty takes them; "F" is the order of LAPACK's matrices. The memory is not cleared:
    its elements are undefined until a call writes them.

        A, x, y = np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones(2), np.empty(2)
        with offload_args(A, x, y, Scratch(2)) as (dA, dx, dy, dw):
            blas.gemv(1.0, dA, dx, 0.0, dw)  # the result stays on the device
            blas.gemv(1.0, dA, dw, 0.0, dy)
        print(y)  # [17. 37.]

    Raises ArgumentError for a negative extent or another order, ArgumentTypeError for an extent that is not an integer,
    SizeOverflowError for a size of more than 63 bits, DTypeError for a dtype that devices can't hold.

    See also: In, Out, InOut, empty, offload_args; docs/guide/regions.md.
    """

    __slots__ = ("dtype", "shape", "strides")

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]  #: in bytes

    def __init__(
        self, shape: int | tuple[int, ...], dtype: DTypeLike = np.float64, *, order: Literal["C", "F"] = "C"
    ) -> None:
        self.dtype = as_dtype("Scratch", dtype, shape)
        if code_of(self.dtype) < 0:
            raise DTypeError(
                f"Scratch: dtype needs a dtype of numbers, such as np.float64, which devices can hold; got {self.dtype}"
            )
        extents = shape if isinstance(shape, (tuple, list)) else (shape,)
        try:
            self.shape = tuple(operator.index(extent) for extent in extents)
        except TypeError:
            got = shown(shape)
            if isinstance(shape, (np.ndarray, DevicePtr)):
                got = "an array: write Scratch(x.shape, x.dtype); a region lends the array x itself, offload_args(x)"
            raise ArgumentTypeError(f"Scratch: shape needs whole numbers, got {got}") from None
        check_shape("Scratch", self.shape, self.dtype)
        if order not in ("C", "F"):
            raise ArgumentError(f'Scratch: order needs "C" or "F", got {shown(order)}')
        strides = c_strides(self.shape[:: 1 if order == "C" else -1], self.dtype.itemsize)
        self.strides = strides if order == "C" else strides[::-1]

    def __repr__(self) -> str:
        order = "" if self.strides == c_strides(self.shape, self.dtype.itemsize) else ', order="F"'
        return f"Scratch({self.shape}, {self.dtype.name}{order})"


def resolve(argument: Any, position: int, device: int) -> Any:
    """Return an argument other than a plain ndarray as an ndarray, or as a description of device memory.

    position: counted from 1. device: the number of the region's device; -1 if it is not chosen yet. The description is
    a tuple (dtype, shape, strides, address, flags, device, stream).

    Raises ArgumentTypeError, DTypeError, StalePointerError or WrongDeviceError; each error names the position.
    """
    subject, declared = f"offload_args: argument {position}", ""
    if isinstance(argument, Scratch):
        return code_of(argument.dtype), argument.shape, argument.strides, 0, 0, -1, None
    if isinstance(argument, _Declared):
        declared = type(argument).__name__
        argument = argument.array
        if isinstance(argument, (_Declared, Scratch)):
            raise ArgumentTypeError(f"{subject}: a direction around {type(argument).__name__}; give one of them")
    if isinstance(argument, DeviceMemory):
        strides = c_strides(argument.shape, argument.dtype.itemsize)
        code = code_of(argument.dtype)
        return code, argument.shape, strides, argument.address, _core.OA_BORROWED, argument.device, None
    refuse_masked(subject, argument)
    if isinstance(argument, np.ndarray):
        return argument
    if isinstance(argument, DevicePtr):
        if not argument.live:
            raise StalePointerError(f"{subject} is a device pointer of a region that has ended: lend the array again")
        raise ArgumentTypeError(f"{subject} is a device pointer, on {argument.device} already: use it directly")
    if isinstance(argument, np.generic):
        raise ArgumentTypeError(f"{subject} is the scalar {argument!r}: pass np.array(x), or the number to the call")
    kind = type(argument).__name__
    if kind == "array":
        kind = f"{type(argument).__module__}.array"
    if type(argument).__module__.startswith("scipy.sparse"):
        raise ArgumentTypeError(
            f"{subject} is the sparse {kind}, not an array: lend it by sparse.lend(x), or the arrays that it consists "
            "of, such as x.data and x.indices, or x.toarray()"
        )
    if isinstance(argument, type):
        raise ArgumentTypeError(f"{subject} is the class {argument.__name__}, not an array: pass an array")
    interface = getattr(argument, "__cuda_array_interface__", None)
    if interface is not None:
        return _borrow(argument, interface, subject, device)
    if hasattr(argument, "__dlpack__"):
        return _from_dlpack(argument, subject)
    if hasattr(argument, "__array_interface__") or hasattr(argument, "__array_struct__"):
        return _from_interface(argument, subject)
    if isinstance(argument, _core.Region):
        raise ArgumentTypeError(
            f"{subject} is a region, not an array: enter it, with region as (dx, ...), or pass arrays"
        )
    if isinstance(argument, Device) or (isinstance(argument, str) and is_name(argument)):
        raise ArgumentTypeError(
            f'{subject} is the device {argument}, not an array: pass it by name, device="{argument}"'
        )
    if declared in ("Out", "InOut") and _is_shape(argument):
        raise ArgumentTypeError(
            f"{subject} is {declared}({shown(argument)}), whose {kind} is not an array: make the array first, "
            f"y = np.empty({shown(argument)}), and lend {declared}(y); Scratch({shown(argument)}) is memory of the "
            f"device alone"
        )
    if argument is None or isinstance(argument, str):
        raise ArgumentTypeError(f"{subject} is {shown(argument)}, not an array: pass an array, or leave it out")
    if isinstance(argument, (bool, int, float, complex)):
        raise ArgumentTypeError(f"{subject} is {kind}, not an array: pass np.array(x), or the value to the call itself")
    if isinstance(argument, (list, tuple)) and any(isinstance(part, np.ndarray) for part in argument):
        raise ArgumentTypeError(
            f"{subject} is {with_article(kind)} of arrays, not an array: pass each of them as an argument, *x, or pass "
            "np.stack(x)"
        )
    if isinstance(argument, dict) and any(isinstance(part, np.ndarray) for part in argument.values()):
        raise ArgumentTypeError(
            f"{subject} is {with_article(kind)} of arrays, not an array: pass each of them as an argument, *x.values()"
        )
    raise ArgumentTypeError(f"{subject} is {kind}, not an array: {_array_of(argument)}")


def _array_of(argument: object) -> str:
    """Return the remedy that makes an array of another object, in the same memory if it has some."""
    if isinstance(argument, (bytes, bytearray)):
        return "pass x = np.frombuffer(x, dtype), which has the same memory"
    if isinstance(argument, Iterator):
        return "pass x = np.array(list(x)), and read the results from x"
    if isinstance(argument, (dict, set, frozenset, BuiltinFunctionType, FunctionType)):
        return "pass an array"
    try:
        memoryview(argument)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        if hasattr(type(argument), "__enter__") and not hasattr(type(argument), "__len__"):
            outside = "with c, offload_args(x) as (dx,)"
            return f"it is a context manager: enter it first, {outside}: where c is {shown(argument)}"
        return "pass x = np.array(...), a copy, and read the results from x"
    return "pass x = np.asarray(x), which has the same memory"


def _is_shape(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, tuple) and all(isinstance(extent, int) for extent in value))


def _from_dlpack(argument: Any, subject: str) -> NDArray[Any]:
    if _dlpack_device(argument, subject)[0] not in _DLPACK_HOST:
        raise ArgumentTypeError(
            f"{subject}: {type(argument).__name__} is on a device and has no __cuda_array_interface__: "
            "pass one that has"
        )
    try:
        return np.from_dlpack(argument)
    except OffloadError:  # the argument's export raised an error of this package
        raise
    except (BufferError, RuntimeError, TypeError) as error:
        raise ArgumentTypeError(
            f"{subject}: {type(argument).__name__} can't be viewed as an array with no copy ({error}): pass an ndarray"
        ) from error


def _dlpack_device(argument: Any, subject: str) -> tuple[int, int]:
    pair = argument.__dlpack_device__()
    try:
        kind, index = pair
        return operator.index(kind), operator.index(index)
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"{subject}: {type(argument).__name__}.__dlpack_device__ needs to return two integers, got {pair!r}"
        ) from None


def _from_interface(argument: Any, subject: str) -> NDArray[Any]:
    try:
        return np.asarray(argument)
    except OffloadError:
        raise
    except (OverflowError, TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"{subject}: {type(argument).__name__} can't be viewed as an array ({error}): pass an ndarray"
        ) from error


def _borrow(argument: Any, interface: Any, subject: str, device: int) -> tuple[Any, ...]:
    kind = type(argument).__name__
    if not isinstance(interface, dict):
        raise ArgumentTypeError(f"{subject}: {kind}.__cuda_array_interface__ needs to be a dict, got {interface!r}")
    if interface.get("mask") is not None:
        raise ArgumentTypeError(f"{subject}: {kind} has a mask, which would be lost")
    try:
        dtype = np.dtype(interface["typestr"])
        shape = tuple(map(operator.index, interface["shape"]))
        strides = interface.get("strides")
        strides = c_strides(shape, dtype.itemsize) if strides is None else tuple(map(operator.index, strides))
        address, read_only = interface["data"]
        address = operator.index(address or 0)
        stream = interface.get("stream")
        stream = None if stream is None else operator.index(stream)
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"{subject}: {kind}.__cuda_array_interface__ is not as its version 3 has it "
            f"({type(error).__name__}: {error}): {interface!r}"
        ) from None
    code = code_of(dtype)
    if code < 0:
        raise DTypeError(f"{subject}: {kind} has dtype {dtype!r}{_advice(dtype)}")
    check_shape(f"{subject}: {kind}", shape, dtype)
    if len(strides) != len(shape):
        raise ArgumentError(
            f"{subject}: {kind} has shape {shape} and strides {strides}: needs a stride for each extent"
        )
    if any(abs(stride) > _MAX_SIZE for stride in strides):
        raise SizeOverflowError(f"{subject}: {kind} has strides {strides}, which do not fit 64 bits")
    if not 0 <= address <= _MAX_ADDRESS or not 0 <= (stream or 0) <= _MAX_ADDRESS:
        raise SizeOverflowError(
            f"{subject}: {kind} has the address {address} and the stream {stream}: both need 0 to {_MAX_ADDRESS}"
        )
    kind_of_device, index = _dlpack_device(argument, subject) if hasattr(argument, "__dlpack_device__") else (None, 0)
    backend = gpu_backend(kind_of_device)
    if backend is None:
        raise ArgumentTypeError(
            f"{subject}: {kind} is on DLPack device {kind_of_device}, not on a GPU that can be used here"
        )
    home = Device(f"{backend}:{index}")
    if device not in (-1, home.number):
        raise WrongDeviceError(
            f'{subject}: {kind} is on {home}, the region on {by_number(device)}: pass device="{home}" or a host array'
        )
    flags = _core.OA_BORROWED | (_core.OA_READ_ONLY if read_only else 0)
    return code, shape, strides, address, flags, home.number, stream


def refuse(array: NDArray[Any], position: int | str) -> None:
    """Raise DTypeError for an array that can't be lent without a conversion.

    position: the argument, counted from 1, or its name.
    """
    dtype = array.dtype
    subject = position if isinstance(position, str) else f"offload_args: argument {position}"
    raise DTypeError(f"{subject} has dtype {dtype}, which devices can't hold{_advice(dtype)}")


def _advice(dtype: np.dtype[Any]) -> str:
    if not dtype.isnative and code_of(dtype.newbyteorder("=")) >= 0:
        return ': its bytes are in the other order: convert it first: x = x.astype(x.dtype.newbyteorder("="))'
    if dtype.fields is not None:
        size = dtype.itemsize
        return (
            f": pass one field, made contiguous, np.ascontiguousarray(x[name]), or, to a kernel of such structs, their "
            f"bytes, x.view((np.uint8, {size})), which offload does itself"
        )
    if dtype.kind in "mM":
        return ": pass x.view(np.int64)"
    if dtype.kind == "f":
        return f": {converted('x', 'float64')}"
    if dtype.kind == "c":
        return f": {converted('x', 'complex128')}"
    return ": lend an array of numbers, such as x = x.astype(np.float64)"


_NUMBERS = frozenset((float, int, complex, bool, str, type(None)))


def is_array(argument: object) -> bool:
    """Return whether call() lends an argument; other arguments are passed on unchanged."""
    if type(argument) in _NUMBERS:  # these types are the most frequent ones, and the checks below are slowest for them
        return False
    if isinstance(argument, (np.ndarray, _Declared, Scratch)):
        return True
    if isinstance(argument, (DevicePtr, np.generic, type)):
        return False
    return hasattr(argument, "__cuda_array_interface__") or hasattr(argument, "__dlpack__")
