#include "body/fft.h"
#include "body/workspace.h"
#include "call/call.h"
#include "region/slot.h"

#include <stddef.h>

/* The constants of cufftType and hipfftType. Constants of double precision are greater by 0x40. */
enum transform_type { C2C = 0x29, R2C = 0x2a, C2R = 0x2c, IN_DOUBLE = 0x40 };

/* The places of the numbers in a note. The first two numbers are the elements that the input and the output need to
 * have. There are `count` lines of `width` elements, `pitch` apart. */
enum place {
  INPUT_SIZE,
  OUTPUT_SIZE,
  INPUT,
  OUTPUT = INPUT + 4,
  PADDED = OUTPUT + 4, /* the real numbers of a transform in place; no lines: it can't be executed in place */
  TYPE = PADDED + 4,   /* type of the transform; 0: the plan has no transform yet */
  TAKES_AREA           /* 1: the plan has no work area of its own */
};
/* The numbers of one array in a note, counted from the array's place. */
enum lines { WIDTH, COUNT, PITCH, GAPS };

enum { MOST_RANK = 3, MOST_AXES = MOST_RANK + 1 };

typedef struct axis {
  int64_t stride, n;
} axis;

/* The arguments of a function that makes or sets a plan. */
typedef struct arguments {
  int rank;
  int64_t n[MOST_RANK], batch;
  struct {
    bool strided; /* true: the caller passed strides; false: the layout has no gaps */
    int64_t embed[MOST_RANK], stride, distance;
  } in, out;
} arguments;

/* -- arguments -- */

static int index_of(const oa_routine *routine, const char *name) {
  for (int at = 0; at < routine->count; at++)
    if (strcmp(routine->record[at].name, name) == 0) return at;
  return -1;
}

static int64_t integer_of(const oa_routine *routine, const oa_value *values, const char *name, int64_t otherwise) {
  const int at = index_of(routine, name);
  return at < 0 ? otherwise : values[at].integer;
}

/* Copies the first `rank` integers of a list. Returns whether the caller passed a list. */
static bool read_list(const oa_routine *routine, const oa_value *values, const char *name, int rank, int64_t *numbers) {
  const int at = index_of(routine, name);
  const oa_number_list *list = at < 0 ? NULL : values[at].pointer;
  if (!list || !list->at) return false;
  for (int i = 0; i < rank; i++)
    numbers[i] = list->itemsize == sizeof(int64_t) ? ((const int64_t *)list->at)[i] : ((const int *)list->at)[i];
  return true;
}

static int fail_least(const oa_routine *routine, const char *name, int64_t least, int64_t value) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs to be at least %lld, got %lld", routine->function, name,
                 (long long)least, (long long)value);
}

static int fail_one_of(const oa_routine *routine, const char *name, int at, int64_t value) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s[%d] needs to be at least 1, got %lld", routine->function, name, at,
                 (long long)value);
}

static int check_many(const oa_routine *routine, const arguments *a, const int64_t *numbers, const char *name) {
  for (int i = 0; i < a->rank; i++)
    if (numbers[i] < 1) return fail_one_of(routine, name, i, numbers[i]);
  return OA_OK;
}

/* Reads the lengths: nx, ny and nz, or a list. */
static int read_lengths(const oa_routine *routine, const oa_value *values, arguments *a) {
  static const char *const names[MOST_RANK] = {"nx", "ny", "nz"};
  a->rank = 0;
  if (index_of(routine, "rank") >= 0) {
    const int64_t rank = integer_of(routine, values, "rank", 0);
    if (rank < 1 || rank > MOST_RANK)
      return oa_fail(OA_ERROR_ARGUMENT, "%s: rank needs to be 1, 2 or 3, got %lld", routine->function, (long long)rank);
    a->rank = (int)rank;
    read_list(routine, values, "n", a->rank, a->n);
    return check_many(routine, a, a->n, "n");
  }
  for (; a->rank < MOST_RANK && index_of(routine, names[a->rank]) >= 0; a->rank++) {
    a->n[a->rank] = integer_of(routine, values, names[a->rank], 0);
    if (a->n[a->rank] < 1) return fail_least(routine, names[a->rank], 1, a->n[a->rank]);
  }
  return OA_OK;
}

