/* For nanobind: functions that take or return oa::Pointer<T> take and return a DevicePtr of that dtype, and failures
 * are the exceptions of offload_args.
 *
 *   #include <offload_args/nanobind.hpp>
 *   NB_MODULE(mine, m) {
 *     oa::begin(m);
 *     m.def("norm", [](oa::Pointer<const double> x) {
 *       double norm;
 *       oa::check(oa_blas_dnrm2(x.layout().rows, x, x.layout().inc, &norm));
 *       return norm;
 *     });
 *   }
 *
 * A DevicePtr of another dtype selects another overload; without such an overload, the call raises a TypeError that
 * names the needed dtype. A stale DevicePtr is accepted: each call on it returns OA_ERROR_STALE. A returned pointer is
 * a vector of all elements of the handle. */
#ifndef OFFLOAD_ARGS_NANOBIND_HPP
#define OFFLOAD_ARGS_NANOBIND_HPP

#include "offload_args/python.h"

#include <nanobind/nanobind.h>

#include "offload_args.hpp"

namespace oa {

/* Imports offload_args, and turns oa::Error into the Python exception of its status: `except DirectionError`. Throws
 * ImportError. Call it first in NB_MODULE. */
inline void begin(nanobind::module_ &) {
  if (oa_import() < 0) throw nanobind::python_error();
  nanobind::register_exception_translator([](const std::exception_ptr &thrown, void *) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error &error) {
      oa_raise_text(error.status(), error.what());
    }
  });
}

}  // namespace oa

namespace nanobind {
namespace detail {

template <class T>
struct type_caster<oa::Pointer<T>> {
  using Plain = std::remove_const_t<T>;
  NB_TYPE_CASTER(oa::Pointer<T>,
                 const_name("offload_args.DevicePtr[") + const_name(oa::Dtype<Plain>::text) + const_name("]"))

  bool from_python(handle source, uint8_t, cleanup_list *) noexcept {
    oa_any *handle = nullptr;
    if (oa_import() < 0 || oa_python->pointer_get(source.ptr(), oa::Dtype<Plain>::value, -1, &handle) < 0)
      PyErr_Clear();
    value = oa::Pointer<T>(reinterpret_cast<typename oa::Pointer<T>::Handle *>(handle));
    return handle != nullptr;
  }

  static handle from_cpp(oa::Pointer<T> pointer, rv_policy, cleanup_list *) noexcept {
    return oa_pointer_vector(pointer.any());
  }
};

}  // namespace detail
}  // namespace nanobind

#endif
