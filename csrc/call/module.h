/* Modules and kernels: what their handles name. All of this is made once and then only read, but for what says
 * otherwise. */
#ifndef OA_CALL_MODULE_H
#define OA_CALL_MODULE_H

#include "call/hsaco.h"
#include "device/backend.h"
#include "offload_args/kernel.h"

typedef struct oa_kernel_state oa_kernel_state;

typedef struct oa_module_state {
  oa_device *device;
  void *native;        /* the backend's; on devices whose calls run on the CPU that of oa_shared_object_load */
  oa_bytes metadata;   /* an HSACO's, owned; none of other modules */
  atomic_int launches; /* under way: the module can't be unloaded. They begin under the core's lock */
  /* Under the core's lock: */
  oa_kernel_state *kernels;
  bool captured; /* a graph may launch its kernels at any time */
} oa_module_state;

struct oa_kernel_state {
  oa_module_state *module;
  oa_kernel_state *next; /* of the module; under the core's lock */
  void *handle;
  void *function; /* the backend's, or an oa_kernel_function */
  oa_kernel_info info;
  int count, pointers;      /* parameters, and those of them that are pointers */
  size_t nbytes;            /* of all arguments */
  oa_parameter *parameters; /* their names are owned by the kernel */
  char *name;
};

/* Lets a launch hold the kernel's module; NULL with *status and the text set. Under the core's lock. */
oa_kernel_state *oa_kernel_hold(const char *function, const oa_kernel *kernel, int *status);
/* Ends that. captured: the launch became part of a graph. */
void oa_kernel_unhold(oa_kernel_state *kernel, bool captured);

#endif
