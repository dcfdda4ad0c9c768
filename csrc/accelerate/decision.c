#define _GNU_SOURCE
#include "accelerate/got.h"
#include "accelerate/hooks.h"
#include "accelerate/known.h"
#include "accelerate/lapack_library.h"
#include "accelerate/model.h"
#include "accelerate/program_call.h"
#include "accelerate/record.h"
#include "base/runtime.h"
#include "base/sized.h"
#include "region/mapping.h"

#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MOST_OPERANDS = 4, CROWD = 3, LARGE_CROWD = 16 };
/* If several threads make calls, only calls that take longer than this go to the device. */
static const double CROWDED_SECONDS = 5e-3;

/* The settings, which every call reads. The lock of record.h guards all of them except `on`. */
static oa_accelerate_options options;
static int device = -1;
static int lapack_device = -1; /* the device with an open LAPACK */
/* is_lacking[number]: the device's library lacks the function for the routine with that number. */
static bool is_lacking[512];
static int64_t room;          /* bytes that may stay on the device; 0: any number */
static double saved;          /* seconds that the device would have saved in the calls so far */
static int failures;          /* consecutive failures */
static int64_t again_at;      /* ns: no call goes before that time */
static char failure[512];     /* the text of the latest failure of a call on the device */
static atomic_bool has_steps; /* see oa_program_has_steps */
static atomic_bool on;
static atomic_int busy; /* number of threads in calls that are not small */
static _Thread_local int inside;

static pthread_mutex_t patching = PTHREAD_MUTEX_INITIALIZER; /* guards got.h */
static atomic_bool behind;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* -- one call -- */

static int64_t itemsize_of(const oa_program_call *call, const oa_program_operand *operand) {
  return oa_itemsize(operand->dtype ? operand->dtype : call->routine->dtype);
}

static int64_t span(const oa_program_operand *operand, int64_t itemsize) {
  return ((operand->columns - 1) * operand->ld + operand->rows) * itemsize;
}

/* Returns whether a written operand shares memory with another operand. */
static bool overlaps(const oa_program_call *call, const oa_program_operand *operands, int count) {
  for (int i = 0; i < count; i++) {
    const uintptr_t low = (uintptr_t)operands[i].data;
    const uintptr_t high = low + (uintptr_t)span(&operands[i], itemsize_of(call, &operands[i]));
    for (int j = 0; j < count && operands[i].direction != OA_IN; j++) {
      const uintptr_t begin = (uintptr_t)operands[j].data;
      if (j != i && begin < high && low < begin + (uintptr_t)span(&operands[j], itemsize_of(call, &operands[j])))
        return true;
    }
  }
  return false;
}

typedef struct written_lines {
  uintptr_t low;
  oa_lines lines;
} written_lines;

static int note_lent(oa_present *element, void *data) {
  const written_lines *w = data;
  return oa_mapping_meets((const oa_mapping *)element, w->low, w->lines);
}

/* Returns whether a region lends memory of an operand that is written. The CPU makes such a call. If the device made
 * such a call, some of the result would be in the region's memory on the device, and not in the host's array. */
static bool is_lent(const oa_program_call *call, const oa_program_operand *operands, int count) {
  int lent = 0;
  oa_lock();
  for (int i = 0; i < count && !lent; i++) {
    const oa_program_operand *operand = &operands[i];
    const int64_t itemsize = itemsize_of(call, operand);
    const oa_lines lines = {
        .width = operand->rows * itemsize, .pitch = operand->ld * itemsize, .count = operand->columns};
    written_lines w = {(uintptr_t)operand->data, oa_lines_simplest(lines)};
    if (operand->direction == OA_IN) continue;
    lent = oa_present_visit(&oa_table, w.low, w.low + (uintptr_t)span(operand, itemsize), note_lent, &w);
  }
  oa_unlock();
  return lent;
}

