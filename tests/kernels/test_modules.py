"""Facts that are read from a module without loading it, and the signatures that it accepts."""

from __future__ import annotations

import contextlib
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.devices import open_or_skip
from helpers.processes import program_or_skip
from kernels.images import FORMATS, bundle, compiled, made_cubin, made_hsaco, module_for
from kernels.mutations import mutated
from kernels.programs import PTX, C, shared_object
from offload_args import In, InOut, Module, Out, Scratch, errors, offload
from offload_args.kernels import loaded

# Each further target takes a compiler a third of a second, so these are for CI.
OTHERS = ("sm_75", "sm_100", "gfx942", "gfx1100")


@pytest.fixture(
    params=[pytest.param(choice, marks=[pytest.mark.slow] if choice.endswith(OTHERS) else []) for choice in FORMATS]
)
def image(request: pytest.FixtureRequest) -> bytes:
    return FORMATS[request.param]()


@pytest.mark.later("nvcc's cubin of sm_90", "nvcc's fatbin")
def test_a_module_lists_its_kernels_and_their_parameters(image: bytes, tmp_path: Path) -> None:
    path = tmp_path / "kernels.bin"
    path.write_bytes(image)
    for module in (Module.load(path), Module.load(str(path)), Module.load(image, name="kernels.bin")):
        assert sorted(module.kernels) == ["line", "relu", "vadd"]
        sizes = {
            name: [parameter.nbytes for parameter in facts.parameters or ()] for name, facts in module.kernels.items()
        }
        assert sizes == {"vadd": [8, 8, 8, 4], "relu": [8, 4], "line": [8, 16, 8]}
        first, second = module.kernels["relu"].parameters or ()
        assert first.kind in ("pointer", "") and second.kind == "value"
        assert module.name == "kernels.bin" and "vadd(" in repr(module)


@pytest.mark.later("nvcc's cubin of sm_90", "nvcc's fatbin", "nvcc's PTX")
def test_a_kernel_of_any_format_may_be_undeclared(image: bytes) -> None:
    assert "vadd" in repr(Module.load(image).kernel("vadd"))


def test_ptx_states_target_and_block_limit() -> None:
    text = PTX.replace(")\n{", ")\n.maxntid 16, 8, 2\n{", 1).replace("sm_50", "sm_90a")
    module = Module.load(text.encode())
    assert module.target == "sm_90a" and module.format == "PTX"
    assert [module.kernels[name].most_threads for name in ("vadd", "relu")] == [256, None]


def test_a_bundle_states_all_targets_and_each_kernel_once() -> None:
    module = Module.load(bundle({"gfx90a": made_hsaco(), "gfx1100": made_hsaco("gfx1100")}))
    assert module.target == "gfx90a, gfx1100"
    assert sorted(module.kernels) == ["line", "relu", "vadd"]
    with pytest.raises(errors.ModuleError, match="compressed"):
        Module.load(b"CCOB" + bytes(100))


def test_an_hsaco_states_registers_shared_memory_and_block_limit() -> None:
    facts = Module.load(made_hsaco()).kernels["vadd"]
    assert (facts.registers, facts.shared_bytes, facts.most_threads) == (8, 0, 1024)


@pytest.mark.parametrize(
    "field", ["vgpr_count", "group_segment_fixed_size", "max_flat_workgroup_size", "kernarg_segment_size"]
)
def test_an_hsaco_that_does_not_state_a_fact_is_refused_by_name(field: str) -> None:
    words = f"mine: the HSACO is damaged: kernel vadd: its .{field} is not a number up to 2147483648"
    with pytest.raises(errors.ModuleError, match=words):
        Module.load(made_hsaco(**{field: (1 << 31) + 1}), name="mine")


def test_an_hsaco_may_have_a_name_that_is_no_text() -> None:
    for name in ("m\udcffne", "m\N{SNOWMAN}ne"):
        assert Module.load(made_hsaco(), name=name).name == name


SHARES = """
extern "C" __global__ void shares(float *x) {
  __shared__ float part[256];
  part[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = part[255 - threadIdx.x];
}
"""


