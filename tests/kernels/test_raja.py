"""Ten kernels of the RAJA Performance Suite (benchmarks/raja_kernels.py, raja_python.py), compared with NumPy."""

from __future__ import annotations

import runpy
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array
from helpers.processes import output_of
from offload_args import Device, Kernel, Scratch, offload, offload_args, trace

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RAJA, IN_NUMPY = (runpy.run_path(str(BENCHMARKS / name)) for name in ("raja_kernels.py", "raja_numpy.py"))
N = 10_007  # no multiple of a block
GRID, BLOCK = -(-N // RAJA["BLOCK"]), RAJA["BLOCK"]
SIMPLE: dict[str, tuple[int, tuple[float, ...], Any]] = {  # by kernel: inputs, numbers, the outputs in NumPy
    "copy": (1, (), lambda a: (a,)),
    "mul": (1, (0.3,), lambda c: (0.3 * c,)),
    "add": (2, (), lambda a, b: (a + b,)),
    "triad": (2, (0.3,), lambda b, c: (b + 0.3 * c,)),
    "muladdsub": (2, (), lambda x, y: (x * y, x + y, x - y)),
    "pressure1": (1, (2 / 3,), lambda compression: (2 / 3 * (compression + 1),)),
}


@cache
def compiled(device: str) -> dict[str, Kernel]:
    kernels: dict[str, Kernel] = RAJA["compiled"](Device(device))
    return kernels


@pytest.fixture
def kernels(device: str) -> dict[str, Kernel]:
    return compiled(device)


def arrays(count: int) -> list[Array]:
    return list(np.random.default_rng(12).uniform(-1, 1, (count, N)))


def close(array: Array, expected: Array) -> None:
    """Compare with a tolerance, because a GPU multiplies and adds in one step."""
    np.testing.assert_allclose(array, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.later(but="triad")
@pytest.mark.parametrize("name", SIMPLE)
def test_a_loop_over_vectors_is_that_of_numpy(kernels: dict[str, Kernel], device: str, name: str) -> None:
    count, numbers, formula = SIMPLE[name]
    inputs = arrays(count)
    expected = formula(*inputs)
    outputs = [np.full(N, np.nan) for _ in expected]
    offload(kernels[name], *outputs, *inputs, *numbers, N, grid=GRID, block=BLOCK, device=device)
    for output, wanted in zip(outputs, expected, strict=True):
        close(output, wanted)


@pytest.mark.later("host")
def test_daxpy_is_that_of_numpy(kernels: dict[str, Kernel], device: str) -> None:
    x, y = arrays(2)
    expected = y + 0.7 * x
    offload(kernels["daxpy"], y, x, 0.7, N, grid=GRID, block=BLOCK, device=device)
    close(y, expected)


@pytest.mark.later(but="7")
@pytest.mark.parametrize("parts", [1, 7, 64])
def test_dot_is_that_of_numpy(kernels: dict[str, Kernel], device: str, parts: int) -> None:
    a, b = arrays(2)
    results = np.full(1, np.nan)
    with offload_args(a, b, Scratch(parts, np.float64), results, device=device) as (da, db, dsums, dfound):
        kernels["dot"][parts, BLOCK](dsums, da, db, N)
        kernels["total"][1, BLOCK](dfound, dsums, parts)
    np.testing.assert_allclose(results[0], a @ b, rtol=1e-11, atol=1e-11)


@pytest.mark.later(but="7")
@pytest.mark.parametrize("parts", [1, 7, 64])
def test_reduce3_int_finds_sum_least_and_most(kernels: dict[str, Kernel], device: str, parts: int) -> None:
    x = np.random.default_rng(3).integers(-100_000, 100_000, N, np.int32)
    actual = np.zeros(3, np.int32)
    with offload_args(x, Scratch((parts, 3), np.int32), actual, device=device) as (dx, dparts, dfound):
        kernels["reduce3"][parts, BLOCK](dparts, dx, N)
        kernels["total3"][1, BLOCK](dfound, dparts, parts)
    assert actual.tolist() == [x.sum(dtype=np.int32), x.min(), x.max()]


@pytest.mark.later("host")
def test_pressure_is_that_of_numpy(kernels: dict[str, Kernel], device: str) -> None:
    compression, e_old, vnewc = arrays(3)
    bvc, p_new = np.full((2, N), np.nan)
    p_cut, p_min, most = 0.05, -0.3, 0.9
    with offload_args(compression, e_old, vnewc, bvc, p_new, device=device) as (dc, de, dv, dbvc, dp):
        kernels["pressure1"][GRID, BLOCK](dbvc, dc, 2 / 3, N)
        kernels["pressure2"][GRID, BLOCK](dp, dbvc, de, dv, p_cut, p_min, most, N)
    expected = 2 / 3 * (compression + 1) * e_old
    expected[(abs(expected) < p_cut) | (vnewc >= most)] = 0
    close(bvc, 2 / 3 * (compression + 1))
    close(p_new, np.maximum(expected, p_min))


NAMES = "e_old delvc p_new p_old q_old work comp_half p_half bvc pbvc ql_old qq_old vnewc".split()
RHO0, E_CUT, E_MIN, Q_CUT = (IN_NUMPY[name] for name in ("RHO0", "E_CUT", "E_MIN", "Q_CUT"))


@pytest.mark.later
def test_energy_moves_each_array_at_most_once_each_way_over_six_launches(
    kernels: dict[str, Kernel], device: str
) -> None:
    inputs = dict(zip(NAMES, arrays(len(NAMES)), strict=True))
    inputs["comp_half"] += 2
    e_new, q_new = np.full((2, N), np.nan)
    before = Device(device).counters
    with trace() as recording, offload_args(*inputs.values(), e_new, q_new, device=device) as pointers:
        d, (e, q) = dict(zip(NAMES, pointers[:-2], strict=True)), pointers[-2:]

        def run(number: int, written: Any, *arguments: Any) -> None:
            read = (d.get(argument, argument) if isinstance(argument, str) else argument for argument in arguments)
            kernels[f"energy{number}"][GRID, BLOCK](written, *read, N)

        run(1, e, "e_old", "delvc", "p_old", "q_old", "work")
        run(2, q, "delvc", "comp_half", "pbvc", e, "bvc", "p_half", "ql_old", "qq_old", RHO0)
        run(3, e, "delvc", "p_old", "q_old", "p_half", q)
        run(4, e, "work", E_CUT, E_MIN)
        run(5, e, "delvc", "pbvc", "vnewc", "bvc", "p_new", "ql_old", "qq_old", "p_old", "q_old", "p_half", q, RHO0,
            E_CUT, E_MIN)  # fmt: skip
        run(6, q, "delvc", "pbvc", e, "vnewc", "bvc", "p_new", "ql_old", "qq_old", RHO0, Q_CUT)
    after = Device(device).counters
    expected_e, expected_q = IN_NUMPY["energy"](inputs)
    close(e_new, expected_e)
    close(q_new, expected_q)
    assert np.count_nonzero(expected_e == 0) > 50 and np.count_nonzero(expected_q == 0) > 50
    assert recording.summary.calls == 6
    assert sorted(event.nbytes for event in recording.events if event.kind == "up") == [8 * N] * len(NAMES)
    assert sorted(event.nbytes for event in recording.events if event.kind == "down") == [8 * N] * 2
    assert after.copies_up - before.copies_up == len(NAMES) and after.copies_down - before.copies_down == 2


@pytest.mark.slow
def test_the_benchmark_on_the_cpu_compares_the_kernels_in_python_with_plain_loops() -> None:
    options = ("--sizes", "10", "--seconds", "0", "--parts", "2")
    table = output_of(sys.executable, BENCHMARKS / "host_raja.py", *options, folder=BENCHMARKS)
    assert len(table.splitlines()) == 2 + 16


@pytest.mark.slow
def test_the_benchmark_compares_the_kernels_in_python_and_in_cpp_with_numpy() -> None:
    options = ("--device", "host", "--size", str(N), "--rounds", "1")
    table = output_of(sys.executable, BENCHMARKS / "raja.py", *options, folder=BENCHMARKS)
    assert "| Python over C++ |" in table
    assert len([line for line in table.splitlines() if line.startswith(("| Basic_", "| Stream_", "| Apps_"))]) == 10
