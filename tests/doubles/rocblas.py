"""Writes a double of rocBLAS in C, for the double of HIP: each function is that of the double of cuBLAS.

    python tests/doubles/rocblas.py [--older] > rocblas.c

The prototypes are those of bindings/api/rocblas.json, with --older those of rocblas-2.json. Enums are turned into
cuBLAS's; all else is the same. A function of several operands that cuBLAS lacks calls the one of one operand.
Functions without a counterpart are left out.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

import cublas
import mixed

# rocBLAS's values of an enum as cuBLAS's.
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

rocblas_status rocblas_create_handle(rocblas_handle *handle) { return answer(cublasCreate_v2(handle)); }
rocblas_status rocblas_destroy_handle(rocblas_handle handle) { return answer(cublasDestroy_v2(handle)); }
rocblas_status rocblas_set_stream(rocblas_handle h, hipStream_t stream) {
  return answer(cublasSetStream_v2(h, stream));
}
rocblas_status rocblas_get_stream(rocblas_handle h, hipStream_t *stream) {
  return answer(cublasGetStream_v2(h, stream));
}
rocblas_status rocblas_set_pointer_mode(rocblas_handle h, rocblas_pointer_mode mode) {
  return answer(cublasSetPointerMode_v2(h, mode));
}
rocblas_status rocblas_get_pointer_mode(rocblas_handle h, rocblas_pointer_mode *mode) {
  return answer(cublasGetPointerMode_v2(h, mode));
}
rocblas_status rocblas_get_version_string(char *text, size_t size) {
  const char version[] = "VERSION";
  if (size < sizeof version) return 11;
  memcpy(text, version, sizeof version);
  return 0;
}
"""


def counterpart(name: str, there: dict[str, Any]) -> str | None:
    """Return cuBLAS's name of a function of rocBLAS."""
    words = name.removeprefix("rocblas_").removesuffix("_64").split("_")
    base = "cublas" + "".join(word[:1].upper() + word[1:] for word in words)
    wide = "_64" if name.endswith("_64") else ""
    return next((one for one in (f"{base}_v2{wide}", f"{base}{wide}") if one in there), None)


def double(name: str, function: dict[str, Any], partner: str, there: dict[str, Any]) -> str | None:
    """Return the C text of one function; None if the other's parameters are not the same."""
    wanted, given = there["parameters"], function["parameters"]
    if "trmm" in name and len(given) == len(wanted) - 2:  # rocBLAS before 4.0: in place
        given = [*given, *given[-2:]]
    if len(wanted) != len(given):
        return None
    arguments = []
    for (label, kind), (_, other) in zip(given, wanted, strict=True):
        enum, expression = ENUMS.get(kind, ("", "{0}"))
        if enum != (other if other.startswith(("cublas", "cudaDataType")) and "Handle" not in other else ""):
            return None
        text = expression.format(label)
        arguments.append(f"hip_double_here({text})" if kind.endswith(("*", "[]")) else text)
    parameters = cublas.declared(function)
    call = f"answer({partner}({', '.join(arguments)}))"
    if any(kind.endswith("[]") for _, kind in given):  # it finds addresses in memory
        call = f"0;\n  hip_double_begin();\n  status = {call};\n  hip_double_end()"
    return f"rocblas_status {name}({parameters}) {{\n  rocblas_status status = {call};\n  return status;\n}}\n"


