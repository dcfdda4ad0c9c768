/* sgemv through the C API, for c_call.py: with transfers, and on arrays that are present, beside the bare calls of
 * call_cost.c. It is compiled on the spot into a shared object, linked with the library. */
#include "call_cost.c"

#include <offload_args_blas.h>
#include <offload_args_cblas.h>
#include <offload_args_cublas.h>

typedef struct {
  int device, on_gpu, portable;
  int64_t n, shape[2], strides[2];
  oa_array arrays[3];
  oa_region *region;
} lent;

static int enter(lent *one, float *A, float *x, float *y) {
  one->shape[0] = one->shape[1] = one->n;
  one->strides[0] = 4;
  one->strides[1] = 4 * one->n;
  float *const data[] = {A, x, y};
  for (int i = 0; i < 3; i++)
    one->arrays[i] = (oa_array){.data = data[i],
                                .shape = one->shape,
                                .strides = one->strides,
                                .ndim = i ? 1 : 2,
                                .dtype = OA_F32,
                                .direction = i == 2 ? OA_OUT : OA_IN};
  return oa_region_enter(one->device, NULL, one->arrays, 3, &one->region);
}

static int multiply(const lent *one) {
  const oa_f32 *A = (oa_f32 *)one->arrays[0].handle, *x = (oa_f32 *)one->arrays[1].handle;
  oa_f32 *y = (oa_f32 *)one->arrays[2].handle;
  const int64_t n = one->n;
  if (one->portable) return oa_blas_sgemv(OA_BLAS_NO_TRANS, n, n, 1, A, n, x, 1, 0, y, 1);
  if (one->on_gpu) return oa_cublas_sgemv(OA_CUBLAS_OP_N, n, n, 1, A, n, x, 1, 0, y, 1);
  return oa_cblas_sgemv(COLUMN_MAJOR, NO_TRANS, n, n, 1, A, n, x, 1, 0, y, 1);
}

static int leave(lent *one) {
  OA_TRY(oa_region_finish(one->region, OA_COMMIT, NULL));
  return oa_region_wait(one->region);
}

/* Seconds of count regions with one call each; below 0: failed. */
double c_transfers(int device, int on_gpu, long count, int n, float *A, float *x, float *y) {
  const double start = now();
  for (long i = 0; i < count; i++) {
    lent one = {.device = device, .on_gpu = on_gpu, .n = n};
    if (enter(&one, A, x, y) || multiply(&one) || leave(&one)) return -1;
  }
  return now() - start;
}

/* Seconds of count calls in one region, until they are done. */
double c_resident(int device, int on_gpu, int portable, long count, int n, float *A, float *x, float *y) {
  lent one = {.device = device, .on_gpu = on_gpu, .portable = portable, .n = n};
  if (enter(&one, A, x, y) || multiply(&one) || oa_region_synchronize(one.region)) return -1;
  const double start = now();
  for (long i = 0; i < count; i++)
    if (multiply(&one)) return -1;
  if (oa_region_synchronize(one.region)) return -1;
  const double seconds = now() - start;
  return leave(&one) ? -1 : seconds;
}

/* The same by the vendor's function alone, on the same memory. */
double bare_resident(int device, int on_gpu, long count, int n, float *A, float *x, float *y) {
  lent one = {.device = device, .on_gpu = on_gpu, .n = n};
  uint64_t at[3];
  if (!on_gpu) return bare_cblas_loop(count, n, (bare_f32 *)A, (bare_f32 *)x, (bare_f32 *)y);
  if (enter(&one, A, x, y) || multiply(&one)) return -1;
  for (int i = 0; i < 3; i++)
    if (oa_address(one.arrays[i].handle, &at[i])) return -1;
  if (oa_region_synchronize(one.region)) return -1;
  bare_current(1);
  const double seconds = bare_cublas_loop(count, n, (bare_f32 *)at[0], (bare_f32 *)at[1], (bare_f32 *)at[2]);
  bare_current(0);
  return leave(&one) ? -1 : seconds;
}
