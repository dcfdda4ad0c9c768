"""Operations of cuDNN beside convolutions on a GPU, against their formulas in float64."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from helpers.devices import library_or_skip
from offload_args import In, Out, cudnn, offload_args
from offload_args.errors import DTypeError, SizeOverflowError

FLOAT = cudnn.DATA_FLOAT


@pytest.fixture
def gpu(cuda: str) -> str:
    library_or_skip("cudnn", cuda)
    return cuda


def drawn(*shape: int) -> Any:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * max(float(np.abs(expected).max()), 1.0))


def test_tensors_are_added_combined_reduced_and_reordered(gpu: str) -> None:
    x, b = drawn(2, 3, 4, 5), drawn(1, 3, 1, 1)
    sums, product_, most, last = x.copy(), np.zeros_like(x), np.zeros((2, 1, 4, 1), np.float32), np.zeros((2, 4, 5, 3))
    last = last.astype(np.float32)
    times, maximum = cudnn.create_op_tensor_descriptor(), cudnn.create_reduce_tensor_descriptor()
    cudnn.set_op_tensor_descriptor(times, cudnn.OP_TENSOR_MUL, FLOAT, cudnn.PROPAGATE_NAN)
    no_indices = cudnn.REDUCE_TENSOR_NO_INDICES, cudnn.CUDNN_32BIT_INDICES
    cudnn.set_reduce_tensor_descriptor(maximum, cudnn.REDUCE_TENSOR_MAX, FLOAT, cudnn.PROPAGATE_NAN, *no_indices)
    with offload_args(In(x), In(b), sums, Out(product_), Out(most), Out(last), device=gpu) as (px, pb, ps, pp, pm, pl):
        tx, tb, tm, tl = (cudnn.tensor(one) for one in (px, pb, pm, px))
        tl = cudnn.tensor(pl, "NHWC")
        cudnn.add_tensor(2, tb, pb, 1, tx, ps)
        cudnn.op_tensor(times, 1, tx, px, 3, tb, pb, 0, tx, pp)
        cudnn.reduce_tensor(maximum, None, 0, None, 0, 1, tx, px, 0, tm, pm)
        cudnn.transform_tensor(1, tx, px, 0, tl, pl)
    close(sums, x + 2 * b)
    close(product_, 3 * x * b)
    close(most, x.max(axis=(1, 3), keepdims=True))
    close(last, x.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32, np.float64])
def test_elements_are_set_to_a_number_that_their_dtype_holds_and_to_no_other(gpu: str, dtype: Any) -> None:
    y = np.zeros((2, 3, 4, 5), dtype)
    is_integer, is_double = np.issubdtype(dtype, np.integer), dtype is np.float64
    with offload_args(Out(y), device=gpu) as (dy,):
        t = cudnn.tensor(dy)
        cudnn.set_tensor(t, dy, -7)
        if not is_double:
            with pytest.raises(SizeOverflowError, match=r"set_tensor: valuePtr needs a number of .*, as yDesc"):
                cudnn.set_tensor(t, dy, 1e300)
            with pytest.raises(SizeOverflowError, match=r"cudnn\.scale_tensor: alpha needs a number of float32"):
                cudnn.scale_tensor(t, dy, 1e300)
        for number in (1.5, np.nan) if is_integer else ():
            with pytest.raises(DTypeError, match="valuePtr needs a number of int"):
                cudnn.set_tensor(t, dy, number)
    np.testing.assert_array_equal(y, dtype(-7))


def test_responses_are_normalized_across_channels(gpu: str) -> None:
    x, y = drawn(2, 8, 3, 3), np.zeros((2, 8, 3, 3), np.float32)
    norm, size, alpha, beta, k = cudnn.create_lrn_descriptor(), 5, 1e-1, 0.75, 2.0
    cudnn.set_lrn_descriptor(norm, size, alpha, beta, k)
    with offload_args(In(x), Out(y), device=gpu) as (px, py):
        t = cudnn.tensor(px)
        cudnn.lrn_cross_channel_forward(norm, cudnn.LRN_CROSS_CHANNEL_DIM1, 1, t, px, 0, t, py)
    squares = np.pad(x.astype(np.float64) ** 2, ((0, 0), (2, 2), (0, 0), (0, 0)))
    sums = sum(squares[:, at : at + 8] for at in range(size))
    close(y, x / (k + alpha / size * sums) ** beta)


@pytest.mark.parametrize("flip", [1.0, -1.0], ids=["as it is", "mirrored"])
def test_an_image_is_sampled_on_an_affine_grid(gpu: str, flip: float) -> None:
    x, y, grid = drawn(2, 3, 6, 7), np.zeros((2, 3, 6, 7), np.float32), np.zeros((2, 6, 7, 2), np.float32)
    theta = np.tile(np.array([[flip, 0, 0], [0, 1, 0]], np.float32), (2, 1, 1))
    sampler = cudnn.create_spatial_transformer_descriptor()
    cudnn.set_spatial_transformer_nd_descriptor(sampler, cudnn.SAMPLER_BILINEAR, FLOAT, 4, y.shape)
    with offload_args(In(x), In(theta), grid, Out(y), device=gpu) as (px, pt, pg, py):
        t = cudnn.tensor(px)
        cudnn.spatial_tf_grid_generator_forward(sampler, pt, pg)
        cudnn.spatial_tf_sampler_forward(sampler, 1, t, px, pg, 0, t, py)
    close(grid[0, :, :, 1], np.tile(np.linspace(-1, 1, 6)[:, None], (1, 7)))
    close(y, x[..., :: int(flip)])


def ctc(probabilities: Any, label: list[int]) -> float:
    """Return minus the logarithm of the probability of all paths that spell a label; 0 is the blank."""
    steps, total = len(probabilities), 0.0
    for path in product(range(probabilities.shape[1]), repeat=steps):
        spelled = [one for at, one in enumerate(path) if one and (not at or path[at - 1] != one)]
        if spelled == label:
            total += float(np.prod([probabilities[at, one] for at, one in enumerate(path)]))
    return -float(np.log(total))


def test_a_ctc_loss_is_the_sum_over_all_paths(gpu: str) -> None:
    steps, batch, letters = 5, 2, 3
    scores = np.exp(drawn(steps, batch, letters))
    probabilities = scores / scores.sum(axis=2, keepdims=True)
    labels, lengths = [[1, 2], [2, 2]], [2, 2]
    costs, gradients = np.zeros(batch, np.float32), np.zeros_like(probabilities)
    loss = cudnn.create_ctc_loss_descriptor()
    cudnn.set_ctc_loss_descriptor(loss, FLOAT)
    with offload_args(In(probabilities), Out(costs), Out(gradients), device=gpu) as (pp, pc, pg):
        t = cudnn.create_tensor_descriptor()
        strides = (batch * letters, letters, 1)
        cudnn.set_tensor_nd_descriptor(t, FLOAT, 3, (steps, batch, letters), strides)
        flat = [one for label in labels for one in label]
        algorithm = cudnn.CTC_LOSS_ALGO_DETERMINISTIC
        cudnn.ctc_loss(t, pp, flat, lengths, [steps] * batch, pc, t, pg, algorithm, loss, None, 0)
    close(costs, np.array([ctc(probabilities[:, at].astype(np.float64), label) for at, label in enumerate(labels)]))


@pytest.mark.parametrize("mode", ["max", "average"])
def test_gradients_of_poolings_activations_and_softmax(gpu: str, mode: str) -> None:
    x, dy = drawn(2, 3, 4, 4), drawn(2, 3, 2, 2)
    kinds = {"max": cudnn.POOLING_MAX, "average": cudnn.POOLING_AVERAGE_COUNT_EXCLUDE_PADDING}
    window, relu = cudnn.pooling(kinds[mode], 2), cudnn.activation(cudnn.ACTIVATION_RELU)
    y, dx, dr, s, ds = (np.zeros(shape, np.float32) for shape in (dy.shape, x.shape, x.shape, x.shape, x.shape))
    arrays = (In(x), In(dy), Out(y), Out(dx), Out(dr), Out(s), Out(ds), In(r := np.maximum(x, 0)))
    with offload_args(*arrays, device=gpu) as (px, pdy, py, pdx, pdr, ps, pds, pr):
        tx, ty = cudnn.tensor(px), cudnn.tensor(py)
        cudnn.pooling_forward(window, 1, tx, px, 0, ty, py)
        cudnn.pooling_backward(window, 1, ty, py, ty, pdy, tx, px, 0, tx, pdx)
        cudnn.activation_backward(relu, 1, tx, pr, tx, px, tx, px, 0, tx, pdr)
        softmax = cudnn.SOFTMAX_ACCURATE, cudnn.SOFTMAX_MODE_CHANNEL
        cudnn.softmax_forward(*softmax, 1, tx, px, 0, tx, ps)
        cudnn.softmax_backward(*softmax, 1, tx, ps, tx, px, 0, tx, pds)
    blocks = x.reshape(2, 3, 2, 2, 2, 2)
    spread = dy[:, :, :, None, :, None]
    chosen = blocks == blocks.max(axis=(3, 5), keepdims=True) if mode == "max" else np.full(blocks.shape, 0.25)
    close(dx, (chosen * spread).reshape(x.shape))
    close(dr, np.where(r > 0, x, 0))
    close(ds, s * (x - (s * x).sum(axis=1, keepdims=True)))
