"""If generators and tasks with regions end early, results come down, or a warning names the lost arrays (T68)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest

from helpers.arrays import Array, ramp
from offload_args import Out, blas, offload_args
from offload_args.errors import InvalidDataError, UnwrittenWarning


def doublings(x: Array, device: str) -> Iterator[int]:
    """Double x on the device once for each value that the caller requests."""
    with offload_args(x, device=device) as (dx,):
        for n in range(1, 10):
            blas.scal(2.0, dx)
            yield n


@pytest.mark.parametrize("end", ["break", "close", "delete"])
def test_results_of_a_generator_that_is_not_run_to_its_end_come_down(end: str, device: str) -> None:
    x = ramp(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if end == "break":
            for n in doublings(x, device):
                if n == 3:
                    break
        else:
            generator = doublings(x, device)
            assert [next(generator) for _ in range(3)] == [1, 2, 3]
            generator.close() if end == "close" else None  # type: ignore[attr-defined]
            del generator
        gc.collect()
    np.testing.assert_array_equal(x, 8 * ramp(8))
    assert x.flags.writeable


@pytest.mark.copies
def test_a_generator_inside_another_region_hands_its_results_to_that_one(device: str) -> None:
    x = ramp(8)
    with offload_args(x, device=device) as (dx,):
        generator = doublings(x, device)
        next(generator)
        generator.close()  # type: ignore[attr-defined]
        blas.scal(3.0, dx)
        np.testing.assert_array_equal(x, ramp(8))
    np.testing.assert_array_equal(x, 6 * ramp(8))


def test_an_asynchronous_generator_is_like_others(device: str) -> None:
    async def steps(x: Array) -> AsyncIterator[int]:
        with offload_args(x, device=device) as (dx,):
            while True:
                blas.scal(2.0, dx)
                yield 1

    async def run(x: Array) -> None:
        async with contextlib.aclosing(steps(x)) as each:  # type: ignore[type-var]
            async for _ in each:
                break

    x = ramp(8)
    asyncio.run(run(x))
    np.testing.assert_array_equal(x, 2 * ramp(8))


def test_closing_a_generator_tells_what_a_failure_left_undefined(device: str) -> None:
    def steps(x: Array, y: Array) -> Iterator[None]:
        with offload_args(x, y, device=device) as (dx, dy):
            blas.scal(2.0, dx)
            with contextlib.suppress(ZeroDivisionError), offload_args(y, device=device) as (inner,):
                blas.scal(2.0, inner)
                raise ZeroDivisionError
            yield

    x, y = ramp(8), ramp(8)
    generator = steps(x, y)
    next(generator)
    with pytest.raises(InvalidDataError, match="argument 2"):
        generator.close()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(x, 2 * ramp(8))
    np.testing.assert_array_equal(y, ramp(8))


def test_closing_a_generator_tells_of_an_out_that_nothing_wrote(device: str) -> None:
    def waiting(x: Array) -> Iterator[None]:
        with offload_args(Out(x), device=device):
            yield

    generator = waiting(ramp(8))
    next(generator)
    with pytest.warns(UnwrittenWarning, match="argument 1"):
        generator.close()  # type: ignore[attr-defined]


def test_an_exception_that_is_thrown_into_a_generator_discards_as_in_a_block(device: str) -> None:
    x = ramp(8)
    generator = doublings(x, device)
    next(generator)
    with pytest.raises(KeyError) as raised:
        generator.throw(KeyError())  # type: ignore[attr-defined]
    assert "argument 1 was written on the device and discarded" in raised.value.__notes__[0]
    np.testing.assert_array_equal(x, ramp(8))


def test_a_cancelled_task_and_an_exit_tell_what_they_discard(device: str) -> None:
    async def work(x: Array) -> None:
        with offload_args(x, device=device) as (dx,):
            blas.scal(2.0, dx)
            await asyncio.sleep(60)

    async def run(x: Array) -> None:
        task = asyncio.create_task(work(x))
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    x = ramp(8)
    with pytest.warns(match=r"argument 1 was written .* on_error=\"keep\""):
        asyncio.run(run(x))
    with pytest.warns(match="argument 1"), contextlib.suppress(SystemExit):
        with offload_args(x, device=device) as (dx,):
            blas.scal(2.0, dx)
            raise SystemExit(0)
    np.testing.assert_array_equal(x, ramp(8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with contextlib.suppress(SystemExit), offload_args(x, device=device) as (dx,):
            blas.asum(dx)
            raise SystemExit(0)  # no result is lost
