/* T74: calls each function that takes a handle twice in a row, with a handle that has ended. Each call returns a status
 * and sets a text. A newer object, often in the same slot, stays alive. */
#include "check.h"
#include "offload_args/chain.h"
#include "offload_args/graph.h"
#include "offload_args/launch.h"
#include "offload_args/routine.h"
#include "sample_library.h"

static const char *const symbols[] = {"sample_version"};
static void *addresses[1];
static oa_library_state state;
/* A library that trusts the size of the text for its version, as rocBLAS does. */
static const oa_library versioned = {SAMPLE_LIBRARY("versioned", symbols, addresses, &state),
                                     .version = "sample_version", .version_kind = OA_VERSION_BUFFER};
const oa_library *const oa_libraries[] = {&versioned, NULL};

static int device;
static float host[12];
static const int64_t shape[] = {12}, strides[] = {4};
static const oa_array array = {
    .data = host, .shape = shape, .strides = strides, .name = "x", .ndim = 1, .dtype = OA_F32};
static oa_region *around; /* a region that is open all the time, and lends the array, too */
static oa_any *whole;     /* the array's pointer in that region */

/* -- making and ending each kind of object -- */

static void *new_region(void) {
  oa_array lent = array;
  oa_region *region = NULL;
  CHECK_OK(oa_region_enter(device, NULL, &lent, 1, &region));
  return region;
}
static int end_region(void *region) {
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  return oa_region_wait(region);
}

static void *new_slice(void) {
  oa_any *pointer = NULL;
  CHECK_OK(oa_pointer_view(whole, 4, 1, (int64_t[]){3}, strides, &pointer));
  return pointer;
}
static int end_slice(void *pointer) { return oa_pointer_release(pointer); }

static void *new_scalar(void) {
  const float two = 2;
  oa_any *pointer = NULL;
  CHECK_OK(oa_stage(whole, &two, OA_F32, &pointer));
  return pointer;
}

static void *new_export(void) {
  uint64_t address;
  void *memory = NULL;
  CHECK_OK(oa_export(whole, &address, &memory));
  return memory;
}
static int end_export(void *keep) { return oa_export_release(keep); }

static void *new_writing(void) {
  oa_writing *writing = NULL;
  CHECK_OK(oa_update_begin(&array, device, &writing));
  return writing;
}
static int end_writing(void *writing) { return oa_update_end(writing); }

static void *new_module(void) {
  static unsigned char image[1 << 20];
  oa_module *module = NULL;
  FILE *file = fopen(sample_kernels(device), "rb");
  const size_t nbytes = CHECK(file) ? fread(image, 1, sizeof image, file) : 0;
  if (file) fclose(file);
  CHECK_OK(oa_module_load(device, "sample", image, nbytes, &module));
  return module;
}
static int end_module(void *module) { return oa_module_unload(module); }

static const oa_parameter parameters[] = {{"x", OA_READ_WRITE, OA_F32, 8, 0}, {"a", 0, OA_F32, 4, 8}};
static oa_module *module_of_kernel;
static void *new_kernel(void) {
  oa_kernel *kernel = NULL;
  CHECK_OK(oa_kernel_get(module_of_kernel = new_module(), "scale", parameters, 2, &kernel));
  return kernel;
}
static int end_kernel(void *kernel) {
  (void)kernel; /* a kernel ends with its module */
  return oa_module_unload(module_of_kernel);
}

static void *new_pinned(void) {
  void *memory = NULL;
  CHECK_OK(oa_pinned_allocate(device, 4096, &memory));
  return memory;
}
static int end_pinned(void *memory) { return oa_pinned_free(device, memory, 4096); }

static oa_region *region_of_chain;
static void *new_chain(void) {
  oa_chain *chain = NULL;
  region_of_chain = new_region();
  CHECK_OK(oa_chain_begin(region_of_chain, &chain));
  CHECK_OK(oa_chain_end(chain));
  return chain;
}
static int end_chain(void *chain) {
  const int status = oa_chain_release(chain);
  return status ? status : end_region(region_of_chain);
}

