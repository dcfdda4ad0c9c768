/* AMD GPUs through libamdhip64 of HIP 5, 6 and 7, which is loaded at run time. The prototypes are our own (hip.def). */
#define _GNU_SOURCE /* dladdr, strverscmp */
#include "device/backend.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *gpu_address;

struct pointer_attributes {
  int type; /* the values of `type` changed with HIP 6 */
  int device;
  void *on_device, *on_host;
  int is_managed;
  unsigned flags;
};

enum { /* constants of the driver that only this file uses */
       ATTRIBUTE_COOPERATIVE = 10,
       ATTRIBUTE_BLOCK_X = 26, /* y and z follow */
       ATTRIBUTE_GRID_X = 29,  /* y and z follow */
       ATTRIBUTE_MULTIPROCESSORS = 63,
       ATTRIBUTE_SHARED_PER_BLOCK = 74,
       ATTRIBUTE_COMPUTE_MAJOR = 23,
       ATTRIBUTE_COMPUTE_MINOR = 61,
       ATTRIBUTE_PAGEABLE_MEMORY_ACCESS = 65,
       ATTRIBUTE_HOST_PAGE_TABLES = 66,
       ATTRIBUTE_MEMORY_POOLS = 88,
       NO_DEVICE = 100,
       INVALID_DEVICE = 101,
       KIND_UP = 1, /* kinds of copies */
       KIND_DOWN = 2,
       KIND_DEVICE = 3, /* KIND_DEVICE: either side may also be pinned memory */
       HOST_5 = 0,      /* types of memory, by HIP's major version */
       PLAIN_6 = 0,
       HOST_6 = 1,
       ARCHITECTURE_5 = 396, /* byte offsets in the properties of a device */
       ARCHITECTURE_6 = 1160
};

#define DRIVER_DEF "hip.def"
#define DRIVER_LIBRARY "libamdhip64"
#define OLDEST "HIP 5.2"
#define VENDOR "AMD"
#define NEEDS_POOLS 0
#define KEEPS_IMAGES 1
#define STAGES_LINES 0
#define ENTERS_RELAXED 1
#include "gpu.inc"

/* -- loading ------------------------------------------------------------------------------------------------------ */

/* Functions that return no code, or that some releases lack; NULL if missing. */
static const char *(*error_name)(int code), *(*error_text)(int code);
static int (*properties_5)(void *properties, int number), (*properties_6)(void *properties, int number);

static const char *code_name(int code) {
  const char *name = error_name ? error_name(code) : NULL;
  return name ? name : "unknown error";
}

static const char *code_text(int code) {
  const char *text = error_text ? error_text(code) : NULL;
  return text ? text : "no description";
}

static const char *advice(int code) {
  if (code != NO_DEVICE && code != INVALID_DEVICE) return "";
  return "; HIP is installed, but there is no AMD GPU that this process may see and use (/dev/kfd, the group render, "
         "HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES?)";
}

/* Returns HIP's major version. */
static int major_version(void) { return driver_version / 10000000; }

static const char *const sonames[] = {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
enum { SONAMES = sizeof sonames / sizeof *sonames };

static char tried[OA_TEXT_BYTES - 512]; /* every place that was tried, cut to the size of this buffer */

static void note(const char *place, const char *inside) {
  const size_t length = strlen(tried);
  snprintf(tried + length, sizeof tried - length, "%s%s%s", length ? "; " : "", place, inside);
}

/* Loads the file; a path begins with a slash. */
static void *open_file(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library) return library;
  /* Keep the first failure to load a file that exists: the file may need another library, which is missing. */
  const char *why = dlerror();
  const size_t length = strlen(path);
  const char *slash = strrchr(path, '/');
  const bool is_absent = !why || (strncmp(why, path, length) == 0 && strstr(why, "No such file"));
  if (!is_absent && !*driver_missing)
    snprintf(driver_missing, sizeof driver_missing / 4, "%s could not be loaded: %s", slash ? slash + 1 : path, why);
  return NULL;
}

/* Loads the library from the folder, or, if `folder` is "", from the system's folders. */
static void *open_in(const char *folder) {
  void *library = NULL;
  for (int i = 0; i < SONAMES && !library; i++) {
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s%s%s", folder, *folder ? "/" : "", sonames[i]);
    if (length >= 0 && (size_t)length < sizeof path) library = open_file(path);
  }
  return library;
}