static bool are_valid(const oa_program_call *call, const oa_program_operand *operands, int count) {
  for (int i = 0; i < count; i++) {
    const oa_program_operand *operand = &operands[i];
    const int64_t itemsize = itemsize_of(call, operand);
    int64_t nbytes;
    if (!operand->data || operand->rows < 1 || operand->columns < 1 || operand->ld < operand->rows ||
        (uintptr_t)operand->data % (uintptr_t)(itemsize > 8 ? 8 : itemsize) ||
        __builtin_mul_overflow(operand->columns, operand->ld, &nbytes) ||
        __builtin_mul_overflow(nbytes, itemsize, &nbytes))
      return false;
  }
  return true;
}

/* The operands as arrays to be lent. Pivots and operands that the call destroys are left out, because they may not stay
 * on the device. */
typedef struct lent {
  oa_array arrays[MOST_OPERANDS];
  int64_t shapes[MOST_OPERANDS][2], strides[MOST_OPERANDS][2];
  int places[MOST_OPERANDS]; /* for each lent array, the index of its operand */
  int count;
} lent;

static void describe(lent *to, const oa_program_call *call, const oa_program_operand *operands, int count) {
  to->count = 0;
  for (int i = 0; i < count; i++) {
    const int64_t itemsize = itemsize_of(call, &operands[i]);
    const int at = to->count;
    if (operands[i].direction == OA_SCRATCH || operands[i].dtype == OA_I32 || operands[i].dtype == OA_I64) continue;
    to->places[to->count++] = i;
    to->shapes[at][0] = operands[i].rows;
    to->shapes[at][1] = operands[i].columns;
    to->strides[at][0] = itemsize;
    to->strides[at][1] = itemsize * operands[i].ld;
    to->arrays[at] = (oa_array){.data = (void *)operands[i].data,
                                .shape = to->shapes[at],
                                .strides = to->strides[at],
                                .name = operands[i].name,
                                .ndim = 2,
                                .dtype = operands[i].dtype ? operands[i].dtype : call->routine->dtype,
                                .direction = operands[i].direction,
                                .flags = OA_REUSED | (operands[i].direction == OA_IN ? OA_READ_ONLY : 0)};
  }
}

/* Counts the bytes that the call copies. Inputs that are the same matrix go up once. */
static void count_bytes(oa_program_call *call, const oa_known *known, const oa_program_operand *operands, int count) {
  call->bytes_up = call->bytes_down = call->bytes_spared = 0;
  for (int i = 0; i < count; i++)
    if (operands[i].direction == OA_SCRATCH)
      call->bytes_up += (double)(operands[i].rows * operands[i].columns * itemsize_of(call, &operands[i]));
  for (int i = 0; i < known->count; i++) {
    const oa_known_array *array = &known->arrays[i];
    if (array->is_read) call->bytes_up += (double)array->missing;
    if (array->is_read && !array->again) call->bytes_spared += (double)(array->bytes - array->missing);
    if (array->is_written) call->bytes_down += (double)array->bytes;
  }
}

/* Counts the bytes of arrays that are too small to stay on a device, so that each call copies them. */
static void count_small(const oa_program_call *call, const oa_program_operand *operands, int count, double *up,
                        double *down) {
  for (int i = 0; i < count; i++) {
    const int64_t bytes = operands[i].rows * operands[i].columns * itemsize_of(call, &operands[i]);
    bool again = false;
    for (int j = 0; j < i; j++) again |= operands[j].data == operands[i].data;
    if (bytes >= OA_KNOWN_LEAST || again) continue;
    if (operands[i].direction != OA_OUT) *up += (double)bytes;
    if (operands[i].direction != OA_IN && operands[i].direction != OA_SCRATCH) *down += (double)bytes;
  }
}

/* Returns a number that identifies calls of the same routine, form and sizes. */
static uint64_t maker_of(const oa_program_call *call) {
  const int64_t numbers[] = {call->routine->number, call->form, call->m, call->n, call->k};
  uint64_t maker = 1469598103934665603u;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) maker = (maker ^ (uint64_t)numbers[i]) * 1099511628211u;
  return maker;
}

