"""Partitions: each element that a grid reaches belongs to one thread, and a grid that misses some is refused.

The kernels add 1 to each element that `mine` gives a thread, 16 to each element in a loop over its slices, and 256 to
each element by its numbers in a slice. So an element with one owner has 273. This file computes the expected reach of a
grid in NumPy.
"""

from __future__ import annotations

from dataclasses import astuple
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.arrays import ramp
from offload_args import In, InOut, Kernel, Out, Scratch, errors, launch, offload, offload_args
from offload_args.kernels import GridStride1D, Linear1D, Linear2D, PerBlock, RowBlocks, Rows, Tiles
from offload_args.kernels.partitions import Partition

ONE_OWNER = 1 + 16 + 256
KERNEL = """
OA_KERNEL(%(name)s, oa::InOut<int> count, int rows, int columns, int ld) {
  const %(type)s partition(%(sizes)s);
  for (auto element : count.mine(partition, here))
    *element += element.index() == element.row() * %(ld)s + element.column() ? 1 : 1 << 20;
  for (auto slice : count.slices(partition, here))
    for (auto element : slice) *element += element.row() == slice.row() ? 16 : 1 << 20;
  for (auto slice : count.slices(partition, here))
    for (long long j = 0; j < slice.size(); j++)
      slice[j] += slice.index(j) == slice.row() * %(ld)s + slice.column(j) ? 256 : 1 << 20;
}
"""
LINES: list[Partition] = [Linear1D(), GridStride1D(), PerBlock()]
MATRICES: list[Partition] = [Linear2D(), Rows(), RowBlocks(1), RowBlocks(3), Tiles(1, 1), Tiles(2, 3), Tiles(4, 2)]


def name_of(partition: Partition) -> str:
    return "_".join(map(str, (type(partition).__name__.lower(), *astuple(partition))))


def in_cpp(partition: Partition) -> str:
    sizes = ", ".join(map(str, astuple(partition)))
    return f"oa::{type(partition).__name__}" + (f"<{sizes}>" if sizes else "")


def source_of(*partitions: Partition) -> str:
    text = "#include <offload_args/kernel.h>\n"
    for partition in partitions:
        sizes, ld = ("columns", "0") if partition in LINES else ("rows, columns, ld", "ld")
        text += KERNEL % {"name": name_of(partition), "type": in_cpp(partition), "sizes": sizes, "ld": ld}
    return text


@cache
def counter(device: str, partition: Partition) -> Kernel:
    known = LINES + MATRICES
    source = source_of(*(known if partition in known else [partition]))
    signature = [InOut[np.int32], np.int32, np.int32, np.int32]
    return Kernel.compile(source, name_of(partition), signature, device=device)


def reach(partition: Partition, grid: tuple[int, ...], block: tuple[int, ...], rows: int, columns: int) -> Any:
    """Return the numbers of rows and columns, counted from the first, that have owners."""
    x, y = grid[0] * block[0], grid[1] * block[1]
    match partition:
        case Linear1D():
            return rows, min(columns, x)
        case GridStride1D():
            return rows, columns
        case PerBlock():
            return rows, min(columns, grid[0])
        case Linear2D():
            return min(rows, y), min(columns, x)
        case Rows():
            return min(rows, x), columns
        case RowBlocks(height):
            return min(rows, grid[0] * height), columns
        case Tiles(height, width):
            return min(rows, grid[1] * height), min(columns, grid[0] * width)


def check_owners(
    device: str,
    partition: Partition,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    rows: int,
    columns: int,
    gap: int,
) -> None:
    """Count the owners of each element of a matrix with gaps between its rows, and check the memory around it."""
    if partition in LINES:
        rows, gap = 1, 3
    counted = np.zeros((rows + 1, columns + gap), np.int32)
    kernel = counter(device, partition)
    offload(kernel, counted, rows, columns, columns + gap, grid=grid, block=block, device=device)
    expected = np.zeros_like(counted)
    with_rows, with_columns = reach(partition, grid, block, rows, columns)
    expected[:with_rows, :with_columns] = ONE_OWNER
    np.testing.assert_array_equal(counted, expected, f"{partition} {grid} {block} {rows} {columns} {gap}")


SHAPES = list(product((1, 2, 3), (1, 2), (1, 2)))
SIZES = list(product((0, 1, 2, 5), (0, 1, 3, 5), (0, 2)))
ID = {"ids": repr}


