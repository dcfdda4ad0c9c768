/* A C extension that works on DevicePtrs of Python's region, through the capsule offload_args._C_API. */
#define PY_SSIZE_T_CLEAN
#include <offload_args/python.h>

#include <offload_args_blas.h>

static int iterate(int64_t n, const oa_f64 *A, oa_f64 *x, oa_f64 *y, int steps, double *eigenvalue) {
  for (int i = 0; i < steps; i++) {
    OA_TRY(oa_blas_dsymv(OA_BLAS_LOWER, n, 1.0, A, n, x, 1, 0.0, y, 1));
    OA_TRY(oa_blas_dnrm2(n, y, 1, eigenvalue));
    OA_TRY(oa_blas_dcopy(n, y, 1, x, 1));
    OA_TRY(oa_blas_dscal(n, 1.0 / *eigenvalue, x, 1));
  }
  return OA_OK;
}

/* iterate(n, A, x, y, steps) -> eigenvalue */
static PyObject *py_iterate(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *given[3];
  oa_f64 *A, *x, *y;
  long long n;
  int steps, status;
  double eigenvalue = 0;
  if (!PyArg_ParseTuple(arguments, "LOOOi", &n, &given[0], &given[1], &given[2], &steps)) return NULL;
  if (!(A = oa_f64_of(given[0])) || !(x = oa_f64_of(given[1])) || !(y = oa_f64_of(given[2]))) return NULL;
  Py_BEGIN_ALLOW_THREADS status = iterate(n, A, x, y, steps, &eigenvalue);
  Py_END_ALLOW_THREADS return status ? oa_raise(status) : PyFloat_FromDouble(eigenvalue);
}

static PyMethodDef methods[] = {{"iterate", py_iterate, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "power", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_power(void) {
  if (oa_import() < 0) return NULL;
  return PyModule_Create(&definition);
}
