"""A wrong argument in any place of any bound function is refused with its name, before any copy or call."""

from __future__ import annotations

import pytest

from recording import legal
from recording.workers import Turns, Workers, every_family, turned


@pytest.mark.promise("T48")
@every_family(*legal.libraries())
@turned(short=1, full=3)
def test_a_wrong_argument_is_refused_by_name(workers: Workers, variant: str, family: str, turns: Turns) -> None:
    workers[variant].ask("wrong", family, turns)
