/* A double of libnccl.so.2 and librccl.so.1. Its ranks are threads of one process, or calls of one group. A call
 * outside of a group waits until all ranks have made the call. With DRIVER, the double checks that addresses belong to
 * the double of a GPU. double_text returns the calls, one per line; double_fail makes the k-th call from now fail. */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef DRIVER
#include "memory.h"
static int is_array(const void *pointer) { return kind_of(pointer) != 0; }
typedef int captured_work(const void *arguments, void *stream);
int gpu_double_captures(const void *stream, captured_work *run, const void *arguments, size_t nbytes);
const void *gpu_double_graph(const void *stream);
int gpu_double_lives(const void *graph);
void gpu_double_begins(const void *stream);
void gpu_double_ends(const void *stream);
int cuStreamIsCapturing(void *stream, int *status);
static int is_captured(const void *stream) {
  int captured = 0;
  return stream && !cuStreamIsCapturing((void *)(uintptr_t)stream, &captured) && captured;
}
#else
static int gpu_double_lives(const void *graph) { return graph != NULL; }
static int is_array(const void *pointer) { return pointer != NULL; }
static int is_captured(const void *stream) { return stream == NULL && 0; }
#endif
#ifdef TRAPS
int hipStreamSynchronize(void *stream);
void hip_double_begin(void); /* the host may use device memory from here */
void hip_double_end(void);   /* to here */
#else                        /* streams run each operation immediately */
static int hipStreamSynchronize(void *stream) { return stream == NULL; }
static void hip_double_begin(void) {}
static void hip_double_end(void) {}
#endif
#define PUBLIC __attribute__((visibility("default")))

enum { SUCCESS, DEVICE_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR };
enum { MOST_RANKS = 8, MOST_OPERATORS = 8, MOST_GRAPHS = 16 };
enum { PATIENCE = 60 /* seconds, then a call fails */ };
typedef enum {
  ALL_REDUCE,
  REDUCE,
  BROADCAST,
  ALL_GATHER,
  REDUCE_SCATTER,
  ALL_TO_ALL,
  GATHER,
  SCATTER,
  SEND,
  RECV,
  SPLIT
} kind;
static const char *const names[] = {"AllReduce", "Reduce",  "Broadcast", "AllGather", "ReduceScatter", "AllToAll",
                                    "Gather",    "Scatter", "Send",      "Recv",      "CommSplit"};

typedef struct id {
  char internal[128];
} id;

