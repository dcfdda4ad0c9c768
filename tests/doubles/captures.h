/* Captures of the doubles of CUDA and HIP. cuda.c includes this file, and defines the functions that this file uses. */
/* -- captured graphs: an operation in a stream that is captured is noted, and done when the graph is launched ------ */
enum { ILLEGAL_STATE = 401, UNSUPPORTED = 900, INVALIDATED = 901, MERGED = 902, UNMATCHED = 903, UNJOINED = 904 };
enum { ISOLATED = 905, IMPLICIT = 906, CAPTURED_EVENT = 907, WRONG_THREAD = 908 };
enum { OF_ALL_THREADS = 0, OF_THIS_THREAD = 1, RELAXED = 2 };

typedef int operation(const void *arguments, gpu_stream stream);
/* Puts an operation into a stream, to be run later. Returns 1 if the stream took the operation, otherwise 0. */
#ifdef HAS_QUEUES
static int later(const void *stream, operation *run, const void *arguments, size_t nbytes);
#else
static int later(const void *stream, operation *run, const void *arguments, size_t nbytes) {
  (void)stream, (void)run, (void)arguments, (void)nbytes;
  return 0;
}
#endif

static void await(const void *stream);

struct node {
  struct node *next;
  operation *run;
  size_t nbytes;
  _Alignas(16) char arguments[];
};
/* The memory of a stream or an event. */
struct handle {
  struct graph *graph; /* the graph that captures the stream, or in which the event was recorded */
  void *other;         /* of a stream: not NULL if it is blocking; of an event: the stream in which it was recorded */
  /* of a stream: the number of operations that libraries do later, and of those that have ended; of an event: the
   * stream's first number when the event was recorded */
  unsigned begun, ended;
  unsigned queued; /* of a stream: the work that came while it waited */
  /* the stream, and the number of its ended operations, for which this stream or the event also waits; or NULL */
  const struct handle *behind;
  unsigned behind_to;
};
enum { MOST_FORKS = 16 };
/* Memory of the device that a captured call of a library uses for itself. */
struct inner {
  struct inner *next;
  const struct graph *graph;
  uintptr_t low, high;
};
static struct inner *inners; /* of all graphs; under the lock */
/* A graph is never freed. A destroyed graph, or a graph whose capture is under way, has no nodes to run. */
struct graph {
  struct node *first, *last;
  struct graph *next;      /* in the list of captures under way */
  void *origin;            /* the stream whose capture began */
  void *forks[MOST_FORKS]; /* streams that joined later, and have work for which the origin has not waited */
  pthread_t thread;
  int device, mode, is_invalid, is_complete, is_destroyed;
  struct graph *source; /* of an executable: the captured graph */
  int executables;      /* that were made of this graph, and are not destroyed */
  int is_body;          /* of a loop */
  int allocates;        /* a library's captured call allocates memory, so no other graph may contain this graph */
};
/* The condition of a loop in a graph. Never freed. */
struct condition {
  unsigned value, initial;
  struct graph *graph; /* the graph for which the condition was made */
  int is_used;
};
static _Thread_local struct condition *looping; /* of the loop whose body runs */
static struct graph *under_way;                 /* under the lock, as is is_invalid */
static int captures_of_all;
static _Thread_local int captures_here;
static _Thread_local int interaction; /* this thread's mode, which selects the captures that forbid it unsafe calls */

static struct handle *handle_of(const void *object) { return (struct handle *)(uintptr_t)object; }
static struct graph *capture_of(const void *stream) {
  struct graph *graph = stream && owner_of(stream, 1) >= 0 ? handle_of(stream)->graph : NULL;
  return graph && !graph->is_complete ? graph : NULL;
}

/* Makes captures invalid, except `own`: all captures of the device (device >= 0), or the captures that forbid this
 * thread unsafe calls (-1). Returns whether there were any. */
