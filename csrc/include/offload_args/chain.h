/* Chains: calls of a region that are captured once, and run again by one launch.
 *
 * A chain knows every array that its calls use. So a replay is one call of the core: it is ordered with others, brings
 * up what the device lacks, and marks what it writes. It fails where the chain could not run any more. */
#ifndef OFFLOAD_ARGS_CHAIN_H
#define OFFLOAD_ARGS_CHAIN_H

#include "offload_args/core.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct oa_chain oa_chain;

typedef struct oa_chain_info {
  size_t size;
  int calls;       /* that were captured */
  int arrays;      /* that they use */
  int64_t replays; /* so far */
  oa_region *region;
} oa_chain_info;

/* Begins to capture the calls of a region, from any thread. None of them runs: they are checked, and the arrays that
 * they read are brought up. A call with a result on the host fails, and so does all that would have to wait for
 * captured calls; the capture goes on. OA_ERROR_CAPTURE if the region's calls are captured already, by this or by the
 * program; OA_ERROR_VERSION if the device has no graphs. */
int oa_chain_begin(oa_region *region, oa_chain **chain);
/* Ends the capture. After a failure the chain is released: OA_ERROR_CAPTURE if a captured call had failed. */
int oa_chain_end(oa_chain *chain);
/* Runs the captured calls in the order of the region's stream. OA_ERROR_STALE if the region has ended, or one of the
 * arrays is no longer where the calls have it. */
int oa_chain_replay(oa_chain *chain);
int oa_chain_get_info(const oa_chain *chain, oa_chain_info *info);
/* Frees the chain, after its replays. Ends its capture if that is under way. A NULL chain is nothing to release. */
int oa_chain_release(oa_chain *chain);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
