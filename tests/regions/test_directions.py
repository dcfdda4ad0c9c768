"""Directions of arguments: bytes are copied only if calls, In, Out, InOut or Scratch need them."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.devices import copied
from offload_args import (
    Device,
    In,
    InOut,
    Out,
    Scratch,
    blas,
    offload_args,
    testing,
    update,
)
from offload_args.errors import (
    DirectionError,
    UnwrittenWarning,
)


def test_a_gemv_with_beta_zero_brings_a_and_x_up_and_only_y_down(device: str) -> None:
    A, x, y = ramp(3, 4), ramp(4), np.full(3, np.nan, np.float32)
    with testing.counting(Device(device)) as moved:
        with offload_args(A, x, y, device=device) as (dA, dx, dy):
            assert moved.copies_up == 0
            blas.gemv(1.0, dA, dx, 0.0, dy)
            assert moved.copies_down == 0
    assert (moved.copies_up, moved.bytes_up) == copied(device, 2, A.nbytes + x.nbytes)
    assert (moved.copies_down, moved.bytes_down) == copied(device, 1, y.nbytes)
    np.testing.assert_array_equal(y, A @ x)


def test_a_chain_of_calls_makes_no_round_trip(device: str) -> None:
    x, y = ramp(8), ramp(8)
    with testing.counting(Device(device)) as moved, offload_args(x, y, device=device) as (dx, dy):
        for _ in range(5):
            blas.axpy(1.0, dx, dy)
            blas.scal(0.5, dy)
    assert (moved.copies_up, moved.copies_down) == copied(device, 2, 1)


def test_an_array_that_no_call_uses_does_not_move(device: str) -> None:
    x = ramp(8)
    with testing.counting(Device(device)) as moved, offload_args(x, InOut(x), device=device):
        pass
    assert (moved.copies_up, moved.copies_down) == (0, 0)


def test_inout_goes_up_and_comes_down(device: str) -> None:
    x = ramp(8)
    with testing.counting(Device(device)) as moved, offload_args(InOut(x), device=device) as (dx,):
        blas.scal(2.0, dx)
    assert (moved.copies_up, moved.copies_down) == copied(device, 1, 1)
    np.testing.assert_array_equal(x, 2 * ramp(8))


def test_writing_an_in_is_refused_before_the_call(device: str) -> None:
    x = ramp(8)
    with testing.counting(Device(device)) as moved, offload_args(In(x), device=device) as (dx,):
        with pytest.raises(DirectionError, match=r"scal: x.*In"):
            blas.scal(2.0, dx)
    assert (moved.calls, moved.copies_up) == (0, 0)
    np.testing.assert_array_equal(x, ramp(8))


def test_reading_an_out_before_it_was_written_is_refused(device: str) -> None:
    x, y = ramp(8), ramp(8)
    with offload_args(Out(x), y, device=device) as (dx, dy):
        with pytest.raises(DirectionError, match=r"axpy: x.*InOut"):
            blas.axpy(1.0, dx, dy)
        blas.copy(dy, dx)
        blas.axpy(1.0, dx, dy)
    np.testing.assert_array_equal(y, 2 * ramp(8))


@pytest.mark.promise("T33")
def test_an_out_that_nothing_wrote_warns_and_stays_as_it_was(device: str) -> None:
    x = ramp(8)
    with pytest.warns(UnwrittenWarning, match="argument 1") as caught:
        with offload_args(Out(x), device=device):
            pass
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(x, ramp(8))


@pytest.mark.promise("T33")
def test_outs_that_nothing_wrote_are_named_in_their_order(device: str) -> None:
    with pytest.warns(UnwrittenWarning, match="nothing wrote it: argument 1, argument 3;"):
        with offload_args(Out(ramp(8)), ramp(5), Out(ramp(3)), device=device) as (_, dx, _):
            blas.scal(2.0, dx[1:])
    with pytest.warns(UnwrittenWarning, match=r": argument 1, argument 2, .*, argument \d+, \.\.\.;"):
        with offload_args(*(Out(ramp(3)) for _ in range(100)), device=device):
            pass


@pytest.mark.promise("T33")
def test_an_out_of_some_elements_leaves_the_others_as_they_were(device: str) -> None:
    source = np.arange(4.0)
    x = np.arange(10.0, 18.0)
    with offload_args(x, source, device=device) as (_, dsource):
        with offload_args(Out(x[2:6]), device=device) as (dpart,):
            blas.copy(dsource, dpart)
    assert x.tolist() == [10, 11, 0, 1, 2, 3, 16, 17]
    with offload_args(Out(x[:4]), x, source, device=device) as (dpart, _, dsource):
        blas.copy(dsource, dpart)
    assert x.tolist() == [0, 1, 2, 3, 2, 3, 16, 17]


@pytest.mark.promise("T33")
def test_outs_that_overlap_show_what_calls_wrote_and_no_more(device: str) -> None:
    source = np.arange(6.0)
    for part, partly in ((slice(0, 6), "argument 3"), (slice(2, 8), "argument 1, argument 3")):
        x = np.arange(10.0, 18.0)
        expected = x.copy()
        expected[part] = source
        with pytest.warns(UnwrittenWarning, match=f"only a part was written: {partly};") as warned:
            with offload_args(Out(x[:6]), Out(x[part]), Out(x), source, device=device) as (first, dpart, dx, dsource):
                blas.copy(dsource, dx[part])
                blas.scal(1.0, dpart)
                with pytest.raises(DirectionError, match="only a part of argument 3"):
                    blas.scal(1.0, dx)
                with pytest.raises(DirectionError, match="only a part of argument [13]"):
                    blas.asum(dx[5:] if part.stop == 6 else first[1:])
        assert len(warned) == 1
        assert x.tolist() == expected.tolist()


@pytest.mark.promise("T33")
def test_outs_that_overlap_with_no_array_of_all_are_not_written_by_parts(device: str) -> None:
    x = np.arange(10.0, 18.0)
    with pytest.warns(UnwrittenWarning, match="nothing wrote it"):
        with offload_args(Out(x[:6]), Out(x[2:]), np.ones(6), device=device) as (first, last, ones):
            for target in (first, last):
                with pytest.raises(DirectionError, match=r"does not write every element .* lend it as InOut"):
                    blas.copy(ones, target)
    assert x.tolist() == np.arange(10.0, 18.0).tolist()


@pytest.mark.promise("T33")
@pytest.mark.parametrize("n", [8, 1 << 16])
def test_an_out_never_shows_bytes_of_another_array(device: str, n: int) -> None:
    secret = np.full(n, 12345, np.float32)
    half = n // 2
    for _ in range(10):
        with offload_args(secret, device=device) as (ds,):
            blas.scal(1.0, ds)
        x, y, z = ramp(n), ramp(n), ramp(n)
        with pytest.warns(UnwrittenWarning, match="nothing wrote it: argument 2; only a part was written: argument 1;"):
            with offload_args(Out(x), Out(y), Out(z), In(np.ones(n, np.float32)), device=device) as (dx, dy, dz, done):
                blas.copy(done[:half], dx[:half])
                for unwritten in (dx, dx[half:], dx[half - 1 : half + 1], dx[::2], dx[::-1], dy, dy[:1]):
                    with pytest.raises(DirectionError, match=r"asum: .* read before it is written.*; write .*InOut"):
                        blas.asum(unwritten)
                    with pytest.raises(DirectionError, match="read before it is written"):
                        unwritten.to_host()
                    with pytest.raises(DirectionError, match="read before it is written"):
                        blas.scal(2.0, unwritten)
                with pytest.raises(DirectionError, match="could read bytes that nothing wrote"):
                    _ = dx.address
                with pytest.raises(DirectionError, match="only a part of it"):
                    update(x)
                update(y)
                assert blas.asum(dx[:half]) == half
                blas.copy(done, dz)
        np.testing.assert_array_equal(x[:half], np.ones(half, np.float32))
        np.testing.assert_array_equal(x[half:], ramp(n)[half:])
        np.testing.assert_array_equal(y, ramp(n))
        np.testing.assert_array_equal(z, np.ones(n, np.float32))
        with offload_args(Out(x), device=device) as (dx,):
            assert dx.address  # after this, other code may have written, so the Out comes down, as zeros
        np.testing.assert_array_equal(x, np.zeros(n, np.float32))


def test_scratch_lives_on_the_device_only(device: str) -> None:
    x, y = ramp(8), np.zeros(8, np.float32)
    with testing.counting(Device(device)) as moved:
        with offload_args(x, Scratch(8, np.float32), y, device=device) as (dx, ds, dy):
            assert ds.shape == (8,)
            blas.copy(dx, ds)
            blas.scal(3.0, ds)
            blas.copy(ds, dy)
    assert (moved.copies_up, moved.copies_down) == copied(device, 1, 1)
    np.testing.assert_array_equal(y, 3 * ramp(8))


def test_as_always_binds_a_tuple() -> None:
    with offload_args() as none, offload_args(ramp(2)) as single:
        assert none == ()
        assert isinstance(single, tuple)
        assert len(single) == 1


@pytest.mark.promise("T33")
@pytest.mark.parametrize("out", [slice(0, 5), slice(0, 8)])
def test_an_unwritten_out_that_overlaps_a_written_inout_keeps_the_hosts_bytes(device: str, out: slice) -> None:
    x = np.arange(8.0)
    with offload_args(Out(x[out]), InOut(x[3:]), device=device) as (_, db):
        blas.scal(2.0, db)
    np.testing.assert_array_equal(x, [0, 1, 2, 6, 8, 10, 12, 14])
