"""Regions in the tasks of Ray, and actors of Ray that are the ranks of a communicator."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from helpers.processes import output_of

BEGIN = """
import asyncio
import time

import numpy as np
import ray

from offload_args import Communicator, CommunicatorError, In, Out, blas, call, offload_args


@ray.remote(num_cpus=0)
class Exchange:
    def __init__(self, size):
        self.texts, self.size, self.whole = {}, size, asyncio.Event()

    async def all(self, rank, data):
        self.texts[rank] = data
        if len(self.texts) == self.size:
            self.whole.set()
        await self.whole.wait()
        return [self.texts[rank] for rank in range(self.size)]


class Rank:
    def __init__(self, rank, size, exchange):
        self.communicator = Communicator.join(
            rank, size, lambda data: ray.get(exchange.all.remote(rank, data)), device="host", timeout=600
        )


@ray.remote(num_cpus=0.5)
class Worker(Rank):
    def product(self, A, x):
        assert not A.flags.writeable  # Ray's own memory, which all workers read
        communicator = self.communicator
        rank, n = communicator.rank, len(x) // communicator.size
        mine, y = slice(rank * n, (rank + 1) * n), np.empty(len(x))
        with offload_args(In(A[mine]), x, Out(y), device=communicator.device) as (dA, dx, dy):
            blas.gemv(1.0, dA, dx, 0.0, dy[mine])
            communicator.all_gather(dy[mine], dy)
        return y

    def wait(self):
        x = np.ones(4)
        try:
            with offload_args(x, device="host") as (dx,):
                dx.fill(2.0)
                self.communicator.all_reduce(dx)
        except CommunicatorError as error:
            return error.ranks, x.tolist(), str(error)

    def ping(self):
        self.communicator.barrier()


@ray.remote(num_cpus=0.5)
def norm(x):
    return call(blas.nrm2, x)


def workers(size):
    exchange = Exchange.remote(size)
    ranks = [Worker.remote(rank, size, exchange) for rank in range(size)]
    ray.get([rank.ping.remote() for rank in ranks], timeout=700)
    return ranks


ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
try:
    main()
finally:
    ray.shutdown()
"""


def run(main: str, folder: Path) -> str:
    """Run a function `main` in a program with the classes of BEGIN, and return its output."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("device unavailable: no ray")
    begin, end = BEGIN.split("ray.init", 1)
    (folder / "program.py").write_text(f"{begin}def main():{main}\n\nray.init{end}")
    return output_of(
        sys.executable, "program.py", folder=folder, timeout=900, OPENBLAS_NUM_THREADS="1", RAY_USAGE_STATS_ENABLED="0"
    )


@pytest.mark.slow
def test_tasks_and_actors_that_are_ranks(tmp_path: Path) -> None:
    main = """
    rng = np.random.default_rng(0)
    A, x = rng.standard_normal((40, 40)), rng.standard_normal(40)
    assert np.isclose(ray.get(norm.remote(x), timeout=600), np.linalg.norm(x))
    shared = ray.put(A)
    for y in ray.get([rank.product.remote(shared, x) for rank in workers(2)], timeout=600):
        np.testing.assert_allclose(y, A @ x, atol=1e-12)
    print("right")
"""
    assert run(main, tmp_path) == "right\n"


@pytest.mark.slow
def test_an_actor_that_is_killed_is_named_by_the_others(tmp_path: Path) -> None:
    main = """
    first, second, third = workers(3)
    waiting = [first.wait.remote(), third.wait.remote()]
    time.sleep(0.5)
    ray.kill(second)
    for ranks, x, text in ray.get(waiting, timeout=600):
        print(ranks, x, text.rpartition("; ")[0].rpartition(": ")[2])
"""
    line = "(1,) [1.0, 1.0, 1.0, 1.0] rank 1 has ended without closing its communicator"
    assert run(main, tmp_path).splitlines() == [line, line]
