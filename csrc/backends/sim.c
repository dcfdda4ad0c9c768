/* A strict device without a GPU, for tests. Each stream is a real thread that runs its queue: operations that no event
 * orders run in any order, and results are missing until they are waited for. Every call checks its addresses against
 * the allocations. Tests can make any call fail.
 *
 * The device's memory is memory of this process. Each allocation has a red zone around it. Fresh memory is filled, in
 * stream order, with bytes that are NaN in each floating type. Freed memory, and memory in the core's pool, is filled
 * with other bytes. Freed memory stays in quarantine for a while, and is checked for late writes when it leaves. The
 * workers report such faults through the next synchronization.
 *
 * Locks: the mutexes of the device (memory, errors), of a stream (its queue), of an event and of a mark are all leaves:
 * a thread that holds one of them takes no other lock. There are many locks so that a missing event shows as a race
 * under ThreadSanitizer. */
#include "base/here.h"
#include "device/backend.h"
#include "offload_args/testing.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <time.h>

enum {
  DEVICES = 8,
  FRESH = 0xFF,
  FREED = 0xFE,
  RED = 0xA5,
  RED_ZONE = 64, /* bytes before and after an allocation; also the alignment of an allocation */
  QUARANTINE_BLOCKS = 256,
  QUARANTINE_BYTES = 32 << 20
};

/* One record of an event. A wait waits for the record, even if the event is recorded again or destroyed meanwhile. */
struct mark {
  atomic_int users;
  bool reached;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
};

struct event {
  pthread_mutex_t mutex;
  struct mark *last;
};

struct operation {
  struct operation *next;
  enum { COPY, FILL, RUN, RECORD, WAIT, FREE, GRAPH } kind;
  bool failed; /* a graph was not run */
  union {
    struct {
      void *to;
      const void *from;
      size_t to_pitch, from_pitch, width, lines;
    } copy;
    struct {
      void *to;
      uint32_t value;
      size_t pitch, unit, width, lines;
    } fill;
    void (*run)(void *);
    struct mark *mark;
    struct block *block;
    oa_recording *graph;
  };
  _Alignas(max_align_t) unsigned char data[]; /* the host's lines of a copy up, or the arguments of run */
};

/* An allocation. A block is in the tree of live blocks until its free is issued, and in quarantine once the free has
 * run. */
struct block {
  uint64_t address; /* RED_ZONE bytes after the start of the allocation */
  size_t nbytes;
  struct block *next;
  struct operation free; /* allocated with the block, so that freeing needs no memory */
};

struct stream {
  struct stream *next;
  struct sim *sim;
  pthread_mutex_t mutex;
  pthread_cond_t issue, completion;
  struct operation *first, **last;
  int64_t issued, completed;
  oa_recording *recording; /* the work of a graph that is being captured; NULL: no capture */
};

struct sim {
  oa_device *device;
  _Atomic int64_t calls, fail_base, fail_at; /* numbers of calls; fail_at < 0: all calls from number -fail_at on fail */
  _Atomic int64_t delay_us;
  atomic_bool unordered; /* streams do not wait for each other */
  pthread_mutex_t mutex;
  int64_t capacity, used;
  void *live;             /* a tsearch tree of blocks */
  void *pins;             /* a tsearch tree of blocks of pinned host memory */
  void *variables;        /* a tree of modules' variables; an old variable stays until a new variable overlaps it */
  struct stream *streams; /* a list; new streams go to its front, and none leaves it */
  struct block *oldest, **newest;
  size_t quarantined_bytes;
  int quarantined;
  char error[512];
};

/* Counts a backend call, and fails if it is the call that oa_sim_configure chose. The format describes the call. */
__attribute__((format(printf, 2, 3))) static int count_call(oa_device *device, const char *format, ...) {
  struct sim *sim = device->state;
  int64_t number = atomic_fetch_add_explicit(&sim->calls, 1, memory_order_relaxed) + 1;
  const int64_t fail_at = atomic_load_explicit(&sim->fail_at, memory_order_relaxed);
  if (OA_LIKELY(number != fail_at && (fail_at >= 0 || number < -fail_at))) return OA_OK;
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (fail_at < 0) {
    char reason[320];
    snprintf(reason, sizeof reason, "%s failed: SIM_ERROR_LOST", text);
    return oa_device_lost(device, reason);
  }
  return oa_fail(OA_ERROR_BACKEND, "%s: %s failed: SIM_ERROR_INJECTED (call %" PRId64 ")", device->name, text,
                 number - atomic_load_explicit(&sim->fail_base, memory_order_relaxed));
}

static int no_host_memory(oa_device *device, const char *purpose) {
  return oa_fail(OA_ERROR_MEMORY, "%s: %s: out of host memory", device->name, purpose);
}

/* -- faults found by workers: kept until the next synchronization. Under sim->mutex. ------------------------------- */

__attribute__((format(printf, 2, 3))) static void report(struct sim *sim, const char *format, ...) {
  if (sim->error[0]) return;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(sim->error, sizeof sim->error, format, arguments);
  va_end(arguments);
}

/* Returns the status of the fault that a worker reported, and clears the report; OA_OK if there is none. */
static int take_report(struct sim *sim) {
  int status = OA_OK;
  pthread_mutex_lock(&sim->mutex);
  if (sim->error[0]) {
    status = oa_fail(OA_ERROR_BACKEND, "%s: %s; this stems from earlier work", sim->device->name, sim->error);
    sim->error[0] = '\0';
  }
  pthread_mutex_unlock(&sim->mutex);
  return status;
}

