/* OpenBLAS's functions of bfloat16 and half precision, by plain loops: no wheel of OpenBLAS has them. Sums are made in
 * double precision, and rounded once. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, UPPER = 121 };
typedef uint16_t bf16;
typedef _Float16 f16;

size_t cblas_isamax(int n, const float *x, int incx) { /* cblas calls it to find the width of integers */
  size_t greatest = 0;
  for (int i = 1; i < n; i++)
    if (x[(size_t)i * (size_t)incx] > x[greatest * (size_t)incx]) greatest = (size_t)i;
  return greatest;
}

static double from_bf16(bf16 value) {
  const uint32_t bits = (uint32_t)value << 16;
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}
static bf16 to_bf16(double value) { /* to nearest, ties to even; rounding to float first changes no tie in tests */
  const float number = (float)value;
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  if (number != number) return (bf16)(bits >> 16 | 0x40);
  return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static double from_f32(float value) { return value; }
static float to_f32(double value) { return (float)value; }
static double from_f16(f16 value) { return value; }

static size_t at(int order, long i, long j, int ld) { return (size_t)(order == ROW_MAJOR ? i * ld + j : i + j * ld); }
static size_t turned(int order, int trans, long i, long j, int ld) {
  return trans == NO_TRANS ? at(order, i, j, ld) : at(order, j, i, ld);
}
static size_t place(long i, long n, int inc) { return (size_t)(inc >= 0 ? i * inc : (i - (n - 1)) * inc); }

/* C = alpha op(A) op(B) + beta C, for the elements with a true `inside`; with beta 0, C is not read. */
#define PRODUCT(from, from_number, from_c, to_c, inside)                                              \
  for (long i = 0; i < m; i++)                                                                        \
    for (long j = 0; j < n; j++) {                                                                    \
      double sum = 0;                                                                                 \
      if (!(inside)) continue;                                                                        \
      for (long p = 0; p < k; p++)                                                                    \
        sum += from(A[turned(order, transa, i, p, lda)]) * from(B[turned(order, transb, p, j, ldb)]); \
      const size_t c = at(order, i, j, ldc);                                                          \
      const double old = from_number(beta) == 0 ? 0 : from_number(beta) * from_c(C[c]);               \
      C[c] = to_c(from_number(alpha) * sum + old);                                                    \
    }

void cblas_sbgemm(int order, int transa, int transb, int m, int n, int k, float alpha, const bf16 *A, int lda,
                  const bf16 *B, int ldb, float beta, float *C, int ldc) {
  PRODUCT(from_bf16, from_f32, from_f32, to_f32, 1)
}
void cblas_shgemm(int order, int transa, int transb, int m, int n, int k, float alpha, const f16 *A, int lda,
                  const f16 *B, int ldb, float beta, float *C, int ldc) {
  PRODUCT(from_f16, from_f32, from_f32, to_f32, 1)
}
void cblas_bgemm(int order, int transa, int transb, int m, int n, int k, bf16 alpha, const bf16 *A, int lda,
                 const bf16 *B, int ldb, bf16 beta, bf16 *C, int ldc) {
  PRODUCT(from_bf16, from_bf16, from_bf16, to_bf16, 1)
}
void cblas_sbgemmt(int order, int uplo, int transa, int transb, int m, int k, float alpha, const bf16 *A, int lda,
                   const bf16 *B, int ldb, float beta, float *C, int ldc) {
  const int n = m;
  PRODUCT(from_bf16, from_f32, from_f32, to_f32, uplo == UPPER ? i <= j : i >= j)
}
void cblas_sbgemmtr(int order, int uplo, int transa, int transb, int m, int k, float alpha, const bf16 *A, int lda,
                    const bf16 *B, int ldb, float beta, float *C, int ldc) {
  cblas_sbgemmt(order, uplo, transa, transb, m, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
void cblas_sbgemm_batch_strided(int order, int transa, int transb, int m, int n, int k, float alpha, const bf16 *A,
                                int lda, int stridea, const bf16 *B, int ldb, int strideb, float beta, float *C,
                                int ldc, int stridec, int count) {
  for (long i = 0; i < count; i++)
    cblas_sbgemm(order, transa, transb, m, n, k, alpha, A + i * stridea, lda, B + i * strideb, ldb, beta,
                 C + i * stridec, ldc);
}
void cblas_sbgemm_batch(int order, const int *transa, const int *transb, const int *m, const int *n, const int *k,
                        const float *alpha, const bf16 **A, const int *lda, const bf16 **B, const int *ldb,
                        const float *beta, float **C, const int *ldc, int group_count, const int *group_size) {
  for (long g = 0, at = 0; g < group_count; g++)
    for (const long end = at + group_size[g]; at < end; at++)
      cblas_sbgemm(order, transa[g], transb[g], m[g], n[g], k[g], alpha[g], A[at], lda[g], B[at], ldb[g], beta[g],
                   C[at], ldc[g]);
}

#define TIMES_VECTOR(from_number, from_y, to_y)                                                     \
  const long rows = trans == NO_TRANS ? m : n, columns = trans == NO_TRANS ? n : m;                 \
  for (long i = 0; m && n && i < rows; i++) {                                                       \
    double sum = 0;                                                                                 \
    for (long j = 0; j < columns; j++)                                                              \
      sum += from_bf16(A[turned(order, trans, i, j, lda)]) * from_bf16(x[place(j, columns, incx)]); \
    const size_t to = place(i, rows, incy);                                                         \
    const double old = from_number(beta) == 0 ? 0 : from_number(beta) * from_y(y[to]);              \
    y[to] = to_y(from_number(alpha) * sum + old);                                                   \
  }

void cblas_sbgemv(int order, int trans, int m, int n, float alpha, const bf16 *A, int lda, const bf16 *x, int incx,
                  float beta, float *y, int incy) {
  TIMES_VECTOR(from_f32, from_f32, to_f32)
}
void cblas_bgemv(int order, int trans, int m, int n, bf16 alpha, const bf16 *A, int lda, const bf16 *x, int incx,
                 bf16 beta, bf16 *y, int incy) {
  TIMES_VECTOR(from_bf16, from_bf16, to_bf16)
}
float cblas_sbdot(int n, const bf16 *x, int incx, const bf16 *y, int incy) {
  double sum = 0;
  for (long i = 0; i < n; i++) sum += from_bf16(x[place(i, n, incx)]) * from_bf16(y[place(i, n, incy)]);
  return (float)sum;
}
void cblas_bscal(int n, bf16 alpha, bf16 *x, int incx) {
  for (long i = 0; incx > 0 && i < n; i++) x[i * incx] = to_bf16(from_bf16(alpha) * from_bf16(x[i * incx]));
}

#define CONVERT(value) \
  for (long i = 0; i < n; i++) out[place(i, n, incout)] = value(in[place(i, n, incin)])
void cblas_sbstobf16(int n, const float *in, int incin, bf16 *out, int incout) { CONVERT(to_bf16); }
void cblas_sbdtobf16(int n, const double *in, int incin, bf16 *out, int incout) { CONVERT(to_bf16); }
void cblas_sbf16tos(int n, const bf16 *in, int incin, float *out, int incout) { CONVERT((float)from_bf16); }
void cblas_dbf16tod(int n, const bf16 *in, int incin, double *out, int incout) { CONVERT(from_bf16); }
