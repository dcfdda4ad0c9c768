"""Kernels in Python: typed functions in which each thread writes its own elements; all devices have NumPy's results."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.devices import here as devices_here
from helpers.devices import open_or_skip
from offload_args import Device, In, InOut, Out, Scratch, errors, kernel, launch, offload, offload_args
from offload_args.kernels import (
    GridStride1D,
    Linear1D,
    Linear2D,
    PerBlock,
    RowBlocks,
    Rows,
    Tiles,
    atomic_add,
    atomic_max,
    atomic_min,
    elementwise,
    here,
    reduce,
)
from offload_args.kernels.compilers import Target
from offload_args.kernels.partitions import Partition

# To type checkers, the kernels are functions without types, because their annotations are values. mypy: ignore-errors


@pytest.fixture(params=devices_here("host", "sim:0", "cuda:0", "hip:0", "hip:1"))
def device(request: pytest.FixtureRequest) -> str:
    """The name of a device of this machine that runs machine code."""
    name = open_or_skip(request.param)
    if Device(name).model.startswith("double"):
        pytest.skip("device unavailable: the double runs no code that it does not know")
    return name


@kernel
def axpy(a: np.float32, x: In[np.float32], y: InOut[np.float32].by(Linear1D())):
    for i in y.mine():
        y[i] += a * x[i]


@kernel
def transpose(a: In[np.float32], b: Out[np.float32].by(Tiles(16, 8))):
    for i, j in b.mine():
        b[i, j] = a[j, i]


def test_a_kernel_adds_a_multiple(device: str) -> None:
    x, y = ramp(1000), ramp(1000)[::-1].copy()
    expected = y + np.float32(2) * x
    offload(axpy, 2.0, x, y, device=device)
    np.testing.assert_array_equal(y, expected)
    with offload_args(x, y, device=device) as (dx, dy):
        axpy[4, 256](-2.0, dx, dy)
        launch(axpy, 1.0, dx, dy, block=64)
        axpy(1.0, dx, dy)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.later
@pytest.mark.parametrize("order", ["CC", "CF", "FC", "FF"])
def test_a_kernel_transposes_matrices_of_either_order(device: str, order: str) -> None:
    a = np.array(ramp(35 * 50).reshape(35, 50), order=order[0])
    b = np.zeros((50, 35), np.float32, order[1])
    offload(transpose, a, b, device=device)
    np.testing.assert_array_equal(b, a.T)


@pytest.mark.later
def test_a_matrix_may_have_gaps_between_its_rows(device: str) -> None:
    whole = ramp(35 * 64).reshape(35, 64)
    b = np.zeros((50, 35), np.float32)
    with offload_args(whole, b, device=device) as (da, db):
        transpose(da[:, 3:53], db)
    np.testing.assert_array_equal(b, whole[:, 3:53].T)


# -- partitions --------------------------------------------------------------------------------------------------------


def counter(partition: Partition) -> Any:
    """Return a kernel that adds 1 to each element of the thread."""
    if isinstance(partition, (Linear1D, GridStride1D, PerBlock)):

        @kernel
        def count(y: InOut[np.int32].by(partition)):
            for i in y.mine():
                y[i] += 1
    else:

        @kernel
        def count(y: InOut[np.int32].by(partition)):
            for i, j in y.mine():
                y[i, j] += 1

    return count


PARTITIONS = [Linear1D(), GridStride1D(), PerBlock(), Linear2D(), Rows(), RowBlocks(3), Tiles(2, 3), Tiles(16, 16)]


@pytest.mark.later(but="Tiles(2, 3)")
@pytest.mark.parametrize("partition", PARTITIONS, ids=repr)
def test_each_element_has_one_owner(device: str, partition: Partition) -> None:
    count = counter(partition)
    by_elements = isinstance(partition, (Linear1D, GridStride1D, PerBlock))
    for shape in [(1, 1), (2, 7), (37, 5), (3, 40), (0, 4)]:
        for order in "CF":
            for block in (None, 1, (4, 2), (3, 2, 2)):
                y = np.zeros(shape, np.int32, order)
                if math.prod(shape) == 0 and isinstance(partition, PerBlock):
                    continue  # it needs as many blocks as elements, and a grid has at least one block
                offload(count, y, block=block, device=device)
                assert (y == 1).all(), (shape, order, block)
    if by_elements:
        line = np.zeros(1001, np.int32)
        offload(count, line, device=device)
        assert (line == 1).all()


def test_a_grid_that_leaves_elements_alone_is_refused(device: str) -> None:
    x, y = ramp(1000), ramp(1000)
    with offload_args(x, y, device=device) as (dx, dy):
        with pytest.raises(errors.CoverageError, match=r"argument 3 \(y\): Linear1D\(\): a grid of .* reaches 768"):
            axpy[3, 256](2.0, dx, dy)


@kernel
def sum_and_difference(
    a: In[np.int32], b: In[np.int32], s: Out[np.int32].by(Tiles(4, 4)), d: Out[np.int32].by(Tiles(4, 4))
):
    for place in s.mine():
        s[place] = a[place] + b[place]
        d[place] = a[place] - b[place]


@pytest.mark.later
def test_outputs_of_one_partition_share_a_loop(device: str) -> None:
    a, b = np.arange(63, dtype=np.int32).reshape(7, 9), np.full((7, 9), 5, np.int32)
    s, d = np.zeros((7, 9), np.int32), np.zeros((7, 9), np.int32, "F")
    offload(sum_and_difference, a, b, s, d, device=device)
    np.testing.assert_array_equal(s, a + b)
    np.testing.assert_array_equal(d, a - b)
    with pytest.raises(errors.ArgumentError, match=r"argument 4 \(d\) needs the shape of argument 3 \(s\)"):
        offload(sum_and_difference, a, b, s, Scratch((7, 8), np.int32), device=device)


@kernel
def of_two_loops(s: InOut[np.int32].by(Rows()), d: InOut[np.int32].by(Rows())):
    for i, j in s.mine():
        d[i, j] += 1
    for i, j in d.mine():
        d[i, j] += s.size


@pytest.mark.later
def test_indices_of_two_loops_meet_in_arrays_of_one_order(device: str) -> None:
    for order in "CF":
        s, d = np.zeros((7, 9), np.int32, order), np.zeros((7, 9), np.int32, order)
        offload(of_two_loops, s, d, device=device)
        assert (d == 64).all()
    words = r"argument 2 \(d\) needs the order of argument 1 \(s\), C or Fortran"
    with pytest.raises(errors.ArgumentError, match=words):
        offload(of_two_loops, np.zeros((7, 9), np.int32), np.zeros((7, 9), np.int32, "F"), device=device)


def test_a_matrix_is_needed_where_two_numbers_subscript(device: str) -> None:
    with pytest.raises(errors.ArgumentError, match=r"argument 1 \(a\) needs a matrix, as the kernel uses a\[i, j\]"):
        offload(transpose, ramp(20), np.zeros((4, 5), np.float32), device=device)


def test_elements_that_are_counted_have_one_order(device: str) -> None:
    x, y = np.asfortranarray(ramp(12).reshape(3, 4)), np.zeros((3, 4), np.float32, "F")
    offload(axpy, 2.0, x, y, device=device)
    np.testing.assert_array_equal(y, 2 * x)
    with pytest.raises(errors.ArgumentError, match="counts elements in the order of memory"):
        offload(axpy, 2.0, np.ascontiguousarray(x), y, device=device)


# -- the language ------------------------------------------------------------------------------------------------------

SCALE, PAIR = 3, (1.5, -2.0)


@kernel.function
def clamp(x, low, high):
    if x < low:
        return low
    return high if x > high else x


@kernel.function
def row_sum(x, i):
    total = 0.0
    for j in range(x.shape[1]):
        total += x[i, j]
    return total


@kernel.function
def by_another_name(x, other, i):
    row, chosen = x, other
    last = row
    return last[i, 1] * row.shape[1] + chosen[0, i]


@kernel
def aliases(x: In[np.float64], z: In[np.float64], y: Out[np.float64].by(Linear1D())):
    for i in y.mine():
        y[i] = by_another_name(x, z, i)


@pytest.mark.later
def test_a_function_may_give_an_array_another_name(device: str) -> None:
    x, z, y = np.arange(15.0).reshape(3, 5), np.arange(6.0).reshape(2, 3), np.zeros(3)
    offload(aliases, x, z, y, device=device)
    np.testing.assert_array_equal(y, x[:, 1] * 5 + z[0])
    with pytest.raises(errors.ArgumentError, match=r"argument 2 \(z\) needs a matrix"):
        offload(aliases, x, z.reshape(-1), y, device=device)


@kernel
def many_things(x: In[np.float64], m: In[np.float64], y: Out[np.float64].by(Linear1D())):
    for i in y.mine():
        value, step = x[i] * SCALE, 1
        while value > 10 and step < 20:
            value -= PAIR[0]
            step += 1
            if step == 7:
                continue
            elif not value < 1000:
                break
        for k in range(2, 8, 3):
            value += k // 2 + k % 3 - (k << 1)
        pair = (value, math.sqrt(abs(value)))
        y[i] = clamp(pair[0] + pair[1], PAIR[1], 50.0) + row_sum(m, i % m.shape[0]) + len(x) + x.size


@pytest.mark.later
def test_loops_conditions_tuples_and_functions(device: str) -> None:
    x, m = np.linspace(-20, 20, 101), np.arange(15.0).reshape(3, 5)
    y = np.zeros(101)
    offload(many_things, x, m, y, device=device)
    for i in range(101):
        value, step = x[i] * 3, 1
        while value > 10 and step < 20:
            value -= 1.5
            step += 1
        for k in (2, 5):
            value += k // 2 + k % 3 - (k << 1)
        expected = min(max(value + math.sqrt(abs(value)), -2.0), 50.0) + sum(m[i % 3]) + 101 + 101
        assert y[i] == expected, i
    assert clamp(5, 0, 3) == 3


@kernel
def numbers(y: Out[np.int64].by(Linear1D())):
    for i in y.mine():
        y[i] = here.index() + 1000 * here.block_index() + 100_000 * here.thread() + here.threads() * here.blocks()


def test_a_thread_knows_its_numbers(device: str) -> None:
    y = np.zeros(24, np.int64)
    with offload_args(y, device=device) as (dy,):
        numbers[3, 8](dy)
    i = np.arange(24)
    np.testing.assert_array_equal(y, i + 1000 * (i // 8) + 100_000 * (i % 8) + 24)


DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16"]
DTYPES += ["float32", "float64", "complex64", "complex128"]


@pytest.mark.later(but=("uint32", "bool"))
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_is_read_passed_and_written(device: str, name: str) -> None:
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, name)) if name == "bfloat16" else np.dtype(name)

    @kernel
    def choose(value: dtype, x: In[dtype], y: Out[dtype].by(Linear1D())):
        for i in y.mine():
            y[i] = x[i] if i % 2 == 0 else value

    x = (np.arange(40) % 3).astype(dtype)
    if dtype.kind == "c":
        x = x * dtype.type(1 - 2j)
    y, value = np.zeros(40, dtype), x[1]
    offload(choose, value, x, y, device=device)
    np.testing.assert_array_equal(y, np.where(np.arange(40) % 2 == 0, x, value))


@pytest.mark.later
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_small_floats_are_rounded_to_the_nearest(device: str, name: str) -> None:
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, name)) if name == "bfloat16" else np.dtype(name)

    @kernel
    def product(a: In[dtype], b: In[dtype], y: Out[dtype].by(Linear1D())):
        for i in y.mine():
            y[i] = a[i] * b[i]

    a, b = (np.random.default_rng(1).standard_normal((2, 500)) * 100).astype(dtype)
    b[:3] = np.inf, np.nan, 0
    y = np.zeros(500, dtype)
    offload(product, a, b, y, device=device)
    expected = (a.astype(np.float32) * b.astype(np.float32)).astype(dtype)
    np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))


LINE = np.dtype([("slope", np.float32), ("start", np.float64)], align=True)


@kernel
def line(of: LINE, y: Out[np.float64].by(GridStride1D())):
    for i in y.mine():
        y[i] = of.slope * i + of.start


def test_a_struct_is_passed_by_value(device: str) -> None:
    y = np.zeros(50)
    offload(line, (0.5, 3.0), y, device=device)
    np.testing.assert_array_equal(y, 0.5 * np.arange(50) + 3)


WAVE = np.dtype([
    ("line", LINE), ("half", np.float16), ("size", np.int8), ("a bit", np.bool_), ("z", np.complex64),
    ("c", np.float32, (3,)),
], align=True)  # fmt: skip


@kernel.function
def start_of(wave, factor):
    return wave["line"].start * factor


@kernel
def wave(of: WAVE, y: Out[np.float64].by(Linear1D())):
    for i in y.mine():
        y[i] = of["line"]["slope"] * i + start_of(of, 2) + (of.size if of["a bit"] else 0) + of.z.imag * of["c"][1]


@pytest.mark.later
def test_fields_have_names_and_may_be_structs(device: str) -> None:
    y = np.zeros(50)
    offload(wave, ((0.5, 3.0), 0.25, -7, True, 1 + 2j, (1, 2, 3)), y, device=device)
    np.testing.assert_array_equal(y, 0.5 * np.arange(50) + 3)
    for target in (Target("cuda", "sm_90"), Target("hip", "gfx90a")):
        assert wave._source.compiled(target).data


@kernel
def histogram(x: In[np.uint8], counts: InOut[np.int32], most: InOut[np.float32], least: InOut[np.uint64]):
    for i in range(here.index(), x.size, here.size()):
        atomic_add(counts, x[i], 1)
        atomic_max(most, 0, x[i])
        atomic_min(least, 0, x[i])


@pytest.mark.later
def test_any_thread_changes_an_element_in_one_step(device: str) -> None:
    x = np.random.default_rng(2).integers(3, 200, 10_000).astype(np.uint8)
    counts, most, least = np.zeros(256, np.int32), np.zeros(1, np.float32), np.full(1, 2**40, np.uint64)
    offload(histogram, x, counts, most, least, grid=8, block=128, device=device)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=256))
    assert most[0] == x.max() and least[0] == x.min()


@kernel
def mandelbrot(y: Out[np.int32].by(Tiles(8, 32))):
    for i, j in y.mine():
        c = complex(-2 + 3 * j / y.shape[1], -1 + 2 * i / y.shape[0])
        z, steps = 0j, 0
        while steps < 50 and z.real * z.real + z.imag * z.imag <= 4:
            z = z * z + c
            steps += 1
        y[i, j] = steps


@pytest.mark.later
def test_complex_numbers_give_the_same_picture_as_python(device: str) -> None:
    y = np.zeros((24, 40), np.int32)
    offload(mandelbrot, y, device=device)
    for i, j in np.ndindex(y.shape):
        c, z, steps = complex(-2 + 3 * j / 40, -1 + 2 * i / 24), 0j, 0
        while steps < 50 and z.real * z.real + z.imag * z.imag <= 4:
            z, steps = z * z + c, steps + 1
        assert y[i, j] == steps


# -- checked accesses --------------------------------------------------------------------------------------------------


@kernel(debug=True)
def shifted(x: In[np.float32], y: Out[np.float32].by(Linear1D())):
    for i in y.mine():
        y[i] = x[i + 1]


@kernel(debug=True)
def positive(x: In[np.float32], y: Out[np.float32].by(Linear1D())):
    for i in y.mine():
        assert x[i] >= 0
        y[i] = x[i]


def test_a_read_out_of_bounds_is_an_error_with_its_argument(device: str) -> None:
    x, y = ramp(100), np.zeros(100, np.float32)
    words = (
        r"shifted: thread \(3, 0, 0\) of block \(3, 0, 0\) reads or writes element 100 of argument 1 \(x\), which has"
    )
    with pytest.raises(errors.ExtentError, match=words):
        offload(shifted, x, y, block=32, device=device)


def test_an_assertion_names_its_line(device: str) -> None:
    x, y = ramp(100), np.zeros(100, np.float32)
    offload(positive, x, y, device=device)
    x[5] = -1
    with pytest.raises(AssertionError, match=r"positive: thread .* the assert in line \d+ does not hold"):
        offload(positive, x, y, device=device)


@kernel.function
def root_of(x):
    assert x >= 0
    return np.sqrt(x)


@kernel.function
def twice_the_root(x):
    return 2 * root_of(x)


@kernel(debug=True)
def rooted(x: In[np.float32], y: Out[np.float32].by(Linear1D())):
    for i in y.mine():
        y[i] = twice_the_root(x[i])


def test_an_assertion_of_a_function_is_checked(device: str) -> None:
    x, y = ramp(100), np.zeros(100, np.float32)
    offload(rooted, x, y, device=device)
    np.testing.assert_array_equal(y, 2 * np.sqrt(x))
    x[5] = -1
    line = root_of.function.__code__.co_firstlineno + 2
    with pytest.raises(AssertionError, match=rf"rooted: thread .* the assert in line {line} of a function that it"):
        offload(rooted, x, y, device=device)


@pytest.mark.later
def test_a_kernel_without_checks_has_the_same_results(device: str) -> None:
    @kernel(debug=False)
    def scale(x: In[np.float32], y: Out[np.float32].by(Linear1D())):
        for i in y.mine():
            assert x[i] > 1e9
            y[i] = 3 * x[i]

    for size in (1, 33, 100_000):
        x, y = ramp(size), np.zeros(size, np.float32)
        offload(scale, x, y, device=device)
        np.testing.assert_array_equal(y, 3 * x)


@kernel
def evens(x: In[np.float64], y: Out[np.float64].by(Linear1D())):
    for i in y.mine():
        if i % 2 == 0:
            y[i] = x[i]


@pytest.mark.parametrize("n", [6, 9000, 100_000])
def test_elements_that_a_kernel_left_out_of_an_out_are_poison_on_sim(n: int) -> None:
    x = np.ones(n)
    for _ in range(3):  # the memory of the first round comes again
        y = np.full(n, 7.0)
        offload(evens, x, y, device="sim:0")
        assert (y[::2] == 1).all() and np.isnan(y[1::2]).all()


def test_a_kernels_refusals_have_remedies_that_work(device: str) -> None:
    A, y = np.arange(16.0).reshape(4, 4), np.zeros(4)
    k = elementwise("y = 2 * x", x=In[np.float64], y=Out[np.float64])
    with pytest.raises(errors.HostPointerError, match=r"use offload\(k, \.\.\.\), where k is this kernel"):
        k(A[0], y)
    offload(k, A[0], y, device=device)
    assert y.tolist() == [0, 2, 4, 6]
    with offload_args(A, y, Scratch(4), device=device) as (dA, dy, dc):
        column, remedy = dA[:, 1], r"Scratch\(\(4,\), np\.float64\), dc\.copy_from\({}\) before the call"
        with pytest.raises(errors.ArgumentError, match=remedy.format("x") + "; or copy"):
            k(column, dy)
        dc.copy_from(column)
        k(dc, dy)
        with pytest.raises(errors.ArgumentError, match=remedy.format("y") + r", and y\.copy_from\(dc\) after it"):
            k(dA[0], column)
        k(dA[0], dc)
        column.copy_from(dc)
    assert y.tolist() == [2, 10, 18, 26] and A[:, 1].tolist() == [0, 2, 4, 6]
    with pytest.raises(errors.ArgumentError, match=r" \(y\) .* c = np\.ascontiguousarray\(y\), .*y\[\.\.\.\] = c$"):
        offload(k, y, A[:, 2], device=device)
    c = np.ascontiguousarray(A[:, 2])
    offload(k, y, c, device=device)
    A[:, 2] = c
    assert A[:, 2].tolist() == [4, 20, 36, 52]


def test_a_formula_of_a_power_or_of_other_shapes_gets_a_remedy(device: str) -> None:
    power = elementwise("y = x ^ 2", x=In[np.float64], y=Out[np.float64])
    with pytest.raises(errors.KernelError, match=r"exclusive or of integers; write a power as x \*\* 2$"):
        offload(power, np.ones(3), np.ones(3), device=device)
    add = elementwise("y = x + y", x=In[np.float64], y=InOut[np.float64])
    x, y = np.arange(3.0), np.ones((2, 3))
    with pytest.raises(errors.ArgumentError, match=r"lend np\.broadcast_to\(x, \(2, 3\)\)\.copy\(\)$"):
        offload(add, x, y, device=device)
    offload(add, np.broadcast_to(x, (2, 3)).copy(), y, device=device)
    assert y.tolist() == [[1, 2, 3], [1, 2, 3]]


@pytest.mark.later
def test_a_reduction_of_a_column_takes_a_copy_of_it(device: str) -> None:
    total = reduce("sum", x=np.float64)
    A, result = np.arange(16.0).reshape(4, 4), np.zeros(1)
    with offload_args(A, result, Scratch(4), device=device) as (dA, dresult, dc):
        column = dA[:, 1]
        with pytest.raises(errors.ArgumentError, match=r"lend Scratch\(.*\) as dc, and dc\.copy_from\(x\);"):
            total(column, dresult)
        dc.copy_from(column)
        total(dc, dresult)
    assert result == A[:, 1].sum()


def test_a_formula_of_a_sum_is_a_reduction() -> None:
    with pytest.raises(errors.KernelError, match=r'sum of builtins: .* kernels\.reduce\("sum", x=np\.float64\)$'):
        elementwise("y = sum(x)", x=In[np.float64], y=Out[np.float64])


def test_a_parameter_that_is_only_an_ndarray_gets_a_declaration() -> None:
    def plain(x: np.ndarray, y: np.ndarray):
        for i in range(x.size):
            y[i] = x[i]

    with pytest.raises(
        errors.KernelError, match=r"x: In\[np\.float32\] .* x: InOut\[np\.float32\]\.by\(Linear1D\(\)\)"
    ):
        kernel(plain)


def test_a_kernel_takes_its_arguments_by_position(device: str) -> None:
    x, y = np.ones(3, np.float32), np.ones(3, np.float32)
    with pytest.raises(errors.ArgumentTypeError, match=r"takes no keyword arguments, got x, y: .*: a, x, y$"):
        with offload_args(x, y, device=device) as (dx, dy):
            axpy(2.0, x=dx, y=dy)
    with pytest.raises(errors.ArgumentTypeError, match=r"got x, y: pass its arguments by position: a, x, y$"):
        with offload_args(x, y, device=device) as (dx, dy):
            axpy[1, 32](2.0, x=dx, y=dy)
