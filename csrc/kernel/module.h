/* Modules and kernels: the states that their handles name. All fields are set once and then only read, unless a comment
 * says otherwise. */
#ifndef OA_MODULE_H
#define OA_MODULE_H

#include "device/backend.h"
#include "kernel/hsaco.h"
#include "offload_args/kernel.h"

typedef struct oa_kernel_state oa_kernel_state;

typedef struct oa_module_state {
  oa_device *device;
  void *native; /* the backend's module; on devices whose calls run on the CPU, the object from oa_shared_object_load */
  oa_bytes metadata;   /* owned; only an HSACO has metadata */
  atomic_int launches; /* launches under way: the module can't be unloaded. Launches begin under the core's lock */
  /* The core's lock guards the fields below: */
  oa_kernel_state *kernels;
  const oa_any **variables; /* pointers to the module's variables, which each launch also uses. Owned */
  int variable_count;
  bool captured; /* a graph may launch kernels of the module at any time */
} oa_module_state;

struct oa_kernel_state {
  oa_module_state *module;
  oa_kernel_state *next; /* next kernel of the module; the core's lock guards this field */
  void *handle;
  void *function; /* the backend's kernel, or an oa_kernel_function */
  oa_kernel_info info;
  int count, pointers;      /* the number of parameters, and of pointers among them */
  size_t nbytes;            /* size of all arguments */
  oa_parameter *parameters; /* the kernel owns their names */
  char *name;
};

/* Holds the kernel's module for a launch; NULL with *status and the text set. Called with the core's lock. */
oa_kernel_state *oa_kernel_hold(const char *function, const oa_kernel *kernel, int *status);
/* Ends the hold. captured: the launch became part of a graph. */
void oa_kernel_unhold(oa_kernel_state *kernel, bool captured);

#endif
