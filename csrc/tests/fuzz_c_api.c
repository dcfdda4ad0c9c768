/* libFuzzer: sequences of calls of the C API, with handles that are good, stale, of another kind, or foreign, and with
 * numbers that are right or wrong. No input may crash, hang, leak or corrupt memory. Arrays that no call wrote, and the
 * bytes around all arrays, stay unchanged. At the end nothing is present. scripts/fuzz-c-api runs this program.
 *
 * An input is a list of operations. Each operation is a byte that selects it, and then the bytes of its arguments.
 * Missing bytes are 0. */
#include "offload_args.h"
#include "offload_args/launch.h"
#include "offload_args/routine.h"
#include "offload_args/testing.h"
#include "offload_args_blas.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARRAYS = 6, ELEMENTS = 24, GUARD = 8, REGIONS = 8, HANDLES = 48, OBJECTS = 4 };

typedef struct {
  const uint8_t *at, *end;
} input;

static int devices[3];
static double memory[ARRAYS][GUARD + ELEMENTS + GUARD];
static oa_region *regions[REGIONS];
static bool finished[REGIONS];
static oa_any *handles[HANDLES];
static void *exports[OBJECTS];
static oa_writing *writings[OBJECTS]; /* open and ended writings */
static int region_count, handle_count, export_count, writing_count;
static oa_kernel *kernel_of[3]; /* `nothing` of sample_kernels.c, on each device */

static uint8_t byte(input *in) { return in->at < in->end ? *in->at++ : 0; }

/* Returns a small number in most cases, otherwise a number that most functions refuse. */
static int64_t number(input *in) {
  static const int64_t odd[] = {-1,         INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, (int64_t)1 << 32,
                                1000000007, -8,        7,         1 << 20};
  const uint8_t choice = byte(in);
  return choice < 200 ? choice % (ELEMENTS + 2) : odd[choice % (sizeof odd / sizeof *odd)];
}

static int64_t bytes(input *in) { return (int64_t)(8 * (uint64_t)number(in)); }

static int device(input *in) {
  const uint8_t choice = byte(in);
  return choice < 220 ? devices[choice % 3] : choice < 240 ? -1 : 250 + choice;
}

/* Returns a handle that some call has returned, live or stale, or a value that no call has returned. */
static oa_any *handle(input *in) {
  const uint8_t choice = byte(in);
  if (choice < 200 && handle_count) return handles[choice % handle_count];
  switch (choice % 8) {
    case 0:
      return NULL;
    case 1:
      return (oa_any *)memory;
    case 2:
      return (oa_any *)(uintptr_t)-1;
    case 3:
      return handle_count ? (oa_any *)((char *)handles[0] + byte(in)) : (oa_any *)1;
    case 4:
      return region_count ? (oa_any *)regions[byte(in) % region_count] : NULL;
    case 5:
      return handle_count ? (oa_any *)((char *)handles[0] + ((uintptr_t)byte(in) << 24)) : NULL;
    case 6:
      return export_count ? exports[byte(in) % export_count] : (oa_any *)8;
    default:
      return (oa_any *)(uintptr_t)byte(in);
  }
}

static oa_region *region(input *in, int *place) {
  const uint8_t choice = byte(in);
  *place = -1;
  if (choice < 220 && region_count) return regions[*place = choice % region_count];
  return choice % 2 && handle_count ? (oa_region *)handles[choice % handle_count]
                                    : (oa_region *)(uintptr_t)(choice % 3);
}

static void keep(oa_any *pointer) {
  if (handle_count < HANDLES) handles[handle_count++] = pointer;
}

static void dimensions(input *in, int *ndim, int64_t *shape, int64_t *strides) {
  const uint8_t choice = byte(in);
  *ndim = choice < 230 ? choice % 4 : choice < 240 ? -1 : 200;
  for (int i = 0; i < 4; i++) {
    shape[i] = number(in);
    strides[i] = bytes(in);
  }
}

