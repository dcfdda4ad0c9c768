"""The selection of tests by plugins of pytest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def leave_out(patterns: Iterable[str]) -> Callable[[pytest.Config, list[Any]], None]:
    """Return a hook, pytest_collection_modifyitems, that leaves out the tests whose names match a pattern."""

    def hook(config: pytest.Config, items: list[Any]) -> None:
        kept = [item for item in items if not any(re.search(pattern, item.nodeid) for pattern in patterns)]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    return hook