static int check_step(const oa_routine *routine, const char *name, int64_t step, int64_t count) {
  const int64_t least = count > 1;
  return step < least ? fail_least(routine, name, least, step) : OA_OK;
}

static int read_arguments(const oa_routine *routine, const oa_value *values, arguments *a) {
  int status = read_lengths(routine, values, a);
  if (status) return status;
  a->batch = integer_of(routine, values, "batch", 1);
  if (a->batch < 1) return fail_least(routine, "batch", 1, a->batch);
  a->in.strided = read_list(routine, values, "inembed", a->rank, a->in.embed);
  a->out.strided = read_list(routine, values, "onembed", a->rank, a->out.embed);
  if (a->in.strided != a->out.strided)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: %s is None and %s is not; pass both, or None for both", routine->function,
                   a->in.strided ? "onembed" : "inembed", a->in.strided ? "inembed" : "onembed");
  if (!a->in.strided) return OA_OK; /* the library ignores strides if inembed and onembed are None */
  a->in.stride = integer_of(routine, values, "istride", 1);
  a->in.distance = integer_of(routine, values, "idist", 1);
  a->out.stride = integer_of(routine, values, "ostride", 1);
  a->out.distance = integer_of(routine, values, "odist", 1);
  int64_t points = 1;
  for (int i = 0; i < a->rank; i++) points = oa_times(points, a->n[i]);
  if (!(status = check_many(routine, a, a->in.embed, "inembed")) &&
      !(status = check_many(routine, a, a->out.embed, "onembed")) &&
      !(status = check_step(routine, "istride", a->in.stride, points)) &&
      !(status = check_step(routine, "ostride", a->out.stride, points)) &&
      !(status = check_step(routine, "idist", a->in.distance, 1)))
    status = check_step(routine, "odist", a->out.distance, a->batch);
  return status;
}

/* -- layouts -- */

static void sort(axis *axes, int count) {
  for (int i = 1; i < count; i++)
    for (int k = i; k > 0 && axes[k].stride < axes[k - 1].stride; k--) {
      const axis other = axes[k];
      axes[k] = axes[k - 1];
      axes[k - 1] = other;
    }
}

/* Joins adjacent axes, and removes axes of one element. Returns how many axes are left. */
static int join(axis *axes, int count) {
  int kept = 0;
  sort(axes, count);
  for (int i = 0; i < count; i++) {
    if (axes[i].n == 1) continue;
    if (kept && oa_times(axes[kept - 1].stride, axes[kept - 1].n) == axes[i].stride)
      axes[kept - 1].n = oa_times(axes[kept - 1].n, axes[i].n);
    else
      axes[kept++] = axes[i];
  }
  return kept;
}

/* Notes lines that have all elements of the axes, and, if possible, no other elements. Returns the number of elements
 * up to the last element of the lines. */
static int64_t note_lines(int64_t *lines, axis *axes, int count) {
  int64_t size = 1;
  for (int i = 0; i < count; i++) size = oa_plus(size, oa_times(axes[i].stride, axes[i].n - 1));
  count = join(axes, count);
  const bool regular = count == 2 && axes[0].stride == 1 && axes[1].stride >= axes[0].n;
  const bool spaced = count == 1 && axes[0].stride > 1;
  lines[WIDTH] = regular ? axes[0].n : spaced ? 1 : size;
  lines[COUNT] = regular ? axes[1].n : spaced ? axes[0].n : 1;
  lines[PITCH] = regular ? axes[1].stride : spaced ? axes[0].stride : size;
  lines[GAPS] = count && !regular && !spaced && !(count == 1 && axes[0].stride == 1);
  return size;
}

