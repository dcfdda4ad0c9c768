"""Modules on AMD GPUs: refused modules with the reasons, the places of arguments, and limits of launches."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import os
import random
import re
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.devices import open_or_skip
from helpers.processes import lacking
from kernels.images import AMD, CLANG, FORMATS, HIP, TARGETS, bundle, compiled, hip_module, made_hsaco
from kernels.mutations import mutated
from kernels.programs import ONE_SOURCE
from offload_args import Device, In, InOut, Kernel, Module, Out, Shared, errors, launch, offload, offload_args
from offload_args.kernels import compilers, rtc

RELU = (InOut[np.float32], np.int32)


@pytest.fixture(params=["hip:0", "hip:1"])
def hip(request: pytest.FixtureRequest) -> str:
    """The name of an AMD GPU, which is also in the test's id."""
    return open_or_skip(request.param)


@pytest.fixture
def double(hip: str) -> str:
    """The AMD GPU if it is the double, for tests of facts that only the double has, and of images without code."""
    if not Device(hip).model.startswith("double"):
        pytest.skip("device unavailable: no double of HIP")
    return hip


def of_another(device: str) -> str:
    return next(target for target in TARGETS if target != compilers.target_of(Device(device)).processor)


# -- modules -----------------------------------------------------------------------------------------------------------


def refused(image: bytes, device: str) -> str:
    relu = Module.load(image, name="mine").kernel("relu", *RELU)
    x = -ramp(4)
    with pytest.raises(errors.ModuleError) as caught:
        offload(relu, x, 4, device=device)
    np.testing.assert_array_equal(x, -ramp(4))
    return str(caught.value)


def test_an_hsaco_for_another_gpu_is_refused_with_both_processors(hip: str) -> None:
    other, device = of_another(hip), Device(hip)
    image = FORMATS[f"clang's HSACO of one source for {other}"]() if CLANG else made_hsaco(other)
    text = refused(image, hip)
    assert "mine: the driver of" in text and "(303)" in text
    assert f"the module has code for {other}, and {hip} is {device.model}" in text
    assert f"({compilers.target_of(device).processor}" in device.model


def test_a_bundle_without_the_gpu_is_refused_with_all_its_processors(hip: str) -> None:
    others = [target for target in TARGETS if target != compilers.target_of(Device(hip)).processor]
    text = refused(bundle({target: made_hsaco(target) for target in others}), hip)
    assert "(209)" in text and f"the module has code for {', '.join(others)}, and {hip} is" in text


def test_a_kernel_of_plain_c_is_refused_with_what_it_lacks(double: str) -> None:
    processor = compilers.target_of(Device(double)).processor
    assert "a kernel lacks .uniform_work_group_size: 1" in refused(
        made_hsaco(processor, uniform_work_group_size=0), double
    )
    assert "uniform" not in refused(made_hsaco(of_another(double)), double)


@pytest.fixture
def with_features() -> str:
    """The double of a gfx90a, whose code may require XNACK and SRAM ECC to be on or off."""
    device = open_or_skip("hip:0")
    if not Device(device).model.startswith("double"):
        pytest.skip("device unavailable: no double of HIP")
    assert Device(device).model.endswith("(gfx90a:sramecc+:xnack-)")
    return device


@pytest.mark.parametrize("target", ["gfx90a:xnack+", "gfx90a:sramecc-", "gfx90a:sramecc+:xnack+"])
def test_code_for_another_mode_of_the_gpu_is_refused_with_both_targets_and_the_remedy(
    with_features: str, target: str
) -> None:
    for image in (made_hsaco(target), bundle({target: made_hsaco(target)})):
        text = refused(image, with_features)
        assert f"the module has code for {target}, and hip:0 is" in text and "(gfx90a:sramecc+:xnack-)" in text
        assert "compile it without :xnack and :sramecc" in text


def test_of_a_bundle_the_code_for_the_gpus_mode_is_taken(with_features: str) -> None:
    targets = {"gfx90a:xnack+": 100, "gfx90a:sramecc+:xnack-": 200, "gfx1100": 300}
    image = bundle(
        {processor: made_hsaco(processor, max_flat_workgroup_size=most) for processor, most in targets.items()}
    )
    assert Module.load(image).kernel("relu", *RELU).info(with_features).most_threads == 200


