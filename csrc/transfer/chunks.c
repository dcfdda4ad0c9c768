/* Large arrays: chunks through pinned blocks, filled and drained by several threads.
 *
 * A chunk is a section that passes through one block, as one copy of the device. Free threads fill or drain its `split`
 * parts, so that the first chunk is soon on its way; the parts of the next chunk follow. Chunk n has entry n % RING. */
#include "transfer/chunks.h"
#include "base/threads.h"
#include "base/under_way.h"
#include "device/staging.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include <sched.h>
#include <time.h>

typedef struct oa_chunk {
  _Atomic int64_t turn; /* 2 n: chunk n may have the entry; 2 n + 1: threads may work on its parts */
  atomic_int left;      /* number of parts that are not done */
  oa_block *block;      /* NULL: no block was free, and the chunk's parts travel the plain way */
  int status;           /* status of the chunk's copy down */
} oa_chunk;

enum { RING = 64, AHEAD = 6 };
enum { LITTLE = 16 << 10 }; /* the most bytes of one copy through the stack */

static oa_chunk *entry_of(const oa_batch *b, int64_t n) { return &b->ring[n % RING]; }

/* -- failures -- */

static void note_failure(oa_batch *b, int status, bool stop) {
  pthread_mutex_lock(&b->mutex);
  if (!b->status) {
    b->status = status;
    oa_error_save(b->error);
  }
  pthread_mutex_unlock(&b->mutex);
  if (stop) atomic_store(&b->stop, true);
}

static bool stopped(const oa_batch *b) { return atomic_load_explicit(&b->stop, memory_order_relaxed); }

/* -- the plain way: from and to memory that is unknown to the backend -- */

/* Returns the part of an irregular section that begins at offset `at` and is copied through the stack. */
static oa_section little_part(const oa_section *p, int64_t at) {
  return (oa_section){p->move, 0, p->offset + at, p->width - at < LITTLE ? p->width - at : LITTLE, 1};
}

static int copy_regular(const oa_batch *b, const oa_section *p) {
  const int64_t pitch = p->move->lines.pitch;
  return oa_batch_copy(b, oa_section_address(p), pitch, oa_section_host(p), pitch, p->width, p->lines, false);
}

static int copy_little(const oa_batch *b, const oa_section *part, void *little) {
  return oa_batch_copy(b, oa_section_address(part), part->width, little, part->width, part->width, 1, false);
}

static int plain_up(const oa_batch *b, const oa_section *p) {
  if (!p->move->irregular) return copy_regular(b, p);
  _Alignas(16) char little[LITTLE];
  int status = OA_OK;
  for (int64_t at = 0; at < p->width && !status; at += LITTLE) {
    const oa_section part = little_part(p, at);
    oa_section_fill(&part, little);
    status = copy_little(b, &part, little);
  }
  return status;
}

/* Waits for a copy down whose issue returned that status. Returns the first failure. */
static int wait_after(const oa_batch *b, int status) {
  const int waited = b->device->backend->stream_synchronize(b->device, b->stream);
  /* Waits for the device, because nothing may write to the host's memory later. */
  if (waited) oa_device_quiesce(b->device);
  return status ? status : waited;
}

/* Copies down the bytes that reach the host, and waits for them. */
static int kept_down(const oa_batch *b, const oa_section *p) {
  int status = OA_OK;
  for (int64_t line = 0; line < p->lines && !status; line++)
    for (int64_t at = 0, end; !status && oa_section_kept(p, line, &at, &end); at = end) {
      const int64_t from = line * p->move->lines.pitch + at;
      status = oa_batch_copy(b, oa_section_address(p) + (uint64_t)from, end - at, oa_section_host(p) + from, end - at,
                             end - at, 1, false);
    }
  return wait_after(b, status);
}

static int plain_down(const oa_batch *b, const oa_section *p) {
  if (p->move->kept.parts) return kept_down(b, p);
  if (!p->move->irregular) return wait_after(b, copy_regular(b, p));
  _Alignas(16) char little[LITTLE];
  int status = OA_OK;
  for (int64_t at = 0; at < p->width && !status; at += LITTLE) {
    const oa_section part = little_part(p, at);
    status = wait_after(b, copy_little(b, &part, little));
    if (!status) oa_section_drain(&part, little);
  }
  return status;
}

/* Copies a failed section again in the plain way, because an array that has some new bytes should have all of them. If
 * this copy fails, too, the array is torn. The other sections go on unless the device is lost. */
void oa_chunks_retry_plain(oa_batch *b, const oa_section *p, int status) {
  if (status != OA_ERROR_LOST && (status = plain_down(b, p))) __atomic_store_n(&p->move->torn, true, __ATOMIC_RELAXED);
  if (status)
    note_failure(b, status, status == OA_ERROR_LOST);
  else
    oa_section_drained(p);
}

/* -- chunks -- */

/* Sets *number to the next number below `most`. Returns false if none is left. */
static bool next_number(oa_batch *b, int64_t most, int64_t *number) {
  *number = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed);
  return *number < most;
}

