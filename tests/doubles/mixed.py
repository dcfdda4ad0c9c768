"""The functions of cuBLAS's double that take dtypes as arguments, or whose dtypes C lacks.

Each body computes by loops over values of the widest type, and refuses the same combinations of dtypes as cuBLAS.
"""

from __future__ import annotations

import re

PRELUDE = """
typedef int cudaDataType, cudaDataType_t, cublasComputeType_t, cublasGemmAlgo_t;
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

/* Whether get and put know a dtype; the real library has more of them. */
static int is_known(int type) {
  return (type >= R_32F && type <= C_64F) || type == R_8U || type == R_32I || type == R_16BF;
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
# The product of 8-bit integers with zero points.
UINT8 = """
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < m; i++) {
      int64_t sum = 0;
      for (int64_t l = 0; l < k; l++)
        sum += ((int64_t)A[transa ? l + i * lda : i + l * lda] - A_bias) *
               ((int64_t)B[transb ? j + l * ldb : l + j * ldb] - B_bias);
      const int64_t value = ((sum + C_bias) * C_mult + ((INT64_C(1) << C_shift) >> 1)) >> C_shift;
      C[transc ? j + i * ldc : i + j * ldc] = (unsigned char)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
"""
# GEMM with arrays of pointers.
LISTED = re.sub(r"\(const char \*\)(\w) \+ b \* stride\w \* size_of\(\w+\)", r"\1array[b]", GEMM)
LISTED = LISTED.replace("b * strideC + ", "").replace("C, Ctype", "Carray[b], Ctype")
GROUPED = """
  int64_t at = 0;
  for (int64_t g = 0; g < group_count; g++)
    for (int64_t b = 0; b < group_size[g]; b++, at++)
      for (int64_t j = 0; j < n_array[g]; j++)
        for (int64_t i = 0; i < m_array[g]; i++) {
          const int64_t to = i + j * ldc_array[g];
          const wide scale = get(beta_array, scaleType, g);
          wide sum = 0;
          for (int64_t l = 0; l < k_array[g]; l++)
            sum += get_op(Aarray[at], Atype, transa_array[g], i, l, lda_array[g]) *
                   get_op(Barray[at], Btype, transb_array[g], l, j, ldb_array[g]);
          const wide before = scale == 0 ? 0 : scale * get(Carray[at], Ctype, to);
          put(Carray[at], Ctype, to, get(alpha_array, scaleType, g) * sum + before);
        }
"""
PRELUDE += """
static int64_t size_of(int type) {
  return type == C_64F ? 16 : type == R_64F || type == C_32F ? 8 : type == R_32F || type == R_32I ? 4
         : type == R_16F || type == R_16BF ? 2 : 1;
}
"""

GEMV = """
  const int64_t rows = trans ? n : m, columns = trans ? m : n;
  for (int64_t b = 0; b < batchCount; b++)
    for (int64_t i = 0; i < rows; i++) {
      const int64_t at = b * stridey + PLACE(i, rows, incy);
      wide sum = 0;
      for (int64_t j = 0; j < columns; j++)
        sum += get_op(A + b * strideA, xType, trans, i, j, lda) * get(x + b * stridex, xType, PLACE(j, columns, incx));
      put(y, yType, at, *alpha * sum + (*beta == 0 ? 0 : *beta * get(y, yType, at)));
    }
"""
LISTED_GEMV = GEMV.replace("A + b * strideA", "Aarray[b]").replace("x + b * stridex", "xarray[b]")
LISTED_GEMV = LISTED_GEMV.replace("b * stridey + ", "").replace("(y, yType", "(yarray[b], yType")

# The body writes one triangle; a Hermitian result has a real diagonal.
SYRK = """
  if (Atype != C_32F || Ctype != C_32F) return NOT_SUPPORTED;
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < n; i++) {
      wide sum = 0, old = get(C, Ctype, i + j * ldc);
      if (!IN(i, j)) continue;
      for (int64_t l = 0; l < k; l++) {
        const wide left = trans ? get(A, Atype, l + i * lda) : get(A, Atype, i + l * lda);
        const wide right = trans ? get(A, Atype, l + j * lda) : get(A, Atype, j + l * lda);
        sum += hermitian ? (trans ? conj(left) * right : left * conj(right)) : left * right;
      }
      sum = *alpha * sum + (*beta == 0 ? 0 : *beta * old);
      put(C, Ctype, i + j * ldc, hermitian && i == j ? creal(sum) : sum);
    }
