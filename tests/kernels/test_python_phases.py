"""Kernels in Python with barriers, which the CPU runs in phases: they compute the bits of threads as coroutines."""

# mypy: ignore-errors

import inspect
import os
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from helpers.random_blocks import RandomBlocks, equal, in_phases
from offload_args import In, InOut, Out, Shared, errors, kernel, offload
from offload_args.kernels import Linear1D, PerBlock, RowBlocks, Tiles, atomic_add, barrier, here, shared
from offload_args.kernels.python.phases import divided

kernel_of = cache(RandomBlocks)
COUNT = int(os.environ.get("OFFLOAD_ARGS_RANDOM_KERNELS", "80"))
SEEDS = [range(4), range(4, 10), *(range(first, min(first + 10, COUNT)) for first in range(10, COUNT, 10))]
CASES = [pytest.param(seeds, id=f"{seeds[0]}", marks=pytest.mark.exhaustive if seeds[0] else []) for seeds in SEEDS]


@pytest.mark.later
@pytest.mark.parametrize("seeds", CASES)
def test_random_kernels_have_the_same_bits_in_phases_and_as_coroutines(seeds: range) -> None:
    for seed in seeds:
        generated = kernel_of(seed)
        generated.check("host")
        assert [in_phases(way) for way in generated.ways] == [True, False], generated.source


def sums(x: In[np.float64], y: Out[np.float64].by(PerBlock())):
    part = shared(64, np.float64)
    mine = 0.0
    for i in range(here.index(), x.size, here.size()):
        mine += x[i]
    part[here.thread()] = mine
    half = here.threads(0) * here.threads(1) * here.threads(2) // 2
    while half > 0:
        barrier()
        if here.thread() < half:
            part[here.thread()] += part[here.thread() + half]
        half //= 2
    barrier()
    for i in y.mine():
        y[i] = part[0]


def sums_of_floats(x: In[np.float32], y: Out[np.float32].by(PerBlock())):
    part = shared(64, np.float32)
    mine, t = 0, here.thread()  # a number of Python becomes a float32
    for i in range(here.index(), len(x), here.size()):
        if x[i] > 0 or x[i] != x[i]:
            mine = mine + x[i]
        elif x[i] < -2:
            mine = mine - x[i]
    part[t] = mine
    half = here.threads() // 2
    while half > 0:
        barrier()
        if t < half:
            part[t] = min(part[t], part[t + half]) + part[t]
        half //= 2
    barrier()
    for i in y.mine():
        y[i] = part[0]


def of_integers(x: In[np.int32], y: Out[np.int32].by(RowBlocks(1))):
    part = shared((64, 3), np.int32)
    least, most, added, t = np.int32(2**31 - 1), np.int32(-(2**31)), np.int32(0), here.thread()
    for i in range(here.index(), x.size, here.size()):
        added += x[i]
        least = min(least, x[i])
        most = max(most, x[i])
    part[t, 0] = added
    part[t, 1] = least
    part[t, 2] = most
    half = here.threads(0) * here.threads(1) * here.threads(2) // 2
    while half > 0:
        barrier()
        if t < half:
            part[t, 0] += part[t + half, 0]
            part[t, 1] = min(part[t, 1], part[t + half, 1])
            part[t, 2] = max(part[t, 2], part[t + half, 2])
        half //= 2
    barrier()
    for i, j in y.mine():
        y[i, j] = part[0, j]


def both(function):
    """Return a kernel in phases, and the same kernel by coroutines."""
    ways = kernel(function, debug=False), kernel(function, debug=False)
    ways[1]._written.by_phases = False
    return ways


WAYS = {function.__name__: both(function) for function in (sums, sums_of_floats, of_integers)}


def numbers(size, dtype):
    values = np.random.default_rng(size).integers(-50, 50, size).astype(dtype) / dtype(8)
    if np.dtype(dtype).kind == "f":
        values[1::7], values[5::91], values[3::53] = -0.0, np.nan, np.inf
    return values.astype(dtype)


@pytest.mark.later(but="sums")
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("block", [64, 7, 1, (8, 4, 2)])
def test_sums_have_the_same_bits_in_phases_and_as_coroutines(name, block) -> None:
    ways = WAYS[name]
    assert [in_phases(way) for way in ways] == [True, False]
    for size in (0, 1, 5, 63, 64, 65, 1000):
        for blocks in (2, 3):
            x = numbers(size, {"sums": np.float64, "sums_of_floats": np.float32, "of_integers": np.int32}[name])
            results = []
            for way in ways:
                y = np.full((blocks, 3) if name == "of_integers" else blocks, 7, x.dtype)
                offload(way, x, y, grid=blocks, block=block)
                results.append(y)
            assert equal(*results), (size, blocks, results)


