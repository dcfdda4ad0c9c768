"""Functions of kernels that are written in Python; all devices run the same code, and compute the same bits."""

from __future__ import annotations

import numpy as np

__all__ = ["ceil", "floor", "fmax", "fmin", "maximum", "minimum", "square", "trunc"]


def floor(x):
    return int(np.floor(x))


def ceil(x):
    return int(np.ceil(x))


def trunc(x):
    return int(np.trunc(x))


def minimum(a, b):
    return a if a < b or a != a else b


def maximum(a, b):
    return a if a > b or a != a else b


def fmin(a, b):
    return a if a < b or b != b else b


def fmax(a, b):
    return a if a > b or b != b else b


def square(x):
    return x * x
