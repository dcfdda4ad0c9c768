"""Devices that use arrays in the host's memory: nothing is copied, and regions end as they do with copies."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.processes import printed
from offload_args import Device, In, InOut, Out, _core, blas, call, offload_args, testing, trace, update
from offload_args.errors import (
    AliasError,
    ArgumentError,
    BackendError,
    DirectionError,
    GuardError,
    InvalidDataError,
    OffloadError,
    UnwrittenWarning,
)


@pytest.fixture(params=["host", "sim:0"])
def coherent(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a device that uses arrays in the host's memory."""
    device = Device(request.param)
    with testing.coherent():
        yield device.name


@pytest.mark.promise("T78")
def test_nothing_is_copied_and_results_are_right(coherent: str) -> None:
    A, x, y = ramp(64, 48, dtype=np.float64), ramp(48, dtype=np.float64), np.empty(64)
    expected = 2 * (A @ x)
    with testing.counting(coherent) as moved:
        with offload_args(A, x, Out(y), device=coherent) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)
            blas.scal(2.0, dy)
            former = moved.bytes_former
            assert dA.address == A.ctypes.data  # code that has it may write A from now on
    np.testing.assert_allclose(y, expected)
    assert (moved.copies_up, moved.bytes_up, moved.copies_down, moved.bytes_down) == (0, 0, 0, 0)
    assert moved.allocations == moved.frees == 0
    assert (former, moved.bytes_former) == (y.nbytes, y.nbytes + A.nbytes)


@pytest.mark.promise("T02", "T78")
@pytest.mark.parametrize("kind", [lambda x: x, InOut, Out], ids=["by use", "InOut", "Out"])
def test_a_body_that_raises_leaves_the_arrays_as_they_were(coherent: str, kind: type[InOut]) -> None:
    x, y = ramp(300_000), ramp(300_000)
    with pytest.raises(KeyError), offload_args(In(x), kind(y), device=coherent) as (dx, dy):
        blas.copy(dx, dy)
        blas.scal(2.0, dy)
        raise KeyError
    np.testing.assert_array_equal(y, ramp(300_000))


def test_keep_leaves_what_is_valid(coherent: str) -> None:
    x = ramp(8)
    with pytest.raises(KeyError), offload_args(x, device=coherent, on_error="keep") as (dx,):
        blas.scal(2.0, dx)
        raise KeyError
    np.testing.assert_array_equal(x, 2 * ramp(8))


def test_update_commits_all_of_an_array_or_a_part_of_it(coherent: str) -> None:
    x = ramp(8)
    with pytest.raises(KeyError), offload_args(x, device=coherent) as (dx,):
        blas.scal(2.0, dx)
        update(x[:4])
        blas.scal(2.0, dx)
        raise KeyError
    np.testing.assert_array_equal(x, [2, 4, 6, 8, 5, 6, 7, 8])


def test_the_host_writes_in_an_update_and_the_device_sees_it(coherent: str) -> None:
    x = ramp(8)
    with testing.counting(coherent) as moved, offload_args(x, device=coherent) as (dx,):
        blas.scal(2.0, dx)
        with update(x):
            x[0] = 100
        assert not x.flags.writeable
        total = blas.asum(dx)
    assert total == 100 + 2 * ramp(8)[1:].sum()
    assert moved.bytes_up + moved.bytes_down == 0


def test_what_the_host_writes_in_an_update_is_not_discarded(coherent: str) -> None:
    x = ramp(8)
    with pytest.raises(KeyError), offload_args(x, device=coherent) as (dx,):
        blas.scal(2.0, dx)
        with update(x[:2]):
            x[:2] = 7
            raise KeyError
    np.testing.assert_array_equal(x, [7, 7, 3, 4, 5, 6, 7, 8])


def test_what_the_host_writes_after_a_refused_call_is_not_discarded(coherent: str) -> None:
    x = ramp(8)
    with pytest.raises(KeyError), offload_args(x, device=coherent) as (dx,):
        with pytest.raises(AliasError):
            blas.copy(dx[:4], dx[2:6])
        with update(x):
            x[:] = 7
        blas.scal(2.0, dx)
        raise KeyError
    np.testing.assert_array_equal(x, np.full(8, 7))