@pytest.mark.parametrize("version", [4, 5, 6])
def test_code_objects_of_all_versions_load_or_are_refused_with_the_remedy(double: str, version: int) -> None:
    processor = compilers.target_of(Device(double)).processor
    image = made_hsaco(processor, version=version)
    if CLANG:
        changed = "-Werror", "-mcode-object-version=5"  # clang warns of version 6
        options = [processor_ for processor_ in HIP if processor_ not in changed] + [f"-mcode-object-version={version}"]
        image = compiled(CLANG, ONE_SOURCE, ".hip", *options, f"--offload-arch={processor}")
    if version == 6 and Device(double).driver_version < 60000000:
        for file in (image, bundle({processor: image})):
            assert "compile it with -mcode-object-version=5" in refused(file, double)
        return
    for file in (image, bundle({processor: image})):
        x = -ramp(300)
        offload(Module.load(file).kernel("relu", *RELU), x, 300, device=double)
        np.testing.assert_array_equal(x, 0)


def test_an_hsaco_runs_bare_and_bundled(hip: str) -> None:
    if CLANG is None:
        lacking("clang")
    processor = compilers.target_of(Device(hip)).processor
    bare = FORMATS[f"clang's HSACO of one source for {processor}"]()
    for image in (bare, bundle({processor: bare}), bundle({of_another(hip): b"", processor: bare}), hip_module()):
        x = -ramp(300)
        offload(Module.load(image).kernel("relu", *RELU), x, 300, device=hip)
        np.testing.assert_array_equal(x, 0)


def test_a_signature_is_compared_with_the_metadata_in_c_too(hip: str) -> None:
    module = Module.load(hip_module())
    module._loaded._image = dataclasses.replace(module._loaded.image, kernels={}, whole=False)
    wrong: dict[tuple[Any, ...], str] = {
        (InOut[np.float32],): "has 1 parameter, the module's kernel has at least 2; give a type for each$",
        (
            InOut[np.float32],
            np.int32,
            np.int32,
        ): "has 3 parameters, the module's kernel has 2; give a type for each$",
        (
            InOut[np.float32],
            np.int64,
        ): "argument 2 has 8 bytes at offset 8 in the signature, 4 at offset 8 in the module",
    }
    for signature, words in wrong.items():
        with pytest.raises(errors.SignatureError, match=words):
            module.kernel("relu", *signature).info(hip)
    with pytest.raises(errors.ModuleError, match="no kernel of that name"):
        module.kernel("rely", *RELU).info(hip)
    assert module.kernel("relu", *RELU).info(hip).most_threads > 0


def test_mutations_of_an_hsaco_are_modules_or_refused_by_a_device(double: str) -> None:
    processor = compilers.target_of(Device(double)).processor
    images = [made_hsaco(processor), bundle({processor: made_hsaco(processor)}), hip_module()]
    for seed in range(600):
        image = mutated(images[seed % 3], random.Random(seed))
        with contextlib.suppress(errors.OffloadError):
            Module.load(image).kernel("relu", *RELU).info(double)


ODD: dict[str, tuple[str, int, str]] = {
    "a wave of no threads": ("wavefront_size", 0, "damaged: it has a wave of 0 threads"),
    "more registers than there are": ("vgpr_count", 600, "damaged: .* 600 and 0 registers"),
    "more scalar registers": ("sgpr_count", 1000, "damaged: .* 8 and 1000 registers"),
    "more shared memory than a block has": ("group_segment_fixed_size", 65540, "needs 65540 bytes .* has 4 less"),
}


@pytest.mark.parametrize("case", ODD)
def test_metadata_that_ends_the_process_in_hip_is_refused(double: str, case: str) -> None:
    field, value, words = ODD[case]
    module = Module.load(made_hsaco(compilers.target_of(Device(double)).processor, **{field: value}))
    with pytest.raises(errors.ModuleError, match=f"relu: .*{words}"):
        module.kernel("relu", *RELU).info(double)


# -- launches ----------------------------------------------------------------------------------------------------------


