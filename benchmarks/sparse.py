"""Compare products with a sparse matrix, and conjugate gradients, with CuPy; products also with cuSPARSE by hand.

python benchmarks/sparse.py [--device cuda:0] [--side N] [--steps N] [--rounds N]

The matrix is Poisson's equation in three dimensions, by differences of seven points. It has side^3 rows.
Conjugate gradients need NVRTC, for the kernels that divide. CuPy is left out if it is not installed.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import scipy.sparse
from graphs import SOURCE, row
from timing import cupy_for, median

from offload_args import Device, In, Kernel, Out, blas, cusparse, launch, offload_args, sparse


def poisson(side: int) -> Any:
    """Return the csr matrix of a cube with so many points along a side."""
    size = side**3
    x = np.arange(size) % side
    y = np.arange(size) // side % side
    along = [np.full(size, 6.0)]
    offsets = [0]
    for step, inside in ((1, x), (side, y), (side * side, None)):
        lower = np.full(size, -1.0) if inside is None else np.where(inside < side - 1, -1.0, 0.0)
        upper = np.full(size, -1.0) if inside is None else np.where(inside > 0, -1.0, 0.0)
        along += [lower, upper]  # in the format dia, an element is stored at its column
        offsets += [-step, step]
    A = scipy.sparse.dia_array((np.array(along), offsets), shape=(size, size)).tocsr()
    A.sum_duplicates()
    return A


def products(A: Any, device: Device, cupy: Any, rounds: int) -> None:
    """Print the time of a product with resident arrays, and the bandwidth that it reaches."""
    x, y = np.random.default_rng(1).standard_normal(A.shape[1]), np.empty(A.shape[0])
    nbytes = A.data.nbytes + A.indices.nbytes + A.indptr.nbytes + x.nbytes + y.nbytes
    calls = 20
    begun = perf_counter()
    with sparse.lend(A, device=device) as dA, offload_args(In(x), Out(y), device=device) as (dx, dy):
        sparse.matmul(dA, dx, out=dy)
        device.synchronize()
        first = perf_counter() - begun

        def run() -> None:
            for _ in range(calls):
                sparse.matmul(dA, dx, out=dy)

        own = median(run, device.synchronize, rounds) / calls
    worst = np.abs(y - A @ x).max() / np.abs(y).max()
    row("offload_args", f"{own:.3f} ms", f"{nbytes / own / 1e6:.0f} GB/s", f"first {first:.2f} s", f"error {worst:.0e}")
    if cupy is None:
        return
    import cupyx.cusparse
    import cupyx.scipy.sparse

    cA = cupyx.scipy.sparse.csr_matrix(tuple(map(cupy.asarray, (A.data, A.indices, A.indptr))), shape=A.shape)
    cx, cy = cupy.asarray(x), cupy.empty(A.shape[0])

    def theirs() -> None:
        for _ in range(calls):
            cupyx.cusparse.spmv(cA, cx, cy, 1.0, 0.0)

    def timed(run: Callable[[], None]) -> float:
        return median(run, cupy.cuda.Device().synchronize, rounds) / calls

    for name, other in (
        ("CuPy", timed(theirs)),
        ("by hand", timed(by_hand(cupy, cA, cx, cy, calls, prepared=False))),
        ("by hand, prepared", timed(by_hand(cupy, cA, cx, cy, calls, prepared=True))),
    ):
        row(name, f"{other:.3f} ms", f"{nbytes / other / 1e6:.0f} GB/s", f"ratio {own / other:.3f}", "")


def by_hand(cupy: Any, A: Any, x: Any, y: Any, calls: int, prepared: bool) -> Callable[[], None]:
    """Return a function that makes calls of cuSPARSE with descriptors and a workspace that are made once.

    `prepared`: whether cuSPARSE analyses the matrix first.
    """
    raw, ffi = cusparse.raw, cusparse.raw.ffi
    handle, matrix = ffi.new("cusparseHandle_t *"), ffi.new("cusparseSpMatDescr_t *")
    vectors = [ffi.new("cusparseDnVecDescr_t *") for _ in range(2)]
    factors, size = ffi.new("double[2]", [1, 0]), ffi.new("size_t *")

    def address(array: Any) -> Any:
        return ffi.cast("void *", array.data.ptr)

    raw.cusparseCreate(handle)
    index, float64 = raw.CUSPARSE_INDEX_32I, raw.CUDA_R_64F
    arrays = address(A.indptr), address(A.indices), address(A.data)
    raw.cusparseCreateCsr(matrix, *A.shape, A.nnz, *arrays, index, index, raw.CUSPARSE_INDEX_BASE_ZERO, float64)
    for vector, array in zip(vectors, (x, y), strict=True):
        raw.cusparseCreateDnVec(vector, array.size, address(array), float64)
    operands = factors, matrix[0], vectors[0][0], factors + 1, vectors[1][0]
    parameters = handle[0], 0, *operands, float64, raw.CUSPARSE_SPMV_ALG_DEFAULT
    raw.cusparseSpMV_bufferSize(*parameters, size)
    workspace = cupy.empty(max(size[0], 1), np.uint8)
    if prepared:
        raw.cusparseSpMV_preprocess(*parameters, address(workspace))

    def run() -> None:
        for _ in range(calls):
            raw.cusparseSpMV(*parameters, address(workspace))

    return run


def conjugate_gradients(A: Any, device: Device, cupy: Any, steps: int, rounds: int) -> None:
    """Print the time of `steps` steps, separately with two numbers each on the host, and as a loop on the device."""
    right = np.random.default_rng(2).standard_normal(A.shape[0])
    pair = [In[np.float64], Out[np.float64]]
    divide = Kernel.compile(SOURCE, "divide", [*pair, np.int32], device=device, debug=False)
    compare = Kernel.compile(SOURCE, "compare", [*pair, np.float64, np.int32], device=device, debug=False)
    u, r, p, w = np.zeros_like(right), right.copy(), right.copy(), np.empty_like(right)
    numbers = np.zeros(3), np.zeros(2), np.zeros(2)
    region = offload_args(u, r, p, w, In(right), *numbers, device=device)
    with sparse.lend(A, device=device) as dA, region as (du, dr, dp, dw, dright, dsums, dsteps, dturns):
        old, product, new = (dsums[i : i + 1].reshape(()) for i in range(3))

        def begin() -> None:
            du.fill(0)
            dr.copy_from(dright)
            dp.copy_from(dright)
            sparse.matmul(dA, dp, out=dw)

        def one_by_one() -> None:
            begin()
            rho = blas.dot(dr, dr)
            for _ in range(steps):
                sparse.matmul(dA, dp, out=dw)
                alpha = rho / blas.dot(dp, dw)
                blas.axpy(alpha, dp, du)
                blas.axpy(-alpha, dw, dr)
                rho, before = blas.dot(dr, dr), rho
                blas.scal(rho / before, dp)
                blas.axpy(1.0, dr, dp)

        def step() -> None:
            sparse.matmul(dA, dp, out=dw)
            blas.dot(dp, dw, result=product)
            launch(divide, dsums, dsteps, 2)
            blas.axpy(dsteps[:1].reshape(()), dp, du)
            blas.axpy(dsteps[1:].reshape(()), dw, dr)
            blas.dot(dr, dr, result=new)
            launch(compare, dsums, dturns, 0.0, 2)
            old.copy_from(new)
            blas.scal(dturns[:1].reshape(()), dp)
            blas.axpy(1.0, dr, dp)

        def looped() -> None:
            begin()
            blas.dot(dr, dr, result=old)
            region.loop(step, until=dturns[1:], at_most=steps)

        times = {"one by one": median(one_by_one, device.synchronize, rounds)}
        solution = du.to_host()
        if device.is_gpu:
            times["a loop on the device"] = median(looped, device.synchronize, rounds)
        worst = np.abs(du.to_host() - solution).max() / np.abs(solution).max()
    for name, own in times.items():
        row(f"offload_args, {name}", f"{own / steps:.3f} ms a step", f"they differ by {worst:.0e}")
    if cupy is None:
        return
    import cupyx.scipy.sparse
    from cupyx.scipy.sparse.linalg import cg

    cA = cupyx.scipy.sparse.csr_matrix(tuple(map(cupy.asarray, (A.data, A.indices, A.indptr))), shape=A.shape)
    b = cupy.asarray(right)
    tolerance = "rtol" if "rtol" in inspect.signature(cg).parameters else "tol"
    other = median(lambda: cg(cA, b, maxiter=steps, **{tolerance: 0.0}), cupy.cuda.Device().synchronize, rounds)
    ratios = ", ".join(f"{own / other:.3f}" for own in times.values())
    row("CuPy's cg", f"{other / steps:.3f} ms a step", f"ratios {ratios}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="such as host or cuda:0; the first GPU unless given, else host")
    parser.add_argument("--side", type=int, default=215)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    device = Device(options.device or Device.default().name)
    cupy = cupy_for(device)
    A = poisson(options.side)
    print(f"{device}: {A.shape[0]} rows, {A.nnz} values, indices of {A.indices.dtype}", flush=True)
    products(A, device, cupy, options.rounds)
    conjugate_gradients(A, device, cupy, options.steps, max(options.rounds // 2, 1))


if __name__ == "__main__":
    main()
