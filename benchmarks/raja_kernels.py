"""Ten kernels of the RAJA Performance Suite, written from its descriptions, with one source for GPUs and for the CPU.

Basic: DAXPY, MULADDSUB, REDUCE3_INT. Stream: COPY, MUL, ADD, TRIAD, DOT. Apps: PRESSURE (two launches), ENERGY (six).
The first launch of a reduction has a result for each of its blocks; the second launch has one block, which reduces
these results.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from offload_args import Device, In, InOut, Kernel, Out

BLOCK = 256  # threads of a block
PARTS = 1024  # blocks of the first launch of a reduction

SOURCE = """\
#include <offload_args/kernel.h>
#ifndef BLOCK
#define BLOCK 256
#endif

OA_KERNEL(daxpy, oa::InOut<double> y, oa::In<double> x, double a, int n) {
  for (auto element : y.mine(oa::Linear1D(n), here)) *element += a * x[element.index()];
}

OA_KERNEL(muladdsub, oa::Out<double> product, oa::Out<double> sum, oa::Out<double> difference, oa::In<double> x,
          oa::In<double> y, int n) {
  const oa::Linear1D all(n);
  for (auto times : product.mine(all, here))
    for (auto plus : sum.mine(all, here))
      for (auto minus : difference.mine(all, here)) {
        const double a = x[times.index()], b = y[times.index()];
        *times = a * b;
        *plus = a + b;
        *minus = a - b;
      }
}

OA_KERNEL(copy, oa::Out<double> c, oa::In<double> a, int n) {
  for (auto element : c.mine(oa::Linear1D(n), here)) *element = a[element.index()];
}

OA_KERNEL(mul, oa::Out<double> b, oa::In<double> c, double alpha, int n) {
  for (auto element : b.mine(oa::Linear1D(n), here)) *element = alpha * c[element.index()];
}

OA_KERNEL(add, oa::Out<double> c, oa::In<double> a, oa::In<double> b, int n) {
  for (auto element : c.mine(oa::Linear1D(n), here)) *element = a[element.index()] + b[element.index()];
}

OA_KERNEL(triad, oa::Out<double> a, oa::In<double> b, oa::In<double> c, double alpha, int n) {
  for (auto element : a.mine(oa::Linear1D(n), here)) *element = b[element.index()] + alpha * c[element.index()];
}

// -- reductions, in blocks of BLOCK ----------------------------------------------------------------------------------

OA_FUNCTION void add_up(const oa::Block &here, double *part) {
  for (int half = BLOCK / 2; half > 0; half /= 2)
    here.phase([&](const oa::Here &here) {
      if (here.thread() < half) part[here.thread()] += part[here.thread() + half];
    });
}

OA_BLOCK_KERNEL(dot, oa::Out<double> sums, oa::In<double> a, oa::In<double> b, int n) {
  OA_SHARED double part[BLOCK];
  here.phase([&](const oa::Here &here) {
    double mine = 0;
    for (int i = here.index(), step = here.size(); i < n; i += step) mine += a[i] * b[i];
    part[here.thread()] = mine;
  });
  add_up(here, part);
  here.phase([&](const oa::Here &here) {
    for (auto element : sums.mine(oa::PerBlock(), here)) *element = part[0];
  });
}

OA_BLOCK_KERNEL(total, oa::Out<double> sum, oa::In<double> sums, int n) {
  OA_SHARED double part[BLOCK];
  here.phase([&](const oa::Here &here) {
    double mine = 0;
    for (int i = here.index(), step = here.size(); i < n; i += step) mine += sums[i];
    part[here.thread()] = mine;
  });
  add_up(here, part);
  here.phase([&](const oa::Here &here) {
    for (auto element : sum.mine(oa::PerBlock(), here)) *element = part[0];
  });
}

struct Three {
  int sum, least, most;
};

OA_FUNCTION void join(Three &into, const Three &other) {
  into.sum += other.sum;
  into.least = other.least < into.least ? other.least : into.least;
  into.most = other.most > into.most ? other.most : into.most;
}

OA_FUNCTION void join_all(const oa::Block &here, Three *part) {
  for (int half = BLOCK / 2; half > 0; half /= 2)
    here.phase([&](const oa::Here &here) {
      if (here.thread() < half) join(part[here.thread()], part[here.thread() + half]);
    });
}

