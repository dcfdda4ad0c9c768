"""Collectives of threads of one process have the results that NumPy computes."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.devices import here, open_or_skip
from helpers.launches import LATE
from helpers.ranks import all_right, on_ranks
from offload_args import Communicator, Device, In, Out, blas, offload_args
from offload_args.communicator.communicator import _joined
from offload_args.communicator.link import LostRanksError
from offload_args.communicator.memory import MemoryLink
from offload_args.communicator.operands import REDUCED
from offload_args.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    CaptureError,
    CommunicatorError,
    DirectionError,
    DTypeError,
    HostPointerError,
    StalePointerError,
    WrongDeviceError,
)

COMBINE = {"sum": np.add.reduce, "prod": np.multiply.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce}
LARGE = 5003  # elements of float64: too many for one exchange, and no multiple of the number of ranks


@pytest.fixture(params=[1, 2, 3])
def ranks(request: pytest.FixtureRequest) -> int:
    """The number of ranks."""
    return request.param


@pytest.fixture(params=here("host", "sim:0"))
def on(request: pytest.FixtureRequest) -> str:
    """The name of a device whose memory the CPU reads."""
    return open_or_skip(request.param)


def values(rank: int, size: int, dtype: str = "float64") -> NDArray[Any]:
    numbers = np.random.default_rng(rank).integers(1, 5, size)
    return numbers.astype(dtype)


def combined(op: str, ranks: int, size: int, dtype: str) -> NDArray[Any]:
    return COMBINE[op]([values(rank, size, dtype) for rank in range(ranks)], axis=0, dtype=dtype)


@pytest.mark.parametrize("size", [1, LARGE])
@pytest.mark.parametrize("dtype", REDUCED)
def test_all_reduce(on: str, ranks: int, dtype: str, size: int) -> None:
    def main(communicator: Communicator) -> list[list[NDArray[Any]]]:
        results = []
        for op in COMBINE:
            x, y = values(communicator.rank, size, dtype), np.empty(size, dtype)
            z = x.copy()
            with offload_args(In(x), Out(y), z, device=on) as (dx, dy, dz):
                communicator.all_reduce(dx, dy, op)
                communicator.all_reduce(dz, op=op)
            results.append([y, z])
        return results

    for results in all_right(on_ranks(main, [on] * ranks, debug=True)):
        for op, (y, z) in zip(COMBINE, results, strict=True):
            expected = combined(op, ranks, size, dtype)
            assert y.dtype == z.dtype == dtype
            assert np.array_equal(y, expected)
            assert np.array_equal(z, expected)


def test_nothing_to_reduce(on: str) -> None:
    def main(communicator: Communicator) -> None:
        with offload_args(np.empty(0), device=on) as (dx,):
            communicator.all_reduce(dx, op="min")

    all_right(on_ranks(main, [on] * 2))


@pytest.mark.parametrize("size", [0, 1, LARGE])
def test_all_gather(on: str, ranks: int, size: int) -> None:
    def main(communicator: Communicator) -> list[NDArray[Any]]:
        rank, x = communicator.rank, values(communicator.rank, size)
        y, z = np.empty(ranks * size), np.full(ranks * size, -1.0)
        z[rank * size : (rank + 1) * size] = x
        with offload_args(In(x), Out(y), z, device=on) as (dx, dy, dz):
            communicator.all_gather(dx, dy)
            communicator.all_gather(dz[rank * size : (rank + 1) * size], dz)
        return [y, z]

    expected = np.concatenate([values(rank, size) for rank in range(ranks)])
    for y, z in all_right(on_ranks(main, [on] * ranks)):
        assert np.array_equal(y, expected)
        assert np.array_equal(z, expected)


@pytest.mark.parametrize("op", ["sum", "min"])
@pytest.mark.parametrize("size", [0, 1, LARGE])
def test_reduce_scatter(on: str, ranks: int, size: int, op: str) -> None:
    def main(communicator: Communicator) -> list[NDArray[Any]]:
        rank, x, y = communicator.rank, values(communicator.rank, ranks * size), np.empty(size)
        z = x.copy()
        with offload_args(In(x), Out(y), z, device=on) as (dx, dy, dz):
            communicator.reduce_scatter(dx, dy, op)
            communicator.reduce_scatter(dz, dz[rank * size : (rank + 1) * size], op)
        return [y, z[rank * size : (rank + 1) * size]]

    expected = combined(op, ranks, ranks * size, "float64") if size else np.empty(0)
    for rank, (y, z) in enumerate(all_right(on_ranks(main, [on] * ranks))):
        assert np.array_equal(y, expected[rank * size : (rank + 1) * size])
        assert np.array_equal(z, expected[rank * size : (rank + 1) * size])


@pytest.mark.parametrize("size", [0, 1, LARGE])
def test_broadcast_and_reduce_for_each_root(on: str, ranks: int, size: int) -> None:
    def main(communicator: Communicator) -> list[list[NDArray[Any]]]:
        results = []
        for root in range(ranks):
            x, y, z = values(communicator.rank, size), np.full(size, -1.0), values(communicator.rank, size)
            at_root = communicator.rank == root
            with offload_args(x, y, z, device=on) as (dx, dy, dz):
                communicator.reduce(dx, dy if at_root else None, "sum", root)
                communicator.reduce(dz, op="max", root=root)
                communicator.broadcast(dx, root)
            results.append([x, y, z])
        return results

    for rank, results in enumerate(all_right(on_ranks(main, [on] * ranks, debug=True))):
        for root, (x, y, z) in enumerate(results):
            assert np.array_equal(x, values(root, size))
            at_root = rank == root
            assert np.array_equal(y, combined("sum", ranks, size, "float64") if at_root else np.full(size, -1.0))
            largest = COMBINE["max"]([values(rank, size) for rank in range(ranks)], axis=0)
            assert np.array_equal(z, largest if at_root else values(rank, size))


@pytest.mark.parametrize("dtype", ["float64", "complex64", "int8", "bool"])
@pytest.mark.parametrize("size", [0, 1, LARGE])
def test_all_to_all(on: str, ranks: int, size: int, dtype: str) -> None:
    def main(communicator: Communicator) -> NDArray[Any]:
        x, y = values(communicator.rank, ranks * size, dtype), np.empty(ranks * size, dtype)
        with offload_args(In(x), Out(y), device=on) as (dx, dy):
            communicator.all_to_all(dx, dy)
        return y

    parts = [values(rank, ranks * size, dtype).reshape(ranks, size) for rank in range(ranks)]
    for rank, y in enumerate(all_right(on_ranks(main, [on] * ranks))):
        assert np.array_equal(y, np.concatenate([part[rank] for part in parts]))


def test_send_and_recv_around_a_ring(on: str) -> None:
    def main(communicator: Communicator) -> NDArray[Any]:
        rank, size = communicator.rank, communicator.size
        x, y = values(rank, LARGE), np.empty(LARGE)
        with offload_args(In(x), Out(y), device=on) as (dx, dy):
            if rank == 0:
                communicator.send(dx, 1)
                communicator.recv(dy, size - 1)
            else:
                communicator.recv(dy, rank - 1)
                communicator.send(dx, (rank + 1) % size)
        return y

    for debug in (False, True):
        results = all_right(on_ranks(main, [on] * 3, debug=debug))
        for rank, y in enumerate(results):
            assert np.array_equal(y, values((rank - 1) % 3, LARGE))


def test_ranks_on_different_devices() -> None:
    def main(communicator: Communicator) -> float:
        x = values(communicator.rank, 3)
        with offload_args(x, device=communicator.device) as (dx,):
            communicator.all_reduce(dx)
            communicator.barrier()
        return float(x[0])

    assert len({*all_right(on_ranks(main, ["host", "sim:0", "sim:1"]))}) == 1


def test_matrices_of_both_orders(on: str) -> None:
    def main(communicator: Communicator) -> list[NDArray[Any]]:
        x = values(communicator.rank, 12).reshape(3, 4)
        by_columns = np.asfortranarray(x)
        gathered = np.empty((6, 4))
        with offload_args(x, by_columns, Out(gathered), device=on) as (dx, dcolumns, dgathered):
            communicator.all_gather(dx, dgathered)
            communicator.all_reduce(dx)
            communicator.all_reduce(dcolumns)
        return [x, by_columns, gathered]

    both = [values(rank, 12).reshape(3, 4) for rank in range(2)]
    for x, by_columns, gathered in all_right(on_ranks(main, [on] * 2)):
        assert np.array_equal(x, both[0] + both[1])
        assert np.array_equal(by_columns, x)
        assert np.array_equal(gathered, np.concatenate(both))


def test_results_are_in_order_with_the_calls_of_the_region(on: str) -> None:
    def main(communicator: Communicator) -> NDArray[Any]:
        A, x, y = np.eye(3) * (communicator.rank + 1), np.ones(3), np.empty(3)
        with offload_args(In(A), x, Out(y), device=on) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy)
            communicator.all_reduce(dy)
            blas.gemv(1.0, dA, dy, 0.0, dx)
        return x

    for rank, x in enumerate(all_right(on_ranks(main, [on] * 2))):
        assert np.array_equal(x, np.full(3, 3.0 * (rank + 1)))


def test_results_are_not_copied_up(on: str) -> None:
    def main(communicator: Communicator) -> int:
        x, y, z = np.ones(LARGE), np.empty(LARGE), np.empty(2 * LARGE)
        with offload_args(In(x), Out(y), z, device=on) as (dx, dy, dz):
            communicator.all_reduce(dx, dy)
            communicator.all_gather(dx, dz)
        return 0

    before = Device(on).counters.bytes_up
    all_right(on_ranks(main, [on] * 2))
    results = 2 * 3 * LARGE * 8  # the bytes of the results of two ranks that reach the device
    assert Device(on).counters.bytes_up - before == results


def test_split(on: str) -> None:
    def main(communicator: Communicator) -> list[Any]:
        rank = communicator.rank
        part = communicator.split(None if rank == 4 else rank % 2, key=-rank)
        if part is None:
            return []
        with part:
            x, y = np.array([float(rank)]), np.empty(part.size)
            with offload_args(x, Out(y), device=on) as (dx, dy):
                part.all_gather(dx, dy)
            again = part.split(0)
            assert again is not None
            with again:
                again.barrier()
                return [part.rank, part.size, *y, again.size]

    results = all_right(on_ranks(main, [on] * 5))
    assert results == [[1, 2, 2.0, 0.0, 2], [1, 2, 3.0, 1.0, 2], [0, 2, 2.0, 0.0, 2], [0, 2, 3.0, 1.0, 2], []]


def failing(communicator: Communicator, other: int) -> object:
    """Reduce an array, and raise an exception on the other rank; return the error and the array."""
    x = np.ones(3)
    if communicator.rank == other:
        raise KeyError
    with offload_args(x, device=communicator.device) as (dx,):
        try:
            communicator.all_reduce(dx)
        except CommunicatorError as error:
            return [error, dx.to_host()]
    return None


@pytest.mark.promise("T82")
def test_a_rank_that_raises_ends_the_wait_of_the_others(on: str) -> None:
    results = on_ranks(lambda communicator: failing(communicator, 1), [on] * 3, timeout=600)
    assert isinstance(results[1], KeyError)
    for result in (results[0], results[2]):
        assert isinstance(result, list)
        error, x = result
        assert error.ranks == (1,)
        assert "rank 1 has closed its communicator" in str(error)
        assert np.array_equal(x, np.ones(3))


@pytest.mark.parametrize("timeout", [1e7, 1e10, math.inf])
def test_a_timeout_may_be_longer_than_the_system_waits(on: str, timeout: float) -> None:
    def main(communicator: Communicator) -> float:
        if communicator.rank == 1:
            time.sleep(0.05)  # so that rank 0 waits
        x = np.ones(3)
        with communicator, offload_args(x, device=on) as (dx,):
            communicator.all_reduce(dx)
        return float(x.sum())

    assert Communicator.run(main, devices=[on, on], timeout=timeout) == [6.0, 6.0]


@pytest.mark.promise("T83")
def test_a_rank_that_does_not_come_in_time(on: str) -> None:
    first, _ = Communicator.all([on, on], timeout=0.05)
    x = np.ones(3)
    with first, offload_args(x, device=on) as (dx,):
        with pytest.raises(
            CommunicatorError, match=r"all_reduce: on rank 0 of 2: rank 1 did not come within 0.05 s"
        ) as e:
            first.all_reduce(dx)
        assert e.value.ranks == (1,)
        with pytest.raises(CommunicatorError, match="has ended: rank 1 did not come within 0.05 s; make a new one"):
            first.barrier()
        assert "ended" in repr(first)
    assert np.array_equal(x, np.ones(3))


@pytest.mark.promise("T85")
def test_different_sizes_raise_on_every_rank(on: str) -> None:
    def main(communicator: Communicator) -> None:
        x = np.ones(3 + communicator.rank)
        with offload_args(x, device=on) as (dx,):
            communicator.all_reduce(dx)

    for result in on_ranks(main, [on] * 2):
        assert isinstance(result, CommunicatorError)
        assert "rank 0: all_reduce, 3 elements, float64, sum; rank 1: all_reduce, 4 elements" in str(result)


DIFFERENT = {
    "size": lambda c, dx: c.all_reduce(dx[: 2 + c.rank]),
    "op": lambda c, dx: c.all_reduce(dx, op="sum" if c.rank else "max"),
    "root": lambda c, dx: c.broadcast(dx, c.rank),
    "method": lambda c, dx: c.all_reduce(dx) if c.rank else c.broadcast(dx),
    "dtype": lambda c, dx: c.all_reduce(dx),
}


@pytest.mark.promise("T85")
@pytest.mark.parametrize("difference", DIFFERENT)
def test_debug_compares_the_calls(on: str, difference: str) -> None:
    def main(communicator: Communicator) -> str:
        x = np.ones(4, "int64" if difference == "dtype" and communicator.rank else "float64")
        with offload_args(x, device=on) as (dx,):
            with pytest.raises(CommunicatorError, match="call different things, and nothing has moved") as error:
                DIFFERENT[difference](communicator, dx)
            assert error.value.ranks == (0, 1)
            communicator.barrier()
        return str(error.value).partition(":")[2]

    first, second = all_right(on_ranks(main, [on] * 2, debug=True))
    assert first.partition(": rank 0")[2] == second.partition(": rank 0")[2]


@pytest.mark.promise("T85")
def test_debug_compares_send_and_recv(on: str) -> None:
    def main(communicator: Communicator) -> None:
        x = np.ones(3 + communicator.rank)
        with offload_args(x, device=on) as (dx,):
            with pytest.raises(CommunicatorError, match="rank 0: 3 elements, float64; rank 1: 4 elements, float64"):
                communicator.recv(dx, 0) if communicator.rank else communicator.send(dx, 1)
            communicator.barrier()

    all_right(on_ranks(main, [on] * 2, debug=True))


def test_wrong_arguments(on: str) -> None:
    (communicator,) = Communicator.all([on])
    a, b, c, t = np.ones((4, 4)), np.ones(16, "float32"), np.ones(16), np.ones(16, "complex64")
    with offload_args(a, b, In(c), t, device=on) as (da, db, dc, dt):
        for error, text, call in [
            (HostPointerError, "send needs a DevicePtr, got numpy.ndarray", lambda: communicator.all_reduce(c)),
            (DTypeError, "send needs float16, .* or uint64, got complex64", lambda: communicator.all_reduce(dt)),
            (
                DTypeError,
                "recv has dtype float32, needs send's dtype, float64",
                lambda: communicator.all_gather(dc, db),
            ),
            (ArgumentError, "op must be .sum. or .*, got 'avg'", lambda: communicator.all_reduce(da, op="avg")),
            (DirectionError, "send is written, and was lent as In", lambda: communicator.all_reduce(dc)),
            (ArgumentError, "root needs a rank from 0 to 0, got 1", lambda: communicator.broadcast(da, 1)),
            (ArgumentTypeError, "root needs a rank", lambda: communicator.broadcast(da, "a")),
            (ArgumentError, "peer needs another rank", lambda: communicator.send(da, 0)),
            (ArgumentError, "needs its elements one after the other", lambda: communicator.all_reduce(da[:, ::2])),
            (ArgumentError, "recv has 12 elements, needs 16", lambda: communicator.all_gather(da, da[:3])),
            (ArgumentError, "send has 16 elements, needs 12", lambda: communicator.reduce_scatter(da, da[:3])),
            (ArgumentError, "recv has shape", lambda: communicator.all_reduce(dc, da)),
            (ArgumentError, "stored in different orders", lambda: communicator.all_reduce(da, da.T)),
            (AliasError, "send and recv overlap", lambda: communicator.all_reduce(da[:2], da[1:3])),
            (AliasError, "use another array", lambda: communicator.all_to_all(da, da)),
            (ArgumentTypeError, "color needs a whole number", lambda: communicator.split("a")),
        ]:
            with pytest.raises(error, match=text):
                call()
        communicator.all_reduce(da)
    with pytest.raises(StalePointerError):
        communicator.all_reduce(da)
    communicator.close()
    communicator.close()
    with pytest.raises(CommunicatorError, match="has ended: it is closed"):
        communicator.barrier()


def test_a_pointer_on_another_device() -> None:
    (communicator,) = Communicator.all(["sim:0"])
    with communicator, offload_args(np.ones(3), device="host") as (dx,):
        with pytest.raises(WrongDeviceError, match="send is on host, and the communicator is of sim:0; lend it there"):
            communicator.all_reduce(dx)


def test_making_them() -> None:
    with pytest.raises(ArgumentTypeError, match="make one by"):
        Communicator()
    for devices in ("host", [], Device("host")):
        with pytest.raises(ArgumentTypeError, match="devices needs a list"):
            Communicator.all(devices)
    with pytest.raises(ArgumentError, match="timeout needs seconds"):
        Communicator.all(["host"], timeout=0)


def test_a_method_in_a_capture_is_refused_and_the_communicator_goes_on(on: str) -> None:
    (communicator,) = Communicator.all([on])
    region = offload_args(x := np.ones(3), device=on)
    with region as (dx,):
        with region.capture() as g:
            for call in (communicator.all_reduce, communicator.broadcast):
                with pytest.raises(CaptureError, match=r"^Communicator\.\w+: the region of \w+ is being captured"):
                    call(dx)
            blas.scal(2.0, dx)
        communicator.all_reduce(dx)
        g.replay()
    assert (x == 2).all()


def test_reading_an_out_before_it_was_written(on: str) -> None:
    (communicator,) = Communicator.all([on])
    with offload_args(Out(np.empty(3)), device=on) as (dx,):
        with pytest.raises(DirectionError):
            communicator.all_reduce(dx)
        dx.fill(0.0)
    with pytest.raises(CommunicatorError, match="rank 0 raised DirectionError in Communicator.all_reduce"):
        communicator.barrier()


def test_a_rank_that_is_lost_while_the_others_meet_is_named_by_all_of_them() -> None:
    links = MemoryLink.make(3)
    links[1].give_up((1,), "rank 1 raised KeyError")
    for rank in (0, 2):  # rank 2 checks rank 0 first, which has left because of rank 1
        with pytest.raises(LostRanksError, match="^rank 1 raised KeyError$") as lost:
            _joined("Communicator.join", links[rank], Device("host"), time.monotonic() + LATE)
        assert lost.value.ranks == (1,)
