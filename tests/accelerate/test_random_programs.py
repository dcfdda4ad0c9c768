"""Random programs have the same bits with and without a device; helpers/random_programs.py runs more such programs."""

from __future__ import annotations

import pytest

from helpers import random_programs
from offload_args import Device, testing


@pytest.mark.later("host")
@pytest.mark.parametrize("first", [0, pytest.param(1000, marks=pytest.mark.exhaustive)])
def test_random_programs_have_the_same_bits(device: str, first: int) -> None:
    with testing.residency("explicit"):
        assert random_programs.check(device, first, 12 if first == 0 else 500) > 100
        assert Device(device).residency.kept == 0
