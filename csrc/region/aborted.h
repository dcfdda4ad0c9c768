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

#endif
