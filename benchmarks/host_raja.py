"""Compares the RAJA kernels in Python on one core of the CPU with plain loops that g++ compiles.

    python benchmarks/host_raja.py [--sizes 12 17] [--seconds 1]

A kernel's function is called in a loop of C, without a launch, for all blocks. A figure is the ratio of its time to the
plain loop's time; each is the best time of short alternating rounds. Results are compared. `dot` and `reduce3` are one
launch of blocks of 256 threads with shared memory and barriers.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from raja_kernels import BLOCK, SIGNATURES
from raja_numpy import E_CUT, E_MIN, EOSVMAX, P_CUT, P_MIN, Q_CUT, RHO0
from raja_python import KERNELS

from offload_args import Device, InOut, Out
from offload_args.kernels.compilers import target_of

SOURCE = """\
#include <math.h>
#include <time.h>
#define IN const double *__restrict__
#define OUT double *__restrict__
#define LOOP(name, body, ...) extern "C" void name(__VA_ARGS__, long n) { for (long i = 0; i < n; i++) { body; } }

static inline double viscosity(double pbvc, double e, double v, double bvc, double p, double rho0, double ql,
                               double qq) {
  const double squared = (pbvc * e + v * v * bvc * p) / rho0;
  return (squared <= 0.1111111e-36 ? 0.3333333e-18 : sqrt(squared)) * ql + qq;
}
static inline double cut(double e, double e_cut, double e_min) {
  if (fabs(e) < e_cut) e = 0;
  return e < e_min ? e_min : e;
}
LOOP(daxpy, y[i] += a * x[i], OUT y, IN x, double a)
LOOP(muladdsub, p[i] = x[i] * y[i]; s[i] = x[i] + y[i]; d[i] = x[i] - y[i], OUT p, OUT s, OUT d, IN x, IN y)
LOOP(copy, c[i] = a[i], OUT c, IN a)
LOOP(mul, b[i] = alpha * c[i], OUT b, IN c, double alpha)
LOOP(add, c[i] = a[i] + b[i], OUT c, IN a, IN b)
LOOP(triad, a[i] = b[i] + alpha * c[i], OUT a, IN b, IN c, double alpha)
LOOP(pressure1, bvc[i] = cls * (compression[i] + 1), OUT bvc, IN compression, double cls)
LOOP(pressure2, double p = bvc[i] * e_old[i]; if (fabs(p) < p_cut) p = 0; if (vnewc[i] >= most) p = 0;
     p_new[i] = p < p_min ? p_min : p, OUT p_new, IN bvc, IN e_old, IN vnewc, double p_cut, double p_min, double most)
LOOP(energy1, e[i] = e_old[i] - 0.5 * delvc[i] * (p_old[i] + q_old[i]) + 0.5 * work[i],
     OUT e, IN e_old, IN delvc, IN p_old, IN q_old, IN work)
LOOP(energy2, q[i] = delvc[i] > 0 ? 0 : viscosity(pbvc[i], e[i], 1 / (1 + comp[i]), bvc[i], p[i], rho0, ql[i], qq[i]),
     OUT q, IN delvc, IN comp, IN pbvc, IN e, IN bvc, IN p, IN ql, IN qq, double rho0)
LOOP(energy3, e[i] += 0.5 * delvc[i] * (3 * (p_old[i] + q_old[i]) - 4 * (p[i] + q[i])),
     OUT e, IN delvc, IN p_old, IN q_old, IN p, IN q)
LOOP(energy4, e[i] = cut(e[i] + 0.5 * work[i], e_cut, e_min), OUT e, IN work, double e_cut, double e_min)
LOOP(energy5,
     const double other = delvc[i] > 0 ? 0 : viscosity(pbvc[i], e[i], v[i], bvc[i], p_new[i], rho0, ql[i], qq[i]);
     const double change = 7 * (p_old[i] + q_old[i]) - 8 * (p[i] + q[i]) + (p_new[i] + other);
     e[i] = cut(e[i] - change * delvc[i] / 6, e_cut, e_min),
     OUT e, IN delvc, IN pbvc, IN v, IN bvc, IN p_new, IN ql, IN qq, IN p_old, IN q_old, IN p, IN q, double rho0,
     double e_cut, double e_min)