@pytest.mark.later
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["some", "every"])
@pytest.mark.parametrize("partition", LINES + MATRICES, **ID)
def test_each_element_has_one_owner_in_every_small_grid(device: str, partition: Partition, every: bool) -> None:
    shapes = SHAPES if every else [(1, 1, 1), (2, 1, 1), (1, 2, 2), (3, 2, 1), (3, 2, 2)]
    for grid, block in product(shapes, shapes):
        for rows, columns, gap in SIZES[:: 1 if every else 3]:
            check_owners(device, partition, grid, block, rows, columns, gap)
            if partition in LINES and rows:
                break


LARGE = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@pytest.mark.slow
@pytest.mark.parametrize("partition", [*LINES, *MATRICES, RowBlocks(17), Tiles(16, 16), Tiles(5, 64)], **ID)
@LARGE
@given(data=st.data())
def test_each_element_has_one_owner_in_large_grids(device: str, partition: Partition, data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 400)), data.draw(st.integers(1, 600))
    if partition in LINES:
        columns *= rows
    block = data.draw(st.sampled_from([(1, 1, 1), (7, 1, 1), (32, 8, 1), (256, 1, 1), (5, 3, 2), (1, 64, 1)]))
    grid = (data.draw(st.integers(1, 90)), data.draw(st.integers(1, 40)), data.draw(st.integers(1, 2)))
    check_owners(device, partition, grid, block, rows, columns, data.draw(st.integers(0, 9)))


@pytest.mark.later
def test_rows_that_overlap_have_no_owner(device: str) -> None:
    for partition in MATRICES:
        counted = np.zeros(30, np.int32)
        offload(counter(device, partition), counted, 5, 6, 5, grid=(8, 8), block=(8, 8), device=device)
        assert not counted.any(), partition


# -- grid and block from a partition -----------------------------------------------------------------------------------


@pytest.mark.later("host")
@pytest.mark.parametrize("partition", LINES + MATRICES, **ID)
@pytest.mark.parametrize("shape", [(1, 1), (37, 53), (300, 7), (1, 4000)], **ID)
def test_grid_and_block_follow_from_the_partition(device: str, partition: Partition, shape: tuple[int, int]) -> None:
    kernel = Kernel.compile(
        source_of(*LINES, *MATRICES),
        name_of(partition),
        [InOut[np.int32].by(partition), np.int32, np.int32, np.int32],
        device=device,
    )
    columns = shape[0] * shape[1] if partition in LINES else shape[1]
    for block in (None, 1, (4, 2)):
        counted = np.zeros(shape, np.int32)
        offload(kernel, counted, shape[0], columns, columns, block=block, device=device)
        assert (counted == ONE_OWNER).all()
        with offload_args(counted, device=device) as (dc,):
            launch(kernel, dc, shape[0], columns, columns, block=block)
        assert (counted == 2 * ONE_OWNER).all()


@pytest.mark.later("host")
@pytest.mark.parametrize("partition", LINES + MATRICES, **ID)
def test_a_grid_is_refused_exactly_if_it_leaves_elements_without_an_owner(device: str, partition: Partition) -> None:
    signature = [InOut[np.int32].by(partition), np.int32, np.int32, np.int32]
    kernel = Kernel.compile(source_of(*LINES, *MATRICES), name_of(partition), signature, device=device)
    for grid, block, (rows, columns) in product(SHAPES[::2], SHAPES[::2], ((1, 1), (2, 5), (5, 2), (4, 6))):
        counted = np.zeros((rows, columns), np.int32)
        sizes = (1, rows * columns) if partition in LINES else (rows, columns)
        covered = reach(partition, grid, block, *sizes) == sizes
        words = r"argument 1: .* reaches \d+ of \d+ .*; it needs \d+"
        if partition == PerBlock() and grid[0] > sizes[1]:  # each block may write an element
            covered, words = False, r"argument 1: PerBlock\(\): a grid of .* and the array has \d+: launch as many"
        with offload_args(counted, device=device) as (dc,):
            if covered:
                kernel[grid, block](dc, *sizes, sizes[1])
            else:
                with pytest.raises(errors.CoverageError, match=words):
                    kernel[grid, block](dc, *sizes, sizes[1])
        assert (counted == (ONE_OWNER if covered else 0)).all()


