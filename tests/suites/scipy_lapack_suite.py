"""A plugin of pytest that computes SciPy's LAPACK by offload_args.lapack, for SciPy's own tests of linear algebra.

    export OFFLOAD_ARGS_DEVICE=sim:0 PYTHONPATH=tests/suites
    python -m pytest -p scipy_lapack_suite --pyargs scipy.linalg.tests.test_lapack

tests/lapack/test_scipy_suite.py runs it. SciPy's functions such as lu_factor, eigh and lstsq then call the functions of
this file, which have the arguments and results of scipy.linalg.lapack. SciPy's own functions do the rest: queries of
workspaces, and calls with arguments that they refuse. The report at the end counts the calls of each function.
"""

from __future__ import annotations

import collections
import functools
import os
import warnings
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg import _basic, _flapack
from selection import leave_out

from offload_args import InOut, PerformanceWarning, lapack, offload_args

#: {pattern of tests that do not hold for offload_args: the reason}. docs/guide/lapack.md states the same.
OTHER = {
    r"TestQR::test_lwork": "it passes a dict for overwrite_a, which only SciPy's own function refuses",
}
DTYPES = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
calls: collections.Counter[str] = collections.Counter()
tests_with_calls: set[str] = set()


def count_call(name: str) -> None:
    calls[name] += 1
    tests_with_calls.add(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0])


def device() -> str:
    return os.environ["OFFLOAD_ARGS_DEVICE"]


def call(name: str, *arrays: Any, **options: Any) -> tuple[Any, int]:
    """Call a function of lapack with arrays, which it changes; return its value and LAPACK's info."""
    lent = [InOut(array) for array in arrays if array is not None]
    try:
        with warnings.catch_warnings(), offload_args(*lent, device=device()) as pointers:
            warnings.simplefilter("ignore", PerformanceWarning)
            left = iter(pointers)
            operands = [None if array is None else next(left) for array in arrays]
            return getattr(lapack, name)(*operands, **options), 0
    except np.linalg.LinAlgError as error:  # the arrays are unchanged
        return None, getattr(error, "info", -4)


def fortran(array: Any, t: str) -> Any:
    return np.array(array, DTYPES[t], order="F")


def real(t: str) -> Any:
    return np.float32 if t in "sc" else np.float64


def uplo(lower: int) -> str:
    return "L" if lower else "U"


# -- functions of scipy.linalg.lapack: f(t, arguments) -> results ---------------------------------------------------


def potrf(t: str, a: Any, lower: int = 0, clean: int = 1, overwrite_a: int = 0) -> Any:
    c, info = fortran(a, t), np.zeros(1, np.int32)
    with offload_args(c, info, device=device()) as (dc, dinfo):
        lapack.potrf(dc, uplo=uplo(lower), info=dinfo)
    return ((np.tril(c) if lower else np.triu(c)) if clean else c), int(info[0])


def potrs(t: str, c: Any, b: Any, lower: int = 0, overwrite_b: int = 0) -> Any:
    x = np.array(b, DTYPES[t])
    _, info = call("potrs", np.array(c, DTYPES[t]), x, uplo=uplo(lower))
    return x, info


def posv(t: str, a: Any, b: Any, lower: int = 0, overwrite_a: int = 0, overwrite_b: int = 0) -> Any:
    c, x = fortran(a, t), np.array(b, DTYPES[t])
    _, info = call("posv", c, x, uplo=uplo(lower))
    return c, x, info


def potri(t: str, c: Any, lower: int = 0, overwrite_c: int = 0) -> Any:
    inverse = fortran(c, t)
    _, info = call("potri", inverse, uplo=uplo(lower))
    return inverse, info


def getrf(t: str, a: Any, overwrite_a: int = 0) -> Any:
    lu, info = fortran(a, t), np.zeros(1, np.int32)
    piv = np.zeros(min(lu.shape), np.int32)
    with offload_args(lu, piv, info, device=device()) as (dlu, dpiv, dinfo):
        lapack.getrf(dlu, dpiv, singular="keep", info=dinfo)
    return lu, piv - 1, int(info[0])


def getrs(t: str, lu: Any, piv: Any, b: Any, trans: int = 0, overwrite_b: int = 0) -> Any:
    x = np.array(b, DTYPES[t])
    _, info = call("getrs", fortran(lu, t), np.array(piv, np.int32) + 1, x, trans="NTC"[trans])
    return x, info


