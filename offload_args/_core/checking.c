/* Blocks in which calls are only checked. No signal handler runs between the switch of the mode and the block. */
#include "function.h"

typedef struct {
  PyObject_HEAD int64_t outer;
} Checking;

static PyObject *enter(PyObject *self, PyObject *Py_UNUSED(nothing)) {
  ((Checking *)self)->outer = oa_checks_begin();
  Py_RETURN_NONE;
}

/* (type, exception, traceback) -> True if the exception only says that the call was checked */
static PyObject *leave(PyObject *self, PyObject *arguments) {
  PyObject *type, *exception, *traceback;
  const int checked = oa_checks_end(((Checking *)self)->outer);
  if (!PyArg_ParseTuple(arguments, "OOO", &type, &exception, &traceback)) return NULL;
  if (!checked || type == Py_None) Py_RETURN_FALSE;
  return PyBool_FromLong(PyErr_GivenExceptionMatches(type, python.argument_error));
}

static PyMethodDef methods[] = {
    {"__enter__", enter, METH_NOARGS, NULL},
    {"__exit__", leave, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_methods, methods},
    {Py_tp_doc, "A block whose first call is checked, and not made."},
    {0, NULL},
};

static PyType_Spec spec = {
    .name = "offload_args._core.Checking",
    .basicsize = sizeof(Checking),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int add_checking(PyObject *module) {
  PyObject *type = PyType_FromSpec(&spec);
  return type == NULL ? -1 : PyModule_AddObject(module, "Checking", type);
}
