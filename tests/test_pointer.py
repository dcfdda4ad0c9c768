"""Device pointers: what they say, what they refuse, and their parts."""

from __future__ import annotations

import copy
import ctypes
import operator
import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offload_args import Device, DevicePtr, In, Out, Scratch, blas, offload_args, testing
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    ExtentError,
    HostAccessError,
    HostPointerError,
    OffloadError,
    StalePointerError,
)

Array = NDArray[Any]


def ramp(*shape: int, dtype: Any = np.float32, order: Any = "C") -> Array:
    size = int(np.prod(shape))
    return np.asarray(np.arange(1, size + 1).reshape(shape), dtype=dtype, order=order)


# -- what it says --------------------------------------------------------------------------------------------


def test_a_pointer_says_what_it_points_to(device: str) -> None:
    A = ramp(3, 4, order="F")
    with offload_args(A, device=device) as (dA,):
        assert dA.dtype == np.float32
        assert dA.shape == (3, 4)
        assert dA.strides == (4, 12)
        assert (dA.ndim, dA.size, dA.nbytes, dA.ld) == (2, 12, 48, 3)
        assert dA.device == Device(device)
        assert dA.live
        assert repr(dA) == f"DevicePtr(float32, shape=(3, 4), ld=3, {device})"
    assert not dA.live
    assert repr(dA) == "DevicePtr(float32, shape=(3, 4), ld=3, dead)"
    assert dA.shape == (3, 4)
    assert dA.dtype == np.float32


def test_a_pointer_can_not_be_changed_or_made_by_hand() -> None:
    with offload_args(ramp(3)) as (dx,):
        for name in ("shape", "dtype", "ld", "_cd", "_device", "other"):
            with pytest.raises(AttributeError):
                setattr(dx, name, 1)
    with pytest.raises(HostAccessError, match="made by regions"):
        DevicePtr(12345)


def test_pointers_are_equal_by_identity() -> None:
    x = ramp(3)
    with offload_args(x, x) as (a, b):
        assert a == a  # noqa: PLR0124
        assert a != b
        assert len({a, b, a}) == 2


def test_a_pointer_has_a_type_for_static_checkers() -> None:
    def norm(x: DevicePtr[np.float32]) -> float:
        return blas.nrm2(x)

    with offload_args(ramp(3)) as (dx,):
        assert isinstance(dx, DevicePtr)
        assert norm(dx) > 0
    assert DevicePtr[np.float32] != DevicePtr[np.float64]


def test_ld_is_for_matrices_and_names_the_remedy() -> None:
    with offload_args(ramp(3), Scratch((2, 3, 4)), Scratch((4, 6))) as (dx, cube, matrix):
        with pytest.raises(ValueError, match="2 dimensions, has 1"):
            _ = dx.ld
        with pytest.raises(ValueError, match="2 dimensions, has 3"):
            _ = cube.ld
        with pytest.raises(ArgumentError, match="ascontiguousarray"):
            _ = matrix[:, ::2].ld
        assert (matrix[:0].ld, matrix[:, :0].ld) == (6, 6)


@pytest.mark.parametrize(
    ("make", "ld"),
    [
        (lambda m: m[:1], 6),
        (lambda m: m[:, :1], 6),
        (lambda m: m[:1].T, 6),
        (lambda m: m[0][None, :], 6),
        (lambda m: m[0][:, None], 1),
        (lambda m: m[:, 0][None, :], 6),
        (lambda m: m[:, 0][:, None], 6),
        (lambda m: m[::2], 12),
    ],
)
def test_ld_of_single_rows_and_columns(make: Callable[[Any], Any], ld: int) -> None:
    with offload_args(Scratch((4, 6))) as (matrix,):
        assert make(matrix).ld == ld


# -- what it refuses -----------------------------------------------------------------------------------------

