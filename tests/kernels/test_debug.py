"""Kernel.compile(debug=True): each access is checked, and one out of bounds raises an exception and touches nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import Device, In, InOut, Kernel, Out, Shared, errors, launch, offload, offload_args
from offload_args.kernels import Linear1D, Linear2D, PerBlock

HEADER = "#include <offload_args/kernel.h>\n"
# Each kernel is compiled separately.
KERNELS = {
    "shifted": """\
OA_KERNEL(shifted, oa::In<float> a, oa::InOut<float> c, int by, int n) {
  for (auto element : c.mine(oa::Linear1D(n), here)) *element = a[element.index() + by];
}
""",
    "row_slices": """\
OA_KERNEL(row_slices, oa::In<float> a, oa::InOut<float> c, int rows, int columns, int beyond) {
  for (auto row : c.slices(oa::Rows(rows, columns), here))
    for (long long j = 0; j < row.size() + beyond; j++) row[j] = a[row.index(0)];
}
""",
    "both": """\
OA_KERNEL(both, oa::InOut<float> c, oa::InOut<double> d, int n) {
  for (auto element : c.mine(oa::Linear1D(n), here)) {
    *element = 1;
    d[element] = 2;
  }
}
""",
    "histogram": """\
OA_KERNEL(histogram, oa::In<int> x, oa::Atomic<int> counts, int n) {
  for (long long i = here.index(); i < n; i += here.size()) counts[x[i]].add(1);
}
""",
    "sums": """\
