"""If the driver fails at some point of a call, there is an error or the right result, never wrong bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from offload_args import Device, DevicePtr, In, Out, Scratch, blas, offload_args, testing, update
from offload_args.errors import OffloadError

Array = NDArray[np.float64]
X = np.full(8, 1e300)
MOST = 160  # the number of backend calls of the longest program
pytestmark = pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")


def two_regions_and_a_mixed_call(A: Array, x: Array, y: Array) -> None:
    """Call gemv with alpha on the host, beta on the device, and operands of two regions."""
    with offload_args(A, y, Scratch(1), device="sim:0") as (dA, dy, beta):
        beta.fill(2.0)
        with offload_args(In(x), device="sim:0") as (dx,):
            blas.gemv(3.0, dA, dx, beta, dy)
            blas.gemv(1.0, dA, dx, beta, dy)
        blas.scal(beta, dy)


def temporary_regions_in_a_row(A: Array, x: Array, y: Array) -> None:
    """Free small memory, and let regions of other streams take it immediately."""
    with offload_args(y, device="sim:0") as (dy,):
        for row in range(4):
            with offload_args(In(A[row]), Scratch(len(x)), device="sim:0") as (drow, work):
                work.copy_from(drow)
                blas.axpy(1.0, work, dy)
            with offload_args(In(x), Scratch(len(x)), device="sim:0") as (dx, work):
                blas.copy(dx, work)
                blas.axpy(2.0, work, dy)


def updates_and_reads_between_calls(A: Array, x: Array, y: Array) -> None:
    """Copy bytes in both directions through the same blocks."""
    with offload_args(x, y, A, device="sim:0") as (dx, dy, dA):
        blas.scal(2.0, dx)
        blas.axpy(1.0, dA[2], dy)
        update(y)
        with update(x[2:5]) as part:
            part[:] = 1.0
        blas.axpy(float(dy[1:2].to_host()[0]), dx, dy)
        dA[::2].assign(5.0)
        dA[1, ::2].copy_from(dA[3, ::2])


def large_arrays(A: Array, x: Array, y: Array) -> None:
    """Copy in chunks, from a device to another one, and back."""
    big, out = np.repeat(x, 1 << 17), np.zeros(len(x) << 17)
    with offload_args(big, device="sim:0") as (dbig,):
        blas.scal(2.0, dbig)
        update(big)
        with offload_args(In(big), Out(out), device="sim:1") as (again, dout):
            blas.copy(again, dout)
    x[:], y[:] = big[:: 1 << 17], out[(1 << 17) - 1 :: 1 << 17]


PROGRAMS = (two_regions_and_a_mixed_call, temporary_regions_in_a_row, updates_and_reads_between_calls, large_arrays)


@pytest.mark.copies
@pytest.mark.later("large_arrays", "temporary_regions_in_a_row")
@pytest.mark.promise("T01")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_call_of_the_driver_that_fails_leaves_right_bytes_or_an_error(
    program: Callable[[Array, Array, Array], None],
) -> None:
    sim = Device("sim:0")
    large = program is large_arrays

    def run() -> list[Array]:
        A, x, y = np.arange(24.0).reshape(4, 6), np.arange(6.0), np.ones(6)
        if program is two_regions_and_a_mixed_call:
            A, x, y = A.reshape(6, 4).copy(), x[:4].copy(), y
        failed = False
        try:
            program(A, x, y)
        except OffloadError:
            failed = True
        testing.fail_call(sim, 0)
        return [] if failed else [A, x, y]

    testing.sim_device(index=0, delay_us=0 if large else 100)
    try:
        expected = run()
        begun = testing.backend_calls(sim)
        run()
        count = testing.backend_calls(sim) - begun
        assert 10 < count <= MOST
        errors = 0
        for k in range(1, count + 1, 3 if large else 1):
            sim.trim()
            testing.fail_call(sim, k)
            came = run()
            errors += not came
            for array, other in zip(came, expected, strict=False):
                np.testing.assert_array_equal(array, other, err_msg=f"call {k} failed")
            for array, other in zip(run(), expected, strict=True):
                np.testing.assert_array_equal(array, other, err_msg=f"after call {k} failed")
        assert errors
    finally:
        testing.fail_call(sim, 0)
        testing.sim_device(index=0)


@pytest.mark.later(but="to_host")
@pytest.mark.promise("T01")
@pytest.mark.parametrize("read", [DevicePtr.to_host, lambda dx: update(X)], ids=["to_host", "update"])
def test_a_copy_down_whose_wait_failed_touches_no_memory_that_is_used_again(
    read: Callable[[DevicePtr[np.float64]], object],
) -> None:
    sim = testing.sim_device(index=0, delay_us=500)
    w = np.arange(8.0)
    errors = 0
    for k in range(1, 7):
        with (
            offload_args(X, Scratch(8), device=sim) as (dx, work),
            offload_args(w, Scratch(8), device=sim) as (dw, own),
        ):
            blas.scal(-1.0, dx)
            sim.synchronize()
            for _ in range(10):  # the copy down is a late backend call
                work.fill(1.0)
            testing.fail_call(sim, k)
            try:
                read(dx)
            except OffloadError:
                errors += 1
            testing.fail_call(sim, 0)
            for _ in range(12):  # and the copy of w up is a later one
                own.fill(1.0)
            assert blas.asum(dw) == 28.0
    assert errors
    testing.sim_device(index=0)
