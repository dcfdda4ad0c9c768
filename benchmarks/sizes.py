"""Measure four works from and to NumPy against n, for the landing page: python benchmarks/sizes.py --out DIR.

It takes less than a minute on a GPU. `python scripts/draw_comparison.py DIR/sizes.md --out docs/comparison.svg` draws
the table of this benchmark. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from compare import Comparison
from comparison_rows import OURS, Array, Loop, Row, calls, contenders, measure
from comparison_tables import header, table

from offload_args import Device, In, Scratch, lapack, offload_args

SIZES = {
    "sgemv with transfers, n = {}": (2, 64, 512, 2048, 8192),
    "sgemm with transfers, n = {}": (64, 256, 1024, 4096),
    "solve with transfers, n = {}": (64, 256, 1024, 4096),
    "100 power-iteration steps, n = {}, one region": (64, 512, 2048, 8192),
}
SECONDS = 0.1  # for each contender


class Sizes(Comparison):
    def run(self) -> None:
        self.seconds = SECONDS
        works = (self.sgemv, self.sgemm, self.solve, self.power)
        for (name, sizes), work in zip(SIZES.items(), works, strict=True):
            for n in sizes[:2] if self.quick else sizes:
                self.attempt(name.format(n), work, n)
        for row in self.rows:  # the goals and their notes belong to compare.py
            row.goals, row.note = [], ""

    def solve(self, row: Row, n: int) -> None:
        """Solve A x = b for one b; A does not change."""
        A, b = self.filled(n, n) + np.float32(n) * np.eye(n, dtype=np.float32), self.filled(n)
        loops, add = contenders(row, n)

        def ours(x: Array) -> Loop:
            copy, pivots = Scratch(A.shape, A.dtype), Scratch(b.shape, np.int32)

            def once() -> None:
                x[:] = b
                with offload_args(In(A), copy, pivots, x, device=self.device) as (dA, dcopy, dp, dx):
                    dcopy.copy_from(dA)
                    lapack.gesv(dcopy, dp, dx)

            return calls(once)

        add(OURS, ours)
        if plain := self.plain:
            add("plain C", lambda x: lambda count: plain("solve", A, b, x, ctypes.c_long(n), ctypes.c_int(count)))
        if cupy := self.modules.get("CuPy"):
            add("CuPy", lambda x: calls(lambda: cupy.linalg.solve(cupy.asarray(A), cupy.asarray(b)).get(out=x)))
        if torch := self.modules.get("PyTorch"):
            cpu = torch.from_numpy

            def by_torch(x: Array) -> Loop:
                return calls(lambda: cpu(x).copy_(torch.linalg.solve(cpu(A).to("cuda"), cpu(b).to("cuda"))))

            add("PyTorch", by_torch)
        add("NumPy", lambda x: calls(lambda: np.copyto(x, np.linalg.solve(A, b))))
        measure(row, self.checked(row, loops, np.linalg.solve(A, b)), self.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=str(Device.default()))
    parser.add_argument("--out", type=Path, metavar="DIR", required=True, help="write sizes.md there")
    parser.add_argument("--quick", action="store_true", help="two sizes of each work, to see that it works")
    options = parser.parse_args()
    command = " ".join(["python benchmarks/sizes.py", *sys.argv[1:]])
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        sizes = Sizes(Device(options.device), options.quick, Path(folder), beside="CuPy|PyTorch")
        top = header(sizes, command)
        sizes.run()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "sizes.md").write_text(top + table(sizes))
    print(f"({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
