"""Writes a double of cuBLAS in C, for the double of a GPU.

Each function computes by the CBLAS function of the same name.

    python tests/doubles/cublas.py > cublas.c

The prototypes come from bindings/api/cublas.json, so a call with another prototype goes wrong. The double checks its
pointers: scalars have to be at the place of the pointer mode, and arrays on the device. If CBLAS has no such function,
the double computes in loops.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mixed

API = Path(__file__).parents[2] / "bindings" / "api"

ENUMS = {
    "cublasOperation_t": "{0} == 0 ? 111 : {0} == 1 ? 112 : 113",
    "cublasFillMode_t": "{0} == 0 ? 122 : 121",
    "cublasSideMode_t": "{0} == 0 ? 141 : 142",
    "cublasDiagType_t": "{0} == 0 ? 131 : 132",
}

PRELUDE = """
#include <complex.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

typedef float _Complex cuComplex;
typedef double _Complex cuDoubleComplex;
typedef int cublasStatus_t, cublasOperation_t, cublasFillMode_t, cublasSideMode_t, cublasDiagType_t;
typedef struct handle {
  int magic;
  void *context; /* that was current when it was made; NULL: none was */
  void *stream;
  void *workspace;
  size_t workspace_bytes;
  int *bit_count;
  int mode, math, atomics, sm_count, strategy, special, control, max_bits, offset;
  unsigned char has_loaded[4096]; /* by routine */
} *cublasHandle_t;

int cuCtxGetCurrent(void **context);
int gpu_double_captures(const void *stream, int (*run)(const void *, void *), const void *arguments, size_t nbytes);
int gpu_double_uses(const void *stream, const void *memory, size_t nbytes);
int gpu_double_waits(const void *stream);
int gpu_double_unsafe(void);
void gpu_double_loads(const void *stream);
int cuStreamIsCapturing(void *stream, int *status);

enum { MAGIC = 0xb1a5, SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13 };

/* The memory that a captured call had when it was captured, while it runs. */
struct inner {
  void *workspace;
  size_t nbytes;
};
static _Thread_local const struct inner *replayed;
/* A handle's first call of a routine loads its kernels and allocates, which captures of other streams may forbid. The
 * call succeeds then, and they are lost. */
static void load(struct handle *handle, int routine) {
  if (replayed || handle->has_loaded[routine]) return;
  handle->has_loaded[routine] = 1;
  gpu_double_loads(handle->stream);
}

static int is_scalar(const struct handle *handle, const void *pointer) {
  return handle && handle->magic == MAGIC && pointer && (handle->mode ? kind_of(pointer) != 0 : kind_of(pointer) != 2);
}
static int is_array(const void *pointer) { return !pointer || kind_of(pointer) != 0; }
/* An array of pointers is on the device, and so is the memory that they point to. */
static int is_list(const void *pointer, int64_t count) {
  int right = pointer && kind_of(pointer) == 2;
  for (int64_t i = 0; right && i < count; i++) right = is_array(((const void *const *)pointer)[i]);
  return right;
}

#ifndef CHECKED /* what comes after a function's checks: double of rocBLAS */
#define CHECKED
#endif

#define sum_of(sizes, count) ({ int64_t sum = 0; for (int64_t g = 0; g < (count); g++) sum += (sizes)[g]; sum; })

/* Of vectors with any increment, triangles, and operands as an operation has them; beta = 0 reads nothing. */
#define PLACE(i, n, inc) ((inc) >= 0 ? (i) * (int64_t)(inc) : ((i) - ((n) - 1)) * (int64_t)(inc))
#define IN(i, j) (uplo ? (i) <= (j) : (i) >= (j))
#define OP(A, op, i, j, ld) \\
  ((op) == 0 ? (A)[(i) + (j) * (ld)] : (op) == 1 ? (A)[(j) + (i) * (ld)] : CONJ((A)[(j) + (i) * (ld)]))
/* The size of a number as LAPACK compares them. */
#define SIZE_OF(value) (fabs(creal(value)) + fabs(cimag(value)))
#define TIMES(factor, value) ((factor) == 0 ? 0 : (factor) * (value))