ON_THE_HOST: dict[str, Callable[[Any], object]] = {
    "an element": lambda p: p[0],
    "the last element": lambda p: p[-1],
    "writing an element": lambda p: operator.setitem(p, 0, 1.0),
    "writing a slice": lambda p: operator.setitem(p, slice(2), 1.0),
    "a list index": lambda p: p[[0, 1]],
    "a mask": lambda p: p[np.array([True, False, True])],
    "iter": lambda p: iter(p),
    "unpacking": lambda p: [*p],
    "len": lambda p: len(p),
    "in": lambda p: 1.0 in p,
    "reversed": lambda p: reversed(p),
    "float": lambda p: float(p),
    "int": lambda p: int(p),
    "complex": lambda p: complex(p),
    "bool": lambda p: bool(p),
    "index": lambda p: operator.index(p),
    "round": lambda p: round(p),
    "+": lambda p: p + 1,
    "1 +": lambda p: 1 + p,
    "+=": lambda p: operator.iadd(p, 1),
    "*": lambda p: p * p,
    "@": lambda p: p @ p,
    "/": lambda p: p / 2,
    "-": lambda p: -p,
    "abs": lambda p: abs(p),
    "<": lambda p: p < 1,
    ">=": lambda p: p >= p,
    "divmod": lambda p: divmod(p, 2),
    "array + pointer": lambda p: np.ones(3, np.float32) + p,
    "array == pointer": lambda p: np.ones(3, np.float32) == p,
    "np.add": lambda p: np.add(p, 1),
    "np.sum": lambda p: np.sum(p),
    "np.dot": lambda p: np.dot(p, p),
    "np.asarray": lambda p: np.asarray(p),
    "np.array of pointers": lambda p: np.array([p, p]),
    "np.copyto": lambda p: np.copyto(np.ones(3, np.float32), p),
    "memoryview": lambda p: memoryview(p),
    "bytes": lambda p: bytes(p),
    "ctypes": lambda p: (ctypes.c_char * 4).from_buffer(p),
    "copy": lambda p: copy.copy(p),
    "deepcopy": lambda p: copy.deepcopy(p),
    "pickle": lambda p: pickle.dumps(p),
    "tolist in a container": lambda p: np.asarray([[p]]),
}


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_what_only_the_host_could_do_is_refused_with_advice(device: str, name: str) -> None:  # T36 among them
    x = ramp(3)
    with testing.counting(Device(device)) as moved, offload_args(x, device=device) as (dx,):
        with pytest.raises(TypeError) as raised:
            ON_THE_HOST[name](dx)
        assert isinstance(raised.value, HostAccessError), raised.value
        assert str(raised.value).startswith("DevicePtr: ")
        assert ";" in str(raised.value) or ":" in str(raised.value).removeprefix("DevicePtr: ")
    assert moved.copies_up == 0


def test_memory_that_is_on_no_gpu_is_not_offered_as_such() -> None:
    with offload_args(ramp(3), device="host") as (dx,):
        assert not hasattr(dx, "__cuda_array_interface__")
        with pytest.raises(HostAccessError, match="on host"):
            dx.__dlpack__()
        with pytest.raises(TypeError):
            np.from_dlpack(dx)


# -- T37: after its region -----------------------------------------------------------------------------------

WHEN_DEAD: dict[str, Callable[[Any], object]] = {
    "call": lambda p: blas.scal(2.0, p),
    "slice": lambda p: p[1:],
    "new axis": lambda p: p[None],
    "offset": lambda p: p.offset(1),
    "transpose": lambda p: p.T,
    "assign": lambda p: p.assign(1),
    "address": lambda p: p.address,
    "DLPack": lambda p: p.__dlpack__(),
    "DLPack device": lambda p: p.__dlpack_device__(),
    "CUDA array interface": lambda p: p.__cuda_array_interface__,
    "a region": lambda p: offload_args(p).__enter__(),
    "an In": lambda p: offload_args(In(p)).__enter__(),
}


@pytest.mark.parametrize("use", WHEN_DEAD)
def test_t37_a_pointer_used_after_its_region_is_stale(device: str, use: str) -> None:
    with offload_args(ramp(3), device=device) as (dx,):
        part = dx[1:]
    for pointer in (dx, part):
        with pytest.raises(StalePointerError):
            WHEN_DEAD[use](pointer)
        assert "dead" in repr(pointer)


def test_t37_a_stale_pointer_stays_stale_when_its_array_is_lent_again(device: str) -> None:
    x = ramp(3)
    with offload_args(x, device=device) as (old,):
        pass
    with offload_args(x, device=device) as (new,):
        with pytest.raises(StalePointerError):
            blas.axpy(1.0, old, new)
        blas.scal(2.0, new)
    np.testing.assert_array_equal(x, 2 * ramp(3))


# -- parts ---------------------------------------------------------------------------------------------------

PARTS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda a: a[1:3],
    "columns": lambda a: a[:, 2:],
    "a block": lambda a: a[1:3, 1:4],
    "a row": lambda a: a[2],
    "the last row": lambda a: a[-1],
    "a column": lambda a: a[:, 1],
    "every second column": lambda a: a[:, ::2],
    "every second row": lambda a: a[::2],
    "backwards": lambda a: a[::-1],
    "a row backwards": lambda a: a[1, ::-1],
    "ellipsis": lambda a: a[..., 1:],
    "ellipsis and row": lambda a: a[1, ...],
    "a new axis": lambda a: a[0][None, 1:3],
    "twice": lambda a: a[1:][1:, 1:][:, 1:],
    "transposed": lambda a: a.T[1:3],
    "NumPy's integers": lambda a: a[np.int64(1)],
    "more than there is": lambda a: a[1:100, -100:2],
}


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_part_is_what_numpy_makes_of_it(device: str, name: str, order: str) -> None:
    A, expected = ramp(4, 5, order=order), ramp(4, 5, order=order)
    part = PARTS[name](expected)
    part[...] = 77
    with offload_args(A, device=device) as (dA,):
        pointer = PARTS[name](dA)
        assert pointer.shape == part.shape
        if part.shape != (1, 2):  # a new axis has a stride that says nothing
            assert pointer.strides == part.strides
        pointer.assign(77)
    np.testing.assert_array_equal(A, expected)


