"""Errors of calls whose arguments do not fit a Python function's signature."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["telling"]

P = ParamSpec("P")
R = TypeVar("R")


def telling(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function's TypeError for unknown, missing or too many arguments name the right ones, with the remedy."""

    @functools.wraps(function)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*arguments, **keywords)
        except TypeError as error:
            # A static import would be a circle: the advice knows the functions of all modules.
            advice = import_module(f"{__package__}._advice")
            if not advice.is_of_signature(error):
                raise
            raise advice.signature_error(function, error, arguments, keywords) from None

    return call