typedef struct world world;
typedef struct operation operation;
typedef struct comm {
  world *world;
  int rank, aborted, ended, waiting;
  const void *graphs[MOST_GRAPHS]; /* graphs with operations of this communicator */
  int graph_count;
  double factors[MOST_OPERATORS]; /* the factors of the operators; 0: the place is free */
  operation *first;
} comm;
struct world {
  id id;
  int ranks, joined, left;
  comm *members[MOST_RANKS];
  world *next;
};
struct operation {
  kind kind;
  const void *sent;
  void *received;
  size_t count;
  int type, op, peer, key; /* peer: the root, or the color of a split */
  comm *comm, *fresh;
  const void *stream;
  int is_captured;
  int status; /* -1: the operation is pending */
  operation *next, *grouped;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static world *worlds;
static int last_id, fails_in, replays, is_late, is_stuck, refuses_aborts;
static char text[1 << 16], last_error[256];
static _Thread_local int depth;
static _Thread_local operation *group;
static _Thread_local int group_error; /* the first failure of a call in the group, which then issues nothing */

/* -- queries of the tests -- */

PUBLIC const char *double_text(void) { return text; }
PUBLIC void double_clear(void) { text[0] = '\0'; }
PUBLIC void double_fail(int k) { fails_in = k; }
PUBLIC int double_replays(void) { return replays; } /* the number of replays that wait for other ranks */

/* From now on, or until is_late is 0, calls on CUDA's streams return before they run, as those of NCCL do. */
PUBLIC void double_late(int late) { is_late = late; }

/* Until is_stuck is 0 again, calls that wait for other ranks do not end when their communicator is aborted. */
PUBLIC void double_stuck(int stuck) {
  pthread_mutex_lock(&lock);
  is_stuck = stuck;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

/* Until it is 0 again, ncclCommAbort fails and stops nothing. */
PUBLIC void double_refuse_aborts(int refuses) { refuses_aborts = refuses; }

/* Notes a call. Returns whether the call has to fail. Called with the lock. */
static int note(const char *format, ...) {
  const size_t used = strlen(text);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, sizeof text - used, format, arguments);
  va_end(arguments);
  return fails_in && !--fails_in;
}
static int fail(int status, const char *message) {
  snprintf(last_error, sizeof last_error, "%s", message);
  return status;
}
/* Notes a call whose arguments do not matter. */
static int noted(const char *name) {
  pthread_mutex_lock(&lock);
  const int fails = note("%s depth=%d\n", name, depth);
  const int status = fails ? fail(SYSTEM_ERROR, "the double was told to fail") : SUCCESS;
  pthread_mutex_unlock(&lock);
  return status;
}

/* -- arithmetic -- */

static size_t size_of(int type) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type < 0 || type > 11 ? 0 : sizes[type];
}
static double get(const void *array, int type, size_t i) {
  switch (type) {
    case 0:
      return ((const int8_t *)array)[i];
    case 1:
      return ((const uint8_t *)array)[i];
    case 2:
      return ((const int32_t *)array)[i];
    case 3:
      return ((const uint32_t *)array)[i];
    case 4:
      return (double)((const int64_t *)array)[i];
    case 5:
      return (double)((const uint64_t *)array)[i];
    case 7:
      return (double)((const float *)array)[i];
    default:
      return ((const double *)array)[i];
  }
}
static void put(void *array, int type, size_t i, double value) {
  switch (type) {
    case 0:
      ((int8_t *)array)[i] = (int8_t)value;
      break;
    case 1:
      ((uint8_t *)array)[i] = (uint8_t)value;
      break;
    case 2:
      ((int32_t *)array)[i] = (int32_t)value;
      break;
    case 3:
      ((uint32_t *)array)[i] = (uint32_t)value;
      break;
    case 4:
      ((int64_t *)array)[i] = (int64_t)value;
      break;
    case 5:
      ((uint64_t *)array)[i] = (uint64_t)value;
      break;
    case 7:
      ((float *)array)[i] = (float)value;
      break;
    default:
      ((double *)array)[i] = value;
  }
}
static int reduces(int type) { return size_of(type) && type != 6 && type < 9; }

/* The reduction of element i of the arrays that all ranks sent. */
static double reduced(const world *w, size_t i) {
  double total = 0;
  for (int r = 0; r < w->ranks; r++) {
    const operation *o = w->members[r]->first;
    const double own = get(o->sent, o->type, i), factor = o->op > 4 ? w->members[r]->factors[o->op - 5] : 1;
    if (!r)
      total = factor * own;
    else if (o->op == 1)
      total *= own;
    else if (o->op == 2)
      total = own > total ? own : total;
    else if (o->op == 3)
      total = own < total ? own : total;
    else
      total += factor * own;
  }
  return w->members[0]->first->op == 4 ? total / w->ranks : total;
}

static world *world_of(const id *known, int ranks) {
  world *w = calloc(1, sizeof *w);
  if (known) w->id = *known;
  w->ranks = ranks;
  w->next = worlds;
  return worlds = w;
}
static comm *join(world *w, int rank) {
  comm *c = calloc(1, sizeof *c);
  c->world = w;
  c->rank = rank;
  w->joined++;
  return w->members[rank] = c;
}