static int spoil(int device, const struct graph *own) {
  int any = 0;
  if (device < 0 && interaction == RELAXED) return 0;
  pthread_mutex_lock(&lock);
  for (struct graph *graph = under_way; graph; graph = graph->next) {
    const int here = pthread_equal(graph->thread, pthread_self());
    const int forbids = here ? graph->mode != RELAXED : graph->mode == OF_ALL_THREADS && interaction == OF_ALL_THREADS;
    if (graph == own || (device >= 0 ? graph->device != device : !forbids)) continue;
    graph->is_invalid = any = 1;
  }
  pthread_mutex_unlock(&lock);
  return any;
}

/* Returns the code of an unsafe call, such as an allocation or a wait: it is not captured, and has no order with
 * captured calls. */
int gpu_double_unsafe(void);
int gpu_double_unsafe(void) { return SPOILS_CAPTURES && spoil(-1, NULL) ? UNSUPPORTED : SUCCESS; }

/* Loads a library's kernels for a call in a stream. Captures of other streams that forbid this become invalid. */
void gpu_double_loads(const void *stream);
void gpu_double_loads(const void *stream) {
  if (SPOILS_CAPTURES) spoil(-1, capture_of(stream));
}

/* Returns the code of a wait for a stream. */
int gpu_double_waits(const void *stream);
int gpu_double_waits(const void *stream) {
  struct graph *graph = capture_of(stream);
  const int code = gpu_double_unsafe();
  if (!graph) return code;
  graph->is_invalid = 1;
  return UNSUPPORTED;
}

/* A library's operation that the stream does later begins, or ends. The stream's other work waits for it. */
void gpu_double_begins(const void *stream);
static int late[64]; /* the operations of each device that have begun and not ended */
static void note_late(const void *stream, int change) {
  const int device = owner_of(stream, 1);
  if (device >= 0) __atomic_add_fetch(&late[device], change, __ATOMIC_SEQ_CST);
}
void gpu_double_begins(const void *stream) {
  __atomic_add_fetch(&handle_of(stream)->begun, 1, __ATOMIC_SEQ_CST);
  note_late(stream, 1);
}
void gpu_double_ends(const void *stream);
void gpu_double_ends(const void *stream) {
  __atomic_add_fetch(&handle_of(stream)->ended, 1, __ATOMIC_SEQ_CST);
  note_late(stream, -1);
}

static void pause_briefly(void) { nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL); }
/* Returns whether so many operations of the stream have ended; NULL, or a destroyed stream: yes. */
static int has_ended(const struct handle *stream, unsigned count) {
  return !stream || owner_of(stream, 1) < 0 || __atomic_load_n(&stream->ended, __ATOMIC_SEQ_CST) >= count;
}
/* Waits for these operations, unless the device is lost. */
static void await(const void *stream) {
  const struct handle *h = handle_of(stream);
  while (h && !belongs(stream) && !(has_ended(h, h->begun) && has_ended(h->behind, h->behind_to))) pause_briefly();
}

/* The most operations that a stream takes while it waits; 0: it takes none. */
static int room;
/* From now on, streams that wait take so many operations, events included, as drivers do. Work is still done
 * immediately, so that it is done too early. */
void gpu_double_room(int operations);
void gpu_double_room(int operations) { room = operations; }

/* Waits until the stream takes another operation. Without room, waits for its earlier operations. */
static void wait_for_room(const void *stream, int is_work) {
  struct handle *h = handle_of(stream);
  if (h && room) {
    const int waits = !(has_ended(h, h->begun) && has_ended(h->behind, h->behind_to));
    const unsigned queued = waits ? __atomic_add_fetch(&h->queued, 1, __ATOMIC_SEQ_CST) : 0;
    if (!waits) __atomic_store_n(&h->queued, 0, __ATOMIC_SEQ_CST);
    if (queued > (unsigned)room) await(stream);
  } else if (is_work) {
    await(stream);
  }
}

