/* Vendor libraries: loading and symbols. */
#ifndef OA_LIBRARY_H
#define OA_LIBRARY_H

#include "device/stream.h"

/* The core's state of one library of this build; the library's descriptor points to it. */
typedef struct oa_library_state {
  int index;                 /* the library's index in oa_libraries */
  const oa_backend *backend; /* NULL: any device whose libraries run on the CPU, or `unknown` */
  bool ready;                /* index and backend are set; atomic */
  bool unknown;              /* this build has no backend of that name */
  bool waits;                /* the library runs on a GPU but takes no stream: the core waits for each call */
  int ilp64;                 /* 1: the library's integers have 64 bits; 0: 32 bits */
  void *loaded;              /* atomic; the fields below are set before it */
  char *path;
  char *prefix;
  const char *suffix;
} oa_library_state;

/* Sets the number and the backend of each library of this build, once. */
void oa_libraries_ready(void);

/* Returns the state of a library, after setting its number and backend. */
static inline const oa_library_state *oa_library_state_of(const oa_library *library) {
  if (OA_UNLIKELY(!__atomic_load_n(&library->state->ready, __ATOMIC_ACQUIRE))) oa_libraries_ready();
  return library->state;
}

/* Returns whether the library's calls work on the device's memory. */
static inline bool oa_library_works_on(const oa_library *library, const oa_device *device) {
  const oa_library_state *state = oa_library_state_of(library);
  if (state->backend) return state->backend == device->backend;
  return !state->unknown && (device->backend->flags & OA_DEVICE_HOST_CALLS);
}

/* Sets the error of a call whose operand `name` is on a device that the library does not work on. */
__attribute__((cold)) int oa_fail_library_device(const oa_library *library, const char *function, const char *name,
                                                 const oa_device *device);

/* Returns the library of this name; NULL with the error of `function` set if this build has none. */
const oa_library *oa_library_named(const char *function, const char *name);

/* Writes "CUBLAS_STATUS_INVALID_VALUE (7)" into text. */
enum { OA_STATUS_TEXT = 400 }; /* bytes: room for the text of oa_library_status_text */
void oa_library_status_text(const oa_library *library, int status, char *text, size_t size);

#endif
