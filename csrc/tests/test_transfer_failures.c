/* The transfer engine when calls fail, on sim, and with limits and settings from the environment, each in a process of
 * its own. */
#include "library/library.h"
#include "transfers.h"

#include <sys/wait.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

/* -- failures ----------------------------------------------------------------------------------------------------- */

enum { FAILING = 4 };

static void failing_arrays(struct array *a) {
  a[0] = array_of((oa_lines){0, 100, 100, 1}, false, "small");
  a[1] = array_of((oa_lines){0, 30000, 30000, 1}, false, "large");
  a[2] = array_of((oa_lines){0, 3000, 3004, 8}, false, "lines");
  a[3] = array_of((oa_lines){0, 3000, 3004, 8}, true, "packed");
}

/* Makes a transfer that fails. If `fail` is k, the k-th call fails; -k: the device is lost in the k-th call. Returns
 * whether call k was reached. */
static bool fail_once(void *stream, struct array *a, int64_t fail, bool down) {
  oa_move moves[FAILING];
  for (int i = 0; i < FAILING; i++) {
    CHECK_OK(oa_device_allocate(device, stream, a[i].device_bytes, &a[i].address));
    set(&a[i], i);
    moves[i] = move_of(&a[i], a[i].address);
  }
  int status = OA_OK;
  const int64_t k = fail < 0 ? -fail : fail;
  int64_t before;
  if (!down) {
    CHECK_OK(oa_sim_configure(number, 0, fail, 0));
    before = oa_sim_backend_calls(number);
    status = oa_transfer_up(device, stream, moves, FAILING);
    for (int i = 0; i < FAILING; i++) CHECK(holds(&a[i], i));
  } else {
    CHECK_OK(oa_transfer_up(device, stream, moves, FAILING));
    for (int i = 0; i < FAILING; i++) {
      set(&a[i], 100 + i);
      moves[i] = move_of(&a[i], a[i].address);
    }
    CHECK_OK(oa_sim_configure(number, 0, fail, 0));
    before = oa_sim_backend_calls(number);
    status = oa_transfer_down(device, stream, moves, FAILING);
    if (!status) {
      status = device->backend->stream_synchronize(device, stream);
      for (int i = 0; i < FAILING; i++) CHECK(holds(&a[i], 100 + i));
      if (status)
        oa_transfer_cancel(device, moves, FAILING, false);
      else
        status = oa_transfer_settle(device, stream, moves, FAILING);
    }
  }
  char text[1024];
  snprintf(text, sizeof text, "%s", oa_last_error());
  atomic_store(&device->lost, 0);
  const bool reached = oa_sim_backend_calls(number) - before >= k;
  CHECK_OK(oa_sim_configure(number, 0, 0, 0));
  CHECK_OK(device->backend->stream_synchronize(device, stream));
  if (!reached) CHECK(status == OA_OK);
  if (down) {
    int old = 0, new = 0, torn = 0;
    for (int i = 0; i < FAILING; i++) {
      const int is_new = holds(&a[i], i), is_old = holds(&a[i], 100 + i);
      new += is_new;
      old += is_old;
      torn += !is_new && !is_old;
      if (status == OA_ERROR_TORN) CHECK(strstr(text, a[i].move.name));
    }
    if (status == OA_OK) CHECK(new == FAILING);
    if (status == OA_ERROR_TORN) CHECK(fail < 0); /* after a single failure there is a fallback */
    if (status && status != OA_ERROR_TORN) CHECK(old == FAILING);
    if (torn) CHECK(strstr(text, "torn"));
  } else if (status == OA_OK) { /* a fallback succeeded: all bytes are on the device */
    for (int i = 0; i < FAILING; i++) {
      set(&a[i], 50);
      moves[i] = move_of(&a[i], a[i].address);
    }
    CHECK_OK(oa_transfer_down(device, stream, moves, FAILING));
    CHECK_OK(device->backend->stream_synchronize(device, stream));
    CHECK_OK(oa_transfer_settle(device, stream, moves, FAILING));
    for (int i = 0; i < FAILING; i++) CHECK(holds(&a[i], i));
  }
  for (int i = 0; i < FAILING; i++) CHECK_OK(oa_device_free(device, stream, a[i].address, a[i].device_bytes));
  CHECK_OK(device->backend->stream_synchronize(device, stream));
  return reached;
}

/* Promise T01. */
static void every_failing_call_leaves_arrays_whole(void *stream) {
  struct array a[FAILING];
  failing_arrays(a);
  for (int down = 0; down < 2; down++)
    for (int lost = 0; lost < 2; lost++) {
      int k = 1, missed = 0;
      for (; missed < 3 && k < 400; k++) missed = fail_once(stream, a, lost ? -k : k, down) ? 0 : missed + 1;
      CHECK(k < 400);
    }
  for (int i = 0; i < FAILING; i++) free(a[i].buffer);
}

/* -- settings, each in a process of its own ----------------------------------------------------------------------- */

/* Promise T34. */
static void without_pinned_memory(void) {
  open_device("sim:0");
  tune(512, 4096);
  void *stream = new_stream(), *memory;
  CHECK_OK(oa_set_threads(3));
  every_size_around_the_seams(stream);
  lines_and_packed_arrays(stream);
  batches_of_everything(stream);
  const char *warning = oa_take_warning();
  CHECK(warning && strstr(warning, "pinned") && strstr(warning, "OFFLOAD_ARGS_PINNED_LIMIT"));
  CHECK(oa_take_warning() == NULL);
  batches_of_everything(stream);
  CHECK(oa_take_warning() == NULL);
  CHECK_FAILS(oa_pinned_allocate(number, 10, &memory), OA_ERROR_MEMORY, "limit 0");
  CHECK_OK(oa_sim_configure(number, 0, 0, 0));
}