def test_a_part_of_a_packed_array_is_right(device: str) -> None:
    base = ramp(4, 6)
    with pytest.warns(UserWarning, match="packed"):
        with offload_args(base[:, ::2], device=device) as (dA,):
            assert dA.strides == (12, 4)
            dA[1:3, 1].assign(77)
    expected = ramp(4, 6)
    expected[:, ::2][1:3, 1] = 77
    np.testing.assert_array_equal(base, expected)


def test_an_empty_part_is_fine(device: str) -> None:
    x = ramp(4)
    with offload_args(x, device=device) as (dx,):
        for empty in (dx[4:], dx[2:2], dx[100:], dx[:0]):
            assert empty.shape == (0,)
            blas.scal(2.0, empty)
    np.testing.assert_array_equal(x, ramp(4))


def test_too_many_indices_and_an_index_too_far_are_refused() -> None:
    with offload_args(ramp(4, 5)) as (dA,):
        with pytest.raises(IndexError, match="3 indices for 2 dimensions"):
            dA[1:, 1:, 1:]
        with pytest.raises(IndexError, match="index 4 is out of bounds for axis 0"):
            dA[4]
        with pytest.raises(HostAccessError, match=r"dx\[i:i\+1\]"):
            dA[1, 1]
        with pytest.raises(HostAccessError, match="float"):
            dA[1.0]


def test_a_part_has_its_own_bounds(library: ModuleType, device: str) -> None:
    x = ramp(8)
    with offload_args(x, device=device) as (dx,):
        with pytest.raises(ExtentError, match="x needs 4"):
            library.sscal(4, 2.0, dx[2:5], 1)
        library.sscal(3, 2.0, dx[2:5], 1)
    expected = ramp(8)
    expected[2:5] *= 2
    np.testing.assert_array_equal(x, expected)


def test_offset_counts_elements_to_the_end_of_the_memory(device: str) -> None:
    A = ramp(3, 4)
    with offload_args(A, device=device) as (dA,):
        rest = dA.offset(5)
        assert rest.shape == (7,)
        assert dA.offset(12).shape == (0,)
        blas.scal(10.0, rest)
        with pytest.raises(ExtentError, match=r"DevicePtr\.offset: n needs 0 to 12, .* got 13"):
            dA.offset(13)
        with pytest.raises(ExtentError, match=r"DevicePtr\.offset: n needs 0 to 12, .* got -1"):
            dA.offset(-1)
        with pytest.raises(ArgumentTypeError, match=r"DevicePtr\.offset: n needs a whole number .* got 1\.5"):
            dA.offset(1.5)  # type: ignore[arg-type]
    expected = ramp(12)
    expected[5:] *= 10
    np.testing.assert_array_equal(A.reshape(-1), expected)


def test_a_0d_pointer_is_a_scalar(device: str) -> None:
    x, alpha, total = ramp(4), np.array(3, np.float32), np.zeros((), np.float32)
    with offload_args(x, alpha, total, device=device) as (dx, da, dt):
        assert (da.shape, da.size) == ((), 1)
        blas.scal(da, dx)
        assert blas.dot(dx, dx, result=dt) is None
        with pytest.raises(HostAccessError):
            da[()]
        assert da[...].shape == ()
    np.testing.assert_array_equal(x, 3 * ramp(4))
    assert total == 9 * float(ramp(4) @ ramp(4))


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


# -- for code outside, on a GPU ------------------------------------------------------------------------------


class Foreign:
    """An array of another package, as far as its interface goes."""

    def __init__(self, pointer: DevicePtr[Any]) -> None:
        self.__cuda_array_interface__ = pointer.__cuda_array_interface__


def test_t38_the_cuda_array_interface_says_what_the_pointer_is(cuda: str) -> None:
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


def test_t29_an_array_of_the_gpu_is_borrowed_with_no_copy(cuda: str) -> None:
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


def test_t38_dlpack_capsules_follow_the_specification(cuda: str) -> None:
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
    del old, new  # their memory outlived the region


def test_wrong_kinds_of_pointers_are_offload_errors() -> None:
    with offload_args(ramp(3), Out(ramp(3))) as (dx, dy):
        with pytest.raises(OffloadError) as raised:
            blas.copy(dx, ramp(3))
        assert isinstance(raised.value, HostPointerError)
        blas.copy(dx, dy)
