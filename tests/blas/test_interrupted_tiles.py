"""Ctrl-C at any place of a computation by tiles is raised, and leaves nothing under way or lent."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers.interrupts import at_every_place
from helpers.small_tiles import small_tiles
from offload_args import Device, blas, lapack, offload_args, testing

__all__ = ["small_tiles"]

# Ctrl-C within these modules may leave their locks locked or unlocked.
MODULES = (threading.__file__, str(Path(concurrent.futures.__file__).parent))
N = 40


@pytest.fixture(params=["host", "sim:0"])
def device(request: pytest.FixtureRequest, small_tiles: None) -> Iterator[Device]:
    yield Device(request.param)
    testing.sim_device()


class Program:
    """A call with devices. The last array is the solution, or the result."""

    def __init__(self, call: Callable[..., None], *arrays: np.ndarray) -> None:
        self.call, self.arrays = call, arrays
        self.before = [array.copy() for array in arrays]

    def start(self) -> None:
        for array, values in zip(self.arrays, self.before, strict=True):
            array[...] = values

    def same_as(self, values: list[np.ndarray]) -> bool:
        return all(np.array_equal(array, other) for array, other in zip(self.arrays, values, strict=True))


def programs(device: Device) -> dict[str, Program]:
    A, B, C = np.eye(N) * 2, np.full((N, 30), 3.0), np.full((N, 30), 1.0)
    A[3, 35] = A[35, 3] = 1
    P, pivots = np.roll(A, 1, axis=0), np.zeros(N, np.int32)
    on = [device]
    return {
        "blas.gemm": Program(lambda: blas.gemm(1.0, A, B, 1.0, C, devices=on), A, B, C),
        "blas.trmm": Program(lambda: blas.trmm(2.0, A, B, devices=on), A, B),
        "lapack.posv": Program(lambda: lapack.posv(A, B, devices=on), A, B),
        "lapack.gesv": Program(lambda: lapack.gesv(P, pivots, B, devices=on), P, pivots, B),
    }


def check_every_place(name: str, device: Device, step: int) -> None:
    program = programs(device)[name]
    program.call()
    after = [array.copy() for array in program.arrays]
    program.start()
    noted: list[str] = []
    others = {*threading.enumerate()}  # threads of other tests

    def call() -> None:
        try:
            program.call()
        except KeyboardInterrupt as error:
            noted[:] = [note for note in getattr(error, "__notes__", ()) if note.startswith(f"{name}: ")]
            raise

    for at in at_every_place(call, step, MODULES):
        assert not {*threading.enumerate()} - others, at
        assert device.counters.mappings == 0, at
        assert all(array.flags.writeable for array in program.arrays), at
        if not noted:
            assert program.same_as(program.before) or program.same_as(after), at
        elif "done: nothing" in noted[0]:
            assert program.same_as(program.before), at
        elif "B is as it was" in noted[0] or "B has the solution" in noted[0]:
            expected = program.before if "as it was" in noted[0] else after
            assert np.array_equal(program.arrays[-1], expected[-1]), at
            assert np.array_equal(program.arrays[0], after[0]), at
        assert len(noted) <= 1, at
        program.start()
        noted.clear()


STEPS = {"blas.gemm": 41, "blas.trmm": 41, "lapack.posv": 101, "lapack.gesv": 101}


@pytest.mark.promise("T76")
@pytest.mark.parametrize("name", STEPS)
def test_ctrl_c_at_some_places_is_raised_and_leaves_nothing_under_way(device: Device, name: str) -> None:
    check_every_place(name, device, STEPS[name])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", STEPS)
def test_ctrl_c_at_each_place_is_raised_and_leaves_nothing_under_way(device: Device, name: str) -> None:
    check_every_place(name, device, 1)


def test_ctrl_c_leaves_an_array_that_a_region_lends(device: Device) -> None:
    A, B, others = np.eye(N) * 2, np.full((N, 30), 3.0), {*threading.enumerate()}

    def call() -> None:
        with offload_args(A, B, device=device):
            blas.trmm(2.0, A, B, devices=[device])

    for at in at_every_place(call, 61, MODULES):
        assert device.counters.mappings == 0 and A.flags.writeable and B.flags.writeable, at
        assert not {*threading.enumerate()} - others, at
        B[...] = 3
