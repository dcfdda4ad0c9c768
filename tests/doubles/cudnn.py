"""Writes a double of libcudnn.so.9 for the double of a GPU, in C: plans of attention by plain loops.

It has only the graph API, and computes in double precision. Like cuDNN, it takes a softmax only with the logarithm of
its sums, and refuses arrays that are less aligned than their tensors declare.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

TEXT = r"""
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"

enum { VERSION = 91900, AXES = 4, MOST_VALUES = 64, WORKSPACE = 256 };

/* An object of the graph API: the attributes that were set, by their names. */
typedef struct attribute {
  int name, type;
  int64_t count;
  unsigned char values[8 * MOST_VALUES];
  struct attribute *next;
} attribute;
typedef struct object {
  int kind;
  attribute *attributes;
  struct object *graph; /* of an engine */
} object;

/* The values of a tensor while a plan runs. */
typedef struct tensor {
  int64_t uid, shape[AXES], strides[AXES];
  double *values;
  struct tensor *next;
} tensor;

static _Thread_local char said[512];
static int refuse(const char *reason) {
  snprintf(said, sizeof said, "{\"engineId\":0}\nWarning: CUDNN_STATUS_NOT_SUPPORTED; Reason: %s\n", reason);
  return CUDNN_STATUS_NOT_SUPPORTED;
}

int gpu_double_captures(const void *stream, int (*run)(const void *, void *), const void *arguments, size_t nbytes);
int gpu_double_uses(const void *stream, const void *memory, size_t nbytes);

static int is_array(const void *pointer) { return kind_of(pointer) != 0; }

/* -- functions that every use of the library calls -- */

size_t cudnnGetVersion(void) { return VERSION; }
int cudnnGetProperty(int type, int *value) {
  *value = type == 0 ? VERSION / 10000 : type == 1 ? VERSION / 100 % 100 : VERSION % 100;
  return 0;
}
const char *cudnnGetErrorString(int status) { return status ? "an error of the double" : "CUDNN_STATUS_SUCCESS"; }
void cudnnGetLastErrorString(char *text, size_t size) {
  snprintf(text, size, "%s", said);
  said[0] = 0;
}
int cudnnCreate(void **handle) { return (*handle = calloc(1, sizeof(void *))) ? 0 : CUDNN_STATUS_ALLOC_FAILED; }
int cudnnDestroy(void *handle) { return free(handle), 0; }
int cudnnSetStream(void **handle, void *stream) { return *handle = stream, 0; }
int cudnnGetStream(void **handle, void **stream) { return *stream = *handle, 0; }

/* -- objects -- */

static const attribute *find(const object *descriptor, int name) {
  for (const attribute *a = descriptor->attributes; a; a = a->next)
    if (a->name == name) return a;
  return NULL;
}
static int64_t integer(const object *descriptor, int name, int otherwise) {
  const attribute *a = find(descriptor, name);
  if (!a) return otherwise;
  if (a->type == CUDNN_TYPE_INT64) return *(const int64_t *)a->values;
  return a->type == CUDNN_TYPE_BOOLEAN ? *a->values : *(const int32_t *)a->values;
}
static object *other(const object *descriptor, int name) {
  const attribute *a = find(descriptor, name);
  return a ? *(object *const *)a->values : NULL;
}
static size_t width(int type) {
  switch (type) {
  case CUDNN_TYPE_BOOLEAN: case CUDNN_TYPE_CHAR: return 1;
  case CUDNN_TYPE_INT64: case CUDNN_TYPE_DOUBLE: case CUDNN_TYPE_HANDLE: case CUDNN_TYPE_VOID_PTR:
  case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
  default: return 4;
  }
}

