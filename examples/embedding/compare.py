"""Compute the largest eigenvalue of a matrix by the extension `power` of one of these folders, and by NumPy.

python compare.py FOLDER [--device host] [--size 200] [--steps 50]

The extension gets the pointers of one region, and does the rest.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from offload_args import In, InOut, Scratch, offload_args


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="where the extension `power` was built")
    parser.add_argument("--device")
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    sys.path.insert(0, options.folder)
    import power

    n = options.size
    i, j = np.indices((n, n))
    A = 1 / (1.0 + abs(i - j))
    x = np.ones(n)
    with offload_args(In(A), InOut(x), Scratch(n, A.dtype), device=options.device) as (dA, dx, dy):
        found = power.iterate(n, dA, dx, dy, options.steps)
    y = np.ones(n)
    for _ in range(options.steps):
        y = A @ y
        expected = float(np.linalg.norm(y))
        y /= expected
    print(f"{found:.12f}")
    print(f"NumPy: {expected:.12f}")
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(x, y, rtol=1e-9)
    return 0


if __name__ == "__main__":
    sys.exit(main())
