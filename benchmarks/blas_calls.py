"""Pairs of calls for call_cost.py: each function of `blas`, and the vendor's own function."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from offload_args import Device, blas, cblas, cublas, offload_args

__all__ = ["CALLS", "Call", "Operands"]


class Call(NamedTuple):
    """A call of a function of `blas`, and the same call of the vendor's function; only CBLAS takes `order`."""

    arguments: str
    vendor: str
    vendors_arguments: str
    gpu_only: bool = False


CALLS: Final = {
    "asum": Call("x", "dasum", "n, x, 1"),
    "axpy": Call("1.0, x, y", "daxpy", "n, 1.0, x, 1, y, 1"),
    "copy": Call("x, y", "dcopy", "n, x, 1, y, 1"),
    "dgmm": Call("A, x, C", "ddgmm", "left, n, n, A, n, x, 1, C, n", gpu_only=True),
    "dot": Call("x, y", "ddot", "n, x, 1, y, 1"),
    "dotc": Call("zx, zy", "zdotc", "n, zx, 1, zy, 1"),
    "dotu": Call("zx, zy", "zdotu", "n, zx, 1, zy, 1"),
    "gbmv": Call("1.0, ab, x, 0.0, y, kl=0, ku=1", "dgbmv", "order, op, n, n, 0, 1, 1.0, ab, 2, x, 1, 0.0, y, 1"),
    "geam": Call("1.0, A, 0.5, B, C", "dgeam", "op, op, n, n, 1.0, A, n, 0.5, B, n, C, n", gpu_only=True),
    "gemm": Call("1.0, A, B, 0.0, C", "dgemm", "order, op, op, n, n, n, 1.0, A, n, B, n, 0.0, C, n"),
    "gemm_batched": Call(
        "1.0, As, Bs, 0.0, Cs", "dgemm_batched", "op, op, n, n, n, 1.0, As, n, Bs, n, 0.0, Cs, n, 2", gpu_only=True
    ),
    "gemm_strided_batched": Call(
        "1.0, A3, B3, 0.0, C3",
        "dgemm_strided_batched",
        "op, op, n, n, n, 1.0, B3, n, n * n, A3, n, n * n, 0.0, C3, n, n * n, 2",
        gpu_only=True,
    ),
    "gemv": Call("1.0, A, x, 0.0, y", "dgemv", "order, op, n, n, 1.0, A, n, x, 1, 0.0, y, 1"),
    "ger": Call("1.0, x, o, C", "dger", "order, n, n, 1.0, x, 1, o, 1, C, n"),
    "gerc": Call("1.0, zx, zo, zC", "zgerc", "order, n, n, 1.0, zx, 1, zo, 1, zC, n"),
    "hbmv": Call("1.0, zab, zx, 0.0, zy", "zhbmv", "order, up, n, 1, 1.0, zab, 2, zx, 1, 0.0, zy, 1"),
    "hemm": Call("1.0, zA, zB, 0.0, zC", "zhemm", "order, left, up, n, n, 1.0, zA, n, zB, n, 0.0, zC, n"),
    "hemv": Call("1.0, zA, zx, 0.0, zy", "zhemv", "order, up, n, 1.0, zA, n, zx, 1, 0.0, zy, 1"),
    "her": Call("1.0, zo, zC", "zher", "order, up, n, 1.0, zo, 1, zC, n"),
    "her2": Call("1.0, zx, zo, zC", "zher2", "order, up, n, 1.0, zx, 1, zo, 1, zC, n"),
    "her2k": Call("1.0, zA, zB, 0.0, zC", "zher2k", "order, up, op, n, n, 1.0, zA, n, zB, n, 0.0, zC, n"),
    "herk": Call("1.0, zA, 0.0, zC", "zherk", "order, up, op, n, n, 1.0, zA, n, 0.0, zC, n"),
    "hpmv": Call("1.0, zap, zx, 0.0, zy", "zhpmv", "order, up, n, 1.0, zap, zx, 1, 0.0, zy, 1"),
    "hpr": Call("1.0, zo, zap", "zhpr", "order, up, n, 1.0, zo, 1, zap"),
    "hpr2": Call("1.0, zx, zo, zap", "zhpr2", "order, up, n, 1.0, zx, 1, zo, 1, zap"),
    "iamax": Call("x", "idamax", "n, x, 1"),
    "iamin": Call("x", "idamin", "n, x, 1"),
    "nrm2": Call("x", "dnrm2", "n, x, 1"),
    "rot": Call("x, y, 1.0, 0.0", "drot", "n, x, 1, y, 1, 1.0, 0.0"),
    "rotg": Call("a, b, c, s", "drotg", "a, b, c, s"),
    "rotm": Call("x, y, numbers", "drotm", "n, x, 1, y, 1, numbers"),
    "rotmg": Call("a, b, c, s, param", "drotmg", "a, b, c, s, param"),
    "sbmv": Call("1.0, ab, x, 0.0, y", "dsbmv", "order, up, n, 1, 1.0, ab, 2, x, 1, 0.0, y, 1"),
    "scal": Call("1.0, x", "dscal", "n, 1.0, x, 1"),
    "spmv": Call("1.0, ap, x, 0.0, y", "dspmv", "order, up, n, 1.0, ap, x, 1, 0.0, y, 1"),
    "spr": Call("1.0, o, ap", "dspr", "order, up, n, 1.0, o, 1, ap"),
    "spr2": Call("1.0, x, o, ap", "dspr2", "order, up, n, 1.0, x, 1, o, 1, ap"),
    "swap": Call("x, y", "dswap", "n, x, 1, y, 1"),
    "symm": Call("1.0, A, B, 0.0, C", "dsymm", "order, left, up, n, n, 1.0, A, n, B, n, 0.0, C, n"),
    "symv": Call("1.0, A, x, 0.0, y", "dsymv", "order, up, n, 1.0, A, n, x, 1, 0.0, y, 1"),
    "syr": Call("1.0, o, C", "dsyr", "order, up, n, 1.0, o, 1, C, n"),
    "syr2": Call("1.0, x, o, C", "dsyr2", "order, up, n, 1.0, x, 1, o, 1, C, n"),
    "syr2k": Call("1.0, A, B, 0.0, C", "dsyr2k", "order, up, op, n, n, 1.0, A, n, B, n, 0.0, C, n"),
    "syrk": Call("1.0, A, 0.0, C", "dsyrk", "order, up, op, n, n, 1.0, A, n, 0.0, C, n"),
    "tbmv": Call("ab, x", "dtbmv", "order, up, op, non, n, 1, ab, 2, x, 1"),
    "tbsv": Call("ab, x", "dtbsv", "order, up, op, non, n, 1, ab, 2, x, 1"),
    "tpmv": Call("ap, x", "dtpmv", "order, up, op, non, n, ap, x, 1"),
    "tpsv": Call("ap, x", "dtpsv", "order, up, op, non, n, ap, x, 1"),
    "trmm": Call("1.0, A, C", "dtrmm", "order, left, up, op, non, n, n, 1.0, A, n, C, n"),
    "trmv": Call("A, x", "dtrmv", "order, up, op, non, n, A, n, x, 1"),
    "trsm": Call("1.0, A, C", "dtrsm", "order, left, up, op, non, n, n, 1.0, A, n, C, n"),
    "trsm_batched": Call(
        "1.0, As, Cs", "dtrsm_batched", "left, up, op, non, n, n, 1.0, As, n, Cs, n, 2", gpu_only=True
    ),
    "trsv": Call("A, x", "dtrsv", "order, up, op, non, n, A, n, x, 1"),
}