OA_BLOCK_KERNEL(sums, oa::In<float> x, oa::Out<float> y, int n) {
  const auto part = here.shared<float>();
  here.phase([&](const oa::Here &here) { part[here.thread()] = here.index() < n ? x[here.index()] : 0; });
  for (int step = here.threads() / 2; step > 0; step /= 2)
    here.phase([&](const oa::Here &here) {
      if (here.thread() < step) part[here.thread()] += part[here.thread() + step];
    });
  here.phase([&](const oa::Here &here) {
    for (auto element : y.mine(oa::PerBlock(), here)) *element = part[0];
  });
}
""",
}
SOURCE = HEADER + "".join(KERNELS.values())
F, N = np.float32, np.int32
SIGNATURES: dict[str, list[Any]] = {
    "shifted": [In[F], InOut[F], N, N],
    "row_slices": [In[F], InOut[F], N, N, N],
    "both": [InOut[F], InOut[np.float64], N],
    "histogram": [In[N], InOut[N], N],
    "sums": [In[F], Out[F].by(PerBlock()), N],
}


def checked(name: str, device: str) -> Kernel:
    return Kernel.compile(HEADER + KERNELS[name], name, SIGNATURES[name], device=device, debug=True)


@pytest.mark.later
def test_a_kernel_within_its_bounds_runs_as_without_checks(device: str) -> None:
    a, c = ramp(1000), np.zeros(1000, F)
    shifted = checked("shifted", device)
    offload(shifted, a, c, 0, 1000, device=device)
    np.testing.assert_array_equal(c, a)
    with offload_args(a, c, device=device) as (da, dc):
        shifted[4, 256](da, dc[1:], 1, 999)
        shifted[4, 256, 0](da, dc[1:], 1, 999)
        launch(shifted, da, dc[1:], 1, 999)
    np.testing.assert_array_equal(c, a)
    rows = checked("row_slices", device)
    matrix = np.zeros((5, 200), F)
    offload(rows, a.reshape(5, 200), matrix, 5, 200, 0, device=device)
    np.testing.assert_array_equal(matrix, np.repeat(a[::200], 200).reshape(5, 200))
    y = np.zeros(16, F)
    offload(checked("sums", device), a, y, 1000, block=64, shared_bytes=Shared[F](64), device=device)
    np.testing.assert_array_equal(y, np.add.reduceat(a, np.arange(0, 1000, 64)))


# {access: (the kernel, its arguments, the options of the launch, the text of the exception)}.
CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], str]] = {
    "a read behind the end": (
        "shifted",
        (ramp(1000), ramp(1000), 3, 1000),
        {"block": 256},
        r"shifted: thread \(2[23]\d, 0, 0\) of block \(3, 0, 0\) reads or writes element 100[0-2] of argument 1, which "
        r"has 1000",
    ),
    "a read before the start": (
        "shifted",
        (ramp(1000), ramp(1000), -1, 1000),
        {},
        r"thread \(0, 0, 0\) of block \(0, 0, 0\) reads or writes element -1 of argument 1, which has 1000",
    ),
    "a write behind the end": (
        "shifted",
        (ramp(1000), ramp(999), 0, 1000),
        {"block": 100},
        r"thread \(99, 0, 0\) of block \(9, 0, 0\) reads or writes element 999 of argument 2, which has 999",
    ),
    "a slice's end": (
        "row_slices",
        (ramp(1000), ramp(1000), 5, 200, 1),
        {"grid": 1, "block": 8},
        r"thread \([0-4], 0, 0\) of block \(0, 0, 0\) reads or writes element 200 of a slice of argument 2, which has "
        r"200",
    ),
    "another array of the same partition": (
        "both",
        (ramp(1000), np.zeros(990), 1000),
        {},
        r"reads or writes element 99\d of argument 2, which has 990",
    ),
    "an atomic": (
        "histogram",
        (np.array([0, 1, 2, 7, 1], N), np.zeros(3, N), 5),
        {"grid": 1, "block": 8},
        r"thread \(3, 0, 0\) of block \(0, 0, 0\) reads or writes element 7 of argument 2, which has 3",
    ),
    "dynamic shared memory": (
        "sums",
        (ramp(64), ramp(1), 64),
        {"grid": 1, "block": 64, "shared_bytes": 4 * 60},
        r"thread \(6[0-3], 0, 0\) of block \(0, 0, 0\) reads or writes element 6[0-3] of the dynamic shared memory, "
        r"which has 60",
    ),
}


@pytest.mark.later(but="host-an atomic")
@pytest.mark.parametrize("case", CASES)
def test_an_access_out_of_bounds_is_an_exception_and_touches_nothing(device: str, case: str) -> None:
    name, arguments, shape, words = CASES[case]
    kernel = checked(name, device)
    before = [np.copy(argument) for argument in arguments]
    with pytest.raises(errors.ExtentError, match=words):
        offload(kernel, *arguments, device=device, **shape)
    for argument, then in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(argument, then)  # nothing comes down from a region that raised


@pytest.mark.later
def test_memory_around_a_slice_is_not_touched(device: str) -> None:
    a, c = ramp(1000), np.zeros(1000, F)
    with offload_args(a, c, device=device) as (da, dc):
        with pytest.raises(errors.ExtentError, match="argument 2, which has 500"):
            checked("shifted", device)[4, 256](da, dc[200:700], 0, 1000)
    expected = np.zeros(1000, F)
    expected[200:700] = a[:500]
    np.testing.assert_array_equal(c, expected)


REGIONS = """\
#include <offload_args/kernel.h>

