#include "accelerate/lapack.h"

#include "accelerate/lapack_library.h"
#include "base/error.h"
#include "base/sized.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_number(int dtype) { return dtype != OA_I32 && dtype != OA_I64; }

/* -- calls that only the CPU's library can make -- */

/* Returns OA_CALL_ODD if an array is not finite. `after`: checks the arrays that come down; otherwise the arrays that
 * go up. */
static int check(oa_lapack *l, const oa_lapack_call *problem, oa_any *const *pointers, bool after) {
  const double largest = l->real == OA_F32 ? 1e14 : 1e140;
  if (problem->family->is_blas) return OA_OK;
  for (int i = 0; i < problem->count; i++) {
    const oa_program_operand *operand = &problem->operands[i];
    const int dtype = operand->dtype ? operand->dtype : problem->dtype;
    const bool comes = operand->direction == OA_OUT || operand->direction == OA_INOUT;
    if (!is_number(dtype) || (after ? !comes : operand->direction == OA_OUT)) continue;
    const bool scaled = problem->family->scales && !after;
    const int64_t columns = operand->read && !after ? operand->read : operand->columns;
    double sum;
    OA_TRY(oa_lapack_sum(l, dtype, operand->rows, columns, pointers[i], operand->ld, &sum));
    if (!isfinite(sum)) return OA_CALL_ODD;
    if (scaled && (sum > largest || (sum > 0 ? sum < 1 / largest : i == 0))) return OA_CALL_ODD;
  }
  return OA_OK;
}

/* -- lending -- */

/* Enters a region with the operands that the call destroys if `destroyed`, otherwise with all other operands. */
static int enter(const oa_lapack_call *problem, void *const *data, const int *flags, bool destroyed, int device,
                 oa_any **pointers, oa_region **region) {
  oa_array arrays[OA_LAPACK_OPERANDS];
  int64_t shapes[OA_LAPACK_OPERANDS][2], strides[OA_LAPACK_OPERANDS][2];
  int places[OA_LAPACK_OPERANDS], count = 0;
  for (int i = 0; i < problem->count; i++) {
    const oa_program_operand *operand = &problem->operands[i];
    const int dtype = operand->dtype == OA_I64 ? OA_I32 : operand->dtype ? operand->dtype : problem->dtype;
    const int64_t itemsize = oa_itemsize(dtype);
    if ((operand->direction == OA_SCRATCH) != destroyed) continue;
    shapes[count][0] = operand->rows;
    shapes[count][1] = operand->columns;
    strides[count][0] = itemsize;
    strides[count][1] = itemsize * operand->ld;
    arrays[count] = (oa_array){.data = data[i],
                               .shape = shapes[count],
                               .strides = strides[count],
                               .name = operand->name,
                               .ndim = 2,
                               .dtype = dtype,
                               .direction = destroyed ? OA_INOUT : operand->direction,
                               .flags = flags[i] | OA_REUSED | (operand->direction == OA_IN ? OA_READ_ONLY : 0)};
    places[count++] = i;
  }
  if (!count) return OA_OK;
  OA_TRY(oa_region_enter(device, NULL, arrays, count, region));
  for (int i = 0; i < count; i++) {
    pointers[places[i]] = arrays[i].handle;
    if (arrays[i].packed) return oa_fail(OA_ERROR_ARGUMENT, "accelerate: %s is packed", arrays[i].name);
  }
  return OA_OK;
}

static int make_on(oa_lapack_call *problem, oa_any *const *pointers, int device) {
  oa_lapack l;
  int status = oa_lapack_begin(&l, device, problem->dtype);
  if (!status) status = check(&l, problem, pointers, false);
  if (!status) status = problem->family->make(&l, problem, pointers);
  if (!status) status = check(&l, problem, pointers, true);
  const int ended = oa_lapack_end(&l);
  return status ? status : ended;
}

