"""Measure unmodified programs: the cost of hooks, and the times of NumPy and SciPy programs with `accelerate` on a GPU.

    python benchmarks/scripts_as_they_are.py [--device cuda:0] [--only Gaussian]

Without --device, it measures the cost of a hook and of writing the tables, in seconds of the CPU, and the loss of
programs without a gain, with hooks that decide but send nothing: ABBA, medians of five. With a device, it also measures
the seconds for the device's rates, and each program with and without acceleration, in turns; it prints medians and
their ratio. "again" is the program's second run in the same block of `accelerate`, after one that has sent its
matrices. It takes some minutes on a GPU and 16 cores.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from time import perf_counter, thread_time

import numpy as np

from offload_args import Device, _core, accelerate
from offload_args.scripts import _hook_loops

INSTALL = """
from time import thread_time
import numpy, {modules}
from offload_args import _core, scripts
times = []
for _ in range(9):
    begun = thread_time()
    _core.accelerate_start(1.25, 0, False, False, 1.0, 0, 0.0)
    scripts._hook_loops(True)
    times.append(thread_time() - begun)
    slots = _core.accelerate_query()
    scripts._hook_loops(False)
    _core.accelerate_stop()
print(sorted(times)[4] * 1e3, times[0] * 1e3, *slots)
"""


SCIPY = "scipy.linalg, scipy.optimize, scipy.sparse.linalg, scipy.stats"
SCIKIT_LEARN = "sklearn.cluster, sklearn.decomposition, sklearn.gaussian_process, sklearn.linear_model"


def install() -> None:
    for modules in ("sys", "scipy.linalg", SCIPY, f"{SCIPY}, {SCIKIT_LEARN}"):
        if "sklearn" in modules and not find_spec("sklearn"):
            continue
        words = [sys.executable, "-c", INSTALL.format(modules=modules)]
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        print(
            f"writing the tables, with numpy, {modules}: median {float(out[0]):.2f} ms, first {float(out[1]):.2f} ms, "
            f"{out[2]} slots of {out[3]} modules"
        )


def hook() -> None:
    """Measure a small product through BLAS, and small calls of NumPy's loops, in the order ABBA."""
    a, b, wide = np.ones((2, 2)), np.ones((2, 2)), np.ones((2, 3))
    out, S = np.empty((2, 2)), np.eye(4)
    calls: dict[str, tuple[int, Callable[[], object]]] = {
        "np.dot of 2 x 2": (200_000, lambda: np.dot(a, b, out)),
        "np.matmul of 2 x 2": (200_000, lambda: np.matmul(a, b, out)),
        "A @ A.T, 2 x 3": (200_000, lambda: np.matmul(wide, wide.T, out)),
        "np.linalg.solve of 4 x 4": (20_000, lambda: np.linalg.solve(S, S)),
    }
    for name, (times, call) in calls.items():

        def loop(times: int = times, call: Callable[[], object] = call) -> float:
            begun = thread_time()
            for _ in range(times):
                call()
            return (thread_time() - begun) / times

        def on(loop: Callable[[], float] = loop) -> float:
            _core.accelerate_start(1.25, 0, False, False, 1.0, 0, 0.0)
            _hook_loops(True)
            took = loop()
            _hook_loops(False)
            _core.accelerate_stop()
            return took

        pairs = []
        for _ in range(9):
            first, second, third, fourth = loop(), on(), on(), loop()
            pairs.append((second + third) / 2 - (first + fourth) / 2)
        print(
            f"a hook, {name}: {median(pairs) * 1e9:+.1f} ns of {first * 1e9:.0f}, "
            f"from {min(pairs) * 1e9:+.1f} to {max(pairs) * 1e9:+.1f}"
        )


