"""DevicePtr: what a region gives for an array. It can be passed to device libraries and nothing else."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self, TypeVar

import numpy as np

from . import _array
from .device import Device, by_number
from .errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    ExtentError,
    HostAccessError,
    HostAttributeError,
    StalePointerError,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DevicePtr"]

T_co = TypeVar("T_co", bound=np.generic, covariant=True)

# By oa_dtype.
DTYPE_NAMES: Final = (
    "any",
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
_BFLOAT16: Final = DTYPE_NAMES.index("bfloat16")
# DLPack's type codes, by NumPy's kind; bfloat16 has its own.
_DLPACK_CODES: Final = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_DLPACK_BFLOAT: Final = 4
_DLPACK_CUDA: Final = 2
# What a Python number may become without losing anything but precision: kinds in rising order.
_RANKS: Final = {"b": 0, "i": 1, "u": 1, "f": 2, "V": 2, "c": 3}

_DTYPES: dict[int, np.dtype[Any]] = {
    code: np.dtype(name) for code, name in enumerate(DTYPE_NAMES) if code not in (0, _BFLOAT16)
}


def dtype_of(code: int) -> np.dtype[Any]:
    """Return the NumPy dtype of an oa_dtype."""
    dtype = _DTYPES.get(code)
    if dtype is None:
        import ml_dtypes  # only who has it can have made such an array

        dtype = _DTYPES[code] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def code_of(dtype: np.dtype[Any]) -> int:
    """Return the oa_dtype of a NumPy dtype, or -1 if devices can't hold it."""
    if dtype.isnative and dtype.name in DTYPE_NAMES:
        return DTYPE_NAMES.index(dtype.name)
    return -1


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the strides in bytes of a C-order array with no gaps."""
    strides: list[int] = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


class DevicePtr(_array.Pointer, Generic[T_co]):
    """Point to an array, or a part of one, on a device.

    Regions make them; `DevicePtr[np.float32]` is their type for static checkers. They have no meaning on the host:
    what would need one raises HostAccessError. After their region everything but `repr`, `live` and what describes
    them raises StalePointerError. Two are equal if they are the same object.
    """

    __slots__ = ()

    def __new__(cls, *arguments: object, **keywords: object) -> Self:
        raise HostAccessError(
            "DevicePtr: pointers are made by regions: with offload_args(x) as (dx,), or Scratch(shape, dtype)"
        )

    # -- what it points to -----------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[T_co]:
        """The NumPy dtype of its elements."""
        return dtype_of(self._code)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents, in elements."""
        return self._shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The distances between neighbours in bytes, as they are on the device."""
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
        """The bytes of its elements, without gaps between them."""
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> Device:
        """The device it is on."""
        return by_number(self._device)

    @property
    def live(self) -> bool:
        """Whether its region is still open."""
        return _array.alive(self)

    @property
    def ld(self) -> int:
        """The leading dimension of a matrix, in elements.

        It is the distance between columns of a matrix in Fortran order, and between rows of one in C order, which a
        column-major library reads as the columns of its transpose.

        Raises ArgumentError, a ValueError, if it has not two dimensions or neither order.
        """
        if len(self._shape) != 2:
            raise ArgumentError(
                f"DevicePtr.ld: needs 2 dimensions, has {len(self._shape)}"
                + ("; a vector has an increment: strides[0] // dtype.itemsize" if len(self._shape) == 1 else "")
            )
        itemsize = self.dtype.itemsize
        (rows, columns), (down, across) = self._shape, self._strides
        if across == itemsize and down % itemsize == 0 and down // itemsize >= max(columns, 1):
            return down // itemsize
        if down == itemsize and across % itemsize == 0 and across // itemsize >= max(rows, 1):
            return across // itemsize
        # A single row or column: the other stride says nothing. C order, where both would do.
        if rows <= 1 and across == itemsize:
            return max(columns, 1)
        if columns <= 1 and down > 0 and down % itemsize == 0:
            return down // itemsize
        if rows <= 1 and across > 0 and across % itemsize == 0:
            return across // itemsize
        if not rows or not columns:  # NumPy may give it strides of 0; this is enough in either order
            return max(rows, columns, 1)
        raise ArgumentError(
            f"DevicePtr.ld: shape {self._shape} with strides {self._strides} is neither C nor Fortran order; "
            "lend np.ascontiguousarray of the array"
        )

    @property
    def T(self) -> DevicePtr[T_co]:
        """The transpose, of the same memory."""
        return self._view(0, self._shape[::-1], self._strides[::-1])

    # -- parts of it -----------------------------------------------------------------------------------------

    def _view(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> DevicePtr[T_co]:
        # offset counts from the first element; the core's from the lowest byte, which differs along reversed axes.
        if 0 not in shape:
            reversed_axes = ((n, step) for n, step in zip(self._shape, self._strides, strict=True) if step < 0)
            offset += sum((1 - n) * step for n, step in reversed_axes)
        pointer: DevicePtr[T_co] = _array.view(self, offset, shape, strides)
        return pointer

    def __getitem__(self, key: Any) -> DevicePtr[T_co]:
        """Point to a part, with bounds of its own: slices, `...`, np.newaxis, and integers that leave a dimension.

        Raises HostAccessError for a key that asks for an element or a copy, IndexError beyond the end.
        """
        keys = key if isinstance(key, tuple) else (key,)
        for item in keys:
            if item is not None and item is not Ellipsis and not isinstance(item, slice):
                if isinstance(item, (bool, np.bool_)) or not isinstance(item, (int, np.integer)):
                    raise HostAccessError(
                        f"DevicePtr: can't be indexed with {type(item).__name__}: slices and integers only, for there "
                        "is no copy; index the host array before lending it"
                    )
        taken = sum(item is not None and item is not Ellipsis for item in keys)
        if taken > len(self._shape) or sum(item is Ellipsis for item in keys) > 1:
            raise IndexError(f"DevicePtr: {taken} indices for {len(self._shape)} dimensions")
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
                    strides.append(stride * step)
                    offset += start * stride
                else:
                    index = int(item)
                    if not -extent <= index < extent:
                        raise IndexError(
                            f"DevicePtr: index {index} is out of bounds for axis {axis} of {extent} elements"
                        )
                    offset += (index + extent if index < 0 else index) * stride
                axis += 1
        if not shape and (self._shape or key == ()):
            raise HostAccessError(
                "DevicePtr: an element can't be read on the host; slice (dx[i:i+1]) to point to it, or update(x) and "
                "read the host array"
            )
        return self._view(offset if 0 not in shape else 0, tuple(shape), tuple(strides))

    def offset(self, n: int) -> DevicePtr[T_co]:
        """Point to what lies n elements further on, as `p + n` does in C: one dimension, to the end of the memory.

        Raises ExtentError if that is before the beginning or past the end, ArgumentError if a stride is negative,
        ArgumentTypeError if n is no integer.
        """
        itemsize = self.dtype.itemsize
        try:
            n = operator.index(n)
        except TypeError:
            raise ArgumentTypeError(f"DevicePtr.offset: n needs a whole number of elements, got {n!r}") from None
        if any(stride < 0 for stride in self._strides):
            raise ArgumentError("DevicePtr.offset: a stride is negative; slice instead")
        count = _array.query(self)[4] // itemsize
        if not 0 <= n <= count:
            raise ExtentError(f"DevicePtr.offset: n needs 0 to {count}, the elements there are, got {n}")
        return self._view(n * itemsize, (count - n,), (itemsize,))

    def assign(self, values: object) -> None:
        """Write host values to the device now.

        values: an array of the same dtype, or a Python number that fits it; broadcast to the pointer's shape. Nothing
        else is converted.

        Raises DTypeError, ValueError for a shape that does not fit, DirectionError if it may not be written.
        """
        if isinstance(values, DevicePtr):
            raise HostAccessError("DevicePtr.assign: values are on a device already; use blas.copy")
        dtype = self.dtype
        if isinstance(values, (bool, int, float, complex)):
            given = np.asarray(values)
            if _RANKS.get(given.dtype.kind, 9) > _RANKS[dtype.kind]:
                raise DTypeError(f"DevicePtr.assign: values needs {dtype.name}, got {type(values).__name__} {values!r}")
            array: NDArray[Any] = np.asarray(values, dtype=dtype)
        else:
            array = np.asarray(values)
            if array.dtype != dtype:
                raise DTypeError(
                    f"DevicePtr.assign: values needs {dtype.name}, got {array.dtype.name}; convert it first: "
                    f"np.asarray(values, dtype=np.{dtype.name})"
                )
        if array.shape != self._shape:
            array = np.broadcast_to(array, self._shape)
        _array.assign(self, np.require(array, requirements=["C", "ALIGNED", "ENSUREARRAY"]))

    # -- for code outside ------------------------------------------------------------------------------------

    @property
    def address(self) -> int:
        """The true device address, for code outside: what it does there is not checked.

        Brings the data up; the memory of an Out that nothing wrote yet is set to zero instead. From now on the array
        counts as written whenever it may be, and leaving the region waits for the whole device.
        """
        return _array.address(self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self._need_gpu("__cuda_array_interface__")
        writable = _array.query(self)[1]
        dtype = self.dtype
        packed = self._strides == c_strides(self._shape, dtype.itemsize)
        return {
            "version": 3,
            "shape": self._shape,
            "typestr": dtype.str,
            "data": (_array.export(self), not writable),
            "strides": None if packed else self._strides,
            "stream": None,  # exporting has waited
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's (device type, index)."""
        self._need_gpu("__dlpack_device__")
        return _DLPACK_CUDA, self.device.index

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the memory as a DLPack capsule; it outlives the region.

        The data is there whatever stream the consumer uses. Raises BufferError for what can't be exported: a copy,
        another device, a read-only pointer to a consumer that does not know of such.
        """
        kind, index = self.__dlpack_device__()
        writable = _array.query(self)[1]
        versioned = max_version is not None and max_version[0] >= 1
        if copy:
            raise BufferError("DevicePtr.__dlpack__: a pointer is exported as it is, never copied")
        if dl_device is not None and tuple(dl_device) != (kind, index):
            raise BufferError(f"DevicePtr.__dlpack__: it is on {self.device}, not on DLPack device {dl_device}")
        if not writable and not versioned:
            raise BufferError("DevicePtr.__dlpack__: it is read-only, which needs max_version=(1, 0) or later")
        dtype = self.dtype
        code = _DLPACK_BFLOAT if self._code == _BFLOAT16 else _DLPACK_CODES[dtype.kind]
        return _array.dlpack(self, versioned, not writable, kind, index, code, 8 * dtype.itemsize)

    def _need_gpu(self, name: str) -> None:
        if not self.live:
            raise StalePointerError(f"DevicePtr.{name}: the pointer belongs to a region that has ended")
        if self.device.backend != "cuda":
            raise HostAttributeError(
                f"DevicePtr.{name}: the pointer is on {self.device}; only memory of GPUs can be exported. Leave the "
                "region and use the host array"
            )

    # -- what only the host could do -------------------------------------------------------------------------

    def __setitem__(self, key: object, value: object) -> NoReturn:
        raise HostAccessError(
            "DevicePtr: elements can't be written on the host; use assign(values) on a slice, or `with update(x):` "
            "on the host array"
        )

    def __array__(self, *arguments: object, **keywords: object) -> NoReturn:
        raise HostAccessError(
            "DevicePtr: device memory is no host array; use the array that was lent, after the region or update(x)"
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: object, **keywords: object) -> NoReturn:
        raise HostAccessError(
            f"DevicePtr: np.{ufunc.__name__} runs on the host; use the functions of blas or a vendor's library"
        )

    def __array_function__(self, function: Any, *arguments: object) -> NoReturn:
        raise HostAccessError(
            f"DevicePtr: np.{function.__name__} runs on the host; use the functions of blas or a vendor's library"
        )

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise HostAccessError(
            "DevicePtr: can't be pickled or copied: it is valid in its region and process only; copy the host array"
        )

    def __repr__(self) -> str:
        """Say what it points to, or that it is dead."""
        ld = ""
        if len(self._shape) == 2:
            try:
                ld = f", ld={self.ld}"
            except ArgumentError:
                ld = f", strides={self._strides}"
        where = str(self.device) if self.live else "dead"
        return f"DevicePtr({DTYPE_NAMES[self._code]}, shape={self._shape}{ld}, {where})"


def _refuse(name: str, remedy: str) -> None:
    def refusing(self: DevicePtr[Any], *arguments: object) -> NoReturn:
        raise HostAccessError(f"DevicePtr: {name} needs the values on the host; {remedy}")

    refusing.__name__ = name
    refusing.__qualname__ = f"DevicePtr.{name}"
    setattr(DevicePtr, name, refusing)


# Static checkers see none of these, and say so of every use.
for _name in "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or".split():
    for _prefix in ("", "r", "i"):
        if _prefix + _name != "idivmod":
            _refuse(f"__{_prefix}{_name}__", "use the functions of blas or a vendor's library, or offset(n)")
for _name in "lt le gt ge neg pos abs invert round".split():
    _refuse(f"__{_name}__", "use the functions of blas or a vendor's library")
for _name in "len iter contains reversed".split():
    _refuse(f"__{_name}__", "use shape and size, slices, or the host array")
for _name in "float int complex index bool".split():
    _refuse(f"__{_name}__", "leave the region or update(x), then read the host array")
for _name in "copy deepcopy".split():
    _refuse(f"__{_name}__", "use blas.copy into a Scratch, or copy the host array")
