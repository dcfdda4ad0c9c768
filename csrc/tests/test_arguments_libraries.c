/* Wrong arguments of libraries, objects, routines, graphs, the trace, the guard and accelerate. wrong_arguments.h
 * describes these tests. */
#include "offload_args/accelerate.h"
#include "offload_args/graph.h"
#include "offload_args/routine.h"
#include "sample_library.h"
#include "wrong_arguments.h"

#include <math.h>
#include <stdlib.h>

static int make_handle(void **handle) { return *handle = handle, 0; }
static int bind_handle(void *handle, void *stream) { return !handle || !stream; }

static const char *const symbols[] = {"create", "bind"}, *const no_symbols[] = {"answer"};
static void *addresses[] = {(void *)make_handle, (void *)bind_handle}, *no_addresses[1];
static oa_library_state states[2];
static const oa_library handled = {.name = "handled",
                                   .symbols = symbols,
                                   .addresses = addresses,
                                   .state = &states[0],
                                   .symbol_count = 2,
                                   .create = 0,
                                   .destroy = -1,
                                   .set_stream = 1,
                                   .get_stream = -1,
                                   .set_pointer_mode = -1,
                                   .get_pointer_mode = -1};
static const oa_library plain = {SAMPLE_LIBRARY("plain", no_symbols, no_addresses, &states[1])};
const oa_library *const oa_libraries[] = {&handled, &plain, NULL};

/* -- libraries -- */

static void libraries(void) {
  const char *const names[] = {NULL, "", "no such library"};
  char text[8];
  void *address = NULL;
  for (int i = 0; i < 3; i++) {
    function = "oa_library_open";
    REFUSES(OA_ERROR_ARGUMENT, oa_library_open(names[i], "/nothing", ""));
    function = "oa_library_double";
    REFUSES(OA_ERROR_ARGUMENT, oa_library_double(names[i], "/nothing", "sim"));
    REFUSES(OA_ERROR_ARGUMENT, oa_library_double("plain", "/nothing", names[i]));
    function = "oa_library_share";
    REFUSES(OA_ERROR_ARGUMENT, oa_library_share(names[i], NULL));
    function = "oa_use_handle";
    REFUSES(OA_ERROR_ARGUMENT, oa_use_handle(names[i], host));
    function = "oa_library_address";
    REFUSES(OA_ERROR_ARGUMENT, oa_library_address(names[i], "answer", &address));
    CHECK(oa_library_integer_bits(names[i]) == 0);
    function = "oa_library_version";
    REFUSES(OA_ERROR_ARGUMENT, oa_library_version(names[i], text, sizeof text));
    CHECK(strcmp(oa_library_path(names[i]), "") == 0);
    CHECK(!oa_library_has_symbol(names[i], "answer"));
  }
  REFUSES(OA_ERROR_ARGUMENT, oa_library_version("plain", NULL, sizeof text));
  REFUSES(OA_ERROR_ARGUMENT, oa_library_version("plain", text, 0));
  REFUSES(OA_ERROR_LIBRARY, oa_library_version("plain", text, sizeof text));
  function = "oa_library_address";
  REFUSES(OA_ERROR_ARGUMENT, oa_library_address("plain", NULL, &address));
  REFUSES(OA_ERROR_ARGUMENT, oa_library_address("plain", "answer", NULL));
  function = "plain";
  REFUSES(OA_ERROR_LIBRARY, oa_library_address("plain", "answer", &address));
  CHECK(oa_library_integer_bits("plain") == 0);
  CHECK(!oa_library_has_symbol("plain", NULL));
  REFUSES(OA_ERROR_LIBRARY, oa_library_open("plain", NULL, NULL));
  REFUSES(OA_ERROR_LIBRARY, oa_library_open("plain", "", NULL));
  REFUSES(OA_ERROR_LIBRARY, oa_library_open("plain", "/nothing", NULL));
  REFUSES(OA_ERROR_LIBRARY, oa_library_share("plain", NULL));
  REFUSES(OA_ERROR_LIBRARY, oa_library_share("plain", ""));
  REFUSES(OA_ERROR_LIBRARY, oa_library_share("plain", "/nothing"));
  REFUSES(OA_ERROR_ARGUMENT, oa_use_handle("plain", host));
  oa_library_set_loader(NULL);
  oa_driver_set_finder(NULL);
}

