"""What static checkers are told is so."""

from __future__ import annotations

from package import static_types


def test_what_static_checkers_are_told_is_so() -> None:
    static_types.check()
