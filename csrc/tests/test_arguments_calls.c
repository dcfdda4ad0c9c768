/* Wrong arguments of calls, modules and kernels. wrong_arguments.h describes these tests. */
#include "library/library.h"
#include "offload_args/chain.h"
#include "offload_args/launch.h"
#include "wrong_arguments.h"

const oa_library *const oa_libraries[] = {NULL};

/* -- calls -- */

static oa_operand operand(const void *pointer) {
  return (oa_operand){.name = "a", .pointer = pointer, .access = OA_READ, .dtype = OA_F32, .extent = OA_ELEMENTS(12)};
}

static void begin(void) {
  oa_operand o = operand(live);
  oa_call call = {.function = function, .operands = &o, .count = 1};
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(NULL));
  call.operands = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  call.operands = &o;
  const int counts[] = {0, -1, INT32_MIN};
  for (int i = 0; i < 3; i++) {
    call.count = counts[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  }
  call.count = 1;
  call.function = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  call.function = function;
  for (int i = 0; i < WRONG; i++) {
    o.pointer = wrong[i];
    REFUSES_POINTER(oa_begin(&call));
  }
  for (int i = 0; i < WRONG_DTYPES; i++) {
    o = operand(live), o.dtype = wrong_dtypes[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
    o = operand(live), o.access = wrong_dtypes[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
    o = operand(live), o.extent.kind = wrong_dtypes[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  }
  o = operand(live), o.access = 0;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  o = operand(live), o.name = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  for (int kind = OA_EXTENT_VECTOR; kind <= OA_EXTENT_PACKED; kind++) { /* the names are for messages only */
    o = operand(live), o.extent = (oa_extent){.kind = kind, .rows = 13, .columns = 13, .ld = 13};
    REFUSES(OA_ERROR_EXTENT, oa_begin(&call));
    o.extent.rows = -1;
    REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
    o.extent = (oa_extent){.kind = kind, .rows = INT64_MAX, .columns = INT64_MAX, .ld = INT64_MAX};
    REFUSES(OA_ERROR_OVERFLOW, oa_begin(&call));
  }
  o = (oa_operand){0};
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
  call = (oa_call){0};
  REFUSES(OA_ERROR_ARGUMENT, oa_begin(&call));
}

static void begin_lists(void) {
  const void *at[] = {live};
  oa_pointer_list list = {.at = at, .count = 1};
  oa_operand o = operand(live);
  oa_call call = {.function = function, .operands = &o, .count = 1};
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(NULL));
  call.operands = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
  call.operands = &o;
  const int counts[] = {0, -1, INT32_MIN};
  for (int i = 0; i < 3; i++) {
    call.count = counts[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
  }
  call.count = 1;
  call.function = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
  call.function = function;
  o.extent = oa_listed(o.extent, 1, "count");
  o.pointer = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
  o.pointer = &list;
  for (int i = 0; i < WRONG; i++) {
    at[0] = wrong[i];
    REFUSES_POINTER(oa_begin_lists(&call));
    list = (oa_pointer_list){.first = wrong[i], .count = 1};
    if (wrong[i]) REFUSES_POINTER(oa_begin_lists(&call));
    list = (oa_pointer_list){.at = at, .count = 1};
  }
  at[0] = live;
  const int64_t batches[] = {0, 2, -1, INT64_MIN, INT64_MAX};
  for (int i = 0; i < 5; i++) {
    o.extent.batch = batches[i];
    REFUSES(i < 4 ? OA_ERROR_ARGUMENT : OA_ERROR_OVERFLOW, oa_begin_lists(&call));
  }
  list = (oa_pointer_list){.first = live, .stride = INT64_MIN, .count = -1};
  o.extent.batch = 3;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
  list.stride = INT64_MAX;
  REFUSES(OA_ERROR_OVERFLOW, oa_begin_lists(&call));
  o.name = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
  call = (oa_call){0};
  REFUSES(OA_ERROR_ARGUMENT, oa_begin_lists(&call));
}

static void end(void) {
  oa_operand o = operand(live);
  oa_call call = {.function = function, .operands = &o, .count = 1};
  REFUSES(OA_ERROR_ARGUMENT, oa_end(NULL, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_end(&call, 0)); /* the call has not begun */
  CHECK_OK(oa_begin(&call));
  CHECK_OK(oa_end(&call, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_end(&call, 0)); /* the call has ended */
  call = (oa_call){0};
  CHECK(oa_end(&call, 0) == OA_ERROR_ARGUMENT);
}

static void nothing(void *arguments) { (void)arguments; }

static void submit(void) {
  char argument = 0;
  oa_operand o = operand(live);
  oa_call call = {.function = function, .operands = &o, .count = 1};
  REFUSES(OA_ERROR_ARGUMENT, oa_submit(NULL, nothing, &argument, 1));
  REFUSES(OA_ERROR_ARGUMENT, oa_submit(&call, nothing, &argument, 1)); /* the call has not begun */
  CHECK_OK(oa_begin(&call));
  REFUSES(OA_ERROR_ARGUMENT, oa_submit(&call, NULL, &argument, 1));
  REFUSES(OA_ERROR_ARGUMENT,
          oa_submit(&call, nothing, &argument, 1)); /* a refusal ends the call, so that leaving does not hang */
  CHECK_OK(oa_begin(&call));
  REFUSES(OA_ERROR_ARGUMENT, oa_submit(&call, nothing, NULL, 1));
  CHECK_OK(oa_begin(&call));
  REFUSES(OA_ERROR_ARGUMENT, oa_submit(&call, nothing, &argument, SIZE_MAX));
  CHECK_OK(oa_begin(&call));
  CHECK_OK(oa_submit(&call, nothing, NULL, 0));
}

static int nothing_here(void *arguments) {
  (void)arguments;
  return OA_OK;
}

static void count_end(void *count) { ++*(int *)count; }

static void submit_here(void) {
  char argument = 0;
  int ends = 0;
  oa_operand o = operand(live);
  oa_call call = {.function = function, .operands = &o, .count = 1};
  REFUSES(OA_ERROR_ARGUMENT, oa_submit_here(NULL, nothing_here, &argument, 1, &ends, count_end));
  REFUSES(OA_ERROR_ARGUMENT, oa_submit_here(&call, nothing_here, &argument, 1, &ends, count_end));
  CHECK_OK(oa_begin(&call));
  REFUSES(OA_ERROR_ARGUMENT, oa_submit_here(&call, NULL, &argument, 1, &ends, count_end));
  CHECK_OK(oa_begin(&call));
  REFUSES(OA_ERROR_ARGUMENT, oa_submit_here(&call, nothing_here, NULL, 1, &ends, count_end));
  CHECK_OK(oa_begin(&call));
  REFUSES(OA_ERROR_ARGUMENT, oa_submit_here(&call, nothing_here, &argument, SIZE_MAX, &ends, count_end));
  CHECK(ends == 5); /* a refusal ends the hold of the object, too */
  CHECK_OK(oa_begin(&call));
  CHECK_OK(oa_submit_here(&call, nothing_here, NULL, 0, NULL, NULL));
}

/* -- modules and kernels -- */

static oa_module *module_of(const char *path) {
  static unsigned char image[1 << 20];
  oa_module *module = NULL;
  FILE *file = fopen(path, "rb");
  const size_t nbytes = CHECK(file) ? fread(image, 1, sizeof image, file) : 0;
  if (file) fclose(file);
  CHECK_OK(oa_module_load(device, "sample", image, nbytes, &module));
  return module;
}

static const oa_parameter parameters[] = {{"x", OA_READ_WRITE, OA_F32, 8, 0}, {"a", 0, OA_F32, 4, 8}};

static oa_kernel *kernel_of(oa_module *module) {
  oa_kernel *kernel = NULL;
  CHECK_OK(oa_kernel_get(module, "scale", parameters, 2, &kernel));
  return kernel;
}

static void modules(void) {
  oa_module *module;
  const char text[] = "no module";
  for (size_t i = 0; i < WRONG_DEVICES; i++)
    REFUSES(OA_ERROR_ARGUMENT, oa_module_load(wrong_devices[i], "m", text, sizeof text, &module));
  REFUSES(OA_ERROR_ARGUMENT, oa_module_load(device, NULL, text, sizeof text, &module));
  REFUSES(OA_ERROR_ARGUMENT, oa_module_load(device, "m", NULL, sizeof text, &module));
  REFUSES(OA_ERROR_ARGUMENT, oa_module_load(device, "m", text, sizeof text, NULL));
  CHECK_FAILS(oa_module_load(device, "m", text, sizeof text, &module), OA_ERROR_MODULE, "m: ");
  CHECK_FAILS(oa_module_load(device, "m", text, 0, &module), OA_ERROR_MODULE, "m: ");
}

static void module_unload(void) {
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_module_unload((oa_module *)wrong[i]));
  oa_module *module = module_of(sample_kernels(device));
  oa_kernel *kernel = kernel_of(module);
  REFUSES(OA_ERROR_NOT_HANDLE, oa_module_unload((oa_module *)kernel));
  CHECK_OK(oa_module_unload(module));
  REFUSES(OA_ERROR_STALE, oa_module_unload(module));
}

static void find_variable(void) {
  oa_module *module = module_of(sample_kernels(device));
  uint64_t address;
  size_t nbytes;
  for (int i = 0; i < WRONG; i++)
    REFUSES_POINTER(oa_module_find_variable((oa_module *)wrong[i], "x", &address, &nbytes));
  REFUSES(OA_ERROR_ARGUMENT, oa_module_find_variable(module, NULL, &address, &nbytes));
  REFUSES(OA_ERROR_ARGUMENT, oa_module_find_variable(module, "x", NULL, &nbytes));
  REFUSES(OA_ERROR_ARGUMENT, oa_module_find_variable(module, "x", &address, NULL));
  CHECK_FAILS(oa_module_find_variable(module, "none", &address, &nbytes), OA_ERROR_MODULE, "none: the module has no ");
  CHECK_OK(oa_module_unload(module));
  REFUSES(OA_ERROR_STALE, oa_module_find_variable(module, "x", &address, &nbytes));
}

static int ignore_object(void *context, size_t at, size_t nbytes, const char *target) {
  (void)context, (void)at, (void)nbytes, (void)target;
  return 0;
}

static int ignore_kernel(void *context, const char *name, int64_t shared_bytes, int64_t registers, int64_t threads) {
  (void)context, (void)name, (void)shared_bytes, (void)registers, (void)threads;
  return 0;
}

static int ignore_parameter(void *context, int64_t offset, int64_t nbytes, int kind) {
  (void)context, (void)offset, (void)nbytes, (void)kind;
  return 0;
}

static void facts(void) {
  const oa_hsaco_visitor good = {NULL, ignore_object, ignore_kernel, ignore_parameter};
  const oa_hsaco_visitor bad[] = {{.kernel = ignore_kernel, .parameter = ignore_parameter},
                                  {.object = ignore_object, .parameter = ignore_parameter},
                                  {.object = ignore_object, .kernel = ignore_kernel}};
  static const char *const images[] = {"", "x", "\x7f\105LF", "__CLANG_OFFLOAD_BUNDLE__"};
  REFUSES(OA_ERROR_ARGUMENT, oa_hsaco_read(NULL, "x", 1, &good));
  REFUSES(OA_ERROR_ARGUMENT, oa_hsaco_read("x", NULL, 1, &good));
  REFUSES(OA_ERROR_ARGUMENT, oa_hsaco_read("x", "x", 1, NULL));
  for (int i = 0; i < 3; i++) REFUSES(OA_ERROR_ARGUMENT, oa_hsaco_read("x", "x", 1, &bad[i]));
  for (int i = 0; i < 4; i++)
    CHECK_FAILS(oa_hsaco_read("file.hsaco", images[i], strlen(images[i]), &good), OA_ERROR_MODULE, "file.hsaco: ");
}

static void chain_begin(void) {
  oa_chain *chain = NULL;
  const void *none[] = {NULL, (void *)1, (void *)-1, host, live};
  for (int i = 0; i < 5; i++) REFUSES(OA_ERROR_NOT_HANDLE, oa_chain_begin((oa_region *)none[i], &chain));
  REFUSES(OA_ERROR_STALE, oa_chain_begin(ended, &chain));
  REFUSES(OA_ERROR_ARGUMENT, oa_chain_begin(region, NULL));
  CHECK(chain == NULL);
}

static void chains(void) {
  oa_chain_info info = OA_SIZED(oa_chain_info);
  oa_chain_use use = OA_SIZED(oa_chain_use);
  int64_t count;
  int ended_now;
  for (int i = 0; i < WRONG; i++) {
    oa_chain *none = (oa_chain *)wrong[i];
    function = "oa_chain_end";
    REFUSES_POINTER(oa_chain_end(none));
    function = "oa_chain_replay";
    REFUSES_POINTER(oa_chain_replay(none));
    function = "oa_chain_get_info";
    REFUSES_POINTER(oa_chain_get_info(none, &info));
    function = "oa_chain_get_use";
    REFUSES_POINTER(oa_chain_get_use(none, 0, 0, &use));
    function = "oa_chain_loop";
    REFUSES_POINTER(oa_chain_loop(none, live, 1, &count, &ended_now));
    function = "oa_chain_release";
    if (none) REFUSES_POINTER(oa_chain_release(none));
  }
  CHECK_OK(oa_chain_release(NULL));
  oa_chain *chain = NULL;
  CHECK_OK(oa_chain_begin(region, &chain));
  CHECK_OK(oa_chain_end(chain));
  function = "oa_chain_loop";
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_chain_loop(chain, wrong[i], 1, &count, &ended_now));
  REFUSES(OA_ERROR_ARGUMENT, oa_chain_loop(chain, live, 1, NULL, &ended_now));
  REFUSES(OA_ERROR_ARGUMENT, oa_chain_loop(chain, live, 1, &count, NULL));
  function = "oa_chain_get_use";
  REFUSES(OA_ERROR_ARGUMENT, oa_chain_get_use(chain, 0, 0, &use));
  REFUSES(OA_ERROR_ARGUMENT, oa_chain_get_use(chain, 0, 0, NULL));
  function = "oa_chain_get_info";
  REFUSES(OA_ERROR_ARGUMENT, oa_chain_get_info(chain, NULL));
  REFUSES_SIZES(info, oa_chain_get_info(chain, &info));
  CHECK_OK(oa_chain_release(chain));
}

static void use_variable(void) {
  oa_module *module = module_of(sample_kernels(device));
  for (int i = 0; i < WRONG; i++) {
    REFUSES_POINTER(oa_module_use_variable((oa_module *)wrong[i], live));
    REFUSES_POINTER(oa_module_use_variable(module, wrong[i]));
  }
  CHECK_OK(oa_module_use_variable(module, live));
  CHECK_OK(oa_module_unload(module));
  REFUSES(OA_ERROR_STALE, oa_module_use_variable(module, live));
}

static void kernel_get(void) {
  oa_module *module = module_of(sample_kernels(device));
  oa_kernel *kernel;
  const oa_parameter wrongs[] = {
      {NULL, OA_READ, OA_F32, 8, 0}, {"x", 8, OA_F32, 8, 0},   {"x", OA_READ, -1, 8, 0}, {"x", OA_READ, 99, 8, 0},
      {"x", OA_READ, 1, 4, 0},       {"x", 0, 0, 0, 0},        {"x", 0, 0, -1, 0},       {"x", 0, 0, 4, -1},
      {"x", 0, 0, INT32_MAX, 0},     {"x", 0, 0, 4, INT32_MAX}};
  for (int i = 0; i < WRONG; i++)
    REFUSES_POINTER(oa_kernel_get((oa_module *)wrong[i], "scale", parameters, 2, &kernel));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, NULL, parameters, 2, &kernel));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, "scale", NULL, 2, &kernel));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, "scale", parameters, 2, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, "scale", parameters, 0, &kernel));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, "scale", parameters, -1, &kernel));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, "scale", parameters, INT32_MAX, &kernel));
  for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++)
    REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get(module, "scale", &wrongs[i], 1, &kernel));
  CHECK_FAILS(oa_kernel_get(module, "no such", parameters, 2, &kernel), OA_ERROR_MODULE, "no such: ");
  CHECK_FAILS(oa_kernel_get(module, "scale", parameters, 1, &kernel), OA_ERROR_SIGNATURE, "scale: ");
  CHECK_FAILS(oa_kernel_get(module, "scale", parameters + 1, 1, &kernel), OA_ERROR_SIGNATURE, "scale: ");
  CHECK_OK(oa_module_unload(module));
  REFUSES(OA_ERROR_STALE, oa_kernel_get(module, "scale", parameters, 2, &kernel));
}

