/* Peers: devices that have bytes which another device of their backend is about to bring up. The bytes are copied from
 * the peer's memory, and not by way of the host.
 *
 * A peer has the host's bytes in a mapping that is valid and not newer than the host, or in idle resident memory whose
 * pages on the host were not written since the last copy. No open update permits the host to write these bytes. The
 * copy is waited for while the peer's memory is held, so it is over when that memory is written or freed. If the copy
 * fails, the bytes go up from the host, which has them, too. */
#ifndef OA_PEERS_H
#define OA_PEERS_H

#include "region/mapping.h"

typedef struct oa_peer {
  oa_move move; /* the move up, as the host would make it */
  oa_device *device;
  uint64_t address;    /* address of the same bytes on the peer */
  oa_mapping *mapping; /* the mapping that has the bytes; NULL: idle memory has them */
  oa_resident *idle;
  /* a stream of the peer that runs after the calls that wrote the bytes; NULL: these calls are over */
  oa_stream *writers;
  char why[64];
} oa_peer;

typedef struct oa_peers {
  oa_peer *at;
  int count;
} oa_peers;

/* Takes the moves that a peer may make out of the list, and holds the peers' memory. Returns the number of moves that
 * are left. Called with the core's lock. */
int oa_peers_take(oa_peers *peers, const oa_device *device, oa_move *moves, int count);
/* Makes the peers' copies on the stream, and waits for them. Puts the moves that the host has to make after all into
 * the list again. Called without the lock. */
int oa_peers_copy(oa_peers *peers, oa_device *device, void *stream, const char *function, oa_move *moves, int *count);
/* Ends the hold of the peers' memory. Called with the lock; the caller announces the change. */
void oa_peers_return(oa_peers *peers);

#endif
