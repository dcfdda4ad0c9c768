"""Names of operands in errors, because vendors' functions, copies and regions use other names than the caller."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .errors import OffloadError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["named", "note_names", "rename"]


def named(call: Callable[..., None], callers: dict[str, str], *arguments: Any) -> None:
    """Call a library's function; an error gets a note with the caller's names of the operands.

    callers: {the library's name: the caller's name}.
    """
    try:
        call(*arguments)
    except OffloadError as error:
        note_names(error, callers)
        raise


def rename(error: OffloadError, pattern: str | re.Pattern[str], name: str | Callable[[re.Match[str]], str]) -> None:
    """Replace a name, such as the number of a region's argument, by the caller's name in an error's text."""
    error.args = (re.sub(pattern, name, str(error)),)


def note_names(error: OffloadError, callers: dict[str, str]) -> None:
    """Add the caller's names of the operands to an error of a library's function, as a note."""
    words = set(re.findall(r"\w+", str(error).partition(": ")[2]))
    text = ", and ".join(
        f"its {library_name} is {caller_name}" for library_name, caller_name in callers.items() if library_name in words
    )
    if text:
        error.add_note(f"The library's operands have other names here: {text}.")