/* -- memory ------------------------------------------------------------------------------------------------------- */

static unsigned char *bytes_at(uint64_t address) { return (unsigned char *)(uintptr_t)address; }

/* Returns the index of the first of nbytes bytes that differs from `byte`; nbytes if none does. */
static size_t first_other(const unsigned char *bytes, int byte, size_t nbytes) {
  if (nbytes == 0 || (bytes[0] == byte && memcmp(bytes, bytes + 1, nbytes - 1) == 0)) return nbytes;
  size_t i = 0;
  while (bytes[i] == byte) i++;
  return i;
}

/* Orders blocks by address. Blocks that overlap count as equal, so that a search for a range finds the block around
 * it. */
static int compare(const void *left, const void *right) {
  const struct block *a = left, *b = right;
  if (a->address + a->nbytes <= b->address) return -1;
  return b->address + b->nbytes <= a->address;
}

/* Returns whether one block of the tree has the whole range. Called with sim->mutex. */
static bool is_inside(void *const *tree, uint64_t address, size_t nbytes) {
  const struct block key = {.address = address, .nbytes = nbytes};
  struct block *const *block = nbytes ? tfind(&key, tree, compare) : NULL;
  return block && (*block)->address <= address && nbytes <= (*block)->nbytes - (address - (*block)->address);
}

/* Returns whether the range is memory of the host: none of it is or was the device's own. Under sim->mutex. */
static bool is_of_host(const struct sim *sim, uint64_t address, size_t nbytes) {
  const struct block key = {.address = address - RED_ZONE, .nbytes = nbytes + 2 * (size_t)RED_ZONE};
  if (!nbytes || tfind(&key, &sim->live, compare)) return false;
  for (const struct block *block = sim->oldest; block; block = block->next)
    if (compare(&key, block) == 0) return false;
  return true;
}

/* Notes a variable of a module: it is memory of the device from now on. */
static int sim_module_variable(oa_device *device, void *module, const char *name, uint64_t *address, size_t *nbytes) {
  struct sim *sim = device->state;
  struct block *variable = calloc(1, sizeof *variable), *const * old;
  (void)module;
  if (!variable) return no_host_memory(device, name);
  variable->address = *address;
  variable->nbytes = *nbytes;
  pthread_mutex_lock(&sim->mutex);
  while (variable->nbytes && (old = tfind(variable, &sim->variables, compare))) {
    struct block *gone = *old;
    tdelete(gone, &sim->variables, compare);
    free(gone);
  }
  const bool kept = tsearch(variable, &sim->variables, compare) != NULL;
  pthread_mutex_unlock(&sim->mutex);
  if (kept) return OA_OK;
  free(variable);
  return no_host_memory(device, name);
}

static int check_range(oa_device *device, const char *operation, uint64_t address, size_t pitch, size_t width,
                       size_t lines) {
  struct sim *sim = device->state;
  size_t span;
  if ((lines > 1 && pitch < width) || __builtin_mul_overflow(lines - 1, pitch, &span) ||
      __builtin_add_overflow(span, width, &span)) {
    return oa_fail(OA_ERROR_BACKEND, "%s: %s failed: SIM_ERROR_INVALID_PITCH: %zu lines of %zu bytes, %zu apart",
                   device->name, operation, lines, width, pitch);
  }
  pthread_mutex_lock(&sim->mutex);
  const bool inside = is_inside(&sim->live, address, span) || is_inside(&sim->pins, address, span) ||
                      is_inside(&sim->variables, address, span) || (device->coherent && is_of_host(sim, address, span));
  pthread_mutex_unlock(&sim->mutex);
  if (inside) return OA_OK;
  return oa_fail(OA_ERROR_BACKEND,
                 "%s: %s of %zu bytes failed: SIM_ERROR_ILLEGAL_ADDRESS: 0x%" PRIx64
                 " and on is not inside one live allocation",
                 device->name, operation, span, address);
}

/* Reports freed memory that was written. Called with sim->mutex. */
static void check_freed(struct sim *sim, const unsigned char *memory, size_t nbytes) {
  const size_t at = first_other(memory, FREED, nbytes);
  if (at == nbytes) return;
  report(sim, "SIM_ERROR_WRITE_AFTER_RELEASE: byte %zu of the %zu at 0x%" PRIxPTR " was written after their release",
         at, nbytes, (uintptr_t)memory);
}

/* Checks the bytes before and after an allocation, or the zeros around a piece of a live allocation. Called with
 * sim->mutex. */
static void check_red_zones(struct sim *sim, const unsigned char *memory, size_t nbytes) {
  const uint64_t address = (uintptr_t)memory;
  const struct block key = {.address = address, .nbytes = nbytes};
  struct block *const *block = tfind(&key, &sim->live, compare);
  const bool first = !block || (*block)->address == address;
  const bool last = !block || (*block)->address + (*block)->nbytes == address + nbytes;
  const size_t before = first_other(memory - RED_ZONE, first ? RED : 0, RED_ZONE);
  const size_t after = first_other(memory + nbytes, last ? RED : 0, RED_ZONE);
  if (before == RED_ZONE && after == RED_ZONE) return;
  report(sim, "SIM_ERROR_OUT_OF_BOUNDS: byte %td of the %zu at 0x%" PRIxPTR " was written",
         after < RED_ZONE ? (ptrdiff_t)(nbytes + after) : (ptrdiff_t)before - RED_ZONE, nbytes, (uintptr_t)memory);
}

