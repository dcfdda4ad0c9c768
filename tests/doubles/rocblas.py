"""Writes a double of rocBLAS in C, for the double of HIP. Each function calls the double of cuBLAS.

    python tests/doubles/rocblas.py [--older] > rocblas.c
    python tests/doubles/rocblas.py --hidden 4 > rocblas.map

The prototypes come from bindings/api/rocblas.json and rocblas-5.json: versions 4 and 5 differ in few functions, so they
are one object file. --hidden writes a version script for the linker that hides the functions which that version lacks.
With --older, the prototypes come from rocblas-2.json. rocblas_version.c has the version that a double tells. Enums are
turned into cuBLAS's; all other arguments are the same. If cuBLAS lacks a function of several operands, it calls the
function of one operand for each. Functions without a counterpart are left out.

A handle serves one thread at a time, as a handle of rocBLAS: a second thread's call fails. A call checks its
arguments, and puts its work into the handle's stream. A call with a result for the host waits. Before
version 4.1, the results of nrm2, asum, iamax and iamin are fetched in the null stream, which does not wait for
non-blocking streams.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tomllib
from typing import Any

import cublas
import mixed

# {enum of rocBLAS: (enum of cuBLAS, expression that converts a value)}.
ENUMS = {
    "rocblas_operation": ("cublasOperation_t", "{0} - 111"),
    "rocblas_fill": ("cublasFillMode_t", "{0} == 121"),
    "rocblas_side": ("cublasSideMode_t", "{0} == 142"),
    "rocblas_diagonal": ("cublasDiagType_t", "{0} == 132"),
}

PRELUDE = """
typedef int rocblas_status, rocblas_operation, rocblas_fill, rocblas_side, rocblas_diagonal, rocblas_int;
typedef int rocblas_pointer_mode, rocblas_geam_ex_operation;
typedef int64_t rocblas_stride;
typedef cublasHandle_t rocblas_handle;
typedef int rocblas_datatype, rocblas_gemm_algo;
typedef void *hipStream_t;
typedef cuComplex rocblas_float_complex;
typedef cuDoubleComplex rocblas_double_complex;
typedef __half rocblas_half;

enum { NOT_IMPLEMENTED = 2, INTERNAL_ERROR = 6 };

/* Memory of the device can be used between these, or at other addresses. */
void hip_double_begin(void);
void hip_double_end(void);
void *hip_double_here(const void *address);
/* rocBLAS's values of a dtype as CUDA's; -1: the double has no such numbers. */
static int dtype_of(rocblas_datatype type) {
  static const int known[] = {[0] = R_16F + 1, [1] = R_32F + 1, [2] = R_64F + 1,  [4] = C_32F + 1,
                              [5] = C_64F + 1, [10] = R_8I + 1, [12] = R_32I + 1, [18] = R_16BF + 1};
  return type < 150 || type > 168 ? -1 : known[type - 150] - 1;
}
static int is_short(int type) { return type == R_16F || type == R_16BF; }
static int real_of(int type) { return type == C_32F ? R_32F : type == C_64F ? R_64F : type; }
/* Whether numbers of a dtype are computed in another. */
static int is_computed_in(int type, int wide) { return type == wide || (is_short(type) && wide == R_32F); }
static int is_product(int a, int b, int c, int d, int wide) {
  if (a != b || c != d) return 0;
  if (a == R_8I) return c == R_32I && wide == R_32I;
  if (a == R_16BF && wide == R_16BF) return 0;
  return is_computed_in(a, wide) && (c == a || c == wide);
}

static rocblas_status answer(int status) { return status ? INTERNAL_ERROR : 0; }

/* A thread that does the work of a stream calls the functions at once. */
int hip_double_at_work(void);
int hip_double_wait(const void *stream);
int hip_double_unsafe(void);
int hipMemcpy(void *to, const void *from, size_t nbytes, int kind);
int hipStreamIsCapturing(void *stream, int *status);

/* It allocates memory, which a capture may forbid. */
rocblas_status rocblas_create_handle(rocblas_handle *handle) {
  return hip_double_unsafe() ? INTERNAL_ERROR : answer(cublasCreate_v2(handle));
}
rocblas_status rocblas_destroy_handle(rocblas_handle handle) {
  if (is_good(handle)) hip_double_wait(handle->stream), free(handle->results);
  return answer(cublasDestroy_v2(handle));
}

