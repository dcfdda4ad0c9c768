"""What can be lent: dtypes, kinds of objects, sizes. Ids such as T28 are those of the project's list of test cases."""

from __future__ import annotations

import array
import gc
import importlib
import importlib.util
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from offload_args import Device, In, InOut, Out, Scratch, blas, call, empty, offload_args, testing, update
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    DirectionError,
    DTypeError,
    ExtentError,
    OffloadError,
    PerformanceWarning,
    PresentError,
    SizeOverflowError,
    StalePointerError,
)

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


# -- T59: arrays that do not begin at multiples of their items ------------------------------------------------


def at(address: int, like: Array) -> Array:
    """Return a copy of an array in C order whose data is at address modulo 16, as a worker of Dask may have it."""
    memory = bytearray(like.nbytes + 32)
    start = (address - np.frombuffer(memory, np.uint8).ctypes.data) % 16
    copy = np.ndarray(like.shape, like.dtype, memory, start)
    copy[...] = like
    return copy


def field(like: Array) -> Array:
    """Return a copy of an array as a field of packed records, between two others."""
    records = np.zeros(like.shape, [("before", "u1"), ("it", like.dtype), ("after", "u2")])
    records["before"], records["after"] = 7, 8
    records["it"] = like
    return records["it"]


UNALIGNED: dict[str, Callable[[Array], Array]] = {
    "one byte on": lambda x: at(1, x),
    "two bytes on": lambda x: at(2, x),
    "at the end of a chunk": lambda x: at(15, x),
    "in Fortran order": lambda x: at(3, x.T.copy()).T,
    "a part of rows": lambda x: at(5, np.pad(x, [(0, 1)] * x.ndim))[tuple(slice(n) for n in x.shape)],
    "every second": lambda x: at(1, np.repeat(x, 2, axis=-1))[..., ::2],
    "reversed": lambda x: at(1, x[::-1].copy())[::-1],
    "a field of packed records": field,
}


@pytest.mark.parametrize("declared", [None, InOut])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("kind", UNALIGNED)
def test_t59_an_unaligned_array_goes_up_and_comes_down_right(device: str, kind: str, dtype: Any, declared: Any) -> None:
    A, x = ramp(5, 3, dtype=dtype), ramp(7, dtype=dtype)
    A_lent, x_lent = UNALIGNED[kind](A), UNALIGNED[kind](x)
    assert not A_lent.flags.aligned and not x_lent.flags.aligned
    owner = x_lent.base
    arguments = [A_lent, x_lent] if declared is None else [declared(A_lent), declared(x_lent)]
    with pytest.warns(PerformanceWarning, match="is not aligned to its items.*packed") as warned:
        with offload_args(*arguments, device=device) as (dA, dx):
            assert dx.ndim == 1 and dA.shape == (5, 3)
            blas.scal(2.0, dx)
            for row in range(5):
                blas.scal(3.0, dA[row])
    assert ["argument 1" in str(one.message) for one in warned] == [True, False]  # and one of argument 2
    assert warned[0].filename == __file__
    np.testing.assert_array_equal(A_lent, 3 * A)
    np.testing.assert_array_equal(x_lent, 2 * x)
    assert x_lent.flags.writeable and A_lent.flags.writeable
    if kind == "a field of packed records":
        assert (owner["before"] == 7).all() and (owner["after"] == 8).all()


