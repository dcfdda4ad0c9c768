"""The arrays that a call of each bound function copies up and down, and the rights that the call needs."""

from __future__ import annotations

import pytest

from recording import legal
from recording.workers import Turns, Workers, every_family, turned


@pytest.mark.promise("T32")
@every_family(*legal.libraries())
@turned(short=2, long=2, full=10)
def test_what_is_read_comes_up_and_what_is_written_comes_down(
    workers: Workers, variant: str, family: str, turns: Turns
) -> None:
    workers[variant].ask("movement", family, turns)