static void objects(void) {
  const oa_object_kind *kinds = NULL;
  oa_object_info info = OA_SIZED(oa_object_info);
  int count = -1;
  function = "oa_object_query";
  REFUSES(OA_ERROR_ARGUMENT, oa_object_query(NULL, NULL));
  for (int i = 0; i < WRONG; i++) {
    oa_fail_null("none", "yet");
    const int status = oa_object_query(wrong[i], &info);
    CHECK(status == OA_ERROR_NOT_HANDLE || status == OA_ERROR_STALE);
    CHECK(strstr(oa_last_error(), function));
    if (wrong[i]) CHECK(oa_object_destroy((oa_object *)wrong[i]) == (status == OA_ERROR_STALE ? OA_OK : status));
  }
  function = "oa_object_destroy";
  REFUSES(OA_ERROR_NOT_HANDLE, oa_object_destroy((oa_object *)host));
  function = "oa_object_query";
  REFUSES(OA_ERROR_NOT_HANDLE, oa_object_query((const oa_object *)live, &info));
  REFUSES(OA_ERROR_STALE, oa_object_query((const oa_object *)stale, &info));
  info.size = 3;
  REFUSES(OA_ERROR_ARGUMENT, oa_object_query((const oa_object *)live, &info));
  function = "oa_object_names";
  REFUSES(OA_ERROR_NOT_HANDLE, oa_object_names((const oa_object *)host, NULL, NULL, NULL));
  REFUSES(OA_ERROR_NOT_HANDLE, oa_object_names((const oa_object *)live, NULL, NULL, &count));
  REFUSES(OA_ERROR_STALE, oa_object_names((const oa_object *)stale, NULL, NULL, &count));
  CHECK_OK(oa_object_destroy(NULL));
  CHECK_OK(oa_object_destroy((oa_object *)stale));
  function = "oa_library_object_kinds";
  REFUSES(OA_ERROR_ARGUMENT, oa_library_object_kinds("no such library", &kinds, &count));
  REFUSES(OA_ERROR_ARGUMENT, oa_library_object_kinds("plain", NULL, &count));
  REFUSES(OA_ERROR_ARGUMENT, oa_library_object_kinds("plain", &kinds, NULL));
  CHECK_OK(oa_library_object_kinds("plain", &kinds, &count));
  CHECK(!kinds && count == 0);
}

static void library_symbol(void) {
  const int indices[] = {-1, 1, INT32_MAX, INT32_MIN};
  oa_fail_null("none", "yet");
  CHECK(!oa_library_symbol(NULL, 0) && strstr(oa_last_error(), function));
  for (int i = 0; i < 4; i++) {
    oa_fail_null("none", "yet");
    CHECK(!oa_library_symbol(&plain, indices[i]) && strstr(oa_last_error(), function));
  }
  CHECK(!oa_library_symbol(&plain, 0) && strstr(oa_last_error(), "plain"));
}

static void routines(void) {
  const oa_routine *routine;
  int count;
  REFUSES(OA_ERROR_ARGUMENT, oa_library_routines("no such library", &routine, &count));
  REFUSES(OA_ERROR_ARGUMENT, oa_library_routines("plain", NULL, &count));
  REFUSES(OA_ERROR_ARGUMENT, oa_library_routines("plain", &routine, NULL));
  CHECK_OK(oa_library_routines("plain", &routine, &count));
  CHECK(!routine && !count);
}