def programs() -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(0)
    built: dict[str, Callable[[], object]] = {}
    A8, A4 = rng.standard_normal((4096, 4096)), rng.standard_normal((4096, 4096)).astype("f4")
    built["matmul 4096 float64"] = lambda: A8 @ A8
    built["matmul 4096 float32"] = lambda: A4 @ A4
    built["A @ A.T 4096 float64"] = lambda: A8 @ A8.T

    def newton_schulz() -> object:
        X = A8 / np.linalg.norm(A8)
        for _ in range(4):
            X = 1.5 * X - 0.5 * X @ (X.T @ X)
        return X

    built["Newton-Schulz 4096 x 4"] = newton_schulz
    S = rng.standard_normal((8192, 64))
    S = S @ S.T + 8192 * np.eye(8192)

    def blocked_cholesky() -> object:
        from scipy.linalg import solve_triangular

        L = S.copy()
        for j in range(0, 8192, 512):
            e = j + 512
            L[j:e, j:e] = np.linalg.cholesky(L[j:e, j:e])
            L[e:, j:e] = solve_triangular(L[j:e, j:e], L[e:, j:e].T, lower=True, check_finite=False).T
            L[e:, e:] -= L[e:, j:e] @ L[e:, j:e].T
        return L

    built["blocked Cholesky 8192"] = blocked_cholesky
    x8 = rng.standard_normal(4096)

    def power_iteration() -> object:
        x = x8
        for _ in range(100):
            x = A8 @ x
            x /= np.linalg.norm(x)
        return x

    built["power iteration 4096 x 100"] = power_iteration
    P = rng.standard_normal((12288, 32))
    P = P @ P.T + 12288 * np.eye(12288)

    def conjugate_gradients() -> object:
        x, r = np.zeros(12288), np.ones(12288)
        p, rr = r.copy(), r @ r
        for _ in range(50):
            Ap = P @ p
            alpha = rr / (p @ Ap)
            x += alpha * p
            r -= alpha * Ap
            rr, before = r @ r, rr
            p = r + rr / before * p
        return x

    built["CG 12288 x 50"] = conjugate_gradients
    small = rng.standard_normal((100, 100))
    built["20,000 products of 100 x 100"] = lambda: [small @ small for _ in range(20_000)]
    return built | lapack_programs(rng, A8, S[:4096, :4096])


def lapack_programs(rng: np.random.Generator, A: np.ndarray, S: np.ndarray) -> dict[str, Callable[[], object]]:
    """Return programs with 4096 x 4096 matrices, of which S is positive definite, and two statistical programs."""
    lapack_programs: dict[str, Callable[[], object]] = {}
    lapack_programs["np.linalg.solve 4096, 8 right sides"] = lambda: np.linalg.solve(A, A[:, :8])
    lapack_programs["np.linalg.inv 2048"] = lambda: np.linalg.inv(A[:2048, :2048])
    lapack_programs["np.linalg.cholesky 4096"] = lambda: np.linalg.cholesky(S)
    lapack_programs["np.linalg.eigh 4096"] = lambda: np.linalg.eigh(S)
    lapack_programs["np.linalg.svd 2048"] = lambda: np.linalg.svd(A[:2048, :2048])
    lapack_programs["np.linalg.qr 4096"] = lambda: np.linalg.qr(A)
    X, y = rng.standard_normal((20_000, 101)), rng.standard_normal(20_000)
    lapack_programs["OLS 20000 x 101 (lstsq)"] = lambda: np.linalg.lstsq(X, y, rcond=None)
    lapack_programs["OLS 20000 x 101 (pinv)"] = lambda: np.linalg.pinv(X) @ y
    points, new = rng.standard_normal((4000, 8)), rng.standard_normal((4000, 8))
    values = np.sin(points.sum(axis=1))

    def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T

    def gaussian_process() -> object:
        from scipy.linalg import cho_factor, cho_solve

        K = np.exp(-0.1 * distances(points, points))
        K[np.diag_indices(4000)] += 0.1
        factor = cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
        between = np.exp(-0.1 * distances(new, points))
        variance = 1 - np.einsum("ij,ji->i", between, cho_solve(factor, between.T, check_finite=False))
        return between @ cho_solve(factor, values, check_finite=False), variance

    lapack_programs["Gaussian process of 4,000 points"] = gaussian_process
    return lapack_programs


