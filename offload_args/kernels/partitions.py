"""Partitions: which thread or block owns which elements, as oa:: of kernel.h has them.

A signature has them beside the arrays that they divide: `Out[np.float32].by(Tiles(16, 16))`. They say nothing of sizes:
those are the array's. A matrix's rows are those in memory, so the rows of a matrix in Fortran order are its columns. A
matrix of one row or column has both orders, and NumPy gives it any strides: a division by rows then covers either
reading. One by rows and columns would need a grid of size * size, so it takes the strides of C order, and no others.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, fields
from typing import ClassVar, Final, NamedTuple, Protocol

from ..display import shown
from ..errors import ArgumentError, ArgumentTypeError, CoverageError

__all__ = [
    "Geometry",
    "GridStride1D",
    "Linear1D",
    "Linear2D",
    "Need",
    "Partition",
    "PerBlock",
    "RowBlocks",
    "Rows",
    "Tiles",
    "check",
    "good_block",
    "needed_grid",
]

_NAMES: Final = ("", "elements", "rows", "columns")  # by the extent's number, which _core knows, too
_SIZE, _ROWS, _COLUMNS = 1, 2, 3
_STRIDED_BLOCKS: Final = 8  # for each multiprocessor
_STRIDED_SIZE: Final = 4096  # elements of a thread on the CPU, at least
_WARP: Final = 32

Three = tuple[int, int, int]


class Need(NamedTuple):
    """State how many threads or blocks a grid needs along one axis."""

    extent: int = 0  #: of the array, to be divided: _SIZE, _ROWS or _COLUMNS; 0: any grid will do
    each: int = 1  #: of these belong to one thread, or to one block
    by_block: int = 0  #: 1: to a block


class Geometry(NamedTuple):
    """State the shape of an array, and its strides; None: those of C order."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None


class Limits(Protocol):
    """The facts of a kernel on a device that choose a block."""

    @property
    def good_threads(self) -> int: ...
    @property
    def multiprocessors(self) -> int: ...


@dataclass(frozen=True)
class Partition:
    """Divide an array among the threads of a grid."""

    needs: ClassVar[tuple[Need, Need]]  #: along x and y

    def __post_init__(self) -> None:
        for field in fields(self):
            name = f"{type(self).__name__}: {field.name}"
            try:
                value = operator.index(getattr(self, field.name))
            except TypeError:
                raise ArgumentTypeError(
                    f"{name} needs a whole number, got {shown(getattr(self, field.name))}"
                ) from None
            if not 1 <= value < 2**31:
                raise ArgumentError(f"{name} needs 1 or more, got {shown(value)}")

    def along(self) -> tuple[Need, Need]:
        """Return what a grid needs along x and y."""
        return self.needs

    def block(self, limits: Limits, on_cpu: bool) -> Three:
        """Return a block that suits the partition on a device."""
        return limits.good_threads, 1, 1

    def grid(self, size: int, block: Three, limits: Limits, on_cpu: bool) -> Three:
        """Return a good grid where any covers all; size: of the array."""
        return 1, 1, 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(str(getattr(self, field.name)) for field in fields(self))})"


@dataclass(frozen=True, repr=False)
class Linear1D(Partition):
    """Give element i to thread i along x."""

    needs = (Need(_SIZE), Need())


