/* Residency: device memory that outlives its regions, on host and sim. If the kernel lets no pages be watched, the
 * tests that need watched pages are left out. */
#define _GNU_SOURCE /* mremap, memfd_create */
#include "check.h"
#include "region/pages.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

const oa_library *const oa_libraries[] = {NULL};

enum { PAGE = 4096, PAGES = 256, BYTES = PAGE * PAGES };

static int device;

static char *pages_new(size_t nbytes, int flags) {
  char *memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) memset(memory, 1, nbytes);
  return memory;
}

static oa_array array_of(void *data, const int64_t *n, int direction, int flags) {
  static const int64_t strides[1] = {1};
  return (oa_array){.data = data,
                    .shape = n,
                    .strides = strides,
                    .ndim = 1,
                    .dtype = OA_U8,
                    .direction = direction,
                    .flags = flags,
                    .owner = data};
}

struct pair {
  const unsigned char *in;
  unsigned char *out;
  int64_t n;
  int add;
};

/* Returns a weighted sum of the words, which is fast under a sanitizer too. */
BY_RANGE static unsigned host_sum(const void *in, int64_t n) {
  reads(in, n);
  uint64_t sum = 0, word = 0;
  for (int64_t i = 0; i < n; i += 8) {
    memcpy(&word, (const char *)in + i, (size_t)(n - i < 8 ? n - i : 8));
    sum += word * (uint64_t)(i % 251 + 1);
  }
  return (unsigned)(sum ^ sum >> 32);
}

static void run_sum(void *data) {
  struct pair *p = data;
  const unsigned sum = host_sum(p->in, p->n);
  memcpy(p->out, &sum, sizeof sum);
}

BY_RANGE static void run_add(void *data) {
  const struct pair *p = data;
  reads(p, sizeof *p);
  reads(p->out, p->n);
  writes(p->out, p->n);
  for (int64_t i = 0; i < p->n; i++) p->out[i] = (unsigned char)(p->out[i] + p->add);
}

/* Sets *sum to the sum of the array's bytes on the device. */
static int sum_there(oa_array a, int64_t n, unsigned *sum) {
  static const int64_t four = 4;
  unsigned char result[4];
  oa_array arrays[2] = {a, array_of(result, &four, OA_OUT, 0)};
  oa_region *region;
  int status = oa_region_enter(device, NULL, arrays, 2, &region);
  if (status) return status;
  oa_operand operands[] = {
      {.name = "in", .pointer = arrays[0].handle, .access = OA_READ, .dtype = OA_U8, .extent = OA_ELEMENTS(n)},
      {.name = "out", .pointer = arrays[1].handle, .access = OA_OVERWRITE, .dtype = OA_U8, .extent = OA_ELEMENTS(4)}};
  oa_call call = {.function = "test.sum", .operands = operands, .count = 2};
  status = oa_begin(&call);
  if (!status) {
    struct pair p = {operands[0].address, operands[1].address, n, 0};
    status = oa_submit(&call, run_sum, &p, sizeof p);
  }
  const int finished = oa_region_finish(region, status ? OA_DISCARD : OA_COMMIT, NULL), waited = oa_region_wait(region);
  memcpy(sum, result, sizeof *sum);
  return status ? status : finished ? finished : waited;
}

/* Adds to each byte on the device, and leaves the region with that outcome. */
static int add_there(oa_array a, int64_t n, int add, int outcome) {
  oa_region *region;
  int status = oa_region_enter(device, NULL, &a, 1, &region);
  if (status) return status;
  oa_operand operand = {
      .name = "a", .pointer = a.handle, .access = OA_READ_WRITE, .dtype = OA_U8, .extent = OA_ELEMENTS(n)};
  oa_call call = {.function = "test.add", .operands = &operand, .count = 1};
  status = oa_begin(&call);
  if (!status) {
    struct pair p = {NULL, operand.address, n, add};
    status = oa_submit(&call, run_add, &p, sizeof p);
  }
  const int finished = oa_region_finish(region, outcome, NULL), waited = oa_region_wait(region);
  return status ? status : finished ? finished : waited;
}

static oa_residency figures(void) {
  oa_residency r = OA_SIZED(oa_residency);
  CHECK_OK(oa_residency_query(device, &r));
  return r;
}

