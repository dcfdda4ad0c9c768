"""A device pointer can't be misused.

Each misuse raises an error that names the function, the argument, the needed and the passed value.
"""

from __future__ import annotations

import gc
import pickle
import weakref
from contextlib import suppress
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import Device, In, Out, Scratch, blas, errors, lapack, offload_args, testing
from offload_args.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    DirectionError,
    DTypeError,
    ExtentError,
    HostPointerError,
    InvalidDataError,
    LibraryError,
    LibraryVersionError,
    OffloadError,
    SizeOverflowError,
    StalePointerError,
    WrongDeviceError,
)


def gemv(library: ModuleType, m: Any, n: Any, alpha: Any, A: Any, lda: Any, x: Any, beta: Any, y: Any) -> None:
    """Call the library's y = alpha A x + beta y of a column-major m by n matrix of float32."""
    if hasattr(library, "ColMajor"):
        library.sgemv(library.ColMajor, library.NoTrans, m, n, alpha, A, lda, x, 1, beta, y, 1)
    else:
        none = library.operation_none if hasattr(library, "operation_none") else library.OP_N
        library.sgemv(none, m, n, alpha, A, lda, x, 1, beta, y, 1)


def named(library: ModuleType, function: str) -> str:
    return f"{library.__name__.rpartition('.')[2]}.{function}"


def says(error: BaseException, *parts: str) -> None:
    for part in parts:
        assert part in str(error), f"{part!r} is not in {str(error)!r}"


def refused(device: str, kind: type[Exception], function: Any, *arguments: Any) -> BaseException:
    """Call the function, and check that it raises this kind of exception before anything moves or runs."""
    with testing.counting(Device(device)) as moved, pytest.raises(kind) as raised:
        function(*arguments)
    assert isinstance(raised.value, OffloadError)
    assert (moved.copies_up, moved.copies_down, moved.calls) == (0, 0, 0)
    return raised.value


@pytest.mark.parametrize("n", [np.float32(2.7), np.array(2.5)])
def test_a_size_that_is_no_integer_beside_scalars_on_the_device(library: ModuleType, device: str, n: Any) -> None:
    x, y, scalar = ramp(4), ramp(4), np.ones((), np.float32)
    with offload_args(x, y, scalar, device=device) as (dx, dy, alpha):
        error = refused(device, ArgumentTypeError, library.saxpy, n, alpha, dx, 1, dy, 1)
    says(error, f"{named(library, 'saxpy')}: n needs an integer")


def test_a_host_array_where_a_device_pointer_belongs(library: ModuleType, device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), ramp(3)
    with offload_args(x, y, device=device) as (dx, dy):
        error = refused(device, HostPointerError, gemv, library, 3, 4, 1.0, A, 3, dx, 0.0, dy)
    says(
        error,
        f"{named(library, 'sgemv')}: A needs a DevicePtr[float32], got a NumPy array of float32",
        "lend it first: with offload_args(A)",
    )
    assert isinstance(error, TypeError)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "None"), (0, "the int 0"), (2**40, "an address is not a pointer"), ("x", "the str 'x'"), ([1.0], "a list")],
)
def test_something_else_where_a_device_pointer_belongs(
    library: ModuleType, device: str, value: object, text: str
) -> None:
    A, y = ramp(3, 4), ramp(3)
    with offload_args(A, y, device=device) as (dA, dy):
        error = refused(device, HostPointerError, gemv, library, 3, 4, 1.0, dA, 3, value, 0.0, dy)
    says(error, f"{named(library, 'sgemv')}: x needs a DevicePtr[float32], got", text)


def test_a_device_pointer_where_a_host_value_belongs(library: ModuleType, device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), ramp(3)
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        error = refused(device, HostPointerError, gemv, library, dx, 4, 1.0, dA, 3, dx, 0.0, dy)
        says(error, f"{named(library, 'sgemv')}: m needs an integer on the host, got a DevicePtr[float32]")
        with pytest.raises(TypeError):
            np.dot(A, dx)
        with pytest.raises(TypeError):
            ramp(4)[:] = dx