static void split(world *w) {
  for (int r = 0; r < w->ranks; r++) {
    operation *own = w->members[r]->first;
    int ranks = 0, rank = 0;
    world *part = NULL;
    for (int other = 0; other < w->ranks; other++) {
      const operation *o = w->members[other]->first;
      if (own->peer < 0 || o->peer != own->peer) continue;
      ranks++;
      rank += o->key < own->key || (o->key == own->key && other < r);
      if (o->fresh) part = o->fresh->world;
    }
    if (ranks) own->fresh = join(part ? part : world_of(NULL, ranks), rank);
  }
}

/* Makes the call that all ranks requested. */
static void collect(world *w) {
  const operation *any = w->members[0]->first;
  const size_t size = size_of(any->type), count = any->count, bytes = size * count;
  const int root = any->peer, is_reduction = any->kind <= REDUCE || any->kind == REDUCE_SCATTER;
  const size_t total = any->kind == REDUCE_SCATTER ? count * (size_t)w->ranks : count;
  char *sums = is_reduction ? malloc(total * size + 1) : NULL;
  for (size_t i = 0; is_reduction && i < total; i++) put(sums, any->type, i, reduced(w, i));
  char *sent[MOST_RANKS]; /* copies, since arrays may be in place */
  for (int r = 0; r < w->ranks && !is_reduction && any->kind != SPLIT; r++) {
    const operation *o = w->members[r]->first;
    const size_t whole = any->kind == ALL_TO_ALL || any->kind == SCATTER ? bytes * (size_t)w->ranks : bytes;
    const int sends = (any->kind != BROADCAST && any->kind != SCATTER) || r == root;
    sent[r] = malloc(whole + 1);
    if (sends && whole) memcpy(sent[r], o->sent, whole);
  }
  for (int r = 0; r < w->ranks && bytes; r++) {
    char *to = w->members[r]->first->received;
    if (any->kind == ALL_REDUCE || (any->kind == REDUCE && r == root)) memcpy(to, sums, bytes);
    if (any->kind == REDUCE_SCATTER) memcpy(to, sums + (size_t)r * bytes, bytes);
    if (any->kind == BROADCAST) memcpy(to, sent[root], bytes);
    if (any->kind == SCATTER) memcpy(to, sent[root] + (size_t)r * bytes, bytes);
    for (int k = 0; k < w->ranks; k++) {
      if (any->kind == ALL_GATHER || (any->kind == GATHER && r == root)) memcpy(to + (size_t)k * bytes, sent[k], bytes);
      if (any->kind == ALL_TO_ALL) memcpy(to + (size_t)k * bytes, sent[k] + (size_t)r * bytes, bytes);
    }
  }
  if (any->kind == SPLIT) split(w);
  for (int r = 0; r < w->ranks && !is_reduction && any->kind != SPLIT; r++) free(sent[r]);
  free(sums);
}

/* -- order -- */

static int is_pair(const operation *o) { return o->kind == SEND || o->kind == RECV; }
static int is_alike(const operation *a, const operation *b) {
  return a->kind == b->kind && a->count == b->count && a->type == b->type && (a->kind == SPLIT || a->peer == b->peer);
}
static void remove_operation(operation *o) {
  operation **link = &o->comm->first;
  while (*link != o) link = &(*link)->next;
  *link = o->next;
}

/* Finds the operation that receives the data of another operation. */
static operation *receiver_of(const operation *o) {
  if (o->peer < 0 || o->peer >= o->comm->world->ranks || !o->comm->world->members[o->peer]) return NULL;
  operation *other = o->comm->world->members[o->peer]->first;
  while (other && !(other->kind == RECV && other->peer == o->comm->rank)) other = other->next;
  return other;
}

static void exchange(comm *c) {
  for (operation *o = c->first, *next; o; o = next) {
    next = o->next;
    operation *other = o->kind == SEND ? receiver_of(o) : NULL;
    if (!other) continue;
    const int fits = o->count == other->count && o->type == other->type;
    if (fits && o->count) memcpy(other->received, o->sent, o->count * size_of(o->type));
    if (next == other) next = other->next;
    remove_operation(o);
    remove_operation(other);
    o->status = other->status = fits ? SUCCESS : fail(INVALID_USAGE, "the two ends have other counts");
  }
}

