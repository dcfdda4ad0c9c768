"""Writes a double of libcublasLt.so.13 for the double of a GPU, in C: products by plain loops, in double precision.

It supports matrices by columns and by rows, batches, and every epilogue. It is strict about addresses, sizes of
attributes, alignment, workspaces, and the manual's rules for layouts.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # last, so that the installed offload_args is imported, not its sources

from bindings import roles  # noqa: E402

SIZES = {"i8": 1, "u16": 2, "i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8}
STEMS = {"layout": "MatrixLayout", "matmul": "MatmulDesc", "transform": "MatrixTransformDesc"}
STEMS |= {"preference": "MatmulPreference", "emulation": "EmulationDesc"}

TEXT = r"""
#include <complex.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

enum { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15, MOST = 48, NEEDED = 64, ALIGNED = 16 };
enum { R_32F, R_64F, R_16F, R_8I, C_32F, C_64F, R_32I = 10, R_16BF = 14, R_E4M3 = 28, R_E5M2 = 29 };
typedef double _Complex number;
typedef struct object { int64_t at[MOST]; } object; /* by attribute */
typedef struct result {
  uint64_t algo[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
} result;

int gpu_double_captures(const void *stream, int (*run)(const void *, void *), const void *arguments, size_t nbytes);
int gpu_double_uses(const void *stream, const void *memory, size_t nbytes);

static int is_array(const void *pointer) { return kind_of(pointer) != 0; }

/* -- numbers -- */

static double from_small(unsigned bits, int mantissa, int bias) {
  const int exponent = (bits & 0x7f) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
  const double value = exponent ? ldexp((1 << mantissa) + fraction, exponent - bias - mantissa)
                                : ldexp(fraction, 1 - bias - mantissa);
  return bits & 0x80 ? -value : value;
}
static unsigned to_small(double value, int mantissa, int bias, unsigned most) {
  unsigned best = 0;
  for (unsigned bits = 0; bits <= most; bits++) { /* ties to even */
    const double a = fabs(from_small(bits, mantissa, bias) - fabs(value));
    const double b = fabs(from_small(best, mantissa, bias) - fabs(value));
    if (a < b || (a == b && !(bits & 1))) best = bits;
  }
  return best | (value < 0 ? 0x80 : 0);
}
static number get(const void *from, int type, int64_t i) {
  const unsigned char *bytes = from;
  uint32_t bits;
  float single;
  switch (type) {
    case R_32F: return ((const float *)from)[i];
    case R_64F: return ((const double *)from)[i];
    case R_16F: return (double)((const _Float16 *)from)[i];
    case R_8I: return ((const int8_t *)from)[i];
    case R_32I: return ((const int32_t *)from)[i];
    case C_32F: return ((const float _Complex *)from)[i];
    case C_64F: return ((const double _Complex *)from)[i];
    case R_E4M3: return from_small(bytes[i], 3, 7);
    case R_E5M2: return from_small(bytes[i], 2, 15);
    default:
      bits = (uint32_t)((const uint16_t *)from)[i] << 16;
      memcpy(&single, &bits, 4);
      return single;
  }
}
static void put(void *to, int type, int64_t i, number value) {
  const double real = creal(value);
  uint32_t bits;
  float single;
  switch (type) {
    case R_32F: ((float *)to)[i] = (float)real; return;
    case R_64F: ((double *)to)[i] = real; return;
    case R_16F: ((_Float16 *)to)[i] = (_Float16)real; return;
    case R_8I: ((int8_t *)to)[i] = (int8_t)fmax(-128, fmin(127, rint(real))); return;
    case R_32I: ((int32_t *)to)[i] = (int32_t)real; return;
    case C_32F: ((float _Complex *)to)[i] = (float _Complex)value; return;
    case C_64F: ((double _Complex *)to)[i] = value; return;
    case R_E4M3: ((unsigned char *)to)[i] = (unsigned char)to_small(real, 3, 7, 0x7e); return;
    case R_E5M2: ((unsigned char *)to)[i] = (unsigned char)to_small(real, 2, 15, 0x7b); return;
    default:
      single = (float)real;
      memcpy(&bits, &single, 4);
      ((uint16_t *)to)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

/* -- objects -- */

static int set(object *o, const unsigned char *sizes, unsigned attribute, const void *value, size_t nbytes) {
  if (!o || !value || attribute >= MOST || !sizes[attribute] || sizes[attribute] != nbytes) return INVALID_VALUE;
  o->at[attribute] = 0;
  memcpy(&o->at[attribute], value, nbytes);
  if (nbytes == 4) o->at[attribute] = (int32_t)o->at[attribute];
  return SUCCESS;
}
static int ask(const object *o, const unsigned char *sizes, unsigned attribute, void *value, size_t nbytes,
               size_t *written) {
  if (attribute >= MOST || !sizes[attribute]) return INVALID_VALUE;
  if (nbytes && (!value || nbytes != sizes[attribute])) return INVALID_VALUE;
  if (!nbytes && !written) return INVALID_VALUE;
  if (nbytes) memcpy(value, &o->at[attribute], nbytes);
  if (written) *written = sizes[attribute];
  return SUCCESS;
}
int cublasLtCreate(void **handle) { return (*handle = calloc(1, 8)) ? SUCCESS : 3; }
int cublasLtDestroy(void *handle) { free(handle); return SUCCESS; }
int cublasLtGetProperty(int part, int *value) { *value = part == 0 ? 13 : 0; return SUCCESS; }
size_t cublasLtGetVersion(void) { return 130000; }
const char *cublasLtGetStatusName(int status) { return status == NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "?"; }
const char *cublasLtGetStatusString(int status) { return status == NOT_SUPPORTED ? "it is not supported" : "?"; }
int cublasLtMatrixLayoutCreate(object **o, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  *o = calloc(1, sizeof **o);
  (*o)->at[0] = type;
  (*o)->at[2] = (int64_t)rows;
  (*o)->at[3] = (int64_t)columns;
  (*o)->at[4] = ld;
  (*o)->at[5] = 1;
  return SUCCESS;
}
int cublasLtMatmulDescCreate(object **o, int compute, int scale) {
  *o = calloc(1, sizeof **o);
  (*o)->at[0] = compute;
  (*o)->at[1] = scale;
  (*o)->at[6] = 2;
  (*o)->at[7] = 1;
  (*o)->at[22] = (*o)->at[26] = -1;
  return SUCCESS;
}
int cublasLtMatrixTransformDescCreate(object **o, int scale) {
  *o = calloc(1, sizeof **o);
  (*o)->at[0] = scale;
  return SUCCESS;
}
int cublasLtMatmulPreferenceCreate(object **o) { return (*o = calloc(1, sizeof **o)) ? SUCCESS : 3; }
int cublasLtEmulationDescCreate(object **o) { return (*o = calloc(1, sizeof **o)) ? SUCCESS : 3; }

/* -- algorithms: there is one, which needs a little workspace and a little alignment -- */

static int fits(const object *desc, const object *a, const object *b, const object *c, const object *d) {
  const int64_t m = d->at[2], n = d->at[3], ta = desc->at[3], tb = desc->at[4];
  const int64_t k = a->at[ta ? 2 : 3];
  return a->at[ta ? 3 : 2] == m && b->at[tb ? 2 : 3] == n && b->at[tb ? 3 : 2] == k && c->at[2] == m && c->at[3] == n;
}
int cublasLtMatmulAlgoCheck(void *handle, const object *desc, const object *a, const object *b, const object *c,
                            const object *d, const uint64_t *algo, result *choice) {
  if (!handle || !fits(desc, a, b, c, d) || algo[0] != 1) return INVALID_VALUE;
  choice->workspace = NEEDED;
  choice->status = SUCCESS;
  choice->waves = 1;
  return SUCCESS;
}
int cublasLtMatmulAlgoGetHeuristic(void *handle, const object *desc, const object *a, const object *b, const object *c,
                                   const object *d, const object *preference, int count, result *choice, int *got) {
  const uint64_t algo[8] = {1, (uint64_t)(preference->at[5] < ALIGNED ? 1 : ALIGNED)};
  static const int pointers[] = {8, 11, 17, 18, 19, 20, 21, 23, 24, 36};
  for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++)
    if (desc->at[pointers[i]] % 16) return INVALID_VALUE; /* a handle of the core is none of the library's business */
  if (count < 1) return INVALID_VALUE;
  *got = 0;
  if (preference->at[1] < NEEDED) return NOT_SUPPORTED;
  memcpy(choice->algo, algo, sizeof algo);
  *got = 1;
  return cublasLtMatmulAlgoCheck(handle, desc, a, b, c, d, algo, choice);
}
int cublasLtMatmulAlgoCapGetAttribute(const uint64_t *algo, unsigned attribute, void *value, size_t nbytes,
                                      size_t *written) {
  object o = {{0}};
  for (int i = 16; i < 20; i++) o.at[i] = (int64_t)algo[1];
  return ask(&o, sizes_capability, attribute, value, nbytes, written);
}
int cublasLtMatmulAlgoConfigGetAttribute(const uint64_t *algo, unsigned attribute, void *value, size_t nbytes,
                                         size_t *written) {
  object o = {{(int64_t)algo[0]}};
  return ask(&o, sizes_configuration, attribute, value, nbytes, written);
}

/* -- products -- */

static int64_t place(const object *l, int64_t batch, int64_t i, int64_t j) {
  return batch * l->at[6] + (l->at[1] ? i * l->at[4] + j : i + j * l->at[4]);
}
static number element(const void *from, const object *l, int transposed, int64_t batch, int64_t i, int64_t j) {
  const int64_t at = transposed ? place(l, batch, j, i) : place(l, batch, i, j);
  const number value = l->at[7] ? get(from, (int)l->at[0] - 4, at) +
                                      _Complex_I * get((const char *)from + l->at[7], (int)l->at[0] - 4, at)
                                : get(from, (int)l->at[0], at);
  return transposed == 2 ? conj(value) : value;
}
/* Puts an element of a result, whose imaginary parts may be apart. */
static void leave(void *to, const object *l, int64_t at, number value) {
  put(to, (int)l->at[0] - (l->at[7] ? 4 : 0), at, l->at[7] ? creal(value) : value);
  if (l->at[7]) put((char *)to + l->at[7], (int)l->at[0] - 4, at, cimag(value));
}
/* The scale of an element of A or B: one for all, for its line, for 128 elements of that, or for 128 lines of these. */
static double scale_at(const object *desc, int attribute, int64_t line, int64_t lines, int64_t p, int64_t k) {
  const float *at = (const float *)(uintptr_t)desc->at[attribute];
  const int64_t mode = desc->at[attribute + 14], blocks = ((k + 127) / 128 + 3) / 4 * 4;
  if (!at) return 1;
  if (mode == 3) return at[line];
  if (mode == 4) return at[p / 128 * lines + line];
  return mode == 5 ? at[line / 128 * blocks + p / 128] : at[0];
}
static double scale(const object *desc, int attribute) {
  const float *at = (const float *)(uintptr_t)desc->at[attribute];
  return at ? (double)*at : 1;
}
static double gelu(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
static double gelu_slope(double x) {
  const double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
/* The part of the epilogue after the bias. */
static number pass(const object *desc, const object *d, number value, int64_t batch, int64_t i, int64_t j) {
  const int64_t e = desc->at[7], stride = desc->at[13], bit = batch * stride + j * desc->at[12] + i;
  unsigned char *aux = (unsigned char *)(uintptr_t)desc->at[11];
  const int type = (int)(desc->at[22] < 0 ? d->at[0] : desc->at[22]);
  const double x = creal(value);
  if (e & 128 && e & 2) {
    aux[bit / 8] = (unsigned char)((aux[bit / 8] & ~(1 << bit % 8)) | (x > 0) << bit % 8);
  } else if (e & 128 && e & 32) {
    put(aux, type, bit, value);
  }
  if (e & 2) return x > 0 ? x : 0;
  if (e & 32) return gelu(x);
  if (e & 8) return aux[bit / 8] >> bit % 8 & 1 ? value : 0;
  if (e & 64) return value * gelu_slope(creal(get(aux, type, bit)));
  return value;
}
static void sums(const object *desc, const object *d, int64_t batch, const void *a, const object *la, const void *b,
                 const object *lb, const double *gradient) {
  const int64_t e = desc->at[7], ta = desc->at[3], tb = desc->at[4], k = la->at[ta ? 2 : 3];
  void *bias = (void *)(uintptr_t)desc->at[8];
  const int64_t size = e & 512 ? d->at[3] : d->at[2], first = batch * desc->at[10];
  for (int64_t i = 0; i < size; i++) {
    number sum = e & 16 ? gradient[i] : 0;
    for (int64_t p = 0; p < k && e & 256; p++) sum += element(a, la, (int)ta, batch, i, p);
    for (int64_t p = 0; p < k && e & 512; p++) sum += element(b, lb, (int)tb, batch, p, i);
    if (e & (16 | 256 | 512)) put(bias, (int)(desc->at[26] < 0 ? d->at[0] : desc->at[26]), first + i, sum);
  }
}
static int bias_type(const object *desc, const object *d) {
  if (desc->at[26] >= 0) return (int)desc->at[26];
  return d->at[0] == R_8I ? (int)desc->at[1] : d->at[0] == R_E4M3 || d->at[0] == R_E5M2 ? R_16BF : (int)d->at[0];
}
static void multiply(const object *desc, number alpha, const void *a, const object *la, const void *b, const object *lb,
                     number beta, const void *c, const object *lc, void *d, const object *ld, int64_t batch) {
  const int64_t m = ld->at[2], n = ld->at[3], k = la->at[desc->at[3] ? 2 : 3], e = desc->at[7];
  double *gradient = calloc((size_t)m + 1, sizeof *gradient);
  for (int64_t j = 0; j < n; j++)
    for (int64_t i = 0; i < m; i++) {
      number sum = 0;
      for (int64_t p = 0; p < k; p++)
        sum += element(a, la, (int)desc->at[3], batch, i, p) * scale_at(desc, 17, i, m, p, k) *
               element(b, lb, (int)desc->at[4], batch, p, j) * scale_at(desc, 18, j, n, p, k);
      sum *= alpha;
      if (beta != 0) sum += beta * element(c, lc, 0, batch, i, j);
      if (e & 4) sum += get((void *)(uintptr_t)desc->at[8], bias_type(desc, ld), batch * desc->at[10] + i);
      sum = pass(desc, ld, sum, batch, i, j);
      gradient[i] += creal(sum);
      leave(d, ld, place(ld, batch, i, j), sum * scale(desc, 20));
    }
  sums(desc, ld, batch, a, la, b, lb, gradient);
  free(gradient);
}
/* A product: objects and numbers are read when it is asked for. */
struct product {
  object desc, la, lb, lc, ld;
  number alpha, beta;
  const void *a, *b, *c;
  void *d, *workspace;
  size_t nbytes;
};
static int multiply_all(const void *arguments, void *stream) {
  const struct product *p = arguments;
  (void)stream;
  if (p->nbytes && kind_of(p->workspace) != 2) return INVALID_VALUE;
  if (p->nbytes) memset(p->workspace, 0x5a, p->nbytes);
  for (int64_t batch = 0; batch < p->ld.at[5]; batch++)
    multiply(&p->desc, p->alpha, p->a, &p->la, p->b, &p->lb, p->beta, p->c, &p->lc, p->d, &p->ld, batch);
  return SUCCESS;
}
int cublasLtMatmul(void *handle, const object *desc, const void *alpha, const void *a, const object *la, const void *b,
                   const object *lb, const void *beta, const void *c, const object *lc, void *d, const object *ld,
                   const uint64_t *algo, void *workspace, size_t nbytes, void *stream) {
  static const int pointers[] = {8, 11, 17, 18, 19, 20, 21, 23, 24, 36};
  if (!handle || desc->at[2] || !fits(desc, la, lb, lc, ld) || !is_array(a) || !is_array(b) || !is_array(d))
    return INVALID_VALUE;
  for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++) {
    const void *pointer = (const void *)(uintptr_t)desc->at[pointers[i]];
    if (pointer && !is_array(pointer)) return INVALID_VALUE;
  }
  if (algo && (nbytes < NEEDED || !is_array(workspace))) return INVALID_VALUE;
  if (algo && ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d) % algo[1]) return INVALID_VALUE;
  if (nbytes && !gpu_double_uses(stream, workspace, nbytes)) return INVALID_VALUE;
  const struct product p = {*desc, *la, *lb, *lc, *ld, get(alpha, (int)desc->at[1], 0), get(beta, (int)desc->at[1], 0),
                            a, b, c, d, workspace, nbytes};
  return gpu_double_captures(stream, multiply_all, &p, sizeof p) ? SUCCESS : multiply_all(&p, stream);
}
static int transform_all(const void *arguments, void *stream) {
  const struct product *p = arguments;
  (void)stream;
  for (int64_t batch = 0; batch < p->lc.at[5]; batch++)
    for (int64_t i = 0; i < p->lc.at[2]; i++)
      for (int64_t j = 0; j < p->lc.at[3]; j++) {
        number sum = p->a ? p->alpha * element(p->a, &p->la, (int)p->desc.at[2], batch, i, j) : 0;
        if (p->b) sum += p->beta * element(p->b, &p->lb, (int)p->desc.at[3], batch, i, j);
        leave(p->d, &p->lc, place(&p->lc, batch, i, j), sum);
      }
  return SUCCESS;
}
int cublasLtMatrixTransform(void *handle, const object *desc, const void *alpha, const void *a, const object *la,
                            const void *beta, const void *b, const object *lb, void *c, const object *lc,
                            void *stream) {
  if (!handle || !is_array(c) || (a && !is_array(a)) || (b && !is_array(b))) return INVALID_VALUE;
  struct product p = {.desc = *desc, .lc = *lc, .a = a, .b = b, .d = c};
  if (la) p.la = *la;
  if (lb) p.lb = *lb;
  p.alpha = get(alpha, (int)desc->at[0], 0);
  p.beta = get(beta, (int)desc->at[0], 0);
  return gpu_double_captures(stream, transform_all, &p, sizeof p) ? SUCCESS : transform_all(&p, stream);
}
"""


def main() -> None:
    """Write the double to standard output: sizes of attributes, objects with attributes, and the library's rest."""
    library = next(library for library in roles.load() if library.name == "cublaslt")
    enums = {dtype_enum.label: dtype_enum for dtype_enum in library.dtype_enums}
    lines = []
    for label in [*(kind.attributes[0] for kind in library.object_kinds), "capability_dtype", "configuration_dtype"]:
        if label:
            sizes = ", ".join(f"[{code}] = {SIZES[dtype]}" for _, code, dtype in enums[label].dtypes if dtype)
            lines.append(f"static const unsigned char sizes_{label.removesuffix('_dtype')}[48] = {{{sizes}}};")
    lines.append(TEXT)
    for kind in library.object_kinds:
        if kind.attributes[0]:
            stem, sizes = STEMS[kind.key], f"sizes_{kind.attributes[0].removesuffix('_dtype')}"
            lines += [f"int cublasLt{stem}Destroy(object *o) {{ free(o); return SUCCESS; }}"]
            lines += [
                f"int cublasLt{stem}SetAttribute(object *o, unsigned attribute, const void *value, size_t nbytes) {{"
            ]
            lines += [f"  return set(o, {sizes}, attribute, value, nbytes);", "}"]
            lines += [
                f"int cublasLt{stem}GetAttribute(const object *o, unsigned attribute, void *value, size_t nbytes,"
            ]
            lines += ["    size_t *written) {", f"  return ask(o, {sizes}, attribute, value, nbytes, written);", "}"]
    # Functions that no test needs have a name, but no code.
    defined = "\n".join(lines)
    for name in library.api["functions"]:
        if f"{name}(" not in defined:
            lines.append(f"int {name}(void) {{ return NOT_SUPPORTED; }}")
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
