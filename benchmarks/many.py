"""Compare two devices with one: steps of a product and of conjugate gradients, all-reduce, and a product from NumPy.

    python benchmarks/many.py [--devices cuda:0 cuda:1] [--quick]

For the steps, each device has some rows of a float32 matrix, and a thread. The exchanges are NCCL's calls on the
region's pointers, or calls of `Communicator` on the CPU. The product from NumPy is compared with cuBLASXt's.
NCCL_NVLS_ENABLE=0 is set, as on machines on which NVLink's multicast is off.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import numpy as np
from timing import Run, median

from offload_args import Communicator, Device, In, blas, libraries, nccl, offload_args

Gather = Callable[[Any, Any], None]
Reduce = Callable[[Any], None]
Step = Callable[[Any, Any, Any, Any, Any, Gather, Reduce], None]


class Ranks:
    """The exchanges of each rank: by NCCL on GPUs, by Communicator on other devices, none for a single rank."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = devices
        self.comms: list[Any] = [None]
        if len(devices) > 1 and Device(devices[0]).is_gpu:
            self.comms = nccl.comm_init_all(list(devices))
        elif len(devices) > 1:
            self.comms = list(Communicator.all(devices))

    def calls(self, rank: int) -> tuple[Gather, Reduce]:
        comm = self.comms[rank]
        if comm is None:
            return lambda part, whole: None if part is whole else blas.copy(part, whole), lambda x: None
        if isinstance(comm, Communicator):
            return comm.all_gather, comm.all_reduce
        return (
            lambda part, whole: nccl.all_gather(part, whole, part.size, None, comm),
            lambda x: nccl.all_reduce(x, x, x.size, None, nccl.Sum, comm),
        )

    def run(self, work: Callable[[int], float]) -> float:
        """Run a function on all ranks, each on a thread, and return the longest of their times."""
        times = [0.0] * len(self.devices)

        def timed(rank: int) -> None:
            times[rank] = work(rank)

        threads = [threading.Thread(target=timed, args=(rank,)) for rank in range(len(self.devices))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return max(times)


def product_step(dA: Any, dp: Any, mine: Any, dw: Any, dsum: Any, gather: Gather, reduce: Reduce) -> None:
    """Multiply by the matrix, and gather the result, as in a step of the power iteration without its norm."""
    blas.gemv(1.0, dA, dp, 0.0, dw)
    gather(dw, dp)


def cg_step(dA: Any, dp: Any, mine: Any, dw: Any, dsum: Any, gather: Gather, reduce: Reduce) -> None:
    """Make the calls of a step of conjugate gradients: a product, two dots, three updates, and the exchanges."""
    blas.gemv(1.0, dA, dp, 0.0, dw)
    for left, right in ((mine, dw), (dw, dw)):
        blas.dot(left, right, result=dsum.reshape(()))
        reduce(dsum)
    blas.axpy(1e-9, dw, mine)
    blas.axpy(-1e-9, mine, dw)
    blas.axpy(1e-9, dw, mine)
    gather(mine, dp)


def step_seconds(ranks: Ranks, n: int, step: Step, turns: int) -> float:
    """Return the time of a step."""
    size = n // len(ranks.devices)

    def work(rank: int) -> float:
        A, p = np.full((size, n), 1e-6, np.float32), np.ones(n, np.float32)
        w, total = np.zeros(size, np.float32), np.zeros(1, np.float32)
        gather, reduce = ranks.calls(rank)
        with offload_args(In(A), p, w, total, device=ranks.devices[rank]) as (dA, dp, dw, dsum):
            mine = dp[rank * size : (rank + 1) * size] if size < n else dp
            run = partial(step, dA, dp, mine, dw, dsum, gather, reduce)
            return shortest(partial(gather, mine, dp), run, dp, turns)

    return ranks.run(work)


def shortest(meet: Run, run: Run, vector: Any, turns: int) -> float:
    """Return the time of a run in the shortest of six rounds. `meet` is an exchange, so that the ranks begin together.

    vector: an array that the runs write; its first element is read by the host after the runs.
    """
    best = float("inf")
    for _ in range(6):
        meet()
        vector[:1].to_host()
        begun = time.perf_counter()
        for _ in range(turns):
            run()
        vector[:1].to_host()
        best = min(best, (time.perf_counter() - begun) / turns)
    return best


def reduce_seconds(ranks: Ranks, nbytes: int) -> float:
    """Return the time of an all-reduce."""

    def work(rank: int) -> float:
        x = np.ones(nbytes // 4, np.float32)
        _, reduce = ranks.calls(rank)
        with offload_args(x, device=ranks.devices[rank]) as (dx,):
            return shortest(partial(reduce, dx), partial(reduce, dx), dx, 5)

    return ranks.run(work)


def xt_product(devices: Sequence[Device], A: np.ndarray, B: np.ndarray, C: np.ndarray) -> Callable[[], None]:
    """Return a function that multiplies by cuBLASXt, in blocks of 4096, and pins the arrays during the product."""
    library = ctypes.CDLL(libraries.load("cublas").path)
    handle = ctypes.c_void_p()
    indices = (ctypes.c_int * len(devices))(*(device.index for device in devices))
    pinning = 1
    for status in (
        library.cublasXtCreate(ctypes.byref(handle)),
        library.cublasXtDeviceSelect(handle, len(devices), indices),
        library.cublasXtSetBlockDim(handle, 4096),
        library.cublasXtSetPinningMemMode(handle, pinning),
    ):
        if status:
            raise RuntimeError(f"cuBLASXt returns {status}")
    alpha, beta = ctypes.c_float(1), ctypes.c_float(0)

    def multiply() -> None:
        n = ctypes.c_size_t(len(A))
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (B, A, C)]
        status = library.cublasXtSgemm(
            handle,
            0,
            0,
            n,
            n,
            n,
            ctypes.byref(alpha),
            pointers[0],
            n,
            pointers[1],
            n,
            ctypes.byref(beta),
            pointers[2],
            n,
        )  # by columns, this is the product of the transposes
        if status:
            raise RuntimeError(f"cublasXtSgemm returns {status}")

    return multiply


def products(devices: Sequence[Device], n: int) -> None:
    """Print the times of a product from and to NumPy, on one device, on all devices, and by cuBLASXt."""
    rng = np.random.default_rng(0)
    A, B = (rng.standard_normal((n, n), np.float32) for _ in range(2))
    C = np.empty((n, n), np.float32)
    alone, both = (
        median(partial(blas.gemm, 1.0, A, B, 0.0, C, devices=list(some)), int, 3) for some in (devices[:1], devices)
    )
    rows = rng.integers(0, n, 3)
    expected = A[rows].astype(np.float64) @ B.astype(np.float64)
    difference = np.abs(C[rows] - expected).max() / np.abs(expected).max()
    print(
        f"| sgemm from NumPy, n = {n} | 0.65 | {both / alone:.3f} | {alone:.1f} and {both:.1f} ms; "
        f"difference {difference:.1e} |",
        flush=True,
    )
    if devices[0].backend == "cuda":
        xt = median(xt_product(devices, A, B, C), int, 3)
        print(f"| the same over cuBLASXt | 0.7 | {both / xt:.3f} | cuBLASXt {xt:.1f} ms |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", nargs=2, default=["cuda:0", "cuda:1"], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    options = parser.parse_args()
    both, alone = Ranks(options.devices), Ranks(options.devices[:1])
    sizes = (256, 512) if options.quick else (4096, 16384, 32768)
    print(", ".join(options.devices))
    print("\n| measured | at least, or at most | ratio | times |\n|---|---:|---:|---|", flush=True)
    for name, step, goals in (
        ("gemv and all-gather", product_step, {16384: 1.9}),
        ("a step of conjugate gradients", cg_step, {32768: 1.8}),
    ):
        for n in sizes:
            turns = 200 if n <= 4096 else 50
            first, second = step_seconds(alone, n, step, turns), step_seconds(both, n, step, turns)
            print(
                f"| {name}, n = {n}: one over two | {goals.get(n, '')} | {first / second:.2f} | "
                f"{first * 1e6:.1f} and {second * 1e6:.1f} us |",
                flush=True,
            )
    for nbytes in (1 << 12,) if options.quick else (1 << 16, 1 << 20, 1 << 24, 1 << 27, 1 << 30):
        taken = reduce_seconds(both, nbytes)
        goal = 313 if nbytes == 1 << 30 else ""  # 5 % below the figure of nccl-tests
        print(
            f"| all-reduce of {nbytes >> 10} KiB, GB/s | {goal} | {nbytes / taken * 1e-9:.1f} | {taken * 1e6:.1f} us |"
        )
    for n in (512,) if options.quick else (8192, 16384, 32768):
        products([Device(name) for name in options.devices], n)


if __name__ == "__main__":
    main()
