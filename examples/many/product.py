"""A product of matrices with its rows on several ranks; each rank has a part of B at first.

python product.py                                        # one rank
python product.py host host                              # two threads
mpirun -n 4 python product.py
torchrun --nproc-per-node 4 product.py
python on_dask.py product                                # two workers of Dask
"""

import sys

import numpy as np

from offload_args import Communicator, In, Out, Scratch, blas, offload_args


def multiply(communicator: Communicator, n: int = 240) -> np.ndarray:
    """Return this rank's rows of A B; each rank has some rows of A and of B."""
    rank, rows = communicator.rank, n // communicator.size
    mine = slice(rank * rows, (rank + 1) * rows)
    A, B = matrices(n)
    C = np.empty((rows, n))
    with offload_args(In(A[mine]), In(B[mine]), Scratch((n, n)), Out(C), device=communicator.device) as (
        dA,
        dB,
        dall,
        dC,
    ):
        communicator.all_gather(dB, dall)
        blas.gemm(1.0, dA, dall, 0.0, dC)
    return C


def matrices(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the two factors."""
    rng = np.random.default_rng(7)
    return rng.standard_normal((n, n)), rng.standard_normal((n, n))


def check(communicator: Communicator) -> str:
    """Compare this rank's rows with NumPy's."""
    C = multiply(communicator)
    rows = len(C)
    A, B = matrices(C.shape[1])
    expected = A[communicator.rank * rows : (communicator.rank + 1) * rows] @ B
    np.testing.assert_allclose(C, expected, atol=1e-11)
    return f"largest difference {abs(C - expected).max():.1e}"


if __name__ == "__main__":
    print(*Communicator.run(check, devices=sys.argv[1:] or ["host"], timeout=120), sep="\n")
