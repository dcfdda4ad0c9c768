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
/* Marks a device as lost because operations on it never end, and ends the waits for it. The memory that these
 * operations may use is never freed. */
void oa_device_give_up(oa_device *device, const char *reason);

/* A limit on waits for something that may never happen, because it depends on a library and a device. All fields are 0
 * at first. */
typedef struct oa_patience {
  struct timespec end;
  bool is_short; /* `end` is the short limit */
} oa_patience;
enum { OA_LONG_PATIENCE = 10000, OA_SHORT_PATIENCE = 500 }; /* milliseconds */
/* Waits for a short while, as oa_wait_change does. Returns false once the limit has passed: the short limit if the
 * device is lost or the caller is in a hurry, otherwise the long limit. device: NULL if it does not matter. */
bool oa_device_wait_change(const oa_device *device, oa_patience *patience, bool hurries);

#endif
