"""All of kernel.h compiles without a warning for GPUs of NVIDIA and AMD and for the CPU, and modules can be read."""

from __future__ import annotations

import platform
import subprocess
from typing import Any

import numpy as np
import pytest

from helpers.processes import lacking, program_or_skip
from kernels import test_atomics, test_debug, test_partitions
from kernels.images import CLANG, HIP, INCLUDE, TARGETS, compiled
from kernels.test_partitions import LINES, MATRICES, source_of
from offload_args import Device, In, Kernel, Module, Out, offload_args
from offload_args.errors import LibraryError
from offload_args.kernels.debug import OPTION, record_kernel
from offload_args.kernels.rtc import NVRTC

COUNTS = {**{name: len(signature) for name, signature in test_debug.SIGNATURES.items()}, "plus": 4, "tiles_2_3": 4}
COUNTS |= {"all": 3, "claim": 3, "pass": 3}
ALL = "\n".join(
    (
        source_of(*LINES, *MATRICES),
        test_partitions.COPY.replace("sums", "fixed_sums"),
        test_debug.SOURCE,
        "using T = double;",
        test_atomics.SOURCE.replace("sums", "sized_sums"),
    )
)
STRICT = ("-std=c++17", "-O1", f"-I{INCLUDE}", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")


def sources() -> dict[str, str]:
    checked = ALL
    for name, count in COUNTS.items():
        checked += record_kernel(ALL, name, count)
    return {"plain": ALL, "checked": checked}


def check_kernels(form: str, image: bytes) -> None:
    kernels = Module.load(image).kernels
    for name, count in COUNTS.items():
        parameters = kernels[name].parameters
        assert parameters is not None and len(parameters) == count + (form == "checked"), name
    if form == "plain":
        assert {test_partitions.name_of(kernel) for kernel in LINES + MATRICES} <= set(kernels)


FORMS = pytest.mark.parametrize("form", ["checked", pytest.param("plain", marks=pytest.mark.slow)])
HOST_COMPILERS = pytest.mark.parametrize("compiler", ["g++", pytest.param("clang++-19", marks=pytest.mark.slow)])


def options(form: str) -> tuple[Any, ...]:
    return (OPTION,) if form == "checked" else ()


@FORMS
@pytest.mark.parametrize(
    "target", [TARGETS[0], *(pytest.param(choice, marks=pytest.mark.slow) for choice in TARGETS[1:])]
)
def test_clang_compiles_all_of_it_to_hsaco(form: str, target: str) -> None:
    clang = CLANG or lacking("clang")
    arguments = (*HIP, "-Wno-unused-parameter", f"--offload-arch={target}", *options(form))
    check_kernels(form, compiled(clang, sources()[form], ".hip", *arguments))


@pytest.mark.later
@FORMS
def test_nvcc_compiles_all_of_it_to_ptx(form: str) -> None:
    program_or_skip("nvcc")
    check_kernels(form, compiled("nvcc", sources()[form], ".cu", "-ptx", "-std=c++17", f"-I{INCLUDE}", *options(form)))


@pytest.mark.later
@FORMS
@HOST_COMPILERS
def test_compilers_of_the_host_compile_all_of_it(form: str, compiler: str) -> None:
    program_or_skip(compiler)
    check_kernels(form, compiled(compiler, sources()[form], ".cpp", *STRICT, "-shared", "-fPIC", *options(form)))


EACH = """#include <offload_args/kernel.h>
template <class Partition>
OA_DEVICE void add(const oa::In<float> &a, const oa::InOut<float> &c, const Partition &by, const oa::Here &here) {
  for (auto element : c.mine(by, here)) *element += a[element.index()];
  for (auto slice : c.slices(by, here))
    for (long long j = 0; j < slice.size(); j++) slice[j] += a[slice.index(j)];
}
OA_KERNEL(all, oa::In<float> a, oa::InOut<float> c, oa::Atomic<int> i, oa::Atomic<double> d, int n, int ld) {
  add(a, c, oa::Linear1D(n), here);
  add(a, c, oa::GridStride1D(n), here);
  add(a, c, oa::PerBlock(n), here);
  add(a, c, oa::Linear2D(n, n, ld), here);
  add(a, c, oa::Rows(n, n, ld), here);
  add(a, c, oa::RowBlocks<3>(n, n, ld), here);
  add(a, c, oa::Tiles<3, 5>(n, n, ld), here);
  i[n].min(i[0].max(3)), i[1].compare_swap(i[2].exchange(1), 2), d[n].add(d[0].exchange(d[1].load()));
}
OA_BLOCK_KERNEL(phases, oa::InOut<float> c) {
  const auto own = here.shared<int>();
  here.phase([&](const oa::Here &thread) { own.atomic(thread.thread()).add(static_cast<int>(own.size())); });
  here.phase([&](const oa::Here &thread) {
    for (auto element : c.mine(oa::PerBlock(), thread)) *element = static_cast<float>(own[0]);
  });
}"""


@pytest.mark.later
@FORMS
@HOST_COMPILERS
def test_the_header_gives_no_warning_about_shadows_and_conversions(form: str, compiler: str) -> None:
    program_or_skip(compiler)
    arguments = (*STRICT, "-Wshadow", "-Wconversion", "-Wpedantic", "-shared", "-fPIC", *options(form))
    compiled(compiler, EACH, ".cpp", *arguments)


@FORMS
def test_nvrtc_compiles_all_of_it(form: str) -> None:
    arguments = ("--gpu-architecture=sm_90", "--std=c++17", f"-I{INCLUDE}", *options(form))
    try:
        image, log, _ = NVRTC.compile("all", sources()[form], arguments)
    except LibraryError:
        lacking("nvrtc")
    assert "warning" not in log
    check_kernels(form, image)


# -- loops on the host -------------------------------------------------------------------------------------------------

ADD = """#include <offload_args/kernel.h>
OA_KERNEL(add, oa::In<float> a, oa::Out<float> c, long long n) {
  for (auto element : c.mine(PARTITION, here)) *element = a[element.index()] + a[element.index() + 1];
}"""
BOUNDS = """#include <offload_args/kernel.h>
OA_KERNEL(three, oa::In<int> x, oa::Out<int> y, oa::Out<int> z, oa::Out<int> w, int n, int k, int m) {
  for (auto element : y.mine(oa::Linear1D(n), here)) *element = x[element.index()];
  const int bound = here.index() % 2 ? k : m;
  for (auto element : z.mine(oa::Linear1D(bound), here)) *element = 2 * x[element.index()];
  if (here.index() > 0)
    for (auto element : w.mine(oa::Linear1D(here.index() < 3 ? here.index() : k), here))
      *element = 3 * x[element.index()];
}"""


@pytest.mark.later
@HOST_COMPILERS
@pytest.mark.parametrize("partition", ["Linear1D(n)", "GridStride1D(n)", "Linear2D(n, n)"])
@pytest.mark.skipif(platform.machine() != "x86_64", reason="device unavailable: not an x86-64 processor")
def test_the_loop_over_a_partition_adds_four_floats_at_once(compiler: str, partition: str) -> None:
    program_or_skip(compiler)
    source = ADD.replace("PARTITION", f"oa::{partition}").encode()
    arguments = [compiler, "-std=c++17", "-O3", f"-I{INCLUDE}", "-S", "-x", "c++", "-", "-o", "-"]
    assert b"addps" in subprocess.run(arguments, input=source, capture_output=True, check=True).stdout


@pytest.mark.later
@HOST_COMPILERS
def test_threads_with_bounds_of_their_own_have_the_elements_below_these(
    compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program_or_skip(compiler)
    monkeypatch.setenv("CXX", compiler)
    i32 = np.int32
    three = Kernel.compile(BOUNDS, "three", (In[i32], *[Out[i32]] * 3, i32, i32, i32), device="host")
    x, i = np.arange(1, 65, dtype=i32), np.arange(64)
    for n, k, m in [(64, 64, 64), (50, 40, 30), (1, 64, 64), (64, 0, 7), (0, 1, 2), (10, 63, -5), (-(2**31), 64, 1)]:
        y, z, w = (np.full(64, -1, i32) for _ in range(3))
        with offload_args(x, y, z, w, device=Device.host()) as (dx, dy, dz, dw):
            for array in (dy, dz, dw):
                array.fill(-1)
            three[4, 16](dx, dy, dz, dw, n, k, m)
        np.testing.assert_array_equal(y, np.where(i < n, x, -1))
        np.testing.assert_array_equal(z, np.where(i < np.where(i % 2, k, m), 2 * x, -1))
        np.testing.assert_array_equal(w, np.where((i >= 3) & (i < k), 3 * x, -1))