/* Loads one of the files that the finder names. */
static void *open_found(void) {
  char places[4096], *rest = NULL;
  void *library = NULL;
  snprintf(places, sizeof places, "%s", oa_driver_places());
  for (char *line = strtok_r(places, "\n", &rest); line && !library; line = strtok_r(NULL, "\n", &rest)) {
    if (*line == '/') library = open_file(line);
    note(line, "");
  }
  return library;
}

static int newest_first(const void *a, const void *b) { return strverscmp(*(char *const *)b, *(char *const *)a); }

/* Loads the library from a folder in `root` that matches the pattern. Tries the highest version first. */
static void *open_among(const char *root, const char *pattern) {
  char path[4096];
  glob_t folders = {0};
  void *library = NULL;
  const int length = snprintf(path, sizeof path, "%s%s", root, pattern);
  if (*root != '/' || length < 0 || (size_t)length >= sizeof path || glob(path, 0, NULL, &folders)) return NULL;
  qsort(folders.gl_pathv, folders.gl_pathc, sizeof *folders.gl_pathv, newest_first);
  for (size_t i = 0; i < folders.gl_pathc && !library; i++) library = open_in(folders.gl_pathv[i]);
  globfree(&folders);
  return library;
}

/* Returns the folder that has offload_args as a Python package, or "". The caller's buffer has PATH_MAX bytes. */
static const char *package_folder(char *folder) {
  Dl_info info;
  if (!dladdr((const void *)open_among, &info) || !realpath(info.dli_fname, folder)) return "";
  char *slash = strrchr(folder, '/');
  if (slash) *slash = 0;
  slash = strrchr(folder, '/');
  if (!slash || strcmp(slash, "/offload_args") != 0) return "";
  *slash = 0;
  return folder;
}

/* Takes a library that the process has loaded. If the process has loaded none, searches the finder's places, a folder
 * beside this Python package, ROCM_PATH, /opt and the system's folders. A minimal install of ROCm 7.14 and later has
 * its libraries only in core-X.Y. */
static void *find_driver(void) {
  char packages[PATH_MAX];
  const char *rocm = getenv("ROCM_PATH");
  if (!rocm) rocm = "";
  const char *const places[][2] = {{package_folder(packages), "/_rocm_sdk_core/lib"},
                                   {rocm, "/lib"},
                                   {rocm, "/core-*/lib"},
                                   {"/opt/rocm", "/lib"},
                                   {"/opt/rocm", "/core-*/lib"},
                                   {"/opt", "/rocm-*/lib"}};
  void *library = NULL;
  for (int i = 0; i < SONAMES && !library; i++) library = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (!library) library = open_found();
  if (!*rocm) note("ROCM_PATH is not set", "");
  for (size_t i = 0; i < sizeof places / sizeof *places && !library; i++) {
    library = open_among(places[i][0], places[i][1]);
    if (*places[i][0]) note(places[i][0], places[i][1]);
  }
  note("where the system looks", "");
  return library ? library : open_in("");
}

static void *open_driver(void) {
  void *library = find_driver();
  if (!library) {
    const size_t length = strlen(driver_missing);
    snprintf(driver_missing + length, sizeof driver_missing - length, "%s (tried %s)",
             length ? "" : "libamdhip64.so not found: no ROCm", tried);
    return NULL;
  }
  *driver_missing = 0;
  *(void **)&error_name = dlsym(library, "hipGetErrorName");
  *(void **)&error_text = dlsym(library, "hipGetErrorString");
  *(void **)&properties_5 = dlsym(library, "hipGetDeviceProperties");
  *(void **)&properties_6 = dlsym(library, "hipGetDevicePropertiesR0600");
  return library;
}

/* Sets the model to the device's name and the target for which code has to be compiled: "AMD Instinct MI210
 * (gfx90a:sramecc+:xnack-)". */
static int describe(oa_device *device, int number) {
  enum { MOST = 16384 };
  int code = driver.device_name(device->model, sizeof device->model, number);
  if (code) return failed(device, code, names.device_name, 0, 0);
  char *properties = calloc(1, MOST);
  if (!properties) return oa_fail(OA_ERROR_MEMORY, "%s: out of host memory", device->name);
  const char *architecture = properties + (properties_6 ? ARCHITECTURE_6 : ARCHITECTURE_5);
  code = properties_6   ? properties_6(properties, device->index)
         : properties_5 ? properties_5(properties, device->index)
                        : 1;
  const size_t length = strlen(device->model);
  if (code == SUCCESS && strncmp(architecture, "gfx", 3) == 0)
    snprintf(device->model + length, sizeof device->model - length, "%s(%.63s)", length ? " " : "", architecture);
  free(properties);
  return OA_OK;
}

