/* Residency: pages that are watched, memory that stays, on host and sim. Where the kernel lets no pages be watched, the
 * parts that need it are left out, after the others. */
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

/* -- pages ---------------------------------------------------------------------------------------------------------- */

static int64_t taken(oa_watch *watch) {
  oa_run runs[8];
  int64_t pages;
  oa_watch_take(watch, runs, 8, &pages);
  return pages;
}

static void test_a_watch_finds_what_was_written(void) {
  char *memory = pages_new(BYTES, MAP_PRIVATE);
  oa_watch *watch = oa_watch_new((uintptr_t)memory + 100, (uintptr_t)memory + BYTES - 100, 0);
  oa_run runs[3];
  int64_t pages;
  if (!CHECK(watch)) return;
  CHECK(oa_watch_take(watch, runs, 3, &pages) == 1 && pages == PAGES);
  CHECK(oa_watch_take(watch, runs, 3, &pages) == 0 && pages == 0);
  memory[0] = 2; /* before the array, on its page */
  memory[70 * PAGE] = 2;
  CHECK(oa_watch_take(watch, runs, 3, &pages) == 2 && pages == 2);
  CHECK(runs[0].low == (uintptr_t)memory && runs[0].high == (uintptr_t)memory + PAGE);
  CHECK(runs[1].low == (uintptr_t)memory + 70 * PAGE && runs[1].high == (uintptr_t)memory + 71 * PAGE);
  for (int i = 0; i < PAGES; i += 32)
    memory[i * PAGE] = 3; /* more than there is room for: the last run takes the rest */
  CHECK(oa_watch_take(watch, runs, 3, &pages) == 3 && pages == 8);
  CHECK(runs[2].low == (uintptr_t)memory + 64 * PAGE && runs[2].high == (uintptr_t)memory + 225 * PAGE);
  memory[10 * PAGE] = memory[14 * PAGE] = 4; /* near each other */
  CHECK(oa_watch_take(watch, runs, 3, &pages) == 1 && pages == 2);
  memset(memory, 5, BYTES);
  oa_watch_agree(watch);
  CHECK(taken(watch) == 0);
  oa_watch_lift(watch);
  CHECK(taken(watch) == PAGES);
  madvise(memory + 7 * PAGE, PAGE, MADV_DONTNEED); /* a hole is no clean page */
  CHECK(taken(watch) == 1);
  CHECK(memory[7 * PAGE] == 0);
  CHECK(taken(watch) == 0);        /* the hole was armed: reading it writes nothing */
  munmap(memory + 8 * PAGE, PAGE); /* a page that is gone, and one put in its place */
  CHECK(taken(watch) == PAGES);
  CHECK(mmap(memory + 8 * PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
        MAP_FAILED);
  CHECK(taken(watch) == PAGES);
  CHECK(taken(watch) == 0);
  oa_watch_free(watch);
  munmap(memory, BYTES);
}

/* What holes leave no table of pages behind, and what has no mapping at all: no scan names either by itself. */
static void test_large_holes_are_found(void) {
  enum { HUGE = 2 << 20, IN_HUGE = HUGE / PAGE };
  char *all = mmap(NULL, 5 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char *memory = (char *)(((uintptr_t)all + HUGE - 1) & -(uintptr_t)HUGE);
  madvise(memory, 4 * HUGE, MADV_HUGEPAGE);
  memset(memory, 1, 4 * HUGE);
  oa_watch *watch = oa_watch_new((uintptr_t)memory, (uintptr_t)memory + 4 * HUGE, 0);
  if (!CHECK(watch)) return;
  CHECK(taken(watch) == 4 * IN_HUGE);
  CHECK(taken(watch) == 0);
  madvise(memory + HUGE, HUGE, MADV_DONTNEED);
  memory[3 * HUGE] = 2;
  oa_run runs[2];
  int64_t pages;
  CHECK(oa_watch_take(watch, runs, 2, &pages) == 2 && pages == IN_HUGE + 1);
  CHECK(runs[0].low == (uintptr_t)memory + HUGE && runs[0].high == (uintptr_t)memory + 2 * HUGE);
  CHECK(runs[1].low == (uintptr_t)memory + 3 * HUGE && runs[1].high == (uintptr_t)memory + 3 * HUGE + PAGE);
  CHECK(taken(watch) == 0);
  munmap(memory + HUGE, 2 * HUGE);
  CHECK(taken(watch) == 4 * IN_HUGE);
  oa_watch_free(watch);
  munmap(all, 5 * HUGE);
}

static void test_watches_share_pages(void) {
  char *memory = pages_new(BYTES, MAP_PRIVATE);
  oa_watch *all = oa_watch_new((uintptr_t)memory, (uintptr_t)memory + BYTES, 0);
  oa_watch *half = oa_watch_new((uintptr_t)memory + BYTES / 2 - 10, (uintptr_t)memory + BYTES, 0);
  oa_watch *sample = oa_watch_new((uintptr_t)memory, (uintptr_t)memory + BYTES, 16);
  if (!CHECK(all && half && sample)) return;
  CHECK(oa_watch_pages(sample) == 16);
  taken(all), taken(half), taken(sample);
  taken(all), taken(half);
  CHECK(taken(all) == 0 && taken(half) == 0 && taken(sample) == 0);
  memory[BYTES / 2] = 2;
  CHECK(taken(half) == 1); /* arms it anew: the others know nevertheless */
  CHECK(taken(all) == 1);
  CHECK(taken(half) == 0);
  memset(memory, 3, BYTES);
  CHECK(taken(all) == PAGES && taken(sample) == 16 && taken(half) == PAGES / 2 + 1);
  oa_watch_free(all);
  memory[BYTES - 1] = 4; /* what is left is still watched */
  CHECK(taken(half) == 1);
  memory[24 * PAGE] = 4;
  CHECK(taken(sample) == 1);
  oa_watch_free(half);
  oa_watch_free(sample);
  sample =
      oa_watch_new((uintptr_t)memory + 100, (uintptr_t)memory + BYTES - 100, 16); /* of an array that shares its ends */
  if (!CHECK(sample && oa_watch_pages(sample) == 16)) return;
  CHECK(taken(sample) == 16);
  memory[0] = memory[BYTES - 1] = 5; /* its neighbours */
  CHECK(taken(sample) == 0);
  memset(memory, 6, BYTES);
  CHECK(taken(sample) == 16);
  oa_watch_free(sample);
  munmap(memory, BYTES);
}

static void test_several_are_looked_at_together(void) {
  enum { COUNT = 3 };
  char *memory[COUNT];
  oa_watch *watches[COUNT];
  oa_run runs[3];
  int64_t pages;
  for (int i = 0; i < COUNT; i++) {
    memory[i] = pages_new(BYTES, MAP_PRIVATE);
    watches[i] = oa_watch_new((uintptr_t)memory[i], (uintptr_t)memory[i] + BYTES, 0);
    CHECK(watches[i] && taken(watches[i]) == PAGES);
  }
  memory[1][5 * PAGE] = 1;
  oa_watches_look(watches, COUNT);
  memory[1][9 * PAGE] = memory[2][0] = 1; /* after the look: for the next */
  CHECK(oa_watch_take_seen(watches[0], runs, 3, &pages) == 0 && pages == 0);
  CHECK(oa_watch_take_seen(watches[1], runs, 3, &pages) == 1 && pages == 1);
  CHECK(runs[0].low == (uintptr_t)memory[1] + 5 * PAGE);
  CHECK(oa_watch_take_seen(watches[2], runs, 3, &pages) == 0);
  CHECK(taken(watches[0]) == 0 && taken(watches[1]) == 1 && taken(watches[2]) == 1);
  memory[0][0] = 2;
  oa_watches_look(watches, COUNT); /* and nobody took what was seen */
  CHECK(taken(watches[0]) == 1);
  for (int i = 0; i < COUNT; i++) {
    oa_watch_free(watches[i]);
    munmap(memory[i], BYTES);
  }
}

static void *write_one(void *data) {
  *(char *)data = 9;
  return NULL;
}

static void test_who_writes_does_not_matter(void) {
  char *memory = pages_new(BYTES, MAP_PRIVATE);
  oa_watch *watch = oa_watch_new((uintptr_t)memory, (uintptr_t)memory + BYTES, 0);
  if (!CHECK(watch)) return;
  taken(watch);
  pthread_t thread;
  pthread_create(&thread, NULL, write_one, memory + 3 * PAGE);
  pthread_join(thread, NULL);
  CHECK(taken(watch) == 1);
  int ends[2]; /* the kernel itself */
  CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1 && read(ends[0], memory + 5 * PAGE, 1) == 1);
  CHECK(taken(watch) == 1);
  const pid_t child = fork();
  if (child == 0) {
    memory[PAGE] = 7; /* its own copy */
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(taken(watch) == 0 && memory[PAGE] != 7);
  memory[2 * PAGE] = 7; /* after a fork, the parent's */
  CHECK(taken(watch) == 1);
  char *place = pages_new(BYTES, MAP_PRIVATE);
  char *moved = mremap(memory, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, place);
  CHECK(moved == place && taken(watch) == PAGES);
  oa_watch_free(watch);
  munmap(moved, BYTES);
}

static void test_what_others_can_write_is_not_watched(void) {
  char *shared = pages_new(BYTES, MAP_SHARED);
  CHECK(!oa_watch_new((uintptr_t)shared, (uintptr_t)shared + BYTES, 0));
  munmap(shared, BYTES);
  const int file = memfd_create("test", 0);
  CHECK(file >= 0 && ftruncate(file, BYTES) == 0);
  const int kinds[] = {MAP_SHARED, MAP_PRIVATE};
  for (int i = 0; i < 2; i++) {
    char *mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, kinds[i], file, 0);
    CHECK(mapped != MAP_FAILED);
    CHECK(!oa_watch_new((uintptr_t)mapped, (uintptr_t)mapped + BYTES, 0));
    munmap(mapped, BYTES);
  }
  close(file);
  char *holes = pages_new(3 * BYTES, MAP_PRIVATE);
  munmap(holes + BYTES, BYTES);
  CHECK(!oa_watch_new((uintptr_t)holes, (uintptr_t)holes + 3 * BYTES, 0));
  munmap(holes, BYTES);
  munmap(holes + 2 * BYTES, BYTES);
}

static void test_huge_pages(void) {
  const size_t nbytes = 8 << 20, huge = 2 << 20;
  char *memory = mmap(NULL, nbytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char *aligned = (char *)(((uintptr_t)memory + huge - 1) / huge * huge);
  madvise(aligned, nbytes, MADV_HUGEPAGE);
  memset(aligned, 1, nbytes);
  oa_watch *watch = oa_watch_new((uintptr_t)aligned + 64, (uintptr_t)aligned + nbytes - 64, 0);
  if (!CHECK(watch)) return;
  taken(watch);
  CHECK(taken(watch) == 0);
  aligned[3 << 20] = 2;
  const int64_t pages = taken(watch);
  CHECK(pages >= 1 && pages <= 512);
  CHECK(taken(watch) == 0);
  oa_watch_free(watch);
  munmap(memory, nbytes + huge);
}

/* -- regions -------------------------------------------------------------------------------------------------------- */

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

/* Of words, each with a weight: quick under a sanitizer too. */
static unsigned host_sum(const void *in, int64_t n) {
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

static void run_add(void *data) {
  struct pair *p = data;
  for (int64_t i = 0; i < p->n; i++) p->out[i] = (unsigned char)(p->out[i] + p->add);
}

/* The device's sum of the bytes: what it has of them. */
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

/* Adds to each byte on the device; comes down unless the outcome says otherwise. */
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

/* The sum is the host's, and so many bytes went up for it. */
#define SUM_IS_TRUE(a, n, sent)                                                                                      \
  do {                                                                                                               \
    const int64_t before_ = bytes_up();                                                                              \
    unsigned sum_;                                                                                                   \
    CHECK_OK(sum_there(a, n, &sum_));                                                                                \
    CHECK(sum_ == host_sum((a).data, n));                                                                            \
    if (!CHECK(bytes_up() - before_ == (sent))) fprintf(stderr, "  sent %lld\n", (long long)(bytes_up() - before_)); \
  } while (0)

static void test_only_what_was_written_is_sent_again(bool tracking) {
  char *memory = pages_new(BYTES, MAP_PRIVATE);
  const int64_t n = BYTES - 300;
  const int64_t all = n, page = tracking ? PAGE : all;
  oa_array a = array_of(memory + 200, &n, OA_IN, OA_RESIDENT | OA_OWNED);
  SUM_IS_TRUE(a, n, all);
  CHECK(figures().kept == 1 && figures().kept_bytes == n);
  SUM_IS_TRUE(a, n, tracking ? 0 : all);
  a.flags = OA_OWNED; /* it stays whoever lends it next */
  SUM_IS_TRUE(a, n, tracking ? 0 : all);
  memory[100 * PAGE] = 77;
  SUM_IS_TRUE(a, n, page);
  memory[0] = 3; /* not the array's, on its first page */
  SUM_IS_TRUE(a, n, tracking ? PAGE - 200 : all);
  memory[20 * PAGE] = memory[200 * PAGE + 5] = 5;
  SUM_IS_TRUE(a, n, tracking ? 2 * PAGE : all);
  memset(memory, 8, BYTES);
  SUM_IS_TRUE(a, n, all);
  /* What the device wrote came down: both have the same. */
  oa_array inout = a;
  inout.direction = OA_INOUT;
  CHECK_OK(add_there(inout, n, 3, OA_COMMIT));
  CHECK(memory[200] == 11 && memory[199] == 8 && memory[200 + n] == 8);
  SUM_IS_TRUE(a, n, tracking ? 0 : all);
  /* What it wrote and did not come down: only the device has it, so it is worth nothing. */
  CHECK_OK(add_there(inout, n, 3, OA_DISCARD));
  CHECK(memory[200] == 11);
  SUM_IS_TRUE(a, n, all);
  SUM_IS_TRUE(a, n, tracking ? 0 : all);
  CHECK(figures().kept == 1);
  CHECK_OK(oa_release(&a, device));
  CHECK(figures().kept == 0 && figures().kept_bytes == 0 && figures().pages_armed == 0);
  SUM_IS_TRUE(a, n, all);
  CHECK(figures().kept == 0);
  /* oa_keep moves nothing; the owner's end is the end. */
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

static void test_lines_and_parts(bool tracking) {
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
      sum += (uint64_t)memcmp(memory + r * PITCH, (char *)operand.address + r * PITCH, WIDTH);
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
  /* A part of it has memory of its own; both know what was written. */
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

static void test_neighbours_on_one_page(bool tracking) {
  enum { N = 200000 };
  char *memory = pages_new(2 * BYTES, MAP_PRIVATE);
  const int64_t n = N;
  oa_array a = array_of(memory, &n, OA_INOUT, OA_RESIDENT | OA_OWNED),
           b = array_of(memory + N, &n, OA_INOUT, OA_RESIDENT | OA_OWNED);
  SUM_IS_TRUE(a, n, n);
  SUM_IS_TRUE(b, n, n);
  for (int i = 0; i < 3; i++) {
    memory[N - 1]++, memory[N]++;                        /* the page that both have */
    CHECK_OK(add_there(i % 2 ? a : b, n, 1, OA_COMMIT)); /* arms it, for both */
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

static void test_want_of_memory(void) {
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
  CHECK(figures().kept == 3 && figures().dropped > 0); /* what was unused longest made room */
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
  CHECK(figures().kept == 0); /* it was tried */
  CHECK_OK(oa_sim_configure(device, 0, 0, 0));
  for (int i = 0; i < COUNT; i++) {
    CHECK_OK(oa_owner_gone(memory[i]));
    munmap(memory[i], N);
  }
  munmap(large, 4 * N);
}

/* The k-th backend call fails, for every k: whatever is kept afterwards, what is read is true. */
static void test_failures(void) {
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

static void test_automatic(void) {
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
  memset(memory, 4, N); /* more than one page in twenty */
  SUM_IS_TRUE(a, n, n);
  CHECK(figures().demoted == 1 && figures().kept == 0 && figures().pages_armed == 0);
  CHECK(figures().pages_written >= N / PAGE);
  for (int i = 0; i < 5; i++) SUM_IS_TRUE(a, n, n); /* two reads pass, then three to be kept again */
  CHECK(figures().promoted == 2);
  SUM_IS_TRUE(a, n, 0);
  CHECK_OK(add_there(a, n, 1, OA_COMMIT)); /* the device writes it: it will again */
  CHECK(figures().demoted == 2 && figures().pages_armed == 0);
  SUM_IS_TRUE(a, n, n);
  CHECK_OK(oa_owner_gone(a.owner));
  /* Memory that is rewritten each time is never armed but for a sample of it, and that less and less often. */
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

/* Many threads lend, write and read arrays of their own and one they share for reading. */
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

static void test_threads(void) {
  enum { THREADS = 6 };
  pthread_t threads[THREADS];
  common = pages_new(BYTES, MAP_PRIVATE);
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  CHECK_OK(oa_owner_gone(common));
  munmap(common, BYTES);
}

static void test_mode(void) {
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

static void test_device(const char *name) {
  CHECK_OK(oa_device_open(name, &device));
  for (int tracking = 0; tracking <= oa_pages_work(); tracking++) {
    CHECK_OK(oa_residency_configure(OA_RESIDENCY_EXPLICIT, tracking));
    test_only_what_was_written_is_sent_again(tracking);
    test_lines_and_parts(tracking);
    test_neighbours_on_one_page(tracking);
    if (strcmp(name, "sim:0") == 0) {
      test_want_of_memory();
      test_failures();
    }
    test_threads();
    oa_pages_allow(1);
  }
  if (oa_pages_work()) {
    CHECK_OK(oa_residency_configure(OA_RESIDENCY_AUTO, 1));
    test_automatic();
    test_threads();
  }
  test_mode();
  CHECK_OK(oa_residency_configure(OA_RESIDENCY_EXPLICIT, 1));
}

int main(void) {
  if (oa_pages_work()) {
    test_a_watch_finds_what_was_written();
    test_large_holes_are_found();
    test_watches_share_pages();
    test_several_are_looked_at_together();
    test_who_writes_does_not_matter();
    test_what_others_can_write_is_not_watched();
    test_huge_pages();
  } else {
    fprintf(stderr, "the kernel lets no pages be watched here\n");
  }
  test_device("host");
  test_device("sim:0");
  return failures();
}