OA_BLOCK_KERNEL(reduce3, oa::Out<Three> results, oa::In<int> x, int n) {
  OA_SHARED Three part[BLOCK];
  here.phase([&](const oa::Here &here) {
    Three mine = {0, 2147483647, -2147483647 - 1};
    for (int i = here.index(), step = here.size(); i < n; i += step) join(mine, Three{x[i], x[i], x[i]});
    part[here.thread()] = mine;
  });
  join_all(here, part);
  here.phase([&](const oa::Here &here) {
    for (auto element : results.mine(oa::PerBlock(), here)) *element = part[0];
  });
}

OA_BLOCK_KERNEL(total3, oa::Out<Three> result, oa::In<Three> results, int n) {
  OA_SHARED Three part[BLOCK];
  here.phase([&](const oa::Here &here) {
    Three mine = {0, 2147483647, -2147483647 - 1};
    for (int i = here.index(), step = here.size(); i < n; i += step) join(mine, results[i]);
    part[here.thread()] = mine;
  });
  join_all(here, part);
  here.phase([&](const oa::Here &here) {
    for (auto element : result.mine(oa::PerBlock(), here)) *element = part[0];
  });
}

// -- PRESSURE --------------------------------------------------------------------------------------------------------

OA_KERNEL(pressure1, oa::Out<double> bvc, oa::In<double> compression, double cls, int n) {
  for (auto element : bvc.mine(oa::Linear1D(n), here)) *element = cls * (compression[element.index()] + 1);
}

OA_KERNEL(pressure2, oa::Out<double> p_new, oa::In<double> bvc, oa::In<double> e_old, oa::In<double> vnewc,
          double p_cut, double p_min, double eosvmax, int n) {
  for (auto element : p_new.mine(oa::Linear1D(n), here)) {
    const long long i = element.index();
    double p = bvc[i] * e_old[i];
    if (fabs(p) < p_cut) p = 0;
    if (vnewc[i] >= eosvmax) p = 0;
    *element = p < p_min ? p_min : p;
  }
}

// -- ENERGY ----------------------------------------------------------------------------------------------------------

OA_FUNCTION double viscosity(double pbvc, double e, double v, double bvc, double p, double rho0, double ql, double qq) {
  const double squared = (pbvc * e + v * v * bvc * p) / rho0;
  return (squared <= 0.1111111e-36 ? 0.3333333e-18 : sqrt(squared)) * ql + qq;
}

OA_FUNCTION double cut(double e, double e_cut, double e_min) {
  if (fabs(e) < e_cut) e = 0;
  return e < e_min ? e_min : e;
}

OA_KERNEL(energy1, oa::Out<double> e_new, oa::In<double> e_old, oa::In<double> delvc, oa::In<double> p_old,
          oa::In<double> q_old, oa::In<double> work, int n) {
  for (auto element : e_new.mine(oa::Linear1D(n), here)) {
    const long long i = element.index();
    *element = e_old[i] - 0.5 * delvc[i] * (p_old[i] + q_old[i]) + 0.5 * work[i];
  }
}

OA_KERNEL(energy2, oa::Out<double> q_new, oa::In<double> delvc, oa::In<double> comp_half, oa::In<double> pbvc,
          oa::In<double> e_new, oa::In<double> bvc, oa::In<double> p_half, oa::In<double> ql_old,
          oa::In<double> qq_old, double rho0, int n) {
  for (auto element : q_new.mine(oa::Linear1D(n), here)) {
    const long long i = element.index();
    *element = delvc[i] > 0 ? 0
                            : viscosity(pbvc[i], e_new[i], 1 / (1 + comp_half[i]), bvc[i], p_half[i], rho0, ql_old[i],
                                        qq_old[i]);
  }
}

OA_KERNEL(energy3, oa::InOut<double> e_new, oa::In<double> delvc, oa::In<double> p_old, oa::In<double> q_old,
          oa::In<double> p_half, oa::In<double> q_new, int n) {
  for (auto element : e_new.mine(oa::Linear1D(n), here)) {
    const long long i = element.index();
    *element += 0.5 * delvc[i] * (3 * (p_old[i] + q_old[i]) - 4 * (p_half[i] + q_new[i]));
  }
}

