"""Real addresses, and pointers that other packages can use on a GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import cffi
import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import Device, DevicePtr, In, Scratch, blas, offload_args, testing


def test_the_address_is_a_true_one_and_the_array_counts_as_written() -> None:
    x = ramp(4)
    with offload_args(x, device="host") as (dx,):
        memory = (ctypes.c_float * 4).from_address(dx.address)
        assert list(memory) == [1, 2, 3, 4]
        memory[2] = 30
    np.testing.assert_array_equal(x, [1, 2, 30, 4])


def test_the_address_of_an_in_is_never_copied_back() -> None:
    x = ramp(4)
    with testing.counting(Device("host")) as moved, offload_args(In(x), device="host") as (dx,):
        assert dx.address != x.ctypes.data
    assert (moved.copies_up, moved.copies_down) == (1, 0)


class Foreign:
    """An array of another package, with only the interface that is needed here."""

    def __init__(self, pointer: DevicePtr[Any]) -> None:
        self.__cuda_array_interface__ = pointer.__cuda_array_interface__


@pytest.mark.promise("T38")
def test_the_cuda_array_interface_describes_the_pointer(cuda: str) -> None:
    A = ramp(3, 4)
    with offload_args(A, In(A[:, :2].copy()), device=cuda) as (dA, fixed):
        interface = dA.__cuda_array_interface__
        assert interface["version"] == 3
        assert interface["shape"] == (3, 4)
        assert interface["typestr"] == "<f4"
        assert interface["strides"] is None
        assert interface["data"] == (dA.address, False)
        assert dA[:, 1:].__cuda_array_interface__["strides"] == (16, 4)
        assert fixed.__cuda_array_interface__["data"][1] is True


@pytest.mark.promise("T29")
def test_an_array_of_the_gpu_is_borrowed_with_no_copy(cuda: str) -> None:
    A, x = ramp(3, 4), ramp(4)
    with offload_args(A, device=cuda) as (dA,):
        foreign = Foreign(dA)
        y = np.zeros(3, np.float32)
        with testing.counting(Device(cuda)) as moved, offload_args(foreign, x, y) as (borrowed, dx, dy):
            assert borrowed.device == Device(cuda)
            blas.gemv(1.0, borrowed, dx, 0.0, dy)
            blas.scal(2.0, borrowed[0])
        assert (moved.copies_up, moved.copies_down) == (1, 1)
        with pytest.raises(ValueError, match="argument 1"):
            offload_args(foreign, device="host").__enter__()
    np.testing.assert_array_equal(y, ramp(3, 4) @ x)
    expected = ramp(3, 4)
    expected[0] *= 2
    np.testing.assert_array_equal(A, expected)


def test_an_array_of_the_gpu_is_filled_copied_and_read_where_it_is(cuda: str) -> None:
    A = ramp(3, 4)
    with offload_args(A, device=cuda) as (dA,):
        foreign = Foreign(dA)
        with offload_args(foreign, Scratch((3, 4), np.float32)) as (borrowed, dw):
            assert "borrowed" in repr(borrowed)
            np.testing.assert_array_equal(borrowed.T.to_host(), ramp(3, 4).T)
            dw.copy_from(borrowed)
            borrowed[:, 1].fill(9)
            dw[0].fill(0.5)
            borrowed[2].copy_from(dw[0])
    expected = ramp(3, 4)
    expected[:, 1] = 9
    expected[2] = 0.5
    np.testing.assert_array_equal(A, expected)


@pytest.mark.promise("T38")
def test_dlpack_capsules_follow_the_specification(cuda: str) -> None:
    x = ramp(4)
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    with offload_args(x, In(x.copy()), device=cuda) as (dx, fixed):
        assert dx.__dlpack_device__() == (2, 0)
        old, new = dx.__dlpack__(), dx.__dlpack__(max_version=(1, 0))
        assert name(old) == b"dltensor"
        assert name(new) == b"dltensor_versioned"
        assert name(fixed.__dlpack__(max_version=(1, 1))) == b"dltensor_versioned"
        with pytest.raises(BufferError, match="read-only"):
            fixed.__dlpack__()
        with pytest.raises(BufferError, match="never copied"):
            dx.__dlpack__(copy=True)
        with pytest.raises(BufferError, match="not on"):
            dx.__dlpack__(dl_device=(1, 0))
    del old, new  # the memory of both outlived the region


def test_libraries_of_c_without_the_address_are_answered_with_it(device: str) -> None:
    function = ctypes.CDLL(None).labs
    function.argtypes = [ctypes.c_void_p]
    with offload_args(np.ones(3), device=device) as (dx,):
        with pytest.raises(ctypes.ArgumentError, match=r"ctypes takes no pointers; pass dx\.address for"):
            function(dx)
    ffi = cffi.FFI()
    ffi.cdef("long atol(const char *text);")
    with pytest.raises(TypeError, match="must be a cdata pointer, not DevicePtr") as error:
        with offload_args(np.ones(3, np.int8), device=device) as (dx,):
            ffi.dlopen(None).atol(dx)
    assert error.value.__notes__[0] == "offload_args: pass dx.cdata(ffi), or arrays by call(function, ...)"