/* Returns whether the call does few operations for each number that is copied, like the routines of level 2. The CPU
 * makes a call with few operations in less time than the copies take, whatever the rates are. */
static bool is_thin(const oa_program_call *call) {
  return call->operations * (double)oa_itemsize(call->routine->dtype) <= 8 * (call->bytes_up + call->bytes_down);
}

/* Returns whether arrays that the program leaves unchanged should be kept on the device. The function compares two
 * times: the time that the calls so far would have saved if the arrays had been on the device, and the time of copying
 * the arrays there. The arrays should be kept once the first time exceeds the second time. With this rule, a program
 * takes at most twice as long as necessary, even if it ends right after the copies. `pays`: the call goes even if no
 * array is kept. */
static bool buys(oa_program_call *call, oa_known *known, bool pays) {
  static const double ARMING = 1.0 / 40e9; /* seconds per byte, for watching pages of 4 KiB */
  const double steady = (double)oa_known_steady(known), send = steady / oa_model_up();
  if (steady <= 0) return false;
  if (options.margin == 0) return oa_known_pay(known, 0, 0, room);
  oa_program_call there = *call;
  there.bytes_up -= steady;
  there.bytes_spared += steady;
  oa_model_predict(&there);
  const double spared = call->predicted_host - options.margin * there.predicted_device;
  if (!pays && (is_thin(&there) || spared <= 0)) return false;
  if (device < 0 || options.only_count) { /* the call does not go, but the report has its predicted times */
    if (!oa_known_pay(known, spared, send + ARMING * steady, -1)) return false;
    *call = there;
    return true;
  }
  return oa_known_pay(known, pays ? send : spared, (pays ? 0 : send) + ARMING * steady, room);
}

/* Returns whether the open device has the routine. */
static bool can_make(const oa_program_call *call) {
  return (!call->is_lapack || lapack_device == device) && !is_lacking[call->routine->number];
}

/* Returns whether calls of the routine's family may go. */
static bool is_selected(const oa_program_call *call) {
  return !options.families || options.families >> call->routine->family & 1;
}

/* Returns whether the call goes. If the call does not go, sets call->reason to the reason. Called with the lock. */
static bool decide(oa_program_call *call, oa_known *known, int others) {
  const double margin = options.margin;
  oa_model_predict(call);
  bool pays = margin == 0 ||
              (!is_thin(call) && call->predicted_device * margin < call->predicted_host && !oa_model_needs_host(call));
  const bool crowd = others > LARGE_CROWD || (others >= CROWD && call->predicted_host < CROWDED_SECONDS);
  call->reason = OA_REFUSED_ASKED;
  if (!is_selected(call)) return false;
  const bool bought = !(crowd && margin > 0) && buys(call, known, pays);
  if (options.only_count) return false;
  if (options.planned) {
    const int decision = oa_record_decision(call);
    const bool goes = decision == OA_DECIDED_GOES && device >= 0 && can_make(call);
    call->reason = OA_REFUSED_PLAN;
    if (goes) oa_known_chain(known, room);
    if (decision || options.planned == OA_PLAN_ALONE) return goes;
  }
  call->reason = OA_REFUSED_CROWD;
  if (crowd && margin > 0) return false;
  pays |= bought;
  call->reason = pays ? OA_REFUSED_WAITING : OA_REFUSED_SLOWER;
  if (pays && device < 0) {
    saved += call->predicted_host - call->predicted_device * margin;
    if (saved >= options.price) oa_record_ask_device();
  }
  if (!pays || device < 0) return false;
  if (!can_make(call)) {
    if (lapack_device == device)
      call->reason = OA_REFUSED_VARIANT;
    else
      oa_record_ask_lapack(device);
    return false;
  }
  call->reason = OA_REFUSED_BACKOFF;
  if (margin > 0 && now_ns() < again_at) return false;
  call->reason = OA_REFUSED_ODD_BEFORE;
  if (margin > 0 && oa_model_is_odd(call)) return false;
  oa_known_chain(known, room);
  return true;
}

