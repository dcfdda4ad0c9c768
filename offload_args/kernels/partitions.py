"""Partitions, which divide an array's elements among threads or blocks, as in oa:: of kernel.h.

In a signature, a partition follows the array that it divides: `Out[np.float32].by(Tiles(16, 16))`. The partition takes
its sizes from the array. Here, a row is a line of the matrix in memory, which in Fortran order is one of its columns. A
matrix of one row or column has both orders, and NumPy may give it any strides. So a grid for a division by rows is
large enough for both orders. A division by rows and columns only takes the strides of C order, because both orders
would need a grid of size * size.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, fields
from typing import ClassVar, Final, NamedTuple, Protocol

from .._signatures import telling
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
    "default_threads",
]

_NAMES: Final = ("", "elements", "rows", "columns")  # the index is the extent's number, which _core uses, too
_SIZE, _ROWS, _COLUMNS = 1, 2, 3
_THREADS: Final = 256  # threads of a block; benchmarks/block_size.py measures the best number
_STRIDED_BLOCKS: Final = 8  # the most blocks for each multiprocessor
_STRIDED_SIZE: Final = 4096  # the fewest elements of a thread on the CPU
_WARP: Final = 32

Three = tuple[int, int, int]


class Need(NamedTuple):
    """State the number of threads or blocks that a grid needs along one axis."""

    extent: int = 0  #: the divided extent of the array: _SIZE, _ROWS or _COLUMNS; 0 if any grid suffices
    each: int = 1  #: how many elements of the extent belong to one thread, or to one block
    by_block: int = 0  #: 1 if these elements belong to a block
    exact: int = 0  #: 1 if each block writes a separate element, so that more blocks would write beyond the array


class Geometry(NamedTuple):
    """State the shape of an array, and its strides, which are None for C order."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None


class Limits(Protocol):
    """The facts of a kernel on a device that determine a block."""

    @property
    def good_threads(self) -> int: ...
    @property
    def multiprocessors(self) -> int: ...


def default_threads(limits: Limits) -> int:
    """Return the default number of threads of a block."""
    return min(_THREADS, limits.good_threads)


@telling
@dataclass(frozen=True)
class Partition:
    """Divide an array among the threads of a grid."""

    needs: ClassVar[tuple[Need, Need]]  #: the needs along x and y

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
        """Return the blocks that a grid needs along x and y."""
        return self.needs

    def block(self, limits: Limits, on_cpu: bool) -> Three:
        """Return a block that suits the partition on a device."""
        return default_threads(limits), 1, 1

    def blocks(self, limits: Limits, on_cpu: bool) -> tuple[int, int]:
        """Return a good number of blocks if any number covers the array: `each` elements a thread, up to a limit.

        The result is (1, 0) if the partition itself determines the number.
        """
        return 1, 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(str(getattr(self, field.name)) for field in fields(self))})"


@telling
@dataclass(frozen=True, repr=False)
class Linear1D(Partition):
    """Give element i to thread i along x.

        source = '''
        #include <offload_args/kernel.h>
        OA_KERNEL(add, oa::In<float> x, oa::InOut<float> y, int n) {
          for (auto element : y.mine(oa::Linear1D(n), here))
            *element += x[element.index()];
        }'''
        types = [In[np.float32], InOut[np.float32].by(kernels.Linear1D()), np.int32]
        add = Kernel.compile(source, "add", types)
        x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
        offload(add, x, y, 3)
        print(y)  # [1. 2. 3.]

    See also: kernels.GridStride1D, kernels.Linear2D, Kernel; docs/guide/kernels.md.
    """

    needs = (Need(_SIZE), Need())


@telling
@dataclass(frozen=True, repr=False)
class GridStride1D(Partition):
    """Let the threads along x share the elements.

        source = '''
        #include <offload_args/kernel.h>
        OA_KERNEL(scale, oa::InOut<float> x, float by, int n) {
          for (auto element : x.mine(oa::GridStride1D(n), here)) *element *= by;
        }'''
        types = [InOut[np.float32].by(kernels.GridStride1D()), np.float32, np.int32]
        scale = Kernel.compile(source, "scale", types)
        x = np.ones(1000, np.float32)
        offload(scale, x, 2.0, x.size, grid=4, block=8)  # any grid covers all
        print(x.sum())  # 2000.0

    See also: kernels.Linear1D, Kernel; docs/guide/kernels.md.
    """

    needs = (Need(), Need())

    def block(self, limits: Limits, on_cpu: bool) -> Three:
        return 1 if on_cpu else default_threads(limits), 1, 1

    def blocks(self, limits: Limits, on_cpu: bool) -> tuple[int, int]:
        each, most = (_STRIDED_SIZE, 4) if on_cpu else (1, _STRIDED_BLOCKS)
        return each, most * limits.multiprocessors


