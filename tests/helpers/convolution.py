"""Arrays in the layouts of images, their convolutions by direct sums in float64, and comparisons with these sums."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), BFLOAT16]
TOLERANCE = {"float32": 2e-3, "float16": 1e-2, "bfloat16": 6e-2}  # also for tensor cores


def close(actual: Any, expected: Any, dtype: Any) -> None:
    """Compare with values in float64, relative to the largest value."""
    expected = np.asarray(expected)
    scale = max(float(np.abs(expected).max()), 1.0)
    np.testing.assert_allclose(
        np.asarray(actual, np.float64) / scale, expected / scale, atol=TOLERANCE[np.dtype(dtype).name], rtol=0
    )


def drawn(shape: tuple[int, ...], dtype: Any, seed: int = 1) -> Any:
    """Return small random numbers that are exact in the dtype."""
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 8).astype(dtype)


def in_layout(array: Any, layout: str) -> Any:
    """Return an array of shape N, C, H, W in another order of axes, or with gaps ("gaps")."""
    if layout == "gaps":
        n, c, h, w = array.shape
        wide = np.zeros((n, c, h, w + 3), array.dtype)
        wide[..., :w] = array
        return wide[..., :w]
    return np.ascontiguousarray(array.transpose([("NCHW").index(letter) for letter in layout]))


def windows(x: Any, size: tuple[int, int], pad: int, step: int, gap: int) -> Any:
    """Return the windows of images as an array of shape N, C, rows, columns, height, width."""
    x = np.pad(np.asarray(x, np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    reach = tuple(gap * (length - 1) + 1 for length in size)
    results = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))
    return results[:, :, ::step, ::step, ::gap, ::gap]


def convolved(x: Any, w: Any, pad: int, step: int, gap: int, groups: int) -> Any:
    inputs, outputs = x.shape[1] // groups, w.shape[0] // groups
    parts = []
    for g in range(groups):
        seen = windows(x[:, g * inputs : (g + 1) * inputs], w.shape[2:], pad, step, gap)
        parts.append(np.einsum("nchwij,kcij->nkhw", seen, np.asarray(w[g * outputs : (g + 1) * outputs], np.float64)))
    return np.concatenate(parts, axis=1)
