#include "accelerate/lapack_library.h"

#include "accelerate/program_call.h"
#include "base/error.h"
#include "base/sized.h"
#include "offload_args/accelerate.h"
#include "offload_args/routine.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 24, BLOCK = 64 /* the most columns that LAPACK works on at once */ };

/* -- calls -- */

/* Calls the routine of that name, and sets *result to its last value. `format` has a letter for each value: i for an
 * enum or a size, p for a pointer, 1 and 0 for these numbers in the call's dtype, R for a returned result. */
static int run(const oa_lapack *l, const char *library, const char *name, oa_value *result, const char *format,
               va_list passed) {
  const oa_routine *routine = oa_routine_find(library, name);
  if (!routine) return OA_ERROR_LIBRARY;
  oa_value values[MOST_VALUES];
  memset(values, 0, sizeof values);
  int count = 0;
  for (const char *at = format; *at && count < MOST_VALUES; at++, count++) {
    oa_value *value = &values[count];
    if (*at == 'i') value->integer = va_arg(passed, int64_t);
    if (*at == 'p') value->pointer = va_arg(passed, const void *);
    if (*at != '1') continue;
    if (l->real == OA_F32)
      value->single_parts[0] = 1;
    else
      value->parts[0] = 1;
  }
  if (count != routine->count)
    return oa_fail(OA_ERROR_LIBRARY, "accelerate: %s has %d values, and not %d", routine->function, routine->count,
                   count);
  const int status = routine->run(routine, values, 0);
  if (result) *result = values[count - 1];
  return status;
}

static void spell(const oa_lapack *l, char *name, size_t size, const char *base) {
  const bool is_real = l->letter == 's' || l->letter == 'd';
  /* If the name of a real routine has "or" (orthogonal) or "sy" (symmetric), the complex routine has another name. */
  if (!is_real && strncmp(base, "or", 2) == 0)
    snprintf(name, size, "%cun%s", l->letter, base + 2);
  else if (!is_real && strncmp(base, "sy", 2) == 0)
    snprintf(name, size, "%che%s", l->letter, base + 2);
  else
    snprintf(name, size, "%c%s", l->letter, base);
}

/* Makes a LAPACKE call. `format` begins with matrix_layout, and ends before info. */
static int lapacke(const oa_lapack *l, const char *base, const char *format, ...) {
  char name[16], all[MOST_VALUES + 1];
  oa_value info = {0};
  spell(l, name, sizeof name, base);
  snprintf(all, sizeof all, "%sR", format);
  va_list passed;
  va_start(passed, format);
  const int status = run(l, "lapacke", name, &info, all, passed);
  va_end(passed);
  return status ? status : info.integer ? OA_CALL_ODD : OA_OK;
}

static int read_info(const oa_lapack *l) {
  int32_t info = -1;
  OA_TRY(oa_pointer_read(l->info, &info, 1, (const int64_t[]){1}, (const int64_t[]){sizeof info}));
  return info ? OA_CALL_ODD : OA_OK;
}

/* Makes a cuSOLVER call. `format` ends with the p of info. */
static int cusolver(const oa_lapack *l, const char *base, const char *format, ...) {
  char name[16];
  spell(l, name, sizeof name, base);
  if (base[0] == 'x') snprintf(name, sizeof name, "%s", base);
  va_list passed;
  va_start(passed, format);
  const int status = run(l, "cusolver", name, NULL, format, passed);
  va_end(passed);
  return status ? status : read_info(l);
}

/* Makes a call of cuSOLVER's 64-bit interface, whose last value is returned. */
static int wide(const oa_lapack *l, const char *name, oa_value *result, const char *format, ...) {
  va_list passed;
  va_start(passed, format);
  const int status = run(l, "cusolver", name, result, format, passed);
  va_end(passed);
  return status;
}

static int blas(const oa_lapack *l, const char *name, oa_value *result, const char *format, ...) {
  va_list passed;
  va_start(passed, format);
  const int status = run(l, l->gpu ? "cublas" : "cblas", name, result, format, passed);
  va_end(passed);
  return status;
}

/* -- letters as the libraries' constants -- */

