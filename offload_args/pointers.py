"""DevicePtr: a region's pointer to an array. It can be passed to device libraries, and can't be used on the host."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self

import numpy as np

from . import _core
from .devices import Device, by_number
from .display import html_table, nearest, plural, shown, size_text
from .dtypes import DTYPE_NAMES, as_array, c_strides, dtype_of, newest, ordered, spelled
from .errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    ExtentError,
    HostAccessError,
    HostAttributeError,
    HostPointerError,
    OffloadError,
    SizeOverflowError,
    StalePointerError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from typing_extensions import TypeVar

    # A DevicePtr without a parameter has any dtype.
    T_co = TypeVar("T_co", bound=np.generic, covariant=True, default=Any)
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", bound=np.generic, covariant=True)

__all__ = ["DevicePtr"]

_MAX_STRIDE: Final = 2**63 - 1
# {NumPy's kind of a dtype: DLPack's type code}. Dtypes that NumPy lacks have separate codes.
_DLPACK_CODES: Final = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_DLPACK_OWN_CODES: Final = {_core.OA_BF16: 4, _core.OA_F8E4M3: 10, _core.OA_F8E5M2: 12}
# {kind of a dtype: its rank}. A Python number may be converted to a dtype of the same or a higher rank, because it then
# loses at most precision.
_RANKS: Final = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}


class DevicePtr(_core.Pointer, Generic[T_co]):
    """Point to an array, or a part of an array, on a device.

    Regions make pointers; `DevicePtr[np.float32]` is their type for static checkers. Pointers have no meaning on the
    host, so operations that need the values on the host raise HostAccessError. After the end of its region, only
    `repr`, `live`, `shape`, `dtype` and other descriptions of a pointer work; all other operations raise
    StalePointerError. `is` tests whether two pointers are the same object.

        A = np.ones((3, 4))
        with offload_args(A) as (dA,):
            print(dA.shape, dA.dtype, dA.nbytes, dA.ld)  # (3, 4) float64 96 4
            print(dA.T.shape, dA[1:, :2].shape)  # (4, 3) (2, 2)
        print(dA.live)  # False

    See also: offload_args, Scratch; docs/guide/contents.md.
    """

    __slots__ = ()

    def __new__(cls, *_: object, **__: object) -> Self:
        raise HostAccessError(
            "DevicePtr: pointers are made by regions: with offload_args(x) as (dx,), or Scratch(shape, dtype)"
        )

    # -- the description -------------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[T_co]:
        """The NumPy dtype of the elements."""
        return dtype_of(self._dtype_code)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents, in elements."""
        return self._shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The distances between neighbours on the device, in bytes."""
        return self._strides

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the elements, without the gaps between elements."""
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> Device:
        """The device that has the memory."""
        return by_number(self._device)

    @property
    def live(self) -> bool:
        """Whether the pointer's region is still open."""
        return _core.alive(self)

    @property
    def ld(self) -> int:
        """The leading dimension of a matrix, in elements.

        For a matrix in Fortran order, it is the distance between columns. For a matrix in C order, it is the distance
        between rows, which a column-major library reads as the columns of the transpose. For a single row or column, it
        is the distance between elements, in either order. For a matrix with one column, a column-major library needs at
        least the number of rows. The functions of this package pass max(ld, rows); callers of other functions have to
        pass it themselves.

        Raises ArgumentError, a ValueError, if there are not two dimensions, or if the order is neither C nor Fortran.
        """
        if len(self._shape) != 2:
            raise ArgumentError(
                f"DevicePtr.ld: needs 2 dimensions, has {len(self._shape)}"
                + ("; a vector has an increment: strides[0] // dtype.itemsize" if len(self._shape) == 1 else "")
            )
        itemsize = self.dtype.itemsize
        (rows, columns), (down, across) = self._shape, self._strides
        if rows == columns == 1:
            return 1
        if rows and columns and (rows == 1 or columns == 1):
            step = across if rows == 1 else down
            if step > 0 and step % itemsize == 0:
                return step // itemsize
        elif across == itemsize and down % itemsize == 0 and down // itemsize >= max(columns, 1):
            return down // itemsize
        elif down == itemsize and across % itemsize == 0 and across // itemsize >= max(rows, 1):
            return across // itemsize
        elif not rows or not columns:  # NumPy may set the strides to 0; this value is large enough in either order
            return max(rows, columns, 1)
        raise ArgumentError(
            f"DevicePtr.ld: shape {self._shape} with strides {self._strides} is neither C nor Fortran order; "
            f"{ordered('A', self)}"
        )

    @property
    def T(self) -> DevicePtr[T_co]:
        """The transpose, in the same memory."""
        return self._view(0, self._shape[::-1], self._strides[::-1])

    # -- slices ----------------------------------------------------------------------------------------------

    def _view(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> DevicePtr[T_co]:
        # `offset` counts from the first element. The core counts from the lowest byte, which is elsewhere if axes are
        # reversed.
        if 0 not in shape:
            reversed_axes = ((n, step) for n, step in zip(self._shape, self._strides, strict=True) if step < 0)
            offset += sum((1 - n) * step for n, step in reversed_axes)
        pointer: DevicePtr[T_co] = _core.view(self, offset, shape, strides)
        return pointer

    def __getitem__(self, key: Any) -> DevicePtr[T_co]:
        """Point to a part of the array, with separate bounds.

        key: slices, `...`, np.newaxis, and integers, which remove a dimension.

        Raises HostAccessError for a key that selects a single element or needs a copy, and IndexError for an index
        beyond the end.

            A = np.zeros((3, 4))
            with offload_args(A) as (dA,):
                dA[1].fill(1.0)     # a row
                dA[:, 3].fill(2.0)  # a column
            print(A[1])  # [1. 1. 1. 2.]

        See also: DevicePtr.reshape, DevicePtr.offset; docs/guide/layouts.md.
        """
        keys = key if isinstance(key, tuple) else (key,)
        for item in keys:
            whole = isinstance(item, (int, np.integer)) and not isinstance(item, (bool, np.bool_))
            if not (item is None or item is Ellipsis or isinstance(item, slice) or whole):
                raise HostAccessError(
                    f"DevicePtr: can't be indexed with {type(item).__name__}: slices and integers only, as "
                    "nothing is copied; index the host array before lending it"
                )
        taken = sum(item is not None and item is not Ellipsis for item in keys)
        if sum(item is Ellipsis for item in keys) > 1:
            raise IndexError("DevicePtr: a key can have only one `...`")
        if taken > len(self._shape):
            raise IndexError(
                f"DevicePtr: {taken} indices for {len(self._shape)} {plural('dimension', len(self._shape))}"
            )
        if Ellipsis not in keys:
            keys = (*keys, Ellipsis)
        offset, axis = 0, 0
        shape: list[int] = []
        strides: list[int] = []
        for item in keys:
            if item is None:
                shape.append(1)
                strides.append(0)
            elif item is Ellipsis:
                rest = len(self._shape) - taken
                shape += self._shape[axis : axis + rest]
                strides += self._strides[axis : axis + rest]
                axis += rest
            else:
                extent, stride = self._shape[axis], self._strides[axis]
                if isinstance(item, slice):
                    start, stop, step = item.indices(extent)
                    shape.append(len(range(start, stop, step)))
                    # A step beyond the end is never taken; its length is cut so that the stride fits 64 bits.
                    most = _MAX_STRIDE // max(abs(stride), 1)
                    strides.append(stride * max(-most, min(step, most)))
                    offset += start * stride
                else:
                    index = int(item)
                    if not -extent <= index < extent:
                        raise IndexError(
                            f"DevicePtr: index {shown(index)} is out of bounds for axis {axis} of {extent} "
                            f"{plural('element', extent)}"
                        )
                    offset += (index + extent if index < 0 else index) * stride
                axis += 1
        if not shape and (self._shape or key == ()):
            raise HostAccessError(
                "DevicePtr: an element can't be read on the host; slice (dx[i:i+1]) to point to it, or use to_host()"
            )
        return self._view(offset if 0 not in shape else 0, tuple(shape), tuple(strides))

    def offset(self, n: int) -> DevicePtr[T_co]:
        """Point n elements further, as `p + n` does in C; the result is a vector up to the end of the memory.

        Raises ExtentError if the new place is before the beginning or past the end, ArgumentError if a stride is
        negative, and ArgumentTypeError if n is not an integer.

            x = np.arange(5.0)
            with offload_args(x) as (dx,):
                print(dx.offset(3).to_host())  # [3. 4.]

        See also: DevicePtr.__getitem__, DevicePtr.reshape; docs/guide/layouts.md.
        """
        itemsize = self.dtype.itemsize
        try:
            n = operator.index(n)
        except TypeError:
            raise ArgumentTypeError(f"DevicePtr.offset: n needs a whole number of elements, got {shown(n)}") from None
        if any(stride < 0 for stride in self._strides):
            raise ArgumentError("DevicePtr.offset: a stride is negative; slice instead")
        count = _core.query(self).nbytes // itemsize
        if not 0 <= n <= count:
            raise ExtentError(f"DevicePtr.offset: n needs 0 to {count}, the elements there are, got {shown(n)}")
        return self._view(n * itemsize, (count - n,), (itemsize,))

    def reshape(self, *shape: int | Sequence[int]) -> DevicePtr[T_co]:
        """Point to the same elements in another shape, in C order.

        shape: numbers, or one tuple of them; one may be -1. Nothing is copied.

        Raises ArgumentError if the sizes differ, or if no strides describe the elements in the new shape. Raises
        ArgumentTypeError for an extent that is not a whole number.

            x = np.arange(6.0)
            with offload_args(x) as (dx,):
                print(dx.reshape(2, -1).to_host())  # [[0. 1. 2.]
                                                    #  [3. 4. 5.]]

        See also: DevicePtr.__getitem__, DevicePtr.offset; docs/guide/layouts.md.
        """
        new = _extents("DevicePtr.reshape", shape, self._shape)
        strides = _strides_without_copy(self._shape, self._strides, new, self.dtype.itemsize)
        if strides is None:
            raise ArgumentError(
                f"DevicePtr.reshape: shape {self._shape} with strides {self._strides} can't be viewed as {new} with no "
                f"copy: make one, Scratch({self._shape}, np.{self.dtype.name}) and copy_from, and reshape that"
            )
        return self._view(0, new, strides)

    # -- the contents ----------------------------------------------------------------------------------------

    def assign(self, values: object) -> None:
        """Write host values to the device now.

        values: an array of the same dtype, or a Python number that fits this dtype. They are broadcast to the pointer's
        shape. Other dtypes are not converted. The elements of a lent array come down first if the device is newer.

        Raises DTypeError for another dtype; SizeOverflowError for a number beyond the dtype's range; ArgumentError, a
        ValueError, for a shape that does not fit; DirectionError if the array may not be written.

            x = np.zeros(3)
            with offload_args(x) as (dx,):
                dx.assign(np.array([1.0, 2.0, 3.0]))
                dx[:1].assign(7)
            print(x)  # [7. 2. 3.]

        See also: DevicePtr.fill, DevicePtr.copy_from, update; docs/guide/contents.md.
        """
        if isinstance(values, DevicePtr):
            raise HostAccessError("DevicePtr.assign: values are on a device already; use copy_from")
        array = _values("DevicePtr.assign: values", values, self.dtype)
        if array.shape != self._shape:
            try:
                array = np.broadcast_to(array, self._shape)
            except ValueError:
                raise ArgumentError(
                    f"DevicePtr.assign: values of shape {array.shape} can't be broadcast to shape {self._shape}; "
                    f"{_fitting(array.shape, self._shape)}"
                ) from None
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned and type(array) is np.ndarray):
            array = np.require(array, requirements=["C", "ALIGNED", "ENSUREARRAY"])
        _core.assign(self, array)

    def fill(self, value: object) -> None:
        """Set every element to a number; only the number goes to the device.

        value: a Python number that fits the dtype, or a NumPy scalar of it. The fill runs in order with the calls:
        earlier calls read the old elements.

        Raises DTypeError for another dtype; SizeOverflowError for a number beyond the dtype's range; DirectionError if
        the array may not be written.

            x = np.empty(3)
            with offload_args(x) as (dx,):
                dx.fill(2.5)
            print(x)  # [2.5 2.5 2.5]

        See also: DevicePtr.assign, DevicePtr.copy_from; docs/guide/contents.md.
        """
        if isinstance(value, DevicePtr):
            raise HostAccessError("DevicePtr.fill: value is on a device; use copy_from, or value.to_host()[()]")
        shape = getattr(value, "shape", ())
        if isinstance(value, (list, tuple)) or shape != ():
            got = shown(value) if isinstance(value, (list, tuple)) else f"shape {shape}"
            raise ArgumentError(f"DevicePtr.fill: value needs one number, got {got}; use assign(values)")
        _core.fill(self, _values("DevicePtr.fill: value", value, self.dtype))

    def copy_from(self, source: DevicePtr[Any]) -> None:
        """Copy the elements of another pointer to the elements of this pointer, on the device.

        source: a pointer of the same dtype, shape and device, with no element in common. The copy runs in order with
        the calls.

        Raises DTypeError, ArgumentError or WrongDeviceError for another dtype, shape or device; AliasError if the two
        overlap; DirectionError if the source may not be read or this pointer may not be written. In the check for
        overlaps, slices with steps along two axes include all bytes between their elements.

            x = np.ones(3)
            with offload_args(x, Scratch(3, np.float64)) as (dx, dold):
                dold.copy_from(dx)
                blas.scal(5.0, dx)
                blas.axpy(1.0, dold, dx)
            print(x)  # [6. 6. 6.]

        See also: DevicePtr.assign, DevicePtr.fill, blas.copy; docs/guide/contents.md.
        """
        if not isinstance(source, DevicePtr):
            raise HostPointerError(
                f"DevicePtr.copy_from: source needs a DevicePtr, got {type(source).__name__}; assign(values) writes "
                "host values"
            )
        if source._shape != self._shape:
            raise ArgumentError(
                f"DevicePtr.copy_from: source needs shape {self._shape}, got {source._shape}; slice or reshape it"
            )
        _core.copy(self, source)

    def to_host(self) -> NDArray[T_co]:
        """Return the present elements on the device as a new NumPy array in C order.

        The function waits for earlier calls. It does not change the lent array, and results still come down when the
        region is left.

        Raises DirectionError for an Out that is not written yet, and InvalidDataError if a failed call left the array
        undefined.

            x = np.ones(3)
            with offload_args(x) as (dx,):
                blas.scal(2.0, dx)
                print(dx.to_host())  # [2. 2. 2.]

        See also: update, DevicePtr.assign; docs/guide/contents.md.
        """
        values: NDArray[T_co] = np.empty(self._shape, self.dtype)
        _core.read(self, values)
        return values

    # -- for code outside ------------------------------------------------------------------------------------

    def cdata(self, ffi: Any, c_type: str | None = None) -> Any:
        """Return the pointer as a cffi pointer, for your own cffi library.

        ffi: cffi's object for this library. c_type: the pointer type, such as "float *"; None stands for the type of
        the dtype. If `c_type` points to a type of the core, such as "oa_f32 *", the result is the handle, which the
        core's functions take. Otherwise the result is the address, and the rules of `address` hold: accesses through
        the address are not checked.

        Raises DTypeError if the elements are not of this type, ArgumentTypeError if ffi is not an FFI object, and the
        errors of `address`.

            ffi, x = cffi.FFI(), np.ones(3)
            with offload_args(x) as (dx,):
                print(ffi.typeof(dx.cdata(ffi)))  # <ctype 'double *'>

        See also: call; docs/guide/cffi.md.
        """
        from ._cffi import cdata

        return cdata(self, ffi, c_type)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory, as version 3 of the CUDA array interface describes it to other packages."""
        self._need_gpu("__cuda_array_interface__")
        writable = _core.query(self).writable
        dtype = self.dtype
        packed = self._strides == c_strides(self._shape, dtype.itemsize)
        return {
            "version": 3,
            "shape": self._shape,
            "typestr": dtype.str,
            "data": (_core.export(self), not writable),
            "strides": None if packed else self._strides,
            "stream": None,  # None, because the export waited for all work
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's (device type, index)."""
        self._need_gpu("__dlpack_device__")
        return self.device._info.dlpack_type, self.device.index

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the memory as a DLPack capsule, which outlives the region.

        Any stream of the consumer may read the data immediately.

        Raises BufferError for a request that can't be met: a copy, another device, or a read-only pointer for a
        consumer that does not support the read-only flag.
        """
        kind, index = self.__dlpack_device__()
        writable = _core.query(self).writable
        versioned = max_version is not None and max_version[0] >= 1
        if copy:
            raise BufferError("DevicePtr.__dlpack__: a pointer is exported as it is, never copied")
        if dl_device is not None and tuple(dl_device) != (kind, index):
            raise BufferError(f"DevicePtr.__dlpack__: it is on {self.device}, not on DLPack device {dl_device}")
        if not writable and not versioned:
            raise BufferError("DevicePtr.__dlpack__: it is read-only, which needs max_version=(1, 0) or later")
        dtype = self.dtype
        code = _DLPACK_OWN_CODES.get(self._dtype_code)
        if code is None:
            code = _DLPACK_CODES[dtype.kind]
        return _core.dlpack(self, versioned, not writable, kind, index, code, 8 * dtype.itemsize)

    def _need_gpu(self, name: str) -> None:
        if not self.live:
            raise StalePointerError(f"DevicePtr.{name}: the pointer belongs to a region that has ended")
        if not self.device.is_gpu:
            raise HostAttributeError(
                f"DevicePtr.{name}: the pointer is on {self.device}; only memory of GPUs can be exported. Leave the "
                "region and use the host array"
            )

    # -- operations that need the host -----------------------------------------------------------------------

    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise HostAccessError(
            "DevicePtr: elements can't be written on the host; use assign(values) or fill(value) on a slice, or "
            "`with update(x):` on the host array"
        )

    def __format__(self, specification: str) -> str:
        """Return `str`; refuse a format for numbers, because it needs the numbers on the host."""
        if specification:
            raise HostAccessError(
                f"DevicePtr: the format {shown(specification)} needs the values on the host; use to_host(), or leave "
                "the region and read the host array"
            )
        return str(self)

    def __array__(self, *arguments: object, **keywords: object) -> NoReturn:
        raise HostAccessError(
            "DevicePtr: device memory is not a host array; use to_host(), or the array that was lent, after its "
            "region; linalg, lapack, blas, fft and sparse have functions that take pointers"
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: object, **keywords: object) -> NoReturn:
        name = f"np.{ufunc.__name__}" if hasattr(np, ufunc.__name__) else ufunc.__name__
        raise HostAccessError(f"DevicePtr: {name} runs on the host; {self._instead_of(ufunc.__name__, inputs)}")

    def __array_function__(self, function: Any, *arguments: object) -> NoReturn:
        name = f"{function.__module__}.{function.__name__}".replace("numpy.", "np.", 1)
        raise HostAccessError(f"DevicePtr: {name} runs on the host; {self._instead_of(function.__name__, ())}")

    def _instead_of(self, name: str, operands: Sequence[object]) -> str:
        from ._instead import instead_of  # only errors need it

        return instead_of(name, DTYPE_NAMES[self._dtype_code], operands)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, (DevicePtr, bool, int, float, complex, np.generic, np.ndarray)):
            raise HostAccessError(
                "DevicePtr: == and != need the values on the host; compare to_host(), or use `is` to tell whether it "
                "is the same pointer"
            )
        return NotImplemented

    __hash__ = object.__hash__

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise HostAccessError(
            "DevicePtr: can't be pickled or copied: it is valid in its region and process only; copy the host array"
        )

    def _state(self) -> str:
        """Return the rights and the state of the bytes, such as "read-only, sent"; after the region, "dead"."""
        try:
            now = _core.query(self)
        except OffloadError:
            return "dead"
        if now.written:
            state = "written" if now.valid else "undefined"
        elif now.borrowed:
            state = "borrowed"
        else:
            state = "sent" if now.valid and not now.scratch else "untouched"
        return state if now.writable else f"read-only, {state}"

    def _layout(self) -> str:
        if len(self._shape) != 2:
            return ""
        try:
            return f"ld={self.ld}"
        except ArgumentError:
            return f"strides={self._strides}"

    def __repr__(self) -> str:
        """Describe the array, its device and the state of its bytes, or state that the pointer is dead."""
        state = self._state()
        state_words = [state] if state == "dead" else [str(self.device), state]
        parts = [
            DTYPE_NAMES[self._dtype_code],
            f"shape={self._shape}",
            self._layout(),
            size_text(self.nbytes),
            *state_words,
        ]
        return f"DevicePtr({', '.join(filter(None, parts))})"

    def _repr_html_(self) -> str:
        rows = [
            ("dtype", DTYPE_NAMES[self._dtype_code]),
            ("shape", f"{self._shape}"),
            ("strides", f"{self._strides}"),
            ("size", size_text(self.nbytes)),
            ("device", str(self.device)),
            ("state", self._state()),
        ]
        return html_table("DevicePtr", (), rows)

    def _missing(self, name: str) -> NoReturn:
        """Refuse an attribute that does not exist. The extension calls this method."""
        from ._instead import SOLVERS, instead_of_attribute, is_known

        if name == "matvec":  # SciPy's solvers ask hasattr, which would only pass on an AttributeError as False
            raise HostAccessError(f"DevicePtr: {SOLVERS}")
        if name == "_as_parameter_":  # ctypes asks for it
            raise HostAccessError("DevicePtr: ctypes takes no pointers; pass dx.address for a parameter of c_void_p")
        if name.startswith("_") or not is_known(name):
            public = [known for known in dir(type(self)) if not known.startswith("_")]
            raise AttributeError(f"DevicePtr has no attribute {name!r}{nearest(name, public)}", name=name)
        remedy = instead_of_attribute(name, DTYPE_NAMES[self._dtype_code])
        raise HostAttributeError(f"DevicePtr.{name}: device pointers don't have it; {remedy}")


def unpacked(name: str, value: object) -> str:
    """Return the remedy for a tuple of pointers, or a region, that was passed for a pointer; "" for any other value."""
    if isinstance(value, _core.Region):
        return f"a region gives its pointers when it is entered: with region as (d{name},)"
    if not isinstance(value, tuple) or not value or not all(isinstance(pointer, DevicePtr) for pointer in value):
        return ""
    names = f"d{name}," if len(value) == 1 else f"d{name}, ..."
    return f"`as` gives a tuple, with a pointer for each array; unpack it: with offload_args(...) as ({names})"


def lent_first(name: str, value: object) -> str:
    """Return the remedy for a host value that was passed instead of a pointer; `name` is A, or A[0] in a list."""
    whole, bracket, _ = name.partition("[")
    if not isinstance(value, np.ndarray):
        if hasattr(value, "__array__") and not isinstance(value, np.generic):
            return f"make an array first, {name} = np.array({name}), and lend it, or pass it to call"
        return "pass the pointer of an array that is lent, or an array to call"
    if bracket:
        return f"lend the whole list first: with offload_args(*{whole}) as d{whole}"
    return f"lend it first: with offload_args({name}) as (d{name},)"


def listed(name: str, value: object, dtype: str = "dtype") -> str:
    """Return the remedy for a list or tuple that was passed instead of an array; "" for any other value."""
    if not isinstance(value, (list, tuple)):
        return ""
    return f"make it an array, {name} = np.asarray({name}, {dtype}), and lend that"


def _values(subject: str, values: object, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return host values as an array of the dtype; only Python numbers that fit are converted."""
    if not isinstance(values, (bool, int, float, complex)):
        array = np.asarray(values) if values is None or isinstance(values, (str, bytes)) else as_array(subject, values)
        if array.dtype != dtype:
            is_number = array.dtype.kind in "biufc"
            got = array.dtype.name if is_number or isinstance(values, np.ndarray) else shown(values)
            raise DTypeError(f"{subject} needs {dtype.name}, got {got}; {_conversion(subject, array, dtype)}")
        newest(array, subject.partition(": ")[0])
        return array
    rank = 0 if isinstance(values, bool) else 1 if isinstance(values, int) else 2 if isinstance(values, float) else 3
    if rank > _RANKS[dtype.kind]:
        part = "value.real" if isinstance(values, complex) else "value"
        converted = {"b": f"bool({part})", "i": f"int({part})", "u": f"int({part})"}.get(dtype.kind, part)
        raise DTypeError(
            f"{subject} needs {dtype.name}, got {type(values).__name__} {values!r}; convert it first: {converted}"
        )
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not limits.min <= values <= limits.max:  # type: ignore[operator]
            raise SizeOverflowError(
                f"{subject} needs {limits.min} to {limits.max} for {dtype.name}, got {shown(values)}"
            )
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(values, dtype)
        overflowed = np.isfinite(complex(values)) and not np.isfinite(array)
    except OverflowError:  # the number is a large int
        overflowed = True
    if overflowed:
        raise SizeOverflowError(f"{subject} needs a number that {dtype.name} can hold, got {shown(values)}")
    return array