/* Makes all calls that can be made now. */
static void go_on(world *w) {
  hip_double_begin();
  for (int again = 1; again && w->joined == w->ranks;) {
    int ready = 1, alike = 1;
    again = 0;
    for (int r = 0; r < w->ranks; r++)
      if (w->members[r]) exchange(w->members[r]);
    for (int r = 0; r < w->ranks; r++) {
      const operation *o = w->members[r] ? w->members[r]->first : NULL;
      ready = ready && o && !is_pair(o);
      if (ready) alike = alike && is_alike(o, w->members[0]->first);
    }
    if (!ready) continue;
    if (alike) collect(w);
    for (int r = 0; r < w->ranks; r++) {
      operation *o = w->members[r]->first;
      remove_operation(o);
      o->status = alike ? SUCCESS : fail(INVALID_USAGE, "the ranks made calls that differ");
    }
    again = 1;
  }
  hip_double_end();
  pthread_cond_broadcast(&changed);
}

static int wait_for(const comm *c, const int *status) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += PATIENCE;
  while (*status < 0 && (!c->aborted || is_stuck))
    if (pthread_cond_timedwait(&changed, &lock, &until) == ETIMEDOUT) return fail(SYSTEM_ERROR, "the others are late");
  return *status < 0 ? fail(INTERNAL_ERROR, "the communicator was aborted") : *status;
}

/* Issues operations and waits for them. Called with the lock. */
static int issue(operation *first) {
  int status = SUCCESS;
  for (operation *o = first; o; o = o->grouped) {
    operation **link = &o->comm->first;
    while (*link) link = &(*link)->next;
    *link = o;
    o->comm->waiting++;
  }
  for (operation *o = first; o; o = o->grouped) go_on(o->comm->world);
  for (operation *o = first; o; o = o->grouped) {
    const int own = wait_for(o->comm, &o->status);
    if (o->status < 0) remove_operation(o);
    if (!status) status = own;
    o->comm->waiting--;
  }
  pthread_cond_broadcast(&changed);
  return status;
}

#ifdef DRIVER
/* The operations of a graph that are issued together. */
struct captured {
  int count;
  operation operations[16];
};

static int issue_all(struct captured all) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < all.count; i++) {
    operation *o = &all.operations[i];
    if (o->comm->ended) abort(); /* the graph has outlived its communicator */
    o->status = -1;
    o->next = NULL;
    o->grouped = i + 1 < all.count ? o + 1 : NULL;
  }
  replays++;
  int status = issue(all.operations);
  replays--;
  for (int i = 0; i < all.count; i++)
    if (all.operations[i].comm->aborted) status = SUCCESS; /* kernels that are aborted end, and report nothing */
  pthread_mutex_unlock(&lock);
  return status;
}

#ifdef TRAPS
static int issue_captured(const void *arguments, void *stream) {
  (void)stream;
  return issue_all(*(const struct captured *)arguments);
}
#else
struct late_captured {
  struct captured all;
  const void *stream;
};

static void *issue_all_late(void *argument) {
  struct late_captured *late = argument;
  issue_all(late->all);
  gpu_double_ends(late->stream);
  free(late);
  return NULL;
}

static int issue_captured(const void *arguments, void *stream) {
  pthread_t thread;
  if (!is_late || !stream) return issue_all(*(const struct captured *)arguments);
  struct late_captured *late = malloc(sizeof *late);
  *late = (struct late_captured){*(const struct captured *)arguments, stream};
  gpu_double_begins(stream);
  if (pthread_create(&thread, NULL, issue_all_late, late)) abort();
  pthread_detach(thread);
  return SUCCESS;
}
#endif

static void keep_graph(comm *c, const void *graph) {
  for (int i = 0; i < c->graph_count; i++)
    if (c->graphs[i] == graph) return;
  if (c->graph_count == MOST_GRAPHS) abort();
  c->graphs[c->graph_count++] = graph;
}

