"""The part of cuBLAS's double whose dtypes are chosen by arguments, or that C has no types for.

Each body computes by loops over values of the widest type, and refuses the combinations of dtypes that cuBLAS does.
"""

from __future__ import annotations

import re

PRELUDE = """
typedef int cudaDataType, cublasComputeType_t, cublasGemmAlgo_t;
typedef uint16_t __half, __nv_bfloat16;
typedef double _Complex wide;

enum { R_32F = 0, R_64F = 1, R_16F = 2, R_8I = 3, C_32F = 4, C_64F = 5, C_8I = 7, R_8U = 8, R_32I = 10, R_16BF = 14 };
enum { NOT_SUPPORTED = 15 };

static wide get(const void *from, int type, int64_t at) {
  uint32_t bits;
  float single;
  switch (type) {
    case R_32F: return ((const float *)from)[at];
    case R_64F: return ((const double *)from)[at];
    case R_16F: return ((const _Float16 *)from)[at];
    case R_8I: return ((const int8_t *)from)[at];
    case C_32F: return ((const float _Complex *)from)[at];
    case C_64F: return ((const double _Complex *)from)[at];
    case R_8U: return ((const uint8_t *)from)[at];
    case R_32I: return ((const int32_t *)from)[at];
    case R_16BF:
      bits = (uint32_t)((const uint16_t *)from)[at] << 16;
      memcpy(&single, &bits, sizeof single);
      return single;
  }
  abort();
}

static void put(void *to, int type, int64_t at, wide value) {
  const float single = (float)creal(value);
  uint32_t bits;
  switch (type) {
    case R_32F: ((float *)to)[at] = single; return;
    case R_64F: ((double *)to)[at] = creal(value); return;
    case R_16F: ((_Float16 *)to)[at] = (_Float16)creal(value); return;
    case R_8I: ((int8_t *)to)[at] = (int8_t)creal(value); return;
    case C_32F: ((float _Complex *)to)[at] = (float _Complex)value; return;
    case C_64F: ((double _Complex *)to)[at] = value; return;
    case R_8U: ((uint8_t *)to)[at] = (uint8_t)creal(value); return;
    case R_32I: ((int32_t *)to)[at] = (int32_t)creal(value); return;
    case R_16BF:
      memcpy(&bits, &single, sizeof bits);
      if (single == single) bits += 0x7fff + (bits >> 16 & 1);
      ((uint16_t *)to)[at] = (uint16_t)(bits >> 16);
      return;
  }
  abort();
}

static wide get_op(const void *A, int type, int op, int64_t i, int64_t j, int64_t ld) {
  const wide value = get(A, type, op ? j + i * ld : i + j * ld);
  return op == 2 ? conj(value) : value;
}

/* The dtype of alpha and beta of a product; -1: cuBLAS has no such product. */
static int scale_of(int compute, int a, int b, int c) {
  const int is_complex = c == C_32F || c == C_64F;
  if (a != b) return -1;
  if (compute == 64 || compute == 65) return a == R_16F && c == R_16F ? R_16F : -1;
  if (compute == 72 || compute == 73) return a == R_8I && c == R_32I ? R_32I : -1;
  if (compute == 70 || compute == 71 || compute == 79)
    return a == c && (c == R_64F || c == C_64F) ? (is_complex ? C_64F : R_64F) : -1;
  if (a == c && (c == R_32F || c == C_32F)) return is_complex ? C_32F : R_32F;
  if (compute != 68 && compute != 69) return -1;
  if (c == C_32F && a == C_8I) return C_32F;
  const int is_short = a == R_16F || a == R_16BF;
  return (is_short && (a == c || c == R_32F)) || (a == R_8I && c == R_32F) ? R_32F : -1;
}
"""

GEMM = """
  if ((Atype == R_8I && lda % 4) || (Btype == R_8I && ldb % 4)) return NOT_SUPPORTED;
  for (int64_t b = 0; b < batchCount; b++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < m; i++) {
        const int64_t at = b * strideC + i + j * ldc;
        const wide scale = get(beta, scaleType, 0);
        wide sum = 0;
        for (int64_t l = 0; l < k; l++)
          sum += get_op((const char *)A + b * strideA * size_of(Atype), Atype, transa, i, l, lda) *
                 get_op((const char *)B + b * strideB * size_of(Btype), Btype, transb, l, j, ldb);
        put(C, Ctype, at, get(alpha, scaleType, 0) * sum + (scale == 0 ? 0 : scale * get(C, Ctype, at)));
      }
"""
# The same with arrays of pointers.
LISTED = re.sub(r"\(const char \*\)(\w) \+ b \* stride\w \* size_of\(\w+\)", r"\1array[b]", GEMM)
LISTED = LISTED.replace("b * strideC + ", "").replace("C, Ctype", "Carray[b], Ctype")
PRELUDE += """
static int64_t size_of(int type) {
  return type == C_64F ? 16 : type == R_64F || type == C_32F ? 8 : type == R_32F || type == R_32I ? 4
         : type == R_16F || type == R_16BF ? 2 : 1;
}
"""

# By name: the body, and what it uses that is not a parameter.
ALONE = {"batchCount": "1", "strideA": "0", "strideB": "0", "strideC": "0"}
COMPUTED = {"scaleType": "scale_of(computeType, Atype, Btype, Ctype)"}
HALF = {"Atype": "R_16F", "Btype": "R_16F", "Ctype": "R_16F", "scaleType": "R_16F"}
BODIES: dict[str, tuple[str, dict[str, str]]] = {
    "GemmEx": (GEMM, ALONE | COMPUTED),
    "GemmStridedBatchedEx": (GEMM, COMPUTED),
    "GemmBatchedEx": (LISTED, COMPUTED),
    "HgemmBatched": (LISTED, HALF),
    "Hgemm": (GEMM, ALONE | HALF),
    "HgemmStridedBatched": (GEMM, HALF),
}


def body(name: str, parameters: list[list[str]]) -> str | None:
    """Return the loops of a function; None if it has none here."""
    base = re.sub(r"(_64|_v2)$", "", name.removeprefix("cublas"))
    if base not in BODIES:
        return None
    text, others = BODIES[base]
    given = {label for label, _ in parameters}
    lines = [f"  const int64_t {one} = {value};\n" for one, value in others.items() if one not in given]
    refused = "  if (scaleType < 0) return NOT_SUPPORTED;\n" if "scaleType" in others else ""
    return "".join(["\n", *lines, refused, text.lstrip("\n")])
