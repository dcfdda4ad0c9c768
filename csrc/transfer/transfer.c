#include "transfer/transfer.h"

#include "base/threads.h"
#include "device/staging.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Measured on an H200 (PCIe 5): benchmarks/transfer.c. */
struct oa_tuning oa_tuning = {.small = OA_SMALL_BYTES,
                              .alone_most = 1 << 20,
                              .chunk_least = OA_SMALL_BYTES,
                              .chunk_most = OA_LARGE_BYTES,
                              .part_least = 64 << 10,
                              .split_least = 1 << 20,
                              .past_least = 32 << 10,
                              .past_most = 64 << 20};

/* -- pieces: some lines of a move, or a part of one ------------------------------------------------------------------ */

typedef struct piece {
  oa_move *move;
  int64_t line, offset; /* the first line; from its start. Irregular: line 0, offset from the packed array's start */
  int64_t width, lines;
} piece;

static int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static piece whole(oa_move *move) { return (piece){move, 0, 0, move->lines.width, move->lines.count}; }

static int64_t bytes_of(const piece *p) { return p->width * p->lines; }

/* Whether it travels in chunks. */
static bool is_large(const oa_move *move) { return !move->staged && !move->direct && !move->in_place; }

/* Into how many pieces of at most `chunk` bytes it is cut: whole lines, or parts of one where a line is more than that. */
static int64_t pieces_of(const oa_move *move, int64_t chunk) {
  const oa_lines *l = &move->lines;
  if (l->width > chunk) return l->count * ((l->width + chunk - 1) / chunk);
  const int64_t each = chunk / l->width;
  return (l->count + each - 1) / each;
}

static piece piece_of(oa_move *move, int64_t chunk, int64_t number) {
  const oa_lines *l = &move->lines;
  if (l->width > chunk) {
    const int64_t parts = (l->width + chunk - 1) / chunk, offset = number % parts * chunk;
    return (piece){move, number / parts, offset, l->width - offset < chunk ? l->width - offset : chunk, 1};
  }
  const int64_t each = chunk / l->width, line = number * each;
  return (piece){move, line, 0, l->width, l->count - line < each ? l->count - line : each};
}

/* The k-th of so many parts of a piece, which lies *at bytes behind its start when packed; false if that one is empty. */
static bool part_of(const piece *p, int k, int of, piece *part, int64_t *at) {
  enum { GRAIN = 512 }; /* a multiple of every itemsize */
  *part = *p;
  if (p->lines == 1) {
    const int64_t each = round_up((p->width + of - 1) / of, GRAIN);
    *at = k * each;
    part->offset += *at;
    part->width = least(p->width - *at, each);
    return part->width > 0;
  }
  const int64_t each = (p->lines + of - 1) / of;
  *at = k * each * p->width;
  part->line += k * each;
  part->lines = least(p->lines - k * each, each);
  return part->lines > 0;
}

static uint64_t address_of(const piece *p) {
  return p->move->address + (uint64_t)(p->line * p->move->lines.pitch + p->offset);
}

static char *host_of(const piece *p) { return (char *)p->move->host + p->line * p->move->lines.pitch + p->offset; }

/* memcpy that leaves what it writes out of the caches: a chunk is read next by the device, which else has to fetch it from
 * this core's, and this core to ask for it back the next time. */
static void copy_past(char *to, const char *from, size_t nbytes) {
#ifdef __SSE2__
  size_t head = -(uintptr_t)to & 63;
  if (head > nbytes) head = nbytes;
  memcpy(to, from, head);
  to += head, from += head, nbytes -= head;
  for (; nbytes >= 64; nbytes -= 64, to += 64, from += 64) {
    const __m128i *in = (const __m128i *)from;
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2),
                  d = _mm_loadu_si128(in + 3);
    __m128i *out = (__m128i *)to;
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();
#endif
  memcpy(to, from, nbytes);
}

static void pause_cpu(void) {
#ifdef __SSE2__
  _mm_pause();
#endif
}

static void fill(const piece *p, void *to) {
  const oa_shape *s = p->move->irregular;
  if (s)
    oa_gather(to, p->move->host, s->ndim, s->shape, s->strides, s->itemsize, p->offset / s->itemsize,
              p->width / s->itemsize);
  else
    oa_copy_lines(to, (size_t)p->width, host_of(p), (size_t)p->move->lines.pitch, (size_t)p->width, (size_t)p->lines);
}

