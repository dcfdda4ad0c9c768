"""Scaled dot-product attention, as the steps that cuDNN recognizes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from .. import cudnn
from ..display import shown
from ..errors import ArgumentError, ArgumentTypeError, LibraryVersionError
from .descriptors import MASK, Facts, service
from .operations import NUMBERS, Operations, Tensor

__all__ = ["attend", "check_rows"]

_SINCE: Final = 91300  # the first version of cuDNN with attention


def attend(
    graph: Operations,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    causal: object,
    lengths: tuple[Tensor, Tensor] | None,
) -> Tensor:
    """Add the steps of attention to a graph, as documented in Graph.attention."""
    subject = "cudnn.Graph.attention"
    graph._check(subject, q=q, k=k, v=v)
    _check_attention(subject, q, k, v, scale)
    _check_lengths(graph, subject, q, lengths)
    _check_causal(subject, q, k, causal, lengths)
    if (loaded := service("get_version")()) < _SINCE:
        raise LibraryVersionError(f"{subject}: needs cuDNN 9.13 or later, and {loaded} is loaded; install a newer one")
    # cuDNN recognizes attention by all of these steps, in this order.
    factor = graph._number(q.facts.shape[-1] ** -0.5 if scale is None else scale, q)
    counts = tuple(_as_column(vector) for vector in lengths or ())
    turned = replace(k, facts=k.facts.in_order([0, 1, 3, 2]))
    scores = graph._product(q, turned, **dict(zip("mn", counts, strict=False)))
    scores = graph._pointwise(cudnn.POINTWISE_MUL, scores, factor)
    if counts:
        scores = _within(graph, scores, counts)
    if causal:
        scores = _below_diagonal(graph, scores, counts, causal == "bottom-right")
    shares = _softmax(graph, scores, q.facts.dtype)
    return graph._product(shares, v, **dict(zip("mk", counts, strict=False)))


def _check_lengths(graph: Operations, subject: str, q: Tensor, lengths: object) -> None:
    if lengths is None:
        return
    if not isinstance(lengths, tuple) or len(lengths) != 2:
        raise ArgumentTypeError(f"{subject}: lengths needs to be a pair, of q and of k and v, got {shown(lengths)}")
    for at, length in enumerate(lengths):
        graph._check(subject, **{f"lengths[{at}]": length})
        if length.is_virtual or length.facts.dtype != "int32" or length.facts.shape != q.facts.shape[:1]:
            raise ArgumentError(
                f'{subject}: lengths[{at}] needs to be an input of int32 with the layout "B" and the shape '
                f"{q.facts.shape[:1]}, got {length.facts.dtype} of {length.facts.shape}"
            )


def _places(graph: Operations, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Add the row and the column of each score."""
    row, column = (graph._pointwise(cudnn.POINTWISE_GEN_INDEX, scores, None, "int32", axis=axis) for axis in (2, 3))
    return row, column


def _chosen(graph: Operations, scores: Tensor, mask: Tensor) -> Tensor:
    """Add the choice of the score if the mask allows it, and otherwise of a number that the softmax ignores."""
    return graph._pointwise(cudnn.POINTWISE_BINARY_SELECT, scores, graph._number(-math.inf, scores), mask=mask)


def _within(graph: Operations, scores: Tensor, counts: tuple[Tensor, ...]) -> Tensor:
    """Add the mask of lengths; `counts` has the number of valid rows and of valid columns."""
    row, column = (
        graph._pointwise(cudnn.POINTWISE_CMP_LT, index, count, MASK)
        for index, count in zip(_places(graph, scores), counts, strict=True)
    )
    return _chosen(graph, scores, graph._pointwise(cudnn.POINTWISE_LOGICAL_AND, row, column, MASK))


def _below_diagonal(graph: Operations, scores: Tensor, counts: tuple[Tensor, ...], at_end: bool) -> Tensor:
    """Add the causal mask; with `at_end`, its diagonal ends in the last row and column, or in the last valid ones."""
    row, column = _places(graph, scores)
    if at_end:
        queries, keys = counts or (graph._number(size, scores, "int32") for size in scores.facts.shape[2:])
        row = graph._pointwise(cudnn.POINTWISE_ADD, row, keys, "int32")
        row = graph._pointwise(cudnn.POINTWISE_SUB, row, queries, "int32")
    return _chosen(graph, scores, graph._pointwise(cudnn.POINTWISE_CMP_GE, row, column, MASK))