static int live; /* handles */
int double_live_handles(void) { return live; }

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) { /* allocates memory */
  if (gpu_double_unsafe() || !(*handle = calloc(1, sizeof **handle))) return 3;
  (*handle)->magic = MAGIC;
  (*handle)->special = 0xffff;
  cuCtxGetCurrent(&(*handle)->context);
  __atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST);
  return SUCCESS;
}
/* A handle is good while it lives, in the context in which it was made. */
static int is_good(const struct handle *handle) {
  void *current = NULL;
  if (!handle || handle->magic != MAGIC) return 0;
  cuCtxGetCurrent(&current);
  return !handle->context || handle->context == current;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  if (!is_good(handle)) return NOT_INITIALIZED;
  if (gpu_double_unsafe()) return EXECUTION_FAILED;
  handle->magic = 0;
  free(handle);
  __atomic_sub_fetch(&live, 1, __ATOMIC_SEQ_CST);
  return SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, void *stream) {
  handle->stream = stream;
  handle->workspace = NULL;
  return SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, void **stream) { *stream = handle->stream; return SUCCESS; }
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, int mode) { handle->mode = mode; return SUCCESS; }
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, int *mode) { *mode = handle->mode; return SUCCESS; }
cublasStatus_t cublasGetProperty(int part, int *value) {
  if (part < 0 || part > 2) return INVALID_VALUE;
  *value = part ? 0 : 13;
  return SUCCESS;
}
cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
  return *version = 130000, is_good(handle) ? SUCCESS : NOT_INITIALIZED;
}
size_t cublasGetCudartVersion(void) { return 13000; }
const char *cublasGetStatusName(int status) {
  return status == SUCCESS ? "CUBLAS_STATUS_SUCCESS" : status == INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE" : "?";
}
const char *cublasGetStatusString(int status) { return status ? "the operation failed" : "the operation succeeded"; }
cublasStatus_t cublasLoggerConfigure(int on, int out, int err, const char *name) {
  FILE *file = name && on ? fopen(name, "a") : NULL;
  if (name && on && !file) return INVALID_VALUE;
  if (file) fputs("the log of the double\\n", file), fclose(file);
  return (unsigned)on > 1 || (unsigned)out > 1 || (unsigned)err > 1 ? INVALID_VALUE : SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *memory, size_t nbytes) {
  if (!is_good(handle)) return NOT_INITIALIZED;
  if (memory && (kind_of(memory) != 2 || (uintptr_t)memory % 256)) return INVALID_VALUE;
  handle->workspace = memory;
  handle->workspace_bytes = nbytes;
  return SUCCESS;
}
cublasStatus_t cublasSetFixedPointEmulationMantissaBitCountPointer(cublasHandle_t handle, int *count) {
  if (!is_good(handle)) return NOT_INITIALIZED;
  if (count && kind_of(count) == 0) return INVALID_VALUE;
  handle->bit_count = count;
  return SUCCESS;
}
cublasStatus_t cublasGetFixedPointEmulationMantissaBitCountPointer(cublasHandle_t handle, int **count) {
  return *count = handle->bit_count, SUCCESS;
}
/* Uses the memory that the handle has, as any routine may: it has to be alive. */
static int uses_memory(const struct handle *handle) {
  if (!handle) return 0;
  const struct inner now = replayed ? *replayed : (struct inner){handle->workspace, handle->workspace_bytes};
  if (now.workspace && kind_of(now.workspace) != 2) return 0;
  if (!replayed && !gpu_double_uses(handle->stream, now.workspace, now.nbytes)) return 0;
#ifndef IS_AMD /* whose double traps what touches its memory elsewhere */
  if (now.workspace) memset(now.workspace, 0x5a, now.nbytes < 65536 ? now.nbytes : 65536);
#endif
  if (handle->bit_count) *handle->bit_count = 40;
  return 1;
}
#define SETTING(name, field, right)                                     \\
  cublasStatus_t cublasSet##name(cublasHandle_t handle, int value) {    \\
    if (!handle || handle->magic != MAGIC) return NOT_INITIALIZED;      \\
    if (!(right)) return INVALID_VALUE;                                 \\
    handle->field = value;                                              \\
    return SUCCESS;                                                     \\
  }                                                                     \\
  cublasStatus_t cublasGet##name(cublasHandle_t handle, int *value) {   \\
    if (!handle || handle->magic != MAGIC) return NOT_INITIALIZED;      \\
    *value = handle->field;                                             \\
    return SUCCESS;                                                     \\
  }
