/* For nanobind: functions that take or return oa::Pointer<T> take and return a DevicePtr of that dtype.
 *
 *   #include <offload_args/nanobind.hpp>
 *   NB_MODULE(mine, m) {
 *     if (oa_import() < 0) throw nanobind::python_error();
 *     m.def("norm", [](std::int64_t n, oa::Pointer<const double> x) { ... });
 *   }
 *
 * A DevicePtr of another dtype is another overload's, and otherwise a TypeError. One that is stale is taken: each
 * call on it returns OA_ERROR_STALE. A returned pointer is a vector of all elements that the handle has. */
#ifndef OFFLOAD_ARGS_NANOBIND_HPP
#define OFFLOAD_ARGS_NANOBIND_HPP

#include "offload_args/python.h"

#include <nanobind/nanobind.h>

#include "offload_args.hpp"

namespace nanobind {
namespace detail {

template <class T>
struct type_caster<oa::Pointer<T>> {
  using Plain = std::remove_const_t<T>;
  NB_TYPE_CASTER(oa::Pointer<T>, const_name("offload_args.DevicePtr"))

  bool from_python(handle source, uint8_t, cleanup_list *) noexcept {
    oa_any *found = nullptr;
    if (oa_import() < 0 || oa_python->pointer_get(source.ptr(), oa::Dtype<Plain>::value, -1, &found) < 0) PyErr_Clear();
    value = oa::Pointer<T>(reinterpret_cast<typename oa::Pointer<T>::Handle *>(found));
    return found != nullptr;
  }

  static handle from_cpp(oa::Pointer<T> pointer, rv_policy, cleanup_list *) noexcept {
    return oa_pointer_vector(pointer.any());
  }
};

}  // namespace detail
}  // namespace nanobind

#endif
