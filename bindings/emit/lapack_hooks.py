"""Writes the hooks that replace LAPACK in other modules, with Fortran's names, and with integers of 32 or of 64 bits.

A hook passes workspace queries and small calls to its original. It passes the arguments of other calls to
csrc/accelerate/lapack.h, whose struct has a field for each name of a parameter in this module.
"""

from __future__ import annotations

from .c_text import wrapped

_QR = "a lda tau work lwork info"
_RANGE = "jobz range uplo n a lda vl vu il iu abstol found w z ldz isuppz work lwork"
_SVD = "jobz m n a lda s u ldu vt ldvt work lwork"
_LEAST_SQUARES = "m n nrhs a lda b ldb s rcond rank work lwork"
# {routine: (its types, its parameters, three sizes, its family in C)}. The product of the sizes is about the number of
# multiplications.
_ROUTINES: dict[str, tuple[str, str, str, str]] = {
    "potrf": ("sdcz", "uplo n a lda info", "n n n", "potrf"),
    "potri": ("sdcz", "uplo n a lda info", "n n n", "potri"),
    "potrs": ("sdcz", "uplo n nrhs a lda b ldb info", "n n nrhs", "potrs"),
    "trtrs": ("sdcz", "uplo trans diag n nrhs a lda b ldb info", "n n nrhs", "trtrs"),
    "trtri": ("sdcz", "uplo diag n a lda info", "n n n", "trtri"),
    "gesv": ("sdcz", "n nrhs a lda ipiv b ldb info", "n n n", "gesv"),
    "getrf": ("sdcz", "m n a lda ipiv info", "m n m<n", "getrf"),
    "getrs": ("sdcz", "trans n nrhs a lda ipiv b ldb info", "n n nrhs", "getrs"),
    "getri": ("sdcz", "n a lda ipiv work lwork info", "n n n", "getri"),
    "geqrf": ("sdcz", f"m n {_QR}", "m n m<n", "geqrf"),
    "orgqr": ("sd", f"m n k {_QR}", "m n k", "orgqr"),
    "ungqr": ("cz", f"m n k {_QR}", "m n k", "orgqr"),
    "ormqr": ("sd", "side trans m n k a lda tau c ldc work lwork info", "m n k", "ormqr"),
    "unmqr": ("cz", "side trans m n k a lda tau c ldc work lwork info", "m n k", "ormqr"),
    "syevd": ("sd", "jobz uplo n a lda w work lwork iwork liwork info", "n n n", "syevd"),
    "heevd": ("cz", "jobz uplo n a lda w work lwork rwork lrwork iwork liwork info", "n n n", "syevd"),
    "syevr": ("sd", f"{_RANGE} iwork liwork info", "n n n", "syevr"),
    "heevr": ("cz", f"{_RANGE} rwork lrwork iwork liwork info", "n n n", "syevr"),
    "gesdd": ("sd", f"{_SVD} iwork info", "m n m<n", "gesdd"),
    "gelsd": ("sd", f"{_LEAST_SQUARES} iwork info", "m n m<n", "gelsd"),
}
_COMPLEX = {"gesdd": f"{_SVD} rwork iwork info", "gelsd": f"{_LEAST_SQUARES} rwork iwork info"}
# {function of NumPy whose loops have hooks in csrc/accelerate/loops.c: the family that selects it, for real and for
# complex numbers}
_LOOPS = {
    "solve": ("gesv", "gesv"),
    "inv": ("gesv", "gesv"),
    "cholesky": ("potrf", "potrf"),
    "eigh": ("syevd", "heevd"),
    "eigvalsh": ("syevd", "heevd"),
    "svd": ("gesdd", "gesdd"),
    "gram": ("syrk", "syrk"),
    "qr": ("geqrf", "geqrf"),
    "qr_q": ("orgqr", "ungqr"),
    "lstsq": ("gelsd", "gelsd"),
}
_LETTERS = {"uplo", "trans", "diag", "side", "jobz", "range"}
_SIZES = set("m n k nrhs lda ldb ldc ldu ldvt ldz il iu lwork lrwork liwork".split())
_CONST = {"vl", "vu", "abstol", "rcond"}
_DTYPES = {"s": "F32", "d": "F64", "c": "C64", "z": "C128"}


