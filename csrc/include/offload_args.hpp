/* offload_args for C++17: regions that end by themselves, typed pointers, failures as exceptions.
 *
 *   std::vector<double> A(n * n), x(n), y(n);
 *   oa::Region region("cuda:0", oa::in(A.data(), {n, n}), oa::in(x.data(), {n}), oa::out(y.data(), {n}));
 *   auto [dA, dx, dy] = region.pointers();             // oa::Pointer<const double>, ..., oa::Pointer<double>
 *   oa::check(oa_blas_dgemv(OA_BLAS_TRANS, n, n, 1.0, dA, n, dx, 1, 0.0, dy, 1));
 *   region.close();                                    // y comes down
 *
 * A region that is not closed, for example because of an exception, is discarded: nothing comes down. */
#ifndef OFFLOAD_ARGS_HPP
#define OFFLOAD_ARGS_HPP

#include <array>
#include <complex>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "offload_args.h"

namespace oa {

/* A failed call: its oa_status, and its text as what(). */
class Error : public std::runtime_error {
 public:
  explicit Error(int status) : std::runtime_error(oa_last_error()), status_(status) {}
  int status() const noexcept { return status_; }

 private:
  int status_;
};

/* Throws Error unless the status is OA_OK. */
inline void check(int status) {
  if (status != OA_OK) throw Error(status);
}

/* The oa_dtype of a C++ type, the C type of its handles, and its name in NumPy. */
template <class T>
struct Dtype;
#define OA_DTYPE_OF(cpp, name, type, numpy) \
  template <>                               \
  struct Dtype<cpp> {                       \
    static constexpr int value = OA_##name; \
    using handle = oa_##type;               \
    static constexpr char text[] = numpy;   \
  }
OA_DTYPE_OF(bool, BOOL, bool, "bool");
OA_DTYPE_OF(std::int8_t, I8, i8, "int8");
OA_DTYPE_OF(std::int16_t, I16, i16, "int16");
OA_DTYPE_OF(std::int32_t, I32, i32, "int32");
OA_DTYPE_OF(std::int64_t, I64, i64, "int64");
OA_DTYPE_OF(std::uint8_t, U8, u8, "uint8");
OA_DTYPE_OF(std::uint16_t, U16, u16, "uint16");
OA_DTYPE_OF(std::uint32_t, U32, u32, "uint32");
OA_DTYPE_OF(std::uint64_t, U64, u64, "uint64");
OA_DTYPE_OF(float, F32, f32, "float32");
OA_DTYPE_OF(double, F64, f64, "float64");
OA_DTYPE_OF(std::complex<float>, C64, c64, "complex64");
OA_DTYPE_OF(std::complex<double>, C128, c128, "complex128");
#undef OA_DTYPE_OF

/* A region's pointer to T, or to const T. An oa::Pointer converts to the handle that the C functions take. An
 * oa::Pointer can't be used on the host, and is known to be stale after its region. */
template <class T>
class Pointer {
 public:
  using Plain = typename Dtype<std::remove_const_t<T>>::handle;
  using Handle = std::conditional_t<std::is_const_v<T>, const Plain, Plain>;

  constexpr Pointer() = default;
  constexpr explicit Pointer(Handle *handle) : handle_(handle) {}
  /* Converts a pointer to T to a pointer to const T. */
  template <class U, class = std::enable_if_t<std::is_same_v<const U, T>>>
  constexpr Pointer(Pointer<U> other) : handle_(other.handle()) {}

  constexpr Handle *handle() const noexcept { return handle_; }
  constexpr operator Handle *() const noexcept { return handle_; }
  oa_any *any() const noexcept { return reinterpret_cast<oa_any *>(const_cast<Plain *>(handle_)); }
  oa_pointer_info info() const {
    oa_pointer_info result = OA_SIZED(oa_pointer_info);
    check(oa_pointer_query(any(), &result));
    return result;
  }
  oa_pointer_layout layout() const {
    oa_pointer_layout result = OA_SIZED(oa_pointer_layout);
    check(oa_pointer_get_layout(any(), &result));
    return result;
  }

 private:
  Handle *handle_ = nullptr;
};

/* Converts a number, or the address of a number, to the type that the C functions have, such as `double _Complex`.
 *   oa::check(oa_blas_zdotc(n, dx, 1, dy, 1, oa::number(&sum)));
 *   oa::check(oa_blas_zscal(n, oa::number(1.0 / sum), dx, 1)); */
__extension__ typedef float _Complex c_complex_float;
__extension__ typedef double _Complex c_complex_double;
inline c_complex_float *number(std::complex<float> *z) { return reinterpret_cast<c_complex_float *>(z); }
inline c_complex_double *number(std::complex<double> *z) { return reinterpret_cast<c_complex_double *>(z); }
inline c_complex_float number(std::complex<float> z) { return *number(&z); }
inline c_complex_double number(std::complex<double> z) { return *number(&z); }

/* A shape of integers of any type: n, or {m, n}. */
struct Shape {
  std::vector<std::int64_t> sizes;

  template <class... N, class = std::enable_if_t<(std::is_integral_v<N> && ...)>>
  Shape(N... extents) : sizes{static_cast<std::int64_t>(extents)...} {}
  Shape(std::vector<std::int64_t> extents) : sizes(std::move(extents)) {}
};

/* An array to lend. */
template <class T>
struct Lent {
  std::remove_const_t<T> *data;
  std::vector<std::int64_t> shape, strides; /* strides in bytes */
  int direction;