def gesv(t: str, a: Any, b: Any, overwrite_a: int = 0, overwrite_b: int = 0) -> Any:
    lu, x = fortran(a, t), np.array(b, DTYPES[t])
    piv = np.zeros(len(lu), np.int32)
    _, info = call("gesv", lu, piv, x)
    return lu, piv - 1, x, info


def getri(t: str, lu: Any, piv: Any, lwork: int = 0, overwrite_lu: int = 0) -> Any:
    inverse = fortran(lu, t)
    _, info = call("getri", inverse, np.array(piv, np.int32) + 1)
    return inverse, info


def geqrf(t: str, a: Any, lwork: int = 0, overwrite_a: int = 0) -> Any:
    qr = fortran(a, t)
    tau = np.zeros(min(qr.shape), qr.dtype)
    _, info = call("geqrf", qr, tau)
    return qr, tau, np.ones(1, qr.dtype), info


def orgqr(t: str, a: Any, tau: Any, lwork: int = 0, overwrite_a: int = 0) -> Any:
    q = fortran(a, t)
    _, info = call("orgqr" if t in "sd" else "ungqr", q, np.array(tau, q.dtype))
    return q, np.ones(1, q.dtype), info


def ormqr(t: str, side: Any, trans: Any, a: Any, tau: Any, c: Any, lwork: int, overwrite_c: int = 0) -> Any:
    side, trans = (word.decode() if isinstance(word, bytes) else word for word in (side, trans))
    cq = np.array(c, DTYPES[t])
    _, info = call("ormqr", fortran(a, t), np.array(tau, cq.dtype), cq, side=side, trans=trans)
    return cq, np.ones(1, cq.dtype), info


def gels(t: str, a: Any, b: Any, trans: str = "N", lwork: int = 0, overwrite_a: int = 0, overwrite_b: int = 0) -> Any:
    lqr, x = fortran(a, t), np.array(b, DTYPES[t])
    _, info = call("gels", lqr, x, trans=trans)
    return lqr, x, info


def gelsd(t: str, a: Any, b: Any, *sizes: Any, cond: float = -1.0, overwrite_a: int = 0, overwrite_b: int = 0) -> Any:
    needed = 2 if t in "sd" else 3
    cond = sizes[needed] if len(sizes) > needed else cond
    x, s = np.array(b, DTYPES[t]), np.zeros(min(np.shape(a)), real(t))
    rank, info = call("gelsd", np.array(a, DTYPES[t]), x, s, rcond=cond)
    return x, s, rank, info


def gelss(
    t: str, a: Any, b: Any, cond: float = -1.0, lwork: int = 0, overwrite_a: int = 0, overwrite_b: int = 0
) -> Any:
    x, s, rank, info = gelsd(t, a, b, cond=cond)
    return np.array(a, DTYPES[t]), x, s, rank, np.ones(1, x.dtype), info


def gecon(t: str, a: Any, anorm: float, norm: str = "1") -> Any:
    rcond, info = call("gecon", fortran(a, t), anorm=float(anorm), norm="1" if norm == "O" else norm)
    return rcond, info


def pocon(t: str, a: Any, anorm: float, uplo: str = "U") -> Any:
    rcond, info = call("pocon", np.array(a, DTYPES[t]), anorm=float(anorm), uplo=uplo)
    return rcond, info


def evd(t: str, a: Any, compute_v: int = 1, lower: int = 0, *sizes: int, overwrite_a: int = 0, **more: int) -> Any:
    v = fortran(a, t)
    w = np.zeros(len(v), real(t))
    name = "syevd" if t in "sd" else "heevd"
    _, info = call(name, v, w, jobz="V" if compute_v else "N", uplo=uplo(lower))
    return w, v, info


def evr(
    t: str,
    a: Any,
    compute_v: int = 1,
    range: str = "A",
    lower: int = 0,
    vl: float = 0.0,
    vu: float = 1.0,
    il: int = 1,
    iu: int | None = None,
    abstol: float = 0.0,
    *sizes: int,
    overwrite_a: int = 0,
    **more: int,
) -> Any:
    v = fortran(a, t)
    n, w = len(v), np.zeros(len(v), real(t))
    chosen: dict[str, Any] = {}
    if range == "I":
        chosen = {"il": il, "iu": n if iu is None else iu}
    if range == "V":
        chosen = {"vl": max(vl, -1e30), "vu": min(vu, 1e30)}  # lapack refuses infinite bounds
    name = "syevdx" if t in "sd" else "heevdx"
    m, info = call(name, v, w, jobz="V" if compute_v else "N", uplo=uplo(lower), **chosen)
    return w, v, m or 0, np.zeros(2 * n, np.int32), info


