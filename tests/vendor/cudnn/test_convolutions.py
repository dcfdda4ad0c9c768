"""cuDNN's convolutions and related functions on a GPU, against direct sums in float64, in all layouts and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.convolution import DTYPES, close, convolved, drawn, in_layout, windows
from offload_args import In, InOut, Out, Scratch, cudnn, offload_args
from offload_args.errors import (
    ArgumentError,
    DTypeError,
    ExtentError,
    LibraryError,
    LibraryVersionError,
)

LIBRARY = "cudnn"


CASES = [
    # layout, pad, step, gap, groups
    ("NCHW", 1, 1, 1, 1),
    ("NHWC", 1, 1, 1, 1),
    ("NCHW", 0, 2, 1, 1),
    ("NHWC", 2, 1, 2, 1),
    ("NCHW", 1, 1, 1, 2),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("layout", "pad", "step", "gap", "groups"), CASES)
def test_convolutions_forward_and_backward_are_as_direct_sums(
    gpu: str, dtype: Any, layout: str, pad: int, step: int, gap: int, groups: int
) -> None:
    x, w = drawn((2, 16, 9, 8), dtype), drawn((32, 16 // groups, 3, 3), dtype, 2)
    expected = convolved(x, w, pad, step, gap, groups)
    y, dy = np.zeros(expected.shape, dtype), drawn(expected.shape, dtype, 3)
    gradient_x, gradient_w = gradients(x, w, dy, pad, step, gap, groups)
    filters = "K" + layout[1:]
    hx, hy, hdy = (in_layout(array, layout) for array in (x, y, dy))
    hw = np.ascontiguousarray(w.transpose(["KCHW".index(filter_) for filter_ in filters]))
    hdx, hdw = np.zeros_like(hx), np.zeros_like(hw)
    conv = cudnn.convolution(padding=pad, stride=step, dilation=gap, groups=groups, dtype=dtype)
    arrays = (In(hx), In(hw), Out(hy), In(hdy), Out(hdx), Out(hdw))
    with offload_args(*arrays, device=gpu) as (px, pw, py, pdy, pdx, pdw):
        tx, fw, ty = cudnn.tensor(px, layout), cudnn.filter(pw, filters), cudnn.tensor(py, layout)
        forward = cudnn.CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
        cudnn.convolution_forward(1, tx, px, fw, pw, conv, forward, None, 0, 0, ty, py)
        data, weights = cudnn.CONVOLUTION_BWD_DATA_ALGO_1, cudnn.CONVOLUTION_BWD_FILTER_ALGO_1
        cudnn.convolution_backward_data(1, fw, pw, ty, pdy, conv, data, None, 0, 0, tx, pdx)
        cudnn.convolution_backward_filter(1, tx, px, ty, pdy, conv, weights, None, 0, 0, fw, pdw)
    close(hy, in_layout(expected, layout), dtype)
    close(hdx, in_layout(gradient_x, layout), dtype)
    close(hdw, gradient_w.transpose(["KCHW".index(filter_) for filter_ in filters]), dtype)


def gradients(x: Any, w: Any, dy: Any, pad: int, step: int, gap: int, groups: int) -> tuple[Any, Any]:
    """Return the gradients of a convolution, computed with direct sums."""
    dy = np.asarray(dy, np.float64)
    padded = np.zeros((*x.shape[:2], x.shape[2] + 2 * pad, x.shape[3] + 2 * pad))
    dw = np.zeros(w.shape)
    inputs, outputs = x.shape[1] // groups, w.shape[0] // groups
    rows, columns = dy.shape[2:]
    for g in range(groups):
        of_x, of_w = slice(g * inputs, (g + 1) * inputs), slice(g * outputs, (g + 1) * outputs)
        seen = windows(x[:, of_x], w.shape[2:], pad, step, gap)
        dw[of_w] = np.einsum("nchwij,nkhw->kcij", seen, dy[:, of_w])
        for i in range(w.shape[2]):
            for j in range(w.shape[3]):
                at = slice(gap * i, gap * i + step * (rows - 1) + 1, step)
                across = slice(gap * j, gap * j + step * (columns - 1) + 1, step)
                of_filter = np.asarray(w[of_w, :, i, j], np.float64)
                padded[:, of_x, at, across] += np.einsum("kc,nkhw->nchw", of_filter, dy[:, of_w])
    return padded[:, :, pad : pad + x.shape[2], pad : pad + x.shape[3]], dw


FINDS = {
    "forward": ("find_convolution_forward_algorithm", "get_convolution_forward_algorithm"),
    "data": ("find_convolution_backward_data_algorithm", "get_convolution_backward_data_algorithm"),
    "filter": ("find_convolution_backward_filter_algorithm", "get_convolution_backward_filter_algorithm"),
}


@pytest.mark.parametrize("way", FINDS)
def test_every_algorithm_that_cudnn_finds_computes_the_same(gpu: str, way: str) -> None:
    x, w = drawn((2, 8, 9, 8), np.float32), drawn((4, 8, 3, 3), np.float32, 2)
    y = convolved(x, w, 1, 1, 1, 1)
    dy = drawn(y.shape, np.float32, 3)
    dx, dw = gradients(x, w, dy, 1, 1, 1, 1)
    out = np.zeros({"forward": y, "data": dx, "filter": dw}[way].shape, np.float32)
    conv, find, get = cudnn.convolution(padding=1), *FINDS[way]
    with offload_args(In(x), In(w), In(dy), out, device=gpu) as (px, pw, pdy, pout), cudnn.create(gpu) as handle:
        tx, fw, ty = cudnn.tensor(px), cudnn.filter(pw), cudnn.tensor(pdy)
        order = {"forward": (tx, fw, conv, ty), "data": (fw, ty, conv, tx), "filter": (tx, ty, conv, fw)}[way]
        kinds = {"forward": (px, pw, pout), "data": (pw, pdy, pout), "filter": (px, pdy, pout)}[way]
        most = getattr(cudnn, f"{get}_max_count")(handle)
        counts, names = [], [f"{find}_ex", find, f"{get}_v7"]
        arguments = order[0], kinds[0], order[1], kinds[1], conv, order[3], kinds[2]
        lists = [
            getattr(cudnn, names[0])(*arguments, most, None, 0, handle=handle),
            getattr(cudnn, names[1])(handle, *order, most),
            getattr(cudnn, names[2])(handle, *order, most),
        ]
        for count, results in lists:
            usable = [row for row in results[:count] if row[1] == 0]
            counts.append(len(usable))
            times = [row[2] for row in usable if row[2] >= 0]
            assert times == sorted(times)
            for algorithm, _, _, memory, *_ in usable:
                pout.fill(7)
                run_one(way, order, kinds, algorithm)
                close(pout.to_host(), {"forward": y, "data": dx, "filter": dw}[way], np.float32)
                assert memory >= 0
    assert all(counts[1:]), counts  # the first call had no workspace


def run_one(way: str, order: Any, pointers: Any, algorithm: int) -> None:
    a, b, conv, c = order
    name = "convolution_forward" if way == "forward" else f"convolution_backward_{way}"
    getattr(cudnn, name)(1, a, pointers[0], b, pointers[1], conv, algorithm, None, 0, 0, c, pointers[2])


@pytest.mark.parametrize("layout", ["NCDHW", "NDHWC"])
def test_volumes_are_convolved_and_pooled(gpu: str, layout: str) -> None:
    x, w = drawn((2, 4, 5, 6, 7), np.float32), drawn((3, 4, 2, 3, 3), np.float32, 2)
    padded = np.pad(np.asarray(x, np.float64), ((0, 0), (0, 0), (0, 0), (1, 1), (1, 1)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (2, 3, 3), axis=(2, 3, 4))[:, :, :, ::2]
    expected = np.einsum("ncdhwijk,ocijk->nodhw", seen, np.asarray(w, np.float64))
    blocks = np.asarray(x, np.float64)[:, :, :4, :, :6].reshape(2, 4, 2, 2, 3, 2, 3, 2)
    largest = blocks.max(axis=(3, 5, 7))
    hx, hy, hm = (
        np.ascontiguousarray(array.transpose(["NCDHW".index(letter) for letter in layout]), np.float32)
        for array in (x, np.zeros(expected.shape), np.zeros(largest.shape))
    )
    filters = "K" + layout[1:]
    hw = np.ascontiguousarray(w.transpose(["KCDHW".index(letter) for letter in filters]))
    conv = cudnn.convolution(padding=(0, 1, 1), stride=(1, 2, 1), axes=3)
    window = cudnn.pooling(cudnn.POOLING_MAX, 2, axes=3)
    with offload_args(In(hx), In(hw), Out(hy), Out(hm), device=gpu) as (px, pw, py, pm):
        tx, fw, ty, tm = cudnn.tensor(px, layout), cudnn.filter(pw, filters), cudnn.tensor(py, layout), None
        assert cudnn.get_convolution_nd_forward_output_dim(conv, tx, fw, 5) == expected.shape
        algorithm = cudnn.CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
        cudnn.convolution_forward(1, tx, px, fw, pw, conv, algorithm, None, 0, 0, ty, py)
        tm = cudnn.tensor(pm, layout)
        assert cudnn.get_pooling_nd_forward_output_dim(window, tx, 5) == largest.shape
        cudnn.pooling_forward(window, 1, tx, px, 0, tm, pm)
    back = ["N" + layout[1:] == layout and layout.index(letter) for letter in "NCDHW"]
    close(hy.transpose(back), expected, np.float32)
    close(hm.transpose(back), largest, np.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC", "gaps"])
def test_pooling_softmax_and_activation_are_as_direct_sums(gpu: str, dtype: Any, layout: str) -> None:
    x = drawn((2, 8, 6, 6), dtype)
    letters = "NCHW" if layout == "gaps" else layout
    pooled, soft, rectified = (in_layout(np.zeros(shape, dtype), letters) for shape in [(2, 8, 3, 3), x.shape, x.shape])
    hx = in_layout(x, layout)
    window = cudnn.pooling(cudnn.POOLING_MAX, 2)
    relu = cudnn.activation(cudnn.ACTIVATION_RELU)
    with offload_args(In(hx), Out(pooled), Out(soft), Out(rectified), device=gpu) as (px, pp, ps, pr):
        tx, tp, ts = (cudnn.tensor(array, letters) for array in (px, pp, ps))
        cudnn.pooling_forward(window, 1, tx, px, 0, tp, pp)
        cudnn.softmax_forward(cudnn.SOFTMAX_ACCURATE, cudnn.SOFTMAX_MODE_CHANNEL, 1, tx, px, 0, ts, ps)
        cudnn.activation_forward(relu, 1, tx, px, 0, ts, pr)
    wide = np.asarray(x, np.float64)
    exponents = np.exp(wide - wide.max(axis=1, keepdims=True))
    close(pooled, in_layout(windows(x, (2, 2), 0, 2, 1).max(axis=(4, 5)), letters), dtype)
    close(soft, in_layout(exponents / exponents.sum(axis=1, keepdims=True), letters), dtype)
    close(rectified, in_layout(np.maximum(wide, 0), letters), dtype)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_batch_normalization_uses_the_mean_and_variance_of_each_channel(gpu: str, layout: str, dtype: Any) -> None:
    x, y = drawn((4, 8, 5, 6), dtype), np.zeros((4, 8, 5, 6), dtype)
    scale, bias = drawn((8,), np.float32, 2), drawn((8,), np.float32, 3)
    mean, variance = np.zeros(8, np.float32), np.ones(8, np.float32)
    hx, hy = in_layout(x, layout), in_layout(y, layout)
    arrays = (In(hx), Out(hy), In(scale), In(bias), InOut(mean), InOut(variance))
    with offload_args(*arrays, device=gpu) as (px, py, pscale, pbias, pmean, pvariance):
        tx, channels = cudnn.tensor(px, layout), cudnn.tensor(pscale, "C")
        mode = cudnn.BATCHNORM_SPATIAL
        cudnn.batch_normalization_forward_training(
            mode, 1, 0, tx, px, tx, py, channels, pscale, pbias, 0.5, pmean, pvariance, 1e-5, None, None
        )
    wide = np.asarray(x, np.float64)
    means = wide.mean(axis=(0, 2, 3), keepdims=True)
    deviations = np.sqrt(wide.var(axis=(0, 2, 3), keepdims=True) + 1e-5)
    expected = (wide - means) / deviations * scale[None, :, None, None] + bias[None, :, None, None]
    close(hy, in_layout(expected, layout), dtype)
    np.testing.assert_allclose(mean, means.ravel() / 2, atol=1e-3)


def test_alpha_and_beta_are_doubles_for_arrays_of_doubles(gpu: str) -> None:
    x, y = drawn((1, 2, 3, 4), np.float64), drawn((1, 2, 3, 4), np.float64, 2)
    expected = x / 3 + y * 0.7
    with offload_args(In(x), InOut(y), device=gpu) as (px, py):
        cudnn.transform_tensor(1 / 3, cudnn.tensor(px), px, 0.7, cudnn.tensor(py), py)
    np.testing.assert_allclose(y, expected, rtol=1e-14)


def test_an_array_that_does_not_fit_its_descriptor_is_refused_with_both_names(gpu: str) -> None:
    x, y, half = np.zeros((1, 2, 3, 4), np.float32), np.zeros((1, 2, 3, 4), np.float32), np.zeros(24, np.float16)
    relu = cudnn.activation(cudnn.ACTIVATION_RELU)
    with offload_args(x, y, half, device=gpu) as (px, py, phalf):
        tx = cudnn.tensor(px)
        with pytest.raises(
            ExtentError, match=r"activation_forward: y needs 24 elements \(the size of yDesc=24\), has 23"
        ):
            cudnn.activation_forward(relu, 1, tx, px, 0, tx, py.reshape(24)[1:])
        with pytest.raises(
            DTypeError, match="activation_forward: x needs float32, as xDesc says, got a pointer to float16"
        ):
            cudnn.activation_forward(relu, 1, tx, phalf, 0, tx, py)
        with pytest.raises(ArgumentError, match="yDesc describes nothing yet; set its shape first"):
            cudnn.activation_forward(relu, 1, tx, px, 0, cudnn.create_tensor_descriptor(), py)


def test_a_workspace_too_small_is_refused_and_one_that_suffices_is_used(gpu: str) -> None:
    x, w, y = drawn((1, 8, 8, 8), np.float32), drawn((8, 8, 3, 3), np.float32), np.zeros((1, 8, 8, 8), np.float32)
    conv = cudnn.convolution(padding=1)
    algorithm = cudnn.CONVOLUTION_FWD_ALGO_GEMM
    room = Scratch((1 << 22,), np.uint8)
    with offload_args(In(x), In(w), Out(y), room, device=gpu) as (px, pw, py, proom), cudnn.create(gpu) as handle:
        tx, fw, ty = cudnn.tensor(px), cudnn.filter(pw), cudnn.tensor(py)
        needed = cudnn.get_convolution_forward_workspace_size(handle, tx, fw, conv, ty, algorithm)
        if needed:
            with pytest.raises(ExtentError, match=f"workSpace needs {needed} bytes, as cudnnGetConvolutionForward"):
                cudnn.convolution_forward(1, tx, px, fw, pw, conv, algorithm, proom, needed - 1, 0, ty, py)
        cudnn.convolution_forward(1, tx, px, fw, pw, conv, algorithm, proom, 1 << 22, 0, ty, py)
    close(y, convolved(x, w, 1, 1, 1, 1), np.float32)


def test_a_failure_of_the_library_names_its_status(gpu: str) -> None:
    x, y = np.zeros((1, 2, 3, 4), np.float32), np.zeros((1, 2, 4, 4), np.float32)
    with (
        pytest.raises(LibraryError, match="cudnn.activation_forward: the library returned CUDNN_STATUS_BAD_PARAM"),
        offload_args(x, y, device=gpu) as (px, py),
    ):
        relu = cudnn.activation(cudnn.ACTIVATION_RELU)
        cudnn.activation_forward(relu, 1, cudnn.tensor(px), px, 0, cudnn.tensor(py), py)


def test_a_dropout_keeps_its_states_and_its_mask(gpu: str) -> None:
    x, y, back = (
        np.ones((1, 1, 64, 64), np.float32),
        np.zeros((1, 1, 64, 64), np.float32),
        np.zeros_like(np.ones((1, 1, 64, 64), np.float32)),
    )
    dropout = cudnn.create_dropout_descriptor()
    with cudnn.create(gpu) as handle:
        nbytes = cudnn.dropout_get_states_size(handle)
        with offload_args(Scratch((nbytes,), np.uint8), device=gpu) as (states,):
            cudnn.set_dropout_descriptor(dropout, handle, 0.25, states, nbytes, 7)
        with offload_args(In(x), Out(y), Out(back), Scratch((1 << 16,), np.uint8), device=gpu) as (px, py, pback, mask):
            tx = cudnn.tensor(px)
            size = cudnn.dropout_get_reserve_space_size(tx)
            cudnn.dropout_forward(dropout, tx, px, tx, py, mask, size)
            cudnn.dropout_backward(dropout, tx, px, tx, pback, mask, size)
            with pytest.raises(
                ExtentError, match=f"reserveSpace needs {size} bytes, as cudnnDropoutGetReserveSpaceSize"
            ):
                cudnn.dropout_forward(dropout, tx, px, tx, py, mask, size - 1)
    assert 0.2 < (y == 0).mean() < 0.3 and np.allclose(y[y != 0], 4 / 3)
    np.testing.assert_array_equal(y, back)


def test_a_recurrent_network_is_as_its_formula(gpu: str) -> None:
    rng = np.random.default_rng(1)
    time, batch, inputs, hidden = 5, 3, 4, 6
    x = rng.standard_normal((time, batch, inputs)).astype(np.float32)
    y = np.zeros((time, batch, hidden), np.float32)
    rnn, data, out = (
        cudnn.create_rnn_descriptor(),
        cudnn.create_rnn_data_descriptor(),
        cudnn.create_rnn_data_descriptor(),
    )
    f32, layout = cudnn.DATA_FLOAT, cudnn.RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED
    fill = np.zeros(1, np.float32)
    cudnn.set_rnn_descriptor_v8(
        rnn, cudnn.RNN_ALGO_STANDARD, cudnn.RNN_TANH, cudnn.RNN_NO_BIAS, cudnn.UNIDIRECTIONAL, cudnn.LINEAR_INPUT,
        f32, f32, cudnn.DEFAULT_MATH, inputs, hidden, hidden, 1, None, 0,
    )  # fmt: skip
    cudnn.set_rnn_data_descriptor(data, f32, layout, time, batch, inputs, [time] * batch, fill)
    cudnn.set_rnn_data_descriptor(out, f32, layout, time, batch, hidden, [time] * batch, fill)
    lengths = np.full(batch, time, np.int32)
    with cudnn.create(gpu) as handle:
        nbytes = cudnn.get_rnn_weight_space_size(handle, rnn)
    weights = (rng.standard_normal(nbytes // 4) / 3).astype(np.float32)
    matrix, bias = cudnn.create_tensor_descriptor(), cudnn.create_tensor_descriptor()
    with offload_args(In(x), Out(y), In(weights), In(lengths), device=gpu) as (px, py, pw, plengths):
        places = [cudnn.get_rnn_weight_params(rnn, 0, nbytes, pw, which, matrix, bias)[0] // 4 for which in range(2)]
        cudnn.rnn_forward(
            rnn, cudnn.FWD_MODE_INFERENCE, plengths, data, px, out, py, None, None, None, None, None, None,
            nbytes, pw, 0, None, 0, None,
        )  # fmt: skip
    of_input = weights[places[0] : places[0] + hidden * inputs].reshape(hidden, inputs)
    of_state = weights[places[1] : places[1] + hidden * hidden].reshape(hidden, hidden)
    state = np.zeros((batch, hidden))
    for step in range(time):
        state = np.tanh(x[step] @ of_input.T + state @ of_state.T)
        np.testing.assert_allclose(y[step], state, atol=2e-3)


def test_arrays_with_no_descriptor_have_the_extents_of_their_sizes(gpu: str) -> None:
    batch, dim, length, width = 2, 3, 16, 4
    x, weight, bias = (
        drawn((batch, dim, length), np.float32),
        drawn((dim, width), np.float32, 2),
        drawn((dim,), np.float32, 3),
    )
    y = np.zeros_like(x)
    with offload_args(In(x), In(weight), In(bias), Out(y), device=gpu) as (px, pw, pb, py):
        call = cudnn.causal_conv1d_forward
        identity = cudnn.CAUSAL_CONV1D_ACTIVATION_IDENTITY
        if cudnn.get_version() < 92200:
            with pytest.raises(LibraryVersionError, match="has no cudnnCausalConv1dForward"):
                call(px, pw, pb, py, batch, dim, length, width, np.float32, identity)
            py.fill(0)
            return
        with pytest.raises(ExtentError, match=r"weight needs 15 elements"):
            call(px, pw, pb, py, batch, dim, length, 5, np.float32, identity)
        call(px, pw, pb, py, batch, dim, length, width, np.float32, identity)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (width - 1, 0)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, width, axis=2)
    close(y, np.einsum("bdtj,dj->bdt", seen, weight.astype(np.float64)) + bias[None, :, None], np.float32)


# -- the dtype's own precision ---------------------------------------------------------------------------------------


def wide(x: Any, w: Any) -> Any:
    """Return a convolution in float64, with the channels last."""
    return in_layout(convolved(x, w, 1, 1, 1, 1), "NHWC")


# Sums of 9 * 64 products have errors of about 5e-4 of the largest sum in TF32, and of 1e-5 in Winograd's algorithm.
@pytest.mark.parametrize(("channels", "outputs"), [(64, 32), (3, 8), (61, 17)])
def test_convolutions_of_float32_are_exact_to_it_with_channels_last(gpu: str, channels: int, outputs: int) -> None:
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((2, channels, 9, 8)).astype(np.float32)
    w = rng.standard_normal((outputs, channels, 3, 3)).astype(np.float32)
    expected = wide(x, w)
    hx, hw = in_layout(x, "NHWC"), np.ascontiguousarray(w.transpose(0, 2, 3, 1))
    once, planned = np.zeros(expected.shape, np.float32), np.zeros(expected.shape, np.float32)
    conv, algorithm = cudnn.convolution(padding=1), cudnn.CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
    with offload_args(In(hx), In(hw), Out(once), Out(planned), device=gpu) as (px, pw, py, pz):
        tx, fw, ty = cudnn.tensor(px, "NHWC"), cudnn.filter(pw, "KHWC"), cudnn.tensor(py, "NHWC")
        cudnn.convolution_forward(1, tx, px, fw, pw, conv, algorithm, None, 0, 0, ty, py)
        graph = cudnn.Graph(gpu)
        result = graph.convolution(graph.input(px, "NHWC"), graph.input(pw, "KHWC"), padding=1)
        graph.output(result, pz, "NHWC").plan()(px, pw, pz)
    for actual in (once, planned):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5 * float(np.abs(expected).max()))


def test_tf32_is_a_choice_of_a_convolution_and_of_a_plan(gpu: str) -> None:
    x, w = drawn((2, 64, 9, 8), np.float32), drawn((32, 64, 3, 3), np.float32, 2)
    hx, hw = in_layout(x, "NHWC"), np.ascontiguousarray(w.transpose(0, 2, 3, 1))
    expected = wide(x, w)
    once, planned = np.zeros(expected.shape, np.float32), np.zeros(expected.shape, np.float32)
    conv, algorithm = cudnn.convolution(padding=1, tf32=True), cudnn.CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
    with offload_args(In(hx), In(hw), Out(once), Out(planned), device=gpu) as (px, pw, py, pz):
        tx, fw, ty = cudnn.tensor(px, "NHWC"), cudnn.filter(pw, "KHWC"), cudnn.tensor(py, "NHWC")
        cudnn.convolution_forward(1, tx, px, fw, pw, conv, algorithm, None, 0, 0, ty, py)
        plans = []
        for tf32 in (True, False):
            graph = cudnn.Graph(gpu)
            result = graph.convolution(graph.input(px, "NHWC"), graph.input(pw, "KHWC"), padding=1)
            plans.append(graph.output(result, pz, "NHWC").plan(tf32=tf32))
        assert plans[0] is not plans[1]
        plans[0](px, pw, pz)
    for actual in (once, planned):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-3 * float(np.abs(expected).max()))
