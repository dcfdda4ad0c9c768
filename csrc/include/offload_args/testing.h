/* Functions for tests of programs that lend arrays: limits, failures and delays of `sim` devices, and the residency of
 * the process. */
#ifndef OFFLOAD_ARGS_TESTING_H
#define OFFLOAD_ARGS_TESTING_H

#include "offload_args/core.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* [cffi begin] */
/* Sets the properties of a sim device. capacity: in bytes; 0: no limit. If fail_after is k, the k-th backend call from
 * now fails with a made-up driver error; 0: no call fails; -k: the k-th call and all later calls fail, as if the device
 * was lost. delay_us: the additional time of each operation on its streams. */
int oa_sim_configure(int device, int64_t capacity, int64_t fail_after, int64_t delay_us);
/* Sets whether the streams of a sim device wait for each other (by default 1). With 0, work may run before the work of
 * another stream that it needs, as if the core or a driver had forgotten an order. */
int oa_sim_order(int device, int ordered);
int64_t oa_sim_backend_calls(int device); /* backend calls so far; -1 with the text set if there is no such sim */
/* Sets the residency mode, in place of OFFLOAD_ARGS_RESIDENCY (-1: the mode of the environment variable again).
 * tracking: whether pages may be watched. Ends all residency on all devices. */
int oa_residency_configure(int mode, int tracking);
/* Sets the oa_coherence of regions that are entered from now on, in place of OFFLOAD_ARGS_COHERENT (-1: the value of
 * the environment variable again). */
int oa_coherent_configure(int coherence);
/* Sets the number of bytes for which each copy up of a part of an array counts, in addition to its own bytes (-1: as
 * usual). With 0, a call that reads less than half of an array of any size brings up only the bytes that it reads. With
 * 0 or more, parts go up also while other code has a stream of the device. */
int oa_part_cost_configure(int64_t bytes);
/* Loads a double of a library from an absolute path, in place of the real library, and makes the double's calls work on
 * the devices of the backend ("sim"). On devices that are not GPUs, the core waits for each call, so that the double
 * may read and write the device's memory. Can be called once per process, before the first call of the library. */
int oa_library_double(const char *library, const char *path, const char *backend);
/* [cffi end] */

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
