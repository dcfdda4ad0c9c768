"""Whose memory stays on a device: when the owner dies, so does what stays of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from . import _array

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

# By id. A weak reference also makes ndarray.resize refuse, so that the memory stays where it is.
_owners: dict[int, ref[NDArray[Any]]] = {}


def watch_owner(owner: NDArray[Any]) -> None:
    """Tell the core when an array that owns memory dies; called by _array.c once something newly stays of it."""
    key = id(owner)
    known = _owners.get(key)
    if known is None or known() is not owner:
        _owners[key] = ref(owner, partial(_gone, key, _owners, _array.owner_gone))


# The arguments are bound early: modules may be gone when the last arrays go.
def _gone(key: int, owners: dict[int, ref[NDArray[Any]]], tell: Callable[[int], None], dead: ref[NDArray[Any]]) -> None:
    if owners.get(key) is dead:
        del owners[key]
    tell(key)
