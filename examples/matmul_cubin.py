"""A kernel that nvcc compiled
===========================

C = A B by a kernel in plain CUDA C, which nvcc compiles into a cubin. It runs on NVIDIA GPUs.
"""

# sphinx_gallery_thumbnail_path = "_static/card-matmul_cubin.svg"

import argparse
import shutil
import subprocess
import tempfile

import numpy as np

from offload_args import Device, In, Module, Out, offload

# %%
# This kernel uses nothing of this package. A block of 16 x 16 threads multiplies tiles that it keeps in shared memory.

SOURCE = """
extern "C" __global__ void product(const float *A, const float *B, float *C, int n) {
  __shared__ float a[16][16], b[16][16];
  const int x = threadIdx.x, y = threadIdx.y, row = 16 * blockIdx.y + y, column = 16 * blockIdx.x + x;
  float sum = 0;
  for (int k = 0; k < n; k += 16) {
    a[y][x] = A[row * n + k + x], b[y][x] = B[(k + y) * n + column];
    __syncthreads();
    for (int i = 0; i < 16; i++) sum += a[y][i] * b[i][x];
    __syncthreads();
  }
  C[row * n + column] = sum;
}"""

# %%
# A cubin has the names of its kernels, but not their accesses. The signature in the call of ``module.kernel`` declares
# the accesses. The kernel is then launched as any other kernel.

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--device", help="such as cuda:0; the first GPU unless given, else host, which can't run a cubin")
device = Device(parser.parse_args().device or Device.default().name)
nvcc = shutil.which("nvcc")
if nvcc is None:
    print("nvcc is not here; it comes with the CUDA toolkit")
else:
    with tempfile.TemporaryDirectory() as folder:
        major, minor = device.compute_capability if device.backend == "cuda" else (9, 0)
        options = ["-cubin", f"-arch=sm_{major}{minor}", "-x", "cu", "-", "-o", f"{folder}/product.cubin"]
        subprocess.run([nvcc, *options], input=SOURCE.encode(), check=True)
        module = Module.load(f"{folder}/product.cubin")
    print(module)  # reading the module needs no GPU
    product = module.kernel("product", In[np.float32], In[np.float32], Out[np.float32], np.int32)
    if device.backend == "cuda":
        A, B = np.random.default_rng(6).random((2, 512, 512), np.float32)
        C = np.empty_like(A)
        offload(product, A, B, C, 512, grid=(32, 32), block=(16, 16), device=device)
        np.testing.assert_allclose(C, A @ B, rtol=1e-4)