def test_calls_and_exports_wait_until_the_host_has_written(coherent: str) -> None:
    x, y = ramp(8), ramp(8)
    with offload_args(x, y, device=coherent) as (dx, dy):
        blas.scal(2.0, dx)
        with update(x[:4]):
            x[:4] = 7
            with pytest.raises(ArgumentError, match="the host is writing x in an update.*make the call after"):
                blas.scal(2.0, dx)
            with pytest.raises(ArgumentError, match="the host is writing x in an update"):
                blas.copy(dx, dy)
            with pytest.raises(ArgumentError, match="the host is writing .* export it after the update"):
                _core.export(dx)
        blas.copy(dx, dy)
    np.testing.assert_array_equal(x, [7, 7, 7, 7, 10, 12, 14, 16])
    np.testing.assert_array_equal(y, x)


def test_what_the_host_writes_after_a_failed_call_is_not_discarded() -> None:
    x = ramp(8)
    with testing.coherent(), pytest.raises(KeyError), offload_args(x, device="sim:0") as (dx,):
        testing.fail_call("sim:0", 1)
        with pytest.raises(BackendError):
            dx.fill(3.0)
        writing = _core.update_begin(x, -1)  # update refuses an array that a call left undefined
        x.setflags(write=True)
        x[:] = 7
        _core.update_to(x, -1)
        del writing
        raise KeyError
    np.testing.assert_array_equal(x, np.full(8, 7))


def test_an_export_is_refused_once_a_graph_has_the_address(coherent: str) -> None:
    x = ramp(8)
    region = offload_args(x, device=coherent)
    with region as (dx,):
        with region.capture() as graph:
            blas.scal(2.0, dx)
        graph.replay()
        with pytest.raises(ArgumentError, match="a graph has its address"):
            _core.export(dx)
        graph.replay()
    np.testing.assert_array_equal(x, 4 * ramp(8))


def test_rights_are_those_of_other_devices(coherent: str) -> None:
    x, y = ramp(8), ramp(8)
    with offload_args(In(x), Out(y), device=coherent) as (dx, dy):
        with pytest.raises(DirectionError):
            blas.scal(2.0, dx)
        with pytest.raises(DirectionError):
            blas.asum(dy)
        with pytest.raises(ValueError, match="read-only"):
            x[0] = 1
        blas.copy(dx, dy)
    assert x.flags.writeable


def test_an_out_that_nothing_wrote_warns_and_stays_as_it_was(coherent: str) -> None:
    y = ramp(8)
    with pytest.warns(UnwrittenWarning), offload_args(Out(y), device=coherent):
        pass
    np.testing.assert_array_equal(y, ramp(8))


def test_results_of_an_inner_region_that_raised_are_invalid_outside(coherent: str) -> None:
    x = ramp(8)
    with pytest.raises(InvalidDataError), offload_args(x, device=coherent) as (dx,):
        with pytest.raises(KeyError), offload_args(x, device=coherent) as (inner,):
            blas.scal(2.0, inner)
            raise KeyError
        blas.asum(dx)
    np.testing.assert_array_equal(x, ramp(8))


@pytest.mark.promise("T01", "T78")
def test_whatever_call_of_the_backend_fails_an_array_is_old_or_new(coherent: str) -> None:
    if coherent != "sim:0":
        return  # no call of the host fails

    def turn(x: np.ndarray, y: np.ndarray) -> None:
        with offload_args(x, y, device=coherent) as (dx, dy):
            blas.scal(2.0, dx)
            dy.fill(5)
            blas.copy(dx[:2], dy[:2])

    x, y = ramp(8), ramp(8)
    before = testing.backend_calls(coherent)
    turn(x, y)
    calls = testing.backend_calls(coherent) - before
    for k in range(1, calls + 2):
        x, y = ramp(8), ramp(8)
        testing.fail_call(coherent, k)
        try:
            turn(x, y)
        except OffloadError as error:
            assert isinstance(error, BackendError)
            np.testing.assert_array_equal([x, y], [ramp(8), ramp(8)])
        else:
            np.testing.assert_array_equal([x, y], [2 * ramp(8), [2, 4, 5, 5, 5, 5, 5, 5]])
        finally:
            testing.fail_call(coherent, 0)


