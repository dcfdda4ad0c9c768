"""Residency on request only, and whether pages can be watched."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from offload_args import Device, testing


@pytest.fixture(autouse=True)
def explicit() -> Iterator[None]:
    with testing.residency("explicit"):
        yield


@pytest.fixture
def tracked() -> None:
    """For tests of copies that are spared: they run only where the kernel lets pages be watched (userfaultfd)."""
    if not Device("host").residency.tracking:
        if "pages" in os.environ.get("OFFLOAD_ARGS_REQUIRE", "").split(","):
            pytest.fail("OFFLOAD_ARGS_REQUIRE needs pages to be watched, and this kernel or container refuses")
        pytest.skip("device unavailable")