def test_a_cubin_states_shared_memory_without_that_of_the_driver() -> None:
    kernels = Module.load(made_cubin([("vadd", 2048), ("relu", 0)])).kernels
    assert [kernels[name].shared_bytes for name in ("vadd", "relu", "line")] == [2048, 0, 0]
    kernels = Module.load(made_cubin([("reserved.0", 0), ("vadd", 3072)])).kernels
    assert [kernels[name].shared_bytes for name in ("vadd", "relu")] == [2048, 0]


@pytest.mark.later
@pytest.mark.parametrize(
    "target", ["sm_90", *(pytest.param(choice, marks=pytest.mark.slow) for choice in ("sm_80", "sm_100"))]
)
def test_a_cubin_of_nvcc_states_shared_memory_without_that_of_the_driver(target: str) -> None:
    program_or_skip("nvcc")
    built = compiled("nvcc", SHARES, ".cu", "-cubin", f"-arch={target}")
    assert Module.load(built).kernels["shares"].shared_bytes == 1024


SHIFT = """\
.version 7.0
.target sm_50
.address_size 64
.visible .entry shift(.param .u64 x, .param .align 16 .b8 by[16])
{
  ret;
}
"""
LINE = np.dtype([("slope", np.float32), ("start", np.float64)], align=True)
POINTERS = (In[np.float32], In[np.float32], Out[np.float32])
MISMATCHES: dict[str, tuple[str, tuple[Any, ...], str]] = {
    "one fewer": ("vadd", POINTERS, "has 3 parameters, the module's kernel 4"),
    "one more": ("vadd", (*POINTERS, np.int32, np.int32), "has 5 parameters"),
    "a larger value": ("vadd", (*POINTERS, np.int64), "argument 4 .* 8 bytes; the module says: value of 4"),
    "a smaller value": ("vadd", (*POINTERS, np.int16), "argument 4"),
    "a pointer for a value": ("vadd", (*POINTERS, In[np.int32]), "argument 4 .* a pointer of 8 bytes"),
    "a value for a pointer": ("relu", (np.uint64, np.int32), "argument 1 .* the module says: pointer"),
    "a packed struct": ("line", (Out[np.float64], np.dtype("f4, f8"), np.int64), "align=True"),
    "a struct of another size": (
        "line",
        (Out[np.float64], np.dtype([("slope", "f4"), ("start", "f4")], align=True), np.int64),
        "argument 2",
    ),
}  # fmt: skip


@pytest.mark.later(but="a pointer for a value")
@pytest.mark.promise("T41")
@pytest.mark.parametrize("case", MISMATCHES)
def test_a_signature_that_the_module_contradicts_is_refused(image: bytes, case: str) -> None:
    name, signature, words = MISMATCHES[case]
    facts = Module.load(image).kernels[name].parameters or ()
    if case == "a value for a pointer" and facts[0].kind == "":
        return  # older compilers don't note which parameters are pointers
    with pytest.raises(errors.SignatureError, match=words):
        Module.load(image).kernel(name, *signature)


@pytest.mark.later(but="nvcc's fatbin")
def test_a_signature_that_agrees_is_taken(image: bytes) -> None:
    module = Module.load(image)
    assert module.kernel("vadd", *POINTERS, np.int32).signature[3] == "int32"
    assert module.kernel("vadd", *POINTERS, np.uint32)
    assert module.kernel("line", Out[np.float64], LINE, np.int64).signature[0] == "Out[float64]"
    assert module.kernel("relu", InOut, np.float32).signature == ("InOut", "float32")


