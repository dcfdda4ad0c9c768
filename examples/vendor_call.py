"""The vendor's own function
=========================

The program calls cuBLAS or rocBLAS on a GPU and CBLAS on the CPU, argument by argument.
"""

# sphinx_gallery_thumbnail_path = "_static/card-vendor_call.svg"

import argparse

import numpy as np

from offload_args import Device, In, Out, cblas, cublas, offload_args, rocblas

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as host, cuda:0 or hip:0; the first GPU unless given, else host")
name = parser.parse_args().device
device = Device(name) if name else Device.default()

# %%
# ``In`` and ``Out`` declare the use of each array, before the region begins.

random = np.random.default_rng(2)
m, n = 300, 200
A = random.standard_normal((m, n))
x = random.standard_normal(n)
y = np.empty(m)

# %%
# Each function takes the arguments of its C function in their order, without the handle, which is the package's own.
# ``dA.ld`` is the leading dimension of A.

with offload_args(In(A), In(x), Out(y), device=device) as (dA, dx, dy):
    if device.name.startswith("cuda"):  # cuBLAS is column-major: it reads A in C order as its transpose
        cublas.dgemv(cublas.OP_T, n, m, 1.0, dA, dA.ld, dx, 1, 0.0, dy, 1)
    elif device.name.startswith("hip"):
        rocblas.dgemv(rocblas.operation_transpose, n, m, 1.0, dA, dA.ld, dx, 1, 0.0, dy, 1)
    else:
        cblas.dgemv(cblas.RowMajor, cblas.NoTrans, m, n, 1.0, dA, dA.ld, dx, 1, 0.0, dy, 1)
print(f"{device.name}: |y| = {np.linalg.norm(y):.6f}")

# %%
# All three compute the same product as NumPy.

np.testing.assert_allclose(y, A @ x, rtol=1e-10, atol=1e-10)