SETTING(MathMode, math, 1)
SETTING(AtomicsMode, atomics, 1)
SETTING(SmCountTarget, sm_count, value >= 0)
SETTING(EmulationStrategy, strategy, 1)
SETTING(EmulationSpecialValuesSupport, special, 1)
SETTING(FixedPointEmulationMantissaControl, control, 1)
SETTING(FixedPointEmulationMaxMantissaBitCount, max_bits, 1)
SETTING(FixedPointEmulationMantissaBitOffset, offset, 1)

/* -- copies between arrays of the host and of the device -- */
static cublasStatus_t copy(int64_t rows, int64_t cols, int64_t size, const char *from, int64_t from_ld, char *to,
                           int64_t to_ld, int up) {
  if (rows < 0 || cols < 0 || size < 1 || from_ld < rows || to_ld < rows || from_ld < 1 || to_ld < 1)
    return INVALID_VALUE;
  for (int64_t j = 0; j < cols && rows; j++) {
    if (kind_of(up ? to : from) != 2 || kind_of(up ? from : to) == 2) return 11; /* mapping error */
    memcpy(to + j * to_ld * size, from + j * from_ld * size, (size_t)(rows * size));
  }
  return SUCCESS;
}
#define VECTOR(T) (T n, T size, const void *x, T incx, void *y, T incy)
#define VECTOR_ASYNC(T) (T n, T size, const void *x, T incx, void *y, T incy, void *stream)
#define MATRIX(T) (T rows, T cols, T size, const void *A, T lda, void *B, T ldb)
#define MATRIX_ASYNC(T) (T rows, T cols, T size, const void *A, T lda, void *B, T ldb, void *stream)
int cuStreamSynchronize(void *stream); /* fails for the stream of another context */
#define LINES 1, n, size, x, incx, y, incy
#define ALL rows, cols, size, A, lda, B, ldb
#define BOTH(name, T)                                                                                            \\
  cublasStatus_t cublasSetVector##name VECTOR(T) { return copy(LINES, 1); }                                      \\
  cublasStatus_t cublasGetVector##name VECTOR(T) { return copy(LINES, 0); }                                      \\
  cublasStatus_t cublasSetMatrix##name MATRIX(T) { return copy(ALL, 1); }                                        \\
  cublasStatus_t cublasGetMatrix##name MATRIX(T) { return copy(ALL, 0); }                                        \\
  cublasStatus_t cublasSetVectorAsync##name VECTOR_ASYNC(T) {                                                    \\
    return cuStreamSynchronize(stream) ? INVALID_VALUE : copy(LINES, 1);                                         \\
  }                                                                                                              \\
  cublasStatus_t cublasGetVectorAsync##name VECTOR_ASYNC(T) {                                                    \\
    return cuStreamSynchronize(stream) ? INVALID_VALUE : copy(LINES, 0);                                         \\
  }                                                                                                              \\
  cublasStatus_t cublasSetMatrixAsync##name MATRIX_ASYNC(T) {                                                    \\
    return cuStreamSynchronize(stream) ? INVALID_VALUE : copy(ALL, 1);                                           \\
  }                                                                                                              \\
  cublasStatus_t cublasGetMatrixAsync##name MATRIX_ASYNC(T) {                                                    \\
    return cuStreamSynchronize(stream) ? INVALID_VALUE : copy(ALL, 0);                                           \\
  }
