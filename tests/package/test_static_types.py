"""Static checkers see the same types as at run time."""

from __future__ import annotations

import pytest

from package import static_types


@pytest.mark.later
def test_types_told_to_static_checkers_are_right() -> None:
    static_types.check()
