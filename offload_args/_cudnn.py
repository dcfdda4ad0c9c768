"""Descriptors of cuDNN made from pointers, and graphs of operations that run as one: offload_args.cudnn has them."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from . import _core, cudnn
from .devices import as_device, by_number, default_number
from .display import shown
from .dtypes import DTYPE_NAMES, code_of
from .errors import ArgumentError, ArgumentTypeError, LibraryError, LibraryVersionError
from .pointers import DevicePtr

if TYPE_CHECKING:
    from .cudnn import (
        ActivationDescriptor,
        ConvolutionDescriptor,
        FilterDescriptor,
        PoolingDescriptor,
        TensorDescriptor,
    )

__all__ = ["Graph", "Plan", "Tensor", "activation", "convolution", "filter", "pooling", "tensor"]

_CODES: Final = {
    "float32": cudnn.DATA_FLOAT,
    "float64": cudnn.DATA_DOUBLE,
    "float16": cudnn.DATA_HALF,
    "bfloat16": cudnn.DATA_BFLOAT16,
    "int8": cudnn.DATA_INT8,
    "uint8": cudnn.DATA_UINT8,
    "int32": cudnn.DATA_INT32,
    "int64": cudnn.DATA_INT64,
    "bool": cudnn.DATA_BYTE_BOOLEAN,
    "float8_e4m3fn": cudnn.DATA_FP8_E4M3,
    "float8_e5m2": cudnn.DATA_FP8_E5M2,
}
# Of the arguments of graphs: versions before 9.25 do not know the data type of bool, and end the process for it.
_OF_GRAPHS: Final = tuple(name for name in _CODES if name != "bool")
_BOOL_SINCE: Final = 92500
_MASK: Final = "mask"  # the dtype of what comparisons in graphs give, which is never in memory
_PRECISIONS: Final = {"int32": cudnn.DATA_INT32, _MASK: cudnn.DATA_BOOLEAN}  # of operations; of others float32
_ATTENTION_SINCE: Final = 91300
_NUMBERS: Final = (int, float, np.integer, np.floating)
_LEAST: Final = 4  # dimensions of a tensor: functions for images take no fewer
_IMAGES: Final = "NCHW"
_VOLUMES: Final = "NCDHW"
_FILTERS: Final = {"K": "N", "R": "H", "S": "W", "T": "D"}  # the letters of filters, as those of tensors


@cache
def _service(name: str) -> Any:
    """Return a function of cuDNN; a deprecated one does not warn."""
    return _core.function("cudnn", name, cudnn.__name__)


@dataclass(frozen=True)
class _Facts:
    """The dtype, shape and strides, in elements, of a tensor in cuDNN's order of axes."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def code(self) -> int:
        return cudnn.DATA_BOOLEAN if self.dtype == _MASK else _CODES[self.dtype]

    def in_order(self, axes: Sequence[int]) -> _Facts:
        return _Facts(self.dtype, tuple(self.shape[one] for one in axes), tuple(self.strides[one] for one in axes))

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        if not self.elements:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def lines(self) -> tuple[int, int]:
        """The elements of a line, and the step to the next; all is one line if the lines are not at even steps."""
        line, step, count = 1, 0, 1
        for stride, size in sorted(zip(self.strides, self.shape, strict=True)):
            if size == 1:
                continue
            if not step and stride == line:
                line *= size
            elif not step and stride > line:
                step, count = stride, size
            elif step and stride == step * count:
                count *= size
            else:
                return self.span, self.span
        return (line, step or line) if self.elements else (0, 1)


def _dtype_name(function: str, dtype: Any) -> str:
    code = code_of(np.dtype(dtype)) if not isinstance(dtype, str) or dtype != "bfloat16" else None
    name = dtype if code is None else DTYPE_NAMES[code] if code >= 0 else repr(np.dtype(dtype))
    return _known(function, name)


def _known(function: str, name: str) -> str:
    if name not in _CODES:
        raise ArgumentError(f"{function}: cuDNN has no data type for {name}; there are {', '.join(_CODES)}")
    return name


def _check_text(function: str, layout: object) -> None:
    if not isinstance(layout, str):
        raise ArgumentTypeError(f'{function}: layout needs to be letters, such as "NCHW", got {shown(layout)}')


def _check_strides(function: str, like: Any) -> None:
    if any(stride < 0 or stride % like.dtype.itemsize for stride in like.strides):
        raise ArgumentError(f"{function}: needs strides that are whole elements and not below 0, got {like.strides}")


def _layout(function: str, layout: str, ndim: int) -> str:
    """Return the letters of a layout, those of filters as those of tensors."""
    _check_text(function, layout)
    letters = "".join(_FILTERS.get(one, one) for one in layout)
    known = len(set(letters)) == len(letters) and set(letters) <= set(_VOLUMES)
    if not known or len(letters) != ndim:
        raise ArgumentError(
            f"{function}: layout needs one of the letters N, C, D, H and W for each axis of the pointer, "
            f"which has {ndim}, as in NCHW or NHWC; got {layout!r}"
        )
    return letters