/* Notes that a call of this thread uses the handle. Returns NULL if another thread's call uses it. */
static rocblas_handle enter(rocblas_handle handle) {
  const pthread_t own = pthread_self();
  pthread_t none = 0;
  const int is_first = __atomic_compare_exchange_n(&handle->user, &none, own, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  if (!is_first && none != own) return NULL;
  handle->calls++;
  return handle;
}
static void leave(rocblas_handle *handle) {
  if (*handle && !--(*handle)->calls) __atomic_store_n(&(*handle)->user, (pthread_t)0, __ATOMIC_SEQ_CST);
}

/* Where a handle's results are until they are fetched: memory of the device that the host can use, too. */
enum { MOST_RESULTS = 1 << 16 };
static void *results_of(rocblas_handle handle) {
  if (!handle->results) memset(handle->results = malloc(MOST_RESULTS), 0xc5, MOST_RESULTS);
  return handle->results;
}
struct fetched {
  const void *from;
  void *to;
  size_t nbytes;
};
static int fetch_later(const void *arguments, void *stream) {
  const struct fetched *f = arguments;
  return (void)stream, memcpy(f->to, f->from, f->nbytes), 0;
}
/* In a stream that is captured nothing waits: the graph writes the result. */
static rocblas_status fetch(rocblas_handle handle, void *to, size_t nbytes, int in_null_stream) {
  int status = 0;
  const struct fetched f = {handle->results, to, nbytes};
  if (in_null_stream) return answer(hipMemcpy(to, handle->results, nbytes, 2));
  hipStreamIsCapturing(handle->stream, &status);
  if (status) return gpu_double_captures(handle->stream, fetch_later, &f, sizeof f), 0;
  if (hip_double_wait(handle->stream)) return INTERNAL_ERROR;
  memcpy(to, handle->results, nbytes);
  return 0;
}
rocblas_status rocblas_set_stream(rocblas_handle h, hipStream_t stream) {
  return answer(cublasSetStream_v2(h, stream));
}
rocblas_status rocblas_get_stream(rocblas_handle h, hipStream_t *stream) {
  return answer(cublasGetStream_v2(h, stream));
}
rocblas_status rocblas_set_workspace(rocblas_handle h, void *memory, size_t nbytes) {
  return answer(cublasSetWorkspace_v2(h, memory, nbytes));
}
/* A query of memory: calls of this handle answer how much memory they need, and do nothing else. */
static rocblas_handle queried;
static size_t most_needed;
enum { MEMORY_ERROR = 5, QUERY_MISMATCH = 8, SIZE_INCREASED = 9, SIZE_UNCHANGED = 10 };
rocblas_status rocblas_start_device_memory_size_query(rocblas_handle h) {
  if (!is_good(h) || queried) return QUERY_MISMATCH;
  queried = h, most_needed = 0;
  return 0;
}
rocblas_status rocblas_stop_device_memory_size_query(rocblas_handle h, size_t *size) {
  if (queried != h) return QUERY_MISMATCH;
  queried = NULL, *size = most_needed;
  return 0;
}
/* The answer to a query, or a failure for a workspace of the caller that is too small; otherwise 0. */
int rocblas_double_needs(rocblas_handle h, size_t nbytes) {
  if (!is_good(h)) return QUERY_MISMATCH;
  if (queried != h) return h->workspace && h->workspace_bytes < nbytes ? MEMORY_ERROR : 0;
  if (nbytes <= most_needed) return SIZE_UNCHANGED;
  return most_needed = nbytes, SIZE_INCREASED;
}
int rocblas_double_is_queried(rocblas_handle h) { return queried == h; }
rocblas_status rocblas_set_pointer_mode(rocblas_handle h, rocblas_pointer_mode mode) {
  return answer(cublasSetPointerMode_v2(h, mode));
}
rocblas_status rocblas_get_pointer_mode(rocblas_handle h, rocblas_pointer_mode *mode) {
  return answer(cublasGetPointerMode_v2(h, mode));
}
extern const char rocblas_double_version[]; /* tests/doubles/rocblas_version.c */
rocblas_status rocblas_get_version_string(char *text, size_t size) {
  const size_t needed = strlen(rocblas_double_version) + 1;
  if (size < needed) return 11;
  memcpy(text, rocblas_double_version, needed);
  return 0;
}
"""


def counterpart(name: str, there: dict[str, Any]) -> str | None:
    """Return cuBLAS's name of a function of rocBLAS."""
    words = name.removeprefix("rocblas_").removesuffix("_64").split("_")
    base = "cublas" + "".join(word[:1].upper() + word[1:] for word in words)
    wide = "_64" if name.endswith("_64") else ""
    return next((name for name in (f"{base}_v2{wide}", f"{base}{wide}") if name in there), None)


def double(name: str, function: dict[str, Any], partner: str, there: dict[str, Any]) -> str | None:
    """Return the C text of one function; None if its counterpart has other parameters."""
    wanted, values = there["parameters"], function["parameters"]
    if "trmm" in name and len(values) == len(wanted) - 2:  # rocBLAS before 4.0: in place
        values = [*values, *values[-2:]]
    if len(wanted) != len(values):
        return None
    arguments = []
    for (label, kind), (_, other) in zip(values, wanted, strict=True):
        enum, expression = ENUMS.get(kind, ("", "{0}"))
        if enum != (other if other.startswith(("cublas", "cudaDataType")) and "Handle" not in other else ""):
            return None
        text = expression.format(label)
        arguments.append(f"hip_double_here({text})" if kind.endswith(("*", "[]")) else text)
    parameters = cublas.declared(function)
    call = f"answer({partner}({', '.join(arguments)}))"
    if any(kind.endswith("[]") for _, kind in values):  # the function reads addresses from memory
        call = f"0;\n  hip_double_begin();\n  status = {call};\n  hip_double_end()"
    return f"rocblas_status {name}({parameters}) {{\n  rocblas_status status = {call};\n  return status;\n}}\n"


# {name without type: body of a function that cuBLAS lacks or computes differently}; operands are in usable memory.
# rotmg is the modified rotation: each time that rocBLAS scales a weight, it sets two elements of H again.
OWN = {
    "rotmg": """
  const T step = 4096, least = 1 / (step * step), most = step * step;
  const T p1 = *d1 * *x1, p2 = *d2 * *y1, q1 = p1 * *x1, q2 = p2 * *y1;
  T flag = -1, h[2][2] = {{0, 0}, {0, 0}}, *weights[] = {d1, d2};
  if (*d1 >= 0 && p2 == 0) return *param = -2, 0;
  const int first = q1 * q1 > q2 * q2; /* the first product is the greater one */
  const T u = *d1 < 0 || (!first && q2 < 0) ? -1 : first ? 1 + p2 / p1 * (*y1 / *x1) : 1 + p1 / p2 * (*x1 / *y1);
  if (u <= 0) {
    *d1 = *d2 = *x1 = 0;
  } else if (first) {
    flag = 0, h[1][0] = -*y1 / *x1, h[0][1] = p2 / p1;
    *d1 /= u, *d2 /= u, *x1 *= u;
  } else {
    const T old = *d1;
    flag = 1, h[0][0] = p1 / p2, h[1][1] = *x1 / *y1;
    *d1 = *d2 / u, *d2 = old / u, *x1 = *y1 * u;
  }
  for (int i = 0; i < 2; i++)
    while (*weights[i] != 0 && (fabs(*weights[i]) <= least || fabs(*weights[i]) >= most)) {
      const T by = fabs(*weights[i]) <= least ? step : 1 / step;
      if (flag == 0) h[0][0] = h[1][1] = 1;
      else h[1][0] = -1, h[0][1] = 1;
      flag = -1, *weights[i] *= by * by, h[i][0] /= by, h[i][1] /= by;
      if (i == 0) *x1 /= by;
    }
  param[0] = flag;
  if (flag != 0) param[1] = h[0][0], param[4] = h[1][1];
  if (flag != 1) param[2] = h[1][0], param[3] = h[0][1];
""",
    "gemmt": """
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++) {
      T sum = 0, *at = C + i + j * ldc;
      for (int64_t l = 0; l < k && *alpha != 0; l++)
        sum += OP(A, transA - 111, i, l, lda) * OP(B, transB - 111, l, j, ldb);
      if (uplo == 121 ? i <= j : i >= j) *at = *alpha * sum + TIMES(*beta, *at);
    }
""",
}


def own(name: str, function: dict[str, Any]) -> str | None:
    """Return the C text of a function with a separate body; None if there is no body for it."""
    base = name.removeprefix("rocblas_").removesuffix("_64")
    if base[1:] not in OWN:
        return None
    element, conjugate = cublas.TYPES[base[0].upper()]
    pointers = [label for label, kind in function["parameters"] if kind.endswith("*")]
    moved = "".join(f"  {label} = hip_double_here({label});\n" for label in pointers)
    return (
        f"#define T {element}\n#define CONJ(value) {conjugate}(value)\n"
        f"rocblas_status {name}({cublas.declared(function)}) {{\n"
        f"  if (!({' && '.join(cublas.checks(name, function))})) return INTERNAL_ERROR;\n  CHECKED\n"
        f"{moved}{OWN[base[1:]]}  return 0;\n}}\n#undef T\n#undef CONJ\n"
    )


# Bodies of functions whose dtypes are arguments: checks of the dtypes, and the loops for one operand of each name.
GEMM = """
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < m; i++) {
        const wide factor = get(beta, compute, 0), old = factor == 0 ? 0 : factor * get(c, c_kind, i + j * ldc);
        wide sum = 0;
        for (int64_t l = 0; l < k; l++)
          sum += get_op(a, a_kind, transA - 111, i, l, lda) * get_op(b, b_kind, transB - 111, l, j, ldb);
        put(d, d_kind, i + j * ldd, get(alpha, compute, 0) * sum + old);
      }
"""
# Two special products: the least of sums instead of the sum of products, or the sum of the lesser elements.
GEAM = """
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < m; i++) {
        const double scale = creal(get(beta, compute, 0)), factor = creal(get(alpha, compute, 0));
        double value = scale == 0 ? 0 : scale * creal(get(C, compute, i + j * ldc));
        for (int64_t l = 0; l < k; l++) {
          const double x = creal(get_op(A, compute, transA - 111, i, l, lda));
          const double y = creal(get_op(B, compute, transB - 111, l, j, ldb));
          value = geam_ex_op == 0 ? fmin(factor * (x + y), value) : value + fmin(factor * x, factor * y);
        }
        put(D, compute, i + j * ldd, value);
      }
"""
# A system with the matrix on the right is solved as the system of the transposes. The inverses of blocks are not used.
TRSM = """
    const int is_left = side == 141;
    const int64_t order = is_left ? m : n, columns = is_left ? n : m;
    const int is_lower = (uplo == 122) ^ (transA != 111) ^ !is_left;
    for (int64_t q = 0; q < columns; q++)
      for (int64_t done = 0; done < order; done++) {
        const int64_t i = is_lower ? done : order - 1 - done, at = is_left ? i + q * ldb : q + i * ldb;
        wide sum = get(alpha, compute, 0) * get(B, compute, at);
        for (int64_t step = 0; step < done; step++) {
          const int64_t j = is_lower ? step : order - 1 - step;
          sum -= get_op(A, compute, transA - 111, is_left ? i : j, is_left ? j : i, lda) *
                 get(B, compute, is_left ? j + q * ldb : q + j * ldb);
        }
        put(B, compute, at, diag == 132 ? sum : sum / get_op(A, compute, transA - 111, i, i, lda));
      }
"""
SCALED = "alpha_kind == x_kind || alpha_kind == real_of(x_kind) || (is_short(x_kind) && alpha_kind == R_32F)"
RANK_K = """
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++) {
      if (uplo == 121 ? i > j : i < j) continue;
      const wide scale = get(beta, scale_kind, 0);
      wide sum = 0;
      for (int64_t l = 0; l < k; l++) {
        const wide left = get(A, a_kind, transA == 111 ? i + l * lda : l + i * lda);
        const wide right = get(A, a_kind, transA == 111 ? j + l * lda : l + j * lda);
        sum += !HERMITIAN ? left * right : transA == 111 ? left * conj(right) : conj(left) * right;
      }
      sum = get(alpha, scale_kind, 0) * sum + (scale == 0 ? 0 : scale * get(C, c_kind, i + j * ldc));
      put(C, c_kind, i + j * ldc, HERMITIAN && i == j ? creal(sum) : sum);
    }
"""
TYPED = {
    "syrk": (
        "is_short(a_kind) && (c_kind == a_kind || c_kind == R_32F) && execution == R_32F",
        RANK_K.replace("HERMITIAN", "0").replace("scale_kind", "execution"),
    ),
    "herk": (
        "a_kind == C_32F && (c_kind == C_32F || c_kind == C_64F) && execution == C_64F",
        RANK_K.replace("HERMITIAN", "1").replace("scale_kind", "real_of(execution)"),
    ),
    "gemm": ("is_product(a_kind, b_kind, c_kind, d_kind, compute)", GEMM),
    "geam": ("a_kind == compute && b_kind == compute && c_kind == compute && d_kind == compute", GEAM),
    "trsm": ("compute != R_16F && compute != R_8I", TRSM),
    "axpy": (f"x_kind == y_kind && is_computed_in(x_kind, execution) && ({SCALED})", mixed.AXPY),
    "scal": (f"is_computed_in(x_kind, execution) && ({SCALED})", mixed.SCAL),
    "dot": ("x_kind == result_kind && is_computed_in(x_kind, execution)", mixed.DOT.replace("OF_X", "")),
    "dotc": ("x_kind == result_kind && is_computed_in(x_kind, execution)", mixed.DOT.replace("OF_X", "conj")),
    "nrm2": (
        "result_kind == real_of(x_kind) && is_computed_in(result_kind, execution)",
        mixed.SUM.replace("ADDED", "creal(value * conj(value))").replace("TOTAL", "sqrt(sum)"),
    ),
    "rot": (
        "x_kind == y_kind && (cs_kind == x_kind || cs_kind == real_of(x_kind)) && is_computed_in(x_kind, execution)",
        mixed.ROT,
    ),
}


def typed(name: str, function: dict[str, Any]) -> str | None:
    """Return the C text of a function whose dtypes are arguments; None if there is no body for it.

    While the function runs, all addresses are usable. The names of arrays stand for the arrays of one operand at a
    time.
    """
    base, *form = name.removeprefix("rocblas_").removesuffix("_64").split("_")
    if base not in TYPED or not form or form.pop() != "ex":
        return None
    suits, body = TYPED[base]
    labels = [label for label, _ in function["parameters"]]
    arrays = [name for name in "abcdxy" if f"{name}_type" in labels and name in labels]
    arrays += [name for name in "ABCD" if name in labels]
    results = [name for name in ("result", "results") if name in labels]
    scalars = [name for name in ("alpha", "beta", "c", "s") if name in labels and name not in arrays]
    kinds = {label: label.removesuffix("_type") + "_kind" for label in labels if label.endswith("_type")}
    kinds |= {"compute_type": "compute", "execution_type": "execution"}
    kinds = {label: kind for label, kind in kinds.items() if label in labels}
    of = {"x": "x_kind", "result": "result_kind", "results": "result_kind", **dict.fromkeys("ABCD", "compute")}
    of = {name: kind if kind in kinds.values() else f"{name.lower()}_kind" for name, kind in of.items()}
    count = "batch_count" if form else "1"
    lines = [f"  const int {kind} = dtype_of({label});\n" for label, kind in kinds.items()]
    tests = [f"is_scalar(handle, {scalar})" for scalar in scalars + results] + [
        f"is_array({array})" for array in arrays
    ]
    lines += [f"  if (!({' && '.join(tests)}) || !uses_memory(handle)) return INTERNAL_ERROR;\n"]
    lines += [f"  if ({' || '.join(f'{kind} < 0' for kind in kinds.values())} || !({suits})) return NOT_IMPLEMENTED;\n"]
    lines += ["  CHECKED\n"]
    lines += [f"  void *const all_{array} = (void *){array};\n" for array in arrays + results]
    lines += ["  hip_double_begin();\n", f"  for (int64_t batch = 0; batch < {count}; batch++) {{\n"]
    for array in arrays:
        stride = next((label for label in labels if label.replace("_", "").lower() == f"stride{array.lower()}"), "0")
        at = f"(char *)all_{array} + batch * {stride} * size_of({of.get(array, f'{array}_kind')})"
        lines.append(f"    void *{array} = {f'((void **)all_{array})[batch]' if form == ['batched'] else at};\n")
    lines += [f"    void *result = (char *)all_{result} + batch * size_of(result_kind);\n" for result in results]
    for theirs, ours in (("alphaType", "alpha_kind"), ("resultType", "result_kind"), ("csType", "cs_kind")):
        body = body.replace(theirs, ours)
    body = body.replace("xType", "x_kind").replace("yType", "y_kind").replace("return NOT_SUPPORTED", "break")
    return (
        f"rocblas_status {name}({cublas.declared(function)}) {{\n{''.join(lines)}{body.lstrip(chr(10))}"
        "  }\n  hip_double_end();\n  return 0;\n}\n"
    )


def batch(name: str, function: dict[str, Any]) -> str:
    """Return the C text of a function of several operands, which calls the function of one operand for each of them."""
    arguments = []
    for place, (label, kind) in enumerate(function["parameters"]):
        rest = [c_type[1] for c_type in function["parameters"][place + 1 :]]
        pointers = (i for i, c_type in enumerate(rest) if c_type.endswith(("*", "[]")))
        strides = [i for i, c_type in enumerate(rest) if c_type == "rocblas_stride"]
        if kind == "rocblas_stride" or label == "batch_count":
            continue
        if kind.count("*") + kind.endswith("[]") > 1:
            arguments.append(f"((void *const *)hip_double_here({label}))[at]")
        elif kind.endswith("*") and strides and strides[0] < next(pointers, len(rest)):
            stride = function["parameters"][place + 1 + strides[0]][0]
            arguments.append(f"{label} + at * {stride}")
        else:
            arguments.append(f"{label} + at" if label in ("result", "results") else label)
    alone = name.replace("_strided_batched", "").replace("_batched", "")
    mode = "const int mode = handle->mode;"
    if "rotm_" in name:  # its numbers are on the device in any pointer mode
        mode += " handle->mode = 1;"
    return (
        f"rocblas_status {name}({cublas.declared(function)}) {{\n  rocblas_status status = 0;\n  {mode}\n"
        f"  for (int64_t at = 0; at < batch_count && !status; at++)\n    status = {alone}({', '.join(arguments)});\n"
        "  handle->mode = mode;\n  return status;\n}\n"
    )


# Older versions fetch the results of these functions in the null stream.
FETCHED_IN_NULL_STREAM = ("nrm2", "asum", "amax", "amin")


def in_order(name: str, function: dict[str, Any], text: str, is_older: bool) -> str:
    """Return the C text of a function that puts the work of `text` into the handle's stream."""
    values = function["parameters"]
    pointers = {label: kind for label, kind in values if kind.endswith(("*", "[]"))}
    if not pointers or values[0][0] != "handle" or name.startswith(("rocblas_set_", "rocblas_get_")):
        return text
    labels = [label for label, _ in values]
    has_lists = any(kind.count("*") + kind.endswith("[]") > 1 for kind in pointers.values())
    results = [name for name in ("result", "results") if name in pointers and not pointers[name].startswith("const")]
    numbers = [
        name
        for name, kind in pointers.items()
        if name in cublas.SCALARS and name not in results and kind.count("*") + kind.endswith("[]") == 1
        if name not in "abc" or f"{name}_type" not in labels  # arrays
    ]
    written = [number for number in numbers if not pointers[number].startswith("const")]
    copied = {number: 16 if "void" in pointers[number] else 5 if number == "param" else 1 for number in numbers}
    items = {
        number: pointers[number].removeprefix("const ").removesuffix("*").replace("void", "char") for number in numbers
    }
    text = text.replace(f"rocblas_status {name}(", f"static rocblas_status {name}_now(", 1)
    now = f"{name}_now({', '.join(labels)})"
    fields = "".join(f"  {kind.removesuffix('[]') + ('*' * kind.endswith('[]'))} {label};\n" for label, kind in values)
    fields += "  struct handle with;\n" + "".join(
        f"  {items[number]} of_{number}[{copied[number]}];\n" for number in numbers
    )
    later = [
        f"put.with.mode ? put.{label} : (void *)put.of_{label}" if label in numbers else f"put.{label}"
        for label in labels[1:]
    ]
    count = "batch_count" if "batch_count" in labels else "1"
    sizes = {
        result: "size_of(dtype_of(result_type))" if "void" in pointers[result] else f"sizeof *{result}"
        for result in results
    }
    passed = ", ".join(["&put.with", *later])
    lines = [
        f"struct {name}_call {{\n{fields}}};\n",
        f"static int {name}_later(const void *arguments, void *stream) {{\n",
        f"  struct {name}_call put = *(const struct {name}_call *)arguments;\n  (void)stream;\n",
        f"  return {name}_now({passed}) ? 999 : 0;\n}}\n",
        f"rocblas_status {name}({cublas.declared(function)}) {{\n",
        f"  if (hip_double_at_work() || only_checks) return {now};\n",
        "  if (!is_good(handle)) return 1;\n",
        "  __attribute__((cleanup(leave))) rocblas_handle entered = enter(handle);\n",
        "  if (!entered) return INTERNAL_ERROR;\n",
    ]
    if not has_lists:
        lines.append(
            f"  only_checks = 1;\n  const int wrong = {now};\n  only_checks = 0;\n  if (wrong) return wrong;\n"
        )
    if written:  # rocBLAS computes such few numbers on the host
        lines.append(f"  if (!handle->mode) return hip_double_wait(handle->stream) ? INTERNAL_ERROR : {now};\n")
    lines.append(f"  struct {name}_call put = {{{', '.join(labels)}, *handle}};\n")
    lines += [
        f"  if (!handle->mode && {number}) memcpy(put.of_{number}, {number}, sizeof put.of_{number});\n"
        for number in numbers
    ]
    lines += [f"  if (!handle->mode) put.{result} = results_of(handle);\n" for result in results]
    is_put = f"gpu_double_captures(handle->stream, {name}_later, &put, sizeof put)"
    lines.append(f"  if (!{is_put}) return INTERNAL_ERROR;\n")
    in_null_stream = int(is_older and any(fetched in name for fetched in FETCHED_IN_NULL_STREAM))
    for result in results:
        number = f"{count} * {sizes[result]}"
        lines.append(f"  if (!handle->mode) return fetch(handle, {result}, {number}, {in_null_stream});\n")
    return f"{text}{''.join(lines)}  return 0;\n}}\n"


def functions_of(version: str) -> dict[str, Any]:
    """Return the functions of an api file of rocBLAS: "-2", "" or "-5"."""
    functions: dict[str, Any] = json.loads((cublas.API / f"rocblas{version}.json").read_text())["functions"]
    return functions


def hidden(version: str) -> str:
    """Return the version script that hides the functions which version 4 or 5 lacks."""
    lacks = tomllib.loads((cublas.API.parent / "roles" / "rocblas.toml").read_text())["newer"]["lacks"]
    names = lacks if version == "5" else functions_of("-5").keys() - functions_of("")
    return f"{{ local: {' '.join(f'{name};' for name in sorted(names))} }};"


def main() -> None:
    """Print the C source of cuBLAS's double, and rocBLAS's functions, or the version script."""
    if "--hidden" in sys.argv:
        print(hidden(sys.argv[2]))
        return
    is_older = "--older" in sys.argv
    api = functions_of("-2") if is_older else functions_of("") | functions_of("-5")
    there = json.loads((cublas.API / "cublas.json").read_text())["functions"]
    base = io.StringIO()
    with contextlib.redirect_stdout(base):
        cublas.main()
    print("#define IS_AMD\n#include <pthread.h>\nstatic _Thread_local int only_checks;")
    print("#define CHECKED if (only_checks) return 0;\n")
    print(
        base.getvalue().replace(
            "struct handle {", "struct handle {\n  void *results;\n  pthread_t user;\n  int calls;"
        ),
        PRELUDE,
    )
    built = set()
    for name in sorted(api, key=lambda name: "_batched" in name):
        partner = counterpart(name.replace("_outofplace", ""), there)
        text = own(name, api[name])
        if not text and f"rocblas_status {name}(" not in PRELUDE and partner and f" {partner}(" in base.getvalue():
            text = double(name, api[name], partner, there[partner])
        text = text or typed(name, api[name])
        if not text and name.replace("_strided_batched", "").replace("_batched", "") in built:
            text = batch(name, api[name])
        if text:
            print(in_order(name, api[name], text, is_older))
            built.add(name)


if __name__ == "__main__":
    main()