static oa_operand operand;
static oa_call call;
static void *new_call(void) {
  operand = (oa_operand){.name = "x", .pointer = whole, .access = OA_READ, .dtype = OA_F32, .extent = OA_ELEMENTS(12)};
  call = oa_call_of("twice.call", NULL, &operand, 1);
  CHECK_OK(oa_begin(&call));
  return &call;
}
static int end_call(void *begun) { return oa_end(begun, 0); }

/* -- the functions, each with what may have ended -- */

static int finish(void *region) { return oa_region_finish(region, OA_DISCARD, NULL); }
static int wait_for(void *region) { return oa_region_wait(region); }
static int synchronize(void *region) { return oa_region_synchronize(region); }
static int stream_of(void *region) {
  void *stream;
  return oa_region_stream(region, &stream);
}
static int view(void *pointer) {
  oa_any *part;
  return oa_pointer_view(pointer, 0, 1, (int64_t[]){1}, strides, &part);
}
static int query(void *pointer) {
  oa_pointer_info info = OA_SIZED(oa_pointer_info);
  return oa_pointer_query(pointer, &info);
}
static int layout_of(void *pointer) {
  oa_pointer_layout layout = OA_SIZED(oa_pointer_layout);
  return oa_pointer_get_layout(pointer, &layout);
}
static int address(void *pointer) {
  uint64_t value;
  return oa_address(pointer, &value);
}
static int export(void *pointer) {
  uint64_t value;
  void *keep;
  return oa_export(pointer, &value, &keep);
}
static int assign(void *pointer) { return oa_pointer_assign(pointer, host, 1, (int64_t[]){1}, strides); }
static int invalidate(void *pointer) { return oa_pointer_invalidate(pointer); }
static int fill(void *pointer) { return oa_pointer_fill(pointer, host, 1, (int64_t[]){1}, strides); }
static int copy_to(void *pointer) { return oa_pointer_copy(pointer, strides, whole, strides, 1, (int64_t[]){1}); }
static int copy_from(void *pointer) { return oa_pointer_copy(whole, strides, pointer, strides, 1, (int64_t[]){1}); }
static int read_to_host(void *pointer) {
  float values[1];
  return oa_pointer_read(pointer, values, 1, (int64_t[]){1}, strides);
}
static int assign_strided(void *pointer) {
  return oa_pointer_assign_strided(pointer, host, 1, (int64_t[]){1}, strides);
}
static int read_strided(void *pointer) {
  float values[1];
  return oa_pointer_read_strided(pointer, values, 1, (int64_t[]){1}, strides);
}
static int stage(void *pointer) {
  const float unit = 1;
  oa_any *staged;
  return oa_stage(pointer, &unit, OA_F32, &staged);
}
static int call_with(void *pointer) {
  oa_operand x = {.name = "x", .pointer = pointer, .access = OA_READ, .dtype = OA_F32, .extent = OA_ELEMENTS(1)};
  oa_call call = oa_call_of("twice.with", NULL, &x, 1);
  return oa_begin(&call);
}
static int call_with_list(void *pointer) {
  const void *at[] = {pointer};
  oa_pointer_list list = {.at = at, .count = 1};
  oa_operand x = {.name = "x", .pointer = &list, .access = OA_READ, .dtype = OA_F32};
  x.extent = oa_listed(OA_ELEMENTS(1), 1, "batch");
  oa_call call = oa_call_of("twice.list", NULL, &x, 1);
  return oa_begin_lists(&call);
}
static int kernel_of(void *module) {
  oa_kernel *kernel;
  return oa_kernel_get(module, "scale", parameters, 2, &kernel);
}
static int kernel_info(void *kernel) {
  oa_kernel_info info = OA_SIZED(oa_kernel_info);
  return oa_kernel_get_info(kernel, &info);
}
static int launch(void *kernel) {
  const float a = 2;
  const void *arguments[] = {whole, &a};
  oa_launch options = OA_SIZED(oa_launch, .grid = {1, 1, 1}, .block = {12, 1, 1});
  return oa_kernel_launch(kernel, &options, arguments, 2);
}
static int launch_with(void *pointer) {
  const float a = 2;
  const void *arguments[] = {pointer, &a};
  oa_launch options = OA_SIZED(oa_launch, .grid = {1, 1, 1}, .block = {12, 1, 1});
  oa_kernel *kernel = new_kernel();
  const int status = oa_kernel_launch(kernel, &options, arguments, 2);
  return end_kernel(kernel) ? OA_OK : status;
}
static int find_variable(void *module) {
  uint64_t address;
  size_t nbytes;
  return oa_module_find_variable(module, "x", &address, &nbytes);
}
static int use_variable(void *module) { return oa_module_use_variable(module, whole); }
static int use_with(void *pointer) {
  oa_module *module = new_module();
  const int status = oa_module_use_variable(module, pointer);
  return end_module(module) ? OA_OK : status;
}
static int begin_chain(void *region) {
  oa_chain *chain;
  return oa_chain_begin(region, &chain);
}
static int end_capture(void *chain) { return oa_chain_end(chain); }
static int replay(void *chain) { return oa_chain_replay(chain); }
static int chain_info(void *chain) {
  oa_chain_info info = OA_SIZED(oa_chain_info);
  return oa_chain_get_info(chain, &info);
}
static int release_chain(void *chain) { return oa_chain_release(chain); }
static void nothing(void *arguments) { (void)arguments; }
static int submit(void *ended) { return oa_submit(ended, nothing, NULL, 0); }

