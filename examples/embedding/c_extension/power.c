/* A C extension that works on DevicePtrs of Python's region, through the capsule offload_args._C_API. */
#define PY_SSIZE_T_CLEAN
#include <offload_args/python.h>

#include <offload_args_blas.h>

static int iterate(const oa_f64 *A, oa_f64 *x, oa_f64 *y, int steps, double *eigenvalue) {
  oa_pointer_layout a = OA_SIZED(oa_pointer_layout), in = OA_SIZED(oa_pointer_layout),
                    out = OA_SIZED(oa_pointer_layout);
  OA_TRY(oa_pointer_get_layout((const oa_any *)A, &a));
  OA_TRY(oa_pointer_get_layout((const oa_any *)x, &in));
  OA_TRY(oa_pointer_get_layout((const oa_any *)y, &out));
  /* BLAS reads matrices by columns. A matrix that is stored by rows is the transpose of a matrix by columns. */
  const int trans = a.ld ? OA_BLAS_NO_TRANS : OA_BLAS_TRANS;
  const int64_t m = a.ld ? a.rows : a.columns, n = a.ld ? a.columns : a.rows, ld = a.ld ? a.ld : a.ld_by_rows;
  for (int i = 0; i < steps; i++) {
    OA_TRY(oa_blas_dgemv(trans, m, n, 1.0, A, ld, x, in.inc, 0.0, y, out.inc));
    OA_TRY(oa_blas_dnrm2(out.rows, y, out.inc, eigenvalue));
    OA_TRY(oa_blas_dcopy(out.rows, y, out.inc, x, in.inc));
    OA_TRY(oa_blas_dscal(in.rows, 1.0 / *eigenvalue, x, in.inc));
  }
  return OA_OK;
}

/* iterate(A, x, y, steps) -> eigenvalue */
static PyObject *py_iterate(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *passed[3];
  oa_f64 *A, *x, *y;
  int steps, status;
  double eigenvalue = 0;
  if (!PyArg_ParseTuple(arguments, "OOOi", &passed[0], &passed[1], &passed[2], &steps)) return NULL;
  if (!(A = oa_f64_of(passed[0])) || !(x = oa_f64_of(passed[1])) || !(y = oa_f64_of(passed[2]))) return NULL;
  Py_BEGIN_ALLOW_THREADS status = iterate(A, x, y, steps, &eigenvalue);
  Py_END_ALLOW_THREADS return status ? oa_raise(status) : PyFloat_FromDouble(eigenvalue);
}

static PyMethodDef methods[] = {{"iterate", py_iterate, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "power", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_power(void) {
  if (oa_import() < 0) return NULL;
  return PyModule_Create(&definition);
}
