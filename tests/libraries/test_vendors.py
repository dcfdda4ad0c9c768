"""For every library, files of other libraries are not loaded, and arrays of other packages are accepted."""

from __future__ import annotations

import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.arrays import ramp
from helpers.devices import HIP, library_or_skip
from helpers.vendor import ROOT
from offload_args import In, Out, cublaslt, cudnn, curand, cusolver, offload_args
from offload_args.errors import DirectionError

ROLES = {path.stem: tomllib.loads(path.read_text()) for path in sorted((ROOT / "bindings" / "roles").glob("*.toml"))}
FILES = {name: roles["library"]["sonames"] for name, roles in ROLES.items() if "library" in roles}
NAMES = tuple(FILES)
TRIED = """
import os
from offload_args import libraries
for name in {names}:
    for path in {paths}:
        os.environ[f"OFFLOAD_ARGS_{{name.upper()}}"] = path
        try: print("loaded", libraries.load(name))
        except Exception as error: print(type(error).__name__, str(error))
    del os.environ[f"OFFLOAD_ARGS_{{name.upper()}}"]
    try: print(libraries.load(name).path)
    except Exception as error: print(type(error).__name__, str(error))
"""


def compile_to(path: Path, source: str) -> Path:
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True)
    return path


@pytest.mark.later
@pytest.mark.promise("T39")
def test_a_missing_corrupt_planted_or_other_file_is_not_loaded(tmp_path: Path) -> None:
    planted = compile_to(
        tmp_path / "planted", "#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { exit(66); }"
    )
    for name in {file for files in FILES.values() for file in files}:
        (tmp_path / name).write_bytes(planted.read_bytes())
    other = compile_to(tmp_path / "libother.so", "int of_another_kind(void) { return 0; }")
    corrupt = tmp_path / "libcorrupt.so"
    corrupt.write_bytes(b"\x7fELF" + bytes(100))
    cases = {
        str(tmp_path / "libnothing.so"): "No such file",
        str(corrupt): str(corrupt),
        str(other): "has no symbol",
        "./libother.so": "not an absolute path",
    }
    code = TRIED.format(names=NAMES, paths=tuple(cases))
    run = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == len(NAMES) * (len(cases) + 1)
    for name in NAMES:
        for path, words in cases.items():
            line = lines.pop(0)
            assert line.startswith(f"LibraryError {name}: not loaded"), line
            assert words in line, (path, line)
            assert f"OFFLOAD_ARGS_{name.upper()}" in line, line
        assert str(tmp_path) not in (actual := lines.pop(0)), actual
        assert actual.startswith(("/", "LibraryError ")), actual


class Foreign:
    """An array of another package, with only the interface that is needed here."""

    def __init__(self, pointer: Any) -> None:
        self.__cuda_array_interface__ = pointer.__cuda_array_interface__
        self.__dlpack_device__ = pointer.__dlpack_device__  # the kind of its GPU


def borrowed_and_fixed(device: str, first: Any, second: Any, call: Any) -> None:
    """Call with an array of another package as input and as output. The call is refused if the output is read-only."""
    with offload_args(first, second, In(second.copy()), device=device) as (done, written, fixed):
        with offload_args(Foreign(done), Foreign(written)) as (a, b):
            call(a, b)
        with offload_args(Foreign(done), Foreign(fixed)) as (a, b), pytest.raises(DirectionError):
            call(a, b)


@pytest.mark.promise("T38")
@pytest.mark.parametrize("device", ["cuda:0", HIP], indirect=True)
def test_cublas_and_rocblas_add_arrays_of_another_package(device: str, library: ModuleType) -> None:
    x, y = ramp(4), np.ones(4, np.float32)
    borrowed_and_fixed(device, x, y, lambda dx, dy: library.saxpy(4, 2.0, dx, 1, dy, 1))
    np.testing.assert_array_equal(y, 2 * ramp(4) + 1)


@pytest.mark.promise("T38")
def test_cusolver_factors_an_array_of_another_package(cuda: str) -> None:
    library_or_skip("cusolver", cuda)
    info, A = np.full(1, 9, np.int32), np.diag([4.0, 9.0])
    lower = cusolver.CUBLAS_FILL_MODE_LOWER
    borrowed_and_fixed(cuda, info, A, lambda di, dA: cusolver.dpotrf(lower, 2, dA, 2, di))
    assert A.diagonal().tolist() == [2, 3] and info.tolist() == [0]


@pytest.mark.promise("T38")
def test_curand_fills_an_array_of_another_package(cuda: str) -> None:
    library_or_skip("curand", cuda)
    values = np.zeros(64, np.float32)
    with curand.create_generator(curand.RNG_PSEUDO_PHILOX4_32_10, cuda) as generator:
        borrowed_and_fixed(cuda, ramp(2), values, lambda _, out: curand.generate_uniform(out, 64, handle=generator))
    assert values.all() and (values <= 1).all()


@pytest.mark.promise("T38")
def test_cublaslt_multiplies_arrays_of_another_package(cuda: str) -> None:
    library_or_skip("cublaslt", cuda)
    a, d = ramp(32, 32), np.zeros((32, 32), np.float32)
    borrowed_and_fixed(cuda, a, d, lambda da, dd: cublaslt.Matmul(da, da, dd)(da, da, dd))
    np.testing.assert_allclose(d, ramp(32, 32) @ ramp(32, 32), rtol=1e-4)


@pytest.mark.promise("T38")
def test_cudnn_activates_an_array_of_another_package(cuda: str) -> None:
    library_or_skip("cudnn", cuda)
    x, y = ramp(1, 2, 4, 4) - 9, np.zeros((1, 2, 4, 4), np.float32)
    relu = cudnn.activation(cudnn.ACTIVATION_RELU)

    def call(dx: Any, dy: Any) -> None:
        cudnn.activation_forward(relu, 1, cudnn.tensor(dx, "NCHW"), dx, 0, cudnn.tensor(dy, "NCHW"), dy)

    borrowed_and_fixed(cuda, x, y, call)
    np.testing.assert_array_equal(y, np.maximum(ramp(1, 2, 4, 4) - 9, 0))


def test_two_threads_call_one_product(cuda: str) -> None:
    library_or_skip("cublaslt", cuda)
    random = np.random.default_rng(4)
    a, b = (random.standard_normal((32, 32)).astype(np.float32) for _ in range(2))
    product, failures = cublaslt.Matmul(a, b, np.zeros_like(a), device=cuda), []

    def work(factor: int) -> None:
        try:
            for _ in range(20):
                d = np.zeros_like(a)
                with offload_args(In(a.copy()), In(b.copy()), Out(d), device=cuda) as (da, db, dd):
                    product(da, db, dd, alpha=factor)
                np.testing.assert_allclose(d, factor * (a @ b), rtol=1e-3, atol=1e-3)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (1, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