static int64_t bytes_up(void) {
  oa_counters c = OA_SIZED(oa_counters);
  CHECK_OK(oa_device_get_counters(device, &c));
  return c.bytes_up;
}

/* Checks that the device's sum equals the host's sum, and that `sent` bytes went up for it. */
#define SUM_IS_TRUE(a, n, sent)                                                                                      \
  do {                                                                                                               \
    const int64_t before_ = bytes_up();                                                                              \
    unsigned sum_;                                                                                                   \
    CHECK_OK(sum_there(a, n, &sum_));                                                                                \
    CHECK(sum_ == host_sum((a).data, n));                                                                            \
    if (!CHECK(bytes_up() - before_ == (sent))) fprintf(stderr, "  sent %lld\n", (long long)(bytes_up() - before_)); \
  } while (0)

static void only_written_pages_are_sent_again(bool tracking) {
  char *memory = pages_new(BYTES, MAP_PRIVATE);
  const int64_t n = BYTES - 300;
  const int64_t all = n, page = tracking ? PAGE : all;
  oa_array a = array_of(memory + 200, &n, OA_IN, OA_RESIDENT | OA_OWNED);
  SUM_IS_TRUE(a, n, all);
  CHECK(figures().kept == 1 && figures().kept_bytes == n);
  SUM_IS_TRUE(a, n, tracking ? 0 : all);
  a.flags = OA_OWNED; /* the array stays resident, however it is lent next */
  SUM_IS_TRUE(a, n, tracking ? 0 : all);
  memory[100 * PAGE] = 77;
  SUM_IS_TRUE(a, n, page);
  memory[0] = 3; /* a byte beside the array, on the array's first page */
  SUM_IS_TRUE(a, n, tracking ? PAGE - 200 : all);
  memory[20 * PAGE] = memory[200 * PAGE + 5] = 5;
  SUM_IS_TRUE(a, n, tracking ? 2 * PAGE : all);
  memset(memory, 8, BYTES);
  SUM_IS_TRUE(a, n, all);
  /* After results came down, the host and the device have the same bytes. */
  oa_array inout = a;
  inout.direction = OA_INOUT;
  CHECK_OK(add_there(inout, n, 3, OA_COMMIT));
  CHECK(memory[200] == 11 && memory[199] == 8 && memory[200 + n] == 8);
  SUM_IS_TRUE(a, n, tracking ? 0 : all);
  /* After results were discarded, all bytes are sent again, because the device has other bytes. */
  CHECK_OK(add_there(inout, n, 3, OA_DISCARD));
  CHECK(memory[200] == 11);
  SUM_IS_TRUE(a, n, all);
  SUM_IS_TRUE(a, n, tracking ? 0 : all);
  CHECK(figures().kept == 1);
  CHECK_OK(oa_release(&a, device));
  CHECK(figures().kept == 0 && figures().kept_bytes == 0 && figures().pages_armed == 0);
  SUM_IS_TRUE(a, n, all);
  CHECK(figures().kept == 0);
  /* oa_keep moves nothing, and the array is resident until its owner ends. */
  const int64_t before = bytes_up();
  CHECK_OK(oa_keep(&a, device));
  CHECK(bytes_up() == before);
  CHECK(oa_owner_kept(a.owner) == 1);
  CHECK(oa_owner_kept(a.owner) == 0);
  SUM_IS_TRUE(a, n, all);
  SUM_IS_TRUE(a, n, tracking ? 0 : all);
  CHECK_OK(oa_owner_gone(a.owner));
  CHECK(figures().kept == 0);
  SUM_IS_TRUE(a, n, all);
  munmap(memory, BYTES);
}

