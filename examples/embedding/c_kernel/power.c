/* The largest eigenvalue of a symmetric matrix by power iteration, on any device, with a kernel of the program's own.
 *
 *   power DEVICE N STEPS     prints the eigenvalue of the matrix with 1 / (1 + |i - j|) in row i and column j
 *
 * Run it in the folder that has the kernel: kernels.so for the CPU, kernels.ptx or kernels.hsaco for GPUs. */
#include <offload_args.h>
#include <offload_args/launch.h>
#include <offload_args_blas.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static oa_array matrix(const char *name, double *data, const int64_t *shape, const int64_t *strides, int direction) {
  return (oa_array){.data = data,
                    .shape = shape,
                    .strides = strides,
                    .name = name,
                    .ndim = strides[1] ? 2 : 1,
                    .dtype = OA_F64,
                    .direction = direction};
}

/* Loads the file's bytes as a module of the device. The library determines the module's kind from these bytes. */
static int load(int device, const char *path, oa_module **module) {
  enum { MOST = 1 << 24 };
  char *image = malloc(MOST);
  FILE *file = image ? fopen(path, "rb") : NULL;
  const size_t nbytes = file ? fread(image, 1, MOST, file) : 0;
  if (file) fclose(file);
  if (!nbytes) fprintf(stderr, "%s can't be read: make it first\n", path);
  const int status = oa_module_load(device, path, image, nbytes, module);
  free(image);
  return status;
}

/* Loads the kernel for that device: y = A x. */
static int find_kernel(const char *device_name, int device, oa_module **module, oa_kernel **kernel) {
  static const oa_parameter parameters[] = {
      {.name = "A", .access = OA_READ, .dtype = OA_F64, .nbytes = 8},
      {.name = "x", .access = OA_READ, .dtype = OA_F64, .nbytes = 8, .offset = 8},
      {.name = "y", .access = OA_OVERWRITE, .dtype = OA_F64, .nbytes = 8, .offset = 16},
      {.name = "n", .nbytes = sizeof(int), .offset = 24}};
  const char *path = strncmp(device_name, "cuda", 4) == 0  ? "kernels.ptx"
                     : strncmp(device_name, "hip", 3) == 0 ? "kernels.hsaco"
                                                           : "kernels.so";
  OA_TRY(load(device, path, module));
  return oa_kernel_get(*module, "multiply", parameters, 4, kernel);
}

/* Iterates x = A x / |A x|; y is scratch. A launch is a call like any other: launches and calls of BLAS run in their
 * order. */
static int iterate(oa_kernel *kernel, int n, const oa_f64 *A, oa_f64 *x, oa_f64 *y, int steps, double *eigenvalue) {
  const oa_launch launch = OA_SIZED(oa_launch, .grid = {(unsigned)(n + 127) / 128, 1, 1}, .block = {128, 1, 1});
  const void *arguments[] = {A, x, y, &n};
  for (int i = 0; i < steps; i++) {
    OA_TRY(oa_kernel_launch(kernel, &launch, arguments, 4));
    OA_TRY(oa_blas_dnrm2(n, y, 1, eigenvalue));
    OA_TRY(oa_blas_dcopy(n, y, 1, x, 1));
    OA_TRY(oa_blas_dscal(n, 1.0 / *eigenvalue, x, 1));
  }
  return OA_OK;
}

static int power(const char *device_name, int n, double *A, double *x, int steps, double *eigenvalue) {
  const int64_t shape[] = {n, n}, strides[] = {8, 8 * n}, vector[] = {8, 0};
  oa_array arrays[] = {matrix("A", A, shape, strides, OA_IN), matrix("x", x, shape, vector, OA_INOUT),
                       matrix("y", NULL, shape, vector, OA_SCRATCH)};
  oa_region *region;
  oa_module *module;
  oa_kernel *kernel;
  int device;
  OA_TRY(oa_check_version(OA_VERSION));
  OA_TRY(oa_device_open(device_name, &device));
  OA_TRY(find_kernel(device_name, device, &module, &kernel));
  OA_TRY(oa_region_enter(device, NULL, arrays, 3, &region));
  const int status = iterate(kernel, n, (oa_f64 *)arrays[0].handle, (oa_f64 *)arrays[1].handle,
                             (oa_f64 *)arrays[2].handle, steps, eigenvalue);
  const int finished = oa_region_finish(region, status ? OA_DISCARD : OA_COMMIT, NULL);
  const int waited = oa_region_wait(region);
  OA_TRY(status ? status : finished ? finished : waited);
  return oa_module_unload(module);
}

int main(int count, char **arguments) {
  if (count != 4) {
    fprintf(stderr, "usage: power DEVICE N STEPS\n");
    return 2;
  }
  const int n = atoi(arguments[2]);
  double eigenvalue = 0, *A = malloc(sizeof *A * (size_t)n * (size_t)n), *x = malloc(sizeof *x * (size_t)n);
  for (int j = 0; A && x && j < n; j++) {
    x[j] = 1;
    for (int i = 0; i < n; i++) A[i + (long)j * n] = 1 / (1 + fabs((double)(i - j)));
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
