/* The promises of base/: structs that grow; threads that work for several devices at the same time; nodes. */
#include "base/nodes.h"
#include "base/sized.h"
#include "base/threads.h"
#include "check.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A struct in its first version, in its second version, and in a version that is newer than this core. */
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

static int read_options(const void *options_passed, second *options) {
  return oa_sized_read("f", "options", options_passed, options, sizeof(first), sizeof *options);
}

static void a_smaller_struct_of_an_older_program_is_read_and_its_missing_fields_are_0(void) {
  const struct {
    first options_passed;
    int64_t behind;
  } old = {OA_SIZED(first, .a = 1), 7};
  second options;
  CHECK_OK(read_options(&old.options_passed, &options));
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
    first options_passed;
    int64_t behind;
  } old = {OA_SIZED(first), 7};
  const second now = {.a = 1, .b = 2};
  CHECK_OK(oa_sized_check("f", "info", &old.options_passed, sizeof(first), sizeof now));
  oa_sized_write(&old.options_passed, &now);
  CHECK(old.options_passed.size == sizeof(first) && old.options_passed.a == 1 && old.behind == 7);
}

/* -- threads -- */

enum { EACH = 3 };
static atomic_int working[2], most_working[2], all_met;

/* Returns when both owners have all their threads, or after minutes: on a busy machine, threads start late. */
static void meet(void *data) {
  const int owner = *(const int *)data;
  const int now = atomic_fetch_add(&working[owner], 1) + 1;
  if (now > atomic_load(&most_working[owner])) atomic_store(&most_working[owner], now);
  for (int i = 0; i < 200000 && !atomic_load(&all_met); i++) {
    if (atomic_load(&working[0]) >= EACH && atomic_load(&working[1]) >= EACH) atomic_store(&all_met, 1);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  atomic_fetch_sub(&working[owner], 1);
}

static void *run_task(void *data) {
  oa_threads_run(data, meet, data, 2 * EACH);
  return NULL;
}

static void devices_that_copy_at_once_have_as_many_threads_each(void) {
  static int owners[2] = {0, 1};
  pthread_t thread;
  CHECK_OK(oa_set_threads(EACH));
  CHECK(oa_threads_count() == EACH);
  pthread_create(&thread, NULL, run_task, &owners[1]);
  run_task(&owners[0]);
  pthread_join(thread, NULL);
  CHECK(all_met);
  CHECK(most_working[0] == EACH && most_working[1] == EACH); /* each owner had exactly its threads */
  CHECK_OK(oa_set_threads(0));
}

/* -- nodes -- */

static void the_node_of_a_device_is_what_the_system_says(void) {
  CHECK(oa_node_of_pci("ffff:ff:1f.7") == -1);
  CHECK(oa_node_of_pci("../../../../sys/devices/system/node") == -1);
  CHECK(oa_node_of_pci("") == -1);
  DIR *folder = opendir("/sys/bus/pci/devices");
  for (const struct dirent *entry; folder && (entry = readdir(folder));) {
    char path[300];
    int node = -1;
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", entry->d_name);
    FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
    if (!file) continue;
    CHECK(fscanf(file, "%d", &node) == 1);
    fclose(file);
    CHECK(oa_node_of_pci(entry->d_name) == node);
  }
  if (folder) closedir(folder);
}

static int policy(void) {
  int mode = -1;
  return syscall(SYS_get_mempolicy, &mode, NULL, 0UL, NULL, 0UL) ? -1 : mode;
}

static void memory_comes_from_a_node_for_a_while(void) {
  oa_node_policy before;
  const int usual = policy();
  oa_node_prefer(-1, &before);
  CHECK(!before.changed && policy() == usual);
  oa_node_prefer(1 << 20, &before);
  CHECK(!before.changed && policy() == usual);
  oa_node_prefer(0, &before);
  CHECK(before.changed ? policy() == 1 : policy() == usual); /* a container may refuse the change */
  oa_node_restore(&before);
  CHECK(policy() == usual);
}

int main(void) {
  the_node_of_a_device_is_what_the_system_says();
  memory_comes_from_a_node_for_a_while();
  a_smaller_struct_of_an_older_program_is_read_and_its_missing_fields_are_0();
  sizes_that_no_version_had_are_refused_with_the_remedy();
  only_the_fields_that_an_older_program_has_are_written();
  devices_that_copy_at_once_have_as_many_threads_each();
  return failures();
}