typedef int (*function)(void *handle);
typedef struct subject {
  const char *name;
  void *(*make)(void);
  function end;
  function with[20]; /* functions that are called with an ended handle; NULL-terminated */
} subject;

#define ALL_OF_POINTERS                                                                      \
  {view,        query,    layout_of,      address,      export,   assign,    invalidate,     \
   fill,        copy_to,  copy_from,      read_to_host, stage,    call_with, call_with_list, \
   launch_with, use_with, assign_strided, read_strided, end_slice}
static const subject subjects[] = {
    {"region", new_region, end_region, {finish, wait_for, synchronize, stream_of, begin_chain}},
    {"slice", new_slice, end_slice, ALL_OF_POINTERS},
    {"scalar", new_scalar, end_slice, ALL_OF_POINTERS},
    {"export", new_export, end_export, {end_export}},
    {"update", new_writing, end_writing, {end_writing}},
    {"module", new_module, end_module, {kernel_of, find_variable, use_variable, end_module}},
    {"kernel", new_kernel, end_kernel, {kernel_info, launch}},
    {"chain", new_chain, end_chain, {end_capture, replay, chain_info, release_chain}},
    {"pinned memory", new_pinned, end_pinned, {end_pinned}},
    {"call", new_call, end_call, {end_call, submit}},
};

/* Ending a region, a slice or a module twice does not fail, because code that cleans up may do so. */
static int may_succeed(function tried) {
  return tried == finish || tried == wait_for || tried == end_slice || tried == end_module;
}

static void check_ended(const subject *it, int i, void *ended) {
  oa_fail_null("none", "yet");
  const int status = it->with[i](ended);
  if (status == OA_OK && may_succeed(it->with[i])) return;
  if (!CHECK(status != OA_OK && !strstr(oa_last_error(), "none: yet")))
    fprintf(stderr, "  %s, function %d\n", it->name, i);
}

static void every_function_with_what_has_ended(void) {
  for (const subject *it = subjects; it < subjects + sizeof subjects / sizeof *subjects; it++) {
    void *ended = it->make();
    CHECK_OK(it->end(ended));
    for (int i = 0; it->with[i]; i++) {
      check_ended(it, i, ended);
      check_ended(it, i, ended);
    }
    if (it->end == end_call || it->end == end_pinned) continue; /* the next handle may have the same address */
    void *next = it->make();                                    /* the new handle is in the slot of the ended handle */
    for (int i = 0; it->with[i]; i++) check_ended(it, i, ended);
    CHECK_OK(it->end(next)); /* the handle `next` was alive until now */
  }
}

/* -- functions that begin twice -- */

