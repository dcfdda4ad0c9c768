"""Text for people: sizes and times with units, and tables as text and as HTML."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NoReturn, TypeVar

__all__ = [
    "answering",
    "described",
    "html_table",
    "listing",
    "missing",
    "nearest",
    "no_attribute",
    "no_name",
    "plural",
    "rate_text",
    "saved_text",
    "shown",
    "size_text",
    "text_of",
    "text_table",
    "time_text",
    "with_article",
]

T = TypeVar("T", bound=type)

_MOST_SHOWN: Final = 200  # characters
_MOST_ITEMS: Final = 16
# Words that are spoken with a vowel first: not "uint8" and "user", but "ndarray", "HSACO", "8-dimensional" and "11".
_VOWEL: Final = re.compile(r"[aeio]|u(?!int|n[iI]|s[e(]|fu)|nd|HS|8|1[18]\b", re.IGNORECASE)


def shown(value: object) -> str:
    """Return the repr of any value. A long repr is cut, and a long int is described by the number of its bits."""
    try:
        text = repr(value)
    except ValueError:
        text = ""
    if text and len(text) <= _MOST_SHOWN:
        return text
    if isinstance(value, int):
        return f"an int of {value.bit_length()} bits"
    if isinstance(value, (tuple, list)) and len(value) <= _MOST_ITEMS:
        return f"({', '.join(map(shown, value))})"
    if text:
        return f"{text[:_MOST_SHOWN]}..."
    return described(value)


def text_of(value: object) -> str:
    """Return a string, or bytes as one, for remedies of options; "" for other values."""
    return value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else ""


def with_article(words: str) -> str:
    """Return "an array" for "array", and "a list" for "list"."""
    return f"{'an' if _VOWEL.match(words) else 'a'} {words}"


def described(value: object) -> str:
    """Return the type of a value with its article, "an ndarray" or "a list", and "None" for None."""
    return "None" if value is None else with_article(type(value).__name__)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean gemv or gemm?", with the names most similar to a missing name, or ""."""
    if name.startswith("_"):
        return ""
    from difflib import get_close_matches

    likely = [known for known in names if abs(len(known) - len(name)) <= 2]  # names of other lengths are not similar
    matches = get_close_matches(name, likely, 3, 0.75 if len(name) > 3 else 0.65)
    return f"; did you mean {' or '.join(matches)}?" if matches else ""


def plural(word: str, count: int) -> str:
    """Return the singular or the plural of a word, for a number before it."""
    if count == 1:
        return word
    return word[:-1] + "ies" if word.endswith("y") and word[-2] not in "aeiou" else word + "s"


def saved_text(seconds: float) -> str:
    """Return "saved 2 ms", or "lost 2 ms" for a number below 0."""
    return f"saved {time_text(seconds)}" if seconds >= 0 else f"lost {time_text(-seconds)}"


def size_text(nbytes: int) -> str:
    """Return bytes as "64 MiB"."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= factor:
            return f"{float(f'{nbytes / factor:.3g}'):g} {unit}"
    return f"{nbytes} {plural('byte', nbytes)}"


def time_text(seconds: float) -> str:
    """Return seconds as "12 ms"."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= factor:
            return f"{float(f'{seconds / factor:.2g}'):g} {unit}"
    return f"{float(f'{seconds * 1e6:.2g}'):g} µs"


def rate_text(nbytes: int, seconds: float) -> str:
    """Return " (3.4 GB/s)", or "" for no bytes or no time."""
    return f" ({float(f'{nbytes / seconds / 1e9:.2g}'):g} GB/s)" if seconds > 0 and nbytes else ""


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines with aligned columns; empty columns are left out."""
    columns = [column for column in zip(*rows, strict=True) if any(column)]
    widths = [max(map(len, column)) for column in columns]
    cells = zip(*columns, strict=True)
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    ]


def html_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table for notebooks. All arguments are plain text, which is escaped."""
    from html import escape

    left = "text-align:left;padding:0.15em 1em 0.15em 0"  # else notebooks align right, others leave no space

    def line(tag: str, cells: Sequence[str]) -> str:
        return "<tr>" + "".join(f'<{tag} style="{left}">{escape(cell)}</{tag}>' for cell in cells) + "</tr>"

    caption = f'<caption style="caption-side:top;white-space:nowrap;font-weight:bold;{left}">{escape(title)}</caption>'
    head = f"<thead>{line('th', header)}</thead>" if header else ""
    body = "".join(line("td", row) for row in rows)
    return f'<table style="margin-left:0">{caption}{head}<tbody>{body}</tbody></table>'


def missing(
    module: str, names: Sequence[str], elsewhere: Mapping[str, str] = MappingProxyType({})
) -> Callable[[str], NoReturn]:
    """Return the `__getattr__` of a module. Its error lists the names that are most similar to the missing name.

    elsewhere: the functions to use for names that NumPy and SciPy have, and the module does not.
    """

    def refuse(name: str) -> NoReturn:
        remedy = f"; use {elsewhere[name]}" if name in elsewhere else nearest(name, names)
        if name[:1] in [*"sdcz"] and name[1:] in names and name not in elsewhere:
            remedy = f"; use {name[1:]}: the dtype is that of the arrays"
        raise no_name(module, name, remedy)

    return refuse


def listing(names: Sequence[str]) -> Callable[[], list[str]]:
    """Return the `__dir__` of a module, which completion by Tab shows: the public names alone."""
    return lambda: sorted(names)


def no_attribute(thing: object, name: str, instead: Mapping[str, str] = MappingProxyType({})) -> AttributeError:
    """Return the error of an attribute that an object lacks, with its remedy or the most similar names.

    instead: {a plausible name: its remedy}.
    """
    if name.startswith("_"):  # dir() looks for __dict__, and would come here again
        return AttributeError(f"{type(thing).__name__} has no attribute {name!r}", name=name)
    public = [known for known in dir(thing) if not known.startswith("_")]
    remedy = f"; use {instead[name]}" if name in instead else nearest(name, public)
    return AttributeError(f"{type(thing).__name__} has no attribute {name!r}{remedy}", name=name)


def answering(instead: Mapping[str, str] = MappingProxyType({})) -> Callable[[T], T]:
    """Return a decorator of classes: for an attribute that an object lacks, the error names the remedy.

    instead: {a plausible name, such as one of another package: its remedy}. The decorator sets `__getattr__`, which
    static checkers must not see, because they would then take every name.
    """

    def decorated(kind: T) -> T:
        def refuse(self: object, name: str) -> Any:
            own = None if name.startswith("__") else getattr(type(self), name, None)
            if isinstance(own, property):  # it has raised an AttributeError of its own, and raises it again
                return own.__get__(self, type(self))
            raise no_attribute(self, name, instead)

        kind.__getattr__ = refuse  # type: ignore[attr-defined]
        return kind

    return decorated


def no_name(module: str, name: str, remedy: str) -> AttributeError | ImportError:
    """Return the error of a name that a module lacks, for the module's `__getattr__`, which calls this function.

    For `from module import name`, Python replaces an AttributeError by an ImportError without the remedy. So the error
    is then an ImportError, unless the name is a module that is being imported.
    """
    from opcode import opmap

    frame = sys._getframe(1).f_back  # None if a program in C reads the name
    is_import = frame is not None and frame.f_code.co_code[frame.f_lasti] == opmap["IMPORT_FROM"]
    if is_import and f"{module}.{name}" not in sys.modules:
        return ImportError(f"cannot import name {name!r} from {module!r}{remedy}", name=module)
    return AttributeError(f"module {module!r} has no attribute {name!r}{remedy}", name=name)
