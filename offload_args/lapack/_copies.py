"""Copies of operands on the device in another order."""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

from .._names import note_names
from .._operands import checking
from ..arguments import Scratch
from ..blas.extensions import geam
from ..blas.gemm import gemm
from ..errors import OffloadError, PerformanceWarning
from ..regions import offload_args
from ._stacks import copy_of_stack, in_a_stack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..pointers import DevicePtr

__all__ = ["Order", "conjugated", "fitting", "need_apart", "rearranged"]

Order: TypeAlias = Literal["C", "F"]


@contextmanager
def rearranged(source: DevicePtr, order: Order) -> Iterator[DevicePtr]:
    """Lend a copy of a matrix in an order, "C" or "F"."""
    with offload_args(Scratch(source._shape, source.dtype, order=order), device=source.device) as (copy,):
        geam(1.0, source, 0.0, source, copy)
        yield copy


@contextmanager
def conjugated(source: DevicePtr, order: Order) -> Iterator[DevicePtr]:
    """Lend the conjugate transpose of a matrix; both matrices have the same order."""
    with offload_args(Scratch(source._shape[::-1], source.dtype, order=order), device=source.device) as (copy,):
        geam(1.0, source, 0.0, source, copy, trans_a="C", trans_b="C")
        yield copy


@contextmanager
def fitting(name: str, operand: str, A: DevicePtr, B: DevicePtr, order: Order | None) -> Iterator[DevicePtr]:
    """Lend right sides, or, if the library needs an order, "C" or "F", a copy of them in this order.

    The copy's final contents are copied to B, unless the block fails. `A` is the matrix of the system, which B must not
    overlap.
    """
    if order is None or 0 in B._shape:
        yield B
        return
    B = B if len(B._shape) == 2 else B[:, None]
    meant, copied = "C", f"{operand} = np.ascontiguousarray({operand})"
    if order == "F":
        meant, copied = (
            "Fortran",
            copy_of_stack(operand) if in_a_stack() else f"{operand} = np.asfortranarray({operand})",
        )
    warnings.warn(
        f"{name}: {operand} has shape {B._shape} and strides {B._strides}, and the library needs {meant} order here: a "
        f"copy is made on the device, and copied back; to avoid that, {copied}",
        PerformanceWarning,
        stacklevel=_depth(),
    )
    need_apart(name, operand, A, B)
    with rearranged(B, order) as copy:
        yield copy
        geam(1.0, copy, 0.0, copy, B)


def need_apart(name: str, operand: str, A: DevicePtr, B: DevicePtr) -> None:
    """Raise AliasError if right sides overlap A; max(A.shape) is the number of the rows or columns of B."""
    tall = A if A._shape[0] >= A._shape[1] else A.T
    B = B if len(B._shape) == 2 else B[:, None]
    B = B if B._shape[0] == tall._shape[0] else B.T
    if 0 in A._shape or 0 in B._shape:
        return
    with offload_args(Scratch((tall._shape[1], B._shape[1]), A.dtype), device=A.device) as (factor,):
        factor.fill(0)
        try:
            with checking():
                gemm(1.0, tall, factor, 1.0, B)
        except OffloadError as error:
            error.args = (f"{name}: {error}",)
            note_names(error, {"C": operand})
            raise


def _depth() -> int:
    """Return the stacklevel for a warning of the caller, so that the warning names a line outside of this package."""
    level, frame = 1, sys._getframe(1)
    here = __name__.rpartition(".")[0]
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith((here, "contextlib")):
        level, frame = level + 1, frame.f_back
    return level