/* Lends the operands, makes the call and brings its result down. */
static int go(const void *arguments, oa_program_make make, oa_array *arrays, const oa_known *known, int target) {
  oa_any *pointers[MOST_OPERANDS];
  oa_region *region;
  for (int i = 0; i < known->count; i++)
    if (known->arrays[i].keep) arrays[i].flags |= OA_RESIDENT | OA_TRACKED;
  OA_TRY(oa_region_enter(target, &OA_SIZED(oa_region_options, .single_use = 1), arrays, known->count, &region));
  int status = OA_OK;
  for (int i = 0; i < known->count; i++) {
    pointers[i] = arrays[i].handle;
    /* A packed array has another leading dimension on the device than on the host. */
    if (arrays[i].packed) status = OA_ERROR_ARGUMENT;
  }
  if (!status) status = make(arguments, pointers);
  return oa_program_leave(region, status);
}

/* Fills a result with NaN after the device was lost while the result arrived. Part of the result is old and part is
 * new, so the CPU has lost the input of the call. */
static void spoil(const oa_program_operand *out, int64_t itemsize) {
  for (int64_t j = 0; j < out->columns; j++)
    memset((char *)(uintptr_t)out->data + j * out->ld * itemsize, 0xff, (size_t)(out->rows * itemsize));
}

/* A call of BLAS (with `make`) or of LAPACK (with `lend`). `refused`: the reason why the call can't go, or -1. */
typedef struct wanted {
  const void *arguments;
  oa_program_make make;
  void *lent;
  oa_program_lend lend;
  int refused;
} wanted;

static int go_as(const wanted *how, lent *lent, const oa_known *known, const oa_program_operand *operands, int count,
                 int target) {
  int flags[MOST_OPERANDS] = {0};
  if (how->make) return go(how->arguments, how->make, lent->arrays, known, target);
  for (int i = 0; i < known->count; i++)
    if (known->arrays[i].keep) flags[lent->places[i]] = OA_RESIDENT | OA_TRACKED;
  return how->lend(how->lent, operands, flags, count, target);
}

