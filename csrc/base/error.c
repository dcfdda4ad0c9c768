#include "base/error.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_error[OA_TEXT_BYTES];
static _Thread_local char last_warning[OA_TEXT_BYTES];

/* Formats into a separate buffer first, because an argument may be the text that is being replaced. */
static void set_text(char *to, const char *format, va_list arguments) {
  char text[OA_TEXT_BYTES];
  vsnprintf(text, sizeof text, format, arguments);
  memcpy(to, text, strlen(text) + 1);
}

int oa_fail(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_text(last_error, format, arguments);
  va_end(arguments);
  return status;
}

int oa_fail_in(int status, const char *format, ...) {
  char asker[OA_TEXT_BYTES];
  va_list arguments;
  va_start(arguments, format);
  set_text(asker, format, arguments);
  va_end(arguments);
  return oa_fail(status, "%s: %s", asker, last_error);
}

void oa_warn(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_text(last_warning, format, arguments);
  va_end(arguments);
}

/* The warning of the process. Only the first call of oa_warn_process sets it, because the core has only one such
 * warning. */
static pthread_mutex_t process_mutex = PTHREAD_MUTEX_INITIALIZER;
static char process_warning[OA_TEXT_BYTES];
static atomic_int process_state; /* 0: no warning yet; 1: the warning is to be reported; 2: it was reported */

void oa_warn_process(const char *format, ...) {
  va_list arguments;
  if (atomic_load(&process_state)) return;
  va_start(arguments, format);
  pthread_mutex_lock(&process_mutex);
  if (!process_state) {
    set_text(process_warning, format, arguments);
    atomic_store(&process_state, 1);
  }
  pthread_mutex_unlock(&process_mutex);
  va_end(arguments);
}

const char *oa_take_warning(void) {
  int pending = 1;
  if (OA_LIKELY(atomic_load_explicit(&process_state, memory_order_relaxed) != 1)) return NULL;
  return atomic_compare_exchange_strong(&process_state, &pending, 2) ? process_warning : NULL;
}

void oa_error_save(oa_saved_error *saved) { memcpy(saved->text, last_error, strlen(last_error) + 1); }
void oa_error_restore(const oa_saved_error *saved) { memcpy(last_error, saved->text, strlen(saved->text) + 1); }

const char *oa_last_error(void) { return last_error; }
const char *oa_last_warning(void) { return last_warning; }

static const char *const status_names[OA_STATUS_COUNT] = {
#define OA_STATUS(name) [OA_##name] = "OA_" #name,
#include "offload_args/statuses.def"
#undef OA_STATUS
};

const char *oa_status_name(int status) {
  return status >= 0 && status < OA_STATUS_COUNT ? status_names[status] : "unknown status";
}

static const struct {
  const char *name;
  signed char nbytes;
} dtypes[OA_DTYPE_COUNT] = {
#define OA_DTYPE(name, type, nbytes, kind, text) [OA_##name] = {text, nbytes},
#include "offload_args/dtypes.def"
#undef OA_DTYPE
};

int64_t oa_itemsize(int dtype) { return dtype >= 0 && dtype < OA_DTYPE_COUNT ? dtypes[dtype].nbytes : 0; }

const char *oa_dtype_name(int dtype) { return dtype >= 0 && dtype < OA_DTYPE_COUNT ? dtypes[dtype].name : "no dtype"; }

/* Returns the name of an argument, or `otherwise` if the shim has no name for it. */
static const char *named(const char *name, const char *otherwise) { return name ? name : otherwise; }

int oa_fail_enum(const char *function, const char *name, int64_t value, const char *allowed) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs one of %s, got %lld", named(function, "offload_args"),
                 named(name, "an argument"), named(allowed, "its constants"), (long long)value);
}

int oa_fail_too_large(const char *function, const char *name, int64_t value) {
  return oa_fail(OA_ERROR_OVERFLOW, "%s: %s is %lld, and this library takes %s", named(function, "offload_args"),
                 named(name, "an argument"), (long long)value,
                 value < 0 ? "at least -2147483648 here" : "at most 2147483647 here; split the call");
}

int oa_fail_null(const char *function, const char *name) {
  return oa_fail(OA_ERROR_ARGUMENT, "%s: %s needs a host address, got NULL", named(function, "offload_args"),
                 named(name, "an argument"));
}