def gvd(t: str, a: Any, b: Any, itype: int = 1, jobz: str = "V", uplo: str = "L", *sizes: int, **more: int) -> Any:
    v, c = fortran(a, t), fortran(b, t)
    w = np.zeros(len(v), real(t))
    name = "sygvd" if t in "sd" else "hegvd"
    _, info = call(name, v, c, w, itype=itype, jobz=jobz, uplo=uplo)
    return w, v, info


def packed(w: Any, V: Any) -> Any:
    """Return vectors as LAPACK returns these of a real matrix: the parts of a pair in two columns."""
    columns, j = V.real.copy(order="F"), 0
    while j < len(w):
        if w[j].imag:
            columns[:, j + 1] = V[:, j].imag
            j += 1
        j += 1
    return columns


def geev(t: str, a: Any, compute_vl: int = 1, compute_vr: int = 1, lwork: int = 0, overwrite_a: int = 0) -> Any:
    A = fortran(a, t)
    n, wide = len(A), np.complex64 if t in "sc" else np.complex128
    w = np.zeros(n, wide)
    VL, VR = (np.zeros((n, n), wide, order="F") if chosen else None for chosen in (compute_vl, compute_vr))
    _, info = call("geev", A, w, VL, VR)
    none = np.zeros((1, n), DTYPES[t])
    left, right = (none if V is None else V if t in "cz" else packed(w, V) for V in (VL, VR))
    return (w, left, right, info) if t in "cz" else (w.real.copy(), w.imag.copy(), left, right, info)


def gesvd(t: str, a: Any, compute_uv: int = 1, full_matrices: int = 1, lwork: int = 0, overwrite_a: int = 0) -> Any:
    A = np.array(a, DTYPES[t])
    (m, n), k = A.shape, min(A.shape)
    order: Any = "F" if A.flags.f_contiguous else "C"
    s, U, VT = np.zeros(k, real(t)), None, None
    if compute_uv:
        U = np.zeros((m, m if full_matrices else k), A.dtype, order=order)
        VT = np.zeros((n if full_matrices else k, n), A.dtype, order=order)
    _, info = call("gesvd", A, s, U, VT)
    none = np.zeros((1, 1), A.dtype)
    return none if U is None else U, s, none if VT is None else VT, info


def sytrf(t: str, a: Any, lower: int = 0, lwork: int = 0, overwrite_a: int = 0, name: str = "sytrf") -> Any:
    ldu = fortran(a, t)
    ipiv = np.zeros(len(ldu), np.int32)
    _, info = call(name, ldu, ipiv, uplo=uplo(lower))
    if info > 0:
        call(name, ldu, ipiv, uplo=uplo(lower), singular="keep")
    return ldu, ipiv, info


def sytrs(t: str, a: Any, ipiv: Any, b: Any, lower: int = 0, overwrite_b: int = 0, name: str = "sytrs") -> Any:
    x = np.array(b, DTYPES[t])
    _, info = call(name, fortran(a, t), np.array(ipiv, np.int32), x, uplo=uplo(lower))
    return x, info


def sysv(
    t: str,
    a: Any,
    b: Any,
    lwork: int = 0,
    lower: int = 0,
    overwrite_a: int = 0,
    overwrite_b: int = 0,
    name: str = "sytr",
) -> Any:
    udut, ipiv, info = sytrf(t, a, lower, name=f"{name}f")
    x = np.array(b, DTYPES[t])
    if not info:
        x, info = sytrs(t, udut, ipiv, b, lower, name=f"{name}s")
    return udut, ipiv, x, info


def trtrs(
    t: str, a: Any, b: Any, lower: int = 0, trans: int = 0, unitdiag: int = 0, lda: int = 0, overwrite_b: int = 0
) -> Any:
    x = np.array(b, DTYPES[t])
    A = np.array(a, DTYPES[t])
    _, info = call("trtrs", A, x, uplo=uplo(lower), trans="NTC"[trans], diag="U" if unitdiag else "N")
    return x, info


hermitian = {"hetrf": (sytrf, "hetrf"), "hetrs": (sytrs, "hetrs"), "hesv": (sysv, "hetr")}
REPLACED: dict[str, Any] = {function.__name__: function for function in (potrf, potrs, posv, potri, getrf, getrs, gesv)}
REPLACED |= {function.__name__: function for function in (getri, geqrf, gels, gelsd, gelss, gecon, pocon, geev, gesvd)}
REPLACED |= {function.__name__: function for function in (sytrf, sytrs, sysv, trtrs)} | {"gesdd": gesvd}
REPLACED |= {name: functools.partial(function, name=own) for name, (function, own) in hermitian.items()}
REPLACED |= {"orgqr": orgqr, "ungqr": orgqr, "ormqr": ormqr, "unmqr": ormqr}
REPLACED |= {f"{kind}{name}": evd for kind in ("sy", "he") for name in ("evd", "ev")}
REPLACED |= {f"{kind}{name}": evr for kind in ("sy", "he") for name in ("evr", "evx")}
REPLACED |= {f"{kind}{name}": gvd for kind in ("sy", "he") for name in ("gvd", "gv")}


