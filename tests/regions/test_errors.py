"""A body that raises and a backend call that fails leave no memory behind, and no half-changed array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array, ramp
from helpers.threads import on_a_new_thread
from offload_args import (
    Device,
    In,
    Out,
    blas,
    call,
    offload_args,
    testing,
    update,
)
from offload_args.errors import (
    ArgumentError,
    BackendError,
    DeviceUnavailableError,
    InvalidDataError,
    OffloadError,
)


@pytest.mark.promise("T02")
def test_a_body_that_raises_leaves_the_arrays_as_they_were(device: str) -> None:
    x = ramp(8)
    with pytest.raises(KeyError, match="the body's") as raised:
        with offload_args(x, device=device) as (dx,):
            blas.scal(2.0, dx)
            raise KeyError("the body's")
    assert [note.split(";")[0] for note in raised.value.__notes__] == [
        "offload_args: argument 1 was written on the device and discarded"
    ]
    np.testing.assert_array_equal(x, ramp(8))
    assert x.flags.writeable


@pytest.mark.promise("T02")
def test_keep_copies_down_valid_results_when_the_body_raises(device: str) -> None:
    x = ramp(8)
    with pytest.raises(KeyError):
        with offload_args(x, device=device, on_error="keep") as (dx,):
            blas.scal(2.0, dx)
            raise KeyError
    np.testing.assert_array_equal(x, 2 * ramp(8))


@pytest.mark.promise("T02")
def test_results_of_an_inner_region_that_raised_are_invalid_outside(device: str) -> None:
    x, y = ramp(8), ramp(8)
    with pytest.raises(InvalidDataError):
        with offload_args(x, y, device=device) as (dx, dy):
            with pytest.raises(KeyError):
                with offload_args(x, device=device) as (inner,):
                    blas.scal(2.0, inner)
                    raise KeyError
            blas.axpy(1.0, dx, dy)
    np.testing.assert_array_equal(x, ramp(8))
    np.testing.assert_array_equal(y, ramp(8))


@pytest.mark.promise("T03")
def test_when_leaving_fails_too_the_bodys_exception_comes_first() -> None:
    sim = testing.sim_device()
    x = ramp(8)
    for k in range(1, 9):  # the core works around some failures
        with pytest.raises(KeyError, match="the body's") as raised:
            with offload_args(x, device=sim, on_error="keep") as (dx,):
                blas.scal(2.0, dx)
                sim.synchronize()
                testing.fail_call(sim, k)
                raise KeyError("the body's")
        testing.fail_call(sim, 0)
        if hasattr(raised.value, "__notes__"):
            break
    (note,) = raised.value.__notes__
    assert note.startswith("leaving the region failed too: ")
    assert "sim:0" in note
    assert x.flags.writeable


def multiply_in_a_region(A: Array, x: Array, y: Array, device: Device | str) -> None:
    with offload_args(A, x, y, device=device) as (dA, dx, dy):
        blas.gemv(1.0, dA, dx, 0.0, dy)


def multiply_by_call(A: Array, x: Array, y: Array, device: Device | str) -> None:
    call(blas.gemv, 1.0, A, x, 0.0, y, device=device)


@pytest.mark.promise("T01")
@pytest.mark.parametrize("multiply", [multiply_in_a_region, multiply_by_call])
@pytest.mark.parametrize("k", range(1, 30))
def test_when_the_kth_backend_call_fails_nothing_stays(k: int, multiply: Any) -> None:
    sim = testing.sim_device()
    A, x, y = ramp(3, 4), ramp(4), np.zeros(3, np.float32)
    before = testing.backend_calls(sim)
    multiply(A, x, y, sim)
    needed = testing.backend_calls(sim) - before
    y[:] = 0
    testing.fail_call(sim, k)
    failed = False
    try:
        multiply(A, x, y, sim)
    except BackendError as error:
        failed = True
        assert "sim:0" in str(error)
        assert (y == 0).all() or (y == A @ x).all()
    finally:
        testing.fail_call(sim, 0)
    assert k <= needed or not failed
    assert failed or k > 1, "neither has a way around a failure of its first call"
    testing.no_mappings_left()
    assert A.flags.writeable
    multiply(A, x, y, sim)
    np.testing.assert_array_equal(y, A @ x)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ArgumentError, match="on_error"):
        offload_args(ramp(2), on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="__cuda_stream__"):
        offload_args(ramp(2), stream=17)
    with pytest.raises(DeviceUnavailableError, match="nonsense"):
        offload_args(ramp(2), device="nonsense")


@pytest.mark.promise("T54")
@pytest.mark.parametrize("lend", [In, lambda x: x], ids=["In", "by use"])
def test_results_that_a_region_committed_come_down_whatever_a_later_one_does(device: str, lend: object) -> None:
    x = np.ones(8)
    first, second = offload_args(x, device=device), offload_args(lend(x), device=device)  # type: ignore[operator]
    (dx,) = first.__enter__()
    second.__enter__()
    blas.scal(5.0, dx)
    first.__exit__(None, None, None)
    second.__exit__(KeyError, KeyError("later"), None)
    np.testing.assert_array_equal(x, 5.0)


@pytest.mark.promise("T54")
def test_another_threads_failure_discards_nothing_of_this_one(device: str) -> None:
    x = np.ones(8)
    other = offload_args(x, device=device)
    on_a_new_thread(other.__enter__)
    with offload_args(x, device=device) as (dx,):
        blas.scal(5.0, dx)
    other.__exit__(KeyError, KeyError("of the other thread"), None)
    np.testing.assert_array_equal(x, 5.0)


@pytest.mark.promise("T02")
def test_a_failing_region_discards_the_results_of_regions_inside_it(device: str) -> None:
    x, y = np.ones(8), np.ones(8)
    with pytest.raises(InvalidDataError, match="undefined"):
        with offload_args(x, y, device=device) as (dx, dy):
            with pytest.raises(KeyError):
                with offload_args(x, y, device=device):
                    with offload_args(x, device=device) as (inner,):
                        blas.scal(5.0, inner)
                    raise KeyError
            blas.scal(3.0, dy)  # the inner region wrote nothing of y
            blas.scal(3.0, dx)
    np.testing.assert_array_equal(x, 1.0)


@pytest.mark.promise("T02")
def test_an_exception_that_discards_results_names_them(device: str) -> None:
    A, x, y = np.ones((3, 2)), np.ones(2), np.empty(3)
    with pytest.raises(KeyError) as caught:
        with offload_args(A, x, Out(y), device=device) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)
            raise KeyError("after it")
    (note,) = caught.value.__notes__
    assert note == (
        'offload_args: argument 3 was written on the device and discarded; on_error="keep" copies down what is valid'
    )
    with pytest.raises(KeyError) as caught:
        with offload_args(A, x, device=device) as (dA, dx):
            blas.scal(2.0, dx)
            update(x)
            raise KeyError("what was written was brought down before")
    assert not hasattr(caught.value, "__notes__")
    with pytest.raises(KeyError) as caught:
        with offload_args(x, y, device=device, on_error="keep") as (dx, dy):
            blas.scal(2.0, dx)
            raise KeyError
    assert not hasattr(caught.value, "__notes__")


@pytest.mark.promise("T01")
def test_a_failure_on_the_way_down_names_the_arrays() -> None:
    sim = testing.sim_device()
    x, y = np.ones(4), np.ones(4)
    messages = []
    for k in range(1, 40):
        try:
            with offload_args(x, y, device=sim) as (dx, dy):
                blas.axpy(1.0, dx, dy)
                testing.fail_call(sim, k)
        except OffloadError as error:
            messages.append(str(error))
        finally:
            testing.fail_call(sim, 0)
    assert messages
    for message in messages:
        assert message.startswith("offload_args: ")
        assert "copy_down" not in message or "copying back argument 2: " in message
