"""Calls of routines: their operands, further rules, and chains of captured calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helpers.model.parts import Part

Array = NDArray[np.float64]

READS, OVERWRITES, READS_AND_WRITES = 1, 2, 3  # how a call uses an operand
# {dtype: the largest whole number}; sums and products up to this number are exact in any order.
LARGEST = {"float32": 2.0**20, "complex64": 2.0**20, "int32": 2.0**31 - 1, "float64": 2.0**48, "complex128": 2.0**48}


@dataclass(frozen=True)
class Operand:
    """A pointer of a region, the part to which it was sliced, and the slice as Python code."""

    region: int
    argument: int
    part: Part
    text: str

    def is_very(self, other: Operand) -> bool:
        """Return whether the other operand is the same object, and not a separate slice."""
        return self.text == other.text and (self.text.count("[") == 1 or self.text.startswith("g"))


Compute = Callable[..., tuple[tuple[Array, ...], object]]  # values of operands -> (values of written operands, result)


FLOATS = frozenset({"float32", "float64", "complex64", "complex128"})


@dataclass(frozen=True)
class Rules:
    """The rules of a routine in addition to its operands."""

    dtypes: frozenset[str] = FLOATS  # the possible dtypes; all operands have the same dtype
    in_place: frozenset[int] = frozenset()  # operands that may be the very same vector
    may_be_real: frozenset[int] = frozenset()  # operands that may be real if the others are complex
    stays: bool = False  # contents that are only on the host are read there
    by_rows: bool = False  # rows of an irregular slice are read one by one; otherwise with the elements between them

    def faults(self, operands: Sequence[Operand]) -> set[str]:
        """Return the errors of the operands' dtypes."""
        dtypes = {operand.part.dtype for i, operand in enumerate(operands) if i not in self.may_be_real}
        others = {operands[i].part.dtype for i in self.may_be_real if i < len(operands)}
        real = {"complex64": "float32", "complex128": "float64"}
        if len(dtypes) > 1 or dtypes - self.dtypes:
            return {"DTypeError"}
        return {"DTypeError"} if others - dtypes - {real.get(dtype, "") for dtype in dtypes} else set()


BLAS = Rules()
REAL = Rules(dtypes=frozenset({"float32", "float64"}))
LEVEL_1 = Rules(in_place=frozenset({0, 1}))
SCAL = Rules(may_be_real=frozenset({1}))
CONTENTS = Rules(dtypes=FLOATS | {"int32"})
HELD = Rules(by_rows=True)
TO_HOST = Rules(dtypes=FLOATS | {"int32"}, stays=True)


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a routine, which a graph may capture."""

    operands: tuple[tuple[Operand, int], ...]
    compute: Compute
    rules: Rules = BLAS
    to_host: bool = False  # whether its result goes to the host


@dataclass(frozen=True, eq=False)
class Chain:
    """A graph of captured calls of a region; `calls` is None while there are none to replay."""

    region: int
    names: dict[str, Operand]
    calls: tuple[Call, ...] | None
