"""cuDNN's descriptors, made from pointers and numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .. import _core, cudnn
from ..display import shown
from ..dtypes import DTYPE_NAMES, code_of
from ..errors import ArgumentError, ArgumentTypeError
from ..pointers import DevicePtr

if TYPE_CHECKING:
    from ..cudnn import (
        ActivationDescriptor,
        ConvolutionDescriptor,
        FilterDescriptor,
        PoolingDescriptor,
        TensorDescriptor,
    )

__all__ = [
    "CODES",
    "MASK",
    "Facts",
    "activation",
    "convolution",
    "each",
    "facts_of",
    "filter",
    "matrix_facts_of",
    "need_text",
    "pooling",
    "service",
    "tensor",
]

CODES: Final = {
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
_BOOL_SINCE: Final = 92500
MASK: Final = "mask"  # the dtype of a comparison's result in a graph; such a result is never in memory
_SUMS: Final = {"float64": np.float64, **dict.fromkeys(("int8", "uint8", "int32"), np.int32)}  # of convolutions
_IMAGES: Final = "NCHW"
_VOLUMES: Final = "NCDHW"
_FILTERS: Final = {"K": "N", "R": "H", "S": "W", "T": "D"}  # {letter of a filter: letter of a tensor}


@cache
def service(name: str) -> Any:
    """Return a function of cuDNN; a deprecated one gives no warning here."""
    return _core.function("cudnn", name, cudnn.__name__)


@dataclass(frozen=True)
class Facts:
    """The dtype, shape and strides, in elements, of a tensor in cuDNN's order of axes."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def code(self) -> int:
        return cudnn.DATA_BOOLEAN if self.dtype == MASK else CODES[self.dtype]

    def in_order(self, axes: Sequence[int]) -> Facts:
        return Facts(self.dtype, tuple(self.shape[axis] for axis in axes), tuple(self.strides[axis] for axis in axes))

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
        """The number of elements of a line, and the step to the next line; with uneven steps, the span is one line."""
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
    if name not in CODES:
        raise ArgumentError(f"{function}: cuDNN has no data type for {name}; there are {', '.join(CODES)}")
    return name


def need_text(function: str, layout: object) -> None:
    if not isinstance(layout, str):
        raise ArgumentTypeError(f'{function}: layout needs to be letters, such as "NCHW", got {shown(layout)}')


def _need_strides(function: str, like: Any) -> None:
    if any(stride < 0 or stride % like.dtype.itemsize for stride in like.strides):
        raise ArgumentError(f"{function}: needs strides of 0 or more whole elements, got {like.strides}")


def _layout(function: str, layout: str, ndim: int) -> str:
    """Return a layout in the letters of tensors (NCDHW); the letters of filters (KRST) are translated."""
    need_text(function, layout)
    letters = "".join(_FILTERS.get(letter, letter) for letter in layout)
    known = len(set(letters)) == len(letters) and set(letters) <= set(_VOLUMES)
    if not known or len(letters) != ndim:
        raise ArgumentError(
            f"{function}: layout needs one of the letters N, C, D, H and W for each axis of the pointer, "
            f"which has {ndim}, as in NCHW or NHWC; got {layout!r}"
        )
    return letters


