"""The types that static checkers are told are those of the running program."""

from __future__ import annotations

from package import static_types


def test_types_told_to_static_checkers_are_right() -> None:
    static_types.check()
