"""Fixtures for tests of regions."""

from __future__ import annotations

import pytest

from helpers.devices import open_or_skip
from offload_args import Device


@pytest.fixture(params=[("sim:0", "sim:1"), ("sim:0", "host"), ("cuda:0", "cuda:1"), ("cuda:0", "host")], ids="-".join)
def devices(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The names of two available devices."""
    first, other = request.param
    open_or_skip(first)
    if other == "cuda:1" and len(Device.all()) < 3:  # OFFLOAD_ARGS_REQUIRE requires only one GPU
        pytest.skip("device unavailable")
    return first, open_or_skip(other)
