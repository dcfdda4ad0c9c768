/* Streams of the double of HIP. A stream runs its operations later, in their order. No operation runs by itself: an
 * operation runs when the program waits for it (for a stream, an event or the device). Then only this operation and the
 * operations before it in the order run. So the host gets no result for which it did not wait, and only events order
 * the operations of different streams. With HIP_DOUBLE_ORDER=mixed, every second stream runs its operations
 * immediately: late operations alone would hide a stream that does not wait although it has to.
 *
 * The null stream waits for the blocking streams of its device, and these streams wait for the null stream.
 * Non-blocking streams and the null stream do not wait for each other.
 *
 * Queues are never freed, because events refer to them. One lock is held while operations are added or run. */
struct work {
  struct work *next;
  operation *run;       /* NULL: this item only waits */
  struct queue *before; /* the queue that must have run up to `ticket` before; or NULL */
  uint64_t ticket;
  _Alignas(16) char arguments[];
};

struct queue {
  struct queue *next;
  const void *stream; /* NULL: the null stream of its device */
  int device, is_gone, is_blocking, is_prompt;
  struct work *first, **last;
  uint64_t put, done;
  int code; /* of the first failed operation, until a wait reports it */
};
static struct queue *queues;
static pthread_mutex_t queue_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* The operations after which an event was recorded. */
struct record {
  struct record *next;
  const void *event;
  struct queue *queue; /* NULL: nothing */
  uint64_t ticket;
  int was_asked;
};
static struct record *records;

/* Makes the queue of a stream. Called with the lock. */
static struct queue *make_queue(const void *stream, int device, int is_blocking) {
  static int count;
  const char *order = getenv("HIP_DOUBLE_ORDER");
  struct queue *queue = calloc(1, sizeof *queue);
  if (!queue) abort();
  *queue = (struct queue){.next = queues, .stream = stream, .device = device, .is_blocking = is_blocking};
  queue->is_prompt = order && strcmp(order, "mixed") == 0 && count++ % 2;
  queue->last = &queue->first;
  return queues = queue;
}

/* Returns the queue of a live stream. Called with the lock. */
static struct queue *queue_of(const void *stream, int device) {
  for (struct queue *queue = queues; queue; queue = queue->next)
    if (queue->stream == stream && queue->device == device && !queue->is_gone) return queue;
  return make_queue(stream, device, stream == NULL);
}

/* Runs the operations of a queue up to a ticket. Called with the lock. */
static void do_until(struct queue *queue, uint64_t ticket) {
  while (queue->done < ticket && queue->first) {
    struct work *work = queue->first;
    if (work->before) do_until(work->before, work->ticket);
    if (queue->first != work) continue;
    queue->first = work->next;
    if (!queue->first) queue->last = &queue->first;
    struct device *const outer = stack[0];
    const int outer_depth = depth;
    stack[0] = &devices[queue->device];
    depth = 1;
    at_work++;
    const int code = work->run ? work->run(work->arguments, (gpu_stream)(uintptr_t)queue->stream) : SUCCESS;
    at_work--;
    stack[0] = outer;
    depth = outer_depth;
    if (code && !queue->code) queue->code = code;
    queue->done++;
    free(work);
  }
}

/* Adds an operation to a queue. Called with the lock. */
static void put(struct queue *queue, operation *run, const void *arguments, size_t nbytes, struct queue *before,
                uint64_t ticket) {
  enum { MOST = 512 };
  struct work *work = calloc(1, sizeof *work + nbytes);
  if (!work) abort();
  *work = (struct work){.run = run, .before = before, .ticket = ticket};
  if (nbytes) memcpy(work->arguments, arguments, nbytes);
  *queue->last = work;
  queue->last = &work->next;
  queue->put++;
  if (queue->is_prompt) do_until(queue, queue->put);
  if (queue->put - queue->done > MOST) do_until(queue, queue->put - MOST / 2);
}

static void put_wait(struct queue *queue, struct queue *before, uint64_t ticket) {
  if (before != queue && before->done < ticket) put(queue, NULL, NULL, 0, before, ticket);
}

/* Orders the null stream after the blocking streams, and blocking streams after the null stream. Called with the
 * lock. */
