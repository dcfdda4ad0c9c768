"""Arrays of pointers for cuBLAS's batched functions: lists of DevicePtrs, or one DevicePtr with an additional axis."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from offload_args import Device, In, Out, Scratch, cublas, offload_args, testing, trace
from offload_args.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    DirectionError,
    DTypeError,
    ExtentError,
    HostPointerError,
    StalePointerError,
)

Array = NDArray[np.float32]
N = cublas.OP_N
COUNT, M, INNER, COLUMNS = 5, 4, 3, 2
ADDRESSES = 3 * 8  # bytes of addresses for each A, B and C


def batch(count: int = COUNT, seed: int = 1) -> tuple[list[Array], list[Array], list[Array]]:
    random = np.random.default_rng(seed)

    def matrices(m: int, n: int) -> list[Array]:
        return [np.asfortranarray(random.uniform(-1, 1, (m, n)).astype(np.float32)) for _ in range(count)]

    return matrices(M, INNER), matrices(INNER, COLUMNS), matrices(M, COLUMNS)


def multiply(A: Any, B: Any, C: Any, count: int = COUNT, alpha: Any = 1.0, beta: Any = 0.0) -> None:
    cublas.sgemm_batched(N, N, M, COLUMNS, INNER, alpha, A, M, B, INNER, beta, C, M, count)


def check(A: list[Array], B: list[Array], C: list[Array]) -> None:
    for a, b, c in zip(A, B, C, strict=True):
        np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("count", [1, 5, 6, 1000])
def test_each_matrix_of_a_list_moves_once_and_results_only_come_down(cuda: str, count: int) -> None:
    A, B, C = batch(count)
    with testing.counting(Device(cuda)) as moved, offload_args(*A, *B, *C, device=cuda) as p:
        multiply(p[:count], list(p[count : 2 * count]), p[2 * count :], count)
    check(A, B, C)
    assert moved.bytes_up == sum(array.nbytes for array in [*A, *B]) + count * ADDRESSES
    assert moved.bytes_down == sum(array.nbytes for array in C)


def test_a_chain_of_batches_makes_no_round_trip(cuda: str) -> None:
    A, B, C = batch()
    C_before = [array.copy() for array in C]
    with offload_args(*A, *B, *C, device=cuda) as p:
        A_, B_, C_ = p[:COUNT], p[COUNT : 2 * COUNT], p[2 * COUNT :]
        multiply(A_, B_, C_, beta=1.0)
        with testing.counting(Device(cuda)) as moved, trace() as recording:
            for _ in range(3):
                multiply(A_, B_, C_, beta=1.0)
        assert (moved.bytes_up, moved.bytes_down) == (3 * COUNT * ADDRESSES, 0)
        assert "wait" not in [event.kind for event in recording.events]
        assert recording.summary.bytes_up == moved.bytes_up
    for a, b, before, c in zip(A, B, C_before, C, strict=True):
        np.testing.assert_allclose(c, 4.0 * (a.astype(np.float64) @ b) + before, rtol=1e-5, atol=1e-5)


def test_one_pointer_with_an_axis_more_stands_for_its_matrices(cuda: str) -> None:
    random = np.random.default_rng(2)
    A = random.uniform(-1, 1, (COUNT, INNER, M)).astype(np.float32)  # matrices by columns; the last axis is one column
    B = random.uniform(-1, 1, (COUNT, COLUMNS, INNER)).astype(np.float32)
    C = np.full((2 * COUNT, COLUMNS, M), 7, np.float32)
    with offload_args(A, B, C, device=cuda) as (dA, dB, dC):
        multiply(dA, dB, dC[:COUNT])
        multiply(dA[::2], dB[::2], dC[COUNT::2], 3)
        multiply(dA[0:1], dB[0:1], dC[COUNT + 1 : COUNT + 2], 1)
    np.testing.assert_allclose(C[:COUNT], B @ A, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(C[COUNT::2], (B @ A)[::2], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(C[COUNT + 1], B[0] @ A[0], rtol=1e-5, atol=1e-6)
    assert (C[COUNT + 3] == 7).all()


def test_one_matrix_may_be_read_many_times(cuda: str) -> None:
    A, B, C = batch()
    with offload_args(A[0], *B, *C, device=cuda) as (dA, *rest):
        multiply([dA] * COUNT, rest[:COUNT], rest[COUNT:])
    check([A[0]] * COUNT, B, C)


def test_tiles_of_one_matrix_are_written_side_by_side(cuda: str) -> None:
    A, B, _ = batch(6)
    whole = np.full((3 * M, 2 * COLUMNS), 7, np.float32, order="F")
    with offload_args(*A, *B, whole, device=cuda) as (*p, dC):
        tiles = [dC[i * M : (i + 1) * M, j * COLUMNS : (j + 1) * COLUMNS] for i in range(3) for j in range(2)]
        cublas.sgemm_batched(N, N, M, COLUMNS, INNER, 1.0, p[:6], M, p[6:], INNER, 1.0, tiles, 3 * M, 6)
        cublas.sgemm_batched(N, N, M, COLUMNS, INNER, 0.0, p[:6], M, p[6:], INNER, 1.0, tiles, 3 * M, 6)
    for i in range(3):
        for j in range(2):
            tile = whole[i * M : (i + 1) * M, j * COLUMNS : (j + 1) * COLUMNS]
            expected = A[2 * i + j].astype(np.float64) @ B[2 * i + j] + 7
            np.testing.assert_allclose(tile, expected, rtol=1e-5, atol=1e-6)


def test_directions_hold_for_every_matrix(cuda: str) -> None:
    A, B, C = batch()
    with offload_args(*map(In, A), *map(In, B), *map(Out, C), device=cuda) as p:
        with pytest.raises(DirectionError, match=r"sgemm_batched: C\[0\] was lent as Out and would be read before"):
            multiply(p[:COUNT], p[COUNT : 2 * COUNT], p[2 * COUNT :], beta=1.0)
        with pytest.raises(DirectionError, match=r"sgemm_batched: C\[2\] needs to be writable"):
            multiply(p[:COUNT], p[COUNT : 2 * COUNT], [*p[-5:-3], p[2], *p[-2:]])
        multiply(p[:COUNT], p[COUNT : 2 * COUNT], p[2 * COUNT :])
    check(A, B, C)


def test_scratch_matrices_hold_what_lies_between_two_batches(cuda: str) -> None:
    A, B, C = batch()
    with offload_args(*A, *B, *C, Scratch((COUNT, COLUMNS, M), np.float32), device=cuda) as (*p, between):
        multiply(p[:COUNT], p[COUNT : 2 * COUNT], between)
        for i in range(COUNT):
            p[2 * COUNT + i].copy_from(between[i].T)
    check(A, B, C)


def test_scalars_on_the_device_serve_a_batch(cuda: str) -> None:
    A, B, C = batch()
    alpha = np.full((), 2, np.float32)
    with offload_args(*A, *B, *C, alpha, device=cuda) as (*p, d_alpha):
        multiply(p[:COUNT], p[COUNT : 2 * COUNT], p[2 * COUNT :], alpha=d_alpha, beta=0.0)
    check(A, [2 * matrix for matrix in B], C)


def test_a_batch_of_nothing_needs_no_region(cuda: str) -> None:
    multiply([], [], [], 0)
    assert Device(cuda).counters.mappings == 0


@pytest.mark.promise("T48")
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda p: {"count": 4}, ArgumentError, r"A needs 4 arrays \(batchCount=4\), got 5; pass as many pointers"),
        (lambda p: {"count": -1}, ArgumentError, r"batchCount needs to be at least 0, got -1"),
        (lambda p: {"B": p["B"][:4]}, ArgumentError, r"B needs 5 arrays \(batchCount=5\), got 4"),
        (lambda p: {"A": p["whole"]}, ArgumentError, r"A needs 5 arrays .*got 6; pass a pointer whose first axis"),
        (
            lambda p: {"A": [*p["A"][:3], None, p["A"][4]]},
            HostPointerError,
            r"A\[3\] needs a DevicePtr\[float32\], got N",
        ),
        (lambda p: {"A": [*p["A"][:4], p["host"]]}, HostPointerError, r"A\[4\] needs .*a NumPy array.*lend the whole"),
        (lambda p: {"A": p["A"][0]}, ArgumentError, r"A needs 5 arrays \(batchCount=5\), got 4; pass a pointer whose"),
        (
            lambda p: {"A": p["A"][0][:, 0]},
            ArgumentTypeError,
            r"A needs a list .*got a DevicePtr\[.*it has 1 dimension",
        ),
        (lambda p: {"A": 12}, ArgumentTypeError, r"A needs a list of DevicePtr\[float32\], or one whose first axis"),
        (lambda p: {"A": p["whole"][4::-1]}, ArgumentTypeError, r"A needs .*its first axis goes backwards"),
        (lambda p: {"A": p["host"]}, HostPointerError, r"A needs a list of DevicePtr\[float32\].*lend it first"),
        (
            lambda p: {"A": [p["wide"]] * 5},
            DTypeError,
            r"A\[0\] needs a DevicePtr\[float32\], got a DevicePtr\[float64\]",
        ),
        (lambda p: {"A": p["wide"]}, DTypeError, r"A needs a DevicePtr\[float32\], got a DevicePtr\[float64\]"),
        (
            lambda p: {"C": [*p["C"][:4], p["C"][4][:, :1]]},
            ExtentError,
            r"C\[4\] needs 8 elements \(m=4, n=2, ldc=4\), has 4",
        ),
        (
            lambda p: {"A": p["whole"][:5, :2]},
            ExtentError,
            r"A needs 60 elements \(m=4, k=3, lda=4, stride=12, batchCount=5\), has 56",
        ),
        (lambda p: {"C": [*p["C"][:4], p["C"][0]]}, AliasError, r"C\[4\] is written and overlaps C\[0\]"),
        (lambda p: {"C": [p["A"][3], *p["C"][1:]]}, AliasError, r"C\[0\] is written and overlaps A\[3\]"),
        (lambda p: {"C": [*p["C"][:4], p["dead"]]}, StalePointerError, r"C\[4\] is a pointer whose region has ended"),
    ],
)
def test_what_is_wrong_is_named_with_its_index_before_anything_moves(
    cuda: str, change: Any, error: type[Exception], text: str
) -> None:
    A, B, C = batch()
    whole, wide, host = np.zeros((6, INNER, M), np.float32), np.zeros((5, 4, 3)), np.zeros((4, 3), np.float32)
    with offload_args(host, device=cuda) as (dead,):
        pass
    with testing.counting(Device(cuda)) as moved, offload_args(*A, *B, *C, whole, wide, device=cuda) as p:
        arguments = {"A": p[:COUNT], "B": p[COUNT : 2 * COUNT], "C": p[2 * COUNT : 3 * COUNT]}
        named = {**arguments, "whole": p[-2], "wide": p[-1], "host": host, "dead": dead}
        with pytest.raises(error, match=r"cublas\.sgemm_batched: " + text):
            multiply(**(arguments | change(named)))
    assert (moved.bytes_up, moved.bytes_down, moved.calls) == (0, 0, 0)


def test_threads_share_the_matrices_that_they_read(cuda: str) -> None:
    A, B, _ = batch()
    results = [batch(seed=i)[2] for i in range(4)]
    errors: list[BaseException] = []

    def work(C: list[Array]) -> None:
        try:
            with offload_args(*A, *B, *C, device=cuda) as p:
                for _ in range(20):
                    multiply(p[:COUNT], p[COUNT : 2 * COUNT], p[2 * COUNT :])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(C,)) for C in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for C in results:
        check(A, B, C)