int cudnnBackendCreateDescriptor(int kind, void **created) {
  object *descriptor = calloc(1, sizeof *descriptor);
  if (!descriptor) return CUDNN_STATUS_ALLOC_FAILED;
  descriptor->kind = kind;
  *created = descriptor;
  return 0;
}
int cudnnBackendDestroyDescriptor(object *descriptor) {
  for (attribute *a = descriptor->attributes, *next; a; a = next) next = a->next, free(a);
  return free(descriptor), 0;
}
int cudnnBackendSetAttribute(object *descriptor, int name, int type, int64_t count, const void *values) {
  if (count < 1 || count > MOST_VALUES || !values || find(descriptor, name)) return CUDNN_STATUS_BAD_PARAM;
  attribute *a = calloc(1, sizeof *a);
  if (!a) return CUDNN_STATUS_ALLOC_FAILED;
  *a = (attribute){.name = name, .type = type, .count = count, .next = descriptor->attributes};
  memcpy(a->values, values, (size_t)count * width(type));
  descriptor->attributes = a;
  return 0;
}

/* Returns whether cuDNN fuses the graph's operations. */
static int is_known(const object *graph) {
  const attribute *all = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  int products = 0, reductions = 0, logarithms = 0;
  for (int64_t i = 0; i < all->count; i++) {
    const object *descriptor = ((object *const *)all->values)[i];
    const object *detail = other(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    products += descriptor->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    reductions += descriptor->kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR;
    logarithms += detail && integer(detail, CUDNN_ATTR_POINTWISE_MODE, 0) == CUDNN_POINTWISE_LOG;
  }
  if (products == 2 && reductions == 2 && logarithms == 1) return 1;
  refuse("the double knows attention alone, with the logarithm of its sums");
  return 0;
}

int cudnnBackendFinalize(object *descriptor) {
  if (descriptor->kind != CUDNN_BACKEND_TENSOR_DESCRIPTOR) return 0;
  const attribute *shape = find(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS);
  const attribute *strides = find(descriptor, CUDNN_ATTR_TENSOR_STRIDES);
  return shape && strides && shape->count == strides->count && shape->count <= AXES ? 0 : CUDNN_STATUS_BAD_PARAM;
}
int cudnnBackendGetAttribute(object *descriptor, int name, int type, int64_t most, int64_t *count, void *values) {
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR && most > 0) {
    object *graph = other(descriptor, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), *engine = *(object **)values;
    *count = is_known(graph);
    if (*count) engine->graph = graph;
    return 0;
  }
  if (name != CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) return refuse("the double says no other attribute");
  *(int64_t *)values = WORKSPACE;
  *count = 1;
  return 0;
}

/* -- numbers -- */

static double load(const void *address, int64_t at, int dtype) {
  uint32_t bits;
  float single;
  switch (dtype) {
  case CUDNN_DATA_HALF: return (double)((const _Float16 *)address)[at];
  case CUDNN_DATA_INT32: return ((const int32_t *)address)[at];
  case CUDNN_DATA_BFLOAT16: bits = (uint32_t)((const uint16_t *)address)[at] << 16;
    memcpy(&single, &bits, sizeof single);
    return single;
  default: return ((const float *)address)[at];
  }
}
static void store(void *address, int64_t at, int dtype, double value) {
  const float single = (float)value;
  uint32_t bits;
  memcpy(&bits, &single, sizeof bits);
  switch (dtype) {
  case CUDNN_DATA_HALF: ((_Float16 *)address)[at] = (_Float16)value; break;
  case CUDNN_DATA_BFLOAT16: ((uint16_t *)address)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); break;
  default: ((float *)address)[at] = single;
  }
}

static int64_t size_of(const tensor *t) { return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]; }
static double *at(const tensor *t, int64_t i, int64_t j, int64_t k, int64_t l) {
  const int64_t places[] = {i, j, k, l};
  int64_t place = 0;
  for (int axis = 0; axis < AXES; axis++) /* axes of 1 repeat */
    place = place * t->shape[axis] + (t->shape[axis] == 1 ? 0 : places[axis]);
  return &t->values[place];
}
#define EACH(t)                                                                                                        \
  for (int64_t i = 0; i < (t)->shape[0]; i++)                                                                          \
    for (int64_t j = 0; j < (t)->shape[1]; j++)                                                                        \
      for (int64_t k = 0; k < (t)->shape[2]; k++)                                                                      \
        for (int64_t l = 0; l < (t)->shape[3]; l++)

/* -- execution -- */

typedef struct run {
  const object *plan;
  int64_t count, ids[MOST_VALUES];
  void *addresses[MOST_VALUES];
  int32_t numbers[MOST_VALUES]; /* of the host, read when the plan is executed */
  void *workspace;
  tensor *tensors;
  int status;
} run;

