"""The kernels of raja_kernels.py in Python. Kernels without exchange between threads are formulas.

They take the arguments of the kernels in C++, except the last one, the size, because an array has its size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from raja_kernels import BLOCK

from offload_args import In, InOut, Out, kernel
from offload_args.kernels import Linear1D, PerBlock, RowBlocks, barrier, elementwise, here, shared

# mypy: disable-error-code="misc, valid-type, no-untyped-def"

READ, WRITTEN, BOTH, REAL = In[np.float64], Out[np.float64], InOut[np.float64], np.float64
LEAST, MOST = -(2**31), 2**31 - 1


@kernel.function
def viscosity(pbvc, e, v, bvc, p, rho0, ql, qq):
    squared = (pbvc * e + v * v * bvc * p) / rho0
    return (0.3333333e-18 if squared <= 0.1111111e-36 else np.sqrt(squared)) * ql + qq


@kernel.function
def cut(e, e_cut, e_min):
    kept = 0.0 if abs(e) < e_cut else e
    return e_min if kept < e_min else kept


@kernel(debug=False)
def dot(sums: Out[np.float64].by(PerBlock()), a: In[np.float64], b: In[np.float64]):
    part = shared(BLOCK, np.float64)
    mine = 0.0
    for i in range(here.index(), a.size, here.size()):
        mine += a[i] * b[i]
    part[here.thread()] = mine
    half = BLOCK // 2
    while half > 0:
        barrier()
        if here.thread() < half:
            part[here.thread()] += part[here.thread() + half]
        half //= 2
    barrier()
    for i in sums.mine():
        sums[i] = part[0]


@kernel(debug=False)
def total(sums: Out[np.float64].by(PerBlock()), a: In[np.float64]):
    part = shared(BLOCK, np.float64)
    mine = 0.0
    for i in range(here.index(), a.size, here.size()):
        mine += a[i]
    part[here.thread()] = mine
    half = BLOCK // 2
    while half > 0:
        barrier()
        if here.thread() < half:
            part[here.thread()] += part[here.thread() + half]
        half //= 2
    barrier()
    for i in sums.mine():
        sums[i] = part[0]


def formula(text: str, arrays: str, numbers: str = "") -> Any:
    """Return a kernel of a formula.

    `arrays` names the written arrays first. A name after = is only written, and a name after + is also read.
    """
    types: dict[str, Any] = {}
    for name in arrays.split():
        kind = {"=": WRITTEN, "+": BOTH}.get(name[0], READ)
        types[name.lstrip("=+")] = kind
    return elementwise(text, **types, **dict.fromkeys(numbers.split(), REAL))


KERNELS: dict[str, Any] = {
    "daxpy": formula("y = y + a * x", "+y x", "a"),
    "muladdsub": formula("times = x * y; plus = x + y; minus = x - y", "=times =plus =minus x y"),
    "copy": formula("c = a", "=c a"),
    "mul": formula("b = alpha * c", "=b c", "alpha"),
    "add": formula("c = a + b", "=c a b"),
    "triad": formula("a = b + alpha * c", "=a b c", "alpha"),
    "dot": dot,
    "total": total,
    "pressure1": formula("bvc = cls * (compression + 1)", "=bvc compression", "cls"),
    "pressure2": formula(
        "p = bvc * e_old; p = 0.0 if abs(p) < p_cut else p; p = 0.0 if vnewc >= eosvmax else p; "
        "p_new = p_min if p < p_min else p",
        "=p_new bvc e_old vnewc", "p_cut p_min eosvmax",
    ),
    "energy1": formula(
        "e_new = e_old - 0.5 * delvc * (p_old + q_old) + 0.5 * work", "=e_new e_old delvc p_old q_old work"
    ),
    "energy2": formula(
        "q_new = 0.0 if delvc > 0 else viscosity(pbvc, e_new, 1 / (1 + comp_half), bvc, p_half, rho0, ql_old, qq_old)",
        "=q_new delvc comp_half pbvc e_new bvc p_half ql_old qq_old", "rho0",
    ),
    "energy3": formula(
        "e_new = e_new + 0.5 * delvc * (3 * (p_old + q_old) - 4 * (p_half + q_new))",
        "+e_new delvc p_old q_old p_half q_new",
    ),
    "energy4": formula("e_new = cut(e_new + 0.5 * work, e_cut, e_min)", "+e_new work", "e_cut e_min"),
    "energy5": formula(
        "q = 0.0 if delvc > 0 else viscosity(pbvc, e_new, vnewc, bvc, p_new, rho0, ql_old, qq_old); "
        "change = 7 * (p_old + q_old) - 8 * (p_half + q_new) + (p_new + q); "
        "e_new = cut(e_new - change * delvc / 6, e_cut, e_min)",
        "+e_new delvc pbvc vnewc bvc p_new ql_old qq_old p_old q_old p_half q_new", "rho0 e_cut e_min",
    ),
    "energy6": formula(
        "q = viscosity(pbvc, e_new, vnewc, bvc, p_new, rho0, ql_old, qq_old); "
        "q_new = q_new if delvc > 0 else (0.0 if abs(q) < q_cut else q)",
        "+q_new delvc pbvc e_new vnewc bvc p_new ql_old qq_old", "rho0 q_cut",
    ),
}  # fmt: skip


@kernel(debug=False)
def reduce3(results: Out[np.int32].by(RowBlocks(1)), x: In[np.int32]):
    part = shared((BLOCK, 3), np.int32)
    least, most, added, t = np.int32(MOST), np.int32(LEAST), np.int32(0), here.thread()
    for i in range(here.index(), x.size, here.size()):
        added += x[i]
        least = min(least, x[i])
        most = max(most, x[i])
    part[t, 0] = added
    part[t, 1] = least
    part[t, 2] = most
    half = BLOCK // 2
    while half > 0:
        barrier()
        if t < half:
            part[t, 0] += part[t + half, 0]
            part[t, 1] = min(part[t, 1], part[t + half, 1])
            part[t, 2] = max(part[t, 2], part[t + half, 2])
        half //= 2
    barrier()
    for i, j in results.mine():
        results[i, j] = part[0, j]


@kernel(debug=False)
def total3(result: Out[np.int32].by(Linear1D()), x: In[np.int32]):
    part = shared((BLOCK, 3), np.int32)
    least, most, added, t = np.int32(MOST), np.int32(LEAST), np.int32(0), here.thread()
    for i in range(here.index(), x.shape[0], here.size()):
        added += x[i, 0]
        least = min(least, x[i, 1])
        most = max(most, x[i, 2])
    part[t, 0] = added
    part[t, 1] = least
    part[t, 2] = most
    half = BLOCK // 2
    while half > 0:
        barrier()
        if t < half:
            part[t, 0] += part[t + half, 0]
            part[t, 1] = min(part[t, 1], part[t + half, 1])
            part[t, 2] = max(part[t, 2], part[t + half, 2])
        half //= 2
    barrier()
    for i in result.mine():
        result[i] = part[0, i]


KERNELS |= {"reduce3": reduce3, "total3": total3}