static void lines_and_parts_of_an_array_are_resident(bool tracking) {
  enum { ROWS = 512, PITCH = 4000, WIDTH = 3000 };
  char *memory = pages_new(ROWS * PITCH, MAP_PRIVATE);
  const int64_t shape[2] = {ROWS, WIDTH}, strides[2] = {PITCH, 1};
  oa_array a = {.data = memory,
                .shape = shape,
                .strides = strides,
                .ndim = 2,
                .dtype = OA_U8,
                .direction = OA_INOUT,
                .flags = OA_RESIDENT | OA_OWNED,
                .owner = memory};
  for (int round = 0; round < 4; round++) {
    oa_region *region;
    const int64_t before = bytes_up();
    if (round == 2) memory[300 * PITCH + 7] = 50;
    CHECK_OK(oa_region_enter(device, NULL, &a, 1, &region));
    uint64_t sum = 0;
    oa_operand operand = {.name = "a",
                          .pointer = a.handle,
                          .access = OA_READ,
                          .dtype = OA_U8,
                          .extent = OA_MATRIX(WIDTH, ROWS, PITCH, "m", "n", "lda")};
    oa_call call = {.function = "test.look", .operands = &operand, .count = 1};
    CHECK_OK(oa_begin(&call));
    CHECK_OK(oa_device_synchronize(device));
    for (int r = 0; r < ROWS; r++)
      sum += (uint64_t)memcmp(memory + r * PITCH, (char *)reachable((uintptr_t)operand.address) + r * PITCH, WIDTH);
    CHECK_OK(oa_end(&call, 0));
    CHECK(sum == 0);
    CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
    CHECK_OK(oa_region_wait(region));
    const int64_t sent = bytes_up() - before;
    if (round == 0 || !tracking) CHECK(sent == ROWS * WIDTH);
    if (round == 1 && tracking) CHECK(sent == 0);
    if (round == 2 && tracking) CHECK(sent > 0 && sent <= 3 * WIDTH);
    if (round == 3 && tracking) CHECK(sent == 0);
  }
  /* A panel of the array has separate memory. Both the array and the panel find the written pages. */
  const int64_t n = 1 << 19;
  oa_array part = array_of(memory + 100 * PAGE, &n, OA_INOUT, OA_RESIDENT | OA_OWNED);
  part.owner = memory;
  SUM_IS_TRUE(part, n, n);
  CHECK_OK(add_there(part, n, 1, OA_COMMIT));
  SUM_IS_TRUE(part, n, tracking ? 0 : n);
  CHECK_OK(oa_owner_gone(memory));
  CHECK(figures().kept == 0);
  munmap(memory, ROWS * PITCH);
}

static void neighbours_on_one_page_are_told_apart(bool tracking) {
  enum { N = 200000 };
  char *memory = pages_new(2 * BYTES, MAP_PRIVATE);
  const int64_t n = N;
  oa_array a = array_of(memory, &n, OA_INOUT, OA_RESIDENT | OA_OWNED),
           b = array_of(memory + N, &n, OA_INOUT, OA_RESIDENT | OA_OWNED);
  SUM_IS_TRUE(a, n, n);
  SUM_IS_TRUE(b, n, n);
  for (int i = 0; i < 3; i++) {
    memory[N - 1]++, memory[N]++;                        /* the page that both arrays have */
    CHECK_OK(add_there(i % 2 ? a : b, n, 1, OA_COMMIT)); /* this arms the page, for both arrays */
    unsigned sum;
    CHECK_OK(sum_there(a, n, &sum));
    CHECK(sum == host_sum(a.data, n));
    CHECK_OK(sum_there(b, n, &sum));
    CHECK(sum == host_sum(b.data, n));
  }
  SUM_IS_TRUE(a, n, tracking ? 0 : n);
  CHECK_OK(oa_release(&a, -1));
  CHECK_OK(oa_release(&b, -1));
  munmap(memory, 2 * BYTES);
}

static void idle_memory_is_evicted_under_pressure(void) {
  enum { COUNT = 4, N = 1 << 20 };
  char *memory[COUNT];
  const int64_t n = N;
  CHECK_OK(oa_sim_configure(device, 3 * N + N / 2, 0, 0));
  for (int i = 0; i < COUNT; i++) {
    memory[i] = pages_new(N, MAP_PRIVATE);
    memset(memory[i], i + 1, N);
    oa_array a = array_of(memory[i], &n, OA_IN, OA_RESIDENT | OA_OWNED);
    SUM_IS_TRUE(a, n, n);
  }
  CHECK(figures().kept == 3 && figures().dropped > 0); /* the memory that was unused longest was evicted */
  for (int i = COUNT - 1; i >= 0; i--) {
    unsigned sum;
    oa_array a = array_of(memory[i], &n, OA_IN, OA_OWNED);
    CHECK_OK(sum_there(a, n, &sum));
    CHECK(sum == host_sum(memory[i], n));
  }
  const int64_t much = 4 * N;
  char *large = pages_new(4 * N, MAP_PRIVATE);
  unsigned sum;
  CHECK_FAILS(sum_there(array_of(large, &much, OA_IN, 0), much, &sum), OA_ERROR_MEMORY, "out of device memory");
  CHECK(figures().kept == 0); /* the memory was evicted for the allocation */
  CHECK_OK(oa_sim_configure(device, 0, 0, 0));
  for (int i = 0; i < COUNT; i++) {
    CHECK_OK(oa_owner_gone(memory[i]));
    munmap(memory[i], N);
  }
  munmap(large, 4 * N);
}

