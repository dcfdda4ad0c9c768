"""The outcome of a step: results, errors and warnings, or no promised outcome."""

from __future__ import annotations

from dataclasses import dataclass


class Refused(Exception):
    """The step must raise one of these exceptions, named by their classes."""

    def __init__(self, *errors: str) -> None:
        super().__init__(*errors)
        self.errors = frozenset(errors)


class Unspecified(Exception):
    """The documents promise no outcome of this step."""


@dataclass(frozen=True)
class Outcome:
    """The outcome that a step must have."""

    errors: frozenset[str] = frozenset()  # one of these errors is raised; if it is empty, no error
    value: object = None
    warnings: tuple[str, ...] = ()  # these warnings are given, in any order


@dataclass(frozen=True)
class Each:
    """The errors of some calls, in order: the possible errors of each call, or none."""

    errors: tuple[frozenset[str], ...]

    def __eq__(self, came: object) -> bool:
        return isinstance(came, list) and all(
            error in errors if errors else error is None for error, errors in zip(came, self.errors, strict=True)
        )

    __hash__ = None  # type: ignore[assignment]
