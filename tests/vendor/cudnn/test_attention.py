"""Multi-head attention with cuDNN's legacy functions, and its gradients, compared with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.attention import softmax
from offload_args import In, InOut, Out, Scratch, cudnn, offload_args
from offload_args.errors import ArgumentError, ExtentError

LIBRARY = "cudnn"

HEADS, PROJECTED, SIZE, STEPS, KEYS, BATCH = 2, 8, 16, 5, 7, 3


class MultiHead:
    """The descriptors and host weights of one multi-head attention."""

    def __init__(self, device: str) -> None:
        self.attn = cudnn.create_attn_descriptor()
        cudnn.set_attn_descriptor(
            self.attn, cudnn.ATTN_QUERYMAP_ALL_TO_ONE, HEADS, 0.5, cudnn.DATA_FLOAT, cudnn.DATA_FLOAT,
            cudnn.DEFAULT_MATH, None, None, SIZE, SIZE, SIZE, PROJECTED, PROJECTED, PROJECTED, SIZE, STEPS, KEYS,
            BATCH, 1,
        )  # fmt: skip
        self.of_q, self.of_k = self.sequences(STEPS), self.sequences(KEYS)
        with cudnn.create(device) as handle:
            self.nbytes, self.workspace, self.reserve = cudnn.get_multi_head_attn_buffers(handle, self.attn)
        self.weights = np.random.default_rng(2).standard_normal(self.nbytes // 4).astype(np.float32) / 4
        self.places = {}
        with offload_args(In(self.weights), device=device) as (dw,):
            for kind in "QKVO":
                shape = cudnn.create_tensor_descriptor()
                number = getattr(cudnn, f"MH_ATTN_{kind}_WEIGHTS")
                place = cudnn.get_multi_head_attn_weights(self.attn, number, self.nbytes, dw, shape)
                _, _, dims, strides = cudnn.get_tensor_nd_descriptor(shape, 3)
                self.places[kind] = place // 4, dims, strides

    def sequences(self, count: int) -> Any:
        sequences = cudnn.create_seq_data_descriptor()
        axes = cudnn.SEQDATA_BATCH_DIM, cudnn.SEQDATA_BEAM_DIM, cudnn.SEQDATA_TIME_DIM, cudnn.SEQDATA_VECT_DIM
        dims = (count, BATCH, 1, SIZE)  # in the order time, batch, beam, vector
        cudnn.set_seq_data_descriptor(
            sequences, cudnn.DATA_FLOAT, 4, dims, axes, BATCH, [count] * BATCH, np.zeros(1, np.float32)
        )
        return sequences

    def by_numpy(self, q: Any, k: Any, v: Any, weights: Any) -> Any:
        """Return the attention in float64."""
        of = {}
        for kind, (place, dims, strides) in self.places.items():
            of[kind] = np.lib.stride_tricks.as_strided(weights[place:], dims, [8 * stride for stride in strides])
        y = 0
        for head in range(HEADS):
            a, b, c = (x @ of[kind][head].T for x, kind in ((q, "Q"), (k, "K"), (v, "V")))
            y = y + softmax(0.5 * a @ b.swapaxes(1, 2)) @ c @ of["O"][head].T
        return y


def gradient(of: Callable[[Any], float], at: Any, step: float = 1e-5) -> Any:
    """Return the gradient of a function, computed with finite differences."""
    results = np.zeros_like(at)
    for i in np.ndindex(at.shape):
        kept = at[i]
        at[i] = kept + step
        above = of(at)
        at[i] = kept - step
        results[i] = (above - of(at)) / (2 * step)
        at[i] = kept
    return results


def close(actual: Any, expected: Any) -> None:
    """Compare with the precision of TF32, relative to the largest value."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=5e-3 * np.abs(expected).max())


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_multi_head_attention_is_as_in_numpy(gpu: str) -> None:
    heads = MultiHead(gpu)
    q, k, v = drawn(BATCH, STEPS, SIZE), drawn(BATCH, KEYS, SIZE), drawn(BATCH, KEYS, SIZE + 0)
    out, of_queries, of_keys = np.zeros_like(q), np.full(BATCH, STEPS, np.int32), np.full(BATCH, KEYS, np.int32)
    arguments = In(q), In(k), In(v), Out(out), In(heads.weights), In(of_queries), In(of_keys)
    with offload_args(*arguments, device=gpu) as (dq, dk, dv, do, dw, lq, lk):
        cudnn.multi_head_attn_forward(
            heads.attn, -1, [0] * STEPS, [KEYS] * STEPS, lq, lk, heads.of_q, dq, None, heads.of_k, dk, heads.of_k, dv,
            heads.of_q, do, heads.nbytes, dw, 0, None, 0, None,
        )  # fmt: skip
    expected = heads.by_numpy(*(np.float64(x) for x in (q, k, v, heads.weights)))
    close(out, expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_gradients_of_multi_head_attention_are_as_by_differences(gpu: str) -> None:
    heads = MultiHead(gpu)
    q, k, v, up = (
        drawn(BATCH, STEPS, SIZE),
        drawn(BATCH, KEYS, SIZE),
        drawn(BATCH, KEYS, SIZE + 0),
        drawn(BATCH, STEPS, SIZE),
    )
    lengths = np.full(BATCH, STEPS, np.int32), np.full(BATCH, KEYS, np.int32)
    out, gq, gk, gv, gw = (np.zeros_like(x) for x in (q, q, k, v, heads.weights))
    low, high = [0] * STEPS, [KEYS] * STEPS
    inputs = map(In, (q, k, v, up, heads.weights, *lengths))
    outputs = Out(out), Out(gq), Out(gk), Out(gv), InOut(gw), Scratch((heads.reserve,), np.uint8)
    with offload_args(*inputs, *outputs, device=gpu) as (dq, dk, dv, du, dw, lq, lk, do, pq, pk, pv, pw, kept):
        kept.fill(0)
        cudnn.multi_head_attn_forward(
            heads.attn, -1, low, high, lq, lk, heads.of_q, dq, None, heads.of_k, dk, heads.of_k, dv, heads.of_q, do,
            heads.nbytes, dw, 0, None, heads.reserve, kept,
        )  # fmt: skip
        cudnn.multi_head_attn_backward_data(
            heads.attn, low, high, lq, lk, heads.of_q, du, heads.of_q, pq, dq, heads.of_k, pk, dk, heads.of_k, pv, dv,
            heads.nbytes, dw, 0, None, heads.reserve, kept,
        )  # fmt: skip
        cudnn.multi_head_attn_backward_weights(
            heads.attn, cudnn.WGRAD_MODE_SET, heads.of_q, dq, heads.of_k, dk, heads.of_k, dv, heads.of_q, du,
            heads.nbytes, dw, pw, 0, None, heads.reserve, kept,
        )  # fmt: skip
    exact = [np.float64(x) for x in (q, k, v, heads.weights)]
    close(out, heads.by_numpy(*exact))
    for at, actual in enumerate((gq, gk, gv, gw)):

        def value(x: Any, at: int = at) -> float:
            return float((heads.by_numpy(*exact[:at], x, *exact[at + 1 :]) * up).sum())

        close(actual, gradient(value, exact[at].copy()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_reserve_or_workspace_of_multi_head_attention_that_is_too_small_is_refused(gpu: str) -> None:
    heads = MultiHead(gpu)
    q, k = drawn(BATCH, STEPS, SIZE), drawn(BATCH, KEYS, SIZE)
    lengths = np.full(BATCH, STEPS, np.int32), np.full(BATCH, KEYS, np.int32)
    scratches = Scratch((heads.reserve - 1,), np.uint8), Scratch((1,), np.uint8)
    arguments = *map(In, (q, k, heads.weights, *lengths)), Out(np.zeros_like(q)), *scratches
    with offload_args(*arguments, device=gpu) as (dq, dk, dw, lq, lk, do, small, tiny):
        first = (
            heads.attn,
            -1,
            [0] * STEPS,
            [KEYS] * STEPS,
            lq,
            lk,
            heads.of_q,
            dq,
            None,
            heads.of_k,
            dk,
            heads.of_k,
            dk,
        )
        small.fill(0)
        with pytest.raises((ArgumentError, ExtentError), match="reserveSpaceSizeInBytes"):
            rest = heads.of_q, do, heads.nbytes, dw, 0, None, heads.reserve - 1, small
            cudnn.multi_head_attn_forward(*first, *rest)
        with pytest.raises((ArgumentError, ExtentError), match="workSpaceSizeInBytes"):
            cudnn.multi_head_attn_forward(*first, heads.of_q, do, heads.nbytes, dw, 1, tiny, 0, None)
        do.fill(0)