BOTH(, int)
BOTH(_64, int64_t)
"""

SCALARS = {"alpha", "beta", "c", "s", "a", "b", "result", "param", "d1", "d2", "x1", "y1"}

C_TYPES = {"blasint": "int", "enum": "int", "size_t": "size_t", "void": "void", "float": "float", "double": "double"}


def c_type(text: str) -> str:
    """Return a C type of CBLAS in the types of the double."""
    if text.endswith("*"):
        return "const void *" if text.startswith("const") else "void *"
    return "int" if text.startswith("enum") else C_TYPES[text.removeprefix("const ")]


def partner(name: str, cblas: dict) -> str | None:
    """Return the name of the CBLAS function that computes the same result."""
    base = "cblas_" + name.removeprefix("cublas").removesuffix("_64").removesuffix("_v2").lower()
    return next((value for value in (base + "_sub", base) if value in cblas), None)


def checks(name: str, function: dict) -> list[str]:
    """Return the C conditions that the pointers of a function must fulfil."""
    is_on_host = any(value in name for value in ("getrs", "geqrf", "gels"))
    checks = []
    counts = {"batchCount": "batchCount", "batchSize": "batchSize", "group_size": "sum_of(group_size, group_count)"}
    count = next((counts[label] for label, _ in function["parameters"] if label in counts), "")
    for label, kind in function["parameters"]:
        if kind.endswith("*const[]"):
            checks.append(f"is_list({label}, {count})")
        elif kind.endswith("[]") or label in ("alpha_array", "beta_array"):
            checks.append(f"(!group_count || kind_of({label}) == 0)")
        elif label == "info" and is_on_host:
            checks.append("(info && kind_of(info) == 0)")
        elif kind.endswith("*"):
            checks.append(f"is_scalar(handle, {label})" if label in SCALARS else f"is_array({label})")
    return checks


def declared(function: dict) -> str:
    """Return the C text of a function's parameters."""
    return ", ".join(
        f"{kind.removesuffix('[]')} {label}{'[]' * kind.endswith('[]')}" for label, kind in function["parameters"]
    )


def captured(name: str, function: dict) -> tuple[str, str]:
    """Return the C text before a function and in it, with which a captured call is made when its graph runs.

    Host scalars are read when the call is captured. A function that writes a host scalar waits for the stream.
    """
    passed = function["parameters"]
    gives = any(
        label == "result" or (label in SCALARS and not kind.startswith("const"))
        for label, kind in passed
        if kind.endswith("*")
    )
    scalars = [
        (label, kind.removeprefix("const ").removesuffix("*"))
        for label, kind in passed
        if label in SCALARS and kind.endswith("*") and kind.startswith("const") and label != "result"
    ]
    members = "".join(f"  {kind.replace('[]', '*')} {label};\n" for label, kind in passed) + "".join(
        f"  {kind} of_{label};\n" for label, kind in scalars
    )
    arguments = [
        f"c->handle->mode ? c->{label} : &c->of_{label}" if (label in dict(scalars)) else f"c->{label}"
        for label, _ in passed
    ]
    before = (
        f"struct {name}_call {{\n{members}  struct inner inner;\n}};\n"
        f"static int {name}_later(const void *arguments, void *stream) {{\n"
        f"  const struct {name}_call *c = arguments;\n  (void)stream;\n"
        "  replayed = &c->inner;\n"
        f"  const int status = (int){name}({', '.join(arguments)});\n"
        "  replayed = NULL;\n"
        "  return status;\n}\n"
    )
    values = [label for label, _ in passed] + [f"handle->mode ? ({kind}){{0}} : *{label}" for label, kind in scalars]
    values += ["{handle->workspace, handle->workspace_bytes}"]
    inside = "  load(handle, __COUNTER__);\n"
    if gives:
        inside += "  if (!handle->mode && gpu_double_waits(handle->stream)) return EXECUTION_FAILED;\n"
    inside += (
        f"  const struct {name}_call later = {{{', '.join(values)}}};\n"
        f"  if (gpu_double_captures(handle->stream, {name}_later, &later, sizeof later)) return SUCCESS;\n"
    )
    return before, inside