/* Destroyed operands have a separate region around the region of the results, and are never copied down. */
static int lend_all(oa_lapack_call *problem, void *const *data, const int *flags, int device) {
  oa_any *pointers[OA_LAPACK_OPERANDS] = {0};
  oa_region *destroyed = NULL, *results = NULL;
  int status = enter(problem, data, flags, true, device, pointers, &destroyed);
  if (!status) status = enter(problem, data, flags, false, device, pointers, &results);
  if (!status) status = make_on(problem, pointers, device);
  if (results) status = oa_program_leave(results, status);
  if (destroyed) oa_program_leave(destroyed, OA_CALL_ODD);
  return status;
}

/* Lends the operands. 64-bit integers are lent as 32-bit copies. */
static int lend(void *arguments, const oa_program_operand *operands, const int *flags, int count, int device) {
  oa_lapack_call *problem = arguments;
  void *data[OA_LAPACK_OPERANDS];
  int32_t *integers = NULL;
  int64_t length = 0;
  int place = -1;
  if (problem->family->is_plain && !problem->family->is_plain(problem)) return OA_CALL_ODD;
  for (int i = 0; i < count; i++) {
    data[i] = (void *)(uintptr_t)operands[i].data;
    if (operands[i].dtype != OA_I64) continue;
    length = operands[i].rows;
    place = i;
    if (!(integers = malloc((size_t)length * sizeof *integers)))
      return oa_fail(OA_ERROR_MEMORY, "accelerate: no host memory");
    if (operands[i].direction == OA_IN)
      for (int64_t j = 0; j < length; j++) integers[j] = (int32_t)oa_lapack_integer(&problem->a, data[i], j);
    data[i] = integers;
  }
  const int status = lend_all(problem, data, flags, device);
  if (!status && place >= 0 && operands[place].direction == OA_OUT)
    for (int64_t j = 0; j < length; j++)
      oa_lapack_set_integer(&problem->a, (void *)(uintptr_t)operands[place].data, j, integers[j]);
  free(integers);
  return status;
}

/* -- one call -- */

/* Sets the first number of each workspace to the best size, as LAPACK does. The caller's size, which was large enough,
 * serves as the best size. */
static void set_works(const oa_lapack_call *problem) {
  const oa_lapack_arguments *a = &problem->a;
  void *const works[2] = {a->work, a->rwork};
  const int64_t sizes[2] = {a->lwork, a->lrwork};
  for (int i = 0; i < 2; i++) {
    if (!works[i] || sizes[i] < 1) continue;
    if (problem->real == OA_F32)
      ((float *)works[i])[0] = (float)sizes[i];
    else
      ((double *)works[i])[0] = (double)sizes[i];
  }
  if (a->iwork && a->liwork > 0) oa_lapack_set_integer(a, a->iwork, 0, a->liwork);
}

bool oa_lapack_try(const oa_lapack_family *family, const oa_hooked *routine, const oa_lapack_arguments *arguments,
                   oa_program_call *call) {
  oa_lapack_call problem = {.family = family, .a = *arguments, .dtype = routine->dtype};
  problem.is_complex = problem.dtype == OA_C64 || problem.dtype == OA_C128;
  problem.real = problem.dtype == OA_F32 || problem.dtype == OA_C64 ? OA_F32 : OA_F64;
  call->routine = routine;
  call->m = problem.a.m;
  call->n = problem.a.n;
  call->k = problem.a.k;
  call->form = 0;
  call->operations = call->steps = 0;
  call->host_share = call->device_share = 0.5;
  const int refused = family->plan(&problem, call);
  if (problem.is_complex) call->operations *= 4;
  if (!oa_program_try_lapack(call, !family->is_blas, &problem, lend, refused, problem.operands, problem.count))
    return false;
  set_works(&problem);
  if (family->finish) family->finish(&problem);
  oa_lapack_set_integer(&problem.a, problem.a.info, 0, 0);
  return true;
}

void oa_lapack_by_host(oa_program_call *call, const oa_lapack_arguments *arguments) {
  /* Info is not 0 if a factorisation breaks off, and its time does not predict the time of other calls. */
  if (oa_lapack_integer(arguments, arguments->info, 0)) call->is_odd = true;
  oa_program_by_host(call);
}