  /* Declares that the array is stored by columns, as in Fortran, and not by rows. */
  Lent by_columns() && {
    std::uint64_t stride = sizeof(T); /* may wrap: the core refuses such a shape */
    for (std::size_t i = 0; i < shape.size(); stride *= static_cast<std::uint64_t>(shape[i++]))
      strides[i] = static_cast<std::int64_t>(stride);
    return std::move(*this);
  }
};

template <class T>
Lent<T> lend(T *data, Shape shape, int direction = OA_BY_USE) {
  std::vector<std::int64_t> strides(shape.sizes.size());
  std::uint64_t stride = sizeof(T); /* may wrap: the core refuses such a shape */
  for (std::size_t i = strides.size(); i-- > 0; stride *= static_cast<std::uint64_t>(shape.sizes[i]))
    strides[i] = static_cast<std::int64_t>(stride);
  return {const_cast<std::remove_const_t<T> *>(data), std::move(shape.sizes), std::move(strides), direction};
}
/* Lends an array that never comes down. */
template <class T>
Lent<const T> in(const T *data, Shape shape) {
  return lend<const T>(data, std::move(shape), OA_IN);
}
/* Lends an array that never goes up. */
template <class T>
Lent<T> out(T *data, Shape shape) {
  static_assert(!std::is_const_v<T>, "oa::out needs an array that may be written");
  return lend(data, std::move(shape), OA_OUT);
}
template <class T>
Lent<T> inout(T *data, Shape shape) {
  static_assert(!std::is_const_v<T>, "oa::inout needs an array that may be written");
  return lend(data, std::move(shape), OA_INOUT);
}
/* Lends device memory without a host array. */
template <class T>
Lent<T> scratch(Shape shape) {
  static_assert(!std::is_const_v<T>, "oa::scratch needs a type that may be written");
  return lend<T>(nullptr, std::move(shape), OA_SCRATCH);
}

/* Returns the number of a device, such as "cuda:0" or "host". */
inline int device(const std::string &name) {
  int number;
  check(oa_device_open(name.c_str(), &number));
  return number;
}

/* Arrays lent to a device until close(). If the object ends before close() was called, it discards the results. The
 * object can be moved. */
template <class... T>
class Region {
 public:
  Region(int device, const Lent<T> &...lent) {
    std::array<oa_array, sizeof...(T)> arrays{array_of(lent)...};
    check(oa_region_enter(device, nullptr, arrays.data(), static_cast<int>(arrays.size()), &region_));
    for (std::size_t i = 0; i < arrays.size(); i++) handles_[i] = arrays[i].handle;
  }
  Region(const std::string &name, const Lent<T> &...lent) : Region(oa::device(name), lent...) {}
  Region(Region &&other) noexcept : region_(std::exchange(other.region_, nullptr)), handles_(other.handles_) {}
  /* Discards the results of the region that the assignment replaces. */
  Region &operator=(Region other) noexcept {
    std::swap(region_, other.region_);
    std::swap(handles_, other.handles_);
    return *this;
  }
  ~Region() {
    if (region_) end(OA_DISCARD);
  }

  std::tuple<Pointer<T>...> pointers() const { return pointers(std::index_sequence_for<T...>()); }
  /* Brings the written arrays down, and ends the pointers. If this thread is between oa_begin and oa_end of a call,
   * close throws, and the region stays open. */
  void close() { check(end(OA_COMMIT)); }
  /* Ends the region without bringing anything down. */
  void discard() { check(end(OA_DISCARD)); }
  void synchronize() { check(oa_region_synchronize(region_)); }
  oa_region *handle() const noexcept { return region_; }

 private:
  template <class U>
  static oa_array array_of(const Lent<U> &lent) {
    oa_array array = oa_array();
    array.data = lent.data;
    array.shape = lent.shape.data();
    array.strides = lent.strides.data();
    array.ndim = static_cast<std::int32_t>(lent.shape.size());
    array.dtype = Dtype<std::remove_const_t<U>>::value;
    array.direction = lent.direction;
    return array;
  }
  template <std::size_t... I>
  std::tuple<Pointer<T>...> pointers(std::index_sequence<I...>) const {
    return {Pointer<T>(reinterpret_cast<typename Pointer<T>::Handle *>(handles_[I]))...};
  }
  int end(int outcome) {
    oa_region *ending = region_;
    region_ = nullptr;
    const int finished = ending ? oa_region_finish(ending, outcome, nullptr) : OA_OK;
    if (finished == OA_ERROR_ARGUMENT) region_ = ending;  // this thread has not ended a call: the region stays open
    return finished || !ending ? finished : oa_region_wait(ending);
  }

  oa_region *region_ = nullptr;
  std::array<oa_any *, sizeof...(T)> handles_{};
};
template <class... T>
Region(int, const Lent<T> &...) -> Region<T...>;
template <class... T>
Region(const char *, const Lent<T> &...) -> Region<T...>;
template <class... T>
Region(const std::string &, const Lent<T> &...) -> Region<T...>;

}  // namespace oa

#endif
