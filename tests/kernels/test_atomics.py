"""Atomics and dynamic shared memory of kernel.h."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from offload_args import In, InOut, Kernel, Out, Shared, offload
from offload_args.kernels import PerBlock

SOURCE = """\
#include <offload_args/kernel.h>

OA_KERNEL(all, oa::In<T> x, oa::Atomic<T> result, int n) {
  for (long long i = here.index(); i < n; i += here.size()) {
    result[0].add(x[i]);
    result[1].min(x[i]);
    result[2].max(x[i]);
    result[3].add(static_cast<T>(1));
  }
}
OA_KERNEL(claim, oa::Atomic<T> owner, oa::Atomic<T> claimed, int n) {  // the threads want each place; one gets it
  const T none = -1, mine = here.index();
  for (int i = 0; i < n; i++)
    if (owner[i].compare_swap(none, mine) == none) claimed[i].add(1);
}
OA_KERNEL(pass, oa::Atomic<T> place, oa::Out<T> seen, int n) {  // each value is put there by one and taken by another
  for (auto element : seen.mine(oa::Linear1D(n), here))
    *element = place[0].exchange(static_cast<T>(element.index() + 1));
}
OA_BLOCK_KERNEL(sums, oa::In<T> x, oa::Out<T> y, oa::Out<int> sizes, int n) {
  const auto part = here.shared<T>();
  here.phase([&](const oa::Here &here) { part[here.thread()] = here.index() < n ? x[here.index()] : 0; });
  for (int step = here.threads() / 2; step > 0; step /= 2)
    here.phase([&](const oa::Here &here) {
      if (here.thread() < step) part[here.thread()] += part[here.thread() + step];
    });
  here.phase([&](const oa::Here &here) {
    for (auto element : y.mine(oa::PerBlock(), here)) {
      *element = part[0];
      sizes[element] = part.size();
    }
  });
}
OA_BLOCK_KERNEL(shared_histogram, oa::In<unsigned char> x, oa::Atomic<T> counts, int n) {
  const auto own = here.shared<T>();
  here.phase([&](const oa::Here &here) {
    for (long long i = here.thread(); i < own.size(); i += here.threads()) own[i] = 0;
  });
  here.phase([&](const oa::Here &here) {
    for (long long i = here.index(); i < n; i += here.size()) own.atomic(x[i]).add(1);
  });
  here.phase([&](const oa::Here &here) {
    for (long long i = here.thread(); i < own.size(); i += here.threads()) counts[i].add(own[i]);
  });
}
"""
TYPES: dict[str, Any] = {
    "int": np.int32,
    "unsigned": np.uint32,
    "long long": np.int64,
    "unsigned long long": np.uint64,
    "float": np.float32,
    "double": np.float64,
}


def types(*names: str) -> pytest.MarkDecorator:
    """Parametrize a test over types of elements.

    One integer and one float are always tested; the other types are for CI.
    """
    arguments = [pytest.param(name, marks=[] if name in ("int", "double") else [pytest.mark.slow]) for name in names]
    return pytest.mark.parametrize("kind", arguments)


def compiled(name: str, kind: str, signature: list[Any], device: str) -> Kernel:
    return Kernel.compile(f"using T = {kind};\n{SOURCE}", name, signature, device=device)


@pytest.mark.later
@types(*TYPES)
def test_sum_least_and_greatest_of_all_threads(device: str, kind: str) -> None:
    dtype = np.dtype(TYPES[kind])
    rng = np.random.default_rng(6)
    x = rng.integers(0 if dtype.kind == "u" else -100, 100, 100_000).astype(dtype)  # sums are exact, even in float
    result = np.array([0, 100, 0, 0], dtype)
    if dtype.kind != "u":
        result[2] = -101
    offload(compiled("all", kind, [In[dtype], InOut[dtype], np.int32], device), x, result, x.size, device=device)
    np.testing.assert_array_equal(result, [x.sum(dtype=dtype), x.min(), x.max(), x.size])


@pytest.mark.later
@types("int", "float", "long long", "double")
def test_one_thread_wins_each_compare_and_swap(device: str, kind: str) -> None:
    dtype = np.dtype(TYPES[kind])
    owner, claimed = np.full(100, -1, dtype), np.zeros(100, dtype)
    claim = compiled("claim", kind, [InOut[dtype], InOut[dtype], np.int32], device)
    offload(claim, owner, claimed, 100, grid=64, block=256, device=device)
    assert (claimed == 1).all() and (owner >= 0).all() and (owner < 64 * 256).all()


@pytest.mark.later
@types("int", "unsigned", "float", "unsigned long long", "double")
def test_an_exchange_loses_no_value(device: str, kind: str) -> None:
    dtype = np.dtype(TYPES[kind])
    n = 50_000
    place, seen = np.zeros(1, dtype), np.zeros(n, dtype)
    offload(compiled("pass", kind, [InOut[dtype], Out[dtype], np.int32], device), place, seen, n, device=device)
    np.testing.assert_array_equal(np.sort(np.append(seen, place)), np.arange(n + 1, dtype=dtype))


@pytest.mark.later
@types("float", "double")
def test_dynamic_shared_memory_has_the_elements_that_the_launch_asked_for(device: str, kind: str) -> None:
    dtype = np.dtype(TYPES[kind])
    sums = compiled("sums", kind, [In[dtype], Out[dtype].by(PerBlock()), Out[np.int32], np.int32], device)
    x = ramp(1000).astype(dtype)
    for threads, extra in ((64, 0), (128, 7), (1024, 5000)):  # the last case is more than 48 KiB of doubles
        y = np.zeros(-(-1000 // threads), dtype)
        sizes = np.zeros(y.size, np.int32)
        shared = Shared(threads + extra, dtype)
        offload(sums, x, y, sizes, 1000, block=threads, shared_bytes=shared, device=device)
        np.testing.assert_array_equal(y, np.add.reduceat(x, np.arange(0, 1000, threads)))
        assert (sizes == threads + extra).all()


@types("int", "float")
def test_atomics_in_shared_memory(device: str, kind: str) -> None:
    dtype = np.dtype(TYPES[kind])
    histogram = compiled("shared_histogram", kind, [In[np.uint8], InOut[dtype], np.int32], device)
    x, counts = np.random.default_rng(7).integers(0, 256, 100_000, np.uint8), np.zeros(256, dtype)
    offload(histogram, x, counts, x.size, grid=16, block=256, shared_bytes=Shared(256, dtype), device=device)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=256))
