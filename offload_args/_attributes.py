"""Attributes of library objects; two functions of the library get and set them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from . import _core
from .display import shown
from .dtypes import C_NAMES, dtype_of
from .errors import ArgumentTypeError, SizeOverflowError
from .pointers import DevicePtr

__all__ = ["Attribute", "attributes_of"]


class Attribute:
    """One attribute of a library's object, such as cublaslt.MatmulDesc.epilogue.

    The value of a 64-bit attribute may be a DevicePtr or an object of the library. The object that has the attribute
    keeps this value alive.
    """

    def __init__(self, library: str, kind: str, name: str, stem: str, code: int, dtype: str) -> None:
        self._title = f"{library}.{kind}.{name}"
        self._code = code
        self._dtype = dtype_of(C_NAMES.index(dtype))
        self._getter, self._setter = ((library, f"{stem}_{verb}_attribute") for verb in ("get", "set"))
        self.__doc__ = f"The attribute {name}, {self._dtype.name}."

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self
        value = np.zeros(1, self._dtype)
        _function(*self._getter)(owner, self._code, value, value.nbytes)
        number, kept = _kept(owner).get(self._code, (None, None))
        return kept if kept is not None and number == value[0] else value[0].item()

    def __set__(self, owner: Any, value: Any) -> None:
        number = self._number(value)
        _function(*self._setter)(owner, self._code, np.array([number], self._dtype), self._dtype.itemsize)
        is_kept = isinstance(value, (DevicePtr, _core.Object))
        _kept(owner)[self._code] = (number, value if is_kept else None)

    def _number(self, value: Any) -> int | float:
        """Return the number that is passed to the library."""
        if self._dtype == np.uint64 and value is None:
            return 0
        if self._dtype == np.uint64 and isinstance(value, DevicePtr):
            return _core.handle(value)
        if self._dtype == np.uint64 and isinstance(value, _core.Object):
            return int(value.address)  # type: ignore[attr-defined]
        try:
            number = float(value) if self._dtype.kind == "f" else operator.index(value)
        except (TypeError, ValueError):
            kind = "a number" if self._dtype.kind == "f" else "an integer"
            raise ArgumentTypeError(f"{self._title}: needs {kind}, of {self._dtype.name}, got {shown(value)}") from None
        if self._dtype.kind != "f" and not np.iinfo(self._dtype).min <= number <= np.iinfo(self._dtype).max:
            raise SizeOverflowError(f"{self._title}: needs an integer that fits {self._dtype.name}, got {number}")
        return number


def _function(library: str, name: str) -> Any:
    return _core.function(library, name, f"{__package__}.{library}")


def _kept(owner: Any) -> dict[int, tuple[int | float, Any]]:
    """Return the saved attributes of an object, by their codes."""
    try:
        return owner._kept  # type: ignore[no-any-return]
    except AttributeError:
        owner._kept = {}
        return owner._kept  # type: ignore[no-any-return]


def attributes_of(library: str, kind: str, tables: dict[str, tuple[str, dict[str, tuple[int, str]]]]) -> dict[str, Any]:
    """Return the attributes of one kind of object.

    tables: {kind: (the beginning of the names of the kind's functions, {attribute: (code, dtype)})}.
    """
    if kind not in tables:
        return {}
    stem, facts = tables[kind]
    return {name: Attribute(library, kind, name, stem, code, dtype) for name, (code, dtype) in facts.items()}
