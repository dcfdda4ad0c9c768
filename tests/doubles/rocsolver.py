"""Writes a double of rocSOLVER in C, for the double of HIP.

Each function computes by LAPACKE's function of the same name.

    python tests/doubles/rocsolver.py > rocsolver.c

The prototypes come from bindings/api/rocsolver.json. A call checks its arguments, and puts its work into the stream of
its handle, which is a handle of rocBLAS's double. The work is done when something waits for the stream. Arrays and info
have to be on the device. A captured stream is refused. In a query of memory, a call answers the memory that it needs; a
workspace of the caller that is smaller is refused.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

API = Path(__file__).parents[2] / "bindings" / "api" / "rocsolver.json"

PRELUDE = """
#include <complex.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

typedef int rocblas_status, rocblas_int, rocblas_operation, rocblas_fill, rocblas_side, rocblas_evect, rocblas_svect;
typedef int rocblas_workmode, rocblas_eform, rocblas_erange;
typedef int64_t rocblas_stride;
typedef struct handle *rocblas_handle;
typedef float _Complex rocblas_float_complex;
typedef double _Complex rocblas_double_complex;

enum { INVALID_HANDLE = 1, INVALID_POINTER = 3, INVALID_SIZE = 4, INTERNAL_ERROR = 6, INVALID_VALUE = 11 };
enum { COLUMNS = 102 }; /* LAPACKE's order */
enum { LEFT = 141, BY_VALUE = 232, BY_INDEX = 233, ORIGINAL = 211, ALL = 191, SINGULAR = 192, OVERWRITE = 193 };

typedef int operation(const void *arguments, void *stream);
int gpu_double_captures(const void *stream, operation *run, const void *arguments, size_t nbytes);
int hipStreamIsCapturing(void *stream, int *status);
void *hip_double_here(const void *address);
rocblas_status rocblas_get_stream(rocblas_handle handle, void **stream);
int rocblas_double_is_queried(rocblas_handle handle);
int rocblas_double_needs(rocblas_handle handle, size_t nbytes);
void scipy_LAPACKE_set_nancheck(int);

static int is_array(const void *pointer) { return !pointer || kind_of(pointer) != 0; }
static int least(int m, int n) { return m < n ? m : n; }
static char uplo_of(int uplo) { return uplo == 121 ? 'U' : 'L'; }
static char trans_of(int trans) { return "NTC"[trans - 111]; }
static char vectors_of(int evect) { return evect == 211 ? 'V' : 'N'; }
static char job_of(int svect) { return svect == 191 ? 'A' : svect == 192 ? 'S' : 'N'; }

rocblas_status rocsolver_get_version_string(char *text, size_t size) {
  const char version[] = "3.28.0";
  if (size < sizeof version) return INVALID_SIZE;
  memcpy(text, version, sizeof version);
  return 0;
}
/* rocSOLVER does not look for NaN. */
__attribute__((constructor)) static void as_rocsolver(void) { scipy_LAPACKE_set_nancheck(0); }
/* The stream of a handle. Its work is never captured. */
static rocblas_status begin(rocblas_handle handle, void **stream) {
  int captured = 0;
  if (!handle || rocblas_get_stream(handle, stream)) return INVALID_HANDLE;
  return hipStreamIsCapturing(*stream, &captured) || captured ? INTERNAL_ERROR : 0;
}
"""

# {t} is the letter, {T} the type, {R} its real type, and {sy} and {or} are the names for the type.
DECLARED = """
int scipy_LAPACKE_{t}potrf(int, char, int, {T} *, int);
int scipy_LAPACKE_{t}potri(int, char, int, {T} *, int);
int scipy_LAPACKE_{t}potrs(int, char, int, int, const {T} *, int, {T} *, int);
int scipy_LAPACKE_{t}posv(int, char, int, int, {T} *, int, {T} *, int);
int scipy_LAPACKE_{t}getrf(int, int, int, {T} *, int, int *);
int scipy_LAPACKE_{t}getrs(int, char, int, int, const {T} *, int, const int *, {T} *, int);
int scipy_LAPACKE_{t}laswp(int, int, {T} *, int, int, int, const int *, int);
int scipy_LAPACKE_{t}getri(int, int, {T} *, int, const int *);
int scipy_LAPACKE_{t}gesv(int, int, int, {T} *, int, int *, {T} *, int);
int scipy_LAPACKE_{t}sytrf(int, char, int, {T} *, int, int *);
int scipy_LAPACKE_{t}geqrf(int, int, int, {T} *, int, {T} *);
int scipy_LAPACKE_{t}{or}mqr(int, char, char, int, int, int, const {T} *, int, const {T} *, {T} *, int);
int scipy_LAPACKE_{t}{or}gqr(int, int, int, int, {T} *, int, const {T} *);
int scipy_LAPACKE_{t}{sy}evd(int, char, char, int, {T} *, int, {R} *);
int scipy_LAPACKE_{t}{sy}evr(int, char, char, char, int, {T} *, int, {R}, {R}, int, int, {R}, int *, {R} *, {T} *, int,
                             int *);