@telling
@dataclass(frozen=True, repr=False)
class Linear2D(Partition):
    """Give element (row, column) to the thread with the number `row` along y and `column` along x.

        source = '''
        #include <offload_args/kernel.h>
        OA_KERNEL(table, oa::Out<int> x, int rows, int columns) {
          for (auto element : x.mine(oa::Linear2D(rows, columns), here))
            *element = 10 * element.row() + element.column();
        }'''
        types = [Out[np.int32].by(kernels.Linear2D()), np.int32, np.int32]
        table = Kernel.compile(source, "table", types)
        x = np.zeros((2, 3), np.int32)
        offload(table, x, *x.shape)
        print(x.tolist())  # [[0, 1, 2], [10, 11, 12]]

    See also: kernels.Tiles, kernels.Rows, Kernel; docs/guide/kernels.md.
    """

    needs = (Need(_COLUMNS), Need(_ROWS))

    def block(self, limits: Limits, on_cpu: bool) -> Three:
        threads = default_threads(limits)
        return (threads, 1, 1) if on_cpu or threads < _WARP else (_WARP, threads // _WARP, 1)


@telling
@dataclass(frozen=True, repr=False)
class PerBlock(Partition):
    """Give element i to the first thread of block i along x. The grid has as many blocks as there are elements.

        source = '''
        #include <offload_args/kernel.h>
        OA_BLOCK_KERNEL(sums, oa::In<float> x, oa::Out<float> y) {
          const auto part = here.shared<float>();  // the block's
          here.phase([&](const oa::Here &here) { part[here.thread()] = x[here.index()]; });
          here.phase([&](const oa::Here &here) {
            for (auto element : y.mine(oa::PerBlock(), here)) {
              *element = 0;
              for (long long i = 0; i < part.size(); i++) *element += part[i];
            }
          });
        }'''
        types = [In[np.float32], Out[np.float32].by(kernels.PerBlock())]
        sums = Kernel.compile(source, "sums", types)
        x, y = np.arange(8, dtype=np.float32), np.zeros(2, np.float32)
        offload(sums, x, y, block=4, shared_bytes=Shared[np.float32](4))
        print(y)  # [ 6. 22.]

    See also: kernels.RowBlocks, Shared, Kernel; docs/guide/kernels.md.
    """

    needs = (Need(_SIZE, 1, 1, 1), Need())


@telling
@dataclass(frozen=True, repr=False)
class Rows(Partition):
    """Give row i of a matrix to thread i along x.

        source = '''
        #include <offload_args/kernel.h>
        OA_KERNEL(running, oa::InOut<float> x, int rows, int columns) {
          for (auto row : x.slices(oa::Rows(rows, columns), here))
            for (long long j = 1; j < row.size(); j++) row[j] += row[j - 1];
        }'''
        types = [InOut[np.float32].by(kernels.Rows()), np.int32, np.int32]
        running = Kernel.compile(source, "running", types)
        x = np.ones((2, 3), np.float32)
        offload(running, x, *x.shape)
        print(x.tolist())  # [[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]

    See also: kernels.RowBlocks, kernels.Linear2D, Kernel; docs/guide/kernels.md.
    """

    needs = (Need(_ROWS), Need())

    def block(self, limits: Limits, on_cpu: bool) -> Three:
        return 1 if on_cpu else default_threads(limits), 1, 1


@telling
@dataclass(frozen=True, repr=False)
class RowBlocks(Partition):
    """Give rows i * height to (i + 1) * height - 1 of a matrix to block i along x; the block's threads share them.

        source = '''
        #include <offload_args/kernel.h>
        OA_KERNEL(number, oa::Out<int> x, int rows, int columns) {
          for (auto element : x.mine(oa::RowBlocks<2>(rows, columns), here))
            *element = element.row() / 2;
        }'''
        types = [Out[np.int32].by(kernels.RowBlocks(2)), np.int32, np.int32]
        number = Kernel.compile(source, "number", types)
        x = np.zeros((5, 3), np.int32)
        offload(number, x, *x.shape)
        print(x[:, 0])  # [0 0 1 1 2]

    See also: kernels.Rows, kernels.Tiles, Kernel; docs/guide/kernels.md.
    """

    height: int

    def along(self) -> tuple[Need, Need]:
        return Need(_ROWS, self.height, 1), Need()

    def block(self, limits: Limits, on_cpu: bool) -> Three:
        return 1 if on_cpu else default_threads(limits), 1, 1


@telling
@dataclass(frozen=True, repr=False)
class Tiles(Partition):
    """Give each tile of a matrix to the block at the same place along y and x; the block's threads share the tile.

        source = '''
        #include <offload_args/kernel.h>
        OA_KERNEL(transpose, oa::In<float> a, oa::Out<float> b, int rows, int columns) {
          for (auto element : b.mine(oa::Tiles<16, 16>(rows, columns), here))
            *element = a[element.column() * rows + element.row()];
        }'''
        types = [In[np.float32], Out[np.float32].by(kernels.Tiles(16, 16)), np.int32, np.int32]
        transpose = Kernel.compile(source, "transpose", types)
        a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((3, 2), np.float32)
        offload(transpose, a, b, *b.shape)
        print(b.tolist())  # [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]

    See also: kernels.Linear2D, kernels.RowBlocks, Kernel; docs/guide/kernels.md.
    """

    height: int
    width: int

    def along(self) -> tuple[Need, Need]:
        return Need(_COLUMNS, self.width, 1), Need(_ROWS, self.height, 1)

    def block(self, limits: Limits, on_cpu: bool) -> Three:
        if on_cpu:
            return 1, 1, 1
        threads = default_threads(limits)
        x = min(self.width, threads)
        return x, max(1, min(self.height, threads // x)), 1


def _extent(subject: str, partition: Partition, kind: int, geometry: Geometry) -> int:
    """Return the extent of an array that a partition divides."""
    shape = geometry.shape
    if kind == _SIZE:
        return math.prod(shape)
    if len(shape) != 2:
        raise CoverageError(
            f"{subject}: {partition} divides a matrix, got one with shape {tuple(shape)}: lend it as x.reshape(rows, "
            "columns)"
        )
    size, (down, across) = math.prod(shape), geometry.strides or (1, 0)
    if 1 in shape and size > 1:  # the matrix has both orders, and its strides do not show the kernel's rows
        if not all(need.extent for need in partition.along()):
            return size
        if down < across or (down == across and shape[1] != 1):
            raise CoverageError(
                f"{subject}: {partition} divides a matrix, got shape {tuple(shape)} with strides {(down, across)}, "
                "which has one row or one column in either order: lend it as x.reshape(-1).reshape(rows, columns), "
                "with the kernel's rows and columns"
            )
    rows = int(down < across)
    return int(shape[rows if kind == _ROWS else 1 - rows])


def _needed(subject: str, partition: Partition, geometry: Geometry, block: Three) -> list[int]:
    """Return the numbers of blocks that a partition needs along x and y."""
    needed = []
    for axis, (kind, each, by_block, _) in enumerate(partition.along()):
        units = -(-_extent(subject, partition, kind, geometry) // each) if kind else 1
        needed.append(max(1, units if by_block else -(-units // block[axis])))
    return needed


def check(subject: str, partition: Partition, geometry: Geometry, grid: Three, block: Three) -> None:
    """Raise CoverageError if a grid leaves elements of an array without an owner. C code makes the same check first.

    grid[0] is 0 if no grid was chosen, because the partition can't divide the array.
    """
    for axis, (kind, each, by_block, exact) in enumerate(partition.along()):
        extent = _extent(subject, partition, kind, geometry) if kind else 0
        owners = grid[axis] * (1 if by_block else block[axis])
        if grid[0] and -(-extent // each) > owners:
            reached = min(extent, owners * each)
            raise CoverageError(
                f"{subject}: {partition}: a grid of {grid} with blocks of {block} reaches {reached} of {extent} "
                f"{_NAMES[kind]}; it needs {_needed(subject, partition, geometry, block)[axis]} blocks along "
                f"{'xy'[axis]}, or leave grid to launch and offload"
            )
        if exact and extent < owners:
            raise CoverageError(
                f"{subject}: {partition}: a grid of {grid} has {owners} blocks along {'xy'[axis]}, each of "
                f"which writes an element, and the array has {extent}: launch as many blocks as it has elements, or "
                "declare it without by and give the partition its size in the source, as oa::PerBlock(n)"
            )
