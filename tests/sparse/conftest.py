"""Devices with sparse matrices."""

from __future__ import annotations

import pytest

from helpers.devices import HIP, here, library_or_skip, open_or_skip
from helpers.sparse_matrices import with_library


@pytest.fixture(params=here("host", "sim:0", "cuda:0", HIP))
def on(request: pytest.FixtureRequest) -> str:
    """The name of a device with sparse matrices."""
    return with_library(request.param)


@pytest.fixture(params=here("host", "sim:0", "cuda:0"))
def factors(request: pytest.FixtureRequest) -> str:
    """The name of a device that factors sparse matrices."""
    name = open_or_skip(request.param)
    if name.startswith("cuda"):
        library_or_skip("cusparse", name)
        library_or_skip("cudss", name)
    return name


@pytest.fixture(params=here("host", "sim:0"))
def cpu(request: pytest.FixtureRequest) -> str:
    """The name of a device that uses SciPy for sparse matrices."""
    return open_or_skip(request.param)
