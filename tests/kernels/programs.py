"""Three kernels in the form for each kind of device: PTX for cuda, C for host and sim, C++ with kernel.h for all.

- vadd(a, b, c, n): c[i] = a[i] + b[i]; float32
- relu(x, n): x[i] = max(x[i], 0); float32
- line(y, {float slope; double start}, n): y[i] = slope * i + start; float64, and n has 64 bits
"""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

INCLUDE = Path(__file__).parents[2] / "csrc" / "include"

C = """\
#include <offload_args/kernel.h>

struct line {
  float slope;
  double start;
};

OA_HOST_KERNEL(vadd, OA_POINTER, OA_POINTER, OA_POINTER, OA_VALUE(int)) {
  const float *a = OA_ARGUMENT(call, 0, const float *), *b = OA_ARGUMENT(call, 1, const float *);
  float *c = OA_ARGUMENT(call, 2, float *);
  const int n = OA_ARGUMENT(call, 3, int);
  OA_FOR_THREADS(call, i) if (i < n) c[i] = a[i] + b[i];
}

OA_HOST_KERNEL(relu, OA_POINTER, OA_VALUE(int)) {
  float *x = OA_ARGUMENT(call, 0, float *);
  const int n = OA_ARGUMENT(call, 1, int);
  OA_FOR_THREADS(call, i) if (i < n) x[i] = x[i] > 0 ? x[i] : 0;
}

OA_HOST_KERNEL(line, OA_POINTER, OA_VALUE(struct line), OA_VALUE(long long)) {
  double *y = OA_ARGUMENT(call, 0, double *);
  const struct line line = OA_ARGUMENT(call, 1, struct line);
  const long long n = OA_ARGUMENT(call, 2, long long);
  OA_FOR_THREADS(call, i) if (i < n) y[i] = (double)line.slope * (double)i + line.start;
}
"""

ONE_SOURCE = """\
#include <offload_args/kernel.h>
struct Line { float slope; double start; };
OA_KERNEL(vadd, oa::In<float> a, oa::In<float> b, oa::Out<float> c, int n) {
  for (auto element : c.mine(oa::Linear1D(n), here)) *element = a[element.index()] + b[element.index()];
}
OA_KERNEL(relu, oa::InOut<float> x, int n) {
  for (auto element : x.mine(oa::GridStride1D(n), here))
    if (*element < 0) *element = 0;
}
OA_KERNEL(line, oa::Out<double> y, Line line, long long n) {
  for (auto element : y.mine(oa::Linear1D(n), here)) *element = line.slope * element.index() + line.start;
}
"""

# Each kernel computes i, its thread's number in the grid, and returns if i is not less than n.
PTX = """\
.version 6.4
.target sm_50
.address_size 64

.visible .entry vadd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<4>;
  .reg .b64 %d<8>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  ld.param.u32 %r5, [n];
  setp.ge.s32 %p1, %r4, %r5;
  @%p1 bra done;
  ld.param.u64 %d1, [a];
  ld.param.u64 %d2, [b];
  ld.param.u64 %d3, [c];
  mul.wide.s32 %d4, %r4, 4;
  add.s64 %d5, %d1, %d4;
  add.s64 %d6, %d2, %d4;
  add.s64 %d7, %d3, %d4;
  ld.global.f32 %f1, [%d5];
  ld.global.f32 %f2, [%d6];
  add.rn.f32 %f3, %f1, %f2;
  st.global.f32 [%d7], %f3;
done:
  ret;
}

.visible .entry relu(.param .u64 .ptr .global .align 4 x, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<3>;
  .reg .b64 %d<4>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  ld.param.u32 %r5, [n];
  setp.ge.s32 %p1, %r4, %r5;
  @%p1 bra done;
  ld.param.u64 %d1, [x];
  mul.wide.s32 %d2, %r4, 4;
  add.s64 %d3, %d1, %d2;
  ld.global.f32 %f1, [%d3];
  max.f32 %f2, %f1, 0f00000000;
  st.global.f32 [%d3], %f2;
done:
  ret;
}

// double y[i] = slope * i + start
.visible .entry line(
  .param .u64 y,
  .param .align 8 .b8 line[16], /* float slope; double start */
  .param .u64 n
)
{
  .reg .pred %p<2>;
  .reg .b32 %r<5>;
  .reg .f32 %f<2>;
  .reg .f64 %e<5>;
  .reg .b64 %d<6>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  cvt.s64.s32 %d1, %r4;
  ld.param.u64 %d2, [n];
  setp.ge.s64 %p1, %d1, %d2;
  @%p1 bra done;
  ld.param.f32 %f1, [line];
  ld.param.f64 %e1, [line+8];
  cvt.f64.f32 %e2, %f1;
  cvt.rn.f64.s64 %e3, %d1;
  mul.rn.f64 %e4, %e2, %e3;
  add.rn.f64 %e4, %e4, %e1;
  ld.param.u64 %d3, [y];
  shl.b64 %d4, %d1, 3;
  add.s64 %d5, %d3, %d4;
  st.global.f64 [%d5], %e4;
done:
  ret;
}
"""


@cache
def shared_object(source: str = C, *options: str) -> bytes:
    """Return a shared object that the C compiler made from a source."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.so"
        subprocess.run(
            ["cc", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *options, f"-I{INCLUDE}", "-x", "c", "-",
             "-o", str(path)],
            input=source.encode(),
            check=True,
        )  # fmt: skip
        return path.read_bytes()
