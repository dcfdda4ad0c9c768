"""The GPU of tests whose module says which library of the vendor they need: LIBRARY."""

from __future__ import annotations

import pytest

from helpers.devices import library_or_skip


@pytest.fixture
def gpu(cuda: str, request: pytest.FixtureRequest) -> str:
    library_or_skip(request.module.LIBRARY, cuda)
    return cuda