/* The k-th backend call fails, for every k: whatever is resident afterwards, reads get the right bytes. */
static void every_failing_backend_call_leaves_true_bytes(void) {
  char *memory = pages_new(BYTES, MAP_PRIVATE);
  const int64_t n = BYTES;
  oa_array a = array_of(memory, &n, OA_INOUT, OA_RESIDENT | OA_OWNED);
  for (int k = 1; k < 40; k++) {
    unsigned sum;
    CHECK_OK(sum_there(a, n, &sum));
    memory[(k % PAGES) * PAGE]++;
    CHECK_OK(oa_sim_configure(device, 0, k, 0));
    const int status = add_there(a, n, 1, OA_COMMIT);
    CHECK_OK(oa_sim_configure(device, 0, 0, 0));
    oa_device_synchronize(device);
    CHECK_OK(sum_there(a, n, &sum));
    CHECK(sum == host_sum(a.data, n));
    if (!status && k > 20) break;
  }
  oa_counters c = OA_SIZED(oa_counters);
  CHECK_OK(oa_device_get_counters(device, &c));
  CHECK(c.mappings == 0 && c.regions == 0);
  CHECK_OK(oa_release(&a, device));
  munmap(memory, BYTES);
}

static void automatic_residency_finds_arrays_that_come_again(void) {
  enum { N = 2 << 20 };
  char *memory = pages_new(N, MAP_PRIVATE);
  const int64_t n = N;
  oa_array a = array_of(memory, &n, OA_BY_USE, OA_OWNED);
  for (int i = 0; i < 3; i++) SUM_IS_TRUE(a, n, n);
  CHECK(figures().promoted == 1 && figures().kept == 1);
  CHECK(oa_owner_kept(a.owner) == 1);
  for (int i = 0; i < 3; i++) SUM_IS_TRUE(a, n, 0);
  memory[5 * PAGE] = 3;
  SUM_IS_TRUE(a, n, PAGE);
  memset(memory, 4, N); /* writes more than one page in twenty */
  SUM_IS_TRUE(a, n, n);
  CHECK(figures().demoted == 1 && figures().kept == 0 && figures().pages_armed == 0);
  CHECK(figures().pages_written >= N / PAGE);
  /* The core ignores two reads; after three more reads the array is resident again. */
  for (int i = 0; i < 5; i++) SUM_IS_TRUE(a, n, n);
  CHECK(figures().promoted == 2);
  SUM_IS_TRUE(a, n, 0);
  CHECK_OK(add_there(a, n, 1, OA_COMMIT)); /* the device writes the array, and will do so again */
  CHECK(figures().demoted == 2 && figures().pages_armed == 0);
  SUM_IS_TRUE(a, n, n);
  CHECK_OK(oa_owner_gone(a.owner));
  /* Memory that is rewritten each time has only a sample armed, less and less often. */
  const int64_t before = figures().pages_written;
  for (int i = 0; i < 100; i++) {
    memset(memory, i, N);
    SUM_IS_TRUE(a, n, n);
  }
  CHECK(figures().promoted == 2);
  CHECK(figures().pages_written - before <= 16 * 8);
  CHECK_OK(oa_owner_gone(a.owner));
  munmap(memory, N);
}

/* Each of many threads lends, writes and reads an array of its own, and reads a shared array. */
static char *common;
static const int64_t common_size = BYTES;

