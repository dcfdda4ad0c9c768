#define _GNU_SOURCE /* cpu_set_t and its functions */
#include "base/settings.h"

#include "offload_args/core.h"

#include <ctype.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char memory_variable[] = "OFFLOAD_ARGS_MEMORY_LIMIT";
static const char pinned_variable[] = "OFFLOAD_ARGS_PINNED_LIMIT";
static const char threads_variable[] = "OFFLOAD_ARGS_THREADS";
static const char guard_variable[] = "OFFLOAD_ARGS_GUARD";
static const char coherent_variable[] = "OFFLOAD_ARGS_COHERENT";

int oa_parse_bytes(const char *text, int64_t total, int64_t *bytes) {
  static const struct {
    const char *name;
    double factor;
  } units[] = {{"", 1},      {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
               {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  if (!isdigit((unsigned char)*text)) return OA_ERROR_ARGUMENT; /* strtod would accept signs, blanks and "inf" */
  char *end;
  const double number = strtod(text, &end);
  const size_t digits = strspn(text, "0123456789.");
  if (end != text + digits) return OA_ERROR_ARGUMENT;
  while (*end == ' ') end++;
  double value = -1;
  if (strcmp(end, "%") == 0) {
    if (number <= 100) value = number / 100 * (double)total;
  } else {
    for (size_t i = 0; i < sizeof units / sizeof units[0] && value < 0; i++)
      if (strcasecmp(end, units[i].name) == 0) value = number * units[i].factor;
  }
  if (value < 0 || value >= 0x1p63) return OA_ERROR_ARGUMENT;
  *bytes = (int64_t)value;
  return OA_OK;
}

static int bytes_of(const char *variable, int64_t total, int64_t *limit) {
  const char *text = getenv(variable);
  *limit = INT64_MAX;
  if (!text || !*text || oa_parse_bytes(text, total, limit) == OA_OK) return OA_OK;
  return oa_fail(OA_ERROR_ARGUMENT, "%s=%s: needs bytes (\"1048576\", \"512MiB\", \"2GB\") or percent (\"50%%\")",
                 variable, text);
}

int oa_settings_memory_limit(int64_t total, int64_t *limit) { return bytes_of(memory_variable, total, limit); }
int oa_settings_pinned_limit(int64_t total, int64_t *limit) { return bytes_of(pinned_variable, total, limit); }

/* Sets *threads to OFFLOAD_ARGS_THREADS; 0 if it is not set. */
static int asked_threads(int *threads) {
  const char *text = getenv(threads_variable);
  *threads = 0;
  if (!text || !*text) return OA_OK;
  const size_t digits = strspn(text, "0123456789");
  if (digits && digits <= 4 && text[digits] == '\0') *threads = atoi(text);
  if (*threads >= 1 && *threads <= 1024) return OA_OK;
  return oa_fail(OA_ERROR_ARGUMENT, "%s=%s: needs a number from 1 to 1024", threads_variable, text);
}

/* Returns the value of OFFLOAD_ARGS_GUARD: 0 (also if it is not set) or 1; -1 if its text is neither. */
static int asked_guard(void) {
  const char *text = getenv(guard_variable);
  if (!text || !*text || strcmp(text, "0") == 0) return 0;
  return strcmp(text, "1") == 0 ? 1 : -1;
}

bool oa_settings_guard(void) {
  static atomic_int known = -1;
  int asked = atomic_load_explicit(&known, memory_order_relaxed);
  if (OA_UNLIKELY(asked < 0)) atomic_store(&known, asked = asked_guard() > 0);
  return asked;
}

/* Returns an oa_coherence, or -1 if the text names none. */
static int asked_coherence(void) {
  static const char *const names[] = {"never", "auto", "always"}; /* by oa_coherence */
  const char *text = getenv(coherent_variable);
  if (!text || !*text) return OA_COHERENT_AUTO;
  for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
    if (strcmp(text, names[i]) == 0) return i;
  return -1;
}

int oa_settings_coherence(void) {
  const int asked = asked_coherence();
  return asked < 0 ? OA_COHERENT_NEVER : asked;
}

int oa_settings_check(void) {
  if (asked_coherence() < 0)
    return oa_fail(OA_ERROR_ARGUMENT, "%s=%s: needs \"auto\", \"never\" or \"always\"", coherent_variable,
                   getenv(coherent_variable));
  if (asked_guard() < 0)
    return oa_fail(OA_ERROR_ARGUMENT, "%s=%s: needs 0 or 1", guard_variable, getenv(guard_variable));
  int threads;
  int64_t ignored;
  int status = bytes_of(memory_variable, 0, &ignored);
  if (!status) status = bytes_of(pinned_variable, 0, &ignored);
  return status ? status : asked_threads(&threads);
}

/* -- CPUs --------------------------------------------------------------------------------------------------------- */

/* Returns a cgroup's bandwidth limit in whole CPUs; 0 if the cgroup has no limit. The file at quota_path has "quota
 * period". In version 1 of cgroups, this file has only the quota. */
static int cgroup_cpus(const char *quota_path, const char *period_path) {
  char first[32] = "";
  long period = 100000;
  FILE *file = fopen(quota_path, "re");
  if (!file) return 0;
  if (fscanf(file, "%31s %ld", first, &period) < 1) first[0] = '\0';
  fclose(file);
  const long quota = strtol(first, NULL, 10); /* "max" gives 0 */
  if (period_path && (file = fopen(period_path, "re"))) {
    if (fscanf(file, "%ld", &period) != 1) period = 0;
    fclose(file);
  }
  if (quota <= 0 || period <= 0) return 0;
  return quota < period ? 1 : (int)(quota / period);
}

/* Returns the tightest limit of this process's cgroup and its parents. */
static int cgroup_limit(void) {
  int least = cgroup_cpus("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  char line[512], group[512] = "";
  FILE *file = fopen("/proc/self/cgroup", "re");
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "0::%511s", group) == 1) break;
  if (file) fclose(file);
  for (char *end = group + strlen(group);; end = strrchr(group, '/')) {
    char path[600];
    if (!end) break;
    *end = '\0';
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
    const int cpus = cgroup_cpus(path, NULL);
    if (cpus && (!least || cpus < least)) least = cpus;
    if (!*group) break;
  }
  return least;
}

/* Returns the CPUs that this process may use. */
static int usable_cpus(void) {
  cpu_set_t *set = CPU_ALLOC(8192); /* a cpu_set_t has room for fewer CPUs, and is refused on large machines */
  int cpus = 1;
  if (set) {
    if (sched_getaffinity(0, CPU_ALLOC_SIZE(8192), set) == 0) cpus = CPU_COUNT_S(CPU_ALLOC_SIZE(8192), set);
    CPU_FREE(set);
  }
  const int limit = cgroup_limit();
  return limit && limit < cpus ? limit : cpus;
}

int oa_settings_threads(int *helpers) {
  enum { MOST = 12 };
  int threads;
  *helpers = INT_MAX;
  if (asked_threads(&threads) == OA_OK && threads) return threads;
  const int cpus = usable_cpus() - 1; /* one CPU is left for the program's own work */
  *helpers = cpus;
  return cpus < 1 ? 1 : cpus > MOST ? MOST : cpus;
}
