/* Programs without Python: if OFFLOAD_ARGS_ACCELERATE is set when this library is loaded, for example by LD_PRELOAD,
 * calls of BLAS and LAPACK go to a device until the program ends. */
#include "accelerate/record.h"
#include "base/sized.h"
#include "offload_args/accelerate.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char variable[] = "OFFLOAD_ARGS_ACCELERATE";

/* The words of the variable. */
static char device_name[32];
static double margin = 1.25;
static bool is_reported;

enum { PATIENCE = 60 }; /* the most seconds that the program's end waits for a device that is being opened */
static atomic_bool is_ending;

static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER; /* guards the rest */
static int device = -1;
static char failure[512]; /* the reason why no call goes, or no call of LAPACK */

static void note_failure(void) { snprintf(failure, sizeof failure, "%s", oa_last_error()); }

static bool open_named(const char *name) {
  const int status = oa_device_open(name, &device);
  if (status) {
    note_failure();
    device = -1;
  }
  return !status;
}

static const char *plural(int64_t calls) { return calls == 1 ? "call" : "calls"; }

static void report_row(const oa_accelerate_row *row) {
  const int64_t sizes[] = {row->m, row->n, row->k};
  const char *separator = " ";
  fprintf(stderr, "%s", row->routine);
  for (int i = 0; i < 3; i++) {
    if (!sizes[i]) continue;
    fprintf(stderr, "%s%lld", separator, (long long)sizes[i]);
    separator = " x ";
  }
  fprintf(stderr, ": %lld %s, %lld went; CPU %.3g s, device %.3g s; moved %.3g MB", (long long)row->calls,
          plural(row->calls), (long long)row->gone, row->host_seconds, row->device_seconds,
          (double)(row->bytes_up + row->bytes_down) * 1e-6);
  for (int i = 0; i < OA_REFUSED_COUNT; i++)
    if (row->refused[i]) fprintf(stderr, "; %lld %s", (long long)row->refused[i], oa_accelerate_reason_text(i));
  fputc('\n', stderr);
}

static void report(void) {
  enum { ROWS = 256 };
  static oa_accelerate_row rows[ROWS];
  int64_t small, calls = 0, gone = 0, failed = 0;
  int count;
  if (oa_accelerate_read(rows, ROWS, &count, &small) || (!count && !small)) return;
  if (count > ROWS) count = ROWS;
  for (int i = 0; i < count; i++) {
    calls += rows[i].calls;
    gone += rows[i].gone;
    failed += rows[i].refused[OA_REFUSED_FAILED];
  }
  fprintf(stderr, "-- offload_args: %lld %s of BLAS and LAPACK, %lld went; %lld small ones did not count\n",
          (long long)calls, plural(calls), (long long)gone, (long long)small);
  for (int i = 0; i < count; i++) report_row(&rows[i]);
  if (failure[0]) fprintf(stderr, "%s\n", failure);
  char text[sizeof failure];
  if (failed && !oa_accelerate_read_failure(text, sizeof text))
    fprintf(stderr, "a call on the device failed: %s\n", text);
}

/* Runs before the exit handlers of a driver, if it is registered after the driver was opened. If a device is being
 * opened, waits for the end of this, because a driver may crash if its exit handlers run meanwhile; but not forever,
 * because a driver may hang. */
static void end(void) {
  static atomic_bool has_ended;
  struct timespec until;
  if (oa_record_is_child() || atomic_exchange(&has_ended, true)) return;
  atomic_store(&is_ending, true);
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += PATIENCE;
  if (pthread_mutex_timedlock(&opening, &until)) return;
  if (is_reported) report();
  oa_accelerate_stop();
  pthread_mutex_unlock(&opening);
}

/* Opens the device, and sends calls there, unless the program is ending. */
static void open_device(void) {
  oa_accelerate_rates rates = OA_SIZED(oa_accelerate_rates);
  pthread_mutex_lock(&opening);
  bool opened = false;
  if (!atomic_load(&is_ending))
    opened = strcmp(device_name, "auto") != 0 ? open_named(device_name) : open_named("cuda:0") || open_named("hip:0");
  if (opened && !atomic_load(&is_ending)) {
    failure[0] = 0;
    const bool measured = margin > 0 && !oa_accelerate_calibrate(device, &rates);
    if (oa_accelerate_use(device, measured ? &rates : NULL)) note_failure();
    atexit(end);
  }
  pthread_mutex_unlock(&opening);
}

static void open_lapack(void) {
  pthread_mutex_lock(&opening);
  if (device >= 0 && !atomic_load(&is_ending) && oa_accelerate_use_lapack(device)) note_failure();
  pthread_mutex_unlock(&opening);
}

static void *serve(void *unused) {
  (void)unused;
  for (;;) {
    oa_accelerate_asked asked = OA_SIZED(oa_accelerate_asked);
    int event;
    if (oa_accelerate_wait(&asked, &event) || event == OA_EVENT_STOPPED) return NULL;
    if (event == OA_EVENT_DEVICE) open_device();
    if (event == OA_EVENT_LAPACK) open_lapack();
  }
}

static bool start_thread(void) {
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's own threads get its signals */
  const int status = pthread_create(&thread, NULL, serve, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!status) pthread_detach(thread);
  return !status;
}

/* Reads "cuda:0,report,margin=1.5". Returns false for a word that is not known. */
static bool read_words(const char *text) {
  strcpy(device_name, "auto");
  for (const char *word = text; *word;) {
    const size_t length = strcspn(word, ",");
    if (length == 6 && strncmp(word, "report", length) == 0) {
      is_reported = true;
    } else if (length > 7 && strncmp(word, "margin=", 7) == 0) {
      char *end;
      margin = strtod(word + 7, &end);
      if (end != word + length || !(margin >= 0)) return false;
    } else if (word == text && length && length < sizeof device_name) {
      memcpy(device_name, word, length);
      device_name[length] = 0;
    } else {
      return false;
    }
    word += length + (word[length] == ',');
  }
  return true;
}

static __attribute__((constructor)) void begin(void) {
  const char *text = getenv(variable);
  if (!text || !*text) return;
  if (!read_words(text)) {
    fprintf(stderr, "%s=%s: needs a device or auto, then report, margin=NUMBER\n", variable, text);
    return;
  }
  const oa_accelerate_options options = OA_SIZED(oa_accelerate_options, .margin = margin, .price = OA_USUAL_PRICE,
                                                 .least = margin > 0 ? OA_USUAL_LEAST : 0);
  if (oa_accelerate_start(&options) || !start_thread()) {
    fprintf(stderr, "%s: %s\n", variable, oa_last_error());
    oa_accelerate_stop();
    return;
  }
  atexit(end);
  const bool is_gpu = strncmp(device_name, "host", 4) != 0 && strncmp(device_name, "sim", 3) != 0;
  if (is_gpu && margin > 0) return; /* it is opened when calls would have saved the time of opening it */
  open_device();
  if (margin == 0) open_lapack();
}
