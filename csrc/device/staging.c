#include "device/staging.h"

#include "base/settings.h"
#include "base/threads.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/sysinfo.h>

/* The blocks of a device. Idle blocks are at the front of a shelf; busy blocks follow in the order of their events. The
 * mutex guards all fields. The mutex is a leaf: a thread that holds it takes no other lock. */
struct oa_staging {
  pthread_mutex_t mutex;
  pthread_cond_t returned;
  _Atomic int64_t expected; /* bytes announced so far */
  atomic_int held;          /* blocks in some oa_held_blocks */
  struct shelf {
    oa_block *first, **last;
    int count, waiting;
  } shelves[OA_BLOCK_KINDS];
};

/* -- pinned memory ------------------------------------------------------------------------------------------------ */

static _Atomic int64_t pinned_bytes; /* bytes that this process has pinned, for all devices */

/* Returns the limit of the process: half of the machine's memory unless the environment says otherwise. */
static int64_t pinned_limit(void) {
  static _Atomic int64_t known; /* the limit + 1 */
  int64_t limit = atomic_load_explicit(&known, memory_order_relaxed) - 1;
  if (limit >= 0) return limit;
  struct sysinfo info;
  const int64_t total = sysinfo(&info) == 0 ? (int64_t)info.totalram * info.mem_unit : INT64_MAX - 1;
  if (oa_settings_pinned_limit(total, &limit) || limit == INT64_MAX) limit = total / 2;
  atomic_store_explicit(&known, limit + 1, memory_order_relaxed);
  return limit;
}

int oa_staging_pin(oa_device *device, size_t nbytes, void **memory) {
  const int64_t limit = pinned_limit();
  int64_t used = atomic_load(&pinned_bytes);
  do {
    if (nbytes > (size_t)INT64_MAX || used > limit - (int64_t)nbytes)
      return oa_fail(OA_ERROR_MEMORY,
                     "%s: %zu bytes of pinned memory requested, %" PRId64 " used, limit %" PRId64
                     " (OFFLOAD_ARGS_PINNED_LIMIT)",
                     device->name, nbytes, used, limit);
  } while (!atomic_compare_exchange_weak(&pinned_bytes, &used, used + (int64_t)nbytes));
  oa_node_policy before;
  oa_node_prefer(device->node, &before);
  const int status = device->backend->pin(device, nbytes, memory);
  oa_node_restore(&before);
  if (status)
    atomic_fetch_sub(&pinned_bytes, (int64_t)nbytes);
  else
    atomic_fetch_add(&device->counts.pinned_bytes, (int64_t)nbytes);
  return status;
}

int oa_staging_unpin(oa_device *device, void *memory, size_t nbytes) {
  atomic_fetch_sub(&pinned_bytes, (int64_t)nbytes);
  atomic_fetch_sub(&device->counts.pinned_bytes, (int64_t)nbytes);
  return device->backend->unpin(device, memory, nbytes);
}

/* -- blocks ------------------------------------------------------------------------------------------------------- */

/* Returns the device's blocks, made at first use; NULL if host memory runs out (no text is set). */
static struct oa_staging *staging_of(oa_device *device) {
  struct oa_staging *staging = atomic_load_explicit(&device->staging, memory_order_acquire), *fresh;
  if (OA_LIKELY(staging != NULL)) return staging;
  if (!(fresh = calloc(1, sizeof *fresh))) return NULL;
  pthread_mutex_init(&fresh->mutex, NULL);
  pthread_cond_init(&fresh->returned, NULL);
  for (int kind = 0; kind < OA_BLOCK_KINDS; kind++) fresh->shelves[kind].last = &fresh->shelves[kind].first;
  if (atomic_compare_exchange_strong(&device->staging, &staging, fresh)) return fresh;
  pthread_cond_destroy(&fresh->returned); /* another thread was faster and has set device->staging */
  pthread_mutex_destroy(&fresh->mutex);
  free(fresh);
  return staging;
}

static oa_block *block_new(oa_device *device, int kind) {
  oa_block *block = calloc(1, sizeof *block);
  if (!block) return NULL;
  block->kind = kind;
  block->nbytes = kind == OA_BLOCK_SMALL ? OA_SMALL_BYTES : OA_LARGE_BYTES;
  oa_saved_error before;
  oa_error_save(&before);
  int status = device->backend->event_create(device, &block->event);
  if (!status && (status = oa_staging_pin(device, block->nbytes, &block->memory)))
    device->backend->event_destroy(device, block->event);
  if (!status) return block;
  free(block);
  if (status != OA_ERROR_LOST)
    oa_warn_process("%s; copies take the driver's slower way until there is some", oa_last_error());
  oa_error_restore(&before);
  return NULL;
}

/* Puts a block on its shelf, under the mutex. */
static void put(struct oa_staging *staging, oa_block *block) {
  struct shelf *shelf = &staging->shelves[block->kind];
  if (block->busy) {
    block->next = NULL;
    *shelf->last = block;
    shelf->last = &block->next;
  } else {
    block->next = shelf->first;
    if (!shelf->first) shelf->last = &block->next;
    shelf->first = block;
  }
  if (shelf->waiting) pthread_cond_broadcast(&staging->returned);
}