static bool attempt(oa_program_call *call, const wanted *how, const oa_program_operand *operands, int count) {
  const int others = atomic_load_explicit(&busy, memory_order_relaxed) - 1;
  bool valid = how->refused < 0 && are_valid(call, operands, count);
  call->bytes_up = call->bytes_down = call->bytes_spared = 0;
  double up = 0, down = 0;
  if (valid) count_small(call, operands, count, &up, &down);
  call->reason = how->refused < 0 ? OA_REFUSED_INVALID : how->refused;
  oa_record_lock();
  call->is_short = valid && !options.planned && oa_model_is_short(call, up, down, options.margin);
  oa_record_begin(call, options.sites, options.planned, options.patience);
  const int target = device;
  const bool eager = options.margin == 0, is_asked = !is_selected(call) || options.only_count;
  oa_record_unlock();
  if (call->is_short) {
    call->reason = is_asked ? OA_REFUSED_ASKED : OA_REFUSED_SLOWER;
    return false;
  }
  call->predicted_host = call->predicted_device = 0;
  if (valid && overlaps(call, operands, count)) {
    call->reason = OA_REFUSED_OVERLAP;
    valid = false;
  }
  if (valid && is_lent(call, operands, count)) {
    call->reason = OA_REFUSED_LENT;
    valid = false;
  }
  lent lent;
  oa_known known = {.count = 0};
  if (valid) {
    describe(&lent, call, operands, count);
    oa_known_look(&known, lent.arrays, lent.count, target, maker_of(call), eager);
  }
  oa_known_lock();
  if (valid) {
    oa_known_see(&known);
    count_bytes(call, &known, operands, count);
  }
  oa_record_lock();
  bool goes = valid && decide(call, &known, others);
  if (goes && target != device) { /* another device was chosen meanwhile */
    call->reason = OA_REFUSED_WAITING;
    goes = false;
  }
  if (!goes) oa_known_cancel(&known);
  oa_known_unlock();
  oa_record_unlock();
  if (!goes) return false;
  const int64_t begun = now_ns();
  const int status = go_as(how, &lent, &known, operands, count, target);
  const double seconds = (double)(now_ns() - begun) * 1e-9;
  char text[sizeof failure] = ""; /* the end of the call may set another text */
  if (status > 0) snprintf(text, sizeof text, "%s", oa_last_error());
  oa_known_lock();
  oa_known_end(&known, !status, call->predicted_host - seconds);
  if (!atomic_load(&on)) oa_known_clear();
  oa_known_unlock();
  for (int i = 0; i < count && status == OA_ERROR_TORN; i++)
    if (operands[i].direction == OA_INOUT) spoil(&operands[i], itemsize_of(call, &operands[i]));
  oa_record_lock();
  if (!status || status == OA_CALL_ODD) oa_model_note_odd(call, status == OA_CALL_ODD);
  if (!status) {
    failures = 0;
    oa_model_learn(call, true, seconds);
    oa_record_end(call, true, seconds);
  }
  if (status > 0) memcpy(failure, text, sizeof failure);
  if (status == OA_ERROR_VERSION) {
    is_lacking[call->routine->number] = true;
  } else if (status && status != OA_ERROR_PRESENT && status != OA_ERROR_DIRECTION &&
             status != OA_CALL_ODD) { /* the program lends the array, or the call is odd: the device did not fail */
    const int shift = failures < 10 ? failures++ : failures;
    again_at = now_ns() + ((int64_t)50000000 << shift);
  }
  oa_record_unlock();
  call->reason = status == OA_CALL_ODD ? OA_REFUSED_ODD : OA_REFUSED_FAILED;
  call->is_odd |= status == OA_CALL_ODD;
  return !status;
}

/* The program's errno and floating-point flags, which a hook leaves as they are. */
typedef struct kept {
  int error, raised;
  fexcept_t flags;
} kept;

static kept keep(void) {
  kept k = {.error = errno, .raised = fetestexcept(FE_ALL_EXCEPT)};
  fegetexceptflag(&k.flags, FE_ALL_EXCEPT);
  return k;
}

static void restore(const kept *k) {
  /* Flags are seldom new, and setting them takes longer than all else in a call that does not go. */
  if (fetestexcept(FE_ALL_EXCEPT) != k->raised) fesetexceptflag(&k->flags, FE_ALL_EXCEPT);
  errno = k->error;
}

static bool try_call(oa_program_call *call, const wanted *how, const oa_program_operand *operands, int count) {
  call->noted = false;
  call->is_odd = how->refused == OA_REFUSED_VARIANT;
  if (inside || oa_record_passes(call)) return false;
  if (!atomic_load_explicit(&on, memory_order_relaxed) || oa_record_is_child() || atomic_load(&oa_forked)) return false;
  const kept program = keep();
  inside = 1;
  atomic_fetch_add(&busy, 1);
  call->noted = true;
  const bool gone = attempt(call, how, operands, count);
  if (gone) {
    inside = 0;
    atomic_fetch_sub(&busy, 1);
  } else {
    call->begun = now_ns();
  }
  restore(&program);
  return gone;
}

bool oa_program_try(oa_program_call *call, const void *arguments, oa_program_make make, bool valid,
                    const oa_program_operand *operands, int count) {
  call->form = 0;
  call->steps = 0;
  call->host_share = call->device_share = 1;
  call->is_lapack = false;
  const wanted how = {.arguments = arguments, .make = make, .refused = valid ? -1 : OA_REFUSED_INVALID};
  return try_call(call, &how, operands, count);
}