template <class Partition>
OA_DEVICE void fill(const oa::InOut<float> &c, const Partition &partition, const oa::Here &here, int beyond) {
  if (beyond < 0)
    for (auto element : c.mine(partition, here)) *element = 1;
  else
    for (auto slice : c.slices(partition, here))
      for (long long j = 0; j < slice.size() + beyond; j++) slice[j] = 1;
}
OA_KERNEL(fills, oa::InOut<float> c, int kind, int beyond) {
  if (kind == 0) fill(c, oa::Linear1D(60), here, beyond);
  if (kind == 1) fill(c, oa::GridStride1D(60), here, beyond);
  if (kind == 2) fill(c, oa::PerBlock(60), here, beyond);
  if (kind == 3) fill(c, oa::Linear2D(6, 10), here, beyond);
  if (kind == 4) fill(c, oa::Rows(6, 10), here, beyond);
  if (kind == 5) fill(c, oa::RowBlocks<4>(6, 10), here, beyond);
  if (kind == 6) fill(c, oa::Tiles<4, 4>(6, 10), here, beyond);
}
"""
# {partition: (its number in the source, grid, block, thread and block of the last element, elements of a slice)}.
KINDS: dict[str, tuple[int, Any, Any, str, str]] = {
    "Linear1D": (0, 4, 16, r"thread \(11, 0, 0\) of block \(3, 0, 0\)", "1"),
    "GridStride1D": (1, 1, 1, r"thread \(0, 0, 0\) of block \(0, 0, 0\)", "60"),
    "PerBlock": (2, 60, 1, r"thread \(0, 0, 0\) of block \(59, 0, 0\)", "1"),
    "Linear2D": (3, (3, 3), (4, 2), r"thread \(1, 1, 0\) of block \(2, 2, 0\)", "1"),
    "Rows": (4, 2, 4, r"thread \(1, 0, 0\) of block \(1, 0, 0\)", "10"),
    "RowBlocks": (5, 2, 1, r"thread \(0, 0, 0\) of block \(1, 0, 0\)", "10"),
    "Tiles": (6, (3, 2), 1, r"thread \(0, 0, 0\) of block \(2, 1, 0\)", "[24]"),
}


@pytest.mark.later
@pytest.mark.parametrize("kind", KINDS)
def test_in_every_partition_a_thread_is_told_that_goes_beyond_the_array_or_its_slice(device: str, kind: str) -> None:
    number, grid, block, thread, most = KINDS[kind]
    kernel = Kernel.compile(REGIONS, "fills", [InOut[F], N, N], device=device, debug=True)
    c = np.zeros(64, F)
    with offload_args(c, device=device) as (dc,):
        kernel[grid, block](dc[:60], number, -1)
        kernel[grid, block](dc[:60], number, 0)
        for beyond in (-1, 0):
            with pytest.raises(errors.ExtentError, match=f"fills: {thread} .* element 59 of argument 1, which has 59"):
                kernel[grid, block](dc[:59], number, beyond)
        with pytest.raises(errors.ExtentError, match=f"fills: .* element {most} of a slice of argument 1, .* {most}:"):
            kernel[grid, block](dc[:60], number, 1)
    np.testing.assert_array_equal(c, np.arange(64) < 60)


COLUMNS = """\
#include <offload_args/kernel.h>