/* Takes the first block off a shelf, under the mutex; NULL if the shelf is empty. */
static oa_block *get(struct shelf *shelf) {
  oa_block *block = shelf->first;
  if (!block) return NULL;
  shelf->first = block->next;
  if (!shelf->first) shelf->last = &shelf->first;
  return block;
}

/* Returns the number of large blocks that pays off for the traffic so far. */
static int large_blocks(const struct oa_staging *staging) {
  enum {
    WORTH = 16 << 20, /* one block pays off for so many bytes of traffic */
    MOST = 12         /* more blocks don't stay in the caches between the threads and the device */
  };
  const int64_t paid = atomic_load_explicit(&staging->expected, memory_order_relaxed) / WORTH;
  const int threads = oa_threads_count(), most = 2 * threads < MOST ? 2 * threads : MOST;
  return paid >= most ? most : paid < 2 ? 2 : (int)paid;
}

int oa_staging_expect(oa_device *device, int64_t bytes) {
  struct oa_staging *staging = staging_of(device);
  if (!staging) return 0;
  atomic_fetch_add_explicit(&staging->expected, bytes, memory_order_relaxed);
  return large_blocks(staging);
}

/* Checks whether a busy block's copies are over; frees the mutex and takes it again. The block is on no shelf. */
static void look_at(oa_device *device, struct oa_staging *staging, oa_block *block) {
  int done = 0;
  pthread_mutex_unlock(&staging->mutex);
  if (device->backend->event_done(device, block->event, &done) == OA_OK && done) block->busy = false;
  pthread_mutex_lock(&staging->mutex);
}

/* Makes a block and counts it in its shelf; frees the mutex and takes it again. Returns NULL if there is no pinned
 * memory for it. */
static oa_block *make(oa_device *device, struct oa_staging *staging, int kind) {
  struct shelf *shelf = &staging->shelves[kind];
  shelf->count++;
  pthread_mutex_unlock(&staging->mutex);
  oa_block *block = block_new(device, kind);
  pthread_mutex_lock(&staging->mutex);
  if (block) return block;
  shelf->count--;
  /* The shelf may have no block now, so the waiting threads look again. */
  if (shelf->waiting) pthread_cond_broadcast(&staging->returned);
  return NULL;
}

/* Takes an idle block off its shelf. If no block is idle, the function makes a block while fewer than `most` blocks
 * exist, and otherwise takes a busy block. If there is no busy block, the function waits for a block of another thread.
 * It returns NULL if `wait` forbids this wait, or if the shelf has no blocks at all. Called with the mutex. */
static oa_block *find_block(oa_device *device, struct oa_staging *staging, int kind, int most,
                            enum oa_block_wait wait) {
  struct shelf *shelf = &staging->shelves[kind];
  bool failed = false; /* a block could not be made */
  for (;;) {
    oa_block *block = get(shelf);
    if (block && block->busy && !failed && shelf->count < most) look_at(device, staging, block);
    const bool may_make = !failed && shelf->count < most;
    if (block && (!block->busy || !may_make)) return block;
    if (may_make) {
      oa_block *fresh = make(device, staging, kind);
      if (fresh && block) put(staging, block);
      if (fresh || block) return fresh ? fresh : block;
      failed = true; /* the search goes on, because a block may have been returned meanwhile */
    } else {
      if (wait == OA_BLOCK_NOW || !shelf->count) return NULL;
      shelf->waiting++;
      pthread_cond_wait(&staging->returned, &staging->mutex);
      shelf->waiting--;
    }
  }
}

enum { SMALL_MOST = 64 }; /* blocks */

oa_block *oa_block_take(oa_device *device, int kind, enum oa_block_wait wait) {
  struct oa_staging *staging = staging_of(device);
  if (!staging) return NULL;
  pthread_mutex_lock(&staging->mutex);
  oa_block *block =
      find_block(device, staging, kind, kind == OA_BLOCK_SMALL ? SMALL_MOST : large_blocks(staging), wait);
  pthread_mutex_unlock(&staging->mutex);
  if (!block || !block->busy) return block;
  oa_saved_error before;
  oa_error_save(&before);
  if (!oa_block_await(device, block)) return block;
  /* The block goes back to its shelf: it can't be used or unpinned, because its copies may still be under way. */
  oa_block_return(device, block);
  oa_error_restore(&before);
  return NULL;
}

/* Takes all blocks of a shelf, and unpins each block that no copy uses and no thread waits for. Returns the first
 * failure. */
