/* Arguments that are lists of device pointers or of numbers. */
#include "module.h"

/* Returns a new list with room for that many bytes, the first of *lists; NULL with an exception. */
static List *add_list(List **lists, size_t bytes, oa_value *value) {
  List *list = PyMem_Malloc(sizeof *list + bytes);
  if (list == NULL) return (List *)PyErr_NoMemory();
  *list = (List){.next = *lists};
  value->pointer = &list->pointers;
  return *lists = list;
}

/* Reads one pointer whose first axis counts the arrays. */
static int read_axis(const Pointer *pointer, List **lists, oa_value *value) {
  const int64_t itemsize = oa_itemsize(pointer->dtype);
  if (PyTuple_Size(pointer->shape) < 2) return -1;
  const int64_t count = PyLong_AsLongLong(PyTuple_GetItem(pointer->shape, 0));
  const int64_t step = PyLong_AsLongLong(PyTuple_GetItem(pointer->strides, 0));
  if (count > 1 && (step < 0 || step % itemsize != 0)) return -1;
  List *list = add_list(lists, 0, value);
  if (list == NULL) return -1;
  list->pointers =
      (oa_pointer_list){.first = pointer->handle, .stride = count > 1 ? step / itemsize : 0, .count = count};
  return 0;
}

int read_pointers(PyObject *object, int dtype, List **lists, oa_value *value) {
  if (PyObject_TypeCheck(object, pointer_type)) {
    const Pointer *pointer = (const Pointer *)object;
    return pointer->dtype == dtype ? read_axis(pointer, lists, value) : -1;
  }
  if (!PyList_Check(object) && !PyTuple_Check(object)) return -1;
  PyObject *objects = PySequence_Tuple(object); /* the caller's own sequence may change meanwhile */
  const Py_ssize_t count = objects == NULL ? 0 : PyTuple_Size(objects);
  List *list = objects == NULL ? NULL : add_list(lists, (size_t)count * sizeof *list->at, value);
  if (list == NULL) {
    Py_XDECREF(objects);
    return -1;
  }
  list->objects = objects;
  list->pointers = (oa_pointer_list){.at = list->at, .count = count};
  for (Py_ssize_t i = 0; i < count; i++) {
    PyObject *item = PyTuple_GetItem(objects, i);
    if (!PyObject_TypeCheck(item, pointer_type) || ((const Pointer *)item)->dtype != dtype) return -1;
    list->at[i] = ((const Pointer *)item)->handle;
  }
  return 0;
}

int read_list(PyObject *object, size_t itemsize, int (*read_one)(PyObject *object, int dtype, void *memory), int dtype,
              List **lists, oa_value *value) {
  if (PyObject_TypeCheck(object, pointer_type) || PyUnicode_Check(object) || PyBytes_Check(object)) return -1;
  PyObject *objects = PySequence_Tuple(object);
  const Py_ssize_t count = objects == NULL ? 0 : PyTuple_Size(objects);
  List *list = objects == NULL ? NULL : add_list(lists, (size_t)count * itemsize, value);
  int status = list == NULL ? -1 : 0;
  if (list != NULL) list->numbers = (oa_number_list){.at = list->at, .count = count, .itemsize = itemsize};
  for (Py_ssize_t i = 0; status == 0 && i < count; i++)
    status = read_one(PyTuple_GetItem(objects, i), dtype, (char *)list->at + (size_t)i * itemsize);
  Py_XDECREF(objects);
  return status;
}

void release_lists(List *lists) {
  while (lists != NULL) {
    List *next = lists->next;
    Py_XDECREF(lists->objects);
    PyMem_Free(lists);
    lists = next;
  }
}
