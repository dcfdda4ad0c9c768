"""Objects that can be lent: arrays, subclasses, and the arrays of other packages."""

from __future__ import annotations

import array
import gc
import importlib
import importlib.util
import weakref
from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array, lend, ramp
from offload_args import Device, In, InOut, Out, Scratch, blas, call, offload_args, testing
from offload_args.errors import (
    ArgumentTypeError,
    HostPointerError,
    OffloadError,
    StalePointerError,
)


@pytest.mark.promise("T28")
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_other_subclasses_of_ndarray_are_arrays(device: str, tmp_path: Any) -> None:
    ramp(4).tofile(tmp_path / "file")
    mapped = np.memmap(tmp_path / "file", np.float32, mode="r+")
    matrix = np.asmatrix(ramp(2, 2))

    class Mine(np.ndarray[Any, Any]):
        pass

    mine = ramp(4).view(Mine)
    for other in (mapped, matrix, mine):
        expected = 2 * np.asarray(other).ravel()
        with offload_args(other, device=device) as (dx,):
            assert not other.flags.writeable
            blas.scal(2.0, dx if dx.ndim == 1 else dx.offset(0))
        assert other.flags.writeable
        np.testing.assert_array_equal(np.asarray(other).ravel(), expected)


NO_ARRAYS: dict[str, Any] = {
    "a list": [1.0, 2.0],
    "a tuple": (1.0, 2.0),
    "a list of arrays": [np.zeros(2), np.zeros(2)],
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


@pytest.mark.promise("T29")
@pytest.mark.parametrize("name", NO_ARRAYS)
def test_an_object_that_is_no_array_is_refused_with_its_position_and_the_remedy(device: str, name: str) -> None:
    good = ramp(3)
    with pytest.raises(TypeError, match="argument 2") as raised:
        lend(good, NO_ARRAYS[name], device=device)
    assert isinstance(raised.value, ArgumentTypeError)
    assert "pass" in str(raised.value) or "give one" in str(raised.value)
    assert good.flags.writeable


def test_a_list_of_arrays_is_refused_with_the_ways_to_pass_them(device: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"argument 1 is a list of arrays.* \*x, or pass np\.stack\(x\)$"):
        lend([np.zeros(2), np.zeros(2)], device=device)


@pytest.mark.promise("T29")
def test_a_pointer_of_an_open_region_is_on_the_device_already(device: str) -> None:
    with offload_args(ramp(3), device=device) as (dx,):
        with pytest.raises(TypeError, match=rf"argument 1 is a device pointer, on {device} already: use it directly"):
            lend(dx, device=device)
    with pytest.raises(StalePointerError, match="argument 1.*has ended: lend the array again"):
        lend(In(dx), device=device)


@pytest.mark.promise("T29")
def test_arrays_with_no_dimension_and_with_no_elements_are_fine(device: str) -> None:
    scalar, empty, wide = np.array(3.0), np.zeros(0), np.zeros((3, 0), np.float32)
    with testing.counting(Device(device)) as moved:
        with offload_args(scalar, empty, InOut(wide), device=device) as (ds, de, dw):
            assert (ds.shape, de.shape, dw.shape) == ((), (0,), (3, 0))
            blas.scal(2.0, de)
            assert blas.asum(de) == 0
    assert (moved.copies_up, moved.copies_down, moved.bytes_up) == (0, 0, 0)


class Shared:
    """An array of another package that shares host memory through DLPack, like a CPU tensor of PyTorch."""

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


@pytest.mark.promise("T29")
@pytest.mark.parametrize("kind", [Shared, Interfaced])
def test_memory_of_other_packages_is_lent_with_no_copy(device: str, kind: Any) -> None:
    memory = ramp(4)
    if kind is Shared and np.lib.NumpyVersion(np.__version__) < "2.1.0":
        # Before this version, NumPy treated all such memory as read-only.
        with pytest.raises(ValueError, match="argument 1 is read-only"):
            lend(InOut(Shared(memory)), device=device)
        return
    with offload_args(In(kind(memory)), kind(memory), device=device) as (first, second):
        blas.scal(2.0, second)
        assert blas.asum(first) == 2 * ramp(4).sum()
    np.testing.assert_array_equal(memory, 2 * ramp(4))


@pytest.mark.promise("T29")
def test_memory_of_other_packages_is_neither_left_read_only_nor_held(device: str) -> None:
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        array = np.from_dlpack(ramp(4))
        with offload_args(array, device=device) as (dx,):
            blas.scal(2.0, dx)
        assert array.flags.writeable  # NumPy could not set the flag again
    gone = []
    for _ in range(10):
        memory = ramp(4)
        gone.append(weakref.ref(memory))
        with offload_args(In(Shared(memory)), device=device) as (dx,):
            blas.asum(dx)
    del memory
    gc.collect()
    assert [reference() for reference in gone] == [None] * 10


if importlib.util.find_spec("torch"):  # PyTorch is too large to install it only for this test

    @pytest.mark.promise("T29")
    def test_a_tensor_of_pytorch_is_lent_with_no_copy(device: str) -> None:
        torch = importlib.import_module("torch")
        tensor = torch.arange(1, 5, dtype=torch.float32)
        with offload_args(tensor, device=device) as (dx,):
            blas.scal(2.0, dx)
        assert tensor.tolist() == [2, 4, 6, 8]


@pytest.mark.promise("T29")
def test_memory_on_an_unknown_device_is_refused(device: str) -> None:
    with pytest.raises(TypeError, match="argument 1: Shared is on a device"):
        lend(Shared(ramp(3), (8, 0)), device=device)


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


@pytest.mark.later("host")
@pytest.mark.promise("T60")
@pytest.mark.parametrize("declared", [None, In, InOut])
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_interface_of_gpu_memory_is_refused_by_name(device: str, case: str, declared: Any) -> None:
    good, bad = ramp(3), Borrowed(**WRONG[case])
    with pytest.raises(OffloadError, match="argument 2.*Borrowed"):
        lend(good, bad if declared is None else declared(bad), device=device)
    assert good.flags.writeable


@pytest.mark.promise("T60")
def test_wrong_interfaces_of_host_memory_are_refused_by_name(device: str) -> None:
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


def test_a_device_a_shape_or_a_region_in_place_of_an_array_is_told_its_place(device: str) -> None:
    x = ramp(3)
    wrong: list[tuple[Any, str]] = [
        ((x, "host"), r'argument 2 is the device host, not an array: pass it by name, device="host"$'),
        ((x, Device("host")), r'argument 2 is the device host, .*device="host"$'),
        (
            (Out((3, 3)),),
            r"argument 1 is Out\(\(3, 3\)\), .*, y = np\.empty\(\(3, 3\)\), and lend Out\(y\); Scratch\(\(3, 3\)\)",
        ),
        ((Out(3),), r"argument 1 is Out\(3\), .* y = np\.empty\(3\)"),
        ((offload_args(x),), "argument 1 is a region, not an array: enter it"),
    ]
    for arguments, words in wrong:
        with pytest.raises(ArgumentTypeError, match=f"^offload_args: {words}"):
            offload_args(*arguments, device=device).open()


def test_other_memory_is_told_the_array_that_shares_it(device: str) -> None:
    numbers = array.array("d", [1.0, 2.0])
    wrong: list[tuple[Any, str]] = [
        (numbers, r"array\.array, not an array: pass x = np\.asarray\(x\), which has the same memory$"),
        (memoryview(numbers), r"memoryview, .* np\.asarray\(x\), which has the same memory$"),
        (bytearray(8), r"bytearray, .* pass x = np\.frombuffer\(x, dtype\), which has the same memory$"),
        (iter([1.0]), r"list_iterator, .* pass x = np\.array\(list\(x\)\), and read the results from x$"),
        ({"x": 1.0}, "dict, not an array: pass an array$"),
        ({"x": ramp(2)}, r"a dict of arrays, not an array: pass each of them as an argument, \*x\.values\(\)$"),
    ]
    for thing, words in wrong:
        with pytest.raises(ArgumentTypeError, match=f"^offload_args: argument 1 is {words}"):
            offload_args(thing, device=device).open()
    with offload_args(np.asarray(numbers), device=device) as (dx,):
        blas.scal(2.0, dx)
    assert numbers.tolist() == [2.0, 4.0]


def test_a_direction_around_several_arrays_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match=r"^In: needs one array, got 2: write In\(x\), In\(y\)$"):
        In(ramp(3), ramp(3))


class Column:
    """A column of a table: as in pandas, NumPy's view of its memory is read-only."""

    def __init__(self, values: Any) -> None:
        self.values = np.array(values)
        self.values.flags.writeable = False

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.values.copy() if copy else self.values


def test_a_table_is_copied_to_an_array_first(device: str) -> None:
    column = Column([3.0, 4.0])
    with pytest.raises(
        ArgumentTypeError, match=r"argument 1 is Column, not an array: pass x = np\.array\(\.\.\.\), a copy,"
    ):
        offload_args(column, device=device).open()
    first = r"^blas\.scal: x needs a DevicePtr, got .*; make an array first, x = np\.array\(x\), and lend it, or pass"
    with pytest.raises(HostPointerError, match=first):
        call(blas.scal, 2.0, column, device=device)
    x = np.array(column)
    call(blas.scal, 2.0, x, device=device)
    np.testing.assert_array_equal(x, [6.0, 8.0])
    for value in (3.0, None, np.float64(3.0)):
        with pytest.raises(HostPointerError, match=r"x needs a DevicePtr, got .*; pass the .* an array to call$"):
            call(blas.nrm2, value, device=device)