/* Notes an array whose last dimension has `last` elements. `embed`: the dimensions of the array that contains it. */
static int64_t note_array(int64_t *lines, const arguments *a, int64_t last, const int64_t *embed, int64_t stride,
                          int64_t distance) {
  axis axes[MOST_AXES];
  int count = 0;
  for (int i = a->rank; i-- > 0;) {
    axes[count++] = (axis){stride, i == a->rank - 1 ? last : a->n[i]};
    stride = oa_times(stride, embed[i]);
  }
  axes[count++] = (axis){distance < 0 ? stride : distance, a->batch};
  return note_lines(lines, axes, count);
}

/* Notes an array in the layout of plans without strides, which has no gaps except the padding. */
static int64_t note_plain(int64_t *lines, const arguments *a, int64_t last, int64_t padded) {
  int64_t embed[MOST_RANK];
  memcpy(embed, a->n, sizeof embed);
  embed[a->rank - 1] = padded;
  return note_array(lines, a, last, embed, 1, -1);
}

/* Returns whether a transform in place writes no element of a line to the place of another line, in a layout with
 * strides. The lines then have the same first bytes before and after the transform. */
static bool fits_in_place(const arguments *a, int kind, int64_t last_in, int64_t last_out) {
  const int64_t in_size = kind == R2C ? 1 : 2, out_size = kind == C2R ? 1 : 2; /* in real numbers */
  const int64_t in_step = oa_times(a->in.stride, in_size), out_step = oa_times(a->out.stride, out_size);
  const int64_t in_end = oa_plus(oa_times(in_step, last_in - 1), in_size);
  const int64_t out_end = oa_plus(oa_times(out_step, last_out - 1), out_size);
  const int64_t end = in_end > out_end ? in_end : out_end;
  const bool is_same = in_step == out_step;
  int64_t in = in_step, out = out_step;
  for (int i = a->rank - 1; i >= 0; i--) {
    const bool is_batch = i == 0;
    in = is_batch ? oa_times(a->in.distance, in_size) : oa_times(in, a->in.embed[i]);
    out = is_batch ? oa_times(a->out.distance, out_size) : oa_times(out, a->out.embed[i]);
    if ((is_batch ? a->batch : a->n[i - 1]) > 1 && (in != out || (!is_same && in < end))) return false;
  }
  return true;
}

static void note_layouts(oa_note *note, const arguments *a, int64_t type) {
  const int kind = (int)type & ~IN_DOUBLE;
  const int64_t n = a->n[a->rank - 1], half = n / 2 + 1;
  const int64_t last_in = kind == C2R ? half : n, last_out = kind == R2C ? half : n;
  int64_t *shape = note->shape;
  if (a->in.strided) {
    shape[INPUT_SIZE] = note_array(&shape[INPUT], a, last_in, a->in.embed, a->in.stride, a->in.distance);
    shape[OUTPUT_SIZE] = note_array(&shape[OUTPUT], a, last_out, a->out.embed, a->out.stride, a->out.distance);
    memcpy(&shape[PADDED], &shape[kind == C2R ? OUTPUT : INPUT], 4 * sizeof *shape);
    if (!fits_in_place(a, kind, last_in, last_out)) shape[PADDED + COUNT] = 0;
  } else {
    shape[INPUT_SIZE] = note_plain(&shape[INPUT], a, last_in, last_in);
    shape[OUTPUT_SIZE] = note_plain(&shape[OUTPUT], a, last_out, last_out);
    note_plain(&shape[PADDED], a, n, kind == C2C ? n : 2 * half);
  }
  shape[TYPE] = type;
}

/* Checks that no graph has calls of the plan that the call makes anew. */
static int check_graphs(const oa_helper_call *call) {
  oa_lock();
  const int graphs = call->use_count ? call->uses[0].state->graphs : 0;
  oa_unlock();
  if (!graphs) return OA_OK;
  return oa_fail(OA_ERROR_CAPTURE, "%s: a graph has executions of %s; make another plan", call->routine->function,
                 call->uses[0].name);
}

