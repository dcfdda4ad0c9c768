"""Transforms of `fft` that the CPU computed in a recording."""

from __future__ import annotations

from typing import Any

from .. import fft
from ..display import shown
from ..errors import ArgumentError
from ..pointers import DevicePtr

__all__ = ["arguments_of", "transform"]


def arguments_of(event: dict[str, Any]) -> tuple[str, list[Any]]:
    """Return a transform's function and its arguments after the first one; raise ArgumentError for an unknown name."""
    name = event["function"]
    if name not in fft.__all__:
        raise ArgumentError(f"replay: fft has no function {shown(name)}")
    lengths, axes = event["lengths"], event["axes"]
    if not name.endswith(("n", "2")):
        (lengths,), (axes,) = lengths, axes
    return name, [lengths, axes, event["norm"]]


def transform(event: dict[str, Any], x: DevicePtr[Any], y: DevicePtr[Any]) -> None:
    """Write the transform of x to y."""
    name, arguments = arguments_of(event)
    y.copy_from(getattr(fft, name)(x, *arguments))
