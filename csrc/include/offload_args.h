/* offload_args: lends host arrays to a device for the duration of calls into the vendors' own libraries.
 *
 * Programs include this header. This header includes core.h, the part of the C API that users of the library need. The
 * names in core.h do not depend on the generator or the tests. Two more headers have the rest:
 * - offload_args/shim.h: declares calls, for generated code and for programs that call kernels of their own;
 * - offload_args/testing.h: sets properties of `sim` devices and of residency, for tests.
 * Each vendor library has a generated header, such as offload_args_cublas.h. */
#ifndef OFFLOAD_ARGS_H
#define OFFLOAD_ARGS_H

#include "offload_args/core.h"

#endif