/* Makes the graphs of captured streams issue the operations; the operations of one stream are issued together. */
static int capture(const operation *first) {
  for (const operation *o = first; o; o = o->grouped) {
    int is_later = 0;
    struct captured all = {.count = 0};
    if (!o->is_captured) return fail(INVALID_USAGE, "some streams of the group are captured");
    keep_graph(o->comm, gpu_double_graph(o->stream));
    for (const operation *other = first; other != o; other = other->grouped) is_later |= other->stream == o->stream;
    for (const operation *other = o; other && !is_later; other = other->grouped)
      if (other->stream == o->stream && all.count < 16) all.operations[all.count++] = *other;
    if (!is_later) gpu_double_captures(o->stream, issue_captured, &all, sizeof all);
  }
  return SUCCESS;
}
#else
static int capture(const operation *first) { return first ? INTERNAL_ERROR : SUCCESS; }
#endif

#if defined(DRIVER) && !defined(TRAPS)
static void *issue_late(void *argument) {
  operation *o = argument;
  pthread_mutex_lock(&lock);
  replays++;
  issue(o);
  replays--;
  pthread_mutex_unlock(&lock);
  gpu_double_ends(o->stream);
  free(o);
  return NULL;
}

/* Runs an operation on a thread, while its stream waits. Returns whether it does. */
static int begin_late(operation *o) {
  pthread_t thread;
  if (!is_late || !o->stream || o->is_captured) return 0;
  gpu_double_begins(o->stream);
  if (pthread_create(&thread, NULL, issue_late, o)) abort();
  pthread_detach(thread);
  return 1;
}
#else
static int begin_late(const operation *o) { return o == NULL; }
#endif

/* Makes one call of a rank; fresh: the place for a new communicator. */
static int call(operation o, const void *stream, comm **fresh) {
  int status = SUCCESS;
  o.stream = stream;
  o.is_captured = is_captured(stream);
  if (stream && !o.is_captured)
    hipStreamSynchronize((void *)(uintptr_t)stream); /* the call runs now, after earlier operations */
  pthread_mutex_lock(&lock);
  const int fails =
      note("%s rank=%d/%d count=%zu type=%d op=%d peer=%d send=%p recv=%p stream=%p depth=%d\n", names[o.kind],
           o.comm->rank, o.comm->world->ranks, o.count, o.type, o.op, o.peer, o.sent, o.received, stream, depth);
  const int ranks = o.comm->world->ranks, is_root = o.peer == o.comm->rank;
  const int reads = o.kind != RECV && o.kind != SPLIT && ((o.kind != BROADCAST && o.kind != SCATTER) || is_root);
  const int writes = o.kind != SEND && o.kind != SPLIT && ((o.kind != REDUCE && o.kind != GATHER) || is_root);
  const int is_reduction = o.kind <= REDUCE || o.kind == REDUCE_SCATTER;
  if (fails)
    status = fail(SYSTEM_ERROR, "the double was told to fail");
  else if (o.kind != SPLIT && !stream)
    status = fail(INVALID_ARGUMENT, "no stream");
  else if (!size_of(o.type) || (is_reduction && !reduces(o.type)))
    status = fail(INVALID_ARGUMENT, "invalid type");
  else if (o.kind != SPLIT && (o.peer < 0 || o.peer >= ranks))
    status = fail(INVALID_ARGUMENT, "invalid root or peer");
  else if (is_reduction && (o.op < 0 || o.op >= 5 + MOST_OPERATORS || (o.op > 4 && !o.comm->factors[o.op - 5])))
    status = fail(INVALID_ARGUMENT, "invalid op");
  else if (o.count && ((reads && !is_array(o.sent)) || (writes && !is_array(o.received))))
    status = fail(INVALID_ARGUMENT, "an address is of no array");
  if (!status) {
    operation *kept = malloc(sizeof *kept);
    *kept = o;
    kept->status = -1;
    if (depth && o.kind != SPLIT) {
      operation **link = &group;
      while (*link) link = &(*link)->grouped;
      *link = kept;
    } else if (!begin_late(kept)) {
      status = o.is_captured ? capture(kept) : issue(kept);
      if (fresh) *fresh = kept->fresh;
      free(kept);
    }
  }
  if (depth && status && !group_error) group_error = status;
  pthread_mutex_unlock(&lock);
  return status;
}

