/* A double of libcufft.so.12 for the double of CUDA; or, with -DHIPFFT, of libhipfft.so.0 for the double of HIP. It
 * computes by direct sums. It is strict about addresses, streams and work areas. It overwrites all memory that a
 * transform may overwrite: its work area, and the input of a transform to real numbers. Transforms of hipFFT are put
 * into the stream of the plan. */
#include <complex.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

enum {
  SUCCESS = 0,
  INVALID_PLAN = 1,
  INVALID_TYPE = 3,
  INVALID_VALUE = 4,
  EXEC_FAILED = 6,
  INVALID_SIZE = 8,
  NO_WORKSPACE = 13
};
#ifdef HIPFFT
enum { IS_HIPFFT = 1 };
#else
enum { IS_HIPFFT = 0 };
#endif
enum { C2C = 0x29, R2C = 0x2a, C2R = 0x2c, IN_DOUBLE = 0x40, MOST_RANK = 3, AREA = 512, MOST_PLANS = 1 << 16 };

typedef long long wide;
typedef double complex number;

/* The dimensions of the array that contains an array, and the contained array's steps. */
typedef struct layout {
  wide embed[MOST_RANK], stride, distance;
} layout;

typedef struct plan {
  int type, rank, is_plain; /* type 0: the plan has no transform yet; is_plain: without strides */
  wide n[MOST_RANK], batch;
  layout in, out;
  int has_own_area;
  void *stream, *area;
  int is_destroyed;
} plan;

/* One execution. */
typedef struct execution {
  plan plan;
  const struct plan *origin; /* never freed: a graph may not outlive it */
  void *in, *out;
  int direction;
} execution;

typedef int operation(const void *arguments, void *stream);
int gpu_double_captures(const void *stream, operation *run, const void *arguments, size_t nbytes);
int gpu_double_uses(const void *stream, const void *memory, size_t nbytes);
int gpu_double_unsafe(void);
int cuStreamIsCapturing(void *stream, int *status);
#ifdef HIPFFT
#define NAME(name) hipfft##name
typedef plan *handle;
void *hip_double_here(const void *address);
static plan *plan_of(handle h) { return h && !h->is_destroyed ? h : NULL; }
static handle handle_of(plan *p) { return p; }
static void forget(handle h) { h->is_destroyed = 1; }
#else
#define NAME(name) cufft##name
typedef int handle;
static plan *plans[MOST_PLANS];
static int plan_count;
static plan *plan_of(handle h) { return h >= 0 && h < MOST_PLANS ? plans[h] : NULL; }
static handle handle_of(plan *p) {
  const int h = __atomic_fetch_add(&plan_count, 1, __ATOMIC_RELAXED) % MOST_PLANS;
  plans[h] = p;
  return h;
}
static void forget(handle h) {
  plans[h]->is_destroyed = 1;
  plans[h] = NULL;
}
#endif

/* -- one transform, in double precision -- */

static wide product(const wide *n, int rank) {
  wide count = 1;
  for (int i = 0; i < rank; i++) count *= n[i];
  return count;
}

/* Transforms along one axis of a full array. */
static void along(number *values, const wide *n, int rank, int axis, int sign) {
  const wide length = n[axis], inner = product(n + axis + 1, rank - axis - 1), outer = product(n, axis);
  number *line = malloc((size_t)length * sizeof *line);
  for (wide o = 0; o < outer; o++)
    for (wide i = 0; i < inner; i++) {
      number *first = values + o * length * inner + i;
      for (wide k = 0; k < length; k++) {
        line[k] = 0;
        for (wide j = 0; j < length; j++) {
          const double angle = sign * 2 * M_PI * (double)(j * k % length) / (double)length;
          line[k] += first[j * inner] * (cos(angle) + I * sin(angle));
        }
      }
      for (wide k = 0; k < length; k++) first[k * inner] = line[k];
    }
  free(line);
}