#define N(number) ((int64_t)(number))
static int64_t fill(const oa_lapack *l, char uplo) { return l->gpu ? uplo == 'U' : uplo; }
static int64_t operation(const oa_lapack *l, char trans) {
  return l->gpu ? (trans == 'N' ? 0 : trans == 'T' ? 1 : 2) : trans;
}
static int64_t side_of(const oa_lapack *l, char side) { return l->gpu ? side == 'R' : side; }
static int64_t diagonal(const oa_lapack *l, char diag) { return l->gpu ? diag == 'U' : diag; }
static int64_t cblas_operation(char trans) { return trans == 'N' ? 111 : trans == 'T' ? 112 : 113; }
enum { COLUMNS = 102 };
/* CUDA_R_32F, CUDA_R_64F, CUDA_C_32F or CUDA_C_64F */
static int64_t type_of(const oa_lapack *l, int dtype) { return (l->real == OA_F64) + (dtype != l->real ? 4 : 0); }

/* -- beginning and end -- */

int oa_lapack_scratch(oa_lapack *l, int dtype, int64_t rows, int64_t columns, oa_any **scratch) {
  if (l->region_count == OA_LAPACK_SCRATCHES)
    return oa_fail(OA_ERROR_ARGUMENT, "accelerate: a call needs more scratch memory than is planned");
  const int64_t itemsize = oa_itemsize(dtype), shape[2] = {rows, columns}, strides[2] = {itemsize, itemsize * rows};
  oa_array array = {
      .shape = shape, .strides = strides, .name = "scratch", .ndim = 2, .dtype = dtype, .direction = OA_SCRATCH};
  OA_TRY(oa_region_enter(l->device, NULL, &array, 1, &l->regions[l->region_count]));
  l->region_count++;
  *scratch = array.handle;
  return OA_OK;
}

int oa_lapack_begin(oa_lapack *l, int device, int dtype) {
  *l = (oa_lapack){.device = device, .dtype = dtype};
  l->letter = dtype == OA_F32 ? 's' : dtype == OA_F64 ? 'd' : dtype == OA_C64 ? 'c' : 'z';
  l->real = dtype == OA_F32 || dtype == OA_C64 ? OA_F32 : OA_F64;
  oa_device_info info = OA_SIZED(oa_device_info);
  OA_TRY(oa_device_get_info(device, &info));
  l->gpu = !(info.flags & OA_DEVICE_HOST_CALLS);
  if (!l->gpu) return OA_OK;
  if (strcmp(info.backend, "cuda") != 0)
    return oa_fail(OA_ERROR_LIBRARY, "accelerate: this build has no LAPACK for %s", info.name);
  return oa_lapack_scratch(l, OA_I32, 1, 1, &l->info);
}

int oa_lapack_end(oa_lapack *l) {
  int first = OA_OK;
  while (l->region_count) {
    oa_region *region = l->regions[--l->region_count];
    const int finished = oa_region_finish(region, OA_DISCARD, NULL), waited = oa_region_wait(region);
    if (!first) first = finished ? finished : waited;
  }
  return first;
}

int oa_lapack_open(int device) {
  oa_lapack l;
  oa_any *A;
  int status = oa_lapack_begin(&l, device, OA_F64);
  if (!status) status = oa_lapack_scratch(&l, OA_F64, 2, 2, &A);
  if (!status) status = oa_lapack_identity(&l, 2, A);
  if (!status) status = oa_lapack_potrf(&l, 'L', 2, A, 2);
  double sum = 0;
  if (!status) status = oa_lapack_sum(&l, OA_F64, 2, 2, A, 2, &sum);
  const int ended = oa_lapack_end(&l);
  if (!status && !(sum == 2)) status = oa_fail(OA_ERROR_LIBRARY, "accelerate: LAPACK of the device is wrong");
  return status ? status : ended;
}

/* -- steps by LAPACK -- */

int oa_lapack_potrf(oa_lapack *l, char uplo, int64_t n, oa_any *A, int64_t lda) {
  if (l->gpu) return cusolver(l, "potrf", "iipip", fill(l, uplo), n, A, lda, l->info);
  return lapacke(l, "potrf", "iiipi", N(COLUMNS), fill(l, uplo), n, A, lda);
}