/* Fills pinned memory. */
static void fill_block(const piece *p, void *to, bool past) {
  if (past && p->lines == 1 && !p->move->irregular)
    copy_past(to, host_of(p), (size_t)p->width);
  else
    fill(p, to);
}

static void drain(const piece *p, const void *from) {
  const oa_shape *s = p->move->irregular;
  if (s)
    oa_scatter(p->move->host, from, s->ndim, s->shape, s->strides, s->itemsize, p->offset / s->itemsize,
               p->width / s->itemsize);
  else
    oa_copy_lines(host_of(p), (size_t)p->move->lines.pitch, from, (size_t)p->width, (size_t)p->width, (size_t)p->lines);
}

/* -- one batch ---------------------------------------------------------------------------------------------------- */

/* A chunk is a piece that passes through one block, as one copy of the device's. Its parts, `split` of them, are filled or
 * drained by whoever is free, so that the first chunk is soon on its way; then come those of the next. Chunk n has entry
 * n % RING. */
typedef struct chunk {
  _Atomic int64_t turn; /* 2 n: n may have the entry; 2 n + 1: its parts may be worked on */
  atomic_int left;      /* parts that are not done */
  oa_block *block;      /* NULL: there is none, its parts go the plain way */
  int status;           /* of its copy down */
} chunk;

enum { RING = 64, AHEAD = 4 };

typedef struct batch {
  oa_device *device;
  void *stream;
  oa_move *moves;
  int count;
  bool up;
  oa_held_blocks *held; /* up: the caller's; NULL: each block is returned with an event */
  bool past;            /* chunks are written past the caches */
  int split;            /* of a chunk, into parts */
  int64_t bytes;        /* of a chunk, at most */
  int64_t chunks;
  _Atomic int64_t next; /* part */
  atomic_bool stop;
  chunk *ring;
  atomic_bool issuing; /* copies down: in order */
  _Atomic int64_t issued;
  /* the first failure, under the mutex */
  pthread_mutex_t mutex;
  int status;
  oa_saved_error *error; /* the caller's */
} batch;

static void note_failure(batch *b, int status, bool stop) {
  pthread_mutex_lock(&b->mutex);
  if (!b->status) {
    b->status = status;
    oa_error_save(b->error);
  }
  pthread_mutex_unlock(&b->mutex);
  if (stop) atomic_store(&b->stop, true);
}

static bool stopped(const batch *b) { return atomic_load_explicit(&b->stop, memory_order_relaxed); }

/* The next number of `most`, if there is one left. */
static bool next_number(batch *b, int64_t most, int64_t *number) {
  *number = atomic_fetch_add_explicit(&b->next, 1, memory_order_relaxed);
  return *number < most;
}

static piece chunk_at(const batch *b, int64_t number) {
  int low = 0, high = b->count; /* the last move that starts no later: one without chunks starts with the next */
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (b->moves[middle].first <= number)
      low = middle;
    else
      high = middle;
  }
  return piece_of(&b->moves[low], b->bytes, number - b->moves[low].first);
}

static void drained(const piece *p) { __atomic_fetch_add(&p->move->drained, bytes_of(p), __ATOMIC_RELAXED); }

enum { LITTLE = 16 << 10 }; /* bytes that go over the stack */

/* The backend's own way: from and to memory that it does not know. */
static int plain_up(batch *b, const piece *p) {
  const oa_backend *backend = b->device->backend;
  const size_t pitch = (size_t)p->move->lines.pitch;
  if (!p->move->irregular)
    return backend->copy_up(b->device, b->stream, address_of(p), pitch, host_of(p), pitch, (size_t)p->width,
                            (size_t)p->lines);
  _Alignas(16) char little[LITTLE];
  int status = OA_OK;
  for (int64_t at = 0; at < p->width && !status; at += LITTLE) {
    const piece part = {p->move, 0, p->offset + at, p->width - at < LITTLE ? p->width - at : LITTLE, 1};
    fill(&part, little);
    status = backend->copy_up(b->device, b->stream, address_of(&part), (size_t)part.width, little, (size_t)part.width,
                              (size_t)part.width, 1);
  }
  return status;
}