/* Frees a block whose time in quarantine is over. Called with sim->mutex. */
static void leave_quarantine(struct sim *sim, struct block *block) {
  check_freed(sim, bytes_at(block->address), block->nbytes);
  sim->quarantined--;
  sim->quarantined_bytes -= block->nbytes;
  free(bytes_at(block->address) - RED_ZONE);
  free(block);
}

/* Frees the oldest blocks until the quarantine has at most that many blocks and bytes. Called with sim->mutex. */
static void shrink_quarantine(struct sim *sim, int blocks, size_t nbytes) {
  while (sim->quarantined > blocks || sim->quarantined_bytes > nbytes) {
    struct block *block = sim->oldest;
    sim->oldest = block->next;
    if (!sim->oldest) sim->newest = &sim->oldest;
    leave_quarantine(sim, block);
  }
}

/* Frees a block when its turn in the stream comes. */
static void run_free(struct sim *sim, struct block *block) {
  unsigned char *memory = bytes_at(block->address);
  memset(memory, FREED, block->nbytes);
  pthread_mutex_lock(&sim->mutex);
  check_red_zones(sim, memory, block->nbytes);
  sim->used -= (int64_t)block->nbytes;
  sim->quarantined++;
  sim->quarantined_bytes += block->nbytes;
  block->next = NULL;
  *sim->newest = block;
  sim->newest = &block->next;
  shrink_quarantine(sim, QUARANTINE_BLOCKS, QUARANTINE_BYTES);
  pthread_mutex_unlock(&sim->mutex);
}

/* -- marks -------------------------------------------------------------------------------------------------------- */

static struct mark *mark_new(void) {
  struct mark *mark = calloc(1, sizeof *mark);
  if (!mark) return NULL;
  atomic_init(&mark->users, 1);
  pthread_mutex_init(&mark->mutex, NULL);
  pthread_cond_init(&mark->changed, NULL);
  return mark;
}

static struct mark *mark_share(struct mark *mark) {
  if (mark) atomic_fetch_add(&mark->users, 1);
  return mark;
}

static void mark_drop(struct mark *mark) {
  if (!mark || atomic_fetch_sub(&mark->users, 1) > 1) return;
  pthread_mutex_destroy(&mark->mutex);
  pthread_cond_destroy(&mark->changed);
  free(mark);
}

static void mark_reach(struct mark *mark) {
  pthread_mutex_lock(&mark->mutex);
  mark->reached = true;
  pthread_cond_broadcast(&mark->changed);
  pthread_mutex_unlock(&mark->mutex);
  mark_drop(mark);
}

static void mark_wait(struct mark *mark) {
  pthread_mutex_lock(&mark->mutex);
  while (!mark->reached) pthread_cond_wait(&mark->changed, &mark->mutex);
  pthread_mutex_unlock(&mark->mutex);
  mark_drop(mark);
}

/* -- streams ------------------------------------------------------------------------------------------------------ */

/* Runs an operation that calls libraries' functions. */
static void run_inside(void *of) {
  struct operation *operation = of;
  if (operation->kind == RUN)
    operation->run(operation->data);
  else
    operation->failed = oa_recording_run(operation->graph, true);
}

static void run_function(struct sim *sim, struct operation *operation) {
  const bool runs = oa_run_before_end(run_inside, operation);
  if (runs && !operation->failed) return;
  pthread_mutex_lock(&sim->mutex);
  report(sim, runs ? "SIM_ERROR_OUT_OF_MEMORY: a graph was not run" : "the process ends, and a call had not begun");
  pthread_mutex_unlock(&sim->mutex);
}

static void execute(struct sim *sim, struct operation *operation) {
  switch (operation->kind) {
    case COPY:
      oa_copy_lines(operation->copy.to, operation->copy.to_pitch, operation->copy.from, operation->copy.from_pitch,
                    operation->copy.width, operation->copy.lines);
      break;
    case FILL:
      oa_fill_lines(operation->fill.to, operation->fill.pitch, operation->fill.value, operation->fill.unit,
                    operation->fill.width, operation->fill.lines);
      break;
    case GRAPH:
      run_function(sim, operation);
      oa_recording_drop(operation->graph);
      break;
    case RUN:
      run_function(sim, operation);
      break;
    case RECORD:
      mark_reach(operation->mark);
      break;
    case WAIT:
      mark_wait(operation->mark);
      break;
    case FREE:
      run_free(sim, operation->block);
      return; /* not freed here, because the operation is part of the block */
  }
  free(operation);
}

static void *work(void *argument) {
  struct stream *stream = argument;
  pthread_mutex_lock(&stream->mutex);
  for (;;) {
    while (!stream->first) pthread_cond_wait(&stream->issue, &stream->mutex);
    struct operation *operation = stream->first;
    stream->first = operation->next;
    if (!stream->first) stream->last = &stream->first;
    pthread_mutex_unlock(&stream->mutex);
    int64_t delay_us = atomic_load_explicit(&stream->sim->delay_us, memory_order_relaxed);
    if (delay_us) {
      struct timespec delay = {.tv_sec = delay_us / 1000000, .tv_nsec = delay_us % 1000000 * 1000};
      nanosleep(&delay, NULL);
    }
    execute(stream->sim, operation);
    pthread_mutex_lock(&stream->mutex);
    stream->completed++;
    pthread_cond_broadcast(&stream->completion);
  }
  return NULL;
}

