/* The host as a device. The device has separate memory, to which bytes are copied. The device's libraries run on the
 * CPU. Every operation is complete when it returns, so every stream is NULL. During the recording of a graph, the
 * stream is the address of the recording. */
#include "device/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

enum { ALIGNMENT = 64 };

static int host_count(int *count) {
  *count = 1;
  return OA_OK;
}

/* Sets the model to the processor's name, if the system has it. */
static int host_open(oa_device *device) {
  struct utsname name;
  device->reads_host = OA_READS_PAGES; /* not more: copies show the mistakes that other devices would show */
  snprintf(device->model, sizeof device->model, "%s", uname(&name) == 0 ? name.machine : "CPU");
  FILE *file = fopen("/proc/cpuinfo", "re");
  if (!file) return OA_OK;
  char line[256];
  while (fgets(line, sizeof line, file)) {
    const char *value = strchr(line, ':');
    if (strncmp(line, "model name", 10) == 0 && value) {
      snprintf(device->model, sizeof device->model, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
      break;
    }
  }
  fclose(file);
  return OA_OK;
}

static int host_memory(oa_device *device, int64_t *free_bytes, int64_t *total_bytes) {
  struct sysinfo info;
  if (sysinfo(&info) != 0) return oa_fail(OA_ERROR_BACKEND, "%s: sysinfo failed", device->name);
  *free_bytes = (int64_t)info.freeram * info.mem_unit;
  *total_bytes = (int64_t)info.totalram * info.mem_unit;
  return OA_OK;
}

/* A pool of large memory. The system zeroes new memory page by page, which takes longer than filling it. So some freed
 * memory is kept for the next allocation of the same size. Large memory has large pages, as in NumPy. */
enum { LARGE = 1 << 20, LARGE_PAGE = 2 << 20, MOST_IDLE = 8 };
static const size_t most_idle_bytes = (size_t)256 << 20;
static struct {
  pthread_mutex_t mutex; /* a leaf */
  int count;
  size_t nbytes;
  struct {
    void *memory;
    size_t nbytes;
  } at[MOST_IDLE]; /* idle memory, the oldest first */
} idle = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Returns the bytes to allocate for nbytes. Large allocations have few different sizes, so that freed memory can be
 * used again. */
static size_t size_of(size_t nbytes) {
  const size_t unit = nbytes < LARGE ? ALIGNMENT : nbytes < 2 * LARGE_PAGE ? LARGE : LARGE_PAGE;
  return (nbytes + unit - 1) / unit * unit;
}

/* Takes piece i out of the pool. Called with the pool's mutex. */
static void *take_idle(int i) {
  void *memory = idle.at[i].memory;
  idle.nbytes -= idle.at[i].nbytes;
  for (idle.count--; i < idle.count; i++) idle.at[i] = idle.at[i + 1];
  return memory;
}

static int host_allocate(oa_device *device, void *stream, size_t nbytes, uint64_t *address) {
  (void)stream;
  void *memory = NULL;
  const size_t size = nbytes <= PTRDIFF_MAX - LARGE_PAGE ? size_of(nbytes) : 0;
  if (size >= LARGE) {
    pthread_mutex_lock(&idle.mutex);
    for (int i = idle.count - 1; i >= 0 && !memory; i--)
      if (idle.at[i].nbytes == size) memory = take_idle(i);
    pthread_mutex_unlock(&idle.mutex);
  }
  if (size && !memory) {
    memory = aligned_alloc(size % LARGE_PAGE ? ALIGNMENT : LARGE_PAGE, size);
#ifdef MADV_HUGEPAGE
    /* A failure has no effect, because this is only advice. */
    if (memory && size % LARGE_PAGE == 0) madvise(memory, size, MADV_HUGEPAGE);
#endif
  }
  if (!memory) return oa_fail(OA_ERROR_MEMORY, "%s: no memory for %zu bytes", device->name, nbytes);
  *address = (uintptr_t)memory;
  return OA_OK;
}

static int host_free(oa_device *device, void *stream, uint64_t address, size_t nbytes) {
  (void)device, (void)stream;
  const size_t size = size_of(nbytes);
  if (size < LARGE || size > most_idle_bytes) {
    free((void *)(uintptr_t)address);
    return OA_OK;
  }
  pthread_mutex_lock(&idle.mutex);
  while (idle.count == MOST_IDLE || idle.nbytes + size > most_idle_bytes) free(take_idle(0));
  idle.at[idle.count].memory = (void *)(uintptr_t)address;
  idle.at[idle.count++].nbytes = size;
  idle.nbytes += size;
  pthread_mutex_unlock(&idle.mutex);
  return OA_OK;
}

static int host_trim(oa_device *device) {
  (void)device;
  pthread_mutex_lock(&idle.mutex);
  while (idle.count) free(take_idle(0));
  pthread_mutex_unlock(&idle.mutex);
  return OA_OK;
}

static int host_copy_up(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from,
                        size_t from_pitch, size_t width, size_t lines) {
  (void)device, (void)stream;
  oa_copy_lines((void *)(uintptr_t)to, to_pitch, from, from_pitch, width, lines);
  return OA_OK;
}

static int host_copy(oa_device *device, void *stream, uint64_t to, size_t to_pitch, uint64_t from, size_t from_pitch,
                     size_t width, size_t lines);

static int host_copy_up_later(oa_device *device, void *stream, uint64_t to, size_t to_pitch, const void *from,
                              size_t from_pitch, size_t width, size_t lines) {
  return host_copy(device, stream, to, to_pitch, (uintptr_t)from, from_pitch, width, lines);
}

static int host_copy_down(oa_device *device, void *stream, void *to, size_t to_pitch, uint64_t from, size_t from_pitch,
                          size_t width, size_t lines) {
  (void)device, (void)stream;
  oa_copy_lines(to, to_pitch, (const void *)(uintptr_t)from, from_pitch, width, lines);
  return OA_OK;
}

static int host_pin(oa_device *device, size_t nbytes, void **memory) {
  uint64_t address = 0;
  const int status = host_allocate(device, NULL, nbytes, &address);
  *memory = (void *)(uintptr_t)address;
  return status;
}

static int host_unpin(oa_device *device, void *memory, size_t nbytes) {
  (void)device, (void)nbytes;
  free(memory);
  return OA_OK;
}

static bool host_pinned(oa_device *device, const void *memory, size_t nbytes) {
  (void)device, (void)memory, (void)nbytes;
  return false; /* the host does not distinguish pinned memory */
}

static int no_room(oa_device *device, const char *function) {
  return oa_fail(OA_ERROR_MEMORY, "%s: %s: no host memory to record it in a graph", device->name, function);
}

static int host_event_done(oa_device *device, void *event, int *finished) {
  (void)device, (void)event;
  *finished = 1;
  return OA_OK;
}

static int host_copy(oa_device *device, void *stream, uint64_t to, size_t to_pitch, uint64_t from, size_t from_pitch,
                     size_t width, size_t lines) {
  const void *source = (const void *)(uintptr_t)from;
  void *target = (void *)(uintptr_t)to;
  if (stream)
    return oa_recording_add_copy(stream, target, to_pitch, source, from_pitch, width, lines) ? no_room(device, "copy")
                                                                                             : OA_OK;
  oa_copy_lines(target, to_pitch, source, from_pitch, width, lines);
  return OA_OK;
}

static int host_fill(oa_device *device, void *stream, uint64_t to, size_t pitch, uint32_t value, size_t unit,
                     size_t width, size_t lines) {
  void *target = (void *)(uintptr_t)to;
  if (stream)
    return oa_recording_add_fill(stream, target, pitch, value, unit, width, lines) ? no_room(device, "fill") : OA_OK;
  oa_fill_lines(target, pitch, value, unit, width, lines);
  return OA_OK;
}

/* Outside of a recording, `run` receives the caller's own arguments. `run` may change the arguments, because the caller
 * does not read them afterwards. */
static int host_submit(oa_device *device, void *stream, void (*run)(void *), const void *arguments, size_t size) {
  if (stream) return oa_recording_add(stream, run, arguments, size) ? no_room(device, "submit") : OA_OK;
  run((void *)arguments);
  return OA_OK;
}

static int nothing(oa_device *device) {
  (void)device;
  return OA_OK;
}

static int no_object(oa_device *device, void **object) {
  (void)device;
  *object = NULL;
  return OA_OK;
}

static int nothing_with(oa_device *device, void *object) {
  (void)device, (void)object;
  return OA_OK;
}

static int nothing_between(oa_device *device, void *object, void *other) {
  (void)device, (void)object, (void)other;
  return OA_OK;
}

static int host_stream_capturing(oa_device *device, void *stream, int *capturing) {
  (void)device;
  *capturing = stream != NULL;
  return OA_OK;
}

static int host_graph_begin(oa_device *device, void **stream) {
  *stream = oa_recording_new();
  return *stream ? OA_OK : no_room(device, "graph_begin");
}

static int host_graph_end(oa_device *device, void **stream, void **graph) {
  (void)device;
  *graph = *stream;
  *stream = NULL;
  return OA_OK;
}

static int host_graph_launch(oa_device *device, void *stream, void *graph) {
  (void)stream;
  const int status = oa_recording_run(graph, false);
  return status < 0 ? oa_fail(OA_ERROR_MEMORY, "%s: no host memory to run a graph", device->name) : status;
}

static int host_graph_destroy(oa_device *device, void *graph) {
  (void)device;
  oa_recording_drop(graph);
  return OA_OK;
}

const oa_backend oa_backend_host = {
    .name = "host",
    .flags = OA_DEVICE_HOST_CALLS | OA_SYNCHRONOUS | OA_SINGLE,
    .count = host_count,
    .open = host_open,
    .memory = host_memory,
    .allocate = host_allocate,
    .free = host_free,
    .trim = host_trim,
    .copy_up = host_copy_up,
    .copy_down = host_copy_down,
    .copy_up_later = host_copy_up_later,
    .pin = host_pin,
    .unpin = host_unpin,
    .pinned = host_pinned,
    .copy = host_copy,
    .fill = host_fill,
    .stream_create = no_object,
    .stream_synchronize = nothing_with,
    .stream_wait = nothing_between,
    .stream_capturing = host_stream_capturing,
    .graph_begin = host_graph_begin,
    .graph_end = host_graph_end,
    .graph_launch = host_graph_launch,
    .graph_destroy = host_graph_destroy,
    .event_create = no_object,
    .event_record = nothing_between,
    .event_destroy = nothing_with,
    .event_done = host_event_done,
    .event_synchronize = nothing_with,
    .synchronize = nothing,
    .submit = host_submit,
};
