"""The forms of a launch: the arrays that they take, alone or in a region, their grids, and their checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array, ramp
from helpers.scripts import run
from offload_args import (
    Device,
    In,
    InOut,
    Kernel,
    Module,
    Out,
    Scratch,
    errors,
    launch,
    offload,
    offload_args,
    offload_unsafe,
    testing,
    trace,
)
from offload_args.kernels import GridStride1D, Linear1D, Linear2D, PerBlock, RowBlocks, Tiles

N = 1037
SOURCE = """\
#include <offload_args/kernel.h>

OA_KERNEL(twice, oa::InOut<float> x, int n) {
  for (auto element : x.mine(oa::Linear1D(n), here)) *element *= 2;
}
OA_KERNEL(twice_rows, oa::InOut<float> x, int rows, int columns, int ld) {
  for (auto element : x.mine(oa::Linear2D(rows, columns, ld), here)) *element *= 2;
}
OA_KERNEL(shift, oa::In<float> a, oa::Out<float> c, int by, int n) {
  for (auto element : c.mine(oa::Linear1D(n), here)) *element = a[element.index() + by];
}
OA_BLOCK_KERNEL(ones, oa::Out<float> y) {
  here.phase([&](const oa::Here &here) {
    for (auto element : y.mine(oa::PerBlock(), here)) *element = 1;
  });
}
OA_BLOCK_KERNEL(both, oa::Out<float> y, oa::Out<float> z) {
  here.phase([&](const oa::Here &here) {
    for (auto element : y.mine(oa::PerBlock(), here)) {
      *element = 1;
      z[element] = 2;
    }
  });
}
"""
F, Count = np.float32, np.int32
PER_BLOCK = Out[F].by(PerBlock())
SIGNATURES: dict[str, list[Any]] = {
    "twice": [InOut[F], Count],
    "twice_rows": [InOut[F].by(Linear2D()), Count, Count, Count],
    "shift": [In[F], Out[F], Count, Count],
    "ones": [PER_BLOCK],
    "both": [PER_BLOCK, PER_BLOCK],
}


def compiled(name: str, device: str, **options: Any) -> Kernel:
    return Kernel.compile(SOURCE, name, SIGNATURES[name], device=device, **options)


def checked(name: str, device: str) -> Kernel:
    """Return a kernel that checks each access; by default, it does so only on the CPU."""
    return compiled(name, device, debug=True if Device(device).is_gpu else None)


# -- strided arrays ----------------------------------------------------------------------------------------------------

STRIDED: dict[str, Callable[[Array], Array]] = {
    "every other": lambda x: x[::2],
    "backwards": lambda x: x[::-1],
    "a column": lambda x: x[:1000].reshape(40, 25)[:, 3],
    "every other column": lambda x: x[:1000].reshape(40, 25)[:, ::2],
    "rows backwards": lambda x: x[:1000].reshape(40, 25)[::-1],
    "a part of a stack": lambda x: x[:1000].reshape(10, 10, 10)[:, 2:5, 3:7],
}


def by_launch(kernel: Kernel, x: Array, n: int, device: str) -> None:
    with offload_args(x, device=device) as (dx,):
        launch(kernel, dx, n)


def by_call(kernel: Kernel, x: Array, n: int, device: str) -> None:
    with offload_args(x, device=device) as (dx,):
        kernel(dx, n)


def by_launcher(kernel: Kernel, x: Array, n: int, device: str) -> None:
    with offload_args(x, device=device) as (dx,):
        kernel[1, 32](dx, n)


def by_offload(kernel: Kernel, x: Array, n: int, device: str) -> None:
    offload(kernel, x, n, device=device)


def by_offload_unsafe(kernel: Kernel, x: Array, n: int, device: str) -> None:
    offload_unsafe(kernel, x, n, device=device)


def by_slice(kernel: Kernel, x: Array, n: int, device: str) -> None:
    with offload_args(x, device=device) as (dx,):
        kernel(dx[1:], n)


FORMS = [by_launch, by_call, by_launcher, by_offload, by_offload_unsafe, by_slice]
REFUSED = (
    r"twice: argument 1 needs elements in C or Fortran order, .* c = np\.ascontiguousarray\(x\), .* x\[\.\.\.\] = c$"
)


# Lending an array that has to be packed gives a warning, before a kernel refuses the array.
@pytest.mark.later("host")
@pytest.mark.promise("T66")
@pytest.mark.filterwarnings("ignore::offload_args.errors.PerformanceWarning")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("strided", STRIDED)
def test_t66_a_strided_array_is_refused_whether_or_not_its_base_is_lent(
    device: str, strided: str, form: Callable[..., None]
) -> None:
    x = ramp(N)
    kernel = compiled("twice", device)
    part = STRIDED[strided](x)
    with pytest.raises(errors.ArgumentError, match=REFUSED):
        form(kernel, part, 8, device)
    with offload_args(x, device=device):
        # In a region that lends its base, an array without a leading dimension can't be lent at all.
        with pytest.raises((errors.ArgumentError, errors.PresentError)):
            form(kernel, part, 8, device)
    np.testing.assert_array_equal(x, ramp(N))


@pytest.mark.promise("T66")
def test_t66_a_strided_array_is_refused_beside_one_that_interleaves(device: str) -> None:
    x = ramp(N)
    kernel = compiled("twice", device)
    with offload_args(x[::2], x[1::2], device=device) as (even, odd):
        for pointer in (even, odd):
            for go in (kernel, kernel[1, 32], lambda *arguments: offload(kernel, *arguments)):
                with pytest.raises(errors.ArgumentError, match=REFUSED):
                    go(pointer, 8)
    np.testing.assert_array_equal(x, ramp(N))


@pytest.mark.promise("T66")
@pytest.mark.filterwarnings("error")
def test_t66_offload_refuses_a_strided_array_and_does_not_warn_of_packing_it(device: str) -> None:
    with pytest.raises(errors.ArgumentError, match=REFUSED):
        offload(compiled("twice", device), ramp(N)[::-1], 8, device=device)


TAKEN: dict[str, Callable[[Array], Array]] = {
    "C order": lambda x: x[:1000].reshape(40, 25),
    "Fortran order": lambda x: x[:1000].reshape(40, 25).T,
    "columns, with gaps between rows": lambda x: x[:1000].reshape(40, 25)[:, 3:20],
    "every other row": lambda x: x[:1000].reshape(40, 25)[::2],
    "a matrix of one column": lambda x: x[:1000].reshape(40, 25)[:, 3:4],
    "one row": lambda x: x[:1000].reshape(40, 25)[3:4],
}


@pytest.mark.promise("T66")
@pytest.mark.parametrize("taken", TAKEN)
def test_t66_rows_with_gaps_are_taken_alone_and_in_a_region_that_has_their_base(device: str, taken: str) -> None:
    kernel = compiled("twice_rows", device)
    for inside in (False, True):
        x, expected = ramp(N), ramp(N)
        part = TAKEN[taken](x)
        TAKEN[taken](expected)[...] *= 2
        rows, columns = part.shape if part.strides[0] > part.strides[1] else part.T.shape
        ld = max(part.strides) // part.itemsize
        with offload_args(*[x] * inside, device=device):
            offload(kernel, part, rows, columns, ld, device=device)
        np.testing.assert_array_equal(x, expected)


@pytest.mark.promise("T66")
def test_t66_parts_without_gaps_and_single_elements_are_taken(device: str) -> None:
    x, expected = ramp(N), ramp(N)
    kernel = compiled("twice", device)
    with offload_args(x, device=device) as (dx,):
        kernel(dx[100:200], 100)
        kernel(dx[300:400:100], 1)
        kernel(dx[400:400:2], 0)
    expected[100:200] *= 2
    expected[300] *= 2
    np.testing.assert_array_equal(x, expected)


# -- grids that reach beyond an array ----------------------------------------------------------------------------------


@pytest.mark.later
@pytest.mark.promise("T66")
@pytest.mark.parametrize("debug", [None, False])
def test_t66_a_grid_with_more_blocks_than_a_part_has_elements_writes_nothing_after_it(
    device: str, debug: bool | None
) -> None:
    ones = compiled("ones", device, debug=debug)
    y, expected = np.zeros(32, F), np.zeros(32, F)
    words = r"has 9 blocks along x, .* and the array has 8: launch as many"
    with offload_args(y, device=device) as (dy,):
        for go in (
            ones[9, 32],
            lambda pointer: launch(ones, pointer, grid=9),
            lambda pointer: offload(ones, pointer, grid=9),
        ):
            with pytest.raises(errors.CoverageError, match=words):
                go(dy[8:16])
        with pytest.raises(errors.CoverageError, match="reaches 7 of 8"):
            ones[7, 32](dy[8:16])
        with pytest.raises(errors.CoverageError, match="the array has 0"):
            ones(dy[8:8])
        ones[8, 32](dy[8:16])
        ones(dy[20:24])
    expected[8:16] = expected[20:24] = 1
    np.testing.assert_array_equal(y, expected)


@pytest.mark.later
@pytest.mark.promise("T66")
def test_t66_the_default_grid_is_refused_if_two_arrays_need_different_ones(device: str) -> None:
    both = compiled("both", device, debug=False)
    y, z = np.zeros(8, F), np.zeros(8, F)
    offload(both, y, z, device=device)
    assert (y == 1).all() and (z == 2).all()
    with pytest.raises(errors.CoverageError, match=r"argument 2: PerBlock\(\): .* and the array has 7"):
        offload(both, y, z[:7], device=device)


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("T66")
def test_t66_a_wrong_size_is_an_exception_on_host_and_sim_and_touches_nothing(device: str) -> None:
    twice = checked("twice", device)
    x, expected = ramp(N), ramp(N)
    with pytest.raises(errors.ExtentError, match=r"twice: thread .* element \d+ of argument 1, which has 1037"):
        offload(twice, x, 100 * N, device=device, grid=1000)
    np.testing.assert_array_equal(x, ramp(N))
    with offload_args(x, device=device) as (dx,):
        with pytest.raises(errors.ExtentError, match="which has 500"):
            twice(dx[:500], 600, grid=5)
    expected[:500] *= 2
    np.testing.assert_array_equal(x, expected)


WRONG_SIZE = """\
import numpy as np
from offload_args import InOut, Kernel, errors, offload

