"""The operations of a graph as tables of attributes, and the descriptors of these operations for cuDNN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from .. import cudnn
from ..display import shown
from ..errors import ArgumentError, ArgumentTypeError
from .descriptors import MASK, Facts, service

__all__ = [
    "ALIGNMENT",
    "FLOAT",
    "NUMBERS",
    "Operation",
    "Operations",
    "Tensor",
    "Typed",
    "make",
    "part",
    "tensor_descriptor",
]

NUMBERS: Final = (int, float, np.integer, np.floating)
ALIGNMENT: Final = 16  # bytes; the arrays of plans are aligned to it


class Typed(NamedTuple):
    """A value of an attribute with its type; needed if the value, such as an enum's constant, does not determine it."""

    type: int
    value: Any


FLOAT: Final = Typed(cudnn.TYPE_DATA_TYPE, cudnn.DATA_FLOAT)
_PRECISIONS: Final = {  # {dtype of a result: the precision of its operation}; other dtypes have FLOAT
    "int32": Typed(cudnn.TYPE_DATA_TYPE, cudnn.DATA_INT32),
    MASK: Typed(cudnn.TYPE_DATA_TYPE, cudnn.DATA_BOOLEAN),
}
_PACKED: Final = {
    cudnn.TYPE_INT64: np.int64,
    cudnn.TYPE_FLOAT: np.float32,
    cudnn.TYPE_DOUBLE: np.float64,
    cudnn.TYPE_BOOLEAN: np.uint8,
    cudnn.TYPE_BACKEND_DESCRIPTOR: np.uint64,
    cudnn.TYPE_HANDLE: np.uint64,
}


def _type_of(value: Any) -> int:
    """Return the type of an attribute, which follows from its first value."""
    if isinstance(value, bool):
        return cudnn.TYPE_BOOLEAN
    if isinstance(value, float):
        return cudnn.TYPE_FLOAT
    if isinstance(value, (int, np.integer)):
        return cudnn.TYPE_INT64
    return cudnn.TYPE_HANDLE if isinstance(value, cudnn.Handle) else cudnn.TYPE_BACKEND_DESCRIPTOR


