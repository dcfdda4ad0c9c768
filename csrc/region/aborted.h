/* Results that become undefined because an object, such as a communicator, was aborted. All functions are called with
 * the core's lock. */
#ifndef OA_ABORTED_H
#define OA_ABORTED_H

#include "region/region.h"

/* Makes a group undefined. A region that is bringing the group down discards it. */
void oa_make_undefined(oa_mapping *mapping, int group);
/* Makes all groups undefined that calls of the object may still be writing, and groups that later operations may have
 * computed from them: no thread has waited for these calls (oa_stream_note_object). */
void oa_object_spoils(oa_device *device, const oa_abortable *object);
/* Returns whether calls that may be aborted, and are not of an object for which is_own returns true, may still run.
 * Never waits. */
bool oa_others_run(oa_device *device, bool (*is_own)(const void *subject, const oa_abortable *object),
                   const void *subject);
/* Returns whether calls of the object may still run. Never waits. */
bool oa_object_runs(oa_device *device, const oa_abortable *object);

#endif
