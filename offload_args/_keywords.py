"""Remedies for keywords that NumPy, SciPy or the vendors' libraries have, and a function of this package has not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .display import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["instead_of_keyword"]

_SIZES: Final = "leave it out: sizes, leading dimensions and increments come from the pointers"
_COPIES: Final = "leave it out: the arrays are lent as In, so that none is overwritten"
_CHOSEN: Final = "leave it out: the library chooses"

# {function or module: {keyword: remedy}}; "" stands for all functions.
_REMEDIES: Final[dict[str, dict[str, str]]] = {
    "": {
        "check_finite": "leave it out: infinities and NaN are not looked for",
        "stream": "pass stream= to offload_args, whose region's calls run on it",
        "device": "pass device= to offload_args, whose region is on this device",
        "devices": "pass device= to offload_args, whose region is on one device",
        "dtype": "the dtype is that of the arrays: convert them first, x = x.astype(dtype)",
        **dict.fromkeys(("lapack_driver", "driver", "lwork", "permc_spec", "use_umfpack", "plan"), _CHOSEN),
        **dict.fromkeys(("subset_by_index", "subset_by_value"), "leave it out: slice the results, which are in order"),
    },
    "blas": {
        "device": "it runs on the device of its pointers: pass device= to offload_args, or to call",
        "devices": "it runs on one device: pass device= to offload_args, or to call",
        **dict.fromkeys(("m", "n", "k", "lda", "ldb", "ldc", "incx", "incy", "offx", "offy"), _SIZES),
        **dict.fromkeys(("overwrite_a", "overwrite_b", "overwrite_c", "overwrite_x", "overwrite_y"), "leave it out: "
                        "the results are written into the operands"),
        "out": "the operand that gets the result stands by position",
        "axis": "pass one row or column after the other, or use kernels.reduce",
        "handle": "the vendors' functions take handle=, such as cublas.sgemm(..., handle=)",
    },
    "linalg": {
        **dict.fromkeys(("overwrite_a", "overwrite_b"), _COPIES),
        "out": "leave it out: the result is new; blas and lapack write into arrays",
        "devices": "it runs on one device: pass device=; blas.gemm and lapack.gesv, posv and potrf have devices=",
        "trans": "pass a.T",
        "transposed": "pass a.T",
    },
    "linalg.solve": {
        "assume_a": "leave it out: each a is solved by LU; lapack.posv and lapack.sytrf use the symmetry",
        "lower": "leave it out: all of a is read; lapack.posv and lapack.trtrs have uplo",
    },
    "linalg.lstsq": {"cond": "write rcond="},
    "linalg.svd": {"full": "write full_matrices="},
    "linalg.qr": {"pivoting": "leave it out, or use scipy.linalg.qr: columns are not exchanged"},
    "linalg.eigh": {
        "b": "lapack.sygvd and hegvd solve generalized problems",
        "eigvals_only": "call linalg.eigvalsh",
    },
    "linalg.eigvalsh": {"b": "lapack.sygvd and hegvd solve generalized problems"},
    "linalg.matmul": {"axes": "move the axes first: np.moveaxis(a, ...)", "axis": "move the axes first: np.moveaxis"},
    "fft": {"out": "leave it out: the result is new", "axes": "write axis=", "axis": "write axes=",
            "s": "write n=", "n": "write s="},
    "sparse": {
        **dict.fromkeys(("overwrite_A", "overwrite_b"), _COPIES),
        "transa": "write trans=",
        "trans_a": "write trans=",
    },
    "lapack": {
        "clean": "leave it out: the other triangle stays as it was; np.triu or np.tril clears it",
        "compute_v": 'write jobz="V", or jobz="N" for the eigenvalues alone',
        "compute_vl": "pass VL, or None",
        "compute_vr": "pass VR, or None",
        "compute_uv": "pass U and VT, or leave them out",
        "full_matrices": 'write jobu="A" and jobvt="A", or "S"',
        "cond": "write rcond=",
        "eigvals_only": 'write jobz="N"',
    },
    "kernel": dict.fromkeys(
        ("device", "devices", "target"), "a kernel runs on the device of its arguments: pass device= to offload"
    ),
    "reduction": {"out": "the result stands after the arrays: total(x, result)"},
    "trace": {"file": "save it after the block: with trace() as t: ...; t.save(file)"},
}  # fmt: skip
_TRIANGLES: Final = {
    "uplo": 'write uplo="L" for the lower triangle, uplo="U" for the upper one',
    "UPLO": 'write UPLO="L" for the lower triangle, UPLO="U" for the upper one',
    "upper": "write upper=False for the lower triangle, upper=True for the upper one",
}


def instead_of_keyword(function: str, word: str, names: Sequence[str]) -> str:
    """Return the remedy for an unknown keyword, such as "; write uplo="L"", or "".

    function: its name in programs, such as "blas.gemv". names: the names of its parameters.
    """
    module = function.partition(".")[0]
    remedies = _REMEDIES[""] | (_REMEDIES["blas"] if module == "lapack" else {})
    remedies |= _REMEDIES.get(module, {}) | _REMEDIES.get(function, {})
    trans = [name for name in names if name.startswith("trans")]
    if word in ("lower", "uplo", "UPLO", "upper"):
        triangle = [remedy for name, remedy in _TRIANGLES.items() if name in names]
        if triangle:
            return f"; {triangle[0]}"
    elif word.startswith("unit") and ("diag" in names or "unit_diagonal" in names):
        return '; write diag="U" for ones on the diagonal' if "diag" in names else "; write unit_diagonal=True"
    elif word.lower().startswith("trans") and trans:
        return f"; write {' and '.join(f'{name}=' for name in trans)}" + ', such as "T"'
    elif word == "out" and "result" in names:
        return "; write result=, a pointer to one element; without it, the number is returned"
    remedy = remedies.get(word, "")
    if remedy.startswith("write ") and remedy.endswith("=") and remedy[6:-1] not in names:
        remedy = ""
    if not remedy and word.swapcase() in names:
        remedy = f"write {word.swapcase()}="
    return f"; {remedy}" if remedy else nearest(word, names)
