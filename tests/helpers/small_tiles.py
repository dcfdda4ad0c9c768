"""Many tiles of small matrices, and a device that is smaller than the matrices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from offload_args import Device, testing
from offload_args.blas import tiles
from offload_args.lapack import streamed

CAPACITY = 1 << 20  # of a small device, in bytes
DONE = "; all other elements are as they were"


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide small matrices into nine tiles, or into panels of eight columns."""
    monkeypatch.setattr(tiles, "_LEAST", 8)
    monkeypatch.setattr(tiles, "_UNIT", 1)
    monkeypatch.setattr(tiles, "_ALONG", 3)
    monkeypatch.setattr(streamed, "_WIDE", 8)


@pytest.fixture
def small_device() -> Iterator[Device]:
    """A device that has 1 MiB."""
    yield testing.sim_device(capacity=CAPACITY)
    testing.sim_device()


def finished(error: BaseException, name: str, **arrays: np.ndarray) -> dict[str, np.ndarray]:
    """Return masks of the elements that the note on an error names as done."""
    (note,) = (note for note in error.__notes__ if note.startswith(f"{name}: done: "))
    masks = {operand: np.zeros(array.shape, bool) for operand, array in arrays.items()}
    assert note.endswith(DONE)
    for part in note.removeprefix(f"{name}: done: ").removesuffix(DONE).partition("; ")[0].split("], "):
        if part != "nothing":
            operand, _, text = part.strip("]").partition("[")
            rows, columns = (
                slice(None) if each == ":" else slice(*map(int, each.split(":"))) for each in text.split(", ")
            )
            masks[operand][rows, columns] = True
    return masks
