#include "region/peers.h"

#include "base/trace.h"
#include "base/under_way.h"
#include "region/residency.h"
#include "region/update.h"
#include "transfer/batch.h"
#include "transfer/transfer_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- finding -- */

typedef struct search {
  const oa_device *device;
  const oa_move *move;
  oa_mapping *match;
  uint64_t address;
} search;

static bool is_same_shape(const oa_view *view, const oa_move *move) {
  const oa_shape *a = view->shape, *b = move->irregular;
  return a && b && view->data == move->host && a->itemsize == b->itemsize && a->ndim == b->ndim &&
         memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0 &&
         memcmp(a->strides, b->strides, (size_t)a->ndim * sizeof *a->strides) == 0;
}

/* Returns whether the view has all bytes of the move. Sets *start to the offset of these bytes in the view's
 * mapping. */
static bool has_bytes(const oa_mapping *mapping, const oa_view *view, const oa_move *move, int64_t *start) {
  const oa_group *group = &mapping->groups[view->group];
  if (!group->valid || group->invalid) return false;
  oa_lines lines = move->lines;
  if (view->shape || move->irregular) {
    *start = view->lines.start;
    return is_same_shape(view, move);
  }
  *start = lines.start = (int64_t)((uintptr_t)move->host - mapping->at.low);
  return oa_lines_contain(view->lines, lines);
}

/* Finds a mapping that no thread changes: the mapping is not being moved, the host has all bytes that the device wrote,
 * and no open update lets the host write the mapping. */
static int note_peer(oa_present *element, void *data) {
  search *s = data;
  oa_mapping *mapping = (oa_mapping *)element;
  if (mapping->device == s->device || mapping->device->backend != s->device->backend || mapping->device->lost ||
      !mapping->address || mapping->moving || !mapping->holders || oa_mapping_is_newer(mapping) ||
      (mapping->arena && mapping->arena->block) || mapping->special & OA_IS_COHERENT ||
      oa_host_writes(mapping->at.low, mapping->at.high))
    return 0;
  for (int i = 0; i < mapping->view_count; i++) {
    int64_t start;
    if (!has_bytes(mapping, &mapping->views[i], s->move, &start)) continue;
    s->match = mapping;
    s->address = mapping->address + (uint64_t)start;
    return 1;
  }
  return 0;
}

/* Takes a stream of the peer that runs after the unfinished writers of its bytes. */
static int follow_writers(oa_peer *peer) {
  const oa_uses *uses = &peer->mapping->uses;
  peer->writers = NULL;
  if (oa_uses_arrived(uses)) return OA_OK;
  int status = oa_stream_take(peer->device, &peer->writers);
  if (!status) status = oa_uses_order(uses, peer->writers, false);
  if (status && peer->writers) oa_stream_return(peer->writers);
  return status;
}

/* Finds a peer for a move, and holds its memory. */
static bool find(const oa_device *device, const oa_move *move, oa_peer *peer) {
  search s = {.device = device, .move = move};
  const uintptr_t low = (uintptr_t)move->host;
  const uintptr_t high = low + (uintptr_t)(move->irregular ? 1 : oa_lines_span(move->lines));
  *peer = (oa_peer){.move = *move};
  if (oa_present_visit(&oa_table, low, high, note_peer, &s)) {
    peer->mapping = s.match;
    peer->device = s.match->device;
    peer->address = s.address;
    if (follow_writers(peer)) return false;
    s.match->calls++; /* holds the mapping as a call that reads it does */
  } else if (move->irregular ||
             !(peer->idle = oa_resident_take_peer(device, low, move->lines, &peer->device, &peer->address))) {
    return false;
  }
  snprintf(peer->why, sizeof peer->why, "from %s, %s", peer->device->name, move->trace.why ? move->trace.why : "");
  return true;
}