/* -- the current device ------------------------------------------------------------------------------------------- */

/* The part of a device's state that only the HIP backend has. */
struct own_stream {
  struct own_stream *next;
  gpu_stream native;
  atomic_bool is_exposed; /* programs may capture the stream */
};
enum { RELAYS = 8 };
struct extra {
  gpu_address token; /* memory that only a reset of the device frees, because this backend never does */
  size_t token_bytes;
  _Atomic(struct own_stream *) streams; /* a list of this backend's streams; none of them is destroyed or removed */
  _Atomic(gpu_stream) relays[RELAYS];   /* streams that follow callers' streams, see record_event */
};

enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_RELAXED = 2, CONTEXT_IS_DESTROYED = 709, FIRST_WITHOUT_CHECKS = 7 };

/* Returns CONTEXT_IS_DESTROYED if the token is gone, otherwise SUCCESS. HIP records each allocation, so this query
 * reads no freed memory. A query of a stream, an event or a pool that is gone would make HIP 7 read freed
 * memory. Other memory at the token's address would pass this test only with the same odd size. */
static int find_token(const struct extra *extra) {
  enum { INVALID_VALUE = 1, INVALID_POINTER = 17 };
  gpu_address start = NULL;
  size_t nbytes = 0;
  const int code = driver.address_range(&start, &nbytes, extra->token);
  if (code == SUCCESS && start == extra->token && nbytes == extra->token_bytes) return SUCCESS;
  return code == SUCCESS || code == INVALID_VALUE || code == INVALID_POINTER || code == NOT_FOUND ? CONTEXT_IS_DESTROYED
                                                                                                  : code;
}

static int make_extra(oa_device *device) {
  enum { ODD_BYTES = 4093 };
  struct gpu *gpu = device->state;
  struct extra *extra = calloc(1, sizeof *extra);
  gpu_address start = NULL;
  if (!extra) return oa_fail(OA_ERROR_MEMORY, "%s: out of host memory", device->name);
  int code = driver.allocate_now(&extra->token, ODD_BYTES);
  if (!code) code = driver.address_range(&start, &extra->token_bytes, extra->token);
  if (code) {
    free(extra);
    return failed(device, code, names.allocate_now, 1, ODD_BYTES);
  }
  gpu->extra = extra;
  return OA_OK;
}

static struct extra *extra_of(const oa_device *device) {
  const struct gpu *gpu = device->state;
  return gpu ? gpu->extra : NULL;
}

/* Hides failures of this backend's calls from the program, which may query the failures of its own calls. An earlier
 * failure of the program is lost, because each failure replaces the failure before it. */
static void forget_error(void) { driver.last_error(); }

/* HIP 7 does not record this status, and keeps the program's own failure. */
static void forget_not_ready(void) {
  if (major_version() < 7) forget_error();
}

static int set_mode(int mode) {
  if (driver.exchange_capture_mode) driver.exchange_capture_mode(&mode);
  return mode;
}

static int restore(const oa_device *device, int current, int mode) {
  if (mode != CAPTURE_RELAXED) set_mode(mode);
  return current == device->index ? SUCCESS : driver.set_device(current);
}

static __attribute__((cold, noinline)) int fail_to_enter(oa_device *device, int code, const char *function, int current,
                                                         int mode) {
  const int status = failed(device, code, function, 0, 0);
  forget_error();
  oa_saved_error first;
  oa_error_save(&first);
  restore(device, current, mode);
  oa_error_restore(&first);
  return status;
}

/* Makes the device current, and sets the mode in which captures of other threads forbid this thread nothing. While a
 * program captures any stream for all threads, HIP refuses waits, queries and allocations, and HIP 7 also ends the
 * capture. Vendors' functions also wait, query and allocate, so the permission lasts until gpu_leave. A device that was
 * reset is refused. *saved: 4 * (1 + the former device) + 1 + the thread's former mode. Each of the two parts is 0 if
 * gpu_enter did not change it. */
