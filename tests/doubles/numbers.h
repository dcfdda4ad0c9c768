/* The elements of arrays for the doubles of sparse libraries, by the number of a cudaDataType or hipDataType: 0 and 1
 * are float and double, 4 and 5 are their complex types. */
#ifndef NUMBERS_H
#define NUMBERS_H

#include <complex.h>
#include <stdint.h>

typedef double complex number;

static inline number get(int type, const void *values, int64_t i) {
  if (type == 0) return ((const float *)values)[i];
  if (type == 1) return ((const double *)values)[i];
  if (type == 4) return ((const float complex *)values)[i];
  return ((const double complex *)values)[i];
}
static inline void set(int type, void *values, int64_t i, number value) {
  if (type == 0) ((float *)values)[i] = (float)creal(value);
  if (type == 1) ((double *)values)[i] = creal(value);
  if (type == 4) ((float complex *)values)[i] = (float complex)value;
  if (type == 5) ((double complex *)values)[i] = value;
}

#endif
