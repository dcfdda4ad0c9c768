"""cuDNN's normalizations on a GPU, forward and backward, compared with their formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.gradients import differences
from offload_args import In, Out, Scratch, cudnn, offload_args

LIBRARY = "cudnn"

HALF, SINGLE, DOUBLE = (np.dtype(dtype) for dtype in (np.float16, np.float32, np.float64))
CLOSE = {HALF: 1e-2, SINGLE: 2e-4, DOUBLE: 1e-8}  # finite differences are exact to about 1e-9
EPSILON = 1e-3


def drawn(dtype: Any, *shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def exact(array: Any) -> Any:
    return np.asarray(array, np.float64)


def close(actual: Any, expected: Any, dtype: Any) -> None:
    scale = max(float(np.abs(expected).max()), 1.0)
    np.testing.assert_allclose(exact(actual) / scale, expected / scale, rtol=0, atol=CLOSE[np.dtype(dtype)])


def normalized(x: Any, scale: Any, bias: Any, axes: tuple[int, ...]) -> Any:
    centred = x - x.mean(axis=axes, keepdims=True)
    return scale * centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + EPSILON) + bias


MODES = {"each element": cudnn.BATCHNORM_PER_ACTIVATION, "each channel": cudnn.BATCHNORM_SPATIAL}


@pytest.mark.parametrize("dtype", [HALF, SINGLE, DOUBLE], ids=str)
@pytest.mark.parametrize(
    ("mode", "layout"), [("each element", "NCHW"), ("each channel", "NCHW"), ("each channel", "NHWC")]
)
def test_a_batch_is_normalized_in_training_and_inference_with_its_gradients(
    gpu: str, mode: str, dtype: Any, layout: str
) -> None:
    shape, channel = ((4, 3, 2, 5), 1) if layout == "NCHW" else ((4, 2, 5, 3), 3)
    axes = (0,) if mode == "each element" else tuple(value for value in range(4) if value != channel)
    of_one = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    numbers = SINGLE if dtype == HALF else dtype
    x, dy = drawn(dtype, *shape), drawn(dtype, *shape, seed=2)
    scale, bias, running_mean, running_variance = (drawn(numbers, *of_one, seed=seed) for seed in (3, 4, 5, 6))
    running_variance = np.abs(running_variance) + numbers.type(1)
    before = running_mean.astype(np.float64), running_variance.astype(np.float64)
    outputs = y, inferred, dx = [np.zeros(shape, dtype) for _ in range(3)]
    small = dscale, dbias, mean, inverse = [np.zeros(of_one, numbers) for _ in range(4)]
    lent = (In(x), In(dy), In(scale), In(bias), running_mean, running_variance, *map(Out, outputs), *map(Out, small))
    with offload_args(*lent, device=gpu) as (px, pdy, ps, pb, prm, prv, py, pi, pdx, pds, pdb, pm, pv):
        t, of_scale = cudnn.tensor(px, layout), cudnn.create_tensor_descriptor()
        cudnn.derive_bn_tensor_descriptor(of_scale, t, MODES[mode])
        cudnn.batch_normalization_forward_inference(
            MODES[mode], 1, 0, t, px, t, pi, of_scale, ps, pb, prm, prv, EPSILON
        )
        cudnn.batch_normalization_forward_training(
            MODES[mode], 1, 0, t, px, t, py, of_scale, ps, pb, 0.25, prm, prv, EPSILON, pm, pv
        )
        cudnn.batch_normalization_backward(
            MODES[mode], 1, 0, 1, 0, t, px, t, pdy, t, pdx, of_scale, ps, pds, pdb, EPSILON, pm, pv
        )
    x, dy, scale, bias = (exact(array) for array in (x, dy, scale, bias))
    close(inferred, scale * (x - before[0]) / np.sqrt(before[1] + EPSILON) + bias, dtype)
    close(y, normalized(x, scale, bias, axes), dtype)
    close(mean, x.mean(axis=axes, keepdims=True), dtype)
    close(inverse, 1 / np.sqrt(x.var(axis=axes, keepdims=True) + EPSILON), dtype)
    count = x.size // scale.size
    close(running_mean, 0.75 * before[0] + 0.25 * x.mean(axis=axes, keepdims=True), dtype)
    close(running_variance, 0.75 * before[1] + 0.25 * x.var(axis=axes, keepdims=True) * count / (count - 1), dtype)
    expected = differences(lambda *arguments: float((dy * normalized(*arguments, axes)).sum()), [x, scale, bias])
    for actual, gradient in zip((dx, dscale, dbias), expected, strict=True):
        close(actual, gradient, dtype)


STEPS = {
    "alone": cudnn.BATCHNORM_OPS_BN,
    "then ReLU": cudnn.BATCHNORM_OPS_BN_ACTIVATION,
    "with z added, then ReLU": cudnn.BATCHNORM_OPS_BN_ADD_ACTIVATION,
}


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("interface", ["batch_normalization", "normalization"])
def test_a_batch_is_normalized_with_what_follows_in_one_kernel(gpu: str, interface: str, steps: str) -> None:
    shape, axes, of_one = (8, 6, 6, 16), (0, 1, 2), (1, 1, 1, 16)
    x, z, dy = (drawn(HALF, *shape, seed=seed) for seed in (1, 2, 3))
    scale, bias = drawn(SINGLE, *of_one, seed=4), drawn(SINGLE, *of_one, seed=5)
    y, dx, dz = (np.zeros(shape, HALF) for _ in range(3))
    dscale, dbias, mean, inverse = (np.zeros(of_one, SINGLE) for _ in range(4))
    relu = cudnn.activation(cudnn.ACTIVATION_RELU) if steps != "alone" else None
    t = cudnn.tensor(x, "NHWC")
    adds = steps.startswith("with z")
    of_scale, mode, kind = cudnn.create_tensor_descriptor(), cudnn.BATCHNORM_SPATIAL_PERSISTENT, STEPS[steps]
    cudnn.derive_bn_tensor_descriptor(of_scale, t, mode)
    with cudnn.create(gpu) as handle:
        reserved = cudnn.get_batch_normalization_training_ex_reserve_space_size(handle, mode, kind, relu, t)
    arrays = (In(x), In(z), In(dy), In(scale), In(bias), *map(Out, (y, dx, dz, dscale, dbias, mean, inverse)))
    with offload_args(*arrays, Scratch((max(reserved, 1),), np.uint8), device=gpu) as pointers:
        px, pz, pdy, ps, pb, py, pdx, pdz, pds, pdb, pm, pv, room = pointers
        z_in, z_out = ((t, pz), (t, pdz)) if adds else ((None, None), (None, None))
        beside = (py if relu else None), (t if relu else None)
        if interface == "batch_normalization":
            cudnn.batch_normalization_forward_training_ex(
                mode, kind, 1, 0, t, px, *z_in, t, py, of_scale, ps, pb, 1, None, None, EPSILON, pm, pv, relu,
                None, 0, room, reserved,
            )  # fmt: skip
            cudnn.batch_normalization_backward_ex(
                mode, kind, 1, 0, 1, 0, t, px, beside[1], beside[0], t, pdy, *z_out, t, pdx, of_scale, ps, pb, pds,
                pdb, EPSILON, pm, pv, relu, None, 0, room, reserved,
            )  # fmt: skip
        else:
            per = cudnn.NORM_PER_CHANNEL, kind, cudnn.NORM_ALGO_PERSIST
            cudnn.normalization_forward_training(
                *per, 1, 0, t, px, of_scale, ps, pb, 1, of_scale, None, None, EPSILON, pm, pv, relu, *z_in, t, py,
                None, 0, room, reserved, 1,
            )  # fmt: skip
            cudnn.normalization_backward(
                *per, 1, 0, 1, 0, t, px, beside[1], beside[0], t, pdy, *z_out, t, pdx, of_scale, ps, pb, pds, pdb,
                EPSILON, of_scale, pm, pv, relu, None, 0, room, reserved, 1,
            )  # fmt: skip
        if not adds:
            pdz.fill(0)
    x, z, dy, scale, bias = (exact(array) for array in (x, z, dy, scale, bias))
    before = normalized(x, scale, bias, axes) + (z if adds else 0)
    close(y, np.maximum(before, 0) if relu else before, HALF)
    upstream = dy * (exact(y) > 0) if relu else dy  # with the y that cuDNN rounded
    centred = x - x.mean(axis=axes, keepdims=True)
    deviation = np.sqrt(x.var(axis=axes, keepdims=True) + EPSILON)
    unit = centred / deviation
    sums = [(upstream * value).sum(axis=axes, keepdims=True) for value in (unit, 1)]
    close(dscale, sums[0], HALF)
    close(dbias, sums[1], HALF)
    close(dx, scale / deviation * (upstream - (sums[1] + unit * sums[0]) * scale.size / x.size), HALF)
    close(dz, upstream if adds else np.zeros(shape), HALF)


def test_normalization_by_given_means_adds_z_and_applies_relu(gpu: str) -> None:
    shape, of_one = (2, 3, 3, 8), (1, 1, 1, 8)
    x, z, y = drawn(HALF, *shape), drawn(HALF, *shape, seed=2), np.zeros(shape, HALF)
    scale, bias, mean, variance = (drawn(SINGLE, *of_one, seed=seed) for seed in (3, 4, 5, 6))
    variance = np.abs(variance) + np.float32(1)
    relu, t = cudnn.activation(cudnn.ACTIVATION_RELU), cudnn.tensor(x, "NHWC")
    of_scale, of_mean = cudnn.create_tensor_descriptor(), cudnn.create_tensor_descriptor()
    cudnn.derive_norm_tensor_descriptor(of_scale, of_mean, t, cudnn.NORM_PER_CHANNEL, 1)
    arrays = (In(x), In(z), In(scale), In(bias), In(mean), In(variance), Out(y))
    with offload_args(*arrays, device=gpu) as (px, pz, ps, pb, pm, pv, py):
        cudnn.normalization_forward_inference(
            cudnn.NORM_PER_CHANNEL, cudnn.NORM_OPS_NORM, cudnn.NORM_ALGO_STANDARD, 1, 0, t, px, of_scale, ps, pb,
            of_mean, pm, pv, None, None, relu, t, py, EPSILON, 1,
        )  # fmt: skip
    close(y, exact(scale) * (exact(x) - mean) / np.sqrt(exact(variance) + EPSILON) + bias, HALF)


def responses(x: Any, size: int, alpha: float, beta: float, k: float) -> Any:
    """Return x divided by a power of the sum of squares of neighbouring channels."""
    channels, half = x.shape[1], (size - 1) // 2
    squares = np.pad(x**2, ((0, 0), (half, size - 1 - half), (0, 0), (0, 0)))
    sums = sum(squares[:, at : at + channels] for at in range(size))
    return x / (k + alpha / size * sums) ** beta


@pytest.mark.parametrize("dtype", [HALF, SINGLE, DOUBLE], ids=str)
def test_gradients_of_responses_normalized_across_channels(gpu: str, dtype: Any) -> None:
    shape, settings = (2, 6, 2, 3), (5, 0.5, 0.75, 2.0)
    x, dy, y, dx = drawn(dtype, *shape), drawn(dtype, *shape, seed=2), np.zeros(shape, dtype), np.zeros(shape, dtype)
    norm, mode = cudnn.create_lrn_descriptor(), cudnn.LRN_CROSS_CHANNEL_DIM1
    cudnn.set_lrn_descriptor(norm, *settings)
    assert cudnn.get_lrn_descriptor(norm) == settings
    with offload_args(In(x), In(dy), Out(y), Out(dx), device=gpu) as (px, pdy, py, pdx):
        t = cudnn.tensor(px)
        cudnn.lrn_cross_channel_forward(norm, mode, 1, t, px, 0, t, py)
        cudnn.lrn_cross_channel_backward(norm, mode, 1, t, py, t, pdy, t, px, 0, t, pdx)
    x, dy = exact(x), exact(dy)
    close(y, responses(x, *settings), dtype)
    close(dx, differences(lambda array: float((dy * responses(array, *settings)).sum()), [x])[0], dtype)


def deviations(x: Any, size: int, alpha: float, beta: float, k: float) -> Any:
    """Return x divided by a power of the sum of squares of its neighbours in the plane."""
    half, (rows, columns) = (size - 1) // 2, x.shape[2:]
    squares = np.pad(x**2, ((0, 0), (0, 0), (half, size - 1 - half), (half, size - 1 - half)))
    sums = sum(squares[:, :, i : i + rows, j : j + columns] for i in range(size) for j in range(size))
    return x / (k + alpha / size**2 * sums) ** beta


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE], ids=str)
def test_elements_are_divided_by_the_deviation_of_their_neighbours(gpu: str, dtype: Any) -> None:
    shape, settings = (2, 2, 5, 6), (3, 0.5, 0.75, 2.0)
    x, dy, y, dx = drawn(dtype, *shape), drawn(dtype, *shape, seed=2), np.zeros(shape, dtype), np.zeros(shape, dtype)
    norm, mode = cudnn.create_lrn_descriptor(), cudnn.DIVNORM_PRECOMPUTED_MEANS
    cudnn.set_lrn_descriptor(norm, *settings)
    arrays = (In(x), In(dy), Out(y), Out(dx), Scratch(shape, dtype), Scratch(shape, dtype))
    with offload_args(*arrays, device=gpu) as (px, pdy, py, pdx, temp, other):
        t = cudnn.tensor(px)
        cudnn.divisive_normalization_forward(norm, mode, 1, t, px, None, temp, other, 0, t, py)
        cudnn.divisive_normalization_backward(norm, mode, 1, t, px, None, pdy, temp, other, 0, t, pdx, None)
    x, dy = exact(x), exact(dy)
    close(y, deviations(x, *settings), dtype)
    close(dx, differences(lambda array: float((dy * deviations(array, *settings)).sum()), [x])[0], dtype)