static void a_call_that_begins_twice_is_ended_once_and_its_region_is_left(void) {
  for (int lists = 0; lists < 2; lists++) {
    int (*const begin)(oa_call *) = lists ? oa_begin_lists : oa_begin;
    oa_region *region = new_region();
    oa_call *begun = new_call();
    CHECK_FAILS(begin(begun), OA_ERROR_ARGUMENT, "has begun already; end it by oa_end");
    CHECK_FAILS(begin(begun), OA_ERROR_ARGUMENT, "has begun already; end it by oa_end");
    CHECK_OK(oa_end(begun, 0));
    CHECK_OK(begin(begun)); /* a call that has ended may begin again */
    CHECK_OK(oa_end(begun, 0));
    CHECK_OK(end_region(region));
    begun->open = 1234567;
    CHECK_FAILS(begin(begun), OA_ERROR_ARGUMENT, "make it by oa_call_of");
  }
}

static void texts_name_the_right_thing(void) {
  oa_region *region = new_region();
  void *slice = new_slice();
  CHECK_OK(oa_pointer_release(slice));
  CHECK_FAILS(query(slice), OA_ERROR_STALE, "pointer was released");
  CHECK_FAILS(call_with(slice), OA_ERROR_STALE, "twice.with: x is a view that was released");
  void *within = new_slice();
  oa_operand x = {.name = "x", .pointer = within, .access = OA_READ, .dtype = OA_F32, .extent = OA_ELEMENTS(1)};
  oa_call call = oa_call_of("twice.within", NULL, &x, 1);
  CHECK_OK(oa_begin(&call));
  CHECK_OK(oa_pointer_release(within));
  CHECK_FAILS(query(within), OA_ERROR_STALE, "pointer was released");
  CHECK_OK(oa_end(&call, 0));
  CHECK_OK(end_region(region));
  oa_array lent = array;
  CHECK_OK(oa_region_enter(device, NULL, &lent, 1, &region));
  oa_any *slice_of_it = NULL;
  CHECK_OK(oa_pointer_view(lent.handle, 0, 1, (int64_t[]){3}, strides, &slice_of_it));
  CHECK_OK(end_region(region));
  CHECK_FAILS(query(slice_of_it), OA_ERROR_STALE, "belongs to a region that has ended");
  CHECK_FAILS(query(lent.handle), OA_ERROR_STALE, "belongs to a region that has ended");
  oa_call empty = {0};
  CHECK_FAILS(oa_end(&empty, 0), OA_ERROR_ARGUMENT, "oa_end without an oa_begin");
  CHECK(!strstr(oa_last_error(), "null"));
  CHECK_FAILS(oa_submit(&empty, nothing, NULL, 0), OA_ERROR_ARGUMENT, "oa_submit without an oa_begin");
  CHECK(!strstr(oa_last_error(), "null"));
  oa_fail_enum(NULL, NULL, 3, NULL);
  CHECK(!strstr(oa_last_error(), "null"));
  x = (oa_operand){.name = "x", .pointer = whole, .access = OA_READ, .dtype = OA_F32};
  x.extent = oa_strided(OA_ELEMENTS(2), 3, -2, "batch", "stridex");
  call = oa_call_of("twice.strided", NULL, &x, 1);
  CHECK_FAILS(oa_begin(&call), OA_ERROR_ARGUMENT, "stridex needs to be at least 0, got -2 (the stride from one x to");
}

static void options_that_mean_nothing_are_refused(void) {
  const int junk[] = {-1, 2, 7, 0x55555555};
  for (size_t i = 0; i < sizeof junk / sizeof *junk; i++) {
    oa_region *region;
    oa_array lent = array;
    oa_region_options options[] = {
        OA_SIZED(oa_region_options, .guard = junk[i]), OA_SIZED(oa_region_options, .has_stream = junk[i]),
        OA_SIZED(oa_region_options, .has_wait_stream = junk[i]), OA_SIZED(oa_region_options, .single_use = junk[i])};
    const char *const named[] = {"->guard needs 0 or 1,", "->has_stream needs 0 or 1,",
                                 "->has_wait_stream needs 0 or 1,", "->single_use needs 0 or 1,"};
    for (int j = 0; j < 4; j++)
      CHECK_FAILS(oa_region_enter(device, &options[j], &lent, 1, &region), OA_ERROR_ARGUMENT, named[j]);
    oa_launch launches[] = {OA_SIZED(oa_launch, .has_stream = junk[i]), OA_SIZED(oa_launch, .is_unsafe = junk[i]),
                            OA_SIZED(oa_launch, .cooperative = junk[i]), OA_SIZED(oa_launch, .waits = junk[i])};
    const float a = 2;
    const void *arguments[] = {whole, &a};
    oa_kernel *kernel = new_kernel();
    for (int j = 0; j < 4; j++) {
      launches[j].grid[0] = launches[j].grid[1] = launches[j].grid[2] = 1;
      launches[j].block[0] = launches[j].block[1] = launches[j].block[2] = 1;
      CHECK_FAILS(oa_kernel_launch(kernel, &launches[j], arguments, 2), OA_ERROR_ARGUMENT, "needs 0 or 1, got");
    }
    CHECK_OK(end_kernel(kernel));
  }
}