@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@pytest.mark.parametrize("kind", ["one byte on", "in Fortran order", "a part of rows"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_t59_a_product_of_unaligned_matrices_is_right(device: str, kind: str, order: Any) -> None:
    A, B, C = (np.asarray(ramp(*shape, dtype=np.float64), order=order) for shape in ((5, 3), (3, 4), (5, 4)))
    lent = [UNALIGNED[kind](one) for one in (A, B, C)]
    with offload_args(In(lent[0]), In(lent[1]), Out(lent[2]), device=device) as (dA, dB, dC):
        blas.gemm(1.0, dA, dB, 0.0, dC) if kind != "a part of rows" else dC.assign(A @ B)
    np.testing.assert_allclose(lent[2], A @ B, rtol=1e-13)
    np.testing.assert_array_equal(lent[0], A)


@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@pytest.mark.parametrize("kind", UNALIGNED)
def test_t59_unaligned_arrays_are_written_read_and_updated_in_the_middle(device: str, kind: str) -> None:
    x = UNALIGNED[kind](ramp(7, dtype=np.float64))
    with offload_args(x, device=device) as (dx,):
        blas.scal(2.0, dx)
        np.testing.assert_array_equal(update(x, device=device)._core, 2 * ramp(7))
        with update(x, device=device):
            x[3] = -1
        dx[:2].assign(UNALIGNED[kind](ramp(2, dtype=np.float64)))
        blas.scal(2.0, dx)
        with offload_args(x, device=device) as (again,):
            blas.scal(0.5, again)
    np.testing.assert_array_equal(x, [1, 2, 6, -1, 10, 12, 14])


@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
def test_t59_parts_of_an_unaligned_array_share_its_memory(device: str) -> None:
    for order in (1, -1):
        x = at(1, ramp(16, dtype=np.float32))
        with offload_args(*(x, x[4:8], x[8:])[::order], device=device) as pointers:
            blas.scal(2.0, pointers[1])
            with offload_args(x[2:6], device=device) as (part,):
                blas.scal(3.0, part)
        expected = ramp(16)
        expected[4:8] *= 2
        expected[2:6] *= 3
        np.testing.assert_array_equal(x, expected)


def test_t59_an_array_that_would_be_unaligned_on_the_device_is_refused(device: str) -> None:
    memory = np.zeros(64, np.uint8)
    floats, z = memory[1:61].view(np.float32), np.zeros(4).view(np.float64)
    for arguments in ((memory, floats), (floats, memory)):
        with pytest.raises(PresentError, match=r"begins 1 bytes into the memory it shares with argument.*itemsize, 4"):
            lend(*arguments, device=device)
    with offload_args(memory, device=device):
        with pytest.raises(PresentError, match="argument 1 begins 1 bytes into.*lend a copy of it"):
            lend(floats, device=device)
        lend(memory[4:60].view(np.float32), device=device)
    with offload_args(z, device=device):
        with pytest.raises(PresentError, match="begins 8 bytes into.*itemsize, 16"):
            lend(z[1:3].view(np.complex128), device=device)
    records = np.zeros(4, [("a", "u1"), ("b", "f8")])
    with pytest.raises(PresentError, match="can't be named by a leading dimension"):
        lend(records["a"], records["b"], device=device)
    assert memory.flags.writeable and floats.flags.writeable and z.flags.writeable


def test_t59_rows_that_are_no_multiple_of_the_items_apart_are_packed(device: str) -> None:
    records = np.zeros(5, [("z", "c16", (3,)), ("f", "f8")])
    z = records["z"]  # NumPy calls that aligned; a GPU does not
    z[...] = ramp(5, 3)
    with pytest.warns(PerformanceWarning, match="argument 1.*packed"):
        with offload_args(z, device=device) as (dz,):
            assert dz.strides == (48, 16)
            for row in range(5):
                blas.scal(2.0, dz[row])
    np.testing.assert_array_equal(z, 2 * ramp(5, 3))
    assert (records["f"] == 0).all()


def test_t59_an_unaligned_array_with_no_elements_is_not_warned_of(device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lend(np.ndarray((0,), np.float64, bytearray(16), 1), ramp(3), device=device)


@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
def test_t59_an_unaligned_array_may_stay_on_the_device(device: str) -> None:
    n = 1 << 16
    x = at(1, ramp(n, dtype=np.float64))
    with testing.residency("explicit"):
        for step in range(3):
            x[step] = 0
            with offload_args(x, device=device, resident=True) as (dx,):
                assert blas.asum(dx) == x.sum()
                blas.scal(2.0, dx)
        Device(device).keep(x)
        Device(device).release(x)
    np.testing.assert_array_equal(x[3:], 8 * ramp(n)[3:])


def test_t59_an_unaligned_chunk_of_bytes_is_lent_read_only(device: str) -> None:
    chunk = np.frombuffer(b"." + ramp(5, dtype=np.float64).tobytes(), np.uint8)[1:].view(np.float64)
    with pytest.warns(PerformanceWarning, match="not aligned"):
        with offload_args(chunk, device=device) as (dx,):
            assert blas.asum(dx) == 15
            with pytest.raises(DirectionError):
                blas.scal(2.0, dx)
    with pytest.raises(DirectionError, match="read-only"):
        lend(Out(chunk), device=device)


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

    def __init__(self, memory: Array, device: Any = (1, 0)) -> None:
        self.memory = memory
        self.device = device

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.memory.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.device


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
    with pytest.raises(TypeError, match="argument 1: Shared is on a device"):
        lend(Shared(ramp(3), (8, 0)), device=device)


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


TOO_LARGE = [(2**70,), (0, 2**70), (2**70, 0), (0, 2**62, 2**62), (2**62, 4), (2**32, 2**32), 2**63, (1, 2**63, 0)]


@pytest.mark.parametrize("shape", TOO_LARGE, ids=str)
def test_t60_a_shape_that_does_not_fit_is_refused_by_name(shape: Any) -> None:
    value = max(shape) if isinstance(shape, tuple) else shape
    for make in (Scratch, empty):
        with pytest.raises(SizeOverflowError, match=f"{make.__name__}: shape .*{value}"):
            make(shape, np.float32)


@pytest.mark.parametrize("shape", [-1, (3, -1), (0, -(2**70))], ids=str)
def test_t60_a_negative_extent_is_refused_by_name(shape: Any) -> None:
    value = min(shape) if isinstance(shape, tuple) else shape
    for make in (Scratch, empty):
        with pytest.raises(ArgumentError, match=f"{make.__name__}: shape .*{value}"):
            make(shape, np.float32)


def test_t60_more_dimensions_than_arrays_have_are_refused(device: str) -> None:
    for make in (Scratch, empty):
        with pytest.raises(ArgumentError, match="at most 64 extents, got 65"):
            make((1,) * 65, np.float32)
    with offload_args(ramp(3), device=device) as (dx,):
        with pytest.raises(ArgumentError, match="at most 64 dimensions"):
            dx[(None,) * 64]


class Borrowed:
    """An object with an interface of GPU memory."""

    def __init__(self, **changes: Any) -> None:
        interface = {"version": 3, "shape": (4,), "typestr": "<f4", "data": (4096, False), "strides": None, **changes}
        self.__cuda_array_interface__ = {name: value for name, value in interface.items() if value is not ...}


WRONG: dict[str, Any] = {
    "no shape": {"shape": ...},
    "no dtype": {"typestr": ...},
    "no data": {"data": ...},
    "shape of text": {"shape": "ab"},
    "shape of halves": {"shape": (1.5,)},
    "shape None": {"shape": None},
    "shape too large": {"shape": (2**70,)},
    "shape empty and too large": {"shape": (0, 2**70)},
    "shape negative": {"shape": (-1,)},
    "too many dimensions": {"shape": (1,) * 65},
    "strides of text": {"strides": "a"},
    "strides too large": {"strides": (2**70,)},
    "strides too small": {"strides": (-(2**70),)},
    "strides too many": {"strides": (4, 4)},
    "strides too few": {"shape": (2, 2), "strides": (4,)},
    "address too large": {"data": (2**70, False)},
    "address negative": {"data": (-8, False)},
    "address of text": {"data": ("a", False)},
    "data with no flag": {"data": (4096,)},
    "data None": {"data": None},
    "dtype unknown": {"typestr": "<f3"},
    "dtype of objects": {"typestr": "|O"},
    "dtype that is none": {"typestr": 3},
    "stream of text": {"stream": "a"},
    "stream negative": {"stream": -1},
    "stream too large": {"stream": 2**70},
}


@pytest.mark.parametrize("declared", [None, In, InOut])
@pytest.mark.parametrize("case", WRONG)
def test_t60_a_wrong_interface_of_gpu_memory_is_refused_by_name(device: str, case: str, declared: Any) -> None:
    good, bad = ramp(3), Borrowed(**WRONG[case])
    with pytest.raises(OffloadError, match="argument 2.*Borrowed"):
        lend(good, bad if declared is None else declared(bad), device=device)
    assert good.flags.writeable


def test_t60_wrong_interfaces_of_host_memory_are_refused_by_name(device: str) -> None:
    class Wrong:
        pass

    for name, value in [
        ("__cuda_array_interface__", 3),
        ("__array_interface__", {"version": 3}),
        ("__array_interface__", {"version": 3, "shape": (2**70,), "typestr": "<f4", "data": (4096, False)}),
        ("__array_interface__", 3),
        ("__array_struct__", 3),
    ]:
        wrong = Wrong()
        setattr(wrong, name, value)
        with pytest.raises(OffloadError, match="argument 1"):
            lend(wrong, device=device)
    for answer in (None, (1,), ("a", "b"), 3):
        shared = Shared(ramp(3), answer)
        with pytest.raises(ArgumentTypeError, match="argument 1: Shared.__dlpack_device__ needs"):
            lend(shared, device=device)


def test_t60_slices_with_huge_numbers_are_those_of_numpy(device: str) -> None:
    x = ramp(6)
    huge = (2**70, -(2**70), 2**63, 2**63 - 1, -(2**63), None)
    with offload_args(x, device=device) as (dx,):
        for start in huge:
            for stop in huge:
                for step in (2**70, -(2**70), 2**62, 2**63 - 1, -(2**63), 1, -1, None):
                    part = slice(start, stop, step)
                    assert dx[part].shape == x[part].shape
        with pytest.raises(IndexError, match=str(2**70)):
            dx[2**70]
        with pytest.raises(ExtentError, match=str(2**70)):
            dx.offset(2**70)
        dx[2 :: 2**70].assign(7)
        with pytest.raises(OverflowError, match=f"int8 holds, got {2**40}|DevicePtr.assign.*int8"):
            with offload_args(Scratch(2, np.int8), device=device) as (ds,):
                ds.assign(2**40)
    np.testing.assert_array_equal(x, [1, 2, 7, 4, 5, 6])
