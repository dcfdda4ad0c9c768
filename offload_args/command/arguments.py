"""Arguments that several commands share."""

from __future__ import annotations

import argparse

from .. import Device
from ..errors import OffloadError

__all__ = ["count", "device"]


def count(text: str) -> int:
    """Read a number above 0, for argparse."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"needs a whole number above 0, got {text!r}")
    return int(text)


def device(text: str) -> Device:
    """Return the device with this name, for argparse."""
    try:
        return Device(text)
    except OffloadError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
