"""The signature of a kernel: the kind of each parameter, and its place among the arguments."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .. import _core
from ..arguments import In, InOut, Out, Parameter
from ..display import plural, shown
from ..dtypes import code_of, spelled
from ..errors import SignatureError
from ..pointers import DevicePtr
from .facts import KernelFacts, ParameterFacts
from .partitions import Partition
from .types import ParameterType

__all__ = ["Formal", "formals_of"]

_ACCESS: Final = {In: _core.OA_READ, Out: _core.OA_OVERWRITE, InOut: _core.OA_READ_WRITE}
_POINTER_BYTES: Final = 8


@dataclass(frozen=True)
class Formal:
    """One parameter, as the launcher takes it."""

    name: str  #: the name in messages, such as "argument 2"
    text: str  #: the declaration, such as "In[float32]"
    access: int  #: the access of a pointer; 0 for a value
    dtype: np.dtype[Any] | None  #: None for a pointer to elements of any dtype
    offset: int
    nbytes: int
    partition: Partition | None = None  #: the partition by which the kernel divides the array

    @property
    def own_name(self) -> str:
        """The parameter's name in the source, which "argument 2 (x)" has in parentheses; "" if it is not known."""
        return self.name.partition("(")[2].removesuffix(")")

    @property
    def struct_bytes(self) -> int:
        """The size of an element that is a struct; 0 if the elements are not structs, and for a value."""
        return self.dtype.itemsize if self.access and self.dtype is not None and self.dtype.names is not None else 0

    def dimensions_of(self, pointer: DevicePtr[Any]) -> int:
        """Return the number of dimensions of an argument's elements."""
        return pointer.ndim - (self.struct_bytes > 0)

    @property
    def row(self) -> tuple[int, int, int, int, int]:
        """The parameter in the form for _core.Kernel. The core itself reads only values of some dtypes."""
        code = _core.OA_ANY if self.dtype is None else code_of(self.dtype)
        code = _core.OA_U8 if self.struct_bytes else max(code, _core.OA_ANY)
        return self.access, code, self.offset, self.nbytes, self.struct_bytes


def _struct_alignment(subject: str, dtype: np.dtype[Any]) -> int:
    """Return the alignment of a struct or of its field in C. Refuse dtypes that devices can't hold, or that C would lay
    out differently."""
    if dtype.subdtype is not None:
        return _struct_alignment(subject, dtype.subdtype[0])
    if dtype.fields is None:
        if code_of(dtype) < 0:
            raise SignatureError(f"{subject} has a field of {dtype}, which devices can't hold")
        return dtype.alignment
    fields = [(_struct_alignment(subject, field), offset) for field, offset, *_ in dtype.fields.values()]
    alignment = max((least for least, _ in fields), default=1)
    ends = sorted((offset, offset + field.itemsize, name) for name, (field, offset, *_) in dtype.fields.items())
    for (_, end, before), (offset, _, after) in itertools.pairwise(ends):
        if end > offset:
            raise SignatureError(
                f"{subject} has fields that overlap, {before!r} and {after!r}: give each its own bytes"
            )
    if dtype.itemsize % alignment or any(offset % least for least, offset in fields):
        raise SignatureError(f"{subject} is not laid out as in C: make its dtype with np.dtype(..., align=True)")
    return alignment


def _declared_by(value: object) -> str:
    """Return the remedy for an array, or for a direction around one, in a signature; "" for other values."""
    array = value.array if isinstance(value, (In, Out, InOut)) else value
    if not isinstance(array, (np.ndarray, DevicePtr)):
        return ""
    name = type(value).__name__ if array is not value else "In"
    others = "" if array is not value else ", or Out or InOut if the kernel writes it"
    return f"; declare {name}[{spelled(array.dtype.name)}]{others}, and pass the array to the kernel"


def _value_dtype(subject: str, declared: object) -> np.dtype[Any]:
    if isinstance(declared, type) and declared in (int, float, complex):
        raise SignatureError(
            f"{subject} is declared as {declared.__name__}, which has no one size in C: use np.int32, np.int64, "
            "np.float32, np.float64, np.complex64 or np.complex128"
        )
    if not isinstance(declared, (type, np.dtype)):
        raise SignatureError(
            f"{subject} needs In[dtype], Out[dtype] or InOut[dtype] for a pointer, or a NumPy type for a value; got "
            f"{shown(declared)}{_declared_by(declared)}"
        )
    try:
        dtype = np.dtype(declared)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.names is not None:
        _struct_alignment(subject, dtype)
    elif code_of(dtype) < 0:
        raise SignatureError(f"{subject} is declared as {shown(declared)}, which devices can't hold")
    return dtype


def _alignment(subject: str, dtype: np.dtype[Any]) -> int:
    return _struct_alignment(subject, dtype) if dtype.names is not None else dtype.itemsize


def _check_facts(subject: str, formal: Formal, facts: ParameterFacts) -> None:
    declared = "pointer" if formal.access else "value"
    if facts.nbytes != formal.nbytes or facts.kind not in ("", declared):
        raise SignatureError(
            f"{subject} is declared as {formal.text}, a {declared} of {formal.nbytes} bytes; the module says: {facts}"
        )


