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

static int enter(lent *call, float *A, float *x, float *y) {
  call->shape[0] = call->shape[1] = call->n;
  call->strides[0] = 4;
  call->strides[1] = 4 * call->n;
  float *const data[] = {A, x, y};
  for (int i = 0; i < 3; i++)
    call->arrays[i] = (oa_array){.data = data[i],
                                 .shape = call->shape,
                                 .strides = call->strides,
                                 .ndim = i ? 1 : 2,
                                 .dtype = OA_F32,
                                 .direction = i == 2 ? OA_OUT : OA_IN};
  return oa_region_enter(call->device, NULL, call->arrays, 3, &call->region);
}

static int multiply(const lent *call) {
  const oa_f32 *A = (oa_f32 *)call->arrays[0].handle, *x = (oa_f32 *)call->arrays[1].handle;
  oa_f32 *y = (oa_f32 *)call->arrays[2].handle;
  const int64_t n = call->n;
  if (call->portable) return oa_blas_sgemv(OA_BLAS_NO_TRANS, n, n, 1, A, n, x, 1, 0, y, 1);
  if (call->on_gpu) return oa_cublas_sgemv(OA_CUBLAS_OP_N, n, n, 1, A, n, x, 1, 0, y, 1);
  return oa_cblas_sgemv(COLUMN_MAJOR, NO_TRANS, n, n, 1, A, n, x, 1, 0, y, 1);
}

static int leave(lent *call) {
  OA_TRY(oa_region_finish(call->region, OA_COMMIT, NULL));
  return oa_region_wait(call->region);
}

/* Returns the seconds of `count` regions with one call each, or a negative number after a failure. */
double c_transfers(int device, int on_gpu, long count, int n, float *A, float *x, float *y) {
  const double start = now();
  for (long i = 0; i < count; i++) {
    lent call = {.device = device, .on_gpu = on_gpu, .n = n};
    if (enter(&call, A, x, y) || multiply(&call) || leave(&call)) return -1;
  }
  return now() - start;
}

/* Returns the seconds of `count` calls in one region, until they are done. */
double c_resident(int device, int on_gpu, int portable, long count, int n, float *A, float *x, float *y) {
  lent call = {.device = device, .on_gpu = on_gpu, .portable = portable, .n = n};
  if (enter(&call, A, x, y) || multiply(&call) || oa_region_synchronize(call.region)) return -1;
  const double start = now();
  for (long i = 0; i < count; i++)
    if (multiply(&call)) return -1;
  if (oa_region_synchronize(call.region)) return -1;
  const double seconds = now() - start;
  return leave(&call) ? -1 : seconds;
}

/* Does the same by the vendor's function alone, on the same memory. */
double bare_resident(int device, int on_gpu, long count, int n, float *A, float *x, float *y) {
  lent call = {.device = device, .on_gpu = on_gpu, .n = n};
  uint64_t at[3];
  if (!on_gpu) return bare_cblas_loop(count, n, (bare_f32 *)A, (bare_f32 *)x, (bare_f32 *)y);
  if (enter(&call, A, x, y) || multiply(&call)) return -1;
  for (int i = 0; i < 3; i++)
    if (oa_address(call.arrays[i].handle, &at[i])) return -1;
  if (oa_region_synchronize(call.region)) return -1;
  bare_current(1);
  const double seconds = bare_cublas_loop(count, n, (bare_f32 *)at[0], (bare_f32 *)at[1], (bare_f32 *)at[2]);
  bare_current(0);
  return leave(&call) ? -1 : seconds;
}
