/* The kernels of raja_kernels.py in plain CUDA C, as a programmer would write them; raja.py compares its kernels with
 * these.
 * It is built on the spot: nvcc -O3 -arch=native -shared -Xcompiler -fPIC raja.cu. */
#include <math.h>
#include <string.h>

#define KERNEL extern "C" __global__ void
#define IN const double *__restrict__
#define OUT double *__restrict__
#define INDEX_BELOW(n)                                        \
  const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); \
  if (i >= n) return

KERNEL daxpy(OUT y, IN x, double a, int n) {
  INDEX_BELOW(n);
  y[i] += a * x[i];
}

KERNEL muladdsub(OUT product, OUT sum, OUT difference, IN x, IN y, int n) {
  INDEX_BELOW(n);
  product[i] = x[i] * y[i];
  sum[i] = x[i] + y[i];
  difference[i] = x[i] - y[i];
}

KERNEL copy(OUT c, IN a, int n) {
  INDEX_BELOW(n);
  c[i] = a[i];
}

KERNEL mul(OUT b, IN c, double alpha, int n) {
  INDEX_BELOW(n);
  b[i] = alpha * c[i];
}

KERNEL add(OUT c, IN a, IN b, int n) {
  INDEX_BELOW(n);
  c[i] = a[i] + b[i];
}

KERNEL triad(OUT a, IN b, IN c, double alpha, int n) {
  INDEX_BELOW(n);
  a[i] = b[i] + alpha * c[i];
}

/* -- reductions, in blocks of 256 ---------------------------------------------------------------------------------- */

static __device__ void add_up(double *sums, double mine) {
  __shared__ double part[256];
  const int thread = (int)threadIdx.x;
  part[thread] = mine;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (thread < half) part[thread] += part[thread + half];
    __syncthreads();
  }
  if (thread == 0) sums[blockIdx.x] = part[0];
}

KERNEL dot(OUT sums, IN a, IN b, int n) {
  double mine = 0;
  for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x))
    mine += a[i] * b[i];
  add_up(sums, mine);
}

KERNEL total(OUT sum, IN sums, int n) {
  double mine = 0;
  for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x)) mine += sums[i];
  add_up(sum, mine);
}

struct three {
  int sum, least, most;
};

static __device__ void join(struct three *sums, struct three further) {
  sums->sum += further.sum;
  sums->least = min(sums->least, further.least);
  sums->most = max(sums->most, further.most);
}

static __device__ void join_all(struct three *results, struct three mine) {
  __shared__ struct three part[256];
  const int thread = (int)threadIdx.x;
  part[thread] = mine;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (thread < half) join(&part[thread], part[thread + half]);
    __syncthreads();
  }
  if (thread == 0) results[blockIdx.x] = part[0];
}

KERNEL reduce3(struct three *results, const int *__restrict__ x, int n) {
  struct three mine = {0, 2147483647, -2147483647 - 1};
  for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x)) {
    const struct three elements = {x[i], x[i], x[i]};
    join(&mine, elements);
  }
  join_all(results, mine);
}

KERNEL total3(struct three *result, const struct three *__restrict__ results, int n) {
  struct three mine = {0, 2147483647, -2147483647 - 1};
  for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n; i += (int)(gridDim.x * blockDim.x))
    join(&mine, results[i]);
  join_all(result, mine);
}

/* -- PRESSURE ------------------------------------------------------------------------------------------------------ */

KERNEL pressure1(OUT bvc, IN compression, double cls, int n) {
  INDEX_BELOW(n);
  bvc[i] = cls * (compression[i] + 1);
}

KERNEL pressure2(OUT p_new, IN bvc, IN e_old, IN vnewc, double p_cut, double p_min, double eosvmax, int n) {
  INDEX_BELOW(n);
  double p = bvc[i] * e_old[i];
  if (fabs(p) < p_cut) p = 0;
  if (vnewc[i] >= eosvmax) p = 0;
  p_new[i] = p < p_min ? p_min : p;
}

/* -- ENERGY -------------------------------------------------------------------------------------------------------- */

static __device__ double viscosity(double pbvc, double e, double v, double bvc, double p, double rho0, double ql,
                                   double qq) {
  const double squared = (pbvc * e + v * v * bvc * p) / rho0;
  return (squared <= 0.1111111e-36 ? 0.3333333e-18 : sqrt(squared)) * ql + qq;
}

