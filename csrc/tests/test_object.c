/* Objects that a library makes: handles and descriptors, made, used and destroyed, by several threads too. */
#include "body/helper_function.h"
#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* -- a vendor's library: "maker" works on sim; "other" has the same functions -- */

typedef struct thing {
  void *stream;
  int setting;
} thing;
static atomic_int live, answer;

static int make_thing(void **object) {
  if (answer) return answer;
  thing *t = calloc(1, sizeof *t);
  *object = t;
  live++;
  return 0;
}
static int destroy_thing(void *object) {
  free(object);
  live--;
  return answer;
}
static int bind_thing(void *object, void *stream) {
  ((thing *)object)->stream = stream;
  return 0;
}
static int stream_of(void *object, void **stream) {
  *stream = ((thing *)object)->stream;
  return 0;
}
static int set_thing(void *object, int value) {
  ((thing *)object)->setting = value;
  return answer;
}
static int get_thing(void *object, int *value) {
  *value = ((thing *)object)->setting;
  return answer;
}

enum { CREATE, DESTROY, BIND, STREAM, SET, GET, SYMBOLS };
static const char *const symbols[] = {"create", "destroy", "bind", "stream", "set", "get"};
static void *addresses[] = {(void *)make_thing, (void *)destroy_thing, (void *)bind_thing,
                            (void *)stream_of,  (void *)set_thing,     (void *)get_thing};
static oa_library_state states[2];
static const oa_object_kind kinds[] = {{.name = "Handle", .destroy = DESTROY, .is_handle = 1},
                                       {.name = "Shape", .destroy = DESTROY}};
#define LIBRARY(number, called) \
  {.name = called,              \
   .backend = tested_backend,   \
   .symbols = symbols,          \
   .addresses = addresses,      \
   .state = &states[number],    \
   .symbol_count = SYMBOLS,     \
   .create = CREATE,            \
   .destroy = DESTROY,          \
   .set_stream = BIND,          \
   .get_stream = STREAM,        \
   .set_pointer_mode = -1,      \
   .get_pointer_mode = -1,      \
   .object_kinds = kinds,       \
   .object_kind_count = 2}
static const oa_library maker = LIBRARY(0, "maker"), other = LIBRARY(1, "other");
const oa_library *const oa_libraries[] = {&maker, &other, NULL};

/* -- its routines, as the generator writes them -- */

static int run(const oa_routine *routine, oa_value *values, int device) {
  (void)device;
  void *symbol = oa_routine_symbol(routine, 0);
  oa_helper_call call;
  const int failed = oa_helper_begin(&call, routine, values);
  if (failed) return failed;
  int status = 0;
  switch (routine->symbols[0]) {
    case CREATE:
      status = ((int (*)(const void *))symbol)(&values[routine->count - 1]);
      break;
    case SET:
      if (routine->count == 3) break; /* `join`, which only notes two things */
      status = ((int (*)(const void *, int))symbol)(values[0].pointer, (int)values[1].integer);
      break;
    case GET:
      status = ((int (*)(const void *, const void *))symbol)(values[0].pointer, &values[1]);
      break;
  }
  return oa_helper_end(&call, values, status);
}

enum { HANDLE, SHAPE }; /* the places of the kinds */
#define RECORD(...) ((const oa_role[]){__VA_ARGS__})
#define ROUTINE(of, called, symbol, number, ...) \
  {.function = called,                           \
   .record = RECORD(__VA_ARGS__),                \
   .library = &of,                               \
   .run = run,                                   \
   .symbols = {symbol, -1},                      \
   .count = number}
