"""Machine code of kernels in Python: for GPUs that this machine lacks, without a compiler, from the cache."""

# mypy: ignore-errors

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.devices import open_or_skip
from offload_args import Device, In, InOut, Module, Out, errors, kernel, offload, offload_args
from offload_args.kernels import Linear1D, Tiles, atomic_add
from offload_args.kernels.compilers import Target
from offload_args.kernels.python import decorated

LINE = np.dtype([("slope", np.float32), ("start", np.float64)], align=True)


@kernel
def axpy(a: np.float32, x: In[np.float32], y: InOut[np.float32].by(Linear1D())):
    for i in y.mine():
        y[i] += a * x[i]


@kernel
def everything(
    flag: np.bool_, c: np.complex128, line: LINE, half: np.float16, m: In[np.complex64], n: InOut[np.float64],
    y: Out[np.float64].by(Tiles(4, 8)),
):  # fmt: skip
    for i, j in y.mine():
        y[i, j] = (m[i, j] * c).real + line.slope * line.start + half if flag else i
        atomic_add(n, 0, y.size)


TARGETS = [Target("cuda", "sm_90"), Target("hip", "gfx90a")]
OTHERS = [Target("cuda", "sm_80"), Target("cuda", "sm_100"), Target("hip", "gfx1100"), Target("hip", "gfx90a:xnack-")]
ALL = [*TARGETS, *(pytest.param(choice, marks=pytest.mark.slow) for choice in OTHERS)]


@pytest.mark.later
@pytest.mark.parametrize("target", ALL, ids=lambda target: target.processor)
def test_a_module_for_a_gpu_that_is_not_here_states_the_parameters(target: Target) -> None:
    for function, values in ((axpy, 1), (everything, 4)):
        image = function._source.compiled(target)
        (facts,) = image.kernels.values()
        assert facts.name == function.name and image.backend == target.backend
        kinds = [parameter.kind for parameter in facts.parameters]
        arrays = len(function._shapes)
        assert len(kinds) == values + arrays * 5
        assert kinds[values : values + arrays] == ["pointer"] * arrays
        # The launcher's places of parameters agree with the module's.
        declared = [*function._written.declared, *[np.int64] * (4 * arrays)]
        Module.load(image.data).kernel(function.name, *declared)


@pytest.mark.later
@pytest.mark.parametrize("target", [ALL[0], ALL[2], ALL[3]], ids=lambda target: target.processor)
def test_ptx_is_such_as_older_drivers_take_and_forms_no_fma(target: Target, tmp_path: Path) -> None:
    for function in (axpy, everything):
        text = function._source.compiled(target).data.decode()
        assert re.search(r"^\.version (\S+)$", text, re.M)[1] == ("8.7" if target.processor == "sm_100" else "7.8")
        assert f".target {target.processor}" in text
        assert "fma" not in text and not re.search(r"(?<!\.)\b(add|mul|sub)\.f(32|64)", text)
        assert ".local" not in text
        if shutil.which("ptxas"):
            path = tmp_path / "kernel.ptx"
            path.write_text(text)
            subprocess.run(["ptxas", f"-arch={target.processor}", path, "-o", tmp_path / "kernel.cubin"], check=True)


@pytest.mark.parametrize("fma", [False, True])
def test_a_product_and_a_sum_are_one_operation_if_the_kernel_permits_it(fma: bool) -> None:
    @kernel.function
    def scaled(a, x):
        return a * x

    @kernel(debug=False, fma=fma)
    def add(a: np.float64, x: In[np.float64], y: InOut[np.float64].by(Linear1D())):
        for i in y.mine():
            y[i] += scaled(a, x[i])

    text = add._source.compiled(TARGETS[0]).data.decode()
    operations = re.findall(r"\b(fma|mul|add)\.rn\.f64", text)
    assert operations == (["fma"] if fma else ["mul", "add"]) and "f64.contract" not in text
    assert add._source.compiled(Target("hip", "gfx90a")).format == "HSACO"


def test_ptx_keeps_the_signs_of_integers_that_wrap_and_of_zeros() -> None:
    @kernel(debug=False)
    def signs(
        x: In[np.int64], h: In[np.int16], v: In[np.float32], y: Out[np.float64].by(Linear1D()),
        z: Out[np.int64].by(Linear1D()),
    ):  # fmt: skip
        for i in y.mine():
            y[i] = x[i] ** 16 + min(0.0, v[i]) + max(np.float64(-0.0), x[i])
            z[i] = abs(h[i]) + (-h[i])

    text = signs._source.compiled(TARGETS[0]).data.decode()
    assert "cvt.rn.f64.s64" in text and "cvt.rn.f64.u64" not in text
    assert not re.search(r"\b(abs|neg)\.s16", text)  # ptxas takes abs.s16 and neg.s16 of -32768 as 32768
    assert not re.search(r"\b(min|max)\.f", text)  # they are -0.0 of 0.0 and -0.0, and 0.0
    assert len(re.findall(r"\bsetp\.[gl]eu\.f(32|64)", text)) == 2


