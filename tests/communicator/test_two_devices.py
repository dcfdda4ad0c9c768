"""Two devices: every method, also in place, conjugate gradients, products by parts, and a rank that is killed.

With OFFLOAD_ARGS_REQUIRE=cuda,cuda:1, they run on two GPUs. On other machines, two devices of the CPU are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.devices import open_or_skip
from helpers.launches import LATE, kill, launched
from helpers.ranks import all_right, on_ranks
from offload_args import Communicator, Device, In, blas, offload_args

PAIRS = [("host", "sim:0"), ("cuda:0", "cuda:1"), ("hip:0", "hip:1")]
TYPES = ("float16", "float32", "float64", "int32", "int64")
SIZE = 4098  # a multiple of the number of ranks, but of no higher power of two


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The names of two devices of this machine."""
    first, second = request.param
    return open_or_skip(first), open_or_skip(second)


def values(rank: int, dtype: str, size: int = SIZE) -> np.ndarray:
    return np.random.default_rng(rank).integers(1, 5, size).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
def test_all_methods_on_two_devices(pair: tuple[str, str], dtype: str) -> None:
    if dtype == "float16" and Device(pair[0]).model.startswith("double"):
        pytest.skip("device unavailable: the double of NCCL has no float16")
    both = [values(rank, dtype) for rank in (0, 1)]
    half = SIZE // 2

    def main(communicator: Communicator) -> dict[str, Any]:
        rank = communicator.rank
        mine, results = slice(rank * half, (rank + 1) * half), {}

        def run(name: str, in_place: bool, send: np.ndarray, shape: int, method: Any) -> None:
            recv = send if in_place else np.zeros(shape, dtype)
            arrays = (send,) if in_place else (In(send), recv)
            with offload_args(*arrays, device=communicator.device) as pointers:
                method(pointers[0], pointers[-1])
            results[name, in_place] = recv

        for in_place in (False, True):
            for op in ("sum", "prod", "min", "max"):
                run(op, in_place, both[rank].copy(), SIZE, lambda s, r, op=op: communicator.all_reduce(s, r, op))
            run("reduce", in_place, both[rank].copy(), SIZE, lambda s, r: communicator.reduce(s, r, root=1))
        run("broadcast", True, both[rank].copy(), SIZE, lambda s, r: communicator.broadcast(s, root=1))
        run("all_gather", False, both[rank][mine], SIZE, communicator.all_gather)
        run("all_gather", True, both[rank].copy(), SIZE, lambda s, r: communicator.all_gather(s[mine], s))
        run("reduce_scatter", False, both[rank], half, communicator.reduce_scatter)
        run("reduce_scatter", True, both[rank].copy(), SIZE, lambda s, r: communicator.reduce_scatter(s, s[mine]))
        run("all_to_all", False, both[rank], SIZE, communicator.all_to_all)
        for root in (0, 1):
            act = communicator.send if rank == root else communicator.recv
            run(f"from {root}", True, both[rank].copy(), SIZE, lambda s, r, act=act, root=root: act(s, 1 - rank))
        communicator.barrier()
        return results

    left, right = all_right(on_ranks(main, pair))
    whole = {
        "sum": both[0] + both[1],
        "prod": both[0] * both[1],
        "min": np.minimum(*both),
        "max": np.maximum(*both),
        "all_gather": np.concatenate([both[0][:half], both[1][half:]]),
        "broadcast": both[1],
        "from 0": both[0],
        "from 1": both[1],
    }
    for (name, in_place), result in left.items():
        other = right[name, in_place]
        assert result.dtype == other.dtype == dtype
        if name == "reduce":
            assert np.array_equal(other, whole["sum"])
            assert np.array_equal(result, both[0] if in_place else np.zeros(SIZE))
        elif name == "reduce_scatter":
            parts = (result[:half], other[half:]) if in_place else (result, other)
            assert np.array_equal(np.concatenate(parts), whole["sum"])
        elif name == "all_to_all":
            assert np.array_equal(result, np.concatenate([both[0][:half], both[1][:half]]))
            assert np.array_equal(other, np.concatenate([both[0][half:], both[1][half:]]))
        else:
            assert np.array_equal(result, whole[name]) and np.array_equal(other, whole[name])