static void issue(struct stream *stream, struct operation *operation) {
  operation->next = NULL;
  pthread_mutex_lock(&stream->mutex);
  *stream->last = operation;
  stream->last = &operation->next;
  stream->issued++;
  pthread_cond_signal(&stream->issue);
  pthread_mutex_unlock(&stream->mutex);
}

static void wait_for(struct stream *stream) {
  pthread_mutex_lock(&stream->mutex);
  int64_t issued = stream->issued;
  while (stream->completed < issued) pthread_cond_wait(&stream->completion, &stream->mutex);
  pthread_mutex_unlock(&stream->mutex);
}

static struct stream *streams_of(struct sim *sim) {
  pthread_mutex_lock(&sim->mutex);
  struct stream *first = sim->streams;
  pthread_mutex_unlock(&sim->mutex);
  return first;
}

static void wait_for_all(struct sim *sim) {
  for (struct stream *stream = streams_of(sim); stream; stream = stream->next) wait_for(stream);
}

/* Finds a stream that stream_create made. Refuses any other address, because a caller may pass any address as its own
 * stream. */
static int find_stream(oa_device *device, const char *operation, void *pointer, struct stream **result) {
  for (struct stream *stream = streams_of(device->state); stream; stream = stream->next) {
    if (stream == pointer) {
      *result = stream;
      return OA_OK;
    }
  }
  return oa_fail(OA_ERROR_BACKEND, "%s: %s failed: SIM_ERROR_INVALID_HANDLE: %p is not a stream of this device",
                 device->name, operation, pointer);
}

/* Begins a call on a stream: counts it, and finds the stream. */
static int start(oa_device *device, const char *operation, void *pointer, struct stream **stream) {
  const int status = count_call(device, "%s", operation);
  return status ? status : find_stream(device, operation, pointer, stream);
}

/* Begins a call on a stream; the call touches nbytes bytes. */
static int start_bytes(oa_device *device, const char *operation, size_t nbytes, void *pointer, struct stream **stream) {
  const int status = count_call(device, "%s of %zu bytes", operation, nbytes);
  return status ? status : find_stream(device, operation, pointer, stream);
}

static struct operation *operation_new(int kind, size_t nbytes) {
  struct operation *operation = nbytes <= PTRDIFF_MAX ? malloc(sizeof *operation + nbytes) : NULL;
  if (operation) {
    operation->kind = kind;
    operation->failed = false;
  }
  return operation;
}

/* -- the table ---------------------------------------------------------------------------------------------------- */

static int sim_count(int *count) {
  *count = DEVICES;
  return OA_OK;
}

static int sim_open(oa_device *device) {
  struct sim *sim = calloc(1, sizeof *sim);
  if (!sim) return no_host_memory(device, "open");
  sim->device = device;
  sim->newest = &sim->oldest;
  pthread_mutex_init(&sim->mutex, NULL);
  device->state = sim;
  device->reads_host = OA_READS_PAGES; /* not more: by default everything is copied */
  snprintf(device->model, sizeof device->model, "strict test device");
  return OA_OK;
}

static int sim_memory(oa_device *device, int64_t *free_bytes, int64_t *total_bytes) {
  int status = count_call(device, "memory");
  if (status) return status;
  struct sim *sim = device->state;
  struct sysinfo info;
  int64_t machine = sysinfo(&info) == 0 ? (int64_t)info.totalram * info.mem_unit : INT64_MAX;
  pthread_mutex_lock(&sim->mutex);
  *total_bytes = sim->capacity ? sim->capacity : machine;
  *free_bytes = *total_bytes > sim->used ? *total_bytes - sim->used : 0;
  pthread_mutex_unlock(&sim->mutex);
  return OA_OK;
}

/* Takes room for a block out of the capacity. Returns false if there is not enough. */
static bool reserve(struct sim *sim, size_t nbytes) {
  pthread_mutex_lock(&sim->mutex);
  int64_t limit = sim->capacity ? sim->capacity : INT64_MAX;
  bool fits = sim->used <= limit && nbytes <= (uint64_t)(limit - sim->used);
  if (fits) sim->used += (int64_t)nbytes;
  pthread_mutex_unlock(&sim->mutex);
  return fits;
}

static int sim_allocate(oa_device *device, void *pointer, size_t nbytes, uint64_t *address) {
  struct sim *sim = device->state;
  struct stream *stream = NULL;
  int status = start_bytes(device, "allocate", nbytes, pointer, &stream);
  if (status) return status;
  if (nbytes > PTRDIFF_MAX - 2 * RED_ZONE || !reserve(sim, nbytes)) {
    return oa_fail(OA_ERROR_MEMORY, "%s: allocate of %zu bytes failed: SIM_ERROR_OUT_OF_MEMORY", device->name, nbytes);
  }
  void *memory = NULL;
  struct block *block = malloc(sizeof *block);
  struct operation *fill = operation_new(FILL, 0);
  bool in_tree = false;
  if (block && fill && posix_memalign(&memory, RED_ZONE, nbytes + 2 * RED_ZONE) == 0) {
    block->address = (uintptr_t)memory + RED_ZONE;
    block->nbytes = nbytes;
    block->free.kind = FREE;
    block->free.block = block;
    memset(memory, RED, RED_ZONE);
    memset((char *)memory + RED_ZONE + nbytes, RED, RED_ZONE);
    pthread_mutex_lock(&sim->mutex);
    in_tree = tsearch(block, &sim->live, compare) != NULL;
    pthread_mutex_unlock(&sim->mutex);
  }
  if (!in_tree) {
    free(memory);
    free(fill);
    free(block);
    pthread_mutex_lock(&sim->mutex);
    sim->used -= (int64_t)nbytes;
    pthread_mutex_unlock(&sim->mutex);
    return no_host_memory(device, "allocate");
  }
  fill->fill.to = bytes_at(block->address);
  fill->fill.value = FRESH;
  fill->fill.unit = 1;
  fill->fill.pitch = fill->fill.width = nbytes;
  fill->fill.lines = 1;
  *address = block->address;
  issue(stream, fill);
  return OA_OK;
}

