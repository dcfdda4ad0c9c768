"""Compute the largest eigenvalue of a matrix by the extension `power` of one of these folders, and by NumPy.

python compare.py FOLDER [--device host] [--size 200] [--steps 50]

The extension gets the pointers of one region, and does all the work.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from offload_args import In, InOut, Scratch, offload_args


def check(power: Any, A: np.ndarray, options: argparse.Namespace) -> float:
    """Compare the extension with NumPy, for the matrix and for its transpose, which has the same eigenvalue."""
    n = len(A)
    x, z, y = np.ones(n), np.ones(n), np.ones(n)
    with offload_args(In(A), InOut(x), InOut(z), Scratch(n, A.dtype), device=options.device) as (dA, dx, dz, dy):
        actual = float(power.iterate(dA, dx, dy, options.steps))
        power.iterate(dA.T, dz, dy, options.steps)
    for matrix, vector in ((A.T, z), (A, x)):
        y = np.ones(n)
        for _ in range(options.steps):
            y = matrix @ y
            expected = float(np.linalg.norm(y))
            y /= expected
        np.testing.assert_allclose(vector, y, rtol=1e-9)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    return actual


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
    actual = check(power, A, options)
    print(f"{actual:.12f}")
    check(power, A * (1 + j / n), options)
    check(power, np.asfortranarray(A * (1 + j / n)), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
