"""Operations of cuDNN other than convolutions on a GPU, compared with their formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.gradients import differences
from offload_args import In, Out, Scratch, cudnn, offload_args
from offload_args.errors import ArgumentError, DTypeError, ExtentError, SizeOverflowError

LIBRARY = "cudnn"

FLOAT = cudnn.DATA_FLOAT


def drawn(*shape: int) -> Any:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-4 * max(float(np.abs(expected).max()), 1.0))


def test_tensors_are_added_combined_reduced_and_reordered(gpu: str) -> None:
    x, b = drawn(2, 3, 4, 5), drawn(1, 3, 1, 1)
    sums, product_, most, last = x.copy(), np.zeros_like(x), np.zeros((2, 1, 4, 1), np.float32), np.zeros((2, 4, 5, 3))
    last = last.astype(np.float32)
    times, maximum = cudnn.create_op_tensor_descriptor(), cudnn.create_reduce_tensor_descriptor()
    cudnn.set_op_tensor_descriptor(times, cudnn.OP_TENSOR_MUL, FLOAT, cudnn.PROPAGATE_NAN)
    no_indices = cudnn.REDUCE_TENSOR_NO_INDICES, cudnn.CUDNN_32BIT_INDICES
    cudnn.set_reduce_tensor_descriptor(maximum, cudnn.REDUCE_TENSOR_MAX, FLOAT, cudnn.PROPAGATE_NAN, *no_indices)
    with offload_args(In(x), In(b), sums, Out(product_), Out(most), Out(last), device=gpu) as (px, pb, ps, pp, pm, pl):
        tx, tb, tm, tl = (cudnn.tensor(array) for array in (px, pb, pm, px))
        tl = cudnn.tensor(pl, "NHWC")
        cudnn.add_tensor(2, tb, pb, 1, tx, ps)
        cudnn.op_tensor(times, 1, tx, px, 3, tb, pb, 0, tx, pp)
        cudnn.reduce_tensor(maximum, None, 0, None, 0, 1, tx, px, 0, tm, pm)
        cudnn.transform_tensor(1, tx, px, 0, tl, pl)
    close(sums, x + 2 * b)
    close(product_, 3 * x * b)
    close(most, x.max(axis=(1, 3), keepdims=True))
    close(last, x.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("dtype", [np.int8, np.float16, np.float32])
def test_a_factor_that_its_dtype_does_not_hold_is_refused(gpu: str, dtype: Any) -> None:
    y = np.zeros((2, 3, 4, 5), dtype)
    with offload_args(y, device=gpu) as (dy,):
        with pytest.raises(SizeOverflowError, match=r"cudnn\.scale_tensor: alpha needs a number of float32"):
            cudnn.scale_tensor(cudnn.tensor(dy), dy, 1e300)


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


# -- every mode --------------------------------------------------------------------------------------------------------

HALF, SINGLE, DOUBLE = (np.dtype(dtype) for dtype in (np.float16, np.float32, np.float64))
CLOSE = {HALF: 1e-2, SINGLE: 1e-4, DOUBLE: 1e-8}  # finite differences are exact to about 1e-9


def near(actual: Any, expected: Any, dtype: Any) -> None:
    scale = max(float(np.abs(expected).max()), 1.0)
    actual = np.asarray(actual, np.float64)
    np.testing.assert_allclose(actual / scale, expected / scale, rtol=0, atol=CLOSE[np.dtype(dtype)])


ACTIVATIONS = {
    "SIGMOID": lambda x, _: 1 / (1 + np.exp(-x)),
    "RELU": lambda x, _: np.maximum(x, 0),
    "TANH": lambda x, _: np.tanh(x),
    "CLIPPED_RELU": lambda x, most: np.clip(x, 0, most),
    "ELU": lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))),
    "SWISH": lambda x, beta: x / (1 + np.exp(-beta * x)),
}


@pytest.mark.parametrize("dtype", [HALF, SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_and_its_gradient_are_as_its_formula(gpu: str, name: str, dtype: Any) -> None:
    x, dy = drawn(2, 3, 4, 5).astype(dtype), (drawn(2, 3, 4, 5) + 1).astype(dtype)
    y, dx, coefficient = np.zeros_like(x), np.zeros_like(x), 0.75
    activation = cudnn.activation(getattr(cudnn, f"ACTIVATION_{name}"), coefficient)
    if name == "SWISH":
        cudnn.set_activation_descriptor_swish_beta(activation, coefficient)
        assert cudnn.get_activation_descriptor_swish_beta(activation) == coefficient
    with offload_args(In(x), In(dy), Out(y), Out(dx), device=gpu) as (px, pdy, py, pdx):
        t = cudnn.tensor(px)
        cudnn.activation_forward(activation, 1, t, px, 0, t, py)
        cudnn.activation_backward(activation, 1, t, py, t, pdy, t, px, 0, t, pdx)
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    formula = ACTIVATIONS[name]
    near(y, formula(x, coefficient), dtype)
    near(dx, differences(lambda array: float((dy * formula(array, coefficient)).sum()), [x])[0], dtype)


SOFTMAX = [
    (algorithm, mode)
    for algorithm in ("SOFTMAX_FAST", "SOFTMAX_ACCURATE", "SOFTMAX_LOG")
    for mode in ("SOFTMAX_MODE_INSTANCE", "SOFTMAX_MODE_CHANNEL")
]


@pytest.mark.parametrize("dtype", [HALF, SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize(("algorithm", "mode"), SOFTMAX)
def test_a_softmax_and_its_gradient_are_as_its_formula(gpu: str, algorithm: str, mode: str, dtype: Any) -> None:
    x, dy, kind = (
        drawn(2, 3, 2, 3).astype(dtype),
        (drawn(2, 3, 2, 3) + 1).astype(dtype),
        (
            getattr(cudnn, algorithm),
            getattr(cudnn, mode),
        ),
    )
    y, dx, axes = np.zeros_like(x), np.zeros_like(x), (1,) if mode.endswith("CHANNEL") else (1, 2, 3)

    def formula(x: Any) -> Any:
        powers = np.exp(x - x.max(axis=axes, keepdims=True))
        actual = powers / powers.sum(axis=axes, keepdims=True)
        return np.log(actual) if algorithm.endswith("LOG") else actual

    with offload_args(In(x), In(dy), Out(y), Out(dx), device=gpu) as (px, pdy, py, pdx):
        t = cudnn.tensor(px)
        cudnn.softmax_forward(*kind, 1, t, px, 0, t, py)
        cudnn.softmax_backward(*kind, 1, t, py, t, pdy, 0, t, pdx)
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    near(y, formula(x), dtype)
    near(dx, differences(lambda array: float((dy * formula(array)).sum()), [x])[0], dtype)


POOLINGS = ["MAX", "MAX_DETERMINISTIC", "AVERAGE_COUNT_INCLUDE_PADDING", "AVERAGE_COUNT_EXCLUDE_PADDING"]


@pytest.mark.parametrize("dtype", [HALF, SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("mode", POOLINGS)
def test_windows_are_pooled_and_so_are_gradients(gpu: str, mode: str, dtype: Any) -> None:
    window, pads, steps = (3, 2), (1, 0), (2, 1)
    x = np.random.default_rng(1).permutation(2 * 3 * 5 * 4).reshape(2, 3, 5, 4).astype(dtype) / dtype.type(16)

    def formula(x: Any) -> Any:
        outside = -np.inf if mode.startswith("MAX") else 0
        border = ((0, 0), (0, 0), (pads[0],) * 2, (pads[1],) * 2)
        seen, inside = (
            np.lib.stride_tricks.sliding_window_view(np.pad(dtype, border, constant_values=other), window, axis=(2, 3))
            for dtype, other in ((x, outside), (np.ones_like(x), 0))
        )
        seen, inside = (value[:, :, :: steps[0], :: steps[1]] for value in (seen, inside))
        if mode.startswith("MAX"):
            return seen.max(axis=(4, 5))
        counts = inside.sum(axis=(4, 5)) if mode.endswith("EXCLUDE_PADDING") else np.prod(window)
        return seen.sum(axis=(4, 5)) / counts

    expected = formula(x.astype(np.float64))
    y, dx, dy = np.zeros(expected.shape, dtype), np.zeros_like(x), drawn(*expected.shape).astype(dtype)
    pooling = cudnn.pooling(getattr(cudnn, f"POOLING_{mode}"), window, padding=pads, stride=steps)
    with offload_args(In(x), In(dy), Out(y), Out(dx), device=gpu) as (px, pdy, py, pdx):
        tx, ty = cudnn.tensor(px), cudnn.tensor(py)
        assert cudnn.get_pooling2d_forward_output_dim(pooling, tx) == expected.shape
        cudnn.pooling_forward(pooling, 1, tx, px, 0, ty, py)
        cudnn.pooling_backward(pooling, 1, ty, py, ty, pdy, tx, px, 0, tx, pdx)
    near(y, expected, dtype)
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    near(dx, differences(lambda array: float((dy * formula(array)).sum()), [x])[0], dtype)


REDUCTIONS = {
    "ADD": lambda x: x.sum(axis=(1, 3)),
    "MUL": lambda x: x.prod(axis=(1, 3)),
    "MIN": lambda x: x.min(axis=(1, 3)),
    "MAX": lambda x: x.max(axis=(1, 3)),
    "AMAX": lambda x: np.abs(x).max(axis=(1, 3)),
    "AVG": lambda x: x.mean(axis=(1, 3)),
    "NORM1": lambda x: np.abs(x).sum(axis=(1, 3)),
    "NORM2": lambda x: np.sqrt((x * x).sum(axis=(1, 3))),
    "MUL_NO_ZEROS": lambda x: np.where(x == 0, 1, x).prod(axis=(1, 3)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_is_as_its_formula(gpu: str, name: str) -> None:
    x, y = drawn(2, 3, 4, 5), np.zeros((2, 1, 4, 1), np.float32)
    x[0, 1, 2] = 0
    reduction, places = cudnn.create_reduce_tensor_descriptor(), np.full(64, -1, np.int32)
    has_places = name in ("MIN", "MAX", "AMAX")
    wanted = cudnn.REDUCE_TENSOR_FLATTENED_INDICES if has_places else cudnn.REDUCE_TENSOR_NO_INDICES
    settings = FLOAT, cudnn.PROPAGATE_NAN, wanted, cudnn.CUDNN_32BIT_INDICES
    cudnn.set_reduce_tensor_descriptor(reduction, getattr(cudnn, f"REDUCE_TENSOR_{name}"), *settings)
    assert cudnn.get_reduce_tensor_descriptor(reduction)[1:] == settings
    with offload_args(In(x), Out(y), places, device=gpu) as (px, py, pi), cudnn.create(gpu) as handle:
        tx, ty = cudnn.tensor(px), cudnn.tensor(py)
        size = cudnn.get_reduction_indices_size(handle, reduction, tx, ty)
        cudnn.reduce_tensor(reduction, pi if has_places else None, size, None, 0, 1, tx, px, 0, ty, py)
    expected = REDUCTIONS[name](x.astype(np.float64))
    near(y[:, 0, :, 0], expected, np.float32)
    if has_places:
        assert size == 4 * y.size
        flat = x.transpose(0, 2, 1, 3).reshape(8, 15)
        chosen = flat[np.arange(8), places[:8]]
        near(np.abs(chosen) if name == "AMAX" else chosen, expected.ravel(), np.float32)


COMBINATIONS = {
    "ADD": lambda a, b: a + b,
    "MUL": lambda a, b: a * b,
    "MIN": np.minimum,
    "MAX": np.maximum,
    "SQRT": lambda a, _: np.sqrt(a),
    "NOT": lambda a, _: 1 - a,
}


@pytest.mark.parametrize("dtype", [HALF, SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize("name", COMBINATIONS)
def test_tensors_are_combined_as_the_formula_says(gpu: str, name: str, dtype: Any) -> None:
    a, b, c = (np.abs(drawn(2, 3, 4, 5) + at).astype(dtype) for at in range(3))
    before = c.astype(np.float64)
    combination = cudnn.create_op_tensor_descriptor()
    settings = cudnn.DATA_DOUBLE if dtype == DOUBLE else FLOAT, cudnn.PROPAGATE_NAN
    cudnn.set_op_tensor_descriptor(combination, getattr(cudnn, f"OP_TENSOR_{name}"), *settings)
    with offload_args(In(a), In(b), c, device=gpu) as (pa, pb, pc):
        t = cudnn.tensor(pa)
        cudnn.op_tensor(combination, 2, t, pa, 0.5, t, pb, 0.25, t, pc)
    expected = COMBINATIONS[name](2 * a.astype(np.float64), 0.5 * b.astype(np.float64)) + 0.25 * before
    near(c, expected, dtype)


def sampled(x: Any, grid: Any) -> Any:
    """Return images sampled at places from -1 to 1.

    Each sample interpolates the four pixels around it; pixels outside are 0.
    """
    n, channels, rows, columns = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    across, down = (grid[..., 0] + 1) * (columns - 1) / 2, (grid[..., 1] + 1) * (rows - 1) / 2
    results = np.zeros((n, channels, *grid.shape[1:3]))
    for i in (0, 1):
        for j in (0, 1):
            row, column = np.floor(down).astype(int) + i, np.floor(across).astype(int) + j
            weight = (1 - abs(down - row)) * (1 - abs(across - column))
            at = np.clip(row + 1, 0, rows + 1), np.clip(column + 1, 0, columns + 1)
            for image in range(n):
                results[image] += weight[image] * padded[image][:, at[0][image], at[1][image]]
    return results


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_gradients_of_sampling_an_image(gpu: str, dtype: Any) -> None:
    shape, size = (2, 2, 4, 5), (2, 2, 3, 4)
    x, dy = drawn(*shape).astype(dtype), drawn(*size).astype(dtype)
    theta = (np.array([[0.5, 0.2, 0.1], [-0.2, 0.6, 0.05]]) + 0.02 * np.arange(2)[:, None, None]).astype(dtype)
    y, dx, grid, dgrid = (np.zeros(value, dtype) for value in (size, shape, (2, 3, 4, 2), (2, 3, 4, 2)))
    dtheta, code = np.zeros((2, 2, 3), dtype), cudnn.DATA_DOUBLE if dtype == DOUBLE else FLOAT
    sampler = cudnn.create_spatial_transformer_descriptor()
    cudnn.set_spatial_transformer_nd_descriptor(sampler, cudnn.SAMPLER_BILINEAR, code, 4, size)
    lent = (In(x), In(dy), In(theta), *map(Out, (y, dx, grid, dgrid, dtheta)))
    with offload_args(*lent, device=gpu) as (px, pdy, pt, py, pdx, pg, pdg, pdt):
        tx, ty = cudnn.tensor(px), cudnn.tensor(py)
        cudnn.spatial_tf_grid_generator_forward(sampler, pt, pg)
        cudnn.spatial_tf_sampler_forward(sampler, 1, tx, px, pg, 0, ty, py)
        cudnn.spatial_tf_sampler_backward(sampler, 1, tx, px, 0, tx, pdx, 1, ty, pdy, pg, 0, pdg)
        cudnn.spatial_tf_grid_generator_backward(sampler, pdg, pdt)
        for short, of, words in (
            (pg, pg[:1], r"grid needs 48 elements \(2 \* stDesc\[0\]"),
            (pt, pt[:1], r"theta needs 12 elements"),
        ):
            arguments = [of if value is short else value for value in (pt, pg)]
            with pytest.raises(ExtentError, match=words):
                cudnn.spatial_tf_grid_generator_forward(sampler, *arguments)
        with pytest.raises(ExtentError, match=r"grid needs 48 elements"):
            cudnn.spatial_tf_sampler_forward(sampler, 1, tx, px, pg[:1], 0, ty, py)
    places = np.stack(np.broadcast_arrays(np.linspace(-1, 1, 4), np.linspace(-1, 1, 3)[:, None], 1), axis=-1)
    expected = np.einsum("hwk,nik->nhwi", places, theta.astype(np.float64))
    near(grid, expected, dtype)
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    near(y, sampled(x, expected), dtype)
    of_x, of_grid = differences(lambda *arguments: float((dy * sampled(*arguments)).sum()), [x, expected])
    near(dx, of_x, dtype)
    near(dgrid, of_grid, dtype)
    near(dtheta, np.einsum("nhwi,hwk->nik", of_grid, places), dtype)


def test_a_spatial_transformer_that_was_not_set_is_refused(gpu: str) -> None:
    theta, grid = np.zeros((1, 2, 3), np.float32), np.zeros((1, 3, 4, 2), np.float32)
    sampler = cudnn.create_spatial_transformer_descriptor()
    with offload_args(In(theta), grid, device=gpu) as (pt, pg):
        with pytest.raises(ArgumentError, match=r"stDesc says no dtype yet; set it first"):
            cudnn.spatial_tf_grid_generator_forward(sampler, pt, pg)
        cudnn.set_spatial_transformer_nd_descriptor(sampler, cudnn.SAMPLER_BILINEAR, FLOAT, 4, (1, 1, -3, 4))
        with pytest.raises(ArgumentError, match=r"stDesc was set to the size -3; set sizes of at least 1"):
            cudnn.spatial_tf_grid_generator_forward(sampler, pt, pg)
        cudnn.set_spatial_transformer_nd_descriptor(sampler, cudnn.SAMPLER_BILINEAR, cudnn.DATA_DOUBLE, 4, (1, 1, 3, 4))
        with pytest.raises(DTypeError, match=r"theta needs float64, got a pointer to float32"):
            cudnn.spatial_tf_grid_generator_forward(sampler, pt, pg)


def test_a_convolution_says_its_results_shape(gpu: str) -> None:
    x, w = drawn(2, 3, 5, 4), np.zeros((1, 3, 3, 2), np.float32)
    with offload_args(In(x), In(w), device=gpu) as (px, pw):
        shape = cudnn.get_convolution2d_forward_output_dim(
            cudnn.convolution(padding=1), cudnn.tensor(px), cudnn.filter(pw)
        )
    assert shape == (2, 1, 5, 5)


def transformed(gpu: str, x: Any, shape: Any, before: Any, after: Any, fold: Any, way: int, layout: int) -> Any:
    """Return the result of transform_tensor_ex for an array, with the shape and strides of the result."""
    transform, dest = cudnn.create_tensor_transform_descriptor(), cudnn.create_tensor_descriptor()
    cudnn.set_tensor_transform_descriptor(transform, 4, layout, before, after, fold, way)
    source = cudnn.tensor(x)
    nbytes = cudnn.init_transform_dest(transform, source, dest)
    actual = np.zeros(nbytes // 4, np.float32)
    with offload_args(In(x), Out(actual), device=gpu) as (px, pf):
        cudnn.transform_tensor_ex(transform, 1, source, px, 0, dest, pf)
    return actual, cudnn.get_tensor_nd_descriptor(dest, 4)[2:]


def test_a_tensor_is_folded_and_unfolded(gpu: str) -> None:
    x, none = drawn(1, 2, 4, 6), [0] * 4
    actual, (shape, _) = transformed(gpu, x, x.shape, none, none, (2, 3), cudnn.TRANSFORM_FOLD, cudnn.TENSOR_NCHW)
    assert shape == (1, 12, 2, 2)
    expected = x.reshape(1, 2, 2, 2, 2, 3).transpose(0, 3, 5, 1, 2, 4)
    np.testing.assert_array_equal(actual, expected.ravel())
    folded = expected.reshape(shape).copy()
    back, (shape, _) = transformed(gpu, folded, x.shape, none, none, (2, 3), cudnn.TRANSFORM_UNFOLD, cudnn.TENSOR_NCHW)
    assert shape == x.shape
    np.testing.assert_array_equal(back, x.ravel())


def test_a_tensor_is_padded_in_another_layout(gpu: str) -> None:
    x, before, after = drawn(2, 3, 4, 5), (0, 0, 1, 2), (0, 0, 3, 0)
    actual, (shape, strides) = transformed(
        gpu, x, None, before, after, (1, 1), cudnn.TRANSFORM_FOLD, cudnn.TENSOR_NHWC
    )  # fmt: skip
    assert shape == (2, 3, 8, 7) and strides == (168, 1, 21, 3)
    expected = np.pad(x, list(zip(before, after, strict=True))).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(actual, expected.ravel())


def test_a_filter_is_copied_into_another_layout(gpu: str) -> None:
    w, other = drawn(4, 3, 2, 5), np.zeros((4, 2, 5, 3), np.float32)
    transform = cudnn.create_tensor_transform_descriptor()
    cudnn.set_tensor_transform_descriptor(
        transform, 4, cudnn.TENSOR_NHWC, [0] * 4, [0] * 4, (1, 1), cudnn.TRANSFORM_FOLD
    )
    with offload_args(In(w), Out(other), device=gpu) as (pw, po):
        cudnn.transform_filter(transform, 1, cudnn.filter(pw), pw, 0, cudnn.filter(po, "KHWC"), po)
    np.testing.assert_array_equal(other, w.transpose(0, 2, 3, 1))


def test_a_bias_is_the_sum_of_gradients_and_a_dropout_goes_on_with_its_states(gpu: str) -> None:
    dy, db = drawn(2, 3, 4, 5), np.zeros((1, 3, 1, 1), np.float32)
    x, first, second = np.ones((1, 1, 16, 64), np.float32), *(np.zeros((1, 1, 16, 64), np.float32) for _ in "ab")
    dropout, restored = cudnn.create_dropout_descriptor(), cudnn.create_dropout_descriptor()
    with cudnn.create(gpu) as handle:
        nbytes = cudnn.dropout_get_states_size(handle)
        arrays = In(dy), Out(db), In(x), Out(first), Out(second), Scratch((nbytes,), np.uint8)
        with offload_args(*arrays, device=gpu) as (pdy, pdb, px, pf, ps, states):
            cudnn.convolution_backward_bias(1, cudnn.tensor(pdy), pdy, 0, cudnn.tensor(pdb), pdb)
            t = cudnn.tensor(px)
            size = cudnn.dropout_get_reserve_space_size(t)
            with offload_args(Scratch((size,), np.uint8), device=gpu) as (mask,):
                cudnn.set_dropout_descriptor(dropout, handle, 0.5, states, nbytes, 7)
                cudnn.dropout_forward(dropout, t, px, t, pf, mask, size, handle=handle)
                cudnn.restore_dropout_descriptor(restored, handle, 0.5, states, nbytes, 7)
                cudnn.dropout_forward(restored, t, px, t, ps, mask, size, handle=handle)
            del dropout, restored
    close(db, dy.sum(axis=(0, 2, 3), keepdims=True))
    assert set(np.unique(first)) == set(np.unique(second)) == {0.0, 2.0}
    assert (first != second).any()
