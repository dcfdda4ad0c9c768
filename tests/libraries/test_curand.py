"""cuRAND's host API, a library that consists of an api file and a roles file.

Each call takes a generator, which is an object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from offload_args import InOut, Out, cublas, curand, offload_args
from offload_args.errors import (
    ArgumentError,
    DTypeError,
    ExtentError,
    LibraryError,
    StalePointerError,
)

LIBRARY = "curand"

N = 20_000


def new_generator(gpu: str, seed: int = 7, kind: int = curand.RNG_PSEUDO_PHILOX4_32_10) -> Any:
    generator = curand.create_generator(kind, gpu)
    if kind < curand.RNG_QUASI_DEFAULT:
        curand.set_pseudo_random_generator_seed(generator, seed)
    return generator


def drawn(gpu: str, function: Callable[..., None], dtype: Any, *numbers: float, seed: int = 7, n: int = N) -> Any:
    """Return the numbers that a new generator of this seed writes."""
    values = np.empty(n, dtype)
    with new_generator(gpu, seed) as generator, offload_args(Out(values), device=gpu) as (out,):
        function(out, n, *numbers, handle=generator)
    return values


@pytest.mark.parametrize(
    ("function", "dtype", "numbers", "mean", "deviation"),
    [
        (curand.generate_uniform, np.float32, (), 0.5, 12**-0.5),
        (curand.generate_uniform_double, np.float64, (), 0.5, 12**-0.5),
        (curand.generate_normal, np.float32, (3.0, 0.5), 3.0, 0.5),
        (curand.generate_normal_double, np.float64, (-1.0, 2.0), -1.0, 2.0),
        (curand.generate_log_normal, np.float32, (0.0, 0.25), np.exp(1 / 32), 0.2616),
        (curand.generate_log_normal_double, np.float64, (0.0, 0.25), np.exp(1 / 32), 0.2616),
        (curand.generate_poisson, np.uint32, (4.0,), 4.0, 2.0),
        (curand.generate, np.uint32, (), 2**31, 2**32 * 12**-0.5),
    ],
)
def test_numbers_have_the_mean_and_deviation_of_their_distribution(
    gpu: str, function: Callable[..., None], dtype: Any, numbers: tuple[float, ...], mean: float, deviation: float
) -> None:
    values = drawn(gpu, function, dtype, *numbers).astype(np.float64)
    assert abs(values.mean() - mean) < 6 * deviation / N**0.5
    assert abs(values.std() / deviation - 1) < 0.05


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(gpu: str) -> None:
    first, again, other = (drawn(gpu, curand.generate_uniform, np.float32, seed=seed) for seed in (7, 7, 8))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert first.min() > 0 and first.max() <= 1


def test_calls_go_on_in_the_sequence_and_an_offset_leaves_numbers_out(gpu: str) -> None:
    whole = drawn(gpu, curand.generate, np.uint32, n=64)
    parts, rest = np.empty(64, np.uint32), np.empty(32, np.uint32)
    with offload_args(parts, rest, device=gpu) as (d_parts, d_rest), new_generator(gpu) as generator:
        curand.generate(d_parts[:32], 32, handle=generator)
        curand.generate(d_parts[32:], 32, handle=generator)
        curand.set_generator_offset(generator, 32)
        curand.generate(d_rest, 32, handle=generator)
    assert np.array_equal(parts, whole) and np.array_equal(rest, whole[32:])


def test_numbers_are_ordered_with_calls_of_other_libraries(gpu: str) -> None:
    values = np.zeros(N)
    with new_generator(gpu) as generator, offload_args(values, device=gpu) as (d_values,):
        curand.generate_uniform_double(d_values, N, handle=generator)
        cublas.dscal(N, 2.0, d_values, 1)
        total = cublas.dasum(N, d_values, 1)
    assert np.isclose(total, values.sum()) and abs(values.mean() - 1) < 0.02


def test_quasirandom_generators_have_dimensions(gpu: str) -> None:
    values = np.empty(60, np.float32)
    with (
        new_generator(gpu, kind=curand.RNG_QUASI_SOBOL32) as generator,
        offload_args(Out(values), device=gpu) as (out,),
    ):
        curand.set_quasi_random_generator_dimensions(generator, 4)
        curand.generate_uniform(out, 60, handle=generator)
        with pytest.raises(LibraryError, match=r"set_pseudo_random_generator_seed: .*CURAND_STATUS_TYPE_ERROR \(103\)"):
            curand.set_pseudo_random_generator_seed(generator, 3)
    assert values.min() > 0 and values.max() <= 1


def test_what_cannot_be_is_refused_before_the_call(gpu: str) -> None:
    values, doubles = np.ones(8, np.float32), np.ones(8)
    with new_generator(gpu) as generator, offload_args(InOut(values), doubles, device=gpu) as (out, d_doubles):
        with pytest.raises(ArgumentError, match=r"curand.generate_uniform: handle needs a curand.Generator, got none"):
            curand.generate_uniform(out, 8)
        with pytest.raises(ExtentError, match=r"curand.generate_uniform: out needs 9 elements \(num=9\), has 8"):
            curand.generate_uniform(out, 9, handle=generator)
        with pytest.raises(DTypeError, match="out needs a DevicePtr.float32"):
            curand.generate_uniform(d_doubles, 8, handle=generator)
        with pytest.raises(TypeError, match=r"handle needs a curand.Generator, got a cublas.Handle"):
            curand.generate_uniform(out, 8, handle=cublas.create(gpu))
        with pytest.raises(ArgumentError, match="the stream of an address is not known"):
            curand.generate_uniform(out, 8, handle=generator.address)
    assert np.array_equal(values, np.ones(8, np.float32))
    with offload_args(values, device=gpu) as (out,):
        with pytest.raises(StalePointerError, match="was destroyed"):
            curand.generate_uniform(out, 8, handle=generator)


def test_a_failure_of_the_library_has_its_name(gpu: str) -> None:
    values = np.ones(8, np.uint32)
    with pytest.raises(LibraryError, match=r"generate_poisson: .*CURAND_STATUS_OUT_OF_RANGE \(104\)"):
        with new_generator(gpu) as generator, offload_args(values, device=gpu) as (out,):
            curand.generate_poisson(out, 8, -1.0, handle=generator)
    assert np.array_equal(values, np.ones(8, np.uint32))