/* -- the library's functions -- */

#define CALL(...) call((operation){__VA_ARGS__}, stream, NULL)
PUBLIC int ncclAllReduce(const void *s, void *r, size_t n, int t, int op, comm *c, void *stream) {
  return CALL(ALL_REDUCE, s, r, n, t, op, .comm = c);
}
PUBLIC int ncclReduce(const void *s, void *r, size_t n, int t, int op, int root, comm *c, void *stream) {
  return CALL(REDUCE, s, r, n, t, op, root, .comm = c);
}
PUBLIC int ncclBroadcast(const void *s, void *r, size_t n, int t, int root, comm *c, void *stream) {
  return CALL(BROADCAST, s, r, n, t, 0, root, .comm = c);
}
PUBLIC int ncclAllGather(const void *s, void *r, size_t n, int t, comm *c, void *stream) {
  return CALL(ALL_GATHER, s, r, n, t, .comm = c);
}
PUBLIC int ncclReduceScatter(const void *s, void *r, size_t n, int t, int op, comm *c, void *stream) {
  return CALL(REDUCE_SCATTER, s, r, n, t, op, .comm = c);
}
PUBLIC int ncclAllToAll(const void *s, void *r, size_t n, int t, comm *c, void *stream) {
  return CALL(ALL_TO_ALL, s, r, n, t, .comm = c);
}
PUBLIC int ncclAlltoAll(const void *s, void *r, size_t n, int t, comm *c, void *stream) { /* NCCL's spelling */
  return ncclAllToAll(s, r, n, t, c, stream);
}
PUBLIC int ncclGather(const void *s, void *r, size_t n, int t, int root, comm *c, void *stream) {
  return CALL(GATHER, s, r, n, t, 0, root, .comm = c);
}
PUBLIC int ncclScatter(const void *s, void *r, size_t n, int t, int root, comm *c, void *stream) {
  return CALL(SCATTER, s, r, n, t, 0, root, .comm = c);
}
PUBLIC int ncclSend(const void *s, size_t n, int t, int peer, comm *c, void *stream) {
  return CALL(SEND, s, NULL, n, t, 0, peer, .comm = c);
}
PUBLIC int ncclRecv(void *r, size_t n, int t, int peer, comm *c, void *stream) {
  return CALL(RECV, NULL, r, n, t, 0, peer, .comm = c);
}

PUBLIC int ncclGetVersion(int *version) {
  *version = 22809;
  return SUCCESS;
}
PUBLIC int ncclGetUniqueId(id *fresh) {
  pthread_mutex_lock(&lock);
  memset(fresh, 0, sizeof *fresh);
  snprintf(fresh->internal, sizeof fresh->internal, "double %d", ++last_id);
  fresh->internal[127] = 'x';
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}
PUBLIC int ncclCommInitRank(comm **fresh, int ranks, id known, int rank) {
  pthread_mutex_lock(&lock);
  int status = SUCCESS;
  if (note("CommInitRank rank=%d/%d id=%s%c\n", rank, ranks, known.internal, known.internal[127]))
    status = fail(SYSTEM_ERROR, "the double was told to fail");
  else if (ranks < 1 || ranks > MOST_RANKS || rank < 0 || rank >= ranks || known.internal[127] != 'x')
    status = fail(INVALID_ARGUMENT, "invalid ranks, or no ID");
  if (!status) {
    world *w = worlds;
    while (w && memcmp(&w->id, &known, sizeof known) != 0) w = w->next;
    if (!w) w = world_of(&known, ranks);
    comm *c = join(w, rank);
    pthread_cond_broadcast(&changed);
    while (w->joined < w->ranks) pthread_cond_wait(&changed, &lock);
    *fresh = c;
  }
  pthread_mutex_unlock(&lock);
  return status;
}
PUBLIC int ncclCommSplit(comm *c, int color, int key, comm **fresh, void *config) {
  return config ? INVALID_ARGUMENT : call((operation){SPLIT, .peer = color, .key = key, .comm = c}, NULL, fresh);
}
/* Ends a communicator: stops its operations, and waits until its graphs are destroyed, as NCCL does. Its memory is not
 * used again, because other ranks may still read it. */