/* Transforms lines, of which only the first halves are stored, to real numbers. half: the elements of a stored half. */
static void to_real(const number *halves, number *values, wide lines, wide n, wide half) {
  for (wide line = 0; line < lines; line++) {
    double added = 0;
    if (IS_HIPFFT) { /* hipFFT's result is wrong if the first or last element is not real */
      const number first = halves[line * half], last = n % 2 ? 0 : halves[line * half + half - 1];
      if (fabs(cimag(first)) + fabs(cimag(last)) > 1e-5 * (1 + cabs(first) + cabs(last))) added = NAN;
    }
    for (wide j = 0; j < n; j++) {
      double sum = creal(halves[line * half]);
      for (wide k = 1; k < half; k++) {
        const double angle = 2 * M_PI * (double)(j * k % n) / (double)n;
        const number term = halves[line * half + k] * (cos(angle) + I * sin(angle));
        sum += 2 * k == n ? creal(halves[line * half + k]) * cos(angle) : 2 * creal(term);
      }
      values[line * n + j] = sum + added;
    }
  }
}

/* -- memory -- */

static wide place(const layout *l, const wide *n, int rank, wide b, wide at) {
  wide place = 0, step = l->stride, rest = at;
  for (int i = rank; i-- > 0;) {
    place += rest % n[i] * step;
    rest /= n[i];
    step *= l->embed[i];
  }
  return place + b * l->distance;
}

static number loaded(const void *from, wide at, int is_complex, int is_double) {
  if (is_complex && is_double) return ((const double complex *)from)[at];
  if (is_complex) return ((const float complex *)from)[at];
  return is_double ? ((const double *)from)[at] : (double)((const float *)from)[at];
}

static void store(void *to, wide at, int is_complex, int is_double, number value) {
  if (is_complex && is_double)
    ((double complex *)to)[at] = value;
  else if (is_complex)
    ((float complex *)to)[at] = (float complex)value;
  else if (is_double)
    ((double *)to)[at] = creal(value);
  else
    ((float *)to)[at] = (float)creal(value);
}

static layout plain(const wide *n, int rank, wide last) {
  layout l = {.stride = 1};
  memcpy(l.embed, n, (size_t)rank * sizeof *n);
  l.embed[rank - 1] = last;
  l.distance = product(l.embed, rank);
  return l;
}

static int execute_now(const execution *e) {
  const plan *p = &e->plan;
  const int kind = p->type & ~IN_DOUBLE, is_double = p->type & IN_DOUBLE, rank = p->rank;
  wide in_n[MOST_RANK], out_n[MOST_RANK];
  memcpy(in_n, p->n, sizeof in_n);
  memcpy(out_n, p->n, sizeof out_n);
  const wide n = p->n[rank - 1], half = n / 2 + 1;
  if (kind == R2C) out_n[rank - 1] = half;
  if (kind == C2R) in_n[rank - 1] = half;
  layout in = p->in, out = p->out;
  if (p->is_plain) {
    const wide padded = e->in == e->out ? 2 * half : n;
    in = plain(in_n, rank, kind == R2C ? padded : in_n[rank - 1]);
    out = plain(out_n, rank, kind == C2R ? padded : out_n[rank - 1]);
  }
  const wide in_count = product(in_n, rank), out_count = product(out_n, rank), count = product(p->n, rank);
  number *values = calloc((size_t)(p->batch * count * 2), sizeof *values), *halves = values + p->batch * count;
  for (wide b = 0; b < p->batch; b++) {
    number *elements = kind == C2R ? halves : values + b * count;
    for (wide at = 0; at < in_count; at++)
      elements[at] = loaded(e->in, place(&in, in_n, rank, b, at), kind != R2C, is_double);
    for (int axis = 0; axis < rank - (kind == C2R); axis++)
      along(elements, in_n, rank, axis, kind == R2C ? -1 : kind == C2R ? 1 : e->direction);
    if (kind == C2R) to_real(halves, values + b * count, count / n, n, half);
  }
  for (wide b = 0; (kind == C2R || (IS_HIPFFT && kind == R2C)) && b < p->batch; b++)
    for (wide at = 0; at < in_count; at++) store(e->in, place(&in, in_n, rank, b, at), kind == C2R, is_double, NAN);
  for (wide b = 0; b < p->batch; b++)
    for (wide at = 0; at < out_count; at++) {
      const wide from = kind == R2C ? at / half * n + at % half : at;
      store(e->out, place(&out, out_n, rank, b, at), kind != C2R, is_double, values[b * count + from]);
    }
  free(values);
  if (p->area) memset(p->area, 0x7f, AREA);
  return SUCCESS;
}

