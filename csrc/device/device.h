/* The devices of the process: opened once by name, never closed, known by number. */
#ifndef OA_DEVICE_H
#define OA_DEVICE_H

#include "device/backend.h"

#include <time.h>

enum oa_lost { OA_LOSING = 1, OA_LOST = 2 }; /* LOSING: the reason is being written; LOST: it can be read */

/* Returns the backend of that name; NULL if this build has none. */
const oa_backend *oa_backend_named(const char *name);
/* Returns the device of that number; NULL with the text set if none is open. */
oa_device *oa_device_of(int number);
/* Returns OA_OK, or OA_ERROR_FORKED or OA_ERROR_LOST with the text set. */
int oa_device_usable(oa_device *device);
/* Waits for all work of the device, after a wait or an event failed and the failure was noted. Returns true if memory
 * may now be freed and blocks may be reused, and false if some work may still be under way. Keeps the last failure's
 * text. */
bool oa_device_quiesce(oa_device *device);
/* Waits, as oa_wait_change does, for something that need not happen any more if the device is lost. The caller then
 * calls this again, with the same *until (0 at first). Returns false if the device has been lost for long. device: NULL
 * if it does not matter. */
bool oa_device_wait_change(const oa_device *device, struct timespec *until);

#endif
