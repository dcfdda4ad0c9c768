"""Checks of another LAPACK's solutions against the problem. The factors and vectors of two libraries may differ
although both are right.

A residual counts as right if it is at most the product of four numbers: 64, the sizes of the matrices, the precision of
their dtype, and the largest element of the same products on absolute values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..devices import Device
from ..pointers import DevicePtr
from . import solvers
from .compare import Caller, Difference, Expected, host_values, run_on
from .layout import flat

__all__ = ["expect"]

Matrix: TypeAlias = NDArray[Any]
Operands: TypeAlias = dict[str, Any]

#: {matrix: (the names of its dimensions, the name of its leading dimension)}.
_SHAPES: Final = {"B": ("n nrhs", "ldb"), "C": ("m n", "ldc"), "U": ("m m", "ldu"), "VT": ("n n", "ldvt")}
_TALL: Final = ("getrf", "geqrf", "gesvd", "gesvdj", "orgqr")  # A of these routines is m x n; A of others is square


class _Residual(NamedTuple):
    operand: str
    off: Matrix
    scale: Any  # the products of absolute values


def expect(library: str, name: str, arguments: list[Any], call: Caller, host: Device) -> Expected | None:
    """Make a call of LAPACK on the host before the device makes it; return None if its results have no residual."""
    if solvers.routine_of(name) not in _RESIDUALS or "batched" in name:
        return None
    operands = solvers.operands_of(library, name, arguments)
    pointers = [value for value in flat(arguments) if isinstance(value, DevicePtr)]
    before = [host_values(pointer) for pointer in pointers]
    matrices = _matrices(solvers.routine_of(name), operands, pointers, before)
    if matrices is None:
        return None
    values = [array.copy(order="K") for array in before]
    returned = run_on(arguments, values, call, "", host)
    return _Solved(solvers.routine_of(name), operands, matrices, pointers, values, returned)


class _Solved(Expected):
    """The operands of a call of LAPACK before the call, and after it on the host."""

    def __init__(
        self,
        routine: str,
        operands: Operands,
        before: Operands,
        pointers: list[DevicePtr[Any]],
        values: list[Matrix],
        returned: Any,
    ) -> None:
        super().__init__(pointers, values, returned, [])
        self.routine, self.operands, self.before = routine, operands, before

    def difference(self, returned: Any, names: list[str]) -> Difference | None:
        now = [host_values(pointer) for pointer in self.pointers]
        after = _matrices(self.routine, self.operands, self.pointers, now)
        here = _matrices(self.routine, self.operands, self.pointers, self.results)
        if after is None or here is None:
            return None
        infos = [values.get("info", value) for values, value in ((after, returned), (here, self.returned))]
        if any(np.any(info) for info in infos):  # then the results are undefined
            is_same = all(np.any(info) for info in infos)
            return None if is_same else Difference("info", float(np.max(np.abs(infos[0]))), 0.0)
        residual = _RESIDUALS[self.routine](self.before, after, here)
        off = float(np.abs(residual.off).max(initial=0.0))
        sizes = sum(self.operands.get(name, 0) for name in ("m", "n", "k", "nrhs"))
        precision = float(np.finfo(self.before["A"].dtype).eps)
        self.bounds = [64 * sizes * precision * float(np.max(np.abs(residual.scale), initial=0.0))]
        return None if off <= self.most else Difference(residual.operand, off, self.most)


def _matrices(
    routine: str, operands: Operands, pointers: list[DevicePtr[Any]], arrays: list[Matrix]
) -> Operands | None:
    """Return the operands with matrices in place of pointers; return None if an array is too short."""
    held = dict(zip(map(id, pointers), arrays, strict=True))
    values: Operands = dict(operands)
    a = "m n" if routine in _TALL else "n n"
    if routine == "ormqr":
        a = "m k" if operands["side"] == "L" else "n k"
    for name, pointer in operands.items():
        if not isinstance(pointer, DevicePtr):
            continue
        array = held[id(pointer)]
        if name not in ("A", *_SHAPES):
            values[name] = array.ravel(order="K")
            continue
        dimensions, ld = {"A": (a, "lda"), **_SHAPES}[name]
        (m, n), step = (operands[part] for part in dimensions.split()), operands[ld]
        if any(stride < 0 for stride in array.strides) or step < m:
            return None
        elements = sum((extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True))
        if 0 in array.shape or (n - 1) * step + m > elements // array.itemsize + 1:
            if name in ("U", "VT"):
                values[name] = None
                continue
            return None
        strides = array.itemsize, step * array.itemsize
        values[name] = np.lib.stride_tricks.as_strided(array, (m, n), strides).copy()
    return values


def _hermitian(A: Matrix, uplo: str) -> Matrix:
    half = np.triu(A, 1) if uplo == "U" else np.tril(A, -1)
    return half + half.conj().T + np.diag(np.diag(A).real)


def _cholesky(o: Operands) -> tuple[Matrix, Matrix]:
    """Return the factors of Cholesky whose product is the matrix."""
    T = np.triu(o["A"]) if o["uplo"] == "U" else np.tril(o["A"])
    return (T.conj().T, T) if o["uplo"] == "U" else (T, T.conj().T)


def _lu(o: Operands) -> tuple[Matrix, Matrix]:
    """Return P^T L and U."""
    A = o["A"]
    k = min(A.shape)
    L, U = np.tril(A[:, :k], -1), np.triu(A[:k])
    L[np.arange(k), np.arange(k)] = 1
    for row in reversed(range(k)):
        other = int(o["ipiv"][row]) - 1
        if not 0 <= other < len(L):
            return np.full_like(L, np.nan), U
        L[[row, other]] = L[[other, row]]
    return L, U


def _product(operand: str, left: Matrix, middle: Matrix, right: Matrix, wanted: Matrix) -> _Residual:
    scale = np.abs(left) @ np.abs(middle) @ np.abs(right) + np.abs(wanted).max(initial=0.0)
    return _Residual(operand, left @ middle @ right - wanted, scale)


def _potrf(b: Operands, a: Operands, h: Operands) -> _Residual:
    left, right = _cholesky(a)
    return _product("A", left, right, np.eye(len(right)), _hermitian(b["A"], b["uplo"]))


def _getrf(b: Operands, a: Operands, h: Operands) -> _Residual:
    left, right = _lu(a)
    return _product("A", left, right, np.eye(right.shape[1]), b["A"])


def _potrs(b: Operands, a: Operands, h: Operands) -> _Residual:
    return _product("B", *_cholesky(b), a["B"], b["B"])


def _getrs(b: Operands, a: Operands, h: Operands) -> _Residual:
    left, right = _lu(b)
    if b["trans"] != "N":
        left, right = right.T, left.T
    if b["trans"] == "C":
        left, right = left.conj(), right.conj()
    return _product("B", left, right, a["B"], b["B"])


def _posv(b: Operands, a: Operands, h: Operands) -> _Residual:
    A = _hermitian(b["A"], b["uplo"])
    return _product("B", A, np.eye(len(A)), a["B"], b["B"])


def _gesv(b: Operands, a: Operands, h: Operands) -> _Residual:
    return _product("B", b["A"], np.eye(len(b["A"])), a["B"], b["B"])


def _potri(b: Operands, a: Operands, h: Operands) -> _Residual:
    return _product("A", *_cholesky(b), _hermitian(a["A"], a["uplo"]), np.eye(len(a["A"])))


def _getri(b: Operands, a: Operands, h: Operands) -> _Residual:
    return _product("A", *_lu(b), a["A"], np.eye(len(a["A"])))


def _geqrf(b: Operands, a: Operands, h: Operands) -> _Residual:
    R = np.triu(a["A"][: min(a["A"].shape)])
    return _product("A", R.conj().T, R, np.eye(R.shape[1]), b["A"].conj().T @ b["A"])


def _of_q(operand: str) -> Callable[[Operands, Operands, Operands], _Residual]:
    """Return the residual of a product with Q, which is determined by its reflectors."""

    def residual(b: Operands, a: Operands, h: Operands) -> _Residual:
        return _Residual(operand, a[operand] - h[operand], 1 + np.linalg.norm(h[operand]))

    return residual


def _syevd(b: Operands, a: Operands, h: Operands) -> _Residual:
    A, w = _hermitian(b["A"], b["uplo"]), a["w"][: len(b["A"])]
    scale = np.linalg.norm(A)
    if b["jobz"] == "N":
        return _Residual("w", w - h["w"][: len(w)], scale)
    V = a["A"]
    apart = V.conj().T @ V - np.eye(len(V))
    return _Residual("A", np.maximum(np.abs(A @ V - V * w), scale * np.abs(apart)), scale)


def _gesvd(b: Operands, a: Operands, h: Operands) -> _Residual:
    k = min(b["A"].shape)
    return _Residual("s", a["s"][:k] - h["s"][:k], np.linalg.norm(b["A"]))


_RESIDUALS: Final = {
    "potrf": _potrf,
    "potrs": _potrs,
    "potri": _potri,
    "posv": _posv,
    "getrf": _getrf,
    "getrs": _getrs,
    "getri": _getri,
    "gesv": _gesv,
    "geqrf": _geqrf,
    "orgqr": _of_q("A"),
    "ormqr": _of_q("C"),
    "syevd": _syevd,
    "gesvd": _gesvd,
    "gesvdj": _gesvd,
}
