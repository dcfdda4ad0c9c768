"""What can be lent: dtypes, kinds of objects, sizes. Ids such as T28 are those of the project's list of test cases."""

from __future__ import annotations

import array
import gc
import importlib
import importlib.util
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from offload_args import Device, In, InOut, Out, Scratch, blas, call, offload_args, testing
from offload_args.errors import ArgumentTypeError, DTypeError, SizeOverflowError, StalePointerError

Array = NDArray[Any]


def ramp(*shape: int, dtype: Any = np.float32) -> Array:
    return np.arange(1, int(np.prod(shape)) + 1).reshape(shape).astype(dtype)


def lend(*arguments: Any, device: str) -> None:
    with offload_args(*arguments, device=device):
        pass


# -- T28: dtypes ---------------------------------------------------------------------------------------------

HELD = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()


@pytest.mark.parametrize("name", [*HELD, "bfloat16"])
def test_t28_every_dtype_that_devices_hold_comes_back_bit_for_bit(device: str, name: str) -> None:
    dtype = np.dtype(name) if name != "bfloat16" else np.dtype(ml_dtypes.bfloat16)
    x, new = ramp(5).astype(dtype), (ramp(5) > 2).astype(dtype)
    with offload_args(x, device=device) as (dx,):
        assert dx.dtype == dtype
        assert dx.nbytes == x.nbytes
        assert f"DevicePtr({name}, " in repr(dx)
        dx[1:4].assign(new[1:4])
    expected = ramp(5).astype(dtype)
    expected[1:4] = new[1:4]
    assert x.tobytes() == expected.tobytes()


def unaligned() -> Array:
    return np.zeros(9, np.uint8)[1:].view(np.float64)