int oa_fft_note(oa_helper_call *call, const oa_value *values) {
  const oa_routine *routine = call->routine;
  const int area = index_of(routine, "autoAllocate"), type = index_of(routine, "type");
  const int refused = check_graphs(call);
  if (refused) return oa_helper_fail(call, refused);
  if (call->use_count) call->note = call->uses[0].state->note;
  call->note.dtype = OA_C64; /* any dtype, because a note without a dtype counts as none */
  call->note.rank = 2;
  if (area >= 0) call->note.shape[TAKES_AREA] = !values[area].integer;
  if (type < 0) return OA_OK;
  arguments a = {.rank = 0};
  const int status = read_arguments(routine, values, &a);
  if (status) return oa_helper_fail(call, status);
  note_layouts(&call->note, &a, values[type].integer);
  return OA_OK;
}

/* -- executions -- */

/* Returns the name of a transform's type. */
static const char *name_of(int64_t type) {
  switch (type) {
    case C2C:
      return "C2C";
    case R2C:
      return "R2C";
    case C2R:
      return "C2R";
    case C2C + IN_DOUBLE:
      return "Z2Z";
    case R2C + IN_DOUBLE:
      return "D2Z";
    case C2R + IN_DOUBLE:
      return "Z2D";
  }
  return "none";
}

/* Returns the type of the transforms that a routine executes. */
static int64_t type_of(const oa_routine *routine) {
  const int in = routine->dtypes[1], out = routine->dtypes[2];
  const bool is_double = in == OA_F64 || out == OA_F64 || in == OA_C128;
  const int kind = in == OA_F32 || in == OA_F64 ? R2C : out == OA_F32 || out == OA_F64 ? C2R : C2C;
  return kind + (is_double ? IN_DOUBLE : 0);
}

/* Returns the plan that a value stands for; NULL with the error set if the plan has no transform, or a transform of
 * another type. */
static oa_object_state *plan_of(const oa_routine *routine, const oa_value *value) {
  uint64_t word;
  memcpy(&word, value->bytes + sizeof(uint64_t), sizeof word);
  const oa_note *note = word & OA_NOTED ? (const oa_note *)(uintptr_t)(word & ~OA_NOTED) : NULL;
  const char *name = routine->record[0].name;
  if (!note || !note->shape[TYPE]) {
    oa_fail(OA_ERROR_ARGUMENT, "%s: %s has no transform yet; call one of make_plan_* first", routine->function, name);
    return NULL;
  }
  if (note->shape[TYPE] != type_of(routine)) {
    oa_fail(OA_ERROR_ARGUMENT,
            "%s: %s is for %s, needs to be for %s; make another one, or call the function of its type",
            routine->function, name, name_of(note->shape[TYPE]), name_of(type_of(routine)));
    return NULL;
  }
  return (oa_object_state *)((uintptr_t)note - offsetof(oa_object_state, note));
}

/* Returns whether two pointers point to the same first byte. */
static bool is_in_place(const void *a, const void *b) {
  int ignored;
  if (a == b) return true;
  oa_lock();
  const oa_slot *in = oa_slot_of(a, OA_SLOT_POINTER, &ignored), *out = oa_slot_of(b, OA_SLOT_POINTER, &ignored);
  const bool same = in && out && in->mapping && in->mapping == out->mapping && in->offset == out->offset;
  oa_unlock();
  return same;
}

static int fail_in_place(const oa_routine *routine, int kind) {
  return oa_fail(OA_ERROR_ALIAS,
                 "%s: odata is idata, but the plan's lines have other places in odata than in idata, so that one would "
                 "overwrite another; pass another array as odata, or make a plan with %s",
                 routine->function,
                 kind == C2C   ? "istride = ostride and idist = odist"
                 : kind == R2C ? "idist = 2 * odist, and the last of inembed twice the last of onembed"
                               : "odist = 2 * idist, and the last of onembed twice the last of inembed");
}

