"""Compare captured chains with hand-written graphs in C, with separate calls, and with PyTorch and CuPy.

python benchmarks/graphs.py [--device cuda:0] [--rounds N]

It needs `cc`, and NVRTC for the kernels of conjugate gradients. PyTorch and CuPy are left out if they are not
installed.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import timing

from offload_args import Device, In, Kernel, Out, blas, launch, offload_args

SMALL, LARGE, SYSTEM = 64, 1024, 4096
STEPS, CALLS, CAPTURES = 100, 200, 1000
median = partial(timing.median, unit=1e-6)
SOURCE = """
#include <offload_args/kernel.h>
OA_KERNEL(divide, oa::In<double> sums, oa::Out<double> factors, int n) {
  for (auto f : factors.mine(oa::Linear1D(n), here)) *f = (f.index() ? -1 : 1) * sums[0] / sums[1];
}
OA_KERNEL(compare, oa::In<double> sums, oa::Out<double> factors, double small, int n) {
  for (auto f : factors.mine(oa::Linear1D(n), here)) *f = f.index() ? sums[2] <= small : sums[2] / sums[0];
}
"""


def row(text: str, *figures: object) -> None:
    print(f"| {text} | {' | '.join(map(str, figures))} |", flush=True)


# -- the other sides -----------------------------------------------------------------------------------------------


def by_hand(rounds: int) -> list[float]:
    """Return the times of both chains as hand-written graphs in C, with the cuBLAS that the package has loaded."""
    paths = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcublas.so" in line]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "hand.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["cc", "-O2", "-Wall", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
        hand = ctypes.CDLL(str(library))
    hand.hand_capture.restype = ctypes.c_void_p
    hand.hand_seconds.restype = ctypes.c_double
    hand.hand_seconds.argtypes = [ctypes.c_void_p, ctypes.c_int]
    if hand.hand_open(paths[0].encode()):
        raise SystemExit("graphs.py: the calls by hand failed")
    times = []
    for chain in range(2):
        graph = hand.hand_capture(chain)
        times.append(1e6 * statistics.median(hand.hand_seconds(graph, chain) for _ in range(rounds)))
        times.append(1e6 * statistics.median(hand.hand_seconds(None, chain) for _ in range(rounds)))
    return times


def with_torch(chain: int, rounds: int) -> float:
    import torch

    n = (SMALL, LARGE, SYSTEM)[chain]
    A = torch.eye(n, dtype=torch.float64, device="cuda")
    x, y, p, r = (torch.ones(n, dtype=torch.float64, device="cuda") for _ in range(4))
    old = torch.ones((), dtype=torch.float64, device="cuda")

    def calls() -> None:
        if chain == 0:
            for k in range(CALLS):
                if k % 3 == 0:
                    torch.mv(A, x, out=y)
                elif k % 3 == 1:
                    y.add_(x, alpha=0.5)
                else:
                    y.mul_(0.5)
        elif chain == 1:
            for _ in range(STEPS):
                torch.mv(A, x, out=y)
                x.copy_(y)
                x.mul_(1.5)
        else:  # a step of conjugate gradients
            torch.mv(A, p, out=y)
            alpha = old / torch.dot(p, y)
            x.add_(alpha * p)
            r.sub_(alpha * y)
            new = torch.dot(r, r)
            p.mul_(new / old).add_(r)
            old.copy_(new)

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        calls()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    return median(graph.replay, torch.cuda.synchronize, rounds)


def with_cupy(chain: int, rounds: int) -> float:
    import cupy
    from cupy import cublas

    n = (SMALL, LARGE, SYSTEM)[chain]
    A = cupy.eye(n)
    x, y, p, r = (cupy.ones(n) for _ in range(4))
    old = cupy.ones(())
    stream = cupy.cuda.Stream(non_blocking=True)

    def calls() -> None:
        if chain == 0:
            for k in range(CALLS):
                if k % 3 == 0:
                    cublas.gemv("N", 0.01, A, x, 0.0, y)
                elif k % 3 == 1:
                    cublas.axpy(0.5, x, y)
                else:
                    cublas.scal(0.5, y)
        elif chain == 1:
            for _ in range(STEPS):
                cublas.gemv("N", 0.01, A, x, 0.0, y)
                x[...] = y
                cublas.scal(1.5, x)
        else:
            cublas.gemv("N", 1.0, A, p, 0.0, y)
            alpha = old / cublas.dot(p, y)
            x[...] += alpha * p
            r[...] -= alpha * y
            new = cublas.dot(r, r)
            p[...] = p * (new / old) + r
            old[...] = new

    with stream:
        calls()
        stream.synchronize()
        stream.begin_capture()
        calls()
        graph = stream.end_capture()
        return median(lambda: graph.launch(stream), stream.synchronize, rounds)


def beside(chain: int, rounds: int) -> str:
    """Return the times of the other packages as one text."""
    texts = []
    for name, other in ("PyTorch", with_torch), ("CuPy", with_cupy):
        try:
            texts.append(f"{name} {other(chain, rounds):.0f}")
        except Exception as error:  # the package is not installed, or can't capture the chain
            texts.append(f"{name}: {type(error).__name__}, {str(error).splitlines()[0][:90] if str(error) else ''}")
    return ", ".join(texts)


# -- ours ----------------------------------------------------------------------------------------------------------


def chains(device: Device, rounds: int) -> None:
    """Print the rows of the small calls and of the power iteration."""
    times = []
    for n in SMALL, LARGE:
        A, x, y = np.eye(n) / 0.015, np.ones(n), np.zeros(n)
        region = offload_args(A, x, y, device=device)
        with region as (dA, dx, dy):

            def calls() -> None:
                if dx.size == SMALL:
                    for k in range(CALLS):
                        if k % 3 == 0:
                            blas.gemv(0.01, dA, dx, 0.0, dy)
                        elif k % 3 == 1:
                            blas.axpy(0.5, dx, dy)
                        else:
                            blas.scal(0.5, dy)
                else:
                    for _ in range(STEPS):
                        blas.gemv(0.01, dA, dx, 0.0, dy)
                        blas.copy(dy, dx)
                        blas.scal(1.5, dx)

            calls()
            device.synchronize()
            with region.capture() as graph:
                calls()
            times.append((median(graph.replay, device.synchronize, rounds), median(calls, device.synchronize, rounds)))
    hand = by_hand(rounds) if device.name.startswith("cuda") else [float("nan")] * 4
    (small, small_calls), (power, power_calls) = times
    ratio = f"{small / hand[0]:.2f} of C, {small / small_calls:.2f} of one by one"
    row(
        f"{CALLS} small calls",
        "1.2; 0.3",
        ratio,
        f"{small:.0f}; C {hand[0]:.0f}; one by one {small_calls:.0f}, C {hand[1]:.0f}",
    )
    row("the same by others", "", "", beside(0, rounds))
    ratio = f"{power / power_calls:.2f} of one by one, {power / hand[2]:.2f} of C"
    row(
        f"power iteration, {STEPS} steps",
        "0.5",
        ratio,
        f"{power:.0f}; C {hand[2]:.0f}; one by one {power_calls:.0f}, C {hand[3]:.0f}",
    )
    row("the same by others", "", "", beside(1, rounds))


def gradients(device: Device, rounds: int) -> None:
    """Print the rows of conjugate gradients."""
    pair = [In[np.float64], Out[np.float64]]
    divide = Kernel.compile(SOURCE, "divide", [*pair, np.int32], device=device, debug=False)
    compare = Kernel.compile(SOURCE, "compare", [*pair, np.float64, np.int32], device=device, debug=False)
    rng = np.random.default_rng(0)
    M = rng.standard_normal((SYSTEM, SYSTEM))
    M = M @ M.T / SYSTEM + 0.5 * np.eye(SYSTEM)
    right = rng.standard_normal(SYSTEM)
    small = 1e-20 * float(right @ right)
    u, r, p, w = (np.zeros(SYSTEM) for _ in range(4))
    region = offload_args(M, u, r, p, w, np.zeros(3), np.zeros(2), np.zeros(2), device=device)
    with region as (dM, du, dr, dp, dw, ds, df, dt):
        old, product, fresh = (ds[i : i + 1].reshape(()) for i in range(3))
        alpha, minus, beta = df[:1].reshape(()), df[1:].reshape(()), dt[:1].reshape(())

        def step(small: float = small) -> None:
            blas.gemv(1.0, dM, dp, 0.0, dw)
            blas.dot(dp, dw, result=product)
            launch(divide, ds, df, 2)
            blas.axpy(alpha, dp, du)
            blas.axpy(minus, dw, dr)
            blas.dot(dr, dr, result=fresh)
            launch(compare, ds, dt, small, 2)
            old.copy_from(fresh)
            blas.scal(beta, dp)
            blas.axpy(1.0, dr, dp)

        def start() -> None:
            du.fill(0.0)
            dr.assign(right)
            dp.assign(right)
            blas.dot(dr, dr, result=old)
            device.synchronize()

        def in_python() -> int:
            count = 0
            while not count or not dt[1:].to_host()[0]:
                step()
                count += 1
            return count

        def by_replays() -> int:
            count = 0
            while not count or not dt[1:].to_host()[0]:
                g.replay()
                count += 1
            return count

        def timed(run: Callable[[], int]) -> tuple[float, int, Any]:
            """Return the milliseconds, the steps and the result of the run with the median time."""
            taken = []
            for _ in range(max(rounds // 5, 3)):
                start()
                begun = perf_counter()
                count = run()
                device.synchronize()
                taken.append(perf_counter() - begun)
            return statistics.median(taken) * 1e3, count, du.to_host()

        start()
        with region.capture() as g:
            step()
        plain, steps, result = timed(in_python)
        replayed, replayed_steps, replayed_result = timed(by_replays)
        looped, looped_steps, looped_result = timed(lambda: region.loop(step, until=dt[1:], at_most=500))
        with region.capture() as whole:
            for _ in range(steps):
                step()

        def one_launch() -> int:
            whole.replay()
            return steps

        def unlooked() -> int:
            for _ in range(steps):
                g.replay()
            return steps

        def capture() -> int:
            with region.capture():
                step()
            return 0

        def endless(steps: int) -> Callable[[], int]:
            return lambda: region.loop(lambda: step(-1.0), until=dt[1:], at_most=steps)

        kernels, back_to_back, capturing = timed(one_launch)[0], timed(unlooked)[0], timed(capture)[0]
        each = (timed(endless(400))[0] - timed(endless(100))[0]) / 300
        row(
            f"CG, n = {SYSTEM}, a step of one loop",
            "1.05",
            f"{each * steps / kernels:.3f} of its kernels, {each * steps / back_to_back:.3f} of a replay",
            f"{1e3 * each:.2f}; kernels {1e3 * kernels / steps:.2f}; a replay {1e3 * back_to_back / steps:.2f}",
        )
        row(
            f"the whole loop, {steps} steps",
            "",
            f"{looped / kernels:.3f} of its kernels, {looped / plain:.2f} of Python's loop",
            f"{1e3 * looped:.0f}; kernels {1e3 * kernels:.0f}; Python's {1e3 * plain:.0f}; replays with a look "
            f"{1e3 * replayed:.0f}, without {1e3 * back_to_back:.0f}; a capture {1e3 * capturing:.0f}",
        )
        same = np.array_equal(result, looped_result) and np.array_equal(result, replayed_result)
        row(
            "the same steps and bits",
            "yes",
            "yes" if same and steps == looped_steps == replayed_steps else "NO",
            f"{steps} steps",
        )
    row("a step by others, as a graph", "", "", f"ours {1e3 * back_to_back / steps:.0f}; {beside(2, rounds)}")


def contents(device: Device, rounds: int) -> None:
    """Print the row of a replay with new contents of 4 KiB."""
    x, new = np.ones(512), np.ones(512)
    region = offload_args(x, device=device)
    with region as (dx,):
        with region.capture(x=dx) as graph:
            blas.scal(1.0, dx)
        times = []
        for _ in range(rounds):
            device.synchronize()
            begun = perf_counter()
            for _ in range(100):
                graph.replay(x=new)
            issued = perf_counter() - begun
            device.synchronize()
            times.append((issued * 1e4, (perf_counter() - begun) * 1e4))
        issued, done = (statistics.median(column) for column in zip(*times, strict=True))
        bare = median(graph.replay, device.synchronize, rounds)
    row("replay(x=new), 4 KiB", "15", f"{done:.1f}", f"issued {issued:.1f}; a replay with a wait {bare:.1f}")


def memory(device: Device) -> None:
    """Print the row of many captures that are made and destroyed."""
    x = np.ones(4096)
    region = offload_args(x, device=device)
    with region as (dx,):

        def capture() -> None:
            with region.capture(alpha=2.0) as graph:
                blas.scal(graph["alpha"], dx)
            graph.replay(alpha=1.0)

        def process() -> int:
            return next(
                int(line.split()[1])
                for line in Path("/proc/self/status").read_text().splitlines()
                if line.startswith("VmRSS")
            )

        for _ in range(100):
            capture()
        device.synchronize()
        before, resident, free = device.counters, process(), device.memory
        for _ in range(CAPTURES):
            capture()
        device.synchronize()
        after, free_after = device.counters, device.memory
        row(
            f"{CAPTURES} captures: bytes in use, pinned, of the process, of the GPU",
            "0",
            f"{after.memory_used - before.memory_used}, {after.pinned_bytes - before.pinned_bytes}, "
            f"{(process() - resident) * 1024}, {free.free - free_after.free}",
            "",
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=50)
    arguments = parser.parse_args()
    device = Device(arguments.device)
    print(f"{device.model}\n")
    row("measured", "at most", "figure", "µs")
    row("---", "---:", "---:", "---")
    chains(device, arguments.rounds)
    gradients(device, arguments.rounds)
    contents(device, arguments.rounds)
    memory(device)


if __name__ == "__main__":
    main()