REFUSED: dict[str, tuple[Any, str]] = {
    "object": (np.array([1, None]), "object.*astype"),
    "str": (np.array(["a"]), "<U1.*astype"),
    "bytes": (np.array([b"a"]), "S1"),
    "datetime64": (np.array(["2026-01-01"], "M8[D]"), r"datetime64.*view\(np.int64\)"),
    "timedelta64": (np.array([1], "m8[s]"), r"timedelta64.*view\(np.int64\)"),
    "structured": (np.zeros(2, [("a", "f4"), ("b", "i4")]), "one field"),
    "void": (np.zeros(2, "V8"), "V8"),
    "void of two bytes": (np.zeros(2, "V2"), "V2"),
    "big-endian": (np.zeros(2, ">f4"), "other order.*newbyteorder"),
    "big-endian integers": (np.zeros(2, ">i8"), "newbyteorder"),
    "longdouble": (np.zeros(2, np.longdouble), r"astype\(np.float64\)"),
    "clongdouble": (np.zeros(2, np.clongdouble), r"astype\(np.complex128\)"),
    "unaligned": (unaligned(), r"aligned.*copy\(\)"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("declared", [None, In, Out])
def test_t28_a_dtype_that_devices_can_not_hold_is_refused_before_anything_moves(
    device: str, name: str, declared: Any
) -> None:
    bad, text = REFUSED[name]
    good = ramp(3)
    with testing.counting(Device(device)) as moved:
        with pytest.raises(DTypeError, match=f"argument 2.*{text}"):
            lend(good, bad if declared is None else declared(bad), device=device)
    assert (moved.allocations, moved.copies_up) == (0, 0)
    assert good.flags.writeable


def test_t28_a_masked_array_is_refused_for_its_mask(device: str) -> None:
    masked = np.ma.masked_array(ramp(3), mask=[0, 1, 0])
    for argument in (masked, In(masked)):
        with pytest.raises(TypeError, match=r"argument 1.*mask would be lost.*filled"):
            lend(argument, device=device)


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_other_subclasses_of_ndarray_are_arrays(device: str, tmp_path: Any) -> None:
    ramp(4).tofile(tmp_path / "file")
    mapped = np.memmap(tmp_path / "file", np.float32, mode="r+")
    matrix = np.asmatrix(ramp(2, 2))

    class Mine(np.ndarray[Any, Any]):
        pass

    mine = ramp(4).view(Mine)
    for one in (mapped, matrix, mine):
        expected = 2 * np.asarray(one).ravel()
        with offload_args(one, device=device) as (dx,):
            assert not one.flags.writeable
            blas.scal(2.0, dx if dx.ndim == 1 else dx.offset(0))
        assert one.flags.writeable
        np.testing.assert_array_equal(np.asarray(one).ravel(), expected)


# -- T29: what is no array -----------------------------------------------------------------------------------

NO_ARRAYS: dict[str, Any] = {
    "a list": [1.0, 2.0],
    "a tuple": (1.0, 2.0),
    "a number": 1.0,
    "an int": 3,
    "None": None,
    "a string": "x",
    "bytes": b"1234",
    "a bytearray": bytearray(4),
    "array.array": array.array("f", [1.0]),
    "a NumPy scalar": np.float32(1),
    "a class": np.float32,
    "In of a list": In([1.0]),
    "Out of None": Out(None),
    "In of In": In(In(np.zeros(2))),
    "In of Scratch": In(Scratch(3)),
}


@pytest.mark.parametrize("name", NO_ARRAYS)
def test_t29_what_is_no_array_is_refused_with_its_position_and_the_remedy(device: str, name: str) -> None:
    good = ramp(3)
    with pytest.raises(TypeError, match="argument 2") as raised:
        lend(good, NO_ARRAYS[name], device=device)
    assert isinstance(raised.value, ArgumentTypeError)
    assert "pass" in str(raised.value) or "give one" in str(raised.value)
    assert good.flags.writeable


def test_t29_a_pointer_of_an_open_region_is_on_the_device_already(device: str) -> None:
    with offload_args(ramp(3), device=device) as (dx,):
        with pytest.raises(TypeError, match=rf"argument 1 is a device pointer, on {device} already: use it directly"):
            lend(dx, device=device)
    with pytest.raises(StalePointerError, match="argument 1.*has ended: lend the array again"):
        lend(In(dx), device=device)


def test_t29_arrays_with_no_dimension_and_with_no_elements_are_fine(device: str) -> None:
    scalar, empty, wide = np.array(3.0), np.zeros(0), np.zeros((3, 0), np.float32)
    with testing.counting(Device(device)) as moved:
        with offload_args(scalar, empty, InOut(wide), device=device) as (ds, de, dw):
            assert (ds.shape, de.shape, dw.shape) == ((), (0,), (3, 0))
            blas.scal(2.0, de)
            assert blas.asum(de) == 0
    assert (moved.copies_up, moved.copies_down, moved.bytes_up) == (0, 0, 0)


class Shared:
    """An array of another package that shares host memory through DLPack, as a CPU tensor of PyTorch does."""

    def __init__(self, memory: Array) -> None:
        self.memory = memory

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.memory.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.memory.__dlpack_device__()


class Interfaced:
    """An array of another package with NumPy's array interface."""

    def __init__(self, memory: Array) -> None:
        self.memory = memory
        self.__array_interface__ = memory.__array_interface__


@pytest.mark.parametrize("kind", [Shared, Interfaced])
def test_t29_memory_of_other_packages_is_lent_with_no_copy(device: str, kind: Any) -> None:
    memory = ramp(4)
    if kind is Shared and np.lib.NumpyVersion(np.__version__) < "2.1.0":
        # Before that, NumPy took all such memory for read-only.
        with pytest.raises(ValueError, match="argument 1 is read-only"):
            lend(InOut(Shared(memory)), device=device)
        return
    with offload_args(In(kind(memory)), kind(memory), device=device) as (first, second):
        blas.scal(2.0, second)
        assert blas.asum(first) == 2 * ramp(4).sum()
    np.testing.assert_array_equal(memory, 2 * ramp(4))


def test_t29_memory_of_other_packages_is_neither_left_read_only_nor_held(device: str) -> None:
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        array = np.from_dlpack(ramp(4))
        with offload_args(array, device=device) as (dx,):
            blas.scal(2.0, dx)
        assert array.flags.writeable  # NumPy would not give the flag back
    gone = []
    for _ in range(10):
        memory = ramp(4)
        gone.append(weakref.ref(memory))
        with offload_args(In(Shared(memory)), device=device) as (dx,):
            blas.asum(dx)
    del memory
    gc.collect()
    assert [one() for one in gone] == [None] * 10


if importlib.util.find_spec("torch"):  # it is too large to install for this alone

    def test_t29_a_tensor_of_pytorch_is_lent_with_no_copy(device: str) -> None:
        torch = importlib.import_module("torch")
        tensor = torch.arange(1, 5, dtype=torch.float32)
        with offload_args(tensor, device=device) as (dx,):
            blas.scal(2.0, dx)
        assert tensor.tolist() == [2, 4, 6, 8]


def test_t29_memory_on_an_unknown_device_is_refused(device: str) -> None:
    class Elsewhere(Shared):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (8, 0)

    with pytest.raises(TypeError, match="argument 1: Elsewhere is on a device"):
        lend(Elsewhere(ramp(3)), device=device)


def test_call_hands_on_what_is_no_array(device: str) -> None:
    seen: list[Any] = []
    given = [1, 2.5, None, "text", [ramp(2)], np.float32(3), {"a": 1}]
    call(lambda *arguments: seen.extend(arguments), *given, device=device)
    assert all(a is b for a, b in zip(seen, given, strict=True))


# -- T06: sizes ----------------------------------------------------------------------------------------------


def test_t06_sizes_that_overflow_are_refused() -> None:
    with pytest.raises(OverflowError, match="bytes"):
        Scratch((2**40, 2**40), np.float64)
    with pytest.raises(SizeOverflowError):
        Scratch(2**61)
    with pytest.raises(ValueError, match="0 or more"):
        Scratch((3, -1))
    with pytest.raises(DTypeError, match="dtype"):
        Scratch(3, "U4")
    with pytest.raises(TypeError, match=r"Scratch: shape needs whole numbers, got 2\.5"):
        Scratch(2.5)  # type: ignore[arg-type]


def test_t06_more_memory_than_any_device_has_is_a_memory_error(device: str) -> None:
    x = ramp(3)
    with pytest.raises(MemoryError, match=device):
        lend(x, Scratch(2**55), device=device)
    assert x.flags.writeable


def test_forty_arguments_and_thirty_one_dimensions_are_lent(device: str) -> None:
    arrays = [ramp(3) for _ in range(40)]
    with offload_args(*arrays, device=device) as pointers:
        for pointer in pointers:
            blas.scal(2.0, pointer)
    for one in arrays:
        np.testing.assert_array_equal(one, 2 * ramp(3))
    deep = np.zeros((1,) * 30 + (2,), np.float32)
    with offload_args(deep, device=device) as (dx,):
        assert dx.ndim == 31
        dx.assign(5)
    assert (deep == 5).all()