bool oa_program_has_steps(void) { return atomic_load(&has_steps); }

bool oa_program_try_lapack(oa_program_call *call, bool is_lapack, void *arguments, oa_program_lend lend, int refused,
                           const oa_program_operand *operands, int count) {
  call->is_lapack = is_lapack;
  return try_call(call, &(wanted){.lent = arguments, .lend = lend, .refused = refused}, operands, count);
}

void oa_program_by_host(oa_program_call *call) {
  if (!call->noted) return;
  const kept program = keep();
  const double seconds = (double)(now_ns() - call->begun) * 1e-9;
  const bool crowded = atomic_fetch_sub(&busy, 1) > 1;
  inside = 0;
  oa_record_lock();
  if (call->reason != OA_REFUSED_INVALID && !call->is_odd && !crowded) oa_model_learn(call, false, seconds);
  oa_record_end(call, false, seconds);
  oa_record_unlock();
  restore(&program);
}

/* -- hooks in and out -- */

/* Scans the modules. If another thread is already scanning, that thread scans again for this call. */
static void scan(void) {
  atomic_store(&behind, true);
  while (atomic_load(&behind) && !pthread_mutex_trylock(&patching)) {
    atomic_store(&behind, false);
    if (atomic_load(&on)) oa_got_patch(oa_hook_for);
    pthread_mutex_unlock(&patching);
  }
}

static void when_loaded(void) {
  if (!atomic_load_explicit(&on, memory_order_relaxed) || oa_record_is_child()) return;
  if (oa_got_is_behind()) scan();
}

int oa_accelerate_start(const oa_accelerate_options *caller_options) {
  if (!caller_options || caller_options->size != sizeof *caller_options)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_accelerate_start: options must not be NULL, and options->size %zu",
                   sizeof *caller_options);
  if (!(caller_options->margin >= 0) || caller_options->least < 0)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_accelerate_start: margin and least need to be 0 or more");
  if (!(caller_options->patience >= 0 && caller_options->patience < 1e9))
    return oa_fail(OA_ERROR_ARGUMENT, "oa_accelerate_start: patience needs 0 or more seconds, and less than 1e9");
  if (caller_options->planned < OA_PLAN_NOTHING || caller_options->planned > OA_PLAN_ALONE)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_accelerate_start: planned needs an oa_accelerate_planning, got %d",
                   caller_options->planned);
  if (!oa_got_works())
    return oa_fail(OA_ERROR_LIBRARY,
                   "oa_accelerate_start: needs glibc on x86-64 or aarch64, and this is another system");
  if (oa_record_is_child()) return oa_fail(OA_ERROR_FORKED, "oa_accelerate_start: this process was forked");
  oa_record_watch_forks();
  oa_record_lock();
  if (!atomic_load(&on)) {
    failure[0] = 0;
    oa_accelerate_rates rates;
    oa_model_nominal(&rates);
    oa_model_set(&rates);
    device = lapack_device = -1;
  }
  options = *caller_options;
  oa_record_end_passing();
  saved = 0;
  failures = 0;
  again_at = 0;
  oa_record_open();
  oa_record_unlock();
  atomic_store(&oa_program_least, caller_options->least);
  atomic_store(&on, true);
  oa_hooks_set_loaded(when_loaded);
  scan();
  return OA_OK;
}

int oa_accelerate_stop(void) {
  if (oa_record_is_child()) return OA_OK;
  atomic_store(&on, false);
  atomic_store(&oa_program_least, INT64_MAX);
  pthread_mutex_lock(&patching);
  oa_got_undo();
  pthread_mutex_unlock(&patching);
  oa_record_lock();
  device = lapack_device = -1;
  atomic_store(&has_steps, false);
  oa_record_end_passing();
  oa_record_close();
  oa_record_unlock();
  oa_known_lock();
  oa_known_clear();
  oa_known_unlock();
  return OA_OK;
}

int oa_accelerate_rescan(void) {
  when_loaded();
  return OA_OK;
}

