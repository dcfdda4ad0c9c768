#include "transfer/prefault.h"

#include "base/threads.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PIECE = 2 << 20, PAGE = 4096 }; /* bytes: a large page, which one thread touches, and the smallest page */

typedef struct prefault {
  const oa_move *moves;
  int count;
  pthread_t waiter;
  int (*wait)(void *);
  void *data;
  int status;               /* of the wait */
  atomic_bool over;         /* the wait is over */
  _Atomic int64_t touching; /* the number of the next piece */
} prefault;

/* Returns the number of pieces of a move's array. A piece begins at a multiple of its size, so the first one may begin
 * before the array. */
static int64_t pieces_of(const oa_move *move) {
  const bool is_plain = !move->irregular && !move->kept.parts && !move->in_place && !move->coherent;
  const uintptr_t low = (uintptr_t)move->host, high = low + (uintptr_t)move->lines.width;
  if (!is_plain || move->lines.count != 1 || move->lines.width < 2 * PIECE) return 0;
  return (int64_t)((high - 1) / PIECE - low / PIECE + 1);
}

/* Finds the piece of that number. Returns false after the last piece. */
static bool find_piece(const prefault *p, int64_t number, char **low, char **high) {
  for (const oa_move *move = p->moves; move < p->moves + p->count; move++) {
    const int64_t pieces = pieces_of(move);
    if (number < pieces) {
      char *host = move->host, *end = host + move->lines.width;
      char *begin = host - (uintptr_t)host % PIECE + number * PIECE;
      *low = begin < host ? host : begin;
      *high = end - begin > PIECE ? begin + PIECE : end;
      return true;
    }
    number -= pieces;
  }
  return false;
}

static void work(void *data) {
  prefault *p = data;
  char *low, *high;
  if (pthread_equal(pthread_self(), p->waiter)) {
    p->status = p->wait(p->data);
    atomic_store(&p->over, true);
    return;
  }
  while (!atomic_load(&p->over) && find_piece(p, atomic_fetch_add(&p->touching, 1), &low, &high))
    for (char *page = low; page < high; page += PAGE - (uintptr_t)page % PAGE)
      __atomic_fetch_or(page, 0, __ATOMIC_RELAXED); /* writes the same byte, whatever another thread writes */
}

int oa_prefault_during(const oa_move *moves, int count, int (*wait)(void *), void *data) {
  int64_t pieces = 0;
  for (int i = 0; i < count; i++) pieces += pieces_of(&moves[i]);
  if (!pieces) return wait(data);
  prefault p = {.moves = moves, .count = count, .waiter = pthread_self(), .wait = wait, .data = data};
  const int64_t threads = oa_threads_count();
  /* The task is its own owner: a thread that only waits leaves the device's threads to other regions' copies. */
  oa_threads_run(&p, work, &p, (int)(pieces < threads ? pieces + 1 : threads));
  return p.status;
}
