// An extension by pybind11, whose arguments are typed DevicePtrs of Python's region.
#include <offload_args/pybind11.hpp>

#include <offload_args_blas.h>

static double iterate(std::int64_t n, oa::Pointer<const double> A, oa::Pointer<double> x, oa::Pointer<double> y,
                      int steps) {
  pybind11::gil_scoped_release release;
  double eigenvalue = 0;
  for (int i = 0; i < steps; i++) {
    oa::check(oa_blas_dsymv(OA_BLAS_LOWER, n, 1.0, A, n, x, 1, 0.0, y, 1));
    oa::check(oa_blas_dnrm2(n, y, 1, &eigenvalue));
    oa::check(oa_blas_dcopy(n, y, 1, x, 1));
    oa::check(oa_blas_dscal(n, 1 / eigenvalue, x, 1));
  }
  return eigenvalue;
}

PYBIND11_MODULE(power, m) {
  if (oa_import() < 0) throw pybind11::error_already_set();
  pybind11::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const oa::Error &error) {
      oa_raise(error.status());
    }
  });
  m.def("iterate", iterate);
  m.def("whole", [](oa::Pointer<double> x) { return x; });  // a DevicePtr to all elements
}
