"""Linear algebra with NumPy's arguments, on a device: solve, inv, eigh, svd and others, for arrays and for pointers.

    x = linalg.solve(A, b)                                   # arrays go up, and x comes down

    with offload_args(A, b, y) as (dA, db, dy):
        dx = linalg.solve(dA, db)                            # dx stays on the device
        blas.gemv(1.0, dA, dx, 0.0, dy)

The functions have the names, arguments and results of numpy.linalg, to within rounding, and change none of their
arguments. Arrays may be of any class and layout that NumPy takes. A function lends them in one region, and returns
arrays. For DevicePtrs of open regions, a function returns DevicePtrs to new memory of the youngest of these regions;
the memory is freed with the last pointer to it. Matrices may be stacked; the last two dimensions are the dimensions of
a matrix.

Dtypes are float32, float64, complex64 and complex128. Arrays of integers are converted to float64, as in NumPy; nothing
is converted on a device. The argument `device` is the device that computes with arrays; None stands for the first GPU,
or for the host without a GPU.

The module is not a complete array library. It leaves sums, elementwise functions and indexing to NumPy.

Failures raise numpy.linalg.LinAlgError, which names the matrices that failed; no result is returned then. Wrong
arguments raise the errors of lapack and blas, each of which is also an error of NumPy's class: ArgumentError is a
ValueError, and DTypeError is a TypeError. A LibraryError is raised if the device has no LAPACK that this package
supports.

Source: numpy.linalg, https://numpy.org/doc/stable/reference/routines.linalg.html.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core import reused
from ..display import listing, missing
from .products import matmul, matrix_power
from .spectral import EighResult, QRResult, SVDResult, eigh, eigvalsh, qr, svd
from .systems import SlogdetResult, cholesky, det, inv, lstsq, slogdet, solve

__all__ = [
    "EighResult",
    "QRResult",
    "SVDResult",
    "SlogdetResult",
    "cholesky",
    "det",
    "eigh",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_power",
    "qr",
    "slogdet",
    "solve",
    "svd",
]

reused.update({function: -1 for name in __all__ if not isinstance(function := globals()[name], type)})

if not TYPE_CHECKING:  # static checkers read all names
    __getattr__ = missing(
        __name__,
        __all__,
        {
            **dict.fromkeys(("eig", "eigvals"), "lapack.geev, or NumPy's function; eigh is for symmetric matrices"),
            "norm": "blas.nrm2 for a vector, or NumPy's function",
            "pinv": "linalg.lstsq or linalg.svd, or NumPy's function",
            **dict.fromkeys(("cond", "matrix_rank", "svdvals"), "linalg.svd, or NumPy's function"),
            **dict.fromkeys(("dot", "vdot", "vecdot"), "linalg.matmul, or blas.dot for vectors"),
            "outer": "blas.ger",
            "lu_factor": "lapack.getrf",
            "cho_factor": "lapack.potrf",
            "solve_triangular": "lapack.trtrs",
        },
    )
    __dir__ = listing(__all__)
