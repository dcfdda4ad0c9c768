"""`lapack.gelsd` solves least squares of any rank as LAPACK's gelsd does, in any order of its operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from lapack.conftest import Matrices
from numpy.typing import NDArray

from offload_args import In, Out, lapack, offload_args
from offload_args.errors import AliasError, ArgumentError, DirectionError, DTypeError, HostPointerError

RCOND = 1e-3


def of_rank(matrices: Matrices, m: int, n: int, rank: int) -> NDArray[Any]:
    """Make a matrix whose singular values are 1 to 2, or far below RCOND."""
    left, right = (np.linalg.qr(matrices.general(rows, min(m, n)))[0] for rows in (m, n))
    values = np.linspace(1, 2, min(m, n))
    values[rank:] = 1e-6
    return ((left * values) @ right.conj().T).astype(matrices.dtype)


@pytest.mark.parametrize("orders", ["FF", "CC", "FC"])
@pytest.mark.parametrize("shape", [(6, 4, 4), (6, 4, 2), (4, 6, 3), (4, 4, 4), (5, 1, 1)], ids=str)
def test_systems_of_any_rank(device: str, matrices: Matrices, shape: tuple[int, int, int], orders: str) -> None:
    m, n, rank = shape
    A, right = of_rank(matrices, m, n, rank).copy(orders[0]), matrices.general(m, 2)
    B = np.zeros((max(m, n), 2), matrices.dtype, order=orders[1])  # type: ignore[call-overload]
    B[:m] = right
    s = np.zeros(min(m, n), matrices.real)
    before = A.copy()
    with offload_args(In(A), B, Out(s), device=device) as (dA, dB, ds):
        assert lapack.gelsd(dA, dB, ds, rcond=RCOND) == rank
    x, squares, _, values = scipy.linalg.lstsq(A, right, cond=RCOND, lapack_driver="gelsd")
    assert matrices.near(B[:n], x) and matrices.near(s, values) and np.array_equal(A, before)
    if rank == n < m:
        assert matrices.near(np.sum(np.abs(B[n:]) ** 2, axis=0), squares)
    else:
        assert not B[n:].any()


def test_vectors_and_the_rank_by_default(device: str, matrices: Matrices) -> None:
    A, b, s = matrices.general(4, 3), matrices.general(4), np.zeros(3, matrices.real)
    A[:, 2] = 0
    right = b.copy()
    with offload_args(A, b, s, device=device) as (dA, db, ds):
        assert lapack.gelsd(dA, db, ds) == 2
    assert matrices.near(b[:3], np.linalg.lstsq(A, right, rcond=None)[0]) and not b[3:].any()


def test_a_matrix_of_zeros_and_empty_ones(device: str) -> None:
    Z, b, s = np.zeros((3, 2)), np.ones(3), np.ones(2)
    none, c, t, no_right = np.zeros((0, 2)), np.ones(2), np.zeros(0), np.zeros((3, 0))
    with offload_args(Z, b, s, none, c, t, no_right, device=device) as (dZ, db, ds, dnone, dc, dt, dright):
        assert lapack.gelsd(dZ, db, ds) == 0 and lapack.gelsd(dnone, dc, dt) == 0
        assert lapack.gelsd(dZ, dright, ds) == 0
    assert not b.any() and not s.any() and not c.any()


def test_what_it_refuses(device: str) -> None:
    A, b, s = np.eye(3), np.ones(3), np.zeros(3)
    bad = np.full((3, 3), np.nan)
    with offload_args(A, b, s, bad, In(b.copy()), np.zeros(3, np.float32), device=device) as lent:
        dA, db, ds, dbad, dread, dsingle = lent
        for call, error, text in (
            (lambda: lapack.gelsd(dbad, db, ds), np.linalg.LinAlgError, r"^lapack\.gelsd: A\[0, 0\] is nan"),
            (lambda: lapack.gelsd(dA, db[:2], ds), ArgumentError, r"^lapack\.gelsd: B has shape \(2,\), needs \(3,"),
            (lambda: lapack.gelsd(dA, db, ds[:2]), ArgumentError, r"^lapack\.gelsd: s has shape \(2,\)"),
            (lambda: lapack.gelsd(dA, db, dsingle), DTypeError, r"^lapack\.gelsd: s "),
            (lambda: lapack.gelsd(dA, dread, ds), DirectionError, r"^lapack\.gelsd: B needs to be writable"),
            (lambda: lapack.gelsd(dA, dA[0], ds), AliasError, r"^lapack\.gelsd: "),
            (lambda: lapack.gelsd(dA, db, ds, rcond=np.nan), ArgumentError, r"^lapack\.gelsd: rcond needs .* got nan"),
            (lambda: lapack.gelsd(np.eye(3), db, ds), HostPointerError, r"^lapack\.gelsd: A needs a DevicePtr"),
        ):
            with pytest.raises(error, match=text):
                call()
    assert np.array_equal(b, np.ones(3))