static int plain_down(batch *b, const piece *p) {
  const oa_backend *backend = b->device->backend;
  const size_t pitch = (size_t)p->move->lines.pitch;
  int status = OA_OK;
  if (!p->move->irregular) {
    status = backend->copy_down(b->device, b->stream, host_of(p), pitch, address_of(p), pitch, (size_t)p->width,
                                (size_t)p->lines);
    const int waited = backend->stream_synchronize(b->device, b->stream);
    return status ? status : waited;
  }
  _Alignas(16) char little[LITTLE];
  for (int64_t at = 0; at < p->width && !status; at += LITTLE) {
    const piece part = {p->move, 0, p->offset + at, p->width - at < LITTLE ? p->width - at : LITTLE, 1};
    status = backend->copy_down(b->device, b->stream, little, (size_t)part.width, address_of(&part), (size_t)part.width,
                                (size_t)part.width, 1);
    const int waited = backend->stream_synchronize(b->device, b->stream);
    if (!status) status = waited;
    if (!status) drain(&part, little);
  }
  return status;
}

/* Makes the device current for all that a thread does, rather than for each call. */
static bool enter(batch *b, void **saved) {
  const oa_backend *backend = b->device->backend;
  return backend->enter && backend->enter(b->device, saved) == OA_OK;
}