def make(kind: str, **attributes: Any) -> Any:
    """Return a finalized descriptor of the graph API.

    `kind` and the names of attributes are parts of cuDNN's names: make("TENSOR", STRIDES=(4, 1)) sets the attribute
    CUDNN_ATTR_TENSOR_STRIDES of a CUDNN_BACKEND_TENSOR_DESCRIPTOR. An attribute has one value or a sequence of them.
    """
    descriptor = service("backend_create_descriptor")(getattr(cudnn, f"BACKEND_{kind}_DESCRIPTOR"))
    for name, value in attributes.items():
        known = value if isinstance(value, Typed) else None
        plain = value if known is None else known.value
        values = plain if isinstance(plain, (tuple, list)) else (plain,)
        type_code = _type_of(values[0]) if known is None else known.type
        if type_code in (cudnn.TYPE_BACKEND_DESCRIPTOR, cudnn.TYPE_HANDLE):
            values = [member.address for member in values]
        array = np.array(values, _PACKED.get(type_code, np.int32))
        attribute = getattr(cudnn, f"ATTR_{kind}_{name}")
        service("backend_set_attribute")(descriptor, attribute, type_code, len(array), array)
    service("backend_finalize")(descriptor)
    return descriptor


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a graph: an argument, or a result between two operations."""

    facts: Facts
    uid: int
    graph: Operations = field(repr=False)
    is_virtual: bool = True
    number: float | None = None  # the value, if the tensor is a number on the host


def tensor_descriptor(tensor: Tensor) -> Any:
    by_value = {} if tensor.number is None else {"IS_BY_VALUE": True}
    return make(
        "TENSOR",
        DATA_TYPE=Typed(cudnn.TYPE_DATA_TYPE, tensor.facts.code),
        DIMENSIONS=tensor.facts.shape,
        STRIDES=tensor.facts.strides,
        UNIQUE_ID=tensor.uid,
        BYTE_ALIGNMENT=ALIGNMENT,
        IS_VIRTUAL=tensor.is_virtual,
        **by_value,
    )


@dataclass(frozen=True)
class Part:
    """The settings of an operation; their descriptor is an attribute of the operation."""

    kind: str
    attributes: tuple[tuple[str, Any], ...]


def part(kind: str, **attributes: Any) -> Part:
    """Return the settings of an operation."""
    return Part(kind, tuple(attributes.items()))


@dataclass(frozen=True)
class Operation:
    """An operation by its attributes: numbers, tensors and at most one part."""

    kind: str
    attributes: dict[str, Any]

    @property
    def tensors(self) -> list[Tensor]:
        return [value for value in self.attributes.values() if isinstance(value, Tensor)]

    @property
    def signature(self) -> tuple[object, ...]:
        """The operation as part of the key of its plan."""
        values = (
            (name, (value.uid, value.facts) if isinstance(value, Tensor) else value)
            for name, value in self.attributes.items()
        )
        return (self.kind, *values)

    def descriptor(self, descriptor_of: Callable[[Tensor], Any], parts: list[Any]) -> Any:
        """Return the operation's descriptor, and add its part's descriptor to parts."""
        values = {}
        for name, value in self.attributes.items():
            if isinstance(value, Part):
                parts.append(make(value.kind, **dict(value.attributes)))
                values[name] = parts[-1]
            else:
                values[name] = descriptor_of(value) if isinstance(value, Tensor) else value
        return make(f"OPERATION_{self.kind}", **values)


@dataclass
class Operations:
    """The tensors and operations of a graph, and methods that add them."""

    device: Any = None
    _tensors: list[Tensor] = field(default_factory=list)
    _operations: list[Operation] = field(default_factory=list)

    def _new(self, facts: Facts, *, is_virtual: bool = True, number: float | None = None) -> Tensor:
        tensor = Tensor(facts, len(self._tensors) + 1, self, is_virtual, number)
        self._tensors.append(tensor)
        return tensor

    def _check(self, function: str, **tensors: object) -> None:
        for name, tensor in tensors.items():
            if not isinstance(tensor, Tensor):
                raise ArgumentTypeError(f"{function}: {name} needs to be a tensor of the graph, got {shown(tensor)}")
            if tensor.graph is not self:
                raise ArgumentError(f"{function}: {name} is a tensor of another graph")

    def _between(self, shape: tuple[int, ...], like: Tensor | None, dtype: str = "float32") -> Tensor:
        """Return a new tensor between operations.

        If the channels of `like` are the last axis, its channels are, too.
        """
        order = list(range(len(shape) - 1, -1, -1))
        if like is not None and like.facts.strides[1] == 1:
            order = [1, *range(len(shape) - 1, 1, -1), 0]
        strides, step = [0] * len(shape), 1
        for axis in order:
            strides[axis] = step
            step *= shape[axis]
        return self._new(Facts(dtype, shape, tuple(strides)))

    def _number(self, number: float, like: Tensor, dtype: str = "float32") -> Tensor:
        if not isinstance(number, NUMBERS):
            raise ArgumentTypeError(f"cudnn.Graph: needs a number or a tensor of the graph, got {shown(number)}")
        ones = (1,) * len(like.facts.shape)
        return self._new(Facts(dtype, ones, ones), is_virtual=False, number=float(number))

    def _add(self, kind: str, **attributes: Any) -> None:
        """Add an operation.

        `kind` and the attributes' names are parts of cuDNN's names; an attribute of None is not set. A tensor stands
        for its descriptor, and a Part for the descriptor of its settings.
        """
        values = {name: value for name, value in attributes.items() if value is not None}
        self._operations.append(Operation(kind, values))

    def _pointwise(
        self,
        mode: int,
        x: Tensor,
        b: Tensor | None = None,
        dtype: str = "float32",
        *,
        mask: Tensor | None = None,
        axis: int | None = None,
    ) -> Tensor:
        """Add an operation on each element; mask: the mask of a choice; axis: the axis of a generated index."""
        self._check("cudnn.Graph", x=x, b=x if b is None else b)
        y = self._between(x.facts.shape, x, dtype)
        if b is not None and (
            len(b.facts.shape) != len(x.facts.shape)
            or any(size not in (1, whole) for size, whole in zip(b.facts.shape, x.facts.shape, strict=True))
        ):
            raise ArgumentError(f"cudnn.Graph: the shapes {x.facts.shape} and {b.facts.shape} do not fit")
        settings: dict[str, Any] = {} if axis is None else {"AXIS": axis}
        self._add(
            "POINTWISE",
            XDESC=x,
            BDESC=b,
            TDESC=mask,
            YDESC=y,
            PW_DESCRIPTOR=part(
                "POINTWISE",
                MODE=Typed(cudnn.TYPE_POINTWISE_MODE, mode),
                MATH_PREC=_PRECISIONS.get(dtype, FLOAT),
                **settings,
            ),
        )
        return y

    def _product(self, a: Tensor, b: Tensor, **limits: Tensor) -> Tensor:
        """Add a product of matrices; limits: the valid rows (m), columns (n) or summands (k) of each batch."""
        y = self._between((*a.facts.shape[:-1], b.facts.shape[-1]), None)
        settings = {"PADDING_VALUE": Typed(cudnn.TYPE_DOUBLE, 0.0)} if limits else {}
        self._add(
            "MATMUL",
            ADESC=a,
            BDESC=b,
            CDESC=y,
            **{f"GEMM_{name.upper()}_OVERRIDE_DESC": limit for name, limit in limits.items()},
            DESC=part("MATMUL", COMP_TYPE=FLOAT, **settings),
        )
        return y

    def _reduced(self, operator: int, x: Tensor) -> Tensor:
        """Add a reduction along the last axis, which keeps one element."""
        y = self._between((*x.facts.shape[:-1], 1), None)
        settings = part("REDUCTION", COMP_TYPE=FLOAT, OPERATOR=Typed(cudnn.TYPE_REDUCTION_OPERATOR_TYPE, operator))
        self._add("REDUCTION", XDESC=x, YDESC=y, DESC=settings)
        return y