static int gpu_enter(oa_device *device, void **saved) {
  int current = -1;
  *saved = NULL;
  if (OA_UNLIKELY(atomic_load_explicit(&device->stuck, memory_order_relaxed))) return fail_stuck(device);
  int code = driver.current_device(&current);
  if (OA_UNLIKELY(code)) return failed(device, code, names.current_device, 0, 0);
  const int mode = set_mode(CAPTURE_RELAXED);
  const struct extra *extra = extra_of(device);
  if (OA_UNLIKELY(current != device->index) && (code = driver.set_device(device->index)))
    return fail_to_enter(device, code, names.set_device, device->index, mode);
  if (OA_UNLIKELY(extra && (code = find_token(extra))))
    return fail_to_enter(device, code, names.address_range, current, mode);
  *saved =
      (void *)(intptr_t)(4 * (current == device->index ? 0 : current + 1) + (mode == CAPTURE_RELAXED ? 0 : mode + 1));
  return OA_OK;
}

static int gpu_leave(oa_device *device, void *saved) {
  const int parts = (int)(intptr_t)saved;
  if (OA_UNLIKELY(!parts)) return OA_OK;
  const int code =
      restore(device, parts / 4 ? parts / 4 - 1 : device->index, parts % 4 ? parts % 4 - 1 : CAPTURE_RELAXED);
  return code ? failed(device, code, names.set_device, 0, 0) : OA_OK;
}

/* In HIP, the only sign of a reset is that objects are gone. CONTEXT_IS_DESTROYED as a call's code does not show a
 * reset: before HIP 7, HIP returns it for any unknown stream, such as a stream that the program has destroyed. */
static bool was_reset(oa_device *device, int code) {
  enum { INVALID_CONTEXT = 201 };
  const struct extra *extra = extra_of(device);
  return code == INVALID_CONTEXT || (extra && find_token(extra) == CONTEXT_IS_DESTROYED);
}

/* -- callers' streams ------------------------------------------------------------------------------------------ */

static int note_stream(oa_device *device, gpu_stream stream) {
  struct extra *extra = extra_of(device);
  struct own_stream *entry = malloc(sizeof *entry);
  if (!entry) return oa_fail(OA_ERROR_MEMORY, "%s: out of host memory", device->name);
  *entry = (struct own_stream){.next = atomic_load(&extra->streams), .native = stream};
  while (!atomic_compare_exchange_weak(&extra->streams, &entry->next, entry)) continue;
  return OA_OK;
}

static struct own_stream *find_own(const oa_device *device, gpu_stream stream) {
  struct own_stream *own = atomic_load(&extra_of(device)->streams);
  while (own && own->native != stream) own = own->next;
  return own;
}

static void hip_stream_expose(oa_device *device, void *stream) {
  struct own_stream *own = find_own(device, stream);
  if (own) atomic_store(&own->is_exposed, true);
}

/* Returns whether this backend made the stream, and no program may capture it. */
static bool is_own(const oa_device *device, gpu_stream stream) {
  const struct own_stream *own = find_own(device, stream);
  return own && !atomic_load(&own->is_exposed);
}

/* Checks a stream by a query of its number. Other functions of HIP 7 use any stream unchecked. The first releases of
 * HIP 7 lack this query. */
static int check_stream(gpu_stream stream, const char **function) {
  unsigned long long number;
  *function = names.stream_number;
  if (!stream || major_version() < FIRST_WITHOUT_CHECKS || !driver.stream_number) return SUCCESS;
  return driver.stream_number(stream, &number);
}

/* Sets *relay to the stream of this backend that follows a caller's stream. Several callers' streams may share a
 * relay. */
static int find_relay(oa_device *device, gpu_stream stream, gpu_stream *relay) {
  struct extra *extra = extra_of(device);
  _Atomic(gpu_stream) *place = &extra->relays[((uintptr_t)stream >> 6) % RELAYS];
  gpu_stream none = NULL;
  if ((*relay = atomic_load(place))) return SUCCESS;
  const int code = driver.stream_create(relay, STREAM_NON_BLOCKING);
  /* Another thread was faster and has set this relay. */
  if (!code && !atomic_compare_exchange_strong(place, &none, *relay)) *relay = none;
  return code;
}

static int instantiate(gpu_graph *instance, gpu_graph graph) {
  return driver.graph_instantiate(instance, graph, NULL, NULL, 0);
}

