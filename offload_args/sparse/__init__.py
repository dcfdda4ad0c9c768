"""Sparse matrices: SciPy's arrays on a device, their products, and solutions of their systems.

    with sparse.lend(A) as dA, offload_args(x, Out(y)) as (dx, dy):
        sparse.matmul(dA, dx, out=dy)                        # no array of A comes down
        dB = dA.T @ dA                                       # a sparse matrix on the device

    y = sparse.matmul(A, x)                                  # one call from and to NumPy

`lend` takes matrices of SciPy in the formats "csr", "csc", "coo" and "bsr", with indices of 32 or 64 bits, and values
of float32, float64, complex64 or complex128. Nothing is converted. `lend` checks the indices on the host, before
anything goes up, so that no call can reach beyond an array. The structure is lent as In, so calls and kernels may
change only the values, `dA.data`.

For pointers, the functions return a pointer to new memory of the region; for arrays, they return an array. They use the
kernels of scipy.sparse on `host` and `sim`, cuSPARSE on NVIDIA GPUs, where `spsolve` uses cuDSS, and hipSPARSE on AMD
GPUs. These libraries have to be installed. On AMD GPUs, `spsolve` raises LibraryError, because hipSPARSE factors no
matrices. No AMD GPU has run this module yet.

Wrong arguments raise ArgumentError, a ValueError, or ArgumentTypeError, DTypeError or HostPointerError, which are
TypeErrors. An index out of bounds raises ExtentError, a ValueError. A singular matrix raises numpy.linalg.LinAlgError.

Source: scipy.sparse, https://docs.scipy.org/doc/scipy/reference/sparse.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..display import listing, missing
from .conversions import convert
from .lending import Matrix, lend
from .products import matmul
from .systems import spsolve, spsolve_triangular

__all__ = ["Matrix", "convert", "lend", "matmul", "spsolve", "spsolve_triangular"]

if not TYPE_CHECKING:  # static checkers read all names
    __getattr__ = missing(
        __name__,
        __all__,
        {
            **{
                f"{kind}_{form}": f"scipy.sparse.{kind}_{form}, and lend it by sparse.lend"
                for kind in ("bsr", "coo", "csc", "csr", "dia", "lil")
                for form in ("array", "matrix")
            },
            **dict.fromkeys(("eye", "diags", "random", "kron", "vstack", "hstack"), "scipy.sparse to make a matrix"),
            **dict.fromkeys(
                ("cg", "gmres", "bicgstab"),
                "sparse.matmul and blas in a loop, as examples/poisson_cg.py of the gallery does",
            ),
            **dict.fromkeys(("spmv", "spmm", "mm", "mv"), "sparse.matmul"),
            **dict.fromkeys(("eigs", "eigsh", "svds", "splu"), "scipy.sparse.linalg"),
        },
    )
    __dir__ = listing(__all__)