#define A_DEVICE {OA_ROLE_DEVICE, 1, "device", NULL}
#define A_VALUE {OA_ROLE_INTEGER, 1, "value", NULL}
#define AN_OBJECT(role, kind, name, class) {OA_ROLE_##role, kind, name, class}
static const oa_routine
    create = ROUTINE(maker, "maker.create", CREATE, 2, A_DEVICE, AN_OBJECT(NEW, HANDLE, "handle", "Handle")),
    create_other = ROUTINE(other, "other.create", CREATE, 2, A_DEVICE, AN_OBJECT(NEW, HANDLE, "handle", "Handle")),
    shape = ROUTINE(maker, "maker.shape", CREATE, 1, AN_OBJECT(NEW, SHAPE, "shape", "Shape")),
    set = ROUTINE(maker, "maker.set", SET, 2, AN_OBJECT(OBJECT, HANDLE, "handle", "Handle"), A_VALUE),
    get = ROUTINE(maker, "maker.get", GET, 2, AN_OBJECT(OBJECT, HANDLE, "handle", "Handle"),
                  {OA_ROLE_GIVES, 1, "value", NULL}),
    reshape = ROUTINE(maker, "maker.reshape", SET, 2, AN_OBJECT(OBJECT, SHAPE, "shape", "Shape"), A_VALUE),
    join = ROUTINE(maker, "maker.join", SET, 3, AN_OBJECT(OBJECT, SHAPE, "shape", "Shape"),
                   AN_OBJECT(HOLDS, SHAPE, "left", "Shape"), AN_OBJECT(HOLDS, SHAPE, "right", "Shape")),
    destroy = {.function = "maker.destroy",
               .record = RECORD(AN_OBJECT(ENDED, HANDLE, "handle", "Handle")),
               .library = &maker,
               .run = oa_helper_destroy,
               .symbols = {DESTROY, -1},
               .count = 1};

static int create_object(const oa_routine *routine, int device, oa_object **object) {
  oa_value values[2] = {{.integer = device}};
  const int status = routine->run(routine, values, 0);
  *object = (oa_object *)values[routine->count - 1].pointer;
  return status;
}
static int set_to(const oa_routine *routine, const oa_object *object, int value) {
  oa_value values[2] = {{.pointer = object}, {.integer = value}};
  return routine->run(routine, values, 0);
}
static int value_of(const oa_object *object, int *value) {
  oa_value values[2] = {{.pointer = object}};
  const int status = get.run(&get, values, 0);
  memcpy(value, values[1].bytes, sizeof *value);
  return status;
}
static int destroyed(const oa_object *object) {
  oa_value value = {.pointer = object};
  return destroy.run(&destroy, &value, 0);
}

/* -- the tests -- */

static void one_at_a_time(int sim, int host) {
  oa_object *handle, *box, *foreign, *none = NULL;
  oa_object_info info = OA_SIZED(oa_object_info);
  int value = 0;
  CHECK_OK(create_object(&create, sim, &handle));
  CHECK_OK(create_object(&shape, 0, &box));
  CHECK_OK(create_object(&create_other, sim, &foreign));
  CHECK(live == 3);
  CHECK_OK(oa_object_query(handle, &info));
  CHECK(info.device == sim && info.native && strcmp(info.library, "maker") == 0 && strcmp(info.name, "Handle") == 0);
  CHECK(((thing *)info.native)->stream); /* the handle has a separate stream */
  CHECK_OK(oa_object_query(box, &info));
  CHECK(info.device == -1 && !((thing *)info.native)->stream);
  CHECK_OK(set_to(&set, handle, 7));
  CHECK_OK(value_of(handle, &value));
  CHECK(value == 7);
  CHECK_OK(set_to(&set, handle, 0));
  CHECK_OK(set_to(&reshape, box, 3));

  CHECK_FAILS(set_to(&set, box, 1), OA_ERROR_TYPE, "maker.set: handle needs a maker.Handle, got a maker.Shape");
  CHECK_FAILS(set_to(&set, foreign, 1), OA_ERROR_TYPE, "needs a maker.Handle, got a other.Handle");
  CHECK_FAILS(set_to(&set, NULL, 1), OA_ERROR_NOT_HANDLE, "maker.set: handle needs an object that maker made");
  CHECK_FAILS(destroyed(box), OA_ERROR_TYPE, "maker.destroy: handle needs a maker.Handle, got a maker.Shape");
  CHECK_FAILS(create_object(&create, host, &none), OA_ERROR_DEVICE,
              "maker.create: device needs to be a sim device, got host");
  CHECK_FAILS(create_object(&create, 99, &none), OA_ERROR_ARGUMENT, "maker.create");
  answer = 5;
  CHECK_FAILS(create_object(&create, sim, &none), OA_ERROR_LIBRARY, "maker.create: the library returned status (5)");
  CHECK_FAILS(set_to(&set, handle, 0), OA_ERROR_LIBRARY, "maker.set: the library returned status (5)");
  answer = 0;
  CHECK(live == 3);

  CHECK_OK(destroyed(handle));
  CHECK_FAILS(destroyed(handle), OA_ERROR_STALE, "maker.destroy: handle was destroyed; make another one");
  CHECK_FAILS(set_to(&set, handle, 1), OA_ERROR_STALE, "maker.set: handle was destroyed");
  CHECK_FAILS(oa_object_query(handle, &info), OA_ERROR_STALE, "was destroyed");
  CHECK_OK(oa_object_destroy(handle)); /* destroying the handle again does nothing */
  for (int again = 0; again < 2; again++) {
    CHECK_FAILS(oa_object_names(handle, NULL, NULL, NULL), OA_ERROR_STALE, "oa_object_names: object was destroyed");
    CHECK_FAILS(oa_object_query(handle, &info), OA_ERROR_STALE, "oa_object_query: object was destroyed");
  }
  CHECK_OK(oa_object_destroy(box));
  CHECK_OK(oa_object_destroy(foreign));
  CHECK(live == 0);
}

