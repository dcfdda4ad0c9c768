/* The base's own promises: structs that grow. */
#include "base/sized.h"
#include "check.h"

/* A struct in its first version, in its second, and in one that is newer than this core. */
typedef struct first {
  size_t size;
  int64_t a;
} first;
typedef struct second {
  size_t size;
  int64_t a, b;
} second;
typedef struct third {
  size_t size;
  int64_t a, b, c;
} third;

static int read_options(const void *given, second *options) {
  return oa_sized_read("f", "options", given, options, sizeof(first), sizeof *options);
}

static void a_smaller_struct_of_an_older_program_is_read_and_its_missing_fields_are_0(void) {
  const struct {
    first given;
    int64_t behind;
  } old = {OA_SIZED(first, .a = 1), 7};
  second options;
  CHECK_OK(read_options(&old.given, &options));
  CHECK(options.a == 1 && options.b == 0);
  CHECK_OK(read_options(&OA_SIZED(second, .a = 1, .b = 2), &options));
  CHECK(options.a == 1 && options.b == 2);
  CHECK_OK(read_options(NULL, &options));
  CHECK(options.a == 0 && options.b == 0);
}

static void sizes_that_no_version_had_are_refused_with_the_remedy(void) {
  second options;
  third newer = OA_SIZED(third);
  first old = OA_SIZED(first);
  CHECK_FAILS(read_options(&newer, &options), OA_ERROR_ARGUMENT, "with the version of offload_args");
  old.size = 0;
  CHECK_FAILS(read_options(&old, &options), OA_ERROR_ARGUMENT, "f: options->size needs to be the size of its struct");
  CHECK_FAILS(read_options(&old, &options), OA_ERROR_ARGUMENT, "make it with OA_SIZED");
  old.size = sizeof(first) - 1;
  CHECK_FAILS(read_options(&old, &options), OA_ERROR_ARGUMENT, "got 15");
}

static void only_the_fields_that_an_older_program_has_are_written(void) {
  struct {
    first given;
    int64_t behind;
  } old = {OA_SIZED(first), 7};
  const second now = {.a = 1, .b = 2};
  CHECK_OK(oa_sized_check("f", "info", &old.given, sizeof(first), sizeof now));
  oa_sized_write(&old.given, &now);
  CHECK(old.given.size == sizeof(first) && old.given.a == 1 && old.behind == 7);
}

int main(void) {
  a_smaller_struct_of_an_older_program_is_read_and_its_missing_fields_are_0();
  sizes_that_no_version_had_are_refused_with_the_remedy();
  only_the_fields_that_an_older_program_has_are_written();
  return failures();
}
