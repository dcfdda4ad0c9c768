"""Random programs that capture and replay are compared with the model of the documented rules, helpers/model/."""

from __future__ import annotations

import pytest

from helpers.random_replays import check


@pytest.mark.later
@pytest.mark.parametrize("count", [12, pytest.param(120, marks=pytest.mark.slow)])
def test_random_programs_with_replays_agree_with_the_documents(device: str, count: int) -> None:
    other = {"host": "sim:0", "sim:0": "sim:1"}.get(device, "host")
    check((device, other), 0, count)