def test_the_metadatas_limit_of_a_block_holds_and_is_the_default(double: str) -> None:
    image = made_hsaco(compilers.target_of(Device(double)).processor, max_flat_workgroup_size=100)
    relu = Module.load(image).kernel("relu", *RELU)
    assert relu.info(double).most_threads == relu.info(double).good_threads == 100
    x = -ramp(512)
    with offload_args(x, device=double) as (dx,):
        with pytest.raises(errors.ArgumentError, match="block needs at most 100 threads .* got 101"):
            relu[1, 101](dx, 512)
        launch(relu, dx, 512)
    np.testing.assert_array_equal(x, 0)


def test_a_grid_of_more_threads_than_hip_counts_is_refused(hip: str) -> None:
    relu = Module.load(hip_module()).kernel("relu", *RELU)
    x = -ramp(4)
    with offload_args(x, device=hip) as (dx,):
        with pytest.raises(errors.ArgumentError, match=r"fewer than 2\^32 threads along x on .*, got 16777216 blocks"):
            relu[1 << 24, 256](dx, 4)
        relu[(1 << 24) - 1, 256](dx, 4) if Device(hip).model.startswith("double") else relu[1, 256](dx, 4)
    np.testing.assert_array_equal(x, 0)


def test_shared_memory_of_a_block_is_what_the_kernel_leaves(hip: str) -> None:
    relu = Module.load(hip_module()).kernel("relu", *RELU)
    info = relu.info(hip)
    assert info.fixed_shared_bytes + info.most_shared_bytes == 65536
    x = -ramp(4)
    with offload_args(x, device=hip) as (dx,):
        relu[1, 64, Shared[np.float32](16384)](dx, 4)
        with pytest.raises(errors.ArgumentError, match="shared_bytes needs 0 to 65536"):
            relu[1, 64, Shared[np.float32](16385)](dx, 4)
    np.testing.assert_array_equal(x, 0)


RECORD_HIP = """\
#include <offload_args/kernel.h>
struct Line { float slope; double start; };
OA_KERNEL(record, oa::Out<double> y, signed char a, double b, short c, Line line, float d) {
  for (auto element : y.mine(oa::Linear1D(1), here)) *element = a + b + c + line.slope + line.start + d;
}
"""
RECORD_CL = """\
typedef struct { float slope; double start; } Line;
kernel void record(global double *y, char a, double b, short c, Line line, float d) {
  *y = a + b + c + line.slope + line.start + d;
}
"""
PACKED = """\
import ctypes, sys
import numpy as np
from offload_args import Module, Out, offload

LINE = np.dtype([("slope", np.float32), ("start", np.float64)], align=True)
module = Module.load(sys.argv[1])
record = module.kernel("record", Out[np.float64], np.int8, np.float64, np.int16, LINE, np.float32)
values = np.int8(-3), np.float64(0.1), np.int16(-300), np.array((0.5, 1e-9), LINE)[()], np.float32(1.5)
offload(record, np.zeros(1), *values, grid=1, block=1, device="hip:0")
double = ctypes.CDLL("libamdhip64.so")
double.double_arguments.restype = ctypes.c_void_p
nbytes = ctypes.c_size_t()
arguments = ctypes.string_at(double.double_arguments(ctypes.byref(nbytes)), 8192)[: nbytes.value]
parameters = module.kernels["record"].parameters
assert [parameter.offset for parameter in parameters] == [0, 8, 16, 24, 32, 48], parameters
assert np.frombuffer(arguments[:8], np.uint64)[0] != 0
for parameter, value in zip(parameters[1:], values):
    actual = np.frombuffer(arguments[parameter.offset : parameter.offset + parameter.nbytes], value.dtype)[0]
    assert actual == value, (parameter, actual, value)
ends = {parameter.offset + i for parameter in parameters for i in range(parameter.nbytes)}
assert not any(byte for i, byte in enumerate(arguments) if i not in ends), "bytes between or after the arguments"
assert nbytes.value >= 52
"""
RECORDS = {}
for target in TARGETS if CLANG else ():
    cl = (*AMD, "-cl-uniform-work-group-size", f"-mcpu={target}")
    RECORDS[f"OpenCL C for {target}"] = (target, partial(compiled, CLANG, RECORD_CL, ".cl", *cl))
    options = (*HIP, f"--offload-arch={target}")
    RECORDS[f"kernel.h for {target}"] = (target, partial(compiled, CLANG, RECORD_HIP, ".hip", *options))