/* Returns the code for work in a stream. Work in the default stream would wait for all blocking streams. */
static int accepts(const void *stream) {
  need_stream(stream);
  const int code = belongs(stream);
  const struct graph *graph = at_work ? NULL : capture_of(stream);
  if (code || stream) return code ? code : graph && graph->is_invalid ? INVALIDATED : SUCCESS;
  int blocking = 0;
  pthread_mutex_lock(&lock);
  for (struct graph *each = under_way; each; each = each->next)
    if (each->device == current()->number && handle_of(each->origin)->other) each->is_invalid = blocking = 1;
  pthread_mutex_unlock(&lock);
  return blocking ? IMPLICIT : SUCCESS;
}

/* Does as `accepts`, and waits for the stream's earlier operations. */
static int takes_work(const void *stream) {
  const int code = accepts(stream);
  if (!code) wait_for_room(stream, 1);
  return code;
}

/* Notes that a stream which takes part in a capture has work that the origin has to wait for. */
static void note_fork(struct graph *graph, const void *stream) {
  int at = -1;
  for (int i = MOST_FORKS - 1; i >= 0; i--) {
    if (graph->forks[i] == stream) return;
    if (!graph->forks[i]) at = i;
  }
  if (stream == graph->origin) return;
  if (at < 0) abort();
  graph->forks[at] = (void *)(uintptr_t)stream;
}

/* Adds an operation after all operations of the graph. */
static void add_node(struct graph *graph, operation *run, const void *arguments, size_t nbytes) {
  struct node *node = calloc(1, sizeof *node + nbytes);
  if (!node) abort();
  node->run = run;
  node->nbytes = nbytes;
  memcpy(node->arguments, arguments, nbytes);
  *(graph->last ? &graph->last->next : &graph->first) = node;
  graph->last = node;
}

/* Notes an operation if the stream is captured, and otherwise puts the operation into the stream. Returns 1 if it did
 * either, otherwise 0. */
int gpu_double_captures(const void *stream, operation *run, const void *arguments, size_t nbytes);
int gpu_double_captures(const void *stream, operation *run, const void *arguments, size_t nbytes) {
  struct graph *graph = at_work ? NULL : capture_of(stream);
  if (!graph && !at_work) wait_for_room(stream, 1);
  if (!graph) return later(stream, run, arguments, nbytes);
  add_node(graph, run, arguments, nbytes);
  note_fork(graph, stream);
  return 1;
}

/* Returns the graph that captures a stream; NULL: none. */
const void *gpu_double_graph(const void *stream);
const void *gpu_double_graph(const void *stream) { return capture_of(stream); }
/* Returns whether a graph, or an executable that was made of it, has not been destroyed. */
int gpu_double_lives(const void *graph);
int gpu_double_lives(const void *graph) {
  const struct graph *g = graph;
  return !g->is_destroyed || __atomic_load_n(&g->executables, __ATOMIC_SEQ_CST) > 0;
}

/* Notes that a library's call uses this memory as a workspace, or allocates a workspace (NULL). Returns whether the
 * call may do this: the memory is live, and no call in another graph uses it. */
int gpu_double_uses(const void *stream, const void *memory, size_t nbytes);
int gpu_double_uses(const void *stream, const void *memory, size_t nbytes) {
  struct graph *graph = at_work ? NULL : capture_of(stream);
  const uintptr_t low = (uintptr_t)memory, high = low + nbytes;
  if (!memory) return graph ? graph->allocates = 1 : 1;
  if (owner_of(memory, nbytes) < 0) return 0;
  if (at_work) return 1;
  int is_free = 1;
  pthread_mutex_lock(&lock);
  for (const struct inner *inner = inners; inner; inner = inner->next)
    if (inner->graph != graph && !inner->graph->is_destroyed && inner->low < high && low < inner->high) is_free = 0;
  struct inner *inner = graph && is_free ? calloc(1, sizeof *inner) : NULL;
  if (inner) {
    *inner = (struct inner){inners, graph, low, high};
    inners = inner;
  }
  pthread_mutex_unlock(&lock);
  return is_free;
}