static __device__ double cut(double e, double e_cut, double e_min) {
  if (fabs(e) < e_cut) e = 0;
  return e < e_min ? e_min : e;
}

KERNEL energy1(OUT e_new, IN e_old, IN delvc, IN p_old, IN q_old, IN work, int n) {
  INDEX_BELOW(n);
  e_new[i] = e_old[i] - 0.5 * delvc[i] * (p_old[i] + q_old[i]) + 0.5 * work[i];
}

KERNEL energy2(OUT q_new, IN delvc, IN comp_half, IN pbvc, IN e_new, IN bvc, IN p_half, IN ql_old, IN qq_old,
               double rho0, int n) {
  INDEX_BELOW(n);
  if (delvc[i] > 0)
    q_new[i] = 0;
  else
    q_new[i] = viscosity(pbvc[i], e_new[i], 1 / (1 + comp_half[i]), bvc[i], p_half[i], rho0, ql_old[i], qq_old[i]);
}

KERNEL energy3(OUT e_new, IN delvc, IN p_old, IN q_old, IN p_half, IN q_new, int n) {
  INDEX_BELOW(n);
  e_new[i] += 0.5 * delvc[i] * (3 * (p_old[i] + q_old[i]) - 4 * (p_half[i] + q_new[i]));
}

KERNEL energy4(OUT e_new, IN work, double e_cut, double e_min, int n) {
  INDEX_BELOW(n);
  e_new[i] = cut(e_new[i] + 0.5 * work[i], e_cut, e_min);
}

KERNEL energy5(OUT e_new, IN delvc, IN pbvc, IN vnewc, IN bvc, IN p_new, IN ql_old, IN qq_old, IN p_old, IN q_old,
               IN p_half, IN q_new, double rho0, double e_cut, double e_min, int n) {
  INDEX_BELOW(n);
  double q = 0;
  if (delvc[i] <= 0) q = viscosity(pbvc[i], e_new[i], vnewc[i], bvc[i], p_new[i], rho0, ql_old[i], qq_old[i]);
  const double change = 7 * (p_old[i] + q_old[i]) - 8 * (p_half[i] + q_new[i]) + (p_new[i] + q);
  e_new[i] = cut(e_new[i] - change * delvc[i] / 6, e_cut, e_min);
}

KERNEL energy6(OUT q_new, IN delvc, IN pbvc, IN e_new, IN vnewc, IN bvc, IN p_new, IN ql_old, IN qq_old, double rho0,
               double q_cut, int n) {
  INDEX_BELOW(n);
  if (delvc[i] <= 0) {
    const double q = viscosity(pbvc[i], e_new[i], vnewc[i], bvc[i], p_new[i], rho0, ql_old[i], qq_old[i]);
    q_new[i] = fabs(q) < q_cut ? 0 : q;
  }
}

/* -- for raja.py --------------------------------------------------------------------------------------------------- */

#define NAMED(name) {#name, (const void *)name}
static const struct {
  const char *name;
  const void *function;
} kernels[] = {NAMED(daxpy),   NAMED(muladdsub), NAMED(copy),    NAMED(mul),     NAMED(add),       NAMED(triad),
               NAMED(dot),     NAMED(total),     NAMED(reduce3), NAMED(total3),  NAMED(energy1),   NAMED(energy2),
               NAMED(energy3), NAMED(energy4),   NAMED(energy5), NAMED(energy6), NAMED(pressure1), NAMED(pressure2)};

/* Launches a kernel; returns 0, or the runtime's error. */
extern "C" int plain_launch(const char *name, unsigned grid, unsigned block, void **arguments, cudaStream_t stream) {
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
    if (strcmp(kernels[i].name, name) == 0)
      return cudaLaunchKernel(kernels[i].function, grid, block, arguments, 0, stream);
  return -1;
}

static cudaEvent_t events[2];

/* Notes the time at which the device comes to this point of the stream. which: 0 for the beginning, 1 for the end. */
extern "C" int plain_note(int which, cudaStream_t stream) {
  if (!events[which]) {
    const cudaError_t status = cudaEventCreate(&events[which]);
    if (status) return status;
  }
  return cudaEventRecord(events[which], stream);
}

/* Waits for the end, and returns the seconds from the beginning to the end; -1 after a failure. */
extern "C" double plain_seconds(void) {
  float milliseconds;
  if (cudaEventSynchronize(events[1]) || cudaEventElapsedTime(&milliseconds, events[0], events[1])) return -1;
  return 1e-3 * milliseconds;
}