/* Runs a transform that was put into a stream, or into a graph. */
static int execute_later(const void *arguments, void *stream) {
  execution e = *(const execution *)arguments;
  (void)stream;
  if (e.origin->is_destroyed) abort();
#ifdef HIPFFT
  e.in = hip_double_here(e.in);
  e.out = hip_double_here(e.out);
  e.plan.area = e.plan.area ? hip_double_here(e.plan.area) : NULL;
#endif
  return execute_now(&e);
}

static int execute(handle h, int type, void *in, void *out, int direction) {
  plan *p = plan_of(h);
  if (!p || !p->type) return INVALID_PLAN;
  if (p->type != type) return INVALID_TYPE;
  if (direction != 1 && direction != -1) return INVALID_VALUE;
  /* cuFFT takes no real numbers from or to an address between two complex numbers. */
  if ((uintptr_t)in % (type & IN_DOUBLE ? 16 : 8) || (uintptr_t)out % (type & IN_DOUBLE ? 16 : 8)) return INVALID_VALUE;
  if (!p->stream || kind_of(in) != 2 || kind_of(out) != 2) return EXEC_FAILED;
  if (!p->has_own_area && (!p->area || kind_of(p->area) != 2)) return NO_WORKSPACE;
  int is_captured = 0;
  cuStreamIsCapturing(p->stream, &is_captured);
  if (is_captured && p->has_own_area) return EXEC_FAILED; /* other calls could use the area while the graph runs */
  if (!p->has_own_area && !gpu_double_uses(p->stream, p->area, AREA)) return EXEC_FAILED;
  execution e = {.plan = *p, .origin = p, .in = in, .out = out, .direction = direction};
  if (p->has_own_area) e.plan.area = NULL;
  p->area = NULL; /* this double needs a new area for each execution */
  return gpu_double_captures(p->stream, execute_later, &e, sizeof e) ? SUCCESS : execute_later(&e, p->stream);
}

/* -- plans -- */

int NAME(Create)(handle *h) {
  plan *p = calloc(1, sizeof *p);
  p->has_own_area = 1;
  *h = handle_of(p);
  return SUCCESS;
}
int NAME(Destroy)(handle h) {
  if (!plan_of(h)) return INVALID_PLAN;
  forget(h);
  return SUCCESS;
}
int NAME(SetStream)(handle h, void *stream) {
  plan *p = plan_of(h);
  if (!p) return INVALID_PLAN;
  p->stream = stream;
  return SUCCESS;
}
int NAME(SetWorkArea)(handle h, void *area) {
  plan *p = plan_of(h);
  if (!p) return INVALID_PLAN;
  if (p->has_own_area && gpu_double_unsafe()) return EXEC_FAILED; /* this call frees the plan's own area */
  p->has_own_area = 0;
  p->area = area;
  return SUCCESS;
}
int NAME(SetAutoAllocation)(handle h, int on) {
  plan *p = plan_of(h);
  if (!p || p->type) return INVALID_PLAN;
  p->has_own_area = on;
  return SUCCESS;
}
int NAME(GetSize)(handle h, size_t *nbytes) {
  plan *p = plan_of(h);
  if (!p || !p->type) return INVALID_PLAN;
  *nbytes = AREA;
  return SUCCESS;
}