COPY = """\
#include <offload_args/kernel.h>

OA_KERNEL(copy, oa::In<float> from, oa::Out<float> to, int rows, int columns) {
  for (auto element : to.mine(oa::Tiles<16, 8>(rows, columns), here)) *element = from[element.index()];
}
OA_BLOCK_KERNEL(sums, oa::In<float> x, oa::Out<float> y, int n) {
  OA_SHARED float part[64];
  here.phase([&](const oa::Here &here) { part[here.thread()] = here.index() < n ? x[here.index()] : 0; });
  for (int step = 32; step > 0; step /= 2)
    here.phase([&](const oa::Here &here) {
      if (here.thread() < step) part[here.thread()] += part[here.thread() + step];
    });
  here.phase([&](const oa::Here &here) {
    for (auto element : y.mine(oa::PerBlock(), here)) *element = part[0];
  });
}
OA_BLOCK_KERNEL(plus, oa::In<float> from, oa::Out<float> to, int rows, int columns) {
  OA_SHARED float tile[10][10];  // of 8 x 8, and a border
  const oa::Tiles<8, 8> tiles(rows, columns);
  const auto box = tiles.box(here);
  here.phase([&](const oa::Here &here) {
    const int step = here.threads(0) * here.threads(1);
    for (int i = here.thread(); i < 100; i += step) {
      const long long r = box.row + i / 10 - 1, c = box.column + i % 10 - 1;
      tile[i / 10][i % 10] = r >= 0 && r < rows && c >= 0 && c < columns ? from[r * columns + c] : 0;
    }
  });
  here.phase([&](const oa::Here &here) {
    for (auto element : to.mine(tiles, here)) {
      const int r = element.row() - box.row + 1, c = element.column() - box.column + 1;
      *element = tile[r][c] + tile[r - 1][c] + tile[r + 1][c] + tile[r][c - 1] + tile[r][c + 1];
    }
  });
}
"""


@pytest.mark.later
def test_a_matrix_in_either_order_has_its_rows_as_they_lie_in_memory(device: str) -> None:
    signature = [In[np.float32], Out[np.float32].by(Tiles(16, 8)), np.int32, np.int32]
    copy = Kernel.compile(COPY, "copy", signature, device=device)
    a = ramp(35 * 50).reshape(35, 50)
    for given_a, rows, columns in ((a, 35, 50), (np.asfortranarray(a), 50, 35)):
        c = np.zeros_like(given_a)
        offload(copy, given_a, c, rows, columns, device=device)
        np.testing.assert_array_equal(c, a)
        with offload_args(given_a, c, device=device) as (da, dc):
            with pytest.raises(errors.CoverageError, match=f"of {rows} rows"):
                copy[100, 32](da, dc, rows, columns)
            with pytest.raises(errors.CoverageError, match=f"of {columns} columns"):
                copy[(1, 100), 32](da, dc, rows, columns)


LONE: list[Any] = [  # one row or one column, whose 5 elements are adjacent in memory
    np.zeros((5, 3), np.int32, "F")[:, :1],
    np.zeros((5, 1), np.int32, "F"),
    np.zeros((5, 1), np.int32),
    np.zeros(5, np.int32)[:, None],
    np.zeros(5, np.int32)[None],
    np.zeros((1, 5), np.int32, "F"),
    np.zeros((1, 5), np.int32),
]


@pytest.mark.later("host")
@pytest.mark.parametrize("lent", LONE, ids=lambda x: f"{x.shape}_{x.strides}")
@pytest.mark.parametrize("partition", [Rows(), RowBlocks(3)], **ID)
def test_one_row_or_column_has_owners_in_either_order(device: str, partition: Partition, lent: Any) -> None:
    signature = [InOut[np.int32].by(partition), np.int32, np.int32, np.int32]
    kernel = Kernel.compile(source_of(*LINES, *MATRICES), name_of(partition), signature, device=device)
    for rows, columns in ((5, 1), (1, 5)):
        lent[...] = 0
        offload(kernel, lent, rows, columns, columns, block=1, device=device)
        assert (lent == ONE_OWNER).all()
        with pytest.raises(errors.CoverageError, match="of 5 rows"):
            offload(kernel, lent, rows, columns, columns, grid=1, block=1, device=device)


