"""Groups of matrices: sequences with one value for each group, together with lists of pointers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from offload_args import Device, cublas, offload_args, testing
from offload_args.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    ExtentError,
    HostPointerError,
    SizeOverflowError,
)

N, T = cublas.OP_N, cublas.OP_T


def arguments(A: list[Any], B: list[Any], C: list[Any]) -> dict[str, Any]:
    """Two groups: two products of 2 x 3 by 3 x 4, and one of 3 x 2, transposed, by 3 x 5."""
    return {
        "transa_array": [N, T],
        "transb_array": [N, N],
        "m_array": [2, 2],
        "n_array": (4, 5),
        "k_array": np.array([3, 3]),
        "alpha_array": [1.0, -2],
        "A": A,
        "lda_array": [2, 3],
        "B": B,
        "ldb_array": [3, 3],
        "beta_array": [0.0, 1.0],
        "C": C,
        "ldc_array": [2, 2],
        "group_count": 2,
        "group_size": [2, 1],
    }


def arrays() -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(3)
    shapes = [(2, 3), (2, 3), (3, 2), (3, 4), (3, 4), (3, 5), (2, 4), (2, 4), (2, 5)]
    return [np.asfortranarray(random.uniform(-1, 1, shape)) for shape in shapes]


def test_each_group_has_its_sizes_and_scalars(cuda: str) -> None:
    built = arrays()
    A, B, C = built[:3], built[3:6], [array.copy() for array in built[6:]]
    with testing.counting(Device(cuda)) as moved, offload_args(*built, device=cuda) as p:
        cublas.dgemm_grouped_batched(**arguments(p[:3], p[3:6], p[6:]))
    for i in range(2):
        np.testing.assert_allclose(built[6 + i], A[i] @ B[i], rtol=1e-14)
    np.testing.assert_allclose(built[8], -2 * A[2].T @ B[2] + C[2], rtol=1e-14)
    read = [*A, *B, C[2]]  # the first group has beta 0, so its C is not read
    assert moved.bytes_up == sum(array.nbytes for array in read) + 9 * 8


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"m_array": [2]}, ArgumentError, r"m_array needs 2 values \(group_count=2\), got 1; pass one for each group"),
        ({"alpha_array": [1.0] * 3}, ArgumentError, r"alpha_array needs 2 values \(group_count=2\), got 3"),
        ({"group_count": -1}, ArgumentError, r"group_count needs to be at least 0, got -1"),
        ({"k_array": [3, -1]}, ArgumentError, r"k_array\[1\] needs to be at least 0, got -1"),
        ({"group_size": [2, -1]}, ArgumentError, r"group_size\[1\] needs to be at least 0, got -1"),
        ({"group_size": [2, 2]}, ArgumentError, r"A needs 4 arrays \(the sum of group_size\), got 3"),
        ({"transa_array": [N, 7]}, ArgumentError, r"transa_array\[1\] .*OP_N \(0\)"),
        ({"m_array": 2}, ArgumentTypeError, r"m_array needs a sequence of values, one a group, got the int 2"),
        ({"m_array": "22"}, ArgumentTypeError, r"m_array needs a sequence of values, one a group"),
        ({"m_array": [2, 2.5]}, ArgumentTypeError, r"m_array\[1\] needs an integer, got the float 2.5"),
        ({"m_array": [2, 2**80]}, SizeOverflowError, r"m_array\[1\] needs an integer of at most 63 bits"),
        ({"alpha_array": [1.0, 1j]}, ArgumentTypeError, r"alpha_array\[1\] needs a real number, got the complex 1j"),
        ({"lda_array": [2, 2]}, ExtentError, r"lda_array needs at least 3 \(the rows of A\[2\] as stored\), got 2"),
        ({"n_array": [4, 6]}, ExtentError, r"B\[2\] needs 18 elements .*has 15"),
    ],
)
def test_what_is_wrong_is_named_with_its_group_before_anything_moves(
    cuda: str, changed: dict[str, Any], error: type[Exception], text: str
) -> None:
    built = arrays()
    with testing.counting(Device(cuda)) as moved, offload_args(*built, device=cuda) as p:
        with pytest.raises(error, match=r"cublas\.dgemm_grouped_batched: " + text):
            cublas.dgemm_grouped_batched(**arguments(p[:3], p[3:6], p[6:]) | changed)
    assert (moved.bytes_up, moved.calls) == (0, 0)


def test_pointers_of_groups_are_a_list_and_sequences_are_on_the_host(cuda: str) -> None:
    built, whole = arrays(), np.zeros((3, 4, 4))
    with offload_args(*built, whole, device=cuda) as (*p, dwhole):
        passed = arguments(p[:3], p[3:6], p[6:])
        with pytest.raises(ArgumentError, match=r"C needs a list of pointers, one an array, because its groups differ"):
            cublas.dgemm_grouped_batched(**passed | {"C": dwhole})
        with pytest.raises(HostPointerError, match=r"m_array needs a sequence of values on the host"):
            cublas.dgemm_grouped_batched(**passed | {"m_array": dwhole})
        with pytest.raises(AliasError, match=r"C\[1\] is written and overlaps C\[0\]"):
            cublas.dgemm_grouped_batched(**passed | {"C": [p[6], p[6], p[8]]})
