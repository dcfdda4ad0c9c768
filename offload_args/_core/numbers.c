/* The core's numbers for Python, read from the headers, so that no number exists twice. */
#include "module.h"

#include "offload_args/accelerate.h"
#include "offload_args/launch.h"
#include "offload_args/shim.h"

static const struct {
  const char *name;
  long value;
} numbers[] = {
#define NUMBER(name) {#name, name}
    NUMBER(OA_BY_USE),
    NUMBER(OA_IN),
    NUMBER(OA_OUT),
    NUMBER(OA_INOUT),
    NUMBER(OA_SCRATCH),
    NUMBER(OA_READ_ONLY),
    NUMBER(OA_BORROWED),
    NUMBER(OA_RESIDENT),
    NUMBER(OA_OWNED),
    NUMBER(OA_REUSED),
    NUMBER(OA_COMMIT),
    NUMBER(OA_DISCARD),
    NUMBER(OA_KEEP),
    NUMBER(OA_RESIDENCY_OFF),
    NUMBER(OA_RESIDENCY_EXPLICIT),
    NUMBER(OA_RESIDENCY_AUTO),
    NUMBER(OA_DEVICE_GPU),
    NUMBER(OA_DEVICE_HOST_CALLS),
    NUMBER(OA_DEVICE_SIMULATED),
    NUMBER(OA_TRACE_ON),
    NUMBER(OA_TRACE_CHECKSUMS),
    NUMBER(OA_TRACE_UNDER_WAY),
    NUMBER(OA_READ),
    NUMBER(OA_OVERWRITE),
    NUMBER(OA_READ_WRITE),
    NUMBER(OA_MOST_PARAMETERS),
    NUMBER(OA_MOST_PARAMETER_BYTES),
    NUMBER(OA_LEAST_POLAR),
    NUMBER(OA_MOST_POLAR_SINGLE),
#define OA_DTYPE(name, type, nbytes, kind, text) NUMBER(OA_##name),
#include "offload_args/dtypes.def"
#undef OA_DTYPE
#define OA_STATUS(name) NUMBER(OA_##name),
#include "offload_args/statuses.def"
#undef OA_STATUS
#define OA_TRACE_KIND(name, text) NUMBER(OA_TRACE_##name),
#include "offload_args/trace_kinds.def"
#undef OA_TRACE_KIND
#undef NUMBER
};

/* (NumPy's name, the name of the C type without "oa_", bytes, NumPy's kind or "") for each dtype, by its number. */
static PyObject *dtypes(void) {
  static const struct {
    const char *text, *type;
    int nbytes;
    char kind[2];
  } rows[] = {
#define OA_DTYPE(name, type, nbytes, kind, text) {text, #type, nbytes, {kind, 0}},
#include "offload_args/dtypes.def"
#undef OA_DTYPE
  };
  PyObject *table = PyTuple_New(OA_DTYPE_COUNT);
  for (int i = 0; table != NULL && i < OA_DTYPE_COUNT; i++) {
    PyObject *row = Py_BuildValue("(ssis)", rows[i].text, rows[i].type, rows[i].nbytes, rows[i].kind);
    if (row == NULL || PyTuple_SetItem(table, i, row) < 0) Py_CLEAR(table);
  }
  return table;
}

static PyObject *tuple_of_texts(const char *const *texts, int count) {
  PyObject *table = PyTuple_New(count);
  for (int i = 0; table != NULL && i < count; i++) {
    PyObject *text = PyUnicode_FromString(texts[i]);
    if (text == NULL || PyTuple_SetItem(table, i, text) < 0) Py_CLEAR(table);
  }
  return table;
}

/* Takes over the reference to value, which may be NULL after a failure. */
static int add(PyObject *module, const char *name, PyObject *value) {
  const int status = value == NULL ? -1 : PyModule_AddObjectRef(module, name, value);
  Py_XDECREF(value);
  return status;
}

int add_numbers(PyObject *module) {
  static const char *const statuses[] = {
#define OA_STATUS(name) "OA_" #name,
#include "offload_args/statuses.def"
#undef OA_STATUS
  };
  static const char *const trace_kinds[] = {
      "",
#define OA_TRACE_KIND(name, text) text,
#include "offload_args/trace_kinds.def"
#undef OA_TRACE_KIND
  };
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (PyModule_AddIntConstant(module, numbers[i].name, numbers[i].value) < 0) return -1;
  if (add(module, "DTYPES", dtypes()) < 0) return -1;
  if (add(module, "STATUSES", tuple_of_texts(statuses, OA_STATUS_COUNT)) < 0) return -1;
  if (add(module, "TRACE_KINDS", tuple_of_texts(trace_kinds, OA_TRACE_KIND_COUNT)) < 0) return -1;
  return add(module, "RESIDENCY_MODES", tuple_of_texts(residency_modes, OA_RESIDENCY_AUTO + 1));
}