def lapack_routines() -> list[str]:
    """Return the names of all routines, such as "dpotrf"."""
    names = [letter + base for base, (letters, *_) in _ROUTINES.items() for letter in letters]
    return sorted([*names, *(letter + base for base in _COMPLEX for letter in "cz")])


def loop_routines() -> dict[str, str]:
    """Return {name of each of NumPy's functions with a letter, such as "dsolve": its family}."""
    return {letter + base: families[letter in "cz"] for base, families in _LOOPS.items() for letter in "sdcz"}


def loop_row(name: str, number: int, family: int) -> list[str]:
    """Return the row of one of NumPy's functions, which has no hooks of its own, in the table of all hooks."""
    return [f'    {{"{name}", {family}, OA_{lapack_dtype(name)}, {number}, {{{{NULL}}}}, {{{{NULL}}}}}},']


def lapack_dtype(name: str) -> str:
    """Return the end of a routine's OA_ constant."""
    return _DTYPES[name[0]]


def _parameters(name: str) -> list[str]:
    base = name[1:]
    return (_COMPLEX[base] if base in _COMPLEX and name[0] in "cz" else _ROUTINES[base][1]).split()


def _declared(name: str) -> str:
    if name in _LETTERS:
        return f"const char *{name}"
    return f"const INT *{name}" if name in _SIZES else f"const void *{name}" if name in _CONST else f"void *{name}"


def _value(name: str) -> str:
    if name in _LETTERS:
        return f"oa_capital({name})"
    if name in ("il", "iu"):  # these are not read if all eigenvalues are computed
        return f"{name} ? *{name} : 0"
    return f"*{name}" if name in _SIZES else name


def lapack_hook(name: str, number: int) -> list[str]:
    """Return the hooks of one routine, as macros of the type of integers, its width and the variant."""
    names = _parameters(name)
    sizes, family = _ROUTINES[name[1:]][2:]
    lengths = [f"length_{name}" for name in names if name in _LETTERS]  # calls from C do not pass them
    declared = ", ".join([*map(_declared, names), *(f"size_t {length}" for length in lengths)])
    passed = ", ".join([*names, *lengths])
    queries = [f"*{name} == -1 || " for name in names if name in ("lwork", "lrwork", "liwork")]
    counted = ", ".join("*m < *n ? *m : *n" if size == "m<n" else f"*{size}" for size in sizes.split())
    values = ", ".join([".wide = sizeof(INT) == 8", *(f".{name} = {_value(name)}" for name in names)])
    return [
        f"#define FORTRAN_{name}(INT, W)",
        f"static OA_LARGE void fortran_{name}_##W({declared}, void (*original)({declared})) {{",
        f"  const oa_lapack_arguments passed = {{{values}}};",
        "  oa_program_call call;",
        f"  if (oa_lapack_try(&oa_lapack_{family}_family, &routines[{number}], &passed, &call)) return;",
        f"  original({passed});",
        "  oa_lapack_by_host(&call, &passed);",
        "}",
        f"#define FORTRAN_{name}_VARIANT(INT, W, V)",
        f"static void fortran_{name}_##W##_##V({declared}) {{",
        f"  typedef void function({declared});",
        f"  function *original = (function *)OA_ORIGINAL(fortran_{name}_originals_##W, V);",
        f"  if ({''.join(queries)}oa_program_is_small({counted})) {{",
        f"    original({passed});",
        "    return;",
        "  }",
        f"  fortran_{name}_##W({passed}, original);",
        "}",
    ]


def lapack_row(name: str, number: int, family: int) -> list[str]:
    """Return the row of one routine in the table of all hooks."""
    lists = (f"{{{{NULL, NULL}}, {{fortran_{name}_{table}_32, fortran_{name}_{table}_64}}}}"
             for table in ("hooks", "originals"))  # fmt: skip
    return wrapped(f'    {{"{name}", {family}, OA_{lapack_dtype(name)}, {number}, {", ".join(lists)}}},')
