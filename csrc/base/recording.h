/* Work of the CPU that is recorded once and run any number of times. It is the graph of a device whose calls the CPU
 * makes. */
#ifndef OA_RECORDING_H
#define OA_RECORDING_H

#include <stddef.h>
#include <stdint.h>

typedef struct oa_recording oa_recording;

/* Returns an empty recording with one user; NULL: no host memory. */
oa_recording *oa_recording_new(void);
oa_recording *oa_recording_share(oa_recording *recording);
/* Frees the recording after its last user has dropped it. */
void oa_recording_drop(oa_recording *recording);
/* Adds a call of `run` with a copy of the arguments. Any thread may call this function. Returns 0, or -1 if there is no
 * host memory. */
int oa_recording_add(oa_recording *recording, void (*run)(void *), const void *arguments, size_t size);
/* Add a copy of lines and a fill of lines, as oa_copy_lines and oa_fill_lines make them. */
int oa_recording_add_copy(oa_recording *recording, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                          size_t width, size_t lines);
int oa_recording_add_fill(oa_recording *recording, void *to, size_t pitch, uint32_t value, size_t unit, size_t width,
                          size_t lines);
/* Runs all work in the order of its addition. Each function gets a copy of its arguments, which it may change. Several
 * threads may run one recording at the same time. Returns 0, or -1 if there was no host memory for the copies: nothing
 * was run then. */
int oa_recording_run(const oa_recording *recording);

#endif