def _check_type(subject: str, formal: Formal, parameter_type: ParameterType) -> None:
    if parameter_type.suits(formal.access, formal.dtype):
        return
    remedy = "declare it as the source has it"
    if formal.access == _core.OA_READ and parameter_type.suits(_core.OA_READ_WRITE, formal.dtype):
        remedy = (
            f"make it const {parameter_type}" if str(parameter_type).endswith("*") else "make it oa::In in the source"
        )
        remedy += ", or declare InOut"
    elif formal.access == _core.OA_OVERWRITE and parameter_type.suits(_core.OA_READ_WRITE, formal.dtype):
        remedy = "the kernel reads it: declare InOut"
    raise SignatureError(f"{subject} is declared as {formal.text}, and the source has {parameter_type}: {remedy}")


def _place(subject: str, end: int, formal_text: str, dtype: np.dtype[Any] | None, facts: ParameterFacts | None) -> int:
    """Return a parameter's offset, which is stated by the module, or else follows from C's layout of parameters."""
    alignment = _POINTER_BYTES if dtype is None else _alignment(subject, dtype)
    natural = -(-end // alignment) * alignment
    if facts is None or facts.offset in (-1, natural):
        return natural
    # The complex types and structs of vendors may have another alignment than NumPy's.
    is_free = dtype is not None and (dtype.kind == "c" or dtype.names is not None)
    if is_free and facts.offset >= end:
        return facts.offset
    raise SignatureError(
        f"{subject} is declared as {formal_text}, at offset {natural} of the arguments; the module has it at offset "
        f"{facts.offset}"
    )


def _partition(subject: str, declared: object) -> Partition | None:
    if not isinstance(declared, Parameter) or declared.partition is None:
        return None
    if not isinstance(declared.partition, Partition):
        raise SignatureError(
            f"{subject}: by needs a partition of offload_args.kernels, such as Linear1D(), got "
            f"{shown(declared.partition)}"
        )
    if declared.direction is In:
        raise SignatureError(
            f"{subject} is declared as {shown(declared)}: In has no owners, any thread reads all of it"
        )
    return declared.partition


def _formal(subject: str, name: str, declared: object, end: int, facts: ParameterFacts | None) -> Formal:
    direction, dtype = (declared.direction, declared.dtype) if isinstance(declared, Parameter) else (declared, None)
    if isinstance(direction, type) and direction in _ACCESS:
        if dtype is not None and dtype.names is not None:
            _struct_alignment(subject, dtype)
        elif dtype is not None and code_of(dtype) < 0:
            raise SignatureError(f"{subject} is declared as {shown(declared)}, whose elements devices can't hold")
        text = repr(declared) if dtype is not None else direction.__name__
        offset = _place(subject, end, text, None, facts)
        formal = Formal(name, text, _ACCESS[direction], dtype, offset, _POINTER_BYTES, _partition(subject, declared))
    else:
        value = _value_dtype(subject, declared)
        text = str(value)
        formal = Formal(name, text, 0, value, _place(subject, end, text, value, facts), value.itemsize)
    if facts is not None:
        _check_facts(subject, formal, facts)
    return formal


def _for_each(facts: KernelFacts | None) -> str:
    """Return the remedy for a signature with another number of parameters than the kernel."""
    declarations = [kind.declaration for kind in (facts.types if facts is not None else None) or ()]
    if declarations and all(declarations):
        return f"write [{', '.join(declarations)}]"
    return "give a type for each: In, Out or InOut[dtype] for a pointer, a dtype of this size for a value"


def formals_of(kernel: str, signature: Sequence[object], facts: KernelFacts | None) -> tuple[Formal, ...]:
    """Return the parameters of a declared signature, checked against the module's facts.

    Raises SignatureError for a type that no kernel takes. Raises it, too, if the module states another number of
    parameters, other sizes or places, or other pointers.
    """
    if not isinstance(signature, Sequence) or isinstance(signature, (str, bytes, Parameter)):
        raise SignatureError(
            f"{kernel}: signature needs a list with a type for each parameter, got {type(signature).__name__}"
        )
    known = facts.parameters if facts is not None else None
    if known is not None and len(known) != len(signature):
        raise SignatureError(
            f"{kernel}: the signature has {len(signature)} {plural('parameter', len(signature))}, the module's kernel "
            f"{len(known)}: {facts}; {_for_each(facts)}"
        )
    types = facts.types if facts is not None and facts.types is not None else ()
    formals: list[Formal] = []
    end = 0
    for i, declared in enumerate(signature):
        name = f"argument {i + 1}"
        formals.append(_formal(f"{kernel}: {name}", name, declared, end, known[i] if known is not None else None))
        end = formals[-1].offset + formals[-1].nbytes
        if i < len(types):  # the record of debug=True has no type in the table
            _check_type(f"{kernel}: {name}", formals[-1], types[i])
    if not any(formal.access for formal in formals):
        raise SignatureError(f"{kernel}: a kernel needs a pointer parameter: without one it has no effect")
    if len(formals) > _core.OA_MOST_PARAMETERS or end > _core.OA_MOST_PARAMETER_BYTES:
        raise SignatureError(
            f"{kernel}: a kernel takes at most {_core.OA_MOST_PARAMETERS} parameters of "
            f"{_core.OA_MOST_PARAMETER_BYTES} bytes in all; the signature has {len(formals)} of {end} bytes"
        )
    return tuple(formals)
