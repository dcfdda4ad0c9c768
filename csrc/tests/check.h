/* Assertions of the C tests: a failed assertion is printed with its line and the last error, and the test goes on. A
 * test's main returns failures(). */
#ifndef OA_CHECK_H
#define OA_CHECK_H

#include "offload_args.h"
#include "offload_args/shim.h"
#include "offload_args/testing.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_int check_failures;

static inline int check(int holds, const char *file, int line, const char *expression) {
  if (!holds) {
    atomic_fetch_add(&check_failures, 1);
    fprintf(stderr, "%s:%d: failed: %s\n  last error: %s\n", file, line, expression, oa_last_error());
  }
  return holds;
}

static inline int check_status(int status, int expected, const char *file, int line, const char *expression) {
  if (status != expected) {
    atomic_fetch_add(&check_failures, 1);
    fprintf(stderr, "%s:%d: %s\n  returned %s, not %s; last error: %s\n", file, line, expression,
            oa_status_name(status), oa_status_name(expected), oa_last_error());
  }
  return status == expected;
}

/* Returns the text with the tested backend's name in place of sim. The result is valid until the thread's next call.
 * Programs without on_gpu.c lack this function. */
__attribute__((weak)) const char *as_tested(const char *text);

static inline int check_fails(int status, int expected, const char *words, const char *file, int line,
                              const char *expression) {
  int right = check_status(status, expected, file, line, expression);
  if (as_tested) words = as_tested(words);
  if (right && !strstr(oa_last_error(), words)) {
    atomic_fetch_add(&check_failures, 1);
    fprintf(stderr, "%s:%d: %s\n  the text should have \"%s\"; last error: %s\n", file, line, expression, words,
            oa_last_error());
    right = 0;
  }
  return right;
}

#define CHECK(condition) check((condition) != 0, __FILE__, __LINE__, #condition)
#define CHECK_OK(call) check_status((call), OA_OK, __FILE__, __LINE__, #call)
/* Checks that the call fails with that status, and with a text in which `words` occur. */
#define CHECK_FAILS(call, status, words) check_fails((call), (status), (words), __FILE__, __LINE__, #call)

/* Returns whether the devices called sim are doubles of GPUs in this run (on_gpu.c). */
static inline int on_doubles(void) { return getenv("OFFLOAD_ARGS_TEST_GPU") != NULL; }

/* Marks a test's loop over an array that begins with reads() or writes() of the whole array. ThreadSanitizer then looks
 * at the array once. It would look at each byte, which takes a hundred times as long. */
#ifdef __SANITIZE_THREAD__
#define BY_RANGE __attribute__((no_sanitize("thread")))
void __tsan_read_range(void *address, long nbytes);
void __tsan_write_range(void *address, long nbytes);
#else
#define BY_RANGE
#endif

static inline void reads(const void *data, int64_t nbytes) {
#ifdef __SANITIZE_THREAD__
  __tsan_read_range((void *)(uintptr_t)data, (long)nbytes);
#endif
  (void)data, (void)nbytes;
}

static inline void writes(void *data, int64_t nbytes) {
#ifdef __SANITIZE_THREAD__
  __tsan_write_range(data, (long)nbytes);
#endif
  (void)data, (void)nbytes;
}

/* The backend of the devices that a test calls sim: "sim", or the backend of the doubles. */
extern char tested_backend[];

/* Returns the file of the module sample_kernels.c, in the form that the device loads. */
const char *sample_kernels(int device);

/* Returns the address at which this process reaches memory of host, sim or a double of a GPU. */
void *reachable(uint64_t address);

static inline int failures(void) { return atomic_load(&check_failures) != 0; }

#endif
