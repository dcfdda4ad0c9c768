/* The search for a vendor's library in programs without Python. */
#ifndef OA_FIND_H
#define OA_FIND_H

#include "offload_args/shim.h"

/* Tries a file, or a name for the system's linker, and returns a status. `path` is valid only during the call. */
typedef int (*oa_library_attempt)(const oa_library *library, const char *path);

/* Tries the places of a library, in the order that core.h documents, until an attempt succeeds. Returns OA_OK, or
 * OA_ERROR_LIBRARY with a text that lists every place. */
int oa_library_search(const oa_library *library, oa_library_attempt attempt);

#endif
