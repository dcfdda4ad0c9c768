"""Random kernels in Python, compared with NumPy bit for bit, on every device.

helpers/random_kernels.py makes any number of them, outside the tests.
"""

from __future__ import annotations

from functools import cache

import pytest

from helpers.random_kernels import RandomKernel

made = cache(RandomKernel)  # one compilation for host and sim
SEEDS = [range(10 * k, 10 * k + 10) for k in range(8)]
CASES = [
    pytest.param(seeds, id=f"{seeds[0]}", marks=[[], pytest.mark.slow, pytest.mark.exhaustive][(k > 0) + (k > 2)])
    for k, seeds in enumerate(SEEDS)
]


@pytest.mark.parametrize("seeds", CASES)
def test_ten_random_kernels_have_the_results_of_numpy(seeds: range, running_device: str) -> None:
    for seed in seeds:
        made(seed).check(running_device)