static void routine_dtypes(void) {
  static const oa_code_dtype codes[] = {{2, OA_F16, "HALF"}, {7, OA_ANY, "ODD"}, {0, OA_ANY, NULL}};
  static const oa_typed typed[] = {{1, 1, 0, codes}, {0, 1, 0, NULL}};
  static const oa_role record[] = {{OA_ROLE_IN, 1, "A", "Atype"}, {OA_ROLE_TYPE, 1, "Atype", NULL}};
  static const oa_routine routine = {
      .function = "plain.f", .record = record, .dtypes = "\0\0", .typed = typed, .count = 2, .typed_count = 2};
  oa_value values[2] = {{.pointer = NULL}, {.integer = 2}};
  unsigned char dtypes[2];
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_dtypes(NULL, values, dtypes));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_dtypes(&routine, NULL, dtypes));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_dtypes(&routine, values, NULL));
  CHECK_OK(oa_routine_dtypes(&routine, values, dtypes));
  CHECK(dtypes[0] == OA_F16 && dtypes[1] == OA_F16);
  values[1].integer = 7;
  const char *odd = "plain.f: Atype needs one of HALF (2); got 7 (ODD, which NumPy has no dtype for)";
  CHECK_FAILS(oa_routine_dtypes(&routine, values, dtypes), OA_ERROR_ARGUMENT, odd);
  values[1].integer = INT64_C(1) << 32 | 2;
  CHECK_FAILS(oa_routine_dtypes(&routine, values, dtypes), OA_ERROR_ARGUMENT, "needs one of HALF (2); got 4294967298");
}

static void routine_find(void) {
  const char *const names[][2] = {{NULL, "gemv"}, {"no such library", "gemv"}, {"plain", NULL}, {"plain", "gemv"}};
  for (int i = 0; i < 4; i++) {
    oa_fail_null("none", "yet");
    CHECK(!oa_routine_find(names[i][0], names[i][1]) && strstr(oa_last_error(), function));
  }
}

static int never_called(void *symbol, oa_value *values, int ilp64) {
  (void)symbol;
  (void)values;
  return ilp64;
}

static void routine_repeat(void) {
  static const oa_role copies[] = {{OA_ROLE_IN, 1, "x", NULL}, {OA_ROLE_OUT, 1, "y", NULL}};
  static const oa_role gives[] = {
      {OA_ROLE_IN, 1, "x", NULL}, {OA_ROLE_IN, 1, "y", NULL}, {OA_ROLE_RESULT, 1, "result", NULL}};
  static const oa_role lists[] = {{OA_ROLE_IN, 1, "x", NULL}, {OA_ROLE_OUT_LIST, 1, "y", NULL}};
  const oa_routine of_gpu = {.function = "plain.copy", .record = copies, .library = &plain, .count = 2};
  oa_routine dot = of_gpu, copy = of_gpu, listed = of_gpu;
  oa_value values[3] = {0};
  const int64_t strides[2] = {1, 1};
  dot.record = gives;
  dot.count = 3;
  listed.record = lists;
  dot.call = copy.call = listed.call = never_called;
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_repeat(NULL, values, 0, 1, strides, NULL, ""));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_repeat(&copy, NULL, 0, 1, strides, NULL, ""));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_repeat(&copy, values, 0, 1, NULL, NULL, ""));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_repeat(&copy, values, 0, 1, strides, NULL, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_repeat(&of_gpu, values, 0, 1, strides, NULL, ""));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_repeat(&dot, values, 0, 1, strides, NULL, ""));
  REFUSES(OA_ERROR_ARGUMENT, oa_routine_repeat(&listed, values, 0, 1, strides, NULL, ""));
  CHECK_FAILS(oa_routine_repeat(&copy, values, 0, -1, strides, NULL, ""), OA_ERROR_ARGUMENT,
              "times needs to be at least 0");
}

static void graphs(void) {
  const oa_graph_names none = {0}, names = {"create", "bind", "create", "bind", "create", 0, 0, 0, 0, 0, 0};
  const oa_graph_tensor tensor = {"x", 1, OA_F64, OA_READ, 1, 1, 1, 1, 0, 0};
  const void *pointers[] = {live};
  const oa_object *garbage = (const oa_object *)live;
  function = "oa_graph_run";
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(NULL, "handled", &names, garbage, &tensor, 1, pointers, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, NULL, &names, garbage, &tensor, 1, pointers, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, "none", &names, garbage, &tensor, 1, pointers, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, "handled", NULL, garbage, &tensor, 1, pointers, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, "handled", &names, garbage, NULL, 1, pointers, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, "handled", &names, garbage, &tensor, 1, NULL, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, "handled", &names, garbage, &tensor, 0, pointers, 0));
  REFUSES(OA_ERROR_ARGUMENT, oa_graph_run(function, "handled", &names, garbage, &tensor, 33, pointers, 0));
  REFUSES(OA_ERROR_LIBRARY, oa_graph_run(function, "handled", &none, garbage, &tensor, 1, pointers, 0));
  REFUSES(OA_ERROR_NOT_HANDLE, oa_graph_run(function, "handled", &names, NULL, &tensor, 1, pointers, 0));
  REFUSES(OA_ERROR_STALE, oa_graph_run(function, "handled", &names, (const oa_object *)stale, &tensor, 1, pointers, 0));
}

