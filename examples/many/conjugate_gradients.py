"""Conjugate gradients with the rows of the matrix on several ranks.

python conjugate_gradients.py                            # one rank
python conjugate_gradients.py host host                  # two threads
mpirun -n 4 python conjugate_gradients.py
torchrun --nproc-per-node 4 conjugate_gradients.py
python on_dask.py conjugate_gradients                    # two workers of Dask
"""

import sys

import numpy as np

from offload_args import Communicator, In, Scratch, blas, offload_args


def solve(communicator: Communicator, n: int = 240) -> np.ndarray:
    """Return the solution of A x = b; each rank has some rows of A, and the same parts of the vectors."""
    rank, rows = communicator.rank, n // communicator.size
    mine = slice(rank * rows, (rank + 1) * rows)
    A, b = system(n)
    x = np.zeros(n)
    arrays = In(A[mine]), x, b[mine].copy(), Scratch((n,)), Scratch((rows,)), Scratch((1,))
    with offload_args(*arrays, device=communicator.device) as (dA, dx, dr, dp, dw, dsum):

        def dot(a, b) -> float:
            """Return the product of two vectors, of which each rank has a part."""
            blas.dot(a, b, result=dsum.reshape(()))
            communicator.all_reduce(dsum)
            return float(dsum.to_host()[0])

        blas.copy(dr, dp[mine])
        rr = bb = dot(dr, dr)
        while rr > 1e-24 * bb:
            communicator.all_gather(dp[mine], dp)
            blas.gemv(1.0, dA, dp, 0.0, dw)
            alpha = rr / dot(dp[mine], dw)
            blas.axpy(alpha, dp[mine], dx[mine])
            blas.axpy(-alpha, dw, dr)
            rr, old = dot(dr, dr), rr
            blas.scal(rr / old, dp[mine])
            blas.axpy(1.0, dr, dp[mine])
        communicator.all_gather(dx[mine], dx)
    return x


def system(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a positive definite matrix and a right side."""
    rng = np.random.default_rng(6)
    B = rng.standard_normal((n, n))
    return B @ B.T / n + np.eye(n), rng.standard_normal(n)


def check(communicator: Communicator) -> str:
    """Compare the solution with NumPy's."""
    x = solve(communicator)
    A, b = system(len(x))
    np.testing.assert_allclose(x, np.linalg.solve(A, b), rtol=0, atol=1e-10)
    return f"residual {np.linalg.norm(A @ x - b):.1e}"


if __name__ == "__main__":
    print(*Communicator.run(check, devices=sys.argv[1:] or ["host"], timeout=120), sep="\n")