def _facts(function: str, like: Any, layout: str) -> _Facts:
    """Return the facts of a pointer, or of an array with its layout, in the order N, C, D, H, W."""
    if not isinstance(like, (DevicePtr, np.ndarray)):
        raise ArgumentTypeError(f"{function}: needs a DevicePtr or a NumPy array, got {shown(like)}")
    lent = DTYPE_NAMES[like._dtype_code] if isinstance(like, DevicePtr) else None
    name = _known(function, lent) if lent else _dtype_name(function, like.dtype)
    letters = _layout(function, layout, len(like.shape))
    if 0 in like.shape:
        raise ArgumentError(f"{function}: needs at least one element, got the shape {like.shape}")
    itemsize = like.dtype.itemsize
    _check_strides(function, like)
    axes = _VOLUMES if "D" in letters else _IMAGES
    span = 1 + sum(max(size - 1, 0) * stride // itemsize for size, stride in zip(like.shape, like.strides, strict=True))
    sizes = dict(zip(letters, like.shape, strict=True))
    steps = {one: stride // itemsize for one, stride in zip(letters, like.strides, strict=True)}
    shape = tuple(sizes.get(one, 1) for one in axes)
    steps |= dict.fromkeys(set(axes) - set(letters), 1)
    if "N" not in letters:
        steps["N"] = span
    return _Facts(name, shape, tuple(max(steps[one], 1) for one in axes))


def tensor(like: Any, layout: str = "NCHW") -> TensorDescriptor:
    """Make the descriptor of a tensor from a pointer: its dtype, shape and strides.

    like: a DevicePtr, or an array that will be lent. layout: a letter for each of its axes, in its own order: "NHWC" of
    an array of shape (images, height, width, channels); "NCDHW" of volumes; "NC" of vectors; "C" of a bias. Axes that
    are not there have the size 1. Gaps between elements are kept.

    The descriptor is destroyed with its last user. Raises ArgumentError for a layout that does not fit.
    """
    facts = _facts("cudnn.tensor", like, layout)
    if facts.dtype == "bool" and _service("get_version")() < _BOOL_SINCE:
        raise ArgumentError("cudnn.tensor: cuDNN has no data type for bool before version 9.25")
    made: TensorDescriptor = _service("create_tensor_descriptor")()
    _service("set_tensor_nd_descriptor")(made, facts.code, len(facts.shape), facts.shape, facts.strides)
    return made


def filter(like: Any, layout: str = "KCHW") -> FilterDescriptor:
    """Make the descriptor of a convolution's filter from a pointer.

    layout: "KCHW" (or "KCRS") of an array of shape (outputs, inputs, height, width); "KHWC" (or "KRSC") with the inputs
    last; "KCDHW" and "KDHWC" of volumes. Raises ArgumentError if there are gaps between elements.
    """
    facts = _facts("cudnn.filter", like, layout)
    letters = "".join(_FILTERS.get(one, one) for one in layout)
    formats = {"NCHW": cudnn.TENSOR_NCHW, "NCDHW": cudnn.TENSOR_NCHW}
    formats |= {"NHWC": cudnn.TENSOR_NHWC, "NDHWC": cudnn.TENSOR_NHWC}
    if letters not in formats:
        raise ArgumentError(f"cudnn.filter: layout needs to be KCHW, KHWC, KCDHW or KDHWC, got {layout!r}")
    if facts.span != facts.elements:
        raise ArgumentError("cudnn.filter: needs elements without gaps; pass a copy")
    made: FilterDescriptor = _service("create_filter_descriptor")()
    _service("set_filter_nd_descriptor")(made, facts.code, formats[letters], len(facts.shape), facts.shape)
    return made


def _each(function: str, name: str, value: int | Sequence[int], count: int) -> tuple[int, ...]:
    """Return a number for each of the axes: of padding at least 0, of all else 1."""
    least = int(name != "padding")
    try:
        values = (value,) * count if isinstance(value, int) else tuple(value)
    except TypeError:
        values = ()
    if len(values) != count or not all(isinstance(one, (int, np.integer)) for one in values):
        raise ArgumentError(f"{function}: {name} needs a number, or {count} of them, got {value!r}")
    if min(values, default=least) < least:
        raise ArgumentError(f"{function}: {name} needs to be at least {least}, got {value!r}")
    return values


def convolution(
    *,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    compute: Any = np.float32,
    axes: int = 2,
) -> ConvolutionDescriptor:
    """Make the descriptor of a convolution, which is a cross-correlation, as neural networks have it.

    padding, stride, dilation: a number for all axes, or one for each. compute: the dtype of sums. axes: 2 of images, 3
    of volumes. Tensor cores are used where there are some for the dtypes.
    """
    where = "cudnn.convolution"
    lists = [
        _each(where, name, value, axes)
        for name, value in (("padding", padding), ("stride", stride), ("dilation", dilation))
    ]
    made: ConvolutionDescriptor = _service("create_convolution_descriptor")()
    code = _CODES[_dtype_name(where, compute)]
    _service("set_convolution_nd_descriptor")(made, axes, *lists, cudnn.CROSS_CORRELATION, code)
    _service("set_convolution_group_count")(made, groups)
    _service("set_convolution_math_type")(made, cudnn.TENSOR_OP_MATH if code != cudnn.DATA_DOUBLE else 0)
    return made


def pooling(
    mode: int,
    window: int | Sequence[int],
    *,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] | None = None,
    axes: int = 2,
) -> PoolingDescriptor:
    """Make the descriptor of a pooling.

    mode: cudnn.POOLING_MAX and its like. window, padding, stride: a number for all axes, or one for each; without a
    stride windows do not overlap.
    """
    steps = window if stride is None else stride
    lists = [
        _each("cudnn.pooling", name, value, axes)
        for name, value in (("window", window), ("padding", padding), ("stride", steps))
    ]
    made: PoolingDescriptor = _service("create_pooling_descriptor")()
    _service("set_pooling_nd_descriptor")(made, mode, cudnn.PROPAGATE_NAN, axes, *lists)
    return made


def activation(mode: int, coef: float = 0.0) -> ActivationDescriptor:
    """Make the descriptor of an activation: cudnn.ACTIVATION_RELU and its like. coef: the limit or slope of some."""
    made: ActivationDescriptor = _service("create_activation_descriptor")()
    _service("set_activation_descriptor")(made, mode, cudnn.PROPAGATE_NAN, coef)
    return made


# -- graphs ------------------------------------------------------------------------------------------------------------


@cache
def _handle(number: int) -> Any:
    """Return the handle of a device with which plans are made."""
    return _service("create")(device=by_number(number))


_PACKED: Final = {
    cudnn.TYPE_INT64: np.int64,
    cudnn.TYPE_FLOAT: np.float32,
    cudnn.TYPE_DOUBLE: np.float64,
    cudnn.TYPE_BOOLEAN: np.uint8,
    cudnn.TYPE_BACKEND_DESCRIPTOR: np.uint64,
    cudnn.TYPE_HANDLE: np.uint64,
}


def _made(kind: int, attributes: Sequence[tuple[int, int, Any]]) -> Any:
    """Return a finalized descriptor of the graph API; attributes: (name, type, value or values)."""
    descriptor = _service("backend_create_descriptor")(kind)
    for name, kind_of, value in attributes:
        values = value if isinstance(value, (tuple, list)) else (value,)
        if kind_of in (cudnn.TYPE_BACKEND_DESCRIPTOR, cudnn.TYPE_HANDLE):
            values = [one.address for one in values]
        array = np.array(values, _PACKED.get(kind_of, np.int32))
        _service("backend_set_attribute")(descriptor, name, kind_of, len(array), array)
    _service("backend_finalize")(descriptor)
    return descriptor


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a graph: an argument, or between two operations."""

    facts: _Facts
    uid: int
    graph: Graph = field(repr=False)
    is_virtual: bool = True
    number: float | None = None  # of one on the host


@dataclass(frozen=True)
class _Operation:
    kind: str
    attributes: tuple[tuple[int, int, Any], ...]  # a Tensor stands for its descriptor
    parts: tuple[tuple[int, int, tuple[tuple[int, int, Any], ...]], ...] = ()  # (attribute, kind, attributes) of each
    signature: tuple[object, ...] = ()


# Of a product: the attributes that say how many rows, columns and summands of each batch count.
_LIMITS: Final = {
    "m": cudnn.ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC,
    "n": cudnn.ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
    "k": cudnn.ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC,
}


@dataclass
class Graph:
    """Operations of cuDNN that run as one plan.

        graph = cudnn.Graph()
        x, w, b = graph.input(dx, "NHWC"), graph.input(dw, "KHWC"), graph.input(db, "C")
        y = graph.relu(graph.add(graph.convolution(x, w, padding=1), b))
        plan = graph.output(y, dy, "NHWC").plan()
        plan(dx, dw, db, dy)

    A plan takes the pointers in the order of the inputs, then the outputs; they are checked, moved and ordered as those
    of any call. Plans are kept: another graph of the same operations, dtypes, shapes and strides has the same one.
    Intermediate results are of float32 and never in memory.
    """

    device: Any = None
    _tensors: list[Tensor] = field(default_factory=list)
    _operations: list[_Operation] = field(default_factory=list)
    _outputs: dict[int, Tensor] = field(default_factory=dict)
    _attended: list[Tensor] = field(default_factory=list)  # results of attention

    def input(self, like: Any, layout: str = "NCHW") -> Tensor:
        """Add an argument; like and layout are those of cudnn.tensor.

        "BMK" and its like are of matrices; "BHSD" and its like of attention: batches, heads, positions, dimensions.
        """
        return self._argument("cudnn.Graph.input", like, layout)

    def output(self, of: Tensor, like: Any, layout: str = "NCHW") -> Graph:
        """Have a result written to an argument; returns the graph."""
        self._check("cudnn.Graph.output", of=of)
        made = self._argument("cudnn.Graph.output", like, layout)
        if made.facts.shape != of.facts.shape:
            raise ArgumentError(
                f"cudnn.Graph.output: the result has the shape {of.facts.shape}, and {layout} {made.facts.shape}"
            )
        if of in self._attended:
            _check_rows("cudnn.Graph.output", "the result of attention", made)
        self._outputs[of.uid] = made
        return self

    def convolution(
        self,
        x: Tensor,
        w: Tensor,
        *,
        padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
    ) -> Tensor:
        """Convolve x with the filter w."""
        where = "cudnn.Graph.convolution"
        self._check(where, x=x, w=w)
        axes = len(x.facts.shape) - 2
        pads, steps, gaps = (
            _each(where, name, value, axes)
            for name, value in (("padding", padding), ("stride", stride), ("dilation", dilation))
        )
        if len(w.facts.shape) != axes + 2 or not all(w.facts.shape):
            raise ArgumentError(
                f"{where}: w of shape {w.facts.shape} and stride {steps} do not fit x of shape {x.facts.shape}"
            )
        sizes = [
            (size + 2 * pad - gap * (window - 1) - 1) // step + 1
            for size, window, pad, step, gap in zip(
                x.facts.shape[2:], w.facts.shape[2:], pads, steps, gaps, strict=True
            )
        ]
        if x.facts.shape[1] % w.facts.shape[1] or min(sizes) < 1:
            raise ArgumentError(f"{where}: w of shape {w.facts.shape} does not fit x of shape {x.facts.shape}")
        y = self._between((x.facts.shape[0], w.facts.shape[0], *sizes), x)
        settings = (
            (cudnn.ATTR_CONVOLUTION_COMP_TYPE, cudnn.TYPE_DATA_TYPE, cudnn.DATA_FLOAT),
            (cudnn.ATTR_CONVOLUTION_CONV_MODE, cudnn.TYPE_CONVOLUTION_MODE, cudnn.CROSS_CORRELATION),
            (cudnn.ATTR_CONVOLUTION_SPATIAL_DIMS, cudnn.TYPE_INT64, axes),
            (cudnn.ATTR_CONVOLUTION_PRE_PADDINGS, cudnn.TYPE_INT64, pads),
            (cudnn.ATTR_CONVOLUTION_POST_PADDINGS, cudnn.TYPE_INT64, pads),
            (cudnn.ATTR_CONVOLUTION_FILTER_STRIDES, cudnn.TYPE_INT64, steps),
            (cudnn.ATTR_CONVOLUTION_DILATIONS, cudnn.TYPE_INT64, gaps),
        )
        self._add(
            cudnn.BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
            [
                (cudnn.ATTR_OPERATION_CONVOLUTION_FORWARD_X, cudnn.TYPE_BACKEND_DESCRIPTOR, x),
                (cudnn.ATTR_OPERATION_CONVOLUTION_FORWARD_W, cudnn.TYPE_BACKEND_DESCRIPTOR, w),
                (cudnn.ATTR_OPERATION_CONVOLUTION_FORWARD_Y, cudnn.TYPE_BACKEND_DESCRIPTOR, y),
                (cudnn.ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, cudnn.TYPE_FLOAT, 1.0),
                (cudnn.ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, cudnn.TYPE_FLOAT, 0.0),
            ],
            (cudnn.ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, cudnn.BACKEND_CONVOLUTION_DESCRIPTOR, settings),
        )
        return y

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply the matrices of the last two axes; the others are batches."""
        self._check("cudnn.Graph.matmul", a=a, b=b)
        if a.facts.shape[-1] != b.facts.shape[-2]:
            raise ArgumentError(f"cudnn.Graph.matmul: the shapes {a.facts.shape} and {b.facts.shape} do not fit")
        return self._product(a, b)

    def add(self, x: Tensor, b: Tensor) -> Tensor:
        """Add b, whose axes of size 1 repeat."""
        return self._pointwise(cudnn.POINTWISE_ADD, x, b)

    def multiply(self, x: Tensor, b: Tensor | float) -> Tensor:
        """Multiply by b, whose axes of size 1 repeat, or by a number."""
        return self._pointwise(cudnn.POINTWISE_MUL, x, b if isinstance(b, Tensor) else self._number(b, x))

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float | None = None,
        causal: bool | Literal["bottom-right"] = False,
        lengths: tuple[Tensor, Tensor] | None = None,
    ) -> Tensor:
        """Compute scaled dot-product attention, softmax(scale q k^T) v.

        q, k, v: inputs of float16 or bfloat16 with layouts such as "BHSD" or "BSHD": batches, heads, positions, and the
        dimensions of a head. If q has n times the heads of k and v, each of theirs serves n consecutive heads of q.
        scale: above 0; 1 over the root of those dimensions if it is None. It needs cuDNN 9.13.

        causal: with True the query at position i sees the keys at positions 0 to i: the mask's diagonal begins in the
        top left corner, as with PyTorch's is_causal. With "bottom-right" it ends in the other corner: the last query
        sees all keys, and each other one key less than the next; there need to be as many keys as queries, or more.

        lengths: how many positions of q, and of k and v, each batch has: two inputs of int32 with the layout "B". Keys
        behind them are not seen, and the results of queries behind them have no meaning. The corner at the bottom right
        is that of each batch then. Lengths are read on the device, and nothing checks them there: with some that are
        not from 1 to the number of positions, the results have no meaning.
        """
        where = "cudnn.Graph.attention"
        self._check(where, q=q, k=k, v=v)
        _check_attention(where, q, k, v, scale)
        self._check_lengths(where, q, lengths)
        _check_causal(where, q, k, causal, lengths)
        if (loaded := _service("get_version")()) < _ATTENTION_SINCE:
            raise LibraryVersionError(
                f"{where}: needs cuDNN 9.13 or later, and {loaded} is loaded; install a newer one"
            )
        # cuDNN knows attention by its steps, all of them, in this order.
        factor = self._number(q.facts.shape[-1] ** -0.5 if scale is None else scale, q)
        counts = tuple(_as_column(one) for one in lengths or ())
        turned = replace(k, facts=k.facts.in_order([0, 1, 3, 2]))
        scores = self._product(q, turned, **dict(zip("mn", counts, strict=False)))
        scores = self._pointwise(cudnn.POINTWISE_MUL, scores, factor)
        if counts:
            scores = self._within(scores, counts)
        if causal:
            scores = self._below_diagonal(scores, counts, causal == "bottom-right")
        shares = self._softmax(scores, q.facts.dtype)
        self._attended.append(self._product(shares, v, **dict(zip("mk", counts, strict=False))))
        return self._attended[-1]

    def relu(self, x: Tensor) -> Tensor:
        """Set what is below 0 to 0."""
        return self._pointwise(cudnn.POINTWISE_RELU_FWD, x)

    def gelu(self, x: Tensor) -> Tensor:
        """Compute x times the probability that a normal variable is below x."""
        return self._pointwise(cudnn.POINTWISE_GELU_FWD, x)

    def plan(self, *, measured_on: Sequence[DevicePtr[Any]] = ()) -> Plan:
        """Return the plan of these operations, made at its first use.

        It is of the first engine that cuDNN proposes; with measured_on, pointers as a call of the plan takes them, it
        is of the fastest one, and what the outputs have afterwards is undefined.

        Raises LibraryError if cuDNN has no engine for them.
        """
        if not self._outputs:
            raise ArgumentError("cudnn.Graph.plan: needs an output; call output(result, pointer, layout)")
        used = {one.uid for step in self._operations for _, _, one in step.attributes if isinstance(one, Tensor)}
        outputs = {one.uid for one in self._outputs.values()}
        given = [one.uid for one in self._tensors if not one.is_virtual and one.number is None]
        for at, uid in enumerate((uid for uid in given if uid not in outputs), 1):
            if uid not in used:
                raise ArgumentError(f"cudnn.Graph.plan: input {at} is used by no operation")
        number = default_number() if self.device is None else as_device(self.device).number
        key = (number, self._signature(), bool(measured_on))
        if key not in _plans:
            _plans[key] = _build(self, number, measured_on)
        return _plans[key]

    # -- inside --

    def _new(self, facts: _Facts, *, is_virtual: bool = True, number: float | None = None) -> Tensor:
        made = Tensor(facts, len(self._tensors) + 1, self, is_virtual, number)
        self._tensors.append(made)
        return made

    def _check(self, function: str, **given: object) -> None:
        for name, one in given.items():
            if not isinstance(one, Tensor):
                raise ArgumentTypeError(f"{function}: {name} needs to be a tensor of the graph, got {shown(one)}")
            if one.graph is not self:
                raise ArgumentError(f"{function}: {name} is a tensor of another graph")

    def _argument(self, function: str, like: Any, layout: str) -> Tensor:
        _check_text(function, layout)
        if set(layout) <= set("BMKN"):
            facts = _matrix_facts(function, like, layout)
        elif len(layout) == 4 and set(layout) == set("BHSD"):
            facts = _matrix_facts(function, like, layout).in_order([layout.index(one) for one in "BHSD"])
        else:
            facts = _facts(function, like, layout)
        if facts.dtype not in _OF_GRAPHS:
            raise ArgumentError(f"{function}: needs {' or '.join(_OF_GRAPHS)}, got {facts.dtype}")
        return self._new(facts, is_virtual=False)

    def _between(self, shape: tuple[int, ...], like: Tensor | None, dtype: str = "float32") -> Tensor:
        """Return a new tensor between operations, whose channels come last if those of another one do."""
        order = list(range(len(shape) - 1, -1, -1))
        if like is not None and like.facts.strides[1] == 1:
            order = [1, *range(len(shape) - 1, 1, -1), 0]
        strides, step = [0] * len(shape), 1
        for axis in order:
            strides[axis] = step
            step *= shape[axis]
        return self._new(_Facts(dtype, shape, tuple(strides)))

    def _number(self, number: float, like: Tensor, dtype: str = "float32") -> Tensor:
        if not isinstance(number, _NUMBERS):
            raise ArgumentTypeError(f"cudnn.Graph: needs a number or a tensor of the graph, got {shown(number)}")
        ones = (1,) * len(like.facts.shape)
        return self._new(_Facts(dtype, ones, ones), is_virtual=False, number=float(number))

    def _pointwise(
        self,
        mode: int,
        x: Tensor,
        b: Tensor | None = None,
        dtype: str = "float32",
        *,
        where: Tensor | None = None,
        axis: int | None = None,
    ) -> Tensor:
        """Add an operation on each element; where: the mask of a choice; axis: that of an index."""
        self._check("cudnn.Graph", x=x, b=x if b is None else b)
        y = self._between(x.facts.shape, x, dtype)
        if b is not None and (
            len(b.facts.shape) != len(x.facts.shape)
            or any(size not in (1, whole) for size, whole in zip(b.facts.shape, x.facts.shape, strict=True))
        ):
            raise ArgumentError(f"cudnn.Graph: the shapes {x.facts.shape} and {b.facts.shape} do not fit")
        operands = (
            (cudnn.ATTR_OPERATION_POINTWISE_XDESC, x),
            (cudnn.ATTR_OPERATION_POINTWISE_BDESC, b),
            (cudnn.ATTR_OPERATION_POINTWISE_TDESC, where),
            (cudnn.ATTR_OPERATION_POINTWISE_YDESC, y),
        )
        settings: tuple[tuple[int, int, Any], ...] = (
            (cudnn.ATTR_POINTWISE_MODE, cudnn.TYPE_POINTWISE_MODE, mode),
            (cudnn.ATTR_POINTWISE_MATH_PREC, cudnn.TYPE_DATA_TYPE, _PRECISIONS.get(dtype, cudnn.DATA_FLOAT)),
        )
        if axis is not None:
            settings += ((cudnn.ATTR_POINTWISE_AXIS, cudnn.TYPE_INT64, axis),)
        self._add(
            cudnn.BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
            [(name, cudnn.TYPE_BACKEND_DESCRIPTOR, one) for name, one in operands if one],
            (cudnn.ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, cudnn.BACKEND_POINTWISE_DESCRIPTOR, settings),
        )
        return y

    def _product(self, a: Tensor, b: Tensor, **limits: Tensor) -> Tensor:
        """Add a product of matrices; limits: how many rows (m), columns (n) or summands (k) of each batch count."""
        y = self._between((*a.facts.shape[:-1], b.facts.shape[-1]), None)
        settings: tuple[tuple[int, int, Any], ...]
        settings = ((cudnn.ATTR_MATMUL_COMP_TYPE, cudnn.TYPE_DATA_TYPE, cudnn.DATA_FLOAT),)
        if limits:
            settings += ((cudnn.ATTR_MATMUL_PADDING_VALUE, cudnn.TYPE_DOUBLE, 0.0),)
        self._add(
            cudnn.BACKEND_OPERATION_MATMUL_DESCRIPTOR,
            [
                (cudnn.ATTR_OPERATION_MATMUL_ADESC, cudnn.TYPE_BACKEND_DESCRIPTOR, a),
                (cudnn.ATTR_OPERATION_MATMUL_BDESC, cudnn.TYPE_BACKEND_DESCRIPTOR, b),
                (cudnn.ATTR_OPERATION_MATMUL_CDESC, cudnn.TYPE_BACKEND_DESCRIPTOR, y),
                *((_LIMITS[name], cudnn.TYPE_BACKEND_DESCRIPTOR, one) for name, one in limits.items()),
            ],
            (cudnn.ATTR_OPERATION_MATMUL_DESC, cudnn.BACKEND_MATMUL_DESCRIPTOR, settings),
        )
        return y

    def _reduced(self, operator: int, x: Tensor) -> Tensor:
        """Add a reduction along the last axis, of which 1 is left."""
        y = self._between((*x.facts.shape[:-1], 1), None)
        settings = (
            (cudnn.ATTR_REDUCTION_COMP_TYPE, cudnn.TYPE_DATA_TYPE, cudnn.DATA_FLOAT),
            (cudnn.ATTR_REDUCTION_OPERATOR, cudnn.TYPE_REDUCTION_OPERATOR_TYPE, operator),
        )
        self._add(
            cudnn.BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
            [
                (cudnn.ATTR_OPERATION_REDUCTION_XDESC, cudnn.TYPE_BACKEND_DESCRIPTOR, x),
                (cudnn.ATTR_OPERATION_REDUCTION_YDESC, cudnn.TYPE_BACKEND_DESCRIPTOR, y),
            ],
            (cudnn.ATTR_OPERATION_REDUCTION_DESC, cudnn.BACKEND_REDUCTION_DESCRIPTOR, settings),
        )
        return y

    def _check_lengths(self, where: str, q: Tensor, lengths: object) -> None:
        if lengths is None:
            return
        if not isinstance(lengths, tuple) or len(lengths) != 2:
            raise ArgumentTypeError(f"{where}: lengths needs to be a pair, of q and of k and v, got {shown(lengths)}")
        for at, one in enumerate(lengths):
            self._check(where, **{f"lengths[{at}]": one})
            if one.is_virtual or one.facts.dtype != "int32" or one.facts.shape != q.facts.shape[:1]:
                raise ArgumentError(
                    f'{where}: lengths[{at}] needs to be an input of int32 with the layout "B" and the shape '
                    f"{q.facts.shape[:1]}, got {one.facts.dtype} of {one.facts.shape}"
                )

    def _places(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Add the row and the column of each score."""
        row, column = (self._pointwise(cudnn.POINTWISE_GEN_INDEX, scores, None, "int32", axis=axis) for axis in (2, 3))
        return row, column

    def _chosen(self, scores: Tensor, seen: Tensor) -> Tensor:
        """Add a choice: the scores that are seen, and for others one that no softmax sees."""
        return self._pointwise(cudnn.POINTWISE_BINARY_SELECT, scores, self._number(-math.inf, scores), where=seen)

    def _within(self, scores: Tensor, counts: tuple[Tensor, ...]) -> Tensor:
        """Add the mask of lengths: counts of the rows and of the columns."""
        row, column = (
            self._pointwise(cudnn.POINTWISE_CMP_LT, index, count, _MASK)
            for index, count in zip(self._places(scores), counts, strict=True)
        )
        return self._chosen(scores, self._pointwise(cudnn.POINTWISE_LOGICAL_AND, row, column, _MASK))

    def _below_diagonal(self, scores: Tensor, counts: tuple[Tensor, ...], at_end: bool) -> Tensor:
        """Add the causal mask; at_end: its diagonal ends in the last row and column, also of those that count."""
        row, column = self._places(scores)
        if at_end:
            queries, keys = counts or (self._number(size, scores, "int32") for size in scores.facts.shape[2:])
            row = self._pointwise(cudnn.POINTWISE_ADD, row, keys, "int32")
            row = self._pointwise(cudnn.POINTWISE_SUB, row, queries, "int32")
        return self._chosen(scores, self._pointwise(cudnn.POINTWISE_CMP_GE, row, column, _MASK))

    def _softmax(self, scores: Tensor, dtype: str) -> Tensor:
        most = self._reduced(cudnn.REDUCE_TENSOR_MAX, scores)
        powers = self._pointwise(cudnn.POINTWISE_EXP, self._pointwise(cudnn.POINTWISE_SUB, scores, most))
        sums = self._reduced(cudnn.REDUCE_TENSOR_ADD, powers)
        # Nothing reads this logarithm of the sum, but cuDNN does not know the steps without it.
        self.add(most, self._pointwise(cudnn.POINTWISE_LOG, sums))
        return self._pointwise(cudnn.POINTWISE_DIV, powers, sums, dtype)

    def _add(self, kind: int, attributes: list[tuple[int, int, Any]], part: tuple[int, int, Any] | None = None) -> None:
        uids = ((name, (one.uid, one.facts) if isinstance(one, Tensor) else one) for name, _, one in attributes)
        signature = (kind, *uids, part)
        self._operations.append(_Operation(str(kind), tuple(attributes), (part,) if part else (), signature))

    def _signature(self) -> tuple[object, ...]:
        tensors = tuple((one.uid, one.facts, one.number) for one in self._tensors)
        outputs = tuple((uid, one.uid) for uid, one in self._outputs.items())
        return tensors, tuple(one.signature for one in self._operations), outputs


def _check_attention(where: str, q: Tensor, k: Tensor, v: Tensor, scale: object) -> None:
    if len({q.uid, k.uid, v.uid}) < 3:
        raise ArgumentError(f"{where}: needs an input for each of q, k and v; call input again with the same pointer")
    for name, one in (("q", q), ("k", k), ("v", v)):
        if one.is_virtual or len(one.facts.shape) != 4:
            raise ArgumentError(f'{where}: {name} needs to be an input with a layout such as "BHSD"')
        if one.facts.dtype not in ("float16", "bfloat16") or one.facts.dtype != q.facts.dtype:
            raise ArgumentError(
                f"{where}: q, k and v need one dtype, float16 or bfloat16; {name} has {one.facts.dtype}"
            )
    shapes = q.facts.shape, k.facts.shape, v.facts.shape
    (batches, heads, _, depth), (of_k, shared, _, also) = shapes[:2]
    if batches != of_k or not shared or heads % shared or depth != also or shapes[2][:3] != shapes[1][:3]:
        raise ArgumentError(f"{where}: the shapes {shapes[0]}, {shapes[1]} and {shapes[2]} of q, k and v do not fit")
    if depth % 8 or shapes[2][3] % 8:
        raise ArgumentError(
            f"{where}: the dimensions of a head need to be a multiple of 8, got {depth} of q and k, "
            f"and {shapes[2][3]} of v"
        )
    for name, one in (("q", q), ("k", k), ("v", v)):
        _check_rows(where, name, one)
    if scale is not None and (not isinstance(scale, _NUMBERS) or not 0 < scale < math.inf):
        raise ArgumentError(f"{where}: scale needs to be a finite number above 0, got {shown(scale)}")


def _check_rows(where: str, name: str, one: Tensor) -> None:
    """Check that attention's kernels can load and store 16 bytes at once, which cuDNN does not check."""
    *steps, last = one.facts.strides
    if last != 1 or any(step % 8 for size, step in zip(one.facts.shape, steps, strict=False) if size > 1):
        raise ArgumentError(
            f"{where}: {name} needs the dimensions of a head side by side, and other strides that are multiples of 8 "
            f"elements, got {one.facts.strides}; pass a copy"
        )


def _check_causal(where: str, q: Tensor, k: Tensor, causal: object, lengths: object) -> None:
    at_end = isinstance(causal, str) and causal == "bottom-right"
    if not at_end and not isinstance(causal, (bool, np.bool_)):
        raise ArgumentError(f'{where}: causal needs to be False, True or "bottom-right", got {shown(causal)}')
    queries, keys = q.facts.shape[2], k.facts.shape[2]
    if at_end and queries > keys and lengths is None:
        raise ArgumentError(
            f'{where}: causal="bottom-right" needs as many keys as queries, or more: the first of {queries} queries '
            f"would see none of {keys} keys"
        )


def _as_column(one: Tensor) -> Tensor:
    """Return a vector as a tensor of four axes, of which cuDNN takes lengths."""
    return replace(one, facts=_Facts(one.facts.dtype, (*one.facts.shape, 1, 1, 1), (*one.facts.strides, 1, 1, 1)))


def _matrix_facts(function: str, like: Any, layout: str) -> _Facts:
    """Return the facts of a pointer in the order of its axes, which is cuDNN's: batches, then rows and columns."""
    if not isinstance(like, (DevicePtr, np.ndarray)):
        raise ArgumentTypeError(f"{function}: needs a DevicePtr or a NumPy array, got {shown(like)}")
    if len(layout) != len(like.shape):
        raise ArgumentError(f"{function}: layout {layout!r} has not the {len(like.shape)} axes of the pointer")
    name = DTYPE_NAMES[like._dtype_code] if isinstance(like, DevicePtr) else _dtype_name(function, like.dtype)
    _check_strides(function, like)
    steps = tuple(max(stride // like.dtype.itemsize, 1) for stride in like.strides)
    return _Facts(name, tuple(like.shape), steps)


@dataclass(frozen=True)
class Plan:
    """Operations of cuDNN as one: call it with the pointers of the graph's inputs, then of its outputs."""

    _plan: Any
    _tensors: tuple[tuple[Any, ...], ...]
    _parts: tuple[Any, ...]  # descriptors that it is made of
    workspace: int  #: bytes of device memory that each call takes from the pool and returns

    def __call__(self, *pointers: DevicePtr[Any]) -> None:
        """Execute the plan. Raises the errors of any call of a library's function."""
        needed = sum(1 for one in self._tensors if one[3])
        if len(pointers) != needed or not all(isinstance(one, DevicePtr) for one in pointers):
            given = ", ".join(map(shown, pointers))
            raise ArgumentTypeError(f"cudnn.Plan: needs {needed} DevicePtrs, inputs and then outputs, got {given}")
        _core.graph_run("cudnn.Plan", "cudnn", _NAMES, self._plan, self._tensors, pointers, self.workspace)

    def __repr__(self) -> str:
        return (
            f"<cudnn.Plan of {sum(1 for one in self._tensors if one[3])} arrays, workspace of {self.workspace} bytes>"
        )


_NAMES: Final = (
    "cudnnBackendCreateDescriptor",
    "cudnnBackendSetAttribute",
    "cudnnBackendFinalize",
    "cudnnBackendExecute",
    "cudnnBackendDestroyDescriptor",
    cudnn.BACKEND_VARIANT_PACK_DESCRIPTOR,
    cudnn.ATTR_VARIANT_PACK_UNIQUE_IDS,
    cudnn.ATTR_VARIANT_PACK_DATA_POINTERS,
    cudnn.ATTR_VARIANT_PACK_WORKSPACE,
    cudnn.TYPE_INT64,
    cudnn.TYPE_VOID_PTR,
)
_plans: dict[object, Plan] = {}
_READ, _OVERWRITE = 1, 2  # oa_access
_ALIGNMENT: Final = 16  # bytes, of the arrays of plans
_MOST_ENGINES: Final = 16
_MOST_TEXT: Final = 4096  # bytes of what cuDNN says
_ROUNDS, _CALLS, _ROUND = 5, 20, 2e-3  # of measuring an engine: at most so many calls, and so many seconds, a round


def _tensor_descriptor(one: Tensor) -> Any:
    attributes: list[tuple[int, int, Any]] = [
        (cudnn.ATTR_TENSOR_DATA_TYPE, cudnn.TYPE_DATA_TYPE, one.facts.code),
        (cudnn.ATTR_TENSOR_DIMENSIONS, cudnn.TYPE_INT64, one.facts.shape),
        (cudnn.ATTR_TENSOR_STRIDES, cudnn.TYPE_INT64, one.facts.strides),
        (cudnn.ATTR_TENSOR_UNIQUE_ID, cudnn.TYPE_INT64, one.uid),
        (cudnn.ATTR_TENSOR_BYTE_ALIGNMENT, cudnn.TYPE_INT64, _ALIGNMENT),
        (cudnn.ATTR_TENSOR_IS_VIRTUAL, cudnn.TYPE_BOOLEAN, int(one.is_virtual)),
    ]
    if one.number is not None:
        attributes.append((cudnn.ATTR_TENSOR_IS_BY_VALUE, cudnn.TYPE_BOOLEAN, 1))
    return _made(cudnn.BACKEND_TENSOR_DESCRIPTOR, attributes)


def _build(graph: Graph, number: int, measured_on: Sequence[DevicePtr[Any]]) -> Plan:
    """Return the plan of a graph: that of the first engine that takes it, or of the fastest."""
    handle = _handle(number)
    _said()
    whole, kept = _whole(graph, handle)
    arguments = _arguments(graph)
    refusals: list[str] = []
    best, least = None, math.inf
    for plan, more in _plans_of(whole, handle, refusals):
        size = np.zeros(1, np.int64)
        _service("backend_get_attribute")(plan, cudnn.ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, cudnn.TYPE_INT64, 1, size)
        made = Plan(plan, arguments, (*kept, *more, handle), int(size[0]))
        if not measured_on:
            return made
        try:
            seconds = _seconds(made, measured_on)
        except LibraryError as error:
            refusals.append(_reason(error))
            continue
        if seconds < least:
            best, least = made, seconds
    if best is None:
        reason = "; ".join(dict.fromkeys(refusals)) or "it has no engine for them"
        raise LibraryError(f"cudnn.Graph.plan: cuDNN does not take these operations as one: {reason}")
    return best


def _seconds(plan: Plan, pointers: Sequence[DevicePtr[Any]]) -> float:
    """Return the time of a call of a plan."""
    device, times, calls = pointers[0].device, [], 1
    plan(*pointers)
    for _ in range(1 + _ROUNDS):
        device.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            plan(*pointers)
        device.synchronize()
        times.append((time.perf_counter() - start) / calls)
        calls = max(1, min(_CALLS, int(_ROUND / times[0])))
    return min(times)


def _whole(graph: Graph, handle: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the descriptor of all operations, and those that it is made of."""
    stand_ins = {uid: one.uid for uid, one in graph._outputs.items()}
    by_uid = {one.uid: one for one in graph._tensors}
    descriptors: dict[tuple[int, _Facts], Any] = {}
    parts: list[Any] = []

    def descriptor_of(one: Tensor) -> Any:
        real = by_uid[stand_ins[one.uid]] if one.uid in stand_ins else one
        key = (real.uid, real.facts)
        if key not in descriptors:
            descriptors[key] = _tensor_descriptor(real)
        return descriptors[key]

    operations = []
    for one in graph._operations:
        attributes = [
            (name, kind, descriptor_of(value) if isinstance(value, Tensor) else value)
            for name, kind, value in one.attributes
        ]
        for name, kind, settings in one.parts:
            parts.append(_made(kind, settings))
            attributes.append((name, cudnn.TYPE_BACKEND_DESCRIPTOR, parts[-1]))
        operations.append(_made(int(one.kind), attributes))
    whole = _made(
        cudnn.BACKEND_OPERATIONGRAPH_DESCRIPTOR,
        [
            (cudnn.ATTR_OPERATIONGRAPH_OPS, cudnn.TYPE_BACKEND_DESCRIPTOR, operations),
            (cudnn.ATTR_OPERATIONGRAPH_HANDLE, cudnn.TYPE_HANDLE, handle),
        ],
    )
    return whole, (*descriptors.values(), *parts, *operations, whole)


def _arguments(graph: Graph) -> tuple[tuple[Any, ...], ...]:
    """Return what the core has to know of each tensor that is not inside: inputs, outputs, numbers."""
    outputs = {one.uid for one in graph._outputs.values()}
    facts = []
    given = [one for one in graph._tensors if not one.is_virtual]
    given.sort(key=lambda one: (one.number is not None, one.uid in outputs))
    for at, one in enumerate(given, 1):
        access = 0 if one.number is not None else _OVERWRITE if one.uid in outputs else _READ
        dtype = DTYPE_NAMES.index(one.facts.dtype)
        sizes = one.facts.elements, one.facts.span, *one.facts.lines
        facts.append((f"argument {at}", one.uid, dtype, access, *sizes, one.number or 0.0, _ALIGNMENT))
    return tuple(facts)


def _said() -> list[str]:
    """Return cuDNN's reasons since this was last called: the first one for each engine."""
    text = str(_service("get_last_error_string")(_MOST_TEXT)).strip("\0\n ")
    firsts = [one[1] for part in text.split("\n\n") if (one := re.search(r"Reason: (.*)", part))]
    return firsts or text.splitlines()[:1]


def _reason(error: LibraryError) -> str:
    """Return the text of an error, with what cuDNN said last."""
    return ": ".join([str(error), *_said()])


def _plans_of(whole: Any, handle: Any, refusals: list[str]) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the plan of each engine that takes the operations, the best first, and the descriptors it is made of."""
    for mode in (cudnn.HEUR_MODE_A, cudnn.HEUR_MODE_FALLBACK):
        try:
            heuristics = _made(
                cudnn.BACKEND_ENGINEHEUR_DESCRIPTOR,
                [
                    (cudnn.ATTR_ENGINEHEUR_OPERATION_GRAPH, cudnn.TYPE_BACKEND_DESCRIPTOR, whole),
                    (cudnn.ATTR_ENGINEHEUR_MODE, cudnn.TYPE_HEUR_MODE, mode),
                ],
            )
            engines = _engines(heuristics)
        except LibraryError as error:
            refusals.append(_reason(error))
            continue
        if not engines:
            refusals += _said()
        for engine in engines:
            attributes = [
                (cudnn.ATTR_EXECUTION_PLAN_HANDLE, cudnn.TYPE_HANDLE, handle),
                (cudnn.ATTR_EXECUTION_PLAN_ENGINE_CONFIG, cudnn.TYPE_BACKEND_DESCRIPTOR, engine),
            ]
            try:
                plan = _made(cudnn.BACKEND_EXECUTION_PLAN_DESCRIPTOR, attributes)
            except LibraryError as error:
                refusals.append(_reason(error))
                continue
            yield plan, [heuristics, engine]


def _engines(heuristics: Any) -> list[Any]:
    """Return the engines that cuDNN proposes, the best first."""
    get = _service("backend_get_attribute")
    made = [_service("backend_create_descriptor")(cudnn.BACKEND_ENGINECFG_DESCRIPTOR) for _ in range(_MOST_ENGINES)]
    places = np.array([one.address for one in made], np.uint64)
    kind = cudnn.TYPE_BACKEND_DESCRIPTOR
    found = get(heuristics, cudnn.ATTR_ENGINEHEUR_RESULTS, kind, _MOST_ENGINES, places)
    return made[: int(found)]