/* When an event is queried or waited for, HIP 7 uses the stream in which it was recorded. The caller may have destroyed
 * that stream, or may capture it, and a query would end the capture. So the event is recorded again, in a stream of
 * this backend that waits for the first record. */
static int record_event(oa_device *device, gpu_event event, gpu_stream stream) {
  int capturing = 0, code = driver.event_record(event, stream);
  if (major_version() < FIRST_WITHOUT_CHECKS || code || !stream || is_own(device, stream)) return code;
  gpu_stream relay;
  if ((code = driver.stream_capturing(stream, &capturing)) || capturing) return code;
  if ((code = find_relay(device, stream, &relay))) return code;
  code = driver.stream_wait(relay, event, 0);
  return code ? code : driver.event_record(event, relay);
}

/* -- waiting ------------------------------------------------------------------------------------------------------ */

/* Polls an event until it has happened. */
static int poll_event(gpu_event event) {
  int code;
  while ((code = driver.event_query(event)) == NOT_READY) usleep(50);
  forget_error();
  return code;
}

/* Before HIP 7, no mode lets a thread wait while a stream is captured for all threads, but the thread may query an
 * event. */
static bool must_ask(int code) { return OA_UNLIKELY(code == CAPTURE_UNSUPPORTED) && major_version() < 7; }

static int wait_for_event(gpu_event event) {
  const int code = driver.event_synchronize(event);
  return must_ask(code) ? poll_event(event) : code;
}

static __attribute__((cold, noinline)) int wait_beside_captures(gpu_stream stream) {
  gpu_event event;
  int capturing = 0, code = driver.stream_capturing(stream, &capturing);
  if (code || capturing) return code ? code : CAPTURE_UNSUPPORTED;
  if ((code = driver.event_create(&event, EVENT_DISABLE_TIMING))) return code;
  code = driver.event_record(event, stream);
  if (!code) code = poll_event(event);
  driver.event_destroy(event);
  return code;
}

static int wait_for_stream(gpu_stream stream) {
  const int code = driver.stream_synchronize(stream);
  return must_ask(code) ? wait_beside_captures(stream) : code;
}

/* Waits for the streams of this backend, on which nearly all memory is freed. A wait for the device would make HIP 7
 * end all captures of the process. */
static int wait_for_frees(oa_device *device) {
  int code = SUCCESS;
  const struct own_stream *own = atomic_load(&extra_of(device)->streams);
  for (; own && !code; own = own->next) {
    code = wait_for_stream(own->native);
    if (code == CAPTURE_UNSUPPORTED) code = SUCCESS; /* the program captures this stream */
  }
  return code;
}

static int pin_memory(void **memory, size_t nbytes) { return driver.pin(memory, nbytes, HOST_PORTABLE); }

static int unpin_memory(void *memory) { return driver.unpin(memory); }

/* -- memory ------------------------------------------------------------------------------------------------------- */

static int allocate_memory(gpu_pool pool, gpu_address *address, size_t nbytes, gpu_stream stream,
                           const char **function) {
  *function = pool ? names.allocate : names.allocate_now;
  return pool ? driver.allocate(address, nbytes, pool, stream) : driver.allocate_now(address, nbytes);
}

/* Without a pool, hipFree first waits for the whole device. */
static int free_memory(gpu_pool pool, gpu_address address, gpu_stream stream, const char **function) {
  *function = pool ? names.free : names.free_now;
  return pool ? driver.free(address, stream) : driver.free_now(address);
}

static enum memory_kind memory_kind(const void *memory) {
  struct pointer_attributes attributes = {0};
  if (driver.pointer_attributes(&attributes, memory) != SUCCESS) { /* HIP 5 fails for plain memory */
    forget_error();
    return MEMORY_PLAIN;
  }
  if (attributes.is_managed) return MEMORY_OTHER;
  if (major_version() < 6) return attributes.type == HOST_5 ? MEMORY_PINNED : MEMORY_OTHER;
  return attributes.type == PLAIN_6 ? MEMORY_PLAIN : attributes.type == HOST_6 ? MEMORY_PINNED : MEMORY_OTHER;
}

/* Copies between addresses in memory that HIP has allocated or pinned. Does not use the default kind of copies, which
 * makes HIP inspect the addresses: HIP then copies unknown memory (such as memory of a device that was reset) on the
 * host, and HIP 5.7 adds the offset of a pinned address twice in 2-D copies. */
