"""The end of a message about a full device: which functions compute larger arrays by parts."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

__all__ = ["in_parts"]

_MODULES: Final = ("blas", "lapack", "linalg", "fft", "sparse")
_ARGUMENT: Final = re.compile(r"^offload_args: argument \d+ ")
_PARTS: Final = "lend parts of the arrays, or leave regions"  # the remedy in the core's message
_BY_TILES: Final = (
    "; with devices=[...], gemm, symm, syrk, trmm, trsm and their forms of blas, and potrf, potrs, posv, getrf, getrs "
    "and gesv of lapack compute NumPy arrays by tiles, which need less memory"
)

# {function: its way with less memory}
_WAYS: Final = {
    "linalg.solve": "lapack.gesv(A, ipiv, B, devices=[...]) solves with NumPy arrays by tiles",
    "linalg.inv": "lapack.gesv(A, ipiv, B, devices=[...]) with B = np.eye(n) inverts a NumPy array by tiles",
    "linalg.det": "lapack.getrf(A, ipiv, devices=[...]) factors a NumPy array by tiles",
    "linalg.slogdet": "lapack.getrf(A, ipiv, devices=[...]) factors a NumPy array by tiles",
    "linalg.cholesky": 'lapack.potrf(A, uplo="L", devices=[...]) factors a NumPy array by tiles',
    "linalg.matmul": "blas.gemm(1.0, A, B, 0.0, C, devices=[...]) multiplies NumPy arrays by tiles",
    "linalg.matrix_power": "linalg.matmul multiplies NumPy arrays by tiles",
    "linalg.lstsq": "lstsq has no form by parts; if a has full rank and a small condition number, which this squares, "
    "lapack.posv(C, B, devices=[...]) solves it by tiles, with C = linalg.matmul(a.T, a), B = linalg.matmul(a.T, b)",
}
_STACKS: Final = "pass parts of the stack, such as a[:k]"
_TRANSFORMS: Final = re.compile(r"(i?r?fft)[2n]$")


def _way(function: str, values: Mapping[str, Any]) -> str:
    """Return the way with less memory of a function; `values` are its arguments, and other local variables."""
    module, _, name = function.partition(".")
    shapes = {key: getattr(value, "shape", None) for key, value in values.items()}
    ndim = {key: len(shape) for key, shape in shapes.items() if isinstance(shape, tuple)}
    if module == "linalg" and max(ndim.get("a", 0), ndim.get("x1", 0)) > 2:
        return _STACKS.replace("a[", "x1[") if name == "matmul" else _STACKS
    if module == "fft":
        several = _TRANSFORMS.match(name)
        if several and ndim.get("x", 0) > 1 and "ir" not in name:
            then = f"fft.{'i' * name.startswith('i')}fft(y[:, :k].copy(), axis=0)"
            return f"transform one axis after the other, by parts: fft.{several[1]}(x[:k]), then {then}"
        if not name.endswith(("2", "n")) and ndim.get("x", 0) > 1:
            return f"transform some rows at a time, such as fft.{name}(x[:k])"
    if module == "sparse" and name != "lend":
        operand = "x" if name == "matmul" else "b"
        if ndim.get(operand, 0) > 1:
            return f"pass some columns at a time, such as {operand}[:, :k].copy()"
        if name == "matmul":
            return "pass some rows of A at a time, such as A[:k]"
    return _WAYS.get(function, f"{name} has no form by parts")


def _function() -> tuple[str, Mapping[str, Any]] | None:
    """Return the user's call of a module's function, and its local variables; None if there is none."""
    called = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:  # the outermost frame of the package is the user's call
        package, _, module = frame.f_globals.get("__name__", "").partition(".")
        module = module.partition(".")[0]
        name = frame.f_code.co_name
        known = getattr(sys.modules.get(f"{package}.{module}"), "__all__", ()) if module in _MODULES else ()
        if package == __package__ and name in known:
            called = f"{module}.{name}", frame.f_locals
        frame = frame.f_back
    return called


def in_parts(text: str) -> str:
    """Return a message about a full device with the way of the called function that needs less memory, if it has one.

    Without such a function, an array of a region may fit by tiles.
    """
    called = _function()
    if called is None:
        return text + (_BY_TILES if _ARGUMENT.match(text) else "")
    function, values = called
    way = _way(function, values)
    if values.get("devices") is None and function.startswith(("blas.", "lapack.")):
        text = _ARGUMENT.sub(f"{function}: a copy of an operand ", text)
    joint = ": leave regions" if way.endswith("no form by parts") else ", or leave regions"
    return text.replace(_PARTS, f"{way}{joint}") if _PARTS in text else f"{text}; {way}"
