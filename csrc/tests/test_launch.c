/* Launches of a program in C: every block runs once, in order with other calls; packed arguments arrive unchanged. */
#include "kernel/module.h"
#include "offload_args/launch.h"
#include "one_device.h"
#include "region/caller.h"

#include <pthread.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

static oa_module *module;

static void load(void) {
  static unsigned char image[1 << 20];
  FILE *file = fopen(sample_kernels(device), "rb");
  const size_t nbytes = CHECK(file) ? fread(image, 1, sizeof image, file) : 0;
  if (file) fclose(file);
  CHECK_OK(oa_module_load(device, "sample", image, nbytes, &module));
}

static void a_launch_runs_in_order_with_other_calls(void) {
  static const oa_parameter parameters[] = {{"x", OA_READ_WRITE, OA_F32, 8, 0}, {"a", 0, OA_F32, 4, 8}};
  float x[] = {1, 2, 3, 4, 5}, y[] = {10, 20, 30, 40, 50};
  int64_t n = 5;
  const float two = 2;
  oa_kernel *scale;
  oa_region *region;
  CHECK_OK(oa_kernel_get(module, "scale", parameters, 2, &scale));
  oa_array arrays[] = {vector(x, &n, OA_BY_USE), vector(y, &n, OA_BY_USE)};
  CHECK_OK(oa_region_enter(device, NULL, arrays, 2, &region));
  const void *of_x[] = {arrays[0].handle, &two}, *of_y[] = {arrays[1].handle, &two};
  const oa_launch launch = OA_SIZED(oa_launch, .grid = {5, 1, 1}, .block = {1, 1, 1});
  CHECK_OK(oa_kernel_launch(scale, &launch, of_x, 2));
  CHECK_OK(axpy(1, arrays[0].handle, 1, arrays[1].handle, 1, n, 0));
  CHECK_OK(oa_kernel_launch(scale, &launch, of_y, 2));
  leave(region);
  for (int i = 0; i < 5; i++) CHECK(x[i] == (float)(2 * (i + 1)) && y[i] == (float)(2 * (10 * (i + 1) + 2 * (i + 1))));
}

/* A grid large enough that several threads share it, over all axes. */
static void every_block_runs_once_with_shared_memory_of_its_own(void) {
  enum { BLOCKS = 7 * 3 * 50, SHARED = 5000 };
  static const oa_parameter parameters[] = {{"values", OA_OVERWRITE, OA_I64, 8, 0}};
  static int64_t values[BLOCKS * 3];
  const int64_t shape[] = {BLOCKS * 3}, strides[] = {8};
  oa_kernel *blocks;
  oa_region *region;
  CHECK_OK(oa_kernel_get(module, "blocks", parameters, 1, &blocks));
  oa_array array = {.data = values, .shape = shape, .strides = strides, .ndim = 1, .dtype = OA_I64};
  CHECK_OK(oa_region_enter(device, NULL, &array, 1, &region));
  const void *arguments[] = {array.handle};
  CHECK_OK(oa_kernel_launch(
      blocks, &OA_SIZED(oa_launch, .grid = {7, 3, 50}, .block = {16, 4, 2}, .shared_bytes = SHARED), arguments, 1));
  leave(region);
  int right = 0;
  for (int i = 0; i < BLOCKS; i++)
    right += values[3 * i] == i && values[3 * i + 1] == 128 && values[3 * i + 2] == SHARED;
  CHECK(right == BLOCKS);
}

static void a_module_can_be_loaded_many_times(void) {
  oa_module *first = module;
  for (int i = 0; i < 20; i++) {
    load();
    CHECK_OK(oa_module_unload(module));
  }
  module = first;
}

/* -- unloading beside a launch that waits -- */

static float shared[4];
static oa_array lent;
static oa_kernel *scaling;

static void *run_update(void *unused) {
  (void)unused;
  CHECK_OK(oa_update_from(&lent, -1));
  return NULL;
}

static void *run_launch(void *unused) {
  (void)unused;
  const float two = 2;
  const void *arguments[] = {lent.handle, &two};
  const oa_launch launch = OA_SIZED(oa_launch, .grid = {4, 1, 1}, .block = {1, 1, 1});
  CHECK_OK(oa_kernel_launch(scaling, &launch, arguments, 2));
  return NULL;
}

/* Returns whether an update has seized a mapping; is_launch: whether a launch of the module waits. */
static bool waits(bool is_launch) {
  bool named = false;
  int status;
  oa_lock();
  if (is_launch)
    named = atomic_load(&((oa_module_state *)oa_slot_of(module, OA_SLOT_MODULE, &status)->state)->launches);
  for (const oa_mapping *m = oa_mappings; m && !is_launch; m = m->next) named |= m->seizer != NULL;
  oa_unlock();
  return named;
}

/* An update waits for this thread's call, and a launch waits for the update. */
static void a_thread_unloads_no_module_whose_launch_waits_for_its_call(void) {
  enum { LIMIT = 300 }; /* seconds; then an alarm ends the process */
  static const oa_parameter parameters[] = {{"x", OA_READ_WRITE, OA_F32, 8, 0}, {"a", 0, OA_F32, 4, 8}};
  int64_t n = 4;
  oa_region *region;
  pthread_t threads[2];
  for (int i = 0; i < 4; i++) shared[i] = 1;
  lent = vector(shared, &n, OA_BY_USE);
  CHECK_OK(oa_kernel_get(module, "scale", parameters, 2, &scaling));
  CHECK_OK(oa_region_enter(device, NULL, &lent, 1, &region));
  oa_operand p = {
      .name = "x", .pointer = lent.handle, .access = OA_READ, .dtype = OA_F32, .extent = OA_VECTOR(n, 1, "n", "inc")};
  oa_call call = {.function = "test.open", .operands = &p, .count = 1};
  alarm(LIMIT);
  CHECK_OK(oa_begin(&call));
  CHECK(!pthread_create(&threads[0], NULL, run_update, NULL));
  while (!waits(false)) usleep(100);
  CHECK(!pthread_create(&threads[1], NULL, run_launch, NULL));
  while (!waits(true)) usleep(100);
  CHECK_FAILS(oa_module_unload(module), OA_ERROR_ARGUMENT, "oa_module_unload: a call of this thread is still open");
  CHECK_OK(oa_end(&call, 0));
  for (int i = 0; i < 2; i++) CHECK(!pthread_join(threads[i], NULL));
  alarm(0);
  leave(region);
  CHECK(shared[3] == 2);
}

int main(void) {
  static const char *const names[] = {"host", "sim:0"};
  for (int i = on_doubles(); i < 2; i++) {
    CHECK_OK(oa_device_open(names[i], &device));
    load();
    a_launch_runs_in_order_with_other_calls();
    every_block_runs_once_with_shared_memory_of_its_own();
    a_module_can_be_loaded_many_times();
    a_thread_unloads_no_module_whose_launch_waits_for_its_call();
    CHECK_OK(oa_module_unload(module));
    check_empty();
  }
  return failures();
}