/* -- the trace -- */

static void trace(void) {
  oa_trace_event event;
  int count = 0;
  function = "oa_trace_set";
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_set(-1));
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_set(8));
  CHECK_OK(oa_trace_set(OA_TRACE_ON));
  CHECK_OK(oa_region_synchronize(region));
  close_region(region);
  open_region(&live, &region);
  CHECK_OK(oa_trace_set(0));
  function = "oa_trace_read";
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_read(&event, 1, NULL, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_read(NULL, 1, &count, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_read(&event, -1, &count, NULL));
  CHECK_OK(oa_trace_read(NULL, 0, &count, NULL));
  CHECK(count == 0);
  oa_under_way under_way;
  function = "oa_trace_under_way";
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_under_way(&under_way, 1, NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_under_way(NULL, 1, &count));
  REFUSES(OA_ERROR_ARGUMENT, oa_trace_under_way(&under_way, -1, &count));
  CHECK_OK(oa_trace_under_way(NULL, 0, &count));
  do CHECK_OK(oa_trace_read(&event, 1, &count, NULL));
  while (count);
}

static int go_on(const oa_guard_touch *touch) { return touch != NULL; }

static void guards(void) {
  CHECK(oa_guard_is_default() == 0);
  CHECK_OK(oa_guard_set_report(go_on));
  CHECK_OK(oa_guard_set_report(NULL));
}

static void accelerate_start(void) {
  oa_accelerate_options options = OA_SIZED(oa_accelerate_options, .margin = -1);
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_start(NULL));
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_start(&options));
  options.margin = 1;
  options.least = -1;
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_start(&options));
  options.least = 0;
  options.planned = OA_PLAN_ALONE + 1;
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_start(&options));
  options.planned = OA_PLAN_NOTHING;
  options.patience = -1;
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_start(&options));
  options.patience = NAN;
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_start(&options));
  options.patience = 0;
  REFUSES_SIZES(options, oa_accelerate_start(&options));
}

static void accelerate_use(void) {
  oa_accelerate_rates rates = OA_SIZED(oa_accelerate_rates);
  for (int i = 0; i < WRONG_DEVICES; i++)
    if (wrong_devices[i] != -1) REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_use(wrong_devices[i], NULL));
  REFUSES_SIZES(rates, oa_accelerate_use(-1, &rates));
}

static void accelerate_use_lapack(void) {
  for (int i = 0; i < WRONG_DEVICES; i++) REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_use_lapack(wrong_devices[i]));
}

static void accelerate_calibrate(void) {
  oa_accelerate_rates rates;
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_calibrate(device, NULL));
  for (int i = 0; i < WRONG_DEVICES; i++) REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_calibrate(wrong_devices[i], &rates));
}

static void accelerate_nominal(void) { REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_nominal(NULL)); }

static void accelerate_query(void) {
  int count;
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_query(NULL, &count));
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_query(&count, NULL));
}

static void accelerate_read(void) {
  int count;
  int64_t small;
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_read(NULL, 1, &count, &small));
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_read(NULL, 0, NULL, &small));
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_read(NULL, 0, &count, NULL));
  CHECK_OK(oa_accelerate_read(NULL, 0, &count, &small));
}

static void accelerate_read_failure(void) {
  char text[4] = "abc";
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_read_failure(NULL, sizeof text));
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_read_failure(text, 0));
  CHECK_OK(oa_accelerate_read_failure(text, 1));
  CHECK(!text[0] && text[1] == 'b');
}