def test_a_host_array_where_a_scalar_belongs(library: ModuleType, device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), ramp(3)
    alpha = np.array([2.0, 3.0], np.float32)
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        error = refused(device, HostPointerError, gemv, library, 3, 4, alpha, dA, 3, dx, 0.0, dy)
    says(error, "alpha needs a real number or a 0-d DevicePtr[float32], got a NumPy array of float32", "alpha.item(0)")


@pytest.mark.parametrize("value", ["1", None, 1j])
def test_something_else_where_a_scalar_belongs(library: ModuleType, device: str, value: object) -> None:
    A, x, y = ramp(3, 4), ramp(4), ramp(3)
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        error = refused(device, ArgumentTypeError, gemv, library, 3, 4, 1.0, dA, 3, dx, value, dy)
    says(error, f"{named(library, 'sgemv')}: beta needs a real number or a 0-d DevicePtr[float32], got")


def test_a_pointer_of_the_wrong_dtype(library: ModuleType, device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4, dtype=np.float64), ramp(3)
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        error = refused(device, DTypeError, gemv, library, 3, 4, 1.0, dA, 3, dx, 0.0, dy)
    says(error, f"{named(library, 'sgemv')}: x needs a DevicePtr[float32], got a DevicePtr[float64]")
    assert isinstance(error, TypeError)


def test_a_scalar_on_the_device_of_the_wrong_dtype(library: ModuleType, device: str) -> None:
    A, x, y, alpha = ramp(3, 4), ramp(4), ramp(3), np.array(2.0)
    with offload_args(A, x, y, alpha, device=device) as (dA, dx, dy, da):
        error = refused(device, DTypeError, gemv, library, 3, 4, da, dA, 3, dx, 0.0, dy)
    says(error, "alpha needs a DevicePtr[float32], got a DevicePtr[float64]")


def test_pointers_of_two_devices_in_one_call(device: str) -> None:
    other = "sim:1"
    x, y = ramp(4), ramp(4)
    with offload_args(x, device=device) as (dx,), offload_args(y, device=other) as (dy,):
        error = refused(device, WrongDeviceError, blas.axpy, 1.0, dx, dy)
    says(error, "axpy", "y", device, other)
    assert isinstance(error, ValueError)


def test_the_library_of_another_device() -> None:
    from offload_args import cublas

    with offload_args(ramp(4), device="host") as (dx,):
        with pytest.raises((WrongDeviceError, LibraryError)) as raised:
            cublas.sscal(4, 2.0, dx, 1)
        says(raised.value, "cublas", "host")


def test_a_stale_pointer(library: ModuleType, device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), ramp(3)
    with offload_args(x, device=device) as (old,):
        pass
    with offload_args(A, y, device=device) as (dA, dy):
        error = refused(device, StalePointerError, gemv, library, 3, 4, 1.0, dA, 3, old, 0.0, dy)
    says(error, f"{named(library, 'sgemv')}: x", "region", "ended")


@pytest.mark.promise("T31")
def test_a_matrix_too_small_for_the_call(library: ModuleType, device: str) -> None:
    A, x, y = ramp(2, 4), ramp(4), ramp(4)
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        error = refused(device, ExtentError, gemv, library, 4, 4, 1.0, dA, 4, dx, 0.0, dy)
    says(error, f"{named(library, 'sgemv')}: A needs 16 elements (m=4, n=4, lda=4), has 8")
    assert isinstance(error, ValueError)


@pytest.mark.promise("T31")
def test_a_vector_too_short_for_the_call(library: ModuleType, device: str) -> None:
    x = ramp(4)
    with offload_args(x, device=device) as (dx,):
        says(refused(device, ExtentError, library.sscal, 5, 2.0, dx, 1), "x needs 5 elements", "n=5", "has 4")
        says(refused(device, ExtentError, library.sscal, 3, 2.0, dx, 2), "x needs 5 elements", "incx=2", "has 4")


