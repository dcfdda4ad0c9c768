"""fill, copy_from and to_host act on the elements of a pointer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.arrays import PARTS, Array, ramp
from offload_args import Device, In, Out, Scratch, blas, offload_args, testing
from offload_args.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    BackendError,
    DirectionError,
    DTypeError,
    HostAccessError,
    HostPointerError,
    InvalidDataError,
    SizeOverflowError,
    WrongDeviceError,
)

DTYPES = ["bool", "int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float32", "float64", "complex64", "c16"]


# Slices of whole lines, of single elements, of parts of lines, in reverse, of one row, and of one element.
SLICES: dict[str, Callable[[Any], Any]] = {
    **PARTS,
    "all": lambda a: a,
    "every second of both": lambda a: a[::2, ::2],
    "both backwards": lambda a: a[::-1, ::-1],
    "one element": lambda a: a[1:2, 2:3],
    "nothing": lambda a: a[2:2],
}


def kind(name: str) -> np.dtype[Any]:
    return (
        np.dtype(pytest.importorskip("ml_dtypes", reason="device unavailable: no ml_dtypes").bfloat16)
        if name == "bfloat16"
        else np.dtype(name)
    )


def lent(shape: tuple[int, ...], order: str, dtype: Any = np.float32) -> tuple[Array, Array]:
    """Return an array, which has gaps between its lines if order is "gaps", and the memory that contains the array."""
    if order == "gaps":
        base = ramp(shape[0], shape[1] + 2, dtype=dtype)
        return base[:, : shape[1]], base
    base = ramp(*shape, dtype=dtype, order=order)
    return base, base


@pytest.mark.later("host")
@pytest.mark.promise("T55")
@pytest.mark.parametrize("name", SLICES)
@pytest.mark.parametrize("order", ["C", "F", "gaps"])
def test_fill_copy_from_and_to_host_agree_with_numpy(device: str, name: str, order: str) -> None:
    (A, base), (expected, whole) = lent((4, 5), order), lent((4, 5), order)
    target = SLICES[name](expected)
    source = np.asarray(ramp(*target.shape) * 3, order="F" if order == "C" else "C")
    with offload_args(A, In(source), device=device) as (dA, ds):
        part = SLICES[name](dA)
        np.testing.assert_array_equal(part.to_host(), target)
        assert part.to_host().flags.c_contiguous
        part.fill(2.5)
        target[...] = 2.5
        np.testing.assert_array_equal(dA.to_host(), expected)
        np.testing.assert_array_equal(part.to_host(), target)
        part.copy_from(ds)
        target[...] = source
        np.testing.assert_array_equal(dA.to_host(), expected)
    np.testing.assert_array_equal(base, whole)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_is_filled_copied_and_read(device: str, name: str) -> None:
    dtype = kind(name)
    A = ramp(5, 6).astype(dtype)
    value = {"b": True, "c": 1.5 - 2j}.get(dtype.kind, 3)
    expected, other = A.copy(), A.copy()
    with offload_args(A, other, device=device) as (dA, do):
        assert dA.to_host().dtype == dtype
        do.copy_from(dA)
        dA[1:, ::2].fill(value)
        expected[1:, ::2] = value
        assert dA.to_host().tobytes() == expected.tobytes()
        dA.T[2].fill(dtype.type(value))
        expected.T[2] = value
    assert A.tobytes() == expected.tobytes()
    assert other.tobytes() == ramp(5, 6).astype(dtype).tobytes()


@pytest.mark.later("host")
@pytest.mark.parametrize("value", [0, 1, 0.1, float("nan"), -0.0, 2**52 + 1])
@pytest.mark.parametrize("shape", [(), (1,), (1000003,), (257, 3), (3, 129, 5)])
def test_fill_needs_no_bytes_of_the_host(device: str, shape: tuple[int, ...], value: float) -> None:
    x = np.empty(shape)
    with testing.counting(Device(device)) as moved, offload_args(Out(x), device=device) as (dx,):
        dx.fill(value)
        assert (moved.copies_up, moved.bytes_up) == (0, 0)
    assert x.tobytes() == np.full(shape, value, np.float64).tobytes()


def test_filling_a_packed_array_leaves_its_gaps_alone(device: str) -> None:
    base, expected = ramp(4, 6), ramp(4, 6)
    with pytest.warns(UserWarning, match="packed"), offload_args(base[::2, ::3], device=device) as (dA,):
        np.testing.assert_array_equal(dA[:, 1].to_host(), expected[::2, 3])
        dA[1].fill(9)
        np.testing.assert_array_equal(dA.T.to_host(), [[1, 9], [4, 9]])
    expected[2, ::3] = 9
    np.testing.assert_array_equal(base, expected)


def test_contents_that_may_not_be_written_or_read_are_refused(device: str) -> None:
    x, y, z = ramp(4), ramp(4), ramp(4)
    with offload_args(In(x), Out(y), z, device=device) as (dx, dy, dz):
        with pytest.raises(DirectionError, match=r"DevicePtr\.fill: pointer needs to be writable"):
            dx.fill(1)
        with pytest.raises(DirectionError, match=r"DevicePtr\.copy_from: pointer needs to be writable"):
            dx.copy_from(dz)
        with pytest.raises(DirectionError, match=r"DevicePtr\.to_host: .* read before it is written"):
            dy.to_host()
        with pytest.raises(DirectionError, match=r"DevicePtr\.copy_from: source .* read before it is written"):
            dz.copy_from(dy)
        dy[:2].fill(1)
        np.testing.assert_array_equal(dy[:2].to_host(), [1, 1])
        for unwritten in (dy, dy[1:3], dy[::2]):
            with pytest.raises(DirectionError, match=r"DevicePtr\.to_host: .* read before it is written: calls wrote"):
                unwritten.to_host()
            with pytest.raises(DirectionError, match=r"DevicePtr\.copy_from: source .* read before it is written"):
                dz[: unwritten.size].copy_from(unwritten)
        dy.copy_from(dx)
        np.testing.assert_array_equal(dy.to_host(), ramp(4))
        dy[:2].fill(0)
    np.testing.assert_array_equal(y, [0, 0, 3, 4])
    np.testing.assert_array_equal(z, ramp(4))


def test_overlapping_pointers_are_not_copied(device: str) -> None:
    A = ramp(4, 6)
    with offload_args(A, device=device) as (dA,):
        for target, source in ((dA, dA), (dA[:3], dA[1:]), (dA[:, 2], dA[:, 2]), (dA[0], dA[0, ::-1])):
            with pytest.raises(AliasError, match=r"DevicePtr\.copy_from: pointer is written and overlaps source"):
                target.copy_from(source)
        dA[:, :3].copy_from(dA[:, 3:])
        dA[2:].copy_from(dA[:2])
    expected = ramp(4, 6)
    expected[:, :3] = expected[:, 3:]
    expected[2:] = expected[:2]
    np.testing.assert_array_equal(A, expected)


def test_wrong_sources_and_values_are_refused(device: str) -> None:
    x, y, n = ramp(4), ramp(4, dtype=np.float64), ramp(4, dtype=np.uint8)
    with offload_args(x, y, n, ramp(3), device=device) as (dx, dy, dn, short):
        with pytest.raises(DTypeError, match=r"DevicePtr\.copy_from: source needs float32, got a pointer to float64"):
            dx.copy_from(dy)
        with pytest.raises(ArgumentError, match=r"source needs shape \(4,\), got \(3,\)"):
            dx.copy_from(short)
        with pytest.raises(HostPointerError, match=r"source needs a DevicePtr, got ndarray; assign"):
            dx.copy_from(x)  # type: ignore[arg-type]
        with pytest.raises(HostAccessError, match="copy_from"):
            dx.fill(dy)
        with pytest.raises(ArgumentError, match=r"value needs one number, got shape \(4,\)"):
            dx.fill(x)
        with pytest.raises(DTypeError, match="value needs float32, got float64"):
            dx.fill(np.ones(()))
        for pointer, value in ((dn, 300), (dn, -1), (dx, 1e39), (dx, 10**400), (dy, 2**1100)):
            for write in (pointer.fill, pointer.assign):
                with pytest.raises(SizeOverflowError, match=r"DevicePtr\.(fill: value|assign: values) needs .*, got "):
                    write(value)
        for pointer, value in ((dn, 1.0), (dx, 1j), (dx, "1"), (dx, None)):
            with pytest.raises(DTypeError):
                pointer.fill(value)
        for write in (dx.fill, dx.assign):
            with pytest.raises(ArgumentTypeError, match=r"is a masked array, .* x\.filled"):
                write(np.ma.array(1.0, np.float32, mask=True))
        for shape in ((2, 4), (3,), (0,)):
            with pytest.raises(ArgumentError, match=r"values of shape \(.*\) can't be broadcast to shape \(4,\)"):
                dx.assign(np.ones(shape, np.float32))
        for value in (True, np.float32(2), np.inf):
            dx.fill(value)
    np.testing.assert_array_equal(x, np.full(4, np.inf, np.float32))


def test_pointers_of_two_devices_are_not_copied(device: str) -> None:
    with offload_args(ramp(4), device=device) as (dx,), offload_args(ramp(4), device="sim:1") as (dy,):
        with pytest.raises(WrongDeviceError, match=r"DevicePtr\.copy_from"):
            dx.copy_from(dy)


def test_to_host_changes_nothing(device: str) -> None:
    A, x = ramp(30, 40), ramp(40)
    with testing.counting(Device(device)) as moved, offload_args(A, x, device=device) as (dA, dx):
        np.testing.assert_array_equal(dA[:, 3:7].to_host(), A[:, 3:7])
        assert (moved.copies_up, moved.copies_down) == (0, 0)  # the host already has the bytes
        blas.scal(2.0, dx)
        np.testing.assert_array_equal(dx.to_host(), 2 * ramp(40))
        np.testing.assert_array_equal(dx[::-3].to_host(), 2 * ramp(40)[::-3])
        np.testing.assert_array_equal(x, ramp(40))
        assert (moved.copies_up, moved.copies_down) == (1, 2)
        assert "untouched" in repr(dA)
    assert (moved.copies_up, moved.copies_down) == (1, 3)
    np.testing.assert_array_equal(x, 2 * ramp(40))


def test_to_host_of_undefined_contents_is_refused(device: str) -> None:
    x = ramp(4)
    with offload_args(x, device=device) as (dx,):
        with pytest.raises(ZeroDivisionError), offload_args(x, device=device) as (inner,):
            blas.scal(2.0, inner)
            raise ZeroDivisionError
        with pytest.raises(InvalidDataError, match=r"DevicePtr\.to_host"):
            dx.to_host()
        assert "undefined" in repr(dx)
        dx.fill(5)  # overwriting the whole array makes it valid again
        np.testing.assert_array_equal(dx.to_host(), np.full(4, 5, np.float32))
    np.testing.assert_array_equal(x, np.full(4, 5, np.float32))


@pytest.mark.slow
def test_large_arrays_come_to_the_host_as_they_are_on_the_device(device: str) -> None:
    A = np.arange(3_000_000.0).reshape(1500, 2000)
    with offload_args(A, Scratch(A.shape), device=device) as (dA, dw):
        dw.copy_from(dA)
        blas.scal(2.0, dw.reshape(-1))
        np.testing.assert_array_equal(dw.to_host(), 2 * A)
        np.testing.assert_array_equal(dw[::2, 1::3].to_host(), 2 * A[::2, 1::3])
        np.testing.assert_array_equal(dw.T.to_host(), 2 * A.T)


@pytest.mark.parametrize("backwards", [np.s_[::-1], np.s_[:, ::-1], np.s_[::-1, 3:9, ::-1], np.s_[::-1, ::-1, ::-1]])
def test_a_reversed_pointer_comes_to_the_host_in_as_few_copies_as_the_same_forwards(
    backwards: tuple[slice, ...] | slice,
) -> None:
    sim = Device("sim:0")
    axes = backwards if isinstance(backwards, tuple) else (backwards,)
    forwards = tuple(slice(None) if s.step == -1 else s for s in axes)
    for dtype in (np.uint8, np.float64, "c16"):
        A = ramp(7, 10, 100, dtype=dtype)
        with offload_args(A, Scratch(A.shape, A.dtype), device=sim) as (dA, dw):
            dw.copy_from(dA)
            dw[forwards].to_host()  # makes objects that copies reuse
            calls = []
            for part in (forwards, backwards):
                before = testing.backend_calls(sim)
                np.testing.assert_array_equal(dw[part].to_host(), A[part])
                calls.append(testing.backend_calls(sim) - before)
            assert calls[0] == calls[1] < 20


def test_fill_and_copies_take_their_turn() -> None:
    sim = testing.sim_device(delay_us=300)
    x, y, z = ramp(64), ramp(64), ramp(64)
    with offload_args(x, y, device=sim) as (dx, dy), offload_args(y, Out(z), device=sim) as (inner, dz):
        for i in range(5):
            blas.scal(2.0, dx)
            inner.copy_from(dx)  # on another stream than the writes of dx
            dx.fill(i)
            blas.axpy(1.0, inner, dx)
        dz.copy_from(dy)
        read = dz.to_host()
    testing.sim_device()
    expected = ramp(64)
    for i in range(5):
        expected = 2 * expected + i
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(y, expected - 4)
    np.testing.assert_array_equal(z, y)
    np.testing.assert_array_equal(read, y)


@pytest.mark.promise("T01")
@pytest.mark.parametrize("use", ["fill", "fill by doubling", "copy_from", "to_host", "to_host of a slice"])
def test_any_failing_backend_call_leaves_nothing_behind(use: str) -> None:
    sim = testing.sim_device()
    does: dict[str, Callable[[Any, Any], object]] = {
        "fill": lambda a, b: a[:, 1:3].fill(0),
        "fill by doubling": lambda a, b: a[1:].fill(0.1),
        "copy_from": lambda a, b: a.T.copy_from(b.T),
        "to_host": lambda a, b: a.to_host(),
        "to_host of a slice": lambda a, b: a[::2, ::2].to_host(),
    }
    with offload_args(ramp(6, 7), ramp(6, 7), device=sim) as (dA, dB):
        blas.scal(1.0, dA.reshape(-1))  # makes objects that calls and copies reuse
        does[use](dA, dB)
    failed, k, calls = 0, 0, 1
    while k < calls:  # after some failures the piece is sent another way
        k += 1
        A, B = ramp(6, 7, dtype=np.float64), ramp(6, 7, dtype=np.float64)
        try:
            with offload_args(A, B, device=sim) as (dA, dB):
                blas.scal(1.0, dA.reshape(-1))
                before = testing.backend_calls(sim)
                testing.fail_call(sim, k)
                try:
                    does[use](dA, dB)
                finally:
                    calls = max(calls, testing.backend_calls(sim) - before)
                    testing.fail_call(sim, 0)
        except BackendError as error:
            failed += 1
            assert "SIM_ERROR_INJECTED" in str(error)
            np.testing.assert_array_equal(A, ramp(6, 7))
        testing.no_mappings_left()
        sim.synchronize()
    assert failed and k == calls


def test_threads_fill_disjoint_slices(device: str) -> None:
    A = np.zeros((16, 33))
    with offload_args(A, device=device) as (dA,):
        slices = [dA[i % 4 :: 4, i // 4 :: 4] for i in range(16)]
        threads = [threading.Thread(target=slice_.fill, args=(i,)) for i, slice_ in enumerate(slices)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = np.zeros((16, 33))
    for i in range(16):
        expected[i % 4 :: 4, i // 4 :: 4] = i
    np.testing.assert_array_equal(A, expected)
