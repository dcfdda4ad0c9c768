/* Vendor libraries: loading, symbols, and the handles of a stream. */
#ifndef OA_LIBRARY_H
#define OA_LIBRARY_H

#include "device/stream.h"

/* The core's state of a library of this build; each descriptor points to its own. */
typedef struct oa_library_state {
  int index;                 /* its place in oa_libraries */
  const oa_backend *backend; /* NULL: any device whose libraries run on the CPU, or `unknown` */
  bool ready;                /* index and backend are set; read and set atomically */
  bool unknown;              /* this build has no backend of that name */
  bool waits;   /* the library can't be told of a stream, though it runs on a GPU: each call is waited for */
  int ilp64;    /* its integers have 64 bits; others have 32 */
  void *loaded; /* read and set atomically; what follows is set before */
  char *path;
  char *prefix;
  const char *suffix;
} oa_library_state;

/* Gives each library of this build its number and its backend, once. */
void oa_libraries_ready(void);

/* Returns the state of a library whose number and backend are known. */
static inline const oa_library_state *oa_library_state_of(const oa_library *library) {
  if (__builtin_expect(!__atomic_load_n(&library->state->ready, __ATOMIC_ACQUIRE), 0)) oa_libraries_ready();
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

/* Returns the place of a handle in a stream's table. Calls with scalars on the device have a handle of their own, so
 * that no handle's pointer mode changes while another thread calls with it. */
static inline int oa_library_handle_place(const oa_library *library, int on_device) {
  return 2 * library->state->index + (on_device && library->set_pointer_mode >= 0);
}

/* Sets *handle to the library's handle bound to stream, in its pointer mode, made at first need. Without the lock, with
 * the device current. */
int oa_library_handle(const oa_library *library, oa_stream *stream, int on_device, void **handle);
/* Hands the handles of a foreign stream back to the pool, for other streams of its device. Under the lock. */
void oa_library_give_back(oa_stream *stream);
extern atomic_bool oa_library_has_used; /* some thread has asked for a handle with oa_use_handle */
void *oa_library_find_used(const oa_library *library);
/* Returns the handle this thread asked for with oa_use_handle; NULL if none. */
static inline void *oa_library_used_handle(const oa_library *library) {
  const bool any = atomic_load_explicit(&oa_library_has_used, memory_order_relaxed);
  return __builtin_expect(any, 0) ? oa_library_find_used(library) : NULL;
}
int oa_library_set_stream(const oa_library *library, void *handle, void *native);
int oa_library_handle_stream(const oa_library *library, void *handle, void **native);
int oa_library_get_mode(const oa_library *library, void *handle, int *mode);
int oa_library_set_mode(const oa_library *library, void *handle, int mode);
/* Writes "CUBLAS_STATUS_INVALID_VALUE (7)" into text. */
void oa_library_status_text(const oa_library *library, int status, char *text, size_t size);

#endif