int oa_lapack_potri(oa_lapack *l, char uplo, int64_t n, oa_any *A, int64_t lda) {
  if (l->gpu) return cusolver(l, "potri", "iipip", fill(l, uplo), n, A, lda, l->info);
  return lapacke(l, "potri", "iiipi", N(COLUMNS), fill(l, uplo), n, A, lda);
}

int oa_lapack_potrs(oa_lapack *l, char uplo, int64_t n, int64_t nrhs, oa_any *A, int64_t lda, oa_any *B, int64_t ldb) {
  if (l->gpu) return cusolver(l, "potrs", "iiipipip", fill(l, uplo), n, nrhs, A, lda, B, ldb, l->info);
  return lapacke(l, "potrs", "iiiipipi", N(COLUMNS), fill(l, uplo), n, nrhs, A, lda, B, ldb);
}

int oa_lapack_trtri(oa_lapack *l, char uplo, char diag, int64_t n, oa_any *A, int64_t lda) {
  if (l->gpu)
    return cusolver(l, "xtrtri", "iiiipip", fill(l, uplo), diagonal(l, diag), n, type_of(l, l->dtype), A, lda, l->info);
  return lapacke(l, "trtri", "iiiipi", N(COLUMNS), fill(l, uplo), diagonal(l, diag), n, A, lda);
}

int oa_lapack_getrf(oa_lapack *l, int64_t m, int64_t n, oa_any *A, int64_t lda, oa_any *ipiv) {
  if (l->gpu) return cusolver(l, "getrf", "iipipp", m, n, A, lda, ipiv, l->info);
  return lapacke(l, "getrf", "iiipip", N(COLUMNS), m, n, A, lda, ipiv);
}

int oa_lapack_getrs(oa_lapack *l, char trans, int64_t n, int64_t nrhs, oa_any *A, int64_t lda, oa_any *ipiv, oa_any *B,
                    int64_t ldb) {
  if (l->gpu) return cusolver(l, "getrs", "iiipippip", operation(l, trans), n, nrhs, A, lda, ipiv, B, ldb, l->info);
  return lapacke(l, "getrs", "iiiipippi", N(COLUMNS), operation(l, trans), n, nrhs, A, lda, ipiv, B, ldb);
}

int oa_lapack_geqrf(oa_lapack *l, int64_t m, int64_t n, oa_any *A, int64_t lda, oa_any *tau) {
  if (l->gpu) return cusolver(l, "geqrf", "iipipp", m, n, A, lda, tau, l->info);
  oa_any *work;
  OA_TRY(oa_lapack_scratch(l, l->dtype, n, BLOCK, &work));
  return lapacke(l, "geqrf", "iiipippi", N(COLUMNS), m, n, A, lda, tau, work, n * BLOCK);
}

int oa_lapack_ormqr(oa_lapack *l, char side, char trans, int64_t m, int64_t n, int64_t k, oa_any *A, int64_t lda,
                    oa_any *tau, oa_any *C, int64_t ldc) {
  const int64_t from = side_of(l, side), op = operation(l, trans);
  if (l->gpu) return cusolver(l, "ormqr", "iiiiipippip", from, op, m, n, k, A, lda, tau, C, ldc, l->info);
  /* Room for the columns, and for the triangular factors of a block. */
  const int64_t size = ((side == 'L' ? n : m) + BLOCK + 1) * BLOCK;
  oa_any *work;
  OA_TRY(oa_lapack_scratch(l, l->dtype, size, 1, &work));
  return lapacke(l, "ormqr", "iiiiiipippipi", N(COLUMNS), from, op, m, n, k, A, lda, tau, C, ldc, work, size);
}

/* Sets the columns of A from `first` to `end` to zero. */
static int clear_columns(oa_lapack *l, int64_t m, int64_t first, int64_t end, oa_any *A, int64_t lda) {
  static const unsigned char zero[16];
  const int64_t itemsize = oa_itemsize(l->dtype);
  const int64_t shape[2] = {m, end - first}, strides[2] = {itemsize, itemsize * lda};
  if (first == end) return OA_OK;
  oa_any *view;
  OA_TRY(oa_pointer_view(A, first * lda * itemsize, 2, shape, strides, &view));
  const int status = oa_pointer_fill(view, zero, 2, shape, strides);
  oa_pointer_release(view);
  return status;
}

