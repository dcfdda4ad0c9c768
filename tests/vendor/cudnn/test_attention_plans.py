"""Attention as a plan of cuDNN, compared with NumPy.

The tests also run with a double of the graph API (scripts/doubles).
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from helpers.attention import softmax
from offload_args import Device, In, InOut, Out, cudnn, offload_args
from offload_args.errors import ArgumentError, ArgumentTypeError, LibraryError

LIBRARY = "cudnn"

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def seen(q: Any, k: Any, v: Any, causal: Any = False, lengths: Any = None, scale: float | None = None) -> Any:
    """Return attention, computed with NumPy in float64. Arrays have the axes batch, head, position and dimension."""
    q, k, v = (np.asarray(array, np.float64) for array in (q, k, v))
    k, v = (array.repeat(q.shape[1] // k.shape[1], axis=1) for array in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    rows, columns = np.ogrid[: q.shape[2], : k.shape[2]]
    for batch, page in enumerate(scores):
        queries, keys = (q.shape[2], k.shape[2]) if lengths is None else (lengths[0][batch], lengths[1][batch])
        page[..., keys:] = -np.inf
        if causal:
            page[..., columns > rows + (keys - queries if causal == "bottom-right" else 0)] = -np.inf
    with np.errstate(invalid="ignore"):  # rows after the lengths have meaningless results
        return softmax(scores) @ v


def attend(gpu: str, q: Any, k: Any, v: Any, layout: str = "BHSD", lengths: Any = None, **how: Any) -> Any:
    """Return attention, computed with a plan. Arrays have the axes batch, head, position and dimension."""
    order = ["BHSD".index(letter) for letter in layout]
    arguments = [np.ascontiguousarray(array.transpose(order)) for array in (q, k, v)]
    y = np.zeros((*arguments[0].shape[:3], v.shape[3]), q.dtype)
    with offload_args(*map(In, (*arguments, *(lengths or ()))), Out(y), device=gpu) as pointers:
        graph = cudnn.Graph(gpu)
        operands = [graph.input(pointer, layout) for pointer in pointers[:3]]
        counts = tuple(graph.input(pointer, "B") for pointer in pointers[3:5]) if lengths else None
        graph.output(graph.attention(*operands, lengths=counts, **how), pointers[-1], layout).plan()(*pointers)
    return y.transpose(np.argsort(order))


def operands(
    dtype: Any = np.float16, heads: int = 3, shared: int = 3, queries: int = 128, keys: int = 192, of_v: int = 64
) -> Any:
    shapes = (2, heads, queries, 64), (2, shared, keys, 64), (2, shared, keys, of_v)
    return [drawn(*shape).astype(dtype) for shape in shapes]


def close_where_counted(actual: Any, expected: Any, counts: Any = None) -> None:
    """Compare the results of the valid queries."""
    for batch, page in enumerate(actual):
        count = page.shape[1] if counts is None else counts[batch]
        limit = 5e-3 if actual.dtype == np.float16 else 3e-2
        np.testing.assert_allclose(np.float64(page[:, :count]), expected[batch, :, :count], atol=limit)


@pytest.mark.parametrize("causal", [False, True, "bottom-right"])
@pytest.mark.parametrize(
    "case",
    [
        {},
        {"dtype": BFLOAT16},
        {"heads": 6, "shared": 2},
        {"queries": 77, "keys": 100},
        {"queries": 1, "keys": 129},
        {"of_v": 32},
    ],
    ids=str,
)
def test_attention_is_as_in_numpy(gpu: str, causal: Any, case: Any) -> None:
    arguments = operands(**case)
    close_where_counted(attend(gpu, *arguments, causal=causal), seen(*arguments, causal))


def test_a_causal_mask_begins_in_the_top_left_corner(gpu: str) -> None:
    q, k, v = operands(queries=192, keys=100)
    results = attend(gpu, q, k, v, causal=True)
    np.testing.assert_allclose(results[:, :, 0], v[:, :, 0], atol=1e-3)  # the first query sees only the first key
    close_where_counted(results, seen(q, k, v, causal=True))


@pytest.mark.parametrize("causal", [False, True, "bottom-right"])
@pytest.mark.parametrize("keys", [128, 192])
def test_attention_sees_no_keys_behind_the_lengths(gpu: str, causal: Any, keys: int) -> None:
    arguments = operands(keys=keys)
    lengths = np.array([100, 50], np.int32), np.array([keys - 28, 60], np.int32)
    close_where_counted(
        attend(gpu, *arguments, causal=causal, lengths=lengths), seen(*arguments, causal, lengths), lengths[0]
    )


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_positions_before_heads_with_a_scale(gpu: str, causal: bool) -> None:
    arguments = operands(heads=4, shared=2)
    close_where_counted(
        attend(gpu, *arguments, layout="BSHD", causal=causal, scale=0.25), seen(*arguments, causal, scale=0.25)
    )


def test_attention_of_one_array_to_itself(gpu: str) -> None:
    x, counts = drawn(2, 3, 128, 64).astype(np.float16), np.array([128, 60], np.int32)
    y = np.zeros_like(x)
    with offload_args(In(x), In(counts), Out(y), device=gpu) as (dx, dc, dy):
        graph = cudnn.Graph(gpu)
        lengths = graph.input(dc, "B")
        arguments = (graph.input(dx, "BHSD") for _ in range(3))
        result = graph.attention(*arguments, causal=True, lengths=(lengths, lengths))
        graph.output(result, dy, "BHSD").plan()(dc, dx, dx, dx, dy)
    close_where_counted(y, seen(x, x, x, True, (counts, counts)), counts)


def test_a_matrix_product_of_float32_is_refused_where_engines_use_tf32(gpu: str) -> None:
    a, b, y = drawn(1, 5, 7), drawn(1, 7, 3), np.zeros((1, 5, 3), np.float32)
    with offload_args(In(a), In(b), y, device=gpu) as (pa, pb, py):
        graph = cudnn.Graph(gpu)
        graph.output(graph.matmul(graph.input(pa, "BMK"), graph.input(pb, "BKN")), py, "BMN")
        if Device(gpu).compute_capability < (8, 0):
            return
        with pytest.raises(LibraryError, match=r"TF32 on .*, and plan\(tf32=True\) takes them; blas\.gemm is exact"):
            graph.plan()


def test_an_array_that_is_not_aligned_is_refused_before_the_plan_runs(gpu: str) -> None:
    x, y = drawn(1, 1, 65, 64).astype(np.float16), np.zeros((1, 1, 64, 64), np.float16)
    with offload_args(In(x), Out(y), device=gpu) as (dx, dy):
        graph = cudnn.Graph(gpu)
        operands = [graph.input(dx[:, :, :64], "BHSD") for _ in range(3)]
        plan = graph.output(graph.attention(*operands), dy, "BHSD").plan()
        arguments = dx[:, :, :64], dx[:, :, 1:], dx[:, :, 1:]
        plan(*arguments, dy)
        with pytest.raises(ArgumentError, match="cudnn.Plan: argument 2 starts at 2 bytes after a multiple of 16"):
            plan(arguments[0], dx.offset(1), arguments[2], dy)
    close_where_counted(y, seen(x[:, :, :64], x[:, :, 1:], x[:, :, 1:]))


def test_attention_takes_inputs_that_fit_each_other() -> None:
    def refused(words: str, q: Any, k: Any, v: Any, **how: Any) -> None:
        graph = cudnn.Graph()
        with pytest.raises(ArgumentError, match=words):
            graph.attention(*(graph.input(value, "BHSD") for value in (q, k, v)), **how)

    x = np.zeros((1, 2, 8, 16), np.float16)
    refused(r"shapes \(1, 2, 8, 16\), \(1, 2, 8, 8\) and .* do not fit", x, x[..., :8], x)
    refused(r"shapes .* do not fit", x, x, x[:, :, :4])
    refused(r"shapes .* do not fit", x, *[np.zeros((1, 4, 8, 16), np.float16)] * 2)
    refused(r"shapes .* do not fit", x, x[:, :0], x[:, :0])
    refused("k has float32", x, x.astype(np.float32), x)
    refused("layout 'BHSD' has not the 3 axes", x[0], x, x)
    refused("needs float32 or .* got bool", x.astype(bool), x, x)
    refused(
        "a multiple of 8, got 16 of q and k, and 12 of v; fill them up with zeros .* scale=16\\*\\*-0.5",
        x,
        x,
        x[..., :12],
    )
    refused("q needs the dimensions of a head side by side", np.zeros((1, 2, 8, 32), np.float16)[..., ::2], x, x)
    refused("k needs .* strides that are multiples of 8", x, np.zeros((1, 2, 8, 17), np.float16)[..., :16], x)
    refused("v needs .* strides that are multiples of 8", x, x, np.broadcast_to(x[:, :1], x.shape))
    refused('causal needs to be False, True or "bottom-right", got .*top', x, x, x, causal="top")
    refused("causal needs to be .* got 1", x, x, x, causal=1)
    refused("the first of 8 queries would see none of 5 keys", x, x[:, :, :5], x[:, :, :5], causal="bottom-right")
    refused("scale needs to be a finite number above 0, got -1", x, x, x, scale=-1)
    refused("scale needs to be a finite number above 0, got '2'", x, x, x, scale="2")
    refused("scale needs to be a finite number above 0, got nan", x, x, x, scale=np.nan)
    graph = cudnn.Graph()
    q, k = graph.input(x, "BHSD"), graph.input(x, "BHSD")
    with pytest.raises(ArgumentError, match="v needs to be an input"):
        graph.attention(q, k, graph.relu(q))
    with pytest.raises(ArgumentError, match="needs an input for each of q, k and v; call input again"):
        graph.attention(q, k, k)


def test_attention_of_heads_that_lie_in_wider_rows(gpu: str) -> None:
    x, y = drawn(2, 3, 128, 72).astype(np.float16), np.zeros((2, 3, 128, 72), np.float16)
    with offload_args(In(x), InOut(y), device=gpu) as (dx, dy):
        graph = cudnn.Graph(gpu)
        result = graph.attention(*(graph.input(dx[..., :64], "BHSD") for _ in range(3)), causal=True)
        graph.output(result, dy[..., 8:], "BHSD").plan()(*[dx[..., :64]] * 3, dy[..., 8:])
        with pytest.raises(ArgumentError, match="the result of attention needs the dimensions of a head side by side"):
            graph.output(result, np.zeros((2, 3, 128, 65), np.float16)[..., 1:], "BHSD")
    expected = seen(x[..., :64], x[..., :64], x[..., :64], causal=True)
    close_where_counted(y[..., 8:], expected)
    assert not y[..., :8].any()


def test_attention_of_parts_of_one_array(gpu: str) -> None:
    x = drawn(2, 128, 3, 3, 64).astype(np.float16)  # axes: batch, position, q/k/v, head, dimension
    y = np.zeros((2, 128, 3, 64), np.float16)
    with offload_args(In(x), Out(y), device=gpu) as (dx, dy):
        parts = [dx[:, :, value] for value in range(3)]
        graph = cudnn.Graph(gpu)
        result = graph.attention(*(graph.input(part, "BSHD") for part in parts), causal=True)
        graph.output(result, dy, "BSHD").plan()(*parts, dy)
    q, k, v = (x[:, :, value].swapaxes(1, 2) for value in range(3))
    close_where_counted(y.swapaxes(1, 2), seen(q, k, v, causal=True))


def test_lengths_that_do_not_fit_are_refused_by_name() -> None:
    x, good = np.zeros((2, 3, 8, 16), np.float16), np.zeros(2, np.int32)
    graph = cudnn.Graph()
    (q, k, v), lengths = (graph.input(x, "BHSD") for _ in range(3)), graph.input(good, "B")
    for arguments, error, words in (
        (lengths, ArgumentTypeError, "lengths needs to be a pair, of q and of k and v, got"),
        ((lengths, good), ArgumentTypeError, r"lengths\[1\] needs to be a tensor of the graph, got"),
        (
            (lengths, graph.input(good.astype(np.int64), "B")),
            ArgumentError,
            r"lengths\[1\] needs .* got int64 of \(2,\)",
        ),
        (
            (graph.input(np.zeros(3, np.int32), "B"), lengths),
            ArgumentError,
            r"lengths\[0\] needs .* got int32 of \(3,\)",
        ),
        ((lengths, graph.input(good[:, None], "BM")), ArgumentError, r"lengths\[1\] needs .* got int32 of \(2, 1\)"),
    ):
        with pytest.raises(error, match=f"cudnn.Graph.attention: {words}"):
            graph.attention(q, k, v, lengths=arguments)


def test_a_graph_of_calls_owns_the_workspaces_of_its_plans(gpu: str) -> None:
    q, k, v = operands()
    y, other, expected = np.zeros_like(q), np.zeros_like(q), seen(q, k, v)
    region = offload_args(q, In(k), In(v), Out(y), Out(other), device=gpu)
    with region as (dq, dk, dv, dy, dother):
        graph = cudnn.Graph(gpu)
        inputs = [graph.input(pointer, "BHSD") for pointer in (dq, dk, dv)]
        graph.output(graph.attention(*inputs), dy, "BHSD")
        plan = graph.plan()
        with region.capture(q=dq) as first:
            plan(dq, dk, dv, dy)
        with region.capture() as second:
            plan(dq, dk, dv, dother)
        Device(gpu).trim()
        first.replay()
        close_where_counted(dy.to_host(), expected)
        second.replay()
        close_where_counted(dother.to_host(), expected)
        first.replay(q=-q)
        close_where_counted(dy.to_host(), seen(-q, k, v))
        del first
        second.replay()
        close_where_counted(dother.to_host(), seen(-q, k, v))