/* If a test makes a free fail, the failure is reported after the free was issued, so the address is invalid even
 * then. */
static int sim_free(oa_device *device, void *pointer, uint64_t address, size_t nbytes) {
  struct sim *sim = device->state;
  struct stream *stream = NULL;
  int failure = count_call(device, "free of %zu bytes", nbytes);
  int status = find_stream(device, "free", pointer, &stream);
  if (status) return status;
  struct block key = {.address = address, .nbytes = nbytes}, *block = NULL;
  pthread_mutex_lock(&sim->mutex);
  struct block *const *place = nbytes ? tfind(&key, &sim->live, compare) : NULL;
  if (place && (*place)->address == address && (*place)->nbytes == nbytes) {
    block = *place;
    tdelete(block, &sim->live, compare);
  }
  pthread_mutex_unlock(&sim->mutex);
  if (!block) {
    return oa_fail(
        OA_ERROR_BACKEND,
        "%s: free of %zu bytes failed: SIM_ERROR_INVALID_VALUE: no allocation of that size is live at 0x%" PRIx64,
        device->name, nbytes, address);
  }
  issue(stream, &block->free);
  return failure;
}

/* sim_pool checks and fills memory that goes to the core's pool, as if the memory were freed. sim_take checks and fills
 * memory from the pool, as if the memory were fresh. */
static void sim_pool(oa_device *device, uint64_t address, size_t nbytes) {
  struct sim *sim = device->state;
  unsigned char *memory = bytes_at(address);
  pthread_mutex_lock(&sim->mutex);
  check_red_zones(sim, memory, nbytes);
  pthread_mutex_unlock(&sim->mutex);
  memset(memory, FREED, nbytes);
}

static void sim_take(oa_device *device, uint64_t address, size_t nbytes) {
  struct sim *sim = device->state;
  unsigned char *memory = bytes_at(address);
  pthread_mutex_lock(&sim->mutex);
  check_freed(sim, memory, nbytes);
  pthread_mutex_unlock(&sim->mutex);
  memset(memory, FRESH, nbytes);
}

static void sim_fresh(oa_device *device, uint64_t address, size_t nbytes) {
  (void)device;
  memset(bytes_at(address), FRESH, nbytes);
}

static int sim_trim(oa_device *device) {
  struct sim *sim = device->state;
  int status = count_call(device, "trim");
  if (status) return status;
  wait_for_all(sim);
  pthread_mutex_lock(&sim->mutex);
  shrink_quarantine(sim, 0, 0);
  pthread_mutex_unlock(&sim->mutex);
  return OA_OK;
}

static int not_recorded(oa_device *device, const char *operation) {
  return oa_fail(OA_ERROR_BACKEND, "%s: %s failed: SIM_ERROR_CAPTURE: a graph has no such work", device->name,
                 operation);
}

/* Flags of a copy: the checks of its two sides, and whether it reads its source when it is issued. */
enum { CHECK_TO = 1, CHECK_FROM = 2, READ_NOW = 4 };

static int issue_copy(oa_device *device, const char *operation, void *pointer, int how, uint64_t to, size_t to_pitch,
                      uint64_t from, size_t from_pitch, size_t width, size_t lines) {
  const size_t nbytes = width * lines;
  struct stream *stream = NULL;
  int status = start_bytes(device, operation, nbytes, pointer, &stream);
  if (status || nbytes == 0) return status;
  if (how & CHECK_TO) status = check_range(device, operation, to, to_pitch, width, lines);
  if (!status && how & CHECK_FROM) status = check_range(device, operation, from, from_pitch, width, lines);
  if (status) return status;
  if (stream->recording && how & READ_NOW) return not_recorded(device, operation);
  if (stream->recording)
    return oa_recording_add_copy(stream->recording, bytes_at(to), to_pitch, bytes_at(from), from_pitch, width, lines)
               ? no_host_memory(device, operation)
               : OA_OK;
  struct operation *copy = operation_new(COPY, how & READ_NOW ? nbytes : 0);
  if (!copy) return no_host_memory(device, operation);
  copy->copy.to = bytes_at(to);
  copy->copy.from = bytes_at(from);
  copy->copy.to_pitch = to_pitch;
  copy->copy.from_pitch = from_pitch;
  copy->copy.width = width;
  copy->copy.lines = lines;
  if (how & READ_NOW) {
    oa_copy_lines(copy->data, width, bytes_at(from), from_pitch, width, lines);
    copy->copy.from = copy->data;
    copy->copy.from_pitch = width;
  }
  issue(stream, copy);
  return OA_OK;
}

static int sim_copy_up(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from,
                       size_t from_pitch, size_t width, size_t lines) {
  return issue_copy(device, "copy_up", stream, CHECK_TO | READ_NOW, to, to_pitch, (uintptr_t)from, from_pitch, width,
                    lines);
}

static int sim_copy_down(oa_device *device, void *stream, void *to, size_t to_pitch, uint64_t from, size_t from_pitch,
                         size_t width, size_t lines) {
  return issue_copy(device, "copy_down", stream, CHECK_FROM, (uintptr_t)to, to_pitch, from, from_pitch, width, lines);
}