@pytest.mark.later
def test_a_struct_is_taken_if_its_fields_lie_as_in_c_however_its_dtype_was_made() -> None:
    source = 'extern "C" __global__ void shift(float *x, float4 by) { x[threadIdx.x] += by.z; }\n'
    image = compiled("nvcc", source, ".cu", "-ptx") if shutil.which("nvcc") else SHIFT.encode()
    module = Module.load(image)
    names, formats = list("xyzw"), ["f4"] * 4
    for four in (
        np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4"), ("w", "f4")]),
        np.dtype([("xyzw", "f4", (4,))]),
        np.dtype([("low", [("x", "f4"), ("y", "f4")]), ("high", "f4", 2)]),
        np.dtype({"names": names, "formats": formats, "offsets": [0, 4, 8, 12], "itemsize": 16}),
    ):
        assert module.kernel("shift", InOut[np.float32], four)
    apart = np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [0, 4], "itemsize": 16})
    for packed in (apart, np.dtype({"names": ["a"], "formats": ["f8"], "itemsize": 12})):
        with pytest.raises(errors.SignatureError, match="shift: argument 2 is not laid out as in C"):
            module.kernel("shift", InOut[np.float32], packed)


@pytest.mark.later
@pytest.mark.parametrize(
    "wrong", [int, float, complex, "f", 3, None, object, Scratch, np.longdouble, np.datetime64, list]
)
def test_a_type_that_no_kernel_takes_is_refused(image: bytes, wrong: object) -> None:
    with pytest.raises(errors.SignatureError, match="relu: argument 2"):
        Module.load(image).kernel("relu", InOut[np.float32], wrong)


def test_a_struct_with_fields_that_overlap_is_refused(image: bytes) -> None:
    union = np.dtype({"names": ["a", "b"], "formats": ["f8", "i8"], "offsets": [0, 0], "itemsize": 16})
    with pytest.raises(errors.SignatureError, match="line: argument 2 has fields that overlap, 'a' and 'b'"):
        Module.load(image).kernel("line", Out[np.float64], union, np.int64)


def test_a_struct_with_what_devices_can_not_hold_is_refused(image: bytes) -> None:
    with pytest.raises(errors.SignatureError, match="field of object"):
        Module.load(image).kernel("line", Out, np.dtype([("a", "f8"), ("b", "O")], align=True), np.int64)


@pytest.mark.promise("T41")
def test_a_kernel_that_is_not_there_is_named_with_the_nearest(image: bytes) -> None:
    module = Module.load(image, name="mine")
    with pytest.raises(errors.ModuleError, match="mine: there is no kernel 'vad'; did you mean vadd"):
        module.kernel("vad", In)
    with pytest.raises(errors.ArgumentTypeError, match="name"):
        module.kernel(3, In)  # type: ignore[arg-type]
    with pytest.raises(errors.ArgumentTypeError, match=r"Module\.load\(path or bytes\), got bytes"):
        Module(image)  # type: ignore[arg-type]


@pytest.mark.promise("T41")
@pytest.mark.parametrize("data", [b"", b"\0", b"hello", b"\x7fELF", b"\x7fELF" + bytes(60), b".version", bytes(10_000)])
def test_bytes_that_are_no_module_are_refused(data: bytes) -> None:
    with pytest.raises(errors.ModuleError):
        Module.load(data)


def test_a_source_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.ArgumentTypeError, match="source"):
        Module.load(7)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        Module.load(tmp_path / "none.ptx")