/* Between two looks at what another thread changes, which takes as long as a copy. */
static void pause_a_while(int looks) {
  enum { SPINS = 1000, YIELDS = 5000 };
  if (looks < SPINS)
    pause_cpu();
  else if (looks < SPINS + YIELDS)
    sched_yield();
  else
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static void await_turn(const chunk *c, int64_t turn) {
  for (int i = 0; atomic_load_explicit(&c->turn, memory_order_acquire) != turn; i++) pause_a_while(i);
}

/* Once some bytes of an array are new the others should be too: what failed is tried the plain way before it is given up,
 * and the other pieces go on unless the device is gone. */
static void again(batch *b, const piece *p, int status) {
  if (status != OA_ERROR_LOST && (status = plain_down(b, p))) __atomic_store_n(&p->move->torn, true, __ATOMIC_RELAXED);
  if (status)
    note_failure(b, status, status == OA_ERROR_LOST);
  else
    drained(p);
}

/* Sends chunk n down into a block of its own. */
static void issue(batch *b, int64_t n, enum oa_block_wait wait) {
  const piece p = chunk_at(b, n);
  chunk *c = &b->ring[n % RING];
  const oa_backend *backend = b->device->backend;
  c->status = OA_OK;
  c->block = stopped(b) ? NULL : oa_block_take(b->device, OA_BLOCK_LARGE, wait);
  if (!c->block) return;
  c->status = backend->copy_down(b->device, b->stream, c->block->memory, (size_t)p.width, address_of(&p),
                                 (size_t)p.move->lines.pitch, (size_t)p.width, (size_t)p.lines);
  if (!c->status) c->status = oa_block_mark(b->device, c->block, b->stream);
  if (!c->status) return;
  oa_saved_error first;
  oa_error_save(&first);
  backend->stream_synchronize(b->device, b->stream); /* nothing touches the block afterwards */
  oa_error_restore(&first);
  if (c->status == OA_ERROR_LOST) note_failure(b, c->status, true);
  oa_block_return(b->device, c->block);
  c->block = NULL;
}

/* Sees to it that chunk n is on its way down, and some more behind it where blocks are free. One thread issues at a time;
 * none waits for it whose chunk is under way. */
static void issue_to(batch *b, int64_t n) {
  for (int looks = 0; atomic_exchange(&b->issuing, true); looks++) {
    if (atomic_load(&b->issued) > n) return;
    pause_a_while(looks);
  }
  for (int64_t i = b->issued; i < b->chunks && i <= n + AHEAD; b->issued = ++i) {
    chunk *c = &b->ring[i % RING];
    const bool must = i <= n;
    if (must)
      await_turn(c, 2 * i);
    else if (atomic_load(&c->turn) != 2 * i)
      break;
    issue(b, i, must ? OA_BLOCK_WAIT : OA_BLOCK_NOW);
    if (!must && !c->block && !c->status) break; /* later, then */
  }
  atomic_store(&b->issuing, false);
}

/* The first part's thread opens a chunk for the others. */
static void open_chunk(batch *b, int64_t n) {
  chunk *c = &b->ring[n % RING];
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

/* The last part's thread sends it up, or gives its block back. */
static void close_chunk(batch *b, int64_t n, const piece *p) {
  chunk *c = &b->ring[n % RING];
  if (b->up && c->block && !stopped(b)) {
    int status =
        b->device->backend->copy_up_later(b->device, b->stream, address_of(p), (size_t)p->move->lines.pitch,
                                          c->block->memory, (size_t)p->width, (size_t)p->width, (size_t)p->lines);
    const int given = oa_block_return_after(b->device, c->block, b->stream); /* some of it may be under way */
    if (!status) status = given;
    if (status) note_failure(b, status, true);
  } else if (c->block) { /* if it couldn't be waited for, it stays busy until its event can */
    oa_block_return(b->device, c->block);
  }
  c->block = NULL;
  atomic_store_explicit(&c->turn, 2 * (n + RING), memory_order_release);
}

static void work_part(batch *b, const chunk *c, const piece *p, int64_t at) {
  char *memory = c->block ? (char *)c->block->memory + at : NULL;
  int status;
  if (stopped(b)) return; /* but every chunk is opened and closed: others may be waiting for its block */
  if (!b->up && (!memory || c->status)) {
    again(b, p, c->status);
  } else if (!b->up) {
    drain(p, memory);
    drained(p);
  } else if (!memory) {
    if ((status = plain_up(b, p))) note_failure(b, status, true);
  } else {
    fill_block(p, memory, b->past);
  }
}

/* What one thread does for a batch. */
static void work(void *data) {
  batch *b = data;
  int64_t number, at;
  void *saved;
  const bool entered = enter(b, &saved);
  while (next_number(b, b->chunks * b->split, &number)) {
    const int64_t n = number / b->split;
    const int k = (int)(number % b->split);
    chunk *c = &b->ring[n % RING];
    if (k)
      await_turn(c, 2 * n + 1);
    else
      open_chunk(b, n);
    const piece p = chunk_at(b, n);
    piece part;
    if (part_of(&p, k, b->split, &part, &at)) work_part(b, c, &part, at);
    if (atomic_fetch_sub_explicit(&c->left, 1, memory_order_acq_rel) == 1) close_chunk(b, n, &p);
  }
  if (entered) b->device->backend->leave(b->device, saved);
}

/* What one thread does where the device's memory is this process's and every operation is complete when it returns. */
static void work_here(void *data) {
  batch *b = data;
  const oa_backend *backend = b->device->backend;
  int64_t number;
  while (!stopped(b) && next_number(b, b->chunks, &number)) {
    const piece p = chunk_at(b, number);
    const size_t pitch = (size_t)p.move->lines.pitch, width = (size_t)p.width, lines = (size_t)p.lines;
    const uint64_t address = address_of(&p);
    int status = OA_OK;
    if (p.move->irregular && b->up)
      fill(&p, (void *)(uintptr_t)address);
    else if (p.move->irregular)
      drain(&p, (const void *)(uintptr_t)address);
    else if (b->up)
      status = backend->copy_up(b->device, b->stream, address, pitch, host_of(&p), pitch, width, lines);
    else
      status = backend->copy_down(b->device, b->stream, host_of(&p), pitch, address, pitch, width, lines);
    if (status)
      note_failure(b, status, b->up);
    else
      drained(&p);
  }
}

/* Cuts the moves that are neither staged nor direct into chunks of at most so many bytes. */
static void cut(batch *b, int64_t chunk_bytes) {
  b->bytes = chunk_bytes;
  b->chunks = 0;
  for (int i = 0; i < b->count; i++) {
    oa_move *move = &b->moves[i];
    move->first = b->chunks;
    if (is_large(move) && oa_lines_bytes(move->lines)) b->chunks += pieces_of(move, chunk_bytes);
  }
}

/* So many chunks that several are under way while the first is being filled, and the last takes little of the time. */
static int64_t chunk_of(int64_t bytes) {
  enum { CHUNKS = 4 };
  const int64_t wanted = round_up(bytes / CHUNKS, 4096);
  return wanted < oa_tuning.chunk_least  ? oa_tuning.chunk_least
         : wanted > oa_tuning.chunk_most ? oa_tuning.chunk_most
                                         : wanted;
}

/* Works the batch off, on several threads. */
static void work_off(batch *b, int64_t bytes) {
  const bool alone = bytes < oa_tuning.alone_most;
  const int64_t threads = alone ? 1 : oa_threads_count();
  cut(b, alone ? oa_tuning.chunk_most : chunk_of(bytes));
  if (b->device->backend->flags & OA_SYNCHRONOUS) {
    oa_threads_run(work_here, b, bytes < oa_tuning.split_least ? 1 : (int)least(threads, b->chunks));
    return;
  }
  chunk ring[RING];
  for (int i = 0; i < RING; i++) ring[i] = (chunk){.turn = 2 * i};
  b->ring = ring;
  const int64_t split = least(b->bytes / oa_tuning.part_least, threads);
  b->split = split < 1 ? 1 : (int)split;
  b->past = bytes >= oa_tuning.past_least && bytes <= oa_tuning.past_most;
  const int64_t blocks = oa_staging_expect(b->device, bytes);
  oa_threads_run(work, b, (int)least(threads, least(blocks, b->chunks) * b->split));
}

/* -- packing: small arrays, one block and as few copies as can be ----------------------------------------------------- */

typedef struct packing {
  oa_block *block;
  int64_t used;
  /* the run that is being formed: bytes that lie in the block as they do on the device */
  uint64_t address;
  const void *allocation;
  int64_t at, bytes, padding;
} packing;

static int copy_packed(batch *b, const packing *k, uint64_t address, int64_t at, oa_lines lines) {
  const oa_backend *backend = b->device->backend;
  char *memory = (char *)k->block->memory + at;
  const size_t width = (size_t)lines.width, count = (size_t)lines.count, pitch = (size_t)lines.pitch;
  return b->up ? backend->copy_up_later(b->device, b->stream, address, pitch, memory, width, width, count)
               : backend->copy_down(b->device, b->stream, memory, width, address, pitch, width, count);
}

static int end_run(batch *b, packing *k) {
  const int64_t bytes = k->bytes;
  k->bytes = 0;
  return bytes ? copy_packed(b, k, k->address, k->at, (oa_lines){0, bytes, bytes, 1}) : OA_OK;
}

/* Up, the block is free again after its copies; down, it is the moves'. */
static int end_block(batch *b, packing *k) {
  int status = end_run(b, k);
  oa_block *block = k->block;
  *k = (packing){.block = NULL};
  if (!block || !b->up) return status;
  if (b->held && !status && oa_block_hold(b->device, b->held, block)) return OA_OK;
  const int given = oa_block_return_after(b->device, block, b->stream);
  return status ? status : given;
}

/* Finds room for a move and fills it, or has it filled; leaves move->staged NULL if there is no pinned memory. */
static int pack(batch *b, packing *k, oa_move *move) {
  const int64_t bytes = oa_lines_bytes(move->lines);
  const bool joins = k->bytes && move->lines.count == 1 && move->allocation == k->allocation &&
                     move->address == k->address + (uint64_t)(k->bytes + k->padding) &&
                     k->at + k->bytes + k->padding + bytes <= (int64_t)k->block->nbytes;
  int64_t at;
  int status = OA_OK;
  if (joins) {
    at = k->at + k->bytes + k->padding;
    k->bytes = at + bytes - k->at;
  } else {
    if ((status = end_run(b, k))) return status;
    at = round_up(k->used, 64);
    if (k->block && at + bytes > (int64_t)k->block->nbytes && (status = end_block(b, k))) return status;
    if (!k->block) {
      at = 0;
      k->block = oa_block_take(b->device, OA_BLOCK_SMALL, OA_BLOCK_NOW);
      if (!k->block) return OA_OK;
      if (!b->up) move->block = k->block;
    }
    if (move->lines.count == 1) {
      k->address = move->address;
      k->allocation = move->allocation;
      k->at = at;
      k->bytes = bytes;
    }
  }
  k->padding = move->padding;
  k->used = at + bytes;
  move->staged = (char *)k->block->memory + at;
  if (b->up) {
    const piece p = whole(move);
    fill_block(&p, (char *)k->block->memory + at, bytes >= oa_tuning.past_least);
  }
  return move->lines.count == 1 ? OA_OK : copy_packed(b, k, move->address, at, move->lines);
}

static int pack_small(batch *b) {
  packing k = {.block = NULL};
  int status = OA_OK;
  for (int i = 0; i < b->count && !status; i++) {
    const int64_t bytes = oa_lines_bytes(b->moves[i].lines);
    if (bytes && bytes <= oa_tuning.small && !b->moves[i].in_place) status = pack(b, &k, &b->moves[i]);
  }
  if (!status) return end_block(b, &k);
  k.bytes = 0; /* what failed is not tried again */
  oa_saved_error first;
  oa_error_save(&first);
  end_block(b, &k);
  oa_error_restore(&first);
  return status;
}

/* -- the three ways together -------------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b) {
  const oa_move *x = a, *y = b;
  return (x->address > y->address) - (x->address < y->address);
}

/* Neighbours on the device come one after the other. */
static void sort(oa_move *moves, int count) {
  for (int i = 1; i < count; i++) {
    if (by_address(&moves[i - 1], &moves[i]) <= 0) continue;
    qsort(moves, (size_t)count, sizeof *moves, by_address);
    return;
  }
}

/* Copies what the device uses where it lies. */
static void copy_in_place(oa_move *move, bool up) {
  const piece p = whole(move);
  const oa_lines *l = &move->lines;
  void *there = (void *)(uintptr_t)move->address;
  const size_t pitch = (size_t)l->pitch, width = (size_t)l->width, count = (size_t)l->count;
  if (move->irregular)
    up ? fill(&p, there) : drain(&p, there);
  else
    oa_copy_lines(up ? there : move->host, pitch, up ? move->host : there, pitch, width, count);
}

static bool is_pinned(oa_device *device, const oa_move *move) {
  return !move->irregular && !move->in_place && oa_lines_bytes(move->lines) > oa_tuning.small &&
         device->backend->pinned(device, move->host, (size_t)oa_lines_span(move->lines));
}

static int copy_direct(batch *b, const oa_move *move) {
  const oa_backend *backend = b->device->backend;
  const oa_lines l = move->lines;
  const size_t pitch = (size_t)l.pitch, width = (size_t)l.width, count = (size_t)l.count;
  return b->up ? backend->copy_up_later(b->device, b->stream, move->address, pitch, move->host, pitch, width, count)
               : backend->copy_down(b->device, b->stream, move->host, pitch, move->address, pitch, width, count);
}

/* Bytes of what is to be cut into pieces. */
static int64_t rest_of(const batch *b) {
  int64_t bytes = 0;
  for (int i = 0; i < b->count; i++)
    if (is_large(&b->moves[i])) bytes += oa_lines_bytes(b->moves[i].lines);
  return bytes;
}

static void count_moves(const batch *b) {
  struct oa_counts *counts = &b->device->counts;
  int64_t bytes = 0;
  for (int i = 0; i < b->count; i++) bytes += oa_lines_bytes(b->moves[i].lines);
  atomic_fetch_add_explicit(b->up ? &counts->copies_up : &counts->copies_down, b->count, memory_order_relaxed);
  atomic_fetch_add_explicit(b->up ? &counts->bytes_up : &counts->bytes_down, bytes, memory_order_relaxed);
}

int oa_transfer_up_holding(oa_device *device, void *stream, oa_move *moves, int count, oa_held_blocks *held) {
  oa_saved_error error;
  batch b = {.device = device,
             .stream = stream,
             .moves = moves,
             .count = count,
             .up = true,
             .held = held,
             .mutex = PTHREAD_MUTEX_INITIALIZER,
             .error = &error};
  bool direct = false;
  int status = OA_OK;
  if (!(device->backend->flags & OA_SYNCHRONOUS)) {
    sort(moves, count);
    for (int i = 0; i < count; i++) {
      if (moves[i].in_place) copy_in_place(&moves[i], true);
      if (!is_pinned(device, &moves[i])) continue;
      direct = true;                                         /* what of it was issued is waited for, */
      moves[i].direct = copy_direct(&b, &moves[i]) == OA_OK; /* and if not all was, it goes piece by piece */
    }
    status = pack_small(&b);
  }
  const int64_t rest = status ? 0 : rest_of(&b);
  if (rest) {
    work_off(&b, rest);
    if ((status = b.status)) oa_error_restore(b.error);
  }
  if (!status) {
    if (direct) status = device->backend->stream_synchronize(device, stream);
  } else { /* what was issued must not go on when the caller frees the memory on another stream, or the host's bytes change */
    oa_saved_error first;
    oa_error_save(&first);
    device->backend->stream_synchronize(device, stream);
    oa_error_restore(&first);
  }
  if (!status) count_moves(&b);
  return status;
}

int oa_transfer_up(oa_device *device, void *stream, oa_move *moves, int count) {
  return oa_transfer_up_holding(device, stream, moves, count, NULL);
}

int oa_transfer_down(oa_device *device, void *stream, oa_move *moves, int count) {
  if (device->backend->flags & OA_SYNCHRONOUS) return OA_OK;
  batch b = {.device = device, .stream = stream, .moves = moves, .count = count};
  sort(moves, count);
  const int status = pack_small(&b);
  if (status) {
    oa_saved_error first;
    oa_error_save(&first);
    device->backend->stream_synchronize(device, stream);
    oa_transfer_cancel(device, moves, count);
    oa_error_restore(&first);
  }
  return status;
}

static bool is_new(const oa_move *move) {
  return move->staged || move->in_place || move->drained == oa_lines_bytes(move->lines);
}
static bool is_torn(const oa_move *move) { return move->torn || (move->drained && !is_new(move)); }

/* "; a, b: new" and so on, of those that answer to `is`. */
static bool name_moves(char *text, size_t size, const oa_move *moves, int count, int kind, const char *word) {
  bool any = false;
  for (int i = 0; i < count; i++) {
    const int its = is_torn(&moves[i]) ? 2 : is_new(&moves[i]) ? 1 : 0;
    const size_t used = strlen(text);
    if (its != kind) continue;
    snprintf(text + used, size - used, "%s%s", any ? ", " : "; ", moves[i].name ? moves[i].name : "an array");
    any = true;
  }
  const size_t used = strlen(text);
  if (any) snprintf(text + used, size - used, ": %s", word);
  return any;
}

/* After a failure: whether the arrays are still old, or what became of them. */
static int tell_torn(const batch *b, int status) {
  char text[768] = "";
  const bool torn = name_moves(text, sizeof text, b->moves, b->count, 2, "torn, old bytes and new");
  const bool new = name_moves(text, sizeof text, b->moves, b->count, 1, "new");
  const bool old = name_moves(text, sizeof text, b->moves, b->count, 0, "as before");
  if (!torn && !(new && old)) return status;
  oa_saved_error first;
  oa_error_save(&first);
  return oa_fail(OA_ERROR_TORN, "copying back failed%s; %s", text, first.text);
}

int oa_transfer_settle(oa_device *device, void *stream, oa_move *moves, int count) {
  const oa_backend *backend = device->backend;
  const bool here = backend->flags & OA_SYNCHRONOUS;
  oa_saved_error error;
  batch b = {.device = device,
             .stream = stream,
             .moves = moves,
             .count = count,
             .mutex = PTHREAD_MUTEX_INITIALIZER,
             .error = &error};
  bool direct = false;
  for (int i = 0; i < count; i++) {
    oa_move *move = &moves[i];
    if (move->staged) {
      const piece p = whole(move);
      drain(&p, move->staged);
    } else if (move->in_place) {
      copy_in_place(move, false);
    } else if (!here && is_pinned(device, move) && copy_direct(&b, move) == OA_OK) {
      move->direct = direct = true; /* else piece by piece */
    }
  }
  const int64_t rest = rest_of(&b);
  if (rest) work_off(&b, rest);
  if (direct) {
    const int status = backend->stream_synchronize(device, stream);
    for (int i = 0; i < count; i++) {
      oa_move *move = &moves[i];
      if (!move->direct) continue;
      const piece p = whole(move);
      if (!status) {
        drained(&p);
      } else {
        move->torn = status == OA_ERROR_LOST;
        again(&b, &p, status);
      }
    }
  }
  int status = b.status;
  if (status) {
    oa_error_restore(b.error);
    status = tell_torn(&b, status);
  } else {
    count_moves(&b);
  }
  oa_transfer_cancel(device, moves, count);
  return status;
}

void oa_transfer_cancel(oa_device *device, oa_move *moves, int count) {
  for (int i = 0; i < count; i++) {
    if (moves[i].block) oa_block_return(device, moves[i].block);
    moves[i].block = NULL;
    moves[i].staged = NULL;
  }
}
