"""The types that static checkers see are those at run time."""

from __future__ import annotations

from package import static_types


def test_what_static_checkers_are_told_is_so() -> None:
    static_types.check()