kernel = Kernel.compile({source!r}, "twice", [InOut[np.float32], np.int32], device={device!r}, debug={debug})
try:
    offload(kernel, np.ones(8, np.float32), 2**31 - 1, grid=2**16, device={device!r})
except errors.ExtentError as error:
    print("refused:", error)
"""


@pytest.mark.later
@pytest.mark.promise("T66")
def test_t66_a_size_far_too_large_does_not_end_python(tmp_path: Path, device: str) -> None:
    script = tmp_path / "wrong.py"
    debug = True if Device(device).is_gpu else None
    script.write_text(WRONG_SIZE.format(source=SOURCE, device=device, debug=debug))
    ran = run(script)
    assert ran.stdout.startswith("refused: twice: thread"), ran.stderr


@pytest.mark.later
def test_bounds_are_not_checked_with_debug_false_nor_in_the_module_that_save_writes(
    device: str, tmp_path: Path
) -> None:
    kernels = [compiled("twice", device, debug=False)]
    if not Device(device).is_gpu:
        compiled("twice", device).save(tmp_path / "module")
        kernels.append(Module.load(tmp_path / "module").kernel("twice", InOut[F], Count))
    for kernel in kernels:
        x, expected = ramp(N), ramp(N)
        with offload_args(x, device=device) as (dx,):
            kernel(dx[:500], 600, grid=5)  # the array continues after the part
        expected[:600] *= 2
        np.testing.assert_array_equal(x, expected)


def test_a_launch_that_is_checked_by_default_moves_nothing_more(device: str) -> None:
    twice = compiled("twice", device)
    x = ramp(N)
    offload(twice, x, N, device=device)
    before = Device(device).counters
    with trace() as recording:
        offload(twice, x, N, device=device)
    after = Device(device).counters
    assert (after.copies_up - before.copies_up, after.copies_down - before.copies_down) == (1, 1)
    assert [event.name for event in recording.events if event.kind == "launch"] == ["twice"]


LARGE = """\
#include <offload_args/kernel.h>