# Bodies of functions that cuBLAS lacks, by the name without type; the operands are where they can be used.
OWN = {
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
    """Return the C text of a function that cuBLAS lacks; None if there is no body for it."""
    base = name.removeprefix("rocblas_").removesuffix("_64")
    if base[1:] not in OWN:
        return None
    element, conjugate = cublas.TYPES[base[0].upper()]
    pointers = [label for label, kind in function["parameters"] if kind.endswith("*")]
    moved = "".join(f"  {label} = hip_double_here({label});\n" for label in pointers)
    return (
        f"#define T {element}\n#define CONJ(value) {conjugate}(value)\n"
        f"rocblas_status {name}({cublas.declared(function)}) {{\n"
        f"  if (!({' && '.join(cublas.checks(name, function))})) return INTERNAL_ERROR;\n"
        f"{moved}{OWN[base[1:]]}  return 0;\n}}\n#undef T\n#undef CONJ\n"
    )


# Bodies of functions whose dtypes are arguments: what those have to be, and the loops for one operand of each name.
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
# Of two products of their own: sums instead of products and the least instead of the sum, or the sum of the lesser.
GEAM = """
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < m; i++) {
        const double scale = creal(get(beta, compute, 0)), factor = creal(get(alpha, compute, 0));
        double found = scale == 0 ? 0 : scale * creal(get(C, compute, i + j * ldc));
        for (int64_t l = 0; l < k; l++) {
          const double x = creal(get_op(A, compute, transA - 111, i, l, lda));
          const double y = creal(get_op(B, compute, transB - 111, l, j, ldb));
          found = geam_ex_op == 0 ? fmin(factor * (x + y), found) : found + fmin(factor * x, factor * y);
        }
        put(D, compute, i + j * ldd, found);
      }
"""
# A system with the matrix on the right is that of the transposes. The inverses of blocks are not used.
TRSM = """
    const int is_left = side == 141;
    const int64_t order = is_left ? m : n, columns = is_left ? n : m;
    const int is_lower = (uplo == 122) ^ (transA != 111) ^ !is_left;
    for (int64_t q = 0; q < columns; q++)
      for (int64_t done = 0; done < order; done++) {
        const int64_t i = is_lower ? done : order - 1 - done, at = is_left ? i + q * ldb : q + i * ldb;
        wide sum = get(alpha, compute, 0) * get(B, compute, at);
        for (int64_t one = 0; one < done; one++) {
          const int64_t j = is_lower ? one : order - 1 - one;
          sum -= get_op(A, compute, transA - 111, is_left ? i : j, is_left ? j : i, lda) *
                 get(B, compute, is_left ? j + q * ldb : q + j * ldb);
        }
        put(B, compute, at, diag == 132 ? sum : sum / get_op(A, compute, transA - 111, i, i, lda));
      }
"""
SCALED = "alpha_kind == x_kind || alpha_kind == real_of(x_kind) || (is_short(x_kind) && alpha_kind == R_32F)"
TYPED = {
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

    Everything is where its address says while it runs, so the names of arrays stand for those of one operand at a time.
    """
    base, *form = name.removeprefix("rocblas_").removesuffix("_64").split("_")
    if base not in TYPED or not form or form.pop() != "ex":
        return None
    suits, body = TYPED[base]
    labels = [label for label, _ in function["parameters"]]
    arrays = [one for one in "abcdxy" if f"{one}_type" in labels and one in labels]
    arrays += [one for one in "ABCD" if one in labels]
    results = [one for one in ("result", "results") if one in labels]
    scalars = [one for one in ("alpha", "beta", "c", "s") if one in labels and one not in arrays]
    kinds = {one: one.removesuffix("_type") + "_kind" for one in labels if one.endswith("_type")}
    kinds |= {"compute_type": "compute", "execution_type": "execution"}
    kinds = {label: kind for label, kind in kinds.items() if label in labels}
    of = {"x": "x_kind", "result": "result_kind", "results": "result_kind", **dict.fromkeys("ABCD", "compute")}
    count = "batch_count" if form else "1"
    lines = [f"  const int {kind} = dtype_of({label});\n" for label, kind in kinds.items()]
    tests = [f"is_scalar(handle, {one})" for one in scalars + results] + [f"is_array({one})" for one in arrays]
    lines += [f"  if (!({' && '.join(tests)}) || !uses_memory(handle)) return INTERNAL_ERROR;\n"]
    lines += [f"  if ({' || '.join(f'{kind} < 0' for kind in kinds.values())} || !({suits})) return NOT_IMPLEMENTED;\n"]
    lines += [f"  void *const all_{one} = (void *){one};\n" for one in arrays + results]
    lines += ["  hip_double_begin();\n", f"  for (int64_t batch = 0; batch < {count}; batch++) {{\n"]
    for one in arrays:
        stride = next((label for label in labels if label.replace("_", "").lower() == f"stride{one.lower()}"), "0")
        at = f"(char *)all_{one} + batch * {stride} * size_of({of.get(one, f'{one}_kind')})"
        lines.append(f"    void *{one} = {f'((void **)all_{one})[batch]' if form == ['batched'] else at};\n")
    lines += [f"    void *result = (char *)all_{one} + batch * size_of(result_kind);\n" for one in results]
    for theirs, ours in (("alphaType", "alpha_kind"), ("resultType", "result_kind"), ("csType", "cs_kind")):
        body = body.replace(theirs, ours)
    body = body.replace("xType", "x_kind").replace("yType", "y_kind").replace("return NOT_SUPPORTED", "break")
    return (
        f"rocblas_status {name}({cublas.declared(function)}) {{\n{''.join(lines)}{body.lstrip(chr(10))}"
        "  }\n  hip_double_end();\n  return 0;\n}\n"
    )


def batch(name: str, function: dict[str, Any]) -> str:
    """Return the C text of a function of several operands, which calls that of one for each of them."""
    arguments = []
    for place, (label, kind) in enumerate(function["parameters"]):
        rest = [one[1] for one in function["parameters"][place + 1 :]]
        pointers = (i for i, one in enumerate(rest) if one.endswith(("*", "[]")))
        strides = [i for i, one in enumerate(rest) if one == "rocblas_stride"]
        if kind == "rocblas_stride" or label == "batch_count":
            continue
        if kind.count("*") + kind.endswith("[]") > 1:
            arguments.append(f"((void *const *)hip_double_here({label}))[at]")
        elif kind.endswith("*") and strides and strides[0] < next(pointers, len(rest)):
            stride = function["parameters"][place + 1 + strides[0]][0]
            arguments.append(f"{label} + at * {stride}")
        else:
            arguments.append(f"{label} + at" if label in ("result", "results") else label)
    one = name.replace("_strided_batched", "").replace("_batched", "")
    mode = "const int mode = handle->mode;"
    if "rotm_" in name:  # its numbers are on the device whatever the mode is
        mode += " handle->mode = 1;"
    return (
        f"rocblas_status {name}({cublas.declared(function)}) {{\n  rocblas_status status = 0;\n  {mode}\n"
        f"  for (int64_t at = 0; at < batch_count && !status; at++)\n    status = {one}({', '.join(arguments)});\n"
        "  handle->mode = mode;\n  return status;\n}\n"
    )


def main() -> None:
    """Print the C source: that of cuBLAS's double, and rocBLAS's functions; with --older those before version 4."""
    is_older = "--older" in sys.argv
    name_of_api = "rocblas-2" if is_older else "rocblas"
    api = json.loads((cublas.API / f"{name_of_api}.json").read_text())["functions"]
    there = json.loads((cublas.API / "cublas.json").read_text())["functions"]
    base = io.StringIO()
    with contextlib.redirect_stdout(base):
        cublas.main()
    print(base.getvalue(), PRELUDE.replace("VERSION", "2.47.0.double" if is_older else "4.4.1.double"))
    made = set()
    for name in sorted(api, key=lambda name: "_batched" in name):
        partner = counterpart(name.replace("_outofplace", ""), there)
        text = None
        if f"rocblas_status {name}(" not in PRELUDE and partner and f" {partner}(" in base.getvalue():
            text = double(name, api[name], partner, there[partner])
        text = text or own(name, api[name]) or typed(name, api[name])
        if not text and name.replace("_strided_batched", "").replace("_batched", "") in made:
            text = batch(name, api[name])
        if text:
            print(text)
            made.add(name)


if __name__ == "__main__":
    main()
