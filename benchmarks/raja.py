"""Measure the RAJA kernels on a GPU beside the same kernels in plain CUDA C, as README.md beside it says.

python benchmarks/raja.py [--device cuda:0] [--size N] [--rounds N]
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from raja_kernels import BLOCK, PARTS, SIGNATURES, compiled

from offload_args import Device, DevicePtr, In, InOut, Scratch, offload_args

GOAL = 1.02  # of the time of plain CUDA C
READ = "e_old delvc p_new p_old q_old work comp_half p_half bvc pbvc ql_old qq_old vnewc".split()
SAMPLE = 100_000  # numbers of either end that are compared
WRITTEN = "e_new q_new third".split()
Launch = tuple[str, int, tuple[Any, ...]]  # the kernel, its blocks, its arguments


class Plain:
    """The kernels in plain CUDA C, built on the spot, and the GPU's clock."""

    def __init__(self, folder: str) -> None:
        nvcc = shutil.which("nvcc")
        if nvcc is None:
            raise SystemExit("raja.py: nvcc is not here; it comes with the CUDA toolkit")
        source, library = Path(__file__).with_suffix(".cu"), str(Path(folder, "libraja.so"))
        options = ["-O3", "-arch=native", "-shared", "-Xcompiler", "-fPIC"]
        subprocess.run([nvcc, *options, str(source), "-o", library], check=True)
        self.library = ctypes.CDLL(library)
        self.library.plain_seconds.restype = ctypes.c_double

    def launcher(self, launch: Launch, stream: int) -> Any:
        """Return a function without arguments that makes the launch."""
        name, grid, arguments = launch
        values: list[Any] = []
        for argument, declared in zip(arguments, SIGNATURES[name], strict=True):
            if isinstance(argument, DevicePtr):
                values.append(ctypes.c_void_p(argument.address))
            else:
                values.append((ctypes.c_int if declared is np.int32 else ctypes.c_double)(argument))
        places = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        function, text, on = self.library.plain_launch, name.encode(), ctypes.c_void_p(stream)

        def run(keep: Any = values) -> None:
            if code := function(text, grid, BLOCK, places, on):
                raise RuntimeError(f"plain_launch of {name} returned {code}")

        return run

    def seconds(self, runs: Sequence[Any], times: int, stream: int) -> float:
        """Return the time on the device of launches that are repeated."""
        on = ctypes.c_void_p(stream)
        code = self.library.plain_note(0, on)
        for _ in range(times):
            for run in runs:
                run()
        if code or self.library.plain_note(1, on) or (took := float(self.library.plain_seconds())) < 0:
            raise RuntimeError("the GPU's clock failed")
        return took / times


