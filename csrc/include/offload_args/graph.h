/* Plans of a graph API: a vendor's library executes many operations as one, on a pack of arrays. */
#ifndef OFFLOAD_ARGS_GRAPH_H
#define OFFLOAD_ARGS_GRAPH_H

#include "offload_args/shim.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* One input or output of a plan: a tensor that is not virtual. */
typedef struct oa_graph_tensor {
  const char *name;
  int64_t uid;
  int dtype;
  int access;       /* OA_READ or OA_OVERWRITE; 0: a number on the host */
  int64_t elements; /* number of elements */
  int64_t span;     /* number of elements from the first to the last, gaps included */
  int64_t line;     /* contiguous elements in each line of the span */
  int64_t step;     /* elements from the start of a line to the start of the next */
  double number;    /* value of a host tensor; passed as a float, or as an int32_t if that is the dtype */
  int alignment;    /* bytes that divide the address; 0: any */
} oa_graph_tensor;

/* Functions and constants of the library, by the names and numbers in its header. */
typedef struct oa_graph_names {
  const char *create, *set, *finalize, *execute, *destroy;
  int pack, ids, pointers, workspace; /* the kind of a pack, and its attributes */
  int type_of_ids, type_of_pointers;
} oa_graph_names;

/* Checks the pointers, one for each device tensor, moves the missing bytes, and executes the plan (an object that the
 * library made) with a workspace of `workspace` bytes. */
int oa_graph_run(const char *function, const char *library, const oa_graph_names *names, const oa_object *plan,
                 const oa_graph_tensor *tensors, int count, const void *const *pointers, size_t workspace);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
