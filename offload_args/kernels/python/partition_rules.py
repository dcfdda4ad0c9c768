"""The loops over `mine()` and `box()`; they give a thread or block the same elements as kernel_partitions.h.

Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils
from numba.extending import intrinsic

from .value_types import I64, ONE, RUN, all_of, array_of, here_of, less, number, smaller, thread_in_block, types


def on_x(builder: Any, here: Any) -> Any:
    """Return whether the thread is the first one along y and z."""
    return builder.icmp_unsigned("==", builder.or_(here.index_y, here.index_z), number(0))


def run_of(context: Any, builder: Any, first: Any, end: Any, step: Any) -> Any:
    run = cgutils.create_struct_proxy(RUN)(context, builder)
    run.first, run.end, run.step = first, end, step
    return run._getvalue()


def one_of(context: Any, builder: Any, at: Any, mine: Any) -> Any:
    """Return an iterable of one number, or of none."""
    single = cgutils.create_struct_proxy(ONE)(context, builder)
    single.at, single.mine = at, mine
    return single._getvalue()


def before(builder: Any, here: Any, end: Any) -> Any:
    """Return whether the thread's number along x is less than end; on the CPU, the thread loop may ensure this."""
    return builder.or_(here.below, less(builder, here.index_x, end))


def share(context: Any, builder: Any, is_gpu: bool, first: Any, end: Any, thread: Any, threads: Any) -> Any:
    """Return the thread's share of first..end - 1: every threads-th number on a GPU, a separate part on the CPU."""
    if is_gpu:
        return run_of(context, builder, builder.add(first, thread), end, threads)
    size = builder.select(less(builder, first, end), builder.sub(end, first), number(0))
    each, more = builder.sdiv(size, threads), builder.srem(size, threads)
    begin = builder.add(builder.mul(thread, each), smaller(builder, thread, more))
    last = builder.add(begin, builder.add(each, builder.zext(less(builder, thread, more), I64)))
    alone = builder.icmp_unsigned("==", threads, number(1))
    begin, last = (
        builder.select(alone, number(0), begin),
        builder.select(alone, size, last),
    )
    return run_of(context, builder, builder.add(first, begin), builder.add(first, last), number(1))


