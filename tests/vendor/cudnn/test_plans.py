"""Plans of cuDNN's fused graphs on a GPU, compared with sums in float64, and refused graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.convolution import BFLOAT16, close, convolved, drawn, in_layout
from offload_args import Device, In, Out, cudnn, offload_args
from offload_args.errors import (
    ArgumentError,
    ArgumentTypeError,
    ExtentError,
    LibraryError,
)

LIBRARY = "cudnn"


def test_a_product_of_float32_is_exact_or_its_refusal_names_tf32(gpu: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 64, 512), (1, 512, 32)))
    y = np.zeros((1, 64, 32), np.float32)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    with offload_args(In(a), In(b), y, device=gpu) as (pa, pb, py):
        graph = cudnn.Graph(gpu)
        graph.output(graph.matmul(graph.input(pa, "BMK"), graph.input(pb, "BKN")), py, "BMN")
        try:
            plan, error = graph.plan(), 2e-5
        except LibraryError as refused:  # some engines of GPUs with TF32 do not report that they use it
            assert "plan(tf32=True) takes them; blas.gemm is exact" in str(refused)
            assert Device(gpu).compute_capability >= (8, 0)
            plan, error = graph.plan(tf32=True), 2e-3
        plan(pa, pb, py)
    np.testing.assert_allclose(y, expected, rtol=0, atol=error * float(np.abs(expected).max()))


# -- graphs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
def test_a_convolution_with_bias_and_relu_as_one_plan(gpu: str, dtype: Any) -> None:
    x, w, b = drawn((2, 16, 8, 8), dtype), drawn((32, 16, 3, 3), dtype, 2), drawn((32,), dtype, 3)
    hx, hw = in_layout(x, "NHWC"), np.ascontiguousarray(w.transpose(0, 2, 3, 1))
    y = np.zeros((2, 8, 8, 32), dtype)
    with offload_args(In(hx), In(hw), In(b), Out(y), device=gpu) as (px, pw, pb, py):
        plans = []
        for _ in range(2):
            graph = cudnn.Graph(gpu)
            tx, tw, tb = graph.input(px, "NHWC"), graph.input(pw, "KHWC"), graph.input(pb, "C")
            result = graph.relu(graph.add(graph.convolution(tx, tw, padding=1), tb))
            plans.append(graph.output(result, py, "NHWC").plan())
        assert plans[0] is plans[1], "plans are kept"
        plans[0](px, pw, pb, py)
        with pytest.raises(ExtentError, match=r"cudnn.Plan: argument 4 needs"):
            plans[0](px, pw, pb, py[:1])
    expected = np.maximum(convolved(x, w, 1, 1, 1, 1) + np.asarray(b, np.float64)[None, :, None, None], 0)
    close(y, in_layout(expected, "NHWC"), dtype)


def test_a_matmul_with_bias_and_gelu_as_one_plan(gpu: str) -> None:
    a, b, bias = drawn((1, 32, 64), np.float16), drawn((1, 64, 48), np.float16, 2), drawn((1, 1, 48), np.float16, 3)
    y = np.zeros((1, 32, 48), np.float16)
    with offload_args(In(a), In(b), In(bias), Out(y), device=gpu) as (pa, pb, pbias, py):
        graph = cudnn.Graph(gpu)
        ta, tb, tbias = graph.input(pa, "BMK"), graph.input(pb, "BKN"), graph.input(pbias, "BMN")
        plan = graph.output(graph.gelu(graph.add(graph.matmul(ta, tb), tbias)), py, "BMN").plan()
        plan(pa, pb, pbias, py)
    z = a.astype(np.float64) @ b.astype(np.float64) + bias
    erf = np.vectorize(__import__("math").erf)
    close(y, z / 2 * (1 + erf(z / 2**0.5)), np.float16)


def test_an_input_that_no_operation_uses_is_refused(gpu: str) -> None:
    x = np.zeros((1, 8, 8, 8), np.float16)
    with offload_args(x, x.copy(), device=gpu) as (px, py):
        graph = cudnn.Graph(gpu)
        half = graph.multiply(graph.input(px, "NHWC"), 0.5)
        graph.input(px, "NHWC")
        with pytest.raises(ArgumentError, match="input 2 is used by no operation"):
            graph.output(half, py, "NHWC").plan()


def test_operations_that_cudnn_does_not_take_as_one_are_refused_with_its_reason(gpu: str) -> None:
    x, w = np.zeros((2, 8, 8, 16), np.float16), np.zeros((16, 3, 3, 16), np.float16)
    graph = cudnn.Graph(gpu)
    tx, tw = graph.input(x, "NHWC"), graph.input(w, "KHWC")
    twice = graph.convolution(graph.convolution(tx, tw, padding=1), tw, padding=1)
    with pytest.raises(LibraryError, match=r"does not take these operations as one: (?!it has no engine).{20}"):
        graph.output(twice, x, "NHWC").plan()


def test_a_factor_that_is_no_number_is_refused() -> None:
    graph = cudnn.Graph()
    with pytest.raises(ArgumentTypeError, match="needs a number or a tensor of the graph, got '2'"):
        graph.multiply(graph.input(np.zeros((1, 2, 8, 16), np.float16)), "2")


def test_a_tensor_of_another_graph_is_refused() -> None:
    x, graph, other = np.zeros((1, 2, 8, 16), np.float16), cudnn.Graph(), cudnn.Graph()
    mine, theirs = graph.input(x), other.input(x)
    for call, name in (
        (lambda: graph.add(mine, theirs), "cudnn.Graph: b"),
        (lambda: graph.relu(theirs), "cudnn.Graph: x"),
        (lambda: graph.matmul(mine, theirs), r"cudnn.Graph.matmul: b"),
        (lambda: graph.output(theirs, x), r"cudnn.Graph.output: of"),
    ):
        with pytest.raises(ArgumentError, match=f"{name} is a tensor of another graph"):
            call()


def test_a_layout_that_does_not_fit_a_matrix_is_refused() -> None:
    with pytest.raises(ArgumentError, match="layout 'BMK' has not the 2 axes of the pointer"):
        cudnn.Graph().input(np.zeros((4, 4), np.float16), "BMK")


def test_wrong_layouts_numbers_and_tensors_are_refused_by_name() -> None:
    x, w = np.zeros((1, 4, 8, 8), np.float16), np.zeros((4, 4, 3, 3), np.float16)
    graph = cudnn.Graph()
    tx, tw, volume = graph.input(x), graph.input(w, "KCHW"), graph.input(np.zeros((1, 4, 3, 3, 3), np.float16), "NCDHW")
    for call, error, words in (
        (
            lambda: cudnn.tensor(x, 5),
            ArgumentTypeError,
            r'cudnn\.tensor: layout needs to be letters, such as "NCHW", got',
        ),
        (lambda: graph.input(x, None), ArgumentTypeError, r"cudnn\.Graph\.input: layout needs to be letters"),
        (
            lambda: graph.input(x[..., ::-1], "BHSD"),
            ArgumentError,
            r"cudnn\.Graph\.input: needs strides of 0 or more whole elements",
        ),
        (
            lambda: cudnn.pooling(0, 1.5),
            ArgumentError,
            r"cudnn\.pooling: window needs a number, or 2 of them, got 1\.5",
        ),
        (lambda: cudnn.convolution(padding=(1, "a")), ArgumentError, "padding needs a number, or 2 of them"),
        (lambda: graph.relu("x"), ArgumentTypeError, "x needs to be a tensor of the graph, got"),
        (lambda: graph.add(tx, x), ArgumentTypeError, "b needs to be a tensor of the graph, got"),
        (lambda: graph.add(tx, volume), ArgumentError, "do not fit"),
        (lambda: graph.matmul(tx, 3), ArgumentTypeError, r"cudnn\.Graph\.matmul: b needs to be a tensor"),
        (lambda: graph.convolution(tx, volume), ArgumentError, "do not fit x of shape"),
        (lambda: graph.convolution(tx, tw, stride=0), ArgumentError, r"stride needs to be at least 1, got 0"),
        (lambda: graph.attention(tx, tx, None), ArgumentTypeError, "v needs to be a tensor of the graph, got None"),
        (lambda: graph.output(None, x), ArgumentTypeError, "of needs to be a tensor of the graph, got None"),
    ):
        with pytest.raises(error, match=words):
            call()


def test_the_fastest_engine_computes_the_same(gpu: str) -> None:
    x, w = drawn((2, 16, 8, 8), np.float16), drawn((32, 16, 3, 3), np.float16, 2)
    hx, hw = in_layout(x, "NHWC"), np.ascontiguousarray(w.transpose(0, 2, 3, 1))
    y = np.zeros((2, 8, 8, 32), np.float16)
    with offload_args(In(hx), In(hw), Out(y), device=gpu) as (px, pw, py):
        graph = cudnn.Graph(gpu)
        result = graph.convolution(graph.input(px, "NHWC"), graph.input(pw, "KHWC"), padding=1)
        plan = graph.output(result, py, "NHWC").plan(measured_on=(px, pw, py))
        py.fill(0)
        plan(px, pw, py)
    close(y, in_layout(convolved(x, w, 1, 1, 1, 1), "NHWC"), np.float16)
