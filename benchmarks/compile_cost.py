"""Measure the compilation of a kernel in Python for each kind of target, without numba's import.

    python benchmarks/compile_cost.py

It needs no GPU, and measures nothing without numba. The times are CPU times of this process; only the first compilation
for a target counts. See README.md in this folder.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from time import process_time

import numpy as np

os.environ["OFFLOAD_ARGS_CACHE"] = "off"

from offload_args import In, InOut, kernel
from offload_args.kernels import Linear1D
from offload_args.kernels.compilers import Target

GOAL = 0.5  # the most seconds


@kernel
def axpy(a: np.float32, x: In[np.float32], y: InOut[np.float32].by(Linear1D())):
    for i in y.mine():
        y[i] += a * x[i]


def main() -> None:
    if find_spec("numba") is None:
        print("compile_cost.py needs numba, which is not installed")
        return
    from offload_args.kernels.python import emit

    emit._contexts()  # loads numba and all that it registers
    for target in (Target("host", ""), Target("cuda", "sm_90"), Target("hip", "gfx90a"), Target("hip", "gfx1100")):
        begun = process_time()
        emit.compile_kernel(axpy._written, target, False, "axpy")
        taken = process_time() - begun
        print(f"{' '.join(target).strip()}: {taken:.2f} s (at most {GOAL}: {'met' if taken <= GOAL else 'missed'})")


if __name__ == "__main__":
    main()
