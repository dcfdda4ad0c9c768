"""Portable BLAS on device pointers: it reads shapes, orders and dtypes, and calls the device's own library.

Operands are DevicePtrs, in the order of BLAS's own arguments. Sizes, leading dimensions, increments and operations come
from shapes and strides. C order, Fortran order and parts of either are accepted, and no call repacks a matrix: a matrix
in C order is passed to the column-major library as its transpose. If a copy can't keep the strides of an array, the
array is packed when it is lent. A layout that no call of the library can express raises an ArgumentError that names the
remedy. The device's own BLAS runs the functions; `_vendors.py` has one adapter per library.

A band matrix is stored as LAPACK's and SciPy's `ab`, with one diagonal in each row: ab[ku + i - j, j] is A[i, j]. The
array `ab` is in Fortran order. A packed triangle is stored as `ap`, a contiguous vector of the triangle's columns. With
order="C" both are stored by rows. docs/guide/blas.md lists the layouts that each function takes.

Vectors have one dimension (a row or column of a matrix is a vector) and a stride of either sign. The operands of a call
have one dtype (float32, float64, complex64 or complex128) and are on one device. `alpha` and `beta` are numbers or 0-d
DevicePtrs of this dtype. If `beta` is a zero on the host, the output is not read. As in BLAS, if a sum has no terms, a
routine leaves a vector unchanged, and scales a matrix by `beta`.

Every function raises HostPointerError for an operand that is not a DevicePtr; DTypeError for a dtype that the routine
does not take, or for several dtypes in one call; ArgumentError, a ValueError, for dimensions, shapes, strides and
options that do not fit; and the errors of the vendor's function (StalePointerError, WrongDeviceError, DirectionError,
AliasError and others).

Source: the reference BLAS, https://netlib.org/blas/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..display import listing, missing
from .batched import gemm_batched, trsm_batched
from .extensions import dgmm, geam
from .gemm import gemm, gemm_strided_batched
from .level1 import asum, axpy, copy, dot, dotc, dotu, iamax, iamin, nrm2, rot, rotg, rotm, rotmg, scal, swap
from .level2 import gemv, ger, gerc, hemv, her, her2, symv, syr, syr2, trmv, trsv
from .level3 import hemm, her2k, herk, symm, syr2k, syrk, trmm, trsm
from .stored import gbmv, hbmv, hpmv, hpr, hpr2, sbmv, spmv, spr, spr2, tbmv, tbsv, tpmv, tpsv

__all__ = [
    "asum",
    "axpy",
    "copy",
    "dgmm",
    "dot",
    "dotc",
    "dotu",
    "gbmv",
    "geam",
    "gemm",
    "gemm_batched",
    "gemm_strided_batched",
    "gemv",
    "ger",
    "gerc",
    "hbmv",
    "hemm",
    "hemv",
    "her",
    "her2",
    "her2k",
    "herk",
    "hpmv",
    "hpr",
    "hpr2",
    "iamax",
    "iamin",
    "nrm2",
    "rot",
    "rotg",
    "rotm",
    "rotmg",
    "sbmv",
    "scal",
    "spmv",
    "spr",
    "spr2",
    "swap",
    "symm",
    "symv",
    "syr",
    "syr2",
    "syr2k",
    "syrk",
    "tbmv",
    "tbsv",
    "tpmv",
    "tpsv",
    "trmm",
    "trmv",
    "trsm",
    "trsm_batched",
    "trsv",
]

if not TYPE_CHECKING:  # static checkers read all names
    __getattr__ = missing(
        __name__,
        __all__,
        {
            "matmul": "blas.gemm, or linalg.matmul",
            "norm": "blas.nrm2",
            "outer": "blas.ger",
            "add": "blas.axpy for vectors, blas.geam for matrices",
            "sum": "kernels.reduce; blas.asum sums absolute values",
            "solve": "linalg.solve, or blas.trsm for a triangle",
            **dict.fromkeys(("mul", "multiply"), "kernels.elementwise, or blas.dgmm for a diagonal matrix"),
            **dict.fromkeys(("div", "divide", "exp", "log", "sqrt", "abs", "power"), "kernels.elementwise"),
            **dict.fromkeys(("sub", "subtract"), "blas.axpy for vectors, blas.geam for matrices"),
            **dict.fromkeys(("min", "max", "mean", "prod", "argmin"), "kernels.reduce"),
            **dict.fromkeys(
                ("geru", "cgeru", "zgeru"), "blas.ger, which takes complex vectors, too; gerc conjugates y"
            ),
            "argmax": "kernels.reduce; blas.iamax is for absolute values",
            "transpose": "T of a pointer, as in dA.T",
        },
    )
    __dir__ = listing(__all__)
