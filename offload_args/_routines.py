"""The contents of a vendor library's module: its functions, made at their first use."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["serve"]


def serve(module: str, namespace: dict[str, Any]) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a library's module.

    module: the module's `__name__`, which ends with the library's name. namespace: the module's globals, in which the
    functions are stored, too.
    """
    library = module.rpartition(".")[2]
    constants = [name for name in namespace if not name.startswith("_")]
    routines = frozenset(_core.routine_names(library))
    classes = frozenset(_core.object_kinds(library))
    deprecated: frozenset[str] = namespace.get("_DEPRECATED", frozenset())
    adds: dict[str, str] = namespace.get("_ADDS", {})  # {a name that is not generated: the module that has it}
    public = sorted({*constants, *routines, *classes, *adds, "raw"})

    def find(name: str) -> Any:
        if name == "raw":
            from ._raw import Raw

            return namespace.setdefault(name, Raw(library))
        if name in classes:
            from .objects import class_of

            return namespace.setdefault(name, class_of(library, name))
        if name in adds:
            return namespace.setdefault(name, getattr(import_module(f".{adds[name]}", __package__), name))
        if name not in routines:
            from .display import nearest, no_name

            raise no_name(module, name, _own_name(library, name, public) or nearest(name, public))
        if name in deprecated:
            text = f"{library}.{name} is deprecated by its vendor; later versions of the library may lack it"
            warnings.warn(text, DeprecationWarning, stacklevel=2)
        return namespace.setdefault(name, _core.function(library, name, module))  # all threads get the same function

    def names() -> list[str]:
        return sorted({*namespace, *public})

    return find, names, public


def _own_name(library: str, name: str, public: Sequence[str]) -> str:
    """Return the remedy for a vendor's name, such as "cublasDgemv_v2" or "CUBLAS_OP_T"; "" if it has none."""
    import re

    if not name.lower().startswith(library):
        return ""
    rest = name[len(library) :].strip("_").removesuffix("_v2")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", rest).lower()
    for own in (rest, rest.lower(), words, words.removeprefix("dn_"), words.removeprefix("dn_").replace("_", "", 1)):
        if own in public:
            raw = f"; {library}.raw.{name} has the vendor's arguments" if own[:1].islower() else ""
            return f"; use {library}.{own}{raw}"
    return ""