/* Lends parts of the arrays. Host addresses are always valid, because the core trusts them. */
static void enter(input *in) {
  oa_array arrays[3];
  int64_t shapes[3][2], strides[3][2];
  const int count = byte(in) % 4;
  for (int i = 0; i < count; i++) {
    const int from = byte(in) % ELEMENTS, room = ELEMENTS - from;
    const uint8_t form = byte(in);
    const int64_t step = 1 + form % 3, rows = room / (2 * (int)step);
    shapes[i][0] = form % 2 ? 2 : room / step;
    shapes[i][1] = rows;
    strides[i][0] = form % 2 ? 8 * step * rows : 8 * step;
    strides[i][1] = 8 * step;
    const uint8_t how = byte(in);
    arrays[i] = (oa_array){.data = how < 250 ? &memory[how % ARRAYS][GUARD + from] : NULL,
                           .shape = shapes[i],
                           .strides = strides[i],
                           .name = how % 2 ? "a" : NULL,
                           .ndim = form < 250 ? 1 + form % 2 : 70,
                           .dtype = how < 220 ? OA_F64 : how,
                           .direction = byte(in) % 6 - (how == 249),
                           .flags = how % 11 == 0   ? OA_READ_ONLY
                                    : how % 13 == 0 ? OA_RESIDENT
                                                    : 0};
  }
  oa_region_options options = OA_SIZED(oa_region_options, .single_use = byte(in) % 2);
  if (byte(in) > 250) options.size = byte(in);
  oa_region *region;
  if (oa_region_enter(device(in), &options, arrays, count, &region)) return;
  if (region_count == REGIONS) {
    oa_region_finish(region, OA_DISCARD, NULL);
    oa_region_wait(region);
    return;
  }
  for (int i = 0; i < count; i++) keep(arrays[i].handle);
  finished[region_count] = false;
  regions[region_count++] = region;
}

static void end_region(input *in) {
  int place, warnings;
  oa_region *ending = region(in, &place);
  const uint8_t how = byte(in);
  if (how % 4 == 3) {
    oa_region_wait(ending);
  } else if (oa_region_finish(ending, how < 240 ? how % 3 : how, &warnings) == OA_OK && how % 8 < 6) {
    oa_region_wait(ending);
  }
}

static void view(input *in) {
  int ndim;
  int64_t shape[200], strides[200];
  memset(shape, 0, sizeof shape);
  memset(strides, 0, sizeof strides);
  oa_any *of = handle(in), *part;
  const int64_t offset = bytes(in);
  dimensions(in, &ndim, shape, strides);
  if (oa_pointer_view(of, offset, ndim, shape, strides, &part) == OA_OK) keep(part);
}

static void contents(input *in) {
  static double values[4096];
  static const double element[2] = {3}; /* room for an element of any dtype */
  int ndim;
  int64_t shape[200], strides[200], packed[200];
  memset(shape, 0, sizeof shape);
  memset(strides, 0, sizeof strides);
  memset(packed, 0, sizeof packed);
  oa_any *to = handle(in), *from = handle(in);
  dimensions(in, &ndim, shape, strides);
  if (ndim > 2) ndim = 2; /* so that `values` is large enough */
  for (int i = 0; i < 4; i++)
    if (shape[i] > 60) shape[i] = 60;
  packed[0] = ndim == 2 && shape[1] > 0 ? 8 * shape[1] : 8;
  packed[1] = 8;
  switch (byte(in) % 4) {
    case 0:
      oa_pointer_assign(to, values, ndim, shape, strides);
      break;
    case 1:
      oa_pointer_fill(to, element, ndim, shape, strides);
      break;
    case 2:
      oa_pointer_copy(to, strides, from, packed, ndim, shape);
      break;
    default:
      oa_pointer_read(to, values, ndim, shape, strides);
  }
}

static void blas(input *in) {
  oa_f64 *A = (oa_f64 *)handle(in), *x = (oa_f64 *)handle(in), *y = (oa_f64 *)handle(in);
  const uint8_t which = byte(in);
  const int64_t m = number(in), n = number(in), ld = number(in), inc = number(in);
  const int constant = 110 + byte(in) % 36;
  double result;
  int64_t index;
  switch (which % 8) {
    case 0:
      oa_blas_dscal(n, 0.5, x, inc);
      break;
    case 1:
      oa_blas_daxpy(n, 0.5, x, inc, y, 1);
      break;
    case 2:
      oa_blas_dgemv(constant, m, n, 0.5, A, ld, x, 1, which < 128 ? 0 : 0.5, y, inc);
      break;
    case 3:
      oa_blas_dgemm(111, constant, m, n, 2, 0.5, A, ld, x, ld, 0, y, ld);
      break;
    case 4:
      oa_blas_dnrm2(n, x, inc, &result);
      break;
    case 5:
      oa_blas_idamax(n, x, inc, &index);
      break;
    case 6:
      oa_blas_dsymv(constant, n, 0.5, A, ld, x, inc, 0, y, 1);
      break;
    default:
      oa_blas_dtrsm(141, constant, 111, 131, m, n, 1, A, ld, y, ld);
  }
}

