"""Values for arrays whose contents a recording does not have. The values are always the same, and well conditioned."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .layout import flat

__all__ = ["Use", "make", "note_use"]

#: How calls use an array: as a matrix to factor or to solve with, or as a triangle or band in its storage format.
Use = Literal["", "matrix", "stored"]

_SOLVES = re.compile(
    r"(tr|tp|tb)sv|trsm|trtri|trtrs|potr|posv|potri|sytr|hetr|sysv|getr|gesv|geqrf|gels|gesvd|syev|heev|sygv|hegv"
)


def note_use(uses: dict[int, Use], event: dict[str, Any]) -> None:
    """Note how a call that factors or solves uses its first pointer, under the pointer's number."""
    name = event.get("blas") or event.get("call", "")
    match = _SOLVES.search(name) if name else None
    if match is None:
        return
    for operand in flat([*event["args"], *event.get("names", {}).values()]):
        if isinstance(operand, dict) and "p" in operand:
            uses.setdefault(operand["p"], "stored" if match.group(1) in ("tp", "tb") else "matrix")
            return


def make(array: NDArray[Any], seed: str, use: Use = "") -> None:
    """Fill an array.

    `use` states how solvers use the array; any square part along its diagonal is then well conditioned.

    Integers become 0, which is a valid index of every array.
    """
    if array.size == 0 or array.dtype.kind in "iub":
        array[...] = 0
        return
    random = np.random.Generator(np.random.PCG64(int(seed or "0", 16)))
    values = random.uniform(-1, 1, array.shape)
    is_complex = array.dtype.kind == "c"
    whole: NDArray[Any] = values + 1j * random.uniform(-1, 1, array.shape) if is_complex else values
    if use == "stored" or (use == "matrix" and array.ndim < 2):
        # The elements are nearly 1: solvers can use a triangle or a band of them, wherever its elements are in memory.
        whole = 1 + whole / (16 * max(array.shape))
    elif use == "matrix":
        n = max(array.shape[-2:])
        whole = whole / (2 * n)
        along = np.arange(min(array.shape[-2:]))
        whole[..., along, along] = 2
    array[...] = whole.astype(array.dtype)
