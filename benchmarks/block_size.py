"""Measure the RAJA kernels with blocks of 128 to 1,024 threads, and compare the default block with the best one.

python benchmarks/block_size.py [--device cuda:0] [--sizes 20 22 24 26] [--rounds N]

Sizes are exponents of powers of two. A time is measured on the device, between two of CuPy's events on the region's
stream, after a launch that takes longer than issuing the measured launches. The default is the block that `vadd(...)`,
`launch` and `offload` choose.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from raja import READ, WRITTEN, rows
from raja_kernels import PARTS, compiled

from offload_args import Device, Scratch, offload_args, trace

GOAL = 1.03  # the default block may take this multiple of the best block's time
BLOCKS = (128, 256, 512, 1024)
TIMES = 20  # the number of launches between two events
PIECE = 1 << 18  # the number of random numbers that a vector repeats
Run = Callable[[], None]


class Clock:
    """CuPy's events on a stream."""

    def __init__(self, stream: int, blocker: Run) -> None:
        import cupy

        self._cupy, self._stream, self._blocker = cupy, cupy.cuda.ExternalStream(stream), blocker
        self._first, self._last = cupy.cuda.Event(), cupy.cuda.Event()

    def seconds(self, runs: Sequence[Run]) -> float:
        """Return the time of a run on the device."""
        self._blocker()
        self._first.record(self._stream)
        for _ in range(TIMES):
            for run in runs:
                run()
        self._last.record(self._stream)
        self._last.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(self._first, self._last)) * 1e-3 / TIMES


def default_block(kernel: Any, *arguments: Any) -> int:
    """Return the threads of a block that a call chooses."""
    with trace() as recording:
        kernel(*arguments)
    why = next(event.why for event in recording.events if event.kind == "launch")
    return int(why.split(" block ")[1].split("x")[0])


def fill(pointer: Any, values: Any) -> None:
    """Fill a pointer with repetitions of some values."""
    first = pointer[: values.size]
    first.assign(values)
    for start in range(values.size, pointer.size, values.size):
        part = pointer[start : start + values.size]
        part.copy_from(first[: part.size])


def measure(device: Device, size: int, rounds: int) -> float:
    """Print the rows of a size. Return the greatest ratio of the default block's time to the best block's time."""
    kernels = {block: compiled(device, block) for block in BLOCKS}
    random = np.random.default_rng(12)
    names = [*READ, *WRITTEN, "integers", "parts", "part", "integer_parts", "integer_part"]
    shapes: dict[str, Any] = {"parts": PARTS, "part": 1, "integer_parts": (PARTS, 3), "integer_part": 3}
    lent = [Scratch(shapes.get(name, size), np.int32 if "integer" in name else np.float64) for name in names]
    worst = 0.0
    region = offload_args(*lent, device=device)
    with region as pointers:
        d = dict(zip(names, pointers, strict=True))
        for name in READ:
            fill(d[name], random.uniform(-1, 1, min(size, PIECE)) + 2 * (name == "comp_half"))
        fill(d["integers"], random.integers(-100, 100, min(size, PIECE), np.int32))
        for name in WRITTEN:
            d[name].fill(0)
        usual = default_block(kernels[256]["copy"], d["e_new"], d["e_old"], size)
        long = partial(kernels[256]["energy5"][-(-size // 256), 256], d["third"], *(d[name] for name in READ[:11]),
                       1.5, 0.03, -2.0, size)  # fmt: skip
        blocker_times = max(1, (1 << 25) // size)

        def blocker() -> None:
            for _ in range(blocker_times):
                long()

        clock = Clock(region.stream.handle, blocker)
        runs = {
            block: {
                name: [partial(kernels[block][kernel][grid, block], *arguments) for kernel, grid, arguments in launches]
                for name, launches in rows(d, size, block).items()
            }
            for block in BLOCKS
        }
        for name in runs[256]:
            taken: dict[int, list[float]] = {block: [] for block in BLOCKS}
            for number in range(rounds + 1):
                for block in BLOCKS if number % 2 else BLOCKS[::-1]:
                    taken[block].append(clock.seconds(runs[block][name]))
            medians = {block: statistics.median(row[1:]) for block, row in taken.items()}
            ratio = medians[usual] / min(medians.values())
            worst = max(worst, ratio)
            cells = " | ".join(f"{1e6 * us:.1f}" for us in medians.values())
            verdict = "met" if ratio <= GOAL else "missed"
            print(f"| 2^{size.bit_length() - 1} | {name} | {cells} | {ratio:.3f} ({verdict}) |", flush=True)
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 22, 24, 26], help="as powers of two")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    device = Device(options.device)
    print(f"{device.model}, median of {options.rounds} rounds, µs on the device\n")
    print(f"| numbers | kernel | {' | '.join(map(str, BLOCKS))} | default over best (at most {GOAL}) |")
    print("|---|---|" + "---:|" * (len(BLOCKS) + 1))
    worst = max(measure(device, 1 << power, options.rounds) for power in options.sizes)
    print(f"\nThe default over the best block, at most: {worst:.3f}.")


if __name__ == "__main__":
    main()