def test_an_hsaco_names_its_processor_and_code_object() -> None:
    image = axpy._source.compiled(Target("hip", "gfx90a"))
    assert image.format == "HSACO" and "gfx90a" in image.target
    assert b".uniform_work_group_size" in image.data


@pytest.mark.parametrize("device", ["cuda:0", "hip:0", "hip:1"])
def test_a_gpu_loads_the_module_and_takes_the_launch(device: str) -> None:
    open_or_skip(device)
    x, y = ramp(1000), ramp(1000)
    offload(axpy, 2.0, x, y, device=device)
    if not Device(device).model.startswith("double"):
        np.testing.assert_array_equal(y, 3 * ramp(1000))
    assert axpy.info(device).most_threads >= 256


def test_a_saved_module_is_read_again(tmp_path: Path) -> None:
    for target, form in (("sm_90", "PTX"), ("gfx90a", "HSACO")):
        axpy.save(tmp_path / "module", target=target)
        assert Module.load(tmp_path / "module").format == form
    with offload_args(device="host"):
        pass
    data = axpy._source.compiled(Target("host", "")).data
    built = Module.load(data).kernel("axpy", np.float32, In[np.float32], InOut[np.float32], *[np.int64] * 8)
    x, y = ramp(10), ramp(10)
    offload(built, 2.0, x, y, *[10, 1, 1, 1] * 2, device="host")
    np.testing.assert_array_equal(y, 3 * ramp(10))


def test_a_name_that_is_not_ascii_is_spelled_otherwise_in_the_module() -> None:
    @kernel
    def größe(y: Out[np.int64].by(Linear1D())):
        for i in y.mine():
            y[i] = y.size

    y = np.zeros(5, np.int64)
    offload(größe, y, device="host")
    assert (y == 5).all()
    assert größe._source.compiled(TARGETS[0]).symbols["größe"].isascii()


# -- without a compiler, and from the cache ----------------------------------------------------------------------------

PROGRAM = """
import sys
import numpy as np
from offload_args import InOut, kernel, offload
from offload_args.kernels import Linear1D

BY = {by}

@kernel
def scale(y: InOut[np.float32].by(Linear1D())):
    for i in y.mine():
        y[i] *= BY

y = np.arange(5, dtype=np.float32)
offload(scale, y, device="host")
print(*y.astype(int), "numba" in sys.modules)
"""


def run(folder: Path, by: int) -> str:
    (folder / "program.py").write_text(PROGRAM.format(by=by))
    environment = {"PATH": "", "OFFLOAD_ARGS_CACHE": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, folder / "program.py"], env=environment, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip()


@pytest.mark.slow  # four processes that import numba
def test_a_kernel_needs_no_compiler_and_is_kept(tmp_path: Path) -> None:
    assert run(tmp_path, 3) == "0 3 6 9 12 True"
    assert run(tmp_path, 3) == "0 3 6 9 12 False"  # nothing was compiled, and numba was not imported
    assert run(tmp_path, 4) == "0 4 8 12 16 True"  # a constant of the kernel has changed
    for kept in (tmp_path / "cache").iterdir():
        kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    assert run(tmp_path, 3) == "0 3 6 9 12 True"


def test_without_numba_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    @kernel
    def fill(y: Out[np.float32].by(Linear1D())):
        for i in y.mine():
            y[i] = 1

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(errors.LibraryError, match=r"need numba, .*: pip install 'offload-args\[kernels\]'"):
        offload(fill, np.zeros(3, np.float32), device="host")


def test_a_version_of_numba_that_was_not_tried_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.99.0")
    monkeypatch.setattr(decorated, "_said", [])
    with pytest.warns(errors.OffloadWarning, match="were tried with numba .*, not with 0.99.0"):
        decorated._versions()
    decorated._versions()


@pytest.mark.later
def test_a_kernel_of_other_closures_is_another_kernel() -> None:
    def scaled_by(by: float):
        @kernel
        def scale(y: InOut[np.float32].by(Linear1D())):
            for i in y.mine():
                y[i] *= by

        return scale

    y = ramp(4)
    for by in (2, 3.0):
        offload(scaled_by(by), y, device="host")
    np.testing.assert_array_equal(y, 6 * ramp(4))
