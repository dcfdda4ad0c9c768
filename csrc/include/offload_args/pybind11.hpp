/* For pybind11: functions that take or return oa::Pointer<T> take and return a DevicePtr of that dtype.
 *
 *   #include <offload_args/pybind11.hpp>
 *   PYBIND11_MODULE(mine, m) {
 *     if (oa_import() < 0) throw pybind11::error_already_set();
 *     m.def("norm", [](std::int64_t n, oa::Pointer<const double> x) { ... });
 *   }
 *
 * A DevicePtr of another dtype is another overload's, and otherwise a TypeError. One that is stale raises
 * StalePointerError. A returned pointer is a vector of all elements that the handle has. */
#ifndef OFFLOAD_ARGS_PYBIND11_HPP
#define OFFLOAD_ARGS_PYBIND11_HPP

#include "offload_args/python.h"

#include <pybind11/pybind11.h>

#include "offload_args.hpp"

namespace pybind11 {
namespace detail {

template <class T>
struct type_caster<oa::Pointer<T>> {
  using Plain = std::remove_const_t<T>;
  PYBIND11_TYPE_CASTER(oa::Pointer<T>, const_name("offload_args.DevicePtr"));

  bool load(handle source, bool) {
    oa_any *found = nullptr;
    if (oa_import() < 0 || oa_python->pointer_get(source.ptr(), oa::Dtype<Plain>::value, -1, &found) < 0) {
      if (found) throw error_already_set(); /* it is stale */
      PyErr_Clear();
      return false;
    }
    value = oa::Pointer<T>(reinterpret_cast<typename oa::Pointer<T>::Handle *>(found));
    return true;
  }

  static handle cast(oa::Pointer<T> pointer, return_value_policy, handle) { return oa_pointer_vector(pointer.any()); }
};

}  // namespace detail
}  // namespace pybind11

#endif