static void an_update_begun_twice_ends_twice(void) {
  void *first = new_writing(), *second = new_writing();
  CHECK_OK(oa_update_end(first));
  CHECK_FAILS(oa_update_end(first), OA_ERROR_STALE, "has ended already");
  CHECK_OK(oa_update_end(second));
  CHECK_OK(oa_update_end(NULL));
  const void *const wrong[] = {(void *)1,
                               (void *)-1,
                               host,
                               whole,
                               around,
                               (char *)second + 1,
                               (char *)whole - 1,
                               (char *)whole + ((uintptr_t)1 << 30)};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    const int status = oa_update_end((oa_writing *)wrong[i]);
    CHECK((status == OA_ERROR_NOT_HANDLE || status == OA_ERROR_STALE) && strstr(oa_last_error(), "oa_update_end: "));
  }
}

static void pinned_memory_is_freed_as_it_was_allocated(void) {
  void *memory = new_pinned();
  CHECK_FAILS(oa_pinned_free(device, memory, 4095), OA_ERROR_ARGUMENT, "oa_pinned_free: ");
  CHECK_FAILS(oa_pinned_free(device, (char *)memory + 64, 4096 - 64), OA_ERROR_ARGUMENT, "oa_pinned_free: ");
  CHECK_FAILS(oa_pinned_free(device, host, sizeof host), OA_ERROR_ARGUMENT, "oa_pinned_free: ");
  CHECK_OK(oa_pinned_free(device, memory, 4096));
  CHECK_FAILS(oa_pinned_free(device, memory, 4096), OA_ERROR_ARGUMENT, "are not freed yet");
}

static void a_version_has_room_in_whatever_size_is_said(void) {
  char text[64];
  CHECK_OK(oa_library_open("versioned", SAMPLE_KERNELS, NULL));
  const size_t sizes[] = {1, 2, 4, sizeof text, (size_t)1 << 31, (size_t)1 << 60, SIZE_MAX};
  const char *const expected[] = {"", "7", "7.4", "7.4", "7.4", "7.4", "7.4"};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    memset(text, '#', sizeof text);
    CHECK_OK(oa_library_version("versioned", text, sizes[i]));
    CHECK(strcmp(text, expected[i]) == 0);
    /* The function wrote no byte after the text. */
    for (size_t j = strlen(text) + 1; j < sizeof text; j++) CHECK(text[j] == '#');
  }
}

int main(void) {
  static const char *const names[] = {"host", "sim:0"};
  for (int i = 0; i < 2; i++) {
    CHECK_OK(oa_device_open(names[i], &device));
    oa_array lent = array;
    CHECK_OK(oa_region_enter(device, NULL, &lent, 1, &around));
    whole = lent.handle;
    every_function_with_what_has_ended();
    a_call_that_begins_twice_is_ended_once_and_its_region_is_left();
    an_update_begun_twice_ends_twice();
    texts_name_the_right_thing();
    options_that_mean_nothing_are_refused();
    pinned_memory_is_freed_as_it_was_allocated();
    CHECK_OK(end_region(around));
    oa_counters left = OA_SIZED(oa_counters);
    CHECK_OK(oa_device_get_counters(device, &left));
    CHECK(left.regions == 0 && left.mappings == 0 && left.allocations == left.frees);
  }
  a_version_has_room_in_whatever_size_is_said();
  return failures();
}