static int sim_copy_up_later(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from,
                             size_t from_pitch, size_t width, size_t lines) {
  return issue_copy(device, "copy_up_later", stream, CHECK_TO, to, to_pitch, (uintptr_t)from, from_pitch, width, lines);
}

static int sim_copy(oa_device *device, void *stream, uint64_t to, size_t to_pitch, uint64_t from, size_t from_pitch,
                    size_t width, size_t lines) {
  return issue_copy(device, "copy", stream, CHECK_TO | CHECK_FROM, to, to_pitch, from, from_pitch, width, lines);
}

/* The copy runs on this device's stream. The source device checks its own memory. */
static int sim_copy_peer(oa_device *device, void *stream, uint64_t to, size_t to_pitch, oa_device *source,
                         uint64_t from, size_t from_pitch, size_t width, size_t lines) {
  int status = width && lines ? count_call(source, "copy_peer of %zu bytes to %s", width * lines, device->name) : OA_OK;
  if (!status && width && lines) status = check_range(source, "copy_peer", from, from_pitch, width, lines);
  if (status) return status;
  return issue_copy(device, "copy_peer", stream, CHECK_TO, to, to_pitch, from, from_pitch, width, lines);
}

static int sim_pin(oa_device *device, size_t nbytes, void **memory) {
  struct sim *sim = device->state;
  int status = count_call(device, "pin of %zu bytes", nbytes);
  if (status) return status;
  struct block *block = calloc(1, sizeof *block);
  void *pinned = NULL;
  bool in_tree = false;
  if (block && nbytes <= PTRDIFF_MAX && posix_memalign(&pinned, RED_ZONE, nbytes) == 0) {
    block->address = (uintptr_t)pinned;
    block->nbytes = nbytes;
    pthread_mutex_lock(&sim->mutex);
    in_tree = tsearch(block, &sim->pins, compare) != NULL;
    pthread_mutex_unlock(&sim->mutex);
  }
  if (!in_tree) {
    free(pinned);
    free(block);
    return no_host_memory(device, "pin");
  }
  *memory = pinned;
  return OA_OK;
}

/* If a test makes an unpin fail, the failure is reported after the memory was unpinned. */
static int sim_unpin(oa_device *device, void *memory, size_t nbytes) {
  struct sim *sim = device->state;
  int failure = count_call(device, "unpin of %zu bytes", nbytes);
  struct block key = {.address = (uintptr_t)memory, .nbytes = nbytes}, *block = NULL;
  pthread_mutex_lock(&sim->mutex);
  struct block *const *place = nbytes ? tfind(&key, &sim->pins, compare) : NULL;
  if (place && (*place)->address == key.address && (*place)->nbytes == nbytes) {
    block = *place;
    tdelete(block, &sim->pins, compare);
  }
  pthread_mutex_unlock(&sim->mutex);
  if (!block) {
    return oa_fail(OA_ERROR_BACKEND, "%s: unpin failed: SIM_ERROR_INVALID_VALUE: no %zu bytes are pinned at %p",
                   device->name, nbytes, memory);
  }
  free(memory);
  free(block);
  return failure;
}

static bool sim_pinned(oa_device *device, const void *memory, size_t nbytes) {
  struct sim *sim = device->state;
  pthread_mutex_lock(&sim->mutex);
  const bool inside = is_inside(&sim->pins, (uintptr_t)memory, nbytes);
  pthread_mutex_unlock(&sim->mutex);
  return inside;
}

static int sim_fill(oa_device *device, void *pointer, uint64_t to, size_t pitch, uint32_t value, size_t unit,
                    size_t width, size_t lines) {
  struct stream *stream = NULL;
  int status = start_bytes(device, "fill", width * lines, pointer, &stream);
  if (status || width == 0 || lines == 0) return status;
  if ((unit != 1 && unit != 2 && unit != 4) || to % unit || width % unit || (lines > 1 && pitch % unit)) {
    return oa_fail(OA_ERROR_BACKEND, "%s: fill failed: SIM_ERROR_INVALID_VALUE: units of %zu bytes don't fit",
                   device->name, unit);
  }
  status = check_range(device, "fill", to, pitch, width, lines);
  if (status) return status;
  if (stream->recording)
    return oa_recording_add_fill(stream->recording, bytes_at(to), pitch, value, unit, width, lines)
               ? no_host_memory(device, "fill")
               : OA_OK;
  struct operation *fill = operation_new(FILL, 0);
  if (!fill) return no_host_memory(device, "fill");
  fill->fill.to = bytes_at(to);
  fill->fill.value = value;
  fill->fill.unit = unit;
  fill->fill.pitch = pitch;
  fill->fill.width = width;
  fill->fill.lines = lines;
  issue(stream, fill);
  return OA_OK;
}

static int sim_stream_create(oa_device *device, void **created) {
  struct sim *sim = device->state;
  int status = count_call(device, "stream_create");
  if (status) return status;
  struct stream *stream = calloc(1, sizeof *stream);
  if (!stream) return no_host_memory(device, "stream_create");
  stream->sim = sim;
  stream->last = &stream->first;
  pthread_mutex_init(&stream->mutex, NULL);
  pthread_cond_init(&stream->issue, NULL);
  pthread_cond_init(&stream->completion, NULL);
  int error = oa_start_thread(work, stream);
  if (error) {
    free(stream);
    return oa_fail(OA_ERROR_BACKEND, "%s: stream_create failed: no thread for it: %s", device->name,
                   error == EAGAIN ? "the limit of threads is reached" : "pthread_create refused");
  }
  pthread_mutex_lock(&sim->mutex);
  stream->next = sim->streams;
  sim->streams = stream;
  pthread_mutex_unlock(&sim->mutex);
  *created = stream;
  return OA_OK;
}