def without_gain() -> dict[str, Callable[[], object]]:
    """Return programs whose calls are too small, or whose arrays change each time."""
    rng = np.random.default_rng(0)
    built: dict[str, Callable[[], object]] = {}
    a, b = rng.standard_normal((60, 60)), rng.standard_normal(60)
    built["20,000 products of 60 x 60"] = lambda: [a @ a for _ in range(20_000)]
    built["60,000 products of 60 x 60 and a vector"] = lambda: [a @ b for _ in range(60_000)]
    points, centres = rng.standard_normal((40_000, 16)), rng.standard_normal((32, 16))

    def k_means(chunk: int) -> object:
        now = centres.copy()
        for _ in range(8):
            nearest = np.concatenate([
                ((now**2).sum(1) - 2 * points[i : i + chunk] @ now.T).argmin(1) for i in range(0, len(points), chunk)
            ])  # fmt: skip
            sums = np.stack([np.bincount(nearest, points[:, j], len(now)) for j in range(points.shape[1])], 1)
            now = sums / np.maximum(np.bincount(nearest, minlength=len(now)), 1)[:, None]
        return now

    built["k-means 40,000 x 16, 32 centres, chunks of 256"] = lambda: k_means(256)
    built["k-means 40,000 x 16, 32 centres, in one product"] = lambda: k_means(40_000)
    A, x = rng.standard_normal((1100, 1100)), rng.standard_normal(1100)

    def changes() -> object:
        y = x
        for i in range(60):
            A[:, i] *= 1.0001
            A[i] += 0.0
            y = A @ y / 40
        return y

    built["1100 x 1100 and a vector, written in between"] = changes
    built["1100 x 1100 and a vector, unchanged"] = lambda: [A @ x for _ in range(150)]

    def solves() -> object:
        for n in (50, 100, 200):
            np.linalg.solve(A[:n, :n], x[:n])
            np.linalg.eigh(A[:n, :n] + A[:n, :n].T)
        return None

    built["solve and eigh of 50 ... 200"] = solves
    table = rng.standard_normal((2000, 30))
    groups = rng.integers(0, 200, 2000)

    def by_group() -> object:
        return [np.linalg.lstsq(table[groups == g][:, :5], table[groups == g][:, 5], rcond=None)[0] for g in range(200)]

    built["200 regressions of groups of a table"] = by_group
    return built


def cost(times: int = 5) -> None:
    """Measure the cost of hooks for programs that gain nothing, with `run`'s hooks but no device, in the order ABBA."""
    calls: list[int] = []
    for name, program in without_gain().items():

        def plain(program: Callable[[], object] = program) -> float:
            begun = perf_counter()
            program()
            return perf_counter() - begun

        def hooked(program: Callable[[], object] = program) -> float:
            with accelerate("cuda:0", only_count=True, lines=False) as on:
                took = plain(program)
            calls.append(on.report.calls)
            return took

        plain(), hooked()
        pairs = []
        for _ in range(times):
            first, second, third, fourth = plain(), hooked(), hooked(), plain()
            pairs.append(((second + third) / (first + fourth), first))
        ratios = [ratio for ratio, _ in pairs]
        spread = f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        took = median(first for _, first in pairs) * 1e3
        print(f"{name}: {took:.1f} ms, with hooks {spread} of that; {calls[-1]} calls were not small")


def calibration(device: Device) -> None:
    """Measure the rates of an open device, including the loading of its libraries, as `accelerate` does."""
    begun = perf_counter()
    _core.accelerate_calibrate(device.number)
    print(f"measuring the rates of {device}: {perf_counter() - begun:.2f} s (at most 1)")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", default="", help="a part of the programs' names")
    options = parser.parse_args()
    install()
    hook()
    cost()
    if not options.device:
        return
    calibration(Device(options.device))
    with accelerate(options.device, margin=0):
        np.ones((64, 64)) @ np.ones((64, 65))  # opens the device, and loads its libraries
        np.linalg.cholesky(np.eye(64))
    chosen = {name: program for name, program in programs().items() if options.only in name}
    for name, program in chosen.items():
        program()
        with accelerate(options.device):
            program()
        plain, sent, again = [], [], []
        for _ in range(options.times):
            begun = perf_counter()
            program()
            plain.append(perf_counter() - begun)
            with accelerate(options.device) as on:
                begun = perf_counter()
                program()
                sent.append(perf_counter() - begun)
                gone, calls = on.report.gone, on.report.calls
                begun = perf_counter()
                program()
                again.append(perf_counter() - begun)
        cpu, first, second = (median(times) for times in (plain, sent, again))
        print(
            f"{name}: {cpu * 1e3:.1f} ms, accelerated {first * 1e3:.1f} ms ({first / cpu:.2f}), "
            f"again {second * 1e3:.1f} ms ({second / cpu:.2f}); {gone} of {calls} calls went",
            flush=True,
        )


if __name__ == "__main__":
    main()
