"""cuDNN's recurrent networks on a GPU, compared with their formulas in float64 and with finite differences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from helpers.gradients import differences
from offload_args import In, InOut, Scratch, cudnn, offload_args

LIBRARY = "cudnn"

INPUTS, HIDDEN, LENGTHS = 3, 4, (4, 2, 1)
STEPS, BATCH = max(LENGTHS), len(LENGTHS)
CELLS = {"ReLU": (cudnn.RNN_RELU, 1), "tanh": (cudnn.RNN_TANH, 1), "LSTM": (cudnn.LSTM, 4), "GRU": (cudnn.GRU, 3)}
LAYOUTS = {
    "steps first": cudnn.RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
    "sequences first": cudnn.RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED,
    "packed": cudnn.RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
}
CLOSE = {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-7}


def close(actual: Any, expected: Any, dtype: Any) -> None:
    scale = max(float(np.abs(expected).max(initial=0)), 1.0)
    actual = np.asarray(actual, np.float64)
    np.testing.assert_allclose(actual / scale, expected / scale, rtol=0, atol=CLOSE[np.dtype(dtype)])


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def cell(kind: str, x: Any, h: Any, c: Any, w: list[Any], b: list[Any]) -> tuple[Any, Any]:
    """Return the next state and memory. w and b: the matrices and biases of the input, and then of the state."""
    gates = len(w) // 2
    of_x = [x @ w[gate].T + b[gate] for gate in range(gates)]
    of_h = [h @ w[gates + gate].T + b[gates + gate] for gate in range(gates)]
    if kind == "GRU":
        reset, update = (sigmoid(of_x[gate] + of_h[gate]) for gate in range(2))
        return (1 - update) * np.tanh(of_x[2] + reset * of_h[2]) + update * h, c
    sums = [left + other for left, other in zip(of_x, of_h, strict=True)]
    if kind == "LSTM":
        c = sigmoid(sums[1]) * c + sigmoid(sums[0]) * np.tanh(sums[2])
        return sigmoid(sums[3]) * np.tanh(c), c
    return (np.maximum(sums[0], 0) if kind == "ReLU" else np.tanh(sums[0])), c


@dataclass
class Network:
    """A recurrent network: its descriptors, and the places of its matrices in its weights."""

    gpu: str
    kind: str
    dtype: Any
    layout: str
    directions: int
    layers: int

    def __post_init__(self) -> None:
        code = {"float16": cudnn.DATA_HALF, "float32": cudnn.DATA_FLOAT, "float64": cudnn.DATA_DOUBLE}
        of_data = code[np.dtype(self.dtype).name]
        of_math = cudnn.DATA_DOUBLE if self.dtype == np.float64 else cudnn.DATA_FLOAT
        self.rnn, self.x, self.y = cudnn.create_rnn_descriptor(), *(cudnn.create_rnn_data_descriptor() for _ in "xy")
        cudnn.set_rnn_descriptor_v8(
            self.rnn, cudnn.RNN_ALGO_STANDARD, CELLS[self.kind][0], cudnn.RNN_DOUBLE_BIAS,
            cudnn.BIDIRECTIONAL if self.directions == 2 else cudnn.UNIDIRECTIONAL, cudnn.LINEAR_INPUT, of_data,
            of_math, cudnn.FMA_MATH, INPUTS, HIDDEN, HIDDEN, self.layers, None,
            cudnn.RNN_PADDED_IO_ENABLED,
        )  # fmt: skip
        layout = LAYOUTS[self.layout]
        fill = np.zeros(1, self.dtype)
        for descriptor, width in ((self.x, INPUTS), (self.y, self.directions * HIDDEN)):
            cudnn.set_rnn_data_descriptor(descriptor, of_data, layout, STEPS, BATCH, width, LENGTHS, fill)
        self.h = cudnn.create_tensor_descriptor()
        shape = self.state_shape
        cudnn.set_tensor_nd_descriptor(self.h, of_data, 3, shape, (shape[1] * shape[2], shape[2], 1))
        with cudnn.create(self.gpu) as handle:
            self.nbytes = cudnn.get_rnn_weight_space_size(handle, self.rnn)
            _, self.reserved = cudnn.get_rnn_temp_space_sizes(handle, self.rnn, cudnn.FWD_MODE_TRAINING, self.x)

    @property
    def state_shape(self) -> tuple[int, int, int]:
        return self.layers * self.directions, BATCH, HIDDEN

    @cached_property
    def places(self) -> list[list[tuple[int, tuple[int, int], int]]]:
        """Return, for each matrix of each layer and direction, its place, its shape and the place of its bias."""
        matrix, bias, places = cudnn.create_tensor_descriptor(), cudnn.create_tensor_descriptor(), []
        size = np.dtype(self.dtype).itemsize
        with offload_args(Scratch((self.nbytes,), np.uint8), device=self.gpu) as (room,):
            for layer in range(self.layers * self.directions):
                places.append([])
                for which in range(2 * CELLS[self.kind][1]):
                    rnn_weight_params = cudnn.get_rnn_weight_params(
                        self.rnn, layer, self.nbytes, room, which, matrix, bias
                    )
                    rows, columns = cudnn.get_tensor_nd_descriptor(matrix, 3)[2][1:]
                    places[-1].append((rnn_weight_params[0] // size, (rows, columns), rnn_weight_params[1] // size))
        return places

    def matrices(self, weights: Any, layer: int) -> tuple[list[Any], list[Any]]:
        w, b = [], []
        for at, shape, bias in self.places[layer]:
            w.append(weights[at : at + shape[0] * shape[1]].reshape(shape))
            b.append(weights[bias : bias + shape[0]])
        return w, b

    def computed(self, x: Any, hx: Any, cx: Any, weights: Any) -> tuple[Any, Any, Any]:
        """Return y, the last states and the last memories; x and y have shape (steps, sequences, width)."""
        hy, cy = np.zeros(self.state_shape), np.zeros(self.state_shape)
        for layer in range(self.layers):
            y = np.zeros((STEPS, BATCH, self.directions * HIDDEN))
            for way in range(self.directions):
                at = layer * self.directions + way
                w, b = self.matrices(weights, at)
                for sequence, length in enumerate(LENGTHS):
                    h, c = hx[at, sequence], cx[at, sequence]
                    for step in range(length)[:: -1 if way else 1]:
                        h, c = cell(self.kind, x[step, sequence], h, c, w, b)
                        y[step, sequence, way * HIDDEN : (way + 1) * HIDDEN] = h
                    hy[at, sequence], cy[at, sequence] = h, c
            x = y
        return x, hy, cy

    def stored(self, array: Any) -> Any:
        """Return an array of shape (steps, sequences, width), converted to the layout."""
        if self.layout == "sequences first":
            return np.ascontiguousarray(array.swapaxes(0, 1))
        if self.layout == "packed":
            return np.concatenate([array[step, : sum(length > step for length in LENGTHS)] for step in range(STEPS)])
        return array


def masked(array: Any) -> Any:
    """Return an array of shape (steps, sequences, width) with zeros after the end of each sequence."""
    results = array.copy()
    for sequence, length in enumerate(LENGTHS):
        results[length:, sequence] = 0
    return results


CASES = [
    # cell, dtype, layout, directions, layers
    *((kind, np.float32, layout, 1, 1) for kind in CELLS for layout in LAYOUTS),
    *((kind, np.float64, "steps first", 2, 2) for kind in CELLS),
    ("LSTM", np.float16, "sequences first", 2, 1),
]


@pytest.mark.later
@pytest.mark.parametrize(("kind", "dtype", "layout", "directions", "layers"), CASES)
def test_a_recurrent_network_and_its_gradients_are_as_its_formula(
    gpu: str, kind: str, dtype: Any, layout: str, directions: int, layers: int
) -> None:
    net = Network(gpu, kind, dtype, layout, directions, layers)
    random = np.random.default_rng(1)
    x, dy = (masked(random.standard_normal((STEPS, BATCH, n))) for n in (INPUTS, directions * HIDDEN))
    states = hx, cx, dhy, dcy = [random.standard_normal(net.state_shape) for _ in range(4)]
    size = np.dtype(dtype).itemsize
    weights = random.standard_normal(net.nbytes // size) / 2
    x, dy, weights, *states = (array.astype(dtype).astype(np.float64) for array in (x, dy, weights, *states))
    hx, cx, dhy, dcy = states
    values = [net.stored(x), net.stored(dy), weights, hx, cx, dhy, dcy]
    values = [array.astype(dtype) for array in values]
    y, dx = np.full(values[1].shape, 7, dtype), np.full(values[0].shape, 7, dtype)
    hy, cy, dhx, dcx = (np.full(net.state_shape, 7, dtype) for _ in range(4))
    dweights = np.ones_like(values[2])
    has_memory = kind == "LSTM"
    lent = (*map(In, values), *map(InOut, (y, dx, hy, cy, dhx, dcx, dweights)), In(np.array(LENGTHS, np.int32)))
    with offload_args(*lent, Scratch((net.reserved,), np.uint8), device=gpu) as pointers:
        px, pdy, pw, phx, pcx, pdhy, pdcy, py, pdx, phy, pcy, pdhx, pdcx, pdw, lengths, room = pointers
        of_c, pcx, pcy, pdcy, pdcx = (net.h, pcx, pcy, pdcy, pdcx) if has_memory else (None,) * 5
        spaces = 0, None, net.reserved, room
        cudnn.rnn_forward(
            net.rnn, cudnn.FWD_MODE_TRAINING, lengths, net.x, px, net.y, py, net.h, phx, phy, of_c, pcx, pcy,
            net.nbytes, pw, *spaces,
        )  # fmt: skip
        cudnn.rnn_backward_data_v8(
            net.rnn, lengths, net.y, py, pdy, net.x, pdx, net.h, phx, pdhy, pdhx, of_c, pcx, pdcy, pdcx,
            net.nbytes, pw, *spaces,
        )  # fmt: skip
        cudnn.rnn_backward_weights_v8(
            net.rnn, cudnn.WGRAD_MODE_ADD, lengths, net.x, px, net.h, phx, net.y, py, net.nbytes, pdw, *spaces
        )
    expected, last, memory = net.computed(x, hx, cx, weights)
    close(y, net.stored(expected), dtype)
    close(hy, last, dtype)

    def loss(x: Any, hx: Any, cx: Any, weights: Any) -> float:
        actual = net.computed(x, hx, cx, weights)
        return float(sum((value * by).sum() for value, by in zip(actual, (dy, dhy, dcy * has_memory), strict=True)))

    of_x, of_h, of_c, of_w = differences(loss, [x, hx, cx, weights])
    close(dx, net.stored(of_x), dtype)
    close(dhx, of_h, dtype)
    close(dweights, 1 + of_w, dtype)
    if has_memory:
        close(cy, memory, dtype)
        close(dcx, of_c, dtype)