@pytest.mark.promise("T31")
def test_a_leading_dimension_less_than_the_rows(library: ModuleType, device: str) -> None:
    A, x, y = ramp(4, 4), ramp(4), ramp(4)
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        error = refused(device, ValueError, gemv, library, 4, 4, 1.0, dA, 3, dx, 0.0, dy)
    says(error, f"{named(library, 'sgemv')}: ", "lda", "3", "4")


def test_writing_an_array_that_was_lent_for_reading(library: ModuleType, device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), ramp(3)
    with offload_args(A, x, In(y), device=device) as (dA, dx, dy):
        error = refused(device, DirectionError, gemv, library, 3, 4, 1.0, dA, 3, dx, 0.0, dy)
    says(error, f"{named(library, 'sgemv')}: y needs to be writable", "argument 3", "In", "lend it as Out")


def test_reading_an_array_that_was_lent_for_writing(library: ModuleType, device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), ramp(3)
    with pytest.warns(errors.UnwrittenWarning), offload_args(A, x, Out(y), device=device) as (dA, dx, dy):
        error = refused(device, DirectionError, gemv, library, 3, 4, 1.0, dA, 3, dx, 1.0, dy)
    says(error, f"{named(library, 'sgemv')}: y", "argument 3", "Out", "lend it as InOut")


def test_a_written_operand_that_is_also_read(library: ModuleType, device: str) -> None:
    A, x = ramp(4, 4), ramp(4)
    with offload_args(A, x, device=device) as (dA, dx):
        error = refused(device, AliasError, gemv, library, 4, 4, 1.0, dA, 4, dx, 0.0, dx)
    says(error, f"{named(library, 'sgemv')}: ", "y", "x")


@pytest.mark.promise("T06")
def test_sizes_that_overflow_or_are_negative(library: ModuleType, device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), ramp(3)
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        says(refused(device, ValueError, gemv, library, -1, 4, 1.0, dA, 3, dx, 0.0, dy), "m", "-1")
        for huge in (2**31, 2**61, 2**63 - 1):
            error = refused(device, Exception, gemv, library, huge, huge, 1.0, dA, huge, dx, 0.0, dy)
            # rocBLAS before version 4 has no sizes of 64 bits
            assert isinstance(error, (ExtentError, SizeOverflowError, LibraryVersionError))
        error = refused(device, OverflowError, gemv, library, 2**64, 4, 1.0, dA, 3, dx, 0.0, dy)
        says(error, "m needs an integer of at most 63 bits")


def test_a_size_that_is_no_integer(library: ModuleType, device: str) -> None:
    with offload_args(ramp(4), device=device) as (dx,):
        says(refused(device, TypeError, library.sscal, 2.5, 2.0, dx, 1), "n needs an integer, got the float 2.5")
        library.sscal(np.int64(4), np.float32(2), dx, True)


def test_a_constant_that_the_library_does_not_have(library: ModuleType, device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), ramp(3)
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        rest = (3, 4, 1.0, dA, 3, dx, 1, 0.0, dy, 1)
        order = (library.ColMajor,) if hasattr(library, "ColMajor") else ()
        says(refused(device, ArgumentError, library.sgemv, *order, 99, *rest), "trans", "99")
        error = refused(device, ArgumentTypeError, library.sgemv, *order, "N", *rest)
        says(error, "trans", "a constant of ", "'N'")


def test_a_host_result_where_a_scalar_is_on_the_device(library: ModuleType, device: str) -> None:
    x, result = ramp(4), np.zeros((), np.float64)
    with offload_args(x, result, device=device) as (dx, dr):
        error = refused(device, DTypeError, lambda: library.snrm2(4, dx, 1, result=dr))
        says(error, f"{named(library, 'snrm2')}: result needs a DevicePtr[float32], got a DevicePtr[float64]")
        error = refused(device, HostPointerError, lambda: library.snrm2(4, dx, 1, result=np.zeros(1, np.float32)))
        says(error, "result needs a DevicePtr[float32], ", "got a NumPy array of float32")


