/* For pybind11: functions that take or return oa::Pointer<T> take and return a DevicePtr of that dtype, and failures
 * are the exceptions of offload_args.
 *
 *   #include <offload_args/pybind11.hpp>
 *   PYBIND11_MODULE(mine, m) {
 *     oa::begin(m);
 *     m.def("norm", [](oa::Pointer<const double> x) {
 *       double norm;
 *       oa::check(oa_blas_dnrm2(x.layout().rows, x, x.layout().inc, &norm));
 *       return norm;
 *     });
 *   }
 *
 * A DevicePtr of another dtype selects another overload; without such an overload, the call raises a TypeError that
 * names the dtypes. A stale DevicePtr raises StalePointerError. A returned pointer is a vector of all elements of the
 * handle. */
#ifndef OFFLOAD_ARGS_PYBIND11_HPP
#define OFFLOAD_ARGS_PYBIND11_HPP

#include "offload_args/python.h"

#include <pybind11/pybind11.h>

#include "offload_args.hpp"

namespace oa {

/* Imports offload_args, and turns oa::Error into the Python exception of its status: `except DirectionError`. Throws
 * ImportError. Call it first in PYBIND11_MODULE. */
inline void begin(pybind11::module_ &) {
  if (oa_import() < 0) throw pybind11::error_already_set();
  pybind11::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error &error) {
      oa_raise_text(error.status(), error.what());
    }
  });
}

}  // namespace oa

namespace pybind11 {
namespace detail {

template <class T>
struct type_caster<oa::Pointer<T>> {
  using Plain = std::remove_const_t<T>;
  PYBIND11_TYPE_CASTER(oa::Pointer<T>,
                       const_name("offload_args.DevicePtr[") + const_name(oa::Dtype<Plain>::text) + const_name("]"));

  bool load(handle source, bool) {
    oa_any *handle = nullptr;
    if (oa_import() < 0 || oa_python->pointer_get(source.ptr(), oa::Dtype<Plain>::value, -1, &handle) < 0) {
      if (handle) throw error_already_set(); /* the pointer is stale */
      PyErr_Clear();
      return false;
    }
    value = oa::Pointer<T>(reinterpret_cast<typename oa::Pointer<T>::Handle *>(handle));
    return true;
  }

  static handle cast(oa::Pointer<T> pointer, return_value_policy, handle) { return oa_pointer_vector(pointer.any()); }
};

}  // namespace detail
}  // namespace pybind11

#endif