static int trim_shelf(oa_device *device, struct oa_staging *staging, struct shelf *shelf) {
  int status = OA_OK;
  pthread_mutex_lock(&staging->mutex);
  oa_block *idle = shelf->first;
  shelf->first = NULL;
  shelf->last = &shelf->first;
  pthread_mutex_unlock(&staging->mutex);
  while (idle) {
    oa_block *block = idle;
    idle = block->next;
    if (block->busy && !status) status = oa_block_await(device, block);
    pthread_mutex_lock(&staging->mutex);
    const bool stays = block->busy || shelf->waiting;
    if (stays) put(staging, block);
    if (!stays) shelf->count--;
    pthread_mutex_unlock(&staging->mutex);
    if (stays) continue;
    device->backend->event_destroy(device, block->event);
    const int unpinned = oa_staging_unpin(device, block->memory, block->nbytes);
    if (!status) status = unpinned;
    free(block);
  }
  return status;
}

int oa_staging_trim(oa_device *device) {
  struct oa_staging *staging = atomic_load_explicit(&device->staging, memory_order_acquire);
  int status = OA_OK;
  for (int kind = 0; staging && kind < OA_BLOCK_KINDS; kind++) {
    const int trimmed = trim_shelf(device, staging, &staging->shelves[kind]);
    if (!status) status = trimmed;
  }
  return status;
}

void oa_block_return(oa_device *device, oa_block *block) {
  struct oa_staging *staging = device->staging;
  pthread_mutex_lock(&staging->mutex);
  put(staging, block);
  pthread_mutex_unlock(&staging->mutex);
}

void oa_block_lose(oa_device *device, oa_block *block) {
  struct oa_staging *staging = device->staging;
  pthread_mutex_lock(&staging->mutex);
  struct shelf *shelf = &staging->shelves[block->kind];
  shelf->count--; /* the block's memory stays pinned, because the device may write it */
  if (shelf->waiting) pthread_cond_broadcast(&staging->returned);
  pthread_mutex_unlock(&staging->mutex);
  free(block);
}

int oa_block_mark(oa_device *device, oa_block *block, void *stream) {
  const int status = device->backend->event_record(device, block->event, stream);
  block->busy = !status;
  block->stream = stream;
  return status;
}

/* Takes off the shelf the first busy block with last copies on `stream`; NULL if there is none. Called with the
 * mutex. */
static oa_block *get_marked(struct shelf *shelf, const void *stream) {
  for (oa_block **link = &shelf->first; *link; link = &(*link)->next) {
    oa_block *block = *link;
    if (!block->busy || block->stream != stream) continue;
    if (!(*link = block->next)) shelf->last = link;
    return block;
  }
  return NULL;
}

int oa_blocks_mark_again(oa_device *device, void *stream) {
  struct oa_staging *staging = atomic_load_explicit(&device->staging, memory_order_acquire);
  oa_block *marked = NULL, *block;
  int status = OA_OK;
  if (!staging) return OA_OK;
  pthread_mutex_lock(&staging->mutex);
  for (int kind = 0; kind < OA_BLOCK_KINDS; kind++) {
    while ((block = get_marked(&staging->shelves[kind], stream))) {
      block->next = marked;
      marked = block;
    }
  }
  pthread_mutex_unlock(&staging->mutex);
  while ((block = marked)) {
    marked = block->next;
    if (!status) status = device->backend->event_record(device, block->event, stream);
    oa_block_return(device, block);
  }
  return status;
}

int oa_block_await(oa_device *device, oa_block *block) {
  const int status = device->backend->event_synchronize(device, block->event);
  if (!status) block->busy = false;
  return status;
}

int oa_block_return_after(oa_device *device, oa_block *block, void *stream) {
  const int status = oa_block_mark(device, block, stream);
  if (status && !oa_device_quiesce(device))
    oa_block_lose(device, block);
  else
    oa_block_return(device, block);
  return status;
}

bool oa_block_hold(oa_device *device, oa_held_blocks *held, oa_block *block, int64_t bytes, void *stream) {
  struct oa_staging *staging = device->staging;
  if (held->count == OA_HELD_BLOCKS) return false;
  /* The other blocks stay available for copies that hold no block. */
  if (atomic_fetch_add(&staging->held, 1) >= SMALL_MOST / 2) {
    atomic_fetch_sub(&staging->held, 1);
    return false;
  }
  held->at[held->count++] = block;
  if (held->count == 1 && bytes <= OA_HELD_MARKED_MOST && oa_block_mark(device, block, stream)) block->busy = false;
  return true;
}

void oa_held_blocks_look(oa_device *device, const oa_held_blocks *held) {
  int done = 0;
  if (held->count && held->at[0]->busy) device->backend->event_done(device, held->at[0]->event, &done);
}

void oa_held_blocks_return(oa_device *device, oa_held_blocks *held, void *stream, bool waited) {
  if (!held->count) return;
  struct oa_staging *staging = device->staging;
  for (int i = 0; i < held->count; i++) {
    if (waited) {
      held->at[i]->busy = false;
      oa_block_return(device, held->at[i]);
    } else {
      oa_saved_error before;
      oa_error_save(&before);
      if (oa_block_return_after(device, held->at[i], stream)) oa_error_restore(&before);
    }
  }
  atomic_fetch_sub(&staging->held, held->count);
  held->count = 0;
}
