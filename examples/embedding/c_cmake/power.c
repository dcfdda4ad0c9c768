/* The largest eigenvalue of a symmetric matrix by power iteration, on any device.
 *
 *   power DEVICE N STEPS     prints the eigenvalue of the matrix with 1 / (1 + |i - j|) in row i and column j */
#include <offload_args.h>
#include <offload_args_blas.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static oa_array matrix(const char *name, double *data, const int64_t *shape, const int64_t *strides, int direction) {
  return (oa_array){.data = data,
                    .shape = shape,
                    .strides = strides,
                    .name = name,
                    .ndim = strides[1] ? 2 : 1,
                    .dtype = OA_F64,
                    .direction = direction};
}

/* Iterates x = A x / |A x|; y is scratch. Only the norms leave the device meanwhile. */
static int iterate(int64_t n, const oa_f64 *A, oa_f64 *x, oa_f64 *y, int steps, double *eigenvalue) {
  for (int i = 0; i < steps; i++) {
    OA_TRY(oa_blas_dsymv(OA_BLAS_LOWER, n, 1.0, A, n, x, 1, 0.0, y, 1));
    OA_TRY(oa_blas_dnrm2(n, y, 1, eigenvalue));
    OA_TRY(oa_blas_dcopy(n, y, 1, x, 1));
    OA_TRY(oa_blas_dscal(n, 1.0 / *eigenvalue, x, 1));
  }
  return OA_OK;
}

static int power(const char *device_name, int64_t n, double *A, double *x, int steps, double *eigenvalue) {
  const int64_t shape[] = {n, n}, strides[] = {8, 8 * n}, vector[] = {8, 0};
  oa_array arrays[] = {matrix("A", A, shape, strides, OA_IN), matrix("x", x, shape, vector, OA_INOUT),
                       matrix("y", NULL, shape, vector, OA_SCRATCH)};
  oa_region *region;
  int device;
  OA_TRY(oa_check_version(OA_VERSION));
  OA_TRY(oa_device_open(device_name, &device));
  OA_TRY(oa_region_enter(device, NULL, arrays, 3, &region));
  const int status =
      iterate(n, (oa_f64 *)arrays[0].handle, (oa_f64 *)arrays[1].handle, (oa_f64 *)arrays[2].handle, steps, eigenvalue);
  const int finished = oa_region_finish(region, status ? OA_DISCARD : OA_COMMIT, NULL);
  const int waited = oa_region_wait(region);
  return status ? status : finished ? finished : waited;
}

int main(int count, char **arguments) {
  if (count != 4) {
    fprintf(stderr, "usage: power DEVICE N STEPS\n");
    return 2;
  }
  const int64_t n = atoll(arguments[2]);
  double eigenvalue = 0, *A = malloc(sizeof *A * (size_t)(n * n)), *x = malloc(sizeof *x * (size_t)n);
  for (int64_t j = 0; A && x && j < n; j++) {
    x[j] = 1;
    for (int64_t i = 0; i < n; i++) A[i + j * n] = 1 / (1 + fabs((double)(i - j)));
  }
  const int status = power(arguments[1], n, A, x, atoi(arguments[3]), &eigenvalue);
  if (status)
    fprintf(stderr, "%s: %s\n", oa_status_name(status), oa_last_error());
  else
    printf("%.12f\n", eigenvalue);
  free(A);
  free(x);
  return status != OA_OK;
}
