"""Random calls of numpy.linalg and products, with and without a device: same exceptions, warnings, types and values.

    python -m helpers.random_calls DEVICE [FIRST [COUNT]]     # in tests/

Arrays have random dtypes, orders, strides and stacks, and values that are not finite, that are singular, very large or
very small.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import _umath_linalg

from offload_args import accelerate

REALS, COMPLEXES = ("f4", "f8"), ("c8", "c16")
OTHERS = ("f2", "g", "G", "i4", "O", ">f8", "?")
FORMS = ("C", "C", "C", "F", "every second", "backwards", "part", "transposed", "unaligned", "read-only", "broadcast")
VALUES = ("normal",) * 6 + ("nan", "inf", "zero", "repeated", "rank 1", "integers", "huge", "tiny", "diagonal", "ones")


class Call(NamedTuple):
    """A call, and the arrays that it may read or write."""

    text: str
    arrays: tuple[np.ndarray, ...]
    make: Callable[[], Any]
    condition: float  # of the matrix
    overflows: bool  # whether products of single numbers overflow


class Outcome(NamedTuple):
    """All that a program sees of a call."""

    failure: str
    warned: tuple[str, ...]
    results: tuple[Any, ...]


def fill(rng: np.random.Generator, shape: tuple[int, ...], values: str, is_complex: bool) -> np.ndarray:
    A = rng.standard_normal(shape)
    if is_complex:
        A = A + 1j * rng.standard_normal(shape)
    if A.size == 0:
        return A
    at = tuple(rng.integers(extent) for extent in shape)
    if values == "nan":
        A[at] = np.nan
    elif values == "inf":
        A[at] = -np.inf if rng.integers(2) else np.inf
    elif values == "zero":
        A[:] = 0
    elif values == "repeated":
        A[..., -1] = A[..., 0]
    elif values == "rank 1":
        A = A[..., :1, :1] * A[..., :, :1] * A[..., :1, :] if A.ndim > 1 else A
    elif values == "integers":
        A = rng.integers(0, 2, shape).astype(A.dtype)
    elif values == "diagonal" and A.ndim > 1:
        A = A * np.eye(*shape[-2:])
    elif values == "ones":
        A[:] = 1
    return A * {"huge": 1e200, "tiny": 1e-200}[values] if values in ("huge", "tiny") else A


def form(rng: np.random.Generator, A: np.ndarray, chosen: str) -> np.ndarray:
    """Return an array of the same values with other strides."""
    if A.ndim < 2 or A.size == 0:
        return A
    if chosen == "F":
        return np.asfortranarray(A)
    if chosen == "every second":
        return np.repeat(A, 2, -1)[..., ::2]
    if chosen == "backwards":
        return A[..., ::-1, ::-1].copy()[..., ::-1, ::-1]
    if chosen == "part":
        return np.pad(A, [(0, 0)] * (A.ndim - 2) + [(1, 2), (2, 1)])[..., 1:-2, 2:-1]
    if chosen == "transposed":
        return A.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    if chosen == "unaligned" and A.dtype != object:
        raw = np.empty(A.nbytes + 1, np.uint8)[1:].view(A.dtype).reshape(A.shape)
        raw[...] = A
        return raw
    if chosen == "read-only":
        A.flags.writeable = False
    if chosen == "broadcast":
        return np.broadcast_to(A[..., :1, :], A.shape)
    return A


def hermitian(A: np.ndarray) -> np.ndarray:
    return (A + A.swapaxes(-1, -2).conj()) if A.dtype != bool else A


def definite(A: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return A @ A.swapaxes(-1, -2).conj() if A.dtype != bool else A


def products(A: np.ndarray, B: np.ndarray) -> dict[str, Callable[[], Any]]:
    T = A.swapaxes(-1, -2)
    square = A.shape[-1] == A.shape[-2]
    calls = {
        "A @ A.T": lambda: A @ T,
        "A.T @ A": lambda: T @ A,
        "A @ B": lambda: A @ B,
        "A @ A.T.conj": lambda: A @ T.conj(),
        "matmul dtype": lambda: np.matmul(A, T, dtype="f8"),
        "matmul casting": lambda: np.matmul(A, T, casting="no"),
        "matmul signature": lambda: np.matmul(A, T, signature="DD->D"),
        "matmul out F": lambda: np.matmul(A, T, out=np.empty(T.shape[:-2] + (A.shape[-2],) * 2, A.dtype, order="F")),
        "matmul axes": lambda: np.matmul(A, T, axes=[(-2, -1), (-2, -1), (-1, -2)]),
        "masked": lambda: np.ma.dot(np.ma.masked_invalid(A), np.ma.masked_invalid(T)) if A.ndim == 2 else None,
        "dot": lambda: np.dot(A, T),
        "inner": lambda: np.inner(A, A),
        "einsum": lambda: np.einsum("...ij,...kj->...ik", A, A, optimize=True),
        "multi_dot": lambda: np.linalg.multi_dot([A, T, A]) if A.ndim == 2 else None,
    }
    if square:
        calls["A @ A"] = lambda: A @ A
        calls["matmul into A"] = lambda: np.matmul(A, T, out=A)
        calls["matmul into A.T"] = lambda: np.matmul(A, T, out=T)
        calls["matrix_power"] = lambda: np.linalg.matrix_power(A, 3)
    return calls


def functions(A: np.ndarray, B: np.ndarray, kind: str) -> dict[str, Callable[[], Any]]:
    linalg, inner = np.linalg, _umath_linalg

    def vectors(call: Callable[[], Any]) -> Callable[[], Any]:
        """Return what does not depend on the signs and the order of vectors."""

        def checked() -> Any:
            w, v = call()
            return w, v.shape, v.dtype, (v * w[..., None, :]) @ v.swapaxes(-1, -2).conj()

        return checked

    def triple(**options: Any) -> Callable[[], Any]:
        def checked() -> Any:
            U, s, Vh = linalg.svd(A, **options)
            k = s.shape[-1]
            return U.shape, Vh.shape, U.dtype, Vh.dtype, s, (U[..., :k] * s[..., None, :]) @ Vh[..., :k, :]

        return checked

    if kind == "general":
        return {
            "solve": lambda: linalg.solve(A, B),
            "solve A": lambda: linalg.solve(A, A),
            "solve a vector": lambda: linalg.solve(A, B[..., 0]),
            "solve in float32": lambda: inner.solve(A, B, signature="ff->f"),
            "inv": lambda: linalg.inv(A),
            "inv into itself": lambda: inner.inv(A, A),
            "inv into its transpose": lambda: inner.inv(A, A.swapaxes(-1, -2)),
            "inv in float32": lambda: inner.inv(A, signature="f->f"),
            "inv dtype": lambda: inner.inv(A, dtype="D"),
            "inv backwards": lambda: inner.inv(A, out=np.zeros(A.shape, A.dtype)[..., ::-1, ::-1]),
            "solve into B": lambda: inner.solve(A, B, B),
            "det": lambda: linalg.det(A),
            "slogdet": lambda: linalg.slogdet(A)[1],
            "masked inv": lambda: linalg.inv(np.ma.masked_invalid(A)),
            "tensorinv": lambda: linalg.tensorinv(A, ind=1) if A.ndim == 2 else None,
        }
    if kind == "definite":
        return {
            "cholesky": lambda: linalg.cholesky(A),
            "cholesky into itself": lambda: inner.cholesky_lo(A, A),
            "eigvalsh": lambda: linalg.eigvalsh(A),
            "solve": lambda: linalg.solve(A, B),
            "inv": lambda: linalg.inv(A),
        }
    if kind == "hermitian":
        return {
            "eigh L": vectors(lambda: linalg.eigh(A, "L")),
            "eigh U": vectors(lambda: linalg.eigh(A, "U")),
            "eigvalsh": lambda: linalg.eigvalsh(A, "U"),
            "eigvalsh float32": lambda: inner.eigvalsh_lo(A, signature="f->f"),
            "svd hermitian": lambda: linalg.svd(A, hermitian=True, compute_uv=False),
            "pinv hermitian": lambda: linalg.pinv(A, hermitian=True).shape,
        }
    return {
        "svd": triple(),
        "svd reduced": triple(full_matrices=False),
        "svd values": lambda: linalg.svd(A, compute_uv=False),
        "matrix_rank": lambda: linalg.matrix_rank(A),
        "cond": lambda: linalg.cond(A) < 1e8,
        "norm 2": lambda: linalg.norm(A, 2, axis=(-2, -1)),
        "norm nuc": lambda: linalg.norm(A, "nuc", axis=(-2, -1)),
        "qr": lambda: np.abs(linalg.qr(A, mode="r")),
        # With NaN, LAPACK's gelsd may never end.
        "lstsq": lambda: linalg.lstsq(A, A[..., 0], rcond=1e-6)[2:] if np.isfinite(A.astype("c16")).all() else None,
    }


def call_of(number: int) -> Call:
    """Return a call; the same number makes the same call with new arrays."""
    rng = np.random.default_rng(number)
    kind = ("general", "general", "definite", "hermitian", "any shape", "product")[rng.integers(6)]
    pool = (*REALS * 3, *COMPLEXES * 2, *OTHERS)
    dtype = np.dtype(pool[rng.integers(len(pool))])
    n, m, k = (int(rng.choice([0, 1, 1, 2, 3, 5, 8, 13, 24])) if rng.integers(4) == 0 else int(rng.integers(2, 28))
               for _ in range(3))  # fmt: skip
    if kind not in ("any shape", "product") and rng.integers(30):
        m = n
    stack = ((), (), (), (), (1,), (2,), (0,), (2, 3))[rng.integers(8)]
    values, chosen = VALUES[rng.integers(len(VALUES))], FORMS[rng.integers(len(FORMS))]
    A = fill(rng, (*stack, n, m), values, dtype.kind == "c")
    B = fill(rng, (*stack, m, k), "normal", dtype.kind == "c")
    with np.errstate(all="ignore"):
        if kind in ("definite", "hermitian") and m == n:
            A = definite(A) if kind == "definite" else hermitian(A)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            A, B = A.astype(dtype), B.astype(dtype)
        try:
            wide = A.astype("c16")
            condition = float(np.max(np.linalg.cond(wide), initial=1)) if np.isfinite(wide).all() else 1.0
        except np.linalg.LinAlgError:
            condition = 1.0
    A = form(rng, A, chosen)
    calls = products(A, B) if kind == "product" else functions(A, B, kind)
    name = [*calls][rng.integers(len(calls))]
    text = f"{number}: {name}, {dtype.str} {A.shape}, {B.shape}, {kind}, {chosen}, {values}, condition {condition:.1e}"
    strict = rng.integers(8) == 0 and values not in ("nan", "inf", "huge", "tiny")
    make = calls[name]

    def raising() -> Any:
        with np.errstate(all="raise"):
            return make()

    overflows = kind == "product" and values == "huge"
    return Call(text + (", errors raise" if strict else ""), (A, B), raising if strict else make, condition, overflows)


def outcome(call: Call) -> Outcome:
    failure, results = "", ()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = call.make()
            results = value if isinstance(value, tuple) else (value,)
        except Exception as error:  # all exceptions are compared
            failure = f"{type(error).__name__}: {error}"
    # A product on a device raises no warning of an overflow or of an invalid value, as docs/guide/scripts.md says.
    texts = [f"{warning.category.__name__}: {warning.message}" for warning in caught]
    warned = tuple(text for text in texts if not text.endswith(("encountered in matmul", "encountered in dot")))
    return Outcome(failure, warned, (*results, *call.arrays))


def difference(actual: Outcome, expected: Outcome, condition: float, overflows: bool) -> str:
    """Return the first difference of two outcomes, or ""."""
    if actual[:2] != expected[:2]:
        return f"{actual[:2]} instead of {expected[:2]}"
    if len(actual.results) != len(expected.results):
        return "another number of results"
    for a, b in zip(actual.results, expected.results, strict=True):
        if type(a) is not type(b):
            return f"{type(a)} instead of {type(b)}"
        if not isinstance(b, (np.ndarray, np.generic)):
            if a != b:
                return f"{a} instead of {b}"
            continue
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"{a.dtype} {a.shape} instead of {b.dtype} {b.shape}"
        if isinstance(b, np.ndarray) and (a.flags.num, a.strides) != (b.flags.num, b.strides):
            return f"flags {a.flags.num} and strides {a.strides} instead of {b.flags.num} and {b.strides}"
        if b.dtype.kind not in "fc":
            if str(a) != str(b):
                return "other values"
            continue
        x, y = np.ma.getdata(np.asarray(a)), np.ma.getdata(np.asarray(b))
        if not np.array_equal(np.isfinite(x), np.isfinite(y)):
            return "other numbers are not finite"
        # A sum of products that overflow with both signs is infinite by fused operations, and NaN by separate ones.
        if not overflows and not np.array_equal(np.isnan(x), np.isnan(y)):
            return "other numbers are NaN"
        good = np.isfinite(y)
        single = x.dtype.char in "efF"
        scale = float(np.abs(y[good]).max(initial=0))
        bound = (2e-4 if single else 1e-11) * scale * max(1, condition)
        if (single and condition > 1e3) or not condition < 1e12:
            continue
        if good.any() and not (np.abs(x[good] - y[good]).max() <= bound):
            return f"{np.abs(x[good] - y[good]).max()} off, beside {scale}"
    return ""


def check(device: str, first: int, count: int) -> tuple[list[str], int]:
    """Return the differences of calls, and the number of calls of BLAS and LAPACK that went."""
    numbers = range(first, first + count)
    expected = [outcome(call_of(number)) for number in numbers]
    calls = [call_of(number) for number in numbers]
    with accelerate(device, margin=0) as on:
        actual = [outcome(call) for call in calls]
    texts = [
        difference(*both, call.condition, call.overflows) for *both, call in zip(actual, expected, calls, strict=True)
    ]
    return [f"{call.text}: {text}" for call, text in zip(calls, texts, strict=True) if text], on.report.gone


if __name__ == "__main__":
    differences, gone = check(sys.argv[1], *map(int, sys.argv[2:]))
    print(*differences, sep="\n")
    print(len(differences), "differences;", gone, "calls went")