@pytest.mark.later(but="sums")
@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("block", [64, 7, (8, 4, 2)])
def test_steps_that_a_loop_takes_at_once_keep_the_order_of_each_thread(name, block) -> None:
    ways, threads = WAYS[name], np.prod(block)
    for size in (16 * threads - 1, 16 * threads, 16 * threads + 1, 17 * threads, 40 * threads + 3, 5000):
        random = np.random.default_rng(size)
        dtype = {"sums": np.float64, "sums_of_floats": np.float32, "of_integers": np.int32}[name]
        x = (1000 * random.standard_normal(size) ** 3).astype(dtype)
        results = []
        for way in ways:
            y = np.zeros((2, 3) if name == "of_integers" else 2, dtype)
            offload(way, x, y, grid=2, block=block)
            results.append(y)
        assert equal(*results) and np.isfinite(results[0]).all(), (size, results)


def zeros(x: In[np.float32], y: Out[np.float32].by(PerBlock())):
    part = shared(8, np.float32)
    mine = np.float32(-0.0)
    for i in range(here.thread(), x.size, here.threads()):
        mine += x[i]
    part[here.thread()] = mine
    barrier()
    for i in y.mine():
        y[i] = part[7]


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 3, 8, 20])
def test_a_thread_without_elements_keeps_the_sign_of_its_zero(size: int) -> None:
    for way in both(zeros):
        y = np.ones(1, np.float32)
        offload(way, np.full(size, -0.0, np.float32), y, block=8)
        assert y[0] == 0 and np.signbit(y[0])


# -- kernels that are not divided --------------------------------------------------------------------------------------

Blocks = Out[np.float32].by(PerBlock())


def without_barriers(x: In[np.float32], y: Blocks):
    for i in y.mine():
        y[i] = x[i]


def in_an_order(x: In[np.float32], y: Blocks):
    part = shared(1, np.float32)
    part[0] = 0
    barrier()
    atomic_add(part, 0, x[here.thread()])  # the order of additions determines the sum
    barrier()
    for i in y.mine():
        y[i] = part[0]


def whose_result_is_used(x: In[np.float32], y: Blocks):
    part = shared(8, np.int32)
    part[here.thread()] = 0
    barrier()
    k = atomic_add(part, 0, 1)
    barrier()
    for i in y.mine():
        y[i] = k


def with_a_thread_that_returns(x: In[np.float32], y: Blocks):
    part = shared(8, np.float32)
    part[here.thread()] = x[here.thread()]
    barrier()
    if here.thread() > 0:
        return
    for i in y.mine():
        y[i] = part[0] + part[3]


def with_a_variable_that_may_lack_a_value(x: In[np.float32], y: Blocks):
    part = shared(8, np.float32)
    if here.thread() > 3:
        own = x[here.thread()]
    barrier()
    part[here.thread()] = x[here.thread()]
    barrier()
    if here.thread() > 3:
        part[here.thread()] = own
    barrier()
    for i in y.mine():
        y[i] = part[0] + part[5]


def with_a_tuple(x: In[np.float32], y: Blocks):
    part = shared(8, np.float32)
    pair = (x[here.thread()], x[0])
    part[here.thread()] = x[here.thread()]
    barrier()
    part[here.thread()] = pair[0] + pair[1]
    barrier()
    for i in y.mine():
        y[i] = part[0] + part[1]


NOT_DIVIDED = (
    in_an_order, whose_result_is_used, with_a_thread_that_returns, with_a_variable_that_may_lack_a_value, with_a_tuple,
)  # fmt: skip


@pytest.mark.later
@pytest.mark.parametrize("function", NOT_DIVIDED, ids=lambda function: function.__name__)
def test_a_kernel_that_is_not_divided_runs_as_coroutines(function) -> None:
    x, results = numbers(8, np.float32), []
    for way in both(function):
        assert not in_phases(way)
        y = np.zeros(1, np.float32)
        offload(way, x, y, block=8)
        results.append(y)
    assert equal(*results)