static void exported(input *in) {
  uint64_t address;
  void *share = NULL;
  const uint8_t which = byte(in);
  if (which % 4 == 0) {
    void *ending = export_count ? exports[--export_count] : (void *)handle(in);
    const int status = oa_export_release(ending);
    if (which % 8 == 4 && ending && oa_export_release(ending) == OA_OK) abort(); /* a second release has to fail */
    (void)status;
  } else if (which % 4 == 1) {
    oa_address(handle(in), &address);
  } else if (export_count < OBJECTS && oa_export(handle(in), &address, &share) == OA_OK && share) {
    exports[export_count++] = share;
  }
}

static void queries(input *in) {
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  oa_device_info about = OA_SIZED(oa_device_info);
  oa_counters counters = OA_SIZED(oa_counters);
  oa_any *staged, *pointer = handle(in);
  const double value[2] = {byte(in) % 2, 0}; /* room for an element of any dtype */
  int place;
  void *stream;
  if (byte(in) > 240) info.size = about.size = byte(in);
  switch (byte(in) % 10) {
    case 0:
      oa_pointer_query(pointer, &info);
      break;
    case 1:
      oa_device_get_info(device(in), &about);
      break;
    case 2:
      oa_device_get_counters(device(in), &counters);
      break;
    case 3:
      oa_device_synchronize(device(in));
      break;
    case 4:
      oa_device_trim(device(in));
      break;
    case 5:
      oa_region_stream(region(in, &place), &stream);
      break;
    case 6:
      oa_region_synchronize(region(in, &place));
      break;
    case 7:
      if (oa_stage(pointer, value, byte(in) < 200 ? OA_F64 : byte(in), &staged) == OA_OK) keep(staged);
      break;
    case 8: {
      oa_pointer_layout layout = OA_SIZED(oa_pointer_layout);
      oa_is_host_zero(pointer);
      oa_pointer_get_layout(pointer, &layout);
      break;
    }
    default:
      oa_object_destroy((oa_object *)pointer);
  }
}

static void update(input *in) {
  const int64_t from = byte(in) % ELEMENTS, shape = byte(in) % (ELEMENTS - from + 1), stride = 8;
  const oa_array array = {.data = &memory[byte(in) % ARRAYS][GUARD + from],
                          .shape = &shape,
                          .strides = &stride,
                          .ndim = 1,
                          .dtype = OA_F64};
  const uint8_t place = byte(in);
  const int on = place < 128 ? -1 : device(in);
  switch (byte(in) % 8) {
    case 6:
      if (writing_count < OBJECTS && !oa_update_begin(&array, on, &writings[writing_count]) && writings[writing_count])
        writing_count++;
      break;
    case 7: /* an open writing, an ended writing, or another handle */
      oa_update_end(byte(in) < 200 && writing_count ? writings[byte(in) % writing_count] : (oa_writing *)handle(in));
      break;
    case 0:
      oa_update_to(&array, on);
      break;
    case 1:
      oa_update_check(&array, on);
      oa_update_newest(&array);
      break;
    case 2:
      oa_keep(&array, on);
      break;
    case 3:
      oa_release(&array, on);
      break;
    case 4:
      oa_is_present(array.data, 8 * shape, on);
      break;
    default:
      oa_update_from(&array, on);
  }
}

static void kernels(input *in) {
  oa_module *module = NULL;
  oa_kernel *kernel = NULL;
  const oa_parameter parameter = {.name = "x", .access = byte(in) % 5, .dtype = OA_F64, .nbytes = 8};
  const void *arguments[] = {handle(in), handle(in)};
  uint8_t image[64];
  for (size_t i = 0; i < sizeof image; i++) image[i] = byte(in);
  oa_module_load(device(in), "m", image, byte(in) % 65, &module);
  oa_kernel_get(byte(in) % 2 ? module : (oa_module *)handle(in), "k", &parameter, byte(in) % 2, &kernel);
  oa_launch launch = OA_SIZED(oa_launch, .grid = {byte(in), 1, 1}, .block = {byte(in), 1, 1});
  oa_kernel_launch(byte(in) % 2 ? kernel : (oa_kernel *)handle(in), &launch, arguments, byte(in) % 3);
  oa_module_unload(byte(in) % 2 ? module : (oa_module *)handle(in));
}