def test_conjugate_gradients_on_two_devices_are_those_of_one(pair: tuple[str, str]) -> None:
    n = 600
    rng = np.random.default_rng(6)
    B = rng.standard_normal((n, n))
    A, b = B @ B.T / n + np.eye(n), rng.standard_normal(n)

    def main(communicator: Communicator) -> np.ndarray:
        size = n // communicator.size
        mine = slice(communicator.rank * size, (communicator.rank + 1) * size)
        x, r, p, w, total = np.zeros(n), b[mine].copy(), np.zeros(n), np.zeros(size), np.zeros(1)
        arrays = In(A[mine]), x, r, p, w, total
        with offload_args(*arrays, device=communicator.device) as (dA, dx, dr, dp, dw, dtotal):

            def dot(left: Any, right: Any) -> float:
                blas.dot(left, right, result=dtotal.reshape(()))
                communicator.all_reduce(dtotal)
                return float(dtotal.to_host()[0])

            blas.copy(dr, dp[mine])
            rr = dot(dr, dr)
            while rr > 1e-24 * (b @ b):
                communicator.all_gather(dp[mine], dp)
                blas.gemv(1.0, dA, dp, 0.0, dw)
                alpha = rr / dot(dp[mine], dw)
                blas.axpy(alpha, dp[mine], dx[mine])
                blas.axpy(-alpha, dw, dr)
                rr, old = dot(dr, dr), rr
                blas.scal(rr / old, dp[mine])
                blas.axpy(1.0, dr, dp[mine])
            communicator.all_gather(dx[mine], dx)
        return x

    (alone,) = all_right(on_ranks(main, pair[:1]))
    for x in all_right(on_ranks(main, pair)):
        np.testing.assert_allclose(x, alone, rtol=0, atol=1e-10)
        np.testing.assert_allclose(x, np.linalg.solve(A, b), rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_product_by_parts_on_two_devices(pair: tuple[str, str], dtype: str) -> None:
    if pair[0] == "host":
        pair = ("sim:0", "sim:1")
    rng = np.random.default_rng(1)
    A, B = rng.standard_normal((700, 500)).astype(dtype), rng.standard_normal((500, 900)).astype(dtype)
    C = np.full((700, 900), np.nan, dtype)
    devices = [Device(name) for name in pair]
    before = [device.counters.calls for device in devices]

    def both_computed() -> bool:
        return all(device.counters.calls > count for device, count in zip(devices, before, strict=True))

    for _ in range(100):  # a device that is free takes the next part, so that one may compute a small product alone
        blas.gemm(1.0, A, B, 0.0, C, devices=devices)
        if both_computed():
            break
    expected = A.astype(np.float64) @ B.astype(np.float64)
    np.testing.assert_allclose(C, expected, rtol=0, atol=500 * np.finfo(dtype).eps * np.abs(expected).max())
    assert both_computed()


KILLED = """
import os, sys
import numpy as np
from offload_args import Communicator, CommunicatorError, offload_args
x = np.ones(100_000)
try:
    communicator = Communicator.from_environment(device=DEVICES[int(os.environ["RANK"])], timeout=LATE)
    with communicator, offload_args(x, device=communicator.device) as (dx,):
        communicator.barrier()
        print("ready", flush=True)
        if communicator.rank == 1:
            sys.stdin.readline()  # until it is killed
        communicator.all_reduce(dx)
except CommunicatorError as error:
    print(error.ranks, np.array_equal(x, np.ones(100_000)))
"""


@pytest.mark.slow
def test_a_rank_on_another_device_that_is_killed_is_named(pair: tuple[str, str], port: int) -> None:
    if Device(pair[0]).model.startswith("double"):
        pytest.skip("device unavailable: a double's ranks are threads of one process")
    first, _ = kill(launched(["-c", f"DEVICES, LATE = {pair!r}, {LATE}\n{KILLED}"], 2, port), 1)
    assert first[:2] == (0, "(1,) True\n")
