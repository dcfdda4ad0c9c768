"""A launch with wrong arguments raises an error that names the argument, before anything moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.devices import open_or_skip
from kernels.images import module_for
from offload_args import (
    Device,
    In,
    InOut,
    Kernel,
    Module,
    Out,
    Shared,
    blas,
    errors,
    launch,
    linalg,
    offload,
    offload_args,
    testing,
)
from offload_args.kernels import reduce

N = 40


class OddStream:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 1, 0


# Each call gets the kernel, and the pointers of a, b, c (float32, lent as In, by use and Out) and of d (float64).
WRONG: dict[str, tuple[type[Exception], str, Callable[..., Any]]] = {
    "too few": (errors.ArgumentTypeError, "needs 4 arguments", lambda k, a, b, c, d: k[1, 64](a, b, c)),
    "too many": (errors.ArgumentTypeError, "got 5", lambda k, a, b, c, d: k[1, 64](a, b, c, N, 1)),
    "a keyword": (
        errors.ArgumentTypeError,
        "no keyword arguments, got n",
        lambda k, a, b, c, d: k[1, 64](a, b, c, n=N),
    ),
    "a keyword more": (
        errors.ArgumentTypeError,
        "no keyword arguments, got n",
        lambda k, a, b, c, d: k[1, 64](a, b, c, N, n=N),
    ),
    "a keyword in a dict": (
        errors.ArgumentTypeError,
        "no keyword arguments, got n",
        lambda k, a, b, c, d: k[1, 64].__call__(a, b, c, n=N),
    ),
    "keywords in place of arguments": (
        errors.ArgumentTypeError,
        "no keyword arguments, got c, m: pass its arguments by position: ",
        lambda k, a, b, c, d: launch(k, a, c=c, m=N, grid=1),
    ),
    "too few in a tuple": (errors.ArgumentTypeError, "got 3", lambda k, a, b, c, d: k[1, 64].__call__(a, b, c)),
    "too many for any kernel": (
        errors.ArgumentTypeError,
        "got 5003",
        lambda k, a, b, c, d: k[1, 64](a, b, c, *range(5000)),
    ),
    "an int for a pointer": (
        errors.HostPointerError,
        "argument 1 .* int 4096",
        lambda k, a, b, c, d: k[1, 64](4096, b, c, N),
    ),
    "None for a pointer": (
        errors.HostPointerError,
        "argument 3 .* NoneType",
        lambda k, a, b, c, d: k[1, 64](a, b, None, N),
    ),
    "an array": (
        errors.HostPointerError,
        "argument 2 .* use offload",
        lambda k, a, b, c, d: k[1, 64](a, ramp(N), c, N),
    ),
    "another dtype": (errors.DTypeError, "argument 2 .* float64", lambda k, a, b, c, d: k[1, 64](a, d, c, N)),
    "a pointer for a value": (errors.DTypeError, "argument 4 .* by value", lambda k, a, b, c, d: k[1, 64](a, b, c, d)),
    "a float for an int": (errors.DTypeError, "argument 4 needs int32", lambda k, a, b, c, d: k[1, 64](a, b, c, 1.0)),
    "a string": (errors.DTypeError, "argument 4", lambda k, a, b, c, d: k[1, 64](a, b, c, "40")),
    "too large": (errors.SizeOverflowError, "argument 4", lambda k, a, b, c, d: k[1, 64](a, b, c, 2**31)),
    "too small": (errors.SizeOverflowError, "argument 4", lambda k, a, b, c, d: k[1, 64](a, b, c, -(2**31) - 1)),
    "far too large": (errors.SizeOverflowError, "argument 4", lambda k, a, b, c, d: k[1, 64](a, b, c, 2**100)),
    "an In that is written": (errors.DirectionError, "argument 3", lambda k, a, b, c, d: k[1, 64](b, b, a, N)),
    "an Out that is read": (errors.DirectionError, "argument 1", lambda k, a, b, c, d: k[1, 64](c, a, b, N)),
    "an overlap": (errors.AliasError, "argument 3", lambda k, a, b, c, d: k[1, 64](a, b, b, N)),
    "grid 0": (errors.ArgumentError, "grid", lambda k, a, b, c, d: k[0, 64](a, b, c, N)),
    "grid below 0": (errors.ArgumentError, "grid", lambda k, a, b, c, d: k[-1, 64](a, b, c, N)),
    "block 0": (errors.ArgumentError, "block", lambda k, a, b, c, d: k[1, (64, 0)](a, b, c, N)),
    "four axes": (errors.ArgumentError, "grid needs 1 to 3", lambda k, a, b, c, d: k[(1, 1, 1, 1), 64](a, b, c, N)),
    "a grid of text": (errors.ArgumentTypeError, "grid", lambda k, a, b, c, d: k["1", 64](a, b, c, N)),
    "a grid that is true": (errors.ArgumentTypeError, "grid", lambda k, a, b, c, d: k[True, 64](a, b, c, N)),
    "a block of truths": (
        errors.ArgumentTypeError,
        "block",
        lambda k, a, b, c, d: k[1, np.array([True, True])](a, b, c, N),
    ),
    "a grid of two axes of two": (
        errors.ArgumentTypeError,
        "grid",
        lambda k, a, b, c, d: k[np.ones((2, 2), int), 64](a, b, c, N),
    ),
    "a grid that is a pointer": (errors.ArgumentTypeError, "grid", lambda k, a, b, c, d: k[a, 64](a, b, c, N)),
    "shared memory that is true": (
        errors.ArgumentTypeError,
        "shared_bytes",
        lambda k, a, b, c, d: k[1, 64, True](a, b, c, N),
    ),
    "shared memory of True elements": (
        errors.ArgumentTypeError,
        "Shared: size",
        lambda k, a, b, c, d: k[1, 64, Shared(True)](a, b, c, N),
    ),
    "shared memory of 400 digits": (
        errors.ArgumentError,
        r"^Shared: size needs 0 to 1073741823 elements of float32, got an int of 1329 bits$",
        lambda k, a, b, c, d: k[1, 64, Shared[np.float32](10**400)](a, b, c, N),
    ),
    "a grid of 400 digits": (
        errors.ArgumentError,
        r"grid needs 1 to 3 numbers from 1 to 4294967295, got \(an int of 1329 bits, 1\)$",
        lambda k, a, b, c, d: k[(10**400, 1), 64](a, b, c, N),
    ),
    "a value of 400 digits": (
        errors.SizeOverflowError,
        "got an int of 1329 bits$",
        lambda k, a, b, c, d: k[1, 64](a, b, c, 10**400),
    ),
    "no block": (errors.ArgumentError, r"needs \[grid, block\]", lambda k, a, b, c, d: k[1](a, b, c, N)),
    "a block too long": (
        errors.ArgumentError,
        "block needs 1 to 1024 along x",
        lambda k, a, b, c, d: k[1, 1025](a, b, c, N),
    ),
    "a block too large": (
        errors.ArgumentError,
        "at most 1024 threads",
        lambda k, a, b, c, d: k[1, (32, 33)](a, b, c, N),
    ),
    "a grid too large": (
        errors.ArgumentError,
        r"grid needs 1 to 6553[56] along y",  # CUDA's limit, HIP's limit
        lambda k, a, b, c, d: k[(1, 65537), 64](a, b, c, N),
    ),
    "too much shared memory": (
        errors.ArgumentError,
        "shared_bytes needs 0 to",
        lambda k, a, b, c, d: k[1, 64, 1 << 24](a, b, c, N),
    ),
    "too many elements of it": (
        errors.ArgumentError,
        "shared_bytes",
        lambda k, a, b, c, d: k[1, 64, Shared[np.float64](1 << 21)](a, b, c, N),
    ),
    "shared memory below 0": (errors.ArgumentError, "shared_bytes", lambda k, a, b, c, d: k[1, 64, -1](a, b, c, N)),
    "shared memory of text": (
        errors.ArgumentTypeError,
        "shared_bytes",
        lambda k, a, b, c, d: k[1, 64, "1"](a, b, c, N),
    ),
    "a stream that is none": (
        errors.ArgumentTypeError,
        "stream",
        lambda k, a, b, c, d: launch(k, a, b, c, N, grid=1, block=64, stream=7),
    ),
    "a stream of another protocol": (
        errors.ArgumentError,
        "version 1",
        lambda k, a, b, c, d: k[1, 64, 0, OddStream()](a, b, c, N),
    ),
    "a kernel that is none": (
        errors.ArgumentTypeError,
        "launch: kernel",
        lambda k, a, b, c, d: launch(print, a, b, c, N),
    ),
    "no pointer to choose by": (errors.HostPointerError, "vadd", lambda k, a, b, c, d: launch(k, 1, 2, 3, N)),
}


@pytest.mark.promise("T41", "T42")
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_refused_before_anything_moves(vadd: Kernel, device: str, case: str) -> None:
    error, words, use = WRONG[case]
    a, b, c, d = ramp(N), ramp(N), np.full(N, 7, np.float32), np.zeros(N)
    vadd.info(device)
    with offload_args(In(a), b, InOut(d), device=device) as (da, db, dd):
        with offload_args(Out(c), device=device) as (dc,):
            before = Device(device).counters
            with pytest.raises(error, match=words):
                use(vadd, da, db, dc, dd)
            after = Device(device).counters
            assert (after.copies_up, after.calls) == (before.copies_up, before.calls)
            dc.fill(7)
    np.testing.assert_array_equal(c, 7)


def test_a_pointer_of_a_region_that_ended_is_stale(vadd: Kernel, device: str) -> None:
    a, b, c = ramp(N), ramp(N), ramp(N)
    with offload_args(a, b, c, device=device) as (da, db, dc):
        launcher = vadd[1, 64]
        launcher(da, db, dc, N)
    with pytest.raises(errors.StalePointerError, match="vadd: argument 1"):
        launcher(da, db, dc, N)


def test_pointers_of_two_devices_do_not_meet_in_a_launch(vadd: Kernel, device: str) -> None:
    a, b, c = ramp(N), ramp(N), ramp(N)
    other = open_or_skip("sim:1")
    with offload_args(a, c, device=device) as (da, dc), offload_args(b, device=other) as (db,):
        with pytest.raises(errors.WrongDeviceError, match="argument 2"):
            vadd[1, 64](da, db, dc, N)


@pytest.mark.parametrize("number", [np.int8(3), np.uint64(3), True, 3])
def test_any_whole_number_that_fits_is_a_value(relu: Kernel, device: str, number: Any) -> None:
    x = -ramp(N)
    offload(relu, x, number, device=device)
    assert np.count_nonzero(x == 0) == int(number)


STRUCT_SOURCE = """\
#include <offload_args/kernel.h>