def _softmax(graph: Operations, scores: Tensor, dtype: str) -> Tensor:
    most = graph._reduced(cudnn.REDUCE_TENSOR_MAX, scores)
    powers = graph._pointwise(cudnn.POINTWISE_EXP, graph._pointwise(cudnn.POINTWISE_SUB, scores, most))
    sums = graph._reduced(cudnn.REDUCE_TENSOR_ADD, powers)
    # Nothing reads this logarithm of the sum, but cuDNN does not recognize the steps without it.
    graph._pointwise(cudnn.POINTWISE_ADD, most, graph._pointwise(cudnn.POINTWISE_LOG, sums))
    return graph._pointwise(cudnn.POINTWISE_DIV, powers, sums, dtype)


def _check_attention(subject: str, q: Tensor, k: Tensor, v: Tensor, scale: object) -> None:
    if len({q.uid, k.uid, v.uid}) < 3:
        raise ArgumentError(f"{subject}: needs an input for each of q, k and v; call input again with the same pointer")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.is_virtual or len(tensor.facts.shape) != 4:
            raise ArgumentError(f'{subject}: {name} needs to be an input with a layout such as "BHSD"')
        if tensor.facts.dtype not in ("float16", "bfloat16") or tensor.facts.dtype != q.facts.dtype:
            raise ArgumentError(
                f"{subject}: q, k and v need one dtype, float16 or bfloat16; {name} has {tensor.facts.dtype}"
            )
    shapes = q.facts.shape, k.facts.shape, v.facts.shape
    (batches, heads, _, depth), (of_k, shared, _, also) = shapes[:2]
    if batches != of_k or not shared or heads % shared or depth != also or shapes[2][:3] != shapes[1][:3]:
        raise ArgumentError(f"{subject}: the shapes {shapes[0]}, {shapes[1]} and {shapes[2]} of q, k and v do not fit")
    if depth % 8 or shapes[2][3] % 8:
        raise ArgumentError(
            f"{subject}: the dimensions of a head need to be a multiple of 8, got {depth} of q and k, and "
            f"{shapes[2][3]} of v; fill them up with zeros by numpy.pad, which add nothing to the scores, and pass "
            f"scale={depth if scale is None else scale}{'**-0.5' * (scale is None)}"
        )
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_rows(subject, name, tensor)
    if scale is not None and (not isinstance(scale, NUMBERS) or not 0 < scale < math.inf):
        raise ArgumentError(f"{subject}: scale needs to be a finite number above 0, got {shown(scale)}")


def check_rows(subject: str, name: str, tensor: Tensor) -> None:
    """Check that attention's kernels can load and store 16 bytes in one access; cuDNN has no such check."""
    *steps, last = tensor.facts.strides
    if last != 1 or any(step % 8 for size, step in zip(tensor.facts.shape, steps, strict=False) if size > 1):
        raise ArgumentError(
            f"{subject}: {name} needs the dimensions of a head side by side, and other strides that are multiples of 8 "
            f"elements, got {tensor.facts.strides}; pass a copy"
        )


def _check_causal(subject: str, q: Tensor, k: Tensor, causal: object, lengths: object) -> None:
    at_end = isinstance(causal, str) and causal == "bottom-right"
    if not at_end and not isinstance(causal, (bool, np.bool_)):
        raise ArgumentError(f'{subject}: causal needs to be False, True or "bottom-right", got {shown(causal)}')
    queries, keys = q.facts.shape[2], k.facts.shape[2]
    if at_end and queries > keys and lengths is None:
        raise ArgumentError(
            f'{subject}: causal="bottom-right" needs as many keys as queries, or more: the first of {queries} queries '
            f"would see none of {keys} keys"
        )


def _as_column(vector: Tensor) -> Tensor:
    """Return a vector as a tensor of four axes, the form in which cuDNN accepts lengths."""
    return replace(
        vector, facts=Facts(vector.facts.dtype, (*vector.facts.shape, 1, 1, 1), (*vector.facts.strides, 1, 1, 1))
    )
