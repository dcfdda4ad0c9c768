/* Work of the CPU that is recorded once and run any number of times. A recording is the graph of a device whose calls
 * the CPU makes. */
#ifndef OA_RECORDING_H
#define OA_RECORDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct oa_recording oa_recording;

/* Returns an empty recording with one user; NULL if host memory runs out. */
oa_recording *oa_recording_new(void);
oa_recording *oa_recording_share(oa_recording *recording);
/* Removes one user, and frees the recording if it has no other user. */
void oa_recording_drop(oa_recording *recording);
/* Adds a call of `run` with a copy of the arguments. Any thread may call this function. Returns 0, or -1 if host memory
 * runs out. */
int oa_recording_add(oa_recording *recording, void (*run)(void *), const void *arguments, size_t size);
/* Add a call of oa_copy_lines and of oa_fill_lines. */
int oa_recording_add_copy(oa_recording *recording, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                          size_t width, size_t lines);
int oa_recording_add_fill(oa_recording *recording, void *to, size_t pitch, uint32_t value, size_t unit, size_t width,
                          size_t lines);
/* Runs all work in the order in which it was added. Each function gets a copy of its arguments, which it may change.
 * The work runs by oa_run_before_end, except oa_run_here: Python waits itself for functions that are Python's.
 * `is_inside`: the caller is a function that runs by oa_run_before_end. Several threads may run one recording at the
 * same time. Returns 0, or the status of the first failure, after which no work runs. Returns -1, and runs nothing, if
 * host memory runs out for the copies. */
int oa_recording_run(const oa_recording *recording, bool is_inside);

/* Calls a function that may call a library. The end of the process waits for the function, but at most for ten seconds,
 * because libraries end then. Once the process ends, returns false and does not call the function. */
bool oa_run_before_end(void (*run)(void *), void *arguments);

#endif
