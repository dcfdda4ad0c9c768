/* The core's condition: threads wait on it for a change of what the core's lock guards. */
#ifndef OA_CHANGE_H
#define OA_CHANGE_H

/* Blocks until another thread announces a change. Under the core's lock, which it frees meanwhile: look everything up
 * again. */
void oa_wait_change(void);
/* Wakes all threads in oa_wait_change. Under the core's lock; costs a load where nobody waits. */
void oa_announce_change(void);

#endif
