/* Discrete Fourier transforms on the CPU that a graph can have. Calls of scipy.fft can't be captured: they would need
 * Python when the graph runs. */
#include "module.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST_FACTOR = 31 }; /* lengths with a larger prime factor become convolutions */

typedef struct {
  double re, im;
} Number;

/* One transform of each line. The arrays have the axes (outer, from or to, inner), in C order. */
typedef struct {
  const void *from;
  void *to;
  int64_t outer, from_length, to_length, inner;
  int64_t n;     /* the length of the transform: lines are cut to it, or filled with zeros */
  int direction; /* the sign of the exponent: -1 or 1 */
  double scale;
  int from_dtype, to_dtype;
} Transform;

/* The data that all transforms of one length and sign share. */
typedef struct {
  int64_t n;
  int sign;
  Number *roots; /* n roots of one */
} Roots;

static Number times(Number a, Number b) { return (Number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
static Number conjugate(Number a) { return (Number){a.re, -a.im}; }

/* Returns exp(sign * i * pi * twice / n). */
static Number root(int sign, int64_t twice, int64_t n) {
  const double angle = 3.14159265358979323846 * (double)twice / (double)n;
  return (Number){cos(angle), sign * sin(angle)};
}

static int64_t smallest_factor(int64_t n) {
  for (int64_t p = 2; p * p <= n; p++)
    if (n % p == 0) return p;
  return n;
}

static int64_t largest_factor(int64_t n) {
  int64_t largest = 1;
  for (int64_t p; n > 1; n /= p) largest = p = smallest_factor(n);
  return largest;
}

static int make_roots(Roots *roots, int64_t n, int sign) {
  *roots = (Roots){n, sign, malloc((size_t)n * sizeof(Number))};
  for (int64_t k = 0; roots->roots != NULL && k < n; k++) roots->roots[k] = root(sign, 2 * k, n);
  return roots->roots != NULL;
}

/* Writes the transform of n numbers that are `stride` apart; n * step is the length of the roots. */
static void transform(const Roots *roots, Number *out, const Number *in, int64_t n, int64_t stride, int64_t step) {
  if (n == 1) {
    *out = *in;
    return;
  }
  const int64_t p = smallest_factor(n), m = n / p;
  const Number *w = roots->roots;
  for (int64_t q = 0; q < p; q++) transform(roots, out + q * m, in + q * stride, m, stride * p, step * p);
  for (int64_t k = 0; k < m; k++) {
    Number terms[LARGEST_FACTOR];
    for (int64_t q = 0; q < p; q++) terms[q] = times(out[q * m + k], w[q * k * step]);
    for (int64_t r = 0; r < p; r++) {
      Number sum = terms[0];
      for (int64_t q = 1; q < p; q++) {
        const Number term = p == 2 ? (Number){r ? -terms[1].re : terms[1].re, r ? -terms[1].im : terms[1].im}
                                   : times(terms[q], w[q * r % p * m * step]);
        sum.re += term.re;
        sum.im += term.im;
      }
      out[r * m + k] = sum;
    }
  }
}

/* A transform as a convolution with a chirp, by transforms whose length is a power of two (Bluestein). */
typedef struct {
  Roots roots; /* of the convolution */
  Number *chirp, *kernel, *padded, *product;
} Convolution;

static void free_convolution(Convolution *c) {
  free(c->roots.roots);
  free(c->chirp);
}

static int make_convolution(Convolution *c, int64_t n, int sign) {
  int64_t length = 1;
  while (length < 2 * n - 1) length *= 2;
  *c = (Convolution){.chirp = malloc((size_t)(n + 3 * length) * sizeof(Number))};
  if (c->chirp == NULL || !make_roots(&c->roots, length, -1)) return 0;
  c->kernel = c->chirp + n;
  c->padded = c->kernel + length;
  c->product = c->padded + length;
  memset(c->padded, 0, (size_t)length * sizeof(Number));
  for (int64_t k = 0, square = 0; k < n; square = (square + 2 * k + 1) % (2 * n), k++) {
    c->chirp[k] = root(sign, square, n);
    c->padded[k] = c->padded[(length - k) % length] = conjugate(c->chirp[k]);
  }
  transform(&c->roots, c->kernel, c->padded, length, 1, 1);
  return 1;
}

static void convolve(const Convolution *c, Number *out, const Number *in, int64_t n) {
  const int64_t length = c->roots.n;
  memset(c->padded, 0, (size_t)length * sizeof(Number));
  for (int64_t k = 0; k < n; k++) c->padded[k] = times(in[k], c->chirp[k]);
  transform(&c->roots, c->product, c->padded, length, 1, 1);
  for (int64_t k = 0; k < length; k++) c->product[k] = conjugate(times(c->product[k], c->kernel[k]));
  transform(&c->roots, c->padded, c->product, length, 1, 1); /* of conjugates: the inverse */
  for (int64_t k = 0; k < n; k++) {
    const Number value = times(conjugate(c->padded[k]), c->chirp[k]);
    out[k] = (Number){value.re / (double)length, value.im / (double)length};
  }
}

static Number load(const void *from, int dtype, int64_t at) {
  switch (dtype) {
    case OA_F32:
      return (Number){((const float *)from)[at], 0};
    case OA_F64:
      return (Number){((const double *)from)[at], 0};
    case OA_C64:
      return (Number){((const float *)from)[2 * at], ((const float *)from)[2 * at + 1]};
    default:
      return ((const Number *)from)[at];
  }
}

static void store(void *to, int dtype, int64_t at, Number value) {
  switch (dtype) {
    case OA_F32:
      ((float *)to)[at] = (float)value.re;
      break;
    case OA_F64:
      ((double *)to)[at] = value.re;
      break;
    case OA_C64:
      ((float *)to)[2 * at] = (float)value.re;
      ((float *)to)[2 * at + 1] = (float)value.im;
      break;
    default:
      ((Number *)to)[at] = value;
  }
}

/* Loads a line. If the result is real, the line is the first half of a Hermitian sequence. */
static void load_line(const Transform *t, Number *line, int64_t first) {
  const int to_real = t->to_dtype == OA_F32 || t->to_dtype == OA_F64;
  const int64_t needed = to_real ? t->n / 2 + 1 : t->n;
  for (int64_t k = 0; k < needed; k++)
    line[k] = k < t->from_length ? load(t->from, t->from_dtype, first + k * t->inner) : (Number){0, 0};
  if (!to_real) return;
  line[0].im = 0;
  if (t->n % 2 == 0) line[t->n / 2].im = 0;
  for (int64_t k = needed; k < t->n; k++) line[k] = conjugate(line[t->n - k]);
}

/* Transforms all lines. Without memory for the work, the results are NaN. */
static void run(void *arguments) {
  const Transform *t = arguments;
  const int is_smooth = largest_factor(t->n) <= LARGEST_FACTOR;
  Number *line = malloc((size_t)t->n * 2 * sizeof *line), *result = line + t->n;
  Roots roots = {0};
  Convolution convolution = {.chirp = NULL};
  const int ready = line != NULL && (is_smooth ? make_roots(&roots, t->n, t->direction)
                                               : make_convolution(&convolution, t->n, t->direction));
  for (int64_t o = 0; o < t->outer; o++)
    for (int64_t i = 0; i < t->inner; i++) {
      if (ready) {
        load_line(t, line, o * t->from_length * t->inner + i);
        if (is_smooth)
          transform(&roots, result, line, t->n, 1, 1);
        else
          convolve(&convolution, result, line, t->n);
      }
      for (int64_t k = 0; k < t->to_length; k++) {
        const Number value = ready ? (Number){t->scale * result[k].re, t->scale * result[k].im} : (Number){NAN, NAN};
        store(t->to, t->to_dtype, (o * t->to_length + k) * t->inner + i, value);
      }
    }
  free(roots.roots);
  free_convolution(&convolution);
  free(line);
}

/* Returns the name of a function, which lives as long as the process; NULL with an exception. */
static const char *name_of(const char *name) {
  static const char *const names[] = {"fft.fft",   "fft.ifft",   "fft.rfft",  "fft.irfft",  "fft.hfft",  "fft.ihfft",
                                      "fft.fft2",  "fft.ifft2",  "fft.fftn",  "fft.ifftn",  "fft.rfft2", "fft.irfft2",
                                      "fft.rfftn", "fft.irfftn", "fft.hfft2", "fft.ihfft2", "fft.hfftn", "fft.ihfftn"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], name) == 0) return names[i];
  PyErr_Format(PyExc_ValueError, "no function of fft has the name %s", name);
  return NULL;
}