struct Pair {
  signed char a;
  double b;
};
struct Both {
  Pair pairs[2];
  float c;
  int d[2][2];
};
OA_KERNEL(take, oa::Out<double> y, Both s) {
  const double all[] = {double(s.pairs[0].a), s.pairs[1].b,      double(s.c),      double(s.d[0][0]),
                        double(s.d[0][1]),    double(s.d[1][0]), double(s.d[1][1])};
  for (auto element : y.mine(oa::Linear1D(7), here)) *element = all[element.index()];
}
"""
PAIR = np.dtype([("a", np.int8), ("b", np.float64)], align=True)
BOTH = np.dtype([("pairs", PAIR, 2), ("c", np.float32), ("d", np.int32, (2, 2))], align=True)
PAIRS = ((1, 0.0), (0, 2.5))
WRONG_STRUCTS: dict[str, tuple[type[Exception], str, Any]] = {
    "a float for an int": (
        errors.DTypeError,
        r"d\[1\]\[0\] needs int32, got float 6.5",
        (PAIRS, 3, ((4, 5), (6.5, 7))),
    ),
    "an int too large": (errors.SizeOverflowError, r"d\[0\]\[0\] needs", (PAIRS, 3, ((2**31, 5), (6, 7)))),
    "a NumPy int too large": (errors.SizeOverflowError, r"pairs\[1\].a needs", (((1, 0), (np.int64(300), 2)), 3, 4)),
    "a float too large": (
        errors.SizeOverflowError,
        "c needs a number that float32",
        (PAIRS, 1e300, ((4, 5), (6, 7))),
    ),
    "too few in an array": (errors.DTypeError, r"pairs needs a tuple or list of 2 values, got 1", (PAIRS[:1], 3, 4)),
    "one for an array": (errors.DTypeError, r"d needs a tuple or list of 2 values, got int 4", (PAIRS, 3, 4)),
    "too few": (errors.DTypeError, "a tuple of 3 values .* got a tuple of 2", (PAIRS, 3)),
    "a list": (errors.DTypeError, "a tuple of 3 values .* got list", [PAIRS, 3, ((4, 5), (6, 7))]),
}


@pytest.mark.later
def test_the_numbers_in_a_struct_are_checked_as_those_outside(device: str) -> None:
    take = Kernel.compile(STRUCT_SOURCE, "take", [Out[np.float64], BOTH], device=device)
    y = np.zeros(7)
    for good in (
        (PAIRS, 3, ((4, 5), (6, 7))),
        (list(PAIRS), np.float32(3), [[4, 5], (6, 7)]),
        (np.array(list(PAIRS), PAIR), 3.0, np.arange(4, 8).reshape(2, 2)),
    ):
        y[:] = 0
        offload(take, y, good, device=device)
        np.testing.assert_array_equal(y, [1, 2.5, 3, 4, 5, 6, 7])
    for error, words, wrong in WRONG_STRUCTS.values():
        with pytest.raises(error, match=f"take: argument 2.*{words}"):
            offload(take, y, wrong, device=device)
    np.testing.assert_array_equal(y, [1, 2.5, 3, 4, 5, 6, 7])


def test_offload_of_what_can_not_be_lent_raises(relu: Kernel, device: str) -> None:
    with pytest.raises(errors.HostPointerError, match="relu: argument 1"):
        offload(relu, [1.0, 2.0], 2, grid=1, block=32, device=device)
    with pytest.raises(errors.ArgumentTypeError, match="needs 2 arguments"):
        offload(relu, ramp(4), device=device)


def test_a_failed_call_of_the_device_leaves_the_array_as_it_was() -> None:
    relu = Module.load(module_for("sim:0"), name="kernels").kernel("relu", InOut[np.float32], np.int32)
    sim = testing.sim_device(index=0)
    done = 0
    for k in range(1, 30):
        x = -ramp(N)
        testing.fail_call(sim, k)
        try:
            offload(relu, x, N, device=sim)
        except errors.OffloadError:
            np.testing.assert_array_equal(x, -ramp(N))
        else:
            np.testing.assert_array_equal(x, 0)
            done += 1
        finally:
            testing.fail_call(sim, 0)
    assert 0 < done < 29


def test_a_module_runs_on_its_own_kind_of_device_only(device: str) -> None:
    module = Module.load(module_for("host" if device.startswith("cuda") else "cuda:0"), name="kernels")
    relu = module.kernel("relu", InOut[np.float32], np.int32)
    with pytest.raises(errors.WrongDeviceError, match="kernels: the arrays are on"):
        offload(relu, ramp(4), 4, device=device)


def test_an_unloaded_module_has_no_kernels(module: Module, device: str) -> None:
    relu = module.kernel("relu", InOut[np.float32], np.int32)
    x = ramp(4)
    offload(relu, x, 4, device=device)
    module.unload()
    with pytest.raises(errors.StalePointerError, match="unloaded"):
        offload(relu, x, 4, device=device)
    module.unload()


def test_objects_that_are_no_kernels_are_told_how_they_run(device: str) -> None:
    A, y = np.ones((3, 3)), np.zeros(())
    total = reduce("sum", A=np.float64)
    wrong: list[tuple[Any, str]] = [
        (total, r"got a Reduction; call the reduction itself, .*: total\(A\), or total\(A, out\)$"),
        (blas.scal, r"got the function blas\.scal; .* write call\(blas\.scal, \.\.\.\)$"),
        (linalg.solve, r"call it directly: result = linalg\.solve\(\.\.\.\) takes NumPy arrays and device=$"),
        (np.exp, r'kernels\.elementwise\("y = exp\(x\)", x=In\[np\.float64\], y=Out\[np\.float64\]\) makes one$'),
        (np.add, r'kernels\.elementwise\("z = x \+ y", x=In\[np\.float64\], y=In\[.*\], z=Out\[.*\]\) makes one$'),
        (np.negative, r'kernels\.elementwise\("y = -x", x=In\[np\.float64\], y=Out\[np\.float64\]\) makes one$'),
        (np.logaddexp, r"formulas have no logaddexp: write it with operators and functions of math, for kernels"),
        (lambda a, b: None, "decorate the function with @kernel"),
        ("y = x", r"got a str; kernels\.elementwise\(formula, \.\.\.\) makes one of a formula, Module\.load"),
        (A, r"the kernel is the first argument: offload\(kernel, \.\.\.\)$"),
        (object(), "got an object; @kernel, kernels.elementwise and Module.kernel make one"),
    ]
    for kernel, words in wrong:
        with pytest.raises(errors.ArgumentTypeError, match=f"^offload: kernel needs a Kernel, .*{words}"):
            offload(kernel, A, y, device=device)
    with offload_args(A, device=device) as (dA,):
        with pytest.raises(
            errors.ArgumentTypeError, match=r"launch: .*call it with the pointers, blas\.scal\(\.\.\.\)$"
        ):
            launch(blas.scal, 2.0, dA)  # type: ignore[arg-type]


def test_a_reduction_is_called_itself(running_device: str) -> None:
    A, y = np.ones((3, 3)), np.zeros(())
    total = reduce("sum", A=np.float64)
    assert total(A, device=running_device) == 9
    total(A, y, device=running_device)
    assert y == 9