def test_scalars_and_results_on_the_device(library: ModuleType, device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), ramp(3)
    alpha, norm = np.array([2.0], np.float32), np.zeros(1, np.float32)
    with offload_args(A, x, y, alpha, norm, device=device) as (dA, dx, dy, da, dn):
        gemv(library, 3, 4, da, dA.offset(0), 3, dx, 0.5, dy)
        library.snrm2(3, dy, 1, result=dn)
    expected = 2 * A.reshape(4, 3).T @ x + 0.5 * ramp(3)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_allclose(norm, [np.linalg.norm(expected)], rtol=1e-6)


def test_a_scalar_that_a_call_sends_to_the_device_is_gone_after_it(library: ModuleType, device: str) -> None:
    A, x, y, alpha = ramp(3, 4), ramp(4), ramp(3), np.array([2.0], np.float32)
    expected = ramp(3)
    with offload_args(A, x, y, alpha, device=device) as (dA, dx, dy, da):
        before = Device(device).counters
        for _ in range(5):
            gemv(library, 3, 4, da, dA.offset(0), 3, dx, 0.5, dy)
            expected = 2 * A.reshape(4, 3).T @ x + 0.5 * expected
        with pytest.raises(ExtentError):
            gemv(library, 3, 5, da, dA.offset(0), 3, dx, 0.5, dy)
        after = Device(device).counters
        assert (after.mappings, after.memory_used) == (before.mappings, before.memory_used)
    np.testing.assert_allclose(y, expected, rtol=1e-6)


def test_data_that_a_failed_call_left_undefined_is_never_read() -> None:
    sim = testing.sim_device()
    x, y = ramp(4), ramp(4)
    with pytest.raises(InvalidDataError):
        with offload_args(x, y, device=sim) as (dx, dy):
            blas.scal(1.0, dx)
            blas.scal(1.0, dy)
            with pytest.raises(KeyError):
                with offload_args(y, device=sim) as (inner,):
                    blas.scal(2.0, inner)
                    raise KeyError
            with pytest.raises(InvalidDataError, match="axpy: y"):
                blas.axpy(1.0, dx, dy)
    np.testing.assert_array_equal(y, ramp(4))


@pytest.mark.promise("T05")
def test_a_device_that_is_full_says_how_full() -> None:
    sim = testing.sim_device(capacity=2**16)
    x = ramp(4)
    try:
        with pytest.raises(MemoryError) as raised:
            with offload_args(x, Scratch(2**20), x, device=sim):
                pass
        says(raised.value, "sim:0", str(2**23), str(2**16))
        with offload_args(x, device=sim) as (dx,):
            blas.scal(2.0, dx)
    finally:
        testing.sim_device()
    np.testing.assert_array_equal(x, 2 * ramp(4))


def test_every_error_is_also_the_builtin_that_a_person_would_catch() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        if issubclass(kind, Warning):
            assert issubclass(kind, UserWarning)
        elif kind is not OffloadError:
            assert issubclass(kind, OffloadError)
            assert issubclass(kind, (ValueError, TypeError, RuntimeError, MemoryError, OverflowError))
        assert pickle.loads(pickle.dumps(kind("text"))).args == ("text",)
        assert kind.__new__(kind, "text").args == ("text",)  # tblib makes exceptions of other processes so


def test_a_handled_error_keeps_nothing_alive(device: str) -> None:
    """A frame with a variable for its exception would live, with its callers' objects, until a garbage collection."""
    with offload_args(np.ones(3), device=device) as (pointer,):
        pass

    def fails() -> weakref.ref[Any]:
        held = np.ones(3)
        with suppress(StalePointerError):
            blas.scal(2.0, pointer)
        return weakref.ref(held)

    gc.disable()
    try:
        assert fails()() is None
    finally:
        gc.enable()


def test_each_error_is_the_same_in_another_process() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    for error in (*(kind("text") for kind in kinds), lapack.StackError("text", np.array([0, 3], np.int32))):
        error.add_note("note")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == "text" and again.__notes__ == ["note"]
    assert again.info.tolist() == [0, 3]