struct Large {
  double all[20];
};
OA_KERNEL(fill, oa::Out<Large> y, int n) {
  for (auto element : y.mine(oa::Linear1D(n), here)) {
    Large large;
    for (int i = 0; i < 20; i++) large.all[i] = static_cast<double>(element.index() + i);
    *element = large;
  }
}
"""


@pytest.mark.later
def test_elements_of_160_bytes_are_taken_by_checked_kernels_too(device: str) -> None:
    y = np.zeros((5, 20))
    offload(Kernel.compile(LARGE, "fill", [Out, Count], device=device), y, 5, device=device)
    np.testing.assert_array_equal(y, np.arange(5)[:, None] + np.arange(20))


def test_a_device_that_fails_under_a_checked_launch_raises_and_the_next_launch_is_right() -> None:
    device = Device("sim:0")
    twice = compiled("twice", "sim:0")
    offload(twice, ramp(N), N, device=device)
    failed = 0
    for k in range(1, 12):
        testing.fail_call(device, k)
        try:
            offload(twice, ramp(N), N, device=device)
        except errors.OffloadError:
            failed += 1
        testing.fail_call(device, 0)
    assert failed > 2
    x = ramp(N)
    offload(twice, x, N, device=device)
    np.testing.assert_array_equal(x, 2 * ramp(N))


# -- the forms ---------------------------------------------------------------------------------------------------------


def test_a_kernel_is_called_as_launch_is(device: str) -> None:
    twice = compiled("twice", device)
    x = ramp(N)
    with offload_args(x, device=device) as (dx,):
        assert twice(dx, N) is None
        twice(dx, N, grid=9)
        twice(dx, np.int64(N), block=(64, 1), grid=None)
        twice(dx, N, grid=(5, 1), block=256, shared_bytes=16, stream=None, cooperative=False, cluster=None)
        twice.__call__(dx, N)
        list(map(twice, [dx], [N]))
        launch(twice, dx, N)
    np.testing.assert_array_equal(x, 2.0**7 * ramp(N))


class Several:
    def __init__(self, *parts: object) -> None:
        self.parts = parts

    def __offload__(self) -> tuple[object, ...]:
        return self.parts


def test_objects_that_travel_whole_are_taken_apart_in_every_form(device: str) -> None:
    twice = compiled("twice", device)
    x = ramp(N)
    offload(twice, Several(x, Several(N)), device=device, grid=9, block=128)
    with offload_args(x, device=device) as (dx,):
        twice(Several(dx, N))
        launch(twice, Several(dx), N, block=64)
    np.testing.assert_array_equal(x, 8 * ramp(N))
    with pytest.raises(errors.ArgumentTypeError, match="needs 2 arguments .*, got 3"):
        offload(twice, Several(x, N), N, device=device)


WRONG: dict[str, tuple[type[Exception], str, Callable[[Any, Any], Any]]] = {
    "an array": (
        errors.HostPointerError,
        r"twice: argument 1 needs a device pointer to float32, got a host array: use offload\(twice, \.\.\.\)",
        lambda k, dx: k(np.ones(8, F), 8),
    ),
    "a list": (
        errors.HostPointerError,
        "twice: argument 1 .* got list; make it an array, np.asarray",
        lambda k, dx: k([1.0], 1),
    ),
    "too few": (errors.ArgumentTypeError, r"twice: needs 2 arguments \(InOut.*\), got 1", lambda k, dx: k(dx)),
    "none": (errors.ArgumentTypeError, "twice: needs 2 arguments .*, got 0", lambda k, dx: k()),
    "a keyword": (TypeError, "launch.* unexpected keyword argument 'n'", lambda k, dx: k(dx, N, n=3)),
    "one of offload": (TypeError, "keyword argument 'device'", lambda k, dx: k(dx, N, device="host")),
    "one to offload": (TypeError, r"offload\(\) .* keyword argument 'n'", lambda k, dx: offload(k, dx, N, n=3)),
    "a grid of text": (errors.ArgumentTypeError, "twice: grid needs whole", lambda k, dx: k(dx, N, grid="1")),
    "a block of 0": (errors.ArgumentError, "twice: block needs 1 to 3", lambda k, dx: k(dx, N, grid=1, block=0)),
    "a stream that is none": (errors.ArgumentTypeError, "stream", lambda k, dx: k(dx, N, stream=3)),
    "no kernel": (TypeError, r"launch\(\) missing 1 .* 'kernel'", lambda k, dx: launch()),  # type: ignore[call-arg]
    "an array by value": (
        errors.DTypeError,
        "argument 2 needs one int32 by value, got an array of int32; pass a number, or declare an array",
        lambda k, dx: offload(k, dx, np.ones(1, Count)),
    ),
    "a pointer by value": (
        errors.DTypeError,
        "argument 2 needs one int32 by value, got a pointer to float32; pass a number, or declare an array",
        lambda k, dx: k(dx, dx),
    ),
    "an array of another dtype": (
        errors.DTypeError,
        r"argument 1 needs a device pointer .*, got a pointer to int64; .*: x = x\.astype\(np\.float32\)$",
        lambda k, dx: offload(k, np.ones(8, np.int64), 8),
    ),
    "text by value": (
        errors.DTypeError,
        "argument 2 needs one int32, got str '8'; pass a number$",
        lambda k, dx: k(dx, "8"),
    ),
    "half a number": (
        errors.DTypeError,
        r"argument 2 needs int32, got float 1\.5; convert it first: int\(value\)$",
        lambda k, dx: k(dx, 1.5),
    ),
    "a complex number": (
        errors.DTypeError,
        r"argument 2 needs int32, got complex 2j; convert it first: int\(value\.real\)$",
        lambda k, dx: k(dx, 2j),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_says_what_to_write(device: str, case: str) -> None:
    error, words, use = WRONG[case]
    x = ramp(N)
    with offload_args(x, device=device) as (dx,):
        with pytest.raises(error, match=words):
            use(compiled("twice", device), dx)
    np.testing.assert_array_equal(x, ramp(N))


def test_a_kernel_that_is_called_outside_of_regions_says_to_use_offload(device: str) -> None:
    words = r"use offload\(twice, \.\.\.\), .* or lend them in a region: with"
    with pytest.raises(errors.HostPointerError, match=words):
        compiled("twice", device)(ramp(N), N)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("OA_KERNEL(f, oa::Out<float> y, int n) {}", r"no #include <offload_args/kernel\.h>, which declares it"),
        (
            "#include <offload_args/kernel.h>\nOA_KERNEL(f, oa::Out<float> y, int n) { y[here.index()] = 1; }",
            r"takes no number as its index: write for \(auto element : y\.mine\(oa::Linear1D\(n\), here\)\)",
        ),
        (
            "#include <offload_args/kernel.h>\nOA_KERNEL(f, oa::InOut<float> y, int n) { y[0] += 1; }",
            r"takes no number as its index",
        ),
    ],
)
def test_a_first_kernel_with_a_usual_mistake_says_what_to_write(source: str, words: str) -> None:
    with pytest.raises(errors.ModuleError, match=words):
        Kernel.compile(source, "f", [InOut[np.float32], np.int32])


def test_cuda_c_for_the_host_says_how_to_write_it() -> None:
    source = 'extern "C" __global__ void twice(float *x, int n) { x[threadIdx.x] *= 2; }'
    with pytest.raises(errors.ModuleError, match="CUDA C or HIP .*begin the kernel with OA_KERNEL of <offload_args/"):
        Kernel.compile(source, "twice", [InOut[F], Count], device="host")


# -- the default shape -------------------------------------------------------------------------------------------------


def shapes(kernel: Kernel, *arguments: Any, device: str, **shape: Any) -> list[str]:
    with trace() as recording:
        offload(kernel, *arguments, device=device, **shape)
    return [event.why.rpartition(" shared")[0] for event in recording.events if event.kind == "launch"]


def test_the_default_block_has_256_threads_or_as_many_as_the_kernel_takes(device: str) -> None:
    shift = compiled("shift", device)
    threads = min(256, shift.info(device).good_threads)
    whole = [f"grid {-(-600 // threads)}x1x1 block {threads}x1x1"]
    a, c = ramp(1000), np.zeros(600, F)
    assert shapes(shift, a, c, 0, 600, device=device) == whole  # determined by the written array
    assert shapes(shift, a, Scratch((3, 200), F), 0, 600, device=device) == whole
    assert shapes(shift, a, c, 0, 600, device=device, block=100) == ["grid 6x1x1 block 100x1x1"]
    assert shapes(shift, a, c, 0, 100, device=device, grid=1) == [f"grid 1x1x1 block {threads}x1x1"]


def test_the_default_shape_of_a_partition_is_its_own(device: str) -> None:
    on_cpu = not Device(device).is_gpu
    threads = min(256, compiled("shift", device).info(device).good_threads)
    each, tall = -(-1000 // threads), threads // 32  # blocks, and rows of blocks of 32 columns
    partitions: list[tuple[Any, str]] = [
        (Linear1D(), f"grid {each}x1x1 block {threads}x1x1"),
        (GridStride1D(), "grid 1x1x1 block 1x1x1" if on_cpu else f"grid {each}x1x1 block {threads}x1x1"),
        (RowBlocks(3), "grid 9x1x1 block 1x1x1" if on_cpu else f"grid 9x1x1 block {threads}x1x1"),
        (Linear2D(), "grid 1x25x1 block 256x1x1" if on_cpu else f"grid 2x{-(-25 // tall)}x1 block 32x{tall}x1"),
        (Tiles(5, 8), "grid 5x5x1 block 1x1x1" if on_cpu else "grid 5x5x1 block 8x5x1"),
    ]
    x = np.zeros((25, 40), F)
    for partition, expected in partitions:
        twice = Kernel.compile(SOURCE, "twice", [InOut[F].by(partition), Count], device=device)
        assert shapes(twice, x, 0, device=device) == [expected], partition