int scipy_LAPACKE_{t}{sy}gvd(int, int, char, char, int, {T} *, int, {T} *, int, {R} *);
int scipy_LAPACKE_{t}gesvd(int, char, char, int, int, {T} *, int, {R} *, {T} *, int, {T} *, int, {R} *);
"""

# {function: its work for one matrix}. Operands have the names of the header's parameters.
BODIES = {
    "potrf": "*info = scipy_LAPACKE_{t}potrf(COLUMNS, uplo_of(uplo), n, A, lda);",
    "potri": "*info = scipy_LAPACKE_{t}potri(COLUMNS, uplo_of(uplo), n, A, lda);",
    "potrs": "scipy_LAPACKE_{t}potrs(COLUMNS, uplo_of(uplo), n, nrhs, A, lda, B, ldb);",
    "posv": "*info = scipy_LAPACKE_{t}posv(COLUMNS, uplo_of(uplo), n, nrhs, A, lda, B, ldb);",
    "getrf": "*info = scipy_LAPACKE_{t}getrf(COLUMNS, m, n, A, lda, ipiv);",
    "getrs": "scipy_LAPACKE_{t}getrs(COLUMNS, trans_of(trans), n, nrhs, A, lda, ipiv, B, ldb);",
    "laswp": "scipy_LAPACKE_{t}laswp(COLUMNS, n, A, lda, k1, k2, ipiv, incx);",
    "getri": "*info = scipy_LAPACKE_{t}getri(COLUMNS, n, A, lda, ipiv);",
    "gesv": "*info = scipy_LAPACKE_{t}gesv(COLUMNS, n, nrhs, A, lda, ipiv, B, ldb);",
    "sytrf": "*info = scipy_LAPACKE_{t}sytrf(COLUMNS, uplo_of(uplo), n, A, lda, ipiv);",
    "geqrf": "scipy_LAPACKE_{t}geqrf(COLUMNS, m, n, A, lda, ipiv);",
    "mqr": """scipy_LAPACKE_{t}{or}mqr(COLUMNS, side == 141 ? 'L' : 'R', trans_of(trans), m, n, k, A, lda, ipiv, C,
                               ldc);""",
    "gqr": "scipy_LAPACKE_{t}{or}gqr(COLUMNS, m, n, k, A, lda, ipiv);",
    "evd": """*info = scipy_LAPACKE_{t}{sy}evd(COLUMNS, vectors_of(evect), uplo_of(uplo), n, A, lda, D);
    for (int i = 0; i < n; i++) E[i] = -7;""",
    "evx": """int *support = malloc((size_t)(2 * n + 2) * sizeof *support);
    *info = scipy_LAPACKE_{t}{sy}evr(COLUMNS, vectors_of(evect), "AVI"[erange - 231], uplo_of(uplo), n, A, lda, vl, vu,
                                     il, iu, abstol, nev, W, Z, ldz, support);
    for (int i = 0; i < n; i++) ifail[i] = 0;
    free(support);""",
    "gvd": """*info = scipy_LAPACKE_{t}{sy}gvd(COLUMNS, itype - 220, vectors_of(evect), uplo_of(uplo), n, A, lda, B,
                                     ldb, D);
    for (int i = 0; i < n; i++) E[i] = -7;""",
    "gesvd": """*info = scipy_LAPACKE_{t}gesvd(COLUMNS, job_of(left_svect), job_of(right_svect), m, n, A, lda, S, U,
                                   ldu, V, ldv, E);""",
}

# {function: the sizes that rocSOLVER refuses, the arrays that it misses}, beside negative sizes and an info of NULL, as
# the checks of arguments in rocSOLVER's sources have them. An array without elements may be NULL.
REFUSED = {
    "potrf": ("lda < n", "n && !A"),
    "potri": ("lda < n", "n && !A"),
    "potrs": ("lda < n || ldb < n", "(n && !A) || (n && nrhs && !B)"),
    "posv": ("lda < n || ldb < n", "(n && !A) || (n && nrhs && !B)"),
    "getrf": ("lda < m", "m && n && (!A || !ipiv)"),
    "getrs": ("lda < n || ldb < n", "(n && (!A || !ipiv)) || (n && nrhs && !B)"),
    "laswp": ("lda < 1 || k1 < 1 || k2 < k1 || !incx", "(n && !A) || !ipiv"),
    "getri": ("lda < n", "n && (!A || !ipiv)"),
    "gesv": ("lda < n || ldb < n", "(n && (!A || !ipiv)) || (n && nrhs && !B)"),
    "sytrf": ("lda < n", "n && (!A || !ipiv)"),
    "geqrf": ("lda < m", "m && n && (!A || !ipiv)"),
    "mqr": (
        "ldc < m || (side == LEFT ? k > m || lda < m : k > n || lda < n)",
        "(m && n && !C) || (k && !ipiv) || ((side == LEFT ? m : n) && k && !A)",
    ),
    "gqr": ("n > m || k > n || lda < m", "(k && !ipiv) || (m && n && !A)"),
    "evd": ("lda < n", "n && (!A || !D || !E)"),
    "evx": (
        """lda < n || (evect == ORIGINAL && ldz < n) || (erange == BY_VALUE && vl >= vu) ||
      (erange == BY_INDEX && (il < 1 || iu < 0 || iu > n || (n && il > iu)))""",
        "(n && (!A || !W)) || !nev || (evect == ORIGINAL && n && (!Z || !ifail))",
    ),
    "gvd": ("lda < n || ldb < n", "n && (!A || !B || !D || !E)"),
    "gesvd": (
        """lda < m || ldu < 1 || ldv < 1 || ((left_svect == ALL || left_svect == SINGULAR) && ldu < m) ||
      (right_svect == ALL && ldv < n) || (right_svect == SINGULAR && ldv < least(m, n))""",
        """(m && n && (!A || !S)) || (least(m, n) > 1 && !E) || (left_svect == ALL && m && !U) ||
      (left_svect == SINGULAR && m && n && !U) || ((right_svect == ALL || right_svect == SINGULAR) && n && !V)""",
    ),
}

TYPES = {
    "s": ("float", "float", "or", "sy"),
    "d": ("double", "double", "or", "sy"),
    "c": ("rocblas_float_complex", "float", "un", "he"),
    "z": ("rocblas_double_complex", "double", "un", "he"),
}


def filled(text: str, letter: str) -> str:
    """Return a text in which the words of a type replace the names in braces."""
    kind, real, of_q, of_eigenvalues = TYPES[letter]
    for word, meaning in (("t", letter), ("T", kind), ("R", real), ("or", of_q), ("sy", of_eigenvalues)):
        text = text.replace(f"{{{word}}}", meaning)
    return text


def double(name: str, function: dict[str, Any]) -> str:
    """Return the C text of one function."""
    base = name.removeprefix("rocsolver_").removesuffix("_strided_batched")
    letter, values = base[0], function["parameters"][1:]
    body = BODIES.get(base[1:]) or BODIES[base[3:]]
    pointers = [label for label, kind in values if kind.endswith("*")]
    strides, last = {}, ""
    for label, kind in values:
        last = label if kind.endswith("*") else last
        if kind == "rocblas_stride":
            strides[last] = label
    count = "batch_count" if "batch_count" in dict(values) else "1"
    moved = []
    for label, kind in values:
        if kind.endswith("*"):
            step = f"c.{strides[label]}" if label in strides else "1"  # without a stride, one element for each matrix
            element = kind.removeprefix("const ").removesuffix("*").strip()
            here = f"({element} *)hip_double_here(c.{label}) + b * (int64_t){step}"
            moved.append(f"    {element} *{label} = {here};\n")
    kept = "".join(f"  const {kind} {label} = c.{label};\n" for label, kind in values if label not in pointers)
    kept += "".join(f"  (void){label};\n" for label, _ in values if label not in pointers)
    fields = "".join(f"  {kind} {label};\n" for label, kind in values)
    declared = ", ".join(f"{kind} {label}" for label, kind in function["parameters"])
    sizes = [label for label, _ in values if label in ("m", "n", "k", "nrhs", "batch_count")]
    sizes_refused, missing = REFUSED.get(base[1:]) or REFUSED[base[3:]]
    values_refused = ["left_svect == OVERWRITE && right_svect == OVERWRITE"] if base.endswith("gesvd") else []
    if "trans" in dict(values) and base.endswith("mqr"):
        values_refused.append(f"trans == {112 if letter in 'cz' else 113}")  # transposed if complex, conjugate if real
    needed = f"(size_t)64 * ({' + '.join(sizes)})"
    checks = [
        *(f"  if ({refused}) return INVALID_VALUE;\n" for refused in values_refused),
        f"  if ({' || '.join(f'{size} < 0' for size in sizes)} || {sizes_refused}) return INVALID_SIZE;\n",
        f"  if (rocblas_double_is_queried(handle)) return rocblas_double_needs(handle, {needed});\n",
        f"  if ({' || '.join(f'!is_array({pointer})' for pointer in pointers)}) return INVALID_POINTER;\n",
        f"  if ({missing}) return INVALID_POINTER;\n",
        "  if (kind_of(info) != 2) return INVALID_POINTER;\n" if "info" in pointers else "",
        f"  if (rocblas_double_needs(handle, {needed})) return rocblas_double_needs(handle, {needed});\n",
    ]
    return (
        f"struct {name}_call {{\n{fields}}};\n"
        f"static int {name}_later(const void *arguments, void *stream) {{\n"
        f"  const struct {name}_call c = *(const struct {name}_call *)arguments;\n{kept}"
        f"  for (int b = 0; b < {count}; b++) {{\n{''.join(moved)}    {filled(body, letter)}\n  }}\n"
        "  return (void)stream, 0;\n}\n"
        f"rocblas_status {name}({declared}) {{\n  void *stream = NULL;\n"
        f"  const rocblas_status status = begin(handle, &stream);\n  if (status) return status;\n{''.join(checks)}"
        f"  const struct {name}_call c = {{{', '.join(label for label, _ in values)}}};\n"
        f"  if (!gpu_double_captures(stream, {name}_later, &c, sizeof c)) {name}_later(&c, stream);\n"
        "  return 0;\n}\n"
    )


def text() -> str:
    """Return the C text of the double."""
    functions = json.loads(API.read_text())["functions"]
    parts = [PRELUDE, *(filled(DECLARED, letter) for letter in TYPES)]
    parts += [
        double(name, function)
        for name, function in functions.items()
        if name.startswith("rocsolver_") and "version" not in name
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(text())
