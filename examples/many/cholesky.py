"""Cholesky's factorization with the rows of the matrix on several ranks, a block row each.

    python cholesky.py                                       # one rank
    python cholesky.py host host                             # two threads
    mpirun -n 4 python cholesky.py
    torchrun --nproc-per-node 4 cholesky.py
    python on_dask.py cholesky                               # two workers of Dask

The owner of each block factorizes the block. All ranks then solve for their parts of the block's column, and gather the
column to update their rows. For many ranks, a program would distribute the rows in turns, so that all ranks stay busy
to the end.
"""

import sys

import numpy as np

from offload_args import Communicator, Scratch, blas, lapack, offload_args


def factorize(communicator: Communicator, n: int = 240) -> np.ndarray:
    """Return this rank's rows of L, with A = L L^T."""
    rank, size = communicator.rank, communicator.size
    rows = n // size
    L = matrix(n)[rank * rows : (rank + 1) * rows].copy()
    arrays = L, Scratch((rows, rows)), Scratch((rows, rows)), Scratch((n, rows))
    with offload_args(*arrays, device=communicator.device) as (dL, diagonal, panel, column):
        for step in range(size):
            block = dL[:, step * rows : (step + 1) * rows]
            if rank == step:
                diagonal.copy_from(block)
                lapack.potrf(diagonal, uplo="L")
                block.copy_from(diagonal)
            communicator.broadcast(diagonal, root=step)
            panel.copy_from(block)
            if rank > step:
                blas.trsm(1.0, diagonal, panel, side="R", uplo="L", trans="T")
                block.copy_from(panel)
            communicator.all_gather(panel, column)
            for later in range(step + 1, size):
                if rank >= later:
                    other = column[later * rows : (later + 1) * rows]
                    blas.gemm(-1.0, panel, other.T, 1.0, dL[:, later * rows : (later + 1) * rows])
    return np.tril(L, rank * rows)


def matrix(n: int) -> np.ndarray:
    """Return a positive definite matrix."""
    B = np.random.default_rng(8).standard_normal((n, n))
    return B @ B.T / n + np.eye(n)


def check(communicator: Communicator) -> str:
    """Compare this rank's rows with NumPy's."""
    L = factorize(communicator)
    rows, n = L.shape
    expected = np.linalg.cholesky(matrix(n))[communicator.rank * rows : (communicator.rank + 1) * rows]
    np.testing.assert_allclose(L, expected, atol=1e-11)
    return f"largest difference {abs(L - expected).max():.1e}"


if __name__ == "__main__":
    print(*Communicator.run(check, devices=sys.argv[1:] or ["host"], timeout=120), sep="\n")