static oa_extent extent_of(const int64_t *lines) {
  if (lines[COUNT] == 1) return OA_ELEMENTS(lines[WIDTH]);
  return OA_MATRIX(lines[WIDTH], lines[COUNT], lines[PITCH], "width", "lines", "pitch");
}

/* Calls the library, once the operands are checked and on the device. A captured execution has a work area of the
 * graph. If the plan had its own area, the library then frees this area, and each later call gets an area of the
 * pool. */
static int run(oa_call *call, const oa_value *values, void *symbol, const int *asks, const oa_routine *routine,
               oa_object_state *state) {
  void *set_stream = oa_asked(routine, asks[0]), *get_size = oa_asked(routine, asks[1]);
  void *set_area = oa_asked(routine, asks[2]), *plan = (void *)values[0].pointer;
  void *in = call->operands[0].address, *out = call->operands[1].address;
  const bool is_captured = call->open == OA_CALL_CAPTURED;
  int64_t *takes_area = &state->note.shape[TAKES_AREA];
  size_t nbytes = 0;
  oa_workspaces area;
  if (!set_stream || !get_size || !set_area) return oa_call_fail(call, OA_ERROR_LIBRARY);
  const int lost = is_captured ? oa_object_keep(call, state) : OA_OK;
  if (lost) return oa_call_fail(call, lost);
  int answer = ((int (*)(void *, void *))set_stream)(plan, call->native_stream);
  if (!answer && (*takes_area || is_captured)) answer = ((int (*)(void *, size_t *))get_size)(plan, &nbytes);
  const int refused = oa_workspaces_take(&area, call, nbytes, 0);
  if (refused) return refused;
  if (!answer && nbytes) answer = ((int (*)(void *, void *))set_area)(plan, area.device);
  if (!answer && nbytes) *takes_area = 1;
  if (!answer && routine->count == 3)
    answer = ((int (*)(void *, void *, void *))symbol)(plan, in, out);
  else if (!answer)
    answer = ((int (*)(void *, void *, void *, int))symbol)(plan, in, out, (int)values[3].integer);
  return oa_workspaces_end(&area, call, answer);
}

int oa_fft_execute(const oa_routine *routine, oa_value *values, const int *asks, const oa_code_dtype *codes) {
  (void)codes;
  void *symbol = oa_routine_symbol(routine, 0);
  if (!symbol) return oa_fail_symbol(routine, values, 0, 0);
  oa_object_state *plan = plan_of(routine, &values[0]);
  if (!plan) return OA_ERROR_ARGUMENT;
  const int64_t *shape = plan->note.shape, *in = &shape[INPUT], *out = &shape[OUTPUT];
  const int kind = (int)shape[TYPE] & ~IN_DOUBLE;
  const bool in_place = is_in_place(values[1].pointer, values[2].pointer);
  if (in_place && !shape[PADDED + COUNT]) return fail_in_place(routine, kind);
  if (in_place && kind == R2C) in = &shape[PADDED];
  if (in_place && kind == C2R) out = &shape[PADDED];
  /* Some transforms may overwrite their input. */
  const int reads = routine->record[1].role == OA_ROLE_INOUT ? OA_READ_WRITE : OA_READ;
  const int writes = in_place || out[GAPS] ? OA_READ_WRITE : OA_OVERWRITE;
  oa_operand operands[] = {
      oa_operand_of(routine->record[1].name, values[1].pointer, reads, routine->dtypes[1], extent_of(in)),
      oa_operand_of(routine->record[2].name, values[2].pointer, writes, routine->dtypes[2], extent_of(out))};
  oa_call call = oa_call_of(routine->function, routine->library, operands, 2);
  call.special = OA_KEEPS_VALUES | (in_place ? OA_MAY_OVERLAP : 0);
  call.only = plan->device;
  const int status = oa_begin(&call);
  return status ? status : run(&call, values, symbol, asks, routine, plan);
}
