/* Copies between one program and several devices at once: GB/s in all, and how many times one device's that is.
 *
 *   two_devices [--processes] [--ways] [BACKEND [DEVICES [MIB]]]
 *
 * An array of 1 GiB a device, up and down, by the engine; then the same in pinned memory, which is the bus alone.
 * Each device has a thread of its own, or with --processes a process. --ways has numbers of threads and sizes of chunks
 * instead of the bus. The engine is reached beneath the regions, so this is built from the core's lowest folders:
 *   gcc -O2 -std=gnu11 -Icsrc -Icsrc/include -o two_devices benchmarks/two_devices.c \
 *     csrc/base/[a-z]*.c csrc/device/[a-z]*.c csrc/backends/[a-z]*.c csrc/transfer/[a-z]*.c -lpthread -ldl -lm */
#include "base/threads.h"
#include "device/memory.h"
#include "device/staging.h"
#include "offload_args/core.h"
#include "transfer/transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_DEVICES = 8 };
#define BYTES (mib << 20)

static struct shared { /* between processes, too */
  pthread_barrier_t barrier;
  double begun, ended[MOST_DEVICES];
} *shared;
static int devices = 2;
static int64_t mib = 1024;
static const char *backend = "cuda";
static bool ways;

typedef struct worker {
  int index, number;
  oa_device *device;
  void *stream;
  char *host, *pinned;
  uint64_t address;
} worker;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int status, const char *operation) {
  if (!status) return;
  fprintf(stderr, "%s: %d: %s\n", operation, status, oa_last_error());
  exit(1);
}
#define MUST(call) must((call), #call)

static void up(const worker *w, char *host) {
  oa_move move = {.host = host, .address = w->address, .lines = {0, BYTES, BYTES, 1}};
  MUST(oa_transfer_up(w->device, w->stream, &move, 1));
  MUST(w->device->backend->stream_synchronize(w->device, w->stream));
}

static void down(const worker *w, char *host) {
  oa_move move = {.host = host, .address = w->address, .lines = {0, BYTES, BYTES, 1}};
  MUST(oa_transfer_down(w->device, w->stream, &move, 1));
  MUST(w->device->backend->stream_synchronize(w->device, w->stream));
  MUST(oa_transfer_settle(w->device, w->stream, &move, 1));
}

/* Returns the GB/s of the first `busy` devices together, when each makes `runs` copies; the first worker returns it. */
static double measure(const worker *w, void (*copy)(const worker *, char *), char *host, int busy, int runs) {
  pthread_barrier_wait(&shared->barrier);
  if (!w->index) shared->begun = now();
  pthread_barrier_wait(&shared->barrier);
  if (w->index < busy)
    for (int i = 0; i < runs; i++) copy(w, host);
  shared->ended[w->index] = now();
  pthread_barrier_wait(&shared->barrier);
  double end = 0;
  for (int i = 0; i < busy; i++)
    if (shared->ended[i] > end) end = shared->ended[i];
  return (double)BYTES * runs * busy / (end - shared->begun) * 1e-9;
}

/* Prints one row: GB/s of one device, of all, and the ratio; up, down, and up and down in turn. */
static void row(const worker *w, const char *name, char *host, int runs) {
  double alone[2], all[2];
  void (*const copies[])(const worker *, char *) = {up, down};
  for (int c = 0; c < 2; c++) {
    measure(w, copies[c], host, devices, 1);
    alone[c] = measure(w, copies[c], host, 1, runs);
    all[c] = measure(w, copies[c], host, devices, runs);
  }
  if (w->index) return;
  const double both_one = 2 / (1 / alone[0] + 1 / alone[1]), both_all = 2 / (1 / all[0] + 1 / all[1]);
  printf("%-28s up %5.1f %6.1f %5.2f | down %5.1f %6.1f %5.2f | both %5.1f %6.1f %5.2f\n", name, alone[0], all[0],
         all[0] / alone[0], alone[1], all[1], all[1] / alone[1], both_one, both_all, both_all / both_one);
  fflush(stdout);
}

static void rows_of_ways(const worker *w) {
  static const int threads[] = {8, 12, 16};
  const struct oa_tuning usual = oa_tuning;
  for (int64_t chunk = 1 << 20; chunk <= OA_LARGE_BYTES; chunk *= 2)
    for (int t = 0; t < 3; t++) {
      char name[64];
      snprintf(name, sizeof name, "T%d, chunks of %d MiB", threads[t], (int)(chunk >> 20));
      pthread_barrier_wait(&shared->barrier);
      oa_tuning.chunk_least = oa_tuning.chunk_most = chunk;
      MUST(oa_set_threads(threads[t]));
      row(w, name, w->host, 3);
    }
  pthread_barrier_wait(&shared->barrier);
  oa_tuning = usual;
  MUST(oa_set_threads(0));
}

static void *work(void *data) {
  worker *w = data;
  char name[32];
  void *pinned = NULL;
  snprintf(name, sizeof name, "%s:%d", backend, w->index);
  MUST(oa_device_open(name, &w->number));
  w->device = oa_device_of(w->number);
  MUST(w->device->backend->stream_create(w->device, &w->stream));
  MUST(oa_device_allocate(w->device, w->stream, (size_t)BYTES, &w->address));
  MUST(oa_pinned_allocate(w->number, (size_t)BYTES, &pinned));
  w->pinned = pinned;
  w->host = malloc((size_t)BYTES);
  if (!w->host) abort();
  memset(w->host, w->index + 1, (size_t)BYTES);
  memset(w->pinned, w->index + 1, (size_t)BYTES);
  if (!w->index) printf("%d threads; GB/s of one device, of %d, ratio\n", oa_threads_count(), devices);
  row(w, "as it is", w->host, 5);
  if (ways)
    rows_of_ways(w);
  else
    row(w, "pinned: the bus alone", w->pinned, 5);
  row(w, "as it is, again", w->host, 5);
  for (int64_t i = 0; i < BYTES; i += 4093)
    if (w->host[i] != w->index + 1) abort();
  return NULL;
}

int main(int argc, char **argv) {
  bool processes = false;
  int next = 1;
  for (; next < argc && strncmp(argv[next], "--", 2) == 0; next++) {
    processes |= strcmp(argv[next], "--processes") == 0;
    ways |= strcmp(argv[next], "--ways") == 0;
  }
  if (next < argc) backend = argv[next++];
  if (next < argc) devices = atoi(argv[next++]);
  if (next < argc) mib = atoi(argv[next]);
  if (devices < 1 || devices > MOST_DEVICES) return 2;
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&shared->barrier, &attributes, (unsigned)devices);
  worker workers[MOST_DEVICES];
  pthread_t threads[MOST_DEVICES];
  pid_t children[MOST_DEVICES];
  for (int i = 0; i < devices; i++) {
    workers[i] = (worker){.index = i};
    if (!processes) {
      pthread_create(&threads[i], NULL, work, &workers[i]);
    } else if ((children[i] = fork()) == 0) {
      work(&workers[i]);
      exit(0);
    }
  }
  for (int i = 0; i < devices; i++) {
    if (processes)
      waitpid(children[i], NULL, 0);
    else
      pthread_join(threads[i], NULL);
  }
  return 0;
}