int NAME(MakePlanMany64)(handle h, int rank, wide *n, wide *inembed, wide istride, wide idist, wide *onembed,
                         wide ostride, wide odist, int type, wide batch, size_t *nbytes) {
  plan *p = plan_of(h);
  const int kind = type & ~IN_DOUBLE;
  if (!p || p->type) return INVALID_PLAN;
  if (kind != C2C && kind != R2C && kind != C2R) return INVALID_TYPE;
  if (rank < 1 || rank > MOST_RANK || batch < 1 || !inembed != !onembed) return INVALID_SIZE;
  for (int i = 0; i < rank; i++)
    if (n[i] < 1) return INVALID_SIZE;
  p->type = type;
  p->rank = rank;
  p->batch = batch;
  p->is_plain = !inembed;
  memcpy(p->n, n, (size_t)rank * sizeof *n);
  p->in = (layout){.stride = istride, .distance = idist};
  p->out = (layout){.stride = ostride, .distance = odist};
  if (inembed) memcpy(p->in.embed, inembed, (size_t)rank * sizeof *n);
  if (onembed) memcpy(p->out.embed, onembed, (size_t)rank * sizeof *n);
  *nbytes = AREA;
  return SUCCESS;
}
static wide *widened(const int *from, int rank, wide *to) {
  for (int i = 0; from && i < rank && i < MOST_RANK; i++) to[i] = from[i];
  return from ? to : NULL;
}
int NAME(MakePlanMany)(handle h, int rank, int *n, int *inembed, int istride, int idist, int *onembed, int ostride,
                       int odist, int type, int batch, size_t *nbytes) {
  wide lengths[MOST_RANK], in[MOST_RANK], out[MOST_RANK];
  return NAME(MakePlanMany64)(h, rank, widened(n, rank, lengths), widened(inembed, rank, in), istride, idist,
                              widened(onembed, rank, out), ostride, odist, type, batch, nbytes);
}
int NAME(MakePlan1d)(handle h, int nx, int type, int batch, size_t *nbytes) {
  return NAME(MakePlanMany)(h, 1, &nx, NULL, 1, 1, NULL, 1, 1, type, batch, nbytes);
}
int NAME(MakePlan2d)(handle h, int nx, int ny, int type, size_t *nbytes) {
  int n[] = {nx, ny};
  return NAME(MakePlanMany)(h, 2, n, NULL, 1, 1, NULL, 1, 1, type, 1, nbytes);
}
int NAME(MakePlan3d)(handle h, int nx, int ny, int nz, int type, size_t *nbytes) {
  int n[] = {nx, ny, nz};
  return NAME(MakePlanMany)(h, 3, n, NULL, 1, 1, NULL, 1, 1, type, 1, nbytes);
}

/* Makes a plan. Destroys it after a failure. */
#define PLAN(making)               \
  do {                             \
    size_t nbytes;                 \
    NAME(Create)(h);               \
    const int status = making;     \
    if (status) NAME(Destroy)(*h); \
    return status;                 \
  } while (0)

int NAME(PlanMany)(handle *h, int rank, int *n, int *inembed, int istride, int idist, int *onembed, int ostride,
                   int odist, int type, int batch) {
  PLAN(NAME(MakePlanMany)(*h, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch, &nbytes));
}
int NAME(Plan1d)(handle *h, int nx, int type, int batch) { PLAN(NAME(MakePlan1d)(*h, nx, type, batch, &nbytes)); }
int NAME(Plan2d)(handle *h, int nx, int ny, int type) { PLAN(NAME(MakePlan2d)(*h, nx, ny, type, &nbytes)); }
int NAME(Plan3d)(handle *h, int nx, int ny, int nz, int type) { PLAN(NAME(MakePlan3d)(*h, nx, ny, nz, type, &nbytes)); }

/* -- the rest -- */

int NAME(ExecC2C)(handle h, void *in, void *out, int direction) { return execute(h, C2C, in, out, direction); }
int NAME(ExecZ2Z)(handle h, void *in, void *out, int direction) {
  return execute(h, C2C + IN_DOUBLE, in, out, direction);
}
int NAME(ExecR2C)(handle h, void *in, void *out) { return execute(h, R2C, in, out, -1); }
int NAME(ExecD2Z)(handle h, void *in, void *out) { return execute(h, R2C + IN_DOUBLE, in, out, -1); }
int NAME(ExecC2R)(handle h, void *in, void *out) { return execute(h, C2R, in, out, 1); }
int NAME(ExecZ2D)(handle h, void *in, void *out) { return execute(h, C2R + IN_DOUBLE, in, out, 1); }

int NAME(GetVersion)(int *version) {
  *version = 12500;
  return SUCCESS;
}
int NAME(GetProperty)(int part, int *value) {
  *value = part == 0 ? 12 : part == 1 ? 5 : 0;
  return SUCCESS;
}
int NAME(Estimate1d)(int nx, int type, int batch, size_t *nbytes) {
  *nbytes = AREA;
  return nx < 1 || batch < 1 || !type ? INVALID_SIZE : SUCCESS;
}
int NAME(Estimate2d)(int nx, int ny, int type, size_t *nbytes) { return NAME(Estimate1d)(nx, type, ny, nbytes); }
int NAME(Estimate3d)(int nx, int ny, int nz, int type, size_t *nbytes) {
  return nz < 1 ? INVALID_SIZE : NAME(Estimate1d)(nx, type, ny, nbytes);
}
