"""Mutations of good modules: numbers at random places, repeated, moved and removed pieces, and truncated files."""

from __future__ import annotations

import random

_VALUES = (0, 1, 0x7F, 0x80, 0xFE, 0xFF)


def _place(data: bytearray, rng: random.Random) -> int:
    """Return a place; half of them are near the beginning, where headers are."""
    return rng.randrange(min(len(data), rng.choice((64, 512, len(data), len(data)))))


def mutated(image: bytes, rng: random.Random) -> bytes:
    """Return the image with one to five mutations."""
    data = bytearray(image)
    for _ in range(rng.randrange(1, 6)):
        if not data:
            break
        at, length = _place(data, rng), rng.choice((1, 1, 2, 4, 8, 64))
        kind = rng.randrange(8)
        if kind < 4:  # a number
            value = rng.choice((*_VALUES, rng.randrange(256)))
            data[at : at + length] = bytes([value]) * min(length, len(data) - at)
        elif kind == 4:  # one bit
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 5:  # a piece of the file somewhere else
            piece = data[_place(data, rng) :][:length]
            data[at : at + len(piece)] = piece
        elif kind == 6:  # a removed piece
            del data[at : at + length]
        else:
            del data[rng.randrange(len(data)) :]
    return bytes(data)