/* Returns whether a wait has to wait even though it is going to report this failure. A wait that a test makes fail does
 * not wait: after a driver's failed wait, too, the stream's work may still be under way. A wait that fails with
 * OA_ERROR_LOST waits for all work, because a lost device runs no more work afterwards. */
static bool may_wait(int failure) { return !failure || failure == OA_ERROR_LOST; }

static int sim_stream_synchronize(oa_device *device, void *pointer) {
  struct stream *stream = NULL;
  int failure = count_call(device, "stream_synchronize");
  int status = find_stream(device, "stream_synchronize", pointer, &stream);
  if (status) return status;
  if (may_wait(failure)) wait_for(stream);
  return failure ? failure : take_report(device->state);
}

static int sim_stream_done(oa_device *device, void *pointer, int *done) {
  struct stream *stream = NULL;
  const int status = start(device, "stream_done", pointer, &stream);
  if (status) return status;
  pthread_mutex_lock(&stream->mutex);
  *done = stream->completed == stream->issued;
  pthread_mutex_unlock(&stream->mutex);
  return OA_OK;
}

static int sim_stream_wait(oa_device *device, void *pointer, void *awaited) {
  struct event *event = awaited;
  struct stream *stream = NULL;
  int status = start(device, "stream_wait", pointer, &stream);
  if (status) return status;
  pthread_mutex_lock(&event->mutex);
  struct mark *mark = mark_share(event->last);
  pthread_mutex_unlock(&event->mutex);
  if (!mark) return OA_OK; /* the event was never recorded, so there is nothing to wait for */
  if (atomic_load_explicit(&((struct sim *)device->state)->unordered, memory_order_relaxed)) {
    mark_drop(mark);
    return OA_OK;
  }
  struct operation *wait = operation_new(WAIT, 0);
  if (!wait) {
    mark_drop(mark);
    return no_host_memory(device, "stream_wait");
  }
  wait->mark = mark;
  issue(stream, wait);
  return OA_OK;
}

static int sim_stream_capturing(oa_device *device, void *pointer, int *capturing) {
  struct stream *stream = NULL;
  int status = start(device, "stream_capturing", pointer, &stream);
  *capturing = !status && stream->recording;
  return status;
}

static int sim_graph_begin(oa_device *device, void **pointer) {
  struct stream *stream = NULL;
  int status = start(device, "graph_begin", *pointer, &stream);
  if (status) return status;
  stream->recording = oa_recording_new();
  return stream->recording ? OA_OK : no_host_memory(device, "graph_begin");
}

/* If a test makes graph_end fail, the failure is reported after the recording has ended. */
static int sim_graph_end(oa_device *device, void **pointer, void **graph) {
  struct stream *stream = NULL;
  const int failure = count_call(device, "graph_end"), status = find_stream(device, "graph_end", *pointer, &stream);
  *graph = NULL;
  if (status) return status;
  if (failure)
    oa_recording_drop(stream->recording);
  else
    *graph = stream->recording;
  stream->recording = NULL;
  return failure;
}

static int sim_graph_launch(oa_device *device, void *pointer, void *graph) {
  struct stream *stream = NULL;
  int status = start(device, "graph_launch", pointer, &stream);
  if (status) return status;
  if (stream->recording) return not_recorded(device, "graph_launch");
  if (oa_recording_is_here(graph)) {
    wait_for(stream);
    status = oa_recording_run(graph, false);
    return status < 0 ? no_host_memory(device, "graph_launch") : status;
  }
  struct operation *launch = operation_new(GRAPH, 0);
  if (!launch) return no_host_memory(device, "graph_launch");
  launch->graph = oa_recording_share(graph);
  issue(stream, launch);
  return OA_OK;
}

static int sim_graph_destroy(oa_device *device, void *graph) {
  const int failure = count_call(device, "graph_destroy");
  oa_recording_drop(graph);
  return failure;
}

static int sim_event_create(oa_device *device, void **created) {
  int status = count_call(device, "event_create");
  if (status) return status;
  struct event *event = calloc(1, sizeof *event);
  if (!event) return no_host_memory(device, "event_create");
  pthread_mutex_init(&event->mutex, NULL);
  *created = event;
  return OA_OK;
}

static int sim_event_record(oa_device *device, void *recorded, void *pointer) {
  struct event *event = recorded;
  struct stream *stream = NULL;
  int status = start(device, "event_record", pointer, &stream);
  if (status) return status;
  struct operation *record = operation_new(RECORD, 0);
  struct mark *mark = record ? mark_new() : NULL;
  if (!mark) {
    free(record);
    return no_host_memory(device, "event_record");
  }
  record->mark = mark_share(mark);
  pthread_mutex_lock(&event->mutex);
  struct mark *before = event->last;
  event->last = mark;
  pthread_mutex_unlock(&event->mutex);
  mark_drop(before);
  issue(stream, record);
  return OA_OK;
}

static int sim_event_destroy(oa_device *device, void *destroyed) {
  struct event *event = destroyed;
  int failure = count_call(device, "event_destroy");
  mark_drop(event->last);
  pthread_mutex_destroy(&event->mutex);
  free(event);
  return failure;
}

