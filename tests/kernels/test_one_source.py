"""All that kernel.h has compiles without a warning, for GPUs of NVIDIA and AMD and for the CPU, and can be read."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from kernels import test_atomics, test_debug, test_partitions
from kernels.images import CLANG, HIP, INCLUDE, TARGETS, compiled
from kernels.test_partitions import LINES, MATRICES, source_of
from offload_args import Module
from offload_args.errors import LibraryError
from offload_args.kernels.debug import OPTION, with_record
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
        checked = with_record(checked, name, count)
    return {"plain": ALL, "checked": checked}


def check_kernels(form: str, image: bytes) -> None:
    kernels = Module.load(image).kernels
    for name, count in COUNTS.items():
        parameters = kernels[name].parameters
        assert parameters is not None and len(parameters) == count + (form == "checked"), name
    if form == "plain":
        assert {test_partitions.name_of(one) for one in LINES + MATRICES} <= set(kernels)


def options(form: str) -> tuple[Any, ...]:
    return (OPTION,) if form == "checked" else ()


@pytest.mark.parametrize("form", ["plain", "checked"])
@pytest.mark.parametrize("target", [TARGETS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in TARGETS[1:])])
@pytest.mark.skipif(CLANG is None, reason="device unavailable: no clang for AMD GPUs")
def test_clang_compiles_all_of_it_to_hsaco(form: str, target: str) -> None:
    assert CLANG is not None
    given = (*HIP, "-Wno-unused-parameter", f"--offload-arch={target}", *options(form))
    check_kernels(form, compiled(CLANG, sources()[form], ".hip", *given))


@pytest.mark.parametrize("form", ["plain", "checked"])
@pytest.mark.skipif(not shutil.which("nvcc"), reason="device unavailable: no nvcc")
def test_nvcc_compiles_all_of_it_to_ptx(form: str) -> None:
    check_kernels(form, compiled("nvcc", sources()[form], ".cu", "-ptx", "-std=c++17", f"-I{INCLUDE}", *options(form)))


@pytest.mark.parametrize("form", ["plain", "checked"])
@pytest.mark.parametrize("compiler", ["g++", pytest.param("clang++-19", marks=pytest.mark.slow)])
def test_compilers_of_the_host_compile_all_of_it(form: str, compiler: str) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"device unavailable: no {compiler}")
    check_kernels(form, compiled(compiler, sources()[form], ".cpp", *STRICT, "-shared", "-fPIC", *options(form)))


@pytest.mark.parametrize("form", ["plain", "checked"])
def test_nvrtc_compiles_all_of_it(form: str) -> None:
    given = ("--gpu-architecture=sm_90", "--std=c++17", f"-I{INCLUDE}", *options(form))
    try:
        image = NVRTC.compile("all", sources()[form], given)
    except LibraryError:
        pytest.skip("device unavailable: no NVRTC")
    check_kernels(form, image)
