// An extension by nanobind, whose arguments are typed DevicePtrs of Python's region.
#include <offload_args/nanobind.hpp>

#include <offload_args_blas.h>

static double iterate(oa::Pointer<const double> A, oa::Pointer<double> x, oa::Pointer<double> y, int steps) {
  nanobind::gil_scoped_release release;
  const oa_pointer_layout a = A.layout(), in = x.layout(), out = y.layout();
  // BLAS reads matrices by columns. A matrix that is stored by rows is the transpose of a matrix by columns.
  const int trans = a.ld ? OA_BLAS_NO_TRANS : OA_BLAS_TRANS;
  const std::int64_t m = a.ld ? a.rows : a.columns, n = a.ld ? a.columns : a.rows, ld = a.ld ? a.ld : a.ld_by_rows;
  double eigenvalue = 0;
  for (int i = 0; i < steps; i++) {
    oa::check(oa_blas_dgemv(trans, m, n, 1.0, A, ld, x, in.inc, 0.0, y, out.inc));
    oa::check(oa_blas_dnrm2(out.rows, y, out.inc, &eigenvalue));
    oa::check(oa_blas_dcopy(out.rows, y, out.inc, x, in.inc));
    oa::check(oa_blas_dscal(in.rows, 1 / eigenvalue, x, in.inc));
  }
  return eigenvalue;
}

NB_MODULE(power, m) {
  oa::begin(m);
  m.def("iterate", iterate);
  m.def("whole", [](oa::Pointer<double> x) { return x; });  // a DevicePtr to all elements
}
