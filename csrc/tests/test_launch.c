/* Launches of a program in C: every block runs once, in order with other calls; what is packed is what arrives. */
#include "offload_args/launch.h"
#include "one_device.h"

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

int main(void) {
  static const char *const names[] = {"host", "sim:0"};
  for (int i = on_doubles(); i < 2; i++) {
    CHECK_OK(oa_device_open(names[i], &device));
    load();
    a_launch_runs_in_order_with_other_calls();
    every_block_runs_once_with_shared_memory_of_its_own();
    a_module_can_be_loaded_many_times();
    CHECK_OK(oa_module_unload(module));
    check_empty();
  }
  return failures();
}
