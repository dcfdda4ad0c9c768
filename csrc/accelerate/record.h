/* The outcomes of calls: the rows of the report, the calls under way, and the events for a program's own thread. */
#ifndef OA_RECORD_H
#define OA_RECORD_H

#include "accelerate/program_call.h"

/* The one lock of rows, calls under way, events and the model. A thread holds the lock for bookkeeping only. */
void oa_record_lock(void);
void oa_record_unlock(void);
/* Makes each forked child note that the lock must not be taken, because it may be held for ever. Called once. */
void oa_record_watch_forks(void);
bool oa_record_is_child(void);

/* Lists a call as under way, and asks for its place. If the plan needs the place, waits for it, for at most `patience`
 * seconds. After some short calls of one kind, only one in a few asks for its place, and the calls after it count for
 * the same place. `planned`: an oa_accelerate_planning. Call this function and the functions below under the lock. The
 * lock is free during the wait. */
void oa_record_begin(oa_program_call *call, bool wants_site, int planned, double patience);
/* Returns whether the CPU makes a call at once, because calls of the same routine and sizes were short. One in a few of
 * them takes the long way, which measures it. Counts the call; the caller has no lock. Reads one line of the cache,
 * because a call that reads much memory leaves the data of hooks in no cache of the processor. */
bool oa_record_passes(const oa_program_call *call);
/* Ends this for all calls, because the options or the device change. */
void oa_record_end_passing(void);
/* Returns the plan's decision for a call, an oa_accelerate_decided. */
int oa_record_decision(const oa_program_call *call);
/* Adds a call that ended to its row. */
void oa_record_end(const oa_program_call *call, bool gone, double seconds);
/* Ask for a device, at most once, and for the LAPACK of a device, at most once for each device. */
void oa_record_ask_device(void);
void oa_record_ask_lapack(int device);
/* Begin and end an interval that oa_accelerate_wait waits for. */
void oa_record_open(void);
void oa_record_close(void);

#endif