static int copy_any(uint64_t to, uint64_t from, size_t nbytes, gpu_stream stream) {
  return driver.copy((gpu_address)to, (gpu_address)from, nbytes, KIND_DEVICE, stream);
}

static int copy_2d(enum copy_kind kind, uint64_t to, size_t to_pitch, uint64_t from, size_t from_pitch, size_t width,
                   size_t lines, gpu_stream stream) {
  static const int kinds[] = {[COPY_UP] = KIND_UP, [COPY_DOWN] = KIND_DOWN, [COPY_ANY] = KIND_DEVICE};
  return driver.copy_2d((void *)to, to_pitch, (const void *)from, from_pitch, width, lines, kinds[kind], stream);
}

static int copy_peer_1d(const oa_device *device, uint64_t to, const oa_device *source, uint64_t from, size_t nbytes,
                        gpu_stream stream) {
  return driver.copy_peer((void *)to, device->index, (const void *)from, source->index, nbytes, stream);
}

/* Copies line by line, because HIP's copy of rectangles needs access to the other device's memory, and may fault
 * without it. Refuses short lines, because many short copies take longer than a single copy through the host. */
static int copy_peer_2d(const oa_device *device, uint64_t to, size_t to_pitch, const oa_device *source, uint64_t from,
                        size_t from_pitch, size_t width, size_t lines, gpu_stream stream) {
  enum { SHORT = 64 << 10, NOT_SUPPORTED = 801 };
  if (width < SHORT) return NOT_SUPPORTED;
  int code = SUCCESS;
  for (size_t i = 0; i < lines && code == SUCCESS; i++)
    code = copy_peer_1d(device, to + i * to_pitch, source, from + i * from_pitch, width, stream);
  return code;
}

/* HIP fills rectangles only with bytes, so other values are filled line by line. */
static int fill_2d(uint64_t to, size_t pitch, uint32_t value, size_t unit, size_t width, size_t lines,
                   gpu_stream stream) {
  const uint32_t byte = value & 0xff, mask = unit == 4 ? UINT32_MAX : (1u << (8 * unit)) - 1;
  if ((value & mask) == (byte * 0x01010101u & mask))
    return driver.fill_2d_8((void *)to, pitch, (int)byte, width, lines, stream);
  int code = SUCCESS;
  for (size_t i = 0; i < lines && code == SUCCESS; i++) code = fill_line(to + i * pitch, value, unit, width, stream);
  return code;
}

/* -- kernels ------------------------------------------------------------------------------------------------------ */

/* HIP rounds the limit up to whole waves, so the result may be above the limit. */
static int good_block(gpu_function function, int most_threads, int *threads) {
  int grid = 0;
  const int code = driver.occupancy(&grid, threads, function, 0, most_threads);
  if (*threads > most_threads || *threads < 1) *threads = most_threads;
  return code;
}

/* HIP needs no opt-in for more shared memory than *shared_bytes, and has no clusters. */
static int read_more_info(int number, oa_kernel_info *info, int *shared_bytes) {
  (void)number;
  (void)shared_bytes;
  info->clusters = 0;
  if (!driver.launch_cooperative) info->cooperative = 0; /* HIP before 5.3 has no cooperative launches */
  return SUCCESS;
}

static int permit_shared(gpu_function function, int nbytes) {
  (void)function;
  (void)nbytes;
  return SUCCESS;
}

static int launch_with_attributes(gpu_function function, const oa_launch *l, gpu_stream stream, void **arguments) {
  return driver.launch_cooperative(function, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2],
                                   (unsigned)l->shared_bytes, stream, arguments);
}

/* HIP does not report parameters; the binary's metadata has them. */
static void read_parameter(gpu_function function, size_t number, size_t *offset, size_t *nbytes) {
  (void)function;
  (void)number;
  *offset = 0;
  *nbytes = SIZE_MAX;
}

const oa_backend oa_backend_hip = {
    .name = "hip",
    .flags = OA_DEVICE_GPU | OA_PINNED_IN_PLACE | OA_COUNTS_THREADS | OA_ASKS_FINDER,
    .dlpack_type = 10, /* kDLROCM */
    GPU_ENTRIES,
    .stream_expose = hip_stream_expose,
};