static void *address_of(run *r, int64_t uid) {
  for (int64_t i = 0; i < r->count; i++)
    if (r->ids[i] == uid) return r->addresses[i] ? r->addresses[i] : &r->numbers[i];
  return NULL;
}

/* Returns a tensor's values: its operation's results, or the contents of its memory. */
static tensor *tensor_of(run *r, const object *descriptor) {
  const int64_t uid = integer(descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
  for (tensor *t = r->tensors; t; t = t->next)
    if (t->uid == uid) return t;
  const attribute *shape = find(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS);
  const attribute *strides = find(descriptor, CUDNN_ATTR_TENSOR_STRIDES);
  tensor *t = calloc(1, sizeof *t);
  t->uid = uid;
  for (int axis = 0; axis < AXES; axis++) {
    t->shape[axis] = axis < shape->count ? ((const int64_t *)shape->values)[axis] : 1;
    t->strides[axis] = axis < shape->count ? ((const int64_t *)strides->values)[axis] : 1;
  }
  t->values = calloc((size_t)size_of(t), sizeof(double));
  t->next = r->tensors;
  r->tensors = t;
  if (integer(descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0)) return t;
  const void *address = address_of(r, uid);
  const int on_host = (int)integer(descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0);
  if (!address || is_array(address) == on_host ||
      (!on_host && (uintptr_t)address % (uintptr_t)integer(descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1))) {
    r->status = CUDNN_STATUS_BAD_PARAM;
    return t;
  }
  const int dtype = (int)integer(descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, 0);
  EACH(t)
  *at(t, i, j, k, l) =
      load(address, i * t->strides[0] + j * t->strides[1] + k * t->strides[2] + l * t->strides[3], dtype);
  return t;
}

static void write_back(run *r, const object *descriptor, const tensor *t) {
  if (r->status || integer(descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0)) return;
  void *address = address_of(r, t->uid);
  const int dtype = (int)integer(descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, 0);
  EACH(t)
  store(address, i * t->strides[0] + j * t->strides[1] + k * t->strides[2] + l * t->strides[3], dtype,
        *at(t, i, j, k, l));
}

static void multiply(run *r, const object *descriptor) {
  const object *of_y = other(descriptor, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
  const tensor *a = tensor_of(r, other(descriptor, CUDNN_ATTR_OPERATION_MATMUL_ADESC));
  const tensor *b = tensor_of(r, other(descriptor, CUDNN_ATTR_OPERATION_MATMUL_BDESC)), *y = tensor_of(r, of_y);
  const object *of_limits[] = {other(descriptor, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC),
                               other(descriptor, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC),
                               other(descriptor, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC)};
  const tensor *counts[3];
  for (int which = 0; which < 3; which++) counts[which] = of_limits[which] ? tensor_of(r, of_limits[which]) : NULL;
  const int64_t shared = a->shape[1] / b->shape[1];
  EACH(y) {
    int64_t limits[] = {y->shape[2], y->shape[3], a->shape[3]};
    for (int which = 0; which < 3; which++)
      if (counts[which]) limits[which] = (int64_t)*at(counts[which], i, 0, 0, 0);
    double sum = 0;
    for (int64_t step = 0; k < limits[0] && l < limits[1] && step < limits[2]; step++)
      sum += *at(a, i, j, k, step) * *at(b, i, j / shared, step, l);
    *at(y, i, j, k, l) = sum;
  }
  write_back(r, of_y, y);
}

static double pointwise_of(run *r, int mode, double x, double b, double chosen) {
  switch (mode) {
  case CUDNN_POINTWISE_ADD: return x + b;
  case CUDNN_POINTWISE_SUB: return x - b;
  case CUDNN_POINTWISE_MUL: return x * b;
  case CUDNN_POINTWISE_DIV: return x / b;
  case CUDNN_POINTWISE_EXP: return exp(x);
  case CUDNN_POINTWISE_LOG: return log(x);
  case CUDNN_POINTWISE_CMP_LT: return x < b;
  case CUDNN_POINTWISE_CMP_GE: return x >= b;
  case CUDNN_POINTWISE_LOGICAL_AND: return x && b;
  case CUDNN_POINTWISE_BINARY_SELECT: return chosen ? x : b;
  default: r->status = refuse("the double does not know the operation"); return 0;
  }
}

static void pointwise(run *r, const object *descriptor) {
  const object *detail = other(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const int mode = (int)integer(detail, CUDNN_ATTR_POINTWISE_MODE, 0);
  const object *of_b = other(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  const object *of_t = other(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
  const object *of_y = other(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  const tensor *x = tensor_of(r, other(descriptor, CUDNN_ATTR_OPERATION_POINTWISE_XDESC)), *y = tensor_of(r, of_y);
  const tensor *b = of_b ? tensor_of(r, of_b) : x, *t = of_t ? tensor_of(r, of_t) : x;
  EACH(y) {
    const int64_t places[] = {i, j, k, l};
    *at(y, i, j, k, l) = mode == CUDNN_POINTWISE_GEN_INDEX
                             ? (double)places[integer(detail, CUDNN_ATTR_POINTWISE_AXIS, 0)]
                             : pointwise_of(r, mode, *at(x, i, j, k, l), *at(b, i, j, k, l), *at(t, i, j, k, l));
  }
  write_back(r, of_y, y);
}

static void reduce(run *r, const object *descriptor) {
  const object *of_y = other(descriptor, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
  const object *detail = other(descriptor, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
  const int is_max = integer(detail, CUDNN_ATTR_REDUCTION_OPERATOR, 0) == CUDNN_REDUCE_TENSOR_MAX;
  const tensor *x = tensor_of(r, other(descriptor, CUDNN_ATTR_OPERATION_REDUCTION_XDESC)), *y = tensor_of(r, of_y);
  EACH(y) {
    double reduced = is_max ? -INFINITY : 0;
    for (int64_t step = 0; step < x->shape[3]; step++) {
      const double value = *at(x, i, j, k, step);
      reduced = is_max ? fmax(reduced, value) : reduced + value;
    }
    *at(y, i, j, k, l) = reduced;
  }
  write_back(r, of_y, y);
}

static int execute(const void *arguments, void *stream) {
  run r = *(const run *)arguments;
  const object *graph = other(r.plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->graph;
  const attribute *all = find(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  (void)stream;
  if (kind_of(r.workspace) != 2) r.status = CUDNN_STATUS_BAD_PARAM;
  else memset(r.workspace, 0x5a, WORKSPACE);
  for (int64_t i = 0; i < all->count && !r.status; i++) {
    const object *descriptor = ((object *const *)all->values)[i];
    if (descriptor->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) multiply(&r, descriptor);
    else if (descriptor->kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) reduce(&r, descriptor);
    else pointwise(&r, descriptor);
  }
  for (tensor *t = r.tensors, *next; t; t = next) next = t->next, free(t->values), free(t);
  return r.status;
}
int cudnnBackendExecute(void **handle, const object *plan, const object *pack) {
  const attribute *ids = find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const attribute *pointers = find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  run r = {.plan = plan, .count = ids->count};
  r.workspace = other(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (!handle || !gpu_double_uses(*handle, r.workspace, WORKSPACE)) return CUDNN_STATUS_BAD_PARAM;
  memcpy(r.ids, ids->values, (size_t)r.count * sizeof *r.ids);
  for (int64_t i = 0; i < r.count; i++) {
    void *address = ((void *const *)pointers->values)[i];
    if (is_array(address)) r.addresses[i] = address;
    else memcpy(&r.numbers[i], address, sizeof r.numbers[i]);
  }
  return gpu_double_captures(*handle, execute, &r, sizeof r) ? 0 : execute(&r, *handle);
}
"""


def main() -> None:
    api = json.loads((ROOT / "bindings" / "api" / "cudnn.json").read_text())
    names = set(re.findall(r"CUDNN_\w+", TEXT))
    used = {name: value for values in api["enums"].values() for name, value in values.items() if name in names}
    sys.stdout.write("".join(f"#define {name} {value}\n" for name, value in used.items()) + TEXT)


if __name__ == "__main__":
    main()
