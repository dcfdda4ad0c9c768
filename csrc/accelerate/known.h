/* A record of the arrays of calls: which arrays are on the device, which arrays the program leaves unchanged, and which
 * arrays to keep on the device. Results are right even if this record is wrong, because a region checks the pages of
 * the arrays that it finds on the device. */
#ifndef OA_KNOWN_H
#define OA_KNOWN_H

#include "base/lines.h"
#include "offload_args/core.h"

#include <stdbool.h>

enum { OA_KNOWN_ARRAYS = 8 };
enum { OA_KNOWN_LEAST = 1 << 20 }; /* bytes: smaller arrays are sent each time */

/* The arrays of one call. */
typedef struct oa_known_array {
  uintptr_t low, high;
  oa_lines lines;
  int64_t bytes, missing; /* missing: bytes that have to go up */
  int place;              /* index in the table; -1: the array is not observed */
  bool again;             /* the array has the same bytes as an earlier array of the call */
  bool is_read, is_written;
  bool steady; /* the array is not on the device, and the program is not known to change it */
  bool keep;   /* the array's memory shall stay on the device */
  bool began;  /* this call brings the array up, and the array is to stay */
} oa_known_array;

typedef struct oa_known {
  int count, device;   /* device -1: no device is open */
  int64_t least_chain; /* written arrays of at least so many bytes are kept */
  uint64_t maker;      /* identifies similar calls with the same inputs */
  oa_known_array arrays[OA_KNOWN_ARRAYS];
} oa_known;

/* Fills *known, and finds the bytes that the device lacks. `eager`: arrays of 128 KiB are large enough to be kept.
 * Called without any lock. */
void oa_known_look(oa_known *known, const oa_array *arrays, int count, int device, uint64_t maker, bool eager);

/* The one lock of the table. A thread may hold the lock while the kernel reports the state of a few pages. */
void oa_known_lock(void);
void oa_known_unlock(void);
/* Notes that the call has these arrays, finds the steady arrays, and ends the stay of arrays that changed or that no
 * call uses any more. Call this function and the functions below under the lock. */
void oa_known_see(oa_known *known);
/* Returns how many bytes fewer would go up if the steady arrays were on the device already. */
int64_t oa_known_steady(const oa_known *known);
/* Adds `seconds`, which this call would have saved if the steady arrays had been on the device. `price`: the seconds
 * that it takes to bring the arrays up. Returns true if the arrays should stay on the device: the sum over all calls
 * is at least `price`, and samples of pages show that the program leaves the arrays unchanged. `room`: the bytes that
 * may stay on the device; 0: any number; -1: no bytes, because there is no device, or the device may not be used. */
bool oa_known_pay(oa_known *known, double seconds, double price, int64_t room);
/* Keeps the call's result on the device if, at least twice in a row, the next call read the result of a similar call
 * unchanged. */
void oa_known_chain(oa_known *known, int64_t room);
/* Notes that the call does not go. */
void oa_known_cancel(oa_known *known);
/* Notes the end of a call that the device made, or failed to make. `saved`: the seconds that the device saved, if it
 * made the call. */
void oa_known_end(oa_known *known, bool well, double saved);
/* Ends the stay of all arrays, and forgets them. */
void oa_known_clear(void);

#endif