/* More threads than blocks, and batches that are cancelled: no thread waits for a block that is never returned. */
static void with_few_blocks(void) {
  open_device("sim:0");
  tune(64, 4096);
  CHECK_OK(oa_set_threads(16));
  void *stream = new_stream();
  const int64_t n = 4096 * 100;
  uint64_t address;
  char *x = calloc(1, (size_t)n);
  CHECK_OK(oa_device_allocate(device, stream, (size_t)n, &address));
  alarm(600);
  for (int round = 0; round < 400; round++) {
    oa_move move = {.host = x, .address = address, .lines = {0, n, n, 1}, .name = "x"};
    const int k = 1 + round * 7 % 60, delay = round % 3 ? 0 : 20;
    if (round % 2) CHECK_OK(oa_transfer_down(device, stream, &move, 1));
    CHECK_OK(oa_sim_configure(number, 0, round % 4 < 2 ? k : -k, delay));
    if (round % 2)
      oa_transfer_settle(device, stream, &move, 1);
    else
      oa_transfer_up(device, stream, &move, 1);
    atomic_store(&device->lost, 0);
    CHECK_OK(oa_sim_configure(number, 0, 0, 0));
    CHECK_OK(device->backend->stream_synchronize(device, stream));
  }
  free(x);
}

static void with_a_memory_limit(void) {
  open_device("sim:0");
  static unsigned char x[1 << 20], y[1 << 20];
  const int64_t n = 600000;
  oa_array arrays[] = {bytes_of(x, &n, OA_INOUT), bytes_of(y, &n, OA_INOUT)};
  oa_region *region;
  CHECK_FAILS(oa_region_enter(number, NULL, arrays, 2, &region), OA_ERROR_MEMORY, "limit 1.00 MiB (");
  CHECK(strstr(oa_last_error(), "600000 bytes requested") && strstr(oa_last_error(), "600000 bytes used"));
  CHECK(strstr(oa_last_error(), "448576 bytes free of 1.00 MiB"));
  for (int i = 0; i < 5; i++) {
    CHECK_OK(oa_region_enter(number, NULL, arrays, 1, &region));
    CHECK_OK(add(arrays[0].handle, n, 1));
    CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
    CHECK_OK(oa_region_wait(region));
  }
  CHECK(x[n - 1] == 5);
  CHECK(device->counts.memory_used == 0 && device->counts.memory_peak == 600000);
  const int64_t more = 700000; /* idle memory of the last region is freed */
  arrays[0] = bytes_of(x, &more, OA_INOUT);
  CHECK_OK(oa_region_enter(number, NULL, arrays, 1, &region));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
}

static void with_nonsense(const char *variable) {
  CHECK_FAILS(oa_device_open("host", &number), OA_ERROR_ARGUMENT, variable);
  CHECK_FAILS(oa_device_open("sim:0", &number), OA_ERROR_ARGUMENT, variable);
}

/* Runs this program again with one variable set. */
static void again(const char *program, const char *variable, const char *value, const char *case_name) {
  const pid_t child = fork();
  if (child == 0) {
    setenv(variable, value, 1);
    execl(program, program, case_name, variable, (char *)NULL);
    _exit(127);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void settings(const char *program) {
  again(program, "OFFLOAD_ARGS_PINNED_LIMIT", "0", "unpinned");
  again(program, "OFFLOAD_ARGS_PINNED_LIMIT", "4MiB", "few");
  again(program, "OFFLOAD_ARGS_PINNED_LIMIT", "8MiB", "few");
  again(program, "OFFLOAD_ARGS_MEMORY_LIMIT", "1MiB", "limit");
  const char *const nonsense[][2] = {{"OFFLOAD_ARGS_MEMORY_LIMIT", "plenty"}, {"OFFLOAD_ARGS_MEMORY_LIMIT", "-1"},
                                     {"OFFLOAD_ARGS_MEMORY_LIMIT", "101%"},   {"OFFLOAD_ARGS_MEMORY_LIMIT", "1 QB"},
                                     {"OFFLOAD_ARGS_PINNED_LIMIT", "inf"},    {"OFFLOAD_ARGS_MEMORY_LIMIT", "1e3"},
                                     {"OFFLOAD_ARGS_THREADS", "many"},        {"OFFLOAD_ARGS_THREADS", "0"}};
  for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++)
    again(program, nonsense[i][0], nonsense[i][1], "nonsense");
}

int main(int argc, char **argv) {
  if (argc == 3) {
    if (strcmp(argv[1], "unpinned") == 0) without_pinned_memory();
    if (strcmp(argv[1], "few") == 0) with_few_blocks();
    if (strcmp(argv[1], "limit") == 0) with_a_memory_limit();
    if (strcmp(argv[1], "nonsense") == 0) with_nonsense(argv[2]);
    return failures();
  }
  settings(argv[0]);
  if (on_doubles()) return failures();
  for (int threads = 1; threads <= 4; threads += 3) {
    CHECK_OK(oa_set_threads(threads));
    tune(512, 4096);
    CHECK_OK(oa_device_open("sim:1", &number));
    CHECK_OK(oa_sim_configure(number, 0, 0, 20));
    open_device("sim:0");
    every_failing_call_leaves_arrays_whole(new_stream());
  }
  return failures();
}