@intrinsic(prefer_literal=True)
def oa__run(typing: Any, here: Any, array: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        thread, y = here_of(context, builder, sig, args), array_of(context, builder, sig.args[1], args[1])
        match type(sig.args[1].partition).__name__:
            case "Linear1D":
                mine = all_of(builder, before(builder, thread, y.rows), on_x(builder, thread))
                return one_of(context, builder, thread.index_x, mine)
            case "GridStride1D":
                end = builder.select(on_x(builder, thread), y.rows, number(0))
                threads = builder.mul(thread.blocks_x, thread.threads_x)
                return share(context, builder, sig.args[0].is_gpu, number(0), end, thread.index_x, threads)
        at = thread.block_x
        others = builder.or_(thread_in_block(builder, thread), builder.or_(thread.block_y, thread.block_z))
        first = builder.icmp_unsigned("==", others, number(0))
        return one_of(context, builder, at, all_of(builder, less(builder, at, y.rows), first))

    kind = ONE if type(array.partition).__name__ in ("Linear1D", "PerBlock") else RUN
    return kind(here, array), make


def lines_of(builder: Any, y: Any) -> tuple[Any, Any, Any]:
    """Return the number of lines in memory, the number of elements of a line, and whether the order is Fortran's."""
    turned = less(builder, y.down, y.across)
    return builder.select(turned, y.columns, y.rows), builder.select(turned, y.rows, y.columns), turned


def box_of(builder: Any, here: Any, y: Any, partition: Any) -> tuple[Any, Any, Any, Any]:
    """Return the first row and column of a block's part, and the numbers of its rows and columns."""
    rows, columns, _ = lines_of(builder, y)
    if type(partition).__name__ == "RowBlocks":
        row = builder.mul(number(partition.height), here.block_x)
        first = builder.icmp_unsigned("==", builder.or_(here.block_y, here.block_z), number(0))
        mine = all_of(builder, less(builder, row, rows), first)
        height = smaller(builder, number(partition.height), builder.sub(rows, row))
        return row, number(0), builder.select(mine, height, number(0)), columns
    row = builder.mul(number(partition.height), here.block_y)
    column = builder.mul(number(partition.width), here.block_x)
    first = builder.icmp_unsigned("==", here.block_z, number(0))
    mine = all_of(builder, less(builder, row, rows), less(builder, column, columns), first)
    height = smaller(builder, number(partition.height), builder.sub(rows, row))
    width = smaller(builder, number(partition.width), builder.sub(columns, column))
    return row, column, builder.select(mine, height, number(0)), builder.select(mine, width, number(0))


@intrinsic(prefer_literal=True)
def oa__box(typing: Any, here: Any, array: Any) -> Any:
    """Return the first row and column of the block's part of a matrix, and the numbers of its rows and columns."""
    four = types.UniTuple(types.int64, 4)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        thread, y = here_of(context, builder, sig, args), array_of(context, builder, sig.args[1], args[1])
        row, column, height, width = box_of(builder, thread, y, sig.args[1].partition)
        _, _, turned = lines_of(builder, y)
        pairs = ((row, column), (column, row), (height, width), (width, height))
        return context.make_tuple(builder, four, [builder.select(turned, b, a) for a, b in pairs])

    return four(here, array), make


@intrinsic(prefer_literal=True)
def oa__rows(typing: Any, here: Any, array: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        thread, y = here_of(context, builder, sig, args), array_of(context, builder, sig.args[1], args[1])
        rows, _, _ = lines_of(builder, y)
        partition = sig.args[1].partition
        match type(partition).__name__:
            case "Linear2D":
                first = builder.icmp_unsigned("==", thread.index_z, number(0))
                return one_of(
                    context, builder, thread.index_y, all_of(builder, less(builder, thread.index_y, rows), first)
                )
            case "Rows":
                mine = all_of(builder, less(builder, thread.index_x, rows), on_x(builder, thread))
                return one_of(context, builder, thread.index_x, mine)
        row, _, height, _ = box_of(builder, thread, y, partition)
        mine = builder.icmp_unsigned("==", thread.thread_z, number(0))
        end = builder.select(mine, builder.add(row, height), row)
        return share(context, builder, sig.args[0].is_gpu, row, end, thread.thread_y, thread.threads_y)

    kind = ONE if type(array.partition).__name__ in ("Linear2D", "Rows") else RUN
    return kind(here, array), make


@intrinsic(prefer_literal=True)
def oa__columns(typing: Any, here: Any, array: Any) -> Any:
    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        thread, y = here_of(context, builder, sig, args), array_of(context, builder, sig.args[1], args[1])
        _, columns, _ = lines_of(builder, y)
        partition = sig.args[1].partition
        match type(partition).__name__:
            case "Linear2D":
                return one_of(context, builder, thread.index_x, before(builder, thread, columns))
            case "Rows":
                return run_of(context, builder, number(0), columns, number(1))
        _, column, _, width = box_of(builder, thread, y, partition)
        end = builder.add(column, width)
        return share(context, builder, sig.args[0].is_gpu, column, end, thread.thread_x, thread.threads_x)

    kind = ONE if type(array.partition).__name__ in ("Linear2D",) else RUN
    return kind(here, array), make


@intrinsic(prefer_literal=True)
def oa__element(typing: Any, array: Any, row: Any, column: Any) -> Any:
    """Return the row and the column of an element from its row and column in memory."""
    pair = types.UniTuple(types.int64, 2)

    def make(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _, _, turned = lines_of(builder, array_of(context, builder, sig.args[0], args[0]))
        row, column = args[1:]
        pair_of = (builder.select(turned, column, row), builder.select(turned, row, column))
        return context.make_tuple(builder, pair, pair_of)

    return pair(array, types.int64, types.int64), make