"""

# Level 1: x and, if it exists, y have the same dtype.
LARGEST = """
  double largest = -1;
  *result = 0;
  for (int64_t i = 0; i < n && incx > 0; i++) {
    const wide value = get(x, xType, PLACE(i, n, incx));
    const double size = fabs(creal(value)) + fabs(cimag(value));
    if (largest < 0 || SIGN * size > SIGN * largest) *result = i + 1, largest = size;
  }
"""
SUM = """
  double sum = 0;
  for (int64_t i = 0; i < n && incx > 0; i++) {
    const wide value = get(x, xType, PLACE(i, n, incx));
    sum += ADDED;
  }
  put(result, resultType, 0, TOTAL);
"""
DOT = """
  wide sum = 0;
  if (xType != yType || xType != resultType) return NOT_SUPPORTED;
  for (int64_t i = 0; i < n; i++)
    sum += OF_X(get(x, xType, PLACE(i, n, incx))) * get(y, yType, PLACE(i, n, incy));
  put(result, resultType, 0, sum);
"""
AXPY = """
  if (xType != yType) return NOT_SUPPORTED;
  for (int64_t i = 0; i < n; i++) {
    const int64_t at = PLACE(i, n, incy);
    put(y, yType, at, get(alpha, alphaType, 0) * get(x, xType, PLACE(i, n, incx)) + get(y, yType, at));
  }
"""
SCAL = """
  for (int64_t i = 0; i < n && incx > 0; i++)
    put(x, xType, PLACE(i, n, incx), get(alpha, alphaType, 0) * get(x, xType, PLACE(i, n, incx)));
"""
PAIRS = """
  if (xType != yType) return NOT_SUPPORTED;
  for (int64_t i = 0; i < n; i++) {
    const int64_t at = PLACE(i, n, incx), to = PLACE(i, n, incy);
    const wide a = get(x, xType, at), b = get(y, yType, to);
    CHANGE
  }
"""
COPY = PAIRS.replace("CHANGE", "(void)b, put(y, yType, to, a);")
SWAP = PAIRS.replace("CHANGE", "put(x, xType, at, b), put(y, yType, to, a);")
ROT = """
  const wide cosine = get(c, csType, 0), sine = get(s, csType, 0);
""" + PAIRS.replace(
    "CHANGE",
    "put(x, xType, at, cosine * a + sine * b), put(y, yType, to, cosine * b - conj(sine) * a);",
)
ROTM = """
  const int flag = (int)creal(get(param, paramType, 0));
  wide h[4];
  for (int i = 0; i < 4; i++) h[i] = get(param, paramType, i + 1);
  if (flag == -2) h[0] = h[3] = 1, h[1] = h[2] = 0;
  if (flag == 0) h[0] = h[3] = 1;
  if (flag == 1) h[1] = -1, h[2] = 1;
""" + PAIRS.replace("CHANGE", "put(x, xType, at, h[0] * a + h[2] * b), put(y, yType, to, h[1] * a + h[3] * b);")
# Functions that make rotations call the functions of the same name for one dtype.
ROTG = """
  if (abType == R_32F && csType == R_32F) return cublasSrotg_v2(handle, a, b, c, s);
  if (abType == R_64F && csType == R_64F) return cublasDrotg_v2(handle, a, b, c, s);
  return NOT_SUPPORTED;
