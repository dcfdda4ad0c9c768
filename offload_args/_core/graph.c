/* Plans of a graph API: see offload_args/graph.h. */
#include "function.h"

#include "offload_args/graph.h"

enum { MOST_TENSORS = 32 };

/* Reads a tensor's facts: (name, uid, dtype, access, elements, span, line, step, number, alignment). Returns 0, or -1
 * with an exception. */
static int read_tensor(PyObject *facts, oa_graph_tensor *tensor) {
  return PyArg_ParseTuple(facts, "sLiiLLLLdi", &tensor->name, &tensor->uid, &tensor->dtype, &tensor->access,
                          &tensor->elements, &tensor->span, &tensor->line, &tensor->step, &tensor->number,
                          &tensor->alignment)
             ? 0
             : -1;
}

/* (function, library, names, plan, tensors, pointers, workspace): executes a plan. names: a tuple as oa_graph_names;
 * tensors: a tuple of facts; pointers: of the device tensors */
static PyObject *graph_run(PyObject *Py_UNUSED(module), PyObject *arguments) {
  const char *function, *library;
  PyObject *names, *plan, *facts, *pointers;
  unsigned long long workspace;
  oa_graph_names n;
  oa_graph_tensor tensors[MOST_TENSORS];
  const void *handles[MOST_TENSORS];
  if (!PyArg_ParseTuple(arguments, "ssO!OO!O!K", &function, &library, &PyTuple_Type, &names, &plan, &PyTuple_Type,
                        &facts, &PyTuple_Type, &pointers, &workspace) ||
      !PyArg_ParseTuple(names, "sssssiiiiii", &n.create, &n.set, &n.finalize, &n.execute, &n.destroy, &n.pack, &n.ids,
                        &n.pointers, &n.workspace, &n.type_of_ids, &n.type_of_pointers))
    return NULL;
  const Object *object = object_from(plan);
  const Py_ssize_t count = PyTuple_Size(facts), pointer_count = PyTuple_Size(pointers);
  if (object == NULL || count > MOST_TENSORS || pointer_count > count)
    return PyErr_Format(PyExc_TypeError, "%s: needs a plan, and at most %d tensors", function, MOST_TENSORS);
  Py_ssize_t needed = 0;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (read_tensor(PyTuple_GetItem(facts, i), &tensors[i]) < 0) return NULL;
    needed += tensors[i].access != 0;
  }
  if (pointer_count != needed)
    return PyErr_Format(PyExc_TypeError, "%s: needs %zd pointers, got %zd", function, needed, pointer_count);
  for (Py_ssize_t i = 0; i < pointer_count; i++) {
    const Pointer *pointer = as_pointer(PyTuple_GetItem(pointers, i));
    if (pointer == NULL) return NULL;
    handles[i] = pointer->handle;
  }
  int status;
  Py_BEGIN_ALLOW_THREADS status =
      oa_graph_run(function, library, &n, object->handle, tensors, (int)count, handles, (size_t)workspace);
  Py_END_ALLOW_THREADS if (status != OA_OK) return fail(status);
  Py_RETURN_NONE;
}

static PyMethodDef graph_functions[] = {{"graph_run", graph_run, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

int add_graph(PyObject *module) { return PyModule_AddFunctions(module, graph_functions); }
