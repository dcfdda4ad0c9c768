"""Errors of calls whose arguments do not fit a Python function's signature."""

from __future__ import annotations

import functools
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["telling"]

T = TypeVar("T", bound="Callable[..., Any]")

_SPECIAL: Final = ("__call__", "__init__", "__new__")


def telling(thing: T) -> T:
    """Let the TypeErrors for unknown, missing or too many arguments of a function name the right ones and the remedy.

    A class gets such a constructor, and such methods if their names have no underscore before them.
    """
    if not isinstance(thing, type):
        return _telling(thing)
    for name, member in list(vars(thing).items()):
        if name in _SPECIAL or not name.startswith("_"):
            if isinstance(member, (classmethod, staticmethod)):
                setattr(thing, name, type(member)(_telling(member.__func__)))
            elif isinstance(member, FunctionType):
                setattr(thing, name, _telling(member))
    return thing


def _telling(function: T) -> T:
    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        try:
            return function(*arguments, **keywords)
        except TypeError as error:
            # A static import would be a circle: the advice knows the functions of all modules.
            advice = import_module(f"{__package__}._advice")
            if not advice.is_of_signature(error):
                raise
            raise advice.signature_error(function, error, *arguments[:1]) from None

    return cast("T", call)