static oa_section chunk_at(const oa_batch *b, int64_t number) {
  int low = 0, high = b->count; /* the last move whose `first` is at most `number` */
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (b->moves[middle].first <= number)
      low = middle;
    else
      high = middle;
  }
  return oa_section_at(&b->moves[low], b->bytes, number - b->moves[low].first);
}

static void pause_cpu(void) {
#ifdef __SSE2__
  _mm_pause();
#endif
}

/* Pauses between two reads of a value that another thread will change; the change takes about as long as a copy. */
static void pause_a_while(int spins) {
  enum { SPINS = 1000, YIELDS = 5000 };
  if (spins < SPINS)
    pause_cpu();
  else if (spins < SPINS + YIELDS)
    sched_yield();
  else
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static void await_turn(const oa_chunk *c, int64_t turn) {
  for (int i = 0; atomic_load_explicit(&c->turn, memory_order_acquire) != turn; i++) pause_a_while(i);
}

/* Copies a section between the device and the chunk's block. */
static int copy_chunk(const oa_batch *b, const oa_chunk *c, const oa_section *p) {
  return oa_batch_copy(b, oa_section_address(p), p->move->lines.pitch, c->block->memory, p->width, p->width, p->lines,
                       true);
}

/* Sends chunk n down into a separate block. */
static void issue(oa_batch *b, int64_t n, enum oa_block_wait wait) {
  const oa_section p = chunk_at(b, n);
  oa_chunk *c = entry_of(b, n);
  c->status = OA_OK;
  c->block = stopped(b) ? NULL : oa_block_take(b->device, OA_BLOCK_LARGE, wait);
  if (!c->block) return;
  c->status = copy_chunk(b, c, &p);
  if (!c->status) c->status = oa_block_mark(b->device, c->block, b->stream);
  if (!c->status) return;
  const bool over = oa_transfer_quiesce(b->device, b->stream);
  if (c->status == OA_ERROR_LOST) note_failure(b, c->status, true);
  if (over)
    oa_block_return(b->device, c->block);
  else
    oa_block_lose(b->device, c->block);
  c->block = NULL;
}

/* Issues the copies down of the chunks up to chunk n and, if blocks are free, of some later chunks. One thread issues
 * at a time. A thread returns if another thread has issued its chunk. */
static void issue_to(oa_batch *b, int64_t n) {
  for (int spins = 0; atomic_exchange(&b->issuing, true); spins++) {
    if (atomic_load(&b->issued) > n) return;
    pause_a_while(spins);
  }
  for (int64_t i = b->issued; i < b->chunks && i <= n + AHEAD; b->issued = ++i) {
    oa_chunk *c = entry_of(b, i);
    const bool must = i <= n;
    if (must)
      await_turn(c, 2 * i);
    else if (atomic_load(&c->turn) != 2 * i)
      break;
    issue(b, i, must ? OA_BLOCK_WAIT : OA_BLOCK_NOW);
    if (!must && !c->block && !c->status) break; /* a later call of this function issues the chunk */
  }
  atomic_store(&b->issuing, false);
}

/* Opens a chunk for all threads. The thread that takes the chunk's first part calls this function. */
static void open_chunk(oa_batch *b, int64_t n) {
  oa_chunk *c = entry_of(b, n);
  if (b->up) {
    await_turn(c, 2 * n);
    c->block = stopped(b) ? NULL : oa_block_take(b->device, OA_BLOCK_LARGE, OA_BLOCK_WAIT);
  } else {
    issue_to(b, n);
    if (c->block && !stopped(b)) c->status = oa_block_await(b->device, c->block);
    if (c->status == OA_ERROR_LOST) note_failure(b, c->status, true);
  }
  atomic_store_explicit(&c->left, b->split, memory_order_relaxed);
  atomic_store_explicit(&c->turn, 2 * n + 1, memory_order_release);
}

/* Sends a chunk up, or returns its block. The thread that ends the chunk's last part calls this function. */
static void close_chunk(oa_batch *b, int64_t n, const oa_section *p) {
  oa_chunk *c = entry_of(b, n);
  if (b->up && c->block && !stopped(b)) {
    int status = copy_chunk(b, c, p);
    /* A part of the chunk's copy may be under way. */
    const int returned = oa_block_return_after(b->device, c->block, b->stream);
    if (!status) status = returned;
    if (status) note_failure(b, status, true);
  } else if (c->block) { /* if the block's event can't be waited for now, the block stays busy */
    oa_block_return(b->device, c->block);
  }
  c->block = NULL;
  atomic_store_explicit(&c->turn, 2 * (n + RING), memory_order_release);
}

static void work_part(oa_batch *b, const oa_chunk *c, const oa_section *p, int64_t at) {
  char *memory = c->block ? (char *)c->block->memory + at : NULL;
  int status;
  /* The chunk is opened and closed nevertheless, because other threads may wait for its block. */
  if (stopped(b)) return;
  if (!b->up && (!memory || c->status)) {
    oa_chunks_retry_plain(b, p, c->status);
  } else if (!b->up) {
    oa_section_drain_block(p, memory, b->past);
    oa_section_drained(p);
  } else if (!memory) {
    if ((status = plain_up(b, p))) note_failure(b, status, true);
  } else {
    oa_section_fill_block(p, memory, b->past);
  }
}

/* Does one thread's share of a batch. */
static void work(void *data) {
  oa_batch *b = data;
  const oa_backend *backend = b->device->backend;
  int64_t number, at;
  void *saved;
  /* The device is current for all of the thread's work, rather than for each call. */
  const bool entered = backend->enter && backend->enter(b->device, &saved) == OA_OK;
  while (next_number(b, b->chunks * b->split, &number)) {
    const int64_t n = number / b->split;
    const int k = (int)(number % b->split);
    oa_chunk *c = entry_of(b, n);
    if (k)
      await_turn(c, 2 * n + 1);
    else
      open_chunk(b, n);
    const oa_section p = chunk_at(b, n);
    oa_section part;
    if (oa_section_part(&p, k, b->split, &part, &at)) {
      work_part(b, c, &part, at);
      oa_under_way_add(b->under_way, oa_section_bytes(&part));
    }
    if (atomic_fetch_sub_explicit(&c->left, 1, memory_order_acq_rel) == 1) close_chunk(b, n, &p);
  }
  if (entered) backend->leave(b->device, saved);
}

/* Does one thread's share on a synchronous device, whose memory is host memory: copies directly into that memory. */
static void work_here(void *data) {
  oa_batch *b = data;
  int64_t number;
  while (!stopped(b) && next_number(b, b->chunks, &number)) {
    const oa_section p = chunk_at(b, number);
    void *memory = (void *)(uintptr_t)oa_section_address(&p);
    int status = OA_OK;
    if (!p.move->irregular)
      status = copy_regular(b, &p);
    else if (b->up)
      oa_section_fill(&p, memory);
    else
      oa_section_drain(&p, memory);
    if (status)
      note_failure(b, status, b->up);
    else
      oa_section_drained(&p);
    oa_under_way_add(b->under_way, oa_section_bytes(&p));
  }
}

/* -- sizes -- */

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Cuts the large moves into chunks of at most chunk_bytes. */
static void cut(oa_batch *b, int64_t chunk_bytes) {
  b->bytes = chunk_bytes;
  b->chunks = 0;
  for (int i = 0; i < b->count; i++) {
    oa_move *move = &b->moves[i];
    move->first = b->chunks;
    if (oa_move_is_large(move) && oa_lines_bytes(move->lines)) b->chunks += oa_section_count(move, chunk_bytes);
  }
}

/* Returns the size of a chunk. Chunks are so small that several chunks are under way at a time, and that the last chunk
 * takes a small part of the time. */
static int64_t chunk_of(int64_t bytes) {
  enum { CHUNKS = 4, GRAIN = 4096 };
  const int64_t size = (bytes / CHUNKS + GRAIN - 1) / GRAIN * GRAIN;
  return size < oa_tuning.chunk_least  ? oa_tuning.chunk_least
         : size > oa_tuning.chunk_most ? oa_tuning.chunk_most
                                       : size;
}

/* Returns how many threads fill or drain; past: stores to chunks bypass the caches. With such stores, a few threads
 * fill whole lines as fast as the bus takes them. More threads saturate the memory and halve the speed of the device's
 * reads. */
static int64_t threads_for(const oa_batch *b, bool past) {
  const int64_t threads = oa_threads_count();
  for (int i = 0; i < b->count && past; i++)
    past = !oa_move_is_large(&b->moves[i]) || (!b->moves[i].irregular && b->moves[i].lines.count == 1);
  return past ? least(threads, oa_tuning.past_threads) : threads;
}

void oa_chunks_work_off(oa_batch *b, int64_t bytes) {
  const bool alone = bytes < oa_tuning.alone_most;
  const bool is_synchronous = b->device->backend->flags & OA_SYNCHRONOUS;
  const bool fits = bytes >= oa_tuning.past_least && bytes <= oa_tuning.past_most;
  b->past = b->up ? fits : bytes > oa_tuning.past_most;
  const int64_t threads = alone ? 1 : threads_for(b, b->up && b->past && !is_synchronous);
  cut(b, alone ? oa_tuning.chunk_most : chunk_of(bytes));
  if (is_synchronous) {
    oa_threads_run(b->device, work_here, b, bytes < oa_tuning.split_least ? 1 : (int)least(threads, b->chunks));
    return;
  }
  oa_chunk ring[RING];
  for (int i = 0; i < RING; i++) ring[i] = (oa_chunk){.turn = 2 * i};
  b->ring = ring;
  const int64_t split = least(b->bytes / oa_tuning.part_least, threads);
  b->split = split < 1 ? 1 : (int)split;
  const int64_t blocks = oa_staging_expect(b->device, bytes);
  oa_threads_run(b->device, work, b, (int)least(threads, least(blocks, b->chunks) * b->split));
}