int oa_accelerate_query(int *slots, int *modules) {
  if (!slots || !modules) return oa_fail(OA_ERROR_ARGUMENT, "oa_accelerate_query: slots and modules must not be NULL");
  *slots = *modules = 0;
  if (oa_record_is_child()) return OA_OK;
  pthread_mutex_lock(&patching);
  oa_got_count(slots, modules);
  pthread_mutex_unlock(&patching);
  return OA_OK;
}

int oa_accelerate_use(int number, const oa_accelerate_rates *rates) {
  oa_accelerate_rates nominal;
  if (rates && rates->size != sizeof *rates)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_accelerate_use: rates->size needs to be %zu", sizeof *rates);
  oa_device_info info = OA_SIZED(oa_device_info);
  if (number != -1 && oa_device_get_info(number, &info)) return oa_fail_in(OA_ERROR_ARGUMENT, "oa_accelerate_use");
  oa_known_lock();
  oa_known_clear();
  oa_known_unlock();
  oa_record_lock();
  if (!rates) oa_model_nominal(&nominal);
  room = number == -1 ? 0 : info.memory_total / 2;
  oa_model_set(rates ? rates : &nominal);
  oa_record_end_passing();
  device = number;
  atomic_store(&has_steps, number != -1 && ((info.flags & OA_DEVICE_HOST_CALLS) || strcmp(info.backend, "cuda") == 0));
  memset(is_lacking, 0, sizeof is_lacking);
  failures = 0;
  again_at = 0;
  oa_record_unlock();
  return OA_OK;
}

int oa_accelerate_use_lapack(int number) {
  oa_device_info info = OA_SIZED(oa_device_info);
  if (oa_device_get_info(number, &info)) return oa_fail_in(OA_ERROR_ARGUMENT, "oa_accelerate_use_lapack");
  OA_TRY(oa_lapack_open(number));
  oa_record_lock();
  lapack_device = number;
  oa_record_unlock();
  return OA_OK;
}

int oa_accelerate_nominal(oa_accelerate_rates *rates) {
  if (!rates) return oa_fail(OA_ERROR_ARGUMENT, "oa_accelerate_nominal: rates must not be NULL");
  oa_model_nominal(rates);
  return OA_OK;
}

int oa_accelerate_read_failure(char *text, size_t capacity) {
  if (!text || !capacity)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_accelerate_read_failure: text must not be NULL, and capacity at least 1");
  *text = 0;
  if (oa_record_is_child()) return OA_OK;
  oa_record_lock();
  snprintf(text, capacity, "%s", failure);
  oa_record_unlock();
  return OA_OK;
}

const char *oa_accelerate_family(int number) {
  if (!&oa_hooks || number < 0) return NULL;
  for (int i = 0; i < number; i++)
    if (!oa_hooks.families[i]) return NULL;
  return oa_hooks.families[number];
}

const char *oa_accelerate_reason_text(int reason) {
  static const char *const texts[OA_REFUSED_COUNT] = {
      [OA_REFUSED_SLOWER] = "not faster",
      [OA_REFUSED_WAITING] = "device not open",
      [OA_REFUSED_OVERLAP] = "overlap",
      [OA_REFUSED_INVALID] = "invalid or empty",
      [OA_REFUSED_CROWD] = "many threads",
      [OA_REFUSED_BACKOFF] = "device failed before",
      [OA_REFUSED_FAILED] = "device failed",
      [OA_REFUSED_ASKED] = "left out",
      [OA_REFUSED_PLAN] = "by the plan",
      [OA_REFUSED_VARIANT] = "variant stays on the CPU",
      [OA_REFUSED_ODD] = "info or values are odd",
      [OA_REFUSED_LENT] = "lent by the program",
      [OA_REFUSED_ODD_BEFORE] = "odd before",
  };
  return reason < 0 || reason >= OA_REFUSED_COUNT ? NULL : texts[reason];
}