@pytest.mark.parametrize("case", RECORDS or ["of clang"])
def test_arguments_arrive_where_the_metadata_of_clangs_hsaco_has_them(case: str, tmp_path: Any) -> None:
    if not Device(open_or_skip("hip:0")).model.startswith("double"):
        pytest.skip("device unavailable: no double of HIP")
    if CLANG is None:
        lacking("clang")
    target, image = RECORDS[case]
    path = tmp_path / "record.hsaco"
    path.write_bytes(image())
    command = [sys.executable, "-c", PACKED, str(path)]
    ran = subprocess.run(command, env={**os.environ, "HIP_DOUBLE_PROCESSOR": target}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_a_launch_that_fails_is_an_error_with_its_grid_and_the_device_lives(double: str) -> None:
    fail = ctypes.CDLL("libamdhip64.so").hipDoubleFail
    relu = Module.load(hip_module(), name="mine").kernel("relu", *RELU)
    x = -ramp(4)
    with offload_args(x, device=double) as (dx,):
        relu[1, 32](dx, 0)
        said = []
        for k in range(1, 9):  # also calls before the launch fail
            fail(ctypes.c_longlong(k))
            try:
                relu[2, 32](dx, 4)
            except errors.BackendError as error:
                said.append(str(error))
            finally:
                fail(ctypes.c_longlong(0))
            dx.assign(-ramp(4))
        assert re.search(r"hipModuleLaunchKernel\(grid 2x1x1, block 32x1x1\) failed.*999", "\n".join(said)), said
        relu[1, 32](dx, 2)
    np.testing.assert_array_equal(x, [0, 0, *-ramp(4)[2:]])


# -- hiprtc ------------------------------------------------------------------------------------------------------------


def test_without_hiprtc_the_error_says_what_is_missing(
    double: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    rtc._load_hiprtc.cache_clear()
    source = "#include <offload_args/kernel.h>\nOA_KERNEL(none, oa::InOut<int> x) {}"
    compile = partial(Kernel.compile, source, "none", [InOut[np.int32]], device=double)
    monkeypatch.setattr(rtc, "_hiprtc_places", lambda _: iter(["/no/libhiprtc.so"]))
    with pytest.raises(errors.LibraryError, match=r"hiprtc was not found; .*offload-args\[rocm\].*Module.load takes"):
        compile()
    monkeypatch.setenv("OFFLOAD_ARGS_HIPRTC", "libhiprtc.so")
    with pytest.raises(errors.LibraryError, match="OFFLOAD_ARGS_HIPRTC needs an absolute path"):
        compile()
    (tmp_path / "libhiprtc.so").write_text("no library")
    monkeypatch.setenv("OFFLOAD_ARGS_HIPRTC", str(tmp_path / "libhiprtc.so"))
    with pytest.raises(errors.LibraryError, match="invalid ELF header|file too short"):
        compile()
    a = np.zeros(3, np.float32)  # no other argument needs it
    offload(Module.load(hip_module()).kernel("relu", *RELU), a, 3, device=double)
    monkeypatch.undo()
    compile()


def test_a_kernel_compiles_for_each_kind_of_gpu_that_it_is_used_on(double: str) -> None:
    source = "#include <offload_args/kernel.h>\nOA_KERNEL(twice, oa::In<float> x, oa::Out<float> y, int n) {\n"
    source += "  for (auto element : y.mine(oa::Linear1D(n), here)) *element = 2 * x[element.index()];\n}\n"
    twice = Kernel.compile(source, "twice", [In[np.float32], Out[np.float32], np.int32], device="host")
    for name in (double, "host"):
        x, y = ramp(9), np.zeros(9, np.float32)
        offload(twice, x, y, 9, device=name)
        np.testing.assert_array_equal(y, 2 * x)
    compiled = twice._loaded._images[compilers.target_of(Device(double))]  # type: ignore[attr-defined]
    assert (compiled.format, compiled.target) == ("HSACO", compilers.target_of(Device(double)).processor)
