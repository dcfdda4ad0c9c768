#include "offload_args/graph.h"

#include "body/descriptor.h"
#include "call/call.h"
#include "call/object.h"

#include <stdlib.h>

enum { MOST_TENSORS = 32 };

/* The library functions of one call. */
typedef struct graph_functions {
  int (*create)(int kind, void **pack);
  int (*set)(void *pack, int name, int type, int64_t count, const void *values);
  int (*finalize)(void *pack);
  int (*execute)(void *handle, const void *plan, void *pack);
  int (*destroy)(void *pack);
} graph_functions;

static void *symbol_named(const char *function, const oa_library *library, const char *name) {
  for (int i = 0; name && i < library->symbol_count; i++)
    if (strcmp(library->symbols[i], name) == 0) return oa_library_symbol(library, i);
  oa_fail(OA_ERROR_LIBRARY, "%s: %s has no function %s", function, library->name, name ? name : "of that name");
  return NULL;
}

static int find_functions(const char *function, const oa_library *library, const oa_graph_names *names,
                          graph_functions *functions) {
  *(void **)&functions->create = symbol_named(function, library, names->create);
  *(void **)&functions->set = symbol_named(function, library, names->set);
  *(void **)&functions->finalize = symbol_named(function, library, names->finalize);
  *(void **)&functions->execute = symbol_named(function, library, names->execute);
  *(void **)&functions->destroy = symbol_named(function, library, names->destroy);
  const bool all =
      functions->create && functions->set && functions->finalize && functions->execute && functions->destroy;
  return all ? OA_OK : OA_ERROR_LIBRARY;
}

/* Packs the addresses and executes the plan with them. Returns the vendor's status. */
static int execute(const oa_call *call, const graph_functions *f, const oa_graph_names *names, const void *plan,
                   const int64_t *ids, const void *const *addresses, int count, const void *workspace) {
  void *pack = NULL;
  int status = f->create(names->pack, &pack);
  if (status) return status;
  status = f->set(pack, names->ids, names->type_of_ids, count, ids);
  if (!status) status = f->set(pack, names->pointers, names->type_of_pointers, count, addresses);
  if (!status) status = f->set(pack, names->workspace, names->type_of_pointers, 1, &workspace);
  if (!status) status = f->finalize(pack);
  if (!status) status = f->execute(call->handle, plan, pack);
  const int destroyed = f->destroy(pack);
  return status ? status : destroyed;
}

/* Declares the operands and begins the call. */
static int begin(oa_call *call, oa_operand *operands, const oa_graph_tensor *tensors, int count,
                 const void *const *pointers) {
  for (int i = 0; i < count; i++) {
    const oa_graph_tensor *t = &tensors[i];
    const int access = t->access == OA_OVERWRITE && t->elements != t->span ? OA_READ_WRITE : t->access;
    const int64_t lines = t->step > 0 && t->span >= t->line ? 1 + (t->span - t->line) / t->step : 1;
    if (!t->access) continue;
    operands[call->count++] = (oa_operand){.name = t->name,
                                           .pointer = *pointers++,
                                           .access = access,
                                           .dtype = t->dtype,
                                           .extent = OA_MATRIX(t->line, lines, t->step, "line", "lines", "step")};
  }
  call->operands = operands;
  return oa_begin(call);
}

/* The number of a host tensor, as the library reads it. */
typedef union number {
  float real;
  int32_t whole;
} number;

static number number_of(const oa_graph_tensor *t) {
  return t->dtype == OA_I32 ? (number){.whole = (int32_t)t->number} : (number){.real = (float)t->number};
}

/* Checks that an array has the alignment that the plan's kernels need. */
static int check_alignment(oa_call *call, const oa_graph_tensor *t, const void *address) {
  const uintptr_t excess = t->alignment > 1 ? (uintptr_t)address % (unsigned)t->alignment : 0;
  if (!excess) return OA_OK;
  return oa_call_fail(call, oa_fail(OA_ERROR_ARGUMENT,
                                    "%s: %s starts at %d bytes after a multiple of %d, which the plan needs; pass a "
                                    "pointer that starts elsewhere, or a copy",
                                    call->function, t->name, (int)excess, t->alignment));
}

static int run(oa_call *call, const graph_functions *f, const oa_graph_names *names, const void *plan,
               const oa_graph_tensor *tensors, int count, const void *const *pointers, size_t needed) {
  oa_operand operands[MOST_TENSORS];
  int64_t ids[MOST_TENSORS];
  number numbers[MOST_TENSORS];
  const void *addresses[MOST_TENSORS];
  oa_workspace workspace = {0};
  int status = begin(call, operands, tensors, count, pointers);
  for (int i = 0, at = 0; !status && i < count; i++) {
    ids[i] = tensors[i].uid;
    numbers[i] = number_of(&tensors[i]);
    addresses[i] = tensors[i].access ? operands[at++].address : (const void *)&numbers[i];
    if (tensors[i].access) status = check_alignment(call, &tensors[i], addresses[i]);
  }
  if (status) return status;
  status = oa_workspace_take(call, &workspace, NULL, "workspace", 0, "", needed, call->library->success, "the plan");
  if (status) return status;
  status = execute(call, f, names, plan, ids, addresses, count, workspace.address);
  return oa_workspace_end(call, &workspace, status);
}

int oa_graph_run(const char *function, const char *library_name, const oa_graph_names *names, const oa_object *plan,
                 const oa_graph_tensor *tensors, int count, const void *const *pointers, size_t workspace) {
  graph_functions functions;
  const char *missing = !function       ? "function"
                        : !library_name ? "library"
                        : !names        ? "names"
                        : !tensors      ? "tensors"
                        : !pointers     ? "pointers"
                                        : NULL;
  if (missing) return oa_fail_null(function ? function : "oa_graph_run", missing);
  if (count < 1 || count > MOST_TENSORS)
    return oa_fail(OA_ERROR_ARGUMENT, "%s: needs 1 to %d tensors, got %d", function, MOST_TENSORS, count);
  const oa_library *library = oa_library_named(function, library_name);
  int status = library ? find_functions(function, library, names, &functions) : OA_ERROR_ARGUMENT;
  if (status) return status;
  oa_object_use use = {"plan", NULL, plan, NULL};
  if ((status = oa_objects_take(function, library, &use, 1))) return status;
  oa_call call = {.function = function, .library = library};
  status = run(&call, &functions, names, use.state->native, tensors, count, pointers, workspace);
  oa_objects_return(&use, 1);
  return status;
}
