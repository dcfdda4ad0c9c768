#include "accelerate/program_call.h"

#include "region/leave.h"

_Atomic int64_t oa_program_least = INT64_MAX;
_Atomic int64_t oa_program_small;

int oa_program_leave(oa_region *region, int status) {
  bool has_arrived = false;
  const int finished = oa_region_finish(region, status ? OA_DISCARD : OA_COMMIT, NULL);
  const int waited = oa_region_wait_for(region, &has_arrived);
  return status ? status : has_arrived ? OA_OK : finished ? finished : waited;
}
