// y = A x, with A as stored by columns: one source for the CPU, NVIDIA GPUs and AMD GPUs.
#include <offload_args/kernel.h>

OA_KERNEL(multiply, oa::In<double> A, oa::In<double> x, oa::Out<double> y, int n) {
  for (auto element : y.mine(oa::Linear1D(n), here)) {
    double sum = 0;
    for (int j = 0; j < n; j++) sum += A[element.index() + (long long)j * n] * x[j];
    *element = sum;
  }
}