/* Columns of A beyond its k reflectors may have any values, such as NaN: LAPACK sets them to columns of the identity
 * first, but a vendor's library may multiply these values by zero. */
int oa_lapack_orgqr(oa_lapack *l, int64_t m, int64_t n, int64_t k, oa_any *A, int64_t lda, oa_any *tau) {
  OA_TRY(clear_columns(l, m, k, n, A, lda));
  if (l->gpu) return cusolver(l, "orgqr", "iiipipp", m, n, k, A, lda, tau, l->info);
  oa_any *work;
  OA_TRY(oa_lapack_scratch(l, l->dtype, n, BLOCK, &work));
  return lapacke(l, "orgqr", "iiiipippi", N(COLUMNS), m, n, k, A, lda, tau, work, n * BLOCK);
}

int oa_lapack_syevd(oa_lapack *l, char jobz, char uplo, int64_t n, oa_any *A, int64_t lda, oa_any *w) {
  const bool vectors = jobz == 'V';
  if (l->gpu) return cusolver(l, "syevd", "iiipipp", N(vectors), fill(l, uplo), n, A, lda, w, l->info);
  const int64_t blocks = n * (BLOCK + 2), integers = vectors ? 3 + 5 * n : 1;
  oa_any *work, *rwork, *iwork;
  OA_TRY(oa_lapack_scratch(l, OA_I32, integers, 1, &iwork));
  if (l->dtype == l->real) {
    const int64_t size = 1 + blocks + (vectors ? 6 * n + 2 * n * n : 2 * n);
    OA_TRY(oa_lapack_scratch(l, l->dtype, size, 1, &work));
    return lapacke(l, "syevd", "iiiipippipi", N(COLUMNS), N(jobz), fill(l, uplo), n, A, lda, w, work, size, iwork,
                   integers);
  }
  const int64_t size = 1 + blocks + (vectors ? n * n : 0), reals = vectors ? 1 + 5 * n + 2 * n * n : n;
  OA_TRY(oa_lapack_scratch(l, l->dtype, size, 1, &work));
  OA_TRY(oa_lapack_scratch(l, l->real, reals, 1, &rwork));
  return lapacke(l, "syevd", "iiiipippipipi", N(COLUMNS), N(jobz), fill(l, uplo), n, A, lda, w, work, size, rwork,
                 reals, iwork, integers);
}

/* Finds singular values, and vectors unless VT is NULL, of a tall A by its polar factors. A is kept. Returns
 * OA_CALL_ODD if A is nearly singular: the results then belong to another matrix. */
static int gesvdp(oa_lapack *l, int64_t m, int64_t n, oa_any *A, int64_t lda, oa_any *s, oa_any *U, int64_t ldu,
                  oa_any *VT, int64_t ldvt) {
  const int64_t type = type_of(l, l->dtype), real = type_of(l, l->real);
  oa_any *copy, *V;
  oa_value params = {0}, distance = {0};
  OA_TRY(oa_lapack_scratch(l, l->dtype, m, n, &copy));
  OA_TRY(oa_lapack_scratch(l, l->dtype, n, n, &V));
  if (!VT) OA_TRY(oa_lapack_scratch(l, l->dtype, ldu = m, n, &U)); /* not written */
  OA_TRY(oa_lapack_copy(l, m, n, A, lda, copy, m));
  OA_TRY(wide(l, "create_params", &params, "R"));
  int status = wide(l, "xgesvdp", &distance, "piiiiipiipipiipiipR", params.pointer, N(VT != NULL), N(1), m, n, type,
                    copy, m, real, s, type, U, ldu, type, V, n, type, l->info);
  const int destroyed = wide(l, "destroy_params", NULL, "p", params.pointer);
  if (!status) status = destroyed;
  if (!status) status = read_info(l);
  if (!status && distance.real != 0) status = OA_CALL_ODD;
  return status || !VT ? status : oa_lapack_transpose(l, 'C', n, n, V, n, VT, ldvt);
}

bool oa_lapack_has_polar_factors(int dtype, char job, int64_t m, int64_t n) {
  const int64_t less = m < n ? m : n, most = dtype == OA_F64 || dtype == OA_C128 ? less : OA_MOST_POLAR_SINGLE;
  return (job != 'A' || m == n) && less >= OA_LEAST_POLAR && less <= most;
}