static int joined(const oa_object *object, const oa_object *left, const oa_object *right) {
  oa_value values[3] = {{.pointer = object}, {.pointer = left}, {.pointer = right}};
  return join.run(&join, values, 0);
}

static void held_by_others(void) {
  enum { BOXES = 4 };
  oa_object *box[BOXES];
  for (int i = 0; i < BOXES; i++) CHECK_OK(create_object(&shape, 0, &box[i]));
  CHECK_OK(joined(box[0], box[1], box[2]));
  CHECK_OK(oa_object_destroy(box[1]));
  CHECK_OK(oa_object_destroy(box[1]));
  CHECK(live == BOXES); /* box[0] uses box[1] */
  CHECK_FAILS(joined(box[0], box[1], NULL), OA_ERROR_STALE, "maker.join: left was destroyed");
  CHECK(live == BOXES);
  CHECK_OK(joined(box[0], box[3], box[2])); /* box[3] in place of box[1] */
  CHECK(live == BOXES - 1);
  CHECK_OK(joined(box[3], box[2], NULL)); /* box[2] has two holders */
  CHECK_OK(oa_object_destroy(box[2]));
  CHECK_OK(oa_object_destroy(box[3]));
  CHECK(live == BOXES - 1);
  answer = 5;
  /* Also destroys the objects that box[0] held. */
  CHECK_FAILS(oa_object_destroy(box[0]), OA_ERROR_LIBRARY, "returned status (5)");
  answer = 0;
  CHECK(live == 0);
}

static int read_with(const oa_library *library, const oa_any *x) {
  oa_operand operand = {.name = "x", .pointer = x, .access = OA_READ, .dtype = OA_F32, .extent = OA_ELEMENTS(4)};
  oa_call call = {.function = "maker.read", .library = library, .operands = &operand, .count = 1};
  int status = oa_begin(&call);
  if (status) return status;
  return oa_end(&call, 0);
}

