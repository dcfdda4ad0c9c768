/* Small arrays: packed into one pinned block; neighbours on the device are one copy. */
#include "device/staging.h"
#include "transfer/batch.h"

typedef struct packing {
  oa_block *block;
  int64_t used;
  /* the run that is being formed: bytes in the same order in the block and on the device */
  uint64_t address;
  const void *allocation;
  int64_t at, bytes, padding;
} packing;

/* Copies lines between the device and the block, in which they are packed from offset `at` on. */
static int copy_packed(const oa_batch *b, const packing *k, uint64_t address, int64_t at, oa_lines lines) {
  return oa_batch_copy(b, address, lines.pitch, (char *)k->block->memory + at, lines.width, lines.width, lines.count,
                       true);
}

static int end_run(const oa_batch *b, packing *k) {
  const int64_t bytes = k->bytes;
  k->bytes = 0;
  return bytes ? copy_packed(b, k, k->address, k->at, (oa_lines){0, bytes, bytes, 1}) : OA_OK;
}

/* Ends the block's last run. On the way up, the block goes back to the pool, and is free again after its copies. On the
 * way down, the moves own the block. */
static int end_block(const oa_batch *b, packing *k) {
  int status = end_run(b, k);
  oa_block *block = k->block;
  const int64_t used = k->used;
  *k = (packing){.block = NULL};
  if (!block || !b->up) return status;
  if (b->held && !status && oa_block_hold(b->device, b->held, block, used, b->stream)) return OA_OK;
  const int returned = oa_block_return_after(b->device, block, b->stream);
  return status ? status : returned;
}

/* Returns whether a move begins at the run's end on the device, and fits into the block. */
static bool joins_run(const packing *k, const oa_move *move) {
  const int64_t behind = k->bytes + k->padding;
  return k->bytes && move->lines.count == 1 && move->allocation == k->allocation &&
         move->address == k->address + (uint64_t)behind &&
         k->at + behind + oa_lines_bytes(move->lines) <= (int64_t)k->block->nbytes;
}

/* Begins a run with the move, in a new block if the block is full. Sets *at to the move's offset in the block. k->block
 * becomes NULL if no memory can be pinned. */
static int begin_run(const oa_batch *b, packing *k, oa_move *move, int64_t *at) {
  const int64_t bytes = oa_lines_bytes(move->lines);
  int status = end_run(b, k);
  if (status) return status;
  *at = (k->used + 63) / 64 * 64;
  if (k->block && *at + bytes > (int64_t)k->block->nbytes && (status = end_block(b, k))) return status;
  if (!k->block) {
    *at = 0;
    k->block = oa_block_take(b->device, OA_BLOCK_SMALL, OA_BLOCK_NOW);
    if (!k->block) return OA_OK;
    if (!b->up) move->block = k->block;
  }
  if (move->lines.count == 1) {
    k->address = move->address;
    k->allocation = move->allocation;
    k->at = *at;
    k->bytes = bytes;
  }
  return OA_OK;
}

/* Finds room in a block for a move. Fills this room on the way up, and lets the device fill it on the way down.
 * move->staged stays NULL if no memory can be pinned. */
static int pack(const oa_batch *b, packing *k, oa_move *move) {
  const int64_t bytes = oa_lines_bytes(move->lines);
  int64_t at;
  if (joins_run(k, move)) {
    at = k->at + k->bytes + k->padding;
    k->bytes = at + bytes - k->at;
  } else {
    const int status = begin_run(b, k, move, &at);
    if (status || !k->block) return status;
  }
  char *place = (char *)k->block->memory + at;
  k->padding = move->padding;
  k->used = at + bytes;
  move->staged = place;
  if (b->up) {
    const oa_section p = oa_section_whole(move);
    oa_section_fill_block(&p, place, bytes >= oa_tuning.past_least);
  }
  return move->lines.count == 1 ? OA_OK : copy_packed(b, k, move->address, at, move->lines);
}

int oa_pack_small(oa_batch *b) {
  packing k = {.block = NULL};
  int status = OA_OK;
  for (int i = 0; i < b->count && !status; i++) {
    const int64_t bytes = oa_lines_bytes(b->moves[i].lines);
    if (bytes && bytes <= oa_tuning.small && !b->moves[i].in_place) status = pack(b, &k, &b->moves[i]);
  }
  if (!status) return end_block(b, &k);
  k.bytes = 0; /* the failed copy is not retried, so the run is empty from here on */
  oa_saved_error first;
  oa_error_save(&first);
  end_block(b, &k);
  oa_error_restore(&first);
  return status;
}