class Pair(NamedTuple):
    """The same call by `blas` and by the vendor's function, each as a statement with the function `f`."""

    portable: tuple[str, Any]
    vendor: tuple[str, Any]


class Operands:
    """The operands of all calls, lent to a device during the block: n = 4, matrices in Fortran order."""

    def __init__(self, device: Device) -> None:
        n = self.n = 4
        real, parts = np.float64, np.complex128
        band, packed = np.zeros((2, n), order="F"), np.zeros(n * (n + 1) // 2)
        band[1] = packed[[0, 2, 5, 9]] = 1  # elements of the unit matrix, so that no call changes orders of magnitude
        self.arrays: dict[str, Any] = {"ab": band, "ap": packed}
        self.arrays |= {name: np.eye(n, order="F") for name in "ABC"} | {name: np.ones(n) for name in "xy"}
        self.arrays |= {"o": np.zeros(n)}
        self.arrays |= {f"z{name}": array.astype(parts) for name, array in self.arrays.items()}
        self.arrays |= {f"{name}3": np.stack([np.eye(n, dtype=real)] * 2) for name in "ABC"}
        self.arrays |= {name: np.full(1, name in "ac", dtype=real) for name in "abcs"} | {"param": np.zeros(5)}
        self.region = offload_args(*self.arrays.values(), device=device)
        self.on_host = device.backend == "host"

    def __enter__(self) -> dict[str, Any]:
        names = dict(zip(self.arrays, self.region.__enter__(), strict=True))
        library = cblas if self.on_host else cublas
        values = ("NoTrans", "Upper", "Left", "NonUnit")
        if not self.on_host:
            values = ("OP_N", "FILL_MODE_UPPER", "SIDE_LEFT", "DIAG_NON_UNIT")
        names |= dict(zip(("op", "up", "left", "non"), (getattr(library, value) for value in values), strict=True))
        lists = {f"{name}s": [names[f"{name}3"][i].T for i in (0, 1)] for name in "ABC"}
        return names | lists | {"n": self.n, "order": cblas.ColMajor, "numbers": (-2.0, 0.0, 0.0, 0.0, 0.0)}

    def __exit__(self, *about: Any) -> None:
        self.region.__exit__(*about)

    def statements(self, name: str) -> Pair | None:
        """Return the two calls; None if the vendor has no such function."""
        call, library = CALLS[name], cblas if self.on_host else cublas
        if self.on_host and call.gpu_only:
            return None
        arguments = call.vendors_arguments
        if not self.on_host:
            arguments = arguments.removeprefix("order, ")
            if name == "trmm":  # the vendor's trmm has a further operand for its result
                arguments += ", C, n"
        vendor = f"f({arguments})", getattr(library, call.vendor)
        return Pair((f"f({call.arguments})", getattr(blas, name)), vendor)
