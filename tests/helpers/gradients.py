"""Gradients by differences, for tests of functions that compute gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def differences(loss: Callable[..., float], operands: list[Any]) -> list[Any]:
    """Return the gradient of a function by each of its arrays, of float64; None stays None."""
    differences: list[Any] = []
    for at, array in enumerate(operands):
        if array is None:
            differences.append(None)
            continue
        gradient, step = np.zeros_like(array), 1e-6
        for place in np.ndindex(array.shape):
            ends = []
            for moved in (step, -step):
                changed = array.copy()
                changed[place] += moved
                ends.append(loss(*operands[:at], changed, *operands[at + 1 :]))
            gradient[place] = (ends[0] - ends[1]) / (2 * step)
        differences.append(gradient)
    return differences