static void *work(void *data) {
  const int64_t n = 1 << 18;
  char *own = pages_new((size_t)n, MAP_PRIVATE);
  oa_array a = array_of(own, &n, OA_INOUT, OA_RESIDENT | OA_OWNED);
  oa_array all = array_of(common, &common_size, OA_IN, OA_RESIDENT | OA_OWNED);
  const unsigned expected = host_sum(common, common_size);
  for (int i = 0; i < 30; i++) {
    unsigned sum;
    own[i * 100] = (char)i;
    CHECK_OK(add_there(a, n, 1, i % 5 ? OA_COMMIT : OA_DISCARD));
    CHECK_OK(sum_there(a, n, &sum));
    CHECK(sum == host_sum(own, n));
    CHECK_OK(sum_there(all, common_size, &sum));
    CHECK(sum == expected);
    if (i % 7 == 3) CHECK_OK(oa_release(i % 2 ? &all : &a, -1));
  }
  CHECK_OK(oa_owner_gone(own));
  munmap(own, (size_t)n);
  return data;
}

static void threads_have_resident_arrays(void) {
  enum { THREADS = 6 };
  pthread_t threads[THREADS];
  common = pages_new(BYTES, MAP_PRIVATE);
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  CHECK_OK(oa_owner_gone(common));
  munmap(common, BYTES);
}

static void the_mode_is_read_and_set(void) {
  oa_region *region;
  unsetenv("OFFLOAD_ARGS_RESIDENCY");
  CHECK_OK(oa_residency_configure(-1, 1));
  CHECK(figures().mode == OA_RESIDENCY_EXPLICIT);
  setenv("OFFLOAD_ARGS_RESIDENCY", "auto", 1);
  CHECK_OK(oa_residency_configure(-1, 1));
  CHECK(figures().mode == OA_RESIDENCY_AUTO);
  setenv("OFFLOAD_ARGS_RESIDENCY", "always", 1);
  CHECK_FAILS(oa_residency_configure(-1, 1), OA_ERROR_ARGUMENT, "\"always\"");
  CHECK_FAILS(oa_region_enter(device, NULL, NULL, 0, &region), OA_ERROR_ARGUMENT, "OFFLOAD_ARGS_RESIDENCY");
  setenv("OFFLOAD_ARGS_RESIDENCY", "off", 1);
  CHECK_OK(oa_residency_configure(-1, 1));
  char *memory = pages_new(BYTES, MAP_PRIVATE);
  const int64_t n = BYTES;
  oa_array a = array_of(memory, &n, OA_IN, OA_RESIDENT | OA_OWNED);
  for (int i = 0; i < 2; i++) SUM_IS_TRUE(a, n, n);
  CHECK_OK(oa_keep(&a, device));
  SUM_IS_TRUE(a, n, n);
  CHECK(figures().kept == 0);
  munmap(memory, BYTES);
  unsetenv("OFFLOAD_ARGS_RESIDENCY");
  CHECK_FAILS(oa_residency_configure(9, 1), OA_ERROR_ARGUMENT, "mode 9");
}

static void on_device(const char *name) {
  CHECK_OK(oa_device_open(name, &device));
  for (int tracking = 0; tracking <= oa_pages_work(); tracking++) {
    CHECK_OK(oa_residency_configure(OA_RESIDENCY_EXPLICIT, tracking));
    only_written_pages_are_sent_again(tracking);
    lines_and_parts_of_an_array_are_resident(tracking);
    neighbours_on_one_page_are_told_apart(tracking);
    if (strcmp(name, "sim:0") == 0) {
      if (!on_doubles()) idle_memory_is_evicted_under_pressure(); /* doubles have no limit of memory */
      every_failing_backend_call_leaves_true_bytes();
    }
    threads_have_resident_arrays();
    oa_pages_allow(1);
  }
  if (oa_pages_work()) {
    CHECK_OK(oa_residency_configure(OA_RESIDENCY_AUTO, 1));
    automatic_residency_finds_arrays_that_come_again();
    threads_have_resident_arrays();
  }
  the_mode_is_read_and_set();
  CHECK_OK(oa_residency_configure(OA_RESIDENCY_EXPLICIT, 1));
}

int main(void) {
  if (!oa_pages_work()) fprintf(stderr, "the kernel lets no pages be watched here\n");
  if (!on_doubles()) on_device("host");
  on_device("sim:0");
  return failures();
}
