"""Arrays that devices, regions and threads share: no result is lost, and no host byte that was written on purpose."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from helpers.devices import open_or_skip
from offload_args import In, Out, blas, offload_args, testing, update
from offload_args.errors import DirectionError, InvalidDataError, PresentError

PAIRS = (("sim:0", "sim:1"), ("host", "sim:1"), ("sim:0", "host"), ("cuda:0", "sim:1"), ("cuda:0", "cuda:1"))


@pytest.fixture(params=PAIRS, ids="-".join)
def devices(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Two devices that are here."""
    first, second = request.param
    yield open_or_skip(first), open_or_skip(second)


def in_a_thread(work: object) -> None:
    """Run a function on another thread to its end, and raise what it raised."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


# -- two devices ------------------------------------------------------------------------------------------------------


def test_t50_a_result_is_never_lost_between_two_devices(devices: tuple[str, str]) -> None:
    x, rounds = np.zeros(64), 40
    for name in devices:
        if name.startswith("sim"):
            testing.sim_device(index=int(name[-1]), delay_us=200)

    def add(device: str) -> None:
        ones, done = np.ones(64), 0
        while done < rounds:
            try:
                with offload_args(x, ones, device=device) as (dx, dones):
                    blas.axpy(1.0, dones, dx)
            except DirectionError:  # the other device has it
                continue
            done += 1

    threads = [threading.Thread(target=add, args=(device,)) for device in devices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(x, 2.0 * rounds)


def test_t53_what_the_host_writes_reaches_every_device_that_has_some(devices: tuple[str, str]) -> None:
    x = np.arange(24.0).reshape(4, 6)
    first, second = devices
    with offload_args(x, device=first) as (whole,), offload_args(x[1:3], device=second) as (rows,):
        assert blas.asum(whole[0]) == 15.0 and blas.asum(rows[0]) == 51.0
        with update(x):
            x[:] = 1.0
        assert blas.asum(whole[3]) == 6.0
        assert blas.asum(rows[0]) == 6.0 and blas.asum(rows[1]) == 6.0
    np.testing.assert_array_equal(x, 1.0)


@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
def test_t53_what_the_host_writes_reaches_packed_arrays_or_is_refused(device: str) -> None:
    x = np.arange(24.0).reshape(4, 6)
    with offload_args(In(x), device="sim:2"), offload_args(x[::2, ::-2], device=device) as (packed,):
        assert blas.asum(packed[0]) == 9.0
        with update(x):
            x[:] = 1.0
        assert blas.asum(packed[1]) == 3.0
        with pytest.raises(PresentError, match=r"update: .* can't be named in what is present"):
            with update(x[0, ::2]):
                raise AssertionError("nothing may be written")
    np.testing.assert_array_equal(x, 1.0)


def test_an_irregular_part_of_a_lent_array_is_updated_exactly(device: str) -> None:
    x = np.arange(24.0).reshape(4, 6)
    with offload_args(x, device=device) as (dx,):
        blas.scal(2.0, dx[0])
        with update(x[::2, ::2]) as part:
            np.testing.assert_array_equal(part[0], [0, 4, 8])
            assert x[0, 1] == 1.0  # not a part of it
            part[:] = 7.0
    expected = np.arange(24.0).reshape(4, 6)
    expected[0] *= 2
    expected[::2, ::2] = 7.0
    np.testing.assert_array_equal(x, expected)


# -- regions that share -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lend", [In, lambda x: x], ids=["In", "by use"])
def test_t54_what_one_region_committed_comes_down_whatever_a_later_one_does(device: str, lend: object) -> None:
    x = np.ones(8)
    first, second = offload_args(x, device=device), offload_args(lend(x), device=device)  # type: ignore[operator]
    (dx,) = first.__enter__()
    second.__enter__()
    blas.scal(5.0, dx)
    first.__exit__(None, None, None)
    second.__exit__(KeyError, KeyError("later"), None)
    np.testing.assert_array_equal(x, 5.0)


def test_t54_another_threads_failure_discards_nothing_of_this_one(device: str) -> None:
    x = np.ones(8)
    other = offload_args(x, device=device)
    in_a_thread(other.__enter__)
    with offload_args(x, device=device) as (dx,):
        blas.scal(5.0, dx)
    other.__exit__(KeyError, KeyError("of the other thread"), None)
    np.testing.assert_array_equal(x, 5.0)


def test_a_failing_region_discards_what_regions_inside_it_wrote(device: str) -> None:
    x, y = np.ones(8), np.ones(8)
    with pytest.raises(InvalidDataError, match="undefined"):
        with offload_args(x, y, device=device) as (dx, dy):
            with pytest.raises(KeyError):
                with offload_args(x, y, device=device):
                    with offload_args(x, device=device) as (inner,):
                        blas.scal(5.0, inner)
                    raise KeyError
            blas.scal(3.0, dy)  # nothing of it was written inside
            blas.scal(3.0, dx)
    np.testing.assert_array_equal(x, 1.0)


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


# -- assign -----------------------------------------------------------------------------------------------------------


def test_t55_irregular_slices_of_a_matrix_with_gaps_are_assigned(device: str) -> None:
    base = np.arange(54.0).reshape(6, 9)
    A = base[:, :7]
    expected = base.copy()
    with offload_args(A, device=device) as (dA,):
        dA[::2, ::2].assign(np.arange(12.0).reshape(3, 4))
        dA[5:0:-2, ::-3].assign(-1.0)
    expected[::2, :7:2] = np.arange(12.0).reshape(3, 4)
    expected[5:0:-2, 6::-3] = -1.0
    np.testing.assert_array_equal(base, expected)


def test_t55_threads_assign_to_disjoint_slices(device: str) -> None:
    if device.startswith("sim"):
        testing.sim_device(index=int(device[-1]), delay_us=50)
    A = np.zeros((6, 6))
    with offload_args(A, device=device) as (dA,):

        def assign(row: int, column: int) -> None:
            for value in range(30):
                dA[row::2, column::2].assign(float(4 * value + 2 * row + column))

        threads = [threading.Thread(target=assign, args=(i // 2, i % 2)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    expected = np.zeros((6, 6))
    for i in range(4):
        expected[i // 2 :: 2, i % 2 :: 2] = 4 * 29 + i
    np.testing.assert_array_equal(A, expected)


# -- addresses --------------------------------------------------------------------------------------------------------


def test_t61_the_address_of_one_panel_says_nothing_of_another(device: str) -> None:
    A = np.arange(32.0).reshape(4, 8)
    left, right = A[:, :4], A[:, 4:]
    with offload_args(left, right, device=device) as (dl, _):
        assert dl.address
        update(right)
        np.testing.assert_array_equal(A, np.arange(32.0).reshape(4, 8))
    np.testing.assert_array_equal(A, np.arange(32.0).reshape(4, 8))


def test_the_address_of_an_out_beside_an_overlapping_array_takes_nothing_from_it(device: str) -> None:
    x = np.arange(8.0)
    with offload_args(Out(x[:4]), x, device=device) as (out, dx):
        assert out.address
        assert blas.asum(dx) == 28.0
    np.testing.assert_array_equal(x, np.arange(8.0))
