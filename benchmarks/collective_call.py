"""Compare a call of nccl.all_reduce with the bare function of the library, for one rank and one element.

    python benchmarks/collective_call.py [--device cuda:0]

Without a GPU, a double of NCCL on sim:0 shows the cost of the call itself: the library's own work is in both times. See
method.md in this folder.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from offload_args import Device, libraries, nccl, offload_args, testing

LIMIT = 1.5  # us above the bare function
DOUBLE = Path(__file__).parents[1] / "tests" / "doubles" / "collectives.c"
FLOAT32 = 7


def shortest(functions: dict[str, Callable[[], Any]], before: Callable[[], Any], turns: int) -> dict[str, float]:
    """Return the shortest times of the functions in us; rounds of all functions alternate."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(300):
        for name, function in functions.items():
            before()
            begun = time.perf_counter()
            for _ in range(turns):
                function()
            best[name] = min(best[name], (time.perf_counter() - begun) / turns * 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="sim:0")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.device.startswith("sim"):
            double = Path(folder) / "libnccl.so"
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-pthread", "-o", double, DOUBLE], check=True)
            testing.library("nccl", str(double), backend="sim")
        measure(options.device)


def measure(device: str) -> None:
    ffi = cffi.FFI()
    ffi.cdef(
        "int ncclAllReduce(uintptr_t, uintptr_t, size_t, int, int, uintptr_t, uintptr_t); void double_clear(void);"
    )
    library = ffi.dlopen(libraries.load("nccl").path)
    region = offload_args(np.ones(1, np.float32), device=device)
    with nccl.comm_init_all([device])[0] as comm, region as (dx,):
        stream = region.stream.__cuda_stream__()[1] if Device(device).is_gpu else 1  # the double takes any
        bare = (dx.address, dx.address, 1, FLOAT32, int(nccl.Sum), comm.address, stream)
        best = shortest(
            {
                "bare": lambda: library.ncclAllReduce(*bare),
                "nccl.all_reduce": lambda: nccl.all_reduce(dx, dx, 1, None, nccl.Sum, comm),
            },
            Device(device).synchronize if Device(device).is_gpu else library.double_clear,
            20,
        )
    above = best["nccl.all_reduce"] - best["bare"]
    print(
        f"bare {best['bare']:.2f} us, nccl.all_reduce {best['nccl.all_reduce']:.2f} us: {above:+.2f}, at most {LIMIT}"
    )


if __name__ == "__main__":
    main()