int oa_lapack_gesvd(oa_lapack *l, char job, int64_t m, int64_t n, oa_any *A, int64_t lda, oa_any *s, oa_any *U,
                    int64_t ldu, oa_any *VT, int64_t ldvt) {
  static const char form[] = "iiiipippipip";
  oa_any *vectors = job == 'N' ? NULL : VT;
  if (job == 'N') { /* without vectors, U and VT are not touched */
    U = VT = A;
    ldu = lda > m ? lda : m;
    ldvt = lda > n ? lda : n;
  }
  const int64_t less = m < n ? m : n;
  if (l->gpu && m >= n) {
    int status = OA_CALL_ODD;
    if (oa_lapack_has_polar_factors(l->dtype, job, m, n)) status = gesvdp(l, m, n, A, lda, s, U, ldu, vectors, ldvt);
    if (status != OA_CALL_ODD && status != OA_ERROR_MEMORY) return status; /* gesvd needs less memory */
    return cusolver(l, "gesvd", form, N(job), N(job), m, n, A, lda, s, U, ldu, VT, ldvt, l->info);
  }
  if (l->gpu) { /* gesvd takes only tall matrices, so a wide A is transposed: A^H = V S U^H */
    const int64_t columns = job == 'A' ? n : less;
    oa_any *tall, *V = NULL, *UH = NULL;
    OA_TRY(oa_lapack_scratch(l, l->dtype, n, m, &tall));
    OA_TRY(oa_lapack_transpose(l, 'C', n, m, A, lda, tall, n));
    if (job == 'N') return oa_lapack_gesvd(l, job, n, m, tall, n, s, tall, n, tall, n);
    OA_TRY(oa_lapack_scratch(l, l->dtype, n, columns, &V));
    OA_TRY(oa_lapack_scratch(l, l->dtype, m, m, &UH));
    OA_TRY(oa_lapack_gesvd(l, job, n, m, tall, n, s, V, n, UH, m));
    OA_TRY(oa_lapack_transpose(l, 'C', m, m, UH, m, U, ldu));
    return oa_lapack_transpose(l, 'C', columns, n, V, n, VT, ldvt);
  }
  const int64_t size = less * less + 8 * less + (m + n) * (BLOCK + 1);
  oa_any *work, *rwork;
  OA_TRY(oa_lapack_scratch(l, l->dtype, size, 1, &work));
  if (l->dtype == l->real)
    return lapacke(l, "gesvd", "iiiiipippipipi", N(COLUMNS), N(job), N(job), m, n, A, lda, s, U, ldu, VT, ldvt, work,
                   size);
  OA_TRY(oa_lapack_scratch(l, l->real, 5 * less, 1, &rwork));
  return lapacke(l, "gesvd", "iiiiipippipipip", N(COLUMNS), N(job), N(job), m, n, A, lda, s, U, ldu, VT, ldvt, work,
                 size, rwork);
}

/* -- steps by BLAS and by the core -- */

int oa_lapack_trsm(oa_lapack *l, char uplo, char trans, char diag, int64_t m, int64_t n, oa_any *A, int64_t lda,
                   oa_any *B, int64_t ldb) {
  char name[16];
  spell(l, name, sizeof name, "trsm");
  if (l->gpu)
    return blas(l, name, NULL, "iiiiii1pipi", N(0), fill(l, uplo), operation(l, trans), diagonal(l, diag), m, n, A, lda,
                B, ldb);
  return blas(l, name, NULL, "iiiiiii1pipi", N(COLUMNS), N(141), N(uplo == 'U' ? 121 : 122), cblas_operation(trans),
              N(diag == 'U' ? 132 : 131), m, n, A, lda, B, ldb);
}

int oa_lapack_multiply(oa_lapack *l, char trans, int64_t m, int64_t n, int64_t k, oa_any *A, int64_t lda, oa_any *B,
                       int64_t ldb, oa_any *C, int64_t ldc) {
  char name[16];
  spell(l, name, sizeof name, "gemm");
  if (l->gpu) return blas(l, name, NULL, "iiiii1pipi0pi", operation(l, trans), N(0), m, n, k, A, lda, B, ldb, C, ldc);
  return blas(l, name, NULL, "iiiiii1pipi0pi", N(COLUMNS), cblas_operation(trans), N(111), m, n, k, A, lda, B, ldb, C,
              ldc);
}

