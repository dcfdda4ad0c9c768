// The largest eigenvalue of a symmetric matrix by power iteration, on any device: power DEVICE N STEPS
#include <offload_args_blas.h>
#include <offload_args.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>

static double power(const std::string &device, std::int64_t n, const std::vector<double> &A, std::vector<double> &x,
                    int steps) {
  oa::Region region(device, oa::in(A.data(), {n, n}), oa::inout(x.data(), {n}), oa::scratch<double>({n}));
  auto [dA, dx, dy] = region.pointers();
  double eigenvalue = 0;
  for (int i = 0; i < steps; i++) {
    oa::check(oa_blas_dsymv(OA_BLAS_LOWER, n, 1.0, dA, n, dx, 1, 0.0, dy, 1));
    oa::check(oa_blas_dnrm2(n, dy, 1, &eigenvalue));
    oa::check(oa_blas_dcopy(n, dy, 1, dx, 1));
    oa::check(oa_blas_dscal(n, 1 / eigenvalue, dx, 1));
  }
  region.close();
  return eigenvalue;
}

int main(int count, char **arguments) try {
  if (count != 4) {
    std::fprintf(stderr, "usage: power DEVICE N STEPS\n");
    return 2;
  }
  oa::check(oa_check_version(OA_VERSION));
  const std::int64_t n = std::atoll(arguments[2]);
  std::vector<double> A(n * n), x(n, 1.0);
  for (std::int64_t i = 0; i < n * n; i++) A[i] = 1 / (1 + std::fabs(static_cast<double>(i / n - i % n)));
  std::printf("%.12f\n", power(arguments[1], n, A, x, std::atoi(arguments[3])));
  return 0;
} catch (const oa::Error &error) {
  std::fprintf(stderr, "%s: %s\n", oa_status_name(error.status()), error.what());
  return 1;
}
