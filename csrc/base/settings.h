/* Settings from the environment, and the CPUs that this process may use. */
#ifndef OA_SETTINGS_H
#define OA_SETTINGS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* Checks the environment variables of this file. Returns OA_ERROR_ARGUMENT, with the text set, if a variable is
 * wrong. */
int oa_settings_check(void);
/* Returns OFFLOAD_ARGS_COHERENT, an oa_coherence; OA_COHERENT_AUTO if it is not set. */
int oa_settings_coherence(void);
/* Returns OFFLOAD_ARGS_GUARD: whether all regions guard their arrays. The variable is read once. */
bool oa_settings_guard(void);
/* Returns OFFLOAD_ARGS_THREADS: the number of threads that copy for one device, the calling thread included. If the
 * variable is not set, the number is one less than the CPUs that this process may use (affinity and cgroup), at least 1
 * and at most 12. Sets *helpers to the most threads that may copy for all devices together, the calling threads not
 * included. */
int oa_settings_threads(int *helpers);
/* Each sets *limit to its variable, OFFLOAD_ARGS_MEMORY_LIMIT or OFFLOAD_ARGS_PINNED_LIMIT, in bytes. A percentage is
 * of `total`. INT64_MAX: no limit is set. */
int oa_settings_memory_limit(int64_t total, int64_t *limit);
int oa_settings_pinned_limit(int64_t total, int64_t *limit);
/* Reads "1048576", "1MiB", "1.5GB" or "50%" (of total) as bytes. Returns OA_ERROR_ARGUMENT, without a text, for
 * anything else. */
int oa_parse_bytes(const char *text, int64_t total, int64_t *bytes);

#endif