@pytest.mark.promise("T41")
def test_every_truncation_is_a_module_or_refused(image: bytes) -> None:
    for cut in range(0, len(image), max(1, len(image) // 400)):
        with contextlib.suppress(errors.ModuleError):
            Module.load(image[:cut])


@pytest.mark.promise("T41")
@pytest.mark.parametrize("seeds", [range(400), pytest.param(range(400, 4000), marks=pytest.mark.slow)], ids=len)
def test_mutations_are_modules_or_refused(image: bytes, seeds: range) -> None:
    """scripts/fuzz_modules.py reads a million mutations."""
    for seed in seeds:
        with contextlib.suppress(errors.ModuleError):
            repr(Module.load(mutated(image, random.Random(seed))))


def test_a_kernel_of_no_pointers_is_refused() -> None:
    source = C.split("OA_HOST_KERNEL")[0] + "OA_HOST_KERNEL(empty, OA_VALUE(int)) { (void)call; }\n"
    with pytest.raises(errors.SignatureError, match="needs a pointer"):
        Module.load(shared_object(source)).kernel("empty", np.int32)


RECORD_C = """\
#include <offload_args/kernel.h>
struct line {
  float slope;
  double start;
};
OA_HOST_KERNEL(record, OA_POINTER, OA_VALUE(char), OA_VALUE(double), OA_VALUE(short), OA_VALUE(struct line),
               OA_VALUE(float)) {
  unsigned char *bytes = OA_ARGUMENT(call, 0, unsigned char *);
  const unsigned char *arguments = call->arguments[0];
  for (int i = 0; i < 52; i++) bytes[i] = arguments[i];
}
"""


def test_arguments_are_packed_where_the_metadata_of_an_hsaco_has_them(tmp_path: Path) -> None:
    places = ((0, 8, True), (8, 1, False), (16, 8, False), (24, 2, False), (32, 16, False), (48, 4, False))
    signature = (Out[np.uint8], np.int8, np.float64, np.int16, LINE, np.float32)
    for_amd = Module.load(made_hsaco(described={"record": places})).kernel("record", *signature)
    record = Module.load(shared_object(RECORD_C)).kernel("record", *signature)
    assert [row[2:] for row in for_amd._parameters] == [row[2:] for row in record._parameters]
    assert [row[2:4] for row in record._parameters] == [place[:2] for place in places]
    results = np.zeros(52, np.uint8)
    values = (np.int8(-3), 0.1, np.int16(-300), (0.5, 1e-9), np.float32(1.5))
    offload(record, results, *values, grid=1, block=1, device="host")
    for (offset, nbytes, _), kind, value in zip(places[1:], signature[1:], values, strict=True):
        assert results[offset : offset + nbytes].tobytes()[:4] == np.array(value, kind).tobytes()[:4]
        if kind is not LINE:
            assert results[offset : offset + nbytes].tobytes() == np.array(value, kind).tobytes()
    assert results[40:48].tobytes() == np.float64(1e-9).tobytes()


def test_an_hsaco_that_has_an_argument_elsewhere_is_refused() -> None:
    module = Module.load(made_hsaco(described={"odd": ((0, 8, True), (12, 4, False))}))
    with pytest.raises(errors.SignatureError, match="at offset 8 .* at offset 12"):
        module.kernel("odd", InOut[np.float32], np.int32)


LAUNCHES = """extern "C" __global__ void child(int *x) { x[threadIdx.x] += 1; }
extern "C" __global__ void parent(int *x, int n) { child<<<1, n>>>(x); }"""


@pytest.mark.slow
@pytest.mark.parametrize("linked", [True, False], ids=["linked", "not linked"])
def test_a_kernel_that_launches_another_runs_if_it_is_linked(linked: bool) -> None:
    program_or_skip("nvcc")
    options = ("-dlink", "-lcudadevrt") if linked else ()
    module = Module.load(compiled("nvcc", LAUNCHES, ".cu", "-rdc=true", "-cubin", "-arch=sm_90", *options))
    assert {"parent", "child"} <= set(module.kernels)
    assert module.target.endswith(" (not linked)") is not linked
    parent = module.kernel("parent", InOut[np.int32], np.int32)
    if linked:
        x = np.zeros(50, np.int32)
        offload(parent, x, 50, grid=1, block=1, device=open_or_skip("cuda:0"))
        np.testing.assert_array_equal(x, 1)


CALLED = """__device__ __noinline__ float twice(float x) { return 2 * x; }
extern "C" __global__ void doubled(float *y) { y[0] = twice(y[0]); }"""


@pytest.mark.later
@pytest.mark.parametrize("options", [(), ("-G",)], ids=["optimised", "for a debugger"])
def test_a_function_that_a_kernel_calls_is_no_kernel_of_the_cubin(options: tuple[str, ...]) -> None:
    program_or_skip("nvcc")
    built = compiled("nvcc", CALLED, ".cu", "-cubin", "-arch=sm_90", *options)
    assert list(Module.load(built).kernels) == ["doubled"]


def test_a_module_may_end_after_the_modules_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Module.load(module_for("host"))._loaded
    kept.handle(0)
    for name in vars(loaded).copy():  # Python does the same at its end
        if not name.startswith("__"):
            monkeypatch.setattr(loaded, name, None)
    del kept  # raises no exception
