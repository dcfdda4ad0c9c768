"""cuDNN's descriptors, with the real library but without a GPU.

OFFLOAD_ARGS_CUDNN can name a library that is not installed.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.devices import library_or_skip
from helpers.memory import check_no_leak
from offload_args import _core, cudnn
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    ExtentError,
    LibraryError,
    SizeOverflowError,
    StalePointerError,
)

IMAGES = np.zeros((2, 8, 9, 16), np.float16)  # N, H, W, C


@pytest.fixture(autouse=True)
def loaded() -> None:
    library_or_skip("cudnn", "descriptors")


def shape_of(descriptor: Any, axes: int = 4) -> tuple[Any, ...]:
    dtype, _, shape, strides = cudnn.get_tensor_nd_descriptor(descriptor, axes)
    return dtype, shape, strides


@pytest.mark.parametrize(
    ("array", "layout", "shape", "strides"),
    [
        (IMAGES, "NHWC", (2, 16, 8, 9), (1152, 1, 144, 16)),
        (IMAGES, "NCHW", (2, 8, 9, 16), (1152, 144, 16, 1)),
        (IMAGES[:, ::2, 1:7, :4], "NHWC", (2, 4, 4, 6), (1152, 1, 288, 16)),
        (np.zeros((3, 5)), "NC", (3, 5, 1, 1), (5, 1, 1, 1)),
        (np.zeros(7, np.float32), "C", (1, 7, 1, 1), (7, 1, 1, 1)),
        (np.zeros((2, 3, 4, 5, 6), np.float32), "NDHWC", (2, 6, 3, 4, 5), (360, 1, 120, 30, 6)),
    ],
)
def test_a_tensor_has_the_shape_and_strides_of_its_array(array: Any, layout: str, shape: Any, strides: Any) -> None:
    built = cudnn.tensor(array, layout)
    codes = {"float16": cudnn.DATA_HALF, "float32": cudnn.DATA_FLOAT, "float64": cudnn.DATA_DOUBLE}
    assert shape_of(built, len(shape)) == (codes[array.dtype.name], shape, strides)


def test_a_filter_has_its_channels_first_or_last() -> None:
    first, last = np.zeros((8, 4, 3, 5), np.float32), np.zeros((8, 3, 5, 4), np.float32)
    for built, layout in ((cudnn.filter(first), cudnn.TENSOR_NCHW), (cudnn.filter(last, "KRSC"), cudnn.TENSOR_NHWC)):
        assert cudnn.get_filter_nd_descriptor(built, 4) == (cudnn.DATA_FLOAT, layout, 4, (8, 4, 3, 5))
        assert cudnn.get_filter_size_in_bytes(built) == first.nbytes


def test_settings_of_convolutions_poolings_and_activations_come_back() -> None:
    convolution = cudnn.convolution(padding=(1, 2), stride=3, dilation=2, groups=4)
    settings = cudnn.get_convolution_nd_descriptor(convolution, 2)
    assert settings == (2, (1, 2), (3, 3), (2, 2), cudnn.CROSS_CORRELATION, cudnn.DATA_FLOAT)
    assert cudnn.get_convolution_group_count(convolution) == 4
    pooling = cudnn.pooling(cudnn.POOLING_MAX, 2, padding=1)
    assert cudnn.get_pooling_nd_descriptor(pooling, 2)[2:] == (2, (2, 2), (1, 1), (2, 2))
    assert cudnn.get_activation_descriptor(cudnn.activation(cudnn.ACTIVATION_ELU, 0.5))[2] == 0.5
    sequences = cudnn.create_rnn_data_descriptor()
    layout = cudnn.RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED
    cudnn.set_rnn_data_descriptor(sequences, cudnn.DATA_HALF, layout, 7, 3, 5, [7, 4, 2], np.array([0.25], np.float16))
    fill = np.zeros(4, np.float16)
    assert cudnn.get_rnn_data_descriptor(sequences, 3, fill) == (cudnn.DATA_HALF, layout, 7, 3, 5, (7, 4, 2))
    assert fill[0] == 0.25


def test_convolutions_compute_in_their_own_dtype_unless_tf32_is_asked_for() -> None:
    half, single, double = cudnn.TENSOR_OP_MATH, cudnn.FMA_MATH, cudnn.DEFAULT_MATH
    f32, f64, i32 = cudnn.DATA_FLOAT, cudnn.DATA_DOUBLE, cudnn.DATA_INT32
    cases: list[tuple[dict[str, Any], int, int]] = [
        ({}, single, f32),
        ({"tf32": True}, half, f32),
        ({"compute": np.float32}, single, f32),
        ({"dtype": np.float64}, double, f64),
        ({"compute": np.float64}, double, f64),
        ({"dtype": np.float16}, half, f32),
        ({"dtype": "bfloat16"}, half, f32),
        ({"dtype": np.float16, "compute": np.float16}, half, cudnn.DATA_HALF),
        ({"dtype": np.int8}, half, i32),
    ]
    for options, math, sums in cases:
        built = cudnn.convolution(**options)
        assert cudnn.get_convolution_math_type(built) == math, options
        assert cudnn.get_convolution_nd_descriptor(built, 2)[-1] == sums, options
    with pytest.raises(ArgumentError, match=r"tf32=True needs the dtype float32, got float16; leave it out"):
        cudnn.convolution(dtype=np.float16, tf32=True)


def test_what_each_descriptor_was_set_to_comes_back() -> None:
    f32, propagate = cudnn.DATA_FLOAT, cudnn.PROPAGATE_NAN
    convolution, pooling = cudnn.create_convolution_descriptor(), cudnn.create_pooling_descriptor()
    cudnn.set_convolution2d_descriptor(convolution, 1, 2, 3, 4, 5, 6, cudnn.CROSS_CORRELATION, f32)
    assert cudnn.get_convolution2d_descriptor(convolution) == (1, 2, 3, 4, 5, 6, cudnn.CROSS_CORRELATION, f32)
    cudnn.set_convolution_math_type(convolution, cudnn.FMA_MATH)
    cudnn.set_convolution_reorder_type(convolution, cudnn.NO_REORDER)
    assert cudnn.get_convolution_math_type(convolution) == cudnn.FMA_MATH
    assert cudnn.get_convolution_reorder_type(convolution) == cudnn.NO_REORDER
    cudnn.set_pooling2d_descriptor(pooling, cudnn.POOLING_MAX, propagate, 2, 3, 1, 0, 4, 5)
    assert cudnn.get_pooling2d_descriptor(pooling) == (cudnn.POOLING_MAX, propagate, 2, 3, 1, 0, 4, 5)
    built, filters = cudnn.create_tensor_descriptor(), cudnn.filter(np.zeros((2, 4, 5, 3), np.float32), "KHWC")
    cudnn.set_tensor4d_descriptor_ex(built, f32, 2, 3, 4, 5, 100, 30, 6, 1)
    assert cudnn.get_tensor4d_descriptor(built) == (f32, 2, 3, 4, 5, 100, 30, 6, 1)
    assert cudnn.get_tensor_size_in_bytes(built) == 4 * (100 + 2 * 30 + 3 * 6 + 4 + 1)
    cudnn.set_tensor_nd_descriptor_ex(built, cudnn.TENSOR_NHWC, cudnn.DATA_HALF, 4, (2, 3, 4, 5))
    assert shape_of(built) == (cudnn.DATA_HALF, (2, 3, 4, 5), (60, 1, 15, 3))
    assert cudnn.get_filter4d_descriptor(filters) == (f32, cudnn.TENSOR_NHWC, 2, 3, 4, 5)
    combination, transform = cudnn.create_op_tensor_descriptor(), cudnn.create_tensor_transform_descriptor()
    cudnn.set_op_tensor_descriptor(combination, cudnn.OP_TENSOR_MAX, f32, propagate)
    assert cudnn.get_op_tensor_descriptor(combination) == (cudnn.OP_TENSOR_MAX, f32, propagate)
    folding = (1, 2, 3, 4), (5, 6, 7, 8), (2, 3), cudnn.TRANSFORM_FOLD
    cudnn.set_tensor_transform_descriptor(transform, 4, cudnn.TENSOR_NHWC, *folding)
    tensor_transform_descriptor = cudnn.get_tensor_transform_descriptor(transform, 4)
    assert tensor_transform_descriptor == (cudnn.TENSOR_NHWC, folding[0], folding[1], (2, 3, 0, 0), folding[3])


def test_what_networks_losses_and_attention_were_set_to_comes_back() -> None:
    f32, propagate, softmax = cudnn.DATA_FLOAT, cudnn.PROPAGATE_NAN, cudnn.LOSS_NORMALIZATION_SOFTMAX
    loss, rnn, attention = (
        make() for make in (cudnn.create_ctc_loss_descriptor, cudnn.create_rnn_descriptor, cudnn.create_attn_descriptor)
    )
    cudnn.set_ctc_loss_descriptor(loss, f32)
    assert cudnn.get_ctc_loss_descriptor(loss) == f32
    for version, settings in (
        ("ex", (f32, softmax, propagate)),
        ("v8", (f32, softmax, propagate, 7)),
        ("v9", (f32, softmax, cudnn.CTC_SKIP_OOB_GRADIENTS, 9)),
    ):
        getattr(cudnn, f"set_ctc_loss_descriptor_{version}")(loss, *settings)
        assert getattr(cudnn, f"get_ctc_loss_descriptor_{version}")(loss) == settings
    kinds = cudnn.RNN_ALGO_STANDARD, cudnn.LSTM, cudnn.RNN_DOUBLE_BIAS, cudnn.BIDIRECTIONAL, cudnn.LINEAR_INPUT
    settings = (*kinds, f32, f32, cudnn.FMA_MATH, 3, 4, 4, 2)
    cudnn.set_rnn_descriptor_v8(rnn, *settings, None, cudnn.RNN_PADDED_IO_ENABLED)
    results = cudnn.get_rnn_descriptor_v8(rnn)
    assert results[:12] == settings and results[-1] == cudnn.RNN_PADDED_IO_ENABLED
    cudnn.rnn_set_clip_v8(rnn, cudnn.RNN_CLIP_MINMAX, cudnn.NOT_PROPAGATE_NAN, -1.5, 2.5)
    assert cudnn.rnn_get_clip_v8(rnn) == (cudnn.RNN_CLIP_MINMAX, cudnn.NOT_PROPAGATE_NAN, -1.5, 2.5)
    cudnn.rnn_set_clip_v9(rnn, cudnn.RNN_CLIP_MINMAX, -0.5, 0.25)
    assert cudnn.rnn_get_clip_v9(rnn) == (cudnn.RNN_CLIP_MINMAX, -0.5, 0.25)
    sizes, kind = (16, 17, 18, 8, 8, 9, 16, 5, 7, 3, 1), (cudnn.ATTN_ENABLE_PROJ_BIASES, 2, 0.5, f32, f32)
    cudnn.set_attn_descriptor(attention, *kind, cudnn.DEFAULT_MATH, None, None, *sizes)
    results = cudnn.get_attn_descriptor(attention)
    assert results[:6] == (*kind, cudnn.DEFAULT_MATH) and results[-11:] == sizes


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: cudnn.tensor(IMAGES, "NHW"), ArgumentError, "layout needs one of the letters .* got 'NHW'"),
        (lambda: cudnn.tensor(IMAGES, "NHWX"), ArgumentError, "got 'NHWX'"),
        (lambda: cudnn.tensor(IMAGES[::-1], "NHWC"), ArgumentError, "needs strides of 0 or more whole elements"),
        (lambda: cudnn.tensor(np.zeros(3, np.complex64), "C"), ArgumentError, "no data type for complex64"),
        (lambda: cudnn.tensor(IMAGES.astype(">f2"), "NHWC"), ArgumentError, r"no data type for dtype\('>f2'\)"),
        (lambda: cudnn.tensor(np.zeros(3, object), "C"), ArgumentError, r"no data type for dtype\('O'\)"),
        (lambda: cudnn.tensor(IMAGES[:0], "NHWC"), ArgumentError, "needs at least one element, got the shape"),
        (lambda: cudnn.convolution(padding=-1), ArgumentError, "padding needs to be at least 0, got -1"),
        (lambda: cudnn.convolution(stride=(1, 0)), ArgumentError, r"stride needs to be at least 1, got \(1, 0\)"),
        (lambda: cudnn.pooling(cudnn.POOLING_MAX, 0), ArgumentError, "window needs to be at least 1, got 0"),
        (lambda: cudnn.tensor(3), ArgumentTypeError, "needs a DevicePtr or a NumPy array, got 3"),
        (lambda: cudnn.filter(IMAGES[:, :2], "KHWC"), ArgumentError, "needs elements without gaps"),
        (lambda: cudnn.convolution(padding=(1, 2, 3)), ArgumentError, "padding needs a number, or 2 of them"),
        (lambda: cudnn.get_tensor_nd_descriptor(cudnn.tensor(IMAGES), -1), ValueError, "nbDimsRequested needs to be"),
        (lambda: set_shape([1, 2, 3], [1] * 4), ExtentError, r"dimA needs 4 values \(nbDims\), got 3"),
        (lambda: set_shape("abcd", [1] * 4), ArgumentTypeError, "dimA needs a sequence"),
        (lambda: set_shape([1, 2, 3, 2**40], [1] * 4), SizeOverflowError, r"dimA\[3\] needs an integer"),
        (lambda: set_shape([1, -2, 3, 4], [1] * 4), LibraryError, "set_tensor_nd_descriptor: .*BAD_PARAM"),
        (lambda: attribute(np.arange(3), 4), ExtentError, "arrayOfElements needs 4 elements, has 3"),
        (lambda: attribute(np.arange(4.0), 4), DTypeError, "needs an array of int64, as attributeType"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(make: Callable[[], Any], error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def set_shape(shape: Any, strides: Any) -> None:
    cudnn.set_tensor_nd_descriptor(cudnn.create_tensor_descriptor(), cudnn.DATA_FLOAT, 4, shape, strides)


def attribute(values: Any, count: int) -> None:
    built = cudnn.backend_create_descriptor(cudnn.BACKEND_TENSOR_DESCRIPTOR)
    cudnn.backend_set_attribute(built, cudnn.ATTR_TENSOR_DIMENSIONS, cudnn.TYPE_INT64, count, values)


def test_every_kind_of_object_has_its_creator_and_its_destroyer() -> None:
    for kind in sorted(set(_core.object_kinds("cudnn")) - {"Handle", "BackendDescriptor", "FusedOpsPlan"}):
        name = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()
        enums = (0,) if kind.startswith("FusedOps") else ()
        built = getattr(cudnn, f"create_{name}")(*enums)
        getattr(cudnn, f"destroy_{name}")(built)
        with pytest.raises(StalePointerError):
            _ = built.address


@pytest.mark.parametrize(
    "count", [pytest.param(10_000, id="short"), pytest.param(100_000, id="long", marks=pytest.mark.slow)]
)
def test_descriptors_that_are_made_and_dropped_leave_no_memory(count: int) -> None:
    def make() -> None:
        for _ in range(count):
            cudnn.tensor(IMAGES, "NHWC"), cudnn.convolution()

    check_no_leak(make, 1 << 20)


def test_a_deprecated_function_works_and_warns_once() -> None:
    module = importlib.reload(cudnn)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        built = module.create_tensor_descriptor()
        for _ in range(2):
            module.set_tensor4d_descriptor(built, module.TENSOR_NCHW, module.DATA_FLOAT, 1, 2, 3, 4)
            module.set_filter4d_descriptor(module.create_filter_descriptor(), 0, 0, 1, 2, 3, 4)
    texts = [str(warning.message) for warning in caught if "set_filter4d" in str(warning.message)]
    assert len(texts) == 1 and "deprecated by its vendor" in texts[0] and caught[0].filename == __file__
    assert caught[0].category is DeprecationWarning


def test_the_library_says_its_version_and_the_names_of_its_statuses() -> None:
    version = cudnn.get_version()
    major, minor, patch = (cudnn.get_property(part) for part in range(3))
    assert version == major * 10000 + minor * 100 + patch
    assert cudnn.get_error_string(cudnn.raw.CUDNN_STATUS_BAD_PARAM) == "CUDNN_STATUS_BAD_PARAM"