def rows(d: dict[str, Any], size: int, block: int = BLOCK) -> dict[str, list[Launch]]:
    """Return the launches of each of the suite's kernels, on vectors of that size."""

    def loop(name: str, *arguments: Any) -> Launch:
        return (
            name,
            -(-size // block),
            (*(d[argument] if isinstance(argument, str) else argument for argument in arguments), size),
        )

    def energy(number: int, text: str, *numbers: float) -> Launch:
        return loop(f"energy{number}", *text.split(), *numbers)

    rho0, e_cut, e_min, q_cut = 1.5, 0.03, -2.0, 0.2
    return {
        "Basic_DAXPY": [loop("daxpy", "e_new", "e_old", 1e-6)],
        "Basic_MULADDSUB": [loop("muladdsub", "e_new", "q_new", "third", "e_old", "work")],
        "Basic_REDUCE3_INT": [
            ("reduce3", PARTS, (d["integer_parts"], d["integers"], size)),
            ("total3", 1, (d["integer_part"], d["integer_parts"], PARTS)),
        ],
        "Stream_COPY": [loop("copy", "e_new", "e_old")],
        "Stream_MUL": [loop("mul", "e_new", "e_old", 0.3)],
        "Stream_ADD": [loop("add", "e_new", "e_old", "work")],
        "Stream_TRIAD": [loop("triad", "e_new", "e_old", "work", 0.3)],
        "Stream_DOT": [
            ("dot", PARTS, (d["parts"], d["e_old"], d["work"], size)),
            ("total", 1, (d["part"], d["parts"], PARTS)),
        ],
        "Apps_PRESSURE": [
            loop("pressure1", "q_new", "delvc", 2 / 3),
            loop("pressure2", "e_new", "q_new", "e_old", "vnewc", 0.05, -0.3, 0.9),
        ],
        "Apps_ENERGY": [
            energy(1, "e_new e_old delvc p_old q_old work"),
            energy(2, "q_new delvc comp_half pbvc e_new bvc p_half ql_old qq_old", rho0),
            energy(3, "e_new delvc p_old q_old p_half q_new"),
            energy(4, "e_new work", e_cut, e_min),
            energy(5, "e_new delvc pbvc vnewc bvc p_new ql_old qq_old p_old q_old p_half q_new", rho0, e_cut, e_min),
            energy(6, "q_new delvc pbvc e_new vnewc bvc p_new ql_old qq_old", rho0, q_cut),
        ],
    }


def nbytes(launches: Sequence[Launch]) -> int:
    """Return the bytes that launches have to read and write."""
    return sum(
        argument.nbytes * (2 if declared.direction is InOut else 1)
        for name, _, arguments in launches
        for argument, declared in zip(arguments, SIGNATURES[name], strict=True)
        if isinstance(argument, DevicePtr)
    )


def check_same(name: str, d: dict[str, Any], ours: Sequence[Any], plain: Sequence[Any]) -> None:
    """Compare the beginnings and ends of all that both write, from the same values."""
    outputs = [d[name] for name in (*WRITTEN, "part", "integer_part")]
    results = []
    for runs in (ours, plain):
        for output in outputs:
            output.fill(1)
        for run in runs:
            run()
        results.append([part.to_host() for output in outputs for part in (output[:SAMPLE], output[-SAMPLE:])])
    for actual, expected in zip(*results, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-12, err_msg=name)


def measured(name: str, d: dict[str, Any], launches: Sequence[Launch], ours: Sequence[Any], plain: Sequence[Any],
             clock: Plain, stream: int, rounds: int) -> str:  # fmt: skip
    """Return the table's row of one of the suite's kernels."""
    check_same(name, d, ours, plain)
    times = max(3, round(4e-3 / clock.seconds(plain, 3, stream)))
    taken = []
    for number in range(rounds + 1):
        pair = (ours, plain) if number % 2 else (plain, ours)
        both = [clock.seconds(runs, times, stream) for runs in pair]
        taken.append(both if number % 2 else both[::-1])
    first, second = np.median(taken[1:], axis=0)
    ratio = statistics.median(time / other for time, other in taken[1:])
    verdict = "met" if ratio <= GOAL else "missed"
    rate = nbytes(launches) / first * 1e-9
    return f"| {name} | {first * 1e6:.1f} | {second * 1e6:.1f} | {ratio:.3f} ({verdict}) | {rate:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--size", type=int, default=1 << 24, help="numbers of a vector (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    device, size = Device(options.device), options.size
    kernels = compiled(device)
    random = np.random.default_rng(12)
    arrays = {name: random.uniform(-1, 1, size) for name in READ}
    arrays["comp_half"] += 2
    arrays["integers"] = random.integers(-100, 100, size, np.int32)
    others = {
        **{name: Scratch(size, np.float64) for name in WRITTEN},
        "parts": Scratch(PARTS, np.float64),
        "part": Scratch(1, np.float64),
        "integer_parts": Scratch((PARTS, 3), np.int32),
        "integer_part": Scratch(3, np.int32),
    }
    print(f"{device.model}, vectors of {size} numbers, median of {options.rounds} rounds\n")
    print("| kernel | µs | plain CUDA C, µs | ratio (at most 1.02) | GB/s |\n|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        clock = Plain(folder)
        region = offload_args(*map(In, arrays.values()), *others.values(), device=device)
        with region as pointers:
            d = dict(zip([*arrays, *others], pointers, strict=True))
            stream = region.stream.handle
            for name, launches in rows(d, size).items():
                ours = [partial(kernels[kernel][grid, BLOCK], *arguments) for kernel, grid, arguments in launches]
                plain = [clock.launcher(launch, stream) for launch in launches]
                print(measured(name, d, launches, ours, plain, clock, stream, options.rounds), flush=True)


if __name__ == "__main__":
    main()
