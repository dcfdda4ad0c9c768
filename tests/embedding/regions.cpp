// Uses oa::Region and oa::Pointer as C++ programs do. `regions DEVICE` prints "right" if all results are right.
#include <offload_args/shim.h>
#include <offload_args_blas.h>
#include <offload_args.hpp>

#include <cstdio>
#include <optional>

namespace {

int wrong = 0;
using Vector = std::vector<double>;

void expect(bool right, const char *text) {
  if (!right) std::printf("wrong: %s: %s\n", text, oa_last_error());
  wrong += !right;
}
#define EXPECT(test) expect((test), #test)

template <class Use>
int status_of(Use use) {
  try {
    use();
  } catch (const oa::Error &error) {
    return error.what()[0] ? error.status() : -1;
  }
  return OA_OK;
}

void an_exception_in_a_region_discards_it(const std::string &device) {
  Vector x(8, 1.0);
  try {
    oa::Region region(device, oa::inout(x.data(), x.size()));
    auto [dx] = region.pointers();
    oa::check(oa_blas_dscal(8, 2.0, dx, 1));
    throw 7;
  } catch (int) {
  }
  EXPECT(x == Vector(8, 1.0));
}

auto lent(const std::string &device, Vector &x) {
  oa::Region region(device, oa::inout(x.data(), {x.size()}));
  return region;  // by a move, unless the compiler omits the move
}

void a_region_is_moved_and_lives_once(const std::string &device) {
  Vector x(8, 1.0), y(8, 1.0);
  auto first = lent(device, x);
  auto [dx] = first.pointers();
  auto second = std::move(first);
  EXPECT(!first.handle() && second.handle());
  auto &same = second;
  second = std::move(same);
  oa::check(oa_blas_dscal(8, 2.0, dx, 1));
  EXPECT(status_of([&] { first.synchronize(); }) == OA_ERROR_NOT_HANDLE);
  first.close();  // has no region any more, so this does nothing
  second.close();
  EXPECT(x == Vector(8, 2.0));
  auto third = lent(device, y);
  auto [dy] = third.pointers();
  oa::check(oa_blas_dscal(8, 2.0, dy, 1));
  third = lent(device, x);  // the former region of `third` is discarded
  EXPECT(status_of([&, old = dy] { old.info(); }) == OA_ERROR_STALE && y == Vector(8, 1.0));
  third.close();
  third.close();
}

void a_region_waits_in_an_optional_and_ends_in_any_order(const std::string &device) {
  Vector x(4, 1.0), y(4, 3.0);
  std::optional<oa::Region<double>> inner;
  {
    oa::Region outer(device, oa::in(y.data(), 4));
    auto [dy] = outer.pointers();
    inner.emplace(device, oa::inout(x.data(), 4));
    auto [dx] = inner->pointers();
    oa::check(oa_blas_daxpy(4, 2.0, dy, 1, dx, 1));
    outer.close();
  }
  inner->close();
  EXPECT(x == Vector(4, 7.0));
}

void a_region_amid_a_call_of_its_thread_stays_open(const std::string &device) {
  Vector x(4, 1.0);
  oa::Region region(device, oa::inout(x.data(), x.size()));
  auto [dx] = region.pointers();
  oa::check(oa_blas_dscal(4, 2.0, dx, 1));
  oa_operand operand = oa_operand_of("x", dx.handle(), OA_READ, OA_F64, OA_ELEMENTS(4));
  oa_call call = oa_call_of("mine.read", nullptr, &operand, 1);
  oa::check(oa_begin(&call));
  EXPECT(status_of([&] { region.close(); }) == OA_ERROR_ARGUMENT);
  EXPECT(status_of([&] { region.discard(); }) == OA_ERROR_ARGUMENT);
  oa::check(oa_end(&call, 0));
  region.close();
  EXPECT(x == Vector(4, 2.0));
}

void numbers_are_complex(const std::string &device) {
  const std::vector<std::complex<double>> x(3, {1, 2});
  std::vector<std::complex<double>> y(3, {0, 1});
  std::complex<double> sum;
  oa::Region region(device, oa::in(x.data(), 3), oa::inout(y.data(), 3));
  auto [dx, dy] = region.pointers();
  oa::check(oa_blas_zaxpy(3, oa::number(std::complex<double>(0, 1)), dx, 1, dy, 1));
  oa::check(oa_blas_zdotu(3, dx, 1, dy, 1, oa::number(&sum)));
  region.close();
  EXPECT(y == std::vector<std::complex<double>>(3, {-2, 2}) && sum == std::complex<double>(-18, -6));
}

void wrong_shapes_and_names_are_exceptions(const std::string &device) {
  Vector x(4);
  const auto enter = [&](auto shape) { return status_of([&] { oa::Region(device, oa::in(x.data(), shape)); }); };
  EXPECT(enter(-1) == OA_ERROR_ARGUMENT);
  EXPECT(enter(~std::size_t(0)) == OA_ERROR_ARGUMENT);
  EXPECT(enter(oa::Shape(INT64_MAX, 4)) == OA_ERROR_OVERFLOW);
  EXPECT(enter(std::vector<std::int64_t>(99, 1)) == OA_ERROR_ARGUMENT);
  EXPECT(status_of([&] { oa::Region("no such device", oa::in(x.data(), 4)); }) == OA_ERROR_UNAVAILABLE);
  EXPECT(status_of([&] { oa::Region(device, oa::in((double *)nullptr, 4)); }) == OA_ERROR_ARGUMENT);
  EXPECT(status_of([&] { oa::Region{device}; }) == OA_OK);
}

}  // namespace

int main(int, char **arguments) {
  const std::string device = arguments[1];
  an_exception_in_a_region_discards_it(device);
  a_region_is_moved_and_lives_once(device);
  a_region_waits_in_an_optional_and_ends_in_any_order(device);
  a_region_amid_a_call_of_its_thread_stays_open(device);
  numbers_are_complex(device);
  wrong_shapes_and_names_are_exceptions(device);
  oa_counters left = OA_SIZED(oa_counters);
  oa::check(oa_device_get_counters(oa::device(device), &left));
  EXPECT(left.regions == 0 && left.mappings == 0);
  [[maybe_unused]] const Vector constant(4);
  [[maybe_unused]] oa::Pointer<const double> readable;
  [[maybe_unused]] oa::Pointer<float> single;
  // test_cpp.py writes here what must not compile
  if (!wrong) std::puts("right");
  return wrong;
}