def replaced(t: str, name: str, own: Any, original: Any) -> Any:
    """Return a function like `original`, a function of scipy.linalg.lapack, that calls `own`."""

    @functools.wraps(original, assigned=("__doc__",), updated=())
    def function(*arguments: Any, **options: Any) -> Any:
        expected = original(*arguments, **{key: value for key, value in options.items() if "overwrite" not in key})
        info = expected[-1]
        if info < 0 or any(isinstance(value, int) and value == -1 for value in options.values()):
            return expected  # a query of the workspace, or a call that LAPACK refuses
        count_call(name[1:])
        return own(t, *arguments, **options)

    return function


# -- solve and inv of scipy.linalg, whose stacks LAPACK has in C ----------------------------------------------------


def outcome(info: int, rcond: float, dtype: Any) -> dict[str, Any]:
    ill = not info and not rcond >= np.finfo(dtype).eps
    return {"is_singular": info > 0, "lapack_info": info, "is_ill_conditioned": ill, "rcond": rcond}


def batched_solve(original: Any, a: Any, b: Any, structure: int, lower: bool, transposed: bool, *more: Any) -> Any:
    """Solve stacks of general and of definite systems; SciPy's own function solves the others."""
    if structure not in (0, 101) or 0 in a.shape or 0 in b.shape:
        return original(a, b, structure, lower, transposed, *more)
    return by_stacks(a, b, structure == 101, lower, transposed)


def batched_inv(original: Any, a: Any, structure: int, overwrite_a: Any, lower: bool) -> Any:
    if structure not in (0, 101) or 0 in a.shape:
        return original(a, structure, overwrite_a, lower)
    identity = np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape)
    return by_stacks(a, identity, structure == 101, lower, False)


def by_stacks(a: Any, b: Any, definite: bool, lower: bool, transposed: bool) -> Any:
    dtype, count = np.result_type(a, b), int(np.prod(a.shape[:-2]))
    lu, x, piv = np.array(a, dtype), np.array(b, dtype, order="C"), np.zeros(a.shape[:-1], np.int32)
    norms = abs(a).sum(axis=-2).max(axis=-1)
    count_call("posv of stacks" if definite else "gesv of stacks")
    try:
        with warnings.catch_warnings(), offload_args(lu, piv, x, device=device()) as (dlu, dp, dx):
            warnings.simplefilter("ignore", PerformanceWarning)
            if definite:
                lapack.posv(dlu, dx, uplo=uplo(lower))
                rcond = lapack.pocon(dlu, norms, uplo=uplo(lower))
            else:
                lapack.getrf(dlu, dp)
                lapack.getrs(dlu, dp, dx, trans="T" if transposed else "N")
                rcond = lapack.gecon(dlu, norms)
    except np.linalg.LinAlgError as error:
        infos = np.broadcast_to(error.info, a.shape[:-2] or 1).reshape(-1)  # type: ignore[attr-defined]
        return x, [outcome(int(info), 0.0, dtype) for info in infos]
    outcomes = [outcome(0, float(number), dtype) for number in np.broadcast_to(rcond, a.shape[:-2]).reshape(count)]
    return x, outcomes if any(each["is_ill_conditioned"] for each in outcomes) else []


def pytest_configure() -> None:
    for name, own in REPLACED.items():
        for t in "sdcz":
            original = getattr(_flapack, t + name, None)
            if original is not None:
                function = replaced(t, t + name, own, original)
                setattr(_flapack, t + name, function)
                setattr(scipy.linalg.lapack, t + name, function)
    batched = _basic._batched_linalg
    for key, own in (("_solve", batched_solve), ("_inv", batched_inv)):
        if hasattr(batched, key):
            setattr(batched, key, functools.partial(own, getattr(batched, key)))


pytest_collection_modifyitems = leave_out(OTHER)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    listed = ", ".join(f"{name} {count}" for name, count in sorted(calls.items()))
    terminalreporter.write_line(f"{len(tests_with_calls)} tests made {calls.total()} calls of lapack: {listed}")