int oa_peers_take(oa_peers *peers, const oa_device *device, oa_move *moves, int count) {
  *peers = (oa_peers){.count = 0};
  if (!device->backend->copy_peer) return count;
  const int most = count;
  for (int i = 0; i < count;) {
    oa_peer peer;
    const bool fits =
        !moves[i].in_place && !moves[i].coherent && oa_lines_bytes(moves[i].lines) >= device->backend->peer_least;
    if (fits && !peers->at && !(peers->at = malloc((size_t)most * sizeof *peers->at))) break;
    if (!fits || !find(device, &moves[i], &peer)) {
      i++;
      continue;
    }
    peers->at[peers->count++] = peer;
    moves[i] = moves[--count];
  }
  return count;
}

/* -- copying -- */

/* Issues one copy. Returns OA_OK with *issued false if the host has to send the bytes: the peer is lost, has older
 * bytes, or can't be copied from. */
static int issue(const oa_peer *peer, oa_device *device, void *stream, bool *issued) {
  const oa_backend *backend = device->backend;
  const oa_lines l = peer->move.lines;
  *issued = false;
  if (peer->idle && !oa_resident_is_current(peer->idle)) return OA_OK;
  oa_saved_error before;
  oa_error_save(&before);
  int status = peer->writers ? backend->stream_synchronize(peer->device, peer->writers->native) : OA_OK;
  if (status && status != OA_ERROR_LOST)
    return status; /* work on the peer failed, and only the status of this function reports the failure */
  if (!status)
    status = backend->copy_peer(device, stream, peer->move.address, (size_t)l.pitch, peer->device, peer->address,
                                (size_t)l.pitch, (size_t)l.width, (size_t)l.count);
  *issued = !status;
  if (status) oa_error_restore(&before);
  return OA_OK;
}

static void count_copies(oa_device *device, const oa_move *moves, int count) {
  int64_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += oa_lines_bytes(moves[i].lines);
  atomic_fetch_add_explicit(&device->counts.copies_peer, count, memory_order_relaxed);
  atomic_fetch_add_explicit(&device->counts.bytes_peer, bytes, memory_order_relaxed);
}

int oa_peers_copy(oa_peers *peers, oa_device *device, void *stream, const char *function, oa_move *moves, int *count) {
  /* The peers' moves, which follow the other moves; the issued moves among them come first. */
  oa_move *own = moves + *count;
  int issued = 0, status = OA_OK;
  if (!peers->count) return OA_OK;
  for (int i = 0; i < peers->count; i++) own[i] = peers->at[i].move;
  const int64_t begun = oa_trace_begin_up(own, peers->count);
  const int under_way = oa_batch_under_way(OA_TRACE_PEER, device, own, peers->count);
  for (int i = 0; i < peers->count && !status; i++) {
    bool is_issued;
    status = issue(&peers->at[i], device, stream, &is_issued);
    if (!is_issued) continue;
    const oa_move move = own[i];
    own[i] = own[issued];
    own[issued] = move;
    own[issued++].trace.why = peers->at[i].why;
  }
  if (issued) {
    oa_saved_error first;
    if (status) oa_error_save(&first);
    const int waited = device->backend->stream_synchronize(device, stream);
    if (waited) oa_device_quiesce(device); /* after this function, the peer's memory may change */
    if (status) oa_error_restore(&first);
    if (!status) status = waited;
  }
  oa_under_way_end(under_way);
  if (begun && issued) oa_trace_copies(OA_TRACE_PEER, begun, device, own, issued, function, status);
  if (status) return status;
  count_copies(device, own, issued);
  memmove(own, own + issued, (size_t)(peers->count - issued) * sizeof *own);
  *count += peers->count - issued;
  return OA_OK;
}

void oa_peers_return(oa_peers *peers) {
  for (int i = 0; i < peers->count; i++) {
    oa_peer *peer = &peers->at[i];
    if (peer->idle) oa_resident_return_peer(peer->idle);
    if (peer->mapping) peer->mapping->calls--;
    if (peer->writers) oa_stream_return(peer->writers);
  }
  free(peers->at); /* the caller announces the change */
}