def double(name: str, function: dict, partner: str, there: dict) -> str:
    """Return the C text of one function."""
    values = [value for value in function["parameters"] if value[0] != "handle"]
    wanted = list(there["parameters"])
    arguments = []
    if wanted[0][0].lower() in ("order", "layout"):
        arguments.append("102")
        wanted = wanted[1:]
    is_trmm, copies = "trmm" in partner, ""
    if is_trmm:  # cuBLAS's trmm has a separate result
        item = values[-2][1].removesuffix("*")
        copies = (
            f"  for (int64_t j = 0; j < n && C != B; j++)\n"
            f"    memcpy(C + j * ldc, B + j * ldb, (size_t)(m > 0 ? m : 0) * sizeof({item}));\n"
        )
        given_for_call = [*values[:-4], *values[-2:]]
    else:
        given_for_call = values
    for (_, kind), (label, from_kind) in zip(wanted, given_for_call, strict=False):
        if from_kind in ENUMS:
            arguments.append(ENUMS[from_kind].format(label))
        elif kind.endswith("*"):
            arguments.append(label)
        elif from_kind.endswith("*"):
            arguments.append(f"*{label}")
        else:
            arguments.append(f"(int){label}")
    call = f"scipy_{partner}({', '.join(arguments)})"
    if partner in ("cblas_caxpy", "cblas_zaxpy"):  # x may be y, unlike in OpenBLAS
        call = "for (int64_t i = 0; i < n; i++) y[PLACE(i, n, incy)] += *alpha * x[PLACE(i, n, incx)]"
    if there["returns"] != "void":
        call = f"*result = n > 0 && incx > 0 ? 1 + {call} : 0" if "cblas_i" in partner else f"*result = {call}"
    prototype = ", ".join(c_type(kind) for _, kind in there["parameters"])
    before, inside = captured(name, function)
    return (
        f"{c_type(there['returns'])} scipy_{partner}({prototype});\n"
        f"cublasStatus_t {name}({declared(function)});\n{before}"
        f"cublasStatus_t {name}({declared(function)}) {{\n"
        f"  if (!({' && '.join(checks(name, function))}) || !uses_memory(handle)) return EXECUTION_FAILED;\n"
        f"  CHECKED\n{inside}"
        f"{copies}  {call};\n  return SUCCESS;\n}}\n"
    )


