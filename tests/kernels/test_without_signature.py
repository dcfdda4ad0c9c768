"""Kernels without a declared signature, and objects that stand for several arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.arrays import Array, ramp
from kernels.images import hip_module
from kernels.programs import shared_object
from offload_args import Device, In, InOut, Kernel, Module, Out, errors, launch, offload, offload_args

N = 70


def test_an_undeclared_kernel_takes_what_the_module_proves(module: Module, device: str) -> None:
    vadd = module.kernel("vadd")
    a, b, c = ramp(N), ramp(N), np.zeros(N, np.float32)
    with offload_args(a, b, c, device=device) as (da, db, dc):
        vadd[3, 32](da, db, dc, np.int32(N))
    np.testing.assert_array_equal(c, a + b)
    c[:] = 0
    offload(vadd, a, b, c, np.int32(N), device=device)
    with offload_args(a, b, c, device=device) as (da, db, dc):
        launch(vadd, da, db, dc, np.int32(N))
    np.testing.assert_array_equal(c, a + b)


def test_its_pointers_are_read_and_written(module: Module, device: str) -> None:
    a, b, c = ramp(N), ramp(N), np.zeros(N, np.float32)
    before = Device(device).counters
    offload(module.kernel("vadd"), a, b, c, np.int32(N), device=device)
    after = Device(device).counters
    assert (after.copies_up - before.copies_up, after.copies_down - before.copies_down) == (3, 3)
    with pytest.raises(errors.DirectionError):
        offload(module.kernel("vadd"), In(a), b, c, np.int32(N), device=device)


WRONG: dict[str, tuple[type[Exception], str, tuple[Any, ...]]] = {
    "a plain number": (errors.ArgumentTypeError, r"argument 2: .* np.int32\(5\)", (ramp(N), N)),
    "a wider number": (
        errors.SignatureError,
        "the module says: value of 4",
        (ramp(N), np.int64(N)),
    ),
    "one fewer": (errors.SignatureError, "has 1 parameter,", (ramp(N),)),
    "a list": (errors.ArgumentTypeError, "argument 1", ([1.0], np.int32(1))),
    "an array for a value": (errors.SignatureError, "argument 2", (ramp(N), ramp(N))),
}


@pytest.mark.parametrize("case", WRONG)
def test_arguments_that_the_module_contradicts_are_refused(module: Module, device: str, case: str) -> None:
    error, words, arguments = WRONG[case]
    with pytest.raises(error, match=words):
        offload(module.kernel("relu"), *arguments, device=device)


def test_a_module_that_says_nothing_needs_a_signature() -> None:
    source = "#include <offload_args/kernel.h>\nOA_KERNEL_EXPORT void oa_kernel_bare(const oa_kernel_call *call);\n"
    module = Module.load(shared_object(source + "void oa_kernel_bare(const oa_kernel_call *call) { (void)call; }\n"))
    with pytest.raises(errors.SignatureError, match="says nothing of its parameters"):
        module.kernel("bare")
    offload(module.kernel("bare", InOut[np.float32]), ramp(4), device="host")


class Csr:
    """A sparse matrix: the values and columns of each row, and the places at which rows begin."""

    def __init__(self, dense: Array) -> None:
        rows, self.columns = (part.astype(np.int32) for part in np.nonzero(dense))
        self.values = dense[np.nonzero(dense)]
        self.starts = np.searchsorted(rows, np.arange(len(dense) + 1)).astype(np.int32)

    def __offload__(self) -> tuple[Any, ...]:
        return In(self.values), In(self.columns), In(self.starts), len(self.starts) - 1


CSR_C = """\
#include <offload_args/kernel.h>
OA_HOST_KERNEL(multiply, OA_POINTER, OA_POINTER, OA_POINTER, OA_VALUE(int), OA_POINTER, OA_POINTER) {
  const double *values = OA_ARGUMENT(call, 0, const double *), *x = OA_ARGUMENT(call, 4, const double *);
  const int *columns = OA_ARGUMENT(call, 1, const int *), *starts = OA_ARGUMENT(call, 2, const int *);
  const int rows = OA_ARGUMENT(call, 3, int);
  double *y = OA_ARGUMENT(call, 5, double *);
  OA_FOR_THREADS(call, row) {
    if (row >= rows) continue;
    double sum = 0;
    for (int k = starts[row]; k < starts[row + 1]; k++) sum += values[k] * x[columns[k]];
    y[row] = sum;
  }
}
"""
CSR_HIP = """\
#include <offload_args/kernel.h>
OA_KERNEL(multiply, oa::In<double> values, oa::In<int> columns, oa::In<int> starts, int rows, oa::In<double> x,
          oa::Out<double> y) {
  for (auto element : y.mine(oa::Linear1D(rows), here)) {
    double sum = 0;
    for (int k = starts[element.index()]; k < starts[element.index() + 1]; k++) sum += values[k] * x[columns[k]];
    *element = sum;
  }
}
"""
CSR_PTX = """\
.version 6.4
.target sm_50
.address_size 64
.visible .entry multiply(
  .param .u64 values, .param .u64 columns, .param .u64 starts, .param .u32 rows, .param .u64 x, .param .u64 y
)
{
  .reg .pred %p<4>;
  .reg .b32 %r<10>;
  .reg .f64 %e<4>;
  .reg .b64 %d<16>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.s32 %r4, %r1, %r2, %r3;
  ld.param.u32 %r5, [rows];
  setp.ge.s32 %p1, %r4, %r5;
  @%p1 bra done;
  ld.param.u64 %d1, [values];
  ld.param.u64 %d2, [columns];
  ld.param.u64 %d3, [starts];
  ld.param.u64 %d4, [x];
  ld.param.u64 %d5, [y];
  mul.wide.s32 %d6, %r4, 4;
  add.s64 %d7, %d3, %d6;
  ld.global.s32 %r6, [%d7];
  ld.global.s32 %r7, [%d7+4];
  mov.f64 %e1, 0d0000000000000000;
next:
  setp.ge.s32 %p2, %r6, %r7;
  @%p2 bra store;
  mul.wide.s32 %d8, %r6, 8;
  add.s64 %d9, %d1, %d8;
  ld.global.f64 %e2, [%d9];
  mul.wide.s32 %d10, %r6, 4;
  add.s64 %d11, %d2, %d10;
  ld.global.s32 %r8, [%d11];
  mul.wide.s32 %d12, %r8, 8;
  add.s64 %d13, %d4, %d12;
  ld.global.f64 %e3, [%d13];
  fma.rn.f64 %e1, %e2, %e3, %e1;
  add.s32 %r6, %r6, 1;
  bra next;
store:
  mul.wide.s32 %d14, %r4, 8;
  add.s64 %d15, %d5, %d14;
  st.global.f64 [%d15], %e1;
done:
  ret;
}
"""


@pytest.fixture
def multiply(device: str) -> Kernel:
    if device.startswith("hip"):
        image = hip_module(CSR_HIP, {"multiply": tuple((8 * i, 4 if i == 3 else 8, i != 3) for i in range(6))})
    else:
        image = CSR_PTX.encode() if device.startswith("cuda") else shared_object(CSR_C)
    pointers = In[np.float64], In[np.int32], In[np.int32]
    return Module.load(image).kernel("multiply", *pointers, np.int32, In[np.float64], Out[np.float64])


def test_a_sparse_matrix_travels_whole(multiply: Kernel, device: str) -> None:
    rng = np.random.default_rng(3)
    dense = rng.standard_normal((61, 47)) * (rng.random((61, 47)) < 0.2)
    x, y = rng.standard_normal(47), np.zeros(61)
    offload(multiply, Csr(dense), x, y, device=device)
    np.testing.assert_allclose(y, dense @ x, rtol=1e-13, atol=1e-13)


def test_an_object_whose_parts_are_wrong_is_refused(multiply: Kernel, relu: Kernel, device: str) -> None:
    class Endless:
        def __offload__(self) -> tuple[Any, ...]:
            return (self,)

    class Single:
        def __offload__(self) -> Any:
            return ramp(3)

    with pytest.raises(errors.ArgumentError, match="Endless.__offload__ returns objects that have it"):
        offload(relu, Endless(), 3, device=device)
    with pytest.raises(errors.ArgumentTypeError, match="Single.__offload__ needs to return a tuple"):
        offload(relu, Single(), 3, device=device)
    with pytest.raises(errors.ArgumentTypeError, match="needs 6 arguments .* got 5"):
        offload(multiply, Csr(np.eye(3)), np.ones(3), device=device)