static int sim_event_done(oa_device *device, void *asked, int *done) {
  struct event *event = asked;
  int status = count_call(device, "event_done");
  if (status) return status;
  pthread_mutex_lock(&event->mutex);
  struct mark *mark = mark_share(event->last);
  pthread_mutex_unlock(&event->mutex);
  *done = 1;
  if (!mark) return OA_OK;
  pthread_mutex_lock(&mark->mutex);
  *done = mark->reached;
  pthread_mutex_unlock(&mark->mutex);
  mark_drop(mark);
  return OA_OK;
}

static int sim_event_synchronize(oa_device *device, void *awaited) {
  struct event *event = awaited;
  int failure = count_call(device, "event_synchronize");
  pthread_mutex_lock(&event->mutex);
  struct mark *mark = mark_share(event->last);
  pthread_mutex_unlock(&event->mutex);
  if (mark && may_wait(failure))
    mark_wait(mark);
  else
    mark_drop(mark);
  return failure;
}

static int sim_synchronize(oa_device *device) {
  int failure = count_call(device, "synchronize");
  if (may_wait(failure)) wait_for_all(device->state);
  return failure ? failure : take_report(device->state);
}

static int sim_submit(oa_device *device, void *pointer, void (*run)(void *), const void *arguments, size_t size) {
  struct stream *stream = NULL;
  int status = start(device, "submit", pointer, &stream);
  if (status) return status;
  if (stream->recording)
    return oa_recording_add(stream->recording, run, arguments, size) ? no_host_memory(device, "submit") : OA_OK;
  struct operation *operation = operation_new(RUN, size);
  if (!operation) return no_host_memory(device, "submit");
  operation->run = run;
  if (size) memcpy(operation->data, arguments, size);
  issue(stream, operation);
  return OA_OK;
}

const oa_backend oa_backend_sim = {
    .name = "sim",
    .flags = OA_DEVICE_HOST_CALLS | OA_DEVICE_SIMULATED | OA_PINNED_IN_PLACE,
    .count = sim_count,
    .open = sim_open,
    .memory = sim_memory,
    .allocate = sim_allocate,
    .free = sim_free,
    .pool = sim_pool,
    .take = sim_take,
    .fresh = sim_fresh,
    .trim = sim_trim,
    .copy_up = sim_copy_up,
    .copy_down = sim_copy_down,
    .copy_up_later = sim_copy_up_later,
    .pin = sim_pin,
    .unpin = sim_unpin,
    .pinned = sim_pinned,
    .copy = sim_copy,
    .copy_peer = sim_copy_peer,
    .peer_least = 1,
    .fill = sim_fill,
    .stream_create = sim_stream_create,
    .stream_synchronize = sim_stream_synchronize,
    .stream_done = sim_stream_done,
    .stream_wait = sim_stream_wait,
    .stream_capturing = sim_stream_capturing,
    .graph_begin = sim_graph_begin,
    .graph_end = sim_graph_end,
    .graph_launch = sim_graph_launch,
    .graph_destroy = sim_graph_destroy,
    .event_create = sim_event_create,
    .event_record = sim_event_record,
    .event_destroy = sim_event_destroy,
    .event_done = sim_event_done,
    .event_synchronize = sim_event_synchronize,
    .synchronize = sim_synchronize,
    .submit = sim_submit,
    .module_variable = sim_module_variable,
};

/* -- public ------------------------------------------------------------------------------------------------------- */

static int find_sim(int number, const char *function, oa_device **device) {
  const int status = oa_device_find(number, function, device);
  if (status || (*device)->backend == &oa_backend_sim) return status;
  return oa_fail(OA_ERROR_ARGUMENT, "%s: device %d is %s, needs a sim device", function, number, (*device)->name);
}

int oa_sim_configure(int number, int64_t capacity, int64_t fail_after, int64_t delay_us) {
  oa_device *device;
  int status = find_sim(number, "oa_sim_configure", &device);
  if (status) return status;
  struct sim *sim = device->state;
  if (capacity < 0 || delay_us < 0) {
    return oa_fail(OA_ERROR_ARGUMENT,
                   "oa_sim_configure: needs values of 0 or more, got capacity %" PRId64 ", delay_us %" PRId64, capacity,
                   delay_us);
  }
  if (fail_after < -INT64_MAX / 2 || fail_after > INT64_MAX / 2)
    return oa_fail(OA_ERROR_ARGUMENT, "oa_sim_configure: fail_after is too large, got %" PRId64, fail_after);
  pthread_mutex_lock(&sim->mutex);
  sim->capacity = capacity;
  pthread_mutex_unlock(&sim->mutex);
  atomic_store(&sim->fail_at, 0);
  /* The limit is read again, because it may be a percentage of the capacity. */
  if ((status = oa_device_read_limit(device))) return status;
  atomic_store(&sim->delay_us, delay_us);
  int64_t calls = atomic_load(&sim->calls);
  atomic_store(&sim->fail_base, calls);
  atomic_store(&sim->fail_at, fail_after > 0 ? calls + fail_after : fail_after ? fail_after - calls : 0);
  return OA_OK;
}

int oa_sim_order(int number, int ordered) {
  oa_device *device;
  const int status = find_sim(number, "oa_sim_order", &device);
  if (!status) atomic_store(&((struct sim *)device->state)->unordered, !ordered);
  return status;
}

int64_t oa_sim_backend_calls(int number) {
  oa_device *device;
  if (find_sim(number, "oa_sim_backend_calls", &device)) return -1;
  return atomic_load(&((struct sim *)device->state)->calls);
}