@pytest.mark.later("host")
@pytest.mark.parametrize("lent", LONE, ids=lambda x: f"{x.shape}_{x.strides}")
@pytest.mark.parametrize("partition", [Linear2D(), Tiles(2, 3)], **ID)
def test_one_row_or_column_by_rows_and_columns_has_c_order_or_is_refused(
    device: str, partition: Partition, lent: Any
) -> None:
    signature = [InOut[np.int32].by(partition), np.int32, np.int32, np.int32]
    kernel = Kernel.compile(source_of(*LINES, *MATRICES), name_of(partition), signature, device=device)
    down, across = lent.strides
    if not (down > across or (down == across and lent.shape == (5, 1))):
        for grid in (None, (5, 5)):
            with pytest.raises(errors.CoverageError, match=r"lend it as x.reshape\(-1\)\.reshape\(rows, columns\)"):
                offload(kernel, lent, *lent.shape, lent.shape[1], grid=grid, block=1, device=device)
        for rows, columns in ((5, 1), (1, 5)):
            lent[...] = 0
            as_told = lent.reshape(-1).reshape(rows, columns)
            offload(kernel, as_told, rows, columns, columns, block=1, device=device)
            assert (lent == ONE_OWNER).all()
    else:
        lent[...] = 0
        offload(kernel, lent, *lent.shape, lent.shape[1], block=1, device=device)
        assert (lent == ONE_OWNER).all()


@pytest.mark.later
def test_the_array_decides_whatever_it_is_lent_as(device: str) -> None:
    signature = [In[np.float32], Out[np.float32].by(Tiles(16, 8)), np.int32, np.int32]
    copy = Kernel.compile(COPY, "copy", signature, device=device)
    a = ramp(35 * 50).reshape(35, 50)
    c = np.zeros_like(a)
    offload(copy, In(a), Out(c), 35, 50, device=device)
    np.testing.assert_array_equal(c, a)
    offload(copy, a, Scratch((35, 50), np.float32), 35, 50, device=device)
    with pytest.raises(errors.CoverageError, match=r"Tiles\(16, 8\) divides a matrix, got one with shape \(1750,\)"):
        offload(copy, a, c.ravel(), 35, 50, device=device)
    with pytest.raises(errors.ArgumentTypeError):
        offload(copy, a, device=device)
    with pytest.raises(errors.HostPointerError):
        offload(copy, a, 5, 35, 50, device=device)


WRONG = [
    (lambda: Tiles(0, 4), errors.ArgumentError, "Tiles: height needs 1 or more, got 0"),
    (lambda: Tiles(4, 2.5), errors.ArgumentTypeError, "Tiles: width needs a whole number, got 2.5"),
    (lambda: RowBlocks(2**31), errors.ArgumentError, "RowBlocks: height"),
    (lambda: compiled_with(In[np.float32].by(Linear1D())), errors.SignatureError, "In has no owners"),
    (lambda: compiled_with(Out[np.float32].by("tiles")), errors.SignatureError, "needs a partition"),
    (lambda: compiled_with(Out[np.float32].by(Tiles)), errors.SignatureError, "needs a partition"),
]


def compiled_with(declared: object) -> Kernel:
    return Kernel.compile(COPY, "copy", [declared, Out[np.float32], np.int32, np.int32], device="host")


@pytest.mark.later
@pytest.mark.parametrize("case", range(len(WRONG)))
def test_a_partition_that_can_not_be_is_refused(case: int) -> None:
    make, error, words = WRONG[case]
    with pytest.raises(error, match=words):
        make()


# -- phases ------------------------------------------------------------------------------------------------------------


def test_phases_of_a_block_wait_for_each_other(device: str) -> None:
    signature = [In[np.float32], Out[np.float32].by(PerBlock()), np.int32]
    sums = Kernel.compile(COPY, "sums", signature, device=device)
    x = ramp(1000)
    y = np.zeros(16, np.float32)
    offload(sums, x, y, 1000, block=64, device=device)
    np.testing.assert_array_equal(y, np.add.reduceat(x, np.arange(0, 1000, 64)))


@pytest.mark.parametrize("block", [None, (8, 8), (3, 5), 1], **ID)
def test_tiles_with_what_lies_around_them(device: str, block: Any) -> None:
    signature = [In[np.float32], Out[np.float32].by(Tiles(8, 8)), np.int32, np.int32]
    plus = Kernel.compile(COPY, "plus", signature, device=device)
    a = ramp(37 * 53).reshape(37, 53)
    c = np.zeros_like(a)
    offload(plus, a, c, *a.shape, block=block, device=device)
    around = np.pad(a, 1)
    expected = a + around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:]
    np.testing.assert_array_equal(c, expected)


@pytest.mark.later
def test_a_kernel_by_threads_has_no_phases_on_the_cpu() -> None:
    head = "OA_KERNEL(copy, oa::In<float> from, oa::Out<float> to, int rows, int columns) {"
    source = COPY.replace(head, head + "here.phase([&](const oa::Here &) {});")
    with pytest.raises(errors.ModuleError, match="phase"):
        Kernel.compile(source, "copy", [In[np.float32], Out[np.float32], np.int32, np.int32], device="host")