/* A call of the program's own. */
static void own_call(input *in) {
  oa_operand operands[2];
  for (int i = 0; i < 2; i++) {
    const int64_t rows = number(in), columns = number(in), ld = number(in);
    const uint8_t how = byte(in);
    operands[i] = (oa_operand){.name = "x", .pointer = handle(in), .access = how % 16, .dtype = OA_F64};
    operands[i].extent = how % 3 == 0   ? OA_ELEMENTS(rows)
                         : how % 3 == 1 ? OA_MATRIX(rows, columns, ld, "m", "n", "ld")
                                        : OA_TRIANGLE(how % 4, rows, ld, "n", "ld");
  }
  oa_call call = {.function = "fuzz.own", .operands = operands, .count = byte(in) % 3};
  if (oa_begin(&call) != OA_OK) return;
  const uint8_t how = byte(in);
  if (how % 4 == 0 && oa_begin(&call) == OA_OK) abort(); /* a call can't begin twice */
  oa_end(&call, how > 200);
  if (how % 4 == 1 && oa_end(&call, 0) == OA_OK) abort(); /* a call can't end twice */
}

/* Makes a call of the program's own with a list of pointers, which may be wrong. */
static void own_lists(input *in) {
  const void *at[4];
  for (int i = 0; i < 4; i++) at[i] = handle(in);
  const uint8_t how = byte(in);
  oa_pointer_list list = {.at = how % 2 ? at : NULL, .first = handle(in), .stride = number(in), .count = how % 5};
  if (how > 200) list.count = -1;
  const int64_t batch = byte(in) < 200 ? how % 5 : number(in);
  oa_operand operands[2] = {{.name = "x", .access = byte(in) % 16, .dtype = OA_F64}};
  operands[0].pointer = &list;
  /* With list.at and a count of -1, the core trusts the number of pointers that the call states. */
  operands[0].extent =
      oa_listed(OA_VECTOR(number(in), number(in), "n", "incx"), list.count < 0 && list.at ? 4 : batch, "batch");
  operands[1] = (oa_operand){.name = "y", .pointer = handle(in), .access = OA_READ_WRITE, .dtype = OA_F64};
  operands[1].extent = OA_ELEMENTS(number(in));
  oa_call call = {.function = "fuzz.lists", .operands = operands, .count = 1 + byte(in) % 2};
  if (oa_begin_lists(&call) == OA_OK && call.open) oa_end(&call, byte(in) > 200);
}

static void work(void *arguments) { (void)arguments; }

/* Makes a call whose work runs in stream order, perhaps later. */
static void submitted(input *in) {
  oa_operand operand = {.name = "x", .pointer = handle(in), .access = byte(in) % 16, .dtype = OA_F64};
  operand.extent = OA_ELEMENTS(number(in));
  oa_call call = {.function = "fuzz.later", .operands = &operand, .count = 1, .blocking = byte(in) % 2};
  if (oa_begin(&call) == OA_OK) oa_submit(&call, byte(in) < 240 ? work : NULL, &operand, byte(in) % 64);
}

/* Calls any routine of CBLAS that takes only arrays, sizes, enums and numbers. */
static void routine(input *in) {
  const oa_routine *all;
  oa_value values[32];
  int count;
  if (oa_library_routines("cblas", &all, &count) || !count) return;
  const unsigned first = byte(in); /* read before the next byte, with every compiler */
  const oa_routine *routine = &all[(256 * first + byte(in)) % (unsigned)count];
  if (routine->typed_count || routine->count > 32) return;
  memset(values, 0, sizeof values);
  for (int i = 0; i < routine->count; i++) {
    switch (routine->record[i].role) {
      case OA_ROLE_ENUM:
        values[i].integer = 101 + byte(in) % 48;
        break;
      case OA_ROLE_SIZE:
        values[i].integer = number(in);
        break;
      case OA_ROLE_IN:
      case OA_ROLE_OUT:
      case OA_ROLE_INOUT:
        values[i].pointer = handle(in);
        break;
      case OA_ROLE_SCALAR:
      case OA_ROLE_RESULT:
        if (routine->record[i].count == 1) break;
        return; /* left out, because the core trusts a pointer to several host numbers */
      default:
        return;
    }
  }
  routine->run(routine, values, 0);
}

static void trace(input *in) {
  oa_trace_event events[4];
  oa_under_way under_way[4];
  int count;
  int64_t lost;
  oa_trace_set(byte(in) % 10);
  oa_trace_read(events, byte(in) % 5, &count, byte(in) % 2 ? &lost : NULL);
  oa_trace_under_way(under_way, byte(in) % 5, &count);
}

/* Makes a later call of a sim device's backend fail. */
static void failing(input *in) { oa_sim_configure(device(in), byte(in) % 4 ? 0 : 4096, byte(in) % 24, 0); }

static void residency(input *in) {
  oa_residency about = OA_SIZED(oa_residency);
  switch (byte(in) % 4) {
    case 0:
      oa_residency_configure(byte(in) % 4, byte(in) % 2);
      break;
    case 1:
      oa_owner_gone(memory[byte(in) % ARRAYS]);
      break;
    case 2:
      oa_owner_kept(memory[byte(in) % ARRAYS]);
      break;
    default:
      oa_residency_query(device(in), &about);
  }
}