# {name without type: body of a function that CBLAS lacks}. T is the type of an element, and R the type of its parts.
OWN = {
    "gemmStridedBatched": """
  for (int64_t b = 0; b < batchCount; b++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < m; i++) {
        T sum = 0, *at = C + b * strideC + i + j * ldc;
        for (int64_t l = 0; l < k; l++)
          sum += OP(A + b * strideA, transa, i, l, lda) * OP(B + b * strideB, transb, l, j, ldb);
        *at = *alpha * sum + TIMES(*beta, *at);
      }
""",
    "gemvStridedBatched": """
  const int64_t rows = trans ? n : m, columns = trans ? m : n;
  if (columns == 0) return SUCCESS;
  for (int64_t b = 0; b < batchCount; b++)
    for (int64_t i = 0; i < rows; i++) {
      T sum = 0, *at = y + b * stridey + PLACE(i, rows, incy);
      for (int64_t j = 0; j < columns; j++)
        sum += OP(A + b * strideA, trans, i, j, lda) * x[b * stridex + PLACE(j, columns, incx)];
      *at = *alpha * sum + TIMES(*beta, *at);
    }
""",
    "gemmGroupedBatched": """
  int64_t at = 0;
  for (int64_t g = 0; g < group_count; g++)
    for (int64_t b = 0; b < group_size[g]; b++, at++)
      for (int64_t j = 0; j < n_array[g]; j++)
        for (int64_t i = 0; i < m_array[g]; i++) {
          T sum = 0, *to = Carray[at] + i + j * ldc_array[g];
          for (int64_t l = 0; l < k_array[g]; l++)
            sum += OP(Aarray[at], transa_array[g], i, l, lda_array[g]) *
                   OP(Barray[at], transb_array[g], l, j, ldb_array[g]);
          *to = alpha_array[g] * sum + TIMES(beta_array[g], *to);
        }
""",
    "trsmBatched": """
  const int upper = uplo != (trans != 0), forward = upper == side; /* of op(A) */
  const int64_t order = side ? n : m, others = side ? m : n, step = side ? ldb : 1, apart = side ? 1 : ldb;
  for (int64_t b = 0; b < batchCount; b++)
    for (int64_t o = 0; o < others; o++) {
      T *x = B[b] + o * apart;
      for (int64_t s = 0; s < order; s++) {
        const int64_t i = forward ? s : order - 1 - s;
        T sum = *alpha * x[i * step];
        for (int64_t l = forward ? 0 : i + 1; l < (forward ? i : order); l++)
          sum -= (side ? OP(A[b], trans, l, i, lda) : OP(A[b], trans, i, l, lda)) * x[l * step];
        x[i * step] = diag ? sum : sum / OP(A[b], trans, i, i, lda);
      }
    }
""",
    "symv": """
  for (int64_t i = 0; i < n; i++) {
    T sum = 0, *at = y + PLACE(i, n, incy);
    for (int64_t j = 0; j < n; j++) sum += (IN(i, j) ? A[i + j * lda] : A[j + i * lda]) * x[PLACE(j, n, incx)];
    *at = *alpha * sum + TIMES(*beta, *at);
  }
""",
    "syr": """
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++)
      if (IN(i, j)) A[i + j * lda] += *alpha * x[PLACE(i, n, incx)] * x[PLACE(j, n, incx)];
""",
    "syr2": """
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++)
      if (IN(i, j))
        A[i + j * lda] += *alpha * (x[PLACE(i, n, incx)] * y[PLACE(j, n, incy)] +
                                    y[PLACE(i, n, incy)] * x[PLACE(j, n, incx)]);
""",
    "syrkx": """
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++) {
      T sum = 0, *at = C + i + j * ldc;
      for (int64_t l = 0; l < k; l++)
        sum += trans ? A[l + i * lda] * B[l + j * ldb] : A[i + l * lda] * B[j + l * ldb];
      if (IN(i, j)) *at = *alpha * sum + TIMES(*beta, *at);
    }
""",
    "herkx": """
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++) {
      T sum = 0, *at = C + i + j * ldc;
      for (int64_t l = 0; l < k; l++)
        sum += trans ? CONJ(A[l + i * lda]) * B[l + j * ldb] : A[i + l * lda] * CONJ(B[j + l * ldb]);
      if (IN(i, j)) *at = *alpha * sum + TIMES(*beta, *at);
      if (i == j) *at = creal(*at);
    }
""",
    "rot": """
  for (int64_t i = 0; i < n; i++) {
    T *a = x + PLACE(i, n, incx), *b = y + PLACE(i, n, incy), old = *a;
    *a = *c * old + *s * *b;
    *b = *c * *b - CONJ(*s) * old;
  }
""",
    "geam": """
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < m; i++)
      C[i + j * ldc] = (*alpha == 0 ? 0 : *alpha * OP(A, transa, i, j, lda)) +
                       (*beta == 0 ? 0 : *beta * OP(B, transb, i, j, ldb));
""",
    "dgmm": """
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < m; i++)
      C[i + j * ldc] = A[i + j * lda] * x[mode ? PLACE(j, n, incx) : PLACE(i, m, incx)];
""",
    "tpttr": """
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++)
      if (IN(i, j)) A[i + j * lda] = *AP++;
""",
    "trttp": """
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++)
      if (IN(i, j)) *AP++ = A[i + j * lda];
""",
}
# Bodies of several statements, as functions of one matrix: (declarations, body of the batched function).
FACTOR = """
static int NAME_factor(int n, T *A, int lda, int *P) { /* returns the place of the first zero of U, from 1 */
  int zero = 0;
  for (int k = 0; k < n; k++) {
    int pivot = k;
    for (int i = k + 1; P && i < n; i++)
      if (SIZE_OF(A[i + k * lda]) > SIZE_OF(A[pivot + k * lda])) pivot = i;
    if (P) P[k] = pivot + 1;
    for (int j = 0; j < n && pivot != k; j++) {
      const T old = A[k + j * lda];
      A[k + j * lda] = A[pivot + j * lda];
      A[pivot + j * lda] = old;
    }
    if (A[k + k * lda] == 0) zero = zero ? zero : k + 1;
    for (int i = k + 1; i < n && A[k + k * lda] != 0; i++) {
      A[i + k * lda] /= A[k + k * lda];
      for (int j = k + 1; j < n; j++) A[i + j * lda] -= A[i + k * lda] * A[k + j * lda];
    }
  }
  return zero;
}
static void NAME_swap(int n, const int *P, T *b, int back) {
  for (int s = 0; P && s < n; s++) {
    const int k = back ? n - 1 - s : s;
    const T old = b[k];
    b[k] = b[P[k] - 1];
    b[P[k] - 1] = old;
  }
}
static void NAME_solve(int trans, int n, const T *A, int lda, const int *P, T *b) {
  if (!trans) NAME_swap(n, P, b, 0);
  for (int i = 0; i < n; i++) { /* L, or U transposed */
    for (int l = 0; l < i; l++) b[i] -= OP(A, trans, i, l, lda) * b[l];
    if (trans) b[i] /= OP(A, trans, i, i, lda);
  }
  for (int i = n - 1; i >= 0; i--) {
    for (int l = i + 1; l < n; l++) b[i] -= OP(A, trans, i, l, lda) * b[l];
    if (!trans) b[i] /= A[i + i * lda];
  }
  if (trans) NAME_swap(n, P, b, 1);
}
static int NAME_invert(int n, const T *A, int lda, const int *P, T *C, int ldc) {
  for (int k = 0; k < n; k++)
    if (A[k + k * lda] == 0) return k + 1;
  for (int j = 0; j < n; j++) {
    for (int i = 0; i < n; i++) C[i + j * ldc] = i == j;
    NAME_solve(0, n, A, lda, P, C + j * ldc);
  }
  return 0;
}
"""
REFLECT = """
/* Applies I - factor v v^H from the left to columns of C; v begins with a one that is not stored. */
static void NAME_apply(int m, int n, const T *v, T factor, T *C, int ldc) {
  for (int j = 0; j < n; j++) {
    T sum = m ? C[j * ldc] : 0;
    for (int i = 1; i < m; i++) sum += CONJ(v[i]) * C[i + j * ldc];
    sum *= factor;
    if (m) C[j * ldc] -= sum;
    for (int i = 1; i < m; i++) C[i + j * ldc] -= sum * v[i];
  }
}
static void NAME_qr(int m, int n, T *A, int lda, T *tau) {
  for (int k = 0; k < m && k < n; k++) {
    T *v = A + k + k * lda;
    double rest = 0;
    for (int i = 1; i < m - k; i++) rest += creal(v[i]) * creal(v[i]) + cimag(v[i]) * cimag(v[i]);
    tau[k] = 0;
    if (rest == 0 && cimag(*v) == 0) continue;
    const double whole = sqrt(rest + creal(*v) * creal(*v) + cimag(*v) * cimag(*v));
    const double beta = creal(*v) > 0 ? -whole : whole;
    const T first = *v;
    tau[k] = (beta - first) / beta;
    for (int i = 1; i < m - k; i++) v[i] /= first - beta;
    NAME_apply(m - k, n - k - 1, v, CONJ(tau[k]), v + lda, lda);
    *v = beta;
  }
}
"""
LAPACK = {
    "getrfBatched": (
        FACTOR,
        """
  for (int b = 0; b < batchSize; b++) info[b] = NAME_factor(n, A[b], lda, P ? P + b * n : NULL);
""",
    ),
    "getrsBatched": (
        FACTOR,
        """
  *info = 0;
  for (int b = 0; b < batchSize; b++)
    for (int j = 0; j < nrhs; j++)
      NAME_solve(trans, n, Aarray[b], lda, devIpiv ? devIpiv + b * n : NULL, Barray[b] + j * ldb);
""",
    ),
    "getriBatched": (
        FACTOR,
        """
  for (int b = 0; b < batchSize; b++) info[b] = NAME_invert(n, A[b], lda, P ? P + b * n : NULL, C[b], ldc);
""",
    ),
    "matinvBatched": (
        FACTOR,
        """
  if (n > 32) return INVALID_VALUE;
  for (int b = 0; b < batchSize; b++) {
    T copy[32 * 32 + 1];
    int P[32];
    for (int j = 0; j < n; j++) memcpy(copy + j * n, A[b] + j * lda, (size_t)n * sizeof(T));
    info[b] = NAME_factor(n, copy, n, P);
    if (!info[b]) NAME_invert(n, copy, n, P, Ainv[b], lda_inv);
  }
""",
    ),
    "geqrfBatched": (
        REFLECT,
        """
  *info = 0;
  for (int b = 0; b < batchSize; b++) NAME_qr(m, n, Aarray[b], lda, TauArray[b]);
""",
    ),
    "gelsBatched": (
        REFLECT,
        """
  *info = trans ? -1 : m < n ? -2 : 0;
  if (*info) return INVALID_VALUE;
  T *tau = malloc((size_t)(n + 1) * sizeof *tau);
  for (int b = 0; b < batchSize; b++) {
    const T *A = Aarray[b];
    NAME_qr(m, n, Aarray[b], lda, tau);
    for (int k = 0; k < n; k++)
      NAME_apply(m - k, nrhs, A + k + k * lda, CONJ(tau[k]), Carray[b] + k, ldc);
    int zero = 0;
    for (int k = n; k > 0; k--) zero = A[k - 1 + (k - 1) * lda] == 0 ? k : zero;
    if (devInfoArray) devInfoArray[b] = zero;
    for (int j = 0; j < nrhs && !zero; j++)
      for (int i = n - 1; i >= 0; i--) {
        T *x = Carray[b] + j * ldc;
        for (int l = i + 1; l < n; l++) x[i] -= A[i + l * lda] * x[l];
        x[i] /= A[i + i * lda];
      }
  }
  free(tau);
""",
    ),
}
OWN["gemm3mStridedBatched"] = OWN["gemmStridedBatched"]
# The same functions with arrays of pointers.
for value, operands in (("gemm", "ABC"), ("gemv", "Axy")):
    text = OWN[f"{value}StridedBatched"]
    for operand in operands:
        text = text.replace(f"{operand} + b * stride{operand}", f"{operand}array[b]")
    OWN[f"{value}Batched"] = text.replace("x[b * stridex + ", "xarray[b][")