static void accelerate_plan(void) {
  const oa_accelerate_row rows[] = {{.routine = "dgemm", .m = 1, .n = 1, .k = 1, .decision = OA_DECIDED_GOES},
                                    {.routine = "of another version"}};
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_plan(NULL, 1));
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_plan(rows, -1));
  CHECK_OK(oa_accelerate_plan(rows, 2));
  CHECK_OK(oa_accelerate_plan(NULL, 0));
  CHECK_OK(oa_accelerate_clear());
}

static void accelerate_wait(void) {
  int event;
  oa_accelerate_asked asked = OA_SIZED(oa_accelerate_asked);
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_wait(NULL, &event));
  REFUSES(OA_ERROR_ARGUMENT, oa_accelerate_wait(&asked, NULL));
  REFUSES_SIZES(asked, oa_accelerate_wait(&asked, &event));
  CHECK_OK(oa_accelerate_wait(&asked, &event)); /* nothing was started */
  CHECK(event == OA_EVENT_STOPPED);
}

static void accelerate_others(void) {
  CHECK_OK(oa_accelerate_stop());
  CHECK_OK(oa_accelerate_rescan());
  CHECK_OK(oa_accelerate_clear());
  CHECK_OK(oa_accelerate_set_site(UINT64_MAX, -1));
  CHECK_OK(oa_accelerate_set_finder(NULL));
  CHECK(!oa_accelerate_family(-1) && !oa_accelerate_family(INT_MAX) && oa_accelerate_family(0));
  CHECK(!oa_accelerate_loop_at(-1) && !oa_accelerate_loop_at(INT_MAX) && oa_accelerate_loop_at(0)->hook);
  CHECK(!oa_accelerate_reason_text(-1) && !oa_accelerate_reason_text(OA_REFUSED_COUNT));
  for (int i = 0; i < OA_REFUSED_COUNT; i++) CHECK(oa_accelerate_reason_text(i));
}

/* -- all of them -- */

static const struct wrong_test tests[] = {
    {"oa_library_open", libraries},
    {"oa_library_double", libraries},
    {"oa_library_share", libraries},
    {"oa_library_path", libraries},
    {"oa_library_set_loader", libraries},
    {"oa_driver_set_finder", libraries},
    {"oa_library_has_symbol", libraries},
    {"oa_library_address", libraries},
    {"oa_library_integer_bits", libraries},
    {"oa_library_version", libraries},
    {"oa_library_object_kinds", objects},
    {"oa_library_routines", routines},
    {"oa_routine_dtypes", routine_dtypes},
    {"oa_routine_find", routine_find},
    {"oa_routine_repeat", routine_repeat},
    {"oa_graph_run", graphs},
    {"oa_use_handle", libraries},
    {"oa_object_query", objects},
    {"oa_object_names", objects},
    {"oa_object_destroy", objects},
    {"oa_trace_set", trace},
    {"oa_trace_read", trace},
    {"oa_trace_under_way", trace},
    {"oa_accelerate_start", accelerate_start},
    {"oa_accelerate_plan", accelerate_plan},
    {"oa_accelerate_use", accelerate_use},
    {"oa_accelerate_use_lapack", accelerate_use_lapack},
    {"oa_accelerate_calibrate", accelerate_calibrate},
    {"oa_accelerate_nominal", accelerate_nominal},
    {"oa_accelerate_query", accelerate_query},
    {"oa_accelerate_read", accelerate_read},
    {"oa_accelerate_read_failure", accelerate_read_failure},
    {"oa_accelerate_wait", accelerate_wait},
    {"oa_accelerate_stop", accelerate_others},
    {"oa_accelerate_rescan", accelerate_others},
    {"oa_accelerate_clear", accelerate_others},
    {"oa_accelerate_set_site", accelerate_others},
    {"oa_accelerate_set_finder", accelerate_others},
    {"oa_accelerate_family", accelerate_others},
    {"oa_accelerate_loop_at", accelerate_others},
    {"oa_accelerate_reason_text", accelerate_others},
    {"oa_guard_is_default", guards},
    {"oa_guard_set_report", guards},
    {"oa_library_symbol", library_symbol},
};

int main(int count, char **arguments) { return run_tests(tests, sizeof tests / sizeof *tests, count, arguments); }
