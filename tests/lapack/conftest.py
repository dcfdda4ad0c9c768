"""Devices that have a LAPACK, and matrices for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers.devices import here, library_or_skip, open_or_skip

DTYPES = ("float32", "float64", "complex64", "complex128")


LIBRARIES = {"cuda": "cusolver", "hip": "rocsolver"}


@pytest.fixture(params=here("host", "sim:0", "cuda:0", "hip:0"))
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device of this machine that has a LAPACK."""
    device = open_or_skip(request.param)
    library = LIBRARIES.get(device.partition(":")[0])
    if library:
        library_or_skip(library, device)
    return device


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Matrices:
    """Random arrays of one dtype, and the required exactness of results."""

    def __init__(self, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self.is_complex = self.dtype.kind == "c"
        self.letter = {"f": "s", "d": "d", "F": "c", "D": "z"}[self.dtype.char]
        self.real: Any = np.finfo(self.dtype).dtype
        self.tolerance = 4000 * float(np.finfo(self.dtype).eps)
        self._random = np.random.default_rng(7)

    def general(self, *shape: int) -> NDArray[Any]:
        values: NDArray[Any] = self._random.standard_normal(shape)
        if self.is_complex:
            values = values + 1j * self._random.standard_normal(shape)
        return values.astype(self.dtype)

    def definite(self, n: int) -> NDArray[Any]:
        values = self.general(n, n)
        built: NDArray[Any] = (values @ values.conj().T + n * np.eye(n)).astype(self.dtype)
        return built

    def near(self, a: Any, b: Any) -> bool:
        """Return whether arrays agree, relative to the largest number of either."""
        a, b = np.asarray(a), np.asarray(b)
        largest = max([1.0, *np.abs(a).ravel(), *np.abs(b).ravel()])
        return a.shape == b.shape and bool(np.all(np.abs(a - b) <= self.tolerance * largest))


@pytest.fixture
def matrices(dtype: str) -> Matrices:
    return Matrices(dtype)
