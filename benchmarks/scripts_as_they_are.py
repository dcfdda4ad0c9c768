"""Measure unmodified programs: the cost of hooks, and the times of NumPy and SciPy programs with `accelerate` on a GPU.

    python benchmarks/scripts_as_they_are.py [--device cuda:0] [--only Gaussian] [--programs]

Without --device, it measures the cost of a hook and of writing the tables, in seconds of the CPU, and the loss of
programs without a gain, with hooks that decide but send nothing: ABBA, medians of five. With a device, it also measures
the seconds for the device's rates, and each program with and without acceleration, in turns; it prints medians and
their ratio. "again" is the program's second run in the same block of `accelerate`, after one that has sent its
matrices. If CuPy is installed, it also measures the same program rewritten for CuPy, from and to NumPy: each array goes
up once. All results are compared with NumPy's. It takes some minutes on a GPU and 16 cores; with --programs it skips
what needs no device.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from statistics import median
from time import perf_counter, sleep, thread_time
from typing import Any, NamedTuple

import numpy as np
from timing import cupy_for

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


REST = 0.15  # seconds in which threads of NumPy's BLAS, which spin after a product, go to sleep
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


class Program(NamedTuple):
    """A program as a user writes it, of a module (NumPy or CuPy) and of arrays, which may be large."""

    compute: Callable[..., Any]  # of the module and the arrays
    arrays: Callable[[], tuple[np.ndarray, ...]] = tuple
    tolerance: float = 1e-8  # the largest difference of results, relative to the largest element
    by_cupy: bool = True
    compared: Callable[[Any], Any] = lambda result: result  # the arrays to compare, without the freedom of signs


class CuPySolvers:
    """The functions of scipy.linalg that the programs call, with CuPy, which lacks two of them."""

    def __init__(self, cupy: Any) -> None:
        from cupyx.scipy.linalg import solve_triangular

        self.cupy, self.solve_triangular = cupy, solve_triangular

    def cho_factor(self, a: Any, **_: object) -> Any:
        return self.cupy.linalg.cholesky(a)

    def cho_solve(self, factor: Any, b: Any, **_: object) -> Any:
        half = self.solve_triangular(factor, b, lower=True)
        return self.solve_triangular(factor, half, trans="T", lower=True, overwrite_b=True)


def solvers(xp: Any) -> Any:
    if xp is not np:
        return CuPySolvers(xp)
    import scipy.linalg

    return scipy.linalg


@cache
def general(n: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, n))


@cache
def definite(n: int, rank: int) -> np.ndarray:
    S = np.random.default_rng(1).standard_normal((n, rank))
    return S @ S.T + n * np.eye(n)


def newton_schulz(xp: Any, A: Any) -> Any:
    X = A / xp.linalg.norm(A)
    for _ in range(4):
        X = 1.5 * X - 0.5 * X @ (X.T @ X)
    return X


def blocked_cholesky(xp: Any, S: Any) -> Any:
    linalg, n = solvers(xp), len(S)
    L = S.copy()
    for j in range(0, n, n // 16):
        e = j + n // 16
        L[j:e, j:e] = xp.linalg.cholesky(L[j:e, j:e])
        if e < n:
            L[e:, j:e] = linalg.solve_triangular(L[j:e, j:e], L[e:, j:e].T, lower=True, check_finite=False).T
            L[e:, e:] -= L[e:, j:e] @ L[e:, j:e].T
    return L


def power_iteration(xp: Any, A: Any, x: Any) -> Any:
    for _ in range(100):
        x = A @ x
        x /= xp.linalg.norm(x)
    return x


def conjugate_gradients(xp: Any, P: Any) -> Any:
    x, r = xp.zeros(len(P)), xp.ones(len(P))
    p, rr = r.copy(), r @ r
    for _ in range(50):
        Ap = P @ p
        alpha = rr / (p @ Ap)
        x += alpha * p
        r -= alpha * Ap
        rr, before = r @ r, rr
        p = r + rr / before * p
    return x


def distances(a: Any, b: Any) -> Any:
    return (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T


def gaussian_process(xp: Any, points: Any, values: Any, new: Any) -> Any:
    linalg = solvers(xp)
    K = xp.exp(-0.1 * distances(points, points))
    K[xp.diag_indices(len(K))] += 0.1
    factor = linalg.cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
    between = xp.exp(-0.1 * distances(new, points))
    variance = 1 - xp.einsum("ij,ji->i", between, linalg.cho_solve(factor, between.T, check_finite=False))
    return between @ linalg.cho_solve(factor, values, check_finite=False), variance


def programs(smaller: int) -> dict[str, Program]:
    """Return the programs, with all sizes divided by a number."""
    n, half, twice, thrice = 4096 // smaller, 2048 // smaller, 8192 // smaller, 12288 // smaller
    rng = np.random.default_rng(2)
    x, small = rng.standard_normal(n), rng.standard_normal((100, 100))
    X, y = rng.standard_normal((20_000 // smaller, 101)), rng.standard_normal(20_000 // smaller)
    points, new = rng.standard_normal((2, 4000 // smaller, 8))
    values = np.sin(points.sum(axis=1))

    def A() -> tuple[np.ndarray, ...]:
        return (general(n),)

    def part() -> tuple[np.ndarray, ...]:
        return (general(n)[:half, :half],)

    def S() -> tuple[np.ndarray, ...]:
        return (definite(twice, 64)[:n, :n],)

    return {
        f"matmul {n} float64": Program(lambda xp, A: A @ A, A),
        f"matmul {n} float32": Program(lambda xp, A: A @ A, lambda: (general(n).astype("f4"),), 1e-4),
        f"A @ A.T {n} float64": Program(lambda xp, A: A @ A.T, A),
        f"Newton-Schulz {n} x 4": Program(newton_schulz, A),
        f"blocked Cholesky {twice}": Program(blocked_cholesky, lambda: (definite(twice, 64),)),
        f"power iteration {n} x 100": Program(power_iteration, lambda: (general(n), x)),
        f"CG {thrice} x 50": Program(conjugate_gradients, lambda: (definite(thrice, 32),)),
        "20,000 products of 100 x 100": Program(lambda xp: [small @ small for _ in range(20_000)][-1], by_cupy=False),
        f"np.linalg.solve {n}, 8 right sides": Program(lambda xp, A: xp.linalg.solve(A, A[:, :8] + 1), A),
        f"np.linalg.inv {half}": Program(lambda xp, A: xp.linalg.inv(A), part),
        f"np.linalg.cholesky {n}": Program(lambda xp, S: xp.linalg.cholesky(S), S),
        f"np.linalg.eigh {n}": Program(
            lambda xp, S: xp.linalg.eigh(S), S, compared=lambda wv: (wv[0], wv[1][:64] * wv[0] @ wv[1].T)
        ),
        f"np.linalg.svd {half}": Program(
            lambda xp, A: xp.linalg.svd(A), part, compared=lambda usv: (usv[1], usv[0][:64] * usv[1] @ usv[2])
        ),
        f"np.linalg.qr {n}": Program(
            lambda xp, A: xp.linalg.qr(A), A, compared=lambda qr: (np.abs(qr[1]), qr[0][:64] @ qr[1])
        ),
        f"OLS {len(X)} x 101 (lstsq)": Program(lambda xp, X, y: xp.linalg.lstsq(X, y, rcond=None)[0], lambda: (X, y)),
        f"OLS {len(X)} x 101 (pinv)": Program(lambda xp, X, y: xp.linalg.pinv(X) @ y, lambda: (X, y)),
        f"Gaussian process of {len(points):,} points": Program(gaussian_process, lambda: (points, values, new)),
    } | scikit_learn_programs(smaller)


def scikit_learn_programs(smaller: int) -> dict[str, Program]:
    """Return programs with scikit-learn, if it is installed; KMeans calls BLAS in threads."""
    if not find_spec("sklearn"):
        return {}
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.linear_model import Ridge

    def table(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
        X = np.random.default_rng(3).standard_normal((rows // smaller, columns))
        return X, np.sin(X[:, :8].sum(axis=1))

    def sklearn(name: str, rows: int, columns: int, compute: Callable[..., Any]) -> tuple[str, Program]:
        program = Program(compute, lambda: table(rows, columns), 1e-6, by_cupy=False)
        return f"sklearn {name}, {rows // smaller} x {columns}", program

    def gaussian(xp: Any, X: Any, y: Any) -> Any:
        return GaussianProcessRegressor(alpha=0.1, optimizer=None).fit(X, y).predict(X[:1000], return_std=True)

    def kernel_ridge(xp: Any, X: Any, y: Any) -> Any:
        return KernelRidge(alpha=0.1, kernel="rbf").fit(X, y).predict(X)

    def k_means(xp: Any, X: Any, y: Any) -> Any:
        return KMeans(32, init=X[:32], n_init=1, max_iter=20).fit(X).inertia_

    return dict([
        sklearn("PCA, full SVD", 8000, 1000, lambda xp, X, y: PCA(svd_solver="full").fit(X).explained_variance_),
        sklearn("Ridge, Cholesky", 50_000, 500, lambda xp, X, y: Ridge(solver="cholesky").fit(X, y).coef_),
        sklearn("GaussianProcessRegressor", 3000, 8, gaussian),
        sklearn("KernelRidge", 4000, 8, kernel_ridge),
        sklearn("KMeans of 32", 40_000, 64, k_means),
    ])  # fmt: skip


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


def flat(result: Any) -> list[Any]:
    return [array for each in result for array in flat(each)] if isinstance(result, (tuple, list)) else [result]


def check(name: str, program: Program, actual: Any, expected: Any) -> None:
    """Raise if results differ by more than rounding."""
    for array, right in zip(flat(program.compared(actual)), flat(program.compared(expected)), strict=True):
        difference, size = np.abs(array - right).max(), np.abs(right).max()
        if not difference <= program.tolerance * size:
            raise SystemExit(f"{name}: results differ by {difference:.2g} of {size:.2g}")


def timed(call: Callable[[], Any], times: list[float]) -> Any:
    begun = perf_counter()
    result = call()
    times.append(perf_counter() - begun)
    return result


def measure(name: str, program: Program, device: str, cupy: Any, times: int) -> str:
    """Return a row of the table: medians of a program without and with `accelerate`, and with CuPy, in turns."""
    arrays = program.arrays()

    def as_it_is() -> Any:
        return program.compute(np, *arrays)

    def with_cupy() -> Any:  # from and to NumPy; each array goes up once
        return [cupy.asnumpy(each) for each in flat(program.compute(cupy, *map(cupy.asarray, arrays)))]

    expected = as_it_is()
    plain: list[float] = []
    sent, again, theirs = plain[:], plain[:], plain[:]
    with accelerate(device):
        check(name, program, as_it_is(), expected)
    if cupy and program.by_cupy:
        result = with_cupy()
        check(f"{name}, CuPy", program, result if len(result) > 1 else result[0], expected)
        del result
    del expected
    for _ in range(times):
        timed(as_it_is, plain)
        sleep(REST)
        with accelerate(device) as on:
            timed(as_it_is, sent)
            gone, calls = on.report.gone, on.report.calls
            timed(as_it_is, again)
        if cupy and program.by_cupy:
            sleep(REST)
            timed(with_cupy, theirs)
    cpu, first, second = (median(taken) for taken in (plain, sent, again))
    row = [name, *(f"{seconds * 1e3:.1f}" for seconds in (cpu, first, second))]
    row += [f"{first / cpu:.2f}", f"{second / cpu:.2f}", f"{gone} of {calls}"]
    if cupy:
        other = median(theirs) if theirs else 0
        row += [f"{other * 1e3:.1f}", f"{first / other:.2f}", f"{second / other:.2f}"] if other else [""] * 3
    return "| " + " | ".join(row) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--device")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", default="", help="a regular expression of the programs' names")
    parser.add_argument("--programs", action="store_true", help="measure the programs only, and not the cost of hooks")
    parser.add_argument("--smaller", type=int, default=1, help="a number that divides all sizes, for a trial")
    options = parser.parse_args()
    if not options.programs:
        install()
        hook()
        cost()
    if not options.device:
        return
    device = Device(options.device)
    calibration(device)
    with accelerate(options.device, margin=0):
        np.ones((64, 64)) @ np.ones((64, 65))  # opens the device, and loads its libraries
        np.linalg.cholesky(np.eye(64))
    cupy = cupy_for(device)
    titles = ["program, ms", "CPU", "accelerated", "again", "over the CPU", "again", "calls that went"]
    titles += ["CuPy", "over CuPy", "again"] if cupy else []
    print("| " + " | ".join(titles) + " |\n|---" + "|---:" * (len(titles) - 1) + "|", flush=True)
    for name, program in programs(options.smaller).items():
        if re.search(options.only, name):
            print(measure(name, program, options.device, cupy, options.times), flush=True)


if __name__ == "__main__":
    main()
