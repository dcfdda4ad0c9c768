"""Writes all bodies of a library: routines whose bodies come out the same share one."""

from __future__ import annotations

from ..roles import Function, Library
from .bodies import Body
from .grouped import GroupedBody


def body_of(library: Library, function: Function) -> Body:
    """Returns the writer of a function's body."""
    return (GroupedBody if function.lists else Body)(library, function)


class Bodies:
    """The bodies of a library, each written once, and which of them each function has."""

    def __init__(self, library: Library) -> None:
        self.texts: dict[str, str] = {}  # by name
        self.of: dict[str, tuple[str, str]] = {}  # function: (body, caller or "")
        self.users: dict[str, list[str]] = {}
        names: dict[str, str] = {}  # by text, with a name that none has
        taken: dict[str, int] = {}
        for function in library.functions:
            body = body_of(library, function)
            text = body.text("NAME")
            if text not in names:
                family = f"run_{function.family}"
                taken[family] = taken.get(family, 0) + 1
                names[text] = family if taken[family] == 1 else f"{family}_{taken[family]}"
                self.texts[names[text]] = body.text(names[text])
            caller = ""
            if body.is_late:
                made = body.caller()
                caller = body.signature
                assert self.texts.setdefault(caller, made) == made, caller
            self.of[function.name] = (names[text], caller)
            for name in filter(None, (names[text], caller)):
                self.users.setdefault(name, []).append(function.name)

    def lines(self) -> list[str]:
        """Returns the C text of all of them."""
        lines: list[str] = []
        for name, text in self.texts.items():
            users = " ".join(self.users[name])
            lines += [f"/* {users} */" if len(users) < 110 else f"/* {users[:100].rsplit(' ', 1)[0]} ... */", text, ""]
        return lines