def test_a_kernel_without_barriers_is_not_divided() -> None:
    assert divided(kernel(without_barriers)._written) is None


# -- checks ------------------------------------------------------------------------------------------------------------


@kernel
def checked(x: In[np.float32], y: Blocks):
    part = shared(8, np.float32)
    part[here.thread()] = x[here.thread() + 2]
    assert here.thread() != 5 or x[0] == 0
    barrier()
    for i in y.mine():
        y[i] = part[1]


def test_checks_name_the_thread_and_the_line() -> None:
    words = r"checked: thread \(1, 0, 0\) of block \(0, 0, 0\) reads or writes element 3 of "
    with pytest.raises(errors.ExtentError, match=words):
        offload(checked, np.zeros(3, np.float32), np.zeros(1, np.float32), block=8, device="host")
    line = inspect.getsourcelines(test_checks_name_the_thread_and_the_line)[1] - 6
    with pytest.raises(AssertionError, match=rf"thread \(5, 0, 0\) .*the assert in line {line} does not hold"):
        offload(checked, np.ones(16, np.float32), np.zeros(1, np.float32), block=8, device="host")
    y = np.zeros(1, np.float32)
    offload(checked, np.arange(16, dtype=np.float32), y, block=8, device="host")
    assert y[0] == 3


def two_dimensional(a: In[np.float64], b: Out[np.float64].by(Tiles(8, 4)), own: Shared[np.float64]):
    row, column, rows, columns = b.box()
    for k in range(here.thread(), rows * columns, here.threads(0) * here.threads(1)):
        own[k] = a[row + k // columns, column + k % columns]
    barrier()
    for i, j in b.mine():
        b[i, j] = own[(i - row) * columns + j - column] + own[0]


@pytest.mark.slow
@pytest.mark.parametrize("order", ["C", "F"])
def test_tiles_have_the_same_bits_in_phases_and_as_coroutines(order: str) -> None:
    a = np.array(np.random.default_rng(8).standard_normal((13, 9)), order=order)
    results = []
    for way, is_phased in zip(both(two_dimensional), (True, False), strict=True):
        assert in_phases(way) == is_phased
        b = np.zeros((13, 9), order=order)
        offload(way, a, b, block=(4, 2), shared_bytes=Shared(32, np.float64))
        results.append(b)
    assert equal(*results)


def counts(x: In[np.uint8], y: InOut[np.int32]):
    own = shared(256, np.int32)
    for i in range(here.thread(), 256, here.threads()):
        own[i] = 0
    barrier()
    for i in range(here.index(), x.size, here.size()):
        atomic_add(own, x[i], 1)
    barrier()
    for i in range(here.thread(), 256, here.threads()):
        atomic_add(y, i, own[i])


@pytest.mark.slow
def test_atomic_counts_of_integers_run_in_phases() -> None:
    x = np.random.default_rng(5).integers(0, 256, 5000).astype(np.uint8)
    for way, is_phased in zip(both(counts), (True, False), strict=True):
        y = np.zeros(256, np.int32)
        offload(way, x, y, grid=5, block=96)
        np.testing.assert_array_equal(y, np.bincount(x, minlength=256))
        assert in_phases(way) == is_phased


@pytest.mark.later
def test_the_kernels_of_the_benchmark_run_in_phases() -> None:
    folder = Path(__file__).parents[2] / "benchmarks"
    sys.path.insert(0, str(folder))
    try:
        from raja_python import KERNELS
    finally:
        sys.path.remove(str(folder))
    for name in ("dot", "total", "reduce3", "total3"):
        assert divided(KERNELS[name]._written) is not None, name
        assert in_phases(KERNELS[name]), name


def later(x: In[np.float64], y: Out[np.float64].by(Linear1D())):
    part = shared(64, np.float64)
    last = np.int64(-1)
    for i in range(here.index(), x.size, here.size()):
        last = i
    k = here.thread()
    part[k] = last
    barrier()
    for i in y.mine():
        y[i] = part[(k + 1) % here.threads()] + last


@pytest.mark.slow
def test_the_last_index_of_a_loop_outlives_it() -> None:
    x = np.zeros(150)
    for way in both(later):
        y = np.zeros(100)
        offload(way, x, y, block=50)
        of_thread = np.r_[100:150, 50:100]
        expected = np.concatenate([np.roll(part, -1) + part for part in np.split(of_thread, 2)])
        np.testing.assert_array_equal(y, expected)