static int end(comm *c, const char *name) {
  const int status = noted(name);
  pthread_mutex_lock(&lock);
  c->aborted = 1;
  pthread_cond_broadcast(&changed);
  while (c->waiting) pthread_cond_wait(&changed, &lock);
  for (int i = 0, waits = 0; i < c->graph_count; i++)
    while (gpu_double_lives(c->graphs[i])) {
      pthread_mutex_unlock(&lock);
      if (++waits > 1000 * PATIENCE) abort(); /* NCCL would wait forever */
      nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
      pthread_mutex_lock(&lock);
    }
  c->ended = 1;
  pthread_mutex_unlock(&lock);
  return status;
}
PUBLIC int ncclCommDestroy(comm *c) { return end(c, "CommDestroy"); }
PUBLIC int ncclCommAbort(comm *c) {
  return refuses_aborts ? fail(SYSTEM_ERROR, "the double was told to fail") : end(c, "CommAbort");
}
PUBLIC int ncclCommFinalize(comm *c) { return c->aborted ? INVALID_USAGE : noted("CommFinalize"); }
PUBLIC int ncclCommCount(const comm *c, int *count) {
  *count = c->world->ranks;
  return noted("CommCount");
}
PUBLIC int ncclCommUserRank(const comm *c, int *rank) {
  *rank = c->rank;
  return noted("CommUserRank");
}
PUBLIC int ncclCommCuDevice(const comm *c, int *device) {
  *device = c->rank;
  return SUCCESS;
}
PUBLIC int ncclCommGetAsyncError(const comm *c, int *error) {
  *error = SUCCESS;
  for (int r = 0; r < c->world->ranks; r++)
    if (c->world->members[r] && c->world->members[r]->aborted) *error = REMOTE_ERROR;
  return SUCCESS;
}
PUBLIC const char *ncclGetErrorString(int status) { return status ? "a failure of the double" : "no error"; }
PUBLIC const char *ncclGetLastError(comm *c) {
  (void)c;
  return last_error;
}
PUBLIC int ncclRedOpCreatePreMulSum(int *op, const void *scalar, int type, int residence, comm *c) {
  int at = 0;
  while (at < MOST_OPERATORS && c->factors[at]) at++;
  if (residence != 1 || !reduces(type) || at == MOST_OPERATORS) return INVALID_ARGUMENT;
  c->factors[at] = get(scalar, type, 0);
  *op = 5 + at;
  return noted("RedOpCreatePreMulSum");
}
PUBLIC int ncclRedOpDestroy(int op, comm *c) {
  if (op < 5 || op >= 5 + MOST_OPERATORS || !c->factors[op - 5]) return INVALID_ARGUMENT;
  c->factors[op - 5] = 0;
  return noted("RedOpDestroy");
}
PUBLIC int ncclGroupStart(void) {
  const int status = noted("GroupStart");
  if (!status) depth++;
  return status;
}
PUBLIC int ncclGroupEnd(void) {
  if (!depth) return fail(INVALID_USAGE, "no group was begun");
  depth--;
  int status = noted("GroupEnd");
  if (depth) return status;
  pthread_mutex_lock(&lock);
  operation *first = group;
  group = NULL;
  if (!status) status = group_error;
  group_error = SUCCESS;
  if (!status) status = first && first->is_captured ? capture(first) : issue(first);
  for (operation *o = first, *next; o; o = next) {
    next = o->grouped;
    free(o);
  }
  pthread_mutex_unlock(&lock);
  return status;
}