LOOP(energy6, if (delvc[i] <= 0) {
       const double other = viscosity(pbvc[i], e[i], v[i], bvc[i], p_new[i], rho0, ql[i], qq[i]);
       q[i] = fabs(other) < q_cut ? 0 : other;
     }, OUT q, IN delvc, IN pbvc, IN e, IN v, IN bvc, IN p_new, IN ql, IN qq, double rho0, double q_cut)
extern "C" void dot(OUT sum, IN a, IN b, long n) {
  double mine = 0;
  for (long i = 0; i < n; i++) mine += a[i] * b[i];
  *sum = mine;
}
extern "C" void reduce3(int *__restrict__ result, const int *__restrict__ x, long n) {
  int sum = 0, least = 2147483647, most = -2147483647 - 1;
  for (long i = 0; i < n; i++) {
    sum += x[i];
    least = x[i] < least ? x[i] : least;
    most = x[i] > most ? x[i] : most;
  }
  result[0] = sum, result[1] = least, result[2] = most;
}
static double now() {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
extern "C" double seconds(void (*kernel)(const void *), const void *call, int repeats) {
  const double begun = now();
  for (int i = 0; i < repeats; i++) kernel(call);
  return now() - begun;
}
"""
NUMBERS: dict[str, tuple[float, ...]] = {
    "daxpy": (1e-6,), "mul": (0.3,), "triad": (0.3,), "pressure1": (2 / 3,), "pressure2": (P_CUT, P_MIN, EOSVMAX),
    "energy2": (RHO0,), "energy4": (E_CUT, E_MIN), "energy5": (RHO0, E_CUT, E_MIN), "energy6": (RHO0, Q_CUT),
}  # fmt: skip
LOOPS = [name for name in SIGNATURES if name not in ("dot", "total", "reduce3", "total3")]


class Call(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("first", ctypes.c_longlong),
        ("last", ctypes.c_longlong), ("arguments", ctypes.POINTER(ctypes.c_void_p)), ("shared", ctypes.c_void_p),
        ("shared_bytes", ctypes.c_longlong),
    ]  # fmt: skip


def plain_library(folder: str, options: list[str]) -> ctypes.CDLL:
    source, library = Path(folder, "plain.cpp"), Path(folder, "plain.so")
    calls = []
    for name in (*LOOPS, "dot", "reduce3"):
        # Each function takes the places of its arguments, as a kernel does.
        arrays = [d for d in SIGNATURES[name][:-1] if d is not np.float64]
        kinds = ["int *" if getattr(d, "dtype", None) == np.int32 else "double *" for d in arrays]
        values = [f"*({kind} *)at[{k}]" for k, kind in enumerate(kinds)]
        values += [f"*(double *)at[{len(kinds) + k}]" for k in range(len(NUMBERS.get(name, ())))]
        calls.append(f'extern "C" void plain_{name}(const void *call) {{ void *const *at = *(void *const **)((char *)'
                     f"call + 40); {name}({', '.join(values)}, *(long *)at[{len(values)}]); }}")  # fmt: skip
    source.write_text(SOURCE + "\n".join(calls))
    command = ["g++", "-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", *options, "-shared", "-fPIC"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.seconds.restype = ctypes.c_double
    return loaded


def arguments_of(name: str, size: int, parts: int) -> list[Any]:
    rng = np.random.default_rng(1)
    arrays: list[Any] = []
    for declared in SIGNATURES[name][:-1]:
        if declared is np.float64:
            continue
        if name == "reduce3":
            shape: Any = (parts, 3) if declared.direction is Out else size
            arrays.append(rng.integers(-100, 100, shape).astype(np.int32))
        else:
            written = declared.direction in (Out, InOut)
            arrays.append(rng.uniform(-1, 1, parts if name == "dot" and written else size))
    if name == "energy2":
        arrays[2] += 2  # comp_half
    return [*arrays, *NUMBERS.get(name, ())]


def places_of(values: list[Any], last: list[int]) -> Any:
    """Return the places of arguments, and the objects that keep these places alive."""
    keep: list[Any] = []
    for value in values:
        is_array = isinstance(value, np.ndarray)
        keep.append(ctypes.c_void_p(value.ctypes.data) if is_array else ctypes.c_double(value))
    keep += [ctypes.c_int64(number) for number in last]
    return (ctypes.c_void_p * len(keep))(*map(ctypes.addressof, keep)), (keep, values)


def shapes_of(values: list[Any]) -> list[int]:
    numbers: list[int] = []
    for value in values:
        if isinstance(value, np.ndarray):
            columns = value.shape[1] if value.ndim == 2 else 1
            numbers += [value.shape[0], columns, columns if value.ndim == 2 else 1, 1]
    return numbers


def ratio(library: Any, folder: str, name: str, size: int, parts: int, limit: float) -> float:
    image = KERNELS[name]._source.compiled(target_of(Device.host()))
    path = Path(folder, f"{name}-{size}-{parts}.so")  # a loaded file must not be written again
    path.write_bytes(image.data)
    symbol = f"oa_kernel_{image.symbols.get(KERNELS[name].name, KERNELS[name].name)}"
    ours = ctypes.cast(getattr(ctypes.CDLL(str(path)), symbol), ctypes.c_void_p)
    plain = ctypes.cast(getattr(library, f"plain_{name}"), ctypes.c_void_p)
    blocks = parts if name in ("dot", "reduce3") else -(-size // BLOCK)
    values, others = arguments_of(name, size, parts), arguments_of(name, size, parts)
    places, keep = places_of(values, shapes_of(values))
    other_places, other_keep = places_of(others, [size])
    three = ctypes.c_uint * 3
    call = Call(three(blocks, 1, 1), three(BLOCK, 1, 1), 0, blocks, places, None, 0)
    other = Call(three(1, 1, 1), three(1, 1, 1), 0, 1, other_places, None, 0)

    def timed(function: Any, to: Call, repeats: int) -> float:
        return float(library.seconds(function, ctypes.byref(to), repeats)) / repeats

    timed(ours, call, 1), timed(plain, other, 1)
    written = len([d for d in SIGNATURES[name][:-1] if getattr(d, "direction", None) in (Out, InOut)])
    for mine, wanted in zip(values[:written], others[:written], strict=True):
        if name == "dot":
            mine, wanted = mine.sum(), wanted[0]
        if name == "reduce3":
            mine, wanted = [mine[:, 0].sum(), mine[:, 1].min(), mine[:, 2].max()], wanted[0]
        np.testing.assert_allclose(mine, wanted, rtol=1e-12, atol=1e-12)
    repeats = max(1, int(2e-4 / min(timed(plain, other, 1) for _ in range(3))))
    pairs, until = [], time.perf_counter() + limit
    while len(pairs) < 5 or (len(pairs) < 300 and time.perf_counter() < until):
        pairs.append((timed(ours, call, repeats), timed(plain, other, repeats)))
    del keep, other_keep
    return min(mine for mine, _ in pairs) / min(theirs for _, theirs in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[12, 17], help="powers of 2")
    parser.add_argument("--seconds", type=float, default=1, help="at most, of a figure")
    parser.add_argument("--only", nargs="*", default=[*LOOPS, "dot", "reduce3"])
    parser.add_argument("--parts", type=int, nargs="*", default=[1, 1024], help="blocks of the reductions")
    parser.add_argument("--options", nargs="*", default=[], help="more options for g++")
    options = parser.parse_args()
    print(f"| kernel | {' | '.join(f'2^{power}' for power in options.sizes)} |\n|---{'|---:' * len(options.sizes)}|")
    with tempfile.TemporaryDirectory() as folder:
        library = plain_library(folder, options.options)
        for name in options.only:
            is_reduction = name in ("dot", "reduce3")
            for parts in options.parts if is_reduction else [1]:
                cells = [ratio(library, folder, name, 1 << power, parts, options.seconds) for power in options.sizes]
                title = f"{name}, {parts} blocks" if is_reduction else name
                print(f"| {title} | {' | '.join(f'{cell:.2f}' for cell in cells)} |", flush=True)


if __name__ == "__main__":
    main()
