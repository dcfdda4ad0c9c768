/* The results of vendor functions, as Python objects. */
#include "function.h"

PyObject *function_number(const Parameter *parameter, const void *memory) {
  const float *single = memory;
  const double *real = memory;
  if (parameter->is_index) return PyLong_FromLongLong(*(const int64_t *)memory);
  switch (parameter->dtype) {
    case OA_F32:
      return PyFloat_FromDouble((double)single[0]);
    case OA_F64:
      return PyFloat_FromDouble(real[0]);
    case OA_C64:
      return PyComplex_FromDoubles((double)single[0], (double)single[1]);
    case OA_C128:
      return PyComplex_FromDoubles(real[0], real[1]);
    case OA_F16:
      return PyFloat_FromDouble(oa_f16_to(*(const uint16_t *)memory));
    case OA_BF16:
      return PyFloat_FromDouble(oa_bf16_to(*(const uint16_t *)memory));
    case OA_I8:
      return PyLong_FromLong(*(const int8_t *)memory);
    case OA_U8:
      return PyLong_FromLong(*(const uint8_t *)memory);
    case OA_I16:
      return PyLong_FromLong(*(const int16_t *)memory);
    case OA_U16:
      return PyLong_FromLong(*(const uint16_t *)memory);
    case OA_I32:
      return PyLong_FromLong(*(const int32_t *)memory);
    case OA_U32:
      return PyLong_FromUnsignedLong(*(const uint32_t *)memory);
    case OA_I64:
      return PyLong_FromLongLong(*(const int64_t *)memory);
    case OA_U64:
      return PyLong_FromUnsignedLongLong(*(const uint64_t *)memory);
    default:
      return PyErr_Format(PyExc_NotImplementedError, "%U: a result of dtype %s can't become a number of Python's",
                          parameter->name, oa_dtype_name(parameter->dtype));
  }
}

static PyObject *numbers_from(const Parameter *parameter, const unsigned char *memory) {
  const int64_t itemsize = oa_itemsize(parameter->dtype);
  PyObject *tuple = PyTuple_New(parameter->elements);
  for (int i = 0; tuple != NULL && i < parameter->elements; i++) {
    PyObject *number = function_number(parameter, memory + i * itemsize);
    if (number == NULL)
      Py_CLEAR(tuple);
    else
      PyTuple_SetItem(tuple, i, number);
  }
  return tuple;
}

PyObject *function_outputs(const Function *function, const Parameter *parameters, const oa_value *values) {
  PyObject *list = PyList_New(0);
  for (int i = 0; list != NULL && i < function->count; i++) {
    const Parameter *parameter = &parameters[i];
    if (parameter->kind != UPDATE && parameter->kind != OUTPUT) continue;
    PyObject *number = parameter->elements == 1 ? function_number(parameter, values[i].bytes)
                                                : numbers_from(parameter, values[i].pointer);
    if (number == NULL || PyList_Append(list, number) < 0) Py_CLEAR(list);
    Py_XDECREF(number);
  }
  PyObject *tuple = list == NULL ? NULL : PyList_AsTuple(list);
  Py_XDECREF(list);
  return tuple;
}
