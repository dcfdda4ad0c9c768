/* Runs a batch: pinned arrays are copied directly, small arrays are packed, and large arrays are copied in chunks.
 * After a failure, the text states which arrays are new, old and torn. */
#include "transfer/transfer.h"

#include "base/under_way.h"
#include "device/staging.h"
#include "transfer/batch.h"
#include "transfer/chunks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns a batch. The batch and *error, which is set only if the batch fails, are on the stack of the function that
 * runs the batch. */
static oa_batch batch_of(oa_device *device, void *stream, oa_move *moves, int count, bool up, oa_saved_error *error) {
  return (oa_batch){.device = device,
                    .stream = stream,
                    .moves = moves,
                    .count = count,
                    .up = up,
                    .mutex = PTHREAD_MUTEX_INITIALIZER,
                    .error = error};
}

static int by_address(const void *a, const void *b) {
  const oa_move *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

/* Sorts the moves, so that neighbours on the device follow each other. */
static void sort(oa_move *moves, int count) {
  for (int i = 1; i < count; i++) {
    if (by_address(&moves[i - 1], &moves[i]) <= 0) continue;
    qsort(moves, (size_t)count, sizeof *moves, by_address);
    return;
  }
}

/* Copies an array that the device uses directly in pinned memory. */
static void copy_in_place(oa_move *move, bool up) {
  const oa_section p = oa_section_whole(move);
  const oa_lines *l = &move->lines;
  void *memory = (void *)(uintptr_t)move->address;
  void *to = up ? memory : move->host, *from = up ? move->host : memory;
  if (!move->irregular)
    oa_copy_lines(to, (size_t)l->pitch, from, (size_t)l->pitch, (size_t)l->width, (size_t)l->count);
  else if (up)
    oa_section_fill(&p, memory);
  else
    oa_section_drain(&p, memory);
}

static bool is_pinned(oa_device *device, const oa_move *move) {
  return !move->irregular && !move->kept.parts && !move->in_place && oa_lines_bytes(move->lines) > oa_tuning.small &&
         device->backend->pinned(device, move->host, (size_t)oa_lines_span(move->lines));
}

/* Issues the copy of an array in pinned host memory. Returns whether the whole copy was issued; if not, the move
 * travels in chunks. */
static bool copy_direct(const oa_batch *b, const oa_move *move) {
  const oa_lines l = move->lines;
  return oa_batch_copy(b, move->address, l.pitch, move->host, l.pitch, l.width, l.count, true) == OA_OK;
}

/* Returns the bytes of the moves that travel in chunks. */
static int64_t large_bytes(const oa_batch *b) {
  int64_t bytes = 0;
  for (int i = 0; i < b->count; i++)
    if (oa_move_is_large(&b->moves[i])) bytes += oa_lines_bytes(b->moves[i].lines);
  return bytes;
}

/* Puts the moves of coherent memory, which need no copy, after all other moves. Returns the number of the other moves.
 */
static int leave_out_coherent(oa_move *moves, int count) {
  for (int i = 0; i < count;) {
    if (!moves[i].coherent) {
      i++;
      continue;
    }
    const oa_move move = moves[i];
    moves[i] = moves[--count];
    moves[count] = move;
  }
  return count;
}

static void count_moves(const oa_batch *b) {
  struct oa_counts *counts = &b->device->counts;
  int64_t bytes = 0;
  for (int i = 0; i < b->count; i++) bytes += oa_lines_bytes(b->moves[i].lines);
  atomic_fetch_add_explicit(b->up ? &counts->copies_up : &counts->copies_down, b->count, memory_order_relaxed);
  atomic_fetch_add_explicit(b->up ? &counts->bytes_up : &counts->bytes_down, bytes, memory_order_relaxed);
}

/* Sends up all but the large moves. Sets *direct to true if the device reads host memory that must not change before
 * the stream was waited for. */
static int send_small(oa_batch *b, bool *direct) {
  sort(b->moves, b->count);
  for (int i = 0; i < b->count; i++) {
    oa_move *move = &b->moves[i];
    if (move->in_place) copy_in_place(move, true);
    if (!is_pinned(b->device, move)) continue;
    *direct = true; /* the device reads this memory even if not all of the copy was issued */
    move->direct = copy_direct(b, move);
  }
  return oa_pack_small(b);
}

/* Copies the moves up for oa_transfer_up_holding. Called with the device current. */
static int send_up(oa_batch *b) {
  oa_device *device = b->device;
  bool direct = false;
  int status = device->backend->flags & OA_SYNCHRONOUS ? OA_OK : send_small(b, &direct);
  const int64_t large = status ? 0 : large_bytes(b);
  if (large) {
    oa_chunks_work_off(b, large);
    if ((status = b->status)) oa_error_restore(b->error);
  }
  if (status) /* the caller may free the memory on another stream, or change the host's bytes */
    oa_transfer_quiesce(device, b->stream);
  else if (direct && (status = device->backend->stream_synchronize(device, b->stream)))
    oa_device_quiesce(device);
  if (!status) count_moves(b);
  return status;
}

int oa_transfer_up_holding(oa_device *device, void *stream, oa_move *moves, int count, oa_held_blocks *held) {
  const oa_backend *backend = device->backend;
  oa_saved_error error;
  if (!(count = leave_out_coherent(moves, count))) return OA_OK;
  oa_batch b = batch_of(device, stream, moves, count, true, &error);
  b.held = held;
  /* This call comes first, because it refuses a context that was reset, whose pinned memory no longer exists. */
  void *saved = NULL;
  int status = backend->enter ? backend->enter(device, &saved) : OA_OK;
  if (status) return status;
  b.under_way = oa_batch_under_way(OA_TRACE_UP, device, moves, count);
  status = send_up(&b);
  oa_under_way_end(b.under_way);
  if (!backend->leave) return status;
  if (status) oa_error_save(&error);
  const int left = backend->leave(device, saved);
  if (status) oa_error_restore(&error);
  return status ? status : left;
}

int oa_transfer_up(oa_device *device, void *stream, oa_move *moves, int count) {
  return oa_transfer_up_holding(device, stream, moves, count, NULL);
}

int oa_transfer_down(oa_device *device, void *stream, oa_move *moves, int count) {
  if (device->backend->flags & OA_SYNCHRONOUS) return OA_OK;
  oa_saved_error error;
  if (!(count = leave_out_coherent(moves, count))) return OA_OK;
  oa_batch b = batch_of(device, stream, moves, count, false, &error);
  sort(moves, count);
  const int status = oa_pack_small(&b);
  if (status) {
    const bool waited = oa_transfer_quiesce(device, stream);
    oa_transfer_cancel(device, moves, count, waited);
  }
  return status;
}

/* -- settling -- */

enum fate { OLD, NEW, TORN };

static enum fate fate_of(const oa_move *move) {
  if (move->coherent) return OLD; /* its former bytes are restored */
  const bool is_new = move->staged || move->in_place || move->drained == oa_lines_bytes(move->lines);
  return move->torn || (move->drained && !is_new) ? TORN : is_new ? NEW : OLD;
}

/* Appends "; a, b: word" to the text, with the names of the moves that have this outcome. Returns whether there are
 * any. */
static bool name_moves(char *text, size_t size, const oa_move *moves, int count, enum fate fate, const char *word) {
  bool any = false;
  for (int i = 0; i < count; i++) {
    const size_t used = strlen(text);
    if (fate_of(&moves[i]) != fate) continue;
    snprintf(text + used, size - used, "%s%s", any ? ", " : "; ", moves[i].name ? moves[i].name : "an array");
    any = true;
  }
  const size_t used = strlen(text);
  if (any) snprintf(text + used, size - used, ": %s", word);
  return any;
}

/* After a failure, returns `status` if all arrays are old or all are new. If not, returns OA_ERROR_TORN, with a text
 * that lists the old, the new and the torn arrays. */
static int report_torn(const oa_move *moves, int count, int status) {
  char text[768] = "";
  const bool torn = name_moves(text, sizeof text, moves, count, TORN, "torn, old bytes and new");
  const bool new = name_moves(text, sizeof text, moves, count, NEW, "new");
  const bool old = name_moves(text, sizeof text, moves, count, OLD, "as before");
  if (!torn && !(new && old)) return status;
  oa_saved_error first;
  oa_error_save(&first);
  return oa_fail(OA_ERROR_TORN, "copying back failed%s; %s", text, first.text);
}

/* Drains the staged moves, and issues the copies to pinned arrays. Returns whether it issued copies to pinned
 * arrays. */
static bool receive_small(const oa_batch *b) {
  const bool synchronous = b->device->backend->flags & OA_SYNCHRONOUS;
  bool direct = false;
  for (int i = 0; i < b->count; i++) {
    oa_move *move = &b->moves[i];
    if (move->staged) {
      const oa_section p = oa_section_whole(move);
      oa_section_drain(&p, move->staged);
    } else if (move->in_place) {
      copy_in_place(move, false);
    } else if (!synchronous && is_pinned(b->device, move) && copy_direct(b, move)) {
      move->direct = direct = true;
    }
  }
  return direct;
}

/* Waits for the copies to pinned arrays; failed copies are retried synchronously. */
static void settle_direct(oa_batch *b) {
  const int status = b->device->backend->stream_synchronize(b->device, b->stream);
  for (int i = 0; i < b->count; i++) {
    oa_move *move = &b->moves[i];
    if (!move->direct) continue;
    const oa_section p = oa_section_whole(move);
    if (status) {
      move->torn = status == OA_ERROR_LOST;
      oa_chunks_retry_plain(b, &p, status);
    } else {
      oa_section_drained(&p);
    }
  }
}

int oa_transfer_settle(oa_device *device, void *stream, oa_move *moves, int count) {
  oa_saved_error error;
  const int all = count;
  if (!(count = leave_out_coherent(moves, count))) return OA_OK;
  oa_batch b = batch_of(device, stream, moves, count, false, &error);
  b.under_way = oa_batch_under_way(OA_TRACE_DOWN, device, moves, count);
  const bool direct = receive_small(&b);
  const int64_t large = large_bytes(&b);
  if (large) oa_chunks_work_off(&b, large);
  if (direct) settle_direct(&b);
  oa_under_way_end(b.under_way);
  int status = b.status;
  if (status) {
    oa_error_restore(&error);
    status = report_torn(moves, all, status);
  } else {
    count_moves(&b);
  }
  oa_transfer_cancel(device, moves, count, true);
  return status;
}

void oa_transfer_cancel(oa_device *device, oa_move *moves, int count, bool waited) {
  bool over = waited || oa_device_quiesce(device);
  for (int i = 0; i < count; i++) {
    if (moves[i].block && over)
      oa_block_return(device, moves[i].block);
    else if (moves[i].block)
      oa_block_lose(device, moves[i].block);
    moves[i].block = NULL;
    moves[i].staged = NULL;
  }
}