OA_KERNEL(energy4, oa::InOut<double> e_new, oa::In<double> work, double e_cut, double e_min, int n) {
  for (auto element : e_new.mine(oa::Linear1D(n), here))
    *element = cut(*element + 0.5 * work[element.index()], e_cut, e_min);
}

OA_KERNEL(energy5, oa::InOut<double> e_new, oa::In<double> delvc, oa::In<double> pbvc, oa::In<double> vnewc,
          oa::In<double> bvc, oa::In<double> p_new, oa::In<double> ql_old, oa::In<double> qq_old, oa::In<double> p_old,
          oa::In<double> q_old, oa::In<double> p_half, oa::In<double> q_new, double rho0, double e_cut, double e_min,
          int n) {
  for (auto element : e_new.mine(oa::Linear1D(n), here)) {
    const long long i = element.index();
    const double q = delvc[i] > 0 ? 0 : viscosity(pbvc[i], *element, vnewc[i], bvc[i], p_new[i], rho0, ql_old[i],
                                                  qq_old[i]);
    const double change = 7 * (p_old[i] + q_old[i]) - 8 * (p_half[i] + q_new[i]) + (p_new[i] + q);
    *element = cut(*element - change * delvc[i] / 6, e_cut, e_min);
  }
}

OA_KERNEL(energy6, oa::InOut<double> q_new, oa::In<double> delvc, oa::In<double> pbvc, oa::In<double> e_new,
          oa::In<double> vnewc, oa::In<double> bvc, oa::In<double> p_new, oa::In<double> ql_old,
          oa::In<double> qq_old, double rho0, double q_cut, int n) {
  for (auto element : q_new.mine(oa::Linear1D(n), here)) {
    const long long i = element.index();
    if (delvc[i] > 0) return;
    const double q = viscosity(pbvc[i], e_new[i], vnewc[i], bvc[i], p_new[i], rho0, ql_old[i], qq_old[i]);
    *element = fabs(q) < q_cut ? 0 : q;
  }
}
"""

_READ, _WRITTEN, _BOTH = In[np.float64], Out[np.float64], InOut[np.float64]
_REAL, _SIZE = np.float64, np.int32

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "daxpy": (_BOTH, _READ, _REAL, _SIZE),
    "muladdsub": (_WRITTEN, _WRITTEN, _WRITTEN, _READ, _READ, _SIZE),
    "copy": (_WRITTEN, _READ, _SIZE),
    "mul": (_WRITTEN, _READ, _REAL, _SIZE),
    "add": (_WRITTEN, _READ, _READ, _SIZE),
    "triad": (_WRITTEN, _READ, _READ, _REAL, _SIZE),
    "dot": (_WRITTEN, _READ, _READ, _SIZE),
    "total": (_WRITTEN, _READ, _SIZE),
    "reduce3": (Out[np.int32], In[np.int32], _SIZE),  # the struct Three is three elements
    "total3": (Out[np.int32], In[np.int32], _SIZE),
    "pressure1": (_WRITTEN, _READ, _REAL, _SIZE),
    "pressure2": (_WRITTEN, *[_READ] * 3, *[_REAL] * 3, _SIZE),
    "energy1": (_WRITTEN, *[_READ] * 5, _SIZE),
    "energy2": (_WRITTEN, *[_READ] * 8, _REAL, _SIZE),
    "energy3": (_BOTH, *[_READ] * 5, _SIZE),
    "energy4": (_BOTH, _READ, *[_REAL] * 2, _SIZE),
    "energy5": (_BOTH, *[_READ] * 11, *[_REAL] * 3, _SIZE),
    "energy6": (_BOTH, *[_READ] * 8, *[_REAL] * 2, _SIZE),
}


def compiled(device: Device, block: int = BLOCK) -> dict[str, Kernel]:
    """Return all kernels, compiled for a device without checks.

    `block` is the number of threads of a block of the reductions.
    """
    options = () if block == BLOCK else (f"-DBLOCK={block}",)
    return {
        name: Kernel.compile(SOURCE, name, signature, options=options, device=device, debug=False)
        for name, signature in SIGNATURES.items()
    }
