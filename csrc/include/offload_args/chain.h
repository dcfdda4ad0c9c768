/* Chains: calls of a region that are captured once, and run again by one launch.
 *
 * A chain has a record of every array that its calls use. So a replay is one call of the core: it is ordered with other
 * calls, brings up missing bytes, and marks written arrays. A replay fails if the chain can't run any more. */
#ifndef OFFLOAD_ARGS_CHAIN_H
#define OFFLOAD_ARGS_CHAIN_H

#include "offload_args/core.h"
#include "offload_args/shim.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct oa_chain oa_chain;

typedef struct oa_chain_info {
  size_t size;
  int calls;       /* number of captured calls */
  int arrays;      /* number of arrays that the captured calls use */
  int64_t replays; /* number of replays so far */
  oa_region *region;
  int64_t nbytes; /* bytes of the host's values that each replay sends */
} oa_chain_info;

/* A captured call, and its use of an array. */
typedef struct oa_chain_use {
  size_t size;
  char function[48];
  int uses;              /* the number of uses that the call has */
  int array;             /* number of the array; -1: the call has no such use */
  int reads, writes;     /* 1 or 0 */
  char name[24];         /* the array's name; "" for a device scalar, and after the array's region */
  const oa_any *pointer; /* the region's pointer to the array; for a device scalar, the first pointer in the calls */
} oa_chain_use;

/* Begins to capture the calls of a region, from any thread. No captured call runs: the core checks the call, and brings
 * up the arrays that the call reads. A call with a result on the host fails, and so does any call that would have to
 * wait for captured calls. After such a failure, the capture goes on. Returns OA_ERROR_CAPTURE if the region's calls
 * are captured already, by this function or by the program, and OA_ERROR_VERSION if the device has no graphs. */
int oa_chain_begin(oa_region *region, oa_chain **chain);
/* Ends the capture. If this fails, the chain is released. Returns OA_ERROR_CAPTURE if a captured call had failed. */
int oa_chain_end(oa_chain *chain);
/* Ends a call of a device whose calls run on the CPU, as oa_submit does, but calls run(arguments) on this thread, after
 * the earlier work of the call's stream. `run` returns 0, or another number if the call has failed. If the call is
 * captured, the thread of each replay calls `run`, and a failure is the replay's. let_go(object), which may be NULL, is
 * called once: before this function returns, or when the chain that captured the call is freed. */
int oa_submit_here(oa_call *call, int (*run)(void *), void *arguments, size_t size, void *object,
                   void (*let_go)(void *object));
/* Runs the captured calls in the order of the region's stream. Returns OA_ERROR_STALE if the region has ended, or if an
 * array is no longer at the address that the calls use. */
int oa_chain_replay(oa_chain *chain);
/* Repeats the captured calls until the element `until`, which the calls write, is not 0, but at most at_most times.
 * Waits for all repetitions. The element is tested after each run. If the driver has loops and the calls are few, the
 * device tests the element, and the loop is one launch. *count: the number of runs, also after a failure; *ended: 1 if
 * the element is not 0. */
int oa_chain_loop(oa_chain *chain, const oa_any *until, int64_t at_most, int64_t *count, int *ended);
/* Describes a captured call by its number, and one of its uses of an array. */
int oa_chain_get_use(const oa_chain *chain, int call, int use, oa_chain_use *info);
int oa_chain_get_info(const oa_chain *chain, oa_chain_info *info);
/* Frees the chain, after its replays. If the chain's calls are still being captured, ends the capture. Does nothing if
 * `chain` is NULL. */
int oa_chain_release(oa_chain *chain);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
