/* A double of libcurand.so.10 for the double of a GPU: its generators are of one kind, a counter whose bits are mixed.
 * It is strict about addresses, and about the manual's rules for sizes and types. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "memory.h"

enum {
  SUCCESS = 0,
  NOT_INITIALIZED = 101,
  ALLOCATION_FAILED = 102,
  TYPE_ERROR = 103,
  OUT_OF_RANGE = 104,
  LENGTH_NOT_MULTIPLE = 105,
  LAUNCH_FAILURE = 201
};

typedef struct generator {
  int type, order;
  unsigned dimensions;
  unsigned long long seed, offset, drawn;
  void *stream;
} generator;

static int is_array(const void *pointer) { return kind_of(pointer) != 0; }

static int is_quasi(const generator *g) { return g->type >= 200; }
static int is_64_bit(const generator *g) { return g->type >= 203; }

static uint64_t next(generator *g) {
  uint64_t z = g->seed + (g->offset + ++g->drawn) * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}
static double uniform(generator *g) { return (double)((next(g) >> 11) + 1) * 0x1p-53; }
static double normal(generator *g) {
  const double radius = sqrt(-2 * log(uniform(g)));
  return radius * cos(6.283185307179586 * uniform(g));
}

int curandCreateGenerator(generator **g, int type) {
  static const int types[] = {100, 101, 121, 141, 142, 161, 200, 201, 202, 203, 204, 0};
  const int *known = types;
  while (*known && *known != type) known++;
  if (!*known) return TYPE_ERROR;
  if (!(*g = calloc(1, sizeof **g))) return ALLOCATION_FAILED;
  (*g)->type = type;
  (*g)->dimensions = 1;
  return SUCCESS;
}
int curandDestroyGenerator(generator *g) {
  free(g);
  return SUCCESS;
}
int curandSetStream(generator *g, void *stream) {
  g->stream = stream;
  return SUCCESS;
}
int curandGetProperty(int part, int *value) {
  *value = part == 0 ? 10 : part == 1 ? 4 : 5;
  return SUCCESS;
}
int curandGetVersion(int *version) {
  *version = 10405;
  return SUCCESS;
}
int curandSetPseudoRandomGeneratorSeed(generator *g, unsigned long long seed) {
  if (is_quasi(g)) return TYPE_ERROR;
  g->seed = seed;
  g->drawn = 0;
  return SUCCESS;
}
int curandSetGeneratorOffset(generator *g, unsigned long long offset) {
  g->offset = offset;
  g->drawn = 0;
  return SUCCESS;
}
int curandSetGeneratorOrdering(generator *g, int order) {
  if (order < 100 || (order > 104 && order != 201)) return OUT_OF_RANGE;
  if ((order == 201) != is_quasi(g)) return TYPE_ERROR;
  g->order = order;
  return SUCCESS;
}
int curandSetQuasiRandomGeneratorDimensions(generator *g, unsigned dimensions) {
  if (!is_quasi(g)) return TYPE_ERROR;
  if (dimensions < 1 || dimensions > 20000) return OUT_OF_RANGE;
  g->dimensions = dimensions;
  return SUCCESS;
}
int curandGenerateSeeds(generator *g) { return g ? SUCCESS : NOT_INITIALIZED; }

/* Returns the code for writing n numbers. pairs: pseudorandom numbers are made in pairs. */
static int status_of(const generator *g, const void *out, size_t n, int pairs) {
  if (!g->stream || (n && !is_array(out))) return LAUNCH_FAILURE;
  const size_t multiple = is_quasi(g) ? g->dimensions : pairs ? 2 : 1;
  return n % multiple ? LENGTH_NOT_MULTIPLE : SUCCESS;
}
#define GENERATE(number, pairs, value)                                  \
  do {                                                                  \
    const int status = status_of(g, out, n, pairs);                     \
    for (size_t i = 0; !status && i < n; i++) out[i] = (number)(value); \
    return status;                                                      \
  } while (0)

int curandGenerate(generator *g, unsigned *out, size_t n) {
  if (is_64_bit(g)) return TYPE_ERROR;
  GENERATE(unsigned, 0, next(g) >> 32);
}
int curandGenerateLongLong(generator *g, unsigned long long *out, size_t n) {
  if (!is_64_bit(g)) return TYPE_ERROR;
  GENERATE(unsigned long long, 0, next(g));
}
static float single(double value) { return value < 0x1p-30 ? 0x1p-30f : (float)value; }
int curandGenerateUniform(generator *g, float *out, size_t n) { GENERATE(float, 0, single(uniform(g))); }
int curandGenerateUniformDouble(generator *g, double *out, size_t n) { GENERATE(double, 0, uniform(g)); }
int curandGenerateNormal(generator *g, float *out, size_t n, float mean, float deviation) {
  GENERATE(float, 1, mean + deviation * normal(g));
}
int curandGenerateNormalDouble(generator *g, double *out, size_t n, double mean, double deviation) {
  GENERATE(double, 1, mean + deviation * normal(g));
}
int curandGenerateLogNormal(generator *g, float *out, size_t n, float mean, float deviation) {
  GENERATE(float, 1, exp(mean + deviation * normal(g)));
}
int curandGenerateLogNormalDouble(generator *g, double *out, size_t n, double mean, double deviation) {
  GENERATE(double, 1, exp(mean + deviation * normal(g)));
}

static unsigned poisson(generator *g, double rate) {
  const double least = exp(-rate);
  unsigned count = 0;
  for (double product = uniform(g); product > least; product *= uniform(g)) count++;
  return count;
}
int curandGeneratePoisson(generator *g, unsigned *out, size_t n, double rate) {
  if (!(rate > 0)) return OUT_OF_RANGE;
  GENERATE(unsigned, 0, poisson(g, rate));
}