OA_KERNEL(columns_of, oa::In<float> a, oa::Out<float> c, int rows, int columns, int ld, int by) {
  for (auto element : c.mine(oa::Linear2D(rows, columns), here))
    *element = a[element.row() * ld + element.column() + by];
}
"""


@pytest.mark.later
def test_a_slice_of_columns_reaches_from_its_first_element_to_its_last(device: str) -> None:
    a, c = ramp(100).reshape(10, 10), np.zeros((10, 5), F)
    signature = [In[F], Out[F].by(Linear2D()), N, N, N, N]
    kernel = Kernel.compile(COLUMNS, "columns_of", signature, device=device, debug=True)
    with offload_args(a, c, device=device) as (da, dc):
        s = da[:, 2:7]
        launch(kernel, s, dc, 10, 5, s.ld, 0)
        with pytest.raises(errors.ExtentError, match="element 95 of argument 1, which has 95"):
            launch(kernel, s, dc, 10, 5, s.ld, 1)
        with pytest.raises(errors.ExtentError, match="of argument 1, which has 0"):
            launch(kernel, da[:, 2:2], dc, 10, 5, 10, 0)
    c[...] = 0
    with offload_args(a[:, 2:7], c, device=device) as (s, dc):
        launch(kernel, s, dc, 10, 5, s.ld, 0)
    np.testing.assert_array_equal(c, a[:, 2:7])


@pytest.mark.later
def test_the_next_launch_has_a_record_of_its_own(device: str) -> None:
    a, c = ramp(100), np.zeros(100, F)
    shifted = checked("shifted", device)
    for _ in range(2):
        with pytest.raises(errors.ExtentError):
            offload(shifted, a, c, 1, 100, device=device)
        offload(shifted, a, c, 0, 100, device=device)
        np.testing.assert_array_equal(c, a)


@pytest.mark.slow
def test_wrong_arguments_are_refused_as_without_checks(device: str) -> None:
    a, c = ramp(100), np.zeros(100, F)
    shifted = checked("shifted", device)
    assert shifted.signature == ("In[float32]", "InOut[float32]", "int32", "int32")
    with offload_args(a, c, device=device) as (da, dc):
        with pytest.raises(errors.ArgumentTypeError, match="needs 4 arguments .*, got 3"):
            shifted[1, 128](da, dc, 0)
        with pytest.raises(errors.HostPointerError, match="argument 1"):
            shifted[1, 128](a, dc, 0, 100)
        with pytest.raises(errors.HostPointerError):
            shifted[1, 128](a, c, 0, 100)
    with pytest.raises(errors.StalePointerError):
        shifted[1, 128](da, dc, 0, 100)
    with pytest.raises(errors.ArgumentTypeError):
        offload(shifted, a, c, 0, device=device)


@pytest.mark.later
def test_a_partition_is_checked_before(device: str) -> None:
    signature = [InOut[F].by(Linear1D()), InOut[np.float64], N]
    kernel = Kernel.compile(HEADER + KERNELS["both"], "both", signature, device=device, debug=True)
    with pytest.raises(errors.CoverageError, match="reaches 64 of 100"):
        offload(kernel, ramp(100), np.zeros(100), 100, grid=1, block=64, device=device)


@pytest.mark.later
def test_a_kernel_of_another_form_can_not_be_checked() -> None:
    source = (
        HEADER
        + """
#define MY OA_KERNEL
MY(mine, oa::InOut<float> x) {
  for (auto element : x.mine(oa::PerBlock(1), here)) *element = 1;
}
"""
    )
    assert Kernel.compile(source, "mine", [InOut[F]], device="host")
    with pytest.raises(errors.ArgumentError, match=r"debug=True needs a kernel that OA_KERNEL\(mine, \.\.\.\)"):
        Kernel.compile(source, "mine", [InOut[F]], device="host", debug=True)
    with pytest.raises(errors.SignatureError, match="has 4 parameters, the module's kernel 3"):
        Kernel.compile(HEADER + KERNELS["both"], "both", SIGNATURES["both"] + [N], device="host", debug=True)


def test_many_checked_launches_keep_no_memory(device: str) -> None:
    a, c = ramp(100), np.zeros(100, F)
    shifted = checked("shifted", device)
    for _ in range(50):
        offload(shifted, a, c, 0, 100, device=device)
    assert Device(device).counters.mappings == 0


THROWS = """\
#include <offload_args/kernel.h>
#include <stdexcept>
OA_KERNEL(throws, oa::InOut<int> x, int n) {
  for (auto element : x.mine(oa::Linear1D(n), here)) {
    if (*element == 7) throw std::runtime_error("seven is wrong");
    if (*element == 8) throw 8;
    *element += 1;
  }
}
"""


@pytest.mark.later
@pytest.mark.parametrize("device", ["host", "sim:0"])
def test_a_cpp_exception_of_a_kernel_is_an_error(device: str) -> None:
    throws = Kernel.compile(THROWS, "throws", [InOut[np.int32], np.int32], device=device)
    for number, words in ((7, "seven is wrong"), (8, "an exception that is not a std::exception")):
        x = np.zeros(40, np.int32)
        x[33] = number
        with pytest.raises(errors.BackendError, match=rf"throws: thread .* threw a C\+\+ exception: {words}"):
            offload(throws, x, x.size, device=device)
    x = np.zeros(40, np.int32)
    offload(throws, x, x.size, device=device)
    np.testing.assert_array_equal(x, 1)
