"""Sparse matrices for tests, and the devices that have a library for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from helpers.devices import library_or_skip, open_or_skip

FORMATS = ("csr", "csc", "coo", "bsr")


DTYPES = ("float32", "float64", "complex64", "complex128")


TRANS = ("N", "T", "C")


SHAPE = (6, 8)


LIBRARIES = {"cuda": "cusparse", "hip": "hipsparse"}


def with_library(device: str) -> str:
    """Open a device, and load its library of sparse matrices."""
    name = open_or_skip(device)
    library = LIBRARIES.get(name.partition(":")[0])
    if library:
        library_or_skip(library, name)
    return name


def is_gpu(on: str) -> bool:
    return on.startswith(("cuda", "hip"))


def lacks(on: str, form: str, trans: str = "N", solves: bool = False) -> bool:
    """Return whether the library of a GPU lacks a function for this case."""
    return is_gpu(on) and form == "bsr" and (solves or trans != "N" or on.startswith("hip"))


def dense(dtype: str, shape: tuple[int, int] = SHAPE) -> NDArray[Any]:
    random = np.random.default_rng(37)
    numbers: NDArray[Any] = random.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        numbers = numbers + 1j * random.standard_normal(shape)
    return np.where(random.random(shape) < 0.4, numbers, 0).astype(dtype)


def matrix(elements: NDArray[Any], form: str = "csr", index: str = "int32") -> Any:
    """Return a sparse matrix of these elements with this format and dtype of indices."""
    A = scipy.sparse.coo_array(elements)
    if form == "bsr":
        A = A.tobsr(blocksize=(2 - elements.shape[0] % 2, 2))
        A.sum_duplicates()  # SciPy does not sort coo indices
    A = A.asformat(form)
    if form == "coo":
        set_coordinates(A, A.row.astype(index), A.col.astype(index))
    else:
        A.indices, A.indptr = A.indices.astype(index), A.indptr.astype(index)
    return A


def set_coordinates(A: Any, row: NDArray[Any], col: NDArray[Any]) -> None:
    """Set the indices of a coo matrix without conversion; SciPy's attributes row and col would convert the indices."""
    if hasattr(A, "coords"):
        A.coords = (row, col)
    else:  # SciPy 1.12
        A.row, A.col = row, col


def system(dtype: str) -> NDArray[Any]:
    """Return the elements of a well-conditioned square matrix, whose triangles are well-conditioned, too."""
    return dense(dtype, (8, 8)) + 8 * np.eye(8, dtype=dtype)


def op(elements: NDArray[Any], trans: str) -> NDArray[Any]:
    return elements if trans == "N" else elements.T if trans == "T" else elements.conj().T


def agree(result: Any, expected: NDArray[Any], dtype: str) -> None:
    assert isinstance(result, np.ndarray) and result.dtype == dtype and result.shape == expected.shape
    bound = 2e-5 if np.dtype(dtype).char in "fF" else 1e-13
    assert np.abs(result - expected).max(initial=0.0) <= bound * np.abs(expected).max(initial=1.0)
