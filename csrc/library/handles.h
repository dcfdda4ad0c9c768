/* The handles of vendors' libraries. Each stream has handles of its own, and a thread may set other handles with
 * oa_use_handle. */
#ifndef OA_HANDLES_H
#define OA_HANDLES_H

#include "library/library.h"

/* Returns the index of a handle in a stream's table. Calls with scalars on the device use a second handle, so that no
 * handle's pointer mode changes while another thread uses it. */
static inline int oa_library_handle_place(const oa_library *library, int on_device) {
  return 2 * library->state->index + (on_device && library->set_pointer_mode >= 0);
}

/* Takes a handle of the library that is bound to stream and has that pointer mode, and makes one if there is none. If
 * the library's handles are not shared, the caller has the handle until oa_library_return_handle. `captured`: the
 * stream is being captured. Call it without the lock, with the device current. */
int oa_library_take_handle(const oa_library *library, oa_stream *stream, int on_device, bool captured, void **handle);
/* Returns a handle that is not shared. Call it without the lock. */
void oa_library_return_handle(const oa_library *library, oa_stream *stream, int on_device, void *handle);
/* Gives a foreign stream's handles to other streams of its device. These streams run after the operations of `after` up
 * to now. Called with the lock. */
void oa_library_release_handles(oa_stream *stream, oa_stream *after);
extern atomic_bool oa_library_has_used; /* some thread has set a handle with oa_use_handle */
void *oa_library_find_used(const oa_library *library);
/* Returns the handle that this thread set with oa_use_handle; NULL if none. */
static inline void *oa_library_used_handle(const oa_library *library) {
  const bool any = atomic_load_explicit(&oa_library_has_used, memory_order_relaxed);
  return OA_UNLIKELY(any) ? oa_library_find_used(library) : NULL;
}
int oa_library_set_stream(const oa_library *library, void *handle, void *native);
int oa_library_handle_stream(const oa_library *library, void *handle, void **native);
/* Makes a stream's handle use the memory at `address` as its workspace; 0: the library's own memory. Called without the
 * lock, with the device current. */
int oa_library_set_workspace(const oa_library *library, void *handle, const oa_stream *stream, uint64_t address);
int oa_library_get_mode(const oa_library *library, void *handle, int *mode);
int oa_library_set_mode(const oa_library *library, void *handle, int mode);

#endif
