"""Power iteration with the rows of the matrix on several ranks.

python power_iteration.py                                # one rank
python power_iteration.py host host                      # two threads
mpirun -n 4 python power_iteration.py
torchrun --nproc-per-node 4 power_iteration.py
python on_dask.py power_iteration                        # two workers of Dask
"""

import sys

import numpy as np

from offload_args import Communicator, In, Scratch, blas, offload_args


def largest_eigenvalue(communicator: Communicator, n: int = 240, steps: int = 300) -> float:
    """Return the largest eigenvalue of a symmetric matrix, of which each rank makes and keeps its rows."""
    rank, rows = communicator.rank, n // communicator.size
    mine = slice(rank * rows, (rank + 1) * rows)
    A = matrix(n)[mine]
    x = np.ones(n)
    with offload_args(In(A), x, Scratch((n,)), device=communicator.device) as (dA, dx, dy):
        for _ in range(steps):
            blas.scal(1.0 / blas.nrm2(dx), dx)
            blas.gemv(1.0, dA, dx, 0.0, dy[mine])
            communicator.all_gather(dy[mine], dy)
            blas.copy(dy, dx)
        return float(blas.nrm2(dx))


def matrix(n: int) -> np.ndarray:
    """Return a symmetric matrix whose largest eigenvalue is far from the others."""
    B = np.random.default_rng(5).standard_normal((n, n))
    return B @ B.T / n + np.full((n, n), 0.1)


def check(communicator: Communicator) -> str:
    """Compare the eigenvalue with NumPy's."""
    value = largest_eigenvalue(communicator)
    np.testing.assert_allclose(value, np.linalg.eigvalsh(matrix(240))[-1], rtol=1e-10)
    return f"largest eigenvalue {value:.6f}"


if __name__ == "__main__":
    print(*Communicator.run(check, devices=sys.argv[1:] or ["host"], timeout=120), sep="\n")
