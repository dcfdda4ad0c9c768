"""Random kernels in Python, compared with NumPy bit for bit, on every device.

OFFLOAD_ARGS_RANDOM_KERNELS is the number of kernels in all. helpers/random_kernels.py runs such kernels outside of
tests.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

from helpers.random_kernels import RandomKernel

kernel_of = cache(RandomKernel)  # one compilation for host and sim
COUNT = int(os.environ.get("OFFLOAD_ARGS_RANDOM_KERNELS", "80"))
SEEDS = [range(4), range(4, 10), *(range(first, min(first + 10, COUNT)) for first in range(10, COUNT, 10))]
CASES = [
    pytest.param(seeds, id=f"{seeds[0]}", marks=[[], pytest.mark.slow, pytest.mark.exhaustive][(k > 0) + (k > 1)])
    for k, seeds in enumerate(SEEDS)
]


@pytest.mark.later
@pytest.mark.parametrize("seeds", CASES)
def test_random_kernels_have_the_results_of_numpy(seeds: range, running_device: str) -> None:
    for seed in seeds:
        kernel_of(seed).check(running_device)