def test_a_guarded_array_is_copied_and_guarded(coherent: str) -> None:
    x = np.ones(16 * os.sysconf("SC_PAGESIZE") // 4, np.float32)
    with testing.counting(coherent) as moved:
        with pytest.raises(GuardError), offload_args(x, device=coherent, guard=True) as (dx,):
            blas.scal(2.0, dx)
            x.sum()
            for _ in range(3):
                pass
    assert moved.bytes_up == x.nbytes
    np.testing.assert_array_equal(x, 1)


def test_arrays_that_no_device_can_use_in_place_are_copied(coherent: str) -> None:
    A = ramp(6, 6)
    with testing.counting(coherent) as moved, pytest.warns(Warning, match="packed"):
        with offload_args(A[::2, ::2], device=coherent) as (dA,):
            dA.fill(0)
    assert moved.bytes_down == 36
    assert A.sum() == ramp(6, 6).sum() - ramp(6, 6)[::2, ::2].sum()


def test_gaps_between_the_lines_of_a_matrix_are_never_written(coherent: str) -> None:
    A = ramp(6, 6)
    for fails in (False, True):
        try:
            with offload_args(A[:, 1:3], device=coherent) as (dA,):
                dA.fill(0)
                if fails:
                    raise KeyError
        except KeyError:
            A[:, 1:3] += 1  # as it was: zeros
    expected = ramp(6, 6)
    expected[:, 1:3] = 1
    np.testing.assert_array_equal(A, expected)


def test_nothing_is_resident_where_nothing_is_copied(coherent: str) -> None:
    x, device = np.ones(100_000), Device(coherent)
    with offload_args(x, device=device, resident=True) as (dx,):
        blas.scal(2.0, dx)
    assert device.residency.kept_bytes == 0
    np.testing.assert_array_equal(x, 2)
    device.release(x)


def test_two_devices_use_one_array_for_reading_or_one_for_writing(coherent: str) -> None:
    x = ramp(8)
    with offload_args(x, device=coherent) as (dx,), offload_args(x, device="sim:1") as (other,):
        assert blas.asum(dx) == blas.asum(other) == 36
        with pytest.raises(DirectionError):
            blas.scal(2.0, other)


def test_the_trace_names_what_needed_no_copy(coherent: str) -> None:
    x = ramp(8)
    with trace() as t, offload_args(x, device=coherent) as (dx,):
        blas.scal(2.0, dx)
    copies = [event for event in t.events if event.kind in ("up", "down")]
    assert [(event.kind, event.nbytes) for event in copies] == [("up", 0), ("down", 0)]
    assert all(event.why.startswith("coherent, ") for event in copies)
    assert "x: 1 x 0 bytes, coherent" in str(t)
    assert t.summary.copies_up == t.summary.copies_down == 0


def test_call_lends_in_place_too(coherent: str) -> None:
    x = ramp(8)
    with testing.counting(coherent) as moved:
        call(blas.scal, 2.0, x, device=coherent)
    np.testing.assert_array_equal(x, 2 * ramp(8))
    assert moved.bytes_up + moved.bytes_down == 0


@pytest.mark.promise("T79")
def test_the_setting_decides_and_info_says_so() -> None:
    code = "from offload_args import Device; print(Device('host').coherent, Device('sim:0').coherent)"
    assert [printed(code, OFFLOAD_ARGS_COHERENT=mode) for mode in ("", "auto", "never", "always")] == [
        "False False\n",
        "False False\n",
        "False False\n",
        "True True\n",
    ]


@pytest.mark.promise("T79")
def test_a_setting_that_names_no_mode_is_refused() -> None:
    code = """
from offload_args import Device
from offload_args.errors import ArgumentError
try:
    Device("host")
except ArgumentError as error:
    print(error)
"""
    assert 'OFFLOAD_ARGS_COHERENT=yes: needs "auto", "never" or "always"' in printed(code, OFFLOAD_ARGS_COHERENT="yes")
    with pytest.raises(ArgumentError, match="mode needs"), testing.coherent("yes"):  # type: ignore[arg-type]
        pass