/* (function, x, y, (outer, x's length, y's length, inner), n, direction, scale): writes the transforms of x's lines to
 * y. x and y are in C order, and on a device whose calls the CPU makes. */
static PyObject *do_transform(PyObject *arguments) {
  const char *name;
  PyObject *from, *to;
  long long outer, from_length, to_length, inner, n;
  int direction, status;
  double scale;
  if (!PyArg_ParseTuple(arguments, "sOO(LLLL)Lid", &name, &from, &to, &outer, &from_length, &to_length, &inner, &n,
                        &direction, &scale) ||
      (name = name_of(name)) == NULL)
    return NULL;
  const Pointer *x = as_pointer(from), *y = x == NULL ? NULL : as_pointer(to);
  if (y == NULL) return NULL;
  oa_operand operands[] = {
      oa_operand_of("x", x->handle, OA_READ, x->dtype, OA_ELEMENTS(outer * from_length * inner)),
      oa_operand_of("y", y->handle, OA_OVERWRITE, y->dtype, OA_ELEMENTS(outer * to_length * inner))};
  oa_call call = oa_call_of(name, NULL, operands, 2);
  Py_BEGIN_ALLOW_THREADS status = oa_begin(&call);
  if (status == OA_OK) {
    Transform t = {.from = operands[0].address,
                   .to = operands[1].address,
                   .outer = outer,
                   .from_length = from_length,
                   .to_length = to_length,
                   .inner = inner,
                   .n = n,
                   .direction = direction,
                   .scale = scale,
                   .from_dtype = x->dtype,
                   .to_dtype = y->dtype};
    status = oa_submit(&call, run, &t, sizeof t);
  }
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

static PyObject *transform_lines(PyObject *Py_UNUSED(module), PyObject *arguments) {
  return recorded("unrecorded", arguments, do_transform(arguments));
}

static PyMethodDef transform_functions[] = {{"transform", transform_lines, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

int add_transform(PyObject *module) { return PyModule_AddFunctions(module, transform_functions); }
