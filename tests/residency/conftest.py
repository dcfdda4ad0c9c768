"""Fixtures for residency on request only, and for tests that need watched pages."""

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
    """Skip a test of spared copies unless the kernel can watch pages (userfaultfd)."""
    if not Device("host").residency.tracking:
        if "pages" in os.environ.get("OFFLOAD_ARGS_REQUIRE", "").split(","):
            pytest.fail("OFFLOAD_ARGS_REQUIRE needs pages to be watched, and this kernel or container refuses")
        pytest.skip("device unavailable")
