/* Runs cuBLAS's routines with a small core and vendor library of this file, and prints their declared operands and the
 * arguments that they pass on. */
#include <complex.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "body/helper_function.h"
#include "offload_args_cublas.h"
#define EXPECT(test)                                     \
  do {                                                   \
    if (!(test)) {                                       \
      fprintf(stderr, "line %d: %s\n", __LINE__, #test); \
      exit(1);                                           \
    }                                                    \
  } while (0)
static int has_wide = 1, narrow_calls, wide_calls, accesses[8], operands, too_large, refused;
static int64_t got_m, got_lda;
static float got_alpha;
static int alpha_on_host = 1;
static double _Complex got_complex;
static const void *got_A;
static uint16_t got_half;
static float got_scalars[4];
static int dtypes[8];
/* The functions of the core that shims call. */
int oa_begin(oa_call *call) {
  operands = call->count;
  for (int i = 0; i < call->count; i++) {
    accesses[i] = call->operands[i].access;
    dtypes[i] = call->operands[i].dtype;
    call->operands[i].address = (char *)call->operands[i].pointer + 1;
    call->operands[i].touched = 1; /* no extent below is empty */
  }
  call->handle = call;
  return OA_OK;
}
int oa_begin_lists(oa_call *call) { return oa_begin(call); }
int oa_end(oa_call *call, int status) {
  (void)call;
  return status;
}
int oa_helper_begin(oa_helper_call *service, const oa_routine *routine, oa_value *values) {
  (void)service;
  (void)values;
  return oa_fail_null(routine->function, "handle");
}
int oa_helper_end(oa_helper_call *service, oa_value *values, int vendor_status) {
  (void)service;
  (void)values;
  return vendor_status;
}
int oa_helper_keep(oa_helper_call *service, oa_value *values, int at, const char *name, int64_t size) {
  (void)service;
  (void)values;
  return size > at ? OA_OK : oa_fail_null("keep", name);
}
int oa_check_host(const oa_routine *routine, const char *name, const oa_value *value, const oa_extent *extent,
                  const void *pointer, int writes) {
  (void)value;
  (void)extent;
  return pointer || writes ? OA_OK : oa_fail_null(routine->function, name);
}
int oa_check_itemsize(const oa_routine *routine, const char *name, int64_t itemsize, const char *array,
                      const void *pointer) {
  (void)array;
  return pointer || itemsize ? OA_OK : oa_fail_null(routine->function, name);
}
int oa_helper_destroy(const oa_routine *routine, oa_value *values, int device) {
  (void)values;
  return oa_fail_null(routine->function, device ? "device" : "handle");
}
static int narrow(void *handle, int trans, int m, int n, const void *alpha, const void *A, int lda, const void *x,
                  int incx, const void *beta, void *y, int incy) {
  (void)handle;
  (void)trans;
  (void)n;
  (void)x;
  (void)incx;
  (void)beta;
  (void)y;
  (void)incy;
  narrow_calls++, got_m = m, got_lda = lda, got_A = A;
  if (alpha_on_host) got_alpha = *(const float *)alpha;
  return 0;
}
static int wide(void *handle, int trans, int64_t m, int64_t n, const void *alpha, const void *A, int64_t lda,
                const void *x, int64_t incx, const void *beta, void *y, int64_t incy) {
  (void)handle;
  (void)trans;
  (void)n;
  (void)alpha;
  (void)x;
  (void)incx;
  (void)beta;
  (void)y;
  (void)incy;
  wide_calls++, got_m = m, got_lda = lda, got_A = A;
  return 0;
}
static int scale(void *handle, int n, const void *alpha, void *x, int incx) {
  (void)handle;
  (void)n;
  (void)x;
  (void)incx;
  EXPECT((uintptr_t)alpha % 16 == 0); /* the alignment of cuDoubleComplex */
  got_complex = *(const double _Complex *)alpha;
  return 0;
}
static int largest(void *handle, int n, const void *x, int incx, void *result) {
  (void)handle;
  (void)n;
  (void)x;
  (void)incx;
  *(int *)result = 7;
  return 0;
}
static int half_product(void *handle, int transa, int transb, int m, int n, int k, const void *alpha) {
  EXPECT(handle && !transa && !transb && m + n + k == 9);
  memcpy(&got_half, alpha, sizeof got_half);
  return 0;
}
static int typed_product(void *handle, int transa, int transb, int m, int n, int k, const void *alpha, const void *A,
                         int Atype, int lda, const void *B, int Btype, int ldb, const void *beta, void *C, int Ctype,
                         int ldc, int computeType, int algo) {
  EXPECT(handle && !transa && transb == 1 && m == 2 && n == 3 && k == 4 && A && B && C);
  EXPECT(Atype == 2 && lda == 5 && Btype == 2 && ldb == 6 && ldc == 7 && computeType == 68 && algo == -1);
  memcpy(got_scalars, alpha, Ctype == 4 ? 8 : 4);
  memcpy(got_scalars + 2, beta, Ctype == 4 ? 8 : 4);
  return 0;
}
static int any(void *handle) {
  (void)handle;
  return 0;
}
void *oa_library_symbol(const oa_library *library, int index) {
  const char *name = library->symbols[index];
  if (strstr(name, "_64")) return has_wide ? (void *)wide : NULL;
  if (strstr(name, "Zscal")) return (void *)scale;
  if (strstr(name, "Isamax")) return (void *)largest;
  if (strstr(name, "Hgemm")) return (void *)half_product;
  if (strstr(name, "GemmEx")) return (void *)typed_product;
  return strstr(name, "gemv") ? (void *)narrow : (void *)any;
}
int oa_fail_enum(const char *f, const char *name, int64_t v, const char *a) {
  (void)f;
  (void)v;
  (void)a;
  return refused = name[0], OA_ERROR_ARGUMENT;
}
int oa_fail_too_large(const char *f, const char *name, int64_t v) {
  (void)f;
  (void)v;
  return too_large = name[0], OA_ERROR_OVERFLOW;
}
int oa_fail_null(const char *f, const char *name) {
  (void)f;
  (void)name;
  return OA_ERROR_ARGUMENT;
}
int oa_fail(int status, const char *format, ...) {
  (void)format;
  return status;
}
int oa_fail_in(int status, const char *format, ...) {
  (void)format;
  return status;
}
void oa_error_save(oa_saved_error *saved) { (void)saved; }
void oa_error_restore(const oa_saved_error *saved) { (void)saved; }
static const void *host_zero;
int oa_is_host_zero(const void *p) { return p == host_zero; }
int oa_pointer_query(const oa_any *p, oa_pointer_info *info) {
  (void)p;
  memset(info, 0, sizeof *info);
  return OA_OK;
}
oa_device *oa_device_of(int number) {
  (void)number;
  return NULL;
}
int oa_fail_library_device(const oa_library *library, const char *f, const char *name, const oa_device *device) {
  (void)library;
  (void)f;
  (void)name;
  (void)device;
  return OA_ERROR_DEVICE;
}
void oa_libraries_ready(void) {}
void oa_library_status_text(const oa_library *library, int status, char *text, size_t size) {
  (void)library;
  (void)status;
  memset(text, 0, size);
}
int oa_submit(oa_call *call, void (*run)(void *), void *arguments, size_t size) {
  (void)call;
  (void)run;
  (void)arguments;
  (void)size;
  return OA_ERROR_ARGUMENT;
}
int64_t oa_itemsize(int dtype) {
  static const int64_t bytes[] = {
#define OA_DTYPE(name, type, nbytes, kind, text) nbytes,
#include "offload_args/dtypes.def"
#undef OA_DTYPE
  };
  return bytes[dtype];
}

int main(void) {
  const int64_t big = INT64_C(1) << 31;
  const oa_f32 *A = (const oa_f32 *)16, *x = (const oa_f32 *)32;
  oa_f32 *y = (oa_f32 *)48;
  EXPECT(oa_cublas_sgemv(OA_CUBLAS_OP_T, 3, 4, 2.5f, A, 5, x, 1, 0, y, 1) == OA_OK);
  EXPECT(narrow_calls == 1 && got_m == 3 && got_lda == 5 && got_alpha == 2.5f && got_A == (const void *)17);
  EXPECT(operands == 3 && accesses[0] == OA_READ && accesses[1] == OA_READ && accesses[2] == OA_OVERWRITE);
  /* An operand that may be written only in part is not declared as overwritten. */
  oa_cublas_sgemv(OA_CUBLAS_OP_T, 3, 4, 1, A, 5, x, 1, 0.5f, y, 1);
  EXPECT(accesses[2] == OA_READ_WRITE);
  oa_cublas_sgemv(OA_CUBLAS_OP_T, 0, 4, 1, A, 5, x, 1, 0, y, 1);
  EXPECT(accesses[2] == OA_READ_WRITE);
  /* The 64-bit form is called if a size needs it. The call fails if the library lacks this form. */
  EXPECT(oa_cublas_sgemv(OA_CUBLAS_OP_N, big, 4, 1, A, big + 1, x, 1, 0, y, 1) == OA_OK);
  EXPECT(wide_calls == 1 && got_m == big && got_lda == big + 1 && got_A == (const void *)17);
  EXPECT(oa_cublas_sgemv(OA_CUBLAS_OP_N, 3, 4, 1, A, 5, x, -big - 1, 0, y, 1) == OA_OK && wide_calls == 2);
  has_wide = 0;
  EXPECT(oa_cublas_dgemv(OA_CUBLAS_OP_N, 3, big, 1, (const oa_f64 *)16, 5, (const oa_f64 *)32, 1, 0, (oa_f64 *)48, 1) !=
         OA_OK);
  EXPECT(wide_calls == 2);
  has_wide = 1;
  EXPECT(oa_cublas_isamax_device(big, x, 1, (oa_i32 *)64) == OA_ERROR_OVERFLOW); /* a device's index has 32 bits */
  EXPECT(too_large == 'n');
  /* scalars on the device are operands, and beta is not known, unless it was a number of the host's */
  alpha_on_host = 0;
  EXPECT(oa_cublas_sgemv_device(OA_CUBLAS_OP_N, 3, 4, x, A, 5, x, 1, x, y, 1) == OA_OK);
  EXPECT(operands == 5 && accesses[2] == OA_READ_WRITE && accesses[3] == OA_READ && accesses[4] == OA_READ);
  host_zero = x;
  EXPECT(oa_cublas_sgemv_device(OA_CUBLAS_OP_N, 3, 4, A, A, 5, x, 1, x, y, 1) == OA_OK && accesses[2] == OA_OVERWRITE);
  EXPECT(oa_cublas_sgemv_device(OA_CUBLAS_OP_N, 3, 0, A, A, 5, x, 1, x, y, 1) == OA_OK);
  EXPECT(accesses[2] == OA_READ_WRITE);
  /* enums, results, alignment, in place */
  EXPECT(oa_cublas_sgemv(7, 3, 4, 1, A, 5, x, 1, 0, y, 1) == OA_ERROR_ARGUMENT && refused == 't');
  EXPECT(oa_cublas_cherk(OA_CUBLAS_FILL_MODE_LOWER, OA_CUBLAS_OP_T, 1, 1, 1, (const oa_c64 *)16, 1, 0, (oa_c64 *)32,
                         1) == OA_ERROR_ARGUMENT);
  EXPECT(oa_cublas_sgbmv(0, 3, 4, -1, 0, 1, A, 5, x, 1, 0, y, 1) == OA_ERROR_ARGUMENT);
  int64_t index = 0;
  EXPECT(oa_cublas_isamax(9, x, 1, &index) == OA_OK && index == 7);
  EXPECT(oa_cublas_isamax(9, x, 1, NULL) == OA_ERROR_ARGUMENT);
  EXPECT(oa_cublas_zscal(1, 2.0 + 3.0 * _Complex_I, (oa_c128 *)16, 1) == OA_OK &&
         got_complex == 2.0 + 3.0 * _Complex_I);
  /* numbers for which C has no type, and dtypes that arguments select */
  const oa_f16 *h = (const oa_f16 *)16;
  EXPECT(oa_cublas_hgemm(0, 0, 2, 3, 4, 1.5f, h, 5, h, 6, 0, (oa_f16 *)48, 7) == OA_OK && got_half == 0x3e00);
  EXPECT(accesses[2] == OA_OVERWRITE && dtypes[0] == OA_F16 && dtypes[2] == OA_F16);
  const oa_any *a = (const oa_any *)16;
  const float _Complex alpha = 2 + 3 * _Complex_I, zero = 0;
  EXPECT(oa_cublas_gemm_ex(0, 1, 2, 3, 4, &alpha, a, 2, 5, a, 2, 6, &zero, (oa_any *)48, 4, 7, 68, -1) == OA_OK);
  EXPECT(got_scalars[0] == 2 && got_scalars[1] == 3 && got_scalars[2] == 0 && got_scalars[3] == 0);
  EXPECT(dtypes[0] == OA_F16 && dtypes[1] == OA_F16 && dtypes[2] == OA_C64 && accesses[2] == OA_OVERWRITE);
  const float one = 1;
  EXPECT(oa_cublas_gemm_ex(0, 1, 2, 3, 4, &one, a, 2, 5, a, 2, 6, &one, (oa_any *)48, 0, 7, 68, -1) == OA_OK);
  EXPECT(got_scalars[0] == 1 && got_scalars[2] == 1 && dtypes[2] == OA_F32 && accesses[2] == OA_READ_WRITE);
  EXPECT(oa_cublas_gemm_ex(0, 1, 2, 3, 4, &one, a, 7, 5, a, 2, 6, &one, (oa_any *)48, 0, 7, 68, -1) ==
         OA_ERROR_ARGUMENT);
  EXPECT(oa_cublas_gemm_ex(0, 1, 2, 3, 4, NULL, a, 2, 5, a, 2, 6, &one, (oa_any *)48, 0, 7, 68, -1) ==
         OA_ERROR_ARGUMENT);
  oa_cublas_strmm(0, 0, 0, 0, 2, 2, 1, A, 2, (const oa_f32 *)y, 2, y, 2);
  EXPECT(accesses[1] == (OA_READ | OA_IN_PLACE) && accesses[2] == (OA_OVERWRITE | OA_IN_PLACE));
  oa_cublas_ssyrk(0, 0, 2, 2, 1, A, 2, 0, y, 2);
  EXPECT(accesses[1] == OA_OVERWRITE);
  oa_cublas_ssyrk(0, 0, 2, 2, 1, A, 2, 1, y, 2);
  EXPECT(accesses[1] == OA_READ_WRITE);
  return 0;
}