"""
ROTMG = """
  if (d1Type == R_32F) return cublasSrotmg_v2(handle, d1, d2, x1, y1, param);
  if (d1Type == R_64F) return cublasDrotmg_v2(handle, d1, d2, x1, y1, param);
  return NOT_SUPPORTED;
"""

# {name: (the body, the names in the body that are not parameters)}.
ALONE = {"batchCount": "1", "strideA": "0", "strideB": "0", "strideC": "0"}
COMPUTED = {"scaleType": "scale_of(computeType, Atype, Btype, Ctype)"}
HALF = {"Atype": "R_16F", "Btype": "R_16F", "Ctype": "R_16F", "scaleType": "R_16F"}
BODIES: dict[str, tuple[str, dict[str, str]]] = {
    "GemmEx": (GEMM, ALONE | COMPUTED),
    "GemmStridedBatchedEx": (GEMM, COMPUTED),
    "GemmBatchedEx": (LISTED, COMPUTED),
    "GemmGroupedBatchedEx": (GROUPED, COMPUTED),
    "HgemmBatched": (LISTED, HALF),
    "Uint8gemmBias": (UINT8, {}),
    "Hgemm": (GEMM, ALONE | HALF),
    "HgemmStridedBatched": (GEMM, HALF),
}


_SINGLE = {"SgemmEx": "R_32F", "CgemmEx": "C_32F", "Cgemm3mEx": "C_32F"}
BODIES |= {name: (GEMM, ALONE | {"scaleType": scale}) for name, scale in _SINGLE.items()}
for stem in ("syrk", "herk"):
    of = {"hermitian": str(int(stem == "herk"))}
    BODIES |= {f"C{stem}Ex": (SYRK, of), f"C{stem}3mEx": (SYRK, of)}
_LETTERS = {"H": "R_16F", "T": "R_16BF", "S": "R_32F"}
for kinds in ("HSH", "HSS", "TST", "TSS"):
    of = {"xType": _LETTERS[kinds[0]], "yType": _LETTERS[kinds[2]]}
    BODIES |= {f"{kinds}gemvStridedBatched": (GEMV, of), f"{kinds}gemvBatched": (LISTED_GEMV, of)}
BODIES |= {
    "IamaxEx": (LARGEST.replace("SIGN *", ""), {}),
    "IaminEx": (LARGEST.replace("SIGN *", "-"), {}),
    "AsumEx": (SUM.replace("ADDED", "fabs(creal(value)) + fabs(cimag(value))").replace("TOTAL", "sum"), {}),
    "Nrm2Ex": (SUM.replace("ADDED", "creal(value * conj(value))").replace("TOTAL", "sqrt(sum)"), {}),
    "DotEx": (DOT.replace("OF_X", ""), {}),
    "DotcEx": (DOT.replace("OF_X", "conj"), {}),
    "AxpyEx": (AXPY, {}),
    "ScalEx": (SCAL, {}),
    "CopyEx": (COPY, {}),
    "SwapEx": (SWAP, {}),
    "RotEx": (ROT, {}),
    "RotmEx": (ROTM, {}),
    "RotgEx": (ROTG, {}),
    "RotmgEx": (ROTMG, {}),
}


def body(name: str, parameters: list[list[str]]) -> str | None:
    """Return the loops of a function; None if this module has none for it."""
    base = re.sub(r"(_64|_v2)$", "", name.removeprefix("cublas"))
    if base not in BODIES:
        return None
    text, others = BODIES[base]
    arguments = {label for label, _ in parameters}
    lines = [f"  const int64_t {name} = {value};\n" for name, value in others.items() if name not in arguments]
    may_refuse = others.get("scaleType", "").startswith("scale_of")
    refused = "  if (scaleType < 0) return NOT_SUPPORTED;\n" if may_refuse else ""
    types = [label for label, kind in parameters if kind.startswith("cudaDataType")]
    known = f"  if (!({' && '.join(f'is_known({type_})' for type_ in types)})) return NOT_SUPPORTED;\n" if types else ""
    return "".join(["\n", known, *lines, refused, text.lstrip("\n")])