int oa_lapack_identity(oa_lapack *l, int64_t n, oa_any *A) {
  static const unsigned char zero[16];
  const int64_t itemsize = oa_itemsize(l->dtype);
  const int64_t shape[2] = {n, n}, strides[2] = {itemsize, itemsize * n};
  OA_TRY(oa_pointer_fill(A, zero, 2, shape, strides));
  const union {
    float single[2];
    double real[2];
  } unit = l->real == OA_F32 ? (typeof(unit)){.single = {1}} : (typeof(unit)){.real = {1}};
  const int64_t count[1] = {n}, step[1] = {itemsize * (n + 1)};
  oa_any *view;
  OA_TRY(oa_pointer_view(A, 0, 1, count, step, &view));
  const int status = oa_pointer_fill(view, &unit, 1, count, step);
  oa_pointer_release(view);
  return status;
}

int oa_lapack_upper(oa_lapack *l, int64_t n, oa_any *A, int64_t lda, oa_any *C) {
  char name[16];
  spell(l, name, sizeof name, "trmm");
  OA_TRY(oa_lapack_identity(l, n, C));
  if (l->gpu) return blas(l, name, NULL, "iiiiii1pipipi", N(0), N(1), N(0), N(0), n, n, A, lda, C, n, C, n);
  return blas(l, name, NULL, "iiiiiii1pipi", N(COLUMNS), N(141), N(121), N(111), N(131), n, n, A, lda, C, n);
}

int oa_lapack_transpose(oa_lapack *l, char trans, int64_t m, int64_t n, oa_any *A, int64_t lda, oa_any *C,
                        int64_t ldc) {
  char name[16];
  spell(l, name, sizeof name, "geam");
  if (l->gpu)
    return blas(l, name, NULL, "iiii1pi0pipi", operation(l, trans), operation(l, trans), m, n, A, lda, A, lda, C, ldc);
  if (trans == 'C' && l->dtype != l->real) {
    oa_any *identity;
    OA_TRY(oa_lapack_scratch(l, l->dtype, n, n, &identity));
    OA_TRY(oa_lapack_identity(l, n, identity));
    return oa_lapack_multiply(l, 'C', m, n, n, A, lda, identity, n, C, ldc);
  }
  const int64_t itemsize = oa_itemsize(l->dtype), shape[2] = {m, n};
  const int64_t strides[2] = {itemsize * lda, itemsize}, strides_to[2] = {itemsize, itemsize * ldc};
  return oa_pointer_copy(C, strides_to, A, strides, 2, shape);
}

int oa_lapack_gram(oa_lapack *l, char trans, int64_t n, int64_t k, oa_any *A, int64_t lda, oa_any *C) {
  static const unsigned char zero[16];
  const int64_t itemsize = oa_itemsize(l->dtype), shape[2] = {n, n}, strides[2] = {itemsize, itemsize * n};
  char name[16];
  snprintf(name, sizeof name, "%csyrk", l->letter);
  OA_TRY(oa_pointer_fill(C, zero, 2, shape, strides));
  if (l->gpu) return blas(l, name, NULL, "iiii1pi0pi", fill(l, 'U'), operation(l, trans), n, k, A, lda, C, n);
  return blas(l, name, NULL, "iiiii1pi0pi", N(COLUMNS), N(121), cblas_operation(trans), n, k, A, lda, C, n);
}

/* Copies the first j elements of column j of A to row j of C. */
static int copy_column(oa_lapack *l, int64_t n, int64_t j, oa_any *A, oa_any *C) {
  const int64_t itemsize = oa_itemsize(l->dtype), count[1] = {j}, step[1] = {itemsize}, step_to[1] = {itemsize * n};
  oa_any *column, *row;
  OA_TRY(oa_pointer_view(A, j * n * itemsize, 1, count, step, &column));
  int status = oa_pointer_view(C, j * itemsize, 1, count, step_to, &row);
  if (!status) {
    status = oa_pointer_copy(row, step_to, column, step, 1, count);
    oa_pointer_release(row);
  }
  oa_pointer_release(column);
  return status;
}

