"""Compare the RAJA kernels in C++ and in Python with the same kernels in plain CUDA C; see README.md in this folder.

python benchmarks/raja.py [--device cuda:0] [--size N] [--rounds N]

All results are compared with NumPy's. On a device that is not a GPU, the kernels in Python are compared with the
kernels in C++.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from raja_kernels import BLOCK, PARTS, SIGNATURES, compiled
from raja_numpy import E_CUT, E_MIN, EOSVMAX, LOOPS, P_CUT, P_MIN, Q_CUT, REDUCTIONS, RHO0

from offload_args import Device, DevicePtr, In, InOut, Scratch, offload_args

PLAIN, OWN, PYTHON = "CUDA C", "C++", "Python"  # the ways to write a kernel
GOALS = {OWN: 1.02, PYTHON: 1.03}  # the most, as multiples of the time of plain CUDA C
READ = "e_old delvc p_new p_old q_old work comp_half p_half bvc pbvc ql_old qq_old vnewc".split()
SAMPLE = 100_000  # the numbers at each end that are compared
WRITTEN = "e_new q_new third".split()
Launch = tuple[str, int, tuple[Any, ...]]  # the kernel, the number of its blocks, its arguments
Runs = Sequence[Any]  # functions without arguments, each of which makes a launch


class Plain:
    """The kernels in plain CUDA C, which are built when needed, and the GPU's clock."""

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

    def seconds(self, runs: Runs, times: int, stream: int) -> float:
        """Return the time on the device of launches that are repeated."""
        on = ctypes.c_void_p(stream)
        code = self.library.plain_note(0, on)
        for _ in range(times):
            for run in runs:
                run()
        if code or self.library.plain_note(1, on) or (took := float(self.library.plain_seconds())) < 0:
            raise RuntimeError("the GPU's clock failed")
        return took / times


class HostClock:
    """The clock of a device that is not a GPU."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def seconds(self, runs: Runs, times: int, stream: int) -> float:
        """Return the time of launches that are repeated, and of the wait for them."""
        start = time.perf_counter()
        for _ in range(times):
            for run in runs:
                run()
        self.device.synchronize()
        return (time.perf_counter() - start) / times


def rows(d: dict[str, Any], size: int, block: int = BLOCK) -> dict[str, list[Launch]]:
    """Return the launches of each of the suite's kernels, on vectors of this size."""

    def loop(name: str, *arguments: Any) -> Launch:
        return (
            name,
            -(-size // block),
            (*(d[argument] if isinstance(argument, str) else argument for argument in arguments), size),
        )

    def energy(number: int, text: str, *numbers: float) -> Launch:
        return loop(f"energy{number}", *text.split(), *numbers)

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
            loop("pressure2", "e_new", "q_new", "e_old", "vnewc", P_CUT, P_MIN, EOSVMAX),
        ],
        "Apps_ENERGY": [
            energy(1, "e_new e_old delvc p_old q_old work"),
            energy(2, "q_new delvc comp_half pbvc e_new bvc p_half ql_old qq_old", RHO0),
            energy(3, "e_new delvc p_old q_old p_half q_new"),
            energy(4, "e_new work", E_CUT, E_MIN),
            energy(5, "e_new delvc pbvc vnewc bvc p_new ql_old qq_old p_old q_old p_half q_new", RHO0, E_CUT, E_MIN),
            energy(6, "q_new delvc pbvc e_new vnewc bvc p_new ql_old qq_old", RHO0, Q_CUT),
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


def check(name: str, d: dict[str, Any], arrays: Mapping[str, Any], ways: Mapping[str, Runs]) -> None:
    """Compare the results of each way with NumPy's; for vectors, only the beginnings and the ends."""
    outputs = (*WRITTEN, "part", "integer_part")
    for way, runs in ways.items():
        for output in outputs:
            d[output].fill(1)
        for run in runs:
            run()
        size = len(arrays["e_old"])
        for part in (slice(None, SAMPLE), slice(-SAMPLE, None)):
            if name in REDUCTIONS:
                expected, tolerance = REDUCTIONS[name](arrays), 1e-15 * size
            else:
                expected = LOOPS[name]({array_name: array[part] for array_name, array in arrays.items()})
                tolerance = 1e-12
            for output in outputs:
                np.testing.assert_allclose(
                    d[output][part].to_host(), expected.get(output, 1), rtol=1e-12, atol=tolerance,
                    err_msg=f"{name} in {way}: {output}",
                )  # fmt: skip


def measured(name: str, launches: Sequence[Launch], ways: Mapping[str, Runs], clock: Plain | HostClock, stream: int,
             rounds: int) -> str:  # fmt: skip
    """Return the table's row of one of the suite's kernels."""
    base = next(reversed(ways))  # the other ways are compared with the last one
    times = max(3, round(4e-3 / clock.seconds(ways[base], 3, stream)))
    taken: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way in list(ways)[:: 1 if number % 2 else -1]:
            taken[way].append(clock.seconds(ways[way], times, stream))
    seconds = {way: np.array(of_way[1:]) for way, of_way in taken.items()}
    cells = [f"{np.median(of_way) * 1e6:.1f}" for of_way in seconds.values()]
    for way in list(ways)[:-1]:
        ratio = float(np.median(seconds[way] / seconds[base]))
        verdict = "" if base != PLAIN else " (met)" if ratio <= GOALS[way] else " (missed)"
        cells.append(f"{ratio:.3f}{verdict}")
    rate = nbytes(launches) / np.median(seconds[next(iter(ways))]) * 1e-9
    return f"| {name} | {' | '.join(cells)} | {rate:.0f} |"


def heading(ways: Sequence[str]) -> str:
    """Return the head of the table."""
    base = ways[-1]
    cells = ["kernel", *(f"{way}, µs" for way in ways)]
    for way in ways[:-1]:
        cells.append(f"{way} over {base}" + (f" (at most {GOALS[way]})" if base == PLAIN else ""))
    cells.append(f"{ways[0]}, GB/s")
    return f"| {' | '.join(cells)} |\n|---{'|---:' * (len(cells) - 1)}|"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--size", type=int, default=1 << 24, help="numbers of a vector (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    device, size = Device(options.device), options.size
    kernels = {OWN: compiled(device)}
    if find_spec("numba") is not None:
        from raja_python import KERNELS

        kernels = {PYTHON: KERNELS, **kernels}
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
    is_gpu = device.backend not in ("host", "sim")
    print(f"{device.model}, vectors of {size} numbers, median of {options.rounds} rounds\n")
    print(heading([*kernels, *[PLAIN] * is_gpu]))
    with contextlib.ExitStack() as stack:
        clock = Plain(stack.enter_context(tempfile.TemporaryDirectory())) if is_gpu else HostClock(device)
        region = offload_args(*map(In, arrays.values()), *others.values(), device=device)
        d = dict(zip([*arrays, *others], stack.enter_context(region), strict=True))
        stream = region.stream.handle if is_gpu else 0
        for name, launches in rows(d, size).items():
            ways: dict[str, Runs] = {
                way: [
                    partial(of_way[kernel][grid, BLOCK], *(arguments if way == OWN else arguments[:-1]))
                    for kernel, grid, arguments in launches
                ]
                for way, of_way in kernels.items()
            }
            if isinstance(clock, Plain):
                ways[PLAIN] = [clock.launcher(launch, stream) for launch in launches]
            check(name, d, arrays, ways)
            print(measured(name, launches, ways, clock, stream, options.rounds), flush=True)


if __name__ == "__main__":
    main()
