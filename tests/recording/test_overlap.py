"""Every function refuses operands in one array if it would write an element of both, and accepts other operands."""

from __future__ import annotations

import pytest

from recording import legal
from recording.workers import Turns, Workers, every_family, turned


@pytest.mark.promise("T47")
@every_family(*legal.libraries())
@turned(short=4, long=3, full=20)
def test_operands_may_share_an_array_but_no_written_element(
    workers: Workers, variant: str, family: str, turns: Turns
) -> None:
    workers[variant].ask("overlap", family, turns)