def _conversion(subject: str, array: NDArray[Any], dtype: np.dtype[Any]) -> str:
    """Return the remedy for values of another dtype: a conversion that works, if there is one."""
    name = subject.rpartition(" ")[2]
    try:
        if array.dtype.hasobject and (array.dtype.names or any(value is None for value in array.flat)):
            raise TypeError  # NumPy would make NaN of None
        if array.dtype.kind == "c" != dtype.kind:  # NumPy would only warn that it discards a part
            name += ".real"
        else:
            array.astype(dtype)
    except (TypeError, ValueError):
        number = {"b": "True", "i": "2", "u": "2"}.get(dtype.kind, "2.5")
        return f"pass a number, such as {number}" + (
            f", or an array of {spelled(dtype.name)}" if name == "values" else ""
        )
    return f"convert it first: np.asarray({name}, dtype={spelled(dtype.name)})"


def _fitting(shape: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """Return the remedy for values of a shape that can't be broadcast to the pointer's shape."""
    pairs = list(zip(shape, wanted, strict=False))
    if math.prod(shape) == math.prod(wanted):
        return f"pass values.reshape({wanted})"
    if shape == wanted[: len(shape)]:
        return f"pass values[{', '.join([':'] * len(shape) + ['None'] * (len(wanted) - len(shape)))}]"
    if len(shape) == len(wanted) and all(count >= extent for count, extent in pairs):
        return f"pass values[{', '.join(f':{extent}' for extent in wanted)}]"
    if len(shape) == len(wanted) and all(count <= extent for count, extent in pairs):
        return f"a slice takes them: dx[{', '.join(f':{count}' for count in shape)}].assign(values)"
    return "pass a number, or values of that shape"


def _extents(subject: str, lengths: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the new extents from the arguments of reshape; the new shape has as many elements as `shape`."""
    if len(lengths) == 1 and isinstance(lengths[0], (tuple, list)):
        lengths = tuple(lengths[0])
    try:
        new = [operator.index(extent) for extent in lengths]
    except TypeError:
        raise ArgumentTypeError(f"{subject}: shape needs whole numbers, got {shown(lengths)}") from None
    size = math.prod(shape)
    if new.count(-1) == 1 and min(new) == -1:
        rest = -math.prod(new)
        if rest and size % rest == 0:
            new[new.index(-1)] = size // rest
    if any(extent < 0 for extent in new) or math.prod(new) != size:
        raise ArgumentError(f"{subject}: shape {shape} has {size} elements, which {shown(tuple(lengths))} can't have")
    return tuple(new)


def _strides_without_copy(
    shape: tuple[int, ...], strides: tuple[int, ...], new: tuple[int, ...], itemsize: int
) -> tuple[int, ...] | None:
    """Return the strides of the same elements in another shape; None if no strides describe them.

    Axes are taken from the left of both shapes until both parts have equally many elements; the elements of the old
    part must be evenly spaced.
    """
    if 0 in new:
        return c_strides(new, itemsize)
    old = [(extent, step) for extent, step in zip(shape, strides, strict=True) if extent != 1]
    steps: list[int] = []
    at = 0
    while at < len(old):
        count, step = old[at]
        at += 1
        product, first = 1, len(steps)
        while product != count:
            if product < count and len(steps) < len(new):
                product *= new[len(steps)]
                steps.append(0)
            else:
                extent, inner = old[at]
                if step != extent * inner:
                    return None
                count, step, at = count * extent, inner, at + 1
        for axis in reversed(range(first, len(steps))):
            steps[axis] = step
            step *= new[axis]
    return (*steps, *(itemsize for _ in new[len(steps) :]))  # the remaining axes have extent 1


def _refuse(name: str, remedy: str, subject: str = "") -> None:
    fault = subject or f"{name} needs the values on the host"

    def refusing(self: DevicePtr[Any], *arguments: object) -> NoReturn:
        raise HostAccessError(f"DevicePtr: {fault}; {remedy}")

    _set(name, refusing)


def _refuse_operator(operation: str, prefix: str = "") -> None:
    name = f"__{prefix}{operation}__"
    further = "; slices and offset(n) point further on" if operation in ("add", "sub") else ""

    def refusing(self: DevicePtr[Any], *others: object) -> Any:
        if any(getattr(type(other), "__array_ufunc__", "") is None for other in others):
            return NotImplemented  # by NumPy's rule, such a class, as sparse.Matrix is, has the operator itself
        operands = (*others, self) if prefix == "r" else (self, *others)
        raise HostAccessError(
            f"DevicePtr: {name} needs the values on the host; {self._instead_of(operation, operands)}{further}"
        )

    _set(name, refusing)


def _set(name: str, refusing: Callable[..., Any]) -> None:
    refusing.__name__ = name
    refusing.__qualname__ = f"DevicePtr.{name}"
    setattr(DevicePtr, name, refusing)


# The methods are set here, so that static checkers do not find them, and report every use.
for _name in "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or".split():
    for _prefix in ("", "r", "i"):
        if _prefix + _name != "idivmod":
            _refuse_operator(_name, _prefix)
for _name in "lt le gt ge neg pos abs invert round".split():
    _refuse_operator(_name)
_refuse("__len__", "use dx.shape[0], or dx.size", "len() is for values on the host")
_refuse(
    "__iter__",
    "dA[i], of `for i in range(dA.shape[0])`, points to a row of a matrix, dx[i:i+1] to an element; to_host() has the "
    "values that are there now",
    "iteration needs the values on the host",
)
_refuse("__contains__", "use `in dx.to_host()`", "`in` needs the values on the host")
_refuse(
    "__reversed__",
    "dx[::-1] points to them backwards, and to_host() has those that are there now",
    "reversed() needs the values on the host",
)
for _name in "float int complex index bool trunc".split():
    _refuse(f"__{_name}__", "use to_host(), or leave the region and read the host array")
_refuse("__delitem__", "slices point to some of the elements")
for _name in "copy deepcopy".split():
    _refuse(f"__{_name}__", "use copy_from into a Scratch, or to_host()")
