"""The types that static checkers see are those at run time."""

from __future__ import annotations

from package import static_types


def test_types_told_to_static_checkers_are_right() -> None:
    static_types.check()
