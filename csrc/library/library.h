/* Vendor libraries: loading, symbols, and the handles of a stream. */
#ifndef OA_LIBRARY_H
#define OA_LIBRARY_H

#include "device/stream.h"

/* The handle of library bound to stream, made at first need; without the lock, with the device current. */
int oa_library_handle(oa_library *library, oa_stream *stream, void **handle);
/* Hands the handles of a foreign stream back to the pool, for other streams of its device. Under the lock. */
void oa_library_give_back(oa_stream *stream);
/* The handle this thread asked for with oa_use_handle; NULL if none. */
void *oa_library_used_handle(const oa_library *library);
int oa_library_handle_stream(oa_library *library, void *handle, void **native);
int oa_library_get_mode(oa_library *library, void *handle, int *mode);
int oa_library_set_mode(oa_library *library, void *handle, int mode);
/* "CUBLAS_STATUS_INVALID_VALUE (7)" into text. */
void oa_library_status_text(const oa_library *library, int status, char *text, size_t size);

#endif
