"""Arguments that several commands share."""

from __future__ import annotations

import argparse

from .. import Device
from ..errors import OffloadError

__all__ = ["device"]


def device(text: str) -> Device:
    """Open the device of a name, for argparse."""
    try:
        return Device(text)
    except OffloadError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