OWN["gemm3mBatched"] = OWN["gemmBatched"]

TYPES = {"S": ("float", ""), "D": ("double", ""), "C": ("float _Complex", "conjf"), "Z": ("double _Complex", "conj")}


def own(name: str, function: dict) -> str | None:
    """Return the C text of a function that CBLAS lacks; None if the double lacks the function, too."""
    base = name.removeprefix("cublas").removesuffix("_64").removesuffix("_v2")
    typed = mixed.body(name, function["parameters"])
    if typed:
        refused = f"  if (!({' && '.join(checks(name, function))})) return EXECUTION_FAILED;\n  CHECKED"
        return f"cublasStatus_t {name}({declared(function)}) {{\n{refused}{typed}  return SUCCESS;\n}}\n"
    if base[0] not in TYPES or (base[1:] not in OWN and base[1:] not in LAPACK):
        return None
    element, conjugate = TYPES[base[0]]
    before, body = LAPACK.get(base[1:], ("", OWN.get(base[1:], "")))
    before, body = before.replace("NAME", base), body.replace("NAME", base)
    later, inside = captured(name, function) if base[1:] in OWN and "Grouped" not in base else ("", "")
    body = inside + body
    return (
        f"#define T {element}\n#define CONJ(value) {conjugate}(value)\n{before}{later}"
        f"cublasStatus_t {name}({declared(function)}) {{\n"
        f"  if (!({' && '.join(checks(name, function))}) || !uses_memory(handle)) return EXECUTION_FAILED;\n  CHECKED"
        f"{body}  return SUCCESS;\n}}\n#undef T\n#undef CONJ\n"
    )


def main() -> None:
    """Write the double to standard output."""
    cublas = json.loads((API / "cublas.json").read_text())["functions"]
    cblas = json.loads((API / "cblas.json").read_text())["functions"]
    sys.stdout.write(PRELUDE + mixed.PRELUDE)
    prototypes, texts = [], []
    for name, function in cublas.items():
        there = partner(name, cblas)
        if not function["parameters"] or function["parameters"][0][0] != "handle":
            continue
        text = double(name, function, there, cblas[there]) if there is not None else own(name, function)
        if text:
            prototypes.append(f"cublasStatus_t {name}({declared(function)});")
            texts.append(f"\n{text}")
    sys.stdout.write("\n".join(["", *prototypes, *texts]))  # prototypes, because some call later ones


if __name__ == "__main__":
    main()