static void launch(input *in) {
  const double half = 0.5;
  const void *arguments[] = {handle(in), &half};
  const uint8_t how = byte(in);
  const uint32_t wide = byte(in);
  oa_launch shape = OA_SIZED(oa_launch, .grid = {wide % 5, 1, 1}, .block = {wide % 33, 1, 1});
  shape.shared_bytes = how == 255 ? number(in) : how % 4;
  shape.is_unsafe = how % 3 == 0;
  shape.cooperative = how % 7 == 0;
  if (how > 220) shape.grid[2] = (uint32_t)number(in);
  oa_kernel_launch(kernel_of[byte(in) % 3], &shape, arguments, how == 9 ? 1 : 2);
}

static void release(input *in) {
  oa_any *pointer = handle(in);
  byte(in) % 8 ? oa_pointer_release(pointer) : oa_pointer_invalidate(pointer);
}

/* Ends everything, and checks that nothing is left and that no byte around the arrays changed. */
static void end_all(void) {
  for (int i = 0; i < 3; i++) oa_sim_configure(devices[i], 0, 0, 0);
  oa_trace_set(0);
  while (region_count) {
    oa_region *last = regions[--region_count];
    if (oa_region_finish(last, OA_DISCARD, NULL) == OA_OK) oa_region_wait(last);
  }
  while (export_count) oa_export_release(exports[--export_count]);
  while (writing_count) oa_update_end(writings[--writing_count]);
  oa_residency_configure(-1, 1);
  for (int i = 0; i < 3; i++) {
    oa_counters left = OA_SIZED(oa_counters);
    if (oa_device_get_counters(devices[i], &left) || left.regions || left.mappings || left.allocations != left.frees) {
      fprintf(stderr, "device %d: %ld regions, %ld mappings, %ld allocations, %ld frees: %s\n", i, (long)left.regions,
              (long)left.mappings, (long)left.allocations, (long)left.frees, oa_last_error());
      abort();
    }
  }
  for (int i = 0; i < ARRAYS; i++)
    for (int j = 0; j < GUARD; j++)
      if (memory[i][j] != -1 || memory[i][GUARD + ELEMENTS + j] != -1) abort();
}

/* A function of LeakSanitizer, which does not find pointers in handles. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

/* Loads the kernels that live as long as the program. */
static void load_kernels(void) {
  static const oa_parameter parameters[] = {{"x", OA_READ_WRITE, OA_F64, 8, 0}, {"a", 0, OA_F64, 8, 8}};
  static uint8_t image[1 << 20];
  FILE *file = fopen(SAMPLE_KERNELS, "rb");
  const size_t nbytes = file ? fread(image, 1, sizeof image, file) : 0;
  if (file) fclose(file);
  if (__lsan_disable) __lsan_disable();
  for (int i = 0; i < 3; i++) {
    oa_module *module;
    if (oa_module_load(devices[i], "sample", image, nbytes, &module) ||
        oa_kernel_get(module, "nothing", parameters, 2, &kernel_of[i])) {
      fprintf(stderr, "%s\n", oa_last_error());
      abort();
    }
  }
  if (__lsan_enable) __lsan_enable();
}

int LLVMFuzzerInitialize(int *count, char ***arguments) {
  static const char *const names[] = {"host", "sim:0", "sim:1"};
  const char *only = getenv("FUZZ_DEVICE"); /* FUZZ_DEVICE=host runs many more inputs a second, without other threads */
  (void)count, (void)arguments;
  for (int i = 0; i < 3; i++)
    if (oa_device_open(only ? only : names[i], &devices[i])) abort();
  oa_set_threads(1);
  load_kernels();
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static void (*const operations[])(input *) = {
      enter,    enter,   end_region, view,      contents,  blas,    blas,  exported, queries,   update, kernels,
      own_call, release, end_region, own_lists, submitted, routine, trace, failing,  residency, launch, enter};
  input in = {data, data + size};
  for (int i = 0; i < ARRAYS; i++) {
    for (int j = 0; j < GUARD + ELEMENTS + GUARD; j++) memory[i][j] = -1;
    for (int j = 0; j < ELEMENTS; j++) memory[i][GUARD + j] = i + j;
  }
  region_count = handle_count = export_count = writing_count = 0;
  while (in.at < in.end) operations[byte(&in) % (sizeof operations / sizeof *operations)](&in);
  end_all();
  return 0;
}