@dataclass(frozen=True, repr=False)
class GridStride1D(Partition):
    """Have the threads along x share the elements."""

    needs = (Need(), Need())

    def block(self, limits: Limits, on_cpu: bool) -> Three:
        return 1 if on_cpu else limits.good_threads, 1, 1

    def grid(self, size: int, block: Three, limits: Limits, on_cpu: bool) -> Three:
        each, most = (_STRIDED_SIZE, 4) if on_cpu else (1, _STRIDED_BLOCKS)
        return max(1, min(-(-size // (each * block[0])), most * limits.multiprocessors)), 1, 1


@dataclass(frozen=True, repr=False)
class Linear2D(Partition):
    """Give element (row, column) to the thread of that place along y and x."""

    needs = (Need(_COLUMNS), Need(_ROWS))

    def block(self, limits: Limits, on_cpu: bool) -> Three:
        if on_cpu or limits.good_threads < _WARP:
            return limits.good_threads, 1, 1
        return _WARP, limits.good_threads // _WARP, 1


@dataclass(frozen=True, repr=False)
class PerBlock(Partition):
    """Give element i to the first thread of block i along x."""

    needs = (Need(_SIZE, 1, 1), Need())


@dataclass(frozen=True, repr=False)
class Rows(Partition):
    """Give row i of a matrix to thread i along x."""

    needs = (Need(_ROWS), Need())

    def block(self, limits: Limits, on_cpu: bool) -> Three:
        return 1 if on_cpu else limits.good_threads, 1, 1


@dataclass(frozen=True, repr=False)
class RowBlocks(Partition):
    """Give rows i * height to (i + 1) * height - 1 of a matrix to block i along x, whose threads share them."""

    height: int

    def along(self) -> tuple[Need, Need]:
        return Need(_ROWS, self.height, 1), Need()

    def block(self, limits: Limits, on_cpu: bool) -> Three:
        return 1 if on_cpu else limits.good_threads, 1, 1


@dataclass(frozen=True, repr=False)
class Tiles(Partition):
    """Give each tile of a matrix to the block of its place along y and x, whose threads share it."""

    height: int
    width: int

    def along(self) -> tuple[Need, Need]:
        return Need(_COLUMNS, self.width, 1), Need(_ROWS, self.height, 1)

    def block(self, limits: Limits, on_cpu: bool) -> Three:
        if on_cpu:
            return 1, 1, 1
        x = min(self.width, limits.good_threads)
        return x, max(1, min(self.height, limits.good_threads // x)), 1


def _extent(what: str, partition: Partition, kind: int, given: Geometry) -> int:
    """Return what a partition divides of an array."""
    shape = given.shape
    if kind == _SIZE:
        return math.prod(shape)
    if len(shape) != 2:
        raise CoverageError(
            f"{what}: {partition} divides a matrix, got one with shape {tuple(shape)}: lend it as x.reshape(rows, "
            "columns)"
        )
    size, (down, across) = math.prod(shape), given.strides or (1, 0)
    if 1 in shape and size > 1:  # in both orders: its strides tell nothing of the kernel's rows
        if not all(need.extent for need in partition.along()):
            return size
        if down < across or (down == across and shape[1] != 1):
            raise CoverageError(
                f"{what}: {partition} divides a matrix, got shape {tuple(shape)} with strides {(down, across)}, which "
                "has one row or one column in either order: lend it as x.reshape(-1).reshape(rows, columns), with the "
                "kernel's rows and columns"
            )
    rows = int(down < across)
    return int(shape[rows if kind == _ROWS else 1 - rows])


def _needed(what: str, partition: Partition, given: Geometry, block: Three) -> list[int]:
    """Return how many blocks a partition needs along x and y."""
    needed = []
    for axis, (kind, each, by_block) in enumerate(partition.along()):
        units = -(-_extent(what, partition, kind, given) // each) if kind else 1
        needed.append(max(1, units if by_block else -(-units // block[axis])))
    return needed


def good_block(partitions: list[Partition], limits: Limits, on_cpu: bool) -> Three:
    """Return a block that suits a kernel with these partitions: that of the first."""
    return partitions[0].block(limits, on_cpu)


def needed_grid(divided: list[tuple[str, Partition, Geometry]], block: Three, limits: Limits, on_cpu: bool) -> Three:
    """Return the smallest grid that gives each element an owner.

    divided: what to call an argument, its partition, and the array's shape. Raises CoverageError if an array has
    another number of dimensions than its partition.
    """
    x = y = 1
    for what, partition, given in divided:
        needed = _needed(what, partition, given, block)
        good = partition.grid(math.prod(given.shape), block, limits, on_cpu)
        x, y = max(x, needed[0], good[0]), max(y, needed[1], good[1])
    return x, y, 1


def check(what: str, partition: Partition, given: Geometry, grid: Three, block: Three) -> None:
    """Raise CoverageError if a grid leaves elements of an array without an owner. It is checked in C first."""
    for axis, (kind, each, by_block) in enumerate(partition.along()):
        extent = _extent(what, partition, kind, given) if kind else 0
        owners = grid[axis] * (1 if by_block else block[axis])
        if -(-extent // each) > owners:
            reached = min(extent, owners * each)
            raise CoverageError(
                f"{what}: {partition}: a grid of {grid} with blocks of {block} reaches {reached} of {extent} "
                f"{_NAMES[kind]}; it needs {_needed(what, partition, given, block)[axis]} blocks along {'xy'[axis]}, "
                "or leave grid to launch and offload"
            )