static void order_with_null(struct queue *queue) {
  for (struct queue *other = queues; other && queue->is_blocking; other = other->next)
    if (other != queue && other->device == queue->device && other->is_blocking && (!queue->stream || !other->stream))
      put_wait(queue, other, other->put);
}

/* Puts an operation into a stream, unless this thread is running a queue's operation. Returns whether it did. */
static int later(const void *stream, operation *run, const void *arguments, size_t nbytes) {
  if (at_work || belongs(stream)) return 0;
  pthread_mutex_lock(&queue_lock);
  struct queue *queue = queue_of(stream, current()->number);
  order_with_null(queue);
  put(queue, run, arguments, nbytes, NULL, 0);
  pthread_mutex_unlock(&queue_lock);
  return 1;
}

/* Waits for a stream. Returns the code of the first operation that failed, or SUCCESS. */
static int wait_stream(const void *stream) {
  pthread_mutex_lock(&queue_lock);
  struct queue *queue = queue_of(stream, current()->number);
  order_with_null(queue);
  do_until(queue, queue->put);
  const int code = queue->code;
  queue->code = SUCCESS;
  pthread_mutex_unlock(&queue_lock);
  return code;
}

/* Waits for all streams of a device, or of all devices if `device` is negative. */
static int wait_device(int device) {
  int code = SUCCESS;
  pthread_mutex_lock(&queue_lock);
  for (struct queue *queue = queues; queue; queue = queue->next) {
    if (device >= 0 && queue->device != device) continue;
    do_until(queue, queue->put);
    if (!code) code = queue->code;
    queue->code = SUCCESS;
  }
  pthread_mutex_unlock(&queue_lock);
  return code;
}

/* Ends a queue whose operations have run. A later stream may have the same address. */
static void end_queue(const void *stream, int device) {
  pthread_mutex_lock(&queue_lock);
  for (struct queue *queue = queues; queue; queue = queue->next)
    if (queue->stream == stream && queue->device == device) queue->is_gone = 1;
  pthread_mutex_unlock(&queue_lock);
}

/* Returns the place of an event's record. Called with the lock. */
static struct record **record_of(const void *event) {
  struct record **link = &records;
  while (*link && (*link)->event != event) link = &(*link)->next;
  return link;
}

static void forget_record(const void *event) {
  pthread_mutex_lock(&queue_lock);
  struct record **link = record_of(event), *gone = *link;
  if (gone) *link = gone->next;
  pthread_mutex_unlock(&queue_lock);
  free(gone);
}

static void note_record(const void *event, const void *stream) {
  pthread_mutex_lock(&queue_lock);
  struct record **link = record_of(event);
  if (!*link && !(*link = calloc(1, sizeof **link))) abort();
  struct queue *queue = queue_of(stream, current()->number);
  order_with_null(queue);
  (*link)->event = event;
  (*link)->queue = queue;
  (*link)->ticket = queue->put;
  (*link)->was_asked = 0;
  pthread_mutex_unlock(&queue_lock);
}

/* Makes a stream wait for the operations after which the event was recorded. */
static void wait_in_stream(const void *stream, const void *event) {
  pthread_mutex_lock(&queue_lock);
  const struct record *record = *record_of(event);
  if (record && record->queue) put_wait(queue_of(stream, current()->number), record->queue, record->ticket);
  pthread_mutex_unlock(&queue_lock);
}

/* Waits for an event, or queries it. The first query of an event returns NOT_READY, unless its operations have run. */
static int wait_event(const void *event, int only_asks) {
  int code = SUCCESS;
  pthread_mutex_lock(&queue_lock);
  struct record *record = *record_of(event);
  if (record && record->queue) {
    const int is_done = record->queue->done >= record->ticket;
    if (is_done || !only_asks || record->was_asked) {
      do_until(record->queue, record->ticket);
      code = record->queue->code;
      record->queue->code = SUCCESS;
    } else {
      record->was_asked = 1;
      code = NOT_READY;
    }
  }
  pthread_mutex_unlock(&queue_lock);
  return code;
}

/* For the doubles of libraries. */
int hip_double_at_work(void);
int hip_double_at_work(void) { return at_work; }
int hip_double_wait(const void *stream);
int hip_double_wait(const void *stream) { return belongs(stream) ? belongs(stream) : wait_stream(stream); }
