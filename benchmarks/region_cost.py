"""Measure regions without a GPU: python benchmarks/region_cost.py [--rounds N].

no_driver.c is compiled and replaces the driver; its calls take nanoseconds. The figures are the package's own share:
the µs of the fastest run, and the driver's calls of a region, each of which takes a real driver 0.1 to 5 µs. The last
rows are the time that residency adds to a region nested in a region that lends the same arrays.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SOURCE = Path(__file__).with_name("no_driver.c")
FOLDER = "OFFLOAD_ARGS_NO_DRIVER"  # the variable for its folder; the first of the two processes sets it
CALLS = 17
CONTEXTS = ("cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent")  # these calls surround each of the other calls
COUNT = 50  # the regions of a run; few, so that most runs are not interrupted


def best(function: Callable[[], object], rounds: int) -> float:
    """Return the µs of one call in the fastest run."""
    for _ in range(COUNT):
        function()
    fastest = float("inf")
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(COUNT):
            function()
        fastest = min(fastest, time.perf_counter() - start)
    gc.enable()
    return fastest * 1e6 / COUNT


def calls_of(library: ctypes.CDLL, function: Callable[[], object]) -> str:
    """Count the driver's calls during one call, by name."""
    numbers = (ctypes.c_long * CALLS).in_dll(library, "no_driver_calls")
    names = (ctypes.c_char_p * CALLS).in_dll(library, "no_driver_names")
    before = list(numbers)
    for _ in range(COUNT):
        function()
    built = [(now - then) / COUNT for now, then in zip(numbers, before, strict=True)]
    named = {str(name, "ascii"): each for name, each in zip(names, built, strict=True) if each}
    return ", ".join(
        f"{each:g} {name}" for name, each in named.items() if not name.startswith("cuCtx") or "Sync" in name
    )


def measure(rounds: int) -> None:
    from offload_args import Device, In, Out, Scratch, call, offload_args, testing

    library = ctypes.CDLL(os.path.join(os.environ[FOLDER], "libcuda.so.1"))
    device = Device("cuda:0")
    a, b, c = (np.ones(256, np.float32) for _ in range(3))

    def lend(*arrays: Any) -> Callable[[], None]:
        def once() -> None:
            with offload_args(*arrays, device=device) as lent:
                for pointer in lent:
                    pointer.address  # noqa: B018

        return once

    def idle(*arrays: Any) -> Callable[[], None]:
        def once() -> None:
            with offload_args(*arrays, device=device):
                pass

        return once

    def address(pointer: Any) -> None:
        pointer.address  # noqa: B018

    rows = {
        "a region of one array, not used": idle(a),
        "of three": idle(a, b, c),
        "In(x), its address": lend(In(a)),
        "Out(x), its address": lend(Out(a)),
        "x, its address": lend(a),
        "call with In(x), its address": lambda: call(address, In(a), device=device),
        "call with Out(x), its address": lambda: call(address, Out(a), device=device),
    }
    print("| 1 KiB each | µs | calls of the driver |\n|---|---:|---|")
    for name, function in rows.items():
        print(f"| {name} | {best(function, rounds):.2f} | {calls_of(library, function)} |", flush=True)

    def reads(arrays: list[Any], resident: bool) -> Callable[[], None]:
        def once() -> None:
            with offload_args(*map(In, arrays), Scratch(4, np.float32), device=device, resident=resident) as (*lent, d):
                for pointer in lent:
                    d.copy_from(pointer[:4])

        return once

    def added(mode: Any, arrays: list[Any]) -> float:
        """Return the µs that the mode adds to a nested region, in the fastest of alternating runs."""
        staying = nested = float("inf")
        for _ in range(rounds // 20):
            with testing.residency(mode):
                staying = min(staying, best(reads(arrays, mode == "explicit"), 5))
            with offload_args(*map(In, arrays), device=device):
                nested = min(nested, best(reads(arrays, False), 5))
        return staying - nested

    for count, nbytes in ((1, 1 << 20), (4, 1 << 20), (1, 1 << 26)):
        arrays = [np.ones(nbytes // 4, np.float32) for _ in range(count)]
        print(f"| resident=True adds, {count} of {nbytes >> 20} MiB | {added('explicit', arrays):.2f} | |", flush=True)
        print(f"| auto adds, {count} of {nbytes >> 20} MiB | {added('auto', arrays):.2f} | |", flush=True)
    print(f"\nPages watched: {device.residency.tracking}.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args().rounds
    if FOLDER in os.environ:
        measure(rounds)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        built = os.path.join(folder, "libcuda.so.1")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(SOURCE), "-o", built], check=True)
        path = os.pathsep.join(filter(None, (folder, os.environ.get("LD_LIBRARY_PATH"))))
        changed = os.environ | {FOLDER: folder, "LD_LIBRARY_PATH": path}
        return subprocess.run([sys.executable, *sys.argv], env=changed).returncode


if __name__ == "__main__":
    sys.exit(main())