def facts_of(function: str, like: Any, layout: str) -> Facts:
    """Return the facts of a pointer, or of an array with its layout, in the order N, C, D, H, W."""
    if not isinstance(like, (DevicePtr, np.ndarray)):
        raise ArgumentTypeError(f"{function}: needs a DevicePtr or a NumPy array, got {shown(like)}")
    lent = DTYPE_NAMES[like._dtype_code] if isinstance(like, DevicePtr) else None
    name = _known(function, lent) if lent else _dtype_name(function, like.dtype)
    letters = _layout(function, layout, len(like.shape))
    if 0 in like.shape:
        raise ArgumentError(f"{function}: needs at least one element, got the shape {like.shape}")
    itemsize = like.dtype.itemsize
    _need_strides(function, like)
    axes = _VOLUMES if "D" in letters else _IMAGES
    span = 1 + sum(max(size - 1, 0) * stride // itemsize for size, stride in zip(like.shape, like.strides, strict=True))
    sizes = dict(zip(letters, like.shape, strict=True))
    steps = {letter: stride // itemsize for letter, stride in zip(letters, like.strides, strict=True)}
    shape = tuple(sizes.get(letter, 1) for letter in axes)
    steps |= dict.fromkeys(set(axes) - set(letters), 1)
    if "N" not in letters:
        steps["N"] = span
    return Facts(name, shape, tuple(max(steps[letter], 1) for letter in axes))


def matrix_facts_of(function: str, like: Any, layout: str) -> Facts:
    """Return the facts of a pointer whose axes are in cuDNN's order: batches, rows, columns."""
    if not isinstance(like, (DevicePtr, np.ndarray)):
        raise ArgumentTypeError(f"{function}: needs a DevicePtr or a NumPy array, got {shown(like)}")
    if len(layout) != len(like.shape):
        raise ArgumentError(f"{function}: layout {layout!r} has not the {len(like.shape)} axes of the pointer")
    name = DTYPE_NAMES[like._dtype_code] if isinstance(like, DevicePtr) else _dtype_name(function, like.dtype)
    _need_strides(function, like)
    steps = tuple(max(stride // like.dtype.itemsize, 1) for stride in like.strides)
    return Facts(name, tuple(like.shape), steps)


def tensor(like: Any, layout: str = "NCHW") -> TensorDescriptor:
    """Make the descriptor of a tensor from the dtype, shape and strides of a pointer.

    like: a DevicePtr, or an array that will be lent. layout: a letter for each axis, in the order of the axes: "NHWC"
    for an array of shape (images, height, width, channels), "NCDHW" for volumes, "NC" for vectors, "C" for a bias.
    Missing axes have the size 1. The descriptor keeps gaps between elements.

    The descriptor is destroyed when no object refers to it any more. Raises ArgumentError for a layout that does not
    fit.
    """
    facts = facts_of("cudnn.tensor", like, layout)
    if facts.dtype == "bool" and service("get_version")() < _BOOL_SINCE:
        raise ArgumentError("cudnn.tensor: cuDNN has no data type for bool before version 9.25")
    descriptor: TensorDescriptor = service("create_tensor_descriptor")()
    service("set_tensor_nd_descriptor")(descriptor, facts.code, len(facts.shape), facts.shape, facts.strides)
    return descriptor


def filter(like: Any, layout: str = "KCHW") -> FilterDescriptor:
    """Make the descriptor of a convolution's filter from a pointer.

    layout: "KCHW" (or "KCRS") for an array of shape (outputs, inputs, height, width); "KHWC" (or "KRSC") if the inputs
    are the last axis; "KCDHW" or "KDHWC" for volumes.

    Raises ArgumentError if there are gaps between elements.
    """
    facts = facts_of("cudnn.filter", like, layout)
    letters = "".join(_FILTERS.get(letter, letter) for letter in layout)
    formats = {"NCHW": cudnn.TENSOR_NCHW, "NCDHW": cudnn.TENSOR_NCHW}
    formats |= {"NHWC": cudnn.TENSOR_NHWC, "NDHWC": cudnn.TENSOR_NHWC}
    if letters not in formats:
        raise ArgumentError(f"cudnn.filter: layout needs to be KCHW, KHWC, KCDHW or KDHWC, got {layout!r}")
    if facts.span != facts.elements:
        raise ArgumentError("cudnn.filter: needs elements without gaps; pass a copy")
    descriptor: FilterDescriptor = service("create_filter_descriptor")()
    service("set_filter_nd_descriptor")(descriptor, facts.code, formats[letters], len(facts.shape), facts.shape)
    return descriptor


def each(function: str, name: str, value: int | Sequence[int], count: int) -> tuple[int, ...]:
    """Return a number for each axis; a padding is at least 0, other numbers at least 1."""
    least = int(name != "padding")
    try:
        values = (value,) * count if isinstance(value, int) else tuple(value)
    except TypeError:
        values = ()
    if len(values) != count or not all(isinstance(number, (int, np.integer)) for number in values):
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
    dtype: Any = None,
    compute: Any = None,
    axes: int = 2,
    tf32: bool = False,
) -> ConvolutionDescriptor:
    """Make the descriptor of a convolution, which is a cross-correlation, as in neural networks.

    padding, stride, dilation: a number for all axes, or one for each. axes: 2 for images, 3 for volumes.

    dtype: the dtype of the images and the filter. None stands for the dtype `compute`, or for float32 if `compute` is
    None, too. Tensor cores multiply float16, bfloat16 and integers if dtype is one of these. compute: the dtype of
    sums. None stands for float64 if `dtype` is float64, for int32 if `dtype` is an integer, and otherwise for float32.
    tf32: whether tensor cores may also multiply float32. They round it to TF32, which keeps 10 bits of a fraction
    instead of 23.

    Raises ArgumentError for tf32=True with another dtype than float32.
    """
    subject = "cudnn.convolution"
    lists = [
        each(subject, name, value, axes)
        for name, value in (("padding", padding), ("stride", stride), ("dilation", dilation))
    ]
    descriptor: ConvolutionDescriptor = service("create_convolution_descriptor")()
    name = _dtype_name(subject, dtype or compute or np.float32)
    code = CODES[_dtype_name(subject, compute or _SUMS.get(name, np.float32))]
    service("set_convolution_nd_descriptor")(descriptor, axes, *lists, cudnn.CROSS_CORRELATION, code)
    service("set_convolution_group_count")(descriptor, groups)
    service("set_convolution_math_type")(descriptor, _math_type(name, tf32))
    return descriptor


def _math_type(dtype: str, tf32: bool) -> int:
    """Return the math type for products with or without rounding to TF32; cuDNN's default would round float32."""
    if tf32 and dtype != "float32":
        raise ArgumentError(f"cudnn.convolution: tf32=True needs the dtype float32, got {dtype}; leave it out")
    if dtype == "float64":
        return cudnn.DEFAULT_MATH
    return cudnn.FMA_MATH if dtype == "float32" and not tf32 else cudnn.TENSOR_OP_MATH


def pooling(
    mode: int,
    window: int | Sequence[int],
    *,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] | None = None,
    axes: int = 2,
) -> PoolingDescriptor:
    """Make the descriptor of a pooling.

    mode: a constant cudnn.POOLING_*. window, padding, stride: a number for all axes, or one for each. By default, the
    stride is the window, so that windows do not overlap.
    """
    steps = window if stride is None else stride
    lists = [
        each("cudnn.pooling", name, value, axes)
        for name, value in (("window", window), ("padding", padding), ("stride", steps))
    ]
    descriptor: PoolingDescriptor = service("create_pooling_descriptor")()
    service("set_pooling_nd_descriptor")(descriptor, mode, cudnn.PROPAGATE_NAN, axes, *lists)
    return descriptor


def activation(mode: int, coef: float = 0.0) -> ActivationDescriptor:
    """Make the descriptor of an activation, a constant cudnn.ACTIVATION_*; `coef` is its limit or slope."""
    descriptor: ActivationDescriptor = service("create_activation_descriptor")()
    service("set_activation_descriptor")(descriptor, mode, cudnn.PROPAGATE_NAN, coef)
    return descriptor
