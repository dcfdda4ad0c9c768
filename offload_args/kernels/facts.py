"""The facts that a module states about one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .types import ParameterType

__all__ = ["KernelFacts", "ParameterFacts"]


@dataclass(frozen=True)
class ParameterFacts:
    """One parameter: its place among the arguments. `kind` is "" if the module does not state its kind."""

    offset: int
    nbytes: int
    kind: Literal["pointer", "value", ""] = ""

    def __str__(self) -> str:
        return f"{self.kind or 'pointer or value'} of {self.nbytes} bytes"


@dataclass(frozen=True)
class KernelFacts:
    """One kernel. None stands for a fact that the module does not state."""

    name: str
    parameters: tuple[ParameterFacts, ...] | None = None
    shared_bytes: int | None = None  #: shared memory of a block that the kernel itself declares
    registers: int | None = None  #: the registers of a thread
    most_threads: int | None = None  #: the most threads of a block
    types: tuple[ParameterType, ...] | None = None  #: the types of the parameters in the source

    def __str__(self) -> str:
        parts = ["parameters not known" if self.parameters is None else ", ".join(map(str, self.parameters))]
        if self.shared_bytes is not None:
            parts.append(f"{self.shared_bytes} shared bytes")
        if self.registers is not None:
            parts.append(f"{self.registers} registers")
        if self.most_threads is not None:
            parts.append(f"at most {self.most_threads} threads a block")
        return f"{self.name}({parts[0]})" + "".join(f", {part}" for part in parts[1:])