static void kernel_info(void) {
  oa_module *module = module_of(sample_kernels(device));
  oa_kernel *kernel = kernel_of(module);
  oa_kernel_info info = OA_SIZED(oa_kernel_info);
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_kernel_get_info((oa_kernel *)wrong[i], &info));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_get_info(kernel, NULL));
  REFUSES_SIZES(info, oa_kernel_get_info(kernel, &info));
  CHECK_OK(oa_kernel_get_info(kernel, &info));
  CHECK(info.most_threads >= info.good_threads && info.good_threads > 0);
  CHECK_OK(oa_module_unload(module));
  REFUSES(OA_ERROR_STALE, oa_kernel_get_info(kernel, &info));
}

static void kernel_launch(void) {
  oa_module *module = module_of(sample_kernels(device));
  oa_kernel *kernel = kernel_of(module);
  const float a = 2;
  const void *arguments[] = {live, &a};
  oa_launch launch = OA_SIZED(oa_launch, .grid = {1, 1, 1}, .block = {12, 1, 1});
  for (int i = 0; i < WRONG; i++) REFUSES_POINTER(oa_kernel_launch((oa_kernel *)wrong[i], &launch, arguments, 2));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, NULL, arguments, 2));
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &launch, NULL, 2));
  REFUSES_SIZES(launch, oa_kernel_launch(kernel, &launch, arguments, 2));
  function = "scale"; /* from here on texts begin with the kernel's name */
  const int wrong_counts[] = {-1, 0, 1, 3, INT32_MAX};
  for (size_t i = 0; i < sizeof wrong_counts / sizeof *wrong_counts; i++)
    REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &launch, arguments, wrong_counts[i]));
  for (int i = 0; i < WRONG; i++) {
    arguments[0] = wrong[i];
    REFUSES_POINTER(oa_kernel_launch(kernel, &launch, arguments, 2));
  }
  arguments[0] = live;
  arguments[1] = NULL;
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &launch, arguments, 2));
  arguments[1] = &a;
  for (int axis = 0; axis < 3; axis++)
    for (int which = 0; which < 2; which++) {
      oa_launch other = launch;
      (which ? other.grid : other.block)[axis] = 0;
      REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &other, arguments, 2));
      (which ? other.grid : other.block)[axis] = UINT32_MAX;
      REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &other, arguments, 2));
    }
  const int64_t wrong_bytes[] = {-1, INT64_MIN, INT64_MAX, 1 << 24};
  for (size_t i = 0; i < sizeof wrong_bytes / sizeof *wrong_bytes; i++) {
    oa_launch other = launch;
    other.shared_bytes = wrong_bytes[i];
    REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &other, arguments, 2));
  }
  oa_launch other = launch;
  other.cooperative = 1;
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &other, arguments, 2));
  other.cooperative = 0;
  other.cluster[1] = 1;
  REFUSES(OA_ERROR_ARGUMENT, oa_kernel_launch(kernel, &other, arguments, 2));
  CHECK_OK(oa_kernel_launch(kernel, &launch, arguments, 2));
  CHECK_OK(oa_module_unload(module));
  function = "oa_kernel_launch";
  REFUSES(OA_ERROR_STALE, oa_kernel_launch(kernel, &launch, arguments, 2));
}

/* -- all of them -- */

static const struct wrong_test tests[] = {
    {"oa_begin", begin},
    {"oa_begin_lists", begin_lists},
    {"oa_end", end},
    {"oa_submit", submit},
    {"oa_submit_here", submit_here},
    {"oa_module_load", modules},
    {"oa_module_unload", module_unload},
    {"oa_module_find_variable", find_variable},
    {"oa_module_use_variable", use_variable},
    {"oa_chain_begin", chain_begin},
    {"oa_chain_end", chains},
    {"oa_chain_replay", chains},
    {"oa_chain_get_info", chains},
    {"oa_chain_get_use", chains},
    {"oa_chain_loop", chains},
    {"oa_chain_release", chains},
    {"oa_hsaco_read", facts},
    {"oa_kernel_get", kernel_get},
    {"oa_kernel_get_info", kernel_info},
    {"oa_kernel_launch", kernel_launch},
};

int main(int count, char **arguments) { return run_tests(tests, sizeof tests / sizeof *tests, count, arguments); }
