"""laswp of each LAPACK exchanges the rows that pivots name, and checks the pivots' places."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

from helpers.devices import here, library_or_skip, open_or_skip
from offload_args import In, offload_args
from offload_args.errors import ArgumentError, ExtentError

LIBRARIES = {"host": "lapacke", "sim:0": "lapacke", "cuda:0": "cusolver", "hip:0": "rocsolver"}


@pytest.mark.parametrize("on", here(*LIBRARIES))
@pytest.mark.parametrize(("letter", "dtype"), [("s", np.float32), ("d", np.float64), ("c", "c8"), ("z", "c16")])
def test_laswp_exchanges_the_rows_that_pivots_say(on: str, letter: str, dtype: Any) -> None:
    device, name = open_or_skip(on), LIBRARIES[on]
    library_or_skip(name, device)
    library = importlib.import_module(f"offload_args.{name}")
    laswp, first = getattr(library, f"{letter}laswp"), (library.COL_MAJOR,) if name == "lapacke" else ()
    A = np.asfortranarray(np.arange(24).reshape(6, 4), dtype)
    pivots = np.array([3, 6, 3], np.int32)
    original, expected = A.copy("F"), A.copy("F")
    for at, other in enumerate(pivots):
        expected[[at, other - 1]] = expected[[other - 1, at]]
    with offload_args(A, In(pivots), device=device) as (dA, dp):
        with pytest.raises(ExtentError, match=r"[aA] needs 28 elements .*has 24$"):
            laswp(*first, 4, dA, 7, 1, 3, dp, 1)
        with pytest.raises(ArgumentError, match="needs k2 <= lda, got lda = 6 and k2 = 7"):
            laswp(*first, 4, dA, 6, 1, 7, dp, 1)
        with pytest.raises(ArgumentError, match="needs k1 >= 1, got k1 = 0"):
            laswp(*first, 4, dA, 6, 0, 3, dp, 1)
        laswp(*first, 4, dA, 6, 1, 3, dp, 1)
    np.testing.assert_array_equal(A, expected)
    part = original.copy("F")
    with offload_args(part, In(pivots), device=device) as (dA, dp):
        laswp(*first, 2, dA[:, 1:3], 6, 2, 2, dp, 1)  # row 1 with row 5, of two columns
    original[np.ix_([1, 5], [1, 2])] = original[np.ix_([5, 1], [1, 2])]
    np.testing.assert_array_equal(part, original)


def test_lapacke_exchanges_rows_of_matrices_by_columns_only() -> None:
    from offload_args import lapacke

    with offload_args(np.eye(3), In(np.ones(3, np.int32)), device="host") as (dA, dp):
        with pytest.raises(ArgumentError, match=r"^lapacke\.dlaswp: matrix_layout .*COL_MAJOR"):
            lapacke.dlaswp(lapacke.ROW_MAJOR, 3, dA, 3, 1, 3, dp, 1)
