"""Graphs of cuDNN's operations, which offload_args.cudnn.Graph builds from pointers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from .. import cudnn
from ..devices import Device, as_device, default_number
from ..errors import ArgumentError, LibraryError
from ..pointers import DevicePtr
from .attention import attend, check_rows
from .descriptors import CODES, each, facts_of, matrix_facts_of, need_text
from .operations import FLOAT, Operations, Tensor, Typed, part
from .plan import Plan, plan_of

__all__ = ["Graph"]

# Versions of cuDNN before 9.25 lack the data type of bool, and end the process if it is passed.
_DTYPES: Final = tuple(name for name in CODES if name != "bool")
_PRODUCTS: Final = ("CONVOLUTION_FORWARD", "MATMUL")
_HAS_TF32: Final = (8, 0)  # compute capability
_CROSS_CORRELATION: Final = Typed(cudnn.TYPE_CONVOLUTION_MODE, cudnn.CROSS_CORRELATION)


@dataclass
class Graph(Operations):
    """Operations of cuDNN that run as one plan.

        graph = cudnn.Graph()
        x, w, b = graph.input(dx, "NHWC"), graph.input(dw, "KHWC"), graph.input(db, "C")
        y = graph.relu(graph.add(graph.convolution(x, w, padding=1), b))
        plan = graph.output(y, dy, "NHWC").plan()
        plan(dx, dw, db, dy)

    A plan takes the pointers of the inputs, and then of the outputs, in the order in which the graph got them. The
    arrays are checked, moved and ordered as in any call. Plans are kept: another graph of the same operations, dtypes,
    shapes and strides has the same plan. Intermediate results have the dtype float32, and are never in memory. Products
    of float32 have full precision or are refused, unless `plan(tf32=True)` allows TF32.
    """

    _outputs: dict[int, Tensor] = field(default_factory=dict)
    _attended: list[Tensor] = field(default_factory=list)  # the results of attention

    def input(self, like: Any, layout: str = "NCHW") -> Tensor:
        """Add an input and return it; `like` and `layout` are as in cudnn.tensor.

        Layouts such as "BMK" are for matrices, and layouts such as "BHSD" are for attention: batches, heads, positions,
        dimensions.
        """
        return self._argument("cudnn.Graph.input", like, layout)

    def output(self, of: Tensor, like: Any, layout: str = "NCHW") -> Graph:
        """Write the tensor `of` to an argument; return the graph."""
        self._check("cudnn.Graph.output", of=of)
        result = self._argument("cudnn.Graph.output", like, layout)
        if result.facts.shape != of.facts.shape:
            raise ArgumentError(
                f"cudnn.Graph.output: the result has the shape {of.facts.shape}, and {layout} {result.facts.shape}"
            )
        if of in self._attended:
            check_rows("cudnn.Graph.output", "the result of attention", result)
        self._outputs[of.uid] = result
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
        subject = "cudnn.Graph.convolution"
        self._check(subject, x=x, w=w)
        axes = len(x.facts.shape) - 2
        pads, steps, gaps = (
            each(subject, name, value, axes)
            for name, value in (("padding", padding), ("stride", stride), ("dilation", dilation))
        )
        if len(w.facts.shape) != axes + 2 or not all(w.facts.shape):
            raise ArgumentError(
                f"{subject}: w of shape {w.facts.shape} and stride {steps} do not fit x of shape {x.facts.shape}"
            )
        sizes = [
            (size + 2 * pad - gap * (window - 1) - 1) // step + 1
            for size, window, pad, step, gap in zip(
                x.facts.shape[2:], w.facts.shape[2:], pads, steps, gaps, strict=True
            )
        ]
        if x.facts.shape[1] % w.facts.shape[1] or min(sizes) < 1:
            raise ArgumentError(f"{subject}: w of shape {w.facts.shape} does not fit x of shape {x.facts.shape}")
        y = self._between((x.facts.shape[0], w.facts.shape[0], *sizes), x)
        settings = part(
            "CONVOLUTION",
            COMP_TYPE=FLOAT,
            CONV_MODE=_CROSS_CORRELATION,
            SPATIAL_DIMS=axes,
            PRE_PADDINGS=pads,
            POST_PADDINGS=pads,
            FILTER_STRIDES=steps,
            DILATIONS=gaps,
        )
        self._add("CONVOLUTION_FORWARD", X=x, W=w, Y=y, ALPHA=1.0, BETA=0.0, CONV_DESC=settings)
        return y

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply the matrices in the last two axes; the other axes count the matrices of a batch."""
        self._check("cudnn.Graph.matmul", a=a, b=b)
        if a.facts.shape[-1] != b.facts.shape[-2]:
            raise ArgumentError(f"cudnn.Graph.matmul: the shapes {a.facts.shape} and {b.facts.shape} do not fit")
        return self._product(a, b)

    def add(self, x: Tensor, b: Tensor) -> Tensor:
        """Add b to x; b is repeated along its axes of size 1."""
        return self._pointwise(cudnn.POINTWISE_ADD, x, b)

    def multiply(self, x: Tensor, b: Tensor | float) -> Tensor:
        """Multiply x by a number, or by b; b is repeated along its axes of size 1."""
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
        dimensions of a head. If q has n times the heads of k and v, each head of k and v serves n consecutive heads of
        q.
        scale: a number above 0; None stands for 1 over the square root of the number of dimensions. Attention needs
        cuDNN 9.13.

        causal: with True, the query at position i attends to the keys at positions 0 to i. The mask's diagonal then
        begins in the top left corner, as with PyTorch's is_causal. With "bottom-right", the diagonal ends in the bottom
        right corner: the last query attends to all keys, and each earlier query attends to one key less than the next
        query. There have to be at least as many keys as queries.

        lengths: two inputs of int32 with the layout "B". For each batch, the first has the number of positions of q,
        and the second has the number of positions of k and v. Keys past the lengths are ignored, and the results of
        queries past them have no meaning. With lengths, each batch has a separate bottom right corner. Lengths are read
        on the device, and are not checked: if a length is not from 1 to the number of positions, the results have no
        meaning.
        """
        result = attend(self, q, k, v, scale, causal, lengths)
        self._attended.append(result)
        return result

    def relu(self, x: Tensor) -> Tensor:
        """Set elements below 0 to 0."""
        return self._pointwise(cudnn.POINTWISE_RELU_FWD, x)

    def gelu(self, x: Tensor) -> Tensor:
        """Compute x times the probability that a normal variable is below x."""
        return self._pointwise(cudnn.POINTWISE_GELU_FWD, x)

    def plan(self, *, measured_on: Sequence[DevicePtr[Any]] = (), tf32: bool = False) -> Plan:
        """Return the plan of these operations; it is built once.

        The plan uses the first engine that cuDNN proposes. With measured_on (pointers as for a call of the plan), it
        uses the fastest engine, and the contents of the outputs are then undefined.

        tf32: convolutions and products of float32 may round their operands to TF32, for tensor cores. Otherwise engines
        that round operands, and plans that sum in less than float32, are left out.

        Raises LibraryError if cuDNN has no engine for the operations. On GPUs of compute capability 8.0 and later,
        matrices of float32 need tf32=True, because cuDNN's engines round their operands there and do not say so.
        """
        if not self._outputs:
            raise ArgumentError("cudnn.Graph.plan: needs an output; call output(result, pointer, layout)")
        used = {tensor.uid for operation in self._operations for tensor in operation.tensors}
        outputs = {tensor.uid for tensor in self._outputs.values()}
        arguments = [tensor.uid for tensor in self._tensors if not tensor.is_virtual and tensor.number is None]
        for at, uid in enumerate((uid for uid in arguments if uid not in outputs), 1):
            if uid not in used:
                raise ArgumentError(f"cudnn.Graph.plan: input {at} is used by no operation")
        device = Device.from_index(default_number()) if self.device is None else as_device(self.device)
        number = device.number
        exact = not tf32 and self._multiplies_float32(*_PRODUCTS)
        if exact and device.compute_capability >= _HAS_TF32 and self._multiplies_float32("MATMUL"):
            raise LibraryError(
                "cudnn.Graph.plan: cuDNN may round the operands of a matrix product of float32 to TF32 on "
                f"{device.name}, by engines that do not say so, and plan(tf32=True) takes them; blas.gemm is exact"
            )
        return plan_of(self, self._outputs, number, measured_on, exact)

    def _argument(self, function: str, like: Any, layout: str) -> Tensor:
        need_text(function, layout)
        if set(layout) <= set("BMKN"):
            facts = matrix_facts_of(function, like, layout)
        elif len(layout) == 4 and set(layout) == set("BHSD"):
            facts = matrix_facts_of(function, like, layout).in_order([layout.index(letter) for letter in "BHSD"])
        else:
            facts = facts_of(function, like, layout)
        if facts.dtype not in _DTYPES:
            raise ArgumentError(f"{function}: needs {' or '.join(_DTYPES)}, got {facts.dtype}")
        return self._new(facts, is_virtual=False)

    def _multiplies_float32(self, *kinds: str) -> bool:
        operands = (tensor for step in self._operations if step.kind in kinds for tensor in step.tensors)
        return any(not tensor.is_virtual and tensor.facts.dtype == "float32" for tensor in operands)
