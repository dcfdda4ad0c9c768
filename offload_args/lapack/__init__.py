"""Portable LAPACK on device pointers: it reads shapes and orders, and calls the device's own library.

    with offload_args(A, Scratch(n, np.int32), b) as (dA, dp, db):
        lapack.gesv(dA, dp, db)                              # b becomes the solution of A x = b

Operands are DevicePtrs, in the order of LAPACK's own arguments, and results are in place, as in LAPACK. Sizes and
leading dimensions come from shapes and strides. No matrix is repacked. A matrix in C order is passed to the
column-major library as its transpose, if the result can be computed from the transpose. Otherwise an ArgumentError
names a copy that helps. docs/guide/lapack.md lists the orders that each function takes. cuSOLVER runs on NVIDIA GPUs,
rocSOLVER on AMD GPUs, and the LAPACK of OpenBLAS on the host and on sim. No AMD GPU has run these functions yet.

Dtypes are float32, float64, complex64 and complex128; `ipiv` is int32, and counts from 1. Right sides are matrices, or
vectors, which count as one column.

A may be a stack of matrices, (..., m, n). The other operands then have the dimensions of the stack before their own:
pivots (..., n), right sides (..., n, nrhs) or (..., n). Small matrices share one call, which is a batched call on GPUs,
and a loop in C on the CPU. If some matrices fail, StackError, a LinAlgError, names these matrices, and its `info` has
LAPACK's info of each matrix. The results of the other matrices are valid.

A function that may fail waits for LAPACK's info. If LAPACK reports a failure, such as a singular or indefinite matrix,
numpy.linalg.LinAlgError names the pivot. The outputs of this call are undefined, and never reach the host. With
`info=`, potrf, potri, posv, getrf and gesv write the info to a DevicePtr instead, wait for nothing, and raise no
LinAlgError.

Every function raises HostPointerError for an operand that is not a DevicePtr; DTypeError for a dtype that the function
does not take, or for several dtypes in one call; ArgumentError, a ValueError, for dimensions, shapes, orders and
options that do not fit; LibraryError for a device whose library is missing; and the errors of the vendor's function
(StalePointerError, WrongDeviceError, DirectionError, AliasError and others).

Source: LAPACK, https://netlib.org/lapack/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..display import listing, missing
from ._stacks import StackError
from .cholesky import posv, potrf, potri, potrs, trtrs
from .conditions import gecon, pocon
from .eigenvalues import geev, heevdx, hegvd, syevdx, sygvd
from .indefinite import hetrf, hetrs, sytrf, sytrs
from .least_squares import gelsd
from .lu import gesv, getrf, getri, getrs
from .qr import gels, geqrf, orgqr, ormqr, ungqr
from .spectral import gesvd, heevd, syevd

__all__ = [
    "StackError",
    "gecon",
    "geev",
    "gels",
    "gelsd",
    "geqrf",
    "gesv",
    "gesvd",
    "getrf",
    "getri",
    "getrs",
    "heevd",
    "heevdx",
    "hegvd",
    "hetrf",
    "hetrs",
    "orgqr",
    "ormqr",
    "pocon",
    "posv",
    "potrf",
    "potri",
    "potrs",
    "syevd",
    "syevdx",
    "sygvd",
    "sytrf",
    "sytrs",
    "trtrs",
    "ungqr",
]

if not TYPE_CHECKING:  # static checkers read all names
    __getattr__ = missing(
        __name__,
        __all__,
        {
            "solve": "linalg.solve, or lapack.gesv in place",
            "inv": "linalg.inv, or lapack.getrf and lapack.getri in place",
            "lstsq": "linalg.lstsq, or lapack.gels in place",
            "svd": "linalg.svd, or lapack.gesvd",
            "eigh": "linalg.eigh, or lapack.syevd in place",
            "eig": "lapack.geev",
            "det": "linalg.det",
        },
    )
    __dir__ = listing(__all__)