int oa_lapack_both(oa_lapack *l, int64_t n, oa_any *A, oa_any *C) {
  char name[16];
  if (!l->gpu) {
    OA_TRY(oa_lapack_copy(l, n, n, A, n, C, n));
    for (int64_t j = 1; j < n; j++) OA_TRY(copy_column(l, n, j, A, C));
    return OA_OK;
  }
  spell(l, name, sizeof name, "geam");
  OA_TRY(blas(l, name, NULL, "iiii1pi1pipi", N(0), N(1), n, n, A, n, A, n, C, n));
  return oa_lapack_copy(l, 1, n, A, n + 1, C, n + 1); /* the sum has the diagonal twice */
}

int oa_lapack_copy(oa_lapack *l, int64_t rows, int64_t columns, oa_any *from, int64_t ld, oa_any *to, int64_t ld_to) {
  const int64_t itemsize = oa_itemsize(l->dtype), shape[2] = {rows, columns};
  const int64_t strides[2] = {itemsize, itemsize * ld}, strides_to[2] = {itemsize, itemsize * ld_to};
  return oa_pointer_copy(to, strides_to, from, strides, 2, shape);
}

/* Returns the smallest absolute value of some numbers, divided by the largest. */
static double spread(const oa_lapack *l, int64_t count, const void *numbers) {
  const int64_t parts = l->dtype == l->real ? 1 : 2;
  double least = INFINITY, most = 0;
  for (int64_t i = 0; i < count; i++) {
    double size = 0;
    for (int64_t j = i * parts; j < (i + 1) * parts; j++)
      size += fabs(l->real == OA_F32 ? (double)((const float *)numbers)[j] : ((const double *)numbers)[j]);
    least = fmin(least, size);
    most = fmax(most, size);
  }
  return least / most;
}

int oa_lapack_pivots(oa_lapack *l, int64_t count, oa_any *factors, int64_t ld, bool squared) {
  const int64_t itemsize = oa_itemsize(l->dtype);
  /* The rounding of the smallest pivot of random singular matrices: at most 1,200 sqrt(n) epsilon in LU. In Cholesky
   * it is often more than 256, where the CPU's own outcome is left to chance, too. Kernel matrices of Gaussian
   * processes have squares of 1e-10. NumPy computes in double precision; in single precision, pivots of random regular
   * matrices of 4096 are only 100 times the limit. */
  const bool single = l->real == OA_F32;
  const double growth = single ? 4 : squared ? 256 : 16384;
  const double rounding = growth * sqrt((double)count) * (single ? (double)FLT_EPSILON : DBL_EPSILON);
  oa_any *pivots;
  OA_TRY(oa_lapack_scratch(l, l->dtype, count, 1, &pivots));
  OA_TRY(oa_lapack_copy(l, 1, count, factors, ld + 1, pivots, 1));
  void *numbers = malloc((size_t)(count * itemsize));
  if (!numbers) return oa_fail(OA_ERROR_MEMORY, "accelerate: no host memory");
  const int status = oa_pointer_read(pivots, numbers, 1, &count, &itemsize);
  const double ratio = status ? 0 : spread(l, count, numbers);
  free(numbers);
  if (status) return status;
  return (squared ? ratio * ratio : ratio) > rounding ? OA_OK : OA_CALL_ODD;
}

int oa_lapack_sum(oa_lapack *l, int dtype, int64_t rows, int64_t columns, oa_any *A, int64_t ld, double *sum) {
  const char *name = dtype == OA_F32 ? "sasum" : dtype == OA_F64 ? "dasum" : dtype == OA_C64 ? "scasum" : "dzasum";
  const int64_t itemsize = oa_itemsize(dtype);
  const int64_t count[1] = {rows * columns};
  oa_value result = {0};
  oa_any *view, *whole = A;
  if (rows != ld && columns > 1) {
    OA_TRY(oa_lapack_scratch(l, dtype, rows, columns, &whole));
    OA_TRY(oa_lapack_copy(l, rows, columns, A, ld, whole, rows));
  }
  OA_TRY(oa_pointer_view(whole, 0, 1, count, &itemsize, &view));
  const int status = blas(l, name, &result, "ipiR", count[0], view, N(1));
  oa_pointer_release(view);
  *sum = dtype == OA_F32 || dtype == OA_C64 ? (double)result.single : result.real;
  return status;
}