int cuThreadExchangeStreamCaptureMode(int *mode) {
  const int wanted = *mode;
  if (wanted < OF_ALL_THREADS || wanted > RELAXED) return INVALID_VALUE;
  *mode = interaction;
  interaction = wanted;
  return SUCCESS;
}

int cuStreamBeginCapture_v2(gpu_stream stream, int mode) {
  const int code = belongs(stream);
  if (code || !stream) return code ? code : UNSUPPORTED;
  if (mode < OF_ALL_THREADS || mode > RELAXED) return INVALID_VALUE;
  if (capture_of(stream)) return ILLEGAL_STATE;
  struct graph *graph = calloc(1, sizeof *graph);
  if (!graph) return OUT_OF_MEMORY;
  *graph = (struct graph){.origin = stream, .thread = pthread_self(), .mode = mode, .device = current()->number};
  handle_of(stream)->graph = graph;
  pthread_mutex_lock(&lock);
  graph->next = under_way;
  under_way = graph;
  pthread_mutex_unlock(&lock);
  if (mode == OF_ALL_THREADS) __atomic_add_fetch(&captures_of_all, 1, __ATOMIC_SEQ_CST);
  if (mode == OF_THIS_THREAD) captures_here++;
  return SUCCESS;
}

int cuStreamEndCapture(gpu_stream stream, struct graph **ended) {
  struct graph *graph = capture_of(stream);
  const int code = belongs(stream);
  *ended = NULL;
  if (code || !graph) return code ? code : ILLEGAL_STATE;
  if (graph->origin != stream) return UNMATCHED;
  if (graph->mode != RELAXED && !pthread_equal(graph->thread, pthread_self())) return WRONG_THREAD;
  if (graph->mode == OF_ALL_THREADS) __atomic_sub_fetch(&captures_of_all, 1, __ATOMIC_SEQ_CST);
  if (graph->mode == OF_THIS_THREAD) captures_here--;
  pthread_mutex_lock(&lock);
  struct graph **link = &under_way;
  while (*link != graph) link = &(*link)->next;
  *link = graph->next;
  pthread_mutex_unlock(&lock);
  graph->is_complete = 1;
  handle_of(stream)->graph = NULL;
  if (graph->is_invalid) return INVALIDATED;
  for (int i = 0; i < MOST_FORKS; i++)
    if (graph->forks[i]) return UNJOINED;
  *ended = graph;
  return SUCCESS;
}

int cuGraphInstantiateWithFlags(struct graph **executable, struct graph *graph, unsigned long long flags) {
  if (!graph || graph->is_destroyed || flags) return INVALID_VALUE;
  struct graph *copy = calloc(1, sizeof *copy);
  if (!copy) return OUT_OF_MEMORY;
  *copy = *graph; /* the copy has the nodes that the graph has now */
  copy->source = graph;
  copy->executables = 0;
  __atomic_add_fetch(&graph->executables, 1, __ATOMIC_SEQ_CST);
  return *executable = copy, SUCCESS;
}
static int run_nodes(const struct graph *graph, gpu_stream stream) {
  int code = SUCCESS;
  for (const struct node *node = graph->first; node && !code; node = node->next)
    if (!later(stream, node->run, node->arguments, node->nbytes)) code = node->run(node->arguments, stream);
  return code;
}
int cuGraphLaunch(struct graph *executable, gpu_stream stream) {
  int code = takes_work(stream);
  if (!code && (!executable || executable->is_destroyed)) code = INVALID_VALUE;
  return code ? code : run_nodes(executable, stream);
}
static int destroy_graph(struct graph *graph) {
  if (!graph || graph->is_destroyed) return INVALID_VALUE;
  graph->is_destroyed = 1;
  if (graph->source) __atomic_sub_fetch(&graph->source->executables, 1, __ATOMIC_SEQ_CST);
  return SUCCESS;
}
int cuGraphExecDestroy(struct graph *executable) { return destroy_graph(executable); }
int cuGraphDestroy(struct graph *graph) { return destroy_graph(graph); }