static void as_the_handle_of_calls(int sim, int second) {
  float values[4] = {1, 2, 3, 4};
  const int64_t size = 4, stride = sizeof(float);
  oa_array array = {.data = values, .shape = &size, .strides = &stride, .ndim = 1, .dtype = OA_F32, .direction = OA_IN};
  oa_object *handle, *elsewhere, *foreign, *box;
  oa_region *region;
  CHECK_OK(create_object(&create, sim, &handle));
  CHECK_OK(create_object(&create, second, &elsewhere));
  CHECK_OK(create_object(&create_other, sim, &foreign));
  CHECK_OK(create_object(&shape, 0, &box));
  CHECK_OK(oa_region_enter(sim, NULL, &array, 1, &region));
  CHECK_OK(oa_use_handle("maker", handle));
  CHECK_OK(read_with(&maker, array.handle));
  CHECK_FAILS(read_with(&maker, (const oa_any *)values), OA_ERROR_NOT_HANDLE, "x needs a device pointer");
  CHECK_OK(read_with(&maker, array.handle)); /* a call that fails frees the handle */
  CHECK_OK(oa_use_handle("maker", elsewhere));
  CHECK_FAILS(read_with(&maker, array.handle), OA_ERROR_DEVICE, "handle is of sim:1, and x is on sim:0");
  CHECK_OK(oa_use_handle("maker", foreign));
  CHECK_FAILS(read_with(&maker, array.handle), OA_ERROR_TYPE, "handle needs a maker.Handle, got a other.Handle");
  CHECK_OK(oa_use_handle("maker", box));
  CHECK_FAILS(read_with(&maker, array.handle), OA_ERROR_TYPE, "handle needs a maker.Handle, got a maker.Shape");
  CHECK_OK(oa_object_destroy(handle));
  CHECK_OK(oa_use_handle("maker", handle));
  CHECK_FAILS(read_with(&maker, array.handle), OA_ERROR_STALE, "handle was destroyed");
  CHECK_OK(oa_use_handle("maker", NULL));
  CHECK_OK(read_with(&maker, array.handle));
  CHECK_OK(oa_region_finish(region, OA_COMMIT, NULL));
  CHECK_OK(oa_region_wait(region));
  CHECK_OK(oa_object_destroy(elsewhere));
  CHECK_OK(oa_object_destroy(foreign));
  CHECK_OK(oa_object_destroy(box));
}

static oa_object *shared;
static void *use_shared(void *ends) {
  for (int i = 0; i < 300; i++) {
    const int status = set_to(&set, shared, i & 1);
    CHECK(status == OA_OK || status == OA_ERROR_STALE);
    if (ends && i == 200) CHECK_OK(oa_object_destroy(shared));
  }
  return NULL;
}

static void by_threads(int sim) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  CHECK_OK(create_object(&create, sim, &shared));
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, use_shared, i ? NULL : shared);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

struct crossing {
  oa_object_use has, wants;
  pthread_barrier_t *both;
  int status;
};
static void *cross(void *data) {
  struct crossing *c = data;
  CHECK_OK(oa_objects_take("test.take", &maker, &c->has, 1));
  pthread_barrier_wait(c->both);
  c->status = oa_objects_take("test.take", &maker, &c->wants, 1);
  if (c->status)
    CHECK_FAILS(c->status, OA_ERROR_ARGUMENT, "test.take: it would wait for a thread that has a call open");
  else
    oa_objects_return(&c->wants, 1);
  oa_objects_return(&c->has, 1);
  return NULL;
}

static void of_two_threads_that_want_each_others_object_one_is_refused(int sim) {
  enum { LIMIT = 300 }; /* seconds; then an alarm ends the process */
  oa_object *first, *second;
  pthread_barrier_t both;
  pthread_t threads[2];
  CHECK_OK(create_object(&create, sim, &first));
  CHECK_OK(create_object(&create, sim, &second));
  const oa_object_use first_use = {.name = "one", .handle = first}, second_use = {.name = "two", .handle = second};
  struct crossing crossings[] = {{first_use, second_use, &both, OA_OK}, {second_use, first_use, &both, OA_OK}};
  CHECK(!pthread_barrier_init(&both, NULL, 2));
  alarm(LIMIT);
  for (int i = 0; i < 2; i++) CHECK(!pthread_create(&threads[i], NULL, cross, &crossings[i]));
  for (int i = 0; i < 2; i++) CHECK(!pthread_join(threads[i], NULL));
  alarm(0);
  CHECK(!crossings[0].status == !!crossings[1].status);
  pthread_barrier_destroy(&both);
  CHECK_OK(oa_object_destroy(first));
  CHECK_OK(oa_object_destroy(second));
}

int main(void) {
  int sim, second, host;
  CHECK_OK(oa_device_open("sim:0", &sim));
  CHECK_OK(oa_device_open("sim:1", &second));
  CHECK_OK(oa_device_open("host", &host));
  one_at_a_time(sim, host);
  held_by_others();
  as_the_handle_of_calls(sim, second);
  by_threads(sim);
  of_two_threads_that_want_each_others_object_one_is_refused(sim);
  return failures();
}
