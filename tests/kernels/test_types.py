"""Signatures that differ from the types in the source are refused, on all devices and in saved modules (T65)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.processes import lacking, program_or_skip
from kernels.images import INCLUDE, compiled
from offload_args import Device, In, InOut, Kernel, Module, Out, errors, offload
from offload_args.kernels.compilers import target_of

SOURCE = """\
#include <offload_args/kernel.h>
struct Pair { float a; int b; };
struct Half { unsigned short bits; };
enum Mode { off, on };
OA_KERNEL(mixed, oa::In<float> x, oa::Out<double> y, oa::InOut<int> z, oa::Atomic<unsigned> u, float v, unsigned char c,
          Pair pair, Mode mode) {
  for (auto element : y.mine(oa::Linear1D(1), here)) *element = v * x[0] + c + pair.b + mode;
  for (auto element : z.mine(oa::Linear1D(1), here)) *element += 1;
  u[0].add(1);
}
OA_BLOCK_KERNEL(others, oa::In<bool> b, const long long *n, double *y, oa::In<Half> h, oa::Out<Pair> p, char l) {
  here.phase([&](const oa::Here &here) {
    if (here.thread() == 0) *y = b[0] + *n + h[0].bits + l;
    for (auto element : p.mine(oa::PerBlock(1), here)) *element = Pair{1, 2};
  });
}
"""
PAIR = np.dtype([("a", "f4"), ("b", "i4")], align=True)
MIXED = (In[np.float32], Out[np.float64], InOut[np.int32], InOut[np.uint32], np.float32, np.uint8, PAIR, np.int32)
OTHERS = (In[np.bool_], In[np.int64], InOut[np.float64], In[np.float16], Out[np.float32], np.int8)
SIGNATURES = {"mixed": MIXED, "others": OTHERS}

WRONG: dict[str, tuple[str, int, Any, str]] = {
    "wider elements": ("mixed", 2, Out[np.float32], r"Out\[float32\], and the source has oa::Out<double>"),
    "other numbers": ("mixed", 1, In[np.int32], r"In\[int32\], and the source has oa::In<float>"),
    "other signs": ("mixed", 3, InOut[np.uint32], "has oa::InOut<int>"),
    "an Out as In": ("mixed", 2, In[np.float64], "has oa::Out<double>: make it oa::In in the source, or declare InOut"),
    "an In as Out": ("mixed", 1, Out[np.float32], "has oa::In<float>"),
    "an In as InOut": ("mixed", 1, InOut, "has oa::In<float>"),
    "an InOut as Out": ("mixed", 3, Out[np.int32], "has oa::InOut<int>: the kernel reads it: declare InOut"),
    "an Atomic as Out": ("mixed", 4, Out[np.uint32], "has oa::Atomic<unsigned>: the kernel reads it"),
    "an integer for a float": ("mixed", 5, np.int32, "int32, and the source has float"),
    "a signed byte": ("mixed", 6, np.int8, "int8, and the source has unsigned char"),
    "a number for a struct": ("mixed", 7, np.float64, "float64, and the source has struct of 8 bytes"),
    "a struct for a number": ("mixed", 5, np.dtype([("a", "f4")], align=True), "the source has float"),
    "a float for an enum": ("mixed", 8, np.float32, "the source has enum of 4 bytes"),
    "bytes for truth": ("others", 1, In[np.uint8], "has oa::In<bool>"),
    "a const pointer as InOut": ("others", 2, InOut[np.int64], r"has const long long \*"),
    "a plain pointer as In": ("others", 3, In[np.float64], r"has double \*: make it const double \*, or declare InOut"),
    "bytes for halves": ("others", 4, In[np.uint8], "has oa::In<struct of 2 bytes>"),
    "complex numbers for pairs": ("others", 5, Out[np.complex128], "has oa::Out<struct of 8 bytes>"),
}


@pytest.mark.later(but="others-plain")
@pytest.mark.promise("T65")
@pytest.mark.parametrize("debug", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_with_the_types_of_the_source_is_taken(device: str, name: str, debug: bool) -> None:
    kernel = Kernel.compile(SOURCE, name, SIGNATURES[name], device=device, debug=debug)
    assert (
        kernel.facts is not None
        and kernel.facts.types is not None
        and len(kernel.facts.types) == len(OTHERS) + 2 * (name == "mixed")
    )


@pytest.mark.promise("T65")
@pytest.mark.parametrize("case", WRONG)
def test_a_signature_with_other_types_than_the_source_is_refused(device: str, case: str) -> None:
    name, position, declared, words = WRONG[case]
    signature = [*SIGNATURES[name]]
    signature[position - 1] = declared
    with pytest.raises(errors.SignatureError, match=f"{name}: argument {position} is declared as .*{words}"):
        Kernel.compile(SOURCE, name, signature, device=device)


@pytest.mark.promise("T65")
def test_a_signature_of_another_length_names_the_types_of_the_source(device: str) -> None:
    source = """
    #include <offload_args/kernel.h>
    OA_KERNEL(put, const float *x, oa::InOut<double> y, unsigned char n, bool b, long long m) {
      for (auto element : y.mine(oa::Linear1D(m), here)) *element += n + b + x[0];
    }"""
    with pytest.raises(errors.SignatureError, match=r"has 1 parameter, the module's kernel 5: ") as raised:
        Kernel.compile(source, "put", [In[np.float32]], device=device)
    remedy = str(raised.value).rpartition("; write ")[2]
    assert remedy == "[In[np.float32], InOut[np.float64], np.uint8, np.bool_, np.int64]"
    Kernel.compile(source, "put", eval(remedy), device=device)
    with pytest.raises(
        errors.SignatureError, match=r"kernel 8: .* give a type for each: In, Out or InOut\[dtype\] for"
    ):
        Kernel.compile(SOURCE, "mixed", MIXED[:1], device=device)


@pytest.mark.promise("T65")
def test_arguments_in_another_order_are_refused(device: str) -> None:
    with pytest.raises(errors.SignatureError, match="argument 1 .* the source has oa::In<float>"):
        Kernel.compile(SOURCE, "mixed", [MIXED[1], MIXED[0], *MIXED[2:]], device=device)
    with pytest.raises(errors.SignatureError, match="argument 5 .* the source has float"):
        Kernel.compile(SOURCE, "mixed", [*MIXED[:4], MIXED[7], *MIXED[5:7], MIXED[4]], device=device)


@pytest.mark.later
@pytest.mark.promise("T65")
def test_the_types_are_in_the_saved_module(device: str, tmp_path: Path) -> None:
    Kernel.compile(SOURCE, "mixed", MIXED, device=device).save(tmp_path / "mixed")
    module = Module.load(tmp_path / "mixed")
    with pytest.raises(errors.SignatureError, match=r"Out\[float32\], and the source has oa::Out<double>"):
        module.kernel("mixed", MIXED[0], Out[np.float32], *MIXED[2:])
    assert module.kernel("mixed", *MIXED)


@pytest.mark.later
@pytest.mark.parametrize("options", [("-ptx",), ("-cubin", "-arch=sm_90")], ids=["PTX", "cubin"])
def test_a_module_of_nvcc_has_the_types(options: tuple[str, ...]) -> None:
    program_or_skip("nvcc")
    module = Module.load(compiled("nvcc", SOURCE, ".cu", *options, "-std=c++17", f"-I{INCLUDE}"))
    for name, signature in SIGNATURES.items():
        assert module.kernel(name, *signature)
    with pytest.raises(errors.SignatureError, match="argument 5 .* the source has float"):
        module.kernel("mixed", *MIXED[:4], np.int32, *MIXED[5:])


@pytest.mark.later
def test_without_a_signature_arrays_that_are_only_read_do_not_come_down(device: str, tmp_path: Path) -> None:
    source = "#include <offload_args/kernel.h>\nOA_KERNEL(copy, oa::In<float> x, oa::Out<float> y, int n) {\n"
    source += "  for (auto element : y.mine(oa::Linear1D(n), here)) *element = x[element.index()];\n}\n"
    Kernel.compile(source, "copy", [In[np.float32], Out[np.float32], np.int32], device=device).save(tmp_path / "copy")
    module = Module.load(tmp_path / "copy")
    if module.format == "shared object" and device.startswith("cuda"):
        pytest.skip("device unavailable: a double, which has no modules of its own")
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    x.flags.writeable = False
    offload(module.kernel("copy"), x, y, np.int32(5), device=device)
    np.testing.assert_array_equal(y, x)


@pytest.mark.later
@pytest.mark.promise("T65")
@pytest.mark.parametrize("name", ["all", "any", "memcpy"])
def test_a_kernel_has_the_name_of_an_overloaded_function(device: str, name: str) -> None:
    source = (  # CUDA already has functions of these names
        f"#include <offload_args/kernel.h>\nOA_FUNCTION int {name}(int, int, const short *) {{ return 0; }}\n"
        f"OA_KERNEL({name}, oa::In<float> x, oa::Out<float> y, int n) {{\n"
        "  for (auto element : y.mine(oa::Linear1D(n), here)) *element = 2 * x[element.index()];\n}\n"
    )
    with pytest.raises(errors.SignatureError, match="argument 1 .* the source has oa::In<float>"):
        Kernel.compile(source, name, [In[np.float64], Out[np.float32], np.int32], device=device)
    x, y = np.arange(7, dtype=np.float32), np.zeros(7, np.float32)
    for debug in (False, True):
        y[:] = 0
        offload(Kernel.compile(source, name, SCALE[:2] + SCALE[3:], device=device, debug=debug), x, y, 7, device=device)
        np.testing.assert_array_equal(y, 2 * x)


# -- kernels in CUDA C -------------------------------------------------------------------------------------------------

PLAIN = """\
extern "C" __global__ void scale(const float *x, float *y, float v, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = v * x[i];
}
"""
SCALE = (In[np.float32], Out[np.float32], np.float32, np.int32)


@pytest.mark.promise("T65")
@pytest.mark.parametrize("target", ["sm_90", "gfx90a"])
def test_kernels_in_the_vendors_own_words_have_types(target: str) -> None:
    source = PLAIN
    if target == "gfx90a":
        source = PLAIN.split("{")[0] + "{ y[0] = v * x[0] + n; }"  # hiprtc alone has no names for blocks
    try:
        scale = Kernel.compile(source, "scale", SCALE, target=target, options=["--std=c++14"])
    except errors.LibraryError:
        lacking("nvrtc" if target == "sm_90" else "hiprtc")
    except errors.ModuleError as error:
        if "__global__" not in str(error):
            raise
        pytest.skip("device unavailable: a double, which has no such words")
    assert scale.log == ""
    for position, declared, words in (
        (3, np.int32, "argument 3 is declared as int32, and the source has float"),
        (2, Out[np.float64], r"the source has float \*"),
        (1, Out[np.float32], r"the source has const float \*"),
    ):
        signature = [*SCALE]
        signature[position - 1] = declared
        with pytest.raises(errors.SignatureError, match=words):
            Kernel.compile(source, "scale", signature, target=target, options=["--std=c++14"])


@pytest.mark.parametrize("name", ["scale", "all", "memcpy"])
@pytest.mark.parametrize("returned", ["float", "void"])
def test_a_plain_kernel_has_the_name_of_an_overloaded_function(name: str, returned: str) -> None:
    source = PLAIN.replace("scale", name) + f"__device__ {returned} {name}(float x) {{ return {returned}(x); }}\n"
    try:
        kernel = Kernel.compile(source, name, SCALE, target="sm_90")
    except errors.LibraryError:
        lacking("nvrtc")
    except errors.ModuleError as error:
        if "__global__" not in str(error):
            raise
        pytest.skip("device unavailable: a double, which has no such words")
    assert kernel.facts is not None
    if returned == "void":
        assert kernel.facts.types is None, "either may be the kernel"
    else:
        assert kernel.facts.types is not None and len(kernel.facts.types) == len(SCALE)


def test_a_plain_kernel_runs_with_its_types(device: str) -> None:
    if not Device(device).is_gpu or target_of(Device(device)).backend != "cuda":
        pytest.skip("device unavailable: CUDA C is for NVIDIA GPUs")
    try:
        scale = Kernel.compile(PLAIN, "scale", SCALE, device=device)
    except errors.ModuleError as error:
        if "__global__" not in str(error):
            raise
        pytest.skip("device unavailable: a double, which has no such words")
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    offload(scale, x, y, 3.0, 100, device=device)
    np.testing.assert_array_equal(y, 3 * x)
